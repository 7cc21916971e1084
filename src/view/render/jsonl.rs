//! JSON: one object and a newline, in kcat's field order and then ours (contract 3.3). It is valid
//! UTF-8 whatever the record holds: bytes that are not become `null` beside their base64 form. Of a
//! header name that is not UTF-8 (Kafka's clients write none) the bad bytes become U+FFFD.

use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;
use serde::ser::{Serialize, SerializeSeq, Serializer};
use std::io;

use super::{Marks, Place, TransactionState, timestamp_type};
use crate::format::batch::BatchHeader;
use crate::format::record::{Headers, Record};
use crate::units::{LeaderEpoch, Timestamp};

/// Appends the envelope of one record and a newline; with `marks`, what may change about it too.
pub fn envelope(
    place: &Place,
    batch: &BatchHeader,
    record: &Record,
    marks: Option<&Marks>,
    out: &mut Vec<u8>,
) {
    write(&Envelope::new(place, batch, record, marks), &mut *out);
    out.push(b'\n');
}

pub(super) fn rendered_bytes(place: &Place, batch: &BatchHeader, record: &Record) -> usize {
    let mut counter = ByteCounter(0);
    write(&Envelope::new(place, batch, record, None), &mut counter);
    counter.0 + 1
}

fn write(envelope: &Envelope, out: impl io::Write) {
    serde_json::to_writer(out, envelope)
        .expect("memory takes every byte, and text and numbers have a form in JSON");
}

#[derive(serde::Serialize)]
struct Envelope<'a> {
    topic: &'a str,
    partition: u32,
    offset: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    tstype: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<i64>,
    #[serde(skip_serializing_if = "Headers::is_empty", serialize_with = "serialize_headers")]
    headers: Headers<'a>,
    key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_b64: Option<Base64<'a>>,
    payload: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_b64: Option<Base64<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    leader_epoch: Option<i32>,
    #[serde(skip_serializing_if = "is_false")]
    transactional: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    txn: Option<&'static str>,
    #[serde(skip_serializing_if = "is_false")]
    above_high_watermark: bool,
}

impl<'a> Envelope<'a> {
    fn new(
        place: &Place<'a>,
        batch: &BatchHeader,
        record: &Record<'a>,
        marks: Option<&Marks>,
    ) -> Envelope<'a> {
        let (key, key_b64) = text_or_base64(record.key);
        let (payload, payload_b64) = text_or_base64(record.value);
        Envelope {
            topic: place.topic,
            partition: place.partition,
            offset: record.offset.get(),
            tstype: record.timestamp.map(|_| timestamp_type(batch)),
            ts: record.timestamp.map(Timestamp::millis),
            headers: record.headers,
            key,
            key_b64,
            payload,
            payload_b64,
            leader_epoch: batch.leader_epoch.map(LeaderEpoch::get),
            transactional: batch.transactional,
            txn: marks.and_then(|marks| marks.txn).map(TransactionState::as_str),
            above_high_watermark: marks.is_some_and(|marks| marks.above_high_watermark),
        }
    }
}

/// The two fields that show `bytes`: the text, or where there is none the base64 form.
fn text_or_base64(bytes: Option<&[u8]>) -> (Option<&str>, Option<Base64<'_>>) {
    match bytes.map(str::from_utf8) {
        None => (None, None),
        Some(Ok(text)) => (Some(text), None),
        Some(Err(_)) => (None, bytes.map(Base64)),
    }
}

fn serialize_headers<S: Serializer>(headers: &Headers, to: S) -> Result<S::Ok, S::Error> {
    let mut list = to.serialize_seq(Some(headers.len()))?;
    for (name, value) in headers.iter() {
        let name = String::from_utf8_lossy(name);
        match text_or_base64(value) {
            (text, None) => list.serialize_element(&(name, text))?,
            (text, base64) => list.serialize_element(&(name, text, base64))?,
        }
    }
    list.end()
}

