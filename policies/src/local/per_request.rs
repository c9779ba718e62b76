//! A small state per request, in memory that does not grow with the run.

use crate::shared::slots::Slots;
use foretoken_sim::RequestId;

/// One `T` for each request observed lately; a new request has the default.
pub(crate) struct PerRequest<T> {
    slots: Slots,
    of: Vec<T>,
}

impl<T: Copy + Default> PerRequest<T> {
    /// An empty map for about `most` requests at a time.
    pub(crate) fn new(most: u32) -> PerRequest<T> {
        PerRequest { slots: Slots::new(most), of: Vec::new() }
    }

    /// Counts a step. Call it once for each observed step.
    pub(crate) fn next_step(&mut self) {
        self.slots.next_step();
    }

    /// Returns the state of request `id`, or the default.
    pub(crate) fn get(&self, id: RequestId) -> T {
        self.slots.get(id).map(|place| self.of[place]).unwrap_or_default()
    }

    /// Returns the state of request `id` for changing it; makes the default if the request is new.
    pub(crate) fn entry(&mut self, id: RequestId) -> &mut T {
        let (place, new) = self.slots.see(id);
        if self.of.len() <= place {
            self.of.resize(place + 1, T::default());
        }
        if new {
            self.of[place] = T::default();
        }
        &mut self.of[place]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_has_its_own_and_starts_with_the_default() {
        let mut memory = PerRequest::<u32>::new(1);
        *memory.entry(3) = 7;
        *memory.entry(9) += 1;
        assert_eq!([3, 9, 4].map(|id| memory.get(id)), [7, 1, 0]);
        for id in 100..100_000 {
            memory.next_step();
            assert_eq!(*memory.entry(id), 0, "a place that is used again");
            *memory.entry(id) = 5;
        }
        assert!(memory.of.len() < 50_000, "{}", memory.of.len());
    }
}
