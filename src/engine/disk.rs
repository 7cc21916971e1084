//! The only way to the files of SOURCE. Everything above asks this trait, so that tests can put a
//! failing or crashing disk in its place. The real one opens files read-only, without following
//! symbolic links and without moving access times, and keeps a bounded number of descriptors: what
//! is asked for again after its descriptor was given up is opened again, and must still be the same
//! file.

use std::collections::{HashMap, VecDeque};
use std::ffi::OsString;
use std::fmt;
use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown, lchown};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use crate::error::{Error, Result};
use crate::sys;
use crate::units::Position;

/// Access to files, in the few ways that the engine needs.
pub trait Disk: Send + Sync + fmt::Debug {
    /// The names in a directory, in no order.
    fn list(&self, directory: &Path) -> Result<Vec<OsString>>;

    /// Where a name leads, all links followed.
    fn resolve(&self, path: &Path) -> Result<PathBuf>;

    /// What the name itself is, links not followed.
    fn facts(&self, path: &Path) -> Result<Facts>;

    /// What a file is now, however its name has changed since.
    fn facts_of(&self, file: &DiskFile) -> Result<Facts>;

    /// Makes a new, empty file; fails where there is one.
    fn create(&self, path: &Path) -> Result<DiskFile>;

    /// Gives `to` the permissions of `from`, and where this process may its owner.
    fn copy_rights(&self, from: &DiskFile, to: &DiskFile) -> Result<()> {
        let _ = (from, to);
        Ok(())
    }

    /// Writes all of `bytes` at `at`.
    fn write_at(&self, file: &DiskFile, at: Position, bytes: &[u8]) -> Result<()>;

    /// Cuts or extends a file to `bytes` bytes.
    fn set_bytes(&self, file: &DiskFile, bytes: u64) -> Result<()>;

    /// Reserves blocks for `bytes` bytes from `from` on; false where the filesystem cannot promise
    /// any.
    fn reserve(&self, file: &DiskFile, from: Position, bytes: u64) -> Result<bool>;

    /// Returns when the content of a file is on the disk.
    fn sync(&self, file: &DiskFile) -> Result<()>;

    /// Returns when the names in a directory are on the disk.
    fn sync_directory(&self, path: &Path) -> Result<()>;

    /// Gives a file or directory another name, in place of what had it.
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;

    /// Removes a file.
    fn remove(&self, path: &Path) -> Result<()>;

    /// Makes a directory.
    fn create_directory(&self, path: &Path) -> Result<()>;

    /// Removes a directory with everything in it.
    fn remove_directory(&self, path: &Path) -> Result<()>;

    /// The file itself, opened for reading and writing, to be mapped.
    fn lend(&self, file: &DiskFile) -> Result<Arc<File>>;

    /// Reads from `at` until `buffer` is full or the file ends; the number of bytes read.
    fn read_at(&self, file: &DiskFile, at: Position, buffer: &mut [u8]) -> Result<usize>;

    /// Up to where, from `at` on, reading would give nothing but zeros because the file has no data
    /// there; `at` itself when that is not known.
    fn hole_end(&self, file: &DiskFile, at: Position) -> Result<Position> {
        let _ = file;
        Ok(at)
    }
}

/// One file, by its path and by what it was when it was first seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskFile {
    /// Where it is opened.
    pub path: PathBuf,
    /// Which file that must be.
    pub id: FileId,
}

/// Device and inode number: the same while the file lives, whatever its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names say it")]
pub struct FileId {
    pub device: u64,
    pub inode: u64,
}

/// What kind of thing a name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Kind {
    File,
    Directory,
    Link,
    Other,
}

/// What stat(2) says, as far as anyone here asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Which file.
    pub id: FileId,
    /// What kind.
    pub kind: Kind,
    /// Its size.
    pub bytes: u64,
    /// Time of the last change of its content: seconds and nanoseconds since 1970.
    pub modified: (i64, u32),
    /// When it was made, where the filesystem tells: inode numbers come again.
    pub made: Option<SystemTime>,
    /// Permission bits.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

impl Facts {
    fn of(metadata: &Metadata) -> Facts {
        let kind = match metadata.file_type() {
            t if t.is_file() => Kind::File,
            t if t.is_dir() => Kind::Directory,
            t if t.is_symlink() => Kind::Link,
            _ => Kind::Other,
        };
        Facts {
            id: FileId { device: metadata.dev(), inode: metadata.ino() },
            kind,
            bytes: metadata.len(),
            modified: (metadata.mtime(), u32::try_from(metadata.mtime_nsec()).unwrap_or(0)),
            made: metadata.created().ok(),
            mode: u16::try_from(metadata.mode() & 0o7777).unwrap_or(0),
            uid: metadata.uid(),
            gid: metadata.gid(),
        }
    }
}

