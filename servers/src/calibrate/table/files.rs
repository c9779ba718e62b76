//! Writes the folder of a calibration from a table of benchmark results: a profile, an experiment, and the results.

use super::cell::{Cell, CellLoad};
use super::law::inline;
use super::simulate::{fixed, workload};
use super::{Judged, TableCalibration};
use crate::calibrate::folder::put;
use crate::calibrate::held_out::{Error, HeldOut};
use crate::calibrate::kept::{EXPERIMENT, FOUND, Found, PROFILE, ready};
use crate::calibrate::loads::{ObservedLoad, SeenRun, short};
use foretoken_profiler::hardware::LatencySpec;
use foretoken_profiler::{CALIBRATED_VERSION, Calibrated, CalibratedModel, Range};
use foretoken_run::plan::Plan;
use foretoken_run::spec::problem::Result;
use foretoken_sim::{Coefficients, ContextReads, PassShape};
use foretoken_traces::intact::seal::{self, Syntax};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

impl TableCalibration {
    /// Writes the calibration from a table of benchmark results into a folder. The folder must be new or empty, or hold
    /// a calibration if `overwrite` is true.
    pub fn write(&self, folder: &Path, overwrite: bool) -> Result<()> {
        let _alone = ready(folder, overwrite)?;
        put(folder, PROFILE, self.profile().to_toml())?;
        put(folder, EXPERIMENT, self.experiment()?)?;
        Plan::load(&folder.join(EXPERIMENT), &[])?;
        // `calibration.json` is written last, so a folder that has it is complete.
        put(folder, FOUND, self.found()?)
    }

    fn lengths(&self) -> Vec<u32> {
        let all: BTreeSet<u32> = self.judged.iter().filter(|j| j.fitted).map(|j| j.cell.k).collect();
        all.into_iter().collect()
    }

    /// The fitted costs as a calibrated profile, the content of `profile.toml`.
    pub fn profile(&self) -> Calibrated {
        let law = &self.fit.law;
        let most = |of: &dyn Fn(&Cell) -> f64| self.cells.iter().map(of).fold(0.0, f64::max).ceil() as u64;
        let requests = most(&requests_at_once);
        let batched = most(&|c| (requests_at_once(c) * f64::from(1 + c.k)).max(c.input));
        let range = |batched| Range {
            requests,
            batched,
            context: most(&|c| requests_at_once(c) * (c.input + c.output)),
            pairs: 0,
        };
        Calibrated {
            calibrated_version: CALIBRATED_VERSION,
            foretoken: env!("CARGO_PKG_VERSION").into(),
            server: format!("the server of {}", self.name),
            distrust: self.verdict.distrust(),
            warnings: self.warnings.clone(),
            step_overhead_s: 0.0,
            host: law.host,
            noise_cv: 0.0,
            draft_lengths: self.lengths(),
            separated: self.separated,
            context_reads: ContextReads::Once,
            probes: vec![],
            fitted_to: vec![],
            target: CalibratedModel {
                cost: LatencySpec::Linear(law.target),
                belief: law.target,
                range: range(batched),
            },
            draft: CalibratedModel { cost: law.draft.clone(), belief: line(&law.draft), range: range(batched) },
        }
    }

    fn experiment(&self) -> Result<String> {
        let plan = self.base.plan()?;
        let stated = &plan.variants[0].experiment;
        let mut engine = stated.engine.clone();
        engine.frontend_s = self.fit.law.frontend_s;
        engine.max_draft_len = engine.max_draft_len.max(self.positions.len() as u32);
        // The profile has the host time of a step. The experiment must not have host time too, because it would count
        // twice.
        engine.host = foretoken_sim::HostLaw::default();
        let largest = self.cells.iter().max_by(|a, b| requests_at_once(a).total_cmp(&requests_at_once(b)));
        let cell = largest.expect("a table has a row");
        let workload = workload(stated.workload.lengths.as_ref(), cell);
        let rates: Vec<f64> = self.positions.iter().map(|p| p.rate).collect();
        let policies: Vec<String> = self.lengths().iter().map(|&k| inline(&fixed(k))).collect::<Result<_>>()?;
        let mut text = format!(
            "# The server of {}, as an experiment: `foretoken run` simulates it on the calibrated profile.\n",
            self.name
        );
        let mut line = |words: String| writeln!(text, "{words}").expect("a string grows");
        line(format!(
            "name = \"calibrated\"\nseeds = [1, 2, 3, 4, 5, 6, 7, 8]\npolicies = [{}]\n",
            policies.join(", ")
        ));
        line(format!("[hardware]\nprofile = \"{PROFILE}\"\n"));
        let engine = toml::Table::from_iter([("engine".to_owned(), to_value(&engine)?)]);
        line(toml::to_string(&engine).expect("a table is TOML"));
        line(format!("[workload]\narrivals = {}", inline(&workload.arrivals)?));
        if let Some(lengths) = &workload.lengths {
            line(format!("lengths = {}", inline(lengths)?));
        }
        line(format!("requests = {}\n", workload.requests.unwrap_or(1)));
        line(format!("[acceptance.source]\nby-depth = {{ rates = {rates:?} }}"));
        Ok(text)
    }

