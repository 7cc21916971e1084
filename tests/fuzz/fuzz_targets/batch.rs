//! Fuzzes one batch or message.

#![no_main]

#[path = "../probe.rs"]
#[allow(dead_code, reason = "each target is one of them")]
mod probe;

libfuzzer_sys::fuzz_target!(|data: &[u8]| probe::batch(data));
