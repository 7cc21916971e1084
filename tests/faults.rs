//! Each call that changes something on the disk fails once, and then for good: an error, no panic,
//! and a log that opens again with every record whose append was acknowledged and no other.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use offsetfs::engine::access::WriteAccess;
use offsetfs::engine::data_dir::DataDir;
use offsetfs::engine::disk::{Disk, DiskFile, Facts, FileId, RealDisk};
use offsetfs::engine::log::{Found, Log};
use offsetfs::engine::options::ReadOptions;
use offsetfs::engine::writer::Writer;
use offsetfs::error::{Error, Result};
use offsetfs::format::builder::NewRecord;
use offsetfs::inspect::check::{self, Progress};
use offsetfs::units::{Offset, Position, Timestamp};

const NAME: &str = "t-0";

/// What happens at the call that fails, and afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// Only that call fails.
    Once,
    /// Nothing works any more.
    ForGood,
}

/// The real files, of which one changing call fails. A sync that works does nothing, for speed.
#[derive(Debug)]
struct FaultyDisk {
    real: RealDisk,
    calls: AtomicUsize,
    fails_at: usize,
    fault: Fault,
    tripped: AtomicBool,
    failed_syncs: Mutex<Vec<FileId>>,
    retried_sync: AtomicBool,
    story: Mutex<String>,
    /// Bytes of every segment that cannot be read.
    bad: Mutex<Range<u64>>,
}

impl FaultyDisk {
    fn new(fails_at: usize, fault: Fault) -> Arc<FaultyDisk> {
        Arc::new(FaultyDisk {
            real: RealDisk::new(64),
            calls: AtomicUsize::new(0),
            fails_at,
            fault,
            tripped: AtomicBool::new(false),
            failed_syncs: Mutex::default(),
            retried_sync: AtomicBool::new(false),
            story: Mutex::default(),
            bad: Mutex::default(),
        })
    }

    fn tripped(&self) -> bool {
        self.tripped.load(Ordering::Relaxed)
    }

    fn call(&self, action: &'static str, path: &Path) -> Result<()> {
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        let fails = match self.fault {
            Fault::Once => number == self.fails_at,
            Fault::ForGood => number >= self.fails_at,
        };
        if !fails {
            return Ok(());
        }
        if !self.tripped.swap(true, Ordering::Relaxed) {
            *self.story.lock().unwrap() = format!("{number}: {action} {}", path.display());
        }
        let code = if number.is_multiple_of(2) { libc::ENOSPC } else { libc::EIO };
        Err(Error::io(action, path)(io::Error::from_raw_os_error(code)))
    }
}

impl Disk for FaultyDisk {
    fn list(&self, directory: &Path) -> Result<Vec<OsString>> {
        self.real.list(directory)
    }

    fn resolve(&self, path: &Path) -> Result<PathBuf> {
        self.real.resolve(path)
    }

    fn facts(&self, path: &Path) -> Result<Facts> {
        self.real.facts(path)
    }

    fn facts_of(&self, file: &DiskFile) -> Result<Facts> {
        self.real.facts_of(file)
    }

    fn create(&self, path: &Path) -> Result<DiskFile> {
        self.call("create", path)?;
        self.real.create(path)
    }

    fn write_at(&self, file: &DiskFile, at: Position, bytes: &[u8]) -> Result<()> {
        if let Err(e) = self.call("write", &file.path) {
            self.real.write_at(file, at, &bytes[..bytes.len() / 2])?;
            return Err(e);
        }
        self.real.write_at(file, at, bytes)
    }

    fn set_bytes(&self, file: &DiskFile, bytes: u64) -> Result<()> {
        self.call("set the length of", &file.path)?;
        self.real.set_bytes(file, bytes)
    }

    fn reserve(&self, file: &DiskFile, from: Position, bytes: u64) -> Result<bool> {
        self.call("reserve blocks of", &file.path)?;
        self.real.reserve(file, from, bytes)
    }

    fn sync(&self, file: &DiskFile) -> Result<()> {
        let extension = file.path.extension().unwrap_or_default();
        let watched = extension == "log" || extension == "index" || extension == "timeindex";
        let mut failed = self.failed_syncs.lock().unwrap();
        if failed.contains(&file.id) {
            self.retried_sync.store(true, Ordering::Relaxed);
        }
        let called = self.call("sync", &file.path);
        if called.is_err() && watched {
            failed.push(file.id);
        }
        called
    }

    fn sync_directory(&self, path: &Path) -> Result<()> {
        self.call("sync directory", path)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.call("rename", from)?;
        self.real.rename(from, to)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        // What is not there is not removed by a broken disk either.
        if self.real.facts(path).is_ok() {
            self.call("remove", path)?;
        }
        self.real.remove(path)
    }

