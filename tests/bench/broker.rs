//! Apache Kafka 4.4.0 from its jars: the dump tool, and a single-node broker on loopback that
//! takes over partitions written by `make_log`.

#![allow(dead_code, reason = "each benchmark uses a part of it")]

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use crate::make_log::Written;
use crate::rounds::Outcome;

const CLUSTER_ID: &str = "1HdOz1e6TBeKmgD7vcMCqQ";
/// How long a broker may take to start or to stop.
const PATIENCE: Duration = Duration::from_mins(2);
/// What Kafka's own start scripts pass to the JVM.
const JVM_OPTIONS: [&str; 5] = [
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
];

/// The jars, as tests/kafka/jars.sh has copied them.
pub struct Kafka {
    libs: PathBuf,
}

/// A broker that runs on its own scratch directory.
pub struct Broker {
    child: Child,
    /// `host:port` for clients.
    pub address: String,
}

/// A JVM that recovers one log after the other, so that it gets warm.
pub struct Recoverer {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Recoverer {
    /// Recovers the log in `partition`: the seconds inside the JVM, and where the log ends.
    pub fn recover(&mut self, partition: &Path) -> Outcome<(f64, u64)> {
        writeln!(self.input, "{}", partition.display())?;
        // Kafka's own messages come between.
        for line in self.output.by_ref().lines() {
            if let Some(figures) = line?.strip_prefix("recovered ") {
                let (nanoseconds, end) = figures.split_once(' ').ok_or("two figures")?;
                return Ok((nanoseconds.parse::<f64>()? / 1e9, end.parse()?));
            }
        }
        Err("the JVM has ended".into())
    }
}

impl Drop for Recoverer {
    fn drop(&mut self) {
        // It has nothing left to do.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The folder of the project's own Java programs, compiled.
fn own_classes() -> Outcome<PathBuf> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kafka/classes.sh");
    let output = Command::new(script).stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(format!("classes.sh: {}", output.status).into());
    }
    Ok(PathBuf::from(String::from_utf8(output.stdout)?.trim_end()))
}

impl Kafka {
    /// Copies the jars where that has not been done yet.
    pub fn from_maven() -> Outcome<Kafka> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kafka/jars.sh");
        let output = Command::new(script).stderr(Stdio::inherit()).output()?;
        if !output.status.success() {
            return Err(format!("jars.sh: {}", output.status).into());
        }
        Ok(Kafka { libs: PathBuf::from(String::from_utf8(output.stdout)?.trim_end()) })
    }

    /// The dump tool on the segments of `log`, every record with its value; 256 MB as in its
    /// script.
    pub fn dump(&self, log: &Written) -> Command {
        let files: Vec<&OsStr> = log.segments.iter().map(|path| path.as_os_str()).collect();
        let mut java = self.java("-Xmx256M", "org.apache.kafka.tools.DumpLogSegments");
        java.arg("--files").arg(files.join(OsStr::new(",")));
        java.args(["--deep-iteration", "--print-data-log"]);
        java
    }

    /// A JVM that recovers logs with the broker's code.
    pub fn recoverer(&self) -> Outcome<Recoverer> {
        let mut java = self.java_with(&[&own_classes()?], "-Xmx1G", "Recover");
        let mut child = java.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = child.stdin.take().ok_or("no standard input")?;
        let output = BufReader::new(child.stdout.take().ok_or("no standard output")?);
        Ok(Recoverer { child, input, output })
    }

    /// Seconds that the dump tool takes for the segments of `log` the second time in one JVM, and
    /// where its text is, in `dir`.
    pub fn second_dump(&self, log: &Written, dir: &Path) -> Outcome<(f64, PathBuf)> {
        let files: Vec<String> =
            log.segments.iter().map(|path| path.display().to_string()).collect();
        let line = format!("--files {} --deep-iteration --print-data-log\n", files.join(","));
        let plan = dir.join("plan");
        fs::write(&plan, line.repeat(2))?;
        let mut java = self.java_with(&[&own_classes()?], "-Xmx256M", "Dump");
        run(java.arg(&plan).arg(dir), "DumpLogSegments")?;
        let millis: u32 = fs::read_to_string(dir.join("1.ms"))?.trim().parse()?;
        Ok((f64::from(millis) / 1000.0, dir.join("1.out")))
    }

    /// Starts a broker in `dir` that has taken over `log`, by the recipe of an operator: let the
    /// broker create the topic, stop it, put the files in place of its own, start it again.
    pub fn broker_with(&self, dir: &Path, log: &Written) -> Outcome<Broker> {
        let (port, properties) = configure(dir)?;
        let mut format = self.java("-Xmx256M", "kafka.tools.StorageTool");
        format.args(["format", "--standalone", "-t", CLUSTER_ID, "-c"]).arg(&properties);
        run(format.stdout(Stdio::null()), "StorageTool")?;
        let broker = self.start(dir, port, &properties)?;
        create_topic(&broker.address, &log.topic)?;
        broker.stop()?;
        replace_files(
            &dir.join("data").join(format!("{}-{}", log.topic, log.partition)),
            &log.dir,
        )?;
        self.start(dir, port, &properties)
    }

