//! A load that no policy can serve is reported as an overload: in the table, in JSON, in Parquet and on the page.

use crate::support::{EXPERIMENT, Place};
use serde_json::Value;

/// The experiment at `rate` requests per second. Autoregressive decoding serves about ten requests per second here, and
/// a draft length of 1 a few more.
fn offered(rate: f64) -> Place {
    let text = EXPERIMENT.replace("{ sweep = [8, 64] }", "8").replace("rate = 4.0", &format!("rate = {rate:.1}"));
    Place::holding(&text.replace("steps = true", "figures = true"))
}

fn json(place: &Place, out: &str, more: &[&str]) -> Value {
    serde_json::from_str(&place.run(out, &[&["--format", "json"][..], more].concat())).unwrap()
}

#[test]
fn overload_is_reported_in_every_output() {
    let place = offered(60.0);
    let text = place.run_drawn("out", &[]);
    for part in [
        "! autoregressive: ", "requests/s came, ", "were waiting at the end (seeds 1 2)",
        "!: overloaded, the queue grew while requests came",
    ] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
    let fixed = text.lines().find(|l| l.trim_start().starts_with("fixed-1 !")).unwrap_or_else(|| panic!("{text}"));
    assert!(fixed.split_whitespace().any(|w| w.ends_with("]!")), "the speedup's mark: {fixed}");
    let bound = text.lines().find(|l| l.contains("SLO TPOT <=")).unwrap();
    assert!(bound.contains(" ms !"), "the bound is scaled from an overloaded run: {bound}");

    let document = json(&place, "json", &[]);
    let variant = &document["variants"][0];
    assert_eq!(variant["slo_scaled_from"]["overloaded_seeds"], serde_json::json!([1, 2]));
    for policy in variant["policies"].as_array().unwrap() {
        let marks = policy["marks"].as_array().unwrap();
        assert!(marks.contains(&"speedup_over_overload".into()) && marks.contains(&"overloaded".into()), "{policy}");
    }
    let overload = &variant["policies"][0]["overload"];
    assert!(overload["offered_req_s"].as_f64() > overload["completed_req_s"].as_f64(), "{overload}");
    assert!(overload["waiting_at_end"].as_f64() > Some(20.0), "{overload}");

    let page = std::fs::read_to_string(place.path("out/report/index.html")).unwrap();
    assert!(page.contains("the queue grew while requests came") && page.contains("which was overloaded"));
    assert!(page.contains("a measure of the queue, not a promise"));
    // `report` makes the page from the files of the results folder alone. So the page's numbers come from Parquet.
    let made = place.foretoken().args(["report", "out", "-o", "again"]).output().unwrap();
    assert!(made.status.success());
    assert_eq!(std::fs::read_to_string(place.path("again/index.html")).unwrap(), page);
}

#[test]
fn a_load_that_is_served_is_not_overload() {
    let place = offered(4.0);
    let text = place.run_drawn("out", &[]);
    assert!(!text.contains("overload") && !text.contains('!'), "{text}");
    let variant = &json(&place, "json", &[])["variants"][0];
    assert!(variant["policies"].as_array().unwrap().iter().all(|p| p.get("overload").is_none()), "{variant}");
    let page = std::fs::read_to_string(place.path("out/report/index.html")).unwrap();
    assert!(!page.contains("overloaded"));
}

/// Forty clients on an engine that runs eight requests: thirty-two always wait, but the queue does not grow.
#[test]
fn a_closed_loop_is_never_overloaded() {
    let text = offered(4.0).run("out", &["--set", "workload.arrivals={ closed-loop = 40 }"]);
    assert!(!text.contains("overload") && !text.contains('!'), "{text}");
}

/// A low load, then a burst of thirty requests at the end. The requests of the burst are served only after the last
/// arrival.
#[test]
fn a_burst_at_the_end_is_not_overload() {
    let place = offered(4.0);
    let quiet = (0..170).map(|i| format!("{},128,64\n", f64::from(i) * 0.4));
    let burst = (0..30).map(|i| format!("{},128,64\n", 68.0 + f64::from(i) * 0.01));
    let rows: String = quiet.chain(burst).collect();
    std::fs::write(place.path("burst.csv"), format!("t_s,input_tokens,output_tokens\n{rows}")).unwrap();
    let workload = "workload={ arrivals = { trace = { path = \"burst.csv\" } } }";
    let text = place.run("out", &["--set", workload]);
    assert!(!text.contains("overload"), "{text}");
}
