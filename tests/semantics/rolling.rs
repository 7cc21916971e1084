//! 4.7, 4.8, 4.11, 2.9: segments, their indexes, retention.

use std::fs::{self, File, FileTimes};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::json;

use crate::needs_fuse;
use crate::support::kafkalog::{
    Partition, Segment, T0, batch, batches, partition, plain, rec, sized_layout,
};
use crate::support::mount::{Mount, v, v_lines, wait_for, writable_with};
use crate::support::writing::{add, files, fresh, stopped};
use crate::support::written::configure;
use crate::support::{ENOENT, got};

const HOUR: i64 = 3_600_000;

/// One record a write, a second apart.
fn add_each(mount: &Mount, values: impl IntoIterator<Item = String>) {
    for (value, n) in values.into_iter().zip(0..) {
        add(mount, "append.jsonl", format!("{}\n", json!({"ts": T0 + n * 1000, "payload": value})));
    }
}

fn base_of(path: &Path) -> i64 {
    path.file_stem().unwrap().to_str().unwrap().parse().unwrap()
}

/// (relative offset, position) of each entry of an offset index.
fn offset_entries(path: &Path) -> Vec<(i32, i32)> {
    let number = |bytes: &[u8]| i32::from_be_bytes(bytes.try_into().unwrap());
    fs::read(path).unwrap().chunks(8).map(|e| (number(&e[..4]), number(&e[4..]))).collect()
}

/// (timestamp, relative offset) of each entry of a time index.
fn time_entries(path: &Path) -> Vec<(i64, i32)> {
    let entry = |e: &[u8]| {
        let (time, offset) = (e[..8].try_into().unwrap(), e[8..].try_into().unwrap());
        (i64::from_be_bytes(time), i32::from_be_bytes(offset))
    };
    fs::read(path).unwrap().chunks(12).map(entry).collect()
}

/// Compares the segments of a directory with those of a partition that was built.
fn assert_segments(directory: &Path, want: &[Segment]) {
    let logs = files(directory, "log");
    assert_eq!(logs.len(), want.len());
    for (path, want) in logs.iter().zip(want) {
        assert_eq!(base_of(path), want.base_offset);
        assert!(fs::read(path).unwrap() == want.log, "{} differs", path.display());
        let index = path.with_extension("index");
        assert_eq!(offset_entries(&index), want.index, "{}", index.display());
        let time = path.with_extension("timeindex");
        assert_eq!(time_entries(&time), want.timeindex, "{}", time.display());
    }
}

/// 4.7: "The active segment rolls when the next batch would pass `segment.bytes`"
/// 4.7: "it is named by its first offset; its indexes are trimmed to their true size. Kafka's
/// rules, to the byte."
#[test]
fn segments_roll_at_segment_bytes_to_the_byte() {
    needs_fuse!();
    let bytes = plain(0..1).build().len();
    for (over, per_segment) in [(0, 4), (-1, 3), (1, 4)] {
        let limit = i64::try_from(4 * bytes).unwrap() + over;
        let mut mount = fresh(&format!("segment.bytes={limit} index.interval.bytes=0"));
        add_each(&mount, (0..9).map(|n| format!("v{n}")));
        // All of them are sealed but the last, whose indexes are trimmed by the unmount.
        let directory = stopped(&mut mount).join("t-0");
        let want = sized_layout(9, 1, per_segment);
        let mut segments = want.segments;
        let newest = (T0 + 8000, i32::try_from(8 % per_segment).unwrap());
        segments.last_mut().unwrap().timeindex.push(newest);
        segments.last_mut().unwrap().timeindex.dedup();
        assert_segments(&directory, &segments);
    }
}

/// 4.7: "when either index is full (`segment.index.bytes`)"
#[test]
fn segments_roll_when_an_index_is_full() {
    needs_fuse!();
    // Room for four entries of the offset index, or for four of the time index less one.
    for (index_bytes, batches_max) in [(32, 4), (60, 5)] {
        let settings = format!("index.interval.bytes=0 segment.index.bytes={index_bytes}");
        let mount = fresh(&settings);
        add_each(&mount, (0..20).map(|n| format!("v{n}")));
        let logs = files(&mount.t0().path("segments"), "log");
        let counts: Vec<usize> =
            logs.iter().map(|log| batches(&fs::read(log).unwrap()).len()).collect();
        assert!(counts.len() > 3, "{counts:?}");
        assert!(counts.iter().all(|count| *count <= batches_max), "{counts:?}");
        for log in &logs[..logs.len() - 1] {
            for extension in ["index", "timeindex"] {
                assert!(fs::metadata(log.with_extension(extension)).unwrap().len() <= index_bytes);
            }
        }
        assert_eq!(mount.t0().records(0..20), v(0..20));
    }
}

