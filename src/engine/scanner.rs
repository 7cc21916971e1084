//! One segment read from some batch on, every batch verified: the checksum, and what the checksum
//! does not cover (base offset, length, magic) against the neighbours. Where the bytes are wrong it
//! finds the next believable batch and says what lies between; where they stop it says how many
//! are left over. Everyone who reads more than one batch reads through this.

use std::fmt;
use std::sync::Arc;

use crate::engine::damage::{Oddity, Stretch};
use crate::engine::disk::Disk;
use crate::engine::resync;
use crate::engine::segment::Segment;
use crate::engine::window::Window;
use crate::error::{Error, Result};
use crate::format::batch::{BatchHeader, HEADER_BYTES, Magic};
use crate::format::{codec, legacy};
use crate::units::{LeaderEpoch, Offset, Position};

/// Larger batches are checked in pieces of this size and not kept.
pub const SMALL_BATCH_BYTES: u64 = 4 << 20;
const PIECE: usize = 1 << 20;
/// A legacy wrapper that expands to more is not looked into for its first offset.
const MOST_WRAPPED_BYTES: usize = 4 << 20;
/// Bytes that are read before the question whether to give up is asked again.
const BYTES_PER_QUESTION: u64 = 4 << 20;

/// Says whether a long work should be given up.
#[derive(Clone)]
pub struct Interrupted(Arc<dyn Fn() -> bool + Send + Sync>);

impl Interrupted {
    /// As `asked` says; it may be called every millisecond.
    pub fn when(asked: impl Fn() -> bool + Send + Sync + 'static) -> Interrupted {
        Interrupted(Arc::new(asked))
    }

    /// Should the work be given up?
    pub fn asked(&self) -> bool {
        (self.0)()
    }
}

impl fmt::Debug for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Interrupted")
    }
}

/// What stands at a place of a segment.
#[derive(Clone, Debug)]
pub enum Item {
    /// A batch with the right checksum, in its place.
    Batch(BatchHeader, Position),
    /// Bytes that are wrong.
    Damage(Stretch),
    /// The batches end here; `torn` bytes follow that are none.
    End {
        /// Where the batches end.
        position: Position,
        /// Bytes behind them.
        torn: u64,
    },
}

/// A reading of one segment.
pub struct Scanner {
    disk: Arc<dyn Disk>,
    segment: Arc<Segment>,
    window: Window,
    max_batch_bytes: u64,
    position: Position,
    expected: Offset,
    /// The header behind the last batch, which was looked at to judge that one.
    ahead: Option<(Position, BatchHeader)>,
    /// The last verdict could not tell which of two batches lies about its offsets.
    distrusted: Option<Position>,
    /// Where legacy wrappers begin, and their first offsets: those that were looked at last.
    wrappers: [Option<(Position, First)>; 3],
    epochs: EpochWatch,
    /// Says when to give up.
    interrupted: Option<Interrupted>,
    bytes_since_asked: u64,
}

impl fmt::Debug for Scanner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.segment.log.path();
        write!(f, "Scanner({}, position {})", path.display(), self.position)
    }
}

/// The first offset in a batch, or why the offset that it gives itself is wrong.
pub type First = std::result::Result<Offset, String>;

/// How a header looks beside its neighbours.
enum Verdict {
    Good,
    Bad(String),
}

impl Scanner {
    /// A reading from the start of the segment.
    pub fn new(
        disk: Arc<dyn Disk>,
        segment: Arc<Segment>,
        chunk: usize,
        max_batch: u64,
    ) -> Scanner {
        let expected = segment.base_offset;
        Scanner {
            disk,
            segment,
            window: Window::growing(chunk),
            max_batch_bytes: max_batch,
            position: Position::START,
            expected,
            ahead: None,
            distrusted: None,
            wrappers: [const { None }; 3],
            epochs: EpochWatch::default(),
            interrupted: None,
            bytes_since_asked: 0,
        }
    }

    /// Goes on at `position`, where a batch begins whose offsets are not below `expected`.
    pub fn seek(&mut self, position: Position, expected: Offset) {
        self.position = position;
        self.expected = expected;
        self.ahead = None;
        self.distrusted = None;
        self.wrappers = [const { None }; 3];
        self.epochs = EpochWatch::default();
    }

