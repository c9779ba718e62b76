//! `smartspec`: one draft length for the whole batch. It is the length with the best estimated goodput under a moving
//! average of the acceptance rate and a linear cost model. `smartspec-joint` also chooses how many requests run.
//!
//! Source: Liu et al., "Optimizing Speculative Decoding for Serving Large Language Models Using Goodput" (2024), Alg. 1
//! and 2, with the corrected formula: Alg. 1 line 4 multiplies by n twice (docs/model.md 3.1, 12, 14). `smartspec`
//! takes the scheduler's batch, as all released code does. `joint = true` tries all prefixes of this batch, which is in
//! first-come-first-served order.
//!
//! Prompt lookup (drafts from n-gram matches) needs no further rule. In the estimate of a step, a request without a
//! match drafts nothing and makes one token. Each of the m requests with a match makes E(a, k) tokens. The policy's
//! cost formula (belief) has one draft pass for all draft tokens, that is, parallel drafting (docs/model.md 3.1, 3.6).

use crate::definition::{About, BadParameter, Beliefs, Check, Definition, PolicyContext};
use crate::goodput::ladder::{Ladder, best_of};
use crate::goodput::zero_lengths::ZeroLengths;
use crate::shared::acceptance::{OwnRates, Rate};
use crate::shared::belief::Belief;
use crate::shared::estimator::{Depths, Estimate};
use crate::shared::weighed::Weighed;
use foretoken_sim::{
    BatchView, DraftLimits, DraftPlan, Explanation, NewRequest, PassShape, SpecPolicy, Speculation, StepOutcome,
};
use serde::{Deserialize, Serialize};

/// Settings of the policy `smartspec`, which takes the draft length with the best estimated goodput. The paper gives no
/// window for the average of the acceptance rate. The defaults 0.7 (`initial_acceptance`) and 0.85 (`ema_keep`) are
/// from its public code.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Smartspec {
    /// Acceptance rate, [0, 1], that is assumed until the first draft token was verified.
    pub initial_acceptance: f64,
    /// Weight, [0, 1], of the old average when a step updates the average acceptance rate. The rate of the new step has
    /// the weight 1 − `ema_keep`.
    pub ema_keep: f64,
    /// Which draft tokens count in the denominator of a step's acceptance rate: all verified ones, or only the tokens
    /// up to and including the first rejected one.
    pub rate: Rate,
    /// True chooses also how many requests take part in the step (Alg. 2), not only the draft length.
    pub joint: bool,
    /// If more than this share of past steps had draft length 0, the draft model does not prefill a new request, which
    /// then never has draft tokens (section 5, "Prefill disabling"). 1 turns the rule off.
    pub skip_draft_prefill_above: f64,
    /// Number of steps in a row with draft length 0 after which the run warns, at least 1. Without verified draft
    /// tokens the average acceptance rate cannot recover.
    pub absorbing_steps: u64,
}

impl Default for Smartspec {
    fn default() -> Self {
        Smartspec {
            initial_acceptance: 0.7,
            ema_keep: 0.85,
            rate: Rate::Attempts,
            joint: false,
            skip_draft_prefill_above: 0.7,
            absorbing_steps: 1000,
        }
    }
}

impl Smartspec {
    /// The parameters of `smartspec-joint`: Alg. 2, which also chooses how many requests take part in the step.
    pub fn joint() -> Smartspec {
        Smartspec { joint: true, ..Smartspec::default() }
    }
}

impl Definition for Smartspec {
    fn about(&self) -> About {
        About {
            summary: match self.joint {
                false => "one length a step: the best estimated goodput under the average acceptance rate",
                true => {
                    "how many requests take part, and one length for them: the pair with the best estimated goodput"
                }
            },
            source: match self.joint {
                false => "SmartSpec (arXiv 2406.14066) Alg. 1 and 2, k only, errata corrected",
                true => "SmartSpec (arXiv 2406.14066) Alg. 1 and 2, errata corrected",
            },
            sees: "batch size, context and limits; accepted counts of past steps",
            differences: match self.joint {
                false => {
                    "Alg. 1 line 4 multiplies by n twice: corrected. The average's window is not given: 0.85 old + \
                     0.15 new, from the public code. The draft prefill is skipped as section 5 says, counted over the \
                     steps in which somebody could draft; the public code does not skip it (skip_draft_prefill_above \
                     = 1)"
                }
                true => {
                    "as smartspec, and: the prefixes are those of the running decode requests. Admission, prefill \
                     chunks and KV slots are the scheduler's, decided before (Alg. 2 line 5 asks for slots itself), \
                     so requests still waiting are no candidates; those left out keep their KV and wait. It can \
                     starve the tail of the list. No released code makes this choice"
                }
            },
        }
    }

    fn beliefs(&self) -> Beliefs {
        Beliefs { cost: true, rate: true, ..Beliefs::default() }
    }

    fn check(&self) -> Result<(), BadParameter> {
        let check = Check("smartspec");
        check.share("initial_acceptance", self.initial_acceptance)?;
        check.share("ema_keep", self.ema_keep)?;
        check.share("skip_draft_prefill_above", self.skip_draft_prefill_above)?;
        check.that("absorbing_steps", self.absorbing_steps > 0, || "must be at least 1 step".into())
    }

