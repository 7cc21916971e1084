//! What the kernel keeps of a file in memory; asked, never found out by reading.

use std::path::Path;

use serde::Serialize;

use crate::sys::{self, CachedPages};

/// Bytes of a page.
pub const PAGE_BYTES: u64 = 4096;
/// Parts that a file is divided into for a map of it.
const MAP_PARTS: u64 = 64;

/// How much of a file is in the page cache.
#[derive(Clone, Debug, Serialize)]
pub struct Residency {
    /// Name of the file.
    pub file: String,
    /// Its size.
    pub bytes: u64,
    /// Its pages.
    pub pages: u64,
    /// Those in the page cache.
    pub cached: u64,
    /// Of these, changed ones that are not on the disk; `None` where the kernel does not tell.
    pub dirty: Option<u64>,
    /// Of these, ones that are being written to the disk.
    pub writeback: Option<u64>,
    /// Pages of each part of the map, but for the last.
    pub pages_per_part: u64,
    /// Cached pages of each part, in their order.
    pub parts: Vec<u64>,
}

/// Asks for the whole file; `None` where it cannot be opened or the kernel does not tell.
pub fn of(path: &Path) -> Option<Residency> {
    let file = sys::open_untouched(path).ok()?;
    let bytes = file.metadata().ok()?.len();
    let all = sys::cached_pages(&file, 0, bytes).ok()?;
    let pages = bytes.div_ceil(PAGE_BYTES);
    let pages_per_part = pages.div_ceil(MAP_PARTS).max(1);
    let parts = (0..pages.div_ceil(pages_per_part)).map(|part| {
        let from = part * pages_per_part * PAGE_BYTES;
        let length = (pages_per_part * PAGE_BYTES).min(bytes - from);
        sys::cached_pages(&file, from, length).map_or(0, |told| told.cached)
    });
    Some(Residency {
        file: path.file_name()?.to_string_lossy().into_owned(),
        bytes,
        pages,
        cached: all.cached,
        dirty: all.dirty,
        writeback: all.writeback,
        pages_per_part,
        parts: parts.collect(),
    })
}

/// Asks for a part of the file.
pub fn cached_in(path: &Path, from: u64, bytes: u64) -> Option<CachedPages> {
    sys::cached_pages(&sys::open_untouched(path).ok()?, from, bytes).ok()
}
