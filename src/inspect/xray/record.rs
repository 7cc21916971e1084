//! The record that a lookup came to, and the bytes around it with their names.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

use crate::engine::batches::FoundRecord;
use crate::engine::facts::file_name;
use crate::engine::log::Log;
use crate::engine::segment::Segment;
use crate::error::Result;
use crate::format::batch::{BatchHeader, HEADER_BYTES, Magic};
use crate::units::{Offset, Position, Timestamp};

/// Of longer keys and values the beginning is shown.
const MOST_SHOWN_BYTES: usize = 4096;
/// Headers beyond these are counted.
const MOST_HEADERS: usize = 64;

/// Where a record lies, and what it is.
#[derive(Debug, Serialize)]
pub struct RecordFound {
    /// Its offset.
    pub offset: Offset,
    /// Its time in Unix milliseconds, where it has one.
    pub timestamp: Option<i64>,
    /// The segment file.
    pub segment: String,
    /// Where its batch begins.
    pub position: u64,
    /// Bytes of the batch.
    pub batch_bytes: u64,
    /// How the records of the batch are compressed.
    pub codec: String,
    /// Records in the batch, 0 where a legacy wrapper does not say.
    pub batch_records: u32,
    /// Records of the batch before this one, which the scan inside the batch passes.
    pub records_before_in_batch: u64,
    /// Their bytes, uncompressed.
    pub bytes_before_in_batch: u64,
    /// The key; `None` for NULL.
    pub key: Option<Content>,
    /// The value; `None` for NULL.
    pub value: Option<Content>,
    /// Names and values of its headers.
    pub headers: Vec<(Content, Option<Content>)>,
    /// How many headers it has.
    pub headers_count: usize,
    /// The header of its batch, field by field.
    pub fields: Vec<Field>,
}

/// Bytes, shown as text where they are.
#[derive(Debug, Serialize)]
pub struct Content {
    /// How many there are.
    pub bytes: usize,
    /// Their beginning as text.
    pub text: Option<String>,
    /// Their beginning where it is no text.
    pub base64: Option<String>,
    /// Are there more than are shown?
    pub cut: bool,
}

/// A field of a batch header.
#[derive(Debug, Serialize)]
pub struct Field {
    /// As Kafka calls it.
    pub name: &'static str,
    /// Where it stands in the file.
    pub position: u64,
    /// Its bytes.
    pub hex: String,
    /// The number that they are.
    pub value: i64,
}

/// Names and sizes of the fields of a magic 2 header, in their order.
const FIELDS: [(&str, usize); 13] = [
    ("baseOffset", 8),
    ("batchLength", 4),
    ("partitionLeaderEpoch", 4),
    ("magic", 1),
    ("crc", 4),
    ("attributes", 2),
    ("lastOffsetDelta", 4),
    ("baseTimestamp", 8),
    ("maxTimestamp", 8),
    ("producerId", 8),
    ("producerEpoch", 2),
    ("baseSequence", 4),
    ("recordsCount", 4),
];

/// The record and its surroundings.
pub(super) fn of(
    log: &Log,
    found: &FoundRecord,
    segment: &Segment,
    position: Position,
) -> Result<RecordFound> {
    let header = &found.batch.header;
    let (records_before_in_batch, bytes_before_in_batch) = found.before();
    let record = found.record();
    let headers = record.as_ref().map(|record| record.headers).unwrap_or_default();
    let content = |bytes: Option<&[u8]>| bytes.map(content);
    Ok(RecordFound {
        offset: record.as_ref().map_or(header.base_offset, |record| record.offset),
        timestamp: record.as_ref().and_then(|record| record.timestamp).map(Timestamp::millis),
        segment: file_name(segment.log.path()),
        position: position.get(),
        batch_bytes: header.bytes,
        codec: format!("{:?}", header.codec).to_ascii_lowercase(),
        batch_records: header.records_count,
        records_before_in_batch,
        bytes_before_in_batch,
        key: content(record.as_ref().and_then(|record| record.key)),
        value: content(record.as_ref().and_then(|record| record.value)),
        headers: headers
            .iter()
            .take(MOST_HEADERS)
            .map(|(name, value)| (self::content(name), content(value)))
            .collect(),
        headers_count: headers.len(),
        fields: fields(log, header, segment, position)?,
    })
}

fn content(bytes: &[u8]) -> Content {
    let mut shown = &bytes[..bytes.len().min(MOST_SHOWN_BYTES)];
    let cut = shown.len() < bytes.len();
    if cut
        && let Err(e) = str::from_utf8(shown)
        && e.error_len().is_none()
    {
        // Not in the middle of a character.
        shown = &shown[..e.valid_up_to()];
    }
    let text = str::from_utf8(shown).ok().map(str::to_owned);
    let base64 = text.is_none().then(|| STANDARD.encode(shown));
    Content { bytes: bytes.len(), text, base64, cut }
}

/// The header's bytes, which lie in a page that the lookup read.
fn fields(
    log: &Log,
    header: &BatchHeader,
    segment: &Segment,
    position: Position,
) -> Result<Vec<Field>> {
    if header.magic != Magic::V2 {
        return Ok(Vec::new());
    }
    let mut bytes = [0; HEADER_BYTES];
    let read = log.shared().disk.read_at(&segment.log.file, position, &mut bytes)?;
    let mut rest = &bytes[..read];
    let mut at = position;
    let mut fields = Vec::new();
    for (name, size) in FIELDS {
        let Some((field, behind)) = rest.split_at_checked(size) else { break };
        let negative = field[0] >= 0x80 && name != "crc";
        let start = if negative { -1 } else { 0 };
        let value = field.iter().fold(start, |value: i64, byte| value << 8 | i64::from(*byte));
        let hex: Vec<String> = field.iter().map(|byte| format!("{byte:02x}")).collect();
        fields.push(Field { name, position: at.get(), hex: hex.join(" "), value });
        (rest, at) = (behind, at.plus(size as u64));
    }
    Ok(fields)
}
