//! Whether the index files of a segment are what they should be, as far as a few looks tell: their
//! size, their padding, and some of their entries, which must be in order and keep their promise.
//! The cost of one look is bounded whatever the size of the file. An index is a hint, so nothing
//! that is found here changes an answer.

use crate::engine::disk::Disk;
use crate::engine::find::Anchor;
use crate::engine::log::Shared;
use crate::engine::segment::{File, Segment};
use crate::engine::window::Window;
use crate::error::Result;
use crate::format::batch::{BatchHeader, HEADER_BYTES};
use crate::format::index::{
    IndexEntry, OFFSET_ENTRY_BYTES, OffsetIndex, TIME_ENTRY_BYTES, TimeIndex, TimeIndexEntry,
};
use crate::units::{Offset, Position};

/// Batches behind an entry's place in which the promised offset may be: older brokers write one
/// entry for all batches that a follower appended together.
const MOST_BATCHES_TOGETHER: usize = 64;
/// Bytes that a look at headers reads at once.
const LOOK_BYTES: usize = 2 << 10;

/// What was found out about one index file.
#[derive(Clone, Debug)]
pub struct Looked<E> {
    /// What is wrong with it, or noteworthy; nothing when it is sound.
    pub faults: Vec<String>,
    /// The last entry that was looked at and is right, or the place that it names.
    pub last: Option<E>,
}

impl<E> Looked<E> {
    fn with(faults: Vec<String>) -> Looked<E> {
        Looked { faults, last: None }
    }
}

/// Looks at the offset index of `segment`.
pub fn offset_index(shared: &Shared, segment: &Segment) -> Result<Looked<Anchor>> {
    let disk = &*shared.disk;
    let Some(mut entries) =
        Entries::<OFFSET_ENTRY_BYTES>::of(disk, segment, segment.index.as_ref())?
    else {
        return Ok(Looked::with(missing(segment)));
    };
    let mut looked = Looked::with(std::mem::take(&mut entries.faults));
    let mut before: Option<(usize, IndexEntry)> = None;
    for i in entries.samples() {
        let Some(bytes) = entries.get(disk, i)? else { break };
        let Some(entry) = OffsetIndex::new(segment.base_offset, &bytes).get(0) else {
            looked.faults.push(format!("entry {i} is impossible"));
            return Ok(looked);
        };
        if let Some((j, earlier)) = before
            && (entry.offset <= earlier.offset || entry.position <= earlier.position)
        {
            looked.faults.push(out_of_order(j, i));
            return Ok(looked);
        }
        match look_at_promise(disk, segment, i, entry)? {
            Promise::Kept(anchor) => looked.last = Some(anchor),
            Promise::Unknown => {}
            Promise::Broken(reason) => {
                looked.faults.push(reason);
                return Ok(looked);
            }
        }
        before = Some((i, entry));
    }
    Ok(looked)
}

/// Looks at the time index of `segment`, whose batches end before `end` where that is known. The
/// times themselves are not compared with those of the records.
pub fn time_index(
    shared: &Shared,
    segment: &Segment,
    end: Option<Offset>,
) -> Result<Looked<TimeIndexEntry>> {
    let disk = &*shared.disk;
    let file = segment.time_index.as_ref();
    let Some(mut entries) = Entries::<TIME_ENTRY_BYTES>::of(disk, segment, file)? else {
        return Ok(Looked::with(missing(segment)));
    };
    let mut looked = Looked::with(std::mem::take(&mut entries.faults));
    let mut before: Option<(usize, TimeIndexEntry)> = None;
    for i in entries.samples() {
        let Some(bytes) = entries.get(disk, i)? else { break };
        let entry = TimeIndex::new(segment.base_offset, &bytes).get(0);
        let fault = match (entry, before) {
            (None, _) => Some(format!("entry {i} is impossible")),
            (Some(entry), _) if end.is_some_and(|end| entry.offset >= end) => {
                let offset = entry.offset;
                Some(format!("stale: entry {i} names offset {offset}, beyond the log"))
            }
            (Some(entry), Some((j, earlier)))
                if entry.offset < earlier.offset || entry.timestamp <= earlier.timestamp =>
            {
                Some(out_of_order(j, i))
            }
            _ => None,
        };
        if let Some(fault) = fault {
            looked.faults.push(fault);
            looked.last = None;
            return Ok(looked);
        }
        looked.last = entry;
        before = entry.map(|entry| (i, entry));
    }
    Ok(looked)
}

