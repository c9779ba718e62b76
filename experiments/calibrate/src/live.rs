//! A calibration to live runs: each pass was timed, so that there is a profile and nothing to tell apart.

use crate::folder::put;
use crate::kept::{FOUND, Input, PROFILE, ready};
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
    /// Each run predicted by the others; empty where there is one.
    pub held_out: Vec<HeldOutRun>,
}

/// How far costs that were fitted to all other runs are off on one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeldOutRun {
    /// Its policy.
    pub policy: String,
    /// Its recording.
    pub tape: String,
    /// Of all target passes together: predicted over measured, less 1.
    pub target: Option<f64>,
    /// Of all draft passes together; `None` where it, or no other run, drafted.
    pub draft: Option<f64>,
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

/// Refuses to predict runs, known by the digests of their recordings, with a profile that was fitted to one of them. What a profile was
/// made from is said beside it.
///
/// # Errors
/// It was; or what is said beside it is damaged, so that it may have been.
pub fn not_of_its_own<'a>(profile: &Path, digests: impl IntoIterator<Item = &'a String>) -> Result<()> {
    let path = profile.with_file_name(FOUND);
    if !path.exists() {
        return Ok(());
    }
    let bad = |e: &dyn std::fmt::Display| {
        Problem::bad_input(format!(
            "{}: {e}: whether {} was fitted to these runs cannot be told",
            path.display(),
            profile.display()
        ))
        .help("calibrate again")
    };
    let text = fs_err::read_to_string(&path).map_err(|e| bad(&e))?;
    seal::check(Syntax::Json, &text).map_err(|e| bad(&e))?;
    // A calibration to observed runs has other fields, and predicts no live run's own passes.
    let Ok(found) = serde_json::from_str::<LiveFound>(&text) else { return Ok(()) };
    let own = digests.into_iter().find_map(|digest| found.inputs.iter().find(|input| input.blake3 == *digest));
    own.map_or(Ok(()), |input| {
        let message = format!("{} was fitted to {}, which it would predict", profile.display(), input.path);
        Err(Problem::bad_input(message)
            .help("predict another run: what was fitted to a run says nothing of how well runs are predicted"))
    })
}
