//! `vllm-adaptive`: vLLM's adaptive verification. Every request drafts the same number of tokens. A cost table measured
//! at start-up then gives the batch a budget of draft tokens to verify. The tokens most likely to survive are verified.
//! Survival is the probability that a token and all before it are accepted.
//!
//! Source: vLLM 0.33.0 `v1/worker/gpu/spec_decode/adaptive_verification.py` and `acceptance_estimator.py` (PR #47808,
//! generalised to every drafter by PR #52228), which were executed for the fixture that the tests compare with
//! (`tests/policies`).
//!
//! Let s₁ ≥ s₂ ≥ … be the survivals of the batch's draft tokens, N_s the number of requests that sample, and T the
//! number of tokens that are no draft tokens. draft[n] is the measured time to draft for n requests, and verify[t] the
//! time of a target pass over t tokens. The budget is argmax_b (N_s + Σ_{t≤b} s_t) / (draft[requests] + verify[T + b]),
//! the smallest b on a tie. It is capped so that the logits to verify fit one chunk of the sampler. The budget is
//! computed from confidences that are one step older than the present draft tokens. The confidences of the present
//! draft tokens decide which of them are verified. By default the policy leaves draft tokens unverified from the first
//! steps on, without a warm-up.

use crate::definition::{About, BadParameter, Beliefs, Check, Definition, PolicyContext};
use crate::shared::survival::{RankedTokens, best_budget, survivals};
use crate::shared::weighed::Weighed;
use crate::vllm::acceptance_estimator::AcceptanceEstimator;
use crate::vllm::confidence_history::{History, HostCopy};
use crate::vllm::cost_table::{CostLookup, CostTables};
use foretoken_sim::{
    BatchView, DraftLimits, DraftPlan, Drafts, Explanation, RequestId, SpecPolicy, Speculation, StepOutcome, Wants,
};
use serde::{Deserialize, Serialize};

/// Bytes of single-precision logits in a chunk of vLLM's rejection sampler (`MAX_CHUNK_BYTES`).
const CHUNK_BYTES: u32 = 1 << 30;

/// Settings of the policy `vllm-adaptive`, which is vLLM's adaptive verification: a cost table decides how many draft
/// tokens are verified. The defaults are vLLM's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct VllmAdaptive {
    /// Number of tokens that every request drafts (`num_speculative_tokens`), 1 to 32. Default: the engine's
    /// `max_draft_len`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub k: Option<u32>,
    /// KV tokens of each request in the passes that are timed at start-up
    /// (`VLLM_ADAPTIVE_VERIFICATION_PROFILE_CONTEXT_LEN`).
    pub profile_context_len: u32,
    /// How the time of a pass is found if its size (requests or tokens) was not timed at start-up.
    pub cost_lookup: CostLookup,
    /// Number of steps between two refits of the acceptance estimator, at least 1.
    pub refit_interval: u32,
    /// Number of refits of the acceptance estimator before the policy leaves draft tokens unverified. No release waits
    /// (0); an earlier revision waited for 3 refits.
    pub warmup_refits: u32,
    /// Number of tokens in the model's vocabulary. It limits how many positions are verified in one step: 2,093 with
    /// Llama 3's vocabulary.
    pub vocab_size: u32,
}

impl Default for VllmAdaptive {
    fn default() -> Self {
        VllmAdaptive {
            k: None,
            profile_context_len: 8192,
            cost_lookup: CostLookup::Staircase,
            refit_interval: 100,
            warmup_refits: 0,
            vocab_size: 128_256,
        }
    }
}

impl Definition for VllmAdaptive {
    fn about(&self) -> About {
        About {
            summary: "drafts whole windows; verifies the tokens most likely to survive, as many as pay by a measured \
                      cost table",
            source: "vLLM 0.33.0 (PRs #47808, #52228), v1/worker/gpu/spec_decode/adaptive_verification.py, \
                     acceptance_estimator.py",
            sees: "batch size and prefill tokens; the confidence of each drafted token, now and one round ago; \
                   accepted counts; pass times at start-up",
            differences: "vLLM counts a prompt that ends in this step as a sampling request: the view does not say \
                          which end, so none does. It drafts whole windows and schedules what fits, here a request \
                          that may draft less drafts less. In the step after a prompt that took several chunks, \
                          vLLM's budget sees confidences drafted in the middle of the prompt, here that request \
                          counts as certain; a preempted request keeps its last confidences, where vLLM starts it \
                          over. vLLM scores the likeliest token, which is the drafted one where the draft is greedy, \
                          as here. It predicts when it drafts, here when the step is verified: a refit between shows \
                          at once. Each shape is timed once, where vLLM takes the median of five. `decide` tabulates \
                          passes over the state's own requests instead of such of profile_context_len tokens",
        }
    }

    fn asks_for(&self) -> Option<(&'static str, u32)> {
        self.k.map(|k| ("k", k))
    }

    fn beliefs(&self) -> Beliefs {
        Beliefs { cost: true, confidence: true, ..Beliefs::default() }
    }

    fn check(&self) -> Result<(), BadParameter> {
        let check = Check("vllm-adaptive");
        if let Some(k) = self.k {
            check.length("k", k)?;
        }
        check.that("vocab_size", self.vocab_size > 0, || "must be at least 1 token".into())?;
        check.that("refit_interval", self.refit_interval > 0, || "must be at least 1 step".into())
    }

