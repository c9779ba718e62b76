//! Our own router: chooses the replica whose requests in flight have the least true work (prompt and decode steps). The
//! whole work of a request counts until the request ends. No real router knows this work, so the router is only a
//! reference for others.

use super::checks;
use super::least_requests::least;
use crate::router::{About, Asked, Ended, Needs, Router, RouterContext, RouterDefinition, Seen};
use foretoken_sim::RequestId;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// Chooses the replica with the least work (our own rule). The work of a replica is the sum over its requests in flight
/// of the weighted prompt tokens and the true number of steps. A real router cannot know the number of steps. The
/// router is a reference and not a proven bound: another order may do better.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Clairvoyant {
    /// Work of a prompt token relative to a token that a decode step makes. Below 1, because prefill needs less time
    /// for each token.
    pub prompt_weight: f64,
}

impl Default for Clairvoyant {
    fn default() -> Clairvoyant {
        Clairvoyant { prompt_weight: 0.1 }
    }
}

impl RouterDefinition for Clairvoyant {
    fn about(&self) -> About {
        About {
            summary: "the least work left, with the true work of every request: a reference",
            source: "own; least work left (Harchol-Balter, Performance Modeling and Design of Computer Systems, \
                     chapter 24)",
            needs: Needs { ends: true, ..Needs::default() },
            sees_hidden_truth: true,
            ..About::default()
        }
    }

    fn check(&self) -> Result<(), (&'static str, String)> {
        checks::not_negative("prompt_weight", self.prompt_weight)
    }

    fn build(&self, context: &RouterContext) -> Box<dyn Router> {
        let true_steps = context.true_steps.to_vec();
        let left = vec![0.0; context.replicas];
        Box::new(Hindsight { prompt_weight: self.prompt_weight, true_steps, left, work_of: HashMap::new() })
    }
}

struct Hindsight {
    prompt_weight: f64,
    true_steps: Vec<u32>,
    /// For each replica, the work of its requests in flight: weighted prompt tokens plus steps. A request's whole work
    /// counts until the request ends.
    left: Vec<f64>,
    work_of: HashMap<RequestId, f64>,
}

impl Router for Hindsight {
    fn route(&mut self, request: &Asked, _: &[Seen]) -> usize {
        let steps = f64::from(self.true_steps[request.id as usize]);
        let work = self.prompt_weight * f64::from(request.prompt_len) + steps;
        let best = least(self.left.iter().copied());
        self.left[best] += work;
        self.work_of.insert(request.id, work);
        best
    }

    fn ended(&mut self, id: RequestId, replica: usize, _: Ended) {
        let work = self.work_of.remove(&id).unwrap_or_default();
        self.left[replica] = (self.left[replica] - work).max(0.0);
    }
}
