//! How the confidences of DSpark's draft tokens reach the host. In each round (a step with draft tokens) the
//! confidences of all requests are copied into a ring of two rows, so the host sees confidences that are two rounds
//! old. If the lag is to be longer than two rounds, each request has a second ring, the carry, which adds the missing
//! rounds.
//!
//! Source: SGLang 0.5.23 `srt/managers/overlap_utils.py` (`ConfidenceRelay`) and
//! `HostConfidenceBudgetPlanner._shift_to_lag` in `srt/speculative/dspark_components/dspark_planner.py`. A copy has all
//! requests, so a request that took no part in a round has its last confidences in the copy. The carry is written only
//! for the requests of a round. Rounds that compute a verify budget (the number of draft tokens to verify) use the rows
//! of the carry in turn.

use crate::shared::slots::Slots;
use foretoken_sim::RequestId;

/// Number of rounds (steps with draft tokens) until confidences reach the host through the first ring buffer
/// (`CONFIDENCE_RELAY_RING_LAG`).
const RING: u64 = 2;

/// Holds the confidences of the draft tokens of the last steps until they reach the host.
pub(crate) struct Relay {
    /// True if the scheduler overlaps with the device, so that a ring buffer brings confidences to the host two rounds
    /// (steps with draft tokens) late. If false, the present confidences go straight into the second ring, the carry.
    overlap: bool,
    width: usize,
    /// Number of rows of each request's second ring of confidences, the carry: the number of steps by which the lag
    /// exceeds the lag of the first ring.
    carry: usize,
    slots: Slots,
    /// Number of rounds (steps with draft tokens) whose confidences were recorded so far.
    rounds: u64,
    /// Number of steps so far for which the number of draft tokens to verify was computed.
    budgets: usize,
    /// For each request, by its slot (its index in these vectors): the rounds in which the two rows of its first ring
    /// of confidences were recorded; `u64::MAX` for an empty row. A round is a step with draft tokens.
    recorded: Vec<[u64; 2]>,
    /// For each request, by its slot (its index in these vectors), and each row of the carry (the request's second ring
    /// of confidences): true if the row has confidences.
    carried: Vec<bool>,
    /// For each request, by its slot (its index in these vectors): its confidences, in two rows of the first ring, then
    /// `carry` rows of the second ring.
    rows: Vec<f32>,
}

impl Relay {
    /// Creates a relay for up to `width` draft tokens per request and step, whose confidences arrive `lag` steps late.
    /// A smaller `lag` counts as 1, or as 2 if scheduling is overlapped (`overlap`).
    pub(crate) fn new(lag: u32, overlap: bool, width: u32) -> Relay {
        let ring = if overlap { RING as u32 } else { 0 };
        Relay {
            overlap,
            width: width as usize,
            carry: lag.max(1).saturating_sub(ring) as usize,
            slots: Slots::default(),
            rounds: 0,
            budgets: 0,
            recorded: Vec::new(),
            carried: Vec::new(),
            rows: Vec::new(),
        }
    }

    /// True if the number of draft tokens to verify can be computed in this step. With overlapped scheduling that is
    /// not so in the first two steps, in which the ring of late confidences fills.
    pub(crate) fn is_ready(&self) -> bool {
        !self.overlap || self.rounds >= RING
    }

    /// Writes the confidences of a request that have reached the host into `late`; all are 1 if none has. `live` are
    /// the confidences of the present draft tokens. With a carry (a second ring), this reads the row of the carry whose
    /// turn it is. Then the row gets the newest confidences of the first ring; without overlap, it gets `live`. Call
    /// this once per request in every round (step) that computes a number of draft tokens to verify.
    pub(crate) fn late(&mut self, id: RequestId, live: impl Iterator<Item = f64>, late: &mut [f64]) {
        late.fill(1.0);
        let place = self.place(id);
        let (width, base) = (self.width, place * (2 + self.carry) * self.width);
        let rows = &mut self.rows[base..][..(2 + self.carry) * width];
        let (seen, carried) = rows.split_at_mut(2 * width);
        let ring = self.recorded[place].into_iter().enumerate();
        let newest = ring.filter(|&(_, at)| at != u64::MAX && at + RING <= self.rounds).max_by_key(|&(_, at)| at);
        if self.carry == 0 {
            if let Some((row, _)) = newest {
                late.iter_mut().zip(&seen[row * width..]).for_each(|(to, &c)| *to = f64::from(c));
            }
            return;
        }
        let turn_row = self.budgets % self.carry;
        let kept = &mut carried[turn_row * width..][..width];
        let full = &mut self.carried[place * self.carry + turn_row];
        if *full {
            late.iter_mut().zip(&*kept).for_each(|(to, &c)| *to = f64::from(c));
        }
        *full = !self.overlap || newest.is_some();
        if !self.overlap {
            kept.fill(1.0);
            kept.iter_mut().zip(live).for_each(|(to, c)| *to = c as f32);
        } else if let Some((row, _)) = newest {
            kept.copy_from_slice(&seen[row * width..][..width]);
        }
    }

