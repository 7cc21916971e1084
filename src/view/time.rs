//! Times as names: what a user types becomes a [`Timestamp`], and a timestamp becomes the name that
//! a listing shows. The law: a listed name parses back to its own timestamp.
//!
//! A time that Unix milliseconds cannot express is taken as the next one that they can, since it
//! names the first record *at or after* it: a finer fraction is rounded up, and a leap second
//! (`23:59:60` UTC at the end of a month, nowhere else) is the first second of the next month.

use jiff::SignedDuration;
use jiff::civil::{Date, DateTime, Time};

use super::parse_number;
use crate::units::Timestamp;

const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);
const MILLIS_PER_SECOND: i64 = 1000;
const MILLIS_PER_MINUTE: i64 = 60 * MILLIS_PER_SECOND;

/// The time that `text` means in the grammar of [`crate::view`], whatever the local time zone is.
pub fn parse_time(text: &[u8]) -> Option<Timestamp> {
    let millis = match text {
        [seconds @ .., b's'] => parse_number(seconds)?.checked_mul(MILLIS_PER_SECOND)?,
        _ => match parse_number(text) {
            Some(millis) => millis,
            None => parse_rfc3339(text)?,
        },
    };
    Some(Timestamp::from_millis(millis))
}

/// The name of `time` in a listing: RFC 3339 in UTC with milliseconds, beyond the year 9999 bare
/// milliseconds. `None` before the year 0000: RFC 3339 has no such years, and a number no sign.
pub fn format_time(time: Timestamp) -> Option<String> {
    match datetime(time.millis()) {
        Some(datetime) if datetime.year() >= 0 => Some(format!("{datetime:.3}Z")),
        _ if time.millis() >= 0 => Some(time.millis().to_string()),
        _ => None,
    }
}

/// Unix milliseconds as date and time in UTC; `None` outside the years -9999 to 9999.
fn datetime(millis: i64) -> Option<DateTime> {
    EPOCH.checked_add(SignedDuration::from_millis(millis)).ok()
}

fn parse_rfc3339(text: &[u8]) -> Option<i64> {
    let mut rest = Rest(text);
    let date = rest.date()?;
    if rest.0.is_empty() {
        return unix_millis(date.to_datetime(Time::midnight()));
    }
    if !rest.skip(b'T') {
        return None;
    }
    let clock = rest.clock()?;
    let zone_millis = rest.zone()?;
    let leap = clock.second == 60;
    let second = if leap { 59 } else { clock.second };
    let time = Time::new(clock.hour, clock.minute, second, 0).ok()?;
    let millis = unix_millis(date.to_datetime(time))? - zone_millis;
    if !leap {
        return Some(millis + clock.fraction_millis);
    }
    let next = millis + MILLIS_PER_SECOND;
    starts_a_month(next).then_some(next + clock.fraction_millis)
}

fn unix_millis(datetime: DateTime) -> Option<i64> {
    i64::try_from(datetime.duration_since(EPOCH).as_millis()).ok()
}

fn starts_a_month(millis: i64) -> bool {
    datetime(millis).is_some_and(|d| d.day() == 1 && d.time() == Time::midnight())
}

/// What is still to be read of a time's text.
struct Rest<'a>(&'a [u8]);

/// The digits of a time of day, still unjudged.
struct Clock {
    hour: i8,
    minute: i8,
    second: i8,
    fraction_millis: i64,
}

