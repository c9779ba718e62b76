//! Draws two replicas at random and takes the less loaded one.

use super::checks;
use super::random::below;
use crate::Signals;
use crate::router::{Asked, Needs, Router, RouterContext, RouterDefinition, Seen};
use serde::{Deserialize, Serialize};

/// The less loaded of two replicas that are drawn at random (SMG `policies/power_of_two.rs`): by the share of KV blocks
/// in use if both replicas reported it, else by requests in flight; of equal replicas the one drawn first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PowerOfTwo {}

impl RouterDefinition for PowerOfTwo {
    fn summary(&self) -> &'static str {
        "two replicas at random, and of these the less loaded one"
    }

    fn source(&self) -> &'static str {
        "SMG, model_gateway/src/policies/power_of_two.rs"
    }

    fn needs(&self) -> Needs {
        Needs { ends: true, reports: true, ..Needs::default() }
    }

    fn usual_signals(&self) -> Signals {
        checks::smg_signals()
    }

    fn scales(&self) -> bool {
        true
    }

    fn build(&self, context: &RouterContext) -> Box<dyn Router> {
        Box::new(Choices { seed: context.seed })
    }
}

struct Choices {
    seed: u64,
}

impl Router for Choices {
    fn route(&mut self, request: &Asked, replicas: &[Seen]) -> usize {
        let n = replicas.len();
        if n == 1 {
            return 0;
        }
        let first = below(self.seed, request, 0, n);
        let second = (first + 1 + below(self.seed, request, 1, n - 1)) % n;
        less_loaded(replicas, first, second)
    }
}

/// The less loaded of two replicas, by the share of KV blocks in use if both have reported it, else by requests in
/// flight; if both are equal, `first`.
pub(super) fn less_loaded(replicas: &[Seen], first: usize, second: usize) -> usize {
    let (a, b) = (&replicas[first], &replicas[second]);
    let loads = match (a.report, b.report) {
        (Some(a), Some(b)) => (a.load.kv_use(), b.load.kv_use()),
        _ => (f64::from(a.in_flight), f64::from(b.in_flight)),
    };
    if loads.0 <= loads.1 { first } else { second }
}
