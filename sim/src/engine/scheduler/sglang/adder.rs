//! Which prompts a batch begins or goes on with (`managers/schedule_policy.py`, `PrefillAdder`; `mem_cache/
//! prefill_budget.py`). Three budgets run out: KV, the tokens of a batch, and the tokens of a chunk.

use super::kv::Kv;
use super::req::Req;
use super::settings::SglangRules;
use crate::config::QueueOrder;
use crate::workload::RequestId;

/// Whether the next waiting request may be tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Added {
    /// The next request may be tried.
    Continue,
    /// KV is short.
    NoToken,
    /// Another budget is spent, or the request does not fit into it.
    Other,
}

/// What is left for the prompts of a batch.
pub(super) struct Adder {
    new_token_ratio: f64,
    rem_input: i64,
    rem_chunk: Option<i64>,
    /// KV that running and admitted requests may still take, tokens.
    total_offset: f64,
    /// KV that the admitted requests take now, tokens.
    current_offset: i64,
    /// The requests of the batch.
    pub can_run: Vec<RequestId>,
    /// The request whose prompt ends in a later batch, if this batch begins it.
    pub new_chunked: Option<RequestId>,
    /// The requests that were evicted for one of higher priority.
    pub preempted: Vec<RequestId>,
    /// Ends of the running requests in order, for requests whose lengths are known.
    ends: Option<Vec<(f64, u32)>>,
}

