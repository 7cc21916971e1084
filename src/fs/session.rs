//! The life of one mount: from the mount system call to the end of the daemon.
//!
//! `run` mounts, serves until a signal comes or someone unmounts, and returns when nothing is
//! mounted any more. Ends cleanly in every case that it can see: what cannot be unmounted because
//! it is busy is detached, and those who have it open get ENOTCONN, at the latest when the process
//! ends and the kernel closes its connection.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use std::{io, mem, thread};

use fuser::{BackgroundSession, Config, Filesystem, MountOption, Notifier, Session, SessionACL};
use sd_notify::NotifyState;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::error::{Error, Result};
use crate::fs::beacon;
use crate::fs::mount_table::MountTable;
use crate::fs::unmount::{self, Attempt};
use crate::sys;

/// Bytes that the kernel reads ahead in a file, in KiB. Its default of 128 makes sequential reads
/// wait for the daemon; more than this brought nothing.
const READ_AHEAD_KIB: &str = "256";

/// How long to wait for the loop to end once nothing is mounted any more. It ends at once, unless
/// the filesystem lives on in another mount namespace or under a bind mount, or could only be
/// detached.
const PATIENCE: Duration = Duration::from_millis(300);

/// What to mount where, and for whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountSettings {
    /// What is shown as the mount's source.
    pub source: PathBuf,
    /// An empty directory; an absolute path without links (see `mountpoint::prepare`).
    pub mountpoint: PathBuf,
    /// Whether the kernel refuses every change by itself.
    pub read_only: bool,
    /// Whether other users see it, with the rights that the files show.
    pub allow_other: bool,
    /// Threads that take requests.
    pub threads: usize,
}

/// Where the filesystem finds the way to tell the kernel of changes, once it is mounted.
pub type NotifierSlot = Arc<OnceLock<Notifier>>;

/// Mounts the filesystem that `make` gives and serves it to its end. `on_ready` runs when the mount
/// answers, and is brief: signals wait for it; `after_unmount` when no request can come any more,
/// or, for a plain user's busy mount, when no new one can begin: it is for flushing, and its error
/// is the result.
pub fn run<F: Filesystem>(
    make: impl FnOnce(NotifierSlot) -> F,
    settings: &MountSettings,
    on_ready: impl FnOnce(),
    after_unmount: impl FnOnce() -> Result<()>,
) -> Result<()> {
    warn_of_request_timeout();
    let (sender, events) = mpsc::channel();
    // Before anything is mounted, so that no signal leaves a dead mount behind.
    forward_signals(sender.clone())?;
    let slot = NotifierSlot::default();
    let mount = Mount::new(make(slot.clone()), settings, &slot, sender)?;
    let served = mount.serve(&events, on_ready);
    mount.take_down(&events, served.is_some());
    served.unwrap_or(Ok(())).and(after_unmount())
}

/// What the threads report to the one that waits in `run`.
enum Event {
    /// The mount has answered a request from outside.
    Answers,
    /// A signal asks for the end.
    Signal(i32),
    /// The loop has ended: unmounted from outside, or failed.
    LoopEnded(io::Result<()>),
}

/// What is needed to find a mount of ours again among all others.
struct Mount {
    source: PathBuf,
    mountpoint: PathBuf,
    /// Device number, `0:48`. While the filesystem lives no other one has it.
    device: String,
    minor: String,
}

impl Mount {
    fn new<F: Filesystem>(
        filesystem: F,
        settings: &MountSettings,
        slot: &OnceLock<Notifier>,
        events: Sender<Event>,
    ) -> Result<Mount> {
        let MountSettings { source, mountpoint, .. } = settings;
        let session = Session::new(filesystem, mountpoint, &config(settings))
            .map_err(|error| mount_error(error, mountpoint))?;
        // The slot is new and this is the only place that fills it.
        let _ = slot.set(session.notifier());
        let table = MountTable::read()?;
        let entry = table.at(mountpoint).filter(|entry| entry.is_ours()).ok_or_else(|| {
            Error::refused(mountpoint, "what was mounted there is gone, or covered, already")
        })?;
        let mount = Mount {
            source: source.clone(),
            mountpoint: mountpoint.clone(),
            device: entry.device.clone(),
            minor: entry.minor().to_owned(),
        };
        beacon::light(&mount.minor);
        start_loop(session, mountpoint, events.clone())?;
        mount.read_further_ahead();
        ask_for_an_answer(mountpoint.clone(), events);
        Ok(mount)
    }

    /// Waits for the end; `None` when a signal asks for it, else how the loop ended.
    fn serve(&self, events: &Receiver<Event>, on_ready: impl FnOnce()) -> Option<Result<()>> {
        let mut on_ready = Some(on_ready);
        loop {
            match events.recv() {
                Ok(Event::Answers) => {
                    // First, as it may be to leave stderr.
                    if let Some(on_ready) = on_ready.take() {
                        on_ready();
                    }
                    self.say_ready();
                }
                Ok(Event::Signal(signal)) => {
                    log::info!("{}: unmounting after signal {signal}", self.mountpoint.display());
                    return None;
                }
                Ok(Event::LoopEnded(result)) => {
                    return Some(result.map_err(Error::io("serve", &self.mountpoint)));
                }
                // Every sender is gone: nothing can happen any more.
                Err(mpsc::RecvError) => return None,
            }
        }
    }

    fn say_ready(&self) {
        say(&format!("{} is mounted at {}", self.source.display(), self.mountpoint.display()));
        notify(NotifyState::Ready);
    }

