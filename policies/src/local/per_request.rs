//! Stores a small state of a policy for each request, which is freed when the request ends.

use crate::shared::slots::Slots;
use foretoken_sim::RequestId;

/// Stores one state `T` of a policy for each request that has not ended. A new request starts with the default state.
#[derive(Default)]
pub(crate) struct PerRequest<T> {
    slots: Slots,
    states: Vec<T>,
}

impl<T: Copy + Default> PerRequest<T> {
    /// Returns the policy's state of request `id`; the default state if the request has none.
    pub(crate) fn get(&self, id: RequestId) -> T {
        self.slots.get(id).map(|place| self.states[place]).unwrap_or_default()
    }

    /// Returns the policy's state of request `id`, to be changed. A new request gets the default state.
    pub(crate) fn entry(&mut self, id: RequestId) -> &mut T {
        let (place, new) = self.slots.take(id);
        if self.states.len() <= place {
            self.states.resize(place + 1, T::default());
        }
        if new {
            self.states[place] = T::default();
        }
        &mut self.states[place]
    }

    /// Removes the state of request `id`, which has ended.
    pub(crate) fn forget(&mut self, id: RequestId) {
        self.slots.free(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_has_its_own_and_starts_with_the_default() {
        let mut memory = PerRequest::<u32>::default();
        *memory.entry(3) = 7;
        *memory.entry(9) += 1;
        assert_eq!([3, 9, 4].map(|id| memory.get(id)), [7, 1, 0]);
        for id in 100..200 {
            assert_eq!(*memory.entry(id), 0, "a slot that is used again");
            *memory.entry(id) = 5;
            memory.forget(id);
            assert_eq!(memory.get(id), 0);
        }
        assert_eq!(([3, 9].map(|id| memory.get(id)), memory.states.len()), ([7, 1], 3));
    }
}
