//! Whether the draft model reads the prompt of a new request. A request that is declined is never drafted for. Where
//! prompts are long and outputs short, the draft model's pass over a prompt takes more time than the request's draft
//! tokens save.
//!
//! A request is declined if the price of the seconds that the draft model takes for its prompt is more than drafting
//! can gain for it at all: its expected output · the share of a token's time that drafting saves a request that is
//! alone. In a full batch drafting gains less, but the batch may empty while the request lives.

use crate::foresight::cost::Costs;
use crate::foresight::odds::Odds;
use crate::foresight::settings::Foresight;
use foretoken_sim::{NewRequest, StepOutcome};

/// Number of requests that must have ended before any is declined: until then, output lengths are not known.
const ENDED: f64 = 16.0;
/// When a request ends, the weights of the requests that ended before it are multiplied by this factor.
const KEEP: f64 = 0.99;

/// A request lives for many steps. So the price and the gain are averages in which the newest step has this weight.
const WEIGHT: f64 = 0.01;

/// The share of a token's time that drafting saves a request that is alone, at the best draft length of at most
/// `longest` tokens; at least 0.
pub(crate) fn alone_gain(costs: &Costs, odds: &Odds, longest: u32) -> f64 {
    let plain_s = costs.alone_s(0);
    let (mut best, mut tokens, mut reach) = (plain_s, 1.0, 1.0);
    for depth in 1..=longest {
        reach *= odds.at_depth(depth);
        tokens += reach;
        best = best.min(costs.alone_s(depth) / tokens);
    }
    1.0 - best / plain_s
}

/// What decides about new requests.
pub(crate) struct Door {
    on: bool,
    /// Each request that would be declined is let in if it is the `retry`-th of them in a row.
    retry: u32,
    /// The price of a second, in tokens.
    price: f64,
    /// What drafting can gain, in tokens a token of output.
    gain: f64,
    /// Number of steps over which price and gain are averages; newer ones weigh more.
    steps: u32,
    /// Output tokens of the requests, and number of requests that ended; older ones weigh less.
    emitted: f64,
    ended: f64,
    declined: u32,
}

impl Door {
    /// Lets all requests in at first.
    pub fn new(params: &Foresight) -> Door {
        let (on, retry) = (params.decline, params.probe_every);
        Door { on, retry, price: 0.0, gain: 0.0, steps: 0, emitted: 0.0, ended: 0.0, declined: 0 }
    }

    /// Adds a step: the price of a second, and what drafting can gain, in tokens a token of output.
    pub fn begin(&mut self, price: f64, gain: f64) {
        self.steps = self.steps.saturating_add(1);
        let weight = WEIGHT.max(1.0 / f64::from(self.steps));
        self.price += weight * (price - self.price);
        self.gain += weight * (gain - self.gain);
    }

    /// Whether the draft model reads the prompt of a new request.
    pub fn lets_in(&mut self, request: &NewRequest, costs: &Costs) -> bool {
        if !self.on || self.ended < ENDED {
            return true;
        }
        let output = (self.emitted / self.ended).min(request.max_tokens.into());
        let price = self.price * costs.draft_prompt_s(request.prompt_len.saturating_sub(request.num_cached_tokens));
        let costs_more = self.gain * output < price;
        self.declined = if costs_more { self.declined + 1 } else { 0 };
        !costs_more || self.declined.is_multiple_of(self.retry)
    }

    /// Counts the tokens of a step.
    pub fn observe(&mut self, outcome: &StepOutcome) {
        self.emitted += outcome.accepted.iter().map(|&accepted| f64::from(1 + accepted)).sum::<f64>();
    }

    /// Counts a request that ended.
    pub fn finished(&mut self) {
        (self.emitted, self.ended) = (self.emitted * KEEP, self.ended * KEEP + 1.0);
    }
}
