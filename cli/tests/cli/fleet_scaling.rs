//! Tests of fleets whose number of replicas a scaling rule changes: results, equality with a fleet of fixed size, and
//! refused settings.

use crate::support::Place;
use serde_json::Value;

const EXPERIMENT: &str = r#"
name = "day"
seeds = [1, 2]
policies = [{ autoregressive = {} }, { fixed = { k = 3 } }]

[hardware]
target = { linear = { alpha_s = 1e-7, gamma_s = 2e-4, delta_s = 0.02 } }
draft = { linear = { alpha_s = 1e-8, gamma_s = 1e-5, delta_s = 0.002 } }

[engine]
num_gpu_blocks = 400
max_num_seqs = 16

[fleet]
replicas = 2
router = "least-requests"

[workload]
arrivals = { servegen-day = { rate = 20.0, day_s = 60.0, tau_s = 5.0 } }
lengths = { fixed = { prompt = 64, output = 32 } }
duration_s = 60.0

[acceptance.source]
constant = { rate = 0.7 }

[slo]
ttft_s = 0.3
tpot_s = 0.05
"#;

fn scaling(rule: &str, more: &str) -> String {
    format!("fleet.scaling={{ rule = {{ {rule} = {{}} }}, max_replicas = 6, boot_s = 3.0, interval_s = 1.0{more} }}")
}

#[test]
fn a_fixed_rule_gives_the_bytes_of_a_fleet_without_scaling() {
    let place = Place::holding(EXPERIMENT);
    place.run_drawn("plain", &["--no-figures"]);
    let set = scaling("fixed", "");
    place.run_drawn("fixed", &["--no-figures", "--set", &set]);
    for name in ["summary", "requests", "positions", "series", "lengths", "calibration", "replicas", "replica_series"] {
        let read = |out: &str| std::fs::read(place.path(&format!("{out}/{name}.parquet"))).unwrap();
        assert!(read("plain") == read("fixed"), "{name}");
    }
    for name in ["lives", "replica_counts", "decisions"] {
        let path = |out: &str| place.path(&format!("{out}/{name}.parquet"));
        assert!(path("fixed").exists() && !path("plain").exists(), "{name}");
    }
}

#[test]
fn the_report_has_the_costs() {
    let place = Place::holding(EXPERIMENT);
    for rule in ["llm-d", "dynamo-planner", "fixed"] {
        let set = scaling(rule, "");
        let args = ["--no-figures", "--format", "json", "--set", &set];
        let report: Value = serde_json::from_str(&place.run_drawn(rule, &args)).unwrap();
        for policy in report["variants"][0]["policies"].as_array().unwrap() {
            let mean = |name: &str| policy["scaled"][name]["mean"].as_f64().unwrap();
            let parts = mean("booting_gpu_hours") + mean("serving_gpu_hours") + mean("draining_gpu_hours");
            assert!((mean("gpu_hours") - parts).abs() < 1e-9);
            let missed = (1.0 - policy["slo_attainment"]["mean"].as_f64().unwrap()) * 1200.0;
            assert!((mean("slo_misses") - missed).abs() < 0.3 * missed + 5.0, "{missed}");
            assert_eq!(mean("decisions") > 0.0, rule != "fixed", "{rule}: {policy}");
            assert!(mean("most_replicas") >= 2.0);
        }
    }
    let text = place.run_drawn("text", &["--no-figures", "--set", &scaling("llm-d", "")]);
    assert!(text.contains("GPU") && text.contains("misses") && text.contains("1 to 6 replicas by llm-d"), "{text}");
}

#[test]
fn clear_errors() {
    let place = Place::holding(EXPERIMENT);
    let (fixed, llm_d) = (|more: &str| scaling("fixed", more), scaling("llm-d", ""));
    let set = |rule: &str| format!("fleet.scaling={{ rule = {{ {rule} }}, max_replicas = 6, boot_s = 3.0 }}");
    let negative = "fleet.scaling.boot_s=-1.0".to_owned();
    for (sets, what, help) in [
        (vec![fixed(", min_replicas = 7")], "7 is more than max_replicas = 6", "raise max_replicas"),
        (vec![fixed(", min_replicas = 0")], "0 replicas serve nothing", "1 or more"),
        (vec!["fleet.replicas=9".into(), fixed("")], "starts with fleet.replicas = 9", "choose fleet.replicas"),
        (vec![fixed(""), negative], "fleet.scaling.boot_s: -1 is not a time", "until it serves"),
        (vec![fixed(""), "fleet.scaling.interval_s=0.0".into()], "0 is not a time from 0.1", "two decisions"),
        (vec![fixed(", signals = { interval_s = 0.0 }")], "fleet.scaling.signals.interval_s: 0", "fleet.signals"),
        (vec![fixed(""), "fleet.scaling.max_replicas=5000".into()], "more than 1000", "a part of the fleet"),
        (vec![llm_d.clone(), "fleet.router=dynamo-kv".into()], "cannot join and leave the router dynamo-kv", "vllm-dp"),
        (vec![llm_d.clone(), "fleet.replicas=[{ count = 1 }, { count = 1 }]".into()], "one kind grows", "replicas = 2"),
        (
            vec![
                llm_d.clone(),
                "fleet.replicas=[{ count = 1, role = \"prefill\" }, { count = 1, role = \"decode\" }]".into(),
                "fleet.link={ bandwidth_gb_s = 1.0, kv_bytes_token = 1e5, draft_kv = false }".into(),
            ],
            "replicas with roles cannot boot and drain",
            "remove fleet.scaling",
        ),
        (vec![set("llm-d = { kv_cache_threshold = 1.5 }")], "rule.llm-d.kv_cache_threshold: 1.5 is not a share", ""),
        (vec![set("dynamo-planner = { itl_s = 0.0 }")], "rule.dynamo-planner.itl_s: 0 is not a time above 0 s", ""),
        (
            vec![set("dynamo-planner = { throughput_scaling = false, load_scaling = false }")],
            "the planner decides nothing",
            "",
        ),
        (vec![set("keda = {}")], "keda", "llm-d"),
    ] {
        let args: Vec<&str> = sets.iter().flat_map(|set| ["--set", set.as_str()]).collect();
        let output = place.foretoken().args(["run", "x.toml", "-o", "bad"]).args(args).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
        let said = said.replace("│ ", "");
        assert_eq!(output.status.code(), Some(2), "{sets:?}: {said}");
        assert!(said.contains(what) && said.contains(help), "{sets:?}: {said}");
    }
    let args = ["fleet", "x.toml", "-o", "bad", "--set", "fleet.price_gpu_hour=2.0", "--set", &llm_d];
    let output = place.foretoken().args(args).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && said.contains("remove fleet.scaling"), "{said}");
}
