//! Fuzzes a whole partition.

#![no_main]

#[path = "../probe.rs"]
#[allow(dead_code, reason = "each target is one of them")]
mod probe;

libfuzzer_sys::fuzz_target!(|data: &[u8]| probe::partition(data));
