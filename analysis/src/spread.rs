//! How numbers spread within groups: an error by system, engine or model, or a latency by policy.

use std::collections::BTreeMap;

/// The spread of the numbers of one group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// How many numbers the group has.
    pub n: usize,
    /// Median of the absolute values.
    pub median_absolute: f64,
    /// Mean of the values with their signs.
    pub mean: f64,
    /// 90th percentile of the absolute values: the smallest value that at least nine tenths do not exceed.
    pub p90_absolute: f64,
}

impl Spread {
    /// The spread of `numbers`; `None` if there are none.
    pub fn of(numbers: &[f64]) -> Option<Spread> {
        let n = numbers.len();
        if n == 0 {
            return None;
        }
        let mut absolute: Vec<f64> = numbers.iter().map(|x| x.abs()).collect();
        absolute.sort_by(f64::total_cmp);
        let median_absolute = (absolute[(n - 1) / 2] + absolute[n / 2]) / 2.0;
        let p90_absolute = absolute[(9 * n).div_ceil(10) - 1];
        Some(Spread { n, median_absolute, mean: numbers.iter().sum::<f64>() / n as f64, p90_absolute })
    }
}

/// The spread of each group's numbers, by the group's name. `groups` and `numbers` have a value for each row; rows
/// without a number are left out.
pub fn of_groups(groups: &[String], numbers: &[Option<f64>]) -> BTreeMap<String, Spread> {
    let mut of: BTreeMap<&String, Vec<f64>> = BTreeMap::new();
    for (group, number) in groups.iter().zip(numbers) {
        of.entry(group).or_default().extend(number);
    }
    of.into_iter().filter_map(|(group, numbers)| Some((group.clone(), Spread::of(&numbers)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_what_its_words_say() {
        let ten: Vec<f64> = (1..=10).map(|i| if i % 2 == 0 { f64::from(i) } else { -f64::from(i) }).collect();
        let spread = Spread::of(&ten).unwrap();
        assert_eq!(spread, Spread { n: 10, median_absolute: 5.5, mean: 0.5, p90_absolute: 9.0 });
        assert_eq!(Spread::of(&[-3.0]).unwrap(), Spread { n: 1, median_absolute: 3.0, mean: -3.0, p90_absolute: 3.0 });
        assert_eq!(Spread::of(&[]), None);
    }

    #[test]
    fn rows_without_a_number_are_left_out() {
        let groups = ["b", "a", "b", "c"].map(str::to_owned);
        let spreads = of_groups(&groups, &[Some(1.0), Some(-2.0), Some(3.0), None]);
        assert_eq!(spreads.keys().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!((spreads["b"].n, spreads["b"].mean, spreads["a"].mean), (2, 2.0, -2.0));
    }
}
