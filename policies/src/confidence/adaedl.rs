//! `adaedl`: drafts while an entropy-based lower bound on the acceptance probability stays above a threshold. The
//! threshold adapts to the accepted draft tokens.
//!
//! Source: AdaEDL (arXiv 2410.18351), in the batched form of the only public serving implementation, `AdaEDLScheduler`
//! in samsungsds-research-paper/DSDE (`vllm/spec_decode/dynamic_scheduler.py`, `draft_model_runner.py`); restated in
//! docs/model.md 7.5. Each request has its own bound 1 − √(γ · H), where H is the entropy, and its own threshold λ.
//! After `k_min` passes the draft loop stops for all requests as soon as the bound of one request falls below its λ.

use crate::definition::{About, BadParameter, Check, Definition, PolicyContext};
use foretoken_sim::{
    BatchView, Continue, DraftLimits, DraftPlan, Drafts, RequestId, SpecPolicy, Speculation, StepOutcome, Wants,
};
use serde::{Deserialize, Serialize};

/// Settings of the policy `adaedl`, which drafts while an entropy-based bound on the acceptance probability is high
/// enough. The defaults are from the published implementation. The longest draft length of 20 tokens is
/// `max_spec_tokens` there.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Adaedl {
    /// γ: factor on the entropy H (nats) in the bound 1 − √(γ · H) on the acceptance probability, > 0.
    pub gamma: f64,
    /// Threshold λ of a new request, [0, 1]. Drafting stops when the lower bound on the acceptance probability falls
    /// below λ.
    pub initial_lambda: f64,
    /// The acceptance rate, [0, 1], at which the changes of the threshold λ aim.
    pub alpha: f64,
    /// When a step updates a request's average acceptance rate, the old average has this weight, [0, 1].
    pub beta1: f64,
    /// When a step updates a request's threshold λ (the least lower bound on the acceptance probability with which it
    /// drafts on), the old λ has this weight, [0, 1].
    pub beta2: f64,
    /// The size ε of a change of a request's threshold λ, [0, 1]. A step that changes λ sets it to `beta2` · λ + (1 −
    /// `beta2`) · (λ ± ε). A request drafts on while the lower bound on its acceptance probability is at least λ.
    pub epsilon: f64,
    /// Number of draft passes before drafting may stop, from 1 to `k_max`.
    pub k_min: u32,
    /// Most draft tokens of a request in a step, 1 to 32. A value above the engine's `max_draft_len` is cut to it.
    pub k_max: u32,
}

impl Default for Adaedl {
    fn default() -> Self {
        Adaedl {
            gamma: 0.1,
            initial_lambda: 0.5,
            alpha: 0.9,
            beta1: 0.5,
            beta2: 0.9,
            epsilon: 0.01,
            k_min: 1,
            k_max: 20,
        }
    }
}

impl Definition for Adaedl {
    fn about(&self) -> About {
        About {
            summary: "drafts until an entropy bound on acceptance falls below an adapting threshold for any request",
            source: "AdaEDL (arXiv 2410.18351), as AdaEDLScheduler in samsungsds-research-paper/DSDE",
            sees: "the entropy behind each drafted token; drafted and accepted counts of past steps, per request",
            differences: "k_min is 1, what the implementation's draft runner falls back to; its configuration gives \
                          all its schedulers 6. Its k_max of 20 is cut to the engine's",
        }
    }

    fn check(&self) -> Result<(), BadParameter> {
        let check = Check("adaedl");
        check.that("gamma", self.gamma.is_finite() && self.gamma > 0.0, || {
            format!("{} is not a number above 0", self.gamma)
        })?;
        for (key, value) in [
            ("initial_lambda", self.initial_lambda),
            ("alpha", self.alpha),
            ("beta1", self.beta1),
            ("beta2", self.beta2),
            ("epsilon", self.epsilon),
        ] {
            check.share(key, value)?;
        }
        check.length("k_max", self.k_max)?;
        check.that("k_min", (1..=self.k_max).contains(&self.k_min), || {
            format!("{} is not from 1 to k_max ({})", self.k_min, self.k_max)
        })
    }

    fn build(&self, context: &PolicyContext) -> Speculation {
        let rule = Adaedl { k_max: self.k_max.min(context.max_draft_len), ..*self };
        Speculation::Policy(Box::new(Running { rule, requests: Vec::new() }))
    }
}

/// What the policy adapts for each request: its average acceptance rate, and the threshold λ of its lower bound on the
/// acceptance probability.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Adapted {
    acceptance: f64,
    lambda: f64,
}

