//! Records of batches whose checksum is wrong, and messages whose offset may be. Nobody else reads
//! those; Kafka's tool prints them as far as it can, and takes some things that no writer makes:
//! any negative length for NULL, offsets before that of the batch, bytes behind a message.

use crate::format::batch::{BatchHeader, TimestampType};
use crate::format::record::{Headers, Record};
use crate::format::varint::{read_varint, read_varlong};
use crate::units::{Offset, Timestamp};

/// A record, with what it says where [`Record`] holds less.
#[derive(Clone, Debug)]
pub struct Unchecked<'a> {
    /// Its offset less that of the batch.
    pub offset_delta: i32,
    /// Length of its key; negative is NULL.
    pub key_size: i32,
    /// Length of its value; negative is NULL.
    pub value_size: i32,
    /// Does a message end before its value does? Then there is none.
    pub is_cut: bool,
    /// Names of its headers.
    pub header_names: Vec<&'a [u8]>,
    /// The rest. Its offset means nothing, and it has no headers.
    pub record: Record<'a>,
}

/// The record of magic 2 at the start of `data`, and what follows it. `None` where Kafka throws.
pub fn read_record<'a>(header: &BatchHeader, data: &'a [u8]) -> Option<(Unchecked<'a>, &'a [u8])> {
    let (length, rest) = read_varint(data)?;
    let (entry, after) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    let (_attributes, body) = entry.split_first()?;
    let (timestamp_delta, body) = read_varlong(body)?;
    let (offset_delta, body) = read_varint(body)?;
    let (key, body) = read_bytes(body)?;
    let (value, body) = read_bytes(body)?;
    let header_names = read_header_names(body)?;
    let timestamp = match header.timestamp_type {
        TimestampType::Create => present(header.base_timestamp.wrapping_add(timestamp_delta)),
        TimestampType::LogAppend => header.max_timestamp,
    };
    let size = |bytes: Option<&[u8]>| bytes.map_or(-1, size_of);
    let unchecked = Unchecked {
        offset_delta,
        key_size: size(key),
        value_size: size(value),
        is_cut: false,
        header_names,
        record: record(timestamp, key, value),
    };
    Some((unchecked, after))
}

fn record<'a>(
    timestamp: Option<Timestamp>,
    key: Option<&'a [u8]>,
    value: Option<&'a [u8]>,
) -> Record<'a> {
    Record { offset: Offset::ZERO, timestamp, key, value, headers: Headers::default() }
}

/// The headers that must fill `data`.
fn read_header_names(data: &[u8]) -> Option<Vec<&[u8]>> {
    let (count, mut rest) = read_varint(data)?;
    let mut names = Vec::new();
    for _ in 0..u32::try_from(count).ok()? {
        let (name, after) = read_bytes(rest)?;
        let (_value, after) = read_bytes(after)?;
        names.push(name?);
        rest = after;
    }
    rest.is_empty().then_some(names)
}

/// The message of magic 0 or 1 that is `message`, all of it, without codec. `None` where Kafka
/// throws.
pub fn read_message(message: &[u8]) -> Option<Unchecked<'_>> {
    let has_timestamp = *message.get(16)? == 1;
    let timestamp = message.get(18..)?.first_chunk().filter(|_| has_timestamp);
    let fields = message.get(if has_timestamp { 26 } else { 18 }..)?;
    let (key_size, rest) = read_int(fields)?;
    let (key, rest) = take(key_size, rest)?;
    let (value_size, rest) = read_int(rest)?;
    let value = take(value_size, rest);
    let timestamp = timestamp.and_then(|bytes| present(i64::from_be_bytes(*bytes)));
    Some(Unchecked {
        offset_delta: 0,
        key_size,
        value_size,
        is_cut: value.is_none(),
        header_names: Vec::new(),
        record: record(timestamp, key, value.and_then(|(value, _)| value)),
    })
}

fn present(timestamp: i64) -> Option<Timestamp> {
    (timestamp != -1).then(|| Timestamp::from_millis(timestamp))
}

fn size_of(bytes: &[u8]) -> i32 {
    i32::try_from(bytes.len()).unwrap_or(i32::MAX)
}

/// A varint length, that many bytes, and what follows them.
fn read_bytes(data: &[u8]) -> Option<(Option<&[u8]>, &[u8])> {
    let (length, rest) = read_varint(data)?;
    take(length, rest)
}

/// So many bytes, or NULL for any negative number, and what follows them.
fn take(length: i32, data: &[u8]) -> Option<(Option<&[u8]>, &[u8])> {
    match usize::try_from(length) {
        Ok(length) => data.split_at_checked(length).map(|(bytes, rest)| (Some(bytes), rest)),
        Err(_) => Some((None, data)),
    }
}

/// A 32-bit number, and what follows it.
fn read_int(data: &[u8]) -> Option<(i32, &[u8])> {
    data.split_first_chunk().map(|(bytes, rest)| (i32::from_be_bytes(*bytes), rest))
}
