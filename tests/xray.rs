//! `offsetfs xray` (7.5) on what Apache Kafka wrote: the worked example with its literal numbers,
//! every record of every fixture against what Kafka read, damage, holes, hostile values, and bad
//! input.

mod support;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use serde_json::Value;
use support::{code, content, copy, expected, fixture, offsetfs, scratch, told};

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

fn example() -> PathBuf {
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

fn page_to(partition: &Path, file: &Path) -> std::process::Output {
    xray(partition, &["--offset", "680", "--html", file.to_str().expect("a path")])
}

/// 1.2: "nothing in SOURCE is created, locked, renamed, truncated"
#[test]
fn a_page_never_goes_into_the_data_directory() {
    let scratch = scratch();
    let data = copy(fixture("exact").join("data"), scratch.path().join("data"));
    let part = data.join("seed-0");
    let log = part.join("00000000000000000000.log");
    let link = scratch.path().join("link.html");
    symlink(&log, &link).expect("a link");
    let way_in = scratch.path().join("way-in");
    symlink(&part, &way_in).expect("a link");
    let before = content(&data);
    for to in [
        log.clone(),
        part.join("x.html"),
        data.join("x.html"),
        data.join("meta.properties"),
        part.join("../../data/x.html"),
        way_in.join("x.html"),
        link,
    ] {
        let done = page_to(&part, &to);
        assert_eq!(code(&done), 1, "{}: {}", to.display(), told(&done));
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(said.contains("inside the data directory") && said.contains("elsewhere"), "{said}");
    }
    assert!(content(&data) == before);
}

/// The parent of a lone copy of a partition is no data directory.
#[test]
fn a_page_may_lie_beside_a_lone_partition() {
    let scratch = scratch();
    let part = copy(example(), scratch.path().join("seed-0"));
    assert_eq!(code(&page_to(&part, &scratch.path().join("x.html"))), 0);
    assert_eq!(code(&page_to(&part, &part.join("x.html"))), 1);
}

/// An older page stays as it is unless a new one takes its place.
#[test]
fn a_page_is_written_whole_or_not_at_all() {
    let scratch = scratch();
    let page = scratch.path().join("x.html");
    fs::write(&page, "old").expect("written");
    let link = scratch.path().join("link.html");
    symlink(&page, &link).expect("a link");
    assert_eq!(code(&page_to(&example(), &link)), 0);
    assert!(fs::symlink_metadata(&link).expect("a link").is_symlink());
    let whole = fs::read_to_string(&page).expect("a page");
    assert!(whole.starts_with("<!DOCTYPE html>") && whole.ends_with("</html>\n"));
    assert_eq!(fs::read_dir(scratch.path()).expect("a directory").count(), 2, "nothing beside");
    for (to, said) in [
        (scratch.path().join("none/x.html"), "No such file"),
        (scratch.path().to_path_buf(), "is a directory"),
        (page.join("x.html"), "Not a directory"),
    ] {
        let done = page_to(&example(), &to);
        assert_eq!(code(&done), 1, "{}", told(&done));
        assert!(String::from_utf8_lossy(&done.stderr).contains(said), "{}", told(&done));
    }
    // No room for a page of this size.
    let words = [page.clone().into_os_string(), example().into(), support::OFFSETFS.into()];
    let script = "trap '' XFSZ; ulimit -f 4; \"$3\" xray \"$2\" --offset 680 --html \"$1\"";
    let done = support::sh(script, &words);
    assert_eq!(code(&done), 1, "{}", told(&done));
    assert!(String::from_utf8_lossy(&done.stderr).contains("File too large"), "{}", told(&done));
    assert_eq!(fs::read_to_string(&page).expect("a page"), whole);
    assert_eq!(fs::read_dir(scratch.path()).expect("a directory").count(), 2, "nothing beside");
    // A device is written to, and stays one.
    let script = "\"$2\" xray \"$1\" --offset 680 --html /dev/fd/3 3>&1 | cat";
    let words = [example().into_os_string(), support::OFFSETFS.into()];
    let piped = support::sh_ok(script, &words);
    assert!(piped.starts_with(b"<!DOCTYPE html>") && piped.ends_with(b"</html>\n"));
}

/// A copy of the example with these records behind its last one.
fn with_values(to: &Path, values: &[&[u8]]) -> PathBuf {
    let part = copy(fixture("exact").join("data"), to.join("data")).join("seed-0");
    let input = to.join("values");
    fs::write(&input, values.join(&0)).expect("written");
    let (part_text, input) = (part.to_str().expect("a path"), input.to_str().expect("a path"));
    let done = offsetfs(&["append", part_text, "--format", "nul", input]);
    assert_eq!(code(&done), 0, "{}", told(&done));
    part
}

/// 7.5: "one self-contained interactive HTML page", of whatever the records hold
#[test]
fn hostile_values_are_shown_and_do_nothing() {
    let markup = b"</script></pre><img src=x onerror=\"alert('1')\">@SCRIPT@<!--";
    let control = "\u{1b}]0;owned\u{7}\u{1b}[2J\r\u{9b}31m\u{202e}\u{8}\u{7f}".as_bytes();
    let bytes = b"\xff\xfe\x1b[31m\x80";
    let scratch = scratch();
    let part = with_values(scratch.path(), &[markup, control, bytes]);
    let plain = String::from_utf8(xray(&part, &["--offset", "680", "--html", "-"]).stdout);
    for (offset, value) in ["2000", "2001", "2002"].into_iter().zip([&markup[..], control, bytes]) {
        let (exit, json) = json(&part, &["--offset", offset]);
        assert_eq!(
            (exit, json["answer"]["value"]["bytes"].as_u64()),
            (0, Some(value.len() as u64))
        );
        let shown = json["answer"]["value"]["text"].as_str();
        assert_eq!(shown, str::from_utf8(value).ok());
        for more in [&["--offset", offset][..], &["--offset", offset, "--html", "-"]] {
            let done = xray(&part, more);
            assert_eq!(code(&done), 0, "{}", told(&done));
            let text = String::from_utf8(done.stdout).expect("UTF-8");
            let bad = |c: char| c != '\n' && c.is_control() || c == '\u{202e}';
            assert!(!text.contains(bad), "{offset}: {text:?}");
        }
    }
    let page = String::from_utf8(xray(&part, &["--offset", "2000", "--html", "-"]).stdout);
    let (page, plain) = (page.expect("UTF-8"), plain.expect("UTF-8"));
    let escaped = "&lt;/script&gt;&lt;/pre&gt;&lt;img src=x onerror=\\&quot;alert(&#39;1&#39;)";
    assert!(page.contains(escaped) && page.contains("@SCRIPT@&lt;!--"), "{page}");
    for tag in ["<script", "</script", "<img", "<pre", "</pre", "<!--"] {
        assert_eq!(page.matches(tag).count(), plain.matches(tag).count(), "{tag}");
    }
}

/// 7.5: a page or text is not of the value's size; this is the largest by Kafka's default limit
#[test]
fn a_huge_value_is_shown_by_its_beginning() {
    let scratch = scratch();
    let part = with_values(scratch.path(), &[&vec![b'<'; 1_000_000]]);
    for more in [&[][..], &["--json"], &["--html", "-"]] {
        let done = xray(&part, &[&["--offset", "2000"], more].concat());
        assert_eq!(code(&done), 0, "{}", told(&done));
        assert!(done.stdout.len() < 300 << 10, "{more:?}: {}", done.stdout.len());
        let text = String::from_utf8(done.stdout).expect("UTF-8");
        assert!(text.contains("1000000"), "{more:?}: {text}");
    }
}

const ROUTES: [&str; 5] = ["read+write", "sendfile", "mmap", "FUSE passthrough", "FUSE copy"];

/// 7.5: "what the read costs by each route (sendfile, passthrough, copy)"
#[test]
fn every_route_is_really_gone() {
    needs_fuse!();
    let (code, told) = json(&example(), &["--offset", "680", "--measure"]);
    assert_eq!(code, 0);
    let routes = told["routes"].as_array().expect("a list");
    let names: Vec<_> = routes.iter().map(|it| it["route"].as_str().expect("a name")).collect();
    assert_eq!(names, ROUTES);
    let number = |route: usize, what: &str| {
        routes[route]["cost"][what].as_f64().unwrap_or_else(|| panic!("{what}: {told}"))
    };
    for (route, name) in ROUTES.iter().enumerate() {
        if *name == "FUSE passthrough" && routes[route]["cost"].is_null() {
            let reason = routes[route]["unavailable"].as_str().expect("a reason");
            assert!(reason.contains("kernel"), "{reason}");
            continue;
        }
        assert!(number(route, "times") >= 5.0, "{name}: {told}");
        assert!(number(route, "least_ns") > 0.0, "{name}: {told}");
        assert!(number(route, "median_ns") >= number(route, "least_ns"), "{name}: {told}");
        assert!((number(route, "bytes") - 170.0).abs() < 0.5, "{name}: {told}");
        // The daemon saw the reads of one route, and of no other.
        let expected = if *name == "FUSE copy" { 1.0 } else { 0.0 };
        assert!((number(route, "fuse_requests") - expected).abs() < 0.5, "{name}: {told}");
    }
    assert!(number(2, "page_faults") >= 1.0, "a new map is faulted in: {told}");
    let done = xray(&example(), &["--offset", "680", "--measure"]);
    let text = String::from_utf8(done.stdout).expect("UTF-8");
    let (_, part) = text.split_once("\n5 routes\n").expect("a part of its own");
    for name in ROUTES {
        assert!(part.lines().any(|line| line.trim().starts_with(name)), "{name}: {part}");
    }
    assert!(part.lines().take(7).all(|line| line.len() <= 80), "{part}");
}

/// With its temporary files in a directory of the test's choice.
fn measured(partition: &Path, temporary: &Path) -> std::process::Output {
    std::process::Command::new(support::OFFSETFS)
        .args(["xray", "--offset", "680", "--measure"])
        .arg(partition)
        .env("TMPDIR", temporary)
        .output()
        .expect("offsetfs starts")
}

/// Nothing of it stays behind, and nothing of the log moves; who did not ask gets none of it.
#[test]
fn measuring_leaves_no_trace() {
    needs_fuse!();
    let home = scratch();
    let temporary = home.path().join("temporary");
    fs::create_dir(&temporary).expect("a new directory");
    let partition = home.path().join("seed-0");
    copy(example(), &partition);
    let before = content(&partition);
    let log = partition.join("00000000000000000000.log");
    let accessed = || fs::metadata(&log).and_then(|it| it.accessed()).expect("an access time");
    let accessed_before = accessed();
    let done = measured(&partition, &temporary);
    assert_eq!(code(&done), 0, "{}", told(&done));
    assert_eq!((content(&partition), accessed()), (before, accessed_before));
    assert_eq!(fs::read_dir(&temporary).expect("a directory").count(), 0);
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("the mounts");
    assert!(!mounts.contains(temporary.to_str().expect("a path")), "{mounts}");
    let (_, told) = json(&partition, &["--offset", "680"]);
    assert_eq!(told["routes"], Value::Null);
}

/// A damaged place and a hole have no batch to read: the picture is as without `--measure`.
#[test]
fn nothing_is_measured_where_there_is_no_record() {
    let (status, told) = json(&example(), &["--time", "2100-01-01T00:00:00Z", "--measure"]);
    assert_eq!((status, &told["routes"]), (0, &Value::Null));
    assert_eq!(told["answer"]["found"], "nothing");
}

/// The error names what is wrong, which is not the log.
#[test]
fn measuring_takes_a_place_for_a_copy() {
    let done = measured(&example(), Path::new("/nonexistent"));
    assert_eq!(code(&done), 1, "{}", told(&done));
    let stderr = String::from_utf8_lossy(&done.stderr);
    assert!(stderr.contains("cannot make a file in /nonexistent"), "{stderr}");
}
