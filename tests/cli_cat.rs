//! `offsetfs cat`: kcat's letters, exit codes, and no trace in SOURCE (7.1, 7.2, 7.3).

mod support;

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use support::expected::partitions;
use support::kafkalog::{
    Partition, T0, batch, data_dir, flipped, hundred, marker, null, partition, plain, rec, recs,
    sized_layout,
};
use support::mount::snapshot;
use support::{OFFSETFS, code, copy, err, fixture, offsetfs, out, scratch, sh, told};

/// A partition directory that goes with the test.
struct Log {
    home: tempfile::TempDir,
}

impl Log {
    fn of(partition: Partition) -> Self {
        let home = scratch();
        data_dir(home.path().join("source"), &[partition.named("t-7")]);
        Self { home }
    }

    fn path(&self) -> PathBuf {
        self.home.path().join("source/t-7")
    }

    fn cat(&self, args: &[&str]) -> std::process::Output {
        let path = self.path();
        let mut all = vec!["cat", path.to_str().expect("UTF-8")];
        all.extend(args);
        offsetfs(&all)
    }

    /// What an orderly `cat` prints.
    fn prints(&self, args: &[&str]) -> String {
        let done = self.cat(args);
        assert_eq!(code(&done), 0, "{args:?}: {}", told(&done));
        out(&done)
    }
}

fn values(offsets: Range<i64>) -> String {
    String::from_utf8(support::lines(offsets.map(|n| format!("v{n}"))).bytes()).expect("text")
}

/// 7.1: "Data on stdout, everything else on stderr."
#[test]
fn every_value_is_printed() {
    let log = Log::of(hundred());
    let before = snapshot(&log.path());
    let done = log.cat(&[]);
    assert_eq!((code(&done), out(&done)), (0, values(0..100)), "{}", told(&done));
    assert!(before == snapshot(&log.path()), "SOURCE is as it was");
}

/// 7.3: "START and END: `beginning`, `end`, N, `-N` (existing records), `s@TIME`, `e@TIME`
/// (exclusive), `A:B` (A <= B)"
#[test]
fn start_and_end_have_kcats_forms() {
    let log = Log::of(sized_layout(100, 7, 35));
    let (s95, e8, s5) = (format!("s@{}", T0 + 95_000), format!("e@{}", T0 + 8000), "s@1700000005s");
    let cases: [(&[&str], Range<i64>); 17] = [
        (&["-o", "beginning"], 0..100),
        (&["-o", "end"], 0..0),
        (&["-o", "42"], 42..100),
        (&["-o", "0"], 0..100),
        (&["-o", "-3"], 97..100),
        (&["-o", "-5000"], 0..100),
        (&["-o", "10:13"], 10..13),
        (&["-o", "10:10"], 0..0),
        (&["-o", "98", "-o", "end"], 98..100),
        (&["-o", &s95], 95..100),
        (&["-o", s5, "-o", &e8], 5..8),
        (&["-o", "s@2023-11-14T22:14:58Z"], 98..100),
        (&["-o", "5", "-c", "2"], 5..7),
        (&["-c", "0"], 0..0),
        (&["-c", "5000"], 0..100),
        (&["-o", "100"], 0..0),
        (&["-o", "98", "-e"], 98..100),
    ];
    for (args, offsets) in cases {
        assert_eq!(log.prints(args), values(offsets), "{args:?}");
    }
}

/// 7.3: "`-N` (existing records)"
#[test]
fn the_last_records_are_counted_not_subtracted() {
    let mut sparse = plain(0..4);
    for (record, delta) in sparse.records.iter_mut().zip([0, 50, 90, 99]) {
        record.delta = Some(delta);
    }
    let log = Log::of(partition().add(&sparse).add(&marker(100, true, 1)));
    assert_eq!(log.prints(&["-o", "-3"]), values(1..4));
}

