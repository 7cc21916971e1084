//! Which segments go because they are below the log start, because the log is too large, or
//! because they are too old (format page, "Retention"; contract 4.11). Kafka's rules, but for one:
//! a largest timestamp that can hardly be meant ([`suspicion`]: more than a day ahead of the
//! clock, or a number of seconds since 1990) counts as the time when the `.log` was last changed.
//! Kafka keeps a segment with a time in the far future, and all behind it, for ever, and deletes
//! one with seconds at once.

use crate::engine::facts::suspicion;
use crate::units::{Offset, Timestamp};

/// One segment; the last one of a log is active.
#[derive(Clone, Copy, Debug)]
pub struct SegmentFacts {
    /// Its base offset.
    pub base_offset: Offset,
    /// The base offset of the next one, or the log end.
    pub end_offset: Offset,
    /// Bytes of batches in it.
    pub bytes: u64,
    /// The largest timestamp in it.
    pub largest_timestamp: Option<Timestamp>,
    /// When its `.log` was last changed.
    pub modified: Timestamp,
}

/// What a log may keep; `None` is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetentionLimits {
    /// `retention.ms`.
    pub retention_ms: Option<i64>,
    /// `retention.bytes`.
    pub retention_bytes: Option<u64>,
}

/// Why a segment goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeletionReason {
    /// All of it is below the log start offset.
    LogStart,
    /// The log is larger than `retention.bytes` without it.
    Size,
    /// Its records are older than `retention.ms`.
    Age,
}

/// Which segments go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deletion {
    /// Why, for each segment that goes. They are the first ones, so this says which.
    pub reasons: Vec<DeletionReason>,
    /// Must a new segment begin at the log end first? So when all go.
    pub roll_first: bool,
    /// The log start offset that is to be published before they go.
    pub log_start: Offset,
    /// Segments whose time was not taken for what it says, by base offset, and why.
    pub distrusted: Vec<(Offset, &'static str)>,
}

impl RetentionLimits {
    /// From the properties of a topic; negative numbers are no limits. Where `cleanup.policy` has
    /// no `delete`, only what is below the log start goes.
    pub fn new(policy_deletes: bool, retention_ms: i64, retention_bytes: i64) -> RetentionLimits {
        RetentionLimits {
            retention_ms: Some(retention_ms).filter(|ms| policy_deletes && *ms >= 0),
            retention_bytes: u64::try_from(retention_bytes).ok().filter(|_| policy_deletes),
        }
    }
}

/// Which of `segments`, all that a log has, go at `now`. Never one that reaches to the high
/// watermark or further, never one behind one that stays, and never the last one while it is
/// empty.
pub fn segments_to_delete(
    segments: &[SegmentFacts],
    log_start: Offset,
    high_watermark: Offset,
    limits: RetentionLimits,
    now: Timestamp,
) -> Deletion {
    let mut walk = Walk { segments, high_watermark, reasons: Vec::new() };
    walk.delete(DeletionReason::LogStart, |segment, is_last| {
        !is_last && segment.end_offset <= log_start
    });
    let bytes: u64 = walk.left().iter().map(|segment| segment.bytes).sum();
    if let Some(mut surplus) = limits.retention_bytes.and_then(|most| bytes.checked_sub(most)) {
        walk.delete(DeletionReason::Size, |segment, _| {
            let rest = surplus.checked_sub(segment.bytes);
            surplus = rest.unwrap_or(surplus);
            rest.is_some()
        });
    }
    let mut distrusted = Vec::new();
    if let Some(most) = limits.retention_ms {
        walk.delete(DeletionReason::Age, |segment, _| {
            let (newest, doubt) = newest(segment, now);
            distrusted.extend(doubt.map(|doubt| (segment.base_offset, doubt)));
            now.millis().saturating_sub(newest.millis()) > most
        });
    }
    walk.finish(log_start, distrusted)
}

/// The log start offset after the records before `requested` were deleted; `None` when that is
/// beyond the high watermark, and cannot be. It never falls.
pub fn raised_log_start(
    log_start: Offset,
    requested: Offset,
    high_watermark: Offset,
) -> Option<Offset> {
    (requested <= high_watermark).then(|| log_start.max(requested))
}

/// What stands in `log-start-offset-checkpoint` for a log whose first segment begins at
/// `first_base`: nothing when the file names say the same.
pub fn checkpointed_log_start(log_start: Offset, first_base: Offset) -> Option<Offset> {
    (log_start > first_base).then_some(log_start)
}

