//! Kafka's lock on a data directory: `.lock`, taken as a broker would notice it and as another of
//! us would. It is an open-file-description lock on the whole file (fcntl(2), `F_OFD_SETLK`): it
//! conflicts with the POSIX record lock that a broker takes, and survives the closing of another
//! descriptor of the same file.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use crate::engine::disk::give_to_owner;
use crate::error::{Error, Result};
use crate::sys;

/// The name of the file that is locked.
pub const LOCK_FILE: &str = ".lock";

/// The right to write in a data directory, held until it is dropped.
#[derive(Debug)]
pub struct DirLock {
    path: PathBuf,
    /// Holds the lock as long as it is open.
    _file: File,
}

impl DirLock {
    /// Takes the lock of the data directory `directory`. Refused while someone holds it, with the
    /// process that does where the system tells.
    pub fn take(directory: &Path) -> Result<DirLock> {
        let path = directory.join(LOCK_FILE);
        loop {
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
                .open(&path)
                .map_err(Error::io("open", &path))?;
            give_to_owner(&path, |uid, gid| fchown(&file, uid, gid))?;
            match sys::lock_whole_file(&file) {
                Ok(()) => {}
                Err(held) if held.kind() == ErrorKind::WouldBlock => {
                    return Err(refusal(directory, &file));
                }
                Err(e) => return Err(Error::io("lock", &path)(e)),
            }
            // Whoever held it before may have removed the file in between: then what is locked is
            // not what others will see.
            if is_still(&path, &file).map_err(Error::io("stat", &path))? {
                return Ok(DirLock { path, _file: file });
            }
        }
    }

    /// Removes the file, as a broker does at an orderly end; the lock itself goes when this is
    /// dropped.
    pub fn release(&self) -> Result<()> {
        std::fs::remove_file(&self.path).map_err(Error::io("remove", &self.path))
    }
}

fn is_still(path: &Path, file: &File) -> io::Result<bool> {
    let ours = file.metadata()?;
    match std::fs::symlink_metadata(path) {
        Ok(theirs) => Ok((ours.dev(), ours.ino()) == (theirs.dev(), theirs.ino())),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

fn refusal(directory: &Path, file: &File) -> Error {
    let holder = match sys::lock_holder(file) {
        Ok(Some(sys::LockHolder::Process(process))) => format!("process {process} holds"),
        Ok(_) | Err(_) => "another process holds".to_owned(),
    };
    let reason = format!(
        "{holder} the lock of this directory ({LOCK_FILE}): a broker, or another writable mount"
    );
    Error::refused(directory, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_holder_is_refused_until_the_first_lets_go() {
        let scratch = tempfile::tempdir().unwrap();
        let first = DirLock::take(scratch.path()).unwrap();
        let refused = DirLock::take(scratch.path()).unwrap_err().to_string();
        assert!(refused.contains("lock"), "{refused}");
        first.release().unwrap();
        drop(first);
        assert!(!scratch.path().join(LOCK_FILE).exists());
        drop(DirLock::take(scratch.path()).unwrap());
        assert!(scratch.path().join(LOCK_FILE).exists(), "only an orderly end removes it");
        DirLock::take(scratch.path()).unwrap();
    }
}
