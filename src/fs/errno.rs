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
    /// It cannot be changed, even on a writable mount.
    pub const NOT_PERMITTED: Errno = Errno(libc::EPERM);
    /// The partition has records.
    pub const NOT_EMPTY: Errno = Errno(libc::ENOTEMPTY);
    /// There is such a name already.
    pub const EXISTS: Errno = Errno(libc::EEXIST);
    /// What was written makes no sense here.
    pub const INVALID: Errno = Errno(libc::EINVAL);
    /// The mount is going away.
    pub const GONE: Errno = Errno(libc::ENOTCONN);
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
                ErrorKind::StorageFull => Errno(libc::ENOSPC),
                ErrorKind::QuotaExceeded => Errno(libc::EDQUOT),
                ErrorKind::ReadOnlyFilesystem => Errno::READ_ONLY,
                _ => Errno::IO,
            },
            Error::Damage { .. } | Error::Refused { .. } | Error::Poisoned { .. } => Errno::IO,
            Error::TooLarge(_) => Errno(libc::EMSGSIZE),
            Error::Invalid(_) | Error::Usage(_) => Errno::INVALID,
            Error::Interrupted => Errno(libc::EINTR),
        };
        if errno == Errno::IO {
            log::debug!("EIO: {error}");
        }
        errno
    }
}
