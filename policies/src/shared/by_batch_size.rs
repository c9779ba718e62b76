//! A policy that looks up the draft length of each batch in a table by batch size. All policies with such a table are
//! built from it. It also tells the scheduler which draft length counts against the token budget of a step.

use foretoken_sim::engine::BatchRange;
use foretoken_sim::{BatchView, DraftLimits, DraftPlan, SpecPolicy, Speculation};

/// Which requests count towards the batch size by which the draft length is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counted {
    /// The requests that are scheduled in the step count: decodes and prefill chunks.
    Scheduled,
    /// All requests of the engine's running list count, also those that the step does not schedule.
    Running,
}

impl Counted {
    fn batch_size(self, batch: &BatchView) -> u32 {
        match self {
            Counted::Scheduled => batch.len() as u32 + batch.prefill.chunks,
            Counted::Running => batch.num_running,
        }
    }
}

/// A running policy that gives all requests of a batch the same draft length. The length depends on the batch size
/// alone.
pub(crate) struct ByBatchSize {
    counted: Counted,
    /// (first batch size, draft length) of each range of batch sizes, ascending; the first range starts at 0 or 1.
    ranges: Vec<(u32, u32)>,
    /// Draft length that the last batch got from the policy; `None` before the first batch.
    last: Option<u32>,
    /// The longest draft length in the policy's table from batch size to draft length.
    longest: u32,
    /// The ranges of batch sizes in the form that vLLM's scheduler reads; `None` unless the table is vLLM's
    /// `num_speculative_tokens_per_batch_size`.
    vllm: Option<Vec<BatchRange>>,
}

impl ByBatchSize {
    /// Builds a policy that looks up the draft length by batch size. `ranges` has (first batch size, draft length) of
    /// each range. A batch gets the length of the last range that starts at or below its size, at most `max_draft_len`.
    pub fn build(counted: Counted, ranges: Vec<(u32, u32)>, max_draft_len: u32) -> Speculation {
        Speculation::Policy(Box::new(ByBatchSize::new(counted, ranges, max_draft_len)))
    }

    /// Builds the policy from vLLM's `num_speculative_tokens_per_batch_size`, which vLLM's scheduler also reads.
    pub fn build_vllm(ranges: &[(u32, u32, u32)], max_draft_len: u32) -> Speculation {
        // Batch sizes between two ranges and above the last range have the draft length of the range before, so only
        // the first batch size of a range counts.
        let starts = ranges.iter().map(|&(first, _, k)| (first, k)).collect();
        let vllm = ranges.iter().map(|&(first, last, k)| (first.into(), last.into(), k.into())).collect();
        let policy = ByBatchSize::new(Counted::Scheduled, starts, max_draft_len);
        Speculation::Policy(Box::new(ByBatchSize { vllm: Some(vllm), ..policy }))
    }

    /// The policy itself, before it is boxed as a [`Speculation`]. `ranges` has (first batch size, draft length) of
    /// each range of batch sizes.
    pub fn new(counted: Counted, ranges: Vec<(u32, u32)>, max_draft_len: u32) -> ByBatchSize {
        let ranges: Vec<_> = ranges.into_iter().map(|(from, k)| (from, k.min(max_draft_len))).collect();
        let longest = ranges.iter().map(|r| r.1).max().unwrap_or(0);
        ByBatchSize { counted, ranges, last: None, longest, vllm: None }
    }

    fn length(&self, batch_size: u32) -> u32 {
        let after = self.ranges.partition_point(|&(from, _)| from <= batch_size);
        self.ranges[after.saturating_sub(1)].1
    }
}

impl SpecPolicy for ByBatchSize {
    /// The draft length that the scheduler counts against the token budget before the batch is known. The longest
    /// length of the table would take budget from prompts even when the table drafts nothing. So the length of the last
    /// batch is counted.
    fn limits(&self) -> DraftLimits<'_> {
        let now = DraftLimits::chain(self.last.unwrap_or(self.longest)).up_to(self.longest);
        DraftLimits { vllm: self.vllm.as_deref(), ..now }
    }

    fn propose(&mut self, batch: &BatchView, plan: &mut DraftPlan) {
        let length = self.length(self.counted.batch_size(batch));
        plan.fill(length);
        self.last = Some(length);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::definition::Definition;
    use crate::testing::{Batch, CONTEXT};

    /// The draft lengths that a newly built `policy` gives to `batches`, one after the other. Each batch is (number of
    /// decode requests, number of prefill chunks). Asserts that all requests of a batch get the same length, and that
    /// this length counts against the token budget of the next batch.
    pub(crate) fn lengths(policy: &dyn Definition, batches: &[(usize, u32)]) -> Vec<u32> {
        policy.check().unwrap();
        let Speculation::Policy(mut running) = policy.build(&CONTEXT) else { panic!("a policy") };
        let mut lengths = Vec::new();
        for &(decodes, chunks) in batches {
            let mut batch = Batch::new(&vec![100; decodes], &vec![8; decodes]);
            (0..chunks).for_each(|_| batch.prefill.add(0, 10));
            let mut plan = DraftPlan { draft_len: vec![0; decodes], ..DraftPlan::default() };
            running.propose(&batch.view(), &mut plan);
            assert!(plan.draft_len.iter().all(|&d| d == plan.draft_len[0]), "one length for the batch");
            assert_eq!(running.limits().depth, plan.draft_len[0], "what is charged next");
            lengths.push(plan.draft_len[0]);
        }
        lengths
    }

    #[test]
    fn the_longest_length_is_charged_before_the_first_batch() {
        let policy = ByBatchSize::new(Counted::Running, vec![(1, 2), (5, 3), (9, 0)], 8);
        assert_eq!(policy.limits().depth, 3);
        assert_eq!([0, 1, 4, 5, 8, 9, 1000].map(|n| policy.length(n)), [2, 2, 2, 3, 3, 0, 0]);
    }
}
