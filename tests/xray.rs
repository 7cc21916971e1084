//! `offsetfs xray` (7.5) on what Apache Kafka wrote: the worked example with its literal numbers,
//! every record of every fixture against what Kafka read, damage, holes, and bad input.

mod support;

use std::fs;
use std::path::Path;

use serde_json::Value;
use support::{code, copy, expected, fixture, offsetfs, scratch, told};

fn xray(path: &Path, more: &[&str]) -> std::process::Output {
    let mut words = vec!["xray", path.to_str().expect("a path")];
    words.extend(more);
    offsetfs(&words)
}

fn json(path: &Path, more: &[&str]) -> (i32, Value) {
    let done = xray(path, &[more, &["--json"]].concat());
    let value = serde_json::from_slice(&done.stdout);
    (code(&done), value.unwrap_or_else(|e| panic!("{e}: {}", told(&done))))
}

fn example() -> std::path::PathBuf {
    fixture("exact").join("data/seed-0")
}

/// 7.5: "it prints anchor 500 at 84,300, 180 records scanned, 114,540 reached"
#[test]
fn worked_example_as_text() {
    let done = xray(&example(), &["--offset", "680"]);
    assert_eq!(code(&done), 0, "{}", told(&done));
    let text = String::from_utf8(done.stdout).expect("UTF-8");
    for line in [
        "  log start 0, high watermark 1999, log end 2000",
        "  segment 00000000000000000000.log, 337200 bytes",
        "  offset index: 7 entries",
        "  low 0, middle 3, high 7: offset 1000: above, go left",
        "  low 0, middle 1, high 3: offset 500: not above, go right",
        "  low 2, middle 2, high 3: offset 750: above, go left",
        "  entry 500 at 84300: the batch there is what it promises",
        "    batch 680 to 680 at 114540, 170 bytes, 1 records",
        "  180 batches, 180 records, 30240 bytes passed, 114540 reached",
        "  anchor 500 at 84300, 180 records scanned, 114540 reached",
    ] {
        assert!(text.contains(&format!("{line}\n")), "{line}\nis not in\n{text}");
    }
}

/// 7.5: "the segment chosen, each step of the binary search, the anchor entry, the bytes and
/// records scanned, where the record lies"
#[test]
fn worked_example_as_json() {
    let (code, told) = json(&example(), &["--offset", "680"]);
    assert_eq!(code, 0);
    let anchor = serde_json::json!({"offset": 500, "position": 84300, "implicit": false});
    assert_eq!(told["anchor"], anchor);
    assert_eq!(told["records_scanned"], 180);
    assert_eq!(told["bytes_scanned"], 180 * 168);
    assert_eq!(told["reached"], 114_540);
    assert_eq!(told["high_watermark"], 1999);
    assert_eq!(told["answer"]["position"], 114_540);
    assert_eq!(told["answer"]["offset"], 680);
    let entries = serde_json::json!([
        [250, 42150],
        [500, 84300],
        [750, 126_450],
        [1000, 168_600],
        [1250, 210_750],
        [1500, 252_900],
        [1750, 295_050],
    ]);
    assert_eq!(told["visits"][0]["entries"], entries);
    let batches = told["visits"][0]["scans"][0]["batches"].as_array().expect("a list");
    assert_eq!(batches.len(), 181);
    assert!(batches[..180].iter().all(|batch| batch["bytes"] == 168));
}

/// 7.5: "which pages of the files are in the page cache (mincore or cachestat, never by reading
/// them)"
#[test]
fn page_cache_is_told_of_the_files_of_the_segment() {
    let (_, told) = json(&example(), &["--offset", "680"]);
    let cache = told["page_cache"].as_array().expect("a list");
    let names: Vec<_> = cache.iter().map(|it| it["file"].as_str().expect("a name")).collect();
    let stem = "00000000000000000000";
    assert_eq!(names, [".log", ".index", ".timeindex"].map(|end| format!("{stem}{end}")));
    assert_eq!(cache[0]["pages"], 337_200_u64.div_ceil(4096));
    // The lookup itself reads the header at the anchor, and what lies up to the record.
    let reads = told["reads"].as_array().expect("a list");
    assert!(reads.iter().all(|read| read["position"].as_u64() >= Some(84_300)), "{reads:?}");
    let read: u64 = reads.iter().map(|read| read["bytes"].as_u64().expect("a number")).sum();
    assert_eq!(told["bytes_read"], read);
    assert!((30_240 + 168..64 << 10).contains(&read), "{read}");
}

/// 7.5: "`xray` shows one lookup for real"
#[test]
fn records_of_all_fixtures_are_where_kafka_read_them() {
    let mut seen = 0;
    for set in ["clean", "unclean", "legacy", "exact", "open-txn", "torn"] {
        for partition in expected::partitions(set) {
            let path = fixture(set).join("data").join(&partition.name);
            let rows = partition.rows();
            for row in rows.iter().step_by(rows.len().div_ceil(4).max(1)) {
                let (code, told) = json(&path, &["--offset", &row.offset.to_string()]);
                let what = format!("{set} {} {}: {told}", partition.name, row.offset);
                assert_eq!(code, 0, "{what}");
                assert_eq!(told["answer"]["found"], "record", "{what}");
                assert_eq!(told["answer"]["offset"], row.offset, "{what}");
                assert_eq!(told["answer"]["position"], row.batch_position, "{what}");
                assert_eq!(told["answer"]["batch_bytes"], row.batch_size, "{what}");
                assert_eq!(told["reached"], row.batch_position, "{what}");
                let segment = told["answer"]["segment"].as_str().expect("a name");
                assert!(segment.starts_with(&row.segment), "{what}");
                assert_scan_agrees(&partition, row, &told);
                seen += 1;
            }
        }
    }
    assert!(seen > 100, "{seen}");
}

