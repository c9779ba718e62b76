//! The machine's speed while a piece ran, from the piece's probes. A profile is the mean of all moments, and a piece
//! has its own. Shared caches slow passes of few tokens and hardly change those with many, so the pace depends on
//! tokens.
//!
//! The pace is computed from probes only, never from the passes that were served.

use super::probe::{Probe, Probed, by_pass};
use super::runs::{Piece, Runs};
use foretoken_profiler::{ProbedPass, Role, uninterrupted_mean};
use foretoken_sim::{LatencyModel, PassShape, Time};

/// How much slower than usual passes were during a piece.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pace {
    /// By role, target first: (logarithm of a pass's tokens, factor on the usual time), with rising tokens.
    by_tokens: [Vec<(f64, f64)>; 2],
}

/// The usual probe of a run: for each probed pass the mean over all probes, in seconds. Interrupted samples are left
/// out. A profile is likewise a mean over all moments.
pub fn usual<'a>(probes: impl IntoIterator<Item = &'a Probe>) -> Vec<f64> {
    by_pass(probes).iter().map(|all| uninterrupted_mean(all)).collect()
}

/// The usual probe for these runs: the one `given` with fitted costs if it has the same passes, else the runs' own.
/// With given probes, a machine that has become faster since the costs were fitted is predicted as it is now.
pub fn usual_of(runs: &Runs, given: &[ProbedPass]) -> Vec<f64> {
    let found = |p: &Probed| given.iter().find(|g| (g.role, g.shape) == (p.role, p.shape)).map(|g| g.seconds);
    let all: Option<Vec<f64>> = runs.probed.iter().map(found).collect();
    all.filter(|all| !all.is_empty()).unwrap_or_else(|| usual(runs.probes()))
}

/// The usual probe of these runs, with each pass's role and shape.
pub fn usual_passes(runs: &Runs) -> Vec<ProbedPass> {
    let pass = |(p, seconds): (&Probed, f64)| ProbedPass { role: p.role, shape: p.shape, seconds };
    runs.probed.iter().zip(usual(runs.probes())).map(pass).collect()
}

/// The pace of each piece of each cell.
pub fn paces(runs: &Runs, usual: &[f64]) -> Vec<Vec<Pace>> {
    let of = |piece: &Piece| Pace::of(&runs.probed, &piece.probes, usual);
    runs.entries.iter().map(|entry| entry.pieces.iter().map(of).collect()).collect()
}

impl Pace {
    /// The pace of a piece with these probes, given the usual probe. Without probes all factors are 1.
    pub fn of(probed: &[Probed], probes: &[Probe], usual: &[f64]) -> Pace {
        let mut pace = Pace::default();
        for ((probed, here), usual) in probed.iter().zip(self::usual(probes)).zip(usual) {
            let points = &mut pace.by_tokens[probed.role as usize];
            points.push(((probed.shape.batched() as f64).ln(), here / usual));
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
        }
        pace
    }

    /// Factor by which passes of `tokens` tokens took longer than usual. It is interpolated between the probed passes;
    /// beyond them it is the nearest pass's factor.
    pub fn factor(&self, role: Role, tokens: u64) -> f64 {
        let (points, at) = (&self.by_tokens[role as usize], (tokens.max(1) as f64).ln());
        let behind = points.partition_point(|p| p.0 < at);
        match (behind.checked_sub(1).map(|i| points[i]), points.get(behind)) {
            (None, None) => 1.0,
            (None, Some(&(_, factor))) | (Some((_, factor)), None) => factor,
            (Some((from, one)), Some(&(to, other))) => one + (other - one) * (at - from) / (to - from),
        }
    }
}

/// A latency model at the pace of a piece.
pub struct Paced<'a> {
    /// The model of the usual machine.
    pub model: &'a dyn LatencyModel,
    /// The role of the passes.
    pub role: Role,
    /// The pace of the piece.
    pub pace: &'a Pace,
    /// A further factor on all passes.
    pub slower: f64,
}

impl LatencyModel for Paced<'_> {
    fn pass(&self, shape: PassShape) -> Time {
        let usual = self.model.pass(shape);
        match self.pace.factor(self.role, shape.batched) * self.slower {
            1.0 => usual,
            factor => Time::from_s(usual.as_s() * factor),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate::runs::{Load, RunEntry};
    use foretoken_profiler::{Kind, Shape};
    use foretoken_sim::{Coefficients, Linear};

    #[test]
    fn a_pace_goes_by_tokens() {
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
        // 16 tokens are halfway on the logarithmic scale.
        close(16, (1.6 / 1.3 + 2.2 / 2.1) / 2.0);
        assert_eq!(slow.factor(Role::Draft, 3), 1.0);
        // An interrupted sample is left out.
        let wild = self::usual(all.iter().chain([&probe(1e9, 1.3, 0.1)]));
        assert!((wild[0] - 2.1).abs() < 1e-12, "{wild:?}");
        // All pieces together have the usual pace, and so does a piece without probes.
        assert!((Pace::of(&probed, &all, &usual).factor(Role::Target, 8) - 1.0).abs() < 1e-12);
        assert_eq!(Pace::of(&[], &[], &[]).factor(Role::Target, 8), 1.0);
    }

    #[test]
    fn what_is_usual_comes_with_the_costs_where_it_can() {
        let shape = Shape { kind: Kind::Decode, requests: 8, new: 1, context: 1 };
        let mut runs = Runs::new(vec![Probed { role: Role::Target, shape }]);
        let mut entry = RunEntry::new(0, Load::Closed(8));
        entry.pieces.push(Piece { probes: vec![Probe { seconds: vec![1.2] }], ..Piece::default() });
        runs.entries.push(entry);
        let own = usual_passes(&runs);
        assert_eq!((own[0].seconds, usual_of(&runs, &[])), (1.2, vec![1.2]));
        // The costs were fitted to runs on a machine that was faster then.
        let given = ProbedPass { seconds: 1.0, ..own[0] };
        let usual = usual_of(&runs, &[given]);
        assert!((paces(&runs, &usual)[0][0].factor(Role::Target, 8) - 1.2).abs() < 1e-12);
        let other = ProbedPass { role: Role::Draft, ..given };
        assert_eq!(usual_of(&runs, &[other]), [1.2], "other passes were probed");
        assert_eq!(usual_of(&Runs::new(vec![]), &[given]), Vec::<f64>::new());
    }

    #[test]
    fn passes_are_as_long_as_the_pace_says() {
        let model = Linear::new(Coefficients { alpha_s: 0.0, gamma_s: 1e-3, delta_s: 0.0 });
        let probed =
            [Probed { role: Role::Target, shape: Shape { kind: Kind::Decode, requests: 8, new: 1, context: 1 } }];
        let pace = Pace::of(&probed, &[Probe { seconds: vec![1.2] }], &[1.0]);
        let shape = PassShape { batched: 8, context: 0, pairs: 0 };
        let at = |pace, slower| Paced { model: &model, role: Role::Target, pace, slower }.pass(shape).as_s();
        assert!((at(&pace, 1.0) - 9.6e-3).abs() < 1e-9 && (at(&pace, 1.5) - 14.4e-3).abs() < 1e-9);
        assert_eq!(at(&Pace::default(), 1.0), 8e-3);
    }
}
