//! `oracle-goodput`: the lengths with the most accepted tokens per second in this step, given which drafts will be
//! accepted and the true cost. It is the best *myopic* choice in its state. Over a whole trace another policy visits
//! other states and may end up ahead (docs/model.md 13).
//!
//! Source: docs/model.md 12; `form = "batch"` is the oracle of the SmartSpec paper's Fig. 14.
//!
//! Vector form. Request i drafts and verifies d_i tokens, at most its accepted run. Take a fixed number of passes D and
//! a truth that is linear in [`PassShape`](foretoken_sim::PassShape). The step time is then a constant plus a cost for
//! each request. The lengths that maximise tokens − λ·time for some λ ≥ 0 therefore include the best ratio, and each
//! request chooses by itself given λ. The cost of a request is convex in d_i, except for the catch-up that comes with
//! its first token; on the lower convex hull this merges the first few tokens into one segment. Sorting all segments by
//! cost per token and evaluating every prefix meets every candidate: **the enumeration is exact for linear truths**,
//! gaps and chunks included. Without catch-up, the order is by c_i + j for any truth that rises with the work.
//!
//! For other truths (staircase, roofline) the order comes from the models' local slopes, and every prefix is evaluated
//! at its true cost. The result is the best of these candidates, which need not be the best of all vectors. It is never
//! worse than the batch form, because drafting min(run_i, k) for all requests is the last prefix of D = k.
//!
//! The [`Truth`] that an oracle sees has no residual noise, because no policy could choose by it.

use crate::bounds::true_cost::{Slopes, TrueCost, draft_token, verify_token};
use crate::definition::{BadParameter, Definition, PolicyContext};
use crate::look::{Dash, Look, Marker, SKY_BLUE};
use foretoken_sim::{BatchView, DraftPlan, OraclePolicy, Speculation, Time, Truth, shape};
use serde::{Deserialize, Serialize};

/// What the oracle chooses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    /// A length for each request.
    #[default]
    Vector,
    /// One length for the batch. Every request drafts it, also where the drafts will be rejected.
    Batch,
}

/// Parameters of `oracle-goodput`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct OracleGoodput {
    /// What the oracle chooses.
    pub form: Form,
}

impl Definition for OracleGoodput {
    fn summary(&self) -> &'static str {
        "the lengths with the most accepted tokens per second of this step, from the hidden truth and the true cost"
    }

    fn source(&self) -> &'static str {
        "hindsight on acceptance and cost; form = \"batch\" is SmartSpec (arXiv 2406.14066) Fig. 14's oracle"
    }

    fn sees(&self) -> &'static str {
        "the hidden truth: how many drafts will be accepted, and the true cost of passes"
    }

    fn differences(&self) -> &'static str {
        "SmartSpec's oracle is the batch form; the vector form may give each request its own length"
    }

    fn look(&self, usual: Look) -> Look {
        match self.form {
            Form::Vector => usual,
            Form::Batch => Look::new(SKY_BLUE, Dash::Dashed, Marker::Square),
        }
    }

    fn sees_hidden_truth(&self) -> bool {
        true
    }

    fn check(&self) -> Result<(), BadParameter> {
        Ok(())
    }

    fn build(&self, context: &PolicyContext) -> Speculation {
        Speculation::Oracle(Box::new(Running {
            form: self.form,
            longest: context.max_draft_len,
            segments: Vec::new(),
            best_order: Vec::new(),
            order: Vec::new(),
        }))
    }
}

/// The running oracle. Its vectors are scratch, kept between steps.
struct Running {
    form: Form,
    longest: u32,
    segments: Vec<Segment>,
    /// Requests in the order in which their tokens were added, for the number of passes under trial. `best_order` is
    /// the order of the best choice so far.
    order: Vec<u32>,
    best_order: Vec<u32>,
}

/// Successive draft tokens of one request. It pays to draft all of them or none.
#[derive(Clone, Copy, Debug)]
struct Segment {
    /// Cost in picoseconds per token.
    price: f64,
    request: u32,
    /// Depth of the first token, from 1.
    first: u32,
    tokens: u32,
}

impl Segment {
    fn new(cost: f64, request: usize, first: u32, tokens: u32) -> Segment {
        Segment { price: cost / f64::from(tokens), request: request as u32, first, tokens }
    }
}

/// A candidate: its tokens and its time. Rates are compared in integers, so ties are exact.
#[derive(Clone, Copy, Debug)]
struct Choice {
    tokens: u64,
    time: Time,
    /// Number of draft tokens (vector form), or the length (batch form).
    size: usize,
}

