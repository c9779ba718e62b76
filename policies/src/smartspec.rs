//! `smartspec`: one draft length for the whole batch, the one with the best estimated goodput under a moving average of
//! the acceptance rate and a linear belief of costs.
//!
//! Source: Liu et al., "Optimizing Speculative Decoding for Serving Large Language Models Using Goodput" (2024), Alg. 1
//! and 2, choosing k only, with the corrected formula: Alg. 1 line 4 multiplies by n twice (policies.md 3.1, 12, 14).

use crate::acceptance::Rate;
use crate::belief::Belief;
use crate::estimator::{Depths, Estimate};
use crate::registry::{BadParameter, Check, Definition, PolicyContext};
use foretoken_sim::{BatchView, DraftPlan, SpecPolicy, Speculation, StepOutcome};
use serde::{Deserialize, Serialize};

/// Parameters. The paper leaves the average's window open; 0.7 and 0.85 are those of its public code.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Smartspec {
    /// Acceptance rate believed before anything was verified.
    pub initial_acceptance: f64,
    /// Weight of the old average when a step's rate comes in; the new rate has the rest.
    pub ema_keep: f64,
    /// What a step's rate is a share of.
    pub rate: Rate,
    /// Steps in a row with k = 0 after which the run warns: with nothing verified the average cannot recover.
    pub absorbing_steps: u64,
}

impl Default for Smartspec {
    fn default() -> Self {
        Smartspec { initial_acceptance: 0.7, ema_keep: 0.85, rate: Rate::Attempts, absorbing_steps: 1000 }
    }
}

impl Definition for Smartspec {
    fn summary(&self) -> &'static str {
        "one length a step: the best estimated goodput under the average acceptance rate"
    }

    fn source(&self) -> &'static str {
        "SmartSpec (arXiv 2406.14066) Alg. 1 and 2, k only, errata corrected"
    }

    fn sees(&self) -> &'static str {
        "batch size, context and limits; accepted counts of past steps"
    }

    fn differences(&self) -> &'static str {
        "Alg. 1 line 4 multiplies by n twice: corrected. The average's window is not given: 0.85 old + 0.15 new, from the public code"
    }

    fn check(&self) -> Result<(), BadParameter> {
        let check = Check("smartspec");
        check.share("initial_acceptance", self.initial_acceptance)?;
        check.share("ema_keep", self.ema_keep)?;
        check.that("absorbing_steps", self.absorbing_steps > 0, || "must be at least 1 step".into())
    }

    fn build(&self, context: &PolicyContext) -> Speculation {
        Speculation::Policy(Box::new(BestLength::new(*self, context)))
    }
}

/// The running policy.
struct BestLength {
    params: Smartspec,
    belief: Belief,
    longest: u32,
    acceptance: f64,
    /// Steps in a row for which 0 was chosen although somebody could have drafted, and the most there ever were.
    zero_streak: u64,
    longest_zero_streak: u64,
    depths: Depths,
}

impl BestLength {
    fn new(params: Smartspec, context: &PolicyContext) -> BestLength {
        BestLength {
            params,
            belief: context.belief,
            longest: context.max_draft_len,
            acceptance: context.told.map_or(params.initial_acceptance, |t| t.acceptance_rate),
            zero_streak: 0,
            longest_zero_streak: 0,
            depths: Depths::default(),
        }
    }

    /// argmax over k of expected tokens per second; the smallest k on a tie. A request whose limit is below k drafts
    /// up to its limit, which the estimate counts.
    fn best_length(&mut self, batch: &BatchView) -> u32 {
        self.depths.fill(batch, self.longest);
        let mut estimate = Estimate::undrafted(&self.belief, batch);
        let mut tokens = batch.len() as f64;
        let mut reached = 1.0;
        let mut best = (tokens / estimate.step_s(), 0);
        for k in 1..=self.longest {
            let at = self.depths.at(k);
            if at.requests == 0 {
                break;
            }
            estimate.deepen(at);
            reached *= self.acceptance;
            tokens += at.requests as f64 * reached;
            let goodput = tokens / estimate.step_s();
            if goodput > best.0 {
                best = (goodput, k);
            }
        }
        best.1
    }
}

