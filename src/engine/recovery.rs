//! Opening a log to write it: what an unclean end left is checked, and cut where it is bad, by
//! Kafka's rules (format page, "Loading and recovery"), except that cut bytes are kept beside under
//! names that a broker ignores.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::engine::access::WriteAccess;
use crate::engine::disk::{Disk, DiskFile, Kind, read_small};
use crate::engine::epochs::LeaderEpochs;
use crate::engine::limits::Limits;
use crate::engine::load::{self, promised};
use crate::engine::log::{Log, LogState, SCAN_BYTES, Shared};
use crate::engine::producers::{Marker, ProducerStates};
use crate::engine::scanner::{Interrupted, Item, Scanner};
use crate::engine::segment::Segment;
use crate::engine::settle::unsettled;
use crate::engine::snapshots;
use crate::engine::truncation::{Truncation, goes};
use crate::engine::window::Window;
use crate::engine::writer::{Opening, remove_if_there, remove_segment};
use crate::error::{Error, Result};
use crate::format::batch::{BatchHeader, HEADER_BYTES};
use crate::format::checkpoint::{LEADER_EPOCHS, parse_leader_epochs, write_leader_epochs};
use crate::format::index::{IndexEntry, OffsetIndex, TimeIndex, TimeIndexEntry};
use crate::format::name::SegmentFileKind;
use crate::format::record::Cursor;
use crate::format::snapshot::parse_snapshot;
use crate::units::{Offset, Position, Timestamp};

/// Idle producers are forgotten after this long, as a broker does (`producer.id.expiration.ms`).
const PRODUCER_EXPIRATION_MS: i64 = 86_400_000;
/// Bytes that are copied at once when a tail is kept.
const COPY_BYTES: usize = 1 << 20;

/// Makes a log ready to be written: recovers it if it was not left in order, and finds its epochs
/// and producers.
pub fn open(
    log: &Log,
    access: &WriteAccess,
    limits: &Limits,
    interrupted: Option<&Interrupted>,
    now: Timestamp,
) -> Result<Opening> {
    let work = Recovery { log, shared: &log.shared, access, limits, interrupted };
    log.shared.checkpoints.forget();
    let clean = access.was_clean();
    let mut state = work.settle(clean)?;
    let recovery_point =
        if clean { state.log_end } else { access.recovery_point(&*log.shared.disk, log.name()) };
    let mut epochs = work.epochs(&state)?;
    let (mut changed, mut recovered) = (false, None);
    if let Some(torn) = &state.torn_tail {
        work.keep_and_cut(&torn.path, torn.position, torn.bytes)?;
        changed = true;
    }
    if clean {
        changed |= work.mend_active_indexes(&state)?;
    } else {
        let first = state.segment_of(recovery_point).unwrap_or(0);
        changed |= first < state.segments.len();
        let producers = work.recover_from(&state, first, &mut epochs)?;
        // Where the log starts within a segment, they may be those of deleted records.
        let begin = state.segments.get(first).map(|first| first.base_offset);
        recovered = Some(producers).filter(|_| begin.is_none_or(|begin| begin >= state.log_start));
    }
    if changed {
        state = work.load()?;
    }
    // Only now is it known where the log ends.
    if state.log_start > state.log_end {
        work.start_afresh(&state)?;
        // They are written because something changed.
        let _ = epochs.clear();
        (changed, recovered) = (true, None);
        state = work.load()?;
    }
    if epochs.truncate_from_end(state.log_end) || changed {
        work.write_epochs(&epochs)?;
    }
    let producers = work.producers(&state, clean, recovered, now)?;
    let (first_timestamp, newest) = match state.segments.last() {
        Some(active) => work.times(active)?,
        None => (None, None),
    };
    // Where the log was cut before it, nothing that comes is on the disk.
    let recovery_point = recovery_point.min(state.log_end);
    let state = Arc::new(state);
    Ok(Opening { state, epochs, producers, recovery_point, newest, first_timestamp })
}

/// What recovery works with; truncation and repair use the same tools.
pub(super) struct Recovery<'a> {
    pub(super) log: &'a Log,
    pub(super) shared: &'a Arc<Shared>,
    pub(super) access: &'a WriteAccess,
    pub(super) limits: &'a Limits,
    pub(super) interrupted: Option<&'a Interrupted>,
}

/// What the batches of a segment make of its indexes.
#[derive(Default)]
struct Rebuilt {
    index: Vec<u8>,
    time_index: Vec<u8>,
    txn_index: Vec<u8>,
    newest: Option<(Timestamp, Offset)>,
    last_indexed: u64,
}

