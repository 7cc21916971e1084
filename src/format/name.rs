//! Names of partition directories and segment files (format page, "Names"). Only names in the form
//! that Kafka writes are recognised: `t-01` is not `t-1`, and `7.log` is no segment.

use std::fmt;
use std::str::FromStr;

use super::FormatError;
use crate::units::Offset;

/// A topic and the number of one of its partitions; shown as its directory is named.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicPartition {
    topic: String,
    partition: u32,
}

impl TopicPartition {
    /// Longest topic name, in bytes.
    pub const TOPIC_BYTES_MAX: usize = 249;
    /// Greatest partition number.
    pub const PARTITION_MAX: u32 = i32::MAX.cast_unsigned();

    /// Fails where Kafka would not allow such a topic or partition number.
    pub fn new(topic: &str, partition: u32) -> Result<TopicPartition, FormatError> {
        if !is_topic_name(topic) {
            return Err(FormatError::invalid(format!("`{topic}` is no valid topic name")));
        }
        if partition > Self::PARTITION_MAX {
            return Err(FormatError::invalid(format!("partition number {partition} is too large")));
        }
        Ok(TopicPartition { topic: topic.to_owned(), partition })
    }

    /// The topic's name.
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// The partition's number.
    pub fn partition(&self) -> u32 {
        self.partition
    }
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

impl FromStr for TopicPartition {
    type Err = FormatError;

    /// The partition whose directory has this name, which is split at its last dash.
    fn from_str(name: &str) -> Result<TopicPartition, FormatError> {
        name.rsplit_once('-')
            .and_then(|(topic, number)| Some((topic, canonical_number(number)?)))
            .and_then(|(topic, partition)| TopicPartition::new(topic, partition).ok())
            .ok_or_else(|| FormatError::invalid(format!("`{name}` is not <topic>-<partition>")))
    }
}

/// What the directory of a partition is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectoryKind {
    /// The partition itself.
    Live,
    /// On its way out; the topic's name may be cut short.
    Delete,
    /// A copy in the making, to replace a live one in another data directory.
    Future,
    /// Left behind by a broker that no longer owns it; the topic's name may be cut short.
    Stray,
}

impl DirectoryKind {
    /// What the name of such a directory ends with.
    pub const fn suffix(self) -> &'static str {
        match self {
            DirectoryKind::Live => "",
            DirectoryKind::Delete => "-delete",
            DirectoryKind::Future => "-future",
            DirectoryKind::Stray => "-stray",
        }
    }
}

/// The partition and purpose of a directory called `name`: `t-0`, or `t-0.<uuid>-delete` and so on.
pub fn parse_directory_name(name: &str) -> Result<(TopicPartition, DirectoryKind), FormatError> {
    for kind in [DirectoryKind::Delete, DirectoryKind::Future, DirectoryKind::Stray] {
        let Some(stem) = name.strip_suffix(kind.suffix()) else { continue };
        return stem
            .rsplit_once('.')
            .filter(|(_, unique)| !unique.is_empty() && !unique.contains(char::is_whitespace))
            .and_then(|(partition, _)| Some((partition.parse().ok()?, kind)))
            .ok_or_else(|| {
                let form = kind.suffix();
                FormatError::invalid(format!("`{name}` is not <topic>-<partition>.<id>{form}"))
            });
    }
    Ok((name.parse()?, DirectoryKind::Live))
}

/// 1 to 249 letters, digits, dots, dashes and underscores of ASCII; not `.` or `..`.
fn is_topic_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=TopicPartition::TOPIC_BYTES_MAX).contains(&name.len())
        && name != "."
        && name != ".."
        && name.bytes().all(allowed)
}

/// A decimal number without sign and leading zeros.
fn canonical_number(digits: &str) -> Option<u32> {
    let canonical = digits.bytes().all(|byte| byte.is_ascii_digit())
        && (digits == "0" || !digits.starts_with('0'));
    if canonical { digits.parse().ok() } else { None }
}

