//! Mending a log that nobody writes (contract 6.6): bytes that are no batches are taken out of a
//! segment and kept beside, files that are derived from it are made anew. Every step leaves a log
//! that can be read as well as before, so that it may stop anywhere.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::engine::access::{Standing, WriteAccess};
use crate::engine::config;
use crate::engine::disk::{Disk, DiskFile, Kind, read_small, replace_small};
use crate::engine::epochs::LeaderEpochs;
use crate::engine::limits::Limits;
use crate::engine::load;
use crate::engine::log::{Log, LogState};
use crate::engine::recovery::{Recovery, first_kept_name};
use crate::engine::scanner::Item;
use crate::engine::segment::Segment;
use crate::engine::window::read_around;
use crate::engine::writer::remove_if_there;
use crate::error::{Error, Result};
use crate::format::checkpoint::{LEADER_EPOCHS, parse_leader_epochs};
use crate::units::{Offset, Position};

/// Bytes that are copied at once.
const COPY_BYTES: usize = 1 << 20;

/// Bytes of a file: where they begin, and how many they are.
pub type ByteRange = (Position, u64);

/// The tools for one log.
pub struct Mender<'a> {
    log: &'a Log,
    access: &'a WriteAccess,
    limits: Limits,
}

impl<'a> Mender<'a> {
    /// For a log of a data directory that was opened to be written, and that has no writer.
    pub fn new(log: &'a Log) -> Result<Mender<'a>> {
        let access = log.shared().access.as_ref();
        let access =
            access.ok_or_else(|| Error::refused(log.path(), "not opened to be written"))?;
        Ok(Mender { log, access, limits: Limits::new(log.name(), &config::effective(log)) })
    }

    /// The log as its files are now.
    pub fn state(&self) -> Result<LogState> {
        load::load(self.log.shared(), self.log.name(), self.log.path())
    }

    fn disk(&self) -> &dyn Disk {
        &*self.log.shared().disk
    }

    fn recovery(&self) -> Recovery<'_> {
        Recovery {
            log: self.log,
            shared: &self.log.shared,
            access: self.access,
            limits: &self.limits,
            interrupted: None,
        }
    }

    /// Takes `ranges`, which ascend, out of the segment file `log`; each is kept in a file of its
    /// own, named after its position. Where they are. The segment is replaced as a whole.
    pub fn take_out(&self, log: &DiskFile, ranges: &[ByteRange]) -> Result<Vec<PathBuf>> {
        let disk = self.disk();
        let size = disk.facts_of(log)?.bytes;
        let scratch = log.path.with_added_extension("tmp");
        let mut kept = Vec::new();
        for &range in ranges {
            self.write_scratch(&scratch, log, &[range], true)?;
            kept.push(self.keep(&scratch, &log.path, range.0)?);
        }
        let (mut good, mut from) = (Vec::new(), Position::START);
        for &(position, bytes) in ranges.iter().chain([&(Position::new(size), 0)]) {
            good.push((from, position.get().saturating_sub(from.get())));
            from = position.plus(bytes);
        }
        self.write_scratch(&scratch, log, &good, false)?;
        disk.sync_directory(self.log.path())?;
        self.access.begin(disk)?;
        disk.rename(&scratch, &log.path)?;
        disk.sync_directory(self.log.path())?;
        Ok(kept)
    }

    /// Gives `scratch` its name as the bytes that were at `position` of `log`, unless a repair that
    /// was killed has kept the same ones; which name.
    fn keep(&self, scratch: &Path, log: &Path, position: Position) -> Result<PathBuf> {
        let disk = self.disk();
        let before = first_kept_name(log, position);
        if self.are_equal(scratch, &before)? {
            disk.remove(scratch)?;
            return Ok(before);
        }
        let name = self.recovery().kept_name(log, position);
        disk.rename(scratch, &name)?;
        Ok(name)
    }

    /// Have both files the same content? A file that is not there equals none.
    fn are_equal(&self, one: &Path, other: &Path) -> Result<bool> {
        let disk = self.disk();
        let facts = match disk.facts(other) {
            Ok(facts) => facts,
            Err(e) if e.is_not_found() => return Ok(false),
            Err(e) => return Err(e),
        };
        let one_facts = disk.facts(one)?;
        if facts.kind != Kind::File || facts.bytes != one_facts.bytes {
            return Ok(false);
        }
        let one = DiskFile { path: one.to_path_buf(), id: one_facts.id };
        let other = DiskFile { path: other.to_path_buf(), id: facts.id };
        let (mut left, mut right) = (vec![0; COPY_BYTES], vec![0; COPY_BYTES]);
        let mut at = Position::START;
        loop {
            let read = disk.read_at(&one, at, &mut left)?;
            if read != disk.read_at(&other, at, &mut right)? || left[..read] != right[..read] {
                return Ok(false);
            }
            if read == 0 {
                return Ok(true);
            }
            at = at.plus(read as u64);
        }
    }

