//! NUL: the value and a NUL byte, so that newlines are data, as `xargs -0` and `sort -z` want it.
//! NULL reads as an empty value, keys and headers are not shown. Appended, what stands before a NUL
//! byte is a value.

use super::NewRecord;
use crate::format::record::Record;

#[inline]
pub(super) fn render(record: &Record, out: &mut Vec<u8>) {
    out.extend_from_slice(record.value.unwrap_or_default());
    out.push(0);
}

#[inline]
pub(super) fn rendered_bytes(record: &Record) -> usize {
    record.value.unwrap_or_default().len() + 1
}

#[inline]
pub(super) fn parse(text: &[u8]) -> NewRecord<'_> {
    NewRecord::of_value(text)
}

#[cfg(test)]
mod tests {
    use super::super::sample::Sample;
    use super::*;

    /// Contract 3.1 (`test_round_trip_nul`).
    #[test]
    fn each_value_is_followed_by_a_nul_byte() {
        let mut out = Vec::new();
        for value in [Some(&b"a\nb"[..]), Some(b"\n"), Some(b""), None, Some(b"c\n")] {
            Sample::new(None, value).with(|_, _, record| render(record, &mut out));
        }
        assert_eq!(out, b"a\nb\0\n\0\0\0c\n\0");
    }

    #[test]
    fn newlines_are_part_of_the_value() {
        for text in [&b""[..], b"\n", b"a\nb\n"] {
            assert_eq!(parse(text).value.as_deref(), Some(text));
        }
    }
}