/// A file of a segment, or on its way to become or to stop being one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentFile {
    /// First offset of the segment; of a snapshot the first offset that it does not cover.
    pub base_offset: Offset,
    /// What is in it.
    pub kind: SegmentFileKind,
    /// Where it is in its life.
    pub state: SegmentFileState,
}

/// What a file of a segment holds; its extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentFileKind {
    /// Batches: `.log`.
    Log,
    /// Offset index: `.index`.
    Index,
    /// Time index: `.timeindex`.
    TimeIndex,
    /// Index of aborted transactions: `.txnindex`.
    TxnIndex,
    /// State of the producers before the named offset: `.snapshot`.
    Snapshot,
}

/// Where a file of a segment is in its life; its second extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentFileState {
    /// In use: no suffix.
    Live,
    /// To be removed soon: `.deleted`.
    Deleted,
    /// Output of a compaction that did not end: `.cleaned`.
    Cleaned,
    /// Output of a compaction that is about to replace its input: `.swap`.
    Swap,
}

impl SegmentFileKind {
    const ALL: [SegmentFileKind; 5] = [
        SegmentFileKind::Log,
        SegmentFileKind::Index,
        SegmentFileKind::TimeIndex,
        SegmentFileKind::TxnIndex,
        SegmentFileKind::Snapshot,
    ];

    /// The extension, dot included.
    pub const fn extension(self) -> &'static str {
        match self {
            SegmentFileKind::Log => ".log",
            SegmentFileKind::Index => ".index",
            SegmentFileKind::TimeIndex => ".timeindex",
            SegmentFileKind::TxnIndex => ".txnindex",
            SegmentFileKind::Snapshot => ".snapshot",
        }
    }

    /// The name of the live file of this kind in the segment that begins at `base_offset`.
    pub fn file_name(self, base_offset: Offset) -> String {
        SegmentFile { base_offset, kind: self, state: SegmentFileState::Live }.to_string()
    }
}

impl SegmentFileState {
    const ALL: [SegmentFileState; 4] = [
        SegmentFileState::Live,
        SegmentFileState::Deleted,
        SegmentFileState::Cleaned,
        SegmentFileState::Swap,
    ];

    /// What follows the extension, dot included.
    pub const fn suffix(self) -> &'static str {
        match self {
            SegmentFileState::Live => "",
            SegmentFileState::Deleted => ".deleted",
            SegmentFileState::Cleaned => ".cleaned",
            SegmentFileState::Swap => ".swap",
        }
    }
}

impl SegmentFile {
    const DIGITS: usize = 20;

    /// What a file of this name is; `None` for a name that no segment's file has.
    pub fn parse(name: &str) -> Option<SegmentFile> {
        let (digits, extensions) = name.split_at_checked(Self::DIGITS)?;
        if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let base_offset = Offset::new(digits.parse().ok()?)?;
        let (kind, rest) = SegmentFileKind::ALL
            .into_iter()
            .find_map(|kind| Some((kind, extensions.strip_prefix(kind.extension())?)))?;
        let state = SegmentFileState::ALL.into_iter().find(|state| state.suffix() == rest)?;
        Some(SegmentFile { base_offset, kind, state })
    }
}

