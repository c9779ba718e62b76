//! The results folder: when it may be used, and what is in it.

use super::lock::Lock;
use super::manifest::{MANIFEST, Manifest, Timing, digest};
use super::own::{
    CELLS, EXPERIMENT, FIGURES, PROBES, RECORDINGS, REPORT, SHARDS, TAPES, is_own, remove_own, tell_left,
};
use super::progress::Speed;
use super::unwritten::write_problem;
use crate::plan::Plan;
use foretoken_report::{ReportError, Staged};
use foretoken_spec::problem::{Problem, Result};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;
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

/// What a live run says besides its records.
pub const LIVE_JSON: &str = "live.json";
/// What an observed run says besides its records.
pub const OBSERVED_JSON: &str = "observed.json";
/// What a search for capacity says.
pub const CAPACITY_JSON: &str = "capacity.json";
/// The runs of a validation.
pub const RUNS_JSON: &str = "runs.json";
/// Everything a results folder may hold; `--overwrite` removes these and nothing else.
const OURS: [&str; 31] = [
    MANIFEST,
    CELLS,
    SHARDS,
    FIGURES,
    REPORT,
    EXPERIMENT,
    "summary.parquet",
    "requests.parquet",
    "steps.parquet",
    "positions.parquet",
    "series.parquet",
    "lengths.parquet",
    "calibration.parquet",
    "report.txt",
    "report.json",
    LIVE_JSON,
    TAPES,
    RECORDINGS,
    OBSERVED_JSON,
    RUNS_JSON,
    PROBES,
    CAPACITY_JSON,
    "capacity.txt",
    "capacity.html",
    "capacity.parquet",
    "probes.parquet",
    "profile.toml",
    "belief.toml",
    "validation.json",
    "validation.txt",
    "validation.html",
];

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
                        manifest.check_all(&folder.path)?;
                        folder.clear_up()?;
                        return Ok((folder, true));
                    }
                }
            }
        }
        folder.replan(plan)?;
        Ok((folder, false))
    }

    /// Makes the folder ready for a shard of a plan: the first one that comes begins it, the others find it begun.
    /// `Ok(true)`: it already holds the complete results.
    pub fn join(path: PathBuf, plan: &Plan) -> Result<(Folder, bool)> {
        let folder = Folder::at(path);
        // Written last.
        let begun = || folder.path.join(EXPERIMENT).exists();
        if begun() && folder.manifest_of_same(plan)?.complete {
            return Ok((folder, true));
        }
        std::fs::create_dir_all(folder.shards()).map_err(|e| {
            Problem::failed(format!("cannot make the results folder {}: {e}", folder.path.display()))
                .help("choose another with -o")
        })?;
        // Many shards begin at once.
        let _lock = Lock::wait(&folder.shards().join("begin.lock"))?;
        if begun() {
            let complete = folder.manifest_of_same(plan)?.complete;
            return Ok((folder, complete));
        }
        // A shard that was killed as it began leaves a manifest.
        if folder.names()?.iter().any(|name| name != SHARDS && name != MANIFEST) {
            return Err(folder.not_empty());
        }
        // A given setting is named when it did nothing; the experiment beside the results has all defaults, too.
        let asked = plan.asked_for(&folder.shards())?;
        Staged::write_all_to(&folder.shards().join(EXPERIMENT), asked.as_bytes()).map_err(write_problem)?;
        folder.replan(plan)?;
        Ok((folder, false))
    }

    /// Takes a plan: the one it is opened for, or one that became more definite, since its costs were measured.
    pub fn replan(&self, plan: &Plan) -> Result<()> {
        let text = plan.resolved_for(&self.path)?;
        // The manifest first: it is what --resume recognises a run by.
        let files = BTreeMap::from([(EXPERIMENT.to_owned(), foretoken_intact::seal::digest(text.as_bytes()))]);
        self.write_manifest(plan, files, None, false)?;
        self.write(EXPERIMENT, text.as_bytes())
    }

    /// Enters files that are finished in the manifest: from now on damage to them, a cut or a loss is noticed.
    /// Nothing in a folder without a manifest.
    pub fn enter(&self, names: &[&str]) -> Result<()> {
        if !self.path.join(MANIFEST).exists() {
            return Ok(());
        }
        let mut manifest = Manifest::read(&self.path)?;
        for &name in names {
            let path = self.path.join(name);
            let digest =
                digest(&path).map_err(|e| Problem::failed(format!("cannot read {} again: {e}", path.display())))?;
            manifest.files.insert(name.to_owned(), digest);
        }
        self.write(MANIFEST, manifest.to_json().as_bytes())
    }

    /// Takes back what this run wrote when it came to nothing: no cell is finished, and nothing but this run's own
    /// beginnings is there. Best effort: the error that led here is the one to report.
    pub fn abandon(&self) {
        let own = |e: std::fs::DirEntry| is_own(CELLS, &e.file_name().to_string_lossy());
        let finished = std::fs::read_dir(self.cells()).is_ok_and(|entries| entries.flatten().any(own));
        if !self.fresh || finished {
            return;
        }
        for name in [MANIFEST, EXPERIMENT] {
            let _ = std::fs::remove_file(self.path.join(name));
        }
        // Only empty folders go.
        for empty in [CELLS, RECORDINGS, PROBES] {
            let _ = std::fs::remove_dir(self.path.join(empty));
        }
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

    /// The folder of what shards say of themselves.
    pub fn shards(&self) -> PathBuf {
        self.path.join(SHARDS)
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

    /// Writes a file of JSON as it is made: a large comparison is never in memory as text.
    pub fn write_json(&self, name: &str, value: &impl Serialize) -> Result<()> {
        let path = self.path.join(name);
        let cannot = |cause: std::io::Error| write_problem(ReportError::Write { path: path.clone(), cause });
        let mut file = Staged::create(&path).map_err(write_problem)?;
        serde_json::to_writer_pretty(&mut file, value).map_err(|e| cannot(e.into()))?;
        file.write_all(b"\n").map_err(cannot)?;
        file.commit().map_err(write_problem)
    }

    /// Completes the folder: the manifest last, so that its presence says that all is there; then the cells go.
    pub fn complete(&self, plan: &Plan, speed: &Speed) -> Result<()> {
        self.write_manifest(plan, self.digests()?, Some(speed), true)?;
        self.clear_up()
    }

    /// Completes the folder of a run whose shards were run elsewhere. The inputs have the names that the experiment
    /// gave them there.
    pub fn complete_merged(&self, begun: Manifest, timing: Timing) -> Result<()> {
        let manifest = Manifest { files: self.digests()?, complete: true, timing, ..begun };
        self.write(MANIFEST, manifest.to_json().as_bytes())?;
        self.clear_up()
    }

    /// Removes what a complete folder needs no more. A run killed between its last two actions leaves it behind.
    pub fn clear_up(&self) -> Result<()> {
        for name in [PROBES, SHARDS, CELLS] {
            tell_left(&remove_own(&self.path, name)?);
        }
        Ok(())
    }

    /// Ends a folder that holds a part of `cells` cells: the manifest says so.
    pub fn keep_part(&self, plan: &Plan, cells: usize, speed: &Speed) -> Result<()> {
        let manifest = Manifest { cells, ..Manifest::of(plan, self.digests()?, false, timing(speed)) };
        self.write(MANIFEST, manifest.to_json().as_bytes())
    }

    /// The result files that are there, with their digests.
    fn digests(&self) -> Result<BTreeMap<String, String>> {
        let whole =
            OURS.iter().filter(|n| ![MANIFEST, CELLS, SHARDS, REPORT, FIGURES, TAPES, RECORDINGS, PROBES].contains(n));
        let mut names: Vec<String> = whole.map(|n| (*n).to_owned()).collect();
        for folder in [FIGURES, TAPES, RECORDINGS] {
            let entries = std::fs::read_dir(self.path.join(folder)).into_iter().flatten().flatten();
            let files = entries.map(|e| e.file_name().to_string_lossy().into_owned());
            names.extend(files.filter(|file| is_own(folder, file)).map(|file| format!("{folder}/{file}")));
        }
        let mut all = BTreeMap::new();
        for name in names.into_iter().filter(|n| !n.ends_with(".partial")) {
            let path = self.path.join(&name);
            match digest(&path) {
                Ok(digest) => drop(all.insert(name, digest)),
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
                Err(e) => return Err(Problem::failed(format!("cannot read {} again: {e}", path.display()))),
            }
        }
        Ok(all)
    }

    fn write_manifest(
        &self,
        plan: &Plan,
        files: BTreeMap<String, String>,
        speed: Option<&Speed>,
        complete: bool,
    ) -> Result<()> {
        let manifest = Manifest::of(plan, files, complete, speed.map(timing).unwrap_or_default());
        self.write(MANIFEST, manifest.to_json().as_bytes())
    }

    fn manifest_of_same(&self, plan: &Plan) -> Result<Manifest> {
        if !self.path.join(MANIFEST).exists() {
            return Err(Problem::bad_input(format!("{} holds no run to resume", self.path.display()))
                .help("choose another folder with -o, or leave --resume out"));
        }
        let manifest = Manifest::read(&self.path)?;
        let (folder, source) = (self.path.display(), plan.source().to_string());
        let message = if manifest.digest != plan.digest() {
            let name = &manifest.name;
            format!("{folder} holds the results of another experiment: `{name}` with other settings, traces or version")
        } else if manifest.source != source {
            format!("{folder} holds results that are {}, and these would be {source}", manifest.source)
        } else {
            return Ok(manifest);
        };
        Err(Problem::bad_input(message)
            .help("undo the change, choose another folder with -o, or start again with --overwrite"))
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
            if path.is_dir() {
                tell_left(&remove_own(&self.path, name)?);
                continue;
            }
            std::fs::remove_file(&path)
                .map_err(|e| Problem::failed(format!("cannot remove {}: {e}", path.display())))?;
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

fn timing(speed: &Speed) -> Timing {
    Timing { cells: speed.cells, wall_s: speed.wall_s, engine_s: speed.engine_s }
}
