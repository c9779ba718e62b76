//! `one-step-ahead`: a bound, that is, a policy that knows more than a server can know. It knows what the bound
//! `knows-confidences` knows: true costs, the acceptance law (the true probabilities of acceptance), and the
//! confidences of the step before drafting. It also weighs what its choice leaves behind for the next step: longer
//! contexts, and tokens that the draft model has not processed.
//!
//! The bound takes the draft lengths with the most expected worth (tokens − price · seconds) over this step and the
//! next one (`ahead_steps.rs`). The next step's confidences are not known, so the acceptance of its draft tokens is
//! estimated from the outcomes so far. No request is expected to end or to begin in between, and no prompt to run.
//!
//! Source: docs/model.md 12 and 13.

use crate::bounds::ahead_steps::{Expected, TwoSteps};
use crate::bounds::frontier::Frontier;
use crate::bounds::knows::Knowledge;
use crate::bounds::price::{Price, RequestRate, Worth, without_prompts};
use crate::bounds::survivals::Survivals;
use crate::definition::{About, BadParameter, Definition, PolicyContext};
use foretoken_sim::{BatchView, DraftPlan, MAX_SPEC_LEN, OraclePolicy, RequestId, Speculation, StepOutcome, Truth};
use serde::{Deserialize, Serialize};

/// Settings of the bound `one-step-ahead`: a policy that knows more than a server can, and shows the most that this
/// step and the next one can gain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct OneStepAhead {
    /// How step time is priced. In each step the policy takes the draft lengths with the most tokens − price · seconds
    /// over this step and the next one.
    pub price: Price,
}

impl Definition for OneStepAhead {
    fn about(&self) -> About {
        About {
            summary: "a bound: as knows-confidences, and it weighs the contexts and the missed tokens that its \
                      choice leaves behind",
            source: "our own: expected tokens over the time of two steps (docs/model.md 12, 13)",
            sees: "the true cost, the law of acceptance, outcomes, and the confidences of this round",
            differences: "none; it bounds two steps in a row, not a run",
        }
    }

    fn sees_hidden_truth(&self) -> bool {
        true
    }

    fn needs_law(&self) -> bool {
        true
    }

    fn check(&self) -> Result<(), BadParameter> {
        self.price.check("one-step-ahead")
    }

    fn build(&self, context: &PolicyContext) -> Speculation {
        Speculation::Oracle(Box::new(Running {
            settings: *self,
            longest: context.max_draft_len.min(MAX_SPEC_LEN),
            frontier: Frontier::default(),
            steps: TwoSteps::default(),
            now: Survivals::default(),
            next: Vec::new(),
            owes: false,
            request_rate: RequestRate::default(),
        }))
    }
}

/// `one-step-ahead` in a run: its settings, its buffers, and what it has observed so far.
struct Running {
    settings: OneStepAhead,
    longest: u32,
    frontier: Frontier,
    steps: TwoSteps,
    now: Survivals,
    /// For each request and depth: the probability that a draft token of the next step is accepted together with all
    /// before it. `longest` entries a request.
    next: Vec<f64>,
    /// True if, so far in this run, the draft model has missed (not processed) at least one token of a request. In
    /// engines that draft at the end of a step, the draft model never misses a token. Drafters without KV have no
    /// tokens to miss.
    owes: bool,
    request_rate: RequestRate,
}

/// For each draft token of the batch, the probability that it is accepted together with all before it (its survival):
/// in this step (`now`) and as expected in the next one (`next`).
struct Both<'a> {
    now: &'a Survivals,
    next: &'a [f64],
    longest: usize,
}

impl Expected for Both<'_> {
    fn most(&self, i: usize) -> u32 {
        self.now.most(i)
    }

    fn survival(&self, i: usize, depth: u32) -> f64 {
        self.now.at(i, depth)
    }

    fn next_survival(&self, i: usize, depth: u32) -> f64 {
        self.next[i * self.longest + depth as usize - 1]
    }
}

impl Running {
    /// Fills `now` and `next` with the survival of each draft token, that is, the probability that it is accepted
    /// together with all before it. `next`, for the next step, does not use confidences, because the next step's are
    /// not known.
    fn look(&mut self, batch: &BatchView, truth: &Truth) {
        self.now.look(batch, truth, self.longest, Knowledge::Rates);
        self.next.clear();
        for i in 0..batch.len() {
            let most = self.now.most(i);
            self.next.extend((1..=self.longest).map(|depth| if depth <= most { self.now.at(i, depth) } else { 0.0 }));
        }
        self.now.look(batch, truth, self.longest, Knowledge::Confidences);
    }
}

impl OraclePolicy for Running {
    fn limit(&self) -> u32 {
        self.longest
    }

    fn propose(&mut self, batch: &BatchView, truth: &Truth, plan: &mut DraftPlan) {
        self.owes |= batch.draft_gap.iter().any(|&gap| gap > 0);
        self.look(batch, truth);
        let now = &self.now;
        let values = || (|i: usize| now.most(i), |i: usize, depth: u32| now.at(i, depth));
        let frontier = &mut self.frontier;
        let worth = self.request_rate.worth(self.settings.price, batch, || {
            frontier.best(&without_prompts(batch), truth, Worth::Ratio, values(), None).rate()
        });
        let both = Both { now, next: &self.next, longest: self.longest as usize };
        self.steps.best(batch, truth, worth, self.owes, &both, &mut plan.draft_len);
        self.now.proposed(batch, &plan.draft_len);
    }

    fn observe(&mut self, outcome: &StepOutcome) {
        self.request_rate.observe(outcome);
        self.now.observe(outcome);
    }

    fn request_finished(&mut self, id: RequestId) {
        self.now.end(id);
    }
}
