//! offsetfs: Kafka partitions as files.
//!
//! The rooms, from left to right; a room uses what is to its left and knows nothing to its right
//! (`tests/tidy.rs` holds this):
//!
//! ```text
//! units, error, sys  <-  format  <-  engine  <-  view  <-  fs  <-  cli  <-  main
//!                                           <-  inspect   <---------  cli
//! ```
//!
//! - [`units`]: offsets, positions, timestamps and epochs, which are never mixed.
//! - [`error`]: what was tried, on which path, at which position.
//! - [`sys`]: what std lacks of the operating system, behind safe functions.
//! - [`mod@format`]: bytes to values and back; the page on the on-disk format is there.
//! - [`engine`]: one data directory and its logs: find, read, append, roll, recover.
//! - [`view`]: names to offsets and times, records to bytes and back, ranges as files.
//! - [`inspect`]: a log read to be explained: what is wrong with it, what its bytes say.
//! - [`fs`]: the tree of the mount, and the edge to the kernel. The contract with users is
//!   `fs/SEMANTICS.md`.
//! - [`cli`]: what can be typed.
//!
//! Following `cat by-offset/680` from the kernel to the bytes: `fs::fuse` unpacks the request,
//! `fs::tree` asks `view::name` what the name means and `engine::find` for the record, which asks
//! `engine::index` where to begin, `engine::scanner` and `engine::batches` for the batch, and
//! `engine::disk` for its bytes; `format::record` reads the record, `view::record` shows it.
//! Following `echo >> append`: `fs::change` feeds `view::append`, which cuts records for
//! `engine::writer`.
//!
//! Words are Kafka's. An *offset* numbers records, a *position* counts bytes in one file; *first*
//! and *last* are inclusive, *start* and *end* half-open. A *batch* is what a `.log` file is made
//! of; a *segment* is such a file with its indexes; the *active* segment is the last one. A *torn
//! tail* is bytes that stop, *damage* is bytes that are wrong.

pub mod cli;
pub mod engine;
pub mod error;
pub mod format;
pub mod fs;
pub mod inspect;
#[expect(unsafe_code, reason = "the room of unsafe system calls")]
pub mod sys;
pub mod units;
pub mod view;
