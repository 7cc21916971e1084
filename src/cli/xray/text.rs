//! The picture of a lookup as text. Control characters from keys and values never reach the
//! terminal.

use std::fmt::Write as _;

use crate::inspect::xray::reads::Read;
use crate::inspect::xray::routes::{Cost, Route};
use crate::inspect::xray::{
    Answer, Content, IndexSearch, ProbeRow, RecordFound, Scan, Visit, Xray,
};

/// Batches of a scan that are listed at its beginning and at its end.
const LISTED: usize = 3;

/// All of it, in the order in which it happened.
pub fn text(xray: &Xray) -> String {
    let mut out = String::new();
    write(xray, &mut out).expect("a string takes every character");
    out
}

fn write(xray: &Xray, out: &mut String) -> std::fmt::Result {
    writeln!(out, "{}: {}", xray.partition.escape_debug(), xray.target)?;
    let known = if xray.high_watermark_known { "" } else { " (no checkpoint: the log end)" };
    writeln!(
        out,
        "  log start {}, high watermark {}{known}, log end {}",
        xray.log_start, xray.high_watermark, xray.log_end
    )?;
    writeln!(out, "\n1 segment")?;
    writeln!(out, "  {} segments", xray.segments.len())?;
    probes(&xray.segment_search, "base offset", out)?;
    for visit in &xray.visits {
        write_visit(visit, out)?;
    }
    writeln!(out, "\n4 pages")?;
    write_pages(xray, out)?;
    if let Some(routes) = &xray.routes {
        writeln!(out, "\n5 routes")?;
        write_routes(routes, out)?;
    }
    writeln!(out, "\nanswer")?;
    answer(xray, out)
}

fn probes(rows: &[ProbeRow], what: &str, out: &mut String) -> std::fmt::Result {
    for ProbeRow { low, middle, high, value, below } in rows {
        let value = value.map_or("impossible".to_owned(), |value| value.to_string());
        let turn = if *below { "not above, go right" } else { "above, go left" };
        writeln!(out, "  low {low}, middle {middle}, high {high}: {what} {value}: {turn}")?;
    }
    Ok(())
}

fn write_visit(visit: &Visit, out: &mut String) -> std::fmt::Result {
    writeln!(out, "  segment {}, {} bytes", visit.segment, visit.bytes)?;
    writeln!(out, "\n2 index")?;
    if let Some(search) = &visit.time_index {
        writeln!(out, "  time index: {} entries", search.entries)?;
        probes(&search.probes, "time", out)?;
        chosen(search, out)?;
    }
    match &visit.offset_index {
        Some(search) => {
            writeln!(out, "  offset index: {} entries", search.entries)?;
            probes(&search.probes, "offset", out)?;
            chosen(search, out)?;
        }
        None => writeln!(out, "  the offset index was not searched, or has no entries")?,
    }
    writeln!(out, "\n3 scan")?;
    visit.scans.iter().try_for_each(|scan| write_scan(scan, out))
}

fn chosen(search: &IndexSearch, out: &mut String) -> std::fmt::Result {
    let Some(offset) = search.offset else {
        return writeln!(out, "  no entry will do: the segment's start");
    };
    let place = search.position.map_or(String::new(), |position| format!(" at {position}"));
    let said = match search.verified {
        Some(true) => "the batch there is what it promises",
        Some(false) => "the log does not have what it promises: the segment's start instead",
        None => "not verified",
    };
    writeln!(out, "  entry {offset}{place}: {said}")
}

fn write_scan(scan: &Scan, out: &mut String) -> std::fmt::Result {
    let anchor = &scan.anchor;
    let implicit = if anchor.implicit { " (the segment's start)" } else { "" };
    writeln!(out, "  anchor {} at {}{implicit}", anchor.offset, anchor.position)?;
    let count = scan.batches.len();
    for (i, batch) in scan.batches.iter().enumerate() {
        if i == LISTED && count > 2 * LISTED {
            writeln!(out, "    ...")?;
        }
        if i < LISTED || i + LISTED >= count {
            let control = if batch.control { ", control" } else { "" };
            writeln!(
                out,
                "    batch {} to {} at {}, {} bytes, {} records{control}",
                batch.base_offset, batch.last_offset, batch.position, batch.bytes, batch.records
            )?;
        }
    }
    for (position, bytes, reason) in &scan.damage {
        writeln!(out, "    damage at {position}, {bytes} bytes: {reason}")?;
    }
    if scan.doubted {
        writeln!(out, "    something is not as it should be: everything is verified from here")?;
    }
    let reached = scan.reached.map_or(String::new(), |reached| format!(", {reached} reached"));
    writeln!(
        out,
        "  {} batches, {} records, {} bytes passed{reached}",
        scan.batches_passed, scan.records_passed, scan.bytes_passed
    )
}

