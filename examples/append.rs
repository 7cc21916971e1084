//! Makes a partition, appends to it and reads it back, as a library does; in a temporary directory.

use std::time::{SystemTime, UNIX_EPOCH};

use offsetfs::engine::data_dir::DataDir;
use offsetfs::engine::log::Found;
use offsetfs::engine::options::ReadOptions;
use offsetfs::format::builder::NewRecord;
use offsetfs::units::{Offset, Timestamp};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let scratch = tempfile::tempdir()?;
    let millis = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis();
    let now = Timestamp::from_millis(i64::try_from(millis)?);

    let data_dir = DataDir::writable(scratch.path(), None, ReadOptions::default())?;
    data_dir.create_partition("orders-0".as_ref(), *b"sixteen any ones")?;
    let log = data_dir.log("orders-0".as_ref())?.ok_or("it was just made")?;
    data_dir.write(&log, now, |writer| {
        let records = ["first", "second"]
            .map(|value| NewRecord { value: Some(value.as_bytes()), ..NewRecord::default() });
        writer.append(&records, now).1?;
        writer.sync(now)
    })?;

    let state = log.state()?;
    println!("the next offset is {}", state.log_end);
    if let Found::Record(found, ..) = log.find(&state, Offset::ZERO.next())? {
        let value = found.record().and_then(|record| record.value).unwrap_or_default();
        println!("record 1 is {:?}", String::from_utf8_lossy(value));
    }
    Ok(data_dir.shut_down(now)?)
}
