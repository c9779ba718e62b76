//! The order in which waiting requests are tried (`managers/schedule_policy.py`, `SchedulePolicy`).

use super::kv::Kv;
use super::radix_cache::RadixCache;
use super::req::{Contents, Req};
use super::settings::SglangRules;
use crate::config::{EvictionPolicy, QueueOrder};
use crate::workload::RequestId;

/// Beyond this number of waiting requests their prefixes are not looked up for the order.
const PREFIX_MATCH_MAX: usize = 128;

/// In one of this many scheduling passes the prefixes of waiting requests are marked as used.
const REFRESH_INTERVAL: u64 = 32;

/// A prefix of at most this many tokens counts as short; one of at least this many is worth waiting for.
const SHARED_PREFIX: u32 = 32;

/// The requests that wait, and how often they were looked through.
pub(super) struct Queue {
    pub waiting: Vec<RequestId>,
    passes: u64,
    /// The prompts of the waiting requests that match little of the cache, to see which of them begin alike.
    among_waiting: RadixCache,
    joins: u64,
}

impl Queue {
    pub fn new() -> Queue {
        Queue {
            waiting: Vec::new(),
            passes: 0,
            among_waiting: RadixCache::new(1, false, EvictionPolicy::Lru, 0),
            joins: 0,
        }
    }

    /// Adds a request at the end. `processed` is the number of prompt tokens scheduled so far.
    pub fn join(&mut self, id: RequestId, r: &mut Req, processed: u64) {
        self.joins += 1;
        (r.queued, r.processed_before) = (self.joins, processed);
        self.waiting.push(id);
    }

    /// Sorts the waiting requests by the rules' order.
    pub fn sort(
        &mut self,
        rules: &SglangRules,
        kv: &mut Kv,
        reqs: &mut [Req],
        contents: &impl Contents,
        processed: u64,
    ) {
        let long = self.waiting.len() > PREFIX_MATCH_MAX;
        let order = match rules.order {
            QueueOrder::Lpm | QueueOrder::Hrrn if long => QueueOrder::Fcfs,
            order if kv.tree.is_none() && order != QueueOrder::Lof => QueueOrder::Fcfs,
            order => order,
        };
        let sign = rules.priority.map_or(0, |p| if p.low_first { 1 } else { -1 });
        let priority = |r: &Req| i64::from(r.asked.priority) * sign;
        let of = |reqs: &[Req], id: RequestId| reqs[id as usize].clone();
        match order {
            QueueOrder::Fcfs if rules.order == QueueOrder::Fcfs && rules.priority.is_some() => {
                self.waiting.sort_by_key(|&id| (priority(&reqs[id as usize]), reqs[id as usize].queued));
            }
            QueueOrder::Fcfs => {}
            QueueOrder::Lof => self.waiting.sort_by_key(|&id| {
                let r = &reqs[id as usize];
                (priority(r), std::cmp::Reverse(r.asked.max_new_tokens))
            }),
            cache_aware => {
                let later = self.look_up(kv, reqs, contents);
                let waits = |id: &RequestId| later.contains(id);
                match cache_aware {
                    QueueOrder::Lpm => self.waiting.sort_by_key(|id| match waits(id) {
                        true => i64::MAX,
                        false => -i64::from(reqs[*id as usize].matched),
                    }),
                    QueueOrder::ShortestPrefillFirst => self.waiting.sort_by_key(|id| {
                        let r = &reqs[*id as usize];
                        (waits(id), work(r), r.queued)
                    }),
                    QueueOrder::Hrrn => {
                        let ratio = |id: &RequestId| {
                            let r = of(reqs, *id);
                            let uncached = r.asked.prompt.saturating_sub(r.matched);
                            match (waits(id), uncached) {
                                (true, _) => f64::INFINITY,
                                (false, 0) => f64::NEG_INFINITY,
                                (false, _) => -((processed - r.processed_before) as f64 / f64::from(uncached)),
                            }
                        };
                        self.waiting.sort_by(|a, b| ratio(a).total_cmp(&ratio(b)).then(a.cmp(b)));
                    }
                    _ => {
                        let nodes: Vec<_> = self.waiting.iter().map(|&id| reqs[id as usize].last_node).collect();
                        let order = kv.tree.as_ref().expect("cache-aware orders need a tree").by_weight(&nodes);
                        self.waiting = order.into_iter().map(|i| self.waiting[i]).collect();
                    }
                }
                return;
            }
        }
        self.refresh(rules, kv, reqs, contents);
    }

    /// Looks up all waiting requests. Returns those that match little of the cache but much of a request before them:
    /// they wait until that one is computed.
    fn look_up(&mut self, kv: &mut Kv, reqs: &mut [Req], contents: &impl Contents) -> Vec<RequestId> {
        self.among_waiting.clear();
        let mut later = Vec::new();
        for &id in &self.waiting {
            let r = &mut reqs[id as usize];
            let tokens = contents.tokens(id, r.tokens());
            let found = kv.match_prefix(&tokens);
            (r.prefix_len, r.last_node) = (found.tokens, found.node);
            r.matched = found.tokens.min(r.tokens().saturating_sub(1));
            if r.prefix_len > SHARED_PREFIX {
                continue;
            }
            if self.among_waiting.match_prefix(&tokens).tokens >= SHARED_PREFIX {
                later.push(id);
            } else {
                self.among_waiting.insert(tokens, 0, 0);
            }
        }
        later
    }

    /// Marks the prefixes of waiting requests as used now and then, the first request's last, so that eviction takes
    /// the prefixes of the requests at the end.
    fn refresh(&mut self, rules: &SglangRules, kv: &mut Kv, reqs: &[Req], contents: &impl Contents) {
        // Where recency does not decide what is evicted, SGLang saves the walk.
        if self.waiting.is_empty() || kv.tree.is_none() || rules.eviction != EvictionPolicy::Lru {
            return;
        }
        let due = self.passes.is_multiple_of(REFRESH_INTERVAL);
        self.passes += 1;
        if due {
            for &id in self.waiting.iter().take(PREFIX_MATCH_MAX).rev() {
                kv.match_prefix(&contents.tokens(id, reqs[id as usize].tokens()));
            }
        }
    }

    /// How many tokens of a chunk the prompt `chunked` may take, so that shorter waiting prompts fit beside it; `None`
    /// for no limit.
    pub fn chunk_limit(&self, rules: &SglangRules, chunked: &Req, reqs: &[Req], budget: u32) -> Option<u32> {
        let page = rules.page_size;
        if rules.order != QueueOrder::ShortestPrefillFirst || budget < 2 * page {
            return None;
        }
        let (left, mut reserved) = (chunked.tokens() - chunked.prefix_len, 0);
        for &id in &self.waiting {
            let work = work(&reqs[id as usize]);
            let charge = work.next_multiple_of(page);
            if work >= left || reserved + charge > budget - page {
                break;
            }
            reserved += charge;
        }
        (reserved > 0).then(|| (budget - reserved) / page * page)
    }
}

/// Number of tokens that are to be computed, as far as the last look-up knows.
fn work(r: &Req) -> u32 {
    (r.tokens() - r.matched.min(r.tokens())).max(1)
}
