//! `foretoken profile` on a tiny model, and experiments with profiles of machines whose costs are known.

use crate::support::Place;
use foretoken_profiler::{Density, DeviceInfo, Kind, ModelInfo, Profile, Role, Room, Setup, Shape, Truth, Visit};
use foretoken_sim::ContextReads;
use std::process::{Command, Stdio};
use std::time::Duration;

const ALPHA: f64 = 3e-7;
const GAMMA: f64 = 55e-6;
const DELTA: f64 = 11e-3;

/// Seconds of a pass on a machine with linear costs. A target pass takes α per token of context, γ per new token, and
/// δ; a draft pass takes a tenth of this time.
fn straight(role: Role, shape: &Shape) -> f64 {
    let p = shape.pass(ContextReads::Once);
    let seconds = ALPHA * p.context as f64 + GAMMA * p.batched as f64 + DELTA;
    if role == Role::Draft { seconds / 10.0 } else { seconds }
}

/// Seconds of a pass on a machine that pads the number of batched tokens to the next power of two.
fn padded(_: Role, shape: &Shape) -> f64 {
    1e-3 * shape.batched().next_power_of_two() as f64 + 1e-8 * f64::from(shape.requests * shape.context)
}

fn profile(cost: fn(Role, &Shape) -> f64) -> Profile {
    let model = |name: &str| ModelInfo {
        name: name.into(),
        weights: "random, seed 1".into(),
        dtype: "bf16".into(),
        parameters: 1000,
        vocab: 256,
        max_positions: 2048,
    };
    let room =
        Room { max_positions: 2048, kv_tokens: 32_768, max_batched: 2048, max_requests: 64, graph_sizes: vec![] };
    let device = DeviceInfo {
        kind: "cpu".into(),
        name: "a test".into(),
        features: vec![],
        cores: 1,
        threads: 1,
        speed: None,
        driver: None,
    };
    let setup = Setup {
        foretoken: "0.0.0".into(),
        device,
        target: model("big"),
        draft: model("small"),
        target_room: room.clone(),
        draft_room: room,
        density: Density::Full,
        budget_s: 1.0,
        seed: 1,
    };
    let visit = |stop: foretoken_profiler::Stop| Visit { stop, seconds: vec![cost(stop.role, &stop.shape); 3] };
    let visits: Vec<Visit> = setup.stops().into_iter().map(visit).collect();
    setup.profile(&visits, Duration::from_secs(1), None, "2026-01-01T00:00:00Z".into()).unwrap()
}

const EXPERIMENT: &str = r#"name = "on-a-profile"
policies = [{ fixed = { k = 2 } }, { smartspec = {} }]

[hardware]
profile = "p.toml"

[engine]
max_num_seqs = 16

[workload]
arrivals = { poisson = { rate = 4.0 } }
lengths = { fixed = { prompt = 128, output = 64 } }
requests = 100

[acceptance.source]
constant = { rate = 0.7 }
"#;

/// A folder with an experiment that uses a profile (measured pass times); the profile has the text `profile`.
fn place(profile: &str) -> Place {
    let place = Place::holding(EXPERIMENT);
    std::fs::write(place.path("p.toml"), profile).unwrap();
    place
}

fn report(place: &Place, out: &str) -> serde_json::Value {
    serde_json::from_slice(&std::fs::read(place.path(out).join("report.json")).unwrap()).unwrap()
}

#[test]
fn a_profile_gives_truth_and_belief() {
    let place = place(&profile(straight).to_toml());
    place.run("linear", &["--set", "hardware.truth=linear"]);
    let by_profile = report(&place, "linear");
    assert_eq!(by_profile["source"], "simulated on profiled costs");
    // The experiment's results must be the same if the linear costs of the profile (α, γ, δ) are written into the
    // experiment by hand.
    let own = profile(straight);
    let line_of = |role| {
        let c = own.belief(role);
        format!("{{ alpha_s = {:?}, gamma_s = {:?}, delta_s = {:?} }}", c.alpha_s, c.gamma_s, c.delta_s)
    };
    let (target, draft) = (line_of(Role::Target), line_of(Role::Draft));
    let hardware = format!("target = {{ linear = {target} }}\ndraft = {{ linear = {draft} }}");
    let belief = format!("\n[belief]\ntarget = {target}\ndraft = {draft}\n");
    let by_hand = EXPERIMENT.replace("profile = \"p.toml\"", &hardware) + &belief;
    std::fs::write(place.path("x.toml"), by_hand).unwrap();
    place.run("hand", &[]);
    assert_eq!(by_profile["variants"], report(&place, "hand")["variants"]);
}

