//! Everything read once, at the speed of the disk, by all cores (contract 6.3): what is valid, what
//! is wrong, what is lost, and what the files beside the log say that is not so.
//!
//! A segment is cut into parts at places where the index is right, so that several threads read
//! one; the parts are then joined. Where they do not join, the segment is read again as a whole, so
//! that an index, which is a hint, never changes the answer.

mod beside;
mod part;
mod watch;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::engine::damage::Stretch;
use crate::engine::data_dir::DataDir;
use crate::engine::facts::{Facts, IndexState, Seen, SegmentLook};
use crate::engine::find::Anchor;
use crate::engine::load::promised;
use crate::engine::log::{Log, LogState, TornTail};
use crate::engine::missing::Why;
use crate::engine::segment::Segment;
use crate::engine::soundness::{self, Looked};
use crate::engine::transactions::Transactions;
use crate::engine::window::Window;
use crate::error::Result;
use crate::format::batch::HEADER_BYTES;
use crate::format::checkpoint::EpochStart;
use crate::format::index::{AbortedTransaction, OffsetIndex, TimeIndex};
use crate::inspect::check::part::{Indexes, Part, PartRead, Reader};
use crate::units::{Offset, Position, Timestamp};

/// Bytes of a part, about: enough for a second thread to be worth its start.
const PART_BYTES: u64 = 16 << 20;
/// Partitions up to this size are read by one thread, several of them at once.
const SMALL_PARTITION_BYTES: u64 = 4 * PART_BYTES;
/// How often a partition is read again whose files went away meanwhile, as beneath a live broker.
const TRIES: usize = 4;

/// How far the work has come, for whoever shows it.
#[derive(Debug, Default)]
pub struct Progress {
    /// Bytes of segment files that were read.
    pub done: AtomicU64,
    /// Bytes of those that were found.
    pub total: AtomicU64,
}

/// What was found in one partition.
#[derive(Debug)]
pub struct Checked {
    /// What `report.json` says too, here of all bytes.
    pub facts: Facts,
    /// Segments.
    pub segments: usize,
    /// Bytes of their `.log` files.
    pub bytes: u64,
    /// Bytes in whole batches whose records can be read.
    pub valid_bytes: u64,
    /// Such batches.
    pub batches: u64,
    /// Records in them, control records included.
    pub records: u64,
    /// Offsets that are perhaps compacted away.
    pub offsets_in_holes: u64,
    /// Damage whose checksum is right, and of which some records can be read: segment files, and
    /// where it begins.
    pub intact: Vec<(PathBuf, Position)>,
    /// Closed segments with bytes behind their last batch that are none, and lack nothing.
    pub torn_segments: Vec<TornTail>,
    /// First offset and producer id of transactions without an end.
    pub open_transactions: Vec<(Offset, i64)>,
    /// Checkpoint files that do not fit the log.
    pub checkpoints: Vec<IndexState>,
    /// Where a broker that starts here would cut the log off, if it would lose records: the
    /// first offset that goes.
    pub broker_cuts_at: Option<Offset>,
}

impl Checked {
    /// Are bytes of the log wrong, or records lost? Torn tails and wrong derived files are not
    /// damage.
    pub fn is_damaged(&self) -> bool {
        let Facts { damage, oddities, missing, .. } = &self.facts;
        let lost = missing.iter().any(|missing| missing.why != Why::Hole);
        lost || !damage.is_empty() || !oddities.is_empty()
    }
}

/// Threads that a check is worth: one for each core.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Reads all partitions of `data_dir` in so many `threads`, at the time `now`; by directory name,
/// each with what was found or why it cannot be said.
pub fn check(
    data_dir: &DataDir,
    threads: usize,
    now: Timestamp,
    progress: &Progress,
) -> Result<Vec<(OsString, Result<Checked>)>> {
    let mut names: Vec<OsString> = data_dir.listing()?.partitions.keys().cloned().collect();
    names.sort_unstable();
    let work = Work { data_dir, now, progress, threads };
    let small = parallel(threads, names.len(), |i| work.unless_large(&names[i]));
    let all = names.into_iter().zip(small).filter_map(|(name, done)| {
        let done = done.unwrap_or_else(|| work.whole(&name, threads)).transpose()?;
        Some((name, done))
    });
    Ok(all.collect())
}

