//! The law of a source: what is known of a request's bits to one who knows the source and has not seen its draws. The
//! bounds between a server's policies and the oracle reason with it (docs/model.md 13).

use crate::executor::RequestTruth;

/// The probabilities from which a source draws bits and confidences.
///
/// A request has one of several hypotheses, for example its own acceptance rate. Given the hypothesis, the bits are a
/// Markov chain over output positions: a bit depends on the bit before and on nothing earlier. If there are several
/// hypotheses, the probabilities of each depend on neither position nor depth.
pub trait Law: Send + Sync {
    /// Replaces `weights` by the probability of each hypothesis about the request. They sum to 1.
    fn prior(&self, request: RequestTruth, weights: &mut Vec<f64>);

    /// The probability that the draft is right at output position `position` and `depth` (from 0) of its round, if the
    /// bit at the position before was `before`.
    fn right_after(&self, request: RequestTruth, hypothesis: usize, position: u32, depth: u32, before: bool) -> f64;

    /// The probability that a lookup proposes a token that is wrong; 1 for drafts that always propose.
    fn proposes_if_wrong(&self) -> f64;

    /// The log-odds that a token with this confidence is right, by the curve from which confidences are drawn. `None`
    /// if what policies see carries no information.
    fn evidence(&self, confidence: f64, depth: u32) -> Option<f64>;

    /// Mean and standard deviation of [`evidence`](Law::evidence) before the bit is known.
    fn evidence_spread(&self, request: RequestTruth, hypothesis: usize, position: u32, depth: u32) -> (f64, f64);

    /// The rate with which confidences are drawn there: the probability that the token is right, pooled over rounds.
    fn confidence_rate(&self, request: RequestTruth, hypothesis: usize, position: u32, depth: u32) -> f64;
}
