//! What the dump tool prints of a record's key and value: text, or the records of Kafka's own
//! topics as JSON.

use serde_json::{Map, Value, json};

use base64::prelude::{BASE64_STANDARD, Engine};

use crate::format::record::Record;
use crate::inspect::dump::json::push_json;
use crate::inspect::dump::schema::Schema;
use crate::inspect::dump::schemas;
use crate::inspect::dump::text::push_java_text;
use crate::inspect::dump::wire::{Shape, Wire};

/// Keys and values that are longer are not decoded, since they become a hundred times as much
/// while they are. A broker takes 1 MiB unless it is told otherwise.
const MOST_DECODED_BYTES: usize = 8 << 20;
/// `GroupMetadataValue`, in which members hold bytes of the consumers' protocol.
const GROUP_METADATA: i16 = 2;
/// Names of `transactionStatus`, by number.
const TRANSACTION_STATES: [&str; 8] = [
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
];

/// How keys and values are shown.
#[derive(Debug)]
pub enum Decoder {
    /// As UTF-8 text, which is Kafka's `StringDecoder`.
    Text,
    /// As records of a topic of a coordinator.
    Coordinator(Coordinator),
    /// As records of `__cluster_metadata`.
    ClusterMetadata(Vec<Schema>),
}

/// The schemas of the records of one coordinator.
#[derive(Debug)]
pub struct Coordinator {
    keys: Vec<Schema>,
    values: Vec<Schema>,
    which: Which,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    Group,
    Transaction,
    Share,
}

impl Decoder {
    /// For `__consumer_offsets`.
    pub fn offsets() -> Decoder {
        Decoder::Coordinator(Coordinator::new(Which::Group, schemas::GROUP))
    }

    /// For `__transaction_state`.
    pub fn transaction_log() -> Decoder {
        Decoder::Coordinator(Coordinator::new(Which::Transaction, schemas::TRANSACTION))
    }

    /// For `__share_group_state`.
    pub fn share_group_state() -> Decoder {
        Decoder::Coordinator(Coordinator::new(Which::Share, schemas::SHARE))
    }

    /// For `__cluster_metadata`.
    pub fn cluster_metadata() -> Decoder {
        Decoder::ClusterMetadata(schemas::parse_all(schemas::METADATA))
    }

    /// Appends `key: ` and `payload: ` with what the record has of them; `prefix` stands before the
    /// first, a space before the second. `offset` is the record's. Fails, with nothing appended,
    /// where Kafka's tool throws.
    #[inline]
    pub fn push(
        &self,
        record: &Record<'_>,
        offset: i64,
        prefix: &str,
        out: &mut Vec<u8>,
    ) -> Result<(), String> {
        match self {
            Decoder::Text => {
                push_texts(record, prefix, out);
                Ok(())
            }
            Decoder::Coordinator(_) | Decoder::ClusterMetadata(_) => {
                let (key, payload) = self.decode(record, offset)?;
                let payload_prefix = if key.is_some() { " " } else { prefix };
                if let Some(key) = key {
                    push_labelled(prefix, "key: ", &key, out);
                }
                if let Some(payload) = payload {
                    push_labelled(payload_prefix, "payload: ", &payload, out);
                }
                Ok(())
            }
        }
    }

    fn decode(&self, record: &Record<'_>, offset: i64) -> Result<(Shown, Shown), String> {
        let longest = record.key.map_or(0, <[u8]>::len).max(record.value.map_or(0, <[u8]>::len));
        if longest > MOST_DECODED_BYTES {
            return Err(format!("a record of {longest} bytes is not decoded"));
        }
        match self {
            Decoder::Text => Ok((None, None)),
            Decoder::Coordinator(coordinator) => coordinator.decode(record, offset),
            Decoder::ClusterMetadata(schemas) => {
                let decoded = decode_metadata(schemas, record.value);
                let shown = decoded.map_or_else(
                    |message| format!("Error at {offset}, skipping. {message}").into_bytes(),
                    |value| text_of(&value),
                );
                Ok((None, Some(shown)))
            }
        }
    }
}

