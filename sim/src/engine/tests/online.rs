//! Tests the engine in a server, to which requests come while it runs. Its results equal the results of a run that
//! knows all requests before, and aborted requests leave nothing behind.

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
        engine.run_to(Time(request.arrival.0.saturating_sub(1)), &mut out);
        assert_eq!(engine.give_new(request), id);
    }
    engine.run_to(LATER, &mut out);
    out
}

proptest! {
    /// Requests that come while the engine runs get the same times and tokens as in a run that knows the whole
    /// workload, for every policy, order of steps and release. The records have the same tokens that were sent to
    /// clients.
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
        let (records, out) = f.with(|s| {
            let mut engine = s.online(speculation(limit, wild));
            let out = serve(&mut *engine, &f.workload);
            (engine.records().clone(), out)
        });
        let expected = RequestRecords {
            // These counts are written into the records only at the end of a run.
            rounds: records.rounds.clone(),
            drafted: records.drafted.clone(),
            verified: records.verified.clone(),
            accepted: records.accepted.clone(),
            ..known.records.clone()
        };
        prop_assert_eq!(&records, &expected);
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
            prop_assert_eq!(accepted, known.records.accepted[id]);
        }
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
            let records = engine.records();
            for id in 0..requests {
                let ended = records.outcome[id as usize] != Outcome::InFlight;
                prop_assert!(ended || aborted(id) && !had_ended.contains(&id), "request {}", id);
            }
            Ok(())
        })?;
    }
}
