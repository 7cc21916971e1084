//! 2: what the tree holds, its listings, attributes and numbers.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use serde_json::json;

use crate::needs_fuse;
use crate::support::kafkalog::{
    self, Partition, T0, batch, data_dir, emptied, hundred, marker, null, partition, plain, rec,
    recs, sized_layout,
};
use crate::support::mount::{names, v, v_lines, wait_for};
use crate::support::{
    EIO, ENOENT, bytes, copy, lines, mount, out, scratch, sh, sh_ok, show, show_with,
};

/// 2: "value of record 680, byte for byte"
/// 2: "key of record 680, byte for byte (ENOENT when the key is NULL)"
#[test]
fn values_and_keys_come_byte_for_byte() {
    needs_fuse!();
    let every: Vec<u8> = (0..=255).collect();
    let records = vec![
        rec(&every).key(&every),
        rec("no newline").key(""),
        rec("two\nlines\n"),
        null().key("k"),
        rec(""),
    ];
    let mount = show(partition().add(&batch(0, records)));
    let shown = mount.t0();
    let values = [bytes(every.clone()), bytes("no newline"), bytes("two\nlines\n")];
    assert_eq!(shown.records(0..3), values);
    assert_eq!(shown.records(3..6), [bytes(""), bytes(""), ENOENT.into()]);
    let keys: Vec<_> = (0..5).map(|n| shown.by_offset(format!("{n}.key"))).collect();
    assert_eq!(keys, [bytes(every), bytes(""), ENOENT.into(), bytes("k"), ENOENT.into()]);
}

/// 2: "record 680 as one JSON envelope and a newline"
#[test]
fn a_record_is_also_one_envelope() {
    needs_fuse!();
    let mount = show(partition().add(&plain(0..50).epoch(3)));
    let text = mount.t0().by_offset("42.json").text();
    assert!(text.ends_with("}\n") && text.lines().count() == 1, "{text:?}");
    assert_eq!(
        mount.t0().envelope(42),
        json!({"topic": "t", "partition": 0, "offset": 42, "tstype": "create",
            "ts": T0 + 42_000, "key": null, "payload": "v42", "leader_epoch": 3})
    );
}

/// 2: "the partition's real files, read-only: cp -r gives a valid Kafka partition"
#[test]
fn segments_are_the_real_files() {
    needs_fuse!();
    let mount = show(sized_layout(100, 10, 30));
    let source = mount.source().join("t-0");
    let segments = mount.t0().path("segments");
    let logs = |all: Vec<String>| -> Vec<String> {
        all.into_iter().filter(|name| name.starts_with('0')).collect()
    };
    assert_eq!(logs(names(&segments)), logs(names(&source)));
    for name in names(&segments) {
        let (shown, real) = (fs::read(segments.join(&name)), fs::read(source.join(&name)));
        assert!(shown.unwrap() == real.unwrap(), "{name}");
    }
    let home = scratch();
    fs::create_dir(home.path().join("restored")).unwrap();
    sh_ok("cp -r \"$1\" \"$2/restored/t-0\"", &[segments.as_path(), home.path()]);
    let restored = crate::support::mount(home.path().join("restored")).live_source().start();
    assert_eq!(restored.t0().by_offset("0.."), v_lines(0..100));
}

/// 2: "one decimal number and a newline"
/// 2: "lines, as a broker would load them"
#[test]
fn numbers_and_epochs_are_lines() {
    needs_fuse!();
    let mut part = partition().add(&plain(0..20).epoch(1)).add(&plain(20..40).epoch(5));
    part.epochs = vec![(1, 0), (5, 20)];
    let mount = show(part.log_start(7).high_watermark(30));
    let shown = mount.t0();
    assert_eq!(shown.read("log-start-offset"), "7\n");
    assert_eq!(shown.read("high-watermark"), "30\n");
    assert_eq!(shown.read("log-end-offset"), "40\n");
    assert_eq!(shown.read("leader-epochs"), "1 7\n5 20\n");
}

