//! The folder of a calibration: the names of its files, and what is read back from them. The folder has a profile, a
//! truth table, acceptance by category, traces, an experiment that uses these files, the results as JSON, and a page.

use crate::calibrate::acceptance::Position;
use crate::calibrate::folder::{begin, check_free, is_unfinished};
use crate::calibrate::held_out::HeldOut;
use crate::calibrate::loads::{ObservedLoad, SeenRun, TRACES};
use crate::calibrate::one_server::Server;
use crate::calibrate::unknown_costs::CostFactors;
use crate::calibrate::verdict::Verdict;
use crate::compare::server_runs::Misfit;
use crate::recordings::seat_log::Seated;
use foretoken_profiler::Calibrated;
use foretoken_run::cells::Lock;
use foretoken_run::plan::Plan;
use foretoken_run::spec::problem::{Problem, Result};
use foretoken_sim::EngineConfig;
use foretoken_traces::intact::seal::{self, Syntax};
use foretoken_traces::truth::TruthTable;
use foretoken_traces::truth::speculation_profile::SPECULATION_PROFILE;
use serde::{Deserialize, Serialize};
use std::path::Path;

pub const PROFILE: &str = "profile.toml";
/// Name of the file, in a calibration's folder, with the truth table: which draft tokens of each observed answer were
/// right.
pub const TRUTH: &str = "acceptance.truth";
/// Name of the file, in a calibration's folder, with the acceptance rates by category of requests, as TOML tables for
/// an experiment.
pub const BY_CATEGORY: &str = "by-category.toml";
/// Name of the file, in a calibration's folder, with the experiment that simulates the observed server.
pub const EXPERIMENT: &str = "experiment.toml";
/// Name of the JSON file, in a calibration's folder, with the results, and with the names and digests of the files from
/// which the calibration was made.
pub const FOUND: &str = "calibration.json";
pub const PAGE: &str = "calibration.html";

/// The content of `calibration.json`: the results of a calibration, and the names and digests of the files from which
/// it was made.
#[derive(Debug, Serialize)]
pub struct Found<'a> {
    /// Version of Foretoken that made the calibration.
    pub foretoken: &'static str,
    /// The files from which the calibration was made, such as recordings of observed runs, files of vLLM or SGLang, or
    /// a table of benchmark results.
    pub inputs: Vec<Input>,
    /// The server whose runs were observed; `None` if it is not known.
    pub server: Option<Server>,
    /// Draft lengths of the steps to which the costs were fitted.
    pub draft_lengths: Vec<u32>,
    /// True if the fit has separate costs for draft passes and target passes.
    pub separated: bool,
    /// The draft length of the latest observed run; `None` if it is not known, or if the server drafted several
    /// lengths.
    pub now: Option<u32>,
    pub loads: Vec<ObservedLoad>,
    /// Number of steps to which the costs were fitted. For a calibration from a table of benchmark results: number of
    /// fitted measured values (throughput, TTFT, TPOT).
    pub steps: usize,
    /// Errors of predicted step times on steps that were left out of a fit.
    pub held_out: &'a HeldOut,
    /// The verdict on the fitted costs: whether they may be trusted; `None` if there are no costs.
    pub verdict: Option<&'a Verdict>,
    /// How often draft tokens were accepted, by their position among a request's draft tokens of one step.
    pub acceptance: &'a [Position],
    /// Factors by which the true costs of passes and of the host may differ from the fitted ones, one entry per random
    /// draw. Empty unless the calibration was made from a table of benchmark results. Other calibrations know only how
    /// well costs that are fitted to some runs predict another run.
    #[serde(skip_serializing_if = "<[CostFactors]>::is_empty")]
    pub costs: &'a [CostFactors],
    /// Warnings for the user, one sentence each, such as what the observed data does not show.
    pub warnings: &'a [String],
    /// What the policy in the engine's seat did; `None` if no run was logged by a seat.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seat: Option<&'a Seated>,
}

/// A file from which a calibration was made, such as the recording of an observed run, a file of vLLM or SGLang, or a
/// table of benchmark results.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Input {
    pub path: String,
    /// BLAKE3 digest of the file's bytes, in hexadecimal.
    pub blake3: String,
    /// What the file is, as text, such as `observed: fixed-3, 120 requests` or `vllm bench serve results`.
    pub what: String,
}

/// Removes the files of a calibration from its folder.
pub(crate) fn take_away(folder: &Path) {
    for name in [PROFILE, TRUTH, EXPERIMENT, PAGE, BY_CATEGORY, SPECULATION_PROFILE] {
        drop(std::fs::remove_file(folder.join(name)));
    }
    drop(std::fs::remove_dir_all(folder.join(TRACES)));
}

