//! A calibration to live runs: each pass was timed, so that there is a profile and nothing to tell apart.

use crate::folder::put;
use crate::held_out::HeldOutRun;
use crate::kept::{FOUND, Input, PROFILE, ready};
use crate::verdict::Verdict;
use foretoken_intact::seal::{self, Syntax};
use foretoken_profiler::Calibrated;
use foretoken_spec::problem::{Problem, Result};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// What live runs say of costs.
#[derive(Debug)]
pub struct LiveCalibration {
    /// The profile.
    pub profile: Calibrated,
    /// What was found beside it.
    pub found: LiveFound,
}

/// What `calibration.json` says of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LiveFound {
    /// Version of Foretoken.
    pub foretoken: String,
    /// The recordings.
    pub inputs: Vec<Input>,
    /// Target passes, and draft passes.
    pub passes: (u64, u64),
    /// Each run predicted by the runs of other cells; empty where all runs are of one cell.
    pub held_out: Vec<HeldOutRun>,
    /// How far it may be trusted.
    pub verdict: Verdict,
}

impl LiveCalibration {
    /// Writes the folder. It must be new or empty, or hold a calibration.
    pub fn write(&self, folder: &Path, overwrite: bool) -> Result<()> {
        ready(folder, overwrite)?;
        put(folder, PROFILE, self.profile.to_toml())?;
        let json = serde_json::to_string_pretty(&self.found).expect("plain data always serialises");
        // Last: its presence says that all is there.
        put(folder, FOUND, seal::seal(Syntax::Json, &json))
    }
}

/// Refuses to predict runs, given as (name, blake3) of their recordings, with a profile that was fitted to one of them.
///
/// # Errors
/// It was.
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
