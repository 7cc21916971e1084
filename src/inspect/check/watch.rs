//! Index files held beside the batches as they pass: is every entry true? (contract 5.3: an index
//! is a hint, so a false one is named and costs nothing.)

use crate::format::batch::BatchHeader;
use crate::format::index::{IndexEntry, OffsetIndex, TimeIndex, partition_point};
use crate::units::{Offset, Position};

/// What is wrong with one index file: the first fault, and how many there are.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    first: Option<String>,
    count: u64,
}

impl Faults {
    fn add(&mut self, fault: impl FnOnce() -> String) {
        if self.count == 0 {
            self.first = Some(fault());
        }
        self.count += 1;
    }

    /// Adds those of the part behind.
    pub fn append(&mut self, behind: Faults) {
        self.first = self.first.take().or(behind.first);
        self.count += behind.count;
    }

    /// As words; `None` when nothing is wrong.
    pub fn into_words(self) -> Option<String> {
        let first = self.first?;
        Some(match self.count - 1 {
            0 => first,
            more => format!("{first} (and {more} more)"),
        })
    }
}

/// Walks along an offset index whose entries ascend.
#[derive(Debug)]
pub struct OffsetWatch<'a> {
    index: OffsetIndex<'a>,
    next: usize,
    /// An entry whose batch has begun, and whose last offset has not come yet: a broker before 4.1
    /// wrote one entry for all batches that it appended together.
    pending: Option<(usize, IndexEntry)>,
    faults: Faults,
}

impl<'a> OffsetWatch<'a> {
    /// From the first entry at or behind `from` on.
    pub fn from(index: OffsetIndex<'a>, from: Position) -> OffsetWatch<'a> {
        let next = partition_point(index.entries_count(), |i| {
            index.get(i).is_some_and(|entry| entry.position < from)
        });
        OffsetWatch { index, next, pending: None, faults: Faults::default() }
    }

    /// A batch begins here.
    #[inline]
    pub fn see(&mut self, header: &BatchHeader, position: Position) {
        while let Some(entry) = self.index.get(self.next).filter(|e| e.position <= position) {
            self.begin(entry, position);
        }
        if let Some((i, entry)) = self.pending
            && header.last_offset >= entry.offset
        {
            self.pending = None;
            if header.last_offset > entry.offset {
                self.faults.add(|| {
                    format!(
                        "foreign or shifted: entry {i} promises offset {} at position {}, found a \
                         batch that ends with {}",
                        entry.offset, entry.position, header.last_offset
                    )
                });
            }
        }
    }

    fn begin(&mut self, entry: IndexEntry, position: Position) {
        let i = self.next;
        self.next += 1;
        self.end_pending();
        if entry.position == position {
            self.pending = Some((i, entry));
        } else {
            self.faults.add(|| {
                let at = entry.position;
                format!("foreign or shifted: entry {i} points to position {at}, no batch begins")
            });
        }
    }

    fn end_pending(&mut self) {
        if let Some((i, entry)) = self.pending.take() {
            self.faults.add(|| {
                let offset = entry.offset;
                format!("foreign or shifted: no batch at entry {i} ends with offset {offset}")
            });
        }
    }

    /// Bytes up to `end` are wrong: nobody can say whether entries for them were right.
    pub fn pass(&mut self, end: Position) {
        self.pending = None;
        while self.index.get(self.next).is_some_and(|entry| entry.position < end) {
            self.next += 1;
        }
    }

    /// What was wrong with the entries before `end`, where the reading ended.
    pub fn finish(mut self, end: Position) -> Faults {
        self.end_pending();
        while let Some(entry) = self.index.get(self.next).filter(|entry| entry.position < end) {
            self.begin(entry, end);
        }
        self.faults
    }
}

/// Walks along a time index whose entries ascend.
#[derive(Debug)]
pub struct TimeWatch<'a> {
    index: TimeIndex<'a>,
    next: usize,
    faults: Faults,
}

impl<'a> TimeWatch<'a> {
    /// From the first entry for an offset not below `from` on.
    pub fn from(index: TimeIndex<'a>, from: Offset) -> TimeWatch<'a> {
        let next = partition_point(index.entries_count(), |i| {
            index.get(i).is_some_and(|entry| entry.offset < from)
        });
        TimeWatch { index, next, faults: Faults::default() }
    }

    /// A batch with these offsets and this largest timestamp.
    #[inline]
    pub fn see(&mut self, header: &BatchHeader) {
        while let Some(entry) = self.index.get(self.next).filter(|e| e.offset <= header.last_offset)
        {
            let i = self.next;
            self.next += 1;
            let absent = entry.offset < header.base_offset && !header.is_legacy_wrapper();
            let found = header.max_timestamp.unwrap_or(entry.timestamp);
            if absent {
                self.faults.add(|| {
                    format!("entry {i} names offset {}, which no batch holds", entry.offset)
                });
            } else if found != entry.timestamp {
                self.faults.add(|| {
                    format!(
                        "entry {i} promises timestamp {} at offset {}, the batch there has {}",
                        entry.timestamp.millis(),
                        entry.offset,
                        found.millis()
                    )
                });
            }
        }
    }

    /// Nothing can be said of offsets below `end`.
    pub fn pass(&mut self, end: Offset) {
        while self.index.get(self.next).is_some_and(|entry| entry.offset < end) {
            self.next += 1;
        }
    }

    /// What was wrong with the entries so far.
    pub fn finish(self) -> Faults {
        self.faults
    }
}

/// Whether the entries ascend, as the search in them needs it.
pub fn ascends(offsets: &OffsetIndex<'_>) -> bool {
    let entries = offsets.iter().collect::<Vec<_>>();
    entries.len() == offsets.entries_count()
        && entries.is_sorted_by(|a, b| a.offset < b.offset && a.position < b.position)
}

/// The same of a time index.
pub fn times_ascend(times: &TimeIndex<'_>) -> bool {
    let entries = times.iter().collect::<Vec<_>>();
    entries.len() == times.entries_count()
        && entries.is_sorted_by(|a, b| a.timestamp < b.timestamp && a.offset <= b.offset)
}
