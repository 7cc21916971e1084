//! 4.1-4.6, 4.14, and what 3 says of appending.

use std::fs;
use std::thread;
use std::time::Duration;

use rustix::fs::{XattrFlags, setxattr};
use serde_json::{Value, json};

use crate::needs_fuse;
use crate::support::expected::partitions;
use crate::support::got::{error_of, lines};
use crate::support::kafkalog::{Codec, T0, batch, batches, flipped, hundred, plain, rec};
use crate::support::mount::{Mount, Shown, mount, v, wait_for, writable_with};
use crate::support::writing::{
    add, assert_values, files, fresh, last_error, log_of, open, put, put_to,
};
use crate::support::written::create;
use crate::support::{bytes, fixture, has_tool, sh, sh_ok, skipped, told};

/// Pieces of these sizes, over and over.
fn cut<'a>(mut text: &'a [u8], sizes: &[usize]) -> Vec<&'a [u8]> {
    let mut pieces = Vec::new();
    for size in sizes.iter().cycle() {
        if text.is_empty() {
            break;
        }
        let (piece, rest) = text.split_at((*size).min(text.len()));
        pieces.push(piece);
        text = rest;
    }
    pieces
}

/// 4.1: "A record ends at its delimiter and nowhere else: through one open file the records are
/// exactly the lines that a regular file would hold, however the writes are cut"
/// 4.1: "An empty line is an empty record."
#[test]
fn records_are_lines_however_writes_are_cut() {
    needs_fuse!();
    let text: String = (0..150).map(|n| "ab\tc ".repeat(n % 4) + "\n").collect();
    for sizes in [&[1_usize][..], &[4, 1, 9], &[31, 2], &[100_000]] {
        let mount = fresh("");
        let file = open(&mount.t0(), "append");
        for piece in cut(text.as_bytes(), sizes) {
            assert_eq!(put(&file, piece), piece.len().to_string());
        }
        assert_eq!(mount.t0().by_offset("0.."), text.as_str(), "cut to {sizes:?}");
    }
}

/// 4.1: "whichever processes share the descriptor"
#[test]
fn processes_share_one_stream() {
    needs_fuse!();
    let mount = fresh("");
    let script = "exec 3>>\"$1/t-0/append\"; (printf 'al' >&3); printf 'pha\\nbe' >&3
        bash -c \"printf 'ta\\ngam' >&3\"; printf 'ma' >&3; exec 3>&-";
    sh_ok(script, &[mount.path()]);
    assert_values(&mount.t0(), &["alpha", "beta", "gamma"]);
}

/// 4.1: "An unterminated rest becomes a record when the last descriptor closes, or at fsync"
#[test]
fn a_rest_waits_for_the_last_descriptor_or_fsync() {
    needs_fuse!();
    let mount = fresh("");
    let first = open(&mount.t0(), "append");
    assert_eq!(put(&first, "one\nrest"), "8");
    let second = first.try_clone().unwrap();
    drop(first);
    thread::sleep(Duration::from_millis(50));
    assert_eq!(mount.t0().number("log-end-offset"), 1);
    assert_eq!(put(&second, " goes on"), "8");
    second.sync_all().unwrap();
    assert_eq!(mount.t0().by_offset(1), "rest goes on");
    assert_eq!(put(&second, "last"), "4");
    drop(second);
    assert_values(&mount.t0(), &["one", "rest goes on", "last"]);
}

/// 4.1: "if it cannot, `close` already gives the error that `write` would"
/// 3.3: "An incomplete batch at the close of `append.raw` is dropped, and `close` and
/// `user.last_error` say so."
#[test]
fn a_rest_that_is_no_record_fails_the_close() {
    needs_fuse!();
    let mount = fresh("");
    let half = mount.source().parent().unwrap().join("half");
    let whole = plain(0..4).build();
    for (name, rest) in [
        ("append.raw", &whole[..whole.len() - 1]),
        ("append.jsonl", b"{\"key\":\"k\"".as_slice()),
        ("append.tsv", b"key without value"),
    ] {
        fs::write(&half, rest).unwrap();
        let done = sh("cat \"$1\" | dd of=\"$2\" bs=64k", &[&half, &mount.t0().path(name)]);
        assert!(!done.status.success(), "{name}: {}", told(&done));
        assert!(last_error(&mount.t0(), name).len() > 5, "{name}");
    }
    thread::sleep(Duration::from_millis(100));
    assert_eq!(mount.t0().number("log-end-offset"), 0);
}

