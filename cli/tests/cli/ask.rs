//! `foretoken ask`: the answer to a line, the experiment that it writes, and lines that it refuses.

use crate::support::Place;
use serde_json::Value;
use std::process::Output;

/// The line of a public grid of measurements (gpt-oss-120b on an H200).
const LINE: &str = r#"vllm serve openai/gpt-oss-120b --tensor-parallel-size 1 --max-num-seqs 256 --speculative-config '{"method":"eagle3","model":"lmsys/EAGLE3-gpt-oss-120b-bf16","num_speculative_tokens":7}'"#;
/// Its acceptance by position.
const ACCEPT: &str = "marginal=0.58,0.34,0.16,0.08,0.055,0.015,0.01";
/// A small load, so that an answer takes a moment.
pub const SMALL: [&str; 8] = ["--clients", "2", "--input", "400", "--output", "60", "--batch-sizes", "1,4"];

pub fn ask(place: &Place, line: &str, more: &[&str]) -> Output {
    place.foretoken().args(["ask", line]).args(more).output().unwrap()
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

pub fn refused(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(2), "{}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stderr)
}

/// The whole question of the issue: what is better than K = 7, in words of 80 columns, and the line to paste.
#[test]
fn a_line_gets_an_answer() {
    let place = Place::new();
    let more = ["--gpu", "h200", "--clients", "16", "--input", "700", "--output", "90", "--accept", ACCEPT];
    let more = [&more[..], &["--price", "3", "--batch-sizes", "1,16"]].concat();
    let out = ask(&place, LINE, &more);
    let said = text(&out.stdout);
    assert!(out.status.success(), "{}", text(&out.stderr));
    let in_one_line = said.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
    for words in [
        "Draft ",
        "instead of 7 tokens",
        "gpt-oss-120b, drafted by eagle3-gpt-oss-120b, on h200, vLLM",
        "K = 7, now",
        "With the host time of a measured server (",
        "$/M",
        "used: --tensor-parallel-size, --max-num-seqs, --speculative-config",
        "assumed: max_num_batched_tokens 8192",
        "sigma 1: best",
        "to paste: vllm serve openai/gpt-oss-120b --tensor-parallel-size 1 --max-num-seqs 256 --speculative-config '{",
    ] {
        assert!(in_one_line.contains(&words.to_lowercase()), "{words}: {said}");
    }
    let (answer, paste) = said.split_once("to paste:").unwrap();
    assert!(answer.lines().all(|line| line.chars().count() <= 80), "{answer}");
    assert!(!paste.contains("tokens\":7}"), "{paste}");
    let answer = json(&ask(&place, LINE, &[&more[..], &["--format", "json"]].concat()));
    let rows = answer["at_load"].as_array().unwrap();
    let of = |name: &str, key: &str| rows.iter().find(|r| r["name"] == name).unwrap()[key].as_f64().unwrap();
    let advised = answer["advised"].as_str().unwrap();
    assert!(of(advised, "e2e_mean_s") < of("K = 7", "e2e_mean_s"), "{answer}");
    // Dollars for a million tokens, by hand.
    let price = 3.0 * 1e6 / (3600.0 * of("K = 7", "tokens_s"));
    assert!((of("K = 7", "price_million_tokens") / price - 1.0).abs() < 1e-9);
    assert_eq!(answer["by_clients"].as_array().unwrap().len(), 2);
}

/// The experiment that `ask` writes gives the same numbers in `run`, the same table in `export vllm` and the same
/// advice in `recommend`.
#[test]
fn the_experiment_of_an_answer_gives_the_same_answer() {
    let place = Place::new();
    let more = [&SMALL[..], &["--gpu", "h200", "--accept", ACCEPT, "--out", "q.toml", "--format", "json"]].concat();
    let answer = json(&ask(&place, LINE, &more));
    let foretoken = |args: &[&str]| json(&place.foretoken().args(args).output().unwrap());
    let ran = foretoken(&["run", "q.toml", "-o", "ran", "--format", "json"]);
    let policies = ran["variants"][0]["policies"].as_array().unwrap();
    let mut compared = 0;
    for row in answer["at_load"].as_array().unwrap() {
        let same = policies.iter().find(|p| p["policy"] == row["policy"]).unwrap_or_else(|| panic!("{row}"));
        for (ours, theirs) in [("e2e_mean_s", "e2e_mean_s"), ("ttft_mean_s", "ttft_mean_s"), ("kv_peak", "kv_use_peak")]
        {
            let (a, b) = (row[ours].as_f64().unwrap(), same[theirs]["mean"].as_f64().unwrap());
            assert!((a / b - 1.0).abs() < 1e-12, "{ours} of {}: {a} and {b}", row["policy"]);
        }
        compared += 1;
    }
    assert!(compared >= 8, "{answer}");
    let few = ["--longest", "7", "-o", "advice", "--format", "json", "--set", "engine.max_num_seqs=4"];
    let advice = foretoken(&[&["recommend", "q.toml"][..], &few].concat());
    assert_eq!(advice["now"]["name"], "K = 7", "the first policy is what runs now");
    let table = foretoken(&["export", "vllm", "q.toml", "--batch-sizes", "1,4", "--set", "seeds=[1]"]);
    if let Some(ranges) = table.get("num_speculative_tokens_per_batch_size") {
        assert_eq!(*ranges, answer["table"]);
    }
    let again = refused(&ask(&place, LINE, &more));
    assert!(again.contains("q.toml exists") && again.contains("--overwrite"), "{again}");
}

/// Where plain decoding is best, the answer says so, and the flag goes out of the line.
#[test]
fn a_drafter_that_is_never_right_is_taken_out_of_the_line() {
    let place = Place::new();
    let more = [&SMALL[..], &["--gpu", "h200", "--accept", "conditional=0.02,0.02", "--format", "json"]].concat();
    let answer = json(&ask(&place, &format!("{LINE} --port 8000"), &more));
    assert_eq!((&answer["advice"], &answer["advised"]), (&"do-not-speculate".into(), &"plain decoding".into()));
    let paste = "vllm serve openai/gpt-oss-120b --tensor-parallel-size 1 --max-num-seqs 256 --port 8000";
    assert_eq!(answer["paste"], paste);
    assert_eq!((&answer["stop_from_clients"], &answer["no_matter"][0]), (&1.into(), &"--port".into()));
}

/// What is not given is named, with its band.
#[test]
fn assumptions_are_named_with_their_bands() {
    let place = Place::new();
    let more = ["--gpu", "l40s", "--lengths", "sharegpt", "--clients", "1", "--batch-sizes", "1", "--format", "json"];
    let answer = json(&ask(&place, "vllm serve meta-llama/Llama-3.1-8B-Instruct", &more));
    let assumed = answer["assumed"].to_string();
    assert!(assumed.contains("does not speculate, so eagle3 is asked about"), "{assumed}");
    assert!(assumed.contains("has the shape of llama-3.1-8b"), "{assumed}");
    let band = &answer["bands"][0];
    assert!(band["says"].as_str().unwrap().starts_with("drafts accepted as by"), "{band}");
    assert_eq!(band["others"].as_array().unwrap().len(), 2, "{band}");
    assert!(
        answer["paste"].as_str().is_none_or(|p| p.contains("--speculative-config '{\"method\":\"eagle3\"")),
        "{answer}"
    );
}

/// Each wrong line has one error that shows the part of the line.
#[test]
fn what_is_wrong_is_shown_in_the_line() {
    let place = Place::new();
    let vllm = |model: &str, config: &str| format!("vllm serve {model} --speculative-config '{config}'");
    let eagle = r#"{"method":"eagle3","num_speculative_tokens":3}"#;
    for (line, more, says) in [
        (
            "vllm serve Qwen/Qwen3-8B --max-num-seqz 8".to_owned(),
            &["--gpu", "h100"][..],
            &["--max-num-seqz is not known", "did you mean --max-num-seqs?", "-- here"][..],
        ),
        (
            "vllm serve Qwen/Qwen3-8B --max-num 8".into(),
            &["--gpu", "h100"],
            &["--max-num may be several flags", "--max-num-seqs", "-- here"],
        ),
        (
            "vllm serve Qwen/Qwen3-8B --config nowhere.yaml".into(),
            &["--gpu", "h100"],
            &["cannot read the file of --config", "-- here"],
        ),
        (
            "vllm serve Qwen/Qwen3-8B --speculative-config {\"method\":\"mtp\"}".into(),
            &["--gpu", "h100"],
            &["the shell took the quotes out", "single quotes", "-- here"],
        ),
        ("vllm serve Qwen/Qwen3-8B --x 'a".into(), &["--gpu", "h100"], &["this ' does not end"]),
        (vllm("openai/gpt-oss-120b", eagle), &["--gpu", "l40s"], &["does not fit", "GiB", "--tensor-parallel-size 2"]),
        (
            "vllm serve Qwen/Qwen3-8B -tp 3".into(),
            &["--gpu", "h100"],
            &["32 attention heads, which 3 GPUs cannot share"],
        ),
        (
            "vllm serve Qwen/Qwen3-8B --quantization fp8".into(),
            &["--gpu", "t4"],
            &["t4 cannot multiply in FP8", "-- here"],
        ),
        (
            vllm("openai/gpt-oss-20b", r#"{"method":"mtp","num_speculative_tokens":1}"#),
            &["--gpu", "h100"],
            &["has no module for multi-token prediction"],
        ),
        (
            vllm(
                "Qwen/Qwen3-8B",
                r#"{"method":"eagle3","model":"z-lab/Qwen3-8B-DFlash-b16","num_speculative_tokens":3}"#,
            ),
            &["--gpu", "h100"],
            &["eagle3 cannot draft with dflash-qwen3-8b", "-- here"],
        ),
        (
            vllm(
                "Qwen/Qwen3-8B",
                r#"{"method":"draft_model","model":"meta-llama/Llama-3.2-1B","num_speculative_tokens":3}"#,
            ),
            &["--gpu", "h100"],
            &["vLLM refuses a draft model with another vocabulary"],
        ),
        (
            "vllm serve acme/secret-9b".into(),
            &["--gpu", "h100"],
            &["no preset has the shape of acme/secret-9b", "--config"],
        ),
        // What is wrong with an option is shown in the option.
        (
            "vllm serve Qwen/Qwen3-8B".into(),
            &["--gpu", "h1000"],
            &["no preset has this name", "did you mean h100?", "--gpu h1000", "-- here"],
        ),
        (
            "vllm serve Qwen/Qwen3-8B".into(),
            &["--gpu", "h100", "--clients", "4", "--rate", "2"],
            &["are two loads", "--clients 4 --rate 2", "-- here"],
        ),
        (
            vllm("Qwen/Qwen3-8B", eagle),
            &["--gpu", "h100", "--accept", "marginal=0.5,0.6"],
            &["--accept conditional=", "-- here"],
        ),
        ("llama-server -m model.gguf".into(), &["--gpu", "h100"], &["starts neither vLLM nor SGLang"]),
        (
            "vllm serve Qwen/Qwen3-8B --max-model-len 4k".into(),
            &["--gpu", "h100", "--input", "7000", "--output", "900"],
            &["longer than 4000", "-- here"],
        ),
    ] {
        let said = refused(&ask(&place, &line, more));
        for words in says {
            assert!(said.contains(words), "{line}: {words}: {said}");
        }
    }
    let skipped = ask(
        &place,
        "vllm serve Qwen/Qwen3-8B --frobnicate 7 --port 1",
        &[&SMALL[..], &["--gpu", "h100", "--skip-unknown"]].concat(),
    );
    assert!(text(&skipped.stdout).contains("not known: --frobnicate"), "{}", text(&skipped.stdout));
}

/// A first experiment is written from two names, and runs.
#[test]
fn a_first_experiment_runs() {
    let place = Place::new();
    let new = |more: &[&str]| place.foretoken().args(["new", "first.toml"]).args(more).output().unwrap();
    let given = ["--gpu", "h100", "--model", "llama-3.1-8b", "--clients", "4"];
    let out = new(&given);
    let said = text(&out.stderr);
    assert!(out.status.success(), "{said}");
    assert!(said.contains("assumed: ") && said.contains("next: foretoken run first.toml"), "{said}");
    let args = ["run", "first.toml", "-o", "ran", "--no-figures", "--format", "json", "--set", "seeds=[1]"];
    let ran = json(&place.foretoken().args(args).output().unwrap());
    let names: Vec<&str> =
        ran["variants"][0]["policies"].as_array().unwrap().iter().map(|p| p["policy"].as_str().unwrap()).collect();
    for policy in ["fixed-1", "fixed-3", "smartspec", "foresight"] {
        assert!(names.contains(&policy), "{policy}: {names:?}");
    }
    assert!(refused(&new(&given)).contains("--overwrite"));
    // Nothing is asked where no terminal is.
    std::fs::remove_file(place.path("first.toml")).unwrap();
    assert!(refused(&new(&["--gpu", "h100"])).contains("--model is missing"));
    assert!(refused(&new(&["--gpu", "h100", "--model", "acme/secret-9b"])).contains("no preset has the shape"));
}

/// A shipped file is written as it is.
#[test]
fn a_shipped_file_is_copied() {
    let place = Place::new();
    let new = |more: &[&str]| place.foretoken().args(["new", "log.json"]).args(more).output().unwrap();
    let out = new(&["--copy", "vllm-logging"]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    let shipped = include_str!("../../../experiments/vllm-logging.json");
    assert_eq!(std::fs::read_to_string(place.path("log.json")).unwrap(), shipped);
    assert!(refused(&new(&["--copy", "vllm-logging"])).contains("--overwrite"));
    assert!(refused(&new(&["--copy", "quikstart", "--overwrite"])).contains("did you mean quickstart?"));
    assert!(refused(&new(&["--copy", "quickstart", "--gpu", "h100"])).contains("cannot be used with"));
}

/// A log gives load and lengths, a file the line, and a published curve the acceptance; a curve that does not exist is
/// answered with those that do.
#[test]
fn a_log_a_file_and_a_curve_are_taken() {
    let place = Place::new();
    let rows: String = (0..40).map(|i| format!("{i}.5,{},{}\n", 100 + i, 20 + i)).collect();
    std::fs::write(place.path("log.csv"), format!("t_s,input_tokens,output_tokens\n{rows}")).unwrap();
    std::fs::write(place.path("start.sh"), "#!/bin/sh\nexport X=1\nvllm serve zai-org/GLM-5.2-FP8 \\\n  -tp 8\n")
        .unwrap();
    let more = ["--gpu", "h200", "--log", "log.csv", "--batch-sizes", "1", "--method", "mtp", "--out", "q.toml"];
    let more = [&more[..], &["--format", "json"]].concat();
    let answer = json(&ask(&place, "start.sh", &[&more[..], &["--accept", "golden=glm-5.2-mtp"]].concat()));
    assert_eq!(answer["requests"], 40, "{answer}");
    assert!(answer["assumed"].to_string().contains("the first 1000 requests of the log"), "{answer}");
    let experiment = std::fs::read_to_string(place.path("q.toml")).unwrap();
    assert!(experiment.contains("golden = \"glm-5.2-mtp-thinking\"") && experiment.contains("log.csv"), "{experiment}");
    let more = [&more[..], &["--overwrite", "--accept", "golden=glm-9"]].concat();
    let wrong = refused(&ask(&place, "start.sh", &more));
    assert!(wrong.contains("no golden curve has this name") && wrong.contains("glm-5.2-mtp"), "{wrong}");
}
