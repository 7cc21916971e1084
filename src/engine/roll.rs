//! When a new segment begins, and with which offset (format page, "When an append rolls the active
//! segment" and the two sections behind it). All of it is decided before the append is written.

use crate::units::{Offset, Timestamp};

/// Offsets in an index are relative to the segment's base, in this many at the most.
const RELATIVE_MAX: u64 = i32::MAX.cast_unsigned() as u64;

/// The active segment before the append.
#[derive(Clone, Copy, Debug)]
pub struct ActiveSegment {
    /// Its base offset.
    pub base_offset: Offset,
    /// Bytes of batches in it.
    pub bytes: u64,
    /// Largest timestamp of its first batch.
    pub first_timestamp: Option<Timestamp>,
    /// When it was made, opened by this process, or last emptied.
    pub created: Timestamp,
    /// Is there no room for another entry in its `.index`?
    pub index_is_full: bool,
    /// Is there no room but for the last entry in its `.timeindex`?
    pub time_index_is_full: bool,
}

/// What is to be appended at once: one batch or several.
#[derive(Clone, Copy, Debug)]
pub struct Incoming {
    /// All bytes of it.
    pub bytes: u64,
    /// Offset of its first record; `None` where that is not known before decompression.
    pub first_offset: Option<Offset>,
    /// Offset of its last record.
    pub last_offset: Offset,
    /// Its largest timestamp.
    pub max_timestamp: Option<Timestamp>,
}

/// What a segment may hold.
#[derive(Clone, Copy, Debug)]
pub struct RollLimits {
    /// `segment.bytes`.
    pub segment_bytes: u64,
    /// `segment.ms`, or what [`segment_ms`] makes of it.
    pub segment_ms: i64,
    /// By how much this segment is earlier; drawn once for each with [`jitter_ms`].
    pub jitter_ms: i64,
}

/// Why a new segment begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RollReason {
    /// The active one would become larger than `segment.bytes`.
    Size,
    /// The active one waited for longer than `segment.ms`.
    Age,
    /// Its `.index` is full.
    IndexFull,
    /// Its `.timeindex` is full.
    TimeIndexFull,
    /// The last offset cannot be expressed relative to its base offset.
    RelativeOffset,
}

/// The segment that a roll makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewSegment {
    /// One behind the active one.
    After(Offset),
    /// One with the base offset of the active one, which is empty and goes: its indexes have no
    /// room.
    InPlaceOfEmpty(Offset),
    /// None can be made: the active one begins there, or later, and has data.
    Impossible(Offset),
}

/// Must a new segment begin before `incoming` is appended?
pub fn must_roll(
    segment: &ActiveSegment,
    incoming: &Incoming,
    limits: &RollLimits,
    now: Timestamp,
) -> Option<RollReason> {
    let is_over_age =
        || waited_ms(segment, incoming, now) > limits.segment_ms.saturating_sub(limits.jitter_ms);
    if segment.bytes.saturating_add(incoming.bytes) > limits.segment_bytes {
        return Some(RollReason::Size);
    }
    if segment.bytes > 0 && is_over_age() {
        return Some(RollReason::Age);
    }
    if segment.index_is_full {
        return Some(RollReason::IndexFull);
    }
    if segment.time_index_is_full {
        return Some(RollReason::TimeIndexFull);
    }
    let is_relative = incoming.last_offset >= segment.base_offset
        && incoming.last_offset.distance_from(segment.base_offset) <= RELATIVE_MAX;
    (!is_relative).then_some(RollReason::RelativeOffset)
}

/// For how long the segment has been waiting, in Kafka's sense: by the times of records where its
/// first batch has one, whatever the clock says; else by the clock, since it was made.
fn waited_ms(segment: &ActiveSegment, incoming: &Incoming, now: Timestamp) -> i64 {
    match segment.first_timestamp.filter(|first| first.millis() >= 0) {
        Some(first) => {
            let newest = incoming.max_timestamp.map_or(-1, Timestamp::millis);
            newest.saturating_sub(first.millis())
        }
        None => now.millis().saturating_sub(segment.created.millis()),
    }
}

