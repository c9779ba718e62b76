//! `gated-aggregate` and `gated-budget`: the draft model's confidences decide how deep a batch drafts, by the goodput
//! of the decode requests alone.
//!
//! Source: the crate inference-lab 1.0.0, `src/simulation/spec.rs`. The aggregate gate takes the draft length g for the
//! whole batch with the greatest (requests + Σ survival of the tokens up to depth g) / (verify time + draft time).
//! Survival is the probability that a token and all before it are accepted. The budget gate starts from g and drops
//! single tokens where that raises goodput. Of the requests' deepest tokens it drops the least likely first. A draft
//! pass without tokens takes no time. A block drafter makes one pass for all tokens, so the gates choose only the
//! verified lengths: the budget gate adds tokens while goodput rises. Prefill chunks in the step cost nothing in the
//! estimate.
//!
//! In inference-lab all confidences of a step are known before drafting. Here a confidence is known once its token is
//! drafted, so a deeper token is assumed to be as confident as the request's newest token. The draft passes that have
//! run take no time in the estimate.

use crate::definition::{About, BadParameter, Beliefs, Check, Definition, PolicyContext};
use crate::shared::belief::{Belief, pass_s};
use crate::shared::survival::{RankedTokens, survivals};
use foretoken_sim::{
    BatchView, ContextReads, Continue, DraftLimits, DraftPlan, Drafting, Drafts, MAX_SPEC_LEN, PassShape, SpecPolicy,
    Speculation, Wants,
};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Settings of the policies `gated-aggregate` and `gated-budget`, in which the draft model's confidences and the
/// goodput (expected tokens per second) decide how deep a batch drafts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Gated {
    /// Most draft tokens of a request in a step (`gamma`), 1 to 32. A value above the engine's `max_draft_len` is cut
    /// to it.
    pub gamma: u32,
    /// True lets requests have different draft lengths (the budget gate). False gives all requests the same draft
    /// length (the aggregate gate).
    pub ragged: bool,
}

impl Default for Gated {
    fn default() -> Self {
        Gated { gamma: MAX_SPEC_LEN, ragged: false }
    }
}

impl Gated {
    /// The parameters of `gated-budget`: requests may have different draft lengths.
    pub fn budget() -> Gated {
        Gated { ragged: true, ..Gated::default() }
    }
}

impl Definition for Gated {
    fn about(&self) -> About {
        About {
            summary: match self.ragged {
                true => {
                    "starts at the batch's best depth by confidence and drops the least likely slots while goodput \
                     rises"
                }
                false => "one depth for the batch: the most goodput by the summed survival of its confidences",
            },
            source: match self.ragged {
                true => "inference-lab 1.0.0 src/simulation/spec.rs, GatedBudget",
                false => "inference-lab 1.0.0 src/simulation/spec.rs, GatedAggregate",
            },
            sees: "batch size, contexts; the confidence of each drafted token; the believed cost of passes",
            differences: "the source knows all confidences of a round before it is drafted; here the next token is \
                          taken to be as sure as the newest one, and the first is always drafted. Costs are the \
                          linear belief's, not the true roofline's",
        }
    }

    fn beliefs(&self) -> Beliefs {
        Beliefs { cost: true, confidence: true, ..Beliefs::default() }
    }

    fn check(&self) -> Result<(), BadParameter> {
        Check("gated").length("gamma", self.gamma)
    }

    fn build(&self, context: &PolicyContext) -> Speculation {
        Speculation::Policy(Box::new(Running {
            ragged: self.ragged,
            gamma: self.gamma.min(context.max_draft_len),
            belief: context.belief,
            passes: 0,
            rows: Vec::new(),
            expected: Vec::new(),
            widths: Vec::new(),
            heap: BinaryHeap::new(),
            ranked: RankedTokens::default(),
        }))
    }
}

/// The policy `gated-aggregate` or `gated-budget` while the engine runs. The fields after `belief` belong to the step
/// in progress.
struct Running {
    ragged: bool,
    gamma: u32,
    belief: Belief,
    /// Number of draft passes of this step whose confidences the policy has read.
    passes: u32,
    rows: Vec<Row>,
    /// For each depth: expected number of accepted draft tokens of the batch at this depth. Beyond the drafted depth
    /// the values assume that further tokens are as confident as each request's newest token.
    expected: Vec<f64>,
    /// For each depth that is not drafted yet: the number of requests that would draft a token there.
    widths: Vec<u32>,
    /// The deepest planned draft token of each request, the least likely first, as (survival in the bits of a float,
    /// index of the request). Survival is the probability that the token and all before it are accepted.
    heap: BinaryHeap<(Reverse<u64>, usize)>,
    ranked: RankedTokens,
}

