//! Student-t confidence intervals over seeds. One seed gives no interval.

/// A mean over replications with its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Interval {
    /// The mean of the per-seed values.
    pub mean: f64,
    /// Half the width of the 95 % interval; `None` with one seed.
    pub half_width: Option<f64>,
    /// Number of replications.
    pub n: usize,
}

impl Interval {
    /// The mean and interval of per-seed values; `None` if there are none.
    pub fn of(values: &[f64]) -> Option<Interval> {
        let n = values.len();
        if n == 0 {
            return None;
        }
        let mean = values.iter().sum::<f64>() / n as f64;
        let half_width = (n > 1).then(|| {
            let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1) as f64;
            student_t_975(n - 1) * (variance / n as f64).sqrt()
        });
        Some(Interval { mean, half_width, n })
    }
}

/// The 97.5 % quantile of Student's t with `df` degrees of freedom, from the standard table. Between rows of the table
/// the next smaller `df` is used, which never narrows an interval.
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
    fn three_seeds() {
        let i = Interval::of(&[1.0, 2.0, 3.0]).unwrap();
        assert_eq!(i.mean, 2.0);
        // t(2) · s / sqrt 3 with s = 1.
        assert!((i.half_width.unwrap() - 4.303 / 3f64.sqrt()).abs() < 1e-12);
        assert_eq!(Interval::of(&[5.0]).unwrap().half_width, None);
        assert_eq!(Interval::of(&[]), None);
    }
}