impl Choice {
    /// True if `self` has more tokens per second, or the same rate with fewer draft tokens.
    fn beats(&self, other: &Choice) -> bool {
        let ours = u128::from(self.tokens) * u128::from(other.time.0);
        let theirs = u128::from(other.tokens) * u128::from(self.time.0);
        ours > theirs || ours == theirs && self.size < other.size
    }
}

impl Running {
    /// Returns the true cost of the draft token of request i at a depth, in picoseconds: its draft pass plus its
    /// verification.
    fn price(batch: &BatchView, truth: &Truth) -> impl Fn(usize, u32) -> f64 {
        let plain = shape::plain_pass(batch);
        let draft = Slopes::of(truth.draft, plain);
        let target = Slopes::of(truth.target, plain);
        let (reads, drafting) = (truth.context_reads, truth.drafting);
        let batch = *batch;
        move |i, depth| {
            draft.cost(draft_token(&batch, i, depth, drafting)) + target.cost(verify_token(&batch, i, depth, reads))
        }
    }

    /// Fills `segments` with the drafts of at most `depth` tokens of each request, cheapest first.
    fn cut(&mut self, run: &[u32], depth: u32, price: &impl Fn(usize, u32) -> f64) {
        self.segments.clear();
        for (i, &run) in run.iter().enumerate() {
            let len = run.min(depth);
            let (mut first, mut tokens, mut cost) = (1, 0, 0.0);
            for j in 1..=len {
                let next = price(i, j);
                // Only a first token with catch-up costs more than the next token; the prices of later tokens rise.
                if tokens > 0 && next * f64::from(tokens) >= cost {
                    self.segments.push(Segment::new(cost, i, first, tokens));
                    (first, tokens, cost) = (j, 0, 0.0);
                }
                (tokens, cost) = (tokens + 1, cost + next);
            }
            if tokens > 0 {
                self.segments.push(Segment::new(cost, i, first, tokens));
            }
        }
        self.segments.sort_unstable_by(|a, b| {
            a.price.total_cmp(&b.price).then(a.request.cmp(&b.request)).then(a.first.cmp(&b.first))
        });
    }

    fn best_vector(&mut self, batch: &BatchView, truth: &Truth, plan: &mut DraftPlan) {
        let undrafted = TrueCost::undrafted(batch, truth);
        let mut best = Choice { tokens: batch.len() as u64, time: undrafted.time(), size: 0 };
        let price = Self::price(batch, truth);
        let deepest = truth.run.iter().copied().max().unwrap_or(0).min(self.longest);
        for depth in 1..=deepest {
            self.cut(truth.run, depth, &price);
            self.order.clear();
            let mut cost = undrafted;
            let mut improved = false;
            for s in &self.segments {
                for j in s.first..s.first + s.tokens {
                    cost.add(s.request as usize, j);
                    self.order.push(s.request);
                    let size = self.order.len();
                    let choice = Choice { tokens: (batch.len() + size) as u64, time: cost.time(), size };
                    if choice.beats(&best) {
                        (best, improved) = (choice, true);
                    }
                }
            }
            if improved {
                std::mem::swap(&mut self.order, &mut self.best_order);
            }
        }
        let chosen = if best.size > 0 { &self.best_order[..best.size] } else { &[] };
        chosen.iter().for_each(|&i| plan.draft_len[i as usize] += 1);
    }

    fn best_length(&self, batch: &BatchView, truth: &Truth, plan: &mut DraftPlan) {
        let mut cost = TrueCost::undrafted(batch, truth);
        let mut tokens = batch.len() as u64;
        let mut best = Choice { tokens, time: cost.time(), size: 0 };
        for k in 1..=self.longest {
            for i in (0..batch.len()).filter(|&i| batch.limit[i] >= k) {
                cost.add(i, k);
                tokens += u64::from(truth.run[i] >= k);
            }
            let choice = Choice { tokens, time: cost.time(), size: k as usize };
            if choice.beats(&best) {
                best = choice;
            }
        }
        for (len, &limit) in plan.draft_len.iter_mut().zip(batch.limit) {
            *len = limit.min(best.size as u32);
        }
    }
}

impl OraclePolicy for Running {
    fn limit(&self) -> u32 {
        self.longest
    }

    fn propose(&mut self, batch: &BatchView, truth: &Truth, plan: &mut DraftPlan) {
        match self.form {
            Form::Vector => self.best_vector(batch, truth, plan),
            Form::Batch => self.best_length(batch, truth, plan),
        }
    }
}

#[cfg(test)]
#[path = "oracle_goodput_tests.rs"]
mod tests;
