//! The steps that the engine told, put into the order that a reader follows: the segment, the
//! indexes, the scan.

use serde::Serialize;

use crate::engine::facts::file_name;
use crate::engine::log::{Found, Log, LogState};
use crate::engine::segment::Segment;
use crate::engine::trace::{Searched, Step};
use crate::format::batch::BatchHeader;
use crate::format::index::{OffsetIndex, Probe, TimeIndex};
use crate::units::{Offset, Position};

/// Of a longer scan the batches in the middle are counted, not listed.
const MOST_LISTED: usize = 1000;

/// One comparison of a binary search.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ProbeRow {
    /// The first number that is left.
    pub low: usize,
    /// The number that is looked at.
    pub middle: usize,
    /// The number behind the last that is left.
    pub high: usize,
    /// What stands there: an offset, or in a time index a time. `None` where it is impossible.
    pub value: Option<i64>,
    /// Is it not above the target, so that the search goes on behind it?
    pub below: bool,
}

/// A place that an index names, or the segment's start, which needs no entry.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Entry {
    /// The offset there.
    pub offset: Offset,
    /// The byte of the `.log` file.
    pub position: u64,
    /// Is it the start of the segment, since no entry will do?
    pub implicit: bool,
}

/// A search in one index.
#[derive(Debug, Serialize)]
pub struct IndexSearch {
    /// Entries that it has.
    pub entries: usize,
    /// The comparisons.
    pub probes: Vec<ProbeRow>,
    /// The offset of the entry that was chosen, if one was.
    pub offset: Option<Offset>,
    /// In an offset index, where it points.
    pub position: Option<u64>,
    /// In a time index, its time.
    pub timestamp: Option<i64>,
    /// Is in the log what the entry promises? An entry is a hint, never an answer.
    pub verified: Option<bool>,
}

/// A scan of one segment.
#[derive(Debug, Serialize)]
pub struct Scan {
    /// Where it began.
    pub anchor: Entry,
    /// Batches before the answer.
    pub batches_passed: u64,
    /// Their records, as far as their headers say how many they are.
    pub records_passed: u64,
    /// Their bytes, wrong ones between them too.
    pub bytes_passed: u64,
    /// Where the batch that ended the scan begins.
    pub reached: Option<u64>,
    /// Was something not as it should be, so that another scan verified everything?
    pub doubted: bool,
    /// The batches, the one that ended the scan last.
    pub batches: Vec<BatchRow>,
    /// Batches in the middle that are not listed.
    pub batches_left_out: u64,
    /// Wrong bytes that were met: position, bytes, reason.
    pub damage: Vec<(u64, u64, String)>,
}

/// A batch that a scan came to.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct BatchRow {
    /// Its first offset.
    pub base_offset: Offset,
    /// Its last offset.
    pub last_offset: Offset,
    /// Where it begins.
    pub position: u64,
    /// Its bytes.
    pub bytes: u64,
    /// Its records.
    pub records: u32,
    /// Are they control records?
    pub control: bool,
}

/// What was done in one segment.
#[derive(Debug, Serialize)]
pub struct Visit {
    /// Its base offset.
    pub base_offset: Offset,
    /// Its file.
    pub segment: String,
    /// The bytes of that file which hold batches.
    pub bytes: u64,
    /// The search in the time index; in a small segment there is none.
    pub time_index: Option<IndexSearch>,
    /// The search in the offset index.
    pub offset_index: Option<IndexSearch>,
    /// All entries of the offset index up to a bound, for a picture: offset and position.
    pub entries: Vec<(Offset, u64)>,
    /// The scans; the last one gave the answer.
    pub scans: Vec<Scan>,
}

/// Entries of an index that are listed.
const MOST_ENTRIES: usize = 4096;

/// The search among the segments, and what was done in each that was looked into.
pub(super) fn of(
    steps: Vec<Step>,
    log: &Log,
    state: &LogState,
    found: &Found,
) -> (Vec<ProbeRow>, Vec<Visit>) {
    let (mut among_segments, mut visits) = (Vec::new(), Vec::<Visit>::new());
    let mut current: Option<&Segment> = None;
    for step in steps {
        if let Step::Probe(Searched::Segments, probe) = step {
            let value = state.segments.get(probe.middle).map(|it| it.base_offset.get());
            among_segments.push(row(probe, value));
        } else if let Step::Segment(base) = step {
            let segment = state.segments.iter().find(|it| it.base_offset == base);
            current = segment.map(|it| &**it);
            visits.extend(current.map(|segment| visit(log, segment)));
        } else if let (Some(segment), Some(visit)) = (current, visits.last_mut()) {
            visit.take(step, log, segment);
        }
    }
    for scan in visits.iter_mut().flat_map(|visit| &mut visit.scans) {
        scan.close(found);
    }
    (among_segments, visits)
}

