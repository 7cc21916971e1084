//! The right to write in a data directory, and what it owes: the lock, the clean-shutdown marker
//! that goes before the first byte is written, and the checkpoints of an orderly end.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::engine::disk::{Disk, DiskFile, read_small, replace_small};
use crate::engine::lock::DirLock;
use crate::engine::mmap::{ActiveMap, SealedMap};
use crate::error::{Error, Result};
use crate::format::checkpoint::{
    CLEAN_SHUTDOWN, HIGH_WATERMARK, LOG_START, OffsetCheckpoint, RECOVERY_POINT,
    parse_offset_checkpoint, write_clean_shutdown, write_offset_checkpoint,
};
use crate::format::name::TopicPartition;
use crate::units::Offset;

/// A data directory that this process writes.
#[derive(Debug)]
pub struct WriteAccess {
    directory: PathBuf,
    lock: DirLock,
    marker: Mutex<Marker>,
    /// Guards the checkpoint files.
    checkpoints: Mutex<()>,
}

#[derive(Debug)]
struct Marker {
    /// What the marker held, if it was there or the directory was fresh.
    content: Option<Vec<u8>>,
    /// Was it removed, because something is written?
    removed: bool,
    /// Is it uncertain that its removal is on the disk? Then nothing may be written.
    uncertain: bool,
    /// Did something happen after which the directory cannot be left in order?
    spoiled: bool,
}

/// Where a log stands, for the checkpoints.
#[derive(Clone, Debug)]
pub struct Standing {
    /// Which log.
    pub name: TopicPartition,
    /// Everything before it is on the disk.
    pub recovery_point: Offset,
    /// Its high watermark.
    pub high_watermark: Offset,
    /// Its log start, where file names do not say the same.
    pub log_start: Option<Offset>,
}

impl WriteAccess {
    /// Takes the lock of `directory`.
    pub fn take(disk: &dyn Disk, directory: &Path) -> Result<WriteAccess> {
        let fresh =
            disk.list(directory)?.iter().all(|name| name == ".lock" || name == "lost+found");
        let lock = DirLock::take(directory)?;
        let content = match read_small(disk, &directory.join(CLEAN_SHUTDOWN), 1 << 16) {
            Ok(content) => Some(content),
            Err(_) => fresh.then(|| write_clean_shutdown(None).into_bytes()),
        };
        Ok(WriteAccess {
            directory: directory.to_path_buf(),
            lock,
            marker: Mutex::new(Marker {
                content,
                removed: false,
                uncertain: false,
                spoiled: false,
            }),
            checkpoints: Mutex::default(),
        })
    }

    /// Was the directory left in order, so that no log needs recovery?
    pub fn was_clean(&self) -> bool {
        self.marker.lock().unwrap_or_else(PoisonError::into_inner).content.is_some()
    }

    /// To be called before anything is written: from now on the directory is not in order.
    pub fn begin(&self, disk: &dyn Disk) -> Result<()> {
        let mut marker = self.marker.lock().unwrap_or_else(PoisonError::into_inner);
        if marker.removed {
            return Ok(());
        }
        if marker.uncertain {
            let reason = "the removal of .kafka_cleanshutdown could not be synced".to_owned();
            return Err(Error::Poisoned { path: self.directory.clone(), reason });
        }
        match disk.remove(&self.directory.join(CLEAN_SHUTDOWN)) {
            Ok(()) => {
                marker.uncertain = true;
                disk.sync_directory(&self.directory)?;
                marker.uncertain = false;
            }
            Err(e) if e.is_not_found() => {}
            Err(e) => return Err(e),
        }
        marker.removed = true;
        Ok(())
    }

    /// From now on the directory is not left in order, whatever comes: the next mount recovers it.
    pub fn spoil(&self) {
        self.marker.lock().unwrap_or_else(PoisonError::into_inner).spoiled = true;
    }

    /// Was anything written?
    pub fn has_begun(&self) -> bool {
        self.marker.lock().unwrap_or_else(PoisonError::into_inner).removed
    }

    /// The recovery point of a log; 0 where none is known.
    pub fn recovery_point(&self, disk: &dyn Disk, name: &TopicPartition) -> Offset {
        let entries = self.read(disk, RECOVERY_POINT).unwrap_or_default();
        entries.get(name).copied().unwrap_or_default()
    }

    /// The log start that is noted.
    pub fn log_start(&self, disk: &dyn Disk, name: &TopicPartition) -> Result<Option<Offset>> {
        let _guard = self.checkpoints.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(self.read(disk, LOG_START)?.get(name).copied())
    }