/// Does `work` for all numbers below `count`, in so many threads.
fn parallel<T: Send>(threads: usize, count: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, T)>> = Mutex::new(Vec::with_capacity(count));
    let run = || {
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            if i >= count {
                return;
            }
            let result = work(i);
            done.lock().unwrap_or_else(PoisonError::into_inner).push((i, result));
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.min(count) {
            scope.spawn(run);
        }
        run();
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_unstable_by_key(|(i, _)| *i);
    done.into_iter().map(|(_, result)| result).collect()
}

struct Work<'a> {
    data_dir: &'a DataDir,
    now: Timestamp,
    progress: &'a Progress,
    threads: usize,
}

impl Work<'_> {
    /// What was found in a partition, or `None` when it is large and worth several threads. The
    /// inner `None` is a partition that is not there any more.
    fn unless_large(&self, name: &OsString) -> Option<Result<Option<Checked>>> {
        if self.threads > 1 {
            match self.opened(name) {
                Ok(Some((_, state))) if bytes_of(&state) > SMALL_PARTITION_BYTES => return None,
                Ok(_) => {}
                Err(e) => return Some(Err(e)),
            }
        }
        Some(self.whole(name, 1))
    }

    fn opened(&self, name: &OsString) -> Result<Option<(Arc<Log>, Arc<LogState>)>> {
        let Some(log) = self.data_dir.log(name)? else { return Ok(None) };
        let state = log.state()?;
        Ok(Some((log, state)))
    }

    fn whole(&self, name: &OsString, threads: usize) -> Result<Option<Checked>> {
        let mut tries = 1..TRIES;
        loop {
            let Some((log, state)) = self.opened(name)? else { return Ok(None) };
            match self.partition(&log, &state, threads) {
                Err(e) if e.is_not_found() && tries.next().is_some() => {
                    // Long enough for the directory to be looked at again.
                    std::thread::sleep(2 * crate::engine::log::LOOK_AGAIN);
                }
                done => return done.map(Some),
            }
        }
    }

    fn partition(&self, log: &Log, state: &LogState, threads: usize) -> Result<Checked> {
        let bytes = bytes_of(state);
        self.progress.total.fetch_add(bytes, Ordering::Relaxed);
        let indexes: Vec<_> =
            state.segments.iter().map(|segment| SegmentIndexes::of(log, segment)).collect();
        let mut parts = Vec::new();
        for (number, segment) in state.segments.iter().enumerate() {
            let split = if threads > 1 { PART_BYTES } else { u64::MAX };
            for part in split_up(log, segment, &indexes[number], split)? {
                parts.push((number, part));
            }
        }
        let read_part = |part: &Part, number: usize| {
            Reader::new(log, part, indexes[number].usable(part), self.now).read(&self.progress.done)
        };
        let reads = parallel(threads, parts.len(), |i| read_part(&parts[i].1, parts[i].0));
        let mut segments: Vec<Vec<(Part, PartRead)>> = Vec::new();
        segments.resize_with(state.segments.len(), Vec::new);
        for ((number, part), read) in parts.into_iter().zip(reads) {
            segments[number].push((part, read?));
        }
        let mut summary = Summary::default();
        for (number, reads) in segments.into_iter().enumerate() {
            let joined = join(reads, |part| read_part(part, number))?;
            summary.add(log, state, number, &indexes[number], joined)?;
        }
        Ok(summary.finish(log, state, bytes))
    }
}

fn bytes_of(state: &LogState) -> u64 {
    state.segments.iter().map(|segment| segment.log.bytes()).sum()
}

/// The index files of one segment.
struct SegmentIndexes {
    offsets: Arc<crate::engine::index::IndexBytes>,
    times: Arc<crate::engine::index::IndexBytes>,
    offsets_ascend: bool,
    times_ascend: bool,
}

impl SegmentIndexes {
    fn of(log: &Log, segment: &Segment) -> SegmentIndexes {
        let (offsets, times) =
            (log.shared().offset_index(segment), log.shared().time_index(segment));
        SegmentIndexes {
            offsets_ascend: watch::ascends(&OffsetIndex::new(segment.base_offset, &offsets)),
            times_ascend: watch::times_ascend(&TimeIndex::new(segment.base_offset, &times)),
            offsets,
            times,
        }
    }

