//! A real Kafka broker takes over what we wrote, and the other way round (5.1, 5.5, 1.3, 4.13).
//!
//! Tests of "the harness" need no writer: Kafka's own files stand for ours, so that a fault of the
//! harness is not taken for one of ours. Most of the others copy one broker's directory. Without a
//! JDK, kcat or Kafka's jars (`tests/kafka/jars.sh`) they say "skipped".

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use support::broker::{Broker, Consumed, Home};
use support::expected::partition;
use support::kafka::Kafka;
use support::mount::detach;
use support::written::{Written, configure, writable, write, write_all};
use support::{bytes, code, copy, err, fixture, lines, mount, offsetfs, scratch, told};

/// The records that the broker appends behind ours, a batch each.
const BEHIND: [&str; 3] = ["behind one", "behind two", "behind three"];

// ---- (a) a broker adopts ---------------------------------------------------------------------

/// The harness, with Kafka's own files in the place of ours; their epochs are those of a broker
/// that is gone, as are ours.
#[test]
fn a_broker_adopts_partitions_of_another_broker() {
    needs_fuse!();
    let kafka = needs_kafka!();
    let names = ["plain-0", "gzip-0", "snappy-0", "lz4-0", "zstd-0", "mixed-0", "txn-0", "times-0"];
    let source = scratch();
    let foreign: Vec<Written> =
        names.iter().zip(0..).map(|(name, n)| theirs(&source, name, n)).collect();
    let all: Vec<PathBuf> = foreign.iter().map(|one| source.path().join(&one.name)).collect();
    kafka.assert_sound(&all);
    adopt(&kafka, source.path(), &foreign);
}

/// 5.1: "A partition written here is adopted by an Apache Kafka broker without a warning when its
/// files take the place of those of an existing topic's partition"
#[test]
fn a_broker_adopts_what_we_wrote_in_every_format_and_codec() {
    needs_fuse!();
    let kafka = needs_kafka!();
    let source = scratch();
    let mut mount = writable(source.path());
    let ours = write_all(&mount, "adopted");
    mount.stop(Signal::TERM);
    adopt(&kafka, source.path(), &ours);
}

/// A partition of the set `clean` as `adopted-N`. Its last epoch began at its end, when a broker
/// became its leader once more: a younger broker's epoch would contradict that.
fn theirs(source: &tempfile::TempDir, name: &str, number: i32) -> Written {
    let own = format!("adopted-{number}");
    let directory = copy(fixture("clean").join("data").join(name), source.path().join(&own));
    fs::write(directory.join("leader-epoch-checkpoint"), "0\n1\n0 0\n").expect("written");
    let rows = partition("clean", name).rows();
    let records = rows.iter().map(|row| Consumed::of(row, number)).collect();
    Written { name: own, settings: String::new(), records }
}

/// Puts partitions in the place of those of a topic `adopted`, and lets a broker serve them.
fn adopt(kafka: &Kafka, source: &Path, partitions: &[Written]) {
    let home = Home::format(kafka);
    let broker = home.start();
    broker.create_topics(&[format!("adopted/{}", partitions.len())]);
    broker.stop();
    for one in partitions {
        home.adopt(&one.name, &source.join(&one.name));
    }
    let broker = home.start();
    for (one, number) in partitions.iter().zip(0..) {
        assert_same(&one.name, &broker.consume("adopted", number), &one.records);
    }
    let all: Vec<Consumed> = partitions.iter().flat_map(|one| one.records.clone()).collect();
    assert_same("console", &broker.consume_by_console("adopted", all.len()), &all);
    for (_, number) in partitions.iter().zip(0..) {
        broker.produce("adopted", number, &BEHIND.map(String::from), 1);
    }
    broker.stop();
    home.assert_no_complaints(&["adopted"]);
    let mount = mount(home.data()).start();
    for one in partitions {
        assert_all_there(&mount, &one.name, &one.records);
    }
}

// ---- (b) a cleanly stopped directory --------------------------------------------------------

