//! The five codecs of record batches: one enum, and decompression whose output is bounded (for the
//! way there see `compress.rs`). The libraries do the work; here is only the framing that Kafka and
//! its clients put around them.
//!
//! Sizes that the input claims are believed only as far as the caller's limit and the best ratio of
//! the codec allow. zstd windows are bounded at 128 MiB, the largest that level 22 uses.

use std::cell::RefCell;
use std::io::{BufRead, Read};

use flate2::{Decompress, FlushDecompress, Status};
use lz4_flex::frame::FrameDecoder;
use zstd::zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer, ResetDirective};
use zstd::zstd_safe::{decompress_bound, get_error_name};

use super::batch::Magic;
use super::{FormatError, field_i32};

/// How the records of a batch are compressed (attribute bits 0 to 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Codec {
    None,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
    /// 5 to 7, which no release of Kafka defines: the records cannot be read.
    Unknown(u8),
}

impl Codec {
    /// The codec that the attributes of a batch or message name.
    pub fn from_attributes(attributes: i16) -> Codec {
        match attributes & 7 {
            0 => Codec::None,
            1 => Codec::Gzip,
            2 => Codec::Snappy,
            3 => Codec::Lz4,
            4 => Codec::Zstd,
            other => Codec::Unknown(u8::try_from(other).unwrap_or(u8::MAX)),
        }
    }

    /// The number on disk.
    pub const fn number(self) -> u8 {
        match self {
            Codec::None => 0,
            Codec::Gzip => 1,
            Codec::Snappy => 2,
            Codec::Lz4 => 3,
            Codec::Zstd => 4,
            Codec::Unknown(number) => number,
        }
    }
}

/// Appends what `data` expands to, to `out`, which grows by at most `limit` bytes; more than that
/// is `FormatError::TooLarge`. After an error `out` is as it was. `magic` matters to lz4, whose
/// header checksum is wrong by design in magic 0, and to zstd, which only magic 2 may use (format
/// page, "Compressed records").
pub fn decompress(
    codec: Codec,
    magic: Magic,
    data: &[u8],
    out: &mut Vec<u8>,
    limit: usize,
) -> Result<(), FormatError> {
    let start = out.len();
    let mut output = Output { buffer: out, start, limit, counted: None };
    let result = expand(codec, magic, data, &mut output);
    if result.is_err() {
        out.truncate(start);
    }
    result
}

/// How many bytes `data` expands to, found by expanding it into a scratch buffer that is as small
/// as the blocks of the codec allow; more than `limit` is `FormatError::TooLarge`.
pub fn decompressed_bytes(
    codec: Codec,
    magic: Magic,
    data: &[u8],
    limit: usize,
) -> Result<usize, FormatError> {
    let mut scratch = Vec::new();
    let mut output = Output { buffer: &mut scratch, start: 0, limit, counted: Some(0) };
    expand(codec, magic, data, &mut output)?;
    Ok(output.written())
}

fn expand(
    codec: Codec,
    magic: Magic,
    data: &[u8],
    output: &mut Output<'_>,
) -> Result<(), FormatError> {
    match codec {
        Codec::None => output.append(data),
        Codec::Gzip => expand_gzip(data, output),
        Codec::Snappy => expand_snappy(data, output),
        Codec::Lz4 => expand_lz4(magic, data, output),
        Codec::Zstd if magic == Magic::V2 => expand_zstd(data, output),
        Codec::Zstd => {
            Err(FormatError::invalid(format!("zstd in a message of magic {}", magic.number())))
        }
        Codec::Unknown(number) => Err(FormatError::invalid(format!("unknown codec {number}"))),
    }
}

/// Where expanded bytes go: to the end of a buffer, or nowhere but into a sum.
struct Output<'a> {
    buffer: &'a mut Vec<u8>,
    /// Bytes that were in the buffer before.
    start: usize,
    limit: usize,
    /// Bytes that were counted and dropped, where only the sum is wanted.
    counted: Option<usize>,
}

