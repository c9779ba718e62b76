//! `foretoken capacity`: its output, files and page, which must not depend on the number of threads; workloads that are
//! read from a request log; refused experiments.

use crate::support::Place;
use serde_json::Value;
use std::process::Output;

pub const EXPERIMENT: &str = r#"
name = "carry"
seeds = [1, 2]
policies = [{ autoregressive = {} }, { fixed = { k = { sweep = [1, 3] } } }]

[hardware]
target = { linear = { alpha_s = 1e-7, gamma_s = 2e-4, delta_s = 0.02 } }
draft = { linear = { alpha_s = 1e-8, gamma_s = 1e-5, delta_s = 0.002 } }

[engine]
num_gpu_blocks = 4000
max_num_seqs = 16

[workload]
arrivals = { poisson = { rate = 2.0 } }
lengths = { fixed = { prompt = 64, output = 32 } }

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

fn capacity(place: &Place, out: &str, more: &[&str]) -> Output {
    place.foretoken().args(["capacity", "x.toml", "-o", out]).args(more).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn the_same_bytes_on_any_number_of_threads() {
    let place = Place::holding(EXPERIMENT);
    for (out, threads) in [("one", "1"), ("two", "2")] {
        let done = capacity(&place, out, &["--threads", threads]);
        assert!(done.status.success(), "{}", stderr(&done));
        let text = String::from_utf8(done.stdout).unwrap();
        assert!(text.contains("95 % of requests keep TTFT within 300 ms, TPOT within 50 ms"), "{text}");
        for policy in ["autoregressive", "fixed-1", "fixed-3"] {
            assert!(text.contains(policy), "{text}");
        }
    }
    for name in [
        "capacity.json", "capacity.txt", "capacity.parquet", "probes.parquet", "capacity.html", "figures/capacity.svg",
        "figures/attainment-over-rate.svg",
    ] {
        let [one, two] = ["one", "two"].map(|out| std::fs::read(place.path(&format!("{out}/{name}"))).unwrap());
        assert!(one == two, "{name}");
    }
    assert!(!place.path("one/probes").exists(), "they are in the table");
    let json: Value = serde_json::from_slice(&std::fs::read(place.path("one/capacity.json")).unwrap()).unwrap();
    let rate = |i: usize| json["capacities"][i]["req_s"]["mean"].as_f64().unwrap();
    assert!(rate(1) > 1.1 * rate(0), "drafts that hold carry more: {} and {}", rate(0), rate(1));
    let again = capacity(&place, "one", &["--resume", "--format", "json"]);
    assert!(again.status.success(), "{}", stderr(&again));
    assert_eq!(serde_json::from_slice::<Value>(&again.stdout).unwrap(), json);
}

#[test]
fn experiments_without_a_rate_to_search_are_refused() {
    let place = Place::holding(EXPERIMENT);
    for (sets, said) in [
        (&["--set", "capacity.bracket=[9.0, 1.0]"][..], "is upside down"),
        (&["--set", "slo={}"], "has no SLO"),
        (&["--set", "workload.arrivals={ closed-loop = 2 }"], "a closed loop has no rate of its own"),
        (&["--set", "capacity.share=1.5"], "is not a share"),
        (&["--set", "capacity.tolerance=1e-300"], "1e-300 is not in [0.0001, 0.5]"),
        (&["--set", "capacity.tolerance=0"], "is not in [0.0001, 0.5]"),
        (&["--set", "capacity.tolerance=nan"], "is not in [0.0001, 0.5]"),
        (&["--set", "capacity.tolerance=-1.0"], "is not in [0.0001, 0.5]"),
        (&["--set", "capacity.bracket=[1.0, 2.0, 3.0]"], "there must be two numbers here, not 3"),
    ] {
        let out = capacity(&place, "out", sets);
        assert_eq!(out.status.code(), Some(2), "{}", stderr(&out));
        assert!(stderr(&out).contains(said), "{}", stderr(&out));
        assert!(!place.path("out").exists(), "nothing is left behind: {sets:?}");
    }
    let out = capacity(&place, "out", &["--set", "slo.ttft_s=0.001"]);
    assert!(out.status.success(), "{}", stderr(&out));
    assert!(String::from_utf8_lossy(&out.stdout).contains("no rate is carried, however low"));
    // If no request can ever run, the answer says so in the words of `foretoken run`.
    let out = capacity(&place, "few", &["--set", "engine.num_gpu_blocks=3"]);
    assert!(out.status.success(), "{}", stderr(&out));
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    let why = "can ever fit: the prompt is longer than the KV pool: 2 blocks, 32 tokens";
    assert!(said.contains("no rate is carried") && said.contains(why), "{said}");
}

/// The experiment with a log of `requests` requests instead of the generated load. In the log a request arrives about
/// every 0.5 s.
fn with_a_log(requests: u32) -> Place {
    let place = Place::holding(
        &EXPERIMENT
            .replace("poisson = { rate = 2.0 }", "trace = { path = \"log.csv\" }")
            .replace("lengths = { fixed = { prompt = 64, output = 32 } }\n", "")
            .replace("seeds = [1, 2]", "seeds = [1]"),
    );
    let gap = |i: u32| 0.3 + 0.4 * f64::from(i * 7919 % 100) / 100.0;
    let rows: String = (0..requests).map(|i| format!("{},64,32\n", (0..i).map(gap).sum::<f64>())).collect();
    std::fs::write(place.path("log.csv"), format!("t_s,input_tokens,output_tokens\n{rows}")).unwrap();
    place
}

#[test]
fn capacity_searches_a_log_and_a_window_of_a_log() {
    let place = with_a_log(400);
    for (sets, said) in [
        (&[][..], "200 of them count, 20 before them fill the server, 20 behind them keep it full, and the other 160"),
        (&["--set", "workload.transform=[{ window = { start_s = 20.0, end_s = 160.0 } }]"], "the log has 2"),
        (&["--set", "capacity.window_s=[40.0, 140.0]"], "rates count the seconds 40 to 140"),
    ] {
        let done = capacity(&place, "out", &[sets, &["--overwrite", "--no-figures"]].concat());
        let text = String::from_utf8_lossy(&done.stdout).into_owned();
        assert!(done.status.success() && text.contains(said), "{sets:?}: {}{text}", stderr(&done));
        assert!(!text.contains("no rate"), "{sets:?}: {text}");
    }
}

#[test]
fn a_log_that_is_too_short_is_refused() {
    let place = with_a_log(150);
    let out = capacity(&place, "out", &[]);
    assert_eq!(out.status.code(), Some(2), "{}", stderr(&out));
    let said = stderr(&out).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("the log has 150 requests in") && said.contains("capacity.requests=120"), "{said}");
    assert!(!place.path("out").exists(), "nothing is left behind");
}

