//! The scheduler's part of a [skipped stretch](crate::engine::Engine): how long it may be, and its effect on requests.

use super::state::Scheduler;
use crate::config::Version;
use crate::metrics::Totals;
use crate::time::Time;

impl Scheduler<'_> {
    /// The number of steps that only an arrival can disturb; 0 if the next step is no part of a stretch.
    pub fn plain_stretch(&self) -> u32 {
        // Without shared prefixes only a preempted request can hit the cache. How many of its blocks are left then
        // depends on how many blocks were taken, not on which request took them.
        let fits = self.running.len() as u32 <= self.rules.max_num_batched_tokens;
        let plain = !self.rules.drafter && self.waiting.is_empty() && !self.running.is_empty();
        if !plain || !self.config.skip_stretches || self.order_shows || !fits {
            return 0;
        }
        let mut steps = u32::MAX;
        for r in &self.running {
            if r.prefilling {
                return 0;
            }
            steps = steps.min(r.max_tokens - r.num_output_tokens);
        }
        let kv = &self.kv_cache_manager;
        if kv.surely_holds(self.running.len(), steps) {
            return steps;
        }
        let blocks: u32 = self.running.iter().map(|r| kv.lacking(r, r.num_computed_tokens + steps)).sum();
        // v0 needs one free block more than it uses.
        let spare = u32::from(self.rules.version == Version::V0);
        if blocks + spare > kv.num_free_blocks() { 0 } else { steps }
    }

    /// Number of requests in the batch of a stretch, and the sum of their contexts.
    pub fn stretch_batch(&self) -> (u32, u64) {
        (self.running.len() as u32, self.running.iter().map(|r| u64::from(r.num_computed_tokens)).sum())
    }

    /// Records the gaps between tokens that end with the first step of a stretch. Some requests may have been left out
    /// of the step before.
    pub fn first_gaps(&self, end: Time, totals: &mut Totals) {
        let mut since_last = 0;
        for r in &self.running {
            if r.last_emit == self.last_end {
                since_last += 1;
            } else {
                totals.gaps.record(end - r.last_emit, 1);
            }
        }
        if since_last > 0 {
            totals.gaps.record(end - self.last_end, since_last);
        }
    }

    /// Advances every request to the end of a stretch of `done` steps that ended at `end`.
    pub fn catch_up(&mut self, done: u32, end: Time, totals: &mut Totals) {
        self.output.clear();
        self.last_end = end;
        self.current_step += u64::from(done);
        self.pace.skip(done);
        let mut ended = false;
        for r in &mut self.running {
            let fits = self.kv_cache_manager.allocate_slots(r, r.num_computed_tokens + done);
            assert!(fits, "the stretch was cut to what the pool holds");
            r.num_computed_tokens += done;
            r.num_tokens += done;
            r.num_cacheable_tokens = r.num_tokens - 1;
            r.num_output_tokens += done;
            r.last_emit = end;
            ended |= r.num_output_tokens == r.max_tokens;
        }
        totals.peak_blocks = totals.peak_blocks.max(self.kv_cache_manager.used());
        if ended {
            self.remove_finished(end);
        }
    }
}