/// The way from the oldest segment on, as far as each next one goes.
struct Walk<'a> {
    segments: &'a [SegmentFacts],
    high_watermark: Offset,
    reasons: Vec<DeletionReason>,
}

impl Walk<'_> {
    /// The segments that no reason was found for yet.
    fn left(&self) -> &[SegmentFacts] {
        &self.segments[self.reasons.len()..]
    }

    /// Goes on, as long as segments qualify; is told which segment is the last.
    fn delete(
        &mut self,
        reason: DeletionReason,
        mut qualifies: impl FnMut(&SegmentFacts, bool) -> bool,
    ) {
        while let [segment, later @ ..] = self.left() {
            let is_last = later.is_empty();
            let stays = self.high_watermark < segment.end_offset || is_last && segment.bytes == 0;
            if stays || !qualifies(segment, is_last) {
                return;
            }
            self.reasons.push(reason);
        }
    }

    fn finish(self, log_start: Offset, distrusted: Vec<(Offset, &'static str)>) -> Deletion {
        let roll_first = self.left().is_empty() && !self.reasons.is_empty();
        let last_gone = self.reasons.len().checked_sub(1).map(|last| &self.segments[last]);
        Deletion {
            roll_first,
            log_start: last_gone.map_or(log_start, |gone| gone.end_offset.max(log_start)),
            reasons: self.reasons,
            distrusted,
        }
    }
}

