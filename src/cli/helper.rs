//! The grammar of mount(8)'s helpers: `mount.offsetfs SOURCE MOUNTPOINT [-sfnvrw] [-o OPTIONS]`,
//! and the same without a name of its own, as mount.fuse3 types it. Both detach once the mount
//! answers. Under a helper's name the exit codes are those that mount(8) knows, else the program's.

use std::ffi::OsString;
use std::io::{self, PipeWriter, Read, Write};
use std::path::{Path, PathBuf};

use clap::Parser;

use crate::cli::mount::{self, MountArgs, Prepared};
use crate::cli::{complain, exit_code, logging};
use crate::error::{Error, Result};
use crate::sys::{self, Forked};

/// The names under which mount(8) looks for the helper of a type.
const NAMES: [&str; 2] = ["mount.offsetfs", "mount.fuse.offsetfs"];

/// mount(8): incorrect invocation or permissions.
const INVOCATION: u8 = 1;
/// mount(8): interrupted.
const INTERRUPTED: u8 = 8;
/// mount(8): mount failure.
const FAILURE: u8 = 32;

/// Mount a Kafka data directory, and go on in the background.
#[derive(Debug, Parser)]
#[command(name = "mount.offsetfs", version)]
#[expect(clippy::struct_excessive_bools, reason = "each is a letter that mount(8) may pass")]
struct HelperArgs {
    /// A data directory of Kafka, or one partition's directory in it
    source: PathBuf,
    /// An empty directory
    mountpoint: PathBuf,
    /// As for `offsetfs mount`; `rw` changes nothing, `write` makes the mount writable
    #[arg(short = 'o', value_name = "OPTIONS", allow_hyphen_values = true)]
    options: Vec<String>,
    /// Pass over unknown options
    #[arg(short = 's')]
    sloppy: bool,
    /// Check everything, and mount nothing
    #[arg(short = 'f')]
    fake: bool,
    /// There is no /etc/mtab to be left alone
    #[arg(short = 'n')]
    _no_mtab: bool,
    /// Say what was mounted
    #[arg(short = 'v')]
    verbose: bool,
    /// As -o ro
    #[arg(short = 'r')]
    read_only: bool,
    /// As -o rw, which changes nothing
    #[arg(short = 'w')]
    _read_write: bool,
    /// The type that mount(8) was asked for
    #[arg(short = 't', value_name = "TYPE")]
    _fs_type: Option<String>,
}

/// Is this mount(8) or mount.fuse3 that calls, not someone who types a command of `program`?
/// A SOURCE with the name of a command is typed as `./cat`.
pub fn is_asked_for(arguments: &[OsString], program: &clap::Command) -> bool {
    if called_as_helper(arguments) {
        return true;
    }
    let Some(first) = arguments.get(1) else { return false };
    if first.to_string_lossy().starts_with("-o") {
        return true;
    }
    let is_command = first.to_str().is_some_and(|word| {
        word == "help" || word.starts_with('-') || program.find_subcommand(word).is_some()
    });
    !is_command && (first.to_string_lossy().contains('/') || Path::new(first).exists())
}

/// By the program's name, or by the first word, which is how a script passes such a name on.
fn called_as_helper(arguments: &[OsString]) -> bool {
    let is_name = |path: &OsString| {
        Path::new(path).file_name().is_some_and(|name| NAMES.iter().any(|known| name == *known))
    };
    arguments.first().is_some_and(is_name) || names_helper_first(arguments)
}

fn names_helper_first(arguments: &[OsString]) -> bool {
    arguments.get(1).is_some_and(|word| NAMES.iter().any(|name| word == name))
}

/// Mounts in a process of its own, and gives the exit code once the mount answers.
pub fn run(mut arguments: Vec<OsString>) -> u8 {
    let codes = if called_as_helper(&arguments) { Codes::Mount } else { Codes::Program };
    if names_helper_first(&arguments) {
        arguments.remove(0);
    }
    let typed = match HelperArgs::try_parse_from(arguments) {
        Ok(typed) => typed,
        Err(error) => {
            let answered = super::answer_of_clap(&error);
            return if answered == exit_code::USAGE { codes.usage() } else { answered };
        }
    };
    typed.mount().unwrap_or_else(|error| {
        complain(error.to_string().trim_end());
        codes.of(&error)
    })
}

/// Whose exit codes the caller knows.
#[derive(Clone, Copy)]
enum Codes {
    Mount,
    Program,
}

impl Codes {
    fn usage(self) -> u8 {
        match self {
            Codes::Mount => INVOCATION,
            Codes::Program => exit_code::USAGE,
        }
    }

    fn of(self, error: &Error) -> u8 {
        match (self, error) {
            (_, Error::Usage(_)) => self.usage(),
            (Codes::Program, _) => exit_code::of(error),
            (Codes::Mount, Error::Interrupted) => INTERRUPTED,
            (Codes::Mount, _) => FAILURE,
        }
    }
}

impl HelperArgs {
    fn mount(&self) -> Result<u8> {
        let prepared = mount::prepare(&self.as_typed_for_mount()?)?;
        if self.fake {
            return Ok(exit_code::OK);
        }
        let code = detach(prepared, &self.mountpoint)?;
        if self.verbose && code == exit_code::OK {
            let (source, at) = (self.source.display(), self.mountpoint.display());
            complain(&format!("{source} mounted on {at}"));
        }
        Ok(code)
    }

