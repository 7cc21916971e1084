//! What a log knows of those who write to it with a producer id: the last batch of each, and which
//! transactions are open (format page, "Idempotence and transaction checks", "HW and LSO").
//!
//! Batches with a producer id come here as to a replica, with their offsets: somebody else was the
//! leader and checked their sequence numbers and epochs. So those are kept, not checked, and only
//! what no replica of Kafka's takes is refused ([`ProducerStates::check`]). Of a producer no more
//! is kept than a snapshot holds; five batches to know duplicates by are a leader's need.
//! Producers are in the order of their ids, which is also that of the entries of our snapshots;
//! any order is legal, Kafka's is that of a hash map.

use std::collections::{BTreeMap, BTreeSet};

use crate::format::batch::{BatchHeader, Magic};
use crate::format::index::AbortedTransaction;
use crate::format::record::Record;
use crate::format::snapshot::{LastBatch, ProducerState};
use crate::format::{field_i16, field_i32};
use crate::units::{Offset, Timestamp};

/// The producers of one log, as they were before [`Self::end_offset`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProducerStates {
    producers: BTreeMap<i64, ProducerState>,
    /// First offset and producer of each open transaction.
    open: BTreeSet<(Offset, i64)>,
    /// First offset and marker of transactions whose marker the high watermark may not have
    /// passed.
    undecided: Vec<(Offset, Offset)>,
    end_offset: Offset,
    snapshot_offset: Offset,
}

/// What a COMMIT or ABORT marker says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marker {
    /// Is it an ABORT?
    pub aborts: bool,
    /// Epoch of the transaction coordinator that wrote it.
    pub coordinator_epoch: i32,
}

/// A transaction that a marker ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletedTransaction {
    /// Whose it was.
    pub producer_id: i64,
    /// Its first record.
    pub first_offset: Offset,
    /// Its marker.
    pub last_offset: Offset,
    /// Where readers of committed data got to with the marker: to the earliest transaction that
    /// was still open, or behind the marker.
    pub last_stable_offset: Offset,
    /// Was it aborted?
    pub aborted: bool,
}

/// Why a batch cannot be in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProducerError {
    /// A producer writes outside of the transaction that it has open.
    #[error(
        "the batch at offset {offset} is in no transaction, but producer {producer_id} has one \
         open since offset {open_since}"
    )]
    OutsideTransaction {
        /// Who wrote it.
        producer_id: i64,
        /// The batch.
        offset: Offset,
        /// The transaction.
        open_since: Offset,
    },
    /// A control batch of a producer can only end a transaction.
    #[error("the control batch of producer {producer_id} at offset {offset} is no COMMIT or ABORT")]
    NoMarker {
        /// Who wrote it.
        producer_id: i64,
        /// The batch.
        offset: Offset,
    },
}

impl ProducerStates {
    /// Of a log that begins at `log_start` and of which nothing else is known.
    pub fn new(log_start: Offset) -> ProducerStates {
        ProducerStates {
            producers: BTreeMap::new(),
            open: BTreeSet::new(),
            undecided: Vec::new(),
            end_offset: log_start,
            snapshot_offset: log_start,
        }
    }

    /// As a snapshot before `offset` says. Producers that are idle for longer than `expiration_ms`
    /// at `now` are left out.
    pub fn restore(
        snapshot: &[ProducerState],
        offset: Offset,
        now: Timestamp,
        expiration_ms: i64,
    ) -> ProducerStates {
        let mut states = ProducerStates::new(offset);
        states.producers = snapshot.iter().map(|state| (state.producer_id, *state)).collect();
        states.expire(now, expiration_ms);
        let open =
            |state: &ProducerState| Some((state.current_txn_first_offset?, state.producer_id));
        states.open = states.producers.values().filter_map(open).collect();
        states
    }

    /// Of a log that was emptied and begins again at `offset`, without any snapshot.
    pub fn reset(&mut self, offset: Offset) {
        *self = ProducerStates { snapshot_offset: Offset::ZERO, ..ProducerStates::new(offset) };
    }

    /// Can a replica append this batch? `marker` as for [`Self::apply`].
    pub fn check(&self, header: &BatchHeader, marker: Option<Marker>) -> Result<(), ProducerError> {
        let (producer_id, offset) = (header.producer_id, header.base_offset);
        if !has_producer(header) {
            return Ok(());
        }
        if header.control {
            let is_emptied = header.records_count == 0;
            let fits = is_emptied || marker.is_some();
            return if fits {
                Ok(())
            } else {
                Err(ProducerError::NoMarker { producer_id, offset })
            };
        }
        match self.producer(producer_id).and_then(|state| state.current_txn_first_offset) {
            Some(open_since) if !header.transactional => {
                Err(ProducerError::OutsideTransaction { producer_id, offset, open_since })
            }
            _ => Ok(()),
        }
    }

