//! Staleness: a policy learns outcomes some steps late, as in overlapped schedulers (docs/model.md 0.7). `Stale` wraps
//! any policy. The policy learns the end of a request as late as the outcomes. Decisions within a step, made with the
//! step's own confidences, are not delayed.

use foretoken_sim::{Around, Drafts, RequestId, SpecPolicy, StepOutcome, Time};
use std::collections::VecDeque;

/// A wrapper around a policy, which learns the outcome of each step some steps late.
pub(crate) struct Stale {
    policy: Box<dyn SpecPolicy>,
    steps: usize,
    /// Outcomes of steps that the wrapped policy has not observed yet, oldest first.
    late: VecDeque<SavedOutcome>,
    /// Copies of outcomes that were delivered to the policy. Their buffers are reused for later outcomes.
    spare: Vec<SavedOutcome>,
}

/// A copy of a step's outcome, which is kept until the policy observes it.
#[derive(Default)]
struct SavedOutcome {
    ids: Vec<RequestId>,
    drafted: Vec<u32>,
    verified: Vec<u32>,
    accepted: Vec<u32>,
    drafts: Drafts,
    draft_time: Time,
    verify_time: Time,
    /// Ids of the requests that ended after this step's outcome and before the next one.
    ended: Vec<RequestId>,
}

impl Stale {
    /// Wraps `policy`, which observes each step after `steps` further steps have ended.
    pub(crate) fn new(policy: Box<dyn SpecPolicy>, steps: u32) -> Stale {
        Stale { policy, steps: steps as usize, late: VecDeque::new(), spare: Vec::new() }
    }
}

impl Around for Stale {
    fn inner(&self) -> &dyn SpecPolicy {
        &*self.policy
    }

    fn inner_mut(&mut self) -> &mut dyn SpecPolicy {
        &mut *self.policy
    }

    fn around_observe(&mut self, o: &StepOutcome) {
        let mut saved = self.spare.pop().unwrap_or_default();
        let columns = [(&mut saved.ids, o.ids), (&mut saved.drafted, o.drafted), (&mut saved.verified, o.verified)];
        for (to, from) in columns.into_iter().chain([(&mut saved.accepted, o.accepted)]) {
            to.clear();
            to.extend_from_slice(from);
        }
        saved.drafts.clone_from(o.drafts);
        (saved.draft_time, saved.verify_time) = (o.draft_time, o.verify_time);
        self.late.push_back(saved);
        if self.late.len() <= self.steps {
            return;
        }
        if let Some(mut k) = self.late.pop_front() {
            self.policy.observe(&StepOutcome {
                ids: &k.ids,
                drafted: &k.drafted,
                verified: &k.verified,
                accepted: &k.accepted,
                drafts: &k.drafts,
                draft_time: k.draft_time,
                verify_time: k.verify_time,
            });
            k.ended.drain(..).for_each(|id| self.policy.request_finished(id));
            self.spare.push(k);
        }
    }

    /// Ids of ended requests may not be used again, because the wrapped policy learns of an end some steps late. Until
    /// then another request could have the id.
    fn around_ids_may_return(&self) -> bool {
        false
    }

    fn around_request_finished(&mut self, id: RequestId) {
        match self.late.back_mut() {
            Some(newest) => newest.ended.push(id),
            None => self.policy.request_finished(id),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::outcome;
    use foretoken_sim::{BatchView, DraftLimits, DraftPlan, Wants};
    use std::sync::{Arc, Mutex};

    /// A policy that writes down what it learns: for each step the number of accepted draft tokens, for each ended
    /// request its negative id.
    struct Diary(Arc<Mutex<Vec<i64>>>);

    impl SpecPolicy for Diary {
        fn limits(&self) -> DraftLimits<'_> {
            DraftLimits::chain(4)
        }

        fn propose(&mut self, _: &BatchView, _: &mut DraftPlan) {}

        fn observe(&mut self, o: &StepOutcome) {
            self.0.lock().expect("one thread").push(o.accepted[0].into());
        }

        fn request_finished(&mut self, id: RequestId) {
            self.0.lock().expect("one thread").push(-i64::from(id));
        }
    }

    /// `clone_from` copies the draft tokens of an outcome into the buffers of an old copy, so that a full queue of late
    /// outcomes allocates nothing.
    #[test]
    fn copies_of_drafts_are_whole_and_keep_their_buffers() {
        let mut drafts = Drafts::default();
        drafts.reset(3, 4);
        drafts.want(Wants { confidence: true, entropy: true, divergence: true, ..Wants::default() });
        drafts.set_confidence(2, 3, 0.5);
        drafts.set_entropy(1, 0, 0.25);
        drafts.set_divergence(0, 2, 0.125);
        drafts.draft_len.fill(4);
        drafts.verify_len.resize(3, 2);
        drafts.passes = 4;
        drafts.stop(1);
        let mut copy = drafts.clone();
        assert_eq!(format!("{copy:?}"), format!("{drafts:?}"));
        let buffer = copy.draft_len.as_ptr();
        drafts.draft_len.fill(1);
        copy.clone_from(&drafts);
        assert_eq!((format!("{copy:?}"), copy.draft_len.as_ptr()), (format!("{drafts:?}"), buffer));
    }

    #[test]
    fn outcomes_and_ends_come_late() {
        for steps in [0, 1, 3] {
            let diary = Arc::new(Mutex::new(Vec::new()));
            let mut policy = Stale::new(Box::new(Diary(diary.clone())), steps);
            let drafts = Drafts::default();
            for step in 0..6 {
                policy.observe(&outcome(&drafts, &[9], &[step]));
            }
            assert_eq!(*diary.lock().expect("one thread"), (0..6 - i64::from(steps)).collect::<Vec<i64>>());
        }
    }

    /// A policy that learns outcomes late learns a request's end after the outcome that preceded it and before the next
    /// one.
    #[test]
    fn an_end_is_learnt_behind_the_last_outcome() {
        for steps in [0, 1, 3] {
            let diary = Arc::new(Mutex::new(Vec::new()));
            let mut policy = Stale::new(Box::new(Diary(diary.clone())), steps);
            let drafts = Drafts::default();
            policy.request_finished(7);
            for step in 0..8 {
                policy.observe(&outcome(&drafts, &[9], &[step]));
                if step < 3 {
                    policy.request_finished(10 + step);
                }
            }
            let learnt = [-7, 0, -10, 1, -11, 2, -12, 3, 4, 5, 6, 7];
            assert_eq!(*diary.lock().expect("one thread"), learnt[..learnt.len() - steps as usize]);
        }
    }
}