    fn build(&self, context: &PolicyContext) -> Speculation {
        Speculation::Policy(Box::new(Adaptive::new(*self, context)))
    }
}

/// The policy `vllm-adaptive` while the engine runs: its settings, and what it keeps from step to step.
struct Adaptive {
    params: VllmAdaptive,
    k: u32,
    tables: CostTables,
    estimator: AcceptanceEstimator,
    history: History,
    /// Most rows of logits that one step verifies. Each request needs one row, and each draft token to verify one more.
    max_total_logits: usize,
    /// True if the command `foretoken decide` (one decision on a given batch) gave the policy confidences. The policy
    /// then uses no acceptance estimator, no warm-up and no earlier confidences.
    told: bool,
    /// Acceptance probabilities of the batch's draft tokens: token j of request i is at `i * k + j`.
    confidence: Vec<f64>,
    ranked: RankedTokens,
    own_estimate: Option<f64>,
    weighed: Weighed,
}

impl Adaptive {
    fn new(params: VllmAdaptive, context: &PolicyContext) -> Adaptive {
        let k = params.k.unwrap_or(context.max_draft_len).min(context.max_draft_len);
        Adaptive {
            k,
            tables: CostTables::measure(context, k, params.profile_context_len, params.cost_lookup),
            estimator: AcceptanceEstimator::new(k, params.refit_interval),
            history: History::new(k),
            max_total_logits: (CHUNK_BYTES / params.vocab_size.saturating_mul(4)).max(1) as usize,
            told: context.told.is_some(),
            confidence: Vec::new(),
            ranked: RankedTokens::default(),
            own_estimate: None,
            weighed: Weighed::default(),
            params,
        }
    }

    /// Fills `confidence` with the acceptance probabilities that the estimator predicts from the draft model's
    /// confidences. Under the command `foretoken decide` it fills it with the confidences themselves.
    fn predict(&mut self, drafts: &Drafts) {
        let k = self.k as usize;
        self.confidence.resize(drafts.draft_len.len() * k, 0.0);
        for (i, &len) in drafts.draft_len.iter().enumerate() {
            for j in 0..len as usize {
                let q = drafts.confidence(i, j);
                self.confidence[i * k + j] = if self.told { q } else { self.estimator.predict(q, j) };
            }
        }
    }

    /// The number of draft tokens of the batch to verify, from the confidences of the step before; under the command
    /// `foretoken decide`, from the present confidences. Stores the tokens per second of each number for `explain`.
    fn budget(&mut self, batch: &BatchView, drafts: &Drafts) -> usize {
        let Adaptive { ranked, confidence, history, tables, .. } = self;
        let k = self.k as usize;
        ranked.clear();
        for (i, (&id, &len)) in batch.ids.iter().zip(&drafts.draft_len).enumerate() {
            let copy = if self.told { HostCopy::Present } else { history.host_copy(id) };
            let live = &confidence[i * k..];
            let row = (0..len as usize).map(|j| match copy {
                HostCopy::Nothing => 1.0,
                HostCopy::Previous(row) => row[j],
                HostCopy::Present => live[j],
            });
            ranked.push_draft(i, survivals(row), 0.0);
        }
        let requests = batch.len() + batch.prefill.chunks as usize;
        let fixed = batch.len() + batch.prefill.tokens as usize;
        let draft_s = tables.draft.s(requests);
        let rate = |expected: f64, b: usize| expected / (draft_s + tables.verify.s(fixed + b));
        self.weighed.begin();
        let most = self.max_total_logits.saturating_sub(requests);
        let best = best_budget(batch.len() as f64, ranked.descending().take(most), rate, &mut self.weighed);
        self.own_estimate = Some(best.rate);
        best.tokens
    }
}

impl SpecPolicy for Adaptive {
    fn limits(&self) -> DraftLimits<'_> {
        DraftLimits::chain(self.k)
    }

    fn wants(&self) -> Wants {
        Wants::CONFIDENCE
    }

    fn propose(&mut self, _: &BatchView, plan: &mut DraftPlan) {
        plan.fill(self.k);
        self.own_estimate = None;
    }

    fn select(&mut self, batch: &BatchView, drafts: &mut Drafts) {
        self.predict(drafts);
        if self.told || self.estimator.refits() >= self.params.warmup_refits {
            let budget = self.budget(batch, drafts);
            self.ranked.clear();
            for (i, &len) in drafts.draft_len.iter().enumerate() {
                let row = &self.confidence[i * self.k as usize..][..len as usize];
                self.ranked.push_draft(i, survivals(row.iter().copied()), 0.0);
            }
            self.ranked.allocate(budget, &mut drafts.verify_len);
        }
        if !self.told {
            self.history.next_step();
            for (i, &id) in batch.ids.iter().enumerate() {
                let row = &self.confidence[i * self.k as usize..][..drafts.draft_len[i] as usize];
                self.history.record(id, row.iter().copied());
            }
        }
    }

    fn observe(&mut self, outcome: &StepOutcome) {
        if !self.told {
            self.estimator.observe(outcome);
        }
    }

    fn request_finished(&mut self, id: RequestId) {
        self.history.forget(id);
    }

    fn explain(&mut self) -> Explanation {
        self.weighed.explain(self.own_estimate)
    }
}

#[cfg(test)]
#[path = "adaptive_recorded.rs"]
mod recorded;

#[cfg(test)]
#[path = "adaptive_tests.rs"]
mod tests;
