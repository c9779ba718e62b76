//! `smartspec-confidence`: each request drafts while the draft model is confident of the request's last draft token.
//! Then the policy takes the verify length with the best estimated goodput. The estimate counts a token as accepted if
//! its confidence is above the threshold.
//!
//! Source: SmartSpec (arXiv 2406.14066), appendix, Alg. 3, with the loop guard corrected: `propose_steps <= P` allows P
//! + 1 steps (docs/model.md 3.1). The appendix gives no value for the threshold T.

use crate::definition::{About, BadParameter, Beliefs, Check, Definition, PolicyContext};
use crate::shared::belief::Belief;
use crate::shared::estimator::{Depth, Estimate};
use crate::shared::weighed::Weighed;
use foretoken_sim::{
    BatchView, Continue, DraftLimits, DraftPlan, Drafts, Explanation, MAX_SPEC_LEN, SpecPolicy, Speculation, Wants,
};
use serde::{Deserialize, Serialize};

/// Settings of the policy `smartspec-confidence`, which drafts by confidence and takes the verify length with the best
/// estimated goodput.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SmartspecConfidence {
    /// T: a request drafts on while the confidence of its last draft token is above T, [0, 1). The paper gives no value
    /// for T.
    pub threshold: f64,
    /// P: most draft tokens of a request in a step, 1 to 32.
    pub cap: u32,
}

impl Default for SmartspecConfidence {
    fn default() -> Self {
        SmartspecConfidence { threshold: 0.5, cap: MAX_SPEC_LEN }
    }
}

impl Definition for SmartspecConfidence {
    fn about(&self) -> About {
        About {
            summary: "drafts while the last token's confidence is above a threshold, then verifies the length with \
                      the best goodput",
            source: "SmartSpec (arXiv 2406.14066) appendix, Alg. 3",
            sees: "batch size, context and limits; the confidence of each drafted token",
            differences: "the loop guard propose_steps <= P allows P + 1 steps: corrected. The paper gives no \
                          threshold: 0.5 is ours. Alg. 3 does not say how goodput counts tokens: those above the \
                          threshold are predicted to be accepted, as the appendix's text says, and one verify length \
                          holds for the batch. At least one token is always drafted, even where none is verified",
        }
    }

    fn beliefs(&self) -> Beliefs {
        Beliefs { cost: true, confidence: true, ..Beliefs::default() }
    }

    fn check(&self) -> Result<(), BadParameter> {
        let check = Check("smartspec-confidence");
        check.share("threshold", self.threshold)?;
        check.that("threshold", self.threshold < 1.0, || "no confidence is above 1: must be below it".into())?;
        check.length("cap", self.cap)
    }

    fn build(&self, context: &PolicyContext) -> Speculation {
        let cap = self.cap.min(context.max_draft_len);
        Speculation::Policy(Box::new(Running::new(*self, context.belief, cap)))
    }
}

/// The policy `smartspec-confidence` while the engine runs. The fields after `cap` belong to the step in progress.
struct Running {
    params: SmartspecConfidence,
    belief: Belief,
    cap: u32,
    /// Estimated time of this step if all its draft tokens so far are verified; `None` before `propose` sets it.
    estimate: Option<Estimate>,
    passes: u32,
    /// Sums over the tokens drafted in this step, for each depth; index 0 is depth 1.
    levels: Vec<Level>,
    goodput: f64,
    weighed: Weighed,
}

/// Sums over the requests that have a draft token at one depth in this step.
#[derive(Clone, Copy, Default)]
struct Level {
    tokens: u64,
    /// Sum of the contexts, in tokens, of the requests that drafted a token at this depth.
    context: u64,
    /// Number of drafted tokens at this depth with a confidence above the threshold. They are predicted to be accepted.
    predicted: u64,
}

impl Running {
    fn new(params: SmartspecConfidence, belief: Belief, cap: u32) -> Running {
        Running {
            params,
            belief,
            cap,
            estimate: None,
            passes: 0,
            levels: Vec::new(),
            goodput: 0.0,
            weighed: Weighed::default(),
        }
    }

    fn estimate(&self) -> &Estimate {
        self.estimate.as_ref().expect("the engine proposes before it drafts")
    }

