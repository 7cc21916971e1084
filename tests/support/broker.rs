//! A real broker: Apache Kafka 4.4.0, one node, `KRaft`, on loopback, in a scratch directory.
//!
//! A `Home` is what stays when the broker does not run: the data directory, the metadata directory
//! and the ports. One broker runs at a time, however many tests there are: each start keeps two
//! cores busy. A broker is ended by its own process id, whatever becomes of the test.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{io::Write as _, thread};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::expected::Row;
use super::kafka::{Kafka, output};
use super::{copy, scratch, told};

const CLUSTER_ID: &str = "1HdOz1e6TBeKmgD7vcMCqQ";
/// How long a broker may take to start or to stop on a busy machine.
const PATIENCE: Duration = Duration::from_mins(2);
/// Between the fields of the console consumer, and behind each record: in no record of ours.
const FIELD: &str = "<~field~>";
const RECORD: &str = "<~record~>";

/// Held while a broker runs.
static TURN: Mutex<()> = Mutex::new(());

/// The directories of a broker.
pub struct Home {
    kafka: Kafka,
    directory: TempDir,
    ports: [u16; 2],
}

/// A broker that runs.
pub struct Broker<'home> {
    home: &'home Home,
    child: Child,
    /// `host:port` for clients.
    pub address: String,
    _turn: MutexGuard<'static, ()>,
}

/// A record as a consumer got it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Consumed {
    pub partition: i32,
    pub offset: i64,
    /// `None` where it does not matter.
    pub ts: Option<i64>,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    /// `name=value,name=value`; NULL is `NULL`.
    pub headers: Vec<u8>,
}

impl Home {
    /// Directories that `kafka-storage format --standalone` has prepared.
    pub fn format(kafka: &Kafka) -> Home {
        let home = Home::new(kafka, scratch(), free_ports());
        for directory in [home.data(), home.meta()] {
            fs::create_dir(directory).expect("a directory");
        }
        let mut format = kafka.java("kafka.tools.StorageTool");
        format.args(["format", "--standalone", "-t", CLUSTER_ID, "-c"]).arg(home.properties());
        let done = output(format);
        assert!(done.status.success(), "StorageTool: {}", told(&done));
        home
    }

    /// A copy of a broker that does not run. It keeps the ports, which stand in its metadata.
    pub fn copy(&self) -> Home {
        let home = Home::new(&self.kafka, scratch(), self.ports);
        copy(self.data(), home.data());
        copy(self.meta(), home.meta());
        home
    }

    fn new(kafka: &Kafka, directory: TempDir, ports: [u16; 2]) -> Home {
        let home = Home { kafka: kafka.clone(), directory, ports };
        home.configure();
        home
    }

    /// log.dirs.
    pub fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// metadata.log.dir.
    pub fn meta(&self) -> PathBuf {
        self.directory.path().join("meta")
    }

    pub fn partition(&self, name: &str) -> PathBuf {
        self.data().join(name)
    }

    /// Was the last end an orderly one?
    pub fn has_clean_shutdown_marker(&self) -> bool {
        self.data().join(".kafka_cleanshutdown").exists()
    }

    /// Puts files in place of those of a stopped partition, which keeps its topic id.
    pub fn adopt(&self, name: &str, foreign: &Path) {
        const IDENTITY: &str = "partition.metadata";
        let own = self.partition(name);
        for file in names(&own).iter().filter(|file| *file != IDENTITY) {
            fs::remove_file(own.join(file)).expect("removed");
        }
        for file in names(foreign).iter().filter(|file| *file != IDENTITY) {
            copy(foreign.join(file), own.join(file));
        }
    }

