//! `offsetfs check` and `offsetfs repair` as they are typed: what they print, their exit codes, and
//! what they leave as it is.

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use support::{OFFSETFS, code, content, copy, fixture, offsetfs, scratch, told};

fn run(command: &str, path: &Path, more: &[&str]) -> (i32, String) {
    let mut words = vec![command, path.to_str().expect("a path")];
    words.extend(more);
    let done = offsetfs(&words);
    let text = String::from_utf8(done.stdout.clone()).expect("UTF-8");
    assert!([0, 3].contains(&code(&done)), "{}", told(&done));
    (code(&done), text)
}

fn partition(checked: &Value, directory: &str) -> Value {
    let all = checked["partitions"].as_array().expect("a list");
    let is_it = |it: &&Value| it["directory"].as_str().is_some_and(|at| at.ends_with(directory));
    all.iter().find(is_it).expect("the partition").clone()
}

/// 6.3: "exit 0 sound (a torn or zero tail, or derived files that are wrong, are named and sound),
/// 3 damaged"
#[test]
fn fixtures_of_kafka_are_sound_but_for_the_one_that_is_damaged() {
    for set in ["clean", "unclean", "legacy", "exact", "open-txn"] {
        let data = fixture(set).join("data");
        let (code, text) = run("check", &data, &[]);
        assert_eq!(code, 0, "{set}: {text}");
        assert!(!text.contains(": damaged"), "{set}: {text}");
    }
    let torn = fixture("torn").join("data");
    let before = content(&torn);
    let (code, text) = run("check", &torn, &[]);
    assert_eq!(code, 3, "{text}");
    for line in [
        "plain-0: sound, offsets 0 up to 749, 51268 of 51379 bytes valid, 274 batches, 749 records",
        "  torn tail: 00000000000000000719.log position 2192, 111 bytes",
        "mixed-0: damaged, offsets 0 up to 596, 53890 of 53986 bytes valid, 233 batches, 595 rec",
        "  damage: 00000000000000000532.log position 2683, 96 bytes, offset 564: checksum \
         0xf18e51cc, expected 0xc4f6c033",
        "  a broker that starts here would drop offsets 564 up to 596",
        "5 partitions checked, 1 damaged: 165028 of 168346 bytes valid, 913 batches, 2148 records",
    ] {
        assert!(text.contains(line), "{line}\nis not in\n{text}");
    }
    assert_eq!(content(&torn), before, "check writes nothing");
}

/// 6.3: "offsets certainly lost and offsets perhaps compacted away"
#[test]
fn holes_of_a_cleaner_are_told_from_losses() {
    let scratch = scratch();
    let data = copy(fixture("clean").join("data"), scratch.path().join("data"));
    fs::remove_file(data.join("txn-0/00000000000000000241.log")).expect("removed");
    let (code, text) = run("check", &data, &["--json"]);
    assert_eq!(code, 3);
    let checked: Value = serde_json::from_str(&text).expect("JSON");
    let compacted = partition(&checked, "/compacted-0");
    assert_eq!(
        (&compacted["damaged"], &compacted["offsets_in_holes"]),
        (&false.into(), &1435.into())
    );
    let whys = compacted["missing"].as_array().expect("a list").iter().map(|it| &it["why"]);
    assert!(whys.clone().count() > 10 && whys.clone().all(|why| why == "hole"));
    let lost = partition(&checked, "/txn-0");
    let expected = serde_json::json!([{
        "first_offset": 241, "last_offset": 361, "why": "segment"
    }]);
    assert_eq!((&lost["damaged"], &lost["missing"]), (&true.into(), &expected));
    assert_eq!(
        (&checked["sum"]["damaged"], &checked["sum"]["partitions"]),
        (&1.into(), &23.into())
    );
}

/// 6.3: "state of each index, suspicious timestamps (future, seconds for milliseconds), leftovers"
#[test]
fn what_lies_beside_the_log_is_named() {
    let scratch = scratch();
    let data = copy(fixture("clean").join("data"), scratch.path().join("data"));
    let txn = data.join("txn-0");
    fs::remove_file(txn.join("00000000000000000000.txnindex")).expect("removed");
    let mut index = fs::read(txn.join("00000000000000000121.index")).expect("an index");
    index[19] ^= 1;
    fs::write(txn.join("00000000000000000121.index"), index).expect("written");
    fs::write(txn.join("00000000000000000241.snapshot"), "junk").expect("written");
    fs::write(txn.join("leader-epoch-checkpoint"), "0\n1\n7 0\n").expect("written");
    fs::write(txn.join("00000000000000000100.log.deleted"), "x").expect("written");
    let (code, text) = run("check", &txn, &[]);
    assert_eq!(code, 0, "{text}");
    for part in [
        "  index: 00000000000000000000.txnindex: missing: 3 aborted transactions",
        "  index: 00000000000000000121.index: foreign or shifted: ",
        "  index: 00000000000000000241.snapshot: ",
        "  checkpoint: leader-epoch-checkpoint: has epoch 7 at offset 0, the batch there 0",
        "  leftover: 00000000000000000100.log.deleted",
    ] {
        assert!(text.contains(part), "{part}\nis not in\n{text}");
    }
    let (_, times) = run("check", &data.join("times-0"), &[]);
    assert!(
        times.contains("from offset 6: 4102444800000, more than a day in the future"),
        "{times}"
    );
}

