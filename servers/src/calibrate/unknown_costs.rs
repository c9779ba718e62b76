//! Random factors by which the true costs of passes and of the host may differ from calibrated costs.

use foretoken_sim::Luck;
use serde::{Deserialize, Serialize};

/// Factors by which the true costs of a server's passes and host may differ from the calibrated costs. A factor of 1
/// means no difference.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CostFactors {
    /// Factor by which the true constant time of a target pass (δ) may differ from the fitted one.
    pub pass: f64,
    /// Factor by which the true time per token of a target pass (γ) may differ from the fitted one.
    pub token: f64,
    /// Factor by which the true time of a draft pass may differ from the fitted one.
    pub draft: f64,
    /// Factor by which the true host time per step that verifies draft tokens may differ from the fitted one.
    pub step: f64,
    /// Factor by which the true host time per request in a step that verifies draft tokens may differ from the fitted
    /// one.
    pub request: f64,
    /// A step that verifies draft tokens and is too large for a captured CUDA graph takes additional host time. The
    /// true additional time may differ from the fitted one by this factor.
    pub launch: f64,
}

impl CostFactors {
    /// All factors are 1: the true costs are the fitted ones.
    pub const NONE: CostFactors =
        CostFactors { pass: 1.0, token: 1.0, draft: 1.0, step: 1.0, request: 1.0, launch: 1.0 };
}

/// Draw number `n` from the standard normal distribution. `luck` is a seeded source of random numbers; equal `luck` and
/// `n` give equal draws.
pub fn normal(luck: &Luck, n: u64) -> f64 {
    let (u, v) = (1.0 - luck.unit(2 * n), luck.unit(2 * n + 1));
    (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
}
