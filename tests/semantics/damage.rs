//! 6.1, 6.3: the bytes stop, the bytes are wrong, and what is said about it.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::needs_fuse;
use crate::support::got::{Got, error_of};
use crate::support::kafkalog::{
    self, Codec, Partition, batches, data_dir, flipped, hundred, partition, patched, plain,
    sized_layout,
};
use crate::support::mount::{Mount, v, v_lines};
use crate::support::{EIO, ENOENT, bytes, mount, offsetfs, out, scratch, sh, show, show_with};

const LOG: &str = "00000000000000000000.log";

/// The default layout with one bit of each of these batches flipped, in its last record's value.
fn flipped_in(which: &[usize]) -> Partition {
    hundred().with_log(|mut log| {
        let places = batches(&log);
        for place in which.iter().map(|n| places[*n].clone()) {
            let batch = flipped(log[place.clone()].to_vec(), place.len() - 2);
            log[place].copy_from_slice(&batch);
        }
        log
    })
}

/// Segment, position, bytes of a torn tail or of one stretch of damage.
fn place(found: &Value) -> (String, u64, u64) {
    let number = |name: &str| found[name].as_u64().unwrap_or_else(|| panic!("{name} in {found}"));
    (found["segment"].as_str().unwrap().to_string(), number("position"), number("bytes"))
}

fn long(n: usize) -> u64 {
    n as u64
}

/// 6.1: "*The bytes stop* is normal: whatever follows the last valid batch, when no believable
/// batch comes after it (torn, zeroed, half-written, junk), is a torn tail, and the log ends before
/// it."
/// 6.3: "`torn_tail` (`segment`, a file name; `position`; `bytes`; or null)"
#[test]
fn a_torn_tail_is_no_damage() {
    needs_fuse!();
    let last = plain(90..100).build();
    let tails: [Vec<u8>; 9] = [
        last[..1].to_vec(),
        last[..11].to_vec(),
        last[..17].to_vec(),
        last[..61].to_vec(),
        last[..last.len() - 1].to_vec(),
        vec![0; 100_000],
        [&last[..80], &[0; 5000][..]].concat(),
        b"J".repeat(77),
        flipped(last.clone(), 70),
    ];
    for tail in tails {
        let part = sized_layout(90, 10, 1000).add_bytes(&tail);
        let whole = long(part.segments[0].log.len() - tail.len());
        let mount = show(part);
        let shown = mount.t0();
        let about = format!("{} bytes: {}", tail.len(), tail[..tail.len().min(40)].escape_ascii());
        let want = [v(80..90), vec![ENOENT.into(); 11]].concat();
        assert_eq!(shown.records(80..101), want, "{about}");
        assert_eq!(shown.by_offset("85.."), v_lines(85..90), "{about}");
        assert_eq!(shown.number("log-end-offset"), 90, "{about}");
        let report = shown.report();
        let found = place(&report["torn_tail"]);
        assert_eq!(found, (LOG.to_string(), whole, long(tail.len())), "{about}");
        assert_eq!((&report["damage"], &report["log_end"]), (&Value::Array(vec![]), &90.into()));
    }
}

/// 6.1: "At the end of a closed segment it is a torn tail of that segment when the next one begins
/// at the expected offset, and ranges step over it."
#[test]
fn a_closed_segment_may_have_a_torn_tail() {
    needs_fuse!();
    let part = sized_layout(50, 10, 1000).add_bytes([0; 300]).roll(50).add(&plain(50..60));
    let mount = show(part);
    assert_eq!(mount.t0().by_offset("0.."), v_lines(0..60));
    assert_eq!(mount.t0().report()["damage"], Value::Array(vec![]));
}

