//! The filesystem in our own words: what a name means, what a file is, what it reads. Everything
//! that is worth testing happens here; `fuse` only unpacks requests and sends the answers.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::engine::cache::Cache;
use crate::engine::config::effective;
use crate::engine::data_dir::DataDir;
use crate::engine::disk::{DiskFile, Facts, Kind};
use crate::engine::facts;
use crate::engine::log::{Found, Log, LogState};
use crate::engine::scanner::Interrupted;
use crate::fs::change::Written;
use crate::fs::errno::Errno;
use crate::fs::node::{NameId, Names, Node, NodeTable, ROOT, View, hash_bytes};
use crate::units::{Offset, Position, Timestamp};
use crate::view::config;
use crate::view::listing;
use crate::view::name::{Format, OffsetName, Part, TimeName, parse_offset_name, parse_time_name};
use crate::view::range::{RangeCursor, RangeFile, ReadEnd};
use crate::view::record;
use crate::view::report;
use crate::view::time::format_time;

/// A result of the filesystem.
pub type Answer<T> = Result<T, Errno>;

/// The directory of what is no live partition.
const OTHER: &str = "_other";
/// How long the kernel may believe what does not change any more: less than the second within which
/// deletions are to be seen (contract 2.13), together with the age of our own picture.
const SETTLED: Duration = Duration::from_millis(500);
/// Bytes that tools like to read at once from long files (measured: `cat` then reads 1 MiB).
const RANGE_BLOCK_BYTES: u32 = 1 << 20;
const BLOCK_BYTES: u32 = 4096;
/// How long the kernel may believe what never changes; an append then needs no other request.
const LONG: Duration = Duration::from_hours(1);
/// A value up to this size is given to the kernel when the file is opened.
const SMALL_VALUE_BYTES: usize = 64 << 10;
/// How long a generated text stays the same, so that its size and content agree.
const TEXT_AGE: Duration = Duration::from_millis(200);
/// Page size, to which mapped and cached reads are aligned.
const PAGE: u64 = 4096;
/// Sequential readings that are kept going at the most.
const MOST_CURSORS: usize = 32;

/// What the mount shows.
#[derive(Debug)]
pub struct Tree {
    data_dir: DataDir,
    list_all: bool,
    names: Names,
    nodes: NodeTable,
    incarnations: Mutex<HashMap<NameId, u64>>,
    contents: Mutex<HashMap<Node, Weak<Content>>>,
    recent: Cache<Node, Content>,
    handles: Mutex<Handles>,
    /// Why the last write to a file was refused.
    errors: Mutex<HashMap<Node, String>>,
    closing: AtomicBool,
}

/// What stat(2) shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Inode number.
    pub number: u64,
    /// Is it a directory?
    pub directory: bool,
    /// Size in bytes.
    pub bytes: u64,
    /// Time of the last change.
    pub modified: SystemTime,
    /// Permission bits.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Preferred size of a read.
    pub block_bytes: u32,
    /// How long this holds.
    pub valid: Duration,
}

/// What open(2) gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// To be used in reads.
    pub handle: u64,
    /// May pages that the kernel has be used?
    pub keep_cache: bool,
    /// Must every read come here?
    pub direct: bool,
    /// The whole content, to be given to the kernel at once.
    pub content: Option<Vec<u8>>,
}

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// Its inode number.
    pub number: u64,
    /// Is it a directory?
    pub directory: bool,
    /// Its name.
    pub name: OsString,
}

/// What an open file reads from.
#[derive(Debug)]
pub(super) enum Content {
    Range(RangeFile),
    /// A generated text, when it was made, and of which state of the log.
    Text(Vec<u8>, Instant, u64),
}

#[derive(Debug, Default)]
struct Handles {
    last: u64,
    open: HashMap<u64, Arc<Handle>>,
    /// Handles with a reading that goes on, the latest last.
    reading: Vec<u64>,
}

#[derive(Debug)]
pub(super) enum Handle {
    Written(Arc<Written>),
    Content(Arc<Content>, Mutex<Option<Box<RangeCursor>>>),
    Record(NameId, Offset, Part),
    File(DiskFile),
    Directory(Mutex<Listing>),
}

/// A directory that is being listed.
#[derive(Debug, Default)]
pub(super) struct Listing {
    entries: Option<Arc<Vec<DirectoryEntry>>>,
}

impl Tree {
    /// Everything in `data_dir`; `list_all` lists every record instead of a sample.
    pub fn new(data_dir: DataDir, list_all: bool) -> Tree {
        Tree {
            data_dir,
            list_all,
            names: Names::default(),
            nodes: NodeTable::default(),
            incarnations: Mutex::default(),
            contents: Mutex::default(),
            recent: Cache::new(64),
            handles: Mutex::default(),
            errors: Mutex::default(),
            closing: AtomicBool::new(false),
        }
    }

