//! Offset, time and transaction indexes, looked at where they lie, and their entries as they are
//! written (format page, "Index files").
//!
//! An index is a hint. Nothing here fails on wrong bytes: a search in garbage ends and answers
//! something, and the batch found there decides. Only the transaction index is an answer of its
//! own, so that one is parsed whole or refused.

use super::{FormatError, field_i16, field_i32, field_i64, set_field};
use crate::units::{Offset, Position, Timestamp};

/// Bytes of one entry of a `.index`.
pub const OFFSET_ENTRY_BYTES: usize = 8;
/// Bytes of one entry of a `.timeindex`.
pub const TIME_ENTRY_BYTES: usize = 12;
/// Bytes of one entry of a `.txnindex`.
pub const TXN_ENTRY_BYTES: usize = 34;

/// One entry of an offset index: the batch (or append set) whose last offset is `offset` begins at
/// `position`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    /// Last offset of what is indexed.
    pub offset: Offset,
    /// Byte of the `.log` file where it begins.
    pub position: Position,
}

/// One entry of a time index: no record up to `offset` has a later timestamp than this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeIndexEntry {
    /// Largest timestamp of the segment so far.
    pub timestamp: Timestamp,
    /// Last offset of the batch that holds it.
    pub offset: Offset,
}

impl IndexEntry {
    /// The entry as it is stored in the segment that begins at `base`. `None` where the offset is
    /// below it or 2^31 and more above it, or the position is beyond 2^31-1.
    #[inline]
    pub fn to_bytes(self, base: Offset) -> Option<[u8; OFFSET_ENTRY_BYTES]> {
        let mut bytes = [0; OFFSET_ENTRY_BYTES];
        set_field(&mut bytes, 0, relative(base, self.offset)?.to_be_bytes());
        set_field(&mut bytes, 4, i32::try_from(self.position.get()).ok()?.to_be_bytes());
        Some(bytes)
    }
}

impl TimeIndexEntry {
    /// The entry as it is stored in the segment that begins at `base`. `None` where the offset is
    /// below it or 2^31 and more above it.
    #[inline]
    pub fn to_bytes(self, base: Offset) -> Option<[u8; TIME_ENTRY_BYTES]> {
        let mut bytes = [0; TIME_ENTRY_BYTES];
        set_field(&mut bytes, 0, self.timestamp.millis().to_be_bytes());
        set_field(&mut bytes, 8, relative(base, self.offset)?.to_be_bytes());
        Some(bytes)
    }
}

/// The bytes of an offset index and what its offsets are relative to.
#[derive(Clone, Copy, Debug)]
pub struct OffsetIndex<'a> {
    base: Offset,
    bytes: &'a [u8],
}

/// The bytes of a time index and what its offsets are relative to.
#[derive(Clone, Copy, Debug)]
pub struct TimeIndex<'a> {
    base: Offset,
    bytes: &'a [u8],
}

impl<'a> OffsetIndex<'a> {
    /// The index of the segment that begins at `base`; bytes beyond the last whole entry are
    /// ignored.
    pub const fn new(base: Offset, bytes: &'a [u8]) -> OffsetIndex<'a> {
        OffsetIndex { base, bytes }
    }

    /// The same without the zeros behind its last entry (see [`used_entries`]).
    #[must_use]
    pub fn without_padding(self) -> OffsetIndex<'a> {
        let used = used_entries(self.bytes, OFFSET_ENTRY_BYTES) * OFFSET_ENTRY_BYTES;
        OffsetIndex { bytes: self.bytes.get(..used).unwrap_or(self.bytes), ..self }
    }

    /// How many entries there are, padding included.
    pub const fn entries_count(&self) -> usize {
        self.bytes.len() / OFFSET_ENTRY_BYTES
    }

    /// Entry number `i` from 0; `None` beyond the last, and where an offset or position is
    /// negative.
    pub fn get(&self, i: usize) -> Option<IndexEntry> {
        let at = i.checked_mul(OFFSET_ENTRY_BYTES)?;
        let delta = field_i32(self.bytes, at).ok()?;
        let position = u64::try_from(field_i32(self.bytes, at + 4).ok()?).ok()?;
        Some(IndexEntry { offset: absolute(self.base, delta)?, position: Position::new(position) })
    }

    /// The last entry with an offset of at most `target`. `None`, where there is none, stands for
    /// the segment's beginning.
    pub fn floor(&self, target: Offset) -> Option<IndexEntry> {
        self.floor_seen(target, |_| {})
    }

