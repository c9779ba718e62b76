//! `smartspec-request`: chooses the batch's draft length by goodput and divides it among the requests in proportion to
//! their own acceptance rates.
//!
//! Sources: SmartSpec (arXiv 2406.14066) 4.4 names request-level rates and lengths without saying how to find the
//! lengths. The rule is from the public req-dsd branch (docs/model.md 3.5): k is the best length of a batch of B
//! requests under the global rate, here found as [`smartspec`](crate::Smartspec) does. Request i with the acceptance
//! rate αᵢ gets ⌊½ + k·B·αᵢ / Σα⌋, so that the mean length stays k. The requests' rates are windowed and start at 0.5.

use crate::definition::{About, BadParameter, Beliefs, Check, Definition, PolicyContext};
use crate::goodput::ladder::{Ladder, best_of};
use crate::goodput::request_rates::RequestRates;
use crate::goodput::zero_lengths::ZeroLengths;
use crate::shared::acceptance::{OwnRates, Rate};
use crate::shared::belief::Belief;
use crate::shared::estimator::{Depths, Estimate};
use crate::shared::weighed::Weighed;
use foretoken_sim::{
    BatchView, DraftLimits, DraftPlan, Explanation, NewRequest, RequestId, SpecPolicy, Speculation, StepOutcome,
};
use serde::{Deserialize, Serialize};

/// Settings of the policy `smartspec-request`, which divides the batch's draft tokens among requests by their
/// acceptance rates. The defaults are from the public req-dsd branch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SmartspecRequest {
    /// Acceptance rate, [0, 1], of the batch that is assumed until the first draft token was verified.
    pub initial_acceptance: f64,
    /// Weight, [0, 1], of the old average when a step updates the batch's average acceptance rate.
    pub ema_keep: f64,
    /// Acceptance rate, [0, 1], of a request that is assumed until its first draft token was verified.
    pub request_acceptance: f64,
    /// Number of the request's newest steps with draft tokens over which its acceptance rate is averaged, 1 to 10000.
    pub window: u32,
    /// Which draft tokens count in the denominator of an acceptance rate: all verified ones, or only the tokens up to
    /// and including the first rejected one.
    pub rate: Rate,
    /// If more than this share of past steps had draft length 0, the draft model does not prefill a new request, which
    /// then never has draft tokens. 1 turns the rule off.
    pub skip_draft_prefill_above: f64,
    /// Number of steps in a row with draft length 0 after which the run warns that the policy no longer drafts, at
    /// least 1.
    pub absorbing_steps: u64,
}

impl Default for SmartspecRequest {
    fn default() -> Self {
        SmartspecRequest {
            initial_acceptance: 0.7,
            ema_keep: 0.85,
            request_acceptance: 0.5,
            window: 100,
            rate: Rate::Attempts,
            skip_draft_prefill_above: 0.7,
            absorbing_steps: 1000,
        }
    }
}

impl Definition for SmartspecRequest {
    fn about(&self) -> About {
        About {
            summary: "the best length of the batch, dealt out in proportion to each request's own acceptance rate",
            source: "SmartSpec (arXiv 2406.14066) 4.4, with the allocation of LiuXiaoxuanPKU/vllm req-dsd @b8688697",
            sees: "batch size, context and limits; accepted counts of past steps, request by request",
            differences: "req-dsd's allocation in SmartSpec's place: every step and before drafting. The branch \
                          decides every 200th step, after drafting, and proposes the batch's k in between. Rates are \
                          ratios of sums over the window (the branch takes the mean of a request's ratios, which is \
                          biased). The batch's rate is SmartSpec's moving average: the branch's mean of past steps \
                          starts from the first one alone, which only its unreachable k = 0 keeps from being the \
                          last. Where no request has had anything accepted all get k. Costs are the belief, not the \
                          branch's coefficients. A request's history is forgotten when the request ends",
        }
    }

    fn beliefs(&self) -> Beliefs {
        Beliefs { cost: true, rate: true, ..Beliefs::default() }
    }

    fn check(&self) -> Result<(), BadParameter> {
        let check = Check("smartspec-request");
        check.share("initial_acceptance", self.initial_acceptance)?;
        check.share("ema_keep", self.ema_keep)?;
        check.share("request_acceptance", self.request_acceptance)?;
        check.that("window", (1..=10_000).contains(&self.window), || {
            format!("{} is not a number of steps from 1 to 10000", self.window)
        })?;
        check.share("skip_draft_prefill_above", self.skip_draft_prefill_above)?;
        check.that("absorbing_steps", self.absorbing_steps > 0, || "must be at least 1 step".into())
    }

    fn build(&self, context: &PolicyContext) -> Speculation {
        Speculation::Policy(Box::new(Running::new(*self, context)))
    }
}

