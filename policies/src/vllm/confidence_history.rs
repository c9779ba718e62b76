//! Confidences of earlier steps for vLLM's adaptive verification. vLLM chooses how many draft tokens of a step to
//! verify before the confidences of the newest draft tokens have reached the host. So it uses the host's copy, which is
//! a step older (docs/model.md 6.2).

use crate::shared::slots::Slots;
use foretoken_sim::RequestId;

/// What the host's copy of the confidences holds for a request when vLLM chooses how many draft tokens of the batch to
/// verify.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum HostCopy<'a> {
    /// The request's first draft tokens were made after the host's copy of the confidences, so they count as certain to
    /// be accepted.
    Nothing,
    /// The host's copy holds the confidences of the request's draft tokens that were verified in the step before.
    Previous(&'a [f64]),
    /// The request did not take part in the step before, so the host's copy holds the confidences of its present draft
    /// tokens.
    Present,
}

/// For every running request, the confidences of its draft tokens in the last step in which it drafted, as vLLM's host
/// sees them one step late.
pub(crate) struct History {
    width: usize,
    slots: Slots,
    step: u64,
    /// For each request, by its slot (its index in these vectors): the last step in which it had draft tokens.
    last: Vec<u64>,
    /// For each request, by its slot (its index in these vectors): the `width` confidences of its draft tokens in the
    /// last step in which it had some.
    rows: Vec<f64>,
}

impl History {
    /// Creates a history without confidences, for up to `width` draft tokens per request and step.
    pub(crate) fn new(width: u32) -> History {
        History { width: width as usize, slots: Slots::default(), step: 0, last: Vec::new(), rows: Vec::new() }
    }

    /// What the host's copy of the confidences holds for the request `id` when the number of draft tokens to verify in
    /// this step is chosen.
    pub(crate) fn host_copy(&self, id: RequestId) -> HostCopy<'_> {
        match self.slots.get(id) {
            None => HostCopy::Nothing,
            Some(place) if self.last[place] == self.step => {
                HostCopy::Previous(&self.rows[place * self.width..][..self.width])
            }
            Some(_) => HostCopy::Present,
        }
    }

    /// Ends a step. Call it after the number of draft tokens to verify in this step is chosen and before this step's
    /// confidences are recorded.
    pub(crate) fn next_step(&mut self) {
        self.step += 1;
    }

    /// Removes the confidences of request `id`, which has ended.
    pub(crate) fn forget(&mut self, id: RequestId) {
        self.slots.free(id);
    }

    /// Records the confidences of a request's draft tokens in this step. Tokens that were not drafted get 1, because
    /// their confidences are unknown.
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
    fn the_copy_is_a_step_old_unless_the_request_sat_a_step_out() {
        let mut history = History::new(3);
        assert_eq!(history.host_copy(5), HostCopy::Nothing);
        for round in 0..3 {
            history.next_step();
            history.record(5, [f64::from(round), 0.5].into_iter());
            assert_eq!(history.host_copy(5), HostCopy::Previous(&[f64::from(round), 0.5, 1.0]));
            assert_eq!(history.host_copy(4), HostCopy::Nothing, "another request has its own");
        }
        history.next_step();
        history.record(4, [0.25].into_iter());
        assert_eq!(
            (history.host_copy(5), history.host_copy(4)),
            (HostCopy::Present, HostCopy::Previous(&[0.25, 1.0, 1.0]))
        );
    }

    #[test]
    fn memory_does_not_grow_with_the_trace() {
        let mut history = History::new(8);
        for id in 0..100 {
            history.next_step();
            assert_eq!(history.host_copy(id), HostCopy::Nothing);
            history.record(id, [0.5; 8].into_iter());
            history.forget(id);
        }
        assert_eq!(history.last.len(), 1);
    }
}