/// 6.1: "*The bytes are wrong* is damage: EIO for the records inside the damaged batch only"
/// 6.1: "A damaged record has its name, size 0, and its `open` is EIO."
#[test]
fn a_wrong_bit_costs_one_batch() {
    needs_fuse!();
    let part = flipped_in(&[4]);
    let places = batches(&part.segments[0].log);
    let mount = show(part);
    let shown = mount.t0();
    let want = [v(0..40), vec![EIO.into(); 10], v(50..100), vec![ENOENT.into()]].concat();
    assert_eq!(shown.records(0..101), want);
    assert_eq!(error_of(File::open(shown.path("by-offset/45"))), "EIO");
    assert_eq!(shown.metadata("by-offset/45").size(), 0);
    assert_eq!(shown.listed(), (0..100).collect::<Vec<_>>());
    let damage = &shown.report()["damage"];
    let found = damage.as_array().unwrap();
    assert_eq!(found.len(), 1, "{damage}");
    let bytes = long(places[4].len());
    assert_eq!(place(&found[0]), (LOG.to_string(), long(places[4].start), bytes));
    assert_eq!((&found[0]["first_offset"], &found[0]["last_offset"]), (&40.into(), &49.into()));
    assert!(found[0]["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{damage}");
}

/// 6.1: "In a range one unreadable byte stands for each stretch of damage: reading it is EIO, so no
/// tool ends quietly, the size is exact, and what follows is read by position (`tail -c +N`, `dd
/// bs=1 conv=noerror`)"
#[test]
fn one_unreadable_byte_stands_for_damage() {
    needs_fuse!();
    for (damaged, before, after) in [(&[4][..], 0..40, 50..100), (&[4, 5, 6], 0..40, 70..100)] {
        let mount = show(flipped_in(damaged));
        let path = mount.t0().path("by-offset/0..");
        let before = v_lines(before).bytes();
        let after = v_lines(after).bytes();
        let hole = long(before.len());
        let file = File::open(&path).unwrap();
        assert_eq!(file.metadata().unwrap().len(), hole + 1 + long(after.len()));
        let at = |position: u64, size: usize| -> Got {
            let mut piece = vec![0; size];
            let read = file.read_at(&mut piece, position);
            crate::support::got::of(read.map(|size| piece[..size].to_vec()))
        };
        assert_eq!(at(0, before.len()), bytes(before.clone()));
        assert_eq!(at(hole, 1), EIO);
        assert_eq!(at(hole + 1, after.len()), bytes(after.clone()));
        let tail = sh("tail -c +$2 \"$1\"", &[path.as_os_str(), (hole + 2).to_string().as_ref()]);
        assert_eq!(tail.stdout, after);
        let dd = sh("dd conv=noerror bs=1 status=none < \"$1\"", &[&path]);
        assert_eq!(dd.stdout, [before.clone(), after].concat());
        let cat = sh("cat \"$1\"", &[&path]);
        assert!(!cat.status.success() && before.starts_with(&cat.stdout));
        assert!(!sh("cp \"$1\" /dev/null", &[&path]).status.success());
    }
}

/// 6.1: "a mapped page or a page-aligned read that contains the byte fails whole, never reads as
/// zeros"
#[test]
fn a_page_with_damage_fails_whole() {
    needs_fuse!();
    let mount = show(flipped_in(&[4]));
    let path = mount.t0().path("by-offset/0..");
    let file = File::open(&path).unwrap();
    assert_eq!(error_of(file.read_at(&mut vec![0; 4096], 0)), "EIO");
    if crate::support::has_tool("python3") {
        let program = "import mmap, sys
m = mmap.mmap(open(sys.argv[1], 'rb').fileno(), 0, prot=mmap.PROT_READ)
sys.stdout.buffer.write(m[:])";
        let done = sh("python3 -c \"$1\" \"$2\"", &[program.as_ref(), path.as_os_str()]);
        assert!(!done.status.success() && done.stdout.is_empty(), "{}", out(&done));
    }
}

/// 6.1: "`-o damage=skip` leaves damaged batches out of ranges instead (their records stay EIO)."
#[test]
fn damage_can_be_left_out() {
    needs_fuse!();
    let mount = show_with(flipped_in(&[4]), &["damage=skip"]);
    let shown = mount.t0();
    let all = [v_lines(0..40).bytes(), v_lines(50..100).bytes()].concat();
    assert_eq!(shown.metadata("by-offset/0..").size(), long(all.len()));
    assert_eq!(shown.by_offset("0.."), bytes(all));
    assert_eq!(
        shown.records([39, 40, 49, 50]),
        [bytes("v39"), EIO.into(), EIO.into(), bytes("v50")]
    );
}

/// 6.1: "A damaged record has its name, size 0, and its `open` is EIO."
///
/// Also in a batch whose checksum is right and whose content is not.
#[test]
fn records_that_cannot_be_decoded_are_listed() {
    needs_fuse!();
    let mut broken = plain(10..20).build();
    let end = broken.len();
    broken.truncate(end - 8);
    let size = i32::try_from(broken.len() - 12).unwrap();
    let broken = patched(broken, 8, &size.to_be_bytes());
    let mount = show(partition().add(&plain(0..10)).add_bytes(broken).add(&plain(20..30)));
    assert_eq!(mount.t0().listed(), (0..30).collect::<Vec<_>>());
    assert_eq!(
        (mount.t0().by_offset(19), mount.t0().metadata("by-offset/19").len()),
        (EIO.into(), 0)
    );
    assert_eq!(mount.t0().by_offset(20), "v20");
}

/// 6.1: "(where a length is broken: from the expected offset up to the next valid batch)"
/// 6.1: "everything before and after is readable"
#[test]
fn a_broken_length_costs_up_to_the_next_batch() {
    needs_fuse!();
    for length in [0_i32, -1, 13, 60, 200, 100_000, i32::MAX] {
        let part = hundred().with_log(|mut log| {
            let at = batches(&log)[3].start;
            log[at + 8..at + 12].copy_from_slice(&length.to_be_bytes());
            log
        });
        let mount = show(part);
        let want = [v(0..30), vec![EIO.into(); 10], v(40..100), vec![ENOENT.into()]].concat();
        assert_eq!(mount.t0().records(0..101), want, "length {length}");
    }
}

/// 6.1: "What Kafka's CRC does not cover (base offset, length, epoch, magic) is checked against the
/// neighbours; a wrong epoch alone is reported and the records are served."
#[test]
fn what_the_crc_does_not_cover_is_checked() {
    needs_fuse!();
    let with = |offset: usize, field: &[u8]| {
        hundred().with_log(|mut log| {
            let at = batches(&log)[3].start + offset;
            log[at..at + field.len()].copy_from_slice(field);
            log
        })
    };
    for base in [5_i64, 1_000_000, -1, i64::MAX] {
        let mount = show(with(0, &base.to_be_bytes()));
        let shown = mount.t0();
        assert_eq!(shown.records(0..30), v(0..30), "base offset {base}");
        assert_eq!(shown.records(40..100), v(40..100), "base offset {base}");
        for (n, got) in (30..40).zip(shown.records(30..40)) {
            assert!(got == EIO || got == bytes(format!("v{n}")), "{n} of base {base}: {got:?}");
        }
        assert_eq!(shown.by_offset(base), if base == 5 { bytes("v5") } else { ENOENT.into() });
    }
    let mount = show(with(16, &[9]));
    assert_eq!(mount.t0().records(30..40), vec![Got::from(EIO); 10], "magic 9");
    assert_eq!(mount.t0().records(40..100), v(40..100));
    let mount = show(with(12, &77_i32.to_be_bytes()));
    assert_eq!(mount.t0().records(0..100), v(0..100), "a wrong epoch");
}

/// 6.1: "EIO for the records inside the damaged batch only (where a length is broken: from the
/// expected offset up to the next valid batch)"
///
/// Of two batches that contradict each other, neither joining its neighbours, both are wrong, and
/// everyone says so: names, ranges, `cat` and the report.
#[test]
fn neither_of_two_contradicting_batches_is_believed() {
    needs_fuse!();
    let parts = [&[0, 30, 15, 50, 60][..], &[0, 30, 15]].map(|bases| {
        let mut part =
            bases.iter().fold(partition(), |part, base| part.add(&plain(*base..base + 10)));
        part.active().index.clear();
        part
    });
    let mount = show(parts[0].clone());
    let want = [v(0..10), vec![EIO.into(); 40], v(50..70)].concat();
    assert_eq!(mount.t0().records(0..70), want);
    let report = mount.t0().report();
    assert_eq!(report["damage"].as_array().map(Vec::len), Some(1), "{report}");
    let mount = show(parts[1].clone());
    let ends = [v(0..10), vec![ENOENT.into(); 30]].concat();
    assert_eq!(mount.t0().records(0..40), ends);
    assert_eq!((mount.t0().by_offset("0.."), mount.t0().listed().len()), (v_lines(0..10), 10));
    let printed = offsetfs(&[OsStr::new("cat"), mount.source().join("t-0").as_os_str()]);
    assert_eq!(bytes(out(&printed)), v_lines(0..10));
    assert_eq!(mount.t0().number("log-end-offset"), 10);
    let tail = mount.t0().report()["torn_tail"].clone();
    assert_eq!(tail["position"], plain(0..10).build().len(), "{tail}");
}

/// 6.4: "No input crashes, hangs or bloats the daemon"
///
/// A file system may say that a log has a terabyte of nothing; what lies behind is found at once.
#[test]
fn a_hole_of_a_terabyte_is_stepped_over() {
    needs_fuse!();
    let home = scratch();
    let source = data_dir(home.path().join("source"), &[hundred()]);
    let log = File::options().write(true).open(source.join("t-0").join(LOG)).unwrap();
    let valid = log.metadata().unwrap().len();
    log.set_len(1 << 40).unwrap();
    let begun = Instant::now();
    let holed = mount(&source).live_source().start();
    assert_eq!(holed.t0().records(98..101), [v(98..100), vec![ENOENT.into()]].concat());
    assert_eq!(holed.t0().by_offset("0.."), v_lines(0..100));
    assert_eq!(place(&holed.t0().report()["torn_tail"]).2, (1 << 40) - valid);
    drop(holed);
    log.write_all_at(&plain(110..120).build(), (1 << 40) - 5).unwrap();
    let holed = mount(&source).live_source().start();
    assert_eq!(holed.t0().records(99..101), [v(99..100), vec![EIO.into()]].concat());
    assert_eq!(holed.t0().records(110..120), v(110..120));
    assert!(begun.elapsed() < Duration::from_secs(5));
}

/// 6.1: "reading it is EIO, so no tool ends quietly"
/// 6.4: "No input crashes, hangs or bloats the daemon"
///
/// Every byte of a small log of all codecs is flipped in turn: a record may be right, or EIO, or
/// gone with a report that says so. It is never another one's bytes.
#[test]
fn no_flipped_byte_gives_wrong_data() {
    needs_fuse!();
    let codecs = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd, Codec::None];
    let mut part = partition();
    for (n, codec) in (0..).zip(codecs) {
        part = part.add(&plain(3 * n..3 * n + 3).codec(codec));
    }
    let log = part.segments[0].log.clone();
    let home = crate::support::scratch();
    let mut partitions = Vec::new();
    for at in 0..log.len() {
        let mut damaged = part.clone().named(&format!("flip-{at}"));
        damaged.active().log[at] ^= if at % 2 == 0 { 0x01 } else { 0x80 };
        partitions.push(damaged);
    }
    let source = crate::support::kafkalog::data_dir(home.path().join("source"), &partitions);
    let mut mount = crate::support::mount(&source).start();
    let mut wrong = Vec::new();
    for at in 0..log.len() {
        wrong.extend(wrong_answers(&mount, at));
        assert!(mount.runs(), "the daemon died of byte {at}: {}", mount.stderr());
    }
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong[..wrong.len().min(40)].join("\n")
    );
}

