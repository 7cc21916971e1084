//! `offsetfs dump` beside Kafka's `DumpLogSegments` (7.4): the dumps of the fixtures, which were
//! printed when Kafka wrote them, and that tool run here, one JVM for all files of a test.

mod support;

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::Value;
use support::broker::Home;
use support::dumped::{Pair, Plan, Printed, dump};
use support::kafka::files;
use support::kafkalog::{
    Codec, Rec, batch, flipped, legacy, marker, offset_index, patched, plain, rec, txn_index,
};
use support::{OFFSETFS, copy, fixture, scratch};

const DEEP: [&str; 2] = ["--deep-iteration", "--print-data-log"];
const LOG: &str = "00000000000000000000.log";

/// The decoders of Kafka's own topics.
const DECODERS: [&str; 4] = [
    "--offsets-decoder",
    "--transaction-log-decoder",
    "--cluster-metadata-decoder",
    "--share-group-state-decoder",
];

// ---- the dumps of the fixtures --------------------------------------------------------------

/// 7.4: "`dump` prints what Kafka's dump tool prints, byte for byte"
#[test]
fn dumps_are_those_that_kafka_printed_of_its_own_files() {
    let mut dumped = 0;
    for set in ["clean", "legacy", "exact", "open-txn", "unclean", "torn"] {
        let data = fixture(set).join("data");
        for partition in listed(&fixture(set).join("expected/dump")) {
            for (file, meant, meant_err) in expected_dumps(set, &partition) {
                let options = if is(&file, "log") { &DEEP[..] } else { &[] };
                let path = format!("{partition}/{file}");
                let args = [&["--files", &path], options].concat();
                let printed = dump(&data, &args);
                let err = printed.err.replace(&format!("{}/", data.display()), "");
                assert!(printed.out == meant, "{set} {args:?}");
                assert_eq!((printed.code, err), (Some(0), meant_err), "{set} {args:?}");
                dumped += 1;
            }
        }
    }
    assert!(dumped > 600, "{dumped}");
}

/// File name, stdout and stderr of each dump. Those of `unclean` and `torn` were made behind a
/// broker's recovery, which changes the active segment.
fn expected_dumps(set: &str, partition: &str) -> Vec<(String, Vec<u8>, String)> {
    let directory = fixture(set).join("expected/dump").join(partition);
    let names = listed(&directory);
    let dumped = || names.iter().filter_map(|name| name.strip_suffix(".txt"));
    let files = || dumped().filter(|file| !file.ends_with(".stderr"));
    let last = files().filter(|file| is(file, "log")).max().unwrap_or_default();
    let recovered = ["unclean", "torn"].contains(&set);
    let kept = |file: &&str| !(recovered && file[..20] >= last[..20]);
    let text = |name: String| fs::read(directory.join(name)).unwrap_or_default();
    files()
        .filter(kept)
        .map(|file| {
            let err = String::from_utf8(text(format!("{file}.stderr.txt"))).expect("text");
            (file.to_owned(), text(format!("{file}.txt")), err)
        })
        .collect()
}

fn is(file: &str, extension: &str) -> bool {
    Path::new(file).extension().is_some_and(|found| found == extension)
}

fn listed(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("a directory");
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("text"))
        .collect();
    names.sort();
    names
}

// ---- options, beside the tool that runs -----------------------------------------------------

/// 7.4: "for the options that it takes"
#[test]
fn every_option_prints_what_it_prints_in_kafkas_tool() {
    let kafka = needs_kafka!();
    let home = scratch();
    let (clean, old) = (fixture("clean").join("data"), fixture("legacy").join("data"));
    for (from, name) in [(&clean, "txn-0"), (&clean, "mixed-0"), (&old, "grown-0")] {
        copy(from.join(name), home.path().join(name));
    }
    let mut plan = Plan::default();
    for partition in ["txn-0", "mixed-0", "grown-0"] {
        let all = all_files(home.path(), partition);
        plan.add(&all, &[]);
        plan.add(&all, &["--deep-iteration"]);
        plan.add(&all, &["--print-data-log", "--verify-index-only"]);
        plan.add(&all, &["--print-data-log", "--skip-record-metadata"]);
        plan.add(&all, &["--deep-iteration", "--skip-record-metadata"]);
        plan.add(&all, &["--value-decoder-class", "--index-sanity-check"]);
        plan.add(&format!("{partition}//{LOG}"), &["--key-decoder-class"]);
        for most in ["0", "1", "400", "1000", "100000", "2147483647"] {
            plan.add(&format!("./{partition}/{LOG}"), &["--deep-iteration", "--max-bytes", most]);
        }
    }
    plan.add(&format!("txn-0/,{LOG}x,nothing,,txn-0/partition.metadata"), &[]);
    for pair in plan.run(&kafka, home.path()) {
        pair.assert_same();
        assert_eq!(pair.ours.code, Some(0), "{pair:?}");
        assert_eq!(sorted_reports(&pair.ours), sorted_reports(&pair.kafkas), "{:?}", pair.args);
    }
}

