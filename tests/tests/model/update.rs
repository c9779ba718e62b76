//! vLLM's `update_from_output` and `update_draft_token_ids`: what a step's output does to its requests.

use crate::scheduler::{Output, Scheduler};
use crate::workload::Release;

/// What a scheduled request got from the output of its step.
#[derive(Clone, Copy, Debug)]
pub struct Fate {
    pub tokens: i64,
    pub stale: bool,
    /// Had the request ended before the step's output came?
    pub gone: bool,
}

impl Scheduler<'_> {
    /// Applies the output of a step. `sampled` is the number of tokens that the device sampled for each entry of the
    /// step. Returns what each request got, and the requests that ended.
    pub fn update(&mut self, out: &Output, sampled: &[i64]) -> (Vec<Fate>, Vec<usize>) {
        let (mut fates, mut ended) = (Vec::new(), Vec::new());
        for (entry, &sampled) in out.entries.iter().zip(sampled) {
            if self.r(entry.id).finished {
                fates.push(Fate { tokens: 0, stale: false, gone: true });
                continue;
            }
            let longest = self.w.length;
            let r = self.m(entry.id);
            r.in_flight -= entry.tokens;
            let stale = r.stale > 0;
            if stale {
                r.stale -= entry.tokens;
            }
            if entry.drafts > 0 && sampled > 0 && !stale {
                let rejected = entry.drafts - (sampled - 1);
                if r.computed > 0 {
                    r.computed -= rejected;
                }
                if r.placeholders > 0 {
                    r.placeholders -= rejected;
                }
            }
            let (runs, had_placeholders) = (!r.preempted, r.placeholders > 0);
            let (mut tokens, mut stops) = (0, false);
            while tokens < sampled && !stops {
                tokens += 1;
                r.outputs += 1;
                stops = r.tokens() >= longest || r.outputs >= r.ask.outputs;
            }
            if tokens > 0 && !stale && r.placeholders > 0 {
                r.placeholders -= sampled;
            }
            let trimmed = sampled - tokens;
            if tokens > 0 && runs {
                self.cache_after_update(entry.id, stale, had_placeholders, trimmed);
            }
            self.seen.stale += u64::from(stale);
            fates.push(Fate { tokens, stale, gone: false });
            if stops {
                ended.push(entry.id);
                self.end(entry.id);
            }
        }
        self.running.retain(|id| !ended.contains(id));
        self.waiting.retain(|id| !ended.contains(id));
        (fates, ended)
    }

    /// Caches the KV blocks whose tokens are verified. vLLM 0.32 does this only in its `AsyncScheduler`.
    fn cache_after_update(&mut self, id: usize, stale: bool, had_placeholders: bool, trimmed: i64) {
        match self.w.release {
            Release::V0_33 => {
                self.m(id).computed -= if stale { 0 } else { trimmed };
                if !stale && (had_placeholders || self.w.k > 0) {
                    let tokens = self.r(id).computed - self.r(id).in_flight;
                    self.cache(id, tokens);
                }
            }
            Release::V0_32 if self.w.asynchronous => {
                let r = self.m(id);
                // vLLM 0.32 resolves placeholders (output tokens that steps in flight may give) only for the tokens
                // that are returned. Tokens that were cut off at a stop keep their placeholders.
                let placeholders = r.placeholders + if stale { 0 } else { trimmed };
                let tokens = r.computed - placeholders;
                self.cache(id, tokens);
            }
            Release::V0_32 => {}
        }
    }

    fn end(&mut self, id: usize) {
        self.free(id);
        self.m(id).finished = true;
        self.finished.push(id);
    }

    /// For drafting at the start of a step: every running request that decodes asks for `k` draft tokens.
    pub fn ask_for_drafts(&mut self) {
        for id in self.running.clone() {
            let r = self.requests[id].as_mut().unwrap();
            r.spec = if r.chunk { 0 } else { self.w.k };
        }
    }

    /// Gives the draft tokens that the device made to their requests. `drafts` is the number of draft tokens for each
    /// scheduled request of the step.
    pub fn update_drafts(&mut self, out: &Output, drafts: &[i64]) {
        for (entry, &drafts) in out.entries.iter().zip(drafts) {
            let r = self.m(entry.id);
            if !r.finished {
                r.spec = if r.chunk { 0 } else { drafts };
            }
        }
    }
}
