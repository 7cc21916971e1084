//! Bytes written by Apache Kafka are read: every record of every fixture, every lookup (5.1, 5.3).
//!
//! What is expected comes from Kafka's own classes and from a live broker on a copy; see
//! `fixtures/README.md`. One mount a set; a failing test lists every difference that it found.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::Value;
use support::expected::{Expected, Row, partition, partitions};
use support::mount::Shown;
use support::{ENOENT, Got, bytes, copy, fixture, lines, mount, scratch};

/// Differences between what is shown and what Kafka read.
#[derive(Default)]
struct Differences(Vec<String>);

impl Differences {
    fn compare<T: PartialEq + std::fmt::Debug>(&mut self, what: &str, shown: &T, kafka: &T) {
        if shown != kafka {
            self.0.push(format!("{what}: shown {shown:?}, Kafka {kafka:?}"));
        }
    }

    fn none(&self) {
        let total = self.0.len();
        let shown = self.0.iter().take(60).cloned().collect::<Vec<_>>().join("\n");
        assert!(self.0.is_empty(), "{total} differences:\n{shown}");
    }
}

/// 5.1: "for magic 0, 1, 2, all codecs, transactions, compaction"
#[test]
fn clean_partitions_are_shown_as_kafka_reads_them() {
    needs_fuse!();
    whole_set("clean");
}

/// 6.1: "*The bytes stop* is normal"
#[test]
fn partitions_of_a_killed_broker_are_shown_as_kafka_recovers_them() {
    needs_fuse!();
    whole_set("unclean");
}

/// 5.1: "for magic 0, 1, 2, all codecs, transactions, compaction"
#[test]
fn old_formats_are_shown_as_kafka_reads_them() {
    needs_fuse!();
    whole_set("legacy");
}

/// 5.1: "for magic 0, 1, 2, all codecs, transactions, compaction"
#[test]
fn the_worked_example_is_shown_as_kafka_reads_it() {
    needs_fuse!();
    whole_set("exact");
}

/// 5.4: "everything from the first transaction that is still open"
#[test]
fn open_transactions_are_shown_as_kafka_reads_them() {
    needs_fuse!();
    whole_set("open-txn");
}

fn whole_set(set: &str) {
    let mount = mount(fixture(set).join("data")).start();
    let mut found = Differences::default();
    for kafka in partitions(set) {
        let shown = mount.partition(&kafka.name);
        compare_offsets(&shown, &kafka, &mut found);
        compare_records(&shown, &kafka, &mut found);
        compare_streams(&shown, &kafka, &mut found);
        compare_raw(&shown, &kafka, &mut found);
        compare_lookups(&shown, &kafka, &mut found);
    }
    found.none();
}

/// The numbers and the epochs. A broker that recovers starts a new epoch, which the files do not
/// have yet, and without its checkpoint the high watermark is another's guess.
fn compare_offsets(shown: &Shown, kafka: &Expected, found: &mut Differences) {
    let recovered = kafka.set == "unclean" || kafka.set == "torn";
    for (file, fact) in [
        ("log-start-offset", "log_start_offset"),
        ("log-end-offset", "log_end_offset"),
        ("high-watermark", "high_watermark"),
    ] {
        if !recovered || fact != "high_watermark" {
            let number = bytes(format!("{}\n", kafka.number(fact)));
            found.compare(&format!("{} {file}", kafka.name), &shown.read(file), &number);
        }
    }
    if !recovered {
        let pair = |pair: &Value| format!("{} {}", pair[0], pair[1]);
        let epochs = kafka.facts["leader_epochs"].as_array().expect("epochs").iter().map(pair);
        let what = format!("{} leader-epochs", kafka.name);
        found.compare(&what, &shown.read("leader-epochs"), &lines(epochs));
    }
}

