//! Distances between samples and between rankings. Pure arithmetic: nothing here knows what was measured.

/// `value / reference − 1`; `None` if the reference is not above 0.
pub fn relative(value: f64, reference: f64) -> Option<f64> {
    (reference > 0.0 && value.is_finite()).then(|| value / reference - 1.0)
}

/// The largest distance between two empirical distribution functions (Kolmogorov–Smirnov), in [0, 1]. `None` if a
/// sample is empty. Sorts both.
pub fn cdf_distance(a: &mut [f64], b: &mut [f64]) -> Option<f64> {
    if a.is_empty() || b.is_empty() {
        return None;
    }
    a.sort_unstable_by(f64::total_cmp);
    b.sort_unstable_by(f64::total_cmp);
    let (mut i, mut j, mut most) = (0, 0, 0.0f64);
    while i < a.len() && j < b.len() {
        // Both functions pass all their samples at this value before they are compared.
        let at = a[i].min(b[j]);
        i += a[i..].iter().take_while(|&&x| x <= at).count();
        j += b[j..].iter().take_while(|&&x| x <= at).count();
        most = most.max((i as f64 / a.len() as f64 - j as f64 / b.len() as f64).abs());
    }
    Some(most)
}

/// Two rankings compared pair by pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Ranking {
    /// Number of pairs in the same order in both.
    pub agree: u32,
    /// Number of pairs in opposite order.
    pub disagree: u32,
    /// Number of pairs tied in the first ranking alone.
    pub tied_first: u32,
    /// Number of pairs tied in the second ranking alone.
    pub tied_second: u32,
    /// Number of pairs tied in both rankings.
    pub tied_both: u32,
}

impl Ranking {
    /// Compares two rankings of the same items by their values. Two values of a ranking are tied if they differ by at
    /// most its relative noise, measured from the smaller one.
    pub fn of(first: &[f64], first_noise: f64, second: &[f64], second_noise: f64) -> Ranking {
        assert_eq!(first.len(), second.len(), "two rankings of the same items");
        let mut pairs = Ranking::default();
        for i in 0..first.len() {
            for j in 0..i {
                let a = order(first[i], first[j], first_noise);
                let b = order(second[i], second[j], second_noise);
                *match (a, b) {
                    (0, 0) => &mut pairs.tied_both,
                    (0, _) => &mut pairs.tied_first,
                    (_, 0) => &mut pairs.tied_second,
                    _ if a == b => &mut pairs.agree,
                    _ => &mut pairs.disagree,
                } += 1;
            }
        }
        pairs
    }

    /// Kendall's τ-b, which counts ties: (agree − disagree) / √(pairs not tied in the first × pairs not tied in the
    /// second). `None` if all pairs of a ranking are tied.
    pub fn tau(&self) -> Option<f64> {
        let untied = f64::from(self.agree + self.disagree);
        let product = (untied + f64::from(self.tied_second)) * (untied + f64::from(self.tied_first));
        (product > 0.0).then(|| (f64::from(self.agree) - f64::from(self.disagree)) / product.sqrt())
    }
}

/// −1 if `a` is below `b`, 0 if they are tied, 1 if it is above.
fn order(a: f64, b: f64, noise: f64) -> i8 {
    let smaller = a.abs().min(b.abs());
    match a - b {
        d if d.abs() <= noise * smaller => 0,
        d if d < 0.0 => -1,
        _ => 1,
    }
}

/// Mean absolute difference of two series over the mean of the second, bin by bin: the error of a curve over time.
/// `None` if they share no bin or the second is zero throughout.
pub fn curve_error(a: &[f64], b: &[f64]) -> Option<f64> {
    let n = a.len().max(b.len());
    let at = |s: &[f64], i: usize| s.get(i).copied().unwrap_or(0.0);
    let apart: f64 = (0..n).map(|i| (at(a, i) - at(b, i)).abs()).sum();
    let size: f64 = b.iter().sum();
    (n > 0 && size > 0.0).then(|| apart / size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distance_of_distributions_is_the_largest_gap() {
        assert_eq!(cdf_distance(&mut [1.0, 2.0, 3.0], &mut [3.0, 1.0, 2.0]), Some(0.0));
        assert_eq!(cdf_distance(&mut [1.0, 2.0], &mut [5.0, 6.0]), Some(1.0));
        // At 2: 2 of 4 against 1 of 2. At 1: 1 of 4 against 1 of 2.
        assert_eq!(cdf_distance(&mut [1.0, 2.0, 3.0, 4.0], &mut [1.0, 3.5]), Some(0.25));
        assert_eq!(cdf_distance(&mut [2.0, 2.0, 2.0], &mut [2.0]), Some(0.0));
        assert_eq!(cdf_distance(&mut [], &mut [1.0]), None);
    }

    /// By the definition over all pairs; one pair is tied.
    #[test]
    fn tau_counts_ties() {
        let (x, y) = ([1.0, 2.0, 2.0, 3.0], [1.0, 3.0, 2.0, 4.0]);
        let pairs = Ranking::of(&x, 0.0, &y, 0.0);
        assert_eq!((pairs.agree, pairs.disagree, pairs.tied_first), (5, 0, 1));
        assert!((pairs.tau().unwrap() - 5.0 / (5.0f64 * 6.0).sqrt()).abs() < 1e-12);
        assert_eq!(Ranking::of(&[1.0, 2.0, 3.0], 0.0, &[3.0, 2.0, 1.0], 0.0).tau(), Some(-1.0));
        assert_eq!(Ranking::of(&[1.0, 2.0, 3.0], 0.0, &[1.0, 2.0, 3.0], 0.0).tau(), Some(1.0));
        assert_eq!(Ranking::of(&[1.0, 1.0], 0.0, &[1.0, 2.0], 0.0).tau(), None);
    }

    #[test]
    fn differences_within_the_noise_are_ties() {
        let pairs = Ranking::of(&[1.00, 1.04, 2.0], 0.05, &[1.04, 1.00, 2.0], 0.05);
        assert_eq!((pairs.agree, pairs.disagree, pairs.tied_both), (2, 0, 1));
        let strict = Ranking::of(&[1.00, 1.04, 2.0], 0.0, &[1.04, 1.00, 2.0], 0.0);
        assert_eq!((strict.agree, strict.disagree), (2, 1));
    }

    #[test]
    fn curves_of_different_length_are_off_where_one_has_ended() {
        assert_eq!(curve_error(&[1.0, 2.0], &[1.0, 2.0]), Some(0.0));
        assert_eq!(curve_error(&[1.0], &[1.0, 1.0]), Some(0.5));
        assert_eq!(curve_error(&[2.0, 2.0], &[1.0, 1.0]), Some(1.0));
        assert_eq!(curve_error(&[], &[]), None);
        assert_eq!(relative(1.1, 1.0).map(|e| (e * 100.0).round()), Some(10.0));
        assert_eq!(relative(1.0, 0.0), None);
    }
}
