//! Errors of predicted passes by kind of pass. Each live pass is predicted from its own shape with the costs alone: no
//! schedule and no acceptance take part.

use super::pace::{Pace, Paced};
use crate::serve::tape::{Tape, passes, span};
use foretoken_profiler::Role;
use foretoken_sim::live::StepTrace;
use foretoken_sim::{ContextReads, LatencyModel, PassShape, Time};
use serde::{Deserialize, Serialize};

/// Most tokens of a decode or verify pass; larger target passes are wide.
const NARROW: u64 = 64;

/// A kind of pass, by model and work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Region {
    /// Target: one token per request.
    Decode,
    /// Target: drafts to verify.
    Verify,
    /// Target: over 64 tokens without a prompt.
    Wide,
    /// Target: with a chunk of a prompt.
    Prefill,
    /// Draft: tokens of decoding requests.
    Draft,
    /// Draft: with a chunk of a prompt.
    DraftPrefill,
}

impl Region {
    /// All kinds of passes.
    pub const ALL: [Region; 6] =
        [Region::Decode, Region::Verify, Region::Wide, Region::Prefill, Region::Draft, Region::DraftPrefill];

    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Region::Decode => "target, decode",
            Region::Verify => "target, verify",
            Region::Wide => "target, over 64 tokens",
            Region::Prefill => "target, with prompts",
            Region::Draft => "draft",
            Region::DraftPrefill => "draft, with prompts",
        }
    }
}

/// The errors of all passes of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RegionError {
    /// The kind of pass.
    pub region: Region,
    /// Number of passes.
    pub passes: u64,
    /// Share of this kind in the time of all passes.
    pub share: f64,
    /// Mean measured time, in seconds.
    pub live_s: f64,
    /// Mean predicted time, in seconds.
    pub predicted_s: f64,
    /// Error of the sum: predicted over measured, minus 1.
    pub error: f64,
    /// Mean relative error of single passes, without sign.
    pub mean_absolute_error: f64,
}

/// (measured, predicted) seconds of a step's passes, for a scatter plot.
pub type Point = (f64, f64);

/// Errors by kind of pass over these tapes, each at its pace, predicted by models of (draft, target) passes. Also
/// returns (measured, predicted) seconds for every step's passes.
pub fn regions<'a>(
    tapes: impl IntoIterator<Item = (&'a Tape, &'a Pace)>,
    (draft, target): (&dyn LatencyModel, &dyn LatencyModel),
    reads: ContextReads,
) -> (Vec<RegionError>, Vec<Point>) {
    let mut sums = [Sum::default(); Region::ALL.len()];
    let mut points = Vec::new();
    for (tape, pace) in tapes {
        let paced = |model, role| Paced { model, role, pace, slower: 1.0 };
        let (draft, target) = (paced(draft, Role::Draft), paced(target, Role::Target));
        let mut last_end = Time::ZERO;
        for step in &tape.steps {
            let Some(of) = passes(step, last_end) else { continue };
            last_end = span(step).map_or(last_end, |(_, end)| end);
            let with_prompts = step.chunks.iter().any(|c| c.draft_tokens > 0);
            let mut both = (0.0, 0.0);
            let mut add = |region: Region, live: Time, predicted: Time| {
                sums[region as usize].add(live.as_s(), predicted.as_s());
                both = (both.0 + live.as_s(), both.1 + predicted.as_s());
            };
            for (i, pass) in of.draft.iter().enumerate() {
                let region = if i == 0 && with_prompts { Region::DraftPrefill } else { Region::Draft };
                add(region, pass.time, draft.pass(pass.shape));
            }
            let shape = as_read(of.target.shape, step, reads);
            let region = match () {
                () if !step.chunks.is_empty() => Region::Prefill,
                () if shape.batched > NARROW => Region::Wide,
                () if step.rounds.iter().any(|r| r.verified > 0) => Region::Verify,
                () => Region::Decode,
            };
            add(region, of.target.time, target.pass(shape));
            points.push(both);
        }
    }
    (all(&sums), points)
}

/// Combines the errors of several cells.
pub fn together<'a>(cells: impl IntoIterator<Item = &'a [RegionError]>) -> Vec<RegionError> {
    let mut sums = [Sum::default(); Region::ALL.len()];
    for r in cells.into_iter().flatten() {
        let (sum, n) = (&mut sums[r.region as usize], r.passes as f64);
        sum.passes += r.passes;
        sum.live += n * r.live_s;
        sum.predicted += n * r.predicted_s;
        sum.errors += n * r.mean_absolute_error;
    }
    all(&sums)
}