/// The real files.
#[derive(Debug)]
pub struct RealDisk {
    descriptors: Mutex<Descriptors>,
}

impl RealDisk {
    /// Files, of which at most `most` are open at once.
    pub fn new(most: usize) -> RealDisk {
        let descriptors = Descriptors {
            most: most.max(1),
            clock: 0,
            open: HashMap::new(),
            removed: VecDeque::new(),
        };
        RealDisk { descriptors: Mutex::new(descriptors) }
    }

    fn cache(&self) -> MutexGuard<'_, Descriptors> {
        let mut cache = self.descriptors.lock().unwrap_or_else(PoisonError::into_inner);
        cache.forget_removed(FILE_DELETE_DELAY);
        cache
    }

    /// Does what takes room on the disk: on a full one, removed files are not kept for readers.
    fn with_room<T>(&self, take: impl Fn() -> io::Result<T>) -> io::Result<T> {
        match take() {
            Err(e) if e.kind() == ErrorKind::StorageFull => {
                if self.cache().forget_removed(Duration::ZERO) { take() } else { Err(e) }
            }
            done => done,
        }
    }

    fn descriptor(&self, file: &DiskFile, access: Access) -> Result<Arc<File>> {
        let key = (file.id, access);
        if let Some(open) = self.cache().get(key) {
            return Ok(open);
        }
        let opened = match access {
            Access::Read => sys::open_untouched(&file.path),
            Access::Write => open_to_write(&file.path),
        };
        let opened = opened.map_err(Error::io("open", &file.path))?;
        let facts = opened.metadata().map_err(Error::io("stat", &file.path))?;
        if !facts.is_file() || Facts::of(&facts).id != file.id {
            let gone = io::Error::new(ErrorKind::NotFound, "another file has taken its place");
            return Err(Error::io("open", &file.path)(gone));
        }
        let opened = Arc::new(opened);
        self.cache().put(key, Arc::clone(&opened));
        Ok(opened)
    }
}

/// What a descriptor is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Access {
    Read,
    Write,
}

/// What root makes belongs to whom the directory belongs that it is in: a broker must be able to
/// open it. Others make what is their own.
pub fn give_to_owner(
    path: &Path,
    give: impl FnOnce(Option<u32>, Option<u32>) -> io::Result<()>,
) -> Result<()> {
    let Some(directory) = path.parent().filter(|_| sys::effective_user() == 0) else {
        return Ok(());
    };
    let owner = std::fs::symlink_metadata(directory).map_err(Error::io("stat", directory))?;
    if owner.uid() == 0 {
        return Ok(());
    }
    give(Some(owner.uid()), Some(owner.gid())).map_err(Error::io("change the owner of", path))
}

fn open_to_write(path: &Path) -> io::Result<File> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)
}

impl Disk for RealDisk {
    fn list(&self, directory: &Path) -> Result<Vec<OsString>> {
        // Also where nothing else is asked for, the room of removed files comes back in time.
        drop(self.cache());
        let entries = sys::list_directory(directory).map_err(Error::io("list", directory))?;
        Ok(entries.into_iter().map(|(name, _)| name).collect())
    }

    fn resolve(&self, path: &Path) -> Result<PathBuf> {
        path.canonicalize().map_err(Error::io("follow", path))
    }

    fn facts(&self, path: &Path) -> Result<Facts> {
        let metadata = std::fs::symlink_metadata(path).map_err(Error::io("stat", path))?;
        Ok(Facts::of(&metadata))
    }

    fn facts_of(&self, file: &DiskFile) -> Result<Facts> {
        let open = self.descriptor(file, Access::Read)?;
        Ok(Facts::of(&open.metadata().map_err(Error::io("stat", &file.path))?))
    }