    fn create_directory(&self, path: &Path) -> Result<()> {
        self.call("make", path)?;
        self.real.create_directory(path)
    }

    fn remove_directory(&self, path: &Path) -> Result<()> {
        self.call("remove", path)?;
        self.real.remove_directory(path)
    }

    fn lend(&self, file: &DiskFile) -> Result<Arc<File>> {
        self.real.lend(file)
    }

    fn read_at(&self, file: &DiskFile, at: Position, buffer: &mut [u8]) -> Result<usize> {
        let bad = self.bad.lock().unwrap().clone();
        let wanted = at.get()..at.get() + buffer.len() as u64;
        let is_log = file.path.extension().is_some_and(|extension| extension == "log");
        if is_log && bad.start < wanted.end && wanted.start < bad.end {
            return Err(Error::io("read", &file.path)(io::Error::from_raw_os_error(libc::EIO)));
        }
        self.real.read_at(file, at, buffer)
    }
}

/// What the user was told.
#[derive(Debug, Default)]
struct Told {
    /// Offset and number of each record whose append succeeded.
    stored: Vec<(Offset, usize)>,
    /// Records that were given to append.
    tried: usize,
    /// The log start that was acknowledged, and the highest that was asked for.
    log_start: (Offset, Offset),
    errors: usize,
}

impl Told {
    fn hear<T>(&mut self, result: Result<T>) -> Option<T> {
        self.errors += usize::from(result.is_err());
        result.ok()
    }
}

fn now() -> Timestamp {
    Timestamp::from_millis(1_700_000_000_000)
}

fn offset(raw: i64) -> Offset {
    Offset::new(raw).unwrap()
}

/// The value of record `number`.
fn value(number: usize) -> Vec<u8> {
    format!("{number:05} {}", "x".repeat(number % 7 * 20)).into_bytes()
}

/// Small segments and indexes.
fn shrink(writer: &mut Writer, index_bytes: u64) -> Result<()> {
    let mut limits = writer.limits().clone();
    limits.segment_bytes = 700;
    limits.segment_index_bytes = index_bytes;
    limits.index_interval_bytes = 100;
    writer.set_limits(limits, now())
}

fn append(data: &DataDir, log: &Log, told: &mut Told) {
    let values = [value(told.tried), value(told.tried + 1)];
    let records = values.each_ref().map(|v| NewRecord { value: Some(v), ..NewRecord::default() });
    let first = told.tried;
    told.tried += 2;
    let done = data.write(log, now(), |writer| {
        shrink(writer, 96)?;
        let start = writer.log_end();
        let (stored, result) = writer.append(&records, now());
        for number in 0..stored {
            let at = start.checked_add(i64::try_from(number).unwrap()).unwrap();
            told.stored.push((at, first + number));
        }
        result
    });
    told.hear(done);
}

fn sync(data: &DataDir, log: &Log, told: &mut Told) {
    let synced = told.hear(data.write(log, now(), |writer| writer.sync(now())));
    if synced.is_none() && log.is_written() {
        let refused = data.write(log, now(), |writer| writer.check_usable());
        assert!(matches!(refused, Err(Error::Poisoned { .. })), "appends after a failed sync");
    }
}

fn raise(data: &DataDir, log: &Log, told: &mut Told, start: i64) {
    let start = offset(start);
    let end = data.write(log, now(), |writer| Ok(writer.log_end())).unwrap_or_default();
    if start > end {
        return;
    }
    told.log_start.1 = start;
    let raised = data.write(log, now(), |writer| writer.raise_log_start(start, now()));
    if told.hear(raised).is_some() {
        told.log_start.0 = start;
    }
}

/// A life of a partition.
fn live(directory: &Path, disk: &Arc<FaultyDisk>) -> Told {
    let mut told = Told::default();
    let access = Arc::new(WriteAccess::take(&**disk, directory).unwrap());
    let shared: Arc<dyn Disk> = Arc::<FaultyDisk>::clone(disk);
    let options = ReadOptions::default();
    let data = DataDir::on_disk(shared, directory, None, options, Some(access));
    if told.hear(data.create_partition(NAME.as_ref(), [7; 16])).is_none() {
        told.hear(data.create_partition(NAME.as_ref(), [7; 16]));
    }
    let Some(log) = data.log(NAME.as_ref()).unwrap() else {
        told.hear(data.shut_down(now()));
        return told;
    };
    told.hear(data.write(&log, now(), |writer| shrink(writer, 48)));
    for _ in 0..5 {
        append(&data, &log, &mut told);
    }
    sync(&data, &log, &mut told);
    for _ in 0..5 {
        append(&data, &log, &mut told);
    }
    raise(&data, &log, &mut told, 9);
    for _ in 0..3 {
        append(&data, &log, &mut told);
    }
    sync(&data, &log, &mut told);
    append(&data, &log, &mut told);
    if told.hear(data.shut_down(now())).is_none() {
        // Whoever tries again must not get a clean end by it; `check` looks at what is left.
        told.hear(data.shut_down(now()));
    }
    told
}

