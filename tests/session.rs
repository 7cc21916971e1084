//! Contract 1.1, 1.5, 1.7, 1.8: the life of a mount, whatever it shows. The daemons are this very
//! program, started again for its test `daemon`, with a filesystem of two files behind the mount.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitStatus, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, LockOwner,
    OpenFlags, ReplyAttr, ReplyData, ReplyEntry, ReplyOpen, Request,
};
use offsetfs::fs::mount_table::MountTable;
use offsetfs::fs::session::{self, MountSettings, NotifierSlot};
use offsetfs::fs::{mountpoint, unmount};
use offsetfs::sys;
use tempfile::TempDir;

/// Nobody waits longer than this for anything.
const LIMIT: Duration = Duration::from_secs(10);

// ---- the daemon ----------------------------------------------------------------------------

/// `hello` holds six bytes; a read of `silence` is never answered.
struct TwoFiles {
    _notifier: NotifierSlot,
    unanswered: Mutex<Vec<ReplyData>>,
}

const HELLO: u64 = 2;
const SILENCE: u64 = 3;

fn attributes(ino: u64) -> FileAttr {
    let (kind, perm) =
        if ino == 1 { (FileType::Directory, 0o755) } else { (FileType::RegularFile, 0o444) };
    let time = SystemTime::UNIX_EPOCH;
    FileAttr {
        ino: INodeNo(ino),
        size: 6,
        blocks: 1,
        atime: time,
        mtime: time,
        ctime: time,
        crtime: time,
        kind,
        perm,
        nlink: 1,
        uid: sys::effective_user(),
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

impl Filesystem for TwoFiles {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match name.to_str() {
            Some("hello") => reply.entry(&Duration::ZERO, &attributes(HELLO), Generation(0)),
            Some("silence") => reply.entry(&Duration::ZERO, &attributes(SILENCE), Generation(0)),
            _ => reply.error(Errno::ENOENT),
        }
    }

    /// Long-lived attributes: those of the root must not make a dead mount look alive.
    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&Duration::from_hours(1), &attributes(ino.0));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        _: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match ino.0 {
            SILENCE => self.unanswered.lock().unwrap().push(reply),
            _ if offset == 0 => reply.data(b"hello\n"),
            _ => reply.data(b""),
        }
    }
}

#[test]
#[ignore = "is the daemon that the other tests start"]
fn daemon() {
    let Some(mountpoint) = std::env::var_os("OFFSETFS_TEST_MOUNTPOINT").map(PathBuf::from) else {
        return;
    };
    let source = mountpoint.with_file_name("source, with a comma");
    let settings = MountSettings {
        mountpoint: mountpoint::prepare(&mountpoint, &source).unwrap(),
        source,
        read_only: true,
        allow_other: false,
        threads: 2,
    };
    let make = |notifier| TwoFiles { _notifier: notifier, unanswered: Mutex::default() };
    let say = |what: &str| writeln!(io::stderr(), "{what}").unwrap();
    session::run(
        make,
        &settings,
        || say("ready"),
        || {
            say("flushed");
            Ok(())
        },
    )
    .unwrap();
}

// ---- starting and ending it ----------------------------------------------------------------