    fn start(&self, dir: &Path, port: u16, properties: &Path) -> Outcome<Broker> {
        let log_path = dir.join("broker.log");
        let log = File::create(&log_path)?;
        let mut java = self.java("-Xmx1G", "kafka.Kafka");
        java.arg(properties).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let mut broker = Broker { child: java.spawn()?, address: format!("127.0.0.1:{port}") };
        let began = Instant::now();
        while !fs::read_to_string(&log_path)?.contains("Kafka Server started") {
            if broker.child.try_wait()?.is_some() || began.elapsed() > PATIENCE {
                let said = fs::read_to_string(&log_path)?;
                let end: Vec<&str> = said.lines().rev().take(20).collect();
                return Err(format!("the broker did not start:\n{}", end.join("\n")).into());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(broker)
    }

    fn java(&self, heap: &str, class: &str) -> Command {
        self.java_with(&[], heap, class)
    }

    fn java_with(&self, classes: &[&Path], heap: &str, class: &str) -> Command {
        let mut java = Command::new("java");
        java.arg(heap).args(JVM_OPTIONS);
        java.arg(
            "-Dlog4j2.configurationFile=".to_owned()
                + env!("CARGO_MANIFEST_DIR")
                + "/tests/kafka/log4j2.yaml",
        );
        let jars = self.libs.join("*");
        let class_path: Vec<&OsStr> =
            classes.iter().copied().chain([jars.as_path()]).map(Path::as_os_str).collect();
        java.arg("-cp").arg(class_path.join(OsStr::new(":"))).arg(class);
        java
    }
}

impl Broker {
    /// Stops in order: SIGTERM, and the wait for its end.
    pub fn stop(mut self) -> Outcome<()> {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        let began = Instant::now();
        while self.child.try_wait()?.is_none() {
            if began.elapsed() > PATIENCE {
                return Err("the broker did not stop".into());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        // It has stopped already, or nobody needs what it holds.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Writes server.properties; the client port and the path of the file.
fn configure(dir: &Path) -> Outcome<(u16, PathBuf)> {
    fs::create_dir_all(dir.join("data"))?;
    fs::create_dir_all(dir.join("meta"))?;
    let [client, controller] = [free_port()?, free_port()?];
    let shown = dir.display();
    let properties = format!(
        "process.roles=broker,controller\nnode.id=1\n\
         controller.quorum.bootstrap.servers=127.0.0.1:{controller}\n\
         listeners=PLAINTEXT://127.0.0.1:{client},CONTROLLER://127.0.0.1:{controller}\n\
         controller.listener.names=CONTROLLER\n\
         log.dirs={shown}/data\nmetadata.log.dir={shown}/meta\n\
         offsets.topic.replication.factor=1\noffsets.topic.num.partitions=1\n\
         log.retention.ms=-1\nauto.create.topics.enable=true\nnum.partitions=1\n"
    );
    let path = dir.join("server.properties");
    fs::write(&path, properties)?;
    Ok((client, path))
}

/// A port that was free a moment ago.
fn free_port() -> Outcome<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// One record into a topic that does not exist: the broker creates it.
fn create_topic(address: &str, topic: &str) -> Outcome<()> {
    let mut kcat = Command::new("kcat");
    kcat.args(["-P", "-b", address, "-t", topic, "-p", "0"]).stdin(Stdio::piped());
    let mut child = kcat.spawn()?;
    if let Some(mut input) = child.stdin.take() {
        std::io::Write::write_all(&mut input, b"first\n")?;
    }
    let status = child.wait()?;
    if status.success() { Ok(()) } else { Err(format!("kcat -P: {status}").into()) }
}

/// All files of `foreign` but partition.metadata in place of those of the broker's `own` partition.
fn replace_files(own: &Path, foreign: &Path) -> Outcome<()> {
    const IDENTITY: &str = "partition.metadata";
    for entry in fs::read_dir(own)? {
        let entry = entry?;
        if entry.file_name() != IDENTITY {
            fs::remove_file(entry.path())?;
        }
    }
    for entry in fs::read_dir(foreign)? {
        let entry = entry?;
        if entry.file_name() != IDENTITY {
            fs::copy(entry.path(), own.join(entry.file_name()))?;
        }
    }
    Ok(())
}

/// Runs to the end; an error that names the program when it failed.
pub fn run(command: &mut Command, name: &str) -> Outcome<()> {
    let status = command.stdin(Stdio::null()).status()?;
    if status.success() { Ok(()) } else { Err(format!("{name}: {status}").into()) }
}
