//! 4.10, 4.12: the properties of a partition, and what they do.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::needs_fuse;
use crate::support::kafkalog::{Codec, batch, batches, null, rec};
use crate::support::mount::{Mount, writable_with};
use crate::support::writing::{add, fresh, last_error, log_of, put_to, stopped};
use crate::support::written::{configure, writable};
use crate::support::{copy, fixture};

fn has_line(mount: &Mount, line: &str) -> bool {
    mount.t0().read("config").text().lines().any(|shown| shown == line)
}

/// 4.10: "Writing `name=value` lines to `config` sets those properties, `name=` resets one"
/// 4.10: "Settings are kept in SOURCE in a file that a broker ignores."
/// 4.10: "else it is Kafka's default (but never: `retention.ms=-1`, `retention.bytes=-1`,
/// `segment.ms=9223372036854775807`)"
#[test]
fn properties_are_set_reset_and_kept() {
    needs_fuse!();
    let mut first = fresh("");
    for line in [
        "retention.ms=-1",
        "retention.bytes=-1",
        "segment.ms=9223372036854775807",
        "segment.bytes=1073741824",
        "index.interval.bytes=4096",
    ] {
        assert!(has_line(&first, line), "{line}");
    }
    configure(&first, "t-0", "segment.bytes=5000 flush.ms=70000");
    configure(&first, "t-0", "index.interval.bytes=9");
    let source = stopped(&mut first);
    let second = writable(&source);
    for line in ["segment.bytes=5000", "flush.ms=70000", "index.interval.bytes=9"] {
        assert!(has_line(&second, line), "{line} after a remount");
    }
    configure(&second, "t-0", "segment.bytes=");
    assert!(has_line(&second, "segment.bytes=1073741824") && has_line(&second, "flush.ms=70000"));
}

/// 4.10: "unknown names and bad values are EINVAL and change nothing (so is
/// `cleanup.policy=compact`: there is no cleaner). One `write` is one change, judged as it arrives"
#[test]
fn a_bad_line_changes_nothing() {
    needs_fuse!();
    let mount = fresh("flush.messages=8");
    let before = mount.t0().read("config");
    for bad in [
        "segment.byte=10000",
        "segment.bytes=13",
        "segment.bytes=2147483648",
        "segment.bytes=ten",
        "retention.ms=-2",
        "compression.type=GZIP",
        "delete.on.rmdir=yes",
        "cleanup.policy=compact",
        "cleanup.policy=compact,delete",
        "segment.bytes",
        "=7",
        "segment.bytes=9000\nflush.messages=0",
    ] {
        assert_eq!(put_to(&mount.t0(), "config", format!("{bad}\n")), "EINVAL", "{bad}");
        assert!(!last_error(&mount.t0(), "config").is_empty(), "{bad}");
        assert_eq!(mount.t0().read("config"), before, "{bad}");
    }
}

/// 4.10: "`segment.index.bytes` applies from the next segment, or at once while the active one is
/// empty."
#[test]
fn the_size_of_indexes_changes_with_the_next_segment() {
    needs_fuse!();
    let mount = fresh("segment.index.bytes=4000 segment.bytes=200");
    let size = |base: i64| {
        let path = mount.source().join(format!("t-0/{base:020}.index"));
        fs::metadata(path).unwrap().len()
    };
    add(&mount, "append", "a\n");
    assert_eq!(size(0), 4000);
    configure(&mount, "t-0", "segment.index.bytes=800");
    add(&mount, "append", "b\n");
    assert_eq!(size(0), 4000);
    add(&mount, "append", "c\nd\ne\nf\n");
    add(&mount, "append", "g\nh\ni\nj\nk\n");
    let bases = crate::support::writing::files(&mount.source().join("t-0"), "index");
    let last = bases.last().unwrap();
    assert!(bases.len() > 1);
    assert_eq!(fs::metadata(last).unwrap().len(), 800);
}

