//! Parses numbers as traces write them, exactly: token counts and decimal seconds.

use foretoken_sim::Time;

/// Why a field of a trace is not a valid number. In an error message this text follows the quoted field.
pub(crate) type Bad = &'static str;

pub(crate) const TOO_LATE: Bad = "is beyond the engine's clock of 213 days";

/// Parses a number of tokens: digits, or a decimal number that is whole (`12.0`, as pandas writes it).
pub(crate) fn tokens(field: &[u8]) -> Result<u32, Bad> {
    let field = field.trim_ascii();
    if field.is_empty() {
        return Err("is empty");
    }
    let mut value = 0u64;
    for &byte in field {
        if !byte.is_ascii_digit() {
            return whole(field);
        }
        value = value * 10 + u64::from(byte - b'0');
        if value > u64::from(u32::MAX) {
            return Err("is more than 4294967295 tokens");
        }
    }
    Ok(value as u32)
}

fn whole(field: &[u8]) -> Result<u32, Bad> {
    match finite(field)? {
        x if x < 0.0 => Err("is negative"),
        x if x.fract() != 0.0 => Err("is not a whole number of tokens"),
        x if x > f64::from(u32::MAX) => Err("is more than 4294967295 tokens"),
        x => Ok(x as u32),
    }
}

/// Parses any finite number.
pub(crate) fn finite(field: &[u8]) -> Result<f64, Bad> {
    let text = std::str::from_utf8(field.trim_ascii()).map_err(|_| "is not valid UTF-8")?;
    match text.parse::<f64>() {
        Ok(x) if x.is_finite() => Ok(x),
        Ok(_) => Err("is not a finite number"),
        Err(_) if text.is_empty() => Err("is empty"),
        Err(_) => Err("is not a number"),
    }
}

/// Parses decimal seconds, at least 0, exactly to the picosecond: `5`, `5.0`, `0.6`. Numbers with exponents are parsed
/// as `f64`.
pub(crate) fn seconds(field: &[u8]) -> Result<Time, Bad> {
    let field = field.trim_ascii();
    let dot = field.iter().position(|&b| b == b'.').unwrap_or(field.len());
    let (whole, fraction) = (&field[..dot], field.get(dot + 1..).unwrap_or_default());
    let digits = |part: &[u8]| part.iter().all(u8::is_ascii_digit);
    if whole.is_empty() || !digits(whole) || !digits(fraction) || whole.len() > 18 {
        return match finite(field)? {
            x if x < 0.0 => Err("is negative"),
            x if x >= 1.8e7 => Err(TOO_LATE),
            x => Ok(Time::from_s(x)),
        };
    }
    let seconds = whole.iter().fold(0u64, |v, b| v * 10 + u64::from(b - b'0'));
    seconds
        .checked_mul(1_000_000_000_000)
        .and_then(|ps| ps.checked_add(fraction_ps(fraction)))
        .map(Time)
        .ok_or(TOO_LATE)
}

/// Parses a decimal number in a unit of 10^`places` picoseconds, exactly to the picosecond. The number may have a sign
/// and up to 20 digits before the point, as seconds since 1970 have. Numbers with exponents are parsed as `f64`.
pub(crate) fn picoseconds(field: &[u8], places: usize) -> Result<i128, Bad> {
    let field = field.trim_ascii();
    let negative = field.starts_with(b"-");
    let size = &field[usize::from(negative)..];
    let dot = size.iter().position(|&b| b == b'.').unwrap_or(size.len());
    let (whole, behind) = (&size[..dot], size.get(dot + 1..).unwrap_or_default());
    let digits = |part: &[u8]| part.iter().all(u8::is_ascii_digit);
    if whole.is_empty() || !digits(whole) || !digits(behind) || whole.len() > 20 {
        return match finite(field)? * 10f64.powi(places as i32) {
            x if x.abs() < 1e30 => Ok(x.round() as i128),
            _ => Err(TOO_LATE),
        };
    }
    let units = whole.iter().fold(0i128, |v, b| v * 10 + i128::from(b - b'0'));
    let ps = units * 10i128.pow(places as u32) + i128::from(fraction(behind, places));
    Ok(if negative { -ps } else { ps })
}

/// Converts `digits`, the digits after the decimal point of a number of seconds, to picoseconds. Rounds at the twelfth
/// digit.
pub(crate) fn fraction_ps(digits: &[u8]) -> u64 {
    fraction(digits, 12)
}

/// The fraction whose decimal digits are `digits`, times 10^`places`, rounded to a whole number.
fn fraction(digits: &[u8], places: usize) -> u64 {
    let digit = |i: usize| u64::from(digits.get(i).map_or(0, |b| b - b'0'));
    (0..places).fold(0, |v, i| v * 10 + digit(i)) + u64::from(digit(places) >= 5)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn seconds_are_exact() {
        assert_eq!(seconds(b"5"), Ok(Time(5_000_000_000_000)));
        assert_eq!(seconds(b" 31.0 "), Ok(Time(31_000_000_000_000)));
        assert_eq!(seconds(b"12.34567899999993"), Ok(Time(12_345_679_000_000)));
        assert_eq!(seconds(b"1e-3"), Ok(Time(1_000_000_000)));
        assert_eq!(seconds(b"-0.5"), Err("is negative"));
        assert_eq!(seconds(b"NaN"), Err("is not a finite number"));
        assert_eq!(seconds(b""), Err("is empty"));
        assert_eq!(seconds(b"12:30"), Err("is not a number"));
        assert_eq!(seconds(b"1700000000"), Err(TOO_LATE));
    }

    #[test]
    fn picoseconds_are_exact_in_every_unit() {
        assert_eq!(picoseconds(b"1700000000.123456789012", 12), Ok(1_700_000_000_123_456_789_012));
        assert_eq!(picoseconds(b" 1700000000123.5 ", 9), Ok(1_700_000_000_123_500_000_000));
        assert_eq!(picoseconds(b"7.0006", 3), Ok(7_001));
        assert_eq!(picoseconds(b"-0.25", 12), Ok(-250_000_000_000));
        assert_eq!(picoseconds(b"1e-3", 12), Ok(1_000_000_000));
        assert_eq!(picoseconds(b"-1e-3", 9), Ok(-1_000_000));
        assert_eq!(picoseconds(b"1e300", 12), Err(TOO_LATE));
        for (field, why) in [(&b""[..], "is empty"), (b"-", "is not a number"), (b"nan", "is not a finite number")] {
            assert_eq!(picoseconds(field, 12), Err(why));
        }
    }

    #[test]
    fn tokens_are_whole() {
        assert_eq!(tokens(b"617"), Ok(617));
        assert_eq!(tokens(b"18.0"), Ok(18));
        for (field, why) in [
            (&b"-3"[..], "is negative"),
            (b"1.5", "is not a whole number of tokens"),
            (b"x", "is not a number"),
            (b"", "is empty"),
            (b"99999999999", "is more than 4294967295 tokens"),
            (b"inf", "is not a finite number"),
        ] {
            assert_eq!(tokens(field), Err(why));
        }
    }

    proptest! {
        #[test]
        fn any_picosecond_survives_text(ps in 0u64..=u64::MAX) {
            let text = format!("{}.{:012}", ps / 1_000_000_000_000, ps % 1_000_000_000_000);
            prop_assert_eq!(seconds(text.as_bytes()), Ok(Time(ps)));
        }

        #[test]
        fn nothing_panics(field in proptest::collection::vec(any::<u8>(), 0..30)) {
            let _ = (seconds(&field), tokens(&field), finite(&field), picoseconds(&field, 12));
        }
    }
}
