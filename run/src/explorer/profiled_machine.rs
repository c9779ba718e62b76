//! Reads a profile as a machine, with which the explorer's page opens.

use super::Machine;
use crate::profiled::{self, Either};
use crate::spec::problem::{Problem, Result};
use foretoken_profiler::{Calibrated, Profile, Role, Truth};
use foretoken_sim::{Drafting, PassShape, Time};
use std::path::Path;

/// The machine that the profile `file` describes. The profile has times of single passes, or costs that were fitted to
/// the steps of an observed server. Prints a warning if the file was edited after it was made.
pub fn profiled_machine(file: &Path) -> Result<Machine> {
    let text = crate::spec::text::read(file).map_err(|e| {
        Problem::bad_input(format!("cannot read the profile: {e}"))
            .help("`foretoken profile` and `foretoken calibrate` make one")
    })?;
    let name = file.display().to_string();
    let changed = profiled::changed(&name, &text);
    changed.iter().for_each(|why| eprintln!("warning: {why}"));
    let (mut machine, range, warnings) = match profiled::read_either(&name, &text)? {
        Either::Measured(profile) => (timed(&profile), profile.target.range, profile.distrust().into_iter().collect()),
        Either::Calibrated(server) => {
            let warnings = server.distrust.iter().chain(&server.warnings).cloned().collect::<Vec<_>>();
            (observed(&server), server.target.range, warnings)
        }
    };
    let one_token = PassShape { requests: 1, batched: 1, context: 1, pairs: 1 };
    if machine.target.build().pass(one_token) == Time::ZERO {
        let problem = Problem::bad_input(format!("{name}: a target pass over one token takes no time"));
        return Err(problem
            .help("nothing can be compared with passes that are free: observe K = 0 and K > 0, and calibrate again"));
    }
    let range = format!(
        "The target was measured up to {} requests, {} tokens and {} tokens of context a pass; beyond that its last line goes on.",
        range.requests, range.batched, range.context
    );
    let notes = [std::mem::take(&mut machine.note), range].into_iter().chain(changed).chain(warnings);
    machine.note = notes.collect::<Vec<_>>().join(" ");
    Ok(machine)
}

/// The machine of a profile in which single passes were timed. Its costs are the measured tables of pass times.
fn timed(profile: &Profile) -> Machine {
    let device = &profile.device;
    Machine {
        name: format!("profile {} + {} on {}", profile.target.model.name, profile.draft.model.name, device.name),
        target: profile.truth(Role::Target, Truth::Table),
        draft: profile.truth(Role::Draft, Truth::Table),
        context_reads: profile.reads(Role::Target, Truth::Table),
        drafting: Drafting::Autoregressive,
        // The profile has times of single passes only, so the host's time between passes is not known.
        step_overhead_s: 0.0,
        host: None,
        acceptance: None,
        opens: String::new(),
        measured: true,
        note: format!("Profiled {} on {} ({}).", profile.measured_at, device.name, device.kind),
    }
}

/// The machine of a calibrated profile, whose costs were fitted to the steps of an observed server.
fn observed(server: &Calibrated) -> Machine {
    Machine {
        name: format!("calibrated to {}", server.server),
        target: server.target.cost.clone(),
        draft: server.draft.cost.clone(),
        context_reads: server.context_reads,
        drafting: Drafting::Autoregressive,
        step_overhead_s: server.step_overhead_s,
        host: Some(server.host).filter(|law| !law.is_zero()),
        acceptance: None,
        opens: String::new(),
        measured: true,
        note: "Fitted to observed runs.".into(),
    }
}