/// The segment to begin for `incoming` in a log that ends at `log_end`. Without `incoming` (a roll
/// that no append asked for) it begins at the log end.
pub fn new_segment(
    segment: &ActiveSegment,
    incoming: Option<&Incoming>,
    log_end: Offset,
) -> NewSegment {
    let base_offset = incoming.map_or(log_end, |incoming| new_base_offset(incoming, log_end));
    if base_offset > segment.base_offset {
        return NewSegment::After(base_offset);
    }
    if base_offset == segment.base_offset && segment.bytes == 0 {
        return NewSegment::InPlaceOfEmpty(base_offset);
    }
    NewSegment::Impossible(base_offset)
}

/// The first offset of `incoming`, where that is behind the log end; of a legacy wrapper the least
/// that it can be.
pub fn new_base_offset(incoming: &Incoming, log_end: Offset) -> Offset {
    let least = || incoming.last_offset.checked_add(-i64::from(i32::MAX));
    incoming.first_offset.or_else(least).unwrap_or(Offset::ZERO).max(log_end)
}

/// `segment.ms` of a log: where it is compacted, not longer than `max.compaction.lag.ms`, so that
/// old records get out of the active segment.
pub fn segment_ms(segment_ms: i64, compacted: bool, max_compaction_lag_ms: i64) -> i64 {
    let is_shorter = compacted && max_compaction_lag_ms > 0;
    if is_shorter { segment_ms.min(max_compaction_lag_ms) } else { segment_ms }
}

