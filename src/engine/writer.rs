//! The writing end of one log: batches in, segments, indexes, epochs and producer state out, by
//! Kafka's rules to the byte (format page, "Segment life cycle"). One writer a log, behind its
//! lock.
//!
//! Bytes are in the file before anyone can see them (`Log::publish`). After a failed write that
//! could not be undone, or a failed sync, the log takes no appends until it is opened again.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::engine::access::{Standing, WriteAccess};
use crate::engine::active::ActiveIndex;
use crate::engine::appending::Appending;
use crate::engine::disk::{Disk, DiskFile, replace_small};
use crate::engine::epochs::LeaderEpochs;
use crate::engine::limits::Limits;
use crate::engine::log::{Log, LogState, Shared};
use crate::engine::mmap::ActiveMap;
use crate::engine::options::LogStart;
use crate::engine::producers::{Marker, ProducerStates};
use crate::engine::retention::{SegmentFacts, segments_to_delete};
use crate::engine::roll::{
    ActiveSegment, Incoming, NewSegment, RollLimits, must_roll, new_segment,
};
use crate::engine::segment::{File, Segment};
use crate::error::{Error, Result};
use crate::format::batch::BatchHeader;
use crate::format::builder::{BatchBuilder, NewRecord};
use crate::format::checkpoint::{LEADER_EPOCHS, write_leader_epochs};
use crate::format::index::{IndexEntry, OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES, TimeIndexEntry};
use crate::format::name::SegmentFileKind;
use crate::format::snapshot::write_snapshot;
use crate::units::{LeaderEpoch, Offset, Position, Timestamp};

/// One log as it is written.
#[derive(Debug)]
pub struct Writer {
    shared: Arc<Shared>,
    access: Arc<WriteAccess>,
    path: PathBuf,
    limits: Limits,
    sealed: Vec<Arc<Segment>>,
    /// Base offsets of segments that are not part of the log any more, but still have files.
    condemned: Vec<Offset>,
    active: Active,
    log_start: Offset,
    log_end: Offset,
    epochs: LeaderEpochs,
    producers: ProducerStates,
    recovery_point: Offset,
    unflushed: u64,
    flushed_at: Timestamp,
    builder: BatchBuilder,
    poison: Option<String>,
}

/// The segment that is written.
#[derive(Debug)]
struct Active {
    base_offset: Offset,
    log: DiskFile,
    bytes: u64,
    index: ActiveIndex,
    time_index: ActiveIndex,
    txn_index: Option<(DiskFile, u64)>,
    /// Bytes of batches since the last index entry.
    since_entry: u64,
    /// The largest timestamp, and the last offset of its batch.
    newest: Option<(Timestamp, Offset)>,
    first_timestamp: Option<Timestamp>,
    created: Timestamp,
    jitter_ms: i64,
}

/// What a log is opened with, after its recovery.
#[derive(Debug)]
pub struct Opening {
    /// The log as it is on the disk, without a torn tail.
    pub state: Arc<LogState>,
    /// Its epochs.
    pub epochs: LeaderEpochs,
    /// Its producers before the log end.
    pub producers: ProducerStates,
    /// Everything before it is on the disk.
    pub recovery_point: Offset,
    /// The largest timestamp of the active segment, and the last offset of its batch.
    pub newest: Option<(Timestamp, Offset)>,
    /// The largest timestamp of the first batch of the active segment.
    pub first_timestamp: Option<Timestamp>,
}

impl Writer {
    /// Opens the writing end of `log`.
    pub fn open(
        log: &Log,
        access: &Arc<WriteAccess>,
        opening: Opening,
        limits: Limits,
        now: Timestamp,
    ) -> Result<Writer> {
        let shared = Arc::clone(&log.shared);
        let Opening { state, epochs, producers, recovery_point, newest, first_timestamp } = opening;
        let mut sealed = state.segments.clone();
        let path = log.path().to_path_buf();
        let mut active = match sealed.pop() {
            Some(last) => Active::open(&shared, access, &last, &limits, now)?,
            None => Active::create(&shared, access, &path, state.log_end, &limits, now)?,
        };
        active.newest = newest;
        active.first_timestamp = first_timestamp;
        let writer = Writer {
            shared,
            access: Arc::clone(access),
            path,
            limits,
            sealed,
            condemned: Vec::new(),
            active,
            log_start: state.log_start,
            log_end: state.log_end,
            epochs,
            producers,
            recovery_point,
            unflushed: 0,
            flushed_at: now,
            builder: BatchBuilder::new(),
            poison: None,
        };
        Ok(writer)
    }

