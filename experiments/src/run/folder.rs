//! The results folder: when it may be used, what is in it, and its manifest.

use super::Speed;
use super::store::write_problem;
use crate::plan::Plan;
use crate::problem::{Problem, Result};
use foretoken_report::Staged;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What to do with a folder that is not empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Refuse it.
    Fresh,
    /// Go on with the run it holds.
    Resume,
    /// Remove the results it holds and start again.
    Overwrite,
}

/// A results folder.
#[derive(Clone, Debug)]
pub struct Folder {
    path: PathBuf,
    /// Folders that this run made, innermost first.
    made: Vec<PathBuf>,
    /// Is everything in it of this run?
    fresh: bool,
}

/// `manifest.json`: what the results are, and of what.
#[derive(Debug, Serialize, Deserialize)]
pub struct Manifest {
    /// What the files look like; absent in results from before it was written.
    #[serde(default)]
    pub schema: u32,
    /// The experiment's name.
    pub name: String,
    /// Where the numbers come from.
    pub source: String,
    /// The version of Foretoken.
    pub version: String,
    /// Digest of experiment, inputs and version: what decides the results.
    pub digest: String,
    /// blake3 of each file that was read, under the path the experiment gives.
    pub inputs: BTreeMap<String, String>,
    /// Cells of the plan.
    pub cells: usize,
    /// Are all results here?
    pub complete: bool,
    /// blake3 of each result file.
    pub files: BTreeMap<String, String>,
    /// The only part that may differ between two runs of the same plan.
    pub timing: Timing,
}

/// How long it took.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Timing {
    /// Cells run by the last command.
    pub cells: u64,
    /// Wall time of the last command, seconds.
    pub wall_s: f64,
    /// Time in the engine, summed over threads, seconds.
    pub engine_s: f64,
}

const MANIFEST: &str = "manifest.json";
const CELLS: &str = "cells";
const FIGURES: &str = "figures";
/// Made from the other files, at any time: not a result of its own.
const REPORT: &str = "report";
/// What the files of a results folder look like. It rises when a reader of the old ones would misread the new ones.
const SCHEMA: u32 = 1;
/// Everything a results folder may hold; `--overwrite` removes these and nothing else.
const OURS: [&str; 22] = [
    MANIFEST,
    CELLS,
    FIGURES,
    REPORT,
    "experiment.toml",
    "summary.parquet",
    "requests.parquet",
    "steps.parquet",
    "positions.parquet",
    "series.parquet",
    "lengths.parquet",
    "calibration.parquet",
    "report.txt",
    "report.json",
    crate::live::LIVE_JSON,
    crate::live::TAPES,
    crate::validate::RUNS_JSON,
    "profile.toml",
    "profile-after.toml",
    "validation.json",
    "validation.txt",
    "validation.html",
];

impl Manifest {
    /// The manifest of a results folder.
    pub fn read(folder: &Path) -> Result<Manifest> {
        let path = folder.join(MANIFEST);
        let help = "give the folder that `foretoken run` wrote its results to: it holds a manifest.json";
        if !folder.is_dir() {
            let what = if folder.exists() { "is not a folder" } else { "does not exist" };
            return Err(Problem::bad_input(format!("{} {what}", folder.display())).help(help));
        }
        let Ok(bytes) = std::fs::read(&path) else {
            return Err(Problem::bad_input(format!("{} is no results folder", folder.display())).help(help));
        };
        let unreadable =
            |e: serde_json::Error| Problem::bad_input(format!("{}: is not a manifest: {e}", path.display())).help(help);
        // The schema first: nothing else of a newer one can be relied on.
        let value: serde_json::Value = serde_json::from_slice(&bytes).map_err(unreadable)?;
        let schema = value.get("schema").and_then(serde_json::Value::as_u64).unwrap_or(0);
        if schema > u64::from(SCHEMA) {
            let version = value.get("version").and_then(|v| v.as_str()).unwrap_or("a newer one");
            let message = format!(
                "{} has results of schema {schema}, and this version of Foretoken reads up to {SCHEMA}",
                folder.display()
            );
            return Err(Problem::bad_input(message).help(format!("they were written by Foretoken {version}: use that")));
        }
        serde_json::from_value(value).map_err(unreadable)
    }
}

impl Folder {
    /// A folder without looking into it.
    pub fn at(path: PathBuf) -> Folder {
        Folder { path, made: Vec::new(), fresh: false }
    }

    /// Makes the folder ready for a plan. `Ok(true)`: it already holds the complete results.
    pub fn open(path: PathBuf, plan: &Plan, mode: Mode) -> Result<(Folder, bool)> {
        let missing = path.ancestors().take_while(|p| !p.as_os_str().is_empty() && !p.exists());
        let made = missing.map(Path::to_path_buf).collect();
        let folder = Folder { path, made, fresh: mode != Mode::Resume };
        std::fs::create_dir_all(&folder.path).map_err(|e| {
            Problem::failed(format!("cannot make the results folder {}: {e}", folder.path.display()))
                .help("choose another with -o")
        })?;
        let names = folder.names()?;
        if !names.is_empty() {
            match mode {
                Mode::Fresh => return Err(folder.not_empty()),
                Mode::Overwrite => folder.clear(&names)?,
                Mode::Resume => {
                    let manifest = folder.manifest_of_same(plan)?;
                    if manifest.complete {
                        // A run killed between its last two actions leaves the cells behind.
                        let _ = std::fs::remove_dir_all(folder.cells());
                        return Ok((folder, true));
                    }
                }
            }
        }
        // The manifest first: it is what --resume recognises a run by.
        folder.write_manifest(plan, &BTreeMap::new(), None, false)?;
        folder.write("experiment.toml", plan.resolved_for(&folder.path)?.as_bytes())?;
        Ok((folder, false))
    }

