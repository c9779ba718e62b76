//! Confidences of earlier rounds: engines that overlap scheduling with the device size a step's budget by confidences that
//! are one or two rounds old, because the newest have not reached the host yet (policies.md 6.1, 6.2).

use foretoken_sim::RequestId;

/// The last rounds of every request. Grows with the greatest request id.
#[derive(Clone, Debug)]
pub(crate) struct History {
    lag: usize,
    width: usize,
    /// Rounds recorded of each request.
    rounds: Vec<u32>,
    /// `lag` rows of `width` confidences a request, written in turn.
    rows: Vec<f64>,
}

impl History {
    /// Remembers rounds of up to `width` tokens for `lag` ≥ 1 rounds.
    pub(crate) fn new(lag: usize, width: u32) -> History {
        History { lag, width: width as usize, rounds: Vec::new(), rows: Vec::new() }
    }

    fn slot(&self, id: RequestId) -> usize {
        let id = id as usize;
        (id * self.lag + self.rounds[id] as usize % self.lag) * self.width
    }

    /// Was any round of the request recorded?
    pub(crate) fn knows(&self, id: RequestId) -> bool {
        self.rounds.get(id as usize).is_some_and(|&rounds| rounds > 0)
    }

    /// The confidences that the request had `lag` rounds before the one that is about to be recorded.
    pub(crate) fn lagged(&self, id: RequestId) -> Option<&[f64]> {
        let known = self.rounds.get(id as usize).is_some_and(|&rounds| rounds as usize >= self.lag);
        known.then(|| &self.rows[self.slot(id)..][..self.width])
    }

    /// Records a round. What was not drafted counts as certain: nothing is known of it.
    pub(crate) fn record(&mut self, id: RequestId, confidences: impl Iterator<Item = f64>) {
        let requests = id as usize + 1;
        if self.rounds.len() < requests {
            self.rounds.resize(requests, 0);
            self.rows.resize(requests * self.lag * self.width, 1.0);
        }
        let slot = self.slot(id);
        let row = &mut self.rows[slot..][..self.width];
        row.fill(1.0);
        row.iter_mut().zip(confidences).for_each(|(to, c)| *to = c);
        self.rounds[id as usize] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_come_back_after_the_lag() {
        for lag in 1..4usize {
            let mut history = History::new(lag, 3);
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
}
