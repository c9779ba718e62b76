//! A linear model of latency that is refitted after each request, for routers that predict latencies.

use crate::router::{Asked, Seen};

/// Number of features (inputs) of a latency prediction; the first one is the constant 1.
const N: usize = 7;

/// The inputs of a latency prediction, such as uncached prompt tokens and the replica's load. llm-d's predictor has the
/// same inputs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Features([f64; N]);

impl Features {
    /// The features of a request on a replica. `share`: the part of the prompt, 0 to 1, that the replica may have
    /// cached. `silent_tokens`: number of prompt tokens of the replica's requests that have no first token yet. The
    /// features that come from the replica's load report are 0 before its first report.
    pub fn of(request: &Asked, replica: &Seen, share: f64, silent_tokens: u64) -> Features {
        let load = replica.report.map(|report| report.load).unwrap_or_default();
        let thousands = |tokens: f64| tokens / 1000.0;
        Features([
            1.0,
            thousands(f64::from(request.prompt_len) * (1.0 - share)),
            f64::from(load.waiting),
            f64::from(load.running),
            load.kv_use(),
            thousands(silent_tokens as f64),
            f64::from(replica.in_flight),
        ])
    }
}

/// Predicts a latency of requests by a linear fit to its features (inputs such as the replica's load): recursive least
/// squares with forgetting.
#[derive(Clone, Debug)]
pub(crate) struct Predictor {
    weights: [f64; N],
    /// State of the recursive least squares: the inverse of the weighted sum of x·xᵀ over the feature vectors x of the
    /// learned requests.
    inverse: [[f64; N]; N],
    learned: u32,
}

/// Number of requests with a measured latency from which the fit must have learned before its predictions are used.
const LEAST: u32 = 50;
/// Forgetting factor of the fit: each request that it learns multiplies the weights of all earlier requests by this
/// number.
const FORGET: f64 = 0.999;
/// Initial diagonal of `inverse`, the state of the recursive least squares. The value is large, so that the first
/// requests determine the fit.
const FIRST: f64 = 1e3;

impl Default for Predictor {
    fn default() -> Predictor {
        let mut inverse = [[0.0; N]; N];
        (0..N).for_each(|i| inverse[i][i] = FIRST);
        Predictor { weights: [0.0; N], inverse, learned: 0 }
    }
}

impl Predictor {
    /// Has the fit learned from at least [`LEAST`] requests, so that its predictions may be used?
    pub fn is_ready(&self) -> bool {
        self.learned >= LEAST
    }

    /// The latency that the fit predicts for a request with these features, seconds, at least 0.
    pub fn predict(&self, of: &Features) -> f64 {
        self.weights.iter().zip(of.0).map(|(w, x)| w * x).sum::<f64>().max(0.0)
    }

    /// Updates the fit with the measured latency, seconds, of a request with these features.
    pub fn learn(&mut self, of: &Features, latency_s: f64) {
        let x = of.0;
        let px: [f64; N] = std::array::from_fn(|i| (0..N).map(|j| self.inverse[i][j] * x[j]).sum());
        let scale = FORGET + x.iter().zip(px).map(|(x, p)| x * p).sum::<f64>();
        let error = latency_s - self.weights.iter().zip(x).map(|(w, x)| w * x).sum::<f64>();
        for (i, p) in px.iter().enumerate() {
            self.weights[i] += p / scale * error;
            for (inverse, q) in self.inverse[i].iter_mut().zip(px) {
                *inverse = (*inverse - p * q / scale) / FORGET;
            }
            // If a feature stays 0, forgetting would let its diagonal entry of `inverse` grow without limit.
            self.inverse[i][i] = self.inverse[i][i].min(FIRST);
        }
        self.learned += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foretoken_sim::{Luck, Stream};

    #[test]
    fn a_linear_law_is_learned() {
        let luck = Luck::new(1, Stream::Router, 0);
        let law = [0.05, 0.02, 0.01, 0.001, 0.3, 0.04, 0.002];
        let sample = |i: u64| Features(std::array::from_fn(|j| if j == 0 { 1.0 } else { luck.unit(i * 8 + j as u64) }));
        let truth = |f: &Features| f.0.iter().zip(law).map(|(x, w)| x * w).sum::<f64>();
        let mut predictor = Predictor::default();
        assert!(!predictor.is_ready());
        (0..2000).map(sample).for_each(|f| predictor.learn(&f, truth(&f)));
        let worst = (3000..3100).map(sample).map(|f| (predictor.predict(&f) - truth(&f)).abs()).fold(0.0, f64::max);
        assert!(predictor.is_ready() && worst < 1e-3, "{worst}");
    }
}
