//! Records to bytes, in each format of a range and as one JSON envelope. One format, one file.
//!
//! Promises: what is appended depends on the record, its batch and its place only, never on what
//! may change later ([`Marks`] are the exception, and no range has them); `rendered_bytes` counts
//! exactly what `render` appends.

pub mod attributes;
mod jsonl;
mod nul;
pub mod raw;
#[cfg(test)]
pub(crate) mod sample;
mod tsv;
mod value;

pub use jsonl::envelope;

pub use crate::engine::transactions::TransactionState;

use super::name::Format;
use crate::format::batch::{BatchHeader, TimestampType};
use crate::format::record::Record;

/// The partition that a record belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place<'a> {
    /// Its topic.
    pub topic: &'a str,
    /// Its number in the topic.
    pub partition: u32,
}

/// What may change about a record: shown of single records, never in a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// How its transaction stands; `None` for a record outside of any.
    pub txn: Option<TransactionState>,
    /// Not yet known to be on enough replicas.
    pub above_high_watermark: bool,
}

/// Appends one record of a range and its delimiter. A raw range consists of whole batches as they
/// are stored, not of records: there a record adds nothing.
#[inline]
pub fn render(
    format: Format,
    place: &Place,
    batch: &BatchHeader,
    record: &Record,
    out: &mut Vec<u8>,
) {
    match format {
        Format::Lines => value::render(record, out),
        Format::Nul => nul::render(record, out),
        Format::Tsv => tsv::render(record, out),
        Format::Jsonl => envelope(place, batch, record, None, out),
        Format::Raw => {}
    }
}

/// How many bytes [`render`] appends. Looks at lengths only for lines and NUL, at every byte for
/// the others.
#[inline]
pub fn rendered_bytes(
    format: Format,
    place: &Place,
    batch: &BatchHeader,
    record: &Record,
) -> usize {
    match format {
        Format::Lines => value::rendered_bytes(record),
        Format::Nul => nul::rendered_bytes(record),
        Format::Tsv => tsv::rendered_bytes(record),
        Format::Jsonl => jsonl::rendered_bytes(place, batch, record),
        Format::Raw => 0,
    }
}

/// kcat's word for who set the timestamp.
const fn timestamp_type(batch: &BatchHeader) -> &'static str {
    match batch.timestamp_type {
        TimestampType::Create => "create",
        TimestampType::LogAppend => "logappend",
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::sample::{Sample, any_sample};
    use super::*;

    fn rendered(format: Format, sample: &Sample) -> Vec<u8> {
        let mut out = b"before".to_vec();
        sample.with(|place, batch, record| {
            render(format, place, batch, record, &mut out);
            assert_eq!(rendered_bytes(format, place, batch, record), out.len() - 6, "{format:?}");
        });
        assert_eq!(out.drain(..6).as_slice(), b"before");
        out
    }

    /// Contract 3: the table of formats.
    #[test]
    fn one_record_in_each_format() {
        let sample = Sample::new(Some(b"k"), Some(b"v"));
        assert_eq!(rendered(Format::Lines, &sample), b"v\n");
        assert_eq!(rendered(Format::Nul, &sample), b"v\0");
        assert_eq!(rendered(Format::Tsv, &sample), b"k\tv\n");
        assert!(rendered(Format::Jsonl, &sample).starts_with(br#"{"topic":"t","partition":7,"#));
        assert_eq!(rendered(Format::Raw, &sample), b"");
    }

    proptest! {
        #[test]
        fn rendered_bytes_counts_what_render_appends(sample in any_sample()) {
            for format in Format::ALL {
                rendered(format, &sample);
            }
        }
    }
}