impl fmt::Display for SegmentFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (number, digits) = (self.base_offset.get(), Self::DIGITS);
        write!(f, "{number:0digits$}{}{}", self.kind.extension(), self.state.suffix())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn partition(topic: &str, partition: u32) -> TopicPartition {
        TopicPartition::new(topic, partition).unwrap()
    }

    /// kafka-behaviours row 148 (`LocalLogTest.testParseTopicPartitionName`,
    /// `testParseTopicPartitionNameWithPeriodForDeletedTopic`).
    #[test]
    fn names_that_kafka_gives_are_parsed() {
        let live = parse_directory_name("test_topic-143").unwrap();
        assert_eq!(live, (partition("test_topic", 143), DirectoryKind::Live));
        let name = "foo.bar-testtopic-42.0123456789abcdef0123456789abcdef-delete";
        let deleted = parse_directory_name(name).unwrap();
        assert_eq!(deleted, (partition("foo.bar-testtopic", 42), DirectoryKind::Delete));
        for (name, kind) in [
            ("my-topic-3.00ff-future", DirectoryKind::Future),
            ("my-topic-3.00ff-stray", DirectoryKind::Stray),
            ("my-topic-3", DirectoryKind::Live),
        ] {
            assert_eq!(parse_directory_name(name).unwrap(), (partition("my-topic", 3), kind));
        }
        assert_eq!(parse_directory_name("--1").unwrap().0, partition("-", 1));
        assert_eq!(parse_directory_name("t-2147483647").unwrap().0, partition("t", 2_147_483_647));
    }

    /// kafka-behaviours row 149 (`LocalLogTest.testParseTopicPartitionNameForMissingSeparator`,
    /// `...MissingTopic`, `...MissingPartition`, `...InvalidPartition`, `...ExistingInvalidDir`).
    #[test]
    fn names_that_kafka_refuses_are_refused() {
        for name in [
            "test_topic1999",
            "-1999",
            "test_topic-",
            "test_topic-1999a",
            "non_kafka_dir",
            "non_kafka_dir-delete",
            "",
            "t-0-delete",
            "t-0.-delete",
            "t.00ff-delete",
            "t-0.00 ff-future",
            "t-2147483648",
            "..-0",
            "a b-0",
            "remote-log-index-cache",
        ] {
            let error = parse_directory_name(name).unwrap_err();
            assert!(error.to_string().contains(&format!("`{name}`")), "{error}");
        }
        assert!(format!("{}-0", "t".repeat(249)).parse::<TopicPartition>().is_ok());
        assert!(format!("{}-0", "t".repeat(250)).parse::<TopicPartition>().is_err());
    }

    #[test]
    fn two_names_are_never_the_same_partition() {
        for name in ["t-01", "t-00", "t-+1", "t- 1", "t-\u{661}"] {
            assert!(name.parse::<TopicPartition>().is_err(), "{name}");
        }
    }

    #[test]
    fn segment_file_names_read_back() {
        for kind in SegmentFileKind::ALL {
            for state in SegmentFileState::ALL {
                for base_offset in [Offset::ZERO, Offset::MAX] {
                    let file = SegmentFile { base_offset, kind, state };
                    assert_eq!(SegmentFile::parse(&file.to_string()), Some(file));
                }
            }
        }
        let base = Offset::new(42).unwrap();
        assert_eq!(SegmentFileKind::Log.file_name(base), "00000000000000000042.log");
        let swap = SegmentFile::parse("00000000000000000042.timeindex.swap").unwrap();
        assert_eq!(swap.kind, SegmentFileKind::TimeIndex);
        assert_eq!(swap.state, SegmentFileState::Swap);
    }

    #[test]
    fn other_files_are_no_segments() {
        for name in [
            "",
            "7.log",
            "00000000000000000000",
            "00000000000000000000.",
            "00000000000000000000.logs",
            "00000000000000000000.log.",
            "00000000000000000000.log.deleted.swap",
            "00000000000000000000-0000000001.checkpoint",
            "000000000000000000000.log",
            "+0000000000000000001.log",
            "0000000000000000000\u{e9}.log",
            "99999999999999999999.log",
            "09223372036854775808.log",
            "leader-epoch-checkpoint",
            "partition.metadata",
        ] {
            assert_eq!(SegmentFile::parse(name), None, "{name}");
        }
    }

    proptest! {
        #[test]
        fn any_name_is_parsed_to_itself_or_refused(name in "\\PC*|[a-z.]{0,3}-[0-9]{1,11}") {
            if let Ok(partition) = name.parse::<TopicPartition>() {
                prop_assert_eq!(partition.to_string(), name.clone());
            }
            let _either = parse_directory_name(&name);
            if let Some(file) = SegmentFile::parse(&name) {
                prop_assert_eq!(file.to_string(), name);
            }
        }
    }
}
