//! How long the engine takes to find one record, warm: by offset, by time, and beside another
//! record of the same large compressed batch. The peer preads 4 KiB at a random place of the same
//! files and takes its CRC-32C.

mod engine;
mod make_log;
mod rounds;
mod table;

use std::fs::{self, File};
use std::hint::black_box;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use make_log::{Codec, RECORDS_IN_4_KIB, Random, Spec, Written};
use rounds::{Outcome, float, interleave, seconds};
use table::{Goal, Table, Unit};

const SEGMENTS_COUNT: u64 = 100;
/// Lookups in one round.
const LOOKUPS: u32 = 20_000;
/// Records of the large batch.
const LARGE_BATCH: u64 = 100_000;
/// Lookups beside the first one in the large batch.
const NEIGHBOURS: u32 = 1000;

fn main() -> Outcome<()> {
    if !rounds::asked_for("find") {
        return Ok(());
    }
    let scratch = tempfile::tempdir()?;
    let mut table =
        Table::new("find: warm, 100 segments, batches of 4 KiB, CRC of the batch checked");
    small_batches(&scratch.path().join("small"), &mut table)?;
    large_batch(&scratch.path().join("large"), &mut table)?;
    table.print();
    Ok(())
}

fn small_batches(data_dir: &Path, table: &mut Table) -> Outcome<()> {
    let batches = rounds::scaled(500 * SEGMENTS_COUNT, 20 * SEGMENTS_COUNT);
    let spec = Spec {
        records_per_batch: RECORDS_IN_4_KIB,
        segment_bytes: batches / SEGMENTS_COUNT * 4200,
        ..Spec::new("small", batches * RECORDS_IN_4_KIB)
    };
    let written = make_log::one(data_dir, &spec)?;
    let files: Vec<File> = written.segments.iter().map(File::open).collect::<io::Result<_>>()?;
    let mut least_bytes = spec.segment_bytes;
    for file in &files {
        least_bytes = least_bytes.min(file.metadata()?.len());
    }
    let pages = usize::try_from(least_bytes / 4096)?.max(1);
    warm(&written)?;
    let log = engine::open(&written.dir).map_err(|error| error.to_string());
    let mut places = Random(42);
    let [peer, bare, by_offset, by_time] = interleave(
        rounds::rounds(9),
        [
            Box::new(|| each(LOOKUPS, |i| read_4_kib(&files, pages, i, true))),
            Box::new(|| each(LOOKUPS, |i| read_4_kib(&files, pages, i, false))),
            Box::new(|| {
                let log = log.as_ref().map_err(String::as_str)?;
                each(LOOKUPS, |_| engine::find(log, random_offset(&mut places, &written)))
            }),
            Box::new(|| {
                let (log, mut places) = (log.as_ref().map_err(String::as_str)?, Random(43));
                each(LOOKUPS, |_| {
                    let offset = random_offset(&mut places, &written);
                    let found = engine::find_time(log, make_log::timestamp(offset))?;
                    if found == offset {
                        Ok(found)
                    } else {
                        Err(format!("{found}, not {offset}").into())
                    }
                })
            }),
        ],
    );
    let (unit, goal) = (Unit::Micros, Goal::AtMost(4e-6));
    table.bound("by offset; peer pread 4 KiB + CRC", unit, &by_offset, Some(&peer), goal);
    table.bound("by time; peer the same", unit, &by_time, Some(&peer), Goal::AtMost(8e-6));
    table.bound("a random pread of 4 KiB alone", unit, &bare, None, Goal::None);
    Ok(())
}

/// A compressed batch of 100,000 records must not be expanded again for each record in it.
fn large_batch(data_dir: &Path, table: &mut Table) -> Outcome<()> {
    let spec = Spec {
        codec: Codec::Zstd,
        records_per_batch: LARGE_BATCH,
        ..Spec::new("large", 3 * LARGE_BATCH)
    };
    let written = make_log::one(data_dir, &spec)?;
    let file = fs::read(&written.segments[0])?;
    let length = file.get(8..).and_then(<[u8]>::first_chunk).map_or(0, |b| u32::from_be_bytes(*b));
    let payload = file.get(61..12 + length as usize).ok_or("the first batch is cut")?;
    let mut room = Vec::with_capacity(32 << 20);
    let mut zstd = zstd::bulk::Decompressor::new()?;
    let log = engine::open(&written.dir).map_err(|error| error.to_string());
    let mut places = Random(44);
    let [expanding, neighbour] = interleave(
        rounds::rounds(9),
        [
            Box::new(|| {
                seconds(|| {
                    room.clear();
                    Ok(zstd.decompress_to_buffer(payload, &mut room)?)
                })
            }),
            Box::new(|| {
                let log = log.as_ref().map_err(String::as_str)?;
                engine::find(log, LARGE_BATCH)?;
                each(NEIGHBOURS, |_| {
                    let near = places.below(usize::try_from(LARGE_BATCH)?);
                    engine::find(log, LARGE_BATCH + near as u64)
                })
            }),
        ],
    );
    let what = "beside another, batch of 100,000; peer zstd of it";
    table.compare(what, Unit::Micros, &neighbour, &expanding, Goal::AtMost(0.1));
    Ok(())
}

/// Seconds of one of `times` calls.
fn each(times: u32, mut call: impl FnMut(u32) -> Outcome<u64>) -> Outcome<f64> {
    let total = seconds(|| {
        for i in 0..times {
            black_box(call(i)?);
        }
        Ok(())
    })?;
    Ok(total / float(u64::from(times)))
}

/// One of the first `pages` of one of the files.
fn read_4_kib(files: &[File], pages: usize, seed: u32, sum: bool) -> Outcome<u64> {
    let mut random = Random(u64::from(seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut page = [0; 4096];
    let file = &files[random.below(files.len())];
    let place = 4096 * random.below(pages) as u64;
    file.read_exact_at(&mut page, place)?;
    Ok(if sum { u64::from(crc32c::crc32c(&page)) } else { 0 })
}

fn random_offset(places: &mut Random, log: &Written) -> u64 {
    places.below(usize::try_from(log.records).unwrap_or(usize::MAX)) as u64
}

fn warm(log: &Written) -> Outcome<()> {
    for segment in &log.segments {
        black_box(fs::read(segment)?);
    }
    Ok(())
}
