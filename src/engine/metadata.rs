//! What the metadata log of a cluster says of topics, where the data directory has one: the
//! settings that were made for each of them, and for the brokers. The newest snapshot comes first,
//! then the records behind it, as for a broker that starts. It is read when something is asked, and
//! again when its files have changed.
//!
//! Nothing depends on it: what is damaged or not understood is said in the log and left out.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use crate::engine::batches::Unpacker;
use crate::engine::disk::{DiskFile, Kind};
use crate::engine::load;
use crate::engine::log::{LOOK_AGAIN, LogState, SCAN_BYTES, Shared};
use crate::engine::scanner::{Item, Scanner};
use crate::engine::segment::{File, Segment};
use crate::error::{Error, Result};
use crate::format::FormatError;
use crate::format::batch::BatchHeader;
use crate::format::checkpoint::Uuid;
use crate::format::metadata::{MetadataRecord, Resource};
use crate::format::record::Cursor;
use crate::units::{Offset, Position};

/// The directory of the metadata log.
pub const DIRECTORY: &str = "__cluster_metadata-0";

/// Settings by name.
pub type Settings = BTreeMap<String, String>;

/// What is known of a cluster.
#[derive(Clone, Debug, Default)]
pub struct ClusterSettings {
    topics: HashMap<String, Uuid>,
    names: HashMap<Uuid, String>,
    of_topics: HashMap<String, Settings>,
    of_brokers: HashMap<String, Settings>,
}

impl ClusterSettings {
    /// The id of a topic that exists.
    pub fn topic_id(&self, topic: &str) -> Option<Uuid> {
        self.topics.get(topic).copied()
    }

    /// What was set for a topic.
    pub fn of_topic(&self, topic: &str) -> Option<&Settings> {
        self.of_topics.get(topic)
    }

    /// What was set for the broker of this number, or for all of them where it is "".
    pub fn of_broker(&self, broker: &str) -> Option<&Settings> {
        self.of_brokers.get(broker)
    }

    /// Is nothing set anywhere?
    pub fn is_empty(&self) -> bool {
        self.of_topics.is_empty() && self.of_brokers.is_empty()
    }

    fn apply(&mut self, record: &MetadataRecord<'_>) {
        match record {
            MetadataRecord::Topic { name, id } => {
                self.topics.insert((*name).to_owned(), *id);
                self.names.insert(*id, (*name).to_owned());
            }
            MetadataRecord::Setting { resource, name, value } => {
                let settings = match resource {
                    Resource::Topic(topic) => self.of_topics.entry((*topic).to_owned()),
                    Resource::Broker(broker) => self.of_brokers.entry((*broker).to_owned()),
                    Resource::Other => return,
                };
                let settings = settings.or_default();
                match value {
                    Some(value) => settings.insert((*name).to_owned(), (*value).to_owned()),
                    None => settings.remove(*name),
                };
            }
            MetadataRecord::TopicRemoved(id) => {
                if let Some(name) = self.names.remove(id) {
                    self.topics.remove(&name);
                    self.of_topics.remove(&name);
                }
            }
            MetadataRecord::TransactionBegins
            | MetadataRecord::TransactionEnds
            | MetadataRecord::TransactionAborted
            | MetadataRecord::Other => {}
        }
    }
}

/// The metadata log of a data directory, read again when it changes.
#[derive(Debug)]
pub struct ClusterMetadata {
    path: PathBuf,
    picture: Mutex<Picture>,
}

#[derive(Debug, Default)]
struct Picture {
    looked: Option<Instant>,
    log: Option<LogState>,
    settings: Arc<ClusterSettings>,
}

impl ClusterMetadata {
    /// That of the data directory `directory`.
    pub fn new(directory: &Path) -> ClusterMetadata {
        ClusterMetadata { path: directory.join(DIRECTORY), picture: Mutex::default() }
    }

