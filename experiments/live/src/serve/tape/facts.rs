//! What the marks of a step say: when it ran, its passes, and what the host took in between.

use foretoken_sim::live::{Mark, MarkKind, StepTrace};
use foretoken_sim::{PassShape, Time};

/// Start and end of a step: from when its scheduling began to when its target pass ended. `None` for what follows the last step.
pub fn span(step: &StepTrace) -> Option<(Time, Time)> {
    let verify = step.marks.iter().find(|m| m.kind == MarkKind::Verify)?;
    let start = step.marks.iter().rfind(|m| m.kind == MarkKind::Round && m.begin <= verify.begin);
    Some((start.map_or(verify.begin, |m| m.begin), verify.end))
}

/// A forward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pass {
    /// What it ran over.
    pub shape: PassShape,
    /// How long it took, as the host saw it.
    pub time: Time,
}

/// The passes of a step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Passes {
    /// Of the draft, in order; without those that had nothing to run over.
    pub draft: Vec<Pass>,
    /// Of the target.
    pub target: Pass,
    /// Time between passes, waits left out: scheduler, policy, and committing the step before.
    pub host: Time,
}

impl Default for Pass {
    fn default() -> Self {
        Pass { shape: PassShape::default(), time: Time::ZERO }
    }
}

/// The passes of a step that began when the one before ended; `None` for what follows the last step.
pub fn passes(step: &StepTrace, last_end: Time) -> Option<Passes> {
    let pass = |m: &Mark| Pass { shape: m.shape, time: m.end - m.begin };
    let target = step.marks.iter().find(|m| m.kind == MarkKind::Verify).map(pass)?;
    let draft = step.marks.iter().filter(|m| matches!(m.kind, MarkKind::Draft(_)) && m.shape.batched > 0);
    Some(Passes { draft: draft.map(pass).collect(), target, host: step.host(last_end) })
}
