//! `adaspec-code`: AdaSpec as its published code runs, not as its paper says.
//!
//! Source: cerebellumking/AdaSpec @f3f2f481, `vllm/spec_decode/{draft_model_runner, top1_proposer,
//! spec_decode_worker}.py` (docs/model.md 2.2 to 2.5). It differs from the paper (`adaspec`) in four points. Costs are
//! looked up in tables. Throughput with draft tokens is also compared with throughput without them, and drafting ends
//! after a pass that lowered the throughput. Tokens are dropped down to the next smaller captured graph size or not at
//! all. No SLO is enforced: that code is commented out. The code's mistakes are kept, because the published
//! measurements have them:
//! - the request with the least promising last token loses all its tokens before the next request loses one, because
//!   the list of confidences is never shortened;
//! - a size that is a capture size already is still lowered to the capture size below;
//! - if drafting ended because the next pass was predicted not to pay, the choice of tokens to drop counts the time of
//!   this next pass, which did not run.

use crate::definition::{About, BadParameter, Beliefs, Check, Definition, PolicyContext};
use crate::shared::weighed::Weighed;
use crate::slo::adaspec_code_cost::CodeCosts;
use foretoken_sim::{BatchView, Continue, DraftLimits, DraftPlan, Drafts, Explanation, SpecPolicy, Speculation, Wants};
use serde::{Deserialize, Serialize};

/// Which draft tokens are dropped before verification, if any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Eliminate {
    /// Draft tokens are dropped until the verify pass has the next lower captured CUDA-graph size. None is dropped if
    /// that lowers goodput (`--rsd`).
    #[default]
    CodeBucket,
    /// All draft tokens are verified (`--ssd`).
    Off,
}

/// Settings of the policy `adaspec-code`, which is AdaSpec as its published code runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AdaspecCode {
    /// Which draft tokens are dropped before verification, if any.
    pub eliminate: Eliminate,
    /// Confidence, [0, 1], that is expected of a draft token until the first confidence was seen.
    pub prev_confidence: f64,
    /// Most draft tokens of a request in a step (`num_speculative_tokens`), 1 to 32.
    pub cap: u32,
}

impl Default for AdaspecCode {
    fn default() -> Self {
        AdaspecCode { eliminate: Eliminate::CodeBucket, prev_confidence: 0.6, cap: 8 }
    }
}

impl Definition for AdaspecCode {
    fn about(&self) -> About {
        About {
            summary: "AdaSpec's published code: cost tables, lifetime mean of confidences, elimination by whole \
                      graph buckets, no SLO",
            source: "cerebellumking/AdaSpec @f3f2f481, vllm/spec_decode/draft_model_runner.py, top1_proposer.py, \
                     spec_decode_worker.py",
            sees: "batch size, contexts and limits; the confidence of each drafted token; pass times at start-up",
            differences: "the code's batches have one length and no prefill: a request that may not draft so far is \
                          counted with what it may, and prefill chunks and catch-up are not counted. Graphs are \
                          timed whole, so its overhead table (full run less graph replay) is 0. In its vLLM a \
                          request that is once not drafted for is never drafted for again: draft_gap = \"permanent\" \
                          does that",
        }
    }

    fn beliefs(&self) -> Beliefs {
        Beliefs { cost: true, confidence: true, ..Beliefs::default() }
    }

    fn check(&self) -> Result<(), BadParameter> {
        let check = Check("adaspec-code");
        check.share("prev_confidence", self.prev_confidence)?;
        check.length("cap", self.cap)
    }

    fn build(&self, context: &PolicyContext) -> Speculation {
        Speculation::Policy(Box::new(Running::new(*self, context)))
    }
}

/// Number of tokens to drop from a verify pass of `rows` tokens to reach the next strictly lower CUDA-graph size: a
/// power of two up to 32, a multiple of 32 above.
fn bucket_delta(rows: u32) -> u32 {
    match rows {
        0 | 1 => 0,
        2..=32 => rows - (1 << (rows - 1).ilog2()),
        _ => rows - (rows - 1) / 32 * 32,
    }
}

/// Mean confidence of all draft tokens in the run so far; a given value before the first one.
#[derive(Clone, Debug)]
struct LifetimeMean {
    value: f64,
    sum: f64,
    count: u64,
}

