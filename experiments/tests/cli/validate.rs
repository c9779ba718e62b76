//! `foretoken validate`: the token flow of a live run and of its simulation are the same; times are reported, not judged here.

use crate::live::{LIVE, begun};
use crate::support::Place;
use serde_json::Value;

/// Short enough for a test; bounds so wide that only what has nothing to do with time can break them.
const VALIDATE: &str = r#"
[validate]
loads = [0.6]
common_load = 0.6
service_s = 0.2
run_s = 0.4
profile_s = 1.0
drift_s = 1.0

[validate.tolerance]
tpot = 1e9
e2e = 1e9
completed = 1e9
drift = 1e9
"#;

fn experiment() -> String {
    LIVE.replace("requests = 12", "requests = 2000") + VALIDATE
}

/// What is exact, of every run: the replay on recorded times, and acceptance wherever both decided alike.
fn exact(validation: &Value) {
    for cell in validation["cells"].as_array().unwrap() {
        let (name, flow) = (format!("{}, {}", cell["policy"], cell["load"]), &cell["flow"]);
        assert_eq!(cell["replay_parted"], Value::Null, "{name}");
        assert_eq!(flow["other_acceptance"], 0, "{name}: {flow}");
        assert!(flow["rounds"].as_u64() > Some(0) && flow["shared_rounds"].as_u64() > Some(0), "{name}: {flow}");
        // What decides nothing by the clock repeats the whole flow of each request, whatever the schedule.
        if ["autoregressive", "fixed-3"].contains(&cell["policy"].as_str().unwrap()) && cell["partial"] == false {
            assert_eq!(flow["same_requests"], flow["requests"], "{name}: {flow}");
            assert_eq!(cell["missed"]["invented"], 0, "{name}");
        }
    }
}

#[test]
fn the_token_flow_is_that_of_the_device() {
    let place = Place::holding(&experiment());
    let output = place.foretoken().args(["validate", "x.toml", "-o", "out", "--format", "json"]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    // The ranking is the one bound that depends on times; whether it holds is not for a busy machine to say.
    assert!([Some(0), Some(3)].contains(&output.status.code()), "{stderr}");
    let validation: Value = serde_json::from_slice(&output.stdout).unwrap();
    exact(&validation);
    // A closed loop and an open one of each policy.
    assert_eq!(validation["cells"].as_array().unwrap().len(), 3 * 2 + 2);
    let kept: Value = serde_json::from_slice(&std::fs::read(place.path("out/validation.json")).unwrap()).unwrap();
    assert_eq!(kept, validation);
    for cell in validation["cells"].as_array().unwrap() {
        let tpot = cell["rows"].as_array().unwrap().iter().find(|r| r["quantity"] == "TPOT, mean").unwrap();
        eprintln!(
            "{}, {}: TPOT {} ({} live / live)",
            cell["policy"], cell["load"], tpot["recorded_error"], tpot["live_against_live"]
        );
    }
    let manifest: Value = serde_json::from_slice(&std::fs::read(place.path("out/manifest.json")).unwrap()).unwrap();
    assert_eq!((&manifest["source"], &manifest["complete"]), (&"live".into(), &true.into()));
    let page = std::fs::read_to_string(place.path("out/validation.html")).unwrap();
    for part in ["End-to-end latency", "Kendall", "simulated, recorded", "Passes of each step"] {
        assert!(page.contains(part), "{part}");
    }

    // Comparing again runs nothing and finds the same.
    let again = place.foretoken().args(["validate", "out", "-o", "again", "--format", "json"]).output().unwrap();
    let again: Value = serde_json::from_slice(&again.stdout).unwrap();
    assert_eq!(again["cells"], validation["cells"]);
    assert_eq!(again["drift"], validation["drift"]);
}

#[test]
fn a_killed_run_is_compared_as_far_as_it_went() {
    let place = Place::holding(LIVE);
    let mut child = begun(&place);
    child.kill().unwrap();
    child.wait().unwrap();
    let output = place.foretoken().args(["validate", "out", "--format", "json"]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!([Some(0), Some(3)].contains(&output.status.code()), "{stderr}");
    let validation: Value = serde_json::from_slice(&output.stdout).unwrap();
    exact(&validation);
    let cells = validation["cells"].as_array().unwrap();
    assert_eq!((cells.len(), &cells[0]["partial"]), (1, &true.into()));
    let notes = validation["notes"].to_string();
    assert!(
        notes.contains("the live run is a part") && notes.contains("drift of the machine was not measured"),
        "{notes}"
    );
}

#[test]
fn an_error_beyond_its_bound_is_a_verdict() {
    let place = Place::holding(LIVE);
    let run = place.foretoken().args(["live", "x.toml", "-o", "out", "--no-figures"]).output().unwrap();
    assert!(run.status.success());
    // The same folder with a bound that nothing keeps.
    let kept = std::fs::read_to_string(place.path("out/experiment.toml")).unwrap();
    let strict = kept + "\n[validate.tolerance]\ntpot = 1e-12\n";
    std::fs::write(place.path("out/experiment.toml"), strict).unwrap();
    let output = place.foretoken().args(["validate", "out"]).output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    assert!(stdout.contains("broken: autoregressive, as run: TPOT, mean"), "{stdout}");
    assert!(stderr.contains("bounds are broken"), "{stderr}");
}

#[test]
fn what_cannot_be_validated_is_refused() {
    let place = Place::holding(&experiment());
    let refused = |args: &[&str], said: &str| {
        let error = place.fails(&[&["validate"][..], args].concat(), 2);
        assert!(error.contains(said), "{said} is missing in: {error}");
    };
    refused(&["x.toml", "--set", "seeds=[1, 2]"], "1 settings and 2 seeds, and one is validated at a time");
    refused(&["x.toml", "--set", "validate.loads=[]"], "validate.loads is empty");
    refused(&["x.toml", "--set", "validate.run_s=0.0"], "validate.run_s: 0 is not above 0");
    refused(&["x.toml", "--set", "validate.tolerance.tpot=-1.0"], "validate.tolerance.tpot");
    refused(&["x.toml", "--profile", "nowhere.toml", "-o", "a"], "cannot read the profile");
    std::fs::create_dir(place.path("empty")).unwrap();
    refused(&["empty"], "holds no recording of a live run");
    refused(&["empty", "--set", "seeds=[1]"], "was run already");
    std::fs::write(place.path("plain.toml"), LIVE.split("[live]").next().unwrap()).unwrap();
    refused(&["plain.toml"], "has no [live] table");
}
