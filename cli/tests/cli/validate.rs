//! `foretoken validate`: the token flow (drafted, verified and accepted tokens) of a live run equals that of its
//! simulation. Times are reported, but this test does not judge them.

use crate::live::{LIVE, begun};
use crate::support::Place;
use serde_json::{Value, json};
use std::process::{Command, Stdio};

/// An experiment that is short enough for a test. Its bounds on times are so wide that only errors in the token flow
/// can break a bound.
const VALIDATE: &str = r#"
[validate]
loads = [0.6]
common_load = 0.6
pieces = 2
service_s = 0.15
run_s = 0.2
profile_s = 1.0

[validate.tolerance]
tpot = 1e9
e2e = 1e9
completed = 1e9
steady = 1e9
repeats = 1e9
"#;

pub fn experiment() -> String {
    LIVE.replace("requests = 12", "requests = 2000") + VALIDATE
}

/// Asserts what must be exact in every run. A replay of the run with its recorded times must equal the run. If the
/// policy drafted and verified equal numbers of tokens for a request at the same output position in the live run and in
/// the simulation, both must have accepted the same number of tokens.
fn exact(validation: &Value) {
    for cell in validation["cells"].as_array().unwrap() {
        let (name, flow) = (format!("{}, {}", cell["policy"], cell["load"]), &cell["flow"]);
        assert_eq!(cell["replay_parted"], Value::Null, "{name}");
        assert_eq!(flow["other_acceptance"], 0, "{name}: {flow}");
        assert!(flow["rounds"].as_u64() > Some(0) && flow["shared_rounds"].as_u64() > Some(0), "{name}: {flow}");
        // For policies that do not depend on the clock, each request must have equal numbers of drafted, verified and
        // accepted tokens at equal output positions in the live run and in the simulation, whatever the schedule is.
        if ["autoregressive", "fixed-3"].contains(&cell["policy"].as_str().unwrap()) && cell["parts"] == json!([]) {
            assert_eq!(flow["same_requests"], flow["requests"], "{name}: {flow}");
            assert_eq!(cell["missed"]["invented"], 0, "{name}");
        }
    }
}