/// 6.6: "sets bad byte ranges aside in files, and prints what it would do first (`--dry-run`)"
#[test]
fn repair_says_what_it_would_do_and_can_be_undone() {
    let scratch = scratch();
    let data = copy(fixture("torn").join("data"), scratch.path().join("data"));
    let mixed = data.join("mixed-0");
    let before = content(&data);
    let (code, would) = run("repair", &mixed, &["--dry-run"]);
    assert_eq!((code, content(&data)), (3, before.clone()), "{would}");
    let step = "set aside 96 bytes of 00000000000000000532.log at position 2683, offset 564";
    assert!(would.contains(&format!("would {step}")), "{would}");
    let (code, did) = run("repair", &mixed, &[]);
    assert_eq!(code, 0, "{did}");
    assert!(did.contains(&format!("did {step}")) && did.ends_with("mixed-0: sound\n"), "{did}");
    // What was taken out, put back at its position, is the file as it was.
    let log = mixed.join("00000000000000000532.log");
    let mut bytes = fs::read(&log).expect("a segment");
    let kept = fs::read(mixed.join("00000000000000000532.log.2683.offsetfs")).expect("kept");
    bytes.splice(2683..2683, kept);
    assert!(bytes == before[&log], "undone");
    let (code, again) = run("repair", &mixed, &[]);
    assert_eq!((code, again.contains("nothing to repair")), (0, true), "{again}");
}

/// 1.3: "is refused while a broker (or another of us) holds it"
#[test]
fn repair_needs_the_lock_and_check_does_not() {
    let scratch = scratch();
    let data = copy(fixture("clean").join("data"), scratch.path().join("data"));
    let plain = data.join("plain-0");
    let mut writer = Command::new(OFFSETFS)
        .arg("append")
        .arg(&plain)
        .stdin(Stdio::piped())
        .spawn()
        .expect("offsetfs runs");
    while !data.join(".lock").exists() {
        thread::sleep(Duration::from_millis(5));
    }
    let refused = offsetfs(&["repair", plain.to_str().expect("a path")]);
    let (code, text) = run("check", &plain, &[]);
    drop(writer.stdin.take());
    assert!(writer.wait().expect("a child").success());
    assert!(code == 0 && text.contains("plain-0: sound"), "{text}");
    assert!(!refused.status.success() && told(&refused).contains("lock"), "{}", told(&refused));
}

/// 6.3: "offsets certainly lost": what repair kept excuses the gap that it made, and no other.
#[test]
fn a_kept_file_excuses_only_its_own_gap() {
    let scratch = scratch();
    let data = copy(fixture("clean").join("data"), scratch.path().join("data"));
    let txn = data.join("txn-0");
    let log = txn.join("00000000000000000121.log");
    let size = fs::metadata(&log).expect("a segment").len();
    for kind in ["log", "index", "timeindex", "txnindex", "snapshot"] {
        fs::remove_file(txn.join(format!("00000000000000000241.{kind}"))).expect("removed");
    }
    for (position, bytes) in [(50, 10), (50, 100), (size - 50, 100), (size, 60), (size + 9, 100)] {
        let kept = txn.join(format!("00000000000000000121.log.{position}.offsetfs"));
        fs::write(&kept, vec![1; bytes]).expect("written");
        let (code, text) = run("check", &txn, &[]);
        assert_eq!(code, 3, "{bytes} at {position}: {text}");
        fs::remove_file(kept).expect("removed");
    }
    fs::write(txn.join(format!("00000000000000000121.log.{size}.offsetfs")), [1; 100])
        .expect("written");
    assert_eq!(run("check", &txn, &[]).0, 0, "its end was taken out");
}

/// 6.6: what is taken out at several places, the end among them, leaves a log that is sound.
#[test]
fn a_segment_that_lost_its_end_and_more_is_sound_after_repair() {
    let scratch = scratch();
    let data = copy(fixture("clean").join("data"), scratch.path().join("data"));
    let txn = data.join("txn-0");
    let log = txn.join("00000000000000000121.log");
    let mut bytes = fs::read(&log).expect("a segment");
    let last = bytes.len() - 1;
    bytes[70] ^= 1;
    bytes[last] ^= 1;
    fs::write(&log, &bytes).expect("written");
    assert_eq!(run("check", &txn, &[]).0, 3);
    let (code, did) = run("repair", &txn, &[]);
    assert!(code == 0 && did.matches("did set aside").count() == 2, "{did}");
    let (code, text) = run("check", &txn, &[]);
    assert_eq!(code, 0, "{text}");
}