    fn create(&self, path: &Path) -> Result<DiskFile> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).custom_flags(libc::O_NOFOLLOW);
        let made = self.with_room(|| options.open(path)).map_err(Error::io("create", path))?;
        give_to_owner(path, |uid, gid| fchown(&made, uid, gid))?;
        let facts = Facts::of(&made.metadata().map_err(Error::io("stat", path))?);
        self.cache().put((facts.id, Access::Write), Arc::new(made));
        Ok(DiskFile { path: path.to_path_buf(), id: facts.id })
    }

    fn copy_rights(&self, from: &DiskFile, to: &DiskFile) -> Result<()> {
        let rights = self.facts_of(from)?;
        let open = self.descriptor(to, Access::Write)?;
        if sys::effective_user() == 0 {
            fchown(&*open, Some(rights.uid), Some(rights.gid))
                .map_err(Error::io("change the owner of", &to.path))?;
        }
        let mode = Permissions::from_mode(u32::from(rights.mode));
        open.set_permissions(mode).map_err(Error::io("change the mode of", &to.path))
    }

    fn write_at(&self, file: &DiskFile, at: Position, bytes: &[u8]) -> Result<()> {
        let open = self.descriptor(file, Access::Write)?;
        self.with_room(|| open.write_all_at(bytes, at.get()))
            .map_err(Error::io("write", &file.path))
    }

    fn set_bytes(&self, file: &DiskFile, bytes: u64) -> Result<()> {
        let open = self.descriptor(file, Access::Write)?;
        open.set_len(bytes).map_err(Error::io("set the length of", &file.path))
    }

    fn reserve(&self, file: &DiskFile, from: Position, bytes: u64) -> Result<bool> {
        let open = self.descriptor(file, Access::Write)?;
        match self.with_room(|| sys::reserve_blocks(&open, from.get(), bytes)) {
            Ok(()) => Ok(true),
            Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(false),
            Err(e) => Err(Error::io("reserve blocks of", &file.path)(e)),
        }
    }

    fn sync(&self, file: &DiskFile) -> Result<()> {
        let open = self.descriptor(file, Access::Write)?;
        open.sync_data().map_err(Error::io("sync", &file.path))
    }

    fn sync_directory(&self, path: &Path) -> Result<()> {
        let open = sys::open_untouched(path).map_err(Error::io("open", path))?;
        open.sync_all().map_err(Error::io("sync", path))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        std::fs::rename(from, to).map_err(Error::io("rename", from))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        let id = self.facts(path).map(|facts| facts.id);
        std::fs::remove_file(path).map_err(Error::io("remove", path))?;
        if let Ok(id) = id {
            self.cache().removed(id);
        }
        Ok(())
    }

    fn create_directory(&self, path: &Path) -> Result<()> {
        std::fs::create_dir(path).map_err(Error::io("make", path))?;
        give_to_owner(path, |uid, gid| lchown(path, uid, gid))
    }

    fn remove_directory(&self, path: &Path) -> Result<()> {
        std::fs::remove_dir_all(path).map_err(Error::io("remove", path))
    }

    fn lend(&self, file: &DiskFile) -> Result<Arc<File>> {
        self.descriptor(file, Access::Write)
    }

    fn read_at(&self, file: &DiskFile, at: Position, buffer: &mut [u8]) -> Result<usize> {
        let open = self.descriptor(file, Access::Read)?;
        let mut filled = 0;
        while filled < buffer.len() {
            let position = at.plus(filled as u64).get();
            match open.read_at(&mut buffer[filled..], position) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(Error::io("read", &file.path)(e)),
            }
        }
        Ok(filled)
    }

    fn hole_end(&self, file: &DiskFile, at: Position) -> Result<Position> {
        let open = self.descriptor(file, Access::Read)?;
        Ok(match sys::data_from(&open, at.get()) {
            Ok(Some(data)) => Position::new(data),
            Ok(None) => {
                let facts = open.metadata().map_err(Error::io("stat", &file.path))?;
                at.max(Position::new(facts.len()))
            }
            Err(_) => at,
        })
    }
}

/// How long a removed file can still be read by those who were in it, and keeps its room on the
/// disk: Kafka's default for `file.delete.delay.ms`.
const FILE_DELETE_DELAY: Duration = Duration::from_mins(1);

/// Open files, least recently used ones given up first.
#[derive(Debug)]
struct Descriptors {
    most: usize,
    clock: u64,
    open: HashMap<(FileId, Access), (Arc<File>, u64)>,
    /// Those without a name, and since when.
    removed: VecDeque<(FileId, Instant)>,
}

impl Descriptors {
    fn removed(&mut self, id: FileId) {
        // Nobody writes to it any more.
        self.open.remove(&(id, Access::Write));
        if self.open.contains_key(&(id, Access::Read)) {
            self.removed.push_back((id, Instant::now()));
        }
    }

    /// Gives up the files that were removed at least so long ago, if any.
    fn forget_removed(&mut self, delay: Duration) -> bool {
        let mut any = false;
        while let Some((id, since)) = self.removed.front()
            && since.elapsed() >= delay
        {
            any |= self.open.remove(&(*id, Access::Read)).is_some();
            self.removed.pop_front();
        }
        any
    }

    fn get(&mut self, id: (FileId, Access)) -> Option<Arc<File>> {
        self.clock += 1;
        let (file, used) = self.open.get_mut(&id)?;
        *used = self.clock;
        Some(Arc::clone(file))
    }