    fn usable(&self, part: &Part) -> Indexes<'_> {
        let base = part.segment.base_offset;
        Indexes {
            offsets: self.offsets_ascend.then(|| OffsetIndex::new(base, &self.offsets)),
            times: self.times_ascend.then(|| TimeIndex::new(base, &self.times)),
        }
    }
}

/// The parts of a segment: each begins with a batch that the index names rightly.
fn split_up(
    log: &Log,
    segment: &Arc<Segment>,
    indexes: &SegmentIndexes,
    bytes: u64,
) -> Result<Vec<Part>> {
    let mut from = Anchor { position: Position::START, expected: segment.base_offset };
    let mut parts = Vec::new();
    let entries = OffsetIndex::new(segment.base_offset, &indexes.offsets);
    if indexes.offsets_ascend && segment.valid_bytes > bytes {
        let disk = &*log.shared().disk;
        let mut window = Window::new(HEADER_BYTES);
        for entry in entries.iter() {
            if entry.position.get() < from.position.get().saturating_add(bytes) {
                continue;
            }
            let (position, offset) = (entry.position, entry.offset);
            let header = promised(disk, &mut window, segment, position, offset)?;
            let Some(header) = header.filter(|header| !header.is_legacy_wrapper()) else {
                continue;
            };
            parts.push(Part { segment: Arc::clone(segment), from, until: position });
            from = Anchor { position, expected: header.base_offset };
        }
    }
    let until = Position::new(u64::MAX);
    parts.push(Part { segment: Arc::clone(segment), from, until });
    Ok(parts)
}

/// The readings of a segment's parts as one. From the first that does not end where the next one
/// begins, the segment is read again in one go.
fn join(
    reads: Vec<(Part, PartRead)>,
    again: impl Fn(&Part) -> Result<PartRead>,
) -> Result<Vec<PartRead>> {
    let mut joined: Vec<(Part, PartRead)> = Vec::new();
    for (part, read) in reads {
        let broken = joined.last().is_some_and(|(_, before)| {
            let epoch = before.epochs.last().map(|last| last.epoch);
            before.end.position != part.from.position
                || before.end.expected > part.from.expected
                || epoch > read.epochs.first().map(|first| first.epoch)
        });
        if broken && let Some((before, _)) = joined.pop() {
            let rest = Part { until: Position::new(u64::MAX), ..before };
            let read = again(&rest)?;
            joined.push((rest, read));
            break;
        }
        joined.push((part, read));
    }
    let mut reads: Vec<PartRead> = Vec::with_capacity(joined.len());
    for (part, mut read) in joined {
        let end = reads.last().map(|before| before.end.expected);
        if let Some(end) = end.filter(|end| *end < part.from.expected) {
            read.holes.insert(0, (end, part.from.expected));
        }
        reads.push(read);
    }
    Ok(reads)
}

/// What was found in the segments so far.
#[derive(Default)]
struct Summary {
    seen: Seen,
    valid_bytes: u64,
    batches: u64,
    records: u64,
    unlisted_offsets: u64,
    intact: Vec<(PathBuf, Position)>,
    torn_segments: Vec<TornTail>,
    transactions: Transactions,
    epochs: Vec<EpochStart>,
}

