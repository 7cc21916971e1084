//! Every call of the engine that the benchmarks make. When the engine's API changes, only this file
//! changes.

#![allow(dead_code, reason = "each benchmark uses a part of it")]

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use offsetfs::engine::data_dir::DataDir;
use offsetfs::engine::extent::{DamagePolicy, Extents, Measure};
use offsetfs::engine::log::{Found, Log as EngineLog, LogState};
use offsetfs::engine::options::ReadOptions;
use offsetfs::engine::read::{Reading, Step, Wanted};
use offsetfs::format::batch::{BatchHeader, Magic};
use offsetfs::format::builder::{BatchBuilder, NewRecord};
use offsetfs::format::codec as engine_codec;
use offsetfs::format::record::{Cursor, Record};
use offsetfs::fs::change::{LogSink, now, stream_limits};
use offsetfs::inspect::check;
use offsetfs::units::{Offset, Timestamp};
use offsetfs::view::append::AppendStream;
use offsetfs::view::name::Format;
use offsetfs::view::render::{Place, render, rendered_bytes};

use crate::make_log::Codec;
use crate::rounds::{Outcome, seconds};

/// Rendered bytes that are collected before they are thrown away: what one read of the kernel asks.
const OUT_BYTES: usize = 256 << 10;

/// A partition opened read-only.
pub struct Log {
    log: Arc<EngineLog>,
    state: Arc<LogState>,
}

/// Opens the partition directory `dir` read-only.
pub fn open(dir: &Path) -> Outcome<Log> {
    let parent = dir.parent().ok_or("a partition has a parent directory")?;
    let data = DataDir::new(parent, dir.file_name(), ReadOptions::default());
    let name = dir.file_name().ok_or("a partition has a name")?;
    let log = data.log(name)?.ok_or("not a partition directory")?;
    let state = log.state()?;
    Ok(Log { log, state })
}

/// Checks the partition `dir` as `offsetfs check` does, in so many threads; the valid bytes.
pub fn check(dir: &Path, threads: usize) -> Outcome<u64> {
    let parent = dir.parent().ok_or("a partition has a parent directory")?;
    let data = DataDir::new(parent, dir.file_name(), ReadOptions::default());
    let found = check::check(&data, threads, now(), &check::Progress::default())?;
    let checked = found.into_iter().next().ok_or("a partition")?.1?;
    if checked.is_damaged() {
        return Err("the log of the benchmark is damaged".into());
    }
    Ok(checked.valid_bytes)
}

/// Reads all values with CRC checks, as `by-offset/0..` has them; the bytes of the lines.
pub fn decode_values(dir: &Path) -> Outcome<u64> {
    let Log { log, state } = open(dir)?;
    let place = place(&log);
    let mut reading = Reading::new(&log, &state, Offset::ZERO, Wanted::Data, None)?;
    let (mut out, mut total) = (Vec::with_capacity(2 * OUT_BYTES), 0);
    loop {
        match reading.step()? {
            Step::Batch(_) => {}
            Step::Damage(stretch) => return Err(stretch.error().into()),
            Step::End => return Ok(total + out.len() as u64),
        }
        let (header, bytes) = reading.records().ok_or("a batch has records")?;
        Cursor::new(header, bytes)?.for_each(header, bytes, |record| {
            render(Format::Lines, &place, header, record, &mut out);
        })?;
        if out.len() >= OUT_BYTES {
            total += std::hint::black_box(&out).len() as u64;
            out.clear();
        }
    }
}

/// The pass that finds the sizes of ranges, CRC checked, from nothing; the bytes of the lines.
pub fn extents_pass(dir: &Path) -> Outcome<u64> {
    let Log { log, state } = open(dir)?;
    let (place, shared) = (place(&log), log.shared());
    let measure = Measure::Records(|header: &BatchHeader, record: &Record<'_>| {
        rendered_bytes(Format::Lines, &place, header, record)
    });
    state.segments.iter().try_fold(0, |total, segment| {
        let mut extents = Extents::empty(segment.base_offset);
        let mut scanner = shared.long_scanner(segment, None);
        extents.extend(
            &mut scanner,
            &shared.batches,
            &measure,
            DamagePolicy::default(),
            &|_| true,
            Offset::MAX,
        )?;
        Ok(total + extents.end.bytes)
    })
}

