//! The parts of an advice: the verdict, the best candidate, and the verdict with host time.

use serde::Serialize;

/// A candidate compared with the best candidate at each load.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Best {
    /// Its label.
    pub policy: String,
    /// Its name.
    pub name: String,
    /// Its longest draft.
    pub longest: u32,
    /// Its cost over the best candidate's, minus 1, at the load where this is largest.
    pub worst_loss: f64,
    /// The load where it is largest.
    pub worst_at: String,
}

/// The advice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Run the best candidate.
    Change,
    /// The server's policy is as good as any candidate, as far as the data shows.
    Stay,
    /// Do not speculate.
    DoNotSpeculate,
    /// The data does not decide: the reason, and what to observe next.
    Unknown(String),
}

/// The advice with the host time of a measured server.
#[derive(Clone, Debug, Serialize)]
pub struct WithHost {
    /// Where the host time was measured.
    pub source: &'static str,
    /// The advice with it.
    pub verdict: Verdict,
    /// The name of the best candidate with it.
    pub best: Option<String>,
    /// True if the advice is another one.
    pub flips: bool,
}
