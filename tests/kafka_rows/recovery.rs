//! Rows about loading a log, in order and after a crash.

use std::fs;

use offsetfs::engine::data_dir::DataDir;
use offsetfs::engine::options::ReadOptions;

use crate::home::{Home, one};
use crate::support::kafkalog::{
    Batch, Partition, T0, batches, marker, partition, partition_from, plain,
};
use crate::support::scratch;

/// Bytes without a meaning, the same each time.
fn junk(seed: u64, count: usize) -> Vec<u8> {
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random.to_be_bytes()[3]
    };
    std::iter::repeat_with(next).take(count).collect()
}

/// A log of one-record batches, ten milliseconds apart, with a few in a segment.
fn many(count: i64, settings: &str) -> Home {
    let mut home = Home::new(&partition(), settings);
    for n in 0..count {
        home.follow(&one(n, T0 + 10 * n));
    }
    home.close();
    home
}

fn assert_all_there(home: &mut Home, count: i64) {
    assert_eq!(home.log_end(), count);
    for n in 0..count {
        assert_eq!(home.value(n), Some(format!("v{n}")));
        assert_eq!(home.at_time(T0 + 10 * n).map(|(_, at, _)| at), Some(n), "by time");
    }
}

/// kafka-behaviours row 43 (`LogSegmentTest.testRecoveryFixesCorruptIndex`): "100 messages,
/// `.index` overwritten with junk from byte 5; recover; read each offset: every offset found".
#[test]
fn recovery_mends_an_index_of_junk() {
    for seed in 0..5 {
        let home = many(100, "index.interval.bytes=0");
        let sound = fs::read(home.file(0, "index")).unwrap();
        let bad = [&sound[..5], &junk(seed, sound.len())].concat();
        fs::write(home.file(0, "index"), bad).unwrap();
        let mut home = home.unclean(0);
        home.load();
        assert_all_there(&mut home, 100);
        home.close();
        assert!(fs::read(home.file(0, "index")).unwrap() == sound, "as it was");
    }
}

/// kafka-behaviours row 46 (`LogSegmentTest.testRecoveryWithCorruptMessage`): "20 one-message
/// batches; junk written from inside the k-th batch's first 15 bytes to the end (k random);
/// recover: exactly batches 0...k-1 remain".
#[test]
fn recovery_ends_before_the_first_bad_batch() {
    for k in 0..20 {
        for skip in [0, 1, 7, 8, 11, 12, 14] {
            let mut home = many(20, "index.interval.bytes=0");
            let path = home.file(0, "log");
            let mut log = fs::read(&path).unwrap();
            let from = batches(&log)[k].start + skip;
            let bad = junk(k as u64 * 20 + skip as u64, log.len() - from);
            log[from..].copy_from_slice(&bad);
            fs::write(&path, log).unwrap();
            home = home.unclean(0);
            home.load();
            let left = i64::try_from(k).unwrap();
            assert_eq!(home.offsets(), (0..left).collect::<Vec<_>>(), "{k}, byte {skip}");
            assert_eq!(home.log_end(), left);
        }
    }
}

/// kafka-behaviours row 110 (`LogLoaderTest.testLogRecoveryIsCalledUponBrokerCrash`): "marker
/// `.kafka_cleanshutdown` present; then load again without it: first load is clean and the marker
/// is gone afterwards; second load is unclean". Our marker goes before the first byte is written.
/// What one partition meets is its own affair.
#[test]
fn a_crash_is_told_by_the_missing_marker() {
    let marker = |home: &Home| home.root().join(".kafka_cleanshutdown").exists();
    let clean = |home: &mut Home| home.data_dir().shared().access.as_ref().unwrap().was_clean();
    let mut home = Home::new(&partition().add(&plain(0..1)), "");
    assert!(marker(&home) && clean(&mut home));
    home.follow(&plain(1..2));
    assert!(!marker(&home));
    home.crash();
    assert!(!clean(&mut home) && !marker(&home));
    home.load();
    home.close();
    assert!(marker(&home) && clean(&mut home));
}

