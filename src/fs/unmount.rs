//! How a mount ends: with rights of our own where we have them, else through `fusermount3`, which
//! lets users end their own mounts.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::error::{Error, Result};
use crate::sys::{self, Unmount};

/// What became of an attempt to unmount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// Nothing of it is mounted there any more.
    Unmounted,
    /// Someone has something open on it, or sits in it; it is as before.
    Busy,
}

/// Unmounts what is at `mountpoint`, unless it is busy.
pub fn unmount(mountpoint: &Path) -> Result<Attempt> {
    match sys::unmount(mountpoint, Unmount::Plain) {
        Ok(()) => Ok(Attempt::Unmounted),
        Err(refusal) if refusal.raw_os_error() == Some(libc::EBUSY) => Ok(Attempt::Busy),
        Err(refusal) if refusal.raw_os_error() == Some(libc::EPERM) => {
            let done = fusermount(&["-u"], mountpoint)?;
            let said = String::from_utf8_lossy(&done.stderr);
            if done.status.success() {
                Ok(Attempt::Unmounted)
            } else if said.contains("busy") {
                Ok(Attempt::Busy)
            } else {
                Err(refused(mountpoint, &said))
            }
        }
        Err(refusal) => Err(Error::io("unmount", mountpoint)(refusal)),
    }
}

/// Takes what is at `mountpoint` out of the tree, busy or not.
pub fn detach(mountpoint: &Path) -> Result<()> {
    detach_with(mountpoint, Unmount::Lazy)
}

/// As `detach`, and who has something open gets ENOTCONN from now on. A plain user without
/// `/sys/fs/fuse/connections` can only detach: there ENOTCONN comes with the end of the daemon.
pub fn abort(mountpoint: &Path, minor: &str) -> Result<()> {
    detach_with(mountpoint, Unmount::Abort)?;
    end_connection(minor);
    Ok(())
}

/// Cuts the FUSE connection `minor`, wherever it is still mounted; whether that could be done.
/// Where the control filesystem is not mounted it cannot.
pub fn end_connection(minor: &str) -> bool {
    let control = Path::new("/sys/fs/fuse/connections").join(minor).join("abort");
    let cut = std::fs::write(&control, "1");
    if let Err(refusal) = &cut {
        log::debug!("cannot write {}: {refusal}", control.display());
    }
    cut.is_ok()
}

fn detach_with(mountpoint: &Path, how: Unmount) -> Result<()> {
    match sys::unmount(mountpoint, how) {
        Err(refusal) if refusal.raw_os_error() == Some(libc::EPERM) => {
            let done = fusermount(&["-u", "-z"], mountpoint)?;
            let said = String::from_utf8_lossy(&done.stderr);
            if done.status.success() { Ok(()) } else { Err(refused(mountpoint, &said)) }
        }
        other => other.map_err(Error::io("detach", mountpoint)),
    }
}

/// Looks where fuser looks, so that who could mount can unmount, whatever PATH says.
fn fusermount(options: &[&str], mountpoint: &Path) -> Result<Output> {
    let named = std::env::var_os("FUSERMOUNT_PATH");
    let usual = ["fusermount3", "fusermount", "/bin/fusermount3", "/bin/fusermount"];
    for program in named.into_iter().chain(usual.map(OsString::from)) {
        let mut command = Command::new(&program);
        command.args(options).arg("--").arg(mountpoint).env("LC_ALL", "C").stdin(Stdio::null());
        match command.output() {
            Err(missing) if missing.kind() == io::ErrorKind::NotFound => {}
            other => return other.map_err(Error::io("run", &program)),
        }
    }
    Err(refused(mountpoint, "only root can unmount where fusermount3 is not installed"))
}

fn refused(mountpoint: &Path, said: &str) -> Error {
    Error::refused(mountpoint, format!("cannot unmount: {}", said.trim_end()))
}
