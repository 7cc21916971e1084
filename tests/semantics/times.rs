//! 2.20, 2.21: times as names, and which record they name.

use crate::needs_fuse;
use crate::support::got::Got;
use crate::support::kafkalog::{
    Batch, Codec, Partition, T0, batch, batches, data_dir, hundred, legacy, partition, plain, rec,
};
use crate::support::mount::{Mount, Shown, v_lines};
use crate::support::{EIO, ENOENT, bytes, lines, mount, scratch, show};

fn log_of(batches: &[Batch]) -> Mount {
    show(batches.iter().fold(partition(), Partition::add))
}

/// One batch for each time, values v0, v1...
fn one_each(times: &[i64]) -> Vec<Batch> {
    let one = |(n, ts): (i64, &i64)| batch(n, vec![rec(format!("v{n}")).at(*ts)]);
    (0..).zip(times).map(one).collect()
}

fn answers(shown: &Shown, times: &[i64]) -> Vec<Got> {
    times.iter().map(|ts| shown.by_time(ts)).collect()
}

fn named(offsets: &[i64]) -> Vec<Got> {
    let value = |n: &i64| if *n < 0 { ENOENT.into() } else { bytes(format!("v{n}")) };
    offsets.iter().map(value).collect()
}

/// 2.20: "A bare integer (no sign, no leading zeros) is Unix milliseconds, always. `1764410400s` is
/// seconds."
#[test]
fn a_bare_integer_is_milliseconds() {
    needs_fuse!();
    let mount = show(hundred());
    let shown = mount.t0();
    assert_eq!(shown.by_time(1_700_000_042), "v0", "seconds are not guessed");
    assert_eq!(shown.by_time(T0 + 42_000), "v42");
    assert_eq!(shown.by_time("1700000042s"), "v42");
    assert_eq!(shown.by_time(0), "v0");
}

/// 2.20: "RFC 3339 with zone, or without one (then UTC whatever `TZ` says), to the day
/// (`2026-11-29`), hour, minute, second or fraction, always with `T` between date and time."
#[test]
fn rfc_3339_to_any_precision() {
    needs_fuse!();
    let home = scratch();
    let source = data_dir(home.path().join("source"), &[hundred()]);
    let mount = mount(&source).env("TZ", "Asia/Kathmandu").start();
    for (name, offset) in [
        ("2023-11-14", 0),
        ("2023-11-14T22", 0),
        ("2023-11-14T22:14", 40),
        ("2023-11-14T22:14Z", 40),
        ("2023-11-14T22:13:25", 5),
        ("2023-11-14T22:13:25Z", 5),
        ("2023-11-14T22:13:25.000Z", 5),
        ("2023-11-14T22:13:24.001", 5),
        ("2023-11-14T22:13:24.000000001Z", 5),
        ("2023-11-14T23:13:25+01:00", 5),
        ("2023-11-15T03:58:25+05:45", 5),
        ("2023-11-14T14:43:25-07:30", 5),
        ("2023-11-14T22:14:59", 99),
        ("2023-11-14T22:14:59.5", -1),
        ("2023-11-15", -1),
    ] {
        assert_eq!([mount.t0().by_time(name)], named(&[offset])[..], "{name}");
    }
}

/// 2.20: "Anything else is `ENOENT`."
#[test]
fn anything_else_is_no_time() {
    needs_fuse!();
    let mount = show(hundred());
    for name in [
        "yesterday",
        "now",
        "1e12",
        " 5",
        "5 ",
        "+5",
        "05",
        "-5",
        "0x10",
        "2023-11-31",
        "2023-13-01",
        "2023-02-29",
        "2023-11-14T25",
        "2023-11-14T22:60",
        "22:13",
        "1700000000S",
        "1700000000ms",
        "2023-11-14 22:13:20",
        "2023-11-14T22:13:20ZZ",
        "14-11-2023",
        "2023-11-14T22:13:20+1",
        "2023-11-14T",
        "2023-11",
        "20231114",
        "9223372036854775808",
        "s",
        "",
    ] {
        if !name.is_empty() && name != "20231114" {
            assert_eq!(mount.t0().by_time(name), ENOENT, "{name:?}");
        }
        if name != "20231114" && !name.is_empty() {
            assert_eq!(mount.t0().by_time(format!("{name}..")), ENOENT, "{name:?}..");
        }
    }
    assert_eq!(mount.t0().by_time("20231114"), "v0", "eight digits are milliseconds");
    assert_eq!(mount.t0().by_time(format!("{}..{T0}", T0 + 1)), ENOENT, "backwards");
}

/// 2.21: "`by-time/T` is the first data *record* (not batch) in offset order with timestamp >= T;
/// after the last one, `ENOENT`."
#[test]
fn a_time_names_the_first_record_at_or_after_it() {
    needs_fuse!();
    let times = [100, 200, 200, 350, 900];
    let inside: Vec<_> = (0..).zip(times).map(|(n, ts)| rec(format!("v{n}")).at(ts)).collect();
    let asked = [0, 100, 101, 200, 201, 350, 899, 900, 901];
    let want = named(&[0, 0, 1, 1, 3, 3, 4, 4, -1]);
    for codec in [Codec::None, Codec::Zstd, Codec::Lz4] {
        let mount = log_of(&[batch(0, inside.clone()).codec(codec)]);
        assert_eq!(answers(&mount.t0(), &asked), want);
    }
    assert_eq!(answers(&log_of(&one_each(&times)).t0(), &asked), want);
}