/// Finds the record at `offset` with its batch's CRC checked; the bytes of its value.
pub fn find(log: &Log, offset: u64) -> Outcome<u64> {
    let offset = Offset::new(offset.cast_signed()).ok_or("no offset")?;
    let found = log.log.find(&log.state, offset)?;
    with_record(&found, |record| record.value.map_or(0, <[u8]>::len) as u64)
}

/// Finds the first record at or after `timestamp`; its offset.
pub fn find_time(log: &Log, timestamp: i64) -> Outcome<u64> {
    let found = log.log.find_time(&log.state, Timestamp::from_millis(timestamp), None)?;
    with_record(&found, |record| record.offset.get().cast_unsigned())
}

/// Expands the records of one batch into `out`.
pub fn decompress(codec: Codec, payload: &[u8], out: &mut Vec<u8>) -> Outcome<()> {
    let codec = engine_codec::Codec::from_attributes(codec as i16);
    Ok(engine_codec::decompress(codec, Magic::V2, payload, out, 4 << 20)?)
}

/// Appends the lines of the file `lines` to the partition directory `dir`, a MiB at a time; the
/// seconds that it takes without the opening and the orderly end.
pub fn append_lines(dir: &Path, lines: &Path) -> Outcome<f64> {
    let (data, log) = open_to_write(dir)?;
    data.write(&log, now(), |_| Ok(()))?;
    let taken = seconds(|| append_all(&data, &log, lines))?;
    data.shut_down(now())?;
    Ok(taken)
}

fn append_all(data: &DataDir, log: &EngineLog, lines: &Path) -> Outcome<()> {
    let mut stream = AppendStream::new(Format::Lines);
    let (mut file, mut piece) = (File::open(lines)?, vec![0; 1 << 20]);
    loop {
        let count = file.read(&mut piece)?;
        if count == 0 {
            return Ok(());
        }
        let at = now();
        let result = data.write(log, at, |writer| {
            let limits = stream_limits(writer.limits(), false);
            Ok(stream.write(&piece[..count], limits, &mut LogSink { writer, at }))
        })?;
        if let Some(error) = result.error {
            return Err(error.to_string().into());
        }
    }
}

/// Opens the partition directory `dir` to write it, which recovers it where it was not left in
/// order.
pub fn recover(dir: &Path, records: u64) -> Outcome<()> {
    let (data, log) = open_to_write(dir)?;
    let end = data.write(&log, now(), |writer| Ok(writer.log_end()))?;
    if end.get().cast_unsigned() == records {
        Ok(())
    } else {
        Err(format!("the log ends at {end}").into())
    }
}

fn open_to_write(dir: &Path) -> Outcome<(DataDir, Arc<EngineLog>)> {
    let parent = dir.parent().ok_or("a partition has a parent directory")?;
    let data = DataDir::writable(parent, dir.file_name(), ReadOptions::default())?;
    let name = dir.file_name().ok_or("a partition has a name")?;
    let log = data.log(name)?.ok_or("not a partition directory")?;
    Ok((data, log))
}

/// Batches made with the format alone.
#[derive(Default)]
pub struct Batch {
    builder: BatchBuilder,
    offset: Offset,
}

impl Batch {
    /// The lines of `text` as one batch, which follows the one before.
    pub fn of_lines(&mut self, text: &[u8]) -> Outcome<&[u8]> {
        let timestamp = Some(now());
        self.builder.start(self.offset, None, engine_codec::Codec::None, None);
        let mut rest = text;
        while let Some(end) = memchr::memchr(b'\n', rest) {
            let record = NewRecord { timestamp, value: Some(&rest[..end]), ..NewRecord::default() };
            self.builder.add(&record)?;
            rest = &rest[end + 1..];
        }
        let next = self.offset.checked_add(self.builder.records_count().into());
        self.offset = next.ok_or("no offset is left")?;
        Ok(self.builder.finish(None)?)
    }
}

fn place(log: &EngineLog) -> Place<'_> {
    Place { topic: log.name().topic(), partition: log.name().partition() }
}

fn with_record(found: &Found, see: impl Fn(&Record<'_>) -> u64) -> Outcome<u64> {
    match found {
        Found::Record(found, ..) => Ok(see(&found.record().ok_or("it was read before")?)),
        Found::Damaged(stretch) => Err(stretch.error().into()),
        Found::Nothing => Err("not found".into()),
    }
}
