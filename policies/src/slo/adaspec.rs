//! `adaspec`: drafts one token at a time while the predicted throughput rises (Adaptive Drafter), drops the least
//! promising tokens before verification (Confidence-Prior Verifier), and refuses to speculate in steps that would miss
//! the SLO (SLO-Aware Efficiency Estimator).
//!
//! Source: "AdaSpec: Adaptive Speculative Decoding for Fast, SLO-Aware LLM Serving" (arXiv 2503.05096), Alg. 1 to 3 and
//! Eq. 4 to 7, read as docs/model.md 2, 12 and 14 say: the prediction multiplies the last cumulative confidence (Eq. 7;
//! Alg. 1 as printed does not), every request counts one bonus token (Eq. 6), and there is a cap on the length, which
//! the algorithm lacks. The published code, `adaspec-code`, differs in all three parts. `verifier = false` is the
//! paper's AdaSpec⁻.

use crate::definition::{BadParameter, Beliefs, Check, Definition, PolicyContext};
use crate::shared::acceptance::RunningMean;
use crate::shared::belief::Belief;
use crate::shared::estimator::{Depth, Depths, Estimate};
use crate::shared::weighed::Weighed;
use crate::slo::adaspec_verifier::{Tail, Tails};
use foretoken_sim::{
    BatchView, Continue, DraftLimits, DraftPlan, Drafts, Explanation, SpecPolicy, Speculation, StepOutcome, Wants,
};
use serde::{Deserialize, Serialize};

/// When a step stops drafting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Drafter {
    /// Alg. 1: drafting goes on while the throughput predicted with one more draft is above that with the drafts so
    /// far.
    #[default]
    Paper,
    /// Only at `cap`.
    Off,
}

/// When a step with drafts counts as exceeding the SLO, so that the policy does not draft in it (Alg. 3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SloMode {
    /// Never: the SLO is ignored.
    Off,
    /// If the step's time is above the tightest TPOT limit in the batch, which is safe even if no draft is accepted.
    #[default]
    Step,
    /// If for some request the step's time divided by the expected tokens is above its TPOT limit.
    Expected,
}

/// Parameters of `adaspec`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Adaspec {
    /// When a step stops drafting.
    pub drafter: Drafter,
    /// Whether the least promising drafts are dropped before verification (Alg. 2). False is the paper's AdaSpec⁻.
    pub verifier: bool,
    /// When a step with drafts counts as exceeding the SLO.
    pub slo: SloMode,
    /// Confidence, [0, 1], that is expected of a token until the first confidence was seen.
    pub prev_confidence: f64,
    /// Number of newest steps with drafts over which the expected confidence is averaged, at least 1. Default: all
    /// steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<u32>,
    /// Longest draft, in tokens, 1 to 32.
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
    /// The paper's AdaSpec⁻: verifies all drafts.
    pub fn without_verifier() -> Adaspec {
        Adaspec { verifier: false, ..Adaspec::default() }
    }
}

impl Definition for Adaspec {
    fn summary(&self) -> &'static str {
        match self.verifier {
            true => "drafts while confidences predict more throughput, drops unpromising tokens, keeps to the SLO",
            false => "drafts while confidences predict more throughput, verifies all of it, keeps to the SLO",
        }
    }

    fn source(&self) -> &'static str {
        "AdaSpec (arXiv 2503.05096) Alg. 1-3; verifier = false is AdaSpec-"
    }

    fn sees(&self) -> &'static str {
        "batch size, contexts and limits; the confidence of each drafted token; the SLO"
    }

    fn differences(&self) -> &'static str {
        "this is the paper with its errata, not the code (see adaspec-code): the prediction multiplies the last cumulative \
         confidence (Eq. 7), every request counts one bonus token (Eq. 6), lengths are capped at 8"
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

/// The running policy: its parameters and its state between steps.
struct Running {
    params: Adaspec,
    belief: Belief,
    cap: u32,
    /// The expected confidence of the next token; constant during a step.
    expected: RunningMean,
    step: Step,
    depths: Depths,
    tails: Tails,
    own_estimate: Option<f64>,
    weighed: Weighed,
}

/// The state of the step in progress. Its vectors are reused between steps.
#[derive(Default)]
struct Step {
    /// Estimated time of the step with the drafts so far; set by `propose`.
    estimate: Option<Estimate>,
    /// Expected tokens of the batch: one bonus token per request, plus the cumulative confidence of every draft token
    /// to verify.
    tokens: f64,
    /// Expected tokens of each request, its bonus token included; the bound of `slo = expected` needs them.
    tokens_of: Vec<f64>,
    /// Cumulative confidence of the j-th token (from 0) of request i at `i * cap + j`.
    cumulative: Vec<f64>,
    /// Cumulative confidence of each request's last token, 1 before the first.
    last: Vec<f64>,
    /// Sum of `last` over the requests that may draft one more token.
    going_on: f64,
    /// Number of draft passes of this step whose confidences were read.
    passes: u32,
    /// The tightest TPOT limit of the batch, seconds; infinite where the SLO does not bind.
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

    /// Alg. 3: expected tokens per second, or −1 if a step with drafts would miss the SLO. `longest_s` is the longest
    /// time, in seconds, that the step may take in `expected` mode.
    fn throughput(&self, tokens: f64, estimate: &Estimate, longest_s: f64) -> f64 {
        let time = estimate.step_s();
        let bound = match self.params.slo {
            SloMode::Off => f64::INFINITY,
            SloMode::Step => self.step.slo_s,
            SloMode::Expected => longest_s,
        };
        if estimate.passes() > 0 && time > bound { -1.0 } else { tokens / time }
    }

    /// `expected` mode: the longest step, in seconds, in which every request's expected TPOT is within its limit.
    /// Request i expects `tokens_of[i] + gain(i)` tokens.
    fn longest_step_s(&self, batch: &BatchView, gain: impl Fn(usize) -> f64) -> f64 {
        if self.params.slo != SloMode::Expected || self.step.slo_s == f64::INFINITY {
            return f64::INFINITY;
        }
        let bounds = batch.slo_tpot_s.iter().zip(&self.step.tokens_of).enumerate();
        bounds.map(|(i, (&slo, &tokens))| slo * (tokens + gain(i))).fold(f64::INFINITY, f64::min)
    }

    /// Expected throughput of the step with the drafts so far, in tokens per second; −1 if the step with drafts would
    /// miss the SLO.
    fn actual(&self, batch: &BatchView) -> f64 {
        self.throughput(self.step.tokens, self.estimate(), self.longest_step_s(batch, |_| 0.0))
    }

    /// Alg. 1 line 5: true if the throughput with one more draft pass would be above `best`. Each token of that pass is
    /// assumed to have the expected confidence. False if no request may draft one more token.
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

    /// Reads the confidences of the passes that ran since the last call, and adds their tokens to the step's expected
    /// tokens and estimated time.
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

    /// Alg. 2: drops the token with the least cumulative confidence while that strictly improves the throughput. The
    /// last throughput becomes the policy's own estimate.
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
        // If the policy reads no confidences, the expected tokens of the drafts are unknown, so it has no estimate.
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

    /// The estimate is Alg. 3's throughput: −1 if the step misses the SLO.
    fn explain(&mut self) -> Explanation {
        self.weighed.explain(self.own_estimate)
    }
}

#[cfg(test)]
#[path = "adaspec_tests.rs"]
mod tests;