#[test]
fn simulation_and_device_have_the_same_token_flow() {
    let place = Place::holding(&experiment());
    let output = place.foretoken().args(["validate", "x.toml", "-o", "out", "--format", "json"]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    // The ranking of policies depends on times. On a busy machine it may be wrong, so it is not asserted.
    assert!([Some(0), Some(3)].contains(&output.status.code()), "{stderr}");
    let validation: Value = serde_json::from_slice(&output.stdout).unwrap();
    exact(&validation);
    // Three policies run in a closed loop and at 0.6 of their own service rates (the rates that they sustain in closed
    // loops). At a common load, the two policies other than the baseline run, too. These eight combinations of policy
    // and load have two pieces each. A piece is a live run and its repeat.
    assert_eq!(validation["cells"].as_array().unwrap().len(), 3 * 2 + 2);
    assert_eq!(validation["counted"], json!([16, 16]));
    assert!(validation["rule"].as_str().unwrap().contains("whatever its runs say; probed: target 1 x 1 at "));
    // During the runs, the policies used the profile `belief.toml`, which was measured before the runs. `profile.toml`,
    // with which the runs are predicted, also has the measurements that were made between the runs.
    let measured =
        |name: &str| std::fs::read_to_string(place.path("out").join(name)).unwrap().matches("passes = ").count();
    assert!(measured("belief.toml") > 0 && measured("profile.toml") > 0);
    assert!(std::fs::read_to_string(place.path("out/experiment.toml")).unwrap().contains("profile = \"belief.toml\""));
    assert!(validation["costs"].as_str().unwrap().starts_with("profiled: profile.toml, of "));
    let kept: Value = serde_json::from_slice(&std::fs::read(place.path("out/validation.json")).unwrap()).unwrap();
    assert_eq!(kept, validation);
    for cell in validation["cells"].as_array().unwrap() {
        let tpot = cell["rows"].as_array().unwrap().iter().find(|r| r["quantity"] == "TPOT, mean").unwrap();
        eprintln!(
            "{}, {}: TPOT {} ({} live / live)",
            cell["policy"], cell["load"], tpot["recorded_error"], tpot["spread"]
        );
    }
    let manifest: Value = serde_json::from_slice(&std::fs::read(place.path("out/manifest.json")).unwrap()).unwrap();
    assert_eq!((&manifest["source"], &manifest["complete"]), (&"live".into(), &true.into()));
    let page = std::fs::read_to_string(place.path("out/validation.html")).unwrap();
    for part in ["End-to-end latency", "Kendall", "simulated, recorded", "Passes of each step"] {
        assert!(page.contains(part), "{part}");
    }

    // A second comparison of the folder `out` makes no live run and must give the same results.
    let again = place.foretoken().args(["validate", "out", "-o", "again", "--format", "json"]).output().unwrap();
    let again: Value = serde_json::from_slice(&again.stdout).unwrap();
    for part in ["cells", "drift", "repeats", "regions", "counted", "caveats"] {
        assert_eq!(again[part], validation[part], "{part}");
    }
    a_bound_on_numbers_that_repeat_decides(&place);
    pieces_count_by_their_probes(&place);
}

/// Changes the probes of some pieces in `runs.json` as if the machine had become slow, and renews the file's checksum.
/// A piece is a live run and its repeat; its probes are passes that are timed to see how fast the machine is.
/// `which(index of the combination of policy and load, index of the piece)` selects the pieces.
fn disturb(place: &Place, which: impl Fn(usize, usize) -> bool) {
    let path = place.path("out/runs.json");
    let mut runs: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    runs.as_object_mut().unwrap().remove("seal").expect("the list is sealed");
    for (cell, entry) in runs["entries"].as_array_mut().unwrap().iter_mut().enumerate() {
        for (n, piece) in entry["pieces"].as_array_mut().unwrap().iter_mut().enumerate() {
            if which(cell, n) {
                piece["probes"][1]["seconds"][0] = 1e9.into();
                piece["probes"][2]["seconds"][0] = 1e-9.into();
            }
        }
    }
    let text = serde_json::to_string_pretty(&runs).unwrap();
    std::fs::write(&path, foretoken_traces::intact::seal::seal(foretoken_traces::intact::seal::Syntax::Json, &text))
        .unwrap();
}

/// The changed probes look as if the machine was busy. A probe is a pass that is timed to see how fast the machine is.
/// The probes alone decide which pieces (a live run and its repeat) count.
fn pieces_count_by_their_probes(place: &Place) {
    disturb(place, |cell, n| (cell, n) == (1, 0) || cell == 4);
    let (code, stdout, stderr) = compared(place, &["--format", "json"]);
    assert!([Some(0), Some(3)].contains(&code), "{stderr}");
    let v: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((&v["counted"], v["cells"].as_array().unwrap().len()), (&json!([13, 16]), 7));
    let undecided = &v["undecided"][0];
    let name = format!("{}, {}", undecided["policy"].as_str().unwrap(), undecided["load"].as_str().unwrap());
    assert_eq!(
        v["caveats"],
        json!([format!("NOT DECIDED: 1 of 8 cells have no piece in which the machine was steady: {name}")])
    );
    assert!(v["checks"].as_array().unwrap().iter().all(|c| !c["what"].as_str().unwrap().starts_with(&name)));
    assert_eq!(
        (&v["cells"][1]["pieces"][0]["standing"], &v["cells"][1]["pieces"][1]["standing"]),
        (&"changed".into(), &"counts".into())
    );
    exact(&v);
    let text = std::fs::read_to_string(place.path("v/validation.txt")).unwrap();
    assert!(
        text.contains("13 of 16 count") && text.contains("1 of 2 pieces count; left out: number 1, whose probes"),
        "{text}"
    );
    assert!(text.contains(&format!("{name}: not decided: the machine changed its speed in all 2 pieces")), "{text}");

    disturb(place, |_, _| true);
    let (code, stdout, stderr) = compared(place, &[]);
    assert_eq!(code, Some(3), "{stderr}");
    assert!(stdout.contains("nothing is decided, since in no piece the machine was steady"), "{stdout}");
    let said = stderr.split_whitespace().collect::<Vec<_>>().join(" ").replace("| ", "");
    assert!(said.contains("nothing is decided: in none of the 16 pieces the machine was steady"), "{said}");
    assert!(said.contains("validate.tolerance.steady") && said.contains("leave the machine alone"), "{said}");
    let page = std::fs::read_to_string(place.path("v/validation.html")).unwrap();
    assert!(
        page.contains("Nothing is decided: in no piece the machine was steady.") && page.contains("NOT DECIDED · ")
    );
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
    assert_eq!((cells.len(), &cells[0]["parts"][0]["requests"]), (1, &3000.into()));
    assert!(cells[0]["parts"][0]["seconds"].as_f64() > Some(0.0));
    // The first line of every output format must say that the validation is partial: not all planned runs were made.
    let caveat = validation["caveats"][0].as_str().unwrap();
    let begins = "PART OF THE RUNS: 1 of 3 runs were begun; autoregressive, as run: ";
    assert!(caveat.starts_with(begins) && caveat.contains(" of 3000 requests ended in the "), "{caveat}");
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("{\n  \"caveats\": [\n    \"PART OF THE RUNS: 1 of 3"));
    let text = std::fs::read_to_string(place.path("out/validation.txt")).unwrap();
    assert_eq!(text.lines().next(), Some(caveat));
    let page = std::fs::read_to_string(place.path("out/validation.html")).unwrap();
    let at = |words: &str| page.find(words).unwrap_or_else(|| panic!("{words} is missing"));
    assert!(at("PART OF THE RUNS · Foretoken validation") < at("The simulator: "));
    assert!(page.contains("PART OF THE RUNS: 1 of 3 runs"));
    if output.status.code() == Some(3) {
        assert!(stderr.contains("PART OF THE RUNS"), "{stderr}");
    }
    assert!(cells[0]["overload"].is_null(), "not all had come: {}", cells[0]["overload"]);
    let notes = validation["notes"].to_string();
    assert!(notes.contains("the live run is a part") && notes.contains("the machine was not probed"), "{notes}");
}