/// 4.2: "EMSGSIZE (over `max.message.bytes` or `segment.bytes`; nothing of that record is stored)"
/// 4.2: "After a partial success the write is short."
/// 4.14: "only a single record whose own batch would pass one of them is EMSGSIZE."
#[test]
fn a_record_over_a_limit_is_emsgsize_to_the_byte() {
    needs_fuse!();
    let fits = batch(0, vec![rec("y".repeat(700))]).build().len();
    for limit in ["max.message.bytes", "segment.bytes"] {
        let mount = fresh(&format!("{limit}={fits}"));
        let shown = mount.t0();
        assert_eq!(put_to(&shown, "append", "y".repeat(701) + "\n"), "EMSGSIZE", "{limit}");
        assert!(!last_error(&shown, "append").is_empty());
        let both = format!("short\n{}\nbehind\n", "y".repeat(900));
        assert_eq!(put_to(&shown, "append", both), "6", "{limit}");
        assert_eq!(put_to(&shown, "append", "y".repeat(700) + "\n"), "701", "{limit}");
        assert_values(&shown, &["short".to_string(), "y".repeat(700)]);
    }
}

/// 4.2: "After EMSGSIZE or EINVAL in the middle of a record every further write fails alike, up to
/// and with the one that holds its delimiter."
#[test]
fn no_piece_of_a_failed_record_is_stored() {
    needs_fuse!();
    let mount = fresh("max.message.bytes=300");
    let file = open(&mount.t0(), "append");
    assert_eq!(put(&file, "z".repeat(200)), "200");
    for piece in ["z".repeat(200), "q".into(), "tail\nsame write\n".into()] {
        assert_eq!(put(&file, piece), "EMSGSIZE");
    }
    assert_eq!(put(&file, "well\n"), "5");
    drop(file);
    assert_values(&mount.t0(), &["well"]);
}

/// 4.2: "EINVAL (bad JSON, TSV or batch; the reason is in the `user.last_error` attribute)"
/// 3.3: "any other is EINVAL. So is a TSV line without exactly one unescaped tab, or with another
/// escape."
#[test]
fn what_is_no_record_is_einval() {
    needs_fuse!();
    let batch = plain(0..3).build();
    let flipped = flipped(batch.clone(), batch.len() - 3);
    let mount = fresh("");
    let shown = mount.t0();
    let texts: [(&str, &[u8]); 12] = [
        ("append.jsonl", b"{\"payload\":1}\n"),
        ("append.jsonl", b"\"a string\"\n"),
        ("append.jsonl", b"{\"payload\":\"a\"} x\n"),
        ("append.jsonl", b"{\"value\":\"a\"}\n"),
        ("append.jsonl", b"{\"key_b64\":\"?\"}\n"),
        ("append.jsonl", b"{\"ts\":\"now\"}\n"),
        ("append.jsonl", b"{\"headers\":[\"h\"]}\n"),
        ("append.tsv", b"no tabulator\n"),
        ("append.tsv", b"a\tb\tc\n"),
        ("append.tsv", b"a\t\\q\n"),
        ("append.raw", &[7; 80]),
        ("append.raw", &flipped),
    ];
    for (name, text) in texts {
        assert_eq!(put_to(&shown, name, text), "EINVAL", "{}", text.escape_ascii());
        assert!(last_error(&shown, name).len() > 5, "{}", text.escape_ascii());
    }
    assert_eq!(put_to(&shown, "append.tsv", "k\tgood\nbad\n"), "7");
    assert_values(&shown, &["good"]);
}

