//! Whether the draft model reads the prompt of a new request. A request that is declined is never drafted for. Where
//! prompts are long and outputs short, the draft model's pass over a prompt takes more time than the request's draft
//! tokens save.
//!
//! A request is let in if its expected output · the gain of drafting a token of output ≥ the price of the seconds that
//! the draft model takes for the prompt. The gain is the worth of the best step minus the worth of a plain step, shared
//! among the tokens of the best step.

use crate::foresight::cost::Costs;
use crate::foresight::settings::Foresight;
use foretoken_sim::{NewRequest, StepOutcome};

/// Number of requests that must have ended before any is declined: until then, output lengths are not known.
const ENDED: f64 = 16.0;
/// When a request ends, the weights of the requests that ended before it are multiplied by this factor.
const KEEP: f64 = 0.99;

/// What decides about new requests.
pub(crate) struct Door {
    on: bool,
    /// Each request that would be declined is let in if it is the `retry`-th of them in a row.
    retry: u32,
    /// The price of a second, in tokens, in the last step.
    price: f64,
    /// What drafting gains, in tokens a token of output, in the last step.
    gain: f64,
    /// Output tokens of the requests, and number of requests that ended; older ones weigh less.
    emitted: f64,
    ended: f64,
    declined: u32,
}

impl Door {
    pub fn new(params: &Foresight) -> Door {
        let (on, retry) = (params.decline, params.probe_every);
        Door { on, retry, price: 0.0, gain: 0.0, emitted: 0.0, ended: 0.0, declined: 0 }
    }

    /// Notes the price of a second and the gain of drafting, in tokens a token of output.
    pub fn begin(&mut self, price: f64, gain: f64) {
        (self.price, self.gain) = (price, gain);
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
