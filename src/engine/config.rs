//! The effective topic properties of one partition: what its cluster set for the topic, else for
//! the brokers, else what offsetfs does of its own accord, else Kafka's default (contract 4.10).
//!
//! The properties are those of the topic level that concern a log, with the defaults and ranges of
//! Kafka 4.4; but no least `segment.bytes` of 1 MiB, which older clusters do not have. By age or
//! size nothing is deleted, and no segment rolled by age, unless somebody says so.

use std::fmt;

use crate::engine::disk::read_small;
use crate::engine::log::Log;
use crate::engine::metadata::{ClusterSettings, Settings};
use crate::format::checkpoint;

/// One property that a topic can have.
#[derive(Clone, Copy, Debug)]
pub struct PropertyKind {
    /// Its name.
    pub name: &'static str,
    /// Kafka's default.
    pub default: &'static str,
    valid: Valid,
    /// What brokers call it, and how many of its own units are one of theirs; the first that is
    /// set counts.
    broker: &'static [(&'static str, i64)],
}

/// Which values a property can have.
#[derive(Clone, Copy, Debug)]
enum Valid {
    /// A number within these bounds.
    Number(i64, i64),
    /// One number, or one within these bounds.
    OneNumberOr(i64, i64, i64),
    /// From 0 to 1.
    Ratio,
    /// `true` or `false`.
    Switch,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// Any of these words, separated by commas.
    SomeOf(&'static [&'static str]),
}

const I32: i64 = i32::MAX as i64;
const I64: i64 = i64::MAX;
/// The file in a partition's directory that keeps what was written to its `config`; a broker
/// ignores the name.
pub const SETTINGS_FILE: &str = "config.offsetfs";
const NEVER: &str = "9223372036854775807";
const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;
const CODECS: &[&str] = &["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"];

/// All properties, by name.
pub static PROPERTIES: [PropertyKind; 29] = [
    row(
        "cleanup.policy",
        "delete",
        Valid::SomeOf(&["compact", "delete"]),
        &[("log.cleanup.policy", 1)],
    ),
    row(
        "compression.gzip.level",
        "-1",
        Valid::OneNumberOr(-1, 1, 9),
        &[("compression.gzip.level", 1)],
    ),
    row("compression.lz4.level", "9", Valid::Number(1, 17), &[("compression.lz4.level", 1)]),
    row("compression.type", "producer", Valid::OneOf(CODECS), &[("compression.type", 1)]),
    row(
        "compression.zstd.level",
        "3",
        Valid::Number(-131_072, 22),
        &[("compression.zstd.level", 1)],
    ),
    row("delete.on.rmdir", "false", Valid::Switch, &[]),
    row(
        "delete.retention.ms",
        "86400000",
        Valid::Number(0, I64),
        &[("log.cleaner.delete.retention.ms", 1)],
    ),
    row(
        "file.delete.delay.ms",
        "60000",
        Valid::Number(0, I64),
        &[("log.segment.delete.delay.ms", 1)],
    ),
    row("flush.messages", NEVER, Valid::Number(1, I64), &[("log.flush.interval.messages", 1)]),
    row(
        "flush.ms",
        NEVER,
        Valid::Number(0, I64),
        &[("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)],
    ),
    row("index.interval.bytes", "4096", Valid::Number(0, I32), &[("log.index.interval.bytes", 1)]),
    row("local.retention.bytes", "-2", Valid::Number(-2, I64), &[("log.local.retention.bytes", 1)]),
    row("local.retention.ms", "-2", Valid::Number(-2, I64), &[("log.local.retention.ms", 1)]),
    row(
        "max.compaction.lag.ms",
        NEVER,
        Valid::Number(1, I64),
        &[("log.cleaner.max.compaction.lag.ms", 1)],
    ),
    row("max.message.bytes", "1048588", Valid::Number(0, I32), &[("message.max.bytes", 1)]),
    row(
        "message.timestamp.after.max.ms",
        "3600000",
        Valid::Number(0, I64),
        &[("log.message.timestamp.after.max.ms", 1)],
    ),
    row(
        "message.timestamp.before.max.ms",
        NEVER,
        Valid::Number(0, I64),
        &[("log.message.timestamp.before.max.ms", 1)],
    ),
    row(
        "message.timestamp.type",
        "CreateTime",
        Valid::OneOf(&["CreateTime", "LogAppendTime"]),
        &[("log.message.timestamp.type", 1)],
    ),
    row(
        "min.cleanable.dirty.ratio",
        "0.5",
        Valid::Ratio,
        &[("log.cleaner.min.cleanable.ratio", 1)],
    ),
    row(
        "min.compaction.lag.ms",
        "0",
        Valid::Number(0, I64),
        &[("log.cleaner.min.compaction.lag.ms", 1)],
    ),
    row("min.insync.replicas", "1", Valid::Number(1, I32), &[("min.insync.replicas", 1)]),
    row("preallocate", "false", Valid::Switch, &[("log.preallocate", 1)]),
    row("remote.storage.enable", "false", Valid::Switch, &[]),
    row("retention.bytes", "-1", Valid::Number(i64::MIN, I64), &[("log.retention.bytes", 1)]),
    row(
        "retention.ms",
        "604800000",
        Valid::Number(-1, I64),
        &[
            ("log.retention.ms", 1),
            ("log.retention.minutes", MINUTE),
            ("log.retention.hours", HOUR),
        ],
    ),
    row("segment.bytes", "1073741824", Valid::Number(14, I32), &[("log.segment.bytes", 1)]),
    row(
        "segment.index.bytes",
        "10485760",
        Valid::Number(4, I32),
        &[("log.index.size.max.bytes", 1)],
    ),
    row(
        "segment.jitter.ms",
        "0",
        Valid::Number(0, I64),
        &[("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", HOUR)],
    ),
    row(
        "segment.ms",
        "604800000",
        Valid::Number(1, I64),
        &[("log.roll.ms", 1), ("log.roll.hours", HOUR)],
    ),
];

/// What offsetfs never does by itself, whatever Kafka would do by default.
const NEVER_BY_ITSELF: [(&str, &str); 3] =
    [("retention.bytes", "-1"), ("retention.ms", "-1"), ("segment.ms", NEVER)];

const fn row(
    name: &'static str,
    default: &'static str,
    valid: Valid,
    broker: &'static [(&'static str, i64)],
) -> PropertyKind {
    PropertyKind { name, default, valid, broker }
}

