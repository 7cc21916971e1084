//! 1.3, 4.9, 5.2: who may write in a data directory, and its partitions.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::needs_fuse;
use crate::support::got::error_of;
use crate::support::kafkalog::hundred;
use crate::support::mount::{mount, names, v, wait_for, writable_with};
use crate::support::writing::{add, files, fresh, put_to, stopped};
use crate::support::written::{configure, create, writable};
use crate::support::{ENOENT, err, has_tool, scratch, sh_ok, skipped};

/// Does another process hold Kafka's lock?
fn is_locked(directory: &Path) -> bool {
    let inode = fs::metadata(directory.join(".lock")).map(|data| {
        use std::os::unix::fs::MetadataExt;
        data.ino()
    });
    let locks = fs::read_to_string("/proc/locks").unwrap();
    inode.is_ok_and(|inode| locks.lines().any(|line| line.contains(&format!(":{inode} "))))
}

/// 1.3: "Writable takes a lock on Kafka's own `.lock` that keeps a broker out, and is refused while
/// a broker (or another of us) holds it."
/// 1.3: "One writing process for a data directory."
#[test]
fn a_second_writer_is_refused() {
    needs_fuse!();
    let mut first = writable_with(&[hundred()]);
    let source = first.source().to_path_buf();
    assert!(is_locked(&source));
    let at = scratch();
    let done = mount(&source).args(&["--rw"]).refused(at.path());
    assert!(err(&done).to_lowercase().contains("lock"), "{}", err(&done));
    let beside = mount(&source).live_source().start();
    add(&first, "append", "v100\n");
    wait_for(Duration::from_secs(5), "the record in the other mount", || {
        beside.t0().by_offset(100) == "v100"
    });
    let appended = Command::new(crate::support::OFFSETFS)
        .arg("append")
        .arg(source.join("t-0"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(!appended.status.success() && err(&appended).contains("lock"));
    stopped(&mut first);
    assert!(!is_locked(&source));
}

/// 1.3: "is refused while a broker (or another of us) holds it"
#[test]
fn a_lock_of_a_stranger_is_respected() {
    needs_fuse!();
    if !has_tool("python3") {
        return skipped("python3 is not installed");
    }
    let home = scratch();
    let source = crate::support::kafkalog::data_dir(home.path().join("source"), &[hundred()]);
    let script = "import fcntl, sys, time
f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX); print('held', flush=True)
sys.stdin.read()";
    let mut holder = Command::new("python3")
        .args(["-c", script])
        .arg(source.join(".lock"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut word = [0; 4];
    std::io::Read::read_exact(holder.stdout.as_mut().unwrap(), &mut word).unwrap();
    let at = scratch();
    let done = mount(&source).args(&["--rw"]).refused(at.path());
    assert!(err(&done).to_lowercase().contains("lock"), "{}", err(&done));
    drop(holder.stdin.take());
    holder.wait().unwrap();
    let after = writable(&source);
    add(&after, "append", "v100\n");
}

/// 1.3: "An empty directory is a fresh data directory for `--rw`."
#[test]
fn an_empty_directory_is_a_fresh_data_directory() {
    needs_fuse!();
    let mut first = fresh("");
    add(&first, "append", "v0\n");
    let source = stopped(&mut first);
    assert!(source.join(".kafka_cleanshutdown").exists());
    assert_eq!(mount(&source).start().t0().records(0..2), [v(0..1)[0].clone(), ENOENT.into()]);
    let empty = scratch();
    let at = scratch();
    mount(empty.path()).refused(at.path());
}

/// 1.3: "With one partition directory as SOURCE, lock, marker and checkpoints are those of its
/// parent, which must be a data directory."
#[test]
fn one_partition_is_written_under_the_lock_of_its_parent() {
    needs_fuse!();
    let home = scratch();
    let parts = [hundred().log_start(33), hundred().named("u-7")];
    let source = crate::support::kafkalog::data_dir(home.path().join("source"), &parts);
    let mut one = writable(source.join("t-0"));
    assert!(is_locked(&source));
    assert_eq!(one.partitions(), ["t-0"]);
    add(&one, "append", "v100\n");
    assert!(!source.join(".kafka_cleanshutdown").exists());
    assert_eq!(
        one.t0().records([32, 33, 100])[1..],
        v(0..101)[33..].iter().step_by(67).cloned().collect::<Vec<_>>()
    );
    assert_eq!(one.t0().by_offset(32), ENOENT);
    stopped(&mut one);
    assert!(source.join(".kafka_cleanshutdown").exists() && !is_locked(&source));
    let points = fs::read_to_string(source.join("recovery-point-offset-checkpoint")).unwrap();
    assert!(points.lines().any(|line| line == "t 0 101"), "{points}");
    let starts = fs::read_to_string(source.join("log-start-offset-checkpoint")).unwrap();
    assert!(starts.lines().any(|line| line == "t 0 33"), "{starts}");
}

/// 4.9: "`mkdir orders-1` creates a partition; `rmdir` deletes one that is empty of data, or any
/// whose config has `delete.on.rmdir=true`."
#[test]
fn partitions_come_and_go() {
    needs_fuse!();
    let mount = fresh("");
    let at = |name: &str| mount.path().join(name);
    create(&mount, "orders-1", "");
    create(&mount, "a.b_c-d-0", "");
    assert_eq!(mount.partitions(), ["a.b_c-d-0", "orders-1", "t-0"]);
    assert_eq!(mount.partition("orders-1").number("log-end-offset"), 0);
    assert_eq!(error_of(fs::create_dir(at("orders-1"))), "EEXIST");
    fs::remove_dir(at("orders-1")).unwrap();
    assert_eq!(error_of(fs::remove_dir(at("orders-1"))), "ENOENT");
    add(&mount, "append", "v0\n");
    assert_eq!(error_of(fs::remove_dir(at("t-0"))), "ENOTEMPTY");
    assert_eq!(mount.t0().by_offset(0), "v0");
    configure(&mount, "t-0", "delete.on.rmdir=true");
    fs::remove_dir(at("t-0")).unwrap();
    assert_eq!(mount.partitions(), ["a.b_c-d-0"]);
    create(&mount, "t-0", "");
    assert_eq!((mount.t0().by_offset(0), mount.t0().number("log-end-offset")), (ENOENT.into(), 0));
    add(&mount, "append", "another\n");
    assert_eq!(mount.t0().by_offset("0.."), "another\n");
}

/// 5.2: "Nothing is ever placed in SOURCE that a broker would refuse to load."
#[test]
fn no_name_that_a_broker_would_refuse() {
    needs_fuse!();
    let mut mount = fresh("segment.bytes=400 index.interval.bytes=0");
    for name in ["t", "t-", "-0", "t-x", "t-01", "t-2147483648", "t t-0", "..-0", "x\u{e9}-0"] {
        assert_ne!(error_of(fs::create_dir(mount.path().join(name))), "ok", "{name}");
    }
    let long = "l".repeat(250);
    assert_ne!(error_of(fs::create_dir(mount.path().join(format!("{long}-0")))), "ok");
    for n in 0..60 {
        add(&mount, "append", format!("v{n}\n"));
    }
    fs::write(mount.t0().path("log-start-offset"), "25\n").unwrap();
    let source = stopped(&mut mount);
    let known = ["log", "index", "timeindex", "snapshot"];
    for path in fs::read_dir(source.join("t-0")).unwrap().map(|entry| entry.unwrap().path()) {
        let extension = path.extension().unwrap_or_default().to_str().unwrap().to_string();
        let stem = path.file_stem().unwrap().to_str().unwrap();
        let is_segment = stem.len() == 20 && stem.bytes().all(|b| b.is_ascii_digit());
        assert!(is_segment || !known.contains(&&*extension), "{}", path.display());
    }
    let directories = names(&source).into_iter().filter(|name| source.join(name).is_dir());
    assert_eq!(directories.collect::<Vec<_>>(), ["t-0"]);
}

/// 4.9: "Writing a number to `log-start-offset` deletes the records before it (beyond the log end:
/// EINVAL; below the log start: nothing changes)."
#[test]
fn the_log_start_moves_up_only() {
    needs_fuse!();
    let mut first = writable_with(&[crate::support::kafkalog::sized_layout(100, 10, 20)]);
    let shown = first.t0();
    assert_eq!(put_to(&shown, "log-start-offset", "45\n"), "3");
    assert_eq!(shown.records([44, 45]), [ENOENT.into(), v(45..46)[0].clone()]);
    assert_eq!(files(&first.source().join("t-0"), "log").len(), 3);
    for bad in ["101\n", "-1\n", "046\n", "x\n", "46 47\n"] {
        assert_eq!(put_to(&shown, "log-start-offset", bad), "EINVAL", "{bad}");
    }
    assert_eq!(put_to(&shown, "log-start-offset", "7\n"), "2");
    assert_eq!(shown.number("log-start-offset"), 45);
    let source = stopped(&mut first);
    let second = writable(&source);
    assert_eq!(second.t0().number("log-start-offset"), 45);
    assert_eq!(put_to(&second.t0(), "log-start-offset", "100\n"), "4");
    assert_eq!(second.t0().by_offset("0.."), "");
    add(&second, "append", "v100\n");
    assert_eq!(second.t0().listed(), [100]);
}

/// 1.6: "descriptors and maps are bounded (works with `ulimit -n 256`)"
/// 4.13: "every record whose `write` returned is there after the next mount"
#[test]
fn a_thousand_partitions_are_written_with_few_descriptors() {
    needs_fuse!();
    let home = scratch();
    let source = home.path().join("source");
    fs::create_dir(&source).unwrap();
    let started = || {
        let how = mount(&source).args(&["--rw"]).live_source();
        how.descriptors_max(256).peak_mib(200).start()
    };
    let mut first = started();
    for n in 0..1000 {
        fs::create_dir(first.path().join(format!("many-{n}"))).unwrap();
    }
    for round in 0..2 {
        for n in 0..1000 {
            let text = format!("{n} in round {round}\n");
            let shown = first.partition(&format!("many-{n}"));
            assert_eq!(put_to(&shown, "append", &text), text.len().to_string(), "many-{n}");
        }
    }
    assert!(first.peak_resident_mib() < 200, "{} MiB", first.peak_resident_mib());
    let limits = format!("/proc/{}/limits", first.pid().as_raw_nonzero());
    let limits = fs::read_to_string(limits).unwrap();
    assert!(limits.lines().any(|line| line.starts_with("Max open files") && line.contains("256")));
    stopped(&mut first);
    let second = started();
    let shown = sh_ok("cat \"$1\"/many-*/by-offset/0.. | sort", &[second.path()]);
    let mut want: Vec<String> =
        (0..1000).flat_map(|n| [0, 1].map(|r| format!("{n} in round {r}\n"))).collect();
    want.sort();
    let mut shown: Vec<String> =
        String::from_utf8(shown).unwrap().split_inclusive('\n').map(Into::into).collect();
    shown.sort();
    assert!(shown == want, "{} of 2,000 lines", shown.len());
    assert!(second.peak_resident_mib() < 200, "{} MiB", second.peak_resident_mib());
}
