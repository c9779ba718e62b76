//! `turbospec-v1`: in every 200th step all requests draft the longest draft length. The policy then tries the verify
//! lengths from the shortest up, while the estimated goodput (tokens per second) rises. The length with the greatest
//! goodput is drafted until the next decision.
//!
//! Source: "TurboSpec", v3 of arXiv 2406.14066, as in its vLLM V1 code: LiuXiaoxuanPKU/vllm, branch batch-dsd
//! @b08a7d37, `AutoTuner` in `vllm/v1/spec_decode/auto_tuner.py`, as restated in docs/model.md 3.4. The branch does not
//! run as published. This policy uses the branch's formulas. Each known mistake in the formulas can be switched on or
//! off by a parameter.

use crate::definition::{About, BadParameter, Beliefs, Check, Definition, PolicyContext};
use crate::goodput::smartspec_dsd::Proposer;
use crate::goodput::turbospec_cost::{Coefficients, DraftCost, Load, TargetCost};
use crate::shared::acceptance::{OwnRates, Rate, RunningMean};
use crate::shared::weighed::Weighed;
use foretoken_sim::{
    BatchView, DraftLimits, DraftPlan, Drafts, Explanation, MAX_SPEC_LEN, SpecPolicy, Speculation, StepOutcome,
};
use serde::{Deserialize, Serialize};

/// Settings of the policy `turbospec-v1`, which in every 200th step chooses the draft length by estimated goodput
/// (tokens per second). The defaults are the constants of the published branch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Turbospec {
    /// Where the coefficients of the step times come from: the policy's belief (its linear cost estimate) or published
    /// fits. The fits hold only near the points to which they were fitted.
    pub coefficients: Coefficients,
    /// What makes the draft tokens: a draft model, or n-gram matches that cost a share of the target's time.
    pub proposer: Proposer,
    /// Time in which n-gram proposals are made, as a share of the target's time, ≥ 0.
    pub ngram_share: f64,
    /// Time that speculation adds to a step beside drafting (overhead), as a share of the target's time, ≥ 0.
    pub overhead_share: f64,
    /// True counts each request's newest token, which needs no draft token, twice, as the published code does.
    pub double_count: bool,
    /// Number of engine steps from one decision about the draft length to the next, at least 1.
    pub period: u32,
    /// Number of newest steps with draft tokens whose acceptance rates are averaged, 1 to 10000.
    pub window: u32,
    /// Acceptance rate, [0, 1], that is assumed until the first draft token was verified.
    pub initial_acceptance: f64,
    /// Which draft tokens count in the denominator of a step's acceptance rate: all verified ones, or only the tokens
    /// up to and including the first rejected one.
    pub rate: Rate,
    /// The shortest draft length that may be chosen. 1 is as published, so speculation is never off; 0 is as the paper
    /// says.
    pub k_start: u32,
}

impl Default for Turbospec {
    fn default() -> Self {
        Turbospec {
            coefficients: Coefficients::Belief,
            proposer: Proposer::Model,
            ngram_share: 0.04,
            overhead_share: 0.05,
            double_count: true,
            period: 200,
            window: 100,
            initial_acceptance: 0.7,
            rate: Rate::Attempts,
            k_start: 1,
        }
    }
}

impl Definition for Turbospec {
    fn about(&self) -> About {
        About {
            summary: "every 200 steps the length with the best estimated goodput, never 0, kept until the next time",
            source: "TurboSpec (arXiv 2406.14066 v3); LiuXiaoxuanPKU/vllm batch-dsd @b08a7d37 \
                     vllm/v1/spec_decode/auto_tuner.py",
            sees: "requests and tokens of the step, contexts and limits; accepted counts of past steps",
            differences: "costs are the belief's unless coefficients says otherwise. The branch never turns \
                          speculation off (k_start = 1), though the paper says it can (k_start = 0). It is counted \
                          in engine steps and decides in those that are multiples of 200 and draft; until the first \
                          of them the full length is proposed and verified. A step's rate is over attempts; the \
                          branch takes all drafts. A chunk's request counts the prompt so far as its KV, not the \
                          whole prompt",
        }
    }

    fn asks_for(&self) -> Option<(&'static str, u32)> {
        (self.k_start > 1).then_some(("k_start", self.k_start))
    }

    fn beliefs(&self) -> Beliefs {
        Beliefs { cost: self.coefficients == Coefficients::Belief, rate: true, ..Beliefs::default() }
    }

    fn check(&self) -> Result<(), BadParameter> {
        let check = Check("turbospec-v1");
        check.that(
            "proposer",
            self.coefficients != Coefficients::H100Llama70b || self.proposer == Proposer::Ngram,
            || "no draft model was published for h100-70b: use ngram, or other coefficients".into(),
        )?;
        let share = |x: f64| x.is_finite() && x >= 0.0;
        check.that("ngram_share", share(self.ngram_share), || "must be a share of at least 0".into())?;
        check.that("overhead_share", share(self.overhead_share), || "must be a share of at least 0".into())?;
        check.that("period", self.period > 0, || "must be at least 1 step".into())?;
        check.that("window", (1..=10_000).contains(&self.window), || {
            format!("{} is not a number of steps from 1 to 10000", self.window)
        })?;
        check.share("initial_acceptance", self.initial_acceptance)?;
        check.that("k_start", self.k_start <= MAX_SPEC_LEN, || format!("is above {MAX_SPEC_LEN}, the longest draft"))
    }

