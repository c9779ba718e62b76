//! `smartspec-dsd`: SmartSpec as in its authors' vLLM v0 fork. It decides every 20 steps. Speculation must beat 1.1
//! times the goodput without draft tokens. The search goes over the lengths from 0 up and stops at the first length
//! that is no better than the one before.
//!
//! Source: LiuXiaoxuanPKU/vllm, branch dsd @b427a138, `vllm/spec_decode/dsd.py`. The rule for n-gram proposals is from
//! the earlier commit @647244ce (docs/model.md 3.3): always propose 8 tokens, none if the batch has more than 32
//! requests, and verify at most 7.

use crate::definition::{About, BadParameter, Beliefs, Check, Definition, PolicyContext};
use crate::goodput::ladder::Ladder;
use crate::goodput::zero_lengths::ZeroLengths;
use crate::shared::acceptance::{OwnRates, Rate};
use crate::shared::belief::Belief;
use crate::shared::estimator::{Depths, Estimate};
use crate::shared::weighed::Weighed;
use foretoken_sim::{BatchView, DraftLimits, DraftPlan, Drafts, Explanation, SpecPolicy, Speculation, StepOutcome};
use serde::{Deserialize, Serialize};

/// What makes the draft tokens: a draft model or n-gram matches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Proposer {
    /// A draft model makes the draft tokens, so the policy decides the draft length before drafting.
    #[default]
    Model,
    /// n-gram matches in the text so far: all matched tokens are proposed, and the length is decided before
    /// verification.
    Ngram,
}

/// Settings of the policy `smartspec-dsd`, which is SmartSpec as in its authors' vLLM v0 fork. The defaults are the
/// constants of the published branch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SmartspecDsd {
    /// What makes the draft tokens: a draft model or n-gram matches.
    pub proposer: Proposer,
    /// Acceptance rate, [0, 1], that is assumed until the first draft token was verified.
    pub initial_acceptance: f64,
    /// Weight, [0, 1], of the old average when a step updates the average acceptance rate.
    pub ema_keep: f64,
    /// Which draft tokens count in the denominator of a step's acceptance rate: all verified ones, or only the tokens
    /// up to and including the first rejected one.
    pub rate: Rate,
    /// Number of steps from one decision about the draft length to the next, at least 1.
    pub update_interval: u32,
    /// With the proposer `model`: factor, > 0, on the goodput without draft tokens. Drafting must have more goodput
    /// than this product.
    pub zero_handicap: f64,
    /// Number of tokens that fit into the engine's KV cache (16 · its blocks). The policy does not choose a length with
    /// which the batch's KV tokens, times `kv_margin`, exceed this number. With 0 the policy does not check this, and
    /// only the scheduler limits KV memory.
    pub kv_tokens: u64,
    /// Factor on the batch's KV tokens before they are compared with `kv_tokens`, > 0.
    pub kv_margin: f64,
    /// With the proposer `ngram`: number of tokens that are proposed for each request, 1 to 32.
    pub ngram_propose: u32,
    /// With the proposer `ngram`: most tokens that are verified for each request, 1 to 32.
    pub ngram_verify: u32,
    /// With the proposer `ngram`: largest batch that gets proposals, at least 1.
    pub ngram_max_batch: u32,
    /// The run warns if draft length 0 was chosen in this number of steps in a row, at least 1. Without draft tokens
    /// the acceptance rate is no longer observed.
    pub absorbing_steps: u64,
}

impl Default for SmartspecDsd {
    fn default() -> Self {
        SmartspecDsd {
            proposer: Proposer::Model,
            initial_acceptance: 0.7,
            ema_keep: 0.85,
            rate: Rate::Attempts,
            update_interval: 20,
            zero_handicap: 1.1,
            kv_tokens: 0,
            kv_margin: 1.1,
            ngram_propose: 8,
            ngram_verify: 7,
            ngram_max_batch: 32,
            absorbing_steps: 1000,
        }
    }
}

