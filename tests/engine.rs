//! The engine against every partition that Apache Kafka wrote: each record by its offset, each
//! hole, each time, each count from the end. No mount.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use offsetfs::engine::data_dir::DataDir;
use offsetfs::engine::log::{Found, Log, LogState};
use offsetfs::engine::options::ReadOptions;
use offsetfs::units::{Offset, Timestamp};
use serde_json::Value;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn bytes(value: &Value) -> Option<Vec<u8>> {
    value.as_str().map(|text| STANDARD.decode(text).unwrap())
}

fn offset(value: &Value) -> Option<Offset> {
    Offset::new(value.as_i64().unwrap())
}

/// Calls `check` for each partition of the set: its log, expected facts and expected records.
fn each_partition(set: &str, check: impl Fn(&str, &Log, &LogState, &Value, &[Value])) {
    let expected = fixtures().join(set).join("expected");
    let dir = DataDir::new(&fixtures().join(set).join("data"), None, ReadOptions::default());
    let mut seen = 0;
    for entry in std::fs::read_dir(&expected).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let Some(name) = name.strip_suffix(".partition.json") else { continue };
        let facts = std::fs::read(expected.join(format!("{name}.partition.json"))).unwrap();
        let facts: Value = serde_json::from_slice(&facts).unwrap();
        let records = lines(&expected.join(format!("{name}.jsonl")));
        let log = dir.log(name.as_ref()).unwrap().unwrap_or_else(|| panic!("{set}/{name}"));
        let state = log.state().unwrap();
        check(name, &log, &state, &facts, &records);
        seen += 1;
    }
    assert!(seen > 0, "{set} has no partitions");
}

fn check_records(set: &str) {
    each_partition(set, |name, log, state, facts, records| {
        let mut by_offset: HashMap<Offset, &Value> = HashMap::new();
        for record in records.iter().filter(|record| record["control"] == false) {
            by_offset.insert(offset(&record["offset"]).unwrap(), record);
        }
        let start = offset(&facts["log_start_offset"]).unwrap();
        assert_eq!(state.log_start, start, "{set}/{name}");
        let end = offset(&facts["log_end_offset"]).unwrap();
        let more_is_shown = set == "torn";
        if !more_is_shown {
            assert_eq!(state.log_end, end, "{set}/{name}");
        }
        if ["clean", "exact", "open-txn"].contains(&set) {
            assert_eq!(
                Some(state.high_watermark),
                offset(&facts["high_watermark"]),
                "{set}/{name}"
            );
        }
        for raw in 0..end.get() + 3 {
            let at = Offset::new(raw).unwrap();
            let wanted = by_offset.get(&at).filter(|_| at >= start);
            match (log.find(state, at).unwrap(), wanted) {
                (Found::Record(found, ..), Some(wanted)) => {
                    let record = found.record().unwrap();
                    assert_eq!(
                        record.value.map(<[u8]>::to_vec),
                        bytes(&wanted["value"]),
                        "{name} {at}"
                    );
                    assert_eq!(
                        record.key.map(<[u8]>::to_vec),
                        bytes(&wanted["key"]),
                        "{name} {at}"
                    );
                    let time = record.timestamp.map_or(-1, Timestamp::millis);
                    assert_eq!(time, wanted["ts"].as_i64().unwrap(), "{name} {at}");
                }
                (Found::Nothing, None) => {}
                (_, None) if more_is_shown && at >= end => {}
                (found, wanted) => panic!("{set}/{name} {at}: {found:?}, expected {wanted:?}"),
            }
        }
    });
}

#[test]
fn every_record_of_every_set_is_found_and_nothing_else() {
    for set in ["clean", "unclean", "torn", "legacy", "exact", "open-txn"] {
        check_records(set);
    }
}

#[test]
fn every_time_names_the_record_that_a_plain_scan_finds() {
    for set in ["clean", "unclean", "legacy", "exact", "open-txn"] {
        each_partition(set, |name, log, state, _, _| {
            let lookup = fixtures().join(set).join(format!("expected/lookup/{name}.jsonl"));
            for row in lines(&lookup) {
                let time = Timestamp::from_millis(row["ts"].as_i64().unwrap());
                let found = match log.find_time(state, time, None).unwrap() {
                    Found::Record(found, ..) => Some(found.record().unwrap().offset),
                    Found::Nothing => None,
                    Found::Damaged(stretch) => panic!("{}", stretch.error()),
                };
                assert_eq!(found, offset(&row["data_offset"]), "{set}/{name} {time}");
            }
        });
    }
}

#[test]
fn counting_from_the_end_counts_data_records() {
    for set in ["clean", "legacy", "exact", "open-txn"] {
        each_partition(set, |name, log, state, _, records| {
            let data: Vec<_> = records
                .iter()
                .filter(|record| record["control"] == false)
                .filter_map(|record| offset(&record["offset"]))
                .filter(|at| *at >= state.log_start)
                .collect();
            for count in [1, 2, 5, 77, 500, 100_000] {
                let wanted = data.len().checked_sub(count).map_or(state.log_start, |i| data[i]);
                let found = log.offset_of_last(state, count as u64, None).unwrap();
                assert_eq!(found, wanted, "{set}/{name} -{count}");
            }
        });
    }
}
