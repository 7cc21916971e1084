//! `offsetfs cat`: the records of one partition on standard output, in kcat's letters. Nothing is
//! mounted and nothing is written.
//!
//! What goes wrong with bytes of the log is told once for each stretch, where the engine meets it;
//! everything readable around it is printed, and the exit code says that something was left out.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::cli::exit_code;
use crate::cli::format::Template;
use crate::cli::output::Output;
use crate::cli::range::{Bounds, Start, Stop, parse_bounds};
use crate::engine::damage::Stretch;
use crate::engine::data_dir::DataDir;
use crate::engine::log::{Found, Log, LogState};
use crate::engine::options::ReadOptions;
use crate::engine::read::{Reading, Step, Wanted};
use crate::engine::source::{self, Source};
use crate::error::{Error, Result};
use crate::format::FormatError;
use crate::format::batch::BatchHeader;
use crate::format::record::{Cursor, Record};
use crate::units::{Offset, Timestamp};
use crate::view::name::Format;
use crate::view::render::{Marks, Place, envelope, render};

/// How often `--follow` looks for more.
const POLL: Duration = Duration::from_millis(100);
/// What a whole batch of this size becomes is kept in memory at once.
const WHOLE_BATCH_BYTES: usize = 4 << 20;

/// Print the records of a partition: each value and a newline.
#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is one letter that can be typed")]
pub struct CatArgs {
    /// The directory `TOPIC-PARTITION` that holds the segments
    #[arg(value_name = "PARTITION_DIR")]
    pub partition: PathBuf,
    /// Where to begin, and a second time where to end: beginning, end, N, -N (the last N records),
    /// s@TIME, e@TIME (up to, not including), A:B
    #[arg(short = 'o', value_name = "START|END", allow_hyphen_values = true)]
    pub bounds: Vec<String>,
    /// Stop after N records
    #[arg(short = 'c', value_name = "N")]
    pub count: Option<u64>,
    /// Print each record so: %t topic, %p partition, %o offset, %k key, %K its length, %s value,
    /// %S its length, %R its length as 4 bytes, %T timestamp, %h headers, %%; \n, \t, \0, \x41
    #[arg(short = 'f', value_name = "FORMAT", allow_hyphen_values = true)]
    pub format: Option<String>,
    /// Print each record as one JSON object
    #[arg(short = 'J', conflicts_with = "format")]
    pub json: bool,
    /// Say on stderr when the end of the partition is reached
    #[arg(short = 'e')]
    pub note_end: bool,
    /// Say nothing on stderr but what is wrong
    #[arg(short = 'q')]
    pub quiet: bool,
    /// Print NULL keys and values as the word NULL
    #[arg(short = 'Z')]
    pub null_as_text: bool,
    /// Go on when more records are appended
    #[arg(long)]
    pub follow: bool,
}

/// How it went, when nothing failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Everything that was asked for was printed.
    Complete,
    /// Records were left out, since their bytes are wrong.
    SteppedOverDamage,
}

impl Outcome {
    /// What the process should end with.
    pub const fn exit_code(self) -> u8 {
        match self {
            Outcome::Complete => exit_code::OK,
            Outcome::SteppedOverDamage => exit_code::DAMAGE,
        }
    }
}

/// Prints to standard output.
pub fn run(typed: &CatArgs) -> Result<Outcome> {
    let stdout = io::stdout().as_fd().try_clone_to_owned();
    let stdout = stdout.map_err(Error::io("open", "standard output"))?;
    run_to(typed, File::from(stdout))
}

/// Prints to `target`, which should not keep bytes back itself.
fn run_to(typed: &CatArgs, target: impl Write + Send + 'static) -> Result<Outcome> {
    let bounds = parse_bounds(&typed.bounds).map_err(Error::Usage)?;
    let form = Form::new(typed)?;
    let log = open(&typed.partition)?;
    let mut cat = Cat::new(typed, &log, bounds, form)?;
    let mut output = Output::to(target);
    let printed = cat.print_all(&mut output);
    let written = output.finish().map_err(Error::io("write to", "standard output"));
    printed.and(written)?;
    Ok(if cat.damaged { Outcome::SteppedOverDamage } else { Outcome::Complete })
}

