//! The built pass of measured kernels: it only interpolates.

use super::curve::{Curve, Grid};
use foretoken_sim::{LatencyModel, PassShape, Time};
use serde::{Deserialize, Serialize};

/// More new tokens than this for each request are prompts, which sample once for each request.
const VERIFIED: u64 = 16;

/// The latency model of summed kernels, ready to compute the time of a pass.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct KernelPass {
    /// Products, experts and all-reduces by the tokens of the pass.
    tokens: Curve,
    /// The output head by the tokens that sample.
    head: Curve,
    /// Attention of one new token of each request.
    decode: Grid,
    /// For each window: seconds of query-key pairs, without the pairs of one token of each request.
    pairs: Vec<(Option<f64>, Curve)>,
    fixed_s: f64,
    token_s: f64,
    #[serde(default, skip_serializing_if = "Shared::is_none")]
    shared: Shared,
}

/// What data-parallel ranks share.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Shared {
    pub(super) ranks: u32,
    /// Experts and exchanges between ranks, by the tokens of all ranks.
    pub(super) experts: Curve,
}

impl Default for Shared {
    fn default() -> Shared {
        Shared { ranks: 1, experts: Curve::new(Vec::new()) }
    }
}

impl Shared {
    fn is_none(&self) -> bool {
        self.ranks == 1
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provenance {
    /// The package with its version, the system and the engine.
    pub source: String,
    /// What was repaired, held, borrowed or chosen, one sentence each.
    pub notes: Vec<String>,
}

impl KernelPass {
    pub(super) fn new(
        tokens: Curve,
        head: Curve,
        decode: Grid,
        pairs: Vec<(Option<f64>, Curve)>,
        (fixed_s, token_s): (f64, f64),
        shared: Shared,
    ) -> KernelPass {
        KernelPass { tokens, head, decode, pairs, fixed_s, token_s, shared }
    }

    /// Time of a pass, seconds. Each data-parallel rank has a pass of this shape.
    pub fn pass_s(&self, shape: PassShape) -> f64 {
        self.seconds(shape, shape.batched * u64::from(self.shared.ranks))
    }

    /// Time of a pass, seconds. `all` is the number of tokens of all data-parallel ranks.
    fn seconds(&self, shape: PassShape, all: u64) -> f64 {
        if shape.batched == 0 {
            return self.fixed_s;
        }
        // Files do not store the number of requests. A pass then counts as one request's.
        let requests = shape.requests.clamp(1, shape.batched);
        let sampling = if shape.batched <= VERIFIED * requests { shape.batched } else { requests };
        let (n, tokens, context) = (requests as f64, shape.batched as f64, shape.context as f64);
        let mut seconds = self.fixed_s + self.token_s * tokens + self.tokens.at(tokens) + self.head.at(sampling as f64);
        seconds += self.decode.at(n, (context + n) / n);
        // Each request's first token attends to its context and to itself: that is in the time of the decodes. KV is
        // read once, whatever the number of tokens that attend to it.
        for (window, curve) in &self.pairs {
            let (mut all, mut first) = (shape.pairs as f64, context + n);
            if let Some(window) = window {
                (all, first) = (all.min(window * tokens), first.min(window * n));
            }
            let more = all - first;
            if more > 0.0 {
                seconds += curve.at(more);
            }
        }
        if self.shared.ranks > 1 {
            seconds += self.shared.experts.at(all as f64);
        }
        seconds
    }
}

impl LatencyModel for KernelPass {
    fn pass(&self, shape: PassShape) -> Time {
        Time::from_s(self.pass_s(shape))
    }

    fn pass_beside(&self, shape: PassShape, all: u64) -> Time {
        Time::from_s(self.seconds(shape, all))
    }

    fn least(&self) -> Time {
        let of_tokens = self.fixed_s + self.token_s + self.tokens.least() + self.head.least();
        Time::from_s(of_tokens * (1.0 - 1e-9))
    }
}
