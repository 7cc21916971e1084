//! What was typed for a mount, as values: the words of `-o` are a language of their own, partly
//! that of mount(8).

use std::path::PathBuf;

use crate::cli::mount::MountArgs;
use crate::engine::extent::DamagePolicy;
use crate::engine::options::{Isolation, LogStart, ReadOptions};
use crate::error::{Error, Result};

/// How a mount is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is one option that is given or not")]
pub struct MountOptions {
    /// Records can be appended.
    pub writable: bool,
    /// Other users see the mount.
    pub allow_other: bool,
    /// Which records of transactions are shown.
    pub isolation: Isolation,
    /// Ranges leave damaged batches out, instead of one unreadable byte for each stretch.
    pub damage_skip: bool,
    /// Listings name every record, not a sample.
    pub list_all: bool,
    /// Records below the log start offset are shown as long as they are on the disk.
    pub log_start_disk: bool,
    /// A partition's directory may be a symbolic link.
    pub follow_symlinks: bool,
    /// No batch may take more memory than this when it is decompressed.
    pub max_batch_bytes: u64,
    /// Where caches are kept; `None` for the usual place.
    pub cache_dir: Option<PathBuf>,
}

/// The options of `-o` that do something, as help and errors show them.
pub const OPTIONS: &str = "ro, write, allow_other, isolation=read_uncommitted|read_committed, \
                       damage=skip, list=all, log_start=disk, follow_symlinks, max_batch_bytes=N";

/// Words that mount(8) and fstab use for any mount. They change nothing here: mounts are always
/// nosuid, nodev and noexec, and `rw` is what mount(8) says when nobody said anything.
const WORDS_OF_MOUNT: [&str; 32] = [
    "defaults",
    "rw",
    "suid",
    "nosuid",
    "dev",
    "nodev",
    "exec",
    "noexec",
    "atime",
    "noatime",
    "diratime",
    "nodiratime",
    "relatime",
    "norelatime",
    "strictatime",
    "nostrictatime",
    "lazytime",
    "nolazytime",
    "sync",
    "async",
    "dirsync",
    "auto",
    "noauto",
    "user",
    "nouser",
    "users",
    "owner",
    "group",
    "fail",
    "nofail",
    "_netdev",
    "nonempty",
];

impl Default for MountOptions {
    fn default() -> MountOptions {
        MountOptions {
            writable: false,
            allow_other: false,
            isolation: Isolation::default(),
            damage_skip: false,
            list_all: false,
            log_start_disk: false,
            follow_symlinks: false,
            max_batch_bytes: 256 << 20,
            cache_dir: None,
        }
    }
}

impl MountOptions {
    /// What `typed` means; the error names the word that means nothing.
    pub fn new(typed: &MountArgs) -> Result<MountOptions> {
        let cache_dir = typed.cache_dir.clone();
        let mut options = MountOptions { writable: typed.rw, cache_dir, ..MountOptions::default() };
        let words = || typed.options.iter().flat_map(|list| list.split(',')).map(str::trim);
        for word in words().filter(|word| !word.is_empty()) {
            options.apply(word)?;
        }
        if options.writable && words().any(|word| word == "ro") {
            return Err(Error::Usage("a mount is either ro or writable, not both".to_owned()));
        }
        Ok(options)
    }

    /// What of this concerns reading, with at most `open_files` files open at once.
    pub fn read_options(&self, open_files: usize) -> ReadOptions {
        let disk = self.log_start_disk;
        ReadOptions {
            isolation: self.isolation,
            damage: if self.damage_skip { DamagePolicy::Skip } else { DamagePolicy::Unreadable },
            log_start: if disk { LogStart::Disk } else { LogStart::Checkpoint },
            max_batch_bytes: usize::try_from(self.max_batch_bytes).unwrap_or(usize::MAX),
            follow_symlinks: self.follow_symlinks,
            cache_dir: self.cache_dir.clone(),
            open_files,
            trace: None,
        }
    }

    fn apply(&mut self, word: &str) -> Result<()> {
        let (name, value) = word.split_once('=').map_or((word, None), |(a, b)| (a, Some(b)));
        match (name, value) {
            ("ro", None) => {}
            ("write", None) => self.writable = true,
            ("allow_other", None) => self.allow_other = true,
            ("isolation", Some("read_uncommitted")) => self.isolation = Isolation::ReadUncommitted,
            ("isolation", Some("read_committed")) => self.isolation = Isolation::ReadCommitted,
            ("damage", Some("skip")) => self.damage_skip = true,
            ("list", Some("all")) => self.list_all = true,
            ("log_start", Some("disk")) => self.log_start_disk = true,
            ("follow_symlinks", None) => self.follow_symlinks = true,
            ("max_batch_bytes", Some(number)) => self.max_batch_bytes = positive(word, number)?,
            _ if is_of_mount(name, value) => {}
            _ => return Err(unknown(word, name)),
        }
        Ok(())
    }
}

