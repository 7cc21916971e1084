//! `offsetfs xray`: what one lookup really does, on the user's own files (contract 7.5).

mod page;
mod page_file;
mod text;

use std::path::{Path, PathBuf};

use crate::cli::{exit_code, output};
use crate::engine::source::{self, Source};
use crate::error::{Error, Result};
use crate::fs::routes::{self, Routes};
use crate::inspect::xray::routes::{Batch, FuseFiles};
use crate::inspect::xray::{Answer, Target, Xray, look_up};
use crate::view::name::parse_offset;
use crate::view::time::parse_time;

/// Show how one record is found: segment, index, scan, page cache.
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("target").required(true).args(["offset", "time"])))]
pub struct XrayArgs {
    /// A directory named `<topic>-<partition>`
    #[arg(value_name = "PARTITION_DIR")]
    pub partition: PathBuf,
    /// Look for the record with this offset
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub offset: Option<String>,
    /// Look for the first record that is not older: Unix milliseconds, 1700000000s or RFC 3339
    #[arg(long, value_name = "T", allow_hyphen_values = true)]
    pub time: Option<String>,
    /// Print JSON
    #[arg(long, conflicts_with = "html")]
    pub json: bool,
    /// Write one HTML page that needs nothing else; `-` is standard output
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Read the batch with the answer by each route, and measure what that costs
    #[arg(long)]
    pub measure: bool,
}

/// Prints the picture of one lookup; its exit code tells of damage.
pub fn run(typed: &XrayArgs) -> Result<u8> {
    let target = target(typed)?;
    let (parent, name) = match source::classify(&typed.partition, false)? {
        Source::Partition { parent, name } => (parent, name),
        Source::DataDirectory(_) => {
            let reason =
                "is a data directory; name one of the <topic>-<partition> directories in it";
            return Err(Error::refused(&typed.partition, reason));
        }
    };
    if let Some(path) = typed.html.as_deref().filter(|path| *path != "-") {
        page_file::check(path, &parent, &name)?;
    }
    let mut xray = look_up(&parent, &name, target)?;
    if typed.measure {
        measure(&parent.join(&name), &mut xray)?;
    }
    show(typed, &xray)?;
    Ok(match xray.answer {
        Answer::Damage { .. } => exit_code::DAMAGE,
        Answer::Record(_) | Answer::Nothing { .. } => exit_code::OK,
    })
}

/// Goes the routes with the batch of the answer; without a record there is nothing to read.
fn measure(partition: &Path, xray: &mut Xray) -> Result<()> {
    let Answer::Record(found) = &xray.answer else { return Ok(()) };
    let segment = partition.join(&found.segment);
    let batch = Batch::copy_of(&segment, found.position, found.batch_bytes)?;
    let file = batch.file().try_clone().map_err(Error::io("open", &segment))?;
    let fuse = match routes::serve(file, found.batch_bytes) {
        Ok(Routes { copy, passthrough, requests }) => {
            FuseFiles { copy: Ok(copy), passthrough, requests }
        }
        Err(error) => FuseFiles::missing(&error.to_string()),
    };
    xray.routes = Some(batch.measure(&fuse));
    Ok(())
}

fn show(typed: &XrayArgs, xray: &Xray) -> Result<()> {
    let json = || {
        let mut json = serde_json::to_vec_pretty(xray)
            .expect("memory takes every byte, and text and numbers have a form in JSON");
        json.push(b'\n');
        json
    };
    match &typed.html {
        Some(path) if path.as_os_str() == "-" => output::print(page::page(xray).as_bytes()),
        Some(path) => page_file::write(path, page::page(xray).as_bytes()),
        None if typed.json => output::print(&json()),
        None => output::print(text::text(xray).as_bytes()),
    }
}

fn target(typed: &XrayArgs) -> Result<Target> {
    if let Some(text) = &typed.offset {
        let offset = parse_offset(text.as_bytes()).map(Target::Offset);
        return offset.ok_or_else(|| {
            Error::Usage(format!("--offset {text:?} is no offset; valid are 0 to {}", i64::MAX))
        });
    }
    let text = typed.time.as_deref().unwrap_or_default();
    parse_time(text.as_bytes()).map(Target::Time).ok_or_else(|| {
        Error::Usage(format!(
            "--time {text:?} is no time; valid are Unix milliseconds, seconds as 1700000000s, and \
             times like 2023-11-14T22:13:20Z"
        ))
    })
}
