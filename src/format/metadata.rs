//! Records of `__cluster_metadata-0`, the log in which a cluster keeps its state, as far as anyone
//! here asks: topics and their settings. The keys of these records are NULL; a value is
//!
//! | field | form | meaning |
//! |---|---|---|
//! | frame version | unsigned varint | 1 |
//! | api key | unsigned varint | kind of the record, below |
//! | version | unsigned varint | of the body; 0 so far for all that are read here |
//! | body | | fields, then tagged fields, which are ignored |
//!
//! | api key | kind | fields |
//! |---:|---|---|
//! | 2 | topic | name, topic id (16 bytes) |
//! | 4 | setting | resource type (1 byte: 2 topic, 4 broker), resource, name, value or NULL |
//! | 9 | topic removed | topic id |
//! | 23, 24, 25 | transaction begins, ends, is aborted | |
//!
//! Text is preceded by its length plus one (unsigned varint; 0 is NULL). A setting of NULL is one
//! that was taken back; the broker called "" stands for all brokers. Checked against
//! `DumpLogSegments --cluster-metadata-decoder` of Kafka 4.4.0.

use super::FormatError;
use super::checkpoint::Uuid;

/// One record of the metadata log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetadataRecord<'a> {
    /// A topic was made.
    Topic {
        /// Its name.
        name: &'a str,
        /// Its id.
        id: Uuid,
    },
    /// A setting was made or taken back.
    Setting {
        /// Of what.
        resource: Resource<'a>,
        /// Name of the setting.
        name: &'a str,
        /// Its value; `None` when it was taken back.
        value: Option<&'a str>,
    },
    /// The topic with this id was removed.
    TopicRemoved(Uuid),
    /// What follows counts only when the transaction ends.
    TransactionBegins,
    /// What came since the beginning counts.
    TransactionEnds,
    /// What came since the beginning never happened.
    TransactionAborted,
    /// Something that is not asked for here.
    Other,
}

