//! How others learn whether the daemon behind a mount lives, and when it has ended.
//!
//! The daemon listens on a socket in the abstract namespace, named after its FUSE connection, and
//! never accepts. Who connects reads the end of the stream when the process is gone, however it
//! went. No file is left behind. Anyone may take such a name first, so only a listener that belongs
//! to the owner of the mount counts.

use std::io::ErrorKind::AddrInUse;
use std::io::{self, Read};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::{Duration, Instant};

use crate::fs::mount_table::MountEntry;
use crate::sys::{self, Peer};

/// How long a daemon may take to flush before it is asked to end; asking it twice does no harm.
const PATIENCE: Duration = Duration::from_secs(2);

/// Says that this process serves the connection `minor`, from now to its end.
pub fn light(minor: &str) {
    let began = Instant::now();
    loop {
        match address(minor).and_then(|address| UnixListener::bind_addr(&address)) {
            // Closing is left to the end of the process: that is what the others wait for.
            Ok(listener) => return std::mem::forget(listener),
            // The kernel gives a number out again before the daemon that had it has quite ended.
            Err(taken) if taken.kind() == AddrInUse && began.elapsed() < HANDOVER => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(refusal) => {
                return log::warn!("umount will not wait for this daemon: {refusal}");
            }
        }
    }
}

/// How long the daemon that had a number before may take to end.
const HANDOVER: Duration = Duration::from_millis(500);

/// A living daemon, seen from another process.
#[derive(Debug)]
pub struct Daemon {
    socket: UnixStream,
    peer: Peer,
}

impl Daemon {
    /// The daemon behind `mount`; `None` when it is dead, or out of sight in another network
    /// namespace.
    pub fn behind(mount: &MountEntry) -> Option<Daemon> {
        let socket = UnixStream::connect_addr(&address(mount.minor()).ok()?).ok()?;
        let peer = sys::peer(&socket).ok()?;
        (Some(peer.user) == mount.owner()).then_some(Daemon { socket, peer })
    }

    /// Returns when the daemon of what has just been unmounted has ended. It ends by itself, unless
    /// the filesystem is also mounted elsewhere (a bind mount, another namespace): then it is asked
    /// to.
    pub fn wait_for_end(mut self) -> io::Result<()> {
        self.socket.set_read_timeout(Some(PATIENCE))?;
        if !self.ended()? {
            log::info!("still mounted elsewhere, ending process {}", self.peer.process);
            sys::terminate(self.peer.process)?;
            self.socket.set_read_timeout(None)?;
            self.ended()?;
        }
        Ok(())
    }

    /// Whether the end came within the timeout of the socket.
    fn ended(&mut self) -> io::Result<bool> {
        match self.socket.read(&mut [0]) {
            Ok(bytes) => Ok(bytes == 0),
            Err(error) => match error.kind() {
                // The process went before it accepted.
                io::ErrorKind::ConnectionReset => Ok(true),
                io::ErrorKind::WouldBlock => Ok(false),
                _ => Err(error),
            },
        }
    }
}

fn address(minor: &str) -> io::Result<SocketAddr> {
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
        daemon.wait_for_end().unwrap();
    }
}
