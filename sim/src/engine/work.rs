//! What one step is to do, in the form policies and executors see it. Buffers are reused from step to step.

use super::state::Active;
use crate::executor::{Chunk, StepPlan};
use crate::{BatchView, ChunkTotals, DraftGap, EngineConfig, RequestId, Time};

/// The decode requests of a step in columns, as policies and executors see them.
#[derive(Clone, Debug, Default)]
pub struct Columns {
    /// Index of each in the running list.
    pub at: Vec<u32>,
    /// Request ids.
    pub ids: Vec<RequestId>,
    /// Context tokens.
    pub context: Vec<u32>,
    /// Emitted tokens.
    pub emitted: Vec<u32>,
    /// Draft limits.
    pub limit: Vec<u32>,
    /// Tokens the draft has not seen.
    pub gap: Vec<u32>,
    /// TPOT limits.
    pub slo_tpot_s: Vec<f64>,
    /// Sum of `context`.
    pub context_sum: u64,
}

impl Columns {
    /// Empties the columns, keeping their buffers.
    pub fn clear(&mut self) {
        self.at.clear();
        self.ids.clear();
        self.context.clear();
        self.emitted.clear();
        self.limit.clear();
        self.gap.clear();
        self.slo_tpot_s.clear();
        self.context_sum = 0;
    }

    /// Adds the running request at index `at`.
    #[inline]
    pub fn push(&mut self, at: usize, a: &Active) {
        self.at.push(at as u32);
        self.ids.push(a.id);
        self.context.push(a.computed);
        self.emitted.push(a.emitted);
        self.limit.push(a.new - 1);
        self.gap.push(a.computed - a.seen);
        self.slo_tpot_s.push(a.slo_tpot_s);
        self.context_sum += u64::from(a.computed);
    }
}

/// The work of a step.
#[derive(Clone, Debug, Default)]
pub struct Work {
    /// Decode requests.
    pub columns: Columns,
    /// Prefill chunks of the target.
    pub chunks: Vec<Chunk>,
    /// Their sums.
    pub prefill: ChunkTotals,
    /// Sums of the draft's own prefill chunks.
    pub draft_prefill: ChunkTotals,
}

impl Work {
    /// Empties everything, keeping the buffers.
    pub fn clear(&mut self) {
        self.columns.clear();
        self.clear_chunks();
        self.draft_prefill = ChunkTotals::default();
    }

    /// Empties the target's chunks.
    pub fn clear_chunks(&mut self) {
        self.chunks.clear();
        self.prefill = ChunkTotals::default();
    }

    /// Adds the prefill chunk that was scheduled for a request.
    pub fn push_chunk(&mut self, a: &Active) {
        let last = a.computed + a.new == a.total;
        self.chunks.push(Chunk { request: a.id, computed: a.computed, tokens: a.new, last });
        self.prefill.add(a.computed, a.new);
    }

    /// The step as executors and policies see it.
    pub fn plan(&self, config: &EngineConfig, step: u64, now: Time, running: usize, waiting: usize) -> StepPlan<'_> {
        StepPlan {
            batch: BatchView {
                now,
                step,
                ids: &self.columns.ids,
                context: &self.columns.context,
                emitted: &self.columns.emitted,
                limit: &self.columns.limit,
                draft_gap: &self.columns.gap,
                slo_tpot_s: &self.columns.slo_tpot_s,
                context_sum: self.columns.context_sum,
                prefill: self.prefill,
                draft_prefill: self.draft_prefill,
                always_extend: config.draft_gap == DraftGap::AlwaysExtend,
                num_running: running as u32,
                num_waiting: waiting as u32,
                max_tokens: config.max_tokens,
            },
            chunks: &self.chunks,
            draft_len: &[],
            pass: 0,
            wants_confidence: false,
        }
    }
}
