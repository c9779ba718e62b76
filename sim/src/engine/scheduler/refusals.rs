//! Refuses settings with which vLLM does not start, or with which the scheduler could never make a step.

use super::derived::Derived;
use super::speculative_config::SpeculativeConfig;
use crate::config::{
    BadConfig, BudgetCharge, DraftAt, DraftGap, DraftKv, DraftMethod, EngineConfig, FirstDraftPass, Runner,
};

fn refuse<T>(key: &'static str, why: String) -> Result<T, BadConfig> {
    Err(BadConfig { key, why })
}

/// Refuses token budgets that all releases of vLLM refuse: below `max_num_seqs`, or, without chunked prefill, below
/// `max_model_len`.
fn check_budget(c: &EngineConfig) -> Result<(), BadConfig> {
    let budget = c.max_num_batched_tokens;
    if !c.chunked_prefill() && budget < c.max_model_len {
        let why = format!(
            "{budget} is below max_model_len = {}: without chunked prefill no prompt is split. Give max_model_len your \
             model's length, or raise the budget",
            c.max_model_len
        );
        return refuse("max_num_batched_tokens", why);
    }
    if budget < c.max_num_seqs {
        return refuse("max_num_batched_tokens", format!("{budget} is below max_num_seqs = {}", c.max_num_seqs));
    }
    Ok(())
}

/// Refuses the settings with which vLLM 0.32 and 0.33 do not start.
pub(super) fn check_v1(derived: &Derived) -> Result<(), BadConfig> {
    let (c, k) = (derived.config, derived.k);
    check_budget(c)?;
    let budget = c.max_num_batched_tokens;
    if let Some(active) = c.max_num_active_seqs.filter(|&active| active > c.max_num_seqs) {
        return refuse("max_num_active_seqs", format!("{active} is above max_num_seqs = {}", c.max_num_seqs));
    }
    if c.long_prefill_token_threshold > c.max_model_len {
        let why = format!("{} is above max_model_len = {}", c.long_prefill_token_threshold, c.max_model_len);
        return refuse("long_prefill_token_threshold", why);
    }
    let needed = if c.release().charges_draft_blocks { derived.draft_slots } else { derived.lookahead };
    if k > 0 && budget <= needed {
        let why = format!("{budget} leaves no room for a token beside the {needed} slots that drafting takes");
        return refuse("max_num_batched_tokens", why);
    }
    if let Some(why) = runner_cannot(derived) {
        return refuse("runner", why.into());
    }
    let mtp = k > 0 && c.method == DraftMethod::Mtp;
    if mtp && k > c.mtp_modules && !k.is_multiple_of(c.mtp_modules) {
        return refuse("mtp_modules", format!("the {k} draft tokens are no multiple of the {} modules", c.mtp_modules));
    }
    check_async(derived)?;
    check_table(derived.spec)?;
    check_order(derived)?;
    check_drafts_until(derived)?;
    check_weights(derived)?;
    if mtp { check_mtp_blocks(c, k) } else { Ok(()) }
}

/// Refuses asynchronous scheduling where vLLM cannot schedule asynchronously.
fn check_async(derived: &Derived) -> Result<(), BadConfig> {
    match derived.never_async.filter(|_| derived.config.async_scheduling == Some(true)) {
        Some(why) => refuse("async_scheduling", format!("{why}: leave it out, or set it to false")),
        None => Ok(()),
    }
}

/// Refuses settings that contradict each other about when draft tokens are made, when tokens are delivered, and which
/// tokens the first draft pass has.
fn check_order(derived: &Derived) -> Result<(), BadConfig> {
    let c = derived.config;
    let unseen = c.first_draft_pass.map(|pass| pass == FirstDraftPass::Unseen);
    match derived.draft_at {
        DraftAt::StepStart if c.deliver_at.is_some() => {
            let why = "with draft_at = \"step-start\" tokens leave when they are verified; leave it out";
            refuse("deliver_at", why.into())
        }
        DraftAt::StepStart if unseen == Some(false) => {
            let why =
                "with draft_at = \"step-start\" the draft knows what was accepted, and runs over what it has not seen";
            refuse("first_draft_pass", why.into())
        }
        DraftAt::StepEnd if unseen == Some(true) && derived.runner == Runner::V2 => {
            refuse("first_draft_pass", "runner \"v2\" runs over all tokens of a step; take runner = \"v1\"".into())
        }
        _ => Ok(()),
    }
}

