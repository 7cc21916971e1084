//! The bytes of an index, wherever they are: read into memory where the file is somebody else's,
//! mapped where we hold the lock.

use std::ops::Deref;
use std::sync::Arc;

use crate::engine::mmap::{ActiveMap, SealedMap};

/// An index without its padding.
#[derive(Debug)]
pub enum IndexBytes {
    /// A copy.
    Read(Vec<u8>),
    /// A sealed one of ours.
    Sealed(SealedMap),
    /// The one that is being written.
    Live(Arc<ActiveMap>),
}

impl Deref for IndexBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            IndexBytes::Read(bytes) => bytes,
            IndexBytes::Sealed(map) => map,
            IndexBytes::Live(map) => map.entries(),
        }
    }
}

impl IndexBytes {
    /// Bytes of our own memory that it takes.
    pub fn weight(&self) -> usize {
        match self {
            IndexBytes::Read(bytes) => bytes.capacity() + 64,
            IndexBytes::Sealed(_) | IndexBytes::Live(_) => 256,
        }
    }
}
