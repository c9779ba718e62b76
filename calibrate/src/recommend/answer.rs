//! The parts of an advice: the verdict, the best candidate, and the verdict with host time.

use serde::Serialize;

/// A candidate, with its largest loss over the loads and the load at which it loses most.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Best {
    /// The candidate's policy label.
    pub policy: String,
    /// The candidate's name in advice, such as `K = 3`.
    pub name: String,
    /// The candidate's longest draft, in tokens.
    pub longest: u32,
    /// The loss of the candidate at the load where it is largest: cost / the best candidate's cost at this load − 1.
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
    /// The data does not decide what to do. The text has the reason and what to observe next.
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
    /// True if the verdict with host time is of another kind than the verdict without it.
    pub flips: bool,
}
