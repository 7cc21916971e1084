//! One partition: where it begins and ends, and where a record, a time or a count is in it. The
//! files are looked at when something is asked, at most every [`LOOK_AGAIN`], so that a log which a
//! broker is writing is followed within a second.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant, SystemTime};

use crate::engine::access::{Standing, WriteAccess};
use crate::engine::batches::{Batches, FoundRecord};
use crate::engine::cache::Cache;
use crate::engine::checkpoints::Checkpoints;
use crate::engine::config;
use crate::engine::damage::{Findings, Stretch};
use crate::engine::disk::{Disk, Facts, FileId, read_small};
use crate::engine::extent::{Extents, Measure};
use crate::engine::extent_store::Stored;
use crate::engine::index::IndexBytes;
use crate::engine::limits::Limits;
use crate::engine::load::{self, Seen};
use crate::engine::metadata::ClusterMetadata;
use crate::engine::options::{Isolation, ReadOptions};
use crate::engine::recovery;
use crate::engine::scanner::{Interrupted, Scanner};
use crate::engine::segment::{File, Segment};
use crate::engine::time_bounds::TimeBounds;
use crate::engine::trace::Step;
use crate::engine::transactions::{SegmentTransactions, TransactionState, Transactions};
use crate::engine::window::LARGEST_CHUNK;
use crate::engine::writer::{Published, Writer};
use crate::error::{Error, Result};
use crate::format::batch::BatchHeader;
use crate::format::checkpoint::{EpochStart, parse_partition_metadata};
use crate::format::index::{
    OFFSET_ENTRY_BYTES, Probe, TIME_ENTRY_BYTES, partition_point_seen, used_entries,
};
use crate::format::name::{SegmentFile, SegmentFileKind, SegmentFileState, TopicPartition};
use crate::format::record::Record;
use crate::units::{Offset, Position, Timestamp};

/// How old the picture of a log may be.
pub const LOOK_AGAIN: Duration = Duration::from_millis(200);
/// A segment up to this size is read whole without a thought.
pub const SMALL_SEGMENT_BYTES: u64 = 1 << 20;
/// Searches whose answers are remembered.
const RECENT: usize = 32;
/// Batches up to this size may be remembered with an answer.
const SMALL_FOUND_BYTES: usize = 64 << 10;
/// Bytes that a sequential pass reads at once.
pub const SCAN_BYTES: usize = LARGEST_CHUNK;

/// What all logs of a data directory share.
#[derive(Debug)]
pub struct Shared {
    /// The files.
    pub disk: Arc<dyn Disk>,
    /// How they are read.
    pub options: ReadOptions,
    /// Batches made readable.
    pub batches: Batches,
    /// Index files, without padding.
    pub indexes: Cache<IndexKey, IndexBytes>,
    /// Sizes, by segment and format.
    pub extents: Cache<(FileId, u8), Mutex<Extents>>,
    /// Transactions by segment.
    pub transactions: Cache<(FileId, u64), SegmentTransactions>,
    /// The right to write, on a writable mount.
    pub access: Option<Arc<WriteAccess>>,
    /// The checkpoint files of the data directory.
    pub checkpoints: Checkpoints,
    pub(super) recent: Recent,
    /// The metadata log of its cluster, where the data directory has it.
    pub metadata: ClusterMetadata,
}

/// An index file as it was at one time.
pub type IndexKey = (FileId, u64, (i64, u32));

impl Shared {
    /// For the data directory `directory`.
    pub fn new(
        disk: Arc<dyn Disk>,
        directory: &Path,
        options: ReadOptions,
        access: Option<Arc<WriteAccess>>,
    ) -> Shared {
        Shared {
            batches: Batches::new(Arc::clone(&disk), options.max_batch_bytes),
            indexes: Cache::new(16 << 20),
            extents: Cache::new(16 << 20),
            transactions: Cache::new(8 << 20),
            checkpoints: Checkpoints::new(Arc::clone(&disk), directory),
            access,
            recent: Recent::default(),
            metadata: ClusterMetadata::new(directory),
            disk,
            options,
        }
    }

