//! A part of a segment, read once: every batch verified, every record parsed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::engine::batches::{Unpacker, damage};
use crate::engine::damage::{Oddity, Stretch};
use crate::engine::facts::{SuspiciousTimestamp, file_name, suspicion};
use crate::engine::find::Anchor;
use crate::engine::load::unreadable;
use crate::engine::log::{Log, TornTail};
use crate::engine::scanner::{Item, Scanner};
use crate::engine::segment::Segment;
use crate::engine::transactions::SegmentTransactions;
use crate::error::{Error, Result};
use crate::format::batch::{BatchHeader, Magic};
use crate::format::checkpoint::EpochStart;
use crate::format::index::{OffsetIndex, TimeIndex};
use crate::format::record::{Cursor, Record};
use crate::inspect::check::watch::{Faults, OffsetWatch, TimeWatch};
use crate::units::{LeaderEpoch, Offset, Position, Timestamp};

/// Holes and epochs of one part that are remembered at the most; a log of nothing else must not
/// take memory without bound.
const MOST_REMEMBERED: usize = 1 << 16;

/// Bytes from a place where a batch begins up to another one.
#[derive(Clone, Debug)]
pub struct Part {
    /// The segment.
    pub segment: Arc<Segment>,
    /// Where it begins.
    pub from: Anchor,
    /// Where the next part begins; beyond the end of the file for the last one.
    pub until: Position,
}

/// The indexes of a segment as they are compared with its batches.
#[derive(Clone, Copy, Debug)]
pub struct Indexes<'a> {
    /// The offset index; `None` when its entries do not even ascend.
    pub offsets: Option<OffsetIndex<'a>>,
    /// The same of the time index.
    pub times: Option<TimeIndex<'a>>,
}

/// What was read.
#[derive(Debug)]
pub struct PartRead {
    /// Where the reading ended, and the least offset that a batch there may hold.
    pub end: Anchor,
    /// Bytes in whole batches whose records can be read.
    pub valid_bytes: u64,
    /// Such batches.
    pub batches: u64,
    /// Records in them, control records included.
    pub records: u64,
    /// Bytes that are wrong.
    pub damage: Vec<Stretch>,
    /// Where those of them begin whose checksum is right, and of which some records can be read.
    pub intact: Vec<Position>,
    /// Batches that are served although something is wrong with them.
    pub oddities: Vec<Oddity>,
    /// First offsets of what is not there, and first offsets behind.
    pub holes: Vec<(Offset, Offset)>,
    /// Offsets in such holes that are not listed, there being too many.
    pub unlisted_offsets: u64,
    /// Are there signs of a cleaner?
    pub is_sparse: bool,
    /// What follows the last batch of a closed segment without being one.
    pub torn: Option<TornTail>,
    /// First offset behind those that a later segment answers for, if there are any.
    pub shadowed_end: Option<Offset>,
    /// What can hardly be meant.
    pub timestamps: Vec<SuspiciousTimestamp>,
    /// Transactions.
    pub transactions: SegmentTransactions,
    /// Leader epochs, each where it begins or comes again.
    pub epochs: Vec<EpochStart>,
    /// What is wrong with the offset index.
    pub offset_faults: Faults,
    /// What is wrong with the time index.
    pub time_faults: Faults,
}

impl PartRead {
    /// Nothing yet, from `from` on.
    fn from(from: Anchor) -> PartRead {
        PartRead {
            end: from,
            valid_bytes: 0,
            batches: 0,
            records: 0,
            damage: Vec::new(),
            intact: Vec::new(),
            oddities: Vec::new(),
            holes: Vec::new(),
            unlisted_offsets: 0,
            is_sparse: false,
            torn: None,
            shadowed_end: None,
            timestamps: Vec::new(),
            transactions: SegmentTransactions::default(),
            epochs: Vec::new(),
            offset_faults: Faults::default(),
            time_faults: Faults::default(),
        }
    }

    fn add_hole(&mut self, from: Offset, to: Offset) {
        if let Some((_, end)) = self.holes.last_mut().filter(|(_, end)| *end == from) {
            *end = to;
        } else if self.holes.len() < MOST_REMEMBERED {
            self.holes.push((from, to));
        } else {
            self.unlisted_offsets += to.distance_from(from);
        }
    }

    fn add_epoch(&mut self, epoch: LeaderEpoch, start: Offset) {
        let known = self.epochs.last().is_some_and(|last| last.epoch == epoch);
        if !known && self.epochs.len() < MOST_REMEMBERED {
            self.epochs.push(EpochStart { epoch, start });
        }
    }

