//! The results folder: its files, its manifest, and the checks of the folder before a run uses it.

use super::lock::Lock;
use super::manifest::{MANIFEST, Manifest, Timing, digest};
use super::own::{
    CELLS, EXPERIMENT, FIGURES, PROBES, RECORDINGS, REPORT, SHARDS, TAPES, is_own, remove_own, tell_left,
};
use super::progress::Speed;
use super::unwritten::write_problem;
use crate::kernel_times::KERNELS;
use crate::plan::Plan;
use crate::spec::problem::{Problem, Result};
use foretoken_report::{ReportError, Staged};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a run does if its results folder is not empty: refuse the folder, continue the run whose results are in the
/// folder, or empty the folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Refuse a results folder that is not empty, with an error.
    Fresh,
    /// Continue the run whose results, complete or not, are in the results folder.
    Resume,
    /// Remove the results of an earlier run from the results folder, and start again.
    Overwrite,
}

/// A results folder, which has the results of one run of an experiment.
#[derive(Clone, Debug)]
pub struct Folder {
    path: PathBuf,
    /// The folders that this run made because they did not exist, the innermost first. They are removed if the run
    /// fails before it has a result.
    made: Vec<PathBuf>,
    /// True if this run started with no earlier results in the folder. False if it resumes an earlier run.
    fresh: bool,
    /// The lock that keeps other processes out of the results folder; `None` if the folder was only named, not opened
    /// for a run.
    _lock: Option<Arc<Lock>>,
}

/// Name of the file with facts on a live run (real passes on a device) that the result tables do not have.
pub const LIVE_JSON: &str = "live.json";
/// Name of the file with facts on an observed run (requests sent to a real server) that the result tables do not have.
pub const OBSERVED_JSON: &str = "observed.json";
/// Name of the file with the results of a capacity search, which finds the highest request rate at which the latency
/// bounds are met.
pub const CAPACITY_JSON: &str = "capacity.json";
/// Name of the file with the answer of `foretoken capacity --fleet`: the fewest replicas for a load.
pub const FLEET_JSON: &str = "fleet.json";
/// Name of the file that lists the runs of a validation, in which live runs are compared with simulations.
pub const RUNS_JSON: &str = "runs.json";
/// Name of the file with the ladders, in which each policy's loss is split by missing knowledge.
pub const LADDER_JSON: &str = "ladder.json";
pub const LADDER_PAGE: &str = "ladder.html";
/// The names of all files and folders that the program may write into a results folder. `--overwrite` removes only
/// these.
const OURS: [&str; 44] = [
    MANIFEST, CELLS, SHARDS, FIGURES, REPORT, EXPERIMENT, KERNELS, "summary.parquet", "requests.parquet",
    "steps.parquet", "positions.parquet", "series.parquet", "lengths.parquet", "calibration.parquet",
    "replicas.parquet", "replica_series.parquet", "lives.parquet", "replica_counts.parquet", "decisions.parquet",
    "report.txt", "report-wide.txt", "report.json", LIVE_JSON, TAPES, RECORDINGS, OBSERVED_JSON, RUNS_JSON, PROBES,
    CAPACITY_JSON, FLEET_JSON, LADDER_JSON, LADDER_PAGE, "fleet.txt", "fleet.html", "fleet.parquet", "capacity.txt",
    "capacity.html", "capacity.parquet", "probes.parquet", "profile.toml", "belief.toml", "validation.json",
    "validation.txt", "validation.html",
];

impl Folder {
    /// The results folder at `path`. Does not make the folder or check it.
    pub fn at(path: PathBuf) -> Folder {
        Folder { path, made: Vec::new(), fresh: false, _lock: None }
    }