fn wrong_answers(mount: &Mount, at: usize) -> Vec<String> {
    let shown = mount.partition(&format!("flip-{at}"));
    let mut wrong = Vec::new();
    let mut gone = 0;
    for offset in 0..18 {
        match shown.by_offset(offset) {
            got if got == bytes(format!("v{offset}")) || got == EIO => {}
            got if got == ENOENT => gone += 1,
            got => wrong.push(format!("byte {at}, record {offset}: {got:?}")),
        }
    }
    for offset in 18..21 {
        if shown.by_offset(offset) != ENOENT {
            wrong.push(format!("byte {at}: record {offset} was never written"));
        }
    }
    let report = shown.report();
    let silent = report["torn_tail"].is_null() && report["damage"] == Value::Array(vec![]);
    if gone > 0 && silent {
        wrong.push(format!("byte {at}: {gone} records are gone, and the report is silent"));
    }
    if let Got::Bytes(all) = shown.by_offset("0..") {
        let lines = String::from_utf8_lossy(&all).into_owned();
        let mut expected = (0..18).map(|n| format!("v{n}"));
        let in_order = lines.lines().all(|line| expected.any(|value| value == line));
        if !in_order {
            wrong.push(format!("byte {at}: the range reads {lines:?}"));
        }
    }
    wrong
}

