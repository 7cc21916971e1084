//! 1.5, 4.13, 5.5, 5.6, 6.2, and 4.2 on a full disk: how a log ends, and how it begins again.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use rustix::process::{Signal, kill_process};

use crate::needs_fuse;
use crate::support::got::{bytes, error_of, lines};
use crate::support::kafkalog::{
    Partition, batches, checkpoint, data_dir, flipped, hundred, partition, plain, sized_layout,
};
use crate::support::mount::{Mount, mount, v, v_lines, wait_for, writable_with};
use crate::support::writing::{add, assert_values, files, log_of, open, put, stopped};
use crate::support::written::{configure, create, writable};
use crate::support::{EIO, ENOENT, is_root, offsetfs, scratch, skipped, told};

const MARKER: &str = ".kafka_cleanshutdown";

/// The files of a partition's directory with these contents, under any name.
fn kept(directory: &Path, bytes: &[u8]) -> Vec<PathBuf> {
    let all = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    all.filter(|path| path.is_file() && fs::read(path).unwrap() == bytes).collect()
}

/// 5.5: "`.kafka_cleanshutdown` is removed before the first byte is written and put back, with what
/// it held, only by an orderly unmount"
#[test]
fn the_marker_goes_before_the_first_byte_and_comes_back() {
    needs_fuse!();
    let mut first = writable_with(&[hundred()]);
    let marker = first.source().join(MARKER);
    let held = r#"{"version":0,"brokerEpoch":41}"#;
    fs::write(&marker, held).unwrap();
    let source = stopped(&mut first);
    let mut second = writable(&source);
    assert!(marker.exists(), "nothing was written yet");
    add(&second, "append", "v100\n");
    assert!(!marker.exists());
    stopped(&mut second);
    assert_eq!(fs::read_to_string(&marker).unwrap(), held);
    let mut third = writable(&source);
    add(&third, "append", "v101\n");
    third.kill();
    assert!(!marker.exists());
}

/// 5.5: "flush, trim, producer snapshot, checkpoints, marker, unlock, in Kafka's order"
#[test]
fn an_orderly_end_leaves_what_a_broker_leaves() {
    needs_fuse!();
    let mut mount = writable_with(&[hundred()]);
    add(&mount, "append", "v100\nv101\n");
    let source = stopped(&mut mount);
    for name in ["recovery-point-offset-checkpoint", "replication-offset-checkpoint"] {
        let text = fs::read_to_string(source.join(name)).unwrap();
        assert_eq!(text, checkpoint(&["t 0 102"]), "{name}");
    }
    let directory = source.join("t-0");
    assert!(directory.join(format!("{:020}.snapshot", 102)).exists());
    assert_eq!(fs::metadata(directory.join(format!("{:020}.index", 0))).unwrap().len() % 8, 0);
    assert!(fs::metadata(directory.join(format!("{:020}.index", 0))).unwrap().len() < 1000);
    assert!(!source.join(".lock").exists());
}

/// 5.5: "and only if it was there at the mount, or the directory was fresh, or every partition was
/// recovered since. Recovery begins when the mount answers; a log is recovered before its first
/// append."
#[test]
fn the_marker_is_earned_by_recovery() {
    needs_fuse!();
    let mut first = writable_with(&[hundred(), hundred().named("u-0")]);
    let source = stopped(&mut first);
    fs::remove_file(source.join(MARKER)).unwrap();
    fs::write(source.join("t-0").join(format!("{:020}.index", 0)), [255; 16]).unwrap();
    let mut second = writable(&source);
    add(&second, "append", "v100\n");
    assert_eq!(second.t0().records(0..101), v(0..101));
    wait_for(Duration::from_secs(20), "all are recovered", || {
        let log = source.join("u-0").join(format!("{:020}.snapshot", 100));
        log.exists() || second.partition("u-0").number("log-end-offset") == 100
    });
    thread::sleep(Duration::from_millis(500));
    stopped(&mut second);
    assert!(source.join(MARKER).exists());
}