impl PropertyKind {
    /// The property called `name`.
    pub fn named(name: &str) -> Option<&'static PropertyKind> {
        PROPERTIES.iter().find(|kind| kind.name == name)
    }

    /// Can the property have this value? If not, which values it can have.
    pub fn validate(&self, value: &str) -> Result<(), String> {
        if self.valid.allows(value.trim()) {
            return Ok(());
        }
        Err(format!("{}: `{}` is not {}", self.name, value.escape_debug(), self.valid))
    }

    /// The default of the brokers with these settings, in the units of the topic's property.
    fn broker_default(&self, settings: &Settings) -> Option<String> {
        self.broker.iter().find_map(|&(name, unit)| {
            let value = settings.get(name)?.trim();
            if unit == 1 {
                return Some(value.to_owned());
            }
            let number: i64 = value.parse().ok()?;
            Some(if number < 0 { number } else { number.saturating_mul(unit) }.to_string())
        })
    }
}

impl Valid {
    fn allows(self, value: &str) -> bool {
        let within = |least: i64, most: i64| {
            value.parse::<i64>().is_ok_and(|number| (least..=most).contains(&number))
        };
        match self {
            Valid::Number(least, most) => within(least, most),
            Valid::OneNumberOr(one, least, most) => within(one, one) || within(least, most),
            Valid::Ratio => value.parse::<f64>().is_ok_and(|ratio| (0.0..=1.0).contains(&ratio)),
            Valid::Switch => ["true", "false"].iter().any(|word| value.eq_ignore_ascii_case(word)),
            Valid::OneOf(words) => words.contains(&value),
            Valid::SomeOf(words) => value.split(',').all(|word| words.contains(&word.trim())),
        }
    }
}