/// Files of one partition as the tool takes them.
fn all_files(home: &Path, partition: &str) -> String {
    let kinds = ["log", "index", "timeindex", "snapshot", "txnindex"];
    let found = files(&[home.join(partition)], &kinds);
    let relative = found.iter().map(|file| file.strip_prefix(home).expect("below").display());
    relative.map(|file| file.to_string()).collect::<Vec<_>>().join(",")
}

/// Reports by file: Kafka's order of files is that of a hash table.
fn sorted_reports(printed: &Printed) -> Vec<String> {
    let mut reports: Vec<String> = Vec::new();
    for line in printed.err.lines() {
        match reports.last_mut() {
            Some(report) if line.starts_with("  ") || line.starts_with("Indexed") => {
                report.push_str(line);
            }
            _ => reports.push(line.to_owned()),
        }
    }
    reports.sort();
    reports
}

// ---- indexes that do not fit ----------------------------------------------------------------

#[test]
fn indexes_that_contradict_the_log_are_reported_in_kafkas_words() {
    let kafka = needs_kafka!();
    let home = scratch();
    copy(fixture("clean").join("data/plain-0"), home.path().join("plain-0"));
    copy(fixture("legacy").join("data/grown-0"), home.path().join("grown-0"));
    let mut plan = Plan::default();
    for partition in ["plain-0", "grown-0"] {
        for file in files(&[home.path().join(partition)], &["index", "timeindex"]) {
            spoil_index(&file);
            let name = format!("{partition}/{}", name(&file));
            plan.add(&name, &[]);
            plan.add(&name, &["--verify-index-only"]);
            plan.add(&name, &["--max-message-size", "300"]);
            plan.add(&name, &["--index-sanity-check"]);
        }
    }
    let mut reported = 0;
    for pair in plan.run(&kafka, home.path()) {
        pair.assert_begins_same();
        if !pair.kafka_threw() {
            pair.assert_same();
            assert_eq!(pair.ours.err, pair.kafkas.err, "{:?}", pair.args);
            reported += usize::from(!pair.kafkas.err.is_empty());
        }
        let found = pair.kafka_threw() || !pair.kafkas.err.is_empty();
        assert_eq!(pair.ours.code, Some(if found { 3 } else { 0 }), "{pair:?}");
    }
    assert!(reported > 4, "{reported}");
}

/// Changes the second and third entries, and fills the file up with zeros as a broker does it.
fn spoil_index(file: &Path) {
    let mut bytes = fs::read(file).expect("an index");
    let (entry, field) = if is(&name(file), "index") { (8, 0) } else { (12, 4) };
    for place in [entry + field + 3, 2 * entry + 3, 2 * entry + field + 3] {
        if let Some(byte) = bytes.get_mut(place) {
            *byte = byte.wrapping_add(1);
        }
    }
    bytes.resize(bytes.len() + 3 * entry, 0);
    fs::write(file, bytes).expect("written");
}

fn name(file: &Path) -> String {
    file.file_name().expect("a name").to_string_lossy().into_owned()
}

// ---- damage ---------------------------------------------------------------------------------

/// 7.4: "after damage, where Kafka's tool stops, it goes on and says so on stderr"
#[test]
fn a_dump_goes_on_where_kafkas_tool_stops() {
    let kafka = needs_kafka!();
    let home = scratch();
    let mut plan = Plan::default();
    for (name, log) in damaged_logs() {
        let directory = home.path().join(&name);
        fs::create_dir(&directory).expect("a directory");
        fs::write(directory.join(LOG), log).expect("a log");
        plan.add(&format!("{name}/{LOG}"), &DEEP);
        plan.add(&format!("{name}/{LOG}"), &[]);
    }
    let mut stopped = 0;
    for pair in plan.run(&kafka, home.path()) {
        pair.assert_begins_same();
        let sound = pair.kafkas.out.windows(14).all(|words| words != b"isvalid: false");
        if pair.kafka_threw() || !sound {
            assert_eq!(pair.ours.code, Some(3), "{:?}: {}", pair.args, pair.ours.err);
            assert!(pair.ours.err.contains(LOG), "{:?}: {}", pair.args, pair.ours.err);
        }
        if pair.kafka_threw() {
            let end = format!("lastOffset: {LAST} ");
            let goes_on = String::from_utf8_lossy(&pair.ours.out).contains(&end);
            assert!(goes_on, "{:?}: {}", pair.args, pair.ours.err);
            stopped += 1;
        }
    }
    assert!(stopped > 10, "{stopped}");
}

