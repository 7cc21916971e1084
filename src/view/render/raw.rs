//! Raw: whole batches as they are stored. Read, the bytes are those of the segment files; appended,
//! a batch is kept as it is, so everything in it must be readable before it is taken.

use crate::engine::batches::payload;
use crate::format::FormatError;
use crate::format::batch::BatchHeader;
use crate::format::codec::{self, Codec};
use crate::format::record::Cursor;

/// A batch to be appended as it is, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewBatch<'a> {
    /// What its header says.
    pub header: BatchHeader,
    /// All its bytes, header included.
    pub bytes: &'a [u8],
}

/// The batch that `bytes` are from the first to the last, if its checksum is right and each of its
/// records can be read; expanded it may have `max_expanded_bytes`. Otherwise why not.
pub fn parse(bytes: &[u8], max_expanded_bytes: usize) -> Result<NewBatch<'_>, String> {
    let header = BatchHeader::parse(bytes).map_err(|error| error.to_string())?;
    if u64::try_from(bytes.len()) != Ok(header.bytes) {
        return Err(format!("a batch of {} bytes, {} are there", header.bytes, bytes.len()));
    }
    let checksum = header.checksum(bytes);
    if checksum != header.crc {
        let said = header.crc;
        return Err(format!("checksum {checksum:08x}, but the header says {said:08x}"));
    }
    read_all(&header, bytes, max_expanded_bytes).map_err(|error| error.to_string())?;
    Ok(NewBatch { header, bytes })
}

fn read_all(header: &BatchHeader, batch: &[u8], max_bytes: usize) -> Result<(), FormatError> {
    let stored = payload(header, batch)?;
    if header.codec == Codec::None {
        return read_records(header, stored);
    }
    let mut expanded = Vec::new();
    codec::decompress(header.codec, header.magic, stored, &mut expanded, max_bytes)?;
    read_records(header, &expanded)
}

fn read_records(header: &BatchHeader, bytes: &[u8]) -> Result<(), FormatError> {
    Cursor::new(header, bytes)?.for_each(header, bytes, |_| ())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::super::sample::batch;
    use super::*;
    use crate::format::batch::Prefix;

    /// `batch` with `bytes` at `at` and the checksum that it then needs.
    fn patched(mut batch: Vec<u8>, at: usize, bytes: &[u8]) -> Vec<u8> {
        batch[at..at + bytes.len()].copy_from_slice(bytes);
        let checksum = BatchHeader::parse(&batch).unwrap().checksum(&batch);
        batch[17..21].copy_from_slice(&checksum.to_be_bytes());
        batch
    }

    fn logs_below(directory: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                logs_below(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "log") {
                found.push(path);
            }
        }
    }

    /// Contract 3.1, 5.1: of all codecs and magics, transactions and compaction.
    #[test]
    fn each_batch_that_kafka_wrote_is_taken() {
        let mut logs = Vec::new();
        for intact in ["clean", "legacy", "open-txn"] {
            let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(intact);
            logs_below(&fixture.join("data"), &mut logs);
        }
        let mut taken = 0;
        for log in logs {
            let data = fs::read(&log).unwrap();
            let mut rest = &data[..];
            while let Ok(prefix) = Prefix::parse(rest) {
                let Some((bytes, after)) =
                    rest.split_at_checked(usize::try_from(prefix.bytes).unwrap())
                else {
                    break;
                };
                let batch = parse(bytes, 64 << 20);
                assert_eq!(batch.as_ref().map(|batch| batch.bytes), Ok(bytes), "{}", log.display());
                rest = after;
                taken += 1;
            }
        }
        assert!(taken > 100, "{taken}");
    }

    /// Contract 3.3 (`test_bad_input_is_einval`).
    #[test]
    fn a_batch_with_anything_wrong_is_refused() {
        let good = batch(0, Codec::None, &[b"v"]);
        assert_eq!(parse(&good, 0).unwrap().bytes, good);
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            // What the checksum does not cover: low bits of the base offset, and the epoch.
            let uncovered = at < 8 || (12..16).contains(&at);
            assert_eq!(parse(&bad, 0).is_ok(), uncovered, "byte {at}");
        }
        let longer = [&good[..], b"x"].concat();
        let length = good.len();
        for (bad, reason) in [
            (&good[..length - 1], format!("a batch of {length} bytes, {} are there", length - 1)),
            (&longer, format!("a batch of {length} bytes, {} are there", length + 1)),
            (&good[..10], "batch prefix needs 17 bytes, 10 are there".to_owned()),
            (&patched(good.clone(), 22, &[5]), "unknown codec 5".to_owned()),
            (&patched(good.clone(), 60, &[2]), "invalid record at byte".to_owned()),
            (&patched(good.clone(), 60, &[0]), "bytes are left after the last record".to_owned()),
        ] {
            let said = parse(bad, 1 << 20).unwrap_err();
            assert!(said.starts_with(&reason), "{said}");
        }
    }

    #[test]
    fn offsets_of_records_increase() {
        let two = batch(5, Codec::None, &[b"v", b"v"]);
        // The offset delta of the second record, of which each takes 8 bytes.
        let said = parse(&patched(two, 61 + 8 + 3, &[0]), 0).unwrap_err();
        assert_eq!(said, "record 5 does not come after the one before it");
    }

    #[test]
    fn what_expands_beyond_the_bound_is_refused() {
        let batch = batch(0, Codec::Gzip, &[&[0; 10_000]]);
        assert!(parse(&batch, 10_100).is_ok());
        assert_eq!(parse(&batch, 10_000), Err("expands to more than 10000 bytes".to_owned()));
    }
}