    /// Where the files come from.
    pub fn data_dir(&self) -> &DataDir {
        &self.data_dir
    }

    /// What `name` in the directory `parent` is. Does not read a range to know its size: then the
    /// size is provisional and the answer valid for no time at all.
    pub fn lookup(&self, parent: u64, name: &OsStr, caller: &Interrupted) -> Answer<Attributes> {
        let parent = self.node(parent)?;
        let node = self.child(parent, name, caller)?;
        let mut attributes = match self.provisional(node) {
            Some(attributes) => attributes?,
            None => self.attributes_of(node, caller)?,
        };
        attributes.number = self.nodes.lend(node, &self.names, self.incarnation(node));
        Ok(attributes)
    }

    /// The kernel has forgotten `lookups` answers with this number.
    pub fn forget(&self, number: u64, lookups: u64) {
        self.nodes.forget(number, lookups);
    }

    /// The attributes of an inode, the exact size included.
    pub fn attributes(&self, number: u64, caller: &Interrupted) -> Answer<Attributes> {
        let node = self.node(number)?;
        Ok(Attributes { number, ..self.attributes_of(node, caller)? })
    }

    /// Would a lookup answer without reading much?
    pub fn is_quick_lookup(&self, parent: u64, name: &OsStr) -> bool {
        match self.nodes.get(parent) {
            // The attributes of a partition take opening its log.
            Some(Node::Root) => {
                self.data_dir.log(name).ok().flatten().is_none_or(|log| log.is_open())
            }
            Some(Node::View(partition, View::ByOffset)) => {
                self.quick_log(partition).is_some_and(|log| {
                    match parse_offset_name(name.as_encoded_bytes()) {
                        Some(OffsetName::Record(offset, _)) => log.is_quick(offset),
                        Some(OffsetName::Range { .. }) | None => true,
                        Some(OffsetName::Last(..)) => false,
                    }
                })
            }
            Some(Node::View(_, View::ByTime)) => parse_time_name(name.as_encoded_bytes()).is_none(),
            Some(Node::Partition(partition)) => {
                self.quick_log(partition).is_some() && name != View::Report.name()
            }
            Some(_) | None => true,
        }
    }

    /// Would the attributes of this inode, or opening it, take no long reading?
    pub fn is_quick(&self, number: u64) -> bool {
        match self.nodes.get(number) {
            Some(node @ Node::Range(..)) => self
                .content(node)
                .is_ok_and(|content| matches!(&*content, Content::Range(file) if file.is_quick())),
            Some(Node::Record(partition, offset, _)) => {
                self.quick_log(partition).is_some_and(|log| log.is_quick(offset))
            }
            Some(Node::View(_, View::Report)) => false,
            Some(Node::View(partition, _) | Node::Partition(partition)) => {
                self.quick_log(partition).is_some()
            }
            Some(_) | None => true,
        }
    }

    /// Would a read through this handle take no long work?
    pub fn is_quick_read(&self, handle: u64, position: u64) -> bool {
        match self.handle(handle).as_deref() {
            Ok(Handle::Content(content, _)) => match &**content {
                Content::Range(file) => file.is_light(position),
                Content::Text(..) => true,
            },
            Ok(Handle::Record(..)) => false,
            Ok(Handle::File(_) | Handle::Directory(_) | Handle::Written(_)) | Err(_) => true,
        }
    }

    /// Opens a file for reading.
    pub fn open(&self, number: u64, caller: &Interrupted) -> Answer<Opened> {
        let node = self.node(number)?;
        let plain = |handle: Handle| Opened {
            handle: self.add_handle(handle),
            keep_cache: false,
            direct: false,
            content: None,
        };
        match node {
            Node::OtherFile(directory, name) => {
                let path = self.data_dir.path().join(&*self.names.name(directory));
                let path = path.join(&*self.names.name(name));
                Ok(plain(Handle::File(self.disk_file(path)?)))
            }
            Node::SegmentFile(partition, name) => {
                let path = self.log(partition)?.path().join(&*self.names.name(name));
                Ok(plain(Handle::File(self.disk_file(path)?)))
            }
            Node::Record(partition, offset, part) => self.open_record(partition, offset, part),
            Node::Range(partition, ..) => {
                let content = self.content(node)?;
                let Content::Range(file) = &*content else { return Err(Errno::STALE) };
                file.size(Some(caller))?;
                let direct = file.is_damaged();
                let log = self.log(partition)?;
                // Pages of before may be of another file of the same name.
                let settled = file.note_open() && file.is_settled(&*log.state()?);
                let handle =
                    self.add_handle(Handle::Content(Arc::clone(&content), Mutex::default()));
                Ok(Opened { handle, keep_cache: settled && !direct, direct, content: None })
            }
            Node::View(..) if !node.is_directory() => {
                let content = self.content(node)?;
                Ok(plain(Handle::Content(content, Mutex::default())))
            }
            Node::Root
            | Node::Other
            | Node::OtherDirectory(_)
            | Node::Partition(_)
            | Node::View(..) => Err(Errno::IS_A_DIRECTORY),
        }
    }

