//! Rows about reading and searching.

use offsetfs::engine::log::Found;

use crate::home::{Home, offset, one};
use crate::support::kafkalog::{
    Codec, Partition, T0, batch, legacy, marker, message, partition, partition_from, plain, rec,
    recs,
};

/// kafka-behaviours row 19 (`FileRecordsTest.testIterationOverPartialAndTruncation`): "file with 3
/// one-record batches; add 0, then 2, 4, 5, 6 zero bytes (17 in all), iterating after each: always
/// exactly the 3 records, no error".
#[test]
fn zeros_behind_the_last_batch_are_no_records() {
    for zeros in [0, 2, 6, 11, 17] {
        let three = (0..3).fold(partition(), |part, n| part.add(&plain(n..n + 1)));
        let mut home = Home::new(&three.add_bytes(vec![0; zeros]), "");
        assert_eq!((home.offsets(), home.log_end()), (vec![0, 1, 2], 3), "{zeros} zeros");
        let torn = home.state().torn_tail.as_ref().map_or(0, |torn| torn.bytes);
        assert_eq!(usize::try_from(torn), Ok(zeros));
    }
}

/// kafka-behaviours row 20 (`FileRecordsTest.testSearch`): "batches at offsets 0, 1, 2 and one at
/// 50; find the first batch with last offset >= 0, 1, 3 (starting at the third batch), 50:
/// positions of batch 0, 1, and of the batch at 50 for both 3 and 50; each with that batch's size".
#[test]
fn a_search_ends_at_the_first_batch_that_reaches_so_far() {
    let batches = [(0, 3), (1, 9), (2, 0), (50, 70)]
        .map(|(at, value_bytes)| batch(at, vec![rec("x".repeat(value_bytes))]));
    let part = batches.iter().fold(partition(), Partition::add);
    let sizes = batches.each_ref().map(|batch| batch.build().len() as u64);
    let mut home = Home::new(&part, "");
    let (log, state) = (home.log(), home.state());
    for (target, number) in [(0, 0), (1, 1), (3, 3), (50, 3)] {
        let Found::Record(found, _, position) =
            log.find_from(&state, offset(target), None).unwrap()
        else {
            panic!("nothing for {target}")
        };
        let before: u64 = sizes[..number].iter().sum();
        let there = (position.get(), found.batch.header.bytes);
        assert_eq!(there, (before, sizes[number]), "{target}");
    }
}

/// kafka-behaviours row 21 (`FileRecordsTest.testSearchForTimestamp`): "record ts 10 at offset 5
/// (leader epoch 0), record ts 11 at offset 6 (epoch 1); magic 0, 1, 2; search 9, 10, 11, 12: magic
/// 2: (10, 5, epoch 0), (10, 5, 0), (11, 6, 1), none; magic 1 the same without epoch; magic 0
/// none".
#[test]
fn a_time_is_found_in_every_magic_that_has_one() {
    let old = |magic| {
        let bytes = [5, 6].map(|at| message(magic, at, None, Some(b"v"), at + 5, 0)).concat();
        partition().add_bytes(bytes)
    };
    let new = partition().add(&one(5, 10)).add(&one(6, 11).epoch(1));
    let found = |part| {
        let mut home = Home::new(&part, "");
        assert_eq!(home.offsets(), [5, 6]);
        [9, 10, 11, 12].map(|time| home.at_time(time))
    };
    let epochs = [(10, 5, Some(0)), (10, 5, Some(0)), (11, 6, Some(1))];
    let [a, b, c] = epochs.map(Some);
    assert_eq!(found(new), [a, b, c, None]);
    let [a, b, c] = epochs.map(|(time, at, _)| Some((time, at, None)));
    assert_eq!(found(old(1)), [a, b, c, None]);
    assert_eq!(found(old(0)), [None; 4]);
}

/// kafka-behaviours row 37 (`LogSegmentTest.testReadBeforeFirstOffset`, `testReadFromGap`): "base
/// 40, records 50-53; another with 50-51 and 60-61; read from 41; from 55: starts at record 50;
/// starts at record 60".
#[test]
fn a_read_from_a_gap_begins_behind_it() {
    let mut home = Home::new(&partition_from(40).add(&plain(50..54)), "");
    assert_eq!(home.first_from(41), Some(50));
    let mut home = Home::new(&partition_from(40).add(&plain(50..52)).add(&plain(60..62)), "");
    assert_eq!((home.first_from(55), home.value(55)), (Some(60), None));
}

/// kafka-behaviours row 39 (`LogSegmentTest.testFindOffsetByTimestamp`): "base 40; messages 40...49
/// with ts 10 x offset; index interval = 2 messages - 1 byte; find 399, 401, 420, 421, 430, 431,
/// 491: 40, 41, 42, 43, 43, 44, none; largest timestamp 490".
#[test]
fn a_time_between_two_records_is_that_of_the_later_one() {
    let bytes = 2 * one(40, 400).build().len() - 1;
    let mut home = Home::new(&partition_from(40), &format!("index.interval.bytes={bytes}"));
    for at in 40..50 {
        home.follow(&one(at, 10 * at));
    }
    for closed in [false, true] {
        let found =
            [399, 401, 420, 421, 430, 431, 491].map(|time| home.at_time(time).map(|(_, at, _)| at));
        let wanted = [40, 41, 42, 43, 43, 44].map(Some);
        assert_eq!((&found[..6], found[6]), (&wanted[..], None), "closed: {closed}");
        home.close();
    }
    assert_eq!(home.time_entries(40).last(), Some(&(490, 49)));
}