    /// The settings that it goes by.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Changes the settings. `segment.index.bytes` holds from the next segment on, or at once while
    /// the active one is empty.
    pub fn set_limits(&mut self, limits: Limits, now: Timestamp) -> Result<()> {
        let other_indexes = limits.segment_index_bytes != self.limits.segment_index_bytes;
        self.limits = limits;
        if other_indexes && self.active.bytes == 0 && self.poison.is_none() {
            let last = self.active.as_segment(&*self.shared.disk)?;
            let opened = Active::open(&self.shared, &self.access, &last, &self.limits, now);
            // Its index may be shorter than its map now: one more entry would kill the process.
            self.active = opened.inspect_err(|e| {
                self.poison.get_or_insert_with(|| format!("new indexes could not be made ({e})"));
            })?;
        }
        Ok(())
    }

    /// The offset that the next record gets.
    pub fn log_end(&self) -> Offset {
        self.log_end
    }

    /// The first offset that is shown.
    pub fn log_start(&self) -> Offset {
        self.log_start
    }

    /// Fails when the log takes no appends.
    pub fn check_usable(&self) -> Result<()> {
        match &self.poison {
            Some(reason) => {
                Err(Error::Poisoned { path: self.path.clone(), reason: reason.clone() })
            }
            None => Ok(()),
        }
    }

    /// No appends any more, for this reason.
    pub fn poison(&mut self, reason: impl Into<String>) {
        self.poison.get_or_insert_with(|| reason.into());
    }

