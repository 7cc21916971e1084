//! Lines and NUL: the value and a newline, or a NUL byte. NULL reads as an empty value, keys and
//! headers are not shown. A value with newlines in it looks like several lines; with NUL bytes
//! between them newlines are data, as `xargs -0` and `sort -z` want it. Appended, what stands
//! before a delimiter is a value.

use super::NewRecord;
use crate::format::record::Record;

#[inline]
pub(super) fn render(record: &Record, delimiter: u8, out: &mut Vec<u8>) {
    out.extend_from_slice(record.value.unwrap_or_default());
    out.push(delimiter);
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

    /// Contract 3 (`test_tsv` has the same four records).
    #[test]
    fn each_value_is_followed_by_a_newline() {
        let mut out = Vec::new();
        for value in
            [Some(&b"a"[..]), Some(b"x\ty"), None, Some(b"l1\nl2"), Some(b""), Some(b"\xff")]
        {
            Sample::new(Some(b"key"), value).with(|_, _, record| render(record, b'\n', &mut out));
        }
        assert_eq!(out, b"a\nx\ty\n\nl1\nl2\n\n\xff\n");
    }

    /// Contract 4.1: a line is a value to the last byte, and an empty line is an empty one.
    #[test]
    fn a_line_is_a_value() {
        for text in [&b""[..], b"a", b"a\r", b"\\n", b"\0\xff\t"] {
            assert_eq!(parse(text).value.as_deref(), Some(text));
            assert_eq!((parse(text).key, parse(text).timestamp), (None, None));
        }
    }

    /// Contract 3.1 (`test_round_trip_nul`).
    #[test]
    fn each_value_is_followed_by_a_nul_byte() {
        let mut out = Vec::new();
        for value in [Some(&b"a\nb"[..]), Some(b"\n"), Some(b""), None, Some(b"c\n")] {
            Sample::new(None, value).with(|_, _, record| render(record, 0, &mut out));
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
