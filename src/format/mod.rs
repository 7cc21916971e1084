//! The on-disk format: bytes to values, and values to bytes. No files, no clock, no threads, no
//! logging; every parser takes a slice and may be fed anything.
//!
//! This page is the format. Facts were read in Kafka's source and checked against bytes that its
//! own classes wrote (the tests of this room hold them). Numbers are big-endian two's complement,
//! except inside LZ4 and Zstandard frames. Positions and sizes are bytes, times Unix milliseconds.
//!
//! # Names
//!
//! | name | is |
//! |---|---|
//! | `<topic>-<partition>/` | a partition; split at the last dash, number without padding |
//! | `<topic>-<partition>.<32 hex digits>-delete/` | one on its way out; also `-future`, `-stray` |
//! | `<20 digits>.log` | a segment: batches from that base offset on |
//! | `<20 digits>.index`, `.timeindex`, `.txnindex` | the indexes of that segment |
//! | `<20 digits>.snapshot` | producers before that offset, which is itself not covered |
//! | any of these with `.deleted`, `.cleaned`, `.swap` behind | leaving, unfinished, about to replace |
//!
//! A topic's name is 1 to 249 letters, digits, `.`, `_`, `-` of ASCII, but not `.` or `..`. In
//! `-delete` and `-stray` names it may be cut short.
//!
//! # Batch (magic 2)
//!
//! | at | bytes | field | meaning |
//! |---:|---:|---|---|
//! | 0 | 8 | base offset | of the first record that the batch ever had |
//! | 8 | 4 | size | of what follows; at least 49 |
//! | 12 | 4 | leader epoch | -1 unknown |
//! | 16 | 1 | magic | 2 |
//! | 17 | 4 | checksum | CRC-32C of byte 21 to the end |
//! | 21 | 2 | attributes | below |
//! | 23 | 4 | last offset delta | the last offset less the base offset |
//! | 27 | 8 | base timestamp | what record timestamps are relative to; or the delete horizon |
//! | 35 | 8 | max timestamp | largest of the records, or the append time |
//! | 43 | 8 | producer id | -1 none |
//! | 51 | 2 | producer epoch | -1 none |
//! | 53 | 4 | base sequence | -1 none; a record's own is this plus its offset delta, modulo 2^31 |
//! | 57 | 4 | records count | 0 is legal |
//! | 61 | | records | compressed as one, if the attributes name a codec |
//!
//! Bytes 0 to 20 are outside the checksum: the leader sets offset and epoch in place.
//!
//! | attribute bits | meaning |
//! |---|---|
//! | 0-2 | codec: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd; 5 to 7 do not exist |
//! | 3 | append time: every record has the max timestamp |
//! | 4 | part of a transaction |
//! | 5 | control batch: its record is no data |
//! | 6 | the base timestamp is the delete horizon |
//!
//! Compaction removes records and leaves the header: the count shrinks, offsets have holes, and a
//! batch of no records may stay as 61 bytes. The next offset is the last offset plus one, whatever
//! the count.
//!
//! # Record
//!
//! `length` (varint, of what follows), attributes (1 byte, 0), timestamp delta (varlong), offset
//! delta (varint), key length (varint, -1 is NULL), key, value length (varint, -1 is NULL), value,
//! number of headers (varint), headers. A header is: name length (varint), name, value length
//! (varint, -1 is NULL), value. The fields fill `length` exactly, and the records fill the batch
//! exactly.
//!
//! A control record's key is two 16-bit numbers, version and type: 0 ABORT, 1 COMMIT, 2
//! `LEADER_CHANGE`.
//!
//! ## varint
//!
//! Zig-zag (0, -1, 1, -2 become 0, 1, 2, 3), then groups of 7 bits, lowest first, bit 7 of a byte
//! says that another follows. At most 5 bytes, 10 for a varlong.
//!
//! ## Timestamp semantics
//!
//! -1 is no timestamp. With attribute bit 3 the deltas stay as the producer made them and mean
//! nothing.
//!
//! # Legacy messages
//!
//! | at | bytes | field | meaning |
//! |---:|---:|---|---|
//! | 0 | 8 | offset | |
//! | 8 | 4 | size | of what follows; at least 14 in magic 0, 22 in magic 1 |
//! | 12 | 4 | checksum | CRC-32 of byte 16 to the end |
//! | 16 | 1 | magic | 0 or 1 |
//! | 17 | 1 | attributes | bits 0-2 codec (0 to 3), bit 3 append time (magic 1) |
//! | 18 | 8 | timestamp | magic 1 only |
//! | 18 or 26 | 4 | key length | -1 is NULL; then the key |
//! | | 4 | value length | -1 is NULL; then the value |
//!
//! With a codec it is a *wrapper*: its value expands to whole messages of the same magic without
//! codec, at least one. Inner offsets are absolute in magic 0. In magic 1 the wrapper's offset is
//! that of its last message, and inner offsets are relative to one another; a wrapper at offset 0
//! is taken as it is, any other below its last inner offset is wrong.
//!
//! # Iterating a .log file
//!
//! Batches follow one another without padding; byte 16 is the magic of all of them. At position `p`
//! of a file of `n` bytes: where 17 bytes or fewer are left, or less than the size field says, the
//! bytes stop, and that is no damage. A size below the least of its magic is damage.
//!
//! # Compressed records
//!
//! | codec | framing that is read |
//! |---|---|
//! | gzip | members, one after the other |
//! | snappy | `82 "SNAPPY" 00`, two 32-bit versions, then blocks: 32-bit length, bare snappy block; such a stream may follow another; or one bare block without any of this |
//! | lz4 | LZ4 frames. In magic 0 their header checksum is wrong (it covers the magic number too) and not looked at |
//! | zstd | Zstandard frames; in magic 2 only |
//!
//! Written is one gzip member; one stream of snappy blocks of 32 KiB; one LZ4 frame of independent
//! blocks of 64 KiB, without checksums and content size; one Zstandard frame without checksum.
//!
//! # Index files
//!
//! Dense arrays of entries without header. While a segment is active, and after a crash, `.index`
//! and `.timeindex` are filled up with zeros. *Relative* offsets are relative to the segment's base
//! offset.
//!
//! | file | entry |
//! |---|---|
//! | `.index` | 4 relative last offset of a batch, 4 position of that batch; both increase |
//! | `.timeindex` | 8 largest timestamp so far, 4 relative last offset of its batch; times increase |
//! | `.txnindex` | 2 version (0), 8 producer id, 8 first offset, 8 offset of the ABORT marker, 8 last stable offset after it |
//!
//! A `.txnindex` entry is in the segment of its marker. A search for aborted transactions up to an
//! offset ends at the first entry whose last stable offset is not below it.
//!
//! # Producer snapshots
//!
//! | at | bytes | field |
//! |---:|---:|---|
//! | 0 | 2 | version, 1 |
//! | 2 | 4 | CRC-32C of byte 6 to the end |
//! | 6 | 4 | number of entries |
//! | 10 | 46 each | 8 producer id, 2 epoch, 4 last sequence, 8 last offset, 4 offset delta, 8 timestamp, 4 coordinator epoch, 8 first offset of the open transaction (-1 none) |
//!
//! A last offset of -1 says that the producer has no batch.
//!
//! # Text files
//!
//! | file | holds |
//! |---|---|
//! | `recovery-point-offset-checkpoint` and other offset checkpoints | `0`, number of entries, then `<topic> <partition> <offset>` on each line |
//! | `leader-epoch-checkpoint` | `0`, number of entries, then `<epoch> <start offset>` on each line |
//! | `partition.metadata` | `version: 0`, then `topic_id: <id>` without a newline behind it |
//! | `meta.properties` | `version`, `cluster.id`, `node.id` (`broker.id` in version 0), `directory.id` |
//! | `.kafka_cleanshutdown` | `{"version":0,"brokerEpoch":<n>}`, or nothing; its being there is what counts |
//!
//! An empty checkpoint has no entries; lines more or fewer than promised are an error. An id is 16
//! bytes in URL-safe base64 without padding.

