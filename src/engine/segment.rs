//! One segment: its files as they were when the log was last looked at, and the offsets that it
//! answers for.

use std::path::Path;
use std::sync::Arc;

use crate::engine::disk::{DiskFile, Facts};
use crate::engine::mmap::ActiveMap;
use crate::units::Offset;

/// A segment of a log. The value never changes; when the files grow, the log makes a new one.
#[derive(Clone, Debug)]
pub struct Segment {
    /// First offset that the file may hold; its name.
    pub base_offset: Offset,
    /// First offset that the segment does not answer for: the base offset of the next one.
    pub limit: Offset,
    /// Is this the last segment, which may still be written?
    pub active: bool,
    /// The `.log` file.
    pub log: File,
    /// Bytes of the `.log` file that are read: its size, or in the active segment what holds
    /// batches.
    pub valid_bytes: u64,
    /// The last offset of the active segment as its indexes have it, where they were looked at.
    pub promised_last: Option<Offset>,
    /// The log end, where the log was left in order and a checkpoint has it.
    pub known_end: Option<Offset>,
    /// The `.index` file, where there is one.
    pub index: Option<File>,
    /// The `.timeindex` file, where there is one.
    pub time_index: Option<File>,
    /// Both indexes as they grow, while this process writes the segment.
    pub live: Option<(Arc<ActiveMap>, Arc<ActiveMap>)>,
}

/// One file of a segment, with its size and times when it was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Where to read it.
    pub file: DiskFile,
    /// What it was.
    pub facts: Facts,
}

impl File {
    /// Its size when it was looked at; what lies behind is not read.
    pub fn bytes(&self) -> u64 {
        self.facts.bytes
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.file.path
    }
}

impl Segment {
    /// A segment without indexes that is the only one of its log.
    pub fn alone(base_offset: Offset, log: File) -> Segment {
        Segment {
            base_offset,
            limit: Offset::MAX,
            active: true,
            valid_bytes: log.bytes(),
            log,
            promised_last: None,
            known_end: None,
            index: None,
            time_index: None,
            live: None,
        }
    }

    /// The greatest offset that a batch of this file can have, plus one: bounded by the next
    /// segment and by the 31 bits of a relative offset (format page, "index offset overflow").
    pub fn plausible_end(&self) -> Offset {
        let widest = self.base_offset.checked_add(1 << 31).unwrap_or(Offset::MAX);
        self.limit.min(widest)
    }
}
