//! Which `.snapshot` files of a log stay, which are loaded, and at which offsets they are written
//! (format page, "Producer snapshots"). A snapshot is named here by its offset, as its file is.

use crate::units::Offset;

/// How the producers before some offset are found again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reload {
    /// Snapshots that are deleted first: they are later than that, or all they say is of records
    /// that are gone.
    pub delete: Vec<Offset>,
    /// Snapshots to load, best first. The first that can be read counts, those before it are
    /// broken and deleted. With none, the batches are read from the log start on.
    pub candidates: Vec<Offset>,
}

/// How to find the producers before `end` in a log that begins at `log_start`. The batches from the
/// snapshot up to `end` are applied after it is loaded.
pub fn reload(snapshots: &[Offset], log_start: Offset, end: Offset) -> Reload {
    let usable = |offset: &Offset| *offset > log_start && *offset <= end;
    let (mut candidates, delete): (Vec<_>, Vec<_>) = snapshots.iter().copied().partition(usable);
    candidates.sort_unstable_by(|a, b| b.cmp(a));
    Reload { delete, candidates }
}

/// Which of the `snapshots` belong to nothing when a log is opened: all that are no segment's base
/// offset, but for the largest of them when it is behind every base, which an orderly shutdown
/// left.
pub fn strays(snapshots: &[Offset], bases: &[Offset]) -> Vec<Offset> {
    let others = snapshots.iter().copied().filter(|offset| !bases.contains(offset));
    let last_base = bases.iter().max();
    let kept = others.clone().max().filter(|largest| last_base.is_none_or(|last| largest >= last));
    others.filter(|offset| Some(*offset) != kept).collect()
}