    fn build(&self, context: &PolicyContext) -> Speculation {
        Speculation::Policy(Box::new(BestLength::new(*self, context)))
    }
}

/// The policy `smartspec` while the engine runs: its settings, and what it keeps from step to step.
struct BestLength {
    params: Smartspec,
    belief: Belief,
    longest: u32,
    acceptance: f64,
    own_rates: OwnRates,
    zeroes: ZeroLengths,
    depths: Depths,
    /// Estimated goodput (expected tokens per second) of the choice in the last step.
    goodput: f64,
    weighed: Weighed,
}

impl BestLength {
    fn new(params: Smartspec, context: &PolicyContext) -> BestLength {
        BestLength {
            params,
            belief: context.belief,
            longest: context.max_draft_len,
            acceptance: context.told.map_or(params.initial_acceptance, |t| t.acceptance_rate),
            own_rates: OwnRates::of(context),
            zeroes: ZeroLengths::new(params.absorbing_steps, params.skip_draft_prefill_above, context.belief.drafting),
            depths: Depths::default(),
            goodput: 0.0,
            weighed: Weighed::default(),
        }
    }

    /// The draft length k with the most expected tokens per second, the smallest k on a tie. A request whose limit on
    /// draft tokens is below k drafts up to its limit, also in the estimate. Stores the goodput of the chosen length.
    fn best_length(&mut self, batch: &BatchView) -> u32 {
        self.depths.fill(batch, self.longest);
        let undrafted = Estimate::undrafted(&self.belief, batch);
        let ladder = Ladder::new(undrafted, batch.len(), &self.depths, self.longest, self.acceptance);
        let weighed = &mut self.weighed;
        let (k, goodput) = best_of(ladder, |k, goodput| weighed.note(goodput, || format!("k = {k}")));
        self.goodput = goodput;
        k
    }

    /// Alg. 2: tries each prefix of the batch with its best draft length. Returns the number of requests in the prefix
    /// with the greatest goodput (expected tokens per second), the shortest prefix on a tie. Sums are extended request
    /// by request, so trying all prefixes costs O(requests × lengths).
    fn best_prefix(&mut self, batch: &BatchView) -> usize {
        self.depths.clear(self.longest);
        let mut plain =
            PassShape { batched: batch.prefill.tokens, context: batch.prefill.context, ..PassShape::default() };
        let mut idle = PassShape {
            batched: batch.draft_prefill.tokens,
            context: batch.draft_prefill.context,
            ..PassShape::default()
        };
        let mut best = (1, f64::NEG_INFINITY);
        for i in 0..batch.len() {
            self.depths.add(batch, i);
            plain.batched += 1;
            plain.context += u64::from(batch.context[i]);
            idle.batched += if batch.always_extend { u64::from(batch.draft_gap[i]) } else { 0 };
            let undrafted = Estimate::of_passes(&self.belief, (idle.batched > 0).then_some(idle), plain);
            let ladder = Ladder::new(undrafted, i + 1, &self.depths, self.longest, self.acceptance);
            let (k, goodput) = best_of(ladder, |_, _| ());
            self.weighed.note(goodput, || format!("first {} requests, k = {k}", i + 1));
            if goodput > best.1 {
                best = (i + 1, goodput);
            }
        }
        best.0
    }
}

impl SpecPolicy for BestLength {
    fn limits(&self) -> DraftLimits<'_> {
        DraftLimits::chain(self.longest)
    }

    fn drafts_for_next(&mut self, _: &NewRequest) -> bool {
        self.zeroes.drafts_for_next()
    }

    fn max_batch(&mut self, batch: &BatchView) -> Option<usize> {
        if !self.params.joint {
            return None;
        }
        self.weighed.begin();
        self.acceptance = self.own_rates.mean(batch.ids).unwrap_or(self.acceptance);
        Some(self.best_prefix(batch))
    }

    fn propose(&mut self, batch: &BatchView, plan: &mut DraftPlan) {
        if !self.params.joint {
            self.weighed.begin();
        }
        self.acceptance = self.own_rates.mean(batch.ids).unwrap_or(self.acceptance);
        let k = self.best_length(batch);
        plan.fill(k);
        if self.depths.at(1).requests > 0 {
            self.zeroes.chose(k);
        }
    }

    fn observe(&mut self, outcome: &StepOutcome) {
        if let Some(rate) = self.params.rate.of(outcome) {
            self.acceptance = self.params.ema_keep * self.acceptance + (1.0 - self.params.ema_keep) * rate;
        }
    }

    fn warnings(&self) -> Vec<String> {
        self.zeroes.warnings(if self.params.joint { "smartspec-joint" } else { "smartspec" }, self.acceptance)
    }

    fn explain(&mut self) -> Explanation {
        self.weighed.explain(Some(self.goodput))
    }
}

#[cfg(test)]
#[path = "smartspec_tests.rs"]
mod tests;
