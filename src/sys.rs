//! The system calls that std lacks, each behind a safe function of a few lines.
//!
//! Nothing here knows what it is called for. Descriptors 0-2 need no care: std opens /dev/null on
//! those that are closed when the program starts.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::ptr::NonNull;

/// How `unmount` goes about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmount {
    /// Only when nothing is open on it; else `EBUSY`.
    Plain,
    /// Take it out of the tree now; it lives on for those who have it open.
    Lazy,
    /// As `Lazy`, and end the connection to its daemon, so that whoever has it open gets an error.
    Abort,
}

/// Unmounts what is mounted at `path`; needs `CAP_SYS_ADMIN`.
pub fn unmount(path: &Path, how: Unmount) -> io::Result<()> {
    let flags = libc::UMOUNT_NOFOLLOW
        | match how {
            Unmount::Plain => 0,
            Unmount::Lazy => libc::MNT_DETACH,
            Unmount::Abort => libc::MNT_DETACH | libc::MNT_FORCE,
        };
    let path = c_string(path)?;
    // SAFETY: `path` is a NUL-terminated string that outlives the call.
    checked(unsafe { libc::umount2(path.as_ptr(), flags) })
}

/// The user whose rights this process has.
pub fn effective_user() -> u32 {
    // SAFETY: the call takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}

/// Whether this process was started with `signal` ignored, as `nohup` does with SIGHUP.
pub fn is_ignored(signal: i32) -> io::Result<bool> {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: a null new action only asks, and `action` has room for the answer.
    checked(unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) })?;
    // SAFETY: the call succeeded, so it filled in `action`.
    Ok(unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN)
}

/// Which of the two processes `fork` returned in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forked {
    /// The new one.
    Child,
    /// The one that called, with the number of the new one.
    Parent(i32),
}

/// Goes on as two processes. Refused with `EBUSY` when this one has more than one thread: the
/// others would be missing in the new one, with what they have locked.
pub fn fork() -> io::Result<Forked> {
    if std::fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::from_raw_os_error(libc::EBUSY));
    }
    // SAFETY: there is no other thread, so the child has all that the parent has.
    let process = unsafe { libc::fork() };
    checked(process)?;
    Ok(if process == 0 { Forked::Child } else { Forked::Parent(process) })
}

/// Waits for the end of a child; its exit code, or `None` when a signal ended it.
pub fn wait_for(child: i32) -> io::Result<Option<i32>> {
    let mut status = 0;
    loop {
        // SAFETY: `status` has room for the answer.
        match checked(unsafe { libc::waitpid(child, &raw mut status, 0) }) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
            Ok(()) => return Ok(libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status))),
        }
    }
}

/// Closes what the caller left open, but for `kept` and the standard three: a pipe whose other end
/// waits for its end, or a lock, must not live as long as a daemon. To be called before this
/// process opens anything of its own that it goes on to use.
pub fn close_inherited(kept: &impl AsRawFd) -> io::Result<()> {
    let mut numbers: Vec<i32> = Vec::new();
    for name in std::fs::read_dir("/proc/self/fd")? {
        numbers.extend(name?.file_name().to_str().and_then(|name| name.parse::<i32>().ok()));
    }
    for number in numbers {
        if number > 2 && number != kept.as_raw_fd() {
            // SAFETY: nobody here uses it; that of the listing is closed already, and an error.
            unsafe { libc::close(number) };
        }
    }
    Ok(())
}

/// Leaves the terminal and whoever reads what this process prints: a session of its own, the root
/// as directory, and `/dev/null` as stdin, stdout and stderr.
pub fn leave_terminal() -> io::Result<()> {
    std::env::set_current_dir("/")?;
    let nothing = File::options().read(true).write(true).open("/dev/null")?;
    // SAFETY: the call takes nothing.
    checked(unsafe { libc::setsid() })?;
    for standard in 0..=2 {
        // SAFETY: `nothing` is open, and std keeps no state for the descriptors 0 to 2.
        checked(unsafe { libc::dup2(nothing.as_raw_fd(), standard) })?;
    }
    Ok(())
}

