//! What all integration tests share: a mount that checks itself when it ends, commands whose output
//! is shown when something is wrong, scratch directories, and logs (`kafkalog`, `expected`).
//!
//! Nothing here knows the library: the program is driven as a user drives it, and the bytes that it
//! reads are built by code of the tests' own.
#![allow(dead_code, unused_imports, reason = "each test target uses a part of it")]

pub mod broker;
pub mod dumped;
pub mod expected;
pub mod got;
pub mod kafka;
pub mod kafkalog;
pub mod mount;
pub mod writing;
pub mod written;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

pub use got::{EIO, ENOENT, Got, bytes, lines, read};
pub use kafka::require_kafka;
pub use mount::{Mount, mount, require_fuse, show, show_with};

/// Ends a test early, aloud, where FUSE cannot be used.
#[macro_export]
macro_rules! needs_fuse {
    () => {
        if !$crate::support::require_fuse() {
            return;
        }
    };
}

/// Ends a test early, aloud, where a program is missing.
#[macro_export]
macro_rules! needs_tool {
    ($tool:expr) => {
        if !$crate::support::require_tool($tool) {
            return;
        }
    };
}

/// Gives Apache Kafka; ends a test early, aloud, where there is none.
#[macro_export]
macro_rules! needs_kafka {
    () => {
        match $crate::support::require_kafka() {
            Some(kafka) => kafka,
            None => return,
        }
    };
}

/// The program under test.
pub const OFFSETFS: &str = env!("CARGO_BIN_EXE_offsetfs");

/// A directory that goes with the test. `tests/run.sh` knows the prefix.
pub fn scratch() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("offsetfs-test-").tempdir().expect("a scratch directory")
}

/// A directory that Apache Kafka wrote: `data`, `meta`, `expected`.
pub fn fixture(set: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(set)
}

/// A copy of a directory, with the times of its files.
pub fn copy(from: impl AsRef<Path>, to: impl AsRef<Path>) -> PathBuf {
    let to = to.as_ref().to_path_buf();
    let done = run("cp", &["-a".as_ref(), from.as_ref().as_os_str(), to.as_os_str()]);
    assert!(done.status.success(), "{}", told(&done));
    to
}

/// Every file below `directory`, with its content.
pub fn content(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(directory).expect("a directory").map(|it| it.expect("a name")) {
        if entry.file_type().expect("a kind").is_dir() {
            all.extend(content(&entry.path()));
        } else {
            all.insert(entry.path(), fs::read(entry.path()).expect("a file"));
        }
    }
    all
}

/// Runs `offsetfs` with these arguments; more than a minute fails the test.
pub fn offsetfs<S: AsRef<OsStr>>(args: &[S]) -> Output {
    let args: Vec<&OsStr> = args.iter().map(AsRef::as_ref).collect();
    let done = run(OFFSETFS, &args);
    assert_no_panic(&String::from_utf8_lossy(&done.stderr));
    done
}

/// Runs a bash script with `$1`, `$2`...; more than two minutes fails the test.
pub fn sh<S: AsRef<OsStr>>(script: &str, args: &[S]) -> Output {
    let mut all: Vec<&OsStr> = vec!["-c".as_ref(), script.as_ref(), "bash".as_ref()];
    all.extend(args.iter().map(AsRef::as_ref));
    run("bash", &all)
}

/// As `sh`, and anything but exit code 0 fails the test; gives what was printed.
pub fn sh_ok<S: AsRef<OsStr>>(script: &str, args: &[S]) -> Vec<u8> {
    let done = sh(script, args);
    assert!(done.status.success(), "{script}\n{}", told(&done));
    done.stdout
}

/// What a command did, for the message of a failing test.
pub fn told(done: &Output) -> String {
    let mut text = format!("{}", done.status);
    for (name, stream) in [("stdout", &done.stdout), ("stderr", &done.stderr)] {
        let shown = String::from_utf8_lossy(&stream[..stream.len().min(4000)]).into_owned();
        write!(text, "\n{name}: {shown}").expect("a String takes everything");
    }
    text
}

/// The exit code, the only thing a script sees; a signal fails the test.
pub fn code(done: &Output) -> i32 {
    done.status.code().unwrap_or_else(|| panic!("killed: {}", told(done)))
}

/// Standard output as text.
pub fn out(done: &Output) -> String {
    String::from_utf8(done.stdout.clone()).expect("the output is UTF-8")
}

/// Standard error as text.
pub fn err(done: &Output) -> String {
    String::from_utf8_lossy(&done.stderr).into_owned()
}

/// Says why a test, or a part of it, does nothing: past the capture of the test's output.
pub fn skipped(why: &str) {
    use std::io::Write;
    // Where stderr is closed nobody listens.
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
}

/// Is this program installed?
pub fn has_tool(tool: &str) -> bool {
    sh("command -v -- \"$1\"", &[tool]).status.success()
}

/// As `has_tool`, aloud; where FUSE is required its absence fails the test.
pub fn require_tool(tool: &str) -> bool {
    let found = has_tool(tool);
    assert!(found || !required("OFFSETFS_REQUIRE_FUSE"), "{tool} is not installed");
    if !found {
        skipped(&format!("{tool} is not installed"));
    }
    found
}

/// Does the caller want a missing thing to be a failure?
pub fn required(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|value| value == "1")
}

/// Are we the superuser? Some promises are about other users' files.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

pub fn assert_no_panic(stderr: &str) {
    for word in ["panicked at", "unreachable code", "SIGSEGV", "SIGBUS", "core dumped"] {
        assert!(!stderr.contains(word), "the program broke down: {stderr}");
    }
}

fn run(program: &str, args: &[&OsStr]) -> Output {
    let limited: Vec<OsString> = ["-k", "2", "120", program].iter().map(Into::into).collect();
    let done = Command::new("timeout")
        .args(&limited)
        .args(args)
        .env("LC_ALL", "C.UTF-8")
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("{program} {args:?}: {error}"));
    assert_ne!(done.status.code(), Some(124), "no end: {program} {args:?}\n{}", told(&done));
    done
}
