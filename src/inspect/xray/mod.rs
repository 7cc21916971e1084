//! What one lookup really does: which segment, which entries of the indexes, which batches, which
//! bytes. The lookup is the engine's own, and what is told is what it told and read meanwhile;
//! nothing is searched a second time here. Damage is part of the picture.

pub mod reads;
mod record;
pub mod routes;
mod steps;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use serde::Serialize;

use crate::engine::damage::Stretch;
use crate::engine::data_dir::DataDir;
use crate::engine::facts::file_name;
use crate::engine::log::{Found, Log, LogState};
use crate::engine::options::ReadOptions;
use crate::engine::segment::Segment;
use crate::engine::trace::Trace;
use crate::error::{Error, Result};
use crate::format::index::{OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES, TXN_ENTRY_BYTES};
use crate::inspect::page_cache::{self, Residency};
use crate::units::{Offset, Timestamp};

use reads::{Read, WatchedDisk};
pub use record::{Content, Field, RecordFound};
use routes::Route;
pub use steps::{BatchRow, Entry, IndexSearch, ProbeRow, Scan, Visit};

/// What is looked up.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Target {
    /// The record at this offset.
    Offset(Offset),
    /// The first record that is not older.
    Time(Timestamp),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Offset(offset) => write!(f, "offset {offset}"),
            Target::Time(time) => write!(f, "time {}", time.millis()),
        }
    }
}

/// One lookup.
#[derive(Debug, Serialize)]
pub struct Xray {
    /// Name of the partition's directory.
    pub partition: String,
    /// What was looked up.
    pub target: Target,
    /// First offset of the log.
    pub log_start: Offset,
    /// Offset that the next record will get.
    pub log_end: Offset,
    /// The high watermark.
    pub high_watermark: Offset,
    /// Does a checkpoint say so? Otherwise it is the log end.
    pub high_watermark_known: bool,
    /// Leader epochs and their first offsets.
    pub leader_epochs: Vec<(i32, Offset)>,
    /// The files of the partition.
    pub files: Vec<FileRow>,
    /// Base offsets of the segments.
    pub segments: Vec<Offset>,
    /// The binary search among them.
    pub segment_search: Vec<ProbeRow>,
    /// The segments that were looked into, in their order; usually one.
    pub visits: Vec<Visit>,
    /// Where the scan that gave the answer began.
    pub anchor: Option<Entry>,
    /// Records that this scan passed before it came to the answer.
    pub records_scanned: u64,
    /// Bytes of the log that it passed.
    pub bytes_scanned: u64,
    /// Where it ended: the position of the batch with the answer.
    pub reached: Option<u64>,
    /// What came out.
    pub answer: Answer,
    /// Bytes that the lookup read.
    pub bytes_read: u64,
    /// The reads of the lookup.
    pub reads: Vec<Read>,
    /// Bytes that were read before it to open the log: its end must be found.
    pub bytes_read_to_open: u64,
    /// The reads of the opening.
    pub reads_to_open: Vec<Read>,
    /// Files of the segments that may answer, in the page cache before the lookup.
    pub page_cache: Vec<Residency>,
    /// What reading the batch with the answer costs by each way; `None` where nobody asked.
    pub routes: Option<Vec<Route>>,
}

/// What came out of a lookup.
#[derive(Debug, Serialize)]
#[serde(tag = "found", rename_all = "lowercase")]
#[expect(clippy::large_enum_variant, reason = "there is one of it")]
pub enum Answer {
    /// A record.
    Record(RecordFound),
    /// The record would be in bytes that are wrong.
    Damage {
        /// The file.
        segment: String,
        /// First bad byte.
        position: u64,
        /// How many.
        bytes: u64,
        /// First offset that is lost.
        first_offset: Offset,
        /// First offset behind that is not.
        end_offset: Offset,
        /// What was expected and what was there.
        reason: String,
    },
    /// There is none.
    Nothing {
        /// Why.
        why: String,
    },
}

/// A file of the partition.
#[derive(Debug, Serialize)]
pub struct FileRow {
    /// Its name.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// Bytes of an entry, where it is an index.
    pub entry_bytes: Option<usize>,
}

/// Files that are open at once at the most.
const OPEN_FILES: usize = 64;
/// Of more segments only the one with the answer's index is looked for in the page cache.
const MOST_SEGMENTS_ASKED: usize = 64;

/// Looks `target` up in the partition `name` of the data directory `parent`.
pub fn look_up(parent: &Path, name: &std::ffi::OsStr, target: Target) -> Result<Xray> {
    let disk = Arc::new(WatchedDisk::new(OPEN_FILES));
    let trace = Arc::new(Trace::default());
    let options = ReadOptions { trace: Some(Arc::clone(&trace)), ..ReadOptions::default() };
    let data_dir = DataDir::on_disk(Arc::clone(&disk) as _, parent, Some(name), options, None);
    let log = data_dir.log(name)?;
    let path = parent.join(name);
    let log =
        log.ok_or_else(|| Error::refused(&path, "is not the directory of a live partition"))?;
    let state = log.state()?;
    check_target(&path, &state, target)?;
    let reads_to_open = disk.take();
    trace.take();
    let page_cache = residency(&state, target);
    let found = match target {
        Target::Offset(offset) => log.find(&state, offset)?,
        Target::Time(time) => log.find_time(&state, time, None)?,
    };
    let reads = disk.take();
    let (segment_search, visits) = steps::of(trace.take(), &log, &state, &found);
    let mut xray = Xray {
        partition: name.to_string_lossy().into_owned(),
        target,
        log_start: state.log_start,
        log_end: state.log_end,
        high_watermark: state.high_watermark,
        high_watermark_known: state.high_watermark_known,
        leader_epochs: state.leader_epochs.iter().map(|it| (it.epoch.get(), it.start)).collect(),
        files: files(&log, &state)?,
        segments: state.segments.iter().map(|segment| segment.base_offset).collect(),
        segment_search,
        anchor: None,
        records_scanned: 0,
        bytes_scanned: 0,
        reached: None,
        answer: answer(&log, &found, target, &visits)?,
        visits,
        bytes_read: reads.iter().map(|read| read.bytes).sum(),
        reads,
        bytes_read_to_open: reads_to_open.iter().map(|read| read.bytes).sum(),
        reads_to_open,
        page_cache,
        routes: None,
    };
    xray.sum_up();
    Ok(xray)
}

