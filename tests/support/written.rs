//! Partitions that the program under test writes through a writable mount, in every format and
//! codec, and what a consumer must get of them.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::Path;

use serde_json::{Value, json};

use super::broker::Consumed;
use super::expected::partition;
use super::mount::{Mount, mount};
use super::{fixture, kafka};

/// Small geometry: a few segments and many index entries a partition.
pub const SMALL: &str = "segment.bytes=8192 segment.index.bytes=2048 index.interval.bytes=1024";

const CODECS: [&str; 5] = ["uncompressed", "gzip", "snappy", "lz4", "zstd"];

/// Partitions of the set `clean` that `append.raw` takes as they are, transactions included.
const RAW: [&str; 6] = ["plain-0", "gzip-0", "snappy-0", "lz4-0", "zstd-0", "txn-0"];

const T0: i64 = 1_700_000_000_000;

/// A partition that we wrote.
pub struct Written {
    pub name: String,
    /// `NAME=VALUE` words, as its config was set.
    pub settings: String,
    pub records: Vec<Consumed>,
}

/// A text format of the contract's section 3; each stands for its `append` file.
#[derive(Clone, Copy, Debug)]
pub enum Format {
    Lines,
    Nul,
    Tsv,
    Jsonl,
}

/// A record to write; not every format can carry all of it.
pub struct Sample {
    pub ts: i64,
    pub key: Option<String>,
    pub value: Option<String>,
    pub headers: Vec<(String, Option<String>)>,
}

/// A writable mount of a data directory, which may be empty.
pub fn writable(source: impl AsRef<Path>) -> Mount {
    mount(source).args(&["--rw"]).live_source().start()
}

/// Partitions `TOPIC-0`, `TOPIC-1`...: each text format with each codec, and raw batches.
pub fn write_all(mount: &Mount, topic: &str) -> Vec<Written> {
    let formats = [Format::Lines, Format::Nul, Format::Tsv, Format::Jsonl];
    let texts = formats.into_iter().flat_map(|format| CODECS.map(|codec| (format, codec)));
    let mut all: Vec<Written> = Vec::new();
    for (format, codec) in texts {
        let name = format!("{topic}-{}", all.len());
        let settings = format!("{SMALL} compression.type={codec}");
        create(mount, &name, &settings);
        let records = append(mount, &name, format, &samples(300));
        all.push(Written { name, settings, records });
    }
    for source in RAW {
        let name = format!("{topic}-{}", all.len());
        create(mount, &name, SMALL);
        let records = append_raw(mount, &name, source);
        all.push(Written { name, settings: SMALL.into(), records });
    }
    all
}

/// `mkdir NAME`, and `NAME=VALUE` words for its config.
pub fn create(mount: &Mount, name: &str, settings: &str) {
    let directory = mount.path().join(name);
    fs::create_dir(&directory).unwrap_or_else(|error| panic!("mkdir {name}: {error}"));
    configure(mount, name, settings);
}

pub fn configure(mount: &Mount, name: &str, settings: &str) {
    let lines = settings.replace(' ', "\n") + "\n";
    write(mount, name, "config", [lines.as_bytes()]);
}

/// Appends to an empty partition, one to nine records a write.
pub fn append(mount: &Mount, name: &str, format: Format, samples: &[Sample]) -> Vec<Consumed> {
    let mut pieces = Vec::new();
    let mut rest = samples;
    while !rest.is_empty() {
        let (piece, left) = rest.split_at((1 + pieces.len() * 7 % 9).min(rest.len()));
        pieces.push(piece.iter().flat_map(|sample| format.encode(sample)).collect::<Vec<u8>>());
        rest = left;
    }
    write(mount, name, format.file(), pieces.iter().map(Vec::as_slice));
    let number = partition_number(name);
    let offsets = samples.iter().zip(0..);
    offsets.map(|(sample, offset)| format.consumed(sample, number, offset)).collect()
}

/// Appends the batches of a partition of the set `clean` to an empty one.
pub fn append_raw(mount: &Mount, name: &str, source: &str) -> Vec<Consumed> {
    let logs = kafka::files(&[fixture("clean").join("data").join(source)], &["log"]);
    let pieces: Vec<Vec<u8>> = logs.iter().map(|log| fs::read(log).expect("a segment")).collect();
    write(mount, name, "append.raw", pieces.iter().map(Vec::as_slice));
    let number = partition_number(name);
    partition("clean", source).rows().iter().map(|row| Consumed::of(row, number)).collect()
}

