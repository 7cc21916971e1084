//! Batch headers: what one entry of a `.log` file says of itself, in all three magics; and the two
//! fields that may change after it was made.

use super::codec::Codec;
use super::{FormatError, field_i16, field_i32, field_i64, set_field};
use crate::units::{LeaderEpoch, Offset, Timestamp};

/// Bytes of every entry that its size field does not count: offset and size.
pub const LOG_OVERHEAD: usize = 12;
/// Bytes that classify any entry: offset, size, CRC or epoch, magic. A file that ends with no more
/// than these has no further entry (format page, "Iterating a .log file").
pub const PREFIX_BYTES: usize = 17;
/// Header bytes of a magic 2 batch; records follow.
pub const HEADER_BYTES: usize = 61;
/// Least value of the size field, in any magic.
const MIN_SIZE: i32 = 14;

/// What the first 17 bytes of an entry say, in any magic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// Base offset of a magic 2 batch, last offset of a legacy message.
    pub offset: Offset,
    /// Bytes of the whole entry, this prefix included.
    pub bytes: u64,
    /// Format of the entry.
    pub magic: Magic,
}

/// The three formats of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Magic {
    V0,
    V1,
    V2,
}

/// Who set the timestamp of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimestampType {
    /// The producer; every record has its own.
    Create,
    /// The broker when it appended; all records of a batch share it.
    LogAppend,
}

impl Prefix {
    /// The prefix at the start of `data`. Fails when fewer than 17 bytes are there, on a negative
    /// offset, a size that no entry can have, or an unknown magic.
    pub fn parse(data: &[u8]) -> Result<Prefix, FormatError> {
        if data.len() < PREFIX_BYTES {
            return Err(FormatError::Short {
                what: "batch prefix",
                needs: PREFIX_BYTES,
                has: data.len(),
            });
        }
        let raw_offset = field_i64(data, 0)?;
        let offset = Offset::new(raw_offset)
            .ok_or_else(|| FormatError::invalid(format!("negative base offset {raw_offset}")))?;
        let size = field_i32(data, 8)?;
        let magic = Magic::parse(data[16])?;
        let least =
            if magic == Magic::V2 { 49 } else { MIN_SIZE + i32::from(magic == Magic::V1) * 8 };
        match u64::try_from(size) {
            Ok(bytes) if size >= least => {
                Ok(Prefix { offset, bytes: bytes + LOG_OVERHEAD as u64, magic })
            }
            _ => {
                Err(FormatError::invalid(format!("batch length {size}, expected at least {least}")))
            }
        }
    }
}

impl Magic {
    fn parse(byte: u8) -> Result<Magic, FormatError> {
        match byte {
            0 => Ok(Magic::V0),
            1 => Ok(Magic::V1),
            2 => Ok(Magic::V2),
            other => Err(FormatError::invalid(format!("magic {other}, expected 0, 1 or 2"))),
        }
    }

    /// The number on disk.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Bytes that [`BatchHeader::parse`] wants of an entry of this magic.
    pub const fn header_bytes(self) -> usize {
        match self {
            Magic::V0 => 18,
            Magic::V1 => 26,
            Magic::V2 => HEADER_BYTES,
        }
    }
}