/// What Kafka read between the anchor and the record is what the scan passed.
fn assert_scan_agrees(partition: &expected::Expected, row: &expected::Row, told: &Value) {
    let anchor = told["anchor"]["position"].as_u64().expect("a position");
    let passed = partition.everything.iter().filter(|other| {
        let here = other.segment == row.segment && other.batch_position as u64 >= anchor;
        here && other.batch_position <= row.batch_position && other.offset < row.offset
    });
    let wrapped = told["answer"]["batch_records"] == 0;
    if !wrapped {
        assert_eq!(told["records_scanned"], passed.count(), "{told}");
    }
}

/// 7.5: by time, the first record that is not older.
#[test]
fn times_are_answered_as_kafka_answers() {
    for partition in expected::partitions("clean") {
        let path = fixture("clean").join("data").join(&partition.name);
        if partition.rows().is_empty() {
            continue;
        }
        let lookups = &partition.lookups;
        for lookup in lookups.iter().step_by(lookups.len().div_ceil(4).max(1)) {
            if lookup.ts < 0 {
                continue;
            }
            let (code, told) = json(&path, &["--time", &lookup.ts.to_string()]);
            let found = told["answer"]["offset"].as_i64();
            assert_eq!((code, found), (0, lookup.offset), "{} {}", partition.name, lookup.ts);
        }
    }
}

/// An index is a hint: one of nonsense costs a scan and is told.
#[test]
fn an_index_that_lies_is_told() {
    let scratch = scratch();
    let path = copy(example(), scratch.path().join("seed-0"));
    let index = path.join("00000000000000000000.index");
    let mut bytes = fs::read(&index).expect("an index");
    bytes[15] ^= 1;
    fs::write(&index, bytes).expect("written");
    let (code, told) = json(&path, &["--offset", "680"]);
    assert_eq!(code, 0);
    assert_eq!(told["visits"][0]["offset_index"]["verified"], false);
    assert_eq!(told["anchor"]["implicit"], true);
    assert_eq!(told["records_scanned"], 680);
    assert_eq!(told["reached"], 114_540);
}

/// 7.1: "3 damage was found or stepped over"
#[test]
fn damage_is_part_of_the_picture() {
    let scratch = scratch();
    let path = copy(example(), scratch.path().join("seed-0"));
    let log = path.join("00000000000000000000.log");
    let mut bytes = fs::read(&log).expect("a log");
    bytes[114_540 + 100] ^= 1;
    fs::write(&log, bytes).expect("written");
    let (code, told) = json(&path, &["--offset", "680"]);
    assert_eq!(code, 3);
    assert_eq!(told["answer"]["found"], "damage");
    assert_eq!(told["answer"]["position"], 114_540);
    assert_eq!(told["answer"]["first_offset"], 680);
    assert_eq!(told["visits"][0]["scans"][0]["doubted"], true);
    let (code, told) = json(&path, &["--offset", "681"]);
    assert_eq!((code, &told["answer"]["offset"]), (0, &Value::from(681)));
}

#[test]
fn holes_and_control_records_are_named() {
    let txn = expected::partition("clean", "txn-0");
    let path = fixture("clean").join("data/txn-0");
    let control = txn.everything.iter().find(|row| row.control.is_some()).expect("a mark");
    let (code, told) = json(&path, &["--offset", &control.offset.to_string()]);
    assert_eq!((code, &told["answer"]["found"]), (0, &Value::from("nothing")));
    assert!(told["answer"]["why"].as_str().expect("why").contains("control record"), "{told}");
    let compacted = expected::partition("clean", "compacted-0");
    let path = fixture("clean").join("data/compacted-0");
    let rows = compacted.rows();
    let (a, _) =
        rows.iter().zip(&rows[1..]).find(|(a, b)| b.offset > a.offset + 1).expect("a hole");
    let (code, told) = json(&path, &["--offset", &(a.offset + 1).to_string()]);
    assert_eq!((code, &told["answer"]["found"]), (0, &Value::from("nothing")));
    assert!(told["answer"]["why"].as_str().expect("why").contains("hole"), "{told}");
}

#[test]
fn bad_input_is_refused_with_what_is_valid() {
    let empty = fixture("clean").join("data/empty-0");
    for (path, words, exit, said) in [
        (example(), &["--offset", "2000"][..], 1, "which has 0 to 1999"),
        (example(), &["--offset", "-1"], 2, "valid are 0 to 9223372036854775807"),
        (example(), &["--offset", "0680"], 2, "is no offset"),
        (example(), &["--time", "noon"], 2, "valid are Unix milliseconds"),
        (example(), &[], 2, "--offset"),
        (example(), &["--offset", "1", "--time", "1"], 2, "cannot be used with"),
        (empty, &["--offset", "0"], 1, "holds no records"),
        (fixture("clean").join("data"), &["--offset", "0"], 1, "is a data directory"),
    ] {
        let done = xray(&path, words);
        assert_eq!(code(&done), exit, "{words:?}: {}", told(&done));
        assert!(String::from_utf8_lossy(&done.stderr).contains(said), "{}", told(&done));
        assert!(done.stdout.is_empty());
    }
}
