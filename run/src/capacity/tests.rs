//! Compares the capacities that the search finds with formulas of queueing theory, and with a search that tries every
//! rate of a grid.

use crate::capacity::answer::{Answer, Limit, Verdict};
use crate::capacity::load::Load;
use crate::capacity::plan::load;
use crate::capacity::probe::{Probes, Trial};
use crate::capacity::run::run;
use crate::capacity::store::{SearchId, Store};
use crate::cells::{Folder, Mode};
use crate::load::parse_document;
use crate::plan::Plan;
use crate::setting::Setting;
use crate::spec::capacity::CapacitySpec;
use crate::spec::problem::Problem;
use crate::work::Work;
use std::sync::atomic::AtomicBool;

/// An experiment whose server handles one request at a time. Each request has one output token and takes one step of
/// 0.1 s.
const ONE_SERVER: &str = r#"
name = "one-server"
seeds = [1, 2, 3, 4, 5]
policies = [{ autoregressive = {} }]

[hardware]
target = { linear = { alpha_s = 0.0, gamma_s = 0.0, delta_s = 0.1 } }
draft = { linear = { alpha_s = 0.0, gamma_s = 0.0, delta_s = 0.0 } }

[engine]
version = "vllm-0.32"
async_scheduling = false
max_num_seqs = 1
num_gpu_blocks = 1000

[workload]
arrivals = { poisson = { rate = 5.0 } }
lengths = { fixed = { prompt = 16, output = 1 } }

[acceptance.source]
constant = { rate = 0.0 }

[slo]
ttft_s = 0.5

[capacity]
share = 0.9
requests = 20000
warm_up_requests = 500
tolerance = 0.005
"#;

/// The plan of the experiment `text`, with the values that the `--set` arguments `sets` replace.
fn plan(text: &str, sets: &[&str]) -> Plan {
    loaded(text, sets).unwrap().0
}

fn loaded(text: &str, sets: &[&str]) -> crate::spec::problem::Result<(Plan, CapacitySpec)> {
    let sets: Vec<String> = sets.iter().map(|s| (*s).to_owned()).collect();
    load(&parse_document("x.toml", text, &sets)?, std::path::Path::new(""))
}

fn answer(plan: &Plan) -> Result<Answer, Box<Problem>> {
    let dir = tempfile::tempdir().unwrap();
    let (folder, _) = Folder::open(dir.path().join("out"), plan, Mode::Fresh).unwrap();
    let spec = plan.variants[0].experiment.capacity.clone().unwrap_or_default();
    run(plan, &spec, &folder, &Work::default())
}

/// The probability that a request waits at most `t` s in an M/D/1 queue with arrival rate `rate` and service time `d`
/// (Erlang 1909; for example Tijms, A First Course in Stochastic Models, 9.6.2):
/// (1 − ρ) Σ_{j=0}^{⌊t/d⌋} (−λ (t − j d))^j / j! · e^{λ (t − j d)}.
fn waits_at_most(t: f64, rate: f64, d: f64) -> f64 {
    let mut sum = 0.0;
    let mut factorial = 1.0;
    for j in 0..=(t / d + 1e-9).floor() as i32 {
        if j > 0 {
            factorial *= f64::from(j);
        }
        let left = t - f64::from(j) * d;
        sum += (-rate * left).powi(j) / factorial * (rate * left).exp();
    }
    (1.0 - rate * d) * sum
}

