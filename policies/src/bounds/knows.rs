//! `knows-rates`, `knows-confidences` and `knows-lengths`: bounds that differ in what they know. Each bound chooses the
//! draft lengths with the greatest expected worth, by the true costs and the true acceptance law (the probabilities
//! with which drafts are accepted). No server with the same knowledge can do better in one step.
//!
//! - `knows-rates` knows what a server has observed of each request so far.
//! - `knows-confidences` also knows every confidence of this round, before it drafts. A later confidence is evidence
//!   about earlier tokens: after a wrong token, confidences are as low as for wrong tokens.
//! - `knows-lengths` also knows how many tokens each request has still to make, so that it drafts none beyond the end.
//!
//! An oracle that sees which drafts are right can do better than these bounds. The best fixed length in hindsight knows
//! less. Survival, the probability that a token and all before it are accepted, is the exact posterior of the
//! acceptance law (`posterior.rs`). The posterior also uses the confidences of the tokens that were drafted in earlier
//! rounds. The choice is exact if true pass times are linear (`frontier.rs`).
//!
//! Source: docs/model.md 12 and 13.

use crate::bounds::frontier::Frontier;
use crate::bounds::posterior::Posteriors;
use crate::bounds::price::{Price, RequestRate, Worth, without_prompts};
use crate::definition::{BadParameter, Definition, PolicyContext};
use foretoken_sim::{BatchView, DraftPlan, MAX_SPEC_LEN, OraclePolicy, RequestId, Speculation, StepOutcome, Truth};
use serde::{Deserialize, Serialize};

/// What a bound knows about a round before the draft passes run. Each choice includes what the choice above it knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Knowledge {
    /// The true law of acceptance, and the outcomes and confidences of earlier rounds.
    Rates,
    /// Also the confidences of all tokens of this round.
    #[default]
    Confidences,
    /// Also the number of tokens that each request still has to make.
    Lengths,
}

/// Parameters of `knows-rates`, `knows-confidences` and `knows-lengths`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Knows {
    /// What the bound knows about a round before drafting.
    pub knowledge: Knowledge,
    /// The price of a second of step time, in tokens.
    pub price: Price,
}

impl Knows {
    /// A bound with this knowledge that maximises the step's own ratio of tokens to time.
    pub fn with(knowledge: Knowledge) -> Knows {
        Knows { knowledge, price: Price::Step }
    }
}

impl Definition for Knows {
    fn summary(&self) -> &'static str {
        match self.knowledge {
            Knowledge::Rates => {
                "a bound: the lengths worth most in expectation, by the true law, cost and all outcomes so far"
            }
            Knowledge::Confidences => {
                "a bound: as knows-rates, and it sees every confidence of the round before it drafts"
            }
            Knowledge::Lengths => {
                "a bound: as knows-confidences, and it knows how many tokens each request has still to make"
            }
        }
    }

    fn source(&self) -> &'static str {
        "our own: expected tokens over time with the source's exact posterior (docs/model.md 12, 13)"
    }

    fn sees(&self) -> &'static str {
        match self.knowledge {
            Knowledge::Rates => "the true cost of passes, the law of acceptance, and the outcomes of earlier rounds",
            Knowledge::Confidences => {
                "the true cost, the law of acceptance, outcomes, and the confidences of this round"
            }
            Knowledge::Lengths => {
                "the true cost, the law, outcomes, this round's confidences, and lengths still to come"
            }
        }
    }

    fn differences(&self) -> &'static str {
        "none; it bounds one step, not a run: a price of time other than the step's ratio may do better over a run"
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
            posteriors: Posteriors::default(),
            request_rate: RequestRate::default(),
            survival: Vec::new(),
            most: Vec::new(),
        }))
    }
}

/// A running bound.
struct Running {
    settings: Knows,
    longest: u32,
    frontier: Frontier,
    posteriors: Posteriors,
    request_rate: RequestRate,
    /// By request and depth: the probability that the draft token and all before it are accepted; `longest` entries a
    /// request.
    survival: Vec<f64>,
    /// By request: the longest draft to consider, in tokens. It is the request's limit; with `Lengths` it also ends
    /// before the last output token.
    most: Vec<u32>,
}

impl Running {
    /// Computes `survival` and `most` for every request of a batch.
    fn look(&mut self, batch: &BatchView, truth: &Truth) {
        let hidden = truth.hidden.expect("the event clock knows its requests");
        let law = hidden.law().expect("the experiment was checked for a law");
        let stride = self.longest as usize;
        self.survival.clear();
        self.survival.resize(batch.len() * stride, 0.0);
        self.most.clear();
        for (i, &id) in batch.ids.iter().enumerate() {
            let mut most = batch.limit[i].min(self.longest);
            if self.settings.knowledge >= Knowledge::Lengths {
                // A request's last output token is the target's own, so a draft for it would be of no use.
                most = most.min(hidden.request(id).output_len.saturating_sub(batch.emitted[i] + 1));
            }
            // Tokens beyond a request's limit are not drafted, so their confidences are no evidence.
            let row = &mut self.survival[i * stride..][..most as usize];
            let confidences = self.settings.knowledge >= Knowledge::Confidences;
            self.posteriors.survival(hidden, law, id, batch.emitted[i], confidences, row);
            self.most.push(most);
        }
    }
}

impl OraclePolicy for Running {
    fn limit(&self) -> u32 {
        self.longest
    }

    fn propose(&mut self, batch: &BatchView, truth: &Truth, plan: &mut DraftPlan) {
        self.look(batch, truth);
        let (stride, survival, most) = (self.longest as usize, &self.survival, &self.most);
        let values = || (|i: usize| most[i], |i: usize, depth: u32| survival[i * stride + depth as usize - 1]);
        let frontier = &mut self.frontier;
        let worth = self.request_rate.worth(self.settings.price, batch, || {
            frontier.best(&without_prompts(batch), truth, Worth::Ratio, values(), None).rate()
        });
        frontier.best(batch, truth, worth, values(), Some(&mut plan.draft_len));
        for ((&id, &start), &len) in batch.ids.iter().zip(batch.emitted).zip(&plan.draft_len) {
            self.posteriors.propose(id, start, len);
        }
    }

    fn observe(&mut self, outcome: &StepOutcome) {
        self.request_rate.observe(outcome);
        self.posteriors.observe(outcome);
    }

    fn request_finished(&mut self, id: RequestId) {
        self.posteriors.end(id);
    }
}
