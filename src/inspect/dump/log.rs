//! `.log` files and the snapshots of a metadata log: batches, and the records in them.
//!
//! Kafka's tool follows the length fields and lists what it finds, whether the checksum is right or
//! not, until a length or a record is impossible; there it throws. Here the scanner of the engine
//! then looks for the next batch that is believable, what lies between is told, and the dump goes
//! on. So everything that Kafka prints is a beginning of what is printed here.

use std::sync::Arc;

use crate::engine::batches::{Batches, Unpacker};
use crate::engine::scanner::{Item, SMALL_BATCH_BYTES, Scanner};
use crate::engine::segment::Segment;
use crate::error::{Error, Result};
use crate::format::FormatError;
use crate::format::batch::{BatchHeader, HEADER_BYTES, LOG_OVERHEAD};
use crate::format::codec::Codec;
use crate::format::record::{Cursor, Record};
use crate::inspect::dump::Dumping;
use crate::inspect::dump::batch::{self, Found, RawBatch};
use crate::inspect::dump::control::push_control;
use crate::inspect::dump::files::{Named, Opened};
use crate::inspect::dump::line::{self, Common, Line, Place, RecordLine};
use crate::inspect::dump::line::{push_batch_rest, push_batch_start};
use crate::inspect::dump::report::FileReport;
use crate::inspect::dump::unchecked::{self, Unchecked};
use crate::units::{Offset, Position};

/// Bytes that a batch may take in memory, compressed and expanded.
const MOST_BATCH_BYTES: usize = 256 << 20;
/// Bytes that the scanner reads at once to begin with.
const CHUNK: usize = 64 << 10;

/// Dumps one file. Fails when it cannot be read, not when what it holds is wrong.
pub fn dump(named: &Named, to: &mut Dumping<'_, '_>) -> Result<()> {
    let base_offset = push_heading(named, to)?;
    let log = named.open(to.disk)?;
    let limit = to.options.max_bytes.map_or(u64::MAX, u64::from);
    let end = log.bytes().min(limit);
    let segment = Segment { valid_bytes: end, ..Segment::alone(base_offset, log.file.clone()) };
    let mut dump = LogDump {
        reading: Reading {
            batches: Batches::new(Arc::clone(to.disk), MOST_BATCH_BYTES),
            unpacker: Unpacker::default(),
            segment: Arc::new(segment),
            log,
        },
        records: Records {
            to,
            found: FileReport::default(),
            previous_offset: -1,
            line: RecordLine::default(),
        },
        end,
        position: 0,
        doubtful: None,
        expected: base_offset,
    };
    let dumped = dump.dump_batches(named);
    let found = dump.records.found;
    to.report.add(&named.absolute(), found);
    dumped
}

/// The line before the batches; gives the least offset that may follow.
fn push_heading(named: &Named, to: &mut Dumping<'_, '_>) -> Result<Offset> {
    if named.name() == b"bootstrap.checkpoint" {
        Line(&mut to.out.text).words("KRaft bootstrap snapshot").end();
        return Ok(Offset::ZERO);
    }
    if named.suffix() == Some(b".checkpoint") {
        let (offset, epoch) = snapshot_id(named.name()).ok_or_else(|| {
            let reason = "the name is not <20 digits>-<10 digits>.checkpoint";
            Error::refused(named.path(), reason)
        })?;
        let mut line = Line(&mut to.out.text);
        line.words("Snapshot end offset: ").number(offset).words(", epoch: ").number(epoch).end();
        return Ok(Offset::ZERO);
    }
    let base_offset = named.base_offset()?;
    Line(&mut to.out.text).words("Log starting offset: ").number(base_offset.get()).end();
    Ok(base_offset)
}

/// End offset and epoch in the name of a snapshot.
fn snapshot_id(name: &[u8]) -> Option<(i64, i32)> {
    let text = str::from_utf8(name).ok()?;
    Some((text.get(..20)?.parse().ok()?, text.get(21..31)?.parse().ok()?))
}

/// One file on its way.
struct LogDump<'a, 'b, 'c> {
    reading: Reading,
    records: Records<'a, 'b, 'c>,
    /// Where the bytes end that are looked at.
    end: u64,
    position: u64,
    /// Where the batches begin whose checksums are wrong, when the last one's is: a wrong length
    /// may have led past batches that are right.
    doubtful: Option<u64>,
    /// The least offset that the next believable batch may have.
    expected: Offset,
}

