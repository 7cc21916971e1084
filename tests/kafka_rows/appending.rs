//! Rows about appending, rolling, retention and the directory.

use offsetfs::engine::data_dir::DataDir;
use offsetfs::engine::options::ReadOptions;
use offsetfs::engine::read::{Reading, Step, Wanted};
use offsetfs::engine::retention::RetentionLimits;

use crate::home::{Home, offset, one, untimed};
use crate::support::kafkalog::{Codec, T0, batch, legacy, partition, partition_from, plain, rec};

/// kafka-behaviours row 53 (`UnifiedLogTest.testMessageSizeCheck`,
/// `testMessageSizeCheckInAppendAsFollower`): "max.message.bytes one less than the second set;
/// append both as leader; as follower: second refused (record too large); both accepted".
#[test]
fn max_message_bytes_holds_for_a_leader_only() {
    let second = plain(1..2).build();
    let settings = format!("max.message.bytes={}", second.len() - 1);
    let mut leader = Home::new(&partition(), &settings);
    leader.lead("\n");
    let (taken, said) = leader.try_lead("vv\n").unwrap_err();
    assert!(said.contains("max.message.bytes"), "{said}");
    assert_eq!((taken, leader.log_end()), (0, 1));
    let mut follower = Home::new(&partition(), &settings);
    follower.follow(&plain(0..1));
    follower.follow(&plain(1..2));
    assert_eq!(follower.offsets(), [0, 1]);
}

/// kafka-behaviours row 54 (`UnifiedLogTest.testAppendWithOutOfOrderOffsetsThrowsException`):
/// "follower set of batches at 0, 1, 3, 2, 4: offsets-out-of-order error". A set is a stream here,
/// so what stands before the batch that is wrong has been taken.
#[test]
fn batches_whose_offsets_fall_are_refused() {
    let mut home = Home::new(&partition(), "");
    let batches: Vec<Vec<u8>> = [0, 1, 3, 2, 4].map(|at| plain(at..at + 1).build()).into();
    let (taken, said) = home.raw(&batches.concat()).unwrap_err();
    assert_eq!(taken, batches[..3].concat().len());
    assert!(said.contains("offset 2, the log ends at 4"), "{said}");
    assert_eq!(home.offsets(), [0, 1, 3]);
}

/// kafka-behaviours row 55 (`UnifiedLogTest.testAppendBelowExpectedOffsetThrowsException`): "log
/// with 2 records; as follower append a record at offset 0, magic 0, 1, 2, plain and lz4:
/// unexpected-append-offset error for all six".
/// kafka-behaviours row 24 (`OffsetIndexTest.appendOutOfOrder`): "entry at offset 51; append offset
/// 50: invalid-offset error". The batch is refused, so no index gets its entry.
#[test]
fn nothing_is_appended_below_the_log_end() {
    let mut home = Home::new(&partition(), "index.interval.bytes=0");
    home.lead("a\n");
    home.lead("b\n");
    let entries = (home.offset_entries(0), home.time_entries(0));
    assert_eq!(entries.0.len(), 1);
    for codec in [Codec::None, Codec::Lz4] {
        let olds = [0, 1].map(|magic| legacy(magic, 0..1, &codec));
        for bytes in [&olds[0], &olds[1], &plain(0..1).codec(codec.clone()).build()] {
            let (taken, said) = home.raw(bytes).unwrap_err();
            assert!(said.contains("offset 0, the log ends at 2"), "{said}");
            assert_eq!(taken, 0);
        }
    }
    assert_eq!((home.offset_entries(0), home.time_entries(0)), entries);
    assert_eq!(home.offsets(), [0, 1]);
}