    /// Takes records to be appended as one batch, or as few as the limits allow.
    pub fn begin_append(&mut self, now: Timestamp) -> Result<Appending<'_>> {
        self.check_usable()?;
        let builder = std::mem::take(&mut self.builder);
        Ok(Appending::new(self, builder, now))
    }

    /// Appends all of `records`. How many were stored: all, or those before the one that the error
    /// is about.
    pub fn append(&mut self, records: &[NewRecord<'_>], now: Timestamp) -> (usize, Result<()>) {
        let mut appending = match self.begin_append(now) {
            Ok(appending) => appending,
            Err(e) => return (0, Err(e)),
        };
        let added = records.iter().try_for_each(|record| appending.add(record));
        let (stored, finished) = appending.finish();
        (stored, finished.and(added))
    }

    /// Keeps the memory of a builder for the next append.
    pub(super) fn put_back(&mut self, builder: BatchBuilder) {
        self.builder = builder;
    }

    /// The epoch of what is appended now.
    pub(super) fn leader_epoch(&self) -> Option<LeaderEpoch> {
        self.epochs.latest().or_else(|| LeaderEpoch::new(0))
    }

    /// Appends a batch as it is, as a replica does. `marker` is what its record says when it is a
    /// control batch.
    pub fn append_batch(
        &mut self,
        batch: &[u8],
        header: &BatchHeader,
        marker: Option<Marker>,
        now: Timestamp,
    ) -> Result<()> {
        self.check_usable()?;
        let first =
            if header.is_legacy_wrapper() { header.last_offset } else { header.base_offset };
        if first < self.log_end {
            let end = self.log_end;
            return Err(Error::Invalid(format!("batch at offset {first}, the log ends at {end}")));
        }
        self.producers.check(header, marker).map_err(|e| Error::Invalid(e.to_string()))?;
        if header.bytes > self.limits.segment_bytes {
            let (bytes, most) = (header.bytes, self.limits.segment_bytes);
            return Err(Error::TooLarge(format!("a batch of {bytes} bytes, segment.bytes={most}")));
        }
        self.append_stored(batch, header, marker, now)
    }

    /// Appends a batch that was looked at.
    pub(super) fn append_stored(
        &mut self,
        batch: &[u8],
        header: &BatchHeader,
        marker: Option<Marker>,
        now: Timestamp,
    ) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let disk = &*shared.disk;
        self.access.begin(disk)?;
        let rolled = self.roll_if_due(header, now)?;
        let due = self.active.since_entry > self.limits.index_interval_bytes;
        if due {
            self.active.index.reserve(disk)?;
            self.active.time_index.reserve(disk)?;
        }
        let begins = header.leader_epoch != self.epochs.latest();
        let known = begins.then(|| self.epochs.clone());
        if self.epochs.append(header)
            && let Err(e) = self.write_epochs()
        {
            // The next batch of this epoch has to write it.
            self.epochs = known.unwrap_or_else(|| self.epochs.clone());
            return Err(e);
        }
        let position = Position::new(self.active.bytes);
        if let Err(failure) = disk.write_at(&self.active.log, position, batch) {
            if let Err(e) = disk.set_bytes(&self.active.log, self.active.bytes) {
                self.poison(format!("a failed write could not be undone ({e})"));
            }
            return Err(failure);
        }
        self.active.see(header);
        if due && let Err(e) = self.active.add_entries(disk, header.last_offset, position) {
            self.poison(format!("an index entry could not be written ({e})"));
        }
        self.active.since_entry += header.bytes;
        self.active.bytes += header.bytes;
        self.log_end = header.last_offset.next();
        self.unflushed += header.last_offset.distance_from(header.base_offset) + 1;
        let completed = self.producers.apply(header, marker);
        if let Some(entry) = completed.and_then(|ended| ended.index_entry()) {
            let added = self.active.add_aborted(disk, &self.path, &entry.to_bytes());
            if let Err(e) = added {
                self.poison(format!("an aborted transaction could not be noted ({e})"));
                return Err(e);
            }
        }
        if self.unflushed >= self.limits.flush_messages {
            self.sync(now)?;
        }
        if rolled && let Err(e) = self.retain(now) {
            // The batch is in the log; what is too much goes some other time.
            log::warn!("{}: {e}", self.path.display());
        }
        Ok(())
    }

    /// Whether it was due.
    fn roll_if_due(&mut self, header: &BatchHeader, now: Timestamp) -> Result<bool> {
        let incoming = Incoming {
            bytes: header.bytes,
            first_offset: (!header.is_legacy_wrapper()).then_some(header.base_offset),
            last_offset: header.last_offset,
            max_timestamp: header.max_timestamp,
        };
        let limits = RollLimits {
            segment_bytes: self.limits.segment_bytes,
            segment_ms: self.limits.segment_ms,
            jitter_ms: self.active.jitter_ms,
        };
        let segment = self.active.for_roll();
        match must_roll(&segment, &incoming, &limits, now) {
            Some(_) => {
                self.roll(new_segment(&segment, Some(&incoming), self.log_end), now)?;
                Ok(true)
            }
            None => Ok(false),
        }
    }

    /// Seals the active segment and begins the next.
    fn roll(&mut self, next: NewSegment, now: Timestamp) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let disk = &*shared.disk;
        let base_offset = match next {
            NewSegment::After(base) => base,
            NewSegment::InPlaceOfEmpty(base) => {
                let made = remove_segment_files(disk, &self.path, base).and_then(|()| {
                    Active::create(&shared, &self.access, &self.path, base, &self.limits, now)
                });
                // What is written to a file without a name is lost.
                self.active = made.inspect_err(|e| {
                    self.poison.get_or_insert_with(|| format!("a roll failed ({e})"));
                })?;
                return Ok(());
            }
            NewSegment::Impossible(base) => {
                let begins = self.active.base_offset;
                return Err(Error::Invalid(format!("no segment {base} behind {begins}")));
            }
        };
        let path = &self.path;
        self.active.time_index.reserve(disk)?;
        let made = match Active::create(&shared, &self.access, path, base_offset, &self.limits, now)
        {
            Ok(made) => made,
            Err(failure) => {
                // An empty segment left there would hide what the active one gets.
                if let Err(e) = remove_segment_files(disk, path, base_offset) {
                    self.poison(format!("half a roll could not be undone ({e})"));
                }
                return Err(failure);
            }
        };
        let sealed = self.active.seal(disk).and_then(|()| self.active.as_segment(disk));
        // Its indexes may be shorter than their maps: nothing must be added any more.
        let sealed = sealed.inspect_err(|e| self.poison(format!("a roll failed ({e})")))?;
        self.active = made;
        let sealed = Segment { limit: base_offset, active: false, live: None, ..sealed };
        self.sealed.push(Arc::new(sealed));
        self.producers.skip_to(base_offset);
        self.write_snapshot(false)
    }

    /// Returns when everything appended is on the disk. After a failure nothing more is appended:
    /// what the system then says of the same pages cannot be believed.
    pub fn sync(&mut self, now: Timestamp) -> Result<()> {
        self.check_usable()?;
        let result = self.sync_files();
        if let Err(e) = &result {
            self.poison(format!("a sync failed ({e}); it is opened again at the next mount"));
            return result;
        }
        self.recovery_point = self.recovery_point.max(self.log_end);
        self.unflushed = 0;
        self.flushed_at = now;
        Ok(())
    }

    fn sync_files(&self) -> Result<()> {
        let disk = &*self.shared.disk;
        let mut new_files = false;
        // One that ends at the recovery point was trimmed since.
        for segment in self.sealed.iter().filter(|segment| segment.limit >= self.recovery_point) {
            disk.sync(&segment.log.file)?;
            for index in segment.index.iter().chain(&segment.time_index) {
                disk.sync(&index.file)?;
            }
            let name = SegmentFileKind::TxnIndex.file_name(segment.base_offset);
            let path = self.path.join(name);
            if let Ok(facts) = disk.facts(&path) {
                disk.sync(&DiskFile { path, id: facts.id })?;
            }
            new_files = true;
        }
        disk.sync(&self.active.log)?;
        self.active.index.sync(disk)?;
        self.active.time_index.sync(disk)?;
        if let Some((file, _)) = &self.active.txn_index {
            disk.sync(file)?;
        }
        if new_files || self.active.base_offset >= self.recovery_point {
            disk.sync_directory(&self.path)?;
        }
        Ok(())
    }

    /// Has `flush.ms` passed with something unflushed?
    pub fn flush_is_due(&self, now: Timestamp) -> bool {
        let waited = now.millis().saturating_sub(self.flushed_at.millis());
        self.unflushed > 0 && waited >= self.limits.flush_ms
    }

    /// An orderly end: flushed, indexes trimmed, the last time entry and a snapshot written. Where
    /// the log stands then.
    pub fn close(&mut self, now: Timestamp) -> Result<Standing> {
        self.check_usable()?;
        let closed = self.close_files(now);
        // Its indexes may be shorter than their maps: nothing must be added any more.
        closed.inspect_err(|e| self.poison(format!("it could not be closed ({e})")))?;
        Ok(self.standing())
    }

    fn close_files(&mut self, now: Timestamp) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let disk = &*shared.disk;
        self.active.seal(disk)?;
        self.sync(now)?;
        self.write_snapshot(true)?;
        disk.sync_directory(&self.path)
    }

    /// Where the log stands, for the checkpoints.
    pub fn standing(&self) -> Standing {
        let first = self.sealed.first().map_or(self.active.base_offset, |first| first.base_offset);
        let name = self.limits.name.clone();
        // What is shown from the disk on is deleted all the same.
        let noted = match self.shared.options.log_start {
            LogStart::Disk => self.shared.checkpoints.log_start(&name).unwrap_or_default(),
            LogStart::Checkpoint => Offset::ZERO,
        };
        let log_start = self.log_start.max(noted);
        Standing {
            name,
            recovery_point: self.recovery_point,
            high_watermark: self.log_end,
            log_start: (log_start > first).then_some(log_start),
        }
    }

    fn write_snapshot(&mut self, synced: bool) -> Result<()> {
        let disk = &*self.shared.disk;
        if !self.producers.snapshot_is_due() && !synced {
            return Ok(());
        }
        let name = SegmentFileKind::Snapshot.file_name(self.producers.end_offset());
        let path = self.path.join(name);
        match disk.remove(&path) {
            Err(e) if !e.is_not_found() => return Err(e),
            Ok(()) | Err(_) => {}
        }
        let file = disk.create(&path)?;
        disk.write_at(&file, Position::START, &write_snapshot(&self.producers.snapshot()))?;
        if synced {
            disk.sync(&file)?;
        }
        self.producers.snapshot_written();
        Ok(())
    }

    fn write_epochs(&self) -> Result<()> {
        let text = write_leader_epochs(self.epochs.entries());
        replace_small(&*self.shared.disk, &self.path.join(LEADER_EPOCHS), text.as_bytes())
    }

    /// Deletes the records before `start`: it is published, and kept, before any file goes.
    pub fn raise_log_start(&mut self, start: Offset, now: Timestamp) -> Result<()> {
        if start > self.log_end {
            let end = self.log_end;
            return Err(Error::Invalid(format!("log start {start} beyond the log end {end}")));
        }
        if start <= self.log_start {
            return Ok(());
        }
        self.check_usable()?;
        let shared = Arc::clone(&self.shared);
        self.access.begin(&*shared.disk)?;
        self.access.note_log_start(&*shared.disk, &self.limits.name, Some(start))?;
        self.log_start = start;
        if self.epochs.truncate_from_start(start) {
            self.write_epochs()?;
        }
        self.retain(now)
    }

    /// Lets go of the segments that the settings, or the log start, leave no place for. Their files
    /// go by [`remove_condemned`](Writer::remove_condemned).
    pub fn retain(&mut self, now: Timestamp) -> Result<()> {
        self.check_usable()?;
        let facts = self.segment_facts()?;
        let (start, end) = (self.log_start, self.log_end);
        let deletion = segments_to_delete(&facts, start, end, self.limits.retention, now);
        for (base, doubt) in &deletion.distrusted {
            let log = self.path.join(SegmentFileKind::Log.file_name(*base));
            log::warn!("{}: {doubt}; its own age counts instead", log.display());
        }
        if deletion.reasons.is_empty() {
            return Ok(());
        }
        let shared = Arc::clone(&self.shared);
        let disk = &*shared.disk;
        self.access.begin(disk)?;
        if deletion.roll_first {
            let next = new_segment(&self.active.for_roll(), None, self.log_end);
            self.roll(next, now)?;
        }
        let start = self.log_start.max(deletion.log_start);
        // Noted until the files are gone for good, or a crash brings deleted records back.
        self.access.note_log_start(disk, &self.limits.name, Some(start))?;
        self.log_start = start;
        let count = deletion.reasons.len().min(self.sealed.len());
        self.condemned.extend(self.sealed.drain(..count).map(|segment| segment.base_offset));
        if self.epochs.truncate_from_start(start) {
            self.write_epochs()?;
        }
        Ok(())
    }

    /// Removes the files of segments that went, once readers have been shown the log without them.
    pub fn remove_condemned(&mut self) -> Result<()> {
        if self.condemned.is_empty() {
            return Ok(());
        }
        let shared = Arc::clone(&self.shared);
        let disk = &*shared.disk;
        while let Some(base) = self.condemned.first() {
            remove_segment(disk, &self.path, *base)?;
            self.condemned.remove(0);
        }
        disk.sync_directory(&self.path)?;
        let first = self.sealed.first().map_or(self.active.base_offset, |first| first.base_offset);
        let noted = (self.log_start > first).then_some(self.log_start);
        self.access.note_log_start(disk, &self.limits.name, noted)
    }

    fn segment_facts(&self) -> Result<Vec<SegmentFacts>> {
        let mut facts = Vec::with_capacity(self.sealed.len() + 1);
        facts.extend(self.sealed.iter().map(|segment| facts_of(&self.shared, segment)));
        let active = self.shared.disk.facts_of(&self.active.log)?;
        facts.push(SegmentFacts {
            base_offset: self.active.base_offset,
            end_offset: self.log_end,
            bytes: self.active.bytes,
            largest_timestamp: self.active.newest.map(|(newest, _)| newest),
            modified: milliseconds(active.modified),
        });
        Ok(facts)
    }

    /// The log as readers are to see it.
    pub fn picture(&self) -> Result<Published> {
        let disk = &*self.shared.disk;
        let mut segments = self.sealed.clone();
        segments.push(Arc::new(self.active.as_segment(disk)?));
        Ok(Published {
            segments,
            log_start: self.log_start,
            log_end: self.log_end,
            epochs: self.epochs.entries().to_vec(),
        })
    }

    /// Bytes of the active segment, and the log end: what changes with every append.
    pub fn tail(&self) -> (u64, Offset) {
        (self.active.bytes, self.log_end)
    }

    /// What changes when segments come or go, or epochs begin.
    pub fn structure(&self) -> (usize, Offset, Offset, usize, u64) {
        let epochs = self.epochs.entries().len();
        let index = self.active.index.file().id.inode;
        (self.sealed.len(), self.active.base_offset, self.log_start, epochs, index)
    }
}

