//! When a policy learns that a request has ended.

use super::invariants::{arrivals, cases, configs, workloads};
use super::world::{Erratic, Fixture};
use crate::*;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

/// The requests that a policy was called with, and those whose end it learnt.
#[derive(Default)]
struct Known {
    seen: BTreeSet<RequestId>,
    ended: BTreeSet<RequestId>,
}

impl Known {
    fn see(&mut self, hook: &str, ids: &[RequestId]) {
        for &id in ids {
            assert!(!self.ended.contains(&id), "{hook} names request {id}, which had ended");
            self.seen.insert(id);
        }
    }
}

/// Checks that no call names a request whose end the wrapped policy learnt.
struct Checked {
    policy: Erratic,
    known: Arc<Mutex<Known>>,
}

impl Around for Checked {
    fn inner(&self) -> &dyn SpecPolicy {
        &self.policy
    }

    fn inner_mut(&mut self) -> &mut dyn SpecPolicy {
        &mut self.policy
    }

    fn around_propose(&mut self, batch: &BatchView, plan: &mut DraftPlan) {
        self.known.lock().unwrap().see("propose", batch.ids);
        self.policy.propose(batch, plan);
    }

    fn around_observe(&mut self, outcome: &StepOutcome) {
        self.known.lock().unwrap().see("observe", outcome.ids);
        self.policy.observe(outcome);
    }

    fn around_request_finished(&mut self, id: RequestId) {
        assert!(self.known.lock().unwrap().ended.insert(id), "request {id} ended twice");
    }
}

/// A policy learns the end of every request that it saw, once, after the request's last outcome.
#[test]
fn a_request_ends_behind_its_last_outcome() {
    proptest!(cases(), |(w in workloads(), config in configs(), arrivals in arrivals(), limit in 0u32..6)| {
        let mut f = Fixture::new(w);
        f.config = config;
        f.arrivals = arrivals;
        let known = Arc::new(Mutex::new(Known::default()));
        let policy = Checked { policy: Erratic::new(limit, true), known: known.clone() };
        let run = f.with(|s| s.run(Speculation::Policy(Box::new(policy))));
        let known = known.lock().unwrap();
        prop_assert!(known.seen.is_subset(&known.ended), "{:?} of {:?} ended", known.ended, known.seen);
        let finished = (0..run.records.len()).filter(|&i| run.records.finished(i));
        for i in finished {
            prop_assert!(known.ended.contains(&(i as RequestId)), "request {i} finished");
        }
    });
}
