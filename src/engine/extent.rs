//! How long the records of a segment are when they are shown: cumulative sizes every so often, so
//! that a range has its exact size before it is read and can be read from any position. Built by
//! one pass that verifies every batch, since damage changes the size.

use crate::engine::batches::{Batches, Unpacker};
use crate::engine::damage::Stretch;
use crate::engine::load::{Seen, unreadable};
use crate::engine::scanner::{Item, Scanner};
use crate::error::{Error, Result};
use crate::format::batch::BatchHeader;
use crate::format::record::{Cursor, Record};
use crate::units::{Offset, Position};

/// Marks a segment has at the most.
const MOST_MARKS: u64 = 4096;
/// Bytes of the segment between two marks at the least.
const LEAST_SPACING: u64 = 64 << 10;

/// What has been counted up to some batch of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Where the batch begins.
    pub position: Position,
    /// The least offset that it may hold.
    pub expected: Offset,
    /// Shown bytes of all records before it.
    pub bytes: u64,
    /// Number of shown records before it.
    pub records: u64,
}

/// The sizes of one segment in one format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extents {
    /// Where a reading may begin, ascending, the first at the segment's start.
    pub marks: Vec<Mark>,
    /// The end of what was counted.
    pub end: Mark,
    /// Damage, ascending, with the shown bytes before it. Each counts as one byte unless it is
    /// left out.
    pub damage: Vec<(Stretch, u64)>,
    /// Bytes behind the last batch that hold none.
    pub torn: u64,
    /// Bytes of the largest batch.
    pub largest_batch: u64,
    /// The last batch that was counted, where it is known.
    pub last: Option<Seen>,
}

/// What is counted of a batch.
#[derive(Clone, Copy, Debug)]
pub enum Measure<F> {
    /// The given number of bytes for each data record.
    Records(F),
    /// The batch as it is stored, control batches included.
    Batches,
}

/// How damage is shown in a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum DamagePolicy {
    /// As one byte that cannot be read.
    #[default]
    Unreadable,
    /// Not at all.
    Skip,
}

impl DamagePolicy {
    /// Bytes that a stretch takes in a range.
    pub const fn bytes(self) -> u64 {
        match self {
            DamagePolicy::Unreadable => 1,
            DamagePolicy::Skip => 0,
        }
    }
}

impl Extents {
    /// Nothing counted yet of a segment that begins at `base`.
    pub fn empty(base: Offset) -> Extents {
        let end = Mark { position: Position::START, expected: base, bytes: 0, records: 0 };
        Extents { marks: vec![end], end, damage: Vec::new(), torn: 0, largest_batch: 0, last: None }
    }

    /// The last mark that is not behind `offset`.
    pub fn mark_for_offset(&self, offset: Offset) -> Mark {
        let after = self.marks.partition_point(|mark| mark.expected <= offset);
        self.marks.get(after.saturating_sub(1)).copied().unwrap_or(self.end)
    }

    /// The last mark before shown byte `bytes`, counted from the start of the segment.
    pub fn mark_for_bytes(&self, bytes: u64) -> Mark {
        let after = self.marks.partition_point(|mark| mark.bytes <= bytes);
        self.marks.get(after.saturating_sub(1)).copied().unwrap_or(self.end)
    }

    /// The stretch of damage that holds `offset`, with the shown bytes before it.
    pub fn damage_at(&self, offset: Offset) -> Option<&(Stretch, u64)> {
        self.damage.iter().find(|(stretch, _)| stretch.holds(offset))
    }

    /// Was everything counted up to `until`, or up to the end of a segment of so many bytes?
    pub fn cover(&self, segment_bytes: u64, until: Offset) -> bool {
        self.end.position.get() + self.torn >= segment_bytes || self.end.expected >= until
    }

    /// Bytes that this takes in memory.
    pub fn weight(&self) -> usize {
        self.marks.len() * size_of::<Mark>() + self.damage.len() * 256 + 128
    }

