//! A replica at random, all with the same probability.

use crate::router::{About, Asked, Router, RouterContext, RouterDefinition, Seen};
use foretoken_sim::{Luck, Stream};
use serde::{Deserialize, Serialize};

/// A replica at random, all with the same probability (SMG `policies/random.rs`). The draw depends on the request only,
/// not on earlier requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Random {}

impl RouterDefinition for Random {
    fn about(&self) -> About {
        About {
            summary: "a replica at random",
            source: "SMG 1.13, src/policies/random.rs",
            scales: true,
            ..About::default()
        }
    }

    fn build(&self, context: &RouterContext) -> Box<dyn Router> {
        Box::new(AtRandom { seed: context.seed })
    }
}

struct AtRandom {
    seed: u64,
}

impl Router for AtRandom {
    fn route(&mut self, request: &Asked, replicas: &[Seen]) -> usize {
        below(self.seed, request, 0, replicas.len())
    }
}

/// A uniform whole number from 0 to `n` − 1: the random draw with index `which` among the draws for the request.
pub(super) fn below(seed: u64, request: &Asked, which: u64, n: usize) -> usize {
    let unit = Luck::new(seed, Stream::Router, request.id.into()).unit(which);
    ((unit * n as f64) as usize).min(n - 1)
}
