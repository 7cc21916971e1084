//! Opening a log: which segments it has, and where it ends.

use std::path::Path;
use std::sync::Arc;

use crate::engine::damage::Stretch;
use crate::engine::disk::{Disk, Facts, read_small};
use crate::engine::log::{LogState, SCAN_BYTES, Shared, TornTail};
use crate::engine::options::LogStart;
use crate::engine::scanner::Item;
use crate::engine::segment::{File, Segment};
use crate::engine::settle::settle;
use crate::engine::window::Window;
use crate::error::Result;
use crate::format::batch::{BatchHeader, HEADER_BYTES};
use crate::format::checkpoint::{self, EpochStart, LEADER_EPOCHS};
use crate::format::index::{OffsetIndex, TimeIndex, used_entries};
use crate::format::name::TopicPartition;
use crate::units::{Offset, Position};

/// No index that a broker writes is larger than its `segment.index.bytes`, an i32.
const MOST_INDEX_BYTES: u64 = 1 << 28;

/// Reads the directory of a log.
pub fn load(shared: &Shared, name: &TopicPartition, path: &Path) -> Result<LogState> {
    load_up_to(shared, name, path, find_end)
}

/// The same of a log that is about to be checked to its end: the active segment counts as long as
/// its file, and the log end is not known.
pub fn load_unmeasured(shared: &Shared, name: &TopicPartition, path: &Path) -> Result<LogState> {
    load_up_to(shared, name, path, |_, active| {
        Ok(End::at(Position::new(active.log.bytes()), Offset::MAX))
    })
}

fn load_up_to(
    shared: &Shared,
    name: &TopicPartition,
    path: &Path,
    find_end_of_active: impl FnOnce(&Shared, &Arc<Segment>) -> Result<End>,
) -> Result<LogState> {
    let disk = &*shared.disk;
    let directory = disk.facts(path)?;
    let names = disk.list(path)?;
    let settled = settle(disk, path, &names, |swap| {
        let swap = Arc::new(swap);
        find_end(shared, &swap).map(|end| end.offset)
    })?;
    let mut segments: Vec<Arc<Segment>> = settled.segments.into_iter().map(Arc::new).collect();
    let mut end = End::at(Position::START, shared.checkpoints.log_start(name).unwrap_or_default());
    if let Some(active) = segments.last_mut() {
        let promised = promised_last(shared, active);
        let measured = Arc::make_mut(active);
        measured.promised_last = promised;
        // Where this process writes, what was read of the checkpoints is old.
        let writes = shared.access.as_ref().is_some_and(|access| access.has_begun());
        let at_rest = shared.checkpoints.at_rest() && !writes;
        measured.known_end = shared.checkpoints.recovery_point(name).filter(|_| at_rest);
        end = find_end_of_active(shared, active)?;
        Arc::make_mut(active).valid_bytes = end.position.get();
    }
    let mut state = LogState {
        disk_start: segments.first().map_or(end.offset, |first| first.base_offset),
        torn_tail: torn_tail(segments.last(), &end),
        last_batch: end.last,
        segments,
        log_start: Offset::ZERO,
        log_end: end.offset,
        high_watermark: end.offset,
        high_watermark_known: false,
        at_rest: false,
        checkpoints: 0,
        leader_epochs: Vec::new(),
        leftovers: settled.leftovers,
        shadowed: settled.shadowed,
        modified: directory.modified,
        directory,
        names,
        number: LogState::next_number(),
        live: None,
    };
    state.modified = newest_change(&state);
    set_offsets(shared, name, &mut state);
    state.leader_epochs = leader_epochs(disk, path, &state);
    Ok(state)
}

