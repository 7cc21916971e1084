//! The four quantities that are never mixed: offsets number records, positions count bytes in one
//! file, timestamps are Unix milliseconds, leader epochs count elections.

use std::fmt;

/// Number of a record in its partition, from 0 to 2^63-1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, Default)]
pub struct Offset(i64);

impl Offset {
    /// The first offset of a new log.
    pub const ZERO: Offset = Offset(0);
    /// The greatest offset that the format can express.
    pub const MAX: Offset = Offset(i64::MAX);

    /// An offset from the number on disk; `None` for negative numbers, which name no record.
    pub const fn new(raw: i64) -> Option<Offset> {
        if raw < 0 { None } else { Some(Offset(raw)) }
    }

    /// The number on disk.
    pub const fn get(self) -> i64 {
        self.0
    }

    /// The offset `delta` records later; `None` beyond 2^63-1 or below zero.
    pub fn checked_add(self, delta: i64) -> Option<Offset> {
        self.0.checked_add(delta).and_then(Offset::new)
    }

    /// The offset after this one (the greatest offset is its own successor).
    #[must_use]
    pub const fn next(self) -> Offset {
        Offset(self.0.saturating_add(1))
    }

    /// The offset before this one (zero is its own predecessor).
    #[must_use]
    pub const fn previous(self) -> Offset {
        Offset(if self.0 == 0 { 0 } else { self.0 - 1 })
    }

    /// How many offsets lie from `start` up to this one; zero when `start` is behind it.
    pub fn distance_from(self, start: Offset) -> u64 {
        u64::try_from(self.0 - start.0).unwrap_or(0)
    }
}

/// Byte place in one file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Position(u64);

impl Position {
    /// The first byte of a file.
    pub const START: Position = Position(0);

    /// The place `bytes` after the beginning of the file.
    pub const fn new(bytes: u64) -> Position {
        Position(bytes)
    }

    /// Bytes from the beginning of the file.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The place `bytes` further on.
    #[must_use]
    pub const fn plus(self, bytes: u64) -> Position {
        Position(self.0.saturating_add(bytes))
    }
}

/// Unix time in milliseconds, UTC; negative before 1970. "No timestamp" (-1 on disk) is `None` of
/// an `Option<Timestamp>` everywhere behind the parser.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
pub struct Timestamp(i64);

impl Timestamp {
    /// A time from its number of milliseconds.
    pub const fn from_millis(millis: i64) -> Timestamp {
        Timestamp(millis)
    }

    /// Milliseconds since 1970-01-01T00:00:00Z.
    pub const fn millis(self) -> i64 {
        self.0
    }
}

/// Number of the election in which the leader that wrote a batch was chosen; never negative.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaderEpoch(i32);

impl LeaderEpoch {
    /// An epoch from the number on disk; `None` for -1 ("unknown") and other negative numbers.
    pub const fn new(raw: i32) -> Option<LeaderEpoch> {
        if raw < 0 { None } else { Some(LeaderEpoch(raw)) }
    }

    /// The number on disk.
    pub const fn get(self) -> i32 {
        self.0
    }
}

macro_rules! shown_as_its_number {
    ($($unit:ident),*) => {$(
        impl fmt::Display for $unit {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $unit {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($unit), "({})"), self.0)
            }
        }
    )*};
}
shown_as_its_number!(Offset, Position, Timestamp, LeaderEpoch);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negative_numbers_are_no_offsets_and_no_epochs() {
        assert_eq!(Offset::new(-1), None);
        assert_eq!(LeaderEpoch::new(-1), None);
        assert_eq!(Offset::MAX.next(), Offset::MAX);
        assert_eq!(Offset::MAX.checked_add(1), None);
        assert_eq!(Offset::ZERO.previous(), Offset::ZERO);
    }
}
