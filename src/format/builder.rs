//! Record batches of magic 2, made of records (format page, "Batch" and "Record").
//!
//! One builder makes one batch after the other in memory that it keeps; once that has grown to the
//! batches' size, nothing is allocated.

use super::batch::{BatchHeader, HEADER_BYTES, LOG_OVERHEAD, millis};
use super::codec::Codec;
use super::compress::compress;
use super::record::{Cursor, Record};
use super::varint::{varint_bytes, varlong_bytes, write_varint, write_varlong};
use super::{FormatError, set_field};
use crate::units::{LeaderEpoch, Offset, Timestamp};

/// A record that is to be written: what [`super::record::Record`] has, without an offset.
#[derive(Clone, Copy, Debug, Default)]
pub struct NewRecord<'a> {
    /// Its time; `None` when it has none.
    pub timestamp: Option<Timestamp>,
    /// Its key; `None` is NULL.
    pub key: Option<&'a [u8]>,
    /// Its value; `None` is NULL (a tombstone).
    pub value: Option<&'a [u8]>,
    /// Name and value of each of its headers, in their order.
    pub headers: &'a [(&'a [u8], Option<&'a [u8]>)],
}

/// Makes batches: `start`, `add` for each record, `finish`; then `start` again.
///
/// A batch that is compressed has two sizes. [`Self::bytes`] and [`Self::bytes_with`] speak of it
/// without compression; what Kafka compares with `max.message.bytes` and `segment.bytes` is the
/// length of what `finish` returns, which may be more where records cannot be compressed. After
/// `finish` the batch may go on growing and be finished again.
#[derive(Debug)]
pub struct BatchBuilder {
    /// Header and records, before compression.
    plain: Vec<u8>,
    /// Header and compressed records.
    stored: Vec<u8>,
    head: Head,
    level: Option<i32>,
}

/// What the header of the batch will say, apart from its size and checksum.
#[derive(Clone, Copy, Debug)]
struct Head {
    base_offset: Offset,
    leader_epoch: Option<LeaderEpoch>,
    codec: Codec,
    /// Below 2^31, because no record is shorter than 7 bytes and no batch longer than `BYTES_MAX`.
    records_count: i32,
    /// The first record's timestamp; -1 is none.
    base_timestamp: i64,
    /// Largest timestamp of the records; -1 is none.
    max_timestamp: i64,
}

impl Default for BatchBuilder {
    fn default() -> BatchBuilder {
        BatchBuilder::new()
    }
}

impl BatchBuilder {
    /// The largest batch that the format can express, without compression.
    pub const BYTES_MAX: usize = i32::MAX.cast_unsigned() as usize;

    /// A builder that has started an uncompressed batch at offset 0.
    pub fn new() -> BatchBuilder {
        BatchBuilder {
            plain: vec![0; HEADER_BYTES],
            stored: Vec::new(),
            head: Head::new(Offset::ZERO, None, Codec::None),
            level: None,
        }
    }

    /// Begins a batch whose first record will have `base_offset`; what was there is dropped.
    /// `level` as for [`compress`].
    pub fn start(
        &mut self,
        base_offset: Offset,
        leader_epoch: Option<LeaderEpoch>,
        codec: Codec,
        level: Option<i32>,
    ) {
        self.plain.truncate(HEADER_BYTES);
        self.head = Head::new(base_offset, leader_epoch, codec);
        self.level = level;
    }

    /// How many records were added.
    pub fn records_count(&self) -> u32 {
        self.head.records_count.unsigned_abs()
    }

    /// Bytes of the batch without compression.
    pub fn bytes(&self) -> usize {
        self.plain.len()
    }

    /// Bytes that the batch would have without compression if `record` were added.
    #[inline]
    pub fn bytes_with(&self, record: &NewRecord<'_>) -> usize {
        self.plain.len() + self.measure(record).bytes()
    }

    /// Adds a record, with the offset after the last one's. Fails, and adds nothing, where the
    /// batch would pass [`Self::BYTES_MAX`] or the offset 2^63-1.
    #[inline]
    pub fn add(&mut self, record: &NewRecord<'_>) -> Result<(), FormatError> {
        if self.add_within(record, Self::BYTES_MAX)? {
            return Ok(());
        }
        let bytes = self.measure(record).bytes();
        Err(FormatError::invalid(format!("a record of {bytes} bytes does not fit")))
    }