/// The header of one batch, or of one legacy message or wrapper seen as a batch of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// Format of the batch.
    pub magic: Magic,
    /// Offset of the first record that the batch ever had. Of a legacy wrapper it is not known
    /// before decompression, and this is its last offset.
    pub base_offset: Offset,
    /// Offset of the last record that the batch ever had.
    pub last_offset: Offset,
    /// Bytes of the whole batch in the file.
    pub bytes: u64,
    /// Leader epoch, outside the CRC; `None` in legacy messages and where unknown.
    pub leader_epoch: Option<LeaderEpoch>,
    /// Checksum on disk: CRC-32C in magic 2, CRC-32 before.
    pub crc: u32,
    /// How the records are compressed.
    pub codec: Codec,
    /// Who set the timestamps.
    pub timestamp_type: TimestampType,
    /// Part of a transaction (control batches of transactions too).
    pub transactional: bool,
    /// Holds control records, which are not data.
    pub control: bool,
    /// When tombstones and markers of the batch may go (Unix milliseconds); set by compaction.
    pub delete_horizon: Option<Timestamp>,
    /// What record timestamps are relative to; a raw number, since it may be -1.
    pub base_timestamp: i64,
    /// Largest timestamp of the records, or the append time; `None` when there is none.
    pub max_timestamp: Option<Timestamp>,
    /// Producer id, -1 when none.
    pub producer_id: i64,
    /// Producer epoch, -1 when none.
    pub producer_epoch: i16,
    /// Sequence number of the first record, -1 when none.
    pub base_sequence: i32,
    /// Number of records in the batch; 1 for a plain legacy message. Of a legacy wrapper it is not
    /// known before decompression, and this is 0.
    pub records_count: u32,
}

impl BatchHeader {
    /// The header at the start of `data`, which must hold at least `Magic::header_bytes` of it.
    /// Checks what can be checked without the records; nothing of the CRC.
    pub fn parse(data: &[u8]) -> Result<BatchHeader, FormatError> {
        // Of a known length, no field needs a look at it.
        let data = data.first_chunk::<HEADER_BYTES>().map_or(data, |whole| whole);
        let prefix = Prefix::parse(data)?;
        if data.len() < prefix.magic.header_bytes() {
            let needs = prefix.magic.header_bytes();
            return Err(FormatError::Short { what: "batch header", needs, has: data.len() });
        }
        match prefix.magic {
            Magic::V2 => parse_v2(prefix, data),
            Magic::V0 | Magic::V1 => parse_legacy(prefix, data),
        }
    }

    /// The checksum of `batch`, the whole entry, as this magic computes it.
    pub fn checksum(&self, batch: &[u8]) -> u32 {
        let covered = batch.get(self.checksum_start()..).unwrap_or_default();
        self.checksum_append(self.checksum_initial(), covered)
    }

    /// Where the bytes begin that the checksum covers; they go to the end of the batch.
    pub const fn checksum_start(&self) -> usize {
        match self.magic {
            Magic::V0 | Magic::V1 => 16,
            Magic::V2 => 21,
        }
    }

    /// The checksum of no bytes, to begin [`Self::checksum_append`] with.
    pub const fn checksum_initial(&self) -> u32 {
        0
    }

    /// The checksum of what `so_far` covers and `more`.
    pub fn checksum_append(&self, so_far: u32, more: &[u8]) -> u32 {
        match self.magic {
            Magic::V0 | Magic::V1 => {
                let mut hasher = crc32fast::Hasher::new_with_initial(so_far);
                hasher.update(more);
                hasher.finalize()
            }
            Magic::V2 => crc32c::crc32c_append(so_far, more),
        }
    }

    /// Is this a legacy message whose value holds compressed messages?
    pub fn is_legacy_wrapper(&self) -> bool {
        self.magic != Magic::V2 && self.codec != Codec::None
    }

    /// Sequence number of the record at `offset`, wrapping from 2^31-1 to 0; -1 when none.
    pub fn sequence_of(&self, offset: Offset) -> i32 {
        if self.base_sequence < 0 {
            return -1;
        }
        let wide = i64::from(self.base_sequence) + (offset.get() - self.base_offset.get());
        i32::try_from(wide.rem_euclid(1 << 31)).unwrap_or(-1)
    }
}

