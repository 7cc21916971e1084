//! Which leader epoch began at which offset; what a `leader-epoch-checkpoint` holds (format page,
//! "Leader-epoch cache").
//!
//! Epochs and offsets both ascend strictly, whatever was assigned in which order: a new entry drops
//! the later ones that contradict it. What changes an entry answers `true`: an assignment has to be
//! in the file, and synced, before the append returns; a truncation may be written later.

use crate::format::batch::{BatchHeader, Magic};
use crate::format::checkpoint::EpochStart;
use crate::units::{LeaderEpoch, Offset};

/// The leader epochs of one log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaderEpochs {
    entries: Vec<EpochStart>,
}

impl LeaderEpochs {
    /// Those of a checkpoint file. Of lines that contradict each other the later ones count.
    pub fn new(lines: &[EpochStart]) -> LeaderEpochs {
        let mut epochs = LeaderEpochs::default();
        for line in lines {
            let _written_already = epochs.assign(line.epoch, line.start);
        }
        epochs
    }

    /// The lines of the checkpoint file, in their order.
    pub fn entries(&self) -> &[EpochStart] {
        &self.entries
    }

    /// The epoch that was assigned last.
    pub fn latest(&self) -> Option<LeaderEpoch> {
        self.entries.last().map(|entry| entry.epoch)
    }

    /// Records from `start` on are of `epoch`. Nothing changes when they are so already.
    #[must_use = "a change has to be written"]
    pub fn assign(&mut self, epoch: LeaderEpoch, start: Offset) -> bool {
        let is_known =
            self.entries.last().is_some_and(|last| last.epoch == epoch && last.start <= start);
        if is_known {
            return false;
        }
        let fits = |entry: &EpochStart| entry.epoch < epoch && entry.start < start;
        let kept = self.entries.partition_point(fits);
        self.entries.truncate(kept);
        self.entries.push(EpochStart { epoch, start });
        true
    }

    /// For a batch that is being appended: notes the epoch that begins with it. A batch of a format
    /// without epochs ends the tracking: all entries go. A magic 2 batch may have none, and says
    /// nothing then.
    #[must_use = "a change has to be written"]
    pub fn append(&mut self, header: &BatchHeader) -> bool {
        match (header.magic, header.leader_epoch) {
            (Magic::V0 | Magic::V1, _) => self.clear(),
            (Magic::V2, Some(epoch)) => self.assign(epoch, header.base_offset),
            (Magic::V2, None) => false,
        }
    }

    /// For a batch that is found when a log is recovered: only what is newer than all that is known
    /// counts, since the file may know more than the batches from the recovery point on.
    #[must_use = "a change has to be written"]
    pub fn recover(&mut self, header: &BatchHeader) -> bool {
        match (header.magic, header.leader_epoch) {
            (Magic::V2, Some(epoch)) if self.latest().is_none_or(|latest| epoch > latest) => {
                self.assign(epoch, header.base_offset)
            }
            (Magic::V0 | Magic::V1 | Magic::V2, _) => false,
        }
    }

    /// The log now ends before `end`.
    #[must_use = "a change has to be written"]
    pub fn truncate_from_end(&mut self, end: Offset) -> bool {
        let kept = self.entries.partition_point(|entry| entry.start < end);
        let changed = kept < self.entries.len();
        self.entries.truncate(kept);
        changed
    }

    /// The log now begins at `start`. The epoch of that offset stays, and begins there.
    #[must_use = "a change has to be written"]
    pub fn truncate_from_start(&mut self, start: Offset) -> bool {
        let gone = self.entries.partition_point(|entry| entry.start <= start);
        let Some(first) = gone.checked_sub(1) else { return false };
        let changed = first > 0 || self.entries[first].start != start;
        self.entries.drain(..first);
        self.entries[0].start = start;
        changed
    }

    /// Forgets all, as when a log is emptied.
    #[must_use = "a change has to be written"]
    pub fn clear(&mut self) -> bool {
        let changed = !self.entries.is_empty();
        self.entries.clear();
        changed
    }

    /// The epoch of the record at `offset`; `None` before the first that is known.
    pub fn epoch_for_offset(&self, offset: Offset) -> Option<LeaderEpoch> {
        let after = self.entries.partition_point(|entry| entry.start <= offset);
        Some(self.entries.get(after.checked_sub(1)?)?.epoch)
    }

