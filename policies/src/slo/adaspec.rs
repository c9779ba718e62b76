//! `adaspec`: drafts one token at a time while the predicted throughput rises (Adaptive Drafter), drops the least
//! promising tokens before verification (Confidence-Prior Verifier), and refuses to speculate in steps that would miss
//! the SLO (SLO-Aware Efficiency Estimator).
//!
//! Source: "AdaSpec: Adaptive Speculative Decoding for Fast, SLO-Aware LLM Serving" (arXiv 2503.05096), Alg. 1 to 3 and
//! Eq. 4 to 7, read as docs/model.md 2, 12 and 14 say: the prediction multiplies the last cumulative confidence (Eq. 7;
//! Alg. 1 as printed does not), every request counts one bonus token (Eq. 6), and there is a cap on the length, which
//! the algorithm lacks. The published code, `adaspec-code`, differs from the paper in drafter, verifier and SLO.
//! `verifier = false` is the paper's AdaSpec⁻.

use crate::definition::{About, BadParameter, Beliefs, Check, Definition, PolicyContext};
use crate::shared::acceptance::RunningMean;
use crate::shared::belief::Belief;
use crate::shared::estimator::{Depth, Depths, Estimate};
use crate::shared::weighed::Weighed;
use crate::slo::adaspec_verifier::{Tail, Tails};
use foretoken_sim::{
    BatchView, Continue, DraftLimits, DraftPlan, Drafts, Explanation, SpecPolicy, Speculation, StepOutcome, Wants,
};
use serde::{Deserialize, Serialize};

/// When a step stops drafting: by the predicted throughput, or only at the longest draft length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Drafter {
    /// Alg. 1 of AdaSpec: drafting goes on while the throughput predicted with one more draft token per request is
    /// above the throughput with the draft tokens so far.
    #[default]
    Paper,
    /// The predicted throughput does not stop drafting: every request drafts `cap` tokens, or fewer if the engine
    /// allows it fewer.
    Off,
}

/// When a step with draft tokens counts as exceeding the SLO, so that the policy does not draft in it (Alg. 3 of
/// AdaSpec).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SloMode {
    /// The latency target (SLO) is ignored: no step counts as exceeding it.
    Off,
    /// A step exceeds the SLO if its time is above the tightest TPOT limit in the batch. This is safe even if no draft
    /// token is accepted.
    #[default]
    Step,
    /// A step exceeds the SLO if for some request the step's time divided by the request's expected tokens is above its
    /// TPOT limit.
    Expected,
}

/// Settings of the policy `adaspec`, which drafts and verifies by predicted throughput within latency targets.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Adaspec {
    /// When a step stops drafting: by the predicted throughput, or only at the longest draft length.
    pub drafter: Drafter,
    /// Whether the draft tokens least likely to be accepted are dropped before verification (Alg. 2 of AdaSpec). False
    /// is the paper's AdaSpec⁻.
    pub verifier: bool,
    /// When a step with draft tokens counts as exceeding the SLO.
    pub slo: SloMode,
    /// Confidence, [0, 1], that is expected of a draft token until the first confidence was seen.
    pub prev_confidence: f64,
    /// Number of newest steps with draft tokens over which the expected confidence is averaged, at least 1. Default:
    /// all steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<u32>,
    /// Most draft tokens of a request in a step, 1 to 32.
    pub cap: u32,
}

impl Default for Adaspec {
    fn default() -> Self {
        Adaspec {
            drafter: Drafter::Paper,
            verifier: true,
            slo: SloMode::Step,
            prev_confidence: 0.6,
            window: None,
            cap: 8,
        }
    }
}

impl Adaspec {
    /// The settings of the paper's AdaSpec⁻, which verifies all draft tokens.
    pub fn without_verifier() -> Adaspec {
        Adaspec { verifier: false, ..Adaspec::default() }
    }
}

