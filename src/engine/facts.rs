//! What is known of one partition without reading all of it (contract 6.3): where it begins and
//! ends, the damage that was met so far, what is missing, the state of its indexes. A survey looks
//! at each segment for a bounded time and changes nothing.
//!
//! The end of a segment is found from the last entry of its index that keeps its promise, header by
//! header. Where that fails, and in the active segment, the bytes up to the end are verified, if
//! they are few, so that what is wrong there is named too.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::engine::config;
use crate::engine::damage::{Oddity, Stretch};
use crate::engine::disk::read_small;
use crate::engine::find::Anchor;
use crate::engine::log::{Log, LogState, TornTail};
use crate::engine::missing::{self, Missing};
use crate::engine::scanner::Item;
use crate::engine::segment::{File, Segment};
use crate::engine::soundness::{self, Headers};
use crate::error::Result;
use crate::format::batch::{BatchHeader, Magic};
use crate::format::checkpoint;
use crate::format::name::TopicPartition;
use crate::units::{Offset, Position, Timestamp};

/// Batches that are looked at behind the last index entry of a segment, at the most.
const MOST_BATCHES: usize = 256;
/// Batches that are looked at in a whole survey so, at the most.
const MOST_BATCHES_IN_ALL: usize = 1 << 16;
/// Bytes at the end of a segment that are verified, at the most.
const MOST_VERIFIED_BYTES: u64 = 1 << 20;
const DAY_MS: i64 = 86_400_000;
/// 1990-01-01 in seconds: no timestamp in seconds is smaller.
const YEAR_1990_SECONDS: i64 = 631_152_000;
/// Topics of Kafka's own that are compacted.
const COMPACTED_TOPICS: [&str; 3] =
    ["__consumer_offsets", "__transaction_state", "__share_group_state"];

/// What is known of one partition.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Topic and partition.
    pub partition: TopicPartition,
    /// Its directory.
    pub directory: PathBuf,
    /// First offset that is shown.
    pub log_start: Offset,
    /// The offset that the next record will get.
    pub log_end: Offset,
    /// First offset that consumers of a broker did not see.
    pub high_watermark: Offset,
    /// What follows the last batch without being one.
    pub torn_tail: Option<TornTail>,
    /// Bytes that are wrong.
    pub damage: Vec<Stretch>,
    /// Batches that are served although something is wrong with them.
    pub oddities: Vec<Oddity>,
    /// Offsets that are not there.
    pub missing: Vec<Missing>,
    /// First and last offset of what lies on the disk but is not shown.
    pub below_log_start: Option<(Offset, Offset)>,
    /// Index files that are not sound.
    pub indexes: Vec<IndexState>,
    /// Segments with timestamps that can hardly be meant.
    pub timestamps: Vec<SuspiciousTimestamp>,
    /// Names of `.deleted`, `.cleaned` and `.swap` files.
    pub leftovers: Vec<String>,
    /// What others answer for.
    pub shadowed: Vec<Shadowed>,
    /// Was everything read?
    pub read_in_full: bool,
}

/// An index file that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexState {
    /// Its name.
    pub file: String,
    /// What is wrong with it.
    pub state: String,
}

/// A timestamp that can hardly be meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuspiciousTimestamp {
    /// The segment file.
    pub segment: String,
    /// The newest such timestamp in it that was seen.
    pub timestamp: Timestamp,
    /// Why it is suspicious.
    pub reason: &'static str,
    /// The first offset of the first batch with one, where all were read.
    pub first_offset: Option<Offset>,
}

impl SuspiciousTimestamp {
    /// Adds what was found further on: of each reason the first offset and the newest timestamp
    /// are told.
    pub fn add_to(self, known: &mut Vec<SuspiciousTimestamp>) {
        match known.iter_mut().find(|it| it.reason == self.reason) {
            Some(it) => it.timestamp = it.timestamp.max(self.timestamp),
            None => known.push(self),
        }
    }
}

