//! `cat` and `grep` over a whole partition as one file, `by-offset/0..`, against the null file
//! system with the same flags and the first MiB of that file over and over, and against a copy of
//! the file on the disk.
//!
//! `--null-fs MOUNTPOINT NAME SIZE PIECE` serves the null file system until it is unmounted: a file
//! of SIZE bytes that repeats the content of the file PIECE.

mod daemon;
mod make_log;
mod null_fs;
mod rounds;
mod table;

use std::ffi::OsStr;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use daemon::{Daemon, NULL_FS, forget_pages, seconds_of, seconds_of_cat};
use make_log::Spec;
use null_fs::NullFs;
use rounds::{Outcome, Series, Work, interleave};
use table::{Goal, Table, Unit};

const FILE: &str = "0..";

/// A program that reads a whole file; its seconds.
type Read = fn(&Path) -> Outcome<f64>;

/// The same bytes on three file systems.
struct Files {
    ours: PathBuf,
    null: PathBuf,
    native: PathBuf,
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(place) = arguments.iter().position(|argument| argument == NULL_FS) {
        return serve_null(&arguments[place + 1..]);
    }
    if !rounds::asked_for("stream") {
        return Ok(());
    }
    let scratch = tempfile::tempdir()?;
    let source = scratch.path().join("data");
    let log = make_log::one(&source, &Spec::new("stream", rounds::scaled(5_000_000, 20_000)))?;
    let mib = log.lines_bytes >> 20;
    let title = format!("stream: by-offset/0.., {mib} MiB of 100-byte values, warm source");
    let mut table = Table::new(&title);
    let partition = log.dir.file_name().ok_or("no name")?;
    match Daemon::offsetfs(&source, &scratch.path().join("cache")) {
        Err(error) => table.absent("cat and grep of by-offset/0..", &error.to_string()),
        Ok(daemon) => {
            let ours = daemon.path().join(partition).join("by-offset").join(FILE);
            let null = null_of(&ours, &scratch.path().join("piece"))?;
            let native = scratch.path().join("native");
            fs::copy(&ours, &native)?;
            let files = Files { ours, null: null.path().join(FILE), native };
            if fs::metadata(&files.native)?.len() != log.lines_bytes {
                return Err("by-offset/0.. has not the size of what was written".into());
            }
            extents_known(&files, &mut table);
            drop(daemon);
            cold_extents(&source, partition, &files, &mut table);
        }
    }
    table.print();
    Ok(())
}

/// A null file system whose file repeats whole lines of `file`, up to a MiB of them, which are kept
/// in `piece`.
fn null_of(file: &Path, piece: &Path) -> Outcome<Daemon> {
    let mut lines = Vec::new();
    fs::File::open(file)?.take(1 << 20).read_to_end(&mut lines)?;
    let whole = lines.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
    fs::write(piece, &lines[..whole])?;
    let size = fs::metadata(file)?.len().to_string();
    Daemon::null(&[OsStr::new(FILE), OsStr::new(&size), piece.as_os_str()])
}

fn serve_null(arguments: &[String]) -> Outcome<()> {
    let [mountpoint, name, size, piece, ..] = arguments else {
        return Err(format!("usage: {NULL_FS} MOUNTPOINT NAME SIZE PIECE").into());
    };
    let null = NullFs::repeating(name, size.parse()?, &fs::read(piece)?);
    Ok(null.serve(Path::new(mountpoint))?)
}

/// First and second reads of a file whose size has been asked for before.
fn extents_known(files: &Files, table: &mut Table) {
    let (cat, grep): (Read, Read) = (seconds_of_cat, seconds_of_grep);
    three(files, table, "cat, first read", Goal::AtLeast(0.7), true, cat);
    three(files, table, "cat, read again", Goal::AtLeast(0.95), false, cat);
    three(files, table, "grep -c, first read", Goal::None, true, grep);
    three(files, table, "grep -c, read again", Goal::AtLeast(0.95), false, grep);
}

/// Ours against the null file system and, for information, against the disk, which is always warm.
/// Each side reads the file once before, so that "again" is true from the first round.
fn three(files: &Files, table: &mut Table, what: &str, goal: Goal, first: bool, read: Read) {
    let side = |file: &'_ Path, forget: bool| -> Work<'_> {
        let file = file.to_owned();
        Box::new(move || {
            if forget {
                forget_pages(&file)?;
            }
            read(&file)
        })
    };
    for file in [&files.ours, &files.null] {
        // A failure shows in the rounds.
        let _ = seconds_of_cat(file);
    }
    let [null, ours, native] = interleave(
        rounds::rounds(7),
        [side(&files.null, first), side(&files.ours, first), side(&files.native, false)],
    );
    show(table, what, goal, &ours, &null, &native);
}

/// A mount without any cache: the first `cat` also pays for the pass that finds the size.
fn cold_extents(source: &Path, partition: &OsStr, files: &Files, table: &mut Table) {
    let ours = || {
        let cache = tempfile::tempdir()?;
        let daemon = Daemon::offsetfs(source, cache.path())?;
        seconds_of_cat(&daemon.path().join(partition).join("by-offset").join(FILE))
    };
    let null = || {
        forget_pages(&files.null)?;
        seconds_of_cat(&files.null)
    };
    let native = || seconds_of_cat(&files.native);
    let [null, ours, native] =
        interleave(rounds::rounds(7), [Box::new(null), Box::new(ours), Box::new(native)]);
    show(table, "cat, first read, cold extents", Goal::AtLeast(0.5), &ours, &null, &native);
}

fn show(
    table: &mut Table,
    what: &str,
    goal: Goal,
    ours: &Result<Series, String>,
    null: &Result<Series, String>,
    native: &Result<Series, String>,
) {
    table.compare(&format!("{what} / null"), Unit::Seconds, ours, null, goal);
    table.compare(&format!("{what} / native, warm"), Unit::Seconds, ours, native, Goal::None);
}

fn seconds_of_grep(file: &Path) -> Outcome<f64> {
    seconds_of("grep", &[OsStr::new("-c"), OsStr::new("no such text"), file.as_os_str()])
}
