//! The machine's speed during a piece, computed from the piece's probes. A profile's costs are means over a longer
//! time; during a piece the machine may be slower or faster. The pace of a piece is the factor by which passes took
//! longer than usual. Other users of a shared cache slow down passes of few tokens, and hardly slow down passes of many
//! tokens. The pace therefore depends on the number of tokens.
//!
//! The pace is computed from probes only, never from the passes of the live runs.

use super::probe::{Probe, Probed, by_pass};
use super::runs::{Piece, Runs};
use foretoken_profiler::{ProbedPass, Role, median, uninterrupted_mean};
use foretoken_sim::{LatencyModel, Pair, PassShape, Time};

/// The machine's pace during a piece: the factor by which passes took longer than usual.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pace {
    /// For the target and for the draft model: the passes of fixed shapes that were timed to see the machine's speed,
    /// in rising order of their tokens.
    by_tokens: Pair<Vec<PacePoint>>,
}

/// The factor by which one pass of fixed shape took longer than usual. The pass was timed to see the machine's speed.
#[derive(Clone, Copy, Debug, PartialEq)]
struct PacePoint {
    /// Natural logarithm of the pass's number of new tokens.
    ln_tokens: f64,
    /// The pass's time during the piece, divided by its usual time. A calibrated profile states the usual time. Without
    /// such a profile, it is the pass's mean time over all pieces.
    factor: f64,
}

/// The usual time in seconds of each pass of fixed shape that probes time (a probe shows the machine's speed). It is
/// the mean of the pass's times in all probes, without times that an interruption lengthened. The mean is used
/// because a profile's costs are means too.
pub fn usual<'a>(probes: impl IntoIterator<Item = &'a Probe>) -> Vec<f64> {
    by_pass(probes).iter().map(|all| uninterrupted_mean(all)).collect()
}

/// The usual time of each probed pass (a timed pass of fixed shape) in seconds. `given` are the probed passes that came
/// with fitted costs. If `given` has all probed passes of these runs, the times in `given` are the usual times. The
/// prediction then accounts for a change of the machine's speed since the costs were fitted. Otherwise the usual times
/// come from the probes of these runs.
pub fn usual_of(runs: &Runs, given: &[ProbedPass]) -> Vec<f64> {
    let found = |p: &Probed| given.iter().find(|g| (g.role, g.shape) == (p.role, p.shape)).map(|g| g.seconds);
    let all: Option<Vec<f64>> = runs.probed.iter().map(found).collect();
    all.filter(|all| !all.is_empty()).unwrap_or_else(|| usual(runs.probes()))
}

/// The passes of fixed shapes that show the machine's speed, each with its model, its shape and its usual time over
/// these runs.
pub fn usual_passes(runs: &Runs) -> Vec<ProbedPass> {
    let pass = |(p, seconds): (&Probed, f64)| ProbedPass { role: p.role, shape: p.shape, seconds };
    runs.probed.iter().zip(usual(runs.probes())).map(pass).collect()
}

/// For each piece of each cell: its pace, the factor by which passes took longer than usual. `usual` are the usual
/// times of the probed passes in seconds.
pub fn paces(runs: &Runs, usual: &[f64]) -> Vec<Vec<Pace>> {
    let pace = |piece: &Piece| Pace::of(&runs.probed, &piece.probes, usual);
    runs.entries.iter().map(|entry| entry.pieces.iter().map(pace).collect()).collect()
}

impl Pace {
    /// The pace of a piece: the factor by which passes took longer than usual. `probes` are the timings of the passes
    /// `probed` during the piece. `usual` are the usual times of these passes in seconds. Without probes, all factors
    /// are 1.
    pub fn of(probed: &[Probed], probes: &[Probe], usual: &[f64]) -> Pace {
        let mut pace = Pace::default();
        for ((probed, here), usual) in probed.iter().zip(self::usual(probes)).zip(usual) {
            let points = match probed.role {
                Role::Target => &mut pace.by_tokens.target,
                Role::Draft => &mut pace.by_tokens.draft,
            };
            points.push(PacePoint { ln_tokens: (probed.shape.batched() as f64).ln(), factor: here / usual });
            points.sort_by(|a, b| a.ln_tokens.total_cmp(&b.ln_tokens));
        }
        pace
    }

