//! An append allocates nothing for a record once memory has grown to its batches: what a write of
//! ten thousand records allocates is what a write of a hundred does.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::fmt::Write as _;
use std::sync::Arc;

use allocation_counter::{AllocationInfo, measure};
use offsetfs::engine::config::SETTINGS_FILE;
use offsetfs::engine::data_dir::DataDir;
use offsetfs::engine::log::Log;
use offsetfs::engine::options::ReadOptions;
use offsetfs::format::builder::{BatchBuilder, NewRecord};
use offsetfs::fs::change::{LogSink, now, stream_limits};
use offsetfs::view::append::AppendStream;
use offsetfs::view::name::Format;

const FEW: usize = 100;
const MANY: usize = 10_000;

/// Each at its number.
const CODECS: [&str; 5] = ["uncompressed", "gzip", "snappy", "lz4", "zstd"];

/// A log in a scratch directory, opened as a mount opens it.
struct Written {
    data: DataDir,
    log: Arc<Log>,
    _scratch: tempfile::TempDir,
}

impl Written {
    fn new(settings: &str) -> Written {
        let scratch = tempfile::tempdir().unwrap();
        let data = DataDir::writable(scratch.path(), None, ReadOptions::default()).unwrap();
        data.create_partition("t-0".as_ref(), [1; 16]).unwrap();
        std::fs::write(scratch.path().join("t-0").join(SETTINGS_FILE), settings).unwrap();
        let log = data.log("t-0".as_ref()).unwrap().unwrap();
        Written { data, log, _scratch: scratch }
    }

    /// The codec of the first batch.
    fn codec(&self) -> &'static str {
        let log = self.log.path().join(format!("{:020}.log", 0));
        let attributes = std::fs::read(log).unwrap()[22];
        CODECS[usize::from(attributes & 7)]
    }

    /// One write of `text` to an open file; what it allocated.
    fn append(&self, stream: &mut AppendStream, text: &[u8], raw: bool) -> AllocationInfo {
        let at = now();
        measure(|| {
            let result = self.data.write(&self.log, at, |writer| {
                let limits = stream_limits(writer.limits(), raw);
                Ok(stream.write(text, limits, &mut LogSink { writer, at }))
            });
            let result = result.unwrap();
            assert!(result.error.is_none(), "{:?}", result.error);
            assert_eq!(result.accepted, text.len());
        })
    }
}

/// So many records in `format`.
fn text(format: Format, records_count: usize) -> Vec<u8> {
    let mut text = String::new();
    for n in 0..records_count {
        match format {
            Format::Lines => writeln!(text, "value {n:06}").unwrap(),
            Format::Nul => write!(text, "value {n:06}\0").unwrap(),
            Format::Tsv => writeln!(text, "key {n:06}\tvalue {n:06}").unwrap(),
            Format::Jsonl => {
                let ts = 1_700_000_000_000_usize + n;
                let headers = r#"[["name","value"]]"#;
                writeln!(
                    text,
                    r#"{{"ts":{ts},"headers":{headers},"key":"k{n}","payload":"value {n:06}"}}"#
                )
                .unwrap();
            }
            Format::Raw => unreachable!("no text"),
        }
    }
    text.into_bytes()
}

/// Allocations of a write of few records and of one of many, when there were such writes before.
fn steady(format: Format, codec: &str) -> (u64, u64) {
    let log = Written::new(&format!("compression.type={codec}\n"));
    let mut stream = AppendStream::new(format);
    let (few, many) = (text(format, FEW), text(format, MANY));
    for _ in 0..3 {
        log.append(&mut stream, &many, false);
    }
    assert_eq!(log.codec(), codec, "as it was set");
    // The lesser of a few: now and then an index gets new blocks or a segment begins.
    let least = |stream: &mut AppendStream, text: &[u8]| {
        (0..5).map(|_| log.append(stream, text, false).count_total).min().unwrap()
    };
    (least(&mut stream, &few), least(&mut stream, &many))
}

#[test]
fn an_append_allocates_nothing_a_record() {
    for format in [Format::Lines, Format::Nul, Format::Tsv, Format::Jsonl] {
        for codec in CODECS {
            let (few, many) = steady(format, codec);
            assert_eq!(few, many, "{format:?}, {codec}: of {FEW} and of {MANY} records");
            assert!(few < 10, "{format:?}, {codec}: {few} a write");
        }
    }
}

/// A batch as it is, of few records and of many.
#[test]
fn a_raw_append_allocates_nothing_a_record() {
    let batch_of = |records_count: usize| -> Vec<u8> {
        let mut builder = BatchBuilder::new();
        let value = [b'v'; 20];
        let record = NewRecord { value: Some(&value), ..NewRecord::default() };
        for _ in 0..records_count {
            builder.add(&record).unwrap();
        }
        builder.finish(None).unwrap().to_vec()
    };
    let log = Written::new("");
    let mut stream = AppendStream::new(Format::Raw);
    let mut next = 0;
    let mut append = |records_count: usize| {
        let mut batch = batch_of(records_count);
        batch[..8].copy_from_slice(&i64::to_be_bytes(next));
        next += i64::try_from(records_count).unwrap();
        log.append(&mut stream, &batch, true).count_total
    };
    append(MANY);
    let [few, many] = [FEW, MANY].map(|count| (0..5).map(|_| append(count)).min().unwrap());
    assert_eq!(few, many, "of {FEW} and of {MANY} records");
    assert!(few < 10, "{few} a write");
}

/// The harness: what is allocated is counted.
#[test]
fn a_list_of_records_would_be_noticed() {
    let lists = measure(|| {
        let list: Vec<Vec<u8>> = (0..MANY).map(|n| vec![1; 1 + n % 7]).collect();
        std::hint::black_box(list);
    });
    assert!(lists.count_total >= MANY as u64, "{lists:?}");
}
