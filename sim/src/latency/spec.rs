//! The latency models a user may ask for, by name.

use super::{Coefficients, LatencyModel, Linear, MeasuredSpec, Memory, RooflineSpec, StaircaseSpec};
use serde::{Deserialize, Serialize};

/// A latency model and its settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LatencySpec {
    /// `T = α·context + γ·batched + δ`.
    Linear(Coefficients),
    /// Padded CUDA-graph sizes, from a measured table.
    Staircase(StaircaseSpec),
    /// A measured table, read between its sizes.
    Measured(MeasuredSpec),
    /// A GPU's datasheet and a model's shape.
    Roofline(RooflineSpec),
}

/// A setting no model can be built from.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{key}: {why}")]
pub struct BadLatency {
    /// The setting, below the model's name.
    pub key: String,
    /// What is wrong and what would be right.
    pub why: String,
}

pub(super) fn bad(key: &str, why: impl Into<String>) -> BadLatency {
    BadLatency { key: key.into(), why: why.into() }
}

/// An unknown preset, with the ones there are.
pub(super) fn unknown(key: &str, name: &str, known: impl Iterator<Item = &'static str>) -> BadLatency {
    bad(key, format!("no preset \"{name}\"; there are {}", known.collect::<Vec<_>>().join(", ")))
}

impl LatencySpec {
    /// Checks every value that serde cannot.
    pub fn check(&self) -> Result<(), BadLatency> {
        match self {
            LatencySpec::Linear(c) => {
                let all = [("alpha_s", c.alpha_s), ("gamma_s", c.gamma_s), ("delta_s", c.delta_s)];
                match all.into_iter().find(|(_, x)| !(*x >= 0.0 && x.is_finite())) {
                    Some((key, x)) => Err(bad(key, format!("{x} is not a time ≥ 0 s"))),
                    None => Ok(()),
                }
            }
            LatencySpec::Staircase(s) => s.check(),
            LatencySpec::Measured(m) => m.check(),
            LatencySpec::Roofline(r) => r.check(),
        }
    }

    /// The model. Panics on settings that [`check`](LatencySpec::check) refuses.
    pub fn build(&self) -> Box<dyn LatencyModel> {
        const CHECKED: &str = "the latency model was checked before";
        match self {
            LatencySpec::Linear(c) => Box::new(Linear::new(*c)),
            LatencySpec::Staircase(s) => Box::new(s.build().expect(CHECKED)),
            LatencySpec::Measured(m) => Box::new(m.build().expect(CHECKED)),
            LatencySpec::Roofline(r) => Box::new(r.build().expect(CHECKED)),
        }
    }

    /// The memory it leaves for KV, where the model says (a roofline).
    pub fn memory(&self) -> Option<Memory> {
        match self {
            LatencySpec::Roofline(r) => r.memory().ok(),
            _ => None,
        }
    }
}
