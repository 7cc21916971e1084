//! The picture of a lookup as one HTML page: complete without its script, which only steps through
//! it and looks up other targets in what the page holds. Everything from the log is escaped, and
//! the page's policy lets nothing run or load but the style and the script that are in it.

use std::fmt::{self, Write as _};

use serde_json::json;

use super::text;
use crate::inspect::xray::routes::Route;
use crate::inspect::xray::{Answer, ProbeRow, Visit, Xray};

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
/// What the page's policy knows the style and the script by; the browser test holds them.
const STYLE_HASH: &str = "sha256-noRCZs+6NPSuM0tepyWxafZFNL0aLeonph7wfKTN3aM=";
const SCRIPT_HASH: &str = "sha256-lVmr83sPasUaotVB+tva1DKxXXnNJ5UavEFcYBhZmJM=";
/// Width of the map of a segment, in its own units.
const MAP_WIDTH: f64 = 1000.0;

/// The page.
pub fn page(xray: &Xray) -> String {
    let mut body = String::new();
    write_body(xray, &mut body).expect("a string takes every character");
    let title = escaped(&format!("{}: {}", xray.partition, xray.target));
    let mut page = String::new();
    let mut rest = PAGE;
    // Piece by piece, since what is put in may hold such a word itself.
    while let Some((before, word, behind)) = next_word(rest) {
        page.push_str(before);
        page.push_str(match word {
            "TITLE" => &title,
            "STYLE" => STYLE,
            "STYLE_HASH" => STYLE_HASH,
            "SCRIPT" => SCRIPT,
            "SCRIPT_HASH" => SCRIPT_HASH,
            "BODY" => &body,
            _ => "",
        });
        if word == "DATA" {
            page.push_str(&data(xray));
        }
        rest = behind;
    }
    page + rest
}

fn next_word(text: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = text.split_once('@')?;
    let (word, behind) = rest.split_once('@')?;
    Some((before, word, behind))
}

/// What the script looks up in; no `<` that could end the element that it stands in.
fn data(xray: &Xray) -> String {
    let visit = xray.visits.last();
    let scan = visit.and_then(|visit| visit.scans.last());
    let whole = scan.is_some_and(|scan| scan.batches_left_out == 0);
    let entries_count =
        visit.and_then(|visit| visit.offset_index.as_ref()).map_or(0, |search| search.entries);
    let data = json!({
        "base_offset": visit.map(|visit| visit.base_offset),
        "entries": visit.map(|visit| &visit.entries),
        "entries_all": visit.is_some_and(|visit| visit.entries.len() >= entries_count),
        "anchor": xray.anchor,
        "batches": scan.filter(|_| whole).map(|scan| &scan.batches[..]).unwrap_or_default(),
    });
    data.to_string().replace('<', "\\u003c")
}

fn write_body(xray: &Xray, out: &mut String) -> fmt::Result {
    write_answer(xray, out)?;
    write_segment(xray, out)?;
    for visit in &xray.visits {
        write_index(visit, out)?;
        write_scan(xray, visit, out)?;
    }
    write_pages(xray, out)?;
    if let Some(routes) = &xray.routes {
        write_routes(routes, out)?;
    }
    write!(
        out,
        "<nav id=\"stepper\" hidden aria-label=\"Steps\"><button id=\"back\" type=\"button\">Back\
         </button> <button id=\"forward\" type=\"button\">Forward</button></nav>\
         <section><h2>Another target</h2><form id=\"again\" hidden><label for=\"target\">Offset\
         </label> <input id=\"target\" name=\"target\" type=\"number\" min=\"0\" required> <button>\
         Look up</button></form><p><output id=\"found\" for=\"target\" aria-live=\"polite\">\
         </output>\
         </p></section><section><h2>All of it as text</h2><div class=\"table\" tabindex=\"0\" \
         role=\"region\" aria-label=\"All of it as text\"><pre>{}</pre></div></section>",
        escaped(&text::text(xray))
    )
}

fn write_answer(xray: &Xray, out: &mut String) -> fmt::Result {
    write!(out, "<section><h2>The answer</h2>")?;
    match (&xray.answer, xray.anchor) {
        (Answer::Record(found), Some(anchor)) => write!(
            out,
            "<p class=\"answer\">Offset {}: anchor {} at {}, {} records scanned, {} reached.</p>",
            found.offset, anchor.offset, anchor.position, xray.records_scanned, found.position
        )?,
        (Answer::Record(found), None) => {
            write!(out, "<p class=\"answer\">Offset {} at {}.</p>", found.offset, found.position)?;
        }
        (Answer::Damage { segment, position, bytes, reason, .. }, _) => write!(
            out,
            "<p class=\"damage\">Damage: {} position {position}, {bytes} bytes: {}.</p>",
            escaped(segment),
            escaped(reason)
        )?,
        (Answer::Nothing { why }, _) => write!(out, "<p>No record: {}.</p>", escaped(why))?,
    }
    write!(
        out,
        "<dl><dt>log start</dt><dd>{}</dd><dt>high watermark</dt><dd>{}</dd><dt>log end</dt>\
         <dd>{}</dd></dl></section>",
        xray.log_start, xray.high_watermark, xray.log_end
    )
}

