//! The engine's interface to the part that decides the draft lengths: no drafter, a policy on any executor, or an
//! oracle (which sees which draft tokens are right) on the event clock (simulated time that jumps from event to event).
//! The types rule out an oracle on other executors (invariant 8 of INVARIANTS.md). The engine's loop calls the same
//! functions with and without a drafter; the functions of [`NoDraft`] do nothing.

use super::ahead::{Ahead, Verifies};
use super::draft_loop;
use super::hooks::Hooks;
use super::scheduler::{Lengths, Scheduler, SpeculativeConfig};
use super::spec_decode::SpecDecode;
use crate::drafts::Drafts;
use crate::event_clock::EventClock;
use crate::executor::{Chunk, Executor, Moment, StepPlan};
use crate::new_request::NewRequest;
use crate::oracle::OraclePolicy;
use crate::policy::{BatchView, Continue, DraftPlan, Memory, SpecPolicy, StepOutcome};
use crate::tree::MAX_TREE_TOKENS;
use crate::workload::{RequestId, Workload};

/// The part of the engine that decides how many tokens each request drafts: nothing, a policy or an oracle.
pub trait Drafter<E: Executor>: Hooks<E> {
    /// The most tokens that may be drafted now for any request. For chains it is at most `max_draft_len`.
    fn num_spec_tokens(&self, max_draft_len: u32) -> u32;

    /// The drafter's properties that the scheduler must know, such as the longest draft length. Chains have at most
    /// `max_draft_len` tokens.
    fn speculative_config(&self, max_draft_len: u32, parallel_drafting: bool) -> SpeculativeConfig;

    /// How many of the draft model's best guesses at each position count as right; see [`OraclePolicy::guesses`].
    fn guesses(&self) -> u32 {
        1
    }

    /// Whether the draft model processes the prompt of a request that starts, so that the request can draft. Called
    /// once for each request, if the draft model processes prompts.
    fn drafts_for_next(&mut self, _request: &NewRequest) -> bool {
        true
    }

    /// Whether the draft model's weights stay in memory, or come back if they are gone. Called once a step, if the
    /// engine may give them up.
    fn keeps_weights(&mut self, _memory: &Memory) -> bool {
        true
    }

    /// How many decode requests take part in this step: the first n of `batch`, or all if `None`.
    fn max_batch(&mut self, _batch: &BatchView) -> Option<usize> {
        None
    }

    /// If draft tokens are made at the start of a step: lowers each request's draft limit to the number of draft tokens
    /// that the executor can propose. Called before the drafter decides anything in the step.
    fn cap_draft_limits(&mut self, executor: &mut E, scheduler: &mut Scheduler) {
        let (ids, emitted, limit) = scheduler.draft_limits();
        executor.cap_draft_limits(ids, emitted, limit);
    }

    /// Makes draft tokens at the start of a step, at most `max_draft_len` a request. `in_parallel` says whether one
    /// pass gives all draft tokens of a request. `views` are the step as the device has it, and its batch as the host
    /// knows it. Afterwards the lengths in `spec.drafts` are final.
    ///
    /// # Errors
    /// A draft pass failed.
    fn draft_at_start(
        &mut self,
        executor: &mut E,
        views: (&StepPlan, &BatchView),
        max_draft_len: u32,
        in_parallel: bool,
        spec: &mut SpecDecode,
    ) -> Result<(), E::Error> {
        draft_loop::draft_at_start(self, executor, views, max_draft_len, in_parallel, spec)
    }

    /// If draft tokens are made at the end of a step: moves the draft tokens that the batch's requests hold to
    /// `drafts`, so that the step verifies them.
    fn take_held(
        &mut self,
        ahead: &mut Ahead,
        batch: &BatchView,
        workload: &Workload,
        drafts: &mut Drafts,
    ) -> Verifies {
        ahead.take(batch, workload, drafts)
    }

    /// The batch `batch` with the token counts that the device has for its requests. Call it after
    /// [`take_held`](Drafter::take_held).
    fn on_device<'a>(&self, ahead: &'a Ahead, batch: &BatchView<'a>) -> BatchView<'a> {
        ahead.device.view(batch)
    }

    /// Notes the tokens that a target pass samples: for the requests `ids`, and for the prompts that end in `chunks`.
    fn sampled(&mut self, ahead: &mut Ahead, ids: &[RequestId], accepted: &[u32], chunks: &[Chunk]) {
        ahead.sample(ids, accepted, chunks);
    }

    /// Called after each step with the step's outcome.
    fn observe(&mut self, _outcome: &StepOutcome) {}

    /// Called when a request has ended, after `observe` of the last step in which the request ran.
    fn request_finished(&mut self, _id: RequestId) {}

    /// Whether a later request may get the id of an ended request whose end was reported to the drafter.
    fn ids_may_return(&self) -> bool {
        true
    }

    /// Called at the end of the run. Returns warnings for the user.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }
}