/// kafka-behaviours row 111 (`LogLoaderTest.testIndexRebuild`): "segment.bytes 200, index interval
/// 1; 200 records, ts t + 10i; all `.index` and `.timeindex` deleted; load unclean: LEO 200;
/// indexes non-empty; each offset readable; searching ts t + 10i gives i".
/// kafka-behaviours row 112 (`LogLoaderTest.testCorruptIndexRebuild`): "same, but every index file
/// overwritten with two spaces: same result".
#[test]
fn indexes_that_are_gone_or_wrong_are_made_anew() {
    for overwritten in [false, true] {
        let home = many(200, "segment.bytes=200 index.interval.bytes=1");
        for suffix in ["index", "timeindex"] {
            let files = home.files(suffix);
            assert!(files.len() > 50);
            for base in files {
                let path = home.file(base, suffix);
                if overwritten { fs::write(path, "  ") } else { fs::remove_file(path) }.unwrap();
            }
        }
        let mut home = home.unclean(0);
        home.load();
        assert_all_there(&mut home, 200);
        let bases = home.bases();
        home.close();
        for base in bases {
            assert!(home.size_of(base, "index") > 0 && home.size_of(base, "timeindex") > 0);
        }
    }
}

/// kafka-behaviours row 113 (`LogLoaderTest.testBogusIndexSegmentsAreRemoved`): "`.index` and
/// `.timeindex` named 5 with no `.log`; load an empty log: files of 5 deleted; those of 0 created
/// with full preallocated length on use".
#[test]
fn indexes_without_a_log_do_no_harm() {
    let settings = "segment.bytes=80 index.interval.bytes=1 segment.index.bytes=240";
    for clean in [true, false] {
        let mut home = Home::new(&partition(), settings);
        home.load();
        home.close();
        for suffix in ["index", "timeindex", "txnindex"] {
            fs::write(home.file(5, suffix), junk(5, 680)).unwrap();
        }
        if !clean {
            home = home.unclean(0);
        }
        home.load();
        for (suffix, bytes) in [("index", 240), ("timeindex", 240)] {
            assert_eq!(home.files(suffix), [0], "{suffix}");
            assert_eq!(home.size_of(0, suffix), bytes, "{suffix}");
        }
        assert_eq!(home.files("txnindex"), [0; 0]);
        for n in 0..8 {
            home.follow(&one(n, T0 + 10 * n));
        }
        assert_eq!(home.bases(), (0..8).collect::<Vec<_>>());
        assert_all_there(&mut home, 8);
    }
}

/// kafka-behaviours row 114 (`LogLoaderTest.testCorruptLog`): "50-99 records; up to 1024 junk bytes
/// added to the active `.index` and `.log`; recovery point 50; load unclean: LEO and all records as
/// before the junk".
#[test]
fn junk_behind_log_and_index_is_cut() {
    for (seed, count) in (0..10).zip((50..100).step_by(5)) {
        let home = many(count, "segment.bytes=1000 index.interval.bytes=1");
        let active = *home.files("log").last().unwrap();
        for suffix in ["log", "index"] {
            let path = home.file(active, suffix);
            let more = junk(seed, 1 + usize::try_from(seed).unwrap() * 113);
            fs::write(&path, [fs::read(&path).unwrap(), more].concat()).unwrap();
        }
        let mut home = home.unclean(50);
        home.load();
        assert_all_there(&mut home, count);
        home.follow(&one(count, T0 + 10 * count));
        assert_all_there(&mut home, count + 1);
    }
}

/// A log whose middle segment, 10 to 20, is being replaced by two, as a crash may leave it: with
/// these states of the new files, and with the old ones there or not.
fn split(first: &str, second: &str, old_there: bool) -> Home {
    let part = |from: i64, to: i64| {
        (from..to).fold(partition_from(from), |part, n| part.add(&one(n, T0 + 10 * n)))
    };
    let bases: &[i64] = if old_there { &[0, 10, 20] } else { &[0, 20] };
    let mut whole: Partition = partition();
    whole.segments.clear();
    for base in bases {
        whole.segments.extend(part(*base, base + 10).segments);
    }
    for (from, to, state) in [(10, 15, first), (15, 20, second)] {
        let scratch = scratch();
        let directory = part(from, to).write(scratch.path());
        for suffix in ["log", "index", "timeindex"] {
            let bytes = fs::read(directory.join(format!("{from:020}.{suffix}"))).unwrap();
            whole = whole.extra(&format!("{from:020}.{suffix}{state}"), bytes);
        }
    }
    Home::new(&whole, "").unclean(0)
}

