//! Apache Kafka 4.4.0 from its jars: its dump tool, and its own log classes (`tests/kafka/java`).
//! The broker is next door, in `broker.rs`.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use super::{copy, err, out, required, scratch, sh, skipped, told};

/// Enough for a broker with a few partitions, and small enough for any machine that runs tests.
const JVM_OPTIONS: [&str; 3] = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"];

/// What the dump tool says when a file is not as it should be.
const FAULTS: [&str; 8] = [
    "Mismatches in",
    "are not found in",
    "Found timestamp mismatch in",
    "Found out of order timestamp in",
    "invalid bytes at the end of",
    "isvalid: false",
    "Snapshot is corrupt",
    "Exception",
];

/// The jars, and the classes of `tests/kafka/java`.
#[derive(Clone, Debug)]
pub struct Kafka {
    libs: PathBuf,
    classes: PathBuf,
}

/// Apache Kafka; without a JDK or the jars `None`, aloud, or a panic when
/// `OFFSETFS_REQUIRE_KAFKA=1`. Looks once a process: the jars may have to be fetched.
pub fn require_kafka() -> Option<Kafka> {
    static FOUND: OnceLock<Result<Kafka, String>> = OnceLock::new();
    match FOUND.get_or_init(Kafka::find) {
        Ok(kafka) => Some(kafka.clone()),
        Err(why) => {
            assert!(!required("OFFSETFS_REQUIRE_KAFKA"), "no Apache Kafka: {why}");
            skipped(&format!("no Apache Kafka: {why}"));
            None
        }
    }
}

impl Kafka {
    fn find() -> Result<Kafka, String> {
        for tool in ["java", "javac", "kcat"] {
            if !super::has_tool(tool) {
                return Err(format!("{tool} is not installed"));
            }
        }
        let script = |name: &str| {
            let done = sh("exec \"$1\"", &[in_kafka(name)]);
            let said = || format!("tests/kafka/{name}: {}", err(&done));
            if done.status.success() {
                Ok(PathBuf::from(out(&done).trim_end()))
            } else {
                Err(said())
            }
        };
        Ok(Kafka { libs: script("jars.sh")?, classes: script("classes.sh")? })
    }

    /// A program of Kafka's or of ours; log lines go to stdout.
    pub fn java(&self, class: &str) -> Command {
        let mut path = self.classes.as_os_str().to_owned();
        path.push(":");
        path.push(self.libs.join("*"));
        let mut java = Command::new("java");
        java.args(JVM_OPTIONS);
        java.arg(format!("-Dlog4j2.configurationFile={}", in_kafka("log4j2.yaml").display()));
        java.arg("-cp").arg(path).arg(class).stdin(Stdio::null());
        java
    }

    /// Kafka's dump tool on these files.
    pub fn dump(&self, files: &[PathBuf], options: &[&str]) -> Output {
        let names: Vec<&OsStr> = files.iter().map(|file| file.as_os_str()).collect();
        let mut java = self.java("org.apache.kafka.tools.DumpLogSegments");
        java.arg("--files").arg(names.join(OsStr::new(","))).args(options);
        output(java)
    }

    /// The faults that the dump tool finds in partitions, one a line. It looks at copies, because
    /// it makes the files that it misses.
    pub fn faults(&self, partitions: &[PathBuf]) -> Vec<String> {
        let home = scratch();
        let copies: Vec<PathBuf> = partitions
            .iter()
            .map(|partition| {
                copy(partition, home.path().join(partition.file_name().expect("name")))
            })
            .collect();
        let logs = files(&copies, &["log", "snapshot", "txnindex"]);
        let indexes = files(&copies, &["index", "timeindex"]);
        assert!(!logs.is_empty() && !indexes.is_empty(), "nothing to dump in {partitions:?}");
        let mut faults = Vec::new();
        for some in logs.chunks(MOST_FILES) {
            faults.extend(faults_in(&self.dump(some, &["--deep-iteration"])));
        }
        for some in indexes.chunks(MOST_FILES) {
            let done = self.dump(some, &["--verify-index-only"]);
            faults.extend(faults_in(&done));
            let done = self.dump(some, &["--index-sanity-check"]);
            faults.extend(faults_in(&done));
            let said = out(&done);
            let passed =
                said.matches("passed sanity check").count() + said.matches(" is empty.").count();
            if passed != some.len() {
                faults.push(format!("{passed} of {} indexes passed", some.len()));
            }
        }
        faults
    }

    /// Fails the test when the dump tool finds a fault.
    pub fn assert_sound(&self, partitions: &[PathBuf]) {
        let faults = self.faults(partitions);
        assert!(faults.is_empty(), "Kafka's dump tool: {}", faults.join("\n"));
    }

    /// Appends the batches of partitions once more through Kafka's own `UnifiedLog`; each goes to
    /// the directory of its name in `target`. Settings are those of `Replay.java`.
    pub fn replay(&self, target: &Path, partitions: &[(PathBuf, String)]) {
        fs::create_dir_all(target).expect("a directory");
        let line =
            |(path, settings): &(PathBuf, String)| format!("{} {settings}\n", path.display());
        let plan = target.join("plan");
        fs::write(&plan, partitions.iter().map(line).collect::<String>()).expect("a plan");
        let mut java = self.java("Replay");
        java.args([target, &plan]);
        let done = output(java);
        let shown =
            || out(&done).lines().filter(|line| !line.starts_with("INFO")).collect::<String>();
        assert!(done.status.success(), "{}\n{}\n{}", done.status, shown(), err(&done));
    }
}

/// The dump tool takes all names in one argument, of which Linux allows 128 KiB (execve(2)).
const MOST_FILES: usize = 400;

/// Runs it to the end.
pub fn output(mut command: Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// Files with these extensions, in the order of their names.
pub fn files(directories: &[PathBuf], extensions: &[&str]) -> Vec<PathBuf> {
    let entries = directories.iter().flat_map(|directory| fs::read_dir(directory).expect("listed"));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.retain(|file| {
        file.extension().is_some_and(|found| extensions.iter().any(|extension| found == *extension))
    });
    files.sort();
    files
}

/// The lines that tell of a fault.
fn faults_in(done: &Output) -> Vec<String> {
    let text = out(done) + &err(done);
    let mut faults: Vec<String> =
        text.lines().filter(|line| is_fault(line)).map(Into::into).collect();
    if !done.status.success() {
        faults.push(told(done));
    }
    faults
}

/// Each segment but the first makes the tool say `-1 is followed by N`.
fn is_fault(line: &str) -> bool {
    let gap = line.contains(" is followed by ") && !line.trim_start().starts_with("-1 ");
    gap || FAULTS.iter().any(|fault| line.contains(fault))
}

fn in_kafka(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kafka").join(name)
}
