//! The rules of a release of vLLM's scheduler, as numbers and switches; and how they follow from the engine's settings.
//!
//! Read in vLLM 0.33.0 and 0.32.0 (`v1/core/sched/scheduler.py`, `config/vllm.py`, `config/speculative.py`) and 0.6.3
//! (`core/scheduler.py`), and held to all three by the recorded schedules of `tests/vllm/`.

use super::refusals;
use crate::config::{
    BadConfig, DeliverAt, DraftAt, DraftMethod, EngineConfig, FirstDraftPass, Runner, SchedulingPolicy, Version,
};
use crate::engine::draft_passes::DraftPasses;
use crate::{MAX_TREE_TOKENS, OraclePolicy, SpecPolicy};

/// First and last batch size of a range, and the draft tokens a request there.
pub type BatchRange = (i64, i64, i64);

/// What the scheduler must know of speculation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SpeculativeConfig {
    /// Is there a drafter at all (invariant 7)?
    pub drafter: bool,
    /// `num_speculative_tokens`: the most any request may ever have drafted in a step; 0 is no speculation.
    pub num_speculative_tokens: u32,
    /// `parallel_drafting`: does one forward bring all draft tokens?
    pub parallel_drafting: bool,
    /// `num_speculative_tokens_per_batch_size`. Empty is none.
    pub per_batch_size: Vec<BatchRange>,
    /// Whose lengths are they?
    pub lengths: Lengths,
}

/// Who chooses the lengths of drafts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lengths {
    /// vLLM, by its settings: one length for all, or one by the batch.
    #[default]
    Released,
    /// A policy that vLLM does not have. It is taken to be built into it as its EAGLE drafter is: as many passes as it asks for.
    Own,
    /// An oracle: a bound, which nothing of the engine holds back.
    Free,
}

impl SpeculativeConfig {
    /// A policy's, of chains of at most `max_draft_len` tokens. Trees are not vLLM's: they count by their tokens.
    pub fn of_policy(policy: &dyn SpecPolicy, max_draft_len: u32, parallel_drafting: bool) -> SpeculativeConfig {
        let limits = policy.limits();
        let chain = limits.max_depth.min(max_draft_len);
        let tree = limits.max_tree_tokens.min(MAX_TREE_TOKENS);
        SpeculativeConfig {
            drafter: true,
            num_speculative_tokens: chain.max(tree),
            parallel_drafting,
            per_batch_size: limits.vllm.unwrap_or_default().to_vec(),
            lengths: if limits.vllm.is_some() { Lengths::Released } else { Lengths::Own },
        }
    }

    /// An oracle's.
    pub fn of_oracle(oracle: &dyn OraclePolicy, max_draft_len: u32, parallel_drafting: bool) -> SpeculativeConfig {
        let num_speculative_tokens = oracle.limit().min(max_draft_len);
        SpeculativeConfig {
            drafter: true,
            num_speculative_tokens,
            parallel_drafting,
            per_batch_size: Vec::new(),
            lengths: Lengths::Free,
        }
    }
}

/// In which order the phases of steps come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Schedule, draft, verify, update.
    StepStart,
    /// Schedule, verify, draft, update, while the device goes on as long as it can.
    StepEnd,
    /// As that, and the next step is scheduled before the update.
    Async,
}

