//! Partitions that are removed and made again under the same name.

use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::thread;
use std::time::Duration;

use crate::needs_fuse;
use crate::support::mount::mount;
use crate::support::written::{create, writable, write};

/// 4.9: "`mkdir orders-1` creates a partition", and nothing of one that had its name before shows
/// in it, or is written to it: not even by who had that one's files open.
#[test]
fn a_partition_that_is_made_again_is_another_one() {
    needs_fuse!();
    let source = tempfile::tempdir().unwrap();
    let mount = writable(&source);
    // Another partition of the topic gives both the same topic id.
    create(&mount, "t-1", "");
    create(&mount, "t-0", "delete.on.rmdir=true");
    let at = mount.path().join("t-0");
    write(&mount, "t-0", "append", [&b"AAAA\n"[..]]);
    let (record, range) = (at.join("by-offset/0"), at.join("by-offset/0.."));
    let mut held = fs::File::open(&range).unwrap();
    let mut appending = OpenOptions::new().append(true).open(at.join("append")).unwrap();
    assert_eq!(fs::read(&record).unwrap(), b"AAAA");
    assert_eq!(fs::read(&range).unwrap(), b"AAAA\n");

    fs::remove_dir(&at).unwrap();
    fs::create_dir(&at).unwrap();
    appending.write_all(b"stray\n").unwrap_err();
    assert_eq!(fs::read(at.join("log-end-offset")).unwrap(), b"0\n");
    write(&mount, "t-0", "append", [&b"BBBB\n"[..]]);
    assert_eq!(fs::read(&record).unwrap(), b"BBBB");
    assert_eq!(fs::read(&range).unwrap(), b"BBBB\n");
    let mut old = Vec::new();
    // Its records or an error, but no others.
    let _ = held.read_to_end(&mut old);
    assert!(old.is_empty() || old == b"AAAA\n", "{old:?}");
}

/// 2.13: "Beside a running broker the tree follows within a second"
#[test]
fn a_read_only_mount_sees_that_a_partition_was_made_again() {
    needs_fuse!();
    let source = tempfile::tempdir().unwrap();
    let mount_rw = writable(&source);
    create(&mount_rw, "t-0", "delete.on.rmdir=true");
    write(&mount_rw, "t-0", "append", [&b"AAAA\n"[..]]);
    let reader = mount(source.path()).live_source().start();
    let range = reader.path().join("t-0/by-offset/0..");
    assert_eq!(fs::read(&range).unwrap(), b"AAAA\n");
    let at = mount_rw.path().join("t-0");
    fs::remove_dir(&at).unwrap();
    fs::create_dir(&at).unwrap();
    write(&mount_rw, "t-0", "append", [&b"BBBB\n"[..]]);
    thread::sleep(Duration::from_millis(1100));
    assert_eq!(fs::read(&range).unwrap(), b"BBBB\n");
}
