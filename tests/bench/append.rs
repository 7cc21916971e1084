//! Appending lines of 100 bytes: through the mount against the null file system that swallows what
//! is written, and against a plain file where both must reach the disk; without a mount against a
//! loop that frames, sums and writes the same records, and against a broker.
//!
//! `--null-fs MOUNTPOINT NAME [FILE]` serves the null file system until it is unmounted; with FILE
//! what it swallows goes there.

mod broker;
mod daemon;
mod engine;
mod make_log;
mod null_fs;
mod rounds;
mod table;

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use broker::{Kafka, run};
use daemon::{Daemon, NULL_FS, offsetfs, round_trip};
use make_log::{Spec, Written};
use null_fs::NullFs;
use rounds::{Outcome, Series, Work, float, interleave, rounds, scaled, seconds};
use table::{Goal, Table, Unit};

const LINE_BYTES: usize = 100;
const FILE: &str = "append";

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(place) = arguments.iter().position(|argument| argument == NULL_FS) {
        let [mountpoint, name, out @ ..] = &arguments[place + 1..] else {
            return Err(format!("usage: {NULL_FS} MOUNTPOINT NAME [FILE]").into());
        };
        let out = out.first().filter(|out| !out.starts_with("--")).map(File::create).transpose()?;
        return Ok(NullFs::sink(name, out).serve(Path::new(mountpoint))?);
    }
    if !rounds::asked_for("append") {
        return Ok(());
    }
    let scratch = tempfile::tempdir()?;
    let lines = scratch.path().join("lines");
    let count = scaled(640_000, 20_000);
    write_lines(&lines, count)?;
    let mib = (count * LINE_BYTES as u64) >> 20;
    let mut table = Table::new(&format!("append: {mib} MiB of 100-byte lines"));
    if let Err(error) = through_the_mount(scratch.path(), &lines, &mut table) {
        table.absent("through the mount", &error.to_string());
    }
    without_a_mount(scratch.path(), &lines, &mut table)?;
    if let Err(error) = as_the_log_grows(scratch.path(), &mut table) {
        table.absent("as the log grows", &error.to_string());
    }
    table.print();
    Ok(())
}

fn write_lines(path: &Path, count: u64) -> Outcome<()> {
    let mut file = std::io::BufWriter::new(File::create(path)?);
    for number in 0..count {
        writeln!(file, "{number:<99}")?;
    }
    Ok(file.flush()?)
}

/// One partition of a few records in the data directory `dir`.
fn small_log(dir: &Path) -> Outcome<Written> {
    Ok(make_log::one(dir, &Spec::new("append", 1000))?)
}

fn append_file(daemon: &Daemon, log: &Written) -> Outcome<PathBuf> {
    Ok(daemon.path().join(log.dir.file_name().ok_or("no name")?).join(FILE))
}

