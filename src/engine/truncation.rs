//! What becomes of a log that is cut off at an offset (format page, "Truncation"; contract 5.6).
//! Whole batches go: the one that holds the offset too.

use crate::format::batch::BatchHeader;
use crate::units::Offset;

/// How a log is cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Truncation {
    /// The log ends there or before; its batches stay. Leader epochs that begin at its end or
    /// behind it go all the same ([`Self::epochs_end`]): they may be of an election that nothing
    /// was written after.
    Nothing,
    /// So many segments stay. The last of them is active then, and is cut before the first batch
    /// that [`goes`]; that may empty it. The others are deleted.
    Cut {
        /// How many segments stay, at least one.
        kept: usize,
    },
    /// All segments are deleted and an empty one begins at this offset; leader epochs and producer
    /// snapshots all go.
    StartAfresh(Offset),
}

/// The four offsets that say where a log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watermarks {
    /// First offset that is shown.
    pub log_start: Offset,
    /// First offset that consumers do not see.
    pub high_watermark: Offset,
    /// First offset that may not be on the medium.
    pub recovery_point: Offset,
    /// The offset that the next record will get.
    pub log_end: Offset,
}

impl Truncation {
    /// How to cut a log with segments of these base offsets, ascending, so that it ends at
    /// `target`.
    pub fn to(target: Offset, bases: &[Offset], log_end: Offset) -> Truncation {
        if target >= log_end {
            return Truncation::Nothing;
        }
        match bases.partition_point(|base| *base <= target) {
            0 => Truncation::StartAfresh(target),
            kept => Truncation::Cut { kept },
        }
    }

    /// Leader epochs that begin there or later go.
    pub fn epochs_end(self, target: Offset, log_end: Offset) -> Offset {
        match self {
            Truncation::Nothing => log_end,
            Truncation::Cut { .. } => target,
            Truncation::StartAfresh(_) => Offset::ZERO,
        }
    }
}

/// Does this batch go when its segment is cut at `target`? All behind the first one that does go
/// with it, and the index entries with offsets from `target` on.
pub fn goes(header: &BatchHeader, target: Offset) -> bool {
    header.last_offset >= target
}

impl Watermarks {
    /// After a cut: the log ends at `target`, even where no batch is left that reaches so far.
    #[must_use]
    pub fn cut(self, target: Offset) -> Watermarks {
        Watermarks {
            log_start: self.log_start.min(target),
            high_watermark: self.high_watermark.min(target),
            recovery_point: self.recovery_point.min(target),
            log_end: target,
        }
    }

