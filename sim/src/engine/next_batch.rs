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
    /// Number of requests: the first `n` entries of each column are valid.
    n: usize,
}

impl NextBatch {
    /// Fills the columns anew with the running requests for which `joins` is true, with at most `k` draft tokens for
    /// each. Reuses the buffers.
    pub fn fill(&mut self, running: &[RunningRequest], k: u32, joins: impl Fn(&RunningRequest) -> bool) {
        let most = running.len();
        if self.at.len() < most {
            for column in [&mut self.at, &mut self.ids, &mut self.context, &mut self.emitted, &mut self.limit] {
                column.resize(most, 0);
            }
            self.gap.resize(most, 0);
            self.slo_tpot_s.resize(most, 0.0);
        }
        // Slices of one length, so that one comparison bounds all of them.
        let (at, ids, context) = (&mut self.at[..most], &mut self.ids[..most], &mut self.context[..most]);
        let (emitted, limit) = (&mut self.emitted[..most], &mut self.limit[..most]);
        let slo_tpot_s = &mut self.slo_tpot_s[..most];
        let (mut n, mut context_sum) = (0, 0);
        for (index, r) in running.iter().enumerate().filter(|(_, r)| joins(r)) {
            if n >= most {
                break;
            }
            // Number of output tokens that the request certainly has once this step and, under async scheduling, the
            // step in flight before it have sampled: one token from each of these steps.
            let outputs = r.num_output_tokens + 1 + u32::from(r.num_output_placeholders > 0);
            (at[n], ids[n], emitted[n]) = (index as u32, r.id, outputs);
            // All tokens of a request are in KV except the newest.
            context[n] = r.num_tokens - r.num_output_tokens + outputs - 1;
            limit[n] = if r.may_draft { k } else { 0 };
            slo_tpot_s[n] = r.slo_tpot_s;
            context_sum += u64::from(context[n]);
            n += 1;
        }
        (self.n, self.context_sum) = (n, context_sum);
    }

    /// The index in the running list of each request for which draft tokens are made at the end of the step.
    pub fn at(&self) -> &[u32] {
        &self.at[..self.n]
    }

    /// The id of each request for which draft tokens are made at the end of the step.
    pub fn ids(&self) -> &[RequestId] {
        &self.ids[..self.n]
    }

    /// The batch as policies see it at the end of step `step`. A request counts only tokens that it certainly has then:
    /// one token from each step that samples for it, without draft tokens that may still be rejected.
    pub fn view<'a>(&'a self, step: &BatchView<'a>) -> BatchView<'a> {
        BatchView {
            ids: self.ids(),
            context: &self.context[..self.n],
            emitted: &self.emitted[..self.n],
            limit: &self.limit[..self.n],
            draft_gap: &self.gap[..self.n],
            slo_tpot_s: &self.slo_tpot_s[..self.n],
            context_sum: self.context_sum,
            always_extend: false,
            ..*step
        }
    }
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
        let n = ids.len();
        self.emitted.resize(n, 0);
        self.context.resize(n, 0);
        let (sampled, mut context_sum) = (&sampled[..prompt_len.len()], 0);
        let (emitted, context) = (&mut self.emitted[..n], &mut self.context[..n]);
        for i in 0..n {
            let id = ids[i] as usize;
            emitted[i] = sampled[id];
            context[i] = prompt_len[id] + emitted[i] - 1;
            context_sum += u64::from(context[i]);
        }
        self.context_sum = context_sum;
    }

    /// The batch `batch`, with its requests' token counts as the device has them, which is ahead of the host.
    pub fn view<'a>(&'a self, batch: &BatchView<'a>) -> BatchView<'a> {
        BatchView { context: &self.context, emitted: &self.emitted, context_sum: self.context_sum, ..*batch }
    }
}
