//! How far predicted passes are from measured ones, by what kind of pass it is. Each live pass is predicted with its own shape:
//! no schedule, no acceptance, nothing but the profile.

use super::pace::{Pace, Paced};
use crate::serve::tape::{Tape, passes, span};
use foretoken_profiler::Role;
use foretoken_sim::live::StepTrace;
use foretoken_sim::{ContextReads, LatencyModel, PassShape, Time};
use serde::{Deserialize, Serialize};

/// Passes of at most so many tokens are decode or verify passes; beyond it they are wide.
const NARROW: u64 = 64;

/// A kind of pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Region {
    /// Of the target: one token a request.
    Decode,
    /// Of the target: drafts to verify.
    Verify,
    /// Of the target: over 64 tokens without a prompt.
    Wide,
    /// Of the target: with a piece of a prompt.
    Prefill,
    /// Of the draft: tokens of requests that decode.
    Draft,
    /// Of the draft: with a piece of a prompt.
    DraftPrefill,
}

impl Region {
    /// All of them.
    pub const ALL: [Region; 6] =
        [Region::Decode, Region::Verify, Region::Wide, Region::Prefill, Region::Draft, Region::DraftPrefill];

    /// In words.
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

/// The passes of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RegionError {
    /// Which.
    pub region: Region,
    /// How many.
    pub passes: u64,
    /// Their share of the time in passes.
    pub share: f64,
    /// Mean measured time, seconds.
    pub live_s: f64,
    /// Mean predicted time, seconds.
    pub predicted_s: f64,
    /// Error of the sum: predicted over measured − 1.
    pub error: f64,
    /// Mean error of single passes, without sign.
    pub mean_absolute_error: f64,
}

/// A predicted pass beside the measured one, seconds: what a scatter shows.
pub type Point = (f64, f64);

/// The errors by region of these recordings together, each made at its pace, by models of (draft, target) passes; and every step's
/// passes: (measured, predicted).
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

/// The regions of several cells together.
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

/// The shape of a target pass, recorded with context read once a request, as this device reads it.
fn as_read(shape: PassShape, step: &StepTrace, reads: ContextReads) -> PassShape {
    if reads == ContextReads::Once || step.rounds.iter().any(|r| r.nodes > 0) {
        return shape;
    }
    // Beside the first position, each verified one reads the context and those before it.
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
        // Twice as much of the same is as wrong, and so are two cells of it.
        let (twice, _) = regions([(&tape, &usual); 2], models, ContextReads::Once);
        assert_eq!((twice[0].passes, twice[1].passes), (2, 4));
        let cells = together([&found[..], &found]);
        for (one, two) in found.iter().zip(twice.iter().zip(&cells)).map(|(one, (a, b))| (one, [a, b])) {
            assert!(
                two.iter()
                    .all(|r| close(r.error, one.error) && close(r.live_s, one.live_s) && close(r.share, one.share))
            );
        }
        // Read once a position: 10, 11 and 12 tokens.
        let (found, _) = regions([(&tape, &usual)], models, ContextReads::PerPosition);
        assert!(close(found[0].predicted_s, 93e-6), "{found:?}");
    }
}
