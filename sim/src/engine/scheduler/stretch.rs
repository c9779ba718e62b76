//! The scheduler's part of a stretch, a series of steps that are [computed in one go](crate::engine::Engine): how many
//! steps it may have, and its effect on the requests.

use super::state::Scheduler;

/// A stretch: consecutive steps in which every running request gets one token and nothing is decided. It ends when a
/// request ends or when the next request arrives.
#[derive(Clone, Copy, Debug)]
pub struct Stretch {
    /// Number of steps until the first of the running requests ends.
    pub steps: u32,
    /// Number of running requests, each of which gets one token in each step.
    pub requests: u32,
    /// Sum over the running requests of their tokens in KV in the first step of the stretch.
    pub context: u64,
}

impl Scheduler<'_> {
    /// The stretch (steps that are computed in one go) that begins with the next step. `in_flight`: number of steps in
    /// flight, each with all running requests. `None` if no request runs, if a step in flight ends one, or if the next
    /// step needs a decision: there is a drafter, a request waits or is in prefill, prefixes are shared, or the token
    /// budget or the free blocks do not suffice. Also `None` if layers have a sliding window: between two steps such a
    /// request gives blocks back.
    pub fn stretch(&self, in_flight: u32) -> Option<Stretch> {
        // With shared prefixes it would matter which request takes which block. Without them only a preempted request
        // can hit the prefix cache. How many of its blocks are still cached then depends only on the number of blocks
        // that were taken, so a stretch may take them in any order.
        let kv = &self.kv_cache_manager;
        let fits = self.running.len() as u32 <= self.rules.max_num_batched_tokens;
        let waits = !self.waiting.is_empty() || self.handed.num_held() > 0;
        let plain = !self.rules.drafter && !waits && !self.running.is_empty() && !kv.slides();
        if !plain || kv.shares_prefixes(self.asked.workload()) || !fits {
            return None;
        }
        let (mut steps, mut context) = (u32::MAX, 0);
        for r in &self.running {
            if r.prefilling {
                return None;
            }
            steps = steps.min(r.max_tokens - r.num_output_tokens);
            context += u64::from(r.num_computed_tokens);
        }
        let steps = steps.checked_sub(in_flight).filter(|&steps| steps > 0)?;
        if !kv.surely_holds(self.running.len(), steps) {
            let blocks: u32 = self.running.iter().map(|r| kv.lacking(r, r.num_computed_tokens + steps)).sum();
            if blocks + self.rules.release.spare_blocks > kv.num_free_blocks() {
                return None;
            }
        }
        Some(Stretch { steps, requests: self.running.len() as u32, context })
    }

    /// With a drafter: the number of steps, after those in flight, of which none but the last may end a request or give
    /// a first token. `in_flight`: number of steps in flight. 0 if it is not known, because a request waits or is in
    /// prefill, or because the free blocks may not suffice.
    pub fn quiet_steps(&self, in_flight: u32) -> u32 {
        let waits = !self.waiting.is_empty() || self.handed.num_held() > 0;
        if waits || self.running.is_empty() || self.sglang.is_some() {
            return 0;
        }
        let most = 1 + self.rules.num_speculative_tokens;
        let mut left = u32::MAX;
        for r in &self.running {
            if r.prefilling || r.num_output_tokens == 0 {
                return 0;
            }
            left = left.min(r.max_tokens - r.num_output_tokens);
        }
        let steps = left.div_ceil(most);
        let tokens = (steps + 1) * most + self.rules.num_lookahead_tokens;
        let fits = self.kv_cache_manager.surely_holds(self.running.len(), tokens);
        if fits { steps.saturating_sub(in_flight) } else { 0 }
    }

    /// Advances every running request by the `done` steps of a stretch (steps that are computed in one go). Returns how
    /// many requests have now emitted their whole output.
    pub fn catch_up(&mut self, done: u32) -> u32 {
        self.output.clear();
        self.result.clear();
        self.current_step += u64::from(done);
        self.pace.skip(done);
        let mut ended = 0;
        for r in &mut self.running {
            let fits = self.kv_cache_manager.allocate_slots(r, r.num_computed_tokens + done);
            assert!(fits, "the stretch was cut to what the pool holds");
            // All tokens of a request except the newest have KV, before the stretch and after it.
            debug_assert_eq!(r.num_cacheable_tokens, r.num_tokens - 1);
            // These four counters lie side by side in the request's record, so that the compiler adds to all four at
            // once.
            r.num_computed_tokens += done;
            r.num_tokens += done;
            r.num_output_tokens += done;
            r.num_cacheable_tokens += done;
            ended += u32::from(r.num_output_tokens >= r.max_tokens);
        }
        ended
    }
}
