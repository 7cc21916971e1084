//! What reading a file gives: its bytes, or the name of the error.

use std::fmt;
use std::io;
use std::path::Path;

/// Compared as a whole, so that a wrong byte and a wrong error look alike in a failing test.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Got {
    Bytes(Vec<u8>),
    Error(String),
}

/// Shorthands for the two errors that the contract names most.
pub const ENOENT: Error = Error("ENOENT");
pub const EIO: Error = Error("EIO");

/// An error's name; compares with `Got`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error(pub &'static str);

impl From<Error> for Got {
    fn from(error: Error) -> Self {
        Self::Error(error.0.into())
    }
}

impl PartialEq<Error> for Got {
    fn eq(&self, other: &Error) -> bool {
        matches!(self, Self::Error(name) if name == other.0)
    }
}

impl PartialEq<&[u8]> for Got {
    fn eq(&self, other: &&[u8]) -> bool {
        matches!(self, Self::Bytes(bytes) if bytes == other)
    }
}

impl PartialEq<&str> for Got {
    fn eq(&self, other: &&str) -> bool {
        *self == other.as_bytes()
    }
}

impl fmt::Debug for Got {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(b) if b.len() > 300 => {
                write!(f, "{} bytes \"{}...\"", b.len(), b[..300].escape_ascii())
            }
            Self::Bytes(b) => write!(f, "\"{}\"", b.escape_ascii()),
            Self::Error(name) => f.write_str(name),
        }
    }
}

impl Got {
    /// The bytes; an error fails the test.
    pub fn bytes(self) -> Vec<u8> {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Error(name) => panic!("{name} instead of bytes"),
        }
    }

    /// The bytes as text.
    pub fn text(self) -> String {
        String::from_utf8(self.bytes()).expect("UTF-8")
    }
}

pub fn bytes(bytes: impl Into<Vec<u8>>) -> Got {
    Got::Bytes(bytes.into())
}

/// Each piece and a newline: what a range of these values reads.
pub fn lines<T: AsRef<[u8]>>(values: impl IntoIterator<Item = T>) -> Got {
    let line = |value: T| [value.as_ref(), b"\n"].concat();
    Got::Bytes(values.into_iter().flat_map(line).collect())
}

/// Reads a whole file.
pub fn read(path: impl AsRef<Path>) -> Got {
    of(std::fs::read(path))
}

/// The result of a system call, with its error by name.
pub fn of(result: io::Result<Vec<u8>>) -> Got {
    match result {
        Ok(bytes) => Got::Bytes(bytes),
        Err(error) => Got::Error(name(&error)),
    }
}

/// "ok", or the name of the error.
pub fn error_of<T>(result: io::Result<T>) -> String {
    result.map_or_else(|error| name(&error), |_| "ok".into())
}

/// The name of an error.
pub fn name(error: &io::Error) -> String {
    use rustix::io::Errno;
    let known = [
        (Errno::NOENT, "ENOENT"),
        (Errno::IO, "EIO"),
        (Errno::ROFS, "EROFS"),
        (Errno::PERM, "EPERM"),
        (Errno::ACCESS, "EACCES"),
        (Errno::NOTCONN, "ENOTCONN"),
        (Errno::NOTDIR, "ENOTDIR"),
        (Errno::ISDIR, "EISDIR"),
        (Errno::INVAL, "EINVAL"),
        (Errno::NODATA, "ENODATA"),
        (Errno::LOOP, "ELOOP"),
        (Errno::MSGSIZE, "EMSGSIZE"),
        (Errno::NOSPC, "ENOSPC"),
        (Errno::NOTEMPTY, "ENOTEMPTY"),
        (Errno::EXIST, "EEXIST"),
    ];
    let number = error.raw_os_error();
    known
        .iter()
        .find(|(errno, _)| Some(errno.raw_os_error()) == number)
        .map_or_else(|| format!("errno {number:?}"), |(_, name)| (*name).into())
}