/// `by-offset/N`, `N.key`, `N.json` for every offset from 0 to beyond the end.
fn compare_records(shown: &Shown, kafka: &Expected, found: &mut Differences) {
    let rows: BTreeMap<i64, Row> = kafka.rows().into_iter().map(|row| (row.offset, row)).collect();
    for offset in 0..kafka.number("log_end_offset") + 3 {
        match rows.get(&offset) {
            Some(row) => compare_record(shown, kafka, row, found),
            None => {
                for suffix in ["", ".key", ".json"] {
                    let name = format!("{offset}{suffix}");
                    let what = format!("{} {name}", kafka.name);
                    found.compare(&what, &shown.by_offset(&name), &ENOENT.into());
                }
            }
        }
    }
}

fn compare_record(shown: &Shown, kafka: &Expected, row: &Row, found: &mut Differences) {
    let what = |suffix: &str| format!("{} {}{suffix}", kafka.name, row.offset);
    found.compare(&what(""), &shown.by_offset(row.offset), &bytes(row.value()));
    let key = row.key.as_deref().map_or(ENOENT.into(), bytes);
    found.compare(&what(".key"), &shown.by_offset(format!("{}.key", row.offset)), &key);
    let mut envelope = kafka.envelope(row);
    if row.transactional {
        envelope["txn"] = kafka.txn(row).into();
    }
    let mut json = envelope_of(&shown.by_offset(format!("{}.json", row.offset)));
    // A recovered copy has another high watermark than the files of the killed broker.
    let marked = json.as_object_mut().and_then(|json| json.remove("above_high_watermark"));
    let above = row.offset >= kafka.number("high_watermark");
    if kafka.set != "unclean" && kafka.set != "torn" {
        found.compare(&what(".json above"), &marked, &above.then_some(Value::Bool(true)));
    }
    found.compare(&what(".json"), &json, &envelope);
}

fn envelope_of(got: &Got) -> Value {
    match got {
        Got::Bytes(bytes) => serde_json::from_slice(bytes).unwrap_or(Value::Null),
        Got::Error(name) => Value::String(name.clone()),
    }
}

/// The whole log in the text formats.
fn compare_streams(shown: &Shown, kafka: &Expected, found: &mut Differences) {
    let rows = kafka.rows();
    let each = |end: &[u8]| -> Got {
        bytes(rows.iter().flat_map(|row| [row.value(), end].concat()).collect::<Vec<u8>>())
    };
    let what = |suffix: &str| format!("{} 0..{suffix}", kafka.name);
    found.compare(&what(""), &shown.by_offset("0.."), &each(b"\n"));
    found.compare(&what(".nul"), &shown.by_offset("0...nul"), &each(b"\0"));
    found.compare(&what(".tsv"), &shown.by_offset("0...tsv"), &lines(rows.iter().map(tsv)));
    let envelopes: Vec<Value> = rows.iter().map(|row| kafka.envelope(row)).collect();
    let json = match shown.by_offset("0...jsonl") {
        Got::Bytes(bytes) => bytes.split_inclusive(|b| *b == b'\n').map(json_line).collect(),
        Got::Error(name) => vec![Value::String(name)],
    };
    found.compare(&what(".jsonl lines"), &json.len(), &envelopes.len());
    for (line, envelope) in json.iter().zip(&envelopes) {
        found.compare(&what(".jsonl"), line, envelope);
    }
}

fn json_line(line: &[u8]) -> Value {
    serde_json::from_slice(line).unwrap_or(Value::Null)
}

/// Key, tab, value (section 3), without the newline.
fn tsv(row: &Row) -> Vec<u8> {
    let field = |bytes: Option<&[u8]>| -> Vec<u8> {
        let Some(bytes) = bytes else { return b"\\N".to_vec() };
        let escape = |byte: &u8| match byte {
            b'\t' => b"\\t".to_vec(),
            b'\n' => b"\\n".to_vec(),
            b'\\' => b"\\\\".to_vec(),
            byte => vec![*byte],
        };
        bytes.iter().flat_map(escape).collect()
    };
    [field(row.key.as_deref()), b"\t".to_vec(), field(row.value.as_deref())].concat()
}

