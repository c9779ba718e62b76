//! The pages behind the four doors of the documents end in a printed result. This runs the commands of the pages and
//! compares the result.

use crate::recipes::blocks;
use crate::support::Place;
use std::process::Command;

const BIN: &str = env!("CARGO_BIN_EXE_foretoken");

/// The text of a document; `page` is its path in the repository.
fn document(page: &str) -> String {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    std::fs::read_to_string(root.join(page)).unwrap()
}

/// Runs the last shell block before each printed result (a block of text) of a page, after files of the page were
/// written, and compares its output with the result. A line of the page that ends in `…` leaves out its end; the page
/// may leave out whole lines.
fn prints(page: &str, files: &[(&str, &str)]) {
    let text = document(page);
    let results = blocks(&text, "text");
    assert!(!results.is_empty(), "{page} has no printed result");
    results.iter().for_each(|shown| prints_one(page, &text[..text.find(shown).unwrap()], shown, files));
}

/// As [`prints`], for one result and the text before it.
fn prints_one(page: &str, before: &str, shown: &str, files: &[(&str, &str)]) {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    // In a checkout, `cargo run` is the program.
    let command = blocks(before, "sh").last().unwrap().replace("cargo run --release -- ", "foretoken ");
    let place = Place::new();
    for (name, language) in files {
        std::fs::write(place.path(name), blocks(before, language)[0]).unwrap();
    }
    std::os::unix::fs::symlink(root.join("experiments"), place.path("experiments")).unwrap();
    let setup = blocks(before, "sh").into_iter().filter(|block| block.starts_with("printf"));
    let script = setup.chain([command.as_str()]).collect::<String>();
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
    prints("docs/ask.md", &[]);
}

#[test]
fn i_compare_policies() {
    prints("docs/experiments.md", &[("mine.toml", "toml")]);
}

#[test]
fn i_plan_capacity() {
    prints("docs/capacity.md", &[]);
}

/// The README's two printed results: the answer of `ask`, and the table of the quickstart.
#[test]
fn the_readme_prints_what_it_says() {
    prints("README.md", &[]);
}

/// The first page of the site asks the README's question, which the test above runs.
#[test]
fn the_first_page_asks_the_readmes_question() {
    let question = |page: &str| {
        let text = document(page);
        blocks(&text, "sh").into_iter().find(|block| block.starts_with("foretoken ask ")).map(str::to_owned)
    };
    assert!(question("README.md").is_some());
    assert_eq!(question("docs/index.md"), question("README.md"));
}

/// The files that the pages about a server name are in the program, so that no checkout is needed.
#[test]
fn the_files_of_a_server_are_in_the_program() {
    let place = Place::new();
    let mut found = 0;
    for page in ["README.md", "docs/your-server.md", "docs/llama-cpp.md"] {
        let text = document(page);
        let words: Vec<&str> = blocks(&text, "sh").iter().flat_map(|block| block.split_whitespace()).collect();
        let named = (1..words.len()).filter_map(|at| match (words[at - 1], words[at]) {
            ("foretoken", "observe") => Some(words[at + 2]),
            ("--copy", name) => Some(name),
            _ => None,
        });
        for name in named {
            let args = ["new", "copy", "--overwrite", "--copy", name];
            let output = place.foretoken().args(args).output().unwrap();
            assert!(output.status.success(), "{page}: {name}: {}", String::from_utf8_lossy(&output.stderr));
            found += 1;
        }
    }
    assert!(found >= 6, "{found}");
}