/// What the settings come to.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    /// The release.
    pub version: Version,
    /// In which order the phases of steps come.
    pub order: Order,
    /// When drafts are made. Without a drafter nobody asks.
    pub draft_at: DraftAt,
    /// When tokens leave, where drafts are made at the end of a step.
    pub deliver_at: DeliverAt,
    /// Which passes the drafter makes there.
    pub draft_passes: DraftPasses,
    /// Are as many drafts scheduled of each request as the longest has, those that it lacks as padding? Runner V2, and whatever
    /// is asynchronous, knows one length for all.
    pub one_length: bool,
    /// Who is served first.
    pub policy: SchedulingPolicy,
    /// Is there a drafter at all (invariant 7)?
    pub drafter: bool,
    /// The most draft tokens of a request in a step.
    pub num_speculative_tokens: u32,
    /// Tokens of a step.
    pub max_num_batched_tokens: u32,
    /// Prompt and output.
    pub max_model_len: u32,
    /// Requests that may run.
    pub max_num_active_seqs: u32,
    /// May a prompt be split?
    pub chunked_prefill: bool,
    /// The longest piece of a request's tokens; 0 is no limit.
    pub long_prefill_token_threshold: u32,
    /// Is the threshold raised to an equal share of the budget?
    pub long_prefill_token_threshold_adaptive: bool,
    /// Is a request that is alone spared the threshold of long prefills?
    pub lift_threshold_when_alone: bool,
    /// KV slots to reserve beyond the tokens that are scheduled.
    pub num_lookahead_tokens: u32,
    /// Tokens of the budget that a request takes beside its own (`max_num_new_slots_for_drafting`).
    pub draft_slots: u32,
    /// A prefill chunk never ends nearer than this to the end of a prompt, unless at it.
    pub num_prefill_lookahead_tokens: u32,
    /// Tokens after a block that its hash covers.
    pub num_hash_lookahead_tokens: u32,
    /// Is the last block of a hit left out?
    pub drop_last_hit: bool,
    /// Does a request that sits a step out lose its drafts? As many are verified of it, none of which can hold.
    pub loses_drafts: bool,
    /// Must the whole of a request fit the free blocks for it to be admitted?
    pub reserve_full_isl: bool,
    /// Blocks kept free on admission while something runs; under v0 always.
    pub watermark_blocks: u32,
    /// While requests decode, prompts are scheduled every so many steps.
    pub prefill_schedule_interval: u32,
    /// Under priority scheduling, do those behind a request that preempted itself get their turn?
    pub goes_on_after_self_preemption: bool,
    /// Are drafts skipped in a step in which nobody can use them?
    pub can_skip_drafts: bool,
    /// Drafts a request, by the number of scheduled requests.
    pub per_batch_size: Option<Vec<u32>>,
    /// Drafts that an admission with one token left is padded with; 0 is no padding.
    pub pad_admissions: u32,
    /// Are blocks that decoding fills cached once their tokens are verified (0.33), and not when the next is scheduled?
    pub cache_when_verified: bool,
    /// Is mended what vLLM would do for ever? A request that the pool can never hold is rejected (vLLM does not start with such a
    /// pool), and of requests of one priority and one instant of arrival the later one is preempted (vLLM: the earlier one, so
    /// that two of them can take turns without end; its clock tells them apart).
    pub guarded: bool,
}

impl Rules {
    /// What these settings come to.
    ///
    /// # Errors
    /// vLLM does not start with them, or no step could ever be made.
    pub fn of(c: &EngineConfig, spec: &SpeculativeConfig) -> Result<Rules, BadConfig> {
        c.check()?;
        let rules = match c.version {
            Version::V0 => {
                refusals::check_v0(c)?;
                v0(c, spec)
            }
            Version::V0_32 | Version::V0_33 => {
                refusals::check_v1(c, spec)?;
                v1(c, spec)
            }
        };
        refusals::check_room(c, &rules)?;
        Ok(rules)
    }
}

/// The sizes of an engine, and no rule of any release.
fn none(c: &EngineConfig, spec: &SpeculativeConfig) -> Rules {
    Rules {
        version: c.version,
        order: Order::StepStart,
        draft_at: DraftAt::StepStart,
        deliver_at: DeliverAt::Sampled,
        draft_passes: DraftPasses::default(),
        one_length: false,
        loses_drafts: false,
        policy: c.scheduling_policy,
        drafter: spec.drafter,
        num_speculative_tokens: spec.num_speculative_tokens,
        max_num_batched_tokens: c.max_num_batched_tokens,
        max_model_len: c.max_model_len,
        max_num_active_seqs: c.max_num_seqs,
        chunked_prefill: c.chunked_prefill(),
        long_prefill_token_threshold: 0,
        long_prefill_token_threshold_adaptive: false,
        lift_threshold_when_alone: false,
        num_lookahead_tokens: 0,
        draft_slots: 0,
        num_prefill_lookahead_tokens: 0,
        num_hash_lookahead_tokens: 0,
        drop_last_hit: false,
        reserve_full_isl: c.scheduler_reserve_full_isl(),
        watermark_blocks: (c.watermark() * f64::from(c.target_blocks(spec.drafter))) as u32,
        prefill_schedule_interval: 1,
        goes_on_after_self_preemption: false,
        can_skip_drafts: false,
        per_batch_size: None,
        pad_admissions: 0,
        cache_when_verified: false,
        guarded: true,
    }
}

