//! Tests of fleets: `run` with several replicas, `foretoken fleet`, and refused settings.

use crate::support::Place;
use serde_json::Value;
use std::process::Output;

pub const EXPERIMENT: &str = r#"
name = "many"
seeds = [1, 2]
policies = [{ autoregressive = {} }, { fixed = { k = 3 } }]

[hardware]
target = { linear = { alpha_s = 1e-7, gamma_s = 2e-4, delta_s = 0.02 } }
draft = { linear = { alpha_s = 1e-8, gamma_s = 1e-5, delta_s = 0.002 } }

[engine]
num_gpu_blocks = 4000
max_num_seqs = 16

[workload]
arrivals = { poisson = { rate = 30.0 } }
lengths = { fixed = { prompt = 64, output = 32 } }
requests = 400

[acceptance.source]
constant = { rate = 0.7 }

[slo]
ttft_s = 0.3
tpot_s = 0.05

[capacity]
share = 0.95
requests = 200
warm_up_requests = 20
tolerance = 0.05
"#;

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn foretoken(place: &Place, args: &[&str]) -> Output {
    place.foretoken().args(args).output().unwrap()
}

/// Runs the experiment with the setting `set`. Returns the report as JSON.
fn report(place: &Place, out: &str, set: &str) -> Value {
    serde_json::from_str(&place.run_drawn(out, &["--no-figures", "--format", "json", "--set", set])).unwrap()
}

/// The mean over seeds of the number `name` of a policy in a report.
fn number(report: &Value, policy: &str, name: &str) -> f64 {
    let policies = report["variants"][0]["policies"].as_array().unwrap();
    policies.iter().find(|p| p["policy"] == policy).unwrap()[name]["mean"].as_f64().unwrap()
}

/// The Parquet tables that every results folder has, with or without a fleet: names and bytes.
fn bytes(place: &Place, out: &str) -> Vec<(String, Vec<u8>)> {
    let files = ["summary", "requests", "positions", "series", "lengths", "calibration"];
    let read = |name: &str| (name.to_owned(), std::fs::read(place.path(&format!("{out}/{name}.parquet"))).unwrap());
    files.map(read).to_vec()
}

#[test]
fn a_fleet_of_one_has_the_bytes_of_an_engine() {
    let place = Place::holding(EXPERIMENT);
    let alone = place.run_drawn("alone", &["--no-figures"]);
    for router in ["round-robin", "dynamo-kv", "llm-d-slo"] {
        let set = format!("fleet={{ replicas = 1, router = \"{router}\" }}");
        let one = place.run_drawn(router, &["--no-figures", "--set", &set]);
        assert_eq!(alone, one, "{router}");
        assert_eq!(bytes(&place, "alone"), bytes(&place, router), "{router}");
        assert!(!place.path(&format!("{router}/replicas.parquet")).exists());
    }
}

#[test]
fn two_replicas_behind_round_robin_share_the_load() {
    let place = Place::holding(EXPERIMENT);
    let (two, one) = (report(&place, "two", "fleet.replicas=2"), report(&place, "one", "fleet.replicas=1"));
    assert!(place.path("two/replicas.parquet").exists() && !place.path("one/replicas.parquet").exists());
    for policy in ["autoregressive", "fixed-3"] {
        let e2e = |report: &Value| number(report, policy, "e2e_mean_s");
        assert!(e2e(&two) < e2e(&one), "half of the load is served sooner: {} and {}", e2e(&two), e2e(&one));
    }
}