fn parse_v2(prefix: Prefix, data: &[u8]) -> Result<BatchHeader, FormatError> {
    let attributes = field_i16(data, 21)?;
    let last_offset_delta = field_i32(data, 23)?;
    let base_timestamp = field_i64(data, 27)?;
    let max_timestamp = field_i64(data, 35)?;
    let count = field_i32(data, 57)?;
    let records_count = u32::try_from(count)
        .map_err(|_| FormatError::invalid(format!("negative record count {count}")))?;
    let last_offset = (last_offset_delta >= 0)
        .then(|| prefix.offset.checked_add(i64::from(last_offset_delta)))
        .flatten()
        .ok_or_else(|| {
            FormatError::invalid(format!(
                "last offset delta {last_offset_delta} after base offset {}",
                prefix.offset
            ))
        })?;
    Ok(BatchHeader {
        magic: Magic::V2,
        base_offset: prefix.offset,
        last_offset,
        bytes: prefix.bytes,
        leader_epoch: LeaderEpoch::new(field_i32(data, 12)?),
        crc: field_i32(data, 17)?.cast_unsigned(),
        codec: Codec::from_attributes(attributes),
        timestamp_type: timestamp_type(attributes),
        transactional: attributes & 0x10 != 0,
        control: attributes & 0x20 != 0,
        delete_horizon: (attributes & 0x40 != 0).then(|| Timestamp::from_millis(base_timestamp)),
        base_timestamp,
        max_timestamp: timestamp(max_timestamp),
        producer_id: field_i64(data, 43)?,
        producer_epoch: field_i16(data, 51)?,
        base_sequence: field_i32(data, 53)?,
        records_count,
    })
}

fn parse_legacy(prefix: Prefix, data: &[u8]) -> Result<BatchHeader, FormatError> {
    let attributes = i16::from(data[17]);
    let codec = Codec::from_attributes(attributes);
    let (kind, raw) = match prefix.magic {
        Magic::V1 => (timestamp_type(attributes), field_i64(data, 18)?),
        Magic::V0 | Magic::V2 => (TimestampType::Create, -1),
    };
    Ok(BatchHeader {
        magic: prefix.magic,
        base_offset: prefix.offset,
        last_offset: prefix.offset,
        bytes: prefix.bytes,
        leader_epoch: None,
        crc: field_i32(data, 12)?.cast_unsigned(),
        codec,
        timestamp_type: kind,
        transactional: false,
        control: false,
        delete_horizon: None,
        base_timestamp: raw,
        max_timestamp: timestamp(raw),
        producer_id: -1,
        producer_epoch: -1,
        base_sequence: -1,
        records_count: u32::from(codec == Codec::None),
    })
}

fn timestamp_type(attributes: i16) -> TimestampType {
    if attributes & 8 == 0 { TimestampType::Create } else { TimestampType::LogAppend }
}

/// Gives a magic 2 batch, whose header is in `batch`, another base offset, and so moves all of its
/// records. The checksum does not cover it. Fails, and changes nothing, on anything that is no such
/// header, and where the last offset would pass 2^63-1.
pub fn set_base_offset(batch: &mut [u8], base_offset: Offset) -> Result<(), FormatError> {
    let header = magic_2_header(batch)?;
    let delta = header.last_offset.get() - header.base_offset.get();
    if base_offset.checked_add(delta).is_none() {
        let reason = format!("last offset delta {delta} after base offset {base_offset}");
        return Err(FormatError::Invalid(reason));
    }
    set_field(batch, 0, base_offset.get().to_be_bytes());
    Ok(())
}

/// Gives a magic 2 batch, whose header is in `batch`, another leader epoch. The checksum does not
/// cover it. Fails, and changes nothing, on anything that is no such header.
pub fn set_leader_epoch(batch: &mut [u8], epoch: Option<LeaderEpoch>) -> Result<(), FormatError> {
    magic_2_header(batch)?;
    set_field(batch, 12, epoch.map_or(-1, LeaderEpoch::get).to_be_bytes());
    Ok(())
}

fn magic_2_header(batch: &[u8]) -> Result<BatchHeader, FormatError> {
    let header = BatchHeader::parse(batch)?;
    if header.magic != Magic::V2 {
        let reason = format!("a batch of magic {}, expected 2", header.magic.number());
        return Err(FormatError::Invalid(reason));
    }
    Ok(header)
}

/// A timestamp field; -1 is "none" (format page, "Timestamp semantics").
pub(super) fn timestamp(raw: i64) -> Option<Timestamp> {
    (raw != -1).then(|| Timestamp::from_millis(raw))
}