/// What `df` tells of a filesystem. Counts are in blocks of `fragment_bytes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilesystemSpace {
    /// Preferred size of a read or write.
    pub block_bytes: u64,
    /// Unit of the block counts.
    pub fragment_bytes: u64,
    /// All blocks.
    pub blocks: u64,
    /// Free blocks.
    pub free_blocks: u64,
    /// Free blocks that plain users may take.
    pub available_blocks: u64,
    /// All inodes.
    pub inodes: u64,
    /// Free inodes.
    pub free_inodes: u64,
    /// Longest name of a file.
    pub name_bytes: u64,
}

/// Asks the filesystem that holds `path`; of a FUSE filesystem this always asks its daemon.
#[expect(clippy::useless_conversion, reason = "the fields are narrower on 32-bit systems")]
pub fn filesystem_space(path: &Path) -> io::Result<FilesystemSpace> {
    let path = c_string(path)?;
    let mut answer = MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: `path` is NUL-terminated and `answer` has room for the answer.
    checked(unsafe { libc::statvfs(path.as_ptr(), answer.as_mut_ptr()) })?;
    // SAFETY: the call succeeded, so it filled in `answer`.
    let answer = unsafe { answer.assume_init() };
    Ok(FilesystemSpace {
        block_bytes: answer.f_bsize.into(),
        fragment_bytes: answer.f_frsize.into(),
        blocks: answer.f_blocks.into(),
        free_blocks: answer.f_bfree.into(),
        available_blocks: answer.f_bavail.into(),
        inodes: answer.f_files.into(),
        free_inodes: answer.f_ffree.into(),
        name_bytes: answer.f_namemax.into(),
    })
}

/// Who keeps this process from a write lock on a whole file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockHolder {
    /// A process, as a broker locks.
    Process(i32),
    /// An open file description, which the kernel ascribes to no process.
    Unnamed,
}

/// Asks who holds a lock on any part of `file`; takes none. This process' own locks do not count.
#[expect(clippy::cast_possible_truncation, reason = "the constants 0 and 1")]
pub fn lock_holder(file: &File) -> io::Result<Option<LockHolder>> {
    // SAFETY: all zeros is a valid flock: from the start of the file to its end, whatever it is.
    let mut lock: libc::flock = unsafe { MaybeUninit::zeroed().assume_init() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    // SAFETY: the descriptor is open and `lock` is a flock, which F_GETLK reads and overwrites.
    checked(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLK, &raw mut lock) })?;
    Ok(match (lock.l_type == libc::F_UNLCK as libc::c_short, lock.l_pid) {
        (true, _) => None,
        (false, process) if process > 0 => Some(LockHolder::Process(process)),
        (false, _) => Some(LockHolder::Unnamed),
    })
}

/// Takes an exclusive lock on the whole of `file` for its open file description, without waiting
/// (fcntl(2), `F_OFD_SETLK`). `WouldBlock` while anyone holds a lock on any part of it.
#[expect(clippy::cast_possible_truncation, reason = "the constants 0 and 1")]
pub fn lock_whole_file(file: &File) -> io::Result<()> {
    // SAFETY: all zeros is a valid flock: from the start of the file to its end, whatever it is.
    let mut lock: libc::flock = unsafe { MaybeUninit::zeroed().assume_init() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    // SAFETY: the descriptor is open and `lock` is a flock, which F_OFD_SETLK reads.
    checked(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) })
}

