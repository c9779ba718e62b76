//! A running estimate of a step's time by the policy's belief (its linear cost formula). It is extended by one draft
//! depth at a time, with the formulas of docs/model.md 12.
//!
//! Every policy with a cost model compares many draft lengths in every step. Extending one estimate makes this
//! O(requests + depths) a step. The estimate must agree with [`Belief::step_s`] and must never see the true cost.

use crate::shared::belief::{Belief, pass_s};
use foretoken_sim::{BatchView, ContextReads, Drafting, PassShape, shape};

/// Sums over the decode requests that would draft a token at one depth. The depth is a token's place among its
/// request's draft tokens of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depth {
    /// Number of decode requests that would draft a token at the depth.
    pub requests: u64,
    /// Sum of the contexts c_i (KV tokens) of the requests that would draft a token at the depth.
    pub context: u64,
    /// Sum of the requests' catch-up tokens g_i (context tokens that the draft model has skipped), which join the first
    /// draft pass only. The sum is 0 if the draft model extends its KV in every step, because the whole batch's
    /// catch-up tokens are then part of every step.
    pub catch_up: u64,
}

/// For each draft depth from 1 to the longest: how many requests may draft that deep, with the sums of their KV tokens
/// and of their catch-up tokens (context tokens that the draft model has skipped). Keeps its buffer between steps.
#[derive(Clone, Debug, Default)]
pub struct Depths {
    at: Vec<Depth>,
}

impl Depths {
    /// Fills in the sums over requests at each draft depth. Request i may draft up to `min(limit_i, longest)` tokens.
    pub fn fill(&mut self, batch: &BatchView, longest: u32) {
        self.clear(longest);
        for ((&limit, &context), &gap) in batch.limit.iter().zip(batch.context).zip(batch.draft_gap) {
            let at = &mut self.at[limit.min(longest) as usize];
            at.requests += 1;
            at.context += u64::from(context);
            at.catch_up += if batch.always_extend { 0 } else { u64::from(gap) };
        }
        // A request that drafts a token at a depth also drafts at every smaller depth, so the sums over requests are
        // added up from the deepest depth on.
        for j in (1..longest as usize).rev() {
            let deeper = self.at[j + 1];
            self.at[j].requests += deeper.requests;
            self.at[j].context += deeper.context;
            self.at[j].catch_up += deeper.catch_up;
        }
    }

    /// Sets the sums over requests at all draft depths up to `longest` to 0, that is, to no requests.
    pub(crate) fn clear(&mut self, longest: u32) {
        self.at.clear();
        self.at.resize(longest as usize + 1, Depth::default());
    }

    /// Adds the request at batch index `i` to the sums of all draft depths that it may reach. Calling it for all
    /// requests after [`clear`](Depths::clear) equals `fill`.
    pub(crate) fn add(&mut self, batch: &BatchView, i: usize) {
        let most = batch.limit[i].min(self.at.len() as u32 - 1) as usize;
        for at in &mut self.at[1..=most] {
            at.requests += 1;
            at.context += u64::from(batch.context[i]);
            at.catch_up += if batch.always_extend { 0 } else { u64::from(batch.draft_gap[i]) };
        }
    }

    /// Sums over the requests that would draft a token at `depth` (from 1). All sums are 0 beyond the longest draft
    /// length.
    #[inline]
    pub fn at(&self, depth: u32) -> Depth {
        self.at.get(depth as usize).copied().unwrap_or_default()
    }
}

/// The time of a step by the policy's belief (its linear cost formula). [`deepen`](Estimate::deepen) adds the draft
/// tokens of one more depth, all of which are verified. Then [`drop_token`](Estimate::drop_token) takes single draft
/// tokens out of verification.
#[derive(Clone, Copy, Debug)]
pub struct Estimate {
    belief: Belief,
    /// Tokens that the draft model processes besides drafting: the tokens of prompt chunks and, if the engine always
    /// extends the draft model's KV, all catch-up tokens (context tokens that the draft model has skipped). These
    /// tokens join the first draft pass, or form a pass alone if nothing is drafted.
    riders: PassShape,
    passes: u32,
    draft_s: f64,
    verify_s: f64,
}

