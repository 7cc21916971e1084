//! Which transactional records are committed, aborted or still open, read from the markers in the
//! log itself: the `.txnindex` files may be missing or wrong, and are not asked.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::engine::scanner::{Item, Scanner};
use crate::error::Result;
use crate::format::batch::{BatchHeader, HEADER_BYTES};
use crate::format::index::AbortedTransaction;
use crate::format::record::Cursor;
use crate::units::Offset;

/// How the transaction of a record ended, if it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum TransactionState {
    Committed,
    Aborted,
    Open,
}

impl TransactionState {
    /// The word for it in JSON and in attributes.
    pub const fn as_str(self) -> &'static str {
        match self {
            TransactionState::Committed => "committed",
            TransactionState::Aborted => "aborted",
            TransactionState::Open => "open",
        }
    }
}

/// What some adjacent batches, such as those of one segment, say of transactions, in offset order.
#[derive(Clone, Debug, Default)]
pub struct SegmentTransactions {
    events: Vec<Event>,
    /// Producers with data behind their last marker.
    begun: HashSet<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Event {
    offset: Offset,
    producer_id: i64,
    kind: EventKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EventKind {
    /// The first data of a producer since its last marker in this segment.
    Data,
    /// A COMMIT or ABORT marker.
    Marker(TransactionState),
}

impl SegmentTransactions {
    /// Reads all batches of a segment. Fails on I/O errors and interruption.
    pub fn read(mut scanner: Scanner) -> Result<SegmentTransactions> {
        let mut read = SegmentTransactions::default();
        loop {
            match scanner.step()? {
                Item::Batch(header, position) => {
                    read.see(&header, scanner.batch_bytes(&header, position));
                }
                Item::Damage(_) => {}
                Item::End { .. } => {
                    read.begun = HashSet::new();
                    return Ok(read);
                }
            }
        }
    }

    /// Adds the next batch; `raw` are its bytes, which only control batches need.
    #[inline]
    pub fn see(&mut self, header: &BatchHeader, raw: Option<&[u8]>) {
        if header.transactional {
            self.see_transactional(header, raw);
        }
    }

    fn see_transactional(&mut self, header: &BatchHeader, raw: Option<&[u8]>) {
        let (offset, producer_id) = (header.base_offset, header.producer_id);
        if header.control {
            let payload = raw.and_then(|raw| raw.get(HEADER_BYTES..)).unwrap_or_default();
            let record = Cursor::new(header, payload)
                .ok()
                .and_then(|mut cursor| cursor.next(header, payload)?.ok());
            if let Some(state) = record.and_then(|record| marker(record.key?)) {
                self.begun.remove(&producer_id);
                self.events.push(Event { offset, producer_id, kind: EventKind::Marker(state) });
            }
        } else if self.begun.insert(producer_id) {
            self.events.push(Event { offset, producer_id, kind: EventKind::Data });
        }
    }

    /// How the transaction ends that `producer_id` had open at `offset`, if it ends in this
    /// segment.
    pub fn end_of(&self, producer_id: i64, offset: Offset) -> Option<TransactionState> {
        let from = self.events.partition_point(|event| event.offset <= offset);
        self.events[from..].iter().find_map(|event| match event.kind {
            EventKind::Marker(state) if event.producer_id == producer_id => Some(state),
            EventKind::Marker(_) | EventKind::Data => None,
        })
    }

    /// Bytes that this takes in memory.
    pub fn weight(&self) -> usize {
        self.events.len() * size_of::<Event>() + 64
    }
}

/// The type in the key of a control record: i16 version, i16 type (format page, "Control batches").
fn marker(key: &[u8]) -> Option<TransactionState> {
    match key.get(2..4)? {
        [0, 0] => Some(TransactionState::Aborted),
        [0, 1] => Some(TransactionState::Committed),
        _ => None,
    }
}

/// The transactions of a whole log.
#[derive(Clone, Debug, Default)]
pub struct Transactions {
    ends: HashMap<i64, Vec<(Offset, TransactionState)>>,
    open: HashMap<i64, Offset>,
    /// The same, by first offset.
    open_in_order: BTreeSet<(Offset, i64)>,
}

impl Transactions {
    /// Adds the next segment. The entries that its `.txnindex` should have.
    pub fn add(&mut self, segment: &SegmentTransactions) -> Vec<AbortedTransaction> {
        let mut aborted = Vec::new();
        for event in &segment.events {
            let Event { offset, producer_id, kind } = *event;
            match kind {
                EventKind::Data => {
                    let first = *self.open.entry(producer_id).or_insert(offset);
                    self.open_in_order.insert((first, producer_id));
                }
                EventKind::Marker(state) => {
                    let begun = self.open.remove(&producer_id);
                    if let Some(first_offset) = begun {
                        self.open_in_order.remove(&(first_offset, producer_id));
                        if state == TransactionState::Aborted {
                            aborted.push(AbortedTransaction {
                                producer_id,
                                first_offset,
                                last_offset: offset,
                                last_stable_offset: self.first_open().unwrap_or(offset.next()),
                            });
                        }
                    }
                    self.ends.entry(producer_id).or_default().push((offset, state));
                }
            }
        }
        aborted
    }

    /// The first offset of the earliest transaction that is still open.
    pub fn first_open(&self) -> Option<Offset> {
        self.open_in_order.first().map(|(first, _)| *first)
    }

    /// First offsets and producer ids of the transactions that are still open, in that order.
    pub fn open(&self) -> impl Iterator<Item = (Offset, i64)> {
        self.open_in_order.iter().copied()
    }

    /// How the transaction ended that `producer_id` had open at `offset`.
    pub fn state_of(&self, producer_id: i64, offset: Offset) -> TransactionState {
        let ends = self.ends.get(&producer_id).map(Vec::as_slice).unwrap_or_default();
        let next = ends.partition_point(|(marker, _)| *marker <= offset);
        ends.get(next).map_or(TransactionState::Open, |(_, state)| *state)
    }
}
