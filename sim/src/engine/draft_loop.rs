//! The draft loop: the drafter proposes draft lengths, draft passes run with a call of the drafter after each, and the
//! drafter selects the draft tokens to verify. The loop is the same whether draft tokens are made at the start or at
//! the end of a step.

use super::draft_passes::{DraftPasses, Ran};
use super::hooks::Hooks;
use super::spec_decode::SpecDecode;
use crate::drafts::Drafts;
use crate::executor::{DraftPass, Executor, Moment, PassCost, StepPlan};
use crate::latency::PassShape;
use crate::policy::{BatchView, Continue, DraftPlan, DraftShape};
use crate::shape;

/// Makes draft tokens at the start of the step that verifies them, at most `max_draft_len` a request: the drafter
/// proposes draft lengths, the draft passes run, and the drafter selects the draft tokens to verify. `in_parallel` says
/// whether one pass gives all draft tokens of a request. `batch` is the drafter's view of the requests, `step` has
/// their state on the device. Afterwards the lengths in `spec.drafts` are final.
pub(crate) fn draft_at_start<E: Executor, D: Hooks<E> + ?Sized>(
    drafter: &mut D,
    executor: &mut E,
    (step, batch): (&StepPlan, &BatchView),
    max_draft_len: u32,
    in_parallel: bool,
    spec: &mut SpecDecode,
) -> Result<(), E::Error> {
    spec.reset(batch.len(), max_draft_len);
    let SpecDecode { plan, drafts, .. } = spec;
    drafter.propose(executor, batch, &step.batch, plan, drafts);
    let (mut common_len, depth) = clamp(batch.limit, plan, drafts);
    let one_length = step.one_length && plan.shape == DraftShape::Chain;
    if one_length {
        plan.draft_len.fill(depth);
        common_len = depth;
    }
    let mut run = Run { step, batch, plan, common_len, in_parallel, drafts };
    let (_, stopped) = run.passes(drafter, executor, depth, |_| PassCost::ByPass)?;
    let even = !stopped && run.common_len == depth;
    if depth == 0 && shape::draft_idle_pass(&step.batch).is_some() {
        // Even if nothing is drafted, the draft model may have to process prompts, or tokens that it missed
        // (docs/model.md 12).
        run.idle(executor, PassCost::ByPass)?;
    }
    drafts.verify_len.extend_from_slice(&drafts.draft_len);
    if depth > 0 && one_length {
        // Every request is verified with all that its batch drafted.
        drafts.note_even(drafts.draft_len.first().copied().unwrap_or(0));
    } else if depth > 0 {
        select(drafter, executor, batch, drafts, even.then_some(depth));
    }
    spec.drafted(in_parallel);
    Ok(())
}

/// Runs the draft passes at the end of a step, including the passes that give no draft tokens. `ran` has the token
/// counts of the step that just ran. `batch` is the drafter's view of the requests. `step` has the requests' state on
/// the device. `plan` has the wanted draft lengths, at most `k` tokens each. Returns the number of draft passes.
pub(super) fn draft_at_end<E: Executor, D: Hooks<E> + ?Sized>(
    drafter: &mut D,
    executor: &mut E,
    (step, batch): (&StepPlan, &BatchView),
    (passes, ran, k): (&DraftPasses, &Ran, u32),
    plan: &mut DraftPlan,
    drafts: &mut Drafts,
) -> Result<u32, E::Error> {
    let (in_parallel, trees) = (passes.in_parallel(), matches!(plan.shape, DraftShape::Tree(_)));
    let (mut common_len, mut depth) = (u32::MAX, 0);
    for &d in &plan.draft_len {
        (common_len, depth) = (common_len.min(d), depth.max(d));
    }
    common_len = if trees { 0 } else { common_len };
    let mut run = Run { step, batch, plan, common_len, in_parallel, drafts };
    // Number of draft passes before the first one that gives draft tokens.
    let silent = (1..=passes.number(k)).take_while(|&pass| passes.writes_context(pass)).count() as u32;
    for pass in 1..=silent {
        run.idle(executor, passes.cost(ran, k, pass))?;
    }
    let cost = |pass: u32| match pass {
        _ if in_parallel && pass > 1 => PassCost::Free,
        _ => passes.cost(ran, k, silent + pass),
    };
    let (made, stopped) = run.passes(drafter, executor, depth, cost)?;
    let made = silent + if in_parallel { made.min(1) } else { made };
    let number = if stopped && !passes.always_all { made } else { passes.number(k) };
    for pass in made + 1..=number {
        run.idle(executor, passes.cost(ran, k, pass))?;
    }
    Ok(number)
}

/// Lets the drafter select which draft tokens are verified, and counts the tokens to verify of draft trees. If the
/// drafter decided anything, charges the decision time and returns true. `even`: the draft length, if all requests have
/// chains of the same length. Panics if the drafter selects more tokens than were drafted.
pub(super) fn select<E: Executor, D: Hooks<E> + ?Sized>(
    drafter: &mut D,
    executor: &mut E,
    batch: &BatchView,
    drafts: &mut Drafts,
    even: Option<u32>,
) -> bool {
    drafter.select(batch, drafts);
    let decided = drafts.was_decided();
    if decided {
        executor.charge_decision(Moment::Select);
    } else if even.is_some_and(|len| drafts.note_even(len)) {
        return false;
    }
    drafts.measure_trees(batch.limit);
    assert!(
        drafts.note_common(),
        "a policy selected more than was drafted: {:?} of {:?}",
        drafts.verify_len,
        drafts.draft_len
    );
    decided
}