/// 1.5: "SIGINT, SIGTERM, SIGHUP unmount (lazily when busy: new writes are refused, unterminated
/// rests committed, open readers get ENOTCONN) after flushing, with exit status 0."
#[test]
fn a_busy_mount_commits_its_rests_and_goes() {
    needs_fuse!();
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let mut busy = writable_with(&[hundred()]);
        add(&busy, "append", "v100\n");
        let file = open(&busy.t0(), "append");
        assert_eq!(put(&file, "v101"), "4");
        let mut reader = fs::File::open(busy.t0().path("by-offset/0..")).unwrap();
        let inside = busy.t0().path("by-offset");
        let mut sitter = Command::new("sleep").arg("60").current_dir(inside).spawn().unwrap();
        busy.stop(signal);
        assert_eq!(put(&file, "v102\n"), "ENOTCONN");
        let read = std::io::Read::read(&mut reader, &mut [0; 10]);
        assert_eq!(error_of(read), "ENOTCONN");
        sitter.kill().unwrap();
        sitter.wait().unwrap();
        let after = mount(busy.source()).start();
        assert_eq!(after.t0().by_offset("0.."), v_lines(0..102), "{signal:?}");
    }
}

/// 4.13: "kill -9 at any moment: every record whose `write` returned is there after the next mount"
#[test]
fn no_acknowledged_record_is_lost_by_kill() {
    needs_fuse!();
    let mut first = writable_with(&[]);
    create(&first, "t-0", "segment.bytes=3000 segment.index.bytes=400 index.interval.bytes=200");
    let source = stopped(&mut first);
    let side = source.parent().unwrap().join("acknowledged");
    let mut known = 0;
    let mut random = 0x2545_f491_u64;
    for round in 0..20 {
        let mut mount = writable(&source);
        let end = mount.t0().number("log-end-offset");
        // One write can be in the log whose answer the writer did not live to see.
        assert!((known..=known + 1).contains(&end), "round {round}: {end}, known {known}");
        let begin = end;
        let file = open(&mount.t0(), "append");
        let mut side_file = fs::File::create(&side).unwrap();
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let lifetime = Duration::from_micros(1000 + random % 150_000);
        let writer = thread::spawn(move || {
            for n in begin.. {
                let line = value(n) + "\n";
                if put(&file, &line) != line.len().to_string() {
                    return;
                }
                side_file.write_all(format!("{n}\n").as_bytes()).unwrap();
            }
        });
        thread::sleep(lifetime);
        mount.kill();
        writer.join().unwrap();
        let noted = fs::read_to_string(&side).unwrap();
        known = noted.lines().last().map_or(begin, |line| line.parse::<i64>().unwrap() + 1);
        let reader = crate::support::mount(&source).live_source().start();
        let end = reader.t0().number("log-end-offset");
        assert!((known..=known + 1).contains(&end), "round {round}: {end}, known {known}");
        assert!(reader.t0().by_offset("0..") == lines((0..end).map(value)), "round {round}");
        known = end;
        drop(mount);
    }
    assert!(known > 20, "the writer came to {known} records only");
    let mount = writable(&source);
    add(&mount, "append", "last\n");
    assert_eq!(mount.t0().by_offset(known), "last");
    assert!(files(&source.join("t-0"), "log").len() > 1);
}

fn value(n: i64) -> String {
    format!("{n} {}", "x".repeat(usize::try_from(n * 31 % 90).unwrap()))
}

/// A file system in memory, with room for 4 MiB.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mounted_at(path: PathBuf) -> Option<SmallDisk> {
        fs::create_dir(&path).unwrap();
        let how = ["-t", "tmpfs", "-o", "size=4m", "tmpfs"];
        let done = Command::new("mount").args(how).arg(&path).output().unwrap();
        if !done.status.success() {
            skipped(&format!("no tmpfs: {}", told(&done)));
            return None;
        }
        Some(SmallDisk(path))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Nothing else can be done about it.
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}

