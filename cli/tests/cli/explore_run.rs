//! Runs the experiment that the explorer's page writes. The run's step times and its tokens per request and step must
//! agree with the numbers that the page shows.

use crate::explore::{checked, every_feature, explorer};
use crate::explore_library::escaped;
use crate::support::Place;
use foretoken_report::{read_keys, read_steps};
use foretoken_sim::StepRecord;
use serde_json::{Value, json};
use std::path::Path;

/// A model with a mixture of experts and sliding-window attention, as the explorer's page writes a user's model into
/// the URL of a link.
fn own_model() -> String {
    escaped(
        &json!([{
            "name": "file mine", "hidden": 2048, "vocab": 50_000, "tied": true,
            "layers": [
                { "count": 2, "attention": { "grouped": { "heads": 16, "kv_heads": 4, "head_dim": 128, "window": 600 } },
                  "feed_forward": { "dense": { "intermediate": 6000, "gated": true } } },
                { "count": 20, "attention": { "grouped": { "heads": 16, "kv_heads": 4, "head_dim": 128, "window": 600 } },
                  "feed_forward": { "experts": { "total": 32, "active": 4, "intermediate": 1000, "shared_intermediate": 500, "gated": true } } },
            ],
            "bits": { "weights": 16, "experts": 16, "head": 16, "kv": 16, "activations": 16, "expert_activations": 16 },
        }])
        .to_string(),
    )
}

/// The steps of both policies of a run: first of plain decoding, then of the fixed draft length. Keeps only steps with
/// `batch` requests and without prompts.
fn steps_of(folder: &Path, batch: u32) -> Vec<Vec<StepRecord>> {
    let keys = read_keys(folder).unwrap();
    let full = |s: &StepRecord| s.batch_size == batch && s.chunks == 0;
    keys.iter().map(|key| read_steps(folder, key).unwrap().into_iter().filter(full).collect()).collect()
}

/// Runs the experiment that the page writes at the URL hash `hash`. Compares step times and tokens per request and step
/// of the run with those that the page shows. `tolerance` is the largest relative deviation of the mean time of steps
/// with draft tokens; it is not 0, because which draft tokens are right is a random sample. `None` without a browser.
fn runs_as_said(page: &Path, hash: &str, batch: u32, tolerance: f64) -> Option<()> {
    let first = checked(page, &[hash])?;
    let place = Place::holding(first[0]["toml"].as_str().unwrap());
    place.run_drawn("out", &["--no-figures"]);
    let cells = steps_of(&place.path("out"), batch);
    let [plain, drafting] = &cells[..] else { panic!("{hash}: {} cells", cells.len()) };
    let context = |steps: &[StepRecord]| {
        let contexts: u64 = steps.iter().map(|s| s.context).sum();
        contexts as f64 / (steps.len() as f64 * f64::from(batch))
    };
    let seconds =
        |steps: &[StepRecord]| steps.iter().map(|s| (s.end - s.start).as_s()).sum::<f64>() / steps.len() as f64;
    assert!(plain.len() > 100 && drafting.len() > 50, "{hash}: {} and {} full steps", plain.len(), drafting.len());
    // The same state of the page, once for each policy: `c` is the mean context (tokens of a request in KV) that the
    // policy's steps had in the run.
    let at = [context(plain), context(drafting)].map(|c| format!("{hash}&c={}", c.round()));
    let all = checked(page, &[&at[0], &at[1]])?;
    let page_of = |i: usize, key: &str| all[i][key].as_f64().unwrap();
    let off = |run: f64, page: f64| (run / page - 1.0).abs();
    let rounds: u32 = drafting.iter().map(|s| s.batch_size).sum();
    let tokens = 1.0 + f64::from(drafting.iter().map(|s| s.accepted).sum::<u32>()) / f64::from(rounds);
    let deviations = [
        ("plain step", off(seconds(plain), page_of(0, "plain_step_s")), 1e-3),
        ("drafting step", off(seconds(drafting), page_of(1, "step_s")), tolerance),
        ("tokens of a round", off(tokens, page_of(1, "expected_tokens")), 0.03),
    ];
    println!("{hash}: {}", deviations.map(|(name, off, _)| format!("{name} {:.2} %", off * 100.0)).join(", "));
    for (name, off, most) in deviations {
        assert!(off <= most, "{name} of the run is {:.2} % off at {hash}", off * 100.0);
    }
    Some(())
}

