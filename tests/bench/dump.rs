//! Every record of a segment as text, in one run: `offsetfs dump`, and Kafka's own dump tool on the
//! same file with the same options, without the time that a JVM takes to start. What the two print
//! must be the same.
//!
//! Needs a JDK, and mvn for the jars, once; what is missing is said in the row.

mod broker;
mod daemon;
mod make_log;
mod rounds;
mod table;

use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::Command;

use broker::{Kafka, run};
use make_log::{Spec, Written};
use rounds::{Outcome, interleave, seconds};
use table::{Goal, Table, Unit};

/// The dump tool takes a quarter of a minute, twice a round.
const ROUNDS: usize = 3;

fn main() -> Outcome<()> {
    if !rounds::asked_for("dump") {
        return Ok(());
    }
    let scratch = tempfile::tempdir()?;
    let records = rounds::scaled(2_350_000, 20_000);
    let log = make_log::one(&scratch.path().join("data"), &Spec::new("dumped", records))?;
    let title = format!("dump: a segment of {} MB to a file, warm", log.log_bytes / 1_000_000);
    let mut table = Table::new(&title);
    let kafka = Kafka::from_maven().map_err(|error| error.to_string());
    let (ours, theirs) = (scratch.path().join("ours"), scratch.path().join("theirs"));
    fs::create_dir(&theirs)?;
    let [dump, tool] = interleave(
        ROUNDS,
        [
            Box::new(|| offsetfs_dump(&log, &ours)),
            Box::new(|| {
                let kafka = kafka.as_ref().map_err(String::as_str)?;
                let (time, text) = kafka.second_dump(&log, &theirs)?;
                check_same(&ours, &text)?;
                Ok(time)
            }),
        ],
    );
    table.compare(
        "offsetfs dump / Kafka's dump tool",
        Unit::Seconds,
        &dump,
        &tool,
        Goal::AtLeast(40.0),
    );
    table.print();
    Ok(())
}

fn offsetfs_dump(log: &Written, out: &Path) -> Outcome<f64> {
    let files: Vec<String> = log.segments.iter().map(|path| path.display().to_string()).collect();
    let mut dump = Command::new(daemon::offsetfs());
    dump.args(["dump", "--deep-iteration", "--print-data-log", "--files"]).arg(files.join(","));
    dump.stdout(File::create(out)?);
    seconds(|| run(&mut dump, "offsetfs dump"))
}

fn check_same(ours: &PathBuf, theirs: &PathBuf) -> Outcome<()> {
    let (mut ours, mut theirs) =
        (BufReader::new(File::open(ours)?), BufReader::new(File::open(theirs)?));
    let (mut left, mut right) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        let count = ours.read(&mut left)?;
        if count == 0 {
            let more = theirs.read(&mut right)?;
            return if more == 0 { Ok(()) } else { Err("the dump tool prints more".into()) };
        }
        theirs.read_exact(&mut right[..count])?;
        if left[..count] != right[..count] {
            return Err("the dump tool prints something else".into());
        }
    }
}