impl Summary {
    fn add(
        &mut self,
        log: &Log,
        state: &LogState,
        number: usize,
        indexes: &SegmentIndexes,
        reads: Vec<PartRead>,
    ) -> Result<()> {
        let segment = &state.segments[number];
        let mut look = SegmentLook::default();
        let (mut offset_faults, mut time_faults) =
            (watch::Faults::default(), watch::Faults::default());
        let mut aborted: Vec<AbortedTransaction> = Vec::new();
        for read in reads {
            look.end = Some(read.shadowed_end.unwrap_or(read.end.expected));
            look.is_sparse |= read.is_sparse;
            look.holes.extend(read.holes);
            for suspicious in read.timestamps {
                suspicious.add_to(&mut look.timestamps);
            }
            self.valid_bytes += read.valid_bytes;
            self.batches += read.batches;
            self.records += read.records;
            self.unlisted_offsets += read.unlisted_offsets;
            let path = segment.log.path();
            self.intact.extend(read.intact.into_iter().map(|at| (path.to_path_buf(), at)));
            self.seen.damage.extend(read.damage);
            self.seen.oddities.extend(read.oddities);
            self.torn_segments.extend(read.torn);
            self.epochs.extend(read.epochs);
            aborted.extend(self.transactions.add(&read.transactions));
            offset_faults.append(read.offset_faults);
            time_faults.append(read.time_faults);
        }
        self.epochs.dedup_by_key(|start| start.epoch);
        let end = look.end.map(|end| end.max(segment.base_offset));
        let mut offsets = faults(soundness::offset_index(log.shared(), segment))?;
        let mut times = faults(soundness::time_index(log.shared(), segment, end))?;
        add_fault(&mut offsets, indexes.offsets_ascend, offset_faults);
        add_fault(&mut times, indexes.times_ascend, time_faults);
        look.indexes.extend(IndexState::of(segment, "index", segment.index.as_ref(), &offsets));
        let file = segment.time_index.as_ref();
        look.indexes.extend(IndexState::of(segment, "timeindex", file, &times));
        let complete = self.seen.damage.is_empty() && !look.is_sparse;
        look.indexes.extend(beside::txn_index(log, state, segment, &aborted, complete));
        self.seen.looks.push(look);
        Ok(())
    }

    fn finish(mut self, log: &Log, state: &LogState, bytes: u64) -> Checked {
        self.seen.in_full = true;
        let mut checkpoints = beside::checkpoints(log, state);
        checkpoints.extend(beside::leader_epochs(log, state, &self.epochs));
        let broker_cuts_at = broker_cuts_at(log, state, &self.seen.damage);
        let mut facts = Facts::of(log, state, self.seen);
        facts.indexes.extend(beside::snapshots(log, state));
        let holes = facts.missing.iter().filter(|missing| missing.why == Why::Hole);
        let listed = holes.map(|it| it.last_offset.next().distance_from(it.first_offset));
        let offsets_in_holes = listed.sum::<u64>() + self.unlisted_offsets;
        Checked {
            facts,
            segments: state.segments.len(),
            bytes,
            valid_bytes: self.valid_bytes,
            batches: self.batches,
            records: self.records,
            offsets_in_holes,
            intact: self.intact,
            torn_segments: self.torn_segments,
            open_transactions: self.transactions.open().collect(),
            checkpoints,
            broker_cuts_at,
        }
    }
}

/// A broker that finds no clean-shutdown marker recovers from the segment of the recovery point on,
/// and cuts at the first batch that is wrong (format page, "Loading and recovery").
fn broker_cuts_at(log: &Log, state: &LogState, damage: &[Stretch]) -> Option<Offset> {
    let checkpoints = &log.shared().checkpoints;
    if checkpoints.at_rest() {
        return None;
    }
    let point = checkpoints.recovery_point(log.name()).unwrap_or_default();
    let first = state.segment_of(point).unwrap_or(0);
    let recovered = state.segments.get(first..).unwrap_or_default();
    let is_recovered =
        |stretch: &&Stretch| recovered.iter().any(|segment| segment.log.path() == stretch.path);
    let first = damage.iter().find(is_recovered)?;
    Some(first.first_offset).filter(|offset| *offset < state.log_end)
}

/// What a quick look found. That an index cannot be read is a fault like any other.
fn faults<E>(looked: Result<Looked<E>>) -> Result<Vec<String>> {
    match looked {
        Ok(looked) => Ok(looked.faults),
        Err(e) if e.is_not_found() => Err(e),
        Err(e) => Ok(vec![e.to_string()]),
    }
}

/// The samples of a quick look find the common faults and name them best; the rest is added only
/// where they found nothing of the kind.
fn add_fault(faults: &mut Vec<String>, ascends: bool, more: watch::Faults) {
    let named = |faults: &[String], words: &str| faults.iter().any(|fault| fault.contains(words));
    if !ascends && !named(faults, "out of order") && !named(faults, "impossible") {
        faults.push("out of order: the entries do not ascend".to_owned());
    }
    if !named(faults, "entry")
        && let Some(fault) = more.into_words()
    {
        faults.push(fault);
    }
}
