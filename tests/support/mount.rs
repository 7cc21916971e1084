//! A running mount. It fails the test when the daemon dies, panics, leaves its mount behind, takes
//! more memory than it may, or changes SOURCE under a read-only mount.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};
use std::{fs, thread};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use super::kafkalog::{Partition, data_dir};
use super::{Got, OFFSETFS, assert_no_panic, code, lines, offsetfs, read, required, scratch, told};

/// Can we mount at all? Says so aloud when not, and panics when `OFFSETFS_REQUIRE_FUSE=1`.
pub fn require_fuse() -> bool {
    let usable = fs::File::options().read(true).write(true).open("/dev/fuse").is_ok();
    assert!(usable || !required("OFFSETFS_REQUIRE_FUSE"), "/dev/fuse cannot be opened");
    if !usable {
        super::skipped("/dev/fuse cannot be opened");
    }
    usable
}

/// Mounts a data directory that holds this one partition.
pub fn show(partition: Partition) -> Mount {
    show_with(partition, &[])
}

/// As `show`, with mount options (`-o` and what follows are added).
pub fn show_with(partition: Partition, options: &[&str]) -> Mount {
    let home = scratch();
    let source = data_dir(home.path().join("source"), &[partition]);
    let mut how = mount(source);
    how.home = Some(home);
    options.iter().fold(how, |how, option| how.args(&["-o", option])).start()
}

/// A writable mount of a data directory with these partitions, which goes with it.
pub fn writable_with(partitions: &[Partition]) -> Mount {
    let home = scratch();
    let source = home.path().join("source");
    if partitions.is_empty() {
        fs::create_dir(&source).expect("an empty directory");
    } else {
        data_dir(&source, partitions);
    }
    let mut how = mount(source).args(&["--rw"]).live_source();
    how.home = Some(home);
    how.start()
}

/// How to mount; `start` does it.
pub struct Mounting {
    source: PathBuf,
    at: Option<PathBuf>,
    home: Option<TempDir>,
    args: Vec<String>,
    environment: Vec<(String, String)>,
    limit: Duration,
    peak_mib: u64,
    descriptors_max: Option<u32>,
    watch_source: bool,
}

/// `offsetfs mount SOURCE ...`, at a new directory unless `at` names one.
pub fn mount(source: impl AsRef<Path>) -> Mounting {
    Mounting {
        source: source.as_ref().to_path_buf(),
        at: None,
        home: None,
        args: Vec::new(),
        environment: Vec::new(),
        limit: Duration::from_mins(5),
        peak_mib: 256,
        descriptors_max: None,
        watch_source: true,
    }
}

impl Mounting {
    /// More arguments before SOURCE.
    pub fn args(mut self, args: &[&str]) -> Self {
        self.args.extend(args.iter().map(ToString::to_string));
        self
    }

    pub fn at(mut self, path: impl AsRef<Path>) -> Self {
        self.at = Some(path.as_ref().to_path_buf());
        self
    }

    pub fn env(mut self, name: &str, value: impl AsRef<Path>) -> Self {
        self.environment.push((name.into(), value.as_ref().display().to_string()));
        self
    }

    /// The resident memory that the daemon may have had at its end.
    pub fn peak_mib(mut self, peak_mib: u64) -> Self {
        self.peak_mib = peak_mib;
        self
    }

    /// The daemon may have so many files open (`RLIMIT_NOFILE`).
    pub fn descriptors_max(mut self, count: u32) -> Self {
        self.descriptors_max = Some(count);
        self
    }

    /// SOURCE is changed by the test itself.
    pub fn live_source(mut self) -> Self {
        self.watch_source = false;
        self
    }