    /// The factor by which passes of `tokens` new tokens took longer than usual. The factor is interpolated between the
    /// probed passes, on a logarithmic scale of tokens. Outside of their range it is the factor of the nearest probed
    /// pass. Without probed passes it is 1.
    pub fn factor(&self, role: Role, tokens: u64) -> f64 {
        let points = match role {
            Role::Target => &self.by_tokens.target,
            Role::Draft => &self.by_tokens.draft,
        };
        let x = (tokens.max(1) as f64).ln();
        let right = points.partition_point(|p| p.ln_tokens < x);
        match (right.checked_sub(1).map(|left| points[left]), points.get(right)) {
            (None, None) => 1.0,
            (None, Some(only)) => only.factor,
            (Some(only), None) => only.factor,
            (Some(a), Some(b)) => a.factor + (b.factor - a.factor) * (x - a.ln_tokens) / (b.ln_tokens - a.ln_tokens),
        }
    }
}

/// A latency model whose times are multiplied by the pace of a piece: the factor by which passes took longer than
/// usual.
pub struct Paced<'a> {
    /// The latency model of the machine at its usual speed.
    pub model: &'a dyn LatencyModel,
    /// The model, target or draft, whose passes are predicted.
    pub role: Role,
    /// The pace of the piece: the factor by which passes took longer than usual.
    pub pace: &'a Pace,
    /// A further factor on the times of all passes, for a simulation with slower passes; 1 changes nothing.
    pub slower: f64,
}

impl LatencyModel for Paced<'_> {
    fn pass(&self, shape: PassShape) -> Time {
        self.paced(shape, self.model.pass(shape))
    }

    fn context_pass(&self, shape: PassShape) -> Time {
        self.paced(shape, self.model.context_pass(shape))
    }
}

impl Paced<'_> {
    fn paced(&self, shape: PassShape, usual: Time) -> Time {
        match self.pace.factor(self.role, shape.batched) * self.slower {
            1.0 => usual,
            factor => Time::from_s(usual.as_s() * factor),
        }
    }
}

/// The typical time in seconds of each pass of fixed shape that probes time (a probe shows the machine's speed): the
/// median of the pass's times in all probes.
pub fn typical<'a>(probes: impl IntoIterator<Item = &'a Probe>) -> Vec<f64> {
    by_pass(probes).into_iter().map(median).collect()
}