    /// Tells whoever listens of a step of a search.
    #[inline]
    pub fn tell(&self, step: impl FnOnce() -> Step) {
        if let Some(trace) = &self.options.trace {
            trace.note(step());
        }
    }

    /// The entries of the offset index of a segment; none when it cannot be read, since an index
    /// is a hint.
    pub fn offset_index(&self, segment: &Segment) -> Arc<IndexBytes> {
        match &segment.live {
            Some((index, _)) => Arc::new(IndexBytes::Live(Arc::clone(index))),
            None => self.index_bytes(segment, segment.index.as_ref(), OFFSET_ENTRY_BYTES),
        }
    }

    /// The same of the time index.
    pub fn time_index(&self, segment: &Segment) -> Arc<IndexBytes> {
        match &segment.live {
            Some((_, index)) => Arc::new(IndexBytes::Live(Arc::clone(index))),
            None => self.index_bytes(segment, segment.time_index.as_ref(), TIME_ENTRY_BYTES),
        }
    }

    fn index_bytes(
        &self,
        segment: &Segment,
        file: Option<&File>,
        entry_bytes: usize,
    ) -> Arc<IndexBytes> {
        let Some(file) = file else { return Arc::new(IndexBytes::Read(Vec::new())) };
        let key = (file.file.id, file.facts.bytes, file.facts.modified);
        if let Some(bytes) = self.indexes.get(&key) {
            return bytes;
        }
        let mapped = self.access.as_ref().filter(|_| !segment.active && file.bytes() > 0);
        let mapped = mapped.and_then(|access| access.map_sealed(&*self.disk, &file.file));
        // After a crash even a sealed one may be filled up with zeros; those are no entries.
        let mapped = mapped.filter(|map| used_entries(map, entry_bytes) * entry_bytes == map.len());
        let bytes = Arc::new(mapped.map_or_else(
            || IndexBytes::Read(load::index_bytes(&*self.disk, file, entry_bytes)),
            IndexBytes::Sealed,
        ));
        self.indexes.put(key, Arc::clone(&bytes), bytes.weight());
        bytes
    }

    /// A verifying reading of `segment` from its start.
    pub fn scanner(&self, segment: &Arc<Segment>, chunk: usize) -> Scanner {
        let most = self.options.max_batch_bytes as u64;
        Scanner::new(Arc::clone(&self.disk), Arc::clone(segment), chunk, most)
    }

    /// The first offset in the batch at `position`; a legacy wrapper is expanded for it, and where
    /// it cannot be expanded it is the least that the segment can hold.
    pub fn first_offset(
        &self,
        segment: &Segment,
        header: &BatchHeader,
        position: Position,
    ) -> Result<Offset> {
        if !header.is_legacy_wrapper() {
            return Ok(header.base_offset);
        }
        let chunk = usize::try_from(header.bytes).unwrap_or(SCAN_BYTES).min(SCAN_BYTES);
        let segment = Arc::new(segment.clone());
        let first = self.scanner(&segment, chunk).verified_first_offset(header, position)?;
        Ok(first.unwrap_or(segment.base_offset))
    }

    /// The same for a long pass, which can be interrupted.
    pub fn long_scanner(
        &self,
        segment: &Arc<Segment>,
        interrupted: Option<&Interrupted>,
    ) -> Scanner {
        self.scanner(segment, SCAN_BYTES).interruptible(interrupted.cloned())
    }
}

/// One partition.
#[derive(Debug)]
pub struct Log {
    name: TopicPartition,
    path: PathBuf,
    made: Option<Made>,
    /// Is its directory gone, and perhaps another there in its place?
    gone: AtomicBool,
    pub(super) shared: Arc<Shared>,
    picture: Mutex<Option<(Arc<LogState>, Instant)>>,
    findings: Findings,
    pub(super) time_bounds: TimeBounds,
    writer: Mutex<Option<Box<Writer>>>,
    live: Mutex<Option<Live>>,
}