    /// Mounts, and waits until the mount answers.
    pub fn start(mut self) -> Mount {
        let home = self.home.take().unwrap_or_else(scratch);
        let path = self.at.clone().unwrap_or_else(|| home.path().join("mnt"));
        if !is_mounted(&path) {
            fs::create_dir_all(&path).expect("a mountpoint");
        }
        let stderr = home.path().join(format!("stderr-{}", random_name()));
        let before = self.watch_source.then(|| snapshot(&self.source));
        let child = self.spawn(&path, home.path(), &stderr);
        let (tell, told) = channel();
        let guard = Guard { path: path.clone(), pid: Pid::from_child(&child) };
        let limit = self.limit;
        thread::spawn(move || guard.watch(&told, limit));
        let mut mount = Mount {
            path,
            source: self.source,
            child: Some(child),
            stderr,
            before,
            peak_mib: self.peak_mib,
            guard: tell,
            _home: home,
        };
        mount.wait_until_it_answers();
        mount
    }

    /// Tries to mount at `at`, which must be refused; gives what was said.
    pub fn refused(self, at: impl AsRef<Path>) -> Output {
        let at = at.as_ref();
        let before = is_mounted(at);
        let mut args = vec!["mount".to_string()];
        args.extend(self.args);
        args.extend([self.source.display().to_string(), at.display().to_string()]);
        let done = offsetfs_briefly(&args);
        let after = is_mounted(at);
        if after && !before {
            detach(at);
        }
        assert_eq!(before, after, "mounted all the same: {}", told(&done));
        assert!([1, 2].contains(&code(&done)), "{}", told(&done));
        assert!(done.stdout.is_empty() && done.stderr.len() > 10, "{}", told(&done));
        done
    }

    fn spawn(&self, path: &Path, home: &Path, stderr: &Path) -> Child {
        let mut command = match self.descriptors_max {
            None => Command::new(OFFSETFS),
            Some(count) => {
                let mut shell = Command::new("bash");
                shell.args(["-c", &format!("ulimit -n {count} && exec \"$0\" \"$@\""), OFFSETFS]);
                shell
            }
        };
        command
            .arg("mount")
            .args(&self.args)
            .arg(&self.source)
            .arg(path)
            .env("XDG_CACHE_HOME", home.join("cache"))
            .env("RUST_BACKTRACE", "1")
            .env_remove("NOTIFY_SOCKET")
            .envs(self.environment.iter().cloned())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(stderr).expect("a file for stderr"))
            .spawn()
            .expect("offsetfs starts")
    }
}

/// `offsetfs` for a command that should end at once; one that mounts is ended after 20 s.
fn offsetfs_briefly(args: &[String]) -> Output {
    Command::new("timeout")
        .args(["-k", "2", "20", OFFSETFS])
        .args(args)
        .stdin(Stdio::null())
        .output()
        .expect("timeout starts")
}

/// Ends a mount that is older than its limit, so that no test hangs for ever.
struct Guard {
    path: PathBuf,
    pid: Pid,
}

impl Guard {
    fn watch(self, told: &std::sync::mpsc::Receiver<()>, limit: Duration) {
        use std::sync::mpsc::RecvTimeoutError::Timeout;
        if told.recv_timeout(limit) == Err(Timeout) {
            eprintln!("the mount at {} is older than {limit:?}", self.path.display());
            // It may be gone already: then there is nothing to end.
            let _ = kill_process(self.pid, Signal::KILL);
            detach(&self.path);
        }
    }
}

/// A mount that answers.
pub struct Mount {
    path: PathBuf,
    source: PathBuf,
    child: Option<Child>,
    stderr: PathBuf,
    before: Option<Snapshot>,
    peak_mib: u64,
    guard: Sender<()>,
    _home: TempDir,
}

impl Mount {
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn source(&self) -> &Path {
        &self.source
    }

    /// A partition of the mount.
    pub fn partition(&self, name: &str) -> Shown {
        Shown { path: self.path.join(name) }
    }

    /// The partition that `show` mounts.
    pub fn t0(&self) -> Shown {
        self.partition("t-0")
    }

