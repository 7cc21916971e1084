//! What is to be done so that a broker loads a partition without a complaint and no readable record
//! is lost (contract 6.6): a plan made from a check, and its steps.

use std::path::PathBuf;
use std::sync::Arc;

use crate::engine::damage::Stretch;
use crate::engine::facts::{Facts, file_name};
use crate::engine::log::{Log, TornTail};
use crate::engine::mend::{ByteRange, Mender};
use crate::error::{Error, Result};
use crate::format::checkpoint;
use crate::format::name::{SegmentFile, SegmentFileKind};
use crate::inspect::check::Checked;
use crate::units::{Offset, Position};

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Take bytes out of a segment and keep them in a file beside it.
    SetAside {
        /// The segment file.
        segment: String,
        /// Where they begin.
        position: Position,
        /// How many they are.
        bytes: u64,
        /// First and last offset that they held, if any.
        offsets: Option<(Offset, Offset)>,
        /// What is wrong with them.
        reason: String,
    },
    /// Make the indexes of the segment that begins here anew.
    Indexes(Offset, String),
    /// Make the leader epochs anew.
    LeaderEpochs(String),
    /// Rename a producer snapshot that cannot be read; a broker makes a new one.
    Snapshot(String, String),
    /// Take checkpoints back to the log end.
    Checkpoints(String),
}

/// What to do about what was found. Fails where more memory would have to be allowed to judge.
pub fn plan(checked: &Checked) -> Result<Vec<Step>> {
    let facts = &checked.facts;
    if let Some(unjudged) = facts.damage.iter().find(|stretch| stretch.is_beyond_bound()) {
        let reason = format!("{} (--max-batch-bytes allows more)", unjudged.reason);
        return Err(Error::Damage {
            path: unjudged.path.clone(),
            position: unjudged.start,
            reason,
        });
    }
    // A batch with the right checksum, of which some records can be read, stays as it is: a broker
    // takes it, and nobody could give these records back.
    let is_intact = |stretch: &&Stretch| {
        checked.intact.iter().any(|(path, at)| *path == stretch.path && *at == stretch.start)
    };
    let bad = facts.damage.iter().filter(|stretch| !is_intact(stretch));
    let mut steps: Vec<Step> = bad.map(of_damage).collect();
    let tails = facts.torn_tail.iter().chain(&checked.torn_segments);
    steps.extend(tails.map(of_tail));
    steps.extend(index_steps(facts, &steps));
    steps.extend(snapshot_steps(facts));
    for it in &checked.checkpoints {
        if it.file == checkpoint::LEADER_EPOCHS {
            if !facts.oddities.is_empty() {
                // Batches that contradict each other cannot say what the epochs were.
                continue;
            }
            steps.push(Step::LeaderEpochs(it.state.clone()));
        } else if it.file != checkpoint::LOG_START {
            // A log start beyond the end was somebody's will: the records below it are deleted.
            steps.push(Step::Checkpoints(format!("{} {}", it.file, it.state)));
        }
    }
    Ok(steps)
}

fn of_damage(stretch: &Stretch) -> Step {
    let lost = stretch.end_offset > stretch.first_offset;
    Step::SetAside {
        segment: file_name(&stretch.path),
        position: stretch.start,
        bytes: stretch.end.get() - stretch.start.get(),
        offsets: lost.then(|| (stretch.first_offset, stretch.end_offset.previous())),
        reason: stretch.reason.clone(),
    }
}

fn of_tail(tail: &TornTail) -> Step {
    Step::SetAside {
        segment: file_name(&tail.path),
        position: tail.position,
        bytes: tail.bytes,
        offsets: None,
        reason: "torn tail".to_owned(),
    }
}

/// Each segment with a wrong index, or whose bytes change.
fn index_steps(facts: &Facts, set_aside: &[Step]) -> Vec<Step> {
    let base_of = |name: &str| SegmentFile::parse(name).map(|file| (file.base_offset, file.kind));
    let mut why: Vec<(Offset, String)> = Vec::new();
    for step in set_aside {
        if let Step::SetAside { segment, .. } = step
            && let Some((base, _)) = base_of(segment)
        {
            why.push((base, "the segment changes".to_owned()));
        }
    }
    for it in &facts.indexes {
        if let Some((base, kind)) = base_of(&it.file)
            && kind != SegmentFileKind::Snapshot
        {
            why.push((base, format!("{}: {}", it.file, it.state)));
        }
    }
    why.sort_by_key(|(base, _)| *base);
    why.dedup_by(|next, this| {
        let same = next.0 == this.0;
        if same && next.1 != this.1 {
            this.1 = format!("{}; {}", this.1, next.1);
        }
        same
    });
    why.into_iter().map(|(base, reason)| Step::Indexes(base, reason)).collect()
}

fn snapshot_steps(facts: &Facts) -> impl Iterator<Item = Step> {
    let broken = facts.indexes.iter().filter(|it| {
        SegmentFile::parse(&it.file).is_some_and(|file| file.kind == SegmentFileKind::Snapshot)
    });
    broken.map(|it| Step::Snapshot(it.file.clone(), it.state.clone()))
}

/// Does what was planned for `log`, whose data directory is locked; the files that were put beside.
/// After an error the next try goes on where this one stopped.
pub fn repair(log: &Arc<Log>, steps: &[Step]) -> Result<Vec<PathBuf>> {
    if steps.is_empty() {
        return Ok(Vec::new());
    }
    let mender = Mender::new(log)?;
    let mut kept = Vec::new();
    let done = carry_out(&mender, log, steps, &mut kept);
    done.inspect_err(|_| mender.spoil())?;
    Ok(kept)
}

fn carry_out(
    mender: &Mender<'_>,
    log: &Arc<Log>,
    steps: &[Step],
    kept: &mut Vec<PathBuf>,
) -> Result<()> {
    for segment in &mender.state()?.segments {
        let name = file_name(segment.log.path());
        let ranges = ranges_in(steps, &name);
        if !ranges.is_empty() {
            kept.extend(mender.take_out(&segment.log.file, &ranges)?);
        }
    }
    for step in steps {
        if let Step::Snapshot(file, _) = step {
            kept.push(mender.put_away(&log.path().join(file))?);
        }
    }
    // The files are others now.
    let state = mender.state()?;
    for step in steps {
        match step {
            Step::Indexes(base, _) => {
                let segment = state.segments.iter().find(|it| it.base_offset == *base);
                segment.map_or(Ok(()), |it| mender.rebuild_indexes(&state, it))?;
            }
            Step::LeaderEpochs(_) => kept.extend(mender.rebuild_epochs(&state)?),
            Step::Checkpoints(_) => mender.lower_checkpoints(&state)?,
            Step::SetAside { .. } | Step::Snapshot(..) => {}
        }
    }
    Ok(())
}

/// What goes of a segment file, ascending.
fn ranges_in(steps: &[Step], file: &str) -> Vec<ByteRange> {
    let mut ranges: Vec<ByteRange> = steps
        .iter()
        .filter_map(|step| match step {
            Step::SetAside { segment, position, bytes, .. } if segment == file => {
                Some((*position, *bytes))
            }
            _ => None,
        })
        .collect();
    ranges.sort_unstable();
    ranges
}