/// The last offset of each damaged log.
const LAST: i64 = 59;

/// Six batches, of which the third is wrong in some way.
fn damaged_logs() -> Vec<(String, Vec<u8>)> {
    let third = |codec: Codec| plain(20..30).codec(codec).build();
    let (loose, gzip) = (third(Codec::None), third(Codec::Gzip));
    let at = |batch: &[u8], position: usize, bytes: &[u8]| {
        let mut batch = batch.to_vec();
        batch[position..position + bytes.len()].copy_from_slice(bytes);
        batch
    };
    let mut keyless = third(Codec::None);
    keyless.truncate(61);
    let spoiled = [
        ("bit", flipped(loose.clone(), 70)),
        ("bit-gzip", flipped(gzip.clone(), 80)),
        ("size-0", at(&loose, 8, &[0; 4])),
        ("size-13", at(&loose, 8, &13_i32.to_be_bytes())),
        ("size-14", at(&loose, 8, &14_i32.to_be_bytes())),
        ("size-negative", at(&loose, 8, &(-1_i32).to_be_bytes())),
        ("size-huge", at(&loose, 8, &0x7fff_fff0_i32.to_be_bytes())),
        ("size-next", at(&loose, 8, &512_i32.to_be_bytes())),
        ("magic-3", at(&loose, 16, &[3])),
        ("magic-1", at(&loose, 16, &[1])),
        ("magic-0", at(&loose, 16, &[0])),
        ("magic-negative", at(&loose, 16, &[0x82])),
        ("epoch", at(&loose, 12, &77_i32.to_be_bytes())),
        ("base-offset", at(&loose, 0, &5_i64.to_be_bytes())),
        ("base-offset-negative", at(&loose, 0, &(-5_i64).to_be_bytes())),
        ("count-more", patched(loose.clone(), 57, &11_i32.to_be_bytes())),
        ("count-less", patched(loose.clone(), 57, &9_i32.to_be_bytes())),
        ("count-0", patched(loose.clone(), 57, &0_i32.to_be_bytes())),
        ("count-negative", patched(loose.clone(), 57, &(-1_i32).to_be_bytes())),
        ("count-more-gzip", patched(gzip.clone(), 57, &11_i32.to_be_bytes())),
        ("codec-5", patched(loose.clone(), 21, &5_i16.to_be_bytes())),
        ("codec-4", patched(loose.clone(), 21, &4_i16.to_be_bytes())),
        ("codec-1", patched(loose.clone(), 21, &1_i16.to_be_bytes())),
        ("record-length", patched(loose.clone(), 61, &[0x7e])),
        ("delta-less", patched(loose.clone(), 23, &3_i32.to_be_bytes())),
        ("sequence", patched(loose.clone(), 53, &0x7fff_fffa_i32.to_be_bytes())),
        ("no-records", keyless),
        ("zeros", vec![0; 300]),
        ("noise", (0..300_u32).map(|n| u8::try_from(n * 7919 % 251).expect("a byte")).collect()),
        ("marker-short", {
            let mut marker = marker(20, true, 7);
            marker.records = vec![rec([0; 1]).key([0; 3])];
            marker.build()
        }),
        ("marker-type", {
            let mut marker = marker(20, true, 7);
            marker.records = vec![rec([0; 6]).key([0, 0, 0, 9]), rec([0; 6]).key([0, 9, 0, 0])];
            marker.build()
        }),
    ];
    let whole = |wrong: Vec<u8>| {
        let before: Vec<u8> = [0..10, 10..20].map(|range| plain(range).build()).concat();
        let after: Vec<u8> =
            [30..40, 40..50, 50..LAST + 1].map(|range| plain(range).build()).concat();
        [before, wrong, after].concat()
    };
    let mut logs: Vec<(String, Vec<u8>)> =
        spoiled.into_iter().map(|(name, wrong)| (name.to_owned(), whole(wrong))).collect();
    for magic in [0, 1] {
        for (kind, codec) in [("loose", Codec::None), ("gzip", Codec::Gzip)] {
            let wrong = legacy(magic, 20..30, &codec);
            logs.push((format!("legacy-{magic}-{kind}"), whole(wrong.clone())));
            logs.push((format!("legacy-{magic}-{kind}-bit"), whole(flipped(wrong, 40))));
        }
    }
    logs
}