impl Recovery<'_> {
    pub(super) fn disk(&self) -> &dyn Disk {
        &*self.shared.disk
    }

    pub(super) fn scanner(&self, segment: &Arc<Segment>) -> Scanner {
        self.shared.long_scanner(segment, self.interrupted)
    }

    fn load(&self) -> Result<LogState> {
        load::load(self.shared, self.log.name(), self.log.path())
    }

    /// The log, after what a crash interrupted was brought to its end as a broker does it: what a
    /// finished replacement covers goes, and the replacement gets its name. Otherwise what is
    /// covered would come back as soon as the replacement is cut or deleted. Indexes without a log
    /// go, too. Where its end is looked for anyway, it is not `measured`.
    fn settle(&self, measured: bool) -> Result<LogState> {
        let load = if measured { load::load } else { load::load_unmeasured };
        let load = || load(self.shared, self.log.name(), self.log.path());
        let state = load()?;
        self.check_logs_are_files(&state)?;
        let (swaps, orphans) = unsettled(&state.names);
        if swaps.is_empty() && orphans.is_empty() {
            return Ok(state);
        }
        let (disk, path) = (self.disk(), self.log.path());
        self.access.begin(disk)?;
        for name in &state.shadowed {
            remove_if_there(disk, &path.join(name))?;
        }
        for swap in swaps {
            let name = swap.kind.file_name(swap.base_offset);
            log::warn!("{}: takes the place of {name}", path.join(swap.to_string()).display());
            disk.rename(&path.join(swap.to_string()), &path.join(name))?;
        }
        for orphan in orphans {
            log::warn!("{}: removed, it has no log", path.join(orphan.to_string()).display());
            remove_if_there(disk, &path.join(orphan.to_string()))?;
        }
        disk.sync_directory(path)?;
        load()
    }

    /// A `.log` that is a link, a directory or a pipe holds nobody knows which offsets: none may be
    /// given again.
    fn check_logs_are_files(&self, state: &LogState) -> Result<()> {
        let looked_at: HashSet<&Path> = state.segments.iter().map(|it| it.log.path()).collect();
        let paths = state.live_files(SegmentFileKind::Log);
        let paths = paths.map(|file| self.log.path().join(file.to_string()));
        for path in paths.filter(|path| !looked_at.contains(&**path)) {
            match self.disk().facts(&path) {
                Ok(facts) if facts.kind == Kind::File => {}
                Err(e) if e.is_not_found() => {}
                Err(e) => return Err(e),
                Ok(_) => {
                    let reason = "not a regular file: the offsets in it are not known, so nothing \
                                  can be appended before the segment is put there or its name is \
                                  taken away";
                    return Err(Error::refused(&path, reason));
                }
            }
        }
        Ok(())
    }

    pub(super) fn epochs(&self, state: &LogState) -> Result<LeaderEpochs> {
        let path = self.log.path().join(LEADER_EPOCHS);
        let bytes = match read_small(self.disk(), &path, 1 << 24) {
            Ok(bytes) => bytes,
            Err(e) if e.is_not_found() => return Ok(LeaderEpochs::new(&[])),
            Err(e) => return Err(e),
        };
        let entries = parse_leader_epochs(&bytes).unwrap_or_else(|e| {
            log::warn!("{}: {e}; begun anew", path.display());
            state.leader_epochs.clone()
        });
        Ok(LeaderEpochs::new(&entries))
    }

    pub(super) fn write_epochs(&self, epochs: &LeaderEpochs) -> Result<()> {
        self.access.begin(self.disk())?;
        let path = self.log.path().join(LEADER_EPOCHS);
        let text = write_leader_epochs(epochs.entries());
        crate::engine::disk::replace_small(self.disk(), &path, text.as_bytes())
    }

    /// The records before the log start are deleted, and those behind it were lost in a crash: the
    /// log goes on at its start, or what is appended would be hidden (Kafka's rule).
    fn start_afresh(&self, state: &LogState) -> Result<()> {
        self.access.begin(self.disk())?;
        let (start, end) = (state.log_start, state.log_end);
        log::warn!("{}: ends at {end}, before its start {start}", self.log.path().display());
        for segment in state.segments.iter().rev() {
            self.set_aside(segment)?;
        }
        Ok(())
    }

    /// Checks the segments from number `first` on, batch by batch, each once; everything from the
    /// first bad one on is cut. The producers at the end.
    fn recover_from(
        &self,
        state: &LogState,
        first: usize,
        epochs: &mut LeaderEpochs,
    ) -> Result<ProducerStates> {
        let begin = state.segments.get(first).map_or(state.log_end, |first| first.base_offset);
        let mut producers = self.producers_before(state, begin)?;
        for (number, segment) in state.segments.iter().enumerate().skip(first) {
            let cut = self.recover_segment(segment, epochs, &mut producers)?;
            let Some(position) = cut else { continue };
            let size = segment.valid_bytes;
            // The last first, and the cut at the end: whenever this stops, it begins again here.
            for later in state.segments[number + 1..].iter().rev() {
                self.set_aside(later)?;
            }
            self.keep_and_cut(segment.log.path(), position, size - position.get())?;
            break;
        }
        Ok(producers)
    }

    /// Rebuilds the indexes of a segment from its batches; where the first bad one begins.
    pub(super) fn recover_segment(
        &self,
        segment: &Arc<Segment>,
        epochs: &mut LeaderEpochs,
        producers: &mut ProducerStates,
    ) -> Result<Option<Position>> {
        let mut rebuilt = Rebuilt::default();
        let mut scanner = self.scanner(segment);
        let cut = loop {
            match scanner.step()? {
                Item::Batch(header, position) => {
                    rebuilt.add(segment.base_offset, &header, position, self.limits);
                    // Only its result matters: the epochs are written when all is done.
                    let _ = epochs.recover(&header);
                    let marker = marker(&scanner, &header, position);
                    let ended = producers.apply(&header, marker);
                    if let Some(entry) = ended.and_then(|ended| ended.index_entry()) {
                        rebuilt.txn_index.extend_from_slice(&entry.to_bytes());
                    }
                }
                Item::Damage(stretch) => break Some(stretch.start),
                Item::End { position, torn } => break (torn > 0).then_some(position),
            }
        };
        self.replace_indexes(segment, rebuilt)?;
        Ok(cut)
    }

    fn replace_indexes(&self, segment: &Segment, mut rebuilt: Rebuilt) -> Result<()> {
        self.access.begin(self.disk())?;
        rebuilt.seal(segment.base_offset);
        let path = self.log.path();
        let files = [
            (SegmentFileKind::Index, &rebuilt.index),
            (SegmentFileKind::TimeIndex, &rebuilt.time_index),
            (SegmentFileKind::TxnIndex, &rebuilt.txn_index),
        ];
        for (kind, content) in files {
            let target = path.join(kind.file_name(segment.base_offset));
            self.make_way(&target)?;
            if kind == SegmentFileKind::TxnIndex && content.is_empty() {
                remove_if_there(self.disk(), &target)?;
            } else {
                self.put(&target, content)?;
            }
        }
        Ok(())
    }

    /// A directory cannot be replaced by a file: it gets a name that a broker ignores.
    fn make_way(&self, target: &Path) -> Result<()> {
        let facts = self.disk().facts(target);
        if facts.is_ok_and(|facts| facts.kind == Kind::Directory) {
            let kept = self.kept_name(target, Position::START);
            self.disk().rename(target, &kept)?;
            log::warn!("{}: a directory, kept as {}", target.display(), kept.display());
        }
        Ok(())
    }

    /// A file with this content in place of what is there, which may be mapped.
    fn put(&self, target: &Path, content: &[u8]) -> Result<()> {
        let scratch = target.with_added_extension("tmp");
        remove_if_there(self.disk(), &scratch)?;
        let file = self.disk().create(&scratch)?;
        self.disk().write_at(&file, Position::START, content)?;
        self.disk().sync(&file)?;
        self.disk().rename(&scratch, target)
    }

    /// Where a log was left in order its indexes are believed, but for those of the active segment
    /// that do not fit it. Whether they were made anew.
    fn mend_active_indexes(&self, state: &LogState) -> Result<bool> {
        let Some(active) = state.segments.last() else { return Ok(false) };
        if self.fits(active, state.log_end)? {
            return Ok(false);
        }
        log::warn!("{}: its indexes do not fit it and are rebuilt", active.log.path().display());
        let mut epochs = self.epochs(state)?;
        let mut producers = self.producers_before(state, active.base_offset)?;
        self.recover_segment(active, &mut epochs, &mut producers)?;
        Ok(true)
    }

    fn fits(&self, segment: &Segment, log_end: Offset) -> Result<bool> {
        if segment.index.is_none() && segment.valid_bytes > 0 {
            return Ok(false);
        }
        let bytes = self.shared.offset_index(segment);
        let entries: Vec<_> = OffsetIndex::new(segment.base_offset, &bytes).iter().collect();
        let ascend = entries.is_sorted_by(|a, b| a.offset < b.offset && a.position < b.position);
        let mut window = Window::new(HEADER_BYTES);
        if let Some(last) = entries.last() {
            let (at, offset) = (last.position, last.offset);
            if promised(self.disk(), &mut window, segment, at, offset)?.is_none() {
                return Ok(false);
            }
        }
        let bytes = self.shared.time_index(segment);
        let times: Vec<_> = TimeIndex::new(segment.base_offset, &bytes).iter().collect();
        let times_ascend =
            times.is_sorted_by(|a, b| a.timestamp < b.timestamp && a.offset <= b.offset);
        let within = times.last().is_none_or(|last| last.offset < log_end);
        Ok(ascend
            && times_ascend
            && within
            && entries.len() * 8 == self.shared.offset_index(segment).len())
    }

    /// Cuts the last `bytes` bytes of a log file, which begin at `position`, and keeps them beside.
    fn keep_and_cut(&self, path: &Path, position: Position, bytes: u64) -> Result<()> {
        let disk = self.disk();
        self.access.begin(disk)?;
        let facts = disk.facts(path)?;
        let file = DiskFile { path: path.to_path_buf(), id: facts.id };
        let kept = self.kept_name(path, position);
        let target = disk.create(&kept)?;
        let mut buffer = vec![0; COPY_BYTES];
        let mut copied = 0;
        while copied < bytes {
            let read = disk.read_at(&file, position.plus(copied), &mut buffer)?;
            let piece = read.min(usize::try_from(bytes - copied).unwrap_or(read));
            if piece == 0 {
                break;
            }
            if let Err(e) = disk.write_at(&target, Position::new(copied), &buffer[..piece]) {
                // Half a copy is of no use; the log is as it was.
                let _ = disk.remove(&kept);
                return Err(e);
            }
            copied += piece as u64;
        }
        disk.sync(&target)?;
        disk.sync_directory(self.log.path())?;
        disk.set_bytes(&file, position.get())?;
        disk.sync(&file)?;
        log::warn!(
            "{}: cut {bytes} bytes at position {position}, kept in {}",
            path.display(),
            kept.display()
        );
        Ok(())
    }

    /// Cuts a segment before the first batch that reaches to `target`, and rebuilds its indexes.
    fn cut_segment(&self, segment: &Arc<Segment>, target: Offset, discard: bool) -> Result<()> {
        let mut scanner = self.scanner(segment);
        let position = loop {
            match scanner.step()? {
                Item::Batch(header, position) if goes(&header, target) => break position,
                Item::Damage(stretch) if stretch.end_offset > target => break stretch.start,
                Item::Batch(..) | Item::Damage(_) => {}
                Item::End { .. } => return Ok(()),
            }
        };
        let bytes = segment.valid_bytes - position.get();
        if discard {
            self.access.begin(self.disk())?;
            self.disk().set_bytes(&segment.log.file, position.get())?;
            self.disk().sync(&segment.log.file)?;
        } else {
            self.keep_and_cut(segment.log.path(), position, bytes)?;
        }
        let cut = Arc::new(Segment { valid_bytes: position.get(), ..(**segment).clone() });
        let state = self.load()?;
        let mut producers = self.producers_before(&state, segment.base_offset)?;
        let mut epochs = LeaderEpochs::new(&[]);
        self.recover_segment(&cut, &mut epochs, &mut producers)?;
        Ok(())
    }

    /// A free name that a broker ignores.
    pub(super) fn kept_name(&self, path: &Path, position: Position) -> PathBuf {
        let mut name = first_kept_name(path, position);
        for number in 2.. {
            if self.disk().facts(&name).is_err_and(|e| e.is_not_found()) {
                break;
            }
            name = path.with_added_extension(format!("{position}.{number}.offsetfs"));
        }
        name
    }

    /// A whole segment behind a cut.
    fn set_aside(&self, segment: &Segment) -> Result<()> {
        self.access.begin(self.disk())?;
        let log = segment.log.path();
        let kept = self.kept_name(log, Position::START);
        self.disk().rename(log, &kept)?;
        log::warn!("{}: behind a cut, kept as {}", log.display(), kept.display());
        remove_segment(self.disk(), self.log.path(), segment.base_offset)
    }

    /// The producers before the log end, as `recovered` where that was done, and no snapshots but
    /// those that a broker would keep.
    fn producers(
        &self,
        state: &LogState,
        clean: bool,
        recovered: Option<ProducerStates>,
        now: Timestamp,
    ) -> Result<ProducerStates> {
        let snapshots = snapshot_offsets(state);
        let bases: Vec<_> = state.segments.iter().map(|segment| segment.base_offset).collect();
        if snapshots.is_empty() && clean {
            let mut nobody = ProducerStates::new(state.log_start);
            nobody.skip_to(state.log_end);
            return Ok(nobody);
        }
        for stray in snapshots::strays(&snapshots, &bases) {
            self.access.begin(self.disk())?;
            let name = SegmentFileKind::Snapshot.file_name(stray);
            remove_if_there(self.disk(), &self.log.path().join(name))?;
        }
        let mut producers = match recovered {
            Some(recovered) => recovered,
            None => self.producers_before(state, state.log_end)?,
        };
        producers.skip_to(state.log_end);
        producers.expire(now, PRODUCER_EXPIRATION_MS);
        Ok(producers)
    }

    /// The producers before `end`: from the newest snapshot that can be read, and the batches
    /// behind it.
    pub(super) fn producers_before(&self, state: &LogState, end: Offset) -> Result<ProducerStates> {
        let reload = snapshots::reload(&snapshot_offsets(state), state.log_start, end);
        let mut producers = ProducerStates::new(state.log_start);
        let forever = i64::MAX;
        for offset in reload.candidates {
            let name = SegmentFileKind::Snapshot.file_name(offset);
            let bytes = read_small(self.disk(), &self.log.path().join(name), 1 << 28);
            let parsed = bytes.ok().and_then(|bytes| parse_snapshot(&bytes).ok());
            if let Some(entries) = parsed {
                let now = Timestamp::from_millis(0);
                producers = ProducerStates::restore(&entries, offset, now, forever);
                break;
            }
        }
        let from = producers.end_offset();
        let first = state.segment_of(from).unwrap_or(0);
        for segment in state.segments.get(first..).unwrap_or_default() {
            if segment.base_offset >= end || segment.limit <= from {
                continue;
            }
            let anchor = self.log.anchor(segment, from.max(segment.base_offset))?;
            let mut scanner = self.scanner(segment);
            scanner.seek(anchor.position, anchor.expected);
            loop {
                match scanner.step()? {
                    Item::Batch(header, position) => {
                        if header.base_offset >= end {
                            break;
                        }
                        if header.base_offset >= from {
                            let marker = marker(&scanner, &header, position);
                            producers.apply(&header, marker);
                        }
                    }
                    Item::Damage(_) => {}
                    Item::End { .. } => break,
                }
            }
        }
        producers.skip_to(end);
        Ok(producers)
    }

    /// The largest timestamps of the first batch and of the whole active segment.
    #[expect(clippy::type_complexity, reason = "two times, one with its offset")]
    fn times(
        &self,
        active: &Arc<Segment>,
    ) -> Result<(Option<Timestamp>, Option<(Timestamp, Offset)>)> {
        let mut scanner = self.shared.scanner(active, HEADER_BYTES);
        let first = match scanner.step()? {
            Item::Batch(header, _) => header.max_timestamp,
            Item::Damage(_) | Item::End { .. } => None,
        };
        let bytes = self.shared.time_index(active);
        let index = TimeIndex::new(active.base_offset, &bytes);
        let last = index.entries_count().checked_sub(1).and_then(|last| index.get(last));
        let mut newest = last.map(|entry| (entry.timestamp, entry.offset));
        let mut scanner = self.shared.scanner(active, SCAN_BYTES);
        if let Some((_, offset)) = newest {
            let anchor = self.log.anchor(active, offset)?;
            scanner.seek(anchor.position, anchor.expected);
        }
        loop {
            match scanner.step()? {
                Item::Batch(header, _) => {
                    let most = header
                        .max_timestamp
                        .filter(|most| newest.is_none_or(|(newest, _)| *most > newest));
                    newest = most.map(|most| (most, header.last_offset)).or(newest);
                }
                Item::Damage(_) => {}
                Item::End { .. } => return Ok((first, newest)),
            }
        }
    }
}

