//! A range of offsets as one file: its exact size, and its bytes from any position. The file is the
//! chain of its segments; within each, the sizes counted by the engine say where to begin. What was
//! promised to an open file stays: it may grow, but never shrinks, and segments that retention
//! takes keep their place in it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::engine::damage::Stretch;
use crate::engine::extent::{DamagePolicy, Extents, Mark, Measure};
use crate::engine::log::{Filter, Log, LogState};
use crate::engine::read::{Reading, Step, Wanted};
use crate::engine::scanner::Interrupted;
use crate::engine::segment::Segment;
use crate::error::{Error, Result};
use crate::format::FormatError;
use crate::format::batch::BatchHeader;
use crate::format::record::{Cursor, Record};
use crate::units::Offset;
use crate::view::name::Format;
use crate::view::render::{self, Place};

/// Reading on in a batch up to this size takes no noticeable time.
const LIGHT_BATCH_BYTES: u64 = 256 << 10;

/// A resolved range in one format.
#[derive(Debug)]
pub struct RangeFile {
    log: Arc<Log>,
    start: Offset,
    end: Option<Offset>,
    format: Format,
    chain: Mutex<Arc<Chain>>,
    opened: AtomicBool,
}

/// The segments of a range, as far as they were looked at.
#[derive(Clone, Debug, Default)]
struct Chain {
    state: Option<Arc<LogState>>,
    pieces: Vec<Piece>,
    /// Have other files taken the place of segments in it?
    stale: bool,
}

/// What one segment gives to a range.
#[derive(Clone, Debug)]
struct Piece {
    segment: Arc<Segment>,
    extents: Arc<Mutex<Extents>>,
    /// Bytes of the file before this piece.
    before: u64,
    /// Shown bytes of the segment before its part of the range.
    skip: u64,
    /// Shown bytes of its part.
    bytes: u64,
    /// First offset of the segment behind what was counted.
    end: Offset,
}

/// Where a sequential reading of a range stands.
#[derive(Debug)]
pub struct RangeCursor {
    reading: Reading,
    /// Position in the file of the next byte.
    next: u64,
    /// Rendered bytes still to be left out.
    skip: u64,
    records: Option<Cursor>,
    /// Bytes of the current batch that were given, in the raw format.
    raw: Option<u64>,
    /// Rendered, but not given yet.
    rest: Vec<u8>,
}

/// How a read ended.
#[derive(Clone, Debug)]
pub enum ReadEnd {
    /// As many bytes as were wanted, or up to the end of the file.
    Complete,
    /// The next byte is an unreadable one.
    Damage(Stretch),
}

impl RangeFile {
    /// The records from `start` up to `end`, or to the end of the log as it grows.
    pub fn new(log: Arc<Log>, start: Offset, end: Option<Offset>, format: Format) -> RangeFile {
        let (chain, opened) = (Mutex::default(), AtomicBool::default());
        RangeFile { log, start, end, format, chain, opened }
    }

    /// Its exact size now. The first time this may read the whole range.
    pub fn size(&self, interrupted: Option<&Interrupted>) -> Result<u64> {
        Ok(self.look(interrupted)?.size())
    }

    /// Would [`Self::size`] answer without reading much?
    pub fn is_quick(&self) -> bool {
        if !self.log.is_open() {
            return false;
        }
        let Ok(state) = self.log.state() else { return true };
        let until = self.end.unwrap_or(Offset::MAX).min(state.log_end);
        let chain = self.known();
        let counted = chain.pieces.len().saturating_sub(1);
        let first = state.segment_of(self.start).unwrap_or(0) + counted;
        let format = self.format.class();
        state.segments.iter().skip(first).all(|segment| {
            segment.base_offset >= until || self.log.extents_known(segment, format, until)
        })
    }

    /// Does an unreadable byte lie in what was counted so far?
    pub fn is_damaged(&self) -> bool {
        let chain = self.known();
        self.log.shared().options.damage == DamagePolicy::Unreadable
            && chain.pieces.iter().any(|piece| !lock(&piece.extents).damage.is_empty())
    }

    /// Does it show what other files have taken the place of, as after compaction? Then it is only
    /// for those who have it open.
    pub fn is_stale(&self) -> bool {
        let chain = self.known();
        let Some(seen) = &chain.state else { return false };
        let newer = self.log.state().ok().filter(|state| !Arc::ptr_eq(seen, state));
        chain.stale || newer.is_some_and(|state| chain.is_replaced_in(&state))
    }

    /// Notes that it is opened; was it before?
    pub fn note_open(&self) -> bool {
        self.opened.swap(true, Ordering::AcqRel)
    }

