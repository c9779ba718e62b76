//! Writes the folder of a calibration.

use crate::calibrate::calibration::Calibration;
use crate::calibrate::folder::put;
use crate::calibrate::kept::{
    BY_CATEGORY, EXPERIMENT, FOUND, Found, Input, PAGE, PROFILE, TRUTH, last, ready, take_away,
};
use crate::calibrate::loads::TRACES;
use crate::calibrate::one_server::{self, Server};
use crate::calibrate::page;
use crate::recordings::seat_log::Seated;
use foretoken_run::cells::make_folder;
use foretoken_run::plan::Plan;
use foretoken_run::spec::problem::{Problem, Result};
use foretoken_run::vllm_table::stated_method;
use foretoken_sim::{EngineConfig, MAX_SPEC_LEN};
use foretoken_traces::WorkloadSpec;
use foretoken_traces::intact::seal::{self, Syntax};
use foretoken_traces::truth::by_category;
use foretoken_traces::truth::speculation_profile::{SPECULATION_PROFILE, SpeculationProfile};
use std::fmt::Write;
use std::path::Path;

/// The path of an input file, as `calibration.json` states it. An absolute path is shortened to the file's name,
/// because the folder of a calibration may be read on another computer.
fn portable(path: &Path) -> String {
    let name = path.file_name().filter(|_| path.is_absolute());
    name.map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned())
}

impl Calibration {
    /// The files from which the calibration was made: first the recordings of observed runs, then the files of vLLM and
    /// SGLang.
    pub fn inputs(&self) -> Vec<Input> {
        let observed = self.sources.iter().map(|s| Input {
            path: portable(&s.path),
            blake3: s.digest.clone(),
            what: format!("observed: {}, {} requests", s.recording.head.policy, s.run.answers.len()),
        });
        let foreign = self.foreign.iter().map(|f| Input {
            path: portable(&f.path),
            blake3: f.digest.clone(),
            what: f.format.clone(),
        });
        observed.chain(foreign).collect()
    }

    /// Writes the calibration into a folder. The folder must be new or empty, or hold a calibration if `overwrite` is
    /// true.
    pub fn write(&self, folder: &Path, overwrite: bool) -> Result<()> {
        let _alone = ready(folder, overwrite)?;
        let put = |name: &str, bytes: &[u8]| put(folder, name, bytes);
        if let Some(profile) = self.profile() {
            put(PROFILE, profile.to_toml().as_bytes())?;
        }
        if let Some(table) = self.acceptance.as_ref().and_then(|a| a.table.as_ref()) {
            let bytes = table.to_bytes().map_err(|e| Problem::failed(format!("no truth table: {e}")))?;
            put(TRUTH, &bytes)?;
            put(BY_CATEGORY, by_category::toml(&table.by_category(), "of the observed answers").as_bytes())?;
        }
        if let Some(profile) = self.speculation_profile() {
            put(SPECULATION_PROFILE, profile.to_json().as_bytes())?;
        }
        make_folder(&folder.join(TRACES))?;
        for (name, text) in self.traces() {
            put(&format!("{TRACES}/{name}"), text.as_bytes())?;
        }
        if self.cost.is_some() {
            put(EXPERIMENT, self.experiment()?.as_bytes())?;
            check_experiment(folder)?;
        }
        put(PAGE, page::page(self).html().as_bytes())?;
        // `calibration.json` is written last, so a folder that has it is complete.
        put(FOUND, self.found().as_bytes())
    }

    /// The observed acceptance in the form that NVIDIA's Model-Optimizer writes beside a draft checkpoint; `None` if
    /// nothing was drafted.
    fn speculation_profile(&self) -> Option<SpeculationProfile> {
        let method = stated_method(self.engine.method).unwrap_or("draft_model");
        let server = Server::of(&self.sources);
        self.acceptance.as_ref()?.speculation_profile(method, server.as_ref().map(|s| s.model.as_str()))
    }

    /// What the policy in the engine's seat did, by the log of the seat that was started last.
    pub fn seat(&self) -> Option<&Seated> {
        let logs = self.sources.iter().filter(|source| source.seat.is_some());
        logs.max_by_key(|source| source.recording.head.started_unix_us).and_then(|source| source.seat.as_ref())
    }

    /// The content of `calibration.json`, with a seal that shows whether the file was edited.
    fn found(&self) -> String {
        let loads = self.loads();
        let found = Found {
            foretoken: env!("CARGO_PKG_VERSION"),
            inputs: self.inputs(),
            server: Server::of(&self.sources),
            draft_lengths: self.lengths().into_iter().collect(),
            separated: self.separated,
            now: last(&loads).and_then(|run| run.k),
            loads,
            steps: self.rows.len(),
            held_out: &self.held_out,
            verdict: self.verdict.as_ref(),
            acceptance: self.acceptance.as_ref().map_or(&[], |a| &a.positions),
            costs: &[],
            warnings: &self.warnings,
            seat: self.seat(),
        };
        seal::seal(Syntax::Json, &serde_json::to_string_pretty(&found).expect("plain data always serialises"))
    }

