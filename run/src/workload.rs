//! Takes a part of a workload (the requests of a run), and adapts workloads to live and observed runs.

use crate::plan::Variant;
use crate::spec::document::Path;
use crate::spec::problem::Result;
use crate::spec::prompts::Prompts;
use foretoken_sim::{RequestId, Time, Workload};
use foretoken_traces::text::Family;
use std::ops::Range;

pub fn first(workload: &Workload, requests: usize) -> Workload {
    stretch(workload, 0..requests)
}

/// A workload with those requests of `workload` whose ids are in `ids`. Their ids then count from 0. Ids beyond the end
/// of `workload` are ignored.
pub fn stretch(workload: &Workload, ids: Range<usize>) -> Workload {
    let end = workload.len().min(ids.end);
    let mut cut: Workload = (ids.start.min(end)..end).map(|id| workload.get(id as u32)).collect();
    cut.categories.clone_from(&workload.categories);
    cut.recordings.clone_from(&workload.recordings);
    cut.hazards.clone_from(&workload.hazards);
    cut.prefix_block = workload.prefix_block;
    // A session (conversation) continues as long as its turns have ids in `ids`. If earlier turns were cut off, the
    // first turn that is left begins the session.
    let own = |next: &RequestId| ids.contains(&(*next as usize)).then(|| next - ids.start as RequestId);
    let turns = workload.next_turn.get(ids.start.min(end)..end).unwrap_or_default();
    cut.next_turn = turns.iter().map(|next| own(next).unwrap_or(RequestId::MAX)).collect();
    cut.gap = workload.gap.get(ids.start.min(end)..end).unwrap_or_default().to_vec();
    cut
}

/// Checks that a variant has no sessions, in which requests wait for earlier answers. The error message ends with
/// `why`, which says what the caller cannot do.
pub fn refuse_sessions(variant: &Variant, why: &str) -> Result<()> {
    let Some(key) = variant.experiment.workload.sessions_key() else { return Ok(()) };
    let key = format!("workload.{key}");
    let problem = variant.document().problem_at(&Path::of(&key), format!("{key}: {why}"));
    Err(problem.help("leave sessions out, or simulate them with `foretoken run`"))
}

/// Adapts a workload to a live or observed run. Divides arrival times by `time_scale`. If the prompts are texts of
/// several families (kinds of text, such as dialogue), gives each request the family of its prompt as category.
pub fn shape_workload(prompts: &Prompts, time_scale: f64, workload: &mut Workload) {
    if time_scale != 1.0 {
        let compressed = |at: &Time| Time::from_s(at.as_s() / time_scale);
        workload.arrival = workload.arrival.iter().map(compressed).collect();
    }
    if *prompts == Prompts::Families {
        assign_families(workload);
    }
}

/// Gives each request the family (kind of text, such as dialogue) of its prompt as its category; the families take
/// turns. So simulated acceptance can differ by family, as on a device.
pub fn assign_families(workload: &mut Workload) {
    let n = Family::ALL.len();
    workload.categories = Family::ALL.iter().map(ToString::to_string).collect();
    workload.category = (0..workload.len()).map(|i| (i % n) as u16).collect();
}
