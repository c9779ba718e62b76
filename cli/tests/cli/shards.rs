//! Runs in shards: in any order, in several processes, some shards killed, failed or given twice. The merged results
//! must equal a run on one machine.

use crate::support::{EXPERIMENT, Place, bytes_of};
use serde_json::Value;
use std::process::{Command, Stdio};

/// A sweep over loads, on a trace with a relative path. The SLO bound of all loads is scaled from the first load.
const ON_A_TRACE: &str = r#"name = "parted"
seeds = [1, 2, 3]
policies = [{ fixed = { k = { sweep = [1, 3] } } }, { adaspec = {} }, { oracle-goodput = {} }]

[hardware]
target = { linear = { alpha_s = 0.3e-6, gamma_s = 55e-6, delta_s = 11e-3 } }
draft = { linear = { alpha_s = 0.0, gamma_s = 5e-6, delta_s = 1e-3 } }

[workload]
arrivals = { poisson = { rate = { sweep = [2.0, 6.0] } } }
lengths = { trace = { path = "traces/t.csv" } }
requests = 60

[engine]
max_num_seqs = 8
num_gpu_blocks = 4000

# What is not given here is not said to do nothing, wherever it is put together.
[acceptance.source]
mixture = {}

[slo]
adaspec-scale = 1.0
"#;

fn on_a_trace() -> Place {
    let place = Place::holding(ON_A_TRACE);
    std::fs::create_dir(place.path("traces")).unwrap();
    let rows: String = (0..40).map(|i| format!("{}.0,{},{}\n", i, 40 + 3 * i, 10 + i)).collect();
    std::fs::write(place.path("traces/t.csv"), format!("t_s,input_tokens,output_tokens\n{rows}")).unwrap();
    place
}

