//! Our own router: chooses the replica with the least expected work, in tokens that pass through the target model.

use super::checks;
use super::least_requests::least;
use crate::router::{About, Asked, Ended, Needs, Router, RouterContext, RouterDefinition, Seen};
use foretoken_sim::RequestId;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// The replica with the least expected work (our own rule). A request's work is the number of tokens that pass through
/// the target model for it: its prompt tokens, and for each step of its answer one token and the draft tokens that the
/// step verifies. A category whose draft tokens are often right needs fewer steps. The router learns the mean output
/// length and the mean number of tokens per step of each category from answers that have ended; a client can see both.
/// If several replicas have the least work, the first of them is chosen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct VerifyWork {
    /// Number of draft tokens that a request verifies in a step, ≥ 0.
    pub draft_len: f64,
    /// Work of a prompt token relative to a verified token, ≥ 0. Below 1, because prefill needs less time for each
    /// token.
    pub prompt_weight: f64,
    /// Output tokens that are assumed for a request while no answer of its category has ended, > 0.
    pub first_output_len: f64,
}

impl Default for VerifyWork {
    fn default() -> VerifyWork {
        VerifyWork { draft_len: 3.0, prompt_weight: 0.1, first_output_len: 256.0 }
    }
}

impl RouterDefinition for VerifyWork {
    fn about(&self) -> About {
        About {
            summary: "the least expected work: tokens through the target, by category",
            source: "own",
            needs: Needs { ends: true, ..Needs::default() },
            ..About::default()
        }
    }

    fn check(&self) -> Result<(), (&'static str, String)> {
        checks::not_negative("draft_len", self.draft_len)?;
        checks::not_negative("prompt_weight", self.prompt_weight)?;
        checks::positive("first_output_len", self.first_output_len)
    }

    fn build(&self, context: &RouterContext) -> Box<dyn Router> {
        let (settings, left) = (self.clone(), vec![0.0; context.replicas]);
        Box::new(Work { settings, left, work_of: HashMap::new(), known: HashMap::new(), all: CategorySums::default() })
    }
}

struct Work {
    settings: VerifyWork,
    /// For each replica, the expected work of its requests in flight, in tokens. A request's whole work counts until
    /// the request ends.
    left: Vec<f64>,
    work_of: HashMap<RequestId, (u16, f64)>,
    known: HashMap<u16, CategorySums>,
    all: CategorySums,
}

/// Sums over the ended requests of a category: their number, their output tokens, and their steps that emitted tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct CategorySums {
    pub requests: f64,
    pub tokens: f64,
    pub pieces: f64,
}

impl VerifyWork {
    /// The expected work of a request, in tokens: its weighted prompt tokens, and for each expected step one token and
    /// the draft tokens. The number of steps comes from the ended requests of the request's category. If there are
    /// none, it comes from all ended requests. If no request has ended, it is `first_output_len`, as if each step gave
    /// one output token.
    pub(super) fn work(&self, prompt_len: u32, category: Option<&CategorySums>, all: &CategorySums) -> f64 {
        let known = category.filter(|known| known.requests > 0.0).unwrap_or(all);
        let (output, a_step) = match known.requests > 0.0 {
            true => (known.tokens / known.requests, known.tokens / known.pieces),
            false => (self.first_output_len, 1.0),
        };
        self.prompt_weight * f64::from(prompt_len) + output / a_step * (1.0 + self.draft_len)
    }
}

impl Router for Work {
    fn route(&mut self, request: &Asked, _: &[Seen]) -> usize {
        let work = self.settings.work(request.prompt_len, self.known.get(&request.category), &self.all);
        let best = least(self.left.iter().copied());
        self.left[best] += work;
        self.work_of.insert(request.id, (request.category, work));
        best
    }

    fn ended(&mut self, id: RequestId, replica: usize, end: Ended) {
        let Some((category, work)) = self.work_of.remove(&id) else { return };
        self.left[replica] = (self.left[replica] - work).max(0.0);
        if end.emitted > 0 {
            for known in [self.known.entry(category).or_default(), &mut self.all] {
                known.requests += 1.0;
                known.tokens += f64::from(end.emitted);
                known.pieces += f64::from(end.pieces);
            }
        }
    }
}
