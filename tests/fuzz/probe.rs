//! What must hold for any bytes: nothing panics, and what is read twice, or written and read, is
//! the same. One function for each kind of input; the fuzz targets and the corpus test call them.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use offsetfs::engine::config;
use offsetfs::engine::data_dir::DataDir;
use offsetfs::engine::log::Found;
use offsetfs::engine::metadata::Settings;
use offsetfs::engine::options::ReadOptions;
use offsetfs::format::batch::{BatchHeader, Magic};
use offsetfs::format::checkpoint;
use offsetfs::format::codec::{Codec, decompress, decompressed_bytes};
use offsetfs::format::compress::compress;
use offsetfs::format::index::{OffsetIndex, TimeIndex, parse_txn_index};
use offsetfs::format::legacy;
use offsetfs::format::metadata::MetadataRecord;
use offsetfs::format::name::{SegmentFile, parse_directory_name};
use offsetfs::format::record::Cursor;
use offsetfs::format::snapshot::{parse_snapshot, write_snapshot};
use offsetfs::inspect::check::{Checked, Progress, check};
use offsetfs::inspect::repair::{plan, repair};
use offsetfs::units::{Offset, Position, Timestamp};
use offsetfs::view::append::{AppendError, AppendStream, Limits, Partial, Records, Sink};
use offsetfs::view::name::{Format, parse_offset_name, parse_time_name};
use offsetfs::view::render::NewRecord;
use offsetfs::view::render::raw::NewBatch;
use offsetfs::view::time::{format_time, parse_time};

