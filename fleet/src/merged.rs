//! The run of a fleet as one run: each request's record from the replica that served it, and sums over the replicas.

use crate::pool::{NOWHERE, Pool};
use foretoken_sim::metrics::{Flow, HandOff, ReplicaSummary, Replicas, Scaled, Series, Stay};
use foretoken_sim::{Outcome, RequestRecords, Run, Time, Workload};

/// Merges the runs of a fleet that grew and shrank into one run. `runs` has one entry for each replica; `None` for a
/// replica that never served. `pool` has all replicas. `scaled` is the history of the scaling; its `end` is set here to
/// the end of the last request.
pub(crate) fn merged_scaled(runs: Vec<Option<Run>>, mut pool: Pool, mut scaled: Scaled, workload: &Workload) -> Run {
    pool.close(|replica| runs[replica].as_ref().expect("it served a request"));
    let Pool { records, routed, .. } = pool;
    scaled.end = last_end(&records);
    let ids = ids_by_replica(&routed, runs.len());
    let flows = ids.iter().map(|ids| {
        let mut flow = Flow::until(scaled.end);
        for &i in ids {
            flow.add(&Stay::of(&records, i, scaled.end), (workload.prompt_len[i], records.cached_tokens[i]));
        }
        flow
    });
    let flows = flows.collect();
    let each = runs.iter().zip(&ids).map(|(run, ids)| {
        let Some(run) = run else { return ReplicaSummary::default() };
        ReplicaSummary::of(&records, &run.totals, run.usable_blocks, &workload.prompt_len, ids.iter().copied())
    });
    let each: Vec<ReplicaSummary> = each.collect();
    let series = runs.iter().map(|run| run.as_ref().map_or_else(Series::default, |run| run.series.clone())).collect();
    let run = sum(runs.into_iter().flatten());
    Run {
        records,
        replicas: Some(Replicas { routed, each, series, flows, hand_offs: Vec::new(), scaled: Some(scaled) }),
        ..run
    }
}

/// Merges the runs of a fleet's replicas into one run. `pool` has the replicas that decode. `prefill`: the replicas
/// that compute prompts for others, and for each request how the KV of its prompt came to its replica. The number of KV
/// blocks of the merged run is the largest number of any replica.
pub(crate) fn merged(
    mut runs: Vec<Run>,
    mut pool: Pool,
    prefill: Option<(Pool, Vec<HandOff>)>,
    workload: &Workload,
) -> Run {
    pool.close(|replica| &runs[replica]);
    let Pool { records: own, routed, .. } = pool;
    if runs.len() == 1 {
        return Run { records: own, ..runs.remove(0) };
    }
    let mut ids = ids_by_replica(&routed, runs.len());
    let (records, prompts, hand_offs) = match prefill {
        None => (None, None, Vec::new()),
        Some((mut prefill, hand_offs)) => {
            prefill.close(|replica| &runs[replica]);
            let mut records = own.clone();
            for (i, hand_off) in hand_offs.iter().enumerate().filter(|(_, hand_off)| hand_off.replica != NOWHERE) {
                take_prompt(&mut records, i, &prefill.records, routed[i] != NOWHERE);
                ids[usize::from(hand_off.replica)].push(i);
            }
            (Some(records), Some(prefill), hand_offs)
        }
    };
    let of_prompts = prompts.as_ref().map_or(&own, |prefill| &prefill.records);
    let each = runs.iter().zip(&ids).enumerate().map(|(replica, (run, ids))| {
        let prefills = prompts.as_ref().is_some_and(|prefill| prefill.members().contains(&replica));
        let records = if prefills { of_prompts } else { &own };
        ReplicaSummary::of(records, &run.totals, run.usable_blocks, &workload.prompt_len, ids.iter().copied())
    });
    let each: Vec<ReplicaSummary> = each.collect();
    let series = runs.iter().map(|run| run.series.clone()).collect();
    let end = last_end(records.as_ref().unwrap_or(&own));
    let flows = flows((&own, of_prompts), (&routed, &hand_offs), workload, (runs.len(), end));
    let run = sum(runs.into_iter());
    let replicas = Some(Replicas { routed, each, series, flows, hand_offs, scaled: None });
    Run { records: records.unwrap_or(own), replicas, ..run }
}

/// For each of `replicas` replicas, the requests that were sent to it.
fn ids_by_replica(routed: &[u16], replicas: usize) -> Vec<Vec<usize>> {
    let mut ids: Vec<Vec<usize>> = vec![Vec::new(); replicas];
    for (i, &replica) in routed.iter().enumerate().filter(|(_, replica)| **replica != NOWHERE) {
        ids[usize::from(replica)].push(i);
    }
    ids
}

/// For each of `replicas` replicas, how many requests waited and ran there over time, in a run that ends at `end`.
/// `decoded` and `prompts` are the records of the replicas that decode and of those that compute prompts for them.
fn flows(
    (decoded, prompts): (&RequestRecords, &RequestRecords),
    (routed, hand_offs): (&[u16], &[HandOff]),
    workload: &Workload,
    (replicas, end): (usize, Time),
) -> Vec<Flow> {
    let mut flows = vec![Flow::until(end); replicas];
    let mut add = |replica: u16, own: &RequestRecords, i: usize, at: &dyn Fn(Stay) -> Stay| {
        let tokens = (workload.prompt_len[i], own.cached_tokens[i]);
        flows[usize::from(replica)].add(&at(Stay::of(own, i, end)), tokens);
    };
    for (i, &replica) in routed.iter().enumerate() {
        let hand_off = hand_offs.get(i).filter(|hand_off| hand_off.replica != NOWHERE);
        if let Some(hand_off) = hand_off {
            add(hand_off.replica, prompts, i, &|stay| stay.of_prompt(hand_off));
        }
        match hand_off {
            _ if replica == NOWHERE => {}
            Some(hand_off) if hand_off.computed < Time::MAX => {
                add(replica, decoded, i, &|stay| stay.of_output(hand_off))
            }
            _ => add(replica, decoded, i, &|stay| stay),
        }
    }
    // With the hand-off `decode-first` a request first waits on its decode replica until KV blocks are allocated. This
    // loop adds this wait, from the arrival there to the arrival on the prefill replica, to the decode replica's flow
    // (its numbers of waiting and running requests over time).
    for (i, hand_off) in hand_offs.iter().enumerate() {
        let (prefill, decode) = (hand_off.replica, routed[i]);
        if prefill != NOWHERE && decode != NOWHERE && hand_off.computed < Time::MAX {
            flows[usize::from(decode)].add_wait(decoded.arrival[i], prompts.arrival[i]);
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
