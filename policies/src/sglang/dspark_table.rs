//! DSpark's two forms of cost table, by which it decides how many draft tokens are verified: steps per second by number
//! of tokens, or the seconds of a step as a sum.
//!
//! Source: SGLang 0.5.23 `srt/speculative/dspark_components/dspark_sps.py`. The first form is constant from each
//! measured point up to the next. The second form is a constant plus an amount by the number of requests and an amount
//! by the number of tokens of the pass. Both amounts are interpolated between measured points and constant beyond them.

use crate::definition::PolicyContext;
use crate::shared::profile::capture_sizes;
use crate::shared::timed_batch::TimedBatch;
use serde::{Deserialize, Serialize};

/// Where the policy takes the time of a step from. By this time it decides how many draft tokens are verified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SpsTable {
    /// A table of steps per second by number of tokens of the target pass, which is timed at start-up.
    #[default]
    Profiled,
    /// The sum of two times that are measured at start-up: drafting, by number of requests, and the target pass, by
    /// number of tokens.
    Additive,
    /// Every step takes the same time, as in SGLang without a table.
    Flat,
}

/// The time of a step, by its number of requests and the number of tokens of its target pass.
#[derive(Clone, Debug)]
pub(crate) enum CostTable {
    /// Steps per second by number of tokens of the target pass. Each value of `steps_per_s` holds from its number of
    /// tokens up to the next number in `tokens`.
    Steps { tokens: Vec<u32>, steps_per_s: Vec<f64> },
    /// Seconds of a step: the constant `bias_s`, plus a part by the number of requests and a part by the number of
    /// tokens of the target pass. The two parts are lists of points (requests, seconds) and (tokens, seconds).
    Sum { bias_s: f64, by_requests: Vec<(u32, f64)>, by_tokens: Vec<(u32, f64)> },
}

impl CostTable {
    /// Builds the table of step times for blocks of `gamma` draft tokens per request. The requests over which passes
    /// are timed are made up and have `kv` KV tokens each.
    pub(crate) fn build(table: SpsTable, context: &PolicyContext, gamma: u32, kv: u32) -> CostTable {
        match table {
            SpsTable::Flat => CostTable::Steps { tokens: vec![1], steps_per_s: vec![1.0] },
            SpsTable::Profiled => {
                let tokens = sizes(context);
                let times = |&n: &u32| {
                    let (requests, batch) = timed_batch(context, n.div_ceil(gamma + 1), kv);
                    1.0 / (drafting_s(context, batch, requests, gamma) + target_s(context, batch, n))
                };
                let steps_per_s = tokens.iter().map(times).collect();
                CostTable::Steps { tokens, steps_per_s }
            }
            SpsTable::Additive => {
                let by_requests = sizes(context).into_iter().filter(|&n| n <= context.max_num_seqs).map(|n| {
                    let (requests, batch) = timed_batch(context, n, kv);
                    (n, drafting_s(context, batch, requests, gamma))
                });
                let by_tokens = sizes(context).into_iter().map(|n| {
                    let (_, batch) = timed_batch(context, n.div_ceil(gamma + 1), kv);
                    (n, target_s(context, batch, n))
                });
                CostTable::Sum { bias_s: 0.0, by_requests: by_requests.collect(), by_tokens: by_tokens.collect() }
            }
        }
    }

    /// True if the table has a single number of steps per second, so that every step takes the same time.
    pub(crate) fn is_flat(&self) -> bool {
        matches!(self, CostTable::Steps { tokens, .. } if tokens.len() == 1)
    }

    /// Tokens per second of a step of `requests` requests whose target pass has `tokens` tokens, if it emits `expected`
    /// tokens.
    #[inline]
    pub(crate) fn rate(&self, expected: f64, requests: usize, tokens: usize) -> f64 {
        match self {
            CostTable::Steps { tokens: probes, steps_per_s } => {
                let above = probes.partition_point(|&probe| probe as usize <= tokens);
                expected * steps_per_s[above.saturating_sub(1)]
            }
            CostTable::Sum { bias_s, by_requests, by_tokens } => {
                expected / (bias_s + interpolated(by_requests, requests) + interpolated(by_tokens, tokens))
            }
        }
    }
}

/// The value at `at` of a curve of (size of a pass in requests or tokens, seconds): interpolated between the curve's
/// points, constant beyond its ends.
fn interpolated(curve: &[(u32, f64)], at: usize) -> f64 {
    let after = curve.partition_point(|&(x, _)| x as usize <= at);
    let (Some(&(x0, y0)), Some(&(x1, y1))) = (curve.get(after.wrapping_sub(1)), curve.get(after)) else {
        return curve[after.saturating_sub(1)].1;
    };
    y0 + (at as f64 - f64::from(x0)) / f64::from(x1 - x0) * (y1 - y0)
}

