//! Changes to a workload as a whole.

use crate::plan::Variant;
use foretoken_sim::{RequestId, Time, Workload};
use foretoken_spec::document::Path;
use foretoken_spec::problem::Result;
use foretoken_spec::prompts::Prompts;
use foretoken_traces::text::Family;
use std::ops::Range;

/// The first requests of a workload.
pub fn first(workload: &Workload, requests: usize) -> Workload {
    stretch(workload, 0..requests)
}

/// The requests with the ids in `of`, renumbered from 0. Ids beyond the end of the workload are left out.
pub fn stretch(workload: &Workload, of: Range<usize>) -> Workload {
    let end = workload.len().min(of.end);
    let mut cut: Workload = (of.start.min(end)..end).map(|id| workload.get(id as u32)).collect();
    cut.categories.clone_from(&workload.categories);
    cut.recordings.clone_from(&workload.recordings);
    cut.hazards.clone_from(&workload.hazards);
    cut.prefix_block = workload.prefix_block;
    // A session goes on as long as its turns are in the cut. A turn whose session began before it begins one.
    let own = |next: &RequestId| of.contains(&(*next as usize)).then(|| next - of.start as RequestId);
    let turns = workload.next_turn.get(of.start.min(end)..end).unwrap_or_default();
    cut.next_turn = turns.iter().map(|next| own(next).unwrap_or(RequestId::MAX)).collect();
    cut.gap = workload.gap.get(of.start.min(end)..end).unwrap_or_default().to_vec();
    cut
}

/// Checks that a variant's requests do not wait for the answers of a session. `why` says what the caller does, and ends the
/// message.
///
/// # Errors
/// The variant's workload has sessions.
pub fn refuse_sessions(variant: &Variant, why: &str) -> Result<()> {
    if variant.experiment.workload.sessions.is_none() {
        return Ok(());
    }
    let problem = variant.document().problem_at(&Path::of("workload.sessions"), format!("workload.sessions: {why}"));
    Err(problem.help("leave sessions out, or simulate them with `foretoken run`"))
}

/// Adapts a workload to requests with real prompts: divides arrival times by `time_scale`, and gives each request the
/// family of its prompt.
pub fn shape_workload(prompts: &Prompts, time_scale: f64, workload: &mut Workload) {
    if time_scale != 1.0 {
        let compressed = |at: &Time| Time::from_s(at.as_s() / time_scale);
        workload.arrival = workload.arrival.iter().map(compressed).collect();
    }
    if *prompts == Prompts::Families {
        assign_families(workload);
    }
}

/// Gives each request the family that its prompt will belong to, so that simulated acceptance can differ by family
/// too.
pub fn assign_families(workload: &mut Workload) {
    let n = Family::ALL.len();
    workload.categories = Family::ALL.iter().map(ToString::to_string).collect();
    workload.category = (0..workload.len()).map(|i| (i % n) as u16).collect();
}
