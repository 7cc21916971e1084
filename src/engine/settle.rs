//! Which files of a partition directory are the log, as a broker would settle it when it loads, but
//! without touching any (contract 6.5; format page, "leftovers" and "finish swaps"). Before a log
//! is written, `recovery` does to the files what [`unsettled`] names.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::engine::disk::{Disk, DiskFile, Kind};
use crate::engine::segment::{File, Segment};
use crate::error::Result;
use crate::format::name::{SegmentFile, SegmentFileKind, SegmentFileState};
use crate::units::Offset;

/// What was found in a partition directory.
#[derive(Clone, Debug, Default)]
pub struct Settled {
    /// The segments, by base offset.
    pub segments: Vec<Segment>,
    /// Names of files that a crash or a deletion left.
    pub leftovers: Vec<String>,
    /// Names of files that others have replaced.
    pub shadowed: Vec<String>,
}

/// The files of one base offset.
#[derive(Debug, Default)]
struct Files {
    log: Option<File>,
    index: Option<File>,
    time_index: Option<File>,
}

/// Sorts the names of `directory`. `next_offset` reads where a replacement ends.
pub fn settle(
    disk: &dyn Disk,
    directory: &Path,
    names: &[OsString],
    next_offset: impl Fn(Segment) -> Result<Offset>,
) -> Result<Settled> {
    let mut settled = Settled::default();
    let mut files: Vec<(SegmentFile, PathBuf)> = Vec::new();
    for name in names.iter().filter_map(|name| name.to_str()) {
        if let Some(file) = SegmentFile::parse(name) {
            files.push((file, directory.join(name)));
        } else if [".deleted", ".cleaned", ".swap"].iter().any(|suffix| name.ends_with(suffix)) {
            settled.leftovers.push(name.to_owned());
        }
    }
    files.sort_unstable_by_key(|(file, _)| (file.base_offset, file.to_string()));
    set_swaps_in_place(disk, &mut files, &mut settled, next_offset)?;
    settled.segments = segments(disk, files)?;
    settled.leftovers.sort_unstable();
    Ok(settled)
}

/// Leaves only files of the log in `files`, in place of those that a finished `.swap` replaces.
fn set_swaps_in_place(
    disk: &dyn Disk,
    files: &mut Vec<(SegmentFile, PathBuf)>,
    settled: &mut Settled,
    next_offset: impl Fn(Segment) -> Result<Offset>,
) -> Result<()> {
    let least_cleaned = least_cleaned(files.iter().map(|(file, _)| file));
    let is_finished = |file: &SegmentFile| is_finished(file, least_cleaned);
    let mut replaced: Option<(Offset, Offset)> = None;
    for (file, path) in files.iter() {
        if file.state != SegmentFileState::Live {
            settled.leftovers.push(file.to_string());
        }
        if is_finished(file)
            && file.kind == SegmentFileKind::Log
            && let Some(log) = look(disk, path)?
        {
            let end = next_offset(Segment::alone(file.base_offset, log))?;
            let (start, old_end) = replaced.unwrap_or((file.base_offset, end));
            replaced = Some((start.min(file.base_offset), old_end.max(end)));
        }
    }
    files.retain(|(file, _)| {
        let live = file.state == SegmentFileState::Live;
        let covered = replaced.is_some_and(|(a, b)| (a..b).contains(&file.base_offset));
        if live && covered {
            settled.shadowed.push(file.to_string());
        }
        (live && !covered) || is_finished(file)
    });
    Ok(())
}

/// The base offset from which on a crash left replacements unfinished.
fn least_cleaned<'a>(files: impl Iterator<Item = &'a SegmentFile>) -> Option<Offset> {
    let cleaned = files.filter(|file| file.state == SegmentFileState::Cleaned);
    cleaned.map(|file| file.base_offset).min()
}

fn is_finished(file: &SegmentFile, least_cleaned: Option<Offset>) -> bool {
    let is_swap = file.state == SegmentFileState::Swap;
    is_swap && least_cleaned.is_none_or(|least| file.base_offset < least)
}

/// What a broker does with these files of a partition before it loads them: the finished `.swap`
/// files to be renamed, logs first, and the indexes without a log.
pub fn unsettled(names: &[OsString]) -> (Vec<SegmentFile>, Vec<SegmentFile>) {
    let files = names.iter().filter_map(|name| SegmentFile::parse(name.to_str()?));
    let files: Vec<SegmentFile> = files.collect();
    let least_cleaned = least_cleaned(files.iter());
    let (mut swaps, others): (Vec<_>, Vec<_>) =
        files.into_iter().partition(|file| is_finished(file, least_cleaned));
    swaps.sort_unstable_by_key(|file| (file.kind != SegmentFileKind::Log, file.base_offset));
    let (live, _): (Vec<_>, Vec<_>) =
        others.into_iter().partition(|file| file.state == SegmentFileState::Live);
    let logs = swaps.iter().chain(&live).filter(|file| file.kind == SegmentFileKind::Log);
    let bases: HashSet<Offset> = logs.map(|file| file.base_offset).collect();
    let is_orphan = |file: &SegmentFile| match file.kind {
        SegmentFileKind::Index | SegmentFileKind::TimeIndex | SegmentFileKind::TxnIndex => {
            !bases.contains(&file.base_offset)
        }
        SegmentFileKind::Log | SegmentFileKind::Snapshot => false,
    };
    let orphans = live.into_iter().filter(is_orphan).collect();
    (swaps, orphans)
}

fn segments(disk: &dyn Disk, files: Vec<(SegmentFile, PathBuf)>) -> Result<Vec<Segment>> {
    let mut by_base: BTreeMap<Offset, Files> = BTreeMap::new();
    for (file, path) in files {
        let entry = by_base.entry(file.base_offset).or_default();
        let place = match file.kind {
            SegmentFileKind::Log => &mut entry.log,
            SegmentFileKind::Index => &mut entry.index,
            SegmentFileKind::TimeIndex => &mut entry.time_index,
            SegmentFileKind::TxnIndex | SegmentFileKind::Snapshot => continue,
        };
        if let Some(found) = look(disk, &path)? {
            *place = Some(found);
        }
    }
    let mut segments: Vec<Segment> = Vec::new();
    for (base_offset, files) in by_base.into_iter().rev() {
        let Some(log) = files.log else { continue };
        let next = segments.last().map(|next| next.base_offset);
        segments.push(Segment {
            limit: next.unwrap_or(Offset::MAX),
            active: next.is_none(),
            index: files.index,
            time_index: files.time_index,
            ..Segment::alone(base_offset, log)
        });
    }
    segments.reverse();
    Ok(segments)
}

/// The file at `path`, if it is a regular one that is still there; links are not followed.
fn look(disk: &dyn Disk, path: &Path) -> Result<Option<File>> {
    match disk.facts(path) {
        Ok(facts) if facts.kind == Kind::File => {
            let file = DiskFile { path: path.to_path_buf(), id: facts.id };
            Ok(Some(File { file, facts }))
        }
        Ok(_) => {
            log::warn!("{}: not a regular file, left out", path.display());
            Ok(None)
        }
        Err(e) if e.is_not_found() => Ok(None),
        Err(e) => Err(e),
    }
}