/// The log as it is now, or `None` when nothing changed since `old`.
pub fn refresh(
    shared: &Shared,
    name: &TopicPartition,
    path: &Path,
    old: &LogState,
) -> Result<Option<LogState>> {
    let disk = &*shared.disk;
    let checkpoints = shared.checkpoints.generation();
    let directory = disk.facts(path)?;
    if directory.id != old.directory.id || directory.modified != old.directory.modified {
        return load(shared, name, path).map(Some);
    }
    let grown = match old.segments.last() {
        Some(active) => {
            let now = disk.facts(active.log.path())?;
            if now.id != active.log.file.id || now.bytes < active.log.bytes() {
                return load(shared, name, path).map(Some);
            }
            let grown = (now != active.log.facts).then_some(now);
            // Cut and written again, it may have got longer than before.
            if let (Some(_), Some(last)) = (grown, &old.last_batch)
                && !last.is_there(disk, active)?
            {
                return load(shared, name, path).map(Some);
            }
            grown
        }
        None => None,
    };
    if grown.is_none() && checkpoints == old.checkpoints {
        return Ok(None);
    }
    let mut new = LogState { number: LogState::next_number(), ..old.clone() };
    if let (Some(now), Some(active)) = (grown, new.segments.last_mut()) {
        let end = follow(shared, active, old.log_end, now)?;
        new.log_end = end.offset;
        new.last_batch = end.last.clone().or(new.last_batch);
        new.torn_tail = torn_tail(new.segments.last(), &end);
        new.modified = newest_change(&new);
    }
    set_offsets(shared, name, &mut new);
    Ok(Some(new))
}

/// Reads what the active segment got since it was looked at.
fn follow(shared: &Shared, active: &mut Arc<Segment>, log_end: Offset, now: Facts) -> Result<End> {
    let from = Position::new(active.valid_bytes);
    let grown = Arc::make_mut(active);
    grown.log.facts = now;
    grown.valid_bytes = now.bytes;
    (grown.promised_last, grown.known_end) = (None, None);
    let mut scanner = shared.scanner(active, SCAN_BYTES);
    scanner.seek(from, log_end);
    let mut end = End::at(from, log_end);
    end.scan(scanner)?;
    Arc::make_mut(active).valid_bytes = end.position.get();
    Ok(end)
}

fn torn_tail(active: Option<&Arc<Segment>>, end: &End) -> Option<TornTail> {
    let path = active?.log.path().to_path_buf();
    (end.torn > 0).then_some(TornTail { path, position: end.position, bytes: end.torn })
}

fn newest_change(state: &LogState) -> (i64, u32) {
    let files = state.segments.iter().flat_map(|segment| {
        let indexes = segment.index.iter().chain(&segment.time_index);
        indexes.chain(std::iter::once(&segment.log)).map(|file| file.facts.modified)
    });
    files.max().unwrap_or(state.directory.modified)
}

/// Log start and high watermark, from the checkpoints and within what is there.
fn set_offsets(shared: &Shared, name: &TopicPartition, state: &mut LogState) {
    let checkpointed = match shared.options.log_start {
        LogStart::Checkpoint => shared.checkpoints.log_start(name).unwrap_or_default(),
        LogStart::Disk => Offset::ZERO,
    };
    state.log_start = state.disk_start.max(checkpointed);
    let high_watermark = shared.checkpoints.high_watermark(name);
    state.high_watermark_known = high_watermark.is_some();
    state.checkpoints = shared.checkpoints.generation();
    state.at_rest = shared.checkpoints.at_rest();
    let most = state.log_end.max(state.log_start);
    state.high_watermark =
        high_watermark.map_or(state.log_end, |mark| mark.clamp(state.log_start, most));
}

/// A batch, and where it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Where it began.
    pub position: Position,
    /// Its header, the checksum included.
    pub header: BatchHeader,
}

impl Seen {
    /// Is it still in its place? Where a log was truncated and written again, another one is.
    pub fn is_there(&self, disk: &dyn Disk, segment: &Segment) -> Result<bool> {
        let mut window = Window::new(HEADER_BYTES);
        let bytes = window.fill(disk, &segment.log.file, self.position, HEADER_BYTES)?;
        Ok(BatchHeader::parse(bytes).is_ok_and(|header| header == self.header))
    }
}

/// Where a log ends.
#[derive(Clone, Debug)]
struct End {
    position: Position,
    offset: Offset,
    torn: u64,
    last: Option<Seen>,
}

impl End {
    const fn at(position: Position, offset: Offset) -> End {
        End { position, offset, torn: 0, last: None }
    }

    /// Moves to the end of what `scanner` reads; whether any batch was there.
    fn scan(&mut self, mut scanner: crate::engine::scanner::Scanner) -> Result<bool> {
        let mut any = false;
        loop {
            match scanner.step()? {
                Item::Batch(header, position) => {
                    any = true;
                    self.last = Some(Seen { position, header });
                }
                Item::Damage(_) => {}
                Item::End { position, torn } => {
                    self.position = position;
                    self.offset = scanner.expected();
                    self.torn = torn;
                    return Ok(any);
                }
            }
        }
    }
}

