//! One open `append` file: bytes of writes in, whole records out. No files, no clock, no engine.
//!
//! Promises (contract 4.1, 4.2): the records are the lines that a regular file would hold, however
//! the writes are cut. The complete records of one write are handed over together, inside that
//! write; what stands behind the last delimiter is held until the rest of it comes, or until
//! [`AppendStream::finish`]. No more is held than the longest text of one record.
//!
//! A write that cannot be carried out whole counts up to the delimiter of the last record that was
//! stored. If that is nothing, it is an error, and whose fault it was decides what becomes of the
//! record that failed:
//!
//! - the log's ([`AppendError::Log`]): it stays as far as earlier writes brought it, so that the
//!   same write can be tried again;
//! - its own ([`RecordError`]), and its delimiter is in this write: it is dropped, like all of this
//!   write, and the next write begins a record;
//! - its own, and its delimiter is yet to come: it is dropped, and each write fails alike, up to
//!   and with the one that holds the delimiter.
//!
//! The end of a raw batch is known from its length. Where a batch fails before its end is there,
//! nothing that follows can be trusted, and the stream fails until it is closed.

mod batches;
mod records;
#[cfg(test)]
mod tests;

pub use self::records::Records;

use super::name::Format;
use super::render::raw::NewBatch;
use super::render::{NewRecord, delimiter, parse};
use crate::error::Error;

/// Where records go: the log, or what stands for it in a test.
pub trait Sink {
    /// Stores all of `records`, of which there is at least one, in their order. After an error none
    /// but the first `Partial::stored` are in the log.
    fn append(&mut self, records: &mut Records<'_>) -> Result<(), Partial>;

    /// Stores one batch as it is. After an error nothing of it is in the log.
    fn append_batch(&mut self, batch: &NewBatch<'_>) -> Result<(), AppendError>;

    /// Could this record be stored now, as far as that can be known without storing it?
    fn check(&mut self, record: &NewRecord<'_>) -> Result<(), AppendError>;
}

/// Some records were stored, and then one could not be.
#[derive(Debug)]
pub struct Partial {
    /// How many were.
    pub stored: usize,
    /// Why the next one was not.
    pub error: AppendError,
}

/// Why bytes were not taken.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// The record can never be stored.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The log cannot store now: full, read-only, broken.
    #[error(transparent)]
    Log(#[from] Error),
}

/// What is wrong with a record or batch, in words for whoever wrote it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// It is not what its format wants (EINVAL).
    #[error("{0}")]
    Invalid(String),
    /// It is larger than a limit of the log (EMSGSIZE).
    #[error("{0}")]
    TooLarge(String),
}

/// What bounds the memory of a stream, and with it the records. The log's own limits count the
/// bytes of a batch, which only the sink knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes that a record may take in a batch before compression; in raw input, that a batch
    /// may have.
    pub record_bytes: usize,
    /// Most bytes that a batch of raw input may expand to.
    pub expanded_bytes: usize,
}

/// What became of a write.
#[derive(Debug)]
pub struct WriteResult {
    /// Bytes that were taken: stored, or held as the beginning of a record.
    pub accepted: usize,
    /// Why it was not all of them. If some were, the writer gets their number, and this error when
    /// it writes the others again.
    pub error: Option<AppendError>,
}

/// The state of one open `append` file.
#[derive(Debug)]
pub struct AppendStream {
    format: Format,
    /// The beginning of a record, or of a batch, whose end has not been written yet.
    rest: Vec<u8>,
    /// Records or batches that were stored, to number the one that is not.
    stored: u64,
    /// What is wrong with the record whose delimiter is still to come.
    failed: Option<RecordError>,
}

/// Where and why a write ended early.
struct Stop {
    accepted: usize,
    error: AppendError,
    /// The end of the record that failed is in the write.
    has_end: bool,
}

impl AppendStream {
    /// A stream without bytes.
    pub fn new(format: Format) -> AppendStream {
        AppendStream { format, rest: Vec::new(), stored: 0, failed: None }
    }

