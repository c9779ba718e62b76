//! Runs that end early, because they are killed or interrupted or the disk is full. Finished cells (runs of one policy
//! each) must be kept, no file may be half-written, and `--resume` must give the same bytes as an undisturbed run.

use crate::support::{EXPERIMENT, Place, bytes_of};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// An experiment with many cells (runs of one policy each), so that some are unfinished when it is interrupted.
pub fn long() -> Place {
    let many: Vec<String> = (1..=10).map(|s| s.to_string()).collect();
    let text = EXPERIMENT.replacen("seeds = [1, 2]", &format!("seeds = [{}]", many.join(", ")), 1);
    Place::holding(&text.replacen("requests = 200", "requests = 1000", 1).replacen("steps = true", "steps = false", 1))
}

/// Starts a run on one thread and waits until some cells (runs of one policy each) are finished.
pub fn start(place: &Place) -> Child {
    let mut child = Command::new(env!("CARGO_BIN_EXE_foretoken"))
        .args(["run", "x.toml", "-o", "out", "--threads", "1"])
        .current_dir(place.path(""))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while finished_cells(&place.path("out")) < 3 {
        assert!(child.try_wait().unwrap().is_none(), "the run ended before it could be interrupted");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    child
}

fn finished_cells(out: &Path) -> usize {
    let entries = std::fs::read_dir(out.join("cells")).into_iter().flatten().flatten();
    entries.filter(|e| e.path().extension().is_some_and(|x| x == "cell")).count()
}

/// Resumes the run in `out`. Its results must equal the results of an undisturbed run, byte for byte.
pub fn resumes_to_the_same_bytes(place: &Place) {
    let resumed = place.run_drawn("out", &["--resume"]);
    let whole = place.run_drawn("whole", &[]);
    assert_eq!(resumed, whole);
    let (resumed, whole) = (bytes_of(&place.path("out")), bytes_of(&place.path("whole")));
    assert_eq!(resumed.keys().collect::<Vec<_>>(), whole.keys().collect::<Vec<_>>());
    for (name, bytes) in &resumed {
        assert!(bytes == &whole[name], "{name} differs");
    }
}

#[test]
fn killed_and_resumed() {
    let place = long();
    let mut child = start(&place);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!place.path("out/summary.parquet").exists());
    resumes_to_the_same_bytes(&place);
}

#[test]
fn interrupted_by_ctrl_c_and_resumed() {
    let place = long();
    let child = start(&place);
    let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    let output = child.wait_with_output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{error}");
    assert!(output.stdout.is_empty());
    assert!(error.contains("what was finished is kept") && error.contains("--resume"), "{error}");
    assert!(finished_cells(&place.path("out")) >= 3);
    assert!(!place.path("out/summary.parquet").exists());
    resumes_to_the_same_bytes(&place);
}

#[test]
fn a_damaged_cell_runs_again() {
    let place = long();
    let mut child = start(&place);
    child.kill().unwrap();
    child.wait().unwrap();
    for entry in std::fs::read_dir(place.path("out/cells")).unwrap() {
        std::fs::write(entry.unwrap().path(), b"half a ce").unwrap();
    }
    resumes_to_the_same_bytes(&place);
}

/// A limit on file sizes stands in for a full disk: writing a larger file fails with an error.
#[test]
fn out_of_space() {
    let place = Place::new();
    let script =
        format!("trap '' XFSZ; ulimit -f 4; exec {} run x.toml -o out --threads 1", env!("CARGO_BIN_EXE_foretoken"));
    let output = Command::new("sh").arg("-c").arg(script).current_dir(place.path("")).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("cannot write") && error.contains("--resume"), "{error}");
    let left = bytes_of(&place.path("out"));
    assert!(!left.keys().any(|n| n.ends_with(".parquet") || n.ends_with(".cell")), "{:?}", left.keys());
    resumes_to_the_same_bytes(&place);
}
