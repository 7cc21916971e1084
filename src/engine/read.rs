//! Reading a log from some batch on, across its segments: every batch that shows data, verified and
//! made readable, and every stretch of damage between them.

use std::sync::Arc;

use crate::engine::batches::Unpacker;
use crate::engine::damage::Stretch;
use crate::engine::load::unreadable;
use crate::engine::log::{Filter, Log, LogState};
use crate::engine::scanner::{Interrupted, Item, Scanner};
use crate::engine::segment::Segment;
use crate::error::{Error, Result};
use crate::format::FormatError;
use crate::format::batch::BatchHeader;
use crate::format::record::Cursor;
use crate::units::{Offset, Position};

/// What comes next.
#[derive(Clone, Debug)]
pub enum Step {
    /// A batch; [`Reading::records`] lends its records.
    Batch(BatchHeader),
    /// Bytes that are wrong.
    Damage(Stretch),
    /// No more batches, as far as the log went when the reading began.
    End,
}

/// Which batches a reading gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Those that hold data records which are shown.
    Data,
    /// All, control batches included, not expanded.
    All,
}

/// A reading of one log.
#[derive(Debug)]
pub struct Reading {
    log: Arc<Log>,
    segments: Vec<Arc<Segment>>,
    number: usize,
    scanner: Option<Scanner>,
    filter: Filter,
    wanted: Wanted,
    interrupted: Option<Interrupted>,
    unpacker: Unpacker,
    current: Option<(BatchHeader, Position)>,
}

impl Reading {
    /// A reading that begins with the batch which covers `start`, or the next one.
    pub fn new(
        log: &Arc<Log>,
        state: &LogState,
        start: Offset,
        wanted: Wanted,
        interrupted: Option<Interrupted>,
    ) -> Result<Reading> {
        let filter = log.filter(state)?;
        let number = state.segment_of(start).unwrap_or(0);
        let segments = state.segments.clone();
        let mut reading = Reading::of(log, segments, number, filter, wanted, interrupted);
        if let Some(segment) = reading.segments.get(number).cloned() {
            let anchor = log.anchor(&segment, start)?;
            reading.seek(number, anchor.position, anchor.expected);
        }
        Ok(reading)
    }

    /// A reading of these segments from the start of number `number` on.
    pub fn of(
        log: &Arc<Log>,
        segments: Vec<Arc<Segment>>,
        number: usize,
        filter: Filter,
        wanted: Wanted,
        interrupted: Option<Interrupted>,
    ) -> Reading {
        Reading {
            log: Arc::clone(log),
            segments,
            number,
            scanner: None,
            filter,
            wanted,
            interrupted,
            unpacker: Unpacker::default(),
            current: None,
        }
    }

    /// Goes on in segment number `number`, at `position`, where a batch begins whose offsets are
    /// not below `expected`.
    pub fn seek(&mut self, number: usize, position: Position, expected: Offset) {
        let same = number == self.number;
        self.number = number;
        self.current = None;
        self.unpacker.release();
        let scanner = self.scanner.take().filter(|_| same);
        self.scanner = scanner.or_else(|| {
            let segment = self.segments.get(number)?;
            Some(self.log.shared().long_scanner(segment, self.interrupted.as_ref()))
        });
        if let Some(scanner) = &mut self.scanner {
            scanner.seek(position, expected);
        }
    }

    /// Sees the segments as they are now; those that were there stay as they were, but may have
    /// grown.
    pub fn replace_segments(&mut self, segments: Vec<Arc<Segment>>, filter: Filter) {
        self.segments = segments;
        self.filter = filter;
        if let (Some(scanner), Some(segment)) = (&mut self.scanner, self.segments.get(self.number))
        {
            scanner.grow(segment);
        }
    }

    /// How many segments it knows.
    pub fn segments_count(&self) -> usize {
        self.segments.len()
    }

    /// Is this the last segment that it knows, in the same state?
    pub fn sees(&self, segment: &Arc<Segment>) -> bool {
        self.segments.last().is_some_and(|last| Arc::ptr_eq(last, segment))
    }

    /// Bytes of the current batch as stored.
    pub fn batch_bytes(&self) -> u64 {
        self.current.as_ref().map_or(0, |(header, _)| header.bytes)
    }

    /// The number of the segment that is read.
    pub fn segment_number(&self) -> usize {
        self.number
    }

    /// The next batch or stretch of damage. Fails on I/O errors and interruption.
    pub fn step(&mut self) -> Result<Step> {
        self.current = None;
        loop {
            let Some(scanner) = &mut self.scanner else {
                let Some(segment) = self.segments.get(self.number) else { return Ok(Step::End) };
                let shared = self.log.shared();
                self.scanner = Some(shared.long_scanner(segment, self.interrupted.as_ref()));
                continue;
            };
            match scanner.step()? {
                Item::Batch(header, position) => {
                    if let Some(odd) = scanner.take_oddity() {
                        self.log.findings().note_oddity(odd);
                    }
                    if let Some(step) = self.take(header, position)? {
                        return Ok(step);
                    }
                }
                Item::Damage(stretch) => {
                    self.log.findings().note(&stretch);
                    return Ok(Step::Damage(stretch));
                }
                Item::End { .. } if self.number + 1 < self.segments.len() => {
                    self.number += 1;
                    self.scanner = None;
                }
                Item::End { .. } => return Ok(Step::End),
            }
        }
    }