/// Where snapshots are written while the producers before `end` are found again, ascending: at the
/// base offsets of the last two segments and at `end`, so that no truncation soon after has to read
/// far. `bases` ascend. A log that was closed in order and has no snapshot at all gets empty ones
/// there and is not read.
pub fn points(bases: &[Offset], end: Offset) -> Vec<Offset> {
    let last_two = bases.len().saturating_sub(2);
    let mut points: Vec<_> = bases[last_two..].iter().copied().chain([end]).collect();
    points.dedup();
    points
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::engine::fixture;
    use crate::engine::producers::ProducerStates;
    use crate::format::batch::BatchHeader;
    use crate::format::snapshot::ProducerState;
    use crate::units::Timestamp;

    const NOW: Timestamp = Timestamp::from_millis(1000);
    const DAY: i64 = 86_400_000;

    fn offset(raw: i64) -> Offset {
        Offset::new(raw).unwrap()
    }

    fn offsets(raw: &[i64]) -> Vec<Offset> {
        raw.iter().map(|&raw| offset(raw)).collect()
    }

    /// The snapshot files of a log, `None` where one is broken, and its one-record batches.
    #[derive(Default)]
    struct Model {
        files: BTreeMap<Offset, Option<Vec<ProducerState>>>,
        batches: Vec<BatchHeader>,
    }

    impl Model {
        fn append(&mut self, states: &mut ProducerStates) {
            let next = states.end_offset().get();
            let header = BatchHeader {
                producer_id: 1,
                producer_epoch: 0,
                base_sequence: i32::try_from(next).unwrap(),
                max_timestamp: Some(NOW),
                ..fixture::batch(next, next)
            };
            states.apply(&header, None);
            self.batches.push(header);
        }

        fn take(&mut self, states: &mut ProducerStates) {
            if states.snapshot_is_due() {
                self.files.insert(states.end_offset(), Some(states.snapshot()));
                states.snapshot_written();
            }
        }

        fn names(&self) -> Vec<i64> {
            self.files.keys().map(|offset| offset.get()).collect()
        }

        /// The producers before `end`, as a log with segments at `bases` finds them again.
        fn reload(&mut self, bases: &[i64], end: i64) -> ProducerStates {
            let end = offset(end);
            let names: Vec<_> = self.files.keys().copied().collect();
            let Reload { delete, candidates } = reload(&names, Offset::ZERO, end);
            self.files.retain(|name, _| !delete.contains(name));
            let mut states = ProducerStates::new(Offset::ZERO);
            for name in candidates {
                if let Some(entries) = &self.files[&name] {
                    states = ProducerStates::restore(entries, name, NOW, DAY);
                    break;
                }
                self.files.remove(&name);
            }
            let points = points(&offsets(bases), end);
            let is_left = |batch: &BatchHeader| batch.last_offset < end;
            for batch in self.batches.clone().into_iter().filter(is_left) {
                if batch.base_offset >= states.end_offset() {
                    if points.contains(&batch.base_offset) {
                        self.take(&mut states);
                    }
                    states.apply(&batch, None);
                }
            }
            states.skip_to(end);
            self.take(&mut states);
            states
        }
    }

    fn last_offset(states: &ProducerStates) -> Option<i64> {
        states.producer(1)?.last_batch.map(|batch| batch.last_offset.get())
    }

    /// kafka-behaviours row 102 (`ProducerStateManagerTest.testLoadFromEmptySnapshotFile`,
    /// `testLoadFromTruncatedSnapshotFile`, `testLoadFromCorruptSnapshotFile`): "snapshots at 1
    /// and 2; the newer one emptied, halved, or its first 37 bytes zeroed: the bad file is
    /// deleted, state comes from the older one (last offset 0)". Which files are bad is for
    /// `format::snapshot`.
    #[test]
    fn a_broken_snapshot_is_deleted_and_an_older_one_loaded() {
        let (mut log, mut states) = (Model::default(), ProducerStates::new(Offset::ZERO));
        for _ in 0..2 {
            log.append(&mut states);
            log.take(&mut states);
        }
        log.files.insert(offset(2), None);
        log.batches.truncate(1);
        let states = log.reload(&[0], 2);
        assert_eq!(last_offset(&states), Some(0));
        assert!(log.files[&offset(2)].is_some(), "a good one was written in its place");
    }

    /// kafka-behaviours row 103
    /// (`ProducerStateManagerTest.testRemoveStraySnapshotsKeepCleanShutdownSnapshot`,
    /// `testRemoveAllStraySnapshots`): "snapshot files 2, 5, 42; segment bases [5]; bases [42]: 5
    /// and 42 stay; only 42 stays".
    #[test]
    fn snapshots_of_no_segment_are_strays_but_for_the_last() {
        let found = |files: &[i64], bases: &[i64]| strays(&offsets(files), &offsets(bases));
        assert_eq!(found(&[2, 5, 42], &[5]), offsets(&[2]));
        assert_eq!(found(&[2, 5, 42], &[42]), offsets(&[2, 5]));
        assert_eq!(found(&[42, 7, 5, 2], &[2, 5]), offsets(&[7]));
        assert_eq!(found(&[2, 5], &[]), offsets(&[2]));
        assert_eq!(found(&[], &[5]), []);
    }

    /// kafka-behaviours row 121
    /// (`LogLoaderTest.testLoadingLogKeepsLargestStrayProducerStateSnapshot`): "3 segments 0, 1, 2
    /// with records 0-3, closed: snapshots 1, 2, 4; a stray file 3 added: 1, 2, 4".
    #[test]
    fn the_snapshot_of_an_orderly_shutdown_stays() {
        assert_eq!(strays(&offsets(&[1, 2, 3, 4]), &offsets(&[0, 1, 2])), offsets(&[3]));
    }

    /// kafka-behaviours row 76 (`UnifiedLogTest.testProducerIdMapTruncateTo`): "records 0-2,
    /// snapshots taken at 2 and 3; truncate to 2, 1, 0: latest snapshot 2, 1, none; producer-state
    /// end 2, 1, 0".
    #[test]
    fn a_truncated_log_has_a_snapshot_at_its_end() {
        let (mut log, mut states) = (Model::default(), ProducerStates::new(Offset::ZERO));
        for _ in 0..3 {
            log.append(&mut states);
            if states.end_offset() > offset(1) {
                log.take(&mut states);
            }
        }
        assert_eq!(log.names(), [2, 3]);
        for (target, names) in [(2, &[2][..]), (1, &[1]), (0, &[])] {
            let states = log.reload(&[0], target);
            assert_eq!((log.names().as_slice(), states.end_offset().get()), (names, target));
            assert_eq!(last_offset(&states), target.checked_sub(1).filter(|last| *last >= 0));
        }
    }

    /// kafka-behaviours row 108 (`UnifiedLogTest.testProducerSnapshotAfterSegmentRollOnAppend`):
    /// "two idempotent 512-byte records; truncate to 1: latest snapshot 1; producer's last offset
    /// 0".
    #[test]
    fn a_roll_leaves_a_snapshot_to_truncate_to() {
        let (mut log, mut states) = (Model::default(), ProducerStates::new(Offset::ZERO));
        log.append(&mut states);
        log.take(&mut states);
        log.append(&mut states);
        let states = log.reload(&[0, 1], 1);
        assert_eq!((log.names(), last_offset(&states)), (vec![1], Some(0)));
    }

    #[test]
    fn a_log_without_snapshots_gets_them_where_it_may_be_cut_next() {
        let (mut log, mut states) = (Model::default(), ProducerStates::new(Offset::ZERO));
        for _ in 0..30 {
            log.append(&mut states);
        }
        let found = log.reload(&[0, 10, 20], 30);
        assert_eq!(log.names(), [10, 20, 30]);
        states.snapshot_written();
        assert_eq!(found, states);
        assert_eq!(points(&offsets(&[0]), offset(0)), offsets(&[0]));
        assert_eq!(points(&offsets(&[]), offset(3)), offsets(&[3]));
    }

    #[test]
    fn snapshots_at_or_below_the_log_start_are_not_loaded() {
        let plan = reload(&offsets(&[3, 5, 7, 9, 11]), offset(5), offset(9));
        assert_eq!(plan.candidates, offsets(&[9, 7]));
        assert_eq!(plan.delete, offsets(&[3, 5, 11]));
    }
}