    /// The names in the root, without `_other`.
    pub fn partitions(&self) -> Vec<String> {
        let mut names = names(&self.path);
        names.retain(|name| name != "_other");
        names
    }

    /// What the daemon has said so far.
    pub fn stderr(&self) -> String {
        fs::read_to_string(&self.stderr).unwrap_or_default()
    }

    pub fn pid(&self) -> Pid {
        Pid::from_child(self.child.as_ref().expect("the daemon runs"))
    }

    /// Does the daemon still run?
    pub fn runs(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| child.try_wait().expect("a child").is_none())
    }

    /// The most memory that was resident so far (`VmHWM`).
    pub fn peak_resident_mib(&self) -> u64 {
        let path = format!("/proc/{}/status", self.pid().as_raw_nonzero());
        let status = fs::read_to_string(path).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
        kib.unwrap_or(0) / 1024
    }

    /// kill -9, as the test wants it; the dead mount stays.
    pub fn kill(&mut self) {
        let mut child = self.child.take().expect("the daemon runs");
        child.kill().expect("killed");
        child.wait().expect("ended");
    }

    /// Waits for a daemon that somebody else ended.
    pub fn wait(&mut self) -> ExitStatus {
        let child = self.child.take().expect("the daemon runs");
        wait_at_most(child, Duration::from_secs(20)).expect("the daemon ends within 20 s")
    }

    /// Asks for an orderly end and checks what must hold at every end.
    pub fn stop(&mut self, signal: Signal) {
        let faults = self.end(signal);
        assert!(faults.is_empty(), "{}\nstderr: {}", faults.join("\n"), self.stderr());
    }

    fn end(&mut self, signal: Signal) -> Vec<String> {
        let mut faults = Vec::new();
        let peak_mib = if self.child.is_some() { self.peak_resident_mib() } else { 0 };
        if let Some(child) = self.child.take() {
            faults.extend(end_daemon(child, signal));
            if is_mounted(&self.path) {
                faults.push("the mount was left behind".into());
            }
        }
        // The guard may have ended already, after its limit.
        let _ = self.guard.send(());
        detach(&self.path);
        if peak_mib > self.peak_mib {
            faults.push(format!("{peak_mib} MiB resident, bound is {}", self.peak_mib));
        }
        if self.stderr().contains("panicked at") {
            faults.push("the daemon panicked".into());
        }
        if self.before.as_ref().is_some_and(|before| *before != snapshot(&self.source)) {
            faults.push(format!("SOURCE was changed: {}", self.source.display()));
        }
        faults
    }

    fn wait_until_it_answers(&mut self) {
        let begun = Instant::now();
        while !(is_mounted(&self.path) && rustix::fs::statvfs(&self.path).is_ok()) {
            assert!(self.runs(), "the mount ended: {}", self.stderr());
            assert!(begun.elapsed().as_secs() < 20, "not mounted in 20 s: {}", self.stderr());
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if self.child.is_none() && !is_mounted(&self.path) {
            let _ = self.guard.send(());
            return;
        }
        let faults = self.end(Signal::TERM);
        if thread::panicking() {
            eprintln!("the daemon said: {}\n{}", self.stderr(), faults.join("\n"));
        } else {
            assert_no_panic(&self.stderr());
            assert!(faults.is_empty(), "{}\nstderr: {}", faults.join("\n"), self.stderr());
        }
    }
}

fn end_daemon(mut child: Child, signal: Signal) -> Option<String> {
    if let Ok(Some(status)) = child.try_wait() {
        return Some(format!("the daemon died: {status}"));
    }
    if let Err(error) = kill_process(Pid::from_child(&child), signal) {
        return Some(format!("the daemon took no signal: {error}"));
    }
    match wait_at_most(child, Duration::from_secs(20)) {
        Some(status) if status.success() => None,
        Some(status) => Some(format!("the daemon ended with {status} after {signal:?}")),
        None => Some(format!("no end within 20 s of {signal:?}")),
    }
}

