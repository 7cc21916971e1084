//! A log under random operations, reopening and crashing among them, against a `Vec`: after each of
//! them every record, the offsets, the order of the segments and every index entry are looked at.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::path::Path;
use std::sync::Arc;

use offsetfs::engine::data_dir::DataDir;
use offsetfs::engine::load::promised;
use offsetfs::engine::log::{Found, Log, LogState};
use offsetfs::engine::options::ReadOptions;
use offsetfs::engine::read::{Reading, Step, Wanted};
use offsetfs::engine::recovery;
use offsetfs::engine::retention::RetentionLimits;
use offsetfs::engine::window::Window;
use offsetfs::engine::writer::Writer;
use offsetfs::format::batch::{BatchHeader, HEADER_BYTES};
use offsetfs::format::builder::{BatchBuilder, NewRecord};
use offsetfs::format::codec::Codec;
use offsetfs::format::index::{OffsetIndex, TimeIndex};
use offsetfs::units::{LeaderEpoch, Offset, Timestamp};
use proptest::prelude::*;

/// A key or a value: NULL, or so many bytes.
type Bytes = Option<usize>;

#[derive(Clone, Debug)]
enum Operation {
    Append { records: Vec<(Bytes, Bytes)>, codec: Codec },
    AppendBatch { hole: i64, records: usize, epoch: i32 },
    Shrink { segment_bytes: u64, index_bytes: u64 },
    Sync,
    Reopen,
    Crash,
    RaiseLogStart { percent: i64 },
    Retain { bytes: i64 },
    Truncate { percent: i64, discard: bool },
    Mkdir,
}

fn bytes() -> impl Strategy<Value = Bytes> {
    prop_oneof![Just(None), Just(Some(0)), (1..60_usize).prop_map(Some), Just(Some(400))]
}

fn operation() -> impl Strategy<Value = Operation> {
    let codec = prop_oneof![
        4 => Just(Codec::None),
        1 => Just(Codec::Gzip),
        1 => Just(Codec::Snappy),
        1 => Just(Codec::Lz4),
        1 => Just(Codec::Zstd),
    ];
    let records = prop::collection::vec((bytes(), bytes()), 1..8);
    let sizes = (prop_oneof![Just(600_u64), Just(2000), Just(100_000)], 8..200_u64);
    prop_oneof![
        10 => (records, codec).prop_map(|(records, codec)| Operation::Append { records, codec }),
        4 => (0..9_i64, 1..5_usize, 0..3).prop_map(|(hole, records, epoch)| {
            Operation::AppendBatch { hole, records, epoch }
        }),
        2 => sizes.prop_map(|(segment_bytes, index_bytes)| {
            Operation::Shrink { segment_bytes, index_bytes }
        }),
        1 => Just(Operation::Sync),
        2 => Just(Operation::Reopen),
        2 => Just(Operation::Crash),
        1 => (0..=100_i64).prop_map(|percent| Operation::RaiseLogStart { percent }),
        1 => (0..3000_i64).prop_map(|bytes| Operation::Retain { bytes }),
        1 => (0..=100_i64, any::<bool>()).prop_map(|(percent, discard)| {
            Operation::Truncate { percent, discard }
        }),
        1 => Just(Operation::Mkdir),
    ]
}

/// Key and value.
type Content = (Option<Vec<u8>>, Option<Vec<u8>>);

/// What ought to be there.
#[derive(Debug, Default)]
struct Model {
    /// Batches with their last offsets and what is in them, ascending.
    batches: Vec<(i64, Vec<(i64, Content)>)>,
    log_start: i64,
    log_end: i64,
}

impl Model {
    fn shown(&self) -> impl Iterator<Item = &(i64, Content)> {
        let records = self.batches.iter().flat_map(|(_, records)| records);
        records.filter(|(at, _)| *at >= self.log_start)
    }

    fn truncate(&mut self, target: i64) {
        if target < self.log_end {
            self.batches.retain(|(last, _)| *last < target);
            self.log_start = self.log_start.min(target);
        }
    }
}