/// Runs the shard `which` of `x.toml` into `shared/out`, which must succeed.
fn shard(place: &Place, which: &str, more: &[&str]) {
    let output =
        place.foretoken().args(["run", "x.toml", "-o", "shared/out", "--shard", which]).args(more).output().unwrap();
    assert!(output.status.success(), "{which}: {}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stdout.is_empty(), "a shard is no result");
}

fn merged(place: &Place) -> String {
    let output = place.foretoken().args(["merge", "shared/out"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn listed(place: &Place) -> Value {
    let output = place.foretoken().args(["merge", "shared/out", "--list", "--format", "json"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Asserts that the merged folder equals the results folder of a run on one machine. Both folders are equally deep, so
/// that the relative path of the trace is the same in both.
fn is_that_of_one_machine(place: &Place, printed: &str) {
    assert_eq!(printed, place.run_drawn("one/out", &["--overwrite"]));
    let (parted, whole) = (bytes_of(&place.path("shared/out")), bytes_of(&place.path("one/out")));
    assert_eq!(parted.keys().collect::<Vec<_>>(), whole.keys().collect::<Vec<_>>());
    for (name, bytes) in &parted {
        assert!(bytes == &whole[name], "{name} differs");
    }
}

#[test]
fn merged_shards_equal_a_run_on_one_machine() {
    // An experiment with two sweeps. The sweep that is first in the file is not first in the alphabet.
    let two_sweeps = on_a_trace();
    let text = ON_A_TRACE.replace("max_num_seqs = 8", "max_num_seqs = { sweep = [8, 2] }");
    std::fs::write(two_sweeps.path("x.toml"), text).unwrap();
    for (place, order) in [
        (on_a_trace(), ["3/4", "1/4", "4/4", "2/4"].as_slice()),
        (two_sweeps, &["2/3", "1/3", "3/3"]),
        (Place::new(), &["2/2", "1/2"]),
        (Place::new(), &["1/1"]),
    ] {
        for which in order {
            shard(&place, which, &[]);
        }
        let state = listed(&place);
        assert!(
            state["shards"].as_array().unwrap().iter().all(|s| s["finished"] == s["cells"] && s["begun"] == true),
            "{state}"
        );
        let printed = merged(&place);
        is_that_of_one_machine(&place, &printed);
        // A second merge changes nothing, and neither does a shard that is run again after the merge.
        assert_eq!(merged(&place), printed);
        shard(&place, order[0], &["--resume"]);
        is_that_of_one_machine(&place, &printed);
    }
}

/// All shards start at the same time, each in its own process, in a folder that does not exist yet. There are nine
/// shards and only six comparisons (two loads with three seeds each), so some shards have nothing to run.
#[test]
fn shards_begin_at_once() {
    let place = on_a_trace();
    let children: Vec<_> = (1..=9)
        .map(|i| {
            let which = format!("{i}/9");
            let mut command = Command::new(env!("CARGO_BIN_EXE_foretoken"));
            command.args(["run", "x.toml", "-o", "shared/out", "--threads", "1", "--shard", &which]);
            command.current_dir(place.path("")).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let printed = merged(&place);
    is_that_of_one_machine(&place, &printed);
}

#[test]
fn merge_lists_missing_cells_and_their_commands_complete_them() {
    let place = on_a_trace();
    shard(&place, "1/3", &[]);
    let said = place.fails(&["merge", "shared/out"], 1);
    assert!(said.contains("20 of 30 cells are not finished"), "{said}");
    for which in ["2/3", "3/3"] {
        let command =
            format!("  foretoken run shared/out/shards/experiment.toml -o shared/out --shard {which} --resume\n");
        assert!(said.contains(&command), "{said}");
    }
    assert!(said.contains("10 (not begun)"), "{said}");
    // Makes shard 2 look as if it was killed halfway. Of its ten cells (runs of one policy each) one is missing and one
    // is half-written. Its progress file says that it is incomplete.
    shard(&place, "2/3", &[]);
    let mark = place.path("shared/out/shards/2-of-3.json");
    let text = std::fs::read_to_string(&mark).unwrap();
    std::fs::write(&mark, text.replace("\"complete\": true", "\"complete\": false")).unwrap();
    let cells = place.path("shared/out/cells");
    std::fs::remove_file(cells.join("v0-s1-p2.cell")).unwrap();
    std::fs::write(cells.join("v1-s1-p0.cell"), b"half").unwrap();
    let part = listed(&place)["shards"][1].clone();
    assert_eq!((part["finished"].as_u64(), part["failed"].as_u64()), (Some(8), Some(0)), "{part}");
    let said = place.fails(&["run", "x.toml", "-o", "shared/out", "--shard", "2/3"], 2);
    assert!(said.contains("was begun before and did not end") && said.contains("--resume"), "{said}");
    shard(&place, "2/3", &["--resume"]);
    shard(&place, "3/3", &["--resume"]);
    let printed = merged(&place);
    is_that_of_one_machine(&place, &printed);
}

/// If a cell (the run of one policy) fails, its exit code is kept, and the other cells run. The failed cell runs again
/// only on request.
#[test]
fn failures_are_kept_and_tried_again_when_asked() {
    let place = Place::holding(
        &EXPERIMENT
            .replace("max_num_seqs = { sweep = [8, 64] }", "max_num_seqs = 8\nnum_gpu_blocks = { sweep = [4, 4000] }"),
    );
    let args = ["run", "x.toml", "-o", "shared/out", "--shard", "1/1"];
    let said = place.fails(&args, 2);
    assert!(said.contains("2 of 20 cells of shard 1/1 failed") && said.contains("engine.num_gpu_blocks = 4"), "{said}");
    let kept: Value =
        serde_json::from_slice(&std::fs::read(place.path("shared/out/cells/v0-s0-p0.failure.json")).unwrap()).unwrap();
    assert!(kept["exit"] == 2 && kept["message"].as_str().unwrap().contains("autoregressive"), "{kept}");
    let state = listed(&place);
    let part = &state["shards"][0];
    assert_eq!((part["finished"].as_u64(), part["failed"].as_u64()), (Some(10), Some(2)), "{state}");
    let said = place.fails(&["merge", "shared/out"], 1);
    assert!(
        said.contains("failed: autoregressive, engine.num_gpu_blocks = 4, seed 1") && said.contains("--retry-failed"),
        "{said}"
    );
    // If the run is resumed without the option `--retry-failed`, the failed cell (the run of one policy) is not tried
    // again: its file is unchanged.
    let age = || std::fs::metadata(place.path("shared/out/cells/v0-s0-p0.failure.json")).unwrap().modified().unwrap();
    let before = age();
    place.fails(&[&args[..], &["--resume"]].concat(), 2);
    assert_eq!(age(), before);
    place.fails(&[&args[..], &["--resume", "--retry-failed"]].concat(), 2);
    assert!(age() > before);
}

/// A cell (the run of one policy) that failed because memory was short succeeds when it gets more memory.
#[test]
fn cells_that_failed_for_memory_succeed_with_more() {
    let place = on_a_trace();
    std::fs::write(place.path("x.toml"), ON_A_TRACE.replace("num_gpu_blocks = 4000", "num_gpu_blocks = 2000000"))
        .unwrap();
    let args = ["run", "x.toml", "-o", "shared/out", "--shard", "1/2"];
    let small =
        place.foretoken().args(args).args(["--threads", "1"]).env("FORETOKEN_MEMORY_GIB", "0.02").output().unwrap();
    assert!(!small.status.success());
    assert!(
        listed(&place)["failures"].as_array().is_some_and(|f| !f.is_empty()),
        "{}",
        String::from_utf8_lossy(&small.stderr)
    );
    shard(&place, "1/2", &["--resume", "--retry-failed"]);
    shard(&place, "2/2", &[]);
    let printed = merged(&place);
    is_that_of_one_machine(&place, &printed);
}

#[test]
fn shards_of_different_runs_are_not_merged() {
    let place = on_a_trace();
    shard(&place, "1/2", &[]);
    let run = |more: &[&str]| place.fails(&[&["run", "x.toml", "-o", "shared/out"], more].concat(), 2);
    for (more, said) in [
        (&["--shard", "0/2"][..], "counted from 1"),
        (&["--shard", "3/2"], "there are 2 shards"),
        (&["--shard", "1/0"], "at least 1"),
        (&["--shard", "2"], "I/N"),
        (&["--shard", "2/3"], "holds shards of 2, and this is one of 3"),
        (&["--shard", "2/2", "--set", "seeds=[9]"], "holds the results of another experiment"),
        (&["--shard", "2/2", "--overwrite"], "cannot be used with"),
        (&["--retry-failed"], "--shard"),
        (&[], "is not empty"),
    ] {
        let found = run(more);
        assert!(found.contains(said), "{more:?}: {found}");
    }
    // A progress file of a shard in `shared/out/shards` that belongs to another run, as if a user had copied it there.
    // `merge` must refuse it.
    let other = place.path("shared/out/shards/2-of-2.json");
    let mark = std::fs::read_to_string(place.path("shared/out/shards/1-of-2.json")).unwrap();
    let as_second = mark.replace("\"index\": 1", "\"index\": 2");
    for (from, to, said) in [
        ("\"digest\": \"", "\"digest\": \"0", "of another experiment"),
        ("\"version\": \"", "\"version\": \"0", "of Foretoken 0"),
        ("\"of\": 2", "\"of\": 3", "holds shards of"),
        ("{", "", "is not a progress file of a shard"),
    ] {
        std::fs::write(&other, as_second.replacen(from, to, 1)).unwrap();
        let found = place.fails(&["merge", "shared/out"], 2);
        assert!(found.contains(said), "{from}: {found}");
    }
    std::fs::remove_file(&other).unwrap();
    // The trace has changed since the shards ran.
    let trace = place.path("traces/t.csv");
    let whole = std::fs::read_to_string(&trace).unwrap();
    std::fs::write(&trace, whole.replace("0.0,40,10", "0.0,41,10")).unwrap();
    let said = place.fails(&["merge", "shared/out"], 2);
    assert!(said.contains("are not those that its shards read"), "{said}");
    std::fs::write(&trace, whole).unwrap();
    // Another version of Foretoken began the run.
    place.edit_manifest("shared/out", |manifest| manifest["version"] = "0.0.9".into());
    let said = place.fails(&["merge", "shared/out"], 2);
    assert!(said.contains("was begun by Foretoken 0.0.9"), "{said}");

    let said = place.fails(&["merge", "nowhere"], 2);
    assert!(said.contains("does not exist"), "{said}");
    place.run_drawn("alone", &["--no-figures"]);
    std::fs::create_dir(place.path("begun")).unwrap();
    let said = place.fails(&["merge", "begun"], 2);
    assert!(said.contains("is no results folder"), "{said}");
}

/// A running shard and a running merge each hold a lock. A killed process leaves files but no lock.
#[test]
fn the_same_shard_twice_at_once_and_two_merges_are_refused() {
    let place = on_a_trace();
    shard(&place, "1/2", &[]);
    let held = |name: &str| {
        let file = std::fs::File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(place.path(&format!("shared/out/shards/{name}")))
            .unwrap();
        file.try_lock().unwrap();
        file
    };
    let lock = held("2-of-2.lock");
    let said = place.fails(&["run", "x.toml", "-o", "shared/out", "--shard", "2/2"], 2);
    assert!(said.contains("shard 2/2 is running already"), "{said}");
    drop(lock);
    shard(&place, "2/2", &[]);
    let lock = held("merge.lock");
    let said = place.fails(&["merge", "shared/out"], 2);
    assert!(said.contains("another merge is at work"), "{said}");
    drop(lock);
    let printed = merged(&place);
    is_that_of_one_machine(&place, &printed);
}

/// Runs each command that `merge` printed, in the folder of `place`.
fn follow(place: &Place, said: &str) {
    let commands: Vec<&str> = said.lines().filter_map(|line| line.trim().strip_prefix("foretoken ")).collect();
    assert!(!commands.is_empty(), "{said}");
    for command in commands {
        let output = place.foretoken().args(command.split(' ')).output().unwrap();
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// If a cell (the run of one policy) of a finished shard is damaged in any way, `merge` names the file and the cell,
/// and prints a command that repairs the cell.
#[test]
fn a_damaged_cell_is_named_and_can_be_run_again() {
    let whole = on_a_trace();
    whole.run_drawn("one/out", &[]);
    let whole = bytes_of(&whole.path("one/out"));
    type Harm = fn(&std::path::Path, &std::path::Path);
    let harms: [(&str, Harm, &str); 5] = [
        (
            "a flipped bit",
            |cell, _| {
                let mut bytes = std::fs::read(cell).unwrap();
                let at = bytes.len() / 2;
                bytes[at] ^= 4;
                std::fs::write(cell, bytes).unwrap();
            },
            "is damaged: its checksum does not match its contents",
        ),
        (
            "a cut",
            |cell, _| {
                let bytes = std::fs::read(cell).unwrap();
                std::fs::write(cell, &bytes[..bytes.len() / 2]).unwrap();
            },
            "is damaged: its checksum does not match its contents",
        ),
        ("an empty file", |cell, _| std::fs::write(cell, b"").unwrap(), "is damaged: it is empty"),
        ("a missing file", |cell, _| std::fs::remove_file(cell).unwrap(), "is gone"),
        (
            "another cell's file",
            |cell, other| assert!(std::fs::copy(other, cell).unwrap() > 0),
            "the file of another cell, v1-s1-p0.cell",
        ),
    ];
    let place = on_a_trace();
    for (what, harm, said) in harms {
        let _ = std::fs::remove_dir_all(place.path("shared"));
        for which in ["1/2", "2/2"] {
            shard(&place, which, &["--threads", "1"]);
        }
        let cells = place.path("shared/out/cells");
        harm(&cells.join("v0-s0-p1.cell"), &cells.join("v1-s1-p0.cell"));
        let listed = listed(&place);
        assert_eq!(listed["damaged"].as_array().unwrap().len(), 1, "{what}: {listed}");
        let found = place.fails(&["merge", "shared/out"], 1);
        let one_line = found.replace("\n  | ", " ").split_whitespace().collect::<Vec<_>>().join(" ");
        for part in [
            "1 of 30 cells is not finished: shared/out/cells/v0-s0-p1.cell", said,
            "(fixed-1, workload.arrivals.poisson.rate = 2.0, seed 1)",
        ] {
            assert!(one_line.contains(part), "{what}: {part}: {found}");
        }
        follow(&place, &found);
        merged(&place);
        assert!(bytes_of(&place.path("shared/out")) == whole, "{what}: other bytes than an undamaged run");
    }
}

/// If a cell (the run of one policy) of a complete shard is damaged, the shard no longer counts as complete. It runs
/// again only on request.
#[test]
fn a_complete_shard_with_a_damaged_cell_is_reported() {
    let place = on_a_trace();
    shard(&place, "1/1", &[]);
    std::fs::write(place.path("shared/out/cells/v0-s0-p1.cell"), b"").unwrap();
    let said = place.fails(&["run", "x.toml", "-o", "shared/out", "--shard", "1/1"], 2);
    assert!(said.contains("some of its cells are now damaged or missing") && said.contains("--resume"), "{said}");
}

/// If other programs put files into a results folder, these files are reported and never removed.
#[test]
fn foreign_files_in_a_results_folder_stay() {
    let place = on_a_trace();
    shard(&place, "1/1", &[]);
    let notes = |folder: &str| place.path(&format!("shared/out/{folder}/notes.md"));
    let put = |folder: &str| {
        std::fs::create_dir_all(notes(folder).parent().unwrap()).unwrap();
        std::fs::write(notes(folder), folder).unwrap();
    };
    let is_left = |folder: &str, output: std::process::Output| {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        let note = format!("note: shared/out/{folder}/notes.md is left where it is: Foretoken did not write it");
        assert!(said.contains(&note), "{said}");
        assert_eq!(std::fs::read_to_string(notes(folder)).unwrap(), folder);
    };
    put("cells");
    put("shards");
    let output = place.foretoken().args(["merge", "shared/out"]).output().unwrap();
    is_left("cells", output.clone());
    is_left("shards", output);
    assert!(!place.path("shared/out/cells/v0-s0-p0.cell").exists(), "the program's own cells go");
    put("figures");
    put("report");
    let run = |mode: &str| place.foretoken().args(["run", "x.toml", "-o", "shared/out", mode]).output().unwrap();
    is_left("cells", run("--resume"));
    for folder in ["cells", "figures", "report"] {
        is_left(folder, run("--overwrite"));
    }
    let manifest = std::fs::read_to_string(place.path("shared/out/manifest.json")).unwrap();
    assert!(!manifest.contains("notes.md"), "it is no result: {manifest}");
}
