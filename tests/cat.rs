//! Contract 7.1 to 7.3: `offsetfs cat` on partitions that Apache Kafka wrote, beside `cli_cat.rs`:
//! how a partition may be named, what its parent says of it, damage told once, and following.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use tempfile::TempDir;

/// 2,000 records, without holes, in segments from 0, 566, 1154 and 1730.
const PLAIN: &str = "clean/data/plain-0";

fn fixture(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(path)
}

fn command(partition: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_offsetfs"));
    command.arg("cat").arg(partition).args(arguments).env_remove("RUST_LOG");
    command
}

/// What was printed, what was said, and the exit code.
struct Done {
    out: Vec<u8>,
    err: String,
    code: Option<i32>,
}

impl Done {
    fn text(&self) -> String {
        assert_eq!(self.code, Some(0), "{}", self.err);
        String::from_utf8(self.out.clone()).unwrap()
    }
}

fn cat(partition: &Path, arguments: &[&str]) -> Done {
    let done = command(partition, arguments).output().unwrap();
    let err = String::from_utf8(done.stderr).unwrap();
    Done { out: done.stdout, err, code: done.status.code() }
}

/// The data records of a partition, as Kafka read them.
fn expected(set: &str, partition: &str) -> Vec<Value> {
    let text = fs::read_to_string(fixture(&format!("{set}/expected/{partition}.jsonl"))).unwrap();
    let records = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    records.filter(|record| record["control"] == false).collect()
}

fn values<'a>(records: impl IntoIterator<Item = &'a Value>) -> Vec<u8> {
    let lines = records.into_iter().map(|record| {
        let value = record["value"].as_str().map(|text| STANDARD.decode(text).unwrap());
        [value.unwrap_or_default(), b"\n".to_vec()].concat()
    });
    lines.collect::<Vec<_>>().concat()
}

/// A copy of `clean/plain-0` in a data directory.
fn plain_copy() -> (TempDir, PathBuf) {
    let scratch = tempfile::tempdir().unwrap();
    let partition = scratch.path().join("plain-0");
    fs::create_dir(&partition).unwrap();
    for entry in fs::read_dir(fixture(PLAIN)).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), partition.join(entry.file_name())).unwrap();
    }
    (scratch, partition)
}

