//! `trtllm-auto`: TensorRT-LLM's automatic choice for n-gram drafting. The draft length depends on the engine's largest
//! batch. From 32 running requests on nothing is drafted.
//!
//! Source: NVIDIA/TensorRT-LLM `auto_heuristic.py` @7274a594. The heuristic drafts 5 tokens after a match of 3 tokens,
//! if the engine's largest batch is at most 4. Otherwise it drafts 3 tokens after a match of 5 tokens. From 32 requests
//! on it drafts nothing.

use crate::definition::{About, BadParameter, Definition, PolicyContext};
use crate::shared::by_batch_size::{ByBatchSize, Counted};
use foretoken_sim::Speculation;
use serde::{Deserialize, Serialize};

/// `trtllm-auto` has no parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TrtllmAuto {}

impl Definition for TrtllmAuto {
    fn about(&self) -> About {
        About {
            summary: "five tokens where at most four requests can run, else three; none from 32 running requests",
            source: "TensorRT-LLM auto_heuristic.py @7274a594",
            sees: "length of the running list; the engine's largest batch",
            differences: "its drafts are n-grams with matches of 3 and 5 tokens, which are settings of the draft, \
                          not of the policy. The largest batch is engine.max_num_seqs. The token budget is charged \
                          with the last batch's length",
        }
    }

    fn check(&self) -> Result<(), BadParameter> {
        Ok(())
    }

    fn build(&self, context: &PolicyContext) -> Speculation {
        let k = if context.max_num_seqs <= 4 { 5 } else { 3 };
        ByBatchSize::build(Counted::Running, vec![(1, k), (32, 0)], context.max_draft_len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::by_batch_size::tests::lengths;
    use crate::testing::CONTEXT;

    #[test]
    fn three_tokens_up_to_thirty_one_requests() {
        assert_eq!(lengths(&TrtllmAuto {}, &[(1, 0), (31, 0), (32, 0), (30, 1), (30, 2)]), [3, 3, 0, 3, 0]);
    }

    #[test]
    fn five_where_at_most_four_can_run() {
        for (max_num_seqs, k) in [(1, 5), (4, 5), (5, 3)] {
            let Speculation::Policy(policy) = TrtllmAuto {}.build(&PolicyContext { max_num_seqs, ..CONTEXT }) else {
                panic!("a policy")
            };
            assert_eq!(policy.limits().depth, k, "{max_num_seqs}");
        }
    }
}
