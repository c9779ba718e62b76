//! `foretoken profile-acceptance`, which records which draft tokens are right (a truth table), and experiments that use
//! truth tables.

use crate::support::Place;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The folder of a tiny model with random weights, from the golden tests of the crate kernels: vocabulary 160, 256
/// positions.
fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernels/tests/golden").join(name)
}

/// A folder with two models that often agree: `target`, and `draft`. The draft is a copy of the target in which every
/// fifth weight is changed a little.
fn pair(experiment: &str) -> Place {
    let place = Place::holding(experiment);
    for name in ["target", "draft"] {
        std::fs::create_dir(place.path(name)).unwrap();
        std::fs::copy(golden("llama/config.json"), place.path(name).join("config.json")).unwrap();
    }
    let mut bytes = std::fs::read(golden("llama/model.safetensors")).unwrap();
    std::fs::write(place.path("target/model.safetensors"), &bytes).unwrap();
    let header = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    // A bf16 weight in little endian has two bytes. This flips bit 4 of the mantissa's seven bits.
    bytes[header..].chunks_exact_mut(10).for_each(|five| five[0] ^= 0x10);
    std::fs::write(place.path("draft/model.safetensors"), &bytes).unwrap();
    place
}

const SMALL: [&str; 6] = ["--n", "3", "--prompt-len", "40", "--output-len", "64"];

fn arguments<'a>(output: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let base = ["profile-acceptance", "--target", "target", "--draft", "draft", "-o", output];
    base.into_iter().chain(more.iter().copied()).collect()
}

/// Records a truth table (which draft tokens are right) and returns its summary.
fn record(place: &Place, output: &str, more: &[&str]) -> Value {
    let all = arguments(output, more);
    let out = place.foretoken().args(&all).args(["--format", "json"]).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).unwrap()
}

fn experiment(lengths: &str, acceptance: &str) -> String {
    format!(
        r#"name = "replay"
policies = [{{ fixed = {{ k = {{ sweep = [1, 2, 3, 5] }} }} }}, {{ adaspec = {{}} }}]

[hardware]
target = {{ linear = {{ alpha_s = 0.3e-6, gamma_s = 55e-6, delta_s = 11e-3 }} }}
draft = {{ linear = {{ alpha_s = 0.0, gamma_s = 5e-6, delta_s = 1e-3 }} }}

[workload]
arrivals = {{ poisson = {{ rate = 4.0 }} }}
lengths = {lengths}
requests = 18

[acceptance]
source = {acceptance}
"#
    )
}

const OWN_LENGTHS: &str = r#"{ trace = { path = "x.truth" } }"#;

#[test]
fn the_table_is_the_same_however_it_is_recorded() {
    let place = pair("");
    let summary = record(&place, "a.truth", &[&SMALL[..], &["--threads", "1", "--batch", "1"]].concat());
    record(&place, "b.truth", &[&SMALL[..], &["--threads", "2", "--batch", "7"]].concat());
    let bytes = std::fs::read(place.path("a.truth")).unwrap();
    assert_eq!(bytes, std::fs::read(place.path("b.truth")).unwrap());
    assert_eq!(summary["source"], "recorded");
    let families: Vec<&str> =
        summary["families"].as_array().unwrap().iter().map(|f| f["family"].as_str().unwrap()).collect();
    assert_eq!(families, ["all", "cipher", "copy", "facts", "arithmetic", "retrieval", "dialogue"]);
    // There are three prompts of each of the six families. Of the 64 output tokens of a prompt, 63 can be drafted.
    assert_eq!(
        (&summary["families"][0]["outputs"], &summary["families"][0]["positions"]),
        (&18.into(), &(18 * 63).into())
    );
    let right = summary["families"][0]["right"].as_f64().unwrap();
    assert!((0.1..0.97).contains(&right), "{right}: nothing would be tried");
    // A second recording does not replace the first one unless the user asks for it.
    let said = place.fails(&arguments("a.truth", &SMALL), 2);
    assert!(said.contains("a.truth is already there") && said.contains("--overwrite"), "{said}");
    record(&place, "a.truth", &[&SMALL[..], &["--overwrite"]].concat());
    let inspected = place.foretoken().args(["traces", "inspect", "a.truth"]).output().unwrap();
    let text = String::from_utf8(inspected.stdout).unwrap();
    assert!(text.contains("truth-table") && text.contains("known at 100.0 % of positions"), "{text}");
}

