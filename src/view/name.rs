//! Names in `by-offset` and `by-time`, taken apart by the grammar of [`crate::view`]. A parsed name
//! is well-formed by type; whether records answer to it is for others to say.

use super::{parse_number, time};
use crate::units::{Offset, Timestamp};

/// How a range shows its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// Each value and a newline.
    Lines,
    /// Each value and a NUL byte.
    Nul,
    /// Key, tab, value and a newline, with escapes.
    Tsv,
    /// One JSON object and a newline.
    Jsonl,
    /// Whole batches as they are stored.
    Raw,
}

impl Format {
    /// All formats.
    pub const ALL: [Format; 5] =
        [Format::Lines, Format::Nul, Format::Tsv, Format::Jsonl, Format::Raw];

    /// What a name of this format ends with; nothing for lines.
    pub const fn suffix(self) -> &'static str {
        match self {
            Format::Lines => "",
            Format::Nul => ".nul",
            Format::Tsv => ".tsv",
            Format::Jsonl => ".jsonl",
            Format::Raw => ".raw",
        }
    }
}

/// What is shown of one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// The value, byte for byte.
    Value,
    /// All of it, as a JSON envelope and a newline.
    Json,
    /// The key, byte for byte.
    Key,
}

impl Part {
    /// All parts.
    pub const ALL: [Part; 3] = [Part::Value, Part::Json, Part::Key];

    /// What a name of this part ends with; nothing for the value.
    pub const fn suffix(self) -> &'static str {
        match self {
            Part::Value => "",
            Part::Json => ".json",
            Part::Key => ".key",
        }
    }
}

/// A well-formed name in `by-offset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OffsetName {
    /// `680`, `680.json`, `680.key`.
    Record(Offset, Part),
    /// `680..700`, `680..`, `..700`, in any format.
    Range {
        /// First offset; `None` is the start of the log.
        start: Option<Offset>,
        /// Offset after the last; `None` is the end of the log. Not below `start`.
        end: Option<Offset>,
        /// How the records are shown.
        format: Format,
    },
    /// `-5..`, in any format: so many records at the end of the log, at least one.
    Last(u64, Format),
}

/// A well-formed name in `by-time`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TimeName {
    /// The first record at or after a time.
    Record(Timestamp, Part),
    /// From the first record at or after `start` up to, not including, the first at or after `end`.
    Range {
        /// Time that leads to the first record; `None` is the start of the log.
        start: Option<Timestamp>,
        /// Time that leads behind the last record; `None` is the end of the log. Not below
        /// `start`.
        end: Option<Timestamp>,
        /// How the records are shown.
        format: Format,
    },
}

/// What `name` means in `by-offset`; `None` when it is not well-formed.
pub fn parse_offset_name(name: &[u8]) -> Option<OffsetName> {
    let Some((first, rest)) = split_at_dots(name) else {
        let (offset, part) = split_part(name);
        return Some(OffsetName::Record(parse_offset(offset)?, part));
    };
    let (last, format) = split_format(rest);
    if let (Some(count), b"") = (first.strip_prefix(b"-"), last) {
        let count = u64::try_from(parse_number(count)?).ok()?;
        return (count > 0).then_some(OffsetName::Last(count, format));
    }
    let (start, end) = parse_ends(first, last, parse_offset)?;
    Some(OffsetName::Range { start, end, format })
}

/// What `name` means in `by-time`; `None` when it is not well-formed.
pub fn parse_time_name(name: &[u8]) -> Option<TimeName> {
    let Some((first, rest)) = split_at_dots(name) else {
        let (time, part) = split_part(name);
        return Some(TimeName::Record(time::parse_time(time)?, part));
    };
    let (last, format) = split_format(rest);
    let (start, end) = parse_ends(first, last, time::parse_time)?;
    Some(TimeName::Range { start, end, format })
}

/// The offset that `text` spells.
pub fn parse_offset(text: &[u8]) -> Option<Offset> {
    parse_number(text).and_then(Offset::new)
}

/// What stands before and behind the first `..`.
fn split_at_dots(name: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = name.windows(2).position(|pair| pair == b"..")?;
    Some((&name[..at], &name[at + 2..]))
}

fn split_part(name: &[u8]) -> (&[u8], Part) {
    for part in [Part::Json, Part::Key] {
        if let Some(stem) = name.strip_suffix(part.suffix().as_bytes()) {
            return (stem, part);
        }
    }
    (name, Part::Value)
}

fn split_format(name: &[u8]) -> (&[u8], Format) {
    for format in [Format::Nul, Format::Tsv, Format::Jsonl, Format::Raw] {
        if let Some(stem) = name.strip_suffix(format.suffix().as_bytes()) {
            return (stem, format);
        }
    }
    (name, Format::Lines)
}