impl Definition for Adaspec {
    fn about(&self) -> About {
        About {
            summary: match self.verifier {
                true => "drafts while confidences predict more throughput, drops unpromising tokens, keeps to the SLO",
                false => "drafts while confidences predict more throughput, verifies all of it, keeps to the SLO",
            },
            source: "AdaSpec (arXiv 2503.05096) Alg. 1-3; verifier = false is AdaSpec-",
            sees: "batch size, contexts and limits; the confidence of each drafted token; the SLO",
            differences: "this is the paper with its errata, not the code (see adaspec-code): the prediction \
                          multiplies the last cumulative confidence (Eq. 7), every request counts one bonus token \
                          (Eq. 6), lengths are capped at 8",
        }
    }

    fn stops_for_slo(&self) -> bool {
        self.slo == SloMode::Step
    }

    fn beliefs(&self) -> Beliefs {
        Beliefs { cost: true, confidence: self.drafter == Drafter::Paper || self.verifier, ..Beliefs::default() }
    }

    fn check(&self) -> Result<(), BadParameter> {
        let check = Check("adaspec");
        check.share("prev_confidence", self.prev_confidence)?;
        check.that("window", self.window != Some(0), || "must be at least 1 step; leave it out for all".into())?;
        check.length("cap", self.cap)
    }

    fn build(&self, context: &PolicyContext) -> Speculation {
        Speculation::Policy(Box::new(Running::new(*self, context)))
    }
}

/// The policy `adaspec` while the engine runs: its settings, and what it keeps from step to step.
struct Running {
    params: Adaspec,
    belief: Belief,
    cap: u32,
    /// The confidence that is expected of a draft token before it is drafted; constant during a step.
    expected: RunningMean,
    step: Step,
    depths: Depths,
    tails: Tails,
    own_estimate: Option<f64>,
    weighed: Weighed,
}

/// What the policy `adaspec` computes for the step in progress. Its vectors are reused between steps.
#[derive(Default)]
struct Step {
    /// Estimated time of the step if all draft tokens so far are verified; `None` before `propose` sets it.
    estimate: Option<Estimate>,
    /// Expected tokens of the batch in this step: one bonus token per request, plus the cumulative confidence (product
    /// of the request's confidences up to it) of every draft token to verify.
    tokens: f64,
    /// Expected tokens of each request in this step, its bonus token included; the SLO check `slo = expected` needs
    /// them.
    tokens_of: Vec<f64>,
    /// At `i * cap + j`: the product of the confidences of the first j + 1 draft tokens of request i, that is, the
    /// cumulative confidence of its draft token j (from 0).
    cumulative: Vec<f64>,
    /// For each request: the product of the confidences of its draft tokens so far in this step; 1 before the first.
    last: Vec<f64>,
    /// Sum, over the requests that may draft one more token, of the product of the request's confidences so far in this
    /// step.
    going_on: f64,
    /// Number of draft passes of this step whose confidences the policy has read.
    passes: u32,
    /// The tightest TPOT limit of the batch's requests, in seconds; infinite if no request has a limit or the SLO is
    /// ignored.
    slo_s: f64,
}

impl Running {
    fn new(params: Adaspec, context: &PolicyContext) -> Running {
        Running {
            belief: context.belief,
            cap: params.cap.min(context.max_draft_len),
            expected: RunningMean::new(
                context.told.map_or(params.prev_confidence, |t| t.prev_confidence),
                params.window,
            ),
            step: Step::default(),
            depths: Depths::default(),
            tails: Tails::default(),
            own_estimate: None,
            weighed: Weighed::default(),
            params,
        }
    }

    fn begin(&mut self, batch: &BatchView) {
        let (n, cap) = (batch.len(), self.cap);
        self.depths.fill(batch, cap);
        let s = &mut self.step;
        s.estimate = Some(Estimate::undrafted(&self.belief, batch));
        s.tokens = n as f64;
        s.last.clear();
        s.last.resize(n, 1.0);
        if s.cumulative.len() < n * cap as usize {
            s.cumulative.resize(n * cap as usize, 0.0);
        }
        s.going_on = self.depths.at(1).requests as f64;
        s.passes = 0;
        s.slo_s = match self.params.slo {
            SloMode::Off => f64::INFINITY,
            SloMode::Step | SloMode::Expected => batch.slo_tpot_s.iter().copied().fold(f64::INFINITY, f64::min),
        };
        s.tokens_of.clear();
        s.tokens_of.resize(n, 1.0);
    }

