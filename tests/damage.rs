//! The damage matrix (contract 6.1, 6.3, 6.6): every byte of small partitions flipped, each length
//! cut, each page zeroed, segments swapped, doubled and lost, every byte of the files beside them
//! flipped. After each: no wrong byte is served, every record outside the damaged batch is, `check`
//! names what is lost, and `repair` loses nothing more.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use offsetfs::engine::data_dir::DataDir;
use offsetfs::engine::log::{Found, Log, LogState};
use offsetfs::engine::options::ReadOptions;
use offsetfs::format::batch::BatchHeader;
use offsetfs::inspect::check::{Checked, Progress, check};
use offsetfs::inspect::repair::{plan, repair};
use offsetfs::units::{Offset, Timestamp};
use tempfile::TempDir;

/// When the fixtures were made, and a little later.
const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

/// Timestamp, key, value.
type Content = (Option<i64>, Option<Vec<u8>>, Option<Vec<u8>>);
type Records = BTreeMap<i64, Content>;

/// One batch of a pristine partition.
#[derive(Clone, Debug)]
struct Batch {
    file: String,
    start: usize,
    end: usize,
    /// The first offset that it can hold and the first behind it.
    offsets: (i64, i64),
}

/// A partition as Kafka wrote it.
struct Pristine {
    name: &'static str,
    source: PathBuf,
    records: Records,
    batches: Vec<Batch>,
    end: i64,
}

fn fixture(set: &str, name: &'static str) -> Pristine {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(set).join("data");
    let dir = open(&data, name);
    let (log, state) = dir.log_and_state(name);
    let records = served(&log, &state, state.log_end.get());
    assert!(!records.is_empty());
    let batches = batches_of(&data.join(name));
    Pristine { name, source: data, records, batches, end: state.log_end.get() }
}

/// The batches of all segments, as their headers have them.
fn batches_of(partition: &Path) -> Vec<Batch> {
    let mut all = Vec::new();
    for file in files(partition, ".log") {
        let bytes = fs::read(partition.join(&file)).unwrap();
        let mut expected = file[..20].parse().unwrap();
        let mut start = 0;
        while start < bytes.len() {
            let header = BatchHeader::parse(&bytes[start..]).unwrap();
            let end = start + usize::try_from(header.bytes).unwrap();
            let offsets = (expected, header.last_offset.get() + 1);
            all.push(Batch { file: file.clone(), start, end, offsets });
            expected = header.last_offset.get() + 1;
            start = end;
        }
    }
    all
}

fn files(partition: &Path, suffix: &str) -> Vec<String> {
    let names = fs::read_dir(partition).unwrap().map(|it| it.unwrap().file_name());
    let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
    names.retain(|name| name.ends_with(suffix));
    names.sort_unstable();
    names
}

struct Opened(DataDir);

fn open(data: &Path, name: &str) -> Opened {
    Opened(DataDir::new(data, Some(OsStr::new(name)), ReadOptions::default()))
}

impl Opened {
    fn log_and_state(&self, name: &str) -> (std::sync::Arc<Log>, std::sync::Arc<LogState>) {
        let log = self.0.log(OsStr::new(name)).unwrap().unwrap();
        let state = log.state().unwrap();
        (log, state)
    }

    fn checked(&self) -> Checked {
        let found = check(&self.0, 1, NOW, &Progress::default()).unwrap();
        found.into_iter().next().unwrap().1.unwrap()
    }
}

/// What is served by offset below `end` and a little behind it.
fn served(log: &Log, state: &LogState, end: i64) -> Records {
    let mut records = Records::new();
    for offset in 0..end + 10 {
        if let Found::Record(found, ..) = log.find(state, Offset::new(offset).unwrap()).unwrap() {
            let record = found.record().unwrap();
            assert_eq!(record.offset.get(), offset);
            let own = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec);
            let time = record.timestamp.map(Timestamp::millis);
            records.insert(offset, (time, own(record.key), own(record.value)));
        }
    }
    records
}

/// A copy that is broken and mended again.
struct Copy<'a> {
    pristine: &'a Pristine,
    scratch: TempDir,
}