#[test]
fn the_closed_form_of_m_d_1_is_within_the_interval() {
    let found = answer(&plan(ONE_SERVER, &[])).unwrap();
    let capacity = &found.capacities[0];
    // A request keeps the TTFT bound of 0.5 s if it waits at most 0.4 s, because the service takes 0.1 s.
    let (mut low, mut high) = (0.1, 9.999);
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        if waits_at_most(0.4, middle, 0.1) >= 0.9 { low = middle } else { high = middle }
    }
    let interval = capacity.req_s.unwrap();
    let half = interval.half_width.unwrap();
    assert!((interval.mean - low).abs() <= half, "{interval:?}: {low} on paper");
    assert!(half < 0.03 * low, "and the interval says something: {interval:?}");
    let limited_by_bounds = capacity.seeds.iter().all(|s| s.limit == Some(Limit::Bounds) && s.exceptions.is_empty());
    assert!(limited_by_bounds, "{:?}", capacity.notes());
    assert!((capacity.tok_s_gpu.unwrap().mean - interval.mean).abs() < 1e-9, "a token each");
}

/// The load is low, then high, then low. With a time window on the high part, the capacity equals the capacity of a
/// steady load at the high rate. Without a window, rates are means over all three parts, so the capacity is lower.
#[test]
fn a_load_that_changes_is_asked_about_by_its_window() {
    let steady =
        ONE_SERVER.replace("requests = 20000", "requests = 6000").replace("seeds = [1, 2, 3, 4, 5]", "seeds = [7]");
    let found = |plan: &Plan| {
        let answer = answer(plan).unwrap();
        (answer.capacities[0].seeds[0].req_s.unwrap(), answer.in_words())
    };
    let (alone, words) = found(&plan(&steady, &[]));
    assert!(!words.contains("changes in time"), "{words}");
    // The log has the arrivals of the steady load. But the gaps between the first 1,500 requests, and between the
    // requests after number 5,500, are four times as long.
    let arrivals = Setting::new(&plan(&steady, &[]).variants[0], 7).unwrap().workload.arrival;
    let mut at = 0.0;
    let mut trace = "t_s,input_tokens,output_tokens\n".to_owned();
    let mut window = [0.0, 0.0];
    for (i, pair) in arrivals.windows(2).enumerate() {
        let busy = (1500..5500).contains(&i);
        match i {
            1500 => window[0] = at,
            5500 => window[1] = at,
            _ => {}
        }
        trace += &format!("{at},16,1\n");
        at += (pair[1] - pair[0]).as_s() * if busy { 1.0 } else { 4.0 };
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("changing.csv");
    std::fs::write(&file, trace).unwrap();
    let changing = steady
        .replace("poisson = { rate = 5.0 }", &format!("trace = {{ path = {file:?} }}"))
        .replace("lengths = { fixed = { prompt = 16, output = 1 } }\n", "")
        .replace("requests = 6000", &format!("requests = 6000\nwindow_s = {window:?}"));
    let (in_window, words) = found(&plan(&changing, &[]));
    assert!(words.contains("rates count the seconds"), "{words}");
    assert!((in_window / alone - 1.0).abs() < 0.05, "{in_window} in the window, {alone} alone");
    let whole = changing.replace(&format!("window_s = {window:?}"), "").replace("requests = 6000", "requests = 5000");
    let (mean, words) = found(&plan(&whole, &[]));
    assert!(words.contains("the load changes in time"), "{words}");
    assert!(mean < 0.8 * alone, "{mean} on average, {alone} steadily");
}

/// The experiment [`ONE_SERVER`], with the arrival times `arrivals`, in seconds, from a log. Returns the folder of the
/// log's file and the experiment's text. The folder is removed when the returned guard is dropped.
fn logged(arrivals: impl IntoIterator<Item = f64>) -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("log.csv");
    let rows: String = arrivals.into_iter().map(|at| format!("{at},16,1\n")).collect();
    std::fs::write(&file, format!("t_s,input_tokens,output_tokens\n{rows}")).unwrap();
    let text = ONE_SERVER
        .replace("poisson = { rate = 5.0 }", &format!("trace = {{ path = {file:?} }}"))
        .replace("lengths = { fixed = { prompt = 16, output = 1 } }\n", "")
        .replace("requests = 20000", "requests = 600")
        .replace("warm_up_requests = 500", "warm_up_requests = 50")
        .replace("[1, 2, 3, 4, 5]", "[7]");
    (dir, text)
}

