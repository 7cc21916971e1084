//! The edge to the kernel: unpacks a request, asks the tree, sends the answer. No decisions but
//! one: what may take long is done on the pool, so that the thread which takes requests never
//! waits.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::SystemTime;

use fuser::{
    AccessFlags, BsdFileFlags, Errno as FuserErrno, FileAttr, FileHandle, FileType, Filesystem,
    FopenFlags, Generation, INodeNo, InitFlags, IoctlFlags, KernelConfig, LockOwner, OpenAccMode,
    OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty,
    ReplyEntry, ReplyIoctl, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow,
    WriteFlags,
};

use crate::fs::caller;
use crate::fs::errno::Errno;
use crate::fs::pool::Pool;
use crate::fs::session::NotifierSlot;
use crate::fs::tree::{Answer, Attributes, DirectoryEntry, Opened, Tree};
use crate::sys;

/// Threads for what may take long; two can scan while the others wait for a disk.
const POOL_THREADS: usize = 4;
/// The largest request that the kernel sends with its default limit of 256 pages.
const REQUEST_BYTES: u32 = 1 << 20;
/// Counters of open handles, by hash of the inode number.
const COUNTERS: usize = 1 << 16;

/// A tree as the kernel sees it.
pub struct Fuse {
    tree: Arc<Tree>,
    pool: Pool,
    notifier: NotifierSlot,
    open_counts: Arc<[AtomicU32]>,
}

impl Fuse {
    /// Serves `tree`; `notifier` is filled when it is mounted.
    pub fn new(tree: Arc<Tree>, notifier: NotifierSlot) -> Fuse {
        let open_counts = (0..COUNTERS).map(|_| AtomicU32::new(0)).collect();
        Fuse { tree, pool: Pool::new(POOL_THREADS), notifier, open_counts }
    }

    /// Does `work` here when it is quick, else on the pool.
    fn run(&self, quick: bool, work: impl FnOnce(&Tree) + Send + 'static) {
        if quick {
            work(&self.tree);
        } else {
            let tree = Arc::clone(&self.tree);
            self.pool.run(move || work(&tree));
        }
    }

    /// The error of a change that nobody can make.
    fn refusal(&self) -> FuserErrno {
        let errno = if self.tree.is_writable() { Errno::NOT_PERMITTED } else { Errno::READ_ONLY };
        errno.into()
    }

    fn counter(&self, inode: INodeNo) -> &AtomicU32 {
        let slot = usize::try_from(inode.0 % COUNTERS as u64).unwrap_or(0);
        &self.open_counts[slot]
    }
}

impl From<Errno> for FuserErrno {
    fn from(errno: Errno) -> FuserErrno {
        FuserErrno::from_i32(errno.0)
    }
}

