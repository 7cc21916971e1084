//! Which records `cat` prints: the values of `-o`, in kcat's letters (contract 7.3).
//!
//! ```text
//! beginning  end  N  -N  s@TIME      a START, where it is the first of its kind
//! end  N  e@TIME                     an END, exclusive; `end` and N where a START stands before
//! A:B                                both, A <= B
//! ```
//!
//! `s@` and `e@` stand in any order. Without a START it is the beginning, without an END the end. A
//! START behind its END is refused where both are offsets or both are times.

use crate::units::{Offset, Timestamp};
use crate::view::name::parse_offset;
use crate::view::parse_number;
use crate::view::time::parse_time;

/// Where to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At the first record that there is.
    Beginning,
    /// Behind the last record that there is.
    End,
    /// At this offset.
    Offset(Offset),
    /// So many records before the end.
    Last(u64),
    /// At the first record with this time or a later one.
    Time(Timestamp),
}

/// Where to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Behind the last record.
    End,
    /// Before this offset.
    Offset(Offset),
    /// Before the first record with this time or a later one.
    Time(Timestamp),
}

/// A range of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Where it begins.
    pub start: Start,
    /// Where it stops.
    pub stop: Stop,
}

const VALID_FORMS: &str = "valid are beginning, end, N, -N (the last N records), s@TIME, e@TIME \
                           (up to, not including) and A:B (offsets, A <= B); TIME is Unix \
                           milliseconds, seconds as 1700000000s, or like 2023-11-14T22:13:20Z";

/// The range that the values of all `-o` mean together. The error says which is wrong, and what is
/// valid.
pub fn parse_bounds(values: &[String]) -> Result<Bounds, String> {
    let (mut start, mut stop) = (None, None);
    for value in values {
        let parsed = parse_value(value, start.is_some())
            .ok_or_else(|| format!("-o {value:?} is no place in a partition; {VALID_FORMS}"))?;
        let (new_start, new_stop) = parsed;
        if (new_start.is_some() && start.is_some()) || (new_stop.is_some() && stop.is_some()) {
            return Err(format!("-o {value:?} is one START or END too many; {VALID_FORMS}"));
        }
        start = start.or(new_start);
        stop = stop.or(new_stop);
    }
    let bounds =
        Bounds { start: start.unwrap_or(Start::Beginning), stop: stop.unwrap_or(Stop::End) };
    if bounds.is_backwards() {
        let values = values.join(" -o ");
        return Err(format!("-o {values} ends before it starts; {VALID_FORMS}"));
    }
    Ok(bounds)
}

impl Bounds {
    fn is_backwards(&self) -> bool {
        match (self.start, self.stop) {
            (Start::Offset(start), Stop::Offset(stop)) => start > stop,
            (Start::Time(start), Stop::Time(stop)) => start > stop,
            _ => false,
        }
    }
}

/// What one value says of the two ends.
fn parse_value(value: &str, started: bool) -> Option<(Option<Start>, Option<Stop>)> {
    if let Some(time) = value.strip_prefix("s@") {
        return Some((Some(Start::Time(parse_time(time.as_bytes())?)), None));
    }
    if let Some(time) = value.strip_prefix("e@") {
        return Some((None, Some(Stop::Time(parse_time(time.as_bytes())?))));
    }
    if let Some((first, end)) = value.split_once(':') {
        let (first, end) = (parse_offset(first.as_bytes())?, parse_offset(end.as_bytes())?);
        return Some((Some(Start::Offset(first)), Some(Stop::Offset(end))));
    }
    if started && let Some(stop) = parse_plain_stop(value) {
        return Some((None, Some(stop)));
    }
    Some((Some(parse_plain_start(value)?), None))
}

fn parse_plain_start(value: &str) -> Option<Start> {
    if let Some(count) = value.strip_prefix('-') {
        let count = u64::try_from(parse_number(count.as_bytes())?).ok()?;
        return (count > 0).then_some(Start::Last(count));
    }
    match value {
        "beginning" => Some(Start::Beginning),
        "end" => Some(Start::End),
        offset => parse_offset(offset.as_bytes()).map(Start::Offset),
    }
}

