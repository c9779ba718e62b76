//! What tests need of a machine beyond Rust, and what they do where it is missing.
//!
//! They skip, loudly: the word goes to the process's own standard error, which the test harness does not swallow as it does what
//! `eprintln!` writes. `FORETOKEN_SKIPS` names a file that keeps one line a skip, so that whoever runs all tests can list them.
//! `FORETOKEN_REQUIRE` names the parts that this machine must have, comma-separated: there a skip is a failure.
//!
//! Beside it, [`vllm`] replays the recorded schedules of vLLM, and [`stub`] is a server that says what a test wants. The whole-system tests themselves are in `tests/`.

pub mod stub;
pub mod vllm;

use std::env;
use std::fmt::Display;
use std::fs::File;
use std::io::{Write, stderr};
use std::path::PathBuf;

/// A part of a machine that not every machine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The folder of real traces, named by `FORETOKEN_TRACES`.
    Traces,
    /// A C++ compiler: `g++`, or what `CXX` names.
    Cxx,
    /// An NVIDIA GPU with its driver.
    Gpu,
    /// A Chromium: in the `PATH`, or what `FORETOKEN_CHROMIUM` names.
    Chromium,
    /// util-linux's `script`, which makes a terminal.
    Terminal,
}

impl Part {
    const ALL: [Part; 5] = [Part::Traces, Part::Cxx, Part::Gpu, Part::Chromium, Part::Terminal];

    /// Its name in `FORETOKEN_REQUIRE`.
    fn name(self) -> &'static str {
        match self {
            Part::Traces => "traces",
            Part::Cxx => "cxx",
            Part::Gpu => "gpu",
            Part::Chromium => "chromium",
            Part::Terminal => "terminal",
        }
    }

    /// Is it in this list? An error names what is no part.
    fn is_in(self, list: &str) -> Result<bool, String> {
        let mut names = list.split(',').map(str::trim).filter(|name| !name.is_empty());
        match names.clone().find(|name| Part::ALL.iter().all(|part| part.name() != *name)) {
            Some(unknown) => Err(format!("`{unknown}` is none of {}", Part::ALL.map(Part::name).join(", "))),
            None => Ok(names.any(|name| name == self.name())),
        }
    }
}

/// Says that the test that calls it is skipped because the machine lacks `part`, and `why`; the caller returns.
///
/// # Panics
/// Where `FORETOKEN_REQUIRE` names the part, or something that is no part; where the file of `FORETOKEN_SKIPS` cannot be written.
pub fn skip(part: Part, why: impl Display) {
    let required = env::var("FORETOKEN_REQUIRE").unwrap_or_default();
    let required = part.is_in(&required).unwrap_or_else(|e| panic!("FORETOKEN_REQUIRE: {e}"));
    assert!(!required, "FORETOKEN_REQUIRE has {}, but {why}", part.name());
    let thread = std::thread::current();
    let line = format!("SKIPPED {} (no {}): {why}\n", thread.name().unwrap_or("a test"), part.name());
    // In one piece, since tests run beside each other.
    let _ = stderr().write_all(line.as_bytes());
    if let Some(list) = env::var_os("FORETOKEN_SKIPS") {
        let kept = File::options().create(true).append(true).open(&list).and_then(|mut f| f.write_all(line.as_bytes()));
        kept.unwrap_or_else(|e| panic!("FORETOKEN_SKIPS: {}: {e}", list.display()));
    }
}

/// The folder of real traces. `None`, and a [`skip`], where `FORETOKEN_TRACES` is not set.
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

    /// That test in a process of its own, where these parts are required.
    fn run(required: &str, list: &std::path::Path) -> (bool, Output) {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "tests::lacks_a_compiler", "--ignored"]);
        let output = command.env("FORETOKEN_REQUIRE", required).env("FORETOKEN_SKIPS", list).output().unwrap();
        (output.status.success(), output)
    }

    #[test]
    fn a_skip_is_heard_and_listed() {
        let folder = tempfile::tempdir().unwrap();
        let list = folder.path().join("skips");
        for required in ["", "traces, chromium"] {
            let (passed, output) = run(required, &list);
            let said = String::from_utf8(output.stderr).unwrap();
            assert!(passed && said.contains("(no cxx): this test pretends to have no compiler"), "{said}");
        }
        let line = "SKIPPED tests::lacks_a_compiler (no cxx): this test pretends to have no compiler\n";
        // On one thread the harness runs tests without naming the thread after them.
        let kept = std::fs::read_to_string(list).unwrap().replace("SKIPPED main ", "SKIPPED tests::lacks_a_compiler ");
        assert_eq!(kept, line.repeat(2));
    }

    #[test]
    fn a_skip_of_what_is_required_fails_and_so_does_a_name_that_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let list = folder.path().join("skips");
        for (required, why) in [
            ("traces,cxx", "FORETOKEN_REQUIRE has cxx, but this test pretends"),
            ("cxx", "FORETOKEN_REQUIRE has cxx"),
            ("compiler", "FORETOKEN_REQUIRE: `compiler` is none of traces, cxx, gpu, chromium, terminal"),
        ] {
            let (passed, output) = run(required, &list);
            let said = String::from_utf8(output.stdout).unwrap();
            assert!(!passed && said.contains(why), "{said}");
        }
        assert!(!list.exists(), "a failure is no skip");
    }
}