    /// Counts one computed verify budget (the number of draft tokens to verify). Call it when this step's budget is
    /// computed, after [`late`](Relay::late) was called for all requests of the step.
    pub(crate) fn budget_computed(&mut self) {
        self.budgets += 1;
    }

    /// Records the confidences of a request's draft tokens in this step, so that they reach the host later. Tokens that
    /// were not drafted get 1.
    pub(crate) fn record(&mut self, id: RequestId, confidences: impl Iterator<Item = f64>) {
        let place = self.place(id);
        let recorded = &mut self.recorded[place];
        let older = usize::from(recorded[0] != u64::MAX && (recorded[1] == u64::MAX || recorded[1] < recorded[0]));
        recorded[older] = self.rounds;
        let row = &mut self.rows[(place * (2 + self.carry) + older) * self.width..][..self.width];
        row.fill(1.0);
        row.iter_mut().zip(confidences).for_each(|(to, c)| *to = c as f32);
    }

    /// Ends the round (a step with draft tokens): confidences that are recorded from now on belong to the next round.
    pub(crate) fn next_round(&mut self) {
        self.rounds += 1;
    }

    /// Removes the confidences of request `id`, which has ended.
    pub(crate) fn forget(&mut self, id: RequestId) {
        self.slots.free(id);
    }

    /// Returns the slot of a request (its index) in the vectors of confidences. The slot of a new request is emptied
    /// first.
    fn place(&mut self, id: RequestId) -> usize {
        let (place, new) = self.slots.take(id);
        if self.recorded.len() <= place {
            self.recorded.resize(place + 1, [u64::MAX; 2]);
            self.carried.resize((place + 1) * self.carry, false);
            self.rows.resize((place + 1) * (2 + self.carry) * self.width, 1.0);
        }
        if new {
            self.recorded[place] = [u64::MAX; 2];
            self.carried[place * self.carry..][..self.carry].fill(false);
        }
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The confidences of request 5 that have reached the host, one for each round (step) with a verify budget in which
    /// the request takes part. `takes_part` has one entry for each round. In its n-th round (from 0) the request has
    /// the confidence n / 8.
    fn arrivals(lag: u32, overlap: bool, takes_part: &[bool]) -> Vec<f64> {
        let mut relay = Relay::new(lag, overlap, 1);
        let mut seen = Vec::new();
        let mut mine = 0.0;
        for &here in takes_part {
            let mut late = [9.0];
            if relay.is_ready() {
                if here {
                    relay.late(5, [mine].into_iter(), &mut late);
                    seen.push(late[0]);
                }
                relay.late(6, [0.5].into_iter(), &mut late);
                relay.budget_computed();
            }
            if here {
                relay.record(5, [mine].into_iter());
                mine += 0.125;
            }
            relay.record(6, [0.5].into_iter());
            relay.next_round();
        }
        seen
    }

    #[test]
    fn the_ring_is_two_rounds_late_and_the_carry_adds_to_it() {
        assert_eq!(arrivals(2, true, &[true; 6]), [0.0, 0.125, 0.25, 0.375]);
        assert_eq!(arrivals(1, true, &[true; 4]), [0.0, 0.125], "no lag is shorter than the ring's");
        assert_eq!(arrivals(4, true, &[true; 6]), [1.0, 1.0, 0.0, 0.125]);
        assert_eq!(arrivals(2, false, &[true; 5]), [1.0, 1.0, 0.0, 0.125, 0.25]);
        assert_eq!(arrivals(1, false, &[true; 3]), [1.0, 0.0, 0.125]);
    }

    #[test]
    fn a_request_that_sat_rounds_out_has_its_last_confidences() {
        let rounds = [true, true, true, false, false, true, true];
        // Request 5 takes no part in rounds (steps) 3 and 4. The copies of the confidences from these rounds, which the
        // host uses in rounds 5 and 6, still have the request's confidence of round 2.
        assert_eq!(arrivals(2, true, &rounds), [0.0, 0.25, 0.25]);
        // With a lag of 4 rounds (steps), the carry (the request's second ring) has two rows: one for rounds 2, 4 and
        // 6, one for rounds 3 and 5. The second row is still empty in round 5, and an empty row counts as confidence 1.
        assert_eq!(arrivals(4, true, &rounds), [1.0, 1.0, 0.0]);
    }

    #[test]
    fn memory_does_not_grow_with_the_trace() {
        let mut relay = Relay::new(3, true, 8);
        for id in 0..100 {
            relay.record(id, [0.5; 8].into_iter());
            relay.next_round();
            let mut late = [0.0; 8];
            relay.late(id + 1, [0.5; 8].into_iter(), &mut late);
            assert_eq!(late, [1.0; 8], "a slot that is used again knows nothing of the request before");
            relay.forget(id);
        }
        assert_eq!(relay.recorded.len(), 2);
    }
}