/// 2: "the effective settings as name=value lines, topic property names"
#[test]
fn settings_are_shown() {
    needs_fuse!();
    let mount = show(hundred());
    let text = mount.t0().read("config").text();
    let lines: BTreeSet<&str> = text.lines().collect();
    for line in [
        "segment.bytes=1073741824",
        "index.interval.bytes=4096",
        "max.message.bytes=1048588",
        "compression.type=producer",
        "retention.ms=-1",
        "retention.bytes=-1",
        "segment.ms=9223372036854775807",
    ] {
        assert!(lines.contains(line), "{line} in {text}");
    }
    for line in lines.iter().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        assert!(line.contains('='), "{line}");
    }
}

/// 2: "append  append.jsonl  append.tsv  append.nul  append.raw      writable mounts only"
#[test]
fn a_partition_holds_these_names() {
    needs_fuse!();
    let mount = show(hundred());
    let want = [
        "by-offset",
        "by-time",
        "config",
        "high-watermark",
        "leader-epochs",
        "log-end-offset",
        "log-start-offset",
        "report.json",
        "segments",
    ];
    assert_eq!(mount.t0().names(""), want);
}

/// 2: "what is in SOURCE but not a live partition: -delete, -stray, -future directories"
#[test]
fn dying_partitions_are_in_other() {
    needs_fuse!();
    let home = scratch();
    let source = data_dir(home.path().join("source"), &[hundred()]);
    let id = "0123456789abcdef0123456789abcdef";
    let dying = ["delete", "stray", "future"].map(|end| format!("u-0.{id}-{end}"));
    for name in &dying {
        copy(source.join("t-0"), source.join(name));
    }
    let mount = mount(&source).start();
    assert_eq!(mount.partitions(), ["t-0"]);
    let other = names(&mount.path().join("_other"));
    assert!(dying.iter().all(|name| other.contains(name)), "{other:?}");
}

/// 2.2: "A listing of `by-offset` names every data record while there are at most 1,000"
/// 2.2: "Ranges and formats are never listed."
#[test]
fn a_small_partition_is_listed_whole() {
    needs_fuse!();
    assert_eq!(show(hundred()).t0().listed(), (0..100).collect::<Vec<_>>());
    let thousand = show(sized_layout(1000, 50, 400));
    assert_eq!(thousand.t0().listed(), (0..1000).collect::<Vec<_>>());
}

/// 2.2: "otherwise an even sample that holds the first and the last, between 500 and 1,000 names"
/// 2.2: "Any valid name resolves, listed or not."
#[test]
fn a_large_partition_is_listed_evenly() {
    needs_fuse!();
    for count in [1001, 3777, 20_000] {
        let mount = show(sized_layout(count, 37, 37 * 40));
        let shown = mount.t0();
        let listed = shown.listed();
        assert!((500..=1000).contains(&listed.len()), "{} of {count}", listed.len());
        assert_eq!((listed[0], listed[listed.len() - 1]), (0, count - 1));
        let widest = listed.windows(2).map(|pair| pair[1] - pair[0]).max();
        let even = 2 * count / i64::try_from(listed.len()).unwrap() + 1;
        assert!(widest <= Some(even), "{widest:?} of {count}");
        for n in (0..count).step_by(311) {
            assert_eq!(shown.by_offset(n), bytes(format!("v{n}")));
        }
    }
}

/// 2.2: "otherwise an even sample that holds the first and the last"
/// 2.3: "`grep -r`, `find`, `tar`, `du` over a mount end."
/// 6.4: "No input crashes, hangs or bloats the daemon"
///
/// A little junk before a segment of a great name is damage of nearly 2^63 offsets.
#[test]
fn a_listing_of_endless_damage_ends() {
    needs_fuse!();
    let far = i64::MAX - 100;
    let part = hundred().add_bytes(b"J".repeat(77)).roll(far);
    for options in [&[][..], &["list=all"]] {
        let mount = show_with(part.clone(), options);
        let listed = mount.t0().listed();
        assert!((500..=1100).contains(&listed.len()), "{}", listed.len());
        assert_eq!((listed.first(), listed.last()), (Some(&0), Some(&(far - 1))));
        assert_eq!(mount.t0().by_offset(99), "v99");
        assert_eq!(mount.t0().by_offset(far - 1), EIO);
    }
}