    /// The same, with each comparison shown to `see`.
    pub fn floor_seen(&self, target: Offset, see: impl FnMut(Probe)) -> Option<IndexEntry> {
        let delta = target.get() - self.base.get();
        let is_below = |i: usize| {
            field_i32(self.bytes, i * OFFSET_ENTRY_BYTES).is_ok_and(|this| i64::from(this) <= delta)
        };
        let above = partition_point_seen(self.entries_count(), is_below, see);
        self.get(above.checked_sub(1)?)
    }

    /// The entries in their order, up to the first impossible one.
    pub fn iter(&self) -> impl Iterator<Item = IndexEntry> + use<'a> {
        let index = *self;
        (0..index.entries_count()).map_while(move |i| index.get(i))
    }
}

impl<'a> TimeIndex<'a> {
    /// The index of the segment that begins at `base`; bytes beyond the last whole entry are
    /// ignored.
    pub const fn new(base: Offset, bytes: &'a [u8]) -> TimeIndex<'a> {
        TimeIndex { base, bytes }
    }

    /// The same without the zeros behind its last entry (see [`used_entries`]).
    #[must_use]
    pub fn without_padding(self) -> TimeIndex<'a> {
        let used = used_entries(self.bytes, TIME_ENTRY_BYTES) * TIME_ENTRY_BYTES;
        TimeIndex { bytes: self.bytes.get(..used).unwrap_or(self.bytes), ..self }
    }

    /// How many entries there are, padding included.
    pub const fn entries_count(&self) -> usize {
        self.bytes.len() / TIME_ENTRY_BYTES
    }

    /// Entry number `i` from 0; `None` beyond the last, and where an offset is negative.
    pub fn get(&self, i: usize) -> Option<TimeIndexEntry> {
        let at = i.checked_mul(TIME_ENTRY_BYTES)?;
        let timestamp = Timestamp::from_millis(field_i64(self.bytes, at).ok()?);
        let delta = field_i32(self.bytes, at + 8).ok()?;
        Some(TimeIndexEntry { timestamp, offset: absolute(self.base, delta)? })
    }

    /// The last entry with a timestamp of at most `target`. `None`, where there is none, stands for
    /// the segment's beginning.
    pub fn floor(&self, target: Timestamp) -> Option<TimeIndexEntry> {
        self.floor_seen(target, |_| {})
    }

    /// The same, with each comparison shown to `see`.
    pub fn floor_seen(&self, target: Timestamp, see: impl FnMut(Probe)) -> Option<TimeIndexEntry> {
        let is_below = |i: usize| {
            field_i64(self.bytes, i * TIME_ENTRY_BYTES).is_ok_and(|this| this <= target.millis())
        };
        let above = partition_point_seen(self.entries_count(), is_below, see);
        self.get(above.checked_sub(1)?)
    }

    /// The entries in their order, up to the first impossible one.
    pub fn iter(&self) -> impl Iterator<Item = TimeIndexEntry> + use<'a> {
        let index = *self;
        (0..index.entries_count()).map_while(move |i| index.get(i))
    }
}

fn absolute(base: Offset, delta: i32) -> Option<Offset> {
    if delta < 0 { None } else { base.checked_add(i64::from(delta)) }
}

fn relative(base: Offset, offset: Offset) -> Option<i32> {
    i32::try_from(offset.get() - base.get()).ok().filter(|&delta| delta >= 0)
}

/// The least number below `count` for which `is_below` fails; some number up to `count` if it does
/// not hold for a beginning of them.
pub fn partition_point(count: usize, is_below: impl Fn(usize) -> bool) -> usize {
    partition_point_seen(count, is_below, |_| {})
}

/// One comparison of a binary search: what is left is from `low` up to, not including, `high`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The first number that is left.
    pub low: usize,
    /// The number that is looked at.
    pub middle: usize,
    /// The number behind the last that is left.
    pub high: usize,
    /// Is it not above what is searched, so that the search goes on behind it?
    pub below: bool,
}

