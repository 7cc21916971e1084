//! What SOURCE is: a data directory, one partition, or something to refuse with the reason.
//!
//! Only names are looked at, without following links; nothing is opened but directories.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::format::checkpoint;
use crate::sys::{self, EntryKind};

/// What a path to data can name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A directory of `<topic>-<partition>` directories; absolute, without links.
    DataDirectory(PathBuf),
    /// One such directory.
    Partition {
        /// The directory that it is in: lock and checkpoints belong there.
        parent: PathBuf,
        /// Its name, `<topic>-<partition>`.
        name: OsString,
    },
}

/// Files that a broker writes into a data directory and nowhere else.
pub const DATA_DIRECTORY_FILES: [&str; 6] = [
    "meta.properties",
    checkpoint::RECOVERY_POINT,
    checkpoint::HIGH_WATERMARK,
    checkpoint::LOG_START,
    checkpoint::CLEANER_OFFSET,
    checkpoint::CLEAN_SHUTDOWN,
];

/// Files that a broker writes into a partition's directory, besides the segments.
const PARTITION_FILES: [&str; 2] = ["partition.metadata", checkpoint::LEADER_EPOCHS];

/// What may be in a directory that counts as empty: left by an earlier start, or by mkfs.
const NOTHING: [&str; 2] = [".lock", "lost+found"];

/// How many directories are looked at below one when it is not what it should be.
const GUESSES: usize = 100;

/// Looks at what `path` names. `fresh_ok`: an empty directory is a data directory that has not
/// begun.
pub fn classify(path: &Path, fresh_ok: bool) -> Result<Source> {
    let place = path.canonicalize().map_err(Error::io("find", path))?;
    if !place.metadata().map_err(Error::io("look at", path))?.is_dir() {
        return Err(Error::refused(path, "is a file, not a directory"));
    }
    let listing = Listing::of(&place)?;
    if listing.is_partition() {
        return partition(path, &place);
    }
    if listing.is_data_directory() || fresh_ok && listing.is_empty() {
        return Ok(Source::DataDirectory(place));
    }
    Err(Error::refused(path, listing.why_not()))
}

fn partition(path: &Path, place: &Path) -> Result<Source> {
    match (place.parent(), place.file_name()) {
        (Some(parent), Some(name)) if is_partition_name(name) => {
            Ok(Source::Partition { parent: parent.to_path_buf(), name: name.to_owned() })
        }
        _ => Err(Error::refused(
            path,
            "holds segments, but its name does not say whose: it must be <topic>-<partition>",
        )),
    }
}

/// The names in one directory.
struct Listing {
    place: PathBuf,
    entries: Vec<(OsString, EntryKind)>,
}

impl Listing {
    fn of(place: &Path) -> Result<Listing> {
        let entries = sys::list_directory(place).map_err(Error::io("list", place))?;
        Ok(Listing { place: place.to_path_buf(), entries })
    }

    /// A listing of the directory `name` in this one; what cannot be listed counts for nothing.
    fn below(&self, name: &OsStr) -> Option<Listing> {
        Listing::of(&self.place.join(name)).ok()
    }

    fn names(&self) -> impl Iterator<Item = &OsStr> {
        self.entries.iter().map(|(name, _)| name.as_os_str())
    }

    fn directories(&self) -> impl Iterator<Item = &OsStr> {
        let directories = self.entries.iter().filter(|(_, kind)| *kind == EntryKind::Directory);
        directories.map(|(name, _)| name.as_os_str())
    }

    fn is_empty(&self) -> bool {
        self.names().all(|name| NOTHING.iter().any(|nothing| name == *nothing))
    }

    fn is_partition(&self) -> bool {
        self.names()
            .any(|name| is_segment(name) || PARTITION_FILES.iter().any(|file| name == *file))
    }

    fn is_data_directory(&self) -> bool {
        let has_file = |name: &OsStr| DATA_DIRECTORY_FILES.iter().any(|file| name == *file);
        let has_partition =
            |name: &OsStr| self.below(name).is_some_and(|below| below.is_partition());
        self.names().any(has_file)
            || self.directories().filter(|name| is_partition_name(name)).any(has_partition)
    }

    /// Redpanda's tree is `kafka/TOPIC/0_12/0-1-v1.log`; any of these directories may be meant.
    fn is_redpanda(&self, depth: usize) -> bool {
        let mut candidates = self.directories().take(GUESSES);
        self.names().any(is_redpanda_segment)
            || depth > 0
                && candidates
                    .any(|name| self.below(name).is_some_and(|below| below.is_redpanda(depth - 1)))
    }

    fn why_not(&self) -> String {
        if self.is_empty() {
            return "is empty: there is nothing to read in it".to_owned();
        }
        if let Some(inner) = self.data_directories_below() {
            return format!(
                "is not a data directory itself, but the parent of data directories; name one of \
                 them: {inner}"
            );
        }
        if self.is_redpanda(3) {
            return "is a directory of Redpanda, whose files are not Kafka's".to_owned();
        }
        "is not a Kafka data directory: it holds no <topic>-<partition> directory with segments, \
         and no file that a broker writes there"
            .to_owned()
    }

