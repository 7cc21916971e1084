//! The `offsetfs` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(offsetfs::cli::run(std::env::args_os()))
}
