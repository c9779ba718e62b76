//! Tests of reading and writing SGLang's adaptive settings (`adaptive_spec.json`).

use super::*;
use crate::sglang::ema_tier::OffList;

#[test]
fn flat_files_are_generation_1() {
    let text = r#"{"candidate_steps": [1, 2, 5], "ema_alpha": 0.3, "warmup_batches": 0, "up_hysteresis": 1}"#;
    let expected = EmaTier {
        candidates: vec![1, 2, 5],
        ema_alpha: 0.3,
        warmup_batches: 0,
        up_hysteresis: 1.0,
        ..EmaTier::default()
    };
    assert_eq!(from_sglang_json(text), Ok(PolicySpec::SglangGen1(expected)));
    // SGLang's file may have any subset of its keys, also none.
    assert_eq!(from_sglang_json("{}"), Ok(PolicySpec::SglangGen1(EmaTier::default())));
}

#[test]
fn sglangs_default_table_is_the_presets() {
    let text = r#"{
        "1": {"candidate_steps": [1, 3, 5, 7], "up_hysteresis": 0.0, "down_hysteresis": -0.25, "ceiling_coeff": 0},
        "64": {"candidate_steps": [0], "up_hysteresis": 0.0, "down_hysteresis": 0.0, "ceiling_coeff": 0},
        "8": {"candidate_steps": [0, 1, 3], "up_hysteresis": 0.0, "down_hysteresis": 0.0, "ceiling_coeff": 0},
        "32": {"candidate_steps": [0, 1], "up_hysteresis": 0.0, "down_hysteresis": 0.0, "ceiling_coeff": 0}
    }"#;
    let mut expected = SglangGen3::default();
    for slot in &mut expected.slots {
        (slot.up_hysteresis, slot.ceiling_coeff) = (Some(0.0), Some(0.0));
    }
    assert_eq!(from_sglang_json(text), Ok(PolicySpec::SglangGen3(expected)));
}

#[test]
fn top_level_keys_are_defaults_below_each_batch_size() {
    let text = r#"{"strategy": "ema", "update_interval": 9, "down_hysteresis": -1.5,
                   "1": {"candidate_steps": [1, 4]}, "16": {"candidate_steps": [1], "update_interval": 2}}"#;
    let Ok(PolicySpec::SglangGen3(p)) = from_sglang_json(text) else { panic!("generation 3") };
    assert_eq!((p.update_interval, p.down_hysteresis), (9, -1.5));
    assert_eq!([p.slots[0].update_interval, p.slots[1].update_interval], [None, Some(2)]);
    assert_eq!([p.slots[0].batch_size, p.slots[1].batch_size], [1, 16]);
}

#[test]
fn the_throughput_example_is_the_preset() {
    let text = r#"{"strategy": "throughput_aware", "window_size": 20, "update_interval": 10,
        "profile_run_batch_sizes": null, "max_profile_run_batch_size": 128, "profile_run_n_warmup": 5,
        "profile_run_n_measure": 10, "profile_run_seq_len": null,
        "1": {"candidate_steps": [1, 3, 5, 7]}, "8": {"candidate_steps": [1, 3, 5]},
        "32": {"candidate_steps": [1, 3]}, "128": {"candidate_steps": [1]}}"#;
    let expected = SglangThroughput { max_profile_run_batch_size: Some(128), ..SglangThroughput::default() };
    assert_eq!(from_sglang_json(text), Ok(PolicySpec::SglangThroughput(expected)));
}

#[test]
fn what_is_written_reads_back() {
    let read = |policy: &PolicySpec| from_sglang_json(&to_sglang_json(policy).unwrap()).unwrap();
    let tiers = EmaTier { candidates: vec![2, 4, 8], ema_alpha: 0.1, update_interval: 3, ..EmaTier::default() };
    assert_eq!(read(&PolicySpec::SglangGen1(tiers.clone())), PolicySpec::SglangGen1(tiers.clone()));
    // `sglang-gen2` and `ema-tier` are written as the same flat file as `sglang-gen1`, with sorted candidates.
    let second = EmaTier { candidates: vec![8, 2, 4], off_list: OffList::Add, ..tiers.clone() };
    for other in [PolicySpec::SglangGen2(second), PolicySpec::EmaTier(tiers.clone())] {
        assert_eq!(read(&other), PolicySpec::SglangGen1(tiers.clone()));
    }
    let mut third = SglangGen3 { ceiling_coeff: 1.5, warmup_batches: 0, ..SglangGen3::default() };
    third.slots[1].ema_alpha = Some(0.5);
    third.slots[2].warmup_batches = Some(7);
    let throughput = SglangThroughput {
        switch_hysteresis: 0.1,
        profile_run_batch_sizes: Some(vec![1, 8]),
        profile_run_seq_len: 128,
        ..SglangThroughput::default()
    };
    for policy in [
        PolicySpec::SglangGen3(SglangGen3::default()),
        PolicySpec::SglangGen3(third),
        PolicySpec::SglangThroughput(SglangThroughput::default()),
        PolicySpec::SglangThroughput(throughput),
    ] {
        assert_eq!(read(&policy), policy);
    }
    let error = to_sglang_json(&PolicySpec::Fixed(crate::Fixed { k: 3 })).expect_err("no such file");
    assert!(error.key == "fixed" && error.why.contains("sglang-*"), "{error}");
    let bad = EmaTier { ema_alpha: 3.0, ..EmaTier::default() };
    assert_eq!(to_sglang_json(&PolicySpec::SglangGen1(bad)).expect_err("bad").key, "ema_alpha");
}