fn all(sums: &[Sum]) -> Vec<RegionError> {
    let all: f64 = sums.iter().map(|s| s.live).sum();
    let told = |(region, s): (&Region, &Sum)| (s.passes > 0).then(|| s.told(*region, all));
    Region::ALL.iter().zip(sums).filter_map(told).collect()
}

/// The shape of a target pass as this device reads context; the recorded shape counts context once per request.
fn as_read(shape: PassShape, step: &StepTrace, reads: ContextReads) -> PassShape {
    if reads == ContextReads::Once || step.rounds.iter().any(|r| r.nodes > 0) {
        return shape;
    }
    // Each verified position after the first reads the context and the positions before it.
    let again = |r: &foretoken_sim::live::Round| {
        let (v, c) = (u64::from(r.verified), u64::from(r.context));
        v * c + v * (v + 1) / 2
    };
    PassShape { context: shape.context + step.rounds.iter().map(again).sum::<u64>(), ..shape }
}

#[derive(Clone, Copy, Default)]
struct Sum {
    passes: u64,
    live: f64,
    predicted: f64,
    errors: f64,
}

impl Sum {
    fn add(&mut self, live: f64, predicted: f64) {
        self.passes += 1;
        self.live += live;
        self.predicted += predicted;
        self.errors += (predicted / live.max(1e-12) - 1.0).abs();
    }

    fn told(&self, region: Region, all: f64) -> RegionError {
        let n = self.passes as f64;
        RegionError {
            region,
            passes: self.passes,
            share: self.live / all,
            live_s: self.live / n,
            predicted_s: self.predicted / n,
            error: self.predicted / self.live - 1.0,
            mean_absolute_error: self.errors / n,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::tape::{End, Head};
    use foretoken_intact::frames::Cut;
    use foretoken_sim::live::{Mark, MarkKind, Round};
    use foretoken_sim::{Arrivals, Coefficients, Linear, Workload};

    #[test]
    fn each_pass_is_predicted_with_its_own_shape() {
        let mark = |kind, begin_us: u64, end_us: u64, batched| Mark {
            kind,
            begin: Time(begin_us * 1_000_000),
            end: Time(end_us * 1_000_000),
            device: Time::ZERO,
            shape: PassShape { batched, context: 10, pairs: 0 },
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
        let cut = Cut { frame: 2, offset: 99, there: 0, whole: None };
        let tape = Tape { head, steps, end: End::Cut(cut) };
        let draft = Linear::new(Coefficients { alpha_s: 0.0, gamma_s: 0.0, delta_s: 11e-6 });
        let target = Linear::new(Coefficients { alpha_s: 1e-6, gamma_s: 20e-6, delta_s: 0.0 });
        let usual = Pace::default();
        let models: (&dyn LatencyModel, &dyn LatencyModel) = (&draft, &target);
        let (found, points) = regions([(&tape, &usual)], models, ContextReads::Once);
        assert_eq!(
            found.iter().map(|r| (r.region, r.passes)).collect::<Vec<_>>(),
            [(Region::Verify, 1), (Region::Draft, 2)]
        );
        let close = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(close(found[0].error, -0.3) && close(found[0].share, 100.0 / 120.0), "{found:?}");
        assert!(close(found[1].error, 0.1) && close(found[1].mean_absolute_error, 0.1), "{found:?}");
        assert!(close(points[0].0, 120e-6) && close(points[0].1, 92e-6), "{points:?}");
        // Twice the same passes have the same errors, and so do two cells with the same passes.
        let (twice, _) = regions([(&tape, &usual); 2], models, ContextReads::Once);
        assert_eq!((twice[0].passes, twice[1].passes), (2, 4));
        let cells = together([&found[..], &found]);
        for (one, two) in found.iter().zip(twice.iter().zip(&cells)).map(|(one, (a, b))| (one, [a, b])) {
            assert!(
                two.iter()
                    .all(|r| close(r.error, one.error) && close(r.live_s, one.live_s) && close(r.share, one.share))
            );
        }
        // Context is read once per position: 10, 11 and 12 tokens.
        let (found, _) = regions([(&tape, &usual)], models, ContextReads::PerPosition);
        assert!(close(found[0].predicted_s, 93e-6), "{found:?}");
    }
}
