//! The time of a step as a linear function of its prompt tokens and of the decoding requests' tokens in KV, fitted to
//! observed steps.
//!
//! Source: ai-dynamo/dynamo, `components/src/dynamo/planner/core/perf_model/base.py` at 439d6458 (samples, fit) and
//! `perf_model/agg.py` at 518a7027 (the estimates of latency).

use std::collections::{BTreeMap, VecDeque};

/// A sample of step times: ([prompt tokens of a step, tokens in KV of its decoding requests], seconds of the step).
pub(super) type Sample = ([f64; 2], f64);

/// When too many samples of step times are kept, they are sorted into this number of buckets on each of two axes,
/// prompt tokens and tokens in KV. The number is the square root of Dynamo's `fpm_sample_bucket_size` = 16.
const BUCKETS: f64 = 4.0;
/// The shortest predicted time of a step, seconds.
const SHORTEST_S: f64 = 1e-6;

/// The samples of step times, and the linear fit to them.
pub(super) struct StepModel {
    /// The samples of step times, the oldest first.
    samples: VecDeque<Sample>,
    most: usize,
    fewest: usize,
    low: [f64; 2],
    high: [f64; 2],
    /// The fit: seconds of a step without tokens, seconds per prompt token, seconds per token in KV. `None` before a
    /// fit, or if a coefficient would be negative.
    fit: Option<[f64; 3]>,
}

impl StepModel {
    /// A model without samples of step times. It keeps at most `most` samples, and fits once it has `fewest`.
    pub fn new(most: usize, fewest: usize) -> StepModel {
        let (low, high) = ([f64::INFINITY; 2], [f64::NEG_INFINITY; 2]);
        StepModel { samples: VecDeque::new(), most, fewest, low, high, fit: None }
    }

    /// Adds a sample of step times. If there are then more than `most` samples, removes the oldest sample of the bucket
    /// with the most samples. If several buckets have the most, takes the bucket that has the oldest sample.
    pub fn add(&mut self, sample: Sample) {
        for axis in 0..2 {
            self.low[axis] = self.low[axis].min(sample.0[axis]);
            self.high[axis] = self.high[axis].max(sample.0[axis]);
        }
        self.samples.push_back(sample);
        if self.samples.len() > self.most {
            let mut buckets: BTreeMap<[u8; 2], (usize, usize)> = BTreeMap::new();
            for (i, (x, _)) in self.samples.iter().enumerate() {
                buckets.entry(self.bucket(*x)).or_insert((0, i)).0 += 1;
            }
            let fullest = buckets.values().max_by_key(|(count, oldest)| (*count, usize::MAX - oldest));
            self.samples.remove(fullest.expect("there are samples").1);
        }
        self.fit = None;
    }

    /// Are there enough samples of step times for a fit?
    pub fn has_enough(&self) -> bool {
        self.samples.len() >= self.fewest
    }

    /// Fits the step times to the samples, unless the fit is up to date. Returns false if there is no usable fit: there
    /// are too few samples, or a coefficient would be negative (more tokens would take less time).
    pub fn fits(&mut self) -> bool {
        if self.fit.is_none() && self.has_enough() {
            self.fit = least_squares(&self.samples).filter(|fit| fit[1] >= 0.0 && fit[2] >= 0.0);
        }
        self.fit.is_some()
    }

    /// The predicted time of a step, seconds. The caller must have made sure that there is a fit
    /// ([`fits`](StepModel::fits)).
    pub fn step_s(&self, prompt_tokens: f64, kv_tokens: f64) -> f64 {
        let [constant, prompt, kv] = self.fit.expect("the caller asked whether it fits");
        (constant + prompt * prompt_tokens + kv * kv_tokens).max(SHORTEST_S)
    }

    /// The seconds to compute `tokens` prompt tokens in steps of at most `budget` prompt tokens each. In every step the
    /// decoding requests have `kv_tokens` tokens in KV.
    pub fn prompts_s(&self, tokens: f64, budget: f64, kv_tokens: f64) -> f64 {
        let (mut left, mut sum) = (tokens, 0.0);
        while left > 0.0 {
            sum += self.step_s(left.min(budget), kv_tokens);
            left -= budget;
        }
        sum
    }

    fn bucket(&self, x: [f64; 2]) -> [u8; 2] {
        std::array::from_fn(|axis| {
            let width = self.high[axis] - self.low[axis];
            if width <= 0.0 { 0 } else { ((x[axis] - self.low[axis]) / width * BUCKETS).min(BUCKETS - 1.0) as u8 }
        })
    }
}

/// Fits seconds = constant + a · prompt tokens + b · tokens in KV by ordinary least squares. If the samples do not
/// determine the coefficients, takes the solution with the smallest a² + b². `None` without samples.
fn least_squares(samples: &VecDeque<Sample>) -> Option<[f64; 3]> {
    let n = samples.len() as f64;
    if n == 0.0 {
        return None;
    }
    let mean = |of: fn(&Sample) -> f64| samples.iter().map(of).sum::<f64>() / n;
    let (mx, mz, my) = (mean(|s| s.0[0]), mean(|s| s.0[1]), mean(|s| s.1));
    let (mut xx, mut xz, mut zz, mut xy, mut zy) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for ([x, z], y) in samples {
        let (x, z, y) = (x - mx, z - mz, y - my);
        xx += x * x;
        xz += x * z;
        zz += z * z;
        xy += x * y;
        zy += z * y;
    }
    let determinant = xx * zz - xz * xz;
    let [a, b] = if determinant > 1e-12 * xx * zz {
        [(zz * xy - xz * zy) / determinant, (xx * zy - xz * xy) / determinant]
    } else {
        // The matrix of second moments has rank 1 at most. Then its pseudo-inverse is the matrix divided by the square
        // of its trace.
        let trace = xx + zz;
        if trace > 0.0 {
            [(xx * xy + xz * zy) / (trace * trace), (xz * xy + zz * zy) / (trace * trace)]
        } else {
            [0.0; 2]
        }
    };
    Some([my - a * mx - b * mz, a, b])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fit_finds_the_line_and_refuses_negative_costs() {
        let mut model = StepModel::new(64, 5);
        for i in 0..8 {
            let x = [f64::from(i % 3) * 100.0, f64::from(i) * 1000.0];
            model.add((x, 0.01 + 2e-5 * x[0] + 1e-7 * x[1]));
            assert_eq!(model.fits(), i >= 4);
        }
        assert!((model.step_s(50.0, 500.0) - (0.01 + 1e-3 + 5e-5)).abs() < 1e-9);
        assert!((model.prompts_s(250.0, 100.0, 0.0) - (3.0 * 0.01 + 250.0 * 2e-5)).abs() < 1e-9);
        let mut worse = StepModel::new(64, 5);
        (0..8).for_each(|i| worse.add(([f64::from(i), 0.0], 1.0 - 0.1 * f64::from(i))));
        assert!(!worse.fits());
    }

    #[test]
    fn samples_of_rare_loads_stay() {
        let mut model = StepModel::new(10, 5);
        model.add(([0.0, 0.0], 0.01));
        (0..50).for_each(|i| model.add(([100.0, 1000.0 + f64::from(i % 2)], 0.02)));
        assert_eq!(model.samples.len(), 10);
        assert_eq!(model.samples[0].0, [0.0, 0.0]);
    }
}