/// The raw range is the bytes of the files: every batch that holds a record which is shown.
fn compare_raw(shown: &Shown, kafka: &Expected, found: &mut Differences) {
    let Got::Bytes(raw) = shown.by_offset("0...raw") else {
        found.compare(&format!("{} 0...raw", kafka.name), &"an error", &"bytes");
        return;
    };
    let directory = fixture(&kafka.set).join("data").join(&kafka.name);
    let places: BTreeSet<(String, usize, usize)> = kafka
        .rows()
        .into_iter()
        .map(|row| (row.segment, row.batch_position, row.batch_size))
        .collect();
    let mut rest = raw.as_slice();
    for (segment, position, size) in places {
        let log = fs::read(directory.join(&segment)).expect("a segment");
        let batch = &log[position..position + size];
        match rest.windows(size).position(|window| window == batch) {
            Some(at) => rest = &rest[at + size..],
            None => found.0.push(format!("{} {segment} {position} not in .raw", kafka.name)),
        }
    }
}

/// `by-time/T` is the inode of the record that a search through all records finds.
fn compare_lookups(shown: &Shown, kafka: &Expected, found: &mut Differences) {
    let inode = |name: String| support::got::of(inode_of(&shown.path(&name)));
    for lookup in &kafka.lookups {
        let record =
            lookup.offset.map_or(ENOENT.into(), |offset| inode(format!("by-offset/{offset}")));
        let what = format!("{} by-time/{} = {:?}", kafka.name, lookup.ts, lookup.offset);
        found.compare(&what, &inode(format!("by-time/{}", lookup.ts)), &record);
    }
}

fn inode_of(path: &Path) -> std::io::Result<Vec<u8>> {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(path).map(|data| data.ino().to_string().into_bytes())
}

/// 6.1: "everything before and after is readable"
///
/// A broker that recovers cuts from the first bad batch on; a read-only mount shows what is behind
/// it too. So each record that Kafka kept is there, and more may be, but only beyond.
#[test]
fn torn_partitions_show_what_kafka_keeps() {
    needs_fuse!();
    let mount = mount(fixture("torn").join("data")).start();
    let mut found = Differences::default();
    for kafka in partitions("torn") {
        let shown = mount.partition(&kafka.name);
        let end = kafka.number("log_end_offset");
        let rows: BTreeMap<i64, Row> =
            kafka.rows().into_iter().map(|row| (row.offset, row)).collect();
        for offset in 0..end {
            if let Some(row) = rows.get(&offset) {
                compare_record(&shown, &kafka, row, &mut found);
            } else {
                let what = format!("{} {offset}", kafka.name);
                found.compare(&what, &shown.by_offset(offset), &ENOENT.into());
            }
        }
        let start = kafka.number("log_start_offset");
        found.compare("log-start-offset", &shown.number("log-start-offset"), &start);
        let shown_end = shown.number("log-end-offset");
        if kafka.name == "mixed-0" {
            found.compare("mixed-0 goes on behind the bad batch", &(shown_end >= end), &true);
        } else {
            found.compare(&format!("{} log-end-offset", kafka.name), &shown_end, &end);
        }
        found.compare(
            &format!("{} lines up to the end", kafka.name),
            &shown.by_offset(format!("..{end}")),
            &lines(rows.values().map(Row::value)),
        );
    }
    found.none();
}

