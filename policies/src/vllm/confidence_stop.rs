//! `confidence-stop`: the whole batch drafts on while at least one request has had only confident draft tokens in this
//! step.
//!
//! Source: a branch of vLLM, `v1/worker/gpu/spec_decode/confidence_stop.py` (`DraftConfidenceStop`, @41f9ab88),
//! restated in docs/model.md 4.6 (g). No release has it, 0.33.0 included.

use crate::definition::{About, BadParameter, Beliefs, Check, Definition, PolicyContext};
use foretoken_sim::{
    BatchView, Continue, DraftLimits, DraftPlan, Drafts, MAX_SPEC_LEN, SpecPolicy, Speculation, Wants,
};
use serde::{Deserialize, Serialize};

/// Settings of the policy `confidence-stop`, which drafts while at least one request's draft tokens are all confident.
/// vLLM has no default threshold, because the rule is off by default. The default here is that of the policy
/// `threshold`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ConfidenceStop {
    /// The batch drafts on while some request has only draft tokens of at least this confidence, [0, 1].
    pub tau: f64,
    /// Most draft tokens of a request in a step (`num_speculative_tokens`), 1 to 32.
    pub cap: u32,
}

impl Default for ConfidenceStop {
    fn default() -> Self {
        ConfidenceStop { tau: 0.4, cap: MAX_SPEC_LEN }
    }
}

impl Definition for ConfidenceStop {
    fn about(&self) -> About {
        About {
            summary: "drafts for everybody until no request's chain is confident any more",
            source: "a branch of vLLM @41f9ab88, v1/worker/gpu/spec_decode/confidence_stop.py; in no release (absent \
                     from 0.33.0)",
            sees: "confidences of the step's own drafts",
            differences: "vLLM has no default threshold. A request that may draft less than the others takes part as \
                          far as it may, and keeps nobody drafting after that",
        }
    }

    fn beliefs(&self) -> Beliefs {
        Beliefs { confidence: true, ..Beliefs::default() }
    }

    fn check(&self) -> Result<(), BadParameter> {
        let check = Check("confidence-stop");
        check.share("tau", self.tau)?;
        check.length("cap", self.cap)
    }

    fn build(&self, context: &PolicyContext) -> Speculation {
        let cap = self.cap.min(context.max_draft_len);
        Speculation::Policy(Box::new(AnyAlive { tau: self.tau, cap, steps: 0, verify_len: 0, alive: Vec::new() }))
    }
}

/// The policy `confidence-stop` while the engine runs. The fields after `cap` belong to the step in progress.
struct AnyAlive {
    tau: f64,
    cap: u32,
    /// Number of draft passes of this step if low confidence does not stop it (`num_steps`).
    steps: u32,
    /// Number of draft tokens of each request that are verified in this step.
    verify_len: u32,
    /// For each request: true if all its draft tokens in this step were confident so far.
    alive: Vec<bool>,
}

