//! The scheduler: who gets how many tokens of a step, and what a step's output does to the requests.
//!
//! It knows nothing of clocks, executors, policies and metrics: what became of requests is in its
//! [`SchedulerOutput`], for the engine to act on.

mod lifecycle;
mod queue;
mod rules;
mod running;
mod stretch;
mod top_up;
mod update;
mod v0;
mod vllm;
mod waiting;

pub use rules::{DraftMethod, Refusal, Release, Rules, Runner, SchedulerSettings, SchedulingPolicy};
pub use vllm::StepResult;

use super::kv_cache::KvCacheManager;
use super::request::RunningRequest;
use super::scheduler_output::SchedulerOutput;
use crate::executor::StepPlan;
use crate::{BatchView, DraftGap, EngineConfig, RequestId, Time, Workload};
use queue::RequestQueue;
use vllm::Vllm;

/// vLLM's scheduler.
pub struct Scheduler<'a> {
    config: &'a EngineConfig,
    workload: &'a Workload,
    /// Is there a drafter at all (invariant 7)?
    drafting: bool,
    /// The run's TPOT limit, seconds.
    slo_tpot_s: f64,
    waiting: RequestQueue,
    running: Vec<RunningRequest>,
    kv_cache_manager: KvCacheManager<'a>,
    /// Tokens that may still be scheduled in this step.
    token_budget: u32,
    /// The most any request may draft in this step.
    num_spec_tokens: u32,
    output: SchedulerOutput,
    /// Index of the step, and when it began.
    current_step: u64,
    now: Time,
    /// When the last step ended: most requests emitted then.
    last_end: Time,
    /// The release that is followed rule for rule, if one is. It is taken out while a step is scheduled.
    vllm: Option<Box<Vllm>>,
    /// Is one?
    follows: bool,
}

impl<'a> Scheduler<'a> {
    /// A scheduler without requests. `drafting`: is there a drafter; `slo_tpot_s`: the run's TPOT limit, seconds.
    pub fn new(config: &'a EngineConfig, workload: &'a Workload, drafting: bool, slo_tpot_s: f64) -> Scheduler<'a> {
        Scheduler {
            config,
            workload,
            drafting,
            slo_tpot_s,
            waiting: RequestQueue::new(SchedulingPolicy::Fcfs),
            running: Vec::new(),
            kv_cache_manager: KvCacheManager::new(config, workload, drafting),
            token_budget: 0,
            num_spec_tokens: 0,
            output: SchedulerOutput::default(),
            current_step: 0,
            now: Time::ZERO,
            last_end: Time::ZERO,
            vllm: None,
            follows: false,
        }
    }

    /// A scheduler that follows a release of vLLM by these rules. `config` must have the settings' sizes.
    pub fn by_rules(
        settings: &SchedulerSettings,
        rules: Rules,
        config: &'a EngineConfig,
        workload: &'a Workload,
    ) -> Scheduler<'a> {
        let mut scheduler = Scheduler::new(config, workload, settings.num_speculative_tokens > 0, f64::INFINITY);
        scheduler.kv_cache_manager.follow(&rules);
        scheduler.waiting = RequestQueue::new(settings.policy);
        scheduler.vllm = Some(Box::new(Vllm::new(settings.clone(), rules)));
        scheduler.follows = true;
        scheduler
    }

    /// Decides on a step that begins at `now`, in which a request may have at most `num_spec_tokens` drafts.
    pub fn schedule(&mut self, now: Time, num_spec_tokens: u32) -> &SchedulerOutput {
        self.now = now;
        self.num_spec_tokens = num_spec_tokens;
        self.token_budget = self.config.max_num_batched_tokens;
        self.output.clear();
        if let Some(mut vllm) = self.vllm.take() {
            self.schedule_vllm(&mut vllm);
            self.vllm = Some(vllm);
            return &self.output;
        }
        match self.config.scheduler {
            crate::Scheduler::V1 => self.schedule_v1(),
            crate::Scheduler::V0PrefillFirst => self.schedule_v0(),
        }
        &self.output
    }

    /// vLLM V1 (policies.md 4.2): running requests first, in order, then waiting ones, first come first served; no admission
    /// in a step that preempted; head-of-line blocking.
    fn schedule_v1(&mut self) {
        self.schedule_running(self.num_spec_tokens);
        if self.output.preempted.is_empty() {
            self.schedule_waiting(!self.config.chunked_prefill);
        }
        self.reject_hopeless();
    }

    /// Splits what was scheduled into decode requests and chunks. To be called once it is known who may draft.
    #[inline]
    pub fn prepare_inputs(&mut self) {
        self.output.gather(&mut self.running, self.drafting, self.config.draft_prefill);
    }

    /// The `index`-th of the requests admitted in this step is never drafted for.
    pub fn never_draft_for(&mut self, index: usize) {
        let at = self.running.len() - self.output.admitted.len() + index;
        self.running[at].may_draft = false;
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

    /// What was decided.
    pub fn output(&self) -> &SchedulerOutput {
        &self.output
    }

    /// Neither running nor waiting requests?
    pub fn is_idle(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty()
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
                now: self.now,
                step: self.current_step,
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
            chunks: &out.chunks,
            block_tables: self.kv_cache_manager.tables(),
        }
    }

    /// The longest piece of `tokens` prompt tokens that may be scheduled at once.
    fn chunk(&self, tokens: u32) -> u32 {
        match self.config.long_prefill_token_threshold {
            0 => tokens,
            threshold => tokens.min(threshold),
        }
    }
}
