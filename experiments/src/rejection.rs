//! Why a request can never run, in words: the limit the engine held it against and the key that sets it.
//!
//! Mirrors, and must never replace, the engine's own decision: it is asked about requests that were rejected.

use foretoken_sim::{DraftKv, EngineConfig, Outcome, RequestRecords, Scheduler, Workload};
use std::collections::BTreeMap;

/// A limit that requests ran into.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Limit {
    /// What is too large for what.
    pub what: String,
    /// What to do about it.
    pub fix: String,
}

/// The limits that the rejected requests of a run met, with how many met each.
pub fn limits(
    workload: &Workload,
    records: &RequestRecords,
    config: &EngineConfig,
    drafting: bool,
    usable_blocks: u32,
) -> BTreeMap<Limit, u64> {
    let mut met = BTreeMap::new();
    let rejected = records.outcome.iter().zip(&workload.prompt_len).filter(|(o, _)| **o == Outcome::Rejected);
    for (_, &prompt) in rejected {
        *met.entry(limit(config, drafting, usable_blocks, prompt)).or_insert(0) += 1;
    }
    met
}

/// The limit that a rejected request with this prompt met.
fn limit(config: &EngineConfig, drafting: bool, usable_blocks: u32, prompt: u32) -> Limit {
    let new = |what: String, fix: &str| Limit { what, fix: fix.to_owned() };
    let v0 = config.scheduler == Scheduler::V0PrefillFirst;
    let need = prompt.div_ceil(config.block_size);
    let draft_pool = match config.draft_kv {
        DraftKv::Separate { blocks } if drafting => blocks,
        _ => u32::MAX,
    };
    if prompt >= config.max_model_len {
        let what = format!("the prompt does not stay below engine.max_model_len = {}", config.max_model_len);
        new(what, "raise engine.max_model_len, or take shorter requests")
    } else if (v0 || !config.chunked_prefill) && prompt > config.max_num_batched_tokens {
        let why = if v0 { "engine.scheduler = \"v0-prefill-first\"" } else { "engine.chunked_prefill = false" };
        let budget = config.max_num_batched_tokens;
        let what = format!(
            "the prompt is over the token budget of a step, engine.max_num_batched_tokens = {budget}, and is never \
             split ({why})"
        );
        new(what, "raise engine.max_num_batched_tokens, split prompts, or take shorter requests")
    } else if need > usable_blocks {
        let tokens = u64::from(usable_blocks) * u64::from(config.block_size);
        let what = format!("the prompt is longer than the KV pool: {usable_blocks} blocks, {tokens} tokens");
        new(what, "raise engine.num_gpu_blocks, or take shorter requests")
    } else if need > draft_pool {
        let tokens = u64::from(draft_pool) * u64::from(config.block_size);
        let what = format!("the prompt is longer than the draft's own KV pool: {draft_pool} blocks, {tokens} tokens");
        new(what, "raise engine.draft_kv.separate.blocks, or take shorter requests")
    } else if draft_pool < usable_blocks {
        let what = format!("prompt + output outgrow the draft's own KV pool of {draft_pool} blocks");
        new(what, "raise engine.draft_kv.separate.blocks, or take shorter requests")
    } else {
        let what = format!("prompt + output outgrow the KV pool of {usable_blocks} blocks");
        new(what, "raise engine.num_gpu_blocks, or take shorter requests")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(config: EngineConfig, drafting: bool, prompt: u32) -> (String, String) {
        let limit = limit(&config, drafting, 20, prompt);
        (limit.what, limit.fix)
    }

    #[test]
    fn each_limit_is_named_with_its_own_key() {
        let plain = EngineConfig::default;
        let separate = || EngineConfig { draft_kv: DraftKv::Separate { blocks: 5 }, ..plain() };
        let cases = [
            (EngineConfig { max_model_len: 64, ..plain() }, false, 64, "engine.max_model_len = 64", "max_model_len"),
            (
                EngineConfig { max_num_batched_tokens: 64, chunked_prefill: false, ..plain() },
                false,
                65,
                "engine.chunked_prefill = false",
                "max_num_batched_tokens",
            ),
            (
                EngineConfig { max_num_batched_tokens: 64, scheduler: Scheduler::V0PrefillFirst, ..plain() },
                false,
                65,
                "v0-prefill-first",
                "max_num_batched_tokens",
            ),
            (plain(), false, 321, "20 blocks, 320 tokens", "num_gpu_blocks"),
            (separate(), true, 81, "draft's own KV pool: 5 blocks, 80 tokens", "draft_kv.separate.blocks"),
            (separate(), true, 80, "prompt + output outgrow the draft's own", "draft_kv.separate.blocks"),
            (separate(), false, 80, "prompt + output outgrow the KV pool", "num_gpu_blocks"),
            (plain(), false, 320, "prompt + output outgrow the KV pool", "num_gpu_blocks"),
        ];
        for (config, drafting, prompt, what, key) in cases {
            let (said, fix) = said(config, drafting, prompt);
            assert!(said.contains(what) && fix.contains(key), "{said}; {fix}");
        }
    }
}
