//! What a broker makes of damaged partitions, beside what offsetfs gives back (contract 6.1, 6.6):
//! the table of the README. Each kind of damage is there twice: as it is, where the broker recovers
//! what it keeps, and after `offsetfs repair`, where the broker must keep all that can be read.

mod support;

use std::fs;
use std::path::{Path, PathBuf};

use offsetfs::format::batch::BatchHeader;
use support::broker::{Consumed, Home};
use support::expected::partition;
use support::{code, fixture, offsetfs, told};

/// A partition of four segments and 2,000 records.
const PLAIN: &str = "plain-0";

struct Kind {
    what: &'static str,
    damage: fn(&Path),
}

const KINDS: [Kind; 8] = [
    Kind { what: "a bit of a value flipped", damage: |it| change(it, |b, at| b[at + 70] ^= 1) },
    Kind { what: "a length that is wrong", damage: |it| change(it, |b, at| b[at + 9] ^= 1) },
    Kind { what: "a base offset that is wrong", damage: |it| change(it, |b, at| b[at + 7] ^= 64) },
    Kind {
        what: "a page of 4 KiB zeroed",
        damage: |it| change(it, |b, at| b[at..at + 4096].fill(0)),
    },
    Kind { what: "16 bytes lost in the middle", damage: |it| change(it, cut_16) },
    Kind { what: "a record batch of nonsense", damage: |it| change(it, |b, at| nonsense(b, at)) },
    Kind { what: "a torn last batch", damage: tear },
    Kind { what: "indexes of nonsense", damage: spoil_indexes },
];

/// Changes the second segment where a batch in its middle begins.
fn change(partition: &Path, change: impl Fn(&mut Vec<u8>, usize)) {
    let path = segments(partition).swap_remove(1);
    let mut bytes = fs::read(&path).expect("a segment");
    let (mut at, middle) = (0, bytes.len() / 2);
    while at < middle {
        let header = BatchHeader::parse(&bytes[at..]).expect("a batch");
        at += usize::try_from(header.bytes).expect("a small batch");
    }
    change(&mut bytes, at);
    fs::write(&path, bytes).expect("written");
}

fn cut_16(bytes: &mut Vec<u8>, at: usize) {
    bytes.drain(at + 20..at + 36);
}

fn nonsense(bytes: &mut [u8], at: usize) {
    for (n, byte) in bytes[at..at + 60].iter_mut().enumerate() {
        *byte = u8::try_from(n * 37 % 251).expect("a byte");
    }
}

fn tear(partition: &Path) {
    let last = segments(partition).pop().expect("a segment");
    let bytes = fs::read(&last).expect("a segment");
    fs::write(&last, &bytes[..bytes.len() - 20]).expect("written");
}

fn spoil_indexes(partition: &Path) {
    for log in segments(partition) {
        for extension in ["index", "timeindex"] {
            fs::write(log.with_extension(extension), [0x5a; 48]).expect("written");
        }
    }
}

fn segments(partition: &Path) -> Vec<PathBuf> {
    let entries =
        fs::read_dir(partition).expect("a directory").map(|it| it.expect("a name").path());
    let mut logs: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|it| it == "log")).collect();
    logs.sort();
    logs
}

/// How many records `offsetfs cat` gives, stepping over damage.
fn readable(partition: &Path) -> usize {
    let partition = partition.to_str().expect("a path");
    let done = offsetfs(&["cat", partition, "-f", "%o\n", "-q"]);
    assert!([Some(0), Some(3)].contains(&done.status.code()), "{}", told(&done));
    String::from_utf8(done.stdout).expect("offsets").lines().count()
}

/// 6.6: "never loses a readable record"; what a broker keeps of the same bytes is less or the same.
#[test]
fn a_repaired_partition_keeps_what_a_broker_would_drop() {
    let kafka = needs_kafka!();
    let all: Vec<Consumed> =
        partition("clean", PLAIN).rows().iter().map(|row| Consumed::of(row, 0)).collect();
    let home = Home::format(&kafka);
    let broker = home.start();
    broker.create_topics(&["as-is/8".to_owned(), "repaired/8".to_owned()]);
    broker.stop();
    let mut given_back = Vec::new();
    for (number, kind) in KINDS.iter().enumerate() {
        for topic in ["as-is", "repaired"] {
            let own = format!("{topic}-{number}");
            home.adopt(&own, &fixture("clean").join("data").join(PLAIN));
            let directory = home.partition(&own);
            fs::write(directory.join("leader-epoch-checkpoint"), "0\n1\n0 0\n").expect("written");
            (kind.damage)(&directory);
        }
        given_back.push(readable(&home.partition(&format!("as-is-{number}"))));
    }
    // The broker that wrote this was killed.
    fs::remove_file(home.data().join(".kafka_cleanshutdown")).expect("a marker");
    for (number, kind) in KINDS.iter().enumerate() {
        let own = home.partition(&format!("repaired-{number}"));
        let done = offsetfs(&["repair", own.to_str().expect("a path")]);
        assert_eq!(code(&done), 0, "{}: {}", kind.what, told(&done));
    }
    let broker = home.start();
    println!("{:32} {:>8} {:>8} {:>8}", "of 2000 records", "offsetfs", "repaired", "broker");
    for (number, kind) in KINDS.iter().enumerate() {
        let at = i32::try_from(number).expect("a few");
        let is_right = |record: &Consumed| {
            let original = all.iter().find(|it| it.offset == record.offset);
            original.is_some_and(|it| (&it.key, &it.value) == (&record.key, &record.value))
        };
        let served = broker.consume("as-is", at);
        // A broker does not notice what its checksum does not cover, and serves it.
        let kept = served.iter().filter(|record| is_right(record)).count();
        let repaired = broker.consume("repaired", at);
        println!("{:32} {:>8} {:>8} {kept:>8}", kind.what, given_back[number], repaired.len());
        assert_eq!(repaired.len(), given_back[number], "{}", kind.what);
        assert!(kept <= repaired.len(), "{}", kind.what);
        assert!(repaired.iter().all(is_right), "{}", kind.what);
    }
    broker.stop();
    home.assert_no_complaints(&["repaired-"]);
}
