//! Fits costs to the passes of a running server. The server runs many thousands of passes of different shapes, and the
//! requests of a pass have different lengths. All passes are passes of normal serving; no pass is run only to be
//! measured.

use crate::assess::{INTERRUPTED, median};
use crate::fit::{FitError, Sample};
use crate::hardware::MeasuredSpec;
use crate::linear::fit_linear;
use crate::profile::Range;
use crate::table::fit_counted;
use foretoken_sim::{Coefficients, LatencyModel, PassShape};
use std::collections::BTreeMap;

/// A group holds passes of nearly equal shapes, which a fit replaces by their mean pass. Passes of at most this number
/// of tokens share a group only if their numbers of tokens are equal. Larger passes share a group if their numbers of
/// tokens differ by less than about the factor [`ALIKE`].
const APART: u64 = 64;
/// A group holds passes of nearly equal shapes, which a fit replaces by their mean pass. Two passes share a group if
/// their contexts and their query-key pairs differ by less than about this factor.
const ALIKE: f64 = 1.15;

/// A pass that a server ran, with its shape and its time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ServedPass {
    /// The shape of the pass, with context counted once per request.
    pub shape: PassShape,
    pub requests: u64,
    /// True if the pass had a prefill chunk.
    pub prompts: bool,
    pub seconds: f64,
}

/// The passes of one model, grouped by nearly equal shapes.
#[derive(Clone, Debug, Default)]
pub struct Served {
    alike: BTreeMap<Key, Vec<ServedPass>>,
}

/// The key of a group of passes of nearly equal shapes: ([tokens, context, query-key pairs], true if there is a prefill
/// chunk). Context, pairs, and numbers of tokens above [`APART`] are on logarithmic scales.
type Key = ([i64; 3], bool);

/// A group of passes of nearly equal shapes, replaced by one pass with their mean sizes and mean time.
struct Mean {
    shape: PassShape,
    prompts: bool,
    seconds: f64,
    count: u64,
    /// Robust coefficient of variation of the times of the group's passes: 1.4826 · median absolute deviation / median.
    spread: f64,
}

impl Served {
    /// Adds a pass to the group of passes whose shapes are nearly equal to its own.
    pub fn add(&mut self, pass: ServedPass) {
        let ratio = |x: u64| ((x + 1) as f64).log(ALIKE).round() as i64;
        let PassShape { batched, context, pairs, .. } = pass.shape;
        let size = if batched <= APART { batched as i64 } else { ratio(batched) + APART as i64 };
        self.alike.entry(([size, ratio(context), ratio(pairs)], pass.prompts)).or_default().push(pass);
    }

    /// Adds all passes of `other` to these passes.
    pub fn extend(&mut self, other: &Served) {
        other.alike.iter().for_each(|(key, passes)| self.alike.entry(*key).or_default().extend(passes));
    }

    /// Number of passes that were added.
    pub fn len(&self) -> usize {
        self.alike.values().map(Vec::len).sum()
    }

    /// True if no pass was added.
    pub fn is_empty(&self) -> bool {
        self.alike.is_empty()
    }

    /// Fits a table to the passes, which gives the time of a pass of any shape. `None` if there is no pass.
    pub fn table(&self) -> Option<MeasuredSpec> {
        let means = self.means();
        let passes: Vec<(PassShape, f64)> = means.iter().map(|m| (m.shape, m.seconds)).collect();
        let counts: Vec<u64> = means.iter().map(|m| m.count).collect();
        (!passes.is_empty()).then(|| fit_counted(&passes, &counts))
    }

    /// Fits the linear cost α·context + γ·tokens + δ, by which policies decide, to the groups of passes without prefill
    /// chunks. A group holds passes of nearly equal shapes.
    pub fn line(&self) -> Result<Coefficients, FitError> {
        let sample =
            |m: &Mean| Sample { context: m.shape.context as f64, batched: m.shape.batched as f64, seconds: m.seconds };
        let samples: Vec<Sample> = self.means().iter().filter(|m| !m.prompts).map(sample).collect();
        fit_linear(&samples).map(|fit| fit.coefficients())
    }

    /// Returns the largest numbers of requests, tokens, context tokens and query-key pairs in one pass, over all
    /// passes.
    pub fn range(&self) -> Range {
        let most = |value: fn(&ServedPass) -> u64| self.alike.values().flatten().map(value).max().unwrap_or(0);
        Range {
            requests: most(|p| p.requests),
            batched: most(|p| p.shape.batched),
            context: most(|p| p.shape.context),
            pairs: most(|p| p.shape.pairs),
        }
    }

    /// Returns the robust coefficient of variation (1.4826 · median absolute deviation / median) of pass times within a
    /// group of passes of nearly equal shapes. The result is the median over all groups with at least two passes, or 0
    /// if there is no such group.
    pub fn noise_cv(&self) -> f64 {
        let spreads: Vec<f64> = self.means().iter().filter(|m| m.count > 1).map(|m| m.spread).collect();
        if spreads.is_empty() { 0.0 } else { median(spreads) }
    }

