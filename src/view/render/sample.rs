//! Records for tests: a batch of one record is written as Kafka stores it and read back.

use proptest::prelude::*;

use super::Place;
use crate::format::batch::{BatchHeader, Magic, TimestampType};
use crate::format::builder::{BatchBuilder, NewRecord};
use crate::format::codec::Codec;
use crate::format::record::{Cursor, Record};
use crate::units::{LeaderEpoch, Offset, Timestamp};

/// One record of topic `t`, partition 7, in its own batch; -1 is "none" of time and epoch.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub offset: i64,
    pub timestamp: i64,
    pub timestamp_type: TimestampType,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    pub leader_epoch: i32,
    pub transactional: bool,
}

impl Sample {
    /// A record at offset 0 of 2023-11-14T22:13:20Z, epoch 0, without headers.
    pub(crate) fn new(key: Option<&[u8]>, value: Option<&[u8]>) -> Sample {
        Sample {
            offset: 0,
            timestamp: 1_700_000_000_000,
            timestamp_type: TimestampType::Create,
            key: key.map(<[u8]>::to_vec),
            value: value.map(<[u8]>::to_vec),
            headers: Vec::new(),
            leader_epoch: 0,
            transactional: false,
        }
    }

    /// Calls `see` with the record as it is read from a log.
    pub(crate) fn with(&self, see: impl FnOnce(&Place, &BatchHeader, &Record)) {
        let (batch, bytes) = (self.header(), self.bytes());
        let mut cursor = Cursor::new(&batch, &bytes).unwrap();
        let record = cursor.next(&batch, &bytes).unwrap().unwrap();
        see(&Place { topic: "t", partition: 7 }, &batch, &record);
    }

    fn header(&self) -> BatchHeader {
        BatchHeader {
            magic: Magic::V2,
            base_offset: Offset::new(self.offset).unwrap(),
            last_offset: Offset::new(self.offset).unwrap(),
            bytes: 61,
            leader_epoch: LeaderEpoch::new(self.leader_epoch),
            crc: 0,
            codec: Codec::None,
            timestamp_type: self.timestamp_type,
            transactional: self.transactional,
            control: false,
            delete_horizon: None,
            base_timestamp: self.timestamp,
            max_timestamp: (self.timestamp != -1).then(|| Timestamp::from_millis(self.timestamp)),
            producer_id: -1,
            producer_epoch: -1,
            base_sequence: -1,
            records_count: 1,
        }
    }

    /// The record as it stands in its batch.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut body = vec![0, 0, 0];
        put_field(&mut body, self.key.as_deref());
        put_field(&mut body, self.value.as_deref());
        put_length(&mut body, Some(self.headers.len()));
        for (name, value) in &self.headers {
            put_field(&mut body, Some(name));
            put_field(&mut body, value.as_deref());
        }
        let mut record = Vec::new();
        put_length(&mut record, Some(body.len()));
        record.extend(body);
        record
    }
}

/// A whole batch, as it is stored, of records that are nothing but these values.
pub(crate) fn batch(base_offset: i64, codec: Codec, values: &[&[u8]]) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    builder.start(Offset::new(base_offset).unwrap(), None, codec, None);
    for &value in values {
        builder.add(&NewRecord { value: Some(value), ..NewRecord::default() }).unwrap();
    }
    builder.finish(None).unwrap().to_vec()
}

fn put_field(out: &mut Vec<u8>, field: Option<&[u8]>) {
    put_length(out, field.map(<[u8]>::len));
    out.extend(field.unwrap_or_default());
}

/// A zig-zag varint: lengths are even, -1 for NULL is 1.
fn put_length(out: &mut Vec<u8>, length: Option<usize>) {
    let mut left = length.map_or(1, |length| length * 2);
    while left >= 0x80 {
        out.push(u8::try_from(left & 0x7f).unwrap() | 0x80);
        left >>= 7;
    }
    out.push(u8::try_from(left).unwrap());
}

/// Bytes that are often text, and often what some format escapes.
fn any_field() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        ".{0,20}".prop_map(String::into_bytes),
        proptest::collection::vec(any::<u8>(), 0..20),
        proptest::collection::vec(proptest::sample::select(&b"\t\n\\N\0\"\r"[..]), 0..6),
    ]
}

fn any_headers() -> impl Strategy<Value = Vec<(Vec<u8>, Option<Vec<u8>>)>> {
    proptest::collection::vec((any_field(), proptest::option::of(any_field())), 0..4)
}

prop_compose! {
    /// Any record.
    pub(crate) fn any_sample()(
        offset in 0..=i64::MAX,
        timestamp in prop_oneof![Just(-1), any::<i64>()],
        append in any::<bool>(),
        key in proptest::option::of(any_field()),
        value in proptest::option::of(any_field()),
        headers in any_headers(),
        leader_epoch in -1..5,
        transactional in any::<bool>(),
    ) -> Sample {
        let timestamp_type = if append { TimestampType::LogAppend } else { TimestampType::Create };
        Sample {
            offset,
            timestamp,
            timestamp_type,
            key,
            value,
            headers,
            leader_epoch,
            transactional,
        }
    }
}