    /// Takes in the next batch of the log, and says which transaction it ended. `marker` is what
    /// the record of a control batch says; `None` when it has none, which compaction removed.
    ///
    /// A marker without an open transaction ends nothing: it is that of an empty one. A batch that
    /// [`Self::check`] refuses but that is in a log all the same leaves transactions as they are.
    pub fn apply(
        &mut self,
        header: &BatchHeader,
        marker: Option<Marker>,
    ) -> Option<CompletedTransaction> {
        self.end_offset = header.last_offset.next();
        if !has_producer(header) {
            return None;
        }
        let id = header.producer_id;
        let state = self.producers.entry(id).or_insert_with(|| nothing_known_of(id));
        match (header.control, marker) {
            (false, _) => {
                begin_or_continue(state, header, &mut self.open);
                None
            }
            (true, Some(marker)) => {
                let first_offset = end(state, header, marker)?;
                Some(self.complete(header, first_offset, marker))
            }
            (true, None) => None,
        }
    }

    fn complete(
        &mut self,
        header: &BatchHeader,
        first_offset: Offset,
        marker: Marker,
    ) -> CompletedTransaction {
        self.open.remove(&(first_offset, header.producer_id));
        self.undecided.push((first_offset, header.base_offset));
        CompletedTransaction {
            producer_id: header.producer_id,
            first_offset,
            last_offset: header.base_offset,
            last_stable_offset: self.first_open_offset().unwrap_or(header.base_offset.next()),
            aborted: marker.aborts,
        }
    }

    /// What is known of one producer.
    pub fn producer(&self, producer_id: i64) -> Option<&ProducerState> {
        self.producers.get(&producer_id)
    }

    /// All that is known, for a snapshot before [`Self::end_offset`].
    pub fn snapshot(&self) -> Vec<ProducerState> {
        self.producers.values().copied().collect()
    }

    /// The offset behind the last batch that was taken in.
    pub fn end_offset(&self) -> Offset {
        self.end_offset
    }

    /// Is a snapshot before [`Self::end_offset`] worth writing? Not when there is one already.
    pub fn snapshot_is_due(&self) -> bool {
        self.end_offset > self.snapshot_offset
    }

    /// A snapshot before [`Self::end_offset`] was written.
    pub fn snapshot_written(&mut self) {
        self.snapshot_offset = self.end_offset;
    }

    /// The next batch will have this offset or a later one: nothing is in between.
    pub fn skip_to(&mut self, offset: Offset) {
        self.end_offset = offset;
    }

    /// The first offset of the earliest open transaction.
    pub fn first_open_offset(&self) -> Option<Offset> {
        self.open.first().map(|&(first_offset, _)| first_offset)
    }

    /// The first offset whose transaction is open, or ended by a marker that the high watermark has
    /// not passed.
    pub fn first_unstable_offset(&self, high_watermark: Offset) -> Option<Offset> {
        let undecided = self.undecided.iter().filter(|(_, marker)| *marker >= high_watermark);
        undecided.map(|&(first_offset, _)| first_offset).chain(self.first_open_offset()).min()
    }

    /// The first offset that readers of committed data do not get.
    pub fn last_stable_offset(&self, log_start: Offset, high_watermark: Offset) -> Offset {
        let unstable = self.first_unstable_offset(high_watermark);
        unstable.map_or(high_watermark, |first| first.max(log_start).min(high_watermark))
    }

    /// The high watermark is now `high_watermark`, and will fall only when the log is truncated:
    /// forgets the transactions with markers below it.
    pub fn high_watermark_raised(&mut self, high_watermark: Offset) {
        self.undecided.retain(|(_, marker)| *marker >= high_watermark);
    }

    /// The log now begins at `log_start`, and `newest` of its snapshots is the newest. Producers
    /// stay known although their records are gone.
    pub fn log_start_raised(&mut self, log_start: Offset, newest: Option<Offset>) {
        self.high_watermark_raised(log_start);
        self.end_offset = self.end_offset.max(log_start);
        self.snapshot_offset = newest.unwrap_or(log_start);
    }

    /// Forgets producers that are idle for `expiration_ms` at `now`, unless they have a transaction
    /// open.
    pub fn expire(&mut self, now: Timestamp, expiration_ms: i64) {
        self.producers.retain(|_, state| {
            let last = state.last_timestamp.map_or(-1, Timestamp::millis);
            state.current_txn_first_offset.is_some()
                || now.millis().saturating_sub(last) < expiration_ms
        });
    }
}