/// The only bound is on TPOT, and even an overloaded server keeps it. The search must still find a finite capacity: at
/// higher rates the queue grows without end.
#[test]
fn an_overloaded_server_has_no_capacity() {
    let place = Place::holding(EXPERIMENT);
    let out = capacity(&place, "out", &["--set", "slo={ tpot_s = 10.0 }"]);
    assert!(out.status.success(), "{}", stderr(&out));
    let json: Value = serde_json::from_slice(&std::fs::read(place.path("out/capacity.json")).unwrap()).unwrap();
    for of in json["capacities"].as_array().unwrap() {
        let rate = of["req_s"]["mean"].as_f64().unwrap();
        // Sixteen requests run at a time. A request takes 20 to 60 ms for one of its 32 tokens, or for several tokens
        // if draft tokens are accepted.
        assert!((5.0..60.0).contains(&rate), "{rate}");
        assert!(
            of["seeds"].as_array().unwrap().iter().all(|s| s["verdict"] == "rate" && s["limit"] == "queue"),
            "{of}"
        );
    }
}

/// The rate of a Poisson load with few requests varies by chance. This must not be reported as a changing rate.
#[test]
fn a_poisson_load_gets_no_warning_about_a_changing_rate() {
    let place = Place::holding(EXPERIMENT);
    for seed in 1..6 {
        let seeds = format!("seeds=[{seed}]");
        let out = capacity(&place, "out", &["--set", &seeds, "--overwrite", "--no-figures"]);
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(out.status.success() && !text.contains("changes in time"), "{}{text}", stderr(&out));
    }
}

