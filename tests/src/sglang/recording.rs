//! What a recording of SGLang says (`tests/sglang/README.md`), as our engine takes and writes it.

use foretoken_sim::{
    AskedOutput, DraftMethod, EngineConfig, QueueOrder, Request, SchedulingPolicy, SglangSettings, Time, Version,
    Workload,
};
use serde_json::{Value, json};
use std::collections::VecDeque;

/// The first output token of request `n` is `OUTPUT + SPAN * n`; `EOS` ends an output (`tests/sglang/workloads.py`).
const SPAN: u64 = 1 << 12;
const OUTPUT: u64 = 1 << 20;
const EOS: u64 = 2;

pub(super) fn us(time: u64) -> Time {
    Time(time * 1_000_000)
}

pub(super) fn number(v: &Value) -> i64 {
    v.as_i64().unwrap_or(0)
}

pub(super) fn list(v: &Value) -> &[Value] {
    v.as_array().map_or(&[], Vec::as_slice)
}

/// The requests in the order of their arrivals, in which our engine numbers them.
pub(super) fn order(line: &Value) -> Vec<usize> {
    let requests = list(&line["requests"]);
    let mut order: Vec<usize> = (0..requests.len()).collect();
    order.sort_by_key(|&i| (number(&requests[i]["at"]), i));
    order
}

pub(super) fn workload(line: &Value, order: &[usize]) -> Workload {
    let requests = list(&line["requests"]);
    let high_first = line["settings"]["schedule_low_priority_values_first"] == false;
    let mut asked = Vec::new();
    let mut workload: Workload = order
        .iter()
        .map(|&i| {
            let r = &requests[i];
            let runs = list(&r["prompt"]);
            let prompt: Vec<u64> = runs
                .iter()
                .flat_map(|run| {
                    let first = number(&run[0]) as u64;
                    first..first + number(&run[1]) as u64
                })
                .collect();
            let ignore_eos = r["ignore_eos"] == true;
            let max_new_tokens = number(&r["max_new_tokens"]) as u32;
            asked.push(AskedOutput { max_new_tokens, ignore_eos });
            let eos = r["eos_after"].as_u64().map(|eos| eos as u32);
            let output = eos.filter(|_| !ignore_eos).map_or(max_new_tokens, |eos| eos.min(max_new_tokens));
            let token = |p: u32| match eos {
                Some(eos) if p + 1 == eos => EOS,
                _ => OUTPUT + SPAN * i as u64 + u64::from(p),
            };
            let priority = number(&r["priority"]) as i32;
            Request {
                priority: if high_first { -priority } else { priority },
                // A pass that is too many goes on behind the end of an output.
                prefix: prompt.iter().copied().chain((0..output + 64).map(token)).collect(),
                ..Request::new(us(number(&r["at"]) as u64), prompt.len() as u32, output.max(1))
            }
        })
        .collect();
    workload.prefix_block = 1;
    workload.asked = asked;
    workload
}

pub(super) fn config(line: &Value) -> EngineConfig {
    let (s, d) = (&line["settings"], &line["derived"]);
    let page = number(&d["page_size"]) as u32;
    let most = |key: &str| number(&d[key]) as u32;
    EngineConfig {
        version: Version::Sglang0_5_23,
        method: DraftMethod::Eagle,
        block_size: page,
        num_gpu_blocks: most("kv_tokens") / page,
        max_model_len: most("max_req_len") + 1,
        max_num_seqs: most("max_running_requests"),
        max_draft_len: longest(s),
        async_scheduling: Some(d["overlap"] == true),
        prefix_caching: s["disable_radix_cache"] == false,
        draft_prefill: false,
        scheduling_policy: match s["enable_priority_scheduling"] == true {
            true => SchedulingPolicy::Priority,
            false => SchedulingPolicy::Fcfs,
        },
        sglang: SglangSettings {
            chunked_prefill_size: number(&d["chunked_prefill_size"]).max(0) as u32,
            max_prefill_tokens: most("max_prefill_tokens"),
            enable_mixed_chunk: d["mixed"] == true,
            schedule_policy: serde_json::from_value::<QueueOrder>(d["schedule_policy"].clone()).expect("an order"),
            schedule_conservativeness: s["schedule_conservativeness"].as_f64().expect("a number"),
            prefill_max_requests: s["prefill_max_requests"].as_u64().map(|most| most as u32),
            max_queued_requests: s["max_queued_requests"].as_u64().map(|most| most as u32),
            prefill_decode_interval: number(&s["prefill_decode_interval"]) as u32,
            prefill_decode_interval_min_bs: number(&s["prefill_decode_interval_min_bs"]) as u32,
            scheduler_recv_interval: number(&s["scheduler_recv_interval"]) as u32,
            priority_scheduling_preemption_threshold: number(&s["priority_scheduling_preemption_threshold"]) as i32,
            radix_eviction_policy: serde_json::from_value(s["radix_eviction_policy"].clone()).expect("a policy"),
            tlru_tail: {
                let tail = &s["radix_eviction_policy_config"];
                (number(&tail["threshold"]) - number(&tail["next_prompt_estimate"])).max(1) as u32
            },
            retraction_policy: serde_json::from_value(s["retraction_policy"].clone()).expect("a policy"),
            disable_priority_preemption: d["preemption"] == false,
            speculative_max_running_requests: None,
            max_new_tokens: None,
        },
        ..EngineConfig::default()
    }
}

