//! Which records a listing names: all while they are few, else an even sample that holds the first
//! and the last (contract 2.2).

use std::collections::HashSet;
use std::sync::Arc;

use crate::engine::log::{Found, Log, LogState};
use crate::engine::read::{Reading, Step, Wanted};
use crate::engine::scanner::Interrupted;
use crate::error::Result;
use crate::units::{Offset, Timestamp};

/// More records than this are sampled.
const MOST_NAMES: usize = 1_000;
/// A sample by offsets with fewer names than this is not even enough: offsets have large holes.
const LEAST_NAMES: usize = 500;

/// A record that a listing names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its offset.
    pub offset: Offset,
    /// Its time; `None` when it has none, or cannot be read.
    pub timestamp: Option<Timestamp>,
}

/// The records that a listing of the log names, in offset order.
pub fn sample(
    log: &Arc<Log>,
    state: &LogState,
    interrupted: Option<&Interrupted>,
) -> Result<Vec<Listed>> {
    let (first, complete) = page(log, state, state.log_start, MOST_NAMES + 1, interrupted)?;
    if complete && first.len() <= MOST_NAMES {
        return Ok(first);
    }
    let Some(first) = first.first() else { return Ok(Vec::new()) };
    let last = log.offset_of_last(state, 1, interrupted)?;
    let by_offset = sample_by_offset(log, state, first.offset, last, interrupted)?;
    if by_offset.len() >= LEAST_NAMES {
        return Ok(by_offset);
    }
    sample_by_number(log, state, interrupted)
}

/// Up to `most` records from `from` on, and whether these are all there are.
pub fn page(
    log: &Arc<Log>,
    state: &LogState,
    from: Offset,
    most: usize,
    interrupted: Option<&Interrupted>,
) -> Result<(Vec<Listed>, bool)> {
    let mut listed = Vec::new();
    let complete = each_record(log, state, from, interrupted, |record| {
        listed.push(record);
        listed.len() < most
    })?;
    Ok((listed, complete))
}

/// Calls `take` for every record from `from` on, those in damage included, until it says no;
/// whether it never did. Nobody knows how many records damage held, and a few bytes may stand
/// before a segment of any name: of more than [`MOST_NAMES`] offsets an even sample is taken.
fn each_record(
    log: &Arc<Log>,
    state: &LogState,
    from: Offset,
    interrupted: Option<&Interrupted>,
    mut take: impl FnMut(Listed) -> bool,
) -> Result<bool> {
    let from = from.max(state.log_start);
    let end = log.visible_end(state)?;
    let shown = |offset: Offset| (from..end).contains(&offset);
    let mut reading = Reading::new(log, state, from, Wanted::Data, interrupted.cloned())?;
    loop {
        match reading.step()? {
            Step::End => return Ok(true),
            Step::Damage(stretch) => {
                let Some(first) = stretch.first_lost(from, end) else { continue };
                let last = stretch.end_offset.min(end).previous();
                for offset in evenly(first, last) {
                    if !take(Listed { offset, timestamp: None }) {
                        return Ok(false);
                    }
                }
            }
            Step::Batch(header) if header.base_offset >= end => return Ok(true),
            Step::Batch(_) => {
                let Some((header, payload)) = reading.records() else { continue };
                let mut next = header.base_offset;
                let readable = match reading.cursor() {
                    Some(Ok(mut cursor)) => loop {
                        match cursor.next(header, payload) {
                            Some(Ok(record)) => {
                                let (offset, timestamp) = (record.offset, record.timestamp);
                                next = offset.next();
                                if shown(offset) && !take(Listed { offset, timestamp }) {
                                    return Ok(false);
                                }
                            }
                            Some(Err(_)) => break false,
                            None => break true,
                        }
                    },
                    Some(Err(_)) => false,
                    None => continue,
                };
                let (first, last) = (next.max(from), header.last_offset.min(end.previous()));
                if !readable && first <= last {
                    for offset in evenly(first, last) {
                        if !take(Listed { offset, timestamp: None }) {
                            return Ok(false);
                        }
                    }
                }
            }
        }
    }
}

/// All offsets from `first` to `last`, or [`MOST_NAMES`] of them, evenly spaced, the first and the
/// last included.
fn evenly(first: Offset, last: Offset) -> impl Iterator<Item = Offset> {
    let span = u128::from(last.distance_from(first));
    let steps = span.min(MOST_NAMES as u128 - 1);
    (0..=steps).map(move |i| {
        let step = i64::try_from(span * i / steps.max(1)).unwrap_or(0);
        first.checked_add(step).unwrap_or(last)
    })
}

/// The records at, or next behind, evenly spaced offsets.
fn sample_by_offset(
    log: &Arc<Log>,
    state: &LogState,
    first: Offset,
    last: Offset,
    interrupted: Option<&Interrupted>,
) -> Result<Vec<Listed>> {
    let mut sample: Vec<Listed> = Vec::with_capacity(MOST_NAMES);
    for target in evenly(first, last) {
        if sample.last().is_some_and(|listed| listed.offset >= target) {
            continue;
        }
        match at_or_behind(log, state, target, interrupted)? {
            Some(listed) => sample.push(listed),
            None => break,
        }
    }
    Ok(sample)
}

fn at_or_behind(
    log: &Arc<Log>,
    state: &LogState,
    target: Offset,
    interrupted: Option<&Interrupted>,
) -> Result<Option<Listed>> {
    let found = match log.find(state, target)? {
        Found::Nothing => log.find_from(state, target, interrupted)?,
        found => found,
    };
    Ok(match found {
        Found::Record(found, ..) => found
            .record()
            .map(|record| Listed { offset: record.offset, timestamp: record.timestamp }),
        Found::Damaged(stretch) => {
            let offset = stretch.first_offset.max(target);
            Some(Listed { offset, timestamp: None })
        }
        Found::Nothing => None,
    })
}

/// Evenly numbered records, for logs whose offsets have large holes; reads the log twice.
fn sample_by_number(
    log: &Arc<Log>,
    state: &LogState,
    interrupted: Option<&Interrupted>,
) -> Result<Vec<Listed>> {
    let mut total = 0u64;
    each_record(log, state, state.log_start, interrupted, |_| {
        total += 1;
        true
    })?;
    let wanted: HashSet<u64> = (0..MOST_NAMES as u64)
        .map(|i| i * total.saturating_sub(1) / (MOST_NAMES as u64 - 1))
        .collect();
    let (mut sample, mut number) = (Vec::new(), 0);
    each_record(log, state, state.log_start, interrupted, |record| {
        if wanted.contains(&number) {
            sample.push(record);
        }
        number += 1;
        true
    })?;
    Ok(sample)
}