/// Something that is on the disk but not part of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shadowed {
    /// A file that a finished `.swap` replaces.
    File(String),
    /// Offsets of a segment that a later one answers for.
    Offsets {
        /// The segment file that is not asked.
        segment: String,
        /// First of them.
        first_offset: Offset,
        /// Last of them.
        last_offset: Offset,
    },
}

/// What is known of the bytes of one segment.
#[derive(Clone, Debug, Default)]
pub struct SegmentLook {
    /// The first offset behind its batches, if that was found.
    pub end: Option<Offset>,
    /// Were records missing in the batches that were seen, as after compaction?
    pub is_sparse: bool,
    /// First offsets of what was missing between batches, and first offsets behind.
    pub holes: Vec<(Offset, Offset)>,
    /// What can hardly be meant of its timestamps.
    pub timestamps: Vec<SuspiciousTimestamp>,
    /// Its index files that are not sound.
    pub indexes: Vec<IndexState>,
}

/// What was seen of the bytes of a log.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Its segments, in the order of the state.
    pub looks: Vec<SegmentLook>,
    /// Bytes that are wrong, by segment and position.
    pub damage: Vec<Stretch>,
    /// Batches that are served although something is wrong with them, in the same order.
    pub oddities: Vec<Oddity>,
    /// Was everything read? Then the holes of a compacted log are known too.
    pub in_full: bool,
}

/// Looks at `log` as it was in `state`, at the time `now`.
pub fn survey(log: &Log, state: &LogState, now: Timestamp) -> Result<Facts> {
    let mut batches_left = MOST_BATCHES_IN_ALL;
    let looks =
        state.segments.iter().map(|segment| look(log, state, segment, &mut batches_left, now));
    let looks = looks.collect::<Result<Vec<_>>>()?;
    let here = |path: &Path| state.segments.iter().any(|segment| segment.log.path() == path);
    let mut damage = log.findings().stretches();
    damage.retain(|stretch| here(&stretch.path));
    let mut oddities = log.findings().oddities();
    oddities.retain(|oddity| here(&oddity.path));
    Ok(Facts::of(log, state, Seen { looks, damage, oddities, in_full: false }))
}

impl Facts {
    /// What `seen` and the state of a log tell.
    pub fn of(log: &Log, state: &LogState, seen: Seen) -> Facts {
        let Seen { mut looks, damage, oddities, in_full } = seen;
        let has_holes = looks.iter().any(|look| !look.holes.is_empty());
        let has_cleaner = is_compacted(log, &looks);
        if has_cleaner && !in_full {
            // There they are as many as one cares to look for, and nothing to wonder about.
            for look in &mut looks {
                look.holes.clear();
            }
        }
        let compacted = has_cleaner || has_holes;
        Facts {
            partition: log.name().clone(),
            directory: log.path().to_path_buf(),
            log_start: state.log_start,
            log_end: state.log_end,
            high_watermark: state.high_watermark,
            torn_tail: state.torn_tail.clone(),
            missing: missing::find(log, state, &looks, &damage, compacted),
            damage,
            oddities,
            below_log_start: below_log_start(state),
            shadowed: shadowed(state, &looks),
            indexes: looks.iter_mut().flat_map(|look| look.indexes.drain(..)).collect(),
            timestamps: looks.into_iter().flat_map(|look| look.timestamps).collect(),
            leftovers: state.leftovers.clone(),
            read_in_full: in_full,
        }
    }
}

/// Why `newest`, the largest timestamp of something, can hardly be meant; `None` when it can.
pub fn suspicion(newest: Timestamp, now: Timestamp) -> Option<&'static str> {
    let (newest, latest) = (newest.millis(), now.millis().saturating_add(DAY_MS));
    if newest > latest {
        return Some("more than a day in the future");
    }
    let as_seconds = YEAR_1990_SECONDS..=latest / 1000;
    as_seconds.contains(&newest).then_some("seconds, where milliseconds are meant?")
}

