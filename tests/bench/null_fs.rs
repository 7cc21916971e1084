//! The null file system: one directory of files that are served from a constant buffer, with the
//! flags of offsetfs and no log behind them. What the kernel and the FUSE protocol cost by
//! themselves on this machine is measured here, in the same run as ours. Each file is a repetition
//! of one line of 101 bytes, as `by-offset/0..` of 100-byte values is.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyOpen, Request,
};

/// Bytes of the line that every file repeats, its newline included.
const LINE_BYTES: usize = 101;
/// The largest request of the kernel (`max_write` and the default `max_pages_limit`).
const REQUEST_BYTES: u32 = 1 << 20;
/// Files of this size and more are read like ranges, smaller ones like single records.
const RANGE_BYTES: u64 = 64 << 10;
/// Nothing ever changes here.
const FOREVER: Duration = Duration::from_hours(1);
/// What offsetfs asks for.
const FLAGS: [InitFlags; 3] = [
    InitFlags::FUSE_PARALLEL_DIROPS,
    InitFlags::FUSE_DO_READDIRPLUS,
    InitFlags::FUSE_ATOMIC_O_TRUNC,
];

/// Files by name and size; the inode of the i-th is i + 2.
pub struct NullFs {
    files: Vec<(String, u64)>,
    bytes: Vec<u8>,
}

impl NullFs {
    /// A directory of these files.
    pub fn new(files: Vec<(String, u64)>) -> NullFs {
        let mut line = b"record 123456789 ".to_vec();
        line.extend(b"order shipped ".iter().cycle().take(LINE_BYTES - 1 - line.len()));
        line.push(b'\n');
        let bytes_count = REQUEST_BYTES as usize + LINE_BYTES;
        NullFs { files, bytes: line.iter().copied().cycle().take(bytes_count).collect() }
    }

    /// Serves the files at `mountpoint` with one loop thread until it is unmounted.
    pub fn serve(self, mountpoint: &Path) -> io::Result<()> {
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::RO,
            MountOption::NoSuid,
            MountOption::NoDev,
            MountOption::NoExec,
            MountOption::FSName("null".to_owned()),
        ];
        config.n_threads = Some(1);
        fuser::mount(self, mountpoint, &config)
    }

    fn attributes(&self, ino: INodeNo) -> Option<FileAttr> {
        if ino == INodeNo::ROOT {
            return Some(attributes(ino, 0, FileType::Directory));
        }
        Some(attributes(ino, self.size(ino)?, FileType::RegularFile))
    }

    fn size(&self, ino: INodeNo) -> Option<u64> {
        let place = usize::try_from(ino.0.checked_sub(2)?).ok()?;
        self.files.get(place).map(|file| file.1)
    }

    /// Inode, kind and name of the entries after the `skip`-th.
    fn entries(&self, skip: u64) -> impl Iterator<Item = (u64, INodeNo, FileType, &str)> {
        let dots = [".", ".."].map(|name| (INodeNo::ROOT, FileType::Directory, name));
        let files = (2..).zip(&self.files);
        let files =
            files.map(|(ino, (name, _))| (INodeNo(ino), FileType::RegularFile, name.as_str()));
        let numbered = (1..).zip(dots.into_iter().chain(files));
        numbered
            .map(|(cookie, (ino, kind, name))| (cookie, ino, kind, name))
            .filter(move |entry| entry.0 > skip)
    }
}

fn attributes(ino: INodeNo, size: u64, kind: FileType) -> FileAttr {
    let directory = kind == FileType::Directory;
    FileAttr {
        ino,
        size,
        blocks: size.div_ceil(512),
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind,
        perm: if directory { 0o555 } else { 0o444 },
        nlink: if directory { 2 } else { 1 },
        uid: rustix::process::getuid().as_raw(),
        gid: rustix::process::getgid().as_raw(),
        rdev: 0,
        blksize: if size >= RANGE_BYTES { REQUEST_BYTES } else { 4096 },
        flags: 0,
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
        let found = self.entries(2).find(|entry| name == entry.3);
        match found.and_then(|entry| self.attributes(entry.1)) {
            Some(attributes) => reply.entry(&FOREVER, &attributes, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _request: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(ino) {
            Some(attributes) => reply.attr(&FOREVER, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn open(&self, _request: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH);
    }

    fn read(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let file_bytes = self.size(ino).unwrap_or(0);
        let wanted = u64::from(size.min(REQUEST_BYTES)).min(file_bytes.saturating_sub(offset));
        let start = usize::try_from(offset % LINE_BYTES as u64).unwrap_or(0);
        let end = start + usize::try_from(wanted).unwrap_or(0);
        reply.data(self.bytes.get(start..end).unwrap_or_default());
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
        for (cookie, ino, kind, name) in self.entries(offset) {
            if reply.add(ino, cookie, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn readdirplus(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        for (cookie, ino, _, name) in self.entries(offset) {
            let Some(attributes) = self.attributes(ino) else { continue };
            if reply.add(ino, cookie, name, &FOREVER, &attributes, Generation(0)) {
                break;
            }
        }
        reply.ok();
    }
}
