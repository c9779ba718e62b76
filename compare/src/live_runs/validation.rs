//! The content of `validation.json` for live runs.

use super::cell::CellReport;
use super::piece_report::{SpeedRange, Undecided};
use super::repeats::Repeats;
use super::simulated::PolicyValue;
use crate::bounds::Check;
use crate::pass_errors::PassErrors;
use crate::rankings::Ranked;
use serde::Serialize;

/// The version of `validation.json`.
pub const SCHEMA_VERSION: u32 = 5;

/// The content of `validation.json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Validation {
    /// Sentences that limit the verdict: it covers a part of the runs, or the compared experiment is not the one that
    /// ran. Empty if nothing limits it.
    pub caveats: Vec<String>,
    /// Version of this format.
    pub schema_version: u32,
    /// The experiment's name.
    pub name: String,
    /// The version of Foretoken.
    pub version: String,
    /// The name of the device that served.
    pub device: String,
    /// The source of the predicted pass times, as text.
    pub costs: String,
    /// The rule by which pieces count, as stated before the runs; absent if nothing was probed.
    pub rule: Option<String>,
    /// (number of pieces that count, number of pieces).
    pub counted: (u64, u64),
    /// The range of the machine's speed over all pieces; absent if nothing was probed.
    pub drift: Option<SpeedRange>,
    /// Whether live runs repeat; counted before the errors.
    pub repeats: Vec<Repeats>,
    /// The policies' service rates.
    pub service: Vec<PolicyValue>,
    /// Speedup of each policy over the baseline, by mean E2E at the common load.
    pub speedups: Vec<PolicyValue>,
    /// The rankings of the policies.
    pub rankings: Vec<Ranked>,
    /// The cells with at least one piece that counts.
    pub cells: Vec<CellReport>,
    /// The cells without a piece that counts: they are in no number and in no bound.
    pub undecided: Vec<Undecided>,
    /// Errors of passes by kind, over all cells.
    pub regions: Vec<PassErrors>,
    /// Errors of passes by kind, each cell predicted with costs learned from the other cells' live runs.
    pub learned_regions: Vec<PassErrors>,
    /// Every bound, and whether it is kept.
    pub checks: Vec<Check>,
    /// Notes that a reader must know.
    pub notes: Vec<String>,
}

impl Validation {
    /// True if at least one cell has a piece that counts.
    pub fn decided(&self) -> bool {
        !self.cells.is_empty()
    }

    /// True if the machine was steady in every piece, as far as probes show.
    pub fn steady(&self) -> bool {
        self.counted.0 == self.counted.1
    }

    /// The validation as JSON, with a line end.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("plain data always serialises") + "\n"
    }
}
