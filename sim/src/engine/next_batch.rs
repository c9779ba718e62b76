//! Who is drafted for behind a step, and where requests stand on the device: further than anybody can know who has not
//! waited for it.

use super::request::RunningRequest;
use crate::{BatchView, RequestId};

/// The requests that are drafted for behind a step, in columns, in running order.
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
    /// Empties it. Keeps its buffers.
    pub fn clear(&mut self) {
        self.at.clear();
        self.ids.clear();
        self.context.clear();
        self.emitted.clear();
        self.limit.clear();
        self.slo_tpot_s.clear();
        self.context_sum = 0;
    }

    /// Adds the request at `at` of the running list.
    pub fn push(&mut self, at: usize, r: &RunningRequest, context: u32, emitted: u32, limit: u32) {
        self.at.push(at as u32);
        self.ids.push(r.id);
        self.context.push(context);
        self.emitted.push(emitted);
        self.limit.push(limit);
        self.slo_tpot_s.push(r.slo_tpot_s);
        self.context_sum += u64::from(context);
        if self.gap.len() < self.ids.len() {
            self.gap.push(0);
        }
    }

    /// The index of each in the running list.
    pub fn at(&self) -> &[u32] {
        &self.at
    }

    /// Their ids.
    pub fn ids(&self) -> &[RequestId] {
        &self.ids
    }

    /// As policies see it beside the step it is drafted behind: what each will have for sure.
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

/// Where the requests of a batch stand on the device.
#[derive(Debug, Default)]
pub struct DeviceBatch {
    context: Vec<u32>,
    emitted: Vec<u32>,
    context_sum: u64,
}

impl DeviceBatch {
    /// Of requests `ids`, with prompts and with tokens sampled so far.
    pub fn fill(&mut self, ids: &[RequestId], prompt_len: &[u32], sampled: &[u32]) {
        self.context.clear();
        self.emitted.clear();
        self.context_sum = 0;
        for &id in ids {
            let emitted = sampled[id as usize];
            // Of all tokens the newest is not in KV.
            let context = prompt_len[id as usize] + emitted - 1;
            self.emitted.push(emitted);
            self.context.push(context);
            self.context_sum += u64::from(context);
        }
    }

    /// The batch as the device sees it.
    pub fn view<'a>(&'a self, batch: &BatchView<'a>) -> BatchView<'a> {
        BatchView { context: &self.context, emitted: &self.emitted, context_sum: self.context_sum, ..*batch }
    }
}