/// A kind of input, and what is done with it.
pub type Probe = (&'static str, fn(&[u8]));

/// All of them, by the name of target and corpus.
pub const PROBES: [Probe; 6] = [
    ("names", names),
    ("files", files),
    ("batch", batch),
    ("codec", codec),
    ("append", append),
    ("partition", partition),
];

/// Bytes that anything may expand to.
const EXPANDED_BYTES: usize = 1 << 20;
const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

/// What is typed below `by-offset` and `by-time`, and found in directories.
pub fn names(data: &[u8]) {
    let _ = parse_offset_name(data);
    let _ = parse_time_name(data);
    if let Some(time) = parse_time(data)
        && let Some(text) = format_time(time)
    {
        assert_eq!(parse_time(text.as_bytes()), Some(time), "{text}");
    }
    let Ok(text) = std::str::from_utf8(data) else { return };
    let _ = parse_directory_name(text);
    if let Some(file) = SegmentFile::parse(text) {
        assert_eq!(file.to_string(), text);
    }
    if let Ok(settings) = config::change(&Settings::default(), text) {
        let again = config::change(&Settings::default(), &config::as_lines(&settings));
        assert_eq!(again.as_ref(), Ok(&settings));
    }
}

/// Everything that lies beside the segments.
pub fn files(data: &[u8]) {
    if let Ok(offsets) = checkpoint::parse_offset_checkpoint(data) {
        let text = checkpoint::write_offset_checkpoint(&offsets);
        assert_eq!(checkpoint::parse_offset_checkpoint(text.as_bytes()).unwrap(), offsets);
    }
    if let Ok(epochs) = checkpoint::parse_leader_epochs(data) {
        let text = checkpoint::write_leader_epochs(&epochs);
        assert_eq!(checkpoint::parse_leader_epochs(text.as_bytes()).unwrap(), epochs);
    }
    if let Ok(id) = checkpoint::parse_partition_metadata(data) {
        let text = checkpoint::write_partition_metadata(id);
        assert_eq!(checkpoint::parse_partition_metadata(text.as_bytes()).unwrap(), id);
    }
    if let Ok(producers) = parse_snapshot(data) {
        let bytes = write_snapshot(&producers);
        assert_eq!(parse_snapshot(&bytes).unwrap(), producers);
    }
    let _ = checkpoint::parse_meta_properties(data);
    let _ = checkpoint::parse_clean_shutdown(data);
    let _ = parse_txn_index(data);
    let _ = MetadataRecord::parse(data);
    let index = OffsetIndex::new(Offset::ZERO, data).without_padding();
    assert!(index.iter().count() <= data.len() / 8);
    let _ = index.floor(Offset::MAX);
    let times = TimeIndex::new(Offset::ZERO, data).without_padding();
    assert!(times.iter().count() <= data.len() / 12);
    let _ = times.floor(NOW);
}

/// A batch or legacy message, its checksum right or not.
pub fn batch(data: &[u8]) {
    let Ok(header) = BatchHeader::parse(data) else { return };
    let Ok(size) = usize::try_from(header.bytes) else { return };
    let Some(whole) = data.get(..size) else { return };
    let _ = header.checksum(whole);
    let mut expanded = Vec::new();
    let bytes = if header.is_legacy_wrapper() {
        let Ok(value) = legacy::wrapped_value(&header, whole) else { return };
        value
    } else if header.magic == Magic::V2 {
        whole.get(header.magic.header_bytes()..).unwrap_or_default()
    } else {
        whole
    };
    let bytes = match header.codec {
        Codec::None => bytes,
        codec => match decompress(codec, header.magic, bytes, &mut expanded, EXPANDED_BYTES) {
            Ok(()) => &expanded,
            Err(_) => return,
        },
    };
    let Ok(cursor) = Cursor::new(&header, bytes) else { return };
    let (mut one_by_one, mut read) = (Vec::new(), cursor);
    while let Some(Ok(record)) = read.next(&header, bytes) {
        assert!(record.offset <= header.last_offset, "an offset beyond its batch");
        one_by_one.push((record.offset, record.timestamp, record.key, record.value));
    }
    assert!(one_by_one.is_sorted_by(|a, b| a.0 < b.0), "offsets ascend");
    let mut at_once = Vec::new();
    let _ = cursor.for_each(&header, bytes, |record| {
        at_once.push((record.offset, record.timestamp, record.key, record.value));
    });
    assert_eq!(at_once, one_by_one);
}

/// The codec's number, and bytes: what they expand to, and what they become when they are packed.
pub fn codec(data: &[u8]) {
    let Some((&first, data)) = data.split_first() else { return };
    let codec = Codec::from_attributes(i16::from(first));
    let magic = if first & 8 == 0 { Magic::V2 } else { Magic::V1 };
    let mut expanded = Vec::new();
    let result = decompress(codec, magic, data, &mut expanded, EXPANDED_BYTES);
    assert!(expanded.len() <= EXPANDED_BYTES, "bounded");
    let counted = decompressed_bytes(codec, magic, data, EXPANDED_BYTES);
    assert_eq!(result.is_ok(), counted.is_ok(), "{result:?} {counted:?}");
    if let Ok(bytes) = counted {
        assert_eq!(bytes, expanded.len());
    }
    let mut packed = Vec::new();
    if data.len() > EXPANDED_BYTES || compress(codec, None, data, &mut packed).is_err() {
        return;
    }
    let mut unpacked = Vec::new();
    decompress(codec, Magic::V2, &packed, &mut unpacked, EXPANDED_BYTES).expect("our own");
    assert!(unpacked == data, "packed and unpacked");
}

/// Takes everything, and remembers it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Taken(Vec<KeyAndValue>);

type KeyAndValue = (Option<Vec<u8>>, Option<Vec<u8>>);

impl Taken {
    fn take(&mut self, record: &NewRecord<'_>) {
        let own = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec);
        record
            .lend(|it| {
                self.0.push((own(it.key), own(it.value)));
                Ok::<(), ()>(())
            })
            .expect("it is taken");
    }
}

impl Sink for Taken {
    fn append(&mut self, records: &mut Records<'_>) -> Result<(), Partial> {
        records.for_each(|record| self.take(&record));
        Ok(())
    }

    fn append_batch(&mut self, _: &NewBatch<'_>) -> Result<(), AppendError> {
        self.0.push((None, None));
        Ok(())
    }

    fn check(&mut self, _: &NewRecord<'_>) -> Result<(), AppendError> {
        Ok(())
    }
}