/// Reserves disk blocks for `bytes` bytes of `file` from `from` on, so that writing them cannot
/// fail for want of space. The file keeps its length (fallocate(2), `FALLOC_FL_KEEP_SIZE`).
pub fn reserve_blocks(file: &File, from: u64, bytes: u64) -> io::Result<()> {
    let from = i64::try_from(from).map_err(io::Error::other)?;
    let bytes = i64::try_from(bytes).map_err(io::Error::other)?;
    let mode = libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: the descriptor is open.
    checked(unsafe { libc::fallocate64(file.as_raw_fd(), mode, from, bytes) })
}

/// Allows this process as many open files as it may have; how many that is.
pub fn raise_descriptor_limit() -> io::Result<u64> {
    let mut limit = descriptor_limits()?;
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: `limit` is a valid rlimit that outlives the call.
    checked(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) })?;
    descriptor_limit()
}

/// How many files this process may have open now.
pub fn descriptor_limit() -> io::Result<u64> {
    Ok(descriptor_limits()?.rlim_cur)
}

fn descriptor_limits() -> io::Result<libc::rlimit> {
    let mut limit = MaybeUninit::<libc::rlimit>::uninit();
    // SAFETY: `limit` has room for the answer.
    checked(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, limit.as_mut_ptr()) })?;
    // SAFETY: the call succeeded, so it filled in `limit`.
    Ok(unsafe { limit.assume_init() })
}

/// The first place at or behind `at` where `file` has data and not a hole; `None` when there is
/// none, and an error where the filesystem cannot tell.
pub fn data_from(file: &File, at: u64) -> io::Result<Option<u64>> {
    let at = libc::off_t::try_from(at).map_err(io::Error::other)?;
    // SAFETY: the descriptor is open as long as `file` lives, and lseek touches no memory.
    let found = unsafe { libc::lseek(file.as_raw_fd(), at, libc::SEEK_DATA) };
    match u64::try_from(found) {
        Ok(found) => Ok(Some(found)),
        Err(_) => match io::Error::last_os_error() {
            none if none.raw_os_error() == Some(libc::ENXIO) => Ok(None),
            error => Err(error),
        },
    }
}

/// Pages of a part of a file in the page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CachedPages {
    /// Pages that are there.
    pub cached: u64,
    /// Of these, changed ones that are not on the disk; `None` where the kernel does not tell.
    pub dirty: Option<u64>,
    /// Of these, ones that are being written to the disk.
    pub writeback: Option<u64>,
}

/// Asks the kernel which pages of `bytes` bytes from `from` on it holds, without reading any:
/// cachestat(2), since Linux 6.5, before that mincore(2), which tells less.
pub fn cached_pages(file: &File, from: u64, bytes: u64) -> io::Result<CachedPages> {
    /// The number of cachestat(2), the same on all architectures.
    const CACHESTAT: libc::c_long = 451;
    if bytes == 0 {
        return Ok(CachedPages::default());
    }
    let range = [from, bytes];
    let mut told = [0_u64; 5];
    let (file_number, flags) = (file.as_raw_fd(), 0_u32);
    // SAFETY: `range` is two and `told` five numbers of 64 bits, as the call has them.
    let done =
        unsafe { libc::syscall(CACHESTAT, file_number, range.as_ptr(), told.as_mut_ptr(), flags) };
    match done {
        0 => Ok(CachedPages { cached: told[0], dirty: Some(told[1]), writeback: Some(told[2]) }),
        _ => resident_pages(file, from, bytes),
    }
}

