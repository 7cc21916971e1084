//! Big Kafka data directories, made fast: batches of magic 2 with the indexes, checkpoints, epochs,
//! snapshots and the clean-shutdown marker that a broker would leave behind. The same spec always
//! makes the same bytes. The `peers` benchmark starts a real broker on what this writes.

#![allow(dead_code, reason = "each benchmark uses a part of it")]

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// Timestamp of record 0; record i is `i` milliseconds later.
pub const FIRST_TIMESTAMP: i64 = 1_700_000_000_000;
/// Kafka's default `index.interval.bytes`.
const INDEX_INTERVAL_BYTES: u64 = 4096;
/// Bytes of a magic 2 batch header.
const HEADER_BYTES: usize = 61;
/// Records of 100 bytes that fill a batch of 4 KiB.
pub const RECORDS_IN_4_KIB: u64 = 37;

/// How the records of every batch are compressed; the number is the attribute bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    None = 0,
    Gzip = 1,
    Snappy = 2,
    Lz4 = 3,
    Zstd = 4,
}

/// What one partition holds.
#[derive(Clone, Debug)]
pub struct Spec {
    pub topic: String,
    pub partition: u32,
    pub records: u64,
    pub value_bytes: usize,
    pub records_per_batch: u64,
    pub segment_bytes: u64,
    pub codec: Codec,
}

/// What was written.
#[derive(Clone, Debug)]
pub struct Written {
    pub topic: String,
    pub partition: u32,
    pub dir: PathBuf,
    pub records: u64,
    /// Bytes of all `.log` files.
    pub log_bytes: u64,
    /// Bytes that `by-offset/0..` has: every value and a newline.
    pub lines_bytes: u64,
    pub batches: u64,
    pub segments: Vec<PathBuf>,
}

impl Spec {
    /// Uncompressed batches of about 16 KiB in segments of 256 MiB, 100-byte values.
    pub fn new(topic: &str, records: u64) -> Spec {
        Spec {
            topic: topic.to_owned(),
            partition: 0,
            records,
            value_bytes: 100,
            records_per_batch: 150,
            segment_bytes: 256 << 20,
            codec: Codec::None,
        }
    }

    /// Writes the partition directory below `data_dir`, which [`finish`] makes a data directory.
    pub fn write(&self, data_dir: &Path) -> io::Result<Written> {
        let dir = data_dir.join(format!("{}-{}", self.topic, self.partition));
        fs::create_dir_all(&dir)?;
        let mut log = LogWriter::new(dir, self.segment_bytes);
        let mut values = Values::new(self.value_bytes);
        let (mut offset, mut records, mut batch) = (0, Vec::new(), Vec::new());
        while offset < self.records {
            let count = self.records_per_batch.min(self.records - offset);
            records.clear();
            for delta in 0..count {
                put_record(&mut records, delta, values.next(offset + delta));
            }
            put_batch(&mut batch, self.codec, offset, count, &records)?;
            log.append(&batch, offset, count)?;
            offset += count;
        }
        log.close(self.records)?;
        write_identity(&log.dir, &self.topic)?;
        Ok(Written {
            topic: self.topic.clone(),
            partition: self.partition,
            dir: log.dir,
            records: self.records,
            log_bytes: log.bytes,
            lines_bytes: self.records * (self.value_bytes as u64 + 1),
            batches: log.batches,
            segments: log.segments,
        })
    }
}