impl Estimate {
    /// The time of the step by the policy's belief (its linear cost formula) if nothing is drafted. Takes O(requests)
    /// time.
    pub fn undrafted(belief: &Belief, batch: &BatchView) -> Estimate {
        Estimate::of_passes(belief, shape::draft_idle_pass(batch), shape::plain_pass(batch))
    }

    /// The estimated time of the step without draft tokens, from the shapes of its passes. `idle` is the draft model's
    /// pass over prompt chunks and catch-up tokens (context tokens that it has skipped), if there is one. `plain` is
    /// the target model's pass.
    pub(crate) fn of_passes(belief: &Belief, idle: Option<PassShape>, plain: PassShape) -> Estimate {
        Estimate {
            belief: *belief,
            riders: idle.unwrap_or_default(),
            passes: 0,
            draft_s: idle.map_or(0.0, |s| pass_s(&belief.draft, s)),
            verify_s: pass_s(&belief.target, plain),
        }
    }

    /// Adds a draft pass at the next depth, over the requests counted in `at`, and the verification of the tokens that
    /// they draft. Does nothing if `at` counts no request.
    pub fn deepen(&mut self, at: Depth) {
        if at.requests == 0 {
            return;
        }
        let (n, before) = (at.requests, u64::from(self.passes));
        let mut pass = PassShape { requests: n, batched: n, context: at.context + n * before, pairs: 0 };
        if self.passes == 0 {
            pass.batched += self.riders.batched + at.catch_up;
            pass.context += self.riders.context;
            self.draft_s = 0.0;
        }
        self.passes += 1;
        self.draft_s += match self.belief.drafting {
            // With parallel drafting one pass makes all draft tokens and is charged at the first depth. Each deeper
            // token adds only γ, the coefficient of one token.
            Drafting::Parallel if before > 0 => self.belief.draft.gamma_s * n as f64,
            _ => pass_s(&self.belief.draft, pass),
        };
        self.verify_s += self.verify_tokens_s(n, at.context + n * (before + 1));
    }

    /// Removes one draft token from verification; the time of drafting it stays. `position` is c_i + j for the j-th
    /// draft token (j from 1) of request i, which has c_i tokens of context.
    pub fn drop_token(&mut self, position: u64) {
        self.drop_tokens(1, position);
    }

    /// Removes `n` draft tokens from verification; their positions c_i + j (context of request i plus place in its
    /// draft) add up to `positions`.
    pub(crate) fn drop_tokens(&mut self, n: u64, positions: u64) {
        self.verify_s -= self.verify_tokens_s(n, positions);
    }

    /// Number of draft passes of the step in this estimate.
    pub fn passes(&self) -> u32 {
        self.passes
    }

    /// The step's time in seconds in this estimate, by the policy's belief (its linear cost formula).
    pub fn step_s(&self) -> f64 {
        self.draft_s + self.verify_s
    }

    /// Believed seconds that `n` more verified tokens add to the verify pass, if the contexts that they attend to add
    /// up to `context` tokens.
    fn verify_tokens_s(&self, n: u64, context: u64) -> f64 {
        let read = match self.belief.context_reads {
            ContextReads::Once => 0.0,
            ContextReads::PerPosition => self.belief.target.alpha_s * context as f64,
        };
        self.belief.target.gamma_s * n as f64 + read
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Batch, any_batch, any_belief, close};
    use foretoken_sim::{Coefficients, LatencyModel, Linear};
    use itertools::Itertools;
    use proptest::prelude::*;