    /// What it says now, or said less than [`LOOK_AGAIN`] ago; nothing where there is none.
    pub fn settings(&self, shared: &Shared) -> Arc<ClusterSettings> {
        let mut picture = self.picture.lock().unwrap_or_else(PoisonError::into_inner);
        if picture.looked.is_none_or(|looked| looked.elapsed() >= LOOK_AGAIN) {
            if let Err(e) = self.look(shared, &mut picture) {
                if !e.is_not_found() {
                    log::warn!("{e}; settings of the cluster are not known");
                }
                *picture = Picture::default();
            }
            picture.looked = Some(Instant::now());
        }
        Arc::clone(&picture.settings)
    }

    fn look(&self, shared: &Shared, picture: &mut Picture) -> Result<()> {
        let Ok(name) = DIRECTORY.parse() else { return Ok(()) };
        let state = match &picture.log {
            Some(old) => match load::refresh(shared, &name, &self.path, old)? {
                Some(state) => state,
                None => return Ok(()),
            },
            None => load::load(shared, &name, &self.path)?,
        };
        picture.settings = Arc::new(self.read(shared, &state)?);
        picture.log = Some(state);
        Ok(())
    }

    fn read(&self, shared: &Shared, state: &LogState) -> Result<ClusterSettings> {
        let mut replay = Replay::default();
        let mut from = state.disk_start;
        if let Some((end, name)) = newest_snapshot(&state.names) {
            if let Some(snapshot) = snapshot(shared, self.path.join(name))? {
                replay.segment(shared, &Arc::new(snapshot), Offset::ZERO)?;
            }
            from = end;
        }
        let first = state.segment_of(from).unwrap_or(0);
        for segment in state.segments.iter().skip(first) {
            replay.segment(shared, segment, from)?;
        }
        Ok(replay.settings())
    }
}

/// The snapshot with the greatest end offset and epoch: `<20 digits>-<10 digits>.checkpoint`.
fn newest_snapshot(names: &[OsString]) -> Option<(Offset, &str)> {
    let ends = names.iter().filter_map(|name| {
        let name = name.to_str()?;
        let (end, epoch) = name.strip_suffix(".checkpoint")?.split_once('-')?;
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let is_one = end.len() == 20 && epoch.len() == 10 && is_number(end) && is_number(epoch);
        is_one.then_some((Offset::new(end.parse().ok()?)?, name))
    });
    ends.max()
}

/// A snapshot is read like a segment by itself; its offsets begin at 0.
fn snapshot(shared: &Shared, path: PathBuf) -> Result<Option<Segment>> {
    let facts = shared.disk.facts(&path)?;
    if facts.kind != Kind::File {
        return Ok(None);
    }
    let log = File { file: DiskFile { path, id: facts.id }, facts };
    Ok(Some(Segment::alone(Offset::ZERO, log)))
}

/// The records so far.
#[derive(Debug, Default)]
struct Replay {
    now: ClusterSettings,
    /// What was before the transaction that is open.
    before: Option<ClusterSettings>,
}

impl Replay {
    /// What counts: an open transaction does not.
    fn settings(self) -> ClusterSettings {
        self.before.unwrap_or(self.now)
    }

    /// Takes the records of `segment` from `from` on.
    fn segment(&mut self, shared: &Shared, segment: &Arc<Segment>, from: Offset) -> Result<()> {
        let mut scanner = shared.scanner(segment, SCAN_BYTES);
        let mut unpacker = Unpacker::default();
        loop {
            let (header, position) = match scanner.step()? {
                Item::Batch(header, position) => (header, position),
                Item::Damage(stretch) => {
                    log::warn!("{}; what it set is not known", stretch.error());
                    continue;
                }
                Item::End { .. } => return Ok(()),
            };
            if header.control || header.last_offset < from {
                continue;
            }
            match self.batch(shared, &scanner, &mut unpacker, &header, position, from) {
                Err(e @ Error::Damage { .. }) => log::warn!("{e}; what it set is not known"),
                done => done?,
            }
        }
    }