/// 4.10: "What is not set comes from the topic's records in `__cluster_metadata-0` where SOURCE has
/// it"
/// 4.10: "comment lines in `config` say which."
#[test]
fn what_is_not_set_comes_from_the_cluster() {
    needs_fuse!();
    let home = crate::support::scratch();
    let source = crate::support::kafkalog::data_dir(home.path().join("source"), &[]);
    let clean = fixture("clean");
    copy(clean.join("data/times-0"), source.join("times-0"));
    copy(clean.join("meta/__cluster_metadata-0"), source.join("__cluster_metadata-0"));
    let mount = writable(&source);
    configure(&mount, "times-0", "segment.bytes=7777");
    let shown = mount.partition("times-0");
    let text = shown.read("config").text();
    for line in ["index.interval.bytes=300", "segment.index.bytes=2048", "segment.bytes=7777"] {
        assert!(text.lines().any(|shown| shown == line), "{line} in {text}");
    }
    assert!(text.lines().any(|line| line.starts_with('#')), "{text}");
}

/// 4.12: "`compression.type`, `message.timestamp.type`, `max.message.bytes`,
/// `index.interval.bytes`, `flush.messages`, `flush.ms` and the other topic properties"
#[test]
fn batches_are_compressed_as_it_is_set() {
    needs_fuse!();
    let value = "compress me ".repeat(60);
    let mount = fresh("flush.messages=2 flush.ms=1");
    let codecs = ["lz4", "producer", "zstd", "snappy", "gzip", "uncompressed"];
    for codec in codecs {
        configure(&mount, "t-0", &format!("compression.type={codec}"));
        add(&mount, "append", format!("{value}\n"));
    }
    let log = log_of(&mount.t0().path("segments"));
    let found: Vec<u8> = batches(&log).iter().map(|at| log[at.start + 22] & 7).collect();
    assert_eq!(found, [3, 0, 4, 2, 1, 0]);
    let values = mount.t0().records(0..6);
    assert!(values.iter().all(|shown| *shown == value.as_str()));
}

/// 4.12: "`message.timestamp.type`"
#[test]
fn records_get_the_time_of_the_append_where_that_is_set() {
    needs_fuse!();
    let mount = fresh("message.timestamp.type=LogAppendTime");
    add(&mount, "append.jsonl", "{\"ts\":77,\"payload\":\"a\"}\n{\"payload\":\"b\"}\n");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    for offset in [0, 1] {
        let envelope = mount.t0().envelope(offset);
        assert_eq!(envelope["tstype"], "logappend");
        assert!(envelope["ts"].as_u64().unwrap() / 1000 > now - 100, "{envelope}");
    }
}

/// 4.12: "`max.message.bytes`"
#[test]
fn a_limit_counts_compressed_bytes() {
    needs_fuse!();
    let mount = fresh("max.message.bytes=500 compression.type=zstd");
    let value = "again and ".repeat(150);
    let batch = batch(0, vec![rec(&value), null()]).codec(Codec::Zstd);
    assert!(batch.build().len() < 500);
    add(&mount, "append", format!("{value}\n"));
    assert_eq!(mount.t0().by_offset(0), value.as_str());
    configure(&mount, "t-0", "compression.type=uncompressed");
    assert_eq!(put_to(&mount.t0(), "append", format!("{value}\n")), "EMSGSIZE");
}

/// 4.10: "`name=` resets one"
#[test]
fn settings_can_be_made_for_a_log_of_a_broker() {
    needs_fuse!();
    let mount = writable_with(&[crate::support::kafkalog::hundred()]);
    configure(&mount, "t-0", "segment.bytes=20000");
    configure(&mount, "t-0", "segment.bytes=");
    assert!(has_line(&mount, "segment.bytes=1073741824"));
    assert_eq!(mount.t0().records(0..100), crate::support::mount::v(0..100));
}