    fn found(&self) -> Result<String> {
        let errors = |j: &Judged| Error { steps: 1, mean_absolute: j.error().abs(), bias: j.error() };
        let held: Vec<&Judged> = self.judged.iter().filter(|j| !j.fitted).collect();
        let by_run = match held.is_empty() {
            false => held.iter().enumerate().map(|(at, j)| (at, errors(j))).collect(),
            true => {
                let error = |e: f64| Error { steps: 1, mean_absolute: e.abs(), bias: e };
                self.left_out.iter().enumerate().map(|(at, &e)| (at, error(e))).collect()
            }
        };
        let held_out = HeldOut { by_run, ..HeldOut::default() };
        let loads = self.loads()?;
        let now = loads.iter().flat_map(|load| &load.runs).max_by_key(|run| run.started_unix_us).and_then(|run| run.k);
        let found = Found {
            foretoken: env!("CARGO_PKG_VERSION"),
            inputs: self.inputs.clone(),
            server: None,
            draft_lengths: self.lengths(),
            separated: self.separated,
            now,
            loads,
            steps: self.judged.iter().filter(|j| j.fitted).count(),
            held_out: &held_out,
            verdict: Some(&self.verdict),
            acceptance: &self.positions,
            costs: &self.costs,
            warnings: &self.warnings,
            seat: None,
        };
        Ok(seal::seal(Syntax::Json, &serde_json::to_string_pretty(&found).expect("plain data always serialises")))
    }

    /// The loads (clients or request rates) of the table of benchmark results, in the order of its rows.
    fn loads(&self) -> Result<Vec<ObservedLoad>> {
        let plan = self.base.plan()?;
        let stated = plan.variants[0].experiment.workload.lengths.as_ref();
        let mut loads: Vec<(CellLoad, ObservedLoad)> = Vec::new();
        for cell in &self.cells {
            let run = SeenRun {
                name: cell.from.clone().unwrap_or_else(|| format!("line {}", cell.line)),
                recording: self.name.clone(),
                k: Some(cell.k),
                table: None,
                // Rows of the table do not say when they were measured, so a later line counts as a later run.
                started_unix_us: cell.line as u64,
                mean_e2e_s: e2e_s(cell),
            };
            match loads.iter_mut().find(|(load, _)| *load == cell.load) {
                Some((_, load)) => load.runs.push(run),
                None => {
                    let workload = workload(stated, cell);
                    let name = match cell.load {
                        CellLoad::Clients(n) => format!("closed loop of {n}"),
                        CellLoad::Rate(rate) => format!("Poisson {}/s", short(rate)),
                    };
                    let requests = workload.requests.unwrap_or(0) as usize;
                    loads.push((cell.load, ObservedLoad { name, runs: vec![run], requests, workload }));
                }
            }
        }
        Ok(loads.into_iter().map(|(_, load)| load).collect())
    }
}

fn to_value(value: &impl serde::Serialize) -> Result<toml::Value> {
    inline(value)?;
    Ok(toml::Value::try_from(value).expect("it was written just before"))
}

/// The mean end-to-end latency of a row, seconds: from the throughput of a closed loop by Little's law, else from TTFT
/// and TPOT. `None` if the row has neither.
fn e2e_s(cell: &Cell) -> Option<f64> {
    match (cell.load, cell.tok_s) {
        (CellLoad::Clients(n), Some(tok_s)) => Some(f64::from(n) * cell.output / tok_s),
        _ => Some(cell.ttft_s? + (cell.output - 1.0).max(0.0) * cell.tpot_s?),
    }
}

/// Mean number of requests in flight in a row of the table: the number of clients or, by Little's law, rate times
/// latency.
fn requests_at_once(cell: &Cell) -> f64 {
    match cell.load {
        CellLoad::Clients(n) => f64::from(n),
        CellLoad::Rate(rate) => rate * (cell.ttft_s.unwrap_or(0.0) + cell.output * cell.tpot_s.unwrap_or(0.0)),
    }
}

/// The linear cost model that policies assume for the draft model (their belief): the line through the times of passes
/// of 1 and of 256 tokens.
fn line(draft: &LatencySpec) -> Coefficients {
    if let LatencySpec::Linear(line) = draft {
        return *line;
    }
    const MANY: u64 = 256;
    let model = draft.build();
    let pass_s = |n: u64| model.pass(PassShape { requests: n, batched: n, context: 0, pairs: n }).as_s();
    let gamma_s = (pass_s(MANY) - pass_s(1)) / (MANY - 1) as f64;
    Coefficients { alpha_s: super::law::context_s(draft), gamma_s, delta_s: (pass_s(1) - gamma_s).max(0.0) }
}