/// 4.2: "every error that can happen is returned by `write`: ENOSPC"
/// 4.2: "After a partial success the write is short."
/// 4.8: "Disk blocks are reserved before an entry is written through a map (where the filesystem
/// cannot promise them, entries are written by pwrite), so a full disk is ENOSPC, never SIGBUS."
#[test]
fn a_full_disk_is_enospc_and_nothing_is_lost() {
    needs_fuse!();
    if !is_root() {
        return skipped("only root mounts a tmpfs");
    }
    for settings in ["index.interval.bytes=0", "segment.bytes=50000 index.interval.bytes=1000"] {
        let home = scratch();
        let Some(disk) = SmallDisk::mounted_at(home.path().join("disk")) else { return };
        let source = disk.0.join("source");
        fs::create_dir(&source).unwrap();
        let mut mount = writable(&source);
        create(&mount, "t-0", settings);
        let ballast = disk.0.join("ballast");
        fs::write(&ballast, vec![1; 300_000]).unwrap();
        let mut want = fill(&mount, 7001, Vec::new());
        // Ever smaller records, until the last bytes are taken.
        want = fill(&mount, 401, want);
        want = fill(&mount, 11, want);
        assert_eq!(mount.t0().by_offset("0.."), lines(&want), "{settings}");
        fs::remove_file(&ballast).unwrap();
        add(&mount, "append", "room again\n");
        want.push("room again".into());
        assert_eq!(mount.t0().by_offset("0.."), lines(&want), "{settings}");
        stopped(&mut mount);
        let log = log_of(&source.join("t-0"));
        assert_eq!(batches(&log).last().unwrap().end, log.len(), "a torn tail");
        let after = crate::support::mount(&source).start();
        assert_eq!(after.t0().by_offset("0.."), lines(&want), "{settings}");
        assert_eq!(after.t0().report()["torn_tail"], serde_json::Value::Null);
    }
}

/// Appends ten records of so many bytes a write until the disk is full; what the log holds then.
fn fill(mount: &Mount, bytes: usize, mut held: Vec<String>) -> Vec<String> {
    let file = open(&mount.t0(), "append");
    loop {
        let records: Vec<String> = (0..10).map(|n| format!("{:0bytes$}", held.len() + n)).collect();
        let text = records.join("\n") + "\n";
        let Ok(count) = put(&file, &text).parse::<usize>() else {
            assert_eq!(put(&file, &text), "ENOSPC");
            return held;
        };
        assert_eq!(count % (bytes + 1), 0, "a short write ends with a record");
        held.extend(records.into_iter().take(count / (bytes + 1)));
        assert!(held.len() < 200_000, "the disk never gets full");
    }
}

/// 6.2: "A writable mount cuts a torn tail."
/// 6.2: "Cut bytes are kept beside and named in the log line."
#[test]
fn a_torn_tail_is_cut_and_kept() {
    needs_fuse!();
    let torn = &plain(100..110).build()[..77];
    let mut first = writable_with(&[hundred().add_bytes(torn)]);
    fs::remove_file(first.source().join(MARKER)).ok();
    let source = stopped(&mut first);
    let mount = writable(&source);
    add(&mount, "append", "v100\n");
    assert_eq!(mount.t0().records(0..101), v(0..101));
    let kept = kept(&source.join("t-0"), torn);
    assert_eq!(kept.len(), 1);
    let name = kept[0].file_name().unwrap().to_str().unwrap();
    let said = [first.stderr(), mount.stderr()].concat();
    assert!(said.contains(name), "{name} in {said}");
    assert_eq!(mount.t0().report()["torn_tail"], serde_json::Value::Null);
}

/// The default layout in segments of fifty, with a bit of batch 6 (60..70) flipped.
fn damaged() -> (Partition, Vec<u8>) {
    let mut part = sized_layout(100, 10, 50);
    let log = std::mem::take(&mut part.active().log);
    let bad = batches(&log)[1].clone();
    let cut = flipped(log, bad.start + 70);
    part.active().log.clone_from(&cut);
    (part, cut[bad.start..].to_vec())
}