/// Three replicas with a policy, an engine and hardware of their own: two run the experiment's policy, and the third is
/// faster and never drafts. This fleet is compared with a fleet of three equal replicas. In the run of the policy
/// `autoregressive`, no replica drafts.
#[test]
fn replicas_have_policies_engines_and_hardware_of_their_own() {
    let place = Place::holding(EXPERIMENT);
    let mix = "fleet.replicas=[{ count = 2 }, { count = 1, policy = { autoregressive = {} }, engine = { max_num_seqs = 8 }, hardware = { target = { linear = { delta_s = 0.01 } } } }]";
    let (mix, three) = (report(&place, "mix", mix), report(&place, "three", "fleet.replicas=3"));
    assert_eq!(number(&mix, "autoregressive", "draft_len"), 0.0);
    let (some, all) = (number(&mix, "fixed-3", "draft_len"), number(&three, "fixed-3", "draft_len"));
    assert!(all > 2.5 && some > 0.2 * all && some < 0.9 * all, "two of three replicas draft: {some} of {all}");
    let plain = |report: &Value| number(report, "autoregressive", "e2e_mean_s");
    assert!(plain(&mix) < plain(&three), "the third replica is faster");
}

/// A list of replicas in which the first replica computes prompts for two others.
const SPLIT: &str = "fleet.replicas=[{ count = 1, role = \"prefill\" }, { count = 2, role = \"decode\" }]";
/// The link over which KV is sent. It states the bytes of KV per token, because a linear cost names no model.
const LINK: &str =
    "fleet.link={ bandwidth_gb_s = 1.0, latency_s = 0.002, kv_bytes_token = 1e5, draft_kv_bytes_token = 4e3 }";

/// The report of a run with several settings, as JSON.
fn report_of(place: &Place, out: &str, sets: &[&str]) -> Value {
    let sets = sets.iter().flat_map(|set| ["--set", set]);
    let args: Vec<&str> = ["--no-figures", "--format", "json"].into_iter().chain(sets).collect();
    serde_json::from_str(&place.run_drawn(out, &args)).unwrap()
}

/// A fleet with prefill replicas has other latencies than a fleet without. If the rule for splitting never splits, the
/// latencies equal the latencies of the decode replicas alone. A slower link makes the time to first token longer.
#[test]
fn prompts_are_computed_elsewhere() {
    let place = Place::holding(EXPERIMENT);
    let two = report(&place, "two", "fleet.replicas=2");
    let never = report_of(&place, "never", &[SPLIT, LINK, "fleet.split.when=never"]);
    let always = report_of(&place, "always", &[SPLIT, LINK]);
    let slow = report_of(&place, "slow", &[SPLIT, LINK, "fleet.link.bandwidth_gb_s=0.1"]);
    let first = report_of(&place, "first", &[SPLIT, LINK, "fleet.split.hand_off=decode-first"]);
    for policy in ["autoregressive", "fixed-3"] {
        let of = |report: &Value| ["ttft_mean_s", "tpot_p50_s", "e2e_mean_s"].map(|name| number(report, policy, name));
        assert_eq!(of(&two), of(&never), "{policy}");
        assert!(of(&slow)[0] > of(&always)[0] + 0.05, "64 tokens of 100 kB take 64 ms at 0.1 GB/s");
        assert!(of(&always)[0] > of(&never)[0] && of(&first)[0] > of(&never)[0], "{policy}");
        assert_ne!(of(&first), of(&always), "{policy}");
    }
}