/// Whatever bit is wrong, what Kafka prints is a beginning of ours.
#[test]
fn a_dump_begins_as_kafkas_whatever_bit_is_wrong() {
    let kafka = needs_kafka!();
    let home = scratch();
    let records = vec![rec("v").header("h", None), support::kafkalog::null().key("k"), rec("w")];
    let batches = [
        batch(1, records.clone()).build(),
        batch(1, records).producer(5).codec(Codec::Lz4).build(),
        support::kafkalog::message(0, 1, None, Some(b"value"), 0, 0),
        support::kafkalog::message(1, 1, Some(b"key"), None, 1000, 0),
    ];
    let mut plan = Plan::default();
    for (number, wrong) in batches.iter().enumerate() {
        for bit in 0..8 * wrong.len() {
            let mut wrong = wrong.clone();
            wrong[bit / 8] ^= 1 << (bit % 8);
            let name = format!("{number}-{bit}");
            fs::create_dir(home.path().join(&name)).expect("a directory");
            let log = [plain(0..1).build(), wrong, plain(7..9).build()].concat();
            fs::write(home.path().join(&name).join(LOG), log).expect("a log");
            plan.add(&format!("{name}/{LOG}"), &DEEP);
        }
    }
    for mut pair in plan.run(&kafka, home.path()) {
        let out = String::from_utf8_lossy(&pair.ours.out).into_owned();
        if pair.args[0].starts_with("1-") {
            // Java's codecs take what ours refuse, and no checksum says that it was written so:
            // there Kafka's tool goes on where ours stops.
            keep_first_batches(&mut pair);
        }
        pair.assert_begins_same();
        assert!(out.contains("lastOffset: 8 "), "{:?}: {}", pair.args, pair.ours.err);
    }
}

/// Leaves the two headings and the lines of two batches.
fn keep_first_batches(pair: &mut Pair) {
    for printed in [&mut pair.ours, &mut pair.kafkas] {
        let lines = printed.out.split_inclusive(|byte| *byte == b'\n');
        let batches = lines.filter(|line| !line.starts_with(b"| ")).take(4);
        printed.out = batches.collect::<Vec<_>>().concat();
    }
}

/// The reason for the rule: what is lost is said, with the bytes and the offsets.
#[test]
fn what_is_stepped_over_is_named() {
    let home = scratch();
    let log = [plain(0..10).build(), vec![0xff; 500], plain(20..30).build()].concat();
    let start = plain(0..10).build().len();
    fs::write(home.path().join(LOG), log).expect("a log");
    let printed = dump(home.path(), &["--files", LOG]);
    assert_eq!(printed.code, Some(3));
    let meant = format!("offsetfs: warn: {}, position {start}: ", real(&home.path().join(LOG)));
    assert!(printed.err.starts_with(&meant), "{}", printed.err);
    assert!(printed.err.contains("offsets 10 to 19 cannot be read"), "{}", printed.err);
    assert!(printed.out.ends_with(b"isvalid: true\n"));
}

fn real(path: &Path) -> String {
    fs::canonicalize(path).expect("a path").display().to_string()
}

// ---- the records that Kafka keeps for itself ------------------------------------------------

/// The internal topics of a broker that has served transactions and groups of each protocol.
#[test]
fn internal_topics_of_a_broker_are_decoded_as_kafka_does_it() {
    let kafka = needs_kafka!();
    let home = Home::format(&kafka);
    let broker = home.start();
    broker.create_topics(&["of-groups/1".to_owned()]);
    let mut java = kafka.java("Internal");
    java.arg(&broker.address).arg("of-groups");
    let done = support::kafka::output(java);
    assert!(done.status.success(), "{}", support::told(&done));
    broker.stop();
    let snapshot = "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint";
    copy(home.meta().join(snapshot), home.meta().join("bootstrap.checkpoint"));
    let mut plan = Plan::default();
    for directory in partitions_of(&home) {
        for file in files(std::slice::from_ref(&directory), &["log", "checkpoint"]) {
            let file = file.display().to_string();
            for decoder in DECODERS {
                plan.add(&file, &[decoder]);
            }
            plan.add(&file, &["--offsets-decoder", "--skip-record-metadata"]);
            plan.add(&file, &DEEP);
        }
    }
    let pairs = plan.run(&kafka, home.data().as_path());
    assert_complete(&pairs);
    let decoded = |words: &str| {
        let holds = |pair: &Pair| String::from_utf8_lossy(&pair.ours.out).contains(words);
        assert!(pairs.iter().any(holds), "{words}");
    };
    for words in [
        "\"protocolType\":\"consumer\"",
        "\"subscription\":{\"topics\":[\"of-groups\"]",
        "\"transactionStatus\":\"CompleteAbort\"",
        "\"type\":\"REGISTER_BROKER_RECORD\"",
        "\"startOffset\":",
        "Snapshot end offset: ",
        " SnapshotFooter {",
        " LeaderChange: {",
        "KRaft bootstrap snapshot",
        " KRaftVoters {",
        "payload: <DELETE>",
        "client \\\"\u{e9}\\\"",
    ] {
        decoded(words);
    }
}

