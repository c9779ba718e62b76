//! Async scheduling: the scheduler assumes that a step in flight accepts all its draft tokens. When the step's output
//! comes, the scheduler corrects the requests' token counts (vLLM's `AsyncScheduler`).

use super::state::Scheduler;
use super::tally::Tally;
use crate::config::DraftAt;
use crate::engine::request::{Part, RunningRequest};
use crate::engine::scheduler_output::SchedulerOutput;
use crate::engine::spec_decode::SpecDecode;
use crate::workload::RequestId;

impl Scheduler<'_> {
    /// vLLM's `_update_after_schedule`: advances the numbers of computed tokens of the step's requests as if all their
    /// draft tokens were accepted.
    pub fn advance(&mut self) {
        let at_start = self.rules.draft_at == DraftAt::StepStart;
        for r in self.running.iter_mut().filter(|r| r.num_scheduled_tokens > 0) {
            let tokens = std::mem::take(&mut r.num_scheduled_tokens);
            r.num_computed_tokens += tokens;
            r.num_in_flight_tokens += tokens;
            if at_start {
                // The drafter runs over the step's tokens before it drafts again.
                r.num_draft_computed_tokens = r.num_computed_tokens;
            }
            let known = r.num_tokens + r.num_output_placeholders;
            r.prefilling = r.num_computed_tokens < known;
            if !r.prefilling {
                r.num_output_placeholders += 1 + r.num_computed_tokens - known;
            }
        }
    }

    /// Registers verified tokens in the prefix cache at once, because their blocks may include the end of a prompt that
    /// other requests share.
    pub(super) fn cache_verified(&mut self) {
        for r in self.running.iter_mut().filter(|r| !r.prefilling) {
            r.num_cacheable_tokens = r.num_cacheable_tokens.max(r.num_tokens - 1);
            self.kv_cache_manager.cache_blocks(self.asked.workload(), r, r.num_cacheable_tokens);
        }
    }

    /// Exchanges the scheduler's current output with `other`, the output of another step. The current output belongs to
    /// the step that was decided or updated last.
    pub fn swap_output(&mut self, other: &mut Box<SchedulerOutput>) {
        std::mem::swap(&mut self.output, other);
    }

    /// Returns whether the decode requests of the step are still the first requests of the running list. If not, or if
    /// the step has prompt chunks, stores the index of every running request in the running list.
    fn stand_as_before(&mut self) -> bool {
        let ids = self.output.batch.ids();
        let as_before = ids.len() <= self.running.len() && ids.iter().zip(&self.running).all(|(&id, r)| id == r.id);
        if as_before && self.output.chunks.is_empty() {
            return true;
        }
        self.scratch.place.resize(self.asked.workload().len(), u32::MAX);
        for (at, r) in self.running.iter().enumerate() {
            self.scratch.place[r.id as usize] = at as u32;
        }
        as_before
    }

    /// The running request `id`, found by the stored index in the running list; `None` if the request does not run.
    fn placed(&mut self, id: RequestId) -> Option<&mut RunningRequest> {
        let at = *self.scratch.place.get(id as usize)? as usize;
        self.running.get_mut(at).filter(|r| r.id == id)
    }

    /// Applies the output of a step in flight to the step's decode requests.
    pub(super) fn update_in_flight(&mut self, spec: &SpecDecode, tally: &mut Tally) {
        let as_before = self.stand_as_before();
        if as_before && !self.rules.drafter {
            return tally.append_one(&mut self.running[..self.output.batch.len()], |r| {
                r.num_in_flight_tokens -= 1;
                r.num_output_placeholders -= 1;
            });
        }
        let batch = &self.output.batch;
        if as_before {
            let each = batch.limit().iter().zip(&spec.accepted).zip(&mut self.running);
            return each.for_each(|((&scheduled, &accepted), r)| apply(r, scheduled, accepted, tally));
        }
        for i in 0..batch.len() {
            let (id, scheduled) = (self.output.batch.ids()[i], self.output.batch.limit()[i]);
            match self.placed(id) {
                Some(r) => apply(r, scheduled, spec.accepted[i], tally),
                None => self.deliver_late(id, 1 + spec.accepted[i], tally),
            }
        }
    }

    /// Applies the output of a step in flight to the requests of its prompt chunks.
    pub(super) fn update_chunks_in_flight(&mut self, tally: &mut Tally) {
        let chunks = std::mem::take(&mut self.output.chunks);
        for chunk in &chunks {
            let Some(r) = self.placed(chunk.request) else {
                self.deliver_late(chunk.request, u32::from(chunk.last), tally);
                continue;
            };
            r.num_in_flight_tokens -= chunk.tokens;
            if chunk.last {
                // Padding tokens of an admitted request do not count as computed.
                let padding = chunk.computed + chunk.tokens - r.num_tokens;
                r.num_computed_tokens -= padding;
                r.num_output_placeholders -= 1 + padding;
                tally.append_first(r);
            }
            r.num_draft_computed_tokens = r.num_computed_tokens;
        }
        self.output.chunks = chunks;
    }

    /// Applies a step's output for a request that no longer runs. A request that was preempted still gets the step's
    /// tokens, and may end with them. If the request has ended, the step's tokens are dropped.
    #[cold]
    fn deliver_late(&mut self, id: RequestId, tokens: u32, tally: &mut Tally) {
        if !self.waiting.any_stale() {
            return self.result.dropped.push(id);
        }
        let max_tokens = self.asked.max_tokens(id);
        let (mut delivered, mut ended) = (false, None);
        self.waiting.change(id, |w| {
            if !std::mem::take(&mut w.stale) {
                return true;
            }
            delivered = true;
            if w.part == Part::Prompt {
                // The preemption freed the KV that was to be handed over, so the engine computes the prompt again.
                return true;
            }
            let emitted = tokens.min(max_tokens - w.num_output_tokens);
            w.num_output_tokens += emitted;
            tally.emitted += emitted;
            let goes_on = w.num_output_tokens < max_tokens;
            ended = (!goes_on).then_some(*w);
            goes_on
        });
        if !delivered {
            self.result.dropped.push(id);
        }
        if let Some(w) = ended {
            self.result.finished.push(self.asked.activate(w));
        }
    }
}

/// Applies the output of a step in flight to a decode request: of the `scheduled` draft tokens `accepted` were right.
#[inline(always)]
fn apply(r: &mut RunningRequest, scheduled: u32, accepted: u32, tally: &mut Tally) {
    r.num_in_flight_tokens -= 1 + scheduled;
    r.num_output_placeholders -= 1 + scheduled;
    r.num_computed_tokens -= scheduled - accepted;
    r.num_draft_computed_tokens = r.num_computed_tokens;
    tally.append(r, 1 + accepted);
}
