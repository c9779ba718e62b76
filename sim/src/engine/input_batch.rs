//! The decode requests of a step in columns, as policies and executors see them. The columns are reused in every step;
//! only the first `n` entries of each column are valid, where `n` is the number of decode requests.

use super::request::RunningRequest;
use crate::workload::RequestId;

/// Which columns of the batch of decode requests are filled in a run. If `limit` or `gap` is false, all entries of that
/// column are 0.
#[derive(Clone, Copy, Debug)]
pub struct Columns {
    /// Whether requests may have draft tokens. If true, the column of draft limits is filled.
    pub limit: bool,
    /// Whether a request may have tokens that the draft model has not processed. If true, the column of draft gaps
    /// (numbers of such tokens) is filled.
    pub gap: bool,
    /// Whether requests may have different TPOT limits. If true, the column of TPOT limits is filled.
    pub own_slos: bool,
    /// The run's TPOT limit, seconds. It is the limit of all requests if `own_slos` is false.
    pub slo_tpot_s: f64,
}

/// The decode requests of a step in columns: ids, tokens in KV, emitted tokens, draft limits and TPOT limits.
#[derive(Clone, Debug, Default)]
pub struct InputBatch {
    at: Vec<u32>,
    ids: Vec<RequestId>,
    context: Vec<u32>,
    emitted: Vec<u32>,
    limit: Vec<u32>,
    gap: Vec<u32>,
    slo_tpot_s: Vec<f64>,
    /// Number of leading entries of the column `at` for which `at[i]` is `i`. The column `at` has the index of each
    /// decode request in the running list.
    in_place: usize,
    /// Whether the decode requests are the first requests of the running list, in the same order.
    leads: bool,
    /// Sum over the step's decode requests of their tokens in the target's KV.
    context_sum: u64,
    /// Number of decode requests in the step: the first `n` entries of each column are valid.
    n: usize,
}

impl InputBatch {
    /// Begins a new batch with the requests `leading`, which are the first requests of the running list. The columns
    /// get room for `most` requests.
    #[inline]
    pub fn begin(&mut self, leading: &[RunningRequest], most: usize, columns: Columns) {
        let n = leading.len();
        self.reserve(most, columns.slo_tpot_s);
        (self.in_place..n).for_each(|i| self.at[i] = i as u32);
        self.in_place = self.in_place.max(n);
        let mut context_sum = 0;
        let each = self.ids[..n].iter_mut().zip(&mut self.context[..n]).zip(&mut self.emitted[..n]);
        for (r, ((id, context), emitted)) in leading.iter().zip(each) {
            *id = r.id;
            *context = r.num_computed_tokens;
            *emitted = r.num_output_tokens;
            context_sum += u64::from(r.num_computed_tokens);
        }
        (self.context_sum, self.n, self.leads) = (context_sum, n, true);
        if columns.limit {
            leading.iter().zip(&mut self.limit[..n]).for_each(|(r, limit)| *limit = r.num_scheduled_tokens - 1);
        }
        if columns.gap {
            leading.iter().zip(&mut self.gap[..n]).for_each(|(r, gap)| *gap = draft_gap(r));
        }
        if columns.own_slos {
            leading.iter().zip(&mut self.slo_tpot_s[..n]).for_each(|(r, slo_tpot_s)| *slo_tpot_s = r.slo_tpot_s);
        }
    }

    /// Adds the request `r`, which is at `index` of the running list, to the step's decode requests.
    pub fn push(&mut self, index: usize, r: &RunningRequest, columns: Columns) {
        let n = self.n;
        self.at[n] = index as u32;
        if index != n {
            (self.leads, self.in_place) = (false, self.in_place.min(n));
        }
        self.ids[n] = r.id;
        self.context[n] = r.num_computed_tokens;
        self.emitted[n] = r.num_output_tokens;
        if columns.limit {
            self.limit[n] = r.num_scheduled_tokens - 1;
        }
        if columns.gap {
            self.gap[n] = draft_gap(r);
        }
        if columns.own_slos {
            self.slo_tpot_s[n] = r.slo_tpot_s;
        }
        self.context_sum += u64::from(r.num_computed_tokens);
        self.n += 1;
    }

    fn reserve(&mut self, most: usize, slo_tpot_s: f64) {
        if self.at.len() < most {
            self.at.resize(most, 0);
            self.ids.resize(most, 0);
            self.context.resize(most, 0);
            self.emitted.resize(most, 0);
            self.limit.resize(most, 0);
            self.gap.resize(most, 0);
            self.slo_tpot_s.resize(most, slo_tpot_s);
        }
    }

    /// Keeps only the first `n` decode requests in the step. The other decode requests keep their KV and wait for a
    /// later step.
    pub fn keep_first(&mut self, n: usize, running: &mut [RunningRequest]) {
        for i in n..self.n {
            let r = &mut running[self.at[i] as usize];
            // The request keeps its draft tokens for a later step: all tokens that were scheduled for it, except the
            // newest emitted one.
            r.num_spec_tokens = std::mem::take(&mut r.num_scheduled_tokens) - 1;
            self.context_sum -= u64::from(self.context[i]);
        }
        self.n = self.n.min(n);
    }

    /// Ids, emitted tokens and draft limits of the decode requests. The caller may lower the limits.
    pub fn limits(&mut self) -> (&[RequestId], &[u32], &mut [u32]) {
        (&self.ids[..self.n], &self.emitted[..self.n], &mut self.limit[..self.n])
    }

    /// Whether the decode requests are exactly the first requests of the running list, in the same order.
    pub fn leads(&self) -> bool {
        self.leads
    }

    /// The index of each decode request in the running list.
    pub fn at(&self) -> &[u32] {
        &self.at[..self.n]
    }

    /// The id of each decode request.
    pub fn ids(&self) -> &[RequestId] {
        &self.ids[..self.n]
    }

    /// Number of tokens that each decode request of the step has in the target's KV.
    pub fn context(&self) -> &[u32] {
        &self.context[..self.n]
    }

    /// Number of output tokens that each decode request of the step has emitted so far.
    pub fn emitted(&self) -> &[u32] {
        &self.emitted[..self.n]
    }

    /// The most draft tokens that each decode request of the step may have.
    pub fn limit(&self) -> &[u32] {
        &self.limit[..self.n]
    }

    /// Of each decode request of the step: number of tokens that the draft model has not processed.
    pub fn draft_gap(&self) -> &[u32] {
        &self.gap[..self.n]
    }

    /// The TPOT limit of each decode request of the step, seconds.
    pub fn slo_tpot_s(&self) -> &[f64] {
        &self.slo_tpot_s[..self.n]
    }

    /// Sum over the decode requests of the number of their tokens in the target's KV.
    pub fn context_sum(&self) -> u64 {
        self.context_sum
    }

    /// Number of decode requests.
    pub fn len(&self) -> usize {
        self.n
    }

    /// Whether there is no decode request.
    pub fn is_empty(&self) -> bool {
        self.n == 0
    }
}

/// Number of tokens of a decode request that the draft model has not processed; 0 if the request never drafts.
#[inline]
fn draft_gap(r: &RunningRequest) -> u32 {
    if r.may_draft { r.num_computed_tokens - r.num_draft_computed_tokens } else { 0 }
}