/// The same by mincore(2), of a map that is never looked into.
fn resident_pages(file: &File, from: u64, bytes: u64) -> io::Result<CachedPages> {
    const PAGE_BYTES: u64 = 4096;
    let skip = from % PAGE_BYTES;
    let too_large = |_| io::Error::from(io::ErrorKind::FileTooLarge);
    let length = usize::try_from(bytes + skip).map_err(too_large)?;
    let at = libc::off_t::try_from(from - skip).map_err(io::Error::other)?;
    let mut pages = vec![0_u8; length.div_ceil(4096)];
    let (read, shared, file_number) = (libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd());
    // SAFETY: a new map, at a place of the kernel's choice.
    let map = unsafe { libc::mmap(std::ptr::null_mut(), length, read, shared, file_number, at) };
    if map == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the map has `length` bytes, and `pages` a byte for each page of them.
    let told = checked(unsafe { libc::mincore(map, length, pages.as_mut_ptr()) });
    // SAFETY: nothing else knows of the map.
    let unmapped = checked(unsafe { libc::munmap(map, length) });
    told.and(unmapped)?;
    let cached = pages.iter().filter(|page| **page & 1 == 1).count() as u64;
    Ok(CachedPages { cached, dirty: None, writeback: None })
}

/// A new file without a name, which no other process can reach: so none can shrink it, either.
#[derive(Debug)]
pub struct UnnamedFile(File);

impl UnnamedFile {
    /// In the directory for temporary files.
    pub fn new() -> io::Result<UnnamedFile> {
        tempfile::tempfile().map(UnnamedFile)
    }

    /// The file, which must not be made shorter while it is mapped.
    pub fn file(&self) -> &File {
        &self.0
    }

    /// Its bytes as memory.
    pub fn map(&self) -> io::Result<memmap2::Mmap> {
        // SAFETY: no other process has the file, and this one never shortens it.
        unsafe { memmap2::Mmap::map(&self.0) }
    }
}

/// Sends up to `bytes` bytes of `file` from `at` on into `socket` by sendfile(2), which copies
/// nothing to this process; returns how many went.
pub fn send_file(socket: &UnixStream, file: &File, at: u64, bytes: usize) -> io::Result<usize> {
    let mut at = libc::off_t::try_from(at).map_err(io::Error::other)?;
    // SAFETY: `at` outlives the call, which changes nothing else of this process.
    let sent = unsafe { libc::sendfile(socket.as_raw_fd(), file.as_raw_fd(), &raw mut at, bytes) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// What the calling thread has cost so far (getrusage(2)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadUsage {
    /// Pages that were mapped when they were first touched, without reading a disk.
    pub page_faults: u64,
    /// Times that it waited, so that the processor went to another thread.
    pub context_switches: u64,
}

/// Asks for the calling thread.
pub fn thread_usage() -> io::Result<ThreadUsage> {
    let mut usage = MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: there is room for the answer.
    checked(unsafe { libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) })?;
    // SAFETY: the call succeeded, so it filled in `usage`.
    let usage = unsafe { usage.assume_init() };
    Ok(ThreadUsage {
        page_faults: u64::try_from(usage.ru_minflt).unwrap_or_default(),
        context_switches: u64::try_from(usage.ru_nvcsw).unwrap_or_default(),
    })
}

/// Opens a file (or directory) for reading: not through a symbolic link at its end, and without
/// moving its access time, which the kernel allows only to its owner and root.
pub fn open_untouched(path: &Path) -> io::Result<File> {
    let open = |flags| {
        OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | flags)
            .open(path)
    };
    match open(libc::O_NOATIME) {
        Err(refusal) if refusal.raw_os_error() == Some(libc::EPERM) => open(0),
        other => other,
    }
}

/// What a directory's entry is. Links are not followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A pipe, socket or device.
    Other,
}

/// The entries of a directory, in no order, without moving its access time.
pub fn list_directory(path: &Path) -> io::Result<Vec<(OsString, EntryKind)>> {
    let mut stream = DirectoryStream::open(path)?;
    let mut entries = Vec::new();
    while let Some((name, kind)) = stream.next()? {
        if name == "." || name == ".." {
            continue;
        }
        let kind = match kind {
            libc::DT_REG => EntryKind::File,
            libc::DT_DIR => EntryKind::Directory,
            libc::DT_LNK => EntryKind::Link,
            libc::DT_UNKNOWN => kind_of(&path.join(&name))?,
            _ => EntryKind::Other,
        };
        entries.push((name, kind));
    }
    Ok(entries)
}

