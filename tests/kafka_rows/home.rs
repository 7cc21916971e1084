//! A data directory with one partition, `t-0`, that is opened, written, left and opened again.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use offsetfs::engine::config::SETTINGS_FILE;
use offsetfs::engine::data_dir::DataDir;
use offsetfs::engine::log::{Found, Log, LogState};
use offsetfs::engine::options::{Isolation, ReadOptions};
use offsetfs::engine::read::{Reading, Step, Wanted};
use offsetfs::engine::recovery;
use offsetfs::engine::writer::Writer;
use offsetfs::error::Result;
use offsetfs::format::batch::BatchHeader;
use offsetfs::format::index::{OffsetIndex, TimeIndex, parse_txn_index};
use offsetfs::fs::change::{LogSink, stream_limits};
use offsetfs::units::{LeaderEpoch, Offset, Timestamp};
use offsetfs::view::append::AppendStream;
use offsetfs::view::name::Format;

use crate::support::kafkalog::{Batch, Partition, T0, checkpoint, data_dir};

const MARKER: &str = ".kafka_cleanshutdown";
const RECOVERY_POINT: &str = "recovery-point-offset-checkpoint";

pub struct Home {
    scratch: tempfile::TempDir,
    open: Option<(DataDir, Arc<Log>)>,
    isolation: Isolation,
    /// Milliseconds since 1970, for what is written now.
    pub clock: i64,
}

pub fn offset(raw: i64) -> Offset {
    Offset::new(raw).unwrap()
}

impl Home {
    /// A directory that was left in order, with this partition and these settings (words
    /// `NAME=VALUE`).
    pub fn new(partition: &Partition, settings: &str) -> Home {
        let scratch = crate::support::scratch();
        data_dir(scratch.path(), std::slice::from_ref(partition));
        let lines = settings.replace(' ', "\n") + "\n";
        fs::write(scratch.path().join("t-0").join(SETTINGS_FILE), lines).unwrap();
        let isolation = Isolation::ReadUncommitted;
        Home { scratch, open: None, isolation, clock: T0 + 1_000_000_000 }
    }

    /// From now on as if a crash had been the end, with everything before `recovery_point` on the
    /// disk.
    pub fn unclean(mut self, recovery_point: i64) -> Home {
        self.crash();
        fs::remove_file(self.root().join(MARKER)).unwrap_or_default();
        let line = format!("t 0 {recovery_point}");
        fs::write(self.root().join(RECOVERY_POINT), checkpoint(&[line])).unwrap();
        self
    }

    /// Only what is committed is read.
    pub fn read_committed(mut self) -> Home {
        self.isolation = Isolation::ReadCommitted;
        self
    }

    pub fn root(&self) -> &Path {
        self.scratch.path()
    }

    /// A file of the partition.
    pub fn file(&self, base: i64, suffix: &str) -> PathBuf {
        self.root().join("t-0").join(format!("{base:020}.{suffix}"))
    }

    /// The files of the partition with this suffix, by the numbers in their names.
    pub fn files(&self, suffix: &str) -> Vec<i64> {
        let paths = crate::support::writing::files(&self.root().join("t-0"), suffix);
        paths
            .iter()
            .map(|path| path.file_stem().unwrap().to_str().unwrap().parse().unwrap())
            .collect()
    }