/// kafka-behaviours row 78 (`UnifiedLogTest.testAppendAndReadWithNonSequentialOffsets`,
/// `testReadWithMinMessage`): "follower records at 0...49, 50, 57, 64 ... 197, one per segment;
/// read from each offset 50...196: always the first record with offset >= the requested one,
/// whole".
#[test]
fn the_first_record_behind_a_hole_is_found_across_segments() {
    let bytes = plain(150..151).build().len();
    let mut home = Home::new(&partition(), &format!("segment.bytes={bytes}"));
    let there: Vec<i64> = (0..50).chain((50..200).step_by(7)).collect();
    for at in &there {
        home.follow(&plain(*at..*at + 1));
    }
    assert_eq!(home.bases().len(), there.len(), "a segment each");
    for from in 50..197 {
        let first = *there.iter().find(|at| **at >= from).unwrap();
        assert_eq!(home.first_from(from), Some(first), "from {from}");
        assert_eq!(home.value(first), Some(format!("v{first}")));
    }
}

/// kafka-behaviours row 80 (`UnifiedLogTest.testCompressedMessages`): "gzip batches 0-1 and 2-3;
/// read from 0, 1, 2, 3: first record returned is 0, 0, 2, 2 (the batch is the unit)". So it is for
/// `.raw`; a record is found by itself.
#[test]
fn a_compressed_batch_is_read_whole_and_its_records_are_found() {
    let pair = |at| batch(at, recs(at..at + 2)).codec(Codec::Gzip);
    let mut home = Home::new(&partition().add(&pair(0)).add(&pair(2)), "");
    let (log, state) = (home.log(), home.state());
    for (from, first) in [(0, 0), (1, 0), (2, 2), (3, 2)] {
        let found = log.find_from(&state, offset(from), None).unwrap();
        let Found::Record(found, ..) = found else { panic!("nothing from {from}") };
        assert_eq!(found.batch.header.base_offset, offset(first));
        assert_eq!(found.record().unwrap().offset, offset(from));
    }
}

/// kafka-behaviours row 83 (`UnifiedLogTest.testAbortedTransactionSpanningMultipleSegments`): "one
/// 3-record transactional batch per segment: 0-2, 3-5; ABORT at 6; HW 7; read committed from 0:
/// aborted list = [(producer, 0)]".
#[test]
fn an_aborted_transaction_may_span_segments() {
    let part = |from| plain(from..from + 3).producer(1);
    let settings = format!("segment.bytes={}", part(0).build().len());
    let mut home = Home::new(&partition(), &settings).read_committed();
    for batch in [part(0), part(3), marker(6, false, 1)] {
        home.follow(&batch);
    }
    assert_eq!(home.bases(), [0, 3, 6]);
    assert_eq!(home.aborted(), [(1, 0, 6, 7)]);
    assert_eq!((home.offsets(), home.log_end()), (vec![], 7));
    home.follow(&plain(7..8));
    assert_eq!(home.offsets(), [7], "nothing before it, and all behind it");
}

/// kafka-behaviours row 84 (`UnifiedLogTest.testFetchOffsetByTimestampIncludesLeaderEpoch`):
/// "record ts t at 0 (epoch 0), ts t+1 at 1 (epoch 1); search t, t+1, earliest, latest: (t, 0, 0),
/// (t+1, 1, 1), (-1, 0, 0), (-1, 2, 1). On an empty log a search gives none". An epoch that nothing
/// was written in is not ours to begin.
#[test]
fn a_time_is_found_with_the_epoch_of_its_record() {
    let mut home = Home::new(&partition(), "");
    assert_eq!(home.at_time(0), None);
    home.follow(&one(0, T0));
    home.follow(&one(1, T0 + 1).epoch(1));
    assert_eq!(home.at_time(T0), Some((T0, 0, Some(0))));
    assert_eq!(home.at_time(T0 + 1), Some((T0 + 1, 1, Some(1))));
    let state = home.state();
    assert_eq!((state.log_start.get(), state.log_end.get()), (0, 2));
    let epochs: Vec<(i32, i64)> =
        state.leader_epochs.iter().map(|entry| (entry.epoch.get(), entry.start.get())).collect();
    assert_eq!(epochs, [(0, 0), (1, 1)], "of the earliest and of the latest offset");
}

/// Rows 20 and 21 for wrapped messages, which Kafka's tests do not have.
#[test]
fn a_wrapper_answers_for_each_of_its_messages() {
    for magic in [0, 1] {
        let bytes = legacy(magic, 5..8, &Codec::Gzip);
        let mut home = Home::new(&partition().add_bytes(bytes), "");
        assert_eq!([4, 6, 8].map(|at| home.first_from(at)), [Some(5), Some(6), None]);
        let times = [T0 + 6000, T0 + 6001].map(|time| home.at_time(time).map(|(_, at, _)| at));
        let wanted = if magic == 0 { [None, None] } else { [Some(6), Some(7)] };
        assert_eq!(times, wanted);
    }
}