/// The unfinished piece (a live run and its repeat) is reported, and the pieces before it are compared.
#[test]
fn a_killed_validation_is_compared_as_far_as_it_went() {
    let place = Place::holding(&experiment().replace("pieces = 2", "pieces = 40"));
    let mut child = Command::new(env!("CARGO_BIN_EXE_foretoken"))
        .args(["validate", "x.toml", "-o", "out", "--set", "validate.run_s=0.1"])
        .current_dir(place.path(""))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // The test waits until all first pieces (a piece is a live run and its repeat) and some of the second pieces have
    // recordings.
    let tapes = || std::fs::read_dir(place.path("out/tapes")).map_or(0, Iterator::count);
    while tapes() < 25 {
        assert!(child.try_wait().unwrap().is_none(), "the validation ended before it could be killed");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!place.path("out/profile.toml").exists());
    let (code, stdout, stderr) = compared(&place, &["--format", "json"]);
    assert!([Some(0), Some(3)].contains(&code), "{stderr}");
    let v: Value = serde_json::from_str(&stdout).unwrap();
    exact(&v);
    assert_eq!((v["cells"].as_array().unwrap().len(), &v["undecided"]), (8, &json!([])));
    assert_eq!(v["caveats"], json!(["PART OF THE RUNS: the validation did not end"]));
    assert!(v["costs"].as_str().unwrap().ends_with("belief.toml"), "{}", v["costs"]);
    // The kill may also have come between two pieces (a piece is a live run and its repeat). Then no piece is
    // unfinished.
    let (counted, made) = (v["counted"][0].as_u64().unwrap(), v["counted"][1].as_u64().unwrap());
    assert!(counted >= 11 && made - counted <= 1, "{counted} of {made}");
    let unended = v["cells"].as_array().unwrap().iter().flat_map(|c| c["pieces"].as_array().unwrap());
    assert_eq!(unended.filter(|p| p["standing"] == "unended").count() as u64, made - counted);
}