    fn data_directories_below(&self) -> Option<String> {
        let is_one =
            |name: &&OsStr| self.below(name).is_some_and(|inner| inner.is_data_directory());
        let mut found: Vec<_> = self.directories().take(GUESSES).filter(is_one).collect();
        found.sort_unstable();
        let paths: Vec<_> =
            found.iter().map(|name| self.place.join(name).display().to_string()).collect();
        (!paths.is_empty()).then(|| paths.join(", "))
    }
}

/// `<topic>-<partition>`, split at the last dash.
fn is_partition_name(name: &OsStr) -> bool {
    let Some((topic, partition)) = name.to_str().and_then(|name| name.rsplit_once('-')) else {
        return false;
    };
    !topic.is_empty() && is_decimal(partition) && partition.parse::<i32>().is_ok()
}

/// `00000000000000000680.log`
fn is_segment(name: &OsStr) -> bool {
    let base_offset = name.to_str().and_then(|name| name.strip_suffix(".log"));
    base_offset.is_some_and(|digits| digits.len() == 20 && is_decimal(digits))
}

/// `680-1-v1.log`: base offset, term, version.
fn is_redpanda_segment(name: &OsStr) -> bool {
    let fields = name.to_str().and_then(|name| name.strip_suffix(".log"));
    let fields: Vec<_> = fields.unwrap_or_default().split('-').collect();
    matches!(fields.as_slice(), [base, term, version] if is_decimal(base) && is_decimal(term)
        && version.strip_prefix('v').is_some_and(is_decimal))
}

fn is_decimal(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use tempfile::TempDir;

    const SEGMENT: &str = "00000000000000000000.log";

    /// A directory that holds these files; those whose names end with a slash are directories.
    fn tree(files: &[&str]) -> TempDir {
        let here = tempfile::tempdir().unwrap();
        for file in files {
            let path = here.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            if file.ends_with('/') {
                std::fs::create_dir_all(path).unwrap();
            } else {
                std::fs::write(path, "").unwrap();
            }
        }
        here
    }

    fn refusal(here: &TempDir, path: &str, fresh_ok: bool) -> String {
        classify(&here.path().join(path), fresh_ok).unwrap_err().to_string()
    }

    #[test]
    fn data_directory_is_known_by_a_partition_or_by_the_files_of_a_broker() {
        for files in [
            &["d-0/t-0/00000000000000000000.log"][..],
            &["d-0/t-0/partition.metadata"],
            &["d-0/meta.properties"],
            &["d-0/.kafka_cleanshutdown", "d-0/u-0/"],
        ] {
            let here = tree(files);
            let place = here.path().canonicalize().unwrap().join("d-0");
            let found = classify(&here.path().join("d-0"), false).unwrap();
            assert_eq!(found, Source::DataDirectory(place), "{files:?}");
        }
    }

    #[test]
    fn partition_has_its_name_and_its_parent() {
        let here = tree(&[&format!("a-b-1-12/{SEGMENT}")]);
        symlink("a-b-1-12", here.path().join("link")).unwrap();
        let expected = Source::Partition {
            parent: here.path().canonicalize().unwrap(),
            name: "a-b-1-12".into(),
        };
        for way in ["a-b-1-12", "link", "a-b-1-12/."] {
            assert_eq!(classify(&here.path().join(way), false).unwrap(), expected);
        }
    }

    #[test]
    fn partition_without_a_number_is_refused() {
        let here = tree(&[&format!("orders/{SEGMENT}")]);
        assert!(refusal(&here, "orders", false).contains("<topic>-<partition>"));
    }

    #[test]
    fn empty_directory_is_a_fresh_one_only_for_writers() {
        let here = tree(&["d/lost+found/", "d/.lock"]);
        assert!(refusal(&here, "d", false).contains("empty"));
        assert!(matches!(classify(&here.path().join("d"), true), Ok(Source::DataDirectory(_))));
    }

    #[test]
    fn parent_names_the_data_directories_in_it() {
        let here = tree(&["p/b/t-0/partition.metadata", "p/a/meta.properties", "p/c/x"]);
        let text = refusal(&here, "p", true);
        assert!(text.contains("parent of data directories"), "{text}");
        assert!(text.contains("p/a, ") && text.ends_with("p/b"), "{text}");
    }

    #[test]
    fn redpanda_is_named_at_every_level() {
        let here = tree(&["d/kafka/t/0_12/0-1-v1.log", "d/redpanda/controller/0_0/0-1-v1.log"]);
        for level in ["d", "d/kafka", "d/kafka/t", "d/kafka/t/0_12"] {
            assert!(refusal(&here, level, true).contains("Redpanda"), "{level}");
        }
    }

    #[test]
    fn anything_else_is_refused() {
        let here = tree(&["d/photo.jpg", "file"]);
        assert!(refusal(&here, "d", true).contains("not a Kafka data directory"));
        assert!(refusal(&here, "file", true).contains("a file"));
        assert!(refusal(&here, "none", true).contains("none: No such file"));
    }

    #[test]
    fn names_are_split_at_the_last_dash() {
        for good in ["t-0", "-giveaway-sentiment-0", "foo.bar-12", "t--1", "t-2147483647"] {
            assert!(is_partition_name(OsStr::new(good)), "{good}");
        }
        for bad in ["t", "t-", "-0", "t-x", "t-4294967296", "t-+1", "t-0.x", "t-0-delete"] {
            assert!(!is_partition_name(OsStr::new(bad)), "{bad}");
        }
    }
}
