//! What the clients asked for in each request: prompt, output length, priority and TPOT limit.

use super::rules::Rules;
use super::sglang::{self, SglangRules};
use crate::categories::Categories;
use crate::engine::request::{Part, RejectReason, RunningRequest, WaitingRequest};
use crate::new_request::NewRequest;
use crate::workload::{Request, RequestId, Workload};
use std::borrow::Cow;

/// What the clients asked for in each request, and the longest request that the engine serves.
pub(super) struct Asked<'a> {
    /// All requests of the run. Owned if clients send further requests while the engine runs, as in a server.
    workload: Cow<'a, Workload>,
    /// The TPOT limit of the run, for requests without their own limit, seconds; infinity for none.
    slo_tpot_s: f64,
    /// The total number of prompt and output tokens at which a request ends even if the client asked for more.
    longest: u32,
    /// Whether there is a drafter.
    drafter: bool,
    /// SGLang's rules, which bound outputs by memory.
    sglang: Option<SglangRules>,
}

impl<'a> Asked<'a> {
    pub(super) fn new(workload: Cow<'a, Workload>, rules: &Rules, slo_tpot_s: f64) -> Asked<'a> {
        let longest = rules.max_model_len + rules.release.tokens_beyond_model_len;
        Asked { workload, slo_tpot_s, longest, drafter: rules.drafter, sglang: rules.sglang }
    }

    /// Whether any request has its own TPOT limit; and the run's TPOT limit, seconds, for requests without their own.
    #[inline]
    pub(super) fn slos(&self) -> (bool, f64) {
        (!self.workload.slo_tpot_s.is_empty(), self.slo_tpot_s)
    }

    /// All requests of the run, with what their clients asked for.
    #[inline]
    pub(super) fn workload(&self) -> &Workload {
        &self.workload
    }

    /// Adds a request that was not known before. `id` is an unused id, or the id of an ended request. `goes_on` says
    /// whether the request has a next turn in its session.
    pub(super) fn put(&mut self, id: RequestId, number: RequestId, request: Request, goes_on: bool) {
        self.workload.to_mut().put(id, number, request, goes_on);
    }

    /// Number of prompt tokens of request `id`. SGLang runs one token in the place of a prompt that it refuses.
    pub(super) fn prompt(&self, id: RequestId) -> u32 {
        if self.is_refused(id) { 1 } else { self.workload.prompt_len[id as usize] }
    }

    fn is_refused(&self, id: RequestId) -> bool {
        self.sglang.is_some_and(|rules| rules.refuses(self.workload.prompt_len[id as usize]))
    }

    /// Why the client of request `id` gets nothing although the request runs, as SGLang lets it; `None` for others.
    pub(super) fn gets_nothing(&self, id: RequestId) -> Option<RejectReason> {
        let (rules, prompt) = (self.sglang?, self.workload.prompt_len[id as usize]);
        let reason = if rules.kv_tokens < self.longest {
            RejectReason::PromptOverPool
        } else {
            RejectReason::PromptOverModelLen
        };
        (rules.refuses(prompt) || rules.most_outputs(prompt) == 0).then_some(reason)
    }

    /// What SGLang's scheduler knows of request `id`.
    pub(super) fn of_sglang(&self, rules: &SglangRules, id: RequestId) -> sglang::Asked {
        let (prompt, output) = (self.workload.prompt_len[id as usize], self.workload.output_len[id as usize]);
        let (asked, ignore_eos) = match (self.workload.asked.get(id as usize), rules.max_new_tokens) {
            (Some(own), _) => (own.max_new_tokens, own.ignore_eos),
            (None, Some(asked)) => (asked, false),
            (None, None) => (output, true),
        };
        let max_new_tokens = asked.max(output).min(rules.most_outputs(prompt));
        let output = if self.is_refused(id) { 1 } else { output.min(max_new_tokens) };
        let priority = self.workload.priority.get(id as usize).copied().unwrap_or(0);
        sglang::Asked { prompt: self.prompt(id), max_new_tokens, ignore_eos, output, priority }
    }

    /// The category of each request.
    pub(super) fn categories(&self) -> Categories<'_> {
        Categories::by_id(&self.workload.category)
    }

    /// Number of output tokens at which request `id` ends: the requested number, or fewer if the model's longest length
    /// is reached before.
    pub(super) fn max_tokens(&self, id: RequestId) -> u32 {
        let prompt = self.workload.prompt_len[id as usize];
        let most = match self.sglang {
            None => self.longest.saturating_sub(prompt),
            Some(_) if self.is_refused(id) => 1,
            // A prompt gives a token even if its client gets none.
            Some(rules) => rules.most_outputs(prompt).max(1),
        };
        self.workload.output_len[id as usize].min(most)
    }

    /// What a policy sees of request `id` when the request starts, without what the scheduler knows.
    pub(super) fn new_request(&self, id: RequestId) -> NewRequest {
        let (i, prompt_len) = (id as usize, self.prompt(id));
        let most = self.longest.saturating_sub(prompt_len);
        let max_tokens = self.workload.asked.get(i).map_or(most, |asked| asked.max_new_tokens.min(most));
        let category = self.categories().of(id);
        NewRequest { id, prompt_len, max_tokens, category, ..NewRequest::default() }
    }

    /// Makes the record of a running request from the waiting request `w`. The running request has no blocks yet.
    pub(super) fn activate(&self, w: WaitingRequest) -> RunningRequest {
        let i = w.id as usize;
        let own = self.workload.slo_tpot_s.get(i).copied().unwrap_or(f64::INFINITY);
        let hands_over = w.part == Part::Prompt;
        let of_part = |tokens: u32| if hands_over { tokens.min(1) } else { tokens };
        RunningRequest {
            id: w.id,
            num_computed_tokens: 0,
            num_tokens: self.prompt(w.id) + w.num_output_tokens,
            num_output_tokens: w.num_output_tokens,
            max_tokens: of_part(self.max_tokens(w.id)),
            max_tokens_asked: of_part(self.workload.output_len[i]),
            num_draft_computed_tokens: 0,
            num_scheduled_tokens: 0,
            num_spec_tokens: 0,
            num_output_placeholders: 0,
            num_in_flight_tokens: 0,
            num_cacheable_tokens: 0,
            num_slots: 0,
            table: 0,
            prefilling: true,
            may_draft: self.drafter && w.may_draft,
            hands_over,
            priority: w.priority,
            arrival: w.arrival,
            slo_tpot_s: if own.is_finite() { own } else { self.slo_tpot_s },
        }
    }
}