/// What readers of a log that is written see.
#[derive(Clone, Debug)]
pub struct Published {
    /// The segments; the last is active.
    pub segments: Vec<Arc<Segment>>,
    /// First offset that is shown.
    pub log_start: Offset,
    /// The offset that the next record gets.
    pub log_end: Offset,
    /// Epochs and their first offsets.
    pub epochs: Vec<crate::format::checkpoint::EpochStart>,
}

impl Active {
    /// Makes the files of a new segment.
    fn create(
        shared: &Shared,
        access: &WriteAccess,
        path: &Path,
        base_offset: Offset,
        limits: &Limits,
        now: Timestamp,
    ) -> Result<Active> {
        let disk = &*shared.disk;
        access.begin(disk)?;
        for kind in [SegmentFileKind::Index, SegmentFileKind::TimeIndex, SegmentFileKind::TxnIndex]
        {
            match disk.remove(&path.join(kind.file_name(base_offset))) {
                Err(e) if !e.is_not_found() => return Err(e),
                Ok(()) | Err(_) => {}
            }
        }
        let log = disk.create(&path.join(SegmentFileKind::Log.file_name(base_offset)))?;
        let facts = disk.facts_of(&log)?;
        let segment = Segment::alone(base_offset, File { file: log, facts });
        Active::open(shared, access, &segment, limits, now)
    }

