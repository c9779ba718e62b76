//! How far apart repeats are.

/// Width of the narrowest window that holds two thirds of the values (at least three, if there are three), over their
/// median; infinite for one value. All of two and of three count. Of more some may be off: a shared machine has
/// moments in which it is slower.
pub fn spread(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let n = (2 * values.len()).div_ceil(3).max(3).min(values.len());
    if n < 2 {
        return f64::INFINITY;
    }
    let apart = values.windows(n).map(|w| w[n - 1] - w[0]).fold(f64::INFINITY, f64::min);
    apart / median(values)
}

/// The middle one, or the mean of the middle two; not a number where there is none.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        n => f64::midpoint(values[(n - 1) / 2], values[n / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_three_count_and_two_thirds_of_more() {
        assert_eq!(spread(vec![1.0]), f64::INFINITY);
        assert!((spread(vec![1.0, 1.1]) - 0.1 / 1.05).abs() < 1e-12);
        assert!((spread(vec![1.2, 1.0, 1.1]) - 0.2 / 1.1).abs() < 1e-12);
        // Four of six.
        assert!((spread(vec![1.0, 1.01, 1.02, 1.03, 1.5, 2.0]) - 0.03 / 1.025).abs() < 1e-12);
        // Three of four.
        assert!((spread(vec![1.0, 1.0, 1.0, 9.0])).abs() < 1e-12);
    }

    #[test]
    fn the_median_of_an_even_number_lies_between_two() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0]), 2.5);
        assert!(median(vec![]).is_nan());
    }
}
