//! Rows about the time index as a search sees it: the largest timestamp of a log.

use crate::home::{Home, one};
use crate::support::kafkalog::{T0, partition};

/// The last entry of the time index of a log with records of these times, a batch each, that was
/// left in order.
fn last_time_entry(times: &[i64]) -> Option<(i64, i64)> {
    let mut home = Home::new(&partition(), "");
    for (time, at) in times.iter().zip(0..) {
        home.follow(&one(at, *time));
    }
    home.close();
    assert_eq!(home.log_end(), i64::try_from(times.len()).unwrap());
    home.time_entries(0).last().copied()
}

/// kafka-behaviours row 85
/// (`UnifiedLogTest.testFetchOffsetByTimestampWithMaxTimestampIncludesTimestamp`): "ts t, t+1, t;
/// max timestamp: (t+1, offset 1, epoch 0)". Nobody can ask us for it, but a broker that takes the
/// log over reads its answer in the last time entry.
/// kafka-behaviours row 86
/// (`LogOffsetTest.testFetchOffsetByTimestampForMaxTimestampWithUnorderedTimestamps`): "ts 0, 1, 2,
/// 3, 4, 6, 5: offset 5, ts 6; LEO 7".
#[test]
fn the_last_time_entry_is_the_largest_timestamp() {
    assert_eq!(last_time_entry(&[T0, T0 + 1, T0]), Some((T0 + 1, 1)));
    assert_eq!(last_time_entry(&[0, 1, 2, 3, 4, 6, 5]), Some((6, 5)));
}