/// Which directory it is, and when it was made: a name can be had by one after the other, and so
/// can an inode number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Made(pub FileId, pub Option<SystemTime>);

/// What a writer has published, for readers to look at when they come.
#[derive(Clone, Debug)]
struct Live {
    /// Changes with every append.
    generation: u64,
    /// Changes when segments come or go.
    published: Arc<Published>,
    /// Bytes of the active segment.
    active_bytes: u64,
    log_end: Offset,
}

/// A log as it was at one moment; never changes.
#[derive(Clone, Debug)]
pub struct LogState {
    /// The segments, by base offset; the last is active.
    pub segments: Vec<Arc<Segment>>,
    /// First offset that is shown.
    pub log_start: Offset,
    /// First offset that is on the disk.
    pub disk_start: Offset,
    /// The offset that the next record will get.
    pub log_end: Offset,
    /// The first offset that consumers of a broker did not see.
    pub high_watermark: Offset,
    /// Does a checkpoint say so?
    pub high_watermark_known: bool,
    /// Was the data directory left in order, so that nobody is writing to it?
    pub at_rest: bool,
    /// Which generation of the checkpoints this was made with.
    pub checkpoints: u64,
    /// What follows the last batch without being one.
    pub torn_tail: Option<TornTail>,
    /// The last batch that was seen.
    pub last_batch: Option<Seen>,
    /// Epochs and their first offsets, ascending.
    pub leader_epochs: Vec<EpochStart>,
    /// Names of files that a crash or a deletion left.
    pub leftovers: Vec<String>,
    /// Names of files that others have replaced.
    pub shadowed: Vec<String>,
    /// The directory itself.
    pub directory: Facts,
    /// Time of the newest change of a segment file: seconds and nanoseconds since 1970.
    pub modified: (i64, u32),
    /// Names of all files in the directory.
    pub names: Vec<OsString>,
    /// Different for each state of any log.
    pub number: u64,
    /// Which generation of the writer this is; `None` when the files were looked at.
    pub live: Option<u64>,
}

/// Gives each state its number.
static STATES: AtomicU64 = AtomicU64::new(0);

/// Bytes at the end of the log that hold no batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TornTail {
    /// The segment file.
    pub path: PathBuf,
    /// Where they begin.
    pub position: Position,
    /// How many they are.
    pub bytes: u64,
}

/// The answer to a search.
#[derive(Clone, Debug)]
pub enum Found {
    /// The record, and where its batch is.
    Record(FoundRecord, Arc<Segment>, Position),
    /// It would be in bytes that are wrong.
    Damaged(Stretch),
    /// There is none.
    Nothing,
}

impl Found {
    /// Is this the record at `offset`, or damage?
    pub(super) fn is_at(&self, offset: Offset) -> bool {
        match self {
            Found::Record(found, ..) => {
                found.record().is_some_and(|record| record.offset == offset)
            }
            Found::Damaged(_) => true,
            Found::Nothing => false,
        }
    }
}

impl Log {
    /// The log in `path`. Nothing is read before something is asked.
    pub fn new(
        name: TopicPartition,
        path: PathBuf,
        made: Option<Made>,
        shared: Arc<Shared>,
    ) -> Log {
        Log {
            name,
            path,
            made,
            gone: AtomicBool::new(false),
            shared,
            picture: Mutex::new(None),
            findings: Findings::default(),
            time_bounds: TimeBounds::default(),
            writer: Mutex::new(None),
            live: Mutex::new(None),
        }
    }

    /// Which directory it was opened in.
    pub fn made(&self) -> Option<Made> {
        self.made
    }

    /// Its directory is gone. Whoever still has the log gets nothing of what now has its path, and
    /// nothing is written there by its writer, which is not even closed.
    pub fn leave(&self) {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        self.gone.store(true, Ordering::Release);
        *writer = None;
    }