impl Output<'_> {
    /// Room to begin with, and the step where bytes are only counted.
    const STEP_BYTES: usize = 64 * 1024;

    fn written(&self) -> usize {
        self.counted.unwrap_or(0) + self.buffer.len() - self.start
    }

    /// Makes sure of some room at the end of the buffer, for one byte more than is allowed at most:
    /// that byte tells a full output from one that is too large.
    fn make_room(&mut self) {
        if self.buffer.len() == self.buffer.capacity() {
            let left = (self.limit - self.written()).saturating_add(1);
            let wish = self.buffer.len().max(Self::STEP_BYTES);
            self.buffer.reserve_exact(wish.min(left));
        }
    }

    /// To be called after every step that wrote.
    fn settle(&mut self) -> Result<(), FormatError> {
        if self.written() > self.limit {
            return Err(FormatError::TooLarge { limit: self.limit });
        }
        if let Some(counted) = &mut self.counted {
            *counted += self.buffer.len();
            self.buffer.clear();
        }
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), FormatError> {
        if bytes.len() > self.limit - self.written() {
            return Err(FormatError::TooLarge { limit: self.limit });
        }
        match &mut self.counted {
            Some(counted) => *counted += bytes.len(),
            None => self.buffer.extend_from_slice(bytes),
        }
        Ok(())
    }
}

/// One gzip member or several, one after the other.
fn expand_gzip(mut data: &[u8], output: &mut Output<'_>) -> Result<(), FormatError> {
    loop {
        let mut member = Decompress::new_gzip(15);
        loop {
            output.make_room();
            let (read_before, written_before) = (member.total_in(), member.total_out());
            let status = member
                .decompress_vec(data, output.buffer, FlushDecompress::None)
                .map_err(|error| invalid("gzip", &error))?;
            let read = usize::try_from(member.total_in() - read_before).unwrap_or(usize::MAX);
            data = data.get(read..).unwrap_or_default();
            output.settle()?;
            if status == Status::StreamEnd {
                break;
            }
            if read == 0 && member.total_out() == written_before {
                return Err(invalid("gzip", &"the stream ends before its trailer"));
            }
        }
        if data.is_empty() {
            return Ok(());
        }
    }
}

/// First bytes of a stream of the snappy-java library. Two 32-bit numbers follow, version and least
/// compatible version, at which we do not look: some brokers wrote them in the wrong byte order.
pub(super) const XERIAL_MAGIC: &[u8] = b"\x82SNAPPY\0";
const XERIAL_HEADER_BYTES: usize = 16;

/// A stream of blocks as snappy-java writes it, or one bare block, as some clients did.
fn expand_snappy(data: &[u8], output: &mut Output<'_>) -> Result<(), FormatError> {
    if !data.starts_with(XERIAL_MAGIC) {
        return expand_snappy_block(data, output);
    }
    let mut rest = data;
    while !rest.is_empty() {
        // Streams may be concatenated: a header can stand where a block's length is due.
        if rest.starts_with(XERIAL_MAGIC) {
            rest = rest.get(XERIAL_HEADER_BYTES..).ok_or(FormatError::Short {
                what: "snappy stream header",
                needs: XERIAL_HEADER_BYTES,
                has: rest.len(),
            })?;
            continue;
        }
        let length = field_i32(rest, 0)?;
        let (block, after) = usize::try_from(length)
            .ok()
            .and_then(|length| rest.get(4..)?.split_at_checked(length))
            .ok_or_else(|| {
                let has = rest.len() - 4;
                FormatError::invalid(format!("snappy block of {length} bytes, {has} are there"))
            })?;
        expand_snappy_block(block, output)?;
        rest = after;
    }
    Ok(())
}

/// The best that a snappy block can do is a three-byte copy of 64 bytes.
const SNAPPY_BEST_RATIO: usize = 22;

fn expand_snappy_block(block: &[u8], output: &mut Output<'_>) -> Result<(), FormatError> {
    let length = snap::raw::decompress_len(block).map_err(|error| invalid("snappy", &error))?;
    if length > block.len().saturating_mul(SNAPPY_BEST_RATIO) {
        let reason = format!("a block of {} bytes cannot hold {length}", block.len());
        return Err(invalid("snappy", &reason));
    }
    if length > output.limit - output.written() {
        return Err(FormatError::TooLarge { limit: output.limit });
    }
    let at = output.buffer.len();
    output.buffer.resize(at + length, 0);
    let written = snap::raw::Decoder::new()
        .decompress(block, output.buffer.get_mut(at..).unwrap_or_default())
        .map_err(|error| invalid("snappy", &error))?;
    output.buffer.truncate(at + written);
    output.settle()
}