/// 2.2: "`-o list=all` lists all."
#[test]
fn all_records_are_listed_on_request() {
    needs_fuse!();
    let mount = show_with(sized_layout(3000, 100, 1000), &["list=all"]);
    assert_eq!(mount.t0().listed(), (0..3000).collect::<Vec<_>>());
}

/// 2.2: "`by-time` lists the times of the same records, in RFC 3339 UTC with milliseconds (beyond
/// the year 9999 as bare milliseconds), each name once."
#[test]
fn times_are_listed_once_each() {
    needs_fuse!();
    let times = [T0, T0, T0 + 250, T0 + 1000, T0 + 250, 253_402_300_799_999, 253_402_300_800_000];
    let records = times.map(|ts| rec("x").at(ts)).to_vec();
    let mount = show(partition().add(&batch(0, records)));
    let want = [
        "2023-11-14T22:13:20.000Z",
        "2023-11-14T22:13:20.250Z",
        "2023-11-14T22:13:21.000Z",
        "253402300800000",
        "9999-12-31T23:59:59.999Z",
    ];
    assert_eq!(mount.t0().names("by-time"), want);
}

/// 2.3: "Nothing in the tree blocks for data and nothing is unbounded: `grep -r`, `find`, `tar`,
/// `du` over a mount end."
#[test]
fn walkers_end() {
    needs_fuse!();
    let home = scratch();
    let big = sized_layout(100_000, 500, 10_000);
    let source = data_dir(home.path().join("source"), &[big, hundred().named("u-3")]);
    let mount = mount(&source).start();
    for command in [
        "grep -rc v77 . | wc -l",
        "find . -type f | wc -l",
        "tar cf - . | wc -c",
        "du -sh .",
        "ls -lR . | wc -l",
        "find . -type f -exec cksum {} + | wc -l",
        "cp -r . \"$2\"",
        "find . -newermt 2024-01-01 | wc -l",
        "ls -f t-0/by-offset | head -3",
    ] {
        let script = format!("set -o pipefail; cd \"$1\" && {command}");
        let copy = home.path().join("copy");
        let done = sh(&script, &[mount.path(), &copy]);
        let quiet = !String::from_utf8_lossy(&done.stderr).contains("rror");
        assert!(quiet && [Some(0), Some(141)].contains(&done.status.code()), "{command} {done:?}");
    }
    let all = v_lines(0..100_000);
    assert_eq!(mount.t0().metadata("by-offset/0..").size(), all.clone().bytes().len() as u64);
    assert!(mount.t0().by_offset("0..") == all);
}

/// 2.5: "Control records are not data: they are no names, no lines, and not the last record;
/// `log-end-offset` counts them."
#[test]
fn control_records_are_no_data() {
    needs_fuse!();
    let part = partition()
        .add(&batch(0, recs(0..5)).producer(1))
        .add(&marker(5, true, 1))
        .add(&emptied(6, 9));
    let mount = show(part);
    let shown = mount.t0();
    assert_eq!(shown.records(0..11), [v(0..5), vec![ENOENT.into(); 6]].concat());
    assert_eq!(shown.by_offset("3.."), v_lines(3..5));
    assert_eq!(shown.by_offset("-1.."), v_lines(4..5));
    assert_eq!(shown.listed(), [0, 1, 2, 3, 4]);
    assert_eq!(shown.number("log-end-offset"), 10);
}

/// 2.7: "mtime of a record file is the record's timestamp (the segment's mtime when it has none;
/// clamped to what the kernel can hold), of a partition's directories that of its newest segment
/// file."
#[test]
fn dates_are_those_of_the_records() {
    needs_fuse!();
    let home = scratch();
    let times = [T0 + 123, -1, i64::MAX, 0];
    let records = times.map(|ts| rec("x").at(ts)).to_vec();
    let mut odd = batch(0, records);
    odd.base_ts = Some(0);
    let source = data_dir(home.path().join("source"), &[partition().add(&odd)]);
    sh_ok(
        "cd \"$1\"/t-0 && touch -d @1000000000 0*.log && touch -d @999999999 0*index",
        &[&source],
    );
    let mount = mount(&source).start();
    let shown = mount.t0();
    let first = shown.metadata("by-offset/0");
    assert_eq!((first.mtime(), first.mtime_nsec()), (1_700_000_000, 123_000_000));
    assert_eq!(shown.metadata("by-offset/1").mtime(), 1_000_000_000);
    assert!(shown.metadata("by-offset/2").mtime() > 4_000_000_000, "clamped, not wrapped");
    assert_eq!(shown.metadata("by-offset/3").mtime(), 0);
    for directory in ["", "by-offset", "by-time"] {
        assert_eq!(shown.metadata(directory).mtime(), 1_000_000_000, "{directory}");
    }
}

