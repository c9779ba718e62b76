//! The cost tables of AdaSpec's published code: pass times by size of the captured CUDA graph and by sequence bucket,
//! that is, a sequence length at which the graphs are timed.
//!
//! Source: cerebellumking/AdaSpec @f3f2f481, `vllm/spec_decode/` (docs/model.md 2.2). The code replays each captured
//! decode graph at a few sequence lengths. A verify pass has one row for each scored token, as in vLLM v0's batch
//! expansion, and is looked up by its number of rows. The average sequence length is the context divided by the padded
//! size, so it is too short if padding is large. Above the largest graph, a line fitted to the bucket's times is used.

use crate::shared::profile::{PassTimes, padded, uniform_pass};
use foretoken_sim::{ContextReads, PassShape};

/// Sequence lengths, in tokens, at which CUDA graphs are timed. A pass takes the times of the greatest of these lengths
/// that is not above its average sequence length. If all are above, it takes the times of the first length.
const SEQ_BUCKETS: [u64; 5] = [1, 256, 512, 1024, 2048];

/// Sizes of the captured CUDA graphs, in rows (tokens of the batch): 1, 2, 4, 8, 16, then multiples of 32 up to 1152.
fn graph_sizes() -> Vec<u32> {
    [1, 2, 4, 8, 16].into_iter().chain((32..=1152).step_by(32)).collect()
}

/// Seconds of the passes of one model (draft or target), by sequence bucket (a length at which graphs are timed) and
/// CUDA-graph size.
#[derive(Clone, Debug)]
struct GraphTimes {
    /// For each sequence bucket (a length at which graphs are timed) and each CUDA-graph size: seconds of the pass.
    times: Vec<Vec<f64>>,
    /// For each sequence bucket (a length at which graphs are timed): (intercept, slope) of the line that is fitted to
    /// the bucket's pass times, in seconds, over the number of rows.
    lines: Vec<(f64, f64)>,
}

impl GraphTimes {
    fn measure(sizes: &[u32], pass_s: impl Fn(PassShape) -> f64) -> GraphTimes {
        let row = |&seq: &u64| -> Vec<f64> {
            sizes.iter().map(|&rows| pass_s(uniform_pass(u64::from(rows), 1, seq, ContextReads::Once))).collect()
        };
        let times: Vec<Vec<f64>> = SEQ_BUCKETS.iter().map(row).collect();
        GraphTimes { lines: times.iter().map(|row| line(sizes, row)).collect(), times }
    }

    /// Seconds of a pass over `rows` rows (tokens of the batch) that attend to `context` KV tokens in total.
    fn s(&self, sizes: &[u32], rows: u32, context: u64) -> f64 {
        let graph = padded(sizes, rows);
        let average = context / u64::from(graph.max(1));
        let bucket = SEQ_BUCKETS.partition_point(|&bucket| bucket <= average).saturating_sub(1);
        match sizes.binary_search(&graph) {
            Ok(size) => self.times[bucket][size],
            Err(_) => self.lines[bucket].0 + self.lines[bucket].1 * f64::from(graph),
        }
    }
}

/// Fits a line to the points (x, y) by least squares. Returns (intercept, slope).
fn line(x: &[u32], y: &[f64]) -> (f64, f64) {
    let n = x.len() as f64;
    let mean_x = x.iter().map(|&x| f64::from(x)).sum::<f64>() / n;
    let mean_y = y.iter().sum::<f64>() / n;
    let moment = |f: &dyn Fn(f64, f64) -> f64| -> f64 {
        x.iter().zip(y).map(|(&x, &y)| f(f64::from(x) - mean_x, y - mean_y)).sum()
    };
    let slope = moment(&|x, y| x * y) / moment(&|x, _| x * x);
    (mean_y - slope * mean_x, slope)
}

/// The tables of pass times of the draft model and of the target model, as AdaSpec's code has them.
#[derive(Clone, Debug)]
pub(crate) struct CodeCosts {
    sizes: Vec<u32>,
    draft: GraphTimes,
    target: GraphTimes,
}

impl CodeCosts {
    /// Times the captured CUDA graphs of all sizes at all sequence buckets (a few sequence lengths), for the draft
    /// model and the target model.
    pub(crate) fn measure(profile: &dyn PassTimes) -> CodeCosts {
        let sizes = graph_sizes();
        let draft = GraphTimes::measure(&sizes, |shape| profile.draft_s(shape));
        let target = GraphTimes::measure(&sizes, |shape| profile.target_s(shape));
        CodeCosts { sizes, draft, target }
    }

    /// Seconds of `passes` draft passes over `requests` requests. Each pass costs as much as the last one, in which the
    /// requests have `context` KV tokens in total.
    pub(crate) fn draft_s(&self, passes: u32, requests: u32, context: u64) -> f64 {
        match passes {
            0 => 0.0,
            _ => f64::from(passes) * self.draft.s(&self.sizes, requests, context),
        }
    }

    /// Seconds of a target pass over `rows` scored tokens (draft tokens and one more per request) that attend to
    /// `context` KV tokens in total.
    pub(crate) fn verify_s(&self, rows: u32, context: u64) -> f64 {
        self.target.s(&self.sizes, rows, context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{BELIEF, close};

    #[test]
    fn lookups_floor_the_sequence_and_pad_the_rows() {
        let costs = CodeCosts::measure(&BELIEF);
        let target = |rows: f64, seq: f64| 8e-3 + 40e-6 * rows + 1e-7 * rows * seq;
        // A verify pass of 40 rows is padded to a CUDA graph of 64 rows. 40 · 900 tokens of context over 64 rows are
        // 562 on average, so the pass takes the time that was measured at the sequence length 512.
        assert!(close(costs.verify_s(40, 36_000), target(64.0, 512.0)));
        assert!(close(costs.verify_s(16, 16 * 255), target(16.0, 1.0)));
        assert!(close(costs.verify_s(16, 16 * 256), target(16.0, 256.0)));
        assert!(close(costs.verify_s(1, 1_000_000), target(1.0, 2048.0)), "beyond the last bucket");
        assert!(close(costs.verify_s(3, 0), target(4.0, 1.0)), "below the first");
        let draft = |rows: f64, seq: f64| 0.5e-3 + 2e-6 * rows + 1e-9 * rows * seq;
        assert!(close(costs.draft_s(3, 5, 5 * 600), 3.0 * draft(8.0, 256.0)));
        assert_eq!(costs.draft_s(0, 5, 3000), 0.0);
    }

    #[test]
    fn beyond_the_graphs_a_fitted_line_goes_on() {
        let costs = CodeCosts::measure(&BELIEF);
        // In this cost model the pass time is linear in the rows at a fixed sequence length, so the line that is fitted
        // to the measured times is exact.
        assert!((costs.verify_s(2000, 2000 * 600) - (8e-3 + 40e-6 * 2000.0 + 1e-7 * 2000.0 * 512.0)).abs() < 1e-9);
        assert_eq!(line(&[1, 2, 3], &[2.0, 2.0, 5.0]), (0.0, 1.5));
    }
}
