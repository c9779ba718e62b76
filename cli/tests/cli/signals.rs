//! Ctrl-C in every command, at every moment: the command prints "interrupted", exits with 130 and leaves no
//! half-written file.
//!
//! A named pipe stops a command at a known place: the command waits until the test opens the other end of the pipe. The
//! test opens this end, which shows that the command has come to this place. The test never writes data.
#![cfg(unix)]

use crate::interrupted::{long, start};
use crate::support::{Place, bytes_of};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

fn spawn(place: &Place, args: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_foretoken"));
    command.args(args).current_dir(place.path("")).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn pipe(place: &Place, name: &str) {
    let path = place.path(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

fn interrupted(child: Child) -> Output {
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{error}");
    assert!(error.contains("interrupted") && output.stdout.is_empty(), "{error}");
    output
}

/// Every half-written file below a folder. The function opens no file, because opening a pipe would block.
fn partial_files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let below = |path: PathBuf| if path.is_dir() { partial_files(&path) } else { vec![path] };
    entries.flat_map(below).filter(|path| path.extension().is_some_and(|e| e == "partial")).collect()
}

#[test]
fn every_command_ends_on_ctrl_c() {
    // The first file that each command reads is a pipe without data.
    for (file, line) in [
        ("e.toml", "run e.toml"),
        ("e.toml", "export vllm e.toml"),
        ("e.toml", "export sglang e.toml"),
        ("e.toml", "live e.toml"),
        ("e.toml", "validate e.toml"),
        ("t.csv", "traces inspect t.csv"),
        ("s.json", "decide s.json"),
        ("p.toml", "explore --profile p.toml"),
        ("r/manifest.json", "report r"),
        ("r/manifest.json", "export perfetto r -o t.json"),
        ("m/config.json", "profile --target m --draft m -o p.toml"),
        ("m/config.json", "profile-acceptance --target m --draft m -o t.truth"),
    ] {
        let place = Place::new();
        pipe(&place, file);
        let child = spawn(&place, &line.split(' ').collect::<Vec<_>>());
        // Opening a named pipe for writing waits until the command opens it for reading.
        let _held = File::options().write(true).open(place.path(file)).unwrap();
        interrupted(child);
        std::fs::remove_file(place.path(file)).unwrap();
        let left = partial_files(&place.path(""));
        assert!(left.is_empty(), "{line} left {left:?}");
    }
}

#[test]
fn half_written_files_are_removed_on_ctrl_c() {
    let place = Place::new();
    let mut child = spawn(&place, &["traces", "text", "--n", "1000000000", "-o", "big.jsonl"]);
    while !place.path("big.jsonl.partial").exists() {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it could be interrupted");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    interrupted(child);
    assert_eq!(partial_files(&place.path("")), Vec::<PathBuf>::new());
    assert!(!place.path("big.jsonl").exists());

    place.run_drawn("out", &["--no-figures"]);
    // The timeline is first written to a temporary file beside its final name. Here a pipe stands in for this file. The
    // test opens the pipe and reads nothing, so the command waits while it writes.
    pipe(&place, "t.json.partial");
    let child = spawn(&place, &["export", "perfetto", "out", "-o", "t.json"]);
    let _held = File::open(place.path("t.json.partial")).unwrap();
    interrupted(child);
    assert!(!place.path("t.json.partial").exists() && !place.path("t.json").exists());
}

/// Interrupts a run while it writes tables, after all policies have run. The resumed run must write the same bytes as
/// an undisturbed run.
#[test]
fn a_run_interrupted_while_writing_tables_is_resumed() {
    let place = long();
    let mut begun = start(&place);
    begun.kill().unwrap();
    begun.wait().unwrap();
    // The first table is written into a pipe. The pipe holds less than the table, so the command waits in the middle of
    // the table.
    pipe(&place, "out/requests.parquet.partial");
    let child = spawn(&place, &["run", "x.toml", "-o", "out", "--resume", "--no-figures"]);
    let _held = File::open(place.path("out/requests.parquet.partial")).unwrap();
    let output = interrupted(child);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("what was finished is kept") && error.contains("--resume"), "{error}");
    assert_eq!(partial_files(&place.path("out")), Vec::<PathBuf>::new());
    assert!(!place.path("out/requests.parquet").exists());
    let resumed = place.run_drawn("out", &["--resume", "--no-figures"]);
    assert_eq!(resumed, place.run_drawn("whole", &["--no-figures"]));
    let (resumed, whole) = (bytes_of(&place.path("out")), bytes_of(&place.path("whole")));
    assert!(resumed.keys().eq(whole.keys()), "{:?}", resumed.keys());
    resumed.iter().for_each(|(name, bytes)| assert!(bytes == &whole[name], "{name} differs"));
}