/// Makes `data_dir`, which holds the partitions in `written`, a data directory that a broker has
/// stopped in order: meta.properties, checkpoints, marker.
pub fn finish(data_dir: &Path, written: &[Written]) -> io::Result<()> {
    let mut offsets = vec!["0".to_owned(), written.len().to_string()];
    offsets.extend(
        written.iter().map(|log| format!("{} {} {}", log.topic, log.partition, log.records)),
    );
    let offsets = offsets.join("\n") + "\n";
    let meta = "#\nnode.id=1\ndirectory.id=0iqiS9qnNwzVVhSstdeCHg\nversion=1\n\
                cluster.id=1HdOz1e6TBeKmgD7vcMCqQ\n";
    fs::write(data_dir.join("meta.properties"), meta)?;
    fs::write(data_dir.join("recovery-point-offset-checkpoint"), &offsets)?;
    fs::write(data_dir.join("replication-offset-checkpoint"), &offsets)?;
    fs::write(data_dir.join("log-start-offset-checkpoint"), "0\n0\n")?;
    fs::write(data_dir.join(".kafka_cleanshutdown"), r#"{"version":0,"brokerEpoch":10}"#)
}

/// A whole data directory with one partition.
pub fn one(data_dir: &Path, spec: &Spec) -> io::Result<Written> {
    let written = spec.write(data_dir)?;
    finish(data_dir, std::slice::from_ref(&written))?;
    Ok(written)
}

/// A whole data directory of `partitions` small partitions, 100 of them to a topic.
pub fn many(data_dir: &Path, partitions: u32, records_each: u64) -> io::Result<Vec<Written>> {
    let written: Vec<Written> = (0..partitions)
        .map(|number| {
            let topic = format!("small-{:03}", number / 100);
            Spec { partition: number % 100, ..Spec::new(&topic, records_each) }.write(data_dir)
        })
        .collect::<io::Result<_>>()?;
    finish(data_dir, &written)?;
    Ok(written)
}

/// The segments of one partition and their indexes, rolled and filled by Kafka's rules.
struct LogWriter {
    dir: PathBuf,
    segment_bytes: u64,
    file: Option<File>,
    base_offset: u64,
    position: u64,
    pending: Vec<u8>,
    bytes_since_entry: u64,
    last_batch: (i64, u64),
    offset_index: Vec<u8>,
    time_index: Vec<u8>,
    last_time: i64,
    bytes: u64,
    batches: u64,
    segments: Vec<PathBuf>,
}

impl LogWriter {
    fn new(dir: PathBuf, segment_bytes: u64) -> LogWriter {
        LogWriter {
            dir,
            segment_bytes,
            file: None,
            base_offset: 0,
            position: 0,
            pending: Vec::new(),
            bytes_since_entry: 0,
            last_batch: (-1, 0),
            offset_index: Vec::new(),
            time_index: Vec::new(),
            last_time: -1,
            bytes: 0,
            batches: 0,
            segments: Vec::new(),
        }
    }

    fn append(&mut self, batch: &[u8], offset: u64, count: u64) -> io::Result<()> {
        let bytes = batch.len() as u64;
        if self.file.is_none() || self.position + bytes > self.segment_bytes {
            self.roll(offset)?;
        }
        self.last_batch = (timestamp(offset + count - 1), offset + count - 1);
        if self.bytes_since_entry > INDEX_INTERVAL_BYTES {
            let relative = self.relative(self.last_batch.1)?;
            put_i32(&mut self.offset_index, relative);
            put_i32(&mut self.offset_index, i32::try_from(self.position).map_err(too_large)?);
            self.add_time_entry()?;
            self.bytes_since_entry = 0;
        }
        self.bytes_since_entry += bytes;
        self.position += bytes;
        self.bytes += bytes;
        self.batches += 1;
        self.pending.extend_from_slice(batch);
        if self.pending.len() >= 1 << 20 { self.flush() } else { Ok(()) }
    }

    fn roll(&mut self, offset: u64) -> io::Result<()> {
        if self.file.is_some() {
            self.seal()?;
            self.write_snapshot(offset)?;
        }
        let path = self.segment_file(offset, "log");
        self.file = Some(File::create(&path)?);
        self.segments.push(path);
        (self.base_offset, self.position, self.bytes_since_entry) = (offset, 0, 0);
        self.last_time = -1;
        Ok(())
    }

    /// Writes what is pending, the final time entry and the trimmed indexes.
    fn seal(&mut self) -> io::Result<()> {
        self.flush()?;
        self.add_time_entry()?;
        fs::write(self.segment_file(self.base_offset, "index"), &self.offset_index)?;
        fs::write(self.segment_file(self.base_offset, "timeindex"), &self.time_index)?;
        self.offset_index.clear();
        self.time_index.clear();
        Ok(())
    }

    fn close(&mut self, log_end_offset: u64) -> io::Result<()> {
        if self.file.is_none() {
            self.roll(0)?;
            self.last_batch = (-1, 0);
        }
        self.seal()?;
        self.write_snapshot(log_end_offset)
    }

    fn flush(&mut self) -> io::Result<()> {
        if let Some(file) = &mut self.file {
            file.write_all(&self.pending)?;
        }
        self.pending.clear();
        Ok(())
    }

    fn add_time_entry(&mut self) -> io::Result<()> {
        let (time, last_offset) = self.last_batch;
        if time > self.last_time {
            self.last_time = time;
            self.time_index.extend_from_slice(&time.to_be_bytes());
            let relative = self.relative(last_offset)?;
            put_i32(&mut self.time_index, relative);
        }
        Ok(())
    }

    /// A producer snapshot without producers.
    fn write_snapshot(&self, offset: u64) -> io::Result<()> {
        let entries_count = 0_i32.to_be_bytes();
        let mut snapshot = 1_i16.to_be_bytes().to_vec();
        snapshot.extend_from_slice(&crc32c::crc32c(&entries_count).to_be_bytes());
        snapshot.extend_from_slice(&entries_count);
        fs::write(self.segment_file(offset, "snapshot"), snapshot)
    }

    fn segment_file(&self, offset: u64, suffix: &str) -> PathBuf {
        self.dir.join(format!("{offset:020}.{suffix}"))
    }

    fn relative(&self, offset: u64) -> io::Result<i32> {
        i32::try_from(offset - self.base_offset).map_err(too_large)
    }
}

/// Text that compresses about three times, cut differently for each record; no newlines in it.
struct Values {
    text: Vec<u8>,
    value: Vec<u8>,
    random: Random,
}

impl Values {
    fn new(value_bytes: usize) -> Values {
        let words = "offset segment batch record leader epoch order payment user session click \
                     cart status created shipped error warning timeout retry amount 42 3.14 true \
                     false null";
        let words: Vec<&[u8]> = words.split(' ').map(str::as_bytes).collect();
        let (mut random, mut text) = (Random(0x9e37_79b9_7f4a_7c15), Vec::new());
        while text.len() < (1 << 20) + value_bytes {
            text.extend_from_slice(words[random.below(words.len())]);
            text.push(b' ');
        }
        Values { text, value: vec![0; value_bytes], random }
    }

    /// "record N " and text, cut to the size.
    fn next(&mut self, offset: u64) -> &[u8] {
        let at = self.random.below(1 << 20);
        let bytes = self.value.len();
        self.value.copy_from_slice(&self.text[at..at + bytes]);
        // The value is shorter than its head only in tiny logs; what does not fit is cut.
        let _ = write!(self.value.as_mut_slice(), "record {offset} ");
        &self.value
    }
}

/// Numbers that look random and are the same in each run (xorshift).
pub struct Random(pub u64);

impl Random {
    /// A number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let wide = u128::from(self.0) * (bound as u128);
        usize::try_from(wide >> 64).unwrap_or(0)
    }
}