/// A place to mount at, beside a source. One at a time: namespaces of one test hold copies of the
/// mounts of all others.
struct Scene(TempDir, #[expect(dead_code, reason = "held")] MutexGuard<'static, ()>);

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

impl Scene {
    fn new() -> Scene {
        // A test that failed has cleaned up all the same.
        let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let here = tempfile::tempdir().unwrap();
        fs::set_permissions(here.path(), Permissions::from_mode(0o755)).unwrap();
        for directory in ["mountpoint", "source, with a comma"] {
            fs::create_dir(here.path().join(directory)).unwrap();
        }
        Scene(here, turn)
    }

    fn mountpoint(&self) -> PathBuf {
        self.0.path().join("mountpoint")
    }

    fn start(&self) -> Daemon {
        self.start_as(Command::new(std::env::current_exe().unwrap()))
    }

    /// `command` runs this program; waits until the mount is ready.
    fn start_as(&self, mut command: Command) -> Daemon {
        command.args(["--ignored", "--exact", "daemon", "--nocapture", "--test-threads=1"]);
        command.env("OFFSETFS_TEST_MOUNTPOINT", self.mountpoint());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let mut daemon =
            Daemon { child, stderr, said: String::new(), mountpoint: self.mountpoint() };
        let told = format!(" is mounted at {}\n", daemon.mountpoint.display());
        daemon.read_until(&told);
        assert!(daemon.said.contains("ready\n"), "{}", daemon.said);
        daemon
    }
}

/// Ended and unmounted when dropped, also when the test fails.
struct Daemon {
    child: Child,
    stderr: BufReader<ChildStderr>,
    said: String,
    mountpoint: PathBuf,
}

impl Daemon {
    fn read_until(&mut self, line: &str) {
        while !self.said.ends_with(line) {
            let bytes = self.stderr.read_line(&mut self.said).unwrap();
            assert!(bytes > 0, "the daemon ended before {line:?}; it said:\n{}", self.said);
        }
    }

    fn signal(&self, name: &str) {
        let done = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status();
        assert!(done.unwrap().success());
    }

    /// How it ended, within the limit.
    fn end(&mut self) -> ExitStatus {
        let status = wait_for("the daemon's end", || self.child.try_wait().unwrap());
        self.stderr.read_to_string(&mut self.said).unwrap();
        status
    }

    fn assert_clean_end(&mut self) {
        let status = self.end();
        assert!(status.success(), "{status}; it said:\n{}", self.said);
        assert!(self.said.ends_with("flushed\n"), "{}", self.said);
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        assert_eq!(self.end().signal(), Some(9));
    }

    fn open(&self, name: &str) -> File {
        File::open(self.mountpoint.join(name)).unwrap()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Most are gone by now, in one way or the other.
        let _ = self.child.kill();
        let _ = self.child.wait();
        while is_mounted(&self.mountpoint) && unmount::detach(&self.mountpoint).is_ok() {}
    }
}

fn is_mounted(mountpoint: &Path) -> bool {
    MountTable::read().unwrap().at(mountpoint).is_some()
}

fn hello(mountpoint: &Path) -> String {
    fs::read_to_string(mountpoint.join("hello")).unwrap()
}

fn errno<T: std::fmt::Debug>(result: io::Result<T>) -> Option<i32> {
    result.unwrap_err().raw_os_error()
}

fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + LIMIT;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "{what} did not come");
        thread::sleep(Duration::from_millis(10));
    }
}

fn offsetfs(command: &str, mountpoint: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_offsetfs")).arg(command).arg(mountpoint).output().unwrap()
}

/// Says so when tests are skipped for want of FUSE.
fn fuse_is_missing() -> bool {
    let missing = File::options().read(true).write(true).open("/dev/fuse").is_err();
    if missing {
        skip("/dev/fuse cannot be opened");
    }
    missing
}

fn skip(why: &str) {
    assert_ne!(std::env::var("OFFSETFS_REQUIRE_FUSE").as_deref(), Ok("1"), "{why}");
    // Past the capture of the test harness.
    io::stderr().write_all(format!("skipped: {why}\n").as_bytes()).unwrap();
}

// ---- what is promised ----------------------------------------------------------------------

/// 1.1: stays in the foreground and says when it is ready (a line on stderr, and `sd_notify`).
#[test]
fn readiness_is_a_line_and_a_message_to_the_service_manager() {
    if fuse_is_missing() {
        return;
    }
    let scene = Scene::new();
    let socket = UnixDatagram::bind(scene.0.path().join("notify")).unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env("NOTIFY_SOCKET", scene.0.path().join("notify"));
    let mut daemon = scene.start_as(command);
    let mut message = [0; 100];
    let bytes = socket.recv(&mut message).unwrap();
    assert_eq!(&message[..bytes], b"READY=1\n");
    let (source, place) = (scene.0.path().join("source, with a comma"), scene.mountpoint());
    let line = format!("offsetfs: {} is mounted at {}\n", source.display(), place.display());
    assert!(daemon.said.contains(&line), "{}", daemon.said);
    assert_eq!(daemon.child.try_wait().unwrap(), None);
    daemon.signal("TERM");
    daemon.assert_clean_end();
    let bytes = socket.recv(&mut message).unwrap();
    assert_eq!(&message[..bytes], b"STOPPING=1\n");
}