#[test]
fn a_profiles_digest_is_recorded_and_resolved_experiments_run() {
    let place = place(&profile(straight).to_toml());
    let first = place.run_drawn("out", &[]);
    let manifest = |out: &str| -> serde_json::Value {
        serde_json::from_slice(&std::fs::read(place.path(out).join("manifest.json")).unwrap()).unwrap()
    };
    let digest = blake3_of(&std::fs::read(place.path("p.toml")).unwrap());
    assert_eq!(manifest("out")["inputs"]["p.toml"], digest);
    let again = place.foretoken().args(["run", "out/experiment.toml", "-o", "again"]).output().unwrap();
    assert_eq!(String::from_utf8(again.stdout).unwrap(), first);
    assert_eq!(manifest("again")["digest"], manifest("out")["digest"]);
    // The results folder's copy of the experiment names the profile's file. It does not repeat the profile's costs.
    let kept = std::fs::read_to_string(place.path("out/experiment.toml")).unwrap();
    assert!(kept.contains("p.toml") && !kept.contains("measured"), "{kept}");
    // After a change of the profile's file, even of a comment, `run --resume` must refuse the results, because they
    // belong to another experiment.
    std::fs::write(place.path("p.toml"), profile(straight).to_toml() + "\n# seen\n").unwrap();
    let stderr = place.fails(&["run", "x.toml", "-o", "out", "--resume"], 2);
    assert!(stderr.contains("another experiment"), "{stderr}");
}

fn blake3_of(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex().to_string()
}

#[test]
fn truths_can_be_swept_and_noise_taken_over() {
    let place = place(&profile(straight).to_toml());
    place.run("out", &["--set", "hardware.truth={ sweep = [\"table\", \"linear\", \"staircase\"] }"]);
    let report = report(&place, "out");
    let e2e = |i: usize| report["variants"][i]["policies"][0]["e2e_mean_s"]["mean"].as_f64().unwrap();
    // The machine's costs are linear. So a table of measured times (`truth = "table"`) and the fitted line give equal
    // results. The cost model `staircase` pads passes to the next measured size and is slower.
    assert!((e2e(0) / e2e(1) - 1.0).abs() < 0.01, "{} {}", e2e(0), e2e(1));
    assert!(e2e(2) >= e2e(1) * 0.999, "{} {}", e2e(2), e2e(1));
    place.run("noise", &["--set", "hardware.profile_noise=true"]);
}

