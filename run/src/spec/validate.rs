//! The `[validate]` table of an experiment: how `foretoken validate` runs, and how large errors may be.

use crate::spec::document::{Document, Path};
use crate::spec::problem::Result;
use serde::{Deserialize, Serialize};

/// The `[validate]` table: settings of `foretoken validate`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ValidateSpec {
    /// Arrival rates of the runs, as shares of the policy's own service rate (the rate of requests that closed loops of
    /// the policy sustain), each above 0. 0.5 is half of this rate.
    pub loads: Vec<f64>,
    /// Arrival rate of the runs in which all policies are compared with each other, as a share of the baseline's
    /// service rate (the rate of requests that closed loops of the baseline sustain); 0: there are no such runs.
    pub common_load: f64,
    /// Number of clients of the closed loops that measure service rates, at least 1; absent: `engine.max_num_seqs`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clients: Option<u32>,
    /// Number of pieces for each policy at each load, at least 1. A piece is a live run and its repeat on the same
    /// requests. The first pieces of all policies and loads run before the second pieces. A probe times a few fixed
    /// passes of the machine before, between and after the two runs of a piece.
    pub pieces: u32,
    /// Wanted length of each closed-loop run, seconds, above 0. A run has at least four requests for each client, so it
    /// may take longer.
    pub service_s: f64,
    /// How long requests arrive in each run with a set arrival rate, seconds, above 0.
    pub run_s: f64,
    /// Time for measuring the profile (pass times of the machine), seconds, above 0. A first part is measured before
    /// the runs; policies decide with its costs. The rest is measured between the runs. Not used if `hardware` gives a
    /// profile.
    pub profile_s: f64,
    /// The largest accepted errors of predictions against live runs, and how far repeated live runs may differ.
    pub tolerance: Tolerance,
}

/// The largest accepted errors of predictions against live runs, and how far repeated live runs may differ. All values
/// are shares above 0: 0.1 is 10 %.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Tolerance {
    /// Largest accepted error of the predicted mean TPOT, at every load.
    pub tpot: f64,
    /// Largest accepted error of the predicted mean end-to-end latency, at loads up to 0.8 of the policy's own service
    /// rate. At higher loads and in overload the latency has no bound, because queues amplify small errors.
    pub e2e: f64,
    /// Largest accepted error of the predicted number of completed requests a second, at loads above 0.8 of the
    /// policy's own service rate and in overload.
    pub completed: f64,
    /// How steady the machine must be for a piece (a live run and its repeat) to count. Each of the piece's three
    /// probes gives the mean times of a few fixed passes. For each of these passes, the longest of its three means may
    /// be at most this share above the shortest. Otherwise the machine changed its speed, and the piece is left out of
    /// all numbers and of the verdict.
    pub steady: f64,
    /// Repeated runs agree in a number if two thirds of its values (all, if there are two or three) lie in an interval
    /// whose width is at most this share of their median. If they do not agree, the bound on this number is undecided:
    /// neither kept nor broken.
    pub repeats: f64,
}

/// The default of [`Tolerance::repeats`]: repeats within 5 % of each other agree.
pub const REPEATS_AGREE: f64 = 0.05;

impl Default for ValidateSpec {
    fn default() -> Self {
        ValidateSpec {
            loads: vec![0.5, 0.8, 1.2],
            common_load: 0.8,
            clients: None,
            pieces: 4,
            service_s: 2.0,
            run_s: 2.0,
            profile_s: 60.0,
            tolerance: Tolerance::default(),
        }
    }
}

impl Default for Tolerance {
    fn default() -> Self {
        Tolerance { tpot: 0.1, e2e: 0.1, completed: 0.1, steady: 0.05, repeats: REPEATS_AGREE }
    }
}

impl ValidateSpec {
    /// Checks every value of the `[validate]` table that serde cannot.
    pub fn check(&self, doc: &Document) -> Result<()> {
        let above_0 = |key: &str, value: f64| match value > 0.0 && value.is_finite() {
            true => Ok(()),
            false => Err(doc
                .problem_at(&Path::of(&format!("validate.{key}")), format!("validate.{key}: {value} is not above 0"))
                .help("expected a finite number above 0")),
        };
        if self.loads.is_empty() {
            let problem = doc.problem_at(&Path::of("validate.loads"), "validate.loads is empty: nothing would run");
            return Err(problem.help("write loads = [0.5, 0.8, 1.2]"));
        }
        for (i, &load) in self.loads.iter().enumerate() {
            above_0(&format!("loads[{i}]"), load)?;
        }
        if self.common_load != 0.0 {
            above_0("common_load", self.common_load)?;
        }
        if self.pieces == 0 {
            let problem = doc.problem_at(&Path::of("validate.pieces"), "validate.pieces is 0: nothing would run");
            return Err(problem.help("expected a number of pieces from 1 on, such as 4"));
        }
        for (key, value) in [("service_s", self.service_s), ("run_s", self.run_s), ("profile_s", self.profile_s)] {
            above_0(key, value)?;
        }
        let t = self.tolerance;
        let all = [("tpot", t.tpot), ("e2e", t.e2e), ("completed", t.completed), ("steady", t.steady)];
        for (key, value) in all.into_iter().chain([("repeats", t.repeats)]) {
            above_0(&format!("tolerance.{key}"), value)?;
        }
        match self.clients {
            Some(0) => above_0("clients", 0.0),
            _ => Ok(()),
        }
    }
}
