//! `report.json`: what is known of a partition, as one JSON object (contract 6.3).

use serde_json::{Value, json};

use crate::engine::damage::{Oddity, Stretch};
use crate::engine::facts::{Facts, Shadowed, file_name};
use crate::engine::log::TornTail;
use crate::units::Offset;

/// The file.
pub fn text(facts: &Facts) -> Vec<u8> {
    format!("{:#}\n", object(facts)).into_bytes()
}

/// The object of one partition.
pub fn object(facts: &Facts) -> Value {
    json!({
        "topic": facts.partition.topic(),
        "partition": facts.partition.partition(),
        "directory": facts.directory.to_string_lossy(),
        "log_start": facts.log_start.get(),
        "log_end": facts.log_end.get(),
        "high_watermark": facts.high_watermark.get(),
        "torn_tail": facts.torn_tail.as_ref().map(torn_tail),
        "damage": list(&facts.damage, stretch),
        "oddities": list(&facts.oddities, oddity),
        "missing": list(&facts.missing, |missing| json!({
            "first_offset": missing.first_offset.get(),
            "last_offset": missing.last_offset.get(),
            "why": missing.why.as_str(),
        })),
        "below_log_start": facts.below_log_start.map(|(first, last)| json!({
            "first_offset": first.get(),
            "last_offset": last.get(),
        })),
        "indexes": list(&facts.indexes, |index| json!({
            "file": index.file,
            "state": index.state,
        })),
        "timestamps": list(&facts.timestamps, |suspicious| json!({
            "segment": suspicious.segment,
            "timestamp": suspicious.timestamp.millis(),
            "reason": suspicious.reason,
            "first_offset": suspicious.first_offset.map(Offset::get),
        })),
        "leftovers": facts.leftovers,
        "shadowed": list(&facts.shadowed, shadowed),
        "read_in_full": facts.read_in_full,
    })
}

fn list<T>(items: &[T], shown: impl Fn(&T) -> Value) -> Vec<Value> {
    items.iter().map(shown).collect()
}

/// The object of a torn tail.
pub fn torn_tail(tail: &TornTail) -> Value {
    json!({
        "segment": file_name(&tail.path),
        "position": tail.position.get(),
        "bytes": tail.bytes,
    })
}

/// The offsets are null where the bytes between two neighbours in order held none.
fn stretch(stretch: &Stretch) -> Value {
    let lost = stretch.end_offset > stretch.first_offset;
    json!({
        "segment": file_name(&stretch.path),
        "position": stretch.start.get(),
        "bytes": stretch.end.get() - stretch.start.get(),
        "first_offset": lost.then(|| stretch.first_offset.get()),
        "last_offset": lost.then(|| stretch.end_offset.previous().get()),
        "reason": stretch.reason,
    })
}

fn oddity(oddity: &Oddity) -> Value {
    json!({
        "segment": file_name(&oddity.path),
        "position": oddity.position.get(),
        "bytes": oddity.bytes,
        "first_offset": oddity.offsets.0.get(),
        "last_offset": oddity.offsets.1.get(),
        "reason": oddity.reason,
    })
}