/// Everything that Kafka printed is printed, and it goes on only where Kafka's tool threw.
fn assert_complete(pairs: &[Pair]) {
    assert!(!pairs.is_empty());
    for pair in pairs {
        if pair.kafka_threw() {
            pair.assert_begins_same();
        } else {
            pair.assert_same();
        }
    }
}

fn partitions_of(home: &Home) -> Vec<PathBuf> {
    let directories = [home.data(), home.meta()].map(|directory| {
        let entries = fs::read_dir(directory).expect("a directory");
        entries.map(|entry| entry.expect("an entry").path()).filter(|path| path.is_dir())
    });
    // The directories themselves too: a bootstrap snapshot is in none of the partitions.
    directories.into_iter().flatten().chain([home.data(), home.meta()]).collect()
}

/// The records of all schemas in all versions, with contents that are made up, whole and cut.
#[test]
fn every_kind_of_record_is_decoded_as_kafka_does_it() {
    let kafka = needs_kafka!();
    let home = scratch();
    let mut plan = Plan::default();
    for (folder, decoder) in ["group", "transaction", "metadata", "share"].iter().zip([
        DECODERS[0],
        DECODERS[1],
        DECODERS[2],
        DECODERS[3],
    ]) {
        let records = made_up_records(folder);
        assert!(records.len() > 40, "{folder}");
        let log: Vec<u8> = (0..)
            .zip(&records)
            .flat_map(|(offset, record)| batch(offset, vec![record.clone()]).build())
            .collect();
        fs::create_dir(home.path().join(folder)).expect("a directory");
        fs::write(home.path().join(folder).join(LOG), log).expect("a log");
        plan.add(&format!("{folder}/{LOG}"), &[decoder]);
    }
    for pair in plan.run(&kafka, home.path()) {
        pair.assert_same();
        let text = String::from_utf8_lossy(&pair.ours.out).into_owned();
        let decoded = text.matches("\"data\":{").count();
        assert!(decoded > 60 && text.contains("skipping"), "{decoded}: {:?}", pair.args);
    }
}

/// Records out of the schemas in one folder.
fn made_up_records(folder: &str) -> Vec<Rec> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/inspect/schemas").join(folder);
    let schemas: Vec<Value> = files(&[directory], &["json"]).iter().map(|f| schema(f)).collect();
    let mut source = Noise(7);
    let mut records = Vec::new();
    for schema in &schemas {
        for version in valid_versions(schema) {
            for round in 0..24 {
                let mut value = made_up(schema, version, &mut source);
                if round % 4 == 3 {
                    value.truncate(source.below(value.len() + 1));
                } else if round % 4 == 2 && !value.is_empty() {
                    let place = source.below(value.len());
                    value[place] = source.byte();
                }
                records.push(framed(schema, version, value, &schemas, &mut source));
            }
        }
    }
    records
}

/// A record with `body`, which is a key or a value of its kind in this version.
fn framed(
    schema: &Value,
    version: i16,
    body: Vec<u8>,
    schemas: &[Value],
    source: &mut Noise,
) -> Rec {
    let number = i16::try_from(schema["apiKey"].as_i64().expect("a number")).expect("small");
    match schema["type"].as_str() {
        Some("metadata") => {
            let frame = [1, u64::from(number.unsigned_abs()), u64::from(version.unsigned_abs())];
            rec([frame.map(unsigned).concat(), body].concat())
        }
        Some("coordinator-key") => {
            let key = [&number.to_be_bytes()[..], &body].concat();
            support::kafkalog::null().key(key)
        }
        _ => {
            let is_key = |other: &&Value| {
                other["apiKey"] == schema["apiKey"] && other["type"] == "coordinator-key"
            };
            let key = schemas.iter().find(is_key).expect("a key for each value");
            let key = [&number.to_be_bytes()[..], &made_up(key, 0, source)].concat();
            // One version more than there are, now and then.
            let version = if source.below(40) == 0 { 9 } else { version };
            rec([&version.to_be_bytes()[..], &body].concat()).key(key)
        }
    }
}

fn schema(file: &Path) -> Value {
    let text = fs::read_to_string(file).expect("a schema");
    let is_comment = |line: &&str| line.trim_start().starts_with("//");
    let plain: Vec<&str> = text.lines().filter(|line| !is_comment(line)).collect();
    serde_json::from_str(&plain.join("\n")).expect("JSON")
}