/// Compares the runs in `out` under the tolerances `lines` (TOML for `[validate.tolerance]`). Restores the experiment's
/// file afterwards.
fn with_tolerance(place: &Place, lines: &str) -> (Option<i32>, String, String) {
    let path = place.path("out/experiment.toml");
    let kept = std::fs::read_to_string(&path).unwrap();
    let mut experiment: toml::Table = kept.parse().unwrap();
    let validate = experiment.entry("validate").or_insert(toml::Value::Table(toml::Table::new()));
    validate.as_table_mut().unwrap().insert("tolerance".into(), toml::Value::Table(lines.parse().unwrap()));
    std::fs::write(&path, toml::to_string(&experiment).unwrap()).unwrap();
    let found = compared(place, &[]);
    std::fs::write(&path, kept).unwrap();
    found
}

/// A live run and its simulation never agree to a relative error of 1e-12. This bound counts as broken only if the
/// repeats of the live run count as equal.
fn a_bound_on_numbers_that_repeat_decides(place: &Place) {
    let (code, stdout, stderr) = with_tolerance(place, "tpot = 1e-12\nsteady = 1e9\nrepeats = 1e9");
    assert_eq!(code, Some(3), "{stderr}");
    assert!(stdout.contains("broken: autoregressive, closed loop of 4: TPOT, mean"), "{stdout}");
    assert!(stderr.contains("bounds are broken"), "{stderr}");
    let (_, stdout, _) = with_tolerance(place, "tpot = 1e-12\nsteady = 1e9\nrepeats = 1e-12");
    assert!(stdout.contains("undecided: autoregressive, closed loop of 4: TPOT, mean"), "{stdout}");
    assert!(!stdout.contains("broken: autoregressive, closed loop of 4: TPOT, mean"), "{stdout}");
}

#[test]
fn a_time_that_was_observed_once_is_undecided() {
    let place = Place::holding(LIVE);
    let run = place.foretoken().args(["live", "x.toml", "-o", "out", "--no-figures"]).output().unwrap();
    assert!(run.status.success());
    let (code, stdout, stderr) = with_tolerance(&place, "tpot = 1e-12");
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stdout.contains("undecided: autoregressive, as run: TPOT, mean"), "{stdout}");
    assert!(stdout.contains("bounds kept; ") && stdout.contains("undecided, since"), "{stdout}");
}

#[test]
fn invalid_validations_are_refused() {
    let place = Place::holding(&experiment());
    let refused = |args: &[&str], said: &str| {
        let error = place.fails(&[&["validate"][..], args].concat(), 2);
        assert!(error.contains(said), "{said} is missing in: {error}");
    };
    refused(&["x.toml", "--set", "seeds=[1, 2]"], "1 settings and 2 seeds, and one is validated at a time");
    refused(&["x.toml", "--set", "validate.loads=[]"], "validate.loads is empty");
    refused(&["x.toml", "--set", "validate.run_s=0.0"], "validate.run_s: 0 is not above 0");
    refused(&["x.toml", "--set", "validate.pieces=0"], "validate.pieces is 0");
    refused(&["x.toml", "--set", "validate.tolerance.tpot=-1.0"], "validate.tolerance.tpot");
    refused(&["x.toml", "--set", "validate.tolerance.steady=0.0"], "validate.tolerance.steady: 0 is not above 0");
    refused(&["x.toml", "--profile", "nowhere.toml", "-o", "a"], "cannot read the profile");
    std::fs::create_dir(place.path("empty")).unwrap();
    refused(&["empty"], "holds no recording of a live run");
    refused(&["empty", "--set", "seeds=[1]"], "was run already");
    std::fs::write(place.path("plain.toml"), LIVE.split("[live]").next().unwrap()).unwrap();
    refused(&["plain.toml"], "has no [live] table");
}