    /// The text of the experiment that simulates the observed server.
    fn experiment(&self) -> Result<String> {
        let engine = self.engine_table()?;
        let mut text = String::from(
            "# What was observed, as an experiment: `foretoken run` simulates the server on the calibrated profile.\n",
        );
        let (version, why) = one_server::release(&self.sources);
        writeln!(text, "# engine.version is \"{}\": {why}.", version.name()).expect("a string grows");
        let policies: Vec<String> = self
            .lengths()
            .iter()
            .map(|k| match k {
                0 => "{ autoregressive = {} }".to_owned(),
                k => format!("{{ fixed = {{ k = {k} }} }}"),
            })
            .collect();
        writeln!(text, "name = \"calibrated\"\nseeds = [1, 2, 3]\npolicies = [{}]\n", policies.join(", "))
            .expect("a string grows");
        writeln!(text, "[hardware]\nprofile = \"{PROFILE}\"\n\n{engine}").expect("a string grows");
        if self.loses_priorities() {
            text.push_str(
                "# The recording lacks the categories whose priorities were stated (prompts of families have their own).\n\
                 # All requests have the same priority here.\n",
            );
        }
        if let Some(workload) = self.workload()? {
            writeln!(text, "[workload]\n{workload}").expect("a string grows");
        }
        let acceptance = match &self.acceptance {
            Some(a) if a.table.is_some() => format!("table = {{ path = \"{TRUTH}\", beyond = \"wrap\" }}"),
            Some(a) => format!("by-depth = {{ rates = {:?} }}", a.hazards()),
            None => "constant = { rate = 0.0 }".to_owned(),
        };
        writeln!(text, "[acceptance.source]\n{acceptance}").expect("a string grows");
        Ok(text)
    }

    /// The simulated engine's settings as a TOML table, without `step_overhead_s`, which the profile gives.
    /// `max_draft_len` is at least the longest observed draft length.
    fn engine_table(&self) -> Result<String> {
        let cannot = |e: toml::ser::Error| Problem::failed(format!("the engine's settings cannot be written: {e}"));
        // The experiment simulates every observed draft length, so `max_draft_len` must allow the longest one.
        let longest = self.lengths().last().copied().unwrap_or(0);
        let max_draft_len = self.engine.max_draft_len.max(longest.min(MAX_SPEC_LEN));
        let mut engine =
            toml::Value::try_from(&EngineConfig { max_draft_len, ..self.engine.clone() }).map_err(cannot)?;
        engine.as_table_mut().iter_mut().for_each(|table| drop(table.remove("step_overhead_s")));
        let whole = toml::Table::from_iter([("engine".to_owned(), engine)]);
        toml::to_string(&whole).map_err(cannot)
    }

    /// The keys of the experiment's table `[workload]`. The requests come from the first run with open arrivals, else
    /// from the run with most requests, else from the first vLLM or SGLang file that has requests. `None` if there are
    /// no requests.
    fn workload(&self) -> Result<Option<String>> {
        let open = self.sources.iter().position(|s| s.recording.head.clients.is_none());
        let most = || (0..self.sources.len()).max_by_key(|&i| self.sources[i].run.workload.len());
        let foreign = || Some(self.sources.len() + self.foreign.iter().position(|file| !file.requests.is_empty())?);
        let at = open.or_else(most).or_else(foreign);
        at.map(|at| keys(&self.workload_of(at))).transpose()
    }
}

/// Checks that the experiment in a calibration's folder can run. If not, removes the calibration's files.
fn check_experiment(folder: &Path) -> Result<()> {
    let file = folder.join(EXPERIMENT);
    Plan::load(&file, &[]).map(drop).map_err(|e| {
        let place = e.place().unwrap_or_else(|| file.display().to_string());
        let problem =
            Problem::bad_input(format!("these runs make no experiment that can run: {} ({place})", e.message()));
        take_away(folder);
        drop(std::fs::remove_file(folder.join(FOUND)));
        problem.help("look at the runs' findings: foretoken report DIR; observe again what cannot be")
    })
}

/// The settings of a workload as TOML, one key per line.
fn keys(workload: &WorkloadSpec) -> Result<String> {
    let table =
        toml::Table::try_from(workload).map_err(|e| Problem::failed(format!("the workload cannot be written: {e}")))?;
    Ok(table.iter().map(|(key, value)| format!("{key} = {value}\n")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder whose experiment cannot run keeps no file of the calibration.
    #[test]
    fn an_experiment_that_cannot_run_leaves_no_calibration() {
        let dir = tempfile::tempdir().unwrap();
        for name in [PROFILE, FOUND, PAGE] {
            std::fs::write(dir.path().join(name), "x").unwrap();
        }
        std::fs::write(dir.path().join(EXPERIMENT), "name = 3\n").unwrap();
        let problem = check_experiment(dir.path()).unwrap_err();
        assert!(problem.message().starts_with("these runs make no experiment that can run: "), "{}", problem.message());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
