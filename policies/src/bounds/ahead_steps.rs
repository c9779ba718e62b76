//! The draft lengths that are worth most in this step and the next one together, for `one-step-ahead`.
//!
//! The lengths of this step change the next step in two ways. A request that does not draft, or whose draft tokens are
//! all accepted, leaves tokens that the draft model has not processed: the *debt*, which the next draft pass pays.
//! Accepted tokens make the context of the next step longer.
//!
//! Worth is tokens − price · seconds, summed over this step and the next one. Take linear pass times, a number of draft
//! passes D in this step and a number D' in the next one. The worth is then a constant plus a sum over requests, so
//! each request's length is chosen alone: its own worth in this step, plus the expected worth of its best length in the
//! next step, over the possible numbers of accepted draft tokens. All pairs of D and D' are tried. **For linear pass
//! times the choice is exact**, except that the next context is rounded to whole tokens.
//!
//! If pass times are not linear, the cost of a token is the slope of the pass time near the size of this step. The true
//! time of this step then decides between the candidates. One more candidate has the lengths that are best for this
//! step alone.

use crate::bounds::frontier::Frontier;
use crate::bounds::price::{Worth, without_prompts};
use crate::bounds::true_cost::{Slopes, TrueCost, catch_up, draft_token_at, step_time, verify_token_at};
use foretoken_sim::{BatchView, Drafting, MAX_SPEC_LEN, PassShape, Truth, shape};

/// Number of draft lengths that a request may have: 0 to `MAX_SPEC_LEN`.
const LENGTHS: usize = MAX_SPEC_LEN as usize + 1;

/// Which draft tokens a bound considers for each request, and with which probability it expects them to be accepted. A
/// bound is a policy that shows how well a server could do at best.
pub(crate) trait Expected {
    /// The greatest draft length, in tokens, that the policy considers for request `i` (an index into the batch).
    fn most(&self, i: usize) -> u32;
    /// The probability that the draft token of request `i` at `depth` (from 1) of this step and all before it are
    /// accepted.
    fn survival(&self, i: usize, depth: u32) -> f64;
    /// The probability that the draft token of request `i` at `depth` of the next step and all before it are accepted.
    /// The next step's confidences are not known.
    fn next_survival(&self, i: usize, depth: u32) -> f64;
}

/// Expected output tokens, and the picoseconds of step time that they take.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Gain {
    pub tokens: f64,
    pub ps: f64,
}

impl Gain {
    fn plus(self, more: Gain) -> Gain {
        Gain { tokens: self.tokens + more.tokens, ps: self.ps + more.ps }
    }

    fn times(self, factor: f64) -> Gain {
        Gain { tokens: factor * self.tokens, ps: factor * self.ps }
    }

    /// The worth of this gain (expected tokens and the picoseconds that they take): tokens − price · time, where
    /// `price` is in tokens per picosecond.
    fn worth(self, price: f64) -> f64 {
        self.tokens - price * self.ps
    }
}

/// The slopes of the true pass times, in picoseconds for one more token or context token, and the constant costs of the
/// next step. The slopes are taken at a pass as large as the target pass of this step without draft tokens.
struct Costs {
    draft: Slopes,
    target: Slopes,
    /// The constant part of a draft pass in the next step, in picoseconds: its time without the time of its tokens.
    draft_pass_ps: f64,
    /// The next step if it drafts nothing: one token for each request, and the picoseconds that the step takes.
    plain: Gain,
}

impl Costs {
    fn of(batch: &BatchView, truth: &Truth) -> Costs {
        let plain = shape::plain_pass(batch);
        let (draft, target) = (Slopes::of(truth.draft, plain), Slopes::of(truth.target, plain));
        let draft_pass_ps = (truth.draft.pass(plain).0 as f64 - draft.cost(plain)).max(0.0);
        let idle = BatchView { always_extend: false, ..without_prompts(batch) };
        let ps = TrueCost::undrafted(&idle, truth).time().0 as f64;
        let one_more = PassShape { requests: 0, batched: 0, context: 1, pairs: 1 };
        let plain = Gain { tokens: batch.len() as f64, ps: ps + batch.len() as f64 * target.cost(one_more) };
        Costs { draft, target, draft_pass_ps, plain }
    }

    /// Picoseconds that one draft token adds to the draft pass at `depth` and to the verify pass. `context` are the
    /// request's tokens in KV. `debt` are its tokens that the draft model has not processed yet.
    fn token_ps(&self, batch: &BatchView, truth: &Truth, context: u32, debt: u32, depth: u32) -> f64 {
        self.draft.cost(draft_token_at(context, debt, batch.always_extend, depth, truth.drafting))
            + self.target.cost(verify_token_at(context, depth, truth.context_reads))
    }
}