impl Copy<'_> {
    fn of(pristine: &Pristine) -> Copy<'_> {
        let copy = Copy { pristine, scratch: tempfile::tempdir().unwrap() };
        copy.restore();
        copy
    }

    fn partition(&self) -> PathBuf {
        self.scratch.path().join(self.pristine.name)
    }

    fn restore(&self) {
        let _ = fs::remove_dir_all(self.partition());
        fs::create_dir_all(self.partition()).unwrap();
        fs::write(self.scratch.path().join(".kafka_cleanshutdown"), "{}").unwrap();
        let original = self.pristine.source.join(self.pristine.name);
        for file in files(&original, "") {
            fs::copy(original.join(&file), self.partition().join(&file)).unwrap();
        }
    }

    /// What is wrong after a change that may cost the records for which `affected` holds.
    fn verdict(&self, affected: &dyn Fn(i64) -> bool, repaired: bool) -> Result<Outcome, String> {
        let dir = open(self.scratch.path(), self.pristine.name);
        let (log, state) = dir.log_and_state(self.pristine.name);
        let got = served(&log, &state, self.pristine.end);
        let wanted = &self.pristine.records;
        for (offset, content) in &got {
            if wanted.get(offset) != Some(content) {
                return Err(format!("offset {offset} is served and wrong"));
            }
        }
        let lost: Vec<i64> = wanted.keys().filter(|it| !got.contains_key(it)).copied().collect();
        if let Some(offset) = lost.iter().find(|offset| !affected(**offset)) {
            return Err(format!("offset {offset} is lost"));
        }
        let checked = dir.checked();
        let torn = checked.facts.torn_tail.is_some() || !checked.torn_segments.is_empty();
        let named = checked.is_damaged() || torn;
        let beside = !checked.facts.indexes.is_empty() || !checked.checkpoints.is_empty();
        if state.log_end.get() != self.pristine.end && !named && !beside {
            return Err(format!("ends at {} and check says sound", state.log_end));
        }
        let ends_early = lost.iter().all(|offset| *offset >= state.log_end.get());
        if !lost.is_empty() && !named && !ends_early {
            return Err(format!("offset {} is lost and check says sound", lost[0]));
        }
        if repaired {
            self.repair(&got)?;
        }
        Ok(if named { Outcome::Named } else { Outcome::Harmless })
    }

    /// Repairs; what was served before must be served after.
    fn repair(&self, before: &Records) -> Result<(), String> {
        let name = OsStr::new(self.pristine.name);
        let data = self.scratch.path();
        let writable = Opened(DataDir::writable(data, Some(name), ReadOptions::default()).unwrap());
        let steps = plan(&writable.checked()).map_err(|e| e.to_string())?;
        let log = writable.0.log(name).unwrap().unwrap();
        repair(&log, &steps).map_err(|e| format!("repair: {e}"))?;
        writable.0.shut_down(NOW).map_err(|e| e.to_string())?;
        drop((log, writable));
        let dir = open(data, self.pristine.name);
        let (log, state) = dir.log_and_state(self.pristine.name);
        let after = served(&log, &state, self.pristine.end);
        if after != *before {
            return Err(format!("repair left {} of {} records", after.len(), before.len()));
        }
        let checked = dir.checked();
        let facts = &checked.facts;
        let is_clean = facts.damage.is_empty() && facts.torn_tail.is_none();
        if !is_clean || !facts.indexes.is_empty() || !checked.checkpoints.is_empty() {
            return Err(format!("after repair: {facts:?} {:?}", checked.checkpoints));
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Named,
    Harmless,
}

/// Runs all changes, in two threads; fails with the first that went wrong. How many were named.
fn matrix<T: Sync>(
    pristine: &Pristine,
    changes: &[T],
    apply: impl Fn(&Copy<'_>, &T) -> Result<Outcome, String> + Sync,
    label: impl Fn(&T) -> String + Sync,
) -> usize {
    let (next, named) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let copy = Copy::of(pristine);
                while let Some(change) = changes.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match apply(&copy, change) {
                        Ok(Outcome::Named) => drop(named.fetch_add(1, Ordering::Relaxed)),
                        Ok(Outcome::Harmless) => {}
                        Err(wrong) => failures.lock().unwrap().push((label(change), wrong)),
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    let first = &failures[..failures.len().min(12)];
    assert!(failures.is_empty(), "{} of {}: {first:#?}", failures.len(), changes.len());
    println!("{}: {} changes, {:?} named", pristine.name, changes.len(), named);
    named.into_inner()
}

/// Flips bits of every byte of every segment.
fn flip_every_byte(set: &str, name: &'static str) {
    let pristine = fixture(set, name);
    let mut flips = Vec::new();
    for batch in &pristine.batches {
        flips.extend((batch.start..batch.end).map(|at| (batch.clone(), at)));
    }
    let named = matrix(
        &pristine,
        &flips,
        |copy, (batch, at)| {
            let path = copy.partition().join(&batch.file);
            let original = fs::read(&path).unwrap();
            let mut bytes = original.clone();
            bytes[*at] ^= if at % 2 == 0 { 0x04 } else { 0xff };
            fs::write(&path, &bytes).unwrap();
            let repaired = at % 37 == 0;
            let (first, end) = batch.offsets;
            let verdict = copy.verdict(&|offset| (first..end).contains(&offset), repaired);
            if repaired {
                copy.restore();
            } else {
                fs::write(&path, &original).unwrap();
            }
            verdict
        },
        |(batch, at)| format!("byte {at} of {} (+{})", batch.file, at - batch.start),
    );
    assert!(named * 10 >= flips.len() * 9, "{named} of {} are named", flips.len());
}

#[test]
fn every_flipped_byte_of_a_plain_log_is_named_or_harmless() {
    flip_every_byte("clean", "a-1-0");
}

#[test]
fn every_flipped_byte_of_a_legacy_log_is_named_or_harmless() {
    flip_every_byte("legacy", "v1-gzip-0");
}

#[test]
fn every_flipped_byte_of_a_log_with_epochs_is_named_or_harmless() {
    flip_every_byte("legacy", "grown-0");
}

/// A base offset that is wrong in some way, and a bit of the batch behind it too, so that it cannot
/// tell: the two are lost and no more.
#[test]
fn a_wrong_base_offset_beside_damage_costs_two_batches() {
    for (set, name) in [("clean", "a-1-0"), ("clean", "plain-0"), ("clean", "zstd-0")] {
        let pristine = fixture(set, name);
        let pairs = pristine.batches.windows(2).filter(|pair| pair[0].file == pair[1].file);
        let mut changes = Vec::new();
        for pair in pairs {
            let added = [1, 6, 64, 100, 1 << 20, 1 << 39, 1 << 62].map(|added| (pair, added));
            changes.extend(added.into_iter().flat_map(|it| [(it, false), (it, true)]));
        }
        matrix(
            &pristine,
            &changes,
            |copy, ((pair, added), and_next)| {
                let path = copy.partition().join(&pair[0].file);
                let original = fs::read(&path).unwrap();
                let mut bytes = original.clone();
                let base: [u8; 8] = *bytes[pair[0].start..].first_chunk().unwrap();
                let wrong = i64::from_be_bytes(base) + added;
                bytes[pair[0].start..][..8].copy_from_slice(&wrong.to_be_bytes());
                if *and_next {
                    bytes[pair[1].end - 1] ^= 1;
                }
                fs::write(&path, &bytes).unwrap();
                let end = pair[usize::from(*and_next)].offsets.1;
                let affected = |offset| (pair[0].offsets.0..end).contains(&offset);
                let verdict = copy.verdict(&affected, false);
                fs::write(&path, &original).unwrap();
                verdict
            },
            |((pair, added), and_next)| {
                let batch = &pair[0];
                format!("{} position {} + {added}, {and_next}", batch.file, batch.start)
            },
        );
    }
}

/// Every length that a segment may be cut to.
#[test]
fn every_length_of_a_cut_log_is_named_or_harmless() {
    let pristine = fixture("legacy", "v1-gzip-0");
    let mut cuts = Vec::new();
    for file in files(&pristine.source.join(pristine.name), ".log") {
        let bytes = fs::metadata(pristine.source.join(pristine.name).join(&file)).unwrap().len();
        cuts.extend((0..bytes).map(|length| (file.clone(), length)));
    }
    matrix(
        &pristine,
        &cuts,
        |copy, (file, length)| {
            let path = copy.partition().join(file);
            fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(*length).unwrap();
            let whole = usize::try_from(*length).unwrap();
            let behind = |offset: i64| {
                pristine.batches.iter().any(|batch| {
                    batch.file == *file
                        && batch.end > whole
                        && (batch.offsets.0..batch.offsets.1).contains(&offset)
                })
            };
            let repaired = length % 41 == 0;
            let verdict = copy.verdict(&behind, repaired);
            if repaired {
                copy.restore();
            } else {
                fs::copy(copy.pristine.source.join(copy.pristine.name).join(file), &path).unwrap();
            }
            verdict
        },
        |(file, length)| format!("{file} cut to {length}"),
    );
}

/// Every page of 4 KiB zeroed, in logs of several segments.
#[test]
fn every_zeroed_page_is_named_or_harmless() {
    for (set, name) in [("clean", "plain-0"), ("clean", "txn-0"), ("clean", "zstd-0")] {
        let pristine = fixture(set, name);
        let mut pages = Vec::new();
        for file in files(&pristine.source.join(name), ".log") {
            let bytes = fs::read(pristine.source.join(name).join(&file)).unwrap().len();
            pages.extend((0..bytes.div_ceil(4096)).map(|page| (file.clone(), page * 4096)));
        }
        matrix(
            &pristine,
            &pages,
            |copy, (file, start)| {
                let path = copy.partition().join(file);
                let mut bytes = fs::read(&path).unwrap();
                let end = bytes.len().min(start + 4096);
                bytes[*start..end].fill(0);
                fs::write(&path, bytes).unwrap();
                let hit = |offset: i64| {
                    pristine.batches.iter().any(|batch| {
                        batch.file == *file
                            && batch.start < end
                            && batch.end > *start
                            && (batch.offsets.0..batch.offsets.1).contains(&offset)
                    })
                };
                let verdict = copy.verdict(&hit, true);
                copy.restore();
                verdict
            },
            |(file, start)| format!("{name}: page at {start} of {file}"),
        );
    }
}

/// Every byte of every file beside the segments flipped: all records are served all the same, by
/// offset and by time.
#[test]
fn every_flipped_byte_beside_the_log_is_harmless() {
    for (set, name) in [("legacy", "v1-gzip-0"), ("clean", "a-1-0"), ("clean", "txn-0")] {
        let pristine = fixture(set, name);
        let original = pristine.source.join(name);
        let mut flips = Vec::new();
        let logs = files(&original, ".log");
        for file in files(&original, "").into_iter().filter(|file| !logs.contains(file)) {
            let bytes = fs::read(original.join(&file)).unwrap().len();
            flips.extend((0..bytes).map(|at| (file.clone(), at)));
        }
        let times = |data: &Path| -> Vec<Option<i64>> {
            let dir = open(data, name);
            let (log, state) = dir.log_and_state(name);
            let times = pristine.records.values().filter_map(|(time, ..)| *time);
            let find = |time| match log.find_time(&state, Timestamp::from_millis(time), None) {
                Ok(Found::Record(found, ..)) => found.record().map(|record| record.offset.get()),
                _ => None,
            };
            times.step_by(7).map(find).collect()
        };
        let wanted = times(&pristine.source);
        matrix(
            &pristine,
            &flips,
            |copy, (file, at)| {
                let path = copy.partition().join(file);
                let intact = fs::read(&path).unwrap();
                let mut bytes = intact.clone();
                bytes[*at] ^= if at % 2 == 0 { 0x01 } else { 0xff };
                fs::write(&path, bytes).unwrap();
                let verdict = copy.verdict(&|_| false, at % 11 == 0)?;
                if times(copy.scratch.path()) != wanted {
                    return Err("other answers by time".to_owned());
                }
                copy.restore();
                if verdict == Outcome::Named {
                    Err("called damage".to_owned())
                } else {
                    Ok(verdict)
                }
            },
            |(file, at)| format!("{name}: byte {at} of {file}"),
        );
    }
}

/// Segments lost, emptied, doubled under another name, and swapped with each other.
#[test]
fn segments_that_are_not_what_their_names_say_are_named() {
    #[derive(Debug)]
    enum Change {
        Lose(usize),
        Empty(usize),
        Double(usize),
        Swap(usize, usize),
    }
    for name in ["plain-0", "txn-0", "mixed-0"] {
        let pristine = fixture("clean", name);
        let logs = files(&pristine.source.join(name), ".log");
        let mut changes = Vec::new();
        for i in 0..logs.len() {
            changes.extend([Change::Lose(i), Change::Empty(i), Change::Double(i)]);
            changes.extend((i + 1..logs.len()).map(|j| Change::Swap(i, j)));
        }
        let holds = |file: &str, offset: i64| {
            pristine.batches.iter().any(|batch| {
                batch.file == file && (batch.offsets.0..batch.offsets.1).contains(&offset)
            })
        };
        matrix(
            &pristine,
            &changes,
            |copy, change| {
                let at = |i: usize| copy.partition().join(&logs[i]);
                let gone: Vec<&str> = match *change {
                    Change::Lose(i) => {
                        fs::remove_file(at(i)).unwrap();
                        vec![&logs[i]]
                    }
                    Change::Empty(i) => {
                        fs::write(at(i), "").unwrap();
                        vec![&logs[i]]
                    }
                    Change::Double(i) => {
                        let base: i64 = logs[i][..20].parse().unwrap();
                        let other = copy.partition().join(format!("{:020}.log", base + 1));
                        fs::copy(at(i), other).unwrap();
                        vec![&logs[i]]
                    }
                    Change::Swap(i, j) => {
                        let (a, b) = (fs::read(at(i)).unwrap(), fs::read(at(j)).unwrap());
                        fs::write(at(i), b).unwrap();
                        fs::write(at(j), a).unwrap();
                        vec![&logs[i], &logs[j]]
                    }
                };
                let affected = |offset: i64| gone.iter().any(|file| holds(file, offset));
                let verdict = copy.verdict(&affected, false);
                copy.restore();
                verdict
            },
            |change| format!("{name}: {change:?}"),
        );
    }
}