/// The bytes of KV that are sent follow from the model's shape. They equal the bytes computed by hand here, and so does
/// the time on the link. If the draft model's KV is not sent, only the target's KV is. Requests come one at a time.
#[test]
fn bytes_of_kv_follow_from_the_shape() {
    let costs = "target = { linear = { alpha_s = 1e-7, gamma_s = 2e-4, delta_s = 0.02 } }";
    let model = "target = { roofline = { gpu = \"h100\", model = \"llama-3.1-8b\" } }";
    let place = Place::holding(&EXPERIMENT.replace(costs, model));
    let ttft = |out: &str, policy: &str, link: &str| {
        let load = ["workload.arrivals={ closed-loop = 1 }", "workload.requests=3", "engine.draft_at=step-start"];
        let lone = ["fleet.replicas=[{ count = 1, role = \"prefill\" }, { count = 1, role = \"decode\" }]", link];
        number(&report_of(&place, out, &[load.as_slice(), &lone].concat()), policy, "ttft_mean_s")
    };
    let link = |gb_s: &str, draft: &str| format!("fleet.link={{ bandwidth_gb_s = {gb_s}, {draft} }}");
    let (kept, moved) = ("draft_kv = false", "draft_kv_bytes_token = 4096.0");
    // 64 prompt tokens have keys and values in 32 layers with 8 heads of 128 numbers, 2 bytes each.
    let target = 2.0 * 32.0 * 8.0 * 128.0 * 2.0 * 64.0;
    let takes = |policy: &str, draft: &str| {
        let slow = ttft(&format!("slow-{policy}-{}", draft.len()), policy, &link("0.01", draft));
        slow - ttft(&format!("fast-{policy}-{}", draft.len()), policy, &link("inf", draft))
    };
    let close = |takes: f64, bytes: f64| assert!((takes - bytes / 1e7).abs() < 1e-6, "{takes} s for {bytes} bytes");
    close(takes("autoregressive", moved), target);
    close(takes("fixed-3", kept), target);
    close(takes("fixed-3", moved), target + 4096.0 * 64.0);
}

#[test]
fn clear_errors() {
    let place = Place::holding(EXPERIMENT);
    let trace = "workload={ arrivals = { poisson = { rate = 30.0 } }, lengths = { fixed = { prompt = 64, output = 32 } }, requests = 40 }";
    let unlike =
        "fleet={ router = \"dynamo-kv\", replicas = [{ count = 1 }, { count = 1, engine = { block_size = 32 } }] }";
    for (sets, what, help) in [
        (vec!["fleet.replicas=0"], "0 replicas serve nothing", "1 or more"),
        (vec!["fleet.replicas=[]"], "the list is empty", "replicas = 2"),
        (vec!["fleet.replicas=-3"], "not a number of replicas", ""),
        (vec!["fleet.replicas=100000"], "more than 1000", "a part of the fleet"),
        (vec!["fleet.router=round-robbin"], "unknown name `round-robbin`", "did you mean `round-robin`"),
        (vec!["fleet.router={ power-of-two = { choices = 3 } }"], "unknown key `choices`", ""),
        (vec!["fleet.router={ smg-cache-aware = { cache_threshold = 2.0 } }"], "not a share from 0 to 1", ""),
        (vec!["fleet.signals={ interval_s = 0.0 }"], "0 is not a time of at least 0.0001 s", ""),
        (vec!["fleet.signals={ interval_s = 1.0, delay_s = -1.0 }"], "-1 is not a time of at least 0 s", ""),
        (vec![unlike], "blocks of 16 and 32 tokens", "one engine.block_size"),
        (
            vec!["fleet.replicas=[{ count = 1, engine = { max_num_seq = 8 } }]"],
            "unknown key `max_num_seq`",
            "did you mean `max_num_seqs`",
        ),
        (vec![trace, "fleet.price_gpu_hour=-1.0"], "not a price above 0", "2.5"),
        (vec!["fleet.replicas=[{ count = 1, role = \"prefill\" }]"], "no other to share requests with", "add replicas"),
        (vec!["fleet.replicas=[{ count = 2, role = \"prefill\" }]", LINK], "no replica decodes", "role = \"decode\""),
        (
            vec!["fleet.replicas=[{ count = 2, role = \"decode\" }]", LINK],
            "no replica computes prompts",
            "role = \"prefill\"",
        ),
        (vec!["fleet.replicas=[{ count = 2, role = \"encode\" }]"], "unknown name `encode`", ""),
        (vec![SPLIT], "fleet.link is missing", "bandwidth_gb_s = 50.0"),
        (vec![SPLIT, LINK, "fleet.link.bandwidth_gb_s=0.0"], "0 is not a bandwidth of at least 0.001", ""),
        (vec![SPLIT, LINK, "fleet.link.latency_s=-1.0"], "-1 is not a time of at least 0 s", ""),
        (
            vec![SPLIT, "fleet.link={ bandwidth_gb_s = 1.0 }"],
            "fleet.link.kv_bytes_token is missing",
            "kv_bytes_token = 131072",
        ),
        (
            vec![SPLIT, "fleet.link={ bandwidth_gb_s = 1.0, kv_bytes_token = 1e5 }"],
            "fleet.link.draft_kv_bytes_token is missing",
            "draft_kv = false",
        ),
        (
            vec![
                "fleet.replicas=[{ count = 1, role = \"prefill\", engine = { block_size = 32 } }, { count = 1, role = \"decode\" }]",
                LINK,
            ],
            "KV blocks of 32 and 16 tokens",
            "one engine.block_size",
        ),
        (
            vec![
                "fleet.replicas=[{ count = 1, role = \"prefill\", hardware = { target = { roofline = { gpu = \"h100\", model = \"llama-2-7b\" } } } }, { count = 1, role = \"decode\", hardware = { target = { roofline = { gpu = \"h100\", model = \"llama-3.1-8b\" } } } }]",
                LINK,
            ],
            "the target is llama-2-7b on one replica and llama-3.1-8b on another",
            "one hardware.target",
        ),
        (
            vec![SPLIT, LINK, "engine.version=vllm-v0", "engine.max_model_len=2000"],
            "which vllm-v0 (engine.version) cannot",
            "vllm-0.33",
        ),
        (
            vec![SPLIT, LINK, "fleet.split.when={ dynamo = { eff_isl_ratio_threshold = -1.0 } }"],
            "-1 is not a share of at least 0",
            "",
        ),
    ] {
        let args: Vec<&str> = sets.iter().flat_map(|set| ["--set", set]).collect();
        let output = foretoken(&place, &[&["run", "x.toml", "-o", "bad"], args.as_slice()].concat());
        let said = stderr(&output).split_whitespace().collect::<Vec<_>>().join(" ");
        let said = said.replace("│ ", "");
        assert_eq!(output.status.code(), Some(2), "{sets:?}: {said}");
        assert!(said.contains(what) && said.contains(help), "{sets:?}: {said}");
    }
}