    fn check_there(&self) -> Result<()> {
        if self.gone.load(Ordering::Acquire) {
            return Err(Error::refused(&self.path, "this partition was removed"));
        }
        Ok(())
    }

    /// Topic and partition.
    pub fn name(&self) -> &TopicPartition {
        &self.name
    }

    /// Its directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it shares with the other logs.
    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// The damage that was met so far.
    pub fn findings(&self) -> &Findings {
        &self.findings
    }

    /// The log as it is now, or was less than [`LOOK_AGAIN`] ago.
    pub fn state(&self) -> Result<Arc<LogState>> {
        self.check_there()?;
        let mut picture = self.picture.lock().unwrap_or_else(PoisonError::into_inner);
        let live = self.live.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(live) = live {
            if let Some((state, _)) = &*picture
                && state.live == Some(live.generation)
            {
                return Ok(Arc::clone(state));
            }
            let old = picture.as_ref().map(|(state, _)| &**state);
            let new = Arc::new(self.live_state(old, &live)?);
            *picture = Some((Arc::clone(&new), Instant::now()));
            return Ok(new);
        }
        if let Some((state, looked)) = &*picture
            && looked.elapsed() < LOOK_AGAIN
        {
            return Ok(Arc::clone(state));
        }
        let old = picture.as_ref().map(|(state, _)| Arc::clone(state));
        let now = Instant::now();
        let new = match old {
            Some(old) => match load::refresh(&self.shared, &self.name, &self.path, &old)? {
                Some(new) => {
                    self.findings.retain(|path| new.still_has(&old, path));
                    Arc::new(new)
                }
                None => old,
            },
            None => Arc::new(load::load(&self.shared, &self.name, &self.path)?),
        };
        *picture = Some((Arc::clone(&new), now));
        Ok(new)
    }

    /// The log as its writer has it.
    fn live_state(&self, old: Option<&LogState>, live: &Live) -> Result<LogState> {
        let disk = &*self.shared.disk;
        let published = &live.published;
        let mut segments = published.segments.clone();
        if let Some(active) = segments.last_mut() {
            let active = Arc::make_mut(active);
            active.valid_bytes = live.active_bytes;
            active.log.facts = disk.facts_of(&active.log.file)?;
        }
        let same_files = old.and_then(|old| old.live).is_some_and(|seen| {
            live.generation > seen && old.is_some_and(|old| old.segments.len() == segments.len())
        });
        let names = match old {
            Some(old) if same_files => old.names.clone(),
            _ => disk.list(&self.path)?,
        };
        let directory = disk.facts(&self.path)?;
        let modified = segments.last().map_or(directory.modified, |last| last.log.facts.modified);
        Ok(LogState {
            disk_start: segments.first().map_or(live.log_end, |first| first.base_offset),
            segments,
            log_start: published.log_start,
            log_end: live.log_end,
            high_watermark: live.log_end,
            high_watermark_known: true,
            at_rest: false,
            checkpoints: 0,
            torn_tail: None,
            last_batch: None,
            leader_epochs: published.epochs.clone(),
            leftovers: old.map(|old| old.leftovers.clone()).unwrap_or_default(),
            shadowed: old.map(|old| old.shadowed.clone()).unwrap_or_default(),
            directory,
            modified,
            names,
            number: LogState::next_number(),
            live: Some(live.generation),
        })
    }

