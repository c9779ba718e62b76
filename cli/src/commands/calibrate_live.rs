//! `foretoken calibrate` on live runs: fits a profile to the pass times of these runs.

use super::print;
use crate::cli::format::Format;
use foretoken_live::calibrate_runs::calibrate;
use foretoken_run::spec::problem::Result;
use foretoken_servers::calibrate::kept::{FOUND, PROFILE};
use foretoken_servers::calibrate::live::LiveCalibration;
use std::path::{Path, PathBuf};

/// Fits a profile to the live runs in the folders `from`, writes it into the folder `output` and prints what was found.
pub fn run(from: &[PathBuf], output: &Path, overwrite: bool, format: Format) -> Result<()> {
    let calibration = calibrate(from)?;
    calibration.write(output, overwrite)?;
    match format {
        Format::Table => print(&in_words(&calibration))?,
        Format::Json => print(&(serde_json::to_string_pretty(&calibration.found).expect("plain data") + "\n"))?,
    }
    calibration.profile.warnings.iter().for_each(|w| eprintln!("warning: {w}"));
    eprintln!("calibration: {}", output.join(FOUND).display());
    eprintln!("next: foretoken validate DIR --profile {}", output.join(PROFILE).display());
    calibration.found.verdict.judge(output)
}

fn in_words(c: &LiveCalibration) -> String {
    let (target, draft) = c.found.passes;
    let mut lines = vec![
        format!(
            "calibrated on {} live runs on {}: {target} target passes, {draft} draft passes",
            c.found.inputs.len(),
            c.profile.server
        ),
        format!("host between passes     {:.1} us a step", 1e6 * c.profile.step_overhead_s),
    ];
    let percent = |e: Option<f64>| e.map_or("-".to_owned(), |e| format!("{:+.1} %", 100.0 * e));
    for run in &c.found.held_out {
        lines.push(format!(
            "by other cells' runs    {}: target passes {}, draft passes {} ({})",
            run.policy,
            percent(run.target),
            percent(run.draft),
            run.tape
        ));
    }
    lines.push(c.found.verdict.in_words());
    lines.join("\n") + "\n"
}
