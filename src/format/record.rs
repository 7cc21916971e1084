//! Records of a batch, read one after the other from its uncompressed bytes, in all three magics.

use super::batch::{BatchHeader, Magic, TimestampType, timestamp};
use super::varint::{read_varint, read_varlong};
use super::{FormatError, legacy};
use crate::units::{Offset, Timestamp};

/// One record, borrowed from the uncompressed bytes of its batch.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Where it stands in the log.
    pub offset: Offset,
    /// Its time; `None` when it has none.
    pub timestamp: Option<Timestamp>,
    /// Its key; `None` is NULL, which is not the same as empty.
    pub key: Option<&'a [u8]>,
    /// Its value; `None` is NULL (a tombstone), which is not the same as empty.
    pub value: Option<&'a [u8]>,
    /// Its headers.
    pub headers: Headers<'a>,
}

/// The headers of one record, in their order; names may repeat, values may be NULL.
#[derive(Clone, Copy, Debug, Default)]
pub struct Headers<'a> {
    count: u32,
    bytes: &'a [u8],
}

/// Where a reading of a batch stands: bytes consumed, records left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    at: usize,
    left: u32,
    /// What is added to the stored offsets of a magic 1 wrapper's messages.
    shift: i64,
}

impl Cursor {
    /// Before the first record of the batch with this header and these uncompressed `bytes` (what
    /// follows the 61-byte header; of a legacy wrapper its expanded value, of a plain legacy message
    /// the message itself). Fails for a legacy wrapper whose inner messages do not fit.
    pub fn new(header: &BatchHeader, bytes: &[u8]) -> Result<Cursor, FormatError> {
        if header.is_legacy_wrapper() {
            let (count, shift) = legacy::survey(header, bytes)?;
            return Ok(Cursor { at: 0, left: count, shift });
        }
        Ok(Cursor { at: 0, left: header.records_count, shift: 0 })
    }

    /// The next record, or `None` after the last. After an error the rest of the batch is unreadable.
    #[inline]
    pub fn next<'a>(
        &mut self,
        header: &BatchHeader,
        bytes: &'a [u8],
    ) -> Option<Result<Record<'a>, FormatError>> {
        if self.left == 0 {
            return (self.at != bytes.len() && header.magic == Magic::V2).then(|| {
                self.at = bytes.len();
                Err(FormatError::invalid("bytes are left after the last record"))
            });
        }
        self.left -= 1;
        let rest = bytes.get(self.at..).unwrap_or_default();
        let read = match header.magic {
            Magic::V2 => read_record(header, rest),
            Magic::V0 | Magic::V1 => legacy::read_message(header, rest, self.shift),
        };
        let Some((record, consumed)) = read else {
            self.left = 0;
            let reason = format!("invalid record at byte {} of the batch", self.at);
            self.at = bytes.len();
            return Some(Err(FormatError::Invalid(reason)));
        };
        self.at += consumed;
        Some(Ok(record))
    }

    /// Records that are still to come.
    pub fn records_left(&self) -> u32 {
        self.left
    }
}

/// The magic 2 record at the start of `data` and its bytes, length field included.
#[inline]
fn read_record<'a>(header: &BatchHeader, data: &'a [u8]) -> Option<(Record<'a>, usize)> {
    let (length, prefix) = read_varint(data)?;
    let body = data.get(prefix..)?.get(..usize::try_from(length).ok()?)?;
    let rest = body.get(1..)?;
    let (timestamp_delta, n) = read_varlong(rest)?;
    let rest = rest.get(n..)?;
    let (offset_delta, n) = read_varint(rest)?;
    let rest = rest.get(n..)?;
    let (key, rest) = read_bytes(rest)?;
    let (value, rest) = read_bytes(rest)?;
    let (count, n) = read_varint(rest)?;
    let bytes = rest.get(n..)?;
    let headers = Headers { count: u32::try_from(count).ok()?, bytes };
    if offset_delta < 0 || !headers.fill_exactly() {
        return None;
    }
    let offset = header.base_offset.checked_add(i64::from(offset_delta))?;
    if offset > header.last_offset {
        return None;
    }
    let timestamp = match header.timestamp_type {
        TimestampType::Create => timestamp(header.base_timestamp.wrapping_add(timestamp_delta)),
        TimestampType::LogAppend => header.max_timestamp,
    };
    Some((Record { offset, timestamp, key, value, headers }, prefix + body.len()))
}

/// A varint length (-1 is NULL), that many bytes, and what follows them.
#[inline]
fn read_bytes(data: &[u8]) -> Option<(Option<&[u8]>, &[u8])> {
    let (length, n) = read_varint(data)?;
    let rest = data.get(n..)?;
    match usize::try_from(length) {
        Ok(length) => rest.split_at_checked(length).map(|(bytes, rest)| (Some(bytes), rest)),
        Err(_) if length == -1 => Some((None, rest)),
        Err(_) => None,
    }
}

impl<'a> Headers<'a> {
    /// How many headers there are.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Name and value of each; names are UTF-8 in what Kafka wrote, but bytes here.
    pub fn iter(&self) -> impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)> + use<'a> {
        let mut rest = self.bytes;
        (0..self.count).map_while(move |_| {
            let (name, after) = read_bytes(rest)?;
            let (value, after) = read_bytes(after)?;
            rest = after;
            Some((name?, value))
        })
    }

    fn fill_exactly(&self) -> bool {
        let mut rest = self.bytes;
        for _ in 0..self.count {
            let Some((Some(_), after)) = read_bytes(rest) else { return false };
            let Some((_, after)) = read_bytes(after) else { return false };
            rest = after;
        }
        rest.is_empty()
    }
}