fn number_of(value: &[u8]) -> usize {
    std::str::from_utf8(&value[..5]).unwrap().parse().unwrap()
}

/// What is there, by offset.
fn records(log: &Log) -> Vec<(Offset, usize)> {
    let state = log.state().unwrap();
    assert!(state.log_start <= state.log_end && state.high_watermark <= state.log_end);
    let mut found = Vec::new();
    for raw in 0..state.log_end.get() + 2 {
        match log.find(&state, offset(raw)).unwrap() {
            Found::Record(record, ..) => {
                let record = record.record().unwrap();
                let number = number_of(record.value.unwrap());
                assert_eq!(record.value.unwrap(), value(number));
                found.push((record.offset, number));
            }
            Found::Damaged(stretch) => panic!("{}", stretch.error()),
            Found::Nothing => {}
        }
    }
    found
}

/// A broker takes the zeros behind the entries of an index for entries when all was left in order.
fn check_indexes(directory: &Path, story: &str) {
    if !directory.join(".kafka_cleanshutdown").exists() {
        return;
    }
    for entry in std::fs::read_dir(directory.join(NAME)).into_iter().flatten() {
        let path = entry.unwrap().path();
        let entry_bytes = match path.extension().and_then(|extension| extension.to_str()) {
            Some("index") => 8,
            Some("timeindex") => 12,
            _ => continue,
        };
        let bytes = std::fs::read(&path).unwrap();
        let last = bytes.len().checked_sub(entry_bytes).map(|start| &bytes[start..]);
        let padded = last.is_some_and(|last| last.iter().all(|byte| *byte == 0));
        assert!(!padded, "{story}: {} is not trimmed at a clean end", path.display());
    }
}

fn check(directory: &Path, told: &Told, story: &str) {
    check_indexes(directory, story);
    let first = DataDir::writable(directory, None, ReadOptions::default()).unwrap();
    let Some(log) = first.log(NAME.as_ref()).unwrap() else {
        assert!(told.stored.is_empty(), "{story}: the partition is gone");
        return first.shut_down(now()).unwrap();
    };
    first.write(&log, now(), |_| Ok(())).unwrap();
    let start = log.state().unwrap().log_start;
    assert!(told.log_start.0 <= start && start <= told.log_start.1, "{story}: starts at {start}");
    let there = records(&log);
    for stored in told.stored.iter().filter(|(at, _)| *at >= start) {
        assert!(there.contains(stored), "{story}: {stored:?} is lost of {there:?}");
    }
    assert!(there.is_sorted_by(|a, b| a.1 < b.1), "{story}: {there:?}");
    assert!(there.iter().all(|(_, number)| *number < told.tried), "{story}: {there:?}");
    let mut more = Told { tried: told.tried, ..Told::default() };
    for _ in 0..4 {
        append(&first, &log, &mut more);
    }
    assert_eq!(more.errors, 0, "{story}: no appends after it was opened again");
    let wanted: Vec<_> = there.iter().chain(&more.stored).copied().collect();
    assert_eq!(records(&log), wanted, "{story}");
    first.shut_down(now()).unwrap();
    drop((log, first));
    check_indexes(directory, story);
    let second = DataDir::writable(directory, None, ReadOptions::default()).unwrap();
    let log = second.log(NAME.as_ref()).unwrap().unwrap();
    assert_eq!(records(&log), wanted, "{story}: after an orderly end");
}

fn scratch() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let parent = if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() };
    tempfile::tempdir_in(parent).unwrap()
}

fn each_call_fails(fault: Fault) {
    for fails_at in 0.. {
        let directory = scratch();
        let disk = FaultyDisk::new(fails_at, fault);
        let told = live(directory.path(), &disk);
        let story = format!("{fault:?} {}", disk.story.lock().unwrap());
        assert!(!disk.retried_sync.load(Ordering::Relaxed), "{story}: a failed sync was retried");
        assert_eq!(told.errors > 0, disk.tripped(), "{story}: {told:?}");
        check(directory.path(), &told, &story);
        if !disk.tripped() {
            assert!(fails_at > 100, "{fails_at} calls: too few to mean anything");
            return;
        }
    }
}

#[test]
fn one_failing_call_is_an_error_and_loses_nothing() {
    each_call_fails(Fault::Once);
}