/// The log in a directory that the user named himself, so that links on the way are his.
fn open(path: &Path) -> Result<Arc<Log>> {
    let (parent, name) = match source::classify(path, false)? {
        Source::Partition { parent, name } => (parent, name),
        Source::DataDirectory(_) => {
            let reason =
                "is a data directory; name one of the <topic>-<partition> directories in it";
            return Err(Error::refused(path, reason));
        }
    };
    let log = DataDir::new(&parent, Some(&name), ReadOptions::default()).log(&name)?;
    log.ok_or_else(|| Error::refused(path, "is not the directory of a live partition"))
}

/// What is printed of a record.
#[derive(Debug)]
enum Form {
    Lines,
    Template(Template, bool),
    Json,
}

impl Form {
    fn new(typed: &CatArgs) -> Result<Form> {
        let text = match &typed.format {
            _ if typed.json => return Ok(Form::Json),
            Some(text) => text,
            None if typed.null_as_text => "%s\\n",
            None => return Ok(Form::Lines),
        };
        let template = Template::parse(text).map_err(|e| Error::Usage(format!("-f: {e}")))?;
        Ok(Form::Template(template, typed.null_as_text))
    }
}

/// A printing of one range.
struct Cat<'a> {
    typed: &'a CatArgs,
    log: &'a Arc<Log>,
    form: Form,
    state: Arc<LogState>,
    reading: Reading,
    /// First offset that is still to be printed.
    start: Offset,
    /// First offset that is not wanted.
    end: Offset,
    /// The first record of this time or later is the end, once there is one.
    end_time: Option<Timestamp>,
    printed: u64,
    damaged: bool,
}

/// Why a printing stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reached {
    /// What was wanted is printed, or nobody wants to read it any more.
    Done,
    /// The log has no more, for now.
    LogEnd,
}

/// What became of one batch.
struct Printed {
    count: u64,
    /// Up to where it could be read.
    next: Offset,
    failure: Option<FormatError>,
}