    /// Makes the folder ready for a run of `plan`, and writes the manifest and the experiment. If the folder already
    /// holds complete results of `plan`, only removes the folders of unfinished results, such as the stored results of
    /// single runs. Returns (the folder, true if the results are complete already). As long as the returned folder or a
    /// copy lives, no other process opens or joins the folder.
    pub fn open(path: PathBuf, plan: &Plan, mode: Mode) -> Result<(Folder, bool)> {
        let missing = path.ancestors().take_while(|p| !p.as_os_str().is_empty() && !p.exists());
        let made = missing.map(Path::to_path_buf).collect();
        let mut folder = Folder { path, made, fresh: mode != Mode::Resume, _lock: None };
        std::fs::create_dir_all(&folder.path).map_err(|e| {
            Problem::failed(format!("cannot make the results folder {}: {e}", folder.path.display()))
                .help("choose another with -o")
        })?;
        folder.keep_others_out(false)?;
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

    /// Makes the folder ready for a shard (a part) of `plan`. The first shard writes the manifest; later shards check
    /// it. Returns (the folder, true if it already holds complete results of the plan).
    pub fn join(path: PathBuf, plan: &Plan) -> Result<(Folder, bool)> {
        let mut folder = Folder::at(path);
        // The experiment's file is written last. So if this file exists, the folder is ready for shards.
        let begun = |folder: &Folder| folder.path.join(EXPERIMENT).exists();
        if begun(&folder) && folder.manifest_of_same(plan)?.complete {
            return Ok((folder, true));
        }
        std::fs::create_dir_all(folder.shards()).map_err(|e| {
            Problem::failed(format!("cannot make the results folder {}: {e}", folder.path.display()))
                .help("choose another with -o")
        })?;
        folder.keep_others_out(true)?;
        // Several machines may begin a shard at the same time, so the folder is locked.
        let _lock = Lock::wait(&folder.shards().join("begin.lock"))?;
        if begun(&folder) {
            let complete = folder.manifest_of_same(plan)?.complete;
            return Ok((folder, complete));
        }
        // A shard that was killed at its start may have left a manifest or the folder of shards. These do not count as
        // contents.
        if folder.names()?.iter().any(|name| name != SHARDS && name != MANIFEST) {
            return Err(folder.not_empty());
        }
        // The report names settings that the user gave and that did nothing. `experiment.toml` in the results folder
        // has all defaults filled in, so the experiment as the user gave it is stored in the folder of shards.
        let asked = plan.asked_for(&folder.shards())?;
        Staged::write_all_to(&folder.shards().join(EXPERIMENT), asked.as_bytes()).map_err(write_problem)?;
        folder.replan(plan)?;
        Ok((folder, false))
    }

    /// Holds the folder's lock until this `Folder` and its copies are dropped. If `shared` is true, other processes
    /// that share the lock may also work in the folder.
    pub fn keep_others_out(&mut self, shared: bool) -> Result<()> {
        self._lock = Some(Arc::new(Lock::take_folder(&self.path, shared)?));
        Ok(())
    }

    /// Writes the experiment of `plan`, and a manifest that says that the results are not complete. `foretoken
    /// validate` calls this a second time, after it measured the pass times.
    pub fn replan(&self, plan: &Plan) -> Result<()> {
        let text = plan.resolved_for(&self.path)?;
        let kernels = plan.kernels()?;
        // The manifest is written before the experiment, because --resume recognises a run by its manifest.
        let written = [(EXPERIMENT, Some(&text)), (KERNELS, kernels.as_ref())];
        let files = written.into_iter().filter_map(|(name, text)| {
            text.map(|t| (name.to_owned(), foretoken_traces::intact::seal::digest(t.as_bytes())))
        });
        self.write_manifest(plan, files.collect(), None, false)?;
        if let Some(kernels) = &kernels {
            self.write(KERNELS, kernels.as_bytes())?;
        }
        self.write(EXPERIMENT, text.as_bytes())
    }

    /// Adds the finished files `names` with their digests to the manifest, so that damage or loss of them is detected
    /// later. Does nothing if the folder has no manifest.
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

    /// Removes the manifest, the experiment and the empty folders of a run that failed. Does nothing if the result of a
    /// cell is stored, or if the run resumed an earlier one. Errors are ignored, because the caller already has an
    /// error to report.
    pub fn abandon(&self) {
        let own = |e: std::fs::DirEntry| is_own(CELLS, &e.file_name().to_string_lossy());
        let finished = std::fs::read_dir(self.cells()).is_ok_and(|entries| entries.flatten().any(own));
        if !self.fresh || finished {
            return;
        }
        for name in [MANIFEST, EXPERIMENT, KERNELS] {
            let _ = std::fs::remove_file(self.path.join(name));
        }
        // `remove_dir` fails if a folder is not empty, so no file is lost.
        for empty in [CELLS, RECORDINGS, PROBES] {
            let _ = std::fs::remove_dir(self.path.join(empty));
        }
        self.made.iter().for_each(|folder| drop(std::fs::remove_dir(folder)));
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Path of the folder with the finished cells, one file per cell.
    pub fn cells(&self) -> PathBuf {
        self.path.join(CELLS)
    }

    /// Path of the folder with the progress files of shards, the parts of a run that several machines share.
    pub fn shards(&self) -> PathBuf {
        self.path.join(SHARDS)
    }

    pub fn figures(&self) -> PathBuf {
        self.path.join(FIGURES)
    }

    pub fn report(&self) -> PathBuf {
        self.path.join(REPORT)
    }

    /// Writes a file of the results folder, completely or not at all.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<()> {
        Staged::write_all_to(&self.path.join(name), bytes).map_err(write_problem)
    }

    /// Writes a value as a JSON file. The JSON goes to the file piece by piece, so that the whole text of a large
    /// comparison is never in memory.
    pub fn write_json(&self, name: &str, value: &impl Serialize) -> Result<()> {
        let path = self.path.join(name);
        let cannot = |cause: std::io::Error| write_problem(ReportError::Write { path: path.clone(), cause });
        let mut file = Staged::create(&path).map_err(write_problem)?;
        serde_json::to_writer_pretty(&mut file, value).map_err(|e| cannot(e.into()))?;
        file.write_all(b"\n").map_err(cannot)?;
        file.commit().map_err(write_problem)
    }

    /// Marks the results as complete: writes a manifest that lists all result files, then removes the stored results of
    /// single runs and the progress of shards.
    pub fn complete(&self, plan: &Plan, speed: &Speed) -> Result<()> {
        self.write_manifest(plan, self.digests()?, Some(speed), true)?;
        self.clear_up()
    }

    /// Marks the results of a merged run as complete. `begun` is the manifest that the first shard wrote. Its list of
    /// input files with their digests is kept, because the files themselves may be missing on this machine.
    pub fn complete_merged(&self, begun: Manifest, timing: Timing) -> Result<()> {
        let manifest = Manifest { files: self.digests()?, complete: true, timing, ..begun };
        self.write(MANIFEST, manifest.to_json().as_bytes())?;
        self.clear_up()
    }

    /// Removes the folders that complete results do not need: stored results of single runs, runs that a capacity
    /// search tried, progress of shards. A run that was killed just before its end leaves these folders behind.
    pub fn clear_up(&self) -> Result<()> {
        for name in [PROBES, SHARDS, CELLS] {
            tell_left(&remove_own(&self.path, name)?);
        }
        Ok(())
    }

    /// Writes a manifest for results that are not complete. `cells` is the number of cells of the whole plan.
    pub fn keep_part(&self, plan: &Plan, cells: usize, speed: &Speed) -> Result<()> {
        let manifest = Manifest { cells, ..Manifest::of(plan, self.digests()?, false, timing(speed)) };
        self.write(MANIFEST, manifest.to_json().as_bytes())
    }

    /// A map from the path of each result file in the folder to the file's digest. Leaves out the manifest, the HTML
    /// pages, the stored results of single runs and the progress of shards.
    fn digests(&self) -> Result<BTreeMap<String, String>> {
        let whole =
            OURS.iter().filter(|n| ![MANIFEST, CELLS, SHARDS, REPORT, FIGURES, TAPES, RECORDINGS, PROBES].contains(n));
        let mut names: Vec<String> = whole.map(|n| (*n).to_owned()).collect();
        for folder in [FIGURES, TAPES, RECORDINGS] {
            let entries = std::fs::read_dir(self.path.join(folder)).into_iter().flatten().flatten();
            let files = entries.map(|e| e.file_name().to_string_lossy().into_owned());
            names.extend(files.filter(|file| is_own(folder, file)).map(|file| format!("{folder}/{file}")));
        }
        let mut digests = BTreeMap::new();
        for name in names.into_iter().filter(|n| !n.ends_with(".partial")) {
            let path = self.path.join(&name);
            match digest(&path) {
                Ok(digest) => drop(digests.insert(name, digest)),
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
                Err(e) => return Err(Problem::failed(format!("cannot read {} again: {e}", path.display()))),
            }
        }
        Ok(digests)
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

    /// Removes the files and folders `names` from the results folder. If the program writes no results under one of
    /// these names, removes nothing and returns an error. In folders, removes only the files that the program wrote.
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

    /// The sorted names of the results folder's contents, without the `.partial` files that a killed run left.
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
