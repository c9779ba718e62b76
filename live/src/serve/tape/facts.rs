//! Facts that are computed from the marks of a step: its time span, its passes, and the host time between passes.

use foretoken_sim::live::{Mark, MarkKind, StepTrace};
use foretoken_sim::{PassShape, Time};

/// (start, end) of a step, from the start of its scheduling to the end of its target pass. `None` for a record without
/// a target pass, which has the events after the last step.
pub fn span(step: &StepTrace) -> Option<(Time, Time)> {
    let verify = step.marks.iter().find(|m| m.kind == MarkKind::Verify)?;
    let start = step.marks.iter().rfind(|m| m.kind == MarkKind::Round && m.begin <= verify.begin);
    Some((start.map_or(verify.begin, |m| m.begin), verify.end))
}

/// A forward pass of the target or the draft.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pass {
    /// The shape of the pass: its numbers of new tokens, context tokens and query-key pairs.
    pub shape: PassShape,
    /// Duration of the pass on the host's clock, as the run measured it.
    pub time: Time,
}

/// The passes of a step, and the host time between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Passes {
    /// The draft passes in order. Passes of 0 tokens are left out.
    pub draft: Vec<Pass>,
    pub target: Pass,
    /// Time between passes: the work of the scheduler and the policy in this step, and the work after the target pass
    /// of the step before. Does not include the time in which the engine waits for arrivals, and the time that the
    /// recording of the steps takes.
    pub host: Time,
}

impl Default for Pass {
    fn default() -> Self {
        Pass { shape: PassShape::default(), time: Time::ZERO }
    }
}

/// The passes of a step. `last_end` is the end of the step before. `None` for a record without a target pass, which has
/// the events after the last step.
pub fn passes(step: &StepTrace, last_end: Time) -> Option<Passes> {
    let pass = |m: &Mark| Pass { shape: m.shape, time: m.end - m.begin };
    let target = step.marks.iter().find(|m| m.kind == MarkKind::Verify).map(pass)?;
    let draft = step.marks.iter().filter(|m| matches!(m.kind, MarkKind::Draft(_)) && m.shape.batched > 0);
    Some(Passes { draft: draft.map(pass).collect(), target, host: step.host(last_end) })
}
