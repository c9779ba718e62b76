//! What a policy weighed in its last step, kept only once somebody asked for it: listing candidates allocates.

use foretoken_sim::Candidate;

/// The list, empty until it is turned on.
#[derive(Default)]
pub(crate) struct Weighed {
    on: bool,
    candidates: Vec<Candidate>,
}

impl Weighed {
    /// From now on, remember.
    pub(crate) fn turn_on(&mut self) {
        self.on = true;
    }

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

    /// What was remembered of the last decision.
    pub(crate) fn list(&self) -> Vec<Candidate> {
        self.candidates.clone()
    }
}
