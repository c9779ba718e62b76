//! Runs experiments, searches, and shards (parts of an experiment or search) for Python. The functions return the path
//! of the results folder; the Python package reads the results from this folder.

use crate::work::{pool, work};
use foretoken_run::capacity::fleet::plan::load as load_fleet;
use foretoken_run::capacity::fleet::run::complete as complete_fleet;
use foretoken_run::capacity::fleet::shards as fleet_shards;
use foretoken_run::capacity::plan::load as load_capacity;
use foretoken_run::capacity::run::complete as complete_capacity;
use foretoken_run::cells::{EXPERIMENT, Folder, Mode, Shard};
use foretoken_run::complete::{How, complete};
use foretoken_run::load::parse_document;
use foretoken_run::merge::{self, Merged, Ran};
use foretoken_run::plan::Plan;
use foretoken_run::report as pages;
use foretoken_run::spec::document::Document;
use foretoken_run::spec::problem::{Problem, Result};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::path::{Path, PathBuf};

/// An experiment, given as a file or as a text. Relative paths in the experiment start at the file's folder, or at the
/// working directory if the experiment is a text. `sets` are changes to the experiment, as texts `key=value` with a
/// TOML value.
#[derive(FromPyObject)]
pub struct Experiment {
    #[pyo3(item)]
    file: Option<PathBuf>,
    #[pyo3(item)]
    text: Option<String>,
    #[pyo3(item)]
    sets: Vec<String>,
}

impl Experiment {
    fn document(&self) -> Result<Document> {
        match (&self.file, &self.text) {
            (Some(file), _) => foretoken::read_document(file, &self.sets),
            (None, text) => parse_document("experiment", text.as_deref().unwrap_or_default(), &self.sets),
        }
    }

    /// Returns the folder at which the relative paths in the experiment start.
    fn folder(&self) -> &Path {
        self.file.as_deref().and_then(Path::parent).unwrap_or(Path::new(""))
    }

    fn plan(&self) -> Result<Plan> {
        Plan::of(self.document()?, self.folder())
    }
}

/// Options of a run or a search: the results folder, what happens to an existing folder, the number of threads, and
/// whether figures are drawn.
#[derive(FromPyObject)]
pub struct Options {
    #[pyo3(item)]
    output: Option<PathBuf>,
    #[pyo3(item)]
    mode: String,
    #[pyo3(item)]
    threads: Option<usize>,
    #[pyo3(item)]
    figures: bool,
}

impl Options {
    fn mode(&self) -> PyResult<Mode> {
        match self.mode.as_str() {
            "resume" => Ok(Mode::Resume),
            "overwrite" => Ok(Mode::Overwrite),
            "fresh" => Ok(Mode::Fresh),
            other => {
                Err(PyValueError::new_err(format!("`{other}` is none of \"resume\", \"overwrite\" and \"fresh\"")))
            }
        }
    }
}

/// The result of a run or a search: (path of the results folder, warnings, notes).
type Made = (PathBuf, Vec<String>, Vec<String>);

/// Runs an experiment. Returns the results folder, warnings and notes. If `regret` is true, the run also has the policy
/// `oracle-goodput`. The regret of a policy is computed by comparing its mean end-to-end latency with this oracle's.
#[pyfunction]
pub fn run(
    py: Python<'_>,
    experiment: Experiment,
    options: Options,
    regret: bool,
    progress: &Bound<'_, PyAny>,
) -> PyResult<Made> {
    let mode = options.mode()?;
    work(py, progress, |work| {
        let plan = experiment.plan()?;
        let plan = if regret { plan.with_regret()? } else { plan };
        let path = options.output.clone().unwrap_or_else(|| plan.usual_folder(""));
        let figures = options.figures && plan.variants[0].experiment.output.figures;
        let how = How { mode, figures };
        let complete = complete(&plan, path, how, &pool(options.threads, plan.cells())?, work)?;
        let (warnings, notes) = match complete.made {
            Some(made) => (made.results.comparison.warnings, made.notes),
            None => (plan.warnings().into_iter().map(str::to_owned).collect(), Vec::new()),
        };
        Ok((complete.folder.path().to_path_buf(), warnings, notes))
    })
}