impl<'a> Cat<'a> {
    fn new(typed: &'a CatArgs, log: &'a Arc<Log>, bounds: Bounds, form: Form) -> Result<Cat<'a>> {
        let state = log.state()?;
        let start = resolve_start(log, &state, bounds.start)?.max(state.log_start);
        let (end, end_time) = match bounds.stop {
            Stop::End => (None, None),
            Stop::Offset(end) => (Some(end), None),
            Stop::Time(time) => (offset_of_time(log, &state, time)?, Some(time)),
        };
        Ok(Cat {
            typed,
            log,
            form,
            reading: Reading::new(log, &state, start, Wanted::Data, None)?,
            state,
            start,
            end: end.unwrap_or(Offset::MAX),
            end_time: end_time.filter(|_| end.is_none()),
            printed: 0,
            damaged: false,
        })
    }

    fn print_all(&mut self, output: &mut Output) -> Result<()> {
        let mut noted = false;
        loop {
            let reached = self.print(output)?;
            if reached == Reached::LogEnd && !noted {
                noted = true;
                self.note_end();
            }
            if reached == Reached::Done || !self.typed.follow || !output.flush() {
                break;
            }
            self.wait_for_more()?;
        }
        self.note_nothing();
        Ok(())
    }

    /// Prints what there is now.
    fn print(&mut self, output: &mut Output) -> Result<Reached> {
        while self.left() > 0 && self.start < self.end {
            match self.reading.step()? {
                Step::Batch(header) => {
                    if header.base_offset >= self.end && !header.is_legacy_wrapper() {
                        return Ok(Reached::Done);
                    }
                    self.print_batch(output)?;
                    self.start = self.start.max(self.reading.end_of_batch().unwrap_or_default());
                    if !output.go_on() {
                        return Ok(Reached::Done);
                    }
                }
                Step::Damage(stretch) => self.step_over(&stretch),
                Step::End => return Ok(Reached::LogEnd),
            }
        }
        let to_the_end = self.left() > 0 && self.end >= self.state.log_end;
        Ok(if to_the_end && !self.typed.follow { Reached::LogEnd } else { Reached::Done })
    }

    /// Records that are still wanted.
    fn left(&self) -> u64 {
        self.typed.count.map_or(u64::MAX, |count| count - self.printed)
    }

    /// The current batch.
    fn print_batch(&mut self, output: &mut Output) -> Result<()> {
        let Some((header, bytes)) = self.reading.records() else { return Ok(()) };
        let Some(cursor) = self.reading.cursor() else { return Ok(()) };
        let printed = if matches!(self.form, Form::Lines) && self.wants_all(header, bytes) {
            self.print_lines(header, bytes, cursor, output.buffer())
        } else {
            self.print_wanted(header, bytes, cursor, output)?
        };
        self.printed += printed.count;
        if let Some(reason) = printed.failure
            && let Some(stretch) = self.reading.give_up(printed.next, &reason)
        {
            self.step_over(&stretch);
        }
        Ok(())
    }

    /// Is there no record in the batch that is not wanted?
    fn wants_all(&self, header: &BatchHeader, bytes: &[u8]) -> bool {
        header.base_offset >= self.start
            && header.last_offset < self.end
            && u64::from(header.records_count) <= self.left()
            && bytes.len() <= WHOLE_BATCH_BYTES
            && !header.is_legacy_wrapper()
    }

    /// All values of a batch: what has to be fast.
    fn print_lines(
        &self,
        header: &BatchHeader,
        bytes: &[u8],
        cursor: Result<Cursor, FormatError>,
        out: &mut Vec<u8>,
    ) -> Printed {
        let place = self.place();
        let (mut count, mut last) = (0, None);
        let read = cursor.and_then(|cursor| {
            cursor.for_each(header, bytes, |record| {
                render(Format::Lines, &place, header, record, out);
                (count, last) = (count + 1, Some(record.offset));
            })
        });
        Printed { count, next: last.map_or(header.base_offset, Offset::next), failure: read.err() }
    }

    /// The records of a batch that lie in the range, one by one.
    fn print_wanted(
        &self,
        header: &BatchHeader,
        bytes: &[u8],
        cursor: Result<Cursor, FormatError>,
        output: &mut Output,
    ) -> Result<Printed> {
        let mut printed = Printed { count: 0, next: header.base_offset, failure: None };
        let mut cursor = match cursor {
            Ok(cursor) => cursor,
            Err(reason) => return Ok(Printed { failure: Some(reason), ..printed }),
        };
        let (place, marks) = (self.place(), self.marks(header)?);
        while printed.count < self.left() && output.go_on() {
            let record = match cursor.next(header, bytes) {
                Some(Ok(record)) if record.offset < self.end => record,
                Some(Err(reason)) => return Ok(Printed { failure: Some(reason), ..printed }),
                Some(Ok(_)) | None => break,
            };
            printed.next = record.offset.next();
            if record.offset >= self.start {
                let above_high_watermark = record.offset >= self.state.high_watermark;
                let marks = Marks { above_high_watermark, ..marks };
                self.form.render(&place, header, &record, marks, output.buffer());
                printed.count += 1;
            }
        }
        Ok(printed)
    }

    /// What all records of a batch have in common of what may change.
    fn marks(&self, header: &BatchHeader) -> Result<Marks> {
        let txn = match self.form {
            Form::Json => self.log.transaction_state(&self.state, header, header.base_offset)?,
            Form::Lines | Form::Template(..) => None,
        };
        Ok(Marks { txn, above_high_watermark: false })
    }

    fn place(&self) -> Place<'a> {
        Place { topic: self.log.name().topic(), partition: self.log.name().partition() }
    }

    /// It is damage of this range unless all of it lies before or behind.
    fn step_over(&mut self, stretch: &Stretch) {
        let after = stretch.end_offset.max(stretch.first_offset.next());
        if stretch.first_offset < self.end && after > self.start {
            self.damaged = true;
            self.start = self.start.max(stretch.end_offset);
        }
    }

    fn wait_for_more(&mut self) -> Result<()> {
        loop {
            thread::sleep(POLL);
            let state = self.log.state()?;
            if !Arc::ptr_eq(&state, &self.state) {
                return self.see(state);
            }
        }
    }

    /// Goes on in the log as it is now: where it only grew, behind the last batch; where segments
    /// went or the log was cut, with the first offset that was not printed.
    fn see(&mut self, state: Arc<LogState>) -> Result<()> {
        let number = self.reading.segment_number();
        let file = |state: &LogState| Some(state.segments.get(number)?.log.file.id);
        let grown = state.log_end >= self.state.log_end
            && file(&state).is_some()
            && file(&state) == file(&self.state);
        if grown {
            self.reading.replace_segments(state.segments.clone(), self.log.filter(&state)?);
        } else {
            if state.log_end < self.state.log_end {
                self.start = self.start.min(state.log_end);
            }
            self.reading = Reading::new(self.log, &state, self.start, Wanted::Data, None)?;
        }
        if let Some(time) = self.end_time
            && let Some(end) = offset_of_time(self.log, &state, time)?
        {
            (self.end, self.end_time) = (end, None);
        }
        self.state = state;
        Ok(())
    }

    fn note_end(&self) {
        if self.typed.note_end {
            let Place { topic, partition } = self.place();
            let end = self.state.log_end;
            self.note(&format!("Reached end of topic {topic} [{partition}] at offset {end}"));
        }
    }

    /// Says why there is no output.
    fn note_nothing(&self) {
        if self.printed == 0 && !self.damaged && self.typed.count != Some(0) && !self.typed.follow {
            let Place { topic, partition } = self.place();
            let (start, end) = (self.state.log_start, self.state.log_end);
            self.note(&format!(
                "No records in this range of topic {topic} [{partition}], which goes from offset \
                 {start} up to {end}"
            ));
        }
    }

    /// As kcat does it.
    fn note(&self, text: &str) {
        if !self.typed.quiet {
            // Without stderr nobody wants to know.
            let _ = writeln!(io::stderr(), "% {text}");
        }
    }
}