impl fmt::Display for Valid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Valid::Number(i64::MIN, I64) => f.write_str("a number"),
            Valid::Number(least, I64) => write!(f, "a number of at least {least}"),
            Valid::Number(least, most) => write!(f, "a number from {least} to {most}"),
            Valid::OneNumberOr(one, least, most) => {
                write!(f, "{one} or a number from {least} to {most}")
            }
            Valid::Ratio => f.write_str("a number from 0 to 1"),
            Valid::Switch => f.write_str("true or false"),
            Valid::OneOf(words) => write!(f, "one of {}", words.join(", ")),
            Valid::SomeOf(words) => write!(f, "some of {}", words.join(",")),
        }
    }
}

/// Who says what a property is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// The partition's own settings file, which was written through its `config`.
    Here,
    /// The topic's records in the metadata log.
    ClusterMetadata,
    /// The brokers' records in the metadata log: a default of the cluster.
    ClusterDefault,
    /// Nobody, and then offsetfs does it so.
    OffsetfsDefault,
    /// Nobody, and then it is as in Kafka.
    Default,
}

/// One property of one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Property {
    /// Its name.
    pub name: &'static str,
    /// Its value, which is a valid one.
    pub value: String,
    /// Who says so.
    pub origin: Origin,
}

/// The properties of one partition.
#[derive(Clone, Debug)]
pub struct Config {
    entries: Vec<Property>,
    left_out: Vec<(String, String)>,
}

impl Config {
    /// All of them, by name.
    pub fn entries(&self) -> &[Property] {
        &self.entries
    }

    /// Names and values that the cluster set for the topic but that have no effect here: properties
    /// that concern no log, and values that are not valid.
    pub fn left_out(&self) -> &[(String, String)] {
        &self.left_out
    }

    /// One of them.
    pub fn get(&self, name: &str) -> Option<&Property> {
        let found = self.entries.binary_search_by_key(&name, |property| property.name);
        found.ok().and_then(|i| self.entries.get(i))
    }

    /// Does a cleaner remove records that later ones replace?
    pub fn is_compacted(&self) -> bool {
        self.get("cleanup.policy").is_some_and(|policy| policy.value.contains("compact"))
    }
}

/// The properties of `log` as they are now. Costs three small reads when the metadata log is the
/// same as before, and a reading of that log when it is not.
pub fn effective(log: &Log) -> Config {
    let shared = log.shared();
    let here = settings_here(log);
    let cluster = shared.metadata.settings(shared);
    if cluster.is_empty() {
        return resolve(&here, None, &[]);
    }
    let topic = log.name().topic();
    let of_topic = cluster.of_topic(topic).filter(|_| is_topic_of(log, &cluster));
    let node = node_id(log).and_then(|node| cluster.of_broker(&node.to_string()));
    let brokers: Vec<_> = node.into_iter().chain(cluster.of_broker("")).collect();
    resolve(&here, of_topic, &brokers)
}

/// What was set here: lines of the partition's settings file. A line that means nothing is left
/// out.
pub fn settings_here(log: &Log) -> Settings {
    let path = log.path().join(SETTINGS_FILE);
    let bytes = read_small(&*log.shared().disk, &path, 1 << 20).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// What `settings` become when `lines` are written to `config`: `name=value` sets a property and
/// `name=` takes it back. Fails on the first line that means nothing, naming it.
pub fn change(settings: &Settings, lines: &str) -> Result<Settings, String> {
    let mut changed = settings.clone();
    for line in lines.lines().map(str::trim) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, value) =
            line.split_once('=').ok_or_else(|| format!("`{line}` is not name=value"))?;
        let (name, value) = (name.trim(), value.trim());
        let kind = PropertyKind::named(name).ok_or_else(|| format!("no property `{name}`"))?;
        if value.is_empty() {
            changed.remove(name);
            continue;
        }
        kind.validate(value).map_err(|reason| format!("{name}: {reason}"))?;
        if name == "cleanup.policy" && value.contains("compact") {
            return Err("cleanup.policy: there is no cleaner here, so no compact".to_owned());
        }
        if name == "segment.index.bytes" && value.parse().is_ok_and(|bytes: i64| bytes < 24) {
            return Err(format!("{name}: {value} leaves no room for an entry"));
        }
        changed.insert(name.to_owned(), value.to_owned());
    }
    Ok(changed)
}

