//! How a data directory is read: what the user may choose.

use std::path::PathBuf;
use std::sync::Arc;

use crate::engine::extent::DamagePolicy;
use crate::engine::trace::Trace;

/// The choices, with what is usual.
#[derive(Clone, Debug)]
pub struct ReadOptions {
    /// Which records a reader sees.
    pub isolation: Isolation,
    /// How damage is shown in ranges.
    pub damage: DamagePolicy,
    /// Where logs begin.
    pub log_start: LogStart,
    /// Bytes that one batch, and all large ones in use together, may take in memory.
    pub max_batch_bytes: usize,
    /// Follow a partition directory that is a symbolic link.
    pub follow_symlinks: bool,
    /// Where sizes are kept from one run to the next.
    pub cache_dir: Option<PathBuf>,
    /// Files that are open at once at the most.
    pub open_files: usize,
    /// Where searches tell their steps.
    pub trace: Option<Arc<Trace>>,
}

/// Kafka's isolation levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Isolation {
    /// All data records.
    #[default]
    ReadUncommitted,
    /// No aborted ones, and none from the first open transaction on.
    ReadCommitted,
}

/// Which offset a log begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum LogStart {
    /// The one in `log-start-offset-checkpoint`.
    #[default]
    Checkpoint,
    /// The first one on the disk.
    Disk,
}

impl Default for ReadOptions {
    fn default() -> ReadOptions {
        ReadOptions {
            isolation: Isolation::default(),
            damage: DamagePolicy::default(),
            log_start: LogStart::default(),
            max_batch_bytes: 256 << 20,
            follow_symlinks: false,
            cache_dir: None,
            open_files: 128,
            trace: None,
        }
    }
}
