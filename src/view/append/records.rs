//! Records that end with a delimiter: found in the bytes of a write, parsed one at a time while the
//! sink takes them, so that a write of a million empty lines needs no memory for a million records.

use memchr::{memchr, memchr_iter, memrchr};

use super::super::name::Format;
use super::super::render::{NewRecord, longest_text, parse};
use super::{AppendError, AppendStream, Limits, RecordError, Sink, Stop, extend};
use crate::format::builder;

/// The complete records of one write, in their order, up to the first that is none.
#[derive(Debug)]
pub struct Records<'a> {
    format: Format,
    delimiter: u8,
    longest: usize,
    /// The first record, where earlier writes began it.
    joined: Option<&'a [u8]>,
    /// The others, each with its delimiter.
    text: &'a [u8],
    /// A record that was read before it was asked for.
    ready: Option<NewRecord<'a>>,
    given: usize,
    failure: Option<RecordError>,
}

impl<'a> Records<'a> {
    /// One record, whatever its text was.
    pub(super) fn of_one(format: Format, record: NewRecord<'a>) -> Records<'a> {
        Records { ready: Some(record), ..Records::new(format, 0, 0, None, &[]) }
    }

    fn new(
        format: Format,
        delimiter: u8,
        longest: usize,
        joined: Option<&'a [u8]>,
        text: &'a [u8],
    ) -> Records<'a> {
        let (ready, given, failure) = (None, 0, None);
        Records { format, delimiter, longest, joined, text, ready, given, failure }
    }

    /// Shows the records to `see`, as a batch takes them, for as long as it takes them. The same as
    /// the iterator, but what is nothing but a value is not made a record of its own before.
    #[inline]
    pub fn try_show<E>(
        &mut self,
        mut see: impl FnMut(&builder::NewRecord<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        if let Some(first) = self.next() {
            first.lend(&mut see)?;
        }
        match self.format {
            Format::Lines | Format::Nul => {
                while let Some(value) = self.next_text() {
                    self.given += 1;
                    see(&builder::NewRecord { value: Some(value), ..Default::default() })?;
                }
                Ok(())
            }
            Format::Tsv | Format::Jsonl | Format::Raw => {
                self.try_for_each(|record| record.lend(&mut see))
            }
        }
    }

    /// Is there a record to take?
    fn prepare(&mut self) -> bool {
        self.ready = self.read();
        self.ready.is_some()
    }

    #[inline]
    fn read(&mut self) -> Option<NewRecord<'a>> {
        let text = self.next_text()?;
        parse(self.format, text)
            .map_err(|reason| self.failure = Some(RecordError::Invalid(reason)))
            .ok()
    }

    /// The text of the next record; `None` after the last, and before one that is too long.
    #[inline]
    fn next_text(&mut self) -> Option<&'a [u8]> {
        if self.failure.is_some() {
            return None;
        }
        let text = match self.joined.take() {
            Some(joined) => joined,
            None => self.cut()?,
        };
        if text.len() > self.longest {
            self.failure = Some(too_large(self.longest));
            return None;
        }
        Some(text)
    }

    #[inline]
    fn cut(&mut self) -> Option<&'a [u8]> {
        let (text, rest) = self.text.split_at(memchr(self.delimiter, self.text)?);
        self.text = &rest[1..];
        Some(text)
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = NewRecord<'a>;

    #[inline]
    fn next(&mut self) -> Option<NewRecord<'a>> {
        let record = match self.ready.take() {
            Some(record) => record,
            None => self.read()?,
        };
        self.given += 1;
        Some(record)
    }
}

impl AppendStream {
    pub(super) fn take_text(
        &mut self,
        delimiter: u8,
        data: &[u8],
        limits: Limits,
        sink: &mut impl Sink,
    ) -> Result<(), Stop> {
        let longest = longest_text(self.format, limits.record_bytes);
        let complete = memrchr(delimiter, data).map_or(0, |last| last + 1);
        let (complete, tail) = data.split_at(complete);
        if !complete.is_empty() {
            self.store(delimiter, complete, longest, sink)?;
        }
        if self.rest.len() + tail.len() > longest {
            let error = too_large(longest).into();
            return Err(Stop { accepted: complete.len(), error, has_end: false });
        }
        extend(&mut self.rest, tail, longest);
        Ok(())
    }

    /// Stores the records of `complete`, of which the first may have begun in earlier writes.
    fn store(
        &mut self,
        delimiter: u8,
        complete: &[u8],
        longest: usize,
        sink: &mut impl Sink,
    ) -> Result<(), Stop> {
        let mut text = complete;
        let mut joined = None;
        if !self.rest.is_empty() {
            let end = memchr(delimiter, complete).unwrap_or(complete.len());
            if self.rest.len() + end > longest {
                return Err(Stop { accepted: 0, error: too_large(longest).into(), has_end: true });
            }
            extend(&mut self.rest, &complete[..end], longest);
            text = complete.get(end + 1..).unwrap_or_default();
            joined = Some(self.rest.as_slice());
        }
        let records = Records::new(self.format, delimiter, longest, joined, text);
        let (stored, error) = hand_over(records, sink);
        self.stored += stored as u64;
        if stored > 0 {
            self.rest.clear();
        }
        let Some(error) = error else { return Ok(()) };
        let accepted = end_of(stored, delimiter, complete);
        Err(Stop { accepted, error, has_end: true })
    }
}

/// How many of `records` were stored, and why not all.
fn hand_over(mut records: Records<'_>, sink: &mut impl Sink) -> (usize, Option<AppendError>) {
    if records.prepare()
        && let Err(partial) = sink.append(&mut records)
    {
        return (partial.stored.min(records.given), Some(partial.error));
    }
    let stored = records.given;
    debug_assert!(records.next().is_none(), "the sink says that all are stored and left some");
    (stored, records.failure.take().map(AppendError::from))
}

/// Bytes of the first `count` records of `text`.
fn end_of(count: usize, delimiter: u8, text: &[u8]) -> usize {
    let last = count.checked_sub(1).and_then(|before| memchr_iter(delimiter, text).nth(before));
    last.map_or(0, |at| at + 1)
}

fn too_large(longest: usize) -> RecordError {
    RecordError::TooLarge(format!("longer than {longest} bytes"))
}