    /// Where `requested` ended, in a log that ends at `log_end`: the greatest epoch up to it that
    /// is known, and the first offset of a later one. An epoch before all that are known ended
    /// where these begin. `None` for one later than all, and when none is known.
    pub fn end_offset_for(
        &self,
        requested: LeaderEpoch,
        log_end: Offset,
    ) -> Option<(LeaderEpoch, Offset)> {
        let latest = self.latest()?;
        if requested == latest {
            return Some((latest, log_end));
        }
        let later = self.entries.partition_point(|entry| entry.epoch <= requested);
        let end = self.entries.get(later)?.start;
        let epoch = later.checked_sub(1).map_or(requested, |known| self.entries[known].epoch);
        Some((epoch, end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::fixture::{self, epochs, shown_epochs as shown};
    use crate::format::checkpoint::parse_leader_epochs;
    use proptest::prelude::*;

    fn epoch(raw: i32) -> LeaderEpoch {
        LeaderEpoch::new(raw).unwrap()
    }

    fn offset(raw: i64) -> Offset {
        Offset::new(raw).unwrap()
    }

    fn batch(first: i64, last: i64, number: i32) -> BatchHeader {
        BatchHeader { leader_epoch: LeaderEpoch::new(number), ..fixture::batch(first, last) }
    }

    /// kafka-behaviours row 87
    /// (`LeaderEpochFileCacheTest.shouldEnforceMonotonicallyIncreasingStartOffsets`,
    /// `shouldEnforceOffsetsIncreaseMonotonically`): "[3@9]; [3@5]".
    #[test]
    fn a_new_epoch_drops_those_that_do_not_begin_before_it() {
        let mut same = epochs(&[(2, 9)]);
        assert!(same.assign(epoch(3), offset(9)));
        assert_eq!(shown(&same), [(3, 9)]);
        let mut before = epochs(&[(2, 6)]);
        assert!(before.assign(epoch(3), offset(5)));
        assert_eq!(shown(&before), [(3, 5)]);
    }

    #[test]
    fn the_latest_epoch_again_changes_nothing_unless_it_begins_earlier() {
        let mut known = epochs(&[(1, 4), (2, 9)]);
        assert!(!known.assign(epoch(2), offset(9)));
        assert!(!known.assign(epoch(2), offset(20)));
        assert!(known.assign(epoch(2), offset(8)));
        assert_eq!(shown(&known), [(1, 4), (2, 8)]);
        assert!(known.assign(epoch(1), offset(30)), "an older one, as after a lost election");
        assert_eq!(shown(&known), [(1, 30)]);
    }

    /// kafka-behaviours row 88
    /// (`LeaderEpochFileCacheTest.shouldReturnFirstEpochIfRequestedEpochLessThanFirstEpoch`): "end
    /// offset for 4: (4, 11)".
    #[test]
    fn an_epoch_before_all_ended_where_they_begin() {
        let known = epochs(&[(5, 11), (6, 12), (7, 13)]);
        assert_eq!(known.end_offset_for(epoch(4), offset(20)), Some((epoch(4), offset(11))));
    }

    /// kafka-behaviours row 89 (`LeaderEpochFileCacheTest`:
    /// `shouldReturnNextAvailableEpochIfThereIsNoExactEpochForTheOneRequested`): "(0, 13), (2,
    /// 17), (2, 17)".
    #[test]
    fn an_epoch_between_two_is_the_one_before() {
        let known = epochs(&[(0, 10), (2, 13), (4, 17)]);
        for (requested, found, end) in [(1, 0, 13), (2, 2, 17), (3, 2, 17), (4, 4, 20)] {
            let answer = known.end_offset_for(epoch(requested), offset(20));
            assert_eq!(answer, Some((epoch(found), offset(end))), "{requested}");
        }
    }

    /// kafka-behaviours row 90 (`LeaderEpochFileCacheTest`:
    /// `shouldReturnInvalidOffsetIfEpochIsRequestedWhichIsNotCurrentlyTracked`,
    /// `shouldReturnUndefinedOffsetIfUndefinedEpochRequested`,
    /// `shouldFetchEndOffsetOfEmptyCache`): "(-1, -1) each". That -1 is no epoch the type says.
    #[test]
    fn an_epoch_after_all_has_no_end() {
        assert_eq!(epochs(&[(2, 100)]).end_offset_for(epoch(3), offset(200)), None);
        assert_eq!(LeaderEpoch::new(-1), None);
        assert_eq!(epochs(&[]).end_offset_for(epoch(7), offset(200)), None);
        assert_eq!(epochs(&[]).latest(), None);
    }

    /// kafka-behaviours row 91
    /// (`LeaderEpochFileCacheTest.shouldDropEntriesOnEpochBoundaryWhenRemovingLatestEntries`,
    /// `shouldDropEntriesBetweenEpochBoundaryWhenRemovingNewest`): "truncate from end at 8; at 9:
    /// [2@6]; [2@6, 3@8]". An offset of -1 there is none.
    #[test]
    fn epochs_that_begin_behind_the_end_go() {
        for (end, left) in [(8, 1), (9, 2), (6, 0), (12, 3)] {
            let all = [(2, 6), (3, 8), (4, 11)];
            let mut known = epochs(&all);
            assert_eq!(known.truncate_from_end(offset(end)), left < 3, "{end}");
            assert_eq!(shown(&known), all[..left], "{end}");
        }
    }

    /// kafka-behaviours row 92
    /// (`LeaderEpochFileCacheTest.shouldPreserveResetOffsetOnClearEarliestIfOneExists`,
    /// `shouldUpdateSavedOffsetWhenOffsetToClearToIsBetweenEpochs`,
    /// `shouldRetainLatestEpochOnClearAllEarliest...`): "truncate from start at 1, 6, 8, 9, 11, 15:
    /// unchanged; unchanged; [3@8, 4@11]; [3@9, 4@11]; [4@11]; [4@15]".
    #[test]
    fn the_epoch_of_the_first_offset_begins_there() {
        let all: &[(i32, i64)] = &[(2, 6), (3, 8), (4, 11)];
        for (start, left) in [
            (1, all),
            (6, all),
            (7, &[(2, 7), (3, 8), (4, 11)]),
            (8, &all[1..]),
            (9, &[(3, 9), (4, 11)]),
            (11, &all[2..]),
            (15, &[(4, 15)]),
        ] {
            let mut known = epochs(all);
            assert_eq!(known.truncate_from_start(offset(start)), left != all, "{start}");
            assert_eq!(shown(&known), left, "{start}");
        }
    }

    /// kafka-behaviours row 93 (`LeaderEpochFileCacheTest.shouldFetchEpochForGivenOffset`): "epoch
    /// for offset 5, 20, 25, 30, 50: none, 1, 1, 5, 5".
    #[test]
    fn each_offset_has_the_epoch_that_began_last_before_it() {
        let known = epochs(&[(0, 10), (1, 20), (5, 30)]);
        let found = [5, 20, 25, 30, 50].map(|at| known.epoch_for_offset(offset(at)));
        let found = found.map(|number| number.map(LeaderEpoch::get));
        assert_eq!(found, [None, Some(1), Some(1), Some(5), Some(5)]);
    }

    /// kafka-behaviours row 45 (`LogSegmentTest.testRecoveryRebuildsEpochCache`): "recover with an
    /// empty epoch cache: epochs (0, 104), (1, 106), (2, 110)".
    #[test]
    fn recovery_finds_the_epochs_in_the_batches() {
        let mut found = LeaderEpochs::default();
        for (first, number) in [(104, 0), (106, 1), (108, 1), (110, 2)] {
            let _changed = found.recover(&batch(first, first + 1, number));
        }
        assert_eq!(shown(&found), [(0, 104), (1, 106), (2, 110)]);
    }

    /// kafka-behaviours row 116 (`LogLoaderTest.testLogRecoversForLeaderEpoch`): "epoch file
    /// truncated at 2: epochs (1, 0), (2, 1), (3, 3) again".
    #[test]
    fn recovery_finds_again_what_the_file_lost() {
        let batches = [(0, 1), (1, 2), (2, 2), (3, 3)];
        let mut known = LeaderEpochs::default();
        for (at, number) in batches {
            let _changed = known.append(&batch(at, at, number));
        }
        let whole = known.clone();
        assert_eq!(shown(&whole), [(1, 0), (2, 1), (3, 3)]);
        assert!(known.truncate_from_end(offset(2)));
        assert_eq!(shown(&known), [(1, 0), (2, 1)]);
        let changes = batches.map(|(at, number)| known.recover(&batch(at, at, number)));
        assert_eq!(changes, [false, false, false, true]);
        assert_eq!(known, whole);
    }

    #[test]
    fn legacy_batches_end_the_tracking_and_unknown_epochs_change_nothing() {
        let mut known = epochs(&[(1, 0)]);
        assert!(!known.append(&batch(5, 5, -1)));
        assert!(!known.recover(&batch(5, 5, -1)));
        let legacy = BatchHeader { magic: Magic::V1, ..batch(6, 6, -1) };
        assert!(!known.recover(&legacy));
        assert_eq!(shown(&known), [(1, 0)]);
        assert!(known.append(&legacy));
        assert_eq!(shown(&known), []);
        assert!(!known.append(&legacy));
    }

    #[test]
    fn what_kafka_wrote_is_kept_as_it_is() {
        for partition in fixture::partitions("clean") {
            let data = fixture::data_dir("clean", &[&partition]);
            let path = data.path().join(&partition).join("leader-epoch-checkpoint");
            let lines = parse_leader_epochs(&std::fs::read(path).unwrap()).unwrap();
            assert_eq!(LeaderEpochs::new(&lines).entries(), lines, "{partition}");
        }
    }

    proptest! {
        /// A model that knows the epoch of every offset from 0 to 49.
        #[test]
        fn any_assignments_leave_epochs_and_offsets_ascending(
            steps in prop::collection::vec((0..4, 0..6i32, 0..50i64), 1..40),
        ) {
            let mut known = LeaderEpochs::default();
            for (what, number, at) in steps {
                let before = known.clone();
                let (number, at) = (epoch(number), offset(at));
                let changed = match what {
                    0 | 1 => known.assign(number, at),
                    2 => known.truncate_from_end(at),
                    _ => known.truncate_from_start(at),
                };
                prop_assert_eq!(changed, known != before);
                for pair in known.entries().windows(2) {
                    prop_assert!(pair[0].epoch < pair[1].epoch && pair[0].start < pair[1].start);
                }
                for around in 0..50 {
                    let expected = match what {
                        0 | 1 if offset(around) >= at => Some(number),
                        2 if offset(around) >= at => continue,
                        0..=2 => continue,
                        _ if offset(around) < at => continue,
                        _ => before.epoch_for_offset(offset(around)),
                    };
                    prop_assert_eq!(known.epoch_for_offset(offset(around)), expected);
                }
            }
        }
    }
}