fn visit(log: &Log, segment: &Segment) -> Visit {
    let bytes = log.shared().offset_index(segment);
    let index = OffsetIndex::new(segment.base_offset, &bytes);
    let entries = index.iter().take(MOST_ENTRIES).map(|it| (it.offset, it.position.get()));
    Visit {
        base_offset: segment.base_offset,
        segment: file_name(segment.log.path()),
        bytes: segment.valid_bytes,
        time_index: None,
        offset_index: None,
        entries: entries.collect(),
        scans: Vec::new(),
    }
}

impl Visit {
    fn take(&mut self, step: Step, log: &Log, segment: &Segment) {
        match step {
            Step::Probe(Searched::OffsetIndex, probe) => {
                let bytes = log.shared().offset_index(segment);
                let index = OffsetIndex::new(segment.base_offset, &bytes);
                let search = self.offset_index.get_or_insert_with(IndexSearch::new);
                search.entries = index.entries_count();
                let value = index.get(probe.middle).map(|entry| entry.offset.get());
                search.probes.push(row(probe, value));
            }
            Step::Probe(Searched::TimeIndex, probe) => {
                let bytes = log.shared().time_index(segment);
                let index = TimeIndex::new(segment.base_offset, &bytes);
                let search = self.time_index.get_or_insert_with(IndexSearch::new);
                search.entries = index.entries_count();
                let value = index.get(probe.middle).map(|entry| entry.timestamp.millis());
                search.probes.push(row(probe, value));
            }
            Step::Entry(entry, verified) => {
                let search = self.offset_index.get_or_insert_with(IndexSearch::new);
                search.offset = Some(entry.offset);
                search.position = Some(entry.position.get());
                search.verified = Some(verified);
            }
            Step::TimeEntry(entry, verified) => {
                let search = self.time_index.get_or_insert_with(IndexSearch::new);
                search.offset = Some(entry.offset);
                search.timestamp = Some(entry.timestamp.millis());
                search.verified = Some(verified);
            }
            Step::Anchor(anchor) => {
                let position = anchor.position;
                let offset = match &self.offset_index {
                    // The entry's own offset is the last one of its batch.
                    Some(IndexSearch { offset: Some(offset), position: Some(at), .. })
                        if *at == position.get() =>
                    {
                        *offset
                    }
                    _ => anchor.expected,
                };
                let implicit = position == Position::START;
                let anchor = Entry { offset, position: position.get(), implicit };
                self.scans.push(Scan::from(anchor));
            }
            step => {
                if let Some(scan) = self.scans.last_mut() {
                    scan.take(step);
                }
            }
        }
    }
}

impl IndexSearch {
    fn new() -> IndexSearch {
        IndexSearch {
            entries: 0,
            probes: Vec::new(),
            offset: None,
            position: None,
            timestamp: None,
            verified: None,
        }
    }
}

impl Scan {
    fn from(anchor: Entry) -> Scan {
        Scan {
            anchor,
            batches_passed: 0,
            records_passed: 0,
            bytes_passed: 0,
            reached: None,
            doubted: false,
            batches: Vec::new(),
            batches_left_out: 0,
            damage: Vec::new(),
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Batch(header, position) => self.come_to(&header, position),
            Step::Doubt(_) => self.doubted = true,
            Step::Damage(stretch) => {
                let (start, end) = (stretch.start.get(), stretch.end.get());
                self.damage.push((start, end - start, stretch.reason));
            }
            Step::Segment(_)
            | Step::Probe(..)
            | Step::Entry(..)
            | Step::TimeEntry(..)
            | Step::Anchor(_) => {}
        }
    }

    /// The batch before is passed when the scan comes to the next one.
    fn come_to(&mut self, header: &BatchHeader, position: Position) {
        self.pass_last();
        if self.batches.len() >= 2 * MOST_LISTED {
            self.batches.remove(MOST_LISTED);
            self.batches_left_out += 1;
        }
        self.batches.push(BatchRow {
            base_offset: header.base_offset,
            last_offset: header.last_offset,
            position: position.get(),
            bytes: header.bytes,
            records: header.records_count,
            control: header.control,
        });
    }

    fn pass_last(&mut self) {
        if let Some(last) = self.batches.last() {
            self.batches_passed += 1;
            self.records_passed += u64::from(last.records);
        }
    }

    /// The last batch ended the scan where it has the record; otherwise the scan passed it too.
    fn close(&mut self, found: &Found) {
        let Some(last) = self.batches.last() else { return };
        let here = match found {
            Found::Record(_, _, position) => position.get() == last.position,
            Found::Damaged(_) | Found::Nothing => false,
        };
        self.reached = Some(last.position + if here { 0 } else { last.bytes });
        if !here {
            self.pass_last();
        }
        self.bytes_passed = self.reached.unwrap_or_default() - self.anchor.position;
    }
}

fn row(probe: Probe, value: Option<i64>) -> ProbeRow {
    let Probe { low, middle, high, below } = probe;
    ProbeRow { low, middle, high, value, below }
}
