//! 0, 2.12, 6.5: what may lie in a data directory, and what becomes of it.

use std::fs;
use std::os::unix::fs::symlink;

use crate::needs_fuse;
use crate::support::kafkalog::{
    batch, data_dir, hundred, partition, partition_from, plain, recs, sized_layout,
};
use crate::support::mount::{names, v, v_lines};
use crate::support::{ENOENT, bytes, copy, lines, mount, out, scratch, sh, sh_ok, show};

/// 2.12: "Foreign things in SOURCE (`lost+found`, files, unparsable names) are skipped with a note,
/// never fatal."
#[test]
fn foreign_things_are_skipped() {
    needs_fuse!();
    let home = scratch();
    let source = data_dir(home.path().join("source"), &[hundred()]);
    fs::create_dir(source.join("lost+found")).unwrap();
    fs::create_dir(source.join("notes")).unwrap();
    symlink("/no/such/place", source.join("notes/nowhere")).unwrap();
    symlink("loop", source.join("loop")).unwrap();
    sh_ok("mkfifo \"$1/pipe-0\"", &[&source]);
    for file in [".DS_Store", "core.123", "README", "x-1", "t-0/foo.log", "t-0/20.log", "t-0/.nfs1"]
    {
        fs::write(source.join(file), "junk").unwrap();
    }
    for name in ["t", "t-", "t-x", "t-4294967296", "t-0.x"] {
        copy(source.join("t-0"), source.join(name));
    }
    let mount = mount(&source).start();
    assert_eq!(mount.partitions(), ["t-0"]);
    assert_eq!(mount.t0().records(0..101), [v(0..100), vec![ENOENT.into()]].concat());
    let noted = mount.stderr() + &names(&mount.path().join("_other")).join("\n");
    assert!(noted.contains("lost+found"), "{noted}");
}

/// 2.12: "names are passed through unchanged"
#[test]
fn look_alikes_are_never_merged() {
    needs_fuse!();
    let home = scratch();
    let other = partition().add(&batch(0, recs(200..205))).named("t-01");
    let source = data_dir(home.path().join("source"), &[hundred(), other]);
    let mount = mount(&source).start();
    assert_eq!(mount.t0().by_offset(3), "v3");
    assert!([ENOENT.into(), bytes("v203")].contains(&mount.partition("t-01").by_offset(3)));
}

/// 2.12: "never fatal"
#[test]
fn broken_small_files_are_survived() {
    needs_fuse!();
    for (name, junk) in [
        ("t-0/leader-epoch-checkpoint", &[0; 64][..]),
        ("t-0/partition.metadata", b"\xff\xfe"),
        ("t-0/00000000000000000100.snapshot", b"snap"),
        ("recovery-point-offset-checkpoint", b"0\n7\nt 0 10\n"),
        ("replication-offset-checkpoint", b"\xff\xfegarbage\n\n"),
        ("log-start-offset-checkpoint", b"0\n1\nt 0 forty\n"),
        ("log-start-offset-checkpoint", b"9\n1\nt 0 45\n"),
        ("log-start-offset-checkpoint", b""),
        ("meta.properties", b"\0\0\0"),
    ] {
        let home = scratch();
        let source = data_dir(home.path().join("source"), &[hundred()]);
        fs::write(source.join(name), junk).unwrap();
        let mount = mount(&source).start();
        assert_eq!(mount.t0().records(0..100), v(0..100), "{name}");
        assert_eq!(mount.t0().number("log-start-offset"), 0, "{name}");
        assert_eq!(mount.t0().number("high-watermark"), 100, "{name}");
    }
}

/// 1.1: "`offsetfs mount SOURCE MOUNTPOINT`"
/// 0 is the page's opening: one partition directory may be SOURCE, "which then appears as".
#[test]
fn one_partition_may_be_source() {
    needs_fuse!();
    let home = scratch();
    let source =
        data_dir(home.path().join("source"), &[hundred().log_start(45), hundred().named("u-1")]);
    let mount = mount(source.join("t-0")).start();
    assert_eq!(mount.partitions(), ["t-0"]);
    assert_eq!(mount.t0().records(45..100), v(45..100));
    assert_eq!(mount.t0().envelope(50)["topic"], "t");
}

