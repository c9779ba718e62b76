//! Draws two replicas at random and takes the one that drains sooner (finishes its queued tokens).

use super::checks;
use super::random::below;
use super::smg_expected_wait::{ExpectedWait, Scorer};
use crate::router::{About, Asked, Needs, Router, RouterContext, RouterDefinition, Seen};
use serde::{Deserialize, Serialize};

/// Draws two replicas at random and takes the one that drains (finishes its queued tokens) sooner. The drain time is
/// the score of `smg-least-load` with its default settings (SMG 1.13 `policies/power_of_two.rs`, its load metric
/// `expected_wait`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PowerOfTwo {}

impl RouterDefinition for PowerOfTwo {
    fn about(&self) -> About {
        About {
            summary: "two replicas at random, and of these the one that drains sooner",
            source: "SMG 1.13, src/policies/power_of_two.rs",
            needs: Needs { ends: true, reports: true, ..Needs::default() },
            usual_signals: checks::smg_signals(),
            scales: true,
            ..About::default()
        }
    }

    fn build(&self, context: &RouterContext) -> Box<dyn Router> {
        let scorer = Scorer::new(ExpectedWait::default(), context.seed, context.replicas);
        Box::new(Choices { seed: context.seed, scorer })
    }
}

struct Choices {
    seed: u64,
    scorer: Scorer,
}

impl Router for Choices {
    fn route(&mut self, request: &Asked, replicas: &[Seen]) -> usize {
        let n = replicas.len();
        if n == 1 {
            return 0;
        }
        let first = below(self.seed, request, 0, n);
        let second = (first + 1 + below(self.seed, request, 1, n - 1)) % n;
        self.scorer.choose(&[first, second], request, replicas, 2)
    }

    fn joined(&mut self) {
        self.scorer.joined();
    }

    fn left(&mut self, replica: usize) {
        self.scorer.left(replica);
    }
}