/// Does the word of `-o` mean anything?
pub fn is_known(word: &str) -> bool {
    word.is_empty() || MountOptions::default().apply(word).is_ok()
}

fn is_of_mount(name: &str, value: Option<&str>) -> bool {
    let is_comment = name.starts_with("x-") || name.starts_with("X-") || name == "comment";
    // mount(8) says who mounts: `user=alice`.
    is_comment || name == "user" || value.is_none() && WORDS_OF_MOUNT.contains(&name)
}

fn positive(word: &str, number: &str) -> Result<u64> {
    number.parse().ok().filter(|number| *number > 0).ok_or_else(|| {
        Error::Usage(format!("option '{word}': this takes a number of bytes, greater than zero"))
    })
}

/// What to say of a word that has no meaning: of an option that exists, which form of it has one.
fn unknown(word: &str, name: &str) -> Error {
    let mut forms = OPTIONS.split(", ");
    let refusal = match forms.find(|form| form.split('=').next() == Some(name)) {
        Some(form) => format!("option '{word}' has a wrong value: it is {form}"),
        None => format!("unknown option '{word}'"),
    };
    Error::Usage(format!(
        "{refusal}; the options are {OPTIONS}, and those of every mount such as noatime, nofail \
         or x-*"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(lists: &[&str]) -> Result<MountOptions> {
        MountOptions::new(&MountArgs {
            rw: false,
            options: lists.iter().map(|list| (*list).to_owned()).collect(),
            cache_dir: None,
            source: "source".into(),
            mountpoint: "mountpoint".into(),
        })
    }

    #[test]
    fn nothing_typed_is_the_default() {
        assert_eq!(parsed(&[]).unwrap(), MountOptions::default());
        assert_eq!(MountOptions::default().max_batch_bytes, 268_435_456);
    }

    #[test]
    fn each_option_means_what_it_says() {
        let lists = [
            "ro,allow_other,isolation=read_committed",
            "damage=skip,list=all",
            "",
            "log_start=disk, follow_symlinks,,max_batch_bytes=1000",
        ];
        let expected = MountOptions {
            writable: false,
            allow_other: true,
            isolation: Isolation::ReadCommitted,
            damage_skip: true,
            list_all: true,
            log_start_disk: true,
            follow_symlinks: true,
            max_batch_bytes: 1000,
            cache_dir: None,
        };
        assert_eq!(parsed(&lists).unwrap(), expected);
        assert!(parsed(&["write"]).unwrap().writable);
    }

    /// mount(8) always passes `rw`, so it must not make a mount writable.
    #[test]
    fn words_of_mount_change_nothing() {
        let fstab = "rw,dev,suid,exec,nofail,_netdev,noauto,user,x-systemd.automount,comment=a";
        assert_eq!(parsed(&[fstab, "X-any=thing"]).unwrap(), MountOptions::default());
    }

    #[test]
    fn unknown_option_is_refused_by_name_with_the_known_ones() {
        for word in [
            "frobnicate",
            "frobnicate=3",
            "isolation=none",
            "isolation",
            "write=1",
            "nofail=1",
            "damage=mark",
        ] {
            let refusal = parsed(&["ro", word]).unwrap_err();
            assert!(matches!(refusal, Error::Usage(_)));
            let text = refusal.to_string();
            assert!(text.contains(&format!("'{word}'")) && text.contains("list=all"), "{text}");
        }
    }

    #[test]
    fn a_wrong_value_is_not_called_an_unknown_option() {
        for (word, form) in [
            ("isolation=none", "isolation=read_uncommitted|read_committed"),
            ("isolation", "isolation=read_uncommitted|read_committed"),
            ("write=1", "write"),
            ("max_batch_bytes", "max_batch_bytes=N"),
        ] {
            let text = parsed(&[word]).unwrap_err().to_string();
            let expected = format!("option '{word}' has a wrong value: it is {form};");
            assert!(text.contains(&expected), "{text}");
        }
        assert!(parsed(&["isolate=none"]).unwrap_err().to_string().contains("unknown option"));
    }

    #[test]
    fn numbers_are_positive_and_a_mount_is_one_thing() {
        for wrong in ["max_batch_bytes=0", "max_batch_bytes=-1", "max_batch_bytes=1k", "ro,write"] {
            assert!(matches!(parsed(&[wrong]), Err(Error::Usage(_))), "{wrong}");
        }
    }
}
