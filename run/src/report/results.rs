//! Reads a results folder: complete results, or the finished runs of an experiment that did not end.

use crate::cells::{Drawn, EXPERIMENT, Folder, Manifest, Unfinished, entries, finished_cells};
use crate::compare::Comparison;
use crate::host_band::HostBand;
use crate::inert::Inert;
use crate::papers::PaperReport;
use crate::plan::Plan;
use crate::questions::Answer;
use crate::spec::problem::{Problem, Result};
use foretoken_report::{Cell, Figure, Source, read_cells, relate};
use serde::Deserialize;
use std::path::{Path, PathBuf};

const SUMMARY: &str = "summary.parquet";
const COMPARISON: &str = "report.json";
/// The files in a results folder from which a report is made. Their digests are checked against the manifest.
const READ: [&str; 13] = [
    EXPERIMENT,
    SUMMARY,
    "requests.parquet",
    "positions.parquet",
    "series.parquet",
    "lengths.parquet",
    "calibration.parquet",
    "replicas.parquet",
    "replica_series.parquet",
    "lives.parquet",
    "replica_counts.parquet",
    "decisions.parquet",
    COMPARISON,
];

/// The contents of a results folder, as reports need them.
pub struct Results {
    /// The path of the results folder.
    pub folder: PathBuf,
    /// The manifest of the results folder: what the results are, and the digests of their files.
    pub manifest: Manifest,
    /// The folder's experiment with every default, as TOML.
    pub config: String,
    /// The plan (list of runs) of the folder's experiment. The experiment's input files were not read.
    pub plan: Plan,
    /// Where the numbers come from: simulated, measured on a device, or observed on a server.
    pub source: Source,
    /// The finished runs, in the order of the plan, which lists all runs.
    pub cells: Vec<Cell>,
    /// The figures of these runs, if they were drawn already.
    pub figures: Option<Vec<Figure>>,
    /// Warnings of the policies and of the engine, and lines about settings that did nothing.
    pub warnings: Vec<String>,
    /// Why the results are incomplete; `None` if they are complete.
    pub partial: Option<String>,
    /// How the host time of a real server would change the fastest policy's speedup; `None` if the run counts host
    /// time, or if the effect of host time was not simulated.
    pub host_band: Option<HostBand>,
    /// The claims of the paper that the experiment repeats, with this run's values; `None` if it repeats none or the
    /// run did not end.
    pub paper: Option<PaperReport>,
    /// The question that the experiment answers, with its answer; `None` if it answers none or the run did not end.
    pub question: Option<Answer>,
}

impl Results {
    /// Reads a results folder and checks its files.
    ///
    /// # Errors
    /// The manifest cannot be read; a file is missing, changed or cannot be decoded; another version wrote the results;
    /// the experiment in the folder is wrong; or the folder holds no tables of results.
    pub fn open(folder: &Path) -> Result<Results> {
        let manifest = Manifest::read(folder)?;
        manifest.check(folder, READ)?;
        let source = source(folder, &manifest)?;
        let mut plan = Plan::of_results(folder)?;
        if source == Source::Observed {
            plan.observed()?;
        }
        let (mut part, mut band, mut claims) = (None, None, (None, None));
        let Unfinished { cells, warnings, damaged } = match manifest.has(SUMMARY) {
            true => {
                let SavedReport { mut warnings, partial, settings, host_band, paper, question } = saved_report(folder)?;
                warnings.extend(settings.lines());
                (part, band, claims) = (partial, host_band, (paper, question));
                Unfinished { cells: from_tables(folder, &plan)?, warnings, damaged: vec![] }
            }
            false if manifest.complete => {
                let problem = Problem::bad_input(format!("{} holds no tables of results", folder.display()));
                return Err(problem.help("give the folder of a run; what a validation found is in its validation.html"));
            }
            // The manifest of a killed run lists no tables of results, so the stored results of single runs are read.
            false => {
                let found = from_store(folder, &plan, &manifest)?;
                Unfinished { warnings: [manifest.edited.clone(), found.warnings].concat(), ..found }
            }
        };
        let partial = (!manifest.complete).then(|| {
            let finished = format!(
                "{} of {} runs (one a policy, setting and seed) are finished, and this page shows those",
                cells.len(),
                manifest.cells
            );
            // For an interrupted live run, `report.json` has a sentence on what is finished. It is used here, because
            // the results of such a run also include the run that was in progress.
            let far = part.unwrap_or(finished);
            format!(
                "This run did not end: {far}. Means over fewer seeds are not comparable with others: the column `seeds` says \
                 how many each has."
            ) + &damaged.iter().map(|which| format!(" {which}.")).collect::<String>()
        });
        let config = fs_err::read_to_string(folder.join(EXPERIMENT)).map_err(|e| Problem::failed(e.to_string()))?;
        let (folder, host_band, (paper, question)) = (folder.to_path_buf(), band, claims);
        let figures = None;
        Ok(Results {
            folder,
            manifest,
            config,
            plan,
            source,
            cells,
            figures,
            warnings,
            partial,
            host_band,
            paper,
            question,
        })
    }