impl CompletedTransaction {
    /// The entry of it in the `.txnindex` of the segment with its marker; committed ones have none.
    pub fn index_entry(&self) -> Option<AbortedTransaction> {
        self.aborted.then_some(AbortedTransaction {
            producer_id: self.producer_id,
            first_offset: self.first_offset,
            last_offset: self.last_offset,
            last_stable_offset: self.last_stable_offset,
        })
    }
}

impl Marker {
    /// What a control record says; `None` when it does not end a transaction.
    pub fn of(record: &Record<'_>) -> Option<Marker> {
        Marker::parse(record.key?, record.value?)
    }

    fn parse(key: &[u8], value: &[u8]) -> Option<Marker> {
        let (key_version, kind) = (field_i16(key, 0).ok()?, field_i16(key, 2).ok()?);
        let (version, coordinator_epoch) = (field_i16(value, 0).ok()?, field_i32(value, 2).ok()?);
        let aborts = match kind {
            0 => true,
            1 => false,
            _ => return None,
        };
        (key_version >= 0 && version >= 0).then_some(Marker { aborts, coordinator_epoch })
    }
}

fn has_producer(header: &BatchHeader) -> bool {
    header.magic == Magic::V2 && header.producer_id >= 0
}

fn nothing_known_of(producer_id: i64) -> ProducerState {
    ProducerState {
        producer_id,
        producer_epoch: -1,
        last_batch: None,
        last_timestamp: None,
        coordinator_epoch: -1,
        current_txn_first_offset: None,
    }
}

/// A batch with data: the last one of its producer, and perhaps the first of a transaction.
fn begin_or_continue(
    state: &mut ProducerState,
    header: &BatchHeader,
    open: &mut BTreeSet<(Offset, i64)>,
) {
    state.producer_epoch = header.producer_epoch;
    state.last_timestamp = header.max_timestamp;
    let delta = header.last_offset.distance_from(header.base_offset);
    state.last_batch = Some(LastBatch {
        last_sequence: header.sequence_of(header.last_offset),
        last_offset: header.last_offset,
        // A header stores this number in 31 bits.
        offset_delta: i32::try_from(delta).unwrap_or(i32::MAX),
    });
    if header.transactional && state.current_txn_first_offset.is_none() {
        state.current_txn_first_offset = Some(header.base_offset);
        open.insert((header.base_offset, header.producer_id));
    }
}

/// A marker: where the transaction began that it ends. One of another epoch makes the last batch
/// forgotten, so that the next one begins at sequence 0.
fn end(state: &mut ProducerState, header: &BatchHeader, marker: Marker) -> Option<Offset> {
    if state.producer_epoch != header.producer_epoch {
        state.last_batch = None;
    }
    state.producer_epoch = header.producer_epoch;
    state.coordinator_epoch = marker.coordinator_epoch;
    state.last_timestamp = header.max_timestamp;
    state.current_txn_first_offset.take()
}

#[cfg(test)]
mod tests {
    //! Rows of section M that are not here concern a leader alone: what it answers to a producer of
    //! its network. Row 94 (`testBasicIdMapping`), the clients' halves of rows 95 and 98, row 105
    //! (`UnifiedLogTest.testDuplicateAppends`): sequences, stale epochs and duplicates are judged
    //! before a batch has an offset, and batches come here with theirs. Row 102, 103, 108: see
    //! `snapshots.rs`.

    use super::*;
    use crate::engine::fixture;
    use crate::engine::log::{Log, SCAN_BYTES};
    use crate::engine::scanner::Item;
    use crate::format::batch::HEADER_BYTES;
    use crate::format::index::parse_txn_index;
    use crate::format::record::Cursor;
    use crate::format::snapshot::{parse_snapshot, write_snapshot};

    const DAY: i64 = 86_400_000;

    fn offset(raw: i64) -> Offset {
        Offset::new(raw).unwrap()
    }

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn empty() -> ProducerStates {
        ProducerStates::new(Offset::ZERO)
    }

    /// A batch of a producer, in no transaction.
    fn plain(id: i64, epoch: i16, sequence: i32, first: i64, last: i64) -> BatchHeader {
        BatchHeader {
            producer_id: id,
            producer_epoch: epoch,
            base_sequence: sequence,
            max_timestamp: Some(at(1000)),
            ..fixture::batch(first, last)
        }
    }

    /// A batch of a transaction.
    fn part(id: i64, first: i64, last: i64) -> BatchHeader {
        BatchHeader { transactional: true, ..plain(id, 0, 0, first, last) }
    }