/// 4.3: "`fsync`, `dd conv=fsync`, `O_SYNC` and `sync FILE`: durable when they return."
#[test]
fn every_way_to_sync_works() {
    needs_fuse!();
    let mount = fresh("");
    let script = "cd \"$1/t-0\" && echo 1 | dd of=append conv=fsync status=none &&
        echo 2 | dd of=append oflag=sync status=none &&
        echo 3 | dd of=append oflag=dsync status=none &&
        echo 4 >> append && sync append && sync -d append";
    sh_ok(script, &[mount.path()]);
    assert_values(&mount.t0(), &["1", "2", "3", "4"]);
}

/// 4.4: "Writers do not interleave within a record, whatever its length; each writer's records keep
/// their order."
#[test]
fn writers_at_once_keep_their_records_and_their_order() {
    needs_fuse!();
    let mount = fresh("");
    let shown = mount.t0();
    let line = |writer: usize, n: usize| format!("{writer} {n} {}\n", "w".repeat(n * 997 % 9000));
    thread::scope(|scope| {
        for writer in 0..4 {
            let file = open(&shown, "append");
            scope.spawn(move || {
                let text: String = (0..60).map(|n| line(writer, n)).collect();
                for piece in cut(text.as_bytes(), &[4000, 17, 1200]) {
                    assert_eq!(put(&file, piece), piece.len().to_string());
                }
            });
        }
    });
    let text = shown.by_offset("0..").text();
    for writer in 0..4 {
        let of_writer = format!("{writer} ");
        let got: Vec<&str> =
            text.split_inclusive('\n').filter(|line| line.starts_with(&of_writer)).collect();
        assert_eq!(got, (0..60).map(|n| line(writer, n)).collect::<Vec<_>>());
    }
    assert_eq!(text.lines().count(), 240);
}

/// 4.5: "`>`, `>>`, `cp`, `tee -a`, `dd` with any `seek` all append"
#[test]
fn every_tool_appends() {
    needs_fuse!();
    for tool in [
        "cat f > append",
        "cat f >> append",
        "cp f append",
        "tee -a append < f > /dev/null",
        "tee append < f > /dev/null",
        "dd if=f of=append bs=13 seek=1000 status=none",
        "dd if=f of=append bs=4k seek=1 conv=notrunc status=none",
        "sed -n 'w append' f",
        "xargs -n 1 < f >> append",
    ] {
        let mount = fresh("");
        let script = format!(
            "cd \"$(mktemp -d -p \"$2\")\" && seq 500 699 > f && ln -s \"$1/t-0/append\" . \
             && {tool}"
        );
        sh_ok(&script, &[mount.path(), mount.source().parent().unwrap()]);
        let values: Vec<String> = (500..700).map(|n| n.to_string()).collect();
        assert_values(&mount.t0(), &values);
    }
}

/// 4.5: "truncating `append` succeeds and changes nothing; it cannot be replaced or removed;
/// reading it is empty at once and never blocks."
#[test]
fn an_append_file_is_never_changed_itself() {
    needs_fuse!();
    let mount = fresh("");
    let shown = mount.t0();
    add(&mount, "append", "kept\n");
    for name in ["append", "append.nul", "append.tsv", "append.jsonl", "append.raw"] {
        let path = shown.path(name);
        for size in [0, 3, 1 << 40] {
            let file = fs::File::options().write(true).open(&path).unwrap();
            assert_eq!(error_of(file.set_len(size)), "ok", "{name}");
        }
        assert_eq!(error_of(fs::remove_file(&path)), "EPERM", "{name}");
        assert_eq!(error_of(fs::rename(&path, shown.path("other"))), "EPERM", "{name}");
        assert_eq!(error_of(fs::rename(shown.path("config"), &path)), "EPERM", "{name}");
        assert_eq!(shown.read(name), "", "{name}");
        assert_eq!(shown.metadata(name).len(), 0, "{name}");
    }
    let done = sh("cd \"$1/t-0\" && timeout 20 grep -rl kept . | sort", &[mount.path()]);
    assert!(!String::from_utf8_lossy(&done.stdout).contains("append"), "{}", told(&done));
    assert_values(&shown, &["kept"]);
}

