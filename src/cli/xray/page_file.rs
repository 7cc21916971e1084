//! The file that a page goes to: never one of the log's, and whole or not at all.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::engine::source::DATA_DIRECTORY_FILES;
use crate::error::{Error, Result};

/// Refuses what `write` must not write to, before anything is looked up: a directory, and every
/// place inside a data directory or the partition, by whatever links or mounts it is reached.
pub fn check(path: &Path, data_dir: &Path, partition: &OsStr) -> Result<()> {
    let place = place(path)?;
    if place.is_dir() {
        return Err(Error::refused(path, "is a directory; name a file for the page"));
    }
    let id = |path: &Path| fs::metadata(path).ok().map(|facts| (facts.dev(), facts.ino()));
    // The parent of a lone copy of a partition is anybody's directory.
    let is_brokers = DATA_DIRECTORY_FILES.iter().any(|name| data_dir.join(name).exists());
    let forbidden = [id(data_dir).filter(|_| is_brokers), id(&data_dir.join(partition))];
    let inside = |above: &Path| id(above).is_some_and(|id| forbidden.contains(&Some(id)));
    if place.ancestors().skip(1).any(inside) {
        let reason = format!(
            "lies inside the data directory {}, where nothing is written; name a file elsewhere",
            data_dir.display()
        );
        return Err(Error::refused(path, reason));
    }
    Ok(())
}

/// Writes a file beside and gives it the name, so that a full disk leaves an older page as it
/// was. What is no regular file, a pipe or a terminal, is written to as it is.
pub fn write(path: &Path, content: &[u8]) -> Result<()> {
    let place = place(path)?;
    let wrong = |action| Error::io(action, path);
    if fs::metadata(&place).is_ok_and(|facts| !facts.is_file()) {
        let mut file = File::options().write(true).open(&place).map_err(wrong("open"))?;
        return file.write_all(content).map_err(wrong("write"));
    }
    let scratch = place.with_added_extension(format!("{}.tmp", std::process::id()));
    let mut file = File::create_new(&scratch).map_err(wrong("create"))?;
    let written = file.write_all(content).and_then(|()| fs::rename(&scratch, &place));
    if written.is_err() {
        // What is left of a failed write is of no use to anyone.
        let _ = fs::remove_file(&scratch);
    }
    written.map_err(wrong("write"))
}

/// Where a path leads; of a file that is not there yet, in which directory it will be.
fn place(path: &Path) -> Result<PathBuf> {
    match path.canonicalize() {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        found => return found.map_err(Error::io("find", path)),
    }
    let name = path.file_name().ok_or_else(|| Error::refused(path, "is no name of a file"))?;
    let parent = path.parent().filter(|parent| *parent != "").unwrap_or(Path::new("."));
    let parent = parent.canonicalize().map_err(Error::io("find", parent))?;
    Ok(parent.join(name))
}
