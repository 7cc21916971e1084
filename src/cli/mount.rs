//! `offsetfs mount`: checks everything that can be checked, mounts, and serves to the end.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::cli::mount_options::{MountOptions, OPTIONS};
use crate::engine::data_dir::DataDir;
use crate::engine::source::{self, Source};
use crate::error::{Error, Result};
use crate::fs::change::now;
use crate::fs::fuse::Fuse;
use crate::fs::mountpoint;
use crate::fs::session::{self, MountSettings};
use crate::fs::tree::Tree;
use crate::sys;

/// Where `fusermount3` looks up what plain users may do.
const FUSE_CONF: &str = "/etc/fuse.conf";

/// How often the thread for maintenance looks whether it should end.
const TICK: Duration = Duration::from_secs(1);
/// How often retention and `flush.ms` are looked at (contract 4.11).
const MAINTENANCE: Duration = Duration::from_secs(10);

/// Show the partitions of a Kafka data directory as files.
///
/// Stays in the foreground and says on stderr when the mount is ready. SIGINT, SIGTERM and SIGHUP
/// unmount. Nothing in SOURCE is changed.
#[derive(Debug, clap::Args)]
pub struct MountArgs {
    /// Make the mount writable
    #[arg(long)]
    pub rw: bool,
    /// What is typed after each `-o`.
    #[arg(short = 'o', value_name = "OPTIONS", help = format!("Separated by commas: {OPTIONS}"))]
    pub options: Vec<String>,
    /// Keep caches in this directory instead of the user's own
    #[arg(long, value_name = "DIR")]
    pub cache_dir: Option<PathBuf>,
    /// A data directory of Kafka, or one partition's directory in it
    pub source: PathBuf,
    /// An empty directory
    pub mountpoint: PathBuf,
}

/// Mounts, and returns after the end of the mount.
pub fn run(typed: &MountArgs) -> Result<()> {
    prepare(typed)?.serve(|| ())
}

/// A mount of which all has been checked that can be before it is made.
pub struct Prepared {
    source: Source,
    options: MountOptions,
    settings: MountSettings,
}

/// Checks everything that can be checked. Nothing is mounted yet, and no thread is started.
pub fn prepare(typed: &MountArgs) -> Result<Prepared> {
    let mut options = MountOptions::new(typed)?;
    options.cache_dir = cache_dir(&typed.source, options.cache_dir)?;
    check_may_allow_other(&options)?;
    let source = source::classify(&typed.source, options.writable)?;
    let settings = MountSettings {
        mountpoint: mountpoint::prepare(&typed.mountpoint, &typed.source)?,
        source: std::path::absolute(&typed.source).map_err(Error::io("find", &typed.source))?,
        read_only: !options.writable,
        allow_other: options.allow_other,
        threads: loop_threads(),
    };
    Ok(Prepared { source, options, settings })
}

impl Prepared {
    /// The filesystem meets its mount here. `on_ready` runs when the mount answers.
    pub fn serve(self, on_ready: impl FnOnce()) -> Result<()> {
        let Prepared { source, options, settings } = self;
        let read = options.read_options(open_files());
        let (path, only) = match &source {
            Source::DataDirectory(path) => (path, None),
            Source::Partition { parent, name } => (parent, Some(name.as_os_str())),
        };
        let data_dir = if options.writable {
            DataDir::writable(path, only, read)?
        } else {
            DataDir::new(path, only, read)
        };
        let tree = Arc::new(Tree::new(data_dir, options.list_all));
        let keeper = options.writable.then(|| Keeper::start(&tree));
        let served = Arc::clone(&tree);
        let shut_down = || {
            drop(keeper);
            tree.shut_down()
        };
        session::run(|notifier| Fuse::new(served, notifier), &settings, on_ready, shut_down)
    }
}

/// A thread that recovers what an unclean end left, and then does what is to be done now and then.
struct Keeper {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    fn start(tree: &Arc<Tree>) -> Keeper {
        let stop = Arc::new(AtomicBool::new(false));
        let (tree, stopped) = (Arc::clone(tree), Arc::clone(&stop));
        let thread = thread::spawn(move || {
            let is_stopped = || stopped.load(Ordering::Acquire);
            if let Err(e) = tree.data_dir().recover(now, &is_stopped) {
                log::warn!("{e}");
            }
            let mut waited = MAINTENANCE;
            while !is_stopped() {
                if waited >= MAINTENANCE {
                    waited = Duration::ZERO;
                    tree.data_dir().maintain(now());
                }
                thread::park_timeout(TICK);
                waited += TICK;
            }
        });
        Keeper { stop, thread: Some(thread) }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A panic there was told when it happened.
            let _ = thread.join();
        }
    }
}

/// Files of SOURCE that may be open at once: a part of what the process may have open.
pub fn open_files() -> usize {
    let limit = sys::descriptor_limit().unwrap_or(256);
    usize::try_from(limit / 4).unwrap_or(64).clamp(8, 256)
}

/// Where caches go: never into SOURCE, which a read-only mount leaves as it is.
fn cache_dir(source: &Path, typed: Option<PathBuf>) -> Result<Option<PathBuf>> {
    let is_inside = |directory: &Path| {
        let source = source.canonicalize().ok();
        let existing = directory.ancestors().find_map(|ancestor| ancestor.canonicalize().ok());
        existing.zip(source).is_some_and(|(directory, source)| directory.starts_with(source))
    };
    match typed {
        Some(directory) if is_inside(&directory) => {
            Err(Error::refused(directory, "the cache directory lies inside SOURCE"))
        }
        Some(directory) => Ok(Some(directory)),
        None => Ok(usual_cache_dir().filter(|directory| !is_inside(directory))),
    }
}

/// `$XDG_CACHE_HOME/offsetfs`, or `~/.cache/offsetfs` (XDG Base Directory Specification).
fn usual_cache_dir() -> Option<PathBuf> {
    let absolute =
        |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let caches = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    Some(caches.join("offsetfs"))
}

/// One thread on one or two processors, where a second one only brings switches between them.
fn loop_threads() -> usize {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    (processors / 2).clamp(1, 4)
}

/// `fusermount3` would refuse as well, but not say what to do.
fn check_may_allow_other(options: &MountOptions) -> Result<()> {
    if !options.allow_other || sys::effective_user() == 0 {
        return Ok(());
    }
    // A missing file allows nothing.
    let conf = std::fs::read_to_string(FUSE_CONF).unwrap_or_default();
    if allows_other(&conf) {
        return Ok(());
    }
    let reason = "for -o allow_other root must add the line 'user_allow_other' to this file";
    Err(Error::refused(FUSE_CONF, reason))
}

fn allows_other(conf: &str) -> bool {
    conf.lines().any(|line| line.trim() == "user_allow_other")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_line_of_its_own_allows_others() {
        assert!(allows_other("# comment\n  user_allow_other \n"));
        assert!(!allows_other("#user_allow_other\nmount_max = 10\nuser_allow_other = 1\n"));
        assert!(!allows_other(""));
    }
}