struct Machine<'a> {
    directory: &'a Path,
    data: DataDir,
    log: Arc<Log>,
    model: Model,
    clock: i64,
    codec: Codec,
    sizes: (u64, u64),
    partitions: usize,
    epoch: i32,
}

fn offset(raw: i64) -> Offset {
    Offset::new(raw).unwrap()
}

fn open(directory: &Path) -> (DataDir, Arc<Log>) {
    let data = DataDir::writable(directory, None, ReadOptions::default()).unwrap();
    if data.log("t-0".as_ref()).unwrap().is_none() {
        data.create_partition("t-0".as_ref(), [1; 16]).unwrap();
    }
    let log = data.log("t-0".as_ref()).unwrap().unwrap();
    (data, log)
}

impl<'a> Machine<'a> {
    fn new(directory: &'a Path) -> Machine<'a> {
        let (data, log) = open(directory);
        Machine {
            directory,
            data,
            log,
            model: Model::default(),
            clock: 1_700_000_000_000,
            codec: Codec::None,
            sizes: (600, 100),
            partitions: 1,
            epoch: 0,
        }
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.clock)
    }

    /// Does `work` with the writer, which has the settings of the moment.
    fn write<T>(&self, retention: Option<i64>, work: impl FnOnce(&mut Writer) -> T) -> T {
        let done = self.data.write(&self.log, self.now(), |writer| {
            let mut limits = writer.limits().clone();
            (limits.segment_bytes, limits.segment_index_bytes) = self.sizes;
            limits.index_interval_bytes = 150;
            limits.codec = (self.codec, None);
            limits.retention = RetentionLimits::new(true, -1, retention.unwrap_or(-1));
            writer.set_limits(limits, self.now())?;
            Ok(work(writer))
        });
        done.unwrap()
    }

    fn run(&mut self, operation: &Operation) {
        self.clock += 7;
        match operation {
            Operation::Append { records, codec } => self.append(records, *codec),
            Operation::AppendBatch { hole, records, epoch } => {
                self.append_batch(*hole, *records, *epoch);
            }
            Operation::Shrink { segment_bytes, index_bytes } => {
                self.sizes = (*segment_bytes, *index_bytes);
            }
            Operation::Sync => self.write(None, |writer| writer.sync(self.now())).unwrap(),
            Operation::Reopen => {
                self.data.shut_down(self.now()).unwrap();
                self.reopen();
            }
            Operation::Crash => self.reopen(),
            Operation::RaiseLogStart { percent } => {
                let (start, end) = (self.model.log_start, self.model.log_end);
                let raised = start + (end - start) * percent / 100;
                self.write(None, |writer| writer.raise_log_start(offset(raised), self.now()))
                    .unwrap();
                self.model.log_start = raised;
            }
            Operation::Retain { bytes } => {
                self.write(Some(*bytes), |writer| writer.retain(self.now())).unwrap();
                let start = self.log.state().unwrap().log_start.get();
                assert!(start >= self.model.log_start, "retention lowered the log start");
                let first = self.log.state().unwrap().disk_start.get();
                assert!(start == self.model.log_start || start == first, "{start} is no segment");
                self.model.log_start = start;
            }
            Operation::Truncate { percent, discard } => self.truncate(*percent, *discard),
            Operation::Mkdir => {
                let name = format!("u-{}", self.partitions);
                self.data.create_partition(name.as_ref(), [2; 16]).unwrap();
                assert!(self.data.log(name.as_ref()).unwrap().is_some());
                self.partitions += 1;
            }
        }
    }

    fn reopen(&mut self) {
        // The lock goes with the last of them.
        let nowhere = scratch();
        let (data, log) = open(nowhere.path());
        drop(std::mem::replace(&mut self.log, log));
        drop(std::mem::replace(&mut self.data, data));
        (self.data, self.log) = open(self.directory);
        self.write(None, |_| ());
    }

