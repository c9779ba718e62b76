//! The rules of vLLM's scheduler as numbers and switches, derived from the engine's settings and from the switches of
//! the [release](Release). They are tested against all releases with the recorded schedules of `tests/vllm/`.

use super::derived::Derived;
use super::refusals;
use super::sglang::SglangRules;
use super::speculative_config::{Lengths, SpeculativeConfig};
use crate::config::{
    BadConfig, BudgetCharge, DeliverAt, DraftAt, DraftGap, DraftMethod, EngineConfig, Release, Runner,
    SchedulingPolicy, Version,
};
use crate::engine::draft_passes::DraftPasses;

/// The order of the phases of steps (schedule, draft, verify, update).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The step schedules, drafts, verifies and updates the requests.
    StepStart,
    /// The step schedules, verifies, drafts for the next step, and updates the requests. The device works through its
    /// queue and does not wait for the host.
    StepEnd,
    /// Like `StepEnd`, but the next step is scheduled before the update of this step.
    Async,
}

/// The rules that the scheduler follows, as they result from the engine's settings and from the drafter.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    /// The vLLM release whose rules the scheduler follows.
    pub version: Version,
    /// The numbers and switches of this release.
    pub release: &'static Release,
    /// The order of the phases of steps (schedule, draft, verify, update).
    pub order: Order,
    /// The rules of SGLang's scheduler; `None` for vLLM's.
    pub sglang: Option<SglangRules>,
    /// When draft tokens are made: at the start or at the end of a step. Not used without a drafter.
    pub draft_at: DraftAt,
    /// When clients get the tokens of a step, if draft tokens are made at the end of the step.
    pub deliver_at: DeliverAt,
    /// The passes that the drafter makes at the end of a step: their number, and the number of tokens that each
    /// processes.
    pub draft_passes: DraftPasses,
    /// Whether one pass gives all draft tokens of a request, if draft tokens are made at the start of a step.
    pub parallel_drafting: bool,
    /// Whether the draft model processes prompts too.
    pub draft_prefill: bool,
    /// Whether the draft model's weights are in memory; without them it processes no prompt.
    pub drafter_loaded: bool,
    /// When the draft model processes tokens that it missed while the request did not draft.
    pub draft_gap: DraftGap,
    /// Whether a decode request may have tokens that the draft model has not processed. A drafter that drafts at the
    /// start of a step and has no KV never misses tokens.
    pub draft_gaps: bool,
    /// Whether unused token budget goes to prompts in prefill: budget that was reserved for draft tokens, but for which
    /// the policy selected no draft token to verify.
    pub tops_up_chunks: bool,
    /// Whether consecutive steps in which nothing is decided (a stretch) are computed in one go.
    pub skip_stretches: bool,
    /// Whether all requests of a step are scheduled with the same number of draft tokens: the number of the request
    /// with the most. Missing draft tokens are padding. Runner V2 and async scheduling need one length for all
    /// requests; oracles are exempt.
    pub one_length: bool,
    /// Whether all requests of a step draft as many tokens as the request with the most, and verify all of them.
    pub one_plan: bool,
    /// The order in which waiting requests are admitted: by arrival, or by priority.
    pub policy: SchedulingPolicy,
    /// Whether there is a drafter (invariant 7 of INVARIANTS.md).
    pub drafter: bool,
    /// The most draft tokens of a request in a step.
    pub num_speculative_tokens: u32,
    /// Token budget of a step: the most tokens that a target pass may have, draft tokens and prompt chunks included.
    pub max_num_batched_tokens: u32,
    /// Most tokens of prompt and output of a request.
    pub max_model_len: u32,
    /// Most tokens of a request for which the drafter can be run.
    pub drafts_until: u32,
    /// Most requests that may run at once.
    pub max_num_active_seqs: u32,
    /// Whether the tokens of a prompt may be split over several steps.
    pub chunked_prefill: bool,
    /// Most prompt tokens of a request in a step; 0 for no limit.
    pub long_prefill_token_threshold: u32,
    /// Whether `long_prefill_token_threshold` is raised to the token budget divided by the number of running and
    /// waiting requests, if that is larger.
    pub long_prefill_token_threshold_adaptive: bool,
    /// Whether `long_prefill_token_threshold` does not apply if at most one request runs or waits.
    pub lift_threshold_when_alone: bool,
    /// Number of KV slots that are reserved for a request in addition to the slots of its scheduled tokens.
    pub num_lookahead_tokens: u32,
    /// Extra tokens that each request takes from the token budget (`max_num_new_slots_for_drafting`).
    pub draft_slots: u32,
    /// A prefill chunk that does not end its prompt leaves at least this many prompt tokens for later chunks.
    pub num_prefill_lookahead_tokens: u32,
    /// Number of tokens after a block that the block's hash also covers.
    pub num_hash_lookahead_tokens: u32,
    /// Whether the last block of a prefix-cache hit is computed again and not used.
    pub drop_last_hit: bool,
    /// Whether a request that is left out of a step loses its draft tokens. Its next step then verifies padding in
    /// place of the draft tokens, and accepts none.
    pub loses_drafts: bool,
    /// Whether a request is admitted only if its whole sequence fits into the free blocks.
    pub reserve_full_isl: bool,
    /// Number of KV blocks that must stay free when a request is admitted while other requests run; in v0 always.
    pub watermark_blocks: u32,
    /// N: while requests decode, prompts are scheduled only in every N-th step.
    pub prefill_schedule_interval: u32,
    /// Under priority scheduling: whether the scheduler, after a request had to preempt itself, goes on with the later
    /// requests of the running list.
    pub goes_on_after_self_preemption: bool,
    /// Whether drafting is skipped in a step in which no request can use draft tokens.
    pub can_skip_drafts: bool,
    /// Draft length of each request, by the number of scheduled requests (the index); `None` if the length does not
    /// depend on this number.
    pub per_batch_size: Option<Vec<u32>>,
    /// Number of padding tokens, in place of draft tokens, that an admitted request with one token left to compute
    /// gets; 0 for no padding.
    pub pad_admissions: u32,
    /// Whether the runner falls back from full to piecewise CUDA graphs (vLLM
    /// `_maybe_override_dynamic_sd_cudagraph_mode`): runner V1 does so if its draft lengths come from a table by batch
    /// size.
    pub leaves_full_graphs: bool,
    /// Whether blocks that decoding filled are cached as soon as their tokens are verified: under async scheduling, and
    /// in 0.33 with draft tokens. Otherwise they are cached when the next tokens are scheduled.
    pub cache_when_verified: bool,
    /// Whether the scheduler avoids two endless loops of vLLM. First, it rejects a request that the pool can never hold
    /// (vLLM does not start with such a pool). Second, of two requests with equal priority and arrival time it preempts
    /// the one with the higher id. (vLLM preempts the first in its list, so that two such requests could preempt each
    /// other without end; on its clock no two arrival times are equal.)
    pub guarded: bool,
}

