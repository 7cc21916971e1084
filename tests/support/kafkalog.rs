//! Builds Kafka logs: records, batches, old messages, index files, checkpoints, data directories.
//!
//! A second opinion about the format, which shares no code with the library. Builders return bytes,
//! so that a test can cut, flip and glue before it writes. Nothing is checked: wrong files are what
//! half of the tests need.

use std::io::Write as _;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::{fs, iter};

/// The time of record 0 in the default layout; record n is n seconds later.
pub const T0: i64 = 1_700_000_000_000;

/// Bytes of a v2 batch before its records.
pub const HEADER: usize = 61;

/// A record to be built.
#[derive(Clone, Default)]
pub struct Rec {
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    /// None: `T0` and a second for each offset.
    pub ts: Option<i64>,
    pub headers: Vec<(String, Option<Vec<u8>>)>,
    /// Offset minus base offset; None: one after the record before.
    pub delta: Option<i32>,
    /// Stands in the batch instead of all the other fields.
    pub raw: Option<Vec<u8>>,
}

/// A record with this value and no key.
pub fn rec(value: impl AsRef<[u8]>) -> Rec {
    Rec { value: Some(value.as_ref().to_vec()), ..Rec::default() }
}

/// A record without a value.
pub fn null() -> Rec {
    Rec::default()
}

impl Rec {
    pub fn key(mut self, key: impl AsRef<[u8]>) -> Self {
        self.key = Some(key.as_ref().to_vec());
        self
    }

    pub fn at(mut self, ts: i64) -> Self {
        self.ts = Some(ts);
        self
    }

    pub fn header(mut self, name: &str, value: Option<&[u8]>) -> Self {
        self.headers.push((name.into(), value.map(<[u8]>::to_vec)));
        self
    }

    pub fn delta(mut self, delta: i32) -> Self {
        self.delta = Some(delta);
        self
    }

    fn body(&self, ts_delta: i64, delta: i32) -> Vec<u8> {
        if let Some(raw) = &self.raw {
            return raw.clone();
        }
        let mut body = vec![0];
        body.extend(varint(ts_delta));
        body.extend(varint(delta.into()));
        body.extend(sized(self.key.as_deref()));
        body.extend(sized(self.value.as_deref()));
        body.extend(varint(long(self.headers.len())));
        for (name, value) in &self.headers {
            body.extend(sized(Some(name.as_bytes())));
            body.extend(sized(value.as_deref()));
        }
        [varint(long(body.len())), body].concat()
    }
}

/// Records of the default layout: value `v<offset>`, no key.
pub fn recs(offsets: Range<i64>) -> Vec<Rec> {
    offsets.map(|n| rec(format!("v{n}"))).collect()
}

/// How the records of a batch are stored.
#[derive(Clone)]
pub enum Codec {
    None,
    Gzip,
    Snappy,
    SnappyRaw,
    Lz4,
    Zstd,
    /// A codec number and the bytes that stand after the header, whatever they are.
    As(i16, Vec<u8>),
}

impl Codec {
    pub fn number(&self) -> i16 {
        match self {
            Self::None => 0,
            Self::Gzip => 1,
            Self::Snappy | Self::SnappyRaw => 2,
            Self::Lz4 => 3,
            Self::Zstd => 4,
            Self::As(number, _) => *number,
        }
    }

    fn pack(&self, plain: &[u8]) -> Vec<u8> {
        match self {
            Self::None => plain.to_vec(),
            Self::Gzip => gzip(plain),
            Self::Snappy => xerial(plain, 32_768),
            Self::SnappyRaw => snappy(plain),
            Self::Lz4 => lz4(plain),
            Self::Zstd => zstd::encode_all(plain, 3).expect("zstd packs"),
            Self::As(_, bytes) => bytes.clone(),
        }
    }
}

pub fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    packer.write_all(plain).expect("gzip packs");
    packer.finish().expect("gzip packs")
}

pub fn snappy(plain: &[u8]) -> Vec<u8> {
    snap::raw::Encoder::new().compress_vec(plain).expect("snappy packs")
}

/// The frame of the Java snappy library: blocks with their sizes.
pub fn xerial(plain: &[u8], block: usize) -> Vec<u8> {
    let mut out = b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01".to_vec();
    for piece in plain.chunks(block) {
        let packed = snappy(piece);
        out.extend(int(packed.len()).to_be_bytes());
        out.extend(packed);
    }
    out
}

