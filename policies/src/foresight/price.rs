//! The price of time: the most tokens a second that the decodes of this batch could make without the step's prompts.
//!
//! The step's own ratio of tokens to seconds is not the price, for this reason. The best policy of a run takes, in
//! every state, the choice with the most tokens − g × seconds, where g is one number for all states (Dinkelbach's
//! parameter of the run's ratio). If all requests bring prompt work, that work is the same for every choice and
//! cancels, so that g is the rate of the decodes alone. Under light load each request is alone, and the rate of the
//! decodes alone is the step's own ratio.

use crate::foresight::cost::Costs;
use crate::foresight::odds::Odds;
use foretoken_sim::BatchView;

/// The most tokens a second that the batch is expected to make without prompts, over all draft lengths that are the
/// same for all requests. `drafters[d]` is the number of requests that may draft at least d tokens.
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

/// The backlog of prompts (requests wait because prompts fill the steps) is measured by averages over the steps with
/// waiting requests. When a step is added, the weights of earlier steps are multiplied by this factor.
const KEEP: f64 = 0.95;

/// A step counts as full if its prompt tokens and decode tokens, without draft tokens, are at least this share of the
/// token budget.
const FULL: f64 = 0.8;

/// The backlog of prompts: whether requests wait because steps are full of prompts.
///
/// If a step takes one second more, each of the N requests of the system waits one second longer. How much waiting one
/// more token saves depends on why requests wait. If running requests keep the waiting requests out, the price of a
/// second is the decode rate g, in tokens a second. If prompts fill the steps, a token starts no prompt sooner. It only
/// ends its own request earlier, by n/g seconds: with n decode requests this is the time in which a request makes one
/// token. Each of the N requests also saves the time m that one request adds to a step. So the price of a second, in
/// tokens, is N / (n/g + N·m).
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    /// Total weight of the past steps with waiting requests (`waited`), and of the steps among them that were full of
    /// tokens although the engine could run more requests (`full`).
    waited: f64,
    full: f64,
}

impl Backlog {
    /// Adds a step's batch to the measured backlog of prompts if requests wait. `slots` is the most requests that the
    /// engine runs, `budget` the most tokens of a step.
    pub fn begin(&mut self, batch: &BatchView, slots: u32, budget: u32) {
        if batch.num_waiting > 0 {
            let tokens = batch.prefill.tokens + batch.len() as u64;
            let full = batch.num_running < slots && tokens as f64 >= FULL * f64::from(budget);
            self.waited = self.waited * KEEP + 1.0;
            self.full = self.full * KEEP + f64::from(u8::from(full));
        }
    }

    /// The price of a second in tokens. Without a backlog of prompts it is `decode`. With a backlog it rises with the
    /// share of full steps, from `decode` up to N / (n/g + N·m). It stays at `decode` if N / (n/g + N·m) is lower than
    /// `decode`. N counts the running and waiting requests and n the decode requests. g is `decode`, and m is
    /// `request_s`, the time that one request adds to a step.
    pub fn price(&self, batch: &BatchView, decode: f64, request_s: f64) -> f64 {
        if batch.num_waiting == 0 || self.full == 0.0 {
            return decode;
        }
        let all = f64::from(batch.num_running + batch.num_waiting);
        let system = all / (batch.len() as f64 / decode + all * request_s);
        decode + self.full / self.waited * (system - decode).max(0.0)
    }
}
