//! Student-t confidence intervals over seeds. One seed gives no interval.

/// The values that a quantity can have. An interval over seeds ends where the quantity ends: Student's interval of
/// shares, lengths and times may go beyond, which no run can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Range {
    /// Every number, such as a difference or a logarithm.
    Any,
    /// From 0 on, such as a time, a rate or a number of tokens.
    FromZero,
    /// From 1 on, such as an acceptance length, which counts the target's own token.
    FromOne,
    /// 0 to 1, such as a share of requests.
    Share,
    /// 0 to 100, a share in percent.
    Percent,
}

impl Range {
    /// The least and the greatest value.
    pub fn ends(self) -> (f64, f64) {
        match self {
            Range::Any => (f64::NEG_INFINITY, f64::INFINITY),
            Range::FromZero => (0.0, f64::INFINITY),
            Range::FromOne => (1.0, f64::INFINITY),
            Range::Share => (0.0, 1.0),
            Range::Percent => (0.0, 100.0),
        }
    }
}

/// A mean over replications (runs with different seeds), with its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Interval {
    /// The mean of the per-seed values.
    pub mean: f64,
    /// Half the width of Student's 95 % confidence interval, which may go beyond the values that the quantity can have;
    /// `None` if there is only one seed.
    pub half_width: Option<f64>,
    /// The lower end of the 95 % interval, not below what the quantity can be; `None` if there is only one seed.
    pub low: Option<f64>,
    /// The upper end of the 95 % interval, not above what the quantity can be; `None` if there is only one seed.
    pub high: Option<f64>,
    /// Number of replications (runs with different seeds) in the mean.
    pub n: usize,
}

impl Interval {
    /// The mean of `values`, one for each seed, with its 95 % confidence interval; `None` without values. The quantity
    /// may be any number, such as a difference.
    pub fn of(values: &[f64]) -> Option<Interval> {
        Interval::within(Range::Any, values)
    }

    /// The mean of `values` of a quantity with this range, one value for each seed, with its 95 % confidence interval;
    /// `None` without values.
    pub fn within(range: Range, values: &[f64]) -> Option<Interval> {
        let n = values.len();
        if n == 0 {
            return None;
        }
        let mean = values.iter().sum::<f64>() / n as f64;
        let half_width = (n > 1).then(|| {
            let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1) as f64;
            student_t_975(n - 1) * (variance / n as f64).sqrt()
        });
        let (least, most) = range.ends();
        // The mean stays inside the interval also if it is rounded to just beyond the range.
        let low = half_width.map(|half| (mean - half).max(least).min(mean));
        let high = half_width.map(|half| (mean + half).min(most).max(mean));
        Some(Interval { mean, half_width, low, high, n })
    }

    /// Both ends of the 95 % interval; `None` with one seed.
    pub fn ends(&self) -> Option<(f64, f64)> {
        self.low.zip(self.high)
    }

    /// Does the quantity's range cut off an end of the interval? Then `± half_width` would name impossible values.
    pub fn is_cut(&self) -> bool {
        let whole = |half: f64| (self.mean - half, self.mean + half);
        self.half_width.map(whole) != self.ends()
    }
}

/// The mean of ratios over replications (runs with different seeds), with a 95 % confidence interval. The interval is
/// computed for the mean logarithm of the ratios and converted back to ratios, so that its ends are never negative.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct RatioInterval {
    /// The mean of the per-seed ratios.
    pub mean: f64,
    /// The lower end of the 95 % interval, at most the mean. `None` with one seed, or if this end is not finite.
    pub low: Option<f64>,
    /// The upper end of the 95 % interval, at least the mean. `None` with one seed, or if this end is not finite.
    pub high: Option<f64>,
    /// Number of replications (runs with different seeds) in the mean.
    pub n: usize,
}

impl RatioInterval {
    /// The mean of `ratios`, one for each seed, all above 0, with its 95 % confidence interval; `None` without ratios.
    pub fn of(ratios: &[f64]) -> Option<RatioInterval> {
        let mean = Interval::of(ratios)?.mean;
        let logs: Vec<f64> = ratios.iter().map(|r| r.ln()).collect();
        let log = Interval::of(&logs)?;
        let end = |sign: f64| log.half_width.map(|half| (log.mean + sign * half).exp()).filter(|end| end.is_finite());
        let (low, high) = (end(-1.0).map(|low| low.min(mean)), end(1.0).map(|high| high.max(mean)));
        Some(RatioInterval { mean, low, high, n: ratios.len() })
    }