impl Adder {
    /// `running` are the requests that decode, of which `mixed` join the batch with a token each.
    pub fn new<'r>(rules: &SglangRules, ratio: f64, mixed: u32, running: impl Iterator<Item = &'r Req>) -> Adder {
        let mut adder = Adder {
            new_token_ratio: ratio,
            rem_input: i64::from(rules.max_prefill_tokens) - i64::from(mixed),
            rem_chunk: rules.chunked_prefill_size.map(|chunk| i64::from(chunk) - i64::from(mixed)),
            total_offset: f64::from(mixed),
            current_offset: i64::from(mixed),
            can_run: Vec::new(),
            new_chunked: None,
            preempted: Vec::new(),
            ends: None,
        };
        let mut offset = 0.0;
        running.for_each(|r| offset += adder.may_still_take(r));
        adder.total_offset += offset;
        adder
    }

    /// KV that a running request may still take, tokens.
    pub fn may_still_take(&self, r: &Req) -> f64 {
        f64::from(r.clipped_left()) * self.ratio_of(r)
    }

    fn ratio_of(&self, r: &Req) -> f64 {
        if r.asked.ignore_eos { 1.0 } else { self.new_token_ratio }
    }

    /// The requests' KV of an evicted request counts no longer.
    pub fn forget(&mut self, r: &Req) {
        self.total_offset -= self.may_still_take(r);
    }

    pub fn rem_total(&self, kv: &Kv) -> f64 {
        f64::from(kv.available() + kv.evictable()) - self.total_offset
    }

    fn rem_current(&self, kv: &Kv) -> i64 {
        i64::from(kv.available() + kv.evictable()) - self.current_offset
    }

    /// Whether the budgets let the next request be tried.
    pub fn state(&self, kv: &Kv) -> Added {
        if self.rem_total(kv) <= 0.0 || self.rem_current(kv) <= 0 {
            Added::NoToken
        } else if self.rem_input <= 0 || self.rem_chunk.is_some_and(|chunk| chunk <= 0) {
            Added::Other
        } else {
            Added::Continue
        }
    }

    fn charge(&mut self, kv: &Kv, extend: u32, max_new: u32) {
        let extend = i64::from(kv.ceil(extend));
        let now = extend + i64::from(kv.page);
        self.total_offset += (now + i64::from(max_new)) as f64;
        self.current_offset += now;
        self.rem_input -= extend;
        if let Some(chunk) = &mut self.rem_chunk {
            *chunk -= extend;
        }
    }

    /// Tokens of a chunk that are left, at least 0.
    pub fn chunk_left(&self) -> u32 {
        self.rem_chunk.map_or(0, |chunk| chunk.max(0) as u32)
    }

    /// Goes on with the prompt that the batches before have begun. At most `limit` tokens of it, if given. Returns
    /// whether the prompt ends in a later batch.
    pub fn go_on(&mut self, kv: &Kv, id: RequestId, r: &mut Req, limit: Option<u32>) -> bool {
        let chunk = self.rem_chunk.expect("a chunk was cut, so chunks have a size");
        // A chunk must go on even if KV is short, because its end frees KV.
        let mut rem = match chunk.min(self.rem_total(kv) as i64) {
            rem if rem > 0 => rem,
            _ => chunk,
        };
        if let Some(limit) = limit {
            rem = rem.min(i64::from(limit));
        }
        let left = r.tokens() - r.prefix_len;
        let truncated = i64::from(left) > rem;
        let new = i64::from(left).min(rem) as u32;
        r.extend_end = r.prefix_len + new;
        self.can_run.push(id);
        self.charge(kv, new, if truncated { 0 } else { r.clipped_max_new() });
        truncated
    }

    /// Tries to begin the prompt of a waiting request, which was looked up in the tree. `chunked` says whether a prompt
    /// of an earlier batch is still unfinished.
    pub fn begin(
        &mut self,
        rules: &SglangRules,
        kv: &mut Kv,
        id: RequestId,
        r: &mut Req,
        chunked: bool,
        others: &[Req],
    ) -> Added {
        if rules.prefill_max_requests.is_some_and(|most| self.can_run.len() >= most as usize) {
            return Added::Other;
        }
        if r.asked.ignore_eos && kv.tree.is_none() {
            return self.begin_known(kv, id, r, others);
        }
        // The request's prefix cannot be evicted for it.
        let (node, left) = (r.last_node, r.tokens() - r.prefix_len);
        if let Some(tree) = &mut kv.tree {
            tree.lock(node);
        }
        let chosen = self.choose(rules, kv, r, left, chunked);
        let added = match chosen {
            Err(refused) => refused,
            Ok((extend, max_new, unfinished)) => {
                r.extend_end = r.prefix_len + extend;
                r.lock = Some(node);
                if let Some(tree) = &mut kv.tree {
                    tree.lock(node);
                }
                self.can_run.push(id);
                if unfinished {
                    self.new_chunked = Some(id);
                }
                self.charge(kv, extend, max_new);
                Added::Continue
            }
        };
        let state = if added == Added::Continue { self.state(kv) } else { added };
        if let Some(tree) = &mut kv.tree {
            tree.unlock(node);
        }
        state
    }

    /// How many tokens of a waiting request begin, how much output is reserved, and whether the prompt ends in a later
    /// batch (`_select_prefill_admission`).
    fn choose(
        &self,
        rules: &SglangRules,
        kv: &Kv,
        r: &Req,
        left: u32,
        chunked: bool,
    ) -> Result<(u32, u32, bool), Added> {
        if f64::from(left + r.clipped_left() + kv.page) >= self.rem_total(kv) {
            return Err(Added::NoToken);
        }
        let input = kv.ceil(left);
        match self.rem_chunk {
            None if !self.can_run.is_empty() && i64::from(input) >= self.rem_input => Err(Added::Other),
            Some(limit) if i64::from(input) > limit => {
                if chunked && rules.order == QueueOrder::ShortestPrefillFirst {
                    return Err(Added::Other);
                }
                let extend = limit.max(0) as u32 / kv.page * kv.page;
                let end = (r.prefix_len + extend) / kv.page * kv.page;
                match end.saturating_sub(r.prefix_len) {
                    0 => Err(Added::Other),
                    extend => Ok((extend, 0, true)),
                }
            }
            _ => Ok((left, r.clipped_max_new(), false)),
        }
    }

    /// Without a tree, for a request whose length is known: admits it if KV lasts while the running requests end one
    /// after the other (`add_one_req_ignore_eos`).
    fn begin_known(&mut self, kv: &Kv, id: RequestId, r: &mut Req, others: &[Req]) -> Added {
        let left = r.tokens() - r.prefix_len;
        let input = i64::from(kv.ceil(left) + kv.page);
        if input as f64 > (self.rem_current(kv) as f64).min(self.rem_total(kv)) {
            return Added::NoToken;
        }
        let ratio = self.new_token_ratio;
        let end = |r: &Req| {
            let ratio = if r.asked.ignore_eos { 1.0 } else { ratio };
            let left = f64::from(r.asked.max_new_tokens) * ratio - f64::from(r.outputs);
            (left > 0.0).then(|| (left, r.tokens()))
        };
        let ends = match self.ends.take() {
            None => {
                let mut ends: Vec<(f64, u32)> = std::iter::once(&*r).chain(others).filter_map(end).collect();
                ends.sort_by(|a, b| a.0.total_cmp(&b.0));
                ends
            }
            Some(mut ends) => {
                if let Some(own) = end(r) {
                    // SGLang inserts before the last one if none is later.
                    let at = ends.iter().position(|e| own.0 <= e.0).unwrap_or(ends.len().saturating_sub(1));
                    ends.insert(at, own);
                }
                ends
            }
        };
        let (current, mut freed, mut fits) = ((self.rem_current(kv) - input) as f64, 0.0, true);
        for (i, &(left, occupied)) in ends.iter().enumerate() {
            let count = (ends.len() - i) as f64;
            if current + freed - left * count <= count {
                fits = false;
                break;
            }
            freed += f64::from(occupied);
        }
        self.ends = Some(ends);
        if !fits {
            return Added::NoToken;
        }
        match self.rem_chunk {
            Some(chunk) if i64::from(left) > chunk => {
                if chunk <= 0 {
                    return Added::Other;
                }
                r.extend_end = r.prefix_len + chunk as u32;
                self.can_run.push(id);
                self.new_chunked = Some(id);
                self.charge(kv, chunk as u32, 0);
            }
            _ => {
                r.extend_end = r.tokens();
                self.can_run.push(id);
                self.charge(kv, left, r.clipped_max_new());
            }
        }
        self.state(kv)
    }
}
