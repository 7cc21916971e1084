//! Sizes kept from one run to the next, in a directory outside SOURCE. A file here is believed only
//! if it was made for the same file (inode, size, time), the same partition and the same way of
//! reading, and is whole; in doubt the sizes are counted again. Nothing here is needed.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::engine::extent::{Extents, Mark};
use crate::engine::options::ReadOptions;
use crate::engine::segment::Segment;
use crate::format::name::TopicPartition;
use crate::format::{field_i32, field_i64};
use crate::units::{Offset, Position};

/// Begins every file; changes when the layout or the meaning of a size does.
const MAGIC: &[u8; 20] = b"offsetfs extents v2\n";
/// Smaller segments are counted faster than a file is opened.
const LEAST_BYTES: u64 = 1 << 20;
const MARK_BYTES: usize = 32;

/// The kept sizes of one segment in one format.
#[derive(Debug)]
pub struct Stored {
    path: PathBuf,
    /// All that the sizes depend on.
    key: Vec<u8>,
}

impl Stored {
    /// Where the sizes of `segment` are kept; `None` when they are not.
    pub fn of(
        segment: &Segment,
        name: &TopicPartition,
        format: u8,
        options: &ReadOptions,
    ) -> Option<Stored> {
        let directory = options.cache_dir.as_ref()?;
        if segment.valid_bytes < LEAST_BYTES {
            return None;
        }
        let facts = &segment.log.facts;
        let numbers = [
            facts.id.device,
            facts.id.inode,
            facts.bytes,
            facts.modified.0.cast_unsigned(),
            u64::from(facts.modified.1),
            segment.valid_bytes,
            segment.limit.get().cast_unsigned(),
            u64::from(format),
            options.isolation as u64,
            options.damage as u64,
        ];
        let mut key: Vec<u8> = numbers.iter().flat_map(|number| number.to_be_bytes()).collect();
        key.extend_from_slice(name.to_string().as_bytes());
        let hash = crc32c::crc32c(&key);
        let file = format!("{:016x}-{hash:08x}-{format}.extents", facts.id.inode);
        Some(Stored { path: directory.join(file), key })
    }

    /// The kept sizes, if there are any to be believed.
    pub fn load(&self) -> Option<Extents> {
        let bytes = fs::read(&self.path).ok()?;
        let (content, checksum) = bytes.split_last_chunk::<4>()?;
        if crc32c::crc32c(content) != u32::from_be_bytes(*checksum) {
            return None;
        }
        let rest = content.strip_prefix(MAGIC)?;
        let key_bytes = usize::try_from(field_i32(rest, 0).ok()?).ok()?;
        let (key, rest) = rest.get(4..)?.split_at_checked(key_bytes)?;
        if key != self.key {
            return None;
        }
        let torn = u64::try_from(field_i64(rest, 0).ok()?).ok()?;
        let largest_batch = u64::try_from(field_i64(rest, 8).ok()?).ok()?;
        let mut marks: Vec<Mark> =
            rest.get(16..)?.chunks_exact(MARK_BYTES).map(read_mark).collect::<Option<_>>()?;
        let end = marks.pop()?;
        let damage = Vec::new();
        (!marks.is_empty()).then_some(Extents {
            marks,
            end,
            damage,
            torn,
            largest_batch,
            last: None,
        })
    }

    /// Keeps `extents`, which must be complete. Those of a damaged segment are not kept, so that
    /// the damage is met, and said, again. A failure is no more than a lost chance.
    pub fn save(&self, extents: &Extents) {
        if !extents.damage.is_empty() {
            return;
        }
        let key_bytes = u32::try_from(self.key.len()).unwrap_or(0);
        let mut content = MAGIC.to_vec();
        content.extend_from_slice(&key_bytes.to_be_bytes());
        content.extend_from_slice(&self.key);
        content.extend_from_slice(&extents.torn.to_be_bytes());
        content.extend_from_slice(&extents.largest_batch.to_be_bytes());
        for mark in extents.marks.iter().chain(std::iter::once(&extents.end)) {
            let offset = mark.expected.get().cast_unsigned();
            for number in [mark.position.get(), offset, mark.bytes, mark.records] {
                content.extend_from_slice(&number.to_be_bytes());
            }
        }
        content.extend_from_slice(&crc32c::crc32c(&content).to_be_bytes());
        if let Err(e) = write_whole(&self.path, &content) {
            log::debug!("cannot keep sizes in {}: {e}", self.path.display());
        }
    }
}

fn read_mark(bytes: &[u8]) -> Option<Mark> {
    let number = |at| u64::try_from(field_i64(bytes, at).ok()?).ok();
    Some(Mark {
        position: Position::new(number(0)?),
        expected: Offset::new(field_i64(bytes, 8).ok()?)?,
        bytes: number(16)?,
        records: number(24)?,
    })
}

/// Another process may do the same at the same time: the file appears whole or not at all.
fn write_whole(path: &Path, content: &[u8]) -> std::io::Result<()> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    let scratch = path.with_extension(format!("{}.tmp", std::process::id()));
    let written = fs::File::create(&scratch)
        .and_then(|mut file| file.write_all(content))
        .and_then(|()| fs::rename(&scratch, path));
    if written.is_err() {
        // What is left of a failed write is of no use to anyone.
        let _ = fs::remove_file(&scratch);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::disk::{DiskFile, Facts, FileId, Kind};
    use crate::engine::segment::File;

    fn segment(bytes: u64) -> Segment {
        let id = FileId { device: 1, inode: 2 };
        let facts = Facts {
            id,
            kind: Kind::File,
            bytes,
            modified: (3, 4),
            made: None,
            mode: 0o644,
            uid: 0,
            gid: 0,
        };
        let log = File { file: DiskFile { path: "0.log".into(), id }, facts };
        Segment::alone(Offset::ZERO, log)
    }

    fn stored(directory: &Path, bytes: u64, topic: &str) -> Stored {
        let options = ReadOptions { cache_dir: Some(directory.into()), ..ReadOptions::default() };
        Stored::of(&segment(bytes), &TopicPartition::new(topic, 0).unwrap(), 0, &options).unwrap()
    }

    #[test]
    fn sizes_come_back_for_the_same_file_and_name_only() {
        let scratch = tempfile::tempdir().unwrap();
        let mut extents = Extents::empty(Offset::ZERO);
        extents.end.bytes = 77;
        extents.largest_batch = 9;
        stored(scratch.path(), LEAST_BYTES, "t").save(&extents);
        assert_eq!(stored(scratch.path(), LEAST_BYTES, "t").load(), Some(extents));
        assert_eq!(stored(scratch.path(), LEAST_BYTES + 1, "t").load(), None);
        assert_eq!(stored(scratch.path(), LEAST_BYTES, "u").load(), None);
    }

    #[test]
    fn a_flipped_bit_makes_it_worthless() {
        let scratch = tempfile::tempdir().unwrap();
        let kept = stored(scratch.path(), LEAST_BYTES, "t");
        kept.save(&Extents::empty(Offset::ZERO));
        let good = fs::read(&kept.path).unwrap();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            fs::write(&kept.path, bad).unwrap();
            assert_eq!(kept.load(), None, "byte {at}");
        }
    }
}