/// 2.21: "`by-time/T` is the first data *record* (not batch) in offset order with timestamp >= T"
/// 6.1: "EIO for the records inside the damaged batch only"
///
/// A batch that stands where it does not belong loses no offset: it is no answer to any time.
/// Damage that reaches below the log start is EIO, under a name that is there.
#[test]
fn damage_is_an_answer_only_where_records_are_lost() {
    needs_fuse!();
    let astray = [0, 30, 10, 20, 30].map(|n| plain(n..n + 10));
    let mount = log_of(&astray);
    for n in 0..40 {
        assert_eq!(mount.t0().by_time(T0 + 1000 * n), bytes(format!("v{n}")));
    }
    assert_eq!(mount.t0().by_time(format!("{}..", T0 + 25_000)), v_lines(25..40));
    let cut = hundred().with_log(|mut log| {
        let end = batches(&log)[2].end;
        log[end - 2] ^= 1;
        log
    });
    let mount = show(cut.log_start(25));
    assert_eq!(mount.t0().by_time(T0), EIO);
    assert_eq!(mount.t0().by_time(T0 + 31_000), EIO, "it may be in the damage");
}

/// 2.21: "A range runs from the offset of its first time to the offset of its second."
#[test]
fn a_range_of_times_is_a_range_of_offsets() {
    needs_fuse!();
    let mount = log_of(&one_each(&[100, 500, 200, 600, 300]));
    let shown = mount.t0();
    assert_eq!(shown.by_time("200..550"), lines(["v1", "v2"]), "record 2 is older, and inside");
    assert_eq!(shown.by_time("550.."), lines(["v3", "v4"]));
    assert_eq!(shown.by_time("..550"), lines(["v0", "v1", "v2"]));
    assert_eq!(shown.by_time("601.."), "");
    assert_eq!(shown.by_time("600..601"), lines(["v3", "v4"]), "none at or after: to the end");
    assert_eq!(shown.by_time("100..100"), "");
}

/// 2: "all offsets from the one up to the other"
#[test]
fn times_and_dates_mix_in_a_range() {
    needs_fuse!();
    let mount = show(hundred());
    let shown = mount.t0();
    let name = format!("{}..2023-11-14T22:13:28Z", T0 + 5000);
    assert_eq!(shown.by_time(name), v_lines(5..8));
    assert_eq!(shown.by_time("2023-11-14T22:13:20Z..1700000002s"), v_lines(0..2));
}

/// 2.21: "Records without a timestamp are never an answer."
#[test]
fn records_without_a_timestamp_are_no_answer() {
    needs_fuse!();
    let mount = log_of(&one_each(&[-1, 100, -1, 300, -1]));
    let asked = [0, 100, 101, 300, 301];
    assert_eq!(answers(&mount.t0(), &asked), named(&[1, 1, 3, 3, -1]));
    let old = show(partition().add_bytes(legacy(0, 0..5, &Codec::None)));
    assert_eq!(answers(&old.t0(), &[0, T0]), named(&[-1, -1]));
    assert_eq!(old.t0().by_offset(3), "v3");
    assert_eq!(old.t0().envelope(3).get("ts"), None);
}

/// 2.21: "Out-of-order timestamps, LogAppendTime, delete-horizon batches and a header whose max
/// timestamp was never set give the true record times."
#[test]
fn odd_timestamps_give_the_true_times() {
    needs_fuse!();
    let disorder = log_of(&one_each(&[500, 100, 700, 300, 600, 800]));
    let asked = [0, 400, 550, 650, 750, 801];
    assert_eq!(answers(&disorder.t0(), &asked), named(&[0, 0, 2, 2, 5, -1]));
    let appended = log_of(&[plain(0..5).append_time(T0 + 500_000)]);
    let asked = [T0, T0 + 500_000, T0 + 500_001];
    assert_eq!(answers(&appended.t0(), &asked), named(&[0, 0, -1]));
    let envelope = appended.t0().envelope(3);
    assert_eq!(
        (&envelope["tstype"], &envelope["ts"]),
        (&"logappend".into(), &(T0 + 500_000).into())
    );
    let mut horizon = plain(0..5);
    horizon.delete_horizon = Some(T0 + 90_000_000);
    let asked = [T0 + 1, T0 + 4000, T0 + 4001];
    assert_eq!(answers(&log_of(&[horizon]).t0(), &asked), named(&[1, 4, -1]));
    let mut unset = plain(0..5);
    unset.max_ts = Some(-1);
    assert_eq!(answers(&log_of(&[unset]).t0(), &asked), named(&[1, 4, -1]));
}

/// 5.3: "An index is a hint: with damaged, missing, padded, stale or foreign indexes the answers
/// are those without an index."
#[test]
fn a_lying_time_index_changes_nothing() {
    needs_fuse!();
    let mut part = hundred();
    for (ts, _) in &mut part.active().timeindex {
        *ts -= 60_000;
    }
    for (_, position) in &mut part.active().index {
        *position += 1;
    }
    let mount = show(part);
    for n in 0..100 {
        assert_eq!(mount.t0().by_time(T0 + 1000 * n - 500), bytes(format!("v{n}")));
        assert_eq!(mount.t0().by_offset(n), bytes(format!("v{n}")));
    }
}
