//! Acceptance rates of single requests, each over the request's last steps with verified draft tokens.

use crate::shared::acceptance::Rate;
use crate::shared::slots::Slots;
use foretoken_sim::{RequestId, StepOutcome};

/// The fill of the ring buffer that holds one request's last steps with verified draft tokens, and the sums over these
/// steps.
#[derive(Clone, Copy, Default)]
struct Last {
    /// Number of steps in the request's ring buffer (`len`), and the index at which the next step is written (`next`).
    len: u32,
    next: u32,
    /// Sums over the request's steps in its ring buffer: accepted draft tokens, and tries. A try is a draft token that
    /// counts in the denominator of the acceptance rate.
    accepted: u32,
    tries: u32,
}

/// Acceptance rates of the requests that have not ended, each over the request's last steps with verified draft tokens.
pub(crate) struct RequestRates {
    start: f64,
    window: usize,
    slots: Slots,
    /// For each request: how many steps its ring buffer in `rings` holds, and the sums of accepted draft tokens and of
    /// tries over these steps. The index is the request's slot, which it keeps until it ends.
    last: Vec<Last>,
    /// The ring buffers: (accepted draft tokens, tries) of each request's last steps. A try is a draft token that
    /// counts in the denominator of the acceptance rate. A request with the slot s (its index, kept until it ends) has
    /// `window` entries, from `s * window` on.
    rings: Vec<(u16, u16)>,
}

impl RequestRates {
    /// No acceptance rates yet. A request's rate is `start` until one of its draft tokens was verified. Then it is the
    /// rate over the request's last `window` steps with verified draft tokens.
    pub(crate) fn new(start: f64, window: u32) -> RequestRates {
        let window = window as usize;
        RequestRates { start, window, slots: Slots::default(), last: Vec::new(), rings: Vec::new() }
    }

    /// Returns the request's acceptance rate: accepted draft tokens divided by tries, over its last steps with verified
    /// draft tokens.
    pub(crate) fn rate(&self, id: RequestId) -> f64 {
        let rate = |last: &Last| f64::from(last.accepted) / f64::from(last.tries);
        self.slots.get(id).map_or(self.start, |slot| rate(&self.last[slot]))
    }

    /// Adds a step's outcome to the ring buffers of the requests with verified draft tokens. `rate` says which draft
    /// tokens count in the denominator of the acceptance rate.
    pub(crate) fn observe(&mut self, outcome: &StepOutcome, rate: Rate) {
        for ((&id, &accepted), &verified) in outcome.ids.iter().zip(outcome.accepted).zip(outcome.verified) {
            if verified > 0 {
                self.add(id, accepted as u16, rate.tries(accepted, verified) as u16);
            }
        }
    }

    /// Removes the ring buffer of request `id`, which has ended.
    pub(crate) fn forget(&mut self, id: RequestId) {
        self.slots.free(id);
    }

    fn add(&mut self, id: RequestId, accepted: u16, tries: u16) {
        let (slot, new) = self.slots.take(id);
        if self.last.len() <= slot {
            self.last.resize(slot + 1, Last::default());
            self.rings.resize((slot + 1) * self.window, (0, 0));
        }
        let last = &mut self.last[slot];
        if new {
            *last = Last::default();
        }
        let ring = &mut self.rings[slot * self.window..][..self.window];
        if last.len as usize == self.window {
            let oldest = ring[last.next as usize];
            last.accepted -= u32::from(oldest.0);
            last.tries -= u32::from(oldest.1);
        } else {
            last.len += 1;
        }
        ring[last.next as usize] = (accepted, tries);
        last.next = (last.next + 1) % self.window as u32;
        last.accepted += u32::from(accepted);
        last.tries += u32::from(tries);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::outcome;
    use foretoken_sim::Drafts;

    fn saw(rates: &mut RequestRates, ids: &[u32], verified: &[u32], accepted: &[u32]) {
        let drafts = Drafts::default();
        rates.observe(&StepOutcome { ids, ..outcome(&drafts, verified, accepted) }, Rate::Attempts);
    }

    #[test]
    fn each_request_has_its_own_window() {
        let mut rates = RequestRates::new(0.5, 2);
        saw(&mut rates, &[3, 9], &[4, 4], &[4, 0]);
        assert_eq!([3, 9, 1].map(|id| rates.rate(id)), [1.0, 0.0, 0.5]);
        // Request 3 has no verified draft tokens in this step, so the step does not enter the window of its acceptance
        // rate.
        saw(&mut rates, &[3, 9], &[0, 4], &[0, 2]);
        saw(&mut rates, &[3, 9], &[4, 4], &[1, 4]);
        assert_eq!([rates.rate(3), rates.rate(9)], [5.0 / 6.0, 6.0 / 7.0]);
        saw(&mut rates, &[3], &[4], &[0]);
        assert_eq!(rates.rate(3), 1.0 / 3.0);
    }

    #[test]
    fn a_request_that_ended_is_forgotten() {
        let mut rates = RequestRates::new(0.5, 4);
        saw(&mut rates, &[0, 1], &[2, 2], &[2, 0]);
        rates.forget(1);
        assert_eq!([0, 1].map(|id| rates.rate(id)), [1.0, 0.5]);
        saw(&mut rates, &[0, 2], &[2, 1], &[2, 1]);
        assert_eq!([0, 1, 2].map(|id| rates.rate(id)), [1.0, 0.5, 1.0]);
        assert_eq!((rates.last.len(), rates.rings.len()), (2, 8), "the slot is used again");
    }
}
