//! `offsetfs truncate`: cuts a partition off at an offset.

use std::path::PathBuf;

use crate::cli::append;
use crate::engine::recovery;
use crate::error::{Error, Result};
use crate::fs::change::now;
use crate::units::Offset;

/// Cut a partition off: the record at OFFSET and everything behind it goes, and with it the whole
/// batch that holds it, as in Kafka. The cut bytes are kept beside.
#[derive(Debug, clap::Args)]
pub struct TruncateArgs {
    /// The directory `TOPIC-PARTITION` that holds the segments
    #[arg(value_name = "PARTITION_DIR")]
    pub partition: PathBuf,
    /// The first offset that goes
    #[arg(value_parser = clap::value_parser!(i64).range(0..))]
    pub offset: i64,
    /// Do not keep the cut bytes
    #[arg(long)]
    pub discard: bool,
}

/// Truncates.
pub fn run(typed: &TruncateArgs) -> Result<()> {
    let offset = Offset::new(typed.offset)
        .ok_or_else(|| Error::Usage(format!("{} is no offset", typed.offset)))?;
    let (data_dir, log) = append::open(&typed.partition)?;
    let at = now();
    // Recovered first, so that what is cut is a log and nothing else.
    data_dir.write(&log, at, |_| Ok(()))?;
    log.close_writer(at)?;
    let done = recovery::truncate(&log, offset, typed.discard);
    if done.is_ok() {
        data_dir.write(&log, at, |_| Ok(()))?;
    }
    let closed = data_dir.shut_down(at);
    done.and(closed)
}
