//! Unix tools see in the mount what they see in an ordinary file with the same bytes.
//!
//! The files are views of compressed partitions that Kafka wrote, so nothing here is in the segment
//! files as it is read. Which tools a file system without exact sizes breaks was measured before
//! this project began; those are the ones in the list. A missing tool is named aloud.

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use support::mount::Mount;
use support::{fixture, has_tool, mount, required, scratch, sh, told};

/// `$1` is the file; output and exit code must be those of an ordinary file (`$2`). The first word
/// is the tool that is needed.
const COMMANDS: [&str; 72] = [
    "stat -c %s \"$1\"",
    "wc \"$1\" | awk '{print $1, $2, $3}'",
    "wc < \"$1\"",
    "wc -c < \"$1\"",
    "cat \"$1\"",
    "cat -A \"$1\"",
    "head \"$1\"",
    "head -c 70000 \"$1\"",
    "head -n -2 \"$1\"",
    "head -c -10 \"$1\"",
    "tail \"$1\"",
    "tail -n 3 \"$1\"",
    "tail -n +20 \"$1\"",
    "tail -c 5 \"$1\"",
    "tail -c 5 < \"$1\"",
    "tail -c +1000 \"$1\"",
    "tac \"$1\"",
    "rev \"$1\"",
    "nl \"$1\"",
    "split -n 3 --filter cksum \"$1\"",
    "split -n l/4 --filter cksum \"$1\"",
    "split -l 100 --filter cksum \"$1\"",
    "csplit -s \"$1\" 1 && cat xx*",
    "dd if=\"$1\" status=none",
    "dd if=\"$1\" bs=1000 skip=7 count=3 status=none",
    "dd if=\"$1\" bs=7 skip=300 count=9 status=none",
    "dd if=\"$1\" bs=1M iflag=fullblock status=none",
    "dd if=\"$1\" iflag=skip_bytes skip=333 bs=4096 status=none",
    "cp \"$1\" copy && cat copy",
    "cp --sparse=always \"$1\" copy && cat copy",
    "install -m 644 \"$1\" copy && cat copy",
    "tar -cf copy.tar -C \"$(dirname \"$1\")\" -- \"$(basename \"$1\")\" && tar -xOf copy.tar",
    "rsync -a \"$1\" copy && cat copy",
    "rsync -a --inplace --no-whole-file \"$1\" copy && cat copy",
    "less -f -F \"$1\" | cat",
    "less -f \"$1\" | tail -n 1",
    "grep -c a \"$1\"",
    "grep -ab -m 3 e \"$1\"",
    "grep -o -a '[0-9]*' \"$1\" | head -n 50",
    "grep -rac e \"$1\"",
    "rg -a --mmap -c a \"$1\"",
    "rg -a --no-mmap -c a \"$1\"",
    "find \"$1\" -size +0 -printf '%s\\n'",
    "find \"$1\" -empty",
    "du --apparent-size -b \"$1\" | cut -f 1",
    "sha256sum < \"$1\"",
    "md5sum < \"$1\"",
    "cksum < \"$1\"",
    "b2sum < \"$1\"",
    "sort \"$1\"",
    "sort -u -S 1M \"$1\" | wc -l",
    "shuf --random-source=/dev/zero \"$1\" | cksum",
    "uniq -c \"$1\"",
    "cut -c 1-9 \"$1\"",
    "tr a-z A-Z < \"$1\"",
    "fold -w 30 \"$1\"",
    "paste - - < \"$1\"",
    "diff \"$1\" \"$2\"",
    "cmp \"$1\" \"$2\"",
    "comm -12 \"$1\" \"$2\"",
    "join -a 1 \"$1\" \"$2\" 2>/dev/null | wc -l",
    "awk 'END { print NR, length($0) }' \"$1\"",
    "sed -n '$p;5,9p' \"$1\"",
    "perl -ne 'END { print $. }' \"$1\"",
    "perl -e 'open F, $ARGV[0]; seek F, -9, 2; read F, $b, 99; print $b' \"$1\"",
    "gzip -nc < \"$1\"",
    "zstd -qc \"$1\"",
    "xz -c \"$1\"",
    "od -An -tx1 -j 60 -N 400 \"$1\"",
    "xxd -s -40 \"$1\"",
    "file -b \"$1\"",
    "python3 -c \"$PY\" \"$1\"",
];