    /// Counts on from where it stands up to the first batch at or behind `until`, or to the end of
    /// the segment. `shows` says whether the data of a batch is shown at all. What was counted
    /// stays when the pass is interrupted or fails.
    pub fn extend<F: Fn(&BatchHeader, &Record<'_>) -> usize>(
        &mut self,
        scanner: &mut Scanner,
        batches: &Batches,
        measure: &Measure<F>,
        policy: DamagePolicy,
        shows: &dyn Fn(&BatchHeader) -> bool,
        until: Offset,
    ) -> Result<()> {
        let spacing = LEAST_SPACING.max(scanner.segment().valid_bytes / MOST_MARKS);
        let mut unpacker = Unpacker::default();
        scanner.seek(self.end.position, self.end.expected);
        loop {
            match scanner.step()? {
                Item::Batch(header, _) if header.base_offset >= until => return Ok(()),
                Item::Batch(header, position) => {
                    self.mark(position, spacing);
                    self.largest_batch = self.largest_batch.max(header.bytes);
                    match count(scanner, batches, &mut unpacker, &header, position, measure, shows)
                    {
                        Ok(counted) => {
                            self.end.bytes += counted.bytes;
                            self.end.records += counted.records;
                            if let Some((first_offset, reason)) = counted.failure {
                                let bad = unreadable(scanner.segment(), position, &header, reason);
                                self.note(Stretch { first_offset, ..bad }, policy);
                            }
                        }
                        Err(Error::Damage { reason, .. }) => {
                            let bad = unreadable(scanner.segment(), position, &header, reason);
                            self.note(bad, policy);
                        }
                        Err(e) => return Err(e),
                    }
                    self.last = Some(Seen { position, header });
                    self.end.position = scanner.position();
                    self.end.expected = scanner.expected();
                }
                Item::Damage(stretch) => {
                    self.mark(stretch.start, spacing);
                    self.note(stretch, policy);
                    self.end.position = scanner.position();
                    self.end.expected = scanner.expected();
                }
                Item::End { torn, .. } => {
                    self.torn = torn;
                    return Ok(());
                }
            }
        }
    }

    fn mark(&mut self, position: Position, spacing: u64) {
        let last = self.marks.last().map_or(0, |mark| mark.position.get());
        if position.get() >= last + spacing {
            self.marks.push(Mark { position, ..self.end });
        }
    }

    /// Adjacent stretches are one, unless records are shown between them.
    fn note(&mut self, stretch: Stretch, policy: DamagePolicy) {
        if let Some((last, before)) = self.damage.last_mut()
            && last.end == stretch.start
            && *before + policy.bytes() == self.end.bytes
        {
            last.take_in(&stretch);
            return;
        }
        self.damage.push((stretch, self.end.bytes));
        self.end.bytes += policy.bytes();
    }
}

/// What a batch shows.
#[derive(Debug, Default)]
struct Counted {
    bytes: u64,
    records: u64,
    /// The first offset that cannot be read, and why, where a record turns out to be invalid.
    failure: Option<(Offset, String)>,
}

/// Shown bytes and records of one batch.
#[inline]
fn count<F: Fn(&BatchHeader, &Record<'_>) -> usize>(
    scanner: &Scanner,
    batches: &Batches,
    unpacker: &mut Unpacker,
    header: &BatchHeader,
    position: Position,
    measure: &Measure<F>,
    shows: &dyn Fn(&BatchHeader) -> bool,
) -> Result<Counted> {
    let measure = match measure {
        Measure::Batches => return Ok(Counted { bytes: header.bytes, records: 1, failure: None }),
        Measure::Records(_) if header.control || !shows(header) => return Ok(Counted::default()),
        Measure::Records(measure) => measure,
    };
    let raw = scanner.batch_bytes(header, position);
    unpacker.prepare(batches, scanner.segment(), position, header, raw)?;
    Ok(sum(header, unpacker.bytes(raw), scanner.segment().limit, measure))
}

#[inline]
fn sum<F: Fn(&BatchHeader, &Record<'_>) -> usize>(
    header: &BatchHeader,
    payload: &[u8],
    limit: Offset,
    measure: &F,
) -> Counted {
    let (mut bytes, mut records, mut next) = (0, 0, header.base_offset);
    let read = Cursor::up_to(header, payload, limit).and_then(|cursor| {
        cursor.for_each(header, payload, |record| {
            bytes += measure(header, record) as u64;
            records += 1;
            next = record.offset.next();
        })
    });
    Counted { bytes, records, failure: read.err().map(|e| (next, e.to_string())) }
}
