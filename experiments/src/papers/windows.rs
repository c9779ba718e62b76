//! Draft lengths over time: the run is cut into windows, and those whose batch size is in a range are looked at, as a
//! monitor that reads both every few seconds sees them (AdaSpec, section 7.4).

use super::measure::{At, Measured, Results, variants};
use foretoken_sim::metrics::{Bin, Series, quantile_sorted};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The 10th to the 90th percentile of a policy's mean draft length in windows of `seconds`, over windows whose mean batch
/// size is from `batch[0]` to below `batch[1]`, of all seeds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Windows {
    /// Label of the policy.
    pub policy: String,
    /// Length of a window.
    pub seconds: f64,
    /// Batch sizes.
    pub batch: [f64; 2],
    /// Which variants.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(with = "BTreeMap<String, serde_json::Value>")]
    pub at: At,
}

/// Shares of the windows below and above which lengths are left out as rare.
const USUAL: [f64; 2] = [0.1, 0.9];

impl Windows {
    /// Measures it.
    pub fn of(&self, results: Results) -> Measured {
        let cells = variants(results.plan, &self.at).flat_map(|v| results.cells_of(v, &self.policy));
        let mut lengths: Vec<f64> = cells.flat_map(|c| self.lengths(&c.series)).collect();
        lengths.sort_by(f64::total_cmp);
        match lengths.is_empty() {
            true => Measured::Nothing,
            false => {
                let [low, high] = USUAL.map(|share| quantile_sorted(&lengths, share));
                Measured::Numbers(Some(low), Some(high))
            }
        }
    }

    fn lengths(&self, series: &Series) -> Vec<f64> {
        let bins = (self.seconds / series.width.as_s()).round().max(1.0) as usize;
        series.bins.chunks(bins).filter_map(|window| self.length(window)).collect()
    }

    /// The mean draft length of a window, if its batch size is in the range.
    fn length(&self, window: &[Bin]) -> Option<f64> {
        let sum = |f: fn(&Bin) -> f64| window.iter().map(f).sum::<f64>();
        let (busy, steps) = (sum(|b| b.busy as f64), sum(|b| b.request_steps as f64));
        let batch = sum(|b| b.batch_time as f64) / busy;
        let inside = steps > 0.0 && (self.batch[0]..self.batch[1]).contains(&batch);
        inside.then(|| sum(|b| b.drafted as f64) / steps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foretoken_sim::{StepRecord, Time};

    #[test]
    fn windows_outside_the_range_of_batch_sizes_are_left_out() {
        let mut series = Series::default();
        // Four windows of 2 s: batches of 4, 12, 12, 4 that draft 6, 2, 4, 6 tokens a request.
        for (window, (batch, drafts)) in [(4, 6), (12, 2), (12, 4), (4, 6)].into_iter().enumerate() {
            for tick in 0..4 {
                let start = Time::from_s(window as f64 * 2.0 + f64::from(tick) * 0.5);
                let end = start + Time::from_s(0.25);
                let step =
                    StepRecord { start, end, batch_size: batch, drafted: batch * drafts, ..StepRecord::default() };
                series.step(&step);
            }
        }
        let of = |low, high| {
            let w = Windows { policy: String::new(), seconds: 2.0, batch: [low, high], at: BTreeMap::new() };
            w.lengths(&series)
        };
        assert_eq!(of(10.0, 20.0), [2.0, 4.0]);
        assert_eq!(of(0.0, 10.0), [6.0, 6.0]);
        assert!(of(20.0, 30.0).is_empty());
    }
}