impl Rules {
    /// The scheduler's rules as they result from the engine's settings `c` and from the drafter's properties `spec`.
    ///
    /// # Errors
    /// vLLM does not start with these settings, or the scheduler could never make a step with them.
    pub fn of(c: &EngineConfig, spec: &SpeculativeConfig) -> Result<Rules, BadConfig> {
        c.check()?;
        let derived = Derived::of(c, spec);
        let rules = match c.release().prefills_apart {
            _ if c.release().sglang => {
                refusals::check_sglang(&derived)?;
                sglang(&derived)
            }
            true => {
                refusals::check_v0(c)?;
                v0(&derived)
            }
            false => {
                refusals::check_v1(&derived)?;
                v1(&derived)
            }
        };
        refusals::check_room(c, rules.drafter, rules.num_speculative_tokens, rules.num_lookahead_tokens)?;
        Ok(rules)
    }
}

/// The rules with every special rule of a vLLM release switched off. Only the limits (token budget, model length, …)
/// and choices such as chunked prefill are taken from the settings.
fn none(Derived { config: c, spec, k, draft_at, .. }: &Derived) -> Rules {
    Rules {
        version: c.version,
        release: c.release(),
        order: Order::StepStart,
        sglang: None,
        draft_at: DraftAt::StepStart,
        deliver_at: DeliverAt::Sampled,
        draft_passes: DraftPasses::default(),
        parallel_drafting: spec.parallel_drafting,
        draft_prefill: c.draft_prefill,
        drafter_loaded: true,
        draft_gap: c.draft_gap,
        draft_gaps: spec.drafter && (c.draft_prefill || *draft_at == DraftAt::StepEnd),
        // If draft tokens take nothing from the token budget, there is no unused budget to give to prompts.
        tops_up_chunks: spec.drafter && c.release().charges_drafts && c.budget_charge == BudgetCharge::Trimmed,
        skip_stretches: c.skip_stretches,
        one_length: false,
        one_plan: c.seated,
        loses_drafts: false,
        policy: c.scheduling_policy,
        drafter: spec.drafter,
        num_speculative_tokens: *k,
        max_num_batched_tokens: c.max_num_batched_tokens,
        max_model_len: c.max_model_len,
        drafts_until: c.draft_max_model_len.map_or(c.max_model_len, |most| most.min(c.max_model_len)),
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
        leaves_full_graphs: false,
        pad_admissions: 0,
        cache_when_verified: false,
        guarded: true,
    }
}

