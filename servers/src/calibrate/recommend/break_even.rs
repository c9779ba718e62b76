//! When drafting pays at a batch size: the share of draft tokens that must be accepted, and the share that is accepted
//! in the simulation.

use super::candidates::Candidate;
use foretoken_run::plan::Plan;
use foretoken_run::spec::problem::Result;
use foretoken_run::vllm_table::Table;
use serde::Serialize;
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// The break-even of one batch size and draft length: which share of draft tokens must be accepted so that drafting
/// pays.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct BreakEven {
    /// Number of clients of a closed loop.
    pub batch: u32,
    /// Draft length of every request, in tokens.
    pub k: u32,
    /// Share of drafted tokens that must be accepted so that the loop makes as many tokens a second as with plain
    /// decoding. At 0 or below, draft tokens cost no time. Above 1, drafting cannot pay.
    pub needs: f64,
    /// Accepted share of drafted tokens in the simulation; `None` if this draft length was not simulated or nothing was
    /// drafted.
    pub has: Option<f64>,
}

/// The break-even of draft length `k` in the closed loops of the table: where two engine runs tie. `plan` is the plan
/// of the table.
pub fn at_batches(
    table: &Table,
    plan: Plan,
    file: &Path,
    k: u32,
    candidates: &[Candidate],
    interrupt: &AtomicBool,
) -> Result<Vec<BreakEven>> {
    let has = candidates.iter().find(|c| c.fixed && c.longest == k).and_then(|c| c.acceptance_rate);
    let ties = table.ties(plan, file, k, interrupt)?;
    Ok(ties.into_iter().map(|tie| BreakEven { batch: tie.clients, k, needs: tie.needs, has }).collect())
}
