//! Slots for the state that a policy keeps per request. A slot is an index that a request has until it ends; then
//! another request gets it, so that memory does not grow with the trace.

use foretoken_sim::RequestId;

const NOWHERE: u32 = u32::MAX;

/// Gives each request a slot: an index into a policy's vectors of state per request.
#[derive(Default)]
pub(crate) struct Slots {
    /// The slot (index into a policy's vectors of state) of each request that has one, by request id.
    place: Vec<u32>,
    free: Vec<u32>,
    /// Number of slots (indices of state per request) that exist, free ones included.
    len: u32,
}

impl Slots {
    /// The slot of a request (its index in a policy's vectors of state); `None` if the request has none.
    pub fn get(&self, id: RequestId) -> Option<usize> {
        let place = *self.place.get(id as usize)?;
        (place != NOWHERE).then_some(place as usize)
    }

    /// The slot of a request (its index in a policy's vectors of state), and true if the request got the slot just now.
    pub fn take(&mut self, id: RequestId) -> (usize, bool) {
        if let Some(place) = self.get(id) {
            return (place, false);
        }
        let place = self.free.pop().unwrap_or_else(|| {
            self.len += 1;
            self.len - 1
        });
        if self.place.len() <= id as usize {
            self.place.resize(id as usize + 1, NOWHERE);
        }
        self.place[id as usize] = place;
        (place as usize, true)
    }

    /// Frees the slot (index in a policy's vectors of state) of a request that has ended; does nothing if the request
    /// has none.
    pub fn free(&mut self, id: RequestId) {
        if let Some(place) = self.get(id) {
            self.place[id as usize] = NOWHERE;
            self.free.push(place as u32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_keeps_its_slot_until_it_ends() {
        let mut slots = Slots::default();
        assert_eq!([slots.take(7), slots.take(9), slots.take(7)], [(0, true), (1, true), (0, false)]);
        assert_eq!((slots.get(9), slots.get(8), slots.get(100)), (Some(1), None, None));
        slots.free(7);
        slots.free(7);
        slots.free(100);
        assert_eq!((slots.get(7), slots.get(9)), (None, Some(1)));
        assert_eq!([slots.take(3), slots.take(4)], [(0, true), (2, true)]);
    }
}