    /// Does `work` with the writer of the log, which is opened, and the log recovered, where that
    /// was not done yet. What it changed can be seen when this returns.
    pub fn write<T>(
        &self,
        now: Timestamp,
        work: impl FnOnce(&mut Writer) -> Result<T>,
    ) -> Result<T> {
        let mut place = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let access = self
            .shared
            .access
            .as_ref()
            .ok_or_else(|| Error::refused(&self.path, "this is not a writable mount"))?;
        self.check_there()?;
        if place.is_none() {
            // Half an opening may have left indexes of another size than an orderly end does.
            let writer = self.open_writer(access, now).inspect_err(|_| access.spoil())?;
            *place = Some(Box::new(writer));
        }
        let Some(writer) = place.as_mut() else { return Err(Error::Interrupted) };
        let (structure, tail) = (writer.structure(), writer.tail());
        let done = work(writer);
        let same_structure = structure == writer.structure();
        if !same_structure || tail != writer.tail() {
            self.publish(writer, Some(same_structure))?;
        }
        match writer.remove_condemned() {
            Ok(()) => done,
            Err(e) if tail.1 == writer.tail().1 => done.and(Err(e)),
            Err(e) => {
                // What was appended is in the log; the files go some other time.
                log::warn!("{}: {e}", self.path.display());
                done
            }
        }
    }

    fn open_writer(&self, access: &Arc<WriteAccess>, now: Timestamp) -> Result<Writer> {
        let limits = Limits::new(&self.name, &config::effective(self));
        let opening = recovery::open(self, access, &limits, None, now)?;
        let writer = Writer::open(self, access, opening, limits, now)?;
        self.publish(&writer, None)?;
        Ok(writer)
    }

    /// Shows readers what the writer has done.
    fn publish(&self, writer: &Writer, same_structure: Option<bool>) -> Result<()> {
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        let generation = STATES.fetch_add(1, Ordering::Relaxed);
        let (active_bytes, log_end) = writer.tail();
        match &mut *live {
            Some(live) if same_structure == Some(true) => {
                (live.active_bytes, live.log_end) = (active_bytes, log_end);
                live.generation = generation;
            }
            _ => {
                let published = Arc::new(writer.picture()?);
                *live = Some(Live { generation, published, active_bytes, log_end });
            }
        }
        Ok(())
    }

    /// Fails where damage that was met keeps the log from being appended to (contract 6.2).
    pub fn check_appendable(&self) -> Result<()> {
        match self.findings.stretches().first() {
            Some(stretch) => Err(recovery::damaged(&self.path, &stretch.error().to_string())),
            None => Ok(()),
        }
    }

