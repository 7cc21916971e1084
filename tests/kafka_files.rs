//! The files that we leave are Kafka's to the byte (4.7, 5.5): batches are appended once more
//! through Kafka's own log (`tests/kafka/java/Replay.java`), and what lies beside is compared.
//!
//! The first test needs no writer: a broker's files are the ones compared, which shows that the
//! replay is right.

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use support::kafka::files;
use support::written::{
    Format, SMALL, Written, append, append_raw, create, samples, writable, write, write_all,
};
use support::{copy, fixture, scratch};

/// The files that Kafka's log keeps; others (`partition.metadata`, ours) are not compared.
const KEPT: [&str; 5] = ["log", "index", "timeindex", "txnindex", "snapshot"];
const EPOCHS: &str = "leader-epoch-checkpoint";

/// A partition and the settings it was written with.
type Replayed = (PathBuf, String);

/// The harness: what the broker of the fixtures left is what the replay leaves.
#[test]
fn the_replay_leaves_what_a_broker_left() {
    let kafka = needs_kafka!();
    let small = "segment.index.bytes=2048 index.interval.bytes=1024";
    let mut all: Vec<(&str, String)> = [
        ("plain-0", "segment.bytes=32768"),
        ("gzip-0", "segment.bytes=8192"),
        ("snappy-0", "segment.bytes=8192"),
        ("lz4-0", "segment.bytes=8192"),
        ("zstd-0", "segment.bytes=8192"),
        ("txn-0", "segment.bytes=8192"),
        ("appendtime-0", "segment.bytes=4096"),
        ("timeroll-0", "segment.bytes=1000000 segment.ms=5000"),
        ("epochs-0", "segment.bytes=4096 reopen=60,130,210"),
        ("binary-0", "segment.bytes=1500000 max.message.bytes=1400000"),
    ]
    .map(|(name, settings)| (name, format!("{small} {settings}")))
    .to_vec();
    for (name, settings) in [
        ("mixed-0", "segment.bytes=8192 segment.index.bytes=1024 index.interval.bytes=1024"),
        ("dense-0", "segment.bytes=16384 segment.index.bytes=240 index.interval.bytes=0"),
        ("times-0", "segment.bytes=4096 segment.index.bytes=2048 index.interval.bytes=300"),
    ] {
        all.push((name, settings.into()));
    }
    let source = scratch();
    let partitions: Vec<Replayed> = all
        .into_iter()
        .map(|(name, settings)| {
            let own = copy(fixture("clean").join("data").join(name), source.path().join(name));
            forget_the_last_leader(&own);
            (own, settings)
        })
        .collect();
    compare(&kafka, &partitions, "follower");
    let one_leader = |(path, _): &&Replayed| {
        let name = path.file_name().expect("a name").to_string_lossy();
        !["txn-0", "appendtime-0", "epochs-0"].contains(&name.as_ref())
    };
    let led: Vec<Replayed> = partitions.iter().filter(one_leader).cloned().collect();
    compare(&kafka, &led, "leader");
}

/// A broker that becomes the leader notes an epoch at the end of the log; no record has it.
fn forget_the_last_leader(partition: &Path) {
    let path = partition.join(EPOCHS);
    let text = fs::read_to_string(&path).expect("epochs");
    let mut entries: Vec<&str> = text.lines().skip(2).collect();
    let ends = files(&[partition.to_path_buf()], &["snapshot"]);
    let end = ends.last().expect("a snapshot at the end").file_stem().expect("an offset");
    let end: i64 = end.to_str().expect("digits").parse().expect("an offset");
    entries.retain(|entry| entry.split(' ').nth(1) != Some(end.to_string().as_str()));
    fs::write(&path, format!("0\n{}\n{}\n", entries.len(), entries.join("\n"))).expect("written");
}

/// 4.7: "Kafka's rules, to the byte."
#[test]
fn our_files_are_those_that_kafka_writes() {
    needs_fuse!();
    let kafka = needs_kafka!();
    let source = scratch();
    let mut mount = writable(source.path());
    let mut ours = write_all(&mount, "ours");
    let dense = "segment.bytes=16384 segment.index.bytes=240 index.interval.bytes=0";
    for (name, settings) in [
        ("dense-0", dense),
        ("big-0", "segment.bytes=1048576 segment.index.bytes=10485760 index.interval.bytes=4096"),
        ("noindex-0", "segment.bytes=16384 segment.index.bytes=2048 index.interval.bytes=1000000"),
    ] {
        create(&mount, name, settings);
        let records = append(&mount, name, Format::Jsonl, &samples(2000));
        ours.push(Written { name: name.into(), settings: settings.into(), records });
    }
    create(&mount, "one-0", SMALL);
    write(&mount, "one-0", "append", [b"a single record\n".as_slice()]);
    ours.push(Written { name: "one-0".into(), settings: SMALL.into(), records: Vec::new() });
    mount.stop(Signal::TERM);
    let partitions: Vec<Replayed> =
        ours.into_iter().map(|one| (source.path().join(one.name), one.settings)).collect();
    compare(&kafka, &partitions, "follower");
}

