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

/// A step of at least this share of the token budget is full, drafts left out.
const FULL: f64 = 0.8;

/// The backlog of prompts: whether requests wait because steps are full of prompts.
///
/// A second is a second more for each of the N requests of the system. A token saves others at most what it saves the
/// server. If running requests keep the waiting ones out, that is its share of a step, and the price is the decode
/// rate. If prompts fill the steps, a token brings no prompt nearer: it saves one step for its own request, and the
/// time of one request in a step, m, for all. With n running requests at the decode rate g, the price of a second is
/// then N / (n/g + N·m).
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    /// Weights of steps behind which requests waited, and of those among them that were full of prompts.
    waited: f64,
    full: f64,
}

impl Backlog {
    /// Takes a step's batch in. `slots` is the most requests that run, `budget` the most tokens of a step.
    pub fn begin(&mut self, batch: &BatchView, slots: u32, budget: u32) {
        if batch.num_waiting > 0 {
            let tokens = batch.prefill.tokens + batch.len() as u64;
            let full = batch.num_running < slots && tokens as f64 >= FULL * f64::from(budget);
            self.waited = self.waited * KEEP + 1.0;
            self.full = self.full * KEEP + f64::from(u8::from(full));
        }
    }

    /// The price of a second in tokens, where the decodes alone have the price `decode`. `request_s` is the time that
    /// one request adds to a step.
    pub fn price(&self, batch: &BatchView, decode: f64, request_s: f64) -> f64 {
        if batch.num_waiting == 0 || self.full == 0.0 {
            return decode;
        }
        let all = f64::from(batch.num_running + batch.num_waiting);
        let system = all / (batch.len() as f64 / decode + all * request_s);
        decode + self.full / self.waited * (system - decode).max(0.0)
    }
}