/// 1.8: mounts are `nosuid,nodev,noexec`; the type and the source are told.
#[test]
fn table_of_mounts_tells_type_source_and_flags() {
    if fuse_is_missing() {
        return;
    }
    let scene = Scene::new();
    let daemon = scene.start();
    let table = MountTable::read().unwrap();
    let mount = table.at(&daemon.mountpoint).unwrap();
    assert!(mount.is_ours());
    assert_eq!(mount.source, scene.0.path().join("source, with a comma"));
    assert_eq!(mount.owner(), Some(sys::effective_user()));
    let lines = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line =
        lines.lines().find(|line| line.contains(daemon.mountpoint.to_str().unwrap())).unwrap();
    assert!(line.contains(" ro,nosuid,nodev,noexec,"), "{line}");
    if sys::effective_user() == 0 {
        let setting = format!("/sys/class/bdi/{}/read_ahead_kb", mount.device);
        assert_eq!(fs::read_to_string(setting).unwrap(), "256\n");
    }
}

/// 1.5: SIGINT, SIGTERM, SIGHUP unmount after flushing, with exit status 0.
#[test]
fn signals_unmount() {
    if fuse_is_missing() {
        return;
    }
    for signal in ["INT", "TERM", "HUP"] {
        let scene = Scene::new();
        let mut daemon = scene.start();
        assert_eq!(hello(&daemon.mountpoint), "hello\n");
        daemon.signal(signal);
        daemon.assert_clean_end();
        assert!(!is_mounted(&daemon.mountpoint), "{signal}");
    }
}

/// `nohup` means what it says.
#[test]
fn ignored_hangup_stays_ignored() {
    if fuse_is_missing() {
        return;
    }
    let scene = Scene::new();
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' HUP; exec \"$@\"", "sh"]).arg(std::env::current_exe().unwrap());
    let mut daemon = scene.start_as(command);
    daemon.signal("HUP");
    thread::sleep(Duration::from_millis(200));
    assert_eq!(hello(&daemon.mountpoint), "hello\n");
    daemon.signal("TERM");
    daemon.assert_clean_end();
}

/// 1.5: lazily when busy: open readers get ENOTCONN. Those who wait for an answer are woken.
#[test]
fn busy_mount_is_detached_and_its_readers_get_an_error() {
    if fuse_is_missing() {
        return;
    }
    let scene = Scene::new();
    let mut daemon = scene.start();
    let mut open = daemon.open("hello");
    let mut silence = daemon.open("silence");
    let waiting = thread::spawn(move || errno(silence.read(&mut [0; 6])));
    // Until the read is under way; if it is not, the test is only weaker.
    thread::sleep(Duration::from_millis(100));
    let begin = Instant::now();
    daemon.signal("TERM");
    daemon.assert_clean_end();
    assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
    assert!(!is_mounted(&daemon.mountpoint));
    assert_eq!(errno(open.read(&mut [0; 6])), Some(libc::ENOTCONN));
    let woken_with = waiting.join().unwrap();
    assert!(
        [Some(libc::ECONNABORTED), Some(libc::ENOTCONN)].contains(&woken_with),
        "{woken_with:?}"
    );
}

/// 1.5: a dead mount of ours at MOUNTPOINT is cleaned up and replaced.
#[test]
fn dead_mount_is_replaced() {
    if fuse_is_missing() {
        return;
    }
    let scene = Scene::new();
    let mut dead = scene.start();
    dead.mountpoint.metadata().unwrap();
    dead.kill();
    assert_eq!(errno(fs::metadata(dead.mountpoint.join("hello"))), Some(libc::ENOTCONN));
    let mut daemon = scene.start();
    assert!(daemon.said.contains("mounted at"), "{}", daemon.said);
    assert_eq!(hello(&daemon.mountpoint), "hello\n");
    daemon.signal("TERM");
    daemon.assert_clean_end();
    assert!(!is_mounted(&daemon.mountpoint));
}

