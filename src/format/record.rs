//! Records of a batch, read one after the other from its uncompressed bytes, in all three magics.

use super::batch::{BatchHeader, Magic, TimestampType, timestamp};
use super::varint::{read_count, read_varint, read_varlong};
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
    count: usize,
    bytes: &'a [u8],
}

/// Where a reading of a batch stands: bytes consumed, records left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    at: usize,
    left: u32,
    /// What is added to the stored offsets of a magic 1 wrapper's messages.
    shift: i64,
    /// The offset of the record before, which the next one must exceed; -1 before the first.
    last: i64,
    /// Ends before records that are there.
    cut: bool,
}

impl Cursor {
    /// Before the first record of the batch with this header and these uncompressed `bytes` (what
    /// follows the 61-byte header; of a legacy wrapper its expanded value, of a plain legacy
    /// message the message itself). Fails for a legacy wrapper whose inner messages do not fit.
    pub fn new(header: &BatchHeader, bytes: &[u8]) -> Result<Cursor, FormatError> {
        if header.is_legacy_wrapper() {
            let (count, shift) = legacy::survey(header, bytes)?;
            return Ok(Cursor { at: 0, left: count, shift, last: -1, cut: false });
        }
        Ok(Cursor { at: 0, left: header.records_count, shift: 0, last: -1, cut: false })
    }

    /// The same, ending before the first record at or behind `end`.
    pub fn up_to(header: &BatchHeader, bytes: &[u8], end: Offset) -> Result<Cursor, FormatError> {
        let cursor = Cursor::new(header, bytes)?;
        if header.last_offset < end {
            return Ok(cursor);
        }
        let (mut look, mut left) = (cursor, 0);
        while let Some(record) = look.next(header, bytes) {
            match record {
                Ok(record) if record.offset < end => left += 1,
                Ok(_) => break,
                // The reading shows what is before it, and fails there too.
                Err(_) => return Ok(cursor),
            }
        }
        Ok(Cursor { left, cut: true, ..cursor })
    }

    /// The next record, or `None` after the last. After an error the rest of the batch is
    /// unreadable.
    #[inline]
    pub fn next<'a>(
        &mut self,
        header: &BatchHeader,
        bytes: &'a [u8],
    ) -> Option<Result<Record<'a>, FormatError>> {
        match self.advance(header, bytes) {
            Some(record) => Some(Ok(record)),
            None => self.end(header, bytes).err().map(Err),
        }
    }

    /// Shows all records from here on to `see`: the fastest way to read a whole batch. An error
    /// comes after the records before it.
    #[inline]
    pub fn for_each<'a>(
        mut self,
        header: &BatchHeader,
        bytes: &'a [u8],
        mut see: impl FnMut(&Record<'a>),
    ) -> Result<(), FormatError> {
        while let Some(record) = self.advance(header, bytes) {
            see(&record);
        }
        self.end(header, bytes)
    }

    /// Shows records from here on to `see` for as long as it wants more of them, as fast as
    /// [`Self::for_each`]. Are there others behind the last one that it saw?
    #[inline]
    pub fn show_while<'a>(
        &mut self,
        header: &BatchHeader,
        bytes: &'a [u8],
        mut see: impl FnMut(&Record<'a>) -> bool,
    ) -> Result<bool, FormatError> {
        let mut cursor = *self;
        while let Some(record) = cursor.advance(header, bytes) {
            if !see(&record) {
                *self = cursor;
                return Ok(true);
            }
        }
        *self = cursor;
        self.end(header, bytes).map(|()| false)
    }

    /// The next record; `None` after the last, and before one that is invalid. Free of errors, so
    /// that what is not asked of a record need not be made.
    #[expect(clippy::inline_always, reason = "half the time of a pass over a log is spent here")]
    #[inline(always)]
    fn advance<'a>(&mut self, header: &BatchHeader, bytes: &'a [u8]) -> Option<Record<'a>> {
        if self.left == 0 {
            return None;
        }
        let (record, after) = self.read(header, bytes)?;
        if record.offset.get() <= self.last {
            return None;
        }
        self.last = record.offset.get();
        self.left -= 1;
        self.at = bytes.len() - after.len();
        Some(record)
    }

    /// The record that stands here, and the bytes behind it.
    #[expect(clippy::inline_always, reason = "see `Cursor::advance`")]
    #[inline(always)]
    fn read<'a>(&self, header: &BatchHeader, bytes: &'a [u8]) -> Option<(Record<'a>, &'a [u8])> {
        let data = bytes.get(self.at..)?;
        match header.magic {
            Magic::V2 => {
                let (length, rest) = read_count(data)?;
                let (entry, after) = rest.split_at_checked(length?)?;
                Some((read_record(header, entry)?, after))
            }
            Magic::V0 | Magic::V1 => legacy::read_message(header, data, self.shift),
        }
    }

    /// What is wrong where [`Self::advance`] ended, said once. Records must fill a batch of magic 2
    /// exactly.
    fn end(&mut self, header: &BatchHeader, bytes: &[u8]) -> Result<(), FormatError> {
        let stopped = Cursor { at: bytes.len(), left: 0, ..*self };
        let before = std::mem::replace(self, stopped);
        let Cursor { at, left, .. } = before;
        if left > 0 {
            if let Some((Record { offset, .. }, _)) = before.read(header, bytes) {
                let reason = format!("record {offset} does not come after the one before it");
                return Err(FormatError::Invalid(reason));
            }
            return Err(FormatError::invalid(format!("invalid record at byte {at} of the batch")));
        }
        if at != bytes.len() && header.magic == Magic::V2 && !self.cut {
            return Err(FormatError::invalid("bytes are left after the last record"));
        }
        Ok(())
    }

    /// Bytes of the batch's records that were read.
    pub fn bytes_read(&self) -> usize {
        self.at
    }

    /// Records that are still to come.
    pub fn records_left(&self) -> u32 {
        self.left
    }
}

