//! Drives the explorer's page in a browser. The numbers that the page's JavaScript computes must equal the numbers of
//! Foretoken's Rust library, on every kind of hardware and with every acceptance source that the page has.

use crate::browser::{Opened, attribute_of, open, text_of};
use crate::explore_library::{Accepted, Draws, Point, any_load, any_point, compare, escaped, spec};
use crate::pages::calibrated;
use crate::support::Place;
use foretoken_profiler::{CALIBRATED_VERSION, Calibrated, CalibratedModel, Range};
use foretoken_run::profiled::costs_of;
use foretoken_sim::{Coefficients, ContextReads};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// A folder with the page that `foretoken explore` writes.
pub fn explorer(more: &[&str]) -> (Place, PathBuf) {
    let place = Place::new();
    let output = place.foretoken().args(["explore", "-o", "pages"]).args(more).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "pages/explore.html\n");
    let page = place.path("pages/explore.html");
    (place, page)
}

pub fn silent(opened: &Opened) {
    assert!(opened.console.is_empty(), "the page complains: {:#?}", opened.console);
}

/// The numbers and sentences that the page shows for each of `hashes`. A hash is the part of the URL that holds the
/// values of the page's controls. `None` without a browser.
pub fn checked(page: &Path, hashes: &[&str]) -> Option<Vec<Value>> {
    let opened = open(page, &format!("#check={}", escaped(&json!(hashes).to_string())))?;
    silent(&opened);
    let all: Vec<Value> = serde_json::from_str(&text_of(&opened.dom, "checked")).unwrap();
    assert_eq!(all.len(), hashes.len());
    Some(all)
}

/// For each of `points` (values of the page's controls), compares every number of the page with the number that
/// Foretoken's Rust library computes.
fn compare_all(page: &Path, points: &[Point]) {
    let hashes: Vec<&str> = points.iter().map(|p| p.hash.as_str()).collect();
    let Some(all) = checked(page, &hashes) else { return };
    let off = all.iter().zip(points).map(|(page, point)| compare(page, point)).fold(0.0, f64::max);
    println!("{} states, the largest deviation is {off:e}", points.len());
}

/// The page's acceptance sources that state tokens per step by draft length, and not acceptance rates: (name, the
/// numbers in the page's presets). An acceptance source decides which draft tokens are right.
fn drawn(page: &Path) -> Vec<(String, Accepted)> {
    let text = std::fs::read_to_string(page).unwrap();
    let presets = text.split("id=\"presets\">").nth(1).unwrap().split("</script>").next().unwrap();
    let presets: Value = serde_json::from_str(presets).unwrap();
    let one = |(name, source): (&String, &Value)| {
        let part = |key: &str| source[key].clone();
        let tokens = serde_json::from_value(part("tokens")).unwrap();
        (name.clone(), Accepted::Drawn { tokens, shares: serde_json::from_value(part("shares")).unwrap() })
    };
    let offered: Vec<_> = presets["acceptances"].as_object().unwrap().iter().map(one).collect();
    let without_proposals =
        |(_, source): &(String, Accepted)| matches!(source, Accepted::Drawn { shares: Some(_), .. });
    assert!(offered.iter().any(without_proposals) && offered.iter().any(|source| !without_proposals(source)));
    offered
}

#[test]
fn the_explorers_numbers_equal_the_librarys() {
    let (_place, page) = explorer(&[]);
    let (mut draws, drawn) = (Draws(6), drawn(&page));
    compare_all(&page, &(0..150).map(|_| any_point(&mut draws, &drawn)).collect::<Vec<_>>());
}