/// A frame as Kafka writes it: independent blocks of 64 KiB, nothing optional.
pub fn lz4(plain: &[u8]) -> Vec<u8> {
    use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};
    let frame = FrameInfo::new().block_size(BlockSize::Max64KB).block_mode(BlockMode::Independent);
    let mut packer = FrameEncoder::with_frame_info(frame, Vec::new());
    packer.write_all(plain).expect("lz4 packs");
    packer.finish().expect("lz4 packs")
}

/// A v2 batch to be built; `build` gives its bytes with the right CRC.
#[derive(Clone)]
pub struct Batch {
    pub base_offset: i64,
    pub records: Vec<Rec>,
    pub codec: Codec,
    pub epoch: i32,
    pub producer: Option<i64>,
    pub control: bool,
    pub append_time: Option<i64>,
    pub base_ts: Option<i64>,
    pub delete_horizon: Option<i64>,
    pub last_delta: Option<i32>,
    pub max_ts: Option<i64>,
    pub count: Option<i32>,
}

/// A batch of these records.
pub fn batch(base_offset: i64, records: Vec<Rec>) -> Batch {
    Batch {
        base_offset,
        records,
        codec: Codec::None,
        epoch: 0,
        producer: None,
        control: false,
        append_time: None,
        base_ts: None,
        delete_horizon: None,
        last_delta: None,
        max_ts: None,
        count: None,
    }
}

/// Records of the default layout in one batch.
pub fn plain(offsets: Range<i64>) -> Batch {
    batch(offsets.start, recs(offsets))
}

/// What compaction keeps of a batch that lost all its records.
pub fn emptied(base_offset: i64, last_offset: i64) -> Batch {
    let mut emptied = batch(base_offset, Vec::new());
    emptied.last_delta = Some(int_of(last_offset - base_offset));
    emptied.max_ts = Some(T0);
    emptied
}

/// A COMMIT (true) or ABORT marker.
pub fn marker(offset: i64, commit: bool, producer: i64) -> Batch {
    let key = [[0, 0], [0, u8::from(commit)]].concat();
    let mut marker = batch(offset, vec![rec([0; 6]).key(key)]).producer(producer);
    marker.control = true;
    marker
}

impl Batch {
    pub fn codec(mut self, codec: Codec) -> Self {
        self.codec = codec;
        self
    }

    pub fn epoch(mut self, epoch: i32) -> Self {
        self.epoch = epoch;
        self
    }

    /// In a transaction of this producer.
    pub fn producer(mut self, id: i64) -> Self {
        self.producer = Some(id);
        self
    }

    /// With `LogAppendTime`.
    pub fn append_time(mut self, ts: i64) -> Self {
        self.append_time = Some(ts);
        self
    }

    pub fn last_offset(&self) -> i64 {
        self.base_offset + i64::from(self.last_delta())
    }

    fn last_delta(&self) -> i32 {
        self.last_delta.unwrap_or_else(|| self.deltas().last().copied().unwrap_or(-1))
    }

    fn deltas(&self) -> Vec<i32> {
        let next = |last: &mut i32, record: &Rec| {
            *last = record.delta.unwrap_or(*last + 1);
            Some(*last)
        };
        self.records.iter().scan(-1, next).collect()
    }

    fn times(&self) -> Vec<i64> {
        let time = |(record, delta): (&Rec, i32)| {
            record.ts.unwrap_or(T0 + 1000 * (self.base_offset + i64::from(delta)))
        };
        self.records.iter().zip(self.deltas()).map(time).collect()
    }

    pub fn max_timestamp(&self) -> i64 {
        let largest = self.times().into_iter().max().unwrap_or(-1);
        self.max_ts.or(self.append_time).unwrap_or(largest)
    }

    /// The records before compression.
    pub fn body(&self) -> Vec<u8> {
        let first = self.first_timestamp();
        let each = self.records.iter().zip(self.deltas()).zip(self.times());
        each.flat_map(|((record, delta), ts)| record.body(ts - first, delta)).collect()
    }

    fn first_timestamp(&self) -> i64 {
        let first = self.times().first().copied().unwrap_or(-1);
        self.delete_horizon.or(self.base_ts).unwrap_or(first)
    }

    fn attributes(&self) -> i16 {
        let bits = [
            (self.append_time.is_some(), 8),
            (self.producer.is_some(), 16),
            (self.control, 32),
            (self.delete_horizon.is_some(), 64),
        ];
        bits.iter().filter(|(set, _)| *set).fold(self.codec.number(), |all, (_, bit)| all | bit)
    }