    /// Asks `interrupted` now and then, and gives up with `Error::Interrupted` when it says so.
    #[must_use]
    pub fn interruptible(mut self, interrupted: Option<Interrupted>) -> Scanner {
        self.interrupted = interrupted;
        self
    }

    /// Sees more of the same segment, which has grown.
    pub fn grow(&mut self, segment: &Arc<Segment>) {
        self.ahead = None;
        self.window.forget_from(Position::new(self.segment.valid_bytes));
        self.segment = Arc::clone(segment);
    }

    /// The segment that is read.
    pub fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }

    /// Where the next item begins.
    pub fn position(&self) -> Position {
        self.position
    }

    /// The least offset that the next batch may hold.
    pub fn expected(&self) -> Offset {
        self.expected
    }

    /// A batch seen since the last call that is served although something outside its checksum is
    /// wrong.
    pub fn take_oddity(&mut self) -> Option<Oddity> {
        self.epochs.odd.take()
    }

    /// The whole batch that [`Self::step`] returned last, when it is small enough to be kept.
    #[inline]
    pub fn batch_bytes(&self, header: &BatchHeader, position: Position) -> Option<&[u8]> {
        self.window.held(position).get(..usize::try_from(header.bytes).ok()?)
    }

    /// The next item. After `End` it is `End` again.
    pub fn step(&mut self) -> Result<Item> {
        let left = self.segment.valid_bytes.saturating_sub(self.position.get());
        if left == 0 {
            return Ok(Item::End { position: self.position, torn: 0 });
        }
        let position = self.position;
        let header = match self.read_header(position)? {
            Ok(header) => header,
            Err(reason) => return self.step_over(position, None, reason),
        };
        match self.judge(&header, position)? {
            Verdict::Good => {}
            Verdict::Bad(reason) => return self.step_over(position, Some(&header), reason),
        }
        if header.base_offset >= self.segment.limit {
            // The rest belongs to offsets that the next segment answers for (contract 6.5).
            return Ok(Item::End { position, torn: 0 });
        }
        self.bytes_since_asked += header.bytes;
        if self.bytes_since_asked > BYTES_PER_QUESTION {
            self.bytes_since_asked = 0;
            self.give_up_when_interrupted()?;
        }
        self.position = position.plus(header.bytes);
        self.expected = header.last_offset.next();
        self.epochs.see(&self.segment, &header, position);
        Ok(Item::Batch(header, position))
    }

    /// The header at `position`, if it is one and its batch is all there.
    fn read_header(&mut self, position: Position) -> Result<Result<BatchHeader, String>> {
        if let Some((_, ahead)) = self.ahead.take_if(|(at, _)| *at == position) {
            return Ok(Ok(ahead));
        }
        let left = self.segment.valid_bytes.saturating_sub(position.get());
        let wanted = usize::try_from(left).unwrap_or(HEADER_BYTES).min(HEADER_BYTES);
        let bytes = self.window.fill(&*self.disk, &self.segment.log.file, position, wanted)?;
        let header = match BatchHeader::parse(bytes) {
            Ok(header) => header,
            Err(e) => return Ok(Err(e.to_string())),
        };
        Ok(if header.bytes > left {
            Err(format!("the batch has {} bytes, {left} are there", header.bytes))
        } else {
            Ok(header)
        })
    }

    /// Is the batch at `position` what its header says, and does it fit between its neighbours?
    fn judge(&mut self, header: &BatchHeader, position: Position) -> Result<Verdict> {
        if header.bytes > self.max_batch_bytes {
            let most = self.max_batch_bytes;
            return Ok(Verdict::Bad(format!("a batch of {} bytes, allowed {most}", header.bytes)));
        }
        let below = |first: Offset, expected: Offset| {
            Verdict::Bad(format!("base offset {first} below the expected {expected}"))
        };
        if header.base_offset < self.expected {
            return Ok(below(header.base_offset, self.expected));
        }
        let crc = self.checksum(header, position)?;
        if crc != header.crc {
            let reason = format!("checksum {crc:#010x}, expected {:#010x}", header.crc);
            return Ok(Verdict::Bad(reason));
        }
        let first = match self.first_offset(header, position)? {
            Ok(first) if first < self.expected => return Ok(below(first, self.expected)),
            Ok(first) => first,
            Err(reason) => return Ok(Verdict::Bad(reason)),
        };
        if self.distrusted == Some(position) {
            return Ok(Verdict::Bad(format!("base offset {first} fits neither neighbour")));
        }
        self.judge_offsets(header, first, position)
    }

    /// The first offset in the batch at `position`, or why its own offset is wrong. Of a legacy
    /// wrapper only the expanded value tells; where that cannot be had it is its last offset.
    #[inline]
    fn first_offset(&mut self, header: &BatchHeader, at: Position) -> Result<First> {
        if header.is_legacy_wrapper() && header.bytes <= SMALL_BATCH_BYTES {
            return self.first_in_wrapper(header, at);
        }
        Ok(Ok(header.base_offset))
    }

    /// The same of a batch whose checksum is verified first.
    pub fn verified_first_offset(&mut self, header: &BatchHeader, at: Position) -> Result<First> {
        if header.is_legacy_wrapper() && self.checksum(header, at)? != header.crc {
            return Ok(Err("checksum".to_owned()));
        }
        self.first_offset(header, at)
    }

    fn first_in_wrapper(&mut self, header: &BatchHeader, position: Position) -> Result<First> {
        if let Some((_, first)) = self.wrappers.iter().flatten().find(|(at, _)| *at == position) {
            return Ok(first.clone());
        }
        let bytes = usize::try_from(header.bytes).unwrap_or(usize::MAX);
        let file = &self.segment.log.file;
        let held = self.window.fill(&*self.disk, file, position, bytes + HEADER_BYTES)?;
        let value = held.get(..bytes).and_then(|raw| legacy::wrapped_value(header, raw).ok());
        let mut expanded = Vec::new();
        let (codec, magic) = (header.codec, header.magic);
        let is_expanded = value.is_some_and(|value| {
            codec::decompress(codec, magic, value, &mut expanded, MOST_WRAPPED_BYTES).is_ok()
        });
        let first = if is_expanded {
            legacy::first_offset(header, &expanded).map_err(|e| e.to_string())
        } else {
            Ok(header.base_offset)
        };
        self.wrappers.rotate_right(1);
        self.wrappers[0] = Some((position, first.clone()));
        Ok(first)
    }

    /// The base offset is outside the checksum: it must fit between the batch before and the valid
    /// batch behind. Where two valid batches contradict each other, the one that does not join its
    /// neighbours is wrong; when that does not tell, both are.
    fn judge_offsets(
        &mut self,
        header: &BatchHeader,
        first: Offset,
        position: Position,
    ) -> Result<Verdict> {
        let joined = first == self.expected;
        let next_position = position.plus(header.bytes);
        let next = match self.read_header(next_position)? {
            Ok(next) if next.bytes <= self.max_batch_bytes => next,
            _ => return Ok(self.judge_last(header, first)),
        };
        let next_first = self.first_offset(&next, next_position)?.unwrap_or(next.base_offset);
        if next_first > header.last_offset {
            if next.is_legacy_wrapper() {
                self.window_back(position, header)?;
            }
            self.ahead = Some((next_position, next));
            return Ok(Verdict::Good);
        }
        if self.hides_next(header, first, &next, next_first, next_position)? {
            self.window_back(position, header)?;
            let last = header.last_offset;
            return Ok(Verdict::Bad(format!(
                "offsets {first} to {last}, but the batch behind it begins at {next_first}"
            )));
        }
        // Without the gap before this one the next would join it: then this base offset is wrong,
        // whatever else the next one is.
        let span = header.last_offset.get() - first.get() + 1;
        let without_gap = Some(next_first) == self.expected.checked_add(span);
        let next_is_wrong = joined
            || next_first < self.expected
            || !without_gap && self.checksum(&next, next_position)? != next.crc;
        if next_is_wrong {
            self.window_back(position, header)?;
            return Ok(Verdict::Good);
        }
        // The next one is believed when it joins the batch before, with this one in between or
        // without it, or the batch behind.
        let joins_before = next_first == self.expected || without_gap;
        let end = self.segment.plausible_end();
        let is_absurd = header.last_offset >= end && next.last_offset < end;
        let after_position = next_position.plus(next.bytes);
        let joins_after = match self.read_header(after_position)? {
            Ok(after) => self.first_offset(&after, after_position)? == Ok(next.last_offset.next()),
            Err(_) => false,
        };
        if !joins_before && !joins_after && !is_absurd {
            self.distrusted = Some(next_position);
        }
        Ok(Verdict::Bad(format!(
            "base offset {first}, but the batch behind it begins at {next_first}"
        )))
    }

    /// Does a batch with fewer records than offsets claim those of valid batches behind it? The
    /// next one has a witness in the one behind itself, or else begins where the records of this
    /// one end; without one its own base offset, which no checksum covers, is doubted first.
    fn hides_next(
        &mut self,
        header: &BatchHeader,
        first: Offset,
        next: &BatchHeader,
        next_first: Offset,
        next_position: Position,
    ) -> Result<bool> {
        let count = header.records_count;
        let is_sparse = header.magic == Magic::V2
            && u64::from(count) <= header.last_offset.distance_from(first);
        let after_records = first.checked_add(i64::from(count));
        if !is_sparse || after_records.is_none_or(|after| next_first < after) {
            return Ok(false);
        }
        let after_position = next_position.plus(next.bytes);
        let has_witness = match self.read_header(after_position)? {
            Ok(after) => self.first_offset(&after, after_position)? == Ok(next.last_offset.next()),
            Err(_) => after_records == Some(next_first) && next.last_offset <= header.last_offset,
        };
        Ok(has_witness && self.checksum(next, next_position)? == next.crc)
    }

    /// Judges the offsets of a batch that none follows.
    fn judge_last(&self, header: &BatchHeader, first: Offset) -> Verdict {
        let end = self.segment.plausible_end();
        if first == self.expected {
            return Verdict::Good;
        }
        if let Some(reason) = self.gap_fault(header, first) {
            return Verdict::Bad(reason);
        }
        if header.last_offset < end {
            return Verdict::Good;
        }
        let last = header.last_offset;
        Verdict::Bad(format!("offsets {first} to {last}, expected {} to {end}", self.expected))
    }

    /// What is wrong with a batch that leaves a gap before it, as a replica's may: where the
    /// indexes say that the segment ends with the offset that it would end with if there were
    /// none, its base offset is wrong.
    fn gap_fault(&self, header: &BatchHeader, first: Offset) -> Option<String> {
        let span = header.last_offset.get() - first.get();
        let without_gap = self.expected.checked_add(span);
        if without_gap.is_some() && without_gap == self.segment.promised_last {
            let expected = self.expected;
            return Some(format!(
                "base offset {first}, but the indexes end with a batch that begins at {expected}"
            ));
        }
        None
    }

    /// Looking ahead may have moved the window past a batch that is about to be lent.
    fn window_back(&mut self, position: Position, header: &BatchHeader) -> Result<()> {
        if header.bytes <= SMALL_BATCH_BYTES {
            let bytes = usize::try_from(header.bytes).unwrap_or(usize::MAX);
            self.window.fill(&*self.disk, &self.segment.log.file, position, bytes)?;
        }
        Ok(())
    }

    /// The checksum of the batch at `position`, as its bytes give it.
    fn checksum(&mut self, header: &BatchHeader, position: Position) -> Result<u32> {
        if header.bytes <= SMALL_BATCH_BYTES {
            // One more header behind it, so that the look ahead finds it here.
            let bytes = usize::try_from(header.bytes).unwrap_or(0);
            let file = &self.segment.log.file;
            let held = self.window.fill(&*self.disk, file, position, bytes + HEADER_BYTES)?;
            return Ok(header.checksum(held.get(..bytes).unwrap_or(held)));
        }
        let end = position.get() + header.bytes;
        let mut at = position.plus(header.checksum_start() as u64);
        let mut crc = header.checksum_initial();
        while at.get() < end {
            self.give_up_when_interrupted()?;
            let piece = usize::try_from(end - at.get()).unwrap_or(PIECE).min(PIECE);
            let held = self.window.fill(&*self.disk, &self.segment.log.file, at, piece)?;
            if held.is_empty() {
                break;
            }
            crc = header.checksum_append(crc, held);
            at = at.plus(held.len() as u64);
        }
        Ok(crc)
    }

    /// Finds where good batches go on behind the bad one at `start`.
    fn step_over(
        &mut self,
        start: Position,
        bad: Option<&BatchHeader>,
        reason: String,
    ) -> Result<Item> {
        let mut found = self.hop(start, bad)?;
        // A wrong length may lead to a batch far behind by chance.
        let joins = match (&found, bad) {
            (Some((position, next)), Some(bad)) => {
                self.first_offset(next, *position)? == Ok(bad.last_offset.next())
            }
            _ => false,
        };
        if !joins && let Some(nearer) = self.search(start)? {
            let is_nearer = found.as_ref().is_none_or(|(position, _)| nearer.0 < *position);
            found = if is_nearer { Some(nearer) } else { found };
        }
        match found {
            Some((position, next)) => {
                let first = self.first_offset(&next, position)?.unwrap_or(next.base_offset);
                Ok(self.damage(start, position, first, bad, reason))
            }
            None => Ok(self.tail(start, reason)),
        }
    }

    /// Follows the length fields of bad batches up to a valid one, which is cheaper than a search
    /// and is not misled by batches inside values.
    fn hop(
        &mut self,
        start: Position,
        bad: Option<&BatchHeader>,
    ) -> Result<Option<(Position, BatchHeader)>> {
        let Some(bad) = bad else { return Ok(None) };
        let mut position = start.plus(bad.bytes);
        loop {
            self.give_up_when_interrupted()?;
            let Ok(header) = self.read_header(position)? else { return Ok(None) };
            if self.is_believable(&header, position)? {
                return Ok(Some((position, header)));
            }
            position = position.plus(header.bytes);
        }
    }

    /// Tries every byte behind `start`.
    fn search(&mut self, start: Position) -> Result<Option<(Position, BatchHeader)>> {
        let mut budget = resync::Budget::for_bytes(self.segment.valid_bytes);
        let mut from = start.plus(1);
        loop {
            self.give_up_when_interrupted()?;
            let bounds = self.expected..self.segment.plausible_end();
            let next = resync::next_candidate(
                &*self.disk,
                &self.segment,
                &mut self.window,
                from,
                &bounds,
            )?;
            let position = match next {
                resync::Candidate::At(position) => position,
                resync::Candidate::NothingUpTo(position) => {
                    from = position;
                    continue;
                }
                resync::Candidate::End => return Ok(None),
            };
            if let Ok(header) = self.read_header(position)?
                && budget.spend(header.bytes)
                && self.is_believable(&header, position)?
            {
                return Ok(Some((position, header)));
            }
            if budget.is_empty() {
                return Ok(None);
            }
            from = position.plus(1);
        }
    }

    /// Is this a batch that could follow damage: offsets in order, checksum right, and not one that
    /// is as doubtful as the bytes before it?
    fn is_believable(&mut self, header: &BatchHeader, position: Position) -> Result<bool> {
        let in_bounds = self.distrusted != Some(position)
            && header.bytes <= self.max_batch_bytes
            && header.base_offset >= self.expected
            && header.last_offset < self.segment.plausible_end();
        if !in_bounds || self.checksum(header, position)? != header.crc {
            return Ok(false);
        }
        let Ok(first) = self.first_offset(header, position)? else { return Ok(false) };
        if first == self.expected {
            return Ok(true);
        }
        let is_beyond = self.segment.known_end.is_some_and(|end| header.last_offset >= end);
        if first < self.expected || is_beyond || self.gap_fault(header, first).is_some() {
            return Ok(false);
        }
        // Two valid batches behind it that join each other are believed more than its gap.
        let Ok(next) = self.read_header(position.plus(header.bytes))? else { return Ok(true) };
        let contradicts =
            next.base_offset >= self.expected && next.base_offset <= header.last_offset;
        if !contradicts || next.magic != Magic::V2 {
            return Ok(true);
        }
        let next_position = position.plus(header.bytes);
        let Ok(after) = self.read_header(next_position.plus(next.bytes))? else { return Ok(true) };
        let is_joined = after.base_offset == next.last_offset.next();
        Ok(!is_joined || self.checksum(&next, next_position)? != next.crc)
    }

    /// The stretch from `start` to the valid batch at `end`, which begins with offset `next`;
    /// reading goes on there.
    fn damage(
        &mut self,
        start: Position,
        end: Position,
        next: Offset,
        bad: Option<&BatchHeader>,
        reason: String,
    ) -> Item {
        let claims = bad.filter(|bad| {
            let counted = bad.last_offset.distance_from(bad.base_offset) + 1;
            bad.magic == Magic::V2
                && start.plus(bad.bytes) == end
                && bad.base_offset >= self.expected
                && bad.last_offset < next
                && u64::from(bad.records_count) == counted
        });
        let (first, last) = match claims {
            Some(bad) => (bad.base_offset, bad.last_offset.next()),
            None => (self.expected, next),
        };
        self.position = end;
        self.expected = next.max(self.expected);
        self.epochs = EpochWatch::default();
        Item::Damage(self.stretch(start, end, first, last, reason))
    }

    /// Nothing believable follows `start`: a torn tail, unless a closed segment then lacks offsets.
    fn tail(&mut self, start: Position, reason: String) -> Item {
        let size = self.segment.valid_bytes;
        if self.window.is_refused(start) {
            // Nobody knows that the bytes stop here.
            let reason = "the disk cannot read what lies here".to_owned();
            let known_end = if self.segment.active { self.expected } else { self.segment.limit };
            let (first, end) = (self.expected, known_end.max(self.expected));
            self.position = Position::new(size);
            self.expected = end;
            return Item::Damage(self.stretch(start, Position::new(size), first, end, reason));
        }
        if self.segment.active || self.expected >= self.segment.limit {
            return Item::End { position: start, torn: size - start.get() };
        }
        let (first, last) = (self.expected, self.segment.limit);
        self.position = Position::new(size);
        self.expected = self.segment.limit;
        Item::Damage(self.stretch(start, Position::new(size), first, last, reason))
    }

    fn stretch(
        &self,
        start: Position,
        end: Position,
        first_offset: Offset,
        end_offset: Offset,
        reason: String,
    ) -> Stretch {
        let path = self.segment.log.path().to_path_buf();
        Stretch { path, start, end, first_offset, end_offset, reason }
    }

    fn give_up_when_interrupted(&self) -> Result<()> {
        match &self.interrupted {
            Some(asked) if asked.asked() => Err(Error::Interrupted),
            _ => Ok(()),
        }
    }
}

