//! `oracle-goodput`: the lengths with the most tokens per second in this step, bonus tokens included. The oracle knows
//! which draft tokens will be accepted, and the true cost. It is the best *myopic* choice: over a whole trace another
//! policy may get ahead, because its choices lead to other batches (docs/model.md 13).
//!
//! Source: docs/model.md 12; `form = "batch"` is the oracle of the SmartSpec paper's Fig. 14.
//!
//! The vector form gives each request its own length ([`Frontier`]). The choice is exact if true pass times are linear.
//! It is never worse than the batch form, because its candidates include min(run_i, k) draft tokens for every request,
//! where run_i is the number of draft tokens that will be accepted. With a [price](OracleGoodput::price) of time, the
//! oracle maximises tokens − price × seconds. This does better over a run with prompts in many steps.
//!
//! The [`Truth`] that an oracle sees leaves out the random noise of pass times, because no policy could know the noise
//! before the step.

use crate::bounds::frontier::Frontier;
use crate::bounds::price::{Price, RequestRate, Worth, without_prompts};
use crate::bounds::true_cost::TrueCost;
use crate::definition::{About, BadParameter, Definition, PolicyContext};
use crate::look::{Dash, Look, Marker, SKY_BLUE};
use foretoken_sim::{BatchView, DraftPlan, OraclePolicy, Speculation, StepOutcome, Truth};
use serde::{Deserialize, Serialize};

/// Whether the oracle chooses a draft length for each request or one for the batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    /// The oracle chooses a draft length for each request by itself.
    #[default]
    Vector,
    /// One draft length for the batch. Every request drafts this number of tokens, even if some of them will be
    /// rejected.
    Batch,
}

/// Settings of the bound `oracle-goodput`, which knows which draft tokens will be accepted and takes the lengths with
/// the most tokens per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct OracleGoodput {
    /// Whether the oracle chooses a draft length for each request or one for the batch.
    pub form: Form,
    /// How step time is priced. In each step the oracle takes the lengths with the most tokens − price · seconds.
    pub price: Price,
}

impl Definition for OracleGoodput {
    fn about(&self) -> About {
        About {
            summary: "the lengths with the most accepted tokens per second of this step, from the hidden truth and \
                      the true cost",
            source: "hindsight on acceptance and cost; form = \"batch\" is SmartSpec (arXiv 2406.14066) Fig. 14's \
                     oracle",
            sees: "the hidden truth: how many drafts will be accepted, and the true cost of passes",
            differences: "SmartSpec's oracle is the batch form; the vector form may give each request its own length",
        }
    }

    fn look(&self, usual: Look) -> Look {
        match self.form {
            Form::Vector => usual,
            Form::Batch => Look::new(SKY_BLUE, Dash::Dashed, Marker::Square),
        }
    }

    fn sees_hidden_truth(&self) -> bool {
        true
    }

    fn check(&self) -> Result<(), BadParameter> {
        self.price.check("oracle-goodput")
    }

    fn build(&self, context: &PolicyContext) -> Speculation {
        Speculation::Oracle(Box::new(Running::new(*self, context)))
    }
}

/// `oracle-goodput` in a run: its settings, and the tokens per second of a decode request that it has observed so far.
pub(crate) struct Running {
    settings: OracleGoodput,
    longest: u32,
    frontier: Frontier,
    request_rate: RequestRate,
}

impl Running {
    pub fn new(settings: OracleGoodput, context: &PolicyContext) -> Running {
        Running {
            settings,
            longest: context.max_draft_len,
            frontier: Frontier::default(),
            request_rate: RequestRate::default(),
        }
    }

    fn best_vector(&mut self, batch: &BatchView, truth: &Truth, plan: &mut DraftPlan) {
        // Only draft tokens that will be accepted are candidates, and each is worth one token.
        let values = || (|i: usize| truth.run[i].min(self.longest), |_: usize, _: u32| 1.0);
        let frontier = &mut self.frontier;
        let worth = self.request_rate.worth(self.settings.price, batch, || {
            frontier.best(&without_prompts(batch), truth, Worth::Ratio, values(), None).rate()
        });
        frontier.best(batch, truth, worth, values(), Some(&mut plan.draft_len));
    }

    fn best_length(&self, batch: &BatchView, truth: &Truth, plan: &mut DraftPlan) {
        let worth = self.request_rate.worth(self.settings.price, batch, || {
            let (_, tokens, time) = self.best_common_length(&without_prompts(batch), truth, Worth::Ratio);
            tokens / (time as f64 * 1e-12)
        });
        let (best, ..) = self.best_common_length(batch, truth, worth);
        for (len, &limit) in plan.draft_len.iter_mut().zip(batch.limit) {
            *len = limit.min(best);
        }
    }

    /// Returns the draft length with the greatest worth (tokens a second, or tokens − price · seconds) if all requests
    /// draft the same length, and the step's tokens and picoseconds with it. A request whose limit on draft tokens is
    /// lower drafts up to its limit. On a tie the shorter length wins.
    fn best_common_length(&self, batch: &BatchView, truth: &Truth, worth: Worth) -> (u32, f64, u64) {
        let mut cost = TrueCost::undrafted(batch, truth);
        let mut tokens = batch.len() as f64;
        let mut best = (0, tokens, cost.time().0);
        for k in 1..=self.longest {
            for i in (0..batch.len()).filter(|&i| batch.limit[i] >= k) {
                cost.add(i, k);
                tokens += f64::from(u8::from(truth.run[i] >= k));
            }
            let choice = (k, tokens, cost.time().0);
            if worth.compare((choice.1, choice.2), (best.1, best.2)) > 0.0 {
                best = choice;
            }
        }
        best
    }
}

impl OraclePolicy for Running {
    fn limit(&self) -> u32 {
        self.longest
    }

    fn propose(&mut self, batch: &BatchView, truth: &Truth, plan: &mut DraftPlan) {
        match self.settings.form {
            Form::Vector => self.best_vector(batch, truth, plan),
            Form::Batch => self.best_length(batch, truth, plan),
        }
    }

    fn observe(&mut self, outcome: &StepOutcome) {
        self.request_rate.observe(outcome);
    }
}

#[cfg(test)]
#[path = "oracle_goodput_tests.rs"]
mod tests;