    fn build(&self, context: &PolicyContext) -> Speculation {
        Speculation::Policy(Box::new(Running::new(*self, context)))
    }
}

/// The policy `turbospec-v1` while the engine runs: its settings, and what it keeps from step to step.
struct Running {
    params: Turbospec,
    target: TargetCost,
    draft: DraftCost,
    longest: u32,
    /// True under `foretoken decide`, a command that asks the policy about a single step: then every step decides.
    always: bool,
    acceptance: RunningMean,
    own_rates: OwnRates,
    /// The draft length that the last decision chose; the longest draft length before the first decision.
    length: u32,
    deciding: bool,
    goodput: Option<f64>,
    weighed: Weighed,
}

impl Running {
    fn new(params: Turbospec, context: &PolicyContext) -> Running {
        let start = context.told.map_or(params.initial_acceptance, |t| t.acceptance_rate);
        Running {
            target: TargetCost::of(params.coefficients, &context.belief),
            draft: match (params.proposer, params.coefficients) {
                (Proposer::Ngram, _) => DraftCost::Share(params.ngram_share),
                (Proposer::Model, Coefficients::Belief) => DraftCost::Belief(context.belief),
                (Proposer::Model, _) => DraftCost::Eagle,
            },
            longest: context.max_draft_len,
            always: context.told.is_some(),
            acceptance: RunningMean::new(start, Some(params.window)),
            own_rates: OwnRates::of(context),
            length: context.max_draft_len,
            deciding: false,
            goodput: None,
            weighed: Weighed::default(),
            params,
        }
    }

    /// Estimated goodput, in tokens per second: (m·E(α, k) + B − m) / (T_target + overhead + T_draft), where m of the
    /// step's B requests may draft. `expected` is E(α, k). At k = 0 the overhead and T_draft are 0.
    fn goodput(&self, load: &Load, k: u32, expected: f64) -> f64 {
        let others = load.requests - load.drafting;
        let verified = load.drafting * (f64::from(k) + 1.0) + others;
        let tokens = match self.params.double_count {
            true => verified + load.scheduled,
            // Both `verified` and `scheduled` have one token for every request. Only `scheduled` has the further tokens
            // of prompt chunks.
            false => verified + load.scheduled - load.requests,
        };
        let target_s = self.target.seconds(load, tokens);
        let speculation_s = match k {
            0 => 0.0,
            _ => self.params.overhead_share * target_s + self.draft.seconds(load, k, target_s),
        };
        (load.drafting * expected + others) / (target_s + speculation_s)
    }

    /// Chooses the draft length: goes up from `k_start` while the goodput (tokens per second) rises, at most to the
    /// longest length `proposed` in this step.
    fn decide(&mut self, batch: &BatchView, proposed: u32) {
        let load = Load::of(batch);
        let a = self.own_rates.mean(batch.ids).unwrap_or_else(|| self.acceptance.value());
        let (mut expected, mut reached) = (1.0, 1.0);
        let (mut best, mut goodput) = (self.params.k_start.min(proposed), f64::NEG_INFINITY);
        for k in 0..=proposed {
            if k > 0 {
                reached *= a;
                expected += reached;
            }
            if k < self.params.k_start.min(proposed) {
                continue;
            }
            let now = self.goodput(&load, k, expected);
            self.weighed.note(now, || format!("k = {k}"));
            if now <= goodput {
                break;
            }
            (best, goodput) = (k, now);
        }
        self.length = best;
        self.goodput = Some(goodput);
    }
}

impl SpecPolicy for Running {
    /// The scheduler always reserves lookahead slots (KV slots for draft tokens) for the longest draft length, because
    /// the policy does not know when the next deciding step comes.
    fn limits(&self) -> DraftLimits<'_> {
        DraftLimits::chain(self.longest)
    }

    fn propose(&mut self, batch: &BatchView, plan: &mut DraftPlan) {
        self.weighed.begin();
        self.goodput = None;
        self.deciding = self.always || batch.step.is_multiple_of(u64::from(self.params.period));
        plan.fill(if self.deciding { self.longest } else { self.length });
    }

    fn select(&mut self, batch: &BatchView, drafts: &mut Drafts) {
        if !self.deciding {
            drafts.nothing_to_decide();
            return;
        }
        let proposed = drafts.draft_len.iter().copied().max().unwrap_or(0);
        self.decide(batch, proposed);
        drafts.verify_len.iter_mut().for_each(|len| *len = (*len).min(self.length));
    }

    fn observe(&mut self, outcome: &StepOutcome) {
        if let Some(rate) = self.params.rate.of(outcome) {
            self.acceptance.add_step(rate, 1);
        }
    }

    fn explain(&mut self) -> Explanation {
        self.weighed.explain(self.goodput)
    }
}

#[cfg(test)]
#[path = "turbospec_tests.rs"]
mod tests;
