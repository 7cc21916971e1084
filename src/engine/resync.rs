//! The search for the next believable batch after wrong bytes: which places are worth a checksum.

use std::ops::Range;

use crate::engine::disk::Disk;
use crate::engine::segment::Segment;
use crate::engine::window::Window;
use crate::error::Result;
use crate::format::batch::{LOG_OVERHEAD, PREFIX_BYTES};
use crate::units::{Offset, Position};

/// Bytes that are looked at in one step.
const STEP: usize = 1 << 20;
/// Zeroed pages are passed over in blocks of this size.
const BLOCK: usize = 512;

/// Bounds the checksum work of one search, so that a file of nothing but headers cannot make it
/// quadratic.
#[derive(Debug)]
pub struct Budget {
    left: u64,
}

impl Budget {
    /// Enough for any honest file of this size.
    pub fn for_bytes(bytes: u64) -> Budget {
        Budget { left: bytes.saturating_mul(8).saturating_add(64 << 20) }
    }

    /// Takes `bytes` off; false when they are not there any more.
    pub fn spend(&mut self, bytes: u64) -> bool {
        let enough = self.left >= bytes;
        self.left = self.left.saturating_sub(bytes.max(1));
        enough
    }

    /// Is it used up?
    pub fn is_empty(&self) -> bool {
        self.left == 0
    }
}

/// Where a search stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Candidate {
    /// A batch may begin here.
    At(Position),
    /// None begins before this place; go on there.
    NothingUpTo(Position),
    /// None begins before the end of the file.
    End,
}

/// Looks at the bytes from `from` on, a bounded number of them, for a place where the base offset
/// lies within `offsets`, the length within the file and the magic is known.
pub fn next_candidate(
    disk: &dyn Disk,
    segment: &Segment,
    window: &mut Window,
    from: Position,
    offsets: &Range<Offset>,
) -> Result<Candidate> {
    let left = segment.valid_bytes.saturating_sub(from.get());
    if left <= PREFIX_BYTES as u64 {
        return Ok(Candidate::End);
    }
    let bytes = window.fill(disk, &segment.log.file, from, STEP)?;
    let bytes = &bytes[..bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX))];
    if bytes.len() <= PREFIX_BYTES {
        return Ok(Candidate::End);
    }
    if bytes.chunks(BLOCK).all(is_zero) {
        // Perhaps a hole, of any size: a batch may begin with zeros a little before data.
        let behind = from.plus((bytes.len() - PREFIX_BYTES) as u64);
        let data = disk.hole_end(&segment.log.file, behind)?;
        let before = data.get().saturating_sub(PREFIX_BYTES as u64);
        return Ok(Candidate::NothingUpTo(behind.max(Position::new(before))));
    }
    let mut at = 0;
    while at + PREFIX_BYTES < bytes.len() {
        if at % BLOCK == 0 && bytes[at..].get(..BLOCK).is_some_and(is_zero) {
            // A batch may begin with zeros, but not with more of them than its header.
            at += BLOCK - PREFIX_BYTES;
            while at % BLOCK != 0 && at + PREFIX_BYTES < bytes.len() {
                if may_begin(&bytes[at..], left - at as u64, offsets) {
                    return Ok(Candidate::At(from.plus(at as u64)));
                }
                at += 1;
            }
            continue;
        }
        if may_begin(&bytes[at..], left - at as u64, offsets) {
            return Ok(Candidate::At(from.plus(at as u64)));
        }
        at += 1;
    }
    Ok(Candidate::NothingUpTo(from.plus(at as u64)))
}

fn is_zero(block: &[u8]) -> bool {
    block.iter().fold(0, |all, byte| all | byte) == 0
}

#[inline]
fn may_begin(bytes: &[u8], left: u64, offsets: &Range<Offset>) -> bool {
    let Some((base, rest)) = bytes.split_first_chunk() else { return false };
    let Some(size) = rest.first_chunk() else { return false };
    let Some(base) = Offset::new(i64::from_be_bytes(*base)) else { return false };
    let size = i32::from_be_bytes(*size);
    offsets.contains(&base)
        && size >= 14
        && u64::try_from(size).is_ok_and(|size| size + LOG_OVERHEAD as u64 <= left)
        && bytes.get(16).is_some_and(|magic| *magic <= 2)
}