fn shadowed(shadowed: &Shadowed) -> Value {
    match shadowed {
        Shadowed::File(file) => json!({ "file": file }),
        Shadowed::Offsets { segment, first_offset, last_offset } => json!({
            "segment": segment,
            "first_offset": Offset::get(*first_offset),
            "last_offset": Offset::get(*last_offset),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::facts::{self, IndexState, SuspiciousTimestamp};
    use crate::engine::fixture;
    use crate::engine::missing::{Missing, Why};
    use crate::units::{Position, Timestamp};

    fn offset(raw: i64) -> Offset {
        Offset::new(raw).unwrap()
    }

    fn shown(facts: &Facts) -> String {
        String::from_utf8(text(facts)).unwrap()
    }

    /// Every list with at least one element.
    fn full() -> Facts {
        let segment = "00000000000000000005.log".to_owned();
        let path = std::path::Path::new("data/t-0").join(&segment);
        let stretch = Stretch {
            path: path.clone(),
            start: Position::new(10),
            end: Position::new(110),
            first_offset: offset(7),
            end_offset: offset(9),
            reason: "checksum".to_owned(),
        };
        let lost = Stretch { end_offset: offset(7), ..stretch.clone() };
        Facts {
            partition: "t-0".parse().unwrap(),
            directory: "data/t-0".into(),
            log_start: offset(6),
            log_end: offset(20),
            high_watermark: offset(19),
            torn_tail: Some(TornTail {
                path: path.clone(),
                position: Position::new(300),
                bytes: 80,
            }),
            damage: vec![stretch, lost],
            oddities: vec![Oddity {
                path,
                position: Position::new(200),
                bytes: 70,
                offsets: (offset(10), offset(11)),
                reason: "leader epoch 3, preceded by 4".to_owned(),
            }],
            missing: vec![Missing {
                first_offset: offset(7),
                last_offset: offset(8),
                why: Why::Damage,
            }],
            below_log_start: Some((offset(5), offset(5))),
            indexes: vec![IndexState { file: "i".to_owned(), state: "missing".to_owned() }],
            timestamps: vec![SuspiciousTimestamp {
                segment: segment.clone(),
                timestamp: Timestamp::from_millis(-1),
                reason: "future",
                first_offset: None,
            }],
            leftovers: vec!["l".to_owned()],
            shadowed: vec![
                Shadowed::File("s".to_owned()),
                Shadowed::Offsets { segment, first_offset: offset(20), last_offset: offset(21) },
            ],
            read_in_full: false,
        }
    }

    /// What programs read must not change by accident.
    #[test]
    fn the_report_is_stable() {
        let compact = object(&full()).to_string();
        let expected = concat!(
            r#"{"topic":"t","partition":0,"directory":"data/t-0","#,
            r#""log_start":6,"log_end":20,"high_watermark":19,"#,
            r#""torn_tail":{"segment":"00000000000000000005.log","position":300,"bytes":80},"#,
            r#""damage":[{"segment":"00000000000000000005.log","position":10,"bytes":100,"#,
            r#""first_offset":7,"last_offset":8,"reason":"checksum"},"#,
            r#"{"segment":"00000000000000000005.log","position":10,"bytes":100,"#,
            r#""first_offset":null,"last_offset":null,"reason":"checksum"}],"#,
            r#""oddities":[{"segment":"00000000000000000005.log","position":200,"bytes":70,"#,
            r#""first_offset":10,"last_offset":11,"reason":"leader epoch 3, preceded by 4"}],"#,
            r#""missing":[{"first_offset":7,"last_offset":8,"why":"damage"}],"#,
            r#""below_log_start":{"first_offset":5,"last_offset":5},"#,
            r#""indexes":[{"file":"i","state":"missing"}],"#,
            r#""timestamps":[{"segment":"00000000000000000005.log","timestamp":-1,"#,
            r#""reason":"future","first_offset":null}],"#,
            r#""leftovers":["l"],"#,
            r#""shadowed":[{"file":"s"},{"segment":"00000000000000000005.log","#,
            r#""first_offset":20,"last_offset":21}],"read_in_full":false}"#,
        );
        assert_eq!(compact, expected);
    }

    #[test]
    fn a_sound_partition_has_empty_lists() {
        let source = fixture::data_dir("clean", &["plain-0"]);
        let log = fixture::log(source.path(), "plain-0");
        let now = Timestamp::from_millis(1_800_000_000_000);
        let text = shown(&facts::survey(&log, &log.state().unwrap(), now).unwrap());
        assert!(text.starts_with("{\n  \"topic\": \"plain\",\n  \"partition\": 0,\n"), "{text}");
        assert!(text.contains("  \"torn_tail\": null,\n  \"damage\": [],\n"), "{text}");
        assert!(text.ends_with("  \"read_in_full\": false\n}\n"), "{text}");
    }
}