    /// Adds a record if the batch then has at most `most` bytes without compression, and says
    /// whether it did. Fails where no offset is left.
    #[inline]
    pub fn add_within(&mut self, record: &NewRecord<'_>, most: usize) -> Result<bool, FormatError> {
        let measured = self.measure(record);
        let room = most.min(Self::BYTES_MAX).saturating_sub(self.plain.len());
        if measured.bytes() > room {
            return Ok(false);
        }
        if self.head.base_offset.checked_add(i64::from(self.head.records_count)).is_none() {
            return Err(FormatError::invalid("no offset is left for the record"));
        }
        let timestamp = millis(record.timestamp);
        if self.head.records_count == 0 {
            self.head.base_timestamp = timestamp;
        }
        self.head.max_timestamp = self.head.max_timestamp.max(timestamp);
        self.write(record, &measured);
        self.head.records_count += 1;
        Ok(true)
    }

    /// Keeps the first `count` records; the others, in a batch of their own.
    pub fn split(&mut self, count: u32) -> Result<BatchBuilder, FormatError> {
        let Head { base_offset, leader_epoch, codec, .. } = self.head;
        Head { codec: Codec::None, ..self.head }.write(None, &mut self.plain)?;
        let plain = std::mem::replace(&mut self.plain, vec![0; HEADER_BYTES]);
        let header = BatchHeader::parse(&plain)?;
        let payload = plain.get(HEADER_BYTES..).unwrap_or_default();
        let mut cursor = Cursor::new(&header, payload)?;
        let mut others = BatchBuilder::new();
        let next_offset = base_offset.checked_add(i64::from(count));
        let next_offset = next_offset.ok_or_else(|| FormatError::invalid("no offset is left"))?;
        self.start(base_offset, leader_epoch, codec, self.level);
        others.start(next_offset, leader_epoch, codec, self.level);
        while let Some(record) = cursor.next(&header, payload) {
            let Record { timestamp, key, value, headers, .. } = record?;
            let headers: Vec<_> = headers.iter().collect();
            let record = NewRecord { timestamp, key, value, headers: &headers };
            if self.records_count() < count { self.add(&record)? } else { others.add(&record)? }
        }
        Ok(others)
    }

    #[inline]
    fn measure(&self, record: &NewRecord<'_>) -> Measured {
        let timestamp = millis(record.timestamp);
        let base = if self.head.records_count == 0 { timestamp } else { self.head.base_timestamp };
        let timestamp_delta = timestamp.wrapping_sub(base);
        let headers_bytes: usize = record
            .headers
            .iter()
            .map(|(name, value)| field_bytes(Some(name)) + field_bytes(*value))
            .sum();
        let body_bytes = 1
            + varlong_bytes(timestamp_delta)
            + varint_bytes(self.head.records_count)
            + field_bytes(record.key)
            + field_bytes(record.value)
            + length_bytes(record.headers.len())
            + headers_bytes;
        Measured { timestamp_delta, body_bytes }
    }

    #[inline]
    fn write(&mut self, record: &NewRecord<'_>, measured: &Measured) {
        let out = &mut self.plain;
        out.reserve(measured.bytes());
        write_length(out, measured.body_bytes);
        out.push(0);
        write_varlong(out, measured.timestamp_delta);
        write_varint(out, self.head.records_count);
        write_field(out, record.key);
        write_field(out, record.value);
        write_length(out, record.headers.len());
        for (name, value) in record.headers {
            write_field(out, Some(name));
            write_field(out, *value);
        }
    }

    /// The whole batch, as it is stored: compressed, with header and checksum. With an
    /// `append_time` every record has that time, and what the records brought is kept but means
    /// nothing; without, each has its own. Base offset and leader epoch may still be changed in it
    /// ([`super::batch::set_base_offset`]). Fails where there are no records.
    pub fn finish(&mut self, append_time: Option<Timestamp>) -> Result<&mut [u8], FormatError> {
        if self.head.codec != Codec::None {
            let (header, records) = self.plain.split_at(HEADER_BYTES);
            self.stored.clear();
            self.stored.extend_from_slice(header);
            compress(self.head.codec, self.level, records, &mut self.stored)?;
        }
        let batch = if self.head.codec == Codec::None { &mut self.plain } else { &mut self.stored };
        self.head.write(append_time, batch)?;
        Ok(batch)
    }
}

