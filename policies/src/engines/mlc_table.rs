//! `mlc-table`: MLC-LLM's `auto` speculative mode, a table from the number n of running requests to a draft length k.
//!
//! Source: mlc-ai/mlc-llm `cpp/serve/engine_actions/auto_spec_decode.cc` @00c44c3c (PR #2906, 2024). k is 4 below 10
//! requests, 3 below 20, 2 below 30, else 0. k is also 0 if n·(k + 1) is more than `max_num_sequence`.

use crate::definition::{About, BadParameter, Definition, PolicyContext};
use crate::shared::by_batch_size::{ByBatchSize, Counted};
use foretoken_sim::Speculation;
use serde::{Deserialize, Serialize};

/// MLC-LLM's table of draft lengths. Each entry is (smallest number of running requests, draft length).
const TABLE: [(u32, u32); 4] = [(1, 4), (10, 3), (20, 2), (30, 0)];

/// `mlc-table` has no parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MlcTable {}

/// The table as (smallest number n of running requests, draft length k). The length is 0 where n · (k + 1) exceeds
/// `max_num_sequence`.
fn ranges(max_num_sequence: u32) -> Vec<(u32, u32)> {
    let ends = TABLE[1..].iter().map(|&(from, _)| from).chain([u32::MAX]);
    let mut ranges = Vec::new();
    for ((from, k), end) in TABLE.into_iter().zip(ends) {
        // In this range of the table, the smallest number n of running requests with n · (k + 1) > max_num_sequence.
        // From n on nothing is drafted.
        let beyond = (max_num_sequence / (k + 1) + 1).clamp(from, end);
        ranges.extend((beyond > from).then_some((from, k)));
        ranges.extend((beyond < end).then_some((beyond, 0)));
    }
    ranges
}

impl Definition for MlcTable {
    fn about(&self) -> About {
        About {
            summary: "MLC-LLM's own table from running requests to a length; none where the verified tokens outgrow \
                      its sequences",
            source: "mlc-ai/mlc-llm cpp/serve/engine_actions/auto_spec_decode.cc @00c44c3c",
            sees: "length of the running list",
            differences: "max_num_sequence is engine.max_num_seqs. The token budget is charged with the last batch's \
                          length, so a longer one comes a step after the batch shrank",
        }
    }

    fn check(&self) -> Result<(), BadParameter> {
        Ok(())
    }

    fn build(&self, context: &PolicyContext) -> Speculation {
        ByBatchSize::build(Counted::Running, ranges(context.max_num_seqs), context.max_draft_len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::by_batch_size::tests::lengths;

    /// The draft length k for `running` requests by MLC-LLM's two rules, written as in its source: k comes from the
    /// table of running requests, and k is 0 if running · (k + 1) exceeds `max_num_sequence`.
    fn plain(running: u32, max_num_sequence: u32) -> u32 {
        let k = match running {
            0..10 => 4,
            10..20 => 3,
            20..30 => 2,
            _ => 0,
        };
        if running * (k + 1) > max_num_sequence { 0 } else { k }
    }

    #[test]
    fn both_rules_hold_at_every_size() {
        for max_num_sequence in [1, 4, 5, 12, 44, 45, 60, 64, 80, 87, 200] {
            let ranges = ranges(max_num_sequence);
            for running in 1..100 {
                let after = ranges.partition_point(|&(from, _)| from <= running);
                assert_eq!(ranges[after - 1].1, plain(running, max_num_sequence), "{running} of {max_num_sequence}");
            }
        }
    }

    #[test]
    fn the_running_list_counts() {
        // n requests with k draft tokens each verify n · (k + 1) tokens, at most max_num_sequence = 64. This limit
        // allows 9 · 5, 10 · 4 to 16 · 4, 20 · 3 and 21 · 3. It does not allow 17 · 4 to 19 · 4 and 22 · 3.
        let sizes = [(1, 0), (9, 0), (7, 3), (16, 0), (17, 0), (20, 0), (22, 0), (30, 0)];
        assert_eq!(lengths(&MlcTable {}, &sizes), [4, 4, 3, 3, 0, 2, 0, 0]);
    }
}
