//! Round robin: sends requests to the replicas in turn.

use crate::router::{About, Asked, Router, RouterContext, RouterDefinition, Seen};
use serde::{Deserialize, Serialize};

/// Round robin: sends requests to the replicas in turn (SMG `policies/round_robin.rs`; nginx's default).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RoundRobin {}

impl RouterDefinition for RoundRobin {
    fn about(&self) -> About {
        About {
            summary: "the replicas in turn",
            source: "SMG 1.13, src/policies/round_robin.rs",
            scales: true,
            ..About::default()
        }
    }

    fn build(&self, _: &RouterContext) -> Box<dyn Router> {
        Box::new(InTurn { count: 0 })
    }
}

struct InTurn {
    count: usize,
}

impl Router for InTurn {
    fn route(&mut self, _: &Asked, replicas: &[Seen]) -> usize {
        self.count += 1;
        (self.count - 1) % replicas.len()
    }
}
