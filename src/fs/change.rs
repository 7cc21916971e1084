//! What can be changed on a writable mount: records appended, settings and the log start written,
//! partitions made and removed. Everything else is refused.

use std::ffi::OsStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::engine::disk::replace_small;
use crate::engine::log::Log;
use crate::engine::producers::Marker;
use crate::engine::writer::Writer;
use crate::engine::{self, config};
use crate::error::{Error, Result};
use crate::format::batch::HEADER_BYTES;
use crate::format::codec::Codec;
use crate::format::record::Cursor;
use crate::fs::errno::Errno;
use crate::fs::node::{NameId, Node, View};
use crate::fs::tree::{Answer, Handle, Opened, Tree};
use crate::units::{Offset, Timestamp};
use crate::view::append::{AppendError, AppendStream, Limits, Partial, RecordError, Records, Sink};
use crate::view::name::Format;
use crate::view::parse_number;
use crate::view::render::NewRecord;
use crate::view::render::raw::NewBatch;

/// A raw batch may expand to this at the most while it is checked.
const RAW_EXPANDED_BYTES: usize = 64 << 20;
/// No record of one open file is longer, whatever the settings say.
const MOST_RECORD_BYTES: usize = 256 << 20;

/// Milliseconds since 1970 by the clock.
pub fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// An open file that is written.
#[derive(Debug)]
pub struct Written {
    pub(super) partition: NameId,
    pub(super) view: View,
    stream: Mutex<AppendStream>,
}

