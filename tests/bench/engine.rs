//! Every call of the engine that the benchmarks make. When the engine's API changes, only this file
//! changes.

#![allow(dead_code, reason = "each benchmark uses a part of it")]

use std::path::Path;

use crate::make_log::Codec;
use crate::rounds::Outcome;

const ABSENT: &str = "the engine is not wired up in tests/bench/engine.rs";

/// A partition opened read-only.
pub struct Log;

/// Opens the partition directory `dir` read-only.
pub fn open(dir: &Path) -> Outcome<Log> {
    let _ = dir;
    Err(ABSENT.into())
}

/// Reads all values with CRC checks, as `by-offset/0..` has them; the bytes of the lines.
pub fn decode_values(dir: &Path) -> Outcome<u64> {
    let _ = dir;
    Err(ABSENT.into())
}

/// The pass that finds the sizes of ranges, CRC checked, from nothing; the bytes of the lines.
pub fn extents_pass(dir: &Path) -> Outcome<u64> {
    let _ = dir;
    Err(ABSENT.into())
}

/// Finds the record at `offset` with its batch's CRC checked; the bytes of its value.
pub fn find(log: &Log, offset: u64) -> Outcome<u64> {
    let _ = (log, offset);
    Err(ABSENT.into())
}

/// Finds the first record at or after `timestamp`; its offset.
pub fn find_time(log: &Log, timestamp: i64) -> Outcome<u64> {
    let _ = (log, timestamp);
    Err(ABSENT.into())
}

/// Expands the records of one batch into `out`.
pub fn decompress(codec: Codec, payload: &[u8], out: &mut Vec<u8>) -> Outcome<()> {
    let _ = (codec, payload, out);
    Err(ABSENT.into())
}