/// The page of a capacity search starts with the best policy, names the load, and contains the experiment.
#[test]
fn the_page_names_the_policy_with_the_highest_capacity() {
    let place = Place::holding(EXPERIMENT);
    let sets = ["--set", "slo.ttft_s={ sweep = [0.3, 0.6] }"];
    for (out, more) in [("one", &[][..]), ("swept", &sets[..])] {
        let done = capacity(&place, out, more);
        assert!(done.status.success(), "{}", stderr(&done));
        let page = std::fs::read_to_string(place.path(&format!("{out}/capacity.html"))).unwrap();
        for part in [
            "carries most: ", "no drafting", "Poisson arrivals, 240 requests, 64 + 32 tokens",
            "The experiment, with every default", "warm_up_requests = 20", "mean and 95 % interval over 2 seeds",
            "seed 1 of 2 seeds, whole runs",
        ] {
            assert!(page.contains(part), "{out}: {part}");
        }
        assert!(!page.contains('…'), "{out}: a caption is cut");
        assert!(!page.contains("class=\"warning\""), "{out}: an answer is no warning");
        if out == "swept" {
            assert!(page.contains("TTFT within 300 ms: ") && page.contains("TTFT within 600 ms"), "rows in words");
        }
    }
}

/// A roofline counts no host time. The answer is searched again with that of a measured server. Where that turns the
/// answer round, the text, the page and JSON say so, with both answers.
#[test]
fn an_answer_that_host_time_turns_round_says_so() {
    let text = EXPERIMENT
        .replace("target = { linear = { alpha_s = 1e-7, gamma_s = 2e-4, delta_s = 0.02 } }", TARGET)
        .replace("draft = { linear = { alpha_s = 1e-8, gamma_s = 1e-5, delta_s = 0.002 } }", DRAFT)
        .replace("num_gpu_blocks = 4000\n", "");
    let text = text
        .replace("prompt = 64, output = 32", "prompt = 256, output = 128")
        .replace("max_num_seqs = 16", "max_num_seqs = 128");
    let slo = "ttft_s = 0.5\ntpot_s = 0.02";
    let place =
        Place::holding(&text.replace("seeds = [1, 2]", "seeds = [1]").replace("ttft_s = 0.3\ntpot_s = 0.05", slo));
    let sets = |host: bool| if host { vec!["--set", "engine.step_overhead_s=0.001"] } else { vec![] };
    let json = |out: &str, host: bool| -> (String, Value) {
        let done = capacity(&place, out, &sets(host));
        assert!(done.status.success(), "{}", stderr(&done));
        let json = std::fs::read(place.path(&format!("{out}/capacity.json"))).unwrap();
        (String::from_utf8(done.stdout).unwrap(), serde_json::from_slice(&json).unwrap())
    };
    let (text, answer) = json("without", false);
    let host = &answer["host"][0];
    let rate = |i: usize| answer["capacities"][i]["req_s"]["mean"].as_f64().unwrap();
    assert!(rate(1) > rate(0) || rate(2) > rate(0), "{text}");
    assert_eq!(host["turns"], true, "{answer}");
    assert!(host["drafting_req_s"].as_f64() < host["plain_req_s"].as_f64(), "{host}");
    let page = std::fs::read_to_string(place.path("without/capacity.html")).unwrap();
    for shown in [&text, &page] {
        assert!(shown.contains("Depends on your host: calibrate. Without host time fixed-"), "{shown}");
        assert!(shown.contains("With the host time of a measured server (SGLang, EAGLE-3"), "{shown}");
    }
    // The same answer when the search is run again on the stored rates, and none of it where host time is counted.
    assert_eq!(json("again", false).1["host"], answer["host"]);
    let (text, counted) = json("counted", true);
    assert!(counted["host"].is_null() && !text.contains("host time"), "{text}");
}

const TARGET: &str = "target = { roofline = { floors = false, gpu = \"a100-80g\", model = \"vicuna-7b\" } }";
const DRAFT: &str = "draft = { roofline = { floors = false, gpu = \"a100-80g\", model = \"vicuna-68m\" } }";
