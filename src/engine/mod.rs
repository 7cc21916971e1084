//! One data directory and its logs. Knows nothing of FUSE, inodes or names shown to users.
//!
//! Invariants: segments are ordered by base offset, gaps are allowed, overlaps are settled when a
//! log is opened; `log_start <= high_watermark <= log_end`, unless the log start lies behind the
//! end (then nothing is shown); a reader never sees an offset whose bytes are not in the file;
//! bytes below the high watermark never change.
//!
//! Durability: a record is in the file when an append returns (it survives this process), and on
//! the disk when a sync returns. After a write that could not be undone, or a failed sync, a log
//! takes no appends until it is opened again.
//!
//! Reading needs no lock: a reader takes the [`log::LogState`] of the moment, which never changes.
//! A writer publishes when the bytes are there. Locks are taken in this order, and none is held
//! while a caller is waited for: listing, writer of a log, picture of a log, what it has published,
//! checkpoints, caches, descriptors, memory budget.

pub mod access;
pub mod active;
pub mod appending;
pub mod batches;
pub mod cache;
pub mod checkpoints;
pub mod config;
pub mod damage;
pub mod data_dir;
pub mod disk;
pub mod epochs;
pub mod extent;
pub mod extent_store;
pub mod facts;
pub mod find;
pub mod index;
pub mod limits;
pub mod load;
pub mod lock;
pub mod log;
pub mod mend;
pub mod metadata;
pub mod missing;
#[expect(unsafe_code, reason = "the room of memory maps")]
pub mod mmap;
pub mod options;
pub mod producers;
pub mod read;
pub mod recovery;
pub mod resync;
pub mod retention;
pub mod roll;
pub mod scanner;
pub mod segment;
pub mod settle;
pub mod snapshots;
pub mod soundness;
pub mod source;
pub mod time_bounds;
pub mod trace;
pub mod transactions;
pub mod truncation;
pub mod window;
pub mod writer;

#[cfg(test)]
pub(crate) mod fixture;
