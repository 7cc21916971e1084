//! The two indexes of the segment that is written: preallocated and mapped, with blocks reserved
//! before an entry goes in, so that a full disk is an error of the append and not a signal.

use std::path::Path;
use std::sync::Arc;

use crate::engine::access::WriteAccess;
use crate::engine::disk::{Disk, DiskFile, Kind};
use crate::engine::mmap::ActiveMap;
use crate::error::{Error, Result};
use crate::units::Position;

/// Bytes for which blocks are reserved at once.
const RESERVED_AT_ONCE: u64 = 16 << 10;

/// One index file that grows.
#[derive(Debug)]
pub struct ActiveIndex {
    file: DiskFile,
    map: Arc<ActiveMap>,
    entry_bytes: usize,
    /// Bytes behind which blocks are there.
    reserved: u64,
    /// Can the filesystem not promise blocks, so that entries are written rather than mapped?
    written: bool,
}

impl ActiveIndex {
    /// The file at `path` with room for `bytes` bytes of entries, of which `kept` are there.
    pub fn open(
        disk: &dyn Disk,
        access: &WriteAccess,
        path: &Path,
        entry_bytes: usize,
        bytes: u64,
        kept: u64,
    ) -> Result<ActiveIndex> {
        let file = match disk.facts(path) {
            Ok(facts) if facts.kind == Kind::File => {
                DiskFile { path: path.to_path_buf(), id: facts.id }
            }
            Ok(_) => return Err(Error::refused(path, "not a regular file")),
            Err(e) if e.is_not_found() => disk.create(path)?,
            Err(e) => return Err(e),
        };
        let entry = entry_bytes as u64;
        let room = (bytes - bytes % entry).max(kept).max(entry);
        // Behind the kept entries there must be zeros, whatever was there.
        disk.set_bytes(&file, kept)?;
        disk.set_bytes(&file, room)?;
        let published = usize::try_from(kept).unwrap_or(0);
        let map = Arc::new(access.map_active(disk, &file, published)?);
        Ok(ActiveIndex { file, map, entry_bytes, reserved: kept, written: false })
    }

    /// Entries in it.
    pub fn entries_count(&self) -> usize {
        self.map.len() / self.entry_bytes
    }

    /// Entries that it has room for.
    pub fn entries_max(&self) -> usize {
        self.map.capacity() / self.entry_bytes
    }

    /// What readers look at.
    pub fn map(&self) -> &Arc<ActiveMap> {
        &self.map
    }

    /// The file.
    pub fn file(&self) -> &DiskFile {
        &self.file
    }

    /// The last entry.
    pub fn last(&self) -> Option<&[u8]> {
        let entries = self.map.entries();
        entries.len().checked_sub(self.entry_bytes).map(|start| &entries[start..])
    }

    /// Makes sure that one more entry can be pushed, as far as the disk goes.
    pub fn reserve(&mut self, disk: &dyn Disk) -> Result<()> {
        let needed = (self.map.len() + self.entry_bytes) as u64;
        if self.written || needed <= self.reserved || needed > self.map.capacity() as u64 {
            return Ok(());
        }
        let room = self.map.capacity() as u64 - self.reserved;
        let bytes = RESERVED_AT_ONCE.min(room);
        if bytes > 0 && disk.reserve(&self.file, Position::new(self.reserved), bytes)? {
            self.reserved += bytes;
        } else {
            self.written = true;
        }
        Ok(())
    }

    /// Adds an entry, for which [`Self::reserve`] was called; nothing happens when it is full.
    pub fn push(&mut self, disk: &dyn Disk, entry: &[u8]) -> Result<()> {
        if self.map.len() + entry.len() > self.map.capacity() {
            return Ok(());
        }
        if self.written {
            disk.write_at(&self.file, Position::new(self.map.len() as u64), entry)?;
            self.map.publish(entry.len());
        } else {
            self.map.push(entry);
        }
        Ok(())
    }

    /// Brings what was added to the disk. On Linux a shared map is the page cache of its file,
    /// whose dirty pages fsync(2) writes: an msync(2) before it would wait for the disk twice.
    pub fn sync(&self, disk: &dyn Disk) -> Result<()> {
        disk.sync(&self.file)
    }

    /// Cuts the file to its entries.
    pub fn trim(&self, disk: &dyn Disk) -> Result<()> {
        disk.set_bytes(&self.file, self.map.len() as u64)
    }
}