    /// Starts, and waits until the broker serves.
    pub fn start(&self) -> Broker<'_> {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let mut broker = self.spawn(turn);
        let begun = Instant::now();
        while !self.log().contains("Kafka Server started") {
            let ended = broker.child.try_wait().expect("a child");
            assert!(ended.is_none(), "the broker ended with {ended:?}\n{}", self.end_of_log());
            assert!(begun.elapsed() < PATIENCE, "no start in time\n{}", self.end_of_log());
            thread::sleep(Duration::from_millis(50));
        }
        broker
    }

    /// Starts a broker that must give up by itself; its exit code.
    pub fn start_in_vain(&self) -> Option<i32> {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let mut broker = self.spawn(turn);
        broker.wait().code()
    }

    fn spawn(&self, turn: MutexGuard<'static, ()>) -> Broker<'_> {
        let log = File::create(self.log_path()).expect("a file for the log");
        let mut java = self.kafka.java("kafka.Kafka");
        java.arg(self.properties()).stdout(log.try_clone().expect("a descriptor")).stderr(log);
        let child = java.spawn().expect("java starts");
        Broker { home: self, child, address: format!("127.0.0.1:{}", self.ports[0]), _turn: turn }
    }

    /// What the last broker said.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.log_path()).unwrap_or_default()).into_owned()
    }

    /// Lines of the log that hold all of these words.
    pub fn said(&self, words: &[&str]) -> Vec<String> {
        let holds = |line: &&str| words.iter().all(|word| line.contains(word));
        self.log().lines().filter(holds).map(Into::into).collect()
    }

    /// Warnings and errors about these topics or partitions, or about anything when there are none.
    pub fn complaints(&self, about: &[&str]) -> Vec<String> {
        let complains = |line: &&str| {
            ["WARN ", "ERROR ", "FATAL "].iter().any(|level| line.starts_with(level))
                && (about.is_empty() || about.iter().any(|name| line.contains(name)))
        };
        self.log().lines().filter(complains).map(Into::into).collect()
    }

    /// Fails the test when there are such complaints.
    pub fn assert_no_complaints(&self, about: &[&str]) {
        let complaints = self.complaints(about);
        assert!(complaints.is_empty(), "the broker says: {}", complaints.join("\n"));
    }

    fn end_of_log(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }

    fn log_path(&self) -> PathBuf {
        self.directory.path().join("broker.log")
    }

    fn properties(&self) -> PathBuf {
        self.directory.path().join("server.properties")
    }

    /// One partition for each internal topic, no retention, no clean-up behind the tests' back.
    fn configure(&self) {
        let [client, controller] = self.ports;
        let (data, meta) = (self.data(), self.meta());
        let text = format!(
            "process.roles=broker,controller\nnode.id=1\n\
             controller.quorum.bootstrap.servers=127.0.0.1:{controller}\n\
             listeners=PLAINTEXT://127.0.0.1:{client},CONTROLLER://127.0.0.1:{controller}\n\
             controller.listener.names=CONTROLLER\n\
             log.dirs={}\nmetadata.log.dir={}\n\
             offsets.topic.replication.factor=1\noffsets.topic.num.partitions=1\n\
             transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\n\
             transaction.state.log.num.partitions=1\n\
             share.coordinator.state.topic.replication.factor=1\n\
             auto.create.topics.enable=false\nlog.retention.ms=-1\n\
             log.retention.check.interval.ms=500\n\
             log.message.timestamp.after.max.ms=9223372036854775807\n\
             log.cleaner.dedupe.buffer.size=4000000\ngroup.initial.rebalance.delay.ms=0\n",
            data.display(),
            meta.display()
        );
        fs::write(self.properties(), text).expect("server.properties");
    }
}