#[test]
fn a_disk_that_dies_loses_nothing_that_was_acknowledged() {
    each_call_fails(Fault::ForGood);
}

/// Records were deleted up to the log end, and then the power failed before they were on the disk:
/// the log ended before its noted start, and what was appended afterwards was never shown.
#[test]
fn a_log_that_ends_before_its_start_goes_on_at_its_start() {
    let directory = scratch();
    let disk = FaultyDisk::new(usize::MAX, Fault::Once);
    let told = live(directory.path(), &disk);
    std::fs::remove_file(directory.path().join(".kafka_cleanshutdown")).unwrap();
    let end = told.stored.last().unwrap().0.get() + 1;
    let data = DataDir::writable(directory.path(), None, ReadOptions::default()).unwrap();
    let log = data.log(NAME.as_ref()).unwrap().unwrap();
    data.write(&log, now(), |writer| writer.raise_log_start(offset(end), now())).unwrap();
    drop((log, data));
    let partition = directory.path().join(NAME);
    let segments = std::fs::read_dir(partition).unwrap().map(|entry| entry.unwrap().path());
    let last = segments.filter(|path| path.extension().is_some_and(|e| e == "log")).max();
    std::fs::OpenOptions::new().write(true).open(last.unwrap()).unwrap().set_len(0).unwrap();

    let data = DataDir::writable(directory.path(), None, ReadOptions::default()).unwrap();
    let log = data.log(NAME.as_ref()).unwrap().unwrap();
    let mut more = Told { tried: told.tried, ..Told::default() };
    append(&data, &log, &mut more);
    assert_eq!(more.stored[0].0, offset(end));
    assert_eq!(records(&log), more.stored);
}

/// After a failed close the writer was forgotten, and the second attempt found nothing to close:
/// the marker of a clean end came back over a log that was not.
#[test]
fn a_log_that_cannot_be_closed_is_not_left_in_order_by_trying_again() {
    let directory = scratch();
    let calls = FaultyDisk::new(usize::MAX, Fault::Once);
    live(directory.path(), &calls);
    let calls = calls.calls.load(Ordering::Relaxed);
    let mut refused = 0;
    for fails_at in calls - 40..calls {
        let directory = scratch();
        let disk = FaultyDisk::new(fails_at, Fault::Once);
        live(directory.path(), &disk);
        let story = disk.story.lock().unwrap().clone();
        if story.contains("sync /") && story.contains(NAME) {
            let marker = directory.path().join(".kafka_cleanshutdown");
            assert!(!marker.exists(), "{story}");
            refused += 1;
        }
    }
    assert!(refused > 0, "no sync of the log was hit");
}

/// 6.1: "EIO for the records inside the damaged batch only", also where it is the disk that gives
/// no bytes; `check` names them, and at the end of a log they are no torn tail.
#[test]
fn a_bad_sector_costs_the_batches_in_it() {
    let scratch = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::new(usize::MAX, Fault::Once);
    let open = || {
        let disk: Arc<dyn Disk> = Arc::clone(&disk) as Arc<dyn Disk>;
        DataDir::on_disk(disk, scratch.path(), None, ReadOptions::default(), None)
    };
    let part = scratch.path().join(NAME);
    std::fs::create_dir(&part).unwrap();
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/exact/data/seed-0");
    for entry in std::fs::read_dir(fixture).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), part.join(entry.file_name())).unwrap();
    }
    let bytes = std::fs::metadata(part.join("00000000000000000000.log")).unwrap().len();
    // Records are a batch each, of some 168 bytes.
    for bad in [81_920..90_112, bytes - 2_000..bytes] {
        *disk.bad.lock().unwrap() = bad.clone();
        let sectors = bad.start / 4096 * 4096..bad.end.next_multiple_of(4096).min(bytes);
        let data = open();
        let log = data.log(NAME.as_ref()).unwrap().unwrap();
        let state = log.state().unwrap();
        let is_there = |at: i64| match log.find(&state, offset(at)).unwrap() {
            Found::Record(..) => true,
            Found::Damaged(_) | Found::Nothing => false,
        };
        let gone: Vec<i64> = (0..2000).filter(|at| !is_there(*at)).collect();
        let lost = (sectors.end - sectors.start) / 168;
        assert!((lost..lost + 3).contains(&(gone.len() as u64)), "{} of {lost}", gone.len());
        let found = check::check(&data, 2, now(), &Progress::default()).unwrap();
        let checked = found.into_iter().next().unwrap().1.unwrap();
        assert!(checked.is_damaged(), "{:?}", checked.facts);
        assert_eq!(checked.facts.torn_tail, None);
        assert_eq!(checked.records, 2000 - gone.len() as u64);
    }
}
