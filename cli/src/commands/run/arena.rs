//! The arena in a folder of experiments: a comparison of all policies over many experiments, which are called
//! scenarios. This file decides which scenarios run, and makes the table over their results.

use crate::shipped;
use foretoken_run::arena::{Scenario, Standings, page, render_csv, render_json};
use foretoken_run::plan::Plan;
use foretoken_run::spec::document::Path as Key;
use foretoken_run::spec::problem::{Problem, Result};
use std::path::Path;

/// Number of seeds of each scenario in a quick run (`--quick`).
const QUICK_SEEDS: usize = 2;

/// The scenarios of a folder: the experiments with an `[arena]` table, over which all policies are compared.
#[derive(Default)]
pub struct Scenarios {
    /// (name, numbers of its policies) of each finished scenario.
    finished: Vec<(String, Scenario)>,
    /// (name, reason) of each scenario that cannot run because a file, such as its trace, is missing.
    skipped: Vec<(String, String)>,
    /// Number of scenarios that a quick run (`--quick`) leaves out.
    left_out: usize,
}

impl Scenarios {
    /// The plan of an experiment file, made by `load` with the overrides `sets`. A scenario is an experiment over which
    /// all policies are compared. With `quick`, a scenario keeps only its first two seeds.
    ///
    /// `None` for a scenario that needs a missing file, such as a trace, and for a scenario that a quick run leaves
    /// out. The table over all scenarios states their number.
    pub fn plan(
        &mut self,
        file: &Path,
        sets: &[String],
        quick: bool,
        load: impl Fn(&Path, &[String]) -> Result<Plan>,
    ) -> Result<Option<Plan>> {
        let document = shipped::read_document(file, sets)?;
        let is_scenario = document.get(&Key::of("arena")).is_some();
        let plan = match load(file, sets) {
            Err(problem) if is_scenario && problem.is_a_missing_file() => {
                let name = document.text_at(&Key::of("name")).unwrap_or_else(|| file.display().to_string());
                // JSON and CSV on stdout have no place for skipped scenarios, so stderr names them.
                eprintln!("skipped: {name}: {}", problem.message());
                self.skipped.push((name, problem.message().to_owned()));
                return Ok(None);
            }
            plan => plan?,
        };
        let Some(arena) = plan.variants[0].experiment.arena.as_ref().filter(|_| quick) else {
            return Ok(Some(plan));
        };
        if !arena.quick {
            self.left_out += 1;
            return Ok(None);
        }
        let seeds: Vec<String> = plan.seeds.iter().take(QUICK_SEEDS).map(u64::to_string).collect();
        let fewer = format!("seeds=[{}]", seeds.join(", "));
        load(file, &[sets, &[fewer]].concat()).map(Some)
    }

    /// Adds a finished scenario to the table of policies.
    pub fn finished(&mut self, name: &str, scenario: Scenario) {
        self.finished.push((name.to_owned(), scenario));
    }

    /// The error if no experiment of the folder can run. Either a file, such as a trace, is missing, or `--quick`
    /// leaves all scenarios out.
    pub fn explain_nothing(&self, folder: &Path) -> Box<Problem> {
        match self.skipped.first() {
            Some((name, why)) => {
                let message = format!("no scenario of {} can run here: {name}: {why}", folder.display());
                Problem::bad_input(message).help("give the folder of the traces: FORETOKEN_TRACES=/path/to/traces")
            }
            None => Problem::bad_input(format!("{} holds no scenario with `quick = true`", folder.display()))
                .help("leave out --quick"),
        }
    }

    /// The table of policies over the finished scenarios; `None` if no scenario finished. Also writes the table into
    /// `folder`, as JSON, CSV and a page.
    pub fn standings(self, quick: bool, folder: &Path) -> Result<Option<Standings>> {
        if self.finished.is_empty() {
            return Ok(None);
        }
        let quick = quick.then(|| format!("{QUICK_SEEDS} seeds, {} scenarios left out", self.left_out));
        let standings = Standings::of(&self.finished, self.skipped, quick);
        let write = |name: &str, text: String| {
            let path = folder.join(name);
            fs_err::write(&path, text).map(|()| path).map_err(|e| Problem::failed(e.to_string()))
        };
        let json = serde_json::to_string_pretty(&render_json(&standings)).expect("plain data always serialises");
        write("arena.json", json + "\n")?;
        write("arena.csv", render_csv(&standings))?;
        eprintln!("arena: {}", write("arena.html", page(&standings).html())?.display());
        Ok(Some(standings))
    }
}
