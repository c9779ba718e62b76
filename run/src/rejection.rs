//! Explains why the engine rejected requests that could never fit: names the exceeded limit, and the setting that gives
//! the limit.

use foretoken_sim::{DraftKv, EngineConfig, RejectReason, Run};
use std::collections::BTreeMap;

/// A limit of the engine that some rejected requests exceeded, with the setting that gives it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Limit {
    /// A text that says which limit the requests exceed and what is too large, such as "the prompt is longer than the
    /// KV pool".
    pub what: String,
    /// A text that says which setting of the experiment to change.
    pub fix: String,
}

/// The limits that the rejected requests of a run exceeded, with the number of these requests for each limit.
pub fn limits(run: &Run, config: &EngineConfig) -> BTreeMap<Limit, u64> {
    let mut met = BTreeMap::new();
    for &(_, reason) in &run.rejected {
        *met.entry(limit(reason, config, run.usable_blocks)).or_insert(0) += 1;
    }
    met
}

fn limit(reason: RejectReason, config: &EngineConfig, usable_blocks: u32) -> Limit {
    let tokens = |blocks: u32| u64::from(blocks) * u64::from(config.block_size);
    let draft_blocks = match config.draft_kv {
        DraftKv::Separate { blocks } => blocks,
        _ => usable_blocks,
    };
    // The blocks of the pool that are not for tokens.
    let beside = match config.blocks_of_a_request(0) + config.window_groups {
        0 => "",
        _ => ", and recurrent states, windows and compressors take some of them",
    };
    let (what, fix) = match reason {
        RejectReason::PromptOverModelLen => (
            format!("the prompt does not stay below engine.max_model_len = {}", config.max_model_len),
            "raise engine.max_model_len, or take shorter requests",
        ),
        RejectReason::PromptOverBudget => {
            let why = match config.release().prefills_apart {
                true => "engine.version = \"vllm-v0\"",
                false => "engine.chunked_prefill = false",
            };
            let budget = config.max_num_batched_tokens;
            let what = format!(
                "the prompt is over the token budget of a step, engine.max_num_batched_tokens = {budget}, and is never \
                 split ({why})"
            );
            (what, "raise engine.max_num_batched_tokens, split prompts, or take shorter requests")
        }
        RejectReason::PromptOverPool => (
            format!(
                "the prompt is longer than the KV pool: {usable_blocks} blocks, {} tokens{beside}",
                tokens(usable_blocks)
            ),
            "raise engine.num_gpu_blocks, or take shorter requests",
        ),
        RejectReason::PromptOverDraftPool => (
            format!(
                "the prompt is longer than the draft's own KV pool: {draft_blocks} blocks, {} tokens",
                tokens(draft_blocks)
            ),
            "raise engine.draft_kv.separate.blocks, or take shorter requests",
        ),
        RejectReason::OutgrewDraftPool => (
            format!("prompt + output outgrow the draft's own KV pool of {draft_blocks} blocks"),
            "raise engine.draft_kv.separate.blocks, or take shorter requests",
        ),
        RejectReason::NoStepFits => (
            format!(
                "no step can begin it: a request with one token left is padded with drafts, and they do not fit \
                 engine.max_num_batched_tokens = {}",
                config.max_num_batched_tokens
            ),
            "raise engine.max_num_batched_tokens, or write engine.pad_admissions = false",
        ),
        RejectReason::QueueFull => (
            "engine.sglang.max_queued_requests requests waited already".to_owned(),
            "raise engine.sglang.max_queued_requests, or lower the load",
        ),
        RejectReason::OutgrewPool => (
            format!("prompt + output outgrow the KV pool of {usable_blocks} blocks{beside}"),
            "raise engine.num_gpu_blocks, or take shorter requests",
        ),
    };
    Limit { what, fix: fix.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foretoken_sim::Version;

    #[test]
    fn each_limit_is_named_with_its_own_key() {
        let plain = EngineConfig::default;
        let separate = || EngineConfig { draft_kv: DraftKv::Separate { blocks: 5 }, ..plain() };
        let whole = || EngineConfig { max_num_batched_tokens: 64, chunked_prefill: Some(false), ..plain() };
        let v0 = || EngineConfig { version: Version::V0, ..whole() };
        let short = || EngineConfig { max_model_len: 64, ..plain() };
        let cases = [
            (RejectReason::PromptOverModelLen, short(), "engine.max_model_len = 64", "max_model_len"),
            (RejectReason::PromptOverBudget, whole(), "engine.chunked_prefill = false", "max_num_batched_tokens"),
            (RejectReason::PromptOverBudget, v0(), "vllm-v0", "max_num_batched_tokens"),
            (RejectReason::NoStepFits, whole(), "max_num_batched_tokens = 64", "pad_admissions"),
            (RejectReason::PromptOverPool, plain(), "20 blocks, 320 tokens", "num_gpu_blocks"),
            (RejectReason::PromptOverDraftPool, separate(), "5 blocks, 80 tokens", "draft_kv.separate.blocks"),
            (RejectReason::OutgrewDraftPool, separate(), "outgrow the draft's own", "draft_kv.separate.blocks"),
            (RejectReason::OutgrewPool, plain(), "prompt + output outgrow the KV pool", "num_gpu_blocks"),
        ];
        for (reason, config, what, key) in cases {
            let said = limit(reason, &config, 20);
            assert!(said.what.contains(what) && said.fix.contains(key), "{said:?}");
        }
    }
}