/// The policy `adaspec-code` while the engine runs. As in AdaSpec's code, it learns the expected confidence while it
/// drafts, so it does not matter if it sees the outcome of a step late.
struct Running {
    params: AdaspecCode,
    costs: CodeCosts,
    cap: u32,
    expected: LifetimeMean,
    /// True if the command `foretoken decide` (one decision on a given batch) gave the expected confidence, so that the
    /// policy does not learn it.
    told: bool,
    /// Expected tokens per second of this step with the draft tokens so far.
    goodput: f64,
    /// Seconds of drafting in this step that the last computed goodput assumed.
    draft_s: f64,
    /// Expected tokens of the batch in this step: one per request, plus the cumulative confidence (product of the
    /// request's confidences up to it) of each draft token so far.
    tokens: f64,
    /// For each request: the product of the confidences of its draft tokens so far in this step; 1 before the first.
    last: Vec<f64>,
    /// At `i * cap + j`: the product of the confidences of the first j + 1 draft tokens of request i, that is, the
    /// cumulative confidence of its draft token j (from 0).
    cumulative: Vec<f64>,
    lens: Vec<u32>,
    order: Vec<usize>,
    weighed: Weighed,
}

impl Running {
    fn new(params: AdaspecCode, context: &PolicyContext) -> Running {
        let value = context.told.map_or(params.prev_confidence, |told| told.prev_confidence);
        Running {
            costs: CodeCosts::measure(context.profile),
            cap: params.cap.min(context.max_draft_len),
            expected: LifetimeMean { value, sum: 0.0, count: 0 },
            told: context.told.is_some(),
            goodput: 0.0,
            draft_s: 0.0,
            tokens: 0.0,
            last: Vec::new(),
            cumulative: Vec::new(),
            lens: Vec::new(),
            order: Vec::new(),
            weighed: Weighed::default(),
            params,
        }
    }

    /// Expected tokens per second if `self.lens[i]` draft tokens of request i are verified and the batch expects
    /// `tokens` tokens. The step's time of drafting is the stored `draft_s`.
    fn ragged_goodput(&self, batch: &BatchView, tokens: f64) -> f64 {
        let (mut rows, mut context) = (0, 0);
        for (&k, &c) in self.lens.iter().zip(batch.context) {
            let (k, c) = (u64::from(k), u64::from(c));
            rows += k as u32 + 1;
            context += (k * k + k) / 2 + (k + 1) * c;
        }
        tokens / (self.draft_s + self.costs.verify_s(rows, context))
    }

    /// Expected tokens per second if every request drafts and verifies `k` tokens, or up to its limit on draft tokens,
    /// and the batch expects `tokens` tokens. Sets `lens` to these lengths and `draft_s` to the seconds of drafting
    /// them.
    fn goodput(&mut self, batch: &BatchView, k: u32, tokens: f64) -> f64 {
        self.lens.clear();
        self.lens.extend(batch.limit.iter().map(|&limit| limit.min(k)));
        let (mut requests, mut context) = (0, 0);
        for (&k, &c) in self.lens.iter().zip(batch.context).filter(|(k, _)| **k > 0) {
            requests += 1;
            context += u64::from(c) + u64::from(k);
        }
        self.draft_s = self.costs.draft_s(k, requests, context);
        self.ragged_goodput(batch, tokens)
    }

    /// Expected tokens per second if every request whose limit allows it drafts `k` tokens. The k-th draft token of
    /// each request is assumed to have the expected confidence. `None` if no request may draft `k` tokens.
    fn predicted(&mut self, batch: &BatchView, k: u32) -> Option<f64> {
        let may = || batch.limit.iter().zip(&self.last).filter(|&(&limit, _)| limit >= k && k <= self.cap);
        may().next()?;
        let gain: f64 = may().map(|(_, last)| last * self.expected.value).sum();
        let predicted = self.goodput(batch, k, self.tokens + gain);
        self.weighed.note(predicted, || format!("{k} tokens a request, predicted"));
        Some(predicted)
    }