/// 6.4: "every length and count is checked before memory is taken"
#[test]
fn lying_lengths_inside_a_valid_batch_are_survived() {
    needs_fuse!();
    let batch = plain(10..20).build();
    let huge = [0xfe, 0xff, 0xff, 0xff, 0x0f];
    let lies = [
        patched(batch.clone(), 57, &i32::MAX.to_be_bytes()),
        patched(batch.clone(), 57, &(-1_i32).to_be_bytes()),
        patched(batch.clone(), 57, &0_i32.to_be_bytes()),
        patched(batch.clone(), 57, &11_i32.to_be_bytes()),
        patched(batch.clone(), 23, &i32::MAX.to_be_bytes()),
        patched(batch.clone(), 23, &(-5_i32).to_be_bytes()),
        patched(batch.clone(), 61, &huge),
        patched(batch.clone(), 62, &huge),
        patched(batch.clone(), 65, &huge),
        patched(batch.clone(), 27, &i64::MAX.to_be_bytes()),
    ];
    for (n, lie) in lies.into_iter().enumerate() {
        let part = partition().add(&plain(0..10)).add_bytes(lie).add_bytes(plain(20..30).build());
        let mut mount = show(part);
        let shown = mount.t0();
        assert_eq!(shown.records(0..10), v(0..10), "lie {n}");
        for (offset, got) in (10..20).zip(shown.records(10..20)) {
            let fine = got == EIO || got == ENOENT || got == bytes(format!("v{offset}"));
            assert!(fine, "lie {n}, record {offset}: {got:?}");
        }
        shown.by_offset("0..");
        shown.by_offset("0...jsonl");
        shown.names("by-time");
        assert!(mount.runs(), "lie {n}");
    }
}