    /// Opens the last segment of a log to be written.
    fn open(
        shared: &Shared,
        access: &WriteAccess,
        segment: &Segment,
        limits: &Limits,
        now: Timestamp,
    ) -> Result<Active> {
        let disk = &*shared.disk;
        access.begin(disk)?;
        let path = segment.log.path().with_extension("");
        let kept = |bytes: usize, entry: usize| (bytes - bytes % entry) as u64;
        let (index_bytes, time_bytes) =
            (shared.offset_index(segment).len(), shared.time_index(segment).len());
        let room = limits.segment_index_bytes;
        let index = path.with_extension("index");
        let kept_index = kept(index_bytes, OFFSET_ENTRY_BYTES);
        let index = ActiveIndex::open(disk, access, &index, OFFSET_ENTRY_BYTES, room, kept_index)?;
        let time = path.with_extension("timeindex");
        let kept_time = kept(time_bytes, TIME_ENTRY_BYTES);
        let time_index = ActiveIndex::open(disk, access, &time, TIME_ENTRY_BYTES, room, kept_time)?;
        let txn = path.with_extension("txnindex");
        let txn_index = match disk.facts(&txn) {
            Ok(facts) => Some((DiskFile { path: txn, id: facts.id }, facts.bytes)),
            Err(_) => None,
        };
        Ok(Active {
            base_offset: segment.base_offset,
            log: segment.log.file.clone(),
            bytes: segment.valid_bytes,
            index,
            time_index,
            txn_index,
            since_entry: 0,
            newest: None,
            first_timestamp: None,
            created: now,
            jitter_ms: limits.jitter_ms(now),
        })
    }

