//! `vllm-draft-confidence`: drafts `cap` tokens per request. Verifies up to and including the first draft position at
//! which the batch's mean confidence is below a threshold.
//!
//! Source: vllm-project/vllm PR #35301, `v1/spec_decode/draft_length_policy.py` (`ConfidenceThresholdPolicy`,
//! @1447128d), which is in no release; restated in docs/model.md 4.6 (f). It is not a setting of `threshold`, because
//! it ignores the first draft token's confidence.

use crate::definition::{About, BadParameter, Beliefs, Check, Definition, PolicyContext};
use foretoken_sim::{BatchView, DraftLimits, DraftPlan, Drafts, SpecPolicy, Speculation, Wants};
use serde::{Deserialize, Serialize};

/// Settings of the policy `vllm-draft-confidence`, which verifies draft tokens up to the first position with a low mean
/// confidence. The rule is off in vLLM by default. The defaults here, 10 tokens and 0.6, are the best setting that
/// vLLM's pull request reports.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DraftConfidence {
    /// If the mean confidence of the batch at a draft position is below this threshold, in (0, 1], later draft tokens
    /// are not verified (`draft_confidence_threshold`).
    pub tau: f64,
    /// Most draft tokens of a request in a step (`num_speculative_tokens`), 1 to 32.
    pub cap: u32,
}

impl Default for DraftConfidence {
    fn default() -> Self {
        DraftConfidence { tau: 0.6, cap: 10 }
    }
}

impl Definition for DraftConfidence {
    fn about(&self) -> About {
        About {
            summary: "drafts to the end, verifies up to the first token whose mean confidence fell short",
            source: "vLLM PR #35301, v1/spec_decode/draft_length_policy.py; in no release (absent from 0.33.0)",
            sees: "confidences of the step's own drafts",
            differences: "the mean is over the requests that drafted the token; in vLLM all of them do. Off in vLLM \
                          by default: 0.6 and 10 are from the pull request's table",
        }
    }

    fn beliefs(&self) -> Beliefs {
        Beliefs { confidence: true, ..Beliefs::default() }
    }

    fn check(&self) -> Result<(), BadParameter> {
        let check = Check("vllm-draft-confidence");
        let range = || format!("{} is not above 0 and at most 1", self.tau);
        check.that("tau", self.tau > 0.0 && self.tau <= 1.0, range)?;
        check.length("cap", self.cap)
    }

    fn build(&self, context: &PolicyContext) -> Speculation {
        Speculation::Policy(Box::new(RunsAll { tau: self.tau, cap: self.cap.min(context.max_draft_len) }))
    }
}

/// The policy `vllm-draft-confidence` while the engine runs; it keeps no state.
struct RunsAll {
    tau: f64,
    cap: u32,
}

impl SpecPolicy for RunsAll {
    fn limits(&self) -> DraftLimits<'_> {
        DraftLimits::chain(self.cap)
    }

    fn wants(&self) -> Wants {
        Wants::CONFIDENCE
    }

    fn propose(&mut self, _: &BatchView, plan: &mut DraftPlan) {
        plan.fill(self.cap);
    }

    fn select(&mut self, _: &BatchView, drafts: &mut Drafts) {
        // The loop starts at the second draft position, because the first draft token of each request is verified
        // whatever the batch's mean confidence.
        for depth in 1..drafts.passes as usize {
            let (mut sum, mut n) = (0.0, 0u32);
            for i in (0..drafts.draft_len.len()).filter(|&i| drafts.draft_len[i] as usize > depth) {
                sum += drafts.confidence(i, depth);
                n += 1;
            }
            if sum < self.tau * f64::from(n) {
                // The draft tokens at which the batch's mean confidence fell below the threshold are still verified.
                drafts.verify_len.iter_mut().for_each(|v| *v = (*v).min(depth as u32 + 1));
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Batch, CONTEXT, Run, any_batch};
    use proptest::prelude::*;

    fn verified(tau: f64, limit: &[u32], confidence: &[[f64; 4]]) -> Vec<u32> {
        let mut run = Run::of(&DraftConfidence { tau, cap: 4 }, &CONTEXT);
        let step = run.step(&Batch::new(&vec![50; limit.len()], limit), |i, j| confidence[i][j], &[4, 4, 4]);
        let all: Vec<u32> = limit.iter().map(|&l| l.min(4)).collect();
        assert_eq!(step.draft_len, all, "every pass runs");
        step.verify_len
    }

    #[test]
    fn the_first_draft_is_not_judged_and_the_token_below_the_threshold_is_verified() {
        // The low confidence of the first draft tokens does not matter. The mean confidences of the two requests'
        // second, third and fourth draft tokens are 0.75, 0.45 and 0.9.
        let confidence = [[0.1, 0.9, 0.5, 0.9], [0.1, 0.6, 0.4, 0.9]];
        assert_eq!(verified(0.5, &[4, 4], &confidence), [3, 3]);
        assert_eq!(verified(0.4, &[4, 4], &confidence), [4, 4]);
        assert_eq!(verified(0.8, &[4, 4], &confidence), [2, 2]);
        // If one request drafts a single token, the mean confidence at later positions is the other request's
        // confidence.
        assert_eq!(verified(0.7, &[1, 4], &confidence), [1, 2]);
        assert_eq!(verified(0.7, &[4, 1], &confidence), [3, 1]);
    }

    #[test]
    fn bad_settings_are_named() {
        let default = DraftConfidence::default();
        assert_eq!(DraftConfidence { tau: 0.0, ..default }.check().map_err(|e| e.key), Err("tau"));
        assert_eq!(DraftConfidence { tau: f64::NAN, ..default }.check().map_err(|e| e.key), Err("tau"));
        assert_eq!(DraftConfidence { cap: 0, ..default }.check().map_err(|e| e.key), Err("cap"));
    }

    proptest! {
        /// The verified length equals vLLM's own implementation. There `k_valid` starts at K, the draft length. The
        /// loop runs over the draft positions after the first, s from 0, and the first mean confidence below the
        /// threshold fixes `k_valid` at s + 2.
        #[test]
        fn the_first_short_mean_freezes_the_length(
            batch in any_batch(5, 8),
            tau in 0.01f64..1.0,
            confidence in prop::collection::vec(prop::collection::vec(0.0f64..1.0, 8), 5),
        ) {
            let mut run = Run::of(&DraftConfidence { tau, cap: 8 }, &CONTEXT);
            let made = run.step(&batch, |i, j| confidence[i][j], &[0; 5]);
            let drafted = *batch.limit.iter().max().unwrap();
            let (mut k_valid, mut exited) = (drafted, false);
            for s in 0..drafted.saturating_sub(1) {
                let j = s as usize + 1;
                let has = |&i: &usize| batch.limit[i] as usize > j;
                let column: Vec<f64> = (0..batch.limit.len()).filter(has).map(|i| confidence[i][j]).collect();
                let short = column.iter().sum::<f64>() < tau * column.len() as f64;
                if short && !exited {
                    k_valid = s + 2;
                }
                exited |= short;
            }
            let expected: Vec<u32> = batch.limit.iter().map(|&l| l.min(k_valid)).collect();
            prop_assert_eq!(made.verify_len, expected);
        }
    }
}
