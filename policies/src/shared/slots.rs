//! Slots for a policy's state per request, if the state is too large to keep for every request of a long trace. A slot
//! is freed when its request was not seen for long; policies need not listen for the ends of requests.

use foretoken_sim::RequestId;

/// A request that was not in this number of observed steps counts as finished. A request that was preempted for longer
/// starts afresh.
const UNSEEN_STEPS: u64 = 10_000;

const NOWHERE: u32 = u32::MAX;

/// Maps requests to slots, and frees the slots of finished requests.
pub(crate) struct Slots {
    /// The slot of each request, by request id.
    place: Vec<u32>,
    /// By slot: its request, and the step in which the request was last seen.
    taken: Vec<(RequestId, u64)>,
    free: Vec<u32>,
    step: u64,
    /// Number of slots at which finished requests are searched for; it doubles if few are found.
    look_at: usize,
}

impl Slots {
    /// An empty map for about `most` requests at a time.
    pub fn new(most: u32) -> Slots {
        let look_at = 4 * most.max(1) as usize;
        Slots { place: Vec::new(), taken: Vec::new(), free: Vec::new(), step: 0, look_at }
    }

    /// Counts an observed step.
    pub fn next_step(&mut self) {
        self.step += 1;
    }

    /// The slot of a request that was seen before.
    pub fn get(&self, id: RequestId) -> Option<usize> {
        let place = *self.place.get(id as usize)?;
        (place != NOWHERE).then_some(place as usize)
    }

    /// The slot of a request seen in this step, and true if the request is new to the slot.
    pub fn see(&mut self, id: RequestId) -> (usize, bool) {
        if let Some(place) = self.get(id) {
            self.taken[place].1 = self.step;
            return (place, false);
        }
        if self.free.is_empty() && self.taken.len() >= self.look_at {
            self.take_back();
        }
        let place = self.free.pop().unwrap_or_else(|| {
            self.taken.push((id, 0));
            self.taken.len() as u32 - 1
        });
        self.taken[place as usize] = (id, self.step);
        if self.place.len() <= id as usize {
            self.place.resize(id as usize + 1, NOWHERE);
        }
        self.place[id as usize] = place;
        (place as usize, true)
    }

    /// Frees the slots of requests not seen for long. If fewer than half are freed, the next search waits for twice as
    /// many slots.
    fn take_back(&mut self) {
        for (place, &(id, seen)) in self.taken.iter().enumerate() {
            if self.step - seen > UNSEEN_STEPS {
                self.place[id as usize] = NOWHERE;
                self.free.push(place as u32);
            }
        }
        if 2 * self.free.len() < self.taken.len() {
            self.look_at = 2 * self.taken.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_kept_while_seen_and_taken_back_after() {
        let mut slots = Slots::new(1);
        assert_eq!([slots.see(7), slots.see(9), slots.see(7)], [(0, true), (1, true), (0, false)]);
        assert_eq!((slots.get(9), slots.get(8), slots.get(100)), (Some(1), None, None));
        // One request stays and a new one comes each step: memory stays bounded.
        for step in 0..100_000 {
            slots.next_step();
            slots.see(7);
            slots.see(1000 + step);
            assert_eq!(slots.get(7), Some(0));
        }
        assert_eq!(slots.get(9), None);
        assert!(slots.taken.len() < 5 * UNSEEN_STEPS as usize, "{}", slots.taken.len());
    }
}
