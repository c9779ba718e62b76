//! The parameters of [`foresight`](super::policy).

use crate::foresight::cost::Settings;
use serde::{Deserialize, Serialize};

/// The price of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PriceOfTime {
    /// The most tokens a second that the decodes of the batch could make without the prompts' chunk.
    #[default]
    Decode,
    /// The step's own ratio of tokens to seconds, as SmartSpec and vLLM's adaptive verification take it.
    Step,
}

/// Parameters of `foresight`. All but `price_factor` switch a part off, for ablations.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Foresight {
    /// The price of time.
    pub price: PriceOfTime,
    /// Factor on the decode price.
    pub price_factor: f64,
    /// Whether drafting stops by confidence; otherwise the length is chosen before drafting.
    pub stop: bool,
    /// Whether waiting requests make time dearer while prompts fill the steps.
    pub weigh_backlog: bool,
    /// Whether a drafter that makes all tokens in one pass drafts for what is left after trimming; otherwise for what
    /// would be verified in whole.
    pub expect_trim: bool,
    /// Whether it is measured if decisions between draft passes are worth their time; otherwise they are made always.
    pub weigh_asking: bool,
    /// Whether verification is trimmed to the tokens that pay.
    pub trim: bool,
    /// Whether odds are learnt while serving; otherwise a confidence is taken for the chance of acceptance.
    pub calibrate: bool,
    /// Whether confidences are read; otherwise odds are acceptance rates by depth.
    pub confidences: bool,
    /// Whether costs are the times of passes measured at start-up; otherwise the linear belief.
    pub profile: bool,
    /// Weight of a step's time in the correction of the costs; 0 for no correction.
    pub correction: f64,
    /// Whether the next step's prompts are expected as they usually come; otherwise as they are in this step. Acts
    /// only where the next step verifies the drafts.
    pub expect_prompts: bool,
    /// Share of the token budget that drafts may be charged while prompts wait or run.
    pub budget_share: f64,
    /// Number of steps without drafts after which one token is drafted, to learn whether drafting pays again.
    pub probe_every: u32,
}

impl Default for Foresight {
    fn default() -> Self {
        Foresight {
            price: PriceOfTime::Decode,
            price_factor: 0.85,
            stop: true,
            weigh_asking: true,
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
    /// Which costs the policy uses, by these settings.
    pub(crate) fn costs(&self) -> Settings {
        let Foresight { profile, correction, expect_prompts, .. } = *self;
        Settings { profile, correction, expect_prompts }
    }
}