/// The timestamp of the record at `offset`.
pub fn timestamp(offset: u64) -> i64 {
    FIRST_TIMESTAMP.saturating_add_unsigned(offset)
}

fn put_record(out: &mut Vec<u8>, delta: u64, value: &[u8]) {
    let delta = delta.cast_signed();
    let length = value.len().cast_signed() as i64;
    let body = 1 + 2 * varint_bytes(delta) + 1 + varint_bytes(length) + length + 1;
    put_varint(out, body);
    out.push(0);
    put_varint(out, delta); // timestamp: one millisecond a record
    put_varint(out, delta); // offset
    put_varint(out, -1); // no key
    put_varint(out, length);
    out.extend_from_slice(value);
    out.push(0); // no headers
}

fn put_batch(
    out: &mut Vec<u8>,
    codec: Codec,
    offset: u64,
    count: u64,
    records: &[u8],
) -> io::Result<()> {
    out.clear();
    out.resize(HEADER_BYTES, 0);
    compress(codec, records, out)?;
    let count = i32::try_from(count).map_err(too_large)?;
    let length = i32::try_from(out.len() - 12).map_err(too_large)?;
    let first = timestamp(offset);
    out[0..8].copy_from_slice(&offset.to_be_bytes());
    out[8..12].copy_from_slice(&length.to_be_bytes());
    out[16] = 2;
    out[21..23].copy_from_slice(&(codec as i16).to_be_bytes());
    out[23..27].copy_from_slice(&(count - 1).to_be_bytes());
    out[27..35].copy_from_slice(&first.to_be_bytes());
    out[35..43].copy_from_slice(&(first + i64::from(count) - 1).to_be_bytes());
    out[43..57].fill(0xff); // no producer id, epoch, sequence
    out[57..61].copy_from_slice(&count.to_be_bytes());
    let crc = crc32c::crc32c(&out[21..]);
    out[17..21].copy_from_slice(&crc.to_be_bytes());
    Ok(())
}