    /// The same as `offsetfs mount` takes it; paths are absolute, as the daemon leaves its
    /// directory.
    fn as_typed_for_mount(&self) -> Result<MountArgs> {
        let absolute = |path: &Path| std::path::absolute(path).map_err(Error::io("find", path));
        let words = || self.options.iter().flat_map(|list| list.split(',')).map(str::trim);
        if words().any(|word| word == "remount") {
            let reason = "cannot be remounted; unmount it, and mount it again with other options";
            return Err(Error::Usage(format!("{}: {reason}", self.mountpoint.display())));
        }
        let mut options: Vec<String> = words()
            .filter(|word| !self.sloppy || crate::cli::mount_options::is_known(word))
            .map(str::to_owned)
            .collect();
        options.extend(self.read_only.then(|| "ro".to_owned()));
        Ok(MountArgs {
            rw: false,
            options,
            cache_dir: None,
            source: absolute(&self.source)?,
            mountpoint: absolute(&self.mountpoint)?,
        })
    }
}

/// Serves in a child, and returns in the parent with the child's code, or 0 once the mount answers.
fn detach(prepared: Prepared, mountpoint: &Path) -> Result<u8> {
    let failed = |error| Error::io("detach", "this process")(error);
    let (mut reader, writer) = io::pipe().map_err(failed)?;
    match sys::fork().map_err(failed)? {
        Forked::Child => {
            drop(reader);
            sys::close_inherited(&writer).map_err(failed)?;
            prepared.serve(move || leave_caller(writer)).map(|()| exit_code::OK)
        }
        Forked::Parent(child) => {
            drop(writer);
            let mut answer = Vec::new();
            reader.read_to_end(&mut answer).map_err(failed)?;
            if !answer.is_empty() {
                return Ok(exit_code::OK);
            }
            match sys::wait_for(child).map_err(failed)?.map(u8::try_from) {
                // It was asked to end before the mount answered.
                Some(Ok(exit_code::OK)) => Err(Error::Interrupted),
                // It has told why.
                Some(Ok(code)) => Ok(code),
                _ => Err(Error::refused(mountpoint, "killed before the mount answered")),
            }
        }
    }
}

/// The mount answers: the caller may go on, and nothing of the terminal is used any more.
fn leave_caller(mut caller: PipeWriter) {
    logging::leave_terminal();
    if let Err(error) = sys::leave_terminal() {
        log::warn!("cannot leave the terminal: {error}");
    }
    // A caller that has ended already waits for nothing.
    let _ = caller.write_all(b"mounted");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Arguments;
    use clap::CommandFactory;

    fn is_asked(words: &[&str]) -> bool {
        let arguments: Vec<OsString> = words.iter().map(OsString::from).collect();
        is_asked_for(&arguments, &Arguments::command())
    }

    fn options(words: &[&str]) -> Result<Vec<String>> {
        let typed = ["mount.offsetfs", "/source", "/at"].iter().chain(words);
        Ok(HelperArgs::try_parse_from(typed).unwrap().as_typed_for_mount()?.options)
    }

    #[test]
    fn helper_is_known_by_its_name_or_by_a_source() {
        assert!(is_asked(&["/sbin/mount.offsetfs"]));
        assert!(is_asked(&["offsetfs", "mount.offsetfs", "/source", "/at"]));
        assert!(is_asked(&["offsetfs", "/source", "/at", "-o", "rw"]));
        assert!(is_asked(&["offsetfs", "-o", "rw", "/source", "/at"]));
        assert!(!is_asked(&["offsetfs", "cat", "/source"]));
        assert!(!is_asked(&["offsetfs", "moutn", "/source", "/at"]));
        assert!(!is_asked(&["offsetfs", "--version"]));
        assert!(!is_asked(&["offsetfs"]));
    }

    #[test]
    fn letters_of_mount_become_options() {
        assert_eq!(options(&["-n", "-v", "-w", "-o", "rw,write"]).unwrap(), ["rw", "write"]);
        assert_eq!(options(&["-r", "-o", "noexec"]).unwrap(), ["noexec", "ro"]);
        assert_eq!(options(&["-s", "-o", "frob,list=all"]).unwrap(), ["list=all"]);
        assert!(options(&["-o", "remount,ro"]).unwrap_err().to_string().contains("/at"));
    }

    #[test]
    fn codes_are_those_that_the_caller_knows() {
        let code = |words: &[&str]| run(words.iter().map(OsString::from).collect());
        assert_eq!(code(&["mount.offsetfs", "/no/such/source"]), 1);
        assert_eq!(code(&["mount.offsetfs", "/no/such/source", "/at", "-o", "frob"]), 1);
        assert_eq!(code(&["mount.offsetfs", "/no/such/source", "/at"]), 32);
        assert_eq!(code(&["mount.offsetfs", "--version"]), 0);
        assert_eq!(code(&["offsetfs", "/no/such/source"]), 2);
        assert_eq!(code(&["offsetfs", "/no/such/source", "/at", "-o", "frob"]), 2);
        assert_eq!(code(&["offsetfs", "/no/such/source", "/at"]), 1);
    }
}