pub mod batch;
pub mod builder;
pub mod checkpoint;
pub mod codec;
pub mod compress;
pub mod index;
pub mod legacy;
pub mod metadata;
pub mod name;
pub mod record;
pub mod snapshot;
pub mod varint;

/// Why bytes are not what the format says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// The bytes end before the structure does.
    #[error("{what} needs {needs} bytes, {has} are there")]
    Short {
        /// Which structure.
        what: &'static str,
        /// Bytes it needs.
        needs: usize,
        /// Bytes there are.
        has: usize,
    },
    /// A field holds what it cannot hold.
    #[error("{0}")]
    Invalid(String),
    /// Compressed bytes expand beyond the bound that the caller gave.
    #[error("expands to more than {limit} bytes")]
    TooLarge {
        /// The bound.
        limit: usize,
    },
}

impl FormatError {
    pub(crate) fn invalid(reason: impl Into<String>) -> FormatError {
        FormatError::Invalid(reason.into())
    }
}

/// The big-endian number at byte `at` of `data`.
macro_rules! big_endian_field {
    ($name:ident, $number:ty) => {
        #[inline]
        pub(crate) fn $name(data: &[u8], at: usize) -> Result<$number, FormatError> {
            data.get(at..)
                .and_then(|rest| rest.first_chunk())
                .map(|bytes| <$number>::from_be_bytes(*bytes))
                .ok_or(FormatError::Short {
                    what: stringify!($number),
                    needs: at + size_of::<$number>(),
                    has: data.len(),
                })
        }
    };
}
big_endian_field!(field_i16, i16);
big_endian_field!(field_i32, i32);
big_endian_field!(field_i64, i64);