    fn batch(
        &mut self,
        shared: &Shared,
        scanner: &Scanner,
        unpacker: &mut Unpacker,
        header: &BatchHeader,
        position: Position,
        from: Offset,
    ) -> Result<()> {
        let segment = scanner.segment();
        let raw = scanner.batch_bytes(header, position);
        unpacker.prepare(&shared.batches, segment, position, header, raw)?;
        self.records(header, unpacker.bytes(raw), from)
            .map_err(|e| crate::engine::batches::damage(segment, position, &e.to_string()))
    }

    fn records(
        &mut self,
        header: &BatchHeader,
        bytes: &[u8],
        from: Offset,
    ) -> Result<(), FormatError> {
        let mut cursor = Cursor::new(header, bytes)?;
        while let Some(record) = cursor.next(header, bytes) {
            let record = record?;
            if record.offset >= from
                && let Some(value) = record.value
            {
                self.take(&MetadataRecord::parse(value)?);
            }
        }
        Ok(())
    }

    fn take(&mut self, record: &MetadataRecord<'_>) {
        match record {
            MetadataRecord::TransactionBegins => self.before = Some(self.now.clone()),
            MetadataRecord::TransactionEnds => self.before = None,
            MetadataRecord::TransactionAborted => {
                if let Some(before) = self.before.take() {
                    self.now = before;
                }
            }
            MetadataRecord::Topic { .. }
            | MetadataRecord::Setting { .. }
            | MetadataRecord::TopicRemoved(_)
            | MetadataRecord::Other => self.now.apply(record),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::fixture;

    fn settings(directory: &Path) -> Arc<ClusterSettings> {
        let shared = fixture::shared(directory);
        shared.metadata.settings(&shared)
    }

    fn topic(name: &'static str, id: u8) -> MetadataRecord<'static> {
        MetadataRecord::Topic { name, id: Uuid([id; 16]) }
    }

    fn set(topic: &'static str, value: Option<&'static str>) -> MetadataRecord<'static> {
        MetadataRecord::Setting { resource: Resource::Topic(topic), name: "flush.ms", value }
    }

    fn replayed(records: &[MetadataRecord<'_>]) -> ClusterSettings {
        let mut replay = Replay::default();
        for record in records {
            replay.take(record);
        }
        replay.settings()
    }

    /// The expected text is what Kafka's own dump tool prints of the same file.
    #[test]
    fn the_settings_that_a_broker_wrote_are_read() {
        let source = fixture::data_dir("clean", &[]);
        fixture::with_metadata("clean", source.path());
        let known = settings(source.path());
        let expected = [
            ("delete.retention.ms", "864000000"),
            ("cleanup.policy", "compact"),
            ("file.delete.delay.ms", "100"),
            ("index.interval.bytes", "1024"),
            ("internal.segment.bytes", "8192"),
            ("min.cleanable.dirty.ratio", "0.01"),
            ("retention.ms", "-1"),
            ("segment.index.bytes", "2048"),
            ("segment.ms", "9223372036854775807"),
        ];
        let expected: Settings =
            expected.into_iter().map(|(a, b)| (a.to_owned(), b.to_owned())).collect();
        assert_eq!(known.of_topic("compacted"), Some(&expected));
        assert_eq!(known.topic_id("empty").unwrap().to_string(), "7wPeKsQPT5y4zLDPYySWpg");
        assert_eq!(known.of_broker("").unwrap()["min.insync.replicas"], "1");
        assert_eq!(known.topics.len(), 22);
    }

    #[test]
    fn where_there_is_no_metadata_log_nothing_is_known() {
        let source = fixture::data_dir("clean", &[]);
        assert!(settings(source.path()).is_empty());
    }

    #[test]
    fn records_below_the_newest_snapshot_are_not_read_again() {
        let source = fixture::data_dir("clean", &[]);
        fixture::with_metadata("clean", source.path());
        let directory = source.path().join(DIRECTORY);
        let name = |end, epoch| format!("{end:020}-{epoch:010}.checkpoint");
        for (end, epoch) in [(465, 4), (7, 4)] {
            std::fs::copy(directory.join(name(0, 0)), directory.join(name(end, epoch))).unwrap();
        }
        std::fs::write(directory.join(name(999, 9) + ".part"), "unfinished").unwrap();
        std::fs::write(directory.join(name(999, 9) + ".deleted"), "gone").unwrap();
        assert_eq!(settings(source.path()).of_topic("plain"), None);
    }

    #[test]
    fn a_snapshot_may_end_inside_a_batch() {
        let source = fixture::data_dir("clean", &[]);
        fixture::with_metadata("clean", source.path());
        let directory = source.path().join(DIRECTORY);
        let snapshot = "00000000000000000000-0000000000.checkpoint";
        let later = "00000000000000000028-0000000001.checkpoint";
        std::fs::rename(directory.join(snapshot), directory.join(later)).unwrap();
        let known = settings(source.path());
        let known: Vec<_> = known.of_topic("plain").unwrap().keys().collect();
        let behind = [
            "index.interval.bytes",
            "internal.segment.bytes",
            "retention.ms",
            "segment.index.bytes",
        ];
        assert_eq!(known, behind);
    }

    #[test]
    fn damage_hides_only_what_it_holds() {
        let source = fixture::data_dir("clean", &[]);
        fixture::with_metadata("clean", source.path());
        let log = source.path().join(DIRECTORY).join("00000000000000000000.log");
        let mut bytes = std::fs::read(&log).unwrap();
        let broken = bytes.windows(5).position(|five| five == b"plain").unwrap();
        bytes[broken] ^= 1;
        std::fs::write(&log, bytes).unwrap();
        let known = settings(source.path());
        assert_eq!(known.of_topic("plain"), None);
        assert_eq!(known.of_topic("gzip").unwrap()["retention.ms"], "-1");
    }

    #[test]
    fn a_change_is_seen_and_a_removed_log_forgotten() {
        let source = fixture::data_dir("clean", &[]);
        let shared = fixture::shared(source.path());
        assert!(shared.metadata.settings(&shared).is_empty());
        fixture::with_metadata("clean", source.path());
        std::thread::sleep(LOOK_AGAIN);
        let known = shared.metadata.settings(&shared);
        assert!(!known.is_empty());
        std::thread::sleep(LOOK_AGAIN);
        assert!(Arc::ptr_eq(&known, &shared.metadata.settings(&shared)), "not read again");
        std::fs::remove_dir_all(source.path().join(DIRECTORY)).unwrap();
        std::thread::sleep(LOOK_AGAIN);
        assert!(shared.metadata.settings(&shared).is_empty());
    }

    #[test]
    fn a_removed_topic_takes_its_settings_along() {
        let gone = MetadataRecord::TopicRemoved(Uuid([1; 16]));
        let made = [topic("a", 1), set("a", Some("5")), gone, topic("a", 2)];
        let known = replayed(&made);
        assert_eq!((known.topic_id("a"), known.of_topic("a")), (Some(Uuid([2; 16])), None));
    }

    #[test]
    fn the_last_value_counts_and_null_takes_it_back() {
        let known = replayed(&[set("a", Some("5")), set("a", Some("6")), set("b", Some("1"))]);
        assert_eq!(known.of_topic("a").unwrap()["flush.ms"], "6");
        let known = replayed(&[set("a", Some("5")), set("a", None)]);
        assert!(known.of_topic("a").unwrap().is_empty());
    }

    #[test]
    fn only_transactions_that_end_count() {
        let in_transaction = |end: Option<MetadataRecord<'static>>| {
            let begun =
                [set("a", Some("1")), MetadataRecord::TransactionBegins, set("a", Some("2"))];
            let records: Vec<_> = begun.into_iter().chain(end).collect();
            replayed(&records).of_topic("a").unwrap()["flush.ms"].clone()
        };
        assert_eq!(in_transaction(Some(MetadataRecord::TransactionEnds)), "2");
        assert_eq!(in_transaction(Some(MetadataRecord::TransactionAborted)), "1");
        assert_eq!(in_transaction(None), "1");
    }
}