/// The sizes of target passes, in tokens, that SGLang times at start-up: dense for small passes, sparse for large ones,
/// and `most` as the last.
fn sweep(most: u32) -> Vec<u32> {
    let ranges =
        [(12, 128, 4), (128, 256, 16), (256, 1024, 32), (1024, 2048, 128), (2048, most.saturating_add(1), 256)];
    let steps = ranges.into_iter().flat_map(|(from, to, by)| (from..to.max(from)).step_by(by));
    let mut sweep: Vec<u32> = [1, 2, 4, 8].into_iter().chain(steps).filter(|&n| n <= most).collect();
    if sweep.last() != Some(&most) {
        sweep.push(most);
    }
    sweep
}

/// The sizes of target passes, in tokens, that are timed for the cost table: those that SGLang times. Under the command
/// `foretoken decide` (one decision on a given batch) the captured CUDA-graph sizes replace these sizes up to the
/// largest captured one.
fn sizes(context: &PolicyContext) -> Vec<u32> {
    let mut tokens = sweep(context.max_num_batched_tokens.max(1));
    if context.told.is_some() {
        let captured = capture_sizes(context.max_num_seqs);
        tokens.retain(|n| captured.last() < Some(n));
        tokens.splice(..0, captured);
    }
    tokens
}

/// The batch whose passes are timed, and its number of requests: the batch given to the command `foretoken decide`, or
/// `requests` made-up requests of `kv` KV tokens each, at most `max_num_seqs`.
fn timed_batch<'a>(context: &PolicyContext<'a>, requests: u32, kv: u32) -> (u32, TimedBatch<'a>) {
    match TimedBatch::of(context, kv) {
        TimedBatch::MadeUp { context, most } => {
            let requests = requests.min(most);
            (requests, TimedBatch::MadeUp { most: requests, context })
        }
        TimedBatch::Given(contexts) => (contexts.len() as u32, TimedBatch::Given(contexts)),
    }
}

fn drafting_s(context: &PolicyContext, batch: TimedBatch, requests: u32, gamma: u32) -> f64 {
    batch.drafting_s(context.profile, context.belief.drafting, requests, gamma)
}

fn target_s(context: &PolicyContext, batch: TimedBatch, tokens: u32) -> f64 {
    context.profile.target_s(batch.target_pass(tokens, context.profile.context_reads()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{CONTEXT, close};

    #[test]
    fn the_sweep_is_sglangs() {
        let made = sweep(2500);
        assert_eq!(made[..6], [1, 2, 4, 8, 12, 16]);
        assert_eq!(made[made.len() - 3..], [2048, 2304, 2500]);
        assert!(made.windows(2).all(|w| w[0] < w[1]));
        assert_eq!((sweep(1), sweep(10)), (vec![1], vec![1, 2, 4, 8, 10]));
    }

    #[test]
    fn rates_hold_from_each_probe_on() {
        let table = CostTable::Steps { tokens: vec![2, 8, 12], steps_per_s: vec![30.0, 20.0, 10.0] };
        let rates = [0, 1, 2, 7, 8, 11, 12, 99].map(|n| table.rate(1.0, 1, n));
        assert_eq!(rates, [30.0, 30.0, 30.0, 30.0, 20.0, 20.0, 10.0, 10.0]);
    }

    #[test]
    fn sums_are_interpolated_and_level_at_the_ends() {
        let table = CostTable::Sum {
            bias_s: 0.5,
            by_requests: vec![(2, 0.25), (4, 0.75)],
            by_tokens: vec![(4, 1.0), (8, 2.0)],
        };
        let seconds = |requests, tokens| 1.0 / table.rate(1.0, requests, tokens);
        for (requests, tokens, expected) in [(1, 1, 1.75), (3, 4, 2.0), (4, 6, 2.75), (9, 99, 3.25)] {
            assert!(close(seconds(requests, tokens), expected), "{requests} requests, {tokens} tokens");
        }
    }

    #[test]
    fn measured_rates_are_those_of_whole_blocks() {
        let table = CostTable::build(SpsTable::Profiled, &CONTEXT, 3, 2048);
        // A step with a target pass of 8 tokens: two requests, each with a block of 3 draft tokens and its newest
        // token.
        let drafting = |n: f64| (0..3).map(|j| 0.5e-3 + 2e-6 * n + 1e-9 * n * (2048.0 + f64::from(j))).sum::<f64>();
        let target = |n: f64, tokens: f64| 8e-3 + 40e-6 * tokens + 1e-7 * n * 2048.0;
        let step_s = drafting(2.0) + target(2.0, 8.0);
        assert!(close(table.rate(1.0, 2, 8), 1.0 / step_s) && close(table.rate(1.0, 2, 11), 1.0 / step_s));
        // The table `Additive` adds up the two parts of a step's time: drafting by number of requests, and the target
        // pass by number of tokens.
        let table = CostTable::build(SpsTable::Additive, &CONTEXT, 3, 2048);
        assert!(close(table.rate(3.0, 4, 8), 3.0 / (drafting(4.0) + target(2.0, 8.0))));
        let between = (target(2.0, 8.0) + target(3.0, 12.0)) / 2.0;
        assert!(close(table.rate(3.0, 4, 10), 3.0 / (drafting(4.0) + between)));
    }
}
