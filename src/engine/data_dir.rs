//! A data directory: which partitions it holds, and what else lies in it.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use crate::engine::disk::{Disk, Facts, Kind, RealDisk};
use crate::engine::log::{LOOK_AGAIN, Log, Shared};
use crate::engine::options::ReadOptions;
use crate::error::Result;
use crate::format::name::{DirectoryKind, TopicPartition, parse_directory_name};

/// The directories of a broker that are no partitions and no mistake either.
const KNOWN_DIRECTORIES: [&str; 1] = ["remote-log-index-cache"];
/// Logs that stay open at the most; the others are opened again when they are asked for.
const MOST_OPEN_LOGS: usize = 256;

/// A data directory, or the one partition of it that was asked for.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    only: Option<OsString>,
    shared: Arc<Shared>,
    listing: Mutex<Option<(Arc<Listing>, Instant)>>,
    logs: Mutex<Logs>,
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
    /// Its directory; elsewhere when the name is a link that is followed.
    pub path: PathBuf,
}

impl DataDir {
    /// The data directory at `path`; with `only`, just that partition of it.
    pub fn new(path: &Path, only: Option<&OsStr>, options: ReadOptions) -> DataDir {
        let disk: Arc<dyn Disk> = Arc::new(RealDisk::new(options.open_files));
        DataDir::on_disk(disk, path, only, options)
    }

    /// The same on another disk.
    pub fn on_disk(
        disk: Arc<dyn Disk>,
        path: &Path,
        only: Option<&OsStr>,
        options: ReadOptions,
    ) -> DataDir {
        DataDir {
            path: path.to_path_buf(),
            only: only.map(OsStr::to_owned),
            shared: Arc::new(Shared::new(disk, path, options)),
            listing: Mutex::new(None),
            logs: Mutex::default(),
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
            self.logs.lock().unwrap_or_else(PoisonError::into_inner).open.remove(name);
            return Ok(None);
        };
        let mut logs = self.logs.lock().unwrap_or_else(PoisonError::into_inner);
        logs.clock += 1;
        let now = logs.clock;
        if let Some((log, used)) = logs.open.get_mut(name) {
            *used = now;
            return Ok(Some(Arc::clone(log)));
        }
        if logs.open.len() >= MOST_OPEN_LOGS
            && let Some(oldest) = logs.open.iter().min_by_key(|(_, (_, used))| *used)
        {
            let oldest = oldest.0.clone();
            logs.open.remove(&oldest);
        }
        let Partition { name: partition, path } = partition.clone();
        let log = Arc::new(Log::new(partition, path, Arc::clone(&self.shared)));
        logs.open.insert(name.to_owned(), (Arc::clone(&log), now));
        Ok(Some(log))
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
        let kind = match disk.facts(&self.path.join(&name)) {
            Ok(facts) => facts.kind,
            Err(_) => return,
        };
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
                listing.partitions.insert(name, Partition { name: partition, path });
            }
            (Kind::Link, Ok((partition, DirectoryKind::Live))) => {
                match disk.resolve(&self.path.join(&name)) {
                    Ok(path) => {
                        listing.partitions.insert(name, Partition { name: partition, path });
                    }
                    Err(e) => listing.skipped.push((name, e.to_string())),
                }
            }
            (Kind::Directory | Kind::Link, Ok(_)) => listing.other.push(name),
            (Kind::Directory | Kind::Link, Err(reason)) => listing.skipped.push((name, reason)),
        }
    }
}
