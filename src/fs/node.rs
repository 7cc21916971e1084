//! What an inode number stands for. A node is a small value; there is no tree in memory. The number
//! is a hash of the node and of which partition it belongs to (name and topic id), so that it is
//! the same after a remount; in the rare case that two nodes hash alike the second one gets the
//! next free number while both are known.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::engine::log::Made;
use crate::units::Offset;
use crate::view::name::{Format, Part};

/// The number of the mount's root, by the protocol.
pub const ROOT: u64 = 1;

/// A name that nodes refer to by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NameId(u32);

/// One thing in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Node {
    /// The mount's root.
    Root,
    /// `_other`.
    Other,
    /// A directory of SOURCE in `_other`.
    OtherDirectory(NameId),
    /// A file in such a directory: directory, file.
    OtherFile(NameId, NameId),
    /// A partition.
    Partition(NameId),
    /// A directory or file that every partition has.
    View(NameId, View),
    /// A file in `segments`.
    SegmentFile(NameId, NameId),
    /// One record, or a part of it.
    Record(NameId, Offset, Part),
    /// A resolved range.
    Range(NameId, Offset, Option<Offset>, Format),
}

/// What every partition has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names say it")]
pub enum View {
    ByOffset,
    ByTime,
    Segments,
    LogStartOffset,
    HighWatermark,
    LogEndOffset,
    LeaderEpochs,
    Config,
    Report,
    /// A file to append to.
    Append(Format),
}

impl View {
    /// All of them, in the order of a listing.
    pub const ALL: [View; 14] = [
        View::ByOffset,
        View::ByTime,
        View::Segments,
        View::LogStartOffset,
        View::HighWatermark,
        View::LogEndOffset,
        View::LeaderEpochs,
        View::Config,
        View::Report,
        View::Append(Format::Lines),
        View::Append(Format::Jsonl),
        View::Append(Format::Tsv),
        View::Append(Format::Nul),
        View::Append(Format::Raw),
    ];

    /// Its name in the partition's directory.
    pub const fn name(self) -> &'static str {
        match self {
            View::ByOffset => "by-offset",
            View::ByTime => "by-time",
            View::Segments => "segments",
            View::LogStartOffset => "log-start-offset",
            View::HighWatermark => "high-watermark",
            View::LogEndOffset => "log-end-offset",
            View::LeaderEpochs => "leader-epochs",
            View::Config => "config",
            View::Report => "report.json",
            View::Append(Format::Lines) => "append",
            View::Append(Format::Jsonl) => "append.jsonl",
            View::Append(Format::Tsv) => "append.tsv",
            View::Append(Format::Nul) => "append.nul",
            View::Append(Format::Raw) => "append.raw",
        }
    }

    /// Is it there on writable mounts only?
    pub const fn is_to_write(self) -> bool {
        matches!(self, View::Append(_))
    }

    /// Can it be written on a writable mount?
    pub const fn is_writable(self) -> bool {
        matches!(self, View::Append(_) | View::Config | View::LogStartOffset)
    }

    /// Is it a directory?
    pub const fn is_directory(self) -> bool {
        matches!(self, View::ByOffset | View::ByTime | View::Segments)
    }
}

impl Node {
    /// Is it a directory?
    pub const fn is_directory(self) -> bool {
        match self {
            Node::Root | Node::Other | Node::OtherDirectory(_) | Node::Partition(_) => true,
            Node::View(_, view) => view.is_directory(),
            Node::OtherFile(..) | Node::SegmentFile(..) | Node::Record(..) | Node::Range(..) => {
                false
            }
        }
    }

    /// The partition that it belongs to.
    pub const fn partition(self) -> Option<NameId> {
        match self {
            Node::Root | Node::Other | Node::OtherDirectory(_) | Node::OtherFile(..) => None,
            Node::Partition(name)
            | Node::View(name, _)
            | Node::SegmentFile(name, _)
            | Node::Record(name, ..)
            | Node::Range(name, ..) => Some(name),
        }
    }