/// 5.5: "`.kafka_cleanshutdown` is removed before the first byte is written and put back, with what
/// it held, only by an orderly unmount"
#[test]
fn a_broker_skips_recovery_of_what_we_appended_to_and_left_in_order() {
    needs_fuse!();
    let kafka = needs_kafka!();
    let base = base(&kafka);
    let home = base.home.copy();
    let (mut plain, mut small) = (base.plain.clone(), base.small.clone());

    // The settings of the topics come from the broker's metadata, where they are at hand...
    let metadata =
        copy(home.meta().join("__cluster_metadata-0"), home.partition("__cluster_metadata-0"));
    let mut mount = writable(home.data());
    append(&mount, "plain-0", &mut plain, 400);
    append(&mount, "small-0", &mut small, 600);
    assert!(!home.has_clean_shutdown_marker(), "the marker stands while we write");
    mount.stop(Signal::TERM);
    fs::remove_dir_all(metadata).expect("removed");
    assert!(home.has_clean_shutdown_marker(), "the marker is not put back");

    // ... and from what the user has set, where they are not: from the next mount on.
    let mut mount = writable(home.data());
    configure(&mount, "plain-0", "segment.bytes=16384 segment.index.bytes=2048");
    configure(&mount, "small-0", "segment.index.bytes=2048 index.interval.bytes=1024");
    mount.stop(Signal::TERM);
    let mut mount = writable(home.data());
    append(&mount, "plain-0", &mut plain, 400);
    append(&mount, "small-0", &mut small, 600);
    mount.stop(Signal::TERM);
    append_by_command(&home.partition("plain-0"), &mut plain, 10);

    kafka.assert_sound(&[home.partition("plain-0"), home.partition("small-0")]);
    let broker = home.start();
    serve_both(&broker, &plain, &small);
    broker.stop();
    let skipped = home.said(&["Skipping recovery of", "clean shutdown file was found"]);
    assert_eq!(skipped.len(), 1, "{:?}", home.said(&["ecover"]));
    for name in ["plain-0", "small-0"] {
        assert_eq!(home.said(&["Recovering unflushed segment", name]), [""; 0]);
    }
    home.assert_no_complaints(&["plain-0", "small-0"]);
    let mount = support::mount(home.data()).start();
    assert_all_there(&mount, "plain-0", &plain);
    assert_all_there(&mount, "small-0", &small);
}

// ---- (c) kill -9 ------------------------------------------------------------------------------

/// 4.13: "kill -9 at any moment: every record whose `write` returned is there after the next mount"
#[test]
fn a_broker_recovers_all_that_was_acknowledged_before_kill_9() {
    needs_fuse!();
    let kafka = needs_kafka!();
    let base = base(&kafka);
    let home = base.home.copy();
    let (mut plain, mut small) = (base.plain.clone(), base.small.clone());
    // Without the cluster's metadata at hand the user says what the topics' indexes can hold.
    let mut mount = writable(home.data());
    configure(&mount, "plain-0", "segment.bytes=16384 segment.index.bytes=2048");
    configure(&mount, "small-0", "segment.index.bytes=2048 index.interval.bytes=1024");
    mount.stop(Signal::TERM);
    let mut mount = writable(home.data());
    append(&mount, "small-0", &mut small, 200);
    let begun = plain.len();
    let path = mount.path().join("plain-0/append");
    let writer = thread::spawn(move || write_until_it_fails(&path, begun));
    thread::sleep(Duration::from_millis(700));
    mount.kill();
    let acknowledged = writer.join().expect("the writer ends");
    detach(mount.path());
    assert!(acknowledged > begun, "nothing was written");
    assert!(!home.has_clean_shutdown_marker(), "the marker stands after kill -9");

    let broker = home.start();
    let got = broker.consume("plain", 0);
    // The last write may be there without having returned.
    assert!([acknowledged, acknowledged + 1].contains(&got.len()), "{acknowledged}: {}", got.len());
    plain.extend((begun..got.len()).map(|n| record(&line(n), n)));
    serve_both(&broker, &plain, &small);
    broker.stop();
    assert_eq!(home.said(&["Skipping recovery of"]), [""; 0]);
    assert!(!home.said(&["Recovering unflushed segment", "plain-0"]).is_empty());
    home.assert_no_complaints(&["plain-0", "small-0"]);
    kafka.assert_sound(&[home.partition("plain-0"), home.partition("small-0")]);
}