/// `jq` on the JSON views.
const ON_JSON: [&str; 3] =
    ["jq -c .offset \"$1\"", "jq -r '.payload // .payload_b64' \"$1\"", "jq -s 'length' \"$1\""];

/// Without these the test means too little to pass where FUSE is required.
const REQUIRED: [&str; 7] = ["rsync", "tar", "less", "rg", "perl", "python3", "jq"];

const PROLOGUE: &str = "export LC_ALL=C; PY='
import mmap, os, sys
f = open(sys.argv[1], \"rb\")
data = f.read()
m = mmap.mmap(f.fileno(), 0, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)
print(m[:] == data, len(data), f.seek(0, 2), os.pread(f.fileno(), 9, 7))'
";

/// A view and an ordinary file with the bytes that it must have.
struct Pair {
    view: PathBuf,
    ordinary: PathBuf,
}

/// Views of a partition beside copies that were read through a plain loop of read(2).
fn pairs(mount: &Mount, home: &Path, partition: &str, names: &[&str]) -> Vec<Pair> {
    let pair = |name: &&str| {
        let view = mount.partition(partition).path("by-offset").join(name);
        let ordinary = home.join(format!("{partition}-{name}"));
        let bytes = fs::read(&view).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(!bytes.is_empty(), "{name} is empty");
        fs::write(&ordinary, bytes).expect("a copy");
        Pair { view, ordinary }
    };
    names.iter().map(pair).collect()
}

/// Runs one command on both files of a pair; a difference, if there is one.
fn difference(command: &str, home: &Path, pair: &Pair) -> Option<String> {
    let on = |file: &Path| -> Output {
        let directory = home.join("cwd");
        let script =
            format!("rm -rf \"$3\"; mkdir \"$3\"; cd \"$3\" || exit 99; {PROLOGUE}{command}");
        sh(&script, &[file, &pair.ordinary, &directory])
    };
    let (ordinary, view) = (on(&pair.ordinary), on(&pair.view));
    let same = ordinary.stdout == view.stdout && ordinary.status == view.status;
    (!same).then(|| {
        let (ordinary, view) = (told(&ordinary), told(&view));
        format!("{command}\non {}: {view}\non an ordinary file: {ordinary}", pair.view.display())
    })
}

fn all_differences(commands: &[&str], home: &Path, pairs: &[Pair]) -> Vec<String> {
    let mut found = Vec::new();
    for command in commands {
        let tool = command.split(' ').next().expect("a tool");
        if has_tool(tool) {
            found.extend(pairs.iter().filter_map(|pair| difference(command, home, pair)));
        } else {
            let needed = REQUIRED.contains(&tool) && required("OFFSETFS_REQUIRE_FUSE");
            assert!(!needed, "{tool} is not installed");
            support::skipped(&format!("{tool} is not installed: {command}"));
        }
    }
    found
}

fn assert_none(found: &[String]) {
    assert!(found.is_empty(), "{} differences\n\n{}", found.len(), found.join("\n\n"));
}

/// 2.1: "`stat`, `wc -c`, `tar`, `rsync`, `split`, `tac`, `tail -c` and `cat` agree."
#[test]
fn tools_read_ranges_like_ordinary_files() {
    needs_fuse!();
    let home = scratch();
    let mount = mount(fixture("clean").join("data")).start();
    let mut files = pairs(&mount, home.path(), "zstd-0", &["0..", "37..311.jsonl"]);
    files.extend(pairs(&mount, home.path(), "lz4-0", &["-250..", "0...raw"]));
    assert_none(&all_differences(&COMMANDS, home.path(), &files));
}

/// 2.1: "`stat`, `wc -c`, `tar`, `rsync`, `split`, `tac`, `tail -c` and `cat` agree."
#[test]
fn tools_read_records_like_ordinary_files() {
    needs_fuse!();
    let home = scratch();
    let mount = mount(fixture("clean").join("data")).start();
    let mut files = pairs(&mount, home.path(), "zstd-0", &["200"]);
    files.extend(pairs(&mount, home.path(), "lz4-0", &["7", "399.json"]));
    assert_none(&all_differences(&COMMANDS, home.path(), &files));
}

/// 3.3: "The JSON envelope is valid UTF-8 JSON"
#[test]
fn jq_reads_the_json_views() {
    needs_fuse!();
    let home = scratch();
    let mount = mount(fixture("clean").join("data")).start();
    for partition in ["zstd-0", "binary-0", "txn-0"] {
        let found = pairs(&mount, home.path(), partition, &["0...jsonl", "1.json"]);
        assert_none(&all_differences(&ON_JSON, home.path(), &found));
    }
    let count = "jq -s length \"$1\"/zstd-0/by-offset/0...jsonl";
    let done = sh(count, &[mount.path()]);
    assert_eq!(done.stdout, b"400\n", "{}", told(&done));
}

/// 2.7: "Inode, size and mtime are the same after a remount, so rsync and incremental tar copy
/// nothing twice."
#[test]
fn a_backup_copies_nothing_twice() {
    needs_fuse!();
    needs_tool!("rsync");
    let home = scratch();
    let source = fixture("clean").join("data");
    let at = home.path().join("mnt");
    let script = "rsync -a --stats \"$1/zstd-0\" \"$1/lz4-0\" \"$2/copy\" |
            grep -a 'files transferred'
        tar -C \"$1\" -cf \"$2/x.tar\" -g \"$2/x.snar\" zstd-0/by-offset &&
            tar -tf \"$2/x.tar\" | grep -c '[0-9]$'";
    let backups: Vec<String> = (0..2)
        .map(|_| {
            let mount = mount(&source).at(&at).start();
            let done = sh(script, &[mount.path(), home.path()]);
            String::from_utf8(done.stdout).expect("UTF-8")
        })
        .collect();
    assert!(!backups[0].contains(" 0\n") && backups[0].contains("400"), "{backups:?}");
    assert!(backups[1].contains(" 0\n0\n"), "{backups:?}");
}

/// 2.3: "`grep -r`, `find`, `tar`, `du` over a mount end."
#[test]
fn a_whole_tree_is_searched_and_archived() {
    needs_fuse!();
    let home = scratch();
    let mount = mount(fixture("clean").join("data")).start();
    for (tool, command) in [
        ("grep", "grep -ra key . | wc -l"),
        ("rg", "rg -a key . | wc -l"),
        ("find", "find . -size -2 -name '1*' -newermt 2000-01-01 | wc -l"),
        ("tar", "tar -cf - . | wc -c"),
        ("du", "du -sb . | cut -f 1"),
        ("diff", "cp -r zstd-0 \"$2/whole\" && diff -r zstd-0 \"$2/whole\" && echo 1"),
        ("rsync", "rsync -a ./ \"$2/all\" && find \"$2/all\" -type f | wc -l"),
        ("cat", "cat */by-offset/0.. | wc -c"),
    ] {
        if !has_tool(tool) {
            support::skipped(&format!("{tool} is not installed: {command}"));
            continue;
        }
        let script = format!("set -o pipefail; cd \"$1\" && {command}");
        let done = sh(&script, &[mount.path(), home.path()]);
        let number = String::from_utf8_lossy(&done.stdout).trim().parse::<u64>().unwrap_or(0);
        assert!(done.status.success() && number > 0, "{command}: {}", told(&done));
    }
}
