//! Tests that every setting of every router has an effect: with another value of the setting, the router chooses
//! another replica in at least one of 3,000 states.

use super::states::{REPLICAS, SEED, State};
use super::*;

/// Settings with a value that differs from the default, for each router that has settings.
const CHANGED: &str = r#"{
    "smg-cache-aware": { "cache_threshold": 0.2, "balance_abs_threshold": 2, "balance_rel_threshold": 3.0,
                         "max_tree_size": 100, "eviction_interval_s": 3000.0 },
    "smg-least-load": { "kv_pressure_weight_s": 2.0, "default_throughput_tok_s": 100.0, "mean_prefill_tokens": 64 },
    "prefix-hash": { "prefix_token_count": 32, "load_factor": 2.0, "balance_abs_threshold": 40, "virtual_nodes": 4 },
    "llm-d-default": { "prefix_weight": 0.5, "queue_weight": 0.1, "kv_weight": 0.1, "max_prefix_blocks": 2,
                       "lru_capacity_per_server": 20 },
    "llm-d-slo": { "epsilon_explore_neg": 0.5, "ttft_weight": 0.1, "tpot_weight": 5.0,
                   "headroom_selection_strategy": "most", "slo_buffer_factor": 3.0 },
    "dynamo-kv": { "overlap_score_credit": 0.2, "overlap_score_credit_decay": 2.0, "prefill_load_scale": 0.1,
                   "decode_active_request_weight": 9.0, "router_temperature": 1.0, "router_ttl_secs": 1.0 },
    "verify-work": { "draft_len": 9.0, "prompt_weight": 0.9, "first_output_len": 2000.0 },
    "clairvoyant": { "prompt_weight": 5.0 }
}"#;

/// The replica that a router chooses in each of 3,000 states. One request is sent in each state. It gets its first
/// token 3 states later. The requests of odd states end 9 states later, the others never end. Few requests are in
/// flight in some states and many in others, so that every limit is reached.
fn decisions(router: &RouterSpec) -> Vec<usize> {
    let steps: Vec<u32> = (0..3000).map(|i| 1 + (i * 37 % 200)).collect();
    let mut ours = router.build(&context(REPLICAS, SEED, &steps));
    let mut seen = vec![Seen::default(); REPLICAS];
    let mut decided = Vec::new();
    for index in 0..3000u64 {
        let State { prompt_len, prefix, in_flight, reports } = State::of(index);
        for ((replica, in_flight), report) in seen.iter_mut().zip(in_flight).zip(reports) {
            replica.in_flight = in_flight;
            if let Some(report) = report {
                let load = Load {
                    running: report.running,
                    waiting: report.waiting,
                    waiting_tokens: report.waiting_tokens,
                    used_blocks: report.kv,
                    usable_blocks: 1000,
                    ..Load::default()
                };
                replica.report = Some(Report { at: Time::ZERO, load, tok_s: f64::from(report.tok_s) });
                replica.reports += 1;
            }
        }
        let now = Time::from_s(0.5 * index as f64);
        decided.push(ours.route(&asked(index as u32, now, &(prompt_len, prefix)), &seen));
        let needs = router.needs();
        let ago = |states: u64| index.checked_sub(states).map(|past| (past as u32, decided[past as usize]));
        if let Some((id, replica)) = ago(3).filter(|_| needs.first_tokens) {
            let (sent, late) = (0.5 * f64::from(id), 0.02 * f64::from(id % 7) + 0.15 * replica as f64);
            ours.first_token(id, replica, Time::from_s(sent + late));
        }
        if let Some((id, replica)) = ago(9).filter(|_| needs.ends && index % 2 == 0) {
            // Replicas differ in their time per token, so that some keep a bound on time per token and others do not.
            let emitted = 50 + 40 * replica as u32;
            let pieces = emitted / (1 + id % 3);
            ours.ended(id, replica, Ended { at: now, emitted, pieces });
        }
    }
    decided
}

#[test]
fn every_setting_of_a_router_acts() {
    let changed: HashMap<String, serde_json::Map<String, serde_json::Value>> = serde_json::from_str(CHANGED).unwrap();
    for router in RouterSpec::all() {
        let serde_json::Value::Object(table) = serde_json::to_value(&router).unwrap() else { panic!("a table") };
        let settings = table[router.name()].as_object().unwrap();
        let usual = decisions(&router);
        for key in settings.keys() {
            let value = changed.get(router.name()).and_then(|values| values.get(key));
            let value = value.unwrap_or_else(|| panic!("{}.{key} has no other value in this test", router.name()));
            let mut other = settings.clone();
            other.insert(key.clone(), value.clone());
            let other: RouterSpec = serde_json::from_value(serde_json::json!({ router.name(): other })).unwrap();
            assert!(decisions(&other) != usual, "{}.{key} = {value} changes no decision", router.name());
        }
    }
}