/// 4.7: "when the relative offset would not fit"
#[test]
fn segments_roll_when_the_relative_offset_is_too_large() {
    needs_fuse!();
    let mount = fresh("");
    let far = (1 << 31) + 5;
    add(&mount, "append.raw", plain(0..3).build());
    add(&mount, "append.raw", plain((1 << 31) - 1..1 << 31).build());
    add(&mount, "append.raw", plain(far..far + 2).build());
    let logs = files(&mount.t0().path("segments"), "log");
    assert_eq!(logs.iter().map(|path| base_of(path)).collect::<Vec<_>>(), [0, far]);
    assert_eq!(mount.t0().listed(), [0, 1, 2, (1 << 31) - 1, far, far + 1]);
}

/// 4.7: "or when `segment.ms` has passed"
#[test]
fn segments_roll_when_segment_ms_has_passed() {
    needs_fuse!();
    let mount = fresh("segment.ms=60000");
    for (seconds, value) in [(0, "a"), (60, "b"), (61, "c"), (100, "d"), (122, "e")] {
        let row = json!({"ts": T0 + seconds * 1000, "payload": value});
        add(&mount, "append.jsonl", format!("{row}\n"));
    }
    let logs = files(&mount.t0().path("segments"), "log");
    assert_eq!(logs.iter().map(|path| base_of(path)).collect::<Vec<_>>(), [0, 2, 4]);
}

/// 4.8: "The indexes of the active segment are preallocated to `segment.index.bytes` and mapped
/// read-write; those of sealed segments are trimmed and mapped read-only."
#[test]
fn indexes_are_preallocated_and_mapped() {
    needs_fuse!();
    let mount = fresh("segment.bytes=300 index.interval.bytes=0 segment.index.bytes=8200");
    add_each(&mount, (0..10).map(|n| format!("v{n}")));
    for n in 0..10 {
        assert_eq!(mount.t0().by_offset(n), format!("v{n}").as_str());
    }
    let directory = mount.source().join("t-0");
    let indexes = files(&directory, "index");
    let (active, sealed) = indexes.split_last().unwrap();
    assert_eq!(fs::metadata(active).unwrap().len(), 8200);
    assert_eq!(fs::metadata(active.with_extension("timeindex")).unwrap().len(), 8196);
    let maps = format!("/proc/{}/maps", mount.pid().as_raw_nonzero());
    let maps = fs::read_to_string(maps).unwrap();
    let mapped = |path: &Path| -> Vec<&str> {
        let path = path.display().to_string();
        let lines = maps.lines().filter(|line| line.ends_with(&path));
        lines.map(|line| line.split(' ').nth(1).unwrap()).collect()
    };
    assert_eq!(mapped(active), ["rw-s"]);
    for path in sealed {
        assert!(fs::metadata(path).unwrap().len() < 100, "{}", path.display());
        assert!(mapped(path).iter().all(|mode| *mode == "r--s"), "{}", path.display());
    }
}

/// A log of segments of ten records; the largest timestamp of each is so many ms old.
fn aged(ages_ms: &[i64]) -> Partition {
    let mut part = partition();
    let now = since_1970();
    for (age, n) in ages_ms.iter().zip(0..) {
        if n > 0 {
            part = part.roll(n * 10);
        }
        let values = n * 10..n * 10 + 10;
        let records = values.map(|at| rec(format!("v{at}")).at(now - age - 9 + at % 10)).collect();
        part = part.add(&batch(n * 10, records));
    }
    part
}

fn since_1970() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(since.as_millis()).unwrap()
}

fn wait_for_log_start(mount: &Mount, start: i64) {
    wait_for(Duration::from_secs(40), &format!("log start {start}"), || {
        mount.t0().number("log-start-offset") == start
    });
}

/// 4.11: "Retention and `segment.ms` work only by settings that were made here: by default nothing
/// is ever deleted."
#[test]
fn nothing_is_deleted_by_default() {
    needs_fuse!();
    let mount = writable_with(&[aged(&[9000 * HOUR, 8000 * HOUR, 7000 * HOUR])]);
    add(&mount, "append", "v30\n");
    assert_eq!(mount.t0().records(0..31), v(0..31));
    assert_eq!(files(&mount.source().join("t-0"), "log").len(), 3);
}

