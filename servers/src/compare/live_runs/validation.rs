//! The content of `validation.json`, for validations of live runs.

use super::cell::CellReport;
use super::piece_report::{SpeedRange, Undecided};
use super::repeats::Repeats;
use super::simulated::PolicyValue;
use crate::compare::bounds::Check;
use crate::compare::pass_errors::PassErrors;
use crate::compare::rankings::Ranked;
use serde::Serialize;

pub const SCHEMA_VERSION: u32 = 5;

/// The content of `validation.json`: live runs compared with simulations of them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Validation {
    /// Sentences that limit the verdict. Examples of reasons: only a part of the runs is compared, or the compared
    /// experiment is not the one that ran.
    pub caveats: Vec<String>,
    pub schema_version: u32,
    pub name: String,
    pub version: String,
    pub device: String,
    /// A text on where the predicted times of passes come from.
    pub costs: String,
    /// The rule that decides by the machine's speed which pieces the numbers include. It was set before the runs.
    /// Absent if the machine's speed was not measured.
    pub rule: Option<String>,
    /// (number of pieces whose results are in the validation's numbers, number of all pieces). A piece is a live run
    /// and its repeat. It is left out if it was not finished, or if the machine changed its speed during it.
    pub counted: (u64, u64),
    /// The range of the machine's speed over all pieces; absent if the machine's speed was not measured.
    pub drift: Option<SpeedRange>,
    /// For each load: in how many cells (policies) the two live runs agree.
    pub repeats: Vec<Repeats>,
    /// The service rate of each policy: requests per second that a closed loop sustains.
    pub service: Vec<PolicyValue>,
    /// The speedup of each policy over the baseline: mean E2E of the baseline / mean E2E of the policy, at the load
    /// that all policies have.
    pub speedups: Vec<PolicyValue>,
    /// The rankings of the policies by service rate and by speedup, live and simulated.
    pub rankings: Vec<Ranked>,
    /// The cells with at least one piece that was finished at a steady machine speed.
    pub cells: Vec<CellReport>,
    /// The cells of which no piece was finished at a steady machine speed. No number and no bound includes them.
    pub undecided: Vec<Undecided>,
    /// Errors of predicted pass times by kind of pass, over all cells.
    pub regions: Vec<PassErrors>,
    /// Errors of predicted pass times by kind of pass, over all cells, if each cell is predicted with costs that were
    /// learned from the live runs of the other cells.
    pub learned_regions: Vec<PassErrors>,
    /// Every bound on an error or count of the validation, and whether it is kept.
    pub checks: Vec<Check>,
    pub notes: Vec<String>,
}

impl Validation {
    /// True if at least one cell has a piece that was finished at a steady machine speed.
    pub fn decided(&self) -> bool {
        !self.cells.is_empty()
    }

    /// True if every piece was finished at a steady machine speed.
    pub fn steady(&self) -> bool {
        self.counted.0 == self.counted.1
    }

    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("plain data always serialises") + "\n"
    }
}