/// What a timestamp field holds; the way back of [`timestamp`].
pub(super) fn millis(timestamp: Option<Timestamp>) -> i64 {
    timestamp.map_or(-1, Timestamp::millis)
}

#[cfg(test)]
mod tests {
    use super::super::tests::*;
    use super::*;
    use proptest::prelude::*;

    fn header(digits: &str) -> BatchHeader {
        let batch = hex(digits);
        let header = BatchHeader::parse(&batch).unwrap();
        assert_eq!(u64::try_from(batch.len()), Ok(header.bytes));
        assert_eq!(header.checksum(&batch), header.crc);
        header
    }

    fn offset(raw: i64) -> Offset {
        Offset::new(raw).unwrap()
    }

    #[test]
    fn a_plain_batch_says_what_kafka_said() {
        let expected = BatchHeader {
            magic: Magic::V2,
            base_offset: offset(100),
            last_offset: offset(102),
            bytes: 95,
            leader_epoch: LeaderEpoch::new(7),
            crc: 0x7e47_02c8,
            codec: Codec::None,
            timestamp_type: TimestampType::Create,
            transactional: false,
            control: false,
            delete_horizon: None,
            base_timestamp: 1000,
            max_timestamp: timestamp(1005),
            producer_id: -1,
            producer_epoch: -1,
            base_sequence: -1,
            records_count: 3,
        };
        assert_eq!(header(PLAIN), expected);
        assert_eq!(expected.sequence_of(offset(101)), -1);
    }

    #[test]
    fn compressed_batches_differ_in_codec_size_and_checksum_only() {
        let plain = header(PLAIN);
        for (digits, codec) in
            [(GZIP, Codec::Gzip), (SNAPPY, Codec::Snappy), (LZ4, Codec::Lz4), (ZSTD, Codec::Zstd)]
        {
            let header = header(digits);
            let (bytes, crc) = (header.bytes, header.crc);
            assert_eq!(header, BatchHeader { bytes, crc, codec, ..plain.clone() });
        }
    }

    #[test]
    fn attributes_are_told_apart() {
        let stamped = header(LOG_APPEND_TIME);
        assert_eq!(stamped.timestamp_type, TimestampType::LogAppend);
        assert_eq!((stamped.base_timestamp, stamped.max_timestamp), (1000, timestamp(5000)));
        let commit = header(COMMIT);
        assert!(commit.transactional && commit.control);
        assert_eq!((commit.producer_id, commit.producer_epoch, commit.base_sequence), (9, 3, -1));
        for digits in [LEADER_CHANGE, SNAPSHOT_HEADER] {
            let header = header(digits);
            assert!(header.control && !header.transactional);
            assert_eq!(header.leader_epoch, LeaderEpoch::new(4));
        }
    }

    /// Rows 138 to 140 of kafka-behaviours (`MemoryRecordsTest.testFilterTo`,
    /// `testBaseTimestampToDeleteHorizonConversion`, `testEmptyBatchRetention`), read.
    #[test]
    fn compacted_batches_keep_their_offsets() {
        let compacted = header(COMPACTED);
        assert_eq!((compacted.base_offset, compacted.last_offset), (offset(100), offset(102)));
        assert_eq!((compacted.records_count, compacted.delete_horizon), (2, timestamp(50100)));
        let empty = header(EMPTY);
        assert_eq!((empty.base_offset, empty.last_offset), (offset(100), offset(104)));
        assert_eq!((empty.bytes, empty.records_count), (61, 0));
        assert_eq!((empty.base_timestamp, empty.max_timestamp), (-1, timestamp(1005)));
        assert_eq!((empty.producer_id, empty.producer_epoch), (9, 3));
        assert_eq!((empty.base_sequence, empty.sequence_of(empty.last_offset)), (10, 14));
    }