    fn append(&mut self, records: &[(Bytes, Bytes)], codec: Codec) {
        self.codec = codec;
        let content = |bytes: Bytes, seed: usize| {
            let first = b'a' + u8::try_from(seed % 20).unwrap();
            bytes.map(|count| vec![first; count])
        };
        let contents: Vec<Content> = records
            .iter()
            .enumerate()
            .map(|(i, (key, value))| (content(*key, i), content(*value, i + 3)))
            .collect();
        let records: Vec<_> = contents
            .iter()
            .map(|(key, value)| NewRecord {
                key: key.as_deref(),
                value: value.as_deref(),
                ..NewRecord::default()
            })
            .collect();
        let (stored, result) = self.write(None, |writer| writer.append(&records, self.now()));
        if let Err(e) = result {
            // Only a record that is too large for a segment.
            assert!(self.sizes.0 == 600 && stored < records.len(), "{e}");
        }
        self.model_append(self.model.log_end, &contents[..stored]);
    }

    /// The batches are learnt from the log: how it cuts them is its own affair.
    fn model_append(&mut self, start: i64, contents: &[Content]) {
        let mut numbered: std::collections::VecDeque<_> =
            (start..).zip(contents.iter().cloned()).collect();
        self.model.log_end = start + i64::try_from(contents.len()).unwrap();
        for header in self.headers().into_iter().filter(|header| header.base_offset.get() >= start)
        {
            let last = header.last_offset.get();
            let count = numbered.iter().take_while(|(at, _)| *at <= last).count();
            self.model.batches.push((last, numbered.drain(..count).collect()));
        }
        assert!(numbered.is_empty(), "{numbered:?} are not there");
    }

    fn append_batch(&mut self, hole: i64, records: usize, epoch: i32) {
        self.epoch = self.epoch.max(epoch);
        let start = self.model.log_end + hole;
        let value = vec![b'r'; 9];
        let mut builder = BatchBuilder::new();
        builder.start(offset(start), LeaderEpoch::new(self.epoch), Codec::None, None);
        for _ in 0..records {
            let time = Some(self.now());
            let record = NewRecord { value: Some(&value), timestamp: time, ..NewRecord::default() };
            builder.add(&record).unwrap();
        }
        let batch = builder.finish(None).unwrap().to_vec();
        let header = BatchHeader::parse(&batch).unwrap();
        self.write(None, |writer| writer.append_batch(&batch, &header, None, self.now())).unwrap();
        let contents = vec![(None, Some(value)); records];
        self.model_append(start, &contents);
    }

    fn truncate(&mut self, percent: i64, discard: bool) {
        let target = self.model.log_end * percent / 100;
        self.write(None, |_| ());
        self.log.close_writer(self.now()).unwrap();
        recovery::truncate(&self.log, offset(target), discard).unwrap();
        self.model.truncate(target);
        self.reopen();
        let state = self.log.state().unwrap();
        let last = self.model.batches.last().map_or(0, |(last, _)| last + 1);
        let end = state.log_end.get();
        let most = target.max(last).max(self.model.log_start);
        assert!(end >= last && end <= most, "{end} is not from {last} to {most}");
        self.model.log_end = end;
        // An empty log begins where its first file does.
        self.model.log_start = self.model.log_start.max(state.disk_start.get());
    }

    fn headers(&self) -> Vec<BatchHeader> {
        let state = self.log.state().unwrap();
        let start = state.disk_start;
        let mut reading = Reading::new(&self.log, &state, start, Wanted::All, None).unwrap();
        let mut headers = Vec::new();
        loop {
            match reading.step().unwrap() {
                Step::Batch(header) => headers.push(header),
                Step::Damage(stretch) => panic!("{}", stretch.error()),
                Step::End => return headers,
            }
        }
    }

    fn check(&self) {
        self.write(None, |_| ());
        let state = self.log.state().unwrap();
        assert_eq!(state.log_end.get(), self.model.log_end, "log end");
        assert_eq!(state.log_start.get(), self.model.log_start, "log start");
        check_invariants(&state);
        self.check_each_offset(&state);
        self.check_reading(&state);
        self.check_indexes(&state);
    }

