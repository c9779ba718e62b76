//! The requests for which draft tokens are made at the end of a step, and the requests' token counts on the device. The
//! device's counts are ahead of the host's, because the host has not waited for the device.

use super::request::RunningRequest;
use crate::policy::BatchView;
use crate::workload::RequestId;

/// The requests for which draft tokens are made at the end of a step, in columns (ids, token counts, draft limits), in
/// the order of the running list.
#[derive(Debug, Default)]
pub struct NextBatch {
    at: Vec<u32>,
    ids: Vec<RequestId>,
    context: Vec<u32>,
    emitted: Vec<u32>,
    limit: Vec<u32>,
    gap: Vec<u32>,
    slo_tpot_s: Vec<f64>,
    context_sum: u64,
}

impl NextBatch {
    /// Fills the columns anew with the running requests for which `joins` is true, with at most `k` draft tokens for
    /// each. Reuses the buffers. Filling one column after the other is faster, because the length of a column is known.
    pub fn fill(&mut self, running: &[RunningRequest], k: u32, joins: impl Fn(&RunningRequest) -> bool) {
        self.at.clear();
        self.at.extend((0..running.len() as u32).filter(|&at| joins(&running[at as usize])));
        let requests = || self.at.iter().map(|&at| &running[at as usize]);
        refill(&mut self.ids, requests().map(|r| r.id));
        // Number of output tokens that each request certainly has once this step and, under async scheduling, the step
        // in flight before it have sampled: one token from each of these steps.
        let outputs = |r: &RunningRequest| r.num_output_tokens + 1 + u32::from(r.num_output_placeholders > 0);
        refill(&mut self.emitted, requests().map(outputs));
        // All tokens of a request are in KV except the newest.
        refill(&mut self.context, requests().map(|r| r.num_tokens - r.num_output_tokens + outputs(r) - 1));
        refill(&mut self.limit, requests().map(|r| if r.may_draft { k } else { 0 }));
        refill(&mut self.slo_tpot_s, requests().map(|r| r.slo_tpot_s));
        self.context_sum = self.context.iter().map(|&context| u64::from(context)).sum();
        if self.gap.len() < self.at.len() {
            self.gap.resize(self.at.len(), 0);
        }
    }

    /// The index in the running list of each request for which draft tokens are made at the end of the step.
    pub fn at(&self) -> &[u32] {
        &self.at
    }

    /// The id of each request for which draft tokens are made at the end of the step.
    pub fn ids(&self) -> &[RequestId] {
        &self.ids
    }

    /// The batch as policies see it at the end of step `step`. A request counts only tokens that it certainly has then:
    /// one token from each step that samples for it, without draft tokens that may still be rejected.
    pub fn view<'a>(&'a self, step: &BatchView<'a>) -> BatchView<'a> {
        BatchView {
            ids: &self.ids,
            context: &self.context,
            emitted: &self.emitted,
            limit: &self.limit,
            draft_gap: &self.gap[..self.ids.len()],
            slo_tpot_s: &self.slo_tpot_s,
            context_sum: self.context_sum,
            always_extend: false,
            ..*step
        }
    }
}

fn refill<T>(column: &mut Vec<T>, values: impl Iterator<Item = T>) {
    column.clear();
    column.extend(values);
}

/// The token counts of a batch's requests as the device has them, which is ahead of the host.
#[derive(Debug, Default)]
pub struct DeviceBatch {
    context: Vec<u32>,
    emitted: Vec<u32>,
    context_sum: u64,
}

impl DeviceBatch {
    /// Fills in the requests `ids`. `prompt_len` and `sampled` give, by id, the prompt's length and the tokens sampled
    /// so far.
    pub fn fill(&mut self, ids: &[RequestId], prompt_len: &[u32], sampled: &[u32]) {
        refill(&mut self.emitted, ids.iter().map(|&id| sampled[id as usize]));
        let with_outputs = ids.iter().zip(&self.emitted);
        refill(&mut self.context, with_outputs.map(|(&id, &emitted)| prompt_len[id as usize] + emitted - 1));
        self.context_sum = self.context.iter().map(|&context| u64::from(context)).sum();
    }

    /// The batch `batch`, with its requests' token counts as the device has them, which is ahead of the host.
    pub fn view<'a>(&'a self, batch: &BatchView<'a>) -> BatchView<'a> {
        BatchView { context: &self.context, emitted: &self.emitted, context_sum: self.context_sum, ..*batch }
    }
}