    /// The predicted throughput of Alg. 3 of AdaSpec: expected tokens per second, or −1 if a step with draft tokens
    /// would miss the SLO. `longest_s` is the longest time, in seconds, that the step may take in the mode `expected`.
    fn throughput(&self, tokens: f64, estimate: &Estimate, longest_s: f64) -> f64 {
        let time = estimate.step_s();
        let bound = match self.params.slo {
            SloMode::Off => f64::INFINITY,
            SloMode::Step => self.step.slo_s,
            SloMode::Expected => longest_s,
        };
        if estimate.passes() > 0 && time > bound { -1.0 } else { tokens / time }
    }

    /// For the mode `expected`: the longest step, in seconds, in which every request's expected TPOT is within its
    /// limit. Request i expects `tokens_of[i] + gain(i)` tokens in the step.
    fn longest_step_s(&self, batch: &BatchView, gain: impl Fn(usize) -> f64) -> f64 {
        if self.params.slo != SloMode::Expected || self.step.slo_s == f64::INFINITY {
            return f64::INFINITY;
        }
        let bounds = batch.slo_tpot_s.iter().zip(&self.step.tokens_of).enumerate();
        bounds.map(|(i, (&slo, &tokens))| slo * (tokens + gain(i))).fold(f64::INFINITY, f64::min)
    }

    /// Expected throughput of the step with the draft tokens so far, in tokens per second; −1 if this step would miss
    /// the SLO.
    fn actual(&self, batch: &BatchView) -> f64 {
        self.throughput(self.step.tokens, self.estimate(), self.longest_step_s(batch, |_| 0.0))
    }

    /// Decides whether to draft on (Alg. 1, line 5, of AdaSpec): true if the throughput with one more draft pass would
    /// be above `best`. Each token of that pass is assumed to have the expected confidence. False if no request may
    /// draft one more token.
    fn worth_a_pass(&mut self, batch: &BatchView, best: f64) -> bool {
        let depth = self.step.passes + 1;
        let at = self.depths.at(depth);
        if at.requests == 0 {
            return false;
        }
        let confidence = self.expected.value();
        let mut longer = *self.estimate();
        longer.deepen(at);
        let longest_s =
            self.longest_step_s(batch, |i| if batch.limit[i] >= depth { self.step.last[i] * confidence } else { 0.0 });
        let predicted = self.throughput(self.step.tokens + confidence * self.step.going_on, &longer, longest_s);
        self.weighed.note(predicted, || format!("{depth} tokens a request, predicted"));
        predicted > best
    }

    fn estimate(&self) -> &Estimate {
        self.step.estimate.as_ref().expect("the engine proposes before it drafts")
    }

    /// Reads the confidences of the draft passes that ran since the last call, and adds their draft tokens to the
    /// step's expected tokens and estimated time.
    fn take_in(&mut self, batch: &BatchView, drafts: &Drafts) {
        let stride = self.cap as usize;
        let s = &mut self.step;
        while s.passes < drafts.passes {
            let j = s.passes as usize;
            s.passes += 1;
            s.going_on = 0.0;
            let mut at = Depth::default();
            for i in (0..batch.len()).filter(|&i| drafts.draft_len[i] >= s.passes) {
                let confidence = drafts.confidence(i, j);
                s.last[i] *= confidence;
                s.cumulative[i * stride + j] = s.last[i];
                s.tokens += s.last[i];
                s.tokens_of[i] += s.last[i];
                s.going_on += if batch.limit[i] > s.passes { s.last[i] } else { 0.0 };
                at.requests += 1;
                at.context += u64::from(batch.context[i]);
                at.catch_up += if batch.always_extend { 0 } else { u64::from(batch.draft_gap[i]) };
            }
            s.estimate.as_mut().expect("the engine proposes before it drafts").deepen(at);
        }
    }

