//! JSON as the Jackson library prints it, with which Kafka's dump tool shows decoded records.

use std::io;

use serde::Serialize;
use serde_json::Value;
use serde_json::ser::{CharEscape, Formatter, Serializer};

/// Appends `value`, without any space.
pub fn push_json(value: &Value, out: &mut Vec<u8>) {
    let written = value.serialize(&mut Serializer::with_formatter(out, Jackson));
    written.expect("a Vec takes everything, and the keys are text");
}

/// A number with a fraction; those that JSON has no number for are text.
pub fn float(number: f64) -> Value {
    match serde_json::Number::from_f64(number) {
        Some(number) => Value::Number(number),
        None if number.is_nan() => "NaN".into(),
        None if number > 0.0 => "Infinity".into(),
        None => "-Infinity".into(),
    }
}

/// What differs from the compact form of `serde_json`: capital digits in escapes, and numbers with
/// a fraction.
struct Jackson;

impl Formatter for Jackson {
    fn write_f64<W: io::Write + ?Sized>(&mut self, out: &mut W, number: f64) -> io::Result<()> {
        out.write_all(java_double(number).as_bytes())
    }

    fn write_char_escape<W: io::Write + ?Sized>(
        &mut self,
        out: &mut W,
        escape: CharEscape,
    ) -> io::Result<()> {
        match escape {
            CharEscape::Quote => out.write_all(b"\\\""),
            CharEscape::ReverseSolidus => out.write_all(b"\\\\"),
            CharEscape::Solidus => out.write_all(b"\\/"),
            CharEscape::Backspace => out.write_all(b"\\b"),
            CharEscape::FormFeed => out.write_all(b"\\f"),
            CharEscape::LineFeed => out.write_all(b"\\n"),
            CharEscape::CarriageReturn => out.write_all(b"\\r"),
            CharEscape::Tab => out.write_all(b"\\t"),
            CharEscape::AsciiControl(byte) => write!(out, "\\u{byte:04X}"),
        }
    }
}

/// A finite number as `Double.toString` shows it: plain from 10^-3 up to 10^7, with an exponent
/// outside, and always with a fraction.
fn java_double(number: f64) -> String {
    let size = number.abs();
    if size == 0.0 || (1e-3..1e7).contains(&size) {
        return format!("{number:?}");
    }
    let text = format!("{number:e}");
    match text.split_once('e') {
        Some((digits, exponent)) if !digits.contains('.') => format!("{digits}.0E{exponent}"),
        Some((digits, exponent)) => format!("{digits}E{exponent}"),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn printed(value: &Value) -> String {
        let mut out = Vec::new();
        push_json(value, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn text_is_escaped_as_jackson_does_it() {
        let value = json!({ "a": "\"\\/\u{8}\u{c}\n\r\t\u{1b}\u{0}\u{7f}\u{e9}" });
        let meant = "{\"a\":\"\\\"\\\\/\\b\\f\\n\\r\\t\\u001B\\u0000\u{7f}\u{e9}\"}";
        assert_eq!(printed(&value), meant);
    }

    /// The right sides were printed by Java 17.
    #[test]
    fn fractions_are_shown_as_java_does_it() {
        for (number, text) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (0.001, "0.001"),
            (0.000_999, "9.99E-4"),
            (1_048_576.0, "1048576.0"),
            (1e7, "1.0E7"),
            (12_345_678.5, "1.23456785E7"),
            (-1e-10, "-1.0E-10"),
            (f64::MAX, "1.7976931348623157E308"),
        ] {
            assert_eq!(printed(&float(number)), text);
        }
        assert_eq!(printed(&float(f64::NAN)), "\"NaN\"");
        assert_eq!(printed(&float(f64::NEG_INFINITY)), "\"-Infinity\"");
    }
}
