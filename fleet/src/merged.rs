//! The run of a fleet as one run: each request's record from the replica that served it, and sums over the replicas.

use foretoken_sim::metrics::{HandOff, ReplicaSummary, Replicas, Scaled, Series};
use foretoken_sim::{Outcome, RequestId, RequestRecords, Run, Time, Workload};

/// Stands for "no replica" where a replica's index is stored: the request was never sent.
pub(crate) const NOWHERE: u16 = u16::MAX;

/// The results of a replica.
pub(crate) struct Part {
    pub run: Run,
    /// For a replica that ended before the fleet's run: its requests, ascending, in whose order its records are.
    /// `None`: the records are of all requests.
    pub ids: Option<Vec<RequestId>>,
}

impl Part {
    /// The place of request `i` in the records.
    fn at(&self, i: usize) -> usize {
        let place = |ids: &Vec<RequestId>| ids.binary_search(&(i as RequestId)).expect("it is the replica's request");
        self.ids.as_ref().map_or(i, place)
    }
}

/// Merges the runs of a fleet that grew and shrank. A replica that never served has no part. Takes the rest from
/// `scaled`, whose end is set here.
pub(crate) fn merged_scaled(
    parts: Vec<Option<Part>>,
    routed: Vec<u16>,
    mut scaled: Scaled,
    workload: &Workload,
) -> Run {
    let mut records = RequestRecords::new(routed.len());
    let part_of = |replica: u16| parts[usize::from(replica)].as_ref().expect("it served a request");
    for (i, &replica) in routed.iter().enumerate().filter(|(_, replica)| **replica != NOWHERE) {
        records.copy(i, &part_of(replica).run.records, part_of(replica).at(i));
    }
    scaled.end = records.finish.iter().copied().filter(|at| *at < Time::MAX).max().unwrap_or(Time::ZERO);
    let mut ids: Vec<Vec<usize>> = vec![Vec::new(); parts.len()];
    for (i, &replica) in routed.iter().enumerate().filter(|(_, replica)| **replica != NOWHERE) {
        ids[usize::from(replica)].push(i);
    }
    let each = parts.iter().zip(ids).map(|(part, ids)| {
        let Some(Part { run, .. }) = part else { return ReplicaSummary::default() };
        ReplicaSummary::of(&records, &run.totals, run.usable_blocks, &workload.prompt_len, ids.into_iter())
    });
    let each: Vec<ReplicaSummary> = each.collect();
    let series =
        parts.iter().map(|part| part.as_ref().map_or_else(Series::default, |p| p.run.series.clone())).collect();
    let run = sum(parts.into_iter().flatten().map(|part| part.run));
    Run {
        records,
        replicas: Some(Replicas { routed, each, series, hand_offs: Vec::new(), scaled: Some(scaled) }),
        ..run
    }
}

/// Merges the runs of a fleet's replicas into one run. `routed`: for each request the index of its replica, `NOWHERE`
/// if it was never sent. `hand_offs`: for each request how the KV of its prompt came to its replica; empty if no
/// replica computes prompts for others. The number of KV blocks is that of the largest pool. The run of a single
/// replica is returned unchanged.
pub(crate) fn merged(mut runs: Vec<Run>, routed: Vec<u16>, hand_offs: Vec<HandOff>, workload: &Workload) -> Run {
    if runs.len() == 1 {
        return runs.remove(0);
    }
    let mut records = RequestRecords::new(routed.len());
    for (i, &replica) in routed.iter().enumerate().filter(|(_, replica)| **replica != NOWHERE) {
        records.take(i, &runs[replica as usize].records);
    }
    for (i, hand_off) in hand_offs.iter().enumerate().filter(|(_, hand_off)| hand_off.replica != NOWHERE) {
        take_prompt(&mut records, i, &runs[hand_off.replica as usize].records, routed[i] != NOWHERE);
    }
    let computed_by = |i: usize| hand_offs.get(i).map_or(NOWHERE, |hand_off| hand_off.replica);
    let each = runs.iter().enumerate().map(|(replica, run)| {
        let here = |i: &usize| routed[*i] as usize == replica || computed_by(*i) as usize == replica;
        let ids = (0..routed.len()).filter(here);
        ReplicaSummary::of(&run.records, &run.totals, run.usable_blocks, &workload.prompt_len, ids)
    });
    let each: Vec<ReplicaSummary> = each.collect();
    let series = runs.iter().map(|run| run.series.clone()).collect();
    let run = sum(runs.into_iter());
    Run { records, replicas: Some(Replicas { routed, each, series, hand_offs, scaled: None }), ..run }
}

/// The first run, with the totals, series, rejections and warnings of all. The records are the first run's.
fn sum(mut all: impl Iterator<Item = Run>) -> Run {
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
    run
}

/// Puts into request `i`'s record what its prefill replica recorded: the first scheduling and the cached tokens, which
/// replace the decode replica's, and the preemptions, which are added. If the request was never sent on to a decode
/// replica (`sent_on` is false), takes the prefill replica's whole record, as a request in flight without tokens.
fn take_prompt(records: &mut RequestRecords, i: usize, prompt: &RequestRecords, sent_on: bool) {
    let preemptions = records.preemptions[i];
    if !sent_on {
        // The run ended before the decode replica got the request, so the client has no token.
        records.take(i, prompt);
        (records.finish[i], records.first_token[i]) = (Time::MAX, Time::MAX);
        (records.outcome[i], records.emitted[i]) = (Outcome::InFlight, 0);
    }
    records.first_scheduled[i] = prompt.first_scheduled[i];
    records.cached_tokens[i] = prompt.cached_tokens[i];
    records.preemptions[i] = preemptions + prompt.preemptions[i];
}
