//! One data directory and its logs. Knows nothing of FUSE, inodes or names shown to users.
//!
//! Invariants: segments are ordered by base offset, gaps are allowed, overlaps are settled when a
//! log is opened; `log_start <= high_watermark <= log_end`, unless the log start lies behind the
//! end (then nothing is shown); a reader never sees an offset whose bytes are not in the file.
//!
//! Reading needs no lock: a reader takes the [`log::LogState`] of the moment, which never changes.
//! The locks there are (cluster metadata, picture of a log, checkpoints, caches, descriptors,
//! memory budget) are taken in that order and never held while a caller is waited for.

pub mod access;
pub mod active;
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
pub mod transactions;
pub mod truncation;
pub mod window;
pub mod writer;

#[cfg(test)]
pub(crate) mod fixture;