    /// Reads the draft passes that ran since the last call. A request stops drafting if the confidence of its last
    /// token is not above the threshold.
    fn take_in(&mut self, batch: &BatchView, drafts: &mut Drafts) {
        while self.passes < drafts.passes {
            let j = self.passes as usize;
            self.passes += 1;
            let (mut level, mut at) = (Level::default(), Depth::default());
            for i in 0..batch.len() {
                if drafts.draft_len[i] < self.passes {
                    continue;
                }
                let short = drafts.confidence(i, j) <= self.params.threshold;
                level.tokens += 1;
                level.context += u64::from(batch.context[i]);
                level.predicted += u64::from(!short);
                at.catch_up += if batch.always_extend { 0 } else { u64::from(batch.draft_gap[i]) };
                if short {
                    drafts.stop(i);
                }
            }
            (at.requests, at.context) = (level.tokens, level.context);
            self.estimate.as_mut().expect("the engine proposes before it drafts").deepen(at);
            self.levels.push(level);
        }
    }

    /// The verify length v with the most predicted tokens per second; the smallest v on a tie. Stores its goodput. The
    /// time is the draft time of all draft tokens plus the target's time to verify v draft tokens a request. The loop
    /// goes from the longest draft length down to 0, because the estimate at first covers all draft tokens.
    fn best_length(&mut self, requests: usize) -> u32 {
        let mut estimate = *self.estimate();
        let mut tokens = requests as f64 + self.levels.iter().map(|l| l.predicted as f64).sum::<f64>();
        let mut best = (self.levels.len() as u32, tokens / estimate.step_s());
        self.weighed.note(best.1, || format!("verify {}", best.0));
        for (v, level) in self.levels.iter().enumerate().rev() {
            tokens -= level.predicted as f64;
            estimate.drop_tokens(level.tokens, level.context + level.tokens * (v as u64 + 1));
            let goodput = tokens / estimate.step_s();
            self.weighed.note(goodput, || format!("verify {v}"));
            if goodput >= best.1 {
                best = (v as u32, goodput);
            }
        }
        self.goodput = best.1;
        best.0
    }
}