/// What makes batches readable.
struct Reading {
    log: Opened,
    segment: Arc<Segment>,
    batches: Batches,
    unpacker: Unpacker,
}

/// Where records are printed.
struct Records<'a, 'b, 'c> {
    to: &'a mut Dumping<'b, 'c>,
    found: FileReport,
    /// Kafka begins with -1, so that the first record of all segments but the first follows a gap.
    previous_offset: i64,
    line: RecordLine,
}

impl LogDump<'_, '_, '_> {
    fn dump_batches(&mut self, named: &Named) -> Result<()> {
        while self.records.to.out.go_on() {
            let stopped = match batch::find(&mut self.reading.log, self.position, self.end)? {
                Found::Batch(batch) => match self.dump_batch(&batch)? {
                    None => {
                        self.position += batch.bytes;
                        continue;
                    }
                    stopped => stopped,
                },
                Found::End if self.records.to.options.max_bytes.is_some() => break,
                Found::End => {
                    if self.position < self.end {
                        self.push_trailing(named);
                    } else if self.doubtful.is_none() {
                        break;
                    }
                    None
                }
                Found::Wrong(reason) => Some(reason),
            };
            if !self.go_on_behind(stopped)? {
                break;
            }
        }
        Ok(())
    }

    fn push_trailing(&mut self, named: &Named) {
        let mut line = Line(&mut self.records.to.out.text);
        line.words("Found ").number(self.end - self.position);
        line.words(" invalid bytes at the end of ");
        line.0.extend_from_slice(named.name());
        line.end();
    }

    /// Prints one batch; gives the reason for which Kafka's tool would stop in it.
    fn dump_batch(&mut self, batch: &RawBatch) -> Result<Option<String>> {
        push_batch_start(batch, &mut self.records.to.out.text);
        let valid = batch.is_valid(&mut self.reading.log)?;
        if let Err(reason) = push_batch_rest(batch, valid, &mut self.records.to.out.text) {
            self.records.end_line();
            return Ok(Some(reason));
        }
        if valid {
            self.doubtful = None;
        } else {
            self.doubtful = self.doubtful.or(Some(batch.position));
            self.tell_of_checksum(batch);
        }
        if self.records.to.options.deep_iteration {
            match self.records.dump_batch(batch, valid, &mut self.reading) {
                Ok(()) => {}
                Err(Failure::Bytes(reason)) => return Ok(Some(reason)),
                Err(Failure::File(error)) => return Err(error),
            }
        }
        if valid {
            let next = Offset::new(batch.last_offset()).map(Offset::next);
            self.expected = self.expected.max(next.unwrap_or_default());
        }
        Ok(None)
    }

    fn tell_of_checksum(&mut self, batch: &RawBatch) {
        let path = self.reading.log.file.path().display();
        let (position, bytes) = (batch.position, batch.bytes);
        let (first, last) = (batch.offset(), batch.last_offset());
        self.records.to.report.damage(&format_args!(
            "{path}, position {position}: the checksum of these {bytes} bytes is wrong, which \
             would be offsets {first} to {last}"
        ));
    }

    /// Finds where batches go on behind a place at which Kafka's tool stops, and tells what lies
    /// between; `reason` is `None` where the bytes only seem to stop. False when none follow.
    fn go_on_behind(&mut self, reason: Option<String>) -> Result<bool> {
        let (disk, segment) = (&self.reading.log.disk, &self.reading.segment);
        let most = MOST_BATCH_BYTES as u64;
        let mut scanner = Scanner::new(Arc::clone(disk), Arc::clone(segment), CHUNK, most);
        let start = self.doubtful.take().unwrap_or(self.position);
        scanner.seek(Position::new(start), self.expected);
        let report = &mut *self.records.to.report;
        let path = self.reading.log.file.path().display();
        loop {
            match scanner.step()? {
                Item::Damage(stretch) => report.damage(&stretch.error()),
                Item::Batch(header, position) if position.get() == start => {
                    let (first, last) = (header.base_offset, header.last_offset);
                    let reason = reason.as_deref().unwrap_or("the records cannot be read");
                    report.damage(&format_args!(
                        "{path}, position {position}: {reason} (offsets {first} to {last} cannot \
                         be read, or not all of them)"
                    ));
                    self.position = start + header.bytes;
                    self.expected = scanner.expected();
                    return Ok(true);
                }
                Item::Batch(header, position) => {
                    self.position = position.get();
                    self.expected = self.expected.max(header.base_offset);
                    return Ok(true);
                }
                Item::End { torn, .. } => {
                    if let Some(reason) = reason {
                        let position = self.position;
                        report.damage(&format_args!(
                            "{path}, position {position}: {reason}; no batch follows in the last \
                             {torn} bytes"
                        ));
                    }
                    return Ok(false);
                }
            }
        }
    }
}