    /// Reads the confidences of draft pass `k` and adds its draft tokens to the batch's expected tokens. Returns the
    /// sum and the number of these confidences.
    fn take_in(&mut self, drafts: &Drafts, k: u32) -> (f64, u64) {
        let (mut sum, mut count) = (0.0, 0);
        for i in (0..self.last.len()).filter(|&i| drafts.draft_len[i] >= k) {
            let confidence = drafts.confidence(i, k as usize - 1);
            self.last[i] *= confidence;
            self.cumulative[i * self.cap as usize + k as usize - 1] = self.last[i];
            self.tokens += self.last[i];
            sum += confidence;
            count += 1;
        }
        (sum, count)
    }

    fn learn(&mut self, (sum, count): (f64, u64)) {
        if self.told || count == 0 {
            return;
        }
        let mean = &mut self.expected;
        mean.sum += sum;
        mean.count += count;
        mean.value = mean.sum / mean.count as f64;
    }

    /// Drops draft tokens until the verify pass has the next lower CUDA-graph size, or none if goodput would fall. The
    /// request whose last draft token has the least cumulative confidence (product of its confidences) loses its tokens
    /// first, from the last one on. Then the next request follows.
    fn eliminate(&mut self, batch: &BatchView, drafts: &mut Drafts) {
        let rows: u32 = drafts.draft_len.iter().map(|&k| k + 1).sum();
        let mut delta = bucket_delta(rows);
        self.lens.clear();
        self.lens.extend_from_slice(&drafts.draft_len);
        let mut order = std::mem::take(&mut self.order);
        order.clear();
        order.extend(0..self.lens.len());
        order.sort_unstable_by(|&a, &b| self.last[a].total_cmp(&self.last[b]).then(a.cmp(&b)));
        let mut tokens = self.tokens;
        for &i in &order {
            let kept = self.lens[i] - delta.min(self.lens[i]);
            let row = &self.cumulative[i * self.cap as usize..];
            tokens -= row[kept as usize..self.lens[i] as usize].iter().sum::<f64>();
            delta -= self.lens[i] - kept;
            self.lens[i] = kept;
        }
        self.order = order;
        let ragged = self.ragged_goodput(batch, tokens);
        self.weighed.note(ragged, || "the next lower graph size".into());
        if ragged >= self.goodput {
            self.goodput = ragged;
            drafts.verify_len.copy_from_slice(&self.lens);
        }
    }
}

impl SpecPolicy for Running {
    fn limits(&self) -> DraftLimits<'_> {
        DraftLimits::chain(self.cap)
    }

    fn wants(&self) -> Wants {
        Wants::CONFIDENCE
    }

    fn propose(&mut self, batch: &BatchView, plan: &mut DraftPlan) {
        let n = batch.len();
        self.last.clear();
        self.last.resize(n, 1.0);
        if self.cumulative.len() < n * self.cap as usize {
            self.cumulative.resize(n * self.cap as usize, 0.0);
        }
        self.weighed.begin();
        self.tokens = n as f64;
        let plain = self.goodput(batch, 0, self.tokens);
        self.goodput = plain;
        self.weighed.note(plain, || "no draft".into());
        if self.predicted(batch, 1).is_some_and(|one| one > plain) {
            plan.fill(self.cap);
        }
    }

    fn keep_drafting(&mut self, batch: &BatchView, drafts: &mut Drafts) -> Continue {
        let k = drafts.passes;
        let seen = self.take_in(drafts, k);
        let (before, tokens) = (self.goodput, self.tokens);
        self.goodput = self.goodput(batch, k, tokens);
        let now = self.goodput;
        self.weighed.note(now, || format!("{k} tokens a request"));
        if now < before {
            return Continue::Stop;
        }
        self.learn(seen);
        match self.predicted(batch, k + 1) {
            Some(predicted) if predicted < now => Continue::Stop,
            _ => Continue::Yes,
        }
    }

    fn select(&mut self, batch: &BatchView, drafts: &mut Drafts) {
        match self.params.eliminate {
            Eliminate::CodeBucket => self.eliminate(batch, drafts),
            Eliminate::Off => drafts.nothing_to_decide(),
        }
    }

    fn explain(&mut self) -> Explanation {
        self.weighed.explain(Some(self.goodput))
    }
}

#[cfg(test)]
#[path = "adaspec_code_tests.rs"]
mod tests;