/// [`partition_point`], with each comparison shown to `see`.
#[inline]
pub fn partition_point_seen(
    count: usize,
    is_below: impl Fn(usize) -> bool,
    mut see: impl FnMut(Probe),
) -> usize {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low + (high - low) / 2;
        let below = is_below(middle);
        see(Probe { low, middle, high, below });
        if below {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

/// How many entries of `entry_bytes` each come before the zeros that an index file is filled up
/// with while its segment is active, and after a crash. An entry of zeros is padding: Kafka never
/// indexes the first batch of a segment, and a time of 0 at its first offset is worth no entry.
///
/// Looks at a few entries and one page, not at the 10 MiB that are usual. Zeros in the middle of
/// entries, which no index of Kafka's has, may be taken for the end if they fill that page.
pub fn used_entries(bytes: &[u8], entry_bytes: usize) -> usize {
    const VERIFIED_BYTES: usize = 4096;
    let count = bytes.len() / entry_bytes;
    let is_zero = |i: usize| {
        let entry = bytes.get(i * entry_bytes..(i + 1) * entry_bytes);
        entry.is_some_and(|entry| entry.iter().all(|&byte| byte == 0))
    };
    let boundary = partition_point(count, |i| !is_zero(i));
    let verified = (boundary + VERIFIED_BYTES / entry_bytes).min(count);
    let last_is_zero = count.checked_sub(1).is_none_or(is_zero);
    if last_is_zero && (boundary..verified).all(is_zero) {
        return boundary;
    }
    (0..count).rev().find(|&i| !is_zero(i)).map_or(0, |last| last + 1)
}

/// One entry of a transaction index: a transaction whose records readers of committed data skip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedTransaction {
    /// Who began it.
    pub producer_id: i64,
    /// Its first record; it may be in an earlier segment.
    pub first_offset: Offset,
    /// Its ABORT marker.
    pub last_offset: Offset,
    /// The last stable offset right after the marker.
    pub last_stable_offset: Offset,
}

impl AbortedTransaction {
    /// The entry as it is stored.
    pub fn to_bytes(self) -> [u8; TXN_ENTRY_BYTES] {
        let mut bytes = [0; TXN_ENTRY_BYTES];
        set_field(&mut bytes, 2, self.producer_id.to_be_bytes());
        set_field(&mut bytes, 10, self.first_offset.get().to_be_bytes());
        set_field(&mut bytes, 18, self.last_offset.get().to_be_bytes());
        set_field(&mut bytes, 26, self.last_stable_offset.get().to_be_bytes());
        bytes
    }
}

/// All entries of a `.txnindex`, in the order of their markers. A partial entry at the end is
/// ignored; a version above 0 or a negative offset is an error.
pub fn parse_txn_index(bytes: &[u8]) -> Result<Vec<AbortedTransaction>, FormatError> {
    bytes
        .chunks_exact(TXN_ENTRY_BYTES)
        .enumerate()
        .map(|(i, entry)| parse_aborted(i, entry))
        .collect()
}

fn parse_aborted(i: usize, entry: &[u8]) -> Result<AbortedTransaction, FormatError> {
    let version = field_i16(entry, 0)?;
    if version > 0 {
        return Err(FormatError::invalid(format!(
            "transaction index entry {i}: version {version}"
        )));
    }
    let offset = |at: usize| {
        let raw = field_i64(entry, at)?;
        Offset::new(raw).ok_or_else(|| {
            FormatError::invalid(format!("transaction index entry {i}: offset {raw}"))
        })
    };
    Ok(AbortedTransaction {
        producer_id: field_i64(entry, 2)?,
        first_offset: offset(10)?,
        last_offset: offset(18)?,
        last_stable_offset: offset(26)?,
    })
}

/// Can these be the aborted transactions of the segment that begins at `base`? Every marker must be
/// in it.
pub fn txn_index_fits(entries: &[AbortedTransaction], base: Offset) -> bool {
    entries.iter().all(|entry| entry.last_offset >= base)
}

/// Adds to `found` the transactions of one segment's index that overlap the offsets from `from` up
/// to but not including `upto`. `true` when no later segment's index can hold another.
pub fn collect_aborted(
    entries: &[AbortedTransaction],
    from: Offset,
    upto: Offset,
    found: &mut Vec<AbortedTransaction>,
) -> bool {
    for entry in entries {
        if entry.last_offset >= from && entry.first_offset < upto {
            found.push(*entry);
        }
        if entry.last_stable_offset >= upto {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::tests::hex;
    use proptest::prelude::*;

    fn offset(raw: i64) -> Offset {
        Offset::new(raw).unwrap()
    }

    fn offset_index(entries: impl IntoIterator<Item = (i32, i32)>) -> Vec<u8> {
        entries.into_iter().flat_map(|(a, b)| [a.to_be_bytes(), b.to_be_bytes()].concat()).collect()
    }

    fn time_index(entries: impl IntoIterator<Item = (i64, i32)>) -> Vec<u8> {
        let entry =
            |(time, delta): (i64, i32)| [&time.to_be_bytes()[..], &delta.to_be_bytes()].concat();
        entries.into_iter().flat_map(entry).collect()
    }

    fn found(entry: Option<IndexEntry>) -> Option<(i64, u64)> {
        entry.map(|entry| (entry.offset.get(), entry.position.get()))
    }

    fn found_time(entry: Option<TimeIndexEntry>) -> Option<(i64, i64)> {
        entry.map(|entry| (entry.timestamp.millis(), entry.offset.get()))
    }

    /// Annex A19 of the format facts.
    #[test]
    fn an_index_that_kafka_wrote_is_read_and_written() {
        let bytes = hex("000000020000008a0000000400000114000000060000019e");
        let index = OffsetIndex::new(offset(40), &bytes);
        let all: Vec<_> = index.iter().map(|entry| found(Some(entry)).unwrap()).collect();
        assert_eq!(all, [(42, 138), (44, 276), (46, 414)]);
        let written = index.iter().flat_map(|entry| entry.to_bytes(offset(40)).unwrap());
        assert_eq!(written.collect::<Vec<_>>(), bytes);
        let bytes = hex("000000000000021e00000002000000000000038400000004");
        let index = TimeIndex::new(offset(40), &bytes);
        let all: Vec<_> = index.iter().map(|entry| found_time(Some(entry)).unwrap()).collect();
        assert_eq!(all, [(542, 42), (900, 44)]);
        let written = index.iter().flat_map(|entry| entry.to_bytes(offset(40)).unwrap());
        assert_eq!(written.collect::<Vec<_>>(), bytes);
    }

    #[test]
    fn entries_that_do_not_fit_in_their_segment_are_none() {
        let last = i64::from(i32::MAX);
        for (raw, at, fits) in [
            (40, 0, true),
            (40 + last, u64::from(i32::MAX.unsigned_abs()), true),
            (39, 0, false),
            (0, 0, false),
            (41 + last, 0, false),
            (i64::MAX, 0, false),
            (40, 1 << 31, false),
            (40, u64::MAX, false),
        ] {
            let entry = IndexEntry { offset: offset(raw), position: Position::new(at) };
            assert_eq!(entry.to_bytes(offset(40)).is_some(), fits, "{entry:?}");
            if at == 0 {
                let timestamp = Timestamp::from_millis(7);
                let entry = TimeIndexEntry { timestamp, offset: offset(raw) };
                assert_eq!(entry.to_bytes(offset(40)).is_some(), fits, "{entry:?}");
            }
        }
    }

    #[test]
    fn one_flipped_bit_is_another_entry() {
        let bytes = offset_index([(2, 138)]);
        let times = time_index([(542, 2)]);
        let whole = OffsetIndex::new(offset(40), &bytes).get(0);
        for bit in 0..64 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(OffsetIndex::new(offset(40), &flipped).get(0), whole);
        }
        let whole = TimeIndex::new(offset(40), &times).get(0);
        for bit in 0..96 {
            let mut flipped = times.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(TimeIndex::new(offset(40), &flipped).get(0), whole);
        }
    }

    /// kafka-behaviours row 22 (`OffsetIndexTest.lookupExtremeCases`).
    #[test]
    fn extreme_offsets_are_looked_up() {
        assert_eq!(found(OffsetIndex::new(offset(45), &[]).floor(offset(45))), None);
        let bytes = offset_index((0..30).map(|i| (1 + i, i)));
        let index = OffsetIndex::new(offset(45), &bytes);
        assert_eq!(found(index.floor(offset(45))), None);
        assert_eq!(found(index.floor(offset(46))), Some((46, 0)));
        assert_eq!(found(index.floor(offset(75))), Some((75, 29)));
        assert_eq!(found(index.floor(Offset::MAX)), Some((75, 29)));
        assert_eq!(found(index.floor(Offset::ZERO)), None);
    }

    /// kafka-behaviours row 26 (`OffsetIndexTest.testReopen`), the reading part.
    #[test]
    fn a_reopened_index_has_its_entries() {
        let bytes = offset_index([(51, 0), (52, 1)]);
        let index = OffsetIndex::new(Offset::ZERO, &bytes);
        assert_eq!(index.entries_count(), 2);
        assert_eq!(found(index.floor(offset(51))), Some((51, 0)));
        assert_eq!(found(index.floor(offset(52))), Some((52, 1)));
        assert_eq!(found(index.get(1)), Some((52, 1)));
        assert_eq!(index.get(2), None);
    }

    /// kafka-behaviours row 28 (`TimeIndexTest.testLookUp`).
    #[test]
    fn times_are_looked_up() {
        let at = Timestamp::from_millis;
        assert_eq!(TimeIndex::new(offset(45), &[]).floor(at(100)), None);
        let bytes = time_index((1..30).map(|i| (i64::from(10 * i), 10 * i)));
        let index = TimeIndex::new(offset(45), &bytes);
        assert_eq!(found_time(index.floor(at(9))), None);
        assert_eq!(found_time(index.floor(at(25))), Some((20, 65)));
        assert_eq!(found_time(index.floor(at(30))), Some((30, 75)));
        assert_eq!(found_time(index.floor(at(i64::MAX))), Some((290, 335)));
    }

    #[test]
    fn a_partial_entry_at_the_end_is_ignored() {
        let bytes = offset_index([(1, 100), (2, 200)]);
        let index = OffsetIndex::new(Offset::ZERO, &bytes[..15]);
        assert_eq!(index.entries_count(), 1);
        assert_eq!(found(index.floor(offset(9))), Some((1, 100)));
    }

    #[test]
    fn impossible_entries_are_none() {
        let bytes = offset_index([(-1, 0), (1, -1)]);
        let index = OffsetIndex::new(offset(5), &bytes);
        assert_eq!((index.get(0), index.get(1)), (None, None));
        assert_eq!(OffsetIndex::new(Offset::MAX, &offset_index([(1, 1)])).get(0), None);
    }

    #[test]
    fn padding_is_cut_at_every_length() {
        for used in [0, 1, 2, 3, 500, 511, 512, 513, 1024] {
            for padding in [0, 1, 2, 511, 512, 4000] {
                let entries = (0..used).map(|i| (i + 1, i * 100));
                let mut bytes = offset_index(entries);
                bytes.resize(bytes.len() + padding * 8, 0);
                let index = OffsetIndex::new(Offset::ZERO, &bytes).without_padding();
                assert_eq!(index.entries_count(), usize::try_from(used).unwrap());
                let mut bytes = time_index((0..used).map(|i| (i64::from(i), i)));
                bytes.resize(bytes.len() + padding * 12, 0);
                let index = TimeIndex::new(Offset::ZERO, &bytes).without_padding();
                // The one entry that looks like padding: time 0 at the base offset, all alone.
                let expected = if used == 1 { 0 } else { used };
                assert_eq!(index.entries_count(), usize::try_from(expected).unwrap());
            }
        }
    }

    #[test]
    fn a_zero_entry_among_others_is_no_padding() {
        let mut bytes = offset_index((0..100).map(|i| (i + 1, i * 100)));
        // 64 is where the search in 8192 entries looks.
        bytes[64 * 8..65 * 8].fill(0);
        assert_eq!(used_entries(&bytes, 8), 100);
        bytes.resize(64 * 1024, 0);
        assert_eq!(used_entries(&bytes, 8), 100);
    }

    /// Annex A18 of the format facts.
    #[test]
    fn an_aborted_transaction_that_kafka_wrote_is_read_and_written() {
        let bytes = hex("000000000000000000090000000000000064000000000000006e000000000000005a");
        let expected = aborted(9, 100, 110, 90);
        assert_eq!(parse_txn_index(&bytes), Ok(vec![expected]));
        assert_eq!(expected.to_bytes(), *bytes);
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 0x80 >> (bit % 8);
            let parsed = parse_txn_index(&flipped);
            // The sign of the version is the one bit that changes nothing: only above 0 is refused.
            assert_eq!(parsed == Ok(vec![expected]), bit == 0, "bit {bit}: {parsed:?}");
        }
    }

    fn aborted(producer_id: i64, first: i64, last: i64, stable: i64) -> AbortedTransaction {
        AbortedTransaction {
            producer_id,
            first_offset: offset(first),
            last_offset: offset(last),
            last_stable_offset: offset(stable),
        }
    }

    #[test]
    fn a_partial_transaction_is_ignored_and_a_later_version_refused() {
        let entry = hex("000000000000000000090000000000000064000000000000006e000000000000005a");
        let torn = [&entry[..], &entry[..33]].concat();
        assert_eq!(parse_txn_index(&torn).unwrap().len(), 1);
        for version in [[0, 1], [1, 0]] {
            let newer = [&version[..], &entry[2..]].concat();
            let error = parse_txn_index(&[entry.clone(), newer].concat()).unwrap_err();
            assert!(error.to_string().starts_with("transaction index entry 1: version"));
        }
    }

    fn four_aborted() -> [AbortedTransaction; 4] {
        [
            aborted(0, 0, 10, 11),
            aborted(1, 5, 15, 13),
            aborted(2, 18, 35, 25),
            aborted(3, 32, 50, 40),
        ]
    }

    /// kafka-behaviours row 32 (`TransactionIndexTest.testCollectAbortedTransactions`).
    #[test]
    fn aborted_transactions_of_a_range_are_collected() {
        let all = four_aborted();
        for (from, upto, expected, complete) in [
            (0, 100, &all[..], false),
            (0, 32, &all[..3], true),
            (0, 35, &all[..], true),
            (10, 35, &all[..], true),
            (11, 35, &all[1..], true),
            (20, 41, &all[2..], false),
            // Not of Kafka's test: the bound itself is stable.
            (20, 40, &all[2..], true),
        ] {
            let mut found = Vec::new();
            let done = collect_aborted(&all, offset(from), offset(upto), &mut found);
            assert_eq!((found.as_slice(), done), (expected, complete), "[{from}, {upto})");
        }
    }

    /// kafka-behaviours row 34 (`TransactionIndexTest.testSanityCheck`).
    #[test]
    fn markers_before_the_segment_are_noticed() {
        assert!(!txn_index_fits(&four_aborted(), offset(100)));
        assert!(!txn_index_fits(&four_aborted(), offset(11)));
        assert!(txn_index_fits(&four_aborted(), offset(10)));
    }

    proptest! {
        #[test]
        fn searches_in_any_bytes_end(bytes: Vec<u8>, base in 0..i64::MAX, target: i64) {
            let base = offset(base);
            let target_offset = offset(target & i64::MAX);
            let index = OffsetIndex::new(base, &bytes).without_padding();
            let _anything = index.floor(target_offset);
            let index = TimeIndex::new(base, &bytes).without_padding();
            let _anything = index.floor(Timestamp::from_millis(target));
            let _anything = parse_txn_index(&bytes);
        }

        #[test]
        fn the_floor_of_a_true_index_is_that_of_a_linear_search(
            deltas in proptest::collection::btree_set(1..500i32, 0..80),
            padding in 0..700usize,
            target in 0..600i64,
        ) {
            let mut bytes = offset_index(deltas.iter().map(|&delta| (delta, delta * 7)));
            bytes.resize(bytes.len() + padding * 8, 0);
            let index = OffsetIndex::new(offset(50), &bytes).without_padding();
            let expected = deltas.iter().rev().find(|&&delta| 50 + i64::from(delta) <= target);
            let expected = expected.map(|&delta| 50 + i64::from(delta));
            prop_assert_eq!(index.floor(offset(target)).map(|entry| entry.offset.get()), expected);
        }

        #[test]
        fn entries_read_back(base in 0..i64::MAX / 2, delta in 0..i32::MAX, other in 0..i32::MAX) {
            let (base, at) = (offset(base), u64::from(other.unsigned_abs()));
            let last = base.checked_add(i64::from(delta)).unwrap();
            let entry = IndexEntry { offset: last, position: Position::new(at) };
            let bytes = entry.to_bytes(base).unwrap();
            prop_assert_eq!(OffsetIndex::new(base, &bytes).get(0), Some(entry));
            let timestamp = Timestamp::from_millis(base.get() - i64::from(other));
            let entry = TimeIndexEntry { timestamp, offset: last };
            let bytes = entry.to_bytes(base).unwrap();
            prop_assert_eq!(TimeIndex::new(base, &bytes).get(0), Some(entry));
            let entry = aborted(i64::from(other), base.get(), last.get(), i64::from(delta));
            prop_assert_eq!(parse_txn_index(&entry.to_bytes()), Ok(vec![entry]));
        }
    }
}
