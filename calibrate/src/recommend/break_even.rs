//! When drafting pays at a batch size: the share of draft tokens that must be accepted, and the share that is accepted
//! in the simulation.

use super::candidates::{Candidate, doubling};
use foretoken_run::plan::Plan;
use foretoken_run::setting::Setting;
use foretoken_sim::{Drafting, Pair, PassShape};
use foretoken_spec::problem::Result;
use serde::Serialize;

/// The break-even of one batch size and draft length: which share of draft tokens must be accepted so that drafting
/// pays.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct BreakEven {
    /// Number of decoding requests of a step without prompts.
    pub batch: u32,
    /// Draft length of every request, in tokens.
    pub k: u32,
    /// Share of drafted tokens that must be accepted so that drafting is as fast per token as plain decoding. At 0 or
    /// below, draft tokens cost no time. Above 1, drafting cannot pay.
    pub needs: f64,
    /// Accepted share of drafted tokens in the simulation; `None` if this draft length was not simulated or nothing was
    /// drafted.
    pub has: Option<f64>,
}

/// The break-even of draft length `k` at 1, 2, 4, … requests and at `max_num_seqs`. Every request has the mean context.
pub fn at_batches(plan: &Plan, k: u32, candidates: &[Candidate]) -> Result<Vec<BreakEven>> {
    let setting = Setting::new(&plan.variants[0], plan.seeds[0])?;
    let Pair { target, draft } = setting.costs();
    let (_, drafting, _) = setting.reads();
    let config = setting.engine(true);
    let w = &setting.workload;
    let n = w.len().max(1) as f64;
    let mean = |x: &[u32]| x.iter().map(|&v| f64::from(v)).sum::<f64>() / n;
    // Context of a request on average: its prompt and half of its output.
    let context = mean(&w.prompt_len) + mean(&w.output_len) / 2.0;
    let shape = |tokens: u32, batch: u32| PassShape {
        requests: batch.into(),
        batched: tokens.into(),
        context: (f64::from(batch) * context) as u64,
        pairs: (f64::from(tokens) * context) as u64,
    };
    let seconds = |batch: u32, k: u32| {
        let verified = batch * (k + 1);
        let host_s = config.step_overhead_s + config.host.decode_step_s(batch, verified);
        let mut s = target.pass(shape(verified, batch)).as_s() + host_s;
        // Adds the seconds of the draft passes. The first draft pass also runs over the tokens of the target's pass.
        s += match (k, drafting) {
            (0, _) => 0.0,
            (_, Drafting::Parallel) => draft.pass(shape(verified + batch * k, batch)).as_s(),
            _ => {
                let first = draft.pass(shape(verified + batch, batch)).as_s();
                first + f64::from(k - 1) * draft.pass(shape(batch, batch)).as_s()
            }
        };
        s
    };
    let has = candidates.iter().find(|c| c.fixed && c.longest == k).and_then(|c| c.acceptance_rate);
    let break_even = |batch: u32| {
        let needs = (seconds(batch, k) / seconds(batch, 0) - 1.0) / f64::from(k);
        BreakEven { batch, k, needs, has }
    };
    Ok(doubling(config.max_num_seqs).map(break_even).collect())
}