/// How much slower than typical the machine was during a piece, which is a live run and its repeat (0.05: 5 %;
/// negative: faster). `probes` are the piece's timings of passes of fixed shapes. `typical` has the typical time of
/// each of these passes. For each pass, the function compares the median of `probes` with the typical time. The result
/// is the mean of the relative differences. `None` for a piece without probes.
pub fn drift(probes: &[Probe], typical: &[f64]) -> Option<f64> {
    let own = self::typical(probes);
    let changes: Vec<f64> = own.iter().zip(typical).map(|(now, usual)| now / usual - 1.0).collect();
    (!changes.is_empty()).then(|| changes.iter().sum::<f64>() / changes.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate::runs::{Load, RunEntry};
    use foretoken_profiler::{Kind, Shape};
    use foretoken_sim::{Coefficients, Linear};

    #[test]
    fn drift_is_the_change_against_the_typical_probe() {
        let probe = |a: f64, b: f64| Probe { seconds: vec![a, b] };
        let usual = [probe(1.0, 2.0), probe(1.0, 2.0), probe(1.0, 2.0)];
        let slow = [probe(1.1, 2.4), probe(1.1, 2.4), probe(9.0, 2.4)];
        let typical = typical(usual.iter().chain(&usual).chain(&slow));
        assert_eq!(typical, [1.0, 2.0]);
        assert_eq!(drift(&usual, &typical), Some(0.0));
        assert!((drift(&slow, &typical).unwrap() - 0.15).abs() < 1e-12);
        assert_eq!(drift(&[], &typical), None);
    }

    #[test]
    fn a_pace_depends_on_tokens() {
        let pass =
            |role, requests, new| Probed { role, shape: Shape { kind: Kind::Verify, requests, new, context: 64 } };
        // The probed passes may be in any order.
        let probed = [pass(Role::Target, 8, 4), pass(Role::Target, 8, 1), pass(Role::Draft, 8, 1)];
        let probe = |a, b, c| Probe { seconds: vec![a, b, c] };
        let all = [probe(2.0, 1.0, 0.1), probe(2.2, 1.6, 0.1), probe(2.0, 1.0, 0.1), probe(2.2, 1.6, 0.1)];
        let usual = usual(&all);
        assert!((usual[0] - 2.1).abs() < 1e-12 && (usual[1] - 1.3).abs() < 1e-12, "{usual:?}");
        let slow = Pace::of(&probed, &all[1..2], &usual);
        let close = |tokens, expected: f64| {
            let factor = slow.factor(Role::Target, tokens);
            assert!((factor - expected).abs() < 1e-12, "{tokens}: {factor} and not {expected}");
        };
        close(8, 1.6 / 1.3);
        close(1, 1.6 / 1.3);
        close(32, 2.2 / 2.1);
        close(500, 2.2 / 2.1);
        // For the interpolation of the machine's pace, 16 tokens are halfway between 8 and 32 on the logarithmic scale.
        close(16, (1.6 / 1.3 + 2.2 / 2.1) / 2.0);
        assert_eq!(slow.factor(Role::Draft, 3), 1.0);
        // A time that an interruption lengthened is left out of the usual time.
        let wild = self::usual(all.iter().chain([&probe(1e9, 1.3, 0.1)]));
        assert!((wild[0] - 2.1).abs() < 1e-12, "{wild:?}");
        // All probes together define the usual time, so the pace over all of them (the factor by which passes took
        // longer than usual) is 1. The pace is also 1 for a piece without probes.
        assert!((Pace::of(&probed, &all, &usual).factor(Role::Target, 8) - 1.0).abs() < 1e-12);
        assert_eq!(Pace::of(&[], &[], &[]).factor(Role::Target, 8), 1.0);
    }

    #[test]
    fn the_usual_probe_is_given_with_the_costs_if_it_has_the_same_passes() {
        let shape = Shape { kind: Kind::Decode, requests: 8, new: 1, context: 1 };
        let mut runs = Runs::new(vec![Probed { role: Role::Target, shape }]);
        let mut entry = RunEntry::new(0, Load::Closed(8));
        entry.pieces.push(Piece { probes: vec![Probe { seconds: vec![1.2] }], ..Piece::default() });
        runs.entries.push(entry);
        let own = usual_passes(&runs);
        assert_eq!((own[0].seconds, usual_of(&runs, &[])), (1.2, vec![1.2]));
        // The given costs were fitted to runs in which the machine was faster than now.
        let given = ProbedPass { seconds: 1.0, ..own[0] };
        let usual = usual_of(&runs, &[given]);
        assert!((paces(&runs, &usual)[0][0].factor(Role::Target, 8) - 1.2).abs() < 1e-12);
        let other = ProbedPass { role: Role::Draft, ..given };
        assert_eq!(usual_of(&runs, &[other]), [1.2], "other passes were probed");
        assert_eq!(usual_of(&Runs::new(vec![]), &[given]), Vec::<f64>::new());
    }

    #[test]
    fn a_paced_model_multiplies_times() {
        let model = Linear::new(Coefficients { alpha_s: 0.0, gamma_s: 1e-3, delta_s: 0.0 });
        let probed =
            [Probed { role: Role::Target, shape: Shape { kind: Kind::Decode, requests: 8, new: 1, context: 1 } }];
        let pace = Pace::of(&probed, &[Probe { seconds: vec![1.2] }], &[1.0]);
        let shape = PassShape { requests: 1, batched: 8, context: 0, pairs: 0 };
        let at = |pace, slower| Paced { model: &model, role: Role::Target, pace, slower }.pass(shape).as_s();
        assert!((at(&pace, 1.0) - 9.6e-3).abs() < 1e-9 && (at(&pace, 1.5) - 14.4e-3).abs() < 1e-9);
        assert_eq!(at(&Pace::default(), 1.0), 8e-3);
    }
}