/// 1.4: a living mount is not replaced.
#[test]
fn living_mount_is_refused() {
    if fuse_is_missing() {
        return;
    }
    let scene = Scene::new();
    let daemon = scene.start();
    let refusal = mountpoint::prepare(&daemon.mountpoint, scene.0.path()).unwrap_err().to_string();
    assert!(refusal.contains("already a mount"), "{refusal}");
    assert_eq!(hello(&daemon.mountpoint), "hello\n");
}

/// 1.4: nor one whose daemon hangs; nothing waits for it.
#[test]
fn hanging_mount_is_refused_at_once() {
    if fuse_is_missing() {
        return;
    }
    let scene = Scene::new();
    let mut daemon = scene.start();
    daemon.signal("STOP");
    let begin = Instant::now();
    let refusal = mountpoint::prepare(&daemon.mountpoint, scene.0.path()).unwrap_err().to_string();
    assert!(refusal.contains("already a mount"), "{refusal}");
    assert!(begin.elapsed() < Duration::from_secs(1));
    daemon.signal("CONT");
    daemon.signal("TERM");
    daemon.assert_clean_end();
}

/// 1.4: a MOUNTPOINT at, inside or above SOURCE is refused, by whatever path.
#[test]
fn mountpoint_in_the_source_is_seen_through_bind_mounts() {
    let scene = Scene::new();
    let at = |name: &str| scene.0.path().join(name);
    for directory in ["source/t-0/x", "bound", "bound-inside"] {
        fs::create_dir_all(at(directory)).unwrap();
    }
    for (from, to) in [("source", "bound"), ("source/t-0/x", "bound-inside")] {
        if !bind(&at(from), &at(to)) {
            return skip("needs the right to bind");
        }
    }
    let _guards = [Detached(at("bound")), Detached(at("bound-inside"))];
    for (place, source, how) in [
        ("bound/t-0/x", "source", "inside"),
        ("bound-inside", "source", "inside"),
        ("source/t-0/x", "bound", "inside"),
        ("bound-inside", "source/t-0/x", "at"),
    ] {
        let refusal = mountpoint::prepare(&at(place), &at(source)).unwrap_err().to_string();
        assert!(refusal.contains(&format!("is {how} the source")), "{place}: {refusal}");
    }
    mountpoint::prepare(&at("bound-inside"), &at("mountpoint")).unwrap();
}

fn bind(from: &Path, to: &Path) -> bool {
    let done = Command::new("mount").arg("--bind").args([from, to]).output();
    done.is_ok_and(|done| done.status.success())
}

/// An unmount from outside ends the daemon as a signal does.
#[test]
fn unmount_from_outside_ends_the_daemon() {
    if fuse_is_missing() {
        return;
    }
    let scene = Scene::new();
    let mut daemon = scene.start();
    unmount::unmount(&daemon.mountpoint).unwrap();
    daemon.assert_clean_end();
}

/// fuser 0.18 takes a lost connection for a mounted one, and unmounted by path what another daemon
/// had mounted at the same place since.
#[test]
fn daemon_of_a_detached_mount_leaves_the_next_mount_alone() {
    if fuse_is_missing() {
        return;
    }
    for ends_by_signal in [false, true] {
        let scene = Scene::new();
        let mut first = scene.start();
        let mut open = first.open("hello");
        unmount::detach(&first.mountpoint).unwrap();
        let mut second = scene.start();
        assert_eq!(open.read(&mut [0; 6]).unwrap(), 6, "detached, but served");
        if ends_by_signal {
            first.signal("TERM");
        } else {
            drop(open);
        }
        first.assert_clean_end();
        assert_eq!(hello(&second.mountpoint), "hello\n");
        second.signal("TERM");
        second.assert_clean_end();
    }
}