    /// Takes the bytes of one write; the complete records among them go to `sink`.
    pub fn write(&mut self, data: &[u8], limits: Limits, sink: &mut impl Sink) -> WriteResult {
        if data.is_empty() {
            return WriteResult { accepted: 0, error: None };
        }
        if let Some(error) = &self.failed {
            let error = error.clone();
            if delimiter(self.format).is_some_and(|byte| memchr::memchr(byte, data).is_some()) {
                self.failed = None;
            }
            return WriteResult { accepted: 0, error: Some(error.into()) };
        }
        let held = self.rest.len();
        let taken = match delimiter(self.format) {
            Some(delimiter) => self.take_text(delimiter, data, limits, sink),
            None => self.take_batches(data, limits, sink),
        };
        match taken {
            Ok(()) => WriteResult { accepted: data.len(), error: None },
            Err(Stop { accepted, error, has_end }) => {
                let error = self.numbered(error);
                if accepted == 0 {
                    self.settle(&error, has_end, held);
                }
                WriteResult { accepted, error: Some(error) }
            }
        }
    }

    /// Makes a record of what is held: at the last close, and at fsync. What can never be stored
    /// is dropped, as after a write.
    pub fn finish(&mut self, sink: &mut impl Sink) -> Result<(), AppendError> {
        if self.rest.is_empty() {
            return Ok(());
        }
        let result = self.rest_as_record().and_then(|record| {
            let mut records = Records::of_one(self.format, record);
            sink.append(&mut records).map_err(|partial| partial.error)
        });
        if let Err(error) = result {
            let error = self.numbered(error);
            self.settle(&error, false, self.rest.len());
            return Err(error);
        }
        self.rest.clear();
        self.stored += 1;
        Ok(())
    }

    /// What [`Self::finish`] would say, without doing it: what a close that may not be the last
    /// one returns.
    pub fn check_finish(&self, sink: &mut impl Sink) -> Result<(), AppendError> {
        if self.rest.is_empty() {
            return Ok(());
        }
        let checked = self.rest_as_record().and_then(|record| sink.check(&record));
        checked.map_err(|error| self.numbered(error))
    }

    /// How many bytes are held.
    pub fn held_bytes(&self) -> usize {
        self.rest.len()
    }

    /// What is held, taken for a whole record.
    fn rest_as_record(&self) -> Result<NewRecord<'_>, AppendError> {
        let record = match self.format {
            Format::Raw => Err(batches::incomplete(&self.rest)),
            Format::Lines | Format::Nul | Format::Tsv | Format::Jsonl => {
                parse(self.format, &self.rest)
            }
        };
        record.map_err(|reason| RecordError::Invalid(reason).into())
    }

    /// After an error with nothing stored. `held` bytes were there before.
    fn settle(&mut self, error: &AppendError, has_end: bool, held: usize) {
        match error {
            AppendError::Log(_) => self.rest.truncate(held),
            AppendError::Record(error) => {
                self.rest.clear();
                self.failed = (!has_end).then(|| error.clone());
            }
        }
    }

    /// `error` with the number, from 1, of the record or batch that it is about.
    fn numbered(&self, error: AppendError) -> AppendError {
        let unit = if self.format == Format::Raw { "batch" } else { "record" };
        let number = self.stored + 1;
        let say = |reason: String| format!("{unit} {number}: {}", presentable(&reason));
        match error {
            AppendError::Record(RecordError::Invalid(reason)) => {
                RecordError::Invalid(say(reason)).into()
            }
            AppendError::Record(RecordError::TooLarge(reason)) => {
                RecordError::TooLarge(say(reason)).into()
            }
            AppendError::Log(error) => AppendError::Log(error),
        }
    }
}

/// Most characters of a reason that are shown: it may quote what was written.
const REASON_CHARACTERS_MAX: usize = 400;

/// `reason` in a length that one can read and without control characters.
fn presentable(reason: &str) -> String {
    let plain = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
    let mut shown: String = reason.chars().take(REASON_CHARACTERS_MAX).map(plain).collect();
    if reason.chars().nth(REASON_CHARACTERS_MAX).is_some() {
        shown.push_str("...");
    }
    shown
}

/// Appends `more` to `bytes`, which has room for `most` at most.
fn extend(bytes: &mut Vec<u8>, more: &[u8], most: usize) {
    let needed = bytes.len() + more.len();
    if needed > bytes.capacity() {
        // Twice as much each time, but never more than can be used.
        let room = bytes.capacity().saturating_mul(2).min(most).max(needed);
        bytes.reserve_exact(room - bytes.len());
    }
    bytes.extend_from_slice(more);
}
