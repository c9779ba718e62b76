//! `foretoken recommend`: its output, its files, and experiments that it refuses.

use crate::support::Place;
use serde_json::Value;
use std::process::Output;

/// A server whose draft tokens cost little and are mostly accepted.
const EXPERIMENT: &str = include_str!("../../../servers/src/calibrate/stated.toml");

fn recommend(place: &Place, more: &[&str]) -> Output {
    place.foretoken().args(["recommend", "x.toml", "-o", "advice", "--longest", "3"]).args(more).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn recommend_prints_a_length_and_writes_engine_settings() {
    let place = Place::holding(EXPERIMENT);
    let out = recommend(&place, &["--method", "draft_model", "--model", "draft"]);
    assert!(out.status.success(), "{}", stderr(&out));
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(said.starts_with("Run "), "{said}");
    for words in [
        "against plain decoding, as it runs now",
        "now: plain decoding (the first policy of x.toml)",
        "the costs that x.toml states, at most 4 requests at once, at Poisson 1/s: simulated, 2 seeds, 60 requests",
        "at batch 4 K = ",
        "% accepted, has",
        "pays up to the highest load tried (Poisson arrivals, against plain decoding without a loaded drafter)",
        "to paste: --speculative-config '{\"method\":\"draft_model\",\"model\":\"draft\",\"num_speculative_tokens\":",
        "confirm: foretoken observe http://HOST:PORT x.toml --set 'policies=[{ fixed = { k = ",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(!said.contains("it lacks"), "method and model are known: {said}");
    let read = |name: &str| std::fs::read(place.path(&format!("advice/{name}"))).unwrap();
    let start: Value = serde_json::from_slice(&read("speculative_config.json")).unwrap();
    assert_eq!((&start["method"], &start["model"]), (&Value::from("draft_model"), &Value::from("draft")));
    let answer: Value = serde_json::from_slice(&read("recommendation.json")).unwrap();
    assert_eq!((&answer["verdict"], &answer["source"]), (&Value::from("change"), &Value::from("simulated")));
    assert!(!read("recommendation.html").is_empty() && !read("gain-over-load.svg").is_empty());
    let again = recommend(&place, &[]);
    assert!(again.status.code() == Some(2) && stderr(&again).contains("holds a recommendation"), "{}", stderr(&again));
    let json = recommend(&place, &["--overwrite", "--format", "json", "--engine", "sglang"]);
    assert!(json.status.success(), "{}", stderr(&json));
    let answer: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(answer["engine"], "sglang");
    assert!(place.path("advice/dspark-sps.json").exists() && !place.path("advice/speculative_config.json").exists());
}

#[test]
fn experiments_without_a_recommendation_are_refused() {
    let place = Place::holding(EXPERIMENT);
    for (more, said) in [
        (&["--objective", "slo"][..], "the experiment promises nothing"),
        (&["--p99-tpot-ms", "0"], "must be above 0"),
        (
            &["--set", "engine.max_num_seqs={ sweep = [2, 4] }"],
            "x.toml sweeps engine.max_num_seqs (2, 4): advice is for one setting",
        ),
        (&["--now", "99"], "invalid value '99' for '--now <K>': 99 is not in 0..=32"),
        (&["--set", "policies=[{ adaspec = {} }]"], "what does the server draft now?"),
    ] {
        let out = recommend(&place, more);
        assert_eq!(out.status.code(), Some(2), "{}", stderr(&out));
        assert!(stderr(&out).contains(said), "{said}: {}", stderr(&out));
        assert!(!place.path("advice").exists(), "nothing is left behind: {more:?}");
    }
    std::fs::create_dir(place.path("seen")).unwrap();
    std::fs::write(place.path("seen/observed.json"), "{}").unwrap();
    let out = place.foretoken().args(["recommend", "seen"]).output().unwrap();
    assert!(out.status.code() == Some(2) && stderr(&out).contains("and no calibration"), "{}", stderr(&out));
}

#[test]
fn lengths_beyond_the_limit_are_refused_by_the_name_of_their_option() {
    let place = Place::holding(EXPERIMENT);
    for (args, said) in [
        (["recommend", "x.toml", "--longest", "33"], "invalid value '33' for '--longest <K>': 33 is not in 1..=32"),
        (["recommend", "none.toml", "--now", "99"], "invalid value '99' for '--now <K>': 99 is not in 0..=32"),
    ] {
        let out = place.foretoken().args(args).output().unwrap();
        assert_eq!(out.status.code(), Some(2), "{}", stderr(&out));
        assert!(stderr(&out).contains(said), "{said}: {}", stderr(&out));
        assert!(!place.path("results").exists(), "nothing is simulated: {args:?}");
    }
}

/// Each row of the test has a kind of arrivals, and the name that the recommendation must give to this load.
#[test]
fn recommend_accepts_every_kind_of_arrivals() {
    let lengths = "lengths = { fixed = { prompt = 32, output = 24 } }";
    let mut log = "t_s,input_tokens,output_tokens\n".to_owned();
    (0..60).for_each(|i| log += &format!("{},32,24\n", i * 2));
    for (workload, load, swept) in [
        (
            "arrivals = { trace = { path = \"log.csv\" } }".to_owned(),
            "log of log, 0.5 requests/s",
            "the requests of the log, faster or slower",
        ),
        (
            format!("arrivals = {{ closed-loop = 2 }}, requests = 60, {lengths}"),
            "closed loop of 2",
            "Poisson arrivals, requests as in the closed loop",
        ),
        (
            format!("arrivals = {{ t1 = {{}} }}, duration_s = 30.0, {lengths}"),
            "t1, ",
            "requests as they come, faster or slower",
        ),
        (
            format!("arrivals = {{ azure-code = {{}} }}, requests = 60, {lengths}"),
            "azure-code, ",
            "requests as they come, faster or slower",
        ),
    ] {
        let place = Place::holding(EXPERIMENT);
        std::fs::write(place.path("log.csv"), &log).unwrap();
        let out = recommend(&place, &["--format", "json", "--set", &format!("workload={{ {workload} }}")]);
        assert!(out.status.success(), "{load}: {}", stderr(&out));
        let answer: Value = serde_json::from_slice(&out.stdout).unwrap();
        let name = answer["at_loads"][0]["load"].as_str().unwrap();
        assert!(name.starts_with(load), "{load}: {name}");
        assert_eq!(answer["loads"]["requests"], swept);
        assert!(!answer["table"].as_array().unwrap().is_empty(), "{load}: closed loops gave a table");
        let rates: Vec<f64> =
            answer["loads"]["points"].as_array().unwrap().iter().map(|p| p["rate"].as_f64().unwrap()).collect();
        assert!(rates.len() == 8 && rates.is_sorted(), "{load}: {rates:?}");
    }
}

/// The example in the help runs, shortened. `recommend` tries draft lengths of its own and ignores the experiment's
/// policies, even if they draft longer.
#[test]
fn the_example_of_the_help_works_as_printed() {
    let place = Place::new();
    std::fs::create_dir(place.path("experiments")).unwrap();
    let quickstart = concat!(env!("CARGO_MANIFEST_DIR"), "/../experiments/quickstart.toml");
    std::fs::copy(quickstart, place.path("experiments/quickstart.toml")).unwrap();
    let help = place.foretoken().args(["recommend", "--help"]).output().unwrap();
    // A long example goes on behind a backslash.
    let help = String::from_utf8_lossy(&help.stdout).replace(" \\\n     ", "");
    let example = help.lines().map(str::trim).find(|l| l.contains("experiments/quickstart.toml")).unwrap();
    let args = example.split_whitespace().skip(1);
    // The run simulates only 60 s, because the test only checks that the example works.
    let out =
        place.foretoken().args(args).args(["--set", "workload.duration_s=60.0", "--longest", "2"]).output().unwrap();
    assert!(out.status.success(), "{example}: {}", stderr(&out));
    assert!(String::from_utf8_lossy(&out.stdout).contains("vicuna-7b with vicuna-68m on a100-80g"), "{out:?}");
}

#[test]
fn recommend_reports_overload_first() {
    let place = Place::holding(EXPERIMENT);
    let out = recommend(&place, &["--set", "workload.arrivals={ poisson = { rate = 1000.0 } }"]);
    assert!(out.status.success(), "{}", stderr(&out));
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(said.starts_with("Poisson 1000/s is overloaded whatever is drafted: "), "{said}");
    assert!(said.contains("says nothing of a load that is carried. "), "{said}");
    let row = said.lines().find(|line| line.trim_start().starts_with("Poisson 1000/s  ")).unwrap();
    assert!(row.contains("overloaded whatever is drafted"), "{row}");
    assert!(stderr(&out).contains("warning: Poisson 1000/s: overloaded"), "{}", stderr(&out));
    let page = std::fs::read_to_string(place.path("advice/recommendation.html")).unwrap();
    assert!(page.contains("is overloaded whatever is drafted: "), "the page says it, too");
}

/// If the SLO bound is scaled from plain decoding, nine in ten requests keep the bound with plain decoding by
/// definition. Other draft lengths can still be better.
#[test]
fn recommend_keeps_a_scaled_bound() {
    let place = Place::holding(EXPERIMENT);
    let more = ["--objective", "slo", "--set", "slo.adaspec-scale=1.0", "--format", "json"];
    let out = recommend(&place, &more);
    assert!(out.status.success(), "{}", stderr(&out));
    let answer: Value = serde_json::from_slice(&out.stdout).unwrap();
    let plain = answer["at_loads"][0]["candidates"][0]["cost"].as_f64().unwrap();
    assert!((plain - 0.101).abs() < 0.02, "a tenth of the requests is beyond the bound: {plain}");
}
