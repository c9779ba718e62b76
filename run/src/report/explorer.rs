//! Makes the break-even explorer's page beside a report. The explorer opens with the run's hardware, acceptance and
//! batch size.

use crate::explorer::{PAGE, by_depth, page, planned_machine};
use crate::plan::Plan;
use foretoken_report::{Cell, Explorer, Role};
use foretoken_sim::acceptance::Rates;
use foretoken_sim::metrics::PositionCounts;

/// (The explorer's page as HTML, the report's link to this page: file name and initial state). `None` if the costs of
/// passes are not known, as after observing a server.
pub fn of(plan: &Plan, cells: &[Cell]) -> Option<(String, Explorer)> {
    let machine = planned_machine(plan)?;
    let rates: Vec<f64> =
        counts(cells).iter().filter(|p| p.reached > 0).map(|p| p.accepted as f64 / p.reached as f64).collect();
    let acceptance = match &plan.variants[0].experiment.acceptance.source {
        Rates::Constant { .. } => String::new(),
        // The explorer's page cannot draw which tokens are right from recorded acceptance. So the page opens with the
        // acceptance rate of each draft position, which this run counted.
        _ if machine.opens.is_empty() => by_depth(&rates),
        _ => machine.opens.clone(),
    };
    Some((page(Some(&machine)), Explorer { file: PAGE.to_owned(), state: state(cells, &acceptance) }))
}

/// Numbers of verified and of accepted draft tokens by their position in the draft, over all policies that do not see
/// which draft tokens are right. If some policies choose lengths without looking at the requests, only these are
/// counted, because other policies draft more where they expect acceptance.
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

/// The explorer's initial state, as parameters of the page's address. `a` is the probability that the next draft token
/// is accepted. `acceptance` is a further parameter, such as rates by draft position. `n` is the mean batch size over
/// all policies that do not see which draft tokens are right.
fn state(cells: &[Cell], acceptance: &str) -> String {
    let seeing: Vec<&Cell> = cells.iter().filter(|c| !matches!(c.entry.role, Role::Bound | Role::Oracle)).collect();
    let positions = counts(cells);
    let (reached, accepted) =
        (positions.iter().map(|p| p.reached).sum::<u64>(), positions.iter().map(|p| p.accepted).sum::<u64>());
    let mut state = Vec::new();
    if reached > 0 {
        state.push(format!("a={:.3}", accepted as f64 / reached as f64));
    }
    if !acceptance.is_empty() {
        state.push(acceptance.to_owned());
    }
    let sizes: Vec<f64> = seeing.iter().map(|c| c.summary.mean_batch_size).filter(|n| *n >= 1.0).collect();
    if !sizes.is_empty() {
        state.push(format!("n={:.0}", sizes.iter().sum::<f64>() / sizes.len() as f64));
    }
    state.join("&")
}