fn write_segment(xray: &Xray, out: &mut String) -> fmt::Result {
    open_step(out, "1. The segment", NEWCOMER[0], ENGINEER[0])?;
    write!(out, "<p>{} segments.</p>", xray.segments.len())?;
    write_probes(&xray.segment_search, "base offset", out)?;
    write!(out, "</section>")
}

fn write_index(visit: &Visit, out: &mut String) -> fmt::Result {
    open_step(out, "2. The index", NEWCOMER[1], ENGINEER[1])?;
    write!(out, "<p>Segment {}, {} bytes.</p>", escaped(&visit.segment), visit.bytes)?;
    let searches = [(&visit.time_index, "time"), (&visit.offset_index, "offset")];
    for (search, what) in searches {
        let Some(search) = search else { continue };
        write_probes(&search.probes, what, out)?;
        match (search.offset, search.verified) {
            (Some(offset), Some(true)) => {
                write!(out, "<p>Entry {offset}: the log has there what it promises.</p>")?;
            }
            (Some(offset), _) => write!(
                out,
                "<p class=\"damage\">Entry {offset}: the log does not have what it promises, so \
                 the \
                 search begins at the segment's start.</p>"
            )?,
            (None, _) => write!(out, "<p>No entry will do: the segment's start.</p>")?,
        }
    }
    write!(out, "</section>")
}

fn write_scan(xray: &Xray, visit: &Visit, out: &mut String) -> fmt::Result {
    for scan in &visit.scans {
        open_step(out, "3. The scan", NEWCOMER[2], ENGINEER[2])?;
        write!(
            out,
            "<p>From {} at {}: {} batches, {} records and {} bytes passed",
            scan.anchor.offset,
            scan.anchor.position,
            scan.batches_passed,
            scan.records_passed,
            scan.bytes_passed
        )?;
        if let Some(reached) = scan.reached {
            write!(out, ", {reached} reached")?;
        }
        write!(out, ".</p>")?;
        if scan.doubted {
            write!(
                out,
                "<p class=\"damage\">Something is not as it should be, so everything is verified \
                 from the anchor on.</p>"
            )?;
        }
        let end = scan.reached.unwrap_or(scan.anchor.position);
        write_map(visit, scan.anchor.position, end, out)?;
        write!(out, "</section>")?;
    }
    if let Answer::Record(found) = &xray.answer {
        open_step(out, "The record", NEWCOMER[4], ENGINEER[4])?;
        write!(out, "<div class=\"table\" tabindex=\"0\" role=\"region\" aria-label=\"Header\">")?;
        write!(out, "<table><caption>Header of the batch</caption><tr><th scope=\"col\">position")?;
        write!(out, "</th><th scope=\"col\">field</th><th scope=\"col\">bytes</th>")?;
        write!(out, "<th scope=\"col\">value</th></tr>")?;
        for field in &found.fields {
            write!(
                out,
                "<tr><td>{}</td><th scope=\"row\">{}</th><td>{}</td><td>{}</td></tr>",
                field.position, field.name, field.hex, field.value
            )?;
        }
        write!(out, "</table></div></section>")?;
    }
    Ok(())
}

/// The segment to scale: entries of the index, the scan, and where it ended.
fn write_map(visit: &Visit, from: u64, to: u64, out: &mut String) -> fmt::Result {
    #[expect(clippy::cast_precision_loss, reason = "a picture is less exact than this")]
    let at = |position: u64| position as f64 / visit.bytes.max(1) as f64 * MAP_WIDTH;
    write!(
        out,
        "<svg viewBox=\"0 0 {MAP_WIDTH} 60\" role=\"img\" aria-label=\"Map of {} bytes: scan from \
         {from} to {to}, {} index entries\"><rect class=\"whole\" y=\"20\" width=\"{MAP_WIDTH}\" \
         height=\"20\"/><rect class=\"scan\" x=\"{:.1}\" y=\"20\" width=\"{:.1}\" height=\"20\"/>",
        visit.bytes,
        visit.entries.len(),
        at(from),
        (at(to) - at(from)).max(1.0)
    )?;
    let step = visit.entries.len().div_ceil(200).max(1);
    for (_, position) in visit.entries.iter().step_by(step) {
        let x = at(*position);
        write!(out, "<line class=\"entry\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"8\" y2=\"20\"/>")?;
    }
    let x = at(to);
    write!(out, "<line class=\"target\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"14\" y2=\"52\"/></svg>")
}