#[test]
fn bad_files_name_the_key() {
    for (text, key, why) in [
        ("[1, 3]", "the file", "must be a JSON object, not a list"),
        ("{", "the file", "is not JSON"),
        (r#"{"candidate_steps": [3, 1, 7]}"#, "candidate_steps", "SGLang runs [1, 3, 7]"),
        (r#"{"candidate_steps": [1, 3, 3]}"#, "candidate_steps", "is not ascending"),
        (r#"{"candidate_steps": [3]}"#, "candidate_steps", "at least 2"),
        (r#"{"candidate_steps": [0, 3]}"#, "candidate_steps", "0 is not a draft length from 1"),
        (r#"{"candidate_steps": [1, 3.5]}"#, "candidate_steps", "whole numbers"),
        (r#"{"candidate_steps": 3}"#, "candidate_steps", "must be a list"),
        (r#"{"candidate_steps": [1, true]}"#, "candidate_steps", "whole numbers"),
        (r#"{"candidates": [1, 3]}"#, "candidates", "is no key"),
        (r#"{"ema_alpha": "0.2"}"#, "ema_alpha", "must be a number, not a string"),
        (r#"{"ema_alpha": 2}"#, "ema_alpha", "not a share"),
        (r#"{"warmup_batches": -1}"#, "warmup_batches", "whole number"),
        (r#"{"update_interval": 0}"#, "update_interval", "at least 1"),
        (r#"{"strategy": "ema"}"#, "the file", "has no batch-size key"),
        (r#"{"strategy": "best", "1": {}}"#, "strategy", "\"throughput_aware\""),
        (r#"{"strategy": 1, "1": {}}"#, "strategy", "\"ema\""),
        (r#"{"1": [1, 3]}"#, "1", "must be an object"),
        (r#"{"0": {"candidate_steps": [1, 3]}}"#, "0", "not a batch size"),
        (r#"{"8": {"candidate_steps": [1]}, "08": {"candidate_steps": [2]}}"#, "8", "twice"),
        (r#"{"8": {}}"#, "8.candidate_steps", "is missing"),
        (r#"{"8": {"candidate_steps": []}}"#, "8.candidate_steps", "at least 1"),
        (
            r#"{"1": {"candidate_steps": [1, 3]}, "8": {"candidate_steps": [3, 1]}}"#,
            "8.candidate_steps",
            "not ascending",
        ),
        (r#"{"1": {"candidate_steps": [3]}, "8": {"candidate_steps": [3]}}"#, "slots", "use fixed"),
        (r#"{"1": {"candidate_steps": [1, 3], "steps": 3}}"#, "1.steps", "is no key"),
        (r#"{"1": {"candidate_steps": [1, 3], "ema_alpha": 2}}"#, "slots", "batch size 1: ema_alpha"),
        (r#"{"1": {"candidate_steps": [1, 3]}, "candidate_steps": [1]}"#, "candidate_steps", "beside batch sizes"),
        (r#"{"1": {"candidate_steps": [1, 3]}, "window_size": 3}"#, "window_size", "is no key"),
        (r#"{"strategy": "throughput_aware"}"#, "the file", "has no batch-size key"),
        (r#"{"strategy": "throughput_aware", "1": {"candidate_steps": [0, 1]}}"#, "1.candidate_steps", "from 1"),
        (
            r#"{"strategy": "throughput_aware", "1": {"candidate_steps": [1, 2]}, "ema_alpha": 1}"#,
            "ema_alpha",
            "is no key",
        ),
        (r#"{"strategy": "throughput_aware", "1": {"candidate_steps": [1, 2]}, "window_size": 0}"#, "window_size", "1"),
    ] {
        let error = from_sglang_json(text).expect_err(text);
        assert!(error.key.contains(key) && error.why.contains(why), "{text}: {error}");
    }
}