    /// Appends up to `wanted` bytes from `position` on to `out`. Fewer only at the end of the file,
    /// or, for a read that no page depends on, before an unreadable byte.
    pub fn read(
        &self,
        handle: u64,
        position: u64,
        wanted: usize,
        out: &mut Vec<u8>,
        caller: &Interrupted,
    ) -> Answer<()> {
        match &*self.handle(handle)? {
            Handle::Content(content, cursor) => match &**content {
                Content::Text(text, ..) => {
                    copy_part(text, position, wanted, out);
                    Ok(())
                }
                Content::Range(file) => {
                    let mut cursor = cursor.lock().unwrap_or_else(PoisonError::into_inner);
                    let end = file.read(&mut cursor, position, wanted, out, Some(caller))?;
                    let kept = cursor.is_some();
                    drop(cursor);
                    if kept {
                        self.bound_cursors(handle);
                    }
                    match end {
                        ReadEnd::Damage(_) if out.is_empty() || is_aligned(position, wanted) => {
                            Err(Errno::IO)
                        }
                        ReadEnd::Damage(_) | ReadEnd::Complete => Ok(()),
                    }
                }
            },
            Handle::Record(partition, offset, part) => {
                let log = self.log(*partition)?;
                let state = log.state()?;
                let Found::Record(found, ..) = log.find(&state, *offset)? else {
                    return Err(Errno::IO);
                };
                let record = found.record().ok_or(Errno::IO)?;
                match part {
                    Part::Value => {
                        copy_part(record.value.unwrap_or_default(), position, wanted, out);
                    }
                    Part::Key => copy_part(record.key.unwrap_or_default(), position, wanted, out),
                    Part::Json => {
                        let json = record::bytes(&log, &state, &found, *part)?.unwrap_or_default();
                        copy_part(&json, position, wanted, out);
                    }
                }
                Ok(())
            }
            Handle::File(file) => {
                let begin = out.len();
                out.resize(begin + wanted, 0);
                let disk = &self.data_dir.shared().disk;
                let read = disk.read_at(file, Position::new(position), &mut out[begin..])?;
                out.truncate(begin + read);
                Ok(())
            }
            // What is appended to is empty to read.
            Handle::Written(_) => Ok(()),
            Handle::Directory(_) => Err(Errno::IS_A_DIRECTORY),
        }
    }

    /// Ends the use of a handle.
    pub fn release(&self, handle: u64) {
        let mut handles = self.lock_handles();
        let ended = handles.open.remove(&handle);
        handles.reading.retain(|reading| *reading != handle);
        drop(handles);
        if let Some(Handle::Written(written)) = ended.as_deref() {
            self.finish_handle(written);
        }
    }

    /// May this file be truncated, and its times set, without effect?
    pub fn takes_truncation(&self, number: u64) -> bool {
        let node = self.nodes.get(number);
        self.is_writable() && matches!(node, Some(Node::View(_, view)) if view.is_writable())
    }

    /// Can anything be changed here?
    pub fn is_writable(&self) -> bool {
        self.data_dir.shared().access.is_some()
    }

    /// Is the mount going away?
    pub(super) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// No writes any more.
    pub(super) fn close(&self) {
        self.closing.store(true, Ordering::Release);
    }

    pub(super) fn written(&self, handle: u64) -> Answer<Arc<Written>> {
        match &*self.handle(handle)? {
            Handle::Written(written) => Ok(Arc::clone(written)),
            _ => Err(Errno::NOT_PERMITTED),
        }
    }

    pub(super) fn all_written(&self) -> Vec<Arc<Written>> {
        let handles = self.lock_handles();
        let written = handles.open.values().filter_map(|handle| match &**handle {
            Handle::Written(written) => Some(Arc::clone(written)),
            _ => None,
        });
        written.collect()
    }

    pub(super) fn note_error(&self, node: Node, reason: String) {
        self.errors.lock().unwrap_or_else(PoisonError::into_inner).insert(node, reason);
    }

