//! The event clock's ledger: what the device did with its time, by part (docs/model.md 14.1).
//!
//! It counts by pass, never by request. A pass that the host queued may still be going on, or lie ahead, when the
//! ledger is read; it then counts up to the time of the reading, each of its parts in proportion.

use crate::executor::{Chunk, StepPlan};
use crate::latency::{LatencyModel, PassShape};
use crate::metrics::Spent;
use crate::policy::{BatchView, ChunkTotals};
use crate::shape;
use crate::time::Time;
use crate::workload::RequestId;
use std::collections::VecDeque;

/// The device's time by part.
#[derive(Debug)]
pub struct Ledger {
    /// Sums over the passes that have ended.
    done: Spent,
    /// The passes that may not have ended yet, in order.
    ahead: VecDeque<Pass>,
    prompts: Vec<Prompt>,
}

/// How many tokens of a request have been computed, to tell first computation from recomputation.
#[derive(Clone, Copy, Debug, Default)]
struct Prompt {
    /// Number of leading tokens that were computed as prompt tokens; all, once the prompt ended.
    computed: u32,
    /// Number of leading tokens that were computed when the request last lost its KV.
    lost: u32,
}

/// A pass on the engine's clock.
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

    /// Adds a pass from `start` to `end`: a target pass over one token of each decode request if `target`, else a draft
    /// pass. From then on the ledger may only be read for times from `now`.
    pub fn pass(&mut self, now: Time, start: Time, end: Time, target: bool) {
        self.close(now);
        let time = (end - start).0;
        let spent = match target {
            true => Spent { decoding: time, ..Spent::default() },
            false => Spent { drafting: time, ..Spent::default() },
        };
        self.ahead.push_back(Pass { start, end, spent });
    }

    /// Splits the time of the last pass, a target pass of `shape`, into its parts. `model` gives its time without
    /// noise. `accepted` drafts of the pass were right.
    pub fn split(&mut self, model: &dyn LatencyModel, shape: PassShape, step: &StepPlan, accepted: u64) {
        if shape.batched == step.batch.len() as u64 && step.chunks.is_empty() {
            return;
        }
        let plain = shape::plain_pass(&step.batch);
        let whole = model.pass(shape).0;
        let without_drafts = if shape == plain { whole } else { model.pass(plain).0.min(whole) };
        let decoding = match (step.chunks, step.batch.len()) {
            ([], _) => without_drafts,
            (_, 0) => 0,
            _ => model.pass(decodes_only(&step.batch)).0.min(without_drafts),
        };
        let (prompts, extra) = (without_drafts - decoding, whole - without_drafts);
        let recomputing = share(prompts, self.recomputed(step.chunks), step.batch.prefill.tokens);
        // Drafts and padding: the tokens beyond each request's newest one.
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

    /// Notes that a request lost its KV, so that its tokens count as recomputed when they run again.
    pub fn lost(&mut self, id: RequestId) {
        let prompt = &mut self.prompts[id as usize];
        prompt.lost = prompt.computed;
    }

    /// Number of tokens of the chunks that were computed before and lost. Notes how far the prompts are.
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

    /// Moves the passes that are over at `at` to the sums.
    fn close(&mut self, at: Time) {
        while let Some(pass) = self.ahead.front().filter(|pass| pass.end <= at) {
            self.done = self.done.plus(&pass.spent);
            self.ahead.pop_front();
        }
    }

    /// The device's time by part until `at`. A later call may not give an earlier time.
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

/// `time` · `part` / `all`, rounded down; 0 if `all` is 0.
fn share(time: u64, part: u64, all: u64) -> u64 {
    if all == 0 { 0 } else { (u128::from(time) * u128::from(part) / u128::from(all)) as u64 }
}

/// Scales the parts so that their sum is `time`, because noise changes the time of a pass. What rounding leaves goes to
/// the decoding, or to the prompts if nothing decodes.
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

/// The target pass without its prompts, one token for each decode request.
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
        // The device idles from 50 to 60.
        ledger.pass(ps(60), ps(60), ps(61), false);
        assert_eq!(read(&mut ledger, 60), (20, 20));
        assert_eq!(read(&mut ledger, 100), (20, 21));
    }

    #[test]
    fn tokens_whose_kv_was_lost_are_computed_again() {
        let mut ledger = Ledger::new(1);
        let chunk = |computed, tokens, last| Chunk { request: 0, computed, tokens, last, draft_tokens: 0 };
        assert_eq!(ledger.recomputed(&[chunk(0, 60, false)]), 0);
        // The request lost its KV in the middle of the prompt: 60 of 100 tokens are computed again.
        ledger.lost(0);
        assert_eq!(ledger.recomputed(&[chunk(0, 100, true)]), 60);
        ledger.lost(0);
        // It lost its KV again while it decoded; 16 tokens were found in the prefix cache.
        assert_eq!(ledger.recomputed(&[chunk(16, 94, true)]), 94);
    }

    #[test]
    fn noise_stretches_the_parts() {
        let parts = Spent { decoding: 10, rejected: 20, ..Spent::default() };
        let fitted = fitted(parts, 61);
        assert_eq!((fitted.decoding, fitted.rejected, fitted.sum()), (21, 40, 61));
    }
}