impl Written {
    fn stream(&self) -> MutexGuard<'_, AppendStream> {
        self.stream.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tree {
    /// Opens a file to write it. On a read-only mount nothing can be, and on a writable one only
    /// what is made for it.
    pub fn open_to_write(&self, number: u64) -> Answer<Opened> {
        if !self.is_writable() {
            return Err(Errno::READ_ONLY);
        }
        let node = self.node(number)?;
        let Node::View(partition, view) = node else { return Err(Errno::NOT_PERMITTED) };
        if !view.is_writable() {
            return Err(Errno::NOT_PERMITTED);
        }
        let format = match view {
            View::Append(format) => format,
            _ => Format::Lines,
        };
        let stream = Mutex::new(AppendStream::new(format));
        let written = Written { partition, view, stream };
        let handle = self.add_handle(Handle::Written(Arc::new(written)));
        Ok(Opened { handle, keep_cache: false, direct: true, content: None })
    }

    /// Takes the bytes of one write; how many of them. `synced` when they are to be on the disk.
    pub fn write(&self, handle: u64, data: &[u8], synced: bool) -> Answer<usize> {
        if self.is_closing() {
            return Err(Errno::GONE);
        }
        let written = self.written(handle)?;
        match written.view {
            View::Append(_) => self.append(&written, data, synced),
            View::Config => self.write_config(written.partition, data),
            View::LogStartOffset => self.write_log_start(written.partition, data),
            _ => Err(Errno::NOT_PERMITTED),
        }
    }

    fn append(&self, written: &Written, data: &[u8], synced: bool) -> Answer<usize> {
        let log = self.log(written.partition)?;
        log.check_appendable().map_err(|e| self.said(written, e))?;
        let result = self.with_sink(written, &log, |stream, limits, sink| {
            let result = stream.write(data, limits, sink);
            if synced {
                sink.writer.sync(sink.at)?;
            }
            Ok(result)
        })?;
        match result.error {
            Some(error) if result.accepted == 0 => Err(self.said(written, into_error(error))),
            Some(error) => {
                self.said(written, into_error(error));
                Ok(result.accepted)
            }
            None => Ok(result.accepted),
        }
    }

    /// Every close of a descriptor: says the error that the rest would meet, but keeps it.
    pub fn flush(&self, handle: u64) -> Answer<()> {
        let Ok(written) = self.written(handle) else { return Ok(()) };
        if written.stream().held_bytes() == 0 {
            return Ok(());
        }
        let log = self.log(written.partition)?;
        self.with_sink(&written, &log, |stream, _, sink| {
            stream.check_finish(sink).map_err(into_error)
        })
    }

    /// Makes a record of the rest, and brings everything to the disk.
    pub fn fsync(&self, handle: u64) -> Answer<()> {
        let Ok(written) = self.written(handle) else { return Ok(()) };
        let log = self.log(written.partition)?;
        self.finish(&written, &log)?;
        self.sync(&log)
    }

    /// The last descriptor was closed.
    pub(super) fn finish_handle(&self, written: &Written) {
        if self.is_closing() {
            return;
        }
        let Ok(log) = self.log(written.partition) else { return };
        if let Err(errno) = self.finish(written, &log) {
            log::warn!(
                "{}: the rest of {:?} is lost: {errno:?}",
                log.path().display(),
                written.view
            );
        }
    }

    fn finish(&self, written: &Written, log: &Arc<Log>) -> Answer<()> {
        if written.stream().held_bytes() == 0 {
            return Ok(());
        }
        self.with_sink(written, log, |stream, _, sink| stream.finish(sink).map_err(into_error))
    }

    /// Before the mount goes: the rests of all open files become records, and the logs are closed.
    pub fn shut_down(&self) -> Result<()> {
        for written in self.all_written() {
            self.finish_handle(&written);
        }
        self.close();
        self.data_dir().shut_down(now())
    }

    fn sync(&self, log: &Arc<Log>) -> Answer<()> {
        let at = now();
        Ok(self.data_dir().write(log, at, |writer| writer.sync(at))?)
    }

    /// Does `work` with the stream of an open file and the log that it goes to.
    fn with_sink<T>(
        &self,
        written: &Written,
        log: &Arc<Log>,
        work: impl FnOnce(&mut AppendStream, Limits, &mut LogSink<'_>) -> Result<T>,
    ) -> Answer<T> {
        let (at, raw) = (now(), written.view == View::Append(Format::Raw));
        let done = self.data_dir().write(log, at, |writer| {
            let limits = stream_limits(writer.limits(), raw);
            work(&mut written.stream(), limits, &mut LogSink { writer, at })
        });
        done.map_err(|e| self.said(written, e))
    }

    /// Keeps what was wrong for whoever asks for `user.last_error`.
    fn said(&self, written: &Written, error: Error) -> Errno {
        let text = error.to_string();
        log::debug!("{:?}: {text}", written.view);
        self.note_error(Node::View(written.partition, written.view), text);
        error.into()
    }

    fn write_config(&self, partition: NameId, data: &[u8]) -> Answer<usize> {
        let log = self.log(partition)?;
        let node = Node::View(partition, View::Config);
        let text = std::str::from_utf8(data).map_err(|_| Errno::INVALID)?;
        let changed = config::change(&config::settings_here(&log), text).map_err(|reason| {
            self.note_error(node, reason);
            Errno::INVALID
        })?;
        let shared = log.shared();
        let access = shared.access.as_ref().ok_or(Errno::READ_ONLY)?;
        access.begin(&*shared.disk)?;
        let path = log.path().join(config::SETTINGS_FILE);
        replace_small(&*shared.disk, &path, config::as_lines(&changed).as_bytes())?;
        let at = now();
        self.data_dir().write(&log, at, |writer| {
            let limits = engine::limits::Limits::new(log.name(), &config::effective(&log));
            writer.set_limits(limits, at)?;
            writer.retain(at)
        })?;
        self.forget_text(node);
        Ok(data.len())
    }

    fn write_log_start(&self, partition: NameId, data: &[u8]) -> Answer<usize> {
        let log = self.log(partition)?;
        let text = data.trim_ascii();
        let start = parse_number(text).and_then(Offset::new).ok_or(Errno::INVALID)?;
        let at = now();
        self.data_dir().write(&log, at, |writer| writer.raise_log_start(start, at))?;
        self.forget_text(Node::View(partition, View::LogStartOffset));
        Ok(data.len())
    }

    /// Makes a partition.
    pub fn make_directory(&self, parent: u64, name: &OsStr) -> Answer<u64> {
        if !self.is_writable() {
            return Err(Errno::READ_ONLY);
        }
        if self.node(parent)? != Node::Root {
            return Err(Errno::NOT_PERMITTED);
        }
        if self.data_dir().listing()?.partitions.contains_key(name) {
            return Err(Errno::EXISTS);
        }
        self.data_dir().create_partition(name, random())?;
        Ok(parent)
    }

    /// Removes a partition that is empty of data, or any whose settings allow it.
    pub fn remove_directory(&self, parent: u64, name: &OsStr) -> Answer<()> {
        if !self.is_writable() {
            return Err(Errno::READ_ONLY);
        }
        if self.node(parent)? != Node::Root {
            return Err(Errno::NOT_PERMITTED);
        }
        let data_dir = self.data_dir();
        let log = data_dir.log(name)?.ok_or(Errno::NOT_FOUND)?;
        let state = log.state()?;
        let limits = engine::limits::Limits::new(log.name(), &config::effective(&log));
        let is_empty = state.segments.iter().all(|segment| segment.valid_bytes == 0);
        if !is_empty && !limits.delete_on_rmdir {
            return Err(Errno::NOT_EMPTY);
        }
        Ok(data_dir.remove_partition(name, random(), now())?)
    }
}

/// 16 bytes that nobody can foresee, from the kernel.
fn random() -> [u8; 16] {
    let mut bytes = [0; 16];
    let read = std::fs::File::open("/dev/urandom")
        .and_then(|mut file| std::io::Read::read_exact(&mut file, &mut bytes));
    if read.is_err() {
        bytes[..8].copy_from_slice(&now().millis().to_be_bytes());
    }
    bytes
}

/// What one record, or one raw batch, may take before it is known what it will take in the log.
pub fn stream_limits(limits: &engine::limits::Limits, raw: bool) -> Limits {
    let record_bytes = match limits.codec.0 {
        _ if raw => usize::try_from(limits.segment_bytes).unwrap_or(usize::MAX),
        Codec::None => limits.batch_bytes(),
        // What is larger may still be compressed to less.
        _ => limits.batch_bytes().saturating_mul(16).min(RAW_EXPANDED_BYTES),
    };
    let record_bytes = record_bytes.min(MOST_RECORD_BYTES);
    Limits { record_bytes, expanded_bytes: RAW_EXPANDED_BYTES }
}

/// The log as the place where records go.
pub struct LogSink<'a> {
    /// The log as it is written.
    pub writer: &'a mut Writer,
    /// When.
    pub at: Timestamp,
}

impl Sink for LogSink<'_> {
    fn append(&mut self, records: &mut Records<'_>) -> std::result::Result<(), Partial> {
        let begun = self.writer.begin_append(self.at);
        let mut appending =
            begun.map_err(|e| Partial { stored: 0, error: into_append_error(e) })?;
        let added = records.try_show(|record| appending.add(record));
        let (stored, finished) = appending.finish();
        finished.and(added).map_err(|e| Partial { stored, error: into_append_error(e) })
    }