/// Why the records of a batch are not all printed.
enum Failure {
    Bytes(String),
    File(Error),
}

impl From<FormatError> for Failure {
    fn from(error: FormatError) -> Failure {
        Failure::Bytes(error.to_string())
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        match error {
            Error::Damage { reason, .. } => Failure::Bytes(reason),
            other => Failure::File(other),
        }
    }
}

impl Records<'_, '_, '_> {
    fn dump_batch(
        &mut self,
        batch: &RawBatch,
        valid: bool,
        reading: &mut Reading,
    ) -> Result<(), Failure> {
        let Reading { log, segment, batches, unpacker } = reading;
        let raw = if batch.bytes <= SMALL_BATCH_BYTES {
            let bytes = usize::try_from(batch.bytes).unwrap_or(0);
            Some(log.read(batch.position, bytes)?)
        } else {
            None
        };
        let position = Position::new(batch.position);
        if !batch.is_v2() {
            if let Some(raw) = raw.filter(|_| batch.codec() == Codec::None) {
                return self.print_message(batch, valid, raw);
            }
            let header = batch.legacy_header()?;
            unpacker.prepare(batches, segment, position, &header, raw)?;
            return self.print_messages(batch, &header, unpacker.bytes(raw));
        }
        match batch.count() {
            0 => return Ok(()),
            1.. if batch.bytes >= HEADER_BYTES as u64 => {}
            1.. => return Err(Failure::Bytes("the batch ends within its header".to_owned())),
            count => {
                let magic = batch.magic;
                let reason = format!("Found invalid record count {count} in magic v{magic} batch");
                return Err(Failure::Bytes(reason));
            }
        }
        let header = batch.for_records();
        unpacker.prepare(batches, segment, position, &header, raw)?;
        let bytes = unpacker.bytes(raw);
        if valid {
            self.print_records(batch, &header, bytes)
        } else {
            self.print_unchecked_records(batch, &header, bytes)
        }
    }

    /// The records of a batch of magic 2.
    fn print_records(
        &mut self,
        batch: &RawBatch,
        header: &BatchHeader,
        bytes: &[u8],
    ) -> Result<(), Failure> {
        let common = Common::of(batch);
        let mut cursor = Cursor::new(header, bytes)?;
        loop {
            let more = cursor.show_while(header, bytes, |record| {
                let names = record.headers.iter().map(|(name, _)| name);
                self.print_record(batch, &common, Place::of(record), names, record);
                !self.to.out.is_full()
            })?;
            if !more || !self.to.out.go_on() {
                return Ok(());
            }
        }
    }

    /// The records of a batch of magic 2 with a wrong checksum.
    fn print_unchecked_records(
        &mut self,
        batch: &RawBatch,
        header: &BatchHeader,
        bytes: &[u8],
    ) -> Result<(), Failure> {
        let common = Common::of(batch);
        let mut rest = bytes;
        for _ in 0..header.records_count {
            let at = bytes.len() - rest.len();
            let (found, after) = unchecked::read_record(header, rest)
                .ok_or_else(|| Failure::Bytes(format!("invalid record at byte {at}")))?;
            rest = after;
            let names = found.header_names.iter().copied();
            self.print_record(batch, &common, place_of(&found), names, &found.record);
            if !self.to.out.go_on() {
                return Ok(());
            }
        }
        match rest.len() {
            0 => Ok(()),
            left => Err(Failure::Bytes(format!("{left} bytes are left after the last record"))),
        }
    }

    /// A message of magic 0 or 1 that is no wrapper. Its offset is outside the checksum.
    fn print_message(&mut self, batch: &RawBatch, valid: bool, raw: &[u8]) -> Result<(), Failure> {
        let found = unchecked::read_message(raw)
            .ok_or_else(|| Failure::Bytes("the message ends before its fields do".to_owned()))?;
        // The offset of a message is not counted from anywhere.
        let common = Common { base_offset: batch.offset(), ..Common::of(batch) };
        let place = place_of(&found);
        let offset = self.begin_message(&common, place, &found.record, || (valid, batch.crc()));
        if found.is_cut && self.to.options.print_data_log {
            self.end_line();
            return Err(Failure::Bytes("the message ends before its value does".to_owned()));
        }
        self.print_contents(batch, &found.record, offset);
        self.end_line();
        Ok(())
    }

    /// Prints what precedes the contents of a message; `checksum` says whether it is right,
    /// and what it is. The offset of the message.
    fn begin_message(
        &mut self,
        common: &Common,
        place: Place,
        record: &Record<'_>,
        checksum: impl FnOnce() -> (bool, u32),
    ) -> i64 {
        let offset = self.follow(place.offset(common));
        if !self.to.options.skip_record_metadata {
            let text = &mut self.to.out.text;
            self.line.push(common, place, record.timestamp, std::iter::empty(), text);
            let (valid, checksum) = checksum();
            line::push_checksum(valid, checksum, text);
        }
        offset
    }

    #[inline]
    fn print_record<'a>(
        &mut self,
        batch: &RawBatch,
        common: &Common,
        place: Place,
        header_names: impl Iterator<Item = &'a [u8]>,
        record: &Record<'a>,
    ) {
        let offset = self.follow(place.offset(common));
        let (options, text) = (self.to.options, &mut self.to.out.text);
        if !options.skip_record_metadata {
            self.line.push(common, place, record.timestamp, header_names, text);
            if batch.is_control()
                && let Err(reason) = push_control(record, text)
            {
                self.tell_of_record(batch, offset, &reason);
            }
        }
        self.print_contents(batch, record, offset);
        self.end_line();
    }

    /// Notes a gap before the record; gives its offset.
    #[inline]
    fn follow(&mut self, offset: i64) -> i64 {
        if offset != self.previous_offset.wrapping_add(1) {
            self.found.gaps.add(self.previous_offset, offset);
        }
        self.previous_offset = offset;
        offset
    }

    #[inline]
    fn print_contents(&mut self, batch: &RawBatch, record: &Record<'_>, offset: i64) {
        let options = self.to.options;
        if !options.print_data_log || batch.is_control() {
            return;
        }
        let prefix = if options.skip_record_metadata { "| " } else { " " };
        let pushed = options.decoder.push(record, offset, prefix, &mut self.to.out.text);
        if let Err(reason) = pushed {
            self.tell_of_record(batch, offset, &reason);
        }
    }

    /// The messages of magic 0 or 1 in a wrapper.
    fn print_messages(
        &mut self,
        batch: &RawBatch,
        header: &BatchHeader,
        bytes: &[u8],
    ) -> Result<(), Failure> {
        let common = Common::of(batch);
        let mut cursor = Cursor::new(header, bytes)?;
        let mut rest = bytes;
        while let Some(record) = cursor.next(header, bytes) {
            let record = record?;
            let message = BatchHeader::parse(rest)?;
            let length = usize::try_from(message.bytes).unwrap_or(LOG_OVERHEAD);
            let (this, after) = rest.split_at_checked(length).unwrap_or((rest, &[]));
            rest = after;
            let place = Place::of(&record);
            let checksum = || (message.checksum(this) == message.crc, message.crc);
            let offset = self.begin_message(&common, place, &record, checksum);
            self.print_contents(batch, &record, offset);
            self.end_line();
            if !self.to.out.go_on() {
                break;
            }
        }
        Ok(())
    }

    #[cold]
    fn tell_of_record(&mut self, batch: &RawBatch, offset: i64, reason: &str) {
        let position = batch.position;
        self.to.report.damage(&format_args!(
            "the record at offset {offset}, in the batch at position {position}: {reason}"
        ));
    }

    #[inline]
    fn end_line(&mut self) {
        self.to.out.text.push(b'\n');
    }
}

fn place_of(found: &Unchecked<'_>) -> Place {
    Place {
        offset_delta: i64::from(found.offset_delta),
        key_size: i64::from(found.key_size),
        value_size: i64::from(found.value_size),
    }
}
