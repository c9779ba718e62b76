//! `knows-rates`, `knows-confidences` and `knows-lengths`: bounds that differ in what they know. Each bound chooses the
//! draft lengths with the greatest expected worth, by the true costs and the true acceptance law (the probabilities
//! with which draft tokens are accepted). No server with the same knowledge can do better in one step.
//!
//! - `knows-rates` knows what a server has observed of each request so far.
//! - `knows-confidences` also knows every confidence of this step, before it drafts. A later confidence is evidence
//!   about earlier tokens: after a wrong token, confidences are as low as for wrong tokens.
//! - `knows-lengths` also knows how many tokens each request has still to make, so that it drafts none beyond the end.
//!
//! An oracle that sees which draft tokens are right can do better than these bounds. `clairvoyant-static`, the best
//! fixed length in hindsight, knows less. Survival, the probability that a token and all before it are accepted, is the
//! exact posterior of the acceptance law (`posterior.rs`). The posterior also uses the confidences of the tokens that
//! were drafted in earlier steps. The choice is exact if true pass times are linear (`frontier.rs`).
//!
//! Source: docs/model.md 12 and 13.

use crate::bounds::frontier::Frontier;
use crate::bounds::price::{Price, RequestRate, Worth, without_prompts};
use crate::bounds::survivals::Survivals;
use crate::definition::{About, BadParameter, Definition, PolicyContext};
use foretoken_sim::{BatchView, DraftPlan, MAX_SPEC_LEN, OraclePolicy, RequestId, Speculation, StepOutcome, Truth};
use serde::{Deserialize, Serialize};

/// What a bound (a policy that knows more than a server can) knows about a step's draft tokens before the draft passes
/// run. Each of the three choices includes the knowledge of the choice before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Knowledge {
    /// The true probabilities with which draft tokens are accepted, and the outcomes and confidences of earlier steps.
    Rates,
    /// What `Rates` knows, and the confidences of all draft tokens of this step before they are drafted.
    #[default]
    Confidences,
    /// What `Confidences` knows, and the number of output tokens that each request still has to make.
    Lengths,
}

/// Settings of the bounds `knows-rates`, `knows-confidences` and `knows-lengths`: policies that know more than a server
/// can. They differ in what they know of a step's draft tokens before drafting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Knows {
    /// What the policy knows about a step's draft tokens before it drafts them.
    pub knowledge: Knowledge,
    /// How step time is priced. In each step the policy takes the draft lengths with the most tokens − price · seconds.
    pub price: Price,
}

impl Knows {
    /// The settings of the policy that knows `knowledge`. In each step it takes the draft lengths with the most tokens
    /// a second.
    pub fn with(knowledge: Knowledge) -> Knows {
        Knows { knowledge, price: Price::Step }
    }
}

impl Definition for Knows {
    fn about(&self) -> About {
        About {
            summary: match self.knowledge {
                Knowledge::Rates => {
                    "a bound: the lengths worth most in expectation, by the true law, cost and all outcomes so far"
                }
                Knowledge::Confidences => {
                    "a bound: as knows-rates, and it sees every confidence of the round before it drafts"
                }
                Knowledge::Lengths => {
                    "a bound: as knows-confidences, and it knows how many tokens each request has still to make"
                }
            },
            source: "our own: expected tokens over time with the source's exact posterior (docs/model.md 12, 13)",
            sees: match self.knowledge {
                Knowledge::Rates => {
                    "the true cost of passes, the law of acceptance, and the outcomes of earlier rounds"
                }
                Knowledge::Confidences => {
                    "the true cost, the law of acceptance, outcomes, and the confidences of this round"
                }
                Knowledge::Lengths => {
                    "the true cost, the law, outcomes, this round's confidences, and lengths still to come"
                }
            },
            differences: "none; it bounds one step, not a run: a price of time other than the step's ratio may do \
                          better over a run",
        }
    }

    fn sees_hidden_truth(&self) -> bool {
        true
    }

    fn needs_law(&self) -> bool {
        true
    }

    fn check(&self) -> Result<(), BadParameter> {
        self.price.check("knows-confidences")
    }

    fn build(&self, context: &PolicyContext) -> Speculation {
        Speculation::Oracle(Box::new(Running {
            settings: *self,
            longest: context.max_draft_len.min(MAX_SPEC_LEN),
            frontier: Frontier::default(),
            survivals: Survivals::default(),
            request_rate: RequestRate::default(),
        }))
    }
}

/// One of the `knows-…` policies in a run: its settings, and what it has concluded about each request's acceptance
/// rate.
struct Running {
    settings: Knows,
    longest: u32,
    frontier: Frontier,
    survivals: Survivals,
    request_rate: RequestRate,
}

impl OraclePolicy for Running {
    fn limit(&self) -> u32 {
        self.longest
    }

    fn propose(&mut self, batch: &BatchView, truth: &Truth, plan: &mut DraftPlan) {
        self.survivals.look(batch, truth, self.longest, self.settings.knowledge);
        let survivals = &self.survivals;
        let values = || (|i: usize| survivals.most(i), |i: usize, depth: u32| survivals.at(i, depth));
        let frontier = &mut self.frontier;
        let worth = self.request_rate.worth(self.settings.price, batch, || {
            frontier.best(&without_prompts(batch), truth, Worth::Ratio, values(), None).rate()
        });
        frontier.best(batch, truth, worth, values(), Some(&mut plan.draft_len));
        self.survivals.proposed(batch, &plan.draft_len);
    }

    fn observe(&mut self, outcome: &StepOutcome) {
        self.request_rate.observe(outcome);
        self.survivals.observe(outcome);
    }

    fn request_finished(&mut self, id: RequestId) {
        self.survivals.end(id);
    }
}
