//! What one step is to do, in the form policies and executors see it. Buffers are reused from step to step.

use super::state::Active;
use crate::executor::{Chunk, StepPlan};
use crate::{BatchView, ChunkTotals, DraftGap, EngineConfig, RequestId, Time};

/// The decode requests of a step in columns, as policies and executors see them.
#[derive(Clone, Debug, Default)]
pub struct Columns {
    at: Vec<u32>,
    ids: Vec<RequestId>,
    context: Vec<u32>,
    emitted: Vec<u32>,
    limit: Vec<u32>,
    gap: Vec<u32>,
    slo_tpot_s: Vec<f64>,
    /// Sum of `context`.
    context_sum: u64,
    /// Decode requests in the step.
    n: usize,
}

impl Columns {
    /// Makes every column at least `n` long. They never shrink: `n` entries of each count.
    #[inline]
    fn reserve(&mut self, n: usize) {
        if self.at.len() < n {
            self.at.resize(n, 0);
            self.ids.resize(n, 0);
            self.context.resize(n, 0);
            self.emitted.resize(n, 0);
            self.limit.resize(n, 0);
            self.gap.resize(n, 0);
            self.slo_tpot_s.resize(n, f64::INFINITY);
        }
    }

    /// The index of each decode request in the running list.
    pub fn at(&self) -> &[u32] {
        &self.at[..self.n]
    }

    /// The draft limit of each decode request.
    pub fn limit(&self) -> &[u32] {
        &self.limit[..self.n]
    }

    /// Ids, emitted tokens and draft limits, the limits to be lowered.
    pub fn limits(&mut self) -> (&[RequestId], &[u32], &mut [u32]) {
        (&self.ids[..self.n], &self.emitted[..self.n], &mut self.limit[..self.n])
    }

    /// Leaves all but the first `n` requests out of the step: they keep their KV and wait.
    pub fn keep_first(&mut self, n: usize, running: &mut [Active]) {
        for i in n..self.n {
            running[self.at[i] as usize].new = 0;
            self.context_sum -= u64::from(self.context[i]);
        }
        self.n = self.n.min(n);
    }

    /// The decode requests' ids.
    pub fn ids(&self) -> &[RequestId] {
        &self.ids[..self.n]
    }

    /// Number of decode requests.
    pub fn len(&self) -> usize {
        self.n
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
    /// Splits the scheduled requests of the running list into decode columns and prefill chunks. `drafter`: is
    /// there one; `draft_prefill`: it runs over the chunks as well.
    #[inline]
    pub fn gather(&mut self, running: &mut [Active], drafter: bool, draft_prefill: bool) {
        self.clear_chunks();
        self.draft_prefill = ChunkTotals::default();
        // The columns are written through slices of one length: this loop is a good part of a step.
        let most = running.len();
        self.columns.reserve(most);
        let Columns { at, ids, context, emitted, limit, gap, slo_tpot_s, .. } = &mut self.columns;
        let (at, ids, context, emitted) =
            (&mut at[..most], &mut ids[..most], &mut context[..most], &mut emitted[..most]);
        let (limit, gap, slo_tpot_s) = (&mut limit[..most], &mut gap[..most], &mut slo_tpot_s[..most]);
        let (mut n, mut context_sum) = (0, 0);
        for (index, a) in running.iter_mut().enumerate() {
            if a.new > 0 && !a.prefilling {
                at[n] = index as u32;
                ids[n] = a.id;
                context[n] = a.computed;
                emitted[n] = a.emitted;
                // Without a drafter nobody reads these: they keep their defaults.
                if drafter {
                    limit[n] = a.new - 1;
                    gap[n] = if a.may_draft { a.computed - a.seen } else { 0 };
                    slo_tpot_s[n] = a.slo_tpot_s;
                }
                context_sum += u64::from(a.computed);
                n += 1;
            } else if a.new > 0 {
                let last = a.computed + a.new == a.total;
                let mut draft_tokens = 0;
                self.prefill.add(a.computed, a.new);
                if drafter && draft_prefill && a.may_draft {
                    draft_tokens = a.computed + a.new - a.seen;
                    self.draft_prefill.add(a.seen, draft_tokens);
                    a.seen = a.computed + a.new;
                }
                self.chunks.push(Chunk { request: a.id, computed: a.computed, tokens: a.new, last, draft_tokens });
            }
        }
        self.columns.context_sum = context_sum;
        self.columns.n = n;
    }

    /// Empties the target's chunks.
    pub fn clear_chunks(&mut self) {
        self.chunks.clear();
        self.prefill = ChunkTotals::default();
    }

    /// Adds the prefill chunk that was scheduled for a request, after the draft's passes.
    pub fn push_chunk(&mut self, a: &Active) {
        let last = a.computed + a.new == a.total;
        self.chunks.push(Chunk { request: a.id, computed: a.computed, tokens: a.new, last, draft_tokens: 0 });
        self.prefill.add(a.computed, a.new);
    }

    /// Sum of the decode requests' context.
    pub fn context_sum(&self) -> u64 {
        self.columns.context_sum
    }

    /// The step as executors and policies see it.
    #[inline]
    pub fn plan(&self, config: &EngineConfig, step: u64, now: Time, running: usize, waiting: usize) -> StepPlan<'_> {
        let n = self.columns.n;
        StepPlan {
            batch: BatchView {
                now,
                step,
                ids: self.columns.ids(),
                context: &self.columns.context[..n],
                emitted: &self.columns.emitted[..n],
                limit: self.columns.limit(),
                draft_gap: &self.columns.gap[..n],
                slo_tpot_s: &self.columns.slo_tpot_s[..n],
                context_sum: self.columns.context_sum,
                prefill: self.prefill,
                draft_prefill: self.draft_prefill,
                always_extend: config.draft_gap == DraftGap::AlwaysExtend,
                num_running: running as u32,
                num_waiting: waiting as u32,
                max_tokens: config.max_tokens,
            },
            chunks: &self.chunks,
        }
    }
}
