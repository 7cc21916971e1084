//! A data directory: which partitions it holds, and what else lies in it.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use crate::engine::access::{Standing, WriteAccess};
use crate::engine::config::{self, SETTINGS_FILE};
use crate::engine::disk::{Disk, Facts, Kind, RealDisk, read_small, replace_small};
use crate::engine::limits::Limits;
use crate::engine::log::{LOOK_AGAIN, Log, Made, Shared};
use crate::engine::options::ReadOptions;
use crate::engine::writer::{Writer, is_retention_due};
use crate::error::{Error, Result};
use crate::format::checkpoint::{Uuid, parse_partition_metadata, write_partition_metadata};
use crate::format::name::{DirectoryKind, TopicPartition, parse_directory_name};
use crate::units::Timestamp;

/// The directories of a broker that are no partitions and no mistake either.
const KNOWN_DIRECTORIES: [&str; 1] = ["remote-log-index-cache"];
/// Logs that stay open at the most; the others are opened again when they are asked for.
const MOST_OPEN_LOGS: usize = 256;
/// Logs that are written at once at the most; closing one trims its indexes and syncs it.
const MOST_WRITERS: usize = 32;
/// The file with the topic id.
const PARTITION_METADATA: &str = "partition.metadata";

/// A data directory, or the one partition of it that was asked for.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    only: Option<OsString>,
    shared: Arc<Shared>,
    listing: Mutex<Option<(Arc<Listing>, Instant)>>,
    logs: Mutex<Logs>,
    /// Where the logs stand that were closed or recovered since the directory was opened.
    recovered: Mutex<HashMap<TopicPartition, Standing>>,
}

#[derive(Debug, Default)]
struct Logs {
    clock: u64,
    open: HashMap<OsString, (Arc<Log>, u64)>,
}

/// What a data directory held at one moment.
#[derive(Clone, Debug)]
pub struct Listing {
    /// The directory itself.
    pub facts: Facts,
    /// Live partitions by directory name, in no order.
    pub partitions: HashMap<OsString, Partition>,
    /// Names of `-delete`, `-stray` and `-future` directories, sorted.
    pub other: Vec<OsString>,
    /// What was skipped, with the reason, sorted.
    pub skipped: Vec<(OsString, String)>,
}

/// A live partition.
#[derive(Clone, Debug)]
pub struct Partition {
    /// Topic and number.
    pub name: TopicPartition,
    /// Tells its directory from another that had, or will have, the same name.
    pub made: Made,
    /// Its directory; elsewhere when the name is a link that is followed.
    pub path: PathBuf,
}

impl DataDir {
    /// The data directory at `path`; with `only`, just that partition of it.
    pub fn new(path: &Path, only: Option<&OsStr>, options: ReadOptions) -> DataDir {
        let disk: Arc<dyn Disk> = Arc::new(RealDisk::new(options.open_files));
        DataDir::on_disk(disk, path, only, options, None)
    }

    /// The same, to be written: takes the lock, which is refused while someone else has it.
    pub fn writable(path: &Path, only: Option<&OsStr>, options: ReadOptions) -> Result<DataDir> {
        let disk: Arc<dyn Disk> = Arc::new(RealDisk::new(options.open_files));
        let access = Arc::new(WriteAccess::take(&*disk, path)?);
        Ok(DataDir::on_disk(disk, path, only, options, Some(access)))
    }