/// The settings as the lines of their file.
pub fn as_lines(settings: &Settings) -> String {
    let line = |(name, value): (&String, &String)| [name, "=", value, "\n"].concat();
    settings.iter().map(line).collect::<Vec<_>>().concat()
}

/// Is the partition of the topic that the cluster knows by this name, and not of an earlier one?
fn is_topic_of(log: &Log, cluster: &ClusterSettings) -> bool {
    let path = log.path().join("partition.metadata");
    let id = read_small(&*log.shared().disk, &path, 1 << 12)
        .ok()
        .and_then(|bytes| checkpoint::parse_partition_metadata(&bytes).ok());
    id.is_none() || id == cluster.topic_id(log.name().topic())
}

/// The number of the broker whose data directory this is.
fn node_id(log: &Log) -> Option<i32> {
    let path = log.path().parent()?.join("meta.properties");
    let bytes = read_small(&*log.shared().disk, &path, 1 << 16).ok()?;
    checkpoint::parse_meta_properties(&bytes).ok()?.node_id
}

fn resolve(here: &Settings, topic: Option<&Settings>, brokers: &[&Settings]) -> Config {
    let nothing = Settings::new();
    let topic = topic.unwrap_or(&nothing);
    let property = |kind: &'static PropertyKind| {
        let valid = |value: &String| kind.validate(value).is_ok();
        let of_topic = topic.get(kind.name).cloned().filter(valid);
        let of_brokers = || brokers.iter().find_map(|s| kind.broker_default(s).filter(valid));
        let ours = NEVER_BY_ITSELF.iter().find(|(name, _)| *name == kind.name);
        let of_here = here.get(kind.name).cloned().filter(valid);
        let (value, origin) = if let Some(value) = of_here {
            (value, Origin::Here)
        } else if let Some(value) = of_topic {
            (value.trim().to_owned(), Origin::ClusterMetadata)
        } else if let Some(value) = of_brokers() {
            (value, Origin::ClusterDefault)
        } else if let Some((_, value)) = ours {
            ((*value).to_owned(), Origin::OffsetfsDefault)
        } else {
            (kind.default.to_owned(), Origin::Default)
        };
        Property { name: kind.name, value, origin }
    };
    let has_effect = |name: &str, value: &str| {
        PropertyKind::named(name).is_some_and(|kind| kind.validate(value).is_ok())
    };
    let left_out = topic.iter().filter(|(name, value)| !has_effect(name, value));
    Config {
        entries: PROPERTIES.iter().map(property).collect(),
        left_out: left_out.map(|(name, value)| (name.clone(), value.clone())).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::fixture;

    fn settings(pairs: &[(&str, &str)]) -> Settings {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn found<'a>(config: &'a Config, name: &str) -> (&'a str, Origin) {
        let property = config.get(name).unwrap();
        (&property.value, property.origin)
    }

    #[test]
    fn the_table_is_in_order_and_its_defaults_are_valid() {
        assert!(PROPERTIES.is_sorted_by_key(|kind| kind.name));
        for kind in &PROPERTIES {
            assert_eq!(kind.validate(kind.default), Ok(()));
        }
    }

    /// Contract 4.10: Kafka's default, but nothing by age.
    #[test]
    fn what_nobody_set_is_kafkas_default_but_nothing_goes_by_age() {
        let config = resolve(&Settings::new(), None, &[]);
        assert_eq!(found(&config, "segment.bytes"), ("1073741824", Origin::Default));
        assert_eq!(found(&config, "retention.ms"), ("-1", Origin::OffsetfsDefault));
        assert_eq!(found(&config, "retention.bytes"), ("-1", Origin::OffsetfsDefault));
        assert_eq!(found(&config, "segment.ms"), (NEVER, Origin::OffsetfsDefault));
        assert!(!config.is_compacted());
    }

    #[test]
    fn the_topic_comes_before_the_broker_and_the_broker_before_all_brokers() {
        let topic = settings(&[("segment.bytes", "100")]);
        let one = settings(&[("log.segment.bytes", "200"), ("log.retention.hours", "2")]);
        let all = settings(&[
            ("log.retention.ms", "5"),
            ("log.roll.hours", "-1"),
            ("message.max.bytes", "300"),
            ("log.retention.bytes", "7"),
        ]);
        let config = resolve(&Settings::new(), Some(&topic), &[&one, &all]);
        assert_eq!(found(&config, "segment.bytes"), ("100", Origin::ClusterMetadata));
        assert_eq!(found(&config, "retention.ms"), ("7200000", Origin::ClusterDefault));
        assert_eq!(found(&config, "max.message.bytes"), ("300", Origin::ClusterDefault));
        assert_eq!(found(&config, "retention.bytes"), ("7", Origin::ClusterDefault));
        assert_eq!(found(&config, "segment.ms"), (NEVER, Origin::OffsetfsDefault), "-1 hours");
    }

    #[test]
    fn unknown_names_and_bad_values_are_left_out_but_named() {
        let topic = settings(&[
            ("internal.segment.bytes", "9"),
            ("flush.ms", "-5"),
            ("flush.messages", "1"),
        ]);
        let config = resolve(&Settings::new(), Some(&topic), &[]);
        assert_eq!(found(&config, "flush.ms"), (NEVER, Origin::Default));
        assert_eq!(found(&config, "flush.messages"), ("1", Origin::ClusterMetadata));
        let left_out = settings(&[("internal.segment.bytes", "9"), ("flush.ms", "-5")]);
        assert_eq!(config.left_out().iter().cloned().collect::<Settings>(), left_out);
    }

    #[test]
    fn values_are_within_the_ranges_of_kafka() {
        let rows = [
            ("segment.bytes", "14 2147483647", "13 2147483648 x 1.5"),
            ("retention.bytes", "-5 -9223372036854775808 0", "9223372036854775808 -"),
            ("retention.ms", "-1 0", "-2"),
            ("compression.gzip.level", "-1 1 9", "0 10 -2"),
            ("compression.zstd.level", "-131072 22", "23"),
            ("min.cleanable.dirty.ratio", "0 1 0.01 1e-3", "1.1 -0.1 NaN inf"),
            ("preallocate", "true false TRUE", "yes 1"),
            ("message.timestamp.type", "CreateTime LogAppendTime", "createtime"),
            ("cleanup.policy", "compact compact,delete delete", "compact; deleted compact,"),
            ("compression.type", "uncompressed producer", "none"),
        ];
        for (name, good, bad) in rows {
            let kind = PropertyKind::named(name).unwrap();
            good.split(' ').for_each(|value| assert_eq!(kind.validate(value), Ok(())));
            for value in bad.split(' ') {
                let reason = kind.validate(value).unwrap_err();
                assert!(reason.contains(name) && reason.contains(value), "{reason}");
            }
        }
        let reason = PropertyKind::named("segment.bytes").unwrap().validate("a\nb").unwrap_err();
        assert_eq!(reason, "segment.bytes: `a\\nb` is not a number from 14 to 2147483647");
    }

    #[test]
    fn a_partition_has_what_its_cluster_set() {
        let source = fixture::data_dir("clean", &["compacted-0", "plain-0"]);
        fixture::with_metadata("clean", source.path());
        let config = effective(&fixture::log(source.path(), "compacted-0"));
        assert!(config.is_compacted());
        assert_eq!(found(&config, "index.interval.bytes"), ("1024", Origin::ClusterMetadata));
        assert_eq!(found(&config, "min.insync.replicas"), ("1", Origin::ClusterDefault));
        assert_eq!(found(&config, "segment.bytes"), ("1073741824", Origin::Default));
        let left_out = ("internal.segment.bytes".to_owned(), "8192".to_owned());
        assert_eq!(config.left_out(), [left_out]);
        assert!(!effective(&fixture::log(source.path(), "plain-0")).is_compacted());
    }

    /// A topic that was deleted and made again is another one: its old partition, found on a disk,
    /// must not be shown with the settings of the new one.
    #[test]
    fn a_partition_of_an_earlier_topic_has_not_the_settings_of_the_new_one() {
        let source = fixture::data_dir("clean", &["compacted-0"]);
        fixture::with_metadata("clean", source.path());
        let id = "version: 0\ntopic_id: AAAAAAAAAAEAAAAAAAAAAg";
        std::fs::write(source.path().join("compacted-0/partition.metadata"), id).unwrap();
        assert!(!effective(&fixture::log(source.path(), "compacted-0")).is_compacted());
    }
}