    /// The mean and both ends of the confidence interval, each minus 1: a ratio of 1.2 becomes a gain of 0.2.
    pub fn excess(self) -> RatioInterval {
        let less = |x: f64| x - 1.0;
        RatioInterval { mean: less(self.mean), low: self.low.map(less), high: self.high.map(less), n: self.n }
    }
}

/// The 97.5 % quantile of Student's t with `df` degrees of freedom, from the standard table. For a `df` between two
/// rows of the table, the row with the smaller `df` is used. That never narrows an interval.
pub fn student_t_975(df: usize) -> f64 {
    const TABLE: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
        2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
    ];
    match df {
        0 => f64::INFINITY,
        1..=30 => TABLE[df - 1],
        31..=39 => 2.042,
        40..=59 => 2.021,
        60..=119 => 2.000,
        _ => 1.980,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_over_three_seeds_is_students() {
        let i = Interval::of(&[1.0, 2.0, 3.0]).unwrap();
        assert_eq!(i.mean, 2.0);
        // Half the width of the confidence interval is t · s / sqrt 3. t = 4.303 is Student's t with 2 degrees of
        // freedom, and s = 1 is the standard deviation of the three values.
        assert!((i.half_width.unwrap() - 4.303 / 3f64.sqrt()).abs() < 1e-12);
        assert_eq!(Interval::of(&[5.0]).unwrap().half_width, None);
        assert_eq!(Interval::of(&[]), None);
    }

    #[test]
    fn an_interval_ends_where_its_quantity_ends() {
        let ends = |range, values: &[f64]| Interval::within(range, values).unwrap().ends().unwrap();
        let shares = [0.0, 0.0, 0.1];
        assert!(Interval::of(&shares).unwrap().low.unwrap() < -0.1);
        assert_eq!(ends(Range::Share, &shares).0, 0.0);
        assert_eq!(ends(Range::Share, &[1.0, 1.0, 0.9]).1, 1.0);
        assert_eq!(ends(Range::Percent, &[100.0, 90.0]).1, 100.0);
        assert_eq!(ends(Range::FromOne, &[1.0, 1.2]).0, 1.0);
        assert_eq!(ends(Range::FromZero, &[0.0, 5.0]).0, 0.0);
        assert!(ends(Range::FromZero, &[0.0, 5.0]).1 > 5.0);
        assert!(Interval::within(Range::Share, &shares).unwrap().is_cut());
        let narrow = Interval::within(Range::Share, &[0.5, 0.5001, 0.5002]).unwrap();
        assert!(!narrow.is_cut() && narrow.ends() == Interval::of(&[0.5, 0.5001, 0.5002]).unwrap().ends());
        assert_eq!(Interval::within(Range::Share, &[0.5]).unwrap().ends(), None);
        assert!(!Interval::within(Range::Share, &[0.5]).unwrap().is_cut());
    }

    #[test]
    fn the_interval_of_ratios_is_that_of_their_logarithms() {
        let i = RatioInterval::of(&[0.5, 1.0, 2.0]).unwrap();
        // The logarithms of the three ratios are ln 0.5, 0 and ln 2: their mean is 0, and their standard deviation is
        // ln 2. Half the width of the confidence interval is t · ln 2 / sqrt 3, with Student's t = 4.303 for 2 degrees
        // of freedom.
        let half = 4.303 * 2f64.ln() / 3f64.sqrt();
        assert!((i.low.unwrap() - (-half).exp()).abs() < 1e-12 && (i.high.unwrap() - half.exp()).abs() < 1e-12);
        assert!((i.mean - 3.5 / 3.0).abs() < 1e-12);
        assert!((i.excess().mean - 0.5 / 3.0).abs() < 1e-12 && i.excess().low.unwrap() > -1.0);
        let one = RatioInterval::of(&[1.5]).unwrap();
        assert_eq!((one.mean, one.low, one.high, one.n), (1.5, None, None, 1));
        assert_eq!(RatioInterval::of(&[]), None);
    }

    /// The speedups of an overloaded run. An interval that is computed from the ratios themselves would end below zero.
    #[test]
    fn no_end_is_negative_and_the_mean_lies_between_them() {
        let wild = [4.1, 8.0, 13.1];
        let plain = Interval::of(&wild).unwrap();
        assert!(plain.mean - plain.half_width.unwrap() < 0.0);
        let i = RatioInterval::of(&wild).unwrap();
        assert!(i.low.unwrap() > 0.0 && i.low.unwrap() < i.mean && i.mean < i.high.unwrap(), "{i:?}");
        let skewed: Vec<f64> = (0..100).map(|seed| if seed == 0 { 1e6 } else { 1.0 }).collect();
        let i = RatioInterval::of(&skewed).unwrap();
        assert_eq!(i.high, Some(i.mean));
    }
}