/// Searches the capacity of each policy: the highest request rate at which enough requests meet their SLO bounds.
/// Returns the results folder, warnings and notes.
#[pyfunction]
pub fn capacity(
    py: Python<'_>,
    experiment: Experiment,
    options: Options,
    progress: &Bound<'_, PyAny>,
) -> PyResult<Made> {
    let mode = options.mode()?;
    work(py, progress, |work| {
        let (plan, spec) = load_capacity(&experiment.document()?, experiment.folder())?;
        let path = options.output.clone().unwrap_or_else(|| plan.usual_folder("capacity-"));
        let pool = pool(options.threads, plan.cells())?;
        let folder = complete_capacity(&plan, &spec, path, mode, options.figures, &pool, work)?;
        Ok((folder.path().to_path_buf(), plan.warnings().into_iter().map(str::to_owned).collect(), Vec::new()))
    })
}

/// Searches the fewest replicas with which a fleet meets the SLO bounds. Returns the results folder, warnings and
/// notes.
#[pyfunction]
pub fn fleet(py: Python<'_>, experiment: Experiment, options: Options, progress: &Bound<'_, PyAny>) -> PyResult<Made> {
    let mode = options.mode()?;
    work(py, progress, |work| {
        let question = load_fleet(&experiment.document()?, experiment.folder())?;
        let plan = &question.plan;
        let path = options.output.clone().unwrap_or_else(|| plan.usual_folder("fleet-"));
        let pool = pool(options.threads, plan.cells())?;
        let folder = complete_fleet(&question, path, mode, options.figures, &pool, work)?;
        Ok((folder.path().to_path_buf(), plan.warnings().into_iter().map(str::to_owned).collect(), Vec::new()))
    })
}

/// Prepares a folder for the shards (parts) of a search for the fewest replicas. Returns the folder, the number of
/// searches (policies × combinations of swept values), the number of cells (searches × seeds), and whether all cells
/// are done.
#[pyfunction]
pub fn begin_fleet(
    py: Python<'_>,
    experiment: Experiment,
    output: Option<PathBuf>,
) -> PyResult<(PathBuf, usize, usize, bool)> {
    work(py, &py.None().into_bound(py), |_| {
        let question = load_fleet(&experiment.document()?, experiment.folder())?;
        let path = output.unwrap_or_else(|| question.plan.usual_folder("fleet-"));
        let (folder, searches, cells, complete) = fleet_shards::begin(&question, &path)?;
        Ok((folder.path().to_path_buf(), searches, cells, complete))
    })
}

/// Runs one shard (part of a search for the fewest replicas) in a folder that `begin_fleet` prepared. Returns the
/// number of cells (one policy at one combination of swept values and one seed) that it ran; 0 if the shard was
/// complete already.
#[pyfunction]
pub fn shard_fleet(
    py: Python<'_>,
    folder: PathBuf,
    shard: &str,
    threads: Option<usize>,
    progress: &Bound<'_, PyAny>,
) -> PyResult<usize> {
    let shard: Shard = shard.parse().map_err(PyValueError::new_err)?;
    work(py, progress, |work| fleet_shards::go_on(&folder, shard, &pool(threads, usize::MAX)?, work))
}

/// Merges the finished shards (parts) of a search for the fewest replicas. Returns the folder, warnings and notes. It
/// is an error if the results of some searches are missing.
#[pyfunction]
pub fn merge_fleet(py: Python<'_>, folder: PathBuf, options: Options, progress: &Bound<'_, PyAny>) -> PyResult<Made> {
    work(py, progress, |work| {
        let merged = fleet_shards::merge(&folder, options.figures, &pool(options.threads, usize::MAX)?, work)?;
        match merged {
            fleet_shards::Merged::Before(folder) | fleet_shards::Merged::Now(folder) => {
                Ok((folder.path().to_path_buf(), Vec::new(), Vec::new()))
            }
            fleet_shards::Merged::Missing(state, problem) => {
                let message = format!("{}\n{}", problem.message(), state.in_words().trim_end());
                Err(Problem::new(problem.exit, message).help(problem.help_text()))
            }
        }
    })
}