/// 2.7: "Inode, size and mtime are the same after a remount, so rsync and incremental tar copy
/// nothing twice."
#[test]
fn a_remount_changes_nothing() {
    needs_fuse!();
    let home = scratch();
    let source = data_dir(home.path().join("source"), &[hundred(), hundred().named("u-1")]);
    let list = "cd \"$1\" && find . ! -path '*/segments*' -printf '%p %i %s %T@\\n' | sort
        stat -c '%n %i %s %Y' t-0/by-offset/5..20 t-0/by-offset/0...jsonl";
    let at = home.path().join("mnt");
    let looks: Vec<String> = (0..2)
        .map(|_| {
            let mount = mount(&source).at(&at).start();
            String::from_utf8(sh_ok(list, &[mount.path()])).unwrap()
        })
        .collect();
    assert!(looks[0] == looks[1] && looks[0].lines().count() > 200, "{}", looks[0]);
}

/// 2.7: "`by-time/T` is the inode of the record that it names."
#[test]
fn a_time_is_another_name_of_a_record() {
    needs_fuse!();
    let mount = show(hundred());
    let shown = mount.t0();
    let by_time = format!("by-time/{}", T0 + 41_001);
    assert_eq!(shown.inode(&by_time), shown.inode("by-offset/42"));
    let inodes: BTreeSet<u64> = (0..100).map(|n| shown.inode(&format!("by-offset/{n}"))).collect();
    assert_eq!(inodes.len(), 100);
}

fn with_attributes() -> Partition {
    let long = vec![b'x'; 70_000];
    let record = rec("v")
        .key("\u{fc}")
        .header("h", Some(b"first"))
        .header("h", Some(b"last"))
        .header("bin", Some(b"\xff\0"))
        .header(&"n".repeat(300), Some(b"1"))
        .header("nul\0", Some(b"1"))
        .header("long", Some(&long));
    let null_value = null().key("only a key").at(-1);
    partition().add(&batch(0, vec![record, null_value, rec("")]).epoch(7))
}

/// 2.8: "`getfattr -d` on a record file shows `user.offset`, `user.timestamp`,
/// `user.timestamp_type`, `user.key`, `user.leader_epoch`, `user.headers.<name>`, `user.null_value`
/// (only when the value is NULL, not empty), `user.txn`"
#[test]
fn a_record_has_attributes() {
    needs_fuse!();
    let mount = show(with_attributes());
    let shown = mount.t0();
    let text =
        |name: &str| shown.attribute("by-offset/0", name).map(|v| v.escape_ascii().to_string());
    assert_eq!(text("user.offset").as_deref(), Some("0"));
    assert_eq!(text("user.timestamp").as_deref(), Some("1700000000000"));
    assert_eq!(text("user.timestamp_type").as_deref(), Some("create"));
    assert_eq!(text("user.key").as_deref(), Some("\\xc3\\xbc"));
    assert_eq!(text("user.leader_epoch").as_deref(), Some("7"));
    assert_eq!(text("user.null_value"), None);
    assert_eq!(text("user.txn"), None);
    let nulls = shown.attributes("by-offset/1");
    assert!(nulls.contains(&"user.null_value".into()), "{nulls:?}");
    assert!(!nulls.contains(&"user.timestamp".into()), "{nulls:?}");
    let empty = shown.attributes("by-offset/2");
    assert!(!empty.iter().any(|n| n == "user.null_value" || n == "user.key"), "{empty:?}");
}

