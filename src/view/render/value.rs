//! Lines: the value and a newline. NULL reads as an empty line, keys and headers are not shown, and
//! a value with newlines in it looks like several records. Appended, a line is a value.

use super::NewRecord;
use crate::format::record::Record;

#[inline]
pub(super) fn render(record: &Record, out: &mut Vec<u8>) {
    out.extend_from_slice(record.value.unwrap_or_default());
    out.push(b'\n');
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
            Sample::new(Some(b"key"), value).with(|_, _, record| render(record, &mut out));
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
}
