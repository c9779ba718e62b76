//! `fixed`: the same draft length for every request in every step (vLLM `num_speculative_tokens`, SGLang
//! `--speculative-num-steps`). AdaSpec's experiments compare with k = 1, 3 and 5.

use crate::definition::{About, BadParameter, Check, Definition, PolicyContext};
use crate::look::{self, Look};
use foretoken_sim::{BatchView, DraftLimits, DraftPlan, MAX_SPEC_LEN, SpecPolicy, Speculation};
use serde::{Deserialize, Serialize};

/// Settings of the policy `fixed`, which drafts the same length for every request in every step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Fixed {
    /// Draft tokens per request and step, 0 to 32; 0 runs the engine without a drafter.
    pub k: u32,
}

impl Default for Fixed {
    fn default() -> Self {
        Fixed { k: 3 }
    }
}

impl Definition for Fixed {
    fn short_label(&self) -> Option<String> {
        Some(format!("fixed-{}", self.k))
    }

    fn about(&self) -> About {
        About {
            summary: "drafts k tokens for every request in every step",
            source: "vLLM num_speculative_tokens; SGLang --speculative-num-steps",
            sees: "nothing",
            differences: "none; k = 0 is the plain engine without a drafter",
        }
    }

    fn asks_for(&self) -> Option<(&'static str, u32)> {
        Some(("k", self.k))
    }

    fn look(&self, _: Look) -> Look {
        look::of_length(self.k)
    }

    fn is_blind(&self) -> bool {
        true
    }

    fn check(&self) -> Result<(), BadParameter> {
        let why = || format!("{} is more than {MAX_SPEC_LEN} draft tokens", self.k);
        Check("fixed").that("k", self.k <= MAX_SPEC_LEN, why)
    }

    fn build(&self, context: &PolicyContext) -> Speculation {
        match self.k {
            0 => Speculation::Off,
            k => Speculation::Policy(Box::new(FixedLength { k: k.min(context.max_draft_len) })),
        }
    }
}

/// The policy `fixed` while the engine runs; it keeps no state.
struct FixedLength {
    k: u32,
}

impl SpecPolicy for FixedLength {
    fn limits(&self) -> DraftLimits<'_> {
        DraftLimits::chain(self.k).as_in_vllm(&[])
    }

    fn propose(&mut self, _: &BatchView, plan: &mut DraftPlan) {
        plan.fill(self.k);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Batch, CONTEXT, Run};

    #[test]
    fn every_request_drafts_k_tokens_up_to_its_limit() {
        let mut run = Run::of(&Fixed { k: 5 }, &CONTEXT);
        let step = run.step(&Batch::new(&[10, 20, 30], &[8, 0, 4]), |_, _| 0.9, &[8, 8, 8]);
        assert_eq!((step.draft_len, step.verify_len), (vec![5, 0, 4], vec![5, 0, 4]));
    }

    #[test]
    fn length_zero_is_the_plain_engine() {
        assert!(matches!(Fixed { k: 0 }.build(&CONTEXT), Speculation::Off));
        assert_eq!(Fixed { k: 33 }.check().map_err(|e| e.key), Err("k"));
    }
}