/// Hardware for which the explorer's page has no controls, so only an experiment can state it: staircases (cost models
/// that pad passes to the next measured size), and rooflines with further settings. The page of a run of such an
/// experiment must show it.
const HARDWARE: [(&str, &str, &str); 5] = [
    (
        "floors of kernels",
        "target = { roofline = { gpu = \"h200\", model = \"qwen3-30b-a3b\", tensor_parallel = 4, expert_parallel = true, \
         time_factor = 1.2 } }",
        "draft = { roofline = { gpu = { memory_bytes = 8e10, bandwidth_bytes_s = 3e12, bf16_flops = 9e14 }, \
         model = \"qwen3-0.6b\", time_factor = 0.9 } }",
    ),
    (
        "floors of kernels, with some shares given",
        "target = { roofline = { gpu = \"b200\", model = \"deepseek-v3\", tensor_parallel = 8, \
         bandwidth_efficiency = 0.7, all_reduce_s = 2e-5, parallel_efficiency = 0.95 } }",
        "draft = { roofline = { gpu = \"b200\", model = \"deepseek-v3-mtp\", tensor_parallel = 8, \
         compute_efficiency = 0.5, pass_overhead_s = 1e-5, layer_overhead_s = 2e-6 } }",
    ),
    (
        "staircase",
        "target = { staircase = { steps = [[1, 0.011], [8, 0.0105], [16, 0.012], [32, 0.0121], [256, 0.02]], \
         alpha_s = 2e-8, tail_gamma_s = 7e-5, tail_delta_s = 0.004 } }",
        "draft = { staircase = { steps = [[4, 0.001], [64, 0.0015]], alpha_s = 1e-9, tail_gamma_s = 2e-5, \
         tail_delta_s = 0.0005 } }",
    ),
    (
        "experts in parallel, no floors",
        "target = { roofline = { floors = false, gpu = \"h100\", model = \"qwen3-30b-a3b\", tensor_parallel = 4, expert_parallel = true, \
         expert_reuse = 0.2, kv_bits = 8, layer_overhead_s = 3e-6 } }",
        "draft = { roofline = { gpu = { memory_bytes = 8e10, bandwidth_bytes_s = 3e12, bf16_flops = 9e14 }, \
         model = \"qwen3-0.6b\", floors = false } }",
    ),
    (
        "counted experts, no floors",
        "target = { roofline = { floors = false, gpu = \"a100-80g\", model = \"mixtral-8x7b\", tensor_parallel = 2, weight_only = true, \
         experts_read = [[1, 2.0], [4, 4.5], [64, 7.5]] } }",
        "draft = { roofline = { floors = false, gpu = \"a100-80g\", model = \"mistral-7b\", compute_efficiency = 0.5 } }",
    ),
];

#[test]
fn staircases_and_every_setting_of_a_roofline_are_the_librarys() {
    for (name, target, draft) in HARDWARE {
        let costs = format!("{target}\n{draft}\n");
        let experiment = crate::support::EXPERIMENT;
        let old = experiment.split_once("target").unwrap().1.split_once("noise_cv").unwrap().0;
        let text = experiment.replace(&format!("target{old}"), &costs).replace("requests = 200", "requests = 20");
        let place = Place::holding(&text.replace("adaspec-scale = 1.0", "tpot_s = 0.05"));
        place.run_drawn("out", &[]);
        let hardware: toml::Table = costs.parse().unwrap();
        let read = |key: &str| spec(serde_json::to_value(&hardware[key]).unwrap());
        let page = place.path("out/report/explore.html");
        let mut draws = Draws(8);
        println!("{name}");
        let any = |_| any_load(&mut draws, read("target"), read("draft"), "hw=profile", &[]);
        compare_all(&page, &(0..40).map(any).collect::<Vec<_>>());
    }
}

/// A profile with every feature of a measured cost model: a smallest pass size above 1, flat and bent curves of pass
/// time, curves over query-key pairs and over context that begin above 0, and a draft model with a single measured
/// point. Tests also read times beyond the ends of these curves.
pub fn every_feature() -> String {
    let target = json!({ "measured": {
        "batched": [[4, 2e-3], [16, 2e-3], [17, 3.5e-3], [256, 9e-3], [512, 9e-3], [2048, 40e-3]],
        "pairs": [[100, 1e-5], [10_000, 3e-4], [1_000_000, 3e-4], [2_000_000, 2e-3]],
        "context": [[64, 1e-6], [4096, 5e-5], [50_000, 1e-3], [60_000, 5e-3]],
    } });
    let model = |cost: Value| CalibratedModel {
        cost: spec(cost),
        belief: Coefficients::FREE,
        range: Range { requests: 8, batched: 2048, context: 60_000, pairs: 0 },
    };
    let calibrated = Calibrated {
        calibrated_version: CALIBRATED_VERSION,
        foretoken: "0.1.0".into(),
        server: "a server of a test".into(),
        distrust: None,
        warnings: vec!["a warning of the calibration".into()],
        step_overhead_s: 4e-4,
        host: foretoken_sim::HostLaw::default(),
        noise_cv: 0.0,
        draft_lengths: vec![0, 3],
        separated: true,
        context_reads: ContextReads::PerPosition,
        probes: vec![],
        fitted_to: vec![],
        target: model(target),
        draft: model(json!({ "measured": { "batched": [[1, 3e-4]], "context": [[1, 0.0], [1000, 2e-4]] } })),
    };
    calibrated.to_toml()
}

