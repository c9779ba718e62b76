//! The price of time: the most tokens a second that the decodes of this batch could make without the prompts' chunk.
//!
//! Why not the step's own ratio: the best policy of a run takes, in every state, the choice with the most tokens − g ×
//! seconds, where g is one number for all states (Dinkelbach's parameter of the run's ratio). In a run whose requests
//! all bring prompt work, that work is the same for every choice and cancels, so that g is the rate of the decodes
//! alone. Under light load each request is alone, and the rate of the decodes alone is the step's own ratio.

use crate::foresight::cost::Costs;
use crate::foresight::odds::Odds;
use foretoken_sim::BatchView;

/// The most tokens a second of the batch without prompts. `drafters[d]` is the number of requests that may draft at
/// least d tokens.
pub(crate) fn decode_rate(batch: &BatchView, costs: &Costs, odds: &Odds, drafters: &[u32], parallel: bool) -> f64 {
    let n = batch.len() as f64;
    let mut best = n / (costs.idle_alone_s() + costs.verify_alone_s(0));
    let (mut tokens, mut reach, mut drafts, mut draft_s) = (n, 1.0, 0, 0.0);
    for depth in 1..drafters.len() as u32 {
        let m = drafters[depth as usize];
        if m == 0 {
            break;
        }
        reach *= odds.at_depth(depth);
        tokens += reach * f64::from(m);
        drafts += u64::from(m);
        draft_s = costs.draft_alone_s(depth, m, drafts, draft_s, parallel);
        best = best.max(tokens / (draft_s + costs.verify_alone_s(drafts)));
    }
    best
}

/// What a step leaves of the weight of the steps before it.
const KEEP: f64 = 0.95;

/// The price of a second for all requests of the system, in tokens.
///
/// A second is a second more for each of the N requests. A token is worth 1/u seconds to its own request, which makes u
/// tokens a second, and the seconds that it saves the server to all others: a request's time in a step for those that
/// run, and for those that wait also the step itself, if running requests keep them out. If the prompts themselves fill
/// the steps, waiting requests gain only the request's time: they wait for prompts, not for tokens.
#[derive(Debug, Default)]
pub(crate) struct SystemPrice {
    /// Weights of steps behind which requests waited, and of those that were full of prompts.
    waited: f64,
    full_of_prompts: f64,
}

impl SystemPrice {
    /// Takes a step's batch in. `slots` is the most requests that run, `budget` the most tokens of a step.
    pub fn begin(&mut self, batch: &BatchView, slots: u32, budget: u32) {
        if batch.num_waiting > 0 {
            let full = batch.num_running < slots && 2 * batch.prefill.tokens >= u64::from(budget);
            self.waited = self.waited * KEEP + 1.0;
            self.full_of_prompts = self.full_of_prompts * KEEP + f64::from(u8::from(full));
        }
    }

    /// The price, in tokens a second. `rate` is the decode rate of the batch, `request_s` the time that one request
    /// adds to a step.
    pub fn price(&self, batch: &BatchView, rate: f64, request_s: f64) -> f64 {
        let n = batch.len() as f64;
        let others = f64::from(batch.num_running + batch.num_waiting) - n;
        let prompts = if self.waited > 0.0 { self.full_of_prompts / self.waited } else { 0.0 };
        let kept_out = f64::from(batch.num_waiting) * (1.0 - prompts);
        let saved_s = n / rate + (n - 1.0 + others) * request_s + kept_out * (1.0 / rate - request_s).max(0.0);
        (n + others) / saved_s
    }
}