/// 6.3: "`torn_tail` (`segment`, a file name; `position`; `bytes`; or null)"
#[test]
fn torn_tails_are_reported_where_the_power_cut_left_them() {
    needs_fuse!();
    let mount = mount(fixture("torn").join("data")).start();
    for name in ["plain-0", "txn-0", "epochs-0"] {
        let tail = &mount.partition(name).report()["torn_tail"];
        let segment = tail["segment"].as_str().expect("a torn tail has a segment");
        let file = fixture("torn").join("data").join(name).join(segment);
        let size = file.metadata().expect("the segment is there").len();
        let place = tail["position"].as_u64().zip(tail["bytes"].as_u64()).expect("numbers");
        assert_eq!(place.0 + place.1, size, "{name}: the tail goes to the end of the file");
    }
}

/// 5.4: "which leaves out aborted records and everything from the first transaction that is still"
#[test]
fn read_committed_shows_what_a_consumer_of_the_broker_got() {
    needs_fuse!();
    let mut found = Differences::default();
    for set in ["clean", "open-txn"] {
        let source = fixture(set).join("data");
        let mount = mount(source).args(&["-o", "isolation=read_committed"]).start();
        for kafka in partitions(set) {
            let runs = &kafka.facts["broker"]["consumed_read_committed"];
            let consumed: Vec<i64> =
                runs.as_array().expect("a broker was asked").iter().flat_map(run).collect();
            let shown = mount.partition(&kafka.name);
            let offsets = 0..kafka.number("log_end_offset") + 1;
            let there: Vec<i64> =
                offsets.filter(|n| shown.path(&format!("by-offset/{n}")).exists()).collect();
            found.compare(&format!("{set} {} names", kafka.name), &there, &consumed);
            let range = shown.envelopes("0...jsonl");
            let range: Vec<i64> = range.iter().filter_map(|e| e["offset"].as_i64()).collect();
            found.compare(&format!("{set} {} range", kafka.name), &range, &consumed);
        }
    }
    found.none();
}

fn run(run: &Value) -> std::ops::RangeInclusive<i64> {
    run[0].as_i64().expect("first")..=run[1].as_i64().expect("last")
}

/// 2.2: "Any valid name resolves, listed or not."
#[test]
fn record_680_of_the_worked_example_is_found() {
    needs_fuse!();
    let kafka = partition("exact", "seed-0");
    let row = kafka.rows().into_iter().find(|row| row.offset == 680).expect("record 680");
    let mount = mount(fixture("exact").join("data")).start();
    let shown = mount.partition("seed-0");
    assert_eq!(row.batch_position, 114_540, "the example is the one of the contract");
    assert_eq!(shown.by_offset(680), bytes(row.value()));
    assert_eq!(shown.number("high-watermark"), 1999);
    assert_eq!(shown.envelope(1999)["above_high_watermark"], true);
    assert_eq!(shown.envelope(1998).get("above_high_watermark"), None);
}

type Harm = fn(&Path, &Path);

/// 5.3: "with damaged, missing, padded, stale or foreign indexes the answers are those without an"
#[test]
fn an_index_never_changes_an_answer() {
    needs_fuse!();
    let harms: [(&str, Harm); 10] = [
        ("padded", padded),
        ("missing", missing),
        ("short", short),
        ("shifted", shifted),
        ("foreign", foreign),
        ("stale", stale),
        ("torn", torn),
        ("garbage", garbage),
        ("all zeros", zeros),
        ("beyond the log", beyond),
    ];
    let mut found = Differences::default();
    for (how, harm) in harms {
        let home = scratch();
        let source = home.path().join("source");
        fs::create_dir(&source).expect("a directory");
        for name in ["plain-0", "txn-0", "times-0"] {
            let directory = copy(fixture("clean").join("data").join(name), source.join(name));
            for log in logs(&directory) {
                harm(&log, &fixture("clean").join("data/lz4-0"));
            }
        }
        let mount = mount(&source).start();
        for name in ["plain-0", "txn-0", "times-0"] {
            let kafka = partition("clean", name);
            let mut here = Differences::default();
            compare_every_value(&mount.partition(name), &kafka, &mut here);
            compare_lookups(&mount.partition(name), &kafka, &mut here);
            found.0.extend(here.0.iter().take(10).map(|text| format!("{how}: {text}")));
        }
    }
    found.none();
}

