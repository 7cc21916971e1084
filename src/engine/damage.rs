//! What is wrong with the bytes of a log, as opposed to bytes that merely stop (contract 6.1).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::error::Error;
use crate::units::{Offset, Position};

/// Adjacent bytes of one segment that hold no readable batch, with valid batches (or the end of a
/// closed segment) behind them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// The segment file.
    pub path: PathBuf,
    /// First bad byte.
    pub start: Position,
    /// First byte that is good again.
    pub end: Position,
    /// First offset that cannot be read.
    pub first_offset: Offset,
    /// First offset behind the ones that cannot be read; not above `first_offset` when the bytes
    /// between two neighbours in order hold nothing.
    pub end_offset: Offset,
    /// What was expected and what was there.
    pub reason: String,
}

impl Stretch {
    /// The error of everyone who asks for a record in it.
    pub fn error(&self) -> Error {
        let lost = match self.end_offset.distance_from(self.first_offset) {
            0 => "no offset is lost".to_owned(),
            1 => format!("offset {} cannot be read", self.first_offset),
            _ => format!(
                "offsets {} to {} cannot be read",
                self.first_offset,
                self.end_offset.previous()
            ),
        };
        let reason = format!("{} ({lost})", self.reason);
        Error::Damage { path: self.path.clone(), position: self.start, reason }
    }

    /// Takes in the stretch `behind` it.
    pub fn take_in(&mut self, behind: &Stretch) {
        self.end = behind.end;
        self.end_offset = self.end_offset.max(behind.end_offset);
    }

    /// Is it only too large for the bound that was asked for, and perhaps not wrong at all?
    pub fn is_beyond_bound(&self) -> bool {
        self.reason.contains(" bytes, allowed ") || self.reason.contains("expands to more than ")
    }

    /// The first offset from `from` on, and before `limit`, that is lost in it; bytes between two
    /// neighbours in order hold none.
    pub fn first_lost(&self, from: Offset, limit: Offset) -> Option<Offset> {
        let first = self.first_offset.max(from);
        (first < self.end_offset.min(limit)).then_some(first)
    }

    /// Is the record at `offset` lost in it?
    pub fn holds(&self, offset: Offset) -> bool {
        (self.first_offset..self.end_offset).contains(&offset)
    }
}

/// A batch whose records are served although something outside its checksum is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Oddity {
    /// The segment file.
    pub path: PathBuf,
    /// Where the batch begins.
    pub position: Position,
    /// Bytes of the batch.
    pub bytes: u64,
    /// Its offsets.
    pub offsets: (Offset, Offset),
    /// What is wrong.
    pub reason: String,
}

/// The damage that was met in one log so far, each stretch once.
#[derive(Debug, Default)]
pub struct Findings {
    met: Mutex<BTreeMap<(PathBuf, Position), Stretch>>,
    odd: Mutex<BTreeMap<(PathBuf, Position), Oddity>>,
}

impl Findings {
    /// Notes a stretch; the first time it is said in the log.
    pub fn note(&self, stretch: &Stretch) {
        let mut met = self.met.lock().unwrap_or_else(PoisonError::into_inner);
        let within = |inner: &Stretch, outer: &Stretch| {
            inner.path == outer.path && outer.start <= inner.start && inner.end <= outer.end
        };
        if met.values().any(|known| within(stretch, known)) {
            return;
        }
        met.retain(|_, known| !within(known, stretch));
        met.insert((stretch.path.clone(), stretch.start), stretch.clone());
        log::warn!("{}", stretch.error());
    }

    /// The stretch of this file in which the record at `offset` is known to be lost.
    pub fn lost(&self, path: &Path, offset: Offset) -> Option<Stretch> {
        let met = self.met.lock().unwrap_or_else(PoisonError::into_inner);
        let from = (path.to_path_buf(), Position::START);
        let of_file = met.range(from..).take_while(|((file, _), _)| file == path);
        of_file.map(|(_, stretch)| stretch).find(|stretch| stretch.holds(offset)).cloned()
    }

    /// Forgets what was said of files for which `stays` does not hold any more.
    pub fn retain(&self, stays: impl Fn(&Path) -> bool) {
        let mut met = self.met.lock().unwrap_or_else(PoisonError::into_inner);
        met.retain(|(path, _), _| stays(path));
        let mut odd = self.odd.lock().unwrap_or_else(PoisonError::into_inner);
        odd.retain(|(path, _), _| stays(path));
    }

    /// Notes a batch that is served although it is odd.
    pub fn note_oddity(&self, odd: Oddity) {
        let key = (odd.path.clone(), odd.position);
        let mut all = self.odd.lock().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Vacant(place) = all.entry(key) {
            log::warn!("{}, position {}: {}", odd.path.display(), odd.position, odd.reason);
            place.insert(odd);
        }
    }

    /// All stretches, by file and position.
    pub fn stretches(&self) -> Vec<Stretch> {
        self.met.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// All odd batches, by file and position.
    pub fn oddities(&self) -> Vec<Oddity> {
        self.odd.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }
}