    fn marker_batch(id: i64, epoch: i16, at: i64) -> BatchHeader {
        BatchHeader { transactional: true, control: true, ..plain(id, epoch, -1, at, at) }
    }

    const ABORT: Option<Marker> = Some(Marker { aborts: true, coordinator_epoch: 1 });
    const COMMIT: Option<Marker> = Some(Marker { aborts: false, coordinator_epoch: 1 });

    fn last_sequence(states: &ProducerStates, id: i64) -> Option<i32> {
        states.producer(id)?.last_batch.map(|batch| batch.last_sequence)
    }

    /// kafka-behaviours row 95 (`ProducerStateManagerTest.testProducerSequenceWrapAround`), what a
    /// replica sees of it: "replicated batch with sequence 2147483647; sequence 0: last sequence
    /// 0".
    #[test]
    fn sequences_wrap_around() {
        let mut states = empty();
        states.apply(&plain(1, 0, i32::MAX, 0, 0), None);
        assert_eq!(last_sequence(&states, 1), Some(i32::MAX));
        states.apply(&plain(1, 0, 0, 1, 1), None);
        assert_eq!(last_sequence(&states, 1), Some(0));
        states.apply(&plain(1, 0, i32::MAX, 2, 4), None);
        let last = states.producer(1).unwrap().last_batch.unwrap();
        assert_eq!((last.first_sequence(), last.last_sequence), (i32::MAX, 1));
    }

    /// kafka-behaviours row 96 (`ProducerStateManagerTest.testControlRecordBumpsProducerEpoch`):
    /// "producer epoch 0 with data; ABORT marker with epoch 1: epoch 1, first and last sequence -1,
    /// no open transaction".
    #[test]
    fn a_marker_of_a_new_epoch_forgets_the_last_batch() {
        let mut states = empty();
        states.apply(&part(1, 0, 0), None);
        assert!(states.apply(&marker_batch(1, 1, 1), ABORT).is_some());
        let state = *states.producer(1).unwrap();
        assert_eq!((state.producer_epoch, state.last_batch), (1, None));
        assert_eq!((state.current_txn_first_offset, state.coordinator_epoch), (None, 1));
        let next = plain(1, 1, 0, 2, 2);
        assert_eq!(states.check(&next, None), Ok(()));
        states.apply(&next, None);
        assert_eq!(last_sequence(&states, 1), Some(0));
    }

    #[test]
    fn a_marker_of_the_same_epoch_keeps_the_last_batch() {
        let mut states = empty();
        states.apply(&part(1, 0, 3), None);
        states.apply(&marker_batch(1, 0, 4), COMMIT);
        let state = *states.producer(1).unwrap();
        assert_eq!(state.last_batch.map(|batch| batch.last_offset), Some(offset(3)));
        assert_eq!(states.end_offset(), offset(5));
    }

    /// kafka-behaviours row 97
    /// (`ProducerStateManagerTest.testNonTransactionalAppendWithOngoingTransaction`): "open
    /// transaction; non-transactional batch of the same producer: invalid-transaction-state error".
    /// A replica of Kafka's does not take it either.
    #[test]
    fn a_producer_with_an_open_transaction_writes_nothing_beside_it() {
        let mut states = empty();
        states.apply(&part(1, 5, 5), None);
        let beside = plain(1, 0, 1, 6, 6);
        let refusal = ProducerError::OutsideTransaction {
            producer_id: 1,
            offset: offset(6),
            open_since: offset(5),
        };
        assert_eq!(states.check(&beside, None), Err(refusal));
        assert_eq!(states.check(&plain(2, 0, 0, 6, 6), None), Ok(()));
        assert_eq!(states.check(&part(1, 6, 6), None), Ok(()));
        // One that is in a log all the same.
        assert_eq!(states.apply(&beside, None), None);
        assert_eq!(states.first_open_offset(), Some(offset(5)));
        states.apply(&marker_batch(1, 0, 7), COMMIT);
        assert_eq!(states.check(&plain(1, 0, 1, 8, 8), None), Ok(()));
    }

    #[test]
    fn a_control_batch_of_a_producer_ends_a_transaction_or_is_empty() {
        let states = empty();
        let control = marker_batch(1, 0, 3);
        let refusal = ProducerError::NoMarker { producer_id: 1, offset: offset(3) };
        assert_eq!(states.check(&control, None), Err(refusal));
        assert_eq!(states.check(&control, COMMIT), Ok(()));
        let emptied = BatchHeader { records_count: 0, ..control.clone() };
        assert_eq!(states.check(&emptied, None), Ok(()));
        let of_nobody = BatchHeader { producer_id: -1, ..control };
        assert_eq!(states.check(&of_nobody, None), Ok(()));
    }