/// One `write` a piece.
pub fn write<'a>(
    mount: &Mount,
    name: &str,
    file: &str,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) {
    let path = mount.path().join(name).join(file);
    let fail = |error: std::io::Error| -> ! { panic!("{}: {error}", path.display()) };
    let mut file = OpenOptions::new().append(true).open(&path).unwrap_or_else(|e| fail(e));
    for piece in pieces {
        file.write_all(piece).unwrap_or_else(|error| fail(error));
    }
}

/// Keys and values with all that the formats must bear; timestamps that go back now and then.
pub fn samples(records_count: i64) -> Vec<Sample> {
    (0..records_count)
        .map(|n| Sample {
            ts: T0 + n * 100 - n % 13 * 900,
            key: (n % 7 != 0).then(|| if n % 11 == 3 { String::new() } else { format!("k\t{n}") }),
            value: (n % 17 != 5).then(|| value(n)),
            headers: (0..n % 3)
                .map(|h| (format!("h{h}"), (n % 5 != 0).then(|| n.to_string())))
                .collect(),
        })
        .collect()
}

fn value(n: i64) -> String {
    let tail = ["", "-", "line\nbreak", "tab\tand \\ backslash", "\u{e9}\u{2603}"];
    let index = usize::try_from(n).expect("not negative");
    format!("value {n} {}{}", "abcdefgh".repeat(index % 9), tail[index % tail.len()])
}

impl Format {
    fn file(self) -> &'static str {
        match self {
            Format::Lines => "append",
            Format::Nul => "append.nul",
            Format::Tsv => "append.tsv",
            Format::Jsonl => "append.jsonl",
        }
    }

    fn encode(self, sample: &Sample) -> Vec<u8> {
        match self {
            Format::Lines => (self.value(sample) + "\n").into_bytes(),
            Format::Nul => (self.value(sample) + "\0").into_bytes(),
            Format::Tsv => {
                let (key, value) = (tsv(sample.key.as_deref()), tsv(sample.value.as_deref()));
                format!("{key}\t{value}\n").into_bytes()
            }
            Format::Jsonl => {
                let header = |(name, value): &(String, Option<String>)| json!([name, value]);
                let headers: Vec<Value> = sample.headers.iter().map(header).collect();
                let (key, payload) = (&sample.key, &sample.value);
                let line =
                    json!({"ts": sample.ts, "headers": headers, "key": key, "payload": payload});
                format!("{line}\n").into_bytes()
            }
        }
    }

    /// The value where NULL cannot be said, nor, in lines, a newline.
    fn value(self, sample: &Sample) -> String {
        let value = sample.value.clone().unwrap_or_default();
        if matches!(self, Format::Lines) { value.replace('\n', " ") } else { value }
    }

    fn consumed(self, sample: &Sample, partition: i32, offset: i64) -> Consumed {
        let plain = Consumed {
            partition,
            offset,
            ts: None,
            key: None,
            value: Some(self.value(sample).into_bytes()),
            headers: Vec::new(),
        };
        let key = sample.key.clone().map(String::into_bytes);
        let value = sample.value.clone().map(String::into_bytes);
        match self {
            Format::Lines | Format::Nul => plain,
            Format::Tsv => Consumed { key, value, ..plain },
            Format::Jsonl => {
                let header = |(name, value): &(String, Option<String>)| {
                    format!("{name}={}", value.as_deref().unwrap_or("NULL"))
                };
                let headers: Vec<String> = sample.headers.iter().map(header).collect();
                let headers = headers.join(",").into_bytes();
                Consumed { ts: Some(sample.ts), key, value, headers, ..plain }
            }
        }
    }
}

fn tsv(text: Option<&str>) -> String {
    text.map_or_else(
        || "\\N".into(),
        |text| text.replace('\\', "\\\\").replace('\t', "\\t").replace('\n', "\\n"),
    )
}

fn partition_number(name: &str) -> i32 {
    let (_, number) = name.rsplit_once('-').expect("TOPIC-PARTITION");
    number.parse().expect("a number")
}