/// 7.3: "anything else is exit 2 with the valid forms named"
#[test]
fn anything_else_is_a_usage_error() {
    let log = Log::of(hundred());
    for bad in ["earliest", "12x", "s@", "@5:3", "7:3", "", "s@yesterday", "1:2:3", "--5", "0x10"] {
        let done = log.cat(&["-o", bad]);
        assert_eq!((code(&done), out(&done).as_str()), (2, ""), "{bad:?}: {}", told(&done));
        let said = err(&done);
        assert!(said.contains("beginning") && said.contains("end"), "{bad:?}: {said}");
    }
    for args in [&["-c", "-1"][..], &["-c", "x"], &["-f", "%q"], &["-f", "%"], &["--sideways"]] {
        let done = log.cat(args);
        assert_eq!((code(&done), out(&done).as_str()), (2, ""), "{args:?}: {}", told(&done));
    }
    assert_eq!(code(&offsetfs(&["cat"])), 2);
    assert_eq!(code(&offsetfs::<&str>(&[])), 2);
    assert_eq!(code(&offsetfs(&["concatenate"])), 2);
}

/// 7.3: "`-f` takes kcat's verbs and escapes, and `\0`."
#[test]
fn a_format_takes_kcats_verbs() {
    let full = rec("abc").key("k1").at(T0).header("h", Some(b"1")).header("n", None);
    let bare = null().at(T0 + 1);
    let log = Log::of(partition().add(&batch(0, vec![full, bare])));
    let format = r"%t|%p|%o|%k|%K|%s|%S|%T|%h|%%|\t\x41\0\n";
    let first = format!("t|7|0|k1|2|abc|3|{T0}|h=1,n=NULL|%|\tA\0\n");
    let second = format!("t|7|1||-1||-1|{}||%|\tA\0\n", T0 + 1);
    assert_eq!(log.prints(&["-f", format]), first + &second);
    assert_eq!(log.prints(&["-c", "1", "-f", "%R%s"]), "\0\0\0\u{3}abc");
    assert_eq!(log.prints(&["-f", r"%s\r\n"]), "abc\r\n\r\n");
    assert_eq!(log.prints(&["-Z"]), "abc\nNULL\n");
    assert_eq!(log.prints(&[]), "abc\n\n");
}

/// 3.3: "`N.json` and `offsetfs cat -J` also say what may"
#[test]
fn envelopes_are_those_of_the_tree() {
    let part = partition()
        .add(&batch(0, recs(0..2)).producer(1))
        .add(&marker(2, true, 1))
        .add(&plain(3..5))
        .high_watermark(4);
    let log = Log::of(part);
    let rows: Vec<Value> =
        log.prints(&["-J"]).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let offsets: Vec<_> = rows.iter().map(|row| row["offset"].clone()).collect();
    assert_eq!(offsets, [json!(0), json!(1), json!(3), json!(4)]);
    assert_eq!(rows[0]["txn"], "committed");
    assert_eq!(rows[2].get("txn"), None);
    assert_eq!(
        (rows[2].get("above_high_watermark"), &rows[3]["above_high_watermark"]),
        (None, &json!(true))
    );
    assert_eq!((&rows[3]["topic"], &rows[3]["partition"]), (&json!("t"), &json!(7)));
}

/// 7.1: "Exit: 0 ok, 1 runtime error, 2 usage, 3 damage was found or stepped over."
#[test]
fn exit_codes_are_told_apart() {
    let home = scratch();
    let missing = home.path().join("none-0");
    let done = offsetfs(&[Path::new("cat"), &missing]);
    assert_eq!((code(&done), out(&done).as_str()), (1, ""), "{}", told(&done));
    assert!(err(&done).contains("none-0"), "{}", told(&done));
    let wrong_bit = plain(40..50).build();
    let wrong_bit = flipped(wrong_bit.clone(), wrong_bit.len() - 2);
    let log = Log::of(sized_layout(40, 10, 1000).add_bytes(wrong_bit).add(&plain(50..60)));
    let done = log.cat(&[]);
    assert_eq!((code(&done), out(&done)), (3, values(0..40) + &values(50..60)), "{}", told(&done));
    assert!(!done.stderr.is_empty());
    let log = Log::of(sized_layout(40, 10, 1000).add_bytes([0; 5000]));
    assert_eq!(log.prints(&[]), values(0..40), "a torn tail is no damage");
}

