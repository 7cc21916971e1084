//! `offsetfs umount`: ends a mount, and returns when its daemon has ended too, so that SOURCE is
//! at rest. A dead mount is cleared away.

use std::path::PathBuf;

use crate::error::{Error, Result};
use crate::fs::beacon::Daemon;
use crate::fs::mount_table::{MountEntry, MountTable};
use crate::fs::mountpoint;
use crate::fs::unmount::{self, Attempt};

/// Unmount, and wait until the daemon has ended.
#[derive(Debug, clap::Args)]
pub struct UmountArgs {
    /// Where it is mounted
    pub mountpoint: PathBuf,
}

/// Unmounts what is at the mountpoint, if it is ours and nobody uses it.
pub fn run(typed: &UmountArgs) -> Result<()> {
    let path = mountpoint::resolve(&typed.mountpoint)?;
    let table = MountTable::read()?;
    let Some(mount) = table.at(&path).filter(|mount| mount.is_ours()) else {
        return Err(Error::refused(&typed.mountpoint, "no mount of offsetfs is there"));
    };
    match Daemon::behind(mount) {
        Some(daemon) => {
            unmount_idle(mount)?;
            daemon.wait_for_end().map_err(Error::io("wait for the daemon of", &path))
        }
        None if mountpoint::is_dead(mount) => unmount::detach(&path),
        None => unmount_idle(mount),
    }
}

fn unmount_idle(mount: &MountEntry) -> Result<()> {
    match unmount::unmount(&mount.mountpoint)? {
        Attempt::Unmounted => Ok(()),
        Attempt::Busy => Err(Error::refused(
            &mount.mountpoint,
            "is busy: a program has a file open on it, or was started in it ('fuser -vm' names \
             it); SIGTERM to the daemon unmounts all the same",
        )),
    }
}