/// 4.11: "applied at mount, after a roll, when a property or the log start is set, and every 10 s"
#[test]
fn retention_by_age_takes_whole_segments() {
    needs_fuse!();
    let mut mount = writable_with(&[aged(&[5 * HOUR, 3 * HOUR + 60_000, 3 * HOUR - 60_000, 0])]);
    configure(&mount, "t-0", &format!("retention.ms={}", 3 * HOUR));
    assert_eq!(mount.t0().number("log-start-offset"), 20, "as soon as it is set");
    assert_eq!(mount.t0().by_offset("0.."), v_lines(20..40));
    configure(&mount, "t-0", "retention.ms=");
    let source = stopped(&mut mount);
    fs::write(source.join("t-0/config.offsetfs"), "retention.ms=3600000\n").unwrap();
    // Nobody writes to this log, and nobody reads it.
    let second = crate::support::written::writable(&source);
    wait_for(Duration::from_secs(5), "segments go at mount", || {
        files(&source.join("t-0"), "log").len() == 1
    });
    assert_eq!(second.t0().number("log-start-offset"), 30);
    assert_eq!(
        second.t0().records([19, 29, 30]),
        [ENOENT.into(), ENOENT.into(), got::bytes("v30")]
    );
}

/// 4.11: "Kafka's rules for which segments go, applied at mount, after a roll"
#[test]
fn retention_by_size_keeps_at_least_so_much() {
    needs_fuse!();
    let size = i64::try_from(plain(10..20).build().len()).unwrap();
    let mut part = partition();
    for n in 1..6 {
        part = if n > 1 { part.roll(n * 10) } else { crate::support::kafkalog::partition_from(10) };
        part = part.add(&plain(n * 10..n * 10 + 10));
    }
    let mount = writable_with(&[part]);
    configure(&mount, "t-0", &format!("retention.bytes={}", 4 * size + 1));
    assert_eq!(mount.t0().number("log-start-offset"), 10);
    configure(&mount, "t-0", &format!("retention.bytes={}", 2 * size));
    assert_eq!(mount.t0().number("log-start-offset"), 40);
    configure(&mount, "t-0", &format!("segment.bytes={size}"));
    add(&mount, "append.raw", plain(60..70).build());
    assert_eq!(mount.t0().number("log-start-offset"), 50, "as soon as it rolls");
    assert_eq!(mount.t0().by_offset("0.."), v_lines(50..70));
}

/// 4.11: "a largest timestamp more than a day ahead, or one in seconds, counts as the segment's
/// mtime, with a warning."
#[test]
fn timestamps_that_cannot_be_are_not_believed() {
    needs_fuse!();
    let now = since_1970();
    for (age, word) in [(-48 * HOUR, "future"), (now - now / 1000, "second")] {
        let mut first = writable_with(&[aged(&[age, 2 * HOUR, 0])]);
        let source = stopped(&mut first);
        let old = SystemTime::now() - Duration::from_hours(20);
        let log = files(&source.join("t-0"), "log").remove(0);
        let file = File::options().append(true).open(log).unwrap();
        file.set_times(FileTimes::new().set_modified(old)).unwrap();
        let mount = crate::support::written::writable(&source);
        configure(&mount, "t-0", &format!("retention.ms={}", 30 * HOUR));
        assert_eq!(mount.t0().number("log-start-offset"), 0, "{word}");
        configure(&mount, "t-0", &format!("retention.ms={HOUR}"));
        wait_for_log_start(&mount, 20);
        assert!(mount.stderr().to_lowercase().contains(word), "{}", mount.stderr());
    }
}

/// 2.9: "A file opened before retention took its records gives them, or EIO, never other bytes."
/// 2.9: "the size of an open file never shrinks"
#[test]
fn an_open_range_outlives_its_records() {
    needs_fuse!();
    let mount = writable_with(&[sized_layout(100, 10, 20)]);
    let whole = v_lines(0..100).bytes();
    let mut range = File::open(mount.t0().path("by-offset/0..")).unwrap();
    let mut record = File::open(mount.t0().path("by-offset/3")).unwrap();
    fs::write(mount.t0().path("log-start-offset"), "60\n").unwrap();
    assert_eq!(mount.t0().by_offset("0.."), v_lines(60..100));
    assert!(range.metadata().unwrap().size() >= whole.len() as u64);
    let mut bytes = Vec::new();
    let done = got::of(range.read_to_end(&mut bytes).map(|_| Vec::new()));
    assert!(whole.starts_with(&bytes), "{}", bytes.escape_ascii());
    assert!(done == got::EIO || bytes == whole, "{done:?} after {} bytes", bytes.len());
    let mut bytes = Vec::new();
    let done = got::of(record.read_to_end(&mut bytes).map(|_| Vec::new()));
    assert!(done == got::EIO || bytes == b"v3", "{done:?}, {}", bytes.escape_ascii());
}
