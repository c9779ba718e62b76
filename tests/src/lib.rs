//! Some tests need more of a machine than Rust: traces, a GPU, a browser. This crate says how such tests are skipped on
//! a machine without these parts.
//!
//! A skipped test prints a line to the process's own standard error, because the test harness swallows `eprintln!`.
//! `FORETOKEN_SKIPS` names a file that gets one line per skip, so that a run of all tests can list the skipped ones.
//! `FORETOKEN_REQUIRE` names the parts that this machine must have, separated by commas: if a test is skipped for one
//! of these parts, it fails.
//!
//! [`vllm`] and [`sglang`] replay the recorded schedules of these engines, [`stub`] is a server with answers that a
//! test chooses, and [`cargo`] builds copies of the sources. The whole-system tests are in `tests/`.

pub mod sglang;
pub mod stub;
pub mod vllm;

use std::env;
use std::fmt::Display;
use std::fs::File;
use std::io::{Write, stderr};
use std::path::PathBuf;
use std::process::Command;

/// The cargo that runs this test, without the variables that it sets for tests. Build scripts of dependencies, such as
/// ring's, ask to run again when these variables change, and the dependencies would be built again.
pub fn cargo() -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in env::vars_os() {
        if ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|start| name.to_string_lossy().starts_with(start)) {
            cargo.env_remove(name);
        }
    }
    cargo
}

/// A part of a machine, such as a GPU, that some tests need and only some machines have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The folder of real traces that `FORETOKEN_TRACES` names.
    Traces,
    /// A C++ compiler: the one that `CXX` names, else `g++`.
    Cxx,
    /// An NVIDIA GPU with its driver.
    Gpu,
    /// A Chromium: the one that `FORETOKEN_CHROMIUM` names, else one in the `PATH`.
    Chromium,
    /// The script of axe-core, which checks pages for readers with a screen reader: `FORETOKEN_AXE` names it.
    Axe,
    /// util-linux's `script`, which makes a pseudo-terminal.
    Terminal,
}

impl Part {
    const ALL: [Part; 6] = [Part::Traces, Part::Cxx, Part::Gpu, Part::Chromium, Part::Axe, Part::Terminal];

    /// The name, in `FORETOKEN_REQUIRE`, of this part of a machine (such as a GPU) that some tests need.
    fn name(self) -> &'static str {
        match self {
            Part::Traces => "traces",
            Part::Cxx => "cxx",
            Part::Gpu => "gpu",
            Part::Chromium => "chromium",
            Part::Axe => "axe",
            Part::Terminal => "terminal",
        }
    }

    /// True if `list`, names of parts of a machine separated by commas, has this part. A name in the list that is no
    /// part is an error.
    fn is_in(self, list: &str) -> Result<bool, String> {
        let mut names = list.split(',').map(str::trim).filter(|name| !name.is_empty());
        match names.clone().find(|name| Part::ALL.iter().all(|part| part.name() != *name)) {
            Some(unknown) => Err(format!("`{unknown}` is none of {}", Part::ALL.map(Part::name).join(", "))),
            None => Ok(names.any(|name| name == self.name())),
        }
    }
}

/// Prints that the calling test is skipped because the machine lacks `part`, with the reason `why`. The caller must
/// then return.
///
/// # Panics
/// If `FORETOKEN_REQUIRE` names the part or an unknown part, or if the file of `FORETOKEN_SKIPS` cannot be written.
pub fn skip(part: Part, why: impl Display) {
    let required = env::var("FORETOKEN_REQUIRE").unwrap_or_default();
    let required = part.is_in(&required).unwrap_or_else(|e| panic!("FORETOKEN_REQUIRE: {e}"));
    assert!(!required, "FORETOKEN_REQUIRE has {}, but {why}", part.name());
    let thread = std::thread::current();
    let line = format!("SKIPPED {} (no {}): {why}\n", thread.name().unwrap_or("a test"), part.name());
    // The line is written in one call, because tests run in parallel.
    let _ = stderr().write_all(line.as_bytes());
    if let Some(list) = env::var_os("FORETOKEN_SKIPS") {
        let kept = File::options().create(true).append(true).open(&list).and_then(|mut f| f.write_all(line.as_bytes()));
        kept.unwrap_or_else(|e| panic!("FORETOKEN_SKIPS: {}: {e}", list.display()));
    }
}

/// The folder of real traces. If `FORETOKEN_TRACES` is not set, calls [`skip`] and returns `None`.
pub fn traces() -> Option<PathBuf> {
    let folder = env::var_os("FORETOKEN_TRACES").map(PathBuf::from);
    if folder.is_none() {
        skip(Part::Traces, "FORETOKEN_TRACES does not name the folder of real traces");
    }
    folder
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Output};

    #[test]
    #[ignore = "run by the tests below, with and without what it needs"]
    fn lacks_a_compiler() {
        skip(Part::Cxx, "this test pretends to have no compiler");
    }

    /// Runs the ignored test of this file, which skips itself, in a new process with `FORETOKEN_REQUIRE` = `required`
    /// and `FORETOKEN_SKIPS` = `list`. Returns whether the test passed, and its output.
    fn run(required: &str, list: &std::path::Path) -> (bool, Output) {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "tests::lacks_a_compiler", "--ignored"]);
        let output = command.env("FORETOKEN_REQUIRE", required).env("FORETOKEN_SKIPS", list).output().unwrap();
        (output.status.success(), output)
    }

    #[test]
    fn a_skip_is_printed_and_listed() {
        let folder = tempfile::tempdir().unwrap();
        let list = folder.path().join("skips");
        for required in ["", "traces, chromium"] {
            let (passed, output) = run(required, &list);
            let said = String::from_utf8(output.stderr).unwrap();
            assert!(passed && said.contains("(no cxx): this test pretends to have no compiler"), "{said}");
        }
        let line = "SKIPPED tests::lacks_a_compiler (no cxx): this test pretends to have no compiler\n";
        // If the test harness has one thread, this thread is called `main`, so a skip is listed under `main` and not
        // under the test's name.
        let kept = std::fs::read_to_string(list).unwrap().replace("SKIPPED main ", "SKIPPED tests::lacks_a_compiler ");
        assert_eq!(kept, line.repeat(2));
    }

    #[test]
    fn skips_of_required_parts_and_unknown_part_names_fail() {
        let folder = tempfile::tempdir().unwrap();
        let list = folder.path().join("skips");
        for (required, why) in [
            ("traces,cxx", "FORETOKEN_REQUIRE has cxx, but this test pretends"),
            ("cxx", "FORETOKEN_REQUIRE has cxx"),
            ("compiler", "FORETOKEN_REQUIRE: `compiler` is none of traces, cxx, gpu, chromium, axe, terminal"),
        ] {
            let (passed, output) = run(required, &list);
            let said = String::from_utf8(output.stdout).unwrap();
            assert!(!passed && said.contains(why), "{said}");
        }
        assert!(!list.exists(), "a failure is no skip");
    }
}
