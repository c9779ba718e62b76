//! `mixture`: every request draws its own acceptance rate from a Beta law (the law of its task category if there is
//! one). Whether a draft token is right is correlated with whether the draft token at the previous position is right.
//! Over all requests the conditional rate rises with depth although each request's rate is constant: deep positions are
//! mostly reached by easy requests (docs/model.md 6.5).

use super::TruthRow;
use super::log_odds::logit;
use super::source::{Bits, below, fill_constant, within};
use crate::draws::Draws;
use crate::executor::RequestTruth;
use crate::luck::{Luck, Stream};
use crate::workload::RequestId;
use rand_distr::Distribution;
use serde::{Deserialize, Serialize};

/// A Beta distribution of acceptance rates over requests. Its mean is a / (a + b).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Beta {
    /// First shape parameter of the Beta distribution, 0.001 to 1000000.
    pub a: f64,
    /// Second shape parameter of the Beta distribution, 0.001 to 1000000.
    pub b: f64,
}

/// Number of hypotheses (possible values) about a request's acceptance rate (`HYPOTHESES`), and number of grid points
/// for each hypothesis (`POINTS`).
const HYPOTHESES: usize = 16;
const POINTS: usize = 16;

impl Beta {
    /// Approximates this Beta distribution by 16 rates with probabilities: the mean and the mass of each of 16 equal
    /// intervals, which together reach 4.5 standard deviations to both sides of the mean (but stay within [0, 1]). If
    /// `a` and `b` are at least 1, the mean over the 16 rates is within 0.001 of a / (a + b).
    fn hypotheses(&self) -> Vec<(f64, f64)> {
        let (a, b, sum) = (self.a, self.b, self.a + self.b);
        let (mean, sd) = (a / sum, (a * b / (sum * sum * (sum + 1.0))).sqrt());
        let (low, high) = ((mean - 4.5 * sd).max(0.0), (mean + 4.5 * sd).min(1.0));
        let rate = |i: usize| low + (high - low) * (i as f64 + 0.5) / (HYPOTHESES * POINTS) as f64;
        let log_density = |r: f64| (a - 1.0) * r.ln() + (b - 1.0) * (1.0 - r).ln();
        let top = (0..HYPOTHESES * POINTS).map(|i| log_density(rate(i))).fold(f64::NEG_INFINITY, f64::max);
        let density = |i: usize| (log_density(rate(i)) - top).exp();
        let total: f64 = (0..HYPOTHESES * POINTS).map(density).sum();
        (0..HYPOTHESES)
            .map(|h| {
                let points = h * POINTS..(h + 1) * POINTS;
                let mass: f64 = points.clone().map(density).sum();
                let weighted: f64 = points.map(|i| density(i) * rate(i)).sum();
                let middle = low + (high - low) * (h as f64 + 0.5) / HYPOTHESES as f64;
                (if mass > 0.0 { weighted / mass } else { middle }, mass / total)
            })
            .collect()
    }
}

/// A rate for each request, with correlation between its neighbouring draft tokens. The default was measured on
/// Spec-Bench, Vicuna-68M drafting for Vicuna-7B, greedy: Beta(8.0, 5.7) over all requests, lag-1 autocorrelation
/// 0.078.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Mixture {
    /// Distribution of the acceptance rates of requests whose category is not in `categories`.
    pub all: Beta,
    /// Distribution of the acceptance rates of each category's requests, by category name.
    pub categories: std::collections::BTreeMap<String, Beta>,
    /// Correlation of whether a request's draft tokens at neighbouring output positions are right, [0, 1). At a
    /// distance of k positions the correlation is this value to the power of k.
    pub autocorrelation: f64,
}

impl Default for Mixture {
    fn default() -> Self {
        // (Category, a, b): the Beta(a, b) law of the acceptance rates of a category's requests, measured on Spec-Bench
        // turn 0 (Vicuna-68M drafting for Vicuna-7B-v1.3).
        let measured = [
            ("mt_bench", 9.2, 5.5),
            ("translation", 16.1, 29.8),
            ("summarization", 15.7, 8.2),
            ("qa", 12.1, 9.4),
            ("math_reasoning", 30.1, 22.2),
            ("rag", 16.1, 8.9),
        ];
        let categories = measured.map(|(name, a, b)| (name.to_string(), Beta { a, b }));
        Mixture { all: Beta { a: 8.0, b: 5.7 }, categories: categories.into(), autocorrelation: 0.078 }
    }
}

/// Draws which draft tokens of a request are right. Each request has an acceptance rate of its own, drawn from the Beta
/// distribution of its category.
pub(super) struct MixtureBits {
    /// The Beta distribution of each category's acceptance rates, by the index of the category.
    laws: Vec<rand_distr::Beta<f64>>,
    /// For each category: the possible acceptance rates of a request, each with its probability (the hypotheses of
    /// [`Law::prior`](super::Law::prior)).
    hypotheses: Vec<Vec<(f64, f64)>>,
    autocorrelation: f64,
    seed: u64,
}

