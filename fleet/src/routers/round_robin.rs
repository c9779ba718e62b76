//! Round robin: sends requests to the replicas in turn.

use crate::router::{Asked, Needs, Router, RouterContext, RouterDefinition, Seen};
use serde::{Deserialize, Serialize};

/// Round robin: sends requests to the replicas in turn (SMG `policies/round_robin.rs`; nginx's default).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RoundRobin {}

impl RouterDefinition for RoundRobin {
    fn summary(&self) -> &'static str {
        "the replicas in turn"
    }

    fn source(&self) -> &'static str {
        "SMG 1.13, src/policies/round_robin.rs"
    }

    fn needs(&self) -> Needs {
        Needs::default()
    }

    fn scales(&self) -> bool {
        true
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