    fn put(&mut self, id: (FileId, Access), file: Arc<File>) {
        if self.open.len() >= self.most
            && let Some(oldest) = self.open.iter().min_by_key(|(_, (_, used))| *used)
        {
            let oldest = *oldest.0;
            self.open.remove(&oldest);
        }
        self.clock += 1;
        self.open.insert(id, (file, self.clock));
    }
}

/// Replaces a small file by one with this content: whole or not at all, and on the disk when this
/// returns (format page, "writing discipline").
pub fn replace_small(disk: &dyn Disk, path: &Path, content: &[u8]) -> Result<()> {
    let scratch = path.with_added_extension("tmp");
    match disk.remove(&scratch) {
        Err(e) if !e.is_not_found() => return Err(e),
        Ok(()) | Err(_) => {}
    }
    let file = disk.create(&scratch)?;
    disk.write_at(&file, Position::START, content)?;
    disk.sync(&file)?;
    disk.rename(&scratch, path)?;
    path.parent().map_or(Ok(()), |parent| disk.sync_directory(parent))
}

/// The whole content of a small file, or an error when it is larger than `most` bytes.
pub fn read_small(disk: &dyn Disk, path: &Path, most: u64) -> Result<Vec<u8>> {
    let facts = disk.facts(path)?;
    if facts.kind != Kind::File || facts.bytes > most {
        return Err(Error::refused(path, format!("not a file of at most {most} bytes")));
    }
    let file = DiskFile { path: path.to_path_buf(), id: facts.id };
    let mut content = vec![0; usize::try_from(facts.bytes).unwrap_or(0)];
    let read = disk.read_at(&file, Position::START, &mut content)?;
    content.truncate(read);
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: PathBuf) -> DiskFile {
        let id = RealDisk::new(1).facts(&path).unwrap().id;
        DiskFile { path, id }
    }

    #[test]
    fn a_replaced_file_is_not_read_in_place_of_the_old_one() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("a");
        std::fs::write(&path, "old").unwrap();
        let old = file(path.clone());
        std::fs::write(scratch.path().join("b"), "new").unwrap();
        std::fs::rename(scratch.path().join("b"), &path).unwrap();
        let mut buffer = [0; 3];
        let read = RealDisk::new(1).read_at(&old, Position::START, &mut buffer);
        assert!(matches!(read, Err(Error::Io { action: "open", .. })), "{read:?}");
    }

    #[test]
    fn descriptors_are_bounded_and_reopened() {
        let scratch = tempfile::tempdir().unwrap();
        let disk = RealDisk::new(2);
        let files: Vec<_> = ["a", "b", "c"]
            .iter()
            .map(|name| {
                std::fs::write(scratch.path().join(name), name).unwrap();
                file(scratch.path().join(name))
            })
            .collect();
        for _ in 0..2 {
            for f in &files {
                let mut buffer = [0; 9];
                assert_eq!(disk.read_at(f, Position::START, &mut buffer).unwrap(), 1);
                assert!(disk.descriptors.lock().unwrap().open.len() <= 2);
            }
        }
    }

    /// Contract 2.9: "A file opened before retention took its records gives them, or EIO"
    #[test]
    fn a_removed_file_can_be_read_for_a_while_but_not_on_a_full_disk() {
        let scratch = tempfile::tempdir().unwrap();
        let disk = RealDisk::new(2);
        let path = scratch.path().join("a");
        std::fs::write(&path, "a").unwrap();
        let removed = file(path.clone());
        let mut buffer = [0; 9];
        assert_eq!(disk.read_at(&removed, Position::START, &mut buffer).unwrap(), 1);
        disk.remove(&path).unwrap();
        assert_eq!(disk.read_at(&removed, Position::START, &mut buffer).unwrap(), 1);
        let tries = std::cell::Cell::new(0);
        let full = || -> io::Result<()> {
            tries.set(tries.get() + 1);
            Err(ErrorKind::StorageFull.into())
        };
        assert!(disk.with_room(full).is_err());
        assert_eq!(tries.get(), 2, "tried again after the room came back");
        assert!(disk.read_at(&removed, Position::START, &mut buffer).is_err());
        assert!(disk.with_room(full).is_err());
        assert_eq!(tries.get(), 3, "there is nothing more to give up");
    }

    #[test]
    fn links_are_not_followed_and_pipes_do_not_block() {
        let scratch = tempfile::tempdir().unwrap();
        std::fs::write(scratch.path().join("target"), "x").unwrap();
        let link = scratch.path().join("link");
        std::os::unix::fs::symlink("target", &link).unwrap();
        assert_eq!(RealDisk::new(1).facts(&link).unwrap().kind, Kind::Link);
        let mut buffer = [0; 1];
        assert!(RealDisk::new(1).read_at(&file(link), Position::START, &mut buffer).is_err());
    }
}
