//! The whole partition as text, in one run: `offsetfs cat`, Kafka's own dump tool on the same
//! files, and kcat from a local broker that has taken the same files over. Each writes to a file.
//!
//! Needs a JVM, mvn (for the jars, once) and kcat; what is missing is said in its row.

mod broker;
mod daemon;
mod make_log;
mod rounds;
mod table;

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use broker::{Broker, Kafka, run};
use make_log::{Spec, Written};
use rounds::{Outcome, interleave, seconds};
use table::{Goal, Table, Unit};

/// The dump tool takes minutes; three times are enough for a ratio of a hundred.
const ROUNDS: usize = 3;

fn main() -> Outcome<()> {
    if !rounds::asked_for("peers") {
        return Ok(());
    }
    let scratch = tempfile::tempdir()?;
    let records = rounds::scaled(5_000_000, 20_000);
    let log = make_log::one(&scratch.path().join("data"), &Spec::new("peers", records))?;
    let title = format!("peers: {} MB partition to a file, warm source", log.log_bytes / 1_000_000);
    let mut table = Table::new(&title);
    let kafka = Kafka::from_maven().map_err(|error| error.to_string());
    let broker = kafka.as_ref().map_err(ToString::to_string).and_then(|kafka| {
        let dir = scratch.path().join("broker");
        kafka.broker_with(&dir, &log).map_err(|error| error.to_string())
    });
    let out = scratch.path().join("out");
    let [ours, kcat, dump] = interleave(
        ROUNDS,
        [
            Box::new(|| offsetfs_cat(&log, &out)),
            Box::new(|| kcat(broker.as_ref().map_err(String::as_str)?, &log, &out)),
            Box::new(|| dump(kafka.as_ref().map_err(String::as_str)?, &log, &out)),
        ],
    );
    table.compare(
        "offsetfs cat / Kafka's dump tool",
        Unit::Seconds,
        &ours,
        &dump,
        Goal::AtLeast(100.0),
    );
    table.compare(
        "offsetfs cat / kcat from a broker",
        Unit::Seconds,
        &ours,
        &kcat,
        Goal::AtLeast(10.0),
    );
    table.print();
    if let Ok(broker) = broker {
        broker.stop()?;
    }
    Ok(())
}

fn offsetfs_cat(log: &Written, out: &Path) -> Outcome<f64> {
    let mut cat = Command::new(daemon::offsetfs());
    let time = seconds_into(cat.arg("cat").arg(&log.dir), "offsetfs cat", out)?;
    check_size(out, log)?;
    Ok(time)
}

fn kcat(broker: &Broker, log: &Written, out: &Path) -> Outcome<f64> {
    let mut kcat = Command::new("kcat");
    kcat.args([
        "-C",
        "-b",
        &broker.address,
        "-t",
        &log.topic,
        "-p",
        "0",
        "-o",
        "beginning",
        "-e",
        "-q",
    ]);
    let time = seconds_into(&mut kcat, "kcat", out)?;
    check_size(out, log)?;
    Ok(time)
}

/// Its output has a line a record with the value in it, so it is longer than the values.
fn dump(kafka: &Kafka, log: &Written, out: &Path) -> Outcome<f64> {
    let time = seconds_into(&mut kafka.dump(log), "DumpLogSegments", out)?;
    let bytes = fs::metadata(out)?.len();
    if bytes > log.lines_bytes { Ok(time) } else { Err(format!("dump wrote {bytes} bytes").into()) }
}

fn seconds_into(command: &mut Command, name: &str, out: &Path) -> Outcome<f64> {
    command.stdout(File::create(out)?);
    seconds(|| run(command, name))
}

fn check_size(out: &Path, log: &Written) -> Outcome<()> {
    let bytes = fs::metadata(out)?.len();
    if bytes == log.lines_bytes {
        return Ok(());
    }
    Err(format!("{bytes} bytes in place of {}", log.lines_bytes).into())
}
