//! Computes a stretch in one go. A stretch is a series of consecutive decode steps without drafting and without
//! decisions. Such steps need only sums over the batch.
//!
//! Between arrivals and completions the engine without a drafter repeats one step with a growing context. For each such
//! step the engine still asks the true latency model and adds to the totals in the same order as for a single step.
//! Only the update of the requests is postponed to the end of the stretch. Results are therefore equal byte for byte
//! with and without stretches (a property test checks this).

use super::drafter::Drafter;
use super::scheduler::Stretch;
use super::state::{Engine, Watch};
use crate::executor::Executor;
use crate::latency::PassShape;
use crate::time::Time;

impl<E: Executor, D: Drafter<E>, W: Watch> Engine<'_, E, D, W> {
    /// If a stretch of decode steps begins with the next step, computes it, up to the next end or arrival of a request.
    /// Returns whether it computed any step.
    pub(super) fn skip_stretch(&mut self) -> bool {
        if !E::SKIPS || !self.scheduler.rules().skip_stretches || self.out.wants_every_step() {
            return false;
        }
        let Some(Stretch { steps, requests, mut context }) = self.scheduler.stretch() else { return false };
        let until = self.arrivals.next_at();
        let begun = self.executor.now();
        let mut now = begun;
        let mut done = 0;
        let mut context_time = 0;
        // The steps that have ended since `lump_start` belong to one time bin of the run's time series. They are added
        // to this bin in one call.
        let (mut lump_start, mut lump_steps) = (begun, 0);
        let mut first_end = begun;
        while done < steps && now < until {
            let start = now;
            let pairs = context + u64::from(requests);
            self.executor.plain_step(PassShape { requests: requests.into(), batched: requests.into(), context, pairs });
            now = self.executor.now();
            let took = now - start;
            context_time += u128::from(context) * u128::from(took.0);
            if now >= self.out.series.last_end() {
                self.out.series.lump(start, requests, lump_steps, start - lump_start);
                (lump_start, lump_steps) = (start, 0);
                self.out.series.lump(now, requests, 0, Time::ZERO);
            }
            lump_steps += 1;
            if done == 0 {
                first_end = now;
                self.out.first_of_stretch(&self.scheduler, now);
            } else {
                self.out.next_of_stretch(requests, took);
            }
            done += 1;
            context += u64::from(requests);
        }
        if done > 1 {
            self.out.end_of_stretch(first_end, now);
        }
        self.out.series.lump(now, requests, lump_steps, now - lump_start);
        self.out.totals.plain_steps(requests, done.into(), now - begun, context_time);
        let ended = self.scheduler.catch_up(done);
        self.out.note_blocks(&self.scheduler);
        if ended > 0 {
            self.scheduler.remove_finished(ended);
        }
        self.act_on_output(now);
        self.tell_ended(self.pipeline.untold_ends.len());
        true
    }
}
