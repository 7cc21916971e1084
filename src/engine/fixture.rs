//! Partitions that Apache Kafka wrote, copied to where a test may break them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempDir;

use crate::engine::disk::RealDisk;
use crate::engine::epochs::LeaderEpochs;
use crate::engine::log::{Log, Shared};
use crate::engine::metadata::DIRECTORY;
use crate::engine::options::ReadOptions;
use crate::format::batch::{BatchHeader, Magic, TimestampType};
use crate::format::checkpoint::EpochStart;
use crate::format::codec::Codec;
use crate::units::{LeaderEpoch, Offset};

fn set(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn copy_files(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_file() {
            std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

/// A data directory with the files of the set `name` and these partitions of it.
pub fn data_dir(name: &str, partitions: &[&str]) -> TempDir {
    let scratch = tempfile::tempdir().unwrap();
    let data = set(name).join("data");
    copy_files(&data, scratch.path());
    for partition in partitions {
        copy_files(&data.join(partition), &scratch.path().join(partition));
    }
    scratch
}

/// Names of the partitions of a set.
pub fn partitions(name: &str) -> Vec<String> {
    let entries = std::fs::read_dir(set(name).join("data")).unwrap().map(Result::unwrap);
    let directories = entries.filter(|entry| entry.file_type().unwrap().is_dir());
    directories.map(|entry| entry.file_name().into_string().unwrap()).collect()
}

/// Adds the set's metadata log to a data directory.
pub fn with_metadata(name: &str, directory: &Path) {
    copy_files(&set(name).join("meta").join(DIRECTORY), &directory.join(DIRECTORY));
}

/// What the logs in `directory` share.
pub fn shared(directory: &Path) -> Arc<Shared> {
    let disk = Arc::new(RealDisk::new(64));
    Arc::new(Shared::new(disk, directory, ReadOptions::default(), None))
}

/// One log of `directory`.
pub fn log(directory: &Path, partition: &str) -> Log {
    let path = directory.join(partition);
    Log::new(partition.parse().unwrap(), path, None, shared(directory))
}

/// What Kafka reads in a partition: a file with one JSON object a record.
pub fn expected(name: &str, partition: &str) -> PathBuf {
    set(name).join("expected").join(format!("{partition}.jsonl"))
}

/// The header of a batch that holds the offsets from `first` to `last` and nothing special.
pub fn batch(first: i64, last: i64) -> BatchHeader {
    BatchHeader {
        magic: Magic::V2,
        base_offset: Offset::new(first).unwrap(),
        last_offset: Offset::new(last).unwrap(),
        bytes: 100,
        leader_epoch: None,
        crc: 0,
        codec: Codec::None,
        timestamp_type: TimestampType::Create,
        transactional: false,
        control: false,
        delete_horizon: None,
        base_timestamp: -1,
        max_timestamp: None,
        producer_id: -1,
        producer_epoch: -1,
        base_sequence: -1,
        records_count: u32::try_from(last - first + 1).unwrap(),
    }
}

/// Leader epochs from numbers and first offsets.
pub fn epochs(entries: &[(i32, i64)]) -> LeaderEpochs {
    let entry = |&(epoch, start)| EpochStart {
        epoch: LeaderEpoch::new(epoch).unwrap(),
        start: Offset::new(start).unwrap(),
    };
    LeaderEpochs::new(&entries.iter().map(entry).collect::<Vec<_>>())
}

/// The same numbers again.
pub fn shown_epochs(epochs: &LeaderEpochs) -> Vec<(i32, i64)> {
    epochs.entries().iter().map(|entry| (entry.epoch.get(), entry.start.get())).collect()
}
