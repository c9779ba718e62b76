//! Fleets that grow and shrink: replicas that boot and drain, and the rules that decide how many there are.
//!
//! A rule ([`ScalingRule`]) decides at an interval. It sees the newest load reports of the serving replicas, which come
//! at an interval and with a delay ([`Signals`]). It also sees counts of the requests that were sent and that ended so
//! far.

mod dynamo_planner;
mod llm_d;
mod rule;
pub(crate) mod scaler;
mod settings;
mod step_model;
#[cfg(test)]
mod tests;
mod watched;

pub use dynamo_planner::DynamoPlanner;
pub use llm_d::LlmDSaturation;
pub use rule::{Fixed, ScalingRule};
pub use scaler::Growing;
pub use settings::Scaling;
pub use watched::{EngineLimits, Traffic, Watched, Wish};