    /// AdaSpec Eq. 5: if all requests have the same draft length and every verified position reads the context again,
    /// the step time is quadratic in the length. Its second difference is B·(α_d + α_v) at every length, for B
    /// requests.
    #[test]
    fn adaspec_equation_5_is_quadratic_in_the_length() {
        let belief = Belief {
            draft: Coefficients { alpha_s: 2e-9, gamma_s: 3e-7, delta_s: 1e-3 },
            target: Coefficients { alpha_s: 5e-8, gamma_s: 2e-5, delta_s: 7e-3 },
            context_reads: ContextReads::PerPosition,
            drafting: Drafting::Autoregressive,
        };
        let batch = Batch::new(&[100, 900, 350], &[8; 3]);
        let time = |k: u32| belief.step_s(&batch.view(), &[k; 3], &[k; 3]);
        for k in 0..7 {
            // The second difference of the step time at draft length k = 0 is the same as at greater k, because the
            // cost model has no one-off cost of drafting.
            let second = time(k + 2) - 2.0 * time(k + 1) + time(k);
            assert!((second - 3.0 * (2e-9 + 5e-8)).abs() < 1e-14, "k {k}: {second}");
        }
        // The whole step time by hand at draft length k = 1: one draft pass over 3 requests with 1,350 tokens of
        // context in total, and a target pass over two positions of each request.
        let by_hand = (2e-9 * 1350.0 + 3e-7 * 3.0 + 1e-3) + (5e-8 * (1350.0 + 1353.0) + 2e-5 * 6.0 + 7e-3);
        assert!(close(time(1), by_hand));
    }

    proptest! {
        /// An estimate that was extended depth by depth equals [`Belief::step_s`] at every draft length, for all limits
        /// on draft tokens, prompt chunks and draft gaps (context tokens that the draft model skipped). So does an
        /// estimate from which draft tokens were dropped.
        #[test]
        fn growing_equals_the_plain_reading(batch in any_batch(12, 8), belief in any_belief(), cut in 0u32..4) {
            let view = batch.view();
            let mut depths = Depths::default();
            depths.fill(&view, 8);
            let mut grown = Estimate::undrafted(&belief, &view);
            for k in 0..=8u32 {
                if k > 0 {
                    grown.deepen(depths.at(k));
                }
                let lens: Vec<u32> = view.limit.iter().map(|&l| l.min(k)).collect();
                prop_assert!(close(grown.step_s(), belief.step_s(&view, &lens, &lens)));
                prop_assert_eq!(grown.passes(), lens.iter().copied().max().unwrap_or(0));

                let mut shrunk = grown;
                let kept: Vec<u32> = lens.iter().map(|&d| d.saturating_sub(cut)).collect();
                for ((&d, &v), &c) in lens.iter().zip_eq(&kept).zip_eq(view.context) {
                    (v + 1..=d).for_each(|j| shrunk.drop_token(u64::from(c + j)));
                }
                prop_assert!(close(shrunk.step_s(), belief.step_s(&view, &lens, &kept)));
            }
        }

        /// A belief (a policy's linear cost formula) with the true coefficients predicts the simulator's step time, up
        /// to the simulator's rounding to picoseconds.
        #[test]
        fn the_right_belief_is_the_truth(batch in any_batch(12, 8), belief in any_belief()) {
            let view = batch.view();
            let (draft, target) = (Linear::new(belief.draft), Linear::new(belief.target));
            let lens: Vec<u32> = view.limit.to_vec();
            let passes = lens.iter().copied().max().unwrap_or(0);
            let mut truth = target.pass(shape::verify_pass(&view, &lens, belief.context_reads));
            match belief.drafting {
                Drafting::Parallel if passes > 0 => truth += draft.pass(shape::draft_block(&view, &lens)),
                _ => (1..=passes).for_each(|pass| truth += draft.pass(shape::draft_pass(&view, &lens, pass))),
            }
            if passes == 0 && let Some(idle) = shape::draft_idle_pass(&view) {
                truth += draft.pass(idle);
            }
            // The simulator rounds to picoseconds. This moves the step time by at most half a picosecond for each
            // coefficient of a pass and each token.
            let tokens: u64 = 200 * u64::from(u16::MAX);
            prop_assert!((truth.as_s() - belief.step_s(&view, &lens, &lens)).abs() < tokens as f64 * 1e-12);
        }
    }
}