/// The time that counts for the age of a segment, and why it is not the one in the records, if that
/// was not believed.
fn newest(segment: &SegmentFacts, now: Timestamp) -> (Timestamp, Option<&'static str>) {
    match segment.largest_timestamp.filter(|largest| largest.millis() >= 0) {
        None => (segment.modified, None),
        Some(largest) => match suspicion(largest, now) {
            None => (largest, None),
            doubt => (segment.modified, doubt),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::fixture::{epochs, shown_epochs as shown};

    const NOW: i64 = 1_764_410_400_000;
    const SET_BYTES: u64 = 100;
    const UNLIMITED: RetentionLimits =
        RetentionLimits { retention_ms: None, retention_bytes: None };

    fn offset(raw: i64) -> Offset {
        Offset::new(raw).unwrap()
    }

    fn by_age(retention_ms: i64) -> RetentionLimits {
        RetentionLimits { retention_ms: Some(retention_ms), ..UNLIMITED }
    }

    fn by_size(retention_bytes: u64) -> RetentionLimits {
        RetentionLimits { retention_bytes: Some(retention_bytes), ..UNLIMITED }
    }

    /// A log of one-record sets.
    struct Model {
        segments: Vec<SegmentFacts>,
        log_start: Offset,
        high_watermark: Offset,
    }

    impl Model {
        /// `sets` sets with this timestamp, so many in a segment, written just now.
        fn new(sets: i64, in_segment: i64, timestamp: i64) -> Model {
            let bases = (0..sets.max(1)).step_by(usize::try_from(in_segment).unwrap());
            Model::with_bases(&bases.collect::<Vec<_>>(), sets, timestamp)
        }

        fn with_bases(bases: &[i64], log_end: i64, timestamp: i64) -> Model {
            let ends = bases[1..].iter().chain([&log_end]);
            let segment = |(&base, &end): (&i64, &i64)| SegmentFacts {
                base_offset: offset(base),
                end_offset: offset(end),
                bytes: SET_BYTES * u64::try_from(end - base).unwrap(),
                largest_timestamp: Some(Timestamp::from_millis(timestamp)),
                modified: Timestamp::from_millis(NOW),
            };
            Model {
                segments: bases.iter().zip(ends).map(segment).collect(),
                log_start: Offset::ZERO,
                high_watermark: offset(log_end),
            }
        }

        fn log_end(&self) -> i64 {
            self.segments.last().unwrap().end_offset.get()
        }

        fn deletion(&self, limits: RetentionLimits) -> Deletion {
            let now = Timestamp::from_millis(NOW);
            segments_to_delete(&self.segments, self.log_start, self.high_watermark, limits, now)
        }

        /// Deletes what has to go, and says how many that were.
        fn retain(&mut self, limits: RetentionLimits) -> usize {
            let deletion = self.deletion(limits);
            if deletion.roll_first {
                let end = offset(self.log_end());
                self.segments.push(SegmentFacts {
                    base_offset: end,
                    end_offset: end,
                    bytes: 0,
                    largest_timestamp: None,
                    ..self.segments[0]
                });
            }
            self.segments.drain(..deletion.reasons.len());
            self.log_start = deletion.log_start;
            deletion.reasons.len()
        }

        fn bases(&self) -> Vec<i64> {
            self.segments.iter().map(|segment| segment.base_offset.get()).collect()
        }
    }

    /// kafka-behaviours row 60 (`UnifiedLogTest.shouldDeleteSizeBasedSegments`,
    /// `shouldNotDeleteSizeBasedSegmentsWhenUnderRetentionSize`): "15 sets, 5 per segment;
    /// retention.bytes = 10 sets; = 15 sets: 2 segments left; 3 left".
    #[test]
    fn at_least_retention_bytes_remain() {
        for (sets, left) in [(10, 2), (11, 3), (15, 3), (16, 3), (5, 1), (9, 2), (0, 1)] {
            let mut log = Model::new(15, 5, NOW);
            let count = log.retain(by_size(sets * SET_BYTES));
            assert_eq!((count, log.segments.len()), (if sets == 0 { 3 } else { 3 - left }, left));
        }
    }

    /// kafka-behaviours row 61 (`UnifiedLogTest.shouldDeleteTimeBasedSegmentsReadyToBeDeleted`,
    /// `shouldNotDeleteTimeBasedSegmentsWhenNoneReadyToBeDeleted`): "ts 10 with retention.ms 10000;
    /// ts now with retention.ms 10000000: 1 (empty) segment left; 3 left".
    #[test]
    fn records_older_than_retention_ms_go() {
        let mut old = Model::new(15, 5, 10);
        let deletion = old.deletion(by_age(10_000));
        assert!(deletion.roll_first);
        assert_eq!(deletion.reasons, [DeletionReason::Age; 3]);
        assert_eq!(deletion.distrusted, []);
        old.retain(by_age(10_000));
        assert_eq!((old.bases(), old.segments[0].bytes), (vec![15], 0));
        let mut new = Model::new(15, 5, NOW);
        assert_eq!((new.retain(by_age(10_000_000)), new.segments.len()), (0, 3));
    }

    #[test]
    fn records_of_exactly_retention_ms_stay() {
        assert_eq!(Model::new(5, 5, NOW - 1000).retain(by_age(1000)), 0);
        assert_eq!(Model::new(5, 5, NOW - 1001).retain(by_age(1000)), 1);
    }

    /// kafka-behaviours row 62
    /// (`UnifiedLogTest.shouldNotDeleteSegmentsWhenPolicyDoesNotIncludeDelete`,
    /// `shouldDeleteSegmentsReadyToBeDeletedWhenCleanupPolicyIsCompactAndDelete`): "the ts-10 case
    /// with cleanup.policy compact; compact,delete: 3 left; 1 left".
    #[test]
    fn a_policy_without_delete_keeps_what_is_behind_the_log_start() {
        for (policy_deletes, left) in [(false, 3), (true, 1)] {
            let mut log = Model::new(15, 5, 10);
            log.retain(RetentionLimits::new(policy_deletes, 10_000, 0));
            assert_eq!(log.segments.len(), left);
        }
        assert_eq!(RetentionLimits::new(true, -1, -1), UNLIMITED);
        let mut compacted = Model::new(15, 5, 10);
        compacted.log_start = offset(6);
        assert_eq!(compacted.retain(RetentionLimits::new(false, 0, 0)), 1);
    }

    /// kafka-behaviours row 63 (`UnifiedLogTest.testLogDeletionAfterDeleteRecords`): "log start to
    /// 1, 6, 15: 3 segments with start 1; 2 with start 6; 1 with start 15".
    #[test]
    fn segments_below_the_log_start_go() {
        let mut log = Model::new(15, 5, NOW);
        for (start, left) in [(1, 3), (6, 2), (15, 1)] {
            log.log_start = raised_log_start(log.log_start, offset(start), offset(15)).unwrap();
            log.retain(UNLIMITED);
            assert_eq!((log.segments.len(), log.log_start.get()), (left, start));
        }
        assert_eq!(log.bases(), [10]);
    }

    /// kafka-behaviours row 64 (`UnifiedLogTest.testDeleteOldSegments`): "100 expired sets, 5 per
    /// segment; epochs (0, 40), (1, 90); HW 0: nothing deleted; HW 25...30: log start <= HW and
    /// every remaining segment ends at or above HW; HW 100: 1 segment and epochs = [(1, 100)]".
    #[test]
    fn old_segments_go_up_to_the_high_watermark_and_their_epochs_with_them() {
        let mut log = Model::new(100, 5, 10);
        let mut epochs = epochs(&[(0, 40), (1, 90)]);
        log.high_watermark = Offset::ZERO;
        assert_eq!(log.retain(by_age(1000)), 0);
        for high_watermark in 25..=30 {
            log.high_watermark = offset(high_watermark);
            log.retain(by_age(1000));
            assert!(log.log_start <= log.high_watermark);
            assert!(log.segments.iter().all(|left| left.end_offset >= log.high_watermark));
        }
        log.high_watermark = offset(100);
        log.retain(by_age(1000));
        assert_eq!(log.bases(), [100]);
        assert!(epochs.truncate_from_start(log.log_start));
        assert_eq!(shown(&epochs), [(1, 100)]);
    }

    /// kafka-behaviours row 65 (`UnifiedLogTest.testCannotDeleteSegmentsAtOrAboveHighWatermark`):
    /// "log start <= HW always; all but the first remaining segment start above HW; finally start
    /// 100 with one empty segment".
    #[test]
    fn the_log_start_never_passes_the_high_watermark() {
        let mut log = Model::new(100, 7, 10);
        for high_watermark in 0..=100 {
            log.high_watermark = offset(high_watermark);
            log.retain(by_age(1000));
            assert!(log.log_start <= log.high_watermark);
            let above = |segment: &SegmentFacts| segment.base_offset > log.high_watermark;
            assert!(log.segments[1..].iter().all(above), "{:?}", log.bases());
        }
        assert_eq!((log.log_start.get(), log.bases()), (100, vec![100]));
        assert_eq!(log.segments[0].bytes, 0);
    }

    /// kafka-behaviours row 66
    /// (`UnifiedLogTest.testThatGarbageCollectingSegmentsDoesntChangeOffset`): "retention.ms 0; 0,
    /// 1, 25 old records: LEO unchanged; 1 segment; second pass deletes 0".
    #[test]
    fn deletion_leaves_the_log_end_where_it_is() {
        for records in [0, 1, 25] {
            let mut log = Model::new(records, 2, 10);
            log.retain(by_age(0));
            assert_eq!((log.log_end(), log.segments.len()), (records, 1));
            assert_eq!(log.retain(by_age(0)), 0);
        }
    }

    // Row 67 (`UnifiedLogTest.testAsyncDelete`) is about the files of what goes, not about which.

    /// kafka-behaviours row 68
    /// (`UnifiedLogTest.testCannotIncrementLogStartOffsetPastHighWatermark`): "100 records, HW 25:
    /// log start to 26: offset-out-of-range error".
    #[test]
    fn the_log_start_is_raised_to_the_high_watermark_at_most() {
        let raised = |to| raised_log_start(offset(7), offset(to), offset(25));
        assert_eq!(raised(26), None);
        assert_eq!(raised(25), Some(offset(25)));
        assert_eq!(raised(3), Some(offset(7)), "it never falls");
    }

    /// kafka-behaviours row 69 (`UnifiedLogTest.shouldTruncateLeaderEpochsWhenDeletingSegments`,
    /// `shouldUpdateOffsetForLeaderEpochsWhenDeletingSegments`): "keep 10; epochs (0, 0), (1, 5),
    /// (2, 10); or (0, 0), (1, 7), (2, 10): (1, 5), (2, 10); (0, 5), (1, 7), (2, 10)".
    #[test]
    fn epochs_begin_where_the_log_does() {
        for (before, after) in [
            ([(0, 0), (1, 5), (2, 10)], &[(1, 5), (2, 10)][..]),
            ([(0, 0), (1, 7), (2, 10)], &[(0, 5), (1, 7), (2, 10)]),
        ] {
            let mut log = Model::new(15, 5, NOW);
            log.retain(by_size(10 * SET_BYTES));
            assert_eq!(log.log_start, offset(5));
            let mut epochs = epochs(&before);
            assert!(epochs.truncate_from_start(log.log_start));
            assert_eq!(shown(&epochs), after);
        }
    }

    /// kafka-behaviours row 70 (`LogManagerTest.testCheckpointLogStartOffsetForNormalTopic`): "50
    /// records, rolled after 10, 20, 30, 40; HW 49; log start 31: entry 31; 2 segments left; no
    /// entry (start equals the first segment's base)".
    #[test]
    fn a_log_start_that_is_a_file_name_needs_no_checkpoint() {
        let mut log = Model::with_bases(&[0, 11, 21, 31, 41], 50, NOW);
        log.high_watermark = offset(49);
        log.log_start = raised_log_start(log.log_start, offset(31), log.high_watermark).unwrap();
        let entry = |log: &Model| {
            checkpointed_log_start(log.log_start, log.segments[0].base_offset).map(Offset::get)
        };
        assert_eq!(entry(&log), Some(31));
        log.retain(UNLIMITED);
        assert_eq!((log.bases(), entry(&log)), (vec![31, 41], None));
    }

    #[test]
    fn each_segment_goes_for_the_first_reason_that_it_has() {
        let mut log = Model::new(20, 5, 10);
        log.log_start = offset(5);
        log.segments[2].largest_timestamp = Some(Timestamp::from_millis(NOW));
        let both = RetentionLimits { retention_ms: Some(0), retention_bytes: Some(10 * SET_BYTES) };
        let deletion = log.deletion(both);
        assert_eq!(deletion.reasons, [DeletionReason::LogStart, DeletionReason::Size]);
        assert_eq!((deletion.roll_first, deletion.log_start), (false, offset(10)));
    }

    #[test]
    fn a_new_segment_keeps_the_old_ones_behind_it() {
        let mut log = Model::new(15, 5, 10);
        log.segments[0].largest_timestamp = Some(Timestamp::from_millis(NOW));
        assert_eq!(log.retain(by_age(1000)), 0);
    }

    #[test]
    fn an_empty_last_segment_stays_and_needs_no_roll() {
        let mut log = Model::new(10, 5, 10);
        log.retain(by_age(0));
        assert_eq!(log.bases(), [10]);
        assert_eq!(
            log.deletion(RetentionLimits::new(true, 0, 0)),
            Deletion {
                reasons: vec![],
                roll_first: false,
                log_start: offset(10),
                distrusted: vec![],
            }
        );
        let deletion = Model::with_bases(&[0, 10], 10, 10).deletion(by_age(0));
        assert_eq!((deletion.reasons.len(), deletion.roll_first), (1, false));
    }

    #[test]
    fn a_segment_without_timestamps_is_as_old_as_its_file() {
        for largest in [None, Some(Timestamp::from_millis(-5))] {
            let mut log = Model::new(5, 5, 10);
            log.segments[0].largest_timestamp = largest;
            assert_eq!(log.deletion(by_age(1000)).reasons, []);
            log.segments[0].modified = Timestamp::from_millis(NOW - 1001);
            assert_eq!(log.deletion(by_age(1000)).reasons, [DeletionReason::Age]);
            assert_eq!(log.deletion(by_age(1000)).distrusted, []);
        }
    }

    /// Contract 4.11: "a largest timestamp more than a day ahead, or one in seconds, counts as the
    /// segment's mtime, with a warning".
    #[test]
    fn a_time_that_cannot_be_meant_counts_as_that_of_the_file() {
        let day = 86_400_000;
        for (largest, word) in [(NOW + day + 1, "future"), (NOW / 1000, "seconds")] {
            let mut log = Model::new(5, 5, largest);
            let young = log.deletion(by_age(1000));
            assert_eq!(young.reasons, []);
            assert_eq!(young.distrusted[0].0, Offset::ZERO);
            assert!(young.distrusted[0].1.contains(word));
            log.segments[0].modified = Timestamp::from_millis(NOW - 1001);
            assert_eq!(log.deletion(by_age(1000)).reasons, [DeletionReason::Age]);
        }
        let ahead = Model::new(5, 5, NOW + day).deletion(by_age(1000));
        assert_eq!((ahead.reasons, ahead.distrusted), (vec![], vec![]));
    }

    #[test]
    fn a_log_without_segments_loses_none() {
        let none = Model { segments: vec![], ..Model::new(1, 1, 10) };
        let deletion = none.deletion(RetentionLimits::new(true, 0, 0));
        assert_eq!((deletion.reasons, deletion.roll_first), (vec![], false));
    }
}