/// 5.3: "An index is a hint"
/// 6.1: "*The bytes stop* is normal"
#[test]
fn a_log_may_be_shorter_than_its_index() {
    needs_fuse!();
    let part = hundred().with_log(|mut log| {
        log.truncate(batches(&log)[5].start);
        log
    });
    let mount = show(part);
    assert_eq!(mount.t0().records(0..101), [v(0..50), vec![ENOENT.into(); 51]].concat());
    assert_eq!(mount.t0().by_offset("45.."), v_lines(45..50));
}

/// 6.3: "`missing` (a list of `first_offset`, `last_offset`, and `why`: `damage`, `segment` (lost),
/// or `hole` (perhaps compacted))"
#[test]
fn what_is_missing_is_named() {
    needs_fuse!();
    let mount = show(partition().add(&plain(0..10)).roll(20).add(&plain(20..30)));
    assert_eq!(
        mount.t0().by_offset("0.."),
        crate::support::lines((0..10).chain(20..30).map(|n| format!("v{n}")))
    );
    let report = mount.t0().report();
    let missing = report["missing"].as_array().unwrap();
    assert_eq!(missing.len(), 1, "{report}");
    assert_eq!((&missing[0]["first_offset"], &missing[0]["last_offset"]), (&10.into(), &19.into()));
    let why = missing[0]["why"].as_str().unwrap();
    assert!(["segment", "hole"].contains(&why), "{report}");
    let mut part = [0, 20, 40].into_iter().fold(partition(), |part, n| part.add(&plain(n..n + 10)));
    part.active().index.clear();
    let mount = show(part.with_log(|mut log| {
        let end = batches(&log)[1].end;
        log[end - 2] ^= 1;
        log
    }));
    let report = mount.t0().report();
    let missing = report["missing"].as_array().unwrap().iter();
    let whys: Vec<_> =
        missing.map(|m| (&m["first_offset"], &m["last_offset"], &m["why"])).collect();
    let want = [(10, 19, "hole"), (20, 29, "damage"), (30, 39, "hole")];
    let want = want.map(|(first, last, why)| (first.into(), last.into(), why.into()));
    let want: [(Value, Value, Value); 3] = want;
    assert_eq!(whys, want.iter().map(|(a, b, c)| (a, b, c)).collect::<Vec<_>>());
}

