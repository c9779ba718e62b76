//! Formats numbers for figures and tables.

/// A number with `decimals` decimals. If it is rounded to zero, it has no minus sign.
pub fn fixed(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    match text.strip_prefix('-') {
        Some(zero) if zero.chars().all(|c| c == '0' || c == '.') => zero.to_owned(),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_has_no_sign() {
        assert_eq!([-0.04, -0.06, 0.0, 1.25].map(|x| fixed(x, 1)), ["0.0", "-0.1", "0.0", "1.2"]);
        assert_eq!(fixed(-0.4, 0), "0");
    }
}
