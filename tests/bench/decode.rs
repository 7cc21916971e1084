//! How fast the engine turns a warm log into values, and into sizes, on one core. The peers read
//! the same bytes in the same rounds: a loop of pread and CRC-32C for uncompressed logs, the codec
//! library itself for compressed batches.

mod engine;
mod make_log;
mod rounds;
mod table;

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::FileExt as _;

use make_log::{Codec, Spec, Written};
use rounds::{Outcome, bytes_a_second, interleave};
use table::{Goal, Table, Unit};

/// Room for the records of the largest batch here.
const BATCH_ROOM: usize = 1 << 20;

fn main() -> Outcome<()> {
    if !rounds::asked_for("decode") {
        return Ok(());
    }
    let scratch = tempfile::tempdir()?;
    let records = rounds::scaled(5_000_000, 20_000);
    let plain = make_log::one(scratch.path(), &Spec::new("plain", records))?;
    let mut table = Table::new("decode: one core, warm files, batches of 150 records of 100 bytes");
    uncompressed(&plain, &mut table);
    for (codec, name) in [(Codec::Zstd, "zstd"), (Codec::Lz4, "lz4")] {
        let spec = Spec { codec, ..Spec::new(name, records / 2) };
        compressed(&make_log::one(&scratch.path().join(name), &spec)?, codec, name, &mut table)?;
    }
    table.print();
    Ok(())
}

/// Bytes of the log a second: values, extents, and the peer that only reads and sums.
fn uncompressed(log: &Written, table: &mut Table) {
    let of_log =
        |lines: u64| if lines == log.lines_bytes { Ok(log.log_bytes) } else { wrong(lines) };
    let [peer, check, check_by_two, values, extents] = interleave(
        rounds::rounds(9),
        [
            Box::new(|| bytes_a_second(|| read_and_sum(log))),
            Box::new(|| bytes_a_second(|| engine::check(&log.dir, 1))),
            Box::new(|| bytes_a_second(|| engine::check(&log.dir, 2))),
            Box::new(|| bytes_a_second(|| engine::decode_values(&log.dir).and_then(of_log))),
            Box::new(|| bytes_a_second(|| engine::extents_pass(&log.dir).and_then(of_log))),
        ],
    );
    let unit = Unit::BytesASecond;
    let goal = Goal::AtLeast(0.50);
    table.compare("check, one thread / pread + crc32c", unit, &check, &peer, goal);
    let goal = Goal::AtLeast(0.90);
    table.compare("check, two threads / pread + crc32c", unit, &check_by_two, &peer, goal);
    table.compare("values / pread + crc32c", unit, &values, &peer, Goal::AtLeast(0.40));
    table.compare("extents / pread + crc32c", unit, &extents, &peer, Goal::AtLeast(0.50));
}

/// Expanded bytes a second: the codec alone, and for information all the way to values.
fn compressed(log: &Written, codec: Codec, name: &str, table: &mut Table) -> Outcome<()> {
    let files: Vec<Vec<u8>> = log.segments.iter().map(fs::read).collect::<Result<_, _>>()?;
    let payloads: Vec<&[u8]> = files.iter().flat_map(|file| payloads(file)).collect();
    let mut room = Vec::with_capacity(BATCH_ROOM);
    let mut zstd = zstd::bulk::Decompressor::new()?;
    let mut expanded_bytes = 0;
    for payload in &payloads {
        expanded_bytes += expand(codec, &mut zstd, payload, &mut room)?;
    }
    let mut out = Vec::with_capacity(BATCH_ROOM);
    let of_log = |lines| if lines == log.lines_bytes { Ok(expanded_bytes) } else { wrong(lines) };
    let [library, ours, values] = interleave(
        rounds::rounds(9),
        [
            Box::new(|| {
                bytes_a_second(|| {
                    payloads.iter().try_fold(0, |sum, payload| {
                        Ok(sum + expand(codec, &mut zstd, payload, &mut room)?)
                    })
                })
            }),
            Box::new(|| bytes_a_second(|| expand_with_ours(codec, &payloads, &mut out))),
            Box::new(|| bytes_a_second(|| engine::decode_values(&log.dir).and_then(of_log))),
        ],
    );
    let unit = Unit::BytesASecond;
    table.compare(&format!("{name} / its library"), unit, &ours, &library, Goal::AtLeast(0.8));
    table.compare(&format!("values of {name} / its library"), unit, &values, &library, Goal::None);
    Ok(())
}

/// The peer: the whole log by preads of 256 KiB, and the CRC-32C of what they return.
fn read_and_sum(log: &Written) -> Outcome<u64> {
    let mut buffer = vec![0; 256 << 10];
    let (mut total, mut crc) = (0, 0);
    for segment in &log.segments {
        let (file, mut position) = (File::open(segment)?, 0);
        loop {
            let count = file.read_at(&mut buffer, position)?;
            if count == 0 {
                break;
            }
            crc = crc32c::crc32c_append(crc, &buffer[..count]);
            position += count as u64;
        }
        total += position;
    }
    std::hint::black_box(crc);
    Ok(total)
}

fn expand_with_ours(codec: Codec, payloads: &[&[u8]], out: &mut Vec<u8>) -> Outcome<u64> {
    payloads.iter().try_fold(0, |sum, payload| {
        out.clear();
        engine::decompress(codec, payload, out)?;
        Ok(sum + out.len() as u64)
    })
}

/// One batch by the library at its best: context and buffer reused. The expanded bytes.
fn expand(
    codec: Codec,
    zstd: &mut zstd::bulk::Decompressor<'_>,
    payload: &[u8],
    room: &mut Vec<u8>,
) -> Outcome<u64> {
    room.clear();
    match codec {
        Codec::Zstd => zstd.decompress_to_buffer(payload, room)?,
        Codec::Lz4 => lz4_flex::frame::FrameDecoder::new(payload).read_to_end(room)?,
        Codec::None | Codec::Gzip | Codec::Snappy => return Err("not compared".into()),
    };
    Ok(room.len() as u64)
}

/// What follows the headers of the batches of one segment.
fn payloads(file: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = file;
    std::iter::from_fn(move || {
        let length = rest.get(8..)?.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))?;
        let (batch, after) = rest.split_at_checked(12 + usize::try_from(length).ok()?)?;
        rest = after;
        batch.get(61..)
    })
}

fn wrong(bytes: u64) -> Outcome<u64> {
    Err(format!("{bytes} bytes of lines are not what was written").into())
}
