//! Random experiments, each run in two ways that must give the same results: step by step, and with equal steps skipped
//! in one go; in one thread and in three; whole and in shards that are merged.
//!
//! By default the test tries a few experiments. `FORETOKEN_EXPERIMENTS=5000 FORETOKEN_SECONDS=900 cargo test --release
//! -p foretoken-run --test differential -- --nocapture` tries as many as the time allows. `FORETOKEN_SEED` determines
//! the experiments. An experiment has `FORETOKEN_SEEDS` seeds (1), each of which gives a workload, and two engines.
//! Every `FORETOKEN_FOLDERS_EVERY`-th experiment (8) also runs in threads and in shards.

use foretoken_policies::PolicySpec;
use foretoken_run::cells::{Mode, Shard, play};
use foretoken_run::complete::{How, complete};
use foretoken_run::machine;
use foretoken_run::merge::{merge, run_shard};
use foretoken_run::plan::Plan;
use foretoken_run::setting::Setting;
use foretoken_run::work::Work;
use itertools::Itertools;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

fn of<T: Clone + std::fmt::Debug + 'static>(values: impl Into<Vec<T>>) -> impl Strategy<Value = T> {
    select(values.into())
}

fn engine() -> impl Strategy<Value = String> {
    let version = of(["vllm-0.33", "vllm-0.33", "vllm-0.32", "vllm-v0"]);
    let sizes = (of([1, 2, 4, 8, 16, 64]), of([64, 96, 256, 512]), of([60, 90, 150, 400, 4000]));
    let more = of([
        "",
        "draft_at = \"step-start\"",
        "async_scheduling = false",
        "runner = \"v1\"",
        "runner = \"v2\"",
        "step_overhead_s = 0.002",
        "scheduling_policy = \"priority\"",
        "draft_kv = { equal-split = { ratio = 0.5 } }",
        "host = { request_s = 1e-4, token_s = 1e-5, speculating = { step_s = 1e-3, request_s = 2e-4, token_s = 1e-4 } }",
    ]);
    (version, sizes, any::<bool>(), more).prop_map(|(version, (seqs, tokens, blocks), caching, more)| {
        let tokens = if version == "vllm-v0" { 1024 } else { tokens };
        format!(
            "[engine]\nversion = \"{version}\"\nmax_num_seqs = {{ sweep = [{seqs}, 3] }}\nmax_num_batched_tokens = {tokens}\n\
             num_gpu_blocks = {blocks}\nmax_model_len = 1024\nprefix_caching = {caching}\n{more}\n"
        )
    })
}

fn workload() -> impl Strategy<Value = String> {
    let arrivals = of([
        "{ poisson = { rate = 2.0 } }", "{ poisson = { rate = 20.0 } }", "{ gamma = { rate = 8.0, cv = 3.0 } }",
        "{ closed-loop = 1 }", "{ closed-loop = 5 }", "{ t1 = {} }", "{ burstgpt = {} }",
    ]);
    let lengths = of([
        "{ fixed = { prompt = 32, output = 16 } }",
        "{ fixed = { prompt = 200, output = 3 } }",
        "{ spec-bench = {} }",
        "{ log-normal = { prompt = { mean = 80.0, sigma = 0.9, max = 400 }, output = { mean = 40.0, sigma = 0.9, max = 200 } } }",
    ]);
    let more = of([
        "", "", "transform = [{ rate-scale = 3.0 }]", "transform = [{ thin = { keep = 0.5 } }]",
        "sessions = { turns = 3.0, gap_s = 0.1, max_context = 300 }",
    ]);
    (arrivals, lengths, 5..60u32, more).prop_map(|(arrivals, lengths, requests, more)| {
        format!("[workload]\narrivals = {arrivals}\nlengths = {lengths}\nrequests = {requests}\n{more}\n")
    })
}

fn acceptance() -> impl Strategy<Value = String> {
    let source = of([
        "{ constant = { rate = 0.7 } }", "{ constant = { rate = 0.05 } }", "{ constant = { rate = 1.0 } }",
        "{ by-depth = { rates = [0.9, 0.6, 0.3] } }", "{ mixture = {} }", "{ prompt-lookup = {} }",
    ]);
    source.prop_map(|source| format!("[acceptance]\nsource = {source}\n"))
}

/// The text of a random experiment with `seeds` seeds: mostly of one engine, sometimes of a fleet.
fn experiment(seeds: u32) -> impl Strategy<Value = String> {
    let policies: Vec<String> = PolicySpec::all()
        .iter()
        .map(|policy| toml::Value::try_from(policy).expect("a policy is TOML").to_string())
        .filter(|policy| !policy.contains("autoregressive"))
        .collect();
    let noise = of([0.0, 0.0, 0.1]);
    let fleet = of(["", "", "", "", "[fleet]\nreplicas = 2\n"]);
    let seed = 1..1_000_000u32;
    (select(policies), seed, noise, engine(), workload(), acceptance(), fleet).prop_map(
        move |(policy, seed, noise, engine, workload, acceptance, fleet)| {
            let seeds: Vec<u32> = (seed..seed + seeds).collect();
            format!(
                "name = \"random\"\nseeds = {seeds:?}\npolicies = [{{ autoregressive = {{}} }}, {policy}]\n\
                 [hardware]\ntarget = {{ linear = {{ alpha_s = 1e-7, gamma_s = 2e-4, delta_s = 0.02 }} }}\n\
                 draft = {{ linear = {{ alpha_s = 1e-8, gamma_s = 1e-5, delta_s = 0.002 }} }}\nnoise_cv = {noise:?}\n\
                 {engine}{workload}{acceptance}{fleet}[slo]\nadaspec-scale = 1.5\n"
            )
        },
    )
}

