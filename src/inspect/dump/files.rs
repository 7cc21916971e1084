//! The files that are dumped: as they were typed, and opened.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::engine::disk::{Disk, DiskFile, Kind};
use crate::engine::segment::File;
use crate::engine::window::Window;
use crate::error::{Error, Result};
use crate::units::{Offset, Position};

/// Bytes that are read at once to begin with; more in a long pass.
const CHUNK: usize = 64 << 10;

/// A file as it was typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named(PathBuf);

impl Named {
    /// From what was typed, as Java's `File` keeps it: without empty parts between slashes and
    /// without a slash at the end.
    pub fn new(typed: &OsStr) -> Named {
        let mut bytes = typed.as_bytes().to_vec();
        bytes.dedup_by(|this, before| (*this, *before) == (b'/', b'/'));
        if bytes.len() > 1 && bytes.last() == Some(&b'/') {
            bytes.pop();
        }
        Named(OsString::from_vec(bytes).into())
    }

    /// The files that are named in a list with commas; empty names at the end are none.
    pub fn list(typed: &OsStr) -> Vec<Named> {
        let mut names: Vec<&[u8]> = typed.as_bytes().split(|byte| *byte == b',').collect();
        while names.len() > 1 && names.last().is_some_and(|name| name.is_empty()) {
            names.pop();
        }
        names.into_iter().map(|name| Named::new(OsStr::from_bytes(name))).collect()
    }

    /// Where it is, as typed.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// What the dump tool prints for it.
    pub fn bytes(&self) -> &[u8] {
        self.0.as_os_str().as_bytes()
    }

    /// The part behind the last slash.
    pub fn name(&self) -> &[u8] {
        self.bytes().rsplit(|byte| *byte == b'/').next().unwrap_or_default()
    }

    /// The end of the name from its last dot on.
    pub fn suffix(&self) -> Option<&[u8]> {
        let name = self.name();
        name.get(name.iter().rposition(|byte| *byte == b'.')?..)
    }

    /// The absolute path, with nothing in it resolved, as reports name the file.
    pub fn absolute(&self) -> PathBuf {
        // Without a current directory the typed name must do.
        std::env::current_dir().map_or_else(|_| self.0.clone(), |here| here.join(&self.0))
    }

    /// The file of the same segment with another suffix.
    #[must_use]
    pub fn sibling(&self, suffix: &str) -> Named {
        let stem = self.name().split(|byte| *byte == b'.').next().unwrap_or_default();
        let name = [stem, suffix.as_bytes()].concat();
        Named(self.0.with_file_name(OsStr::from_bytes(&name)))
    }

    /// The base offset that the name begins with.
    pub fn base_offset(&self) -> Result<Offset> {
        let stem = self.name().split(|byte| *byte == b'.').next().unwrap_or_default();
        let number = str::from_utf8(stem).ok().and_then(|text| text.parse().ok());
        number
            .and_then(Offset::new)
            .ok_or_else(|| Error::refused(&self.0, "the name does not begin with an offset"))
    }

    /// Opens it; links are followed, as it was named by the user.
    pub fn open(&self, disk: &Arc<dyn Disk>) -> Result<Opened> {
        let path = disk.resolve(&self.0).map_err(|error| self.cannot_open(error))?;
        let facts = disk.facts(&path)?;
        if facts.kind != Kind::File {
            return Err(Error::refused(&self.0, "is not a file"));
        }
        let file = File { file: DiskFile { path, id: facts.id }, facts };
        Ok(Opened { disk: Arc::clone(disk), file, window: Window::growing(CHUNK) })
    }

    fn cannot_open(&self, error: Error) -> Error {
        match error {
            Error::Io { source, .. } => Error::io("open", &self.0)(source),
            other => other,
        }
    }
}

/// An open file and the part of it that is being read.
#[derive(Debug)]
pub struct Opened {
    /// How it is read.
    pub disk: Arc<dyn Disk>,
    /// Which file, and what it was when it was opened.
    pub file: File,
    window: Window,
}

impl Opened {
    /// Its size in bytes when it was opened.
    pub fn bytes(&self) -> u64 {
        self.file.bytes()
    }

    /// The bytes from `at` on, at most `count`, as far as the file has them.
    #[inline]
    pub fn read(&mut self, at: u64, count: usize) -> Result<&[u8]> {
        self.window.fill(&*self.disk, &self.file.file, Position::new(at), count)
    }

    /// What [`Self::read`] has already made available from `at` on.
    #[inline]
    pub fn held(&self, at: u64) -> &[u8] {
        self.window.held(Position::new(at))
    }

    /// All of it, or an error when it has more than `most` bytes.
    pub fn read_all(&mut self, most: usize) -> Result<Vec<u8>> {
        let bytes = usize::try_from(self.bytes()).unwrap_or(usize::MAX);
        if bytes > most {
            let reason = format!("has {bytes} bytes, more than the {most} that are read at once");
            return Err(Error::refused(&self.file.file.path, reason));
        }
        self.read(0, bytes).map(<[u8]>::to_vec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(text: &str) -> Vec<String> {
        let names = Named::list(OsStr::new(text));
        names.iter().map(|named| String::from_utf8_lossy(named.bytes()).into_owned()).collect()
    }

    #[test]
    fn names_are_kept_as_java_keeps_them() {
        assert_eq!(typed("a//b/,./c,/,//"), ["a/b", "./c", "/", "/"]);
        assert_eq!(typed("a,,b,,"), ["a", "", "b"]);
        assert_eq!(typed(""), [""]);
    }

    #[test]
    fn a_name_says_what_it_is() {
        let named = Named::new(OsStr::new("t-0/00000000000000000042.timeindex"));
        assert_eq!(named.suffix(), Some(&b".timeindex"[..]));
        assert_eq!(named.base_offset().unwrap(), Offset::new(42).unwrap());
        assert_eq!(named.sibling(".log").bytes(), b"t-0/00000000000000000042.log");
        assert!(named.absolute().is_absolute());
        assert_eq!(Named::new(OsStr::new("a.b/c")).suffix(), None);
        assert!(Named::new(OsStr::new("x.log")).base_offset().is_err());
        assert!(Named::new(OsStr::new("-5.log")).base_offset().is_err());
    }
}
