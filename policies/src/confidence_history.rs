//! Confidences of earlier rounds: engines that overlap scheduling with the device size a step's budget by confidences that
//! are one or two rounds old, because the newest have not reached the host yet (policies.md 6.1, 6.2).

use crate::slots::Slots;
use foretoken_sim::RequestId;

/// The last rounds of every request that is still there.
pub(crate) struct History {
    lag: usize,
    width: usize,
    slots: Slots,
    /// Rounds recorded, by place.
    rounds: Vec<u32>,
    /// `lag` rows of `width` confidences a place, written in turn.
    rows: Vec<f64>,
}

impl History {
    /// Remembers rounds of up to `width` tokens for `lag` ≥ 1 rounds, for about `most` requests at a time.
    pub(crate) fn new(lag: usize, width: u32, most: u32) -> History {
        History { lag, width: width as usize, slots: Slots::new(most), rounds: Vec::new(), rows: Vec::new() }
    }

    /// Another step begins.
    pub(crate) fn next_step(&mut self) {
        self.slots.next_step();
    }

    /// Where the next round of a place goes, which is where the one `lag` rounds before it is.
    fn row(&self, place: usize) -> usize {
        (place * self.lag + self.rounds[place] as usize % self.lag) * self.width
    }

    /// Was any round of the request recorded?
    pub(crate) fn knows(&self, id: RequestId) -> bool {
        self.slots.get(id).is_some()
    }

    /// The confidences that the request had `lag` rounds before the one that is about to be recorded.
    pub(crate) fn lagged(&self, id: RequestId) -> Option<&[f64]> {
        let place = self.slots.get(id).filter(|&place| self.rounds[place] as usize >= self.lag)?;
        Some(&self.rows[self.row(place)..][..self.width])
    }

    /// Records a round. What was not drafted counts as certain: nothing is known of it.
    pub(crate) fn record(&mut self, id: RequestId, confidences: impl Iterator<Item = f64>) {
        let (place, new) = self.slots.see(id);
        if self.rounds.len() <= place {
            self.rounds.resize(place + 1, 0);
            self.rows.resize((place + 1) * self.lag * self.width, 1.0);
        }
        if new {
            self.rounds[place] = 0;
        }
        let start = self.row(place);
        let row = &mut self.rows[start..][..self.width];
        row.fill(1.0);
        row.iter_mut().zip(confidences).for_each(|(to, c)| *to = c);
        self.rounds[place] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_come_back_after_the_lag() {
        for lag in 1..4usize {
            let mut history = History::new(lag, 3, 8);
            assert_eq!(history.lagged(5), None);
            for round in 0..10 {
                let seen = history.lagged(5).map(|row| row.to_vec());
                let expected = (round >= lag).then(|| vec![(round - lag) as f64, 0.5, 1.0]);
                assert_eq!(seen, expected, "lag {lag}, round {round}");
                assert_eq!(history.knows(5), round > 0);
                history.record(5, [round as f64, 0.5].into_iter());
            }
            assert_eq!(history.lagged(4), None, "another request has its own");
        }
    }

    #[test]
    fn memory_does_not_grow_with_the_trace() {
        let mut history = History::new(2, 8, 1);
        for id in 0..200_000 {
            history.next_step();
            history.record(id, [0.5; 8].into_iter());
            assert!(history.lagged(id).is_none(), "a place that is used again knows nothing of the request before");
        }
        assert!(history.rounds.len() < 50_000, "{}", history.rounds.len());
    }
}