impl SpecPolicy for AnyAlive {
    fn limits(&self) -> DraftLimits<'_> {
        DraftLimits::chain(self.cap)
    }

    fn wants(&self) -> Wants {
        Wants::CONFIDENCE
    }

    fn propose(&mut self, batch: &BatchView, plan: &mut DraftPlan) {
        plan.fill(self.cap);
        self.steps = batch.limit.iter().copied().max().unwrap_or(0).min(self.cap);
        self.verify_len = 0;
        self.alive.clear();
        self.alive.resize(batch.len(), true);
    }

    fn keep_drafting(&mut self, _: &BatchView, drafts: &mut Drafts) -> Continue {
        let launched = drafts.passes;
        let last = launched as usize - 1;
        let mut any = false;
        for (i, alive) in self.alive.iter_mut().enumerate() {
            *alive &= drafts.draft_len[i] >= launched && drafts.confidence(i, last) >= self.tau;
            any |= *alive;
        }
        // If no request has only confident draft tokens, the tokens of the last pass are dropped: each of them, or a
        // token before it, was below the threshold. The first draft token of each request is verified all the same. But
        // if the pass was also the last that the step may have, vLLM drops its tokens even if they are the first.
        self.verify_len = match any {
            true => launched,
            false if launched == self.steps => launched - 1,
            false => (launched - 1).max(1),
        };
        if any { Continue::Yes } else { Continue::Stop }
    }

    fn select(&mut self, _: &BatchView, drafts: &mut Drafts) {
        drafts.verify_len.iter_mut().for_each(|v| *v = (*v).min(self.verify_len));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Batch, CONTEXT, Run, any_batch};
    use proptest::prelude::*;

    fn decide(policy: ConfidenceStop, limit: &[u32], confidence: &[&[f64]]) -> (Vec<u32>, Vec<u32>) {
        let mut run = Run::of(&policy, &CONTEXT);
        let batch = Batch::new(&vec![50; limit.len()], limit);
        let step = run.step(&batch, |i, j| confidence[i][j.min(confidence[i].len() - 1)], &vec![8; limit.len()]);
        (step.draft_len, step.verify_len)
    }

    const HALF: ConfidenceStop = ConfidenceStop { tau: 0.5, cap: 4 };

    #[test]
    fn one_confident_chain_keeps_everybody_drafting() {
        // The two requests start with 1 and 3 confident draft tokens. The fourth pass, the last one, finds no request
        // with only confident draft tokens.
        assert_eq!(decide(HALF, &[8, 8], &[&[0.9, 0.4, 0.9], &[0.5, 0.6, 0.7, 0.49]]), (vec![4, 4], vec![3, 3]));
        // After the third of four draft passes no request has only confident draft tokens, so the fourth pass does not
        // run.
        assert_eq!(decide(HALF, &[8, 8], &[&[0.9, 0.4, 0.9], &[0.5, 0.6, 0.2]]), (vec![3, 3], vec![2, 2]));
        // The first request's draft tokens are all confident, so drafting goes on: both requests draft 4 tokens, and
        // all of them are verified.
        assert_eq!(decide(HALF, &[8, 8], &[&[0.9], &[0.1, 0.9]]), (vec![4, 4], vec![4, 4]));
        // A confident draft token after an unconfident one does not make its request confident again. Drafting ends as
        // if all draft tokens of the second request were unconfident.
        assert_eq!(
            decide(HALF, &[8, 8], &[&[0.9, 0.4], &[0.1, 0.9]]),
            decide(HALF, &[8, 8], &[&[0.9, 0.4], &[0.1, 0.1]])
        );
    }

    #[test]
    fn the_first_draft_is_kept_when_the_round_is_stopped_after_it() {
        assert_eq!(decide(HALF, &[8, 8], &[&[0.4], &[0.1]]), (vec![1, 1], vec![1, 1]));
        // With `cap` = 1 the only draft pass is also the last one. If no request's draft token is confident, vLLM
        // verifies num_steps − 1 = 0 draft tokens.
        let one = ConfidenceStop { cap: 1, ..HALF };
        assert_eq!(decide(one, &[8, 8], &[&[0.4], &[0.1]]), (vec![1, 1], vec![0, 0]));
        assert_eq!(decide(one, &[8, 8], &[&[0.4], &[0.5]]), (vec![1, 1], vec![1, 1]));
    }

    #[test]
    fn a_request_at_its_limit_keeps_nobody_drafting() {
        assert_eq!(decide(HALF, &[1, 4, 0], &[&[0.9], &[0.9, 0.1], &[0.0]]), (vec![1, 2, 0], vec![1, 1, 0]));
    }

    #[test]
    fn bad_settings_are_named() {
        assert_eq!(ConfidenceStop { tau: f64::NAN, ..HALF }.check().map_err(|e| e.key), Err("tau"));
        assert_eq!(ConfidenceStop { cap: 0, ..HALF }.check().map_err(|e| e.key), Err("cap"));
    }

    proptest! {
        /// How many tokens are drafted and verified depends only on the number of confident draft tokens with which
        /// each request starts.
        #[test]
        fn the_longest_confident_start_decides(
            batch in any_batch(6, 8),
            tau in 0.0f64..1.0,
            cap in 1u32..=8,
            seed in prop::collection::vec(prop::collection::vec(0.0f64..1.0, 8), 6),
        ) {
            let mut run = Run::of(&ConfidenceStop { tau, cap }, &CONTEXT);
            let made = run.step(&batch, |i, j| seed[i][j], &vec![0; batch.limit.len()]);
            let steps = batch.limit.iter().map(|&l| l.min(cap)).max().unwrap();
            let start = |i: usize| {
                let own = batch.limit[i].min(cap) as usize;
                seed[i][..own].iter().take_while(|&&c| c >= tau).count() as u32
            };
            let longest = (0..batch.limit.len()).map(start).max().unwrap();
            // The draft pass after the longest run of confident tokens finds no request whose draft tokens are all
            // confident, and drafting ends.
            let launched = (longest + 1).min(steps);
            let kept = if launched < steps { longest.max(1) } else { longest };
            for (i, &limit) in batch.limit.iter().enumerate() {
                prop_assert_eq!(made.draft_len[i], limit.min(launched));
                prop_assert_eq!(made.verify_len[i], limit.min(launched).min(kept));
            }
        }
    }
}