fn check_mtp_blocks(c: &EngineConfig, k: u32) -> Result<(), BadConfig> {
    // vLLM 0.32 drops the last block of a prefix-cache hit, so several MTP modules need blocks of at least `k` tokens.
    // vLLM 0.33 uses all blocks of a hit (a block's hash may cover tokens after the block), so it allows any block
    // size.
    if c.release().mtp_needs_long_blocks && c.mtp_modules > 1 && k > 1 && c.prefix_caching && c.block_size < k {
        let why =
            format!("{} is below the {k} tokens that several MTP modules draft, with prefix caching", c.block_size);
        return refuse("block_size", why);
    }
    Ok(())
}

/// Refuses weights that leave where the draft model could not catch up with what it missed.
fn check_weights(derived: &Derived) -> Result<(), BadConfig> {
    let c = derived.config;
    if c.draft_weights.is_none() || derived.k == 0 {
        return Ok(());
    }
    if derived.draft_at == DraftAt::StepEnd {
        let why = "weights leave only where drafts are made at the start of a step: set draft_at = \"step-start\"";
        return refuse("draft_weights", why.into());
    }
    match c.draft_gap == DraftGap::CatchUpNextUse {
        true => Ok(()),
        false => refuse("draft_gap", "with draft_weights only \"catch-up-next-use\" is simulated".into()),
    }
}

/// Refuses a limit of the drafter's own where vLLM has no gate: its runner V2 drafts on beyond it (vllm#57941).
fn check_drafts_until(derived: &Derived) -> Result<(), BadConfig> {
    let gated = derived.draft_at == DraftAt::StepEnd && derived.runner == Runner::V1;
    match derived.config.draft_max_model_len.filter(|_| derived.k > 0 && !gated) {
        Some(_) => {
            let why = "only runner \"v1\" with drafts at the end of a step looks at the drafter's length: take it, or \
                       leave this out";
            refuse("draft_max_model_len", why.into())
        }
        None => Ok(()),
    }
}

/// Why the model runner cannot serve the drafter; `None` if it can.
fn runner_cannot(derived: &Derived) -> Option<&'static str> {
    let parallel = derived.spec.parallel_drafting;
    match (derived.runner, derived.config.method) {
        _ if derived.k == 0 => None,
        (Runner::V2, DraftMethod::DraftModel | DraftMethod::Eagle | DraftMethod::Eagle3) if parallel => {
            Some("\"v2\" drafts no tokens in parallel: take \"v1\"")
        }
        (Runner::V1, DraftMethod::Dspark | DraftMethod::DsparkFillIn) => {
            Some("\"v1\" does not serve DSpark: take \"v2\"")
        }
        _ => None,
    }
}

fn check_table(spec: &SpeculativeConfig) -> Result<(), BadConfig> {
    let refuse = |why: String| refuse("num_speculative_tokens_per_batch_size", why);
    let mut ranges = spec.per_batch_size.clone();
    ranges.sort_unstable();
    let mut before = 0;
    for &(first, last, k) in &ranges {
        if first < 1 {
            return refuse(format!("batch size {first} is below 1"));
        }
        if last < first {
            return refuse(format!("batch sizes {first} to {last} are no range"));
        }
        if first <= before {
            return refuse(format!("batch size {first} stands in two ranges"));
        }
        if before == 0 && first > 1 {
            return refuse(format!("it begins at batch size {first}, not at 1"));
        }
        if k < 0 {
            return refuse(format!("{k} draft tokens"));
        }
        before = last;
    }
    Ok(())
}

