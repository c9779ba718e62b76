//! SGLang's scheduler in the place of vLLM's: what it decides becomes the step that engine, executor and policies know.

use super::asked::Asked;
use super::sglang::{Contents, Run, Sglang, Tokens};
use super::state::Scheduler;
use crate::engine::request::{RejectReason, WaitingRequest};
use crate::engine::scheduler_output::{Admission, Rejection};
use crate::engine::spec_decode::SpecDecode;
use crate::workload::RequestId;

/// What the requests of a workload share: the blocks of their prefixes. All other tokens are a request's own.
struct OfWorkload<'a>(&'a Asked<'a>);

/// Contents with this bit are a request's own, contents without it a block of a prefix.
const OWN: u64 = 1 << 63;

/// The token that runs in the place of a prompt that is refused.
const REFUSED: Run = Run { content: OWN | u64::MAX >> 1, start: 0, len: 1 };

impl OfWorkload<'_> {
    /// The first `len` tokens of the prompt that the client sent, and of the output.
    fn sent(&self, id: RequestId, len: u32) -> Tokens {
        let (block, mut left) = (self.0.workload().prefix_block, len);
        let mut tokens = Tokens::default();
        for &prefix in self.0.workload().prefix(id) {
            let len = block.min(left);
            tokens.push(Run { content: prefix & !OWN, start: 0, len });
            left -= len;
            if left == 0 {
                break;
            }
        }
        tokens.push(Run { content: OWN | u64::from(self.0.workload().number(id)), start: len - left, len: left });
        tokens
    }
}

impl Contents for OfWorkload<'_> {
    fn tokens(&self, id: RequestId, len: u32) -> Tokens {
        let sent = self.0.workload().prompt_len[id as usize];
        if sent == self.0.prompt(id) || len == 0 {
            return self.sent(id, len);
        }
        let mut output = self.sent(id, sent + len - 1);
        output.split_front(sent);
        std::iter::once(REFUSED).chain(output.into_runs()).collect()
    }
}