/// 1.5: `offsetfs umount` waits for the daemon's end, and also works on a dead mount.
#[test]
fn umount_waits_for_the_end() {
    if fuse_is_missing() {
        return;
    }
    let scene = Scene::new();
    let mut daemon = scene.start();
    let busy = daemon.open("hello");
    let done = offsetfs("umount", &daemon.mountpoint);
    let said = String::from_utf8(done.stderr).unwrap();
    assert_eq!(done.status.code(), Some(1), "{said}");
    assert!(said.contains("busy") && said.contains(daemon.mountpoint.to_str().unwrap()), "{said}");
    drop(busy);
    // The kernel sends the RELEASE behind the close.
    wait_for("the unmount", || {
        offsetfs("umount", &daemon.mountpoint).status.success().then_some(())
    });
    let closed = Instant::now();
    daemon.assert_clean_end();
    assert!(closed.elapsed() < Duration::from_millis(100), "it had not ended");

    let mut dead = scene.start();
    let _open = dead.open("hello");
    dead.kill();
    assert!(offsetfs("umount", &dead.mountpoint).status.success());
    assert!(!is_mounted(&dead.mountpoint));

    let done = offsetfs("umount", &dead.mountpoint);
    let said = String::from_utf8(done.stderr).unwrap();
    assert_eq!(done.status.code(), Some(1), "{said}");
    assert!(said.contains(dead.mountpoint.to_str().unwrap()), "{said}");
}

/// The kernel tells the daemon nothing when the filesystem is still mounted elsewhere.
#[test]
fn umount_ends_a_daemon_that_is_mounted_elsewhere_too() {
    if fuse_is_missing() {
        return;
    }
    let scene = Scene::new();
    let mut daemon = scene.start();
    let elsewhere = scene.0.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    if !bind(&daemon.mountpoint, &elsewhere) {
        return skip("needs the right to bind");
    }
    let _guard = Detached(elsewhere.clone());
    assert!(offsetfs("umount", &daemon.mountpoint).status.success());
    daemon.assert_clean_end();
    assert_eq!(errno(File::open(elsewhere.join("hello"))), Some(libc::ENOTCONN));
}

/// A mount that must not outlive the test.
struct Detached(PathBuf);

impl Drop for Detached {
    fn drop(&mut self) {
        // Its own failure is better news than this one.
        let _ = unmount::detach(&self.0);
    }
}

/// 1.7: a plain user can mount (through `fusermount3`). Where only root may open /dev/fuse, the
/// user gets a mount namespace with one that he may.
#[test]
fn plain_user_mounts_and_unmounts() {
    if fuse_is_missing() {
        return;
    }
    if sys::effective_user() != 0 {
        return skip("only root can become another user");
    }
    if Command::new("fusermount3").arg("-V").output().is_err() {
        return skip("fusermount3 is not installed");
    }
    let scene = Scene::new();
    for own in [scene.0.path(), &scene.mountpoint()] {
        chown(own, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let program = scene.0.path().join("program");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", AS_NOBODY, "sh"]);
    command.arg(scene.0.path().join("fuse")).arg(&program);
    let mut daemon = scene.start_as(command);

    let table = fs::read_to_string(format!("/proc/{}/mountinfo", daemon.child.id())).unwrap();
    let here = daemon.mountpoint.to_str().unwrap();
    let line = table.lines().find(|line| line.contains(here)).unwrap();
    assert!(line.contains("source,\\040with\\040a\\040comma"), "{line}");
    assert!(line.contains("nosuid,nodev,noexec") && line.contains("user_id=65534"), "{line}");

    let mut reader = inside(&daemon, "exec 3<\"$1/hello\"; cat \"$1/hello\"; read _; cat <&3");
    let mut output = BufReader::new(reader.stdout.take().unwrap());
    let mut text = String::new();
    output.read_line(&mut text).unwrap();
    assert_eq!(text, "hello\n");

    daemon.signal("TERM");
    daemon.assert_clean_end();
    drop(reader.stdin.take());
    output.read_to_string(&mut text).unwrap();
    assert_eq!(text, "hello\n", "nothing more could be read");
    assert!(!reader.wait().unwrap().success());
}

const NOBODY: u32 = 65534;

const AS_NOBODY: &str = "\
    umount -l -a -t fuse.offsetfs; \
    mknod \"$1\" c 10 229 && chmod 666 \"$1\" && mount --bind \"$1\" /dev/fuse && shift && \
    exec setpriv --reuid=65534 --regid=65534 --clear-groups \"$@\"";

/// A shell of the plain user that sees the daemon's mounts. It works out of the mount.
fn inside(daemon: &Daemon, script: &str) -> Child {
    let mut command = Command::new("nsenter");
    command.arg("--target").arg(daemon.child.id().to_string()).arg("--mount");
    command.args(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]);
    command.args(["sh", "-c", script, "sh"]).arg(&daemon.mountpoint);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}
