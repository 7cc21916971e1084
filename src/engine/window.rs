//! A moving window over one file: bytes are read in large pieces and lent out in small ones.

use std::ops::Range;

use crate::engine::disk::{Disk, DiskFile};
use crate::error::Result;
use crate::units::Position;

/// Bytes that are read at once at the most.
const LARGEST_STEP: usize = 4 << 20;

/// Bytes that a long pass reads at once: enough for the system calls to cost nothing, and little
/// enough to stay in the processor's cache.
pub const LARGEST_CHUNK: usize = 256 << 10;

/// What a disk that is going bad is asked for at once, where it refuses more.
const SECTOR_BYTES: u64 = 4096;

/// Bytes of a file around the place that is being read.
#[derive(Debug)]
pub struct Window {
    start: u64,
    /// Only the first `filled` bytes count; the rest is kept so that it need not be zeroed again.
    buffer: Vec<u8>,
    filled: usize,
    chunk: usize,
    largest: usize,
    /// The last bytes that the disk refused to give, as it does where it is bad.
    refused: Option<Range<u64>>,
}

impl Window {
    /// An empty window that reads at least `chunk` bytes at a time.
    pub fn new(chunk: usize) -> Window {
        let (buffer, refused) = (Vec::new(), None);
        Window { start: 0, buffer, filled: 0, chunk, largest: chunk, refused }
    }

    /// An empty window that reads at least `chunk` bytes the first time, and twice as many each
    /// time up to [`LARGEST_CHUNK`].
    pub fn growing(chunk: usize) -> Window {
        Window { largest: chunk.max(LARGEST_CHUNK), ..Window::new(chunk) }
    }

    /// Reads at least `chunk` bytes at a time from now on.
    pub fn widen(&mut self, chunk: usize) {
        (self.chunk, self.largest) = (chunk, chunk);
    }

    /// Makes `bytes` bytes from `at` available, as far as the file has them, and lends them. The
    /// caller bounds `bytes`; memory grows with it. What the disk refuses to give is zero: no
    /// checksum is right with it, unless it was.
    #[inline]
    pub fn fill(
        &mut self,
        disk: &dyn Disk,
        file: &DiskFile,
        at: Position,
        bytes: usize,
    ) -> Result<&[u8]> {
        let held = self.held(at);
        if held.len() < bytes {
            self.move_to(disk, file, at, bytes)?;
        }
        let held = self.held(at);
        Ok(&held[..bytes.min(held.len())])
    }

    /// What is already here from `at` on.
    #[inline]
    pub fn held(&self, at: Position) -> &[u8] {
        at.get()
            .checked_sub(self.start)
            .and_then(|skip| usize::try_from(skip).ok())
            .and_then(|skip| self.buffer.get(skip..self.filled))
            .unwrap_or_default()
    }

    /// Did the disk refuse to give bytes at or behind `from`?
    pub fn is_refused(&self, from: Position) -> bool {
        self.refused.as_ref().is_some_and(|refused| refused.end > from.get())
    }

    /// Forgets what lies at or behind `at`, where the file may have changed.
    pub fn forget_from(&mut self, at: Position) {
        let kept = at.get().saturating_sub(self.start);
        self.filled = self.filled.min(usize::try_from(kept).unwrap_or(usize::MAX));
    }

    fn move_to(
        &mut self,
        disk: &dyn Disk,
        file: &DiskFile,
        at: Position,
        bytes: usize,
    ) -> Result<()> {
        let kept = self.held(at).len();
        self.buffer.copy_within(self.filled - kept..self.filled, 0);
        (self.start, self.filled) = (at.get(), kept);
        let wanted = bytes.max(self.chunk);
        self.chunk = self.largest.min(2 * self.chunk);
        // Memory follows the bytes that are there, not the number that was asked for.
        while self.filled < wanted {
            let end = wanted.min(self.filled + LARGEST_STEP);
            if self.buffer.len() < end {
                self.buffer.resize(end, 0);
            }
            let from = at.plus(self.filled as u64);
            let room = &mut self.buffer[self.filled..end];
            let read = match disk.read_at(file, from, room) {
                Err(e) if e.is_bad_disk() => {
                    let (read, refused) = read_around(disk, file, from, room)?;
                    self.refused = refused.or(self.refused.take());
                    read
                }
                done => done?,
            };
            let short = self.filled + read < end;
            self.filled += read;
            if short {
                break;
            }
        }
        if self.buffer.len() > LARGEST_STEP && wanted <= self.chunk {
            self.buffer.truncate(self.filled.max(self.chunk));
            self.buffer.shrink_to_fit();
        }
        Ok(())
    }
}

/// Reads sector by sector; bytes read, zeros where the disk refuses, and the place of those.
pub(super) fn read_around(
    disk: &dyn Disk,
    file: &DiskFile,
    from: Position,
    buffer: &mut [u8],
) -> Result<(usize, Option<Range<u64>>)> {
    let size = disk.facts_of(file)?.bytes;
    let there = usize::try_from(size.saturating_sub(from.get())).unwrap_or(usize::MAX);
    let wanted = buffer.len().min(there);
    let (mut filled, mut refused) = (0, None::<Range<u64>>);
    while filled < wanted {
        let at = from.plus(filled as u64);
        let left = SECTOR_BYTES - at.get() % SECTOR_BYTES;
        let end = wanted.min(filled + usize::try_from(left).unwrap_or(wanted));
        let sector = &mut buffer[filled..end];
        match disk.read_at(file, at, sector) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(e) if e.is_bad_disk() => {
                log::warn!("{e}, position {at}: taken for damage");
                sector.fill(0);
                filled = end;
                let start = refused.map_or(at.get(), |refused| refused.start);
                refused = Some(start..at.get() + left);
            }
            Err(e) => return Err(e),
        }
    }
    Ok((filled, refused))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::disk::RealDisk;

    #[test]
    fn lends_what_the_file_has_from_any_place() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("f");
        let content: Vec<u8> = (0..=255).cycle().take(10_000).collect();
        std::fs::write(&path, &content).unwrap();
        let disk = RealDisk::new(1);
        let file = DiskFile { id: disk.facts(&path).unwrap().id, path };
        let mut window = Window::new(100);
        for (at, bytes) in [(0, 10), (5, 300), (9_990, 50), (200, 1), (10_000, 5), (0, 20_000)] {
            let end = content.len().min(at + bytes);
            let lent = window.fill(&disk, &file, Position::new(at as u64), bytes).unwrap();
            assert_eq!(lent, &content[at..end]);
        }
    }
}
