//! The scheduler's decisions for a step, and the requests that were admitted, preempted or rejected. Buffers are reused
//! from step to step.

use super::input_batch::{Columns, InputBatch};
use super::request::{RejectReason, RunningRequest};
use super::scheduler::SglangBatch;
use crate::executor::Chunk;
use crate::policy::ChunkTotals;
use crate::time::Time;
use crate::workload::RequestId;

/// The scheduler's decisions for a step.
#[derive(Debug, Default)]
pub struct SchedulerOutput {
    /// When the scheduler was called for the step.
    pub now: Time,
    /// Index of the step, from 0.
    pub step: u64,
    /// The decode requests of the step.
    pub batch: InputBatch,
    /// The prefill chunks (pieces of prompts) that the target pass of the step runs.
    pub chunks: Vec<Chunk>,
    /// Sums over the prefill chunks of the target pass: number of chunks, new tokens, and tokens in KV.
    pub prefill: ChunkTotals,
    /// Sums over the prefill chunks that the draft model runs in the step: number of chunks, new tokens, and tokens in
    /// KV.
    pub draft_prefill: ChunkTotals,
    /// If draft tokens are made at the end of a step: the most draft tokens that each request may get at the end of
    /// this step, by the drafter's limit and by vLLM's table of lengths by batch size.
    pub num_spec_tokens_to_schedule: u32,
    /// Whether nothing is drafted at the end of the step, because no request can use draft tokens. Always false unless
    /// `can_skip_drafts` is among the rules.
    pub skip_drafts: bool,
    /// Requests that this step moved from the waiting list to the running list, in the order of their admissions. They
    /// are the last requests of the running list.
    pub admitted: Vec<Admission>,
    /// Requests that this step preempted, in the order of their preemptions, each with its state before the preemption.
    pub preempted: Vec<RunningRequest>,
    /// The batch as SGLang's scheduler made it. Empty with vLLM's.
    pub sglang: SglangBatch,
    /// Requests that the scheduler rejected in this step, because they can never run to their end, in the order of
    /// their rejections.
    pub rejected: Vec<Rejection>,
}

/// A request that a step moved from the waiting list to the running list.
#[derive(Clone, Copy, Debug)]
pub struct Admission {
    /// Id of the request.
    pub id: RequestId,
    /// Number of the request's tokens found in the prefix cache.
    pub num_cached_tokens: u32,
}

/// A request that can never run to its end.
#[derive(Clone, Debug)]
pub struct Rejection {
    /// Id of the request.
    pub id: RequestId,
    /// Why the request can never run to its end.
    pub reason: RejectReason,
    /// The request's state when it was rejected. `None` if the request neither ran nor has emitted tokens.
    pub ran: Option<RunningRequest>,
}

impl SchedulerOutput {
    /// Empties all lists for the decisions of the next step, and keeps their buffers. The decode requests stay until
    /// [`gather`](Self::gather) replaces them.
    #[inline]
    pub fn clear(&mut self) {
        self.clear_chunks();
        self.draft_prefill = ChunkTotals::default();
        self.admitted.clear();
        self.preempted.clear();
        self.rejected.clear();
        self.sglang.rows.clear();
    }

    /// Empties the list of the target pass's prefill chunks and their sums.
    pub fn clear_chunks(&mut self) {
        self.chunks.clear();
        self.prefill = ChunkTotals::default();
    }

    /// Whether the step schedules no tokens: no decode request, and no prefill chunk.
    pub fn is_empty(&self) -> bool {
        self.batch.is_empty() && self.chunks.is_empty()
    }

    /// Splits the scheduled requests of the running list into decode requests and prefill chunks. The first `leading`
    /// requests are known to be decode requests. `draft_prefill` says whether the draft model processes the chunks too.
    /// The chunks' tokens then count from now on as processed by the draft model.
    #[inline]
    pub fn gather(&mut self, running: &mut [RunningRequest], leading: usize, columns: Columns, draft_prefill: bool) {
        self.batch.begin(&running[..leading], running.len(), columns);
        for (index, r) in running.iter_mut().enumerate().skip(leading) {
            if r.num_scheduled_tokens == 0 {
                continue;
            }
            if !r.prefilling {
                self.batch.push(index, r, columns);
                continue;
            }
            let end = r.num_computed_tokens + r.num_scheduled_tokens;
            let mut draft_tokens = 0;
            if draft_prefill && r.may_draft {
                let end = end.min(r.num_tokens);
                draft_tokens = end - r.num_draft_computed_tokens;
                self.draft_prefill.add(r.num_draft_computed_tokens, draft_tokens);
                r.num_draft_computed_tokens = end;
            }
            push_chunk(&mut self.chunks, &mut self.prefill, r, draft_tokens);
        }
    }

    /// Adds the prefill chunk of a request to the target pass, after the draft passes of the step have run. The draft
    /// model therefore processes no tokens of this chunk in the step.
    pub fn push_chunk(&mut self, r: &RunningRequest) {
        push_chunk(&mut self.chunks, &mut self.prefill, r, 0);
    }
}

fn push_chunk(chunks: &mut Vec<Chunk>, prefill: &mut ChunkTotals, r: &RunningRequest, draft_tokens: u32) {
    let (computed, tokens) = (r.num_computed_tokens, r.num_scheduled_tokens);
    prefill.add(computed, tokens);
    chunks.push(Chunk { request: r.id, computed, tokens, last: computed + tokens >= r.num_tokens, draft_tokens });
}