    /// kafka-behaviours row 98
    /// (`ProducerStateManagerTest.testAcceptAppendWithSequenceGapsOnReplica`): "sequence 0 stored;
    /// replicated sequence 3: accepted".
    #[test]
    fn a_replica_takes_sequences_with_gaps() {
        let mut states = empty();
        states.apply(&plain(1, 0, 0, 0, 0), None);
        let gap = plain(1, 0, 3, 1, 1);
        assert_eq!(states.check(&gap, None), Ok(()));
        states.apply(&gap, None);
        assert_eq!(last_sequence(&states, 1), Some(3));
    }

    #[test]
    fn a_replica_takes_an_older_epoch() {
        let mut states = empty();
        states.apply(&plain(1, 5, 0, 0, 0), None);
        let older = plain(1, 4, 7, 1, 1);
        assert_eq!(states.check(&older, None), Ok(()));
        states.apply(&older, None);
        assert_eq!(states.producer(1).map(|state| state.producer_epoch), Some(4));
    }

    /// kafka-behaviours row 99 (`ProducerStateManagerTest.testFirstUnstableOffset`): "99/99; 99/99;
    /// 105/99; 105/99; 105/105; none/105; none/none".
    #[test]
    fn a_transaction_is_unstable_until_its_marker_is_below_the_high_watermark() {
        let mut states = empty();
        let mut high_watermark = Offset::ZERO;
        let seen = |states: &ProducerStates, high_watermark: Offset| {
            let unstable = states.first_unstable_offset(high_watermark);
            let mut forgetful = states.clone();
            forgetful.high_watermark_raised(high_watermark);
            assert_eq!(forgetful.first_unstable_offset(high_watermark), unstable);
            (states.first_open_offset().map(Offset::get), unstable.map(Offset::get))
        };
        states.apply(&part(1, 99, 99), None);
        assert_eq!(seen(&states, high_watermark), (Some(99), Some(99)));
        states.apply(&part(2, 105, 105), None);
        assert_eq!(seen(&states, high_watermark), (Some(99), Some(99)));
        states.apply(&marker_batch(1, 0, 109), COMMIT);
        assert_eq!(seen(&states, high_watermark), (Some(105), Some(99)));
        high_watermark = offset(100);
        assert_eq!(seen(&states, high_watermark), (Some(105), Some(99)));
        high_watermark = offset(110);
        assert_eq!(seen(&states, high_watermark), (Some(105), Some(105)));
        states.apply(&marker_batch(2, 0, 112), ABORT);
        assert_eq!(seen(&states, high_watermark), (None, Some(105)));
        assert_eq!(seen(&states, offset(113)), (None, None));
    }

    /// kafka-behaviours row 82 (`UnifiedLogTest.testFetchUpToLastStableOffset`): "LSO 0; 8; 8; 28
    /// (a decision counts only once its marker is below HW)".
    #[test]
    fn committed_data_ends_at_the_first_unstable_offset() {
        let mut states = empty();
        for (id, first, last) in [(1, 0, 4), (2, 8, 9), (1, 10, 13), (1, 16, 25)] {
            states.apply(&part(id, first, last), None);
        }
        let end = |states: &ProducerStates, high_watermark| {
            states.last_stable_offset(Offset::ZERO, offset(high_watermark)).get()
        };
        states.apply(&marker_batch(1, 0, 26), COMMIT);
        assert_eq!((end(&states, 26), end(&states, 27)), (0, 8));
        states.apply(&marker_batch(2, 0, 27), ABORT);
        assert_eq!((end(&states, 27), end(&states, 28)), (8, 28));
    }

    #[test]
    fn the_last_stable_offset_is_between_log_start_and_high_watermark() {
        let mut states = empty();
        states.apply(&part(1, 10, 10), None);
        assert_eq!(states.last_stable_offset(Offset::ZERO, offset(5)), offset(5));
        assert_eq!(states.last_stable_offset(offset(12), offset(20)), offset(12));
        assert_eq!(states.last_stable_offset(Offset::ZERO, offset(20)), offset(10));
    }

    /// kafka-behaviours row 100 (`ProducerStateManagerTest.testCoordinatorFencing`): "markers with
    /// coordinator epoch 1, 1, 2; marker with coordinator epoch 1: transaction-coordinator-fenced
    /// error". That error is a leader's; a replica takes the marker, and so its epoch.
    #[test]
    fn a_replica_takes_the_marker_of_an_older_coordinator() {
        let mut states = empty();
        for (place, coordinator_epoch) in [(0, 1), (1, 1), (2, 2), (3, 1)] {
            let marker = Some(Marker { aborts: false, coordinator_epoch });
            let batch = marker_batch(1, 0, place);
            assert_eq!(states.check(&batch, marker), Ok(()));
            assert_eq!(states.apply(&batch, marker), None);
            let known = states.producer(1).map(|state| state.coordinator_epoch);
            assert_eq!(known, Some(coordinator_epoch));
        }
    }

