//! 2.10, 1.7: what a Unix user may expect of the mount as a file system.

use std::time::{Duration, Instant};

use crate::support::kafkalog::{data_dir, hundred};
use crate::support::mount::v;
use crate::support::{EIO, ENOENT, err, has_tool, mount, scratch, sh, show, told};
use crate::{needs_fuse, needs_tool};

/// 2.10: "Every change to a read-only mount is `EROFS`"
#[test]
fn every_change_is_refused() {
    needs_fuse!();
    let mount = show(hundred());
    for change in [
        "touch t-0/by-offset/5",
        "touch t-0/new",
        "rm -f t-0/by-offset/5",
        "mkdir u-0",
        "rmdir t-0",
        "rm -rf t-0/segments",
        "chmod 600 t-0/by-offset/5",
        "chown 1 t-0",
        "mv t-0/by-offset/5 t-0/by-offset/6",
        "echo x > t-0/by-offset/5",
        "echo x >> t-0/append",
        "echo x > t-0/config",
        "echo 50 > t-0/log-start-offset",
        "echo x >> t-0/segments/00000000000000000000.log",
        "truncate -s 1 t-0/by-offset/5",
        "ln -s x t-0/l",
        "ln t-0/by-offset/5 t-0/by-offset/hard",
        "mkfifo t-0/pipe",
        "setfattr -n user.x -v y t-0/by-offset/5",
    ] {
        if !has_tool(change.split(' ').next().unwrap()) {
            crate::support::skipped(change);
            continue;
        }
        let done = sh(&format!("cd \"$1\" && {change}"), &[mount.path()]);
        assert!(!done.status.success(), "{change}");
        assert!(err(&done).contains("Read-only file system"), "{change}: {}", told(&done));
    }
    assert_eq!(mount.t0().records(0..100), v(0..100));
}

/// 2.10: "files have no write bits but for `append*`, `config` and `log-start-offset` of a writable
/// mount"
#[test]
fn nothing_has_a_write_bit() {
    needs_fuse!();
    let mount = show(hundred());
    let done = sh("cd \"$1\" && find . -type f -perm /222", &[mount.path()]);
    assert!(done.status.success() && done.stdout.is_empty(), "{}", told(&done));
}

/// 2.10: "`df` shows the backing filesystem, at once."
#[test]
fn df_shows_the_backing_file_system() {
    needs_fuse!();
    let mount = show(hundred());
    let begun = Instant::now();
    let ours = rustix::fs::statvfs(mount.path()).unwrap();
    let theirs = rustix::fs::statvfs(mount.source()).unwrap();
    assert_eq!(ours.f_blocks * ours.f_frsize, theirs.f_blocks * theirs.f_frsize);
    assert!(sh("df \"$1\"", &[mount.path()]).status.success());
    assert!(begun.elapsed() < Duration::from_secs(3));
}

/// 2.3: "A long scan can be interrupted (Ctrl-C) at once, and other files are served meanwhile."
#[test]
fn a_long_scan_can_be_interrupted() {
    needs_fuse!();
    let mount = show(crate::support::kafkalog::sized_layout(400_000, 1000, 100_000));
    let script = "cat \"$1/t-0/by-offset/0...jsonl\" > /dev/null & pid=$!; sleep 0.05
        s=$(date +%s%N); [ \"$(cat \"$1/t-0/by-offset/399999\")\" = v399999 ] || echo wrong
        echo served $(( ($(date +%s%N) - s) / 1000000 ))
        s=$(date +%s%N); kill -INT $pid; kill -TERM $pid; wait $pid
        echo ended $(( ($(date +%s%N) - s) / 1000000 ))";
    let said = String::from_utf8(sh(script, &[mount.path()]).stdout).unwrap();
    assert!(!said.contains("wrong"), "{said}");
    for line in said.lines() {
        let milliseconds: u64 = line.split(' ').next_back().unwrap().parse().unwrap();
        assert!(milliseconds < 1500, "{said}");
    }
}

/// 2.3: "other files are served meanwhile"
///
/// Opening a partition may take long, since its end is searched in what a crash left there.
#[test]
fn a_partition_that_opens_slowly_holds_up_no_other() {
    needs_fuse!();
    let home = scratch();
    let slow = hundred().add_bytes(vec![b'J'; 128 << 20]);
    let source = data_dir(home.path().join("source"), &[slow, hundred().named("u-0")]);
    let mount = mount(source).live_source().start();
    assert_eq!(mount.partition("u-0").by_offset(5), "v5");
    let begun = Instant::now();
    let t0 = mount.t0();
    let opening = std::thread::spawn(move || (t0.by_offset(5), begun.elapsed()));
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(mount.partition("u-0").by_offset(6), "v6");
    let other = begun.elapsed();
    let (got, opened) = opening.join().unwrap();
    assert_eq!(got, "v5");
    assert!(other * 2 < opened, "served after {other:?}, opened after {opened:?}");
}

/// 2.4: "(`ENOENT`)"
#[test]
fn absent_names_are_enoent_at_every_level() {
    needs_fuse!();
    let mount = show(hundred());
    for name in ["u-0", "t-0/x", "t-0/by-offset/x", "t-0/segments/x", "_other/x", "T-0", ".Trash"] {
        assert_eq!(crate::support::read(mount.path().join(name)), ENOENT, "{name}");
    }
    assert_ne!(mount.t0().by_offset(1), EIO);
}

/// 2.8: "written as in the JSON, keys and header values as raw bytes"
#[test]
fn getfattr_shows_the_attributes() {
    needs_fuse!();
    needs_tool!("getfattr");
    let mount = show(hundred());
    let done = sh("getfattr --absolute-names -d \"$1/t-0/by-offset/9\"", &[mount.path()]);
    let said = String::from_utf8(done.stdout.clone()).unwrap();
    for line in ["user.offset=\"9\"", "user.timestamp=\"1700000009000\"", "user.leader_epoch=\"0\""]
    {
        assert!(said.lines().any(|shown| shown == line), "{line} in {said}");
    }
    assert!(sh("getfattr -R -d \"$1\"", &[mount.path()]).status.success());
}