/// 2.8: "What the kernel cannot hold (names over 255 bytes, values or lists over 64 KiB, NUL in a
/// name) is left out; of duplicate headers the last counts."
#[test]
fn attributes_are_what_the_kernel_can_hold() {
    needs_fuse!();
    let mount = show(with_attributes());
    let shown = mount.t0();
    let mut headers = shown.attributes("by-offset/0");
    headers.retain(|name| name.starts_with("user.headers."));
    assert_eq!(headers, ["user.headers.bin", "user.headers.h"]);
    assert_eq!(shown.attribute("by-offset/0", "user.headers.h").unwrap(), b"last");
    assert_eq!(shown.attribute("by-offset/0", "user.headers.bin").unwrap(), b"\xff\0");
}

/// 2.8: "`user.txn`"
#[test]
fn a_record_says_what_became_of_its_transaction() {
    needs_fuse!();
    let mount = show(transactions());
    let shown = mount.t0();
    let txn = |n: i64| shown.attribute(&format!("by-offset/{n}"), "user.txn").map(|v| out_of(&v));
    let said: Vec<_> = [0, 6, 12, 15].map(txn).to_vec();
    let want = [Some("aborted"), Some("committed"), Some("open"), None];
    assert_eq!(said, want.map(|word| word.map(String::from)));
}

fn out_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// 0-4 aborted, 6-9 committed, 12-14 open, 15-16 without a transaction.
fn transactions() -> Partition {
    let mut part = partition()
        .add(&batch(0, recs(0..5)).producer(1))
        .add(&marker(5, false, 1))
        .add(&batch(6, recs(6..10)).producer(2))
        .add(&marker(10, true, 2))
        .add(&emptied(11, 11))
        .add(&batch(12, recs(12..15)).producer(3))
        .add(&plain(15..17));
    part.active().txnindex.push((1, 0, 5, 6));
    part
}

/// 5.4: "Kafka's isolation levels: `-o isolation=read_uncommitted` (default) or `read_committed`,
/// which leaves out aborted records and everything from the first transaction that is still open."
#[test]
fn isolation_levels_are_those_of_kafka() {
    needs_fuse!();
    let all = [v(0..5), vec![ENOENT.into()], v(6..10), vec![ENOENT.into(); 2], v(12..17)].concat();
    for options in [&[][..], &["isolation=read_uncommitted"]] {
        assert_eq!(show_with(transactions(), options).t0().records(0..17), all);
    }
    let mount = show_with(transactions(), &["isolation=read_committed"]);
    let shown = mount.t0();
    let committed = [vec![ENOENT.into(); 6], v(6..10), vec![ENOENT.into(); 7]].concat();
    assert_eq!(shown.records(0..17), committed);
    assert_eq!(shown.by_offset("0.."), v_lines(6..10));
    assert_eq!(shown.by_offset("-2.."), v_lines(8..10));
    assert_eq!(shown.listed(), [6, 7, 8, 9]);
}

/// 2.11: "Records below the log start offset are gone (`ENOENT`; ranges begin at it)."
/// 2.11: "What is still on the disk below the log start is named in `report.json` and shown with
/// `-o log_start=disk`."
#[test]
fn records_below_the_log_start_are_gone() {
    needs_fuse!();
    let mount = show(hundred().log_start(45));
    let shown = mount.t0();
    assert_eq!(
        shown.records([0, 40, 44, 45]),
        [ENOENT.into(), ENOENT.into(), ENOENT.into(), bytes("v45")]
    );
    for name in ["40..48", "..48", "0..48"] {
        assert_eq!(shown.by_offset(name), v_lines(45..48), "{name}");
    }
    assert_eq!(shown.by_time(T0), "v45");
    assert_eq!((shown.listed()[0], shown.number("log-start-offset")), (45, 45));
    assert_eq!(shown.report()["log_start"], 45);
    let disk = show_with(hundred().log_start(45), &["log_start=disk"]);
    assert_eq!(disk.t0().records(0..100), v(0..100));
}

