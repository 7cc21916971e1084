//! The command line: what was typed becomes what it means. One command a file.

pub mod format;
pub mod range;
