//! The scaling rules. An experiment chooses one of them.

use super::dynamo_planner::{DynamoPlanner, Planner};
use super::llm_d::{LlmDSaturation, Saturation};
use super::watched::{Decides, EngineLimits};
use serde::{Deserialize, Serialize};

/// A rule that decides the number of replicas of a fleet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum ScalingRule {
    /// llm-d's rule: compares the tokens that the replicas hold in KV with the number of tokens that they can hold.
    LlmD(LlmDSaturation),
    /// Dynamo's planner: a least number of replicas from the rate of requests; predicted latencies then add or remove
    /// one replica at a time.
    DynamoPlanner(DynamoPlanner),
    /// The number of replicas never changes.
    Fixed(Fixed),
}

/// The number of replicas stays as it is. The rule has no settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Fixed {}

impl ScalingRule {
    /// The rule's name.
    pub fn name(&self) -> &'static str {
        match self {
            ScalingRule::LlmD(_) => "llm-d",
            ScalingRule::DynamoPlanner(_) => "dynamo-planner",
            ScalingRule::Fixed(_) => "fixed",
        }
    }

    /// Seconds between two decisions of the rule's own program. llm-d: `GLOBAL_OPT_INTERVAL` = 60 s. Dynamo:
    /// `load_adjustment_interval` = 5 s.
    pub fn usual_interval_s(&self) -> f64 {
        match self {
            ScalingRule::LlmD(_) | ScalingRule::Fixed(_) => 60.0,
            ScalingRule::DynamoPlanner(_) => 5.0,
        }
    }

    /// Seconds between two load reports of a replica. llm-d reads Prometheus, which is assumed to scrape every 15 s.
    /// Dynamo's engines send their metrics as events; here they report every second.
    pub fn usual_report_interval_s(&self) -> f64 {
        match self {
            ScalingRule::LlmD(_) | ScalingRule::Fixed(_) => 15.0,
            ScalingRule::DynamoPlanner(_) => 1.0,
        }
    }

    /// Checks the rule's settings.
    ///
    /// # Errors
    /// A setting is outside its range. The error is its key, and what is wrong.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        match self {
            ScalingRule::LlmD(settings) => settings.check(),
            ScalingRule::DynamoPlanner(settings) => settings.check(),
            ScalingRule::Fixed(_) => Ok(()),
        }
    }

    /// Builds the rule for a run; `None` for the rule `fixed`, which never decides.
    pub(crate) fn build(&self, limits: EngineLimits) -> Option<Box<dyn Decides>> {
        match self {
            ScalingRule::LlmD(settings) => Some(Box::new(Saturation::new(settings.clone(), limits))),
            ScalingRule::DynamoPlanner(settings) => Some(Box::new(Planner::new(settings.clone(), limits))),
            ScalingRule::Fixed(_) => None,
        }
    }
}