    /// A text that was changed is made anew.
    pub(super) fn forget_text(&self, node: Node) {
        self.lock_contents().remove(&node);
    }

    /// Opens a directory for listing.
    pub fn open_directory(&self, number: u64) -> Answer<u64> {
        let node = self.node(number)?;
        if !node.is_directory() {
            return Err(Errno::NOT_A_DIRECTORY);
        }
        Ok(self.add_handle(Handle::Directory(Mutex::default())))
    }

    /// The entries of an open directory; the same ones until it is listed from the start again.
    pub fn list(
        &self,
        number: u64,
        handle: u64,
        from_start: bool,
        caller: &Interrupted,
    ) -> Answer<Arc<Vec<DirectoryEntry>>> {
        let node = self.node(number)?;
        let handle = self.handle(handle)?;
        let Handle::Directory(listing) = &*handle else { return Err(Errno::NOT_A_DIRECTORY) };
        let known = listing.lock().unwrap_or_else(PoisonError::into_inner).entries.clone();
        if let Some(entries) = known
            && !from_start
        {
            return Ok(entries);
        }
        let entries = Arc::new(self.entries(node, caller)?);
        listing.lock().unwrap_or_else(PoisonError::into_inner).entries = Some(Arc::clone(&entries));
        Ok(entries)
    }

    /// The extended attributes of an inode.
    pub fn extended_attributes(&self, number: u64) -> Answer<record::Attributes> {
        let node = self.node(number)?;
        let Node::Record(partition, offset, _) = node else {
            let errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
            let last = errors.get(&node).map(|reason| reason.clone().into_bytes());
            return Ok(last
                .map(|reason| (b"user.last_error".to_vec(), reason))
                .into_iter()
                .collect());
        };
        let log = self.log(partition)?;
        let state = log.state()?;
        match log.find(&state, offset)? {
            Found::Record(found, ..) => Ok(record::extended_attributes(&log, &state, &found)?),
            Found::Damaged(_) => {
                Ok(vec![(b"user.offset".to_vec(), offset.to_string().into_bytes())])
            }
            Found::Nothing => Err(Errno::NOT_FOUND),
        }
    }

    pub(super) fn node(&self, number: u64) -> Answer<Node> {
        self.nodes.get(number).ok_or(Errno::STALE)
    }

    pub(super) fn log(&self, partition: NameId) -> Answer<Arc<Log>> {
        let log = self.data_dir.log(&self.names.name(partition))?.ok_or(Errno::NOT_FOUND)?;
        // The name may be another partition's by now.
        if log.made() == self.names.made(partition) { Ok(log) } else { Err(Errno::STALE) }
    }

    /// The log, if it is open already.
    fn quick_log(&self, partition: NameId) -> Option<Arc<Log>> {
        self.log(partition).ok().filter(|log| log.is_open())
    }

    /// Tells partitions apart that had the same name one after the other.
    fn incarnation(&self, node: Node) -> u64 {
        let Some(partition) = node.partition() else { return 0 };
        if matches!(node, Node::Partition(_)) {
            return 0;
        }
        let mut known = self.incarnations.lock().unwrap_or_else(PoisonError::into_inner);
        *known.entry(partition).or_insert_with(|| {
            let topic_id = self.log(partition).ok().and_then(|log| log.topic_id());
            topic_id.map_or(0, |id| hash_bytes(&id))
        })
    }

    fn child(&self, parent: Node, name: &OsStr, caller: &Interrupted) -> Answer<Node> {
        match parent {
            Node::Root => self.child_of_root(name),
            Node::Other => {
                let listing = self.data_dir.listing()?;
                let known = listing.other.iter().any(|other| other == name);
                known.then(|| Node::OtherDirectory(self.names.id(name))).ok_or(Errno::NOT_FOUND)
            }
            Node::OtherDirectory(directory) => {
                let path = self.data_dir.path().join(&*self.names.name(directory)).join(name);
                self.regular_file(&path)?;
                Ok(Node::OtherFile(directory, self.names.id(name)))
            }
            Node::Partition(partition) => View::ALL
                .into_iter()
                .filter(|view| self.is_writable() || !view.is_to_write())
                .find(|view| name == view.name())
                .map(|view| Node::View(partition, view))
                .ok_or(Errno::NOT_FOUND),
            Node::View(partition, View::Segments) => {
                let path = self.log(partition)?.path().join(name);
                self.regular_file(&path)?;
                Ok(Node::SegmentFile(partition, self.names.id(name)))
            }
            Node::View(partition, View::ByOffset) => {
                let name = parse_offset_name(name.as_encoded_bytes()).ok_or(Errno::NOT_FOUND)?;
                self.resolve_offsets(partition, name, caller)
            }
            Node::View(partition, View::ByTime) => {
                let name = parse_time_name(name.as_encoded_bytes()).ok_or(Errno::NOT_FOUND)?;
                self.resolve_times(partition, name, caller)
            }
            Node::View(..)
            | Node::OtherFile(..)
            | Node::SegmentFile(..)
            | Node::Record(..)
            | Node::Range(..) => Err(Errno::NOT_A_DIRECTORY),
        }
    }

