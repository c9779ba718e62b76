//! Makes the break-even explorer's page beside a report. It opens with the run's hardware, acceptance and batch size.

use crate::explorer::{Machine, PAGE, page};
use crate::plan::Plan;
use foretoken_report::{Cell, Explorer, Role};
use foretoken_sim::{PassShape, Time};

/// The explorer's page as HTML, and the report's link to it (file name and initial state). `None` if the costs of
/// passes are not known, as after observing a server.
pub fn of(plan: &Plan, cells: &[Cell]) -> Option<(String, Explorer)> {
    let hardware = &plan.variants[0].experiment.hardware;
    let one_token = PassShape { requests: 1, batched: 1, context: 1, pairs: 1 };
    if hardware.target.build().pass(one_token) == Time::ZERO {
        return None;
    }
    let profile =
        hardware.profile.as_ref().map(|p| p.file_name().unwrap_or(p.as_os_str()).to_string_lossy().into_owned());
    let mut note = match &profile {
        Some(file) => format!("Measured: {file}."),
        None => "Not measured: what the experiment says of its hardware.".to_owned(),
    };
    if plan.variants[0].choices.iter().any(|c| c.path.to_string().starts_with("hardware.")) {
        note += " The run sweeps its hardware; this is its first setting.";
    }
    let machine = Machine {
        name: format!("hardware of the run {}", plan.name),
        target: hardware.target.clone(),
        draft: hardware.draft.clone(),
        context_reads: hardware.context_reads,
        drafting: hardware.drafting,
        step_overhead_s: plan.variants[0].experiment.engine.step_overhead_s,
        measured: profile.is_some(),
        note,
    };
    Some((page(Some(&machine)), Explorer { file: PAGE.to_owned(), state: state(cells) }))
}

/// The explorer's initial state, for the page's address: `a`, the probability that a next draft is accepted, and `n`,
/// the mean batch size, over all policies that see no hidden truth. If some policies draft the same length for every
/// request, `a` is measured on these only, because other policies draft more where they expect acceptance.
fn state(cells: &[Cell]) -> String {
    let seeing: Vec<&Cell> = cells.iter().filter(|c| !matches!(c.entry.role, Role::Bound | Role::Oracle)).collect();
    let blind = seeing.iter().any(|c| c.entry.blind && c.summary.drafted > 0);
    let positions = || seeing.iter().filter(|c| !blind || c.entry.blind).flat_map(|c| &c.summary.positions);
    let (reached, accepted) =
        (positions().map(|p| p.reached).sum::<u64>(), positions().map(|p| p.accepted).sum::<u64>());
    let mut state = Vec::new();
    if reached > 0 {
        state.push(format!("a={:.3}", accepted as f64 / reached as f64));
    }
    let sizes: Vec<f64> = seeing.iter().map(|c| c.summary.mean_batch_size).filter(|n| *n >= 1.0).collect();
    if !sizes.is_empty() {
        state.push(format!("n={:.0}", sizes.iter().sum::<f64>() / sizes.len() as f64));
    }
    state.join("&")
}