    /// Are the batches around `position` small, so that a read there takes no noticeable time?
    pub fn is_light(&self, position: u64) -> bool {
        let chain = self.known();
        let from = chain.pieces.partition_point(|piece| piece.before <= position).saturating_sub(1);
        let mut around = chain.pieces.iter().skip(from).take(2);
        // Whoever is counting right now holds the lock for long.
        let is_small = |extents: &Extents| extents.largest_batch <= LIGHT_BATCH_BYTES;
        around.all(|piece| piece.extents.try_lock().is_ok_and(|extents| is_small(&extents)))
    }

    /// Are all records of it ones that do not change any more, as far as one can know?
    pub fn is_settled(&self, state: &LogState) -> bool {
        let end = self.end.unwrap_or(Offset::MAX).min(state.log_end);
        state.is_settled(end.previous())
    }

    /// Appends up to `wanted` bytes from `position` on to `out`; fewer only at the end of the file
    /// or before an unreadable byte.
    pub fn read(
        &self,
        cursor: &mut Option<Box<RangeCursor>>,
        position: u64,
        wanted: usize,
        out: &mut Vec<u8>,
        interrupted: Option<&Interrupted>,
    ) -> Result<ReadEnd> {
        let mut chain = self.known();
        if position + wanted as u64 > chain.size() {
            chain = self.look(interrupted)?;
        }
        let left = chain.size().saturating_sub(position);
        let wanted = wanted.min(usize::try_from(left).unwrap_or(usize::MAX));
        if wanted == 0 {
            return Ok(ReadEnd::Complete);
        }
        let mut at = match cursor.take().filter(|at| at.next == position) {
            Some(mut at) => {
                self.go_on(&mut at, &chain)?;
                at
            }
            None => Box::new(self.seek(&chain, position, interrupted)?),
        };
        let end = at.fill(self, &chain, wanted, out)?;
        if matches!(end, ReadEnd::Complete) {
            at.reading.pause();
            *cursor = Some(at);
        }
        Ok(end)
    }