/// The jitter of one segment, from any `random` number: 0 up to but not including
/// `segment.jitter.ms`, or `segment.ms` where that is less.
pub fn jitter_ms(random: u32, segment_jitter_ms: i64, segment_ms: i64) -> i64 {
    let end = segment_jitter_ms.min(segment_ms);
    if end > 0 { i64::from(random) % end } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offset(raw: i64) -> Offset {
        Offset::new(raw).unwrap()
    }

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn one_record(bytes: u64, offset: Offset, max_timestamp: Option<Timestamp>) -> Incoming {
        Incoming { bytes, first_offset: Some(offset), last_offset: offset, max_timestamp }
    }

    const NEVER: RollLimits =
        RollLimits { segment_bytes: 1 << 30, segment_ms: i64::MAX, jitter_ms: 0 };

    /// The bases of the segments of a log, and a clock.
    struct Model {
        active: ActiveSegment,
        bases: Vec<i64>,
        log_end: Offset,
        limits: RollLimits,
        now: i64,
    }

    impl Model {
        fn new(limits: RollLimits) -> Model {
            let now = 1_700_000_000_000;
            let mut model = Model {
                active: Model::empty(Offset::ZERO, now),
                bases: vec![],
                log_end: Offset::ZERO,
                limits,
                now,
            };
            model.bases.push(0);
            model
        }

        fn empty(base_offset: Offset, now: i64) -> ActiveSegment {
            ActiveSegment {
                base_offset,
                bytes: 0,
                first_timestamp: None,
                created: at(now),
                index_is_full: false,
                time_index_is_full: false,
            }
        }

        fn roll(&mut self, incoming: Option<&Incoming>) {
            match new_segment(&self.active, incoming, self.log_end) {
                NewSegment::After(base) => {
                    self.bases.push(base.get());
                    self.active = Model::empty(base, self.now);
                }
                NewSegment::InPlaceOfEmpty(base) => self.active = Model::empty(base, self.now),
                NewSegment::Impossible(base) => panic!("{base}"),
            }
        }

        fn append_set(&mut self, incoming: &Incoming) -> usize {
            if must_roll(&self.active, incoming, &self.limits, at(self.now)).is_some() {
                self.roll(Some(incoming));
            }
            if self.active.bytes == 0 {
                self.active.first_timestamp = incoming.max_timestamp;
            }
            self.active.bytes += incoming.bytes;
            self.log_end = incoming.last_offset.next();
            self.bases.len()
        }

        /// Appends one record and says how many segments there are then.
        fn append(&mut self, timestamp: Option<i64>) -> usize {
            self.append_set(&one_record(100, self.log_end, timestamp.map(at)))
        }
    }

    /// kafka-behaviours row 47 (`UnifiedLogTest.testTimeBasedLogRollDuringAppend`): "segments: 1
    /// (an empty one never rolls by time), 2, 3, 4, 4 (its first batch has no timestamp: wall
    /// clock rules), 5, 5 (first batch has timestamp T: record time rules), 6, 6". The last append
    /// is that of an empty set, which comes to no roll.
    #[test]
    fn a_segment_ages_by_its_records_and_without_their_times_by_the_clock() {
        let mut log = Model::new(RollLimits { segment_ms: 3600, ..NEVER });
        log.now += 3601;
        assert_eq!((log.append(None), log.append(None)), (1, 2));
        for segments in [3, 4] {
            log.now += 3601;
            assert_eq!(log.append(None), segments);
        }
        let t = log.now + 3601;
        assert_eq!(log.append(Some(t)), 4);
        log.now += 3601;
        assert_eq!(log.append(Some(t)), 5);
        log.now += 3601;
        assert_eq!(log.append(Some(t)), 5);
        assert_eq!(log.append(Some(log.now)), 6);
    }

    #[test]
    fn a_segment_that_waited_exactly_segment_ms_goes_on() {
        let mut log = Model::new(RollLimits { segment_ms: 3600, ..NEVER });
        assert_eq!((log.append(Some(1000)), log.append(Some(4600)), log.append(None)), (1, 1, 1));
        assert_eq!((log.append(Some(4601)), log.append(Some(0))), (2, 2));
    }

    /// kafka-behaviours row 48 (`UnifiedLogTest.testTimeBasedLogRollJitter`): "append a record at
    /// t0 + 2400; append one at t0 + 3600 - jitter + 1: 1 segment; 2 segments".
    #[test]
    fn jitter_makes_a_segment_roll_earlier() {
        for random in [0, 1, 1199, 1200, u32::MAX] {
            let jitter = jitter_ms(random, 1200, 3600);
            assert!((0..1200).contains(&jitter));
            let mut log = Model::new(RollLimits { segment_ms: 3600, jitter_ms: jitter, ..NEVER });
            let t0 = log.now;
            assert_eq!((log.append(Some(t0)), log.append(Some(t0 + 2400))), (1, 1));
            assert_eq!(log.append(Some(t0 + 3600 - jitter)), 1);
            assert_eq!(log.append(Some(t0 + 3600 - jitter + 1)), 2);
        }
        assert_eq!((jitter_ms(7, 0, 3600), jitter_ms(7, i64::MAX, 5)), (0, 2));
    }

    /// kafka-behaviours row 49 (`UnifiedLogTest.testSizeBasedLogRoll`): "record set of s bytes,
    /// segment.bytes = 10 x (s - 1): append 11 times: 2 segments".
    #[test]
    fn a_segment_never_grows_beyond_segment_bytes() {
        let mut log = Model::new(RollLimits { segment_bytes: 10 * (100 - 1), ..NEVER });
        let segments: Vec<_> = (0..11).map(|_| log.append(Some(1))).collect();
        assert_eq!(segments, [1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2]);
        let mut exact = Model::new(RollLimits { segment_bytes: 200, ..NEVER });
        assert_eq!([(); 3].map(|()| exact.append(None)), [1, 1, 2]);
    }

    /// kafka-behaviours row 50 (`LocalLogTest.testNewSegmentsAfterRoll`): "bases 0 (still 1
    /// segment), 1 (2 segments), 2 (3 segments: the LEO wins over a lower expected offset)".
    #[test]
    fn a_forced_roll_begins_at_the_log_end() {
        let mut log = Model::new(NEVER);
        log.roll(None);
        assert_eq!(log.bases, [0]);
        log.append(None);
        log.roll(None);
        assert_eq!(log.bases, [0, 1]);
        log.append(None);
        log.roll(Some(&one_record(100, offset(1), None)));
        assert_eq!(log.bases, [0, 1, 2]);
    }

    /// kafka-behaviours row 51 (`UnifiedLogTest.testRollSegmentThatAlreadyExists`): "the empty
    /// active segment is replaced by a fresh one with the same base 2 and a usable index; still 2
    /// segments".
    #[test]
    fn an_empty_segment_whose_index_has_no_room_is_made_anew() {
        let mut log = Model::new(NEVER);
        log.roll(None);
        assert_eq!((log.append(None), log.append(None)), (1, 1));
        log.roll(None);
        log.active.index_is_full = true;
        let next = one_record(100, offset(2), None);
        let reason = must_roll(&log.active, &next, &NEVER, at(log.now));
        assert_eq!(reason, Some(RollReason::IndexFull));
        assert_eq!(log.append_set(&next), 2);
        assert_eq!((log.bases.as_slice(), log.active.index_is_full), (&[0, 2][..], false));
    }

    #[test]
    fn no_segment_takes_the_place_of_one_with_data() {
        let segment = ActiveSegment { bytes: 1, ..Model::empty(offset(5), 0) };
        for end in [4, 5] {
            let impossible = NewSegment::Impossible(offset(end));
            assert_eq!(new_segment(&segment, None, offset(end)), impossible);
        }
        let empty = Model::empty(offset(5), 0);
        assert_eq!(new_segment(&empty, None, offset(4)), NewSegment::Impossible(offset(4)));
    }

    /// kafka-behaviours row 52 (`LogLoaderTest.testOverCompactedLogRecovery`): "follower, v2:
    /// record 0; append single records at 2147483649, 2147483650, 2147483651: a roll to base
    /// 2147483649; the others stay in it".
    #[test]
    fn an_offset_that_is_too_far_begins_a_segment_of_its_own() {
        let mut log = Model::new(NEVER);
        log.append(None);
        for far in [2_147_483_649, 2_147_483_650, 2_147_483_651] {
            assert_eq!(log.append_set(&one_record(100, offset(far), None)), 2);
        }
        assert_eq!(log.bases, [0, 2_147_483_649]);
    }

    /// kafka-behaviours row 42 (`LogSegmentTest.testTruncateEmptySegment`), the rolling part: "ask
    /// for a roll with last offset 100 after 300001 ms; with last offset 2147483847: no roll (an
    /// empty segment never rolls by time); roll (offset overflow)".
    #[test]
    fn an_empty_segment_rolls_only_for_what_it_cannot_hold() {
        let limits = RollLimits { segment_ms: 300_000, ..NEVER };
        let reason = |base, last| {
            let incoming = one_record(100, offset(last), None);
            must_roll(&Model::empty(offset(base), 0), &incoming, &limits, at(300_001))
        };
        assert_eq!(reason(0, 100), None);
        assert_eq!(reason(57, 2_147_483_847), Some(RollReason::RelativeOffset));
        assert_eq!(reason(57, 57 + i64::from(i32::MAX)), None);
        assert_eq!(reason(57, 56), Some(RollReason::RelativeOffset));
    }

    /// kafka-behaviours row 36 (`LogSegmentTest.testAppendForLogSegmentOffsetOverflowException`):
    /// "segment base / largest offset pairs (0, -2147483648), (0, 2147483648), (1, 0), (100, 10),
    /// (2147483648, 0), (-2147483648, 0), (2147483648, 4294967296): offset-overflow error for
    /// each". Nothing is appended to a segment that cannot hold it; negative numbers are no
    /// offsets.
    #[test]
    fn an_offset_that_a_segment_cannot_hold_goes_elsewhere() {
        let far = 1 << 31;
        for (base, largest) in [(0, far), (1, 0), (100, 10), (far, 0), (far, 2 * far)] {
            let incoming = one_record(100, offset(largest), None);
            let reason = must_roll(&Model::empty(offset(base), 0), &incoming, &NEVER, at(0));
            assert_eq!(reason, Some(RollReason::RelativeOffset), "({base}, {largest})");
        }
        assert_eq!(Offset::new(-far), None);
    }

    #[test]
    fn a_full_time_index_begins_a_segment() {
        let segment = ActiveSegment { time_index_is_full: true, ..Model::empty(offset(0), 0) };
        let incoming = one_record(100, offset(0), None);
        let reason = must_roll(&segment, &incoming, &NEVER, at(0));
        assert_eq!(reason, Some(RollReason::TimeIndexFull));
    }

    #[test]
    fn a_segment_for_a_legacy_wrapper_begins_as_early_as_that_may() {
        let wrapper = |last| Incoming { first_offset: None, ..one_record(100, offset(last), None) };
        let far = wrapper(3_000_000_000);
        assert_eq!(new_base_offset(&far, offset(7)), offset(3_000_000_000 - i64::from(i32::MAX)));
        assert_eq!(new_base_offset(&wrapper(20), offset(7)), offset(7));
    }

    #[test]
    fn compaction_lag_shortens_segments_of_compacted_logs() {
        assert_eq!(segment_ms(1000, true, 10), 10);
        assert_eq!(segment_ms(1000, true, 0), 1000);
        assert_eq!(segment_ms(1000, true, i64::MAX), 1000);
        assert_eq!(segment_ms(1000, false, 10), 1000);
    }
}
