//! The state of the scheduler: the waiting and running requests, their KV memory, and the step that is being decided.

use super::asked::Asked;
use super::handed::Handed;
use super::pace::Pace;
use super::queue::RequestQueue;
use super::rules::Rules;
use super::scratch::StepScratch;
use super::sglang::Sglang;
use crate::categories::Categories;
use crate::config::{DraftAt, EngineConfig, SchedulingPolicy};
use crate::drafts::Drafts;
use crate::engine::input_batch::Columns;
use crate::engine::kv_cache::KvCacheManager;
use crate::engine::next_batch::NextBatch;
use crate::engine::request::{RunningRequest, WaitingRequest};
use crate::engine::scheduler_output::{Admission, SchedulerOutput};
use crate::engine::step_result::StepResult;
use crate::new_request::NewRequest;
use crate::workload::{Request, RequestId, Workload};
use std::borrow::Cow;

/// vLLM's scheduler: the requests, their KV memory, and the decisions of the current step.
pub struct Scheduler<'a> {
    pub(super) rules: Rules,
    pub(super) asked: Asked<'a>,
    pub(super) waiting: RequestQueue,
    pub(super) running: Vec<RunningRequest>,
    /// The requests that this engine shares with another engine: one engine computes the prompt, the other engine the
    /// output.
    pub(super) handed: Handed,
    pub(super) kv_cache_manager: KvCacheManager,
    pub(super) pace: Pace,
    /// SGLang's scheduler, which then decides in place of vLLM's, and has KV and queue of its own.
    pub(super) sglang: Option<Box<Sglang>>,
    /// Whether the drafter has declined a request ([`never_draft_for`](Scheduler::never_draft_for)).
    pub(super) declines: bool,
    /// Index of the next step that runs.
    pub(super) current_step: u64,
    /// What the scheduler decided for the current step.
    pub(super) output: Box<SchedulerOutput>,
    /// What happened to the requests of the step whose output was applied last.
    pub(super) result: StepResult,
    pub(super) scratch: StepScratch,
}