/// Text of a key or value, when there is one.
type Shown = Option<Vec<u8>>;

#[inline]
fn push_texts(record: &Record<'_>, prefix: &str, out: &mut Vec<u8>) {
    let mut prefix = prefix;
    if let Some(key) = record.key {
        out.extend_from_slice(prefix.as_bytes());
        out.extend_from_slice(b"key: ");
        push_java_text(key, out);
        prefix = " ";
    }
    if let Some(value) = record.value {
        out.extend_from_slice(prefix.as_bytes());
        out.extend_from_slice(b"payload: ");
        push_java_text(value, out);
    }
}

fn push_labelled(prefix: &str, label: &str, text: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(prefix.as_bytes());
    out.extend_from_slice(label.as_bytes());
    out.extend_from_slice(text);
}

fn text_of(value: &Value) -> Vec<u8> {
    let mut text = Vec::new();
    push_json(value, &mut text);
    text
}

/// Why a record of a coordinator cannot be shown.
enum Failure {
    UnknownType(i16),
    Other(String),
}

impl From<String> for Failure {
    fn from(message: String) -> Failure {
        Failure::Other(message)
    }
}

impl Coordinator {
    fn new(which: Which, texts: &[&str]) -> Coordinator {
        let (keys, values) = schemas::parse_all(texts).into_iter().partition(|s| s.is_key);
        Coordinator { keys, values, which }
    }

    fn decode(&self, record: &Record<'_>, offset: i64) -> Result<(Shown, Shown), String> {
        let key = record.key.ok_or_else(|| {
            format!(
                "Failed to decode message at offset {offset} using the specified decoder (message \
                 had a missing key)"
            )
        })?;
        Ok(match self.decode_pair(key, record.value) {
            Ok((key, value)) => (Some(key), Some(value)),
            Err(Failure::UnknownType(kind)) => {
                let text = format!("Unknown record type {kind} at offset {offset}, skipping.");
                (Some(text.into_bytes()), None)
            }
            Err(Failure::Other(message)) => {
                let text = format!("Error at offset {offset}, skipping. {message}");
                (Some(text.into_bytes()), None)
            }
        })
    }

    fn decode_pair(&self, key: &[u8], value: Option<&[u8]>) -> Result<(Vec<u8>, Vec<u8>), Failure> {
        let mut wire = Wire::new(key);
        let kind = wire.int16().map_err(|_| no_version("key"))?;
        let schema = find(&self.keys, kind).ok_or(Failure::UnknownType(kind))?;
        // All keys have one version, 0; what stands before them is their type.
        let shape = Shape { stored: 0, shown: 0 };
        let data = wire.read(schema, shape).map_err(|message| unreadable(kind, "key", &message))?;
        let key = text_of(&json!({ "type": kind.to_string(), "data": data }));
        let value = value.map_or(Ok(b"<DELETE>".to_vec()), |value| self.decode_value(kind, value));
        Ok((key, value?))
    }

    fn decode_value(&self, kind: i16, value: &[u8]) -> Result<Vec<u8>, Failure> {
        let schema = find(&self.values, kind).ok_or(Failure::UnknownType(kind))?;
        let mut wire = Wire::new(value);
        let version = wire.int16().map_err(|_| no_version("value"))?;
        if !schema.valid.contains(version) {
            let message = format!("Found an unknown record version {version} for {kind} type");
            return Err(Failure::Other(message));
        }
        let shape = Shape { stored: version, shown: version };
        let mut data =
            wire.read(schema, shape).map_err(|message| unreadable(version, "value", &message))?;
        match self.which {
            Which::Group if kind == GROUP_METADATA => show_members(&mut data),
            Which::Transaction => name_transaction_status(&mut data),
            Which::Group | Which::Share => {}
        }
        Ok(text_of(&json!({ "version": version.to_string(), "data": data })))
    }
}

