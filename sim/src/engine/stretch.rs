//! Skipping: a stretch of plain decode steps in which nothing can be decided runs on sums alone.
//!
//! From an arrival or completion to the next the plain engine repeats one step with a longer context. Each such step still asks
//! the true latency model and adds to the same totals, in the same order, as stepping does; only the walk over the
//! requests is put off to the end of the stretch. Results are therefore the same bytes with and without (a property
//! test holds it to that).

use super::{Drafter, Engine};
use crate::executor::Executor;
use crate::{PassShape, Time};

impl<E: Executor, D: Drafter<E>> Engine<'_, E, D> {
    /// Runs a stretch if there is one; says whether it did.
    pub(super) fn skip_stretch(&mut self) -> bool {
        let steps = self.stretch_len();
        if steps == 0 {
            return false;
        }
        let n = self.running.len() as u32;
        let context: u64 = self.running.iter().map(|a| u64::from(a.computed)).sum();
        let until = self.arrivals.next_at();
        let begun = self.executor.now();
        let mut now = begun;
        let mut done = 0;
        let mut context_time = 0;
        // Steps since `lump_start` end in one bin of the series.
        let (mut lump_start, mut lump_steps) = (begun, 0);
        while done < steps && now < until {
            let start = now;
            let context = context + u64::from(done) * u64::from(n);
            self.executor.plain_step(PassShape { batched: n.into(), context, pairs: context + u64::from(n) });
            now = self.executor.now();
            context_time += u128::from(context) * u128::from((now - start).0);
            if now >= self.out.series.last_end() {
                self.out.series.lump(start, n, lump_steps, start - lump_start);
                (lump_start, lump_steps) = (start, 0);
                self.out.series.lump(now, n, 0, Time::ZERO);
            }
            lump_steps += 1;
            if done == 0 {
                self.first_gaps(now);
            } else {
                self.out.totals.gaps.record(now - start, n);
            }
            done += 1;
        }
        self.out.series.lump(now, n, lump_steps, now - lump_start);
        self.out.totals.plain_steps(n, done.into(), now - begun, context_time);
        self.last_end = now;
        self.step += u64::from(done);
        self.catch_up(done);
        true
    }

    /// How many steps nothing but an arrival can disturb; 0 when this is no stretch.
    fn stretch_len(&self) -> u32 {
        let plain = E::SKIPS && !D::ACTIVE && self.config.skip_stretches && !self.out.wants_every_step();
        // Where prefixes are shared, the order in which requests take blocks shows in what is evicted. Without, only a
        // preempted request can hit the cache, and what is left of its blocks depends on how many were taken, not by whom.
        let order_shows = self.config.prefix_caching && !self.workload.prefix_ids.is_empty();
        if !plain || order_shows || !self.waiting.is_empty() {
            return 0;
        }
        if self.running.len() as u32 > self.config.max_num_batched_tokens {
            return 0;
        }
        let mut steps = u32::MAX;
        for a in &self.running {
            if a.prefilling {
                return 0;
            }
            steps = steps.min(a.stop_at - a.emitted);
        }
        if self.memory.surely_holds(self.running.len(), steps) {
            return steps;
        }
        let blocks: u32 = self.running.iter().map(|a| self.memory.lacking(a, a.computed + steps)).sum();
        if blocks > self.memory.free() { 0 } else { steps }
    }

    /// The gaps that end with the first step of a stretch: some request may have been left out of the step before.
    fn first_gaps(&mut self, end: Time) {
        let mut since_last = 0;
        for a in &self.running {
            if a.last_emit == self.last_end {
                since_last += 1;
            } else {
                self.out.totals.gaps.record(end - a.last_emit, 1);
            }
        }
        if since_last > 0 {
            self.out.totals.gaps.record(end - self.last_end, since_last);
        }
    }

    /// Brings every request to the end of a stretch of `done` steps.
    fn catch_up(&mut self, done: u32) {
        let mut ended = false;
        for a in &mut self.running {
            let fits = self.memory.ensure(a, a.computed + done);
            assert!(fits, "the stretch was cut to what the pool holds");
            a.computed += done;
            a.total += done;
            a.emitted += done;
            a.last_emit = self.last_end;
            ended |= a.emitted == a.stop_at;
        }
        self.out.totals.peak_blocks = self.out.totals.peak_blocks.max(self.memory.used());
        if ended {
            self.remove_ended(self.last_end);
        }
    }
}