    /// Unmounts if it is still mounted, and sees to it that requests end. Failures are logged and
    /// no reason to stop: the end of the process ends the rest.
    fn take_down(&self, events: &Receiver<Event>, loop_has_ended: bool) {
        notify(NotifyState::Stopping);
        if let Err(error) = self.unmount() {
            log::warn!("{error}");
        }
        if loop_has_ended || loop_ends_within(PATIENCE, events) {
            return;
        }
        if !unmount::end_connection(&self.minor) || !loop_ends_within(PATIENCE, events) {
            log::info!("{}: ends with this process", self.mountpoint.display());
        }
    }

    fn unmount(&self) -> Result<()> {
        let table = MountTable::read()?;
        if table.at(&self.mountpoint).is_none_or(|seen| seen.device != self.device) {
            return Ok(());
        }
        match unmount::unmount(&self.mountpoint)? {
            Attempt::Unmounted => Ok(()),
            Attempt::Busy => {
                log::info!("{}: busy, detaching it", self.mountpoint.display());
                unmount::abort(&self.mountpoint, &self.minor)
            }
        }
    }

    fn read_further_ahead(&self) {
        let setting = format!("/sys/class/bdi/{}/read_ahead_kb", self.device);
        if let Err(refusal) = std::fs::write(&setting, READ_AHEAD_KIB) {
            log::debug!("cannot write {setting}: {refusal}");
        }
    }
}

pub(super) fn config(settings: &MountSettings) -> Config {
    let mut options = vec![
        MountOption::FSName(shown_source(&settings.source)),
        // fuser's own Subtype is lost when root mounts.
        MountOption::CUSTOM("subtype=offsetfs".to_owned()),
        MountOption::NoSuid,
        MountOption::NoDev,
        MountOption::NoExec,
        if settings.read_only { MountOption::RO } else { MountOption::RW },
    ];
    let mut config = Config::default();
    if settings.allow_other {
        options.push(MountOption::DefaultPermissions);
        config.acl = SessionACL::All;
    }
    config.mount_options = options;
    config.n_threads = Some(settings.threads.max(1));
    config.clone_fd = settings.threads > 1;
    config
}

/// `fusermount3`, which plain users go through, takes its options in one list with commas.
fn shown_source(source: &Path) -> String {
    let source = source.to_string_lossy();
    if sys::effective_user() == 0 {
        source.into_owned()
    } else {
        source.replace('\\', "\\\\").replace(',', "\\,")
    }
}

/// What keeps a mount from being made is mostly one of two things, which fuser does not name.
pub(super) fn mount_error(error: io::Error, mountpoint: &Path) -> Error {
    let device = "/dev/fuse";
    if let Err(refusal) = File::options().read(true).write(true).open(device) {
        return Error::io("open", device)(refusal);
    }
    if error.kind() == io::ErrorKind::NotFound {
        return Error::refused(
            mountpoint,
            "to mount without root takes fusermount3 (package fuse3)",
        );
    }
    Error::io("mount", mountpoint)(error)
}

/// Runs the loop on threads of its own; the last event is how it ended.
fn start_loop<F: Filesystem>(
    session: Session<F>,
    mountpoint: &Path,
    events: Sender<Event>,
) -> Result<()> {
    let mut background = session.spawn().map_err(Error::io("serve", mountpoint))?;
    let BackgroundSession { guard, .. } = &mut background;
    let guard = mem::replace(guard, thread::spawn(|| Ok(())));
    // When dropped it unmounts whatever is at the mountpoint by then, be it a mount of someone
    // else: fuser 0.18 believes a lost connection to be mounted. Unmounting is done in `take_down`.
    mem::forget(background);
    thread::spawn(move || {
        let result = guard.join().unwrap_or_else(|_| Err(io::Error::other("the loop panicked")));
        // When nobody listens any more, `run` is over.
        let _ = events.send(Event::LoopEnded(result));
    });
    Ok(())
}

/// Sends `Answers` once the mount has answered a request, as any other process would see it.
fn ask_for_an_answer(mountpoint: PathBuf, events: Sender<Event>) {
    thread::spawn(move || match sys::filesystem_space(&mountpoint) {
        // As in `start_loop`.
        Ok(_) => drop(events.send(Event::Answers)),
        Err(error) => log::debug!("{} does not answer: {error}", mountpoint.display()),
    });
}

fn loop_ends_within(time: Duration, events: &Receiver<Event>) -> bool {
    let end = Instant::now() + time;
    loop {
        match events.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(Event::LoopEnded(_)) => return true,
            Ok(Event::Answers | Event::Signal(_)) => {}
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return false,
        }
    }
}

/// Signals become events from here on. SIGHUP stays ignored under `nohup`.
fn forward_signals(events: Sender<Event>) -> Result<()> {
    let failed = |error| Error::io("watch signals of", "this process")(error);
    let mut asked = vec![SIGINT, SIGTERM];
    if !sys::is_ignored(SIGHUP).map_err(failed)? {
        asked.push(SIGHUP);
    }
    let mut signals = Signals::new(asked).map_err(failed)?;
    thread::spawn(move || {
        for signal in &mut signals {
            // As in `start_loop`.
            let _ = events.send(Event::Signal(signal));
        }
    });
    Ok(())
}

fn warn_of_request_timeout() {
    let setting = "/proc/sys/fs/fuse/default_request_timeout";
    let seconds = std::fs::read_to_string(setting).unwrap_or_default();
    if !matches!(seconds.trim(), "" | "0") {
        log::warn!(
            "{setting} is {}: the kernel will cut the mount when one request takes longer",
            seconds.trim()
        );
    }
}

fn notify(state: NotifyState) {
    if let Err(error) = sd_notify::notify(&[state]) {
        log::warn!("cannot tell the service manager: {error}");
    }
}

fn say(message: &str) {
    use io::Write;
    // A closed stderr is no reason to end the mount.
    let _ = writeln!(io::stderr(), "offsetfs: {message}");
}
