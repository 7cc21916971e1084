//! Messages of magic 0 and 1, and the wrappers that hold compressed ones (format page, "Legacy
//! messages"). Read only: no release of Kafka that can still be run writes them.

use super::FormatError;
use super::batch::{BatchHeader, LOG_OVERHEAD, Magic, Prefix, TimestampType, timestamp};
use super::record::{Headers, Record};
use super::{field_i32, field_i64};
use crate::units::Offset;

/// How many messages the expanded value of a wrapper holds, and what is to be added to their stored
/// offsets. Inner offsets are absolute in magic 0, relative in magic 1, where the wrapper carries
/// the last one; a magic 1 wrapper at offset 0 is taken as it is (some clients wrote that).
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
        if let Some(before) = last.filter(|before| prefix.offset <= *before) {
            let reason =
                format!("inner offset {} behind {before} in a wrapper at byte {at}", prefix.offset);
            return Err(FormatError::Invalid(reason));
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

/// The offset of the first message in a wrapper, of which `bytes` is the expanded value. Fails also
/// where the offset of the wrapper, which its checksum does not cover, contradicts the messages.
pub fn first_offset(wrapper: &BatchHeader, bytes: &[u8]) -> Result<Offset, FormatError> {
    let (count, shift) = survey(wrapper, bytes)?;
    let mut last = Prefix::parse(bytes)?;
    let first = last.offset;
    let mut at = 0;
    for _ in 1..count {
        at += usize::try_from(last.bytes).unwrap_or(usize::MAX);
        last = Prefix::parse(bytes.get(at..).unwrap_or_default())?;
    }
    let (offset, last) = (wrapper.last_offset, last.offset);
    if last.checked_add(shift) != Some(offset) {
        let reason = format!("wrapper offset {offset}, but its last message has {last}");
        return Err(FormatError::Invalid(reason));
    }
    first.checked_add(shift).ok_or_else(|| FormatError::invalid("an offset beyond all offsets"))
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

/// The message at the start of `data` as a record, and what follows it. `batch` is the header of
/// the message itself, or of the wrapper that it was in.
#[inline(never)]
pub(super) fn read_message<'a>(
    batch: &BatchHeader,
    data: &'a [u8],
    shift: i64,
) -> Option<(Record<'a>, &'a [u8])> {
    let prefix = Prefix::parse(data).ok()?;
    let size = usize::try_from(prefix.bytes).ok()?;
    let (message, after) = data.split_at_checked(size)?;
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
    (rest.is_empty() && size >= LOG_OVERHEAD).then_some((record, after))
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

#[cfg(test)]
mod tests {
    use super::super::tests::*;
    use super::*;
    use crate::format::codec::Codec;
    use proptest::prelude::*;

    /// A message with a valid checksum; `timestamp` counts in magic 1 only.
    fn message(
        magic: u8,
        attributes: u8,
        offset: i64,
        timestamp: i64,
        value: Option<&[u8]>,
    ) -> Vec<u8> {
        let mut message = offset.to_be_bytes().to_vec();
        message.extend([0; 8]);
        message.extend([magic, attributes]);
        if magic == 1 {
            message.extend(timestamp.to_be_bytes());
        }
        message.extend((-1_i32).to_be_bytes());
        let length = value.map_or(-1, |value| i32::try_from(value.len()).unwrap());
        message.extend(length.to_be_bytes());
        message.extend(value.unwrap_or_default());
        let size = i32::try_from(message.len() - LOG_OVERHEAD).unwrap();
        patched(&message, 8, &size.to_be_bytes())
    }

    /// A wrapper at `offset` of three messages with the offsets 0, 1, 2 and the timestamps 1, 2, 3.
    fn wrapper_of_three(magic: u8, attributes: u8, offset: i64, timestamp: i64) -> Vec<u8> {
        let inner: Vec<u8> = (0..3).flat_map(|i| message(magic, 0, i, i + 1, Some(b"v"))).collect();
        wrapper_of(magic, attributes, offset, timestamp, &inner)
    }

    fn wrapper_of(magic: u8, attributes: u8, offset: i64, timestamp: i64, inner: &[u8]) -> Vec<u8> {
        let compressed = compressed(Codec::from_attributes(attributes.into()), inner);
        message(magic, attributes, offset, timestamp, Some(&compressed))
    }

    fn offsets(batch: &[u8]) -> Vec<i64> {
        read(batch).unwrap().iter().map(|record| record.0).collect()
    }

    const GZIPPED: u8 = 1;
    const LOG_APPEND: u8 = 8;

    #[test]
    fn messages_that_kafka_wrote_are_read() {
        let v0 = hex(TWO_V0);
        assert_eq!(read(&v0[..30]).unwrap(), [seen(5, None, Some("k1"), Some("v1"))]);
        assert_eq!(read(&v0[30..]).unwrap(), [seen(6, None, None, Some("v2"))]);
        let v1 = hex(TWO_V1);
        assert_eq!(read(&v1[..38]).unwrap(), [seen(5, Some(1000), Some("k1"), Some("v1"))]);
        assert_eq!(read(&v1[38..]).unwrap(), [seen(6, Some(1005), None, Some("v2"))]);
    }

    #[test]
    fn wrappers_that_kafka_wrote_are_read() {
        let v0 = [seen(5, None, Some("k1"), Some("v1")), seen(6, None, None, Some("v2"))];
        let v1 =
            [seen(5, Some(1000), Some("k1"), Some("v1")), seen(6, Some(1005), None, Some("v2"))];
        assert_eq!(read(&hex(WRAPPER_V1_GZIP)).unwrap(), v1);
        assert_eq!(read(&hex(WRAPPER_V0_LZ4)).unwrap(), v0);
        assert_eq!(read(&hex(WRAPPER_V1_SNAPPY)).unwrap(), v1);
    }

    /// kafka-behaviours row 14 (`AbstractLegacyRecordBatchTest.testSetLastOffsetCompressed`).
    #[test]
    fn a_magic_1_wrapper_carries_the_offset_of_its_last_message() {
        let mut wrapper = wrapper_of_three(1, GZIPPED, 2, 3);
        wrapper[..8].copy_from_slice(&500_i64.to_be_bytes());
        assert_eq!(offsets(&wrapper), [498, 499, 500]);
    }

    #[test]
    fn offsets_in_a_magic_0_wrapper_are_absolute() {
        assert_eq!(offsets(&wrapper_of_three(0, GZIPPED, 500, 0)), [0, 1, 2]);
    }

    /// kafka-behaviours row 15
    /// (`AbstractLegacyRecordBatchTest.testIterateCompressedRecordWithWrapperOffsetZero`).
    #[test]
    fn a_wrapper_at_offset_zero_is_taken_as_it_is() {
        for magic in [0, 1] {
            assert_eq!(offsets(&wrapper_of_three(magic, GZIPPED, 0, 3)), [0, 1, 2]);
        }
    }

    /// kafka-behaviours row 16 (`AbstractLegacyRecordBatchTest.testInvalidWrapperOffsetV1`).
    #[test]
    fn a_magic_1_wrapper_below_its_messages_is_invalid() {
        let error = read(&wrapper_of_three(1, GZIPPED, 1, 3)).unwrap_err();
        assert_eq!(error, FormatError::invalid("wrapper offset 1 below its inner offset 2"));
    }

    /// kafka-behaviours row 17 (`AbstractLegacyRecordBatchTest.testSetLogAppendTimeV1`), read.
    #[test]
    fn the_append_time_of_a_wrapper_goes_to_its_messages() {
        let times = |wrapper: &[u8]| -> Vec<_> {
            read(wrapper).unwrap().iter().map(|record| record.1).collect()
        };
        assert_eq!(times(&wrapper_of_three(1, GZIPPED, 2, 3)), [Some(1), Some(2), Some(3)]);
        let stamped = wrapper_of_three(1, GZIPPED | LOG_APPEND, 2, 15);
        assert_eq!(times(&stamped), [Some(15); 3]);
    }

    /// kafka-behaviours row 18 (`AbstractLegacyRecordBatchTest.testZStdCompressionTypeWithV0OrV1`).
    #[test]
    fn zstd_is_refused() {
        for magic in [0, 1] {
            let result = read(&wrapper_of_three(magic, 4, 2, 3));
            assert!(matches!(result, Err(FormatError::Invalid(_))), "{result:?}");
        }
    }

    #[test]
    fn wrappers_hold_plain_messages_of_their_own_magic() {
        let good = message(1, 0, 0, 1, Some(b"v"));
        let wrapped = wrapper_of_three(1, GZIPPED, 2, 3);
        for inner in [
            vec![],
            message(0, 0, 0, 0, Some(b"v")),
            hex(PLAIN),
            wrapped,
            good[..good.len() - 1].to_vec(),
            [&good[..], &[0; 5]].concat(),
        ] {
            let result = read(&wrapper_of(1, GZIPPED, 9, 3, &inner));
            assert!(result.is_err(), "{result:?}");
        }
        assert!(read(&message(1, GZIPPED, 9, 3, None)).is_err());
    }

    #[test]
    fn a_message_with_bytes_behind_its_value_is_invalid() {
        let mut longer = message(1, 0, 0, 1, Some(b"value"));
        let at = longer.len() - 9;
        for length in [4_i32, 6, -2, i32::MAX] {
            longer = patched(&longer, at, &length.to_be_bytes());
            assert!(matches!(read(&longer), Err(FormatError::Invalid(_))), "{length}");
        }
        let fits = patched(&longer, at, &5_i32.to_be_bytes());
        assert_eq!(read(&fits).unwrap(), [seen(0, Some(1), None, Some("value"))]);
    }

    proptest! {
        #[test]
        fn any_bytes_in_a_wrapper_are_messages_or_an_error(
            bytes: Vec<u8>,
            magic in 0..2_u8,
            offset in 0..5_i64,
        ) {
            let _either = read(&wrapper_of(magic, GZIPPED, offset, 1, &bytes));
        }

        #[test]
        fn changed_messages_never_panic(
            at in 0..105_usize,
            byte: u8,
            magic in 0..2_u8,
            offset in 0..i64::MAX,
        ) {
            let plain = |i| message(magic, 0, i, 1, Some(b"v"));
            let mut inner: Vec<u8> = (0..3).flat_map(plain).collect();
            let at = at % inner.len();
            inner[at] = byte;
            let _either = read(&wrapper_of(magic, GZIPPED, offset, 1, &inner));
        }
    }
}
