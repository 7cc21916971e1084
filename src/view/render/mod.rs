//! Records to bytes and back, in each format of a range and as one JSON envelope. One way to write
//! a record, one file, both directions.
//!
//! Promises: what is rendered depends on the record, its batch and its place only, never on what
//! may change later ([`Marks`] are the exception, and no range has them); `rendered_bytes` counts
//! exactly what `render` appends; `parse` takes every text that `render` makes and gives back what
//! the format shows of the record (contract 3.1).

pub mod attributes;
mod jsonl;
pub mod raw;
#[cfg(test)]
pub(crate) mod sample;
mod tsv;
mod value;

pub use jsonl::envelope;

pub use crate::engine::transactions::TransactionState;

use std::borrow::Cow;

use smallvec::SmallVec;

use super::name::Format;
use crate::format::batch::{BatchHeader, TimestampType};
use crate::format::builder;
use crate::format::record::Record;
use crate::units::Timestamp;

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
        Format::Lines => value::render(record, b'\n', out),
        Format::Nul => value::render(record, 0, out),
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
        Format::Lines | Format::Nul => value::rendered_bytes(record),
        Format::Tsv => tsv::rendered_bytes(record),
        Format::Jsonl => jsonl::rendered_bytes(place, batch, record),
        Format::Raw => 0,
    }
}

/// A record to be appended, borrowed from the text it was read from where that is possible. It
/// owns what had to be unescaped, which the record of [`builder`] does not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewRecord<'a> {
    /// Its time, where the text says one.
    pub timestamp: Option<Timestamp>,
    /// Its key; `None` is NULL, which is not the same as empty.
    pub key: Option<Cow<'a, [u8]>>,
    /// Its value; `None` is NULL, which is not the same as empty.
    pub value: Option<Cow<'a, [u8]>>,
    /// Its headers, in their order.
    pub headers: SmallVec<[NewHeader<'a>; FEW_HEADERS]>,
}

/// As many headers need no memory of their own.
const FEW_HEADERS: usize = 4;

/// Name and value of a header to be appended; the value may be NULL.
pub type NewHeader<'a> = (Cow<'a, [u8]>, Option<Cow<'a, [u8]>>);

impl<'a> NewRecord<'a> {
    /// A record that is nothing but its value. Takes no memory.
    #[inline]
    fn of_value(value: &'a [u8]) -> NewRecord<'a> {
        NewRecord { value: Some(Cow::Borrowed(value)), ..NewRecord::default() }
    }

    /// Shows the record to `see` as a batch takes it. Takes memory for many headers only.
    #[inline]
    pub fn lend<R>(&self, see: impl FnOnce(&builder::NewRecord<'_>) -> R) -> R {
        let headers: SmallVec<[_; FEW_HEADERS]> =
            self.headers.iter().map(|(name, value)| (&**name, value.as_deref())).collect();
        see(&builder::NewRecord {
            timestamp: self.timestamp,
            key: self.key.as_deref(),
            value: self.value.as_deref(),
            headers: &headers,
        })
    }
}

/// The record that `text`, without its delimiter, stands for; or why it stands for none, in words
/// for whoever wrote it. Raw input has no records, see [`raw::parse`].
#[inline]
pub fn parse(format: Format, text: &[u8]) -> Result<NewRecord<'_>, String> {
    match format {
        Format::Lines | Format::Nul => Ok(value::parse(text)),
        Format::Tsv => tsv::parse(text),
        Format::Jsonl => jsonl::parse(text),
        Format::Raw => Err("raw input consists of batches, not of records".to_owned()),
    }
}

/// The byte that ends the text of every record; whole batches say their length instead.
pub const fn delimiter(format: Format) -> Option<u8> {
    match format {
        Format::Lines | Format::Tsv | Format::Jsonl => Some(b'\n'),
        Format::Nul => Some(0),
        Format::Raw => None,
    }
}

/// Most bytes that [`render`] makes, delimiter left out, of a record that takes `record_bytes` in
/// a batch. What is longer need not be held, since a record that is read can be appended all the
/// same.
pub const fn longest_text(format: Format, record_bytes: usize) -> usize {
    match format {
        Format::Lines | Format::Nul | Format::Raw => record_bytes,
        Format::Tsv => tsv::longest_text(record_bytes),
        Format::Jsonl => jsonl::longest_text(record_bytes),
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
    use crate::format::batch::HEADER_BYTES;
    use crate::format::codec::Codec;
    use crate::format::record::Cursor;
    use crate::units::{LeaderEpoch, Offset};

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

    /// What `format` shows of `sample`, to be compared with what was parsed.
    fn shown(format: Format, sample: &Sample) -> NewRecord<'_> {
        let value = Some(Cow::Borrowed(sample.value.as_deref().unwrap_or_default()));
        let keyed = NewRecord {
            key: sample.key.as_deref().map(Cow::Borrowed),
            value: sample.value.as_deref().map(Cow::Borrowed),
            ..NewRecord::default()
        };
        match format {
            Format::Lines | Format::Nul => NewRecord { value, ..NewRecord::default() },
            Format::Tsv => keyed,
            Format::Jsonl => NewRecord {
                timestamp: (sample.timestamp != -1)
                    .then(|| Timestamp::from_millis(sample.timestamp)),
                headers: sample
                    .headers
                    .iter()
                    .map(|(name, value)| (utf8(name), value.as_deref().map(Cow::Borrowed)))
                    .collect(),
                ..keyed
            },
            Format::Raw => panic!("no records"),
        }
    }

    /// A header name that is not UTF-8 is shown with replacement characters.
    fn utf8(name: &[u8]) -> Cow<'_, [u8]> {
        Cow::Owned(String::from_utf8_lossy(name).into_owned().into_bytes())
    }

