//! The checkpoint files of a data directory: what a broker noted of its logs. A file that is
//! missing or broken counts as empty, as it does for a broker.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::engine::disk::{Disk, Facts, read_small};
use crate::engine::log::LOOK_AGAIN;
use crate::format::checkpoint::{self, CLEAN_SHUTDOWN, HIGH_WATERMARK, LOG_START, RECOVERY_POINT};
use crate::format::name::TopicPartition;
use crate::units::Offset;

/// A checkpoint of a million partitions is smaller.
const MOST_BYTES: u64 = 256 << 20;

/// Offsets by partition.
type Offsets = HashMap<TopicPartition, Offset>;

/// The checkpoint files, read again when they change.
#[derive(Debug)]
pub struct Checkpoints {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    picture: Mutex<Picture>,
}

#[derive(Debug, Default)]
struct Picture {
    looked: Option<Instant>,
    generation: u64,
    log_start: (Option<Facts>, Offsets),
    high_watermark: (Option<Facts>, Offsets),
    recovery_point: (Option<Facts>, Offsets),
    at_rest: bool,
}

impl Checkpoints {
    /// Those in `directory`; read when something is asked.
    pub fn new(disk: Arc<dyn Disk>, directory: &Path) -> Checkpoints {
        let directory = directory.to_path_buf();
        Checkpoints { disk, directory, picture: Mutex::default() }
    }

    /// The checkpointed log start of a partition.
    pub fn log_start(&self, name: &TopicPartition) -> Option<Offset> {
        self.picture().log_start.1.get(name).copied()
    }

    /// The checkpointed high watermark of a partition.
    pub fn high_watermark(&self, name: &TopicPartition) -> Option<Offset> {
        self.picture().high_watermark.1.get(name).copied()
    }

    /// The checkpointed recovery point of a partition: what lies before it was synced.
    pub fn recovery_point(&self, name: &TopicPartition) -> Option<Offset> {
        self.picture().recovery_point.1.get(name).copied()
    }

    /// Was the directory left in order by whoever wrote it last?
    pub fn at_rest(&self) -> bool {
        self.picture().at_rest
    }

    /// Makes the next question look at the files, after this process wrote them.
    pub fn forget(&self) {
        self.picture.lock().unwrap_or_else(PoisonError::into_inner).looked = None;
    }

    /// A number that changes when any of the files does.
    pub fn generation(&self) -> u64 {
        self.picture().generation
    }

    fn picture(&self) -> MutexGuard<'_, Picture> {
        let mut picture = self.picture.lock().unwrap_or_else(PoisonError::into_inner);
        if picture.looked.is_none_or(|looked| looked.elapsed() >= LOOK_AGAIN) {
            picture.looked = Some(Instant::now());
            self.look(&mut picture);
        }
        picture
    }

    fn look(&self, picture: &mut Picture) {
        let at_rest = self.disk.facts(&self.directory.join(CLEAN_SHUTDOWN)).is_ok();
        let mut changed = at_rest != picture.at_rest;
        picture.at_rest = at_rest;
        changed |= self.read_when_changed(LOG_START, &mut picture.log_start);
        changed |= self.read_when_changed(HIGH_WATERMARK, &mut picture.high_watermark);
        changed |= self.read_when_changed(RECOVERY_POINT, &mut picture.recovery_point);
        picture.generation += u64::from(changed);
    }

    fn read_when_changed(&self, name: &str, known: &mut (Option<Facts>, Offsets)) -> bool {
        let path = self.directory.join(name);
        let facts = self.disk.facts(&path).ok();
        if facts == known.0 {
            return false;
        }
        let offsets = match read_small(&*self.disk, &path, MOST_BYTES) {
            Ok(bytes) => match checkpoint::parse_offset_checkpoint(&bytes) {
                Ok(lines) => lines.into_iter().map(|line| (line.partition, line.offset)).collect(),
                Err(e) => {
                    log::warn!("{}: {e}; ignored", path.display());
                    Offsets::default()
                }
            },
            Err(_) => Offsets::default(),
        };
        *known = (facts, offsets);
        true
    }
}
