//! Control records, which tell readers of a log something: the end of a transaction, or what the
//! quorum of a metadata log agreed on.

use std::fmt::Display;
use std::sync::LazyLock;

use crate::format::record::Record;
use crate::inspect::dump::json::push_json;
use crate::inspect::dump::schema::Schema;
use crate::inspect::dump::schemas;
use crate::inspect::dump::wire::{Shape, Wire};

/// What stands before the JSON of the types from 2 on. That the first of them has a colon is
/// Kafka's slip.
const LABELS: [&str; 5] =
    [" LeaderChange: ", " SnapshotHeader ", " SnapshotFooter ", " KRaftVersion ", " KRaftVoters "];
static SCHEMAS: LazyLock<Vec<Schema>> = LazyLock::new(|| schemas::parse_all(schemas::CONTROL));

/// Appends what the record says. Fails, with nothing appended, where Kafka's tool throws.
pub fn push_control(record: &Record<'_>, out: &mut Vec<u8>) -> Result<(), String> {
    let kind = control_type(record.key.ok_or("a control record without a key")?)?;
    let value = || record.value.ok_or("a control record without a value");
    let of_quorum = usize::try_from(i32::from(kind) - 2).ok().filter(|at| *at < LABELS.len());
    match (kind, of_quorum) {
        (0, _) => push_marker("ABORT", value()?, out),
        (1, _) => push_marker("COMMIT", value()?, out),
        (_, Some(at)) => push_quorum_record(at, value()?, out),
        (_, None) => {
            push_text(&format_args!(" controlType: UNKNOWN({kind})"), out);
            Ok(())
        }
    }
}

/// The type in a control record's key: 2 bytes version, 2 bytes type.
fn control_type(key: &[u8]) -> Result<i16, String> {
    if key.len() < 4 {
        return Err(format!(
            "Invalid value size found for control record key. Must have at least 4 bytes, but \
             found only {}",
            key.len()
        ));
    }
    let mut wire = Wire::new(key);
    match wire.int16()? {
        0.. => wire.int16(),
        version => Err(format!(
            "Invalid version found for control record: {version}. May indicate data corruption"
        )),
    }
}

/// The end of a transaction: 2 bytes version, 4 bytes epoch of the coordinator.
fn push_marker(kind: &str, value: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
    let mut wire = Wire::new(value);
    let version = wire.int16()?;
    if version < 0 {
        return Err(format!(
            "Invalid version found for end transaction marker: {version}. May indicate data \
             corruption"
        ));
    }
    let epoch = wire.int32()?;
    push_text(&format_args!(" endTxnMarker: {kind} coordinatorEpoch: {epoch}"), out);
    Ok(())
}

/// Kafka reads all of them as version 0, and shows them in the version that they say they have.
fn push_quorum_record(at: usize, value: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
    let schema = SCHEMAS.get(at).ok_or("no schema")?;
    let shown = Wire::new(value).int16()?;
    let data = Wire::new(value).read(schema, Shape { stored: 0, shown })?;
    out.extend_from_slice(LABELS[at].as_bytes());
    push_json(&data, out);
    Ok(())
}

fn push_text(text: &impl Display, out: &mut Vec<u8>) {
    out.extend_from_slice(text.to_string().as_bytes());
}
