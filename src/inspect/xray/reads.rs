//! A disk that notes what is read from it, and what of that the page cache held before.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;

use crate::engine::disk::{Disk, DiskFile, Facts, RealDisk};
use crate::engine::facts::file_name;
use crate::error::Result;
use crate::inspect::page_cache;
use crate::units::Position;

/// One call of pread(2).
#[derive(Clone, Debug, Serialize)]
pub struct Read {
    /// Name of the file.
    pub file: String,
    /// First byte.
    pub position: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// The first page of 4 KiB that it touches.
    pub first_page: u64,
    /// Pages that it touches.
    pub pages: u64,
    /// Those of them that were in the page cache before; `None` where the kernel does not tell.
    pub pages_cached_before: Option<u64>,
}

/// The real disk, watched.
#[derive(Debug)]
pub struct WatchedDisk {
    real: RealDisk,
    reads: Mutex<Vec<Read>>,
}

impl WatchedDisk {
    /// With so many files open at the most.
    pub fn new(open_files: usize) -> WatchedDisk {
        WatchedDisk { real: RealDisk::new(open_files), reads: Mutex::default() }
    }

    /// What was read since this was asked last.
    pub fn take(&self) -> Vec<Read> {
        std::mem::take(&mut *self.reads.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Disk for WatchedDisk {
    fn read_at(&self, file: &DiskFile, at: Position, buffer: &mut [u8]) -> Result<usize> {
        let asked = buffer.len() as u64;
        let cached = page_cache::cached_in(&file.path, at.get(), asked);
        let read = self.real.read_at(file, at, buffer)?;
        let bytes = read as u64;
        let first_page = at.get() / page_cache::PAGE_BYTES;
        let pages = (at.get() + bytes).div_ceil(page_cache::PAGE_BYTES) - first_page;
        let name = file_name(&file.path);
        self.reads.lock().unwrap_or_else(PoisonError::into_inner).push(Read {
            file: name,
            position: at.get(),
            bytes,
            first_page,
            pages: if bytes == 0 { 0 } else { pages },
            pages_cached_before: cached.map(|told| told.cached.min(pages)),
        });
        Ok(read)
    }

    fn list(&self, directory: &Path) -> Result<Vec<OsString>> {
        self.real.list(directory)
    }

    fn resolve(&self, path: &Path) -> Result<PathBuf> {
        self.real.resolve(path)
    }

    fn facts(&self, path: &Path) -> Result<Facts> {
        self.real.facts(path)
    }

    fn facts_of(&self, file: &DiskFile) -> Result<Facts> {
        self.real.facts_of(file)
    }

    fn hole_end(&self, file: &DiskFile, at: Position) -> Result<Position> {
        self.real.hole_end(file, at)
    }

    fn create(&self, path: &Path) -> Result<DiskFile> {
        self.real.create(path)
    }

    fn write_at(&self, file: &DiskFile, at: Position, bytes: &[u8]) -> Result<()> {
        self.real.write_at(file, at, bytes)
    }

    fn set_bytes(&self, file: &DiskFile, bytes: u64) -> Result<()> {
        self.real.set_bytes(file, bytes)
    }

    fn reserve(&self, file: &DiskFile, from: Position, bytes: u64) -> Result<bool> {
        self.real.reserve(file, from, bytes)
    }

    fn sync(&self, file: &DiskFile) -> Result<()> {
        self.real.sync(file)
    }

    fn sync_directory(&self, path: &Path) -> Result<()> {
        self.real.sync_directory(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.real.rename(from, to)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.real.remove(path)
    }

    fn create_directory(&self, path: &Path) -> Result<()> {
        self.real.create_directory(path)
    }

    fn remove_directory(&self, path: &Path) -> Result<()> {
        self.real.remove_directory(path)
    }

    fn lend(&self, file: &DiskFile) -> Result<Arc<File>> {
        self.real.lend(file)
    }
}
