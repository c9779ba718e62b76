//! The price of time: in each step a bound (a policy that shows how well a server could do at best) takes the choice
//! with the most tokens − price × time.
//!
//! The step's own ratio of tokens to time is the best myopic choice. It is not the best choice for a whole run: a
//! prompt makes a step slow and its ratio low, so drafts look cheap although every request waits longer. Two other
//! prices do better in such runs (docs/model.md 12). `Decode` is a multiple of the tokens a second that the batch could
//! make without prompts. `System` is a multiple of the tokens that all requests, running and waiting, lose while they
//! wait for one second.

use crate::definition::{BadParameter, Check};
use foretoken_sim::{BatchView, ChunkTotals, StepOutcome};
use serde::{Deserialize, Serialize};

/// The price of a second, in tokens. In each step the policy takes the choice with the most tokens − price · seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Price {
    /// The step's best ratio of tokens to seconds: the policy takes the choice with the most tokens a second.
    #[default]
    Step,
    /// The price is this number times the most tokens a second that the batch's decode requests could make without the
    /// step's prompts.
    Decode(f64),
    /// The price is this number times N·u, where N is the number of running and waiting requests, and u the tokens a
    /// second of one request as observed so far.
    System(f64),
    /// The price is this number times n·u, where n is the number of decode requests in the step, and u the tokens a
    /// second of one request as observed so far.
    Batch(f64),
}

impl Price {
    /// Checks that the factor of the price, which `Decode`, `System` and `Batch` have, is from 0.01 to 100.
    ///
    /// # Errors
    /// The factor is outside this range.
    pub fn check(self, policy: &'static str) -> Result<(), BadParameter> {
        match self {
            Price::Step => Ok(()),
            Price::Decode(factor) | Price::System(factor) | Price::Batch(factor) => {
                Check(policy).that("price", (0.01..=100.0).contains(&factor), || {
                    format!("{factor} is not a factor from 0.01 to 100")
                })
            }
        }
    }
}

/// How a bound (a policy that shows how well a server could do at best) compares choices of draft lengths.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Worth {
    /// The choice of draft lengths with more tokens a second is better.
    Ratio,
    /// The choice with more tokens − price · seconds is better. The value is the price, in tokens a second.
    Priced(f64),
}

impl Worth {
    /// Positive if `a` is worth more than `b`, zero for a tie; both are (tokens, picoseconds). Ratios of whole tokens
    /// are compared without rounding as long as tokens × picoseconds is below 2^53 (9 seconds × 1,000 tokens).
    pub fn compare(self, a: (f64, u64), b: (f64, u64)) -> f64 {
        match self {
            Worth::Ratio => a.0 * b.1 as f64 - b.0 * a.1 as f64,
            Worth::Priced(price) => (a.0 - b.0) - price * 1e-12 * (a.1 as f64 - b.1 as f64),
        }
    }
}

/// The mean rate of one decode request over all steps so far, tokens a second.
#[derive(Debug, Default)]
pub(crate) struct RequestRate {
    tokens: f64,
    /// Sum over all steps of the step's seconds times its number of decode requests.
    request_s: f64,
}

impl RequestRate {
    /// Adds the tokens and the time of a step to the mean rate of a decode request.
    pub fn observe(&mut self, outcome: &StepOutcome) {
        let accepted: u32 = outcome.accepted.iter().sum();
        self.tokens += (outcome.ids.len() as f64) + f64::from(accepted);
        self.request_s += outcome.ids.len() as f64 * (outcome.draft_time + outcome.verify_time).as_s();
    }

    /// How to compare choices of draft lengths in a step, by `price`. `decode_rate` gives the most tokens a second
    /// without the step's prompts. `System` and `Batch` prices need the rate of a request, which is unknown before the
    /// first outcome. Until then, choices are compared by their tokens a second.
    pub fn worth(&self, price: Price, batch: &BatchView, decode_rate: impl FnOnce() -> f64) -> Worth {
        let requests = |n: f64, factor: f64| match self.request_s > 0.0 {
            true => Worth::Priced(factor * n * self.tokens / self.request_s),
            false => Worth::Ratio,
        };
        match price {
            Price::Step => Worth::Ratio,
            Price::Decode(factor) => Worth::Priced(factor * decode_rate()),
            Price::System(factor) => requests(f64::from(batch.num_running + batch.num_waiting), factor),
            Price::Batch(factor) => requests(batch.len() as f64, factor),
        }
    }
}

/// A copy of the batch in which the step has no prompt chunks, so that only decode requests cost time.
pub(crate) fn without_prompts<'a>(batch: &BatchView<'a>) -> BatchView<'a> {
    BatchView { prefill: ChunkTotals::default(), draft_prefill: ChunkTotals::default(), ..*batch }
}
