//! The trait of wrappers around a policy. A wrapper passes every call on to the policy. In some hooks it does work of
//! its own: it delays, watches or records.

use crate::drafts::{Drafts, Wants};
use crate::new_request::NewRequest;
use crate::policy::{BatchView, Continue, DraftLimits, DraftPlan, Explanation, Memory, SpecPolicy, StepOutcome};
use crate::workload::RequestId;

/// A [`SpecPolicy`] that passes every call to another policy, the inner one. An implementor may watch or change calls
/// in the `around_` hooks.
pub trait Around: Send {
    /// The policy to which this wrapper passes its calls.
    fn inner(&self) -> &dyn SpecPolicy;

    /// The policy to which this wrapper passes its calls, mutable.
    fn inner_mut(&mut self) -> &mut dyn SpecPolicy;

    /// Called in place of [`SpecPolicy::wants`]. By default it calls the wrapped policy's `wants`.
    fn around_wants(&self) -> Wants {
        self.inner().wants()
    }

    /// Called in place of [`SpecPolicy::propose`]. By default it calls the wrapped policy's `propose`.
    fn around_propose(&mut self, batch: &BatchView, plan: &mut DraftPlan) {
        self.inner_mut().propose(batch, plan);
    }

    /// Called in place of [`SpecPolicy::observe`]. By default it calls the wrapped policy's `observe`.
    fn around_observe(&mut self, outcome: &StepOutcome) {
        self.inner_mut().observe(outcome);
    }

    /// Called in place of [`SpecPolicy::request_finished`]. By default it calls the wrapped policy's
    /// `request_finished`.
    fn around_request_finished(&mut self, id: RequestId) {
        self.inner_mut().request_finished(id);
    }

    /// Called in place of [`SpecPolicy::ids_may_return`]. By default it calls the wrapped policy's `ids_may_return`.
    fn around_ids_may_return(&self) -> bool {
        self.inner().ids_may_return()
    }
}

impl<T: Around> SpecPolicy for T {
    fn limits(&self) -> DraftLimits<'_> {
        self.inner().limits()
    }

    fn wants(&self) -> Wants {
        self.around_wants()
    }

    fn drafts_for_next(&mut self, request: &NewRequest) -> bool {
        self.inner_mut().drafts_for_next(request)
    }

    fn keeps_weights(&mut self, memory: &Memory) -> bool {
        self.inner_mut().keeps_weights(memory)
    }

    fn max_batch(&mut self, batch: &BatchView) -> Option<usize> {
        self.inner_mut().max_batch(batch)
    }

    fn propose(&mut self, batch: &BatchView, plan: &mut DraftPlan) {
        self.around_propose(batch, plan);
    }

    fn keep_drafting(&mut self, batch: &BatchView, drafts: &mut Drafts) -> Continue {
        self.inner_mut().keep_drafting(batch, drafts)
    }

    fn select(&mut self, batch: &BatchView, drafts: &mut Drafts) {
        self.inner_mut().select(batch, drafts);
    }

    fn observe(&mut self, outcome: &StepOutcome) {
        self.around_observe(outcome);
    }

    fn request_finished(&mut self, id: RequestId) {
        self.around_request_finished(id);
    }

    fn ids_may_return(&self) -> bool {
        self.around_ids_may_return()
    }

    fn warnings(&self) -> Vec<String> {
        self.inner().warnings()
    }

    fn explain(&mut self) -> Explanation {
        self.inner_mut().explain()
    }
}

#[cfg(test)]
mod tests {
    /// Compares the hooks of the trait with the hooks that the wrapper passes on, by their names in the source files.
    /// If the wrapper left out a hook, the hook's default would run, and no error would show it.
    #[test]
    fn every_hook_of_a_policy_is_passed_on() {
        let hooks = |source: &'static str, from: &str| -> Vec<&'static str> {
            let body = source.split_once(from).expect("the trait is there").1;
            let body = body.split_once("\n}\n").expect("it ends").0;
            body.lines().filter_map(|l| l.strip_prefix("    fn ")?.split('(').next()).collect()
        };
        let asked = hooks(include_str!("policy.rs"), "pub trait SpecPolicy");
        let passed_on = hooks(include_str!("around.rs"), "impl<T: Around> SpecPolicy for T");
        assert!(asked.len() > 10, "{asked:?}");
        assert_eq!(asked, passed_on, "in the trait's order");
    }
}