/// The explorer's page writes an experiment for each setting of its controls. Runs such experiments: for every kind of
/// hardware, for every acceptance source, and for every other setting. The step times of the runs must be near the step
/// times on the page.
#[test]
fn the_written_experiment_runs_and_has_the_pages_step_times() {
    let (_place, page) = explorer(&[]);
    let own = format!("hw=own&gb=800&gf=150&gm=96&gl=30&models={}&target=file%20mine&draft=qwen3-0.6b", own_model());
    let linear = "hw=linear&n=8";
    let source = |name: &str| format!("{linear}&n=32&acc={}", escaped(name));
    let states: Vec<(String, u32)> = vec![
        (format!("{linear}&a=0.7&k=4"), 8),
        (format!("{linear}&acc=by-depth&rates=0.9,0.6,0.3&k=5&over=1"), 8),
        (format!("{linear}&cost=2.5&k=3&drafting=parallel&reads=per-position"), 8),
        (format!("{linear}&k=2&n=12&host=measured"), 12),
        (source("Spec-Bench, all tasks (mixture)"), 32),
        (source("Spec-Bench, translation (mixture)"), 32),
        (source("prompt lookup (assumed shares)"), 32),
        (format!("{}&k=8", source("suffix decoding (assumed shares)")), 32),
        ("target=mixtral-8x7b&tp=2&k=3&n=16".into(), 16),
        ("target=qwen3-30b-a3b&draft=qwen3-0.6b&k=3&n=16&cost=0.5".into(), 16),
        (format!("{own}&k=3&n=8&c=1500"), 8),
    ];
    for (hash, batch) in &states {
        if runs_as_said(&page, hash, *batch, 0.01).is_none() {
            return;
        }
    }
}

#[test]
fn the_experiment_of_measured_costs_runs_as_said() {
    let place = Place::new();
    std::fs::write(place.path("every.toml"), every_feature()).unwrap();
    let (_place, page) = explorer(&["--profile", place.path("every.toml").to_str().unwrap()]);
    runs_as_said(&page, "hw=profile&n=8&c=400&k=3", 8, 0.01);
}

/// With requests at a rate, the mean number of requests in a run (rate times mean E2E latency) is near the page's batch
/// size. The numbers are not equal, because Poisson arrivals are a sample.
#[test]
fn requests_a_second_become_the_batch_size_of_a_run() {
    let (_place, page) = explorer(&[]);
    let hash = "hw=linear&k=3&c=640&rate=5&out=256&tg=100";
    let Some(all) = checked(&page, &[hash]) else { return };
    let said = |key: &str| all[0][key].as_f64().unwrap();
    let toml = all[0]["toml"].as_str().unwrap();
    let toml = toml
        .replace("closed-loop = 8", "poisson = { rate = 5.0 }")
        .replace("max_num_seqs = 8", "max_num_seqs = 1000")
        .replace("num_gpu_blocks = ", "num_gpu_blocks = 100")
        .replace("requests = 40", "requests = 4000");
    let place = Place::holding(&toml);
    let report: Value = serde_json::from_str(&place.run_drawn("out", &["--no-figures", "--format", "json"])).unwrap();
    let rows = report["variants"][0]["policies"].as_array().unwrap();
    for (row, key) in rows.iter().zip(["settled_plain", "settled"]) {
        let in_system = 5.0 * row["e2e_mean_s"]["mean"].as_f64().unwrap_or_else(|| panic!("{row:#}"));
        let off = in_system / said(key) - 1.0;
        println!("{key}: {in_system} in the run, {} on the page", said(key));
        assert!(off.abs() < 0.05, "{key}: {in_system} in the run, {} on the page", said(key));
    }
}