/// Writes a field at byte `at` of `data`, which must reach that far.
#[inline]
pub(crate) fn set_field<const BYTES: usize>(data: &mut [u8], at: usize, field: [u8; BYTES]) {
    let place = data.get_mut(at..).and_then(|rest| rest.first_chunk_mut());
    debug_assert!(place.is_some(), "no room for {BYTES} bytes at {at}");
    if let Some(place) = place {
        *place = field;
    }
}

#[cfg(test)]
mod tests {
    //! Bytes that Kafka's own classes wrote (annex A of the format facts), and a reader of them
    //! that uses all of this room. The records of `PLAIN` to `ZSTD`, at offsets 100 to 102: (1000,
    //! `k1`, `v1`), (1005, no key, empty value, headers h=`x` and n=NULL), (999, `k1`, NULL).

    use super::FormatError;
    use super::batch::{BatchHeader, Magic};
    use super::codec::{self, Codec};
    use super::compress::compress;
    use super::legacy;
    use super::record::Cursor;

    /// The bytes that `digits` name, two hexadecimal digits each.
    pub(super) fn hex(digits: &str) -> Vec<u8> {
        let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
        (0..digits.len()).step_by(2).map(byte).collect()
    }

    /// A1.
    pub(super) const PLAIN: &str = "\
        00000000000000640000005300000007027e4702c800000000000200000000000003e80000000000\
        0003edffffffffffffffffffffffffffff0000000314000000046b31047631001a000a0201000402\
        680278026e0110000104046b310100";
    /// A2.
    pub(super) const GZIP: &str = "\
        0000000000000064000000660000000702f14a496200010000000200000000000003e80000000000\
        0003edffffffffffffffffffffffffffff000000031f8b08000000000000ff1361606060c9366429\
        33649062e06262646061ca60aa60ca6314606064014a30320000545e448f22000000";
    /// A3.
    pub(super) const SNAPPY: &str = "\
        0000000000000064000000690000000702f771fdfb00020000000200000000000003e80000000000\
        0003edffffffffffffffffffffffffffff0000000382534e41505059000000000100000001000000\
        24228414000000046b31047631001a000a0201000402680278026e0110000104046b310100";
    /// A4.
    pub(super) const LZ4: &str = "\
        00000000000000640000006200000007021e5ab48900030000000200000000000003e80000000000\
        0003edffffffffffffffffffffffffffff0000000304224d186040822200008014000000046b3104\
        7631001a000a0201000402680278026e0110000104046b31010000000000";
    /// A5.
    pub(super) const ZSTD: &str = "\
        00000000000000640000005f0000000702c7cc988200040000000200000000000003e80000000000\
        0003edffffffffffffffffffffffffffff0000000328b52ffd005810010014000000046b31047631\
        001a000a0201000402680278026e0110000104046b310100010000";
    /// A6.
    pub(super) const LOG_APPEND_TIME: &str = "\
        000000000000000a0000004500000003025196152000080000000100000000000003e80000000000\
        001388ffffffffffffffffffffffffffff0000000214000000046b310476310010000102046b3101\
        00";
    /// A7.
    pub(super) const EMPTY: &str = "\
        000000000000006400000031000000070289a58fa1000000000004ffffffffffffffff0000000000\
        0003ed000000000000000900030000000a00000000";
    /// A8.
    pub(super) const COMPACTED: &str = "\
        00000000000000640000004c0000000702b62571f8004000000002000000000000c3b40000000000\
        0003edffffffffffffffffffffffffffff000000021e008dff050201000402680278026e01140099\
        ff0504046b310100";
    /// A9.
    pub(super) const COMMIT: &str = "\
        000000000000002a00000042000000070247fd756b00300000000000000000000007d00000000000\
        0007d000000000000000090003ffffffff000000012000000008000000010c00000000000b00";
    /// A10.
    pub(super) const LEADER_CHANGE: &str = "\
        00000000000000000000005400000004021ec5941100200000000000000000000007d00000000000\
        0007d0ffffffffffffffffffffffffffff0000000144000000080000000230000000000001030000\
        00010000000002000200000001000000";
    /// A11.
    pub(super) const SNAPSHOT_HEADER: &str = "\
        00000000000000000000004700000004026fab445b00200000000000000000000007d00000000000\
        0007d0ffffffffffffffffffffffffffff000000012a000000080000000316000000000000000004\
        d20000";
    /// A12.
    pub(super) const TWO_V0: &str = "\
        00000000000000050000001257e7496e0000000000026b3100000002763100000000000000060000\
        0010d5960a780000ffffffff000000027632";
    /// A13.
    pub(super) const TWO_V1: &str = "\
        00000000000000050000001ab1a6ec76010000000000000003e8000000026b310000000276310000\
        000000000006000000185fce508c010000000000000003edffffffff000000027632";
    /// A14.
    pub(super) const WRAPPER_V1_GZIP: &str = "\
        0000000000000006000000516c52daaa010100000000000003edffffffff0000003b1f8b08000000\
        000000ff63608003a98dcbde94314239cc2f800453b621882c33840a822425e2cf05f4c055bdfd0f\
        04603546004a4df2984a000000";
    /// A15.
    pub(super) const WRAPPER_V0_LZ4: &str = "\
        0000000000000006000000521b311c660003ffffffff0000004404224d1860401a35000000120001\
        0091050000001257e7496e0f0080026b3100000002760600000200f0060600000010d5960a780000\
        ffffffff00000002763200000000";
    /// A16.
    pub(super) const WRAPPER_V1_SNAPPY: &str = "\
        000000000000000600000062a169a48e010200000000000003edffffffff0000004c82534e415050\
        59000000000100000001000000384a00001901141ab1a6ec76010d101c03e8000000026b31010600\
        7601060101011d10185fce508c010901012c03edffffffff000000027632";