/// LZ4 frames, one after the other. The library takes a frame that stops between two blocks for a
/// whole one, so each is measured first.
fn expand_lz4(magic: Magic, mut data: &[u8], output: &mut Output<'_>) -> Result<(), FormatError> {
    loop {
        let frame = Lz4Frame::measure(data)?;
        let (this, after) = data.split_at(frame.bytes);
        let (header, blocks) = this.split_at(frame.header_bytes);
        let mut header_copy = [0; Lz4Frame::LONGEST_HEADER_BYTES];
        let header_copy = &mut header_copy[..frame.header_bytes];
        header_copy.copy_from_slice(header);
        if let (Magic::V0, [_, _, _, _, descriptor @ .., checksum]) = (magic, &mut *header_copy) {
            *checksum = lz4_header_checksum(descriptor);
        }
        expand_lz4_frame(header_copy, blocks, output)?;
        data = after;
        if data.is_empty() {
            return Ok(());
        }
    }
}

fn expand_lz4_frame(
    header: &[u8],
    blocks: &[u8],
    output: &mut Output<'_>,
) -> Result<(), FormatError> {
    let mut decoder = FrameDecoder::new(header.chain(blocks));
    loop {
        let expanded = decoder.fill_buf().map_err(|error| invalid("lz4", &error))?;
        let bytes = expanded.len();
        if bytes > 0 {
            output.append(expanded)?;
            decoder.consume(bytes);
        } else if decoder.get_ref().get_ref().1.is_empty() {
            // Nothing came, and not because of an empty block: this was the end mark.
            return Ok(());
        }
    }
}

/// First bytes of an LZ4 frame.
pub(super) const LZ4_MAGIC: [u8; 4] = [0x04, 0x22, 0x4d, 0x18];

/// The outline of an LZ4 frame: magic number, descriptor and its checksum, blocks with their
/// lengths, an end mark. All of its numbers are little-endian.
struct Lz4Frame {
    header_bytes: usize,
    bytes: usize,
}

impl Lz4Frame {
    const LONGEST_HEADER_BYTES: usize = 19;

    fn measure(data: &[u8]) -> Result<Lz4Frame, FormatError> {
        let flags = match data {
            [a, b, c, d, flags, _, ..] if [*a, *b, *c, *d] == LZ4_MAGIC => *flags,
            _ => return Err(invalid("lz4", &"no frame begins here")),
        };
        let flagged = |bit: u8, bytes: usize| if flags & bit == 0 { 0 } else { bytes };
        let header_bytes = 7 + flagged(0x08, 8) + flagged(0x01, 4);
        let mut at = header_bytes;
        loop {
            let length = field_i32(data, at)
                .map_err(|_| invalid("lz4", &"the frame ends before its end mark"))?
                .swap_bytes();
            at += 4;
            if length == 0 {
                break;
            }
            // The top bit tells that the block is stored as it is.
            at += usize::try_from(length & i32::MAX).unwrap_or(usize::MAX) + flagged(0x10, 4);
        }
        let bytes = at + flagged(0x04, 4);
        if bytes > data.len() {
            return Err(invalid("lz4", &"the frame ends before its content checksum"));
        }
        Ok(Lz4Frame { header_bytes, bytes })
    }
}

/// Bits 8 to 15 of the XXH32 of an LZ4 frame descriptor (2 to 14 bytes, so only the part of XXH32
/// for less than 16 bytes is here).
fn lz4_header_checksum(descriptor: &[u8]) -> u8 {
    const PRIMES: [u32; 5] = [0x9e37_79b1, 0x85eb_ca77, 0xc2b2_ae3d, 0x27d4_eb2f, 0x1656_67b1];
    let length = u32::try_from(descriptor.len()).unwrap_or(u32::MAX);
    let mut hash = PRIMES[4].wrapping_add(length);
    let (words, bytes) = descriptor.as_chunks::<4>();
    for word in words {
        let word = u32::from_be_bytes(*word).swap_bytes();
        hash = hash.wrapping_add(word.wrapping_mul(PRIMES[2]));
        hash = hash.rotate_left(17).wrapping_mul(PRIMES[3]);
    }
    for &byte in bytes {
        hash = hash.wrapping_add(u32::from(byte).wrapping_mul(PRIMES[4]));
        hash = hash.rotate_left(11).wrapping_mul(PRIMES[0]);
    }
    hash = (hash ^ (hash >> 15)).wrapping_mul(PRIMES[1]);
    hash = (hash ^ (hash >> 13)).wrapping_mul(PRIMES[2]);
    hash ^= hash >> 16;
    hash.to_be_bytes()[2]
}

thread_local! {
    /// Making a context costs more than expanding a small batch.
    static ZSTD: RefCell<Option<DCtx<'static>>> = const { RefCell::new(None) };
}

