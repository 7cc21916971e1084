//! Which offsets of a log are not there, as far as it is known without reading everything: those in
//! damaged bytes, those of segments that are gone, and those between two segments or batches.
//!
//! A gap between segments is a hole in a log that a cleaner works on, unless one of a segment's
//! other files is still there; in any other log it is a lost segment.

use std::collections::{BTreeMap, BTreeSet};

use crate::engine::damage::Stretch;
use crate::engine::facts::SegmentLook;
use crate::engine::log::{Log, LogState};
use crate::engine::segment::Segment;
use crate::format::batch::HEADER_BYTES;
use crate::format::name::{SegmentFile, SegmentFileKind, SegmentFileState};
use crate::units::Offset;

/// How the names of files end that repair and recovery put beside a log.
const KEPT: &str = ".offsetfs";

/// Offsets that are not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// First of them.
    pub first_offset: Offset,
    /// Last of them.
    pub last_offset: Offset,
    /// Why.
    pub why: Why,
}

/// Why offsets are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Their bytes are wrong.
    Damage,
    /// Their segment is lost.
    Segment,
    /// A cleaner has perhaps removed them.
    Hole,
}

impl Why {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Why::Damage => "damage",
            Why::Segment => "segment",
            Why::Hole => "hole",
        }
    }
}

/// What is missing in `state` from the log start on, by first offset.
pub(super) fn find(
    log: &Log,
    state: &LogState,
    looks: &[SegmentLook],
    damage: &[Stretch],
    compacted: bool,
) -> Vec<Missing> {
    let orphans = Orphans::of(state);
    let in_damage = damage.iter().map(|d| (d.first_offset, d.end_offset, Why::Damage));
    let mut ranges: Vec<_> = in_damage.collect();
    let holes = looks.iter().flat_map(|look| &look.holes);
    ranges.extend(holes.map(|&(first, end)| (first, end, Why::Hole)));
    ranges.extend(before_the_first(log, state, &orphans));
    ranges.extend(between(log, state, looks, &orphans, compacted));
    ranges.extend(after_the_last(log, state, &orphans));
    let checkpointed = log.shared().checkpoints.log_start(log.name()).unwrap_or_default();
    for (first, ..) in &mut ranges {
        *first = checkpointed.max(*first);
    }
    ranges.retain(|(first, end, _)| first < end);
    ranges.sort_unstable_by_key(|&(first, end, _)| (first, end));
    // What joins and is missing for the same reason is one range.
    ranges.dedup_by(|next, this| {
        let same = next.2 == this.2 && next.0 <= this.1;
        if same {
            this.1 = this.1.max(next.1);
        }
        same
    });
    let shown = |(first_offset, end, why): Range| {
        let last_offset = end.previous();
        Missing { first_offset, last_offset, why }
    };
    ranges.into_iter().map(shown).collect()
}

/// First offset, first offset behind, why.
type Range = (Offset, Offset, Why);

/// Files of segments whose `.log` is not there, under any name, or is no file.
struct Orphans {
    /// Base offsets of lone indexes, and of logs that are no files: each was a segment.
    indexes: BTreeSet<Offset>,
    /// The same and the offsets of lone snapshots: a segment began there, or a log ended.
    all: BTreeSet<Offset>,
}

impl Orphans {
    fn of(state: &LogState) -> Orphans {
        let files = state.names.iter().filter_map(|name| SegmentFile::parse(name.to_str()?));
        let (live, others): (Vec<_>, Vec<_>) =
            files.partition(|file| file.state == SegmentFileState::Live);
        let read = state.segments.iter().map(|segment| segment.base_offset);
        let gone = others.iter().filter(|file| file.kind == SegmentFileKind::Log);
        let known: BTreeSet<Offset> = read.chain(gone.map(|file| file.base_offset)).collect();
        let lone = live.iter().filter(|file| {
            !known.contains(&file.base_offset) && !state.shadowed.contains(&file.to_string())
        });
        let (snapshots, indexes): (Vec<_>, Vec<_>) =
            lone.partition(|file| file.kind == SegmentFileKind::Snapshot);
        let bases = |files: Vec<&SegmentFile>| -> BTreeSet<Offset> {
            files.into_iter().map(|file| file.base_offset).collect()
        };
        let indexes = bases(indexes);
        let all = indexes.union(&bases(snapshots)).copied().collect();
        Orphans { indexes, all }
    }
}

fn before_the_first(log: &Log, state: &LogState, orphans: &Orphans) -> Option<Range> {
    let first = orphans.indexes.first().filter(|base| **base < state.disk_start)?;
    let known = log.shared().checkpoints.log_start(log.name()).unwrap_or_default();
    Some((known.max(*first), state.disk_start, Why::Segment))
}

fn between(
    log: &Log,
    state: &LogState,
    looks: &[SegmentLook],
    orphans: &Orphans,
    compacted: bool,
) -> Vec<Range> {
    let neighbours = state.segments.windows(2).zip(looks);
    let mut gaps = Vec::new();
    for (pair, look) in neighbours {
        let (base, limit) = (pair[0].base_offset, pair[1].base_offset);
        // Where the end of a segment is not known, a lost one behind it is known all the same.
        let known_lost = || orphans.indexes.range(base..limit).next().copied().unwrap_or(limit);
        let start = look.end.unwrap_or_else(known_lost);
        if start >= limit {
            continue;
        }
        if !compacted && !lost_its_end(log, state, &pair[0]) {
            gaps.push((start, limit, Why::Segment));
            continue;
        }
        let lost = orphans.all.range(start..limit).next().copied().unwrap_or(limit);
        gaps.push((start, lost, Why::Hole));
        gaps.push((lost, limit, Why::Segment));
    }
    gaps
}

/// Was the end of `segment` taken out, with what may have been records, and kept beside it? Then
/// the gap behind it is that, and no other segment is lost. A kept file is named after the position
/// that its bytes had.
fn lost_its_end(log: &Log, state: &LogState, segment: &Segment) -> bool {
    let file = SegmentFileKind::Log.file_name(segment.base_offset);
    let mut kept: BTreeMap<u64, u64> = BTreeMap::new();
    for name in state.names.iter().filter_map(|name| name.to_str()) {
        if let Some(position) = kept_position(name, &file)
            && let Ok(facts) = log.shared().disk.facts(&log.path().join(name))
        {
            kept.insert(position, facts.bytes);
        }
    }
    let Some((position, bytes)) = kept.pop_last() else { return false };
    let size = segment.log.bytes();
    // What was taken out before it together with it is not there any more.
    let was_last = position == size || position == size + kept.values().sum::<u64>();
    was_last && bytes >= HEADER_BYTES as u64
}

/// The position in the name of a file that was kept of the segment file `log`.
fn kept_position(name: &str, log: &str) -> Option<u64> {
    let numbers = name.strip_prefix(log)?.strip_prefix('.')?.strip_suffix(KEPT)?;
    numbers.split('.').next()?.parse().ok()
}

/// Behind the last segment only the names of what is left, and the high watermark, say how much
/// there was.
fn after_the_last(log: &Log, state: &LogState, orphans: &Orphans) -> Option<Range> {
    let first = orphans.indexes.range(state.log_end..).next()?;
    let last_named = orphans.all.last().copied().unwrap_or_default();
    let seen = log.shared().checkpoints.high_watermark(log.name()).unwrap_or_default();
    Some((state.log_end, last_named.max(seen).max(first.next()), Why::Segment))
}