    fn child_of_root(&self, name: &OsStr) -> Answer<Node> {
        if name == OTHER {
            return Ok(Node::Other);
        }
        let listing = self.data_dir.listing()?;
        let known = listing.partitions.get(name).ok_or(Errno::NOT_FOUND)?;
        Ok(Node::Partition(self.names.partition(name, known.made)))
    }

    fn resolve_offsets(
        &self,
        partition: NameId,
        name: OffsetName,
        caller: &Interrupted,
    ) -> Answer<Node> {
        let log = self.log(partition)?;
        let state = log.state()?;
        let (start, end, format) = match name {
            OffsetName::Record(offset, part) => return Ok(Node::Record(partition, offset, part)),
            OffsetName::Range { start, end, format } => (start.unwrap_or_default(), end, format),
            OffsetName::Last(count, format) => {
                (log.offset_of_last(&state, count, Some(caller))?, None, format)
            }
        };
        Ok(range(partition, &state, start, end, format))
    }

    fn resolve_times(
        &self,
        partition: NameId,
        name: TimeName,
        caller: &Interrupted,
    ) -> Answer<Node> {
        let log = self.log(partition)?;
        let state = log.state()?;
        let offset = |time: Timestamp| -> Answer<Option<Offset>> {
            Ok(match log.find_time(&state, time, Some(caller))? {
                Found::Record(found, ..) => found.record().map(|record| record.offset),
                Found::Damaged(stretch) => Some(stretch.first_offset.max(state.log_start)),
                Found::Nothing => None,
            })
        };
        match name {
            TimeName::Record(time, part) => {
                let offset = offset(time)?.ok_or(Errno::NOT_FOUND)?;
                Ok(Node::Record(partition, offset, part))
            }
            TimeName::Range { start, end, format } => {
                // A time after the last record stands for the end of the log as it is now.
                let after = log.visible_end(&state)?;
                let start = match start {
                    Some(time) => offset(time)?.unwrap_or(after),
                    None => Offset::ZERO,
                };
                let end = match end {
                    Some(time) => Some(offset(time)?.unwrap_or(after).max(start)),
                    None => None,
                };
                Ok(range(partition, &state, start, end, format))
            }
        }
    }

    /// What can be said of a range at once, when its size would take long to find.
    fn provisional(&self, node: Node) -> Option<Answer<Attributes>> {
        let Node::Range(partition, ..) = node else { return None };
        match self.content(node) {
            Ok(content) => match &*content {
                Content::Range(file) if !file.is_quick() => {
                    Some(self.log(partition).and_then(|log| {
                        Ok(Attributes {
                            valid: Duration::ZERO,
                            ..range_attributes(&*log.state()?, 0)
                        })
                    }))
                }
                Content::Range(_) | Content::Text(..) => None,
            },
            Err(e) => Some(Err(e)),
        }
    }