fn missing(segment: &Segment) -> Vec<String> {
    let needed = segment.log.bytes() > 0;
    needed.then(|| "missing".to_owned()).into_iter().collect()
}

fn out_of_order(earlier: usize, later: usize) -> String {
    format!("out of order: entry {later} is not above entry {earlier}")
}

/// What became of what an entry promised.
enum Promise {
    /// The batches that it named begin here.
    Kept(Anchor),
    Broken(String),
    /// Nobody can say without reading more.
    Unknown,
}

/// Does the batch, or one of the few batches, at the entry's position end with its offset?
fn look_at_promise(
    disk: &dyn Disk,
    segment: &Segment,
    i: usize,
    entry: IndexEntry,
) -> Result<Promise> {
    let IndexEntry { offset, position } = entry;
    if position.get() >= segment.valid_bytes {
        let bytes = segment.valid_bytes;
        let reason = format!("stale: entry {i} points to position {position}, beyond the log");
        return Ok(Promise::Broken(format!("{reason} of {bytes} bytes")));
    }
    let promise = format!(
        "foreign or shifted: entry {i} promises offset {offset} at position {position}, found"
    );
    let mut headers = Headers::from(segment, position);
    let mut first: Option<(Offset, Offset)> = None;
    for _ in 0..MOST_BATCHES_TOGETHER {
        let Some(header) = headers.next(disk)? else {
            return Ok(match first {
                None => Promise::Broken(format!("{promise} no batch")),
                Some(_) => Promise::Unknown,
            });
        };
        let range = *first.get_or_insert((header.base_offset, header.last_offset));
        if header.last_offset == offset {
            // The offsets of a legacy wrapper reach down to an unknown one.
            let legacy = header.is_legacy_wrapper();
            let expected = if legacy { segment.base_offset } else { range.0 };
            return Ok(Promise::Kept(Anchor { position, expected }));
        }
        if header.last_offset > offset {
            return Ok(Promise::Broken(format!("{promise} offsets {} to {}", range.0, range.1)));
        }
    }
    Ok(Promise::Unknown)
}

/// Headers one after the other, as their lengths say; checksums are not verified.
#[derive(Debug)]
pub struct Headers<'a> {
    segment: &'a Segment,
    window: Window,
    position: Position,
    expected: Offset,
}

impl<'a> Headers<'a> {
    /// From `position` on, where a batch should begin.
    pub fn from(segment: &'a Segment, position: Position) -> Headers<'a> {
        let expected = segment.base_offset;
        Headers { segment, window: Window::new(LOOK_BYTES), position, expected }
    }

    /// Where the next one should begin.
    pub fn position(&self) -> Position {
        self.position
    }

    /// The next header; `None` where there is no batch with offsets above those before.
    pub fn next(&mut self, disk: &dyn Disk) -> Result<Option<BatchHeader>> {
        let left = self.segment.valid_bytes.saturating_sub(self.position.get());
        let file = &self.segment.log.file;
        let bytes = self.window.fill(disk, file, self.position, HEADER_BYTES)?;
        let header = BatchHeader::parse(bytes).ok().filter(|header| {
            let first =
                if header.is_legacy_wrapper() { header.last_offset } else { header.base_offset };
            header.bytes <= left && first >= self.expected && header.last_offset >= first
        });
        if let Some(header) = &header {
            self.position = self.position.plus(header.bytes);
            self.expected = header.last_offset.next();
        }
        Ok(header)
    }
}

/// The entries of an index file where they lie, `N` bytes each.
struct Entries<'a, const N: usize> {
    file: &'a File,
    count: usize,
    faults: Vec<String>,
}

