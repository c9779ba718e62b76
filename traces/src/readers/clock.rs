//! Parses wall-clock times in the forms that logs use, and shifts times to the engine's clock, which starts at 0.

use super::number::fraction_ps;
use crate::trace_spec::TimeUnit;
use foretoken_sim::Time;

const PS_PER_DAY: i128 = 86_400_000_000_000_000;
/// Seconds since 1970 that a log of requests can have: from 2001-09-09 (since then they have ten digits) to the end of
/// the year 2100. Times since the log's own start are below this for any log that the engine's clock can hold.
const DATES_S: std::ops::Range<i128> = 1_000_000_000..4_133_980_800;

/// True if `at`, picoseconds since 1970, is later than the year 2100.
pub(super) fn beyond_2100(at: i128) -> bool {
    at >= DATES_S.end * 1_000_000_000_000
}

/// The year of `at`, picoseconds since 1970.
pub(super) fn year(at: i128) -> i128 {
    // A year of the Gregorian calendar has 365.2425 days in the mean.
    1970 + at.div_euclid(PS_PER_DAY * 3_652_425 / 10_000)
}

/// The unit in which `at` is a date from 2001 to 2100, if it is not one in `read_as`, the unit in which it was read.
/// `at` is in picoseconds by that reading. Also returns the year.
pub(super) fn unit_of_date(at: i128, read_as: TimeUnit) -> Option<(TimeUnit, i128)> {
    let as_unit = |unit: TimeUnit| at / 10i128.pow(read_as.places() as u32) * 10i128.pow(unit.places() as u32);
    let is_date = |at: i128| DATES_S.contains(&(at / 1_000_000_000_000));
    let others = TimeUnit::ALL.into_iter().map(|(unit, _)| unit).filter(|&unit| unit != read_as);
    let found = others.map(|unit| (unit, as_unit(unit))).find(|&(_, at)| is_date(at))?;
    (!is_date(at)).then_some((found.0, year(found.1)))
}

/// Shifts the times of a trace file to the engine's clock, which starts at 0. The time of the first row becomes
/// `margin`, picoseconds, so that later rows may have earlier times. After the last row, `Collector::start_at_zero`
/// shifts all times so that the earliest is 0.
pub(super) struct Origin {
    margin: i128,
    zero: Option<i128>,
}

impl Origin {
    /// A shift of a file's times to a clock that starts `days` days before the first row's time. So later rows may be
    /// up to `days` days earlier than the first.
    pub(super) fn with_margin(days: u32) -> Origin {
        Origin { margin: i128::from(days) * PS_PER_DAY, zero: None }
    }

    /// The engine's time for `at`, which is in picoseconds of the file's clock. `None` if `at` is earlier than the
    /// margin allows, or beyond the 213 days of the engine's clock.
    pub(super) fn place(&mut self, at: i128) -> Option<Time> {
        let zero = *self.zero.get_or_insert(at - self.margin);
        u64::try_from(at - zero).ok().map(Time)
    }
}

/// Parses a time as picoseconds since 1970. The time is written as `YYYY-MM-DD HH:MM:SS[.f…]`, with `T` or a space in
/// the middle. At the end is `Z`, `UTC`, an offset like `+02:00`, or nothing (then UTC).
pub(super) fn instant(field: &[u8]) -> Option<i128> {
    let text = std::str::from_utf8(field).ok()?.trim();
    let text = text.strip_suffix("UTC").or(text.strip_suffix('Z')).unwrap_or(text).trim_end();
    let (date, clock) = text.split_once([' ', 'T'])?;
    let (clock, offset_s) = match clock.find(['+', '-']) {
        Some(at) => (clock[..at].trim_end(), offset_s(&clock[at..])?),
        None => (clock, 0),
    };
    let (clock, fraction) = clock.split_once(['.', ',']).unwrap_or((clock, ""));
    let [year, month, day] = parts(date, '-')?;
    let [hour, minute, second] = parts(clock, ':')?;
    let in_range = (1..=12).contains(&month) && day >= 1 && hour < 24 && minute < 60 && second < 61;
    if !in_range || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let days = days_from_civil(year, month, day);
    let next_month = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
    if days >= days_from_civil(next_month.0, next_month.1, 1) {
        return None;
    }
    let seconds = days * 86_400 + hour * 3600 + minute * 60 + second - offset_s;
    Some(i128::from(seconds) * 1_000_000_000_000 + i128::from(fraction_ps(fraction.as_bytes())))
}

/// Parses a time-zone offset `+HH:MM`, `+HHMM` or `+HH`, with `+` or `-`, as seconds.
fn offset_s(text: &str) -> Option<i64> {
    let (sign, digits) = (if text.starts_with('-') { -1 } else { 1 }, text[1..].replacen(':', "", 1));
    if !matches!(digits.len(), 2 | 4) || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let hours: i64 = digits[..2].parse().ok()?;
    let minutes: i64 = digits.get(2..).filter(|m| !m.is_empty()).map_or(Some(0), |m| m.parse().ok())?;
    (hours < 24 && minutes < 60).then_some(sign * (hours * 3600 + minutes * 60))
}

fn parts(text: &str, by: char) -> Option<[i64; 3]> {
    let mut parts = text.split(by).map(|p| if p.len() <= 4 { p.parse::<u16>().ok().map(i64::from) } else { None });
    let three = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(three)
}

/// Number of days since 1970-01-01 in the Gregorian calendar. Internally a year starts in March, so that the leap day
/// is its last day.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn wall_clock_times_are_exact() {
        assert_eq!(days_from_civil(1970, 1, 1), 0);
        assert_eq!(days_from_civil(2000, 3, 1), 11_017);
        assert_eq!(days_from_civil(2024, 2, 29), 19_782);
        let a = instant(b"2021-02-03 04:05:06.9000000").expect("a time");
        let b = instant(b"2021-02-03 04:05:06.9520000").expect("a time");
        assert_eq!(b - a, 52_000_000_000);
        let same: &[&[u8]] = &[
            b"2021-02-03T00:00:00.01234Z", b"2021-02-03 00:00:00.012340+00:00", b"2021-02-03 00:00:00,01234 UTC",
            b"2021-02-03T02:00:00.01234+02:00", b"2021-02-02 18:30:00.01234 -0530", b"2021-02-03T01:00:00.01234+01",
        ];
        for text in same {
            assert_eq!(instant(text), instant(b"2021-02-03 00:00:00.01234"), "{}", String::from_utf8_lossy(text));
        }
        let bad: &[&[u8]] = &[
            b"2023-13-01 00:00:00", b"2023-02-29 00:00:00", b"18:17:03", b"2021-02-03 18:17", b"2021-02-03 18:17:03.x",
            b"2021-02-03 18:17:03+2", b"2021-02-03 18:17:03+\xc3\xa9", b"2021-02-03 18:17:03+25:00", b"",
        ];
        for text in bad {
            assert_eq!(instant(text), None, "{}", String::from_utf8_lossy(text));
        }
        assert!(instant(b"2024-02-29 00:00:00").is_some());
    }

    proptest! {
        #[test]
        fn nothing_panics(text in "[0-9T:+. Zé-]{0,32}") {
            let _ = (instant(text.as_bytes()), instant(format!("2021-02-03 18:17:03{text}").as_bytes()));
        }
    }
}