    pub fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.clock)
    }

    fn opened(&mut self) -> &(DataDir, Arc<Log>) {
        let options = ReadOptions { isolation: self.isolation, ..ReadOptions::default() };
        let path = self.scratch.path();
        self.open.get_or_insert_with(|| {
            let data = DataDir::writable(path, None, options).unwrap();
            let log = data.log("t-0".as_ref()).unwrap().unwrap();
            (data, log)
        })
    }

    pub fn data_dir(&mut self) -> &DataDir {
        &self.opened().0
    }

    pub fn log(&mut self) -> Arc<Log> {
        Arc::clone(&self.opened().1)
    }

    /// Does `work` with the writer; the log is recovered where that is due.
    pub fn write<T>(&mut self, work: impl FnOnce(&mut Writer) -> Result<T>) -> Result<T> {
        let now = self.now();
        let (data, log) = self.opened();
        data.write(log, now, work)
    }

    /// Opens the log to write it, and writes nothing.
    pub fn load(&mut self) -> Arc<LogState> {
        self.write(|_| Ok(())).unwrap();
        self.state()
    }

    pub fn state(&mut self) -> Arc<LogState> {
        self.log().state().unwrap()
    }

    /// Bytes into `append.raw`, in one write: how many were taken, or also why not all.
    pub fn raw(&mut self, bytes: &[u8]) -> std::result::Result<usize, (usize, String)> {
        let at = self.now();
        let result = self.write(|writer| {
            let limits = stream_limits(writer.limits(), true);
            let mut stream = AppendStream::new(Format::Raw);
            Ok(stream.write(bytes, limits, &mut LogSink { writer, at }))
        });
        let result = result.unwrap();
        result.error.map_or(Ok(result.accepted), |e| Err((result.accepted, e.to_string())))
    }

    /// A batch that must be taken, as a follower takes one.
    pub fn follow(&mut self, batch: &Batch) {
        let bytes = batch.build();
        assert_eq!(self.raw(&bytes), Ok(bytes.len()));
    }

    /// Lines into `append`, in one write, which must be taken.
    pub fn lead(&mut self, lines: &str) {
        assert_eq!(self.try_lead(lines), Ok(lines.len()));
    }

    pub fn try_lead(&mut self, lines: &str) -> std::result::Result<usize, (usize, String)> {
        self.text(Format::Lines, lines)
    }

    /// JSON lines into `append.jsonl`, in one write.
    pub fn json(&mut self, lines: &str) -> std::result::Result<usize, (usize, String)> {
        self.text(Format::Jsonl, lines)
    }

    fn text(&mut self, format: Format, text: &str) -> std::result::Result<usize, (usize, String)> {
        let at = self.now();
        let result = self.write(|writer| {
            let limits = stream_limits(writer.limits(), false);
            let mut stream = AppendStream::new(format);
            Ok(stream.write(text.as_bytes(), limits, &mut LogSink { writer, at }))
        });
        let result = result.unwrap();
        result.error.map_or(Ok(result.accepted), |e| Err((result.accepted, e.to_string())))
    }

    /// An orderly end.
    pub fn close(&mut self) {
        let now = self.now();
        self.opened().0.shut_down(now).unwrap();
        self.open = None;
    }

    /// No end at all: what is in the files is all that is left.
    pub fn crash(&mut self) {
        self.open = None;
    }

    /// Cuts the log as `offsetfs truncate` does, and leaves it in order.
    pub fn truncate(&mut self, target: i64) {
        self.load();
        let (now, log) = (self.now(), self.log());
        log.close_writer(now).unwrap();
        recovery::truncate(&log, offset(target), true).unwrap();
        drop(log);
        self.load();
        self.close();
    }

    /// Base offsets of the segments.
    pub fn bases(&mut self) -> Vec<i64> {
        self.state().segments.iter().map(|segment| segment.base_offset.get()).collect()
    }

    pub fn log_end(&mut self) -> i64 {
        self.state().log_end.get()
    }

    /// The headers of all batches, from the first on the disk.
    pub fn headers(&mut self) -> Vec<BatchHeader> {
        let (log, state) = (self.log(), self.state());
        let start = state.disk_start;
        let mut reading = Reading::new(&log, &state, start, Wanted::All, None).unwrap();
        let mut headers = Vec::new();
        loop {
            match reading.step().unwrap() {
                Step::Batch(header) => headers.push(header),
                Step::Damage(stretch) => panic!("{}", stretch.error()),
                Step::End => return headers,
            }
        }
    }

    /// Offsets and values of all data records that are shown.
    pub fn records(&mut self) -> Vec<(i64, String)> {
        let (log, state) = (self.log(), self.state());
        let start = state.log_start;
        let end = log.visible_end(&state).unwrap();
        let mut reading = Reading::new(&log, &state, start, Wanted::Data, None).unwrap();
        let mut found = Vec::new();
        loop {
            match reading.step().unwrap() {
                Step::Batch(_) => {}
                Step::Damage(stretch) => panic!("{}", stretch.error()),
                Step::End => break,
            }
            let mut cursor = reading.cursor().unwrap().unwrap();
            let (header, payload) = reading.records().unwrap();
            while let Some(record) = cursor.next(header, payload) {
                let record = record.unwrap();
                let value = String::from_utf8_lossy(record.value.unwrap_or_default()).into_owned();
                found.push((record.offset, value));
            }
        }
        found.retain(|(at, _)| (start..end).contains(at));
        found.into_iter().map(|(at, value)| (at.get(), value)).collect()
    }

    /// The offsets of all data records that are shown.
    pub fn offsets(&mut self) -> Vec<i64> {
        self.records().into_iter().map(|(at, _)| at).collect()
    }

    /// The value of the record at `at`, as `by-offset/N` finds it.
    pub fn value(&mut self, at: i64) -> Option<String> {
        let (log, state) = (self.log(), self.state());
        value_of(log.find(&state, offset(at)).unwrap())
    }

    /// The first record at or behind `at`.
    pub fn first_from(&mut self, at: i64) -> Option<i64> {
        let (log, state) = (self.log(), self.state());
        match log.find_from(&state, offset(at), None).unwrap() {
            Found::Record(found, ..) => Some(found.record().unwrap().offset.get()),
            Found::Damaged(stretch) => panic!("{}", stretch.error()),
            Found::Nothing => None,
        }
    }

    /// Timestamp, offset and leader epoch of the first record that is not older than `time`.
    pub fn at_time(&mut self, time: i64) -> Option<(i64, i64, Option<i32>)> {
        let (log, state) = (self.log(), self.state());
        match log.find_time(&state, Timestamp::from_millis(time), None).unwrap() {
            Found::Record(found, ..) => {
                let record = found.record().unwrap();
                let epoch = found.batch.header.leader_epoch.map(LeaderEpoch::get);
                Some((record.timestamp.unwrap().millis(), record.offset.get(), epoch))
            }
            Found::Damaged(stretch) => panic!("{}", stretch.error()),
            Found::Nothing => None,
        }
    }

    /// Offset and position of each entry in the offset index of the segment at `base`.
    pub fn offset_entries(&mut self, base: i64) -> Vec<(i64, u64)> {
        let (log, state) = (self.log(), self.state());
        let segment = state.segments.iter().find(|s| s.base_offset == offset(base)).unwrap();
        let bytes = log.shared().offset_index(segment);
        let entries = OffsetIndex::new(segment.base_offset, &bytes);
        entries.iter().map(|entry| (entry.offset.get(), entry.position.get())).collect()
    }

    /// Timestamp and offset of each entry in the time index of the segment at `base`.
    pub fn time_entries(&mut self, base: i64) -> Vec<(i64, i64)> {
        let (log, state) = (self.log(), self.state());
        let segment = state.segments.iter().find(|s| s.base_offset == offset(base)).unwrap();
        let bytes = log.shared().time_index(segment);
        let entries = TimeIndex::new(segment.base_offset, &bytes);
        entries.iter().map(|entry| (entry.timestamp.millis(), entry.offset.get())).collect()
    }

    /// Producer, first offset, marker and last stable offset of each aborted transaction in the
    /// index files.
    pub fn aborted(&self) -> Vec<(i64, i64, i64, i64)> {
        let bytes = self.files("txnindex").into_iter().map(|base| self.file(base, "txnindex"));
        let entries = bytes.flat_map(|path| parse_txn_index(&fs::read(path).unwrap()).unwrap());
        entries
            .map(|entry| {
                let [first, last, stable] =
                    [entry.first_offset, entry.last_offset, entry.last_stable_offset]
                        .map(Offset::get);
                (entry.producer_id, first, last, stable)
            })
            .collect()
    }

    pub fn size_of(&self, base: i64, suffix: &str) -> u64 {
        fs::metadata(self.file(base, suffix)).unwrap().len()
    }

    pub fn recovery_point(&mut self) -> i64 {
        self.write(|writer| Ok(writer.standing().recovery_point)).unwrap().get()
    }
}

fn value_of(found: Found) -> Option<String> {
    match found {
        Found::Record(found, ..) => {
            let value = found.record().unwrap().value.unwrap_or_default().to_vec();
            Some(String::from_utf8(value).unwrap())
        }
        Found::Damaged(stretch) => panic!("{}", stretch.error()),
        Found::Nothing => None,
    }
}

/// A batch of one record with this time.
pub fn one(at: i64, time: i64) -> Batch {
    use crate::support::kafkalog::{batch, rec};
    batch(at, vec![rec(format!("v{at}")).at(time)])
}

/// A batch of one record without a time.
pub fn untimed(at: i64) -> Batch {
    Batch { base_ts: Some(-1), max_ts: Some(-1), ..one(at, -1) }
}
