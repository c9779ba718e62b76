//! Async scheduling: a step in flight is assumed to accept all its drafts, and the counts are corrected when its output
//! comes (vLLM's `AsyncScheduler`).

use super::state::Scheduler;
use super::sums::{Sums, append, begin_output};
use crate::engine::request::RunningRequest;
use crate::engine::scheduler_output::SchedulerOutput;
use crate::engine::spec_decode::SpecDecode;
use crate::metrics::Totals;
use crate::time::Time;
use crate::workload::RequestId;

impl Scheduler<'_> {
    /// vLLM's `_update_after_schedule`: advances the requests of the step as if all its drafts hold.
    pub fn advance(&mut self) {
        for r in self.running.iter_mut().filter(|r| r.num_scheduled_tokens > 0) {
            let tokens = std::mem::take(&mut r.num_scheduled_tokens);
            r.num_computed_tokens += tokens;
            r.num_in_flight_tokens += tokens;
            let known = r.num_tokens + r.num_output_placeholders;
            r.prefilling = r.num_computed_tokens < known;
            if !r.prefilling {
                r.num_output_placeholders += 1 + r.num_computed_tokens - known;
            }
        }
    }

    /// Caches verified tokens at once, because they may include the end of a prompt that others share.
    pub(super) fn cache_verified(&mut self) {
        for r in self.running.iter_mut().filter(|r| !r.prefilling) {
            r.num_cacheable_tokens = r.num_cacheable_tokens.max(r.num_tokens - 1);
            self.kv_cache_manager.cache_blocks(r, r.num_cacheable_tokens);
        }
    }

    /// Exchanges the current output (the last one decided or updated) with another one.
    pub fn swap_output(&mut self, other: &mut Box<SchedulerOutput>) {
        std::mem::swap(&mut self.output, other);
    }

    /// Whether the decode requests of the step are still exactly the running list. If not, notes each request's index
    /// in the running list.
    fn stand_as_before(&mut self) -> bool {
        let ids = self.output.batch.ids();
        if ids.len() == self.running.len() && ids.iter().zip(&self.running).all(|(&id, r)| id == r.id) {
            return true;
        }
        self.place.resize(self.workload.len(), u32::MAX);
        for (at, r) in self.running.iter().enumerate() {
            self.place[r.id as usize] = at as u32;
        }
        false
    }

    /// The running request with this id; `None` if it does not run.
    fn placed(&mut self, id: RequestId) -> Option<&mut RunningRequest> {
        let at = *self.place.get(id as usize)? as usize;
        self.running.get_mut(at).filter(|r| r.id == id)
    }

    /// Applies the output of a step in flight to its decode requests.
    pub(super) fn update_in_flight(&mut self, spec: &SpecDecode, end: Time, totals: &mut Totals) -> Sums {
        let (mut sums, last_end) = (Sums::default(), self.last_end);
        let as_before = self.stand_as_before();
        if as_before && !self.rules.drafter {
            for r in &mut self.running {
                r.num_in_flight_tokens -= 1;
                r.num_output_placeholders -= 1;
                append(r, 1, (last_end, end), &mut sums, totals);
            }
            totals.verified_accepted[0][0] += self.running.len() as u64;
            return sums;
        }
        for i in 0..self.output.batch.len() {
            let (id, scheduled) = (self.output.batch.ids()[i], self.output.batch.limit()[i]);
            let (drafted, verified, accepted) = spec.of(i);
            let depth = spec.drafts.verify_len.get(i).copied().unwrap_or(0) as usize;
            if let Some(r) = if as_before { self.running.get_mut(i) } else { self.placed(id) } {
                totals.verified_accepted[depth][accepted as usize] += 1;
                sums.count(&mut r.done, drafted, verified, accepted);
                r.num_in_flight_tokens -= 1 + scheduled;
                r.num_output_placeholders -= 1 + scheduled;
                r.num_computed_tokens -= scheduled - accepted;
                append(r, 1 + accepted, (last_end, end), &mut sums, totals);
                r.num_draft_computed_tokens = r.num_computed_tokens;
            } else if self.deliver_stale(id, 1 + accepted, (drafted, verified, accepted), end, &mut sums, totals) {
                totals.verified_accepted[depth][accepted as usize] += 1;
            }
        }
        sums
    }

    /// Applies the output of a step in flight to its prompt chunks. Returns the tokens emitted and the number of
    /// requests that ended.
    pub(super) fn update_chunks_in_flight(&mut self, end: Time, totals: &mut Totals) -> (u32, u32) {
        let (mut emitted, mut finished) = (0, 0);
        if self.output.chunks.is_empty() {
            return (0, 0);
        }
        let chunks = std::mem::take(&mut self.output.chunks);
        let mut first_tokens = std::mem::take(&mut self.output.first_tokens);
        for chunk in &chunks {
            let Some(r) = self.placed(chunk.request) else {
                let mut sums = Sums::default();
                let tokens = u32::from(chunk.last);
                self.deliver_stale(chunk.request, tokens, (0, 0, 0), end, &mut sums, totals);
                first_tokens.append(&mut self.output.first_tokens);
                emitted += sums.emitted;
                continue;
            };
            r.num_in_flight_tokens -= chunk.tokens;
            if chunk.last {
                // The padding of an admitted request is not a token.
                let padding = chunk.computed + chunk.tokens - r.num_tokens;
                r.num_computed_tokens -= padding;
                r.num_output_placeholders -= 1 + padding;
                emitted += 1;
                finished += u32::from(begin_output(r, end, &mut first_tokens, totals));
            }
            r.num_draft_computed_tokens = r.num_computed_tokens;
        }
        (self.output.chunks, self.output.first_tokens) = (chunks, first_tokens);
        (emitted, finished)
    }

    /// Applies output for a request that no longer runs. A preempted request still gets its tokens, and may end with
    /// them; for an ended request the tokens are dropped. Returns whether the request was a preempted one.
    #[cold]
    fn deliver_stale(
        &mut self,
        id: RequestId,
        tokens: u32,
        (drafted, verified, accepted): (u32, u32, u32),
        end: Time,
        sums: &mut Sums,
        totals: &mut Totals,
    ) -> bool {
        if self.num_stale == 0 {
            return false;
        }
        let stale = self.num_stale;
        let max_tokens = self.max_tokens(id);
        let (mut ended, mut first) = (None, false);
        self.waiting.change(id, |w| {
            if !std::mem::take(&mut w.stale) {
                return true;
            }
            self.num_stale -= 1;
            sums.count(&mut w.done, drafted, verified, accepted);
            let emitted = tokens.min(max_tokens - w.num_output_tokens);
            w.num_output_tokens += emitted;
            sums.emitted += emitted;
            if emitted > 0 {
                first = w.last_emit == Time::MAX;
                if !first {
                    totals.gaps.record(end - w.last_emit, 1);
                }
                w.last_emit = end;
            }
            let goes_on = w.num_output_tokens < max_tokens;
            ended = (!goes_on).then_some(*w);
            self.num_passed_over -= u32::from(!goes_on && w.passed_over);
            goes_on
        });
        if first {
            self.output.first_tokens.push(id);
        }
        if let Some(w) = ended {
            let r = self.activate(w);
            self.output.finished.push(r);
        }
        self.num_stale < stale
    }
}