/// 3.2: "Appended, they keep everything, offsets, holes and epochs too, as a replica does"
#[test]
fn batches_of_kafka_give_the_files_that_a_follower_has() {
    needs_fuse!();
    let kafka = needs_kafka!();
    let source = scratch();
    let mut mount = writable(source.path());
    let names = ["mixed-0", "epochs-0", "txn-0", "appendtime-0", "times-0", "compacted-0"];
    for name in names {
        create(&mount, name, SMALL);
        append_raw(&mount, name, name);
    }
    mount.stop(Signal::TERM);
    let partitions: Vec<Replayed> =
        names.iter().map(|name| (source.path().join(name), SMALL.into())).collect();
    compare(&kafka, &partitions, "follower");
}

/// 4.7: "its indexes are trimmed to their true size. Kafka's rules, to the byte."
#[test]
fn our_files_are_those_of_kafka_after_a_remount_too() {
    needs_fuse!();
    let kafka = needs_kafka!();
    let source = scratch();
    let mut count = 0;
    let mut reopen = Vec::new();
    for round in 0..4 {
        let mut mount = writable(source.path());
        if round == 0 {
            create(&mount, "again-0", SMALL);
        } else {
            reopen.push(count.to_string());
        }
        let pieces: Vec<String> = (0..60 + round * 10)
            .map(|n| format!("round {round} {}\n", "x".repeat(n * 5)))
            .collect();
        write(&mount, "again-0", "append", pieces.iter().map(String::as_bytes));
        count += pieces.len();
        mount.stop(Signal::TERM);
    }
    let settings = format!("{SMALL} reopen={}", reopen.join(","));
    compare(&kafka, &[(source.path().join("again-0"), settings)], "follower");
}

/// Replays the partitions as a leader's or a follower's appends and compares every file.
fn compare(kafka: &support::kafka::Kafka, partitions: &[Replayed], role: &str) {
    let home = scratch();
    let target = home.path().join("replayed");
    let words = |(path, settings): &Replayed| (path.clone(), format!("as={role} {settings}"));
    kafka.replay(&target, &partitions.iter().map(words).collect::<Vec<_>>());
    let mut differences = Vec::new();
    for (ours, _) in partitions {
        let theirs = target.join(ours.file_name().expect("a name"));
        differences.extend(differences_between(ours, &theirs));
    }
    assert!(differences.is_empty(), "as a {role}:\n{}", differences.join("\n"));
}

fn differences_between(ours: &Path, theirs: &Path) -> Vec<String> {
    let names: BTreeSet<String> = [ours, theirs].into_iter().flat_map(kept).collect();
    let partition = ours.file_name().expect("a name").to_string_lossy();
    let differ = |name: String| {
        let [ours, theirs] = [ours, theirs].map(|directory| fs::read(directory.join(&name)).ok());
        let size = |bytes: &Option<Vec<u8>>| {
            bytes.as_ref().map_or("missing".into(), |bytes| format!("{} bytes", bytes.len()))
        };
        let first = || {
            let (Some(ours), Some(theirs)) = (&ours, &theirs) else { return String::new() };
            let position = ours.iter().zip(theirs).take_while(|(one, other)| one == other).count();
            format!(", alike up to {position}")
        };
        (ours != theirs).then(|| {
            let (here, there) = (size(&ours), size(&theirs));
            format!("{partition}/{name}: ours {here}, Kafka's {there}{}", first())
        })
    };
    names.into_iter().filter_map(differ).collect()
}

/// The names of the files that are compared.
fn kept(directory: &Path) -> Vec<String> {
    let mut paths = files(&[directory.to_path_buf()], &KEPT);
    paths.push(directory.join(EPOCHS));
    let name = |path: PathBuf| path.file_name().expect("a name").to_string_lossy().into_owned();
    paths.into_iter().map(name).collect()
}