    /// Is there a writer?
    pub fn is_written(&self) -> bool {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Closes the writer in order; where the log stands then. `None` where there was none. A writer
    /// that cannot be closed stays, so that nobody takes the log for one that was left in order.
    pub fn close_writer(&self, now: Timestamp) -> Result<Option<Standing>> {
        let mut place = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(writer) = place.as_mut() else { return Ok(None) };
        let standing = writer.close(now)?;
        *place = None;
        *self.live.lock().unwrap_or_else(PoisonError::into_inner) = None;
        *self.picture.lock().unwrap_or_else(PoisonError::into_inner) = None;
        Ok(Some(standing))
    }

    /// Has the log been opened yet, and can it be looked at without waiting for another one who is
    /// reading where it ends?
    pub fn is_open(&self) -> bool {
        match self.picture.try_lock() {
            Ok(picture) => picture.is_some(),
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner().is_some(),
            Err(TryLockError::WouldBlock) => false,
        }
    }

    /// The id of its topic; `None` where `partition.metadata` is missing or broken.
    pub fn topic_id(&self) -> Option<[u8; 16]> {
        let path = self.path.join("partition.metadata");
        let bytes = read_small(&*self.shared.disk, &path, 4096).ok()?;
        parse_partition_metadata(&bytes).ok().map(|id| id.0)
    }

    /// The first offset that is not shown: the log end, or with `read_committed` the last stable
    /// offset.
    pub fn visible_end(&self, state: &LogState) -> Result<Offset> {
        match self.shared.options.isolation {
            Isolation::ReadUncommitted => Ok(state.log_end),
            Isolation::ReadCommitted => {
                let first_open = self.transactions(state)?.first_open();
                Ok(first_open.unwrap_or(state.log_end).min(state.log_end))
            }
        }
    }

    /// All transactions of the log.
    pub fn transactions(&self, state: &LogState) -> Result<Transactions> {
        let mut all = Transactions::default();
        for segment in &state.segments {
            all.add(&*self.segment_transactions(segment)?);
        }
        Ok(all)
    }

    /// How the transaction of a record ended; `None` when it is in none.
    pub fn transaction_state(
        &self,
        state: &LogState,
        header: &BatchHeader,
        offset: Offset,
    ) -> Result<Option<TransactionState>> {
        if !header.transactional || header.control {
            return Ok(None);
        }
        let from = state.segments.partition_point(|segment| segment.limit <= offset);
        for segment in &state.segments[from..] {
            let ends = self.segment_transactions(segment)?;
            if let Some(end) = ends.end_of(header.producer_id, offset) {
                return Ok(Some(end));
            }
        }
        Ok(Some(TransactionState::Open))
    }

    /// Says which batches hold data that is shown.
    pub fn filter(&self, state: &LogState) -> Result<Filter> {
        Ok(Filter(match self.shared.options.isolation {
            Isolation::ReadUncommitted => None,
            Isolation::ReadCommitted => Some(Arc::new(self.transactions(state)?)),
        }))
    }

    /// The sizes of `segment` in the format with this number, counted at least up to `until` or its
    /// end. The first time this reads all of it.
    pub fn extents<F: Fn(&BatchHeader, &Record<'_>) -> usize>(
        &self,
        segment: &Arc<Segment>,
        format: u8,
        measure: &Measure<F>,
        filter: &Filter,
        until: Offset,
        interrupted: Option<&Interrupted>,
    ) -> Result<Arc<Mutex<Extents>>> {
        let key = (segment.log.file.id, format);
        let shared = &*self.shared;
        let stored = || Stored::of(segment, &self.name, format, &shared.options);
        let known = shared.extents.get(&key).unwrap_or_else(|| {
            let kept = stored().and_then(|stored| stored.load());
            let extents = kept.unwrap_or_else(|| Extents::empty(segment.base_offset));
            let weight = extents.weight();
            let extents = Arc::new(Mutex::new(extents));
            shared.extents.put(key, Arc::clone(&extents), weight);
            extents
        });
        let mut extents = lock_or_give_up(&known, interrupted)?;
        let truncated = || {
            let last = extents.last.as_ref();
            last.is_some_and(|last| matches!(last.is_there(&*shared.disk, segment), Ok(false)))
        };
        if extents.end.position.get() > segment.valid_bytes || truncated() {
            *extents = Extents::empty(segment.base_offset);
        }
        if !extents.cover(segment.valid_bytes, until) {
            let mut scanner = shared.long_scanner(segment, interrupted);
            let (batches, policy) = (&shared.batches, shared.options.damage);
            let shows = |header: &BatchHeader| filter.shows(header);
            let counted = extents.extend(&mut scanner, batches, measure, policy, &shows, until);
            for (stretch, _) in &extents.damage {
                self.findings.note(stretch);
            }
            shared.extents.put(key, Arc::clone(&known), extents.weight());
            counted?;
            if extents.cover(segment.valid_bytes, Offset::MAX)
                && let Some(stored) = stored()
            {
                stored.save(&extents);
            }
        }
        drop(extents);
        Ok(known)
    }

    /// Are the sizes of `segment` counted up to `until` or its end, so that [`Self::extents`] is
    /// quick?
    pub fn extents_known(&self, segment: &Segment, format: u8, until: Offset) -> bool {
        self.shared.extents.get(&(segment.log.file.id, format)).is_some_and(|known| {
            known.try_lock().is_ok_and(|extents| extents.cover(segment.valid_bytes, until))
        })
    }

    fn segment_transactions(&self, segment: &Arc<Segment>) -> Result<Arc<SegmentTransactions>> {
        let key = (segment.log.file.id, segment.valid_bytes);
        if let Some(known) = self.shared.transactions.get(&key) {
            return Ok(known);
        }
        let read = SegmentTransactions::read(self.shared.scanner(segment, SCAN_BYTES))?;
        let read = Arc::new(read);
        self.shared.transactions.put(key, Arc::clone(&read), read.weight());
        Ok(read)
    }
}

/// Waits for another one who is counting, but not when the caller is interrupted.
fn lock_or_give_up<'a>(
    extents: &'a Mutex<Extents>,
    interrupted: Option<&Interrupted>,
) -> Result<MutexGuard<'a, Extents>> {
    loop {
        match extents.try_lock() {
            Ok(guard) => return Ok(guard),
            Err(TryLockError::Poisoned(poisoned)) => return Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => {}
        }
        if interrupted.is_some_and(Interrupted::asked) {
            return Err(Error::Interrupted);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Which batches hold data that is shown.
#[derive(Clone, Debug)]
pub struct Filter(Option<Arc<Transactions>>);

impl Filter {
    /// Is the data of this batch shown, as far as transactions go?
    #[inline]
    pub fn shows(&self, header: &BatchHeader) -> bool {
        match &self.0 {
            Some(transactions) if header.transactional && !header.control => {
                let end = transactions.state_of(header.producer_id, header.base_offset);
                end == TransactionState::Committed
            }
            _ => true,
        }
    }
}

/// A few answers to the last searches, each valid for the state in which it was found.
#[derive(Debug, Default)]
pub(super) struct Recent {
    slots: Mutex<[Option<(u64, Offset, Found)>; RECENT]>,
}

impl Recent {
    pub(super) fn get(&self, state: &LogState, offset: Offset) -> Option<Found> {
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let (seen, known, found) = slots[Recent::slot(offset)].as_ref()?;
        (*seen == state.number && *known == offset).then(|| found.clone())
    }

    pub(super) fn put(&self, state: &LogState, offset: Offset, found: &Found) {
        let Found::Record(record, ..) = found else { return };
        // A large batch is not kept from the memory budget.
        if record.batch.bytes.len() <= SMALL_FOUND_BYTES {
            let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
            slots[Recent::slot(offset)] = Some((state.number, offset, found.clone()));
        }
    }

    fn slot(offset: Offset) -> usize {
        usize::try_from(offset.get()).unwrap_or(0) % RECENT
    }
}

impl LogState {
    /// The files of one kind that are no leftovers, as their names have them.
    pub fn live_files(&self, kind: SegmentFileKind) -> impl Iterator<Item = SegmentFile> {
        let files = self.names.iter().filter_map(|name| SegmentFile::parse(name.to_str()?));
        files.filter(move |file| file.kind == kind && file.state == SegmentFileState::Live)
    }

    /// A number that no state had before.
    pub(super) fn next_number() -> u64 {
        STATES.fetch_add(1, Ordering::Relaxed)
    }

    /// Is the file at `path` the same one as before, and not shorter?
    fn still_has(&self, old: &LogState, path: &Path) -> bool {
        let file = |state: &LogState| {
            let found = state.segments.iter().find(|segment| segment.log.path() == path);
            found.map(|segment| segment.log.facts)
        };
        file(old).zip(file(self)).is_some_and(|(a, b)| a.id == b.id && a.bytes <= b.bytes)
    }

    /// The segment that answers for `offset`, by its number: the one with the greatest base offset
    /// not above it.
    pub fn segment_of(&self, offset: Offset) -> Option<usize> {
        self.segment_of_seen(offset, |_| {})
    }

    /// The same, with each comparison shown to `see`.
    pub fn segment_of_seen(&self, offset: Offset, see: impl FnMut(Probe)) -> Option<usize> {
        let is_below = |i: usize| self.segments[i].base_offset <= offset;
        partition_point_seen(self.segments.len(), is_below, see).checked_sub(1)
    }

    /// May the record at `offset` still change, as far as one can know from outside?
    pub fn is_settled(&self, offset: Offset) -> bool {
        self.at_rest || (self.high_watermark_known && offset < self.high_watermark)
    }
}
