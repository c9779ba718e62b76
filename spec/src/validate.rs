//! The `[validate]` table of an experiment: how `foretoken validate` runs, and how large errors may be.

use crate::document::{Document, Path};
use crate::problem::Result;
use serde::{Deserialize, Serialize};

/// The `[validate]` table: settings of `foretoken validate`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ValidateSpec {
    /// Arrival rates of the runs, as shares of the policy's own service rate.
    pub loads: Vec<f64>,
    /// Arrival rate at which policies are compared with each other, as a share of the baseline's service rate; 0:
    /// none.
    pub common_load: f64,
    /// Clients of the closed loop that measures service rates; absent: `engine.max_num_seqs`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clients: Option<u32>,
    /// Pieces of each cell (a policy at a load). All cells have their first piece before any has its second. A piece
    /// serves the same requests twice, with a probe of the machine before, between and after.
    pub pieces: u32,
    /// How long a closed loop runs in each of a piece's two parts, seconds.
    pub service_s: f64,
    /// How long requests arrive in each of a piece's two parts, seconds.
    pub run_s: f64,
    /// Time for profiling, seconds. A first slice before the runs gives what policies believe; the rest is measured
    /// between pieces. Only used where `hardware` gives no profile.
    pub profile_s: f64,
    /// How large errors may be.
    pub tolerance: Tolerance,
}

/// Which errors are accepted, as shares: 0.1 is 10 %.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Tolerance {
    /// Error of mean TPOT, at every load.
    pub tpot: f64,
    /// Error of mean E2E, up to 0.8 of the policy's own service rate. Above, it is reported with its sensitivity only.
    pub e2e: f64,
    /// Error of completed requests a second, above 0.8 of the service rate.
    pub completed: f64,
    /// When a piece counts. Each of its three probes times a few fixed passes of both models several times. For each
    /// pass, the longest of the three means may be at most this share above the shortest. Otherwise the machine changed
    /// its speed, and the piece is left out of all numbers and of the verdict. Only probes decide.
    pub steady: f64,
    /// Distance up to which repeated runs agree in a number. A bound on a number whose repeats do not agree is
    /// undecided: neither kept nor broken.
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
    /// Checks every value that serde cannot.
    ///
    /// # Errors
    /// There are no loads, no pieces or no clients; or a load, a time or a tolerance is not a finite number above 0. A
    /// `common_load` of 0 is allowed.
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
