//! Batches as the dump tool sees them: whatever the bytes at a place say, believed only as far as
//! Kafka's `FileLogInputStream` looks. The batches that are believed by everyone else are those of
//! `engine::scanner`.

use crate::engine::scanner::SMALL_BATCH_BYTES;
use crate::error::Result;
use crate::format::FormatError;
use crate::format::batch::{BatchHeader, HEADER_BYTES, LOG_OVERHEAD, Magic, TimestampType};
use crate::format::codec::Codec;
use crate::inspect::dump::files::Opened;
use crate::units::{Offset, Timestamp};

/// Bytes that are looked at before a batch is taken for one.
const PREFIX_BYTES: u64 = 17;
/// Least value of the size field.
const LEAST_SIZE: i32 = 14;
/// Larger batches are checked in pieces of this size.
const PIECE: usize = 1 << 20;

/// What stands at a place of a `.log` file.
#[derive(Debug)]
pub enum Found {
    /// Something that is taken for a batch.
    Batch(RawBatch),
    /// Nothing: the bytes stop.
    End,
    /// Bytes at which Kafka's tool throws.
    Wrong(String),
}

/// The first bytes of a batch, and where it is.
#[derive(Clone, Debug)]
pub struct RawBatch {
    /// Where it begins.
    pub position: u64,
    /// Bytes of the whole batch.
    pub bytes: u64,
    /// Its magic, which may be any number.
    pub magic: i8,
    header: [u8; HEADER_BYTES],
}

/// Looks at `position` of a log that ends at `end`.
pub fn find(log: &mut Opened, position: u64, end: u64) -> Result<Found> {
    if position + PREFIX_BYTES >= end {
        return Ok(Found::End);
    }
    let held = log.read(position, HEADER_BYTES)?;
    let mut header = [0; HEADER_BYTES];
    let (place, _) = header.split_at_mut(held.len());
    place.copy_from_slice(held);
    let there = held.len();
    let batch = RawBatch { position, bytes: 0, magic: i8::from_be_bytes([header[16]]), header };
    let size = batch.i32_at(8);
    if size < LEAST_SIZE {
        let reason =
            format!("Found record size {size} smaller than minimum record overhead ({LEAST_SIZE})");
        return Ok(Found::Wrong(reason));
    }
    let bytes = u64::from(size.unsigned_abs()) + LOG_OVERHEAD as u64;
    if position + bytes > end {
        return Ok(Found::End);
    }
    if batch.header_bytes() > there {
        return Ok(Found::Wrong(format!("the header of the batch ends after {there} bytes")));
    }
    Ok(Found::Batch(RawBatch { bytes, ..batch }))
}

impl RawBatch {
    /// Is it of the format with headers of 61 bytes? Kafka reads everything newer as magic 2.
    pub fn is_v2(&self) -> bool {
        self.magic >= 2
    }

    fn header_bytes(&self) -> usize {
        match self.magic {
            2.. => HEADER_BYTES,
            1 => Magic::V1.header_bytes(),
            _ => Magic::V0.header_bytes(),
        }
    }

    /// Base offset in magic 2, last offset before.
    pub fn offset(&self) -> i64 {
        i64::from_be_bytes(self.field(0))
    }

    /// The last offset.
    pub fn last_offset(&self) -> i64 {
        let delta = if self.is_v2() { self.i32_at(23) } else { 0 };
        self.offset().wrapping_add(i64::from(delta))
    }

    /// Who set the timestamps; `None` in magic 0, which has none.
    pub fn timestamp_type(&self) -> Option<TimestampType> {
        match (self.magic, self.attributes() & 8) {
            (..=0, _) => None,
            (_, 0) => Some(TimestampType::Create),
            _ => Some(TimestampType::LogAppend),
        }
    }

    /// The largest timestamp of its records, -1 when there is none.
    pub fn max_timestamp(&self) -> i64 {
        match self.magic {
            2.. => i64::from_be_bytes(self.field(35)),
            1 => i64::from_be_bytes(self.field(18)),
            _ => -1,
        }
    }

    /// How its records are compressed.
    pub fn codec(&self) -> Codec {
        Codec::from_attributes(i16::from(self.attributes()))
    }

    /// The stored checksum.
    pub fn crc(&self) -> u32 {
        u32::from_be_bytes(self.field(if self.is_v2() { 17 } else { 12 }))
    }

    /// Part of a transaction.
    pub fn is_transactional(&self) -> bool {
        self.is_v2() && self.attributes() & 0x10 != 0
    }