/// What a setting is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource<'a> {
    /// The topic of this name.
    Topic(&'a str),
    /// The broker with this number; "" is every broker.
    Broker(&'a str),
    /// Something that holds no log.
    Other,
}

impl<'a> MetadataRecord<'a> {
    /// The record with this value. Fails on another frame version, a newer version of a body that
    /// is read here, and bytes that end early.
    pub fn parse(value: &'a [u8]) -> Result<MetadataRecord<'a>, FormatError> {
        let mut fields = Fields(value);
        let frame = fields.number()?;
        if frame != 1 {
            return Err(FormatError::invalid(format!(
                "metadata frame version {frame}, expected 1"
            )));
        }
        let (api_key, version) = (fields.number()?, fields.number()?);
        if matches!(api_key, 2 | 4 | 9) && version != 0 {
            let reason = format!("metadata record {api_key} of version {version}, expected 0");
            return Err(FormatError::invalid(reason));
        }
        Ok(match api_key {
            2 => MetadataRecord::Topic { name: fields.text()?, id: fields.id()? },
            4 => MetadataRecord::Setting {
                resource: fields.resource()?,
                name: fields.text()?,
                value: fields.nullable_text()?,
            },
            9 => MetadataRecord::TopicRemoved(fields.id()?),
            23 => MetadataRecord::TransactionBegins,
            24 => MetadataRecord::TransactionEnds,
            25 => MetadataRecord::TransactionAborted,
            _ => MetadataRecord::Other,
        })
    }
}

/// What is left of a record.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn bytes(&mut self, count: usize) -> Result<&'a [u8], FormatError> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(FormatError::Short {
            what: "metadata record",
            needs: count,
            has: self.0.len(),
        })?;
        self.0 = rest;
        Ok(taken)
    }

    /// An unsigned varint of at most five bytes.
    fn number(&mut self) -> Result<usize, FormatError> {
        let mut number = 0_u64;
        for place in 0..5 {
            let byte = self.bytes(1)?[0];
            number |= u64::from(byte & 0x7f) << (7 * place);
            if byte < 0x80 {
                return usize::try_from(number)
                    .map_err(|_| FormatError::invalid(format!("length {number}")));
            }
        }
        Err(FormatError::invalid("a number of more than five bytes"))
    }

    fn nullable_text(&mut self) -> Result<Option<&'a str>, FormatError> {
        let Some(length) = self.number()?.checked_sub(1) else { return Ok(None) };
        let text = str::from_utf8(self.bytes(length)?);
        text.map(Some).map_err(|_| FormatError::invalid("text that is not UTF-8"))
    }

    fn text(&mut self) -> Result<&'a str, FormatError> {
        self.nullable_text()?.ok_or_else(|| FormatError::invalid("NULL where text is expected"))
    }

    fn id(&mut self) -> Result<Uuid, FormatError> {
        let mut id = Uuid([0; 16]);
        id.0.copy_from_slice(self.bytes(16)?);
        Ok(id)
    }

    fn resource(&mut self) -> Result<Resource<'a>, FormatError> {
        let kind = self.bytes(1)?[0];
        let name = self.text()?;
        Ok(match kind {
            2 => Resource::Topic(name),
            4 => Resource::Broker(name),
            _ => Resource::Other,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::tests::hex;
    use proptest::prelude::*;

    const SETTING: &str = "0104000206706c61696e0d726574656e74696f6e2e6d73032d3100";

    fn setting() -> MetadataRecord<'static> {
        MetadataRecord::Setting {
            resource: Resource::Topic("plain"),
            name: "retention.ms",
            value: Some("-1"),
        }
    }

    #[test]
    fn a_setting_that_kafka_wrote_is_read() {
        assert_eq!(MetadataRecord::parse(&hex(SETTING)), Ok(setting()));
    }

    #[test]
    fn a_setting_of_null_was_taken_back() {
        let bytes = hex("010400040102610000");
        let resource = Resource::Broker("");
        let record = MetadataRecord::Setting { resource, name: "a", value: None };
        assert_eq!(MetadataRecord::parse(&bytes), Ok(record));
    }

    #[test]
    fn topics_come_and_go() {
        let id = "000102030405060708090a0b0c0d0e0f";
        let bytes = hex(&format!("0102000261{id}00"));
        let parsed = MetadataRecord::parse(&bytes).unwrap();
        let MetadataRecord::Topic { name: "a", id: made } = parsed else { panic!("{parsed:?}") };
        let bytes = hex(&format!("010900{id}00"));
        assert_eq!(MetadataRecord::parse(&bytes), Ok(MetadataRecord::TopicRemoved(made)));
    }

    #[test]
    fn other_records_are_passed_over_whatever_their_version() {
        assert_eq!(MetadataRecord::parse(&hex("01140000")), Ok(MetadataRecord::Other));
        assert_eq!(MetadataRecord::parse(&hex("010307ff")), Ok(MetadataRecord::Other));
        assert!(MetadataRecord::parse(&hex("020400")).is_err(), "frame version");
        assert!(MetadataRecord::parse(&hex("010401")).is_err(), "version of a setting");
    }

    #[test]
    fn one_flipped_bit_is_noticed() {
        // All but the tagged fields at the end, which are ignored.
        let bytes = hex(SETTING);
        for bit in 0..(bytes.len() - 1) * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(MetadataRecord::parse(&flipped), Ok(setting()), "bit {bit}");
        }
    }

    #[test]
    fn records_that_end_early_are_refused() {
        let bytes = hex(SETTING);
        for length in 0..bytes.len() - 1 {
            assert!(MetadataRecord::parse(&bytes[..length]).is_err(), "{length} bytes");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_record_or_an_error(bytes: Vec<u8>) {
            let _either = MetadataRecord::parse(&bytes);
        }
    }
}
