//! A data directory of 10,000 partitions: how long until the mount answers, and how much memory and
//! how many descriptors `cat` of every partition takes.

mod daemon;
mod make_log;
mod rounds;
mod table;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use daemon::Daemon;
use rounds::{Outcome, float, interleave, seconds};
use table::{Goal, Table, Unit};

const DESCRIPTORS: u32 = 256;
const RECORDS_EACH: u64 = 20;
/// Files that one `cat` is given.
const FILES_A_CAT: usize = 500;

fn main() -> Outcome<()> {
    if !rounds::asked_for("mount") {
        return Ok(());
    }
    let scratch = tempfile::tempdir()?;
    let source = scratch.path().join("data");
    let partitions = u32::try_from(rounds::scaled(10_000, 100))?;
    let written = make_log::many(&source, partitions, RECORDS_EACH)?;
    let names: Vec<PathBuf> =
        written.iter().filter_map(|log| log.dir.file_name()).map(PathBuf::from).collect();
    let mut table = Table::new(&format!("mount: {partitions} partitions, ulimit -n {DESCRIPTORS}"));
    let cache_dir = scratch.path().join("cache");
    let mount = || Daemon::offsetfs_with_few_files(&source, &cache_dir, DESCRIPTORS);
    let [until_it_answers, until_listed] = interleave(
        rounds::rounds(5),
        [
            Box::new(|| Ok(mount()?.mount_seconds)),
            Box::new(|| {
                let daemon = mount()?;
                Ok(daemon.mount_seconds + seconds(|| list(daemon.path(), names.len()))?)
            }),
        ],
    );
    let one_second = Goal::AtMost(1.0);
    table.bound("until the mount answers", Unit::Seconds, &until_it_answers, None, one_second);
    table.bound("until all are listed", Unit::Seconds, &until_listed, None, Goal::None);
    let expected_bytes = written.iter().map(|log| log.lines_bytes).sum();
    match mount().and_then(|daemon| cat_all(&daemon, &names, expected_bytes)) {
        Err(error) => table.absent("cat of every by-offset/0..", &error.to_string()),
        Ok((total_seconds, peak_bytes)) => {
            let mib = float(peak_bytes) / float(1 << 20);
            let text = format!("{mib:.0} MiB");
            table.figure("most resident memory, cat of all (MiB)", text, mib, Goal::AtMost(100.0));
            let each = total_seconds / float(names.len() as u64) * 1e6;
            table.figure("cat of one by-offset/0..", format!("{each:.0} us"), each, Goal::None);
        }
    }
    table.print();
    Ok(())
}

fn list(mountpoint: &Path, expected: usize) -> Outcome<()> {
    let listed = std::fs::read_dir(mountpoint)?.count();
    // `_other` may be there too.
    if listed >= expected { Ok(()) } else { Err(format!("{listed} of {expected} listed").into()) }
}

/// Seconds of `cat` over every partition, and the most memory that the daemon ever held.
fn cat_all(daemon: &Daemon, names: &[PathBuf], expected_bytes: u64) -> Outcome<(f64, u64)> {
    let mut bytes = 0;
    let total_seconds = seconds(|| {
        for some in names.chunks(FILES_A_CAT) {
            let files = some.iter().map(|name| daemon.path().join(name).join("by-offset/0.."));
            let output = Command::new("cat").args(files).stderr(Stdio::inherit()).output()?;
            if !output.status.success() {
                return Err(format!("cat: {}", output.status).into());
            }
            bytes += output.stdout.len() as u64;
        }
        Ok(())
    })?;
    if bytes != expected_bytes {
        return Err(format!("cat gave {bytes} bytes of {expected_bytes}").into());
    }
    Ok((total_seconds, daemon.peak_resident_bytes()?))
}