    /// The same on another disk.
    pub fn on_disk(
        disk: Arc<dyn Disk>,
        path: &Path,
        only: Option<&OsStr>,
        options: ReadOptions,
        access: Option<Arc<WriteAccess>>,
    ) -> DataDir {
        DataDir {
            path: path.to_path_buf(),
            only: only.map(OsStr::to_owned),
            shared: Arc::new(Shared::new(disk, path, options, access)),
            listing: Mutex::new(None),
            logs: Mutex::default(),
            recovered: Mutex::default(),
        }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What its logs share.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// What it holds now, or held a moment ago.
    pub fn listing(&self) -> Result<Arc<Listing>> {
        let mut known = self.listing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((listing, looked)) = &*known
            && looked.elapsed() < LOOK_AGAIN
        {
            return Ok(Arc::clone(listing));
        }
        let looked = Instant::now();
        let facts = self.shared.disk.facts(&self.path)?;
        let listing = match &*known {
            Some((listing, _)) if listing.facts == facts => Arc::clone(listing),
            earlier => {
                let first = earlier.is_none();
                let listing = self.list(facts)?;
                if first {
                    for (name, reason) in &listing.skipped {
                        log::warn!("{}: skipped, {reason}", self.path.join(name).display());
                    }
                }
                Arc::new(listing)
            }
        };
        *known = Some((Arc::clone(&listing), looked));
        Ok(listing)
    }

    /// The log in the partition directory `name`; `None` when there is none.
    pub fn log(&self, name: &OsStr) -> Result<Option<Arc<Log>>> {
        let listing = self.listing()?;
        let Some(partition) = listing.partitions.get(name) else {
            let gone = self.logs.lock().unwrap_or_else(PoisonError::into_inner).open.remove(name);
            if let Some((log, _)) = gone {
                log.leave();
            }
            return Ok(None);
        };
        let mut logs = self.logs.lock().unwrap_or_else(PoisonError::into_inner);
        logs.clock += 1;
        let now = logs.clock;
        if let Some((log, used)) = logs.open.get_mut(name) {
            if log.made() == Some(partition.made) {
                *used = now;
                return Ok(Some(Arc::clone(log)));
            }
            log.leave();
            logs.open.remove(name);
        }
        if logs.open.len() >= MOST_OPEN_LOGS
            && let Some(oldest) = logs
                .open
                .iter()
                // One that someone has in hand may be written in a moment: by one writer, not two.
                .filter(|(_, (log, _))| !log.is_written() && Arc::strong_count(log) == 1)
                .min_by_key(|(_, (_, used))| *used)
        {
            let oldest = oldest.0.clone();
            logs.open.remove(&oldest);
        }
        let Partition { name: partition, made, path } = partition.clone();
        let log = Arc::new(Log::new(partition, path, Some(made), Arc::clone(&self.shared)));
        logs.open.insert(name.to_owned(), (Arc::clone(&log), now));
        Ok(Some(log))
    }

    /// Forgets what was listed, after a partition came or went.
    fn changed(&self) {
        *self.listing.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Does `work` with the writer of `log`. Writers that were not used for long are closed when
    /// there are too many.
    pub fn write<T>(
        &self,
        log: &Log,
        now: Timestamp,
        work: impl FnOnce(&mut Writer) -> Result<T>,
    ) -> Result<T> {
        let first = !log.is_written();
        let done = log.write(now, work);
        if first {
            self.bound_writers(log, now);
        }
        done
    }

    fn bound_writers(&self, latest: &Log, now: Timestamp) {
        let logs = self.logs.lock().unwrap_or_else(PoisonError::into_inner);
        let mut written: Vec<_> =
            logs.open.values().filter(|(log, _)| log.is_written()).cloned().collect();
        drop(logs);
        written.sort_unstable_by_key(|(_, used)| *used);
        let surplus = written.len().saturating_sub(MOST_WRITERS);
        for (log, _) in written.iter().take(surplus) {
            // What failed is an error of that log, not of the one that was just written.
            if log.name() != latest.name()
                && let Err(e) = self.close(log, now)
            {
                log::warn!("{}: not closed: {e}", log.path().display());
            }
        }
    }

    fn close(&self, log: &Log, now: Timestamp) -> Result<()> {
        if let Some(standing) = log.close_writer(now)? {
            let mut recovered = self.recovered.lock().unwrap_or_else(PoisonError::into_inner);
            recovered.insert(log.name().clone(), standing);
        }
        Ok(())
    }

    /// Recovers the logs that an unclean end left, one after the other, until `stop` says so.
    pub fn recover(&self, now: impl Fn() -> Timestamp, stop: &dyn Fn() -> bool) -> Result<()> {
        let access = self.shared.access.as_ref();
        if access.is_none_or(|access| access.was_clean()) {
            return Ok(());
        }
        for name in self.listing()?.partitions.keys() {
            if stop() {
                return Ok(());
            }
            let Some(log) = self.log(name)? else { continue };
            if let Err(e) = self.write(&log, now(), |_| Ok(())) {
                log::warn!("{}: not recovered: {e}", log.path().display());
            }
        }
        Ok(())
    }

    /// What settings, times and sizes ask for now and then: retention, and `flush.ms`.
    pub fn maintain(&self, now: Timestamp) {
        let logs = self.logs.lock().unwrap_or_else(PoisonError::into_inner);
        let written: Vec<_> = logs.open.values().map(|(log, _)| Arc::clone(log)).collect();
        drop(logs);
        for log in written.iter().filter(|log| log.is_written()) {
            let done = log.write(now, |writer| {
                if writer.flush_is_due(now) {
                    writer.sync(now)?;
                }
                writer.retain(now)
            });
            if let Err(e) = done {
                log::warn!("{}: {e}", log.path().display());
            }
        }
        if let Err(e) = self.retain_unwritten(now) {
            log::warn!("{}: {e}", self.path.display());
        }
    }

    /// Retention of logs that nobody writes. By default nothing is deleted: only those that have
    /// such a setting are opened, and written only when something goes.
    fn retain_unwritten(&self, now: Timestamp) -> Result<()> {
        let disk = &*self.shared.disk;
        for (name, partition) in &self.listing()?.partitions {
            let settings = read_small(disk, &partition.path.join(SETTINGS_FILE), 1 << 20);
            let text = String::from_utf8(settings.unwrap_or_default()).unwrap_or_default();
            if !text.lines().any(|line| line.starts_with("retention.")) {
                continue;
            }
            let Some(log) = self.log(name)?.filter(|log| !log.is_written()) else { continue };
            let limits = Limits::new(log.name(), &config::effective(&log));
            let done = is_retention_due(&log, &limits, now).and_then(|due| {
                if due { self.write(&log, now, |writer| writer.retain(now)) } else { Ok(()) }
            });
            if let Err(e) = done {
                log::warn!("{}: {e}", log.path().display());
            }
        }
        Ok(())
    }

    /// An orderly end, in Kafka's order: logs flushed and closed, checkpoints, marker, lock.
    pub fn shut_down(&self, now: Timestamp) -> Result<()> {
        let Some(access) = &self.shared.access else { return Ok(()) };
        let disk = &*self.shared.disk;
        let logs = self.logs.lock().unwrap_or_else(PoisonError::into_inner);
        let written: Vec<_> = logs.open.values().map(|(log, _)| Arc::clone(log)).collect();
        drop(logs);
        let mut failed = None;
        for log in &written {
            if let Err(e) = self.close(log, now) {
                log::warn!("{}: {e}", log.path().display());
                failed.get_or_insert(e);
            }
        }
        if let Some(e) = failed {
            return Err(e);
        }
        if access.has_begun() {
            let recovered = self.recovered.lock().unwrap_or_else(PoisonError::into_inner);
            let standings: Vec<_> = recovered.values().cloned().collect();
            access.checkpoint(disk, &standings)?;
            let listing = self.listing()?;
            let all = self.only.is_none()
                && listing.partitions.values().all(|p| recovered.contains_key(&p.name));
            access.leave_marker(disk, all)?;
        }
        access.release()
    }

    /// Makes a partition; its topic id is that of the topic's other partitions, or new.
    pub fn create_partition(&self, name: &OsStr, random: [u8; 16]) -> Result<()> {
        let path = self.path.join(name);
        let refusal = |reason: String| Error::Invalid(format!("{}: {reason}", path.display()));
        let text = name.to_str().ok_or_else(|| refusal("the name is not UTF-8".to_owned()))?;
        let (partition, kind) = parse_directory_name(text).map_err(|e| refusal(e.to_string()))?;
        if kind != DirectoryKind::Live || self.only.is_some() {
            return Err(refusal("no partition can be made here".to_owned()));
        }
        let access = self.access()?;
        let disk = &*self.shared.disk;
        let listing = self.listing()?;
        let siblings = listing.partitions.values().filter(|p| p.name.topic() == partition.topic());
        let known = siblings.filter_map(|sibling| {
            let bytes = read_small(disk, &sibling.path.join(PARTITION_METADATA), 4096).ok()?;
            parse_partition_metadata(&bytes).ok()
        });
        let id = known.into_iter().next().unwrap_or(Uuid::from_random(random));
        access.begin(disk)?;
        disk.create_directory(&path)?;
        let metadata = path.join(PARTITION_METADATA);
        let made = replace_small(disk, &metadata, write_partition_metadata(id).as_bytes())
            .and_then(|()| disk.sync_directory(&self.path));
        if made.is_err() {
            // A broker takes a partition without its id for a stray one. The first error counts.
            let _ = disk.remove_directory(&path);
        }
        self.changed();
        made
    }

    /// Removes a partition with all that is in it.
    pub fn remove_partition(&self, name: &OsStr, random: [u8; 16], now: Timestamp) -> Result<()> {
        let Some(log) = self.log(name)? else { return Ok(()) };
        let access = self.access()?;
        let disk = &*self.shared.disk;
        access.begin(disk)?;
        // What is written last is of no use to anyone.
        let _ = log.close_writer(now);
        let hex = format!("{:032x}", u128::from_be_bytes(random));
        let gone = self.path.join(format!("{}.{hex}-delete", name.to_string_lossy()));
        disk.rename(log.path(), &gone)?;
        disk.sync_directory(&self.path)?;
        log.leave();
        self.logs.lock().unwrap_or_else(PoisonError::into_inner).open.remove(name);
        self.recovered.lock().unwrap_or_else(PoisonError::into_inner).remove(log.name());
        self.changed();
        access.forget(disk, log.name())?;
        disk.remove_directory(&gone)
    }

    fn access(&self) -> Result<&Arc<WriteAccess>> {
        let access = self.shared.access.as_ref();
        access.ok_or_else(|| Error::refused(&self.path, "this is not a writable mount"))
    }

    fn list(&self, facts: Facts) -> Result<Listing> {
        let disk = &*self.shared.disk;
        let mut listing =
            Listing { facts, partitions: HashMap::new(), other: Vec::new(), skipped: Vec::new() };
        let names = match &self.only {
            Some(only) => vec![only.clone()],
            None => disk.list(&self.path)?,
        };
        for name in names {
            self.place(disk, &mut listing, name);
        }
        listing.other.sort_unstable();
        listing.skipped.sort_unstable();
        Ok(listing)
    }

    fn place(&self, disk: &dyn Disk, listing: &mut Listing, name: OsString) {
        let parsed = match name.to_str() {
            Some(text) if KNOWN_DIRECTORIES.contains(&text) => return,
            Some(text) => parse_directory_name(text).map_err(|e| e.to_string()),
            None => Err("the name is not UTF-8".to_owned()),
        };
        let Ok(facts) = disk.facts(&self.path.join(&name)) else { return };
        let (kind, made) = (facts.kind, Made(facts.id, facts.made));
        let followed = kind == Kind::Link && self.shared.options.follow_symlinks;
        match (kind, parsed) {
            (Kind::File, _) => {}
            (Kind::Other, _) => listing.skipped.push((name, "not a directory".to_owned())),
            (Kind::Link, _) if !followed => {
                let reason = "a symbolic link (-o follow_symlinks follows it)".to_owned();
                listing.skipped.push((name, reason));
            }
            (Kind::Directory, Ok((partition, DirectoryKind::Live))) => {
                let path = self.path.join(&name);
                listing.partitions.insert(name, Partition { name: partition, made, path });
            }
            (Kind::Link, Ok((partition, DirectoryKind::Live))) => {
                match disk.resolve(&self.path.join(&name)) {
                    Ok(path) => {
                        listing.partitions.insert(name, Partition { name: partition, made, path });
                    }
                    Err(e) => listing.skipped.push((name, e.to_string())),
                }
            }
            (Kind::Directory | Kind::Link, Ok(_)) => listing.other.push(name),
            (Kind::Directory | Kind::Link, Err(reason)) => listing.skipped.push((name, reason)),
        }
    }
}