/// The arrival times of a Poisson process with `requests` requests, seconds.
fn poisson_arrivals(requests: u32) -> Vec<f64> {
    let text = ONE_SERVER.replace("requests = 20000", &format!("requests = {}", requests - 1000));
    Setting::new(&plan(&text, &[]).variants[0], 7).unwrap().workload.arrival.iter().map(|t| t.as_s()).collect()
}

/// A log with Poisson arrivals has the same capacity as generated Poisson arrivals. A lower or scaled rate of the log
/// does not change the capacity. The text of the results says which requests of the log are run.
#[test]
fn a_log_has_the_capacity_of_its_load() {
    let arrivals = poisson_arrivals(1700);
    let generated = ONE_SERVER
        .replace("requests = 20000", "requests = 600")
        .replace("warm_up_requests = 500", "warm_up_requests = 50")
        .replace("[1, 2, 3, 4, 5]", "[7]");
    let rate = |plan: &Plan| answer(plan).unwrap().capacities[0].seeds[0].req_s.unwrap();
    let wanted = rate(&plan(&generated, &[]));
    for (slower, transforms) in [(1.0, "[]"), (40.0, "[]"), (40.0, "[{ rate-scale = 8.0 }]")] {
        let (_dir, text) = logged(arrivals.iter().map(|at| at * slower));
        let found = rate(&plan(&text, &[&format!("workload.transform={transforms}")]));
        assert!((found / wanted - 1.0).abs() < 0.01, "{slower}, {transforms}: {found}, generated {wanted}");
    }
    let (_dir, text) = logged(arrivals.iter().copied());
    let words = answer(&plan(&text, &[])).unwrap().in_words();
    for text in
        ["the log has 1700 requests", "600 of them count, 50 before them fill the server", "the other 1000 are not run"]
    {
        assert!(words.contains(text), "{text}: {words}");
    }
}

/// A capacity search that tries `factor` times the rate of a log runs the same arrivals as the transform `rate-scale`
/// with that factor.
#[test]
fn a_probe_of_a_log_is_its_rate_scale() {
    let (_dir, text) = logged(poisson_arrivals(1700));
    let (plan, spec) = loaded(&text, &[]).unwrap();
    let variant = &plan.variants[0];
    let mut setting = Setting::new(variant, 7).unwrap();
    let load = Load::of(&mut setting, variant, &spec).unwrap();
    for factor in [0.25, 1.0, 3.7] {
        let scaled = loaded(&text, &[&format!("workload.transform=[{{ rate-scale = {factor:?} }}]")]).unwrap().0;
        let arrival = Setting::new(&scaled.variants[0], 7).unwrap().workload.arrival;
        let probed = load.at(load.own_rate() * factor);
        assert_eq!(probed.len(), 700);
        for (at, wanted) in probed.iter().zip(&arrival) {
            let (at, wanted) = (at.as_s(), (*wanted - arrival[0]).as_s());
            assert!((at - wanted).abs() < 1e-9, "{factor}: {at}, {wanted}");
        }
    }
}

#[test]
fn a_log_that_is_too_short_says_how_long_it_is() {
    let (_dir, text) = logged((0..300).map(f64::from));
    let said = |sets: &[&str]| {
        let problem = answer(&plan(&text, sets)).unwrap_err();
        (problem.message().to_owned(), problem.help_text().to_owned())
    };
    let (message, help) = said(&[]);
    assert!(message.contains("the log has 300 requests in 299.0 s, and a probe takes 700"), "{message}");
    assert_eq!(help, "ask about fewer: --set capacity.requests=240 --set capacity.warm_up_requests=30");
    assert!(answer(&plan(&text, &["capacity.requests=240", "capacity.warm_up_requests=30"])).is_ok(), "as advised");
    let (message, help) = said(&["capacity.window_s=[200.0, 400.0]"]);
    assert!(message.contains("the window ends at 400 s, and the last request comes at 299.0 s"), "{message}");
    assert!(help.contains("the 300 requests come from 0.0 to 299.0 s"), "{help}");
    assert!(said(&["capacity.window_s=[500.0, 600.0]"]).0.contains("no request comes from 500 to 600 s"));
}

