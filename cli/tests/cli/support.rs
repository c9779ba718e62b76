//! A small experiment in a folder of its own, and functions that run the program in this folder.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A fast experiment with every feature of a results folder: a sweep, several seeds, an SLO, steps, figures.
pub const EXPERIMENT: &str = r#"name = "small"
seeds = [1, 2]
policies = [{ fixed = { k = { sweep = [1, 3] } } }, { adaspec = {} }, { oracle-goodput = {} }]

[hardware]
target = { linear = { alpha_s = 0.3e-6, gamma_s = 55e-6, delta_s = 11e-3 } }
draft = { linear = { alpha_s = 0.0, gamma_s = 5e-6, delta_s = 1e-3 } }
noise_cv = 0.05

[engine]
max_num_seqs = { sweep = [8, 64] }

[workload]
arrivals = { poisson = { rate = 4.0 } }
lengths = { fixed = { prompt = 128, output = 64 } }
requests = 200

[acceptance.source]
constant = { rate = 0.7 }

[slo]
adaspec-scale = 1.0

[output]
steps = true
"#;

/// A temporary folder with an experiment in the file `x.toml`. The folder is removed when the value is dropped.
pub struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    /// A folder with [`EXPERIMENT`] as `x.toml`.
    pub fn new() -> Place {
        Place::holding(EXPERIMENT)
    }

    /// A folder with the given experiment as `x.toml`.
    pub fn holding(experiment: &str) -> Place {
        let place = Place { dir: tempfile::tempdir().unwrap() };
        std::fs::write(place.path("x.toml"), experiment).unwrap();
        place
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Changes the manifest of a results folder and renews its seal (checksum), so that it does not count as edited.
    pub fn edit_manifest(&self, out: &str, edit: impl FnOnce(&mut serde_json::Value)) {
        let path = self.path(out).join("manifest.json");
        let mut manifest: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        manifest.as_object_mut().unwrap().remove("seal").expect("a manifest is sealed");
        edit(&mut manifest);
        let text = serde_json::to_string_pretty(&manifest).unwrap();
        std::fs::write(
            &path,
            foretoken_traces::intact::seal::seal(foretoken_traces::intact::seal::Syntax::Json, &text),
        )
        .unwrap();
    }

    /// A command that starts the program in the folder, without `FORETOKEN_TRACES` in its environment.
    pub fn foretoken(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_foretoken"));
        command.current_dir(self.dir.path()).env_remove("FORETOKEN_TRACES");
        command
    }

    /// Runs a command that reads `text` on its standard input.
    pub fn reading(&self, args: &[&str], text: &str) -> Output {
        let path = self.path("standard-input");
        std::fs::write(&path, text).unwrap();
        self.foretoken().args(args).stdin(File::open(path).unwrap()).output().unwrap()
    }

    /// Runs a command that must end within 20 seconds.
    pub fn soon(&self, args: &[&str]) -> Output {
        let mut child =
            self.foretoken().args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a program");
        let start = Instant::now();
        while child.try_wait().unwrap().is_none() {
            if start.elapsed() > Duration::from_secs(20) {
                child.kill().unwrap();
                panic!("{args:?} does not end");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        child.wait_with_output().unwrap()
    }

    /// Runs `foretoken run x.toml -o OUT` with the arguments `more`, which must succeed, without figures and page.
    /// Returns stdout.
    pub fn run(&self, out: &str, more: &[&str]) -> String {
        self.run_drawn(out, &[&["--no-figures"], more].concat())
    }

    /// As [`Place::run`], with figures and page.
    pub fn run_drawn(&self, out: &str, more: &[&str]) -> String {
        let output = self.foretoken().args(["run", "x.toml", "-o", out]).args(more).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a command that must exit with `code` and print nothing to stdout. Returns stderr.
    pub fn fails(&self, args: &[&str], code: i32) -> String {
        let output = self.foretoken().args(args).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{args:?}\n{stderr}");
        assert!(output.stdout.is_empty(), "an error must not print results");
        stderr
    }
}

/// Replaces `from` by `to` in the experiment `text`. Asserts that the result is refused before anything runs, with a
/// message that has every part of `says`.
pub fn refused(text: &str, from: &str, to: &str, says: &[&str]) {
    assert!(text.contains(from), "{from} is not in the experiment");
    let place = Place::holding(&text.replacen(from, to, 1));
    let error = place.fails(&["run", "x.toml", "-o", "out"], 2);
    assert!(!place.path("out").exists(), "something was written before the input was checked");
    for part in says {
        assert!(error.contains(part), "`{part}` is missing in\n{error}");
    }
}

/// Every file below a folder, with its bytes. Two things that differ between equal runs are left out: the times in
/// `manifest.json` with the checksum over them, and the file `report/timing.js`, which has the same times.
pub fn bytes_of(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    collect(folder, "", &mut all);
    all.remove("report/timing.js");
    if let Some(bytes) = all.get_mut("manifest.json") {
        let mut manifest: serde_json::Value = serde_json::from_slice(bytes).unwrap();
        for part in ["timing", "seal"] {
            manifest.as_object_mut().unwrap().remove(part).expect("the manifest has a timing, and a seal over it");
        }
        *bytes = manifest.to_string().into_bytes();
    }
    all
}

fn collect(folder: &Path, prefix: &str, all: &mut BTreeMap<String, Vec<u8>>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.path().is_dir() {
            collect(&entry.path(), &format!("{name}/"), all);
        } else {
            all.insert(name, std::fs::read(entry.path()).unwrap());
        }
    }
}