impl Form {
    fn render(
        &self,
        place: &Place,
        header: &BatchHeader,
        record: &Record,
        marks: Marks,
        out: &mut Vec<u8>,
    ) {
        match self {
            Form::Lines => render(Format::Lines, place, header, record, out),
            Form::Template(template, null_as_text) => {
                template.render(place, record, *null_as_text, out);
            }
            Form::Json => envelope(place, header, record, Some(&marks), out),
        }
    }
}

fn resolve_start(log: &Log, state: &LogState, start: Start) -> Result<Offset> {
    Ok(match start {
        Start::Beginning => state.log_start,
        Start::End => state.log_end,
        Start::Offset(offset) => offset,
        Start::Last(count) => log.offset_of_last(state, count, None)?,
        Start::Time(time) => offset_of_time(log, state, time)?.unwrap_or(state.log_end),
    })
}

/// The offset of the first record that is not older, or of damage in which it may be.
fn offset_of_time(log: &Log, state: &LogState, time: Timestamp) -> Result<Option<Offset>> {
    Ok(match log.find_time(state, time, None)? {
        Found::Record(found, ..) => found.record().map(|record| record.offset),
        Found::Damaged(stretch) => Some(stretch.first_offset.max(state.log_start)),
        Found::Nothing => None,
    })
}
