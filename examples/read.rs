//! Reads a partition as a library does: its offsets, one record, the first record of a minute.
//!
//! `cargo run --example read [DATA_DIR PARTITION]`; without arguments the fixtures are read.

use offsetfs::engine::data_dir::DataDir;
use offsetfs::engine::log::Found;
use offsetfs::engine::options::ReadOptions;
use offsetfs::view::time::parse_time;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let directory = arguments.next().unwrap_or_else(|| "tests/fixtures/clean/data".into());
    let partition = arguments.next().unwrap_or_else(|| "lz4-0".into());

    let data_dir = DataDir::new(directory.as_ref(), None, ReadOptions::default());
    let log = data_dir.log(&partition)?.ok_or("there is no such partition")?;
    let state = log.state()?;
    println!("{}: offsets {} up to {}", log.name(), state.log_start, state.log_end);

    if let Found::Record(found, ..) = log.find(&state, state.log_end.previous())? {
        let record = found.record().ok_or("the record is gone")?;
        println!("the last value has {} bytes", record.value.map_or(0, <[u8]>::len));
    }
    let minute = parse_time(b"2023-11-14T22:13").ok_or("no time")?;
    match log.find_time(&state, minute, None)? {
        Found::Record(found, ..) => {
            println!("since then: {:?}", found.record().map(|r| r.offset));
        }
        Found::Damaged(stretch) => println!("{}", stretch.error()),
        Found::Nothing => println!("nothing since then"),
    }
    Ok(())
}