    /// Writes `ranges` of `log` to a new file that those may read who may read `log`; no file when
    /// this fails.
    fn write_scratch(
        &self,
        scratch: &Path,
        log: &DiskFile,
        ranges: &[ByteRange],
        bad_sectors: bool,
    ) -> Result<()> {
        let disk = self.disk();
        remove_if_there(disk, scratch)?;
        let to = disk.create(scratch)?;
        let write = || {
            disk.copy_rights(log, &to)?;
            let mut at = Position::START;
            for &range in ranges {
                self.copy(log, range, &to, at, bad_sectors)?;
                at = at.plus(range.1);
            }
            disk.sync(&to)
        };
        write().inspect_err(|_| drop(disk.remove(scratch)))
    }

    /// Copies `range` of `from` to `at` in `to`. With `bad_sectors`, what the disk refuses to give
    /// is left zero.
    fn copy(
        &self,
        from: &DiskFile,
        range: ByteRange,
        to: &DiskFile,
        at: Position,
        bad_sectors: bool,
    ) -> Result<()> {
        let (start, bytes) = range;
        let mut buffer = vec![0; COPY_BYTES];
        let mut done = 0;
        while done < bytes {
            let hole = self.disk().hole_end(from, start.plus(done))?.get();
            let skipped = hole.saturating_sub(start.get() + done).min(bytes - done);
            if skipped > 0 {
                done += skipped;
                self.disk().set_bytes(to, at.plus(done).get())?;
                continue;
            }
            let left = usize::try_from(bytes - done).unwrap_or(COPY_BYTES);
            let piece = &mut buffer[..left.min(COPY_BYTES)];
            let read = match self.disk().read_at(from, start.plus(done), piece) {
                Err(e) if bad_sectors && e.is_bad_disk() => {
                    read_around(self.disk(), from, start.plus(done), piece)?.0
                }
                done => done?,
            };
            if read < piece.len() {
                return Err(Error::refused(&from.path, "got shorter while it was repaired"));
            }
            self.disk().write_at(to, at.plus(done), piece)?;
            done += piece.len() as u64;
        }
        Ok(())
    }

    /// Makes the indexes of `segment` anew, as Kafka's recovery does.
    pub fn rebuild_indexes(&self, state: &LogState, segment: &Arc<Segment>) -> Result<()> {
        let work = self.recovery();
        let mut producers = work.producers_before(state, segment.base_offset)?;
        let mut epochs = LeaderEpochs::new(&[]);
        match work.recover_segment(segment, &mut epochs, &mut producers)? {
            None => Ok(()),
            Some(position) => {
                let reason = format!("damage at position {position} came while it was repaired");
                Err(Error::refused(segment.log.path(), reason))
            }
        }
    }

    /// Makes the leader epochs anew, as the batches have them. An epoch that has no record yet is
    /// kept; so is the old file, beside.
    pub fn rebuild_epochs(&self, state: &LogState) -> Result<Option<PathBuf>> {
        let path = self.log.path().join(LEADER_EPOCHS);
        let known = read_small(self.disk(), &path, 1 << 24).ok();
        let kept = match &known {
            Some(bytes) => {
                let name = self.recovery().kept_name(&path, Position::START);
                replace_small(self.disk(), &name, bytes)?;
                Some(name)
            }
            None => None,
        };
        let known = known.and_then(|bytes| parse_leader_epochs(&bytes).ok()).unwrap_or_default();
        let mut epochs = LeaderEpochs::new(&[]);
        for segment in &state.segments {
            let mut scanner = self.log.shared().long_scanner(segment, None);
            loop {
                match scanner.step()? {
                    Item::Batch(header, _) => drop(epochs.append(&header)),
                    Item::Damage(_) => {}
                    Item::End { .. } => break,
                }
            }
        }
        for entry in known.iter().filter(|entry| entry.start == state.log_end) {
            if epochs.latest().is_none_or(|latest| entry.epoch > latest) {
                let _ = epochs.assign(entry.epoch, entry.start);
            }
        }
        let _ = epochs.truncate_from_start(state.log_start);
        self.recovery().write_epochs(&epochs)?;
        Ok(kept)
    }

    /// Gives a file of the partition a name that a broker ignores; which one.
    pub fn put_away(&self, file: &Path) -> Result<PathBuf> {
        self.access.begin(self.disk())?;
        let name = self.recovery().kept_name(file, Position::START);
        self.disk().rename(file, &name)?;
        self.disk().sync_directory(self.log.path())?;
        Ok(name)
    }

    /// Takes back to the log end what the checkpoints have beyond it.
    pub fn lower_checkpoints(&self, state: &LogState) -> Result<()> {
        let (name, checkpoints) = (self.log.name(), &self.log.shared().checkpoints);
        let within = |offset: Option<Offset>| offset.unwrap_or_default().min(state.log_end);
        let standing = Standing {
            name: name.clone(),
            recovery_point: within(checkpoints.recovery_point(name)),
            high_watermark: within(checkpoints.high_watermark(name)),
            log_start: checkpoints.log_start(name),
        };
        self.access.begin(self.disk())?;
        self.access.checkpoint(self.disk(), &[standing])
    }

    /// Something failed half way: a broker must not take the directory for one that was left in
    /// order.
    pub fn spoil(&self) {
        self.access.spoil();
    }
}