    /// The batch as a step, or `None` when it shows nothing.
    #[inline]
    fn take(&mut self, header: BatchHeader, position: Position) -> Result<Option<Step>> {
        if self.wanted == Wanted::Data && (header.control || !self.filter.shows(&header)) {
            return Ok(None);
        }
        self.current = Some((header.clone(), position));
        if self.wanted == Wanted::Data {
            match self.prepare() {
                Ok(()) => {}
                Err(Error::Damage { reason, .. }) => {
                    self.current = None;
                    let Some(segment) = self.segments.get(self.number) else { return Ok(None) };
                    let stretch = unreadable(segment, position, &header, reason);
                    self.log.findings().note(&stretch);
                    return Ok(Some(Step::Damage(stretch)));
                }
                Err(e) => return Err(e),
            }
        }
        Ok(Some(Step::Batch(header)))
    }

    fn prepare(&mut self) -> Result<()> {
        let (Some((header, position)), Some(scanner)) = (&self.current, &self.scanner) else {
            return Ok(());
        };
        let raw = scanner.batch_bytes(header, *position);
        let batches = &self.log.shared().batches;
        self.unpacker.prepare(batches, scanner.segment(), *position, header, raw)
    }

    /// The current batch and its uncompressed records.
    #[inline]
    pub fn records(&self) -> Option<(&BatchHeader, &[u8])> {
        let (header, position) = self.current.as_ref()?;
        let raw = self.scanner.as_ref()?.batch_bytes(header, *position);
        Some((header, self.unpacker.bytes(raw)))
    }

    /// The offset behind the current batch, as far as its segment answers.
    pub fn end_of_batch(&self) -> Option<Offset> {
        let (header, _) = self.current.as_ref()?;
        let limit = self.scanner.as_ref()?.segment().limit;
        Some(header.last_offset.next().min(limit))
    }

    /// Before the first record of the current batch; ends where the next segment answers.
    pub fn cursor(&self) -> Option<Result<Cursor, FormatError>> {
        let (header, bytes) = self.records()?;
        let limit = self.scanner.as_ref()?.segment().limit;
        Some(Cursor::up_to(header, bytes, limit))
    }

    /// The first offset of the current batch that cannot be read, once a record turned out to be
    /// invalid.
    pub fn first_unreadable(&self) -> Option<Offset> {
        let (header, bytes) = self.records()?;
        let mut next = header.base_offset;
        if let Ok(cursor) = Cursor::new(header, bytes) {
            // The error is why it is asked; the records before it are what counts here.
            let _known = cursor.for_each(header, bytes, |record| next = record.offset.next());
        }
        Some(next)
    }

    /// The records of the current batch from `first_offset` on as damage, which is noted: they
    /// turned out to be unreadable.
    pub fn give_up(&self, first_offset: Offset, reason: &FormatError) -> Option<Stretch> {
        let (header, position) = self.current.as_ref()?;
        let segment = self.segments.get(self.number)?;
        let stretch = unreadable(segment, *position, header, reason.to_string());
        let stretch = Stretch { first_offset, ..stretch };
        self.log.findings().note(&stretch);
        Some(stretch)
    }

    /// Appends up to `most` bytes of the current batch as stored, from byte `skip` of it, to `out`.
    pub fn copy_raw(&self, skip: u64, most: usize, out: &mut Vec<u8>) -> Result<()> {
        let Some((header, position)) = &self.current else { return Ok(()) };
        let Some(segment) = self.segments.get(self.number) else { return Ok(()) };
        let left = usize::try_from(header.bytes.saturating_sub(skip)).unwrap_or(usize::MAX);
        let count = left.min(most);
        let held = self.scanner.as_ref().and_then(|scanner| scanner.batch_bytes(header, *position));
        let skip_bytes = usize::try_from(skip).unwrap_or(usize::MAX);
        if let Some(bytes) = held.and_then(|held| held.get(skip_bytes..)?.get(..count)) {
            out.extend_from_slice(bytes);
            return Ok(());
        }
        let begin = out.len();
        out.resize(begin + count, 0);
        let disk = &self.log.shared().disk;
        let read = disk.read_at(&segment.log.file, position.plus(skip), &mut out[begin..])?;
        out.truncate(begin + read);
        Ok(())
    }

    /// Lets go of what others may need before the reading goes on; [`Self::resume`] gets it back.
    pub fn pause(&mut self) {
        if self.unpacker.holds_large() {
            self.unpacker.release();
        }
    }

    /// Makes the current batch readable again after [`Self::pause`].
    pub fn resume(&mut self) -> Result<()> {
        if self.unpacker.is_released() && self.wanted == Wanted::Data {
            return self.prepare();
        }
        Ok(())
    }
}
