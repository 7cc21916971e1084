//! What a search does, step by step, for whoever wants to explain it. Usually nobody listens, and
//! then a step costs one look at an option.

use std::sync::{Mutex, PoisonError};

use crate::engine::damage::Stretch;
use crate::engine::find::Anchor;
use crate::format::batch::BatchHeader;
use crate::format::index::{IndexEntry, Probe, TimeIndexEntry};
use crate::units::{Offset, Position};

/// The steps of the searches so far.
#[derive(Debug, Default)]
pub struct Trace(Mutex<Vec<Step>>);

/// One step of a search.
#[derive(Clone, Debug)]
pub enum Step {
    /// The search goes on in the segment with this base offset.
    Segment(Offset),
    /// A comparison in a binary search.
    Probe(Searched, Probe),
    /// The entry of the offset index that a search came to, and whether a batch with the promised
    /// offset begins where it points.
    Entry(IndexEntry, bool),
    /// The same of the time index: whether a batch ends with its offset and has its time.
    TimeEntry(TimeIndexEntry, bool),
    /// The scan begins here.
    Anchor(Anchor),
    /// A batch that the scan came to.
    Batch(BatchHeader, Position),
    /// Something is not as it should be; everything is verified from the anchor on.
    Doubt(Position),
    /// Wrong bytes.
    Damage(Stretch),
}

/// What a binary search is among.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Searched {
    Segments,
    OffsetIndex,
    TimeIndex,
}

impl Trace {
    /// The steps since they were taken last.
    pub fn take(&self) -> Vec<Step> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds a step.
    pub fn note(&self, step: Step) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(step);
    }
}
