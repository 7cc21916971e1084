//! Compression in the framings that Kafka writes (format page, "Compressed records"); the way back
//! is `codec.rs`.
//!
//! Making a context costs more than compressing a small batch with it: each thread keeps
//! one of each codec that it has used, and compresses into memory that the caller keeps.

use std::cell::RefCell;
use std::ops::RangeInclusive;

use flate2::{Compress, Compression, FlushCompress, Status};
use lz4_flex::block::CompressTable;
use zstd::zstd_safe::{CCtx, CParameter, compress_bound, get_error_name};

use super::FormatError;
use super::codec::{Codec, LZ4_MAGIC, XERIAL_MAGIC, ZSTD_KEPT_CONTEXT_BYTES, invalid};

/// Appends `data`, compressed, to `out`. `level` is that of Kafka's `compression.gzip.level`,
/// `compression.lz4.level` or `compression.zstd.level`; `None` is their default. Every level of lz4
/// is the fast compressor, which Kafka's default means; snappy has no levels. After an error `out`
/// is as it was.
pub fn compress(
    codec: Codec,
    level: Option<i32>,
    data: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), FormatError> {
    let start = out.len();
    let result = CONTEXTS.with_borrow_mut(|contexts| match codec {
        Codec::None => {
            out.extend_from_slice(data);
            Ok(())
        }
        Codec::Gzip => contexts.gzip(level, data, out),
        Codec::Snappy => contexts.snappy(data, out),
        Codec::Lz4 => contexts.lz4(level, data, out),
        Codec::Zstd => contexts.zstd(level, data, out),
        Codec::Unknown(number) => Err(FormatError::invalid(format!("unknown codec {number}"))),
    });
    if result.is_err() {
        out.truncate(start);
    }
    result
}

thread_local! {
    static CONTEXTS: RefCell<Contexts> = const { RefCell::new(Contexts::NEW) };
}

/// What the codecs keep from one batch to the next.
struct Contexts {
    /// With the level that it was made for.
    gzip: Option<(u32, Compress)>,
    snappy: Option<snap::raw::Encoder>,
    /// For blocks of less than 64 KiB.
    lz4_small: Option<CompressTable>,
    lz4_large: Option<CompressTable>,
    zstd: Option<CCtx<'static>>,
}

impl Contexts {
    const NEW: Contexts =
        Contexts { gzip: None, snappy: None, lz4_small: None, lz4_large: None, zstd: None };

    /// One gzip member. Its header names no system (255), as Java's does.
    fn gzip(
        &mut self,
        level: Option<i32>,
        data: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), FormatError> {
        const DEFAULT: u32 = 6;
        const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
        let level = match level {
            None | Some(-1) => DEFAULT,
            Some(level) => within("gzip", level, 1..=9)?.unsigned_abs(),
        };
        let mut member = match self.gzip.take() {
            Some((kept, context)) if kept == level => context,
            _ => Compress::new_gzip(Compression::new(level), 15),
        };
        let start = out.len();
        out.reserve(data.len() / 2 + 64);
        loop {
            let read = usize::try_from(member.total_in()).unwrap_or(usize::MAX);
            let rest = data.get(read..).unwrap_or_default();
            let status = member
                .compress_vec(rest, out, FlushCompress::Finish)
                .map_err(|error| invalid("gzip", &error))?;
            if status == Status::StreamEnd {
                break;
            }
            out.reserve(out.capacity().max(64));
        }
        if let Some(header) = out.get_mut(start..).and_then(<[u8]>::first_chunk_mut) {
            *header = HEADER;
        }
        member.reset();
        self.gzip = Some((level, member));
        Ok(())
    }

    /// A stream as snappy-java writes it: header, then blocks of 32 KiB.
    fn snappy(&mut self, data: &[u8], out: &mut Vec<u8>) -> Result<(), FormatError> {
        const VERSIONS: [u8; 8] = [0, 0, 0, 1, 0, 0, 0, 1];
        const BLOCK_BYTES: usize = 32 * 1024;
        let encoder = self.snappy.get_or_insert_with(snap::raw::Encoder::new);
        out.extend_from_slice(XERIAL_MAGIC);
        out.extend_from_slice(&VERSIONS);
        for block in data.chunks(BLOCK_BYTES) {
            let most = snap::raw::max_compress_len(block.len());
            append_block(out, most, |room| {
                let written =
                    encoder.compress(block, room).map_err(|error| invalid("snappy", &error))?;
                Ok((written, length_field(written)?.to_be_bytes()))
            })?;
        }
        Ok(())
    }