impl Definition for SmartspecDsd {
    fn about(&self) -> About {
        About {
            summary: "SmartSpec as first released: decides every 20 steps, 1.1 x goodput(0), stops at the first \
                      length that is no better",
            source: "LiuXiaoxuanPKU/vllm dsd @b427a138 vllm/spec_decode/dsd.py (n-gram: @647244ce)",
            sees: "batch size, contexts and limits; accepted counts of past steps; the size of the KV pool where it \
                   is given",
            differences: "times are the belief's, with this step's chunks and gaps: the branch looks them up by \
                          (length bucket, batch, k), from a fit of its table at 32 requests and above, and adds a \
                          fitted overhead. A step's rate is over attempts; the branch counts every position. The \
                          pool's size is a setting (kv_tokens), off by default: the policy cannot see it. The branch \
                          charges 1.2 ms for n-gram at k = 0; here every verify length is charged the draft time of \
                          what was proposed",
        }
    }

    fn beliefs(&self) -> Beliefs {
        Beliefs { cost: true, rate: true, ..Beliefs::default() }
    }

    fn check(&self) -> Result<(), BadParameter> {
        let check = Check("smartspec-dsd");
        check.share("initial_acceptance", self.initial_acceptance)?;
        check.share("ema_keep", self.ema_keep)?;
        check.that("update_interval", self.update_interval > 0, || "must be at least 1 step".into())?;
        let factor = |x: f64| x.is_finite() && x > 0.0;
        check.that("zero_handicap", factor(self.zero_handicap), || "must be a factor above 0".into())?;
        check.that("kv_margin", factor(self.kv_margin), || "must be a factor above 0".into())?;
        check.length("ngram_propose", self.ngram_propose)?;
        check.length("ngram_verify", self.ngram_verify)?;
        check.that("ngram_max_batch", self.ngram_max_batch > 0, || "must be at least 1 request".into())?;
        check.that("absorbing_steps", self.absorbing_steps > 0, || "must be at least 1 step".into())
    }

    fn build(&self, context: &PolicyContext) -> Speculation {
        Speculation::Policy(Box::new(Running::new(*self, context)))
    }
}

/// The policy `smartspec-dsd` while the engine runs: its settings, and what it keeps from step to step.
struct Running {
    params: SmartspecDsd,
    belief: Belief,
    longest: u32,
    acceptance: f64,
    own_rates: OwnRates,
    /// Number of steps until the next decision (`wait`), and the length that the last decision chose. It is the draft
    /// length; with n-gram proposals it is the verify length.
    wait: u32,
    length: u32,
    /// Estimated goodput of the length that this step chose, in tokens per second; multiplied by `zero_handicap` if
    /// draft length 0 was chosen. `None` if the step chose no length or no length was feasible.
    goodput: Option<f64>,
    depths: Depths,
    /// For each number v of n-gram proposals, from 0: the step time in seconds by the policy's linear belief (its cost
    /// estimate), if each request verifies at most v of them.
    times: Vec<f64>,
    zeroes: ZeroLengths,
    weighed: Weighed,
}

impl Running {
    fn new(params: SmartspecDsd, context: &PolicyContext) -> Running {
        let longest = match params.proposer {
            Proposer::Model => context.max_draft_len,
            Proposer::Ngram => params.ngram_propose.min(context.max_draft_len),
        };
        Running {
            belief: context.belief,
            longest,
            acceptance: context.told.map_or(params.initial_acceptance, |t| t.acceptance_rate),
            own_rates: OwnRates::of(context),
            wait: 0,
            length: 0,
            goodput: None,
            depths: Depths::default(),
            times: Vec::new(),
            // The second argument, 1, is the share of steps with draft length 0 above which the draft model's prefill
            // of a request is skipped. No share is above 1, so no prefill is skipped, as in the authors' branch.
            zeroes: ZeroLengths::new(params.absorbing_steps, 1.0, context.belief.drafting),
            weighed: Weighed::default(),
            params,
        }
    }

    /// True if this step chooses a new length: the first call, then every `update_interval`-th call. Call it once per
    /// step.
    fn decides(&mut self) -> bool {
        let decides = self.wait == 0;
        self.wait = if decides { self.params.update_interval - 1 } else { self.wait - 1 };
        decides
    }

    /// True if the batch's KV tokens, with `k` draft tokens for each request, times `kv_margin` exceed `kv_tokens`.
    /// False if `kv_tokens` is 0.
    fn infeasible(&self, batch: &BatchView, k: u32) -> bool {
        let average = batch.context_sum / batch.len() as u64;
        let tokens = batch.len() as f64 * (average + u64::from(k) + 1) as f64;
        self.params.kv_tokens > 0 && tokens * self.params.kv_margin > self.params.kv_tokens as f64
    }