/// The digests of the results of all runs of an experiment. The error says why the experiment does not run.
fn played(text: &str, sets: &[&str]) -> Result<Vec<String>, String> {
    let sets: Vec<String> = sets.iter().map(|&set| set.to_owned()).collect();
    let plan = Plan::of_text("random.toml", text, &sets, Path::new("")).map_err(|e| e.message().to_owned())?;
    let never = AtomicBool::new(false);
    let mut results = Vec::new();
    for (variant, &seed) in plan.variants.iter().cartesian_product(&plan.seeds) {
        let setting = Setting::new(variant, seed).map_err(|e| e.message().to_owned())?;
        let mut slo = None;
        for policy in &plan.policies {
            let played = play(&setting, &policy.spec, slo, &never).map_err(|e| e.message().to_owned())?;
            slo = slo.or(Some(played.slo));
            results.push(played.stored.numbers(&played.stored.records).to_hex().to_string());
        }
    }
    Ok(results)
}

fn bytes_of(folder: &Path, prefix: &str, all: &mut BTreeMap<String, Vec<u8>>) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        match entry.path().is_dir() {
            true => bytes_of(&entry.path(), &format!("{name}/"), all),
            // The manifest of a results folder contains measured times, so it is not compared.
            false if name == "manifest.json" => {}
            false => drop(all.insert(name, std::fs::read(entry.path()).unwrap())),
        }
    }
}

/// Runs a random experiment in one thread, in three threads, and in two shards (parts that are merged). Panics if a
/// file of the results differs.
fn threads_and_shards(text: &str) {
    let place = tempfile::tempdir().unwrap();
    let plan = Plan::of_text("random.toml", text, &[], Path::new("")).unwrap();
    let how = How { mode: Mode::Fresh, figures: false };
    let work = Work::default();
    for (name, threads) in [("one", 1), ("three", 3)] {
        let pool = machine::pool(Some(threads), 8).unwrap();
        complete(&plan, place.path().join(name), how, &pool, &work).unwrap_or_else(|e| panic!("{text}\n{e}"));
    }
    let pool = machine::pool(Some(2), 8).unwrap();
    let shared = place.path().join("two");
    for shard in Shard::all(2) {
        run_shard(&plan, &shared, shard, false, false, &pool, &work).unwrap_or_else(|e| panic!("{text}\n{e}"));
    }
    merge(&shared, |_| how, &pool, &work).unwrap_or_else(|e| panic!("{text}\n{e}"));
    let [one, three, two] = ["one", "three", "two"].map(|name| {
        let mut all = BTreeMap::new();
        bytes_of(&place.path().join(name), "", &mut all);
        all
    });
    assert!(one.len() > 5 && one == three, "one thread and three differ: {text}");
    assert!(one == two, "whole and sharded differ: {text}");
}

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().unwrap_or_else(|e| panic!("{name}: {e}")))
}

#[test]
fn random_experiments_give_the_same_results_in_every_way() {
    let (most, seed) = (number("FORETOKEN_EXPERIMENTS", 60), number("FORETOKEN_SEED", 1));
    let (seeds, folders_every) = (number("FORETOKEN_SEEDS", 1), number("FORETOKEN_FOLDERS_EVERY", 8));
    let until = Instant::now() + Duration::from_secs(number("FORETOKEN_SECONDS", 600));
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let (mut runner, experiment) = (TestRunner::new_with_rng(Config::default(), rng), experiment(seeds as u32));
    let (mut tried, mut refused, mut runs, mut folders) = (0, 0, 0, 0);
    let mut reasons: BTreeMap<String, u32> = BTreeMap::new();
    while tried < most && Instant::now() < until {
        let text = experiment.new_tree(&mut runner).unwrap().current();
        tried += 1;
        let (skipped, stepped) =
            (played(&text, &["engine.skip_stretches=true"]), played(&text, &["engine.skip_stretches=false"]));
        assert_eq!(skipped, stepped, "skipping and stepping differ: {text}");
        match skipped {
            Ok(results) => {
                runs += results.len();
                if tried % folders_every == 0 {
                    threads_and_shards(&text);
                    folders += 1;
                }
            }
            Err(why) => {
                refused += 1;
                *reasons.entry(why.chars().take(70).collect()).or_default() += 1;
            }
        }
    }
    eprintln!(
        "seed {seed}: {tried} experiments of {seeds} seeds, {refused} refused alike, {runs} runs; {folders} experiments in \
         threads and shards"
    );
    reasons.iter().for_each(|(why, n)| eprintln!("  {n}: {why}"));
    assert!(refused * 2 < tried, "too many are refused to test anything: {reasons:?}");
}
