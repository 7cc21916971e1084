//! JSON: one object and a newline, in kcat's field order and then ours (contract 3.3). It is valid
//! UTF-8 whatever the record holds: bytes that are not become `null` beside their base64 form. Of a
//! header name that is not UTF-8 (Kafka's clients write none) the bad bytes become U+FFFD.
//! Appended, an envelope may leave out any field, and what says where a record was is ignored.

use std::borrow::Cow;
use std::{fmt, io};

use base64::Engine;
use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;
use serde::de::{self, Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeSeq, Serializer};
use smallvec::SmallVec;

use super::{FEW_HEADERS, Marks, NewHeader, NewRecord, Place, TransactionState, timestamp_type};
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

/// Most bytes of an envelope beside key, payload and headers: names, numbers, topic.
const ENVELOPE_BYTES_MAX: usize = 1024;
/// A control character takes one byte of a record and six of JSON; nothing grows more.
const JSON_BYTES_PER_BYTE: usize = 6;

pub(super) const fn longest_text(record_bytes: usize) -> usize {
    record_bytes.saturating_mul(JSON_BYTES_PER_BYTE).saturating_add(ENVELOPE_BYTES_MAX)
}

pub(super) fn parse(text: &[u8]) -> Result<NewRecord<'_>, String> {
    let text = str::from_utf8(text).map_err(|error| {
        let at = error.valid_up_to();
        format!("not UTF-8 from byte {at} on; binary data goes into key_b64 and payload_b64")
    })?;
    let mut json = serde_json::Deserializer::from_str(text);
    json.deserialize_map(Fields)
        .and_then(|record| json.end().map(|()| record))
        .map_err(|error| error.to_string())
}

/// The names of contract 3.3, and kcat's `broker`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum Field {
    Ts,
    Headers,
    Key,
    KeyB64,
    Payload,
    PayloadB64,
    Topic,
    Partition,
    Offset,
    Tstype,
    LeaderEpoch,
    Transactional,
    Txn,
    AboveHighWatermark,
    Broker,
}

/// Reads the fields of an envelope into a record.
struct Fields;

impl<'de> Visitor<'de> for Fields {
    type Value = NewRecord<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<NewRecord<'de>, A::Error> {
        let mut seen = 0_u16;
        let (mut timestamp, mut headers) = (None, None);
        let (mut key, mut payload) = (Bytes::default(), Bytes::default());
        while let Some(field) = fields.next_key::<Field>()? {
            let bit = 1 << field as u16;
            if seen & bit != 0 {
                return Err(de::Error::custom("a field is there twice"));
            }
            seen |= bit;
            match field {
                Field::Ts => timestamp = fields.next_value::<Option<Millis>>()?,
                Field::Headers => headers = fields.next_value::<Option<HeaderList>>()?,
                Field::Key => key.text = fields.next_value()?,
                Field::KeyB64 => key.base64 = fields.next_value()?,
                Field::Payload => payload.text = fields.next_value()?,
                Field::PayloadB64 => payload.base64 = fields.next_value()?,
                Field::Topic
                | Field::Partition
                | Field::Offset
                | Field::Tstype
                | Field::LeaderEpoch
                | Field::Transactional
                | Field::Txn
                | Field::AboveHighWatermark
                | Field::Broker => {
                    fields.next_value::<IgnoredAny>()?;
                }
            }
        }
        let headers = headers.unwrap_or_default();
        Ok(NewRecord {
            timestamp: timestamp.and_then(|Millis(timestamp)| timestamp),
            key: key.either("key", "key_b64")?,
            value: payload.either("payload", "payload_b64")?,
            headers: headers.into_iter().map(|Header(header)| header).collect(),
        })
    }
}

/// The two fields that may say a key or a value.
#[derive(Default)]
struct Bytes<'a> {
    text: Option<Text<'a>>,
    base64: Option<FromBase64>,
}

impl<'a> Bytes<'a> {
    fn either<E: de::Error>(self, text: &str, base64: &str) -> Result<Option<Cow<'a, [u8]>>, E> {
        match (self.text, self.base64) {
            (Some(Text(text)), None) => Ok(Some(text)),
            (None, Some(FromBase64(bytes))) => Ok(Some(Cow::Owned(bytes))),
            (None, None) => Ok(None),
            (Some(_), Some(_)) => {
                Err(E::custom(format_args!("both {text} and {base64}: one must be null")))
            }
        }
    }
}

/// A whole number of milliseconds; -1 is no time, as it is for Kafka.
struct Millis(Option<Timestamp>);

