//! What the tree shows: names to offsets and times, records to bytes. Pure mappings without files,
//! inodes or a clock.
//!
//! # The grammar of names
//!
//! ```text
//! by-offset entry = offset [ ".json" / ".key" ]                     one record
//!                 / [ offset ] ".." [ offset ] [ format ]           a range, one end at least
//!                 / "-" count ".." [ format ]                       the last records, one at least
//! by-time entry   = time [ ".json" / ".key" ]
//!                 / [ time ] ".." [ time ] [ format ]
//! format          = ".nul" / ".tsv" / ".jsonl" / ".raw"             lines when there is none
//! offset, count   = a number (see below)
//! time            = a number                                        Unix milliseconds
//!                 / a number "s"                                    Unix seconds
//!                 / date [ "T" hour [ ":" minute [ ":" second [ "." digits ] ] ] [ zone ] ]
//! zone            = "Z" / ( "+" / "-" ) hour ":" minute             UTC when there is none
//! ```
//!
//! A number is decimal, from 0 to 2^63-1, in its only spelling: no sign, no leading zero, no space.
//! `A..B` is half-open and needs A <= B. The first `..` divides, so `680...jsonl` is `680..` in
//! `.jsonl`; no format consists of digits, so a fraction of a second is never taken for one.
//! Anything else is no name. A name says nothing of whether there is such a record.

pub mod append;
pub mod config;
pub mod listing;
pub mod name;
pub mod range;
pub mod record;
pub mod render;
pub mod report;
pub mod time;

/// The number that `text` spells, where it does so in the only valid way.
pub fn parse_number(text: &[u8]) -> Option<i64> {
    match text {
        [b'0', _, ..] => None,
        [_, ..] if text.iter().all(u8::is_ascii_digit) => str::from_utf8(text).ok()?.parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Contract 2.4: an offset has one spelling.
    #[test]
    fn a_number_has_one_spelling() {
        assert_eq!(parse_number(b"0"), Some(0));
        assert_eq!(parse_number(b"680"), Some(680));
        assert_eq!(parse_number(b"9223372036854775807"), Some(i64::MAX));
        for text in [
            "",
            "00",
            "0680",
            "+680",
            "-680",
            "0x2a8",
            "680 ",
            " 680",
            "6_80",
            "1e3",
            "680.0",
            "\u{0661}",
            "9223372036854775808",
            "99999999999999999999",
            "680\n",
            "680\0",
        ] {
            assert_eq!(parse_number(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(parse_number(b"\xff"), None);
    }
}