/// 6.5: "a finished `.swap` replaces what it covers, `.cleaned` and `.deleted` are not part of the
/// log"
#[test]
fn leftovers_are_read_as_a_broker_would() {
    needs_fuse!();
    let swapped = plain(0..50).build();
    let compacted = {
        let mut kept = plain(0..50);
        kept.records.retain(|record| record.value.as_ref().unwrap().ends_with(b"7"));
        for record in &mut kept.records {
            let text = String::from_utf8(record.value.clone().unwrap()).unwrap();
            record.delta = text[1..].parse().ok();
        }
        kept.last_delta = Some(49);
        kept.build()
    };
    let name = |suffix: &str| format!("{:020}.{suffix}", 0);
    let part = partition()
        .add_bytes(swapped)
        .roll(50)
        .add(&plain(50..60))
        .extra(&name("log.swap"), compacted)
        .extra(&name("index.swap"), "")
        .extra(&name("timeindex.swap"), "")
        .extra(&format!("{:020}.log.cleaned", 50), plain(50..51).build())
        .extra(&format!("{:020}.log.deleted", 60), plain(60..70).build());
    let mount = show(part);
    let shown = mount.t0();
    assert_eq!(shown.by_offset("0..50"), lines(["v7", "v17", "v27", "v37", "v47"]));
    assert_eq!(shown.by_offset("50.."), v_lines(50..60));
    let leftovers = shown.report()["leftovers"].to_string();
    for suffix in ["log.cleaned", "log.deleted"] {
        assert!(leftovers.contains(suffix), "{leftovers}");
    }
    let script = "cd \"$1\" && find . -name '*.log.deleted' -size +0";
    let found = sh(script, &[mount.path()]);
    assert_eq!(out(&found).lines().count(), 1, "_other/ or segments/ has it");
}

/// 6.5: "of two segments that hold an offset the one with the greatest base offset not above it
/// answers; `report.json` names what is shadowed"
#[test]
fn of_two_segments_the_later_answers() {
    needs_fuse!();
    let overlapping =
        batch(0, (0..100).map(|n| crate::support::kafkalog::rec(format!("old{n}"))).collect());
    let part = partition().add(&overlapping).roll(50).add(&plain(50..120));
    let mount = show(part);
    let shown = mount.t0();
    assert_eq!(shown.by_offset(49), "old49");
    assert_eq!(shown.by_offset(50), "v50");
    assert_eq!(shown.by_offset(99), "v99");
    assert_eq!(shown.by_offset("48..52"), lines(["old48", "old49", "v50", "v51"]));
    assert_eq!(shown.listed(), (0..120).collect::<Vec<_>>());
    assert_ne!(shown.report()["shadowed"].to_string(), "[]");
}

/// 2.5: "Offsets may have holes (compaction, transactions)"
#[test]
fn empty_segments_are_stepped_over() {
    needs_fuse!();
    let part = partition().add(&plain(0..10)).roll(10).roll(20).add(&plain(20..30)).roll(30);
    let mount = show(part);
    let shown = mount.t0();
    let want = [v(0..10), vec![ENOENT.into(); 10], v(20..30), vec![ENOENT.into()]].concat();
    assert_eq!(shown.records(0..31), want);
    assert_eq!(shown.by_offset("8..22"), lines(["v8", "v9", "v20", "v21"]));
    let empty = show(partition_from(500));
    for name in ["log-start-offset", "log-end-offset", "high-watermark"] {
        assert_eq!(empty.t0().number(name), 500, "{name}");
    }
    assert_eq!(empty.t0().by_offset("0.."), "");
    assert_eq!(empty.t0().by_offset("-5.."), "");
    assert_eq!(empty.t0().by_offset(500), ENOENT);
    assert_eq!((empty.t0().names("by-offset").len(), empty.t0().names("by-time").len()), (0, 0));
}

/// 6.3: "suspicious timestamps (future, seconds for milliseconds)"
#[test]
fn suspicious_timestamps_are_reported() {
    needs_fuse!();
    let at = |ts: i64| partition().add(&batch(0, vec![crate::support::kafkalog::rec("x").at(ts)]));
    let said = |ts: i64| {
        let mount = show(at(ts));
        // What is reported is what is known: reading makes it known.
        assert_eq!(mount.t0().by_offset(0), "x");
        mount.t0().report()["timestamps"].to_string()
    };
    let fine = said(1_700_000_000_000);
    assert_ne!(said(1_700_000_000), fine, "seconds");
    assert_ne!(said(9_999_999_999_999), fine, "the future");
}

/// 2.2: "Any valid name resolves, listed or not."
#[test]
fn every_offset_of_many_segments_resolves() {
    needs_fuse!();
    let mount = show(sized_layout(3000, 7, 49));
    let all: Vec<_> = mount.t0().records(0..3000);
    assert!(all == v(0..3000));
}
