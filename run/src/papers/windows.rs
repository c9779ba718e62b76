//! Draft lengths over time. A run is cut into windows of a few seconds, as a monitoring tool does. Only windows whose
//! mean batch size is in a given range count (AdaSpec, section 7.4).

use super::results::{Measured, Results};
use crate::plan::variants;
use crate::spec::paper::Windows;
use foretoken_sim::metrics::{Bin, Series, quantile_sorted};

/// Quantiles of the mean draft lengths in windows (a few seconds of a run each) that bound the usual range. Draft
/// lengths below the first quantile and above the second are rare and are left out.
const USUAL: [f64; 2] = [0.1, 0.9];

/// The range between the two quantiles [`USUAL`] of the windows' mean draft lengths, over all seeds and all variants
/// that have the swept values in `what.at`. A window is a few seconds of a run.
pub fn lengths(what: &Windows, results: Results) -> Measured {
    let cells = variants(results.plan, &what.at).flat_map(|v| results.cells_of(v, &what.policy));
    let mut lengths: Vec<f64> = cells.flat_map(|c| of_series(what, &c.series)).collect();
    lengths.sort_by(f64::total_cmp);
    match lengths.is_empty() {
        true => Measured::Nothing,
        false => {
            let [low, high] = USUAL.map(|share| quantile_sorted(&lengths, share));
            Measured::Numbers(Some(low), Some(high))
        }
    }
}

fn of_series(what: &Windows, series: &Series) -> Vec<f64> {
    let bins = (what.seconds / series.width.as_s()).round().max(1.0) as usize;
    series.bins.chunks(bins).filter_map(|window| of_window(what, window)).collect()
}

/// The mean draft length of a window (a few seconds of a run). `None` if the window's mean batch size is outside the
/// range that `what` gives, or if nothing decodes in it.
fn of_window(what: &Windows, window: &[Bin]) -> Option<f64> {
    let sum = |f: fn(&Bin) -> f64| window.iter().map(f).sum::<f64>();
    let (busy, steps) = (sum(|b| b.busy as f64), sum(|b| b.request_steps as f64));
    let batch = sum(|b| b.batch_time as f64) / busy;
    let inside = steps > 0.0 && (what.batch[0]..what.batch[1]).contains(&batch);
    inside.then(|| sum(|b| b.drafted as f64) / steps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::paper::At;
    use foretoken_sim::{StepRecord, Time};

    #[test]
    fn windows_outside_the_range_of_batch_sizes_are_left_out() {
        let mut series = Series::default();
        // The run is cut into four windows of 2 s. In the steps of window 1 to 4, the batch has 4, 12, 12 and 4
        // requests, and each request drafts 6, 2, 4 and 6 tokens.
        for (window, (batch, drafts)) in [(4, 6), (12, 2), (12, 4), (4, 6)].into_iter().enumerate() {
            for tick in 0..4 {
                let start = Time::from_s(window as f64 * 2.0 + f64::from(tick) * 0.5);
                let end = start + Time::from_s(0.25);
                let step =
                    StepRecord { start, end, batch_size: batch, drafted: batch * drafts, ..StepRecord::default() };
                series.step(&step);
            }
        }
        let lengths_within = |low, high| {
            let w = Windows { policy: String::new(), seconds: 2.0, batch: [low, high], at: At::new() };
            of_series(&w, &series)
        };
        assert_eq!(lengths_within(10.0, 20.0), [2.0, 4.0]);
        assert_eq!(lengths_within(0.0, 10.0), [6.0, 6.0]);
        assert!(lengths_within(20.0, 30.0).is_empty());
    }
}