fn valid_versions(schema: &Value) -> Vec<i16> {
    let text = schema["validVersions"].as_str().expect("versions");
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    (first.parse().expect("a version")..=last.parse().expect("a version")).collect()
}

fn holds(versions: &Value, version: i16) -> bool {
    let text = versions.as_str().unwrap_or("none");
    match (text.strip_suffix('+'), text.split_once('-')) {
        (Some(first), _) => version >= first.parse().expect("a version"),
        (None, Some((first, last))) => (first.parse().expect("a version")
            ..=last.parse().expect("a version"))
            .contains(&version),
        (None, None) => text.parse() == Ok(version),
    }
}

/// Bytes of a record with this schema.
fn made_up(schema: &Value, version: i16, source: &mut Noise) -> Vec<u8> {
    let flexible = holds(&schema["flexibleVersions"], version);
    let maker = Maker { version, flexible, common: &schema["commonStructs"] };
    maker.fields(&schema["fields"], source)
}

struct Maker<'a> {
    version: i16,
    flexible: bool,
    common: &'a Value,
}

impl Maker<'_> {
    fn fields(&self, fields: &Value, source: &mut Noise) -> Vec<u8> {
        let fields = fields.as_array().expect("fields");
        let (mut plain, mut tagged) = (Vec::new(), Vec::new());
        let presence = |field: &Value| match &field["versions"] {
            Value::Null => holds(&field["taggedVersions"], self.version),
            versions => holds(versions, self.version),
        };
        for field in fields.iter().filter(|field| presence(field)) {
            if holds(&field["taggedVersions"], self.version) {
                if source.below(2) == 0 {
                    let value = self.field(field, source);
                    let tag = field["tag"].as_u64().expect("a tag");
                    tagged.push((tag, value));
                }
            } else {
                plain.extend(self.field(field, source));
            }
        }
        if self.flexible {
            if source.below(5) == 0 {
                tagged.push((77, vec![1, 2, 3]));
            }
            tagged.sort();
            plain.extend(unsigned(u64::try_from(tagged.len()).expect("few")));
            for (tag, value) in tagged {
                plain
                    .extend([tag, u64::try_from(value.len()).expect("few")].map(unsigned).concat());
                plain.extend(value);
            }
        }
        plain
    }

    fn field(&self, field: &Value, source: &mut Noise) -> Vec<u8> {
        let kind = field["type"].as_str().expect("a type");
        let nullable = holds(&field["nullableVersions"], self.version);
        let null = nullable && source.below(3) == 0;
        match kind.strip_prefix("[]") {
            Some(_) if null => self.length(None, 4),
            Some(element) => {
                let count = source.below(4);
                let mut bytes = self.length(Some(count), 4);
                (0..count).for_each(|_| bytes.extend(self.value(element, field, source)));
                bytes
            }
            None if kind == "string" && null => self.length(None, 2),
            None if kind == "bytes" && null => self.length(None, 4),
            None if is_struct(kind) && null => {
                vec![if holds(&field["taggedVersions"], self.version) { 0 } else { 0xff }]
            }
            None if is_struct(kind) && nullable => {
                [vec![1], self.value(kind, field, source)].concat()
            }
            None => self.value(kind, field, source),
        }
    }

    fn value(&self, kind: &str, field: &Value, source: &mut Noise) -> Vec<u8> {
        match kind {
            "bool" | "int8" => source.number(1),
            "int16" | "uint16" => source.number(2),
            "int32" => source.number(4),
            "int64" => source.number(8),
            "float64" => source.fraction().to_be_bytes().to_vec(),
            "uuid" => source.number(16),
            "string" => {
                let text = source.text();
                [self.length(Some(text.len()), 2), text].concat()
            }
            "bytes" => {
                let bytes = source.text();
                [self.length(Some(bytes.len()), 4), bytes].concat()
            }
            name if field.get("fields").is_some() => {
                assert!(is_struct(name));
                self.fields(&field["fields"], source)
            }
            name => {
                let mut structs = self.common.as_array().expect("structs").iter();
                let found = structs.find(|common| common["name"] == name).expect("a struct");
                self.fields(&found["fields"], source)
            }
        }
    }

    fn length(&self, length: Option<usize>, bytes: usize) -> Vec<u8> {
        let wide = length.map_or(-1, |length| i64::try_from(length).expect("short"));
        if self.flexible {
            unsigned(u64::try_from(wide + 1).expect("not below NULL"))
        } else {
            wide.to_be_bytes()[8 - bytes..].to_vec()
        }
    }
}

fn is_struct(kind: &str) -> bool {
    kind.starts_with(|letter: char| letter.is_ascii_uppercase())
}

