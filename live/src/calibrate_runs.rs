//! Fits a calibrated profile to the passes of live runs (`foretoken calibrate` with folders of live runs).

use crate::learned::Learned;
use crate::validate::{Recording, Runs, Tapes, paces, usual_of, usual_passes};
use foretoken_profiler::hardware::LatencySpec;
use foretoken_profiler::{ProbedPass, Served};
use foretoken_run::cells::{Manifest, TAPES, digest};
use foretoken_run::spec::problem::{Problem, Result};
use foretoken_servers::calibrate::held_out::HeldOutRun;
use foretoken_servers::calibrate::kept::Input;
use foretoken_servers::calibrate::live::{LiveCalibration, LiveFound};
use foretoken_servers::calibrate::verdict::Verdict;
use foretoken_sim::Pair;
use std::path::PathBuf;

/// A live run with its timed passes.
struct Run {
    /// The cell that the run belongs to: (index of the folder, index of the cell in the folder). Runs of one cell
    /// have the same policy and load.
    cell: (usize, usize),
    input: Input,
    policy: String,
    device: String,
    learned: Learned,
}

/// Fits a calibrated profile to the live runs in `folders`. If the runs belong to several cells, it also predicts each
/// run with costs that are fitted only to the runs of the other cells. If one of these predictions is wrong by more
/// than 10 %, or if there is only one cell, the profile says why its users should distrust it (`distrust`).
pub fn calibrate(folders: &[PathBuf]) -> Result<LiveCalibration> {
    let (mut runs, mut probes) = (Vec::new(), Vec::new());
    for (nth, folder) in folders.iter().enumerate() {
        runs.extend(read((nth, folder), &mut probes)?);
    }
    let mut all = Learned::default();
    runs.iter().for_each(|run| all.extend(&run.learned));
    let Some(first) = runs.first().filter(|_| all.steps() > 0) else {
        return Err(Problem::bad_input("these runs hold no step").help("give folders of runs that went on for a while"));
    };
    let fitted_to = runs.iter().map(|run| run.input.blake3.clone()).collect();
    let mut profile = all.calibrated(first.device.clone(), probes, fitted_to).map_err(|e| {
        Problem::bad_input(format!("these runs do not tell what passes cost: {e}"))
            .help("give runs of several loads and draft lengths: batches and contexts must vary")
    })?;
    let several = runs.iter().any(|run| run.cell != runs[0].cell);
    let held_out = if several { runs.iter().map(|run| held_out(run, &runs)).collect() } else { vec![] };
    let verdict = Verdict::of_live(&held_out);
    profile.distrust = verdict.distrust();
    let found = LiveFound {
        foretoken: env!("CARGO_PKG_VERSION").into(),
        passes: (all.target.len() as u64, all.draft.len() as u64),
        held_out,
        verdict,
        inputs: runs.into_iter().map(|run| run.input).collect(),
    };
    Ok(LiveCalibration { profile, found })
}

/// Reads the live runs of `folder`, the folder with index `nth`. `probes` are passes of fixed shapes that show the
/// machine's usual speed. If the list is empty, this folder's probes are stored in it. The pass times of each run are
/// scaled to the machine speed that `probes` show.
fn read((nth, folder): (usize, &PathBuf), probes: &mut Vec<ProbedPass>) -> Result<Vec<Run>> {
    let (runs, manifest) = (Runs::of(folder)?, Manifest::read(folder)?);
    runs.check(folder, &manifest)?;
    if probes.is_empty() {
        *probes = usual_passes(&runs);
    }
    let paces = paces(&runs, &usual_of(&runs, probes));
    let tapes = Tapes { folder, manifest: &manifest, intact: false };
    let mut all = Vec::new();
    let cells = runs.entries.iter().zip(&paces).enumerate();
    let pieces = cells.flat_map(|(cell, (entry, paces))| entry.pieces.iter().zip(paces).map(move |of| (cell, of)));
    for (cell, name, pace) in pieces.flat_map(|(c, (piece, pace))| piece.tapes.iter().map(move |name| (c, name, pace)))
    {
        let Recording::Of(tape) = tapes.read(name)? else { continue };
        let path = folder.join(TAPES).join(name);
        let blake3 = digest(&path).map_err(|e| Problem::failed(format!("cannot read {}: {e}", path.display())))?;
        let mut learned = Learned::default();
        learned.add(&tape, |role, tokens| pace.factor(role, tokens));
        let what = format!("live: {}, {} steps", tape.head.policy, tape.steps.len());
        let input = Input { path: path.display().to_string(), blake3, what };
        all.push(Run { cell: (nth, cell), input, policy: tape.head.policy, device: tape.head.device, learned });
    }
    Ok(all)
}

/// Predicts the passes of `run` with costs that are fitted to the runs of all other cells (a cell is a policy at a
/// load). Returns the errors for the target and the draft. An error is `None` if the run or the other cells have no
/// passes of the model.
fn held_out(run: &Run, all: &[Run]) -> HeldOutRun {
    let mut others = Learned::default();
    all.iter().filter(|other| other.cell != run.cell).for_each(|other| others.extend(&other.learned));
    let costs = others.costs();
    let off =
        |cost: fn(&Pair<LatencySpec>) -> &LatencySpec, served: &Served| served.error(&*cost(costs.as_ref()?).build());
    HeldOutRun {
        policy: run.policy.clone(),
        tape: run.input.path.clone(),
        target: off(|costs| &costs.target, &run.learned.target),
        draft: off(|costs| &costs.draft, &run.learned.draft).filter(|_| !others.draft.is_empty()),
    }
}