/// 7.3: "anything else is exit 2"
#[test]
fn an_empty_range_is_no_error() {
    let log = Log::of(hundred());
    let done = log.cat(&["-o", "100"]);
    assert_eq!((code(&done), out(&done).as_str()), (0, ""));
    assert!(!done.stderr.is_empty(), "a note");
    assert!(log.cat(&["-o", "100", "-q"]).stderr.is_empty());
    assert!(err(&log.cat(&["-o", "98", "-e"])).contains("100"));
    assert!(log.cat(&["-o", "98", "-e", "-q"]).stderr.is_empty());
}

/// 7.2: "A broken pipe ends quietly."
#[test]
fn a_broken_pipe_is_quiet() {
    let log = Log::of(sized_layout(50_000, 500, 25_000));
    let script = "\"$1\" cat \"$2\" | head -1; echo ${PIPESTATUS[0]}";
    let done = sh(script, &[Path::new(OFFSETFS), &log.path()]);
    assert!(["v0\n0\n", "v0\n141\n"].contains(&out(&done).as_str()), "{}", told(&done));
    assert!(done.stderr.is_empty(), "{}", told(&done));
    let full = sh("\"$1\" cat \"$2\" > /dev/full", &[Path::new(OFFSETFS), &log.path()]);
    assert_eq!(code(&full), 1, "a full disk is an error: {}", told(&full));
}

/// 7.2: "Long work shows progress on a terminal and none elsewhere."
#[test]
fn nothing_is_said_through_a_pipe() {
    let log = Log::of(sized_layout(50_000, 500, 25_000));
    let done = log.cat(&[]);
    assert_eq!(out(&done).lines().count(), 50_000);
    assert!(done.stderr.is_empty(), "{}", told(&done));
}

/// 5.1: "for magic 0, 1, 2, all codecs, transactions, compaction"
#[test]
fn kafkas_own_partitions_are_printed() {
    let mut wrong = Vec::new();
    for set in ["clean", "legacy", "exact", "open-txn"] {
        for kafka in partitions(set) {
            let path = fixture(set).join("data").join(&kafka.name);
            let done = offsetfs(&[Path::new("cat"), &path]);
            let rows = kafka.rows();
            let want: Vec<u8> = rows.iter().flat_map(|row| [row.value(), b"\n"].concat()).collect();
            if done.stdout != want || code(&done) != 0 {
                wrong.push(format!("{set}/{}: {}", kafka.name, told(&done)));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// 1.2: "It works on a read-only medium"
#[test]
fn a_copy_without_indexes_is_enough() {
    let home = scratch();
    let part = copy(fixture("clean").join("data/zstd-0"), home.path().join("zstd-0"));
    for name in support::mount::names(&part) {
        if Path::new(&name).extension().is_none_or(|extension| extension != "log") {
            fs::remove_file(part.join(name)).unwrap();
        }
    }
    let whole = offsetfs(&[Path::new("cat"), &fixture("clean").join("data/zstd-0")]);
    let bare = offsetfs(&[Path::new("cat"), &part]);
    assert!(whole.stdout == bare.stdout && !bare.stdout.is_empty(), "{}", told(&bare));
}

/// 7.1: "Data on stdout"
#[test]
fn help_and_version_are_data() {
    for args in [&["--help"][..], &["--version"], &["cat", "--help"], &["mount", "--help"]] {
        let done = offsetfs(args);
        assert_eq!(code(&done), 0, "{args:?}: {}", told(&done));
        assert!(!done.stdout.is_empty() && done.stderr.is_empty(), "{args:?}: {}", told(&done));
    }
}
