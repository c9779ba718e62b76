//! The setting `engine.version`, and the settings whose defaults or validity depend on it: refused settings, their
//! messages, and notes.

use crate::support::Place;

fn with(engine: &str, more: &[&str]) -> (Option<i32>, String) {
    let place = Place::new();
    let set = format!("engine={engine}");
    let args = ["run", "x.toml", "-o", "out", "--no-figures", "--set", &set];
    let output = place.foretoken().args(args).args(more).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

/// Asserts that the settings `engine` of the engine are refused with a message that contains each of the texts.
fn refused(engine: &str, parts: &[&str]) {
    let (code, error) = with(engine, &[]);
    assert_eq!(code, Some(2), "{engine}\n{error}");
    for part in parts {
        assert!(error.contains(part), "{engine}: `{part}` is missing in\n{error}");
    }
}

#[test]
fn versions_and_keys_of_earlier_ones() {
    refused("{ version = 'vllm-0.31' }", &["unknown name `vllm-0.31`", "vllm-v0, vllm-0.32, vllm-0.33"]);
    refused(
        "{ scheduler = 'v0-prefill-first' }",
        &["`scheduler` is a key of earlier versions", "version = \"vllm-v0\""],
    );
    refused("{ reserve_full_sequence = true }", &["scheduler_reserve_full_isl"]);
}

#[test]
fn settings_that_vllm_refuses_are_refused() {
    refused("{ max_num_batched_tokens = 200 }", &["engine.max_num_batched_tokens: 200 is below max_num_seqs = 256"]);
    let whole = "{ max_num_batched_tokens = 300, max_model_len = 400, chunked_prefill = false }";
    refused(whole, &["300 is below max_model_len = 400"]);
    refused("{ max_num_seqs = 3, max_num_batched_tokens = 3 }", &["leaves no room for a token beside the", "fixed-"]);
    refused("{ max_num_active_seqs = 300 }", &["300 is above max_num_seqs = 256"]);
    refused("{ long_prefill_token_threshold = 500, max_model_len = 400 }", &["500 is above max_model_len = 400"]);
    refused("{ method = 'dspark', runner = 'v1' }", &["engine.runner", "does not serve DSpark"]);
    refused("{ method = 'mtp', mtp_modules = 2 }", &["engine.mtp_modules", "no multiple of the 2 modules"]);
}

#[test]
fn engine_keys_that_contradict_the_version_are_refused() {
    refused("{ version = 'vllm-v0', max_model_len = 2048, chunked_prefill = true }", &["chunked_prefill", "vllm-v0"]);
    refused("{ version = 'vllm-v0' }", &["2048 is below max_model_len = 1048576"]);
    refused("{ num_gpu_blocks = 2, block_size = 4 }", &["never hold one", "lookahead slots"]);
    refused("{ version = 'vllm-v0', max_model_len = 2048, runner = 'v2' }", &["engine.runner", "has no such rule"]);
    refused("{ mtp_modules = 2 }", &["engine.mtp_modules", "is not \"mtp\""]);
    refused("{ watermark = 1.0 }", &["engine.watermark", "not a share in [0, 1)"]);
}

/// Some settings decide how much memory is needed, or are counted in 32 bits. These settings have limits, and the
/// limits are checked before anything else.
#[test]
fn sizes_are_bounded() {
    refused("{ num_lookahead_tokens = 4294967295 }", &["num_lookahead_tokens", "over the limit of 65536 tokens"]);
    refused("{ num_lookahead_tokens = 65536, num_gpu_blocks = 300 }", &["never hold one", "65536 lookahead slots"]);
    refused("{ max_num_new_slots_for_drafting = 4294967295 }", &["over the limit of 65536 tokens"]);
    let draft = "{ draft_kv = { separate = { blocks = 4294967295 } } }";
    refused(draft, &["engine.draft_kv.separate.blocks: 4294967295 KV blocks of the draft take", "too much memory"]);
}

#[test]
fn priorities() {
    refused("{ scheduling_policy = 'priority' }", &["no request has a priority", "workload.priorities"]);
    let (code, error) = with("{ scheduling_policy = 'priority' }", &["--set", "workload.priorities={ absent = 1 }"]);
    assert!(code == Some(2) && error.contains("no request is of the category absent"), "{error}");
    let spec_bench = ["--set", "workload.lengths={ spec-bench = {} }", "--set", "workload.priorities={ qa = 1 }"];
    let (code, error) = with("{ scheduling_policy = 'priority' }", &spec_bench);
    assert_eq!(code, Some(0), "{error}");
}

/// Combinations of settings for the order of scheduling and drafting. Eight are refused, and one is accepted.
#[test]
fn impossible_orders_of_scheduling_and_drafting_are_refused() {
    let cases: [(&str, &[&str]); 8] = [
        ("{ draft_at = 'step-start', async_scheduling = true }", &["async_scheduling", "at the start of a step"]),
        ("{ draft_at = 'step-start', deliver_at = 'sampled' }", &["engine.deliver_at", "when they are verified"]),
        ("{ draft_at = 'step-start', first_draft_pass = 'padded' }", &["engine.first_draft_pass", "has not seen"]),
        ("{ first_draft_pass = 'unseen' }", &["engine.first_draft_pass", "take runner = \"v1\""]),
        ("{ method = 'suffix', async_scheduling = true }", &["engine.async_scheduling", "looks up what was accepted"]),
        (
            "{ runner = 'v1', first_draft_pass = 'unseen', async_scheduling = true }",
            &["engine.async_scheduling", "waits for what was accepted"],
        ),
        (
            "{ version = 'vllm-v0', max_model_len = 2048, draft_at = 'step-end' }",
            &["engine.draft_at", "vllm-v0", "has no such rule"],
        ),
        ("{ draft_at = 'end' }", &["unknown name `end`", "step-end, step-start"]),
    ];
    cases.iter().for_each(|(engine, parts)| refused(engine, parts));
    // n-gram drafting with asynchronous scheduling is accepted on vLLM's model runner V2, because vLLM 0.33 looks up
    // n-grams on the device.
    let (code, said) = with("{ method = 'ngram', async_scheduling = true }", &[]);
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn a_key_that_overrides_its_version_is_noted() {
    let (code, said) = with("{ watermark = 0.05, num_lookahead_tokens = 0 }", &[]);
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("the engine differs from vllm-0.33: set by hand are watermark, num_lookahead_tokens"),
        "{said}"
    );
    let (_, said) = with("{ draft_at = 'step-start' }", &[]);
    assert!(said.contains("the engine differs from vllm-0.33: set by hand are draft_at"), "{said}");
    let (_, said) = with("{ async_scheduling = false, deliver_at = 'drafted' }", &[]);
    assert!(said.contains("set by hand are async_scheduling, deliver_at"), "{said}");
    // A setting that has the same value as the named vLLM release by default gives no note.
    let own = "{ watermark = 0.0, chunked_prefill = true, draft_at = 'step-end', async_scheduling = true }";
    let (_, said) = with(own, &[]);
    assert!(!said.contains("set by hand"), "{said}");
}