    fn for_roll(&self) -> ActiveSegment {
        ActiveSegment {
            base_offset: self.base_offset,
            bytes: self.bytes,
            first_timestamp: self.first_timestamp,
            created: self.created,
            index_is_full: self.index.entries_count() >= self.index.entries_max(),
            time_index_is_full: self.time_index.entries_count() + 1
                >= self.time_index.entries_max(),
        }
    }

    /// Takes the times of a batch into account.
    fn see(&mut self, header: &BatchHeader) {
        if self.bytes == 0 {
            self.first_timestamp = header.max_timestamp;
        }
        let newest = self.newest.map_or(-1, |(newest, _)| newest.millis());
        if let Some(most) = header.max_timestamp.filter(|most| most.millis() > newest) {
            self.newest = Some((most, header.last_offset));
        }
    }

    fn add_entries(&mut self, disk: &dyn Disk, last: Offset, position: Position) -> Result<()> {
        let entry = IndexEntry { offset: last, position };
        if let Some(entry) = entry.to_bytes(self.base_offset) {
            self.index.push(disk, &entry)?;
        }
        self.since_entry = 0;
        self.add_time_entry(disk)
    }

    /// Adds the largest timestamp so far to the time index, if that says something new.
    fn add_time_entry(&mut self, disk: &dyn Disk) -> Result<()> {
        let Some((timestamp, offset)) = self.newest else { return Ok(()) };
        let entry = TimeIndexEntry { timestamp, offset }.to_bytes(self.base_offset);
        let last = self.time_index.last().and_then(|entry| entry.first_chunk());
        let last = last.map_or(-1, |bytes| i64::from_be_bytes(*bytes));
        if let Some(entry) = entry
            && timestamp.millis() > last
        {
            self.time_index.push(disk, &entry)?;
        }
        Ok(())
    }