fn compare_every_value(shown: &Shown, kafka: &Expected, found: &mut Differences) {
    let rows: BTreeMap<i64, Row> = kafka.rows().into_iter().map(|row| (row.offset, row)).collect();
    for offset in 0..kafka.number("log_end_offset") + 3 {
        let value = rows.get(&offset).map_or(ENOENT.into(), |row| bytes(row.value()));
        found.compare(&format!("{} {offset}", kafka.name), &shown.by_offset(offset), &value);
    }
    let all = lines(rows.values().map(Row::value));
    found.compare(&format!("{} 0..", kafka.name), &shown.by_offset("0.."), &all);
}

fn logs(directory: &Path) -> Vec<std::path::PathBuf> {
    let mut logs: Vec<_> = fs::read_dir(directory)
        .expect("a partition")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
        .collect();
    logs.sort();
    assert!(!logs.is_empty(), "no segments in {}", directory.display());
    logs
}

/// Changes the index and the time index of a segment; entries have 8 and 12 bytes.
fn change(log: &Path, how: impl Fn(Vec<u8>, usize) -> Vec<u8>) {
    for (extension, entry) in [("index", 8), ("timeindex", 12)] {
        let file = log.with_extension(extension);
        let before = fs::read(&file).unwrap_or_default();
        fs::write(&file, how(before, entry)).expect("an index is written");
    }
}

fn padded(log: &Path, _: &Path) {
    change(log, |bytes, entry| {
        let mut padded = bytes;
        padded.resize(1_048_576 / entry * entry, 0);
        padded
    });
}

fn missing(log: &Path, _: &Path) {
    for extension in ["index", "timeindex", "txnindex"] {
        let file = log.with_extension(extension);
        if file.exists() {
            fs::remove_file(file).expect("an index is removed");
        }
    }
}

fn short(log: &Path, _: &Path) {
    change(log, |bytes, entry| bytes[..bytes.len() / entry / 2 * entry].to_vec());
}

/// Each entry names the place of the one before.
fn shifted(log: &Path, _: &Path) {
    change(log, |bytes, entry| {
        let key = if entry == 8 { 4 } else { 8 };
        let mut shifted = bytes.clone();
        for (at, to) in bytes.chunks_exact(entry).zip(shifted.chunks_exact_mut(entry).skip(1)) {
            to[key..].copy_from_slice(&at[key..]);
        }
        shifted
    });
}

/// The index of another partition.
fn foreign(log: &Path, other: &Path) {
    let first = &logs(other)[0];
    for extension in ["index", "timeindex"] {
        fs::copy(first.with_extension(extension), log.with_extension(extension)).expect("copied");
    }
}

/// As it was when the segment was younger: a few entries, then the padding of an active index.
fn stale(log: &Path, _: &Path) {
    change(log, |bytes, entry| {
        let kept = bytes.len() / entry / 3 * entry;
        let mut stale = bytes[..kept].to_vec();
        stale.resize(10_240 / entry * entry, 0);
        stale
    });
}

fn torn(log: &Path, _: &Path) {
    change(log, |bytes, _| bytes[..bytes.len().saturating_sub(3)].to_vec());
}

fn garbage(log: &Path, _: &Path) {
    change(log, |bytes, entry| {
        let mix = |n: usize| u8::try_from((n * 2_654_435_761_usize) >> 13 & 0xff).expect("a byte");
        (0..bytes.len().max(entry)).map(mix).collect()
    });
}

fn zeros(log: &Path, _: &Path) {
    change(log, |bytes, _| vec![0; bytes.len()]);
}

/// Entries that lie behind the end of the log.
fn beyond(log: &Path, _: &Path) {
    change(log, |bytes, entry| {
        let mut beyond = bytes;
        beyond.extend(vec![0x7f; entry]);
        beyond
    });
}