    fn place(&self) -> Place<'_> {
        Place { topic: self.log.name().topic(), partition: self.log.name().partition() }
    }

    /// Sees how far the log has grown.
    fn look(&self, interrupted: Option<&Interrupted>) -> Result<Arc<Chain>> {
        let state = self.log.state()?;
        let known = self.known();
        if known.state.as_ref().is_some_and(|seen| Arc::ptr_eq(seen, &state)) {
            return Ok(known);
        }
        let mut chain = Chain::clone(&known);
        if self.end.is_some_and(|end| end <= self.start) {
            return Ok(Arc::new(Chain { state: Some(state), pieces: Vec::new(), stale: false }));
        }
        chain.stale |= chain.is_replaced_in(&state);
        if chain.stale {
            // It stays what it was: its segments and those that took their place do not join.
            return Ok(self.keep(Chain { state: Some(state), ..chain }));
        }
        let filter = self.log.filter(&state)?;
        let until = self.end.unwrap_or(Offset::MAX).min(self.log.visible_end(&state)?);
        let last = chain.pieces.pop();
        let first_offset = last.as_ref().map_or(self.start, |piece| piece.segment.base_offset);
        let number = state.segment_of(first_offset).unwrap_or(0);
        for segment in state.segments.get(number..).unwrap_or_default() {
            if segment.base_offset >= until && !chain.pieces.is_empty() {
                break;
            }
            let before = chain.size();
            let piece = self.piece(segment, before, until, &filter, interrupted)?;
            chain.pieces.push(piece);
        }
        if let Some(old) = last {
            keep_promise(&mut chain, old);
        }
        chain.state = Some(state);
        Ok(self.keep(chain))
    }

    fn keep(&self, chain: Chain) -> Arc<Chain> {
        let chain = Arc::new(chain);
        let mut known = self.chain.lock().unwrap_or_else(PoisonError::into_inner);
        if chain.size() >= known.size() {
            *known = Arc::clone(&chain);
        }
        chain
    }

    fn known(&self) -> Arc<Chain> {
        Arc::clone(&self.chain.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn piece(
        &self,
        segment: &Arc<Segment>,
        before: u64,
        until: Offset,
        filter: &Filter,
        interrupted: Option<&Interrupted>,
    ) -> Result<Piece> {
        let (place, format) = (self.place(), self.format);
        let extents = match format {
            Format::Lines | Format::Nul => {
                self.counted(segment, until, filter, interrupted, |_, r| {
                    r.value.map_or(0, <[u8]>::len) + 1
                })
            }
            Format::Tsv | Format::Jsonl | Format::Raw => {
                self.counted(segment, until, filter, interrupted, |batch, record| {
                    render::rendered_bytes(format, &place, batch, record)
                })
            }
        }?;
        let skip = if self.start > segment.base_offset {
            self.bytes_before(segment, &extents, self.start, Side::Start, filter)?
        } else {
            0
        };
        let total = if until < segment.limit && until < lock(&extents).end.expected {
            self.bytes_before(segment, &extents, until, Side::End, filter)?
        } else {
            lock(&extents).end.bytes
        };
        let bytes = total.saturating_sub(skip);
        let end = lock(&extents).end.expected;
        Ok(Piece { segment: Arc::clone(segment), extents, before, skip, bytes, end })
    }

    fn counted<F: Fn(&BatchHeader, &Record<'_>) -> usize>(
        &self,
        segment: &Arc<Segment>,
        until: Offset,
        filter: &Filter,
        interrupted: Option<&Interrupted>,
        bytes: F,
    ) -> Result<Arc<Mutex<Extents>>> {
        let class = self.format.class();
        let measure = match self.format {
            Format::Raw => Measure::Batches,
            Format::Lines | Format::Nul | Format::Tsv | Format::Jsonl => Measure::Records(bytes),
        };
        self.log.extents(segment, class, &measure, filter, until, interrupted)
    }

    /// Shown bytes of a segment before `offset`. Damage and, in the raw format, batches are not
    /// cut: what holds a start belongs to the range, and so does what holds the last offset
    /// before an end.
    fn bytes_before(
        &self,
        segment: &Arc<Segment>,
        extents: &Mutex<Extents>,
        offset: Offset,
        side: Side,
        filter: &Filter,
    ) -> Result<u64> {
        let policy = self.log.shared().options.damage;
        let (mark, damage) = {
            let extents = lock(extents);
            if let Some((stretch, before)) = extents.damage_at(offset) {
                let inside = side == Side::End && offset > stretch.first_offset;
                return Ok(before + if inside { policy.bytes() } else { 0 });
            }
            let mark = extents.mark_for_offset(offset);
            let behind = |(stretch, _): &&(Stretch, u64)| {
                stretch.start >= mark.position && stretch.first_offset < offset
            };
            (mark, extents.damage.iter().filter(behind).count() as u64 * policy.bytes())
        };
        let records = self.rendered_between(segment, mark, offset, side, filter)?;
        Ok(mark.bytes + damage + records)
    }

    /// Rendered bytes of the records from `mark` up to `offset`.
    fn rendered_between(
        &self,
        segment: &Arc<Segment>,
        mark: Mark,
        offset: Offset,
        side: Side,
        filter: &Filter,
    ) -> Result<u64> {
        let segments = vec![Arc::clone(segment)];
        let wanted = wanted(self.format);
        let mut reading = Reading::of(&self.log, segments, 0, filter.clone(), wanted, None);
        reading.seek(0, mark.position, mark.expected);
        let (place, mut bytes) = (self.place(), 0);
        loop {
            let header = match reading.step()? {
                Step::Batch(header) => header,
                Step::Damage(stretch) if stretch.first_offset < offset => continue,
                Step::Damage(_) | Step::End => return Ok(bytes),
            };
            if self.format == Format::Raw {
                let inside = match side {
                    Side::Start => header.last_offset < offset,
                    Side::End => header.base_offset < offset,
                };
                if !inside {
                    return Ok(bytes);
                }
                bytes += header.bytes;
                continue;
            }
            if header.base_offset >= offset && !header.is_legacy_wrapper() {
                return Ok(bytes);
            }
            let Some((header, payload)) = reading.records() else { continue };
            let Some(Ok(mut cursor)) = reading.cursor() else { continue };
            while let Some(Ok(record)) = cursor.next(header, payload) {
                if record.offset < offset {
                    bytes += render::rendered_bytes(self.format, &place, header, &record) as u64;
                }
            }
            if header.last_offset >= offset {
                return Ok(bytes);
            }
        }
    }

    fn seek(
        &self,
        chain: &Chain,
        position: u64,
        interrupted: Option<&Interrupted>,
    ) -> Result<RangeCursor> {
        let number = chain.pieces.partition_point(|piece| piece.before <= position);
        // Pieces may be empty: the last one that begins at the position is the one that goes on.
        let number = number.saturating_sub(1);
        let state = chain.state.as_ref().ok_or(Error::Interrupted)?;
        let filter = self.log.filter(state)?;
        let segments = chain.pieces.iter().map(|piece| Arc::clone(&piece.segment)).collect();
        let wanted = wanted(self.format);
        let interrupted = interrupted.cloned();
        let mut reading = Reading::of(&self.log, segments, number, filter, wanted, interrupted);
        let mut skip = 0;
        if let Some(piece) = chain.pieces.get(number) {
            let shown = piece.skip + (position - piece.before);
            let mark = lock(&piece.extents).mark_for_bytes(shown);
            reading.seek(number, mark.position, mark.expected);
            skip = shown - mark.bytes;
        }
        let rest = Vec::new();
        Ok(RangeCursor { reading, next: position, skip, records: None, raw: None, rest })
    }

    fn go_on(&self, at: &mut RangeCursor, chain: &Chain) -> Result<()> {
        let state = chain.state.as_ref().ok_or(Error::Interrupted)?;
        if at.reading.segments_count() != chain.pieces.len()
            || chain.pieces.last().is_some_and(|piece| !at.reading.sees(&piece.segment))
        {
            let segments = chain.pieces.iter().map(|piece| Arc::clone(&piece.segment)).collect();
            at.reading.replace_segments(segments, self.log.filter(state)?);
        }
        at.reading.resume()
    }
}

/// Which end of a range is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Start,
    End,
}

