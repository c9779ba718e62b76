//! The event clock's ledger: how the device spent its time, by part (decodes, prompts, draft passes, …; docs/model.md
//! 14.1).
//!
//! The ledger counts by pass, never by request. When the ledger is read, a pass that the host queued may not have ended
//! or not have begun. Such a pass counts up to the time of the reading, and each of its parts counts in proportion.

use crate::executor::{Chunk, StepPlan};
use crate::latency::{LatencyModel, PassShape};
use crate::metrics::Spent;
use crate::policy::{BatchView, ChunkTotals};
use crate::shape;
use crate::time::Time;
use crate::workload::RequestId;
use std::collections::VecDeque;

/// How long the device ran decodes, prompts, recomputed tokens, draft passes and rejected draft tokens.
#[derive(Debug)]
pub struct Ledger {
    /// Device time by part (decoding, prompts, draft passes, …), summed over the passes that have ended.
    done: Spent,
    /// The passes that the host has queued and that may not have ended yet, in the order of their times.
    ahead: VecDeque<Pass>,
    prompts: Vec<Prompt>,
}

/// How many tokens of a request have been computed. With this the ledger can tell the first computation of a token from
/// a recomputation.
#[derive(Clone, Copy, Debug, Default)]
struct Prompt {
    /// Number of leading tokens of the request that were computed as prompt tokens; `u32::MAX` once the prompt has
    /// ended: if the request then loses its KV, all its tokens count as computed before.
    computed: u32,
    /// Number of leading tokens that had been computed when the request last lost its KV.
    lost: u32,
}

/// A pass on the engine's clock: when it starts and ends, and how its time divides into parts (decodes, prompts, …).
#[derive(Clone, Copy, Debug)]
struct Pass {
    start: Time,
    end: Time,
    spent: Spent,
}

impl Ledger {
    /// An empty ledger for `requests` requests.
    pub fn new(requests: usize) -> Ledger {
        Ledger { done: Spent::default(), ahead: VecDeque::new(), prompts: vec![Prompt::default(); requests] }
    }

    /// Notes that a request starts. The request may have the id of a request that has ended.
    pub fn start(&mut self, id: RequestId) {
        if self.prompts.len() <= id as usize {
            self.prompts.resize(id as usize + 1, Prompt::default());
        }
        self.prompts[id as usize] = Prompt::default();
    }

    /// Adds a pass from `start` to `end`: a target pass if `target` is true, otherwise a draft pass. The whole time of
    /// a target pass counts as decoding, unless [`split`](Ledger::split) is called next. From now on the ledger may
    /// only be read for times from `now` on.
    pub fn pass(&mut self, now: Time, start: Time, end: Time, target: bool) {
        self.close(now);
        let time = (end - start).0;
        let spent = match target {
            true => Spent { decoding: time, ..Spent::default() },
            false => Spent { drafting: time, ..Spent::default() },
        };
        self.ahead.push_back(Pass { start, end, spent });
    }

    /// Splits the time of the last pass, a target pass, into its parts (decodes, prompts, accepted and rejected draft
    /// tokens). `shape` says how many tokens the pass processed and how many KV tokens it read. `model` gives the pass
    /// times without noise, `whole` the time of this one. `accepted` is the number of the pass's draft tokens that were
    /// right.
    pub fn split(
        &mut self,
        model: &dyn LatencyModel,
        (shape, whole): (PassShape, Time),
        step: &StepPlan,
        accepted: u64,
    ) {
        if shape.batched == step.batch.len() as u64 && step.chunks.is_empty() {
            return;
        }
        let plain = shape::plain_pass(&step.batch);
        let whole = whole.0;
        let without_drafts = if shape == plain { whole } else { model.pass(plain).0.min(whole) };
        let decoding = match (step.chunks, step.batch.len()) {
            ([], _) => without_drafts,
            (_, 0) => 0,
            _ => model.pass(decodes_only(&step.batch)).0.min(without_drafts),
        };
        let (prompts, extra) = (without_drafts - decoding, whole - without_drafts);
        let recomputing = share(prompts, self.recomputed(step.chunks), step.batch.prefill.tokens);
        // Draft tokens and padding: all tokens of the pass's decode requests, except the newest emitted token of each.
        let drafts = shape.batched.saturating_sub(plain.batched);
        let verifying = if drafts == 0 { extra } else { share(extra, accepted.min(drafts), drafts) };
        let parts = Spent {
            decoding,
            prompts: prompts - recomputing,
            recomputing,
            drafting: 0,
            verifying,
            rejected: extra - verifying,
        };
        let pass = self.ahead.back_mut().expect("the pass was noted before");
        pass.spent = fitted(parts, (pass.end - pass.start).0);
    }