    /// Takes a plan that became more definite: its costs were measured.
    pub fn replan(&self, plan: &Plan) -> Result<()> {
        self.write_manifest(plan, &BTreeMap::new(), None, false)?;
        self.write("experiment.toml", plan.resolved_for(&self.path)?.as_bytes())
    }

    /// Takes back what this run wrote when it came to nothing: no cell is finished, and nothing but this run's own
    /// beginnings is there. Best effort: the error that led here is the one to report.
    pub fn abandon(&self) {
        let finished = std::fs::read_dir(self.cells()).is_ok_and(|mut entries| entries.next().is_some());
        if !self.fresh || finished {
            return;
        }
        for name in [MANIFEST, "experiment.toml"] {
            let _ = std::fs::remove_file(self.path.join(name));
        }
        // Only empty folders go.
        let _ = std::fs::remove_dir(self.cells());
        self.made.iter().for_each(|folder| drop(std::fs::remove_dir(folder)));
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder of finished cells.
    pub fn cells(&self) -> PathBuf {
        self.path.join(CELLS)
    }

    /// The folder of figures.
    pub fn figures(&self) -> PathBuf {
        self.path.join(FIGURES)
    }

    /// The folder of the report.
    pub fn report(&self) -> PathBuf {
        self.path.join(REPORT)
    }

    /// Writes a whole file.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<()> {
        Staged::write_all_to(&self.path.join(name), bytes).map_err(write_problem)
    }

    /// Completes the folder: the manifest last, so that its presence says that all is there; then the cells go.
    pub fn complete(&self, plan: &Plan, speed: &Speed) -> Result<()> {
        let mut files = BTreeMap::new();
        for name in OURS.iter().filter(|n| ![MANIFEST, CELLS, FIGURES, REPORT, crate::live::TAPES].contains(n)) {
            files.extend(digest(&self.path.join(name)).map(|d| ((*name).to_owned(), d)));
        }
        for entry in std::fs::read_dir(self.figures()).into_iter().flatten().flatten() {
            let name = format!("{FIGURES}/{}", entry.file_name().to_string_lossy());
            files.extend(digest(&entry.path()).map(|d| (name, d)));
        }
        self.write_manifest(plan, &files, Some(speed), true)?;
        match std::fs::remove_dir_all(self.cells()) {
            // A validation has none.
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                Err(Problem::failed(format!("cannot remove {}: {e}", self.cells().display())))
            }
            _ => Ok(()),
        }
    }

    /// Ends a folder that holds a part: the manifest says so.
    pub fn keep_part(&self, plan: &Plan, speed: &Speed) -> Result<()> {
        self.write_manifest(plan, &BTreeMap::new(), Some(speed), false)
    }

    fn write_manifest(
        &self,
        plan: &Plan,
        files: &BTreeMap<String, String>,
        speed: Option<&Speed>,
        complete: bool,
    ) -> Result<()> {
        let timing = speed.map(|s| Timing { cells: s.cells, wall_s: s.wall_s, engine_s: s.engine_s });
        let manifest = Manifest {
            schema: SCHEMA,
            name: plan.name.clone(),
            source: plan.source().to_string(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            digest: plan.digest(),
            inputs: plan.inputs.clone(),
            cells: plan.cells(),
            complete,
            files: files.clone(),
            timing: timing.unwrap_or_default(),
        };
        let text = serde_json::to_string_pretty(&manifest).expect("plain data always serialises");
        self.write(MANIFEST, (text + "\n").as_bytes())
    }

    fn manifest_of_same(&self, plan: &Plan) -> Result<Manifest> {
        let path = self.path.join(MANIFEST);
        let manifest: Option<Manifest> = std::fs::read(&path).ok().and_then(|b| serde_json::from_slice(&b).ok());
        match manifest {
            Some(m) if m.digest == plan.digest() => Ok(m),
            Some(m) => Err(Problem::bad_input(format!(
                "{} holds the results of another experiment: `{}` with other settings, traces or version",
                self.path.display(),
                m.name
            ))
            .help("undo the change, choose another folder with -o, or start again with --overwrite")),
            None => Err(Problem::bad_input(format!("{} holds no run to resume", self.path.display()))
                .help("choose another folder with -o, or leave --resume out")),
        }
    }

    fn not_empty(&self) -> Box<Problem> {
        Problem::bad_input(format!("the results folder {} is not empty", self.path.display()))
            .help("go on with the run it holds with --resume, replace it with --overwrite, or choose another with -o")
    }

    /// Removes results; refuses when there is anything else.
    fn clear(&self, names: &[String]) -> Result<()> {
        if let Some(foreign) = names.iter().find(|n| !OURS.contains(&n.as_str())) {
            let message = format!("{} holds `{foreign}`, which is not a result of a run", self.path.display());
            return Err(
                Problem::bad_input(message).help("--overwrite removes results only: choose another folder with -o")
            );
        }
        for name in names {
            let path = self.path.join(name);
            let removed = if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
            removed.map_err(|e| Problem::failed(format!("cannot remove {}: {e}", path.display())))?;
        }
        Ok(())
    }

    /// What is in the folder, but for files that a killed run left half-written.
    fn names(&self) -> Result<Vec<String>> {
        let cannot = |e| Problem::failed(format!("cannot look into {}: {e}", self.path.display()));
        let entries = std::fs::read_dir(&self.path).map_err(cannot)?;
        let mut names: Vec<String> = entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect();
        names.retain(|n| !n.ends_with(".partial"));
        names.sort();
        Ok(names)
    }
}

fn digest(path: &Path) -> Option<String> {
    std::fs::read(path).ok().map(|bytes| blake3::hash(&bytes).to_hex().to_string())
}
