//! Who decides the draft lengths, seen from the engine: nobody, a policy on any executor, or an oracle on the event
//! clock. That there is no oracle for other executors is a fact of the types (invariant 8).

use super::scheduler::SpeculativeConfig;
use super::spec_decode::SpecDecode;
use crate::event_clock::EventClock;
use crate::executor::{DraftPass, Executor, Moment, StepPlan};
use crate::{
    BatchView, Continue, DraftPlan, DraftShape, Drafts, MAX_TREE_TOKENS, OraclePolicy, RequestId, SpecPolicy,
    StepOutcome,
};

/// The engine's side of a policy.
pub trait Drafter<E: Executor> {
    /// Is there a drafter at all? Without one the engine is the plain engine (invariant 7).
    const ACTIVE: bool;

    /// The most tokens any request may have drafted now: of a chain at most `max_draft_len`.
    fn num_spec_tokens(&self, max_draft_len: u32) -> u32;

    /// What the scheduler must know of it, with chains of at most `max_draft_len` tokens.
    fn speculative_config(&self, max_draft_len: u32, parallel_drafting: bool) -> SpeculativeConfig;

    /// Is the request that starts now to be drafted for?
    fn drafts_for_next(&mut self) -> bool {
        true
    }

    /// Lowers the draft limits of the step's requests to what there is to propose.
    fn cap_draft_limits(&mut self, executor: &mut E, ids: &[RequestId], emitted: &[u32], limit: &mut [u32]) {
        executor.cap_draft_limits(ids, emitted, limit);
    }

    /// How many decode requests, from the first, take part in this step; `None` is all of them.
    fn max_batch(&mut self, _batch: &BatchView) -> Option<usize> {
        None
    }

    /// Drafts, with at most `max_draft_len` tokens a request: proposes, runs the draft passes, selects. Afterwards the
    /// lengths in `spec.drafts` are final.
    fn draft(
        &mut self,
        executor: &mut E,
        step: &StepPlan,
        max_draft_len: u32,
        spec: &mut SpecDecode,
    ) -> Result<(), E::Error>;

    /// After the step.
    fn observe(&mut self, _outcome: &StepOutcome) {}

    /// A request has ended.
    fn request_finished(&mut self, _id: RequestId) {}

    /// At the end of the run.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }
}

/// The plain engine.
pub struct NoDraft;

impl<E: Executor> Drafter<E> for NoDraft {
    const ACTIVE: bool = false;

    fn num_spec_tokens(&self, _: u32) -> u32 {
        0
    }

    fn speculative_config(&self, _: u32, _: bool) -> SpeculativeConfig {
        SpeculativeConfig::default()
    }

    fn cap_draft_limits(&mut self, _: &mut E, _: &[RequestId], _: &[u32], _: &mut [u32]) {}

    fn draft(&mut self, _: &mut E, _: &StepPlan, _: u32, _: &mut SpecDecode) -> Result<(), E::Error> {
        Ok(())
    }
}

/// A policy.
pub struct ByPolicy(pub Box<dyn SpecPolicy>);

impl<E: Executor> Drafter<E> for ByPolicy {
    const ACTIVE: bool = true;

