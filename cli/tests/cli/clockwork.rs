//! `calibrate` and `validate --observed` on recordings of a real vLLM 0.32. The server's device was simulated, with a
//! known cost law (experiments/validation/clockwork).

use crate::support::Place;
use foretoken_servers::recordings::order::Order;
use foretoken_servers::recordings::recording::read_recording;
use foretoken_servers::recordings::run::ObservedRun;
use serde_json::Value;
use std::path::PathBuf;

const RECORDINGS: &str = "../experiments/validation/clockwork/recordings.tar";

/// The recordings (draft length, arrivals, clients) from which costs are fitted.
const FITTED: [&str; 6] = ["k0-closed-1", "k0-closed-4", "k0-closed-12", "k3-closed-1", "k3-closed-4", "k3-closed-12"];
/// The recordings (draft length, arrivals, clients or load) from which no costs are fitted; the fitted costs must
/// predict them.
const HELD_OUT: [&str; 4] = ["k1-closed-4", "k2-open-0.7", "k3-open-0.3", "k5-closed-4"];

/// A recording of an asynchronous server.
const ASYNCHRONOUS: &str = "foreign-terms/asynchronous-k3-closed-1";

/// Unpacks the recordings `names` of `memory-bound` into the folder of `place` and returns their paths.
fn unpacked(place: &Place, names: &[&str]) -> Vec<PathBuf> {
    names.iter().map(|name| unpack(place, &format!("memory-bound/{name}"))).collect()
}

/// Unpacks the recording `name` into the folder of `place` and returns its path.
fn unpack(place: &Place, name: &str) -> PathBuf {
    let all = std::fs::File::open(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(RECORDINGS)).unwrap();
    let mut all = tar::Archive::new(all);
    let packed = PathBuf::from(format!("{name}.obs.zst"));
    let packed = all.entries().unwrap().map(Result::unwrap).find(|entry| entry.path().unwrap() == packed).unwrap();
    let to = place.path(&format!("{}.obs", name.rsplit('/').next().unwrap()));
    let mut file = std::fs::File::create(&to).unwrap();
    zstd::stream::copy_decode(packed, &mut file).unwrap();
    to
}

/// The time of a target pass over `tokens` tokens and `context` tokens of context by the fitted profile (cost model),
/// seconds.
fn target_s(profile: &toml::Value, tokens: f64, context: f64) -> f64 {
    let curve = |name: &str| -> Vec<(f64, f64)> {
        let points = profile["target"]["cost"]["measured"][name].as_array().unwrap();
        let number = |v: &toml::Value| v.as_float().unwrap_or_else(|| v.as_integer().unwrap() as f64);
        points.iter().map(|point| (number(&point[0]), number(&point[1]))).collect()
    };
    let interpolated = |points: &[(f64, f64)], x: f64| {
        let right = points.partition_point(|point| point.0 < x).clamp(1, points.len() - 1);
        let ((x0, y0), (x1, y1)) = (points[right - 1], points[right]);
        y0 + (y1 - y0) * (x - x0) / (x1 - x0)
    };
    interpolated(&curve("batched"), tokens) + interpolated(&curve("context"), context)
}