impl<'de> Deserialize<'de> for Millis {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Millis, D::Error> {
        struct Wanted;
        impl Visitor<'_> for Wanted {
            type Value = Millis;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("ts as a whole number of Unix milliseconds below 2^63")
            }

            fn visit_i64<E: de::Error>(self, millis: i64) -> Result<Millis, E> {
                Ok(Millis((millis != -1).then(|| Timestamp::from_millis(millis))))
            }

            fn visit_u64<E: de::Error>(self, millis: u64) -> Result<Millis, E> {
                let wrong = |_| E::invalid_value(de::Unexpected::Unsigned(millis), &self);
                i64::try_from(millis).map_err(wrong).and_then(|millis| self.visit_i64(millis))
            }
        }
        from.deserialize_i64(Wanted)
    }
}

/// A string, borrowed where it has no escapes.
struct Text<'a>(Cow<'a, [u8]>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Text<'a>, D::Error> {
        struct Wanted;
        impl<'de> Visitor<'de> for Wanted {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or null")
            }

            fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(text.as_bytes())))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text.as_bytes().to_vec())))
            }
        }
        from.deserialize_str(Wanted)
    }
}

/// A string of base64, with padding.
struct FromBase64(Vec<u8>);

impl<'de> Deserialize<'de> for FromBase64 {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<FromBase64, D::Error> {
        let Text(text) = Text::deserialize(from)?;
        STANDARD.decode(&text).map(FromBase64).map_err(|error| {
            de::Error::custom(format_args!("no base64 (padded, A-Z a-z 0-9 + /): {error}"))
        })
    }
}

type HeaderList<'a> = SmallVec<[Header<'a>; FEW_HEADERS]>;

/// `[name, value]`, or `[name, null, base64]`.
struct Header<'a>(NewHeader<'a>);

impl<'de: 'a, 'a> Deserialize<'de> for Header<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Header<'a>, D::Error> {
        struct Wanted;
        impl<'de> Visitor<'de> for Wanted {
            type Value = Header<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a header as [name, value] or [name, null, base64]")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Header<'de>, A::Error> {
                let short = |count| de::Error::invalid_length(count, &self);
                let Text(name) = list.next_element()?.ok_or_else(|| short(0))?;
                let text = list.next_element()?.ok_or_else(|| short(1))?;
                let base64 = list.next_element::<Option<FromBase64>>()?.flatten();
                if list.next_element::<IgnoredAny>()?.is_some() {
                    return Err(short(4));
                }
                let value = Bytes { text, base64 }.either("the value of a header", "its base64")?;
                Ok(Header((name, value)))
            }
        }
        from.deserialize_seq(Wanted)
    }
}

#[cfg(test)]
mod tests {
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

    fn refusal(text: &str) -> String {
        parse(text.as_bytes()).unwrap_err()
    }