    fn add_aborted(&mut self, disk: &dyn Disk, path: &Path, entry: &[u8]) -> Result<()> {
        if self.txn_index.is_none() {
            let name = SegmentFileKind::TxnIndex.file_name(self.base_offset);
            self.txn_index = Some((disk.create(&path.join(name))?, 0));
            disk.sync_directory(path)?;
        }
        if let Some((file, bytes)) = &mut self.txn_index {
            disk.write_at(file, Position::new(*bytes), entry)?;
            *bytes += entry.len() as u64;
        }
        Ok(())
    }

    /// The last time entry, and indexes of their true size.
    fn seal(&mut self, disk: &dyn Disk) -> Result<()> {
        self.time_index.reserve(disk)?;
        self.add_time_entry(disk)?;
        self.index.trim(disk)?;
        self.time_index.trim(disk)
    }

    fn as_segment(&self, disk: &dyn Disk) -> Result<Segment> {
        let file = |file: &DiskFile| -> Result<File> {
            Ok(File { file: file.clone(), facts: disk.facts_of(file)? })
        };
        let maps: (&Arc<ActiveMap>, &Arc<ActiveMap>) = (self.index.map(), self.time_index.map());
        Ok(Segment {
            valid_bytes: self.bytes,
            index: Some(file(self.index.file())?),
            time_index: Some(file(self.time_index.file())?),
            live: Some((Arc::clone(maps.0), Arc::clone(maps.1))),
            ..Segment::alone(self.base_offset, file(&self.log)?)
        })
    }
}

/// Removes all files of a segment, its snapshot too.
pub fn remove_segment(disk: &dyn Disk, path: &Path, base_offset: Offset) -> Result<()> {
    remove_segment_files(disk, path, base_offset)?;
    remove_if_there(disk, &path.join(SegmentFileKind::Snapshot.file_name(base_offset)))
}

/// The same without the snapshot, which speaks of the segments before.
fn remove_segment_files(disk: &dyn Disk, path: &Path, base_offset: Offset) -> Result<()> {
    for kind in [
        SegmentFileKind::Log,
        SegmentFileKind::Index,
        SegmentFileKind::TimeIndex,
        SegmentFileKind::TxnIndex,
    ] {
        remove_if_there(disk, &path.join(kind.file_name(base_offset)))?;
    }
    Ok(())
}

/// Removes a file; one that is not there is no error.
pub fn remove_if_there(disk: &dyn Disk, path: &Path) -> Result<()> {
    match disk.remove(path) {
        Err(e) if !e.is_not_found() => Err(e),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Would a writer let go of segments of this log, as far as its closed files say?
pub fn is_retention_due(log: &Log, limits: &Limits, now: Timestamp) -> Result<bool> {
    let state = log.state()?;
    let facts: Vec<_> =
        state.segments.iter().map(|segment| facts_of(&log.shared, segment)).collect();
    let (start, end) = (state.log_start, state.log_end);
    let deletion = segments_to_delete(&facts, start, end, limits.retention, now);
    Ok(!deletion.reasons.is_empty())
}

fn facts_of(shared: &Shared, segment: &Segment) -> SegmentFacts {
    SegmentFacts {
        base_offset: segment.base_offset,
        end_offset: segment.limit,
        bytes: segment.log.bytes(),
        largest_timestamp: largest_timestamp(shared, segment),
        modified: milliseconds(segment.log.facts.modified),
    }
}

/// The largest timestamp of a sealed segment: its last time entry.
fn largest_timestamp(shared: &Shared, segment: &Segment) -> Option<Timestamp> {
    let bytes = shared.time_index(segment);
    let index = crate::format::index::TimeIndex::new(segment.base_offset, &bytes);
    let last = index.entries_count().checked_sub(1).and_then(|last| index.get(last))?;
    (last.timestamp.millis() >= 0).then_some(last.timestamp)
}

fn milliseconds((seconds, nanoseconds): (i64, u32)) -> Timestamp {
    let millis = seconds.saturating_mul(1000).saturating_add(i64::from(nanoseconds / 1_000_000));
    Timestamp::from_millis(millis)
}