    fn attributes_of(&self, node: Node, caller: &Interrupted) -> Answer<Attributes> {
        let shared = self.data_dir.shared();
        match node {
            Node::Root | Node::Other => Ok(directory(&shared.disk.facts(self.data_dir.path())?)),
            Node::OtherDirectory(name) => {
                let path = self.data_dir.path().join(&*self.names.name(name));
                Ok(directory(&shared.disk.facts(&path)?))
            }
            Node::OtherFile(place, name) => {
                let path = self.data_dir.path().join(&*self.names.name(place));
                Ok(real_file(&self.regular_file(&path.join(&*self.names.name(name)))?))
            }
            Node::SegmentFile(partition, name) => {
                let path = self.log(partition)?.path().join(&*self.names.name(name));
                Ok(real_file(&self.regular_file(&path)?))
            }
            Node::Partition(partition) => {
                let state = self.log(partition)?.state()?;
                Ok(Attributes { modified: time(state.modified), ..directory(&state.directory) })
            }
            Node::View(partition, view) if view.is_directory() => {
                let state = self.log(partition)?.state()?;
                Ok(Attributes { modified: time(state.modified), ..directory(&state.directory) })
            }
            Node::View(partition, View::Append(_)) => {
                let state = self.log(partition)?.state()?;
                let attributes = range_attributes(&state, 0);
                let mode = attributes.mode | 0o200;
                Ok(Attributes { mode, block_bytes: BLOCK_BYTES, valid: LONG, ..attributes })
            }
            Node::View(partition, view) => {
                let content = self.content(node)?;
                let Content::Text(text, ..) = &*content else { return Err(Errno::STALE) };
                let state = self.log(partition)?.state()?;
                let attributes = range_attributes(&state, text.len() as u64);
                let written = self.is_writable() && view.is_writable();
                let mode = attributes.mode | if written { 0o200 } else { 0 };
                let valid = Duration::ZERO;
                Ok(Attributes { mode, block_bytes: BLOCK_BYTES, valid, ..attributes })
            }
            Node::Record(partition, offset, part) => {
                self.record_attributes(partition, offset, part)
            }
            Node::Range(partition, ..) => {
                let content = self.content(node)?;
                let Content::Range(file) = &*content else { return Err(Errno::STALE) };
                let bytes = file.size(Some(caller))?;
                Ok(range_attributes(&*self.log(partition)?.state()?, bytes))
            }
        }
    }

    fn record_attributes(
        &self,
        partition: NameId,
        offset: Offset,
        part: Part,
    ) -> Answer<Attributes> {
        let log = self.log(partition)?;
        let state = log.state()?;
        let attributes = match log.find(&state, offset)? {
            Found::Nothing => return Err(Errno::NOT_FOUND),
            Found::Damaged(_) => range_attributes(&state, 0),
            Found::Record(found, segment, _) => {
                let bytes = record::size(&log, &state, &found, part)?.ok_or(Errno::NOT_FOUND)?;
                let timestamp = found.record().and_then(|record| record.timestamp);
                let modified = timestamp.map_or(time(segment.log.facts.modified), record_time);
                let mode = segment.log.facts.mode & 0o444;
                Attributes { bytes, modified, mode, ..range_attributes(&state, bytes) }
            }
        };
        let valid =
            if state.is_settled(offset) && part != Part::Json { SETTLED } else { Duration::ZERO };
        Ok(Attributes { block_bytes: BLOCK_BYTES, valid, ..attributes })
    }

    fn open_record(&self, partition: NameId, offset: Offset, part: Part) -> Answer<Opened> {
        let log = self.log(partition)?;
        let state = log.state()?;
        let found = match log.find(&state, offset)? {
            Found::Record(found, ..) => found,
            Found::Damaged(_) => return Err(Errno::IO),
            Found::Nothing => return Err(Errno::NOT_FOUND),
        };
        let keep_cache = state.is_settled(offset) && part != Part::Json;
        let bytes = record::size(&log, &state, &found, part)?.ok_or(Errno::NOT_FOUND)?;
        if bytes > SMALL_VALUE_BYTES as u64 {
            let handle = self.add_handle(Handle::Record(partition, offset, part));
            return Ok(Opened { handle, keep_cache, direct: false, content: None });
        }
        let text = record::bytes(&log, &state, &found, part)?.ok_or(Errno::NOT_FOUND)?;
        let content = (keep_cache && !text.is_empty()).then(|| text.clone());
        let text = Arc::new(Content::Text(text, Instant::now(), state.number));
        let handle = self.add_handle(Handle::Content(text, Mutex::default()));
        Ok(Opened { handle, keep_cache, direct: false, content })
    }

    /// What a range or a text reads from: the same for everyone who has it open.
    fn content(&self, node: Node) -> Answer<Arc<Content>> {
        let known = self.lock_contents().get(&node).and_then(Weak::upgrade);
        if let Some(content) = known {
            // Others than the caches hold it: it is open, and stays what it is.
            let open = Arc::strong_count(&content) > 2;
            match &*content {
                Content::Range(file) if open || !file.is_stale() => return Ok(content),
                Content::Range(_) => {}
                Content::Text(_, made, number) => {
                    let fresh = open || made.elapsed() < TEXT_AGE;
                    if fresh && *number == self.state_number(node)? {
                        return Ok(content);
                    }
                }
            }
        }
        let content = Arc::new(match node {
            Node::Range(partition, start, end, format) => {
                Content::Range(RangeFile::new(self.log(partition)?, start, end, format))
            }
            Node::View(partition, view) => {
                let number = self.state_number(node)?;
                Content::Text(self.text(partition, view)?, Instant::now(), number)
            }
            _ => return Err(Errno::STALE),
        });
        let mut contents = self.lock_contents();
        if contents.len() > 1024 {
            contents.retain(|_, content| content.strong_count() > 0);
        }
        contents.insert(node, Arc::downgrade(&content));
        drop(contents);
        self.recent.put(node, Arc::clone(&content), 1);
        Ok(content)
    }