impl SpeculativeConfig {
    /// A policy's properties that the scheduler must know. Chains have at most `max_draft_len` tokens. For trees, which
    /// vLLM does not have, the number of draft tokens is the number of nodes.
    pub fn of_policy(policy: &dyn SpecPolicy, max_draft_len: u32, parallel_drafting: bool) -> SpeculativeConfig {
        let limits = policy.limits();
        let chain = limits.max_depth.min(max_draft_len);
        let tree = limits.max_tree_tokens.min(MAX_TREE_TOKENS);
        SpeculativeConfig {
            drafter: true,
            num_speculative_tokens: chain.max(tree),
            parallel_drafting,
            per_batch_size: limits.vllm.unwrap_or_default().to_vec(),
            lengths: if limits.vllm.is_some() { Lengths::Released } else { Lengths::Own },
        }
    }

    /// An oracle's properties that the scheduler must know. An oracle is a bound that sees which draft tokens are
    /// right.
    pub fn of_oracle(oracle: &dyn OraclePolicy, max_draft_len: u32, parallel_drafting: bool) -> SpeculativeConfig {
        let num_speculative_tokens = oracle.limit().min(max_draft_len);
        SpeculativeConfig {
            drafter: true,
            num_speculative_tokens,
            parallel_drafting,
            per_batch_size: Vec::new(),
            lengths: Lengths::Free,
        }
    }
}

/// No drafter: the engine decodes one token for each request in each step (invariant 7 of INVARIANTS.md).
pub struct NoDraft;

impl<E: Executor> Hooks<E> for NoDraft {
    fn propose(&mut self, _: &mut E, _: &BatchView, _: &BatchView, _: &mut DraftPlan, _: &mut Drafts) {}
}

impl<E: Executor> Drafter<E> for NoDraft {
    fn num_spec_tokens(&self, _: u32) -> u32 {
        0
    }

    fn speculative_config(&self, _: u32, _: bool) -> SpeculativeConfig {
        SpeculativeConfig::default()
    }

    fn cap_draft_limits(&mut self, _: &mut E, _: &mut Scheduler) {}

    fn draft_at_start(
        &mut self,
        _: &mut E,
        _: (&StepPlan, &BatchView),
        _: u32,
        _: bool,
        _: &mut SpecDecode,
    ) -> Result<(), E::Error> {
        Ok(())
    }

    fn take_held(&mut self, _: &mut Ahead, _: &BatchView, _: &Workload, _: &mut Drafts) -> Verifies {
        Verifies::default()
    }

    fn on_device<'a>(&self, _: &'a Ahead, batch: &BatchView<'a>) -> BatchView<'a> {
        *batch
    }

    fn sampled(&mut self, _: &mut Ahead, _: &[RequestId], _: &[u32], _: &[Chunk]) {}
}

/// A drafter whose draft lengths a policy decides.
pub struct ByPolicy(pub Box<dyn SpecPolicy>);

impl<E: Executor> Hooks<E> for ByPolicy {
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
}

impl<E: Executor> Drafter<E> for ByPolicy {
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

    fn drafts_for_next(&mut self, request: &NewRequest) -> bool {
        self.0.drafts_for_next(request)
    }

    fn keeps_weights(&mut self, memory: &Memory) -> bool {
        self.0.keeps_weights(memory)
    }

    fn max_batch(&mut self, batch: &BatchView) -> Option<usize> {
        if batch.is_empty() {
            return None;
        }
        self.0.max_batch(batch).map(|n| n.clamp(1, batch.len()))
    }

    fn observe(&mut self, outcome: &StepOutcome) {
        self.0.observe(outcome);
    }

    fn request_finished(&mut self, id: RequestId) {
        self.0.request_finished(id);
    }

    fn ids_may_return(&self) -> bool {
        self.0.ids_may_return()
    }

    fn warnings(&self) -> Vec<String> {
        self.0.warnings()
    }
}

/// A drafter whose draft lengths an oracle decides. An oracle is a bound that sees which draft tokens are right.
pub struct ByOracle(pub Box<dyn OraclePolicy>);

impl<'a> Hooks<EventClock<'a>> for ByOracle {
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

impl<'a> Drafter<EventClock<'a>> for ByOracle {
    fn num_spec_tokens(&self, max_draft_len: u32) -> u32 {
        self.0.limit().min(max_draft_len)
    }

    fn speculative_config(&self, max_draft_len: u32, parallel_drafting: bool) -> SpeculativeConfig {
        SpeculativeConfig::of_oracle(&*self.0, max_draft_len, parallel_drafting)
    }

    fn guesses(&self) -> u32 {
        self.0.guesses()
    }

    fn observe(&mut self, outcome: &StepOutcome) {
        self.0.observe(outcome);
    }

    fn request_finished(&mut self, id: RequestId) {
        self.0.request_finished(id);
    }
}
