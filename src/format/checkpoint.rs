//! The small text files of a data directory and of a partition: offset checkpoints, leader epochs,
//! topic id, identity of the directory, clean-shutdown marker (format page, "Text files").
//!
//! All are read by Kafka's own rules: what a broker refuses is an error here, with the line named.
//! They are written to the byte as a broker writes them.

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;

use super::FormatError;
use super::name::TopicPartition;
use crate::units::{LeaderEpoch, Offset};

/// The epochs of a partition, beside its segments.
pub const LEADER_EPOCHS: &str = "leader-epoch-checkpoint";
/// Up to where each log of a data directory was synced.
pub const RECOVERY_POINT: &str = "recovery-point-offset-checkpoint";
/// Where each log begins, where file names do not say the same.
pub const LOG_START: &str = "log-start-offset-checkpoint";
/// Up to where consumers have seen each log.
pub const HIGH_WATERMARK: &str = "replication-offset-checkpoint";
/// Up to where each log was cleaned.
pub const CLEANER_OFFSET: &str = "cleaner-offset-checkpoint";
/// Its existence says that every log in the directory was closed in order.
pub const CLEAN_SHUTDOWN: &str = ".kafka_cleanshutdown";

/// 16 bytes that name a topic or a data directory; shown in 22 characters of URL-safe base64.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// A new id out of 16 random bytes, by Kafka's rules: a UUID of version 4, which none of the
    /// ids is that Kafka reserves, and shown without a dash in front, which tools would take for
    /// an option.
    pub const fn from_random(mut bytes: [u8; 16]) -> Uuid {
        const DASH: u8 = 62 << 2;
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        if bytes[0] & 0xfc == DASH {
            bytes[0] ^= 0x80;
        }
        Uuid(bytes)
    }
}

impl FromStr for Uuid {
    type Err = FormatError;

    fn from_str(text: &str) -> Result<Uuid, FormatError> {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(text).ok();
        bytes
            .and_then(|bytes| bytes.try_into().ok())
            .map(Uuid)
            .ok_or_else(|| FormatError::invalid(format!("`{text}` is no id of 22 characters")))
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&BASE64_URL_SAFE_NO_PAD.encode(self.0))
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Uuid({self})")
    }
}

/// One line of an offset checkpoint (recovery points, log start offsets, high watermarks, cleaner
/// offsets).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetCheckpoint {
    /// Which partition.
    pub partition: TopicPartition,
    /// Its offset.
    pub offset: Offset,
}

/// All lines of an offset checkpoint, in their order; none for an empty file.
pub fn parse_offset_checkpoint(bytes: &[u8]) -> Result<Vec<OffsetCheckpoint>, FormatError> {
    parse_entries(bytes, |[topic, partition, offset]| {
        let offset = Offset::new(number(offset)?).ok_or_else(|| negative("offset", offset))?;
        let partition = TopicPartition::new(topic, number(partition)?)?;
        Ok(OffsetCheckpoint { partition, offset })
    })
}

/// An offset checkpoint of these lines; Kafka asks for no order.
pub fn write_offset_checkpoint(entries: &[OffsetCheckpoint]) -> String {
    let line = |OffsetCheckpoint { partition, offset }: &OffsetCheckpoint| {
        format!("{} {} {offset}\n", partition.topic(), partition.partition())
    };
    write_entries(entries, line)
}

/// One line of a `leader-epoch-checkpoint`: records from `start` on were written under `epoch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochStart {
    /// The epoch of the leader.
    pub epoch: LeaderEpoch,
    /// First offset that it wrote.
    pub start: Offset,
}

/// All lines of a `leader-epoch-checkpoint`, in their order; none for an empty file.
pub fn parse_leader_epochs(bytes: &[u8]) -> Result<Vec<EpochStart>, FormatError> {
    parse_entries(bytes, |[epoch, start]| {
        let epoch = LeaderEpoch::new(number(epoch)?).ok_or_else(|| negative("epoch", epoch))?;
        let start = Offset::new(number(start)?).ok_or_else(|| negative("offset", start))?;
        Ok(EpochStart { epoch, start })
    })
}

/// A `leader-epoch-checkpoint` of these lines, which must be in the order of their epochs.
pub fn write_leader_epochs(entries: &[EpochStart]) -> String {
    write_entries(entries, |EpochStart { epoch, start }| format!("{epoch} {start}\n"))
}

fn write_entries<T>(entries: &[T], line: impl Fn(&T) -> String) -> String {
    let head = format!("0\n{}\n", entries.len());
    std::iter::once(head).chain(entries.iter().map(line)).collect()
}

