//! The pages behind the four doors of the documents end in a printed result. This runs the commands of the pages and
//! compares the result.

use crate::recipes::blocks;
use crate::support::Place;
use std::process::Command;

const BIN: &str = env!("CARGO_BIN_EXE_foretoken");

/// Runs the first shell block of a page that the word `marker` is in, after files of the page were written, and
/// compares its output with the page's text block behind it. A line of the page that ends in `…` leaves out its end;
/// the page may leave out whole lines.
fn prints(page: &str, files: &[(&str, &str)]) {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let text = std::fs::read_to_string(root.join("docs").join(page)).unwrap();
    let shown = blocks(&text, "text");
    let [shown] = shown.as_slice() else { panic!("{page} has {} printed results", shown.len()) };
    let before = &text[..text.find(shown).unwrap()];
    let command = *blocks(before, "sh").last().unwrap();
    let place = Place::new();
    for (name, language) in files {
        std::fs::write(place.path(name), blocks(before, language)[0]).unwrap();
    }
    std::os::unix::fs::symlink(root.join("experiments"), place.path("experiments")).unwrap();
    let setup = blocks(before, "sh").into_iter().filter(|block| block.starts_with("printf"));
    let script = setup.chain([command]).collect::<String>();
    let script = format!("set -e\nforetoken() {{ '{BIN}' \"$@\"; }}\n{script}");
    let output = Command::new("bash").args(["-c", &script]).current_dir(place.path(".")).output().unwrap();
    assert!(output.status.success(), "{page}: {}", String::from_utf8_lossy(&output.stderr));
    let printed = String::from_utf8(output.stdout).unwrap();
    let mut rest = printed.lines();
    for line in shown.lines() {
        let found = match line.strip_suffix('…') {
            Some(start) => rest.any(|printed| printed.starts_with(start)),
            None => rest.any(|printed| printed.trim_end() == line),
        };
        assert!(found, "{page} prints no more {line:?}. It prints:\n{printed}");
    }
}

#[test]
fn i_run_a_server() {
    prints("ask.md", &[]);
}

#[test]
fn i_compare_policies() {
    prints("experiments.md", &[("mine.toml", "toml")]);
}

#[test]
fn i_plan_capacity() {
    prints("capacity.md", &[]);
}
