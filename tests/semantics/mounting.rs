//! 1: how a mount begins and ends.

use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, symlink};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::needs_fuse;
use crate::support::expected::Row;
use crate::support::got::error_of;
use crate::support::kafkalog::{data_dir, hundred};
use crate::support::mount::{
    is_mounted, mount_entry, names, snapshot, umount, v, v_lines, wait_for,
};
use crate::support::{
    ENOENT, OFFSETFS, bytes, code, err, fixture, is_root, lines, mount, out, scratch, sh, show,
    show_with, told,
};

/// 1.1: "`offsetfs mount SOURCE MOUNTPOINT` mounts read-only"
#[test]
fn a_mount_is_read_only() {
    needs_fuse!();
    let mount = show(hundred());
    let made = fs::create_dir(mount.path().join("x-0"));
    assert_eq!(error_of(made), "EROFS");
    let (flags, _, _) = mount_entry(mount.path()).expect("mounted");
    assert!(flags.split(',').any(|flag| flag == "ro"), "{flags}");
}

/// 1.1: "It stays in the foreground and says when it is ready (a line on stderr, and"
#[test]
fn a_mount_says_when_it_is_ready() {
    needs_fuse!();
    let mut mount = show(hundred());
    wait_for(Duration::from_secs(5), "a line on stderr", || mount.stderr().ends_with('\n'));
    assert!(mount.runs(), "it stays in the foreground");
}

/// 1.1: "`sd_notify`"
#[test]
fn a_mount_tells_the_service_manager() {
    needs_fuse!();
    let home = scratch();
    let source = data_dir(home.path().join("source"), &[hundred()]);
    let socket = UnixDatagram::bind(home.path().join("notify")).expect("a socket");
    socket.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
    let mount = mount(&source).env("NOTIFY_SOCKET", home.path().join("notify")).start();
    let mut message = [0; 1000];
    let size = socket.recv(&mut message).expect("a message");
    let message = String::from_utf8_lossy(&message[..size]);
    assert!(message.lines().any(|line| line == "READY=1"), "{message}");
    assert_eq!(mount.t0().by_offset(5), "v5");
}

/// 1.2: "Read-only means no footprint: nothing in SOURCE is created, locked, renamed, truncated,
/// mapped by the daemon"
#[test]
fn nothing_in_source_is_touched() {
    needs_fuse!();
    let mut mount = show(hundred());
    let before = snapshot(mount.source());
    let script = "cd \"$1\" && find . -type f -exec cat {} + && ls -lR . && cat t-0/by-offset/0..";
    assert_eq!(code(&sh(script, &[mount.path()])), 0);
    let maps = format!("/proc/{}/maps", mount.pid().as_raw_nonzero());
    let maps = fs::read_to_string(maps).expect("the maps");
    assert!(!maps.contains(&format!("{}/", mount.source().display())), "{maps}");
    assert!(!mount.source().join(".lock").exists());
    assert!(before == snapshot(mount.source()), "while it is mounted");
    mount.stop(Signal::TERM);
}

/// 1.2: "access times stay as they are where the kernel allows it (O_NOATIME)"
#[test]
fn access_times_stay() {
    needs_fuse!();
    let home = scratch();
    let source = data_dir(home.path().join("source"), &[hundred()]);
    let old = "find \"$1\" -type f -exec touch -a -d @1000000000 {} +";
    assert_eq!(code(&sh(old, &[&source])), 0);
    let mount = mount(&source).live_source().start();
    assert_eq!(mount.t0().by_offset("0.."), v_lines(0..100));
    assert_eq!(mount.t0().by_time("2023-11-14"), "v0");
    let moved: Vec<String> = names(&source.join("t-0"))
        .into_iter()
        .filter(|name| {
            fs::metadata(source.join("t-0").join(name)).unwrap().atime() != 1_000_000_000
        })
        .collect();
    assert_eq!(moved, [""; 0]);
}

/// 1.2: "It works on a read-only medium"
#[test]
fn a_read_only_medium_can_be_mounted() {
    needs_fuse!();
    if !is_root() {
        crate::support::skipped("only root can make a read-only mount");
        return;
    }
    let home = scratch();
    data_dir(home.path().join("source"), &[hundred()]);
    let source = home.path().join("medium");
    fs::create_dir(&source).unwrap();
    let bind = "mount --bind \"$1/source\" \"$1/medium\" && mount -o remount,bind,ro \"$1/medium\"";
    let done = sh(bind, &[home.path()]);
    if code(&done) != 0 {
        crate::support::skipped(&format!("no bind mounts here: {}", err(&done)));
        return;
    }
    let _medium = BindMount(source.clone());
    let shown = mount(&source).start().t0().records(0..101);
    assert_eq!(shown, [v(0..100), vec![ENOENT.into()]].concat());
}