    /// Notes that a request lost its KV, so that its tokens count as recomputed when they are computed again.
    pub fn lost(&mut self, id: RequestId) {
        let prompt = &mut self.prompts[id as usize];
        prompt.lost = prompt.computed;
    }

    /// Number of tokens in the prompt chunks that had been computed before and whose KV was lost. Also stores how far
    /// each prompt is computed.
    fn recomputed(&mut self, chunks: &[Chunk]) -> u64 {
        let mut again = 0;
        for chunk in chunks {
            let prompt = &mut self.prompts[chunk.request as usize];
            let end = chunk.computed + chunk.tokens;
            again += u64::from(end.min(prompt.lost).saturating_sub(chunk.computed));
            prompt.computed = if chunk.last { u32::MAX } else { end.max(prompt.computed) };
        }
        again
    }

    /// Adds the passes that have ended by `at` to the sums of device time.
    fn close(&mut self, at: Time) {
        while let Some(pass) = self.ahead.front().filter(|pass| pass.end <= at) {
            self.done = self.done.plus(&pass.spent);
            self.ahead.pop_front();
        }
    }

    /// How the device has spent its time until `at`, by part (decodes, prompts, draft passes, …). `at` must not be
    /// earlier than the `at` of an earlier call.
    pub fn until(&mut self, at: Time) -> Spent {
        self.close(at);
        match self.ahead.front() {
            Some(pass) if pass.start < at => {
                self.done.plus(&pass.spent.scaled((at - pass.start).0, (pass.end - pass.start).0))
            }
            _ => self.done,
        }
    }
}

/// `time` · `part` / `all`, rounded down to a whole number; 0 if `all` is 0.
fn share(time: u64, part: u64, all: u64) -> u64 {
    if all == 0 { 0 } else { (u128::from(time) * u128::from(part) / u128::from(all)) as u64 }
}

/// Scales the device times of the parts of a pass (decodes, prompts, rejected tokens, …) so that their sum is `time`.
/// This is needed because noise changes the time of a pass. The remainder of the rounding goes to the decode part, or
/// to the prompt part if nothing decodes.
fn fitted(parts: Spent, time: u64) -> Spent {
    let sum = parts.sum();
    if sum == time {
        return parts;
    }
    let mut parts = if sum == 0 { parts } else { parts.scaled(time, sum) };
    let rest = time - parts.sum();
    match parts.decoding {
        0 => parts.prompts += rest,
        _ => parts.decoding += rest,
    }
    parts
}

/// How many tokens the target pass would process, and how many KV tokens it would read, without prompts and with one
/// token for each decode request.
fn decodes_only(batch: &BatchView) -> PassShape {
    shape::plain_pass(&BatchView { prefill: ChunkTotals::default(), ..*batch })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ps(n: u64) -> Time {
        Time(n)
    }

    #[test]
    fn a_queued_pass_counts_up_to_the_reading() {
        let mut ledger = Ledger::new(1);
        ledger.pass(ps(0), ps(10), ps(30), true);
        ledger.pass(ps(0), ps(30), ps(50), false);
        let read = |ledger: &mut Ledger, at| (ledger.until(ps(at)).decoding, ledger.until(ps(at)).drafting);
        assert_eq!(read(&mut ledger, 10), (0, 0));
        assert_eq!(read(&mut ledger, 25), (15, 0));
        assert_eq!(read(&mut ledger, 35), (20, 5));
        // The device is idle from 50 ps to 60 ps, which counts as no part.
        ledger.pass(ps(60), ps(60), ps(61), false);
        assert_eq!(read(&mut ledger, 60), (20, 20));
        assert_eq!(read(&mut ledger, 100), (20, 21));
    }

    #[test]
    fn tokens_whose_kv_was_lost_are_computed_again() {
        let mut ledger = Ledger::new(1);
        let chunk = |computed, tokens, last| Chunk { request: 0, computed, tokens, last, draft_tokens: 0 };
        assert_eq!(ledger.recomputed(&[chunk(0, 60, false)]), 0);
        // The request lost its KV in the middle of the prompt, so 60 of 100 tokens are computed again.
        ledger.lost(0);
        assert_eq!(ledger.recomputed(&[chunk(0, 100, true)]), 60);
        ledger.lost(0);
        // The request lost its KV again while it decoded, with 110 tokens. 16 of these are found in the prefix cache,
        // and 94 are computed again.
        assert_eq!(ledger.recomputed(&[chunk(16, 94, true)]), 94);
    }

    #[test]
    fn noise_stretches_the_parts() {
        let parts = Spent { decoding: 10, rejected: 20, ..Spent::default() };
        let fitted = fitted(parts, 61);
        assert_eq!((fitted.decoding, fitted.rejected, fitted.sum()), (21, 40, 61));
    }
}