/// The status of a process that ends in time; otherwise it is killed.
fn wait_at_most(mut child: Child, limit: Duration) -> Option<ExitStatus> {
    let begun = Instant::now();
    while begun.elapsed() < limit {
        if let Some(status) = child.try_wait().expect("a child") {
            return Some(status);
        }
        thread::sleep(Duration::from_millis(5));
    }
    child.kill().expect("killed");
    child.wait().expect("ended");
    None
}

/// A partition as the mount shows it.
pub struct Shown {
    path: PathBuf,
}

impl Shown {
    pub fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// A whole file of the partition.
    pub fn read(&self, name: &str) -> Got {
        read(self.path(name))
    }

    /// `by-offset/NAME`: a record, a range, any format.
    #[allow(clippy::needless_pass_by_value, reason = "numbers and names alike")]
    pub fn by_offset(&self, name: impl ToString) -> Got {
        self.read(&format!("by-offset/{}", name.to_string()))
    }

    /// `by-time/NAME`.
    #[allow(clippy::needless_pass_by_value, reason = "numbers and names alike")]
    pub fn by_time(&self, name: impl ToString) -> Got {
        self.read(&format!("by-time/{}", name.to_string()))
    }

    /// Many records at once.
    pub fn records(&self, offsets: impl IntoIterator<Item = i64>) -> Vec<Got> {
        offsets.into_iter().map(|offset| self.by_offset(offset)).collect()
    }

    /// The sorted names in a directory of the partition.
    pub fn names(&self, directory: &str) -> Vec<String> {
        names(&self.path(directory))
    }

    /// The offsets that `by-offset` lists, in order.
    pub fn listed(&self) -> Vec<i64> {
        let names = self.names("by-offset");
        let mut offsets: Vec<i64> =
            names.iter().map(|name| name.parse().expect("an offset")).collect();
        offsets.sort_unstable();
        offsets
    }

    pub fn metadata(&self, name: &str) -> fs::Metadata {
        let path = self.path(name);
        fs::metadata(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    pub fn inode(&self, name: &str) -> u64 {
        self.metadata(name).ino()
    }

    /// `log-end-offset` and its like, whose form is one number and a newline.
    pub fn number(&self, name: &str) -> i64 {
        let text = self.read(name).text();
        let number = text.strip_suffix('\n').and_then(|digits| digits.parse().ok());
        number.unwrap_or_else(|| panic!("{name} is {text:?}"))
    }

    /// Each line of a `.jsonl` range.
    pub fn envelopes(&self, name: &str) -> Vec<Value> {
        let text = self.by_offset(name).text();
        text.lines().map(|line| serde_json::from_str(line).expect("a JSON line")).collect()
    }

    /// `N.json`, parsed.
    pub fn envelope(&self, offset: i64) -> Value {
        let text = self.by_offset(format!("{offset}.json")).text();
        serde_json::from_str(&text).expect("JSON")
    }

    /// report.json: the object of this partition.
    pub fn report(&self) -> Value {
        facts(&serde_json::from_str(&self.read("report.json").text()).expect("JSON"))
    }

    /// An extended attribute, if it is there.
    pub fn attribute(&self, file: &str, name: &str) -> Option<Vec<u8>> {
        let mut value = vec![0; 65_536];
        match rustix::fs::getxattr(self.path(file), name, value.as_mut_slice()) {
            Ok(size) => {
                value.truncate(size);
                Some(value)
            }
            Err(rustix::io::Errno::NODATA) => None,
            Err(error) => panic!("{name} of {file}: {error}"),
        }
    }

    /// The sorted names of all extended attributes.
    pub fn attributes(&self, file: &str) -> Vec<String> {
        let mut list = vec![0; 65_536];
        let size = rustix::fs::listxattr(self.path(file), list.as_mut_slice()).expect("a list");
        let list = String::from_utf8(list[..size].to_vec()).expect("UTF-8");
        let mut names: Vec<String> = list.split_terminator('\0').map(Into::into).collect();
        names.sort();
        names
    }
}

/// What a report says of a partition: its object, wherever it is nested; of several the first.
pub fn facts(report: &Value) -> Value {
    fn find(value: &Value) -> Option<&Value> {
        match value {
            Value::Object(fields) if fields.contains_key("torn_tail") => Some(value),
            Value::Object(fields) => fields.values().find_map(find),
            Value::Array(items) => items.iter().find_map(find),
            _ => None,
        }
    }
    find(report).cloned().unwrap_or_else(|| panic!("no partition in {report}"))
}

/// The sorted names in a directory.
pub fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory)
        .unwrap_or_else(|error| panic!("{}: {error}", directory.display()))
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"));
    let mut names: Vec<String> = entries.collect();
    names.sort();
    names
}

