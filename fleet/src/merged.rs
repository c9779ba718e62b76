//! The run of a fleet as one run: each request's record from the replica that served it, and sums over the replicas.

use foretoken_sim::metrics::{Flow, HandOff, ReplicaSummary, Replicas, Scaled, Series, Stay};
use foretoken_sim::{Outcome, RequestId, RequestRecords, Run, Time, Workload};

/// Stands for "no replica" where a replica's index is stored: the request was never sent.
pub(crate) const NOWHERE: u16 = u16::MAX;

/// The run of one replica, as a part of the fleet's run.
pub(crate) struct Part {
    pub run: Run,
    /// The ids of the requests in `run.records`, ascending, for a replica that ended before the fleet's run: record n
    /// is of request `ids[n]`. `None` if the records are of all requests of the workload.
    pub ids: Option<Vec<RequestId>>,
}

impl Part {
    /// The index of request `i` in the records of this replica's run.
    fn at(&self, i: usize) -> usize {
        let place = |ids: &Vec<RequestId>| ids.binary_search(&(i as RequestId)).expect("it is the replica's request");
        self.ids.as_ref().map_or(i, place)
    }
}

/// Merges the runs of a fleet that grew and shrank into one run. `parts` has one entry for each replica; `None` for a
/// replica that never served. `routed` has for each request the index of its replica. `scaled` is the history of the
/// scaling; its `end` is set here to the end of the last request.
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
    scaled.end = last_end(&records);
    let mut ids: Vec<Vec<usize>> = vec![Vec::new(); parts.len()];
    for (i, &replica) in routed.iter().enumerate().filter(|(_, replica)| **replica != NOWHERE) {
        ids[usize::from(replica)].push(i);
    }
    let flows = ids.iter().map(|ids| {
        let mut flow = Flow::until(scaled.end);
        for &i in ids {
            flow.add(&Stay::of(&records, i, scaled.end), (workload.prompt_len[i], records.cached_tokens[i]));
        }
        flow
    });
    let flows = flows.collect();
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
        replicas: Some(Replicas { routed, each, series, flows, hand_offs: Vec::new(), scaled: Some(scaled) }),
        ..run
    }
}

/// Merges the runs of a fleet's replicas into one run. `routed`: for each request the index of its replica, `NOWHERE`
/// if it was never sent. `hand_offs`: for each request how the KV of its prompt came to its replica; empty if no
/// replica computes prompts for others. The number of KV blocks of the merged run is the largest number of any replica.
/// The run of a single replica is returned unchanged.
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
    let flows = flows(&runs, (&routed, &hand_offs), workload, last_end(&records));
    let run = sum(runs.into_iter());
    Run { records, replicas: Some(Replicas { routed, each, series, flows, hand_offs, scaled: None }), ..run }
}

/// For each replica, how many requests waited and ran there over time, in a run that ends at `end`.
fn flows(runs: &[Run], (routed, hand_offs): (&[u16], &[HandOff]), workload: &Workload, end: Time) -> Vec<Flow> {
    let mut flows = vec![Flow::until(end); runs.len()];
    let mut add = |replica: u16, i: usize, at: &dyn Fn(Stay) -> Stay| {
        let own = &runs[usize::from(replica)].records;
        let tokens = (workload.prompt_len[i], own.cached_tokens[i]);
        flows[usize::from(replica)].add(&at(Stay::of(own, i, end)), tokens);
    };
    for (i, &replica) in routed.iter().enumerate() {
        let hand_off = hand_offs.get(i).filter(|hand_off| hand_off.replica != NOWHERE);
        if let Some(hand_off) = hand_off {
            add(hand_off.replica, i, &|stay| stay.of_prompt(hand_off));
        }
        match hand_off {
            _ if replica == NOWHERE => {}
            Some(hand_off) if hand_off.computed < Time::MAX => add(replica, i, &|stay| stay.of_output(hand_off)),
            _ => add(replica, i, &|stay| stay),
        }
    }
    // With the hand-off `decode-first` a request first waits on its decode replica until KV blocks are allocated. This
    // loop adds this wait, from the arrival there to the arrival on the prefill replica, to the decode replica's flow
    // (its numbers of waiting and running requests over time).
    for (i, hand_off) in hand_offs.iter().enumerate() {
        let (prefill, decode) = (hand_off.replica, routed[i]);
        if prefill != NOWHERE && decode != NOWHERE && hand_off.computed < Time::MAX {
            let [from, to] = [decode, prefill].map(|replica| runs[usize::from(replica)].records.arrival[i]);
            flows[usize::from(decode)].add_wait(from, to);
        }
    }
    flows
}

/// The time at which the last of the ended requests ended; 0 if no request ended.
fn last_end(records: &RequestRecords) -> Time {
    records.finish.iter().copied().filter(|at| *at < Time::MAX).max().unwrap_or(Time::ZERO)
}

/// The sum of the runs of several replicas: it has the totals, series, steps, rejected requests and warnings of all
/// replicas together. Its request records are the records of the first replica only, so the caller must replace them.
fn sum(mut all: impl Iterator<Item = Run>) -> Run {
    let mut run = all.next().expect("a fleet has a replica");
    for other in all {
        run.totals.merge(&other.totals);
        run.series.merge(other.series);
        run.steps.extend(other.steps);
        run.rejected.extend(other.rejected);
        let new: Vec<String> = other.warnings.into_iter().filter(|w| !run.warnings.contains(w)).collect();
        run.warnings.extend(new);
        run.usable_blocks = run.usable_blocks.max(other.usable_blocks);
    }
    run.rejected.sort_unstable();
    run
}

/// Completes request `i`'s record from its decode replica with the record `prompt` from its prefill replica. The time
/// of the first scheduling and the number of cached tokens come from `prompt`. The preemptions of both replicas are
/// added. If the decode replica never got the request (`sent_on` is false), the record becomes that of a request in
/// flight without output tokens.
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