/// Both ends of a range, of which one may be left out.
fn parse_ends<T: Ord + Copy>(
    first: &[u8],
    last: &[u8],
    parse: fn(&[u8]) -> Option<T>,
) -> Option<(Option<T>, Option<T>)> {
    match (first, last) {
        (b"", b"") => None,
        (first, b"") => Some((Some(parse(first)?), None)),
        (b"", last) => Some((None, Some(parse(last)?))),
        (first, last) => {
            let (start, end) = (parse(first)?, parse(last)?);
            (start <= end).then_some((Some(start), Some(end)))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// 2023-11-14T22:13:20Z.
    const T0: i64 = 1_700_000_000_000;

    fn offset(raw: i64) -> Offset {
        Offset::new(raw).unwrap()
    }

    fn offsets(start: Option<i64>, end: Option<i64>, format: Format) -> OffsetName {
        OffsetName::Range { start: start.map(offset), end: end.map(offset), format }
    }

    fn times(start: Option<i64>, end: Option<i64>, format: Format) -> TimeName {
        let time = Timestamp::from_millis;
        TimeName::Range { start: start.map(time), end: end.map(time), format }
    }

    fn offset_record(raw: i64, part: Part) -> OffsetName {
        OffsetName::Record(offset(raw), part)
    }

    fn time_record(millis: i64, part: Part) -> TimeName {
        TimeName::Record(Timestamp::from_millis(millis), part)
    }

    /// Contract 2, the tree.
    #[test]
    fn names_of_the_tree() {
        for (name, meaning) in [
            ("680", offset_record(680, Part::Value)),
            ("680.json", offset_record(680, Part::Json)),
            ("680.key", offset_record(680, Part::Key)),
            ("0", offset_record(0, Part::Value)),
            ("9223372036854775807", offset_record(i64::MAX, Part::Value)),
            ("680..700", offsets(Some(680), Some(700), Format::Lines)),
            ("680..", offsets(Some(680), None, Format::Lines)),
            ("..700", offsets(None, Some(700), Format::Lines)),
            ("..0", offsets(None, Some(0), Format::Lines)),
            ("5..5", offsets(Some(5), Some(5), Format::Lines)),
            ("0..9223372036854775807", offsets(Some(0), Some(i64::MAX), Format::Lines)),
            ("680..700.jsonl", offsets(Some(680), Some(700), Format::Jsonl)),
            ("680...jsonl", offsets(Some(680), None, Format::Jsonl)),
            ("1..2.raw", offsets(Some(1), Some(2), Format::Raw)),
            ("0...tsv", offsets(Some(0), None, Format::Tsv)),
            ("..700.nul", offsets(None, Some(700), Format::Nul)),
            ("-5..", OffsetName::Last(5, Format::Lines)),
            ("-1000...jsonl", OffsetName::Last(1000, Format::Jsonl)),
            ("-5...raw", OffsetName::Last(5, Format::Raw)),
            ("-9223372036854775807..", OffsetName::Last(9_223_372_036_854_775_807, Format::Lines)),
        ] {
            assert_eq!(parse_offset_name(name.as_bytes()), Some(meaning), "{name}");
        }
    }

    /// Contract 2.4, 2.6.
    #[test]
    fn names_that_are_not_well_formed() {
        let names = "\
            |.|..|...|....|...jsonl|...raw|-|-..|-5|-5.json|-0..|-05..|--5..|-5..10|-5..-3|\
            5..-3|-9223372036854775808..|+5..|30..20|a..b|5..x|x..5|5...6|5....6|5..6..7|\
            5..6.xml|5.txt|5.|.5|x|5.nul|5.tsv|5.jsonl|5.raw|5..6.json|5..6.key|5...json|\
            5...key|5..6.|5...|5..6.jsonl.raw|5.json.json|5.json.key|5.JSON|5..6.RAW|0680|\
            +680|0x2a8|680 | 680|05..6|5..06|5..6 |5 ..6|5.. 6|9223372036854775808|\
            0..9223372036854775808|9223372036854775808..|..9223372036854775808|.json|.key|\
            .jsonl|5/..6|5..6\0|2023-11-14|5s";
        for name in names.split('|') {
            assert_eq!(parse_offset_name(name.as_bytes()), None, "{name:?}");
        }
        assert_eq!(parse_offset_name(b"\xff..\xfe"), None);
    }

    #[test]
    fn names_of_by_time() {
        for (name, meaning) in [
            ("2026-11-29T10:00:00.000Z", time_record(1_795_946_400_000, Part::Value)),
            ("1700000005000.json", time_record(T0 + 5000, Part::Json)),
            ("2023-11-14T22:13:24.5.json", time_record(T0 + 4500, Part::Json)),
            ("2023-11-14T22:13:24.5.key", time_record(T0 + 4500, Part::Key)),
            ("2023-11-14.key", time_record(T0 - 80_000_000, Part::Key)),
            ("1700000005s", time_record(T0 + 5000, Part::Value)),
            ("1764410400000..", times(Some(1_764_410_400_000), None, Format::Lines)),
            ("..1700000001001", times(None, Some(T0 + 1001), Format::Lines)),
            ("1700000000000..1700000000000", times(Some(T0), Some(T0), Format::Lines)),
            (
                "2023-11-14T22:13:25Z..2023-11-14T22:13:28Z",
                times(Some(T0 + 5000), Some(T0 + 8000), Format::Lines),
            ),
            (
                "2023-11-14T22:13:20Z..2023-11-14T22:13:22.001Z.tsv",
                times(Some(T0), Some(T0 + 2001), Format::Tsv),
            ),
            (
                "2023-11-14T22:13:24.5..2023-11-14T22:13:24.75.raw",
                times(Some(T0 + 4500), Some(T0 + 4750), Format::Raw),
            ),
            (
                "1700000005000..2023-11-14T22:13:26Z",
                times(Some(T0 + 5000), Some(T0 + 6000), Format::Lines),
            ),
            ("2023-11-14T22:13:24.5..", times(Some(T0 + 4500), None, Format::Lines)),
            ("2023-11-14T22:13:24.5...nul", times(Some(T0 + 4500), None, Format::Nul)),
            ("1700000097001...jsonl", times(Some(T0 + 97_001), None, Format::Jsonl)),
            ("..1700000002000.nul", times(None, Some(T0 + 2000), Format::Nul)),
        ] {
            assert_eq!(parse_time_name(name.as_bytes()), Some(meaning), "{name}");
        }
    }

    #[test]
    fn names_that_are_no_times() {
        let names = "\
            |..|...jsonl|-5..|-5...jsonl|yesterday|yesterday..|..now|5..x|\
            1700000000009..1700000000000|9223372036854775808..|1700000005000.tsv|\
            1700000005000.jsonl|1700000000000..1700000005000.json|1700000005000...key|\
            2023-11-14T22:13:24...|2023-11-14T22:13:24.|2023-11-14T22:13:24..5|\
            2023-11-14T22:13:24...5|2023-11-31..|2023-11-15..2023-11-14| 5..|5..6..7";
        for name in names.split('|') {
            assert_eq!(parse_time_name(name.as_bytes()), None, "{name:?}");
        }
    }

    fn any_format() -> impl Strategy<Value = Format> {
        (0..Format::ALL.len()).prop_map(|at| Format::ALL[at])
    }

    fn any_part() -> impl Strategy<Value = Part> {
        (0..Part::ALL.len()).prop_map(|at| Part::ALL[at])
    }

    proptest! {
        #[test]
        fn a_listed_offset_parses_back(raw in 0..=i64::MAX, part in any_part()) {
            let name = format!("{}{}", offset(raw), part.suffix());
            prop_assert_eq!(parse_offset_name(name.as_bytes()), Some(offset_record(raw, part)));
        }

        #[test]
        fn a_listed_time_parses_back(millis in any::<i64>(), part in any_part()) {
            if let Some(listed) = time::format_time(Timestamp::from_millis(millis)) {
                let name = format!("{listed}{}", part.suffix());
                prop_assert_eq!(parse_time_name(name.as_bytes()), Some(time_record(millis, part)));
            }
        }

        #[test]
        fn ranges_parse_back(a in 0..=i64::MAX, b in 0..=i64::MAX, format in any_format()) {
            let (a, b, suffix) = (a.min(b), a.max(b), format.suffix());
            let parsed = |name: String| parse_offset_name(name.as_bytes());
            let meant = |start, end| Some(offsets(start, end, format));
            prop_assert_eq!(parsed(format!("{a}..{b}{suffix}")), meant(Some(a), Some(b)));
            prop_assert_eq!(parsed(format!("{a}..{suffix}")), meant(Some(a), None));
            prop_assert_eq!(parsed(format!("..{b}{suffix}")), meant(None, Some(b)));
            let listed = |millis| time::format_time(Timestamp::from_millis(millis)).unwrap();
            let name = format!("{}..{}{suffix}", listed(a), listed(b));
            let meant = Some(times(Some(a), Some(b), format));
            prop_assert_eq!(parse_time_name(name.as_bytes()), meant);
        }

        #[test]
        fn an_offset_has_no_second_name(text in "[-0-9.a-z]{0,12}") {
            if let Some(OffsetName::Record(offset, part)) = parse_offset_name(text.as_bytes()) {
                prop_assert_eq!(text, format!("{offset}{}", part.suffix()));
            }
        }
    }
}