    /// The results that were just written into `folder`, from memory. They are those that [`Results::open`] reads from
    /// the folder.
    ///
    /// # Errors
    /// The manifest or the experiment of the folder cannot be read.
    pub fn just_made(folder: &Path, comparison: &Comparison, drawn: Drawn) -> Result<Results> {
        let manifest = Manifest::read(folder)?;
        let source = source(folder, &manifest)?;
        let mut plan = Plan::of_results(folder)?;
        if source == Source::Observed {
            plan.observed()?;
        }
        let settings = comparison.settings.iter().flat_map(Inert::lines);
        Ok(Results {
            folder: folder.to_path_buf(),
            manifest,
            config: fs_err::read_to_string(folder.join(EXPERIMENT)).map_err(|e| Problem::failed(e.to_string()))?,
            plan,
            source,
            cells: drawn.cells,
            figures: Some(drawn.figures),
            warnings: comparison.warnings.iter().cloned().chain(settings).collect(),
            partial: None,
            host_band: comparison.host_band.clone(),
            paper: comparison.paper.clone(),
            question: comparison.question.clone(),
        })
    }

    /// JavaScript that writes the simulator's speed into the page. It is in a file of its own, so that the page is the
    /// same on every machine.
    pub fn timing(&self) -> String {
        let timing = &self.manifest.timing;
        let steps: u64 = self.cells.iter().map(|c| c.summary.request_steps).sum();
        let mut text = match timing.cells {
            0 => return "// Nothing was timed.\n".to_owned(),
            n => format!(
                "{n} runs in {:.2} s, {:.2} s of them in the engine, summed over threads",
                timing.wall_s, timing.engine_s
            ),
        };
        // The manifest has the time of the last command. If this command made only some of the runs, dividing the
        // request-steps of all runs by this time would give a wrong rate.
        if timing.cells == self.cells.len() as u64 && timing.engine_s > 0.0 {
            text += &format!(": {:.1} million request-steps a second", steps as f64 / timing.engine_s / 1e6);
        }
        let quoted = serde_json::to_string(&(text + ".")).expect("a string always serialises");
        format!("document.getElementById(\"timing\").textContent = {quoted};\n")
    }
}

/// Where the numbers of a results folder come from, by its manifest.
fn source(folder: &Path, manifest: &Manifest) -> Result<Source> {
    Source::named(&manifest.source).ok_or_else(|| {
        let message = format!("{}: no source of numbers is called `{}`", folder.display(), manifest.source);
        Problem::bad_input(message).help("another version of Foretoken wrote it: use that")
    })
}

fn from_tables(folder: &Path, plan: &Plan) -> Result<Vec<Cell>> {
    let mut cells = read_cells(folder, &entries(plan)).map_err(|e| {
        Problem::bad_input(e.to_string())
            .help("the folder is damaged or of another version: run it again with --overwrite")
    })?;
    relate(&mut cells);
    Ok(cells)
}

fn from_store(folder: &Path, plan: &Plan, manifest: &Manifest) -> Result<Unfinished> {
    let folder = Folder::at(folder.to_path_buf());
    match folder.cells().is_dir() {
        true => finished_cells(plan, &folder, &manifest.digest),
        false => Ok(Unfinished { cells: vec![], warnings: vec![], damaged: vec![] }),
    }
}

/// The fields of `report.json` that the HTML page needs.
#[derive(Deserialize)]
struct SavedReport {
    #[serde(default)]
    warnings: Vec<String>,
    partial: Option<String>,
    #[serde(default)]
    settings: Inert,
    host_band: Option<HostBand>,
    paper: Option<PaperReport>,
    question: Option<Answer>,
}

fn saved_report(folder: &Path) -> Result<SavedReport> {
    let path = folder.join(COMPARISON);
    let text = fs_err::read_to_string(&path).map_err(|e| Problem::failed(e.to_string()))?;
    serde_json::from_str(&text).map_err(|e| Problem::bad_input(format!("{}: cannot be read back: {e}", path.display())))
}
