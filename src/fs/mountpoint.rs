//! Whether a mount may be put somewhere: all that is refused before anything is mounted, and the
//! remains of a dead mount of ours, which are cleared away.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::fs::beacon::Daemon;
use crate::fs::mount_table::{MountEntry, MountTable};
use crate::fs::unmount;
use crate::sys;

/// Makes sure that `mountpoint` can take a mount of `source`, which exists. Gives its path without
/// links.
pub fn prepare(mountpoint: &Path, source: &Path) -> Result<PathBuf> {
    let place = resolve(mountpoint)?;
    clear_dead_mounts(&place)?;
    check_is_empty_directory(&place)?;
    check_is_apart(&place, source)?;
    Ok(place)
}

/// `mountpoint` as an absolute path without links. Asks no mounted daemon, dead or hanging.
pub fn resolve(mountpoint: &Path) -> Result<PathBuf> {
    mountpoint.canonicalize().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Error::refused(mountpoint, "the mountpoint does not exist"),
        _ => Error::io("find", mountpoint)(error),
    })
}

/// Whether the daemon behind a mount is gone, so that nothing on it can be reached.
pub fn is_dead(mount: &MountEntry) -> bool {
    // Asking a living daemon could take as long as it likes; attributes could come from a cache.
    let answer = || sys::filesystem_space(&mount.mountpoint).map_err(|error| error.raw_os_error());
    Daemon::behind(mount).is_none() && answer() == Err(Some(libc::ENOTCONN))
}

fn clear_dead_mounts(place: &Path) -> Result<()> {
    while let Some(mount) = MountTable::read()?.at(place).filter(|mount| mount.is_fuse()) {
        if !mount.is_ours() || !is_dead(mount) {
            let reason = format!("already a mount of {} ({})", mount.source.display(), mount.kind);
            return Err(Error::refused(place, reason));
        }
        log::warn!("{}: replacing a mount whose daemon has died", place.display());
        unmount::detach(place)?;
    }
    Ok(())
}

fn check_is_empty_directory(place: &Path) -> Result<()> {
    let metadata = place.metadata().map_err(Error::io("look at", place))?;
    if !metadata.is_dir() {
        return Err(Error::refused(place, "the mountpoint is not a directory"));
    }
    match place.read_dir().map_err(Error::io("list", place))?.next() {
        None => Ok(()),
        Some(Err(error)) => Err(Error::io("list", place)(error)),
        Some(Ok(_)) => Err(Error::refused(place, "the mountpoint is not empty")),
    }
}

/// Neither may hold the other, by whatever path: a mount over its own source would hide it from
/// the daemon, a mount inside would be taken for a part of it.
fn check_is_apart(place: &Path, source: &Path) -> Result<()> {
    let source = source.canonicalize().map_err(Error::io("find", source))?;
    let table = MountTable::read()?;
    let how = if same_directory(place, &source)? {
        "at"
    } else if holds(&source, place, &table)? {
        "inside"
    } else if holds(place, &source, &table)? {
        "above"
    } else {
        return Ok(());
    };
    let reason = format!("the mountpoint is {how} the source, {}", source.display());
    Err(Error::refused(place, reason))
}

/// Whether `inner` is `outer` or lies in it, as the paths say or through bind mounts.
fn holds(outer: &Path, inner: &Path, table: &MountTable) -> Result<bool> {
    for ancestor in inner.ancestors() {
        if same_directory(ancestor, outer)? {
            return Ok(true);
        }
    }
    Ok(match (table.place(outer), table.place(inner)) {
        (Some((device, outer)), Some((same, inner))) => device == same && inner.starts_with(outer),
        _ => false,
    })
}

fn same_directory(one: &Path, other: &Path) -> Result<bool> {
    let identity = |path: &Path| match path.metadata() {
        Ok(metadata) => Ok((metadata.dev(), metadata.ino())),
        Err(error) => Err(Error::io("look at", path)(error)),
    };
    Ok(identity(one)? == identity(other)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use tempfile::TempDir;

    fn scene() -> TempDir {
        let here = tempfile::tempdir().unwrap();
        for directory in ["source/t-0", "free", "full/x"] {
            std::fs::create_dir_all(here.path().join(directory)).unwrap();
        }
        std::fs::write(here.path().join("file"), "").unwrap();
        symlink("source/t-0", here.path().join("link")).unwrap();
        symlink("free", here.path().join("link-to-free")).unwrap();
        here
    }

    fn prepared(here: &TempDir, mountpoint: &str, source: &str) -> Result<PathBuf, String> {
        prepare(&here.path().join(mountpoint), &here.path().join(source))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn an_empty_directory_apart_from_the_source_is_taken() {
        let here = scene();
        let free = here.path().canonicalize().unwrap().join("free");
        assert_eq!(prepared(&here, "free", "source"), Ok(free.clone()));
        assert_eq!(prepared(&here, "link-to-free", "source"), Ok(free));
    }

    #[test]
    fn every_other_place_is_refused_with_the_reason() {
        let here = scene();
        for (mountpoint, source, reason) in [
            ("none", "source", "none: the mountpoint does not exist"),
            ("file", "source", "file: the mountpoint is not a directory"),
            ("full", "source", "full: the mountpoint is not empty"),
            ("source/t-0", "source", "the mountpoint is inside the source"),
            ("link", "source", "the mountpoint is inside the source"),
            ("free", "link-to-free", "the mountpoint is at the source"),
        ] {
            let refusal = prepared(&here, mountpoint, source).unwrap_err();
            assert!(refusal.contains(reason), "{mountpoint}: {refusal}");
        }
    }

    /// A directory above the source is never empty, but a bind mount can be.
    #[test]
    fn a_directory_above_the_source_is_told_from_one_apart() {
        let here = scene();
        let at = |name: &str| here.path().join(name).canonicalize().unwrap();
        let refusal = check_is_apart(&at(""), &at("source")).unwrap_err().to_string();
        assert!(refusal.contains("the mountpoint is above the source"), "{refusal}");
        check_is_apart(&at("full"), &at("source")).unwrap();
    }
}
