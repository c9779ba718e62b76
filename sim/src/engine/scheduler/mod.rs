//! The scheduler: who gets how many tokens of a step, and what a step's output does to the requests.
//!
//! It knows nothing of clocks, executors, policies and metrics: what became of requests is in its
//! [`SchedulerOutput`], for the engine to act on.

mod in_flight;
mod lifecycle;
mod pace;
mod queue;
mod refusals;
pub(in crate::engine) mod rules;
mod running;
mod stretch;
mod top_up;
mod update;
mod v0;
mod waiting;

pub use rules::{BatchRange, Lengths, Order, Rules, SpeculativeConfig};

use super::kv_cache::KvCacheManager;
use super::next_batch::NextBatch;
use super::request::{RunningRequest, WaitingRequest};
use super::scheduler_output::SchedulerOutput;
use crate::config::{DraftAt, EngineConfig, Version};
use crate::executor::StepPlan;
use crate::{BatchView, DraftGap, Drafts, RequestId, Time, Workload};
use pace::Pace;
use queue::RequestQueue;

/// vLLM's scheduler.
pub struct Scheduler<'a> {
    config: &'a EngineConfig,
    workload: &'a Workload,
    rules: Rules,
    /// Do requests share prefixes? Then the order in which requests take and leave blocks shows in what is evicted.
    order_shows: bool,
    /// The run's TPOT limit, seconds.
    slo_tpot_s: f64,
    waiting: RequestQueue,
    running: Vec<RunningRequest>,
    kv_cache_manager: KvCacheManager<'a>,
    pace: Pace,
    /// Tokens that may still be scheduled in this step. vLLM has two budgets, for tokens and for inputs, which are charged with
    /// the drafter's extra slots as well: the second is never the larger one.
    token_budget: u32,
    /// The longest piece of a request's tokens in this step; 0 is no limit.
    threshold: u32,
    /// The most any request may draft in this step.
    num_spec_tokens: u32,
    output: Box<SchedulerOutput>,
    /// Does every running request decode in this step?
    only_decodes: bool,
    /// Was a request scheduled and then preempted that could use drafts? It counts as if it were still there.
    drafts_needed: bool,
    /// Waiting requests that were passed over in this step. Empty between steps.
    aside: Vec<WaitingRequest>,
    /// Index of the next step that runs.
    current_step: u64,
    /// Where requests stand in the running list; right where that list agrees. Behind a step in flight they move.
    place: Vec<u32>,
    /// Waiting requests that were passed over since they last ran.
    num_passed_over: u32,
    /// Waiting requests with output of a step in flight still to come.
    num_stale: u32,
    /// When the last step ended: most requests emitted then.
    last_end: Time,
}

