//! The engine's interface to what decides the draft lengths: no drafter, a policy on any executor, or an oracle on the
//! event clock. The types rule out an oracle on other executors (invariant 8).

use super::scheduler::SpeculativeConfig;
use crate::drafts::Drafts;
use crate::event_clock::EventClock;
use crate::executor::{Executor, Moment};
use crate::oracle::OraclePolicy;
use crate::policy::{BatchView, Continue, DraftPlan, SpecPolicy, StepOutcome};
use crate::tree::MAX_TREE_TOKENS;
use crate::workload::RequestId;

/// What the engine needs of a drafter.
pub trait Drafter<E: Executor> {
    /// Whether there is a drafter. Without one this is the plain engine (invariant 7).
    const ACTIVE: bool;

    /// The most tokens that any request may have drafted now; of a chain at most `max_draft_len`.
    fn num_spec_tokens(&self, max_draft_len: u32) -> u32;

    /// What the scheduler must know about the drafter, with chains of at most `max_draft_len` tokens.
    fn speculative_config(&self, max_draft_len: u32, parallel_drafting: bool) -> SpeculativeConfig;

    /// Whether to draft for the request that starts now.
    fn drafts_for_next(&mut self) -> bool {
        true
    }

    /// How many decode requests, from the first, take part in this step; `None` for all.
    fn max_batch(&mut self, _batch: &BatchView) -> Option<usize> {
        None
    }

    /// Before drafting: sets how many tokens each request drafts, and which values of the drafts are wanted. `batch` is
    /// what a policy may see. `device` has the same requests' state on the device, for an oracle.
    fn propose(
        &mut self,
        executor: &mut E,
        batch: &BatchView,
        device: &BatchView,
        plan: &mut DraftPlan,
        drafts: &mut Drafts,
    );

    /// Called after each draft pass: whether to run the next one.
    fn keep_drafting(&mut self, _batch: &BatchView, drafts: &mut Drafts) -> Continue {
        drafts.nothing_to_decide();
        Continue::Yes
    }

    /// Called before verification: may lower `drafts.verify_len`.
    fn select(&mut self, _batch: &BatchView, drafts: &mut Drafts) {
        drafts.nothing_to_decide();
    }

    /// Called after the step with its outcome.
    fn observe(&mut self, _outcome: &StepOutcome) {}

    /// Called when a request has ended.
    fn request_finished(&mut self, _id: RequestId) {}

    /// Called at the end of the run: warnings for the user.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }
}

/// No drafter: the plain engine.
pub struct NoDraft;

impl<E: Executor> Drafter<E> for NoDraft {
    const ACTIVE: bool = false;

    fn num_spec_tokens(&self, _: u32) -> u32 {
        0
    }

    fn speculative_config(&self, _: u32, _: bool) -> SpeculativeConfig {
        SpeculativeConfig::default()
    }

    fn propose(&mut self, _: &mut E, _: &BatchView, _: &BatchView, _: &mut DraftPlan, _: &mut Drafts) {}
}

/// A policy as drafter.
pub struct ByPolicy(pub Box<dyn SpecPolicy>);

impl<E: Executor> Drafter<E> for ByPolicy {
    const ACTIVE: bool = true;

    fn num_spec_tokens(&self, max_draft_len: u32) -> u32 {
        let limits = self.0.limits();
        match limits.tree_tokens {
            0 => limits.depth.min(max_draft_len),
            tokens => tokens.min(MAX_TREE_TOKENS),
        }
    }

    fn speculative_config(&self, max_draft_len: u32, parallel_drafting: bool) -> SpeculativeConfig {
        SpeculativeConfig::of_policy(&*self.0, max_draft_len, parallel_drafting)
    }

    fn drafts_for_next(&mut self) -> bool {
        self.0.drafts_for_next()
    }

    fn max_batch(&mut self, batch: &BatchView) -> Option<usize> {
        if batch.is_empty() {
            return None;
        }
        self.0.max_batch(batch).map(|n| n.clamp(1, batch.len()))
    }

    fn propose(
        &mut self,
        executor: &mut E,
        batch: &BatchView,
        _: &BatchView,
        plan: &mut DraftPlan,
        drafts: &mut Drafts,
    ) {
        drafts.want(self.0.wants());
        if !batch.is_empty() {
            self.0.propose(batch, plan);
            executor.charge_decision(Moment::Propose);
        }
    }

    fn keep_drafting(&mut self, batch: &BatchView, drafts: &mut Drafts) -> Continue {
        self.0.keep_drafting(batch, drafts)
    }

    fn select(&mut self, batch: &BatchView, drafts: &mut Drafts) {
        self.0.select(batch, drafts);
    }

    fn observe(&mut self, outcome: &StepOutcome) {
        self.0.observe(outcome);
    }

    fn request_finished(&mut self, id: RequestId) {
        self.0.request_finished(id);
    }

    fn warnings(&self) -> Vec<String> {
        self.0.warnings()
    }
}

/// An oracle as drafter: a bound that sees the hidden truth.
pub struct ByOracle(pub Box<dyn OraclePolicy>);

impl<'a> Drafter<EventClock<'a>> for ByOracle {
    const ACTIVE: bool = true;

    fn num_spec_tokens(&self, max_draft_len: u32) -> u32 {
        self.0.limit().min(max_draft_len)
    }

    fn speculative_config(&self, max_draft_len: u32, parallel_drafting: bool) -> SpeculativeConfig {
        SpeculativeConfig::of_oracle(&*self.0, max_draft_len, parallel_drafting)
    }

    fn propose(
        &mut self,
        executor: &mut EventClock<'a>,
        _: &BatchView,
        device: &BatchView,
        plan: &mut DraftPlan,
        _: &mut Drafts,
    ) {
        if !device.is_empty() {
            self.0.propose(device, &executor.truth(device), plan);
        }
    }
}
