//! The newest record time of a segment, learned by searches that found nothing late enough there,
//! so that the next search for such a time need not look into the segment again.

use std::cell::Cell;
use std::sync::{Arc, Mutex, PoisonError};

use crate::engine::disk::FileId;
use crate::engine::segment::Segment;
use crate::format::batch::BatchHeader;
use crate::units::{Offset, Timestamp};

/// What is known of the segments of a log, by their number.
#[derive(Debug, Default)]
pub struct TimeBounds(Mutex<Vec<Option<TimeBound>>>);

/// No record of the file, as far as `valid_bytes` and `limit`, is newer than `newest`.
#[derive(Clone, Copy, Debug)]
struct TimeBound {
    id: FileId,
    valid_bytes: u64,
    limit: Offset,
    newest: Timestamp,
}

impl TimeBounds {
    /// How many segments from number `first` on are known to have no record as late as `time`, up
    /// to the first of which that is not known.
    pub fn count_before(&self, segments: &[Arc<Segment>], first: usize, time: Timestamp) -> usize {
        let bounds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = segments.iter().zip(bounds.iter()).skip(first);
        known
            .take_while(|(segment, known)| known.is_some_and(|b| b.is_before(segment, time)))
            .count()
    }

    /// Notes that no record of segment number `number` is newer than `newest`.
    pub fn note(&self, number: usize, segment: &Segment, newest: Timestamp) {
        let mut bounds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if bounds.len() <= number {
            bounds.resize(number + 1, None);
        }
        let (id, valid_bytes) = (segment.log.file.id, segment.valid_bytes);
        bounds[number] = Some(TimeBound { id, valid_bytes, limit: segment.limit, newest });
    }
}

impl TimeBound {
    fn is_before(&self, segment: &Segment, time: Timestamp) -> bool {
        self.id == segment.log.file.id
            && self.valid_bytes == segment.valid_bytes
            && self.limit == segment.limit
            && self.newest < time
    }
}

/// The newest time of what a search for a record of some time passes.
#[derive(Debug)]
pub struct Newest(Cell<Option<Timestamp>>);

impl Newest {
    /// Nothing passed yet but records up to `newest`.
    pub fn of_all_before(newest: Option<Timestamp>) -> Newest {
        Newest(Cell::new(Some(newest.unwrap_or(Timestamp::from_millis(i64::MIN)))))
    }

    /// Takes in a batch. True when its header shows that all its records are older than `time`;
    /// when it does not, they are taken to be, and the search must find it out.
    pub fn see(&self, header: &BatchHeader, time: Timestamp) -> bool {
        let older = header.max_timestamp.filter(|newest| *newest < time);
        let just_older = Timestamp::from_millis(time.millis().saturating_sub(1));
        self.0.set(self.0.get().map(|newest| newest.max(older.unwrap_or(just_older))));
        older.is_some()
    }

    /// Records are passed of whose times nothing is known.
    pub fn forget(&self) {
        self.0.set(None);
    }

    /// The newest time, where it is known.
    pub fn get(&self) -> Option<Timestamp> {
        self.0.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::disk::{DiskFile, Facts, Kind};
    use crate::engine::segment::File;

    fn segment(inode: u64, bytes: u64) -> Arc<Segment> {
        let id = FileId { device: 1, inode };
        let kind = Kind::File;
        let facts =
            Facts { id, kind, bytes, modified: (0, 0), made: None, mode: 0, uid: 0, gid: 0 };
        let log = File { file: DiskFile { path: "log".into(), id }, facts };
        Arc::new(Segment { active: false, ..Segment::alone(Offset::ZERO, log) })
    }

    #[test]
    fn only_leading_segments_that_are_as_they_were_count() {
        let segments = [segment(1, 10), segment(2, 10), segment(3, 10)];
        let (bounds, at) = (TimeBounds::default(), Timestamp::from_millis);
        assert_eq!(bounds.count_before(&segments, 0, at(100)), 0);
        bounds.note(0, &segments[0], at(50));
        bounds.note(2, &segments[2], at(70));
        assert_eq!(bounds.count_before(&segments, 0, at(100)), 1);
        assert_eq!(bounds.count_before(&segments, 2, at(100)), 1);
        bounds.note(1, &segments[1], at(60));
        assert_eq!(bounds.count_before(&segments, 0, at(100)), 3);
        assert_eq!(bounds.count_before(&segments, 0, at(61)), 2);
        assert_eq!(bounds.count_before(&segments, 0, at(50)), 0);
        let grown = [segment(1, 10), segment(2, 11), segment(3, 10)];
        assert_eq!(bounds.count_before(&grown, 0, at(100)), 1);
        assert_eq!(bounds.count_before(&segments[1..], 0, at(100)), 0, "other files by now");
        let more = Arc::new(Segment { limit: Offset::MAX.previous(), ..(*segments[0]).clone() });
        assert_eq!(bounds.count_before(&[more], 0, at(100)), 0, "it answers for other offsets");
    }

    #[test]
    fn what_may_be_newer_counts_as_just_older_and_what_is_unknown_spoils_all() {
        let mut batch = [0; 61];
        batch[11] = 49;
        batch[16] = 2;
        batch[42] = 50;
        let header = BatchHeader::parse(&batch).unwrap();
        let (at, newest) = (Timestamp::from_millis, Newest::of_all_before(None));
        assert!(newest.see(&header, at(55)));
        assert_eq!(newest.get(), Some(at(50)));
        assert!(!newest.see(&header, at(40)), "it may be as late");
        assert_eq!(newest.get(), Some(at(50)), "never less than before");
        newest.forget();
        assert_eq!(newest.get(), None);
    }
}
