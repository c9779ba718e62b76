//! Fuzzes the readers of experiments, of `--set` overrides, and of server states (JSON with costs, requests and
//! observations), in which `foretoken decide` lets policies decide.

use crate::said;
use foretoken_run::decide::decisions;
use foretoken_run::plan::Plan;
use foretoken_run::spec::document::{Document, Path};
use foretoken_run::spec::experiment::Experiment;
use foretoken_run::spec::problem::Result;
use std::path::Path as FilePath;

const FILE: &str = "experiment.toml";
/// The folder at which relative paths in a fuzzed experiment start. It does not exist, so the experiment's files are
/// never found.
const NOWHERE: &str = "/no/such/folder";

/// Reads the experiment in `data` and makes its plan. The experiment with all settings resolved, as a run writes it,
/// must read again and give the same plan. Texts that contain the word `config` are skipped: `config.json` has a fuzz
/// target of its own, and a `config` of the name `-` would be read from standard input.
pub fn experiment(data: &[u8]) {
    let Some(text) = said::text(data).filter(|text| !text.contains("config")) else { return };
    let plan = |text: &str| Plan::of_text(FILE, text, &[], FilePath::new(NOWHERE));
    let plan_of = match plan(text) {
        Err(problem) => return said::problem(&problem, FILE),
        Ok(plan) => plan,
    };
    let written = |plan: &Plan| plan.resolved_for(FilePath::new(NOWHERE)).expect("a plan can be written");
    let first = written(&plan_of);
    let again = plan(&first).unwrap_or_else(|e| panic!("what was written does not read: {}\n{first}", e.in_words()));
    assert_eq!(first, written(&again), "what was written reads otherwise");
}

/// The experiment that [`overrides`] changes. It is small, because it is read again for each input.
const BASE: &str = include_str!("../seeds/experiment/plain.toml");

/// Applies the lines of `data` to an experiment as `--set` arguments, then reads the first four combinations of its
/// swept values. After each accepted argument, the document must have a value at the argument's path.
pub fn overrides(data: &[u8]) {
    let Some(text) = said::text(data) else { return };
    let mut document = Document::parse(FILE, BASE).unwrap_or_else(|e| panic!("{e}"));
    for argument in text.lines() {
        match document.set(argument) {
            Err(problem) => return said::problem(&problem, "--set"),
            Ok(()) => {
                let path = argument.split('=').next().unwrap_or_default().trim();
                assert!(document.get(&Path::of(path)).is_some(), "{argument}: the value is not there");
            }
        }
    }
    let read = |document: Document| -> Result<()> {
        document.sweeps(&["policies"])?;
        for variant in document.variants("policies", &[])?.into_iter().take(4) {
            Experiment::read(&variant.picked.document())?;
        }
        Ok(())
    };
    if let Err(problem) = read(document) {
        said::raw(problem.message());
        said::raw(&problem.in_words());
    }
}

/// Reads `data` as a server state (JSON with costs, requests, observations and policies) and lets each of its policies
/// decide draft lengths. For every decision, the estimated step time and token goodput must be finite.
pub fn decide_state(data: &[u8]) {
    const STATE: &str = "state.json";
    let Some(text) = said::text(data) else { return };
    match decisions(STATE, text, true) {
        Err(problem) => said::problem(&problem, STATE),
        Ok(json) => {
            let decisions: serde_json::Value = serde_json::from_str(&json).expect("decisions are JSON");
            for decision in decisions.as_array().expect("decisions are a list") {
                for key in ["estimated_step_s", "estimated_token_goodput_tok_s"] {
                    assert!(decision[key].is_f64(), "{key} is not finite: {decision}");
                }
            }
        }
    }
}
