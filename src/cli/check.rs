//! `offsetfs check`: reads everything once and says what is sound, what is wrong and what is lost.

use std::ffi::OsString;
use std::fmt::{self, Write as _};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use crate::cli::exit_code;
use crate::cli::mount::open_files;
use crate::cli::output;
use crate::engine::damage::Stretch;
use crate::engine::data_dir::DataDir;
use crate::engine::facts::{IndexState, Shadowed, file_name};
use crate::engine::log::TornTail;
use crate::engine::missing::{Missing, Why};
use crate::engine::options::ReadOptions;
use crate::engine::source::{self, Source};
use crate::error::Result;
use crate::fs::change::now;
use crate::inspect::check::{Checked, Progress, check, cores};
use crate::units::Offset;
use crate::view::report;

/// Lines of one kind that are printed for a partition; `--json` has all.
const MOST_LINES: usize = 20;
/// How often the progress is shown.
const TICK: Duration = Duration::from_millis(100);

/// Read everything once and say what is wrong: bad bytes, lost offsets, indexes and checkpoints
/// that do not fit. Nothing is changed. Exit status 3 when there is damage.
#[derive(Debug, clap::Args)]
pub struct CheckArgs {
    /// A data directory, or the directory of one partition
    #[arg(value_name = "SOURCE")]
    pub source: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// The most memory that one batch may take when it is expanded
    #[arg(long, value_name = "BYTES", default_value_t = ReadOptions::default().max_batch_bytes)]
    pub max_batch_bytes: usize,
    /// Threads that read; otherwise one for each core
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// Follow partition directories that are symbolic links
    #[arg(long)]
    pub follow_symlinks: bool,
}

/// What was found, by the name of the directory.
type Found = Vec<(OsString, Result<Checked>)>;

/// Checks; the exit code.
pub fn run(typed: &CheckArgs) -> Result<u8> {
    let (path, only) = match source::classify(&typed.source, false)? {
        Source::DataDirectory(path) => (path, None),
        Source::Partition { parent, name } => (parent, Some(name)),
    };
    let options = ReadOptions {
        max_batch_bytes: typed.max_batch_bytes,
        follow_symlinks: typed.follow_symlinks,
        open_files: open_files(),
        ..ReadOptions::default()
    };
    let data_dir = DataDir::new(&path, only.as_deref(), options);
    let threads = typed.threads.map_or_else(cores, usize::from);
    let found = with_progress(|progress| check(&data_dir, threads, now(), progress))?;
    let text = if typed.json {
        format!("{:#}\n", object(&typed.source.to_string_lossy(), &found))
    } else {
        let skipped = &data_dir.listing()?.other;
        describe(&found, skipped)
    };
    output::print(text.as_bytes())?;
    for (_, error) in found.iter().filter_map(|(name, done)| Some((name, done.as_ref().err()?))) {
        log::error!("{error}");
    }
    let damaged = found.iter().any(|(_, done)| done.as_ref().is_ok_and(Checked::is_damaged));
    let unread = found.iter().any(|(_, done)| done.is_err());
    Ok(match (damaged, unread) {
        (true, _) => exit_code::DAMAGE,
        (false, true) => exit_code::RUNTIME,
        (false, false) => exit_code::OK,
    })
}

/// Does `work` while a terminal shows how far it has come.
fn with_progress<T>(work: impl FnOnce(&Progress) -> T) -> T {
    let progress = Progress::default();
    let bar = ProgressBar::no_length();
    if let Ok(style) =
        ProgressStyle::with_template("{bytes} of {total_bytes}, {binary_bytes_per_sec}, {eta} left")
    {
        bar.set_style(style);
    }
    std::thread::scope(|scope| {
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let (shown, counted) = (bar.clone(), &progress);
        scope.spawn(move || {
            while stopped.recv_timeout(TICK) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                shown.set_length(counted.total.load(Ordering::Relaxed));
                shown.set_position(counted.done.load(Ordering::Relaxed));
            }
        });
        let done = work(&progress);
        drop(stop);
        bar.finish_and_clear();
        done
    })
}