/// Lowers each planned draft length to the request's limit and to the engine's longest draft length, and starts an
/// empty draft tree for each request if trees are drafted. (For a tree the limit is a number of tokens; its depth
/// cannot be larger.) Returns the shortest draft length (0 for trees) and the longest draft length.
pub(super) fn clamp(limit: &[u32], plan: &mut DraftPlan, drafts: &mut Drafts) -> (u32, u32) {
    // The frequent case, kept fast: all requests have chains (one guess for each position) of the same length, and this
    // length is within all limits.
    if plan.shape == DraftShape::Chain
        && let Some(&len) = plan.draft_len.first()
        && len <= drafts.max_draft_len()
    {
        // Compares all requests at once: `sign` falls below zero if the limit of any request is lower than the draft
        // length.
        let (differs, sign) =
            plan.draft_len.iter().zip(limit).fold((0, 0), |(differs, sign), (&d, &limit)| {
                (differs | (d ^ len), sign | limit.wrapping_sub(len) as i32)
            });
        if differs == 0 && sign >= 0 {
            return (len, len);
        }
    }
    let (mut shortest, mut longest) = (u32::MAX, 0);
    for (d, &limit) in plan.draft_len.iter_mut().zip(limit) {
        *d = (*d).min(limit).min(drafts.max_draft_len());
        shortest = shortest.min(*d);
        longest = longest.max(*d);
    }
    if let DraftShape::Tree(_) = plan.shape {
        drafts.plant(limit.len());
        shortest = 0;
    }
    (shortest, longest)
}

/// The inputs and buffers of one step's draft passes: the requests, the planned draft lengths, and the draft tokens so
/// far.
struct Run<'a> {
    step: &'a StepPlan<'a>,
    /// The batch that the drafter sees.
    batch: &'a BatchView<'a>,
    plan: &'a mut DraftPlan,
    common_len: u32,
    in_parallel: bool,
    drafts: &'a mut Drafts,
}

impl Run<'_> {
    /// Runs up to `depth` draft passes. After each pass the drafter decides whether to run the next one, and the time
    /// of this decision is charged. Returns the number of passes, and whether the drafter stopped before `depth`.
    #[inline]
    fn passes<E: Executor, D: Hooks<E> + ?Sized>(
        &mut self,
        drafter: &mut D,
        executor: &mut E,
        depth: u32,
        cost: impl Fn(u32) -> PassCost,
    ) -> Result<(u32, bool), E::Error> {
        for pass in 1..=depth {
            self.pass(executor, pass, cost(pass))?;
            let go_on = drafter.keep_drafting(self.batch, self.drafts);
            // To read the drafted values, the host must wait for the device. If one pass gives all draft tokens, the
            // host waits only once, so the decision time is charged only for the first pass.
            if self.drafts.was_decided() && (pass == 1 || !self.in_parallel) {
                executor.charge_decision(Moment::KeepDrafting);
            }
            if go_on == Continue::Stop {
                return Ok((pass, true));
            }
            // Where all requests draft as many tokens, one that needs no more stays in the batch.
            if !self.step.one_length && self.drafts.leave_stopped(&mut self.plan.draft_len) {
                self.common_len = 0;
                if !self.plan.draft_len.iter().any(|&d| d > pass) {
                    return Ok((pass, true));
                }
            }
        }
        Ok((depth, false))
    }

    #[inline]
    fn pass<E: Executor>(&mut self, executor: &mut E, pass: u32, cost: PassCost) -> Result<(), E::Error> {
        let growth = match &self.plan.shape {
            DraftShape::Chain => None,
            DraftShape::Tree(growth) => Some(growth),
        };
        let cost = match cost {
            PassCost::Given(shape) if growth.is_some() && pass > 1 => PassCost::Given(self.widened(shape, pass)),
            cost => cost,
        };
        let pass = &DraftPass { pass, draft_len: &self.plan.draft_len, common_len: self.common_len, growth, cost };
        executor.draft(self.step, pass, self.drafts)?;
        self.drafts.passes = pass.pass;
        if pass.pass <= pass.common_len {
            self.drafts.draft_len.fill(pass.pass);
            return Ok(());
        }
        for (have, &planned) in self.drafts.draft_len.iter_mut().zip(pass.draft_len) {
            *have += u32::from(planned >= pass.pass);
        }
        Ok(())
    }

    /// How many tokens draft pass `pass` processes, and how many KV tokens it reads. `shape` counts one token for each
    /// request; this adds the further nodes of each request's draft tree in the pass.
    fn widened(&self, mut shape: PassShape, pass: u32) -> PassShape {
        for (i, tree) in self.drafts.trees.iter().enumerate().take(self.step.batch.len()) {
            if self.plan.draft_len[i] >= pass {
                let (more, context) = (u64::from(tree.width()) - 1, u64::from(self.step.batch.context[i]));
                let behind = u64::from(tree.ran()) - u64::from(pass - 1);
                shape.batched += more;
                shape.context += behind;
                shape.pairs += more * (context + u64::from(pass)) + behind;
            }
        }
        shape
    }

    /// Runs a draft pass that gives no draft tokens. Afterwards the step's number of draft passes is at least 1.
    fn idle<E: Executor>(&mut self, executor: &mut E, cost: PassCost) -> Result<(), E::Error> {
        let pass = DraftPass { pass: 0, draft_len: &[], common_len: 0, growth: None, cost };
        executor.draft(self.step, &pass, self.drafts)?;
        self.drafts.passes = self.drafts.passes.max(1);
        Ok(())
    }
}