/// 6.2: "Damage with valid batches behind it: in the segment that holds the recovery point or after
/// it, everything from the first bad batch on is cut, as Kafka's recovery does"
#[test]
fn damage_behind_the_recovery_point_is_cut() {
    needs_fuse!();
    let (part, cut) = damaged();
    let home = scratch();
    let source = data_dir(home.path().join("source"), &[part]);
    fs::remove_file(source.join(MARKER)).unwrap();
    let points = checkpoint(&["t 0 55"]);
    fs::write(source.join("recovery-point-offset-checkpoint"), points).unwrap();
    let mount = writable(&source);
    add(&mount, "append", "v60\n");
    assert_eq!(mount.t0().by_offset("0.."), v_lines(0..61));
    assert_eq!(mount.t0().number("log-end-offset"), 61);
    let kept = kept(&source.join("t-0"), &cut);
    assert_eq!(kept.len(), 1);
    assert!(mount.stderr().contains(kept[0].file_name().unwrap().to_str().unwrap()));
}

/// 6.2: "before it `append` is EIO and the rest is readable"
#[test]
fn damage_before_the_recovery_point_stops_appends() {
    needs_fuse!();
    let (part, _) = damaged();
    let part = part.roll(100).add(&plain(100..110));
    let home = scratch();
    let source = data_dir(home.path().join("source"), &[part]);
    fs::remove_file(source.join(MARKER)).unwrap();
    let points = checkpoint(&["t 0 105"]);
    fs::write(source.join("recovery-point-offset-checkpoint"), points).unwrap();
    let before = log_of(&source.join("t-0"));
    let mount = writable(&source);
    let shown = mount.t0();
    assert_eq!(shown.by_offset(65), EIO);
    assert_eq!(crate::support::writing::put_to(&shown, "append", "no\n"), "EIO");
    assert_eq!(shown.records((0..60).chain(70..110)), [v(0..60), v(70..110)].concat());
    assert_eq!(shown.by_offset(110), ENOENT);
    assert!(log_of(&source.join("t-0")) == before, "nothing is cut");
}

fn truncate(source: &Path, offset: i64, more: &[&str]) {
    let offset = offset.to_string();
    let directory = source.join("t-0").display().to_string();
    let done = offsetfs(&[&["truncate", &directory, &offset], more].concat());
    assert!(done.status.success(), "{}", told(&done));
}

/// 5.6: "truncation to an offset (`offsetfs truncate DIR OFFSET`) cuts log, indexes, epochs and
/// snapshots together (a batch that holds the offset goes whole, as in Kafka), and keeps the cut
/// bytes beside (`--discard`: does not)."
#[test]
fn truncation_cuts_log_indexes_epochs_and_snapshots() {
    needs_fuse!();
    for discard in [false, true] {
        let home = scratch();
        let mut part = partition();
        for (n, epoch) in [(0, 1), (10, 1), (20, 4), (30, 4), (40, 7), (50, 7)] {
            part = if n == 30 { part.roll(n) } else { part };
            part = part.add(&plain(n..n + 10).epoch(epoch));
        }
        part.epochs = vec![(1, 0), (4, 20), (7, 40)];
        let logs: Vec<Vec<u8>> = part.segments.iter().map(|s| s.log.clone()).collect();
        let source = data_dir(home.path().join("source"), &[part]);
        let directory = source.join("t-0");
        fs::write(directory.join(format!("{:020}.snapshot", 60)), "not one").unwrap();
        truncate(&source, 35, if discard { &["--discard"] } else { &[] });
        let first = logs[0].clone();
        assert!(log_of(&directory) == first, "the batch 30..40 goes whole");
        let cut = kept(&directory, &logs[1]).len();
        assert_eq!(cut, usize::from(!discard));
        assert!(!directory.join(format!("{:020}.snapshot", 60)).exists());
        let epochs = fs::read_to_string(directory.join("leader-epoch-checkpoint")).unwrap();
        assert_eq!(epochs, checkpoint(&["1 0", "4 20"]));
        for extension in ["index", "timeindex"] {
            let path = directory.join(format!("{:020}.{extension}", 30));
            let bytes = fs::read(path).unwrap_or_default();
            assert!(bytes.iter().all(|byte| *byte == 0), "{extension}");
        }
        let mount = writable(&source);
        assert_eq!(mount.t0().by_offset("0.."), v_lines(0..30));
        let end = mount.t0().number("log-end-offset");
        add(&mount, "append", "next\n");
        assert_eq!(mount.t0().by_offset(end), "next");
        assert!((30..=35).contains(&end), "{end}");
    }
}

