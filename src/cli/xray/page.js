"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const steps = [...document.querySelectorAll("section.step")];
let at = -1;
function go(to) {
  at = Math.max(0, Math.min(steps.length - 1, to));
  steps.forEach((step, i) => {
    step.classList.toggle("now", i === at);
    if (i === at) step.setAttribute("aria-current", "step"); else step.removeAttribute("aria-current");
  });
  steps[at].focus();
  steps[at].scrollIntoView({ block: "nearest" });
}
document.getElementById("stepper").hidden = false;
document.getElementById("back").addEventListener("click", () => go(at - 1));
document.getElementById("forward").addEventListener("click", () => go(at + 1));

// The program's own search, again: the last entry not above the target, then batch after batch.
function lookUp(target) {
  const { entries, entries_all, batches, anchor } = data;
  if (!entries_all) return "this page does not hold all entries of the index";
  let low = 0, high = entries.length;
  const looked = [];
  while (low < high) {
    const middle = low + Math.floor((high - low) / 2);
    looked.push(entries[middle][0]);
    if (entries[middle][0] <= target) low = middle + 1; else high = middle;
  }
  const [offset, position] = low > 0 ? entries[low - 1] : [data.base_offset, 0];
  const found = `looked at ${looked.join(", ") || "no entry"}; anchor ${offset} at ${position}`;
  const last = batches[batches.length - 1];
  if (!anchor || position !== anchor.position || !last || target > last.last_offset) {
    return `${found}; its scan is outside of what this page holds: offsetfs xray --offset ${target}`;
  }
  let records = 0;
  for (const batch of batches) {
    if (batch.last_offset >= target) {
      if (batch.base_offset > target) return `${found}; a hole: no batch holds ${target}`;
      return `${found}, ${records} records scanned, ${batch.position} reached`;
    }
    records += batch.records;
  }
  return found;
}
const form = document.getElementById("again");
form.hidden = false;
form.addEventListener("submit", (event) => {
  event.preventDefault();
  const target = form.elements.target.valueAsNumber;
  document.getElementById("found").textContent = Number.isSafeInteger(target) && target >= 0
    ? lookUp(target) : "an offset is a whole number from 0";
});
