//! The uncertainty of calibrated costs, as random factors.

use foretoken_sim::Luck;
use serde::{Deserialize, Serialize};

/// Factors by which the true costs of a server may differ from the calibrated ones. 1 is no difference.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CostFactors {
    /// Factor on the target's δ, the time per pass.
    pub pass: f64,
    /// Factor on the target's γ, the time per token.
    pub token: f64,
    /// Factor on the time of a draft pass.
    pub draft: f64,
    /// Factor on the host's time per step that verifies drafts.
    pub step: f64,
    /// Factor on the host's time per request in a step that verifies drafts.
    pub request: f64,
    /// Factor on the additional host time of a step that verifies drafts and is too large for a captured graph.
    pub launch: f64,
}

impl CostFactors {
    /// All factors 1: the costs as they were fitted.
    pub const NONE: CostFactors =
        CostFactors { pass: 1.0, token: 1.0, draft: 1.0, step: 1.0, request: 1.0, launch: 1.0 };
}

/// Draw number `n` from the standard normal distribution. Equal `luck` and `n` give equal draws.
pub fn normal(luck: &Luck, n: u64) -> f64 {
    let (u, v) = (1.0 - luck.unit(2 * n), luck.unit(2 * n + 1));
    (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
}