/// Unmounts what a test mounted without us.
struct BindMount(std::path::PathBuf);

impl Drop for BindMount {
    fn drop(&mut self) {
        sh("umount -l \"$1\"", &[&self.0]);
    }
}

/// 1.2: "Caches live outside SOURCE (`$XDG_CACHE_HOME/offsetfs`, `--cache-dir`), and everything
/// works without one."
#[test]
fn everything_works_with_and_without_a_cache() {
    needs_fuse!();
    let home = scratch();
    let source = data_dir(home.path().join("source"), &[hundred()]);
    let cache = home.path().join("my-cache");
    let cache = cache.to_str().unwrap();
    let none = mount(&source).env("XDG_CACHE_HOME", "/proc/none").env("HOME", "/proc/none");
    let first = mount(&source).args(&["--cache-dir", cache]);
    let again = mount(&source).args(&["--cache-dir", cache]);
    for how in [none, first, again] {
        let mount = how.start();
        assert_eq!(mount.t0().by_offset("0.."), v_lines(0..100));
        assert_eq!(mount.t0().by_offset(42), "v42");
    }
}

/// 1.2: "beside a running broker"
#[test]
fn a_broker_may_hold_the_lock() {
    needs_fuse!();
    crate::needs_tool!("python3");
    let home = scratch();
    let source = data_dir(home.path().join("source"), &[hundred()]);
    let lock = "import fcntl, sys\nf = open(sys.argv[1], 'a')\nfcntl.lockf(f, fcntl.LOCK_EX)
print('locked', flush=True)\nsys.stdin.read()";
    let mut broker = std::process::Command::new("python3")
        .args(["-c", lock])
        .arg(source.join(".lock"))
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = [0; 6];
    broker.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
    let mut mount = mount(&source).start();
    assert_eq!(mount.t0().records(0..100), v(0..100));
    mount.stop(Signal::TERM);
    drop(broker.stdin.take());
    assert!(broker.wait().unwrap().success());
}

/// 1.4: "Refused, with the reason, before anything is mounted: SOURCE missing, a file, or not a
/// data directory"
#[test]
fn what_is_no_data_directory_is_refused() {
    needs_fuse!();
    let home = scratch();
    let at = home.path().join("mnt");
    fs::create_dir(&at).unwrap();
    fs::create_dir(home.path().join("empty")).unwrap();
    fs::create_dir_all(home.path().join("music/records-and-tapes")).unwrap();
    fs::write(home.path().join("file"), "x").unwrap();
    for name in ["missing", "empty", "music", "file"] {
        let done = mount(home.path().join(name)).refused(&at);
        assert!(err(&done).contains(name), "{}", told(&done));
    }
}

/// 1.4: "(a parent of data directories is named as such); a Redpanda directory"
#[test]
fn a_near_miss_is_named() {
    needs_fuse!();
    let home = scratch();
    let at = home.path().join("mnt");
    fs::create_dir(&at).unwrap();
    data_dir(home.path().join("disks/one"), &[hundred()]);
    data_dir(home.path().join("disks/two"), &[hundred().named("u-1")]);
    let said = err(&mount(home.path().join("disks")).refused(&at));
    assert!(["one", "two", "parent"].iter().any(|word| said.contains(word)), "{said}");
    let other = home.path().join("other");
    fs::create_dir_all(other.join("kafka/t/0_12")).unwrap();
    fs::write(other.join("kafka/t/0_12/0-1-v1.log"), [0; 100]).unwrap();
    let said = err(&mount(&other).refused(&at));
    assert!(said.to_lowercase().contains("redpanda"), "{said}");
}

/// 1.4: "a MOUNTPOINT that is missing, not empty, not a directory, or at, inside or above SOURCE"
#[test]
fn dangerous_mountpoints_are_refused() {
    needs_fuse!();
    let home = scratch();
    let source = data_dir(home.path().join("source"), &[hundred()]);
    fs::create_dir_all(home.path().join("full/x")).unwrap();
    fs::write(home.path().join("file"), "x").unwrap();
    symlink(&source, home.path().join("link")).unwrap();
    let before = snapshot(&source);
    for at in ["missing", "full", "file", "source", "source/t-0", "", "link"] {
        mount(&source).refused(home.path().join(at));
    }
    assert!(before == snapshot(&source));
}

