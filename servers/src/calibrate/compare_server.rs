//! Compares observed runs of a server with the predictions of a calibration.
//!
//! The error of each predicted number (latency, throughput) is split into three parts: the errors from wrong
//! acceptance, from wrong costs and from a wrong schedule. For this, each run is predicted twice more: with the
//! acceptance observed in this run, and with the acceptance and the costs of this run. Two simple predictions, made
//! without a simulation, are reported for comparison.

use crate::calibrate::folder::put;
use crate::calibrate::kept::Kept;
use crate::calibrate::predict_cell::predict_cell;
use crate::calibrate::replay::replay;
use crate::calibrate::source::{Source, load};
use crate::compare::server_runs::ServerComparison;
use foretoken_run::cells::make_folder;
use foretoken_run::spec::problem::Result;
use std::collections::BTreeMap;
use std::path::Path;

/// Predicts the observed `runs` from the calibration `kept`, and compares the predictions with the runs. `fitted` are
/// the runs that the calibration was made from and whose recordings still exist; one of the simple predictions
/// interpolates between them. A run whose draft length cannot be predicted is left out with a warning. Each run that
/// stays is also replayed: Foretoken's scheduler repeats its schedule, and the steps are compared with the run's step
/// log.
pub fn compare(kept: &Kept, runs: &[Source], fitted: &[Source]) -> Result<ServerComparison> {
    let mut by_cell: BTreeMap<(String, u32), Vec<&Source>> = BTreeMap::new();
    let mut warnings = kept.warnings.clone();
    for run in runs {
        let Some(k) = run.k else {
            warnings.push(format!("{}: it drafted several lengths, which no fixed length predicts", run.name()));
            continue;
        };
        if !kept.cost.separated && !kept.cost.draft_lengths.contains(&k) {
            warnings.push(format!("{}: K = {k} cannot be predicted from a calibration at one K", run.name()));
            continue;
        }
        by_cell.entry((load(&run.recording), k)).or_default().push(run);
    }
    let (mut cells, mut replayed) = (Vec::new(), Vec::new());
    for ((load, k), repeats) in by_cell {
        for source in &repeats {
            replayed.extend(replay(source, source.engine.as_ref().unwrap_or(&kept.engine), &kept.cost, k)?);
        }
        cells.extend(predict_cell(kept, fitted, load, k, &repeats)?);
    }
    let deepest = kept.table.as_ref().and_then(|t| t.header.observed.as_ref()).map_or(0, |o| o.seen as u32);
    if cells.iter().any(|c| c.k > deepest) && deepest > 0 {
        warnings.push(format!("acceptance beyond position {deepest} of a round is extrapolated"));
    }
    Ok(ServerComparison::new(cells, replayed, warnings))
}

/// Writes `validation.json`, `validation.txt`, `validation.html` and, if there is a figure, `predicted.svg` into a
/// folder. Replaces existing files.
pub fn write(comparison: &ServerComparison, folder: &Path) -> Result<()> {
    make_folder(folder)?;
    put(folder, "validation.json", comparison.to_json())?;
    put(folder, "validation.txt", comparison.in_words())?;
    if let Some(svg) = comparison.figure() {
        put(folder, "predicted.svg", svg)?;
    }
    put(folder, "validation.html", comparison.page().html())
}