/// The policy `smartspec-request` while the engine runs: its settings, and what it keeps from step to step.
struct Running {
    params: SmartspecRequest,
    belief: Belief,
    longest: u32,
    /// Moving average of the whole batch's acceptance rate.
    acceptance: f64,
    rates: RequestRates,
    own_rates: OwnRates,
    zeroes: ZeroLengths,
    depths: Depths,
    goodput: f64,
    weighed: Weighed,
}

impl Running {
    fn new(params: SmartspecRequest, context: &PolicyContext) -> Running {
        let told = context.told.map(|t| t.acceptance_rate);
        Running {
            belief: context.belief,
            longest: context.max_draft_len,
            acceptance: told.unwrap_or(params.initial_acceptance),
            rates: RequestRates::new(told.unwrap_or(params.request_acceptance), params.window),
            own_rates: OwnRates::of(context),
            zeroes: ZeroLengths::new(params.absorbing_steps, params.skip_draft_prefill_above, context.belief.drafting),
            depths: Depths::default(),
            goodput: 0.0,
            weighed: Weighed::default(),
            params,
        }
    }
}

/// The draft length of a request with acceptance rate `rate`: `budget` (the batch's draft tokens) · `rate` / `sum` (of
/// the requests' rates), rounded to the nearest integer, a half up.
fn share(budget: f64, rate: f64, sum: f64) -> u32 {
    (0.5 + budget * rate / sum) as u32
}