/// Runs `foretoken validate out` with the arguments `more`. Returns the exit code, stdout and stderr.
fn compared(place: &Place, more: &[&str]) -> (Option<i32>, String, String) {
    let output = place.foretoken().args(["validate", "out", "-o", "v"]).args(more).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn a_damaged_recording_is_refused_by_name_and_compared_in_part_only_on_request() {
    let place = Place::holding(LIVE);
    let run = place.foretoken().args(["live", "x.toml", "-o", "out", "--no-figures"]).output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let (code, whole, _) = compared(&place, &[]);
    assert!([Some(0), Some(3)].contains(&code) && !whole.contains("PART OF"), "{whole}");
    let tape = place.path("out/tapes/v0-s0-p1.tape");
    let good = std::fs::read(&tape).unwrap();
    let refused = |bytes: &[u8]| {
        std::fs::write(&tape, bytes).unwrap();
        let (code, stdout, stderr) = compared(&place, &[]);
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{stderr}");
        assert!(stderr.contains("tapes/v0-s0-p1.tape: "), "{stderr}");
        stderr.split_whitespace().collect::<Vec<_>>().join(" ").replace("| ", "")
    };
    // A bit is flipped at many places of the tape (the log of the run), and once in the length of a frame (a part with
    // a checksum). Then the file is cut at several lengths.
    for at in (0..good.len()).step_by(good.len() / 24) {
        let mut other = good.clone();
        other[at] ^= 1 << (at % 8);
        let said = refused(&other);
        assert!(said.contains("damaged") || (at < 8 && said.contains("recording")), "byte {at}: {said}");
    }
    let second = 24 + u32::from_le_bytes(good[8..12].try_into().unwrap()) as usize;
    let mut longer = good.clone();
    longer[second + 3] ^= 0x80;
    let said = refused(&longer);
    assert!(
        said.contains(&format!("frame 1, which begins at byte {second}, is damaged: the checksum of its length is"))
    );
    assert!(said.contains("and it gives") && said.contains("--intact"), "{said}");
    for keep in [good.len() - 1, good.len() / 2, second] {
        let said = refused(&good[..keep]);
        assert!(said.contains("its run had ended, and it was cut since") || keep < second, "{said}");
    }
    // The tape is cut at the end of a whole frame (a part with a checksum). The folder lists the run as ended. So the
    // cut counts as damage and not as the effect of a kill.
    let boundary = boundaries(&good);
    let said = refused(&good[..boundary[boundary.len() - 2]]);
    assert!(said.contains("it was cut since: it ends behind frame") && said.contains("without an end"), "{said}");
    refused(&[&good[..], b"more"].concat());
    let other = std::fs::read(place.path("out/tapes/v0-s0-p0.tape")).unwrap();
    assert!(refused(&other).contains("is whole, and not the one of this run: its blake3 is"));
    std::fs::remove_file(&tape).unwrap();
    let (code, _, stderr) = compared(&place, &[]);
    assert!(code == Some(2) && stderr.contains("tapes/v0-s0-p1.tape is missing"), "{stderr}");

    // With `--intact`, the part before the damage is compared. The first line of the output says how much of the run
    // this part is.
    let mut damaged = good.clone();
    damaged[good.len() * 2 / 3] ^= 4;
    std::fs::write(&tape, &damaged).unwrap();
    let (code, stdout, stderr) = compared(&place, &["--intact"]);
    assert!([Some(0), Some(3)].contains(&code), "{stderr}");
    let first = stdout.lines().next().unwrap();
    assert!(
        first.starts_with("PART OF THE RUNS: fixed-3, as run: ") && first.contains(" of 12 requests ended"),
        "{first}"
    );
    assert!(first.contains("is damaged: the checksum of its"), "{first}");
    std::fs::write(&tape, &good).unwrap();
    let again = compared(&place, &[]);
    assert_eq!(again.1, whole);
}

/// The byte offsets at which the frames (parts with checksums) of a tape, the log of a run, end.
fn boundaries(file: &[u8]) -> Vec<usize> {
    let mut all = vec![8];
    while let Some(front) = file.get(all[all.len() - 1]..).and_then(|rest| rest.get(..4)) {
        all.push(all[all.len() - 1] + 16 + u32::from_le_bytes(front.try_into().unwrap()) as usize);
    }
    all
}

/// The recording of an unfinished run is cut at many lengths. `validate` must always report it as a part of a run or as
/// empty, and never as a whole run.
#[test]
fn a_cut_recording_counts_as_partial_at_every_length() {
    let place = Place::holding(LIVE);
    let set = ["--set", "policies=[{ fixed = { k = 3 } }]"];
    let run = place.foretoken().args(["live", "x.toml", "-o", "out", "--no-figures"]).args(set).output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    // Changes `manifest.json` of the results folder to what it was before the second run had ended: incomplete, and
    // without the recording of this run.
    place.edit_manifest("out", |manifest| {
        manifest["complete"] = false.into();
        manifest["files"].as_object_mut().unwrap().remove("tapes/v0-s0-p1.tape").unwrap();
    });
    let tape = place.path("out/tapes/v0-s0-p1.tape");
    let good = std::fs::read(&tape).unwrap();
    let boundaries = boundaries(&good);
    let cuts = (1..12).map(|n| boundaries[1] + n * (good.len() - boundaries[1]) / 12);
    for at in cuts.chain([boundaries[5], boundaries[boundaries.len() - 2], good.len() - 1]) {
        std::fs::write(&tape, &good[..at]).unwrap();
        let (code, stdout, stderr) = compared(&place, &[]);
        assert!([Some(0), Some(3)].contains(&code), "cut at {at}: {stderr}");
        let first = stdout.lines().next().unwrap();
        assert!(first.starts_with("PART OF THE RUNS: 2 of 2 runs were begun; fixed-3, as run: "), "{first}");
        assert!(first.contains("requests ended in the") && first.contains("it was killed or cut: "), "{first}");
    }
    // The first run has ended, so its recording must be complete. A kill can cut only the recording of the run that was
    // in progress.
    let ended = place.path("out/tapes/v0-s0-p0.tape");
    let other = std::fs::read(&ended).unwrap();
    std::fs::write(&ended, &other[..other.len() - 3]).unwrap();
    let (code, _, stderr) = compared(&place, &[]);
    assert!(code == Some(2) && stderr.contains("its run had ended, and it was cut since"), "{stderr}");
    place.edit_manifest("out", |manifest| {
        manifest["files"].as_object_mut().unwrap().remove("tapes/v0-s0-p0.tape").unwrap();
    });
    let (code, _, stderr) = compared(&place, &[]);
    assert!(code == Some(2) && stderr.contains("have no end, and a run that is killed leaves one so"), "{stderr}");
}

#[test]
fn changed_inputs_are_reported_first() {
    let place = Place::holding(LIVE);
    let run = place.foretoken().args(["live", "x.toml", "-o", "out", "--no-figures"]).output().unwrap();
    assert!(run.status.success());
    let kept = std::fs::read_to_string(place.path("out/experiment.toml")).unwrap();
    let other = kept.replacen("delta_s = 0.0003", "delta_s = 0.0007", 1);
    assert_ne!(other, kept);
    std::fs::write(place.path("out/experiment.toml"), other).unwrap();
    let (_, stdout, stderr) = compared(&place, &[]);
    assert!(
        stdout.starts_with("CHANGED: experiment.toml was edited or damaged since the runs: its blake3 is "),
        "{stdout}"
    );
    assert!(stderr.contains("CHANGED: experiment.toml") || !stderr.contains("broken"), "{stderr}");
    assert!(place.fails(&["report", "out"], 2).contains("out is damaged or was changed: experiment.toml"));
    std::fs::write(place.path("out/experiment.toml"), kept).unwrap();
    place.edit_manifest("out", |manifest| manifest["schema"] = 99.into());
    assert!(place.fails(&["validate", "out"], 2).contains("schema 99"));
}