#[test]
fn logs_and_generated_arrivals_are_not_swept_together() {
    let (_dir, text) = logged((0..700).map(f64::from));
    let path = text.split("path = ").nth(1).unwrap().split(' ').next().unwrap();
    let both = format!(
        "workload.arrivals={{ sweep = [{{ trace = {{ path = {path} }} }}, {{ poisson = {{ rate = 1.0 }} }}] }}"
    );
    let Err(problem) = loaded(&text, &[&both]) else { panic!("taken") };
    assert!(problem.message().contains("both logs and generated arrivals"), "{}", problem.message());
}

/// Compares the capacity that the search finds with the capacity found by trying every rate of a fine grid.
#[test]
fn the_search_finds_what_trying_everything_finds() {
    let text =
        ONE_SERVER.replace("requests = 20000", "requests = 1000").replace("seeds = [1, 2, 3, 4, 5]", "seeds = [7]");
    let plan = plan(&text, &["capacity.tolerance=0.01"]);
    let found = answer(&plan).unwrap().capacities[0].seeds[0].req_s.unwrap();
    let spec = plan.variants[0].experiment.capacity.clone().unwrap();
    let mut setting = Setting::new(&plan.variants[0], 7).unwrap();
    let load = Load::of(&mut setting, &plan.variants[0], &spec).unwrap();
    let slo = setting.slo(None);
    let grid: Vec<f64> = (0..400).map(|i| 2.0 * 1.005f64.powi(i)).take_while(|&rate| rate < 12.0).collect();
    let mut carried = |rate: f64| {
        let policy = &plan.policies[0].spec;
        let trial = Trial { load: &load, policy, slo, flag: &AtomicBool::new(false) };
        trial.probe(&mut setting, rate, false).unwrap().carried
    };
    let first_failed = grid.iter().position(|&rate| !carried(rate)).unwrap();
    let (below, above) = (grid[first_failed - 1], grid[first_failed]);
    assert!(found > below * 0.99 && found < above, "{found}: the grid says {below} to {above}");
}

#[test]
fn bounds_that_no_request_keeps_give_no_rate() {
    let text =
        ONE_SERVER.replace("requests = 20000", "requests = 200").replace("seeds = [1, 2, 3, 4, 5]", "seeds = [7]");
    let found = answer(&plan(&text, &["slo.ttft_s=0.05"])).unwrap();
    let capacity = &found.capacities[0];
    assert_eq!((capacity.req_s, capacity.seeds[0].verdict), (None, Verdict::NoRate));
    assert!(capacity.notes()[0].starts_with("no rate is carried, however low"), "{:?}", capacity.notes());
    // The capacity search stops at a lowest rate: at lower rates, the simulated clock would end before the last
    // request.
    assert!(capacity.seeds[0].probes.iter().all(|p| p.rate > 1e-5), "{:?}", capacity.seeds[0].probes);
    let words = found.in_words();
    assert!(words.contains(" no rate ") && !words.contains("none"), "{words}");
}