/// For filesystems that do not tell the kind along with the name.
fn kind_of(path: &Path) -> io::Result<EntryKind> {
    let kind = match path.symlink_metadata() {
        Ok(metadata) => metadata.file_type(),
        Err(gone) if gone.kind() == io::ErrorKind::NotFound => return Ok(EntryKind::Other),
        Err(refusal) => return Err(refusal),
    };
    Ok(match (kind.is_file(), kind.is_dir(), kind.is_symlink()) {
        (true, _, _) => EntryKind::File,
        (_, true, _) => EntryKind::Directory,
        (_, _, true) => EntryKind::Link,
        _ => EntryKind::Other,
    })
}

/// An open directory; closed when dropped.
struct DirectoryStream(NonNull<libc::DIR>);

impl DirectoryStream {
    fn open(path: &Path) -> io::Result<DirectoryStream> {
        let file = open_untouched(path)?;
        // SAFETY: the descriptor is open.
        let stream = unsafe { libc::fdopendir(file.as_raw_fd()) };
        let stream = NonNull::new(stream).ok_or_else(io::Error::last_os_error)?;
        // The stream owns the descriptor from here on.
        let _ = file.into_raw_fd();
        Ok(DirectoryStream(stream))
    }

    fn next(&mut self) -> io::Result<Option<(OsString, u8)>> {
        // SAFETY: errno is a place of this thread.
        unsafe { *libc::__errno_location() = 0 };
        // SAFETY: the stream is open, and `&mut self` keeps others from it.
        let entry = unsafe { libc::readdir(self.0.as_ptr()) };
        if entry.is_null() {
            let error = io::Error::last_os_error();
            return if error.raw_os_error() == Some(0) { Ok(None) } else { Err(error) };
        }
        // SAFETY: the entry stays valid until the next call on this stream. Only the field is
        // touched: the entry may be shorter than its type.
        let kind = unsafe { (*entry).d_type };
        // SAFETY: as above; the name ends with NUL.
        let name = unsafe { CStr::from_ptr((&raw const (*entry).d_name).cast()) };
        Ok(Some((OsString::from_vec(name.to_bytes().to_vec()), kind)))
    }
}

impl Drop for DirectoryStream {
    fn drop(&mut self) {
        // SAFETY: the stream is open and nobody uses it after this. Reading leaves nothing to fail.
        unsafe { libc::closedir(self.0.as_ptr()) };
    }
}

/// A process on the other side of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its number; 0 when it cannot be seen from this process' namespace.
    pub process: i32,
    /// The user whose rights it has.
    pub user: u32,
}

/// Who is on the other side of a socket, as it was when that side began to listen or connect.
pub fn peer(socket: &UnixStream) -> io::Result<Peer> {
    let mut answer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = libc::socklen_t::try_from(size_of_val(&answer)).map_err(io::Error::other)?;
    // SAFETY: the descriptor is open, and `length` is the room that `answer` has.
    checked(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut answer).cast(),
            &raw mut length,
        )
    })?;
    Ok(Peer { process: answer.pid, user: answer.uid })
}

/// Asks one process to end, with SIGTERM.
pub fn terminate(process: i32) -> io::Result<()> {
    if process <= 0 {
        // To kill(2) these are groups of processes.
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    // SAFETY: the call takes two numbers.
    checked(unsafe { libc::kill(process, libc::SIGTERM) })
}

fn c_string(path: &Path) -> io::Result<CString> {
    let bytes = OsStr::as_bytes(path.as_os_str());
    CString::new(bytes).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))
}