/// Finds the best draft lengths for this step and the next one by trying all pairs of their numbers of draft passes.
/// Its vectors are buffers that are reused between steps.
#[derive(Default)]
pub(crate) struct TwoSteps {
    frontier: Frontier,
    /// For each number of draft passes of this step, then for each request: the draft length with the most worth
    /// (tokens − price · time, summed over this step and the next one).
    lens: Vec<u32>,
    /// For each number of draft passes of this step: the tokens and the time that the requests add to the next step, if
    /// this step runs the lengths in `lens`.
    next: Vec<Gain>,
    best: Vec<u32>,
}

impl TwoSteps {
    /// Adds to `draft_len` the lengths with the most worth (tokens − price · time) over this step and the next one.
    /// Returns the tokens and the time of the two steps together. With [`Worth::Ratio`] the lengths with the most
    /// tokens a second over the two steps win. `owes` is true if the draft model misses tokens of requests that do not
    /// draft and must process them later.
    pub fn best(
        &mut self,
        batch: &BatchView,
        truth: &Truth,
        worth: Worth,
        owes: bool,
        expected: &impl Expected,
        draft_len: &mut [u32],
    ) -> Gain {
        let costs = Costs::of(batch, truth);
        let best = match worth {
            Worth::Priced(price) => self.priced(batch, truth, &costs, price * 1e-12, owes, expected),
            Worth::Ratio => self.fastest(batch, truth, &costs, owes, expected),
        };
        draft_len.iter_mut().zip(&self.best).for_each(|(len, &best)| *len += best);
        best
    }

    /// Finds the lengths with the most tokens a second over this step and the next one. The price of time starts at 0
    /// and is set to the rate of the best lengths at this price, until the rate rises no more (Dinkelbach's method).
    fn fastest(
        &mut self,
        batch: &BatchView,
        truth: &Truth,
        costs: &Costs,
        owes: bool,
        expected: &impl Expected,
    ) -> Gain {
        let mut price = 0.0;
        loop {
            let best = self.priced(batch, truth, costs, price, owes, expected);
            let rate = best.tokens / best.ps;
            if rate <= price * (1.0 + 1e-9) {
                return best;
            }
            price = rate;
        }
    }

    /// Stores in `best` the lengths with the most worth, that is, tokens − `price` · time, summed over this step and
    /// the next one. `price` is in tokens per picosecond.
    fn priced(
        &mut self,
        batch: &BatchView,
        truth: &Truth,
        costs: &Costs,
        price: f64,
        owes: bool,
        expected: &impl Expected,
    ) -> Gain {
        let n = batch.len();
        let deepest = (0..n).map(|i| expected.most(i)).max().unwrap_or(0);
        self.best.clear();
        self.best.resize(n, 0);
        let myopic = (|i: usize| expected.most(i), |i: usize, depth: u32| expected.survival(i, depth));
        self.frontier.best(batch, truth, Worth::Priced(price * 1e12), myopic, Some(&mut self.best));
        let table = |next_depth| Table { batch, truth, costs, price, owes, expected, next_depth };
        // The first candidate has the lengths with the most worth (tokens − price · time) in this step alone.
        let alone = table(0);
        let next = self.best.iter().enumerate().map(|(i, &len)| alone.next(i)[len as usize]);
        let mut best = alone.whole(&self.best, next.fold(Gain::default(), Gain::plus));
        for next_depth in 0..=deepest {
            let table = table(next_depth);
            table.choose(deepest, &mut self.lens, &mut self.next);
            for (depth, &next) in self.next.iter().enumerate() {
                let lens = &self.lens[depth * n..][..n];
                let whole = table.whole(lens, next);
                if whole.worth(price) > best.worth(price) {
                    best = whole;
                    self.best.clear();
                    self.best.extend_from_slice(lens);
                }
            }
        }
        best
    }
}

/// Chooses the draft lengths of this step on the assumption that the next step runs `next_depth` draft passes.
struct Table<'a, E> {
    batch: &'a BatchView<'a>,
    truth: &'a Truth<'a>,
    costs: &'a Costs,
    /// Price of step time, in tokens per picosecond.
    price: f64,
    owes: bool,
    expected: &'a E,
    next_depth: u32,
}