/// The costs that the page of `explore --profile` computes must equal the costs of Foretoken's Rust library. Three
/// profiles are tried: the shipped one, one that `calibrate` wrote, and one with every feature of a measured model.
#[test]
fn measured_costs_are_the_librarys_on_every_kind_of_profile() {
    let Some(calibration) = calibrated() else { return };
    let place = Place::new();
    std::fs::write(place.path("every.toml"), every_feature()).unwrap();
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../experiments/profiles/tiny-cpu.toml");
    let profiles = [
        ("shipped", shipped, "profile tiny-target + tiny-draft on AMD EPYC"),
        ("calibrated", calibration.path("cal/profile.toml"), "calibrated to stub"),
        ("every feature", place.path("every.toml"), "calibrated to a server of a test"),
    ];
    for (name, file, called) in profiles {
        let given = file.display().to_string();
        let costs = costs_of(&given, &std::fs::read_to_string(&file).unwrap()).unwrap();
        let (_place, page) = explorer(&["--profile", &given]);
        let opened = open(&page, "").unwrap();
        silent(&opened);
        assert!(opened.dom.contains(called), "{name} is called otherwise");
        assert!(!opened.dom.contains("it was edited or damaged"), "{name}: its seal does not fit");
        let shown = |id: &str| attribute_of(&opened.dom, id, "data-value").parse::<f64>().unwrap();
        assert!(shown("step_s") > shown("plain_step_s") && shown("plain_step_s") > 0.0, "{name}");
        let [target, draft] = costs.models.map(|m| m.0);
        let mut draws = Draws(7);
        let any = |_| any_load(&mut draws, target.clone(), draft.clone(), "hw=profile", &[]);
        compare_all(&page, &(0..40).map(any).collect::<Vec<_>>());
    }
}

/// With `--profile`, the page opens with two values of the profile: the host time of a step, and whether a pass reads a
/// request's context once or once for each position.
#[test]
fn a_profile_gives_the_host_time_and_the_reading_of_context() {
    let place = Place::new();
    std::fs::write(place.path("every.toml"), every_feature()).unwrap();
    let (_place, page) = explorer(&["--profile", place.path("every.toml").to_str().unwrap()]);
    let point = |hash: &str| {
        let opened = open(&page, hash)?;
        silent(&opened);
        Some(attribute_of(&opened.dom, "step_s", "data-value"))
    };
    let Some(usual) = point("") else { return };
    assert_eq!(point("#over=0.4&reads=per-position"), Some(usual.clone()));
    assert_ne!(point("#over=0.5"), Some(usual.clone()));
    assert_ne!(point("#reads=once"), Some(usual));
    let text = std::fs::read_to_string(&page).unwrap();
    assert!(text.contains("a warning of the calibration"));
}

/// The page of a calibration, and that of its experiment, open with the acceptance that was observed, and name the
/// length that `recommend` names.
#[test]
fn the_page_of_a_calibration_agrees_with_recommend() {
    let Some(calibration) = calibrated() else { return };
    let mut recommend = calibration.foretoken();
    let advice = recommend.args(["recommend", "cal", "-o", "advice", "--format", "json"]).output().unwrap();
    assert!(advice.status.success(), "{}", String::from_utf8_lossy(&advice.stderr));
    let advice: Value = serde_json::from_slice(&advice.stdout).unwrap();
    let length = advice["single"]["longest"].as_u64().unwrap();
    let found: Value =
        serde_json::from_slice(&std::fs::read(calibration.path("cal/calibration.json")).unwrap()).unwrap();
    let first = found["acceptance"][0]["rate"].as_f64().unwrap();
    let [profile, experiment] =
        ["cal/profile.toml", "cal/experiment.toml"].map(|name| calibration.path(name).display().to_string());
    for given in [&["--profile", &profile][..], &[&experiment]] {
        let (_place, page) = explorer(given);
        let opened = open(&page, "").unwrap();
        silent(&opened);
        assert_eq!(attribute_of(&opened.dom, "best_length", "data-value"), length.to_string(), "{given:?}");
        let headline = text_of(&opened.dom, "headline");
        assert!(headline.starts_with(&format!("Drafting {length} token")), "{given:?}: {headline}");
        let text = std::fs::read_to_string(&page).unwrap();
        let rates = text.split_once("acc=by-depth&rates=").unwrap().1;
        let opens: f64 = rates.split([',', '&']).next().unwrap().parse().unwrap();
        assert!((opens - first).abs() < 1e-3, "{given:?} opens with {opens}, and {first} was observed");
    }
}