/// The name of a file that was listed.
pub fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn look(
    log: &Log,
    state: &LogState,
    segment: &Arc<Segment>,
    batches_left: &mut usize,
    now: Timestamp,
) -> Result<SegmentLook> {
    let shared = log.shared();
    let offsets = soundness::offset_index(shared, segment)?;
    let start = Anchor { position: Position::START, expected: segment.base_offset };
    let anchor = offsets.last.unwrap_or(start);
    let tail = Tail::of(log, segment, anchor, batches_left)?;
    let end = if segment.active { Some(state.log_end) } else { tail.end };
    let times = soundness::time_index(shared, segment, end)?;
    let newest = tail.newest.max(times.last.map(|entry| entry.timestamp));
    let suspicious = newest.and_then(|timestamp| {
        let reason = suspicion(timestamp, now)?;
        let segment = file_name(segment.log.path());
        Some(SuspiciousTimestamp { segment, timestamp, reason, first_offset: None })
    });
    let indexes = [
        IndexState::of(segment, "index", segment.index.as_ref(), &offsets.faults),
        IndexState::of(segment, "timeindex", segment.time_index.as_ref(), &times.faults),
    ];
    Ok(SegmentLook {
        end,
        is_sparse: tail.is_sparse,
        holes: tail.holes,
        timestamps: suspicious.into_iter().collect(),
        indexes: indexes.into_iter().flatten().collect(),
    })
}

impl IndexState {
    /// The state of an index `file` of `segment`, which would have this `extension` if it were
    /// there; `None` when it has no faults.
    pub fn of(
        segment: &Segment,
        extension: &str,
        file: Option<&File>,
        faults: &[String],
    ) -> Option<IndexState> {
        let path = segment.log.path().with_extension(extension);
        let file = file_name(file.map_or(&path, File::path));
        (!faults.is_empty()).then(|| IndexState { file, state: faults.join("; ") })
    }
}

/// The last batches of a segment.
#[derive(Debug)]
struct Tail {
    /// The first offset behind them, if all were seen.
    end: Option<Offset>,
    newest: Option<Timestamp>,
    is_sparse: bool,
    holes: Vec<(Offset, Offset)>,
    /// Where the next one begins.
    next: Anchor,
}

impl Tail {
    /// From `anchor` on, where a batch begins that holds no offset below the expected one.
    fn of(log: &Log, segment: &Arc<Segment>, anchor: Anchor, left: &mut usize) -> Result<Tail> {
        let holes = Vec::new();
        let mut tail = Tail { end: None, newest: None, is_sparse: false, holes, next: anchor };
        if segment.active {
            return tail.verified(log, segment);
        }
        let mut headers = Headers::from(segment, anchor.position);
        for _ in 0..MOST_BATCHES.min(*left) {
            if tail.next.position.get() == segment.valid_bytes {
                tail.end = Some(tail.next.expected);
                break;
            }
            *left -= 1;
            let Some(header) = headers.next(&*log.shared().disk)? else {
                return tail.verified(log, segment);
            };
            tail.see(&header, headers.position());
        }
        Ok(tail)
    }

    fn see(&mut self, header: &BatchHeader, end: Position) {
        let span = header.last_offset.distance_from(header.base_offset) + 1;
        let emptied = header.magic == Magic::V2 && u64::from(header.records_count) < span;
        if header.base_offset > self.next.expected && !header.is_legacy_wrapper() {
            self.holes.push((self.next.expected, header.base_offset));
        }
        self.is_sparse |= emptied || header.delete_horizon.is_some();
        self.newest = self.newest.max(header.max_timestamp);
        self.next = Anchor { position: end, expected: header.last_offset.next() };
    }

    /// Reads on to the end, and notes what is wrong there.
    fn verified(mut self, log: &Log, segment: &Arc<Segment>) -> Result<Tail> {
        let left = segment.valid_bytes.saturating_sub(self.next.position.get());
        if left > MOST_VERIFIED_BYTES {
            return Ok(self);
        }
        let mut scanner = log.shared().long_scanner(segment, None);
        scanner.seek(self.next.position, self.next.expected);
        loop {
            match scanner.step()? {
                Item::Batch(header, _) => {
                    if let Some(odd) = scanner.take_oddity() {
                        log.findings().note_oddity(odd);
                    }
                    self.see(&header, scanner.position());
                }
                Item::Damage(stretch) => {
                    log.findings().note(&stretch);
                    let (position, expected) = (scanner.position(), scanner.expected());
                    // Of a whole batch that is wrong the header may still tell what it held.
                    let before = (self.next.expected, stretch.first_offset);
                    let behind = (stretch.end_offset, expected);
                    self.holes.extend([before, behind].into_iter().filter(|(a, b)| a < b));
                    self.next = Anchor { position, expected };
                }
                Item::End { .. } => {
                    self.end = Some(scanner.expected());
                    return Ok(self);
                }
            }
        }
    }
}

