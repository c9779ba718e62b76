//! The distance between the values of a number in repeated runs.

use foretoken_profiler::median;

/// The distance between the values of repeated runs: the width of the narrowest interval that contains two thirds of
/// the values, at least three of them. With two or three values, the interval contains all. With more values, a third
/// may be outliers, because a shared machine is slower at times. `None` for fewer than two values.
pub fn window(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let n = (2 * values.len()).div_ceil(3).max(3).min(values.len());
    (n >= 2).then(|| values.windows(n).map(|w| w[n - 1] - w[0]).fold(f64::INFINITY, f64::min))
}

/// The distance between the values of repeated runs ([`window`]) / their median. `None` for fewer than two values, or
/// if the median is not above 0.
pub fn relative_window(values: &[f64]) -> Option<f64> {
    let middle = median(values.to_vec());
    window(values.to_vec()).filter(|_| middle > 0.0).map(|apart| apart / middle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_or_three_values_all_count() {
        assert_eq!(relative_window(&[1.0]), None);
        assert!((relative_window(&[1.0, 1.1]).unwrap() - 0.1 / 1.05).abs() < 1e-12);
        assert!((relative_window(&[1.2, 1.0, 1.1]).unwrap() - 0.2 / 1.1).abs() < 1e-12);
    }

    #[test]
    fn two_thirds_of_more_values_count() {
        assert!((relative_window(&[1.0, 1.01, 1.02, 1.03, 1.5, 2.0]).unwrap() - 0.03 / 1.025).abs() < 1e-12);
        assert!(relative_window(&[1.0, 1.0, 1.0, 9.0]).unwrap().abs() < 1e-12);
    }

    #[test]
    fn values_around_zero_have_no_relative_window() {
        assert_eq!((relative_window(&[0.0, 0.0]), window(vec![0.0, 0.25])), (None, Some(0.25)));
    }
}
