//! What the scheduler decided for a step, and what became of requests on the way. Buffers are reused from step to step.

use super::input_batch::InputBatch;
use super::request::{RejectReason, RunningRequest};
use crate::executor::Chunk;
use crate::policy::ChunkTotals;
use crate::time::Time;
use crate::workload::RequestId;

/// A step's work.
#[derive(Debug, Default)]
pub struct SchedulerOutput {
    /// When it was decided.
    pub now: Time,
    /// Index of the step.
    pub step: u64,
    /// The decode requests.
    pub batch: InputBatch,
    /// The target's prefill chunks.
    pub chunks: Vec<Chunk>,
    /// Their sums.
    pub prefill: ChunkTotals,
    /// Sums of the draft's own prefill chunks.
    pub draft_prefill: ChunkTotals,
    /// Drafts a request is to get after the step; what vLLM says, where it is followed.
    pub num_spec_tokens_to_schedule: u32,
    /// Can nobody use drafts after the step?
    pub skip_drafts: bool,
    /// Requests that were admitted, in order; they are the last of the running list.
    pub admitted: Vec<Admission>,
    /// Requests that lost their KV and wait again, in order, as they were.
    pub preempted: Vec<RunningRequest>,
    /// Requests that can never run, in order.
    pub rejected: Vec<Rejection>,
    /// Requests that emitted their first token in the step.
    pub first_tokens: Vec<RequestId>,
    /// Requests that emitted their whole output in the step, as they were.
    pub finished: Vec<RunningRequest>,
}

/// A request that was admitted.
#[derive(Clone, Copy, Debug)]
pub struct Admission {
    /// Which request.
    pub id: RequestId,
    /// Tokens of it found in the prefix cache.
    pub num_cached_tokens: u32,
}

/// A request that can never run.
#[derive(Clone, Debug)]
pub struct Rejection {
    /// Which request.
    pub id: RequestId,
    /// Why.
    pub reason: RejectReason,
    /// As it was, if it was running.
    pub ran: Option<RunningRequest>,
}

impl SchedulerOutput {
    /// Empties it for the next step. Keeps its buffers.
    #[inline]
    pub fn clear(&mut self) {
        self.clear_chunks();
        self.draft_prefill = ChunkTotals::default();
        self.admitted.clear();
        self.preempted.clear();
        self.rejected.clear();
        self.first_tokens.clear();
        self.finished.clear();
    }

    /// Empties the target's chunks.
    pub fn clear_chunks(&mut self) {
        self.chunks.clear();
        self.prefill = ChunkTotals::default();
    }

    /// Nothing to run?
    pub fn is_empty(&self) -> bool {
        self.batch.is_empty() && self.chunks.is_empty()
    }

    /// Splits the scheduled requests of the running list into decode requests and prefill chunks. `drafting`: is there a
    /// drafter; `draft_prefill`: it runs over the chunks as well.
    #[inline]
    pub fn gather(&mut self, running: &mut [RunningRequest], drafting: bool, draft_prefill: bool) {
        let mut rows = self.batch.rows(running.len());
        for (index, r) in running.iter_mut().enumerate() {
            if r.num_scheduled_tokens == 0 {
                continue;
            }
            if !r.prefilling {
                rows.push(index, r, drafting);
                continue;
            }
            let end = r.num_computed_tokens + r.num_scheduled_tokens;
            let mut draft_tokens = 0;
            if drafting && draft_prefill && r.may_draft {
                let end = end.min(r.num_tokens);
                draft_tokens = end - r.num_draft_computed_tokens;
                self.draft_prefill.add(r.num_draft_computed_tokens, draft_tokens);
                r.num_draft_computed_tokens = end;
            }
            push_chunk(&mut self.chunks, &mut self.prefill, r, draft_tokens);
        }
        rows.finish();
    }

    /// Adds the prefill chunk that was scheduled for a request, after the draft's passes.
    pub fn push_chunk(&mut self, r: &RunningRequest) {
        push_chunk(&mut self.chunks, &mut self.prefill, r, 0);
    }
}

fn push_chunk(chunks: &mut Vec<Chunk>, prefill: &mut ChunkTotals, r: &RunningRequest, draft_tokens: u32) {
    let (computed, tokens) = (r.num_computed_tokens, r.num_scheduled_tokens);
    prefill.add(computed, tokens);
    chunks.push(Chunk { request: r.id, computed, tokens, last: computed + tokens >= r.num_tokens, draft_tokens });
}