fn v1(c: &EngineConfig, spec: &SpeculativeConfig) -> Rules {
    let (method, k, new) = (c.method, spec.num_speculative_tokens, c.version >= Version::V0_33);
    let drafting = k > 0;
    let lookahead = num_lookahead_tokens(method, k);
    let prefill_lookahead = num_prefill_lookahead_tokens(c, k);
    let eagle_like = drafting && matches!(method, DraftMethod::Eagle | DraftMethod::Eagle3 | DraftMethod::Mtp);
    let block = drafting && matches!(method, DraftMethod::Dflash | DraftMethod::Dspark | DraftMethod::DsparkFillIn);
    let hash_lookahead = if new && eagle_like && c.prefix_caching { prefill_lookahead } else { 0 };
    let active = c.max_num_active_seqs.unwrap_or(c.max_num_seqs);
    let table = (!spec.per_batch_size.is_empty() && !drops_table(c, spec)).then(|| lookup(c, spec));
    let pads = c.pad_admissions.unwrap_or(true) && table.is_none();
    let (runner, asynchronous) = (runner(c, spec), async_scheduling(c, spec));
    let by_runner = if runner == Runner::V2 { DeliverAt::Sampled } else { DeliverAt::Drafted };
    Rules {
        order: match draft_at(c) {
            _ if asynchronous => Order::Async,
            DraftAt::StepEnd => Order::StepEnd,
            DraftAt::StepStart => Order::StepStart,
        },
        draft_at: draft_at(c),
        deliver_at: c.deliver_at.unwrap_or(by_runner),
        draft_passes: DraftPasses::of(c, spec),
        one_length: (asynchronous || runner == Runner::V2) && spec.lengths != Lengths::Free,
        loses_drafts: asynchronous && runner == Runner::V1,
        max_num_active_seqs: if new && block { active.min(c.max_num_batched_tokens / lookahead) } else { active },
        long_prefill_token_threshold: c.long_prefill_token_threshold,
        long_prefill_token_threshold_adaptive: c.long_prefill_token_threshold_adaptive,
        lift_threshold_when_alone: true,
        num_lookahead_tokens: if drafting { c.num_lookahead_tokens.unwrap_or(lookahead) } else { 0 },
        draft_slots: if drafting { c.max_num_new_slots_for_drafting.unwrap_or(draft_slots(c, spec)) } else { 0 },
        num_prefill_lookahead_tokens: prefill_lookahead,
        num_hash_lookahead_tokens: hash_lookahead,
        drop_last_hit: if new { eagle_like && hash_lookahead == 0 } else { eagle_like || block },
        prefill_schedule_interval: if new { c.prefill_schedule_interval } else { 1 },
        goes_on_after_self_preemption: new && c.scheduling_policy == SchedulingPolicy::Priority,
        can_skip_drafts: new && lookahead > 0 && runner == Runner::V2,
        pad_admissions: if pads { k } else { 0 },
        per_batch_size: table,
        cache_when_verified: asynchronous || (new && drafting),
        ..none(c, spec)
    }
}

fn v0(c: &EngineConfig, spec: &SpeculativeConfig) -> Rules {
    let k = spec.num_speculative_tokens;
    let lookahead = if k > 0 { c.num_lookahead_tokens.unwrap_or(k) } else { 0 };
    Rules { num_lookahead_tokens: lookahead, ..none(c, spec) }
}

/// The model runner: the one that the release takes for the drafter, where none is set.
pub(in crate::engine) fn runner(c: &EngineConfig, spec: &SpeculativeConfig) -> Runner {
    let block = matches!(c.method, DraftMethod::Dflash | DraftMethod::Dspark | DraftMethod::DsparkFillIn);
    let old = c.method == DraftMethod::Suffix || (spec.parallel_drafting && !block);
    let needs_v1 = spec.num_speculative_tokens > 0 && old;
    c.runner.unwrap_or(if c.version < Version::V0_33 || needs_v1 { Runner::V1 } else { Runner::V2 })
}

