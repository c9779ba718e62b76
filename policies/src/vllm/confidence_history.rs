//! Confidences of earlier rounds for vLLM's adaptive verification. It chooses a step's budget before the confidences of
//! the newest drafts have reached the host, so it uses a copy that is a step older (docs/model.md 6.2).

use crate::shared::slots::Slots;
use foretoken_sim::RequestId;

/// What the older copy has of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Known<'a> {
    /// The request drafted for the first time after the copy: its tokens count as certain.
    Nothing,
    /// The confidences of the drafts that were verified in the step before.
    Before(&'a [f64]),
    /// The request did not take part in the step before, so the copy has its present drafts.
    Fresh,
}

/// The last round of every present request.
pub(crate) struct History {
    width: usize,
    slots: Slots,
    step: u64,
    /// By slot: the step of the last round.
    last: Vec<u64>,
    /// By slot: `width` confidences.
    rows: Vec<f64>,
}

impl History {
    /// A history of rounds of up to `width` tokens.
    pub(crate) fn new(width: u32) -> History {
        History { width: width as usize, slots: Slots::default(), step: 0, last: Vec::new(), rows: Vec::new() }
    }

    /// The confidences of a request by which this step's budget is chosen.
    pub(crate) fn known(&self, id: RequestId) -> Known<'_> {
        match self.slots.get(id) {
            None => Known::Nothing,
            Some(place) if self.last[place] == self.step => {
                Known::Before(&self.rows[place * self.width..][..self.width])
            }
            Some(_) => Known::Fresh,
        }
    }

    /// Ends the decision of this step. Its rounds are recorded next.
    pub(crate) fn next_step(&mut self) {
        self.step += 1;
    }

    /// Forgets a request that has ended.
    pub(crate) fn forget(&mut self, id: RequestId) {
        self.slots.free(id);
    }

    /// Records a round. Tokens that were not drafted have confidence 1, as nothing is known of them.
    pub(crate) fn record(&mut self, id: RequestId, confidences: impl Iterator<Item = f64>) {
        let (place, _) = self.slots.take(id);
        if self.last.len() <= place {
            self.last.resize(place + 1, 0);
            self.rows.resize((place + 1) * self.width, 1.0);
        }
        self.last[place] = self.step;
        let row = &mut self.rows[place * self.width..][..self.width];
        row.fill(1.0);
        row.iter_mut().zip(confidences).for_each(|(to, c)| *to = c);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_is_known_in_the_next_step_and_the_drafts_themselves_later() {
        let mut history = History::new(3);
        assert_eq!(history.known(5), Known::Nothing);
        for round in 0..3 {
            history.next_step();
            history.record(5, [f64::from(round), 0.5].into_iter());
            assert_eq!(history.known(5), Known::Before(&[f64::from(round), 0.5, 1.0]));
            assert_eq!(history.known(4), Known::Nothing, "another request has its own");
        }
        history.next_step();
        history.record(4, [0.25].into_iter());
        assert_eq!((history.known(5), history.known(4)), (Known::Fresh, Known::Before(&[0.25, 1.0, 1.0])));
    }

    #[test]
    fn memory_does_not_grow_with_the_trace() {
        let mut history = History::new(8);
        for id in 0..100 {
            history.next_step();
            assert_eq!(history.known(id), Known::Nothing);
            history.record(id, [0.5; 8].into_iter());
            history.forget(id);
        }
        assert_eq!(history.last.len(), 1);
    }
}