fn checked(result: libc::c_int) -> io::Result<()> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, symlink};
    use std::time::{Duration, SystemTime};

    #[test]
    fn directory_lists_names_with_their_kinds() {
        let here = tempfile::tempdir().unwrap();
        std::fs::write(here.path().join("file"), "x").unwrap();
        std::fs::create_dir(here.path().join("directory")).unwrap();
        symlink("nowhere", here.path().join("link")).unwrap();
        let mut found = list_directory(here.path()).unwrap();
        found.sort_by(|a, b| a.0.cmp(&b.0));
        let expected = [
            ("directory", EntryKind::Directory),
            ("file", EntryKind::File),
            ("link", EntryKind::Link),
        ];
        assert_eq!(found, expected.map(|(name, kind)| (OsString::from(name), kind)));
        for (name, kind) in expected {
            assert_eq!(kind_of(&here.path().join(name)).unwrap(), kind);
        }
        assert!(list_directory(&here.path().join("file")).is_err());
        assert!(list_directory(&here.path().join("none")).is_err());
    }

    #[test]
    fn reading_leaves_access_times_as_they_are() {
        let here = tempfile::tempdir().unwrap();
        let path = here.path().join("file");
        std::fs::write(&path, "x").unwrap();
        let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        for old in [&path, here.path()] {
            let times = std::fs::FileTimes::new().set_accessed(long_ago);
            File::open(old).unwrap().set_times(times).unwrap();
        }
        io::read_to_string(open_untouched(&path).unwrap()).unwrap();
        list_directory(here.path()).unwrap();
        assert_eq!(path.metadata().unwrap().atime(), 1_000_000_000);
        assert_eq!(here.path().metadata().unwrap().atime(), 1_000_000_000);
    }

    #[test]
    fn pages_that_were_just_written_are_in_the_cache() {
        let mut file = tempfile::tempfile().unwrap();
        io::Write::write_all(&mut file, &[1; 3 * 4096]).unwrap();
        for ask in [cached_pages, resident_pages] {
            assert_eq!(ask(&file, 0, 3 * 4096).unwrap().cached, 3);
            assert_eq!(ask(&file, 5000, 10).unwrap().cached, 1);
        }
    }

    #[test]
    fn links_are_not_opened() {
        let here = tempfile::tempdir().unwrap();
        std::fs::write(here.path().join("file"), "x").unwrap();
        symlink("file", here.path().join("link")).unwrap();
        let refusal = open_untouched(&here.path().join("link")).unwrap_err();
        assert_eq!(refusal.raw_os_error(), Some(libc::ELOOP));
    }

    #[test]
    fn own_locks_do_not_count() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(lock_holder(&file).unwrap(), None);
    }

    #[test]
    fn space_of_a_filesystem_is_told() {
        let space = filesystem_space(Path::new("/")).unwrap();
        assert!(space.blocks >= space.free_blocks && space.fragment_bytes > 0);
        assert!(filesystem_space(Path::new("/no/such/place")).is_err());
    }

    #[test]
    fn descriptor_limit_is_raised_to_the_hard_limit() {
        let before = descriptor_limit().unwrap();
        assert!(raise_descriptor_limit().unwrap() >= before);
    }

    #[test]
    fn peer_across_a_socket_is_this_process() {
        let (one, _other) = UnixStream::pair().unwrap();
        let here = i32::try_from(std::process::id()).unwrap();
        assert_eq!(peer(&one).unwrap(), Peer { process: here, user: effective_user() });
    }

    #[test]
    fn groups_of_processes_are_never_ended() {
        for group in [0, -1, i32::MIN] {
            assert_eq!(terminate(group).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
    }

    #[test]
    fn unmounting_what_is_not_mounted_is_an_error() {
        let here = tempfile::tempdir().unwrap();
        for how in [Unmount::Plain, Unmount::Lazy, Unmount::Abort] {
            assert!(unmount(here.path(), how).is_err());
        }
    }

    #[test]
    fn standard_signals_are_not_ignored() {
        assert!(!is_ignored(libc::SIGTERM).unwrap());
        assert!(is_ignored(libc::SIGPIPE).unwrap(), "std ignores it");
    }
}
