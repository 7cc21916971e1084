//! Index files as memory, where nobody else can shrink them: holding Kafka's lock on the data
//! directory is an argument of each constructor. A file that is not ours is never mapped, since
//! touching a page that another process cut off kills this one.

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};

use memmap2::{Mmap, MmapRaw};

use crate::engine::lock::DirLock;

/// The whole of a sealed index, read only.
#[derive(Debug)]
pub struct SealedMap(Mmap);

impl SealedMap {
    /// Maps `file`, which lies in the directory that `_lock` protects and is not written any more.
    pub fn new(file: &File, _lock: &DirLock) -> io::Result<SealedMap> {
        // SAFETY: the lock keeps every other writer out while this process lives, and this process
        // neither writes nor shortens a sealed index: it is replaced by a new file.
        unsafe { Mmap::map(file) }.map(SealedMap)
    }
}

impl Deref for SealedMap {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// The preallocated index of an active segment: entries are added by one writer and read by anyone.
/// What is below [`Self::len`] never changes.
#[derive(Debug)]
pub struct ActiveMap {
    map: MmapRaw,
    /// Bytes of entries that are complete.
    published: AtomicUsize,
}

impl ActiveMap {
    /// Maps `file`, opened for reading and writing, of which the first `published` bytes are
    /// entries. The file keeps its length while the map lives.
    pub fn new(file: &File, published: usize, _lock: &DirLock) -> io::Result<ActiveMap> {
        let map = MmapRaw::map_raw(file)?;
        let published = AtomicUsize::new(published.min(map.len()));
        Ok(ActiveMap { map, published })
    }

    /// The entries.
    pub fn entries(&self) -> &[u8] {
        let published = self.published.load(Ordering::Acquire);
        // SAFETY: the map is at least `published` bytes long, lives as long as `self`, and these
        // bytes do not change any more: `push` writes behind them and publishes afterwards. The
        // lock of the constructor keeps the file from being cut under the map.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr(), published) }
    }

    /// Bytes of entries.
    pub fn len(&self) -> usize {
        self.published.load(Ordering::Acquire)
    }

    /// Are there no entries?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that entries may take.
    pub fn capacity(&self) -> usize {
        self.map.len()
    }

    /// Adds one entry; false when there is no room. Only one thread may do this at a time: the
    /// writer's lock sees to it. The caller has reserved the disk blocks behind the bytes.
    pub fn push(&self, entry: &[u8]) -> bool {
        let at = self.published.load(Ordering::Relaxed);
        if at + entry.len() > self.map.len() {
            return false;
        }
        // SAFETY: `at + entry.len()` lies within the map, nobody reads behind `published`, and only
        // one thread pushes.
        let target = unsafe { self.map.as_mut_ptr().add(at) };
        // SAFETY: as above; an entry of the caller's does not lie in the map.
        unsafe { std::ptr::copy_nonoverlapping(entry.as_ptr(), target, entry.len()) };
        self.published.store(at + entry.len(), Ordering::Release);
        true
    }

    /// Adds an entry that was written to the file behind [`Self::len`]; false when there is no
    /// room. The map is not touched: on filesystems that promise no blocks a store could kill the
    /// process.
    pub fn publish(&self, bytes: usize) -> bool {
        let end = self.published.load(Ordering::Relaxed) + bytes;
        if end > self.map.len() {
            return false;
        }
        self.published.store(end, Ordering::Release);
        true
    }
}
