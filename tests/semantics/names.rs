//! 2.4, 2.6: which names there are.

use std::os::unix::fs::MetadataExt;

use crate::needs_fuse;
use crate::support::got::Got;
use crate::support::kafkalog::{hundred, partition, plain};
use crate::support::mount::{Shown, v, v_lines};
use crate::support::{ENOENT, lines, show};

/// Which of these names are there, though they must not be?
fn there(shown: &Shown, directory: &str, names: &[&str]) -> Vec<(String, Got)> {
    let read = |name: &&str| (name.to_string(), shown.read(&format!("{directory}/{name}")));
    names.iter().map(read).filter(|(_, got)| *got != ENOENT).collect()
}

/// 2.4: "An offset has one spelling: `680` is a name, `0680`, `+680`, `0x2a8`, `680 `, `-0..` are
/// not (`ENOENT`), nor are numbers beyond 2^63-1."
#[test]
fn an_offset_has_one_spelling() {
    needs_fuse!();
    let mount = show(hundred());
    let wrong = [
        "042",
        "+42",
        "0x2a",
        "42 ",
        " 42",
        "-0..",
        "00",
        "4_2",
        "4e1",
        "42.0",
        "-1",
        "-5",
        "--5..",
        "\u{0664}\u{0662}",
        "9223372036854775808",
        "18446744073709551658",
        "042..50",
        "40..050",
        "+40..50",
        "40..+50",
        "0..9223372036854775808",
        "..9223372036854775808",
        "-05..",
        "- 5..",
    ];
    assert_eq!(there(&mount.t0(), "by-offset", &wrong), []);
    assert_eq!(mount.t0().by_offset(42), "v42");
    assert_eq!(mount.t0().by_offset("0..9223372036854775807"), v_lines(0..100));
}

/// 2.4: "A range may leave out either end (`..T` too)."
#[test]
fn a_range_may_leave_out_an_end() {
    needs_fuse!();
    let mount = show(hundred());
    for (name, offsets) in [
        ("20..30", 20..30),
        ("17..18", 17..18),
        ("95..1000", 95..100),
        ("88..", 88..100),
        ("..11", 0..11),
        ("-7..", 93..100),
        ("-100..", 0..100),
        ("-5000..", 0..100),
        ("8..12", 8..12),
    ] {
        assert_eq!(mount.t0().by_offset(name), v_lines(offsets), "{name}");
    }
    let second = 1_700_000_001_000_i64;
    assert_eq!(mount.t0().by_time(format!("..{second}")), v_lines(0..1));
    assert_eq!(mount.t0().by_time(format!("{}..", second + 97_000)), v_lines(98..100));
}

/// 2.4: "`-5..` is for offsets only."
#[test]
fn last_records_are_counted_in_by_offset_only() {
    needs_fuse!();
    let mount = show(hundred());
    assert_eq!(there(&mount.t0(), "by-time", &["-5..", "-5", "-1700000000000.."]), []);
    assert_eq!(there(&mount.t0(), "by-offset", &["-5..10", "..-5", "-5..-2", "-..", "..."]), []);
}

/// 2.4: "In `by-offset` and `by-time` one record takes `.json` and `.key`, a range `.nul`, `.tsv`,
/// `.jsonl` and `.raw`."
#[test]
fn formats_belong_to_records_or_to_ranges() {
    needs_fuse!();
    let mount = show(partition().add(&plain(0..10)));
    let shown = mount.t0();
    let wrong = [
        "5.nul",
        "5.tsv",
        "5.jsonl",
        "5.raw",
        "5.txt",
        "5.",
        "5.JSON",
        "5.json.json",
        "5..7.json",
        "5..7.key",
        "5...json",
        "5..7.xml",
        "5..7.",
        "..7.json",
        "-3...key",
        "5..7..nul",
    ];
    assert_eq!(there(&shown, "by-offset", &wrong), []);
    for (range, dots) in [("3..6", "3..6"), ("3..", "3..."), ("..6", "..6"), ("-2..", "-2...")] {
        for format in ["nul", "tsv", "jsonl", "raw"] {
            let name = if range.ends_with("..") {
                format!("{dots}{format}")
            } else {
                format!("{range}.{format}")
            };
            assert_ne!(shown.by_offset(&name), ENOENT, "{name}");
        }
    }
    assert_eq!(shown.by_time("1700000005000.json"), shown.by_offset("5.json"));
    assert_eq!(shown.by_time("1700000005000...tsv"), shown.by_offset("5...tsv"));
    assert_eq!(there(&shown, "by-time", &["1700000005000.tsv", "1700000005000...json"]), []);
}

/// 2.6: "A range is a filter: well-formed (first <= end) it always exists, and shows the records
/// there are."
#[test]
fn a_well_formed_range_exists() {
    needs_fuse!();
    let mount = show(hundred());
    let shown = mount.t0();
    for name in ["5..5", "100..", "100..200", "..0", "0..0", "7000..8000", "9223372036854775807.."]
    {
        assert_eq!(shown.by_offset(name), "", "{name}");
        assert_eq!(shown.metadata(&format!("by-offset/{name}")).size(), 0, "{name}");
    }
    for format in ["nul", "tsv", "jsonl", "raw"] {
        assert_eq!(shown.by_offset(format!("5..5.{format}")), "", "{format}");
    }
    assert_eq!(there(&shown, "by-offset", &["30..20", "1..0", "a..b", "5..x", "5..6..7"]), []);
}

/// 2.6: "When it is looked up it resolves to a fixed start (and end)"
#[test]
fn two_spellings_of_one_range_are_one_file() {
    needs_fuse!();
    let mount = show(hundred());
    let shown = mount.t0();
    assert_eq!(shown.inode("by-offset/-5.."), shown.inode("by-offset/95.."));
    assert_eq!(shown.inode("by-offset/..20"), shown.inode("by-offset/0..20"));
    assert_ne!(shown.inode("by-offset/0..20"), shown.inode("by-offset/0..20.nul"));
    assert_ne!(shown.inode("by-offset/0..20"), shown.inode("by-offset/0..21"));
}

/// 2.5: "a hole is `ENOENT`, a range steps over it"
#[test]
fn holes_are_no_names() {
    needs_fuse!();
    let mut first = plain(3..6);
    first.records[2].delta = Some(4);
    first.records[2].value = Some(b"v7".to_vec());
    let mount = show(partition().add(&first).add(&plain(20..22)));
    let shown = mount.t0();
    let mut all = vec![Got::from(ENOENT); 23];
    for n in [3, 4, 7, 20, 21] {
        all[usize::try_from(n).unwrap()] = v(n..n + 1).remove(0);
    }
    assert_eq!(shown.records(0..23), all);
    assert_eq!(shown.by_offset("0.."), lines(["v3", "v4", "v7", "v20", "v21"]));
    assert_eq!(shown.by_offset("5..21"), lines(["v7", "v20"]));
    assert_eq!(shown.listed(), [3, 4, 7, 20, 21]);
}

/// 2.5: "`-5..` counts existing data records, not offsets."
#[test]
fn last_records_are_records() {
    needs_fuse!();
    let mut sparse = plain(0..4);
    for (record, delta) in sparse.records.iter_mut().zip([0, 100, 200, 300]) {
        record.delta = Some(delta);
    }
    let mount = show(partition().add(&sparse).add(&crate::support::kafkalog::marker(301, true, 9)));
    assert_eq!(mount.t0().by_offset("-3.."), lines(["v1", "v2", "v3"]));
    assert_eq!(mount.t0().number("log-end-offset"), 302);
}