impl<E: Expected> Table<'_, E> {
    /// Fills `lens` and `next` for each number of draft passes of this step, 0 to `deepest`. `lens` gets each request's
    /// length with the most worth (tokens − price · time) over this step and the next one. `next` gets the tokens and
    /// the time that the requests then add to the next step.
    fn choose(&self, deepest: u32, lens: &mut Vec<u32>, next: &mut Vec<Gain>) {
        let (n, passes) = (self.batch.len(), deepest as usize + 1);
        lens.clear();
        lens.resize(n * passes, 0);
        next.clear();
        next.resize(passes, Gain::default());
        for i in 0..n {
            let after = self.next(i);
            let mut now = Gain::default();
            let (mut best, mut most) = (0, after[0].worth(self.price));
            next[0] = next[0].plus(after[0]);
            for depth in 1..=deepest {
                if depth <= self.expected.most(i) {
                    let (context, debt) = (self.batch.context[i], self.batch.draft_gap[i]);
                    let ps = self.costs.token_ps(self.batch, self.truth, context, debt, depth);
                    now = now.plus(Gain { tokens: self.expected.survival(i, depth), ps });
                    let worth = now.plus(after[depth as usize]).worth(self.price);
                    if worth > most {
                        (best, most) = (depth, worth);
                    }
                }
                lens[depth as usize * n + i] = best;
                next[depth as usize] = next[depth as usize].plus(after[best as usize]);
            }
        }
    }

    /// Tokens and time of this step and the next one together. This step drafts the lengths `lens` and takes its true
    /// time. The next step takes its constant time plus the time in `next`. `next` has the tokens and the time that the
    /// requests add to the next step.
    fn whole(&self, lens: &[u32], next: Gain) -> Gain {
        let drafts = lens
            .iter()
            .enumerate()
            .map(|(i, &len)| (1..=len).map(|depth| self.expected.survival(i, depth)).sum::<f64>());
        let now = Gain {
            tokens: lens.len() as f64 + drafts.sum::<f64>(),
            ps: step_time(self.batch, self.truth, lens).0 as f64,
        };
        let drafted = match self.truth.drafting {
            Drafting::Parallel => self.next_depth.min(1),
            Drafting::Autoregressive => self.next_depth,
        };
        // If the engine always extends the draft model's KV (`always_extend`), the first draft pass runs even if
        // nothing is drafted.
        let passes = drafted.max(u32::from(self.batch.always_extend));
        let fixed = Gain { tokens: 0.0, ps: f64::from(passes) * self.costs.draft_pass_ps };
        now.plus(self.costs.plain).plus(fixed).plus(next)
    }

    /// For each draft length of request `i` in this step: the tokens and the time that the request is expected to add
    /// to the next step. The tokens and the time come from the request's draft tokens in the next step, from the
    /// context that accepted tokens add, and from the tokens that the draft model must still process.
    fn next(&self, i: usize) -> [Gain; LENGTHS] {
        let mut gains = [Gain::default(); LENGTHS];
        // The probability that a draft token and all before it are accepted. The chance that exactly `accepted` draft
        // tokens are accepted is the difference of two neighbouring values.
        let survival = |depth: u32| if depth == 0 { 1.0 } else { self.expected.survival(i, depth) };
        for len in 0..=self.expected.most(i) {
            for accepted in 0..=len {
                let chance = survival(accepted) - if accepted < len { survival(accepted + 1) } else { 0.0 };
                if chance > 0.0 {
                    let gain = self.after(i, len, accepted).times(chance);
                    gains[len as usize] = gains[len as usize].plus(gain);
                }
            }
        }
        gains
    }

    /// Tokens and time that request `i` adds to the next step, if it drafts `len` tokens in this step and `accepted` of
    /// them are accepted. In the next step it drafts the length with the most worth (tokens − price · time).
    fn after(&self, i: usize, len: u32, accepted: u32) -> Gain {
        let context = self.batch.context[i] + 1 + accepted;
        let debt = self.debt(i, len, accepted);
        let longer = PassShape { requests: 0, batched: 0, context: u64::from(accepted), pairs: u64::from(accepted) };
        let mut certain = self.costs.target.cost(longer);
        if self.batch.always_extend {
            certain += self.costs.draft.cost(catch_up(context, debt));
        }
        let (mut drafted, mut best) = (Gain::default(), Gain::default());
        for depth in 1..=self.next_depth.min(self.expected.most(i)) {
            let ps = self.costs.token_ps(self.batch, self.truth, context, debt, depth);
            drafted = drafted.plus(Gain { tokens: self.expected.next_survival(i, depth), ps });
            if drafted.worth(self.price) > best.worth(self.price) {
                best = drafted;
            }
        }
        best.plus(Gain { tokens: 0.0, ps: certain })
    }

    /// After a step in which request `i` drafted `len` tokens and `accepted` were accepted: the number of its tokens
    /// that the draft model has not processed.
    fn debt(&self, i: usize, len: u32, accepted: u32) -> u32 {
        match (self.owes, len, self.truth.drafting) {
            (false, ..) => 0,
            (true, 0, _) if self.batch.always_extend => 1,
            (true, 0, _) => self.batch.draft_gap[i] + 1,
            (true, _, Drafting::Parallel) => accepted,
            // Draft passes one by one process all draft tokens except the last one. If that token is accepted, the
            // draft model has missed it.
            (true, ..) => u32::from(accepted == len),
        }
    }
}

#[cfg(test)]
#[path = "ahead_tests.rs"]
mod tests;