impl Head {
    fn new(base_offset: Offset, leader_epoch: Option<LeaderEpoch>, codec: Codec) -> Head {
        let (base_timestamp, max_timestamp) = (millis(None), millis(None));
        Head { base_offset, leader_epoch, codec, records_count: 0, base_timestamp, max_timestamp }
    }

    /// Writes the header of `batch`, whose records are there.
    fn write(&self, append_time: Option<Timestamp>, batch: &mut [u8]) -> Result<(), FormatError> {
        const MAGIC: u8 = 2;
        const APPEND_TIME: u8 = 8;
        if self.records_count == 0 {
            return Err(FormatError::invalid("a batch without records"));
        }
        let size = i32::try_from(batch.len() - LOG_OVERHEAD)
            .map_err(|_| FormatError::invalid(format!("a batch of {} bytes", batch.len())))?;
        let time_bit = if append_time.is_some() { APPEND_TIME } else { 0 };
        let max_timestamp = append_time.map_or(self.max_timestamp, Timestamp::millis);
        set_field(batch, 0, self.base_offset.get().to_be_bytes());
        set_field(batch, 8, size.to_be_bytes());
        set_field(batch, 12, self.leader_epoch.map_or(-1, LeaderEpoch::get).to_be_bytes());
        set_field(batch, 16, [MAGIC]);
        set_field(batch, 21, [0, self.codec.number() | time_bit]);
        set_field(batch, 23, (self.records_count - 1).to_be_bytes());
        set_field(batch, 27, self.base_timestamp.to_be_bytes());
        set_field(batch, 35, max_timestamp.to_be_bytes());
        // No producer: id, epoch and sequence are -1.
        set_field(batch, 43, [0xff; 14]);
        set_field(batch, 57, self.records_count.to_be_bytes());
        let covered = batch.get(21..).unwrap_or_default();
        let checksum = crc32c::crc32c(covered);
        set_field(batch, 17, checksum.to_be_bytes());
        Ok(())
    }
}

/// What has to be known of a record before it is written.
struct Measured {
    timestamp_delta: i64,
    /// Bytes that the record's length field counts.
    body_bytes: usize,
}

impl Measured {
    /// Bytes of the record, its length field included.
    #[inline]
    fn bytes(&self) -> usize {
        length_bytes(self.body_bytes) + self.body_bytes
    }
}

/// A number that is not negative, and no larger than a batch, is the same as varint and varlong.
#[inline]
fn write_length(out: &mut Vec<u8>, length: usize) {
    write_varlong(out, i64::try_from(length).unwrap_or(i64::MAX));
}

#[inline]
fn length_bytes(length: usize) -> usize {
    varlong_bytes(i64::try_from(length).unwrap_or(i64::MAX))
}

/// A length and that many bytes; -1 is NULL.
#[inline]
fn write_field(out: &mut Vec<u8>, field: Option<&[u8]>) {
    match field {
        Some(bytes) => {
            write_length(out, bytes.len());
            out.extend_from_slice(bytes);
        }
        None => write_varint(out, -1),
    }
}

#[inline]
fn field_bytes(field: Option<&[u8]>) -> usize {
    field.map_or(1, |bytes| length_bytes(bytes.len()) + bytes.len())
}

#[cfg(test)]
mod tests {
    use super::super::batch::{TimestampType, set_base_offset, set_leader_epoch};
    use super::super::tests::*;
    use super::*;
    use proptest::prelude::*;

    fn record<'a>(timestamp: i64, key: Option<&'a str>, value: Option<&'a str>) -> NewRecord<'a> {
        NewRecord {
            timestamp: Some(Timestamp::from_millis(timestamp)),
            key: key.map(str::as_bytes),
            value: value.map(str::as_bytes),
            headers: &[],
        }
    }

    /// The records of annex A of the format facts.
    fn three_records() -> [NewRecord<'static>; 3] {
        let mut second = record(1005, None, Some(""));
        second.headers = &[(b"h", Some(b"x")), (b"n", None)];
        [record(1000, Some("k1"), Some("v1")), second, record(999, Some("k1"), None)]
    }

    fn started(offset: i64, epoch: i32, codec: Codec) -> BatchBuilder {
        let mut builder = BatchBuilder::new();
        builder.start(Offset::new(offset).unwrap(), LeaderEpoch::new(epoch), codec, None);
        builder
    }

