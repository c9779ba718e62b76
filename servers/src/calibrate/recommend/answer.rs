//! The parts of a recommendation: the verdict, the best candidate policy, and the verdict with host time.

use super::at_load::AtLoad;
use serde::Serialize;

/// A candidate policy, with its largest loss over the loads and the load at which it loses most.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Best {
    /// The label of the candidate policy, such as `fixed-3`.
    pub policy: String,
    /// The name of the candidate policy in advice, such as `K = 3`.
    pub name: String,
    /// The largest number of draft tokens that the candidate policy gives a request in a step.
    pub longest: u32,
    /// The largest loss of the candidate policy over the loads. The loss at a load is the candidate's cost (such as
    /// mean E2E) / the best candidate's cost − 1.
    pub worst_loss: f64,
    /// The name of the load at which the candidate policy has this largest loss.
    pub worst_at: String,
}

/// What to do with the server's policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Run the best candidate policy in place of the present one.
    Change,
    /// Keep the server's policy: the data shows no candidate policy that is better.
    Stay,
    /// Run plain decoding, without a drafter.
    DoNotSpeculate,
    /// The data does not decide what to do. The text has the reason and what to observe next.
    Unknown(String),
}

/// The advice that follows if the host time of a measured server is added to the simulation.
#[derive(Clone, Debug, Serialize)]
pub struct WithHost {
    /// The name of the server on which the host time was measured.
    pub source: &'static str,
    /// What to do with the server's policy if steps take host time.
    pub verdict: Verdict,
    pub best: Option<String>,
    /// True if host time changes the verdict, for example from [`Verdict::Change`] to [`Verdict::Stay`]. A change of
    /// the best policy alone does not count.
    pub flips: bool,
    #[serde(skip)]
    pub at_loads: Vec<AtLoad>,
}