#[test]
fn a_model_drafts_perfectly_for_itself_and_the_summary_and_figures_say_so() {
    let place = pair("");
    let base =
        ["profile-acceptance", "--target", "target", "--draft", "target", "-o", "self.truth", "--plot", "figures"];
    let out = place.foretoken().args(base).args(SMALL).output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    let all = text.lines().find(|l| l.trim_start().starts_with("all ")).unwrap();
    // The draft model is the target itself, so every draft token is right. 63 tokens of each output can be drafted.
    // With 1, 2 and 3 draft tokens in a round (a request's draft tokens of one step), every round has all its draft
    // tokens. With 4, the thirteenth and last round has only three, so the mean acceptance length is 64 / 13 = 4.923.
    let lengths: Vec<&str> = all.split_whitespace().skip(3).take(5).collect();
    assert_eq!(lengths, ["100.0", "2.000", "3.000", "4.000", "4.923"], "{all}");
    for part in ["Mean acceptance length", "Rank of the right token", "Calibration", "recorded", "cipher"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    for figure in ["acceptance-by-depth.svg", "calibration.svg"] {
        assert!(std::fs::read_to_string(place.path("figures").join(figure)).unwrap().contains("recorded on cpu"));
    }
}

/// The mean acceptance length (accepted draft tokens of a request in a step, plus one) that `run` reports for `policy`.
fn mean_length(report: &Value, policy: &str) -> f64 {
    let policies = report["variants"][0]["policies"].as_array().unwrap();
    let row = policies.iter().find(|p| p["policy"] == policy).unwrap();
    row["mean_acceptance_length"]["mean"].as_f64().unwrap()
}

#[test]
fn simulating_a_fixed_length_gives_the_tables_own_mean_acceptance_length() {
    let place = pair(&experiment(OWN_LENGTHS, "{ recorded = {} }"));
    let summary = record(&place, "x.truth", &SMALL);
    let report: Value = serde_json::from_str(&place.run("out", &["--format", "json"])).unwrap();
    for k in [1, 2, 3, 5] {
        let expected = summary["families"][0]["mean_acceptance_length"][k - 1].as_f64().unwrap();
        let got = mean_length(&report, &format!("fixed-{k}"));
        assert!((got - expected).abs() < 1e-12, "k = {k}: simulated {got}, recorded {expected}");
    }
    let manifest: Value = serde_json::from_slice(&std::fs::read(place.path("out/manifest.json")).unwrap()).unwrap();
    assert!(manifest["inputs"].to_string().contains("x.truth"), "{}", manifest["inputs"]);
}

#[test]
fn a_truth_table_serves_any_workload_with_notes() {
    let longer = "{ fixed = { prompt = 30, output = 100 } }";
    let place = pair(&experiment(longer, r#"{ table = { path = "x.truth", beyond = "wrap" } }"#));
    record(&place, "x.truth", &SMALL);
    let out = place.foretoken().args(["run", "x.toml", "-o", "out"]).output().unwrap();
    let said = String::from_utf8(out.stderr).unwrap();
    assert!(out.status.success(), "{said}");
    assert!(said.contains("18 of 18 requests are longer than their recording, which begins again"), "{said}");
    assert!(said.contains("confidences are recorded on the target's path, and modelled off it"), "{said}");
    let manifest: Value = serde_json::from_slice(&std::fs::read(place.path("out/manifest.json")).unwrap()).unwrap();
    assert!(manifest["inputs"].to_string().contains("x.truth"), "{}", manifest["inputs"]);
    // The results folder has the experiment with all settings written out. A run of this copy from the results folder
    // still finds the truth table (the recorded acceptance).
    let again = place.foretoken().args(["run", "out/experiment.toml", "-o", "again"]).output().unwrap();
    assert!(again.status.success(), "{}", String::from_utf8_lossy(&again.stderr));
    // If the file of the truth table (the recorded acceptance) changes, `run --resume` must refuse the results, because
    // they belong to another experiment.
    record(&place, "x.truth", &[&SMALL[..], &["--seed", "9", "--overwrite"]].concat());
    place.fails(&["run", "x.toml", "-o", "out", "--resume"], 2);

    let refusing = pair(&experiment(longer, r#"{ table = { path = "x.truth" } }"#));
    record(&refusing, "x.truth", &SMALL);
    let said = refusing.fails(&["run", "x.toml", "-o", "out"], 2);
    assert!(said.contains("emits 100 tokens, its recording has 64") && said.contains("wrap"), "{said}");

    let both = pair(&experiment(OWN_LENGTHS, r#"{ table = { path = "x.truth" } }"#));
    record(&both, "x.truth", &SMALL);
    let said = both.fails(&["run", "x.toml", "-o", "out"], 2);
    assert!(said.contains("source = { recorded = {} }"), "{said}");
}

#[test]
fn tables_that_cannot_be_used_are_named() {
    let place = pair(&experiment(OWN_LENGTHS, "{ recorded = {} }"));
    record(&place, "good.truth", &SMALL);
    let good = std::fs::read(place.path("good.truth")).unwrap();
    let other = |layout: &[u8]| [layout, &good[8..]].concat();
    let mut damaged = good.clone();
    damaged[60] ^= 4;
    for (bytes, said) in [
        (other(b"FTKTRUT7"), "x.truth: is a truth table of layout `7`; this version of foretoken reads `2`"),
        (other(b"FTKTRUTH"), "x.truth: is a truth table of the first layout"),
        (damaged, "x.truth: is a damaged truth table: frame 0, which begins at byte 8, is damaged"),
        (good[..good.len() / 2].to_vec(), "x.truth: is a truth table that ends in the middle"),
    ] {
        std::fs::write(place.path("x.truth"), bytes).unwrap();
        assert!(place.fails(&["run", "x.toml", "-o", "out"], 2).contains(said), "{said}");
    }
    let table = pair(&experiment("{ fixed = { prompt = 30, output = 10 } }", r#"{ table = { path = "x.truth" } }"#));
    std::fs::write(table.path("x.truth"), "t_s,input_tokens,output_tokens\n").unwrap();
    assert!(table.fails(&["run", "x.toml", "-o", "out"], 2).contains("x.truth: is no truth table"));
    std::fs::remove_file(table.path("x.truth")).unwrap();
    assert!(table.fails(&["run", "x.toml", "-o", "out"], 2).contains("no such file"));
}

#[test]
fn invalid_recordings_are_refused_and_leave_no_files() {
    let place = pair("");
    let refused = |more: &[&str], words: &[&str]| {
        let said = place.fails(&arguments("x.truth", more), 2);
        words.iter().for_each(|word| assert!(said.contains(word), "{word}: {said}"));
        assert!(!place.path("x.truth").exists());
    };
    refused(&["--temperature", "0.7"], &["only greedy outputs can be recorded"]);
    refused(&["--output-len", "300"], &["prompt 1 (cipher", "is too long", "256 positions", "--output-len"]);
    refused(&["--prompts", "gone.jsonl"], &["--prompts", "gone.jsonl", "families"]);
    let file = |text: &str| std::fs::write(place.path("p.jsonl"), text).unwrap();
    file("{\"prompt\": \"abc\"}\n\n{\"text\": \"b\"}\n");
    refused(&["--prompts", "p.jsonl"], &["p.jsonl, line 3", "missing field `prompt`"]);
    file("{\"prompt\": \"abc\"}\nabc\n");
    refused(&["--prompts", "p.jsonl"], &["p.jsonl, line 2"]);
    file("{\"prompt\": \"\"}\n");
    refused(&["--prompts", "p.jsonl"], &["p.jsonl, line 1", "the prompt is empty"]);
    file("\n");
    refused(&["--prompts", "p.jsonl"], &["p.jsonl holds no prompt"]);
    file(&format!("{{\"prompt\": \"{}\", \"family\": \"long\"}}\n", "a".repeat(200)));
    refused(&["--prompts", "p.jsonl"], &["prompt 1 (long", "its 200 tokens and 128 of output"]);
    refused(&["--prompts", "p.jsonl", "--prompt-len", "9"], &["--prompt-len 9"]);
    file("{\"prompt\": \"é\"}\n");
    refused(&["--prompts", "p.jsonl"], &["token 195 lies outside of the vocabulary of 160", "byte-level"]);

    let qwen = golden("qwen3").display().to_string();
    let other = ["profile-acceptance", "--target", "target", "--draft", &qwen, "-o", "x.truth"];
    assert!(place.fails(&other, 2).contains("has 160 tokens"));
    let preset = ["profile-acceptance", "--target", "vicuna-7b", "--draft", "vicuna-68m", "-o", "x.truth"];
    assert!(place.fails(&preset, 2).contains("shape without weights"));
    let nowhere = ["profile-acceptance", "--target", "target", "--draft", "draft", "-o", "gone/x.truth"];
    assert!(place.fails(&nowhere, 2).contains("there is no folder gone"));
    let cuda = arguments("x.truth", &[&SMALL[..], &["--device", "cuda:7"]].concat());
    assert!(place.fails(&cuda, 4).contains("cuda:7"));
}

/// A tokenizer whose vocabulary is these three words.
fn tokenizer(words: [&str; 3]) -> String {
    let vocab: Vec<String> = words.iter().enumerate().map(|(i, w)| format!("\"{w}\": {i}")).collect();
    format!(
        r#"{{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
            "pre_tokenizer": {{"type": "Whitespace"}}, "post_processor": null, "decoder": null,
            "model": {{"type": "WordLevel", "vocab": {{{}}}, "unk_token": "{}"}}}}"#,
        vocab.join(", "),
        words[2]
    )
}

#[test]
fn checkpoints_read_with_their_own_tokenizer_and_end_with_their_own_token() {
    let place = pair("");
    let words = tokenizer(["left", "right", "what"]);
    std::fs::write(place.path("target/tokenizer.json"), &words).unwrap();
    std::fs::write(place.path("p.jsonl"), "{\"prompt\": \"left right left\"}\n{\"prompt\": \"up\"}\n").unwrap();
    let more = ["--prompts", "p.jsonl", "--output-len", "20"];
    let said = place.fails(&arguments("x.truth", &more), 2);
    assert!(said.contains("different vocabularies"), "{said}");
    std::fs::write(place.path("draft/tokenizer.json"), tokenizer(["left", "right", "who"])).unwrap();
    assert!(place.fails(&arguments("x.truth", &more), 2).contains("different vocabularies"));
    std::fs::write(place.path("draft/tokenizer.json"), &words).unwrap();
    record(&place, "x.truth", &more);
    let json = place.foretoken().args(["traces", "inspect", "x.truth", "--format", "json"]).output().unwrap();
    let stats: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((&stats["prompt"]["total"], &stats["output"]["total"]), (&4.into(), &40.into()));

    // Every token of the vocabulary is an end token, so a text ends after its first token.
    let all: Vec<String> = (0..160).map(|t| t.to_string()).collect();
    let config = format!("{{\"eos_token_id\": [{}]}}", all.join(", "));
    std::fs::write(place.path("target/generation_config.json"), config).unwrap();
    let positions = |output: &str, more: &[&str]| record(&place, output, more)["families"][0]["positions"].clone();
    assert_eq!(positions("ends.truth", &more), 0);
    assert_eq!(positions("goes-on.truth", &[&more[..], &["--ignore-eos"]].concat()), 38);
    std::fs::write(place.path("target/tokenizer.json"), "{").unwrap();
    assert!(place.fails(&arguments("y.truth", &more), 2).contains("tokenizer.json: no tokenizer"));
}

#[test]
#[cfg(unix)]
fn ctrl_c_leaves_no_half_table() {
    let place = pair("");
    let mut child = Command::new(env!("CARGO_BIN_EXE_foretoken"))
        .args(arguments("x.truth", &["--n", "20000", "--prompt-len", "40"]))
        .current_dir(place.path(""))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert!(child.try_wait().unwrap().is_none(), "it ended before it could be interrupted");
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let out = child.wait_with_output().unwrap();
    assert_eq!(out.status.code(), Some(130), "{}", String::from_utf8_lossy(&out.stderr));
    assert!(String::from_utf8_lossy(&out.stderr).contains("nothing was written") && out.stdout.is_empty());
    let left: Vec<_> = std::fs::read_dir(place.path("")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().contains("truth")), "{left:?}");
}