    fn state_number(&self, node: Node) -> Answer<u64> {
        let partition = node.partition().ok_or(Errno::STALE)?;
        Ok(self.log(partition)?.state()?.number)
    }

    fn text(&self, partition: NameId, view: View) -> Answer<Vec<u8>> {
        let log = self.log(partition)?;
        let state = log.state()?;
        let number = |offset: Offset| format!("{offset}\n").into_bytes();
        Ok(match view {
            View::LogStartOffset => number(state.log_start),
            View::HighWatermark => number(state.high_watermark),
            View::LogEndOffset => number(state.log_end),
            View::LeaderEpochs => {
                let lines =
                    state.leader_epochs.iter().map(|e| format!("{} {}\n", e.epoch, e.start));
                lines.collect::<String>().into_bytes()
            }
            View::Config => config::text(&effective(&log)),
            View::Report => report::text(&facts::survey(&log, &state, now())?),
            View::Append(_) => Vec::new(),
            View::ByOffset | View::ByTime | View::Segments => return Err(Errno::IS_A_DIRECTORY),
        })
    }

    fn entries(&self, node: Node, caller: &Interrupted) -> Answer<Vec<DirectoryEntry>> {
        let mut entries = Vec::new();
        let mut add = |node: Node, name: OsString| {
            entries.push(DirectoryEntry {
                number: self.nodes.number(node, &self.names, self.incarnation(node)),
                directory: node.is_directory(),
                name,
            });
        };
        match node {
            Node::Root => {
                let listing = self.data_dir.listing()?;
                let mut partitions: Vec<_> = listing.partitions.iter().collect();
                partitions.sort_unstable_by_key(|(name, _)| *name);
                for (name, partition) in partitions {
                    let id = self.names.partition(name, partition.made);
                    add(Node::Partition(id), name.clone());
                }
                add(Node::Other, OTHER.into());
            }
            Node::Other => {
                for name in &self.data_dir.listing()?.other {
                    add(Node::OtherDirectory(self.names.id(name)), name.clone());
                }
            }
            Node::OtherDirectory(directory) => {
                let path = self.data_dir.path().join(&*self.names.name(directory));
                for name in self.regular_files(&path)? {
                    add(Node::OtherFile(directory, self.names.id(&name)), name);
                }
            }
            Node::Partition(partition) => {
                let shown = |view: &View| self.is_writable() || !view.is_to_write();
                for view in View::ALL.into_iter().filter(shown) {
                    add(Node::View(partition, view), view.name().into());
                }
            }
            Node::View(partition, View::Segments) => {
                for name in self.regular_files(self.log(partition)?.path())? {
                    add(Node::SegmentFile(partition, self.names.id(&name)), name);
                }
            }
            Node::View(partition, view @ (View::ByOffset | View::ByTime)) => {
                let mut seen = std::collections::HashSet::new();
                for listed in self.listed(partition, caller)? {
                    let name = match view {
                        View::ByOffset => Some(listed.offset.to_string()),
                        _ => listed.timestamp.filter(|at| seen.insert(*at)).and_then(format_time),
                    };
                    if let Some(name) = name {
                        add(Node::Record(partition, listed.offset, Part::Value), name.into());
                    }
                }
            }
            Node::View(..)
            | Node::OtherFile(..)
            | Node::SegmentFile(..)
            | Node::Record(..)
            | Node::Range(..) => return Err(Errno::NOT_A_DIRECTORY),
        }
        Ok(entries)
    }

    fn listed(&self, partition: NameId, caller: &Interrupted) -> Answer<Vec<listing::Listed>> {
        let log = self.log(partition)?;
        let state = log.state()?;
        if self.list_all {
            return Ok(listing::page(&log, &state, state.log_start, usize::MAX, Some(caller))?.0);
        }
        Ok(listing::sample(&log, &state, Some(caller))?)
    }

    /// The regular files in a directory of SOURCE, sorted.
    fn regular_files(&self, directory: &std::path::Path) -> Answer<Vec<OsString>> {
        let mut names = self.data_dir.shared().disk.list(directory)?;
        names.retain(|name| self.regular_file(&directory.join(name)).is_ok());
        names.sort_unstable();
        Ok(names)
    }

