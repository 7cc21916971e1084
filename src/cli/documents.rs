//! `offsetfs completions` and `offsetfs man`: what shells and man(1) want to know of the command
//! line, made from the command line itself.

use std::io::{self, Write};
use std::path::PathBuf;

use clap_complete::Shell;

use crate::error::{Error, Result};

/// Print completions for a shell.
///
/// For bash: source <(offsetfs completions bash)
#[derive(Debug, clap::Args)]
pub struct CompletionsArgs {
    /// The shell that is to complete command lines
    #[arg(value_enum)]
    shell: Shell,
}

impl CompletionsArgs {
    /// Prints those of `program`.
    pub fn run(&self, mut program: clap::Command) -> Result<()> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut program, "offsetfs", &mut script);
        print(&script)
    }
}

/// Write the manual pages into a directory, or print the first.
///
/// offsetfs.1 is that of the program; offsetfs-mount.1 and so on are those of its commands.
#[derive(Debug, clap::Args)]
pub struct ManArgs {
    /// An existing directory
    directory: Option<PathBuf>,
}

impl ManArgs {
    /// Writes those of `program`.
    pub fn run(&self, program: clap::Command) -> Result<()> {
        // The command `help` says what these pages say.
        let program = program.disable_help_subcommand(true);
        if let Some(directory) = &self.directory {
            return clap_mangen::generate_to(program, directory)
                .map_err(Error::io("write manual pages into", directory));
        }
        let mut page = Vec::new();
        let rendered = clap_mangen::Man::new(program).render(&mut page);
        rendered.map_err(Error::io("write", "the manual page"))?;
        print(&page)
    }
}

fn print(text: &[u8]) -> Result<()> {
    match io::stdout().write_all(text).and_then(|()| io::stdout().flush()) {
        // Who reads has seen enough.
        Err(closed) if closed.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(Error::io("write to", "stdout")),
    }
}
