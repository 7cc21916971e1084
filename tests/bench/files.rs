//! What one record costs as a file: open, read and close of a `by-offset/N` that was never looked
//! at, in round trips to the daemon (a statfs on the same mount in the same round).

mod daemon;
mod make_log;
mod rounds;
mod table;

use std::cell::Cell;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use daemon::Daemon;
use make_log::Spec;
use rounds::{Outcome, float, interleave, seconds};
use table::{Goal, Table, Unit};

const ROUNDS: usize = 9;

fn main() -> Outcome<()> {
    if !rounds::asked_for("files") {
        return Ok(());
    }
    let scratch = tempfile::tempdir()?;
    let files = rounds::scaled(10_000, 200);
    let records = files * (ROUNDS as u64 + 1);
    let written = make_log::one(&scratch.path().join("data"), &Spec::new("files", records))?;
    let native = scratch.path().join("native");
    std::fs::write(&native, [b'x'; 100])?;
    let mut table = Table::new("files: a new by-offset/N, 100 bytes: open, read, close");
    let what = "by-offset/N / round trip (statfs)";
    match Daemon::offsetfs(&scratch.path().join("data"), &scratch.path().join("cache")) {
        Err(error) => table.absent(what, &error.to_string()),
        Ok(daemon) => {
            let by_offset = daemon.path().join(written.dir.file_name().ok_or("no name")?);
            measure(&daemon, &by_offset.join("by-offset"), &native, files, &mut table)?;
        }
    }
    table.print();
    Ok(())
}

fn measure(
    daemon: &Daemon,
    by_offset: &Path,
    native: &Path,
    files: u64,
    table: &mut Table,
) -> Outcome<()> {
    let next = Cell::new(0);
    let read_new = || {
        let first = next.replace(next.get() + files);
        let total = seconds(|| {
            (first..next.get()).try_for_each(|i| read_one(&by_offset.join(i.to_string())))
        })?;
        Ok(total / float(files))
    };
    let read_native =
        || Ok(seconds(|| (0..files).try_for_each(|_| read_one(native)))? / float(files));
    read_new()?;
    let times = u32::try_from(files)?;
    let [round_trip, ours, on_disk] = interleave(
        rounds::rounds(ROUNDS),
        [
            Box::new(|| daemon::round_trip(daemon.path(), times)),
            Box::new(read_new),
            Box::new(read_native),
        ],
    );
    let what = "by-offset/N / round trip (statfs)";
    table.compare(what, Unit::Micros, &ours, &round_trip, Goal::AtMost(3.2));
    table.compare(
        "by-offset/N / a file beside it (speed)",
        Unit::Micros,
        &ours,
        &on_disk,
        Goal::None,
    );
    Ok(())
}

fn read_one(path: &Path) -> Outcome<()> {
    let mut value = [0; 4096];
    let count = File::open(path)?.read(&mut value)?;
    if count == 100 { Ok(()) } else { Err(format!("{}: {count} bytes", path.display()).into()) }
}
