//! Acceptance rates of single requests, each over its last steps, in memory that does not grow with the run.

use crate::shared::acceptance::Rate;
use foretoken_sim::{RequestId, StepOutcome};

/// In `slot_of`: the request has no slot.
const NONE: u32 = u32::MAX;

/// The state of one request.
#[derive(Clone, Copy, Default)]
struct Slot {
    id: RequestId,
    /// The step in which the request was last observed.
    last: u64,
    /// Number of its ring's steps in use, and the index of the next one.
    len: u32,
    next: u32,
    /// Sums over the ring: accepted drafts and tries.
    accepted: u32,
    tries: u32,
}

/// The rates of the requests observed last. When all slots are taken, a new request takes the slot of the request that
/// was not observed for longest; that request is forgotten.
pub(crate) struct RequestRates {
    start: f64,
    window: usize,
    most: usize,
    slot_of: Vec<u32>,
    slots: Vec<Slot>,
    /// (accepted, tries) of the last steps; slot s has the range from `s * window`.
    rings: Vec<(u16, u16)>,
    now: u64,
}

impl RequestRates {
    /// The rate of a request is `start` until a draft of the request was verified. Then it is taken over its last
    /// `window` steps with verified drafts. At most `most` requests are remembered.
    pub(crate) fn new(start: f64, window: u32, most: u32) -> RequestRates {
        RequestRates {
            start,
            window: window as usize,
            most: most.max(1) as usize,
            slot_of: Vec::new(),
            slots: Vec::new(),
            rings: Vec::new(),
            now: 0,
        }
    }

    /// Returns the request's acceptance rate.
    pub(crate) fn rate(&self, id: RequestId) -> f64 {
        match self.slot_of.get(id as usize) {
            None | Some(&NONE) => self.start,
            Some(&slot) => {
                let slot = &self.slots[slot as usize];
                f64::from(slot.accepted) / f64::from(slot.tries)
            }
        }
    }

    /// Adds a step's outcome.
    pub(crate) fn observe(&mut self, outcome: &StepOutcome, rate: Rate) {
        self.now += 1;
        for ((&id, &accepted), &verified) in outcome.ids.iter().zip(outcome.accepted).zip(outcome.verified) {
            if verified > 0 {
                self.add(id, accepted as u16, rate.tries(accepted, verified) as u16);
            }
        }
    }

    fn add(&mut self, id: RequestId, accepted: u16, tries: u16) {
        let at = self.slot(id);
        let slot = &mut self.slots[at];
        let ring = &mut self.rings[at * self.window..][..self.window];
        if slot.len as usize == self.window {
            let oldest = ring[slot.next as usize];
            slot.accepted -= u32::from(oldest.0);
            slot.tries -= u32::from(oldest.1);
        } else {
            slot.len += 1;
        }
        ring[slot.next as usize] = (accepted, tries);
        slot.next = (slot.next + 1) % self.window as u32;
        slot.accepted += u32::from(accepted);
        slot.tries += u32::from(tries);
        slot.last = self.now;
    }

    /// Returns the request's slot; makes one if the request has none.
    fn slot(&mut self, id: RequestId) -> usize {
        if self.slot_of.len() <= id as usize {
            self.slot_of.resize(id as usize + 1, NONE);
        }
        let known = self.slot_of[id as usize];
        if known != NONE {
            return known as usize;
        }
        let at = if self.slots.len() < self.most {
            self.slots.push(Slot::default());
            self.rings.resize(self.slots.len() * self.window, (0, 0));
            self.slots.len() - 1
        } else {
            let oldest = (0..self.slots.len()).min_by_key(|&s| self.slots[s].last).expect("at least one slot");
            self.slot_of[self.slots[oldest].id as usize] = NONE;
            oldest
        };
        self.slots[at] = Slot { id, last: self.now, ..Slot::default() };
        self.slot_of[id as usize] = at as u32;
        at
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
        let mut rates = RequestRates::new(0.5, 2, 8);
        saw(&mut rates, &[3, 9], &[4, 4], &[4, 0]);
        assert_eq!([3, 9, 1].map(|id| rates.rate(id)), [1.0, 0.0, 0.5]);
        // A step without drafts is not part of the window.
        saw(&mut rates, &[3, 9], &[0, 4], &[0, 2]);
        saw(&mut rates, &[3, 9], &[4, 4], &[1, 4]);
        assert_eq!([rates.rate(3), rates.rate(9)], [5.0 / 6.0, 6.0 / 7.0]);
        saw(&mut rates, &[3], &[4], &[0]);
        assert_eq!(rates.rate(3), 1.0 / 3.0);
    }

    #[test]
    fn the_request_not_heard_of_for_longest_is_forgotten() {
        let mut rates = RequestRates::new(0.5, 4, 2);
        saw(&mut rates, &[0], &[2], &[2]);
        saw(&mut rates, &[1], &[2], &[0]);
        saw(&mut rates, &[0], &[2], &[2]);
        saw(&mut rates, &[2], &[1], &[1]);
        assert_eq!([0, 1, 2].map(|id| rates.rate(id)), [1.0, 0.5, 1.0]);
        saw(&mut rates, &[1], &[2], &[1]);
        assert_eq!([0, 1, 2].map(|id| rates.rate(id)), [0.5, 0.5, 1.0]);
        assert_eq!((rates.slots.len(), rates.rings.len()), (2, 8));
    }
}
