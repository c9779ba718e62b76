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