impl Rebuilt {
    fn add(&mut self, base: Offset, header: &BatchHeader, position: Position, limits: &Limits) {
        let newest = self.newest.map_or(-1, |(newest, _)| newest.millis());
        if let Some(most) = header.max_timestamp.filter(|most| most.millis() > newest) {
            self.newest = Some((most, header.last_offset));
        }
        if position.get() - self.last_indexed > limits.index_interval_bytes {
            let entry = IndexEntry { offset: header.last_offset, position }.to_bytes(base);
            self.index.extend_from_slice(&entry.unwrap_or_default());
            self.add_time_entry(base);
            self.last_indexed = position.get();
        }
    }

    fn add_time_entry(&mut self, base: Offset) {
        let Some((timestamp, offset)) = self.newest else { return };
        let last = self.time_index.len().checked_sub(12).and_then(|at| {
            self.time_index[at..].first_chunk().map(|bytes| i64::from_be_bytes(*bytes))
        });
        if timestamp.millis() > last.unwrap_or(-1) {
            let entry = TimeIndexEntry { timestamp, offset }.to_bytes(base);
            self.time_index.extend_from_slice(&entry.unwrap_or_default());
        }
    }

    fn seal(&mut self, base: Offset) {
        self.add_time_entry(base);
    }
}

/// The name that the bytes at `position` of the file `path` are kept under, unless it is taken.
pub(super) fn first_kept_name(path: &Path, position: Position) -> PathBuf {
    path.with_added_extension(format!("{position}.offsetfs"))
}

