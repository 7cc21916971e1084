//! What lies beside the segments, compared with what the batches say: transaction indexes, producer
//! snapshots, leader epochs and the checkpoints of the data directory.

use crate::engine::disk::read_small;
use crate::engine::facts::IndexState;
use crate::engine::log::{Log, LogState};
use crate::engine::segment::Segment;
use crate::format::checkpoint::{
    EpochStart, HIGH_WATERMARK, LEADER_EPOCHS, LOG_START, RECOVERY_POINT, parse_leader_epochs,
};
use crate::format::index::{AbortedTransaction, parse_txn_index};
use crate::format::name::SegmentFileKind;
use crate::format::snapshot::parse_snapshot;
use crate::units::Offset;

/// No honest file of these kinds is larger.
const MOST_BYTES: u64 = 1 << 28;

/// The state of the transaction index of `segment`, whose batches demand the entries `expected`;
/// `None` when it is sound. Only where all records are there (`complete`) an entry too many is one.
pub fn txn_index(
    log: &Log,
    state: &LogState,
    segment: &Segment,
    expected: &[AbortedTransaction],
    complete: bool,
) -> Option<IndexState> {
    let file = SegmentFileKind::TxnIndex.file_name(segment.base_offset);
    let wrong = |state: String| Some(IndexState { file: file.clone(), state });
    let entries = match read_small(&*log.shared().disk, &log.path().join(&file), MOST_BYTES) {
        Ok(bytes) => match parse_txn_index(&bytes) {
            Ok(entries) => entries,
            Err(e) => return wrong(e.to_string()),
        },
        Err(e) if e.is_not_found() && expected.is_empty() => return None,
        Err(e) if e.is_not_found() => {
            return wrong(format!("missing: {} aborted transactions", expected.len()));
        }
        Err(e) => return wrong(e.to_string()),
    };
    // A cleaner may have taken the first record of a transaction.
    let same = |a: &AbortedTransaction, b: &AbortedTransaction| {
        a.producer_id == b.producer_id && a.last_offset == b.last_offset
    };
    if let Some(lacking) = expected.iter().find(|it| !entries.iter().any(|known| same(it, known))) {
        return wrong(format!(
            "lacks the transaction of producer {} aborted at offset {}",
            lacking.producer_id, lacking.last_offset
        ));
    }
    let surplus = entries.iter().find(|entry| {
        complete
            && entry.first_offset >= state.disk_start
            && !expected.iter().any(|known| same(entry, known))
    });
    surplus.and_then(|entry| {
        wrong(format!(
            "names a transaction of producer {} aborted at offset {}, which the log does not have",
            entry.producer_id, entry.last_offset
        ))
    })
}

/// Producer snapshots that cannot be read.
pub fn snapshots(log: &Log, state: &LogState) -> Vec<IndexState> {
    let broken = state.live_files(SegmentFileKind::Snapshot).filter_map(|file| {
        let name = file.to_string();
        let bytes = read_small(&*log.shared().disk, &log.path().join(&name), MOST_BYTES);
        let reason = match bytes {
            Ok(bytes) => parse_snapshot(&bytes).err()?.to_string(),
            Err(e) if e.is_not_found() => return None,
            Err(e) => e.to_string(),
        };
        Some(IndexState { file: name, state: reason })
    });
    broken.collect()
}

/// Where `leader-epoch-checkpoint` does not say what the batches say; `epochs` are theirs, each
/// where it begins.
pub fn leader_epochs(log: &Log, state: &LogState, epochs: &[EpochStart]) -> Option<IndexState> {
    let wrong = |state: String| Some(IndexState { file: LEADER_EPOCHS.to_owned(), state });
    let known = match read_small(&*log.shared().disk, &log.path().join(LEADER_EPOCHS), MOST_BYTES) {
        Ok(bytes) => match parse_leader_epochs(&bytes) {
            Ok(known) => known,
            Err(e) => return wrong(e.to_string()),
        },
        Err(e) if e.is_not_found() && epochs.is_empty() => return None,
        Err(e) if e.is_not_found() => return wrong("missing".to_owned()),
        Err(e) => return wrong(e.to_string()),
    };
    if let Some(beyond) = known.iter().find(|entry| entry.start > state.log_end) {
        let EpochStart { epoch, start } = beyond;
        return wrong(format!("epoch {epoch} begins at offset {start}, beyond the log end"));
    }
    let shown = epochs.iter().filter(|begun| begun.start >= state.log_start);
    let differs = shown.filter_map(|begun| {
        let at = known.iter().rev().find(|entry| entry.start <= begun.start);
        (at.map(|entry| entry.epoch) != Some(begun.epoch)).then_some((begun, at))
    });
    let (begun, at) = differs.into_iter().next()?;
    let EpochStart { epoch, start } = begun;
    wrong(match at {
        Some(at) => format!("has epoch {} at offset {start}, the batch there {epoch}", at.epoch),
        None => format!("has no epoch at offset {start}, the batch there {epoch}"),
    })
}

/// Checkpoints of the data directory that name offsets beyond the end of the log.
pub fn checkpoints(log: &Log, state: &LogState) -> Vec<IndexState> {
    let checkpoints = &log.shared().checkpoints;
    let noted: [(&str, Option<Offset>); 3] = [
        (RECOVERY_POINT, checkpoints.recovery_point(log.name())),
        (LOG_START, checkpoints.log_start(log.name())),
        (HIGH_WATERMARK, checkpoints.high_watermark(log.name())),
    ];
    let beyond = noted.into_iter().filter_map(|(file, offset)| {
        let offset = offset.filter(|offset| *offset > state.log_end)?;
        let end = state.log_end;
        let state = format!("names offset {offset}, beyond the log end {end}");
        Some(IndexState { file: file.to_owned(), state })
    });
    beyond.collect()
}