impl<'a> Scheduler<'a> {
    /// A scheduler without requests that follows `rules`, which were derived from `config`. `slo_tpot_s` is the run's
    /// TPOT limit, seconds. `addressed` says whether the executor needs the ids of a request's blocks.
    pub fn new(
        config: &EngineConfig,
        workload: Cow<'a, Workload>,
        rules: Rules,
        slo_tpot_s: f64,
        addressed: bool,
    ) -> Scheduler<'a> {
        Scheduler {
            waiting: RequestQueue::new(match rules.release.sorts_waiting {
                true => rules.policy,
                false => SchedulingPolicy::Fcfs,
            }),
            running: Vec::new(),
            handed: Handed::default(),
            kv_cache_manager: KvCacheManager::new(config, &workload, &rules, addressed),
            asked: Asked::new(workload, &rules, slo_tpot_s),
            pace: Pace::new(&rules),
            sglang: rules.sglang.map(|rules| Box::new(Sglang::new(rules))),
            declines: false,
            current_step: 0,
            output: Box::default(),
            result: StepResult::default(),
            scratch: StepScratch::default(),
            rules,
        }
    }

    /// Number of draft tokens of a running request in this step. If draft tokens are made at the end of a step: the
    /// draft tokens that the request holds. Otherwise: the most draft tokens that may be made for the request; 0 in
    /// prefill.
    #[inline]
    pub(super) fn spec_tokens_of(&self, r: &RunningRequest) -> u32 {
        match self.rules.draft_at {
            DraftAt::StepEnd => r.num_spec_tokens,
            DraftAt::StepStart if r.prefilling || !r.may_draft => 0,
            DraftAt::StepStart => self.scratch.num_spec_tokens,
        }
    }

    /// Splits the scheduled requests into decode requests and prompt chunks. Counts the step if it runs at least one
    /// token. Call this only after the drafter has said which admitted requests may draft.
    #[inline]
    pub fn prepare_inputs(&mut self) {
        let drafts = self.rules.drafter && self.rules.drafter_loaded;
        let (columns, draft_prefill) = (self.columns(), drafts && self.rules.draft_prefill);
        self.output.gather(&mut self.running, self.scratch.leading, columns, draft_prefill);
        self.current_step += u64::from(!self.output.is_empty());
    }

    /// Says whether the draft model's weights are in memory.
    pub fn set_drafter_loaded(&mut self, loaded: bool) {
        self.rules.drafter_loaded = loaded;
    }

    /// The memory of the draft model's weights becomes KV blocks.
    pub fn give_up_weights(&mut self) {
        self.kv_cache_manager.give_up_weights();
    }

    /// Takes KV blocks for the draft model's weights. Returns false, and takes nothing, if too few are free.
    pub fn make_room_for_weights(&mut self, blocks: u32) -> bool {
        self.kv_cache_manager.make_room_for_weights(blocks)
    }

    /// The columns of the batch that must be filled, because policies or the engine read them.
    #[inline]
    pub(super) fn columns(&self) -> Columns {
        let (own_slos, slo_tpot_s) = self.asked.slos();
        Columns { limit: self.rules.drafter, gap: self.rules.draft_gaps, own_slos, slo_tpot_s }
    }

    /// What a policy sees of a request that this step admitted. `index` is the request's position in the list of
    /// admitted requests.
    pub fn new_request(&self, index: usize) -> NewRequest {
        let Admission { id, num_cached_tokens } = self.output.admitted[index];
        let (num_running, num_waiting) = (self.running.len() as u32, self.num_waiting() as u32);
        NewRequest { num_cached_tokens, num_running, num_waiting, ..self.asked.new_request(id) }
    }

    /// Forbids drafting, from now on, for a request that this step admitted. `index` is the request's position in the
    /// list of admitted requests.
    pub fn never_draft_for(&mut self, index: usize) {
        let at = self.running.len() - self.output.admitted.len() + index;
        self.running[at].may_draft = false;
        self.declines = true;
    }

    /// The decode requests of the step for which nothing is ever drafted because the drafter declined them, as indices
    /// into the step's batch.
    pub fn declined_rows(&self) -> impl Iterator<Item = usize> {
        let rows = if self.declines { self.output.batch.at() } else { &[] };
        rows.iter().enumerate().filter(|&(_, &at)| !self.running[at as usize].may_draft).map(|(i, _)| i)
    }

    /// Whether the drafter has declined any request.
    pub fn declines(&self) -> bool {
        self.declines
    }

    /// Whether the drafter declined the running request `id`.
    pub fn is_declined(&self, id: RequestId) -> bool {
        self.declines && self.running.iter().any(|r| r.id == id && !r.may_draft)
    }

    /// Fills `next` with the requests that sample a token in this step and can use draft tokens afterwards, at most `k`
    /// draft tokens each. Leaves out requests for whose prompt the draft model lacks KV. The draft model computes this
    /// KV at the end of this step.
    pub fn gather_next(&self, k: u32, next: &mut NextBatch) {
        let behind = &self.scratch.drafts_behind;
        match behind.is_empty() {
            true => next.fill(&self.running, k, RunningRequest::can_use_drafts),
            false => next.fill(&self.running, k, |r| r.can_use_drafts() && !behind.iter().any(|b| b.0 == r.id)),
        }
    }

    /// The prompts for which the draft model lacks KV, which it computes at the end of this step: (tokens in the draft
    /// model's KV, tokens missing there). Prompts that the drafter declined are not computed.
    pub fn draft_lacks(&self) -> impl Iterator<Item = (u32, u32)> {
        let behind = self.scratch.drafts_behind.iter();
        behind.filter(|&&(id, ..)| !self.is_declined(id)).map(|&(_, has, lacks)| (has, lacks))
    }

    /// Sets the number of draft tokens that each scheduled request holds from now on. If `drafts` is given, each
    /// request of `next` holds the number of its draft tokens to verify. Every other request holds `others` draft
    /// tokens if it samples a token in the step and may draft, and 0 if not. A request whose prompt is missing in the
    /// draft model's KV holds 0.
    pub fn hold_drafts(&mut self, next: &NextBatch, drafts: Option<&Drafts>, others: u32) {
        for r in self.running.iter_mut().filter(|r| r.num_scheduled_tokens > 0) {
            let samples = r.num_computed_tokens + r.num_scheduled_tokens >= r.num_tokens;
            r.num_spec_tokens = if samples && r.may_draft { others } else { 0 };
        }
        if let Some(drafts) = drafts {
            for (i, &at) in next.at().iter().enumerate() {
                self.running[at as usize].num_spec_tokens = drafts.tokens(i).1;
            }
        }
        for behind in &self.scratch.drafts_behind {
            self.running.iter_mut().filter(|r| r.id == behind.0).for_each(|r| r.num_spec_tokens = 0);
        }
    }

    /// The longest context, in tokens, of any scheduled request if all its draft tokens are accepted.
    pub fn longest(&self) -> u32 {
        let scheduled = self.running.iter().filter(|r| r.num_scheduled_tokens > 0);
        scheduled.map(|r| r.num_computed_tokens + r.num_scheduled_tokens).max().unwrap_or(0)
    }

    /// Ids, emitted tokens and draft limits of the step's decode requests. The caller may lower the limits.
    pub fn draft_limits(&mut self) -> (&[RequestId], &[u32], &mut [u32]) {
        self.output.batch.limits()
    }

    /// Leaves all decode requests except the first `n` out of the step. They keep their KV and wait.
    pub fn keep_first(&mut self, n: usize) {
        self.output.batch.keep_first(n, &mut self.running);
    }

    /// All requests of the run, including requests that have not arrived yet.
    #[inline]
    pub fn workload(&self) -> &Workload {
        self.asked.workload()
    }

    /// Adds a request that was not known before to the workload. `id` is an unused id, or the id of an ended request.
    /// `goes_on` says whether the request has a next turn in its session.
    pub fn put(&mut self, id: RequestId, number: RequestId, request: Request, goes_on: bool) {
        self.asked.put(id, number, request, goes_on);
        self.kv_cache_manager.make_room(self.workload().len());
    }

    /// The running requests, in the order of the running list.
    pub fn running(&self) -> &[RunningRequest] {
        &self.running
    }

    /// The waiting requests in no particular order, without the requests that wait for KV from another engine.
    pub fn waiting(&self) -> impl Iterator<Item = &WaitingRequest> {
        self.waiting.iter()
    }

    /// The category of each request.
    pub fn categories(&self) -> Categories<'_> {
        self.asked.categories()
    }

    /// Number of waiting requests, including the requests that wait for KV from another engine.
    pub fn num_waiting(&self) -> usize {
        self.waiting.len() + self.handed.num_held()
    }

    /// Number of output tokens at which a request ends.
    pub fn max_tokens(&self, id: RequestId) -> u32 {
        self.asked.max_tokens(id)
    }

    /// The scheduler's current output: of the step that was decided or updated last.
    pub fn output(&self) -> &SchedulerOutput {
        &self.output
    }

    /// What happened to the requests of the step whose output was applied last.
    pub fn result(&self) -> &StepResult {
        &self.result
    }

    /// Whether no request runs or waits.
    pub fn is_idle(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty() && self.handed.num_held() == 0
    }

    /// The rules that the scheduler follows.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// From now on no steps are computed in one go.
    pub(crate) fn be_step_by_step(&mut self) {
        self.rules.skip_stretches = false;
    }

    /// The KV memory of the target and of the draft model.
    pub fn kv_cache_manager(&self) -> &KvCacheManager {
        &self.kv_cache_manager
    }
}