impl Chain {
    fn size(&self) -> u64 {
        self.pieces.last().map_or(0, |piece| piece.before + piece.bytes)
    }

    /// Does another file of `state` hold offsets of a segment in it? A segment that is merely gone
    /// has fallen to retention.
    fn is_replaced_in(&self, state: &LogState) -> bool {
        self.pieces.iter().any(|piece| {
            let (old, end) = (&piece.segment, piece.end);
            let first = state.segment_of(old.base_offset).unwrap_or(0);
            let now = state.segments.get(first..).unwrap_or_default().iter();
            let mut now = now.take_while(|segment| segment.base_offset < end);
            end > old.base_offset && now.any(|segment| segment.log.file.id != old.log.file.id)
        })
    }

    fn piece(&self, segment_number: usize) -> Option<&Piece> {
        self.pieces.get(segment_number)
    }
}

impl RangeCursor {
    /// Renders until `wanted` bytes more are in `out`.
    fn fill(
        &mut self,
        file: &RangeFile,
        chain: &Chain,
        wanted: usize,
        out: &mut Vec<u8>,
    ) -> Result<ReadEnd> {
        let begin = out.len();
        let target = begin + wanted;
        out.reserve(wanted + 4096);
        out.append(&mut self.rest);
        let mut end = ReadEnd::Complete;
        while out.len() < target {
            if self.records.is_some() {
                if let Some(damage) = self.render(file, chain, target, out)? {
                    end = damage;
                    break;
                }
            } else if self.raw.is_some() {
                self.copy(target, out)?;
            } else {
                match self.step(file, chain)? {
                    Some(ReadEnd::Complete) => break,
                    Some(damage) => {
                        end = damage;
                        break;
                    }
                    None => {}
                }
            }
        }
        if out.len() > target {
            self.rest.extend_from_slice(&out[target..]);
            out.truncate(target);
        }
        self.next += (out.len() - begin) as u64;
        Ok(end)
    }

    /// Takes the next batch; `Some` when there is none or an unreadable byte comes first.
    fn step(&mut self, file: &RangeFile, chain: &Chain) -> Result<Option<ReadEnd>> {
        match self.reading.step()? {
            Step::Batch(header) if file.format == Format::Raw => {
                let skip = self.skip.min(header.bytes);
                self.skip -= skip;
                self.raw = (skip < header.bytes).then_some(skip);
            }
            Step::Batch(_) => {
                return match self.reading.cursor() {
                    Some(Err(reason)) => self.give_up(file, chain, &reason),
                    cursor => {
                        self.records = cursor.and_then(Result::ok);
                        Ok(None)
                    }
                };
            }
            Step::Damage(stretch) => return self.damage(file, chain, stretch),
            Step::End => return Ok(Some(ReadEnd::Complete)),
        }
        Ok(None)
    }

    /// The rest of the current batch is unreadable.
    fn give_up(
        &mut self,
        file: &RangeFile,
        chain: &Chain,
        reason: &FormatError,
    ) -> Result<Option<ReadEnd>> {
        self.records = None;
        let first_offset = self.reading.first_unreadable().unwrap_or_default();
        match self.reading.give_up(first_offset, reason) {
            Some(stretch) => self.damage(file, chain, stretch),
            None => Ok(None),
        }
    }