    /// Where the search for a free number begins. `of` hashes a name; `incarnation` tells
    /// partitions of one name apart.
    fn hash(self, of: impl Fn(NameId) -> u64, incarnation: u64) -> u64 {
        let number = |offset: Offset| offset.get().cast_unsigned();
        let (kind, fields) = match self {
            Node::Root => return ROOT,
            Node::Other => (1, [0, 0, 0]),
            Node::OtherDirectory(name) => (2, [of(name), 0, 0]),
            Node::OtherFile(directory, name) => (3, [of(directory), of(name), 0]),
            Node::Partition(name) => (4, [of(name), 0, 0]),
            Node::View(name, view) => {
                (5, [of(name), incarnation, hash_bytes(view.name().as_bytes())])
            }
            Node::SegmentFile(name, file) => (6, [of(name), incarnation, of(file)]),
            Node::Record(name, offset, part) => {
                (7 + ((part as u64) << 8), [of(name), incarnation, number(offset)])
            }
            Node::Range(name, start, end, format) => {
                let end = end.map_or(u64::MAX, number);
                let ends = mix(number(start)) ^ end;
                (8 + ((format as u64) << 8), [of(name), incarnation, ends])
            }
        };
        fields.iter().fold(mix(kind), |hash, field| mix(hash ^ mix(*field)))
    }
}