impl Broker<'_> {
    /// Creates topics: `NAME/PARTITIONS` or `NAME/PARTITIONS/PROPERTY=VALUE,PROPERTY=VALUE`.
    pub fn create_topics(&self, topics: &[String]) {
        let mut java = self.home.kafka.java("Topics");
        java.arg(&self.address).args(topics);
        let done = output(java);
        assert!(done.status.success(), "{}", told(&done));
    }

    /// Appends records whose value is a line; a batch for each `batch_records` of them.
    pub fn produce(&self, topic: &str, partition: i32, values: &[String], batch_records: usize) {
        let mut kcat = self.kcat("-P", topic, partition);
        kcat.args(["-X", &format!("batch.num.messages={batch_records}"), "-X", "linger.ms=50"]);
        let mut child = kcat.stdin(Stdio::piped()).spawn().expect("kcat starts");
        let mut input = child.stdin.take().expect("a pipe");
        input.write_all((values.join("\n") + "\n").as_bytes()).expect("kcat reads");
        drop(input);
        assert!(child.wait().expect("a child").success(), "kcat could not produce to {topic}");
    }

    /// All of a partition, aborted records too, as kcat gets it.
    pub fn consume(&self, topic: &str, partition: i32) -> Vec<Consumed> {
        let mut kcat = self.kcat("-C", topic, partition);
        kcat.args(["-o", "beginning", "-e", "-q", "-X", "isolation.level=read_uncommitted"]);
        kcat.args(["-f", "%p %o %T %K %S\\n%k%s%h\\n"]);
        let done = output(kcat);
        assert!(done.status.success() && done.stderr.is_empty(), "{topic}: {}", told(&done));
        let mut rest = done.stdout.as_slice();
        std::iter::from_fn(|| kcat_record(&mut rest)).collect()
    }

    /// `records_count` records of a topic's partitions, by partition and offset, as Kafka's console
    /// consumer gets them. Fewer fail the test; so do more.
    pub fn consume_by_console(&self, topic: &str, records_count: usize) -> Vec<Consumed> {
        // On a busy machine the first record may come late.
        let mut tries = ["4000", "60000"].iter().map(|ms| self.console(topic, records_count, ms));
        let enough = tries.find(|(records, _)| records.len() >= records_count);
        let (mut records, told) =
            enough.unwrap_or_else(|| panic!("{topic}: not {records_count} records"));
        records.sort();
        assert_eq!(records.len(), records_count, "{topic}: {told}");
        records
    }

    fn console(&self, topic: &str, records_count: usize, idle_ms: &str) -> (Vec<Consumed>, String) {
        let mut java = self.home.kafka.java("org.apache.kafka.tools.consumer.ConsoleConsumer");
        java.args(["--bootstrap-server", &self.address, "--topic", topic, "--from-beginning"]);
        // One more than there should be: it ends by the timeout.
        java.args(["--max-messages", &(records_count + 1).to_string(), "--timeout-ms", idle_ms]);
        for property in ["partition", "offset", "timestamp", "key", "headers"] {
            java.args(["--formatter-property", &format!("print.{property}=true")]);
        }
        java.args(["--formatter-property", &format!("key.separator={FIELD}")]);
        java.args(["--formatter-property", &format!("line.separator={RECORD}\n")]);
        java.args(["--formatter-property", "null.literal=<~null~>"]);
        let done = output(java);
        let end = format!("{RECORD}\n");
        let records =
            split(&done.stdout, end.as_bytes()).into_iter().filter_map(console_record).collect();
        (records, super::err(&done))
    }

    fn kcat(&self, mode: &str, topic: &str, partition: i32) -> Command {
        let mut kcat = Command::new("kcat");
        kcat.args([mode, "-b", &self.address, "-t", topic, "-p", &partition.to_string()]);
        kcat.stdin(Stdio::null());
        kcat
    }

    /// Stops in order: SIGTERM, and the wait for its end.
    pub fn stop(mut self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).expect("a signal");
        let status = self.wait();
        // A JVM that SIGTERM ends says so, after it has run its shutdown hooks.
        assert!([Some(0), Some(143)].contains(&status.code()), "the broker ended with {status}");
        assert!(self.home.has_clean_shutdown_marker(), "no orderly end");
    }

    /// kill -9.
    pub fn kill(mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("ended");
    }

    fn wait(&mut self) -> ExitStatus {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                return status;
            }
            assert!(begun.elapsed() < PATIENCE, "no end in time\n{}", self.home.end_of_log());
            thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Broker<'_> {
    fn drop(&mut self) {
        // It has ended already, or nobody needs what it holds.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Consumed {
    /// What a consumer gets of a record that Kafka wrote.
    pub fn of(row: &Row, partition: i32) -> Consumed {
        let header = |(name, value): &(String, Option<Vec<u8>>)| {
            [name.as_bytes(), b"=", value.as_deref().unwrap_or(b"NULL")].concat()
        };
        Consumed {
            partition,
            offset: row.offset,
            ts: Some(row.ts),
            key: row.key.clone(),
            value: row.value.clone(),
            headers: row.headers.iter().map(header).collect::<Vec<_>>().join(&b','),
        }
    }
}