/// 6.6: a repair that was killed after it kept a range keeps it no second time.
#[test]
fn the_same_bytes_are_kept_once() {
    let scratch = scratch();
    let data = copy(fixture("torn").join("data"), scratch.path().join("data"));
    let mixed = data.join("mixed-0");
    let bytes = fs::read(mixed.join("00000000000000000532.log")).expect("a segment");
    let kept = mixed.join("00000000000000000532.log.2683.offsetfs");
    fs::write(&kept, &bytes[2683..2683 + 96]).expect("written");
    assert_eq!(run("repair", &mixed, &[]).0, 0);
    assert_eq!(fs::read(&kept).expect("kept"), bytes[2683..2683 + 96]);
    let again = mixed.join("00000000000000000532.log.2683.2.offsetfs");
    assert!(!again.exists(), "kept twice");
    // Other bytes of that name are somebody's, and stay.
    let data = copy(fixture("torn").join("data"), scratch.path().join("other"));
    let mixed = data.join("mixed-0");
    let kept = mixed.join("00000000000000000532.log.2683.offsetfs");
    fs::write(&kept, [7; 96]).expect("written");
    assert_eq!(run("repair", &mixed, &[]).0, 0);
    assert_eq!(fs::read(kept).expect("kept"), [7; 96]);
    let again = mixed.join("00000000000000000532.log.2683.2.offsetfs");
    assert_eq!(fs::read(again).expect("kept"), bytes[2683..2683 + 96]);
}

/// 6.6: what is no file where an index belongs does not stop a repair, and is kept.
#[test]
fn a_directory_in_place_of_an_index_is_put_away() {
    let scratch = scratch();
    let data = copy(fixture("clean").join("data"), scratch.path().join("data"));
    let txn = data.join("txn-0");
    for kind in ["index", "timeindex", "txnindex"] {
        let index = txn.join(format!("00000000000000000121.{kind}"));
        fs::remove_file(&index).expect("removed");
        fs::create_dir(&index).expect("made");
        fs::write(index.join("note"), kind).expect("written");
    }
    let (code, did) = run("repair", &txn, &[]);
    assert_eq!(code, 0, "{did}");
    for kind in ["index", "timeindex", "txnindex"] {
        let index = txn.join(format!("00000000000000000121.{kind}"));
        assert!(index.is_file() || kind == "txnindex", "{kind}");
        let note = txn.join(format!("00000000000000000121.{kind}.0.offsetfs/note"));
        assert_eq!(fs::read_to_string(note).expect("kept"), kind);
    }
    assert_eq!(run("check", &txn, &[]).0, 0);
}

/// 4: no offset is given twice. A segment that cannot be read has offsets that nobody knows.
#[test]
fn nothing_is_appended_where_a_segment_is_no_file() {
    let scratch = scratch();
    let data = copy(fixture("clean").join("data"), scratch.path().join("data"));
    let txn = data.join("txn-0");
    let last = txn.join("00000000000000000627.log");
    let elsewhere = scratch.path().join("elsewhere");
    fs::rename(&last, &elsewhere).expect("moved");
    let make: [fn(&Path, &Path); 2] = [
        |from, name| std::os::unix::fs::symlink(from, name).expect("a link"),
        |_, name| fs::create_dir(name).expect("a directory"),
    ];
    for make in make {
        make(&elsewhere, &last);
        let refused = offsetfs(&["append", txn.to_str().expect("a path"), "/etc/hostname"]);
        assert!(!refused.status.success(), "{}", told(&refused));
        assert!(told(&refused).contains("00000000000000000627.log: not a regular file"));
        assert!(fs::symlink_metadata(&last).is_ok());
        let _ = fs::remove_file(&last).or_else(|_| fs::remove_dir(&last));
    }
}

/// 6.1: bytes that are inserted before the last batch shift its base offset, which
/// no checksum covers; a log that was left in order says where it ends.
#[test]
fn a_batch_behind_inserted_bytes_gets_no_other_offsets() {
    let scratch = scratch();
    for (partition, segment) in [("mixed-0", 443), ("plain-0", 1730)] {
        let data = copy(fixture("clean").join("data"), scratch.path().join(partition));
        let log = data.join(partition).join(format!("{segment:020}.log"));
        let shown = |from: &str| {
            let path = data.join(partition);
            let done =
                offsetfs(&["cat", path.to_str().expect("a path"), "-o", from, "-f", "%o %k %s\\n"]);
            String::from_utf8_lossy(&done.stdout).into_owned()
        };
        let from = segment.to_string();
        let (bytes, whole) = (fs::read(&log).expect("a segment"), shown(&from));
        let known: BTreeSet<&str> = whole.lines().collect();
        let mut last = 0;
        while let Some(length) = bytes.get(last + 8..last + 12) {
            let length = u32::from_be_bytes(length.try_into().expect("four bytes"));
            let next = last + 12 + usize::try_from(length).expect("small");
            if next >= bytes.len() {
                break;
            }
            last = next;
        }
        for at in last..last + 24 {
            for inserted in [1, 2, 3] {
                let mut broken = bytes.clone();
                broken.splice(at..at, vec![bytes[at]; inserted]);
                fs::write(&log, &broken).expect("written");
                let text = shown(&from);
                let wrong = text.lines().find(|line| !known.contains(line));
                assert_eq!(wrong, None, "{partition}: {inserted} bytes at {at}");
            }
        }
    }
}
