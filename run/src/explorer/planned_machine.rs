//! Makes the machine with which the explorer's page opens from an experiment's first combination of swept values.

use super::{Acceptance, Machine};
use crate::plan::Plan;
use foretoken_profiler::hardware::LatencySpec;
use foretoken_sim::acceptance::Rates;
use foretoken_sim::{PassShape, Time};

/// The machine of the first combination of swept values: hardware, host time (scheduler, Python, kernel launches) and
/// acceptance. `None` if the costs of passes are not known, as after observing a server, or are summed from kernels,
/// which the page cannot do.
pub fn planned_machine(plan: &Plan) -> Option<Machine> {
    let experiment = &plan.variants[0].experiment;
    let hardware = &experiment.hardware;
    if [&hardware.target, &hardware.draft].iter().any(|costs| matches!(costs, LatencySpec::Kernels(_))) {
        return None;
    }
    let one_token = PassShape { requests: 1, batched: 1, context: 1, pairs: 1 };
    if hardware.target.build().pass(one_token) == Time::ZERO {
        return None;
    }
    // A page may be copied to another computer, so it names a file without its folders.
    let name = |p: &std::path::PathBuf| p.file_name().unwrap_or(p.as_os_str()).to_string_lossy().into_owned();
    let profile = hardware.profile.as_ref().map(name);
    let mut note = match &profile {
        Some(file) => format!("Measured: {file}."),
        None => "Costs are stated by the experiment, not measured.".to_owned(),
    };
    if plan.variants[0].choices.iter().any(|c| c.path.to_string().starts_with("hardware.")) {
        note += " The run sweeps its hardware; this is its first setting.";
    }
    let source = &experiment.acceptance.source;
    // The explorer's page has settings for a constant acceptance rate and for rates by draft position. For other
    // acceptance sources, numbers are drawn here.
    let (acceptance, opens) = match source {
        Rates::Constant { rate } => (None, format!("a={rate}")),
        Rates::ByDepth { rates } => (None, by_depth(rates)),
        _ => match Acceptance::drawn(source) {
            Some(drawn) => (Some(drawn), "acc=run".to_owned()),
            None => (None, String::new()),
        },
    };
    Some(Machine {
        name: format!("hardware of the run {}", plan.name),
        target: hardware.target.clone(),
        draft: hardware.draft.clone(),
        context_reads: hardware.context_reads,
        drafting: hardware.drafting,
        step_overhead_s: experiment.engine.step_overhead_s,
        host: Some(experiment.engine.host).filter(|law| !law.is_zero()),
        acceptance,
        opens,
        measured: profile.is_some(),
        note,
    })
}

/// The part of the explorer's URL hash that gives the acceptance rate at each draft position (at most 32), such as
/// `acc=by-depth&rates=0.8,0.7`; empty without rates.
pub fn by_depth(rates: &[f64]) -> String {
    let rates: Vec<String> = rates.iter().take(32).map(|rate| ((rate * 1e4).round() / 1e4).to_string()).collect();
    if rates.is_empty() { String::new() } else { format!("acc=by-depth&rates={}", rates.join(",")) }
}