impl Rest<'_> {
    fn date(&mut self) -> Option<Date> {
        let century = i16::from(self.two_digits()?);
        let year = century * 100 + i16::from(self.two_digits()?);
        let month = self.skip(b'-').then(|| self.two_digits())??;
        let day = self.skip(b'-').then(|| self.two_digits())??;
        Date::new(year, month, day).ok()
    }

    fn clock(&mut self) -> Option<Clock> {
        let mut clock =
            Clock { hour: self.two_digits()?, minute: 0, second: 0, fraction_millis: 0 };
        if !self.skip(b':') {
            return Some(clock);
        }
        clock.minute = self.two_digits()?;
        if !self.skip(b':') {
            return Some(clock);
        }
        clock.second = self.two_digits()?;
        if self.skip(b'.') {
            clock.fraction_millis = self.fraction()?;
        }
        Some(clock)
    }

    /// Digits behind the decimal point as milliseconds, rounded up.
    fn fraction(&mut self) -> Option<i64> {
        let length = self.0.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (digits, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        let (&tenths, finer) = digits.split_first()?;
        let digit = |byte: Option<&u8>| byte.map_or(0, |byte| i64::from(byte - b'0'));
        let millis = digit(Some(&tenths)) * 100 + digit(finer.first()) * 10 + digit(finer.get(1));
        let below = finer.iter().skip(2).any(|&byte| byte != b'0');
        Some(millis + i64::from(below))
    }

    /// How far the zone is ahead of UTC; the text must end with it.
    fn zone(&mut self) -> Option<i64> {
        let (sign, digits) = match self.0.split_first() {
            None | Some((b'Z', [])) => return Some(0),
            Some((b'+', rest)) => (1, rest),
            Some((b'-', rest)) => (-1, rest),
            Some(_) => return None,
        };
        self.0 = digits;
        let hours = self.two_digits()?;
        let minutes = self.skip(b':').then(|| self.two_digits())??;
        let valid = hours < 24 && minutes < 60 && self.0.is_empty();
        valid.then(|| sign * (i64::from(hours) * 60 + i64::from(minutes)) * MILLIS_PER_MINUTE)
    }

    fn skip(&mut self, byte: u8) -> bool {
        match self.0.split_first() {
            Some((&first, rest)) if first == byte => {
                self.0 = rest;
                true
            }
            _ => false,
        }
    }

    fn two_digits(&mut self) -> Option<i8> {
        let (digits, rest) = self.0.split_first_chunk::<2>()?;
        if !digits.iter().all(u8::is_ascii_digit) {
            return None;
        }
        self.0 = rest;
        let [tens, ones] = digits.map(|byte| byte - b'0');
        i8::try_from(tens * 10 + ones).ok()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// 2023-11-14T22:13:20Z.
    const T0: i64 = 1_700_000_000_000;

    fn millis(text: &str) -> Option<i64> {
        parse_time(text.as_bytes()).map(Timestamp::millis)
    }

    fn listed(millis: i64) -> Option<String> {
        format_time(Timestamp::from_millis(millis))
    }

    #[test]
    fn numbers_are_milliseconds_and_with_an_s_seconds() {
        for (text, time) in [
            ("0", Some(0)),
            ("2026", Some(2026)),
            ("20231114", Some(20_231_114)),
            ("1700000000", Some(1_700_000_000)),
            ("1764410400000", Some(1_764_410_400_000)),
            ("9223372036854775807", Some(i64::MAX)),
            ("9223372036854775808", None),
            ("1700000005s", Some(T0 + 5000)),
            ("0s", Some(0)),
            ("9223372036854775s", Some(9_223_372_036_854_775_000)),
            ("9223372036854776s", None),
            ("01s", None),
            ("-1s", None),
            ("1ss", None),
            ("s", None),
        ] {
            assert_eq!(millis(text), time, "{text}");
        }
    }

    #[test]
    fn rfc3339_to_the_day_hour_minute_second_or_fraction() {
        for (text, time) in [
            ("2023-11-14", T0 - 80_000_000),
            ("2023-11-15", T0 + 6_400_000),
            ("2023-11-14T22", T0 - 800_000),
            ("2023-11-14T22:14", T0 + 40_000),
            ("2023-11-14T22:13:25", T0 + 5000),
            ("2023-11-14T22:13:24.5", T0 + 4500),
            ("2023-11-14T22:13:24.05", T0 + 4050),
            ("2023-11-14T22:13:24.001", T0 + 4001),
            ("2023-11-14T22:13:24.001000", T0 + 4001),
            ("2024-02-29", T0 + 9_164_800_000),
            ("1970-01-01", 0),
            ("1969-12-31T23:59:59.999Z", -1),
            ("0000-01-01T00:00:00Z", -62_167_219_200_000),
            ("9999-12-31T23:59:59.999Z", 253_402_300_799_999),
        ] {
            assert_eq!(millis(text), Some(time), "{text}");
        }
    }

    #[test]
    fn a_zone_may_follow_the_hour_the_minute_and_the_second() {
        for (text, time) in [
            ("2023-11-14T22Z", T0 - 800_000),
            ("2023-11-14T22:14Z", T0 + 40_000),
            ("2023-11-14T22:13:25Z", T0 + 5000),
            ("2023-11-14T22:13:25.000Z", T0 + 5000),
            ("2023-11-14T23:13:25+01:00", T0 + 5000),
            ("2023-11-14T14:43:25-07:30", T0 + 5000),
            ("2023-11-14T22:13:25-00:00", T0 + 5000),
            ("2023-11-14T14:44-07:30", T0 + 40_000),
            ("2023-11-14T15-07:00", T0 - 800_000),
            ("2023-11-15T04:13:24.5+06:00", T0 + 4500),
            ("9999-12-31T23:59:59-23:59", 253_402_300_799_000 + 86_340_000),
        ] {
            assert_eq!(millis(text), Some(time), "{text}");
        }
    }

    #[test]
    fn a_fraction_finer_than_milliseconds_is_rounded_up() {
        for (text, time) in [
            ("2023-11-14T22:13:24.0001", T0 + 4001),
            ("2023-11-14T22:13:24.0010000001Z", T0 + 4002),
            ("2023-11-14T22:13:24.999999999", T0 + 5000),
            ("2023-11-14T22:13:24.00000000000000000000000000000", T0 + 4000),
        ] {
            assert_eq!(millis(text), Some(time), "{text}");
        }
    }

    #[test]
    fn a_leap_second_is_the_start_of_the_next_month_and_stands_nowhere_else() {
        let new_year = millis("2017-01-01").unwrap();
        assert_eq!(millis("2016-12-31T23:59:60Z"), Some(new_year));
        assert_eq!(millis("2016-12-31T23:59:60.5"), Some(new_year + 500));
        assert_eq!(millis("2017-01-01T00:59:60+01:00"), Some(new_year));
        assert_eq!(millis("2016-12-30T23:59:60Z"), None);
        assert_eq!(millis("2016-12-31T22:59:60Z"), None);
        assert_eq!(millis("2016-12-31T23:59:61Z"), None);
        assert_eq!(millis("9999-12-31T23:59:60Z"), None);
    }

    /// Contract 2.20: anything else is no time.
    #[test]
    fn what_is_not_a_time() {
        let names = "\
            |yesterday|now|1e12| 5|5 |+5|-5|05|1.5|0x10|17:00|1700000000S|1700000000ms|\
            1700000000.5s|T22|2023-|2023-11|2023-11-31|2023-13-01|2023-00-01|2023-01-00|\
            2023-02-29|1900-02-29|14-11-2023|2023-1-1|02023-11-14|+2023-11-14|-0001-11-14|\
            2023-11-14T|2023-11-14Z|2023-11-14+01:00|2023-11-14T2|2023-11-14T25|\
            2023-11-14T24|2023-11-14T24:00:00|2023-11-14T22:|2023-11-14T22:60|\
            2023-11-14T22:1|2023-11-14T22.5|2023-11-14T22:13.5|2023-11-14T22:13:|\
            2023-11-14T22:13:20.|2023-11-14T22:13:20,5|2023-11-14T22:13:20.Z|\
            2023-11-14T22:13:20ZZ|2023-11-14T22:13:20+1|2023-11-14T22:13:20+01|\
            2023-11-14T22:13:20+0100|2023-11-14T22:13:20+24:00|2023-11-14T22:13:20+01:60|\
            2023-11-14T22:13:20+01:00Z|2023-11-14T22:13:20-|2023-11-14T22:13:20 Z|\
            2023-11-14 22:13:20|2023-11-14t22:13:20|2023-11-14T22:13:20z|2023-11-14T221320|\
            2023-11-14T22:13:20[UTC]|2023-11-14T22:13:20Z[UTC]|2023-11-14T22:13:20Z\n|\
            2023-11-14T22:13:20.5s|2023-W46-2|2023-318";
        for text in names.split('|') {
            assert_eq!(millis(text), None, "{text:?}");
        }
        assert_eq!(parse_time(b"2023-11-1\xff"), None);
    }

    /// Contract 2.2: RFC 3339 UTC with milliseconds, beyond the year 9999 bare milliseconds.
    #[test]
    fn listed_times() {
        for (time, name) in [
            (T0, Some("2023-11-14T22:13:20.000Z")),
            (T0 + 1, Some("2023-11-14T22:13:20.001Z")),
            (0, Some("1970-01-01T00:00:00.000Z")),
            (-2, Some("1969-12-31T23:59:59.998Z")),
            (-62_167_219_200_000, Some("0000-01-01T00:00:00.000Z")),
            (-62_167_219_200_001, None),
            (i64::MIN, None),
            (253_402_300_799_999, Some("9999-12-31T23:59:59.999Z")),
            (253_402_300_800_000, Some("253402300800000")),
            (i64::MAX, Some("9223372036854775807")),
        ] {
            assert_eq!(listed(time).as_deref(), name, "{time}");
        }
    }

    fn any_millis() -> impl Strategy<Value = i64> {
        prop_oneof![any::<i64>(), -62_167_219_300_000i64..253_402_300_900_000, 0..2 * T0]
    }

    proptest! {
        #[test]
        fn a_listed_time_parses_back(time in any_millis()) {
            match listed(time) {
                Some(name) => prop_assert_eq!(millis(&name), Some(time), "{}", name),
                None => prop_assert!(time < -62_167_219_200_000),
            }
        }

        #[test]
        fn any_bytes_may_be_asked(text in "[0-9TZs:.+-]{0,30}") {
            if let Some(name) = millis(&text).and_then(listed) {
                prop_assert_eq!(millis(&name), millis(&text));
            }
        }
    }
}
