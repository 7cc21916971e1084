//! `offsetfs repair`: sets aside what is wrong in a partition, and makes its derived files anew.

use std::fmt::Write as _;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;

use crate::cli::{append, check as cli_check, exit_code, output};
use crate::engine::data_dir::DataDir;
use crate::engine::log::Log;
use crate::engine::options::ReadOptions;
use crate::error::{Error, Result};
use crate::fs::change::now;
use crate::inspect::check::{Checked, Progress, check, cores};
use crate::inspect::repair::{Step, plan, repair};

/// Make a partition sound again without losing a record that can be read: bytes that are wrong go
/// into files beside the segment, indexes and checkpoints that are wrong are made anew.
#[derive(Debug, clap::Args)]
pub struct RepairArgs {
    /// The directory `TOPIC-PARTITION` that holds the segments
    #[arg(value_name = "PARTITION_DIR")]
    pub partition: PathBuf,
    /// Say what would be done, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// The most memory that one batch may take when it is expanded
    #[arg(long, value_name = "BYTES", default_value_t = ReadOptions::default().max_batch_bytes)]
    pub max_batch_bytes: usize,
}

/// Repairs; the exit code: 3 where damage is left, or with `--dry-run` was found.
pub fn run(typed: &RepairArgs) -> Result<u8> {
    let options = ReadOptions {
        max_batch_bytes: typed.max_batch_bytes,
        open_files: crate::cli::mount::open_files(),
        ..ReadOptions::default()
    };
    let (data_dir, log) = append::open_with(&typed.partition, options.clone(), !typed.dry_run)?;
    let checked = checked(&data_dir)?;
    let steps = plan(&checked)?;
    let name = log.path().display().to_string();
    if typed.dry_run {
        output::print(describe(&name, &steps, "would ").as_bytes())?;
        return Ok(code(&checked));
    }
    let anew = || DataDir::new(data_dir.path(), log.path().file_name(), options.clone());
    let done = carry_out(&log, &name, &steps, anew);
    let closed = data_dir.shut_down(now());
    let left = done?;
    closed?;
    Ok(left)
}

/// Does the steps, and judges what `anew` opens then.
fn carry_out(
    log: &Arc<Log>,
    name: &str,
    steps: &[Step],
    anew: impl FnOnce() -> DataDir,
) -> Result<u8> {
    if std::io::stderr().is_terminal() && !steps.is_empty() {
        eprint!("{}", describe(name, steps, "will "));
    }
    let kept = repair(log, steps)?;
    let mut text = describe(name, steps, "did ");
    for file in &kept {
        let _ = writeln!(text, "  kept {}", file.display());
    }
    let after = checked(&anew())?;
    let verdict = if after.is_damaged() { "still damaged: run `offsetfs check`" } else { "sound" };
    let _ = writeln!(text, "{name}: {verdict}");
    output::print(text.as_bytes())?;
    Ok(code(&after))
}

fn checked(data_dir: &DataDir) -> Result<Checked> {
    let found = check(data_dir, cores(), now(), &Progress::default())?;
    let found = found.into_iter().next().map(|(_, done)| done);
    found.unwrap_or_else(|| Err(Error::refused(data_dir.path(), "the partition is gone")))
}

fn code(checked: &Checked) -> u8 {
    if checked.is_damaged() { exit_code::DAMAGE } else { exit_code::OK }
}

fn describe(name: &str, steps: &[Step], mood: &str) -> String {
    if steps.is_empty() {
        return format!("{name}: nothing to repair\n");
    }
    let mut text = format!("{name}:\n");
    for step in steps {
        let _ = match step {
            Step::SetAside { segment, position, bytes, offsets, reason } => {
                let offsets = offsets.map_or(String::new(), |(first, last)| {
                    format!(", {}", cli_check::offsets(first, last))
                });
                writeln!(
                    text,
                    "  {mood}set aside {bytes} bytes of {segment} at position {position}{offsets}: \
                     {reason}"
                )
            }
            Step::Indexes(base, why) => {
                writeln!(text, "  {mood}rebuild the indexes of segment {base}: {why}")
            }
            Step::LeaderEpochs(why) => {
                writeln!(text, "  {mood}rebuild leader-epoch-checkpoint: {why}")
            }
            Step::Snapshot(file, why) => writeln!(text, "  {mood}set aside {file}: {why}"),
            Step::Checkpoints(why) => writeln!(text, "  {mood}lower {why}"),
        };
    }
    text
}
