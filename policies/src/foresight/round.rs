//! The draft tokens of a step as far as they are drafted: which of them are worth their verification, and whether the
//! next token of each request is worth its draft pass.

use crate::foresight::cost::Costs;
use crate::foresight::odds::Odds;
use crate::foresight::ranked::Ranked;
use foretoken_sim::BatchView;

/// What weighs tokens against their time.
#[derive(Clone, Copy)]
pub(crate) struct Scales<'a> {
    pub costs: &'a Costs,
    pub odds: &'a Odds,
    /// The price of a second, in tokens. `None` if choices are compared by the step's own ratio of tokens to seconds.
    pub price: Option<f64>,
    /// Whether drafted tokens that do not pay are dropped before verification.
    pub trim: bool,
}

impl Scales<'_> {
    /// The worth of a choice that is expected to make `tokens` tokens in `seconds` seconds: tokens − price · seconds,
    /// or tokens / seconds if no price of time is set.
    pub fn worth(&self, tokens: f64, seconds: f64) -> f64 {
        match self.price {
            Some(price) => tokens - price * seconds,
            None => tokens / seconds,
        }
    }
}

/// The drafted tokens that are chosen for verification: their number, and the worth, the expected tokens and the
/// seconds of a step that verifies them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Verified {
    pub count: u64,
    pub worth: f64,
    pub tokens: f64,
    pub seconds: f64,
    /// The draft tokens are sorted into buckets by survival (the probability that a token and all before it are
    /// accepted). This is the lower edge of the lowest bucket whose tokens are verified.
    pub least: f64,
}

/// The draft tokens of a step so far.
#[derive(Default)]
pub(crate) struct Round {
    /// Estimated seconds of the draft passes of this step and of the decisions after them.
    pub draft_s: f64,
    /// Number of draft passes whose tokens are counted.
    pub passes: u32,
    /// The tokens drafted in this step, sorted into buckets by survival, the probability that a token and all before it
    /// are accepted.
    pub ranked: Ranked,
    /// Requests that may get one more draft token in this step: (index into the batch, probability that all of its
    /// drafted tokens are accepted).
    pub going_on: Vec<(u32, f64)>,
}

impl Round {
    /// A round with room for `n` requests.
    pub fn with_room(n: u32) -> Round {
        Round { going_on: Vec::with_capacity(n as usize), ..Round::default() }
    }

    /// Begins a step.
    pub fn begin(&mut self) {
        (self.draft_s, self.passes) = (0.0, 0);
        self.ranked.clear();
        self.going_on.clear();
    }

    /// Chooses how many of the drafted tokens of `n` requests to verify: the number with the greatest worth, where the
    /// likeliest tokens come first. Where tokens may not be dropped, all are verified.
    pub fn verified(&self, n: usize, scales: &Scales) -> Verified {
        let draft_s = if self.passes > 0 { self.draft_s } else { scales.costs.idle_s() };
        let mut best = Verified { worth: f64::NEG_INFINITY, ..Verified::default() };
        let all = self.ranked.len();
        self.ranked.prefixes(|count, survive, least| {
            if !scales.trim && count < all {
                return;
            }
            let (tokens, seconds) = (n as f64 + survive, draft_s + scales.costs.verify_s(count));
            let worth = scales.worth(tokens, seconds);
            if worth > best.worth {
                best = Verified { count, worth, tokens, seconds, least };
            }
        });
        best
    }

    /// Of the requests in `going_on`, keeps those whose next token pays. Returns whether the next draft pass pays for
    /// them. A token that is not drafted yet can still be dropped, so its worth is an expectation of what is left then.
    pub fn goes_on(&mut self, batch: &BatchView, longest: u32, scales: &Scales) -> bool {
        let (depth, costs) = (self.passes + 1, scales.costs);
        let now = self.verified(batch.len(), scales);
        let price = scales.price.unwrap_or(now.tokens / now.seconds);
        let m = self.going_on.len() as u32;
        if m == 0 {
            return false;
        }
        let each = price * (costs.verify_s(now.count + u64::from(m)) - costs.verify_s(now.count)) / f64::from(m);
        let own = price * (costs.draft_pass_s(batch, depth, m) - costs.draft_pass_s(batch, depth, 1));
        let own = own / f64::from((m - 1).max(1));
        let mut gain = 0.0;
        self.going_on.retain(|&(_, reach)| {
            let worth = scales.odds.worth_at(depth, reach, each, scales.trim);
            gain += if worth > own { worth } else { 0.0 };
            worth > own
        });
        let decision_s = if depth < longest { costs.decision_s() } else { 0.0 };
        let pass_s = costs.draft_pass_s(batch, depth, self.going_on.len() as u32);
        !self.going_on.is_empty() && gain > price * (pass_s + decision_s)
    }

    /// What a step would earn, in tokens, that drafts up to `until` tokens and decides after each draft pass from
    /// `from` on whether to draft on. `survival` has `longest` entries a request: the survival of each of its tokens,
    /// all of which are drafted; `parallel` says whether one pass makes them. Afterwards the tokens that the step would
    /// have drafted are ranked.
    pub fn replay(
        &mut self,
        batch: &BatchView,
        survival: &[f64],
        (longest, from, until): (u32, u32, u32),
        parallel: bool,
        scales: &Scales,
    ) -> Verified {
        self.begin();
        let may = |i: usize, depth: u32| batch.limit[i].min(longest) >= depth;
        self.going_on.extend((0..batch.len() as u32).map(|i| (i, 1.0)));
        let mut drafts = 0;
        for depth in 1..=until {
            self.going_on.retain(|&(i, _)| may(i as usize, depth));
            if self.going_on.is_empty() {
                break;
            }
            let m = self.going_on.len() as u32;
            drafts += u64::from(m);
            self.draft_s = scales.costs.draft_s(batch, depth, m, drafts, self.draft_s, parallel);
            self.passes = depth;
            for (i, reach) in &mut self.going_on {
                *reach = survival[*i as usize * longest as usize + depth as usize - 1];
                self.ranked.add(*reach);
            }
            if depth >= from && depth < longest {
                self.draft_s += scales.costs.decision_s();
                self.going_on.retain(|&(i, _)| may(i as usize, depth + 1));
                if !self.goes_on(batch, longest, scales) {
                    break;
                }
            }
        }
        self.verified(batch.len(), scales)
    }
}
