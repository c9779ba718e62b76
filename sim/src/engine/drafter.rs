//! Who decides the draft lengths, seen from the engine: nobody, a policy on any executor, or an oracle on the event
//! clock. That there is no oracle for other executors is a fact of the types (invariant 8).

use crate::event_clock::EventClock;
use crate::executor::{DraftPass, Executor, Moment, StepPlan};
use crate::{BatchView, Continue, DraftPlan, DraftShape, Drafts, OraclePolicy, SpecPolicy, StepOutcome};

/// The engine's side of a policy.
pub trait Drafter<E: Executor> {
    /// Is there a drafter at all? Without one the engine is the plain engine (invariant 7).
    const ACTIVE: bool;

    /// The most any request may draft now.
    fn limit(&self) -> u32;

    /// The most tokens of a tree to verify for any request; 0 for chains.
    fn tree_tokens(&self) -> u32 {
        0
    }

    /// Is the request that starts now to be drafted for?
    fn drafts_for_next(&mut self) -> bool {
        true
    }

    /// How many decode requests, from the first, take part in this step; `None` is all of them.
    fn prefix(&mut self, _batch: &BatchView) -> Option<usize> {
        None
    }

    /// Drafts: proposes, runs the draft passes, selects. `drafts` comes reset; afterwards `draft_len` and
    /// `verify_len` are final.
    fn speculate(
        &mut self,
        executor: &mut E,
        step: &StepPlan,
        plan: &mut DraftPlan,
        drafts: &mut Drafts,
    ) -> Result<(), E::Error>;

    /// After the step.
    fn observe(&mut self, _outcome: &StepOutcome) {}

    /// At the end of the run.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }
}

/// The plain engine.
pub struct NoDraft;

impl<E: Executor> Drafter<E> for NoDraft {
    const ACTIVE: bool = false;

    fn limit(&self) -> u32 {
        0
    }

    fn speculate(&mut self, _: &mut E, _: &StepPlan, _: &mut DraftPlan, _: &mut Drafts) -> Result<(), E::Error> {
        Ok(())
    }
}

/// A policy.
pub struct ByPolicy(pub Box<dyn SpecPolicy>);

impl<E: Executor> Drafter<E> for ByPolicy {
    const ACTIVE: bool = true;

    fn limit(&self) -> u32 {
        self.0.limit()
    }

    fn tree_tokens(&self) -> u32 {
        self.0.tree_tokens()
    }

    fn drafts_for_next(&mut self) -> bool {
        self.0.drafts_for_next()
    }

    fn prefix(&mut self, batch: &BatchView) -> Option<usize> {
        (self.0.chooses_prefix() && !batch.is_empty()).then(|| self.0.prefix(batch).clamp(1, batch.len()))
    }

    fn speculate(
        &mut self,
        executor: &mut E,
        step: &StepPlan,
        plan: &mut DraftPlan,
        drafts: &mut Drafts,
    ) -> Result<(), E::Error> {
        let batch = &step.batch;
        drafts.want(self.0.wants());
        if !batch.is_empty() {
            self.0.propose(batch, plan);
            executor.deliberated(Moment::Propose);
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
                executor.deliberated(Moment::KeepDrafting);
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
                executor.deliberated(Moment::Select);
            }
            drafts.measure_trees(batch.limit);
            let kept = drafts.verify_len.iter().zip(&drafts.draft_len).all(|(&v, &d)| v <= d);
            assert!(kept, "a policy selected more than was drafted: {:?} of {:?}", drafts.verify_len, drafts.draft_len);
        }
        Ok(())
    }

    fn observe(&mut self, outcome: &StepOutcome) {
        self.0.observe(outcome);
    }

    fn warnings(&self) -> Vec<String> {
        self.0.warnings()
    }
}

/// A bound that sees the hidden truth.
pub struct ByOracle(pub Box<dyn OraclePolicy>);

impl<'a> Drafter<EventClock<'a>> for ByOracle {
    const ACTIVE: bool = true;

    fn limit(&self) -> u32 {
        self.0.limit()
    }

    fn speculate(
        &mut self,
        executor: &mut EventClock<'a>,
        step: &StepPlan,
        plan: &mut DraftPlan,
        drafts: &mut Drafts,
    ) -> Result<(), <EventClock<'a> as Executor>::Error> {
        if !step.batch.is_empty() {
            self.0.propose(&step.batch, &executor.truth(&step.batch), plan);
        }
        let (common_len, depth) = clamp(&step.batch, plan, drafts);
        for pass in 1..=depth {
            run_pass(executor, step, plan, pass, common_len, drafts)?;
        }
        idle_pass(executor, step, depth, drafts)?;
        drafts.verify_len.extend_from_slice(&drafts.draft_len);
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