fn snapshot_offsets(state: &LogState) -> Vec<Offset> {
    state.live_files(SegmentFileKind::Snapshot).map(|file| file.base_offset).collect()
}

/// What the record of a control batch says of a transaction.
pub fn marker(scanner: &Scanner, header: &BatchHeader, position: Position) -> Option<Marker> {
    if !header.control {
        return None;
    }
    let payload = scanner.batch_bytes(header, position)?.get(HEADER_BYTES..)?;
    let record = Cursor::new(header, payload).ok()?.next(header, payload)?.ok()?;
    Marker::of(&record)
}

/// Cuts a log that has no writer off at `target`: whole batches go, with their index entries,
/// epochs and snapshots (format page, "Truncation"). The cut bytes are kept beside unless `discard`
/// says otherwise.
pub fn truncate(log: &Log, target: Offset, discard: bool) -> Result<()> {
    let shared = &log.shared;
    let access = shared.access.as_ref();
    let access = access.ok_or_else(|| Error::refused(log.path(), "this is not to be written"))?;
    let limits = Limits::new(log.name(), &crate::engine::config::effective(log));
    let work = Recovery { log, shared, access, limits: &limits, interrupted: None };
    let state = work.load()?;
    let bases: Vec<_> = state.segments.iter().map(|segment| segment.base_offset).collect();
    let plan = Truncation::to(target, &bases, state.log_end);
    let kept = match plan {
        Truncation::Nothing => state.segments.len(),
        Truncation::Cut { kept } => kept,
        Truncation::StartAfresh(_) => 0,
    };
    for segment in state.segments[kept..].iter().rev() {
        if discard {
            access.begin(work.disk())?;
            remove_segment(work.disk(), log.path(), segment.base_offset)?;
        } else {
            work.set_aside(segment)?;
        }
    }
    let mut epochs = work.epochs(&state)?;
    if let (Truncation::Cut { .. }, Some(last)) = (plan, state.segments[..kept].last()) {
        work.cut_segment(last, target, discard)?;
    }
    if epochs.truncate_from_end(plan.epochs_end(target, state.log_end)) {
        work.write_epochs(&epochs)?;
    }
    let known = access.log_start(work.disk(), log.name())?;
    if known.is_some_and(|start| start > target) {
        access.note_log_start(work.disk(), log.name(), Some(target))?;
    }
    for snapshot in snapshot_offsets(&state).into_iter().filter(|offset| *offset > target) {
        access.begin(work.disk())?;
        let name = SegmentFileKind::Snapshot.file_name(snapshot);
        remove_if_there(work.disk(), &log.path().join(name))?;
    }
    if let Truncation::StartAfresh(offset) = plan {
        work.disk().create(&log.path().join(SegmentFileKind::Log.file_name(offset)))?;
    }
    work.disk().sync_directory(log.path())
}

/// The error of an append to a log with damage before its tail.
pub fn damaged(path: &Path, reason: &str) -> Error {
    Error::Poisoned {
        path: path.to_path_buf(),
        reason: format!("{reason}; `offsetfs repair` sets the damage aside after unmounting"),
    }
}