fn warnings(place: &Place, more: &[&str]) -> String {
    let output = place.foretoken().args(["run", "x.toml", "-o", "out", "--overwrite"]).args(more).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn an_untrusted_profile_warns_and_so_do_uncovered_passes() {
    let place = place(&profile(padded).to_toml());
    for _ in 0..2 {
        let stderr = warnings(&place, &[]);
        assert!(stderr.contains("warning: p.toml: the profile is not trusted: target: alpha, gamma, delta are off by"));
    }
    let trusted = self::place(&profile(straight).to_toml());
    assert!(!warnings(&trusted, &[]).contains("p.toml"));
    let text = profile(straight).to_toml();
    std::fs::write(trusted.path("p.toml"), text.replacen("delta_s = ", "delta_s = 1", 1)).unwrap();
    let stderr = warnings(&trusted, &[]);
    assert!(
        stderr.contains("warning: p.toml: it was edited or damaged since it was measured: its checksum"),
        "{stderr}"
    );
    let unsealed = text.split("# seal").next().unwrap();
    std::fs::write(trusted.path("p.toml"), unsealed).unwrap();
    let stderr = warnings(&trusted, &[]);
    assert!(stderr.contains("warning: p.toml: its last line is no seal"), "{stderr}");
    std::fs::write(trusted.path("p.toml"), text).unwrap();
    let wide = ["--set", "engine.max_num_batched_tokens=8192", "--set", "workload.lengths.fixed.prompt=7000"];
    let stderr = warnings(&trusted, &wide);
    assert!(stderr.contains("target passes went beyond the profile") && stderr.contains("extrapolated"), "{stderr}");
}

#[test]
fn errors_in_a_profile_name_their_place() {
    let good = profile(straight).to_toml();
    let says = |text: &str, sets: &[&str], parts: &[&str]| {
        let place = place(text);
        let mut args = vec!["run", "x.toml", "-o", "out"];
        sets.iter().for_each(|set| args.extend(["--set", set]));
        let stderr = place.fails(&args, 2);
        parts.iter().for_each(|part| assert!(stderr.contains(part), "{part} in {stderr}"));
        assert!(!place.path("out").exists());
    };
    says(
        &good.replace("schema_version = 2", "schema_version = 9"),
        &[],
        &["schema_version is 9", "update it", "p.toml"],
    );
    says("x = 1\n", &[], &["not a profile", "foretoken profile"]);
    says(&good.replace("trusted = true", "trusted = 3"), &[], &["p.toml", "trusted = 3"]);
    says(&good.replace("trusted = true", "trustd = true"), &[], &["did you mean `trusted`"]);
    says(&good[..good.len() / 2], &[], &["p.toml"]);
    says(&good.replacen("delta_s = ", "delta_s = -", 1), &[], &["target.linear.delta_s", "is not a time"]);
    says(&good, &["hardware.profile=nowhere.toml"], &["cannot read the profile", "nowhere.toml"]);
    says(&good, &["hardware.truth=curve"], &["hardware.truth", "staircase"]);
    says(&good, &["hardware.context_reads=per-position"], &["was measured for hardware.context_reads = \"once\""]);
    says(
        &good,
        &["hardware.target={ linear = { alpha_s = 0, gamma_s = 0, delta_s = 1 } }"],
        &["both say what a pass costs"],
    );
    says(&good, &["hardware.profile_noise=true", "hardware.noise_cv=0.1"], &["both give the noise"]);
    let none = EXPERIMENT.replace(
        "profile = \"p.toml\"",
        "truth = \"linear\"\ntarget = { linear = { alpha_s = 0, gamma_s = 0, delta_s = 1 } }\ndraft = { linear = { alpha_s = 0, gamma_s = 0, delta_s = 1 } }",
    );
    let place = Place::holding(&none);
    assert!(place.fails(&["run", "x.toml"], 2).contains("hardware.truth needs hardware.profile"));
}

/// A folder with a model of a few thousand parameters.
fn with_model() -> Place {
    let place = Place::holding("");
    std::fs::create_dir(place.path("m")).unwrap();
    let config = r#"{"model_type": "llama", "hidden_act": "silu", "vocab_size": 64, "hidden_size": 32,
        "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16,
        "intermediate_size": 48, "rms_norm_eps": 1e-5, "max_position_embeddings": 128, "tie_word_embeddings": true}"#;
    std::fs::write(place.path("m/config.json"), config).unwrap();
    place
}

const MODEL: [&str; 10] = ["profile", "--target", "m", "--draft", "m", "--weights", "random", "--threads", "1", "-o"];

fn profiles(place: &Place, more: &[&str]) -> std::process::Output {
    place.foretoken().args(MODEL).args(more).output().unwrap()
}