    fn append_batch(&mut self, batch: &NewBatch<'_>) -> std::result::Result<(), AppendError> {
        let marker = batch.header.control.then(|| control_marker(batch)).flatten();
        let done = self.writer.append_batch(batch.bytes, &batch.header, marker, self.at);
        done.map_err(into_append_error)
    }

    fn check(&mut self, record: &NewRecord<'_>) -> std::result::Result<(), AppendError> {
        let checked = self.writer.begin_append(self.at).and_then(|mut appending| {
            let added = record.lend(|record| appending.add(record));
            added.and(appending.check())
        });
        checked.map_err(into_append_error)
    }
}

fn control_marker(batch: &NewBatch<'_>) -> Option<Marker> {
    let payload = batch.bytes.get(HEADER_BYTES..)?;
    let record = Cursor::new(&batch.header, payload).ok()?.next(&batch.header, payload)?.ok()?;
    Marker::of(&record)
}

fn into_append_error(error: Error) -> AppendError {
    match error {
        Error::TooLarge(reason) => AppendError::Record(RecordError::TooLarge(reason)),
        Error::Invalid(reason) => AppendError::Record(RecordError::Invalid(reason)),
        other => AppendError::Log(other),
    }
}

/// The error of a write in the words of the engine.
pub fn into_error(error: AppendError) -> Error {
    match error {
        AppendError::Record(RecordError::TooLarge(reason)) => Error::TooLarge(reason),
        AppendError::Record(RecordError::Invalid(reason)) => Error::Invalid(reason),
        AppendError::Log(error) => error,
    }
}