impl Filesystem for Fuse {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Whatever of this an old kernel lacks, it does without.
        let _ = config.set_max_write(REQUEST_BYTES);
        let _ = config.add_capabilities(InitFlags::FUSE_PARALLEL_DIROPS);
        let _ = config.add_capabilities(InitFlags::FUSE_ATOMIC_O_TRUNC);
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let caller = caller::interrupted(request.pid());
        let quick = self.tree.is_quick_lookup(parent.0, name);
        let name = name.to_owned();
        self.run(quick, move |tree| match tree.lookup(parent.0, &name, &caller) {
            Ok(found) => {
                let valid = found.valid;
                reply.entry_with_ttls(&valid, &valid, &attr(&found), Generation(0));
            }
            Err(errno) => reply.error(errno.into()),
        });
    }

    fn forget(&self, _: &Request, inode: INodeNo, lookups: u64) {
        self.tree.forget(inode.0, lookups);
    }

    fn getattr(&self, request: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let caller = caller::interrupted(request.pid());
        self.run(self.tree.is_quick(inode.0), move |tree| {
            match tree.attributes(inode.0, &caller) {
                Ok(found) => reply.attr(&found.valid, &attr(&found)),
                Err(errno) => reply.error(errno.into()),
            }
        });
    }

    fn open(&self, request: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let first = self.counter(inode).fetch_add(1, Ordering::AcqRel) == 0;
        if flags.acc_mode() != OpenAccMode::O_RDONLY {
            return match self.tree.open_to_write(inode.0) {
                Ok(opened) => reply.opened(FileHandle(opened.handle), FopenFlags::FOPEN_DIRECT_IO),
                Err(errno) => {
                    self.counter(inode).fetch_sub(1, Ordering::AcqRel);
                    reply.error(errno.into());
                }
            };
        }
        let caller = caller::interrupted(request.pid());
        let (notifier, counts) = (Arc::clone(&self.notifier), Arc::clone(&self.open_counts));
        self.run(self.tree.is_quick(inode.0), move |tree| match tree.open(inode.0, &caller) {
            Ok(opened) => {
                // Only when no other handle is open: someone who waits for our answer to a read
                // holds the page that this would fill.
                if let (true, Some(content), Some(notifier)) =
                    (first, &opened.content, notifier.get())
                {
                    // Without it the kernel reads as usual.
                    let _ = notifier.store(inode, 0, content);
                }
                reply.opened(FileHandle(opened.handle), open_flags(&opened));
            }
            Err(errno) => {
                let slot = usize::try_from(inode.0 % COUNTERS as u64).unwrap_or(0);
                counts[slot].fetch_sub(1, Ordering::AcqRel);
                reply.error(errno.into());
            }
        });
    }

    fn read(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        position: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let caller = caller::interrupted(request.pid());
        let wanted = size as usize;
        self.run(self.tree.is_quick_read(handle.0, position), move |tree| {
            BUFFER.with_borrow_mut(|buffer| {
                buffer.clear();
                match tree.read(handle.0, position, wanted, buffer, &caller) {
                    Ok(()) => reply.data(buffer),
                    Err(errno) => reply.error(errno.into()),
                }
            });
        });
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: u64,
        data: &[u8],
        _: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        // With direct I/O the kernel sends no FSYNC for these.
        let synced = flags.0 & (libc::O_SYNC | libc::O_DSYNC) != 0;
        match self.tree.write(handle.0, data, synced) {
            Ok(count) => reply.written(u32::try_from(count).unwrap_or(u32::MAX)),
            Err(errno) => reply.error(errno.into()),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, handle: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        answer(self.tree.flush(handle.0), reply);
    }

    fn setattr(
        &self,
        request: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        _: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        handle: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let changes_owner = mode.is_some() || uid.is_some() || gid.is_some();
        if changes_owner || !self.tree.takes_truncation(inode.0) {
            let errno =
                if self.tree.is_writable() { Errno::NOT_PERMITTED } else { Errno::READ_ONLY };
            return reply.error(errno.into());
        }
        self.getattr(request, inode, handle, reply);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        _: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        match self.tree.make_directory(parent.0, name) {
            Ok(_) => self.lookup(request, parent, name, reply),
            Err(errno) => reply.error(errno.into()),
        }
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer(self.tree.remove_directory(parent.0, name), reply);
    }

    fn mknod(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, _: u32, reply: ReplyEntry) {
        reply.error(self.refusal());
    }

    fn create(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _: u32,
        _: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        reply.error(self.refusal());
    }

    fn unlink(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(self.refusal());
    }

    fn symlink(&self, _: &Request, _: INodeNo, _: &OsStr, _: &Path, reply: ReplyEntry) {
        reply.error(self.refusal());
    }

    fn link(&self, _: &Request, _: INodeNo, _: INodeNo, _: &OsStr, reply: ReplyEntry) {
        reply.error(self.refusal());
    }

    fn rename(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _: INodeNo,
        _: &OsStr,
        _: RenameFlags,
        reply: ReplyEmpty,
    ) {
        reply.error(self.refusal());
    }

    fn setxattr(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _: &[u8],
        _: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        reply.error(self.refusal());
    }

    fn removexattr(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(self.refusal());
    }

    fn release(
        &self,
        _: &Request,
        inode: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.tree.release(handle.0);
        self.counter(inode).fetch_sub(1, Ordering::AcqRel);
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, handle: FileHandle, _: bool, reply: ReplyEmpty) {
        self.run(false, move |tree| answer(tree.fsync(handle.0), reply));
    }

    fn opendir(&self, _: &Request, inode: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.tree.open_directory(inode.0) {
            Ok(handle) => reply.opened(FileHandle(handle), FopenFlags::empty()),
            Err(errno) => reply.error(errno.into()),
        }
    }

    fn readdir(
        &self,
        request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        cookie: u64,
        reply: ReplyDirectory,
    ) {
        let caller = caller::interrupted(request.pid());
        self.run(false, move |tree| match tree.list(inode.0, handle.0, cookie == 0, &caller) {
            Ok(entries) => answer_listing(inode, &entries, cookie, reply),
            Err(errno) => reply.error(errno.into()),
        });
    }

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.tree.release(handle.0);
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        match sys::filesystem_space(self.tree.data_dir().path()) {
            Ok(space) => reply.statfs(
                space.blocks,
                space.free_blocks,
                space.available_blocks,
                space.inodes,
                space.free_inodes,
                u32::try_from(space.block_bytes).unwrap_or(4096),
                u32::try_from(space.name_bytes).unwrap_or(255),
                u32::try_from(space.fragment_bytes).unwrap_or(4096),
            ),
            Err(_) => reply.error(Errno::IO.into()),
        }
    }

    fn getxattr(&self, _: &Request, inode: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        if !name.as_encoded_bytes().starts_with(b"user.") {
            return reply.error(Errno::NO_ATTRIBUTE.into());
        }
        let name = name.as_encoded_bytes().to_vec();
        self.run(self.tree.is_quick(inode.0), move |tree| {
            let value = tree.extended_attributes(inode.0).and_then(|all| {
                let found = all.into_iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| value).ok_or(Errno::NO_ATTRIBUTE)
            });
            answer_sized(value, size, reply);
        });
    }

    fn listxattr(&self, _: &Request, inode: INodeNo, size: u32, reply: ReplyXattr) {
        self.run(self.tree.is_quick(inode.0), move |tree| {
            let names = tree.extended_attributes(inode.0).map(|all| {
                all.into_iter().flat_map(|(mut name, _)| {
                    name.push(0);
                    name
                })
            });
            answer_sized(names.map(Iterator::collect), size, reply);
        });
    }

    fn ioctl(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: IoctlFlags,
        _: u32,
        _: &[u8],
        _: u32,
        reply: ReplyIoctl,
    ) {
        // Tools ask whether a file is a terminal.
        reply.error(FuserErrno::ENOTTY);
    }

    fn access(&self, _: &Request, inode: INodeNo, mask: AccessFlags, reply: ReplyEmpty) {
        // Who may see the mount at all may read all of it; nobody may change anything.
        if mask.contains(AccessFlags::W_OK) && !self.tree.is_writable() {
            return reply.error(Errno::READ_ONLY.into());
        }
        let _ = inode;
        reply.ok();
    }
}

