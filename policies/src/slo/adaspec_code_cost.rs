//! The cost tables of AdaSpec's published code: times of captured graphs by sequence bucket and graph size.
//!
//! Source: cerebellumking/AdaSpec @f3f2f481, `vllm/spec_decode/` (docs/model.md 2.2). The code replays each captured
//! decode graph at a few sequence lengths. A verify pass has one row for each scored token, as in vLLM v0's batch
//! expansion, and is looked up by its number of rows. The average sequence length is the context divided by the padded
//! size, so it is too short if padding is large. Above the largest graph, a line fitted to the bucket's times is used.

use crate::shared::profile::{PassTimes, padded, uniform_pass};
use foretoken_sim::{ContextReads, PassShape};

/// Sequence lengths at which graphs are timed. A pass uses the largest of them that is not above its average sequence
/// length, or else the first.
const SEQ_BUCKETS: [u64; 5] = [1, 256, 512, 1024, 2048];

/// Graph sizes: 1, 2, 4, 8, 16, then multiples of 32 up to 1152.
fn graph_sizes() -> Vec<u32> {
    [1, 2, 4, 8, 16].into_iter().chain((32..=1152).step_by(32)).collect()
}

/// Seconds of one model's passes.
#[derive(Clone, Debug)]
struct GraphTimes {
    /// Seconds by sequence bucket, then by graph size.
    times: Vec<Vec<f64>>,
    /// By sequence bucket: (intercept, slope) of a line over the number of rows.
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

    /// Seconds of a pass over `rows` rows that attend to `context` tokens in total.
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

/// Least squares fit of `y` over `x`. Returns (intercept, slope).
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

/// The cost tables of the draft model and of the target model.
#[derive(Clone, Debug)]
pub(crate) struct CodeCosts {
    sizes: Vec<u32>,
    draft: GraphTimes,
    target: GraphTimes,
}

impl CodeCosts {
    /// Times all graphs of both models.
    pub(crate) fn measure(profile: &dyn PassTimes) -> CodeCosts {
        let sizes = graph_sizes();
        let draft = GraphTimes::measure(&sizes, |shape| profile.draft_s(shape));
        let target = GraphTimes::measure(&sizes, |shape| profile.target_s(shape));
        CodeCosts { sizes, draft, target }
    }

    /// Seconds of `passes` draft passes over `requests` requests. Each pass costs as much as the last one, in which the
    /// requests have `context` tokens in total.
    pub(crate) fn draft_s(&self, passes: u32, requests: u32, context: u64) -> f64 {
        match passes {
            0 => 0.0,
            _ => f64::from(passes) * self.draft.s(&self.sizes, requests, context),
        }
    }

    /// Seconds of a target pass over `rows` scored tokens that attend to `context` tokens in total.
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
        // 40 rows are padded to 64. 40 · 900 tokens of context over 64 rows are 562 on average, which uses the bucket
        // 512.
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
        // The belief is linear in the rows at a fixed sequence, so the line is exact.
        assert!((costs.verify_s(2000, 2000 * 600) - (8e-3 + 40e-6 * 2000.0 + 1e-7 * 2000.0 * 512.0)).abs() < 1e-9);
        assert_eq!(line(&[1, 2, 3], &[2.0, 2.0, 5.0]), (0.0, 1.5));
    }
}