/// Sums over all partitions.
#[derive(Debug, Default)]
struct Sum {
    damaged: usize,
    unread: usize,
    bytes: u64,
    valid_bytes: u64,
    batches: u64,
    records: u64,
}

impl Sum {
    fn of(found: &Found) -> Sum {
        let mut sum = Sum::default();
        for (_, done) in found {
            let Ok(checked) = done else {
                sum.unread += 1;
                continue;
            };
            sum.damaged += usize::from(checked.is_damaged());
            sum.bytes += checked.bytes;
            sum.valid_bytes += checked.valid_bytes;
            sum.batches += checked.batches;
            sum.records += checked.records;
        }
        sum
    }
}

fn object(source: &str, found: &Found) -> Value {
    let partitions: Vec<Value> = found
        .iter()
        .map(|(name, done)| match done {
            Ok(checked) => partition_object(checked),
            Err(e) => json!({ "directory": name.to_string_lossy(), "error": e.to_string() }),
        })
        .collect();
    let sum = Sum::of(found);
    json!({
        "source": source,
        "partitions": partitions,
        "sum": {
            "partitions": found.len(),
            "damaged": sum.damaged,
            "unread": sum.unread,
            "bytes": sum.bytes,
            "valid_bytes": sum.valid_bytes,
            "batches": sum.batches,
            "records": sum.records,
        },
    })
}

/// The object of `report.json`, and what only a full reading tells.
fn partition_object(checked: &Checked) -> Value {
    let mut object = report::object(&checked.facts);
    let torn = checked.torn_segments.iter().map(report::torn_tail).collect::<Vec<_>>();
    let open = checked.open_transactions.iter().map(|(first_offset, producer_id)| {
        json!({ "producer_id": producer_id, "first_offset": first_offset.get() })
    });
    let states = |states: &[IndexState]| -> Vec<Value> {
        states.iter().map(|it| json!({ "file": it.file, "state": it.state })).collect()
    };
    if let Value::Object(fields) = &mut object {
        let more = [
            ("damaged", json!(checked.is_damaged())),
            ("segments", json!(checked.segments)),
            ("bytes", json!(checked.bytes)),
            ("valid_bytes", json!(checked.valid_bytes)),
            ("batches", json!(checked.batches)),
            ("records", json!(checked.records)),
            ("offsets_in_holes", json!(checked.offsets_in_holes)),
            ("torn_segments", json!(torn)),
            ("open_transactions", json!(open.collect::<Vec<_>>())),
            ("checkpoints", json!(states(&checked.checkpoints))),
            ("broker_cuts_at", json!(checked.broker_cuts_at.map(Offset::get))),
        ];
        fields.extend(more.map(|(name, value)| (name.to_owned(), value)));
    }
    object
}

/// The report for people.
fn describe(found: &Found, other: &[OsString]) -> String {
    let mut text = String::new();
    for (name, done) in found {
        match done {
            Ok(checked) => text.push_str(&Partition { name, checked }.to_string()),
            // Said on stderr.
            Err(_) => {
                let _ = writeln!(text, "{}: could not be checked", name.to_string_lossy());
            }
        }
    }
    for name in other {
        let _ = writeln!(text, "{}: not a live partition, not checked", name.to_string_lossy());
    }
    let sum = Sum::of(found);
    let _ = writeln!(
        text,
        "{} checked, {} damaged: {} of {} bytes valid, {} batches, {} records",
        counted(found.len(), "partition"),
        sum.damaged,
        sum.valid_bytes,
        sum.bytes,
        sum.batches,
        sum.records
    );
    if sum.damaged > 0 {
        text.push_str(
            "What can be read is there in a read-only mount (offsetfs mount SOURCE MOUNTPOINT).\n\
             `offsetfs repair PARTITION_DIR --dry-run` says what would be set aside. Before that,\n\
             no broker should start here: it may cut a log at the first batch that is wrong.\n",
        );
    }
    text
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// What was found in one partition, in lines.
struct Partition<'a> {
    name: &'a OsString,
    checked: &'a Checked,
}

