//! Records on their way into a log: each goes into the batch in the making when it comes, and a
//! full batch is written. Nothing is kept of a record but its bytes in the batch.
//!
//! Promises: the records are stored in their order; after an error exactly those are that
//! [`Appending::finish`] counts, and the error is about the next one.

use crate::engine::writer::Writer;
use crate::error::{Error, Result};
use crate::format::batch::BatchHeader;
use crate::format::builder::{BatchBuilder, NewRecord};
use crate::format::codec::Codec;
use crate::units::Timestamp;

/// One append that is being made.
#[derive(Debug)]
pub struct Appending<'a> {
    writer: &'a mut Writer,
    builder: BatchBuilder,
    now: Timestamp,
    /// Bytes that a batch may have.
    most: usize,
    stored: usize,
}

impl<'a> Appending<'a> {
    /// An append to the log of `writer`; `builder` lends its memory.
    pub(super) fn new(
        writer: &'a mut Writer,
        builder: BatchBuilder,
        now: Timestamp,
    ) -> Appending<'a> {
        let most = writer.limits().batch_bytes();
        let mut appending = Appending { writer, builder, now, most, stored: 0 };
        appending.start();
        appending
    }

    /// Takes one record more. After an error none may follow.
    #[inline]
    pub fn add(&mut self, record: &NewRecord<'_>) -> Result<()> {
        let record = NewRecord { timestamp: record.timestamp.or(Some(self.now)), ..*record };
        let limits = self.writer.limits();
        limits.check_timestamp(record.timestamp, self.now)?;
        // What records take after compression is known when it is done.
        let plain = limits.codec.0 == Codec::None;
        let most = if plain { self.most } else { BatchBuilder::BYTES_MAX };
        if self.try_add(&record, most)? {
            return Ok(());
        }
        self.store()?;
        if self.try_add(&record, most)? {
            return Ok(());
        }
        Err(self.too_large(self.builder.bytes_with(&record)))
    }

    /// Could these records be stored? Nothing is.
    pub fn check(mut self) -> Result<()> {
        let batch = self.builder.finish(None).map_err(|e| Error::Invalid(e.to_string()))?;
        let bytes = batch.len();
        let fits = bytes <= self.most;
        let checked = if fits { Ok(()) } else { Err(self.too_large(bytes)) };
        self.writer.put_back(self.builder);
        checked
    }

    /// Writes what is not written yet. How many records were stored, and why not all that came.
    pub fn finish(mut self) -> (usize, Result<()>) {
        let result = self.store();
        self.writer.put_back(self.builder);
        (self.stored, result)
    }

    #[inline]
    fn try_add(&mut self, record: &NewRecord<'_>, most: usize) -> Result<bool> {
        self.builder.add_within(record, most).map_err(|e| Error::TooLarge(e.to_string()))
    }

    fn start(&mut self) {
        let (codec, level) = self.writer.limits().codec;
        self.builder.start(self.writer.log_end(), self.writer.leader_epoch(), codec, level);
    }

    /// Writes the records that came so far.
    fn store(&mut self) -> Result<()> {
        let mut behind = Vec::new();
        let result = self.store_parts(&mut behind);
        self.start();
        result
    }

    /// The same; records that turn out to need several batches wait in `behind`, the next last.
    fn store_parts(&mut self, behind: &mut Vec<BatchBuilder>) -> Result<()> {
        while self.builder.records_count() > 0 {
            let count = self.builder.records_count();
            let append_time = self.writer.limits().log_append_time.then_some(self.now);
            let invalid = |e: crate::format::FormatError| Error::Invalid(e.to_string());
            let batch = self.builder.finish(append_time).map_err(invalid)?;
            let bytes = batch.len();
            if bytes <= self.most {
                let header = BatchHeader::parse(batch).map_err(invalid)?;
                self.writer.check_usable()?;
                self.writer.append_stored(batch, &header, None, self.now)?;
                self.stored += count as usize;
                match behind.pop() {
                    Some(next) => self.builder = next,
                    None => return Ok(()),
                }
            } else if count == 1 {
                return Err(self.too_large(bytes));
            } else {
                let part = u64::from(count) * self.most as u64 / bytes as u64;
                let part = u32::try_from(part).unwrap_or(count).clamp(1, count - 1);
                behind.push(self.builder.split(part).map_err(invalid)?);
            }
        }
        Ok(())
    }

    fn too_large(&self, bytes: usize) -> Error {
        let (most, reason) = (self.most, self.writer.limits().batch_bytes_reason());
        Error::TooLarge(format!(
            "a record whose batch has {bytes} bytes, allowed {most} ({reason})"
        ))
    }
}