    pub fn build(&self) -> Vec<u8> {
        let body = if self.records.is_empty() { Vec::new() } else { self.codec.pack(&self.body()) };
        let mut covered = Vec::new();
        covered.extend(self.attributes().to_be_bytes());
        covered.extend(self.last_delta().to_be_bytes());
        covered.extend(self.first_timestamp().to_be_bytes());
        covered.extend(self.max_timestamp().to_be_bytes());
        covered.extend(self.producer.unwrap_or(-1).to_be_bytes());
        covered.extend(self.producer.map_or(-1_i16, |_| 0).to_be_bytes());
        covered.extend(self.producer.map_or(-1_i32, |_| 0).to_be_bytes());
        covered.extend(self.count.unwrap_or_else(|| int(self.records.len())).to_be_bytes());
        covered.extend(body);
        let mut out = Vec::new();
        out.extend(self.base_offset.to_be_bytes());
        out.extend(int(9 + covered.len()).to_be_bytes());
        out.extend(self.epoch.to_be_bytes());
        out.push(2);
        out.extend(crc32c::crc32c(&covered).to_be_bytes());
        [out, covered].concat()
    }
}

/// A finished batch with some of its bytes replaced, and the CRC put right.
pub fn patched(mut batch: Vec<u8>, position: usize, bytes: &[u8]) -> Vec<u8> {
    batch[position..position + bytes.len()].copy_from_slice(bytes);
    let crc = crc32c::crc32c(&batch[21..]);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
    batch
}

/// One bit is wrong, and the CRC does not know.
pub fn flipped(mut batch: Vec<u8>, position: usize) -> Vec<u8> {
    batch[position] ^= 4;
    batch
}

/// One legacy message.
pub fn message(
    magic: u8,
    offset: i64,
    key: Option<&[u8]>,
    value: Option<&[u8]>,
    ts: i64,
    attributes: u8,
) -> Vec<u8> {
    let field = |bytes: Option<&[u8]>| match bytes {
        None => (-1_i32).to_be_bytes().to_vec(),
        Some(bytes) => [&int(bytes.len()).to_be_bytes(), bytes].concat(),
    };
    let mut body = vec![magic, attributes];
    if magic > 0 {
        body.extend(ts.to_be_bytes());
    }
    body.extend(field(key));
    body.extend(field(value));
    let mut out = offset.to_be_bytes().to_vec();
    out.extend(int(4 + body.len()).to_be_bytes());
    out.extend(crc32fast::hash(&body).to_be_bytes());
    [out, body].concat()
}

/// Legacy messages of the default layout from `offsets.start`, loose, or in one wrapper.
pub fn legacy(magic: u8, offsets: Range<i64>, codec: &Codec) -> Vec<u8> {
    let first = offsets.start;
    let last = offsets.end - 1;
    let wrapped = codec.number() > 0;
    let one = |n: i64| {
        let offset = if wrapped && magic > 0 { n - first } else { n };
        message(magic, offset, None, Some(format!("v{n}").as_bytes()), T0 + 1000 * n, 0)
    };
    let inner: Vec<u8> = offsets.flat_map(one).collect();
    if !wrapped {
        return inner;
    }
    let attributes = u8::try_from(codec.number()).expect("codecs are small");
    message(magic, last, None, Some(&codec.pack(&inner)), T0 + 1000 * last, attributes)
}

/// An offset index: (relative offset, position).
pub fn offset_index(rows: &[(i32, i32)]) -> Vec<u8> {
    rows.iter().flat_map(|(offset, at)| [offset.to_be_bytes(), at.to_be_bytes()].concat()).collect()
}

/// A time index: (timestamp, relative offset).
pub fn time_index(rows: &[(i64, i32)]) -> Vec<u8> {
    rows.iter().flat_map(|(ts, at)| [&ts.to_be_bytes()[..], &at.to_be_bytes()].concat()).collect()
}

/// A transaction index: (producer, first offset, last offset, last stable offset).
pub fn txn_index(rows: &[(i64, i64, i64, i64)]) -> Vec<u8> {
    let row = |(producer, first, last, stable): &(i64, i64, i64, i64)| {
        let numbers = [producer, first, last, stable].map(|n| n.to_be_bytes());
        [&[0, 0][..], &numbers.concat()].concat()
    };
    rows.iter().flat_map(row).collect()
}

