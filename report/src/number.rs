//! Formats numbers for figures and tables.

use foretoken_sim::metrics::Interval;

/// What follows a mean in a table: half the width of its interval behind `sign`, such as `± 0.05`, or both ends as in
/// `[0.00, 0.12]` if the quantity's range cuts off one of them. Both are in the table's unit, `unit` of the interval's.
/// `None` with one seed.
pub fn spread(i: &Interval, unit: f64, decimals: usize, sign: &str) -> Option<String> {
    let (low, high) = i.ends()?;
    let say = |x: f64| fixed(x * unit, decimals);
    match i.is_cut() {
        true => Some(format!("[{}, {}]", say(low), say(high))),
        false => Some(format!("{sign}{}", say(i.half_width?))),
    }
}

/// A number with `decimals` decimals. If it is rounded to zero, it has no minus sign.
pub fn fixed(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    match text.strip_prefix('-') {
        Some(zero) if zero.chars().all(|c| c == '0' || c == '.') => zero.to_owned(),
        _ => text,
    }
}

/// A share in percent with one decimal, such as `3.1 %`. A positive share has no sign.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// A share in percent with one decimal and always a sign, such as `+3.1 %`. If it is rounded to zero, it is `+0.0 %`.
pub fn signed_percent(share: f64) -> String {
    let text = format!("{:+.1} %", 100.0 * share);
    if text == "-0.0 %" { "+0.0 %".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foretoken_sim::metrics::Range;

    #[test]
    fn an_interval_that_its_range_cuts_shows_both_ends() {
        let share = |values: &[f64]| Interval::within(Range::Share, values).unwrap();
        assert_eq!(spread(&share(&[0.4, 0.5]), 100.0, 0, "+-").unwrap(), "[0, 100]");
        assert_eq!(spread(&share(&[0.49, 0.5]), 100.0, 1, "± ").unwrap(), "± 6.4");
        assert_eq!(spread(&share(&[0.5]), 100.0, 1, "± "), None);
    }

    #[test]
    fn zero_has_no_sign() {
        assert_eq!([-0.04, -0.06, 0.0, 1.25].map(|x| fixed(x, 1)), ["0.0", "-0.1", "0.0", "1.2"]);
        assert_eq!(fixed(-0.4, 0), "0");
        assert_eq!([-4e-4, 4e-4, -6e-4, 0.031].map(signed_percent), ["+0.0 %", "+0.0 %", "-0.1 %", "+3.1 %"]);
    }
}