/// 2.11: "Records at or above the high watermark are shown, and marked in `N.json`; without a
/// usable checkpoint the high watermark is the log end. A log start beyond the log end shows
/// nothing."
#[test]
fn records_above_the_high_watermark_are_marked() {
    needs_fuse!();
    let mount = show(hundred().high_watermark(60));
    let shown = mount.t0();
    assert_eq!(shown.records(0..100), v(0..100));
    assert_eq!(shown.envelope(59).get("above_high_watermark"), None);
    assert_eq!(shown.envelope(60)["above_high_watermark"], true);
    assert_eq!(shown.envelopes("60..61.jsonl")[0].get("above_high_watermark"), None);
    assert_eq!(show(hundred()).t0().number("high-watermark"), 100);
    let beyond = show(hundred().log_start(500));
    assert_eq!(beyond.t0().by_offset("0.."), "");
    assert_eq!(beyond.t0().listed(), [0; 0]);
}

/// 2.13: "Beside a running broker the tree follows within a second: appends, rolls, deletions,
/// truncation; a half-written last batch is"
#[test]
fn the_tree_follows_a_running_broker() {
    needs_fuse!();
    let home = scratch();
    let source = data_dir(home.path().join("source"), &[hundred()]);
    let log = source.join("t-0/00000000000000000000.log");
    let mount = mount(&source).live_source().start();
    let shown = mount.t0();
    assert_eq!(shown.by_offset("98.."), v_lines(98..100));
    let next = plain(100..110).build();
    let whole = [fs::read(&log).unwrap(), next].concat();
    let half = whole.len() - 50;
    append(&log, &whole, half);
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(shown.records([99, 100]), [bytes("v99"), ENOENT.into()], "half is not there");
    assert_eq!(shown.report()["damage"], json!([]));
    append(&log, &whole, whole.len());
    wait_for(Duration::from_secs(3), "the appended batch", || shown.by_offset(105) == "v105");
    let rolled = partition().roll(110).add(&plain(110..120));
    fs::write(source.join("t-0").join(rolled.segments[1].name("log")), &rolled.segments[1].log)
        .unwrap();
    wait_for(Duration::from_secs(3), "the new segment", || shown.by_offset(115) == "v115");
    assert_eq!(shown.by_offset("98..112"), v_lines(98..112));
    // A cleaner puts another file in place of a segment, and someone has the old one open.
    let mut held = fs::File::open(shown.path("by-offset/98..112")).unwrap();
    let kept = recs(98..110).into_iter().enumerate().filter(|(n, _)| n % 2 == 0);
    let kept = kept.map(|(n, record)| record.delta(i32::try_from(n).unwrap())).collect();
    let swap = log.with_extension("log.swap");
    fs::write(&swap, batch(98, kept).build()).unwrap();
    fs::rename(&swap, &log).unwrap();
    wait_for(Duration::from_secs(3), "the cleaned segment", || shown.by_offset(99) == ENOENT);
    let mut old = Vec::new();
    held.read_to_end(&mut old).unwrap();
    assert_eq!(bytes(old), v_lines(98..112), "what is open stays what it was");
    drop(held);
    let evens = (98..110).step_by(2).chain(110..112);
    wait_for(Duration::from_secs(3), "the end of the old file", || {
        shown.by_offset("98..112") == lines(evens.clone().map(|n| format!("v{n}")))
    });
    fs::remove_file(&log).unwrap();
    wait_for(Duration::from_secs(3), "the deleted segment", || shown.by_offset(99) == ENOENT);
    assert_eq!(shown.by_offset(112), "v112");
}