/// 6.3: "`log_start`, `log_end`, `torn_tail`"
#[test]
fn a_sound_partition_reports_nothing_wrong() {
    needs_fuse!();
    let mount = show(hundred());
    let report = mount.t0().report();
    assert_eq!((&report["log_start"], &report["log_end"]), (&0.into(), &100.into()));
    assert_eq!(report["torn_tail"], Value::Null);
    assert_eq!(report["damage"], Value::Array(vec![]));
    for field in ["missing", "indexes", "timestamps", "leftovers", "shadowed"] {
        assert!(report.get(field).is_some(), "{field} in {report}");
    }
}

/// 6.3: "state of each index"
#[test]
fn wrong_indexes_are_reported() {
    needs_fuse!();
    let mount = show(hundred());
    let fine = mount.t0().report()["indexes"].to_string();
    let mut part = hundred();
    part.active().index.clear();
    part.active().timeindex.clear();
    let padded = part.extra("00000000000000000000.index", [0; 10_240]);
    let mount = show(padded);
    assert_eq!(mount.t0().by_offset("0.."), v_lines(0..100));
    assert_ne!(mount.t0().report()["indexes"].to_string(), fine);
}

/// A batch of ten whose record `bad` is no record, with the right checksum.
fn broken_at(base_offset: i64, bad: usize, codec: Codec) -> kafkalog::Batch {
    let mut batch = plain(base_offset..base_offset + 10).codec(codec);
    // A record of one byte, which has no room for its fields.
    batch.records[bad].raw = Some(vec![2, 0]);
    batch
}

/// 6.1: "*The bytes are wrong* is damage: EIO for the records inside the damaged batch only"
/// 6.1: "In a range one unreadable byte stands for each stretch of damage"
/// 6.1: "`-o damage=skip` leaves damaged batches out of ranges instead (their records stay EIO)."
///
/// An invalid record in a batch with the right checksum once made a range EIO to its end, and the
/// records before it were shown by name and by `cat`, but counted out of the range's size. In all
/// views the records before it are served, and the rest of its batch is damage.
#[test]
fn an_invalid_record_costs_the_rest_of_its_batch_in_every_view() {
    needs_fuse!();
    for codec in [Codec::None, Codec::Gzip] {
        for bad in [0, 3, 9] {
            let part = || {
                let part = partition().add(&plain(0..10)).add(&broken_at(10, bad, codec.clone()));
                part.add(&broken_at(20, bad, codec.clone())).add(&plain(30..40))
            };
            let good = i64::try_from(bad).unwrap();
            let pieces =
                [v_lines(0..10 + good), v_lines(20..20 + good), v_lines(30..40)].map(Got::bytes);
            let skipped = show_with(part(), &["damage=skip"]);
            let shown = skipped.t0();
            assert_eq!(shown.by_offset("0.."), bytes(pieces.concat()), "{bad}");
            assert_eq!(shown.metadata("by-offset/0..").size(), long(pieces.concat().len()));
            assert_eq!(shown.by_offset("35.."), v_lines(35..40));
            assert_eq!(shown.by_offset("29..32"), v_lines(30..32));
            drop(shown);
            drop(skipped);

            let mount = show(part());
            let shown = mount.t0();
            let eio = |count| vec![Got::from(EIO); usize::try_from(count).unwrap()];
            let want =
                [v(0..10 + good), eio(10 - good), v(20..20 + good), eio(10 - good), v(30..40)];
            assert_eq!(shown.records(0..40), want.concat(), "{bad}");
            let file = File::open(shown.path("by-offset/0..")).unwrap();
            // Adjacent stretches are one byte.
            let holes = if bad == 0 { 1 } else { 2 };
            let size = file.metadata().unwrap().size();
            assert_eq!(size, long(pieces.concat().len()) + holes, "{bad}");
            let read: Vec<Option<u8>> = (0..size)
                .map(|at| {
                    let mut byte = [0];
                    file.read_at(&mut byte, at).ok().map(|count| byte[..count][0])
                })
                .collect();
            let some = |piece: &[u8]| piece.iter().copied().map(Some).collect::<Vec<_>>();
            let mut want = [some(&pieces[0]), vec![None], some(&pieces[1])].concat();
            want.extend((bad > 0).then_some(None));
            want.extend(some(&pieces[2]));
            assert!(read == want, "{bad}: {read:?}");
            let damage = shown.report()["damage"].clone();
            let first = &damage.as_array().unwrap()[0];
            assert_eq!(
                first["last_offset"].as_i64().map(|last| last >= 19),
                Some(true),
                "{damage}"
            );
        }
    }
}

