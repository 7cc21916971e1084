//! Format strings of `cat -f`, as kcat 1.7 reads them: verbs behind `%`, and between the verbs
//! escapes behind a backslash.
//!
//! Three things differ from kcat, where it surprises: `\0` is a NUL byte and not the end of the
//! text, `\x` takes two digits at most (so `\x41BC` is `ABC`), and with `-Z` only NULL becomes
//! `NULL`, not what is merely empty.

use crate::format::record::{Headers, Record};
use crate::units::Timestamp;
use crate::view::render::Place;

const VALID_VERBS: &str = "valid are %t topic, %p partition, %o offset, %k key, %K its length, \
                           %s value, %S its length, %R its length as 4 bytes, %T timestamp, \
                           %h headers and %%";
const VALID_ESCAPES: &str = r"valid are \n, \r, \t, \\, \0, \x00 to \xff and \1 to \255";
const NULL: &[u8] = b"NULL";

/// A format string, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    pieces: Vec<Piece>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(Vec<u8>),
    Topic,
    Partition,
    Offset,
    Key,
    KeyLength,
    Value,
    ValueLength,
    ValueLengthBinary,
    Timestamp,
    Headers,
}

impl Template {
    /// The template that `text` spells. The error names what is wrong and what is valid.
    pub fn parse(text: &str) -> Result<Template, String> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((before, from_verb)) = rest.split_once('%') {
            push_text(&mut pieces, before)?;
            let mut behind = from_verb.chars();
            pieces.push(parse_verb(behind.next())?);
            rest = behind.as_str();
        }
        push_text(&mut pieces, rest)?;
        Ok(Template { pieces })
    }

    /// Appends what the template says of `record`. A NULL key or value is nothing, or with
    /// `null_as_text` the word `NULL`.
    pub fn render(&self, place: &Place, record: &Record, null_as_text: bool, out: &mut Vec<u8>) {
        let null = if null_as_text { NULL } else { b"" };
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => out.extend_from_slice(text),
                Piece::Topic => out.extend_from_slice(place.topic.as_bytes()),
                Piece::Partition => put_number(out, place.partition.into()),
                Piece::Offset => put_number(out, record.offset.get()),
                Piece::Key => out.extend_from_slice(record.key.unwrap_or(null)),
                Piece::KeyLength => put_number(out, length(record.key).into()),
                Piece::Value => out.extend_from_slice(record.value.unwrap_or(null)),
                Piece::ValueLength => put_number(out, length(record.value).into()),
                Piece::ValueLengthBinary => out.extend(length(record.value).to_be_bytes()),
                Piece::Timestamp => put_number(out, record.timestamp.map_or(-1, Timestamp::millis)),
                Piece::Headers => put_headers(out, &record.headers),
            }
        }
    }
}

fn parse_verb(letter: Option<char>) -> Result<Piece, String> {
    match letter {
        Some('%') => Ok(Piece::Text(b"%".to_vec())),
        Some('t') => Ok(Piece::Topic),
        Some('p') => Ok(Piece::Partition),
        Some('o') => Ok(Piece::Offset),
        Some('k') => Ok(Piece::Key),
        Some('K') => Ok(Piece::KeyLength),
        Some('s') => Ok(Piece::Value),
        Some('S') => Ok(Piece::ValueLength),
        Some('R') => Ok(Piece::ValueLengthBinary),
        Some('T') => Ok(Piece::Timestamp),
        Some('h') => Ok(Piece::Headers),
        Some(other) => Err(format!("no verb %{other}; {VALID_VERBS}")),
        None => Err(format!("the format ends with a single %; {VALID_VERBS}")),
    }
}

fn push_text(pieces: &mut Vec<Piece>, text: &str) -> Result<(), String> {
    if !text.is_empty() {
        pieces.push(Piece::Text(unescape(text)?));
    }
    Ok(())
}

/// `text` with its escapes replaced. As in kcat a number is decimal, or octal behind a 0; an
/// unknown letter stands for itself, and so does a backslash at the end or before a verb.
fn unescape(text: &str) -> Result<Vec<u8>, String> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, escaped)) = rest.split_once('\\') {
        out.extend_from_slice(before.as_bytes());
        let mut behind = escaped.chars();
        let letter = behind.next().unwrap_or('\\');
        rest = behind.as_str();
        let code = match letter {
            'n' => Some((b'\n', rest)),
            'r' => Some((b'\r', rest)),
            't' => Some((b'\t', rest)),
            'x' => parse_code(rest, 16, 2),
            '0' => parse_code(escaped, 8, 3),
            '1'..='9' => parse_code(escaped, 10, 3),
            other => {
                out.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes());
                continue;
            }
        };
        let Some((byte, behind)) = code else {
            return Err(format!("\\{escaped} does not begin with a byte; {VALID_ESCAPES}"));
        };
        out.push(byte);
        rest = behind;
    }
    out.extend_from_slice(rest.as_bytes());
    Ok(out)
}

/// The byte that the leading digits of `text` spell, and what follows them.
fn parse_code(text: &str, radix: u32, longest: usize) -> Option<(u8, &str)> {
    let digits = text.chars().take(longest).take_while(|letter| letter.is_digit(radix)).count();
    let (digits, rest) = text.split_at_checked(digits)?;
    Some((u8::from_str_radix(digits, radix).ok()?, rest))
}

/// Bytes of a field; -1 for NULL.
fn length(field: Option<&[u8]>) -> i32 {
    // A batch, and so all that is in it, has less than 2^31 bytes.
    field.map_or(-1, |bytes| i32::try_from(bytes.len()).unwrap_or(i32::MAX))
}

