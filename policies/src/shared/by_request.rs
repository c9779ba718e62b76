//! A policy that chooses the draft length of each request separately, by a rule. All policies with such a rule are
//! built from it.

use foretoken_sim::{BatchView, DraftLimits, DraftPlan, SpecPolicy, Speculation};

/// A running policy in which request i of a batch gets the draft length `rule(batch, i)`.
pub(crate) struct ByRequest<F> {
    rule: F,
    /// The longest draft length of a request in the last batch; `None` before the first batch.
    last: Option<u32>,
    /// The longest draft length that `rule` can give to a request.
    longest: u32,
}

impl<F: Fn(&BatchView, usize) -> u32 + Send + 'static> ByRequest<F> {
    /// Builds a policy that gives each request of a batch its own draft length by `rule`. `longest` is the longest
    /// length that the rule can give.
    pub fn build(longest: u32, rule: F) -> Speculation {
        Speculation::Policy(Box::new(ByRequest { rule, last: None, longest }))
    }
}

impl<F: Fn(&BatchView, usize) -> u32 + Send> SpecPolicy for ByRequest<F> {
    /// The draft length that the scheduler counts against the token budget before the batch is known: the longest
    /// length of the last batch. A request that wants more draft tokens gets them one step later.
    fn limits(&self) -> DraftLimits<'_> {
        DraftLimits::chain(self.last.unwrap_or(self.longest)).up_to(self.longest)
    }

    fn propose(&mut self, batch: &BatchView, plan: &mut DraftPlan) {
        for (i, length) in plan.draft_len.iter_mut().enumerate() {
            *length = (self.rule)(batch, i);
        }
        self.last = plan.draft_len.iter().copied().max().or(self.last);
    }
}