/// Are there signs that a cleaner works on this log?
fn is_compacted(log: &Log, looks: &[SegmentLook]) -> bool {
    COMPACTED_TOPICS.contains(&log.name().topic())
        || looks.iter().any(|look| look.is_sparse)
        || is_in_cleaner_checkpoint(log)
        || config::effective(log).is_compacted()
}

fn is_in_cleaner_checkpoint(log: &Log) -> bool {
    let Some(directory) = log.path().parent() else { return false };
    let path = directory.join(checkpoint::CLEANER_OFFSET);
    read_small(&*log.shared().disk, &path, 1 << 26)
        .ok()
        .and_then(|bytes| checkpoint::parse_offset_checkpoint(&bytes).ok())
        .is_some_and(|lines| lines.iter().any(|line| line.partition == *log.name()))
}

fn below_log_start(state: &LogState) -> Option<(Offset, Offset)> {
    let end = state.log_start.min(state.log_end);
    (state.disk_start < end).then(|| (state.disk_start, end.previous()))
}

fn shadowed(state: &LogState, looks: &[SegmentLook]) -> Vec<Shadowed> {
    let files = state.shadowed.iter().cloned().map(Shadowed::File);
    let overlaps = state.segments.iter().zip(looks).filter_map(|(segment, look)| {
        let end = look.end.filter(|end| *end > segment.limit)?;
        Some(Shadowed::Offsets {
            segment: file_name(segment.log.path()),
            first_offset: segment.limit,
            last_offset: end.previous(),
        })
    });
    files.chain(overlaps).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::fixture;
    use crate::engine::missing::Why;
    use std::fs;
    use tempfile::TempDir;

    /// When the fixtures were made, and a little later.
    const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

    fn surveyed(source: &TempDir, partition: &str) -> Facts {
        let log = fixture::log(source.path(), partition);
        survey(&log, &log.state().unwrap(), NOW).unwrap()
    }

    fn file(source: &TempDir, partition: &str, base: i64, extension: &str) -> PathBuf {
        source.path().join(partition).join(format!("{base:020}.{extension}"))
    }

    fn remove(source: &TempDir, partition: &str, base: i64, extensions: &[&str]) {
        for extension in extensions {
            fs::remove_file(file(source, partition, base, extension)).unwrap();
        }
    }

    fn missing(facts: &Facts) -> Vec<(i64, i64, Why)> {
        let ranges = facts.missing.iter();
        ranges.map(|m| (m.first_offset.get(), m.last_offset.get(), m.why)).collect()
    }

    /// Offsets of the records that Kafka reads in a partition.
    fn expected_offsets(set: &str, partition: &str) -> Vec<i64> {
        let text = fs::read_to_string(fixture::expected(set, partition)).unwrap();
        let lines =
            text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        lines.map(|record| record["offset"].as_i64().unwrap()).collect()
    }

    #[test]
    fn what_a_broker_left_in_order_is_sound() {
        for set in ["clean", "open-txn", "exact", "legacy"] {
            let names = fixture::partitions(set);
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let source = fixture::data_dir(set, &names);
            for name in names {
                let facts = surveyed(&source, name);
                let place = format!("{set}/{name}");
                assert_eq!((facts.damage, facts.indexes), (vec![], vec![]), "{place}");
                assert_eq!((facts.oddities, facts.torn_tail), (vec![], None), "{place}");
                assert_eq!((facts.leftovers, facts.shadowed), (vec![], vec![]), "{place}");
                assert!(!facts.read_in_full);
                if name.starts_with("__") {
                    continue;
                }
                let records = expected_offsets(set, name);
                for gap in facts.missing {
                    let range = gap.first_offset.get()..=gap.last_offset.get();
                    assert!(!records.iter().any(|at| range.contains(at)), "{place} {range:?}");
                    assert_eq!((gap.why, name.starts_with("compacted")), (Why::Hole, true));
                }
            }
        }
    }

    #[test]
    fn what_a_killed_broker_left_is_padded_and_no_worse() {
        let names = fixture::partitions("unclean");
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let source = fixture::data_dir("unclean", &names);
        let states = names.iter().flat_map(|name| surveyed(&source, name).indexes);
        let states: Vec<String> = states.map(|index| index.state).collect();
        assert!(!states.is_empty());
        assert!(states.iter().all(|state| state.ends_with("bytes (preallocated)")), "{states:?}");
    }

    #[test]
    fn segments_without_records_in_a_compacted_log_are_holes() {
        let source = fixture::data_dir("clean", &["compacted-hole-0"]);
        let facts = surveyed(&source, "compacted-hole-0");
        assert_eq!(missing(&facts), [(80, 179, Why::Hole)]);
    }

    /// Contract 6.3: `segment` (lost); whichever of its files are still there.
    #[test]
    fn a_lost_segment_is_missing() {
        let source = fixture::data_dir("clean", &["txn-0"]);
        remove(&source, "txn-0", 121, &["log"]);
        assert_eq!(missing(&surveyed(&source, "txn-0")), [(121, 240, Why::Segment)]);
        remove(&source, "txn-0", 121, &["index", "timeindex", "txnindex", "snapshot"]);
        assert_eq!(missing(&surveyed(&source, "txn-0")), [(121, 240, Why::Segment)]);
    }

    #[test]
    fn a_lost_segment_of_a_compacted_log_is_told_by_its_other_files() {
        let source = fixture::data_dir("clean", &["compacted-0"]);
        let before = missing(&surveyed(&source, "compacted-0"));
        remove(&source, "compacted-0", 1254, &["log"]);
        assert_eq!(before, [(1196, 1253, Why::Hole)]);
        let found = missing(&surveyed(&source, "compacted-0"));
        assert_eq!(found, [(1196, 1253, Why::Hole), (1254, 1379, Why::Segment)]);
        remove(&source, "compacted-0", 1254, &["index", "timeindex", "snapshot"]);
        let found = missing(&surveyed(&source, "compacted-0"));
        assert_eq!(found, [(1196, 1379, Why::Hole)]);
    }

    #[test]
    fn the_first_and_the_last_segment_can_be_lost_too() {
        let source = fixture::data_dir("clean", &["txn-0"]);
        remove(&source, "txn-0", 0, &["log"]);
        remove(&source, "txn-0", 627, &["log"]);
        let facts = surveyed(&source, "txn-0");
        assert_eq!(missing(&facts), [(0, 120, Why::Segment), (627, 710, Why::Segment)]);
    }

    #[test]
    fn the_end_of_a_lost_last_segment_is_told_by_snapshot_or_high_watermark() {
        let source = fixture::data_dir("clean", &["txn-0"]);
        let high_watermarks = source.path().join("replication-offset-checkpoint");
        let kept = fs::read(&high_watermarks).unwrap();
        remove(&source, "txn-0", 627, &["log"]);
        fs::remove_file(&high_watermarks).unwrap();
        assert_eq!(missing(&surveyed(&source, "txn-0")), [(627, 710, Why::Segment)]);
        remove(&source, "txn-0", 711, &["snapshot"]);
        assert_eq!(missing(&surveyed(&source, "txn-0")), [(627, 627, Why::Segment)]);
        fs::write(&high_watermarks, kept).unwrap();
        assert_eq!(missing(&surveyed(&source, "txn-0")), [(627, 710, Why::Segment)]);
    }

    /// A flipped bit in the base offset of the last batch looks so too.
    #[test]
    fn offsets_between_two_of_the_last_batches_are_a_hole() {
        let source = fixture::data_dir("clean", &["plain-0"]);
        let log = fixture::log(source.path(), "plain-0");
        let state = log.state().unwrap();
        let active = state.segments.last().unwrap();
        let mut headers = Headers::from(active, Position::START);
        let (mut last, mut at) = (None, Position::START);
        while let Some(header) = {
            let position = headers.position();
            let header = headers.next(&*log.shared().disk).unwrap();
            at = if header.is_some() { position } else { at };
            header
        } {
            last = Some(header);
        }
        let base = last.unwrap().base_offset.get();
        let mut bytes = fs::read(active.log.path()).unwrap();
        bytes[usize::try_from(at.get()).unwrap() + 5] ^= 1;
        fs::write(active.log.path(), bytes).unwrap();
        // Indexes that end before this batch do not tell whether the gap is real.
        for index in ["index", "timeindex"] {
            fs::write(active.log.path().with_extension(index), []).unwrap();
        }
        let hole = (base, base + (1 << 16) - 1, Why::Hole);
        assert_eq!(missing(&surveyed(&source, "plain-0")), [hole]);
    }

    #[test]
    fn a_deleted_segment_is_no_lost_one() {
        let source = fixture::data_dir("clean", &["txn-0"]);
        let log = file(&source, "txn-0", 0, "log");
        fs::rename(&log, log.with_extension("log.deleted")).unwrap();
        let facts = surveyed(&source, "txn-0");
        assert_eq!(missing(&facts), []);
        assert_eq!(facts.leftovers, ["00000000000000000000.log.deleted"]);
    }

    #[test]
    fn damage_that_was_met_is_named_and_its_offsets_are_missing() {
        let source = fixture::data_dir("clean", &["plain-0"]);
        let path = file(&source, "plain-0", 0, "log");
        let mut bytes = fs::read(&path).unwrap();
        bytes[80] ^= 1;
        fs::write(&path, bytes).unwrap();
        let log = fixture::log(source.path(), "plain-0");
        let state = log.state().unwrap();
        assert_eq!(survey(&log, &state, NOW).unwrap().damage, [], "not met yet");
        log.find(&state, Offset::ZERO).unwrap();
        let facts = survey(&log, &state, NOW).unwrap();
        let [damage] = &facts.damage[..] else { panic!("{:?}", facts.damage) };
        assert_eq!((damage.start, damage.first_offset), (Position::START, Offset::ZERO));
        let last = damage.end_offset.previous().get();
        assert_eq!(missing(&facts), [(0, last, Why::Damage)]);
    }

    #[test]
    fn damage_at_the_end_of_a_segment_is_met_by_the_survey() {
        let source = fixture::data_dir("clean", &["txn-0"]);
        let path = file(&source, "txn-0", 121, "log");
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, &bytes[..bytes.len() - 10]).unwrap();
        let facts = surveyed(&source, "txn-0");
        assert_eq!((facts.damage.len(), facts.missing.len()), (1, 1));
        assert_eq!(facts.damage[0].path, path);
        let [(_, 240, Why::Damage)] = missing(&facts)[..] else { panic!("{:?}", facts.missing) };
    }

    #[test]
    fn damage_in_the_last_batches_of_the_log_is_met_by_the_survey() {
        let source = fixture::data_dir("clean", &["plain-0"]);
        let log = fixture::log(source.path(), "plain-0");
        let state = log.state().unwrap();
        let active = state.segments.last().unwrap();
        let mut headers = Headers::from(active, Position::START);
        let mut positions = Vec::new();
        while headers.next(&*log.shared().disk).unwrap().is_some() {
            positions.push(headers.position());
        }
        let last_batch = positions[positions.len() - 2];
        let mut bytes = fs::read(active.log.path()).unwrap();
        bytes[usize::try_from(last_batch.get()).unwrap() - 1] ^= 1;
        fs::write(active.log.path(), bytes).unwrap();
        let damage = surveyed(&source, "plain-0").damage;
        let ends: Vec<_> = damage.iter().map(|stretch| stretch.end).collect();
        assert_eq!(ends, [last_batch]);
    }

    #[test]
    fn a_torn_tail_is_no_damage() {
        let source = fixture::data_dir("torn", &["txn-0"]);
        let facts = surveyed(&source, "txn-0");
        let tail = facts.torn_tail.unwrap();
        assert_eq!((tail.bytes, facts.damage, facts.missing), (3000, vec![], vec![]));
    }

    #[test]
    fn what_lies_below_the_log_start_is_named() {
        let source = fixture::data_dir("clean", &["deleted-0"]);
        let facts = surveyed(&source, "deleted-0");
        let below = facts.below_log_start.unwrap();
        assert_eq!(below.1.next(), facts.log_start);
        assert_eq!(facts.missing, []);
    }

    #[test]
    fn an_overlap_is_shadowed_by_the_later_segment() {
        let source = fixture::data_dir("clean", &["txn-0"]);
        let next = fs::read(file(&source, "txn-0", 121, "log")).unwrap();
        let header = BatchHeader::parse(&next).unwrap();
        let path = file(&source, "txn-0", 0, "log");
        let mut bytes = fs::read(&path).unwrap();
        bytes.extend(&next[..usize::try_from(header.bytes).unwrap()]);
        fs::write(&path, bytes).unwrap();
        let facts = surveyed(&source, "txn-0");
        let (first_offset, last_offset) = (header.base_offset, header.last_offset);
        let segment = "00000000000000000000.log".to_owned();
        assert_eq!(facts.shadowed, [Shadowed::Offsets { segment, first_offset, last_offset }]);
        assert_eq!((facts.missing, facts.damage), (vec![], vec![]));
    }

    #[test]
    fn files_that_a_swap_replaces_are_shadowed() {
        let source = fixture::data_dir("clean", &["txn-0"]);
        for extension in ["log", "index", "timeindex"] {
            let from = file(&source, "txn-0", 121, extension);
            fs::copy(&from, from.with_extension(format!("{extension}.swap"))).unwrap();
        }
        let facts = surveyed(&source, "txn-0");
        let replaced = Shadowed::File("00000000000000000121.log".to_owned());
        assert!(facts.shadowed.contains(&replaced), "{:?}", facts.shadowed);
        assert!(facts.leftovers.contains(&"00000000000000000121.log.swap".to_owned()));
        assert_eq!((facts.missing, facts.indexes), (vec![], vec![]));
    }

    #[test]
    fn times_in_the_future_are_suspicious() {
        let source = fixture::data_dir("clean", &["plain-0"]);
        let log = fixture::log(source.path(), "plain-0");
        let state = log.state().unwrap();
        let long_ago = Timestamp::from_millis(1_000_000_000_000);
        let found = survey(&log, &state, long_ago).unwrap().timestamps;
        assert_eq!(found.len(), state.segments.len());
        assert_eq!(found[0].reason, "more than a day in the future");
        assert_eq!(survey(&log, &state, NOW).unwrap().timestamps, []);
    }

    #[test]
    fn seconds_and_the_future_are_told_from_honest_times() {
        let said = |millis| suspicion(Timestamp::from_millis(millis), NOW);
        for honest in [0, 1, 542, 631_151_999, 1_000_000_000_000, NOW.millis() + DAY_MS] {
            assert_eq!(said(honest), None, "{honest}");
        }
        assert!(said(1_764_410_400).unwrap().starts_with("seconds"));
        assert!(said(NOW.millis() + DAY_MS + 1).unwrap().contains("future"));
        assert!(said(i64::MAX).unwrap().contains("future"));
        assert_eq!(suspicion(Timestamp::from_millis(5), Timestamp::from_millis(i64::MAX)), None);
    }

    #[test]
    fn an_empty_directory_is_an_empty_log() {
        let source = tempfile::tempdir().unwrap();
        fs::create_dir(source.path().join("t-0")).unwrap();
        let facts = surveyed(&source, "t-0");
        assert_eq!((facts.log_end, facts.missing), (Offset::ZERO, vec![]));
    }
}
