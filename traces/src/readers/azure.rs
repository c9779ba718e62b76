//! Azure LLM inference CSV (Patel et al., ISCA 2024; AzurePublicDataset, 2023 and the same columns of 2024).
//!
//! `TIMESTAMP` is wall-clock time with seven decimals (a UTC suffix is accepted). Arrivals count from the first row.

use super::collector::{Collector, Names};
use super::number::fraction_ps;
use super::table::Table;
use super::trace::Trace;
use crate::error::TraceError;
use crate::trace_spec::TraceSpec;
use foretoken_sim::{Request, Time};

const NAMES: Names = Names { time: "TIMESTAMP", prompt: "ContextTokens", output: "GeneratedTokens" };
const PS_PER_DAY: i128 = 86_400_000_000_000_000;
const NOT_A_TIME: &str = "is not a time YYYY-MM-DD HH:MM:SS.fffffff";

pub(super) fn read(spec: &TraceSpec, mut collector: Collector) -> Result<Trace, TraceError> {
    let mut table = Table::open(&spec.path)?;
    let (time, prompt, output) = (table.column(NAMES.time)?, table.column(NAMES.prompt)?, table.column(NAMES.output)?);
    let mut origin = None;
    while table.next()? {
        let at = instant(table.bytes(time)).ok_or_else(|| table.bad(time, NOT_A_TIME))?;
        // The first row is put one day after zero, so that rows with earlier times can be sorted; `start_at_zero`
        // removes the day.
        let origin = *origin.get_or_insert(at - PS_PER_DAY);
        let at = u64::try_from(at - origin)
            .map_err(|_| table.bad(time, "is over a day before or 212 days after the first row"))?;
        collector.push(table.line(), Request::new(Time(at), table.tokens(prompt)?, table.tokens(output)?), NAMES)?;
    }
    collector.start_at_zero();
    collector.finish()
}

/// Picoseconds since 1970 of a time written as `YYYY-MM-DD HH:MM:SS[.f…][Z|+00:00]`.
fn instant(field: &[u8]) -> Option<i128> {
    let text = std::str::from_utf8(field).ok()?.trim();
    let text = text.strip_suffix("+00:00").or(text.strip_suffix('Z')).unwrap_or(text);
    let (date, clock) = text.split_once([' ', 'T'])?;
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, ""));
    let [year, month, day] = parts(date, '-')?;
    let [hour, minute, second] = parts(clock, ':')?;
    let in_range = (1..=12).contains(&month) && (1..=31).contains(&day) && hour < 24 && minute < 60 && second < 61;
    if !in_range || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let seconds = days_from_civil(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second;
    Some(i128::from(seconds) * 1_000_000_000_000 + i128::from(fraction_ps(fraction.as_bytes())))
}

fn parts(text: &str, by: char) -> Option<[i64; 3]> {
    let mut parts = text.split(by).map(|p| if p.len() <= 4 { p.parse::<u16>().ok().map(i64::from) } else { None });
    let three = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(three)
}

/// Days since 1970-01-01 in the Gregorian calendar. Years are counted from March so that leap days come last.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wall_clock_times_are_exact() {
        assert_eq!(days_from_civil(1970, 1, 1), 0);
        assert_eq!(days_from_civil(2000, 3, 1), 11_017);
        assert_eq!(days_from_civil(2024, 2, 29), 19_782);
        let a = instant(b"2021-02-03 04:05:06.9000000").expect("a time");
        let b = instant(b"2021-02-03 04:05:06.9520000").expect("a time");
        assert_eq!(b - a, 52_000_000_000);
        assert_eq!(instant(b"2021-02-03 00:00:00.012340+00:00"), instant(b"2021-02-03T00:00:00.01234Z"));
        for bad in [&b"2023-13-01 00:00:00"[..], b"18:17:03", b"2021-02-03 18:17", b"2021-02-03 18:17:03.x", b""] {
            assert_eq!(instant(bad), None);
        }
    }
}
