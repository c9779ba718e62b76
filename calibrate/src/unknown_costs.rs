//! What a calibration does not know of its costs, as draws of factors.

use foretoken_sim::Luck;
use serde::{Deserialize, Serialize};

/// Factors on the costs of a calibrated server, as they may be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CostFactors {
    /// On the target's δ.
    pub pass: f64,
    /// On the target's γ.
    pub token: f64,
    /// On a draft pass.
    pub draft: f64,
    /// On the host's time of a speculating step.
    pub step: f64,
    /// On the host's time of a request in it.
    pub request: f64,
    /// On launches without a captured graph.
    pub launch: f64,
}

impl CostFactors {
    /// The costs as they were fitted.
    pub const NONE: CostFactors =
        CostFactors { pass: 1.0, token: 1.0, draft: 1.0, step: 1.0, request: 1.0, launch: 1.0 };
}

/// A standard normal number; `n` numbers the draws.
pub fn normal(luck: &Luck, n: u64) -> f64 {
    let (u, v) = (1.0 - luck.unit(2 * n), luck.unit(2 * n + 1));
    (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
}