    const TEXTS: [Format; 4] = [Format::Lines, Format::Nul, Format::Tsv, Format::Jsonl];

    proptest! {
        /// Contract 3.1.
        #[test]
        fn what_is_rendered_parses_back(sample in any_sample()) {
            for format in TEXTS {
                let text = rendered(format, &sample);
                let (delimiter, text) = text.split_last().unwrap();
                prop_assert_eq!(Some(*delimiter), super::delimiter(format));
                prop_assert_eq!(parse(format, text), Ok(shown(format, &sample)));
            }
        }

        /// Contract 3.1, through a batch.
        #[test]
        fn what_is_appended_reads_the_same(mut sample in any_sample()) {
            sample.transactional = false;
            sample.timestamp_type = TimestampType::Create;
            let epoch = LeaderEpoch::new(sample.leader_epoch);
            for format in TEXTS {
                let text = rendered(format, &sample);
                let new = parse(format, &text[..text.len() - 1]).unwrap();
                let mut builder = builder::BatchBuilder::new();
                builder.start(Offset::new(sample.offset).unwrap(), epoch, Codec::None, None);
                new.lend(|record| builder.add(record)).unwrap();
                let batch = builder.finish(None).unwrap();
                let header = BatchHeader::parse(batch).unwrap();
                let record = Cursor::new(&header, &batch[HEADER_BYTES..]).unwrap()
                    .next(&header, &batch[HEADER_BYTES..]).unwrap().unwrap();
                let mut again = Vec::new();
                let place = Place { topic: "t", partition: 7 };
                render(format, &place, &header, &record, &mut again);
                prop_assert_eq!(&again, &text);
            }
        }

        #[test]
        fn no_text_is_longer_than_its_record_allows(sample in any_sample()) {
            for format in TEXTS {
                let text = rendered(format, &sample);
                prop_assert!(text.len() - 1 <= longest_text(format, sample.bytes().len()));
            }
        }

        #[test]
        fn no_text_makes_a_parser_panic(text in proptest::collection::vec(any::<u8>(), 0..40)) {
            for format in Format::ALL {
                let _ = parse(format, &text); // whichever it is
            }
        }

        #[test]
        fn rendered_bytes_counts_what_render_appends(sample in any_sample()) {
            for format in Format::ALL {
                rendered(format, &sample);
            }
        }
    }
}