/// A checkpoint whose entries have `N` fields: a line with version 0, a line with the number of
/// entries, and exactly as many lines as that.
fn parse_entries<const N: usize, T>(
    bytes: &[u8],
    parse: impl Fn([&str; N]) -> Result<T, FormatError>,
) -> Result<Vec<T>, FormatError> {
    let mut lines = utf8(bytes)?.lines();
    let Some(version) = lines.next() else { return Ok(Vec::new()) };
    if number::<i32>(version).map_err(|error| on_line(1, &error))? != 0 {
        return Err(FormatError::invalid(format!("line 1: version {version}, expected 0")));
    }
    let Some(count) = lines.next() else { return Ok(Vec::new()) };
    let count: i32 = number(count).map_err(|error| on_line(2, &error))?;
    let mut entries = Vec::new();
    for (line_number, line) in (3..).zip(lines) {
        let entry = fields(line).and_then(&parse).map_err(|error| on_line(line_number, &error))?;
        entries.push(entry);
    }
    if i32::try_from(entries.len()) != Ok(count) {
        let reason = format!("line 2: {count} entries promised, {} are there", entries.len());
        return Err(FormatError::Invalid(reason));
    }
    Ok(entries)
}

/// The fields of a line between runs of white space. A line that begins with white space has an
/// empty first field, one that ends with it has none more.
fn fields<const N: usize>(line: &str) -> Result<[&str; N], FormatError> {
    let found: Vec<&str> = line.split_ascii_whitespace().collect();
    if line.starts_with(|first: char| first.is_ascii_whitespace()) {
        return Err(FormatError::invalid("begins with white space"));
    }
    found.try_into().map_err(|found: Vec<_>| {
        FormatError::invalid(format!("{} fields, expected {N}", found.len()))
    })
}

/// The id in a `partition.metadata`: a line with the version, a line with the id.
pub fn parse_partition_metadata(bytes: &[u8]) -> Result<Uuid, FormatError> {
    let mut lines = utf8(bytes)?.lines();
    let version = metadata_value(lines.next(), "version").map_err(|error| on_line(1, &error))?;
    if number::<i32>(version).map_err(|error| on_line(1, &error))? < 0 {
        return Err(on_line(1, &negative("version", version)));
    }
    let id: Uuid = metadata_value(lines.next(), "topic_id")
        .and_then(str::parse)
        .map_err(|error| on_line(2, &error))?;
    if id == Uuid([0; 16]) {
        return Err(FormatError::invalid("line 2: the topic id is all zeros"));
    }
    Ok(id)
}

/// A `partition.metadata` with this id.
pub fn write_partition_metadata(topic_id: Uuid) -> String {
    format!("version: 0\ntopic_id: {topic_id}")
}

/// What follows `key`, a colon and white space on `line`.
fn metadata_value<'a>(line: Option<&'a str>, key: &str) -> Result<&'a str, FormatError> {
    line.and_then(|line| line.strip_prefix(key)?.strip_prefix(':'))
        .filter(|value| value.starts_with(|first: char| first.is_ascii_whitespace()))
        .map(str::trim_ascii_start)
        .ok_or_else(|| FormatError::invalid(format!("`{key}: ...` expected")))
}

/// Which cluster, node and directory a data directory belongs to; a `meta.properties`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaProperties {
    /// 0 in clusters with `ZooKeeper`, 1 since.
    pub version: i32,
    /// Id of the cluster; always there in version 1.
    pub cluster_id: Option<String>,
    /// `node.id`, in version 0 `broker.id`; always there in version 1.
    pub node_id: Option<i32>,
    /// Id of this data directory.
    pub directory_id: Option<Uuid>,
}

/// A `meta.properties`; keys that are not asked for are ignored.
pub fn parse_meta_properties(bytes: &[u8]) -> Result<MetaProperties, FormatError> {
    let text = utf8(bytes)?;
    let version = property(text, "version", number)?.unwrap_or(0);
    let node_key = match version {
        0 => "broker.id",
        1 => "node.id",
        other => return Err(FormatError::invalid(format!("unknown version {other}"))),
    };
    let properties = MetaProperties {
        version,
        cluster_id: property(text, "cluster.id", |value| Ok(value.to_owned()))?,
        node_id: property(text, node_key, number)?,
        directory_id: property(text, "directory.id", str::parse)?,
    };
    let missing = match &properties {
        MetaProperties { version: 1, cluster_id: None, .. } => "cluster.id",
        MetaProperties { version: 1, node_id: None, .. } => node_key,
        _ => return Ok(properties),
    };
    Err(FormatError::invalid(format!("`{missing}` is missing")))
}