/// When drafts are made: where nothing is set, the release's way.
pub(super) fn draft_at(c: &EngineConfig) -> DraftAt {
    c.draft_at.unwrap_or(if c.version == Version::V0 { DraftAt::StepStart } else { DraftAt::StepEnd })
}

/// What the first draft pass runs over: where nothing is set, the release's way.
pub(in crate::engine) fn first_draft_pass(c: &EngineConfig) -> FirstDraftPass {
    let padded = draft_at(c) == DraftAt::StepEnd;
    c.first_draft_pass.unwrap_or(if padded { FirstDraftPass::Padded } else { FirstDraftPass::Unseen })
}

/// Is the next step scheduled while one is in flight? vLLM does so wherever it can.
fn async_scheduling(c: &EngineConfig, spec: &SpeculativeConfig) -> bool {
    c.async_scheduling.unwrap_or(never_async(c, spec).is_none())
}

/// Why nothing can be scheduled behind a step in flight.
pub(super) fn never_async(c: &EngineConfig, spec: &SpeculativeConfig) -> Option<&'static str> {
    let (new, v2) = (c.version >= Version::V0_33, runner(c, spec) == Runner::V2);
    match c.method {
        _ if draft_at(c) == DraftAt::StepStart => Some("drafts are made at the start of a step"),
        _ if spec.num_speculative_tokens == 0 => None,
        _ if first_draft_pass(c) == FirstDraftPass::Unseen => Some("the first draft pass waits for what was accepted"),
        DraftMethod::Suffix => Some("the drafter looks up what was accepted"),
        DraftMethod::Ngram if !(new && v2) => Some("the drafter looks up what was accepted"),
        _ => None,
    }
}

/// vLLM's `num_lookahead_tokens`.
pub(super) fn num_lookahead_tokens(method: DraftMethod, k: u32) -> u32 {
    match method {
        _ if k == 0 => 0,
        DraftMethod::Ngram | DraftMethod::Suffix => 0,
        DraftMethod::DraftModel | DraftMethod::Eagle | DraftMethod::Eagle3 | DraftMethod::Mtp | DraftMethod::Dspark => {
            k
        }
        DraftMethod::Dflash | DraftMethod::DsparkFillIn => k + 1,
    }
}

/// vLLM's `max_num_new_slots_for_drafting`.
pub(super) fn draft_slots(c: &EngineConfig, spec: &SpeculativeConfig) -> u32 {
    let (k, old) = (spec.num_speculative_tokens, c.version == Version::V0_32);
    match c.method {
        _ if k == 0 => 0,
        DraftMethod::DraftModel if spec.parallel_drafting => k,
        DraftMethod::DraftModel => 1,
        DraftMethod::Eagle | DraftMethod::Eagle3 if spec.parallel_drafting => k - 1,
        DraftMethod::Dflash if old => k,
        DraftMethod::Dspark | DraftMethod::DsparkFillIn if old => k - 1,
        _ => 0,
    }
}

/// vLLM's `num_prefill_lookahead_tokens`.
fn num_prefill_lookahead_tokens(c: &EngineConfig, k: u32) -> u32 {
    match c.method {
        _ if k == 0 => 0,
        DraftMethod::Ngram | DraftMethod::Suffix | DraftMethod::DraftModel => 0,
        DraftMethod::Mtp if c.mtp_modules > 1 && k > 1 => k,
        _ => 1,
    }
}

/// Runner V1 of 0.33 falls back to the fixed length where its drafter cannot change it.
fn drops_table(c: &EngineConfig, spec: &SpeculativeConfig) -> bool {
    let dspark = matches!(c.method, DraftMethod::Dspark | DraftMethod::DsparkFillIn);
    c.version >= Version::V0_33 && runner(c, spec) == Runner::V1 && dspark
}

/// Drafts by the number of scheduled requests, from 0: gaps and the tail take the length before them.
fn lookup(c: &EngineConfig, spec: &SpeculativeConfig) -> Vec<u32> {
    let most = i64::from(spec.num_speculative_tokens);
    let mut ranges = spec.per_batch_size.clone();
    ranges.sort_unstable();
    let at = |n: i64| ranges.iter().rev().find(|&&(first, _, _)| first <= n).map_or(0, |&(_, _, k)| k.min(most) as u32);
    (0..=i64::from(c.max_num_seqs)).map(at).collect()
}