fn through_the_mount(scratch: &Path, lines: &Path, table: &mut Table) -> Outcome<()> {
    let source = scratch.join("mounted");
    let log = small_log(&source)?;
    let daemon = Daemon::offsetfs_writable(&source, &scratch.join("cache"))?;
    let null = Daemon::null(&[OsStr::new(FILE)])?;
    let passed_on = scratch.join("passed-on");
    let passing = Daemon::null(&[OsStr::new(FILE), passed_on.as_os_str()])?;
    let (ours, sink) = (append_file(&daemon, &log)?, null.path().join(FILE));
    let passing = passing.path().join(FILE);
    let programs: [(&str, Vec<&str>, f64); 3] = [
        ("dd bs=1M", vec!["bs=1M", "oflag=append", "conv=notrunc"], 0.45),
        ("dd bs=64k", vec!["bs=64k", "oflag=append", "conv=notrunc"], 0.55),
        ("cat >>", Vec::new(), 0.50),
    ];
    for (what, operands, goal) in &programs {
        let [theirs, with_disk, mine] = interleave(
            rounds(9),
            [&sink, &passing, &ours]
                .map(|to| -> Work<'_> { Box::new(|| copy(lines, to, operands)) }),
        );
        let to_sink = format!("{what} / null sink");
        table.compare(&to_sink, Unit::Seconds, &mine, &theirs, Goal::AtLeast(*goal));
        let to_disk = format!("{what} / sink that writes to the disk");
        table.compare(&to_disk, Unit::Seconds, &mine, &with_disk, Goal::None);
    }
    let (plain, synced) = (scratch.join("plain"), ["bs=1M", "oflag=append", "conv=notrunc,fsync"]);
    let [theirs, mine] = interleave(
        rounds(5),
        [Box::new(|| copy(lines, &plain, &synced)), Box::new(|| copy(lines, &ours, &synced))],
    );
    let what = "dd bs=1M conv=fsync / plain file";
    table.compare(what, Unit::Seconds, &mine, &theirs, Goal::AtLeast(0.70));
    let times = scaled(10_000, 500);
    let [trip, mine, theirs] = interleave(
        rounds(9),
        [
            Box::new(|| round_trip(daemon.path(), u32::try_from(times)?)),
            Box::new(|| write_records(&ours, times)),
            Box::new(|| write_records(&sink, times)),
        ],
    );
    let goal = Goal::AtMost(1.2);
    table.compare("100-byte write / round trip (statfs)", Unit::Micros, &mine, &trip, goal);
    table.compare("100-byte write / null sink", Unit::Micros, &mine, &theirs, Goal::None);
    Ok(())
}

/// Seconds of `dd` with these operands, or of `cat >>` without any.
fn copy(from: &Path, to: &Path, operands: &[&str]) -> Outcome<f64> {
    let mut command;
    if operands.is_empty() {
        command = Command::new("sh");
        command.args(["-c", "cat \"$1\" >> \"$2\"", "sh"]).arg(from).arg(to);
    } else {
        let operand = |name: &str, path: &Path| format!("{name}={}", path.display());
        command = Command::new("dd");
        command.args([operand("if", from), operand("of", to), "status=none".to_owned()]);
        command.args(operands);
    }
    seconds(|| run(&mut command, "dd or cat"))
}

/// Seconds of one write of one line.
fn write_records(to: &Path, times: u64) -> Outcome<f64> {
    let mut file = OpenOptions::new().append(true).open(to)?;
    let line = [[b'x'; LINE_BYTES - 1].as_slice(), b"\n"].concat();
    let total = seconds(|| (0..times).try_for_each(|_| Ok(file.write_all(&line)?)))?;
    Ok(total / float(times))
}

fn without_a_mount(scratch: &Path, lines: &Path, table: &mut Table) -> Outcome<()> {
    let log = small_log(&scratch.join("unmounted"))?;
    let in_process = small_log(&scratch.join("in-process"))?;
    let framed = scratch.join("framed");
    let kafka = Kafka::from_maven().map_err(|error| error.to_string());
    let broker = kafka.as_ref().map_err(ToString::to_string).and_then(|kafka| {
        let broker = kafka.broker_with(&scratch.join("broker"), &log);
        broker.map_err(|error| error.to_string())
    });
    let append = |dir: &Path| {
        let mut command = Command::new(offsetfs());
        command.arg("append").arg(dir).arg(lines);
        seconds(|| run(&mut command, "offsetfs append"))
    };
    let [looped, ours, unsynced_loop, unsynced] = interleave(
        rounds(7),
        [
            Box::new(|| seconds(|| frame(lines, &framed, true))),
            Box::new(|| append(&log.dir)),
            Box::new(|| seconds(|| frame(lines, &framed, false))),
            Box::new(|| engine::append_lines(&in_process.dir, lines)),
        ],
    );
    let what = "offsetfs append / loop that frames, sums, writes, syncs";
    table.compare(what, Unit::Seconds, &ours, &looped, Goal::AtLeast(0.5));
    let what = "engine, not synced / the same loop, not synced";
    table.compare(what, Unit::Seconds, &unsynced, &unsynced_loop, Goal::None);
    let [kcat] = interleave(
        3,
        [Box::new(|| {
            let broker = broker.as_ref().map_err(String::as_str)?;
            let mut kcat = Command::new("kcat");
            kcat.args(["-P", "-b", &broker.address, "-t", &log.topic, "-p", "0", "-X", "acks=1"]);
            kcat.arg("-l").arg(lines);
            seconds(|| run(&mut kcat, "kcat -P"))
        })],
    );
    let what = "offsetfs append / kcat -P acks=1";
    let first: Result<Series, String> = ours;
    table.compare(what, Unit::Seconds, &first, &kcat, Goal::AtLeast(15.0));
    if let Ok(broker) = broker {
        broker.stop()?;
    }
    Ok(())
}

/// What an append cannot do without: the lines of `from` as batches of a MiB in `to`.
fn frame(from: &Path, to: &Path, synced: bool) -> Outcome<()> {
    let lines = File::open(from)?;
    // At the end of what was written before: a log takes new pages each time, too.
    let out = OpenOptions::new().append(true).create(true).open(to)?;
    let mut piece = vec![0; (1 << 20) / LINE_BYTES * LINE_BYTES];
    let (mut read, mut written) = (0, out.metadata()?.len());
    let mut batch = engine::Batch::default();
    loop {
        let count = lines.read_at(&mut piece, read)?;
        if count == 0 {
            break;
        }
        read += count as u64;
        let bytes = batch.of_lines(&piece[..count])?;
        out.write_all_at(bytes, written)?;
        written += bytes.len() as u64;
    }
    if synced {
        out.sync_data()?;
    }
    Ok(())
}

/// One-line writes into logs of different lengths, in the same rounds.
fn as_the_log_grows(scratch: &Path, table: &mut Table) -> Outcome<()> {
    let source = scratch.join("growing");
    let lengths = [1000, scaled(1_000_000, 2000), scaled(10_000_000, 4000)];
    let mut logs = Vec::new();
    for (number, records) in (0..).zip(lengths) {
        let spec = Spec { partition: number, ..Spec::new("growing", records) };
        logs.push(spec.write(&source)?);
    }
    make_log::finish(&source, &logs)?;
    let daemon = Daemon::offsetfs_writable(&source, &scratch.join("cache-growing"))?;
    let times = scaled(5000, 200);
    let files = logs.iter().map(|log| append_file(&daemon, log)).collect::<Outcome<Vec<_>>>()?;
    for file in &files {
        write_records(file, 10)?;
    }
    let side = |number: usize| -> Work<'_> {
        let file = &files[number];
        Box::new(move || write_records(file, times))
    };
    let [thousand, million, ten] = interleave(rounds(9), [side(0), side(1), side(2)]);
    for (records, figures) in lengths[1..].iter().zip([&million, &ten]) {
        let what = format!("100-byte write, log of {records} / log of 1000");
        table.compare(&what, Unit::Micros, figures, &thousand, Goal::AtMost(1.1));
    }
    Ok(())
}