/// The values v0, v1... of the default layout.
pub fn v(offsets: std::ops::Range<i64>) -> Vec<Got> {
    offsets.map(|n| Got::Bytes(format!("v{n}").into_bytes())).collect()
}

/// What a range of the default layout reads.
pub fn v_lines(offsets: std::ops::Range<i64>) -> Got {
    lines(offsets.map(|n| format!("v{n}")))
}

/// The kernel's line about the mount at `path`: (mount flags, filesystem type, its flags).
pub fn mount_entry(path: &Path) -> Option<(String, String, String)> {
    let table = fs::read_to_string("/proc/self/mountinfo").expect("mountinfo");
    let wanted = path.display().to_string();
    let line = table.lines().rfind(|line| line.split(' ').nth(4) == Some(&wanted))?;
    let (left, right) = line.split_once(" - ")?;
    let mut right = right.split(' ');
    let flags = left.split(' ').nth(5)?;
    let kind = right.next()?;
    Some((flags.into(), kind.into(), right.next_back()?.into()))
}

/// Asks the kernel's table, so it works on dead mounts too.
pub fn is_mounted(path: &Path) -> bool {
    mount_entry(path).is_some_and(|(_, kind, _)| kind.starts_with("fuse"))
}

/// Takes a mount away, whatever uses it.
pub fn detach(path: &Path) {
    for program in [["umount", "-l"], ["fusermount3", "-uz"]] {
        if is_mounted(path) {
            // A failure shows in the table, which the caller looks at.
            let _ = Command::new(program[0]).arg(program[1]).arg(path).output();
        }
    }
}

/// Waits until `what` is true, or fails the test.
pub fn wait_for(limit: Duration, what: &str, mut is_true: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_true() {
        assert!(begun.elapsed() < limit, "not within {limit:?}: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// A path below a directory -> kind and mode, size, mtime, hash of the contents.
type Snapshot = BTreeMap<PathBuf, (u32, u64, i64, i64, u64)>;

/// Everything that a read-only mount must leave as it was; access times it may move (1.2).
pub fn snapshot(directory: &Path) -> Snapshot {
    let mut found = Snapshot::new();
    let mut rest = vec![directory.to_path_buf()];
    while let Some(path) = rest.pop() {
        let data = fs::symlink_metadata(&path).expect("metadata");
        let mut hash = DefaultHasher::new();
        if data.is_file() {
            fs::read(&path).expect("a readable file").hash(&mut hash);
        }
        let size = if data.is_file() { data.len() } else { 0 };
        let facts = (data.mode(), size, data.mtime(), data.mtime_nsec(), hash.finish());
        if data.is_dir() {
            rest.extend(fs::read_dir(&path).expect("a directory").map(|e| e.expect("e").path()));
        }
        found.insert(path, facts);
    }
    found
}

/// Ends a mount through `offsetfs umount`.
pub fn umount(path: &Path) -> Output {
    offsetfs(&[Path::new("umount"), path])
}

fn random_name() -> u64 {
    use std::hash::BuildHasher;
    std::hash::RandomState::new().hash_one(0)
}