/// kafka-behaviours row 115 (`LogLoaderTest.testRecoveryAfterCrashDuringSplitPhase1`): "oversized
/// segment split in two; state left as: all new `.cleaned`; last new `.swap`, others `.cleaned`;
/// all `.swap` with the old files back; all `.swap` with the old gone; only the last still `.swap`:
/// in every case all keys present". Kafka splits again what it finds whole; ours need not.
#[test]
fn a_crash_while_a_segment_is_replaced_loses_nothing() {
    for (number, first, second, old_there, bases) in [
        (1, ".cleaned", ".cleaned", true, &[0, 10, 20][..]),
        (2, ".cleaned", ".swap", true, &[0, 10, 20]),
        (3, ".swap", ".swap", true, &[0, 10, 15, 20]),
        (4, ".swap", ".swap", false, &[0, 10, 15, 20]),
        (5, "", ".swap", false, &[0, 10, 15, 20]),
    ] {
        let mut home = split(first, second, old_there);
        home.load();
        assert_eq!(home.bases(), bases, "phase {number}");
        assert_all_there(&mut home, 30);
        home.follow(&one(30, T0 + 300));
        home.close();
        assert_all_there(&mut home, 31);
    }
}

/// What took the place of a segment, and what it took the place of, go together. They did not: the
/// files were sought under the names of the old segment, which were then gone, and after the next
/// mount the records that had been deleted were back.
#[test]
fn retention_takes_a_replacement_and_what_it_replaced() {
    for (first, old_there) in [(".swap", true), (".swap", false), ("", false)] {
        let mut home = split(first, ".swap", old_there);
        home.load();
        let now = home.now();
        home.write(|writer| writer.raise_log_start(crate::home::offset(20), now)).unwrap();
        assert_eq!((home.bases(), home.log_end()), (vec![20], 30));
        home.close();
        assert_eq!((home.bases(), home.offsets()), (vec![20], (20..30).collect()), "{first}");
        assert_eq!(home.files("swap"), [0; 0]);
    }
}

/// The same for a cut: what had been replaced must not come back behind it.
#[test]
fn a_cut_in_a_replacement_brings_nothing_back() {
    let mut home = split(".swap", ".swap", true);
    home.truncate(7);
    home.follow(&one(7, T0 + 70));
    home.close();
    assert_all_there(&mut home, 8);
    let mut home = split(".swap", ".swap", true);
    home.truncate(12);
    assert_eq!(home.offsets(), (0..12).collect::<Vec<_>>());
}

/// The transactions of four producers, with plain records between them.
fn transactions() -> Vec<Batch> {
    let in_txn = |producer, first: i64, last: i64| plain(first..last + 1).producer(producer);
    vec![
        in_txn(1, 0, 4),
        plain(5..8),
        in_txn(2, 8, 9),
        in_txn(1, 10, 13),
        in_txn(3, 14, 16),
        plain(17..19),
        in_txn(1, 19, 28),
        marker(29, false, 1),
        in_txn(2, 30, 35),
        in_txn(4, 36, 38),
        plain(39..49),
        in_txn(3, 49, 57),
        marker(58, true, 3),
        in_txn(4, 59, 66),
        in_txn(2, 67, 73),
        marker(74, false, 2),
        plain(75..85),
        in_txn(4, 85, 88),
        marker(89, true, 4),
    ]
}

/// kafka-behaviours row 117 (`LogLoaderTest.testFullTransactionIndexRecovery`): "small segments;
/// all `.index` and `.txnindex` deleted; load unclean: entries (1, 0, 29, LSO 8), (2, 8, 74, LSO
/// 36)".
#[test]
fn transaction_indexes_are_made_anew() {
    let mut home = Home::new(&partition(), "segment.bytes=500");
    for batch in transactions() {
        home.follow(&batch);
    }
    let wanted = [(1, 0, 29, 8), (2, 8, 74, 36)];
    assert_eq!(home.aborted(), wanted, "as it was written");
    assert!(home.bases().len() > 3);
    home.close();
    for suffix in ["index", "txnindex"] {
        for base in home.files(suffix) {
            fs::remove_file(home.file(base, suffix)).unwrap();
        }
    }
    let mut home = home.unclean(0);
    home.load();
    assert_eq!((home.aborted(), home.log_end()), (wanted.to_vec(), 90));
}

