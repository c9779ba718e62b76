//! Tests at which moment the engine reports the end of a request to a policy.

use super::fixture::{Erratic, Fixture};
use super::invariants::{arrivals, cases, configs, workloads};
use crate::*;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

/// The request ids in all calls to a policy, and the ids of the requests whose end was reported to the policy.
#[derive(Default)]
struct Calls {
    seen: BTreeSet<RequestId>,
    ended: BTreeSet<RequestId>,
}

impl Calls {
    fn see(&mut self, hook: &str, ids: &[RequestId]) {
        for &id in ids {
            assert!(!self.ended.contains(&id), "{hook} names request {id}, which had ended");
            self.seen.insert(id);
        }
    }
}

/// A policy's wrapper. It checks that no call names a request after the request's end was reported to the wrapped
/// policy.
struct Checked {
    policy: Erratic,
    calls: Arc<Mutex<Calls>>,
}

impl Around for Checked {
    fn inner(&self) -> &dyn SpecPolicy {
        &self.policy
    }

    fn inner_mut(&mut self) -> &mut dyn SpecPolicy {
        &mut self.policy
    }

    fn around_propose(&mut self, batch: &BatchView, plan: &mut DraftPlan) {
        self.calls.lock().unwrap().see("propose", batch.ids);
        self.policy.propose(batch, plan);
    }

    fn around_observe(&mut self, outcome: &StepOutcome) {
        self.calls.lock().unwrap().see("observe", outcome.ids);
        self.policy.observe(outcome);
    }

    fn around_request_finished(&mut self, id: RequestId) {
        assert!(self.calls.lock().unwrap().ended.insert(id), "request {id} ended twice");
    }
}

/// The end of every request that a policy saw is reported to the policy exactly once, and only after the last step
/// outcome with this request was reported.
#[test]
fn a_request_ends_behind_its_last_outcome() {
    proptest!(cases(), |(w in workloads(), config in configs(), arrivals in arrivals(), limit in 0u32..6)| {
        let mut f = Fixture::new(w);
        f.config = config;
        f.arrivals = arrivals;
        let calls = Arc::new(Mutex::new(Calls::default()));
        let policy = Checked { policy: Erratic::new(limit, true), calls: calls.clone() };
        let run = f.with(|s| s.run(Speculation::Policy(Box::new(policy))));
        let calls = calls.lock().unwrap();
        prop_assert!(calls.seen.is_subset(&calls.ended), "{:?} of {:?} ended", calls.ended, calls.seen);
        let finished = (0..run.records.len()).filter(|&i| run.records.finished(i));
        for i in finished {
            prop_assert!(calls.ended.contains(&(i as RequestId)), "request {i} finished");
        }
    });
}
