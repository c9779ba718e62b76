//! Makes the break-even explorer's page beside a report. The explorer opens with the run's hardware, acceptance and
//! batch size.

use crate::explorer::{Acceptance, Machine, PAGE, page};
use crate::plan::Plan;
use foretoken_report::{Cell, Explorer, Role};
use foretoken_sim::acceptance::Rates;
use foretoken_sim::metrics::PositionCounts;
use foretoken_sim::{PassShape, Time};

/// (The explorer's page as HTML, the report's link to this page: file name and initial state). `None` if the costs of
/// passes are not known, as after observing a server.
pub fn of(plan: &Plan, cells: &[Cell]) -> Option<(String, Explorer)> {
    let hardware = &plan.variants[0].experiment.hardware;
    let one_token = PassShape { requests: 1, batched: 1, context: 1, pairs: 1 };
    if hardware.target.build().pass(one_token) == Time::ZERO {
        return None;
    }
    let profile = hardware.profile.as_ref().map(|p| p.display().to_string());
    let mut note = match &profile {
        Some(file) => format!("Measured: {file}."),
        None => "Not measured: what the experiment says of its hardware.".to_owned(),
    };
    if plan.variants[0].choices.iter().any(|c| c.path.to_string().starts_with("hardware.")) {
        note += " The run sweeps its hardware; this is its first setting.";
    }
    let experiment = &plan.variants[0].experiment;
    let source = &experiment.acceptance.source;
    // A constant rate and rates by depth are settings of the page.
    let is_typed = matches!(source, Rates::Constant { .. } | Rates::ByDepth { .. });
    let acceptance = if is_typed { None } else { Acceptance::drawn(source) };
    let counted = if acceptance.is_some() { "acc=run".to_owned() } else { by_depth(source, cells) };
    let machine = Machine {
        name: format!("hardware of the run {}", plan.name),
        target: hardware.target.clone(),
        draft: hardware.draft.clone(),
        context_reads: hardware.context_reads,
        drafting: hardware.drafting,
        step_overhead_s: experiment.engine.step_overhead_s,
        host: Some(experiment.engine.host).filter(|law| !law.is_zero()),
        acceptance,
        measured: profile.is_some(),
        note,
    };
    Some((page(Some(&machine)), Explorer { file: PAGE.to_owned(), state: state(cells, &counted) }))
}

/// The part of the address with rates by place in the round; empty for a constant rate. Recordings have no law. Their
/// rates are what the run counted.
fn by_depth(source: &Rates, cells: &[Cell]) -> String {
    let rates: Vec<f64> = match source {
        Rates::Constant { .. } => return String::new(),
        Rates::ByDepth { rates } => rates.clone(),
        _ => counts(cells).iter().filter(|p| p.reached > 0).map(|p| p.accepted as f64 / p.reached as f64).collect(),
    };
    let rates: Vec<String> = rates.iter().take(16).map(|rate| format!("{}", (rate * 1e4).round() / 1e4)).collect();
    if rates.is_empty() { String::new() } else { format!("acc=by-depth&rates={}", rates.join(",")) }
}

/// Counts by place in the round, over all policies that see no hidden truth. If some policies choose lengths without
/// looking at the requests, only these are counted, because other policies draft more where they expect acceptance.
fn counts(cells: &[Cell]) -> Vec<PositionCounts> {
    let mut sums: Vec<PositionCounts> = Vec::new();
    let seeing = || cells.iter().filter(|c| !matches!(c.entry.role, Role::Bound | Role::Oracle));
    let blind = seeing().any(|c| c.entry.blind && c.summary.drafted > 0);
    for cell in seeing().filter(|c| !blind || c.entry.blind) {
        for (place, p) in cell.summary.positions.iter().enumerate() {
            if place == sums.len() {
                sums.push(PositionCounts { attempts: 0, reached: 0, accepted: 0 });
            }
            sums[place].attempts += p.attempts;
            sums[place].reached += p.reached;
            sums[place].accepted += p.accepted;
        }
    }
    sums
}

/// The explorer's initial state, for the page's address. `a` is the probability that the next draft is accepted, and
/// `counted` says more of it; `n` is the mean batch size over all policies that see no hidden truth.
fn state(cells: &[Cell], counted: &str) -> String {
    let seeing: Vec<&Cell> = cells.iter().filter(|c| !matches!(c.entry.role, Role::Bound | Role::Oracle)).collect();
    let positions = counts(cells);
    let (reached, accepted) =
        (positions.iter().map(|p| p.reached).sum::<u64>(), positions.iter().map(|p| p.accepted).sum::<u64>());
    let mut state = Vec::new();
    if reached > 0 {
        state.push(format!("a={:.3}", accepted as f64 / reached as f64));
    }
    if !counted.is_empty() {
        state.push(counted.to_owned());
    }
    let sizes: Vec<f64> = seeing.iter().map(|c| c.summary.mean_batch_size).filter(|n| *n >= 1.0).collect();
    if !sizes.is_empty() {
        state.push(format!("n={:.0}", sizes.iter().sum::<f64>() / sizes.len() as f64));
    }
    state.join("&")
}