    /// A frame of independent blocks of 64 KiB, without checksums and content size.
    fn lz4(
        &mut self,
        level: Option<i32>,
        data: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), FormatError> {
        /// Flags, block size, and the checksum of the two.
        const DESCRIPTOR: [u8; 3] = [0x60, 0x40, 0x82];
        const BLOCK_BYTES: usize = 64 * 1024;
        const STORED: u32 = 1 << 31;
        if let Some(level) = level {
            within("lz4", level, 1..=17)?;
        }
        let small = self.lz4_small.get_or_insert_with(CompressTable::small);
        out.extend_from_slice(&LZ4_MAGIC);
        out.extend_from_slice(&DESCRIPTOR);
        for block in data.chunks(BLOCK_BYTES) {
            let table = if block.len() < usize::from(u16::MAX) {
                &mut *small
            } else {
                self.lz4_large.get_or_insert_with(CompressTable::large)
            };
            let most = lz4_flex::block::get_maximum_output_size(block.len());
            append_block(out, most, |room| {
                let written = lz4_flex::block::compress_into_with_table(block, room, table)
                    .map_err(|error| invalid("lz4", &error))?;
                if written < block.len() {
                    return Ok((written, length_field(written)?.swap_bytes().to_be_bytes()));
                }
                room.get_mut(..block.len()).unwrap_or_default().copy_from_slice(block);
                let length = length_field(block.len())? | STORED;
                Ok((block.len(), length.swap_bytes().to_be_bytes()))
            })?;
        }
        out.extend_from_slice(&[0; 4]);
        Ok(())
    }

    /// A plain frame that says its content's size, without checksum.
    fn zstd(
        &mut self,
        level: Option<i32>,
        data: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), FormatError> {
        const DEFAULT: i32 = 3;
        let level = within("zstd", level.unwrap_or(DEFAULT), -131_072..=22)?;
        let zstd_error = |code| invalid("zstd", &get_error_name(code));
        let mut context = match self.zstd.take() {
            Some(context) => context,
            None => CCtx::try_create().ok_or_else(|| invalid("zstd", &"no memory"))?,
        };
        context.set_parameter(CParameter::CompressionLevel(level)).map_err(zstd_error)?;
        let start = out.len();
        out.resize(start + compress_bound(data.len()), 0);
        let room = out.get_mut(start..).unwrap_or_default();
        let written = context.compress2(room, data).map_err(zstd_error)?;
        out.truncate(start + written);
        if context.sizeof() <= ZSTD_KEPT_CONTEXT_BYTES {
            self.zstd = Some(context);
        }
        Ok(())
    }
}

/// Appends a length field of 4 bytes and the block that `write` puts into a room of `most` bytes.
fn append_block(
    out: &mut Vec<u8>,
    most: usize,
    write: impl FnOnce(&mut [u8]) -> Result<(usize, [u8; 4]), FormatError>,
) -> Result<(), FormatError> {
    let start = out.len();
    out.resize(start + 4 + most, 0);
    if let Some((length, room)) = out.get_mut(start..).and_then(<[u8]>::split_first_chunk_mut) {
        let (written, field) = write(room)?;
        *length = field;
        out.truncate(start + 4 + written);
    }
    Ok(())
}

fn length_field(bytes: usize) -> Result<u32, FormatError> {
    u32::try_from(bytes).map_err(|_| FormatError::invalid(format!("a block of {bytes} bytes")))
}

fn within(codec: &str, level: i32, levels: RangeInclusive<i32>) -> Result<i32, FormatError> {
    if levels.contains(&level) {
        return Ok(level);
    }
    let reason = format!("level {level}, expected {} to {}", levels.start(), levels.end());
    Err(invalid(codec, &reason))
}

#[cfg(test)]
mod tests {
    use super::super::batch::Magic;
    use super::super::codec::decompress;
    use super::super::tests::{GZIP, LZ4, PLAIN, SNAPPY, ZSTD, hex, sample};
    use super::*;
    use proptest::prelude::*;