/// Seven bits a byte, the lowest first.
fn unsigned(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(u8::try_from(number & 0x7f).expect("seven bits") | 0x80);
        number >>= 7;
    }
    bytes.push(u8::try_from(number).expect("seven bits"));
    bytes
}

/// Numbers that look random and are the same each time.
struct Noise(u64);

impl Noise {
    fn byte(&mut self) -> u8 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        self.0.to_be_bytes()[0]
    }

    fn below(&mut self, bound: usize) -> usize {
        (usize::from(self.byte()) * 251 + usize::from(self.byte())) % bound
    }

    /// Big-endian, and often small.
    fn number(&mut self, bytes: usize) -> Vec<u8> {
        let kind = self.below(4);
        let mut number = match kind {
            0 => (0..bytes).map(|_| self.byte()).collect(),
            1 => vec![0xff; bytes],
            _ => vec![0; bytes],
        };
        if kind == 2 {
            number[bytes - 1] = self.byte() % 9;
        }
        number
    }

    fn fraction(&mut self) -> f64 {
        let exponent = i32::from(self.byte()) / 12 - 8;
        let sign = if self.below(2) == 0 { 1.0 } else { -1.0 };
        sign * f64::from(self.byte()) * 10_f64.powi(exponent)
    }

    /// Mostly text, with what JSON escapes and what is no UTF-8.
    fn text(&mut self) -> Vec<u8> {
        let pieces: [&[u8]; 10] = [
            b"consumer",
            b"a",
            b"\"\\/",
            b"\n\t\x1f\x7f",
            "\u{e9}\u{20ac}".as_bytes(),
            b"\xed\xa0\x80",
            b"\xff",
            "\u{1f600}".as_bytes(),
            b"\0\x03",
            b"\xf0\x90",
        ];
        (0..self.below(4)).flat_map(|_| pieces[self.below(pieces.len())].to_vec()).collect()
    }
}

// ---- text -----------------------------------------------------------------------------------

/// Bytes that are no UTF-8 are shown as Java shows them.
#[test]
fn any_bytes_are_shown_as_java_shows_them() {
    let kafka = needs_kafka!();
    let home = scratch();
    let mut source = Noise(3);
    // Mostly lead bytes, surrogates and continuations.
    let bytes = [
        0x41, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc1, 0xc3, 0xe0, 0xe1, 0xed, 0xef, 0xf0, 0xf4,
        0xf5, 0xff,
    ];
    let mut any =
        || -> Vec<u8> { (0..source.below(7)).map(|_| bytes[source.below(bytes.len())]).collect() };
    let records: Vec<Rec> = (0..4000).map(|_| rec(any()).key(any())).collect();
    let log = batch(0, records).codec(Codec::Zstd).build();
    fs::write(home.path().join(LOG), log).expect("a log");
    let mut plan = Plan::default();
    plan.add(LOG, &DEEP);
    plan.run(&kafka, home.path()).iter().for_each(Pair::assert_same);
}

// ---- files that are none --------------------------------------------------------------------

#[test]
fn files_that_cannot_be_dumped_do_not_keep_the_others_from_it() {
    let home = scratch();
    let here = home.path();
    fs::write(here.join(LOG), plain(0..10).build()).expect("a log");
    fs::create_dir(here.join("00000000000000000001.log")).expect("a directory");
    let mode = Mode::from_raw_mode(0o600);
    mknodat(CWD, here.join("00000000000000000002.log"), FileType::Fifo, mode, 0).expect("a FIFO");
    fs::write(here.join("00000000000000000003.index"), offset_index(&[(1, 2)])).expect("an index");
    fs::write(here.join("name.log"), "").expect("a file");
    fs::write(here.join("short.checkpoint"), "").expect("a file");
    let wrong = [
        "00000000000000000001.log",
        "00000000000000000002.log",
        "00000000000000000003.index",
        "00000000000000000003.timeindex",
        "00000000000000000004.snapshot",
        "00000000000000000004.txnindex",
        "name.log",
        "short.checkpoint",
    ];
    for name in wrong {
        let printed = dump(here, &["--files", &format!("{name},{LOG}")]);
        assert_eq!(printed.code, Some(1), "{name}: {}", printed.err);
        assert_eq!(printed.err.lines().count(), 1, "{name}: {}", printed.err);
        assert!(printed.err.starts_with("offsetfs: error: "), "{name}: {}", printed.err);
        assert!(printed.out.ends_with(b"isvalid: true\n"), "{name}");
    }
    // Nothing was made beside them, as Kafka's tool does it with an index that is missing.
    assert_eq!(listed(here).len(), 6);
}

