//! One record as files: its value, its key, its envelope; and as attributes.

use crate::engine::batches::FoundRecord;
use crate::engine::log::{Log, LogState};
use crate::error::Result;
use crate::format::batch::BatchHeader;
use crate::units::Offset;
use crate::view::name::Part;
use crate::view::render::attributes::attributes;
use crate::view::render::{Marks, Place, envelope};

/// Names and values of extended attributes.
pub type Attributes = Vec<(Vec<u8>, Vec<u8>)>;

/// What may change about the record at `offset`.
pub fn marks(log: &Log, state: &LogState, header: &BatchHeader, offset: Offset) -> Result<Marks> {
    Ok(Marks {
        txn: log.transaction_state(state, header, offset)?,
        above_high_watermark: offset >= state.high_watermark,
    })
}

/// Size in bytes of one part of a record; `None` when it has no such part.
pub fn size(log: &Log, state: &LogState, found: &FoundRecord, part: Part) -> Result<Option<u64>> {
    let Some(record) = found.record() else { return Ok(None) };
    Ok(match part {
        Part::Value => Some(record.value.map_or(0, <[u8]>::len) as u64),
        Part::Key => record.key.map(|key| key.len() as u64),
        Part::Json => bytes(log, state, found, part)?.map(|json| json.len() as u64),
    })
}

/// One part of a record; `None` when it has no such part.
pub fn bytes(
    log: &Log,
    state: &LogState,
    found: &FoundRecord,
    part: Part,
) -> Result<Option<Vec<u8>>> {
    let Some(record) = found.record() else { return Ok(None) };
    Ok(match part {
        Part::Value => Some(record.value.unwrap_or_default().to_vec()),
        Part::Key => record.key.map(<[u8]>::to_vec),
        Part::Json => {
            let header = &found.batch.header;
            let marks = marks(log, state, header, record.offset)?;
            let place = Place { topic: log.name().topic(), partition: log.name().partition() };
            let mut json = Vec::new();
            envelope(&place, header, &record, Some(&marks), &mut json);
            Some(json)
        }
    })
}

/// The extended attributes of a record (contract 2.8).
pub fn extended_attributes(log: &Log, state: &LogState, found: &FoundRecord) -> Result<Attributes> {
    let Some(record) = found.record() else { return Ok(Vec::new()) };
    let header = &found.batch.header;
    let marks = marks(log, state, header, record.offset)?;
    Ok(attributes(header, &record, &marks))
}