    /// `batch` with `bytes` at `at`, and with the checksum that it then needs.
    pub(super) fn patched(batch: &[u8], at: usize, bytes: &[u8]) -> Vec<u8> {
        let mut batch = batch.to_vec();
        batch[at..at + bytes.len()].copy_from_slice(bytes);
        let header = BatchHeader::parse(&batch).unwrap();
        let place = if header.magic == Magic::V2 { 17 } else { 12 };
        let checksum = header.checksum(&batch).to_be_bytes();
        batch[place..place + 4].copy_from_slice(&checksum);
        batch
    }

    /// One record, in a form that is easily compared: offset, timestamp, key, value, headers.
    pub(super) type Seen =
        (i64, Option<i64>, Option<Vec<u8>>, Option<Vec<u8>>, Vec<(Vec<u8>, Option<Vec<u8>>)>);

    /// A record without headers.
    pub(super) fn seen(
        offset: i64,
        timestamp: Option<i64>,
        key: Option<&str>,
        value: Option<&str>,
    ) -> Seen {
        let bytes = |text: &str| text.as_bytes().to_vec();
        (offset, timestamp, key.map(bytes), value.map(bytes), Vec::new())
    }

    /// Compressible, but not trivially so.
    pub(super) fn sample(bytes: usize) -> Vec<u8> {
        let mut state = 1u32;
        let noise = std::iter::repeat_with(move || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state.to_be_bytes()[0] & 0x1f
        });
        noise.take(bytes).collect()
    }

    /// `data` as a writer stores it under `codec`.
    pub(super) fn compressed(codec: Codec, data: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        compress(codec, None, data, &mut out).unwrap();
        out
    }

    /// The records of `batch`, one whole entry of a log file, after its checksum was looked at.
    pub(super) fn read(batch: &[u8]) -> Result<Vec<Seen>, FormatError> {
        let header = BatchHeader::parse(batch)?;
        if u64::try_from(batch.len()) != Ok(header.bytes) || header.checksum(batch) != header.crc {
            return Err(FormatError::invalid("checksum"));
        }
        let stored = match header.magic {
            Magic::V2 => &batch[header.magic.header_bytes()..],
            Magic::V0 | Magic::V1 if header.codec == Codec::None => batch,
            Magic::V0 | Magic::V1 => legacy::wrapped_value(&header, batch)?,
        };
        let mut bytes = Vec::new();
        codec::decompress(header.codec, header.magic, stored, &mut bytes, 1 << 20)?;
        let mut cursor = Cursor::new(&header, &bytes)?;
        let mut records = Vec::new();
        while let Some(record) = cursor.next(&header, &bytes) {
            let record = record?;
            records.push((
                record.offset.get(),
                record.timestamp.map(crate::units::Timestamp::millis),
                record.key.map(<[u8]>::to_vec),
                record.value.map(<[u8]>::to_vec),
                record
                    .headers
                    .iter()
                    .map(|(name, value)| (name.to_vec(), value.map(<[u8]>::to_vec)))
                    .collect(),
            ));
        }
        assert_eq!(cursor.records_left(), 0);
        Ok(records)
    }
}