/// Prepares a folder for the shards (parts) of an experiment. Returns the folder, the number of comparisons
/// (combinations of swept values × seeds), the number of cells (runs of one policy each), and whether all cells are
/// done.
#[pyfunction]
pub fn begin(
    py: Python<'_>,
    experiment: Experiment,
    output: Option<PathBuf>,
) -> PyResult<(PathBuf, usize, usize, bool)> {
    work(py, &py.None().into_bound(py), |_| {
        let plan = experiment.plan()?;
        let (folder, complete) = Folder::join(output.unwrap_or_else(|| plan.usual_folder("")), &plan)?;
        Ok((folder.path().to_path_buf(), plan.variants.len() * plan.seeds.len(), plan.cells(), complete))
    })
}

/// Runs one shard (part of an experiment) in a folder that `begin` prepared. Returns the number of the shard's cells
/// (runs of one policy each); 0 if the shard was complete already.
#[pyfunction]
pub fn shard(
    py: Python<'_>,
    folder: PathBuf,
    shard: &str,
    retry_failed: bool,
    threads: Option<usize>,
    progress: &Bound<'_, PyAny>,
) -> PyResult<usize> {
    let shard: Shard = shard.parse().map_err(PyValueError::new_err)?;
    work(py, progress, |work| {
        let plan = Plan::load(&folder.join(EXPERIMENT), &[])?;
        match merge::run_shard(&plan, &folder, shard, true, retry_failed, &pool(threads, plan.cells())?, work)? {
            Ran::Before => Ok(0),
            Ran::Now { cells, .. } => Ok(cells),
        }
    })
}

/// Merges the finished shards (parts) of an experiment in a folder. Returns the folder, warnings and notes. It is an
/// error if cells (runs of one policy each) are missing, damaged or failed.
#[pyfunction]
pub fn merge_shards(py: Python<'_>, folder: PathBuf, options: Options, progress: &Bound<'_, PyAny>) -> PyResult<Made> {
    work(py, progress, |work| {
        let how = |plan: &Plan| How {
            mode: Mode::Resume,
            figures: options.figures && plan.variants[0].experiment.output.figures,
        };
        let complete = match merge::merge(&folder, how, &pool(options.threads, usize::MAX)?, work)? {
            Merged::Complete(complete) => *complete,
            Merged::Missing(state, problem) => {
                return Err(Problem::new(
                    problem.exit,
                    format!("{}\n{}", problem.message(), state.in_words().trim_end()),
                )
                .help(problem.help_text()));
            }
        };
        let (warnings, notes) =
            complete.made.map_or_else(Default::default, |m| (m.results.comparison.warnings, m.notes));
        Ok((complete.folder.path().to_path_buf(), warnings, notes))
    })
}

/// Returns the progress of the shards (parts of an experiment) in a folder, as JSON.
#[pyfunction]
pub fn state(py: Python<'_>, folder: PathBuf) -> PyResult<String> {
    work(py, &py.None().into_bound(py), |_| {
        let state = merge::state(&folder)?;
        Ok(serde_json::to_string(&state).expect("plain data always serialises"))
    })
}

/// Writes the HTML page of the results folder `folder` into the folder `to`, by default into `report` in the results
/// folder. Returns the page's path. `baseline` is another results folder, with which the page compares the results.
#[pyfunction]
pub fn report(py: Python<'_>, folder: PathBuf, baseline: Option<PathBuf>, to: Option<PathBuf>) -> PyResult<PathBuf> {
    work(py, &py.None().into_bound(py), |_| {
        let results = pages::Results::open(&folder)?;
        let baseline = baseline.as_deref().map(pages::Results::open).transpose()?;
        Ok(pages::write(results, baseline, &to.unwrap_or_else(|| Folder::at(folder.clone()).report()))?.page)
    })
}
