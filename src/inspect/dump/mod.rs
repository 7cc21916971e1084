//! What Kafka's `DumpLogSegments` prints of a file of a log, byte for byte (contract 7.4).
//!
//! What is printed for a file depends on the end of its name, as there. Text is appended to a
//! buffer that is handed on as it fills, so that memory stays flat whatever the file is. Where
//! bytes are wrong, Kafka's tool throws and ends; here that is told and the dump goes on behind
//! them, so that what Kafka prints is a beginning of it. Checked against Kafka 4.4.0, by the
//! fixtures and by running its tool.

mod batch;
mod control;
pub mod decode;
pub mod files;
mod index;
mod json;
mod line;
mod log;
pub mod out;
mod producers;
pub mod report;
mod schema;
mod schemas;
mod text;
mod unchecked;
mod wire;

use std::sync::Arc;

use crate::engine::disk::Disk;
use crate::error::Result;
use crate::inspect::dump::decode::Decoder;
use crate::inspect::dump::files::Named;
use crate::inspect::dump::out::Out;
use crate::inspect::dump::report::Report;

/// What is to be printed, in the words of the tool's options.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of Kafka's tool")]
pub struct Options {
    /// Keys and values of records too.
    pub print_data_log: bool,
    /// A line for each record, not for batches only.
    pub deep_iteration: bool,
    /// Of indexes only what is wrong.
    pub verify_index_only: bool,
    /// Of indexes only whether a broker would take them.
    pub index_sanity_check: bool,
    /// Of records only their contents.
    pub skip_record_metadata: bool,
    /// Bytes that are looked at where an index says that a batch begins.
    pub max_message_size: u32,
    /// Bytes of a log that are dumped, when not all.
    pub max_bytes: Option<u32>,
    /// How keys and values are shown.
    pub decoder: Decoder,
}

/// A dump of files: how they are read, what is wanted, where text and findings go.
#[derive(Debug)]
pub struct Dumping<'a, 'b> {
    /// The way to the files.
    pub disk: &'a Arc<dyn Disk>,
    /// What is printed.
    pub options: &'a Options,
    /// The text.
    pub out: &'a mut Out<'b>,
    /// What is wrong.
    pub report: &'a mut Report,
}

/// What became of a file that was named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was dumped.
    Dumped,
    /// Its name says that it is none of Kafka's files.
    Unknown,
}

impl Dumping<'_, '_> {
    /// Dumps one file. Fails where it cannot be read; that its bytes are wrong is reported.
    pub fn dump(&mut self, named: &Named) -> Result<Outcome> {
        self.out.text.extend_from_slice(b"Dumping ");
        self.out.text.extend_from_slice(named.bytes());
        self.out.text.push(b'\n');
        match named.suffix() {
            Some(b".log" | b".checkpoint") => log::dump(named, self),
            Some(b".index") => index::dump_offset_index(named, self),
            Some(b".timeindex") => index::dump_time_index(named, self),
            Some(b".snapshot") => producers::dump_snapshot(named, self),
            Some(b".txnindex") => producers::dump_txn_index(named, self),
            Some(_) | None => return Ok(Outcome::Unknown),
        }
        .map(|()| Outcome::Dumped)
    }
}