/// With two output tokens, each request takes 0.2 s, so the server serves 5 requests per second. Every token keeps the
/// TPOT bound at any rate, but the queue grows above 5 requests per second. So the capacity is about 5.
#[test]
fn the_largest_stable_rate_is_the_capacity_where_the_bounds_allow_any() {
    let text = ONE_SERVER
        .replace("output = 1 }", "output = 2 }")
        .replace("ttft_s = 0.5", "tpot_s = 0.15")
        .replace("requests = 20000", "requests = 2000")
        .replace("seeds = [1, 2, 3, 4, 5]", "seeds = [1, 2, 3]");
    let found = answer(&plan(&text, &[])).unwrap();
    for seed in &found.capacities[0].seeds {
        let rate = seed.req_s.unwrap();
        // Only a queue that grows by more than 5 % of the requests counts as overload, so rates a little above 5 may be
        // carried.
        assert!((4.8..5.0 * 1.06).contains(&rate), "{rate}");
        assert_eq!(seed.limit, Some(Limit::Queue));
        let beyond = seed.probes.iter().filter(|p| p.rate > 5.0 * 1.1);
        assert!(
            beyond.clone().count() > 0
                && beyond.clone().all(|p| !p.carried && p.steady == Some(false) && p.missed == 0)
        );
    }
    assert!(
        found.in_words().contains("the queue sets the limit, not the bounds (3 of 3 seeds)"),
        "{}",
        found.in_words()
    );
    // The SLO bounds are very wide here (TPOT 1e5 s, TTFT 1e6 s), so every request keeps them. Only the growth of the
    // queue limits the rate, so the capacity equals the capacity with a TPOT bound of 0.15 s.
    let wide = answer(&plan(&text, &["slo.tpot_s=1e5", "slo.ttft_s=1e6"])).unwrap();
    assert_eq!(wide.capacities[0].req_s, found.capacities[0].req_s);
}

/// A server that can run all requests of a tried rate at once never has a queue. It carries every rate (serves it
/// within the SLO), and a note says that a run has too few requests.
#[test]
fn a_note_says_if_requests_are_too_few_to_fill_the_server() {
    let text = ONE_SERVER
        .replace("output = 1 }", "output = 2 }")
        .replace("max_num_seqs = 1", "max_num_seqs = 1000")
        .replace("delta_s = 0.1 }", "delta_s = 1e-9 }")
        .replace("ttft_s = 0.5", "tpot_s = 0.15")
        .replace("requests = 20000", "requests = 200")
        .replace("seeds = [1, 2, 3, 4, 5]", "seeds = [1]");
    let found = answer(&plan(&text, &[])).unwrap();
    let capacity = &found.capacities[0];
    assert_eq!(capacity.seeds[0].verdict, Verdict::EveryRateTried, "{}", found.in_words());
    assert!(found.in_words().contains("every rate tried, up to"), "{}", found.in_words());
    assert!(capacity.notes()[0].contains("raise capacity.requests"), "{:?}", capacity.notes());
}

/// For the first seed, the figure's shares of requests within their bounds equal the shares that this test counts in
/// ordinary runs to the end. The second seed is not in the figure, so its runs may be stopped early.
#[test]
fn shown_rates_are_of_whole_runs() {
    let text = ONE_SERVER.replace("requests = 20000", "requests = 1000").replace("[1, 2, 3, 4, 5]", "[7, 8]");
    let plan = plan(&text, &[]);
    let found = answer(&plan).unwrap();
    let first = &found.capacities[0].seeds[0];
    let carried = first.req_s.unwrap();
    let whole: Vec<_> = first.probes.iter().filter(|p| p.rate > carried && p.is_whole()).collect();
    assert!(whole.len() >= 4, "{:?}", first.probes);
    let spec = plan.variants[0].experiment.capacity.clone().unwrap();
    let mut setting = Setting::new(&plan.variants[0], 7).unwrap();
    let load = Load::of(&mut setting, &plan.variants[0], &spec).unwrap();
    let slo = setting.slo(None);
    for probe in whole {
        // An ordinary run at the tried rate, to the end. The test counts which of the counted requests met their
        // bounds.
        setting.workload.arrival = load.at(probe.rate);
        let (run, _) = setting.run(&plan.policies[0].spec, f64::INFINITY, &AtomicBool::new(false));
        let kept = load.counted.clone().filter(|&i| slo.met_by(&run.records, i as usize, None)).count();
        assert_eq!(probe.attainment(), Some(kept as f64 / 1000.0), "{}", probe.rate);
    }
    assert!(found.capacities[0].seeds[1].probes.iter().any(|p| !p.is_whole()), "only the first seed is shown");
}