/// A format, where to cut, and text: however it is cut into writes, the records are the same.
pub fn append(data: &[u8]) {
    let Some((&[format, cut], text)) = data.split_first_chunk() else { return };
    let formats = [Format::Lines, Format::Nul, Format::Tsv, Format::Jsonl, Format::Raw];
    let format = formats[usize::from(format) % formats.len()];
    let limits = Limits { record_bytes: 1 << 16, expanded_bytes: EXPANDED_BYTES };
    let written = |piece: usize| {
        let (mut stream, mut taken) = (AppendStream::new(format), Taken::default());
        let mut at = 0;
        while at < text.len() {
            let end = text.len().min(at + piece);
            let result = stream.write(&text[at..end], limits, &mut taken);
            assert!(result.accepted <= end - at);
            at += result.accepted;
            if result.error.is_some() && result.accepted == 0 {
                return (taken, false);
            }
        }
        let finished = stream.finish(&mut taken).is_ok();
        (taken, finished)
    };
    let (whole, all) = written(text.len().max(1));
    let (pieces, all_pieces) = written(usize::from(cut).max(1));
    assert_eq!((all, &whole), (all_pieces, &pieces), "in pieces of {cut}");
}

/// A segment file, behind a byte of which the lowest bit asks for right checksums, and the next for
/// an index that is wrong: what is read, what a check counts, and what repair leaves.
pub fn partition(data: &[u8]) {
    let Some((&how, log)) = data.split_first() else { return };
    let mut log = log.to_vec();
    if how & 1 == 1 {
        set_checksums(&mut log);
    }
    let scratch = tempfile::tempdir().expect("a directory");
    let directory = scratch.path().join("p-0");
    fs::create_dir(&directory).expect("made");
    fs::write(directory.join("00000000000000000000.log"), &log).expect("written");
    if how & 2 == 2 {
        let end = log.len().min(64);
        fs::write(directory.join("00000000000000000000.index"), &log[..end]).expect("written");
    }
    let (before, checked) = read(scratch.path());
    assert!(checked.valid_bytes <= checked.bytes);
    let writable = DataDir::writable(scratch.path(), Some(OsStr::new("p-0")), options());
    let writable = writable.expect("locked");
    let log = writable.log(OsStr::new("p-0")).expect("read").expect("there");
    let Ok(steps) = plan(&check_all(&writable)) else { return };
    repair(&log, &steps).expect("repaired");
    writable.shut_down(NOW).expect("closed");
    drop((log, writable));
    let (after, checked) = read(scratch.path());
    assert!(after == before, "repair left {} of {} records", after.len(), before.len());
    assert!(checked.facts.torn_tail.is_none(), "{:?}", checked.facts);
}

/// Timestamp, key, value.
type Content = (Option<Timestamp>, Option<Vec<u8>>, Option<Vec<u8>>);

fn options() -> ReadOptions {
    ReadOptions { max_batch_bytes: EXPANDED_BYTES, ..ReadOptions::default() }
}

fn check_all(data_dir: &DataDir) -> Checked {
    let found = check(data_dir, 1, NOW, &Progress::default()).expect("checked");
    found.into_iter().next().expect("a partition").1.expect("checked")
}

/// The records of the first thousand offsets that there are, each found by its offset.
fn read(data: &Path) -> (BTreeMap<Offset, Content>, Checked) {
    let data_dir = DataDir::new(data, Some(OsStr::new("p-0")), options());
    let log = data_dir.log(OsStr::new("p-0")).expect("read").expect("there");
    let state = log.state().expect("read");
    let mut records = BTreeMap::new();
    let mut offset = state.log_start;
    while offset < state.log_end && records.len() < 1000 && offset.get() < 10_000 {
        if let Ok(Found::Record(found, ..)) = log.find(&state, offset) {
            let record = found.record().expect("what was found");
            assert_eq!(record.offset, offset);
            let own = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec);
            records.insert(offset, (record.timestamp, own(record.key), own(record.value)));
        }
        offset = offset.next();
    }
    (records, check_all(&data_dir))
}

/// Gives each batch, as the lengths have them, the checksum that it should have.
fn set_checksums(log: &mut [u8]) {
    let mut at = Position::START;
    while let Some(rest) = usize::try_from(at.get()).ok().and_then(|at| log.get_mut(at..)) {
        let Ok(header) = BatchHeader::parse(rest) else { return };
        let size = usize::try_from(header.bytes).unwrap_or(usize::MAX);
        let Some(whole) = rest.get_mut(..size) else { return };
        let (checksum, place) = (header.checksum(whole), header.checksum_start() - 4);
        whole[place..place + 4].copy_from_slice(&checksum.to_be_bytes());
        at = at.plus(header.bytes);
    }
}
