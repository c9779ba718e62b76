//! The candidates (such as draft lengths) that a policy compared in its last step, with the policy's estimate (such as
//! tokens per second) of each. They are recorded only after the first call of `explain`, because recording allocates.

use foretoken_sim::{Candidate, Explanation};

/// The candidates (such as draft lengths) that the policy compared in its last decision, with its estimate of each. The
/// list stays empty until recording is turned on.
#[derive(Default)]
pub(crate) struct Weighed {
    on: bool,
    candidates: Vec<Candidate>,
}

impl Weighed {
    /// Begins a new decision of the policy: removes the recorded candidates of the last one.
    #[inline]
    pub(crate) fn begin(&mut self) {
        if self.on {
            self.candidates.clear();
        }
    }

    /// Records a candidate of the decision with the policy's estimate for it, if recording is turned on. Only then
    /// calls `what`, which describes the candidate.
    #[inline]
    pub(crate) fn note(&mut self, estimate: f64, what: impl FnOnce() -> String) {
        if self.on {
            self.candidates.push(Candidate { what: what(), estimate });
        }
    }

    /// Returns the candidates of the last decision together with `estimate`, the policy's estimate (such as tokens per
    /// second) for what it chose. From the first call on, the candidates of later
    /// decisions are stored.
    pub(crate) fn explain(&mut self, estimate: impl Into<Option<f64>>) -> Explanation {
        self.on = true;
        Explanation { estimate: estimate.into(), candidates: self.candidates.clone() }
    }
}