#[test]
fn what_cannot_be_asked_for_is_a_usage_error() {
    for args in [
        &[][..],
        &["--files"],
        &["--files", "a", "--frobnicate"],
        &["--files", "a", "--max-bytes", "-1"],
        &["--files", "a", "--max-message-size", "many"],
        &["--files", "a", "--value-decoder-class", "org.example.Decoder"],
        &["--files", "a", "--key-decoder-class", "org.example.Decoder"],
        &["--files", "a", "--remote-log-metadata-decoder"],
    ] {
        let printed = dump(Path::new("/"), args);
        assert_eq!((printed.code, printed.out.len()), (Some(2), 0), "{args:?}");
        assert!(!printed.err.is_empty(), "{args:?}");
    }
}

#[test]
fn snapshots_and_transaction_indexes_that_are_wrong_are_reported() {
    let home = scratch();
    let [snapshot, aborted] = ["00000000000000000000.snapshot", "00000000000000000000.txnindex"];
    fs::write(home.path().join(snapshot), [0; 40]).expect("a snapshot");
    let rows = [(9, 100, 110, 90), (9, 120, 130, 120), (10, 121, 140, 125)];
    let mut index = txn_index(&rows);
    index[34 + 1] = 1;
    fs::write(home.path().join(aborted), [index, vec![0; 20]].concat()).expect("an index");
    let printed = dump(home.path(), &["--files", &format!("{snapshot},{aborted}")]);
    assert_eq!(printed.code, Some(3));
    let out = String::from_utf8(printed.out).expect("text");
    let meant = format!(
        "Dumping {snapshot}\nDumping {aborted}\n\
         version: 0 producerId: 9 firstOffset: 100 lastOffset: 110 lastStableOffset: 90\n\
         version: 0 producerId: 10 firstOffset: 121 lastOffset: 140 lastStableOffset: 125\n"
    );
    assert_eq!(out, meant);
    assert_eq!(printed.err.lines().count(), 2, "{}", printed.err);
}

// ---- size -----------------------------------------------------------------------------------

/// A batch that expands to far more than memory should be used for: it is told, and the next one is
/// printed.
#[test]
fn a_decompression_bomb_is_told_and_passed() {
    let home = scratch();
    let huge = Codec::As(1, support::kafkalog::gzip(&vec![0; 400 << 20]));
    let log = [batch(0, vec![rec("x")]).codec(huge).build(), plain(1..5).build()].concat();
    fs::write(home.path().join(LOG), log).expect("a log");
    let mut command = limited(1 << 20);
    let done = command.args(["dump", "--files", LOG]).args(DEEP).current_dir(home.path()).output();
    let done = done.expect("it runs");
    let err = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(done.status.code(), Some(3), "{err}");
    assert!(err.contains("expands to more than"), "{err}");
    assert!(String::from_utf8_lossy(&done.stdout).contains("payload: v4\n"));
}

/// `offsetfs` with so much address space, in KiB.
fn limited(kib: u32) -> Command {
    let mut command = Command::new("bash");
    command.arg("-c").arg(format!("ulimit -v {kib}; exec \"$0\" \"$@\"")).arg(OFFSETFS);
    command
}

/// A file of 3 GiB, most of it a hole, is read to its end; Kafka's tool takes none above 2 GiB.
#[test]
fn large_files_are_dumped() {
    let home = scratch();
    let first = plain(0..10).build();
    let file = File::create(home.path().join(LOG)).expect("a file");
    std::os::unix::fs::FileExt::write_all_at(&file, &first, 0).expect("written");
    let behind = plain(10..20).build();
    std::os::unix::fs::FileExt::write_all_at(&file, &behind, 3 << 30).expect("written");
    let printed = dump(home.path(), &["--files", LOG]);
    assert_eq!(printed.code, Some(3), "{}", printed.err);
    let out = String::from_utf8(printed.out).expect("text");
    assert!(out.contains("position: 3221225472 "), "{out}");
}

#[test]
fn a_broken_pipe_ends_quietly() {
    let home = scratch();
    let log: Vec<u8> = (0..2000).flat_map(|n| plain(100 * n..100 * n + 100).build()).collect();
    fs::write(home.path().join(LOG), log).expect("a log");
    let mut command = Command::new(OFFSETFS);
    command.args(["dump", "--files", LOG]).args(DEEP).current_dir(home.path());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    let mut out = child.stdout.take().expect("a pipe");
    out.read_exact(&mut [0; 100]).expect("a beginning");
    drop(out);
    let done = child.wait_with_output().expect("it ends");
    assert_eq!(done.status.code(), Some(0));
    assert!(done.stderr.is_empty(), "{}", String::from_utf8_lossy(&done.stderr));
}
