//! `.index` and `.timeindex` files: their entries, and whether the log of the segment agrees.

use std::sync::Arc;

use crate::engine::batches::{Batches, Unpacker};
use crate::engine::scanner::SMALL_BATCH_BYTES;
use crate::engine::segment::Segment;
use crate::error::{Error, Result};
use crate::format::index::{OFFSET_ENTRY_BYTES, OffsetIndex, TIME_ENTRY_BYTES};
use crate::format::record::Cursor;
use crate::inspect::dump::Dumping;
use crate::inspect::dump::batch::{self, Found, RawBatch};
use crate::inspect::dump::files::{Named, Opened};
use crate::inspect::dump::line::Line;
use crate::inspect::dump::report::FileReport;
use crate::units::{Offset, Position, Timestamp};

/// An offset index that is searched is held in memory; a broker's has 10 MiB.
const MOST_INDEX_BYTES: usize = 256 << 20;
/// Bytes that a batch may take in memory, compressed and expanded.
const MOST_BATCH_BYTES: usize = 256 << 20;

/// Dumps a `.index`.
pub fn dump_offset_index(named: &Named, to: &mut Dumping<'_, '_>) -> Result<()> {
    let base = named.base_offset()?.get();
    let mut log = named.sibling(".log").open(to.disk)?;
    let mut index = named.open(to.disk)?;
    let count = index.bytes() / OFFSET_ENTRY_BYTES as u64;
    if count == 0 {
        push_verdict(named, " is empty.", to);
        return Ok(());
    }
    if to.options.index_sanity_check {
        let fault = offset_index_fault(&mut index, base, count)?;
        tell_sanity(named, fault, to);
        return Ok(());
    }
    let mut found = FileReport::default();
    for number in 0..count {
        let (offset, position) = offset_entry(&mut index, base, number)?;
        if (offset == base && number > 0) || !to.out.go_on() {
            // The rest is what the file is filled up with while its segment is active.
            break;
        }
        match batch_at(&mut log, position, to.options.max_message_size)? {
            Ok(batch) if batch.last_offset() == offset => {}
            Ok(batch) => found.mismatches.add(offset, batch.last_offset()),
            Err(reason) => tell_entry(named, number, &reason, to),
        }
        if !to.options.verify_index_only {
            let mut line = Line(&mut to.out.text);
            line.words("offset: ").number(offset).words(" position: ").number(position).end();
        }
    }
    to.report.add(&named.absolute(), found);
    Ok(())
}

/// Dumps a `.timeindex`.
pub fn dump_time_index(named: &Named, to: &mut Dumping<'_, '_>) -> Result<()> {
    let base = named.base_offset()?;
    let log = named.sibling(".log").open(to.disk)?;
    let offsets = named.sibling(".index").open(to.disk)?.read_all(MOST_INDEX_BYTES)?;
    let mut index = named.open(to.disk)?;
    let count = index.bytes() / TIME_ENTRY_BYTES as u64;
    if to.options.index_sanity_check {
        let fault = time_index_fault(&mut index, base.get(), count)?;
        tell_sanity(named, fault, to);
        return Ok(());
    }
    let segment = Arc::new(Segment::alone(base, log.file.clone()));
    let batches = Batches::new(Arc::clone(to.disk), MOST_BATCH_BYTES);
    let mut times = LogTimes { log, segment, batches, unpacker: Unpacker::default() };
    let offsets = OffsetIndex::new(base, &offsets).without_padding();
    let (mut found, mut before) = (FileReport::default(), -1);
    for number in 0..count {
        let entry = time_entry(&mut index, base.get(), number)?;
        if (entry.offset == base.get() && number > 0) || !to.out.go_on() {
            break;
        }
        if let Err(reason) = times.check(&offsets, entry, before, &mut found)? {
            tell_entry(named, number, &reason, to);
        }
        if !to.options.verify_index_only {
            let mut line = Line(&mut to.out.text);
            line.words("timestamp: ").number(entry.timestamp);
            line.words(" offset: ").number(entry.offset).end();
        }
        before = entry.timestamp;
    }
    to.report.add(&named.absolute(), found);
    Ok(())
}

