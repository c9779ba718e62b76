//! `confidence-stop`: the whole batch drafts while at least one request's chain has been confident throughout.
//!
//! Source: a branch of vLLM, `v1/worker/gpu/spec_decode/confidence_stop.py` (`DraftConfidenceStop`, @41f9ab88),
//! restated in docs/model.md 4.6 (g). No release has it, 0.33.0 included.

use crate::definition::{BadParameter, Beliefs, Check, Definition, PolicyContext};
use foretoken_sim::{
    BatchView, Continue, DraftLimits, DraftPlan, Drafts, MAX_SPEC_LEN, SpecPolicy, Speculation, Wants,
};
use serde::{Deserialize, Serialize};

/// Parameters of `confidence-stop`. vLLM's default threshold is off; this default equals `threshold`'s.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ConfidenceStop {
    /// The batch drafts on while some request has only drafts of at least this confidence, [0, 1].
    pub tau: f64,
    /// Longest draft in tokens (`num_speculative_tokens`), 1 to 32.
    pub cap: u32,
}

impl Default for ConfidenceStop {
    fn default() -> Self {
        ConfidenceStop { tau: 0.4, cap: MAX_SPEC_LEN }
    }
}

impl Definition for ConfidenceStop {
    fn summary(&self) -> &'static str {
        "drafts for everybody until no request's chain is confident any more"
    }

    fn source(&self) -> &'static str {
        "a branch of vLLM @41f9ab88, v1/worker/gpu/spec_decode/confidence_stop.py; in no release (absent from 0.33.0)"
    }

    fn sees(&self) -> &'static str {
        "confidences of the step's own drafts"
    }

    fn differences(&self) -> &'static str {
        "vLLM has no default threshold. A request that may draft less than the others takes part as far as it may, and \
         keeps nobody drafting after that"
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

/// The running policy. The fields after `cap` belong to the round in progress.
struct AnyAlive {
    tau: f64,
    cap: u32,
    /// Number of draft passes of this round if no pass stops it (`num_steps`).
    steps: u32,
    /// Number of drafts to verify per request.
    verify_len: u32,
    /// By request: true if all drafts of the chain so far were confident.
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
        // If no chain is confident, the drafts of the last pass are dropped: all of them were below the threshold. The
        // first draft of each request is verified all the same. But if the pass was also the last of the round, vLLM
        // drops its drafts even if they are the first.
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
        // The chains end after 1 and 3 confident tokens. The fourth pass, the last one, finds no confident chain.
        assert_eq!(decide(HALF, &[8, 8], &[&[0.9, 0.4, 0.9], &[0.5, 0.6, 0.7, 0.49]]), (vec![4, 4], vec![3, 3]));
        // No chain is confident after the third of four passes.
        assert_eq!(decide(HALF, &[8, 8], &[&[0.9, 0.4, 0.9], &[0.5, 0.6, 0.2]]), (vec![3, 3], vec![2, 2]));
        // The first chain is confident to its end, so the round goes on: both requests draft 4 tokens, and all of them
        // are verified.
        assert_eq!(decide(HALF, &[8, 8], &[&[0.9], &[0.1, 0.9]]), (vec![4, 4], vec![4, 4]));
        // A confident token after an unconfident one does not make a chain confident again: the round ends as if the
        // second chain had only its first token.
        assert_eq!(
            decide(HALF, &[8, 8], &[&[0.9, 0.4], &[0.1, 0.9]]),
            decide(HALF, &[8, 8], &[&[0.9, 0.4], &[0.1, 0.1]])
        );
    }

    #[test]
    fn the_first_draft_is_kept_when_the_round_is_stopped_after_it() {
        assert_eq!(decide(HALF, &[8, 8], &[&[0.4], &[0.1]]), (vec![1, 1], vec![1, 1]));
        // With one pass there is nothing to stop: vLLM keeps num_steps - 1.
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
        /// The decision depends only on how many tokens at the start of each chain are confident.
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
            // The pass after the longest confident start finds no confident chain.
            let launched = (longest + 1).min(steps);
            let kept = if launched < steps { longest.max(1) } else { longest };
            for (i, &limit) in batch.limit.iter().enumerate() {
                prop_assert_eq!(made.draft_len[i], limit.min(launched));
                prop_assert_eq!(made.verify_len[i], limit.min(launched).min(kept));
            }
        }
    }
}