/// kafka-behaviours row 57 (`UnifiedLogTest.testBuildTimeIndexWhenNotAssigningOffsets`):
/// "index.interval.bytes 1; follower appends of 100 one-record sets, offsets 100-199, rising ts: 99
/// time entries; the last carries the largest timestamp".
#[test]
fn a_follower_fills_the_time_index_too() {
    let mut home = Home::new(&partition(), "index.interval.bytes=1");
    for n in 100..200 {
        home.follow(&one(n, T0 + n));
    }
    let entries = home.time_entries(0);
    assert_eq!((entries.len(), entries.last()), (99, Some(&(T0 + 199, 199))));
}

/// kafka-behaviours row 59 (`UnifiedLogTest.testFlushingEmptyActiveSegments`): "one record, then
/// roll: 2 `.log`; force-flush including the empty active segment: 2 and 2". Kafka makes an index
/// when it is first used; ours is there before the flush.
#[test]
fn an_empty_active_segment_is_flushed_with_its_index() {
    let mut home = Home::new(&partition().add(&plain(0..1)).roll(1), "");
    for suffix in ["index", "timeindex"] {
        std::fs::remove_file(home.file(1, suffix)).unwrap();
    }
    assert_eq!((home.files("log"), home.files("index")), (vec![0, 1], vec![0]));
    let now = home.now();
    home.write(|writer| writer.sync(now)).unwrap();
    assert_eq!((home.files("log"), home.files("index")), (vec![0, 1], vec![0, 1]));
    assert_eq!(home.recovery_point(), 1);
}

/// kafka-behaviours row 36 (`LogSegmentTest.testAppendForLogSegmentOffsetOverflowException`): "(0,
/// 2147483648), (2147483648, 4294967296): offset-overflow error". The batch goes to a segment of
/// its own, and so into one that can hold it.
#[test]
fn an_offset_that_a_segment_cannot_hold_goes_to_another() {
    for (base, largest) in [(0, 1 << 31), (1 << 31, 1 << 32), (1, 1 + (1 << 31))] {
        let mut home = Home::new(&partition_from(base).add(&plain(base..base + 1)), "");
        home.follow(&one(largest, T0));
        assert_eq!(home.bases(), [base, largest]);
        assert_eq!(home.offsets(), [base, largest]);
    }
}

/// kafka-behaviours row 23 (`OffsetIndexTest.appendTooMany`): "30 entries in; append another:
/// error". The segment rolls before that.
#[test]
fn an_offset_index_takes_no_more_than_it_has_room_for() {
    let mut home = Home::new(&partition(), "index.interval.bytes=0 segment.index.bytes=240");
    for n in 0..40 {
        home.follow(&untimed(n));
    }
    // The first batch of a segment has no entry.
    assert_eq!(home.bases(), [0, 31]);
    let last: Vec<i64> = home.offset_entries(0).iter().map(|(at, _)| *at).collect();
    assert_eq!(last, (1..31).collect::<Vec<_>>());
    assert_eq!(home.offsets(), (0..40).collect::<Vec<_>>());
}

/// kafka-behaviours row 29 (`TimeIndexTest.testAppend`): "29 of 30 entries; append normally: error
/// (full); offset 280: invalid-offset error (last is 335); append (10000, 1000) skipping the full
/// check: accepted". An append that finds it full rolls; one that goes back is refused; the entry
/// that is added when the segment is sealed has the room that was kept for it.
/// kafka-behaviours row 30 (`TimeIndexTest.testIsFull`): "room for 30; fill 29: not full before,
/// full with 29".
#[test]
fn a_time_index_is_full_with_room_for_one_entry() {
    let mut home = Home::new(&partition_from(45), "index.interval.bytes=0 segment.index.bytes=360");
    for i in 0..30 {
        home.follow(&one(45 + 10 * i, 10 * i));
        assert_eq!(home.bases(), [45], "entry {i}");
    }
    assert_eq!(home.time_entries(45).len(), 29);
    assert!(home.raw(&one(280, 10_000).build()).is_err());
    home.follow(&one(1000, 10_000));
    assert_eq!(home.bases(), [45, 1000]);
    assert_eq!(home.time_entries(45).last(), Some(&(290, 335)));
    assert_eq!(home.time_entries(45).len(), 29);
}