/// An entry as it is stored, whatever that is.
#[derive(Clone, Copy, Debug)]
struct TimeEntry {
    timestamp: i64,
    offset: i64,
}

/// A log that is asked for the times of its records.
struct LogTimes {
    log: Opened,
    segment: Arc<Segment>,
    batches: Batches,
    unpacker: Unpacker,
}

impl LogTimes {
    /// Compares an entry with the log, and with the time of the entry `before`. The inner error
    /// says why that cannot be done.
    fn check(
        &mut self,
        offsets: &OffsetIndex<'_>,
        entry: TimeEntry,
        before: i64,
        found: &mut FileReport,
    ) -> Result<Result<(), String>> {
        let TimeEntry { timestamp, offset } = entry;
        let start = Offset::new(offset).and_then(|offset| offsets.floor(offset));
        let start = start.map_or(0, |entry| entry.position.get());
        let batch = match self.batch_reaching(start, offset)? {
            Ok(Some(batch)) if batch.last_offset() == offset => batch,
            Ok(batch) => {
                let there = batch.map_or(-1, |batch| batch.last_offset());
                found.offsets_not_found.add(offset, there);
                return Ok(Ok(()));
            }
            Err(reason) => return Ok(Err(reason)),
        };
        let largest = match self.largest_timestamp(&batch) {
            Ok(largest) => largest,
            Err(Error::Damage { reason, .. }) => return Ok(Err(reason)),
            Err(error) => return Err(error),
        };
        if largest != timestamp {
            found.time_mismatches.add(timestamp, largest);
        }
        if before >= timestamp {
            found.times_out_of_order.add(timestamp, before);
        }
        Ok(Ok(()))
    }

    /// The first batch from `position` on that reaches up to `offset`.
    fn batch_reaching(
        &mut self,
        mut position: u64,
        offset: i64,
    ) -> Result<Result<Option<RawBatch>, String>> {
        let end = self.log.bytes();
        loop {
            match batch::find(&mut self.log, position, end)? {
                Found::Batch(batch) if batch.last_offset() >= offset => {
                    return Ok(Ok(Some(batch)));
                }
                Found::Batch(batch) => position += batch.bytes,
                Found::End => return Ok(Ok(None)),
                Found::Wrong(reason) => {
                    return Ok(Err(format!("the log, position {position}: {reason}")));
                }
            }
        }
    }

    /// The largest timestamp of its records, -1 when there is none.
    fn largest_timestamp(&mut self, batch: &RawBatch) -> Result<i64> {
        let LogTimes { log, segment, batches, unpacker } = self;
        let position = Position::new(batch.position);
        let damage = |error: crate::format::FormatError| Error::Damage {
            path: segment.log.path().to_path_buf(),
            position,
            reason: error.to_string(),
        };
        let header = if batch.is_v2() {
            batch.for_records()
        } else {
            batch.legacy_header().map_err(damage)?
        };
        let raw = if batch.bytes <= SMALL_BATCH_BYTES {
            let bytes = usize::try_from(batch.bytes).unwrap_or(0);
            Some(log.read(batch.position, bytes)?)
        } else {
            None
        };
        unpacker.prepare(batches, segment, position, &header, raw)?;
        let bytes = unpacker.bytes(raw);
        let mut largest = -1;
        let cursor = Cursor::new(&header, bytes).map_err(damage)?;
        cursor
            .for_each(&header, bytes, |record| {
                largest = largest.max(record.timestamp.map_or(-1, Timestamp::millis));
            })
            .map_err(damage)?;
        Ok(largest)
    }
}

/// The batch at a position out of an index, or why there is none; `most` bytes are looked at.
fn batch_at(log: &mut Opened, position: i32, most: u32) -> Result<Result<RawBatch, String>> {
    let bytes = log.bytes();
    let start = match u64::try_from(position) {
        Ok(start) if start <= bytes => start,
        Ok(_) => return Ok(Err(format!("position {position} lies behind the end of the log"))),
        Err(_) => return Ok(Err(format!("position {position} is negative"))),
    };
    let end = bytes.min(start + u64::from(most));
    Ok(match batch::find(log, start, end)? {
        Found::Batch(batch) => Ok(batch),
        Found::End => Err(format!("no batch is at position {position} of the log")),
        Found::Wrong(reason) => Err(format!("the log, position {position}: {reason}")),
    })
}