/// 4.6: "once `write` has returned, every view shows the record."
/// 2.6: "`ENOENT` is never sticky: once offset 100 is written, `by-offset/100` is there at the next
/// look."
/// 4.2: "Complete records are in the log before `write` returns"
#[test]
fn every_view_shows_what_was_written() {
    needs_fuse!();
    let mount = fresh("");
    let shown = mount.t0();
    let file = open(&shown, "append.jsonl");
    for n in 0..30_i64 {
        assert_eq!(shown.by_offset(n), crate::support::ENOENT);
        let line = json!({"ts": T0 + n, "key": format!("k{n}"), "payload": format!("v{n}")});
        let line = format!("{line}\n");
        assert_eq!(put(&file, &line), line.len().to_string());
        assert_eq!(shown.by_offset(n), format!("v{n}").as_str());
        assert_eq!(shown.by_offset(format!("{n}.key")), format!("k{n}").as_str());
        assert_eq!(shown.by_offset("-1.."), format!("v{n}\n").as_str());
        assert_eq!(shown.by_offset("0..").text().lines().count(), shown.listed().len());
        assert_eq!(shown.by_time(T0 + n), format!("v{n}").as_str());
        assert_eq!(shown.number("log-end-offset"), n + 1);
        assert_eq!(shown.number("high-watermark"), n + 1);
        assert_eq!(shown.listed(), (0..=n).collect::<Vec<_>>());
        assert_eq!(shown.report()["log_end"], n + 1);
    }
}

/// 4.14: "The complete records of one write request of the kernel (at most 1 MiB) are one batch,
/// split where a batch would pass `max.message.bytes` or `segment.bytes`"
#[test]
fn one_write_is_one_batch() {
    needs_fuse!();
    for (settings, counts) in [
        ("", vec![40]),
        ("max.message.bytes=400", vec![13, 13, 13, 1]),
        ("segment.bytes=400", vec![13, 13, 13, 1]),
    ] {
        let mount = fresh(settings);
        // 26 bytes each as a record in a batch.
        let text = (0..40).map(|n| format!("{n:019}\n")).collect::<Vec<_>>().concat();
        add(&mount, "append", &text);
        let log = log_of(&mount.t0().path("segments"));
        let count = |at: std::ops::Range<usize>| {
            i32::from_be_bytes(log[at.start + 57..at.start + 61].try_into().unwrap())
        };
        let found: Vec<i32> = batches(&log).into_iter().map(count).collect();
        assert_eq!(found, counts, "{settings}");
        assert!(settings.is_empty() || batches(&log).iter().all(|at| at.len() <= 400));
        assert_eq!(mount.t0().by_offset("0.."), text.as_str());
    }
}

/// 4.14: "A batch of `.raw` is kept as it is or refused."
/// 3.2: "(`segment.bytes` limits them, not `max.message.bytes`); a batch below the log end is
/// EINVAL."
/// 3.2: "Appended, they keep everything, offsets, holes and epochs too, as a replica does"
#[test]
fn raw_batches_keep_their_place() {
    needs_fuse!();
    let mount = fresh("max.message.bytes=200 segment.bytes=2000");
    let shown = mount.t0();
    let (first, second) = (plain(7..27).codec(Codec::Zstd).epoch(2), plain(50..55).epoch(6));
    let both = [first.build(), second.build()].concat();
    add(&mount, "append.raw", &both);
    assert_eq!(shown.by_offset("0...raw"), &both[..]);
    assert_eq!(shown.listed(), (7..27).chain(50..55).collect::<Vec<_>>());
    assert_eq!(shown.read("leader-epochs"), "2 7\n6 50\n");
    for below in [plain(50..55), plain(30..31), plain(54..60)] {
        assert_eq!(put_to(&shown, "append.raw", below.epoch(6).build()), "EINVAL");
    }
    let large = batch(55, vec![rec("r".repeat(2000))]).epoch(6).build();
    assert_eq!(put_to(&shown, "append.raw", large), "EMSGSIZE");
    add(&mount, "append", "line\n");
    assert_eq!(shown.by_offset(55), "line");
    assert_eq!(shown.envelope(55)["leader_epoch"], 6);
}

