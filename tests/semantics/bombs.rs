//! 6.4: small batches that would expand to gigabytes.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

use crate::needs_fuse;
use crate::support::kafkalog::{Codec, batch, data_dir, partition, plain, rec};
use crate::support::mount::{Mount, v};
use crate::support::{EIO, mount, scratch};

const GIB: u64 = 1 << 30;

/// 10 GiB of zeros through a packer that writes to a file.
fn pack<W: Write>(file: &Path, make: impl FnOnce(BufWriter<File>) -> W) -> W {
    let mut packer = make(BufWriter::new(File::create(file).unwrap()));
    let zeros = vec![0; 1 << 20];
    for _ in 0..10 * GIB / (1 << 20) {
        packer.write_all(&zeros).unwrap();
    }
    packer
}

fn zstd_bomb(file: &Path) {
    let packer = pack(file, |out| zstd::Encoder::new(out, 1).unwrap());
    packer.finish().unwrap().flush().unwrap();
}

fn gzip_bomb(file: &Path) {
    // A gzip member expands at most a thousand times; members may follow each other.
    let member = {
        let level = flate2::Compression::best();
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), level);
        for _ in 0..64 {
            packer.write_all(&vec![0; 1 << 20]).unwrap();
        }
        packer.finish().unwrap()
    };
    fs::write(file, member.repeat(160)).unwrap();
}

fn lz4_bomb(file: &Path) {
    use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};
    let frame = FrameInfo::new().block_size(BlockSize::Max4MB).block_mode(BlockMode::Independent);
    let packer = pack(file, |out| FrameEncoder::with_frame_info(frame, out));
    packer.finish().unwrap().flush().unwrap();
}

/// Blocks of 2 MiB of zeros, each a twentieth of its size; a header that claims 4 GiB.
fn snappy_bomb(file: &Path) {
    let block = crate::support::kafkalog::snappy(&vec![0; 2 << 20]);
    let mut out = b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01".to_vec();
    for _ in 0..600 {
        out.extend(u32::try_from(block.len()).unwrap().to_be_bytes());
        out.extend(&block);
    }
    fs::write(file, out).unwrap();
}

fn snappy_lie(file: &Path) {
    fs::write(file, [b"\xff\xff\xff\xff\x0f\0".to_vec(), vec![0; 1 << 20]].concat()).unwrap();
}

/// Writes a bomb to a file.
type Make = fn(&Path);

/// A partition with records 0-9, a bomb at 10-19, records 20-29.
fn with_bomb(source: &Path, name: &str, codec: i16, bomb: &Path) {
    let packed = fs::read(bomb).unwrap();
    let bomb = plain(10..20).codec(Codec::As(codec, packed));
    let part = partition().named(name).add(&plain(0..10)).add(&bomb).add(&plain(20..30));
    data_dir(source, &[part]);
}

fn read_from_all_sides(mount: &Mount, names: &[&str]) {
    std::thread::scope(|scope| {
        for reader in 0..8 {
            scope.spawn(move || {
                for name in names {
                    let shown = mount.partition(name);
                    assert_eq!(shown.by_offset(10 + reader), EIO, "{name}");
                    shown.by_offset("0...jsonl");
                }
            });
        }
    });
}

/// 6.4: "decompression is bounded, a batch (`-o max_batch_bytes`, default 256 MiB) and all of them
/// together."
#[test]
fn bombs_are_eio_and_take_no_memory() {
    needs_fuse!();
    let home = scratch();
    let source = home.path().join("source");
    let file = home.path().join("bomb");
    let bombs: [(&str, i16, Make); 5] = [
        ("gzip-0", 1, gzip_bomb),
        ("snappy-0", 2, snappy_bomb),
        ("snappy-lie-0", 2, snappy_lie),
        ("lz4-0", 3, lz4_bomb),
        ("zstd-0", 4, zstd_bomb),
    ];
    for (name, codec, make) in bombs {
        make(&file);
        with_bomb(&source, name, codec, &file);
    }
    let names = bombs.map(|(name, _, _)| name);
    let mount = mount(&source).peak_mib(300).start();
    read_from_all_sides(&mount, &names);
    for name in names {
        let shown = mount.partition(name);
        assert_eq!(shown.records(0..10), v(0..10), "{name}");
        assert_eq!(shown.records(20..30), v(20..30), "{name}");
    }
    assert!(mount.peak_resident_mib() < 300, "{} MiB", mount.peak_resident_mib());
}

/// 6.4: "a batch (`-o max_batch_bytes`, default 256 MiB)"
#[test]
fn the_bound_of_a_batch_can_be_set() {
    needs_fuse!();
    let home = scratch();
    let large = batch(0, vec![rec(vec![b'x'; 3 << 20]), rec("small")]).codec(Codec::Zstd);
    let part = partition().add(&large).add(&plain(2..4));
    let source = data_dir(home.path().join("source"), &[part]);
    let small = mount(&source).args(&["-o", "max_batch_bytes=1048576"]).start();
    assert_eq!(small.t0().by_offset(1), EIO);
    assert_eq!(small.t0().by_offset(2), "v2");
    drop(small);
    let usual = mount(&source).start();
    assert_eq!(usual.t0().by_offset(1), "small");
    assert_eq!(usual.t0().metadata("by-offset/0").len(), 3 << 20);
}