/// What the policy tracks of one request during a step: the probability that its draft tokens are accepted, its newest
/// confidence, and its numbers of draft tokens.
#[derive(Clone, Copy)]
struct Row {
    /// Probability that all draft tokens of the request so far in this step are accepted.
    survival: f64,
    /// The confidence of the request's newest draft token; 1 before the first.
    newest: f64,
    /// Most draft tokens that the engine allows the request in this step.
    limit: u32,
    drafted: u32,
    stopped: bool,
    /// Number of draft tokens that the budget gate, which may give requests different draft lengths, wants for the
    /// request.
    wanted: u32,
}

impl Row {
    /// The assumed survival of the request's draft token at `depth`, which is not drafted yet: the probability that it
    /// and all before it are accepted. Each further token counts as confident as the newest draft token.
    fn beyond(&self, depth: u32) -> f64 {
        self.survival * self.newest.powi((depth - self.drafted) as i32)
    }
}

impl Running {
    /// Reads the confidences of the draft passes that ran since the last call into `rows` and `expected`.
    fn take_in(&mut self, drafts: &Drafts) {
        while self.passes < drafts.passes {
            self.passes += 1;
            let depth = self.passes as usize;
            // Until now `expected` had an assumed value for this depth. It is replaced by the sum of the survivals of
            // the drafted tokens (the probabilities that a token and all before it are accepted).
            self.expected[depth] = 0.0;
            for (i, row) in self.rows.iter_mut().enumerate() {
                if drafts.draft_len[i] < self.passes {
                    continue;
                }
                row.newest = drafts.confidence(i, depth - 1);
                row.survival *= row.newest;
                row.drafted = self.passes;
                self.expected[depth] += row.survival;
            }
        }
    }

    /// Seconds, by the policy's linear cost formula (belief), in which the target verifies `tokens` tokens of the
    /// decode requests. Prompts of the step cost nothing here.
    fn verify_s(&self, batch: &BatchView, tokens: f64) -> f64 {
        let target = &self.belief.target;
        let per_request = match self.belief.context_reads {
            ContextReads::Once => 1.0,
            ContextReads::PerPosition => tokens / batch.len() as f64,
        };
        target.alpha_s * batch.context_sum as f64 * per_request + target.gamma_s * tokens + target.delta_s
    }

    /// Seconds, by the policy's linear cost formula (belief), of a draft pass over `requests` requests with the batch's
    /// mean context; 0 for no request.
    fn pass_s(&self, batch: &BatchView, requests: u32) -> f64 {
        if requests == 0 {
            return 0.0;
        }
        let n = u64::from(requests);
        let context = batch.context_sum * n / batch.len() as u64;
        pass_s(&self.belief.draft, PassShape { requests: n, batched: n, context, pairs: 0 })
    }

    /// True if the drafter makes one pass per draft token, so that fewer draft tokens take less time.
    fn pass_per_token(&self) -> bool {
        self.belief.drafting == Drafting::Autoregressive
    }

    /// The draft length with the greatest goodput (expected tokens per second) if the whole batch has it. Draft passes
    /// that have run already take no time in this estimate.
    fn width(&self, batch: &BatchView) -> u32 {
        let n = batch.len() as f64;
        let (mut best, mut drafting, mut accepted) = ((0, f64::NEG_INFINITY), 0.0, 0.0);
        for g in 0..=self.gamma {
            let at_depth = self.widths.get(g as usize).copied().unwrap_or(0);
            if g > 0 {
                accepted += self.expected[g as usize];
            }
            if g > self.passes && self.pass_per_token() {
                drafting += self.pass_s(batch, at_depth);
            }
            let goodput = (n + accepted) / (self.verify_s(batch, n * f64::from(g + 1)) + drafting);
            if goodput > best.1 {
                best = (g, goodput);
            }
        }
        best.0
    }

    /// Fills `expected` and `widths` for the depths that are not drafted yet, as if each request's further draft tokens
    /// were as confident as its newest one.
    fn extrapolate(&mut self) {
        self.widths.clear();
        self.widths.resize(self.gamma as usize + 1, 0);
        self.expected[self.passes as usize + 1..].fill(0.0);
        for row in self.rows.iter().filter(|row| !row.stopped && row.drafted == self.passes) {
            for depth in self.passes + 1..=row.limit.min(self.gamma) {
                self.expected[depth as usize] += row.beyond(depth);
                self.widths[depth as usize] += 1;
            }
        }
    }

