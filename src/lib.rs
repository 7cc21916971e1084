//! offsetfs: Kafka partitions as files.

pub mod cli;
pub mod engine;
pub mod error;
pub mod format;
#[expect(unsafe_code, reason = "the system calls that std lacks, one to a block")]
pub mod sys;
pub mod units;
pub mod view;