/// Offset and position of an entry.
fn offset_entry(index: &mut Opened, base: i64, number: u64) -> Result<(i64, i32)> {
    let entry = entry::<OFFSET_ENTRY_BYTES>(index, number)?;
    let (delta, position) = (int_at(&entry, 0), int_at(&entry, 4));
    Ok((base.wrapping_add(i64::from(delta)), position))
}

fn time_entry(index: &mut Opened, base: i64, number: u64) -> Result<TimeEntry> {
    let entry = entry::<TIME_ENTRY_BYTES>(index, number)?;
    let timestamp = entry.first_chunk().map_or(0, |bytes| i64::from_be_bytes(*bytes));
    Ok(TimeEntry { timestamp, offset: base.wrapping_add(i64::from(int_at(&entry, 8))) })
}

fn int_at(entry: &[u8], at: usize) -> i32 {
    let bytes = entry.get(at..).and_then(<[u8]>::first_chunk);
    i32::from_be_bytes(*bytes.expect("entries have room for their fields"))
}

fn entry<const BYTES: usize>(index: &mut Opened, number: u64) -> Result<[u8; BYTES]> {
    let held = index.read(number * BYTES as u64, BYTES)?;
    held.first_chunk().copied().ok_or_else(|| {
        let path = &index.file.file.path;
        Error::refused(path, format!("became shorter than {} entries", number + 1))
    })
}

/// What a broker would find wrong with an offset index, in Kafka's words.
fn offset_index_fault(index: &mut Opened, base: i64, count: u64) -> Result<Option<String>> {
    let (last, _) = offset_entry(index, base, count - 1)?;
    if last < base {
        return Ok(Some(format!(
            "has non-zero size but the last offset is {last} which is less than the base offset \
             {base}"
        )));
    }
    Ok(size_fault(index, OFFSET_ENTRY_BYTES))
}

/// The same for a time index. One that is filled up with zeros is found wrong, by Kafka too: its
/// last time is less than its first.
fn time_index_fault(index: &mut Opened, base: i64, count: u64) -> Result<Option<String>> {
    if let Some(last) = count.checked_sub(1) {
        let (first, last) = (time_entry(index, base, 0)?, time_entry(index, base, last)?);
        if last.timestamp < first.timestamp {
            return Ok(Some(format!(
                "has non-zero size but the last timestamp is {} which is less than the first \
                 timestamp {}",
                last.timestamp, first.timestamp
            )));
        }
        if last.offset < base {
            return Ok(Some(format!(
                "has non-zero size but the last offset is {} which is less than the first offset \
                 {base}",
                last.offset
            )));
        }
    }
    Ok(size_fault(index, TIME_ENTRY_BYTES))
}

fn size_fault(index: &Opened, entry_bytes: usize) -> Option<String> {
    let bytes = index.bytes();
    (!bytes.is_multiple_of(entry_bytes as u64)).then(|| {
        format!(
            "is corrupt, found {bytes} bytes which is neither positive nor a multiple of \
             {entry_bytes}"
        )
    })
}

fn tell_sanity(named: &Named, fault: Option<String>, to: &mut Dumping<'_, '_>) {
    match fault {
        None => push_verdict(named, " passed sanity check.", to),
        Some(fault) => {
            to.report.damage(&format_args!("index file {} {fault}", named.path().display()));
        }
    }
}

fn push_verdict(named: &Named, verdict: &str, to: &mut Dumping<'_, '_>) {
    to.out.text.extend_from_slice(named.bytes());
    Line(&mut to.out.text).words(verdict).end();
}

fn tell_entry(named: &Named, number: u64, reason: &str, to: &mut Dumping<'_, '_>) {
    to.report.damage(&format_args!("{}, entry {number}: {reason}", named.path().display()));
}