/// The magic 2 record that is `entry`, its bytes without their length.
#[expect(clippy::inline_always, reason = "see `Cursor::advance`")]
#[inline(always)]
fn read_record<'a>(header: &BatchHeader, entry: &'a [u8]) -> Option<Record<'a>> {
    let (_attributes, body) = entry.split_first()?;
    let (timestamp_delta, body) = read_varlong(body)?;
    let (offset_delta, body) = read_varint(body)?;
    let (key, body) = read_bytes(body)?;
    let (value, body) = read_bytes(body)?;
    let (count, bytes) = read_count(body)?;
    let headers = Headers { count: count?, bytes };
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
    Some(Record { offset, timestamp, key, value, headers })
}

/// A varint length (-1 is NULL), that many bytes, and what follows them.
#[inline]
fn read_bytes(data: &[u8]) -> Option<(Option<&[u8]>, &[u8])> {
    let (length, rest) = read_count(data)?;
    match length {
        Some(length) => rest.split_at_checked(length).map(|(bytes, rest)| (Some(bytes), rest)),
        None => Some((None, rest)),
    }
}

impl<'a> Headers<'a> {
    /// How many headers there are.
    pub fn len(&self) -> usize {
        self.count
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

    #[inline]
    fn fill_exactly(&self) -> bool {
        if self.count == 0 {
            return self.bytes.is_empty();
        }
        self.fill()
    }

    fn fill(&self) -> bool {
        let mut rest = self.bytes;
        for _ in 0..self.count {
            let Some((Some(_), after)) = read_bytes(rest) else { return false };
            let Some((_, after)) = read_bytes(after) else { return false };
            rest = after;
        }
        rest.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::*;
    use super::*;
    use crate::format::codec::Codec;
    use proptest::prelude::*;

    fn three_records() -> Vec<Seen> {
        let mut second = seen(101, Some(1005), None, Some(""));
        second.4 = vec![(b"h".to_vec(), Some(b"x".to_vec())), (b"n".to_vec(), None)];
        let first = seen(100, Some(1000), Some("k1"), Some("v1"));
        vec![first, second, seen(102, Some(999), Some("k1"), None)]
    }

    /// `PLAIN` with another body and number of records.
    fn batch_of(body: &[u8], count: i32) -> Vec<u8> {
        let mut batch = hex(PLAIN);
        batch.truncate(61);
        batch.extend(body);
        let length = i32::try_from(batch.len() - 12).unwrap();
        batch[57..61].copy_from_slice(&count.to_be_bytes());
        patched(&batch, 8, &length.to_be_bytes())
    }

    #[test]
    fn batches_of_every_codec_hold_the_same_records() {
        for digits in [PLAIN, GZIP, SNAPPY, LZ4, ZSTD] {
            assert_eq!(read(&hex(digits)).unwrap(), three_records());
        }
    }

    /// Kafka's `DefaultRecord` takes any delta, but its `LogValidator` refuses such a batch: no
    /// producer writes one, and two records of one offset would have one name.
    #[test]
    fn a_record_that_does_not_come_after_the_one_before_it_is_invalid() {
        let record = |delta: u8| [0x10, 0, 0, delta << 1, 2, b'a', 2, b'v', 0];
        for (deltas, good) in [([0, 1, 2], 3), ([0, 2, 1], 2), ([1, 1, 2], 1), ([2, 0, 1], 1)] {
            let batch = patched(&batch_of(&deltas.map(record).concat(), 3), 23, &[0, 0, 0, 2]);
            let header = BatchHeader::parse(&batch).unwrap();
            let (bytes, mut offsets) = (&batch[61..], Vec::new());
            let whole = Cursor::new(&header, bytes).unwrap();
            let ended = whole.for_each(&header, bytes, |record| offsets.push(record.offset));
            assert_eq!((offsets.len(), ended.is_ok()), (good, good == 3), "{deltas:?}");
            let told = ended.err().map(|error| error.to_string()).unwrap_or_default();
            let is_named = told.ends_with(" does not come after the one before it");
            assert_eq!(is_named, good < 3, "{told}");
        }
    }

    /// kafka-behaviours row 2 (`DefaultRecordBatchTest.buildDefaultRecordBatch`).
    #[test]
    fn offsets_and_timestamps_are_relative_to_the_batch() {
        let batch = batch_of(&hex("100000000261027600100002020262027600"), 2);
        // Last offset delta 1, base timestamp 1, largest timestamp 2.
        let batch = patched(&batch, 23, &hex("0000000100000000000000010000000000000002"));
        let batch = patched(&batch, 0, &1_234_567_i64.to_be_bytes());
        let expected = [
            seen(1_234_567, Some(1), Some("a"), Some("v")),
            seen(1_234_568, Some(2), Some("b"), Some("v")),
        ];
        assert_eq!(read(&batch).unwrap(), expected);
    }

    /// kafka-behaviours row 5
    /// (`DefaultRecordBatchTest.testInvalidRecordCountTooManyNonCompressedV2`,
    /// `testInvalidRecordCountTooManyCompressedV2`), and the same for too few.
    #[test]
    fn a_wrong_number_of_records_is_noticed() {
        for digits in [PLAIN, GZIP, SNAPPY, LZ4, ZSTD] {
            for count in [0, 1, 2, 4, 5, i32::MAX] {
                let batch = patched(&hex(digits), 57, &count.to_be_bytes());
                assert!(matches!(read(&batch), Err(FormatError::Invalid(_))), "{count}");
            }
        }
    }

    /// kafka-behaviours row 6 (`DefaultRecordBatchTest.testSetLastOffset`).
    #[test]
    fn a_new_base_offset_needs_no_new_checksum() {
        let mut batch = hex(PLAIN);
        batch[..8].copy_from_slice(&498_i64.to_be_bytes());
        let offsets: Vec<_> = read(&batch).unwrap().iter().map(|record| record.0).collect();
        assert_eq!(offsets, [498, 499, 500]);
    }

    /// kafka-behaviours row 7 (`DefaultRecordBatchTest.testSetLogAppendTime`), read.
    #[test]
    fn the_append_time_goes_to_every_record() {
        let records = read(&hex(LOG_APPEND_TIME)).unwrap();
        let expected =
            [seen(10, Some(5000), Some("k1"), Some("v1")), seen(11, Some(5000), Some("k1"), None)];
        assert_eq!(records, expected);
    }

    #[test]
    fn timestamps_of_minus_one_are_none() {
        let batch = patched(&hex(PLAIN), 27, &(-1_i64).to_be_bytes());
        assert_eq!(read(&batch).unwrap()[0].1, None);
        assert_eq!(read(&batch).unwrap()[1].1, Some(4));
    }

    /// Rows 138 to 140 of kafka-behaviours (`MemoryRecordsTest.testFilterTo`,
    /// `testBaseTimestampToDeleteHorizonConversion`, `testEmptyBatchRetention`), read.
    #[test]
    fn compacted_batches_hold_what_was_left() {
        assert_eq!(read(&hex(COMPACTED)).unwrap(), three_records()[1..]);
        assert_eq!(read(&hex(EMPTY)).unwrap(), []);
    }

    #[test]
    fn control_records_are_records() {
        let key = |record: &Seen| record.2.clone().unwrap();
        let records = read(&hex(COMMIT)).unwrap();
        assert_eq!((records.len(), records[0].0, key(&records[0])), (1, 42, vec![0, 0, 0, 1]));
        assert_eq!(records[0].3.as_deref(), Some(&[0, 0, 0, 0, 0, 11][..]));
        assert_eq!(key(&read(&hex(LEADER_CHANGE)).unwrap()[0]), [0, 0, 0, 2]);
        assert_eq!(key(&read(&hex(SNAPSHOT_HEADER)).unwrap()[0]), [0, 0, 0, 3]);
    }

    /// kafka-behaviours row 8 (`DefaultRecordTest.testInvalidKeySize`, `testInvalidValueSize`) and
    /// kafka-behaviours row 9 (`DefaultRecordTest.testInvalidNumHeaders`): 100-byte bodies with a
    /// key or value of 105 bytes, or with -1 or 100 headers; and fields that end before or after
    /// the record does.
    #[test]
    fn records_that_do_not_fit_their_length_are_invalid() {
        let hundred = |fields: &str| [hex(fields), vec![0; 102 - fields.len() / 2]].concat();
        let good = hex("0c000000010100");
        assert_eq!(read(&batch_of(&good, 1)).unwrap(), [seen(100, Some(1000), None, None)]);
        for body in [
            hundred("c801000000d201"),
            hundred("c80100000001d201"),
            hundred("c801000000010101"),
            hundred("c8010000000101c801"),
            hex("0e00000001010000"),
            hex("0a0000000101"),
            hex("0c000000030100"),
            hex("0c000001010100"),
            hex("0c000006010100"),
            hex("1200000001010201"),
            hex("0f"),
            hex("ffffffffff0f"),
            hex("00"),
            vec![],
        ] {
            let result = read(&batch_of(&body, 1));
            assert!(matches!(result, Err(FormatError::Invalid(_))), "{body:x?}: {result:?}");
        }
    }

    #[test]
    fn for_each_shows_what_next_gives_and_tells_the_same_error() {
        for count in [0, 1, 2, 3, 4, i32::MAX] {
            let batch = patched(&hex(PLAIN), 57, &count.to_be_bytes());
            let (header, bytes) = (BatchHeader::parse(&batch).unwrap(), &batch[61..]);
            let (mut one_by_one, mut together) = (Vec::new(), Vec::new());
            let mut cursor = Cursor::new(&header, bytes).unwrap();
            let error = loop {
                match cursor.next(&header, bytes) {
                    Some(Ok(record)) => one_by_one.push(record.offset),
                    Some(Err(error)) => break Some(error),
                    None => break None,
                }
            };
            let cursor = Cursor::new(&header, bytes).unwrap();
            let result = cursor.for_each(&header, bytes, |record| together.push(record.offset));
            assert_eq!((one_by_one, error), (together, result.err()), "{count}");
        }
    }

    #[test]
    fn after_an_error_nothing_more_comes() {
        let batch = patched(&hex(PLAIN), 57, &5_i32.to_be_bytes());
        let header = BatchHeader::parse(&batch).unwrap();
        let mut cursor = Cursor::new(&header, &batch[61..]).unwrap();
        let results =
            std::iter::from_fn(|| cursor.next(&header, &batch[61..]).map(|it| it.is_ok()));
        assert_eq!(results.take(10).collect::<Vec<_>>(), [true, true, true, false]);
    }

    #[test]
    fn every_flipped_bit_of_a_record_is_noticed_or_read_as_another_record() {
        let batch = hex(PLAIN);
        for bit in 61 * 8..batch.len() * 8 {
            let mut flipped = batch.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(read(&flipped), Err(FormatError::invalid("checksum")));
            let attributes = [62, 73, 87].contains(&(bit / 8));
            let same = read(&patched(&flipped, 0, &[])).is_ok_and(|read| read == three_records());
            assert!(!same || attributes, "bit {bit}: record attributes alone mean nothing");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_records_or_an_error(
            body: Vec<u8>,
            count in 0..20_i32,
            codec in 0..5_u8,
        ) {
            let mut batch = batch_of(&body, count);
            let compressed = compressed(Codec::from_attributes(codec.into()), &body);
            batch.truncate(61);
            batch.extend(compressed);
            let length = i32::try_from(batch.len() - 12).unwrap();
            batch[22] = codec;
            let batch = patched(&batch, 8, &length.to_be_bytes());
            let plain = read(&batch_of(&body, count));
            prop_assert_eq!(read(&batch), plain);
        }

        #[test]
        fn changed_records_never_panic(at in 61..95_usize, byte: u8, more in 61..95_usize) {
            let batch = patched(&patched(&hex(PLAIN), at, &[byte]), more, &[byte ^ 0x80]);
            let _either = read(&batch);
        }
    }
}
