//! The law of an acceptance source: the probabilities that a request's draft tokens are right, given the source's
//! settings but not its random draws. Bounds (policies that know more than a server can) compute with the law. Such
//! bounds know less than the oracle, which sees the draws (docs/model.md 13).

use crate::drafts::Shown;
use crate::executor::RequestTruth;

/// The probabilities from which an acceptance source draws which draft tokens are right, and their confidences.
///
/// One of several hypotheses is true for a request, for example one of 16 acceptance rates. Given the hypothesis, right
/// and wrong draft tokens are a Markov chain over output positions: whether a token is right depends only on whether
/// the token before it is right. If there are several hypotheses, the probabilities under each hypothesis depend
/// neither on the output position nor on the depth in the round.
pub trait Law: Send + Sync {
    /// A hypothesis is a possible value of what is hidden about a request, such as its acceptance rate. Replaces
    /// `weights` by the probability of each hypothesis about the request. The probabilities sum to 1.
    fn prior(&self, request: RequestTruth, weights: &mut Vec<f64>);

    /// The probability that the draft token at output position `position` and `depth` (from 0) of its round is right,
    /// if hypothesis number `hypothesis` (a possible value of what is hidden about the request) is true. `before` says
    /// whether the draft token at the previous position is right.
    fn right_after(&self, request: RequestTruth, hypothesis: usize, position: u32, depth: u32, before: bool) -> f64;

    /// The probability that a prompt lookup finds a match at a position where the first copied token would be wrong. 1
    /// for drafters that always have a proposal.
    fn proposes_if_wrong(&self) -> f64;

    /// The log-odds that a draft token is right, given its confidence, by the true calibration curve of the
    /// confidences. `None` if the confidences that policies see carry no information.
    fn evidence(&self, confidence: f64, depth: u32) -> Option<f64>;

    /// Mean and standard deviation of the log-odds [`evidence`](Law::evidence) over the random draws of the confidence
    /// at this position and depth. It is assumed that hypothesis number `hypothesis` (a possible value of what is
    /// hidden about the request) is true, and that it is not known whether the token is right.
    fn evidence_spread(&self, request: RequestTruth, hypothesis: usize, position: u32, depth: u32) -> (f64, f64);

    /// The rate for which the confidence at this position and depth is drawn, if hypothesis number `hypothesis` (a
    /// possible value of what is hidden about the request) is true: the probability that the token is right, averaged
    /// over the draft rounds that reach this depth.
    fn confidence_rate(&self, request: RequestTruth, hypothesis: usize, position: u32, depth: u32) -> f64;

    /// The request's own rate, which no server knows: the probability that the draft token at output position
    /// `position` and `depth` (from 0) of its round is right if all tokens before it in the round are right.
    fn own_rate(&self, request: RequestTruth, position: u32, depth: u32) -> f64;

    /// The value that a policy sees in place of this confidence. With [`Confidence`](Shown::Confidence) it is the
    /// confidence itself. With [`Calibrated`](Shown::Calibrated) it is the probability that the token is right, given
    /// the confidence; if confidences carry no information, it is the mean rate of the requests of the same category.
    /// With [`OwnRate`](Shown::OwnRate) it is the probability given the confidence and the request's own rate; if
    /// confidences carry no information, it is the request's own rate.
    fn chance(&self, request: RequestTruth, position: u32, depth: u32, confidence: f64, shown: Shown) -> f64;
}

/// The constant rate a at which the expected number of accepted tokens of a draft of `len` tokens is the same as with
/// `rate(depth)` (depths from 0): a + a² + … + a^len = Σ over depths of the product of the rates up to this depth.
pub fn constant_rate(len: u32, rate: impl Fn(u32) -> f64) -> f64 {
    let survive = |reached: &mut f64, depth| {
        *reached *= rate(depth);
        Some(*reached)
    };
    let accepted: f64 = (0..len).scan(1.0, survive).sum();
    let accepted_at = |a: f64| (1..=len).map(|depth| a.powi(depth as i32)).sum::<f64>();
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..50 {
        let middle = 0.5 * (low + high);
        if accepted_at(middle) < accepted { low = middle } else { high = middle }
    }
    0.5 * (low + high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constant_law_has_its_own_rate() {
        for rate in [0.0, 0.3, 0.9, 1.0] {
            assert!((constant_rate(5, |_| rate) - rate).abs() < 1e-12, "{rate}");
        }
        // Two draft tokens with rates 0.9 and 0.5: the expected number of accepted tokens is 0.9 + 0.9·0.5 = 1.35. The
        // constant rate a solves a + a² = 1.35, so a = (−1 + √(1 + 4·1.35)) / 2.
        let a = constant_rate(2, |depth| if depth == 0 { 0.9 } else { 0.5 });
        assert!((a - ((6.4f64).sqrt() - 1.0) / 2.0).abs() < 1e-12, "{a}");
    }
}