    #[test]
    fn legacy_headers_say_what_they_can() {
        let first = BatchHeader::parse(&hex(TWO_V0)).unwrap();
        assert_eq!((first.magic, first.last_offset, first.bytes), (Magic::V0, offset(5), 30));
        assert_eq!((first.max_timestamp, first.records_count), (None, 1));
        let first = BatchHeader::parse(&hex(TWO_V1)).unwrap();
        assert_eq!((first.magic, first.last_offset, first.bytes), (Magic::V1, offset(5), 38));
        assert_eq!((first.max_timestamp, first.records_count), (timestamp(1000), 1));
        for (digits, magic, codec, max_timestamp) in [
            (WRAPPER_V1_GZIP, Magic::V1, Codec::Gzip, timestamp(1005)),
            (WRAPPER_V0_LZ4, Magic::V0, Codec::Lz4, None),
            (WRAPPER_V1_SNAPPY, Magic::V1, Codec::Snappy, timestamp(1005)),
        ] {
            let header = header(digits);
            assert!(header.is_legacy_wrapper());
            assert_eq!((header.magic, header.codec), (magic, codec));
            assert_eq!((header.last_offset, header.records_count), (offset(6), 0));
            assert_eq!(header.max_timestamp, max_timestamp);
        }
    }

    /// kafka-behaviours row 3
    /// (`DefaultRecordBatchTest.buildDefaultRecordBatchWithSequenceWrapAround`).
    #[test]
    fn sequence_numbers_wrap_to_zero() {
        let batch = patched(&hex(PLAIN), 53, &(i32::MAX - 1).to_be_bytes());
        let header = BatchHeader::parse(&batch).unwrap();
        let sequences = [100, 101, 102].map(|raw| header.sequence_of(offset(raw)));
        assert_eq!(sequences, [i32::MAX - 1, i32::MAX, 0]);
    }

    #[test]
    fn offset_and_epoch_are_set_in_place_under_the_same_checksum() {
        for digits in [PLAIN, GZIP, EMPTY, COMMIT] {
            let mut batch = hex(digits);
            let before = header(digits);
            let moved = 4_000_000_000_000 - before.base_offset.get();
            set_base_offset(&mut batch, offset(4_000_000_000_000)).unwrap();
            set_leader_epoch(&mut batch, LeaderEpoch::new(i32::MAX)).unwrap();
            let expected = BatchHeader {
                base_offset: before.base_offset.checked_add(moved).unwrap(),
                last_offset: before.last_offset.checked_add(moved).unwrap(),
                leader_epoch: LeaderEpoch::new(i32::MAX),
                ..before.clone()
            };
            assert_eq!(BatchHeader::parse(&batch), Ok(expected));
            set_base_offset(&mut batch, before.base_offset).unwrap();
            set_leader_epoch(&mut batch, before.leader_epoch).unwrap();
            assert_eq!(batch, hex(digits));
            set_leader_epoch(&mut batch, None).unwrap();
            assert_eq!(BatchHeader::parse(&batch).unwrap().leader_epoch, None);
        }
    }

    /// Byte 12 of a legacy message is its checksum.
    #[test]
    fn what_is_no_whole_header_of_magic_2_is_not_patched() {
        let last = offset(i64::MAX - 1);
        for batch in [hex(TWO_V0), hex(WRAPPER_V1_GZIP), hex(PLAIN)[..60].to_vec()] {
            let mut patched = batch.clone();
            assert!(set_base_offset(&mut patched, last).is_err());
            assert!(set_leader_epoch(&mut patched, LeaderEpoch::new(1)).is_err());
            assert_eq!(patched, batch);
        }
        let mut batch = hex(PLAIN);
        assert!(set_base_offset(&mut batch, last).is_err());
        assert_eq!(batch, hex(PLAIN));
        assert!(set_base_offset(&mut batch, offset(i64::MAX - 2)).is_ok());
    }

    /// kafka-behaviours row 4 (`DefaultRecordBatchTest.testInvalidCrc`).
    #[test]
    fn a_changed_last_offset_does_not_fit_the_checksum() {
        let mut batch = hex(PLAIN);
        batch[23..27].copy_from_slice(&23_i32.to_be_bytes());
        let header = BatchHeader::parse(&batch).unwrap();
        assert_ne!(header.checksum(&batch), header.crc);
    }