impl SpecPolicy for Running {
    fn limits(&self) -> DraftLimits<'_> {
        DraftLimits::chain(self.longest)
    }

    fn drafts_for_next(&mut self, _: &NewRequest) -> bool {
        self.zeroes.drafts_for_next()
    }

    fn propose(&mut self, batch: &BatchView, plan: &mut DraftPlan) {
        self.weighed.begin();
        self.acceptance = self.own_rates.mean(batch.ids).unwrap_or(self.acceptance);
        self.depths.fill(batch, self.longest);
        let undrafted = Estimate::undrafted(&self.belief, batch);
        let ladder = Ladder::new(undrafted, batch.len(), &self.depths, self.longest, self.acceptance);
        let weighed = &mut self.weighed;
        let (k, goodput) = best_of(ladder, |k, goodput| weighed.note(goodput, || format!("k = {k} on average")));
        self.goodput = goodput;
        if self.depths.at(1).requests > 0 {
            self.zeroes.chose(k);
        }
        if k == 0 {
            return;
        }
        let rate = |id: RequestId| self.own_rates.rate(id).unwrap_or_else(|| self.rates.rate(id));
        let sum: f64 = batch.ids.iter().map(|&id| rate(id)).sum();
        let budget = f64::from(k) * batch.len() as f64;
        for (len, &id) in plan.draft_len.iter_mut().zip(batch.ids) {
            // If the acceptance rates of all requests are 0, each request gets the batch's length k.
            let dealt = if sum > 0.0 { share(budget, rate(id), sum) } else { k };
            *len = dealt.min(self.longest);
        }
    }

    fn observe(&mut self, outcome: &StepOutcome) {
        if let Some(rate) = self.params.rate.of(outcome) {
            self.acceptance = self.params.ema_keep * self.acceptance + (1.0 - self.params.ema_keep) * rate;
        }
        self.rates.observe(outcome, self.params.rate);
    }

    fn request_finished(&mut self, id: RequestId) {
        self.rates.forget(id);
    }

    fn warnings(&self) -> Vec<String> {
        self.zeroes.warnings("smartspec-request", self.acceptance)
    }

    fn explain(&mut self) -> Explanation {
        self.weighed.explain(Some(self.goodput))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::acceptance::expected_tokens;
    use crate::testing::{Batch, CONTEXT, any_batch, any_belief, outcome};
    use foretoken_sim::Drafts;
    use itertools::Itertools;
    use proptest::prelude::*;

    /// Observes one step: for each of the requests `ids`, how many draft tokens were `verified` and how many of them
    /// `accepted`.
    fn saw(p: &mut Running, ids: &[u32], verified: &[u32], accepted: &[u32]) {
        let drafts = Drafts::default();
        p.observe(&StepOutcome { ids, ..outcome(&drafts, verified, accepted) });
    }

    #[test]
    fn lengths_are_dealt_out_by_rate() {
        // 9 draft tokens (a mean of 3) are divided by the acceptance rates .9, .5, .1: 9·(.6, .3333, .0667) = 5.4, 3,
        // 0.6.
        assert_eq!([0.9, 0.5, 0.1].map(|r| share(9.0, r, 1.5)), [5, 3, 1]);
        // A request's share of 1.5 draft tokens is rounded up to 2.
        assert_eq!(share(3.0, 0.5, 1.0), 2);
    }

    #[test]
    fn a_request_with_a_higher_rate_drafts_more() {
        let mut p = Running::new(SmartspecRequest::default(), &PolicyContext { max_draft_len: 20, ..CONTEXT });
        let batch = Batch::new(&[100, 100, 100], &[20, 20, 20]);
        let mut plan = DraftPlan { draft_len: vec![0; 3], ..DraftPlan::default() };
        p.propose(&batch.view(), &mut plan);
        let first = plan.draft_len.clone();
        assert!(first[0] > 0 && first.iter().all(|&k| k == first[0]), "equal rates, equal lengths: {first:?}");
        // The acceptance rates of the three requests are 4/5, 2/3 and 0/1; the third request gets no draft tokens.
        saw(&mut p, &[0, 1, 2], &[8, 8, 8], &[4, 2, 0]);
        p.propose(&batch.view(), &mut plan);
        let k = f64::from(plan.draft_len.iter().sum::<u32>()) / 3.0;
        assert!(plan.draft_len[0] > plan.draft_len[1] && plan.draft_len[2] == 0 && k > 1.0, "{:?}", plan.draft_len);
    }

    #[test]
    fn bad_settings_are_named() {
        let good = SmartspecRequest::default();
        for (params, key) in [
            (SmartspecRequest { initial_acceptance: 2.0, ..good }, "initial_acceptance"),
            (SmartspecRequest { window: 0, ..good }, "window"),
            (SmartspecRequest { skip_draft_prefill_above: f64::NAN, ..good }, "skip_draft_prefill_above"),
            (SmartspecRequest { absorbing_steps: 0, ..good }, "absorbing_steps"),
        ] {
            assert_eq!(params.check().map_err(|e| e.key), Err(key));
        }
    }

    proptest! {
        /// The policy equals a second implementation. It computes the requests' acceptance rates from the whole
        /// history, the batch's draft length k by enumeration, and the shares of the k·B draft tokens of B requests in
        /// integers.
        #[test]
        fn equals_a_second_implementation(
            batch in any_batch(8, 8),
            belief in any_belief(),
            history in prop::collection::vec(prop::collection::vec((0u32..=8, 0u32..=8), 8), 0..12),
            per_draft in any::<bool>(),
        ) {
            let rate = if per_draft { Rate::PerDraft } else { Rate::Attempts };
            let params = SmartspecRequest { window: 4, rate, ..SmartspecRequest::default() };
            let mut p = Running::new(params, &PolicyContext { belief, ..CONTEXT });
            let (mut steps, mut by_request) = (Vec::new(), vec![Vec::new(); 8]);
            for step in &history {
                let verified: Vec<u32> = step.iter().map(|s| s.0).collect();
                let accepted: Vec<u32> = step.iter().map(|s| s.0.min(s.1)).collect();
                saw(&mut p, &[0, 1, 2, 3, 4, 5, 6, 7], &verified, &accepted);
                let tries = |v: u32, a: u32| if per_draft { v } else { v.min(a + 1) };
                let all: Vec<(u32, u32)> = verified.iter().zip_eq(&accepted).map(|(&v, &a)| (a, tries(v, a))).collect();
                let sum = all.iter().fold((0, 0), |s, x| (s.0 + x.0, s.1 + x.1));
                if sum.1 > 0 {
                    steps.push(f64::from(sum.0) / f64::from(sum.1));
                }
                for (own, &x) in by_request.iter_mut().zip_eq(&all) {
                    if x.1 > 0 {
                        own.push(x);
                    }
                }
            }
            let global = steps.iter().fold(0.7, |old, new| 0.85 * old + 0.15 * new);
            let rate_of = |own: &Vec<(u32, u32)>| {
                let last = &own[own.len().saturating_sub(4)..];
                let sum = last.iter().fold((0, 0), |s, x| (s.0 + x.0, s.1 + x.1));
                if sum.1 == 0 { 0.5 } else { f64::from(sum.0) / f64::from(sum.1) }
            };
            let view = batch.view();
            let goodput = |k: u32| {
                let lens: Vec<u32> = view.limit.iter().map(|&l| l.min(k)).collect();
                lens.iter().map(|&d| expected_tokens(global, d)).sum::<f64>() / belief.step_s(&view, &lens, &lens)
            };
            let mut plan = DraftPlan { draft_len: vec![0; view.len()], ..DraftPlan::default() };
            p.propose(&view, &mut plan);
            let k = (0..=8u32).fold(0, |best, k| if goodput(k) > goodput(best) * (1.0 + 1e-12) { k } else { best });
            let rates: Vec<f64> = view.ids.iter().map(|&id| rate_of(&by_request[id as usize])).collect();
            let sum: f64 = rates.iter().sum();
            for (&len, rate) in plan.draft_len.iter().zip_eq(&rates) {
                let exact = if sum > 0.0 { f64::from(k) * view.len() as f64 * rate / sum } else { f64::from(k) };
                // Each request's draft length differs by at most a half from its exact share of the batch's draft
                // tokens, unless it is cut to the longest allowed length.
                let whole = f64::from(len);
                prop_assert!((whole - exact).abs() <= 0.5 + 1e-9 || (len == 8 && exact > 8.0), "{len} for {exact}");
            }
        }
    }
}