/// 3.3: "Appending takes `ts`, `headers`, `key`, `payload` and their base64 forms; the other fields
/// named here, and kcat's `broker`, are ignored"
#[test]
fn an_envelope_gives_all_of_a_record_but_its_place() {
    needs_fuse!();
    let mount = fresh("");
    let line = json!({
        "topic": "elsewhere", "partition": 3, "offset": 1234, "broker": 2, "tstype": "logappend",
        "ts": T0 + 5, "headers": [["a", "1"], ["a", null], ["raw", null, "gIE="]],
        "key": null, "key_b64": "/wD/", "payload": "text", "leader_epoch": 12,
        "transactional": true, "txn": "open", "above_high_watermark": true,
    });
    add(&mount, "append.jsonl", format!("{line}\n{{}}\n"));
    let shown = mount.t0();
    let envelope = shown.envelope(0);
    for field in ["headers", "key", "key_b64", "payload", "ts"] {
        assert_eq!(envelope[field], line[field], "{field}");
    }
    let place = json!(["t", 0, 0, "create"]);
    assert_eq!(json!(["topic", "partition", "offset", "tstype"].map(|n| &envelope[n])), place);
    assert_eq!((&envelope["transactional"], &envelope["txn"]), (&Value::Null, &Value::Null));
    assert_eq!(shown.envelope(1)["payload"], Value::Null);
}

/// 2.10: "files have no write bits but for `append*`, `config` and `log-start-offset` of a writable
/// mount."
#[test]
fn only_what_can_be_written_has_a_write_bit() {
    needs_fuse!();
    let mount = writable_with(&[hundred()]);
    let found = sh_ok("cd \"$1/t-0\" && find . -type f -perm /222 | sort", &[mount.path()]);
    let want = ["append", "append.jsonl", "append.nul", "append.raw", "append.tsv", "config"];
    let want: Vec<String> =
        want.iter().chain(&["log-start-offset"]).map(|name| format!("./{name}")).collect();
    assert_eq!(lines(&want), found.as_slice());
}

/// 2.10: "changing or removing what cannot be changed on a writable one is `EPERM`."
#[test]
fn what_cannot_be_changed_is_eperm() {
    needs_fuse!();
    let mount = writable_with(&[hundred()]);
    for change in [
        "touch t-0/by-offset/7",
        "touch t-0/file",
        "rm -f t-0/by-offset/7",
        "rm -f t-0/config",
        "mkdir t-0/directory",
        "rmdir t-0/by-offset",
        "chmod 600 t-0/config",
        "chown 1 t-0/by-offset/7",
        "mv t-0/by-offset/7 t-0/by-offset/8",
        "mv t-0 u-0",
        "echo x > t-0/by-offset/7",
        "echo x > t-0/high-watermark",
        "truncate -s 0 t-0/segments/00000000000000000000.log",
        "ln t-0/by-offset/7 t-0/hard",
        "ln -s x t-0/soft",
        "mkfifo t-0/pipe",
    ] {
        let done = sh(&format!("cd \"$1\" && {change}"), &[mount.path()]);
        let said = crate::support::err(&done);
        let refused = !done.status.success() && said.contains("Operation not permitted");
        assert!(refused, "{change}: {}", told(&done));
    }
    let set = setxattr(mount.t0().path("by-offset/7"), "user.a", b"b", XattrFlags::empty());
    assert_eq!(error_of(set.map_err(Into::into)), "EPERM");
    assert_eq!(mount.t0().records(0..100), v(0..100));
}