/// log2 of the largest window: 128 MiB, what level 22 writes and the default limit of the library.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;
/// A context that holds more memory than this, because of a large window, is not kept.
pub(super) const ZSTD_KEPT_CONTEXT_BYTES: usize = 16 << 20;

/// Zstandard frames, one after the other.
fn expand_zstd(data: &[u8], output: &mut Output<'_>) -> Result<(), FormatError> {
    ZSTD.with_borrow_mut(|kept| {
        let mut context = match kept.take() {
            Some(context) => context,
            None => DCtx::try_create().ok_or_else(|| invalid("zstd", &"no memory"))?,
        };
        let result = expand_zstd_with(&mut context, data, output);
        if context.sizeof() <= ZSTD_KEPT_CONTEXT_BYTES {
            *kept = Some(context);
        }
        result
    })
}

fn expand_zstd_with(
    context: &mut DCtx<'_>,
    data: &[u8],
    output: &mut Output<'_>,
) -> Result<(), FormatError> {
    let zstd_error = |code| invalid("zstd", &get_error_name(code));
    let in_place = reserve_for_zstd(data, output);
    context.reset(ResetDirective::SessionOnly).map_err(zstd_error)?;
    context.set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW_LOG_MAX)).map_err(zstd_error)?;
    context.set_parameter(DParameter::StableOutBuffer(in_place)).map_err(zstd_error)?;
    let mut input = InBuffer::around(data);
    loop {
        output.make_room();
        let (read_before, written_before) = (input.pos(), output.buffer.len());
        let mut room = OutBuffer::around_pos(output.buffer, written_before);
        let wanted = context.decompress_stream(&mut room, &mut input).map_err(zstd_error)?;
        let stuck = input.pos() == read_before && room.pos() == written_before;
        output.settle()?;
        if wanted == 0 && input.pos() == data.len() {
            return Ok(());
        }
        if stuck {
            return Err(invalid("zstd", &"the stream ends before its frame does"));
        }
    }
}

/// Reserves room for all that `data` can expand to, if that is little enough; the library then
/// writes there at once instead of copying out of its window.
fn reserve_for_zstd(data: &[u8], output: &mut Output<'_>) -> bool {
    const ALWAYS_BYTES: usize = 1 << 20;
    const PLAUSIBLE_RATIO: usize = 64;
    let most = data.len().saturating_mul(PLAUSIBLE_RATIO).max(ALWAYS_BYTES).min(output.limit);
    let bound = decompress_bound(data).ok().and_then(|bound| usize::try_from(bound).ok());
    match bound {
        Some(bound) if bound <= most && output.counted.is_none() => {
            // One byte more, so that the room cannot end before the frame does.
            output.buffer.reserve(bound + 1);
            true
        }
        _ => false,
    }
}