/// The rest of row 29: a batch that is not due to be indexed brings the largest time.
#[test]
fn sealing_a_segment_notes_its_largest_time() {
    let bytes = u64::try_from(one(0, T0).build().len()).unwrap();
    let settings = format!("index.interval.bytes={} segment.bytes={}", 2 * bytes - 1, 4 * bytes);
    let mut home = Home::new(&partition(), &settings);
    for n in 0..5 {
        home.follow(&one(n, T0 + n));
    }
    assert_eq!(home.bases(), [0, 4]);
    assert_eq!(home.offset_entries(0), [(2, 2 * bytes)]);
    assert_eq!(home.time_entries(0), [(T0 + 2, 2), (T0 + 3, 3)]);
}

/// kafka-behaviours row 67 (`UnifiedLogTest.testAsyncDelete`): "retention: 1 segment left; old
/// `.log` and `.index` files exist under `.deleted` names; then gone". Ours go at once, but a
/// reader that is in one of them goes on, as it does in Kafka until the delay is over.
#[test]
fn a_reader_finishes_in_files_that_retention_took() {
    // Larger than what a reader holds in memory.
    let big = |at| batch(at, vec![rec("x".repeat(200_000))]);
    let bytes = 5 * big(0).build().len();
    let mut home = Home::new(&partition(), &format!("segment.bytes={bytes}"));
    for n in 0..10 {
        home.follow(&big(n));
    }
    assert_eq!(home.bases(), [0, 5]);
    let (log, state) = (home.log(), home.state());
    let mut reading = Reading::new(&log, &state, offset(0), Wanted::Data, None).unwrap();
    assert!(matches!(reading.step().unwrap(), Step::Batch(_)));
    let now = home.now();
    home.write(|writer| {
        let mut limits = writer.limits().clone();
        limits.retention = RetentionLimits::new(true, 1000, -1);
        writer.set_limits(limits, now)?;
        writer.retain(now)
    })
    .unwrap();
    assert_eq!((home.files("log"), home.files("index")), (vec![10], vec![10]));
    assert_eq!(home.files("deleted"), [0; 0]);
    for at in 1..5 {
        let Step::Batch(header) = reading.step().unwrap() else { panic!("no batch {at}") };
        assert_eq!(header.base_offset, offset(at));
    }
}

/// kafka-behaviours row 154 (`LogManagerTest.testTwoLogManagersUsingSameDirFails`, `testLock`): "a
/// data dir in use; open it a second time; take `.lock`; shut down: error; lock refused; `.lock` is
/// gone after an orderly shutdown".
#[test]
fn a_directory_has_one_writer() {
    let mut home = Home::new(&partition(), "");
    home.load();
    let lock = home.root().join(".lock");
    assert!(lock.exists());
    for _ in 0..2 {
        let second = DataDir::writable(home.root(), None, ReadOptions::default());
        assert!(second.is_err_and(|e| e.to_string().contains("lock")));
    }
    home.close();
    assert!(!lock.exists());
    home.load();
}

/// kafka-behaviours row 77 (`UnifiedLogTest.testReadOutOfRange`): "log whose first segment is 1024,
/// one record; read 1025, 0, 1026: empty; out of range; out of range". A range begins at the log
/// start in place of an error.
#[test]
fn offsets_outside_of_the_log_hold_nothing() {
    let mut home = Home::new(&partition_from(1024).add(&batch(1024, vec![rec("v")])), "");
    assert_eq!([1025, 0, 1026].map(|at| home.value(at)), [None, None, None]);
    assert_eq!([1025, 1026].map(|at| home.first_from(at)), [None, None]);
    assert_eq!((home.first_from(0), home.value(1024)), (Some(1024), Some("v".to_owned())));
}
