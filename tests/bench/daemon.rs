//! File systems under measurement: each is a process of its own, mounted in a scratch directory and
//! unmounted when the value goes.

#![allow(dead_code, reason = "each benchmark uses a part of it")]

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::rounds::{Outcome, seconds};

/// The argument that makes a benchmark serve the null file system instead: MOUNTPOINT, and what
/// that benchmark wants of it, follow.
pub const NULL_FS: &str = "--null-fs";
/// How long a mount may take before it counts as failed.
const PATIENCE: Duration = Duration::from_secs(30);

/// A mounted file system and its process.
pub struct Daemon {
    child: Child,
    mountpoint: TempDir,
    /// From the start of the process until the mount answered.
    pub mount_seconds: f64,
}

impl Daemon {
    /// Mounts `source` read-only with offsetfs (`OFFSETFS` names another binary), with its caches
    /// in `cache_dir`.
    pub fn offsetfs(source: &Path, cache_dir: &Path) -> Outcome<Daemon> {
        Daemon::start(|mountpoint| {
            let mut command = Command::new(offsetfs());
            command.arg("mount").arg("--cache-dir").arg(cache_dir).arg(source).arg(mountpoint);
            command
        })
    }

    /// The same with at most `files` descriptors.
    pub fn offsetfs_with_few_files(source: &Path, cache_dir: &Path, files: u32) -> Outcome<Daemon> {
        Daemon::start(|mountpoint| {
            let mut command = Command::new("sh");
            command.arg("-c").arg(format!("ulimit -n {files}; exec \"$@\"")).arg("sh");
            command.arg(offsetfs()).arg("mount").arg("--cache-dir").arg(cache_dir);
            command.arg(source).arg(mountpoint);
            command
        })
    }

    /// The same, writable.
    pub fn offsetfs_writable(source: &Path, cache_dir: &Path) -> Outcome<Daemon> {
        Daemon::start(|mountpoint| {
            let mut command = Command::new(offsetfs());
            command.args(["mount", "--rw", "--cache-dir"]).arg(cache_dir);
            command.arg(source).arg(mountpoint);
            command
        })
    }

    /// Mounts a null file system, as `arguments` after the mountpoint say.
    pub fn null(arguments: &[&OsStr]) -> Outcome<Daemon> {
        let this = std::env::current_exe()?;
        let daemon = Daemon::start(|mountpoint| {
            let mut command = Command::new(this);
            command.arg(NULL_FS).arg(mountpoint).args(arguments);
            command
        })?;
        daemon.read_further_ahead()?;
        Ok(daemon)
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        self.mountpoint.path()
    }

    /// The most memory that the process ever held, in bytes.
    pub fn peak_resident_bytes(&self) -> Outcome<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib: u64 =
            line.and_then(|rest| rest.split_whitespace().next()).unwrap_or("").parse()?;
        Ok(kib << 10)
    }

    fn start(command: impl FnOnce(&Path) -> Command) -> Outcome<Daemon> {
        let mountpoint = tempfile::tempdir()?;
        let before = fs::metadata(mountpoint.path())?.dev();
        let mut command = command(mountpoint.path());
        let program = command.get_program().display().to_string();
        let began = Instant::now();
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
        let mut daemon = Daemon { child, mountpoint, mount_seconds: 0.0 };
        while fs::metadata(daemon.path())?.dev() == before {
            if let Some(status) = daemon.child.try_wait()? {
                return Err(format!("{program} mounted nothing: {status}").into());
            }
            if began.elapsed() > PATIENCE {
                return Err(format!("{program} did not mount in time").into());
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        daemon.mount_seconds = began.elapsed().as_secs_f64();
        Ok(daemon)
    }

    /// What offsetfs does as root: 256 KiB of readahead.
    fn read_further_ahead(&self) -> Outcome<()> {
        if !rustix::process::geteuid().is_root() {
            return Ok(());
        }
        let device = fs::metadata(self.path())?.dev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        Ok(fs::write(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb"), "256")?)
    }

    fn unmount(&mut self) -> bool {
        let umount = if rustix::process::geteuid().is_root() { "umount" } else { "fusermount3" };
        let flags: &[&str] = if umount == "umount" { &[] } else { &["-u"] };
        let unmounted = (0..20).any(|attempt| {
            if attempt > 0 {
                std::thread::sleep(Duration::from_millis(50));
            }
            let mut command = Command::new(umount);
            let done = command.args(flags).arg(self.path()).stderr(Stdio::null()).status();
            done.is_ok_and(|status| status.success())
        });
        let ended = (0..100).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            matches!(self.child.try_wait(), Ok(Some(_)))
        });
        unmounted && ended
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        if !self.unmount() {
            eprintln!("{} was not unmounted in order", self.path().display());
            // It is ours and it does not listen; what is left of the mount is detached.
            let _ = self.child.kill();
            let _ = self.child.wait();
            let _ = Command::new("umount").arg("-l").arg(self.path()).status();
        }
    }
}

/// The offsetfs binary: `OFFSETFS`, or the one that cargo built for this benchmark.
pub fn offsetfs() -> PathBuf {
    std::env::var_os("OFFSETFS")
        .map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_offsetfs")), PathBuf::from)
}

/// Median seconds of one statfs on `path`: a round trip to the daemon when that is a FUSE mount.
pub fn round_trip(path: &Path, times: u32) -> Outcome<f64> {
    seconds(|| {
        for _ in 0..times {
            rustix::fs::statfs(path)?;
        }
        Ok(())
    })
    .map(|total| total / f64::from(times))
}

/// Makes the kernel forget the cached pages of `file`.
pub fn forget_pages(file: &Path) -> Outcome<()> {
    let file = fs::File::open(file)?;
    Ok(rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed)?)
}

/// Seconds that a program takes, its start included; what it prints goes to a pipe that `cat`
/// empties, so that nobody sees /dev/null and takes a short cut.
pub fn seconds_of(program: &str, arguments: &[&OsStr]) -> Outcome<f64> {
    seconds(|| {
        let output = Command::new(program).args(arguments).stdin(Stdio::null()).output()?;
        // grep ends with 1 when no line matches.
        let fine =
            output.status.success() || (program == "grep" && output.status.code() == Some(1));
        if fine { Ok(()) } else { Err(format!("{program}: {}", output.status).into()) }
    })
}

/// Seconds of `cat FILE > /dev/null`.
pub fn seconds_of_cat(file: &Path) -> Outcome<f64> {
    seconds(|| {
        let status = Command::new("cat").arg(file).stdout(Stdio::null()).status()?;
        if status.success() {
            Ok(())
        } else {
            Err(format!("cat {}: {status}", file.display()).into())
        }
    })
}