fn put_number(out: &mut Vec<u8>, number: i64) {
    out.extend_from_slice(number.to_string().as_bytes());
}

/// `name=value` with commas between; a NULL value is always the word.
fn put_headers(out: &mut Vec<u8>, headers: &Headers) {
    for (place, (name, value)) in headers.iter().enumerate() {
        if place > 0 {
            out.push(b',');
        }
        out.extend_from_slice(name);
        out.push(b'=');
        out.extend_from_slice(value.unwrap_or(NULL));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::view::render::sample::{Sample, any_sample};

    fn rendered(text: &str, sample: &Sample, null_as_text: bool) -> Vec<u8> {
        let template = Template::parse(text).unwrap();
        let mut out = Vec::new();
        sample.with(|place, _, record| template.render(place, record, null_as_text, &mut out));
        out
    }

    fn said(text: &str, sample: &Sample) -> String {
        String::from_utf8(rendered(text, sample, false)).unwrap()
    }

    fn without_verbs(text: &str) -> Vec<u8> {
        rendered(text, &Sample::new(None, None), false)
    }

    fn with_headers(mut sample: Sample, headers: &[(&str, Option<&str>)]) -> Sample {
        let bytes = |text: &str| text.as_bytes().to_vec();
        sample.headers = headers.iter().map(|(n, v)| (bytes(n), v.map(bytes))).collect();
        sample
    }

    /// Contract 7.3 (`test_format_verbs`).
    #[test]
    fn every_verb_and_escape() {
        let text = r"%t|%p|%o|%k|%K|%s|%S|%T|%h|%%|\t\x41\0\n";
        let first = Sample::new(Some(b"k1"), Some(b"abc"));
        let first = with_headers(first, &[("h", Some("1")), ("n", None)]);
        assert_eq!(said(text, &first), "t|7|0|k1|2|abc|3|1700000000000|h=1,n=NULL|%|\tA\0\n");
        let mut second = Sample::new(None, None);
        (second.offset, second.timestamp) = (1, 1_700_000_000_001);
        assert_eq!(said(text, &second), "t|7|1||-1||-1|1700000000001||%|\tA\0\n");
    }

    #[test]
    fn lengths_are_shown_in_binary_too() {
        assert_eq!(rendered("%R%s", &Sample::new(None, Some(b"abc")), false), b"\0\0\0\x03abc");
        assert_eq!(rendered("%R", &Sample::new(None, Some(b"")), false), [0; 4]);
        assert_eq!(rendered("%R", &Sample::new(None, None), false), [0xff; 4]);
    }

    #[test]
    fn null_is_a_word_only_when_asked_for_and_empty_never_is() {
        let (null, empty) = (Sample::new(None, None), Sample::new(Some(b""), Some(b"")));
        assert_eq!(rendered("%k,%K,%s,%S", &null, true), b"NULL,-1,NULL,-1");
        assert_eq!(rendered("%k,%K,%s,%S", &null, false), b",-1,,-1");
        assert_eq!(rendered("%k,%K,%s,%S", &empty, true), b",0,,0");
    }

    #[test]
    fn headers_in_their_order_and_binary_as_it_is() {
        let headers = [("b", Some("")), ("a", Some("x,y")), ("b", None)];
        assert_eq!(
            said("[%h]", &with_headers(Sample::new(None, None), &headers)),
            "[b=,a=x,y,b=NULL]"
        );
        let mut binary = Sample::new(Some(b"\xff"), None);
        binary.headers = vec![(b"\xfe".to_vec(), Some(b"\0".to_vec()))];
        assert_eq!(rendered("%k%h", &binary, false), b"\xff\xfe=\0");
    }

    #[test]
    fn no_timestamp_is_minus_one() {
        let mut sample = Sample::new(None, None);
        sample.timestamp = -1;
        assert_eq!(said("%T", &sample), "-1");
    }

    #[test]
    fn escapes() {
        let rows: [(&str, &[u8]); 18] = [
            ("", b""),
            (r"\n\r\t", b"\n\r\t"),
            (r"a\\b", b"a\\b"),
            (r"\\n", b"\\n"),
            (r"\x41", b"A"),
            (r"\x41BC", b"ABC"),
            (r"\x4 ", b"\x04 "),
            (r"\xfF", b"\xff"),
            (r"\0", b"\0"),
            (r"\0abc", b"\0abc"),
            (r"\08", b"\08"),
            (r"\012", b"\n"),
            (r"\10", b"\n"),
            (r"\2550", b"\xff0"),
            (r"\q\'", b"q'"),
            (r"end\", b"end\\"),
            (r"\%%", b"\\%"),
            ("\u{e9}\\\u{e9}", "\u{e9}\u{e9}".as_bytes()),
        ];
        for (text, bytes) in rows {
            assert_eq!(without_verbs(text), bytes, "{text:?}");
        }
    }

    #[test]
    fn what_is_not_valid_is_named_with_what_is() {
        let error = |text| Template::parse(text).unwrap_err();
        assert!(error("%q").contains("%q") && error("%q").contains("%t topic, %p partition"));
        assert!(error("%s %\u{e9}").contains("%\u{e9}"));
        assert!(error("%s%").contains("single %"));
        for text in [r"\x", r"\xg", r"\256", r"\x\u{661}"] {
            assert!(error(text).contains(r"\x00 to \xff"), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_and_no_record_is_too_much(text in ".{0,30}", sample in any_sample()) {
            if Template::parse(&text).is_ok() {
                rendered(&text, &sample, true);
            }
        }

        #[test]
        fn values_come_byte_for_byte(sample in any_sample()) {
            let value = sample.value.clone().unwrap_or_default();
            prop_assert_eq!(rendered("%s", &sample, false), value);
        }
    }
}