    /// A stretch that was counted is one byte, or none; one that was not is an error of its own.
    fn damage(
        &mut self,
        file: &RangeFile,
        chain: &Chain,
        stretch: Stretch,
    ) -> Result<Option<ReadEnd>> {
        let Some(piece) = chain.piece(self.reading.segment_number()) else { return Ok(None) };
        let (begins, counted) = {
            let extents = lock(&piece.extents);
            let begins = extents.damage.iter().any(|(known, _)| known.start == stretch.start);
            let within = |known: &Stretch| known.start <= stretch.start && stretch.end <= known.end;
            (begins, extents.damage.iter().any(|(known, _)| within(known)))
        };
        if !counted {
            return Err(stretch.error());
        }
        if !begins || file.log.shared().options.damage == DamagePolicy::Skip {
            return Ok(None);
        }
        if self.skip > 0 {
            self.skip -= 1;
            return Ok(None);
        }
        Ok(Some(ReadEnd::Damage(stretch)))
    }

    /// Shows records of the current batch; `Some` when an unreadable byte comes behind them.
    fn render(
        &mut self,
        file: &RangeFile,
        chain: &Chain,
        target: usize,
        out: &mut Vec<u8>,
    ) -> Result<Option<ReadEnd>> {
        let Some((header, payload)) = self.reading.records() else {
            self.records = None;
            return Ok(None);
        };
        let Some(cursor) = &mut self.records else { return Ok(None) };
        let (place, format) = (file.place(), file.format);
        let skip = &mut self.skip;
        let shown = cursor.show_while(header, payload, |record| {
            if *skip == 0 {
                render::render(format, &place, header, record, out);
            } else {
                *skip = render_behind(*skip, format, &place, header, record, out);
            }
            out.len() < target
        });
        match shown {
            Ok(true) => {}
            Ok(false) => self.records = None,
            Err(reason) => return self.give_up(file, chain, &reason),
        }
        Ok(None)
    }

    fn copy(&mut self, target: usize, out: &mut Vec<u8>) -> Result<()> {
        let Some(given) = self.raw else { return Ok(()) };
        let begin = out.len();
        self.reading.copy_raw(given, target - begin, out)?;
        let copied = (out.len() - begin) as u64;
        let bytes = self.reading.batch_bytes();
        if copied == 0 && given < bytes {
            return Err(Error::Interrupted);
        }
        self.raw = (given + copied < bytes).then_some(given + copied);
        Ok(())
    }
}

/// Renders what lies behind the first `skip` bytes of a record; how many are left to be skipped.
#[cold]
fn render_behind(
    skip: u64,
    format: Format,
    place: &Place<'_>,
    header: &BatchHeader,
    record: &Record<'_>,
    out: &mut Vec<u8>,
) -> u64 {
    let bytes = render::rendered_bytes(format, place, header, record) as u64;
    if skip >= bytes {
        return skip - bytes;
    }
    let begin = out.len();
    render::render(format, place, header, record, out);
    out.drain(begin..begin + usize::try_from(skip).unwrap_or(0));
    0
}

impl Format {
    /// The number under which the engine keeps the sizes of this format: lines and NUL-terminated
    /// values are of the same length.
    pub const fn class(self) -> u8 {
        match self {
            Format::Lines | Format::Nul => 0,
            Format::Tsv => 1,
            Format::Jsonl => 2,
            Format::Raw => 3,
        }
    }
}

fn wanted(format: Format) -> Wanted {
    match format {
        Format::Raw => Wanted::All,
        Format::Lines | Format::Nul | Format::Tsv | Format::Jsonl => Wanted::Data,
    }
}

/// A file that was promised `old` never gets shorter, whatever became of the segment.
fn keep_promise(chain: &mut Chain, old: Piece) {
    match chain.pieces.iter_mut().find(|piece| piece.before == old.before) {
        Some(new) if new.segment.log.file.id == old.segment.log.file.id => {
            if new.bytes < old.bytes {
                let lost = old.bytes - new.bytes;
                new.bytes = old.bytes;
                let from = new.before;
                chain.pieces.iter_mut().filter(|p| p.before > from).for_each(|p| p.before += lost);
            }
        }
        _ => {
            let bytes = old.bytes;
            let place = chain.pieces.partition_point(|piece| piece.before < old.before);
            chain.pieces[place..].iter_mut().for_each(|piece| piece.before += bytes);
            chain.pieces.insert(place, old);
        }
    }
}

fn lock(extents: &Mutex<Extents>) -> std::sync::MutexGuard<'_, Extents> {
    extents.lock().unwrap_or_else(PoisonError::into_inner)
}
