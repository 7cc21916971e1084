//! The on-disk format: bytes to values. No files, no clock, no threads, no logging; every parser takes
//! a slice and may be fed anything.

pub mod batch;
pub mod checkpoint;
pub mod codec;
pub mod index;
pub mod legacy;
pub mod name;
pub mod record;
pub mod snapshot;
pub mod varint;

/// Why bytes are not what the format says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// The bytes end before the structure does.
    #[error("{what} needs {needs} bytes, {has} are there")]
    Short {
        /// Which structure.
        what: &'static str,
        /// Bytes it needs.
        needs: usize,
        /// Bytes there are.
        has: usize,
    },
    /// A field holds what it cannot hold.
    #[error("{0}")]
    Invalid(String),
    /// Compressed bytes expand beyond the bound that the caller gave.
    #[error("expands to more than {limit} bytes")]
    TooLarge {
        /// The bound.
        limit: usize,
    },
}

impl FormatError {
    pub(crate) fn invalid(reason: impl Into<String>) -> FormatError {
        FormatError::Invalid(reason.into())
    }
}

/// The big-endian number at byte `at` of `data`.
macro_rules! big_endian_field {
    ($name:ident, $number:ty) => {
        #[inline]
        pub(crate) fn $name(data: &[u8], at: usize) -> Result<$number, FormatError> {
            data.get(at..)
                .and_then(|rest| rest.first_chunk())
                .map(|bytes| <$number>::from_be_bytes(*bytes))
                .ok_or(FormatError::Short {
                    what: stringify!($number),
                    needs: at + size_of::<$number>(),
                    has: data.len(),
                })
        }
    };
}
big_endian_field!(field_i16, i16);
big_endian_field!(field_i32, i32);
big_endian_field!(field_i64, i64);

#[cfg(test)]
mod tests {
    /// The bytes that `digits` name, two hexadecimal digits each.
    pub(super) fn hex(digits: &str) -> Vec<u8> {
        let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
        (0..digits.len()).step_by(2).map(byte).collect()
    }
}