/// A checkpoint file with these lines.
pub fn checkpoint<S: AsRef<str>>(rows: &[S]) -> String {
    let lines = rows.iter().map(|row| format!("{}\n", row.as_ref()));
    iter::once(format!("0\n{}\n", rows.len())).chain(lines).collect()
}

/// One segment: change it before it is written.
#[derive(Clone, Default)]
pub struct Segment {
    pub base_offset: i64,
    pub log: Vec<u8>,
    pub index: Vec<(i32, i32)>,
    pub timeindex: Vec<(i64, i32)>,
    pub txnindex: Vec<(i64, i64, i64, i64)>,
    since_entry: usize,
    largest: Option<(i64, i32)>,
}

impl Segment {
    fn add(&mut self, batch: &Batch, interval: usize) {
        let bytes = batch.build();
        let position = int(self.log.len());
        let last = int_of(batch.last_offset() - self.base_offset);
        if self.largest.is_none_or(|(ts, _)| batch.max_timestamp() > ts) {
            self.largest = Some((batch.max_timestamp(), last));
        }
        if self.since_entry > interval {
            self.index.push((last, position));
            self.seal();
            self.since_entry = 0;
        }
        self.since_entry += bytes.len();
        self.log.extend(bytes);
    }

    /// The time entry that Kafka adds at a roll and at a clean close.
    fn seal(&mut self) {
        let before = self.timeindex.last().map_or(-1, |(ts, _)| *ts);
        self.timeindex.extend(self.largest.filter(|(ts, _)| *ts > before));
    }

    pub fn name(&self, suffix: &str) -> String {
        format!("{:020}.{suffix}", self.base_offset)
    }

    fn write(&self, directory: &Path) {
        write(directory, &self.name("log"), &self.log);
        write(directory, &self.name("index"), offset_index(&self.index));
        write(directory, &self.name("timeindex"), time_index(&self.timeindex));
        if !self.txnindex.is_empty() {
            write(directory, &self.name("txnindex"), txn_index(&self.txnindex));
        }
    }
}

/// A partition directory to be written.
#[derive(Clone)]
pub struct Partition {
    pub name: String,
    /// Bytes between index entries (`index.interval.bytes`).
    pub interval: usize,
    pub segments: Vec<Segment>,
    pub epochs: Vec<(i32, i64)>,
    /// More files: name and contents.
    pub extra: Vec<(String, Vec<u8>)>,
    /// Lines of the data directory's log-start-offset-checkpoint and of the high watermarks'.
    pub log_start: Option<i64>,
    pub high_watermark: Option<i64>,
}

/// An empty partition `t-0`, an index entry for each batch but a segment's first.
pub fn partition() -> Partition {
    partition_from(0)
}

/// As `partition`, beginning at this offset.
pub fn partition_from(base_offset: i64) -> Partition {
    Partition {
        name: "t-0".into(),
        interval: 0,
        segments: vec![Segment { base_offset, ..Segment::default() }],
        epochs: vec![(0, base_offset)],
        extra: Vec::new(),
        log_start: None,
        high_watermark: None,
    }
}

/// The default layout: `v0` to `v99`, ten records a batch.
pub fn hundred() -> Partition {
    sized_layout(100, 10, 100)
}

/// `v0`..., so many records a batch, and a segment.
pub fn sized_layout(count: i64, per_batch: i64, per_segment: i64) -> Partition {
    let mut partition = partition();
    let mut base = 0;
    while base < count {
        if base > 0 && base % per_segment == 0 {
            partition = partition.roll(base);
        }
        partition = partition.add(&plain(base..count.min(base + per_batch)));
        base += per_batch;
    }
    partition
}

impl Partition {
    pub fn named(mut self, name: &str) -> Self {
        self.name = name.into();
        self
    }

    pub fn add(mut self, batch: &Batch) -> Self {
        let interval = self.interval;
        self.active().add(batch, interval);
        self
    }

    /// Adds bytes that no index knows.
    pub fn add_bytes(mut self, bytes: impl AsRef<[u8]>) -> Self {
        self.active().log.extend(bytes.as_ref());
        self
    }

    pub fn roll(mut self, base_offset: i64) -> Self {
        self.active().seal();
        self.segments.push(Segment { base_offset, ..Segment::default() });
        self
    }

    pub fn log_start(mut self, offset: i64) -> Self {
        self.log_start = Some(offset);
        self
    }

    pub fn high_watermark(mut self, offset: i64) -> Self {
        self.high_watermark = Some(offset);
        self
    }