fn v1(derived: &Derived) -> Rules {
    let &Derived { config: c, spec, k, block, runner, draft_at, asynchronous, lookahead, .. } = derived;
    let (drafting, release) = (k > 0, c.release());
    let eagle_like = drafting && matches!(c.method, DraftMethod::Eagle | DraftMethod::Eagle3 | DraftMethod::Mtp);
    let block = drafting && block;
    let hashes = release.hashes_lookahead && eagle_like && c.prefix_caching;
    let hash_lookahead = if hashes { derived.prefill_lookahead } else { 0 };
    let bounds = release.bounds_block_batches && block;
    let active = c.max_num_active_seqs.unwrap_or(c.max_num_seqs);
    let table = derived.per_batch_size();
    let pads = c.pad_admissions.unwrap_or(release.pad_admissions) && table.is_none() && !c.seated;
    let by_runner = if runner == Runner::V2 { DeliverAt::Sampled } else { DeliverAt::Drafted };
    Rules {
        order: match draft_at {
            _ if asynchronous => Order::Async,
            DraftAt::StepEnd => Order::StepEnd,
            DraftAt::StepStart => Order::StepStart,
        },
        draft_at,
        deliver_at: c.deliver_at.unwrap_or(by_runner),
        draft_passes: DraftPasses::of(derived),
        one_length: (asynchronous || runner == Runner::V2) && spec.lengths != Lengths::Free,
        loses_drafts: asynchronous && runner == Runner::V1,
        max_num_active_seqs: if bounds { active.min(c.max_num_batched_tokens / lookahead) } else { active },
        long_prefill_token_threshold: c.long_prefill_token_threshold,
        long_prefill_token_threshold_adaptive: c.long_prefill_token_threshold_adaptive,
        lift_threshold_when_alone: true,
        num_lookahead_tokens: if drafting { c.num_lookahead_tokens.unwrap_or(lookahead) } else { 0 },
        draft_slots: if drafting { c.max_num_new_slots_for_drafting.unwrap_or(derived.draft_slots) } else { 0 },
        num_prefill_lookahead_tokens: derived.prefill_lookahead,
        num_hash_lookahead_tokens: hash_lookahead,
        drop_last_hit: match release.drops_last_hit {
            true => eagle_like || block,
            false => eagle_like && hash_lookahead == 0,
        },
        prefill_schedule_interval: if release.defers_prefills { c.prefill_schedule_interval } else { 1 },
        goes_on_after_self_preemption: release.goes_on_after_self_preemption
            && c.scheduling_policy == SchedulingPolicy::Priority,
        can_skip_drafts: release.skips_useless_drafts && lookahead > 0 && runner == Runner::V2,
        pad_admissions: if pads { k } else { 0 },
        leaves_full_graphs: (table.is_some() || c.seated) && runner == Runner::V1,
        per_batch_size: table,
        cache_when_verified: asynchronous || (release.caches_when_verified && drafting),
        ..none(derived)
    }
}

fn v0(derived: &Derived) -> Rules {
    let k = derived.k;
    let lookahead = if k > 0 { derived.config.num_lookahead_tokens.unwrap_or(k) } else { 0 };
    Rules { num_lookahead_tokens: lookahead, ..none(derived) }
}

fn sglang(derived: &Derived) -> Rules {
    let &Derived { config: c, spec, k, block, asynchronous, .. } = derived;
    // DSpark alone verifies as many drafts as each request has; all other drafters have one width for the batch.
    let ragged = matches!(c.method, DraftMethod::Dspark | DraftMethod::DsparkFillIn);
    Rules {
        order: if asynchronous { Order::Async } else { Order::StepStart },
        sglang: Some(SglangRules::of(c, k, asynchronous)),
        parallel_drafting: block || spec.parallel_drafting,
        one_length: !ragged && spec.lengths != Lengths::Free,
        one_plan: !ragged && spec.lengths != Lengths::Free,
        skip_stretches: false,
        tops_up_chunks: false,
        ..none(derived)
    }
}