/// The last value of `key` in a properties file of Java, without its escapes, which no value that a
/// broker writes here needs.
fn property<T>(
    text: &str,
    key: &str,
    parse: impl Fn(&str) -> Result<T, FormatError>,
) -> Result<Option<T>, FormatError> {
    let value_on = |line: &str| {
        let after = line.trim_ascii_start().strip_prefix(key)?.trim_ascii_start();
        Some(after.strip_prefix(['=', ':'])?.trim_ascii_start().to_owned())
    };
    (1..)
        .zip(text.lines())
        .filter_map(|(line_number, line)| Some((line_number, value_on(line)?)))
        .last()
        .map(|(line_number, value)| parse(&value).map_err(|error| on_line(line_number, &error)))
        .transpose()
}

/// The broker epoch in a `.kafka_cleanshutdown`; `None` where it is not known, as in the empty file
/// of older brokers. That the file is there means a clean shutdown, whatever it holds.
pub fn parse_clean_shutdown(bytes: &[u8]) -> Result<Option<i64>, FormatError> {
    #[derive(serde::Deserialize)]
    struct Marker {
        #[serde(rename = "brokerEpoch")]
        broker_epoch: i64,
    }
    if bytes.is_empty() {
        return Ok(None);
    }
    let marker: Marker =
        serde_json::from_slice(bytes).map_err(|error| FormatError::Invalid(error.to_string()))?;
    Ok((marker.broker_epoch >= 0).then_some(marker.broker_epoch))
}