thread_local! {
    /// The bytes of an answer; kept, so that no answer takes new memory.
    static BUFFER: std::cell::RefCell<Vec<u8>> = const { std::cell::RefCell::new(Vec::new()) };
}

fn attr(found: &Attributes) -> FileAttr {
    FileAttr {
        ino: INodeNo(found.number),
        size: found.bytes,
        blocks: found.bytes.div_ceil(512),
        atime: found.modified,
        mtime: found.modified,
        ctime: found.modified,
        crtime: found.modified,
        kind: kind(found.directory),
        perm: found.mode,
        nlink: if found.directory { 2 } else { 1 },
        uid: found.uid,
        gid: found.gid,
        rdev: 0,
        blksize: found.block_bytes,
        flags: 0,
    }
}

const fn kind(directory: bool) -> FileType {
    if directory { FileType::Directory } else { FileType::RegularFile }
}

fn open_flags(opened: &Opened) -> FopenFlags {
    let mut flags = FopenFlags::FOPEN_NOFLUSH;
    flags.set(FopenFlags::FOPEN_KEEP_CACHE, opened.keep_cache);
    flags.set(FopenFlags::FOPEN_DIRECT_IO, opened.direct);
    flags
}

/// The entries behind `cookie`, as many as fit. A cookie counts entries, `.` and `..` first.
fn answer_listing(
    inode: INodeNo,
    entries: &[DirectoryEntry],
    cookie: u64,
    mut reply: ReplyDirectory,
) {
    const DOTS: [&str; 2] = [".", ".."];
    let given = usize::try_from(cookie).unwrap_or(usize::MAX);
    for (i, name) in DOTS.iter().enumerate().skip(given) {
        if reply.add(inode, i as u64 + 1, FileType::Directory, name) {
            return reply.ok();
        }
    }
    let skip = given.saturating_sub(DOTS.len());
    for (i, entry) in entries.iter().enumerate().skip(skip) {
        let cookie = (i + DOTS.len()) as u64 + 1;
        if reply.add(INodeNo(entry.number), cookie, kind(entry.directory), &entry.name) {
            break;
        }
    }
    reply.ok();
}

fn answer(done: Answer<()>, reply: ReplyEmpty) {
    match done {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(errno.into()),
    }
}

/// An attribute: its size when nobody has room for it yet, else its bytes.
fn answer_sized(value: Answer<Vec<u8>>, room: u32, reply: ReplyXattr) {
    match value {
        Ok(value) if room == 0 => reply.size(u32::try_from(value.len()).unwrap_or(u32::MAX)),
        Ok(value) if value.len() <= room as usize => reply.data(&value),
        Ok(_) => reply.error(FuserErrno::ERANGE),
        Err(errno) => reply.error(errno.into()),
    }
}