/// The harness: a broker's own directory, stopped in order and then killed, passes the same checks.
#[test]
fn a_broker_skips_recovery_of_its_own_files_and_recovers_them_after_kill_9() {
    let kafka = needs_kafka!();
    let base = base(&kafka);
    let home = base.home.copy();
    let broker = home.start();
    assert_eq!(home.said(&["Skipping recovery of", "clean shutdown file was found"]).len(), 1);
    serve_both(&broker, &base.plain, &base.small);
    broker.kill();
    let broker = home.start();
    assert_eq!(home.said(&["Skipping recovery of"]), [""; 0]);
    assert!(!home.said(&["Recovering unflushed segment", "plain-0"]).is_empty());
    let recovered = broker.consume("plain", 0);
    assert_same("plain", &recovered[..300], &base.plain);
    assert_eq!(recovered.len(), 303);
    broker.stop();
    home.assert_no_complaints(&["plain-0", "small-0"]);
    kafka.assert_sound(&[home.partition("plain-0"), home.partition("small-0")]);
}

/// One record a write; the number of lines that are in the log for certain.
fn write_until_it_fails(path: &Path, begun: usize) -> usize {
    use std::io::Write;
    let mut file = fs::OpenOptions::new().append(true).open(path).expect("append");
    let mut acknowledged = begun;
    while file.write_all(format!("{}\n", line(acknowledged)).as_bytes()).is_ok() {
        acknowledged += 1;
    }
    acknowledged
}

// ---- (d) the dump tool ----------------------------------------------------------------------

/// 5.1: "the broker's own dump tool finds no fault in it"
#[test]
fn the_dump_tool_finds_no_fault_in_what_we_wrote() {
    needs_fuse!();
    let kafka = needs_kafka!();
    let source = scratch();
    let mut mount = writable(source.path());
    let ours = write_all(&mount, "dumped");
    mount.stop(Signal::TERM);
    let all: Vec<PathBuf> = ours.iter().map(|one| source.path().join(&one.name)).collect();
    kafka.assert_sound(&all);
}

/// The harness: each kind of file with one bit flipped is told.
#[test]
fn the_dump_tool_tells_of_wrong_files() {
    let kafka = needs_kafka!();
    let source = scratch();
    let names: [(&str, usize); 4] = [
        ("00000000000000000000.log", 100),
        ("00000000000000000000.index", 11),
        ("00000000000000000000.timeindex", 7),
        ("00000000000000002000.snapshot", 3),
    ];
    let partitions = names.map(|(file, position)| {
        let own = source.path().join(file);
        copy(fixture("clean").join("data/plain-0"), &own);
        let mut bytes = fs::read(own.join(file)).expect("a file");
        bytes[position] ^= 1;
        fs::write(own.join(file), &bytes).expect("written");
        own
    });
    let faults = kafka.faults(&partitions).join("\n");
    for told in ["isvalid: false", "Mismatches in", "timestamp mismatch in", "Snapshot is corrupt"]
    {
        assert!(faults.contains(told), "{told}: {faults}");
    }
}

// ---- (e) the lock ---------------------------------------------------------------------------

/// 1.3: "Writable takes a lock on Kafka's own `.lock` that keeps a broker out, and is refused while
/// a broker (or another of us) holds it."
#[test]
fn a_broker_and_a_writable_mount_keep_each_other_out() {
    needs_fuse!();
    let kafka = needs_kafka!();
    let base = base(&kafka);
    let home = base.home.copy();
    let mut plain = base.plain.clone();
    let mut mount = writable(home.data());
    assert_eq!(home.start_in_vain(), Some(1), "{:?}", home.complaints(&[]));
    assert!(!home.said(&["Failed to acquire lock on file .lock"]).is_empty());
    append(&mount, "plain-0", &mut plain, 10);
    let refused =
        support::mount(home.data()).args(&["--rw"]).live_source().refused(scratch().path());
    assert!(err(&refused).contains("lock"), "{}", told(&refused));
    mount.stop(Signal::TERM);

    let broker = home.start();
    let at = scratch();
    let refused = support::mount(home.data()).args(&["--rw"]).live_source().refused(at.path());
    assert_eq!(code(&refused), 1);
    assert!(err(&refused).contains("lock"), "{}", told(&refused));
    let refused =
        offsetfs(&[Path::new("append"), &home.partition("plain-0"), Path::new("/dev/null")]);
    assert_eq!(code(&refused), 1, "{}", told(&refused));
    assert!(err(&refused).contains("lock"), "{}", told(&refused));
    assert_same("plain-0", &broker.consume("plain", 0), &plain);
    broker.stop();
    home.assert_no_complaints(&["plain-0", "small-0"]);
}