/// A `.kafka_cleanshutdown` with this broker epoch, if one is known.
pub fn write_clean_shutdown(broker_epoch: Option<i64>) -> String {
    format!(r#"{{"version":0,"brokerEpoch":{}}}"#, broker_epoch.unwrap_or(-1))
}

fn utf8(bytes: &[u8]) -> Result<&str, FormatError> {
    std::str::from_utf8(bytes).map_err(|error| {
        let good = bytes.get(..error.valid_up_to()).unwrap_or_default();
        let line_number = good.split(|&byte| byte == b'\n').count();
        FormatError::invalid(format!("line {line_number}: no UTF-8"))
    })
}

fn number<N: FromStr>(field: &str) -> Result<N, FormatError> {
    field
        .parse()
        .map_err(|_| FormatError::invalid(format!("`{field}` is no number that fits here")))
}

fn negative(what: &str, field: &str) -> FormatError {
    FormatError::invalid(format!("negative {what} {field}"))
}

fn on_line(line_number: usize, error: &FormatError) -> FormatError {
    FormatError::invalid(format!("line {line_number}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn offsets(text: &str) -> Result<Vec<(String, i64)>, String> {
        let entries =
            parse_offset_checkpoint(text.as_bytes()).map_err(|error| error.to_string())?;
        Ok(entries.iter().map(|entry| (entry.partition.to_string(), entry.offset.get())).collect())
    }

    fn epochs(text: &str) -> Result<Vec<(i32, i64)>, String> {
        let entries = parse_leader_epochs(text.as_bytes()).map_err(|error| error.to_string())?;
        Ok(entries.iter().map(|entry| (entry.epoch.get(), entry.start.get())).collect())
    }

    #[test]
    fn checkpoints_that_kafka_writes_are_read() {
        assert_eq!(offsets("0\n1\nfoo 1 5\n"), Ok(vec![("foo-1".to_owned(), 5)]));
        let two = offsets("0\n2\nfoo-bar 0 5\nb.c  12\t9223372036854775807");
        assert_eq!(two, Ok(vec![("foo-bar-0".to_owned(), 5), ("b.c-12".to_owned(), i64::MAX)]));
        assert_eq!(epochs("0\n2\n0 1\n3 25\n"), Ok(vec![(0, 1), (3, 25)]));
    }

    #[test]
    fn checkpoints_are_written_as_kafka_writes_them() {
        for text in ["0\n0\n", "0\n1\nfoo 1 5\n", "0\n2\nb.c-d 12 9223372036854775807\na 0 0\n"] {
            let entries = parse_offset_checkpoint(text.as_bytes()).unwrap();
            assert_eq!(write_offset_checkpoint(&entries), text);
        }
        for text in ["0\n0\n", "0\n2\n0 1\n3 25\n"] {
            let entries = parse_leader_epochs(text.as_bytes()).unwrap();
            assert_eq!(write_leader_epochs(&entries), text);
        }
    }

    /// kafka-behaviours row 150
    /// (`OffsetCheckpointFileWithFailureHandlerTest.shouldReturnEmptyMapForEmptyFile`).
    #[test]
    fn empty_checkpoints_have_no_entries() {
        for text in ["", "0", "0\n", "0\n0\n"] {
            assert_eq!(offsets(text), Ok(vec![]), "{text:?}");
            assert_eq!(epochs(text), Ok(vec![]), "{text:?}");
        }
    }

    #[test]
    fn wrong_checkpoints_are_refused_with_their_line() {
        for (text, line) in [
            ("1\n0\n", 1),
            ("\n", 1),
            ("zero\n0\n", 1),
            ("0\nmany\n", 2),
            ("0\n2\nfoo 1 5\n", 2),
            ("0\n0\nfoo 1 5\n", 2),
            ("0\n-1\n", 2),
            ("0\n1\nfoo 1 5\n\n", 4),
            ("0\n1\nfoo 1\n", 3),
            ("0\n1\nfoo 1 5 7\n", 3),
            ("0\n1\n foo 1 5\n", 3),
            ("0\n2\nfoo 1 5\nfoo x 5\n", 4),
            ("0\n1\nfoo -1 5\n", 3),
            ("0\n1\nfoo 1 -5\n", 3),
            ("0\n1\nfoo 1 9223372036854775808\n", 3),
        ] {
            let error = offsets(text).unwrap_err();
            assert!(error.starts_with(&format!("line {line}: ")), "{text:?}: {error}");
        }
        assert_eq!(epochs("0\n1\n-1 5\n").unwrap_err(), "line 3: negative epoch -1");
        let error = parse_leader_epochs(b"0\n1\n\xff 5\n").unwrap_err();
        assert_eq!(error.to_string(), "line 3: no UTF-8");
    }

    /// kafka-behaviours row 151 (`PartitionMetadataFileTest.testMaybeFlushWithTopicIdPresent`), the
    /// reading part.
    #[test]
    fn the_topic_id_is_read_and_shown_as_it_is_written() {
        let id = Uuid([0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2]);
        assert_eq!(id.to_string(), "AAAAAAAAAAEAAAAAAAAAAg");
        for text in [
            "version: 0\ntopic_id: AAAAAAAAAAEAAAAAAAAAAg",
            "version: 1\ntopic_id:   AAAAAAAAAAEAAAAAAAAAAg\n",
        ] {
            assert_eq!(parse_partition_metadata(text.as_bytes()), Ok(id));
        }
        let text = "version: 0\ntopic_id: AAAAAAAAAAEAAAAAAAAAAg";
        assert_eq!(write_partition_metadata(id), text);
    }

    #[test]
    fn a_new_id_is_neither_reserved_nor_begins_with_a_dash() {
        for first in 0..=u8::MAX {
            for rest in [0, 0x55, 0xff] {
                let mut bytes = [rest; 16];
                bytes[0] = first;
                let id = Uuid::from_random(bytes);
                assert!(!id.to_string().starts_with('-'), "{first:x}");
                assert_eq!((id.0[6] >> 4, id.0[8] >> 6), (4, 2));
                assert_eq!(id.0[9..], bytes[9..]);
            }
        }
        let shown = Uuid::from_random([0xf8; 16]).to_string();
        assert_eq!(shown, "ePj4-Pj4SPi4-Pj4-Pj4-A");
    }

    #[test]
    fn a_wrong_partition_metadata_is_refused_with_its_line() {
        for (text, line) in [
            ("", 1),
            ("version: -1\ntopic_id: AAAAAAAAAAEAAAAAAAAAAg", 1),
            ("version:0\ntopic_id: AAAAAAAAAAEAAAAAAAAAAg", 1),
            ("topic_id: AAAAAAAAAAEAAAAAAAAAAg\nversion: 0", 1),
            ("version: 0", 2),
            ("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", 2),
            ("version: 0\ntopic_id: AAAAAAAAAAEAAAAAAAAA", 2),
            ("version: 0\ntopic_id: AAAAAAAAAAE+AAAAAAAAAg", 2),
        ] {
            let error = parse_partition_metadata(text.as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with(&format!("line {line}: ")), "{text:?}: {error}");
        }
    }

    /// kafka-behaviours row 153 (`MetaPropertiesTest.testV1SerializationWithDirectoryId`,
    /// `testClusterIdRequiredInV1`, `testNodeIdRequiredInV1`).
    #[test]
    fn meta_properties_of_version_1_need_cluster_and_node() {
        let text = "#\n#Mon Jan 01 00:00:00 UTC 2024\nnode.id=2\nversion=1\n\
                    directory.id=AAAAAAAAAAEAAAAAAAAAAg\ncluster.id=abc=d\n";
        let properties = parse_meta_properties(text.as_bytes()).unwrap();
        assert_eq!((properties.version, properties.node_id), (1, Some(2)));
        assert_eq!(properties.cluster_id.as_deref(), Some("abc=d"));
        assert_eq!(properties.directory_id.unwrap().to_string(), "AAAAAAAAAAEAAAAAAAAAAg");
        for key in ["node.id", "cluster.id"] {
            let error = parse_meta_properties(text.replace(key, "#").as_bytes()).unwrap_err();
            assert_eq!(error, FormatError::Invalid(format!("`{key}` is missing")));
        }
    }

    #[test]
    fn meta_properties_of_version_0_need_nothing() {
        let empty = parse_meta_properties(b"").unwrap();
        assert_eq!((empty.version, empty.cluster_id, empty.node_id), (0, None, None));
        let properties = parse_meta_properties(b" broker.id : 7\nbroker.id.x=9\n").unwrap();
        assert_eq!(properties.node_id, Some(7));
        assert!(parse_meta_properties(b"version=2\n").is_err());
        let error = parse_meta_properties(b"\nversion=one\n").unwrap_err().to_string();
        assert!(error.starts_with("line 2: "), "{error}");
    }

    /// kafka-behaviours row 152 (`CleanShutdownFileHandlerTest.testCleanShutdownFileBasic`,
    /// `testCleanShutdownFileCanParseWithUnknownFields`).
    #[test]
    fn the_broker_epoch_of_a_clean_shutdown_is_read() {
        let epoch = |text: &str| parse_clean_shutdown(text.as_bytes());
        assert_eq!(epoch(r#"{"version":0,"brokerEpoch":10}"#), Ok(Some(10)));
        assert_eq!(epoch(r#"{"version":0,"brokerEpoch":10,"unknown":123}"#), Ok(Some(10)));
        assert_eq!(epoch(r#"{"version":0,"brokerEpoch":-1}"#), Ok(None));
        assert_eq!(epoch(""), Ok(None));
        assert_eq!(write_clean_shutdown(Some(10)), r#"{"version":0,"brokerEpoch":10}"#);
        assert_eq!(write_clean_shutdown(None), r#"{"version":0,"brokerEpoch":-1}"#);
        assert!(epoch("{}").is_err());
        assert!(epoch("10").is_err());
    }

    fn line() -> impl Strategy<Value = (String, i32, i64)> {
        ("[a-zA-Z0-9_-]{1,30}", 0..i32::MAX, 0..=i64::MAX)
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>, text in "0?\n?[0-2]?\n?[a-z0-9 \n:=]*") {
            for bytes in [bytes.as_slice(), text.as_bytes()] {
                let _either = parse_offset_checkpoint(bytes);
                let _either = parse_leader_epochs(bytes);
                let _either = parse_partition_metadata(bytes);
                let _either = parse_meta_properties(bytes);
                let _either = parse_clean_shutdown(bytes);
            }
        }

        #[test]
        fn ids_read_back(bytes: [u8; 16]) {
            prop_assert_eq!(Uuid(bytes).to_string().parse(), Ok(Uuid(bytes)));
        }

        #[test]
        fn checkpoints_read_back(
            lines in proptest::collection::vec(line(), 0..9),
        ) {
            let offset = |raw| Offset::new(raw).unwrap();
            let entries: Vec<_> = lines
                .iter()
                .map(|(topic, number, raw)| OffsetCheckpoint {
                    partition: TopicPartition::new(topic, number.unsigned_abs()).unwrap(),
                    offset: offset(*raw),
                })
                .collect();
            let text = write_offset_checkpoint(&entries);
            prop_assert_eq!(parse_offset_checkpoint(text.as_bytes()), Ok(entries));
            let entries: Vec<_> = lines
                .iter()
                .map(|(_, number, raw)| EpochStart {
                    epoch: LeaderEpoch::new(*number).unwrap(),
                    start: offset(*raw),
                })
                .collect();
            let text = write_leader_epochs(&entries);
            prop_assert_eq!(parse_leader_epochs(text.as_bytes()), Ok(entries));
        }

        #[test]
        fn new_ids_read_back_from_the_metadata(bytes: [u8; 16]) {
            let id = Uuid::from_random(bytes);
            let text = write_partition_metadata(id);
            prop_assert_eq!(parse_partition_metadata(text.as_bytes()), Ok(id));
        }
    }
}