/// The end of the active segment: the batches are checked from the last index entry on that keeps
/// its promise, or from an earlier one when no valid batch follows that one.
fn find_end(shared: &Shared, segment: &Arc<Segment>) -> Result<End> {
    let bytes = shared.offset_index(segment);
    let index = OffsetIndex::new(segment.base_offset, &bytes);
    let mut window = Window::new(HEADER_BYTES);
    let mut back = 1;
    while let Some(i) = index.entries_count().checked_sub(back) {
        back *= 2;
        let Some(entry) = index.get(i) else { continue };
        let promise = promised(&*shared.disk, &mut window, segment, entry.position, entry.offset)?;
        let Some(header) = promise else { continue };
        let mut scanner = shared.scanner(segment, SCAN_BYTES);
        let first = shared.first_offset(segment, &header, entry.position)?;
        scanner.seek(entry.position, first);
        let mut end = End::at(entry.position, first);
        if end.scan(scanner)? {
            return Ok(end);
        }
    }
    let mut end = End::at(Position::START, segment.base_offset);
    end.scan(shared.scanner(segment, SCAN_BYTES))?;
    Ok(end)
}

/// The greatest offset that the indexes of a segment know of.
fn promised_last(shared: &Shared, segment: &Segment) -> Option<Offset> {
    let bytes = shared.offset_index(segment);
    let index = OffsetIndex::new(segment.base_offset, &bytes);
    let last = index.entries_count().checked_sub(1).and_then(|last| index.get(last));
    let by_offset = last.map(|entry| entry.offset);
    let bytes = shared.time_index(segment);
    let index = TimeIndex::new(segment.base_offset, &bytes);
    let last = index.entries_count().checked_sub(1).and_then(|last| index.get(last));
    by_offset.max(last.map(|entry| entry.offset))
}

/// The header at `position`, if it is one whose last offset is `last`, as an index entry promises.
pub fn promised(
    disk: &dyn Disk,
    window: &mut Window,
    segment: &Segment,
    position: Position,
    last: Offset,
) -> Result<Option<BatchHeader>> {
    if position.get() >= segment.valid_bytes {
        return Ok(None);
    }
    let bytes = window.fill(disk, &segment.log.file, position, HEADER_BYTES)?;
    Ok(BatchHeader::parse(bytes).ok().filter(|header| {
        header.last_offset == last
            && header.base_offset >= segment.base_offset
            && position.get() + header.bytes <= segment.valid_bytes
    }))
}

/// The entries of an index file, without the padding of an active one.
pub fn index_bytes(disk: &dyn Disk, file: &File, entry_bytes: usize) -> Vec<u8> {
    let mut bytes = match read_small(disk, file.path(), MOST_INDEX_BYTES) {
        Ok(bytes) => bytes,
        Err(e) => {
            log::warn!("{e}; read without it");
            return Vec::new();
        }
    };
    bytes.truncate(used_entries(&bytes, entry_bytes) * entry_bytes);
    bytes.shrink_to_fit();
    bytes
}

/// The epochs as a broker would load them: those that begin within the log, the first one cut off
/// at the log start.
fn leader_epochs(disk: &dyn Disk, path: &Path, state: &LogState) -> Vec<EpochStart> {
    let path = path.join(LEADER_EPOCHS);
    let epochs = match read_small(disk, &path, 1 << 24) {
        Ok(bytes) => checkpoint::parse_leader_epochs(&bytes),
        Err(_) => return Vec::new(),
    };
    let mut epochs = match epochs {
        Ok(epochs) => epochs,
        Err(e) => {
            log::warn!("{}: {e}; ignored", path.display());
            return Vec::new();
        }
    };
    epochs.retain(|entry| entry.start < state.log_end);
    let before = epochs.partition_point(|entry| entry.start <= state.log_start);
    if before > 1 {
        epochs.drain(..before - 1);
    }
    if before > 0 {
        epochs[0].start = epochs[0].start.max(state.log_start);
    }
    epochs
}

/// The damage that keeps a whole batch from being read although its checksum is right.
pub fn unreadable(
    segment: &Segment,
    position: Position,
    header: &BatchHeader,
    reason: String,
) -> Stretch {
    Stretch {
        path: segment.log.path().to_path_buf(),
        start: position,
        end: position.plus(header.bytes),
        first_offset: header.base_offset,
        end_offset: header.last_offset.next(),
        reason,
    }
}
