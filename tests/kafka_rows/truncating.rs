//! Rows about truncation: what `offsetfs truncate` leaves of a segment and its indexes.

use crate::home::{Home, one, untimed};
use crate::support::kafkalog::{T0, batch, marker, partition, partition_from, plain, rec};

/// kafka-behaviours row 27 (`OffsetIndexTest.truncate`): "base 0, room for 10; entries (i, i) for
/// 1...9; truncate to 12; add 10 and truncate to 10; add 10 and truncate to 9; add 9 and truncate
/// to 5; full truncate: last offset 9; 9; 8; 4; then no entries".
#[test]
fn an_offset_index_ends_before_the_cut() {
    let mut home = Home::new(&partition(), "index.interval.bytes=0");
    let bytes = untimed(1).build().len() as u64;
    for at in 0..10 {
        home.follow(&untimed(at));
    }
    for (add, target, last) in [(None, 12, 9), (Some(10), 10, 9), (Some(10), 9, 8), (Some(9), 5, 4)]
    {
        if let Some(at) = add {
            home.follow(&untimed(at));
        }
        home.truncate(target);
        let entries = home.offset_entries(0);
        let wanted: Vec<(i64, u64)> =
            (1..=last).map(|at: i64| (at, at.cast_unsigned() * bytes)).collect();
        assert_eq!(entries, wanted, "truncated to {target}");
        home.load();
    }
    home.truncate(0);
    assert_eq!(home.offset_entries(0), []);
}

/// kafka-behaviours row 31 (`TimeIndexTest.testTruncate`): "29 entries; truncate to offset 55: 0
/// entries left (the first entry's offset is 55)".
#[test]
fn a_time_index_ends_before_the_cut() {
    let mut home = Home::new(&partition_from(45), "index.interval.bytes=0");
    home.follow(&untimed(45));
    for i in 1..30 {
        home.follow(&one(45 + 10 * i, 10 * i));
    }
    let whole = home.time_entries(45);
    assert_eq!((whole.len(), whole[0]), (29, (10, 55)));
    home.truncate(66);
    assert_eq!((home.time_entries(45), home.offsets()), (whole[..2].to_vec(), vec![45, 55, 65]));
    home.truncate(55);
    assert_eq!((home.time_entries(45), home.offsets()), (vec![], vec![45]));
}

/// kafka-behaviours row 33 (`TransactionIndexTest.testTruncate`): "truncate to 51; to 50; reset:
/// all 4; first 3; none".
/// kafka-behaviours row 35 (`TransactionIndexTest.testLastOffsetMustIncrease`,
/// `testLastOffsetCannotDecrease`): "entry with last offset 15; append last offset 15; append last
/// offset 10: error for both". The marker is refused, so its entry is never made.
#[test]
fn a_transaction_index_ends_before_the_cut() {
    let mut home = Home::new(&partition(), "");
    for (producer, first, aborted) in [(0, 0, 10), (1, 11, 15), (2, 18, 35), (3, 36, 50)] {
        home.follow(&plain(first..first + 1).producer(producer));
        home.follow(&marker(aborted, false, producer));
    }
    let all = home.aborted();
    assert_eq!(all, [(0, 0, 10, 11), (1, 11, 15, 16), (2, 18, 35, 36), (3, 36, 50, 51)]);
    for at in [50, 45] {
        assert!(home.raw(&marker(at, false, 3).build()).is_err());
    }
    assert_eq!(home.aborted(), all);
    for (target, left) in [(51, 4), (50, 3), (0, 0)] {
        home.truncate(target);
        assert_eq!(home.aborted(), all[..left], "truncated to {target}");
    }
}

/// kafka-behaviours row 40 (`LogSegmentTest.shouldTruncateEvenIfOffsetPointsToAGapInTheLog`):
/// "records at 40 and 43; truncate to 41: only 40 remains".
#[test]
fn a_cut_in_a_gap_takes_what_is_behind_it() {
    let mut home = Home::new(&partition_from(40).add(&plain(40..41)).add(&plain(43..44)), "");
    home.truncate(41);
    assert_eq!((home.offsets(), home.log_end()), (vec![40], 41));
}

/// kafka-behaviours row 41 (`LogSegmentTest.testTruncateFull`): "records 40, 41, 500 ms after
/// creation; truncate to 0; append 40, 41 again: waited time goes 500 -> 0; indexes not full;
/// empty; append works".
#[test]
fn an_emptied_segment_begins_to_wait_anew() {
    let mut home = Home::new(&partition_from(40), "segment.ms=400 index.interval.bytes=0");
    home.follow(&untimed(40));
    home.follow(&untimed(41));
    home.clock += 500;
    home.truncate(40);
    assert_eq!((home.log_end(), home.offsets(), home.size_of(40, "log")), (40, vec![], 0));
    assert_eq!((home.offset_entries(40), home.time_entries(40)), (vec![], vec![]));
    home.follow(&untimed(40));
    home.clock += 400;
    home.follow(&untimed(41));
    assert_eq!((home.bases(), home.offsets()), (vec![40], vec![40, 41]));
    home.clock += 1;
    home.follow(&untimed(42));
    assert_eq!(home.bases(), [40, 42], "it did wait");
}

/// kafka-behaviours row 42 (`LogSegmentTest.testTruncateEmptySegment`), the index part: "empty
/// segment base 0, closed and reopened; truncate to 57: index files 0 bytes after close, not full
/// after truncation".
#[test]
fn indexes_of_an_empty_segment_are_empty_files() {
    let mut home = Home::new(&partition(), "segment.index.bytes=240");
    home.load();
    home.close();
    for suffix in ["index", "timeindex"] {
        assert_eq!(home.size_of(0, suffix), 0, "{suffix}");
    }
    home.truncate(57);
    home.follow(&one(0, T0));
    assert_eq!((home.bases(), home.size_of(0, "index")), (vec![0], 240));
}

/// kafka-behaviours row 58 (`UnifiedLogTest.testIndexResizingAtTruncation`): "10 one-record sets
/// per segment, index interval one byte less than a set; 20 sets, rising ts; look at segment 0;
/// truncate to 0: 2 segments; segment 0 trimmed to 9 offset and 9 time entries; after truncation 1
/// segment with indexes back at full capacity (max bytes / 8 and / 12)".
#[test]
fn indexes_are_resized_when_a_cut_makes_their_segment_active() {
    let bytes = one(10, T0).build().len();
    let settings = format!(
        "segment.bytes={} index.interval.bytes={} segment.index.bytes=1000",
        10 * bytes,
        bytes - 1
    );
    let mut home = Home::new(&partition(), &settings);
    for n in 0..20 {
        // Equally long, so that ten of them fill a segment.
        home.follow(&batch(n, vec![rec(format!("v{n:02}")).at(T0 + n)]));
    }
    assert_eq!(home.bases(), [0, 10]);
    assert_eq!((home.offset_entries(0).len(), home.time_entries(0).len()), (9, 9));
    assert_eq!((home.size_of(0, "index"), home.size_of(0, "timeindex")), (9 * 8, 9 * 12));
    home.truncate(0);
    home.load();
    assert_eq!((home.bases(), home.offsets()), (vec![0], vec![]));
    assert_eq!((home.size_of(0, "index"), home.size_of(0, "timeindex")), (1000, 996));
}
