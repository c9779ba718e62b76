//! A results folder read back: whole, or what a run that did not end has so far.

use crate::plan::Plan;
use crate::problem::{Problem, Result};
use crate::run::{Folder, Manifest, entries, finished_cells};
use foretoken_report::{Cell, Source, read_cells, relate};
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// What a results folder holds.
pub struct Results {
    /// Where it is.
    pub folder: PathBuf,
    /// What it says it is.
    pub manifest: Manifest,
    /// The experiment with every default, as TOML.
    pub config: String,
    /// The experiment.
    pub plan: Plan,
    /// Where its numbers come from.
    pub source: Source,
    /// Its finished cells.
    pub cells: Vec<Cell>,
    /// What policies and engine wanted the user to know.
    pub warnings: Vec<String>,
    /// Why this is only a part, when it is.
    pub partial: Option<String>,
}

impl Results {
    /// Reads a folder.
    pub fn open(folder: &Path) -> Result<Results> {
        let manifest = Manifest::read(folder)?;
        let source = Source::named(&manifest.source).ok_or_else(|| {
            let message = format!("{}: no source of numbers is called `{}`", folder.display(), manifest.source);
            Problem::bad_input(message).help("another version of Foretoken wrote it: use that")
        })?;
        let plan = Plan::of_results(folder)?;
        let (cells, warnings) = match folder.join("summary.parquet").exists() {
            true => (from_tables(folder, &plan)?, said(folder)),
            false if manifest.complete => {
                let problem = Problem::bad_input(format!("{}: summary.parquet is missing", folder.display()));
                return Err(problem.help("the folder is not whole: run the experiment again with --overwrite"));
            }
            false => from_store(folder, &plan, &manifest)?,
        };
        let partial = (!manifest.complete).then(|| {
            format!(
                "This run did not end: {} of {} runs (one a policy, setting and seed) are finished, and this page shows those. \
                 Means over fewer seeds are not comparable with others: the column `seeds` says how many each has.",
                cells.len(),
                manifest.cells
            )
        });
        let config =
            fs_err::read_to_string(folder.join("experiment.toml")).map_err(|e| Problem::failed(e.to_string()))?;
        Ok(Results { folder: folder.to_path_buf(), manifest, config, plan, source, cells, warnings, partial })
    }

    /// The script that tells the page how fast the simulator was.
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
        // The last command may have run a part only: then steps and time do not belong together.
        if timing.cells == self.cells.len() as u64 && timing.engine_s > 0.0 {
            text += &format!(": {:.1} million request-steps a second", steps as f64 / timing.engine_s / 1e6);
        }
        let quoted = serde_json::to_string(&(text + ".")).expect("a string always serialises");
        format!("document.getElementById(\"timing\").textContent = {quoted};\n")
    }
}

fn from_tables(folder: &Path, plan: &Plan) -> Result<Vec<Cell>> {
    let mut cells = read_cells(folder, &entries(plan)).map_err(|e| {
        Problem::bad_input(e.to_string())
            .help("the folder is damaged or of another version: run it again with --overwrite")
    })?;
    relate(&mut cells);
    Ok(cells)
}

fn from_store(folder: &Path, plan: &Plan, manifest: &Manifest) -> Result<(Vec<Cell>, Vec<String>)> {
    let folder = Folder::at(folder.to_path_buf());
    match folder.cells().is_dir() {
        true => finished_cells(plan, &folder, &manifest.digest),
        false => Ok((Vec::new(), Vec::new())),
    }
}

/// The warnings that the folder keeps with its comparison; none when it has none, or no comparison.
fn said(folder: &Path) -> Vec<String> {
    #[derive(Default, Deserialize)]
    struct Kept {
        #[serde(default)]
        warnings: Vec<String>,
    }
    let bytes = std::fs::read(folder.join("report.json")).unwrap_or_default();
    serde_json::from_slice::<Kept>(&bytes).unwrap_or_default().warnings
}