impl SpecPolicy for BestLength {
    fn limit(&self) -> u32 {
        self.longest
    }

    fn propose(&mut self, batch: &BatchView, plan: &mut DraftPlan) {
        let k = self.best_length(batch);
        plan.fill(k);
        if self.depths.at(1).requests > 0 {
            self.zero_streak = if k == 0 { self.zero_streak + 1 } else { 0 };
            self.longest_zero_streak = self.longest_zero_streak.max(self.zero_streak);
        }
    }

    fn observe(&mut self, outcome: &StepOutcome) {
        if let Some(rate) = self.params.rate.of(outcome) {
            self.acceptance = self.params.ema_keep * self.acceptance + (1.0 - self.params.ema_keep) * rate;
        }
    }

    fn warnings(&self) -> Vec<String> {
        if self.longest_zero_streak < self.params.absorbing_steps {
            return Vec::new();
        }
        vec![format!(
            "smartspec chose length 0 in {} steps in a row: it verifies nothing then, so its acceptance estimate \
             ({:.3} at the end) cannot recover by itself",
            self.longest_zero_streak, self.acceptance
        )]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acceptance::expected_tokens;
    use crate::testing::{BELIEF, Batch, CONTEXT, any_batch, any_belief, outcome};
    use foretoken_sim::{Coefficients, ContextReads, Drafts};
    use proptest::prelude::*;

    fn policy(belief: Belief, acceptance: f64, longest: u32) -> BestLength {
        let params = Smartspec { initial_acceptance: acceptance, ..Smartspec::default() };
        BestLength::new(params, &PolicyContext { belief, max_draft_len: longest, ..CONTEXT })
    }

    /// A draft that costs `once_s` in a step that drafts and `pass_s` for each pass over `requests` requests, with
    /// `alpha_s` a context token. Section 12 has no such one-off cost, so catch-up tokens carry it: one a context token.
    fn draft_with_one_off(alpha_s: f64, once_s: f64, pass_s: f64, batch: &mut Batch) -> Coefficients {
        batch.gap = batch.context.clone();
        let gamma_s = once_s / batch.gap.iter().map(|&g| f64::from(g)).sum::<f64>();
        Coefficients { alpha_s, gamma_s, delta_s: pass_s - gamma_s * batch.context.len() as f64 }
    }

    /// Policies.md 10: whether longer context means longer or shorter speculation hangs on how context is read.
    #[test]
    fn context_sign() {
        for (reads, best) in [(ContextReads::Once, [5, 5, 5, 5, 6]), (ContextReads::PerPosition, [5, 4, 3, 1, 0])] {
            for (context, best) in [128, 512, 2048, 8192, 32768].into_iter().zip(best) {
                let mut batch = Batch::new(&[context; 16], &[10; 16]);
                let draft = draft_with_one_off(2.9e-9, 0.447e-3, 0.452e-3, &mut batch);
                let target = Coefficients { alpha_s: 4.86e-8, gamma_s: 0.01844e-3, delta_s: 6.94e-3 };
                let mut policy = policy(Belief { draft, target, context_reads: reads, ..BELIEF }, 0.75, 10);
                assert_eq!(policy.best_length(&batch.view()), best, "{reads:?} {context}");
            }
        }
    }

    /// Policies.md 10: TurboSpec's published coefficients for Llama-3.1-8B on H100, ms (its `config.py`), 5 % overhead
    /// on steps that draft.
    #[test]
    fn turbospec_best_lengths() {
        let table: [(usize, [u32; 5]); 6] = [
            (1, [3, 4, 5, 7, 10]),
            (8, [3, 3, 5, 6, 10]),
            (32, [2, 3, 3, 5, 8]),
            (64, [1, 2, 3, 4, 6]),
            (128, [0, 0, 2, 3, 5]),
            (256, [0, 0, 0, 0, 0]),
        ];
        for (requests, lengths) in table {
            let b = requests as f64;
            let context = 512.0 * b;
            let plain = 4.85907942e-5 * context + (1.84383603e-2 - 4.33144783e-2) * b + 6.9386996;
            // Once a drafting step: the overhead on the plain part, and the draft's own constant and batch terms.
            let once = 0.05 * (plain) + 2.89700974e-6 * context + 4.3869407e-5 * b + 5.52805909e-3 * b + 0.44711096;
            let each_pass = 0.45217587 + 4.3869407e-5 * b;
            let mut batch = Batch::new(&vec![512; requests], &vec![10; requests]);
            let draft = draft_with_one_off(0.0, once * 1e-3, each_pass * 1e-3, &mut batch);
            let gamma_s = 1.05 * 1.84383603e-5;
            let target = Coefficients { alpha_s: 0.0, gamma_s, delta_s: plain * 1e-3 - gamma_s * b };
            for (alpha, best) in [0.5, 0.6, 0.7, 0.8, 0.9].into_iter().zip(lengths) {
                let belief = Belief { draft, target, context_reads: ContextReads::Once, ..BELIEF };
                assert_eq!(policy(belief, alpha, 10).best_length(&batch.view()), best, "batch {requests}, {alpha}");
            }
        }
    }

    #[test]
    fn the_average_learns_and_steps_without_drafts_leave_it() {
        let mut p = policy(CONTEXT.belief, 0.7, 8);
        let drafts = Drafts::default();
        p.observe(&outcome(&drafts, &[4, 3], &[2, 3]));
        let expected = 0.85 * 0.7 + 0.15 * (5.0 / 6.0);
        assert!((p.acceptance - expected).abs() < 1e-15);
        p.observe(&outcome(&drafts, &[0, 0], &[0, 0]));
        p.observe(&outcome(&drafts, &[], &[]));
        assert!((p.acceptance - expected).abs() < 1e-15);
    }

    #[test]
    fn absorption_is_told() {
        let mut p = policy(CONTEXT.belief, 0.0, 8);
        let (can, cannot) = (Batch::new(&[100, 100], &[8, 8]), Batch::new(&[100, 100], &[0, 0]));
        let mut plan = DraftPlan { draft_len: vec![0, 0], ..DraftPlan::default() };
        (0..5000).for_each(|_| p.propose(&cannot.view(), &mut plan));
        (0..999).for_each(|_| p.propose(&can.view(), &mut plan));
        assert_eq!(p.warnings(), Vec::<String>::new());
        p.propose(&can.view(), &mut plan);
        assert!(p.warnings()[0].contains("1000 steps in a row"));
    }

    proptest! {
        /// The argmax equals brute force over section 12's plain reading, limits, chunks and gaps included.
        #[test]
        fn argmax_equals_brute_force(batch in any_batch(12, 8), belief in any_belief(), acceptance in 0.0f64..=1.0) {
            let view = batch.view();
            let goodput = |k: u32| {
                let lens: Vec<u32> = view.limit.iter().map(|&l| l.min(k)).collect();
                let tokens: f64 = lens.iter().map(|&d| expected_tokens(acceptance, d)).sum();
                tokens / belief.step_s(&view, &lens, &lens)
            };
            let chosen = policy(belief, acceptance, 8).best_length(&view);
            let best = (0..=8).map(goodput).fold(0.0, f64::max);
            prop_assert!(goodput(chosen) >= best * (1.0 - 1e-12));
            // No shorter length is as good, beyond rounding.
            prop_assert!((0..chosen).all(|k| goodput(k) < goodput(chosen) * (1.0 + 1e-12)));
        }
    }
}
