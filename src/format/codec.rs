//! The five codecs of record batches: one enum, and decompression whose output is bounded.

use super::FormatError;
use super::batch::Magic;

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
}

/// Appends what `data` expands to, to `out`, which grows by at most `limit` bytes; more than that is
/// `FormatError::TooLarge`. `magic` matters to lz4 only (format page, "lz4 in magic 0").
pub fn decompress(
    codec: Codec,
    magic: Magic,
    data: &[u8],
    out: &mut Vec<u8>,
    limit: usize,
) -> Result<(), FormatError> {
    let _ = (codec, magic, data, out, limit);
    todo!()
}

/// How many bytes `data` expands to, found by expanding it into a small scratch buffer; more than
/// `limit` is `FormatError::TooLarge`.
pub fn decompressed_bytes(
    codec: Codec,
    magic: Magic,
    data: &[u8],
    limit: usize,
) -> Result<usize, FormatError> {
    let _ = (codec, magic, data, limit);
    todo!()
}
