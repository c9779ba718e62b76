//! Tests the engine as it works in a server, where requests come while it runs and ended requests are forgotten. Its
//! results equal the results of a run that knows all requests before and forgets none. Aborted requests leave nothing
//! behind.

use super::fixture::{Erratic, Fixture};
use super::invariants::{configs, workloads};
use crate::online::{GivenOut, Online};
use crate::*;
use proptest::prelude::*;

const LATER: Time = Time(1 << 62);

fn speculation(limit: Option<u32>, wild: bool) -> Speculation {
    limit.map_or(Speculation::Off, |limit| Speculation::Policy(Box::new(Erratic::new(limit, wild))))
}

/// Gives each request to the engine at the request's arrival time, and runs to the end.
fn serve(engine: &mut dyn Online, workload: &Workload) -> GivenOut {
    let mut out = GivenOut::default();
    for id in 0..workload.len() as RequestId {
        let request = workload.get(id);
        // No step may begin at 0 before the last request that arrives at 0 was given.
        if let Some(before) = request.arrival.0.checked_sub(1) {
            engine.run_to(Time(before), &mut out);
        }
        assert_eq!(engine.give_new(request), id);
    }
    engine.run_to(LATER, &mut out);
    out
}

/// A time at which the engine that gave the output `out` has certainly ended all its work.
fn engine_time(out: &GivenOut) -> Time {
    out.emitted.last().map_or(Time::ZERO, |e| e.at) + Time::from_s(1000.0)
}

/// The host has no work of its own here. So it waits for the whole step, and writes the line when the step ends.
#[test]
fn a_log_line_has_the_times_of_its_step() {
    let mut workload = Workload::default();
    (0..3).for_each(|i| workload.push(Request::new(Time::from_s(0.1 * f64::from(i)), 40, 12)));
    let f = Fixture::new(workload);
    let known = f.plain().steps;
    let out = f.with(|s| serve(&mut *s.online(Speculation::Off), &f.workload));
    let times: Vec<_> = out.steps.iter().map(|line| (line.written, line.elapsed)).collect();
    assert_eq!(times, known.iter().map(|step| (step.end, step.end - step.start)).collect::<Vec<_>>());
    let chunks: u64 = out.steps.iter().map(|line| line.context_tokens).sum();
    let (tokens, requests) = (&out.steps[0].context_tokens, &out.steps[0].context_requests);
    assert_eq!((chunks, *tokens, *requests), (3 * 40, 40, 1));
    let decoded: u64 = out.steps.iter().map(|line| line.generation_tokens).sum();
    assert_eq!(decoded, 3 * (12 - 1));
}

/// The last two requests arrive together and need more KV blocks than there are. The second of them is preempted, also
/// if the engine has forgotten the first two requests, so that it has the lower id.
#[test]
fn of_requests_that_came_together_the_last_is_preempted() {
    let mut workload = Workload::default();
    for (at, prompt, output) in [(0.0, 8, 1), (0.0, 8, 3), (1.0, 40, 30), (1.0, 40, 30)] {
        workload.push(Request::new(Time::from_s(at), prompt, output));
    }
    let mut f = Fixture::new(workload);
    f.config.scheduling_policy = SchedulingPolicy::Priority;
    (f.config.block_size, f.config.num_gpu_blocks, f.config.max_model_len) = (4, 26, 80);
    let known = f.plain();
    assert_eq!(known.records.preemptions, [0, 0, 0, 1]);
    let out = f.with(|s| serve(&mut *s.online(Speculation::Off), &f.workload));
    let mut ends = [Time::MAX; 4];
    out.emitted.iter().filter(|e| e.ended).for_each(|e| ends[e.id as usize] = e.at);
    assert_eq!(ends.to_vec(), known.records.finish);
}

