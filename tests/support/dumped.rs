//! Dumps by `offsetfs dump` beside those of Kafka's own tool, of many files with one JVM.

use std::fs;
use std::path::Path;

use super::kafka::{Kafka, output};
use super::{OFFSETFS, scratch, told};

/// Dumps to be compared: the arguments of each.
#[derive(Clone, Debug, Default)]
pub struct Plan(Vec<Vec<String>>);

/// What one dump printed.
#[derive(Clone, Debug)]
pub struct Printed {
    pub out: Vec<u8>,
    pub err: String,
    /// The exit code, where there is one.
    pub code: Option<i32>,
}

/// The same dump twice.
#[derive(Clone, Debug)]
pub struct Pair {
    pub args: Vec<String>,
    pub ours: Printed,
    pub kafkas: Printed,
}

impl Plan {
    /// One more: files, separated by commas, and options.
    pub fn add(&mut self, files: &str, options: &[&str]) {
        let options = options.iter().map(|option| (*option).to_owned());
        let files = ["--files".to_owned(), files.to_owned()];
        self.0.push(files.into_iter().chain(options).collect());
    }

    /// Runs them all, with `here` as the current directory.
    pub fn run(&self, kafka: &Kafka, here: &Path) -> Vec<Pair> {
        let kafkas = self.run_kafkas(kafka, here);
        let pair = |(args, kafkas): (&Vec<String>, Printed)| {
            let mut args = args.clone();
            let ours = dump(here, &args);
            args.remove(0);
            Pair { args, ours, kafkas }
        };
        self.0.iter().zip(kafkas).map(pair).collect()
    }

    fn run_kafkas(&self, kafka: &Kafka, here: &Path) -> Vec<Printed> {
        let target = scratch();
        let plan = target.path().join("plan");
        let lines: Vec<String> = self.0.iter().map(|args| args.join(" ") + "\n").collect();
        fs::write(&plan, lines.concat()).expect("a plan");
        let mut java = kafka.java("Dump");
        java.current_dir(here).arg(&plan).arg(target.path());
        let done = output(java);
        assert!(done.status.success(), "{}", told(&done));
        let read = |n: usize, kind: &str| fs::read(target.path().join(format!("{n}.{kind}")));
        (0..self.0.len())
            .map(|n| Printed {
                out: read(n, "out").expect("its stdout"),
                err: String::from_utf8(read(n, "err").expect("its stderr")).expect("text"),
                code: None,
            })
            .collect()
    }
}

/// `offsetfs dump` with these arguments.
pub fn dump<S: AsRef<std::ffi::OsStr>>(here: &Path, args: &[S]) -> Printed {
    let mut command = std::process::Command::new(OFFSETFS);
    let done = output_of(command.arg("dump").args(args).current_dir(here));
    super::assert_no_panic(&done.1);
    Printed { out: done.0, err: done.1, code: done.2 }
}

fn output_of(command: &mut std::process::Command) -> (Vec<u8>, String, Option<i32>) {
    let done = command.output().expect("offsetfs starts");
    (done.stdout, String::from_utf8_lossy(&done.stderr).into_owned(), done.status.code())
}

impl Pair {
    /// Did Kafka's tool throw?
    pub fn kafka_threw(&self) -> bool {
        self.kafkas.err.contains("threw ")
    }

    /// Fails the test unless both printed the same on stdout.
    pub fn assert_same(&self) {
        assert!(!self.kafka_threw(), "{:?}: {}", self.args, self.kafkas.err);
        assert!(self.ours.out == self.kafkas.out, "{}", self.difference());
    }

    /// Fails the test unless what Kafka printed before it threw is a beginning of ours.
    pub fn assert_begins_same(&self) {
        assert!(self.ours.out.starts_with(&self.kafkas.out), "{}", self.difference());
    }

    /// The first line that differs, and all of stderr.
    fn difference(&self) -> String {
        let lines = |out: &[u8]| -> Vec<String> {
            let lines = out.split(|byte| *byte == b'\n');
            lines.map(|line| String::from_utf8_lossy(line).into_owned()).collect()
        };
        let (ours, kafkas) = (lines(&self.ours.out), lines(&self.kafkas.out));
        let same = ours.iter().zip(&kafkas).take_while(|(a, b)| a == b).count();
        format!(
            "{:?}, line {same}\nours:    {:?}\nKafka's: {:?}\nour stderr: {}\nKafka's stderr: {}",
            self.args,
            ours.get(same),
            kafkas.get(same),
            self.ours.err,
            self.kafkas.err
        )
    }
}
