//! TSV: key, tab, value, newline. In both fields tab, newline and backslash are written `\t`, `\n`
//! and `\\`, and the whole field `\N` is NULL, so that every key and value has one spelling.
//! Headers and times are not shown.

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
}