/// 1.4: "an unknown option, by name"
#[test]
fn an_unknown_option_is_named() {
    needs_fuse!();
    let home = scratch();
    let source = data_dir(home.path().join("source"), &[hundred()]);
    let at = home.path().join("mnt");
    fs::create_dir(&at).unwrap();
    for args in [&["-o", "ro,sideways"][..], &["-o", "sideways=3"], &["--sideways"]] {
        let said = err(&mount(&source).args(args).refused(&at));
        assert!(said.contains("sideways"), "{said}");
    }
    for bad in ["list=some", "isolation=loose", "damage=hide", "log_start=x", "max_batch_bytes=x"] {
        let name = bad.split('=').next().unwrap();
        let said = err(&mount(&source).args(&["-o", bad]).refused(&at));
        assert!(said.contains(name), "{said}");
    }
}

/// 1.5: "A dead mount of ours at MOUNTPOINT (`ENOTCONN`) is cleaned up and replaced."
#[test]
fn a_dead_mount_is_replaced() {
    needs_fuse!();
    let mut dead = show(hundred());
    dead.kill();
    assert_eq!(error_of(fs::read_dir(dead.path())), "ENOTCONN");
    let again = mount(dead.source()).at(dead.path()).start();
    assert_eq!(again.t0().records(0..100), v(0..100));
}

/// 1.5: "SIGINT, SIGTERM, SIGHUP unmount"
#[test]
fn signals_unmount() {
    needs_fuse!();
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        show(hundred()).stop(signal);
    }
}

/// 1.5: "lazily when busy"
/// 1.5: "open readers get ENOTCONN"
#[test]
fn a_busy_mount_ends_too() {
    needs_fuse!();
    let mut mount = show(hundred());
    let mut open = fs::File::open(mount.t0().path("by-offset/0..")).unwrap();
    mount.stop(Signal::TERM);
    let mut text = Vec::new();
    assert_eq!(error_of(open.read_to_end(&mut text)), "ENOTCONN");
}

/// 1.5: "`offsetfs umount` waits for the daemon's end, and also works on a dead mount."
#[test]
fn umount_works_on_the_living_and_the_dead() {
    needs_fuse!();
    let mut living = show(hundred());
    let done = umount(living.path());
    assert_eq!(code(&done), 0, "{}", told(&done));
    let ended = Instant::now();
    assert!(living.wait().success() && !is_mounted(living.path()));
    assert!(ended.elapsed() < Duration::from_millis(500), "umount waits for the daemon's end");
    let mut dead = show(hundred());
    dead.kill();
    let done = umount(dead.path());
    assert_eq!(code(&done), 0, "{}", told(&done));
    assert!(!is_mounted(dead.path()));
}

/// 1.6: "Mounting takes well under a second whatever the size (10,000 partitions: under 1 s, under
/// 100 MiB)"
#[test]
fn ten_thousand_partitions_are_mounted_at_once() {
    needs_fuse!();
    let home = scratch();
    let source = data_dir(home.path().join("source"), &[hundred()]);
    let first = source.join("t-0/00000000000000000000.log");
    for n in 1..10_000 {
        let directory = source.join(format!("t-{n}"));
        fs::create_dir(&directory).unwrap();
        fs::hard_link(&first, directory.join("00000000000000000000.log")).unwrap();
    }
    let begun = Instant::now();
    let mount = mount(&source).live_source().peak_mib(100).start();
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(1), "{took:?}");
    assert_eq!(mount.partitions().len(), 10_000);
    assert_eq!(mount.partition("t-9999").by_offset(7), "v7");
}