    /// Holds control records.
    pub fn is_control(&self) -> bool {
        self.is_v2() && self.attributes() & 0x20 != 0
    }

    /// When tombstones and markers may go, in milliseconds.
    pub fn delete_horizon(&self) -> Option<i64> {
        (self.is_v2() && self.attributes() & 0x40 != 0).then(|| i64::from_be_bytes(self.field(27)))
    }

    /// Epoch of the leader that appended it.
    pub fn leader_epoch(&self) -> i32 {
        self.i32_at(12)
    }

    /// Id of its producer.
    pub fn producer_id(&self) -> i64 {
        i64::from_be_bytes(self.field(43))
    }

    /// Epoch of its producer.
    pub fn producer_epoch(&self) -> i16 {
        i16::from_be_bytes(self.field(51))
    }

    /// Sequence number of its first record.
    pub fn base_sequence(&self) -> i32 {
        self.i32_at(53)
    }

    /// Sequence number of its last record.
    pub fn last_sequence(&self) -> i32 {
        match self.base_sequence() {
            -1 => -1,
            base => increment_sequence(base, self.i32_at(23)),
        }
    }

    /// How many records it says that it has.
    pub fn count(&self) -> i32 {
        self.i32_at(57)
    }

    /// Is the checksum that of its bytes? What is small enough is in `log` afterwards.
    pub fn is_valid(&self, log: &mut Opened) -> Result<bool> {
        if self.is_v2() && self.bytes < HEADER_BYTES as u64 {
            return Ok(false);
        }
        let header = self.for_records();
        if self.bytes <= SMALL_BATCH_BYTES {
            let bytes = usize::try_from(self.bytes).unwrap_or(usize::MAX);
            return Ok(header.checksum(log.read(self.position, bytes)?) == header.crc);
        }
        let mut crc = header.checksum_initial();
        let (mut at, end) =
            (self.position + header.checksum_start() as u64, self.position + self.bytes);
        while at < end {
            let piece = usize::try_from(end - at).unwrap_or(PIECE).min(PIECE);
            let held = log.read(at, piece)?;
            if held.is_empty() {
                return Ok(false);
            }
            crc = header.checksum_append(crc, held);
            at += held.len() as u64;
        }
        Ok(crc == header.crc)
    }

    /// The header with which the records of a batch of magic 2 are read, whatever it claims: their
    /// offsets are counted from 0, and [`Self::offset`] is to be added. Of older batches this is
    /// good for the checksum only.
    pub fn for_records(&self) -> BatchHeader {
        BatchHeader {
            magic: if self.is_v2() { Magic::V2 } else { Magic::V1 },
            base_offset: Offset::ZERO,
            last_offset: Offset::new(i64::from(i32::MAX)).unwrap_or_default(),
            bytes: self.bytes,
            leader_epoch: None,
            crc: self.crc(),
            codec: self.codec(),
            timestamp_type: self.timestamp_type().unwrap_or(TimestampType::Create),
            transactional: self.is_transactional(),
            control: self.is_control(),
            delete_horizon: None,
            base_timestamp: i64::from_be_bytes(self.field(27)),
            max_timestamp: Some(self.max_timestamp())
                .filter(|raw| *raw != -1)
                .map(Timestamp::from_millis),
            producer_id: self.producer_id(),
            producer_epoch: self.producer_epoch(),
            base_sequence: self.base_sequence(),
            records_count: self.count().max(0).unsigned_abs(),
        }
    }

    /// The header of a batch of magic 0 or 1.
    pub fn legacy_header(&self) -> Result<BatchHeader, FormatError> {
        BatchHeader::parse(&self.header)
    }

    fn attributes(&self) -> u8 {
        self.header[if self.is_v2() { 22 } else { 17 }]
    }

    fn i32_at(&self, at: usize) -> i32 {
        i32::from_be_bytes(self.field(at))
    }

    fn field<const BYTES: usize>(&self, at: usize) -> [u8; BYTES] {
        let field = self.header.get(at..).and_then(<[u8]>::first_chunk);
        *field.expect("all fields lie within the header")
    }
}

/// A sequence number so many records on; 0 follows 2^31-1. As Kafka computes it, for numbers that
/// make no sense too.
#[inline]
pub fn increment_sequence(sequence: i32, increment: i32) -> i32 {
    if sequence > i32::MAX.wrapping_sub(increment) {
        increment.wrapping_sub(i32::MAX.wrapping_sub(sequence)).wrapping_sub(1)
    } else {
        sequence.wrapping_add(increment)
    }
}