/// `calibrate` gets what a client and the server's step log recorded. It must find the device's cost law
/// (`tests/vllm/clockwork/laws/memory-bound.toml`), and its predictions of held-out loads and draft lengths must have
/// small errors. Costs and schedule add little to these errors; most of each error comes from the random acceptance of
/// some dozen requests.
#[test]
fn the_law_of_a_clockwork_device_comes_back_and_predicts_what_was_held_out() {
    let place = Place::holding("");
    let run = |command: &mut std::process::Command| {
        let output = command.output().unwrap();
        (output.status.code(), output.stdout, String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let fitted = unpacked(&place, &FITTED);
    let (code, _, said) = run(place.foretoken().arg("calibrate").args(&fitted).args(["-o", "cal"]));
    assert_eq!(code, Some(0), "{said}");
    let profile: toml::Value =
        toml::from_str(&std::fs::read_to_string(place.path("cal/profile.toml")).unwrap()).unwrap();
    let law: toml::Value =
        toml::from_str(include_str!("../../../tests/vllm/clockwork/laws/memory-bound.toml")).unwrap();
    let of_law = |part: &str, key: &str| {
        let value = &law[part][key];
        value.as_float().unwrap_or_else(|| value.as_integer().unwrap() as f64)
    };
    // Sizes of passes that occurred in the recordings, with the allowed relative error of the fitted cost: decodes with
    // their contexts, verify passes up to 48 tokens (where the cost law has its knee), and prompts.
    for (tokens, context, within) in [
        (1.0, 120.0, 0.03),
        (4.0, 480.0, 0.03),
        (12.0, 1440.0, 0.03),
        (48.0, 1800.0, 0.03),
        (128.0, 0.0, 0.05),
        (256.0, 0.0, 0.05),
    ] {
        let law_s = of_law("target", "base_s")
            + of_law("target", "per_token_s") * (tokens - of_law("target", "knee")).max(0.0)
            + of_law("target", "context_s") * context;
        let error = target_s(&profile, tokens, context) / law_s - 1.0;
        assert!(error.abs() < within, "a pass of {tokens} tokens: {:.1} % off", 100.0 * error);
    }
    let draft = |key: &str| profile["draft"]["cost"]["linear"][key].as_float().unwrap();
    let pass_s = draft("delta_s") + 8.0 * draft("gamma_s");
    let error = pass_s / (of_law("draft", "base_s") + 8.0 * of_law("draft", "per_token_s")) - 1.0;
    assert!(error.abs() < 0.05, "a draft pass: {:.1} % off", 100.0 * error);

    let held_out = unpacked(&place, &HELD_OUT);
    let mut validate = place.foretoken();
    validate.args(["validate", "--calibrated", "cal", "-o", "val", "--format", "json", "--observed"]).args(&held_out);
    // Each load was observed only once, so repeats cannot show whether an error is real. `validate` therefore judges no
    // number and exits with an error. It still prints all numbers to stdout.
    let (_, stdout, said) = run(&mut validate);
    let json: Value = serde_json::from_slice(&stdout).unwrap_or_else(|e| panic!("{e}: {said}"));
    let cells = json["cells"].as_array().unwrap();
    assert_eq!(cells.len(), HELD_OUT.len());
    for cell in cells {
        for quantity in ["throughput", "TPOT, mean", "E2E, mean"] {
            let rows = cell["rows"].as_array().unwrap();
            let row =
                rows.iter().find(|row| row["quantity"] == quantity).unwrap_or_else(|| panic!("{quantity} in {cell:#}"));
            let [error, cost, schedule] =
                ["error", "of_cost", "of_schedule"].map(|key| row[key].as_f64().unwrap().abs());
            let what = format!(
                "K = {}, {}, {quantity}: {error}, of costs {cost}, of the schedule {schedule}",
                cell["k"], cell["load"]
            );
            assert!(error < 0.05 && cost < 0.02 && schedule < 0.005, "{what}");
        }
    }
    // Each predicted number has a 95 % interval. There are 4 numbers for each load. Of all these numbers, at most 2 may
    // lie outside of their intervals.
    let held_out = &json["held_out"];
    assert_eq!(held_out["numbers"], 4 * HELD_OUT.len(), "{held_out}");
    let within = held_out["within_interval"].as_u64().unwrap();
    assert!(within + 2 >= 4 * HELD_OUT.len() as u64, "{held_out}");
    assert!((0.02..0.06).contains(&held_out["median_half_width"].as_f64().unwrap()), "{held_out}");
    // The simulated scheduler repeats vLLM's schedule: every step of every recording has an equal simulated step.
    let replayed = json["replayed"].as_array().unwrap();
    assert!(!replayed.is_empty());
    for run in replayed {
        assert!(run["difference"].is_null() && run["steps"] == run["equal_steps"], "{run:#}");
    }
}

fn recorded(place: &Place, name: &str) -> ObservedRun {
    ObservedRun::of(&read_recording(&unpack(place, name)).unwrap())
}

/// What `observe` says of the order of a server's steps.
#[test]
fn an_asynchronous_server_shows_in_its_log_and_a_synchronous_one_too() {
    let place = Place::holding("");
    let shown = Order::of(&recorded(&place, ASYNCHRONOUS)).expect("it shows its order");
    assert!(shown.asynchronous && shown.computed > shown.rounds, "{shown:?}");
    assert_eq!(shown.warning(Some(true)), None);
    for (stated, says) in [(Some(false), "says synchronously"), (None, "does not say so")] {
        let said = shown.warning(stated).unwrap();
        assert!(said.starts_with("steps of the log start back to back"), "{said}");
        assert!(said.contains(&format!("the experiment {says}: set engine.async_scheduling=true")), "{said}");
    }
    for name in ["k3-closed-1", "k3-closed-12", "k2-open-0.7", "k5-closed-4", "k1-closed-4"] {
        let shown = Order::of(&recorded(&place, &format!("memory-bound/{name}"))).unwrap_or_else(|| panic!("{name}"));
        assert!(!shown.asynchronous && shown.computed == shown.rounds, "{name}: {shown:?}");
        assert_eq!((shown.warning(Some(false)), shown.warning(None)), (None, None), "{name}");
        let said = shown.warning(Some(true)).unwrap();
        assert!(said.starts_with("steps of the log never start back to back"), "{said}");
        assert!(said.contains("says asynchronously: set engine.async_scheduling=false"), "{said}");
    }
    // Plain decoding has no rounds, and a scheduler knows then where answers end.
    assert_eq!(Order::of(&recorded(&place, "memory-bound/k0-closed-4")), None);
}

#[test]
fn a_log_that_is_not_whole_shows_no_order() {
    let place = Place::holding("");
    let mut run = recorded(&place, "memory-bound/k3-closed-4");
    assert!(Order::of(&run).is_some());
    let step = run.steps.remove(40);
    assert_eq!(Order::of(&run), None, "a line is missing");
    run.steps.insert(40, step);
    run.metrics.preemptions = Some(1);
    assert_eq!(Order::of(&run), None, "work was done twice");
    run.metrics.preemptions = None;
    run.answers[0].rounds = None;
    assert_eq!(Order::of(&run), None, "an answer has no rounds");
}

/// `calibrate` repeats the schedule of the same recording in both orders, and finds the asynchronous one.
#[test]
fn calibrate_names_the_order_of_a_log() {
    let place = Place::holding("");
    let path = unpack(&place, ASYNCHRONOUS);
    let out = place.foretoken().arg("calibrate").arg(path).args(["-o", "cal"]).output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    assert!(said.contains("the log is that of asynchronous scheduling"), "{said}");
    assert!(said.contains("set engine.async_scheduling=true in the experiment"), "{said}");
}
