//! One file behind FUSE twice: as a daemon that copies serves it, and passed through. `xray`
//! measures with it what a read costs by either way.
//!
//! The mount is in no one's way: it is taken out of the tree as soon as both files are open, and
//! ends with them, however the process ends.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    BackingId, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEntry, ReplyOpen,
    Request, Session,
};

use crate::error::{Error, Result};
use crate::fs::session::{self, MountSettings};
use crate::fs::unmount;

const COPY: (&str, INodeNo) = ("copy", INodeNo(2));
const PASSTHROUGH: (&str, INodeNo) = ("passthrough", INodeNo(3));

/// How long the kernel may believe names and attributes: nothing changes.
const VALID: Duration = Duration::from_hours(1);

/// The kernel lets a backing file lie on an overlay with this (`fuse_init_out.max_stack_depth`).
const STACK_DEPTH: u32 = 2;

/// The same file, opened by two ways.
#[derive(Debug)]
pub struct Routes {
    /// Every read is a request that this process answers (`FOPEN_DIRECT_IO`: no page cache).
    pub copy: File,
    /// The kernel reads the file itself (`FOPEN_PASSTHROUGH`), or why it does not.
    pub passthrough: std::result::Result<File, String>,
    /// Requests to read that were answered.
    pub requests: Arc<AtomicU64>,
}

/// Serves `file`, which has so many bytes and does not change.
pub fn serve(file: File, bytes: u64) -> Result<Routes> {
    let directory = tempfile::tempdir().map_err(Error::io("make", std::env::temp_dir()))?;
    let at = directory.path();
    let requests = Arc::<AtomicU64>::default();
    let refusal = Arc::<OnceLock<String>>::default();
    let served = Served {
        file,
        bytes,
        requests: Arc::clone(&requests),
        refusal: Arc::clone(&refusal),
        backing: Mutex::default(),
    };
    let settings = MountSettings {
        source: "offsetfs".into(),
        mountpoint: at.to_path_buf(),
        read_only: true,
        allow_other: false,
        threads: 1,
    };
    let session = Session::new(served, at, &session::config(&settings))
        .map_err(|error| session::mount_error(error, at))?;
    let background = session.spawn().map_err(Error::io("serve", at));
    let opened = background.and_then(|background| {
        // When dropped it would unmount what is not there any more.
        std::mem::forget(background);
        let open = |name: &str| File::open(at.join(name));
        let copy = open(COPY.0).map_err(Error::io("open", at.join(COPY.0)))?;
        let passthrough = open(PASSTHROUGH.0)
            .map_err(|error| refusal.get().cloned().unwrap_or_else(|| error.to_string()));
        Ok(Routes { copy, passthrough, requests })
    });
    unmount::detach(at)?;
    opened
}

#[derive(Debug)]
struct Served {
    file: File,
    bytes: u64,
    requests: Arc<AtomicU64>,
    /// Why there is no passthrough.
    refusal: Arc<OnceLock<String>>,
    /// What the kernel knows the file by, as long as it is open.
    backing: Mutex<Option<BackingId>>,
}

impl Served {
    fn attributes(&self, inode: INodeNo) -> FileAttr {
        let is_root = inode == INodeNo::ROOT;
        FileAttr {
            ino: inode,
            size: if is_root { 0 } else { self.bytes },
            blocks: self.bytes.div_ceil(512),
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if is_root { FileType::Directory } else { FileType::RegularFile },
            perm: if is_root { 0o555 } else { 0o444 },
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }
}

impl Filesystem for Served {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let offers = config.add_capabilities(InitFlags::FUSE_PASSTHROUGH).is_ok();
        if !offers || config.set_max_stack_depth(STACK_DEPTH).is_err() {
            let reason = "this kernel's FUSE has no passthrough (it came with Linux 6.9)";
            let _ = self.refusal.set(reason.to_owned());
        }
        Ok(())
    }

    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match [COPY, PASSTHROUGH].iter().find(|(known, _)| name == *known) {
            Some((_, inode)) => reply.entry(&VALID, &self.attributes(*inode), Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&VALID, &self.attributes(inode));
    }

    fn open(&self, _: &Request, inode: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        if inode == COPY.1 {
            return reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
        }
        if self.refusal.get().is_some() {
            return reply.error(Errno::EPERM);
        }
        match reply.open_backing(&self.file) {
            Ok(backing) => {
                reply.opened_passthrough(FileHandle(0), FopenFlags::empty(), &backing);
                let mut kept = self.backing.lock().unwrap_or_else(PoisonError::into_inner);
                *kept = Some(backing);
            }
            Err(error) => {
                let reason = if error.kind() == io::ErrorKind::PermissionDenied {
                    "the kernel allows it to root only (CAP_SYS_ADMIN)".to_owned()
                } else {
                    format!("the kernel does not take the file: {error}")
                };
                // It was empty a moment ago, and one thread serves.
                let _ = self.refusal.set(reason);
                reply.error(Errno::EPERM);
            }
        }
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let mut buffer = vec![0; size as usize];
        match self.file.read_at(&mut buffer, offset) {
            Ok(read) => reply.data(&buffer[..read]),
            Err(error) => reply.error(error.into()),
        }
    }
}