#[test]
fn a_search_says_what_is_missing() {
    let place = Place::holding(EXPERIMENT);
    let price = "fleet.price_gpu_hour=2.0";
    for (sets, what) in [
        (vec![], "the experiment has no [fleet]"),
        (vec!["fleet.router=random"], "fleet.price_gpu_hour is missing"),
        (vec![price, "fleet.replicas=[{ count = 2 }]"], "fleet.replicas lists kinds"),
        (vec![price, "slo={}"], "the experiment has no SLO"),
        (vec![price, "workload.arrivals={ closed-loop = 4 }"], "a closed loop has no rate of its own"),
        (vec![price, "workload.requests=30", "capacity.share=0.99", "capacity.requests=1000"], "too few for a share"),
    ] {
        let args: Vec<&str> = sets.iter().flat_map(|set| ["--set", set]).collect();
        let output = foretoken(&place, &[&["fleet", "x.toml", "-o", "bad"], args.as_slice()].concat());
        let said = stderr(&output).split_whitespace().collect::<Vec<_>>().join(" ").replace("│ ", "");
        assert_eq!(output.status.code(), Some(2), "{sets:?}: {said}");
        assert!(said.contains(what), "{sets:?}: {said}");
    }
}

const PRICE: [&str; 2] = ["--set", "fleet.price_gpu_hour=2.0"];