#[test]
fn a_pair_is_measured_drawn_and_used() {
    let place = with_model();
    let output = profiles(&place, &["p.toml", "--quick", "--time-budget", "0.5", "--plot"]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    // The profile may be "not trusted" (exit code 3), because pass times of this machine need not be linear. This test
    // accepts both verdicts.
    assert!(matches!(output.status.code(), Some(0 | 3)), "{stderr}");
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(stdout.starts_with("profiled: m with m on cpu") && stdout.contains("held-out error"), "{stdout}");
    let text = std::fs::read_to_string(place.path("p.toml")).unwrap();
    let profile = Profile::parse(&text).unwrap();
    assert_eq!(output.status.code(), Some(if profile.trusted { 0 } else { 3 }), "{stderr}");
    assert_eq!((profile.target.model.vocab, profile.device.threads), (64, 1));
    assert!(profile.target.measured.iter().any(|m| m.shape.kind == Kind::Prefill && m.samples >= 6));
    assert!(!place.path("p.toml.measured.partial").exists());
    for figure in ["p.predicted.svg", "p.residuals.svg"] {
        assert!(std::fs::read_to_string(place.path(figure)).unwrap().starts_with("<svg"), "{figure}");
    }
    std::fs::write(place.path("x.toml"), EXPERIMENT).unwrap();
    place.run_drawn("out", &[]);
    let output = profiles(&place, &["q.toml", "--quick", "--time-budget", "0.5", "--format", "json"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((json["device"]["kind"].as_str(), json["target"]["model"]["name"].as_str()), (Some("cpu"), Some("m")));
    // A finished profile is not replaced unless the user asks for it.
    let stderr = place.fails(&[&MODEL[..], &["p.toml", "--quick"]].concat(), 2);
    assert!(stderr.contains("already there") && stderr.contains("--overwrite"), "{stderr}");
}

/// `profile` measures only passes that the engine can run. The smallest possible engine can be profiled. An engine with
/// `--max-num-seqs 0` is refused.
#[test]
fn a_profile_measures_only_passes_of_its_engine() {
    let place = with_model();
    let engine = ["--max-model-len", "64", "--max-num-seqs", "3", "--max-num-batched-tokens", "24"];
    let output = profiles(&place, &[&["p.toml", "--time-budget", "0.3"], &engine[..]].concat());
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(matches!(output.status.code(), Some(0 | 3)), "{stderr}");
    let profile = Profile::parse(&std::fs::read_to_string(place.path("p.toml")).unwrap()).unwrap();
    for role in Role::BOTH {
        let shapes: Vec<Shape> = profile.of(role).measured.iter().map(|m| m.shape).collect();
        assert!(shapes.iter().all(|s| s.context + s.new <= 64 && s.requests <= 3 && s.batched() <= 24), "{shapes:?}");
        assert!(shapes.iter().any(|s| s.context > 40) && shapes.iter().any(|s| s.requests == 2), "{shapes:?}");
        assert!(profile.of(role).range.requests <= 3);
        assert!(
            profile.of(role).measured.iter().filter(|m| m.fold > 0).count() as u64 == profile.of(role).held_out.shapes
        );
    }
    // The smallest engine that can be profiled: one request, 32 tokens of context, 16 tokens a pass.
    let least = ["--max-model-len", "32", "--max-num-seqs", "1", "--max-num-batched-tokens", "16"];
    let output = profiles(&place, &[&["q.toml", "--time-budget", "0.3"], &least[..]].concat());
    assert!(matches!(output.status.code(), Some(0 | 3)), "{}", String::from_utf8_lossy(&output.stderr));
    let stderr = place.fails(&[&MODEL[..], &["r.toml", "--max-num-seqs", "0"]].concat(), 2);
    assert!(stderr.contains("--max-num-seqs"), "{stderr}");
}

/// A profile's table of times counts each request's context once in a pass. The profile's linear fit counts the context
/// once for each position of a request. A run on the profile must equal a run in whose experiment the costs and both
/// values of `context_reads` are written by hand.
#[test]
fn truth_and_belief_count_context_each_in_its_own_way() {
    let each = |_: Role, s: &Shape| {
        let p = s.pass(ContextReads::PerPosition);
        1e-3 + 1e-6 * p.context as f64 + 2e-5 * p.batched as f64
    };
    let own = profile(each);
    assert_eq!(own.context_reads, ContextReads::PerPosition);
    let place = place(&own.to_toml());
    let toml = |value: toml::Value| value.to_string();
    for (truth, name, counts) in [(Truth::Table, "table", "once"), (Truth::Linear, "linear", "per-position")] {
        std::fs::write(place.path("x.toml"), EXPERIMENT).unwrap();
        place.run(name, &["--set", &format!("hardware.truth={name}")]);
        let cost_of = |role| toml(toml::Value::try_from(own.truth(role, truth)).unwrap());
        let hardware = format!(
            "target = {}\ndraft = {}\ncontext_reads = \"{counts}\"",
            cost_of(Role::Target),
            cost_of(Role::Draft)
        );
        let line = |role| toml(toml::Value::try_from(own.belief(role)).unwrap());
        let belief = format!(
            "\n[belief]\ntarget = {}\ndraft = {}\ncontext_reads = \"per-position\"\n",
            line(Role::Target),
            line(Role::Draft)
        );
        let by_hand = EXPERIMENT.replace("profile = \"p.toml\"", &hardware) + &belief;
        std::fs::write(place.path("x.toml"), by_hand).unwrap();
        let hand = format!("{name}-by-hand");
        place.run(&hand, &[]);
        assert_eq!(report(&place, name)["variants"], report(&place, &hand)["variants"], "{name}");
    }
}

#[test]
fn an_interrupted_measuring_goes_on_and_another_setup_is_refused() {
    let place = with_model();
    let args = [&MODEL[..], &["p.toml", "--quick", "--time-budget", "8"]].concat();
    let side = place.path("p.toml.measured.partial");
    let mut child = Command::new(env!("CARGO_BIN_EXE_foretoken"))
        .args(&args)
        .current_dir(place.path(""))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let visits = || {
        let bytes = std::fs::read(&side).unwrap_or_default();
        String::from_utf8_lossy(&bytes).matches("\"seconds\":").count()
    };
    while visits() < 4 {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it could be interrupted");
        std::thread::sleep(Duration::from_millis(2));
    }
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(130), "{stderr}");
    assert!(stderr.contains("visits are kept") && visits() >= 4 && !place.path("p.toml").exists(), "{stderr}");
    let other = [&MODEL[..], &["p.toml", "--quick", "--time-budget", "9"]].concat();
    let stderr = place.fails(&other, 2);
    assert!(stderr.contains("budget_s: was 8.0, now 9.0"), "{stderr}");
    let kept = std::fs::read(&side).unwrap();
    // A damaged measurement is reported and measured again. Damage in the description of the setup is refused.
    let mut damaged = kept.clone();
    damaged[20] ^= 1;
    std::fs::write(&side, &damaged).unwrap();
    let stderr = place.fails(&args, 2);
    assert!(stderr.contains("cannot be continued: frame 0, which begins at byte 8, is damaged"), "{stderr}");
    damaged = kept.clone();
    *damaged.last_mut().unwrap() ^= 1;
    std::fs::write(&side, &damaged).unwrap();
    let output = place.foretoken().args(&args).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(matches!(output.status.code(), Some(0 | 3)), "{stderr}");
    assert!(stderr.contains("goes on after") && stderr.contains("from there on it is measured again"), "{stderr}");
    assert!(place.path("p.toml").exists() && !side.exists() && !kept.is_empty());
}

#[test]
fn invalid_profile_commands_are_refused_before_loading() {
    let place = with_model();
    let with = |more: &[&'static str]| -> Vec<&'static str> { [&MODEL[..], more].concat() };
    let gpu = place.fails(&with(&["p.toml", "--device", "cuda:99"]), 4);
    assert!(gpu.contains("cuda:99") && gpu.contains("doctor"), "{gpu}");
    assert!(place.fails(&with(&["p.toml", "--device", "tpu"]), 2).contains("expected cpu or cuda:N"));
    assert!(place.fails(&with(&["nowhere/p.toml"]), 2).contains("no folder nowhere"));
    let unknown = place.fails(&["profile", "--target", "vicuna-7", "--draft", "m", "-o", "p.toml"], 2);
    assert!(unknown.contains("vicuna-7b"), "{unknown}");
    let weights = place.fails(&["profile", "--target", "m", "--draft", "m", "-o", "p.toml"], 2);
    assert!(weights.contains("--target"), "{weights}");
    let vocabulary =
        place.fails(&["profile", "--target", "vicuna-68m", "--draft", "m", "--weights", "random", "-o", "p.toml"], 2);
    assert!(vocabulary.contains("32000") && vocabulary.contains("64"), "{vocabulary}");
    assert!(!place.path("p.toml").exists() && !place.path("p.toml.measured.partial").exists());
}
