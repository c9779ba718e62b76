//! The `[question]` table of an experiment file: a question that was asked in a public thread, the numbers that the
//! thread reports, and the answer that the run gives.
//!
//! What the thread does not say is assumed. An assumption is a swept setting. A claim is measured over all values of
//! the assumptions, and the answer must hold for each of them.

use crate::paper::{Claim, Measure, Stated};
use serde::{Deserialize, Serialize};

/// The `[question]` table of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// The thread, such as `vllm-project/vllm#49369`.
    pub thread: String,
    /// The address of the thread.
    pub url: String,
    /// The question in one sentence.
    pub asks: String,
    /// What the thread does not say and the experiment assumes, one sentence each.
    pub assumed: Vec<String>,
    /// The answer if every claim of `decided_by` holds. `{id}` stands for our value of a claim.
    pub answer: String,
    /// The answer if a claim of `decided_by` does not hold.
    pub otherwise: String,
    /// The claims on which the answer rests, by id. If one of them holds only for a part of the assumed values, the
    /// answer is "cannot say".
    pub decided_by: Vec<String>,
    /// The claims, one by one.
    pub claims: Vec<Reported>,
}

/// A quantity that is measured, and the number that the thread reports for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Reported {
    /// Name of the claim within its experiment.
    pub id: String,
    /// The claim in our words.
    pub says: String,
    /// The number that the thread reports; absent if it reports none. Without a number, a share holds if it is above
    /// 0, a policy if it is the same for every assumed value, and any other number always.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reported: Option<Stated>,
    /// The quantity that is measured.
    pub measure: Measure,
    /// Why our value differs, or why it cannot be said; absent while the reason is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
}

impl Reported {
    /// The reported quantity as a claim of a paper, so that both are checked and measured alike.
    pub fn as_claim(&self) -> Claim {
        Claim {
            id: self.id.clone(),
            says: self.says.clone(),
            place: String::new(),
            stated: self.reported.clone().unwrap_or(Stated::FigureOnly),
            measure: self.measure.clone(),
            because: self.because.clone(),
        }
    }
}