fn parse_plain_stop(value: &str) -> Option<Stop> {
    match value {
        "end" => Some(Stop::End),
        offset => parse_offset(offset.as_bytes()).map(Stop::Offset),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2023-11-14T22:13:20Z.
    const T0: i64 = 1_700_000_000_000;

    fn parse(values: &str) -> Result<Bounds, String> {
        let values: Vec<String> = values.split(' ').map(String::from).collect();
        parse_bounds(&values)
    }

    fn from(raw: i64) -> Start {
        Start::Offset(Offset::new(raw).unwrap())
    }

    fn upto(raw: i64) -> Stop {
        Stop::Offset(Offset::new(raw).unwrap())
    }

    fn since(millis: i64) -> Start {
        Start::Time(Timestamp::from_millis(millis))
    }

    fn until(millis: i64) -> Stop {
        Stop::Time(Timestamp::from_millis(millis))
    }

    /// Contract 7.3 (`test_start_and_end`).
    #[test]
    fn valid_forms() {
        for (values, start, stop) in [
            ("beginning", Start::Beginning, Stop::End),
            ("end", Start::End, Stop::End),
            ("42", from(42), Stop::End),
            ("0", from(0), Stop::End),
            ("-3", Start::Last(3), Stop::End),
            ("10:13", from(10), upto(13)),
            ("5:5", from(5), upto(5)),
            ("0:9223372036854775807", from(0), upto(i64::MAX)),
            ("s@1700000095000", since(T0 + 95_000), Stop::End),
            ("s@1700000005s", since(T0 + 5000), Stop::End),
            ("s@2023-11-14T22:14:58Z", since(T0 + 98_000), Stop::End),
            ("e@2023-11-14T22:14:58", Start::Beginning, until(T0 + 98_000)),
            ("s@1700000005000 e@1700000008000", since(T0 + 5000), until(T0 + 8000)),
            ("e@1700000008000 s@1700000005000", since(T0 + 5000), until(T0 + 8000)),
            ("s@1700000005000 e@1700000005000", since(T0 + 5000), until(T0 + 5000)),
            ("beginning end", Start::Beginning, Stop::End),
            ("-10 end", Start::Last(10), Stop::End),
            ("-10 e@1700000008000", Start::Last(10), until(T0 + 8000)),
            ("5 8", from(5), upto(8)),
            ("s@1700000005000 8", since(T0 + 5000), upto(8)),
            ("e@1700000008000 end", Start::End, until(T0 + 8000)),
        ] {
            assert_eq!(parse(values), Ok(Bounds { start, stop }), "{values}");
        }
    }

    #[test]
    fn without_any_value_everything_is_meant() {
        assert_eq!(parse_bounds(&[]), Ok(Bounds { start: Start::Beginning, stop: Stop::End }));
    }

    /// Contract 7.3 (`test_bad_input`).
    #[test]
    fn anything_else_is_refused_with_the_valid_forms_named() {
        let bad = "\
            |earlyest|12x|s@|e@|@5:3|7:3|7:|:7|:|5:6:7|-5:7|5:-7|a:b|stored|Beginning|007|\
            +5|--5|-0|-|-x|0x10|5..7|s@-1|s@now|e@17:00|5s|9223372036854775808|\
            -9223372036854775808|5 3|5 -3|5 6 7|5 beginning|1:2 3|1:2 end|3 1:2|s@1 s@2|\
            e@1 e@2|e@1 1:2|s@1 1:2|end -5|s@1700000008000 e@1700000005000|5 | 5";
        for values in bad.split('|') {
            let error = parse(values).unwrap_err();
            for form in ["beginning", "end", "N", "-N", "s@TIME", "e@TIME", "A:B"] {
                assert!(error.contains(form), "{values:?}: {error}");
            }
        }
    }

    #[test]
    fn the_error_shows_what_was_wrong() {
        assert!(parse("5 12x").unwrap_err().contains("-o \"12x\" is no place"));
        assert!(parse("7:3").unwrap_err().contains("-o 7:3 ends before it starts"));
        assert!(parse("s@1 s@2").unwrap_err().contains("-o \"s@2\" is one START or END too many"));
    }
}