    /// The batch of `records`; the size foretold for each is looked at.
    fn built(builder: &mut BatchBuilder, records: &[NewRecord<'_>]) -> Vec<u8> {
        for (record, count) in records.iter().zip(1..) {
            let bytes = builder.bytes_with(record);
            builder.add(record).unwrap();
            assert_eq!((builder.bytes(), builder.records_count()), (bytes, count));
        }
        builder.finish(None).unwrap().to_vec()
    }

    /// Annex A1 to A5. Compressed bytes may differ, and do in zstd: what they expand to may not.
    #[test]
    fn batches_of_every_codec_are_what_kafka_wrote() {
        for (codec, digits) in [
            (Codec::None, PLAIN),
            (Codec::Gzip, GZIP),
            (Codec::Snappy, SNAPPY),
            (Codec::Lz4, LZ4),
            (Codec::Zstd, ZSTD),
        ] {
            let batch = built(&mut started(100, 7, codec), &three_records());
            assert_eq!(read(&batch), read(&hex(digits)), "{codec:?}");
            let header = BatchHeader::parse(&batch).unwrap();
            let kafka = BatchHeader::parse(&hex(digits)).unwrap();
            let (bytes, crc) = (header.bytes, header.crc);
            assert_eq!(header, BatchHeader { bytes, crc, ..kafka });
            if codec == Codec::None {
                assert_eq!(batch, hex(digits));
            }
        }
    }

    /// Annex A6.
    #[test]
    fn the_append_time_leaves_the_times_of_the_records() {
        let mut builder = started(10, 3, Codec::None);
        let [first, _, third] = three_records();
        let own_times = built(&mut builder, &[first, third]);
        let batch = builder.finish(Some(Timestamp::from_millis(5000))).unwrap();
        assert_eq!(batch, hex(LOG_APPEND_TIME));
        assert_eq!(builder.finish(None).unwrap(), own_times);
    }

    #[test]
    fn an_offset_and_an_epoch_given_later_are_those_given_first() {
        let mut builder = started(0, -1, Codec::None);
        built(&mut builder, &three_records());
        let batch = builder.finish(None).unwrap();
        set_base_offset(batch, Offset::new(100).unwrap()).unwrap();
        set_leader_epoch(batch, LeaderEpoch::new(7)).unwrap();
        assert_eq!(batch, hex(PLAIN));
    }

    #[test]
    fn a_builder_remembers_nothing_of_the_batch_before() {
        let mut builder = started(5, 1, Codec::Zstd);
        built(&mut builder, &[record(i64::MAX, Some("key"), Some("value")); 9]);
        for _ in 0..2 {
            builder.start(Offset::new(100).unwrap(), LeaderEpoch::new(7), Codec::None, None);
            assert_eq!(built(&mut builder, &three_records()), hex(PLAIN));
        }
    }

    #[test]
    fn a_batch_that_is_split_is_two_batches_of_the_same_records() {
        for codec in [Codec::None, Codec::Zstd] {
            let mut builder = started(100, 7, codec);
            built(&mut builder, &three_records());
            let others = builder.split(1).unwrap().finish(None).unwrap().to_vec();
            let first = builder.finish(None).unwrap().to_vec();
            assert_eq!(first, built(&mut started(100, 7, codec), &three_records()[..1]));
            assert_eq!(others, built(&mut started(101, 7, codec), &three_records()[1..]));
        }
    }

    #[test]
    fn a_record_that_does_not_fit_is_not_added() {
        let mut builder = started(100, 7, Codec::None);
        let [first, second, _] = three_records();
        let room = builder.bytes_with(&first);
        assert_eq!(builder.add_within(&first, room), Ok(true));
        assert_eq!(builder.add_within(&second, room), Ok(false));
        assert_eq!((builder.bytes(), builder.records_count()), (room, 1));
    }

    #[test]
    fn a_finished_batch_may_grow() {
        for codec in [Codec::None, Codec::Gzip] {
            let mut builder = started(100, 7, codec);
            built(&mut builder, &three_records()[..1]);
            let grown = built_on(&mut builder, &three_records()[1..]);
            assert_eq!(grown, built(&mut started(100, 7, codec), &three_records()));
        }
    }

    fn built_on(builder: &mut BatchBuilder, records: &[NewRecord<'_>]) -> Vec<u8> {
        for record in records {
            builder.add(record).unwrap();
        }
        builder.finish(None).unwrap().to_vec()
    }

    #[test]
    fn records_without_timestamps_have_none() {
        let batch = built(&mut started(7, 0, Codec::None), &[NewRecord::default(); 2]);
        assert_eq!(read(&batch).unwrap(), [seen(7, None, None, None), seen(8, None, None, None)]);
        let header = BatchHeader::parse(&batch).unwrap();
        assert_eq!((header.base_timestamp, header.max_timestamp), (-1, None));
        assert_eq!(header.timestamp_type, TimestampType::Create);
        // The first record says what the others are relative to, even where it has no time.
        let late = record(1000, None, None);
        let batch = built(&mut started(7, 0, Codec::None), &[NewRecord::default(), late]);
        let times: Vec<_> = read(&batch).unwrap().iter().map(|record| record.1).collect();
        assert_eq!(times, [None, Some(1000)]);
    }

    #[test]
    fn a_batch_needs_a_record() {
        let error = started(0, 0, Codec::None).finish(None).unwrap_err();
        assert_eq!(error, FormatError::invalid("a batch without records"));
    }

    #[test]
    fn offsets_end_at_the_greatest() {
        let mut builder = started(i64::MAX - 1, 0, Codec::None);
        let batch = built(&mut builder, &[record(0, None, None); 2]);
        assert_eq!(BatchHeader::parse(&batch).unwrap().last_offset, Offset::MAX);
        assert!(builder.add(&record(0, None, None)).is_err());
        assert_eq!(builder.finish(None).unwrap(), batch);
    }

    #[test]
    fn a_record_that_no_batch_can_hold_is_refused() {
        let block = vec![0; 1 << 20];
        let headers = vec![(&[][..], Some(block.as_slice())); 2048];
        let mut builder = started(100, 7, Codec::None);
        let huge = NewRecord { headers: &headers, ..NewRecord::default() };
        assert!(builder.bytes_with(&huge) > BatchBuilder::BYTES_MAX);
        assert!(builder.add(&huge).is_err());
        assert_eq!(built(&mut builder, &three_records()), hex(PLAIN));
    }

    type Drawn = (i64, Option<Vec<u8>>, Option<Vec<u8>>, Vec<(Vec<u8>, Option<Vec<u8>>)>);

    fn drawn() -> impl Strategy<Value = Vec<Drawn>> {
        let bytes = || proptest::collection::vec(any::<u8>(), 0..200);
        let field = move || proptest::option::of(bytes());
        let headers = proptest::collection::vec((bytes(), field()), 0..3);
        proptest::collection::vec((any::<i64>(), field(), field(), headers), 1..80)
    }

    proptest! {
        #[test]
        fn any_records_read_back(
            drawn in drawn(),
            offset in 0..i64::MAX - 80,
            epoch in -1..i32::MAX,
            which in 0..5_i16,
            append_time in proptest::option::of(0..i64::MAX),
        ) {
            let mut builder = started(offset, epoch, Codec::from_attributes(which));
            for (timestamp, key, value, headers) in &drawn {
                let headers: Vec<_> = headers
                    .iter()
                    .map(|(name, value)| (name.as_slice(), value.as_deref()))
                    .collect();
                let record = NewRecord {
                    timestamp: Some(Timestamp::from_millis(*timestamp)),
                    key: key.as_deref(),
                    value: value.as_deref(),
                    headers: &headers,
                };
                let bytes = builder.bytes_with(&record);
                builder.add(&record).unwrap();
                prop_assert_eq!(bytes, builder.bytes());
            }
            let batch = builder.finish(append_time.map(Timestamp::from_millis)).unwrap().to_vec();
            let time = |own: i64| append_time.or((own != -1).then_some(own));
            let expected: Vec<Seen> = (offset..)
                .zip(drawn)
                .map(|(at, (own, key, value, headers))| (at, time(own), key, value, headers))
                .collect();
            prop_assert_eq!(read(&batch).unwrap(), expected.as_slice());
            let largest = expected.iter().filter_map(|record| record.1).max().unwrap_or(-1);
            let header = BatchHeader::parse(&batch).unwrap();
            prop_assert_eq!(header.max_timestamp.map_or(-1, Timestamp::millis), largest.max(-1));
            prop_assert_eq!(header.records_count, builder.records_count());
            prop_assert_eq!(header.leader_epoch, LeaderEpoch::new(epoch));
        }
    }
}