/// 1.6: "descriptors and maps are bounded (works with `ulimit -n 256`)"
#[test]
fn few_descriptors_are_enough() {
    needs_fuse!();
    let home = scratch();
    let partitions: Vec<_> = (0..400).map(|n| hundred().named(&format!("t-{n}"))).collect();
    let source = data_dir(home.path().join("source"), &partitions);
    let at = home.path().join("mnt");
    fs::create_dir(&at).unwrap();
    let script = "ulimit -n 256; \"$1\" mount \"$2\" \"$3\" & pid=$!
        for i in $(seq 100); do [ -e \"$3/t-0\" ] && break; sleep 0.1; done
        sum=$(cat \"$3\"/t-*/by-offset/0.. | md5sum); kill $pid; wait $pid; echo \"$? $sum\"";
    let done = sh(script, &[Path::new(OFFSETFS), &source, &at]);
    let all = v_lines(0..100).bytes().repeat(400);
    fs::write(home.path().join("all"), all).unwrap();
    let sum = out(&sh("md5sum < \"$1\"", &[home.path().join("all")]));
    assert_eq!(out(&done), format!("0 {sum}"), "{}", told(&done));
}

/// 1.7: "Only he sees the mount unless `allow_other`, which brings `default_permissions`."
#[test]
fn allow_other_brings_default_permissions() {
    needs_fuse!();
    let flags = |options: &[&str]| {
        let mount = show_with(hundred(), options);
        mount_entry(mount.path()).expect("mounted").2
    };
    assert!(!flags(&[]).contains("allow_other"));
    if is_root() {
        let flags = flags(&["allow_other"]);
        assert!(flags.contains("allow_other") && flags.contains("default_permissions"), "{flags}");
    }
}

/// 1.8: "Mounts are `nosuid,nodev,noexec`."
#[test]
fn a_mount_is_harmless() {
    needs_fuse!();
    let mount = show_with(hundred(), &["ro"]);
    let (flags, _, _) = mount_entry(mount.path()).expect("mounted");
    for flag in ["nosuid", "nodev", "noexec"] {
        assert!(flags.split(',').any(|set| set == flag), "{flag} in {flags}");
    }
}

/// 1.8: "Files inside SOURCE are opened without following symbolic links"
#[test]
fn linked_files_are_not_followed() {
    needs_fuse!();
    let home = scratch();
    let source = data_dir(home.path().join("source"), &[hundred(), hundred().named("u-0")]);
    let log = source.join("t-0/00000000000000000000.log");
    fs::rename(&log, home.path().join("log")).unwrap();
    symlink(home.path().join("log"), &log).unwrap();
    let mount = mount(&source).start();
    assert_eq!(mount.partition("u-0").by_offset(5), "v5");
    assert_ne!(mount.t0().by_offset(5), "v5");
    let real = fs::read(home.path().join("log")).unwrap();
    assert_ne!(mount.t0().read("segments/00000000000000000000.log"), bytes(real));
}

/// 1.8: "a partition directory that is itself a link is followed only with `-o follow_symlinks`"
#[test]
fn linked_partitions_are_followed_on_request() {
    needs_fuse!();
    let home = scratch();
    let source = data_dir(home.path().join("source"), &[hundred(), hundred().named("u-0")]);
    fs::rename(source.join("t-0"), home.path().join("elsewhere")).unwrap();
    symlink(home.path().join("elsewhere"), source.join("t-0")).unwrap();
    assert_ne!(mount(&source).start().t0().by_offset(5), "v5");
    let followed = mount(&source).args(&["-o", "follow_symlinks"]).start();
    assert_eq!(followed.t0().records(0..100), v(0..100));
}

/// A plain user mounts, reads, is alone with it, and unmounts. He gets a /dev/fuse that he may open
/// in a mount namespace of the script's own. `$1` the program, `$2` a directory, `$3` a data
/// directory.
const AS_NOBODY: &str = r#"set -e; cp "$1" "$2/offsetfs"; cp -r "$3" "$2/source"; mkdir "$2/mnt"
    chmod -R a+rX "$2/source" "$2/offsetfs"; chmod 755 "$2"; chown nobody "$2/mnt"
    mknod -m 666 "$2/fuse" c 10 229; mount --bind "$2/fuse" /dev/fuse
    as() { setpriv --reuid=65534 --regid=65534 --clear-groups env HOME=/nonexistent "$@"; }
    as "$2/offsetfs" mount "$2/source" "$2/mnt" & pid=$!
    for i in $(seq 50); do as test -e "$2/mnt/a-1-0" && break; sleep 0.1; done
    as cat "$2/mnt/a-1-0/by-offset/0.."; ls "$2/mnt" 2>&1 | tail -1
    as fusermount3 -u "$2/mnt"; wait $pid; echo "ended with $?""#;

/// 1.7: "A plain user can mount what he can read (through `fusermount3`)."
#[test]
fn a_plain_user_can_mount() {
    needs_fuse!();
    let tools = ["fusermount3", "unshare", "setpriv"];
    if !is_root() || !tools.into_iter().all(crate::support::has_tool) {
        return crate::support::skipped("needs root, fusermount3, unshare and setpriv");
    }
    let home = scratch();
    let source = fixture("clean").join("data");
    let namespace = "unshare --mount --propagation private bash -c \"$@\"";
    let args = [Path::new(AS_NOBODY), Path::new("bash"), Path::new(OFFSETFS), home.path(), &source];
    let done = sh(namespace, &args);
    let rows = crate::support::expected::partition("clean", "a-1-0").rows();
    let values = lines(rows.iter().map(Row::value)).text();
    let rest = out(&done).strip_prefix(&values).map(str::to_string);
    let rest = rest.unwrap_or_else(|| panic!("{}", told(&done)));
    assert!(rest.contains("ermission denied"), "root sees nothing: {}", told(&done));
    assert!(rest.ends_with("ended with 0\n"), "{}", told(&done));
}