impl<'a, const N: usize> Entries<'a, N> {
    /// Those of `file`, without its padding; `None` when there is no such file any more.
    fn of(
        disk: &dyn Disk,
        segment: &Segment,
        file: Option<&'a File>,
    ) -> Result<Option<Entries<'a, N>>> {
        let Some(file) = file else { return Ok(None) };
        // Its size may have changed since the segments were listed: indexes are trimmed in place.
        let bytes = match disk.facts(file.path()) {
            Ok(facts) if facts.id == file.file.id => facts.bytes,
            Ok(_) => return Ok(None),
            Err(e) if e.is_not_found() => return Ok(None),
            Err(e) => return Err(e),
        };
        let whole = usize::try_from(bytes).unwrap_or(usize::MAX) / N;
        let mut entries = Entries { file, count: whole, faults: Vec::new() };
        if bytes % N as u64 != 0 {
            let reason = format!("trailing bytes: {bytes} is no multiple of {N} (partial entry)");
            entries.faults.push(reason);
        }
        if whole > 0 && entries.is_zero(disk, whole - 1)? {
            entries.count = entries.used(disk, whole)?;
            // Of an index that this process writes that is how it should be.
            if segment.live.is_none() {
                entries.faults.push(format!("zero-padded to {bytes} bytes (preallocated)"));
            }
        }
        Ok(Some(entries))
    }

    /// The first, the last and three between them, in order.
    fn samples(&self) -> impl Iterator<Item = usize> + use<N> {
        let last = self.count.saturating_sub(1);
        let mut samples = vec![0, last / 4, last / 2, last - last / 4, last];
        samples.dedup();
        samples.truncate(self.count);
        samples.into_iter()
    }

    /// Entry number `i`, while the file has it.
    fn get(&self, disk: &dyn Disk, i: usize) -> Result<Option<[u8; N]>> {
        let mut entry = [0; N];
        let position = Position::new((i * N) as u64);
        let read = disk.read_at(&self.file.file, position, &mut entry)?;
        Ok((read == N).then_some(entry))
    }

    fn is_zero(&self, disk: &dyn Disk, i: usize) -> Result<bool> {
        Ok(self.get(disk, i)?.is_none_or(|entry| entry == [0; N]))
    }

    /// How many entries come before the zeros: found by halving, as in a sorted list.
    fn used(&self, disk: &dyn Disk, count: usize) -> Result<usize> {
        let (mut low, mut high) = (0, count);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.is_zero(disk, middle)? {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        Ok(low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::fixture;
    use std::path::Path;

    /// What is found wrong with offset and time index of the first segment of a partition after
    /// `change` was done to its files.
    fn faults(partition: &str, change: impl Fn(&Path, &Path)) -> (String, String) {
        let source = fixture::data_dir("clean", &[partition]);
        let first = source.path().join(partition).join("00000000000000000000.log");
        change(&first.with_extension("index"), &first.with_extension("timeindex"));
        let log = fixture::log(source.path(), partition);
        let state = log.state().unwrap();
        let segment = &state.segments[0];
        let end = state.segments.get(1).map(|next| next.base_offset);
        let offsets = offset_index(log.shared(), segment).unwrap().faults;
        let times = time_index(log.shared(), segment, end).unwrap().faults;
        (offsets.join("; "), times.join("; "))
    }

    fn change(file: &Path, change: impl Fn(&mut Vec<u8>)) {
        let mut bytes = std::fs::read(file).unwrap();
        change(&mut bytes);
        std::fs::write(file, bytes).unwrap();
    }

    #[test]
    fn every_index_that_a_broker_closed_is_sound() {
        for set in ["clean", "open-txn", "exact", "legacy"] {
            let names = fixture::partitions(set);
            let source =
                fixture::data_dir(set, &names.iter().map(String::as_str).collect::<Vec<_>>());
            for name in names {
                let log = fixture::log(source.path(), &name);
                for segment in &log.state().unwrap().segments {
                    let offsets = offset_index(log.shared(), segment).unwrap();
                    let times = time_index(log.shared(), segment, None).unwrap();
                    assert_eq!((offsets.faults, times.faults), (vec![], vec![]), "{set}/{name}");
                }
            }
        }
    }

    #[test]
    fn padding_is_named() {
        let (offsets, times) = faults("plain-0", |index, time_index| {
            change(index, |bytes| bytes.resize(10_485_760, 0));
            change(time_index, |bytes| bytes.resize(bytes.len() + 12, 0));
        });
        assert_eq!(offsets, "zero-padded to 10485760 bytes (preallocated)");
        assert!(times.starts_with("zero-padded to "), "{times}");
    }

    #[test]
    fn partial_entries_are_named() {
        let (offsets, times) = faults("plain-0", |index, time_index| {
            change(index, |bytes| bytes.truncate(13));
            change(time_index, |bytes| bytes.truncate(13));
        });
        assert_eq!(offsets, "trailing bytes: 13 is no multiple of 8 (partial entry)");
        assert_eq!(times, "trailing bytes: 13 is no multiple of 12 (partial entry)");
    }

    #[test]
    fn missing_files_are_named_but_not_of_an_empty_segment() {
        let drop = |index: &Path, time_index: &Path| {
            std::fs::remove_file(index).unwrap();
            std::fs::remove_file(time_index).unwrap();
        };
        assert_eq!(faults("plain-0", drop), ("missing".to_owned(), "missing".to_owned()));
        assert_eq!(faults("empty-0", drop), (String::new(), String::new()));
    }

    #[test]
    fn entries_beyond_the_log_are_stale() {
        let (offsets, times) = faults("plain-0", |index, time_index| {
            change(index, |bytes| bytes.extend([0, 0, 100, 0, 127, 0, 0, 0]));
            change(time_index, |bytes| bytes.extend([127, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0]));
        });
        assert!(offsets.starts_with("stale: entry "), "{offsets}");
        assert!(offsets.contains("points to position 2130706432, beyond the log of "), "{offsets}");
        assert!(times.contains("names offset 65536, beyond the log"), "{times}");
    }

    #[test]
    fn an_index_of_first_offsets_is_shifted() {
        let (offsets, _) = faults("plain-0", |index, _| {
            change(index, |bytes| {
                for entry in bytes.chunks_exact_mut(8) {
                    let relative = i32::from_be_bytes(*entry.first_chunk().unwrap());
                    entry[..4].copy_from_slice(&(relative - 1).to_be_bytes());
                }
            });
        });
        assert!(offsets.starts_with("foreign or shifted: entry 0 promises offset "), "{offsets}");
        assert!(offsets.contains(", found offsets "), "{offsets}");
    }

    #[test]
    fn positions_where_no_batch_begins_are_foreign() {
        let (offsets, _) = faults("plain-0", |index, _| change(index, |bytes| bytes[7] ^= 1));
        assert!(offsets.ends_with("found no batch"), "{offsets}");
    }

    #[test]
    fn entries_that_go_down_are_out_of_order() {
        let (offsets, times) = faults("plain-0", |index, time_index| {
            let last_is_first = |bytes: &mut Vec<u8>, n| {
                let last = bytes.len() - n;
                bytes.copy_within(..n, last);
            };
            change(index, |bytes| last_is_first(bytes, 8));
            change(time_index, |bytes| last_is_first(bytes, 12));
        });
        assert!(offsets.starts_with("out of order: entry "), "{offsets}");
        assert!(times.starts_with("out of order: entry "), "{times}");
    }

    /// Brokers before 4.1 index all batches that a follower appended together by the last offset
    /// of the last and the position of the first.
    #[test]
    fn an_entry_for_several_batches_is_sound() {
        let (offsets, _) = faults("plain-0", |index, _| {
            change(index, |bytes| {
                // The first entry now has the offset of the second and begins at the first batch.
                let mut joined = bytes[8..12].to_vec();
                joined.extend([0; 4]);
                bytes.splice(..16, joined);
            });
        });
        assert_eq!(offsets, "");
    }
}