/// A well-mixed permutation of 64 bits (the finalizer of splitmix64).
const fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Hashes bytes, the same in every run.
pub fn hash_bytes(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Names by number and numbers by name. Names are few (those of SOURCE) and stay.
#[derive(Debug, Default)]
pub struct Names {
    inner: Mutex<NamesInner>,
}

#[derive(Debug, Default)]
struct NamesInner {
    by_name: HashMap<OsString, NameId>,
    names: Vec<Arc<OsStr>>,
    /// The directories of partitions.
    made: HashMap<NameId, Made>,
}

impl Names {
    /// The number of `name`.
    pub fn id(&self, name: &OsStr) -> NameId {
        self.lock().id(name)
    }

    /// The number of a partition's name. When another directory has the name than before it is
    /// another number, so that no node and no open file of the one is ever taken for the other's.
    pub fn partition(&self, name: &OsStr, made: Made) -> NameId {
        let mut inner = self.lock();
        let mut id = inner.id(name);
        if inner.made.get(&id).is_some_and(|before| *before != made) {
            inner.by_name.remove(name);
            id = inner.id(name);
        }
        inner.made.insert(id, made);
        id
    }

    /// The directory of the partition with this number.
    pub fn made(&self, id: NameId) -> Option<Made> {
        self.lock().made.get(&id).copied()
    }

    fn lock(&self) -> MutexGuard<'_, NamesInner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The name with this number.
    pub fn name(&self, id: NameId) -> Arc<OsStr> {
        let inner = self.lock();
        inner.names.get(id.0 as usize).map_or_else(|| Arc::from(OsStr::new("")), Arc::clone)
    }
}

impl NamesInner {
    fn id(&mut self, name: &OsStr) -> NameId {
        if let Some(id) = self.by_name.get(name) {
            return *id;
        }
        let id = NameId(u32::try_from(self.names.len()).unwrap_or(u32::MAX));
        self.names.push(Arc::from(name));
        self.by_name.insert(name.to_owned(), id);
        id
    }
}

/// The nodes that the kernel knows.
#[derive(Debug)]
pub struct NodeTable {
    inner: Mutex<Nodes>,
}

#[derive(Debug)]
struct Nodes {
    by_number: HashMap<u64, (Node, u64)>,
    by_node: HashMap<Node, u64>,
}

impl Default for NodeTable {
    fn default() -> NodeTable {
        let by_number = HashMap::from([(ROOT, (Node::Root, 1))]);
        let by_node = HashMap::from([(Node::Root, ROOT)]);
        NodeTable { inner: Mutex::new(Nodes { by_number, by_node }) }
    }
}

impl NodeTable {
    /// The node with this number, if the kernel may know it.
    pub fn get(&self, number: u64) -> Option<Node> {
        self.lock().by_number.get(&number).map(|(node, _)| *node)
    }

    /// The number that the node has, or would get.
    pub fn number(&self, node: Node, names: &Names, incarnation: u64) -> u64 {
        let known = self.lock().by_node.get(&node).copied();
        known.unwrap_or_else(|| hash(node, names, incarnation))
    }

    /// The number of the node, which the kernel now knows once more.
    pub fn lend(&self, node: Node, names: &Names, incarnation: u64) -> u64 {
        let mut nodes = self.lock();
        if let Some(number) = nodes.by_node.get(&node).copied() {
            if let Some((_, lookups)) = nodes.by_number.get_mut(&number) {
                *lookups += 1;
            }
            return number;
        }
        let mut number = hash(node, names, incarnation);
        while number <= ROOT || nodes.by_number.contains_key(&number) {
            number = number.wrapping_add(1);
        }
        nodes.by_number.insert(number, (node, 1));
        nodes.by_node.insert(node, number);
        number
    }

    /// The kernel knows the number `lookups` times less; the node if that was the last.
    pub fn forget(&self, number: u64, lookups: u64) -> Option<Node> {
        let mut nodes = self.lock();
        let (node, left) = nodes.by_number.get_mut(&number)?;
        *left = left.saturating_sub(lookups);
        let node = *node;
        if *left > 0 || number == ROOT {
            return None;
        }
        nodes.by_number.remove(&number);
        nodes.by_node.remove(&node);
        Some(node)
    }

    fn lock(&self) -> MutexGuard<'_, Nodes> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn hash(node: Node, names: &Names, incarnation: u64) -> u64 {
    node.hash(|name| hash_bytes(names.name(name).as_encoded_bytes()), incarnation)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::disk::FileId;

    #[test]
    fn numbers_are_the_same_in_another_run_whatever_was_asked_first() {
        let (a, b) = (Names::default(), Names::default());
        let first = a.id(OsStr::new("t-0"));
        b.id(OsStr::new("other"));
        let second = b.id(OsStr::new("t-0"));
        let node = |name| Node::Record(name, Offset::MAX, Part::Value);
        let number = NodeTable::default().lend(node(first), &a, 7);
        assert_eq!(number, NodeTable::default().lend(node(second), &b, 7));
        assert_ne!(number, NodeTable::default().lend(node(second), &b, 8));
    }

    #[test]
    fn a_node_is_known_until_it_is_forgotten_as_often_as_it_was_lent() {
        let (table, names) = (NodeTable::default(), Names::default());
        let node = Node::View(names.id(OsStr::new("t-0")), View::ByOffset);
        let number = table.lend(node, &names, 0);
        assert_eq!(table.lend(node, &names, 0), number);
        assert_eq!(table.forget(number, 1), None);
        assert_eq!(table.get(number), Some(node));
        assert_eq!(table.forget(number, 1), Some(node));
        assert_eq!(table.get(number), None);
        assert_eq!(table.forget(ROOT, 99), None);
        assert_eq!(table.get(ROOT), Some(Node::Root));
    }

    #[test]
    fn another_directory_of_the_same_name_is_another_node() {
        let (table, names) = (NodeTable::default(), Names::default());
        let made = |inode| Made(FileId { device: 1, inode }, None);
        let name = OsStr::new("t-0");
        let old = names.partition(name, made(1));
        let number = table.lend(Node::Partition(old), &names, 0);
        assert_eq!(names.partition(name, made(1)), old);
        let new = names.partition(name, made(2));
        assert_eq!((names.made(old), names.made(new)), (Some(made(1)), Some(made(2))));
        assert_ne!(table.lend(Node::Partition(new), &names, 0), number);
        assert_eq!(table.get(number), Some(Node::Partition(old)));
    }

    #[test]
    fn two_nodes_never_share_a_number() {
        let (table, names) = (NodeTable::default(), Names::default());
        let name = names.id(OsStr::new("t-0"));
        let mut seen = std::collections::HashSet::new();
        for raw in 0..2_000 {
            let offset = Offset::new(raw).unwrap();
            for part in Part::ALL {
                assert!(seen.insert(table.lend(Node::Record(name, offset, part), &names, 0)));
            }
            for format in Format::ALL {
                for end in [None, Some(offset)] {
                    assert!(seen.insert(table.lend(
                        Node::Range(name, offset, end, format),
                        &names,
                        0
                    )));
                }
            }
        }
    }
}
