//! The parts of an advice: the verdict, the best candidate, and the verdict with host time.

use serde::Serialize;

/// A candidate, with its largest loss over the loads and the load where it loses most.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Best {
    /// The candidate's policy label.
    pub policy: String,
    /// The candidate's name in advice, such as `K = 3`.
    pub name: String,
    /// The candidate's longest draft, in tokens.
    pub longest: u32,
    /// The candidate's cost over the best candidate's cost, minus 1, at the load where this is largest.
    pub worst_loss: f64,
    /// The name of the load at which the loss is `worst_loss`.
    pub worst_at: String,
}

/// What to do with the server's policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Run the best candidate.
    Change,
    /// Keep the server's policy: the data shows no candidate that is better.
    Stay,
    /// Do not speculate.
    DoNotSpeculate,
    /// The data does not decide. The text has the reason and what to observe next.
    Unknown(String),
}

/// The advice that follows if the host time of a measured server is added to the simulation.
#[derive(Clone, Debug, Serialize)]
pub struct WithHost {
    /// The server on which the host time was measured.
    pub source: &'static str,
    /// The advice with host time.
    pub verdict: Verdict,
    /// The name of the best candidate with host time.
    pub best: Option<String>,
    /// True if host time changes the advice.
    pub flips: bool,
}