    const CODECS: [Codec; 5] = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];

    fn compressed(codec: Codec, level: Option<i32>, data: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        compress(codec, level, data, &mut out).unwrap();
        out
    }

    fn expanded(codec: Codec, data: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        decompress(codec, Magic::V2, data, &mut out, 1 << 24).unwrap();
        out
    }

    /// Bytes that no codec makes shorter.
    fn noise(bytes: usize) -> Vec<u8> {
        let mut state = 1_u64;
        let next = std::iter::repeat_with(move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state.to_be_bytes()[0]
        });
        next.take(bytes).collect()
    }

    /// Annex A1 to A5 of the format facts. The body of a gzip member differs where the library
    /// finds another repetition; a zstd frame differs as Kafka's, which is written in pieces, does
    /// not say its size.
    #[test]
    fn frames_look_like_those_that_kafka_wrote() {
        let records = &hex(PLAIN)[61..];
        for (codec, digits) in [(Codec::Snappy, SNAPPY), (Codec::Lz4, LZ4)] {
            assert_eq!(compressed(codec, None, records), hex(digits)[61..], "{codec:?}");
        }
        let (ours, kafkas) = (compressed(Codec::Gzip, None, records), &hex(GZIP)[61..]);
        assert_eq!(ours[..10], kafkas[..10]);
        assert_eq!(ours.last_chunk::<8>(), kafkas.last_chunk());
        assert_eq!(expanded(Codec::Gzip, &ours), records);
        let (ours, kafkas) = (compressed(Codec::Zstd, None, records), &hex(ZSTD)[61..]);
        assert_eq!(ours[..4], kafkas[..4]);
        // A single segment whose size is in one byte, without checksum.
        assert_eq!(ours[4..6], [0x20, 34]);
        assert_eq!(expanded(Codec::Zstd, &ours), records);
    }

    #[test]
    fn data_of_every_size_at_every_level_reads_back() {
        let levels: [(Codec, &[i32]); 5] = [
            (Codec::None, &[]),
            (Codec::Gzip, &[-1, 1, 2, 5, 6, 9]),
            (Codec::Snappy, &[]),
            (Codec::Lz4, &[1, 9, 17]),
            (Codec::Zstd, &[-131_072, -1, 0, 3, 19, 22]),
        ];
        for bytes in [0, 1, 100, 32_768, 32_769, 65_534, 65_535, 65_536, 65_537, 200_000] {
            for data in [sample(bytes), noise(bytes), vec![7; bytes]] {
                for (codec, levels) in levels {
                    for level in levels.iter().copied().map(Some).chain([None]) {
                        let stored = compressed(codec, level, &data);
                        let same = expanded(codec, &stored) == data;
                        assert!(same, "{codec:?} {level:?}, {bytes} bytes");
                    }
                }
            }
        }
    }

    #[test]
    fn what_cannot_be_compressed_grows_by_little() {
        let data = noise(1 << 20);
        for codec in CODECS {
            let stored = compressed(codec, None, &data);
            assert!(stored.len() < data.len() + data.len() / 1000, "{codec:?}: {}", stored.len());
        }
    }

    #[test]
    fn defaults_are_those_of_kafka_and_levels_matter() {
        let data: Vec<u8> =
            (0..20_000).flat_map(|i| format!("{} ", i * i % 9973).into_bytes()).collect();
        let stored = |codec, level| compressed(codec, level, &data);
        for (codec, level) in
            [(Codec::Gzip, -1), (Codec::Gzip, 6), (Codec::Lz4, 9), (Codec::Zstd, 3)]
        {
            assert_eq!(stored(codec, None), stored(codec, Some(level)), "{codec:?} {level}");
        }
        for (codec, low, high) in [(Codec::Gzip, 1, 9), (Codec::Zstd, -5, 19)] {
            let [low, high] = [low, high].map(|level| stored(codec, Some(level)).len());
            assert!(high < low, "{codec:?}: {low}, {high}");
        }
    }

    #[test]
    fn contexts_carry_nothing_over_and_out_keeps_what_it_had() {
        for codec in CODECS {
            let alone = compressed(codec, None, b"one one one one");
            let _other = compressed(codec, Some(1), &sample(300_000));
            let mut out = b"before".to_vec();
            compress(codec, None, b"one one one one", &mut out).unwrap();
            assert_eq!(out, [&b"before"[..], &alone].concat(), "{codec:?}");
        }
    }

    #[test]
    fn unknown_codecs_and_levels_are_refused() {
        for (codec, level, reason) in [
            (Codec::Unknown(5), None, "unknown codec 5"),
            (Codec::Gzip, Some(0), "gzip: level 0, expected 1 to 9"),
            (Codec::Gzip, Some(10), "gzip: level 10, expected 1 to 9"),
            (Codec::Lz4, Some(18), "lz4: level 18, expected 1 to 17"),
            (Codec::Zstd, Some(23), "zstd: level 23, expected -131072 to 22"),
        ] {
            let mut out = b"before".to_vec();
            let error = compress(codec, level, b"data", &mut out).unwrap_err();
            assert_eq!((error.to_string().as_str(), out.as_slice()), (reason, &b"before"[..]));
        }
    }

    #[test]
    fn blocks_are_no_longer_than_kafkas() {
        let stream = compressed(Codec::Snappy, None, &noise(70_000));
        let first = u32::from_be_bytes(*stream[16..].first_chunk().unwrap());
        let block = &stream[20..20 + usize::try_from(first).unwrap()];
        assert_eq!(snap::raw::decompress_len(block), Ok(32 * 1024));
        let frame = compressed(Codec::Lz4, None, &noise(70_000));
        // Stored as it is: bit 31, and 64 KiB, in little-endian order.
        assert_eq!(frame[7..11], [0, 0, 1, 0x80]);
    }

    proptest! {
        #[test]
        fn batches_in_any_order_read_back(
            batches in proptest::collection::vec((0..CODECS.len(), 0..3_i32, 0..5_000_usize), 1..9),
        ) {
            for (which, level, bytes) in batches {
                let level = (level > 0).then_some(level);
                let data = sample(bytes);
                let stored = compressed(CODECS[which], level, &data);
                prop_assert_eq!(expanded(CODECS[which], &stored), data);
            }
        }
    }
}