    fn num_spec_tokens(&self, max_draft_len: u32) -> u32 {
        match self.0.tree_tokens() {
            0 => self.0.limit().min(max_draft_len),
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

    fn draft(
        &mut self,
        executor: &mut E,
        step: &StepPlan,
        max_draft_len: u32,
        spec: &mut SpecDecode,
    ) -> Result<(), E::Error> {
        let batch = &step.batch;
        spec.reset(batch.len(), max_draft_len);
        let SpecDecode { plan, drafts, .. } = spec;
        drafts.want(self.0.wants());
        if !batch.is_empty() {
            self.0.propose(batch, plan);
            executor.charge_decision(Moment::Propose);
        }
        let (mut common_len, depth) = clamp(batch, plan, drafts);
        if let DraftShape::Tree(_) = plan.shape {
            drafts.plant(batch.len());
            common_len = 0;
        }
        for pass in 1..=depth {
            run_pass(executor, step, plan, pass, common_len, drafts)?;
            let go_on = self.0.keep_drafting(batch, drafts);
            // What comes out of one pass is waited for once.
            if drafts.was_decided() && (pass == 1 || !executor.drafts_in_parallel()) {
                executor.charge_decision(Moment::KeepDrafting);
            }
            if go_on == Continue::Stop {
                break;
            }
            if drafts.leave_stopped(&mut plan.draft_len) {
                common_len = 0;
                if !plan.draft_len.iter().any(|&d| d > pass) {
                    break;
                }
            }
        }
        idle_pass(executor, step, depth, drafts)?;
        drafts.verify_len.extend_from_slice(&drafts.draft_len);
        if depth > 0 {
            self.0.select(batch, drafts);
            if drafts.was_decided() {
                executor.charge_decision(Moment::Select);
            }
            drafts.measure_trees(batch.limit);
            let kept = drafts.verify_len.iter().zip(&drafts.draft_len).all(|(&v, &d)| v <= d);
            assert!(kept, "a policy selected more than was drafted: {:?} of {:?}", drafts.verify_len, drafts.draft_len);
        }
        spec.drafted(executor.drafts_in_parallel());
        Ok(())
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

/// A bound that sees the hidden truth.
pub struct ByOracle(pub Box<dyn OraclePolicy>);

impl<'a> Drafter<EventClock<'a>> for ByOracle {
    const ACTIVE: bool = true;

    fn num_spec_tokens(&self, max_draft_len: u32) -> u32 {
        self.0.limit().min(max_draft_len)
    }

    fn speculative_config(&self, max_draft_len: u32, parallel_drafting: bool) -> SpeculativeConfig {
        SpeculativeConfig::of_oracle(&*self.0, max_draft_len, parallel_drafting)
    }

    fn draft(
        &mut self,
        executor: &mut EventClock<'a>,
        step: &StepPlan,
        max_draft_len: u32,
        spec: &mut SpecDecode,
    ) -> Result<(), <EventClock<'a> as Executor>::Error> {
        spec.reset(step.batch.len(), max_draft_len);
        let SpecDecode { plan, drafts, .. } = spec;
        if !step.batch.is_empty() {
            self.0.propose(&step.batch, &executor.truth(&step.batch), plan);
        }
        let (common_len, depth) = clamp(&step.batch, plan, drafts);
        for pass in 1..=depth {
            run_pass(executor, step, plan, pass, common_len, drafts)?;
        }
        idle_pass(executor, step, depth, drafts)?;
        drafts.verify_len.extend_from_slice(&drafts.draft_len);
        spec.drafted(executor.drafts_in_parallel());
        Ok(())
    }
}

/// Clamps the proposal to each request's limit, and trees, whose limit is in tokens, to the longest draft there may be;
/// returns the lengths of the shortest and the longest draft.
fn clamp(batch: &BatchView, plan: &mut DraftPlan, drafts: &Drafts) -> (u32, u32) {
    let (mut shortest, mut longest) = (u32::MAX, 0);
    for (d, &limit) in plan.draft_len.iter_mut().zip(batch.limit) {
        *d = (*d).min(limit).min(drafts.max_draft_len());
        shortest = shortest.min(*d);
        longest = longest.max(*d);
    }
    (shortest, longest)
}

#[inline]
fn run_pass<E: Executor>(
    executor: &mut E,
    step: &StepPlan,
    plan: &DraftPlan,
    pass: u32,
    common_len: u32,
    drafts: &mut Drafts,
) -> Result<(), E::Error> {
    let growth = match &plan.shape {
        DraftShape::Chain => None,
        DraftShape::Tree(growth) => Some(growth),
    };
    let pass = &DraftPass { pass, draft_len: &plan.draft_len, common_len, growth };
    executor.draft(step, pass, drafts)?;
    drafts.passes = pass.pass;
    if pass.pass <= pass.common_len {
        drafts.draft_len.fill(pass.pass);
        return Ok(());
    }
    for (have, &planned) in drafts.draft_len.iter_mut().zip(pass.draft_len) {
        *have += u32::from(planned >= pass.pass);
    }
    Ok(())
}

/// When nothing is drafted the draft may still have prompts or gaps to run over (policies.md 12).
fn idle_pass<E: Executor>(executor: &mut E, step: &StepPlan, depth: u32, drafts: &mut Drafts) -> Result<(), E::Error> {
    if depth == 0 && crate::shape::draft_idle_pass(&step.batch).is_some() {
        let pass = DraftPass { pass: 0, draft_len: &[], common_len: 0, growth: None };
        executor.draft(step, &pass, drafts)?;
        drafts.passes = 1;
    }
    Ok(())
}
