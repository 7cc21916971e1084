//! The command line: what can be typed, one command a file.
//!
//! Data goes to stdout, everything else to stderr. A command returns its result; only `main` turns
//! it into an exit code.

pub mod append;
pub mod cat;
pub mod check;
pub mod documents;
pub mod dump;
pub mod exit_code;
pub mod format;
pub mod helper;
pub mod logging;
pub mod mount;
pub mod mount_options;
pub mod output;
pub mod range;
pub mod repair;
pub mod truncate;
pub mod umount;
pub mod xray;

use std::ffi::OsString;
use std::io::{self, Write};

use clap::{CommandFactory, Parser, Subcommand};

use crate::error::Result;

/// Kafka partitions as files: read them with cat, without a broker and without a JVM.
#[derive(Debug, Parser)]
#[command(name = "offsetfs", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Cat(cat::CatArgs),
    Mount(mount::MountArgs),
    Umount(umount::UmountArgs),
    Append(append::AppendArgs),
    Truncate(truncate::TruncateArgs),
    Check(check::CheckArgs),
    Repair(repair::RepairArgs),
    Dump(dump::DumpArgs),
    Xray(xray::XrayArgs),
    Completions(documents::CompletionsArgs),
    Man(documents::ManArgs),
}

impl Command {
    /// Its exit code, when nothing failed.
    fn run(self) -> Result<u8> {
        match self {
            Command::Cat(typed) => cat::run(&typed).map(cat::Outcome::exit_code),
            Command::Mount(typed) => mount::run(&typed).map(|()| exit_code::OK),
            Command::Append(typed) => append::run(&typed).map(|()| exit_code::OK),
            Command::Truncate(typed) => truncate::run(&typed).map(|()| exit_code::OK),
            Command::Check(typed) => check::run(&typed),
            Command::Repair(typed) => repair::run(&typed),
            Command::Dump(typed) => dump::run(&typed),
            Command::Xray(typed) => xray::run(&typed),
            Command::Completions(typed) => typed.run(Arguments::command()).map(|()| exit_code::OK),
            Command::Man(typed) => typed.run(Arguments::command()).map(|()| exit_code::OK),
            Command::Umount(typed) => umount::run(&typed).map(|()| exit_code::OK),
        }
    }
}

/// Does what `arguments` (the program's name first) ask for, tells of errors, and gives the exit
/// code.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    logging::start();
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    if helper::is_asked_for(&arguments, &Arguments::command()) {
        return helper::run(arguments);
    }
    let typed = match Arguments::try_parse_from(arguments) {
        Ok(typed) => typed,
        Err(error) => return answer_of_clap(&error),
    };
    match typed.command.run() {
        Ok(code) => code,
        Err(error) => {
            complain(error.to_string().trim_end());
            exit_code::of(&error)
        }
    }
}

/// Help and version are answers, the rest is about errors in what was typed.
fn answer_of_clap(error: &clap::Error) -> u8 {
    if error.use_stderr() {
        let text = error.render().to_string();
        complain(text.strip_prefix("error: ").unwrap_or(&text).trim_end());
        return exit_code::USAGE;
    }
    match error.print() {
        Ok(()) => exit_code::OK,
        // Who asked has seen enough.
        Err(closed) if closed.kind() == io::ErrorKind::BrokenPipe => exit_code::OK,
        Err(error) => {
            complain(&format!("cannot write: {error}"));
            exit_code::RUNTIME
        }
    }
}

fn complain(message: &str) {
    // Without stderr the exit code must do.
    let _ = writeln!(io::stderr(), "offsetfs: {message}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_and_their_help_fit_together() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn exit_code_tells_usage_from_failure() {
        let code = |words: &[&str]| run(["offsetfs"].iter().chain(words).map(OsString::from));
        assert_eq!(code(&[]), 2);
        assert_eq!(code(&["frobnicate"]), 2);
        assert_eq!(code(&["mount"]), 2);
        assert_eq!(code(&["mount", "-o", "frobnicate", "a", "b"]), 2);
        assert_eq!(code(&["mount", "--rw", "a", "b"]), 1);
        assert_eq!(code(&["umount", "/no/such/place"]), 1);
        assert_eq!(code(&["--version"]), 0);
    }
}