#[test]
fn impossible_questions_are_refused() {
    let text = ONE_SERVER.replace("requests = 20000", "requests = 200");
    let said = |sets: &[&str]| answer(&plan(&text, sets)).unwrap_err().message().to_owned();
    assert!(said(&["workload.arrivals={ closed-loop = 4 }"]).contains("a closed loop has no rate of its own"));
    assert!(said(&["slo={}"]).contains("has no SLO"));
    let short = said(&["workload.duration_s=50.0"]);
    assert!(short.contains("a probe takes 1200: 500 that fill the server, 200 that count"), "{short}");
    for (set, message) in [
        ("capacity.bracket=[5.0, 1.0]", "is upside down"),
        ("capacity.bracket=[0.0, 1.0]", "are not two rates above 0"),
        ("capacity.bracket=[1.0, nan]", "are not two rates above 0"),
        ("capacity.share=0.0", "is not a share in (0, 1]"),
        ("capacity.share=nan", "is not a share in (0, 1]"),
        ("capacity.tolerance=0.0", "is not in [0.0001, 0.5]"),
        ("capacity.tolerance=1e-300", "1e-300 is not in [0.0001, 0.5]"),
        ("capacity.tolerance=-0.01", "is not in [0.0001, 0.5]"),
        ("capacity.tolerance=nan", "is not in [0.0001, 0.5]"),
        ("capacity.bracket=[1.0, 2.0, 3.0]", "there must be two numbers here, not 3"),
        ("capacity.bracket=[1.0]", "there must be two numbers here, not 1"),
        ("capacity.window_s=[1.0, 2.0, 3.0]", "there must be two numbers here, not 3"),
        ("capacity.requests=0", "0 requests say nothing"),
        ("capacity.share=0.999", "200 requests are too few for a share of 0.999"),
        ("capacity.window_s=[5.0, 5.0]", "is no span of time"),
    ] {
        let refused = loaded(&text, &[set]);
        let Err(problem) = refused else { panic!("{set}: accepted") };
        assert!(problem.message().contains(message), "{set}: {}", problem.message());
    }
}

/// An interrupted capacity search continues from its stored runs and gives the same results as a search without an
/// interrupt. An interrupt does not remove stored runs.
#[test]
fn an_interrupted_search_continues() {
    let text =
        ONE_SERVER.replace("requests = 20000", "requests = 200").replace("seeds = [1, 2, 3, 4, 5]", "seeds = [7, 8]");
    let plan = plan(&text, &[]);
    let spec = plan.variants[0].experiment.capacity.clone().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (folder, _) = Folder::open(dir.path().join("out"), &plan, Mode::Fresh).unwrap();
    let work = Work::default();
    let first = run(&plan, &spec, &folder, &work).unwrap();
    // Half of the stored runs of the first capacity search are removed, as if the search had been interrupted.
    let store = Store::open(&folder, &plan.digest(), "").unwrap();
    let id = SearchId { variant: 0, policy: 0, seed: 0 };
    let Probes { probes } = store.load(id);
    store.save(id, &Probes { probes: probes[..probes.len() / 2].to_vec() }).unwrap();
    assert_eq!(run(&plan, &spec, &folder, &work).unwrap().to_json(), first.to_json());
    // An interrupt by the user leaves the stored runs in place.
    work.interrupt.ask();
    let stopped = run(&plan, &CapacitySpec { tolerance: 0.001, ..spec }, &folder, &work).unwrap_err();
    assert_eq!(stopped.exit, crate::spec::problem::Exit::Interrupted);
    assert_eq!(store.load::<Probes>(id).probes.len(), probes.len());
}