    pub fn extra(mut self, name: &str, contents: impl AsRef<[u8]>) -> Self {
        self.extra.push((name.into(), contents.as_ref().to_vec()));
        self
    }

    pub fn active(&mut self) -> &mut Segment {
        self.segments.last_mut().expect("a partition has a segment")
    }

    /// Changes the bytes of the only log.
    pub fn with_log(mut self, change: impl FnOnce(Vec<u8>) -> Vec<u8>) -> Self {
        let log = std::mem::take(&mut self.active().log);
        self.active().log = change(log);
        self
    }

    /// Writes the directory below `root`; its path.
    pub fn write(&self, root: &Path) -> PathBuf {
        let directory = root.join(&self.name);
        fs::create_dir_all(&directory).expect("a partition directory");
        for (at, segment) in self.segments.iter().enumerate() {
            let mut segment = segment.clone();
            if at + 1 == self.segments.len() {
                segment.seal();
            }
            segment.write(&directory);
        }
        let epochs: Vec<String> =
            self.epochs.iter().map(|(epoch, start)| format!("{epoch} {start}")).collect();
        write(&directory, "leader-epoch-checkpoint", checkpoint(&epochs));
        write(&directory, "partition.metadata", "version: 0\ntopic_id: AAAAAAAAAAEAAAAAAAAAAg");
        for (name, contents) in &self.extra {
            write(&directory, name, contents);
        }
        directory
    }

    /// The line of a checkpoint of the data directory.
    fn checkpoint_line(&self, offset: Option<i64>) -> Option<String> {
        let (topic, number) = self.name.rsplit_once('-').expect("topic-partition");
        offset.map(|offset| format!("{topic} {number} {offset}"))
    }
}

/// Writes a whole data directory: partitions, meta.properties, marker, checkpoints.
pub fn data_dir(root: impl AsRef<Path>, partitions: &[Partition]) -> PathBuf {
    let root = root.as_ref().to_path_buf();
    fs::create_dir_all(&root).expect("a data directory");
    for partition in partitions {
        partition.write(&root);
    }
    let identity = "cluster.id=1HdOz1e6TBeKmgD7vcMCqQ\nnode.id=1\n\
                    directory.id=Ft3rEWDnRGWmTQ0G3HrSHA\n";
    write(&root, "meta.properties", format!("version=1\n{identity}"));
    write(&root, ".kafka_cleanshutdown", r#"{"version":0,"brokerEpoch":10}"#);
    let starts: Vec<String> =
        partitions.iter().filter_map(|p| p.checkpoint_line(p.log_start)).collect();
    let watermarks: Vec<String> =
        partitions.iter().filter_map(|p| p.checkpoint_line(p.high_watermark)).collect();
    for (name, rows) in [("log-start", starts), ("replication", watermarks)] {
        if !rows.is_empty() {
            write(&root, &format!("{name}-offset-checkpoint"), checkpoint(&rows));
        }
    }
    root
}

fn write(directory: &Path, name: &str, contents: impl AsRef<[u8]>) {
    fs::write(directory.join(name), contents).expect("a file is written");
}

/// Where the batches of a log of complete v2 batches lie.
pub fn batches(log: &[u8]) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(field) = log.get(at + 8..at + 12) {
        let length = i32::from_be_bytes(field.try_into().expect("four bytes"));
        let end = at + 12 + usize::try_from(length).expect("a batch has a length");
        found.push(at..end);
        at = end;
    }
    found
}

fn sized(bytes: Option<&[u8]>) -> Vec<u8> {
    match bytes {
        None => varint(-1),
        Some(bytes) => [&varint(long(bytes.len())), bytes].concat(),
    }
}

/// Zigzag, seven bits a byte, lowest first.
pub fn varint(number: i64) -> Vec<u8> {
    let mut rest = ((number << 1) ^ (number >> 63)).cast_unsigned();
    let mut out = Vec::new();
    while rest > 0x7f {
        out.push(u8::try_from(rest & 0x7f).expect("seven bits") | 0x80);
        rest >>= 7;
    }
    out.push(u8::try_from(rest).expect("seven bits"));
    out
}

fn int(n: usize) -> i32 {
    i32::try_from(n).expect("the tests' logs are small")
}

fn int_of(n: i64) -> i32 {
    i32::try_from(n).expect("the tests' logs are small")
}

fn long(n: usize) -> i64 {
    i64::try_from(n).expect("the tests' logs are small")
}