    /// Contract 3.3 (`test_jsonl_fields`).
    #[test]
    fn the_fields_of_a_record_are_taken_and_those_of_its_place_ignored() {
        let text = r#" {"topic":"other","partition":9,"offset":[77],"tstype":"logappend","ts":5,
            "broker":1,"headers":[["h","1"],["n",null],["b",null,"/wA="],["h","",null]],"key":null,
            "key_b64":"/w==","payload":"a\u0000\n","payload_b64":null,"leader_epoch":99,
            "transactional":true,"txn":{"a":{}},"above_high_watermark":true} "#;
        let record = parse(text.as_bytes()).unwrap();
        assert_eq!(record.timestamp, Some(Timestamp::from_millis(5)));
        assert_eq!(record.key.as_deref(), Some(&b"\xff"[..]));
        assert_eq!(record.value.as_deref(), Some(&b"a\0\n"[..]));
        let headers: Vec<_> = record.headers.iter().map(|(n, v)| (&n[..], v.as_deref())).collect();
        let meant: [(&[u8], Option<&[u8]>); 4] =
            [(b"h", Some(b"1")), (b"n", None), (b"b", Some(b"\xff\0")), (b"h", Some(b""))];
        assert_eq!(headers, meant);
    }

    #[test]
    fn what_is_not_said_is_null() {
        let nothing = NewRecord::default();
        for text in
            ["{}", "{\"ts\":-1}\r", "{\"ts\":null,\"headers\":null,\"key\":null,\"payload\":null}"]
        {
            assert_eq!(parse(text.as_bytes()).as_ref(), Ok(&nothing), "{text}");
        }
        let empty = parse(br#"{"key":"","payload_b64":""}"#).unwrap();
        assert_eq!((empty.key.as_deref(), empty.value.as_deref()), (Some(&[][..]), Some(&[][..])));
    }

    #[test]
    fn text_without_escapes_is_borrowed() {
        let record = parse(b"{\"key\":\"k\",\"payload\":\"\\u0061\"}").unwrap();
        assert!(matches!(record.key, Some(Cow::Borrowed(b"k"))));
        assert!(matches!(record.value, Some(Cow::Owned(_))));
    }

    #[test]
    fn times_are_whole_numbers_of_64_bits() {
        for millis in [i64::MIN, -2, 0, i64::MAX] {
            let text = format!("{{\"ts\":{millis}}}");
            let record = parse(text.as_bytes()).unwrap();
            assert_eq!(record.timestamp.map(Timestamp::millis), Some(millis));
        }
        let wanted = "expected ts as a whole number of Unix milliseconds below 2^63 at line 1";
        for number in ["1.5", "1e3", "9223372036854775808", "1e400", "\"5\"", "[]", "-1e3"] {
            let said = refusal(&format!("{{\"ts\":{number}}}"));
            assert!(said.contains(wanted) || said.starts_with("number out of range"), "{said}");
        }
    }

    /// Contract 3.3 (`test_bad_input_is_einval`): the reason says what to do.
    #[test]
    fn what_is_no_envelope_is_refused_with_a_reason() {
        let deep = format!("{{\"headers\":{}", "[".repeat(100_000));
        for (text, reason) in [
            ("", "EOF while parsing a value"),
            ("{\"payload\":", "EOF while parsing a value at line 1 column 11"),
            ("[1]", "invalid type: sequence, expected a JSON object at line 1"),
            ("null", "invalid type: null, expected a JSON object"),
            ("{} {}", "trailing characters at line 1 column 4"),
            ("{\"colour\":1}", "unknown field `colour`, expected one of `ts`, `headers`, `key`, "),
            ("{\"key\":\"a\",\"key\":null}", "a field is there twice at line 1 column 16"),
            ("{\"topic\":1,\"topic\":2}", "a field is there twice"),
            ("{\"key\":\"a\",\"key_b64\":\"YQ==\"}", "both key and key_b64: one must be null"),
            ("{\"payload\":\"a\",\"payload_b64\":\"\"}", "both payload and payload_b64"),
            ("{\"payload\":5}", "invalid type: integer `5`, expected a string or null at line 1"),
            ("{\"key\":{}}", "invalid type: map, expected a string or null"),
            ("{\"payload_b64\":\"%\"}", "no base64 (padded, A-Z a-z 0-9 + /): "),
            ("{\"payload_b64\":\"YQ\"}", "no base64"),
            ("{\"key\":\"\\ud800\"}", "unexpected end of hex escape"),
            ("{\"key\":\"\\ud800\\u0061\"}", "lone leading surrogate in hex escape"),
            ("{\"key\":\"\\udc00\"}", "lone leading surrogate in hex escape"),
            ("{\"key\":\"a\tb\"}", "control character (\\u0000-\\u001F) found while parsing"),
            ("{\"headers\":[\"h\",\"1\"]}", "invalid type: string \"h\", expected a header as ["),
            ("{\"headers\":[[\"h\"]]}", "invalid length 1, expected a header as [name, value]"),
            ("{\"headers\":[[\"h\",\"1\",\"YQ==\"]]}", "both the value of a header and its base64"),
            ("{\"headers\":[[\"h\",null,null,1]]}", "invalid length 4, expected a header"),
            ("{\"headers\":[[null,\"1\"]]}", "invalid type: null, expected a string"),
            ("{\"headers\":{\"h\":\"1\"}}", "invalid type: map, expected"),
            (&deep, "invalid type: sequence, expected a string"),
        ] {
            let said = refusal(text);
            assert!(said.starts_with(reason), "{}: {said}", &text[..text.len().min(50)]);
        }
        let said = parse(b"{\"key\":\"\xff\"}").unwrap_err();
        assert!(said.starts_with("not UTF-8 from byte 8 on"), "{said}");
    }

    #[test]
    fn depth_overflows_no_stack() {
        for open in ["[", "{\"a\":"] {
            for field in ["broker", "key", "headers", "ts", "other"] {
                let text = format!("{{\"{field}\":{}", open.repeat(1_000_000));
                assert!(parse(text.as_bytes()).is_err());
            }
        }
        let closed = format!("{{\"txn\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(parse(closed.as_bytes()), Ok(NewRecord::default()));
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