fn write_pages(xray: &Xray, out: &mut String) -> fmt::Result {
    open_step(out, "4. The pages", NEWCOMER[3], ENGINEER[3])?;
    write!(out, "<div class=\"table\" tabindex=\"0\" role=\"region\" aria-label=\"Page cache\">")?;
    write!(
        out,
        "<table><caption>Page cache before the lookup</caption><tr><th scope=\"col\">file"
    )?;
    write!(out, "</th><th scope=\"col\">pages</th><th scope=\"col\">cached</th></tr>")?;
    for it in &xray.page_cache {
        let file = escaped(&it.file);
        write!(out, "<tr><th scope=\"row\">{file}</th><td>{}</td>", it.pages)?;
        write!(out, "<td>{}</td></tr>", it.cached)?;
    }
    write!(
        out,
        "</table></div><p>{} bytes were read for the lookup, in {} reads; {} before it, to open \
         the log.</p></section>",
        xray.bytes_read,
        xray.reads.len(),
        xray.bytes_read_to_open
    )
}

/// What each route is stands beside what it cost.
fn write_routes(routes: &[Route], out: &mut String) -> fmt::Result {
    open_step(out, "5. The routes", NEWCOMER[5], ENGINEER[5])?;
    write!(out, "<div class=\"table\" tabindex=\"0\" role=\"region\" aria-label=\"Routes\">")?;
    write!(out, "<table><caption>One read of the batch, measured</caption><tr>")?;
    write!(out, "<th scope=\"col\">route</th>")?;
    for head in text::COST_HEADS {
        write!(out, "<th scope=\"col\">{head}</th>")?;
    }
    write!(out, "<th scope=\"col\">what happens</th></tr>")?;
    for Route { route, how, cost, unavailable } in routes {
        write!(out, "<tr><th scope=\"row\">{route}</th>")?;
        if let Some(cost) = cost {
            for cell in text::cost_cells(cost) {
                write!(out, "<td>{cell}</td>")?;
            }
        } else {
            let reason = escaped(unavailable.as_deref().unwrap_or_default());
            write!(out, "<td colspan=\"7\">not to be had here: {reason}</td>")?;
        }
        write!(out, "<td>{how}</td></tr>")?;
    }
    write!(out, "</table></div></section>")
}

fn write_probes(rows: &[ProbeRow], what: &str, out: &mut String) -> fmt::Result {
    write!(
        out,
        "<div class=\"table\" tabindex=\"0\" role=\"region\" aria-label=\"Search by {what}"
    )?;
    write!(out, "\"><table><caption>Binary search by {what}</caption><tr>")?;
    for head in ["low", "middle", "high", what, "then"] {
        write!(out, "<th scope=\"col\">{head}</th>")?;
    }
    write!(out, "</tr>")?;
    for ProbeRow { low, middle, high, value, below } in rows {
        let value = value.map_or("impossible".to_owned(), |value| value.to_string());
        let turn = if *below { "right" } else { "left" };
        write!(out, "<tr><td>{low}</td><td>{middle}</td><td>{high}</td><td>{value}</td>")?;
        write!(out, "<td>{turn}</td></tr>")?;
    }
    write!(out, "</table></div>")
}

fn open_step(out: &mut String, title: &str, newcomer: &str, engineer: &str) -> fmt::Result {
    write!(
        out,
        "<section class=\"step\" tabindex=\"-1\"><h2>{title}</h2><p class=\"newcomer\">\
         {newcomer}</p>\
         <p class=\"engineer\">{engineer}</p>"
    )
}

/// What each step is, in the words of a book: segment, index, scan, pages, record, routes.
const NEWCOMER: [&str; 6] = [
    "The log is a shelf of books. Each book's back says the first number in it, so the right book \
     is the last one whose number is not above ours.",
    "The index at the back of the book names a page now and then, not every line. We open it in \
     the middle, and halve what is left until one entry remains: the last that is not too far.",
    "From the page that the index named we read on, line by line, until our line comes.",
    "The computer keeps pages that were read lately on its desk, in memory; others it must fetch \
     from the disk.",
    "Here it is: what the log says of this record, byte for byte.",
    "The page can be copied by hand, once or several times, or handed over as it is. Each way was \
     tried just now, on this computer, and timed.",
];

/// The same for an engineer.
const ENGINEER: [&str; 6] = [
    "Segments are named by their base offset. A binary search finds the greatest base offset that \
     is not above the target.",
    "An .index entry is 8 bytes: relative offset and position, 4 each, big-endian. A .timeindex \
     entry is 12: timestamp 8, relative offset 4. Before the first entry stands the implicit one, \
     the segment's start. The entry is a hint: a batch with the promised last offset must begin \
     there.",
    "Only 61-byte batch headers are looked at on the way; batchLength leads to the next one. The \
     checksum of the batch with the answer is verified. In a compressed batch the records are \
     passed after it is expanded.",
    "Residency is asked by cachestat(2), else mincore(2), and never found out by reading. Each \
     read is one pread(2): one system call and one copy from the page cache to the program.",
    "The header of a magic 2 batch; its checksum (CRC-32C) covers everything from the attributes \
     on.",
    "Each route was gone many times with a copy of the batch in the page cache, up to a socket; \
     the clock runs on the way there only. calls: system calls, of a FUSE daemon too. copies: of \
     each byte, between kernel and process. requests: those that the daemon answered. faults: \
     pages mapped. waits: context switches of the reader.",
];

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}