impl<'a> Scheduler<'a> {
    /// A scheduler without requests, which follows `rules`. `slo_tpot_s`: the run's TPOT limit, seconds. `addressed`: does anybody ask
    /// which blocks a request holds?
    pub fn new(
        config: &'a EngineConfig,
        workload: &'a Workload,
        rules: Rules,
        slo_tpot_s: f64,
        addressed: bool,
    ) -> Scheduler<'a> {
        Scheduler {
            config,
            workload,
            order_shows: config.prefix_caching && !workload.prefix_ids.is_empty(),
            slo_tpot_s,
            // v0 orders its deque when it looks for lower priorities.
            waiting: match rules.version {
                Version::V0 => RequestQueue::fcfs(),
                _ => RequestQueue::new(rules.policy),
            },
            running: Vec::new(),
            kv_cache_manager: KvCacheManager::new(config, workload, &rules, addressed),
            pace: Pace::new(&rules),
            rules,
            token_budget: 0,
            threshold: 0,
            num_spec_tokens: 0,
            output: Box::default(),
            only_decodes: false,
            drafts_needed: false,
            aside: Vec::new(),
            current_step: 0,
            place: Vec::new(),
            num_passed_over: 0,
            num_stale: 0,
            last_end: Time::ZERO,
        }
    }

    /// Decides on a step that begins at `now`. Where drafts are made at its start, a request may get at most `num_spec_tokens`.
    pub fn schedule(&mut self, now: Time, num_spec_tokens: u32) -> &SchedulerOutput {
        debug_assert!(num_spec_tokens <= self.rules.num_speculative_tokens);
        self.num_spec_tokens = num_spec_tokens;
        self.token_budget = self.rules.max_num_batched_tokens;
        self.output.clear();
        (self.output.now, self.output.step) = (now, self.current_step);
        self.only_decodes = false;
        self.output.num_spec_tokens_to_schedule = match self.rules.draft_at {
            DraftAt::StepStart => self.rules.num_speculative_tokens,
            DraftAt::StepEnd => num_spec_tokens,
        };
        match self.rules.version {
            Version::V0 => self.schedule_v0(),
            Version::V0_32 | Version::V0_33 => self.schedule_v1(),
        }
        &self.output
    }

    /// vLLM V1: there is no decoding phase and no prefill phase. Every request has computed tokens and wants its tokens and its
    /// drafts computed; running requests first, in order, then waiting ones; no admission in a step that preempted.
    fn schedule_v1(&mut self) {
        self.drafts_needed = false;
        self.threshold = self.rules.threshold(self.running.len() + self.waiting.len());
        self.pace.begin(&self.rules, &self.running);
        let running = self.schedule_running();
        if self.output.preempted.is_empty() {
            self.schedule_waiting(running);
        }
        let scheduled = running + self.output.admitted.len();
        self.pace.end(&self.rules, scheduled > 0);
        if let Some(table) = &self.rules.per_batch_size
            && scheduled > 0
        {
            let most = self.output.num_spec_tokens_to_schedule;
            self.output.num_spec_tokens_to_schedule = table[scheduled.min(table.len() - 1)].min(most);
        }
        if self.rules.can_skip_drafts {
            self.output.skip_drafts = !self.drafts_needed && !self.running.iter().any(can_use_drafts);
        }
        if self.rules.guarded {
            self.reject_hopeless();
        }
    }

    /// Drafts that a running request holds, or may get.
    #[inline]
    fn spec_tokens_of(&self, r: &RunningRequest) -> u32 {
        match self.rules.draft_at {
            DraftAt::StepEnd => r.num_spec_tokens,
            DraftAt::StepStart if r.prefilling || !r.may_draft => 0,
            DraftAt::StepStart => self.num_spec_tokens,
        }
    }

    /// Splits what was scheduled into decode requests and chunks. To be called once it is known who may draft.
    #[inline]
    pub fn prepare_inputs(&mut self) {
        if self.only_decodes && self.output.admitted.is_empty() {
            return self.output.batch.fill(&self.running, self.rules.drafter);
        }
        self.output.gather(&mut self.running, self.rules.drafter, self.config.draft_prefill);
    }

    /// The `index`-th of the requests admitted in this step is never drafted for.
    pub fn never_draft_for(&mut self, index: usize) {
        let at = self.running.len() - self.output.admitted.len() + index;
        self.running[at].may_draft = false;
    }

    /// Who samples in the step and may use drafts behind it, `k` at most.
    pub fn gather_next(&self, k: u32, next: &mut NextBatch) {
        next.fill(&self.running, k, can_use_drafts);
    }

    /// Each request that samples in the step holds drafts from now on: those of `next` what is to be verified of `drafts`, the others,
    /// and all where that is `None`, as many as `others` says.
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
    }

    /// The longest context of the step's requests, if all their drafts hold.
    pub fn longest(&self) -> u32 {
        let scheduled = self.running.iter().filter(|r| r.num_scheduled_tokens > 0);
        scheduled.map(|r| r.num_computed_tokens + r.num_scheduled_tokens).max().unwrap_or(0)
    }

    /// Ids, emitted tokens and draft limits of the step's decode requests, the limits to be lowered.
    pub fn draft_limits(&mut self) -> (&[RequestId], &[u32], &mut [u32]) {
        self.output.batch.limits()
    }

    /// Leaves all but the first `n` decode requests out of the step.
    pub fn keep_first(&mut self, n: usize) {
        self.output.batch.keep_first(n, &mut self.running);
    }

    /// Requests that run, in order.
    pub fn running(&self) -> &[RunningRequest] {
        &self.running
    }

    /// Requests that wait, in no particular order.
    pub fn waiting(&self) -> impl Iterator<Item = &WaitingRequest> {
        self.waiting.iter()
    }

    /// What was decided.
    pub fn output(&self) -> &SchedulerOutput {
        &self.output
    }

    /// Neither running nor waiting requests?
    pub fn is_idle(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty()
    }

    /// What the settings come to.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// The KV memory.
    pub fn kv_cache_manager(&self) -> &KvCacheManager<'a> {
        &self.kv_cache_manager
    }

    /// Requests that still run, as they are. Ends the scheduler.
    pub fn into_running(self) -> Vec<RunningRequest> {
        self.running
    }

    /// The step as policies and executors see it.
    #[inline]
    pub fn step_plan(&self) -> StepPlan<'_> {
        let out = &self.output;
        StepPlan {
            batch: BatchView {
                now: out.now,
                step: out.step,
                ids: out.batch.ids(),
                context: out.batch.context(),
                emitted: out.batch.emitted(),
                limit: out.batch.limit(),
                draft_gap: out.batch.draft_gap(),
                slo_tpot_s: out.batch.slo_tpot_s(),
                context_sum: out.batch.context_sum(),
                prefill: out.prefill,
                draft_prefill: out.draft_prefill,
                always_extend: self.config.draft_gap == DraftGap::AlwaysExtend,
                num_running: self.running.len() as u32,
                num_waiting: self.waiting.len() as u32,
            },
            padded: false,
            chunks: &out.chunks,
            block_tables: self.kv_cache_manager.tables(),
        }
    }
}

/// Does the request sample in this step, and go on?
fn can_use_drafts(r: &RunningRequest) -> bool {
    let end = r.num_computed_tokens + r.num_scheduled_tokens;
    // A step in flight that samples adds a token for sure.
    let outputs = r.num_output_tokens + 1 + u32::from(r.num_output_placeholders > 0);
    r.num_scheduled_tokens > 0 && end >= r.num_tokens && outputs < r.max_tokens_asked
}
