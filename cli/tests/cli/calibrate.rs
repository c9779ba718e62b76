//! `foretoken calibrate` on observed runs: its verdict (are the fitted costs trusted?), its results if all runs have
//! one draft length, and the warnings after a user has edited the fitted profile.

use crate::support::Place;
use std::path::PathBuf;

/// The path of a recording of vLLM 0.32 on a CPU. The server used draft length `k`. Three clients sent twelve requests.
fn recording(k: u32) -> String {
    let name = format!("../servers/fixtures/vllm-0.32-k{k}.obs");
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(name).display().to_string()
}

/// Runs `foretoken calibrate` on recordings of a server that used these draft lengths, and writes into the folder
/// `cal`. The command must exit with `code`. Returns the folder that contains `cal`, and the command's output.
fn calibrated(lengths: &[u32], code: i32) -> (Place, String) {
    let place = Place::new();
    let runs: Vec<String> = lengths.iter().map(|&k| recording(k)).collect();
    let out = place.foretoken().arg("calibrate").args(runs).args(["-o", "cal"]).output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(code), "{said}");
    (place, said)
}

/// Runs a `foretoken` command that must succeed. Returns its stdout, and its stderr on one line.
fn says(place: &Place, args: &[&str]) -> (String, String) {
    let out = place.foretoken().args(args).output().unwrap();
    let error = String::from_utf8_lossy(&out.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(out.status.code(), Some(0), "{args:?}: {error}");
    (String::from_utf8_lossy(&out.stdout).into_owned(), error)
}

fn text(place: &Place, name: &str) -> String {
    std::fs::read_to_string(place.path(name)).unwrap()
}

/// The verdict (are the fitted costs trusted?) must be in the terminal's output, in the JSON and on the page. If the
/// costs are trusted, the profile has no key `distrust`.
#[test]
fn a_calibration_states_its_verdict_everywhere() {
    let (place, said) = calibrated(&[0, 3], 0);
    let verdict = "trusted for K = 0, 3, steps of up to 3 requests: later steps within ";
    assert!(said.contains(verdict), "{said}");
    let found: serde_json::Value = serde_json::from_str(&text(&place, "cal/calibration.json")).unwrap();
    assert_eq!(found["verdict"]["trusted"], true, "{found}");
    assert!(text(&place, "cal/calibration.html").contains("The costs are trusted for K = 0, 3"));
    assert!(!text(&place, "cal/profile.toml").contains("distrust"));
}

#[test]
fn a_calibration_that_is_not_trusted_is_written_and_exits_3() {
    let (place, said) = calibrated(&[3], 3);
    assert!(said.contains("not trusted: later steps: off by +"), "{said}");
    assert!(text(&place, "cal/profile.toml").contains("distrust = \"the calibration is not trusted"));
    let (_, said) = says(&place, &["run", "cal/experiment.toml", "-o", "out"]);
    assert!(said.contains("warning: profile.toml: the calibration is not trusted: later steps: off by +"), "{said}");
}

#[test]
fn a_calibration_from_one_length_is_refused_for_other_lengths() {
    let (place, said) = calibrated(&[3], 3);
    assert!(said.contains("draft pass              cannot be told apart"), "{said}");
    let (table, _) = says(&place, &["run", "cal/experiment.toml", "-o", "out"]);
    assert!(table.contains("fixed-3") && !table.contains("autoregressive  "), "no baseline is made up: {table}");
    let apart = "the profile is calibrated at K = 3 alone, where drafts and verification cannot be told apart";
    let next = "observe K = 0 next";
    let refused = |args: &[&str]| {
        let error = place.fails(args, 2);
        let error = error.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(error.contains(next), "{args:?}: {error}");
        error
    };
    for policy in ["{ fixed = { k = 1 } }", "{ autoregressive = {} }", "{ adaspec = {} }"] {
        let error = refused(&["run", "cal/experiment.toml", "--set", &format!("policies=[{policy}]")]);
        assert!(error.contains("cannot be predicted: ") && error.contains(apart), "{policy}: {error}");
    }
    assert!(refused(&["run", "cal/experiment.toml", "--regret"]).contains("oracle-goodput cannot be predicted"));
    assert!(refused(&["export", "vllm", "cal/experiment.toml"]).contains(apart));
    let (advice, _) = says(&place, &["recommend", "cal", "-o", "advice"]);
    assert!(advice.contains("cannot be told apart at K = 3 alone: observe K = 0 next"), "{advice}");
}

#[test]
fn runs_without_drafts_predict_no_drafts() {
    let (place, said) = calibrated(&[0], 0);
    assert!(said.contains("draft pass              not known: nothing was drafted"), "{said}");
    says(&place, &["run", "cal/experiment.toml", "-o", "out"]);
    let error = place.fails(&["run", "cal/experiment.toml", "--set", "policies=[{ fixed = { k = 3 } }]"], 2);
    assert!(error.split_whitespace().collect::<Vec<_>>().join(" ").contains("observe K = 3 next"), "{error}");
}

/// A run of the experiment that `calibrate` wrote reports no setting that had no effect, because `calibrate` chose the
/// settings. If the user gives a setting with `--set` and another excludes it, it is reported.
#[test]
fn settings_that_calibrate_wrote_are_not_reported_as_inert() {
    let (place, _) = calibrated(&[0, 3], 0);
    let (_, said) = says(&place, &["run", "cal/experiment.toml", "-o", "out"]);
    assert!(!said.contains("changed no number") && !said.contains("set by hand"), "{said}");
    let given = ["run", "cal/experiment.toml", "-o", "given", "--set", "acceptance.ranks=[0.5]"];
    let (_, said) = says(&place, &given);
    assert!(said.contains("acceptance.ranks = [0.5] changed no number: no policy here drafts trees"), "{said}");
}

/// If the user edits the fitted costs (`cal/profile.toml`), every result that is made with them must have a warning.
#[test]
fn every_result_of_an_edited_calibration_warns() {
    let (place, _) = calibrated(&[0, 3], 0);
    let profile = text(&place, "cal/profile.toml");
    let line = profile.lines().find(|l| l.starts_with("noise_cv = ")).unwrap();
    std::fs::write(place.path("cal/profile.toml"), profile.replace(line, "noise_cv = 0.3")).unwrap();
    let edited = "it was edited or damaged since it was measured";
    let experiment = "cal/experiment.toml";
    let bounds = ["--set", "slo={ ttft_s = 1.0 }", "--set", "capacity={ requests = 100, warm_up_requests = 10 }"];
    let load = ["--set", "workload.arrivals={ poisson = { rate = 1.0 } }", "--set", "workload.requests=60"];
    let commands: [(&[&str], &[&str]); 5] = [
        (&["run", experiment, "-o", "run"], &["run/manifest.json", "run/report.json", "run/report/index.html"]),
        (&["recommend", "cal", "-o", "rec"], &["rec/recommendation.json", "rec/recommendation.html"]),
        (
            &[&["capacity", experiment, "-o", "cap", "--set", "seeds=[1]"][..], &bounds, &load].concat(),
            &["cap/capacity.json", "cap/capacity.txt", "cap/capacity.html", "cap/manifest.json"],
        ),
        (&["export", "vllm", experiment, "--batch-sizes", "1", "--set", "seeds=[1]"], &[]),
        (
            &["validate", "--calibrated", "cal", "--observed", &recording(3), "-o", "val"],
            &["val/validation.json", "val/validation.html"],
        ),
    ];
    for (args, files) in commands {
        let out = place.foretoken().args(args).output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(matches!(out.status.code(), Some(0 | 3)), "{args:?}: {said}");
        assert!(said.contains("warning: ") && said.contains(edited), "{args:?}: {said}");
        for file in files {
            assert!(text(&place, file).contains(edited), "{args:?}: {file}");
        }
    }
}

#[test]
fn an_untouched_calibration_is_not_called_edited() {
    let (place, _) = calibrated(&[0, 3], 0);
    let (_, said) = says(&place, &["run", "cal/experiment.toml", "-o", "run"]);
    assert!(!said.contains("edited"), "{said}");
    assert!(!text(&place, "run/manifest.json").contains("\"edited\""));
}
