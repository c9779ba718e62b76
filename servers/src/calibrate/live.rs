//! A calibration from live runs, in which Foretoken ran models on a device. Live runs time every pass, so no fit has to
//! separate draft passes from target passes.

use crate::calibrate::folder::put;
use crate::calibrate::held_out::HeldOutRun;
use crate::calibrate::kept::{FOUND, Input, PROFILE, ready};
use crate::calibrate::verdict::Verdict;
use foretoken_profiler::Calibrated;
use foretoken_run::spec::problem::{Problem, Result};
use foretoken_traces::intact::seal::{self, Syntax};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// A calibration from live runs, in which Foretoken ran models on a device: fitted costs and their errors.
#[derive(Debug)]
pub struct LiveCalibration {
    /// The costs of passes, fitted to the live runs; the content of `profile.toml`.
    pub profile: Calibrated,
    /// The input files, the errors and the verdict of the calibration: the content of `calibration.json`.
    pub found: LiveFound,
}

/// The content of `calibration.json` of a calibration from live runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LiveFound {
    /// Version of Foretoken that made the calibration.
    pub foretoken: String,
    /// The recordings (tapes) of the live runs.
    pub inputs: Vec<Input>,
    /// (Number of timed target passes, number of timed draft passes) to which the costs were fitted.
    pub passes: (u64, u64),
    /// The errors of the pass times of each run, predicted from the runs of other cells (other policies or loads).
    /// Empty if all runs belong to one cell.
    pub held_out: Vec<HeldOutRun>,
    /// Whether the fitted costs may be trusted.
    pub verdict: Verdict,
}

impl LiveCalibration {
    /// Writes the calibration from live runs into a folder. The folder must be new or empty, or hold a calibration if
    /// `overwrite` is true.
    pub fn write(&self, folder: &Path, overwrite: bool) -> Result<()> {
        let _alone = ready(folder, overwrite)?;
        put(folder, PROFILE, self.profile.to_toml())?;
        let json = serde_json::to_string_pretty(&self.found).expect("plain data always serialises");
        // `calibration.json` is written last, so a folder that has it is complete.
        put(folder, FOUND, seal::seal(Syntax::Json, &json))
    }
}

/// Checks that the file `profile` was not fitted to a run that it is to predict. `runs` has (name, BLAKE3) of the
/// recording of each run. `fitted_to` has the BLAKE3 of the recordings to which the profile was fitted.
pub fn not_of_its_own<'a>(
    profile: &Path,
    fitted_to: &[String],
    runs: impl IntoIterator<Item = (&'a String, &'a String)>,
) -> Result<()> {
    let own = runs.into_iter().find(|(_, blake3)| fitted_to.contains(blake3));
    own.map_or(Ok(()), |(name, _)| {
        let message = format!("{} was fitted to {name}, which it would predict", profile.display());
        Err(Problem::bad_input(message)
            .help("predict another run: what was fitted to a run says nothing of how well runs are predicted"))
    })
}