// ---- a broker's directory ---------------------------------------------------------------------

/// A broker that stopped in order, with records in two topics.
struct Base {
    home: Home,
    plain: Vec<Consumed>,
    small: Vec<Consumed>,
}

/// Made once for the tests that run at the same time; the last of them takes it away.
fn base(kafka: &Kafka) -> Arc<Base> {
    static BASE: Mutex<Weak<Base>> = Mutex::new(Weak::new());
    let mut known = BASE.lock().unwrap_or_else(PoisonError::into_inner);
    known.upgrade().unwrap_or_else(|| {
        let made = Arc::new(Base::make(kafka));
        *known = Arc::downgrade(&made);
        made
    })
}

impl Base {
    /// `plain` rolls often; in `small` the index is full long before the segment.
    fn make(kafka: &Kafka) -> Base {
        let home = Home::format(kafka);
        let broker = home.start();
        broker.create_topics(&[
            "plain/1/internal.segment.bytes=16384,segment.index.bytes=2048".into(),
            "small/1/segment.index.bytes=2048,index.interval.bytes=1024".into(),
        ]);
        let values = |count| (0..count).map(line).collect::<Vec<String>>();
        broker.produce("plain", 0, &values(300), 10);
        broker.produce("small", 0, &values(20), 1);
        broker.stop();
        let records = |count| (0..count).map(|n| record(&line(n), n)).collect();
        Base { home, plain: records(300), small: records(20) }
    }
}

/// The n-th value of a partition: long enough for an index entry each in `small`.
fn line(n: usize) -> String {
    format!("line {n} {}", "0123456789".repeat(n % 3 + 105))
}

fn record(value: &str, offset: usize) -> Consumed {
    Consumed {
        partition: 0,
        offset: i64::try_from(offset).expect("an offset"),
        ts: None,
        key: None,
        value: Some(value.into()),
        headers: Vec::new(),
    }
}

/// Appends the next lines through the mount, one a write.
fn append(mount: &support::Mount, name: &str, records: &mut Vec<Consumed>, count: usize) {
    let next = records.len()..records.len() + count;
    let pieces: Vec<String> = next.clone().map(|n| line(n) + "\n").collect();
    write(mount, name, "append", pieces.iter().map(String::as_bytes));
    records.extend(next.map(|n| record(&line(n), n)));
}

/// Appends the next lines with `offsetfs append`.
fn append_by_command(partition: &Path, records: &mut Vec<Consumed>, count: usize) {
    let next = records.len()..records.len() + count;
    let home = scratch();
    let file = home.path().join("lines");
    fs::write(&file, next.clone().map(|n| line(n) + "\n").collect::<String>()).expect("written");
    let done = offsetfs(&[Path::new("append"), partition, &file]);
    assert_eq!(code(&done), 0, "{}", told(&done));
    records.extend(next.map(|n| record(&line(n), n)));
}

/// Both topics are consumed whole, and the broker appends behind.
fn serve_both(broker: &Broker<'_>, plain: &[Consumed], small: &[Consumed]) {
    for (topic, records) in [("plain", plain), ("small", small)] {
        assert_same(topic, &broker.consume(topic, 0), records);
        broker.produce(topic, 0, &BEHIND.map(String::from), 1);
    }
}

// ---- comparing --------------------------------------------------------------------------------

/// The same records in the same order; times count where they are known.
fn assert_same(what: &str, got: &[Consumed], expected: &[Consumed]) {
    for (got, expected) in got.iter().zip(expected) {
        let ts = expected.ts.and(got.ts);
        assert_eq!(&Consumed { ts, ..got.clone() }, expected, "{what}");
    }
    assert_eq!(got.len(), expected.len(), "{what}: records");
}

/// We read all of it: the records, and what the broker appended behind them.
fn assert_all_there(mount: &support::Mount, name: &str, records: &[Consumed]) {
    let values = records.iter().map(|record| record.value.clone().unwrap_or_default());
    let behind = BEHIND.iter().map(|value| value.as_bytes().to_vec());
    let shown = mount.partition(name).by_offset("0..");
    assert_eq!(shown, lines(values.chain(behind)), "{name}");
    assert_eq!(mount.partition(name).by_offset("-1.."), bytes(*b"behind three\n"), "{name}");
}
