//! Errors as the kernel knows them, decided here and nowhere else. ENOENT: there is no such name.
//! EIO: it was here and cannot be given.

use std::io::ErrorKind;

use crate::error::Error;

/// An error number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

impl Errno {
    /// No such name.
    pub const NOT_FOUND: Errno = Errno(libc::ENOENT);
    /// It cannot be given.
    pub const IO: Errno = Errno(libc::EIO);
    /// Not a directory.
    pub const NOT_A_DIRECTORY: Errno = Errno(libc::ENOTDIR);
    /// A directory.
    pub const IS_A_DIRECTORY: Errno = Errno(libc::EISDIR);
    /// Nothing here can be changed.
    pub const READ_ONLY: Errno = Errno(libc::EROFS);
    /// No such extended attribute.
    pub const NO_ATTRIBUTE: Errno = Errno(libc::ENODATA);
    /// The inode or handle is none of ours.
    pub const STALE: Errno = Errno(libc::ESTALE);
}

impl From<Error> for Errno {
    fn from(error: Error) -> Errno {
        let errno = match &error {
            Error::Io { source, .. } => match source.kind() {
                ErrorKind::PermissionDenied => Errno(libc::EACCES),
                _ => Errno::IO,
            },
            Error::Damage { .. } | Error::Refused { .. } => Errno::IO,
            Error::Usage(_) => Errno(libc::EINVAL),
            Error::Interrupted => Errno(libc::EINTR),
        };
        if errno == Errno::IO {
            log::debug!("EIO: {error}");
        }
        errno
    }
}