/// A sweep of `run` and the page are asked about the same 20 servers: five rates of acceptance, two drafters, two
/// numbers of clients. (`run` and `recommend` are asked about 20 experiments in `servers/src/calibrate/recommend/`.)
/// The page's length is as good as the best one of the runs, plain decoding included.
#[test]
fn the_page_and_a_sweep_name_the_same_lengths() {
    let (_place, page) = explorer(&[]);
    let (rates, drafts, clients) = ([0.2, 0.3, 0.6, 0.7, 0.8], [2.0, 8.0], [1, 4]);
    let mut hashes = Vec::new();
    for (rate, draft, n) in itertools::iproduct!(rates, drafts, clients) {
        let machine = format!("hw=linear&ta=0&tg=200&td=20&da=0&dg=10&dd={draft}");
        hashes.push(format!("{machine}&acc=constant&a={rate}&n={n}&c=200&k=1&cost=1&over=0"));
    }
    let Some(shown) = checked(&page, &hashes.iter().map(String::as_str).collect::<Vec<_>>()) else { return };
    let place = Place::holding(
        "name = \"servers\"\nseeds = [1, 2, 3]\nsweep_order = [\"acceptance.source.constant.rate\", \
         \"hardware.draft.linear.delta_s\", \"workload.arrivals.closed-loop\"]\n\
         policies = [{ autoregressive = {} }, { fixed = { k = { sweep = [1, 2, 3, 4, 5, 6, 7, 8] } } }]\n\
         [hardware]\ntarget = { linear = { alpha_s = 0.0, gamma_s = 2e-4, delta_s = 0.02 } }\n\
         draft = { linear = { alpha_s = 0.0, gamma_s = 1e-5, delta_s = { sweep = [2e-3, 8e-3] } } }\n\
         [engine]\nnum_gpu_blocks = 4000\nmax_num_seqs = 4\n\
         [workload]\narrivals = { closed-loop = { sweep = [1, 4] } }\n\
         lengths = { fixed = { prompt = 16, output = 300 } }\nrequests = 32\n\
         [acceptance.source]\nconstant = { rate = { sweep = [0.2, 0.3, 0.6, 0.7, 0.8] } }\n",
    );
    let report: Value = serde_json::from_str(&place.run("sweep", &["--format", "json"])).unwrap();
    let variants = report["variants"].as_array().unwrap();
    assert_eq!(variants.len(), 20);
    let mut named = Vec::new();
    for (variant, (shown, hash)) in variants.iter().zip(shown.iter().zip(&hashes)) {
        let costs: Vec<f64> = variant["policies"]
            .as_array()
            .unwrap()
            .iter()
            .map(|policy| policy["e2e_mean_s"]["mean"].as_f64().unwrap())
            .collect();
        assert_eq!(costs.len(), 9, "plain decoding and eight lengths");
        let least = costs.iter().copied().fold(f64::INFINITY, f64::min);
        let k = shown["best_length"].as_u64().unwrap() as usize;
        let behind = costs[k] / least - 1.0;
        // 1 % is a tie; another 1.5 % are prompts, ends of answers and the luck of 96 requests.
        assert!(behind < 0.025, "{hash}: the page has K = {k}, {:.1} % behind: {costs:?}", 100.0 * behind);
        named.push(k);
    }
    assert!(named.contains(&0) && named.iter().any(|&k| k > 3), "{named:?}");
}
