//! Single writes through a writable mount, whose outcome is a word: a test compares it as a whole.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;

use super::got::{self, ENOENT, Got};
use super::mount::{Mount, Shown, wait_for, writable_with};
use super::written::{configure, create};

/// A fresh data directory, mounted, with an empty `t-0` of these settings (words `NAME=VALUE`).
pub fn fresh(settings: &str) -> Mount {
    let mount = writable_with(&[]);
    create(&mount, "t-0", "");
    if !settings.is_empty() {
        configure(&mount, "t-0", settings);
    }
    mount
}

/// Opens a file of the partition to append to it.
pub fn open(shown: &Shown, name: &str) -> File {
    let path = shown.path(name);
    let opened = File::options().append(true).open(&path);
    opened.unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// One `write`: how many bytes were taken, or the name of the error.
pub fn put(mut file: &File, bytes: impl AsRef<[u8]>) -> String {
    file.write(bytes.as_ref()).map_or_else(|error| got::name(&error), |count| count.to_string())
}

/// Opens, writes once, closes.
pub fn put_to(shown: &Shown, name: &str, bytes: impl AsRef<[u8]>) -> String {
    put(&open(shown, name), bytes)
}

/// One write of everything to a file of `t-0`, which must be taken.
pub fn add(mount: &Mount, name: &str, bytes: impl AsRef<[u8]>) {
    let bytes = bytes.as_ref();
    assert_eq!(put_to(&mount.t0(), name, bytes), bytes.len().to_string(), "{name}");
}

/// Waits until the log holds these values and nothing else: the last close is noticed later.
pub fn assert_values<T: AsRef<[u8]>>(shown: &Shown, values: &[T]) {
    let count = i64::try_from(values.len()).expect("few values");
    let mut want: Vec<Got> = values.iter().map(|value| got::bytes(value.as_ref())).collect();
    want.push(ENOENT.into());
    wait_for(Duration::from_secs(10), "all values and no more", || {
        shown.number("log-end-offset") >= count
    });
    assert_eq!(shown.records(0..=count), want);
}

/// Why the last change of this file failed.
pub fn last_error(shown: &Shown, name: &str) -> String {
    let reason = shown.attribute(name, "user.last_error").unwrap_or_default();
    String::from_utf8(reason).expect("UTF-8")
}

/// An orderly end, and the directory as it is then.
pub fn stopped(mount: &mut Mount) -> PathBuf {
    mount.stop(Signal::TERM);
    mount.source().to_path_buf()
}

/// The files of a directory with this extension, by name.
pub fn files(directory: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).expect("a directory");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let mut found: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|e| e == extension)).collect();
    found.sort();
    found
}

/// The bytes of all segments of a partition's directory, in order.
pub fn log_of(directory: &Path) -> Vec<u8> {
    let logs = files(directory, "log");
    logs.iter().flat_map(|path| fs::read(path).expect("a segment")).collect()
}
