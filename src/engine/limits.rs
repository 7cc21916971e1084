//! What the settings of a partition mean for writing it.

use crate::engine::config::{Config, Origin};
use crate::engine::retention::RetentionLimits;
use crate::engine::roll;
use crate::error::{Error, Result};
use crate::format::codec::Codec;
use crate::format::name::TopicPartition;
use crate::units::Timestamp;

/// The settings of one partition as values.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Which partition.
    pub name: TopicPartition,
    /// `segment.bytes`.
    pub segment_bytes: u64,
    /// `segment.ms`, as far as it is followed (contract 4.11).
    pub segment_ms: i64,
    /// `segment.jitter.ms`.
    pub segment_jitter_ms: i64,
    /// `segment.index.bytes`.
    pub segment_index_bytes: u64,
    /// `index.interval.bytes`.
    pub index_interval_bytes: u64,
    /// `max.message.bytes`.
    pub max_message_bytes: usize,
    /// `compression.type` and its level.
    pub codec: (Codec, Option<i32>),
    /// `message.timestamp.type` is `LogAppendTime`.
    pub log_append_time: bool,
    /// How far a timestamp may lie before and behind now, where that was set here.
    pub timestamp_before_after_ms: (i64, i64),
    /// `flush.messages`.
    pub flush_messages: u64,
    /// `flush.ms`.
    pub flush_ms: i64,
    /// `retention.ms` and `retention.bytes`, as far as they are followed.
    pub retention: RetentionLimits,
    /// `delete.on.rmdir`, our own.
    pub delete_on_rmdir: bool,
}

impl Limits {
    /// From the effective settings. What would delete records, roll by age or refuse timestamps
    /// holds only where it was set here.
    pub fn new(name: &TopicPartition, config: &Config) -> Limits {
        let text = |property: &str| config.get(property).map_or("", |p| p.value.as_str());
        let number = |property: &str| text(property).parse::<i64>().unwrap_or(i64::MAX);
        let unsigned = |property: &str| u64::try_from(number(property)).unwrap_or(0);
        let here = |property: &str| config.get(property).is_some_and(|p| p.origin == Origin::Here);
        let if_here = |property: &str, else_: i64| {
            if here(property) { number(property) } else { else_ }
        };
        let level = |property: &str| i32::try_from(number(property)).ok();
        let codec = match text("compression.type") {
            "gzip" => (Codec::Gzip, level("compression.gzip.level")),
            "snappy" => (Codec::Snappy, None),
            "lz4" => (Codec::Lz4, level("compression.lz4.level")),
            "zstd" => (Codec::Zstd, level("compression.zstd.level")),
            _ => (Codec::None, None),
        };
        let deletes = text("cleanup.policy").contains("delete");
        let (retention_ms, retention_bytes) =
            (if_here("retention.ms", -1), if_here("retention.bytes", -1));
        Limits {
            name: name.clone(),
            segment_bytes: unsigned("segment.bytes"),
            segment_ms: if_here("segment.ms", i64::MAX),
            segment_jitter_ms: if_here("segment.jitter.ms", 0),
            segment_index_bytes: unsigned("segment.index.bytes"),
            index_interval_bytes: unsigned("index.interval.bytes"),
            max_message_bytes: usize::try_from(number("max.message.bytes")).unwrap_or(0),
            codec,
            log_append_time: text("message.timestamp.type") == "LogAppendTime",
            timestamp_before_after_ms: (
                if_here("message.timestamp.before.max.ms", i64::MAX),
                if_here("message.timestamp.after.max.ms", i64::MAX),
            ),
            flush_messages: unsigned("flush.messages"),
            flush_ms: number("flush.ms"),
            retention: RetentionLimits::new(deletes, retention_ms, retention_bytes),
            delete_on_rmdir: text("delete.on.rmdir") == "true",
        }
    }

    /// Bytes that a batch of ours may have.
    pub fn batch_bytes(&self) -> usize {
        let segment = usize::try_from(self.segment_bytes).unwrap_or(usize::MAX);
        self.max_message_bytes.min(segment)
    }

    /// Which setting that is.
    pub fn batch_bytes_reason(&self) -> &'static str {
        if (self.max_message_bytes as u64) <= self.segment_bytes {
            "max.message.bytes"
        } else {
            "segment.bytes"
        }
    }

    /// Refuses a time that the settings do not allow, or that no record can have.
    pub fn check_timestamp(&self, timestamp: Option<Timestamp>, now: Timestamp) -> Result<()> {
        let Some(timestamp) = timestamp else { return Ok(()) };
        let ahead = timestamp.millis().saturating_sub(now.millis());
        let (before, after) = self.timestamp_before_after_ms;
        if timestamp.millis() < -1 {
            return Err(Error::Invalid(format!("timestamp {timestamp} is negative")));
        }
        if !self.log_append_time && (ahead > after || ahead.saturating_neg() > before) {
            return Err(Error::Invalid(format!(
                "timestamp {timestamp} is not within message.timestamp.before.max.ms and \
                 message.timestamp.after.max.ms of now"
            )));
        }
        Ok(())
    }

    /// By how much a segment made `now` rolls earlier.
    pub fn jitter_ms(&self, now: Timestamp) -> i64 {
        let random = crc32c::crc32c(&now.millis().to_be_bytes());
        roll::jitter_ms(random, self.segment_jitter_ms, self.segment_ms)
    }
}