#[test]
fn json_says_how_a_transaction_ended_and_what_is_above_the_high_watermark() {
    let json = cat(&fixture("open-txn/data/opentxn-0"), &["-J"]).text();
    let said: Vec<Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let records = expected("open-txn", "opentxn-0");
    assert_eq!(said.len(), records.len());
    for (said, record) in said.iter().zip(&records) {
        assert_eq!(said["offset"], record["offset"]);
        assert_eq!(said["transactional"] == true, record["txn"] == true);
        assert_eq!(said.get("txn").is_some(), record["txn"] == true, "{said}");
    }
    assert!(said.iter().any(|record| record["txn"] == "open"));
    let (scratch, partition) = plain_copy();
    let checkpoint = scratch.path().join("replication-offset-checkpoint");
    fs::write(checkpoint, "0\n1\nplain 0 1999\n").unwrap();
    let json = cat(&partition, &["-J", "-o", "-2"]).text();
    let above: Vec<_> =
        json.lines().map(|l| l.contains(r#""above_high_watermark":true"#)).collect();
    assert_eq!(above, [false, true]);
}

#[test]
fn the_log_start_of_the_parent_counts() {
    let (scratch, partition) = plain_copy();
    fs::write(scratch.path().join("log-start-offset-checkpoint"), "0\n1\nplain 0 1234\n").unwrap();
    let done = cat(&partition, &["-f", "%o ", "-c", "2"]);
    assert_eq!(done.text(), "1234 1235 ");
}

#[test]
fn the_partition_may_be_named_in_any_way() {
    let (scratch, partition) = plain_copy();
    let link = scratch.path().join("link");
    symlink(&partition, &link).unwrap();
    let first = values(&expected("clean", "plain-0")[..1]);
    for (directory, name) in
        [(&*partition, "."), (scratch.path(), "plain-0/"), (&*partition, "../link")]
    {
        let mut command = command(Path::new(name), &["-c", "1"]);
        let done = command.current_dir(directory).output().unwrap();
        assert!(done.stdout == first, "{name}: {}", String::from_utf8_lossy(&done.stderr));
    }
    assert_eq!(cat(&link, &["-c", "1", "-f", "%t %p"]).text(), "plain 0");
}

#[test]
fn notes_go_to_stderr_and_can_be_silenced() {
    let plain = fixture(PLAIN);
    let end = "% Reached end of topic plain [0] at offset 2000\n";
    assert_eq!(cat(&plain, &["-o", "-2", "-e"]).err, end);
    assert_eq!(cat(&plain, &["-o", "-2"]).err, "");
    assert_eq!(cat(&plain, &["-o", "10:20", "-e"]).err, "");
    assert_eq!(cat(&plain, &["-c", "5", "-e"]).err, "");
    assert!(cat(&plain, &["-o", "end"]).err.starts_with("% No records in this range"));
    for arguments in [&["-o", "-2", "-e", "-q"], &["-o", "end", "-e", "-q"]] {
        assert_eq!(cat(&plain, arguments).err, "");
    }
}

#[test]
fn damage_is_stepped_over_told_once_and_seen_in_the_exit_code() {
    let (_scratch, partition) = plain_copy();
    let records = expected("clean", "plain-0");
    let base = records[1000]["batch_base"].as_u64().unwrap();
    let log = partition.join(records[1000]["segment"].as_str().unwrap());
    let mut bytes = fs::read(&log).unwrap();
    let position = usize::try_from(records[1000]["batch_position"].as_u64().unwrap()).unwrap();
    bytes[position + 70] ^= 1;
    fs::write(&log, bytes).unwrap();
    let inside = |record: &&Value| record["batch_base"].as_u64() == Some(base);
    let done = cat(&partition, &[]);
    assert_eq!(done.code, Some(3));
    assert!(done.out == values(records.iter().filter(|record| !inside(record))));
    assert_eq!(done.err.lines().count(), 1, "{}", done.err);
    assert!(done.err.contains("checksum") && done.err.contains("00000566.log"), "{}", done.err);
    assert_eq!(cat(&partition, &["-o", "0:100"]).code, Some(0), "damage elsewhere");
    let offset = base.to_string();
    let done = cat(&partition, &["-o", &offset, "-c", "1"]);
    assert_eq!(done.code, Some(3), "{}", done.err);
}

#[test]
fn what_cannot_be_is_refused_with_the_path() {
    let scratch = tempfile::tempdir().unwrap();
    let missing = scratch.path().join("none-0");
    for path in
        [&missing, scratch.path(), &fixture("clean/data"), &fixture("clean/data/meta.properties")]
    {
        let done = cat(path, &[]);
        assert_eq!((done.code, done.out.len()), (Some(1), 0), "{}", done.err);
        assert!(done.err.contains(path.to_str().unwrap()), "{}", done.err);
    }
}

/// A `cat --follow` that is running; killed in the end.
struct Following(Child, BufReader<std::process::ChildStdout>);

impl Following {
    fn start(partition: &Path, arguments: &[&str]) -> Following {
        let mut child =
            command(partition, arguments).arg("--follow").stdout(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Following(child, out)
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.1.read_line(&mut line).unwrap();
        line
    }

    fn ends(&mut self) -> bool {
        let limit = Instant::now() + Duration::from_secs(10);
        while Instant::now() < limit {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status.success();
            }
            thread::sleep(Duration::from_millis(20));
        }
        false
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        self.0.wait().unwrap();
    }
}

#[test]
fn following_shows_what_is_appended_and_stops_at_its_end() {
    let (_scratch, partition) = plain_copy();
    let records = expected("clean", "plain-0");
    let log = partition.join(records[1900]["segment"].as_str().unwrap());
    let bytes = fs::read(&log).unwrap();
    let cut = usize::try_from(records[1900]["batch_position"].as_u64().unwrap()).unwrap();
    let base = records[1900]["batch_base"].as_i64().unwrap();
    fs::write(&log, &bytes[..cut]).unwrap();
    let start = (base - 1).to_string();
    let mut all = Following::start(&partition, &["-o", &start, "-f", "%o\n"]);
    let mut bounded = Following::start(&partition, &["-o", &start, "-c", "3", "-f", "%o\n"]);
    assert_eq!(all.line(), format!("{start}\n"));
    assert_eq!(bounded.line(), format!("{start}\n"));
    // Half a batch is not there yet.
    let mut file = OpenOptions::new().append(true).open(&log).unwrap();
    file.write_all(&bytes[cut..cut + 30]).unwrap();
    thread::sleep(Duration::from_millis(400));
    file.write_all(&bytes[cut + 30..]).unwrap();
    for offset in base..2000 {
        assert_eq!(all.line(), format!("{offset}\n"));
    }
    assert_eq!((bounded.line(), bounded.line()), (format!("{base}\n"), format!("{}\n", base + 1)));
    assert!(bounded.ends());
    assert!(all.0.try_wait().unwrap().is_none());
}

#[test]
fn following_goes_on_in_a_new_segment_when_the_first_ones_are_deleted() {
    let (scratch, partition) = plain_copy();
    let name = |base: i64, suffix: &str| format!("{base:020}.{suffix}");
    for suffix in ["log", "index", "timeindex", "snapshot"] {
        fs::rename(partition.join(name(1730, suffix)), scratch.path().join(suffix)).unwrap();
    }
    let mut all = Following::start(&partition, &["-o", "1728", "-f", "%o\n"]);
    assert_eq!((all.line(), all.line()), ("1728\n".to_owned(), "1729\n".to_owned()));
    fs::rename(scratch.path().join("log"), partition.join(name(1730, "log"))).unwrap();
    for base in [0, 566, 1154] {
        fs::remove_file(partition.join(name(base, "log"))).unwrap();
    }
    for offset in 1730..2000 {
        assert_eq!(all.line(), format!("{offset}\n"));
    }
}
