//! offsetfs: Kafka partitions as files.

pub mod cli;
pub mod engine;
pub mod error;
pub mod format;
pub mod fs;
#[expect(unsafe_code, reason = "the room of unsafe system calls")]
pub mod sys;
pub mod units;
pub mod view;
