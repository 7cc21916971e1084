//! Messages of magic 0 and 1, and the wrappers that hold compressed ones (format page, "Legacy
//! messages"). Read only: no release of Kafka that can still be run writes them.

use super::FormatError;
use super::batch::{BatchHeader, LOG_OVERHEAD, Magic, Prefix, TimestampType, timestamp};
use super::record::{Headers, Record};
use super::{field_i32, field_i64};
use crate::units::Offset;

/// How many messages the expanded value of a wrapper holds, and what is to be added to their stored
/// offsets. Inner offsets are absolute in magic 0, relative in magic 1, where the wrapper carries the
/// last one; a magic 1 wrapper at offset 0 is taken as it is (some clients wrote that).
pub(super) fn survey(wrapper: &BatchHeader, bytes: &[u8]) -> Result<(u32, i64), FormatError> {
    let (mut at, mut count, mut last) = (0, 0u32, None);
    while at < bytes.len() {
        let rest = bytes.get(at..).unwrap_or_default();
        let prefix = Prefix::parse(rest)?;
        let inner = BatchHeader::parse(rest)?;
        if prefix.magic != wrapper.magic || inner.is_legacy_wrapper() {
            return Err(FormatError::invalid(format!(
                "foreign message inside a wrapper at byte {at}"
            )));
        }
        let size = usize::try_from(prefix.bytes).unwrap_or(usize::MAX);
        if size > rest.len() {
            return Err(FormatError::Short { what: "inner message", needs: size, has: rest.len() });
        }
        at += size;
        count += 1;
        last = Some(prefix.offset);
    }
    let last = last.ok_or_else(|| FormatError::invalid("a wrapper without messages"))?;
    let shift = match wrapper.magic {
        Magic::V1 if wrapper.last_offset != Offset::ZERO => wrapper.last_offset.get() - last.get(),
        Magic::V0 | Magic::V1 | Magic::V2 => 0,
    };
    if shift < 0 {
        let reason =
            format!("wrapper offset {} below its inner offset {last}", wrapper.last_offset);
        return Err(FormatError::Invalid(reason));
    }
    Ok((count, shift))
}

/// The value of a wrapper: the compressed bytes. `message` is the whole entry.
pub fn wrapped_value<'a>(
    wrapper: &BatchHeader,
    message: &'a [u8],
) -> Result<&'a [u8], FormatError> {
    read_message(wrapper, message, 0)
        .and_then(|(record, _)| record.value)
        .ok_or_else(|| FormatError::invalid("a wrapper without a value"))
}

/// The message at the start of `data` as a record, and its bytes, prefix included. `batch` is the
/// header of the message itself, or of the wrapper that it was in.
pub(super) fn read_message<'a>(
    batch: &BatchHeader,
    data: &'a [u8],
    shift: i64,
) -> Option<(Record<'a>, usize)> {
    let prefix = Prefix::parse(data).ok()?;
    let size = usize::try_from(prefix.bytes).ok()?;
    let message = data.get(..size)?;
    let own_timestamp = match prefix.magic {
        Magic::V1 => timestamp(field_i64(message, 18).ok()?),
        Magic::V0 | Magic::V2 => None,
    };
    let timestamp = match batch.timestamp_type {
        TimestampType::Create => own_timestamp,
        TimestampType::LogAppend => batch.max_timestamp,
    };
    let rest = message.get(prefix.magic.header_bytes()..)?;
    let (key, rest) = read_bytes(rest)?;
    let (value, rest) = read_bytes(rest)?;
    let record = Record {
        offset: prefix.offset.checked_add(shift)?,
        timestamp,
        key,
        value,
        headers: Headers::default(),
    };
    (rest.is_empty() && size >= LOG_OVERHEAD).then_some((record, size))
}

/// A 32-bit length (-1 is NULL), that many bytes, and what follows them.
fn read_bytes(data: &[u8]) -> Option<(Option<&[u8]>, &[u8])> {
    let length = field_i32(data, 0).ok()?;
    let rest = data.get(4..)?;
    match usize::try_from(length) {
        Ok(length) => rest.split_at_checked(length).map(|(bytes, rest)| (Some(bytes), rest)),
        Err(_) if length == -1 => Some((None, rest)),
        Err(_) => None,
    }
}