impl fmt::Display for Partition<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Partition { name, checked } = self;
        let facts = &checked.facts;
        let verdict = if checked.is_damaged() { "damaged" } else { "sound" };
        writeln!(
            f,
            "{}: {verdict}, offsets {} up to {}, {} of {} bytes valid, {} batches, {} records",
            name.to_string_lossy(),
            facts.log_start,
            facts.log_end,
            checked.valid_bytes,
            checked.bytes,
            checked.batches,
            checked.records
        )?;
        lines(f, "damage", &facts.damage, damage)?;
        lines(f, "odd", &facts.oddities, |odd| {
            let place = format!("{} position {}", file_name(&odd.path), odd.position);
            let offsets = offsets(odd.offsets.0, odd.offsets.1);
            format!("{place}, {} bytes, {offsets}: {}", odd.bytes, odd.reason)
        })?;
        let (holes, lost): (Vec<&Missing>, Vec<&Missing>) =
            facts.missing.iter().partition(|missing| missing.why == Why::Hole);
        lines(f, "lost", &lost, |missing| {
            let in_bytes = missing.why == Why::Damage;
            let why = if in_bytes { "in damaged bytes" } else { "a segment is lost" };
            format!("{}, {why}", offsets(missing.first_offset, missing.last_offset))
        })?;
        if !holes.is_empty() {
            let count = checked.offsets_in_holes;
            writeln!(f, "  not there: {count} offsets, perhaps compacted away, or never written")?;
        }
        if let Some(offset) = checked.broker_cuts_at {
            let end = facts.log_end;
            writeln!(f, "  a broker that starts here would drop offsets {offset} up to {end}")?;
        }
        let tails = facts.torn_tail.iter().chain(&checked.torn_segments).collect::<Vec<_>>();
        lines(f, "torn tail", &tails, |tail| torn(tail))?;
        lines(f, "index", &facts.indexes, state)?;
        lines(f, "checkpoint", &checked.checkpoints, state)?;
        lines(f, "timestamp", &facts.timestamps, |it| {
            let at = it.first_offset.map_or(String::new(), |first| format!(" from offset {first}"));
            format!("{}{at}: {}, {}", it.segment, it.timestamp.millis(), it.reason)
        })?;
        lines(f, "open transaction", &checked.open_transactions, |(first, producer)| {
            format!("producer id {producer}, first offset {first}")
        })?;
        if let Some((first, last)) = facts.below_log_start {
            writeln!(f, "  below the log start: {}", offsets(first, last))?;
        }
        lines(f, "shadowed", &facts.shadowed, shadowed)?;
        lines(f, "leftover", &facts.leftovers, Clone::clone)
    }
}

/// One line for each of `items`, or for as many as are worth reading.
fn lines<T>(
    f: &mut fmt::Formatter<'_>,
    kind: &str,
    items: &[T],
    shown: impl Fn(&T) -> String,
) -> fmt::Result {
    for item in items.iter().take(MOST_LINES) {
        writeln!(f, "  {kind}: {}", shown(item))?;
    }
    match items.len().saturating_sub(MOST_LINES) {
        0 => Ok(()),
        more => writeln!(f, "  {kind}: {more} more, all of them with --json"),
    }
}

fn damage(stretch: &Stretch) -> String {
    let bytes = stretch.end.get() - stretch.start.get();
    let place = format!("{} position {}, {bytes} bytes", file_name(&stretch.path), stretch.start);
    let lost = if stretch.end_offset > stretch.first_offset {
        offsets(stretch.first_offset, stretch.end_offset.previous())
    } else {
        "no offset is lost".to_owned()
    };
    format!("{place}, {lost}: {}", stretch.reason)
}

/// Offsets as people say them.
pub fn offsets(first: Offset, last: Offset) -> String {
    if first == last { format!("offset {first}") } else { format!("offsets {first} to {last}") }
}

fn torn(tail: &TornTail) -> String {
    format!("{} position {}, {} bytes", file_name(&tail.path), tail.position, tail.bytes)
}

fn state(it: &IndexState) -> String {
    format!("{}: {}", it.file, it.state)
}

fn shadowed(it: &Shadowed) -> String {
    match it {
        Shadowed::File(file) => file.clone(),
        Shadowed::Offsets { segment, first_offset, last_offset } => {
            format!("{} of {segment}", offsets(*first_offset, *last_offset))
        }
    }
}