/// 2.9: "`tail -f by-offset/680..` follows, across rolls and retention, without"
#[test]
fn tail_follows_across_rolls() {
    needs_fuse!();
    if !has_tool("tail") {
        return skipped("tail is not installed");
    }
    let mount = fresh("segment.bytes=300");
    add(&mount, "append", "old\n0\n");
    let out = mount.source().parent().unwrap().join("followed");
    let script = "timeout -s TERM 60 tail -n +1 -s 0.1 -f \"$1/t-0/by-offset/1..\" > \"$2\" 2>&1 &
        echo $!";
    let said = sh_ok(&script.replace("2>&1 &", "2>&1 < /dev/null &"), &[mount.path(), &out]);
    let pid: i32 = String::from_utf8(said).unwrap().trim().parse().unwrap();
    for n in 1..=40 {
        add(&mount, "append", format!("{n}\n"));
        if n == 20 {
            wait_for(Duration::from_secs(20), "the first half", || {
                fs::read_to_string(&out).unwrap().lines().count() >= 21
            });
            fs::write(mount.t0().path("log-start-offset"), "10\n").unwrap();
        }
    }
    assert!(files(&mount.t0().path("segments"), "log").len() > 3);
    let want = (0..=40).map(|n| format!("{n}\n")).collect::<Vec<_>>().concat();
    wait_for(Duration::from_secs(20), "all lines", || {
        fs::read_to_string(&out).unwrap().len() >= want.len()
    });
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(fs::read_to_string(&out).unwrap(), want);
}

/// 3.1: "For each format F: appending what `0..` + F reads to an empty partition makes one whose
/// `0..` + F reads the same bytes; for `.jsonl` the same `ts` (where there is one), `headers`,
/// `key`, `payload`."
#[test]
fn every_fixture_survives_a_round_trip_in_every_format() {
    needs_fuse!();
    let target = writable_with(&[]);
    let mut count = 0;
    for set in ["clean", "legacy", "exact", "open-txn", "torn", "unclean"] {
        let source = mount(fixture(set).join("data")).start();
        for expected in partitions(set) {
            // Its damage is in the way: no range over it reads to its end.
            if (set, &*expected.name) == ("torn", "mixed-0") {
                continue;
            }
            for format in ["", ".nul", ".tsv", ".jsonl", ".raw"] {
                let name = format!("{}-{count}", expected.name.replace(['.', '_'], "-"));
                create(&target, &name, "");
                let (from, to) = (source.partition(&expected.name), target.partition(&name));
                let what = format!("{set}/{}{format}", expected.name);
                round_trip(&from, &to, format, &what);
                count += 1;
            }
        }
    }
    assert!(count > 200, "{count} round trips");
}

fn round_trip(from: &Shown, to: &Shown, format: &str, what: &str) {
    let range = if format.is_empty() { "0..".into() } else { format!("0..{format}") };
    let read = from.by_offset(&range).bytes();
    // Values with newlines are more lines than records, but the same bytes.
    let done = fs::File::options()
        .append(true)
        .open(to.path(&format!("append{format}")))
        .and_then(|mut file| std::io::Write::write_all(&mut file, &read));
    let told = last_error(to, &format!("append{format}"));
    assert_eq!(error_of(done), "ok", "{what}: {told}");
    if format == ".jsonl" {
        let what_stays = |row: Value| {
            let ts = row.get("ts").cloned();
            (ts, ["headers", "key", "key_b64", "payload", "payload_b64"].map(|n| row[n].clone()))
        };
        let [want, got] = [from, to].map(|shown| shown.envelopes(&range));
        assert_eq!(want.len(), got.len(), "{what}");
        for (want, got) in want.into_iter().zip(got) {
            let (want, mut got) = (what_stays(want), what_stays(got));
            if want.0.is_none() {
                got.0 = None;
            }
            assert_eq!(want, got, "{what}");
        }
    } else {
        assert!(to.by_offset(&range) == bytes(read), "{what} reads otherwise");
    }
}

/// 4.13: "every record whose `write` returned is there after the next mount"
#[test]
fn the_next_mount_goes_on() {
    needs_fuse!();
    let mut first = fresh("segment.bytes=500");
    for n in 0..50 {
        add(&first, "append", format!("v{n}\n"));
    }
    first.stop(rustix::process::Signal::TERM);
    let second: Mount = crate::support::written::writable(first.source());
    assert_eq!(second.t0().records(0..50), v(0..50));
    add(&second, "append", "v50\n");
    assert_eq!(second.t0().records(0..51), v(0..51));
}