impl Scheduler<'_> {
    /// Gives a request that has arrived to SGLang's scheduler, if that is the one.
    pub(super) fn add_to_sglang(&mut self, id: RequestId) {
        let (Some(sglang), Some(rules)) = (&mut self.sglang, &self.rules.sglang) else { return };
        sglang.add(id, self.asked.of_sglang(rules, id));
    }

    /// Why the client of a request that ended got nothing; `None` if it got its output.
    pub fn gets_nothing(&self, id: RequestId) -> Option<RejectReason> {
        self.asked.gets_nothing(id)
    }

    /// Takes a request away from SGLang's scheduler, if that is the one.
    pub(super) fn abort_in_sglang(&mut self, id: RequestId) {
        if let Some(sglang) = &mut self.sglang {
            sglang.abort(&OfWorkload(&self.asked), id);
        }
    }

    /// SGLang's `get_next_batch_to_run`.
    pub(super) fn schedule_sglang(&mut self) {
        let Some(mut sglang) = self.sglang.take() else { return };
        sglang.next_batch(&OfWorkload(&self.asked), &mut self.output.sglang);
        for r in &mut self.running {
            r.num_scheduled_tokens = 0;
        }
        self.lose(&sglang);
        for &(id, reason) in &sglang.events().aborted {
            self.turn_away(id, reason);
        }
        if let Some(id) = sglang.give_up() {
            self.turn_away(id, RejectReason::PromptOverPool);
        }
        self.scratch.place.resize(self.asked.workload().len(), u32::MAX);
        for (at, r) in self.running.iter().enumerate() {
            self.scratch.place[r.id as usize] = at as u32;
        }
        let decodes = !self.output.sglang.extends;
        for i in 0..self.output.sglang.rows.len() {
            let row = self.output.sglang.rows[i];
            let at = self.scratch.place[row.id as usize] as usize;
            let at = match self.running.get(at) {
                Some(r) if r.id == row.id => at,
                _ => self.admit_for_sglang(row.id, row.past),
            };
            let drafts = if decodes { self.spec_tokens_of(&self.running[at]) } else { 0 };
            let r = &mut self.running[at];
            r.num_scheduled_tokens = row.new + drafts;
            // Without a radix tree, SGLang may begin two prompts in the rest of one chunk. It then forgets the first
            // one's rest: what it has computed counts as the whole prompt.
            let goes_on = sglang.chunked() == Some(row.id);
            if !decodes && !row.decodes && !goes_on && row.past + row.new < r.num_tokens {
                r.num_computed_tokens = r.num_tokens - row.new;
            }
        }
        self.sglang = Some(sglang);
    }

    /// Moves a waiting request, of which `computed` tokens are cached, to the running ones. Returns its place there.
    fn admit_for_sglang(&mut self, id: RequestId, computed: u32) -> usize {
        let mut waited = None;
        self.waiting.change(id, |w| {
            waited = Some(*w);
            false
        });
        let mut r = self.asked.activate(waited.expect("a request waits before it runs"));
        r.num_computed_tokens = computed;
        self.output.admitted.push(Admission { id, num_cached_tokens: computed });
        self.running.push(r);
        self.running.len() - 1
    }

    /// Rejects a request if it waits.
    fn turn_away(&mut self, id: RequestId, reason: RejectReason) {
        let mut waited = None;
        self.waiting.change(id, |w| {
            waited = Some(*w);
            false
        });
        if let Some(w) = waited {
            let ran = (w.num_output_tokens > 0).then(|| self.asked.activate(w));
            self.output.rejected.push(Rejection { id, reason, ran });
        }
    }

    /// Takes the requests that lost their KV from the running ones: they wait again, or are given up.
    fn lose(&mut self, sglang: &Sglang) {
        for &(id, _) in &sglang.events().freed {
            let at = self.running.iter().position(|r| r.id == id).expect("only running requests lose KV");
            let r = self.running.remove(at);
            if sglang.events().aborted.contains(&(id, RejectReason::OutgrewPool)) {
                self.output.rejected.push(Rejection { id, reason: RejectReason::OutgrewPool, ran: Some(r) });
                continue;
            }
            self.waiting.push(WaitingRequest {
                id,
                number: self.asked.workload().number(id),
                num_output_tokens: r.num_output_tokens,
                num_draft_computed_tokens: 0,
                may_draft: r.may_draft,
                priority: r.priority,
                arrival: r.arrival,
                passed_over: false,
                stale: false,
                part: crate::engine::request::Part::Whole,
            });
            self.output.preempted.push(r);
        }
    }

    /// Gives SGLang's scheduler the output of a step, if that is the one.
    pub(super) fn apply_to_sglang(&mut self, spec: &SpecDecode) {
        let Some(sglang) = &mut self.sglang else { return };
        let accepted = &mut self.scratch.accepted;
        accepted.resize(self.asked.workload().len(), 0);
        if self.rules.drafter {
            for (&id, &count) in self.output.batch.ids().iter().zip(&spec.accepted) {
                accepted[id as usize] = count;
            }
        }
        sglang.apply(&OfWorkload(&self.asked), &self.output.sglang, |id| accepted[id as usize]);
    }

    /// SGLang's scheduler, if that is the one.
    pub fn sglang(&self) -> Option<&Sglang> {
        self.sglang.as_deref()
    }

    /// Whether the engine takes new requests in this turn of its loop. `idle` says that it has nothing to do.
    pub fn receives(&mut self, idle: bool) -> bool {
        self.sglang.as_mut().is_none_or(|sglang| sglang.receives(idle))
    }

    /// Whether SGLang's loop comes again at once although nothing runs.
    pub fn spins(&self) -> bool {
        self.sglang.as_ref().is_some_and(|sglang| sglang.spins())
    }

    /// Says that no request is left and nothing is in flight.
    pub fn idle(&mut self) {
        if let Some(sglang) = &mut self.sglang {
            sglang.idle();
        }
    }

    /// Number of KV blocks that requests can use.
    pub fn usable_blocks(&self) -> u32 {
        match &self.rules.sglang {
            Some(rules) => rules.kv_tokens / rules.page_size,
            None => self.kv_cache_manager.usable(),
        }
    }

    /// Number of KV blocks that requests hold.
    pub fn used_blocks(&self) -> u32 {
        match (&self.sglang, &self.rules.sglang) {
            (Some(sglang), Some(rules)) => {
                let (free, evictable) = sglang.memory();
                (rules.kv_tokens / rules.page_size) - (free + evictable) / rules.page_size
            }
            _ => self.kv_cache_manager.used(),
        }
    }
}
