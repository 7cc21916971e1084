//! Opening a log that was left unclean and has lost its indexes, so that all of it is read, checked
//! and indexed: against Kafka's own recovery of the same directory, in one JVM that is warm, and
//! against a loop that only reads and sums.

mod broker;
mod engine;
mod make_log;
mod rounds;
mod table;

use std::cell::Cell;
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use broker::{Kafka, Recoverer};
use make_log::{Spec, Written};
use rounds::{Outcome, interleave, rounds, scaled, seconds};
use table::{Goal, Table, Unit};

/// Kafka's compiler has seen the code often enough after so many recoveries.
const WARM_UP: usize = 2;

fn main() -> Outcome<()> {
    if !rounds::asked_for("recovery") {
        return Ok(());
    }
    let scratch = tempfile::tempdir()?;
    let bytes = scaled(1 << 30, 8 << 20);
    let spec = |topic: &str, bytes: u64, value_bytes: usize, records_per_batch: u64| {
        let records = bytes / (value_bytes as u64 + 10);
        Spec { value_bytes, records_per_batch, ..Spec::new(topic, records) }
    };
    let mut table = Table::new("recovery without indexes, warm");
    // Fewer batches of one record, for which Kafka takes its time.
    for spec in [
        spec("single", bytes / 8, 100, 1),
        spec("small", bytes, 100, 150),
        spec("large", bytes, 10_000, 10),
    ] {
        let dir = scratch.path().join(&spec.topic);
        compare(&dir, &make_log::one(&dir, &spec)?, &mut table)?;
        fs::remove_dir_all(&dir)?;
    }
    table.print();
    Ok(())
}

fn compare(dir: &Path, log: &Written, table: &mut Table) -> Outcome<()> {
    let mut kafka = Kafka::from_maven().and_then(|kafka| kafka.recoverer());
    for _ in 0..WARM_UP {
        leave_unclean(dir, log)?;
        if let Ok(kafka) = &mut kafka {
            recover_with_kafka(kafka, log)?;
        }
    }
    let checked = Cell::new(0);
    let [peer, ours, theirs] = interleave(
        rounds(7),
        [
            Box::new(|| seconds(|| read_and_sum(log).map(|sum| checked.set(sum)))),
            Box::new(|| {
                leave_unclean(dir, log)?;
                seconds(|| engine::recover(&log.dir, log.records))
            }),
            Box::new(|| {
                leave_unclean(dir, log)?;
                recover_with_kafka(kafka.as_mut().map_err(|error| error.to_string())?, log)
            }),
        ],
    );
    let megabytes = log.log_bytes / 1_000_000;
    let average = log.log_bytes / log.batches;
    let what = format!("{megabytes} MB in batches of {average} bytes");
    let to_kafka = format!("{what} / Kafka's recovery");
    table.compare(&to_kafka, Unit::Seconds, &ours, &theirs, Goal::AtLeast(10.0));
    let to_loop = format!("{what} / pread + crc32c");
    // What a header costs is no part of the loop.
    let goal = if log.batches == log.records { Goal::None } else { Goal::AtLeast(0.4) };
    table.compare(&to_loop, Unit::Seconds, &ours, &peer, goal);
    Ok(())
}

fn recover_with_kafka(kafka: &mut Recoverer, log: &Written) -> Outcome<f64> {
    let (seconds, end) = kafka.recover(&log.dir)?;
    if end == log.records { Ok(seconds) } else { Err(format!("Kafka's log ends at {end}").into()) }
}

/// As after a crash at the first moment, with all but the records gone.
fn leave_unclean(dir: &Path, log: &Written) -> Outcome<()> {
    for name in [".kafka_cleanshutdown", "recovery-point-offset-checkpoint"] {
        let _ = fs::remove_file(dir.join(name)); // gone already in later rounds
    }
    for entry in fs::read_dir(&log.dir)? {
        let path = entry?.path();
        if ["index", "timeindex", "snapshot"]
            .iter()
            .any(|kind| path.extension() == Some(kind.as_ref()))
        {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

fn read_and_sum(log: &Written) -> Outcome<u32> {
    let mut piece = vec![0; 256 << 10];
    let mut sum = 0;
    for path in &log.segments {
        let (file, mut at) = (File::open(path)?, 0);
        loop {
            let count = file.read_at(&mut piece, at)?;
            if count == 0 {
                break;
            }
            sum = crc32c::crc32c_append(sum, &piece[..count]);
            at += count as u64;
        }
    }
    Ok(sum)
}