#[test]
fn the_fewest_replicas_are_found_and_an_interrupted_search_resumes() {
    let place = Place::holding(EXPERIMENT);
    let done = foretoken(&place, &[&["fleet", "x.toml", "-o", "whole"], PRICE.as_slice()].concat());
    assert!(done.status.success(), "{}", stderr(&done));
    let text = String::from_utf8(done.stdout).unwrap();
    for words in [
        "the fewest GPUs with which 95 % of requests keep TTFT within 300 ms",
        "three ways",
        "by division",
        "no drafts",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let json = |out: &str| -> Value {
        serde_json::from_slice(&std::fs::read(place.path(&format!("{out}/fleet.json"))).unwrap()).unwrap()
    };
    let whole = json("whole");
    for fleet in whole["fleets"].as_array().unwrap() {
        let (replicas, cost) = (fleet["replicas"].as_u64().unwrap(), fleet["cost_hour"].as_f64().unwrap());
        assert_eq!(cost, 2.0 * replicas as f64);
        for seed in fleet["seeds"].as_array().unwrap() {
            let probes = seed["probes"].as_array().unwrap();
            let carried = |n: u64| probes.iter().find(|p| p["replicas"] == n).map(|p| p["carried"].as_bool().unwrap());
            let fewest = seed["replicas"].as_u64().unwrap();
            assert_eq!(carried(fewest), Some(true));
            assert!(fewest == 1 || carried(fewest - 1) == Some(false), "one replica fewer does not carry it");
            assert!(seed["perfect"]["peak"].as_u64().unwrap() <= fewest + 1);
        }
    }
    assert!(place.path("whole/figures/frontier.svg").exists());
    let headline = whole["headlines"][0].as_str().unwrap();
    assert!(headline.contains(" this load for ") && text.contains(headline), "{headline}");
    let page = std::fs::read_to_string(place.path("whole/fleet.html")).unwrap();
    for words in
        [headline, "The same GPUs, three ways", "Where drafts stop paying", "without drafts over that with", "2 seeds"]
    {
        assert!(page.contains(words), "{words}");
    }

    // A killed search keeps the results of the fleets that it tried. When the search is resumed, it continues and finds
    // the same numbers as an undisturbed search.
    let mut running = std::process::Command::new(env!("CARGO_BIN_EXE_foretoken"));
    running.current_dir(place.path(".")).args(["fleet", "x.toml", "-o", "killed"]).args(PRICE);
    let mut running = running.stderr(std::process::Stdio::null()).stdout(std::process::Stdio::null()).spawn().unwrap();
    let kept = || std::fs::read_dir(place.path("killed/probes")).map_or(0, Iterator::count);
    while kept() == 0 && running.try_wait().unwrap().is_none() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    running.kill().unwrap();
    running.wait().unwrap();
    let resumed = foretoken(&place, &[&["fleet", "x.toml", "-o", "killed", "--resume"], PRICE.as_slice()].concat());
    assert!(resumed.status.success(), "{}", stderr(&resumed));
    assert_eq!(whole, json("killed"), "a resumed search gives the same answer");

    let again = foretoken(&place, &[&["fleet", "x.toml", "-o", "again", "--threads", "1"], PRICE.as_slice()].concat());
    assert!(again.status.success(), "{}", stderr(&again));
    assert_eq!(whole, json("again"), "the same answer on one thread");
    for name in ["fleet.json", "fleet.txt", "fleet.parquet"] {
        let read = |out: &str| std::fs::read(place.path(&format!("{out}/{name}"))).unwrap();
        assert_eq!(read("whole"), read("again"), "{name}");
    }
}

#[test]
fn a_load_that_no_fleet_carries_is_said() {
    let place = Place::holding(EXPERIMENT);
    let sets = ["--set", "slo.tpot_s=0.001", "--set", "fleet.most_replicas=3"];
    let done = foretoken(&place, &[&["fleet", "x.toml", "-o", "none"], PRICE.as_slice(), sets.as_slice()].concat());
    assert!(done.status.success(), "{}", stderr(&done));
    let text = String::from_utf8(done.stdout).unwrap();
    assert!(text.contains("more than 3") && text.contains("no fleet of up to 3 replicas keeps the bounds"), "{text}");
}

#[test]
fn each_swept_price_prices_its_own_fleets() {
    let place = Place::holding(EXPERIMENT);
    let price = "fleet.price_gpu_hour={ sweep = [2.0, 3.0] }";
    let done = foretoken(&place, &["fleet", "x.toml", "-o", "prices", "--set", price]);
    assert!(done.status.success(), "{}", stderr(&done));
    let text = String::from_utf8(done.stdout).unwrap();
    assert!(text.contains("a GPU costs 2 to 3 an hour, as swept"), "{text}");
    let json: Value = serde_json::from_slice(&std::fs::read(place.path("prices/fleet.json")).unwrap()).unwrap();
    let fleets = json["fleets"].as_array().unwrap();
    assert_eq!(fleets.len(), 4, "two policies at two prices");
    for (i, fleet) in fleets.iter().enumerate() {
        let price = if i < 2 { 2.0 } else { 3.0 };
        assert_eq!(fleet["price_gpu_hour"].as_f64(), Some(price));
        assert_eq!(fleet["cost_hour"].as_f64().unwrap(), price * fleet["replicas"].as_f64().unwrap());
    }
}

/// A roofline counts no host time. With that of a measured server, as many replicas with drafting answer later than
/// without: the text, the page and JSON name both answers.
#[test]
fn a_fleet_that_host_time_turns_round_says_so() {
    let text = EXPERIMENT
        .replace("{ linear = { alpha_s = 1e-7, gamma_s = 2e-4, delta_s = 0.02 } }", &roofline("vicuna-7b"))
        .replace("{ linear = { alpha_s = 1e-8, gamma_s = 1e-5, delta_s = 0.002 } }", &roofline("vicuna-68m"))
        .replace("num_gpu_blocks = 4000\nmax_num_seqs = 16", "max_num_seqs = 128")
        .replace("seeds = [1, 2]", "seeds = [1]")
        .replace("rate = 30.0", "rate = 40.0")
        .replace("prompt = 64, output = 32", "prompt = 256, output = 128")
        .replace("requests = 400", "requests = 600")
        .replace("ttft_s = 0.3\ntpot_s = 0.05", "ttft_s = 0.5\ntpot_s = 0.04");
    let place = Place::holding(&(text + "[fleet]\nrouter = \"round-robin\"\nprice_gpu_hour = 2.0\n"));
    let done = foretoken(&place, &["fleet", "x.toml", "-o", "out"]);
    assert!(done.status.success(), "{}", stderr(&done));
    let text = String::from_utf8(done.stdout).unwrap();
    let json: Value = serde_json::from_slice(&std::fs::read(place.path("out/fleet.json")).unwrap()).unwrap();
    let host = &json["host"][0];
    assert_eq!((&host["turns"], &host["policy"]), (&true.into(), &"fixed-3".into()), "{text}");
    assert_eq!(host["drafting"]["replicas"], host["plain"]["replicas"], "{host}");
    assert!(host["drafting"]["e2e_mean_s"].as_f64() > host["plain"]["e2e_mean_s"].as_f64(), "{host}");
    let page = std::fs::read_to_string(place.path("out/fleet.html")).unwrap();
    for shown in [&text, &page] {
        assert!(shown.contains("Depends on your host: calibrate. Without host time "), "{shown}");
        assert!(shown.contains("With the host time of a measured server (SGLang, EAGLE-3"), "{shown}");
    }
    let set = "engine.step_overhead_s=0.001";
    let counted = foretoken(&place, &["fleet", "x.toml", "-o", "counted", "--no-figures", "--set", set]);
    assert!(counted.status.success() && !String::from_utf8(counted.stdout).unwrap().contains("host time"));
}

fn roofline(model: &str) -> String {
    format!("{{ roofline = {{ floors = false, gpu = \"a100-80g\", model = \"{model}\" }} }}")
}