    /// Returns the relative error of the latency model `model` on the total time of these passes: predicted / measured
    /// − 1. `None` if there is no pass.
    pub fn error(&self, model: &dyn LatencyModel) -> Option<f64> {
        let passes = || self.alike.values().flatten();
        let measured: f64 = passes().map(|p| p.seconds).sum();
        let predicted: f64 = passes().map(|p| model.pass(p.shape).as_s()).sum();
        (measured > 0.0).then(|| predicted / measured - 1.0)
    }

    fn means(&self) -> Vec<Mean> {
        self.alike.values().map(|passes| Mean::of(passes)).collect()
    }
}

impl Mean {
    /// Makes the mean pass of a group of passes of nearly equal shapes: its mean sizes and its mean time. Interrupted
    /// passes (see [`INTERRUPTED`]) are left out, as in measured profiles.
    fn of(passes: &[ServedPass]) -> Mean {
        let middle = median(passes.iter().map(|p| p.seconds).collect());
        let kept: Vec<&ServedPass> = passes.iter().filter(|p| p.seconds <= INTERRUPTED * middle).collect();
        let n = kept.len() as u64;
        let mean = |size: fn(&PassShape) -> u64| (kept.iter().map(|p| size(&p.shape)).sum::<u64>() + n / 2) / n;
        Mean {
            shape: PassShape {
                requests: mean(|s| s.requests),
                batched: mean(|s| s.batched),
                context: mean(|s| s.context),
                pairs: mean(|s| s.pairs),
            },
            prompts: passes[0].prompts,
            seconds: kept.iter().map(|p| p.seconds).sum::<f64>() / n as f64,
            count: n,
            spread: 1.4826 * median(kept.iter().map(|p| (p.seconds - middle).abs()).collect()) / middle,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foretoken_sim::{Luck, Stream};

    /// Seconds of a pass on a test machine, linear in tokens, context and query-key pairs.
    fn truth(p: &PassShape) -> f64 {
        1e-4 + 2e-5 * p.batched as f64 + 1e-7 * p.context as f64 + 1e-9 * p.pairs as f64
    }

    /// Returns `n` passes of up to 8 requests with different lengths on a test machine. Every tenth pass has a prefill
    /// chunk. Times have noise of up to ±2.5 %. If `spoiled` is true, about one pass in a hundred was interrupted and
    /// takes 20 times as long.
    fn served(seed: u64, n: u64, spoiled: bool) -> Served {
        let luck = Luck::new(seed, Stream::Profile, 0);
        let mut served = Served::default();
        for i in 0..n {
            let draw = |at: u64, most: u64| luck.bits(8 * i + at) % most;
            let (requests, drafted, context) = (1 + draw(0, 8), draw(1, 5), 16 + draw(2, 240));
            let prompt = if i % 10 == 0 { 20 + draw(3, 200) } else { 0 };
            let batched = requests * (1 + drafted) + prompt;
            let shape = PassShape {
                requests,
                batched,
                context: requests * context,
                pairs: batched * context + prompt * prompt / 2,
            };
            let noise = 1.0 + 0.05 * (luck.unit(8 * i + 4) - 0.5);
            let interrupted = spoiled && draw(5, 100) == 0;
            let seconds = truth(&shape) * noise * if interrupted { 20.0 } else { 1.0 };
            served.add(ServedPass { shape, requests, prompts: prompt > 0, seconds });
        }
        served
    }

    #[test]
    fn costs_fitted_to_ragged_passes_predict_other_passes() {
        let (learnt, others) = (served(1, 20_000, true), served(2, 2_000, false));
        let model = learnt.table().unwrap().build().unwrap();
        assert_eq!((learnt.len(), others.len()), (20_000, 2_000));
        assert!(others.error(&model).unwrap().abs() < 0.01, "{:?}", others.error(&model));
        for pass in others.alike.values().flatten() {
            let off = model.pass(pass.shape).as_s() / truth(&pass.shape) - 1.0;
            assert!(off.abs() < 0.06, "{:?}: {off}", pass.shape);
        }
        let line = learnt.line().unwrap();
        assert!((line.gamma_s / 2e-5 - 1.0).abs() < 0.1 && (line.delta_s / 1e-4 - 1.0).abs() < 0.1, "{line:?}");
        assert!((0.01..0.04).contains(&learnt.noise_cv()), "{}", learnt.noise_cv());
        assert_eq!(learnt.range().requests, 8);
    }

    #[test]
    fn passes_of_two_runs_can_be_joined() {
        let (mut half, other) = (served(1, 500, false), served(2, 500, false));
        half.extend(&other);
        assert_eq!(half.len(), 1000);
        // A single served pass is enough for a table, but not for the linear cost α, γ, δ. Without any pass there is no
        // table and no linear cost.
        assert!(served(1, 1, false).table().is_some() && served(1, 1, false).line().is_err());
        let none = Served::default();
        assert!(none.is_empty() && none.table().is_none() && none.noise_cv() == 0.0);
        assert_eq!(none.error(&foretoken_sim::Linear::new(Coefficients::FREE)), None);
    }
}
