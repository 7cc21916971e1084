//! How others learn whether the daemon behind a mount lives, and when it has ended.
//!
//! The daemon listens on a socket in the abstract namespace, named after its FUSE connection, and
//! never accepts. Who connects reads the end of the stream when the process is gone, however it
//! went. No file is left behind. Anyone may take such a name first, so only a listener that belongs
//! to the owner of the mount counts.

use std::io::Read;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

use crate::fs::mount_table::MountEntry;
use crate::sys;

/// Says that this process serves the connection `minor`, from now to its end.
pub fn light(minor: &str) {
    match address(minor).and_then(|address| UnixListener::bind_addr(&address)) {
        // Closing is left to the end of the process: that is what the others wait for.
        Ok(listener) => std::mem::forget(listener),
        Err(refusal) => log::warn!("umount will not wait for this daemon: {refusal}"),
    }
}

/// A living daemon, seen from another process.
#[derive(Debug)]
pub struct Daemon(UnixStream);

impl Daemon {
    /// The daemon behind `mount`; `None` when it is dead, or out of sight in another network
    /// namespace.
    pub fn behind(mount: &MountEntry) -> Option<Daemon> {
        let socket = UnixStream::connect_addr(&address(mount.minor()).ok()?).ok()?;
        let user = sys::peer_user(&socket).ok()?;
        (Some(user) == mount.owner()).then_some(Daemon(socket))
    }

    /// Returns when that process has ended.
    pub fn wait_for_end(mut self) {
        // Nothing is ever sent. An error is a reset: the process went before it accepted.
        let _ = self.0.read(&mut [0]);
    }
}

fn address(minor: &str) -> std::io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("offsetfs-{minor}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::mount_table::OUR_TYPE;

    fn mount(minor: &str, owner: u32) -> MountEntry {
        MountEntry {
            device: format!("0:{minor}"),
            root: "/".into(),
            mountpoint: "/mnt".into(),
            kind: OUR_TYPE.to_owned(),
            source: "x".into(),
            options: format!("rw,user_id={owner}"),
        }
    }

    #[test]
    fn only_a_listener_of_the_owner_counts() {
        let minor = format!("test-{}", std::process::id());
        let me = sys::effective_user();
        assert!(Daemon::behind(&mount(&minor, me)).is_none());
        light(&minor);
        assert!(Daemon::behind(&mount(&minor, me)).is_some());
        assert!(Daemon::behind(&mount(&minor, me + 1)).is_none());
    }

    #[test]
    fn end_of_the_listener_is_noticed() {
        let minor = format!("test-end-{}", std::process::id());
        let listener = UnixListener::bind_addr(&address(&minor).unwrap()).unwrap();
        let daemon = Daemon::behind(&mount(&minor, sys::effective_user())).unwrap();
        drop(listener);
        daemon.wait_for_end();
    }
}