    /// Chooses the draft length before drafting: goes up from 0 while the length is feasible and the goodput (expected
    /// tokens per second) rises. The goodput at length 0 is multiplied by `zero_handicap`.
    fn decide_draft(&mut self, batch: &BatchView) {
        self.depths.fill(batch, self.longest);
        let undrafted = Estimate::undrafted(&self.belief, batch);
        let mut best = (0, -1.0);
        for (k, goodput) in Ladder::new(undrafted, batch.len(), &self.depths, self.longest, self.acceptance) {
            if self.infeasible(batch, k) {
                break;
            }
            let goodput = if k == 0 { goodput * self.params.zero_handicap } else { goodput };
            self.weighed.note(goodput, || format!("k = {k}"));
            if goodput <= best.1 {
                break;
            }
            best = (k, goodput);
        }
        self.length = best.0;
        // If not even length 0 is feasible (the batch's KV tokens with their margin do not fit), there is no estimated
        // goodput.
        self.goodput = (best.1 > 0.0).then_some(best.1);
    }

    /// Chooses the verify length for n-gram proposals: goes up from 0 while the goodput rises. The estimate counts E(a,
    /// v) tokens for each request with proposals, one token for each other request, and the draft time of all
    /// proposals.
    fn decide_verify(&mut self, batch: &BatchView) {
        self.depths.fill(batch, self.longest);
        let mut estimate = Estimate::undrafted(&self.belief, batch);
        (1..=self.longest).for_each(|depth| estimate.deepen(self.depths.at(depth)));
        self.times.clear();
        self.times.resize(self.longest as usize + 1, 0.0);
        for v in (0..=self.longest).rev() {
            self.times[v as usize] = estimate.step_s();
            let last = self.depths.at(v);
            estimate.drop_tokens(last.requests, last.context + last.requests * u64::from(v));
        }
        let (mut tokens, mut reached) = (batch.len() as f64, 1.0);
        let mut best = (0, -1.0);
        for v in 0..=self.longest.min(self.params.ngram_verify) {
            if v > 0 {
                reached *= self.acceptance;
                tokens += self.depths.at(v).requests as f64 * reached;
            }
            let goodput = tokens / self.times[v as usize];
            self.weighed.note(goodput, || format!("verify {v}"));
            if goodput <= best.1 {
                break;
            }
            best = (v, goodput);
        }
        self.length = best.0;
        self.goodput = Some(best.1);
    }
}

impl SpecPolicy for Running {
    fn limits(&self) -> DraftLimits<'_> {
        DraftLimits::chain(self.longest)
    }

    fn propose(&mut self, batch: &BatchView, plan: &mut DraftPlan) {
        self.weighed.begin();
        self.goodput = None;
        self.acceptance = self.own_rates.mean(batch.ids).unwrap_or(self.acceptance);
        match self.params.proposer {
            Proposer::Model => {
                if self.decides() {
                    self.decide_draft(batch);
                }
                plan.fill(self.length);
                if batch.limit.iter().any(|&l| l > 0) {
                    self.zeroes.chose(self.length);
                }
            }
            Proposer::Ngram if batch.len() <= self.params.ngram_max_batch as usize => plan.fill(self.longest),
            Proposer::Ngram => {}
        }
    }

    fn select(&mut self, batch: &BatchView, drafts: &mut Drafts) {
        if self.params.proposer == Proposer::Model {
            drafts.nothing_to_decide();
            return;
        }
        // With n-gram proposals, only steps that have proposals count towards `update_interval`.
        match self.decides() {
            true => self.decide_verify(batch),
            false => drafts.nothing_to_decide(),
        }
        self.zeroes.chose(self.length);
        drafts.verify_len.iter_mut().for_each(|len| *len = (*len).min(self.length));
    }

    fn observe(&mut self, outcome: &StepOutcome) {
        if let Some(rate) = self.params.rate.of(outcome) {
            self.acceptance = self.params.ema_keep * self.acceptance + (1.0 - self.params.ema_keep) * rate;
        }
    }

    fn warnings(&self) -> Vec<String> {
        self.zeroes.warnings("smartspec-dsd", self.acceptance)
    }

    fn explain(&mut self) -> Explanation {
        self.weighed.explain(self.goodput)
    }
}

#[cfg(test)]
#[path = "smartspec_dsd_tests.rs"]
mod tests;
