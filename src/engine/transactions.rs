//! Which transactional records are committed, aborted or still open, read from the markers in the
//! log itself: the `.txnindex` files may be missing or wrong, and are not asked.

use std::collections::{HashMap, HashSet};

use crate::engine::scanner::{Item, Scanner};
use crate::error::Result;
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

/// What one segment says of transactions, in offset order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SegmentTransactions {
    events: Vec<Event>,
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
        let mut events = Vec::new();
        let mut begun = HashSet::new();
        loop {
            let (header, position) = match scanner.step()? {
                Item::Batch(header, position) => (header, position),
                Item::Damage(_) => continue,
                Item::End { .. } => return Ok(SegmentTransactions { events }),
            };
            if !header.transactional {
                continue;
            }
            let (offset, producer_id) = (header.base_offset, header.producer_id);
            if header.control {
                let raw = scanner.batch_bytes(&header, position).unwrap_or_default();
                let payload = raw.get(crate::format::batch::HEADER_BYTES..).unwrap_or_default();
                let record = Cursor::new(&header, payload)
                    .ok()
                    .and_then(|mut cursor| cursor.next(&header, payload)?.ok());
                if let Some(state) = record.and_then(|record| marker(record.key?)) {
                    begun.remove(&producer_id);
                    events.push(Event { offset, producer_id, kind: EventKind::Marker(state) });
                }
            } else if begun.insert(producer_id) {
                events.push(Event { offset, producer_id, kind: EventKind::Data });
            }
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
}

impl Transactions {
    /// Adds the next segment.
    pub fn add(&mut self, segment: &SegmentTransactions) {
        for event in &segment.events {
            match event.kind {
                EventKind::Data => {
                    self.open.entry(event.producer_id).or_insert(event.offset);
                }
                EventKind::Marker(state) => {
                    self.open.remove(&event.producer_id);
                    self.ends.entry(event.producer_id).or_default().push((event.offset, state));
                }
            }
        }
    }

    /// The first offset of the earliest transaction that is still open.
    pub fn first_open(&self) -> Option<Offset> {
        self.open.values().min().copied()
    }

    /// How the transaction ended that `producer_id` had open at `offset`.
    pub fn state_of(&self, producer_id: i64, offset: Offset) -> TransactionState {
        let ends = self.ends.get(&producer_id).map(Vec::as_slice).unwrap_or_default();
        let next = ends.partition_point(|(marker, _)| *marker <= offset);
        ends.get(next).map_or(TransactionState::Open, |(_, state)| *state)
    }
}