    fn check_each_offset(&self, state: &LogState) {
        let mut wanted = self.model.shown().peekable();
        for raw in 0..self.model.log_end + 2 {
            let expected = wanted.next_if(|(at, _)| *at == raw);
            match (self.log.find(state, offset(raw)).unwrap(), expected) {
                (Found::Record(found, ..), Some((_, content))) => {
                    let record = found.record().unwrap();
                    let there = (record.key.map(<[u8]>::to_vec), record.value.map(<[u8]>::to_vec));
                    assert_eq!(&there, content, "offset {raw}");
                }
                (Found::Nothing, None) => {}
                (found, expected) => panic!("offset {raw}: {found:?}, not {expected:?}"),
            }
        }
    }

    /// A range holds the same records, and so has the same size.
    fn check_reading(&self, state: &LogState) {
        let start = state.log_start;
        let mut reading = Reading::new(&self.log, state, start, Wanted::Data, None).unwrap();
        let mut there: Vec<(i64, Content)> = Vec::new();
        while let Step::Batch(_) = reading.step().unwrap() {
            let mut cursor = reading.cursor().unwrap().unwrap();
            let (header, payload) = reading.records().unwrap();
            while let Some(record) = cursor.next(header, payload) {
                let record = record.unwrap();
                let content = (record.key.map(<[u8]>::to_vec), record.value.map(<[u8]>::to_vec));
                there.push((record.offset.get(), content));
            }
        }
        there.retain(|(at, _)| *at >= start.get());
        assert!(there.iter().eq(self.model.shown()), "{there:?}");
    }

    /// Each entry names a batch.
    fn check_indexes(&self, state: &LogState) {
        let headers = self.headers();
        let shared = self.log.shared();
        for segment in &state.segments {
            let mut window = Window::new(HEADER_BYTES);
            let bytes = shared.offset_index(segment);
            for entry in OffsetIndex::new(segment.base_offset, &bytes).iter() {
                let (at, last) = (entry.position, entry.offset);
                let found = promised(&*shared.disk, &mut window, segment, at, last).unwrap();
                assert!(found.is_some(), "{:?} of {}", entry, segment.base_offset);
            }
            let bytes = shared.time_index(segment);
            for entry in TimeIndex::new(segment.base_offset, &bytes).iter() {
                let named = headers.iter().any(|header| {
                    let time = header.max_timestamp == Some(entry.timestamp);
                    time && header.last_offset == entry.offset
                });
                assert!(named, "{entry:?} of {}", segment.base_offset);
            }
        }
    }
}

/// Those of `spec/architecture.md`, as far as one state shows them.
fn check_invariants(state: &LogState) {
    assert!(state.segments.is_sorted_by(|a, b| a.base_offset < b.base_offset), "order");
    for pair in state.segments.windows(2) {
        assert_eq!(pair[0].limit, pair[1].base_offset, "a segment ends where the next begins");
    }
    assert!(state.log_start <= state.high_watermark && state.high_watermark <= state.log_end);
    for segment in &state.segments {
        let bytes = std::fs::metadata(segment.log.path()).unwrap().len();
        assert!(segment.valid_bytes <= bytes, "more is shown than is there");
    }
    assert!(state.leader_epochs.is_sorted_by(|a, b| a.epoch < b.epoch && a.start < b.start));
    assert!(state.leader_epochs.iter().all(|epoch| epoch.start <= state.log_end));
}

fn scratch() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let parent = if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() };
    tempfile::tempdir_in(parent).unwrap()
}

fn play(operations: &[Operation]) {
    let directory = scratch();
    let mut machine = Machine::new(directory.path());
    for operation in operations {
        machine.run(operation);
        machine.check();
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 150,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_log_is_what_was_appended(operations in prop::collection::vec(operation(), 1..40)) {
        play(&operations);
    }
}