impl MixtureBits {
    /// `mixture` has a Beta distribution of acceptance rates for each category name. Orders these distributions by
    /// category index. A category without a distribution gets `mixture.all`. If there are no categories, `mixture.all`
    /// is the only distribution. `mixture` must have passed the check.
    pub fn new(mixture: &Mixture, categories: &[String], seed: u64) -> MixtureBits {
        let beta_of = |name: &String| mixture.categories.get(name).copied().unwrap_or(mixture.all);
        let mut betas: Vec<Beta> = categories.iter().map(beta_of).collect();
        if betas.is_empty() {
            betas.push(mixture.all);
        }
        let law = |beta: &Beta| rand_distr::Beta::new(beta.a, beta.b).expect("shapes were checked to be positive");
        MixtureBits {
            laws: betas.iter().map(law).collect(),
            hypotheses: betas.iter().map(Beta::hypotheses).collect(),
            autocorrelation: mixture.autocorrelation,
            seed,
        }
    }

    fn hypotheses_of(&self, category: u16) -> &[(f64, f64)] {
        &self.hypotheses[(category as usize).min(self.hypotheses.len() - 1)]
    }

    /// The probability that a draft token at `depth` of its round is right if all draft tokens before it in the round
    /// are right, for a request with this rate. It is not known whether the token before the first draft token is
    /// right, so the first draft token has probability `rate`.
    fn on_path(&self, rate: f64, depth: u32) -> f64 {
        if depth == 0 { rate } else { self.autocorrelation + (1.0 - self.autocorrelation) * rate }
    }

    fn rate_of(&self, id: RequestId, category: u16) -> f64 {
        let law = self.laws[(category as usize).min(self.laws.len() - 1)];
        law.sample(&mut Draws::new(self.seed, Stream::Request, id.into()))
    }
}

/// Copies bits upwards in a word: where a bit of `repeats` is set, the result takes the value of the next lower
/// position, and at the lowest position the value `before`. Elsewhere the result is the bit of `bits`. A value is
/// copied along a whole run of repeats, in six doubling strides (as carries run in a Kogge-Stone adder).
fn copy_along(bits: u64, repeats: u64, before: u64) -> u64 {
    let mut copied = bits & !repeats | before & repeats;
    let mut open = repeats & !1;
    for stride in [1, 2, 4, 8, 16, 32] {
        copied |= open & copied << stride;
        open &= open << stride;
    }
    copied
}

impl Bits for MixtureBits {
    fn fill(&self, request: RequestTruth, positions: usize, out: &mut TruthRow) {
        out.reset(positions, 1);
        let key = u64::from(request.id);
        let rate = self.rate_of(request.id, request.category);
        out.rate_logit = Some(logit(rate));
        fill_constant(Luck::new(self.seed, Stream::Right, key), rate, positions, out.depth_mut(0));
        if self.autocorrelation == 0.0 {
            return;
        }
        // Each position copies from the position before it, with probability `autocorrelation`, whether the draft token
        // is right. This does not change the rate. The correlation of two positions k apart is `autocorrelation` to the
        // power of k.
        let luck = Luck::new(self.seed, Stream::Repeat, key);
        let mut before = 0;
        for (w, word) in out.depth_mut(0).iter_mut().enumerate().take(positions.div_ceil(64)) {
            // Output position 0 has no position before it, so it never copies.
            let repeats = below(luck, self.autocorrelation, w) & if w == 0 { !1 } else { u64::MAX };
            *word = copy_along(*word, repeats, before);
            before = *word >> 63;
        }
        // Clears the bits that were copied to output positions from `positions` on.
        if let Some(last) = out.depth_mut(0).get_mut(positions / 64) {
            *last &= within(positions / 64, 0, positions);
        }
    }

    /// Returns the request's own rate, the same at every depth. With autocorrelation this is not exact at a single
    /// depth: the first draft token of a round is right a little less often (it mostly follows a wrong draft token),
    /// and deeper draft tokens are right a little more often. Confidences are therefore calibrated when pooled over
    /// depths. At a single depth they are off by up to 0.03 at the measured autocorrelation of 0.078.
    fn rate(&self, request: RequestTruth, _: u32, _: u32) -> f64 {
        self.rate_of(request.id, request.category)
    }

    fn prior(&self, request: RequestTruth, weights: &mut Vec<f64>) {
        weights.clear();
        weights.extend(self.hypotheses_of(request.category).iter().map(|&(_, weight)| weight));
    }

    fn rate_of_hypothesis(&self, request: RequestTruth, hypothesis: usize, _: u32, _: u32) -> f64 {
        self.hypotheses_of(request.category)[hypothesis].0
    }

    fn right_after(&self, request: RequestTruth, hypothesis: usize, position: u32, depth: u32, before: bool) -> f64 {
        let rate = self.rate_of_hypothesis(request, hypothesis, position, depth);
        self.autocorrelation * f64::from(u8::from(before)) + (1.0 - self.autocorrelation) * rate
    }

    /// The mean rate of the requests whose draft rounds reach `depth`: each rate is weighted by the probability that a
    /// round with this rate reaches `depth`.
    fn mean_rate(&self, request: RequestTruth, _: u32, depth: u32) -> f64 {
        let (mut reach, mut right) = (0.0, 0.0);
        for &(rate, weight) in self.hypotheses_of(request.category) {
            let before: f64 = (0..depth).map(|depth| self.on_path(rate, depth)).product();
            reach += weight * before;
            right += weight * before * self.on_path(rate, depth);
        }
        right / reach
    }

    fn own_rate(&self, request: RequestTruth, position: u32, depth: u32) -> f64 {
        self.on_path(self.rate(request, position, depth), depth)
    }
}