pub(super) fn invalid(codec: &str, error: &dyn std::fmt::Display) -> FormatError {
    FormatError::Invalid(format!("{codec}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{compressed, sample};
    use super::*;
    use proptest::prelude::*;

    const CODECS: [Codec; 5] = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];

    fn expanded(codec: Codec, data: &[u8]) -> Result<Vec<u8>, FormatError> {
        let mut out = Vec::new();
        decompress(codec, Magic::V2, data, &mut out, 1 << 24).map(|()| out)
    }

    #[test]
    fn every_codec_gives_back_what_was_compressed_behind_what_was_there() {
        for codec in CODECS {
            for bytes in [0, 1, 100, 32 * 1024, 70_000, 1_000_000] {
                let data = sample(bytes);
                let compressed = compressed(codec, &data);
                let mut out = b"before".to_vec();
                decompress(codec, Magic::V2, &compressed, &mut out, bytes).unwrap();
                assert!(out == [b"before", data.as_slice()].concat(), "{codec:?} {bytes}");
                let counted = decompressed_bytes(codec, Magic::V2, &compressed, bytes);
                assert_eq!(counted, Ok(bytes), "{codec:?}");
            }
        }
    }

    #[test]
    fn one_byte_over_the_limit_is_too_large_and_leaves_out_as_it_was() {
        for codec in CODECS {
            for bytes in [1, 1000, 70_000, 1_000_000] {
                let compressed = compressed(codec, &sample(bytes));
                let limit = bytes - 1;
                let mut out = b"before".to_vec();
                let result = decompress(codec, Magic::V2, &compressed, &mut out, limit);
                assert_eq!(result, Err(FormatError::TooLarge { limit }), "{codec:?} {bytes}");
                assert_eq!(out, b"before");
                let counted = decompressed_bytes(codec, Magic::V2, &compressed, limit);
                assert_eq!(counted, Err(FormatError::TooLarge { limit }), "{codec:?} {bytes}");
            }
        }
    }

    #[test]
    fn a_bomb_takes_no_more_memory_than_the_limit_asks_for() {
        let zeros = vec![0; 64 << 20];
        for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
            let bomb = compressed(codec, &zeros);
            let mut out = Vec::new();
            let result = decompress(codec, Magic::V2, &bomb, &mut out, 1 << 20);
            assert_eq!(result, Err(FormatError::TooLarge { limit: 1 << 20 }), "{codec:?}");
            assert!(out.capacity() <= 3 << 20, "{codec:?}: {}", out.capacity());
        }
    }

    #[test]
    fn no_prefix_of_compressed_data_passes_for_the_whole() {
        for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
            let data = sample(500);
            let compressed = compressed(codec, &data);
            // A snappy stream has no end mark: it may stop after any block.
            let allowed = if codec == Codec::Snappy { Some(16) } else { None };
            for length in (0..compressed.len()).filter(|length| Some(*length) != allowed) {
                let result = expanded(codec, &compressed[..length]);
                assert!(result.is_err(), "{codec:?} cut at {length} of {}", compressed.len());
                assert!(decompressed_bytes(codec, Magic::V2, &compressed[..length], 4096).is_err());
            }
        }
    }

    #[test]
    fn concatenated_members_frames_and_streams_are_read_to_the_end() {
        for codec in CODECS {
            let twice = [compressed(codec, b"first "), compressed(codec, b"second")].concat();
            assert_eq!(expanded(codec, &twice).unwrap(), b"first second", "{codec:?}");
        }
    }

    #[test]
    fn garbage_after_the_last_frame_is_an_error() {
        for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
            let data = [compressed(codec, b"data").as_slice(), b"\x01garbage"].concat();
            assert!(matches!(expanded(codec, &data), Err(FormatError::Invalid(_))), "{codec:?}");
        }
    }

    /// Redpanda wrote the two version fields in little-endian order; the lengths never.
    #[test]
    fn snappy_versions_of_either_byte_order_are_accepted() {
        let mut stream = compressed(Codec::Snappy, b"data");
        stream[8..16].copy_from_slice(&[1, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(expanded(Codec::Snappy, &stream).unwrap(), b"data");
    }

    #[test]
    fn a_bare_snappy_block_is_accepted() {
        let data = sample(100_000);
        let block = snap::raw::Encoder::new().compress_vec(&data).unwrap();
        assert_eq!(expanded(Codec::Snappy, &block).unwrap(), data);
    }

    #[test]
    fn a_snappy_block_that_claims_too_much_reserves_nothing() {
        let mut out = Vec::new();
        let claim = b"\xff\xff\xff\xff\x0f\x00a";
        let result = decompress(Codec::Snappy, Magic::V2, claim, &mut out, usize::MAX);
        assert!(matches!(result, Err(FormatError::Invalid(_))));
        assert_eq!(out.capacity(), 0);
    }

    /// kafka-behaviours row 12 (`Lz4CompressionTest.testLz4FramingMagicV0`, `...V1`).
    #[test]
    fn lz4_header_checksum_is_ignored_in_magic_0_and_verified_after() {
        assert_eq!(lz4_header_checksum(&[0x60, 0x40]), 0x82);
        assert_eq!(lz4_header_checksum(b"\x04\x22\x4d\x18\x60\x40"), 0x1a);
        let body = [4, 0, 0, 0x80, b'd', b'a', b't', b'a', 0, 0, 0, 0];
        for (magic, checksum, good) in [
            (Magic::V0, 0x1a, true),
            (Magic::V0, 0x82, true),
            (Magic::V0, 0x00, true),
            (Magic::V1, 0x82, true),
            (Magic::V1, 0x1a, false),
            (Magic::V2, 0x82, true),
            (Magic::V2, 0x1a, false),
        ] {
            let frame = [&[0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, checksum], &body[..]].concat();
            let mut out = Vec::new();
            let result = decompress(Codec::Lz4, magic, &frame, &mut out, 100);
            assert_eq!(result.is_ok(), good, "{magic:?} {checksum:x}: {result:?}");
            assert_eq!(out, if good { &b"data"[..] } else { b"" });
        }
    }

    #[test]
    fn lz4_with_every_flag_and_an_empty_block_is_read() {
        use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};
        use std::io::Write;
        let data = sample(300_000);
        for block_size in [BlockSize::Max64KB, BlockSize::Max256KB, BlockSize::Max4MB] {
            for mode in [BlockMode::Independent, BlockMode::Linked] {
                let info = FrameInfo::new()
                    .block_size(block_size)
                    .block_mode(mode)
                    .block_checksums(true)
                    .content_checksum(true)
                    .content_size(Some(300_000));
                let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
                encoder.write_all(&data).unwrap();
                let mut frame = encoder.finish().unwrap();
                assert_eq!(expanded(Codec::Lz4, &frame).unwrap(), data);
                frame[14] ^= 1;
                let mut out = Vec::new();
                decompress(Codec::Lz4, Magic::V0, &frame, &mut out, 300_000).unwrap();
                assert!(out == data, "magic 0 ignores a wrong header checksum of 15 bytes");
            }
        }
        let frame = b"\x04\x22\x4d\x18\x60\x40\x82\x01\0\0\0\0\x02\0\0\x80ab\0\0\0\0";
        assert_eq!(expanded(Codec::Lz4, frame).unwrap(), b"ab");
    }

    #[test]
    fn zstd_without_content_size_is_read_in_place_and_in_steps() {
        use std::io::Write;
        for bytes in [10, 100_000, 5_000_000] {
            let data = vec![7; bytes];
            let mut encoder = zstd::Encoder::new(Vec::new(), 22).unwrap();
            encoder.window_log(ZSTD_WINDOW_LOG_MAX).unwrap();
            encoder.write_all(&data).unwrap();
            let compressed = encoder.finish().unwrap();
            assert!(expanded(Codec::Zstd, &compressed).unwrap() == data);
            let twice = [compressed.clone(), compressed].concat();
            assert_eq!(decompressed_bytes(Codec::Zstd, Magic::V2, &twice, 1 << 24), Ok(2 * bytes));
        }
    }

    #[test]
    fn a_zstd_window_beyond_128_mib_is_refused() {
        use std::io::Write;
        let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
        encoder.window_log(28).unwrap();
        // Too large for the path that needs no window.
        encoder.write_all(&vec![0; 8 << 20]).unwrap();
        let compressed = encoder.finish().unwrap();
        assert!(matches!(expanded(Codec::Zstd, &compressed), Err(FormatError::Invalid(_))));
    }

    /// kafka-behaviours row 18 (`AbstractLegacyRecordBatchTest.testZStdCompressionTypeWithV0OrV1`).
    #[test]
    fn zstd_is_refused_in_legacy_messages() {
        let compressed = compressed(Codec::Zstd, b"data");
        for magic in [Magic::V0, Magic::V1] {
            let result = decompress(Codec::Zstd, magic, &compressed, &mut Vec::new(), 100);
            assert!(matches!(result, Err(FormatError::Invalid(_))));
        }
    }

    #[test]
    fn an_unknown_codec_is_named() {
        let codec = Codec::from_attributes(0x1f);
        assert_eq!(codec, Codec::Unknown(7));
        assert_eq!(expanded(codec, b""), Err(FormatError::invalid("unknown codec 7")));
    }

    proptest! {
        #[test]
        fn any_bytes_are_data_or_an_error(
            bytes: Vec<u8>,
            which in 0..CODECS.len(),
            magic in prop_oneof![Just(Magic::V0), Just(Magic::V1), Just(Magic::V2)],
        ) {
            let mut out = Vec::new();
            let result = decompress(CODECS[which], magic, &bytes, &mut out, 1000);
            prop_assert!(out.len() <= 1000);
            let counted = decompressed_bytes(CODECS[which], magic, &bytes, 1000);
            prop_assert_eq!(counted.ok(), result.ok().map(|()| out.len()));
        }

        #[test]
        fn changed_bytes_never_panic_and_both_functions_agree(
            data in proptest::collection::vec(0..4u8, 0..3000),
            which in 1..CODECS.len(),
            changes in proptest::collection::vec((0..3000usize, any::<u8>()), 1..4),
        ) {
            let mut compressed = compressed(CODECS[which], &data);
            for (at, byte) in changes {
                let at = at % compressed.len();
                compressed[at] = byte;
            }
            let mut out = Vec::new();
            let result = decompress(CODECS[which], Magic::V2, &compressed, &mut out, 5000);
            let counted = decompressed_bytes(CODECS[which], Magic::V2, &compressed, 5000);
            prop_assert_eq!(counted.ok(), result.ok().map(|()| out.len()));
        }
    }
}