    fn regular_file(&self, path: &std::path::Path) -> Answer<Facts> {
        match self.data_dir.shared().disk.facts(path) {
            Ok(facts) if facts.kind == Kind::File => Ok(facts),
            Ok(_) => Err(Errno::NOT_FOUND),
            Err(e) if e.is_not_found() => Err(Errno::NOT_FOUND),
            Err(e) => Err(e.into()),
        }
    }

    fn disk_file(&self, path: PathBuf) -> Answer<DiskFile> {
        let id = self.regular_file(&path)?.id;
        Ok(DiskFile { path, id })
    }

    fn handle(&self, handle: u64) -> Answer<Arc<Handle>> {
        self.lock_handles().open.get(&handle).cloned().ok_or(Errno::STALE)
    }

    pub(super) fn add_handle(&self, handle: Handle) -> u64 {
        let mut handles = self.lock_handles();
        handles.last += 1;
        let number = handles.last;
        handles.open.insert(number, Arc::new(handle));
        number
    }

    /// Gives up the reading that was not used for the longest time when there are too many.
    fn bound_cursors(&self, handle: u64) {
        let mut handles = self.lock_handles();
        if handles.reading.last() == Some(&handle) {
            return;
        }
        handles.reading.retain(|reading| *reading != handle);
        handles.reading.push(handle);
        if handles.reading.len() > MOST_CURSORS {
            let oldest = handles.reading.remove(0);
            let oldest = handles.open.get(&oldest).cloned();
            drop(handles);
            if let Some(Handle::Content(_, cursor)) = oldest.as_deref()
                && let Ok(mut cursor) = cursor.try_lock()
            {
                *cursor = None;
            }
        }
    }

    fn lock_handles(&self) -> MutexGuard<'_, Handles> {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_contents(&self) -> MutexGuard<'_, HashMap<Node, Weak<Content>>> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A range with a fixed start, not below the log start (contract 2.6, 2.11).
fn range(
    partition: NameId,
    state: &LogState,
    start: Offset,
    end: Option<Offset>,
    format: Format,
) -> Node {
    let start = start.max(state.log_start);
    Node::Range(partition, start, end.map(|end| end.max(start)), format)
}

fn directory(facts: &Facts) -> Attributes {
    Attributes {
        number: ROOT,
        directory: true,
        bytes: 0,
        modified: time(facts.modified),
        mode: facts.mode & 0o555,
        uid: facts.uid,
        gid: facts.gid,
        block_bytes: BLOCK_BYTES,
        valid: SETTLED,
    }
}

fn real_file(facts: &Facts) -> Attributes {
    Attributes {
        directory: false,
        bytes: facts.bytes,
        mode: facts.mode & 0o444,
        valid: Duration::ZERO,
        block_bytes: RANGE_BLOCK_BYTES,
        ..directory(facts)
    }
}

/// Owner and group are the directory's, read bits those of the newest segment.
fn range_attributes(state: &LogState, bytes: u64) -> Attributes {
    let mode = state.segments.last().map_or(state.directory.mode, |last| last.log.facts.mode);
    Attributes {
        directory: false,
        bytes,
        modified: time(state.modified),
        mode: mode & 0o444,
        block_bytes: RANGE_BLOCK_BYTES,
        valid: Duration::ZERO,
        ..directory(&state.directory)
    }
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// A time of SOURCE.
fn time((seconds, nanoseconds): (i64, u32)) -> SystemTime {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let base =
        if seconds < 0 { UNIX_EPOCH.checked_sub(whole) } else { UNIX_EPOCH.checked_add(whole) };
    base.and_then(|base| base.checked_add(Duration::from_nanos(nanoseconds.into())))
        .unwrap_or(UNIX_EPOCH)
}

/// A time of a record, as far as file times reach; before 1970 in whole seconds.
fn record_time(timestamp: Timestamp) -> SystemTime {
    let millis = timestamp.millis();
    if millis >= 0 {
        return UNIX_EPOCH + Duration::from_millis(millis.unsigned_abs());
    }
    let seconds = Duration::from_secs(millis.div_euclid(1000).unsigned_abs());
    UNIX_EPOCH.checked_sub(seconds).unwrap_or(UNIX_EPOCH)
}

fn copy_part(content: &[u8], position: u64, wanted: usize, out: &mut Vec<u8>) {
    let start = usize::try_from(position).unwrap_or(usize::MAX).min(content.len());
    let end = start.saturating_add(wanted).min(content.len());
    out.extend_from_slice(&content[start..end]);
}

/// Does a page of the kernel's cache depend on this read? A short answer would leave zeros in it.
fn is_aligned(position: u64, wanted: usize) -> bool {
    position.is_multiple_of(PAGE) && (wanted as u64).is_multiple_of(PAGE)
}