fn compress(codec: Codec, records: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
    match codec {
        Codec::None => out.extend_from_slice(records),
        Codec::Gzip => {
            let mut gzip = flate2::write::GzEncoder::new(out, flate2::Compression::fast());
            gzip.write_all(records)?;
            gzip.finish()?;
        }
        Codec::Snappy => put_snappy(records, out)?,
        Codec::Lz4 => {
            let frame = lz4_flex::frame::FrameInfo::new()
                .block_size(lz4_flex::frame::BlockSize::Max64KB)
                .block_mode(lz4_flex::frame::BlockMode::Independent);
            let mut lz4 = lz4_flex::frame::FrameEncoder::with_frame_info(frame, out);
            lz4.write_all(records)?;
            lz4.finish()?;
        }
        Codec::Zstd => zstd::stream::copy_encode(records, out, 3)?,
    }
    Ok(())
}

/// The framing that Kafka's snappy has: a header of 16 bytes, then blocks of at most 32 KiB.
fn put_snappy(records: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
    out.extend_from_slice(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01");
    let mut encoder = snap::raw::Encoder::new();
    for chunk in records.chunks(32 << 10) {
        let block = encoder.compress_vec(chunk)?;
        put_i32(out, i32::try_from(block.len()).map_err(too_large)?);
        out.extend_from_slice(&block);
    }
    Ok(())
}

/// leader-epoch-checkpoint and partition.metadata; the topic id is made of the topic's name.
fn write_identity(dir: &Path, topic: &str) -> io::Result<()> {
    let mut id = *b"offsetfs\0\0\0\0\0\0\0\0";
    id[8..12].copy_from_slice(&crc32c::crc32c(topic.as_bytes()).to_be_bytes());
    id[12..16].copy_from_slice(&crc32fast::hash(topic.as_bytes()).to_be_bytes());
    let id = URL_SAFE_NO_PAD.encode(id);
    fs::write(dir.join("partition.metadata"), format!("version: 0\ntopic_id: {id}"))?;
    fs::write(dir.join("leader-epoch-checkpoint"), "0\n1\n0 0\n")
}

fn put_i32(out: &mut Vec<u8>, number: i32) {
    out.extend_from_slice(&number.to_be_bytes());
}

fn put_varint(out: &mut Vec<u8>, number: i64) {
    let mut rest = zig_zag(number);
    while rest >= 0x80 {
        out.push(rest.to_be_bytes()[7] | 0x80);
        rest >>= 7;
    }
    out.push(rest.to_be_bytes()[7]);
}

fn varint_bytes(number: i64) -> i64 {
    let bits = 64 - (zig_zag(number) | 1).leading_zeros();
    i64::from(bits.div_ceil(7))
}

fn zig_zag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)).cast_unsigned()
}

fn too_large(error: std::num::TryFromIntError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("does not fit the format: {error}"))
}