    /// Notes a log start that is not the base offset of the first segment, or that it is no more.
    pub fn note_log_start(
        &self,
        disk: &dyn Disk,
        name: &TopicPartition,
        start: Option<Offset>,
    ) -> Result<()> {
        let _guard = self.checkpoints.lock().unwrap_or_else(PoisonError::into_inner);
        let mut entries = self.read(disk, LOG_START)?;
        let known = entries.get(name).copied();
        match start {
            Some(start) => entries.insert(name.clone(), start),
            None => entries.remove(name),
        };
        if known == start { Ok(()) } else { self.write(disk, LOG_START, entries) }
    }

    /// Takes a partition that is gone out of all checkpoints.
    pub fn forget(&self, disk: &dyn Disk, name: &TopicPartition) -> Result<()> {
        let _guard = self.checkpoints.lock().unwrap_or_else(PoisonError::into_inner);
        for file in [RECOVERY_POINT, LOG_START, HIGH_WATERMARK] {
            let mut entries = self.read(disk, file)?;
            if entries.remove(name).is_some() {
                self.write(disk, file, entries)?;
            }
        }
        Ok(())
    }

    /// Writes all checkpoints as `standings` say; what they say nothing of stays.
    pub fn checkpoint(&self, disk: &dyn Disk, standings: &[Standing]) -> Result<()> {
        let _guard = self.checkpoints.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut points, mut starts, mut marks) = (
            self.read(disk, RECOVERY_POINT)?,
            self.read(disk, LOG_START)?,
            self.read(disk, HIGH_WATERMARK)?,
        );
        for standing in standings {
            points.insert(standing.name.clone(), standing.recovery_point);
            marks.insert(standing.name.clone(), standing.high_watermark);
            match standing.log_start {
                Some(start) => starts.insert(standing.name.clone(), start),
                None => starts.remove(&standing.name),
            };
        }
        self.write(disk, RECOVERY_POINT, points)?;
        self.write(disk, LOG_START, starts)?;
        self.write(disk, HIGH_WATERMARK, marks)
    }

    /// An orderly end, after every log was closed and the checkpoints were written: the marker
    /// comes back if it was there, if the directory was fresh, or if every log was recovered.
    pub fn leave_marker(&self, disk: &dyn Disk, all_recovered: bool) -> Result<()> {
        let marker = self.marker.lock().unwrap_or_else(PoisonError::into_inner);
        if !marker.removed || marker.spoiled {
            return Ok(());
        }
        let recovered = || all_recovered.then(|| write_clean_shutdown(None).into_bytes());
        match marker.content.clone().or_else(recovered) {
            Some(content) => replace_small(disk, &self.directory.join(CLEAN_SHUTDOWN), &content),
            None => Ok(()),
        }
    }

    /// Removes the lock file and lets go.
    pub fn release(&self) -> Result<()> {
        self.lock.release()
    }

    /// Maps a sealed index; `None` where the system refuses, since a copy will do.
    pub fn map_sealed(&self, disk: &dyn Disk, file: &DiskFile) -> Option<SealedMap> {
        SealedMap::new(&*disk.lend(file).ok()?, &self.lock).ok()
    }

    /// Maps an index that is written.
    pub fn map_active(
        &self,
        disk: &dyn Disk,
        file: &DiskFile,
        published: usize,
    ) -> Result<ActiveMap> {
        let lent = disk.lend(file)?;
        ActiveMap::new(&lent, published, &self.lock).map_err(Error::io("map", &file.path))
    }

    /// What a checkpoint says. One that is missing or malformed is empty, as for a broker; one that
    /// cannot be read must not be replaced by one that knows less.
    fn read(&self, disk: &dyn Disk, name: &str) -> Result<BTreeMap<TopicPartition, Offset>> {
        let bytes = match read_small(disk, &self.directory.join(name), 1 << 28) {
            Ok(bytes) => bytes,
            Err(e) if e.is_not_found() => Vec::new(),
            Err(e) => return Err(e),
        };
        let lines = parse_offset_checkpoint(&bytes).unwrap_or_default();
        Ok(lines.into_iter().map(|line| (line.partition, line.offset)).collect())
    }

    fn write(
        &self,
        disk: &dyn Disk,
        name: &str,
        entries: BTreeMap<TopicPartition, Offset>,
    ) -> Result<()> {
        let lines: Vec<_> = entries
            .into_iter()
            .map(|(partition, offset)| OffsetCheckpoint { partition, offset })
            .collect();
        replace_small(disk, &self.directory.join(name), write_offset_checkpoint(&lines).as_bytes())
    }
}