    /// The verifier (Alg. 2 of AdaSpec): drops the draft token with the least cumulative confidence (product of the
    /// request's confidences up to it) while that strictly improves the throughput. The last throughput becomes the
    /// policy's own estimate.
    fn eliminate(&mut self, batch: &BatchView, drafts: &mut Drafts) {
        let stride = self.cap as usize;
        let mut best = self.actual(batch);
        let mut longest_s = self.longest_step_s(batch, |_| 0.0);
        let cumulative = std::mem::take(&mut self.step.cumulative);
        let tail = |i: usize, depth: u32| {
            (depth > 0).then(|| Tail::new(cumulative[i * stride + depth as usize - 1], depth, i))
        };
        let lens = drafts.verify_len.iter().enumerate();
        self.tails.fill(lens.filter_map(|(i, &len)| tail(i, len)));
        while let Some(least) = self.tails.peek() {
            let i = least.request as usize;
            let mut shorter = *self.estimate();
            shorter.drop_token(u64::from(batch.context[i]) + u64::from(least.depth));
            let tokens = self.step.tokens - least.cumulative();
            let tokens_of_i = self.step.tokens_of[i] - least.cumulative();
            let shorter_longest_s = longest_s.min(batch.slo_tpot_s[i] * tokens_of_i);
            let throughput = self.throughput(tokens, &shorter, shorter_longest_s);
            self.weighed.note(throughput, || format!("without token {} of request {i}", least.depth));
            if throughput <= best {
                break;
            }
            best = throughput;
            longest_s = shorter_longest_s;
            self.step.estimate = Some(shorter);
            self.step.tokens = tokens;
            self.step.tokens_of[i] = tokens_of_i;
            drafts.verify_len[i] -= 1;
            self.tails.remove(tail(i, least.depth - 1));
        }
        self.step.cumulative = cumulative;
        self.own_estimate = Some(best);
    }
}

impl SpecPolicy for Running {
    fn limits(&self) -> DraftLimits<'_> {
        DraftLimits::chain(self.cap)
    }

    fn wants(&self) -> Wants {
        Wants { confidence: self.params.drafter == Drafter::Paper || self.params.verifier, ..Wants::default() }
    }

    fn propose(&mut self, batch: &BatchView, plan: &mut DraftPlan) {
        self.begin(batch);
        self.weighed.begin();
        self.own_estimate = Some(self.actual(batch));
        if self.params.drafter == Drafter::Off || self.worth_a_pass(batch, -1.0) {
            plan.fill(self.cap);
        }
    }

    fn keep_drafting(&mut self, batch: &BatchView, drafts: &mut Drafts) -> Continue {
        if self.params.drafter == Drafter::Off {
            drafts.nothing_to_decide();
            return Continue::Yes;
        }
        self.take_in(batch, drafts);
        let actual = self.actual(batch);
        self.weighed.note(actual, || format!("{} tokens a request", drafts.passes));
        if self.worth_a_pass(batch, actual) { Continue::Yes } else { Continue::Stop }
    }

    fn select(&mut self, batch: &BatchView, drafts: &mut Drafts) {
        // If the policy reads no confidences, the expected number of accepted draft tokens is unknown, so it has no
        // estimate.
        self.own_estimate = None;
        if self.wants().confidence {
            self.take_in(batch, drafts);
            self.own_estimate = Some(self.actual(batch));
        }
        match self.params.verifier {
            true => self.eliminate(batch, drafts),
            false => drafts.nothing_to_decide(),
        }
    }

    fn observe(&mut self, outcome: &StepOutcome) {
        if !self.wants().confidence {
            return;
        }
        let (mut sum, mut count) = (0.0, 0);
        for (i, &drafted) in outcome.drafted.iter().enumerate() {
            sum += (0..drafted as usize).map(|j| outcome.drafts.confidence(i, j)).sum::<f64>();
            count += u64::from(drafted);
        }
        self.expected.add_step(sum, count);
    }

    /// The policy's own estimate is its predicted throughput, in tokens per second: −1 if the step would miss the SLO
    /// (Alg. 3 of AdaSpec).
    fn explain(&mut self) -> Explanation {
        self.weighed.explain(self.own_estimate)
    }
}

#[cfg(test)]
#[path = "adaspec_tests.rs"]
mod tests;
