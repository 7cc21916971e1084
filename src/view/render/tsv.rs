//! TSV: key, tab, value, newline. In both fields tab, newline and backslash are written `\t`, `\n`
//! and `\\`, and the whole field `\N` is NULL, so that every key and value has one spelling.
//! Headers and times are not shown. Appended, a line must have exactly one tab and no other escape.

use std::borrow::Cow;

use super::NewRecord;
use crate::format::record::Record;

pub(super) fn render(record: &Record, out: &mut Vec<u8>) {
    render_field(record.key, out);
    out.push(b'\t');
    render_field(record.value, out);
    out.push(b'\n');
}

pub(super) fn rendered_bytes(record: &Record) -> usize {
    field_bytes(record.key) + field_bytes(record.value) + 2
}

const NULL: &[u8] = b"\\N";

/// The letter that stands for `byte` behind a backslash, where it needs one.
const fn escape(byte: u8) -> Option<u8> {
    match byte {
        b'\t' => Some(b't'),
        b'\n' => Some(b'n'),
        b'\\' => Some(b'\\'),
        _ => None,
    }
}

fn render_field(field: Option<&[u8]>, out: &mut Vec<u8>) {
    let Some(mut rest) = field else { return out.extend_from_slice(NULL) };
    while let Some((at, letter)) =
        rest.iter().enumerate().find_map(|(at, &byte)| Some((at, escape(byte)?)))
    {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(&[b'\\', letter]);
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
}

fn field_bytes(field: Option<&[u8]>) -> usize {
    field.map_or(NULL.len(), |bytes| {
        bytes.len() + bytes.iter().filter(|&&byte| escape(byte).is_some()).count()
    })
}

/// A record of escapes only; key and value take a byte each for their lengths.
pub(super) const fn longest_text(record_bytes: usize) -> usize {
    record_bytes.saturating_mul(2)
}

pub(super) fn parse(text: &[u8]) -> Result<NewRecord<'_>, String> {
    let mut tabs = memchr::memchr_iter(b'\t', text);
    let Some(tab) = tabs.next() else {
        return Err("no tab between key and value".to_owned());
    };
    if let Some(second) = tabs.next() {
        return Err(format!("a second tab at byte {second}, which should be written \\t"));
    }
    let (key, value) = text.split_at(tab);
    Ok(NewRecord {
        key: parse_field(key).map_err(|reason| format!("key: {reason}"))?,
        value: parse_field(&value[1..]).map_err(|reason| format!("value: {reason}"))?,
        ..NewRecord::default()
    })
}

fn parse_field(text: &[u8]) -> Result<Option<Cow<'_, [u8]>>, String> {
    if text == NULL {
        return Ok(None);
    }
    let mut escapes = memchr::memchr_iter(b'\\', text).peekable();
    if escapes.peek().is_none() {
        return Ok(Some(Cow::Borrowed(text)));
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = 0;
    while let Some(at) = escapes.next() {
        bytes.extend_from_slice(&text[rest..at]);
        bytes.push(unescape(text.get(at + 1).copied(), at)?);
        rest = at + 2;
        // The second backslash of a pair begins no escape.
        escapes.next_if_eq(&(at + 1));
    }
    bytes.extend_from_slice(&text[rest..]);
    Ok(Some(Cow::Owned(bytes)))
}

/// The byte that `letter` stands for behind the backslash at byte `at` of the field.
fn unescape(letter: Option<u8>, at: usize) -> Result<u8, String> {
    match letter {
        Some(b't') => Ok(b'\t'),
        Some(b'n') => Ok(b'\n'),
        Some(b'\\') => Ok(b'\\'),
        Some(b'N') => Err(format!("\\N at byte {at}, but NULL must be the whole field")),
        Some(other) => Err(format!(
            "no escape is \\{} at byte {at}; there are \\t, \\n, \\\\ and \\N",
            other.escape_ascii()
        )),
        None => Err(format!("a lone backslash at byte {at}, the end")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::Sample;
    use super::*;

    type Field<'a> = Option<&'a [u8]>;

    fn lines(records: &[(Field, Field)]) -> Vec<u8> {
        let mut out = Vec::new();
        for (key, value) in records {
            Sample::new(*key, *value).with(|_, _, record| render(record, &mut out));
        }
        out
    }

    /// Contract 3 (`test_tsv`).
    #[test]
    fn tab_newline_and_backslash_are_escaped_and_null_is_told_from_its_spelling() {
        let said = lines(&[
            (Some(b"k"), Some(b"a")),
            (None, Some(b"x\ty")),
            (Some(b""), None),
            (Some(b"\\N"), Some(b"l1\nl2")),
        ]);
        assert_eq!(said, b"k\ta\n\\N\tx\\ty\n\t\\N\n\\\\N\tl1\\nl2\n");
    }

    #[test]
    fn every_other_byte_stands_for_itself() {
        let others: Vec<u8> = (0..=255).filter(|byte| !b"\t\n\\".contains(byte)).collect();
        let said = lines(&[(Some(&others), Some(&others))]);
        assert_eq!(said, [&others[..], b"\t", &others, b"\n"].concat());
    }

    #[test]
    fn escapes_side_by_side_and_at_the_ends() {
        assert_eq!(lines(&[(Some(b"\t\t"), Some(b"\\a\n"))]), b"\\t\\t\t\\\\a\\n\n");
    }

    /// Contract 3 (`test_round_trip_tsv`).
    #[test]
    fn fields_are_unescaped_and_without_escapes_borrowed() {
        let rows: [(&[u8], Field, Field); 7] = [
            (b"k\tv", Some(b"k"), Some(b"v")),
            (b"\t", Some(b""), Some(b"")),
            (b"\\N\t\\N", None, None),
            (b"\\\\N\t\\\\\\\\", Some(b"\\N"), Some(b"\\\\")),
            (b"a\\tb\\n\tc\\\\t", Some(b"a\tb\n"), Some(b"c\\t")),
            (b"\xff\t\0\r", Some(b"\xff"), Some(b"\0\r")),
            (b"N\t\\\\\\t", Some(b"N"), Some(b"\\\t")),
        ];
        for (text, key, value) in rows {
            let record = parse(text).unwrap();
            assert_eq!((record.key.as_deref(), record.value.as_deref()), (key, value));
        }
        let borrowed = parse(b"k\tv").unwrap();
        assert!(matches!(borrowed.key, Some(Cow::Borrowed(_))));
        assert!(matches!(borrowed.value, Some(Cow::Borrowed(_))));
    }

    /// Contract 3.3.
    #[test]
    fn a_line_without_exactly_one_tab_or_with_another_escape_is_refused() {
        for (text, reason) in [
            (&b""[..], "no tab between key and value"),
            (b"no tab", "no tab between key and value"),
            (b"no\\ttab", "no tab between key and value"),
            (b"k\ttwo\ttabs", "a second tab at byte 5, which should be written \\t"),
            (b"k\tbad \\x", "value: no escape is \\x at byte 4; there are \\t, \\n, \\\\ and \\N"),
            (b"\\\xff\tv", "key: no escape is \\\\xff at byte 0; there are \\t, \\n, \\\\ and \\N"),
            (b"k\\\tv", "key: a lone backslash at byte 1, the end"),
            (b"k\t\\\\\\", "value: a lone backslash at byte 2, the end"),
            (b"k\tx\\N", "value: \\N at byte 1, but NULL must be the whole field"),
            (b"\\Nx\tv", "key: \\N at byte 0, but NULL must be the whole field"),
        ] {
            assert_eq!(parse(text), Err(reason.to_owned()));
        }
    }
}
