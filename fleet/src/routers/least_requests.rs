//! The replica with the fewest requests in flight.

use crate::router::{About, Asked, Needs, Router, RouterContext, RouterDefinition, Seen};
use serde::{Deserialize, Serialize};

/// The replica with the fewest requests in flight, as the router counts them itself. If several replicas have the
/// fewest, the first of them is chosen (join the shortest queue: Winston, J. Appl. Prob. 14, 1977).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LeastRequests {}

impl RouterDefinition for LeastRequests {
    fn about(&self) -> About {
        About {
            summary: "the replica with the fewest requests in flight",
            source: "join the shortest queue (Winston 1977)",
            needs: Needs { ends: true, ..Needs::default() },
            scales: true,
            ..About::default()
        }
    }

    fn build(&self, _: &RouterContext) -> Box<dyn Router> {
        Box::new(Fewest)
    }
}

struct Fewest;

impl Router for Fewest {
    fn route(&mut self, _: &Asked, replicas: &[Seen]) -> usize {
        least(replicas.iter().map(|replica| replica.in_flight))
    }
}

/// The index of the least value; of several equal values, the first.
pub(super) fn least<T: PartialOrd>(values: impl Iterator<Item = T>) -> usize {
    let mut best: Option<(usize, T)> = None;
    for (i, value) in values.enumerate() {
        if best.as_ref().is_none_or(|(_, least)| value < *least) {
            best = Some((i, value));
        }
    }
    best.expect("a fleet has a replica").0
}
