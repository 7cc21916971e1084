//! The null file system: one directory with one file and no log behind it, with the flags of
//! offsetfs. What the kernel and the FUSE protocol cost by themselves on this machine is measured
//! here, in the same run as ours. The file is either a repetition of a piece of the real one, or a
//! sink that swallows what is written.

#![allow(dead_code, reason = "each benchmark uses a part of it")]

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, WriteFlags,
};

/// The largest request of the kernel (`max_write` and the default `max_pages_limit`).
const REQUEST_BYTES: u32 = 1 << 20;
/// How long the kernel may believe what is said of a range of offsetfs, and of a file to append to.
const VALID: [Duration; 2] = [Duration::ZERO, Duration::from_hours(1)];
/// What offsetfs asks for.
const FLAGS: [InitFlags; 2] = [InitFlags::FUSE_PARALLEL_DIROPS, InitFlags::FUSE_ATOMIC_O_TRUNC];
/// The inode of the file.
const FILE: INodeNo = INodeNo(2);

/// One file.
pub struct NullFs {
    name: String,
    size: u64,
    /// Bytes after which the content repeats.
    period: usize,
    /// The content from its start on, a period and a request more.
    bytes: Vec<u8>,
    sink: bool,
    /// Where a sink puts what it gets, and how much that was.
    out: Option<(File, AtomicU64)>,
}

impl NullFs {
    /// A file of `size` bytes, a repetition of `piece`, that is read like a range.
    pub fn repeating(name: &str, size: u64, piece: &[u8]) -> NullFs {
        let bytes = piece.iter().copied().cycle().take(piece.len() + REQUEST_BYTES as usize);
        let name = name.to_owned();
        let (period, bytes) = (piece.len().max(1), bytes.collect());
        NullFs { name, size, period, bytes, sink: false, out: None }
    }

    /// A file that swallows what is written to it, as `append` is written, or passes it on to the
    /// end of `out`.
    pub fn sink(name: &str, out: Option<File>) -> NullFs {
        let (name, out) = (name.to_owned(), out.map(|file| (file, AtomicU64::new(0))));
        NullFs { name, size: 0, period: 1, bytes: Vec::new(), sink: true, out }
    }

    /// Serves the file at `mountpoint` with one loop thread until it is unmounted.
    pub fn serve(self, mountpoint: &Path) -> io::Result<()> {
        let mut config = Config::default();
        config.mount_options = vec![
            if self.sink { MountOption::RW } else { MountOption::RO },
            MountOption::NoSuid,
            MountOption::NoDev,
            MountOption::NoExec,
            MountOption::FSName("null".to_owned()),
        ];
        config.n_threads = Some(1);
        fuser::mount(self, mountpoint, &config)
    }

    fn valid(&self) -> &'static Duration {
        &VALID[usize::from(self.sink)]
    }

    fn attributes(&self, ino: INodeNo) -> FileAttr {
        let directory = ino == INodeNo::ROOT;
        let size = if directory { 0 } else { self.size };
        let mode = if self.sink { 0o644 } else { 0o444 };
        FileAttr {
            ino,
            size,
            blocks: size.div_ceil(512),
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if directory { FileType::Directory } else { FileType::RegularFile },
            perm: if directory { 0o555 } else { mode },
            nlink: if directory { 2 } else { 1 },
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
            rdev: 0,
            blksize: if directory || self.sink { 4096 } else { REQUEST_BYTES },
            flags: 0,
        }
    }
}

impl Filesystem for NullFs {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        for flag in FLAGS {
            // An older kernel lacks some: then neither file system has it.
            let _ = config.add_capabilities(flag);
        }
        config
            .set_max_write(REQUEST_BYTES)
            .map(|_| ())
            .map_err(|nearest| io::Error::other(format!("max_write must be {nearest}")))
    }

    fn lookup(&self, _request: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if name == self.name.as_str() {
            reply.entry(self.valid(), &self.attributes(FILE), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _request: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(self.valid(), &self.attributes(ino));
    }

    fn open(&self, _request: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let flags = if self.sink {
            FopenFlags::FOPEN_DIRECT_IO
        } else {
            FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH
        };
        reply.opened(FileHandle(0), flags);
    }

    fn read(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let wanted = u64::from(size.min(REQUEST_BYTES)).min(self.size.saturating_sub(offset));
        let start = usize::try_from(offset % self.period as u64).unwrap_or(0);
        let end = start + usize::try_from(wanted).unwrap_or(0);
        reply.data(self.bytes.get(start..end).unwrap_or_default());
    }

    fn write(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        _offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        if let Some((file, end)) = &self.out {
            let at = end.fetch_add(data.len() as u64, Ordering::Relaxed);
            if file.write_all_at(data, at).is_err() {
                return reply.error(Errno::EIO);
            }
        }
        reply.written(u32::try_from(data.len()).unwrap_or(u32::MAX));
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn readdir(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        if offset == 0 {
            // There is room for one.
            let _ = reply.add(FILE, 1, FileType::RegularFile, &self.name);
        }
        reply.ok();
    }
}