/// The longest draft that the settings allow.
pub(super) fn longest(settings: &Value) -> u32 {
    let tiers = settings["adaptive"].as_object().into_iter().flat_map(|tiers| tiers.values());
    let steps = tiers.flat_map(|tier| list(&tier["candidate_steps"])).map(|step| number(step) as u32);
    steps.max().unwrap_or(number(&settings["drafts"]) as u32)
}

/// The draft length of each decode batch.
pub(super) fn drafts_of_batches(line: &Value) -> VecDeque<u32> {
    let runs = list(&line["events"]).iter().filter(|e| e["is"] == "run" && e["mode"] == "decode");
    runs.map(|e| number(&e["rows"][0][1]) as u32 - 1).collect()
}

/// The recorded events as [`Watcher`] writes ours.
pub(super) fn events(line: &Value, order: &[usize]) -> Vec<Value> {
    let place =
        |id: &Value| order.iter().position(|&i| id.as_i64() == Some(i as i64)).map_or(Value::Null, |at| json!(at));
    let places = |ids: &Value| Value::Array(list(ids).iter().map(place).collect());
    let mut events = Vec::new();
    // The first event of the pass. Our engine tells what lost KV in a pass first, then what was given up.
    let mut pass = 0;
    for e in list(&line["events"]) {
        let is = e["is"].as_str().unwrap_or_default();
        if !matches!(is, "retract" | "preempt" | "abort") {
            pass = events.len();
        }
        let losses = |events: &[Value]| pass + events[pass..].iter().filter(|e| e["aborts"].is_null()).count();
        match is {
            "run" => {
                let prompts = number(&e["prompts"]) as usize;
                let extends = e["mode"] != "decode";
                let rows: Vec<Value> = list(&e["rows"])
                    .iter()
                    .enumerate()
                    .map(|(i, row)| {
                        let id = place(&row[0]);
                        match i < prompts {
                            true => json!([id, row[1], row[2], row[3], row[4]]),
                            false => json!([id, row[3], row[4]]),
                        }
                    })
                    .collect();
                events.push(json!({
                    "run": if extends { "prompts" } else { "decode" }, "rows": rows, "waiting": places(&e["waiting"]),
                    "running": places(&e["running"]), "full": e["full"] == 1, "chunked": place(&e["chunked"]),
                    "ratio": e["ratio"], "free": e["free"], "evictable": e["evictable"],
                }));
            }
            "end" => {
                let ended: Vec<Value> = list(&e["requests"]).iter().map(|r| json!([place(&r[0]), r[1]])).collect();
                events.push(json!({"end": ended, "at": e["at"]}));
            }
            "retract" => events.insert(losses(&events), json!({"loses": place(&e["request"])})),
            "preempt" => {
                events.insert(losses(&events), json!({"loses": place(&e["request"]), "to": place(&e["by"])}));
            }
            "abort" => events.push(json!({"aborts": place(&e["request"])})),
            "stuck" | "endless" => events.push(json!(e["is"])),
            _ => {}
        }
    }
    events
}
