//! SLO bounds that are a multiple of the latency without speculation. In a sweep over loads, one bound must hold for
//! all loads, unless the experiment asks for one bound per load.

use crate::interrupted::{resumes_to_the_same_bytes, start};
use crate::support::{EXPERIMENT, Place};
use serde_json::Value;

/// An experiment that sweeps two loads. The second load is the lower one.
fn swept() -> String {
    EXPERIMENT
        .replace("{ sweep = [8, 64] }", "8")
        .replace("{ rate = 4.0 }", "{ rate = { sweep = [30.0, 3.0] } }")
        .replace("[{ fixed", "[{ autoregressive = {} }, { fixed")
}

fn json(place: &Place, out: &str, more: &[&str]) -> Value {
    serde_json::from_str(&place.run(out, &[&["--format", "json"][..], more].concat())).unwrap()
}

/// The TPOT bounds in ms: for each variant (combination of swept values) one bound per seed.
fn bounds(document: &Value) -> Vec<Vec<f64>> {
    let bounds_ms =
        |v: &Value| v["slo"].as_array().unwrap().iter().map(|s| s["tpot_s"].as_f64().unwrap() * 1e3).collect();
    document["variants"].as_array().unwrap().iter().map(bounds_ms).collect()
}

fn attained(document: &Value, variant: usize, policy: usize) -> f64 {
    document["variants"][variant]["policies"][policy]["slo_attainment"]["mean"].as_f64().unwrap()
}

#[test]
fn the_lowest_load_bounds_all_loads() {
    let place = Place::holding(&swept());
    let (one, each) = (json(&place, "one", &[]), json(&place, "each", &["--set", "slo.reference=each-load"]));
    assert_eq!(bounds(&one)[0], bounds(&one)[1], "one bound");
    assert_eq!(bounds(&one)[1], bounds(&each)[1], "which is the lower load's own");
    assert!(bounds(&each)[0][0] > 1.04 * bounds(&each)[1][0], "{:?}", bounds(&each));
    // If a TPOT bound is scaled from the autoregressive run at the same load, 90 % of the requests of plain decoding
    // keep it by definition. If it is scaled from a run at another load, more requests may miss it.
    let by_definition = |d: &Value, v: usize| {
        d["variants"][v]["policies"][0]["marks"].as_array().unwrap().contains(&"attains_by_definition".into())
    };
    assert_eq!([by_definition(&one, 0), by_definition(&one, 1)], [false, true]);
    assert_eq!([by_definition(&each, 0), by_definition(&each, 1)], [true, true]);
    assert!(attained(&one, 0, 0) < 0.7 && (attained(&each, 0, 0) - 0.9).abs() < 0.01);
    assert_eq!(one["variants"][0]["slo_scaled_from"]["sweep"][0]["value"], "3.0");
}

#[test]
fn a_named_reference_bounds_all_loads() {
    let place = Place::holding(&swept());
    let named = r#"slo.reference={ at = { "workload.arrivals.poisson.rate" = 30.0 } }"#;
    let document = json(&place, "named", &["--set", named]);
    let each = json(&place, "each", &["--set", "slo.reference=each-load"]);
    assert_eq!(bounds(&document)[1], bounds(&each)[0]);
    assert_eq!(bounds(&document)[0], bounds(&each)[0]);
    // The results folder has the experiment with all settings written out. Run again from there, it gives the same
    // bounds.
    let again = place.foretoken().args(["run", "named/experiment.toml", "-o", "again"]).output().unwrap();
    assert!(again.status.success());
    let report = |out: &str| -> Value {
        serde_json::from_slice(&std::fs::read(place.path(out).join("report.json")).unwrap()).unwrap()
    };
    // Only `variants` are compared. The notes on settings without effect differ, because in the written-out experiment
    // every setting counts as given by the user.
    assert_eq!(report("named")["variants"], report("again")["variants"]);
}

#[test]
fn the_bound_is_in_the_table_on_the_page_and_in_the_figures() {
    let place = Place::holding(&swept());
    let text = place.run_drawn("out", &[]);
    let at = "(scaled from autoregressive at request rate = 3.0 requests/s)";
    assert_eq!(text.lines().filter(|l| l.contains("SLO TPOT <=") && l.contains(at)).count(), 1, "{text}");
    let stars = text.lines().filter(|l| l.trim_start().starts_with("autoregressive") && l.contains('*')).count();
    assert!(stars == 1 && text.contains("*: 90 % by definition"), "{text}");
    let page = std::fs::read_to_string(place.path("out/report/index.html")).unwrap().replace("&#x2f;", "/");
    assert!(
        page.contains("the P90 TPOT of autoregressive at request rate = 3.0\u{a0}requests/s, whatever the load"),
        "what was asked"
    );
    let figure = |name: &str| std::fs::read_to_string(place.path("out/figures").join(name)).unwrap();
    let attainment = figure("slo-attainment.svg");
    assert!(attainment.contains("TPOT ≤ ") && attainment.contains("*: 90 % by definition"), "{attainment}");
    let tpot = figure("tpot.svg");
    assert_eq!(tpot.matches("SLO ≤ ").count(), 2, "a line in each panel");
    assert_eq!(tpot.matches(" ms *").count(), 1);
    assert!(tpot.contains("dashed: the SLO · *: 90 % of autoregressive by definition"), "{tpot}");
    assert!(!figure("ttft.svg").contains("SLO"), "nothing bounds it");
}

#[test]
fn a_killed_sweep_of_loads_resumes_to_the_same_bytes() {
    let many: Vec<String> = (1..=10).map(|s| s.to_string()).collect();
    let text = swept().replacen("seeds = [1, 2]", &format!("seeds = [{}]", many.join(", ")), 1);
    let text = text.replacen("requests = 200", "requests = 600", 1).replacen("steps = true", "figures = false", 1);
    let place = Place::holding(&text);
    let mut child = start(&place);
    child.kill().unwrap();
    child.wait().unwrap();
    resumes_to_the_same_bytes(&place);
}
