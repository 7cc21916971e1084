//! `offsetfs dump`: what Kafka's `DumpLogSegments` prints, with its options, without a JVM.
//!
//! A file that cannot be read does not keep the others from being dumped. Findings go to stderr:
//! damage where it is met, what does not fit together at the end, in Kafka's words.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::Arc;

use crate::cli::exit_code;
use crate::cli::output::Output;
use crate::engine::disk::{Disk, RealDisk};
use crate::error::{Error, Result};
use crate::inspect::dump::decode::Decoder;
use crate::inspect::dump::files::Named;
use crate::inspect::dump::out::Out;
use crate::inspect::dump::report::Report;
use crate::inspect::dump::{Dumping, Options, Outcome};

/// Kafka's default for `--max-message-size`.
const MAX_MESSAGE_SIZE: &str = "5242880";
/// The only decoder class that is known here: the one that Kafka's tool takes by default.
const STRING_DECODER: &str = "org.apache.kafka.tools.api.StringDecoder";
/// A log, its indexes, and some room.
const OPEN_FILES: usize = 8;

/// Print what the files of a log hold, as Kafka's DumpLogSegments does.
#[derive(Debug, clap::Args)]
#[expect(clippy::doc_markdown, reason = "this is the help, which knows no markup")]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of Kafka's tool")]
pub struct DumpArgs {
    /// The files, separated by commas: .log, .index, .timeindex, .txnindex, .snapshot, .checkpoint
    #[arg(long, value_name = "FILE,...", required = true)]
    pub files: OsString,
    /// Print keys and values of records (any decoder option does so too)
    #[arg(long)]
    pub print_data_log: bool,
    /// Print a line for each record, not for batches only
    #[arg(long)]
    pub deep_iteration: bool,
    /// Compare indexes with the log, without printing their entries
    #[arg(long)]
    pub verify_index_only: bool,
    /// Only say whether a broker would take an index
    #[arg(long)]
    pub index_sanity_check: bool,
    /// Bytes that are looked at where an index says that a batch begins
    #[arg(long, value_name = "BYTES", default_value = MAX_MESSAGE_SIZE)]
    #[arg(value_parser = clap::value_parser!(u32).range(..=MOST))]
    pub max_message_size: u32,
    /// Dump no more than these bytes of each log
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(..=MOST))]
    pub max_bytes: Option<u32>,
    /// Print keys and values of records, and nothing else of them
    #[arg(long)]
    pub skip_record_metadata: bool,
    /// Decode the records of __consumer_offsets
    #[arg(long)]
    pub offsets_decoder: bool,
    /// Decode the records of __transaction_state
    #[arg(long)]
    pub transaction_log_decoder: bool,
    /// Decode the records of __cluster_metadata
    #[arg(long)]
    pub cluster_metadata_decoder: bool,
    /// Decode the records of __remote_log_metadata (not supported)
    #[arg(long, hide = true)]
    pub remote_log_metadata_decoder: bool,
    /// Decode the records of __share_group_state
    #[arg(long)]
    pub share_group_state_decoder: bool,
    /// The Java class that decodes values; only Kafka's StringDecoder, which is the default
    #[arg(long, value_name = "CLASS", num_args = 0..=1, default_missing_value = STRING_DECODER)]
    pub value_decoder_class: Option<String>,
    /// The Java class that decodes keys; only Kafka's StringDecoder, which is the default
    #[arg(long, value_name = "CLASS", num_args = 0..=1, default_missing_value = STRING_DECODER)]
    pub key_decoder_class: Option<String>,
}

/// The largest number that Kafka's tool takes, which there means that there is no bound.
const MOST: i64 = i32::MAX as i64;

/// Prints to standard output; gives the exit code.
pub fn run(typed: &DumpArgs) -> Result<u8> {
    let options = options(typed)?;
    let stdout = io::stdout().as_fd().try_clone_to_owned();
    let stdout = stdout.map_err(Error::io("open", "standard output"))?;
    let mut output = Output::to(File::from(stdout));
    let mut take = |text: &mut Vec<u8>| {
        std::mem::swap(text, output.buffer());
        output.flush()
    };
    let mut out = Out::new(&mut take);
    let mut report = Report::default();
    let failed = dump_files(typed, &options, &mut out, &mut report);
    out.flush();
    output.finish().map_err(Error::io("write to", "standard output"))?;
    let damaged = report.is_damaged();
    // Without stderr the exit code must do.
    let _ = io::stderr().write_all(&report.into_text());
    Ok(match failed {
        Some(code) => code,
        None if damaged => exit_code::DAMAGE,
        None => exit_code::OK,
    })
}

/// Dumps one file after the other; gives the exit code of the first that could not be read.
fn dump_files(
    typed: &DumpArgs,
    options: &Options,
    out: &mut Out<'_>,
    report: &mut Report,
) -> Option<u8> {
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::new(OPEN_FILES));
    let mut failed = None;
    for named in Named::list(&typed.files) {
        match (Dumping { disk: &disk, options, out, report }).dump(&named) {
            Ok(Outcome::Dumped) => {}
            Ok(Outcome::Unknown) => {
                let path = named.path().display();
                // As above.
                let _ = writeln!(io::stderr(), "Ignoring unknown file {path}");
            }
            Err(error) => {
                log::error!("{error}");
                failed = failed.or(Some(exit_code::of(&error)));
            }
        }
        if !out.go_on() {
            break;
        }
    }
    failed
}

fn options(typed: &DumpArgs) -> Result<Options> {
    for class in [&typed.key_decoder_class, &typed.value_decoder_class].into_iter().flatten() {
        if class != STRING_DECODER {
            return Err(Error::Usage(format!(
                "{class} is a Java class, and none is run here; known is {STRING_DECODER}"
            )));
        }
    }
    let decoder = decoder(typed)?;
    let print_data_log = typed.print_data_log
        || typed.key_decoder_class.is_some()
        || typed.value_decoder_class.is_some()
        || !matches!(decoder, Decoder::Text);
    Ok(Options {
        print_data_log,
        deep_iteration: typed.deep_iteration || print_data_log,
        verify_index_only: typed.verify_index_only,
        index_sanity_check: typed.index_sanity_check,
        skip_record_metadata: typed.skip_record_metadata,
        max_message_size: typed.max_message_size,
        max_bytes: typed.max_bytes.filter(|most| i64::from(*most) != MOST),
        decoder,
    })
}

/// The first of them that was asked for, in the order of Kafka's tool.
fn decoder(typed: &DumpArgs) -> Result<Decoder> {
    Ok(if typed.offsets_decoder {
        Decoder::offsets()
    } else if typed.transaction_log_decoder {
        Decoder::transaction_log()
    } else if typed.cluster_metadata_decoder {
        Decoder::cluster_metadata()
    } else if typed.remote_log_metadata_decoder {
        let reason = "--remote-log-metadata-decoder is not supported";
        return Err(Error::Usage(reason.to_owned()));
    } else if typed.share_group_state_decoder {
        Decoder::share_group_state()
    } else {
        Decoder::Text
    })
}