    /// After the log was emptied and begins afresh at `offset`; the log start may be given.
    #[must_use]
    pub fn afresh(self, offset: Offset, log_start: Option<Offset>) -> Watermarks {
        Watermarks {
            log_start: log_start.unwrap_or(offset),
            high_watermark: offset,
            recovery_point: self.recovery_point.min(offset),
            log_end: offset,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::epochs::LeaderEpochs;
    use crate::engine::fixture::{self, epochs};
    use crate::units::LeaderEpoch;

    fn offset(raw: i64) -> Offset {
        Offset::new(raw).unwrap()
    }

    /// A log of batches, first and last offsets each, in segments.
    struct Model {
        segments: Vec<(i64, Vec<(i64, i64)>)>,
        marks: Watermarks,
    }

    impl Model {
        /// One-record batches from the first base up to `end`.
        fn new(bases: &[i64], end: i64) -> Model {
            let ends = bases[1..].iter().chain([&end]);
            let segments = bases.iter().zip(ends);
            Model {
                segments: segments
                    .map(|(&base, &end)| (base, (base..end).map(|at| (at, at)).collect()))
                    .collect(),
                marks: Watermarks {
                    log_start: offset(bases[0]),
                    high_watermark: offset(end),
                    recovery_point: Offset::ZERO,
                    log_end: offset(end),
                },
            }
        }

        fn truncate(&mut self, target: i64) -> Truncation {
            let bases: Vec<_> = self.segments.iter().map(|(base, _)| offset(*base)).collect();
            let target = offset(target);
            let plan = Truncation::to(target, &bases, self.marks.log_end);
            match plan {
                Truncation::Nothing => {}
                Truncation::Cut { kept } => {
                    self.segments.truncate(kept);
                    let stays =
                        |&(first, last): &(i64, i64)| !goes(&fixture::batch(first, last), target);
                    let (_, batches) = self.segments.last_mut().unwrap();
                    batches.truncate(batches.iter().take_while(|batch| stays(batch)).count());
                    self.marks = self.marks.cut(target);
                }
                Truncation::StartAfresh(at) => self.start_afresh(at.get()),
            }
            plan
        }

        fn start_afresh(&mut self, at: i64) {
            self.segments = vec![(at, vec![])];
            self.marks = self.marks.afresh(offset(at), None);
        }

        fn append(&mut self, count: i64) {
            for _ in 0..count {
                let end = self.marks.log_end;
                self.segments.last_mut().unwrap().1.push((end.get(), end.get()));
                self.marks.log_end = end.next();
            }
        }

        /// Log end and number of batches.
        fn size(&self) -> (i64, usize) {
            let batches = self.segments.iter().map(|(_, batches)| batches.len()).sum();
            (self.marks.log_end.get(), batches)
        }
    }

    /// kafka-behaviours row 71 (`UnifiedLogTest.testTruncateTo`): "truncate to 10; 11; 5; 0;
    /// refill; truncate fully and start at 1; append 10; truncate to 0: no change; no change; LEO
    /// 5 and smaller; LEO 0 and size 0; LEO 10; LEO 1, size 0; then LEO 0, size 0 (below the first
    /// segment = full truncation)".
    #[test]
    fn a_log_ends_where_it_is_cut() {
        let mut log = Model::new(&[0], 10);
        for behind in [10, 11] {
            assert_eq!((log.truncate(behind), log.size()), (Truncation::Nothing, (10, 10)));
        }
        assert_eq!((log.truncate(5), log.size()), (Truncation::Cut { kept: 1 }, (5, 5)));
        assert_eq!((log.truncate(0), log.size()), (Truncation::Cut { kept: 1 }, (0, 0)));
        log.append(10);
        assert_eq!(log.size(), (10, 10));
        log.start_afresh(1);
        assert_eq!(log.size(), (1, 0));
        log.append(10);
        assert_eq!(log.truncate(0), Truncation::StartAfresh(Offset::ZERO));
        assert_eq!((log.size(), log.segments[0].0), ((0, 0), 0));
    }

    /// kafka-behaviours row 72 (`LocalLogTest.testTruncateTo`): "records 0...11, rolled after 2, 5,
    /// 8, 11 (5 segments); truncate to 7: segments 9 and 12 removed; 3 left; active base 6; LEO 7;
    /// reading 6 gives one record; offset 7 can be appended".
    #[test]
    fn segments_behind_the_cut_go_and_the_one_with_it_is_active() {
        let mut log = Model::new(&[0, 3, 6, 9, 12], 12);
        assert_eq!(log.truncate(7), Truncation::Cut { kept: 3 });
        assert_eq!(log.segments.last(), Some(&(6, vec![(6, 6)])));
        assert_eq!(log.marks.log_end, offset(7));
        log.append(1);
        assert_eq!(log.segments.last(), Some(&(6, vec![(6, 6), (7, 7)])));
    }

    #[test]
    fn a_segment_that_begins_at_the_cut_stays_empty() {
        let mut log = Model::new(&[0, 3, 6], 9);
        assert_eq!(log.truncate(3), Truncation::Cut { kept: 2 });
        assert_eq!(log.segments[1], (3, vec![]));
    }

    #[test]
    fn the_batch_that_holds_the_offset_goes_whole() {
        let mut log = Model::new(&[0], 3);
        log.segments[0].1 = vec![(0, 4), (5, 9), (10, 14)];
        log.marks.log_end = offset(15);
        log.truncate(7);
        assert_eq!(log.segments[0].1, [(0, 4)]);
        assert_eq!(
            log.marks.log_end,
            offset(7),
            "not 5: Kafka gives the offset that was asked for"
        );
    }

    /// kafka-behaviours row 73 (`LocalLogTest.testTruncateFullyAndStartAt`): "records 0...12 in
    /// segments 0, 2, 4, 6, 8; full truncation to 10: all 5 removed; one empty segment 10; LEO 10;
    /// recovery point 0".
    #[test]
    fn a_log_that_begins_afresh_is_one_empty_segment() {
        let mut log = Model::new(&[0, 2, 4, 6, 8], 13);
        log.start_afresh(10);
        assert_eq!((log.segments.as_slice(), log.size()), (&[(10, vec![])][..], (10, 0)));
        assert_eq!(log.marks.recovery_point, Offset::ZERO);
    }

    /// kafka-behaviours row 56 (`UnifiedLogTest.testHighWatermarkMaintenance`), the end of it:
    /// "truncate to 3; append 3 as leader; truncate fully and start at 4: 3; 3 with LEO 6; 4 with
    /// LEO 4 and log start 4".
    #[test]
    fn the_watermarks_follow_the_log_end_down() {
        let mut log = Model::new(&[0], 6);
        log.marks.recovery_point = offset(5);
        log.truncate(3);
        assert_eq!((log.marks.high_watermark, log.marks.recovery_point), (offset(3), offset(3)));
        log.append(3);
        assert_eq!((log.marks.high_watermark, log.marks.log_end), (offset(3), offset(6)));
        log.start_afresh(4);
        let marks = log.marks;
        assert_eq!([marks.high_watermark, marks.log_end, marks.log_start], [offset(4); 3]);
        let given = log.marks.afresh(offset(9), Some(offset(7)));
        assert_eq!((given.log_start, given.high_watermark), (offset(7), offset(9)));
    }

    /// Cuts a log that is one segment from `base`, and its epochs.
    fn cut_epochs(epochs: &mut LeaderEpochs, base: i64, log_end: i64, target: i64) {
        let (target, log_end) = (offset(target), offset(log_end));
        let plan = Truncation::to(target, &[offset(base)], log_end);
        let _changed = epochs.truncate_from_end(plan.epochs_end(target, log_end));
    }

    /// kafka-behaviours row 74 (`UnifiedLogTest.testTruncateToEndOffsetClearsEpochCache`):
    /// "follower batch 27-28 with epoch 19 (LEO 29); add epoch 20 at 29, truncate to 29; add epoch
    /// 24 at 29, truncate to 30: each time the new entry goes and the latest is (19, 27); LEO 29".
    #[test]
    fn an_epoch_that_nothing_was_written_in_goes() {
        let mut known = epochs(&[(19, 27)]);
        for (number, target) in [(20, 29), (24, 30)] {
            assert!(known.assign(LeaderEpoch::new(number).unwrap(), offset(29)));
            cut_epochs(&mut known, 27, 29, target);
            assert_eq!(known, epochs(&[(19, 27)]));
        }
    }

    /// kafka-behaviours row 75
    /// (`UnifiedLogTest.shouldTruncateLeaderEpochCheckpointFileWhenTruncatingLog`): "epoch 0
    /// offsets 0-9, epoch 1 10-15, epoch 2 16-19; truncate to 20, 11, 10, 0: 3, 2, 1, 0 epoch
    /// entries".
    #[test]
    fn epochs_behind_the_cut_go() {
        let mut known = epochs(&[(0, 0), (1, 10), (2, 16)]);
        let mut end = 20;
        for (target, left) in [(20, 3), (11, 2), (10, 1), (0, 0)] {
            cut_epochs(&mut known, 0, end, target);
            end = target;
            assert_eq!(known.entries().len(), left, "{target}");
        }
    }

    #[test]
    fn a_log_that_begins_afresh_has_no_epochs() {
        let mut known = epochs(&[(0, 3), (1, 5)]);
        cut_epochs(&mut known, 4, 9, 3);
        assert_eq!(known, LeaderEpochs::default());
    }
}