    /// Sets the `wanted` number of draft tokens of each request. It starts from `width`, at most the request's limit.
    /// Then the least likely of the requests' deepest tokens are dropped where that raises goodput. Tokens that are
    /// drafted already stay.
    fn remove(&mut self, batch: &BatchView, width: u32) {
        let n = batch.len() as f64;
        self.heap.clear();
        let (mut tokens, mut expected) = (n, n);
        expected += self.expected[1..=self.passes as usize].iter().sum::<f64>();
        let mut heap = std::mem::take(&mut self.heap);
        self.widths.fill(0);
        for (i, row) in self.rows.iter_mut().enumerate() {
            let may = !row.stopped && row.drafted == self.passes;
            row.wanted = if may { row.limit.min(width).max(row.drafted) } else { row.drafted };
            tokens += f64::from(row.wanted);
            for depth in row.drafted + 1..=row.wanted {
                expected += row.beyond(depth);
                self.widths[depth as usize] += 1;
            }
            if row.wanted > row.drafted {
                heap.push((Reverse(row.beyond(row.wanted).to_bits()), i));
            }
        }
        let mut drafting: f64 = self.widths.iter().map(|&requests| self.pass_s(batch, requests)).sum();
        while let Some((Reverse(bits), i)) = heap.pop() {
            let (survival, depth) = (f64::from_bits(bits), self.rows[i].wanted);
            let at = self.widths[depth as usize];
            let saved = self.pass_s(batch, at) - self.pass_s(batch, at - 1);
            let now = expected / (self.verify_s(batch, tokens) + drafting);
            let less = (expected - survival) / (self.verify_s(batch, tokens - 1.0) + drafting - saved);
            if less > now {
                (expected, tokens, drafting) = (expected - survival, tokens - 1.0, drafting - saved);
                self.widths[depth as usize] -= 1;
                let row = &mut self.rows[i];
                row.wanted -= 1;
                if row.wanted > row.drafted {
                    heap.push((Reverse(row.beyond(row.wanted).to_bits()), i));
                }
            }
        }
        self.heap = heap;
    }
}

impl SpecPolicy for Running {
    fn limits(&self) -> DraftLimits<'_> {
        DraftLimits::chain(self.gamma)
    }

    fn wants(&self) -> Wants {
        Wants::CONFIDENCE
    }

    fn propose(&mut self, batch: &BatchView, plan: &mut DraftPlan) {
        plan.fill(self.gamma);
        self.passes = 0;
        self.expected.clear();
        self.expected.resize(self.gamma as usize + 1, 0.0);
        self.rows.clear();
        let row = |&limit: &u32| Row { survival: 1.0, newest: 1.0, limit, drafted: 0, stopped: false, wanted: 0 };
        self.rows.extend(batch.limit.iter().map(row));
    }

    fn keep_drafting(&mut self, batch: &BatchView, drafts: &mut Drafts) -> Continue {
        if !self.pass_per_token() {
            drafts.nothing_to_decide();
            return Continue::Yes;
        }
        self.take_in(drafts);
        self.extrapolate();
        let width = self.width(batch);
        if width <= self.passes {
            return Continue::Stop;
        }
        if self.ragged {
            self.remove(batch, width);
        }
        let mut on = false;
        for (i, row) in self.rows.iter_mut().enumerate() {
            if !row.stopped && self.ragged && row.wanted <= self.passes {
                row.stopped = true;
                drafts.stop(i);
            }
            on |= !row.stopped && row.limit > self.passes;
        }
        if on { Continue::Yes } else { Continue::Stop }
    }

    fn select(&mut self, batch: &BatchView, drafts: &mut Drafts) {
        self.take_in(drafts);
        self.widths.clear();
        self.expected[self.passes as usize + 1..].fill(0.0);
        let width = self.width(batch).min(self.passes);
        if !self.ragged {
            drafts.verify_len.iter_mut().for_each(|v| *v = (*v).min(width));
            return;
        }
        self.ranked.clear();
        for i in 0..self.rows.len() {
            let len = if self.pass_per_token() { drafts.draft_len[i] } else { drafts.draft_len[i].min(width) };
            let confidences = (0..len as usize).map(|j| drafts.confidence(i, j));
            self.ranked.push_draft(i, survivals(confidences), 0.0);
        }
        let n = batch.len() as f64;
        let (mut tokens, mut expected, mut taken) = (n, n, 0);
        let mut ranked = std::mem::take(&mut self.ranked);
        for survival in ranked.descending() {
            let more = (expected + survival) / self.verify_s(batch, tokens + 1.0);
            if more <= expected / self.verify_s(batch, tokens) {
                break;
            }
            (expected, tokens, taken) = (expected + survival, tokens + 1.0, taken + 1);
        }
        ranked.allocate(taken, &mut drafts.verify_len);
        self.ranked = ranked;
    }
}

#[cfg(test)]
#[path = "gated_tests.rs"]
mod tests;