/// kafka-behaviours row 118 (`LogLoaderTest.testLogEndLessThanStartAfterReopen`): "5 x (record,
/// roll): 6 segments; log start 4; the second segment's file replaced by the text `corruptRecord`;
/// load unclean: one segment 4; log start = LEO = 4; all three files exist".
#[test]
fn a_log_that_ends_before_its_start_begins_there() {
    let part = (0..5).fold(partition(), |part, n| part.add(&plain(n..n + 1)).roll(n + 1));
    let mut home = Home::new(&part.log_start(4), "").unclean(0);
    assert_eq!(home.bases(), [0, 1, 2, 3, 4, 5]);
    home.crash();
    fs::write(home.file(1, "log"), "corruptRecord").unwrap();
    home.load();
    let state = home.state();
    assert_eq!((state.log_start.get(), state.log_end.get(), home.bases()), (4, 4, vec![4]));
    for suffix in ["log", "index", "timeindex"] {
        assert_eq!(home.files(suffix), [4], "{suffix}");
    }
    home.lead("again\n");
    assert_eq!(home.records(), [(4, "again".to_owned())]);
}

/// kafka-behaviours row 119 (`LogLoaderTest.testLogRecoversToCorrectOffset`): "100 records, ~7 per
/// segment; closed; load unclean with recovery point 100; with 10; then flush: LEO 100, same last
/// index entries; recovery point 100; 10 (not advanced by loading); 100 after the flush".
#[test]
fn loading_does_not_advance_the_recovery_point() {
    let mut home = many(100, "segment.bytes=550 index.interval.bytes=1");
    let bases = home.bases();
    assert!((13..17).contains(&bases.len()), "{bases:?}");
    let last = *bases.last().unwrap();
    let entries = (home.offset_entries(last), home.time_entries(last));
    for point in [100, 10] {
        home = home.unclean(point);
        home.load();
        assert_eq!((home.recovery_point(), home.log_end()), (point, 100));
        assert_eq!((home.offset_entries(last), home.time_entries(last)), entries);
        assert_eq!(home.bases(), bases);
    }
    let now = home.now();
    home.write(|writer| writer.sync(now)).unwrap();
    assert_eq!(home.recovery_point(), 100);
}

/// The recovery point stayed where it was when the log was cut before it. What was appended then
/// was taken to be on the disk already, so a segment that rolled below it was never synced.
#[test]
fn a_cut_takes_the_recovery_point_with_it() {
    let home = many(20, "");
    let path = home.file(0, "log");
    let mut log = fs::read(&path).unwrap();
    let bad = batches(&log)[12].start;
    log[bad + 70] ^= 1;
    fs::write(&path, log).unwrap();
    let mut home = home.unclean(15);
    assert_eq!((home.recovery_point(), home.log_end()), (12, 12));
}

/// kafka-behaviours row 120 (`LogLoaderTest.testRecoverWithEmptyActiveSegment`): "100 records,
/// roll, flush: the active segment has no `.index` file; load unclean with recovery point 100: LEO
/// 100, active segment empty with 0 time entries, its index file now exists".
#[test]
fn an_empty_active_segment_gets_its_indexes() {
    let part = (0..100).fold(partition(), |part, n| part.add(&one(n, T0 + 10 * n))).roll(100);
    let mut home = Home::new(&part, "").unclean(100);
    for suffix in ["index", "timeindex"] {
        fs::remove_file(home.file(100, suffix)).unwrap();
    }
    home.load();
    assert_all_there(&mut home, 100);
    assert_eq!((home.bases(), home.size_of(100, "log")), (vec![0, 100], 0));
    assert_eq!((home.time_entries(100), home.files("index")), (vec![], vec![0, 100]));
}

/// kafka-behaviours row 122 (`UnifiedLogTest.testLogReinitializeAfterManualDelete`): "empty
/// directory, log-start checkpoint 500; load: log start 500, LEO 500".
#[test]
fn a_directory_that_was_emptied_goes_on_at_its_log_start() {
    let mut part = partition().log_start(500);
    part.segments.clear();
    part.epochs.clear();
    let mut home = Home::new(&part, "");
    let data = DataDir::new(home.root(), None, ReadOptions::default());
    let seen = data.log("t-0".as_ref()).unwrap().unwrap().state().unwrap();
    assert_eq!((seen.log_start.get(), seen.log_end.get()), (500, 500), "read-only");
    let state = home.load();
    assert_eq!((state.log_start.get(), state.log_end.get()), (500, 500));
    home.lead("first\n");
    assert_eq!((home.bases(), home.records()), (vec![500], vec![(500, "first".to_owned())]));
}