/// The policy `adaedl` while the engine runs: its settings, and what it keeps from step to step.
struct Running {
    rule: Adaedl,
    /// For each request, by request id: its average acceptance rate and its threshold λ.
    requests: Vec<Adapted>,
}

impl Running {
    fn fresh(&self) -> Adapted {
        Adapted { acceptance: 0.0, lambda: self.rule.initial_lambda }
    }

    /// Returns the state of a request after a step that verified `drafted` of its draft tokens (at least 1) and
    /// accepted `accepted`. The step counts in the moving average of the acceptance rate. λ then rises if the average
    /// is below `alpha`. λ falls if the average is above `alpha` and `k_max` draft tokens were accepted.
    fn learn(&self, known: Adapted, drafted: u32, accepted: u32) -> Adapted {
        let r = &self.rule;
        let rate = f64::from(accepted) / f64::from(drafted);
        let acceptance = r.beta1 * known.acceptance + (1.0 - r.beta1) * rate;
        let aim = if acceptance < r.alpha {
            known.lambda + r.epsilon
        } else if acceptance > r.alpha && accepted == r.k_max {
            known.lambda - r.epsilon
        } else {
            known.lambda
        };
        Adapted { acceptance, lambda: r.beta2 * known.lambda + (1.0 - r.beta2) * aim }
    }
}