    #[test]
    fn a_marker_that_compaction_emptied_ends_nothing() {
        let mut states = empty();
        states.apply(&part(1, 0, 0), None);
        let emptied = BatchHeader { records_count: 0, ..marker_batch(1, 0, 1) };
        assert_eq!(states.apply(&emptied, None), None);
        assert_eq!(
            (states.first_open_offset(), states.end_offset()),
            (offset(0).into(), offset(2))
        );
        // Kafka makes an entry then, in which nothing is known.
        let emptied = BatchHeader { records_count: 0, ..marker_batch(2, 0, 2) };
        states.apply(&emptied, None);
        assert_eq!(states.producer(2), Some(&nothing_known_of(2)));
    }

    /// kafka-behaviours row 101 (`ProducerStateManagerTest.testReadWriteSnapshot`): "write and read
    /// a snapshot: same state". (The 106 bytes named there would be 48 an entry; Kafka writes 46.)
    #[test]
    fn a_snapshot_restores_what_it_was_taken_of() {
        let mut states = ProducerStates::new(offset(90));
        states.apply(&plain(11, 12, 5, 90, 94), None);
        states.apply(&part(1, 100, 102), None);
        states.apply(&part(7, 103, 103), None);
        states.apply(&marker_batch(7, 1, 104), COMMIT);
        states.high_watermark_raised(offset(105));
        assert!(states.snapshot_is_due());
        let ids: Vec<_> = states.snapshot().iter().map(|state| state.producer_id).collect();
        assert_eq!(ids, [1, 7, 11], "by id");
        let file = write_snapshot(&states.snapshot());
        let read = parse_snapshot(&file).unwrap();
        let restored = ProducerStates::restore(&read, offset(105), at(2000), DAY);
        states.snapshot_written();
        assert_eq!(restored, states);
        assert!(!restored.snapshot_is_due());
    }

    /// kafka-behaviours row 104
    /// (`ProducerStateManagerTest.testProducersWithOngoingTransactionsDontExpire`,
    /// `testPidExpirationTimeout`): "producer with an open transaction; producer without, idle for
    /// the expiration time + 1: kept; forgotten, and then any next sequence is accepted".
    #[test]
    fn idle_producers_are_forgotten_but_not_their_open_transactions() {
        let mut states = empty();
        states.apply(&part(1, 0, 0), None);
        states.apply(&plain(2, 0, 0, 1, 1), None);
        let late = BatchHeader { max_timestamp: Some(at(2001)), ..plain(3, 0, 0, 2, 2) };
        states.apply(&late, None);
        let untimed = BatchHeader { max_timestamp: None, ..plain(4, 0, 0, 3, 3) };
        states.apply(&untimed, None);
        let restored = ProducerStates::restore(&states.snapshot(), offset(4), at(DAY + 1001), DAY);
        states.expire(at(DAY + 1001), DAY);
        for states in [&states, &restored] {
            let known = [1, 2, 3, 4].map(|id| states.producer(id).is_some());
            assert_eq!(known, [true, false, true, false]);
            assert_eq!(states.first_open_offset(), Some(Offset::ZERO));
        }
        states.apply(&plain(2, 0, 77, 4, 4), None);
        assert_eq!(last_sequence(&states, 2), Some(77));
    }

    /// kafka-behaviours row 106 (`UnifiedLogTest.testDuplicateAppendToFollower`): "follower: batch
    /// sequences 0-1 at offset 0; the same sequences at offset 2: accepted, LEO 4".
    #[test]
    fn a_replica_takes_duplicates() {
        let mut states = empty();
        states.apply(&plain(1, 0, 0, 0, 1), None);
        let again = plain(1, 0, 0, 2, 3);
        assert_eq!(states.check(&again, None), Ok(()));
        states.apply(&again, None);
        assert_eq!((states.end_offset(), last_sequence(&states, 1)), (offset(4), Some(1)));
    }