fn write_pages(xray: &Xray, out: &mut String) -> std::fmt::Result {
    for it in &xray.page_cache {
        let told = |count: Option<u64>| count.map_or("?".to_owned(), |count| count.to_string());
        writeln!(
            out,
            "  {}: {} of {} pages in the page cache before, {} dirty, {} in writeback",
            it.file,
            it.cached,
            it.pages,
            told(it.dirty),
            told(it.writeback)
        )?;
    }
    writeln!(out, "  to open the log: {} bytes read", xray.bytes_read_to_open)?;
    writeln!(out, "  for the lookup: {} bytes read", xray.bytes_read)?;
    for Read { file, position, bytes, pages, pages_cached_before: before, .. } in &xray.reads {
        let before = before.map_or(String::new(), |before| format!(", {before} of them cached"));
        writeln!(out, "    {file} from {position}: {bytes} bytes, {pages} pages{before}")?;
    }
    Ok(())
}

fn write_routes(routes: &[Route], out: &mut String) -> std::fmt::Result {
    let bytes = routes.iter().find_map(|it| it.cost).map_or(0, |cost| cost.bytes);
    writeln!(out, "  a copy of the batch, {bytes} bytes in the page cache, read into a socket")?;
    write_cells("route", &COST_HEADS.map(str::to_owned), out)?;
    for Route { route, cost, unavailable, .. } in routes {
        if let Some(cost) = cost {
            write_cells(route, &cost_cells(cost), out)?;
        } else {
            let reason = unavailable.as_deref().unwrap_or_default().escape_debug();
            writeln!(out, "  {route:16} not to be had here: {reason}")?;
        }
    }
    Ok(())
}

fn write_cells(name: &str, row: &[String; 7], out: &mut String) -> std::fmt::Result {
    let [median, least, calls, copies, requests, faults, waits] = row;
    writeln!(
        out,
        "  {name:16} {median:>8} {least:>8} {calls:>6} {copies:>6} {requests:>8} {faults:>7} \
         {waits:>6}"
    )
}

/// What is told of a route, in this order: the median and the shortest time, and of one read the
/// system calls, copies of each byte between kernel and process, requests to a FUSE daemon, page
/// faults, and times that the reader waited.
pub(super) const COST_HEADS: [&str; 7] =
    ["median", "least", "calls", "copies", "requests", "faults", "waits"];

/// A cost below these heads.
pub(super) fn cost_cells(cost: &Cost) -> [String; 7] {
    [
        duration(cost.median_ns),
        duration(cost.least_ns),
        cost.system_calls.to_string(),
        cost.copies.to_string(),
        cost.fuse_requests.to_string(),
        cost.page_faults.to_string(),
        cost.context_switches.to_string(),
    ]
}

/// Nanoseconds as people read them.
fn duration(ns: u64) -> String {
    match ns {
        0..10_000 => format!("{ns} ns"),
        10_000..10_000_000 => format!("{} \u{b5}s", ns / 1000),
        _ => format!("{} ms", ns / 1_000_000),
    }
}

fn answer(xray: &Xray, out: &mut String) -> std::fmt::Result {
    match &xray.answer {
        Answer::Record(found) => record(xray, found, out),
        Answer::Damage { segment, position, bytes, first_offset, end_offset, reason } => {
            let lost = format!("offsets from {first_offset} up to, not including, {end_offset}");
            writeln!(
                out,
                "  damage: {segment} position {position}, {bytes} bytes, {lost}: {reason}"
            )
        }
        Answer::Nothing { why } => writeln!(out, "  no record: {why}"),
    }
}

fn record(xray: &Xray, found: &RecordFound, out: &mut String) -> std::fmt::Result {
    if let Some(anchor) = xray.anchor {
        writeln!(
            out,
            "  anchor {} at {}, {} records scanned, {} reached",
            anchor.offset, anchor.position, xray.records_scanned, found.position
        )?;
    }
    writeln!(
        out,
        "  offset {} in {}, batch at {}, {} bytes, {}",
        found.offset, found.segment, found.position, found.batch_bytes, found.codec
    )?;
    let RecordFound { records_before_in_batch: records, bytes_before_in_batch: bytes, .. } = found;
    writeln!(out, "  before it in the batch: {records} records, {bytes} uncompressed bytes")?;
    let time = found.timestamp.map_or("none".to_owned(), |time| time.to_string());
    writeln!(out, "  timestamp {time}")?;
    writeln!(out, "  key {}", content(found.key.as_ref()))?;
    writeln!(out, "  value {}", content(found.value.as_ref()))?;
    for (name, value) in &found.headers {
        writeln!(out, "  header {}: {}", content(Some(name)), content(value.as_ref()))?;
    }
    writeln!(out, "  header of the batch")?;
    for field in &found.fields {
        let (name, position, value) = (field.name, field.position, field.value);
        writeln!(out, "    {position} {name} {value} [{}]", field.hex)?;
    }
    Ok(())
}

/// Characters that a line shows of a key or value.
const SHOWN: usize = 200;

fn content(content: Option<&Content>) -> String {
    let Some(content) = content else { return "NULL".to_owned() };
    let (kind, text) = match (&content.text, &content.base64) {
        (Some(text), _) => ("", text),
        (None, Some(base64)) => ("base64 ", base64),
        (None, None) => return format!("{} bytes", content.bytes),
    };
    let shown: String = text.chars().take(SHOWN).collect();
    let more = if content.cut || shown.len() < text.len() { "..." } else { "" };
    format!("{} bytes, {kind}{shown:?}{more}", content.bytes)
}
