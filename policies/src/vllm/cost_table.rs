//! The cost tables of vLLM's adaptive verification: the time of a pass by its size, measured when the server starts.
//!
//! Source: vllm-project/vllm PR #47808, `v1/worker/gpu/spec_decode/adaptive_verification.py` and its docs
//! (docs/model.md 6.2). Passes are timed at the captured sizes and, beyond them, at 1.5, 2, 4 … times the largest up to
//! the token budget. A running maximum makes the times monotone. Up to the largest captured size a pass is padded, so a
//! size costs the same as the next captured one. Above it there is no padding. Times there are interpolated among the
//! points above the largest captured size only, so that the jump at this size stays.

use crate::definition::PolicyContext;
use crate::shared::profile::capture_sizes;
use crate::shared::timed_batch::TimedBatch;
use serde::{Deserialize, Serialize};

/// How the time of a pass is found if its size (requests or tokens) was not measured at start-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CostLookup {
    /// A pass takes the time of the next larger captured CUDA-graph size; above the largest captured size, times are
    /// interpolated.
    #[default]
    Staircase,
    /// Pass times are interpolated at all sizes, as in an earlier revision of vLLM; for ablations.
    Linear,
}

/// The seconds of a pass by its size (number of requests or of tokens), as a table.
#[derive(Clone, Debug)]
pub(crate) struct CostTable {
    at: Vec<f64>,
    /// For sizes beyond the table: the seconds that each further unit of size (request or token) adds to the pass.
    slope: f64,
}

impl CostTable {
    /// Builds the table of pass times for sizes from 0 to `most`. `curve` has the measured (size, seconds) points in
    /// rising order; sizes up to `captured` are captured CUDA graphs.
    pub(crate) fn new(curve: &[(u32, f64)], most: u32, captured: u32, lookup: CostLookup) -> CostTable {
        let mut curve = curve.to_vec();
        let mut greatest = 0.0f64;
        for (_, seconds) in &mut curve {
            greatest = greatest.max(*seconds);
            *seconds = greatest;
        }
        let (last, last_s) = *curve.last().expect("a curve has points");
        let slope = match curve.iter().rev().nth(1) {
            Some(&(before, before_s)) => (last_s - before_s) / f64::from(last - before),
            None => 0.0,
        };
        let above = &curve[curve.partition_point(|&(size, _)| size <= captured)..];
        let at = (0..=most).map(|size| {
            if size > last {
                return last_s + slope * f64::from(size - last);
            }
            let next_s = || curve[curve.partition_point(|&(x, _)| x < size)].1;
            match lookup {
                CostLookup::Linear => interpolated(&curve, size),
                CostLookup::Staircase if size > captured && !above.is_empty() => interpolated(above, size),
                CostLookup::Staircase => next_s(),
            }
        });
        CostTable { at: at.collect(), slope }
    }

    /// Returns the seconds of a pass of this size (number of requests or of tokens).
    #[inline]
    pub(crate) fn s(&self, size: usize) -> f64 {
        match self.at.get(size) {
            Some(&seconds) => seconds,
            None => self.at[self.at.len() - 1] + self.slope * (size - (self.at.len() - 1)) as f64,
        }
    }
}

/// The value at `size` of a curve of (size of a pass, seconds): interpolated between the curve's points, constant
/// beyond its ends.
fn interpolated(curve: &[(u32, f64)], size: u32) -> f64 {
    let after = curve.partition_point(|&(x, _)| x < size);
    if after == 0 {
        return curve[0].1;
    }
    let Some(&(x1, y1)) = curve.get(after) else { return curve[after - 1].1 };
    let (x0, y0) = curve[after - 1];
    y0 + (y1 - y0) * f64::from(size - x0) / f64::from(x1 - x0)
}

/// The draft model's cost table by number of requests, and the target model's cost table by number of tokens.
#[derive(Clone, Debug)]
pub(crate) struct CostTables {
    /// Seconds in which the draft model drafts for the whole batch, by number of requests.
    pub draft: CostTable,
    /// Seconds of the target pass that verifies the batch's draft tokens, by its number of tokens.
    pub verify: CostTable,
}