/// Bytes that JSON shows in base64, with padding.
struct Base64<'a>(&'a [u8]);

impl Serialize for Base64<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&Base64Display::new(self.0, &STANDARD))
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_false(flag: &bool) -> bool {
    !*flag
}

/// Takes bytes to count them.
struct ByteCounter(usize);

impl io::Write for ByteCounter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::super::sample::{Sample, any_sample};
    use super::*;
    use crate::format::batch::TimestampType;

    fn text(sample: &Sample, marks: Option<&Marks>) -> String {
        let mut out = Vec::new();
        sample.with(|place, batch, record| envelope(place, batch, record, marks, &mut out));
        String::from_utf8(out).unwrap()
    }

    fn parsed(sample: &Sample) -> Value {
        serde_json::from_str(&text(sample, None)).unwrap()
    }

    fn names(json: &Value) -> Vec<&str> {
        json.as_object().unwrap().keys().map(String::as_str).collect()
    }

    fn headers(list: &[(&[u8], Option<&[u8]>)]) -> Value {
        let mut sample = Sample::new(None, None);
        sample.headers = list.iter().map(|(n, v)| (n.to_vec(), v.map(<[u8]>::to_vec))).collect();
        parsed(&sample)["headers"].clone()
    }

    #[test]
    fn a_plain_record_is_one_compact_line() {
        let mut sample = Sample::new(None, Some(b"v42"));
        sample.offset = 42;
        sample.timestamp = 1_700_000_042_000;
        let line = "{\"topic\":\"t\",\"partition\":7,\"offset\":42,\"tstype\":\"create\",\
                    \"ts\":1700000042000,\"key\":null,\"payload\":\"v42\",\"leader_epoch\":0}\n";
        assert_eq!(text(&sample, None), line);
    }

    /// Contract 3.3 (`test_json_field_order`).
    #[test]
    fn fields_stand_in_kcats_order_and_only_marks_say_what_may_change() {
        let mut sample = Sample::new(Some(b"\xff"), Some(b"\xfe"));
        sample.headers = vec![(b"h".to_vec(), Some(b"1".to_vec()))];
        sample.transactional = true;
        let fields = [
            "topic",
            "partition",
            "offset",
            "tstype",
            "ts",
            "headers",
            "key",
            "key_b64",
            "payload",
            "payload_b64",
            "leader_epoch",
            "transactional",
            "txn",
            "above_high_watermark",
        ];
        assert_eq!(names(&parsed(&sample)), fields[..12]);
        let marks = Marks { txn: Some(TransactionState::Aborted), above_high_watermark: true };
        let json: Value = serde_json::from_str(&text(&sample, Some(&marks))).unwrap();
        assert_eq!(names(&json), fields);
        assert_eq!((&json["txn"], &json["transactional"]), (&json!("aborted"), &json!(true)));
        assert_eq!(text(&sample, Some(&Marks::default())), text(&sample, None));
    }

    #[test]
    fn a_transaction_is_committed_aborted_or_open() {
        for (state, word) in [
            (TransactionState::Committed, "\"txn\":\"committed\""),
            (TransactionState::Aborted, "\"txn\":\"aborted\""),
            (TransactionState::Open, "\"txn\":\"open\""),
        ] {
            let marks = Marks { txn: Some(state), above_high_watermark: false };
            assert!(text(&Sample::new(None, None), Some(&marks)).contains(word));
        }
    }

    #[test]
    fn without_a_timestamp_or_an_epoch_there_are_no_such_fields() {
        let mut sample = Sample::new(None, Some(b"v"));
        sample.timestamp = -1;
        sample.leader_epoch = -1;
        assert_eq!(names(&parsed(&sample)), ["topic", "partition", "offset", "key", "payload"]);
        sample.timestamp = -2;
        assert_eq!(parsed(&sample)["ts"], -2);
    }

    #[test]
    fn append_time_is_named() {
        let mut sample = Sample::new(None, Some(b"v"));
        sample.timestamp_type = TimestampType::LogAppend;
        assert_eq!(parsed(&sample)["tstype"], "logappend");
    }

    /// Contract 3.3 (`test_json_headers`).
    #[test]
    fn headers_keep_order_duplicates_and_null() {
        let said = headers(&[
            (b"h", Some(b"1")),
            (b"h", Some(b"2")),
            (b"null", None),
            (b"empty", Some(b"")),
            (b"bin", Some(b"\xff\0")),
            ("n\u{e9}".as_bytes(), Some(b"x")),
        ]);
        let meant = json!([
            ["h", "1"],
            ["h", "2"],
            ["null", null],
            ["empty", ""],
            ["bin", null, "/wA="],
            ["n\u{e9}", "x"]
        ]);
        assert_eq!(said, meant);
    }

    #[test]
    fn a_header_name_that_is_not_utf8_is_shown_with_replacement_characters() {
        assert_eq!(headers(&[(b"a\xffb", Some(b"1"))]), json!([["a\u{fffd}b", "1"]]));
    }

    /// Contract 3.3 (`test_json_null_and_empty`).
    #[test]
    fn null_and_empty_differ() {
        let fields = [(None, json!(null)), (Some(&b""[..]), json!("")), (Some(b"k"), json!("k"))];
        for (key, key_json) in &fields {
            for (value, value_json) in &fields {
                let json = parsed(&Sample::new(*key, *value));
                assert_eq!((&json["key"], &json["payload"]), (key_json, value_json));
            }
        }
    }

    #[test]
    fn control_characters_are_escaped_and_other_text_is_not() {
        let said =
            text(&Sample::new(None, Some("\0\u{1b}\n\"\\/\u{7f}\u{e9}\u{2028}".as_bytes())), None);
        let meant = "\"payload\":\"\\u0000\\u001b\\n\\\"\\\\/\u{7f}\u{e9}\u{2028}\"";
        assert!(said.contains(meant), "{said}");
    }

    /// The bytes that `name` and its base64 form show.
    fn shown(json: &Value, name: &str) -> Option<Vec<u8>> {
        match (json[name].as_str(), json[format!("{name}_b64")].as_str()) {
            (Some(text), None) => Some(text.as_bytes().to_vec()),
            (None, Some(base64)) => Some(STANDARD.decode(base64).unwrap()),
            (None, None) => None,
            (Some(_), Some(_)) => panic!("text and base64 of {name}"),
        }
    }

    proptest! {
        #[test]
        fn json_says_what_the_record_holds(sample in any_sample()) {
            let json = parsed(&sample);
            prop_assert_eq!(json["offset"].as_i64(), Some(sample.offset));
            prop_assert_eq!(json["ts"].as_i64(), Some(sample.timestamp).filter(|&ts| ts != -1));
            prop_assert_eq!(shown(&json, "key"), sample.key.clone());
            prop_assert_eq!(shown(&json, "payload"), sample.value.clone());
            let epoch = LeaderEpoch::new(sample.leader_epoch).map(|epoch| i64::from(epoch.get()));
            prop_assert_eq!(json["leader_epoch"].as_i64(), epoch);
            prop_assert_eq!(json.get("transactional").is_some(), sample.transactional);
            let list = json.get("headers").map_or(&[][..], |list| list.as_array().unwrap());
            prop_assert_eq!(list.len(), sample.headers.len());
            for (entry, (name, value)) in list.iter().zip(&sample.headers) {
                prop_assert_eq!(entry[0].as_str().unwrap(), String::from_utf8_lossy(name));
                let bytes = entry[1].as_str().map(|text| text.as_bytes().to_vec());
                let base64 = entry.get(2).map(|text| text.as_str().unwrap());
                let bytes = bytes.or(base64.map(|text| STANDARD.decode(text).unwrap()));
                prop_assert_eq!(&bytes, value);
            }
        }
    }
}