proptest! {
    /// Compares two runs for every policy, order of a step's phases and vLLM release. In one run requests come while
    /// the engine runs, and the engine forgets ended requests. The other run knows the whole workload and forgets none.
    /// Requests get the same times and tokens in both.
    #[test]
    fn unknown_requests_fare_as_known_ones(
        w in workloads(),
        config in configs(),
        limit in prop::option::of(1u32..6),
        wild in any::<bool>(),
    ) {
        let mut f = Fixture::new(w);
        f.config = config;
        let known = f.with(|s| s.run(speculation(limit, wild)));
        let (totals, out) = f.with(|s| {
            let mut engine = s.online(speculation(limit, wild));
            let out = serve(&mut *engine, &f.workload);
            (engine.totals().clone(), out)
        });
        let records = &known.records;
        let sums = |t: &Totals| (t.steps, t.request_steps, t.emitted, t.drafted, t.verified, t.busy, t.preemptions);
        prop_assert_eq!(sums(&totals), sums(&known.totals));
        prop_assert_eq!(&out.rejected, &known.rejected);
        let ran = known.steps.iter().filter(|step| step.batch_size + step.chunks > 0).count();
        prop_assert_eq!(out.steps.len(), ran);
        for id in 0..records.len() {
            let own: Vec<_> = out.emitted.iter().filter(|e| e.id as usize == id).collect();
            prop_assert_eq!(own.iter().map(|e| e.tokens).sum::<u32>(), records.emitted[id]);
            prop_assert_eq!(own.first().map_or(Time::MAX, |e| e.at), records.first_token[id]);
            let ended = own.iter().filter(|e| e.ended).map(|e| e.at).collect::<Vec<_>>();
            prop_assert_eq!(ended, records.finished(id).then_some(records.finish[id]).into_iter().collect::<Vec<_>>());
            let accepted: u32 = own.iter().map(|e| e.accepted).sum();
            prop_assert_eq!(accepted, records.accepted[id]);
            for e in own {
                let begun = (records.first_scheduled[id], records.cached_tokens[id]);
                prop_assert_eq!((e.scheduled, e.cached_tokens), begun);
            }
        }
    }

    /// Compares two runs, in open and closed loops. One run takes its requests one at a time and forgets ended
    /// requests. The other run knows the whole workload and forgets none. Both have the same records and totals.
    #[test]
    fn a_streamed_run_is_the_whole_run(
        w in workloads(),
        config in configs(),
        limit in prop::option::of(1u32..6),
        wild in any::<bool>(),
        clients in prop::option::of(1u32..9),
    ) {
        let mut f = Fixture::new(w);
        f.config = config;
        let mut sent = (0..f.workload.len() as RequestId).map(|id| f.workload.get(id));
        f.with(|s| {
            let arrivals = clients.map_or(Arrivals::Open, |clients| Arrivals::Closed { clients });
            let s = Simulation { arrivals, keep_steps: false, keep_lives: true, ..s };
            let whole = s.run(speculation(limit, wild));
            let mut pieces = Vec::new();
            let mut give = |records| {
                pieces.push(records);
                true
            };
            let streamed = s.stream(speculation(limit, wild), &mut sent, &mut give);
            prop_assert_eq!(streamed.ending, whole.ending);
            prop_assert_eq!(&pieces, &vec![whole.records]);
            prop_assert_eq!(streamed.rejected, whole.rejected);
            prop_assert_eq!(streamed.series, whole.series);
            prop_assert_eq!(format!("{:?}", streamed.totals), format!("{:?}", whole.totals));
            Ok(())
        })?;
    }

    /// Aborted requests get no further tokens and hold no KV. All other requests run to their end.
    #[test]
    fn aborts_leave_nothing_behind(
        w in workloads(),
        config in configs(),
        limit in prop::option::of(1u32..6),
        wild in any::<bool>(),
        every in 1u32..4,
        after_ms in 0u64..400,
    ) {
        let mut f = Fixture::new(w);
        f.config = config;
        f.with(|s| {
            let mut engine = s.online(speculation(limit, wild));
            let mut out = GivenOut::default();
            let requests = f.workload.len() as RequestId;
            (0..requests).for_each(|id| assert_eq!(engine.give_new(f.workload.get(id)), id));
            let cut = f.workload.arrival[0] + Time(1_000_000_000 * after_ms);
            engine.run_to(cut, &mut out);
            let (before, aborted) = (out.emitted.len(), |id: RequestId| id.is_multiple_of(every));
            let had_ended: Vec<RequestId> = out.emitted.iter().filter(|e| e.ended).map(|e| e.id).collect();
            (0..requests).filter(|&id| aborted(id)).for_each(|id| engine.abort(id));
            engine.run_to(LATER, &mut out);
            let load = engine.load();
            prop_assert_eq!((load.used_blocks, load.running, load.waiting), (0, 0, 0));
            prop_assert!(out.emitted[before..].iter().all(|e| !aborted(e.id)));
            let ended = |id| out.emitted.iter().any(|e| e.ended && e.id == id) || out.rejected.iter().any(|r| r.0 == id);
            for id in 0..requests {
                prop_assert!(ended(id) || aborted(id) && !had_ended.contains(&id), "request {}", id);
            }
            // All requests have ended, so inside the engine the ids of ended requests are free again and new requests
            // take them. For the client each new request has a new id. All new requests run to their end.
            let again = |id| Request { arrival: engine_time(&out), ..f.workload.get(id) };
            let more: Vec<RequestId> = (0..requests).map(|id| engine.give_new(again(id))).collect();
            prop_assert_eq!(&more, &(requests..2 * requests).collect::<Vec<_>>());
            engine.run_to(LATER, &mut out);
            let ended = |id| out.emitted.iter().any(|e| e.ended && e.id == id) || out.rejected.iter().any(|r| r.0 == id);
            prop_assert!(more.into_iter().all(ended));
            Ok(())
        })?;
    }
}