    /// kafka-behaviours row 107 (`UnifiedLogTest.testTransactionIndexUpdated`):
    /// "aborted-transaction entries; first unstable offset at HW 30, 75, end: (p1, 0, 29, LSO 8),
    /// (p2, 8, 74, LSO 36); 8, 36, none".
    #[test]
    fn aborted_transactions_say_where_committed_data_ended() {
        let mut states = empty();
        let mut entries = Vec::new();
        let mut unstable = Vec::new();
        for (id, first, last, marker) in [
            (1, 0, 4, None),
            (2, 8, 9, None),
            (1, 10, 13, None),
            (3, 14, 16, None),
            (1, 19, 28, None),
            (1, 29, 29, ABORT),
            (2, 30, 35, None),
            (4, 36, 38, None),
            (3, 49, 57, None),
            (3, 58, 58, COMMIT),
            (4, 59, 66, None),
            (2, 67, 73, None),
            (2, 74, 74, ABORT),
            (4, 85, 88, None),
            (4, 89, 89, COMMIT),
        ] {
            let part = part(id, first, last);
            let header = BatchHeader { control: marker.is_some(), ..part };
            let completed = states.apply(&header, marker);
            assert_eq!(completed.is_some(), marker.is_some());
            entries.extend(completed.and_then(|completed| completed.index_entry()));
            if [29, 74, 89].contains(&last) {
                let first = states.first_unstable_offset(header.last_offset.next());
                unstable.push(first.map(Offset::get));
            }
        }
        let entries: Vec<_> = entries.into_iter().map(shown).collect();
        assert_eq!(entries, [(1, 0, 29, 8), (2, 8, 74, 36)]);
        assert_eq!(unstable, [Some(8), Some(36), None]);
    }

    /// kafka-behaviours row 44 (`LogSegmentTest.testRecoverTransactionIndex`): "one entry (10, 102,
    /// 106, LSO 100); then (10, 75, 106, LSO 100)".
    #[test]
    fn a_transaction_may_have_begun_before_what_is_read() {
        let before = ProducerState { current_txn_first_offset: Some(offset(75)), ..known(10) };
        for (snapshot, first) in [(vec![], 102), (vec![before], 75)] {
            let mut states = ProducerStates::restore(&snapshot, offset(100), at(1000), DAY);
            states.apply(&part(5, 100, 101), None);
            states.apply(&part(10, 102, 103), None);
            states.apply(&fixture::batch(104, 105), None);
            let aborted = states.apply(&marker_batch(10, 0, 106), ABORT).unwrap();
            let committed = states.apply(&marker_batch(5, 0, 107), COMMIT).unwrap();
            assert_eq!(aborted.index_entry().map(shown), Some((10, first, 106, 100)));
            assert_eq!(committed.index_entry(), None);
            assert_eq!(states.end_offset(), offset(108));
        }
    }

    /// kafka-behaviours row 109 (`UnifiedLogTest.testRebuildProducerIdMapWithCompactedData`,
    /// `testRebuildProducerStateWithEmptyCompactedBatch`): "compacted batch 23-26 (sequences 0-3,
    /// only unkeyed kept), resp. an emptied batch 23-24: last sequence 3; 1 (taken from
    /// lastOffsetDelta, not from surviving records)".
    #[test]
    fn records_that_compaction_removed_had_sequence_numbers_too() {
        for (last, records_count, sequence) in [(26, 2, 3), (24, 0, 1)] {
            let mut states = ProducerStates::new(offset(23));
            states.apply(&BatchHeader { records_count, ..plain(1, 0, 0, 23, last) }, None);
            assert_eq!(last_sequence(&states, 1), Some(sequence));
        }
    }

    #[test]
    fn batches_of_nobody_move_the_end_only() {
        let mut states = empty();
        states.apply(&fixture::batch(0, 9), None);
        assert_eq!((states.end_offset(), states.snapshot()), (offset(10), vec![]));
        states.skip_to(offset(20));
        assert_eq!(states.end_offset(), offset(20));
    }

    #[test]
    fn a_log_that_begins_afresh_knows_nobody() {
        let mut states = empty();
        states.apply(&part(1, 0, 0), None);
        states.reset(offset(7));
        assert_eq!((states.end_offset(), states.first_open_offset()), (offset(7), None));
        assert_eq!(states.snapshot(), []);
        assert!(states.snapshot_is_due());
    }

    #[test]
    fn deleted_records_leave_their_producers_known() {
        let mut states = empty();
        states.apply(&part(1, 0, 0), None);
        states.apply(&marker_batch(1, 0, 1), ABORT);
        states.log_start_raised(offset(5), Some(offset(4)));
        assert!(states.producer(1).is_some());
        assert_eq!(states.first_unstable_offset(Offset::ZERO), None);
        assert_eq!((states.end_offset(), states.snapshot_is_due()), (offset(5), true));
        states.log_start_raised(offset(5), None);
        assert!(!states.snapshot_is_due());
    }

