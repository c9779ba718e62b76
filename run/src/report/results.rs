//! Reads a results folder: complete results, or the finished runs of an experiment that did not end.

use crate::cells::{Drawn, EXPERIMENT, Folder, Manifest, OBSERVED_JSON, Unfinished, entries, finished_cells};
use crate::compare::{Comparison, REPORT_JSON};
use crate::inert::Inert;
use crate::plan::Plan;
use crate::spec::problem::{Problem, Result};
use foretoken_report::{Cell, Figure, Source, read_cells, relate};
use std::path::{Path, PathBuf};

const SUMMARY: &str = "summary.parquet";
/// The files in a results folder from which a report is made. Their digests are checked against the manifest.
const READ: [&str; 14] = [
    EXPERIMENT, SUMMARY, "requests.parquet", "positions.parquet", "series.parquet", "lengths.parquet",
    "calibration.parquet", "replicas.parquet", "replica_series.parquet", "lives.parquet", "replica_counts.parquet",
    "decisions.parquet", REPORT_JSON, OBSERVED_JSON,
];

pub struct Results {
    pub folder: PathBuf,
    /// The manifest of the results folder: what the results are, and the digests of their files.
    pub manifest: Manifest,
    /// The folder's experiment with every default, as TOML.
    pub config: String,
    /// The plan of the folder's experiment. The experiment's input files were not read.
    pub plan: Plan,
    /// Where the numbers come from: simulated, measured on a device, or observed on a server.
    pub source: Source,
    /// What the page of an observed run calls the server: the model, and the engine with its version. `None` for other
    /// runs.
    pub server: Option<String>,
    /// The finished runs, in the order of the plan, which lists all runs.
    pub cells: Vec<Cell>,
    /// The figures of these runs, if they were drawn already.
    pub figures: Option<Vec<Figure>>,
    /// The comparison of the policies, as the run wrote it; empty if the run did not end. Its warnings include the
    /// lines about settings that did nothing.
    pub comparison: Comparison,
    /// Why the results are incomplete; `None` if they are complete.
    pub partial: Option<String>,
}

/// The model and the engine of an observed server, such as `llama-3.1-8b on vLLM 0.33.0`, from the facts on it in the
/// folder; `None` if the folder has none.
fn server(folder: &Path, plan: &Plan) -> Option<String> {
    let text = std::fs::read_to_string(folder.join(OBSERVED_JSON)).ok()?;
    let facts: serde_json::Value = serde_json::from_str(&text).ok()?;
    let model = facts["model"].as_str()?.rsplit('/').next()?;
    let sglang = plan.variants[0].experiment.engine.release().sglang;
    let engine = |version| format!(" on {} {version}", if sglang { "SGLang" } else { "vLLM" });
    Some(model.to_owned() + &facts["server"].as_str().map_or(String::new(), engine))
}

impl Results {
    pub fn open(folder: &Path) -> Result<Results> {
        let manifest = Manifest::read(folder)?;
        manifest.check(folder, READ)?;
        let mut results = Results::without_cells(folder, manifest)?;
        let manifest = &results.manifest;
        let mut damaged = Vec::new();
        match manifest.has(SUMMARY) {
            true => {
                results.comparison = with_settings(Comparison::kept_in(folder)?);
                results.cells = from_tables(folder, &results.plan)?;
            }
            false if manifest.complete => {
                let problem = Problem::bad_input(format!("{} holds no tables of results", folder.display()));
                return Err(problem.help("give the folder of a run; what a validation found is in its validation.html"));
            }
            // The manifest of a killed run lists no tables of results, so the stored results of single runs are read.
            false => {
                let found = from_store(folder, &results.plan, manifest)?;
                results.comparison.warnings = [manifest.edited.clone(), found.warnings].concat();
                (results.cells, damaged) = (found.cells, found.damaged);
            }
        }
        results.partial = (!results.manifest.complete).then(|| {
            let finished = format!(
                "{} of {} runs (one a policy, setting and seed) are finished, and this page shows those",
                results.cells.len(),
                results.manifest.cells
            );
            // For an interrupted live run, `report.json` has a sentence on what is finished. It is used here, because
            // the results of such a run also include the run that was in progress.
            let far = results.comparison.partial.take().unwrap_or(finished);
            format!(
                "This run did not end: {far}. Means over fewer seeds are not comparable with others: the column `seeds` says \
                 how many each has."
            ) + &damaged.iter().map(|which| format!(" {which}.")).collect::<String>()
        });
        Ok(results)
    }

    /// The results that were just written into `folder`, from memory. They are those that [`Results::open`] reads from
    /// the folder.
    pub fn just_made(folder: &Path, comparison: &Comparison, drawn: Drawn) -> Result<Results> {
        let results = Results::without_cells(folder, Manifest::read(folder)?)?;
        let comparison = with_settings(comparison.clone());
        Ok(Results { cells: drawn.cells, figures: Some(drawn.figures), comparison, ..results })
    }

    /// What `folder` and its manifest say of the results, without any run.
    fn without_cells(folder: &Path, manifest: Manifest) -> Result<Results> {
        let source = source(folder, &manifest)?;
        let mut plan = Plan::of_results(folder)?;
        if source == Source::Observed {
            plan.observed()?;
        }
        Ok(Results {
            server: if source == Source::Observed { server(folder, &plan) } else { None },
            folder: folder.to_path_buf(),
            manifest,
            config: fs_err::read_to_string(folder.join(EXPERIMENT)).map_err(|e| Problem::failed(e.to_string()))?,
            plan,
            source,
            cells: Vec::new(),
            figures: None,
            comparison: Comparison::default(),
            partial: None,
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

/// The comparison with the lines about settings that did nothing among its warnings.
fn with_settings(mut comparison: Comparison) -> Comparison {
    comparison.warnings.extend(comparison.settings.iter().flat_map(Inert::lines));
    comparison
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
