//! The draft lengths that are worth most in a step, for bounds (policies that show how well a server could do at best).
//! The bounds know the true pass times and a value of every draft token.
//!
//! Request i drafts and verifies d_i tokens. Its token at depth j is worth `value(i, j)` expected tokens. For an
//! oracle, which knows the tokens that will be accepted, the value is 1 or 0. For other bounds it is the probability
//! that this token and all before it are accepted. Values never rise with depth.
//!
//! Take a fixed number of draft passes D, and true pass times that are linear in
//! [`PassShape`](foretoken_sim::PassShape). The step time is then a constant plus a cost for each token. The lengths
//! with the best ratio of value to time therefore maximise value − λ·time for some λ ≥ 0. For a given λ the requests'
//! lengths do not depend on each other. So each request's tokens are merged, along the upper hull of their (cost,
//! value), into segments of falling value per cost. If values are 0 or 1, the only reason for a merge is the catch-up
//! of the draft model, which costs extra at the first token. All segments are sorted by value per cost, and every
//! prefix of this order is evaluated at its true cost, also if it ends within a segment. The best lengths are among
//! these prefixes: **the enumeration is exact for linear pass times**, also with prompt chunks and with context tokens
//! that the draft model has skipped.
//!
//! For other pass times (staircase, roofline) the order comes from the slopes of the pass times near the size of this
//! step, and every prefix is evaluated at its true cost. The result is the best of these candidates, which need not be
//! the best of all vectors of lengths.

use crate::bounds::price::Worth;
use crate::bounds::true_cost::{Slopes, TrueCost, draft_token, verify_token};
use foretoken_sim::{BatchView, Truth, shape};

/// Enumerates the choices of draft lengths that can be best in a step. Its vectors are buffers that are reused between
/// steps.
#[derive(Default)]
pub(crate) struct Frontier {
    segments: Vec<Segment>,
    /// The request (its index in the batch) of each added draft token, in the order in which tokens were added. `order`
    /// belongs to the number of draft passes that is being tried, and `best_order` to the best choice so far.
    order: Vec<u32>,
    best_order: Vec<u32>,
}

/// Successive draft tokens of one request that are drafted together: it pays to draft all of them or none.
#[derive(Clone, Copy, Debug)]
struct Segment {
    /// Time that drafting and verifying this segment's tokens add to the step, in picoseconds.
    cost: f64,
    value: f64,
    request: u32,
    /// Depth of the segment's first token among its request's draft tokens, from 1.
    first: u32,
    tokens: u32,
}

impl Segment {
    /// Picoseconds of step time that the segment (successive draft tokens of a request) costs per expected token.
    fn price(&self) -> f64 {
        self.cost / self.value
    }
}

/// The best choice of draft lengths so far: the step's expected tokens (the bonus token of each request included) and
/// its time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Best {
    pub tokens: f64,
    /// Time of the step with this choice of lengths, in picoseconds.
    pub time: u64,
    /// Number of draft tokens of all requests of the batch together, with this choice of lengths.
    size: usize,
}

impl Best {
    /// Expected tokens a second of the step with this choice of lengths.
    pub fn rate(&self) -> f64 {
        self.tokens / (self.time as f64 * 1e-12)
    }
}

impl Frontier {
    /// Returns the choice of lengths with the most `worth`. If `draft_len` is given, adds the chosen lengths to it.
    /// Request i may draft `most(i)` tokens, and its token at depth j is worth `value(i, j)` tokens. Of equally good
    /// choices the one with fewer draft tokens wins.
    pub fn best(
        &mut self,
        batch: &BatchView,
        truth: &Truth,
        worth: Worth,
        (most, value): (impl Fn(usize) -> u32, impl Fn(usize, u32) -> f64),
        draft_len: Option<&mut [u32]>,
    ) -> Best {
        let undrafted = TrueCost::undrafted(batch, truth);
        let mut best = Best { tokens: batch.len() as f64, time: undrafted.time().0, size: 0 };
        let cost_of = token_cost(batch, truth);
        let deepest = (0..batch.len()).map(&most).max().unwrap_or(0);
        for depth in 1..=deepest {
            self.cut(batch.len(), |i| most(i).min(depth), &cost_of, &value);
            self.order.clear();
            let (mut cost, mut tokens) = (undrafted, batch.len() as f64);
            let mut improved = false;
            for s in &self.segments {
                for j in s.first..s.first + s.tokens {
                    cost.add(s.request as usize, j);
                    tokens += value(s.request as usize, j);
                    self.order.push(s.request);
                    let choice = Best { tokens, time: cost.time().0, size: self.order.len() };
                    let by = worth.compare((choice.tokens, choice.time), (best.tokens, best.time));
                    if by > 0.0 || by == 0.0 && choice.size < best.size {
                        (best, improved) = (choice, true);
                    }
                }
            }
            if improved {
                std::mem::swap(&mut self.order, &mut self.best_order);
            }
        }
        if let Some(draft_len) = draft_len {
            let chosen = if best.size > 0 { &self.best_order[..best.size] } else { &[] };
            chosen.iter().for_each(|&i| draft_len[i as usize] += 1);
        }
        best
    }

    /// Fills `segments` with the first `most(i)` draft tokens of each request i of the `n` requests, merged into
    /// segments (successive tokens of one request). The segment with the most value (expected tokens) per cost (step
    /// time) is the first.
    fn cut(
        &mut self,
        n: usize,
        most: impl Fn(usize) -> u32,
        cost: &impl Fn(usize, u32) -> f64,
        value: &impl Fn(usize, u32) -> f64,
    ) {
        self.segments.clear();
        for i in 0..n {
            let begin = self.segments.len();
            for j in 1..=most(i) {
                let mut last = Segment { cost: cost(i, j), value: value(i, j), request: i as u32, first: j, tokens: 1 };
                // The upper hull: if the newest segment of draft tokens has more value (expected tokens) per cost (step
                // time) than the request's segment before it, both are merged into one.
                while let Some(before) = self.segments[begin..].last()
                    && last.cost * before.value < before.cost * last.value
                {
                    last = Segment {
                        cost: before.cost + last.cost,
                        value: before.value + last.value,
                        request: i as u32,
                        first: before.first,
                        tokens: before.tokens + last.tokens,
                    };
                    self.segments.pop();
                }
                self.segments.push(last);
            }
        }
        self.segments.sort_unstable_by(|a, b| {
            a.price().total_cmp(&b.price()).then(a.request.cmp(&b.request)).then(a.first.cmp(&b.first))
        });
    }
}

/// The cost of the draft token of request i at a depth, in picoseconds: the time that it adds to a draft pass and to
/// verification. It comes from the slopes of the latency models at the step without draft tokens, so it is exact only
/// if pass times are linear.
fn token_cost(batch: &BatchView, truth: &Truth) -> impl Fn(usize, u32) -> f64 {
    let plain = shape::plain_pass(batch);
    let draft = Slopes::of(truth.draft, plain);
    let target = Slopes::of(truth.target, plain);
    let (reads, drafting) = (truth.context_reads, truth.drafting);
    let batch = *batch;
    move |i, depth| {
        draft.cost(draft_token(&batch, i, depth, drafting)) + target.cost(verify_token(&batch, i, depth, reads))
    }
}

#[cfg(test)]
#[path = "frontier_tests.rs"]
mod tests;