impl CostTables {
    /// Measures both cost tables (drafting and target pass), for `len` draft tokens per request. The requests over
    /// which passes are timed have `kv` KV tokens each; under the command `foretoken decide` they are the requests of
    /// its batch.
    pub(crate) fn measure(context: &PolicyContext, len: u32, kv: u32, lookup: CostLookup) -> CostTables {
        let most_tokens = context.max_num_batched_tokens;
        let sizes = capture_sizes(context.max_num_seqs);
        let captured = *sizes.last().expect("there is a capture size");
        let mut tail = vec![(captured + captured / 2).min(most_tokens)];
        let mut size = captured;
        while size < most_tokens {
            size = size.saturating_mul(2).min(most_tokens);
            tail.push(size);
        }
        let mut all = sizes.clone();
        all.extend(tail);
        all.sort_unstable();
        all.dedup();
        let reads = context.profile.context_reads();
        let batch = TimedBatch::of(context, kv);
        let verify = |size: u32| (size, context.profile.target_s(batch.target_pass(size, reads)));
        let verify: Vec<(u32, f64)> = all.into_iter().map(verify).collect();
        let mut requests: Vec<u32> = sizes.iter().map(|&size| size.min(context.max_num_seqs)).collect();
        requests.dedup();
        let draft = |r: u32| (r, batch.drafting_s(context.profile, context.belief.drafting, r, len));
        let draft: Vec<(u32, f64)> = requests.into_iter().map(draft).collect();
        CostTables {
            draft: CostTable::new(&draft, context.max_num_seqs, captured, lookup),
            verify: CostTable::new(&verify, most_tokens, captured, lookup),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::Told;
    use crate::testing::CONTEXT;

    #[test]
    fn a_staircase_then_a_jump_then_lines() {
        // Pass sizes up to 8 are captured graphs. The measured time falls at size 4, so it is raised to the time of
        // size 2.
        let curve = [(1, 10.0), (2, 12.0), (4, 11.0), (8, 16.0), (12, 40.0), (16, 44.0), (32, 52.0)];
        let table = CostTable::new(&curve, 40, 8, CostLookup::Staircase);
        let sizes = [0, 1, 2, 3, 4, 5, 8, 9, 12, 14, 16, 24, 32, 36, 40, 44];
        let seconds = [10.0, 10.0, 12.0, 12.0, 12.0, 16.0, 16.0, 40.0, 40.0, 42.0, 44.0, 48.0, 52.0, 54.0, 56.0, 58.0];
        assert_eq!(sizes.map(|n| table.s(n)), seconds);
        let linear = CostTable::new(&curve, 40, 8, CostLookup::Linear);
        assert_eq!([0, 1, 3, 6, 10, 14, 36].map(|n| linear.s(n)), [10.0, 10.0, 12.0, 14.0, 28.0, 42.0, 54.0]);
        // If the time of only one pass size was measured, the table gives this time for every size.
        assert_eq!(CostTable::new(&[(2, 5.0)], 4, 2, CostLookup::Staircase).s(9), 5.0);
    }

    #[test]
    fn measuring_follows_the_linear_model() {
        let tables = CostTables::measure(&CONTEXT, 7, 8192, CostLookup::Staircase);
        let target = |tokens: f64, requests: f64| 8e-3 + 40e-6 * tokens + 1e-7 * 8192.0 * requests;
        // vLLM captures the sizes 1, 2, 4, 8 … 128 for 64 sequences. Beyond them passes of 192, 256, 512, 1024 and 2048
        // tokens are timed.
        for (tokens, expected) in [
            (1, target(1.0, 1.0)),
            (3, target(4.0, 4.0)),
            (65, target(72.0, 64.0)),
            (128, target(128.0, 64.0)),
            (129, target(192.0, 64.0)),
            (224, target(224.0, 64.0)),
            (2048, target(2048.0, 64.0)),
        ] {
            assert!((tables.verify.s(tokens) - expected).abs() < 1e-12, "{tokens}");
        }
        let draft = |requests: f64| {
            (0..7).map(|j| 0.5e-3 + 2e-6 * requests + 1e-9 * (8192.0 + f64::from(j)) * requests).sum::<f64>()
        };
        assert!((tables.draft.s(3) - draft(4.0)).abs() < 1e-12);
        assert!((tables.draft.s(64) - draft(64.0)).abs() < 1e-12);
    }
    #[test]
    fn a_given_batch_is_timed_instead() {
        let told = Some(Told { acceptance_rate: 0.7, prev_confidence: 0.6, contexts: &[100, 20, 3] });
        let tables = CostTables::measure(&PolicyContext { told, ..CONTEXT }, 2, 8192, CostLookup::Staircase);
        // Three requests are padded to 4 rows of the batch. The context of each request grows by one token per draft
        // pass.
        let draft = 2.0 * (0.5e-3 + 2e-6 * 4.0 + 1e-9 * 123.0) + 1e-9 * 3.0;
        assert!((tables.draft.s(3) - draft).abs() < 1e-12);
        for (tokens, padded) in [(3, 4.0), (4, 4.0), (9, 16.0)] {
            assert!((tables.verify.s(tokens) - (8e-3 + 40e-6 * padded + 1e-7 * 123.0)).abs() < 1e-12, "{tokens}");
        }
    }
}
