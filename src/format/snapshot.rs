//! Producer snapshots: what a broker knew of each producer before some offset (format page,
//! "Producer snapshots"). A file with anything wrong is worth nothing as a whole, as for a broker.

use super::batch::millis;
use super::{FormatError, field_i16, field_i32, field_i64, set_field};
use crate::units::{Offset, Timestamp};

/// Bytes before the entries: version, checksum, number of entries.
const HEADER_BYTES: usize = 10;
/// Bytes of one entry.
const ENTRY_BYTES: usize = 46;
/// Where the bytes begin that the checksum covers; they go to the end of the file.
const CHECKSUM_START: usize = 6;

/// What is known of one producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerState {
    /// Its id.
    pub producer_id: i64,
    /// Its epoch.
    pub producer_epoch: i16,
    /// The last batch that it wrote; `None` when only a marker is known.
    pub last_batch: Option<LastBatch>,
    /// Time of its last batch or marker; `None` when it had none.
    pub last_timestamp: Option<Timestamp>,
    /// Epoch of the transaction coordinator that wrote its last marker; -1 when there was none.
    pub coordinator_epoch: i32,
    /// First offset of its open transaction.
    pub current_txn_first_offset: Option<Offset>,
}

/// The last batch of a producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastBatch {
    /// Sequence number of its last record.
    pub last_sequence: i32,
    /// Offset of its last record.
    pub last_offset: Offset,
    /// Its last offset less its first.
    pub offset_delta: i32,
}

impl LastBatch {
    /// Sequence number of the first record; 2^31-1 comes before 0.
    pub fn first_sequence(&self) -> i32 {
        let wide = i64::from(self.last_sequence) - i64::from(self.offset_delta);
        i32::try_from(wide.rem_euclid(1 << 31)).unwrap_or(-1)
    }
}

/// All producers of a `.snapshot`, in the order of the file. Fails on a short file, a version other
/// than 1 and a wrong checksum.
pub fn parse_snapshot(bytes: &[u8]) -> Result<Vec<ProducerState>, FormatError> {
    let covered = bytes.get(CHECKSUM_START..).filter(|_| bytes.len() >= HEADER_BYTES).ok_or(
        FormatError::Short { what: "producer snapshot", needs: HEADER_BYTES, has: bytes.len() },
    )?;
    let version = field_i16(bytes, 0)?;
    if version != 1 {
        return Err(FormatError::invalid(format!("snapshot version {version}, expected 1")));
    }
    let (stored, computed) = (field_i32(bytes, 2)?.cast_unsigned(), crc32c::crc32c(covered));
    if stored != computed {
        let reason = format!("snapshot checksum {stored:#010x}, computed {computed:#010x}");
        return Err(FormatError::Invalid(reason));
    }
    let count = field_i32(bytes, 6)?;
    let needs = usize::try_from(count)
        .map_err(|_| FormatError::invalid(format!("negative number of producers {count}")))?
        .saturating_mul(ENTRY_BYTES)
        .saturating_add(HEADER_BYTES);
    let entries = bytes.get(HEADER_BYTES..needs).ok_or(FormatError::Short {
        what: "producer snapshot",
        needs,
        has: bytes.len(),
    })?;
    entries.chunks_exact(ENTRY_BYTES).map(parse_producer).collect()
}

/// A `.snapshot` of these producers, in this order.
pub fn write_snapshot(producers: &[ProducerState]) -> Vec<u8> {
    let count = i32::try_from(producers.len()).unwrap_or(i32::MAX);
    let mut bytes = vec![0; HEADER_BYTES];
    set_field(&mut bytes, 0, 1_i16.to_be_bytes());
    set_field(&mut bytes, 6, count.to_be_bytes());
    bytes.extend(producers.iter().flat_map(write_producer));
    let checksum = crc32c::crc32c(bytes.get(CHECKSUM_START..).unwrap_or_default());
    set_field(&mut bytes, 2, checksum.to_be_bytes());
    bytes
}

fn write_producer(producer: &ProducerState) -> [u8; ENTRY_BYTES] {
    let (last_sequence, last_offset, offset_delta) = match producer.last_batch {
        Some(batch) => (batch.last_sequence, batch.last_offset.get(), batch.offset_delta),
        None => (-1, -1, 0),
    };
    let current_txn_first_offset = producer.current_txn_first_offset.map_or(-1, Offset::get);
    let mut entry = [0; ENTRY_BYTES];
    set_field(&mut entry, 0, producer.producer_id.to_be_bytes());
    set_field(&mut entry, 8, producer.producer_epoch.to_be_bytes());
    set_field(&mut entry, 10, last_sequence.to_be_bytes());
    set_field(&mut entry, 14, last_offset.to_be_bytes());
    set_field(&mut entry, 22, offset_delta.to_be_bytes());
    set_field(&mut entry, 26, millis(producer.last_timestamp).to_be_bytes());
    set_field(&mut entry, 34, producer.coordinator_epoch.to_be_bytes());
    set_field(&mut entry, 38, current_txn_first_offset.to_be_bytes());
    entry
}