/// Leader epochs never go down in a log; the batch that breaks this is odd, though readable.
#[derive(Debug, Default)]
struct EpochWatch {
    before: Option<LeaderEpoch>,
    last: Option<(LeaderEpoch, Oddity)>,
    odd: Option<Oddity>,
}

impl EpochWatch {
    #[inline]
    fn see(&mut self, segment: &Segment, header: &BatchHeader, position: Position) {
        let Some(epoch) = header.leader_epoch else { return };
        if self.last.as_ref().is_some_and(|(last, _)| *last == epoch) {
            return;
        }
        self.change(segment, header, position, epoch);
    }

    fn change(
        &mut self,
        segment: &Segment,
        header: &BatchHeader,
        at: Position,
        epoch: LeaderEpoch,
    ) {
        let described = |reason: String| Oddity {
            path: segment.log.path().to_path_buf(),
            position: at,
            bytes: header.bytes,
            offsets: (header.base_offset, header.last_offset),
            reason,
        };
        if let Some((last, oddity)) = self.last.take() {
            if epoch >= last {
                self.before = Some(last);
            } else if self.before.is_none_or(|before| before <= epoch) {
                let reason = format!("leader epoch {last}, followed by {epoch}");
                self.odd = Some(Oddity { reason, ..oddity });
            } else {
                self.odd = Some(described(format!("leader epoch {epoch}, preceded by {last}")));
                self.last = Some((last, oddity));
                return;
            }
        }
        self.last = Some((epoch, described(String::new())));
    }
}
