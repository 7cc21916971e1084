//! Bytes as the text that Java makes of them: UTF-8, with U+FFFD for what is none.

const REPLACEMENT: &[u8] = "\u{fffd}".as_bytes();

/// Appends `bytes` as `new String(bytes, UTF_8)` reads them. Java differs from the lossy decoding
/// of std in one place: a surrogate in three bytes, or the first two of them, is one replacement.
#[inline]
pub fn push_java_text(bytes: &[u8], out: &mut Vec<u8>) {
    match str::from_utf8(bytes) {
        Ok(_) => out.extend_from_slice(bytes),
        Err(_) => push_broken(bytes, out),
    }
}

/// The same as a value of its own.
pub fn java_text(bytes: &[u8]) -> String {
    let mut out = Vec::with_capacity(bytes.len());
    push_java_text(bytes, &mut out);
    String::from_utf8(out).expect("invalid bytes were replaced")
}

#[cold]
fn push_broken(mut rest: &[u8], out: &mut Vec<u8>) {
    while let Err(error) = str::from_utf8(rest) {
        let (valid, broken) = rest.split_at(error.valid_up_to());
        out.extend_from_slice(valid);
        out.extend_from_slice(REPLACEMENT);
        let bytes = match broken {
            [0xed, 0xa0..=0xbf, 0x80..=0xbf, ..] => 3,
            [0xed, 0xa0..=0xbf, ..] => 2,
            _ => error.error_len().unwrap_or(broken.len()),
        };
        rest = broken.get(bytes..).unwrap_or_default();
    }
    out.extend_from_slice(rest);
}

#[cfg(test)]
mod tests {
    use super::java_text;
    use proptest::prelude::*;

    /// The right sides were printed by Java 17.
    #[test]
    fn invalid_bytes_are_replaced_as_java_does_it() {
        for (bytes, text) in [
            (&b"plain"[..], "plain"),
            (b"\xc3\xa9\xff.", "\u{e9}\u{fffd}."),
            (b"\xed\xa0\x80.", "\u{fffd}."),
            (b"\xed\xa0A", "\u{fffd}A"),
            (b"\xed\xbf", "\u{fffd}"),
            (b"\xe0\x80\x80", "\u{fffd}\u{fffd}\u{fffd}"),
            (b"\xe1\x80A", "\u{fffd}A"),
            (b"\xf0\x90\x80", "\u{fffd}"),
            (b"\xf5\x80", "\u{fffd}\u{fffd}"),
        ] {
            assert_eq!(java_text(bytes), text, "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_become_text(bytes: Vec<u8>) {
            let text = java_text(&bytes);
            prop_assert_eq!(str::from_utf8(&bytes).is_ok(), text.as_bytes() == bytes.as_slice());
        }
    }
}