/// Makes the folder for a calibration's files. The returned lock keeps other processes out of the folder while the lock
/// lives. Refuses a folder with other content. With `overwrite`, removes the files of an earlier calibration.
pub(crate) fn ready(folder: &Path, overwrite: bool) -> Result<Lock> {
    check_free(folder, FOUND, "a calibration", overwrite)?;
    let lock = begin(folder, FOUND)?;
    take_away(folder);
    Ok(lock)
}

/// The parts of a calibration, read from its folder, that predictions of runs need.
#[derive(Debug)]
pub struct Kept {
    pub cost: Calibrated,
    /// Which draft tokens of each observed answer were right (a truth table); `None` if the calibration has none.
    pub table: Option<TruthTable>,
    /// Acceptance rates by draft position in a step: P(accepted | all earlier draft tokens of the step accepted).
    pub rates: Vec<f64>,
    /// The settings of the engine that simulates the observed server.
    pub engine: EngineConfig,
    /// The files from which the calibration was made, such as recordings of observed runs. The calibration must not
    /// predict these runs.
    pub inputs: Vec<Input>,
    /// What the form of the fitted costs cannot say, as the standard deviation of a relative error.
    pub misfit: f64,
    /// The errors with which the calibration predicts the numbers of its own runs.
    pub numbers: Misfit,
    /// Warnings about the calibrated profile: that it was edited, or that its costs are not trusted.
    pub warnings: Vec<String>,
    /// The server whose runs were observed; `None` if the calibration does not name it.
    pub server: Option<Server>,
}

/// The fields of `calibration.json` that predictions and recommendations read back.
#[derive(Deserialize)]
struct FoundBack {
    inputs: Vec<Input>,
    #[serde(default)]
    server: Option<Server>,
    draft_lengths: Vec<u32>,
    separated: bool,
    #[serde(default)]
    loads: Vec<ObservedLoad>,
    steps: usize,
    held_out: HeldOut,
    acceptance: Vec<Position>,
    #[serde(default)]
    costs: Vec<CostFactors>,
    #[serde(default)]
    verdict: Option<Verdict>,
    #[serde(default)]
    seat: Option<Seated>,
}

impl FoundBack {
    fn read(folder: &Path) -> Result<FoundBack> {
        let path = folder.join(FOUND);
        let bad = |what: String| bad(&path, what);
        let text = fs_err::read_to_string(&path).map_err(|e| bad(e.to_string()))?;
        if is_unfinished(&path) {
            return Err(bad("the calibration did not end".into()).help("calibrate again, with --overwrite"));
        }
        seal::check(Syntax::Json, &text).map_err(|e| bad(format!("it is damaged or was changed: {e}")))?;
        let value: serde_json::Value = serde_json::from_str(&text).map_err(|e| bad(e.to_string()))?;
        // Only the `calibration.json` of a calibration from live runs has the field `passes`.
        if value.get("passes").is_some() {
            return Err(bad("it was made from live runs, so it has costs only: no server and no acceptance".into()).help(
                "`foretoken validate DIR --profile` predicts live runs with it; for a server, calibrate on observed runs",
            ));
        }
        serde_json::from_value(value).map_err(|e| bad(e.to_string()))
    }
}

fn bad(path: &Path, what: String) -> Box<Problem> {
    Problem::bad_input(format!("{}: {what}", path.display())).help("give a folder that `foretoken calibrate` wrote")
}

/// The run that started last. If several runs started at that time, takes the last of these runs in the order of
/// `loads`.
pub(crate) fn last(loads: &[ObservedLoad]) -> Option<&SeenRun> {
    loads.iter().flat_map(|load| &load.runs).max_by_key(|run| run.started_unix_us)
}

/// The parts of a calibration, read from its folder, that `foretoken recommend` needs.
#[derive(Clone, Debug, PartialEq)]
pub struct Known {
    /// The server whose runs were observed; `None` if it is not known.
    pub server: Option<Server>,
    pub loads: Vec<ObservedLoad>,
    /// The draft lengths of the steps to which the costs were fitted.
    pub lengths: Vec<u32>,
    /// True if the fit has separate costs for draft passes and target passes.
    pub separated: bool,
    /// Number of steps to which the calibration's costs were fitted. For a calibration from a table of benchmark
    /// results: number of fitted measured values (throughput, TTFT, TPOT).
    pub steps: usize,
    /// Number of draft positions (1st, 2nd, … draft token of a request in a step) at which draft tokens were observed.
    pub positions: u32,
    /// Error between runs, as a share. Each run's step times are predicted by a fit to all other runs. The field is
    /// the root mean square, over runs, of the relative errors of the summed step times. If no run could be left out,
    /// it is the absolute relative error of the summed step times of the second halves of all runs.
    pub between_runs: f64,
    /// How often draft tokens were accepted, by their position among a request's draft tokens of one step.
    pub acceptance: Vec<Position>,
    /// Number of requests of all observed runs, and of the vLLM and SGLang files that have arrival times. Each run
    /// counts with the number of requests of the first run of its load.
    pub requests: usize,
    /// Factors by which the true costs of passes and of the host may differ from the fitted ones, one entry per random
    /// draw. Empty unless the calibration was made from a table of benchmark results. Other calibrations know only how
    /// well costs that are fitted to some runs predict another run.
    pub costs: Vec<CostFactors>,
    /// The verdict on the fitted costs: whether they may be trusted; `None` if there are no costs.
    pub verdict: Option<Verdict>,
    /// What the policy in the engine's seat did; `None` if no run was logged by a seat.
    pub seat: Option<Seated>,
}

