//! Predicts the time of each recorded pass from its shape and from the machine's speed during the run. Compares the
//! prediction with the measured time.

use super::machine_speed::{Pace, Paced};
use crate::serve::tape::{Tape, passes, span};
use foretoken_profiler::{Kind, Region, Role};
use foretoken_servers::compare::live_runs::StepTimes;
use foretoken_servers::compare::pass_errors::{PassErrors, PassKind, PassTimes};
use foretoken_sim::live::{Round, StepTrace};
use foretoken_sim::{ContextReads, LatencyModel, Pair, PassShape, Time};

#[derive(Default)]
pub struct PredictedPasses {
    /// Errors of the predicted pass times, by kind of pass (prefill, verify, decode) and model.
    pub errors: Vec<PassErrors>,
    /// For each step: the measured and the predicted time of all passes of the step together.
    pub steps: Vec<StepTimes>,
}

/// Predicts the passes of these tapes with `costs`. Each tape comes with its pace: the factor by which passes took
/// longer than usual during the run. `reads` says how the target's costs count the context of a verification pass.
pub fn predict_passes<'a>(
    tapes: impl IntoIterator<Item = (&'a Tape, &'a Pace)>,
    costs: Pair<&dyn LatencyModel>,
    reads: ContextReads,
) -> PredictedPasses {
    let (mut times, mut steps) = (PassTimes::default(), Vec::new());
    for (tape, pace) in tapes {
        let draft = Paced { model: costs.draft, role: Role::Draft, pace, slower: 1.0 };
        let target = Paced { model: costs.target, role: Role::Target, pace, slower: 1.0 };
        let mut last_end = Time::ZERO;
        for step in &tape.steps {
            let Some(ran) = passes(step, last_end) else { continue };
            last_end = span(step).map_or(last_end, |(_, end)| end);
            let mut both = StepTimes::default();
            let mut add = |kind: PassKind, measured: Time, predicted: Time| {
                times.add(kind, measured.as_s(), predicted.as_s());
                both.measured_s += measured.as_s();
                both.predicted_s += predicted.as_s();
            };
            let with_prompts = step.chunks.iter().any(|c| c.draft_tokens > 0);
            for (i, pass) in ran.draft.iter().enumerate() {
                let kind = if i == 0 && with_prompts { PassKind::DraftPrefill } else { PassKind::Draft };
                add(kind, pass.time, draft.pass(pass.shape));
            }
            let shape = as_read(ran.target.shape, step, reads);
            add(Region::of_pass(kind(step), shape.batched).into(), ran.target.time, target.pass(shape));
            steps.push(both);
        }
    }
    PredictedPasses { errors: times.errors(), steps }
}

/// The kind of a step's target pass: prefill if it has a prefill chunk, else verification if it has draft tokens to
/// verify, else decode.
fn kind(step: &StepTrace) -> Kind {
    if !step.chunks.is_empty() {
        Kind::Prefill
    } else if step.rounds.iter().any(|r| r.verified > 0) {
        Kind::Verify
    } else {
        Kind::Decode
    }
}

/// Returns the shape of a target pass, given the shape that a tape recorded. The tape counts context once per request;
/// the result counts it as `reads` says: once per request or once per new token. The shape of a step with draft trees
/// is not changed.
fn as_read(shape: PassShape, step: &StepTrace, reads: ContextReads) -> PassShape {
    if reads == ContextReads::Once || step.rounds.iter().any(|r| r.nodes > 0) {
        return shape;
    }
    // The recorded shape counts a request's context once. Each of its `verified` draft tokens reads the context again,
    // and also the new tokens before itself.
    let added = |r: &Round| {
        let (v, c) = (u64::from(r.verified), u64::from(r.context));
        v * c + v * (v + 1) / 2
    };
    PassShape { context: shape.context + step.rounds.iter().map(added).sum::<u64>(), ..shape }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::tape::{End, Head};
    use foretoken_sim::live::{Mark, MarkKind};
    use foretoken_sim::{Arrivals, Coefficients, Linear, Workload};
    use foretoken_traces::intact::frames::Cut;

    /// A tape of one step: two draft passes of 10 µs each, then a verification pass of 100 µs over 3 tokens.
    fn tape() -> Tape {
        let mark = |kind, begin_us: u64, end_us: u64, batched| Mark {
            kind,
            begin: Time(begin_us * 1_000_000),
            end: Time(end_us * 1_000_000),
            device: Time::ZERO,
            shape: PassShape { requests: 1, batched, context: 10, pairs: 0 },
        };
        let round = Round { request: 0, start: 1, context: 10, drafted: 2, verified: 2, accepted: 0, nodes: 0 };
        let marks = vec![
            mark(MarkKind::Round, 0, 0, 0),
            mark(MarkKind::Draft(1), 5, 15, 1),
            mark(MarkKind::Draft(2), 15, 25, 1),
            mark(MarkKind::Verify, 30, 130, 3),
        ];
        let steps = vec![StepTrace { marks, rounds: vec![round], ..StepTrace::default() }];
        let head = Head::new("x".into(), 1, "cpu".into(), Arrivals::Open, &Workload::default());
        Tape { head, steps, end: End::Cut(Cut { frame: 2, offset: 99, there: 0, whole: None }) }
    }

    fn predicted(reads: ContextReads) -> PredictedPasses {
        let draft = Linear::new(Coefficients { alpha_s: 0.0, gamma_s: 0.0, delta_s: 11e-6 });
        let target = Linear::new(Coefficients { alpha_s: 1e-6, gamma_s: 20e-6, delta_s: 0.0 });
        predict_passes([(&tape(), &Pace::default())], Pair { target: &target, draft: &draft }, reads)
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    #[test]
    fn each_pass_is_predicted_with_its_own_shape() {
        let PredictedPasses { errors, steps } = predicted(ContextReads::Once);
        let kinds: Vec<_> = errors.iter().map(|r| (r.region, r.passes)).collect();
        assert_eq!(kinds, [(PassKind::Verify, 1), (PassKind::Draft, 2)]);
        assert!(close(errors[0].error, -0.3) && close(errors[0].share, 100.0 / 120.0), "{errors:?}");
        assert!(close(errors[1].error, 0.1) && close(errors[1].mean_absolute_error, 0.1), "{errors:?}");
        assert!(close(steps[0].measured_s, 120e-6) && close(steps[0].predicted_s, 92e-6), "{steps:?}");
    }

    #[test]
    fn context_can_be_counted_once_per_position() {
        // The pass has three positions, which read 10, 11 and 12 tokens of context.
        let errors = predicted(ContextReads::PerPosition).errors;
        assert!(close(errors[0].predicted_s, 93e-6), "{errors:?}");
    }
}
