//! `foretoken live` on the CPU: its files, refused settings, and behaviour on errors.

use crate::support::Place;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};

/// A small, short experiment with the shipped pair of target and draft model.
pub const LIVE: &str = r#"name = "small"
seeds = [3]
policies = [{ autoregressive = {} }, { fixed = { k = 3 } }, { smartspec = {} }]

[hardware]
target = { linear = { alpha_s = 20e-9, gamma_s = 150e-6, delta_s = 300e-6 } }
draft = { linear = { alpha_s = 5e-9, gamma_s = 15e-6, delta_s = 40e-6 } }

[engine]
max_num_seqs = 4
max_num_batched_tokens = 64
num_gpu_blocks = 64
max_model_len = 128
prefix_caching = false

[workload]
arrivals = { poisson = { rate = 100.0 } }
lengths = { fixed = { prompt = 32, output = 16 } }
requests = 12

[acceptance.source]
constant = { rate = 0.7 }

[slo]
adaspec-scale = 1.0

[live]
target = "tiny-target"
draft = "tiny-draft"
threads = 1
warm_up_requests = 4
"#;

/// If the experiment's name already begins with the command's name, as `live-cpu` does, the results folder is named
/// `live-cpu-…` and not `live-live-cpu-…`.
#[test]
fn results_of_live_cpu_are_named_live_cpu() {
    let place = Place::holding(LIVE);
    let args = ["live", "x.toml", "--no-figures", "--set", "name=live-cpu", "--set", "workload.requests=2"];
    let output = place.foretoken().args(args).args(["--set", "policies=[{ autoregressive = {} }]"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let names: Vec<String> = std::fs::read_dir(place.path("results"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(names.len(), 1);
    assert!(names[0].starts_with("live-cpu-"), "{names:?}");
}

/// Runs `foretoken live x.toml -o out` with the arguments `more`, which must succeed. Returns stdout and stderr.
fn live(place: &Place, more: &[&str]) -> (String, String) {
    let output = place.foretoken().args(["live", "x.toml", "-o", "out"]).args(more).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{stderr}");
    (String::from_utf8(output.stdout).unwrap(), stderr)
}

fn json(place: &Place, name: &str) -> Value {
    serde_json::from_slice(&std::fs::read(place.path(name)).unwrap()).unwrap()
}

fn golden(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernels/tests/golden").join(name)
}

/// Copies a checkpoint with a vocabulary of 160 tokens into the folder `name`.
fn checkpoint(place: &Place, name: &str) {
    std::fs::create_dir(place.path(name)).unwrap();
    for file in ["config.json", "model.safetensors"] {
        std::fs::copy(golden("llama").join(file), place.path(name).join(file)).unwrap();
    }
}

#[test]
fn a_live_results_folder_has_the_files_of_a_run_and_is_marked_live() {
    let place = Place::holding(LIVE);
    let (table, _) = live(&place, &["--no-figures"]);
    assert!(table.contains("fixed-3") && table.contains("live"), "{table}");
    let manifest = json(&place, "out/manifest.json");
    assert_eq!((&manifest["source"], &manifest["complete"]), (&"live".into(), &true.into()));
    for file in ["summary.parquet", "requests.parquet", "report.txt", "experiment.toml", "tapes/v0-s0-p2.tape"] {
        assert!(place.path("out").join(file).exists(), "{file}");
    }
    let report = json(&place, "out/live.json");
    let cells = report["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 3);
    for cell in cells {
        assert_eq!(cell["ended"], "done");
        let host = &cell["host"]["step"];
        assert!(host["steps"].as_u64() > Some(5) && host["p50_s"].as_f64() <= host["p99_s"].as_f64(), "{host}");
    }
    assert!(report["device"].as_str().unwrap().starts_with("cpu, 1 threads, "));
}

#[test]
fn more_arrivals_than_the_device_serves_are_called_overload() {
    let place = Place::holding(LIVE);
    let sets =
        ["--set", "live.time_scale=100.0", "--set", "workload.requests=150", "--set", "policies=[{fixed={k=3}}]"];
    let (_, stderr) = live(&place, &[&sets[..], &["--no-figures"]].concat());
    assert!(stderr.contains("overloaded:") && stderr.contains("were waiting"), "{stderr}");
    let report = json(&place, "out/live.json");
    let found = &report["cells"][0]["overload"];
    assert!(found["offered_req_s"].as_f64() > found["completed_req_s"].as_f64(), "{found}");
}

/// In a sweep over `num_gpu_blocks`, the models are loaded once, with memory for the largest swept value. All swept
/// values are checked before the models are loaded.
#[test]
fn a_sweep_may_grow_what_the_device_holds() {
    let place = Place::holding(LIVE);
    let grow = ["--no-figures", "--set", "engine.num_gpu_blocks={ sweep = [32, 96] }", "--set", "workload.requests=4"];
    live(&place, &grow);
    assert_eq!(json(&place, "out/live.json")["cells"].as_array().unwrap().len(), 6);
    let bad = ["live", "x.toml", "-o", "bad", "--set", "engine.block_size={ sweep = [16, 32] }"];
    let output = place.foretoken().args(bad).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("engine.block_size") && error.contains("32 is not 16"), "{error}");
    assert!(!place.path("bad").exists(), "nothing ran");
}

#[test]
fn a_prompt_too_long_is_rejected_and_counted() {
    let place = Place::holding(LIVE);
    let (short, long) =
        ("{\"prompt\": \"copy: abc\"}\n".to_owned(), format!("{{\"prompt\": \"{}\"}}\n", "x".repeat(300)));
    std::fs::write(place.path("texts.jsonl"), short.clone() + &long + &short + &short).unwrap();
    let prompts = "live.prompts={ jsonl = { path = \"texts.jsonl\" } }";
    let (stdout, stderr) = live(&place, &["--set", prompts, "--no-figures", "--format", "json"]);
    assert!(stderr.contains("3 requests that can never run were rejected"), "{stderr}");
    assert!(stdout.contains("\"rejected\": 3"), "{stdout}");
}

#[test]
fn prompts_are_tokenised_with_the_checkpoints_tokenizer() {
    let place = Place::holding(LIVE);
    ["target", "draft"].into_iter().for_each(|name| checkpoint(&place, name));
    std::fs::write(place.path("texts.jsonl"), "{\"prompt\": \"ab c ab\"}\n").unwrap();
    let base = ["--no-figures", "--format", "json", "--overwrite"];
    let sets = ["live.target=./target", "live.draft=./draft", "live.prompts={ jsonl = { path = \"texts.jsonl\" } }"];
    let all: Vec<&str> = base.into_iter().chain(sets.iter().flat_map(|set| ["--set", set])).collect();
    let refused = place.fails(&[&["live", "x.toml", "-o", "out"][..], &all].concat(), 2);
    assert!(refused.contains("160 tokens and no tokenizer.json"), "{refused}");

    let words = "{\"ab\": 7, \"c\": 9, \"[UNK]\": 0}";
    let model = format!("{{\"type\": \"WordLevel\", \"vocab\": {words}, \"unk_token\": \"[UNK]\"}}");
    let rest = "\"added_tokens\": [], \"normalizer\": null, \"post_processor\": null, \"decoder\": null";
    let tokenizer = format!(
        "{{\"version\": \"1.0\", \"truncation\": null, \"padding\": null, {rest}, \
         \"pre_tokenizer\": {{\"type\": \"Whitespace\"}}, \"model\": {model}}}"
    );
    std::fs::write(place.path("target/tokenizer.json"), &tokenizer).unwrap();
    let (stdout, _) = live(&place, &all);
    assert!(stdout.contains("fixed-3"), "{stdout}");

    std::fs::write(place.path("draft/tokenizer.json"), tokenizer.replace("\"c\": 9", "\"d\": 9")).unwrap();
    let refused = place.fails(&[&["live", "x.toml", "-o", "out"][..], &all].concat(), 2);
    assert!(refused.contains("tokenizers of") && refused.contains("differ"), "{refused}");
}

/// Instructions that the processor lacks are refused before a model is loaded, and no files are left. Unknown
/// instructions and too many threads are refused in the same way. Plain instructions run on every processor.
#[test]
fn instructions_that_the_processor_lacks_are_refused() {
    let place = Place::holding(LIVE);
    let error = place.fails(&["live", "x.toml", "-o", "out", "--set", "live.threads=9999"], 2);
    assert!(error.contains("9999 threads on") && error.contains("would take turns"), "{error}");
    let error = place.fails(&["live", "x.toml", "-o", "out", "--set", "live.instructions=\"avx\""], 2);
    assert!(error.contains("plain, avx2, avx-512"), "{error}");
    // Plain instructions run on every processor and give the results of the best instructions.
    let (_, stderr) = live(&place, &["--no-figures", "--instructions", "plain", "--set", "policies=[{fixed={k=3}}]"]);
    assert!(stderr.contains("cpu, 1 threads, plain"), "{stderr}");
    for (key, has) in [("avx2", has("avx2")), ("avx-512", has("avx512f"))].into_iter().filter(|level| !level.1) {
        let error = place.fails(&["live", "x.toml", "-o", "other", "--instructions", key], 4);
        assert!(!has && error.contains(&format!("no {key} instructions")) && error.contains("it has plain"), "{error}");
        assert!(!place.path("other").exists(), "nothing was begun");
    }
}

/// Does /proc/cpuinfo list this feature of the processor?
fn has(flag: &str) -> bool {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    text.lines().any(|line| line.starts_with("flags") && line.split_whitespace().any(|word| word == flag))
}

#[test]
fn settings_that_no_device_supports_are_refused() {
    let place = Place::holding(LIVE);
    checkpoint(&place, "other");
    let refused = |sets: &[&str], said: &str| {
        let sets: Vec<&str> = sets.iter().flat_map(|set| ["--set", set]).collect();
        let error = place.fails(&[&["live", "x.toml", "-o", "out"][..], &sets].concat(), 2);
        assert!(error.contains(said), "{said} is missing in: {error}");
        assert!(!place.path("out").exists());
    };
    refused(&["engine.draft_at=step-end"], "a device drafts at the start of the step that verifies");
    refused(&["engine.async_scheduling=true"], "engine.async_scheduling");
    refused(&["live.draft=./other"], "the target has 256 tokens in its vocabulary and the draft 160");
    refused(
        &["policies=[{ eagle2 = {} }]", "live.acceptance={ sampled = { temperature = 1.0 } }"],
        "`eagle2` cannot run live: the policy drafts trees",
    );
    refused(&["policies=[{ oracle-goodput = {} }]"], "`oracle-goodput` sees what no server sees");
    refused(&["live.target=tiny-targe"], "did you mean \"tiny-target\"?");
    refused(&["live.threads=0"], "0 threads run nothing");
    let error = place.fails(&["live", "x.toml", "-o", "out", "--device", "cuda:99"], 4);
    assert!(error.contains("cuda:99") && error.contains("foretoken doctor"), "{error}");
}

/// Starts a run that takes some minutes, and returns when the run has recorded a few steps.
pub fn begun(place: &Place) -> std::process::Child {
    let sets = ["--set", "workload.requests=3000", "--set", "live.time_scale=0.3", "--no-figures"];
    let mut child = Command::new(env!("CARGO_BIN_EXE_foretoken"))
        .args(["live", "x.toml", "-o", "out"])
        .args(sets)
        .current_dir(place.path(""))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let tape = place.path("out/tapes/v0-s0-p0.tape");
    // A tape (log of a live run) begins with all 3000 requests, at most 20 bytes each. The recorded steps follow; the
    // test waits for 20,000 bytes of them.
    while std::fs::metadata(&tape).map_or(0, |m| m.len()) < 3000 * 20 + 20_000 {
        assert!(child.try_wait().unwrap().is_none(), "the run ended before it could be interrupted");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    child
}

#[test]
fn ctrl_c_ends_a_live_run_and_keeps_finished_runs() {
    let place = Place::holding(LIVE);
    let child = begun(&place);
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{error}");
    assert!(error.contains("interrupted in autoregressive") && error.contains("what was done is kept"), "{error}");
    let table = String::from_utf8_lossy(&output.stdout);
    let begins = "PART OF A RUN: 0 of 3 runs ended; autoregressive, seed 3, interrupted after ";
    assert!(table.starts_with(begins) && table.lines().count() > 3, "what was done is shown: {table}");
    assert!(!error.contains("overloaded"), "not all requests had come: {error}");
    let manifest = json(&place, "out/manifest.json");
    assert_eq!((&manifest["complete"], &manifest["cells"]), (&false.into(), &3.into()));
    let compared = place.foretoken().args(["validate", "out", "-o", "v"]).output().unwrap();
    let first = String::from_utf8_lossy(&compared.stdout).lines().next().unwrap_or_default().to_owned();
    let begins = "PART OF THE RUNS: 1 of 3 runs were begun; autoregressive, as run: ";
    assert!(first.starts_with(begins) && first.ends_with("(it was interrupted)"), "{first}");
    let report = place.foretoken().args(["report", "out"]).output().unwrap();
    let said = String::from_utf8_lossy(&report.stderr).into_owned();
    assert!(said.contains("This run did not end: PART OF A RUN: 0 of 3 runs ended; autoregressive"), "{said}");
    assert!(place.path("out/requests.parquet").exists());
}
