//! The run of a fleet as one run: each request's record from the replica that served it, and sums over the replicas.

use foretoken_sim::metrics::{ReplicaSummary, Replicas};
use foretoken_sim::{RequestRecords, Run, Workload};

/// Stands for "no replica" where a replica's index is stored: the request was never sent.
pub(crate) const NOWHERE: u16 = u16::MAX;

/// Merges the runs of a fleet's replicas into one run. `routed`: for each request the index of its replica, `NOWHERE`
/// if it was never sent. The number of KV blocks is that of the largest pool. The run of a single replica is returned
/// unchanged.
pub(crate) fn merged(mut runs: Vec<Run>, routed: Vec<u16>, workload: &Workload) -> Run {
    if runs.len() == 1 {
        return runs.remove(0);
    }
    let mut records = RequestRecords::new(routed.len());
    for (i, &replica) in routed.iter().enumerate().filter(|(_, replica)| **replica != NOWHERE) {
        records.take(i, &runs[replica as usize].records);
    }
    let each = runs.iter().enumerate().map(|(replica, run)| {
        let ids = (0..routed.len()).filter(|&i| routed[i] as usize == replica);
        ReplicaSummary::of(&run.records, &run.totals, run.usable_blocks, &workload.prompt_len, ids)
    });
    let each: Vec<ReplicaSummary> = each.collect();
    let series = runs.iter().map(|run| run.series.clone()).collect();
    let mut all = runs.into_iter();
    let mut run = all.next().expect("a fleet has a replica");
    for other in all {
        run.totals.merge(&other.totals);
        run.series.merge(other.series);
        run.rejected.extend(other.rejected);
        let new: Vec<String> = other.warnings.into_iter().filter(|w| !run.warnings.contains(w)).collect();
        run.warnings.extend(new);
        run.usable_blocks = run.usable_blocks.max(other.usable_blocks);
    }
    run.rejected.sort_unstable();
    Run { records, replicas: Some(Replicas { routed, each, series }), ..run }
}
