//! The `[question]` table of an experiment file: a question that was asked in a public thread, the numbers that the
//! thread reports, and the answer that the run gives.
//!
//! What the thread does not say is assumed. An assumption is a swept setting. A claim is measured over all values of
//! the assumptions, and the answer must hold for each of them.

use crate::spec::paper::{Claim, Measure, Stated};
use serde::{Deserialize, Serialize};

/// The `[question]` table of an experiment: a question from a public thread, which the run answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// The public thread in which the question was asked, such as `vllm-project/vllm#49369`.
    pub thread: String,
    /// The address (URL) of the public thread in which the question was asked.
    pub url: String,
    /// The question in one sentence.
    pub asks: String,
    /// What the thread does not say and the experiment assumes, one sentence each.
    pub assumed: Vec<String>,
    /// The answer if every claim of `decided_by` holds. In the text, `{ID}` is replaced by our value of the claim with
    /// this id.
    pub answer: String,
    /// The answer if a claim of `decided_by` does not hold.
    pub otherwise: String,
    /// Ids of the claims on which the answer rests. If one of them holds for only a part of the assumed values, the
    /// answer is "cannot say".
    pub decided_by: Vec<String>,
    /// The claims: quantities that are measured, and the numbers that the thread reports for them.
    pub claims: Vec<Reported>,
}

/// A quantity that is measured, and the number that the thread reports for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Reported {
    /// Name of the claim. No other claim of the experiment has it.
    pub id: String,
    /// The claim in our words.
    pub says: String,
    /// The number that the thread reports; absent if it reports none. A claim without a number holds in these cases: a
    /// share, if it is above 0; the name of a policy, if it is the same for every assumed value; any other number,
    /// always.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reported: Option<Stated>,
    /// The quantity of our run that the claim is about.
    pub measure: Measure,
    /// Why our value differs from the reported number, or why the claim cannot be decided; absent while the reason is
    /// unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
}

impl Reported {
    /// The reported quantity in the form of a paper's claim, so that claims of questions and of papers are checked
    /// and measured by the same code.
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