/// Refuses the settings that SGLang's scheduler does not have, and the parts of SGLang that are not built.
pub(super) fn check_sglang(derived: &Derived) -> Result<(), BadConfig> {
    let c = derived.config;
    let absent = [
        ("runner", c.runner.is_some()),
        ("draft_at", c.draft_at == Some(DraftAt::StepEnd)),
        ("deliver_at", c.deliver_at.is_some()),
        ("first_draft_pass", c.first_draft_pass.is_some()),
        ("max_num_active_seqs", c.max_num_active_seqs.is_some()),
        ("chunked_prefill", c.chunked_prefill.is_some()),
        ("long_prefill_token_threshold", c.long_prefill_token_threshold > 0),
        ("prefill_schedule_interval", c.prefill_schedule_interval > 1),
        ("scheduler_reserve_full_isl", c.scheduler_reserve_full_isl.is_some()),
        ("watermark", c.watermark.is_some()),
        ("num_lookahead_tokens", c.num_lookahead_tokens.is_some()),
        ("max_num_new_slots_for_drafting", c.max_num_new_slots_for_drafting.is_some()),
        ("pad_admissions", c.pad_admissions.is_some()),
        ("seated", c.seated),
        ("draft_max_model_len", c.draft_max_model_len.is_some()),
    ];
    if let Some((key, _)) = absent.into_iter().find(|(_, set)| *set) {
        return refuse(key, "SGLang has no such setting: leave it out; engine.sglang has SGLang's own".into());
    }
    let unbuilt = [
        ("sliding_window", c.sliding_window > 0, "sliding windows"),
        ("state_blocks", c.state_blocks > 0 || c.request_blocks > 0, "recurrent states and compressed attention"),
        ("draft_kv", matches!(c.draft_kv, DraftKv::Separate { .. }), "a pool of the draft model's own"),
        ("draft_weights", c.draft_weights.is_some(), "weights that leave"),
        ("budget_charge", c.budget_charge == BudgetCharge::Trimmed, "budgets by verified drafts"),
    ];
    if let Some((key, _, what)) = unbuilt.into_iter().find(|(_, set, _)| *set) {
        return refuse(key, format!("{what} are not simulated with SGLang's scheduler: take a version of vLLM"));
    }
    let page = c.block_size;
    if c.sglang.chunked_prefill_size > 0 && c.sglang.chunked_prefill_size < page {
        let why = format!("{} is below the page of {page} tokens", c.sglang.chunked_prefill_size);
        return refuse("sglang.chunked_prefill_size", why);
    }
    check_async(derived)?;
    check_table(derived.spec)
}

/// Refuses the settings that vLLM v0's scheduler does not have (such as chunked prefill), and token budgets that v0
/// itself refuses.
pub(super) fn check_v0(c: &EngineConfig) -> Result<(), BadConfig> {
    let absent = [
        ("chunked_prefill", c.chunked_prefill == Some(true)),
        ("long_prefill_token_threshold", c.long_prefill_token_threshold > 0),
        ("long_prefill_token_threshold_adaptive", c.long_prefill_token_threshold_adaptive),
        ("scheduler_reserve_full_isl", c.scheduler_reserve_full_isl == Some(true)),
        ("max_num_active_seqs", c.max_num_active_seqs.is_some()),
        ("max_num_new_slots_for_drafting", c.max_num_new_slots_for_drafting.is_some()),
        ("pad_admissions", c.pad_admissions == Some(true)),
        ("seated", c.seated),
        ("prefill_schedule_interval", c.prefill_schedule_interval > 1),
        ("sliding_window", c.sliding_window > 0),
        ("runner", c.runner.is_some()),
        ("draft_max_model_len", c.draft_max_model_len.is_some()),
        ("draft_weights", c.draft_weights.is_some()),
        ("async_scheduling", c.async_scheduling == Some(true)),
        ("draft_at", c.draft_at == Some(DraftAt::StepEnd)),
        ("deliver_at", c.deliver_at.is_some()),
        ("first_draft_pass", c.first_draft_pass == Some(FirstDraftPass::Padded)),
    ];
    match absent.into_iter().find(|(_, set)| *set) {
        Some((key, _)) => refuse(key, "engine.version = \"vllm-v0\" has no such rule; leave it out".into()),
        None => check_budget(c),
    }
}

/// If there is a drafter, checks that the target's pool can hold one decode request with its draft tokens and lookahead
/// slots.
pub(super) fn check_room(c: &EngineConfig, drafter: bool, k: u32, lookahead: u32) -> Result<(), BadConfig> {
    let needed = (1 + k + lookahead).min(c.max_model_len).div_ceil(c.block_size) * (1 + c.window_groups);
    let blocks = c.usable_blocks(drafter);
    let fixed = c.blocks_of_a_request(k);
    if fixed > 0 && blocks < needed + fixed {
        let why = format!(
            "the {blocks} blocks that requests can use never hold one: {} recurrent states, windows and compressors take \
             {fixed}, and its first tokens {needed}",
            1 + k
        );
        return refuse("num_gpu_blocks", why);
    }
    if k > 0 && blocks < needed {
        let why = format!(
            "the {blocks} blocks that requests can use never hold one: a token, {k} drafts and {lookahead} lookahead slots \
             take {needed} of {} tokens",
            c.block_size
        );
        return refuse("num_gpu_blocks", why);
    }
    Ok(())
}