/// 6.1: "everything before and after is readable"
///
/// The last offset of a batch is under its checksum, but may be a lie all the same: a batch that
/// claimed 2^31 offsets once hid all batches behind it.
#[test]
fn a_batch_that_claims_the_offsets_of_others_does_not_hide_them() {
    needs_fuse!();
    for claimed in [i32::MAX, 1000, 25, 10] {
        for behind in [1, 2, 5] {
            let mut liar = plain(10..20);
            liar.last_delta = Some(claimed);
            if behind == 1 && claimed < 25 {
                continue; // As well the next one's base offset may be wrong.
            }
            let end = 20 + 10 * behind;
            let mut part = partition().add(&plain(0..10));
            part = part.add_bytes(liar.build());
            for base in (20..end).step_by(10) {
                part = part.add_bytes(plain(base..base + 10).build());
            }
            let mount = show(part);
            let shown = mount.t0();
            let about = format!("{claimed}, {behind} batches behind");
            let want = [v(0..10), vec![EIO.into(); 10], v(20..end), vec![ENOENT.into()]].concat();
            assert_eq!(shown.records(0..=end), want, "{about}");
            assert_eq!(shown.number("log-end-offset"), end, "{about}");
            assert_eq!(shown.report()["torn_tail"], Value::Null, "{about}");
        }
    }
}

/// 6.1: "*The bytes are wrong* is damage"
///
/// Inner messages out of order once gave offsets beyond the log end.
#[test]
fn a_legacy_wrapper_out_of_order_is_damage() {
    needs_fuse!();
    for magic in [0, 1] {
        let (first, last) = if magic == 0 { (10, 12) } else { (0, 2) };
        for order in [[first, last + 50, last], [last, first + 1, first], [first, last, last]] {
            let inner = order.map(|n| kafkalog::message(magic, n, None, Some(b"x"), 1, 0)).concat();
            let packed = kafkalog::gzip(&inner);
            let wrapper = kafkalog::message(magic, 12, None, Some(&packed), 1, 1);
            let before = kafkalog::legacy(magic, 0..10, &Codec::None);
            let behind = kafkalog::legacy(magic, 13..20, &Codec::None);
            let mount = show(partition().add_bytes([before, wrapper, behind].concat()));
            let shown = mount.t0();
            let want = [v(0..10), vec![EIO.into(); 3], v(13..20), vec![ENOENT.into()]].concat();
            assert_eq!(shown.records(0..21), want, "magic {magic}, {order:?}");
            assert_eq!(shown.number("log-end-offset"), 20);
        }
    }
}
