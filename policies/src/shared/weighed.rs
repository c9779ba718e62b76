//! What a policy weighed in its last step, kept only once somebody asked for it: listing candidates allocates.

use foretoken_sim::{Candidate, Explanation};

/// The list, empty until it is turned on.
#[derive(Default)]
pub(crate) struct Weighed {
    on: bool,
    candidates: Vec<Candidate>,
}

impl Weighed {
    /// A new decision begins: forgets the last one.
    #[inline]
    pub(crate) fn begin(&mut self) {
        if self.on {
            self.candidates.clear();
        }
    }

    /// Remembers a candidate; `what` is only called when somebody listens.
    #[inline]
    pub(crate) fn note(&mut self, estimate: f64, what: impl FnOnce() -> String) {
        if self.on {
            self.candidates.push(Candidate { what: what(), estimate });
        }
    }

    /// How the last decision was come to, with the policy's own estimate of it; from now on, remember.
    pub(crate) fn explain(&mut self, estimate: impl Into<Option<f64>>) -> Explanation {
        self.on = true;
        Explanation { estimate: estimate.into(), candidates: self.candidates.clone() }
    }
}
