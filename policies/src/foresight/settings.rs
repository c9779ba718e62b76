//! The settings of Foretoken's own policy [`foresight`](super::policy).

use crate::foresight::cost::Settings;
use serde::{Deserialize, Serialize};

/// What a second of step time costs, in tokens. A draft token is worth its time if its expected tokens exceed this
/// price.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PriceOfTime {
    /// The most tokens a second that the batch's decode requests could make in a step without prompts.
    #[default]
    Decode,
    /// The step's own ratio of tokens to seconds, as in SmartSpec and vLLM's adaptive verification.
    Step,
}

/// Settings of Foretoken's own policy `foresight`. Most of them switch a part of the policy off, for ablations.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Foresight {
    /// What a second of step time costs, in tokens, when the policy weighs draft tokens against their time.
    pub price: PriceOfTime,
    /// Factor on the price of a second of step time if `price` is `decode`, 0.01 to 100.
    pub price_factor: f64,
    /// How much the price of time rises while requests are about as fast as their TPOT bound, 0 to 100; 2 for a server
    /// that must keep a bound, 0 if bounds do not matter. Acts only if `[slo]` bounds TPOT.
    pub lateness: f64,
    /// Whether the confidences of drafted tokens decide when drafting stops. If false, the draft length is chosen
    /// before drafting.
    pub stop: bool,
    /// Whether requests whose prompts cost the draft model more time than drafting saves them are never drafted for.
    pub decline: bool,
    /// Whether waiting requests raise the price of time while prompts fill the steps.
    pub weigh_backlog: bool,
    /// For drafters that make all tokens in one pass: whether the draft length is chosen for the tokens that trimming
    /// will leave. If false, it is chosen as if all draft tokens were verified.
    pub expect_trim: bool,
    /// Whether the policy measures if its decisions between draft passes (whether to draft on) are worth their host
    /// time. If they are not, the policy no longer makes them. If this setting is false, the policy always makes them.
    pub weigh_asking: bool,
    /// Whether draft tokens whose verification costs more than they are expected to give are dropped before
    /// verification.
    pub trim: bool,
    /// Whether the policy learns while serving how often draft tokens of each confidence are accepted. If false, it
    /// takes the confidence for the probability of acceptance.
    pub calibrate: bool,
    /// Whether the draft model's confidences are used. If false, the policy uses acceptance rates by depth (a token's
    /// place among the request's draft tokens of a step).
    pub confidences: bool,
    /// Whether pass times that were measured at start-up are the costs. If false, a linear cost formula (the belief)
    /// gives the costs.
    pub profile: bool,
    /// Weight of the newest step in the correction of costs by observed step times, [0, 1]; 0 for no correction.
    pub correction: f64,
    /// Whether the policy expects the usual number of prompt tokens in the next step. If false, it expects the number
    /// of this step. Acts only if the next step verifies the draft tokens.
    pub expect_prompts: bool,
    /// Largest share of the token budget that decode requests with their draft tokens may take while prompts wait or
    /// run, [0, 1].
    pub budget_share: f64,
    /// Number of steps without draft tokens after which one token is drafted, to learn whether drafting pays again; at
    /// least 1.
    pub probe_every: u32,
}

impl Default for Foresight {
    fn default() -> Self {
        Foresight {
            price: PriceOfTime::Decode,
            price_factor: 0.85,
            lateness: 0.0,
            stop: true,
            weigh_asking: true,
            decline: true,
            weigh_backlog: true,
            expect_trim: true,
            trim: true,
            calibrate: true,
            confidences: true,
            profile: true,
            correction: 0.02,
            expect_prompts: true,
            budget_share: 0.7,
            probe_every: 64,
        }
    }
}

impl Foresight {
    /// The settings `profile`, `correction` and `expect_prompts`, which say where the policy takes the costs of passes
    /// from.
    pub(crate) fn costs(&self) -> Settings {
        let Foresight { profile, correction, expect_prompts, .. } = *self;
        Settings { profile, correction, expect_prompts }
    }
}
