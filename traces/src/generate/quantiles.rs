//! A distribution that is given by its quantiles. Also the normal distribution function, which is used to draw two
//! lengths with a given rank correlation (Gaussian copula).

/// A distribution as a table of quantiles at increasing percentages. Between two percentages the quantile is
/// interpolated linearly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantiles {
    /// The percentages, from 0 to 100, at which the distribution's quantiles are given.
    pub percent: &'static [f64],
    /// The quantile (the value that this share of draws does not exceed) at each of the percentages.
    pub value: &'static [f64],
}

impl Quantiles {
    /// The quantile at `u`, from 0 to 1: the value that a draw does not exceed with probability `u`.
    pub fn at(&self, u: f64) -> f64 {
        let percent = 100.0 * u;
        let above = self.percent.partition_point(|&p| p <= percent).clamp(1, self.percent.len() - 1);
        let (p, v) = (&self.percent[above - 1..=above], &self.value[above - 1..=above]);
        let share = ((percent - p[0]) / (p[1] - p[0])).clamp(0.0, 1.0);
        v[0] + share * (v[1] - v[0])
    }

    /// The mean of the distribution: the area under the quantile function.
    pub fn mean(&self) -> f64 {
        let pieces = self.percent.windows(2).zip(self.value.windows(2));
        pieces.map(|(p, v)| (p[1] - p[0]) / 100.0 * (v[0] + v[1]) / 2.0).sum()
    }
}

/// The normal distribution function Φ(z), with an error of at most 7.5e-8: Abramowitz and Stegun, Handbook of
/// Mathematical Functions, 26.2.17.
pub(super) fn normal_cdf(z: f64) -> f64 {
    const B: [f64; 5] = [0.319381530, -0.356563782, 1.781477937, -1.821255978, 1.330274429];
    let t = 1.0 / (1.0 + 0.2316419 * z.abs());
    let density = (-0.5 * z * z).exp() / (2.0 * std::f64::consts::PI).sqrt();
    let tail = density * t * B.iter().rev().fold(0.0, |sum, b| sum * t + b);
    if z > 0.0 { 1.0 - tail } else { tail }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_pass_through_the_knots() {
        let q = Quantiles { percent: &[0.0, 50.0, 100.0], value: &[1.0, 3.0, 11.0] };
        assert_eq!([0.0, 0.25, 0.5, 0.75, 1.0].map(|u| q.at(u)), [1.0, 2.0, 3.0, 7.0, 11.0]);
        assert_eq!(q.mean(), 0.5 * 2.0 + 0.5 * 7.0);
    }

    #[test]
    fn normal_cdf_has_its_known_values() {
        for (z, p) in [(0.0, 0.5), (1.0, 0.841344746), (-1.959963985, 0.025), (3.0, 0.998650102)] {
            assert!((normal_cdf(z) - p).abs() < 1e-7, "{z}");
        }
    }
}
