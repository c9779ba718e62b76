//! The state of the scheduler: the requests and the current step.

use super::pace::Pace;
use super::queue::RequestQueue;
use super::rules::Rules;
use crate::config::{DraftAt, DraftGap, EngineConfig, Version};
use crate::drafts::Drafts;
use crate::engine::kv_cache::KvCacheManager;
use crate::engine::next_batch::NextBatch;
use crate::engine::request::{RunningRequest, WaitingRequest};
use crate::engine::scheduler_output::SchedulerOutput;
use crate::executor::StepPlan;
use crate::policy::BatchView;
use crate::time::Time;
use crate::workload::{RequestId, Workload};

/// vLLM's scheduler: the requests, their KV memory, and the decisions of the current step.
pub struct Scheduler<'a> {
    pub(super) config: &'a EngineConfig,
    pub(super) workload: &'a Workload,
    pub(super) rules: Rules,
    /// Whether requests share prefixes. Then the order in which requests take and leave blocks changes what is evicted.
    pub(super) order_shows: bool,
    /// The run's TPOT limit, seconds.
    pub(super) slo_tpot_s: f64,
    pub(super) waiting: RequestQueue,
    pub(super) running: Vec<RunningRequest>,
    pub(super) kv_cache_manager: KvCacheManager<'a>,
    pub(super) pace: Pace,
    /// Tokens that may still be scheduled in this step. vLLM has two budgets, one for tokens and one for inputs. Both
    /// are charged with the drafter's extra slots, and the second is never the larger one.
    pub(super) token_budget: u32,
    /// Most tokens of a request's chunk in this step; 0 for no limit.
    pub(super) threshold: u32,
    /// Most drafts of a request in this step.
    pub(super) num_spec_tokens: u32,
    pub(super) output: Box<SchedulerOutput>,
    /// Whether every running request decodes in this step.
    pub(super) only_decodes: bool,
    /// Whether a request that could use drafts was scheduled and then preempted. It counts as if it still ran.
    pub(super) drafts_needed: bool,
    /// Waiting requests that were passed over in this step; empty between steps.
    pub(super) aside: Vec<WaitingRequest>,
    /// Index of the next step that runs.
    pub(super) current_step: u64,
    /// Index of each request in the running list; valid only if that list agrees, because requests move while a step is
    /// in flight.
    pub(super) place: Vec<u32>,
    /// Number of waiting requests that were passed over since they last ran.
    pub(super) num_passed_over: u32,
    /// Number of waiting requests for which a step in flight still has output.
    pub(super) num_stale: u32,
    /// When the last step ended; most requests emitted their last token then.
    pub(super) last_end: Time,
}

impl<'a> Scheduler<'a> {
    /// A scheduler without requests that follows `rules`. `slo_tpot_s` is the run's TPOT limit, seconds. `addressed`
    /// says whether the executor needs the ids of a request's blocks.
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
            // v0 sorts its deque only when it looks for lower priorities.
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

    /// Drafts that a running request holds or may get in this step.
    #[inline]
    pub(super) fn spec_tokens_of(&self, r: &RunningRequest) -> u32 {
        match self.rules.draft_at {
            DraftAt::StepEnd => r.num_spec_tokens,
            DraftAt::StepStart if r.prefilling || !r.may_draft => 0,
            DraftAt::StepStart => self.num_spec_tokens,
        }
    }

    /// Splits the scheduled requests into decode requests and prompt chunks. Call it once it is known which requests
    /// may draft.
    #[inline]
    pub fn prepare_inputs(&mut self) {
        if self.only_decodes && self.output.admitted.is_empty() {
            return self.output.batch.fill(&self.running, self.rules.drafter);
        }
        self.output.gather(&mut self.running, self.rules.drafter, self.config.draft_prefill);
    }

    /// Marks the `index`-th request admitted in this step as never to be drafted for.
    pub fn never_draft_for(&mut self, index: usize) {
        let at = self.running.len() - self.output.admitted.len() + index;
        self.running[at].may_draft = false;
    }

    /// Fills `next` with the requests that sample in the step and may use drafts afterwards, at most `k` each.
    pub fn gather_next(&self, k: u32, next: &mut NextBatch) {
        next.fill(&self.running, k, RunningRequest::can_use_drafts);
    }

    /// Sets how many drafts each request that samples in the step holds from now on: requests of `next` the number to
    /// verify of `drafts`; other requests `others`. Without `drafts` all get `others`.
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

    /// The longest context of the step's requests if all their drafts hold.
    pub fn longest(&self) -> u32 {
        let scheduled = self.running.iter().filter(|r| r.num_scheduled_tokens > 0);
        scheduled.map(|r| r.num_computed_tokens + r.num_scheduled_tokens).max().unwrap_or(0)
    }

    /// Ids, emitted tokens and draft limits of the step's decode requests; the limits may be lowered.
    pub fn draft_limits(&mut self) -> (&[RequestId], &[u32], &mut [u32]) {
        self.output.batch.limits()
    }

    /// Leaves all but the first `n` decode requests out of the step.
    pub fn keep_first(&mut self, n: usize) {
        self.output.batch.keep_first(n, &mut self.running);
    }

    /// The running requests, in order.
    pub fn running(&self) -> &[RunningRequest] {
        &self.running
    }

    /// The waiting requests, in no particular order.
    pub fn waiting(&self) -> impl Iterator<Item = &WaitingRequest> {
        self.waiting.iter()
    }

    /// The scheduler's current output: the last step decided or updated.
    pub fn output(&self) -> &SchedulerOutput {
        &self.output
    }

    /// Whether no request runs or waits.
    pub fn is_idle(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty()
    }

    /// The rules that the scheduler follows.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// The KV memory of both models.
    pub fn kv_cache_manager(&self) -> &KvCacheManager<'a> {
        &self.kv_cache_manager
    }

    /// Ends the scheduler. Returns the requests that still run.
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