impl Xray {
    /// What the last scan came to; records passed inside its last batch count too.
    fn sum_up(&mut self) {
        let Some(scan) = self.visits.last().and_then(|visit| visit.scans.last()) else { return };
        self.anchor = Some(scan.anchor);
        self.records_scanned = scan.records_passed;
        self.bytes_scanned = scan.bytes_passed;
        self.reached = scan.reached;
        if let Answer::Record(record) = &self.answer {
            self.records_scanned += record.records_before_in_batch;
        }
    }
}

/// An offset that the log does not have is an error that names what it has.
fn check_target(path: &Path, state: &LogState, target: Target) -> Result<()> {
    let (start, end) = (state.log_start, state.log_end);
    if start >= end {
        return Err(Error::refused(path, format!("holds no records; its log end is {end}")));
    }
    match target {
        Target::Offset(offset) if offset < start || offset >= end => {
            let last = end.previous();
            let reason = format!("offset {offset} is not in the log, which has {start} to {last}");
            Err(Error::refused(path, reason))
        }
        Target::Offset(_) | Target::Time(_) => Ok(()),
    }
}

/// The page cache as it is before a lookup: a segment may answer, or for a time any.
fn residency(state: &LogState, target: Target) -> Vec<Residency> {
    let asked: Vec<&Arc<Segment>> = match target {
        Target::Offset(offset) => {
            state.segment_of(offset).map(|i| &state.segments[i]).into_iter().collect()
        }
        Target::Time(_) => state.segments.iter().take(MOST_SEGMENTS_ASKED).collect(),
    };
    let files = asked.into_iter().flat_map(|segment| {
        std::iter::once(&segment.log).chain(&segment.index).chain(&segment.time_index)
    });
    files.filter_map(|file| page_cache::of(file.path())).collect()
}

fn files(log: &Log, state: &LogState) -> Result<Vec<FileRow>> {
    let mut names: Vec<_> = state.names.iter().collect();
    names.sort();
    let mut rows = Vec::new();
    for name in names {
        let entry_bytes = match Path::new(name).extension().and_then(|it| it.to_str()) {
            Some("index") => Some(OFFSET_ENTRY_BYTES),
            Some("timeindex") => Some(TIME_ENTRY_BYTES),
            Some("txnindex") => Some(TXN_ENTRY_BYTES),
            _ => None,
        };
        match log.shared().disk.facts(&log.path().join(name)) {
            Ok(facts) => rows.push(FileRow {
                name: name.to_string_lossy().into_owned(),
                bytes: facts.bytes,
                entry_bytes,
            }),
            // A broker may delete a segment at any time.
            Err(e) if e.is_not_found() => {}
            Err(e) => return Err(e),
        }
    }
    Ok(rows)
}

fn answer(log: &Log, found: &Found, target: Target, visits: &[Visit]) -> Result<Answer> {
    Ok(match found {
        Found::Record(record, segment, position) => {
            Answer::Record(record::of(log, record, segment, *position)?)
        }
        Found::Damaged(stretch) => damage(stretch),
        Found::Nothing => Answer::Nothing { why: why_nothing(target, visits) },
    })
}

fn damage(stretch: &Stretch) -> Answer {
    let Stretch { path, start, end, first_offset, end_offset, reason } = stretch;
    Answer::Damage {
        segment: file_name(path),
        position: start.get(),
        bytes: end.get() - start.get(),
        first_offset: *first_offset,
        end_offset: *end_offset,
        reason: reason.clone(),
    }
}

/// Why there is no record, as the last batch that was looked at has it.
fn why_nothing(target: Target, visits: &[Visit]) -> String {
    let Target::Offset(offset) = target else {
        return "no data record has this time or a later one".to_owned();
    };
    let scan = visits.last().and_then(|visit| visit.scans.last());
    match scan.and_then(|scan| scan.batches.last()) {
        Some(batch) if batch.last_offset < offset => {
            format!("no batch holds offset {offset}: the segment ends before it")
        }
        Some(batch) if batch.base_offset > offset => {
            let first = batch.base_offset;
            format!("a hole: no batch holds offset {offset}, the next one begins with {first}")
        }
        Some(batch) if batch.control => {
            format!("offset {offset} is a control record, the mark of a transaction, and no data")
        }
        Some(_) => format!("a hole: the batch that held offset {offset} has lost it (compaction)"),
        None => format!("the segment has no batch for offset {offset}"),
    }
}
