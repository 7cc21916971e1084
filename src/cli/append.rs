//! `offsetfs append`: records of files or standard input, appended to one partition. Nothing is
//! mounted; the data directory is locked while it runs.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::engine::data_dir::DataDir;
use crate::engine::log::Log;
use crate::engine::options::ReadOptions;
use crate::engine::source::{self, Source};
use crate::error::{Error, Result};
use crate::fs::change::{LogSink, into_error, now, stream_limits};
use crate::view::append::AppendStream;
use crate::view::name::Format;

/// Bytes that are read, and made a batch, at once: what one write of a mount can be.
const PIECE_BYTES: usize = 1 << 20;

/// Append records to a partition: each line of the files, or of standard input, is one.
#[derive(Debug, clap::Args)]
pub struct AppendArgs {
    /// The directory `TOPIC-PARTITION` that holds the segments
    #[arg(value_name = "PARTITION_DIR")]
    pub partition: PathBuf,
    /// How records are written
    #[arg(long, value_enum, default_value_t = Input::Lines)]
    pub format: Input,
    /// Files to be read, one after the other; `-` is standard input
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
}

/// The formats that can be appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Input {
    /// A value, ended by a newline
    Lines,
    /// A value, ended by a NUL byte
    Nul,
    /// Key, tab, value
    Tsv,
    /// One JSON object a line
    Jsonl,
    /// Whole record batches
    Raw,
}

impl Input {
    const fn format(self) -> Format {
        match self {
            Input::Lines => Format::Lines,
            Input::Nul => Format::Nul,
            Input::Tsv => Format::Tsv,
            Input::Jsonl => Format::Jsonl,
            Input::Raw => Format::Raw,
        }
    }
}

/// Appends; what was stored is on the disk when this returns, also when it returns an error.
pub fn run(typed: &AppendArgs) -> Result<()> {
    let (data_dir, log) = open(&typed.partition)?;
    let appended = append(typed, &data_dir, &log);
    let closed = data_dir.shut_down(now());
    appended.and(closed)
}

/// The data directory of a partition, locked, and its log.
pub fn open(partition: &Path) -> Result<(DataDir, Arc<Log>)> {
    open_with(partition, ReadOptions::default(), true)
}

/// The same with these options; not locked, and not to be written, unless `writable`.
pub fn open_with(
    partition: &Path,
    options: ReadOptions,
    writable: bool,
) -> Result<(DataDir, Arc<Log>)> {
    let Source::Partition { parent, name } = source::classify(partition, false)? else {
        let reason = "this is a data directory, not the directory of one partition";
        return Err(Error::refused(partition, reason));
    };
    let data_dir = if writable {
        DataDir::writable(&parent, Some(&name), options)?
    } else {
        DataDir::new(&parent, Some(&name), options)
    };
    match data_dir.log(&name)? {
        Some(log) => Ok((data_dir, log)),
        None => Err(Error::refused(partition, "this is not the directory of a live partition")),
    }
}

fn append(typed: &AppendArgs, data_dir: &DataDir, log: &Arc<Log>) -> Result<()> {
    let mut stream = AppendStream::new(typed.format.format());
    let input = Path::new("-");
    let files = typed.files.iter().map(PathBuf::as_path);
    let all: Vec<&Path> = if typed.files.is_empty() { vec![input] } else { files.collect() };
    for path in all {
        if path == input {
            feed(&mut io::stdin().lock(), path, &mut stream, typed, data_dir, log)?;
        } else {
            let mut file = File::open(path).map_err(Error::io("open", path))?;
            feed(&mut file, path, &mut stream, typed, data_dir, log)?;
        }
        // A record does not go on in the next file.
        let at = now();
        data_dir.write(log, at, |writer| {
            stream.finish(&mut LogSink { writer, at }).map_err(into_error)
        })?;
    }
    Ok(())
}

fn feed(
    input: &mut dyn Read,
    path: &Path,
    stream: &mut AppendStream,
    typed: &AppendArgs,
    data_dir: &DataDir,
    log: &Arc<Log>,
) -> Result<()> {
    let mut buffer = vec![0; PIECE_BYTES];
    loop {
        let filled = fill(input, &mut buffer).map_err(Error::io("read", path))?;
        let mut left = &buffer[..filled];
        while !left.is_empty() {
            let at = now();
            let result = data_dir.write(log, at, |writer| {
                let limits = stream_limits(writer.limits(), typed.format == Input::Raw);
                Ok(stream.write(left, limits, &mut LogSink { writer, at }))
            })?;
            match result.error {
                Some(error) if result.accepted == 0 => return Err(into_error(error)),
                _ => left = left.get(result.accepted..).unwrap_or_default(),
            }
        }
        if filled == 0 {
            return Ok(());
        }
    }
}

/// Reads until the buffer is full, the input ends, or a terminal or pipe has no more for now.
fn fill(input: &mut dyn Read, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match input.read(buffer) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}