fn parse_producer(entry: &[u8]) -> Result<ProducerState, FormatError> {
    let last_sequence = field_i32(entry, 10)?;
    let offset_delta = field_i32(entry, 22)?;
    let timestamp = field_i64(entry, 26)?;
    Ok(ProducerState {
        producer_id: field_i64(entry, 0)?,
        producer_epoch: field_i16(entry, 8)?,
        last_batch: Offset::new(field_i64(entry, 14)?).map(|last_offset| LastBatch {
            last_sequence,
            last_offset,
            offset_delta,
        }),
        last_timestamp: (timestamp != -1).then(|| Timestamp::from_millis(timestamp)),
        coordinator_epoch: field_i32(entry, 34)?,
        current_txn_first_offset: Offset::new(field_i64(entry, 38)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::tests::hex;
    use proptest::prelude::*;

    /// Annex A17 of the format facts.
    const WRITTEN_BY_KAFKA: &str = "0001fedf4e50000000020000000000000001000200000001000000000000\
        000200000003ffffffffffffffff000000030000000000000064000000000000000b000cffffffffffffffffff\
        ffffff00000000000000000001e2400000000dffffffffffffffff";

    fn with_checksum(mut bytes: Vec<u8>) -> Vec<u8> {
        let checksum = crc32c::crc32c(&bytes[CHECKSUM_START..]);
        bytes[2..CHECKSUM_START].copy_from_slice(&checksum.to_be_bytes());
        bytes
    }

    #[test]
    fn a_snapshot_that_kafka_wrote_is_read_and_written() {
        let producers = parse_snapshot(&hex(WRITTEN_BY_KAFKA)).unwrap();
        assert_eq!(write_snapshot(&producers), hex(WRITTEN_BY_KAFKA));
        let [first, second] = producers.as_slice() else { panic!("{producers:?}") };
        let last_offset = Offset::new(2).unwrap();
        let last_batch = LastBatch { last_sequence: 1, last_offset, offset_delta: 3 };
        assert_eq!(
            *first,
            ProducerState {
                producer_id: 1,
                producer_epoch: 2,
                last_batch: Some(last_batch),
                last_timestamp: None,
                coordinator_epoch: 3,
                current_txn_first_offset: Offset::new(100),
            }
        );
        assert_eq!(
            *second,
            ProducerState {
                producer_id: 11,
                producer_epoch: 12,
                last_batch: None,
                last_timestamp: Some(Timestamp::from_millis(123_456)),
                coordinator_epoch: 13,
                current_txn_first_offset: None,
            }
        );
        assert_eq!(last_batch.first_sequence(), i32::MAX - 1);
        assert_eq!(LastBatch { last_sequence: 5, ..last_batch }.first_sequence(), 2);
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let bytes = hex(WRITTEN_BY_KAFKA);
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(parse_snapshot(&flipped).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn every_shorter_file_is_refused() {
        let bytes = hex(WRITTEN_BY_KAFKA);
        for length in 0..bytes.len() {
            assert!(parse_snapshot(&bytes[..length]).is_err());
        }
        // The checksum may be right and the entries still not be there.
        for count in ["00000001", "7fffffff", "ffffffff"] {
            let short = with_checksum(hex(&format!("000100000000{count}")));
            assert!(parse_snapshot(&short).is_err(), "{count}");
        }
    }

    #[test]
    fn an_empty_snapshot_has_no_producers() {
        let empty = with_checksum(hex("00010000000000000000"));
        assert_eq!(parse_snapshot(&empty), Ok(vec![]));
        assert_eq!(write_snapshot(&[]), empty);
    }

    fn producer() -> impl Strategy<Value = ProducerState> {
        let offset = || (0..=i64::MAX).prop_map(|raw| Offset::new(raw).unwrap());
        let batch = (any::<i32>(), offset(), any::<i32>()).prop_map(
            |(last_sequence, last_offset, offset_delta)| LastBatch {
                last_sequence,
                last_offset,
                offset_delta,
            },
        );
        let time = (0..i64::MAX).prop_map(Timestamp::from_millis);
        let options = (
            proptest::option::of(batch),
            proptest::option::of(time),
            proptest::option::of(offset()),
        );
        (any::<i64>(), any::<i16>(), any::<i32>(), options).prop_map(
            |(producer_id, producer_epoch, coordinator_epoch, options)| ProducerState {
                producer_id,
                producer_epoch,
                last_batch: options.0,
                last_timestamp: options.1,
                coordinator_epoch,
                current_txn_first_offset: options.2,
            },
        )
    }

    proptest! {
        #[test]
        fn producers_read_back(producers in proptest::collection::vec(producer(), 0..20)) {
            let bytes = write_snapshot(&producers);
            prop_assert_eq!(bytes.len(), 10 + 46 * producers.len());
            prop_assert_eq!(parse_snapshot(&bytes), Ok(producers));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>, fix: bool) {
            let bytes = if fix && bytes.len() >= 10 { with_checksum(bytes) } else { bytes };
            let _either = parse_snapshot(&bytes);
        }
    }
}