    #[test]
    fn every_flipped_bit_is_noticed_except_in_what_the_leader_sets() {
        for digits in [PLAIN, GZIP, LOG_APPEND_TIME, EMPTY, COMMIT] {
            let batch = hex(digits);
            for bit in 17 * 8..batch.len() * 8 {
                let mut flipped = batch.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                let noticed = BatchHeader::parse(&flipped)
                    .map_or(true, |header| header.checksum(&flipped) != header.crc);
                assert!(noticed, "bit {bit}");
            }
        }
    }

    /// kafka-behaviours row 13 (`LegacyRecordTest.testChecksum`).
    #[test]
    fn every_byte_behind_the_checksum_of_a_legacy_message_matters() {
        for digits in [WRAPPER_V0_LZ4, WRAPPER_V1_GZIP, &TWO_V0[..60], &TWO_V1[..76]] {
            let message = hex(digits);
            assert!(header(digits).checksum(&message) == header(digits).crc);
            for at in (16..message.len()).filter(|&at| message[at] != 69) {
                let mut changed = message.clone();
                changed[at] = 69;
                let noticed = BatchHeader::parse(&changed)
                    .map_or(true, |header| header.checksum(&changed) != header.crc);
                assert!(noticed, "byte {at}");
            }
        }
    }

    #[test]
    fn a_checksum_may_be_computed_in_pieces() {
        for digits in [PLAIN, WRAPPER_V1_GZIP] {
            let (batch, header) = (hex(digits), header(digits));
            let covered = &batch[header.checksum_start()..];
            for cut in 0..covered.len() {
                let first = header.checksum_append(header.checksum_initial(), &covered[..cut]);
                assert_eq!(header.checksum_append(first, &covered[cut..]), header.crc);
            }
        }
    }

    #[test]
    fn impossible_fields_are_refused() {
        let batch = hex(PLAIN);
        for (at, bytes) in [
            (0, &(-1_i64).to_be_bytes()[..]),
            (0, &i64::MAX.to_be_bytes()),
            (8, &48_i32.to_be_bytes()),
            (8, &(-1_i32).to_be_bytes()),
            (16, &[3]),
            (16, &[0xff]),
            (23, &(-1_i32).to_be_bytes()),
            (57, &(-1_i32).to_be_bytes()),
        ] {
            let mut batch = batch.clone();
            batch[at..at + bytes.len()].copy_from_slice(bytes);
            let error = BatchHeader::parse(&batch).unwrap_err();
            assert!(matches!(error, FormatError::Invalid(_)), "{at}: {error}");
        }
        for (digits, least) in [(TWO_V0, 14_i32), (TWO_V1, 22)] {
            let mut message = hex(digits);
            message[8..12].copy_from_slice(&(least - 1).to_be_bytes());
            assert!(matches!(Prefix::parse(&message), Err(FormatError::Invalid(_))));
            message[8..12].copy_from_slice(&least.to_be_bytes());
            assert!(Prefix::parse(&message).is_ok());
        }
    }

    #[test]
    fn a_header_that_stops_is_short_not_wrong() {
        for digits in [PLAIN, TWO_V0, TWO_V1] {
            let batch = hex(digits);
            let needs = BatchHeader::parse(&batch).unwrap().magic.header_bytes();
            for length in 0..needs {
                let error = BatchHeader::parse(&batch[..length]).unwrap_err();
                assert!(matches!(error, FormatError::Short { .. }), "{length}: {error}");
            }
            assert!(BatchHeader::parse(&batch[..needs]).is_ok());
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_header_or_an_error(mut bytes: Vec<u8>, magic in 0..3_u8) {
            let _either = BatchHeader::parse(&bytes);
            if bytes.len() > 16 {
                bytes[16] = magic;
                bytes[0] &= 0x7f;
                bytes[8] = 0;
            }
            if let Ok(header) = BatchHeader::parse(&bytes) {
                let _number = header.checksum(&bytes);
                let _number = header.sequence_of(header.last_offset);
            }
        }
    }
}
