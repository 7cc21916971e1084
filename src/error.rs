//! What can go wrong, told so that a reader can act on it: what was tried, on which path, at which
//! position. "The bytes are wrong" (`Damage`) is never the same as "the file could not be read"
//! (`Io`); "the bytes stop" is no error at all, but an end (see `engine::damage`).

use std::io;
use std::path::{Path, PathBuf};

use crate::units::Position;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can fail in this crate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused; `action` is a verb phrase such as "open" or "read".
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Bytes of the log are wrong: the records in them cannot be given.
    #[error("{path}, position {position}: {reason}")]
    Damage {
        /// The segment file.
        path: PathBuf,
        /// Where the bad batch begins.
        position: Position,
        /// What was expected and what was there.
        reason: String,
    },
    /// The command cannot be carried out on what was named; the message says why.
    #[error("{path}: {reason}")]
    Refused {
        /// What was named.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// What was typed is no valid command, with the valid forms named.
    #[error("{0}")]
    Usage(String),
    /// A record or batch that no limit lets in.
    #[error("{0}")]
    TooLarge(String),
    /// A record, batch, offset or setting that cannot be; nothing was changed.
    #[error("{0}")]
    Invalid(String),
    /// A log that takes no appends any more; reads go on.
    #[error("{path} takes no appends: {reason}")]
    Poisoned {
        /// The partition's directory.
        path: PathBuf,
        /// What happened, and what helps.
        reason: String,
    },
    /// A long scan was given up because its caller was interrupted.
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    /// For `map_err` after a call of the operating system.
    pub fn io(action: &'static str, path: impl AsRef<Path>) -> impl FnOnce(io::Error) -> Error {
        let path = path.as_ref().to_path_buf();
        move |source| Error::Io { action, path, source }
    }

    /// Is this about a file that is not there?
    pub fn is_not_found(&self) -> bool {
        matches!(self, Error::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    /// Did the disk refuse to give bytes that should be there, as one that is going bad does?
    pub fn is_bad_disk(&self) -> bool {
        matches!(self, Error::Io { source, .. } if source.raw_os_error() == Some(libc::EIO))
    }

    /// A refusal of `path`.
    pub fn refused(path: impl AsRef<Path>, reason: impl Into<String>) -> Error {
        Error::Refused { path: path.as_ref().to_path_buf(), reason: reason.into() }
    }
}