impl SpecPolicy for Running {
    fn limits(&self) -> DraftLimits<'_> {
        DraftLimits::chain(self.cap)
    }

    fn wants(&self) -> Wants {
        Wants::CONFIDENCE
    }

    fn propose(&mut self, batch: &BatchView, plan: &mut DraftPlan) {
        plan.fill(self.cap);
        self.weighed.begin();
        let estimate = Estimate::undrafted(&self.belief, batch);
        self.goodput = batch.len() as f64 / estimate.step_s();
        self.estimate = Some(estimate);
        self.passes = 0;
        self.levels.clear();
    }

    fn keep_drafting(&mut self, batch: &BatchView, drafts: &mut Drafts) -> Continue {
        self.take_in(batch, drafts);
        Continue::Yes
    }

    fn select(&mut self, batch: &BatchView, drafts: &mut Drafts) {
        self.take_in(batch, drafts);
        let v = self.best_length(batch.len());
        drafts.verify_len.iter_mut().for_each(|len| *len = (*len).min(v));
    }

    fn explain(&mut self) -> Explanation {
        self.weighed.explain(Some(self.goodput))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{BELIEF, Batch, CONTEXT, Run, any_batch, any_belief, close};
    use foretoken_sim::Coefficients;
    use proptest::prelude::*;

    /// Confidences of the draft tokens of three requests, by request and depth.
    const CONFIDENCE: [[f64; 5]; 3] = [[0.9, 0.8, 0.7, 0.6, 0.9], [0.9, 0.3, 0.9, 0.9, 0.9], [0.5, 0.9, 0.9, 0.9, 0.9]];

    fn decide(params: SmartspecConfidence, belief: Belief, limit: [u32; 3]) -> (Vec<u32>, Vec<u32>) {
        let mut run = Run::of(&params, &PolicyContext { belief, ..CONTEXT });
        let step = run.step(&Batch::new(&[50, 60, 70], &limit), |i, j| CONFIDENCE[i][j.min(4)], &[8; 3]);
        (step.draft_len, step.verify_len)
    }

    #[test]
    fn requests_leave_one_by_one_and_the_guard_allows_p_steps() {
        let params = SmartspecConfidence { cap: 4, ..SmartspecConfidence::default() };
        // The first request drafts P = 4 tokens. The second stops after its second token, and the third after its first
        // token, because the confidences of these tokens are not above T.
        let (drafted, _) = decide(params, BELIEF, [8, 8, 8]);
        assert_eq!(drafted, [4, 2, 1]);
        // Every request whose limit on draft tokens is above 0 drafts at least one token, because its confidence counts
        // as 1 before the first token. A request stops at its limit.
        assert_eq!(decide(params, BELIEF, [2, 0, 8]).0, [2, 0, 1]);
    }

    #[test]
    fn the_verify_length_is_weighed_after_drafting() {
        let params = SmartspecConfidence { cap: 4, ..SmartspecConfidence::default() };
        // Verifying is nearly free, so all draft tokens are verified, although at depth 2 only one of two tokens is
        // predicted to be accepted.
        assert_eq!(decide(params, BELIEF, [8, 8, 8]).1, [4, 2, 1]);
        // A step takes 4 ms for each verified token and about 10 ms more. So the verify lengths 0 to 4 give 3/22, 5/34,
        // 6/42, 7/46 and 8/50 tokens per ms. The dip at length 2 does not end the search.
        let target = Coefficients { gamma_s: 4e-3, alpha_s: 0.0, ..BELIEF.target };
        assert_eq!(decide(params, Belief { target, ..BELIEF }, [8, 8, 8]).1, [4, 2, 1]);
        // If each verified token takes 20 ms, the verify lengths 0 and 1 give 3/68 and 5/128 tokens per ms. Verifying
        // does not pay, although the tokens were drafted.
        let target = Coefficients { gamma_s: 20e-3, alpha_s: 0.0, ..BELIEF.target };
        assert_eq!(decide(params, Belief { target, ..BELIEF }, [8, 8, 8]), (vec![4, 2, 1], vec![0, 0, 0]));
    }

    #[test]
    fn bad_settings_are_named() {
        let good = SmartspecConfidence::default();
        for (params, key) in [
            (SmartspecConfidence { threshold: f64::NAN, ..good }, "threshold"),
            (SmartspecConfidence { threshold: 1.0, ..good }, "threshold"),
            (SmartspecConfidence { cap: 0, ..good }, "cap"),
        ] {
            assert_eq!(params.check().map_err(|e| e.key), Err(key));
        }
    }

    proptest! {
        /// Drafted lengths and the verify length equal a direct implementation of the rule: it walks along each
        /// request's draft tokens, then tries every verify length.
        #[test]
        fn equals_brute_force(
            batch in any_batch(10, 8),
            belief in any_belief(),
            confidence in prop::collection::vec(0.0f64..=1.0, 80),
            threshold in 0.0f64..0.99,
        ) {
            let confidence_of = |i: usize, j: usize| confidence[8 * i + j];
            let params = SmartspecConfidence { threshold, cap: 8 };
            let mut policy: Box<dyn SpecPolicy> = Box::new(Running::new(params, belief, 8));
            let view = batch.view();
            let rows = |i: usize| (0..8).map(|j| confidence_of(i, j)).collect();
            let mut script = foretoken_sim::scripted::Scripted {
                confidence: (0..view.len()).map(rows).collect(),
                ..Default::default()
            };
            let drafts = script.decide(&mut policy, &view, 8, &mut Vec::new());

            let sure = |i: usize, j: u32| confidence_of(i, j as usize) > threshold;
            let length = |i: usize| {
                let mut d = 0;
                while d < view.limit[i].min(8) && (d == 0 || sure(i, d - 1)) {
                    d += 1;
                }
                d
            };
            let drafted: Vec<u32> = (0..view.len()).map(length).collect();
            prop_assert_eq!(&drafts.draft_len, &drafted);
            let goodput = |v: u32| {
                let verified: Vec<u32> = drafted.iter().map(|&d| d.min(v)).collect();
                let predicted = |(i, &d): (usize, &u32)| 1.0 + (0..d).filter(|&j| sure(i, j)).count() as f64;
                let tokens: f64 = verified.iter().enumerate().map(predicted).sum();
                tokens / belief.step_s(&view, &drafted, &verified)
            };
            let longest = drafted.iter().copied().max().unwrap_or(0);
            let best = (0..=longest).map(goodput).fold(0.0, f64::max);
            let chosen = drafts.verify_len.iter().copied().max().unwrap_or(0);
            let cut: Vec<u32> = drafted.iter().map(|&d| d.min(chosen)).collect();
            prop_assert_eq!(&drafts.verify_len, &cut);
            prop_assert!(goodput(chosen) >= best * (1.0 - 1e-9));
            prop_assert!((0..chosen).all(|v| goodput(v) < best * (1.0 + 1e-9)));
            prop_assert!(close(policy.explain().estimate.expect("it has one"), goodput(chosen)));
        }
    }
}
