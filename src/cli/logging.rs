//! Where messages go: to stderr as long as somebody may read it, then to the system's log.

use std::io::Write;
use std::sync::OnceLock;

use log::{Log, Metadata, Record};
use syslog::{BasicLogger, Facility, Formatter3164};

/// fuser warns of each kind of request that is left to its default answer.
const USUAL_LOG: &str = "warn,fuser=error";

/// Takes all messages from the moment that this process leaves its terminal.
static SYSTEM_LOG: OnceLock<BasicLogger> = OnceLock::new();

/// Warnings and errors go to stderr; `OFFSETFS_LOG` (or `RUST_LOG`) asks for more or less.
pub fn start() {
    let own = std::env::var_os("OFFSETFS_LOG").is_some();
    let filter = if own { "OFFSETFS_LOG" } else { "RUST_LOG" };
    let terminal =
        env_logger::Builder::from_env(env_logger::Env::new().filter_or(filter, USUAL_LOG))
            .format(|line, record| {
                let level = record.level().as_str().to_ascii_lowercase();
                writeln!(line, "offsetfs: {level}: {}", record.args())
            })
            .build();
    log::set_max_level(terminal.filter());
    // Fails only when it was started before, which is as good.
    let _ = log::set_boxed_logger(Box::new(Logger { terminal }));
}

/// From here on messages go to the system's log, where there is one.
pub fn leave_terminal() {
    let formatter = Formatter3164 {
        facility: Facility::LOG_DAEMON,
        hostname: None,
        process: "offsetfs".to_owned(),
        pid: std::process::id(),
    };
    match syslog::unix(formatter) {
        Ok(connection) => drop(SYSTEM_LOG.set(BasicLogger::new(connection))),
        Err(error) => log::info!("no system log, messages are lost from here on: {error}"),
    }
}

struct Logger {
    /// What it lets pass goes to the system's log too.
    terminal: env_logger::Logger,
}

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata) -> bool {
        self.terminal.enabled(metadata)
    }

    fn log(&self, record: &Record) {
        match SYSTEM_LOG.get() {
            Some(system) if self.terminal.matches(record) => system.log(record),
            Some(_) => {}
            None => self.terminal.log(record),
        }
    }

    fn flush(&self) {
        self.terminal.flush();
    }
}