fn find(schemas: &[Schema], api_key: i16) -> Option<&Schema> {
    schemas.iter().find(|schema| schema.api_key == api_key)
}

fn no_version(which: &str) -> String {
    format!("Could not read version from {which}'s buffer.")
}

fn unreadable(version: i16, which: &str, message: &str) -> String {
    format!("Could not read record with version {version} from {which}'s buffer due to: {message}.")
}

fn name_transaction_status(data: &mut Value) {
    if let Some(status) = data.get_mut("transactionStatus") {
        let known = status.as_u64().and_then(|number| usize::try_from(number).ok());
        let name = known.and_then(|number| TRANSACTION_STATES.get(number));
        *status = name.map_or_else(|| status.to_string(), |name| (*name).to_owned()).into();
    }
}

/// Where the members of a group are consumers, their bytes are shown in the form of the consumers'
/// protocol. Bytes that have another form stay.
fn show_members(data: &mut Value) {
    if data.get("protocolType").and_then(Value::as_str) != Some("consumer") {
        return;
    }
    let protocol = schemas::parse_all(schemas::CONSUMER);
    let Some(members) = data.get_mut("members").and_then(Value::as_array_mut) else { return };
    for member in members.iter_mut().filter_map(Value::as_object_mut) {
        for (field, schema) in ["subscription", "assignment"].into_iter().zip(&protocol) {
            show_member_field(member, field, schema);
        }
    }
}

fn show_member_field(member: &mut Map<String, Value>, field: &str, schema: &Schema) {
    let Some(place) = member.get_mut(field) else { return };
    let Some(bytes) = place.as_str().and_then(|text| BASE64_STANDARD.decode(text).ok()) else {
        return;
    };
    let mut wire = Wire::new(&bytes);
    let Ok(version) = wire.int16() else { return };
    if let Ok(shown) = wire.read(schema, Shape { stored: version, shown: version }) {
        *place = shown;
    }
}

/// The record of the metadata log with this value; an error is the message of Kafka's exception.
fn decode_metadata(schemas: &[Schema], value: Option<&[u8]>) -> Result<Value, String> {
    let mut wire = Wire::new(value.unwrap_or_default());
    match frame_number(&mut wire, "frame version")? {
        1 => {}
        0 => {
            return Err("Could not deserialize metadata record with frame version 0. Note that \
                        upgrades from the preview release of KRaft in 2.8 to newer versions are \
                        not supported."
                .to_owned());
        }
        other => {
            return Err(format!(
                "Could not deserialize metadata record due to unknown frame version {other}(only \
                 frame version 1 is supported)"
            ));
        }
    }
    let kind = frame_number(&mut wire, "type")?;
    let version = frame_number(&mut wire, "version")?;
    let schema = find(schemas, kind).ok_or_else(|| {
        format!(
            "org.apache.kafka.common.errors.UnsupportedVersionException: Unknown metadata id {kind}"
        )
    })?;
    let data = wire
        .read(schema, Shape { stored: version, shown: version })
        .map_err(|_| format!("Failed to deserialize record with type {kind}"))?;
    match wire.remaining() {
        0 => Ok(json!({ "type": schema.constant_name(), "version": version, "data": data })),
        left => Err(format!("Found {left} byte(s) of garbage after {kind}")),
    }
}

fn frame_number(wire: &mut Wire<'_>, what: &str) -> Result<i16, String> {
    let number = wire.unsigned_varint().map_err(|_| format!("Error while reading {what}"))?;
    if number > i32::from(i16::MAX) {
        return Err(format!("Value for {what} was too large."));
    }
    // A negative number keeps its low bits, as a cast in Java does.
    let [.., high, low] = number.to_be_bytes();
    Ok(i16::from_be_bytes([high, low]))
}