/// 5.6: "truncation to an offset (`offsetfs truncate DIR OFFSET`)"
#[test]
fn truncation_at_both_ends_of_a_log() {
    needs_fuse!();
    let home = scratch();
    let source = data_dir(home.path().join("source"), &[sized_layout(100, 10, 50)]);
    let before = log_of(&source.join("t-0"));
    truncate(&source, 100, &[]);
    truncate(&source, 5000, &[]);
    assert!(log_of(&source.join("t-0")) == before, "there is nothing behind the end");
    truncate(&source, 0, &["--discard"]);
    let mount = writable(&source);
    assert_eq!(mount.t0().number("log-end-offset"), 0);
    add(&mount, "append", "v0\n");
    assert_eq!(mount.t0().by_offset("0.."), "v0\n");
}

/// 5.6: "Leader epochs are written as Kafka writes them"
#[test]
fn a_new_epoch_is_noted_with_its_first_offset() {
    needs_fuse!();
    let mut first = writable_with(&[]);
    create(&first, "t-0", "");
    add(&first, "append", "a\nb\n");
    for (n, epoch) in [(2, 0), (4, 3), (6, 3), (8, 9)] {
        add(&first, "append.raw", plain(n..n + 2).epoch(epoch).build());
    }
    add(&first, "append", "c\n");
    assert_eq!(first.t0().read("leader-epochs"), "0 0\n3 4\n9 8\n");
    assert_eq!(first.t0().envelope(10)["leader_epoch"], 9);
    let source = stopped(&mut first);
    let text = fs::read_to_string(source.join("t-0/leader-epoch-checkpoint")).unwrap();
    assert_eq!(text, checkpoint(&["0 0", "3 4", "9 8"]));
}

/// 1.5: "A dead mount of ours at MOUNTPOINT (`ENOTCONN`) is cleaned up and replaced."
#[test]
fn a_dead_writable_mount_is_replaced() {
    needs_fuse!();
    let mut dead = writable_with(&[hundred()]);
    configure(&dead, "t-0", "flush.messages=1");
    add(&dead, "append", "v100\n");
    let pid = dead.pid();
    kill_process(pid, Signal::KILL).unwrap();
    dead.wait();
    let again = mount(dead.source()).args(&["--rw"]).live_source().at(dead.path()).start();
    add(&again, "append", "v101\n");
    assert_values(&again.t0(), &(0..102).map(|n| format!("v{n}")).collect::<Vec<_>>());
}

/// 2.11: "Records below the log start offset are gone"
#[test]
fn what_was_shown_from_the_disk_is_not_brought_back() {
    needs_fuse!();
    let mut first = writable_with(&[hundred().log_start(45)]);
    let source = stopped(&mut first);
    let how = mount(&source).args(&["--rw", "-o", "log_start=disk"]).live_source();
    let mut second = how.start();
    assert_eq!(second.t0().records(0..3), v(0..3));
    add(&second, "append", "v100\n");
    stopped(&mut second);
    let third = mount(&source).start();
    assert_eq!(third.t0().number("log-start-offset"), 45);
    let shown = [ENOENT.into(), bytes("v45"), bytes("v100")];
    assert_eq!(third.t0().records([44, 45, 100]), shown);
}