    /// Adjacent stretches are one, as readers see it.
    fn add_damage(&mut self, stretch: Stretch) {
        match self.damage.last_mut() {
            Some(last) if last.end == stretch.start && !self.intact.contains(&last.start) => {
                last.take_in(&stretch);
            }
            _ => self.damage.push(stretch),
        }
    }
}

/// The reading of a part.
pub struct Reader<'a> {
    log: &'a Log,
    part: &'a Part,
    now: Timestamp,
    unpacker: Unpacker,
    offsets: Option<OffsetWatch<'a>>,
    times: Option<TimeWatch<'a>>,
    read: PartRead,
}

impl<'a> Reader<'a> {
    /// Of `part`, beside the `indexes` of its segment.
    pub fn new(log: &'a Log, part: &'a Part, indexes: Indexes<'a>, now: Timestamp) -> Reader<'a> {
        let Anchor { position, expected } = part.from;
        Reader {
            log,
            part,
            now,
            unpacker: Unpacker::default(),
            offsets: indexes.offsets.map(|index| OffsetWatch::from(index, position)),
            times: indexes.times.map(|index| TimeWatch::from(index, expected)),
            read: PartRead::from(part.from),
        }
    }

    /// Reads all of it; `done` counts the bytes.
    pub fn read(mut self, done: &AtomicU64) -> Result<PartRead> {
        let mut scanner = self.log.shared().long_scanner(&self.part.segment, None);
        scanner.seek(self.part.from.position, self.part.from.expected);
        while scanner.position() < self.part.until {
            let before = Anchor { position: scanner.position(), expected: scanner.expected() };
            match scanner.step()? {
                Item::Batch(header, position) => {
                    self.see(&scanner, &header, position, before.expected)?;
                    self.read.oddities.extend(scanner.take_oddity());
                }
                Item::Damage(stretch) => {
                    self.over_damage(stretch, before.expected, scanner.expected());
                }
                Item::End { position, torn } => {
                    self.end(position, torn)?;
                    break;
                }
            }
            done.fetch_add(scanner.position().get() - before.position.get(), Ordering::Relaxed);
        }
        self.read.end = Anchor { position: scanner.position(), expected: scanner.expected() };
        let end = self.read.end.position;
        self.read.offset_faults = self.offsets.map(|it| it.finish(end)).unwrap_or_default();
        self.read.time_faults = self.times.map(TimeWatch::finish).unwrap_or_default();
        Ok(self.read)
    }

    #[inline]
    fn see(
        &mut self,
        scanner: &Scanner,
        header: &BatchHeader,
        position: Position,
        expected: Offset,
    ) -> Result<()> {
        let raw = scanner.batch_bytes(header, position);
        match self.parse(header, position, raw, expected) {
            Ok(records) => {
                self.read.valid_bytes += header.bytes;
                self.read.batches += 1;
                self.read.records += records;
            }
            Err(Error::Damage { reason, .. }) => {
                let mut stretch = unreadable(&self.part.segment, position, header, reason);
                if let Some(end) = self.readable_end(header, raw) {
                    stretch.first_offset = end;
                    self.read.intact.push(position);
                    self.read.damage.push(stretch);
                } else {
                    self.read.add_damage(stretch);
                }
            }
            Err(e) if e.is_bad_disk() => {
                let stretch = unreadable(&self.part.segment, position, header, e.to_string());
                self.read.add_damage(stretch);
            }
            Err(e) => return Err(e),
        }
        if let Some(watch) = &mut self.offsets {
            watch.see(header, position);
        }
        if let Some(watch) = &mut self.times {
            watch.see(header);
        }
        self.read.transactions.see(header, raw);
        if let Some(epoch) = header.leader_epoch {
            self.read.add_epoch(epoch, header.base_offset);
        }
        Ok(())
    }

    /// Parses all records of a batch; how many they are.
    #[inline]
    fn parse(
        &mut self,
        header: &BatchHeader,
        position: Position,
        raw: Option<&[u8]>,
        expected: Offset,
    ) -> Result<u64> {
        let (batches, segment) = (&self.log.shared().batches, &*self.part.segment);
        self.unpacker.prepare(batches, segment, position, header, raw)?;
        let bytes = self.unpacker.bytes(raw);
        let full = header.last_offset.distance_from(header.base_offset) + 1;
        let is_full = header.magic == Magic::V2 && u64::from(header.records_count) == full;
        let mut seen = Sparse { next: expected, newest: None, records: 0, holes: Vec::new() };
        let parsed = Cursor::new(header, bytes).and_then(|all| {
            if is_full && header.max_timestamp.is_some() {
                all.for_each(header, bytes, |_| seen.records += 1)
            } else {
                all.for_each(header, bytes, |record| seen.see(record))
            }
        });
        parsed.map_err(|e| damage(segment, position, &e.to_string()))?;
        if is_full {
            seen.pass(header.base_offset);
        } else {
            seen.pass(header.last_offset.next());
            self.read.is_sparse |= header.magic == Magic::V2;
        }
        self.read.is_sparse |= header.delete_horizon.is_some();
        for &(from, to) in &seen.holes {
            self.read.add_hole(from, to);
        }
        self.note_time(header.max_timestamp.max(seen.newest), header.base_offset);
        Ok(seen.records)
    }

    /// Of the batch that was prepared last, and that cannot be read to its end: the first offset
    /// behind the records that can; `None` when there are none.
    fn readable_end(&self, header: &BatchHeader, raw: Option<&[u8]>) -> Option<Offset> {
        let bytes = self.unpacker.bytes(raw);
        let mut cursor = Cursor::new(header, bytes).ok()?;
        let mut end = None;
        while let Some(Ok(record)) = cursor.next(header, bytes) {
            end = Some(record.offset.next());
        }
        end
    }

    #[inline]
    fn note_time(&mut self, newest: Option<Timestamp>, offset: Offset) {
        if let Some(newest) = newest
            && let Some(reason) = suspicion(newest, self.now)
        {
            self.note_suspicion(newest, reason, offset);
        }
    }

    #[cold]
    fn note_suspicion(&mut self, timestamp: Timestamp, reason: &'static str, offset: Offset) {
        let segment = file_name(self.part.segment.log.path());
        let first_offset = Some(offset);
        let found = SuspiciousTimestamp { segment, timestamp, reason, first_offset };
        found.add_to(&mut self.read.timestamps);
    }

    fn over_damage(&mut self, stretch: Stretch, before: Offset, behind: Offset) {
        if let Some(watch) = &mut self.offsets {
            watch.pass(stretch.end);
        }
        if let Some(watch) = &mut self.times {
            watch.pass(behind);
        }
        // Of a whole batch that is wrong the header may still tell what it held.
        for (from, to) in [(before, stretch.first_offset), (stretch.end_offset, behind)] {
            if from < to {
                self.read.add_hole(from, to);
            }
        }
        self.read.add_damage(stretch);
    }

    /// The batches that the segment answers for end at `position`.
    fn end(&mut self, position: Position, torn: u64) -> Result<()> {
        let segment = &self.part.segment;
        if torn > 0 {
            let path = segment.log.path().to_path_buf();
            self.read.torn = Some(TornTail { path, position, bytes: torn });
        } else if position.get() < segment.valid_bytes {
            self.shadowed(position)?;
        }
        Ok(())
    }

    /// Reads what a later segment answers for.
    fn shadowed(&mut self, position: Position) -> Result<()> {
        let whole = Segment { limit: Offset::MAX, ..(*self.part.segment).clone() };
        let mut scanner = self.log.shared().long_scanner(&Arc::new(whole), None);
        scanner.seek(position, self.part.segment.limit);
        loop {
            match scanner.step()? {
                Item::Batch(header, _) => {
                    self.read.shadowed_end = Some(scanner.expected());
                    self.read.valid_bytes += header.bytes;
                    self.read.batches += 1;
                }
                Item::Damage(stretch) => {
                    // The later segment has these offsets; none is lost here.
                    let end_offset = stretch.first_offset;
                    self.read.add_damage(Stretch { end_offset, ..stretch });
                }
                Item::End { .. } => return Ok(()),
            }
        }
    }
}

/// The records of a batch that has not all that it ever had.
struct Sparse {
    next: Offset,
    newest: Option<Timestamp>,
    records: u64,
    holes: Vec<(Offset, Offset)>,
}

impl Sparse {
    fn see(&mut self, record: &Record<'_>) {
        self.pass(record.offset);
        self.next = self.next.max(record.offset.next());
        self.newest = self.newest.max(record.timestamp);
        self.records += 1;
    }

    fn pass(&mut self, offset: Offset) {
        if offset > self.next {
            self.holes.push((self.next, offset));
        }
    }
}