impl Known {
    /// Reads the parts of a calibration that `foretoken recommend` needs from the calibration's folder.
    pub fn read(folder: &Path) -> Result<Known> {
        let found = FoundBack::read(folder)?;
        let by_run = &found.held_out.by_run;
        let square = by_run.iter().map(|(_, e)| e.bias.powi(2)).sum::<f64>() / by_run.len().max(1) as f64;
        Ok(Known {
            requests: found.loads.iter().map(|load| load.requests * load.runs.len().max(1)).sum(),
            server: found.server,
            loads: found.loads,
            lengths: found.draft_lengths,
            separated: found.separated,
            steps: found.steps,
            positions: found.acceptance.iter().filter(|p| !p.extrapolated).count() as u32,
            between_runs: if by_run.is_empty() { found.held_out.by_time.bias.abs() } else { square.sqrt() },
            acceptance: found.acceptance,
            costs: found.costs,
            verdict: found.verdict,
            seat: found.seat,
        })
    }

    /// The verdict as text if the fitted costs are not trusted; `None` if they are, or if they were not judged.
    pub fn not_trusted(&self) -> Option<String> {
        self.verdict.as_ref().filter(|verdict| verdict.trusted == Some(false)).and_then(Verdict::distrust)
    }

    pub fn last_run(&self) -> Option<&SeenRun> {
        last(&self.loads)
    }

    /// If the calibration cannot give advice, returns (the reason, the draft length to observe next). The draft
    /// length is `None` if observing another draft length does not help. Returns `None` if advice can be given.
    pub fn cannot_say(&self) -> Option<(String, Option<u32>)> {
        let lengths: Vec<String> = self.lengths.iter().map(u32::to_string).collect();
        if self.steps == 0 {
            Some(("it has no steps with times: observe with the server's step log (--step-log)".into(), None))
        } else if self.positions == 0 {
            Some(("nothing was drafted: observe K = 3 next, on the same server with speculation".into(), Some(3)))
        } else if !self.separated {
            let next = if self.lengths.contains(&0) { 3 } else { 0 };
            let at = lengths.join(", ");
            let why =
                format!("drafts and verification cannot be told apart at K = {at} alone: observe K = {next} next");
            Some((why, Some(next)))
        } else {
            None
        }
    }
}

impl Kept {
    /// Reads the parts of a calibration that predictions of runs need from the calibration's folder.
    pub fn read(folder: &Path) -> Result<Kept> {
        let found = FoundBack::read(folder)?;
        let profile = folder.join(PROFILE);
        let text = fs_err::read_to_string(&profile)
            .map_err(|_| bad(&profile, "the calibration has no costs: nothing can be predicted from it".into()))?;
        let cost = foretoken_run::profiled::read_calibrated(&profile.display().to_string(), &text)?;
        let truth = folder.join(TRUTH);
        let table = match truth.exists() {
            true => Some(TruthTable::read(&truth).map_err(|e| bad(&truth, e.to_string()))?),
            false => None,
        };
        let plan = Plan::load(&folder.join(EXPERIMENT), &[])?;
        let engine = plan.variants[0].experiment.engine.clone();
        let edited = foretoken_run::profiled::changed(&profile.display().to_string(), &text);
        let warnings = edited.into_iter().chain(cost.distrust.clone()).collect();
        let rates = found.acceptance.iter().map(|p| p.rate).collect();
        let (inputs, misfit, numbers) = (found.inputs, found.held_out.misfit, found.held_out.numbers);
        Ok(Kept { cost, table, rates, engine, inputs, misfit, numbers, server: found.server, warnings })
    }

    /// True if the calibration was made from the recording with this BLAKE3 digest.
    pub fn is_made_from(&self, digest: &str) -> bool {
        self.inputs.iter().any(|input| input.blake3 == digest)
    }
}