/// Brings a file to the first `size` bytes of `whole` by appending.
/// 2.13: "Beside a running broker the tree follows within a second: appends, rolls, deletions,
/// truncation"
///
/// A follower cuts its log and gets other batches from the new leader, before anyone looks.
#[test]
fn a_truncation_is_followed_unseen() {
    needs_fuse!();
    let home = scratch();
    let source = data_dir(home.path().join("source"), &[hundred()]);
    fs::remove_file(source.join(".kafka_cleanshutdown")).unwrap();
    let log = source.join("t-0/00000000000000000000.log");
    let mount = mount(&source).live_source().start();
    let shown = mount.t0();
    assert_eq!((shown.by_offset(95), shown.by_offset("85..")), (bytes("v95"), v_lines(85..100)));
    let other = (90..115).map(|n| format!("another {n}"));
    let new = batch(90, other.clone().map(rec).collect()).epoch(1).build();
    let kept = kafkalog::batches(&fs::read(&log).unwrap())[9].start;
    let whole = [&fs::read(&log).unwrap()[..kept], &new].concat();
    let file = fs::File::options().write(true).open(&log).unwrap();
    file.set_len(kept as u64).unwrap();
    append(&log, &whole, whole.len());
    wait_for(Duration::from_secs(3), "the new batch", || shown.by_offset(114) == "another 114");
    assert_eq!(shown.by_offset(95), "another 95");
    let want = (85..90).map(|n| format!("v{n}")).chain(other);
    assert_eq!(shown.by_offset("85.."), lines(want));
    assert_eq!(shown.number("log-end-offset"), 115);
}

fn append(file: &std::path::Path, whole: &[u8], size: usize) {
    use std::io::Write;
    let before = usize::try_from(fs::metadata(file).unwrap().len()).unwrap();
    let mut file = fs::File::options().append(true).open(file).unwrap();
    file.write_all(&whole[before..size]).unwrap();
}

/// 2.12: "Directory names are split at the last dash; names are passed through unchanged."
#[test]
fn names_are_split_at_the_last_dash() {
    needs_fuse!();
    let home = scratch();
    let topics = [
        "-giveaway-0",
        "a-b-1-0",
        "foo.bar-12",
        "delete-0",
        "x-delete-3",
        "a_b-0",
        "__consumer_offsets-49",
    ];
    let long = format!("{}-0", "T".repeat(249));
    let all: Vec<&str> = topics.into_iter().chain([long.as_str()]).collect();
    let partitions: Vec<Partition> = all.iter().map(|name| hundred().named(name)).collect();
    let source = data_dir(home.path().join("source"), &partitions);
    let mount = mount(&source).start();
    let mut sorted = all.clone();
    sorted.sort_unstable();
    assert_eq!(mount.partitions(), sorted);
    for name in all {
        let envelope = mount.partition(name).envelope(7);
        let topic = envelope["topic"].as_str().unwrap();
        assert_eq!(format!("{topic}-{}", envelope["partition"]), name);
    }
}

/// 2.10: "Owner, group and read bits are those of SOURCE (the partition's directory and segments)"
#[test]
fn owners_are_those_of_source() {
    needs_fuse!();
    if !crate::support::is_root() {
        crate::support::skipped("only root can give files away");
        return;
    }
    let home = scratch();
    let source = data_dir(home.path().join("source"), &[hundred()]);
    let give =
        "chown -R 1234:5678 \"$1\"/t-0 && chmod 640 \"$1\"/t-0/*.log && chmod 750 \"$1\"/t-0";
    sh_ok(give, &[&source]);
    let mount = mount(&source).start();
    let files = ["", "config", "by-offset", "by-offset/5", "by-offset/5..", "by-time", "segments"];
    for file in files {
        let data = mount.t0().metadata(file);
        assert_eq!((data.uid(), data.gid()), (1234, 5678), "{file}");
        assert_eq!(data.mode() & 0o007, 0, "{file} is not for others: {:o}", data.mode());
    }
}

/// 2.9: "`tail -f by-offset/680..` follows"
#[test]
fn tail_follows_a_log_that_grows() {
    needs_fuse!();
    let home = scratch();
    let source = data_dir(home.path().join("source"), &[hundred()]);
    let log = source.join("t-0/00000000000000000000.log");
    let mount = mount(&source).live_source().start();
    let script = "timeout 8 tail -n +1 -f \"$1/t-0/by-offset/95..\" > \"$2/out\" 2>&1 & sleep 2
        cat \"$2/batch\" >> \"$3\"; sleep 4; kill %1; wait; cat \"$2/out\"";
    fs::write(home.path().join("batch"), plain(100..110).build()).unwrap();
    let done = sh(script, &[mount.path(), home.path(), &log]);
    assert_eq!(bytes(out(&done)), lines((95..110).map(|n| format!("v{n}"))));
}