/// The next record in the output of `kcat -f '%p %o %T %K %S\n%k%s%h\n'`.
fn kcat_record(rest: &mut &[u8]) -> Option<Consumed> {
    let head = rest.split(|byte| *byte == b'\n').next().filter(|line| !line.is_empty())?;
    *rest = &rest[head.len() + 1..];
    let numbers: Vec<i64> = str::from_utf8(head)
        .expect("numbers")
        .split(' ')
        .map(|number| number.parse().expect("a number"))
        .collect();
    let mut bytes = |length: i64| {
        let (taken, left) = rest.split_at(usize::try_from(length).ok()?);
        *rest = left;
        Some(taken.to_vec())
    };
    let (key, value) = (bytes(numbers[3]), bytes(numbers[4]));
    // Headers have no length: none of ours holds a newline.
    let headers = rest.split(|byte| *byte == b'\n').next().unwrap_or_default().to_vec();
    *rest = rest.get(headers.len() + 1..).unwrap_or_default();
    Some(Consumed {
        partition: i32::try_from(numbers[0]).expect("a partition"),
        offset: numbers[1],
        ts: Some(numbers[2]),
        key,
        value,
        headers,
    })
}

/// `CreateTime:T<>Partition:P<>Offset:O<>headers<>key<>value`; log lines come before the first.
fn console_record(text: &[u8]) -> Option<Consumed> {
    let fields = split(text, FIELD.as_bytes());
    let [time, partition, offset, headers, key, value] = fields.as_slice() else { return None };
    let number = |field: &[u8]| -> i64 {
        let text = String::from_utf8_lossy(field).into_owned();
        let digits = text.rsplit(':').next().unwrap_or_default();
        digits.parse().unwrap_or_else(|_| panic!("no number: {text}"))
    };
    let nullable = |field: &[u8]| (field != b"<~null~>").then(|| field.to_vec());
    let headers = String::from_utf8_lossy(headers).into_owned();
    let headers = if headers == "NO_HEADERS" { String::new() } else { headers };
    Some(Consumed {
        partition: i32::try_from(number(partition)).expect("a partition"),
        offset: number(offset),
        ts: Some(number(time)),
        key: nullable(key),
        value: nullable(value),
        headers: headers.replace(':', "=").replace("<~null~>", "NULL").into_bytes(),
    })
}

/// The pieces between separators.
fn split<'a>(text: &'a [u8], separator: &[u8]) -> Vec<&'a [u8]> {
    let mut pieces = Vec::new();
    let mut start = 0;
    let mut at = 0;
    while at + separator.len() <= text.len() {
        if text[at..].starts_with(separator) {
            pieces.push(&text[start..at]);
            at += separator.len();
            start = at;
        } else {
            at += 1;
        }
    }
    pieces.push(&text[start..]);
    pieces
}

fn names(directory: &Path) -> Vec<String> {
    super::mount::names(directory)
}

/// Two ports, not the same one, that were free a moment ago. They lie below those which the kernel
/// hands out, so that no connection of another test takes one while a broker restarts.
fn free_ports() -> [u16; 2] {
    let start = 10_000 + std::process::id() % 20_000;
    let ports = (start..32_768).filter_map(|port| u16::try_from(port).ok());
    let mut free = ports.filter_map(|port| TcpListener::bind(("127.0.0.1", port)).ok());
    // Both are held until both are known.
    let held = [free.next().expect("a port"), free.next().expect("a port")];
    held.map(|listener| listener.local_addr().expect("an address").port())
}