impl SpecPolicy for Running {
    fn limits(&self) -> DraftLimits<'_> {
        DraftLimits::chain(self.rule.k_max)
    }

    fn wants(&self) -> Wants {
        Wants::ENTROPY
    }

    fn propose(&mut self, batch: &BatchView, plan: &mut DraftPlan) {
        plan.fill(self.rule.k_max);
        let known = batch.ids.iter().max().map_or(0, |&id| id as usize + 1);
        if self.requests.len() < known {
            self.requests.resize(known, self.fresh());
        }
    }

    /// After at least `k_min` draft passes: stops the drafting of the whole batch if the newest token of any request
    /// has a lower bound on its acceptance probability below the request's threshold λ. This token is kept.
    fn keep_drafting(&mut self, batch: &BatchView, drafts: &mut Drafts) -> Continue {
        if drafts.passes < self.rule.k_min {
            return Continue::Yes;
        }
        let newest = drafts.passes as usize - 1;
        let short = batch.ids.iter().enumerate().any(|(i, &id)| {
            drafts.draft_len[i] == drafts.passes && {
                let bound = 1.0 - (self.rule.gamma * drafts.entropy(i, newest)).max(0.0).sqrt();
                bound < self.requests[id as usize].lambda
            }
        });
        if short { Continue::Stop } else { Continue::Yes }
    }

    fn observe(&mut self, outcome: &StepOutcome) {
        for ((&id, &drafted), &accepted) in outcome.ids.iter().zip(outcome.verified).zip(outcome.accepted) {
            if drafted > 0 {
                let id = id as usize;
                if self.requests.len() <= id {
                    self.requests.resize(id + 1, self.fresh());
                }
                self.requests[id] = self.learn(self.requests[id], drafted, accepted);
            }
        }
    }

    fn request_finished(&mut self, id: RequestId) {
        let fresh = self.fresh();
        if let Some(request) = self.requests.get_mut(id as usize) {
            *request = fresh;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Batch, CONTEXT, Run, any_batch};
    use foretoken_sim::acceptance::RankLaw;
    use proptest::prelude::*;

    fn running(rule: Adaedl) -> Running {
        Running { rule, requests: Vec::new() }
    }

    /// The threshold λ by hand: the new λ is 0.9 λ + 0.1 (λ ± 0.01), that is, λ ± 0.001.
    #[test]
    fn lambda_follows_the_acceptance_rate() {
        let p = running(Adaedl { k_max: 4, ..Adaedl::default() });
        let close = |a: Adapted, acceptance: f64, lambda: f64| {
            assert!((a.acceptance - acceptance).abs() < 1e-12 && (a.lambda - lambda).abs() < 1e-12, "{a:?}");
        };
        let mut known = p.fresh();
        // The average acceptance rate starts at 0, so λ rises in the first steps even if all draft tokens are accepted.
        known = p.learn(known, 4, 4);
        close(known, 0.5, 0.501);
        known = p.learn(known, 4, 4);
        close(known, 0.75, 0.502);
        known = p.learn(known, 4, 4);
        close(known, 0.875, 0.503);
        // If the average acceptance rate is above the target rate, the threshold λ falls only after a step with `k_max`
        // accepted draft tokens.
        known = p.learn(known, 4, 4);
        close(known, 0.9375, 0.502);
        known = p.learn(known, 2, 2);
        close(known, 0.96875, 0.502);
        known = p.learn(known, 4, 1);
        close(known, 0.609375, 0.503);
    }

    /// One request whose newest token has a low bound on its acceptance probability ends drafting for the whole batch.
    /// This token is kept. Each request has its own threshold λ.
    #[test]
    fn any_request_stops_the_batch() {
        let mut run = Run::of(&Adaedl::default(), &CONTEXT);
        let batch = Batch::new(&[100, 100, 100], &[8, 8, 0]);
        let confidence = |i: usize, j: usize| if i == 1 && j == 2 { 0.05 } else { 0.95 };
        let bound = |c: f64| 1.0 - (0.1 * RankLaw::default().entropy(c)).sqrt();
        assert!(bound(0.05) < 0.5 + 8.0 * 0.001 && bound(0.95) > 0.7);
        assert_eq!(run.step(&batch, confidence, &[8, 8, 0]).draft_len, [3, 3, 0]);
        let mut late = Run::of(&Adaedl { k_min: 5, ..Adaedl::default() }, &CONTEXT);
        assert_eq!(late.step(&batch, confidence, &[8, 8, 0]).draft_len, [8, 8, 0]);
    }

    #[test]
    fn bad_settings_are_named() {
        let key = |p: Adaedl| p.check().expect_err("refused").key;
        assert_eq!(key(Adaedl { gamma: 0.0, ..Adaedl::default() }), "gamma");
        assert_eq!(key(Adaedl { beta2: 1.5, ..Adaedl::default() }), "beta2");
        assert_eq!(key(Adaedl { k_min: 21, ..Adaedl::default() }), "k_min");
        assert_eq!(key(Adaedl { k_max: 0, ..Adaedl::default() }), "k_max");
    }

    proptest! {
        /// Several steps equal a second implementation of the source: it computes the acceptance bounds of all requests
        /// of a draft pass, then decides whether to stop.
        #[test]
        fn equals_a_second_reading(
            batches in prop::collection::vec(any_batch(6, 8), 1..8),
            seed in 0usize..1000,
        ) {
            let rule = Adaedl { initial_lambda: 0.7, epsilon: 0.5, k_min: 2, k_max: 6, ..Adaedl::default() };
            let mut run = Run::of(&rule, &CONTEXT);
            let law = RankLaw::default();
            // For each request id: (average acceptance rate, threshold λ), as the second implementation of the policy
            // computes them.
            let mut second = [(0.0f64, 0.7f64); 6];
            for (step, batch) in batches.iter().enumerate() {
                let mixed = |i: usize, j: usize| (i * 31 + j * 17 + step * 7 + seed) % 61;
                let confidence = |i: usize, j: usize| 0.2 + 0.79 * (mixed(i, j) as f64 / 61.0);
                let nats = |i: usize, j: usize| law.entropy(confidence(i, j));
                let accepted: Vec<u32> = (0..batch.ids.len()).map(|i| ((i + step + seed) % 7) as u32).collect();
                let made = run.step(batch, confidence, &accepted);
                let lens: Vec<u32> = batch.limit.iter().map(|&l| l.min(6)).collect();
                let longest = lens.iter().copied().max().unwrap_or(0);
                let mut passes = 0;
                while passes < longest {
                    passes += 1;
                    let scores: Vec<bool> = (0..lens.len())
                        .filter(|&i| lens[i] >= passes)
                        .map(|i| 1.0 - (0.1 * nats(i, passes as usize - 1)).sqrt() < second[i].1)
                        .collect();
                    if passes >= 2 && scores.contains(&true) {
                        break;
                    }
                }
                for i in 0..lens.len() {
                    let drafted = lens[i].min(passes);
                    prop_assert_eq!(made.draft_len[i], drafted);
                    if drafted > 0 {
                        let kept = accepted[i].min(drafted);
                        let (rate, lambda) = &mut second[i];
                        *rate = 0.5 * *rate + 0.5 * f64::from(kept) / f64::from(drafted);
                        let up = if *rate < 0.9 { 0.5 } else if *rate > 0.9 && kept == 6 { -0.5 } else { 0.0 };
                        *lambda = 0.9 * *lambda + 0.1 * (*lambda + up);
                    }
                }
            }
        }
    }
}