    /// kafka-behaviours row 10 (`ControlRecordTypeTest.testParseUnknownType`): "control key version
    /// 0, type 337; parse: recognised as unknown, no error".
    /// kafka-behaviours row 11 (`EndTransactionMarkerTest.testDeserializeNewerVersion`): "marker
    /// value: version 5, epoch 79, 2 extra bytes; parse: coordinator epoch 79".
    #[test]
    fn control_records_that_end_no_transaction_are_no_markers() {
        let value = [0, 0, 0, 0, 0, 7];
        let abort = Marker { aborts: true, coordinator_epoch: 7 };
        assert_eq!(Marker::parse(&[0, 0, 0, 0], &value), Some(abort));
        let commit = Marker { aborts: false, ..abort };
        assert_eq!(Marker::parse(&[0, 9, 0, 1, 5], &[0, 9, 0, 0, 0, 7, 1]), Some(commit));
        let newer = Marker { coordinator_epoch: 79, ..commit };
        assert_eq!(Marker::parse(&[0, 0, 0, 1], &[0, 5, 0, 0, 0, 79, 1, 2]), Some(newer));
        for key in [&[0, 0, 0, 2][..], &[0, 0, 1, 81], &[0, 0, 0], &[0xff, 0xff, 0, 1]] {
            assert_eq!(Marker::parse(key, &value), None);
        }
        assert_eq!(Marker::parse(&[0, 0, 0, 1], &value[..5]), None);
    }

    /// All batches of what Kafka wrote, and at each file that it wrote of them: what we would
    /// write.
    #[test]
    fn what_kafka_noted_of_its_logs_is_found_in_them() {
        let mut compared = 0;
        for (set, partition) in [
            ("clean", "txn-0"),
            ("clean", "gzip-0"),
            ("open-txn", "opentxn-0"),
            ("open-txn", "opentxn-two-0"),
        ] {
            let data = fixture::data_dir(set, &[partition]);
            compared += compare_with_kafka(&fixture::log(data.path(), partition));
        }
        assert!(compared > 15, "only {compared} files compared");
    }

    fn compare_with_kafka(log: &Log) -> usize {
        let mut states = empty();
        let mut compared = 0;
        let state = log.state().unwrap();
        for segment in &state.segments {
            compared += compare_snapshot(log, &states, segment.base_offset);
            let mut scanner = log.shared().scanner(segment, SCAN_BYTES);
            let mut aborted = Vec::new();
            while let Item::Batch(header, position) = scanner.step().unwrap() {
                let bytes = scanner.batch_bytes(&header, position).unwrap();
                let marker = header.control.then(|| marker_in(&header, bytes)).flatten();
                assert_eq!(states.check(&header, marker), Ok(()));
                let completed = states.apply(&header, marker);
                aborted.extend(completed.and_then(|completed| completed.index_entry()));
            }
            if let Ok(bytes) = std::fs::read(segment.log.path().with_extension("txnindex")) {
                assert_eq!(
                    parse_txn_index(&bytes),
                    Ok(aborted),
                    "{}",
                    segment.log.path().display()
                );
                compared += 1;
            }
        }
        assert_eq!(states.end_offset(), state.log_end);
        let (log_start, high_watermark) = (state.log_start, state.high_watermark);
        let ours = states.last_stable_offset(log_start, high_watermark);
        let read = log.transactions(&state).unwrap().first_open().unwrap_or(high_watermark);
        assert_eq!(ours, read);
        compared + compare_snapshot(log, &states, state.log_end)
    }

    fn compare_snapshot(log: &Log, states: &ProducerStates, at: Offset) -> usize {
        let path = log.path().join(format!("{:020}.snapshot", at.get()));
        let Ok(bytes) = std::fs::read(&path) else { return 0 };
        let mut theirs = parse_snapshot(&bytes).unwrap();
        theirs.sort_by_key(|state| state.producer_id);
        assert_eq!(states.snapshot(), theirs, "{}", path.display());
        1
    }

    fn marker_in(header: &BatchHeader, batch: &[u8]) -> Option<Marker> {
        let payload = &batch[HEADER_BYTES..];
        let record = Cursor::new(header, payload).unwrap().next(header, payload)?.unwrap();
        Marker::of(&record)
    }

    fn known(producer_id: i64) -> ProducerState {
        ProducerState { producer_epoch: 0, ..nothing_known_of(producer_id) }
    }

    fn shown(entry: AbortedTransaction) -> (i64, i64, i64, i64) {
        (
            entry.producer_id,
            entry.first_offset.get(),
            entry.last_offset.get(),
            entry.last_stable_offset.get(),
        )
    }
}
