//! Compares the policies of a validation with each other, by their service rates (requests per second in a closed loop)
//! and by their speedups over the baseline.

use super::cell::{CellReport, PieceRuns, Records};
use super::simulated::{PolicyValue, Simulated};
use crate::compare::numbers::{E2E, Unit};
use crate::compare::rankings::{Ranked, rank};
use crate::compare::service_rate::service_rate;

/// The speedup of each policy, live and simulated: mean E2E of the baseline / mean E2E of the policy. All cells have
/// the same load. A policy without a mean E2E is left out.
pub fn speedups(baseline: &CellReport, cells: &[&CellReport]) -> Vec<PolicyValue> {
    let Some(base) = baseline.row(E2E) else { return Vec::new() };
    let speedup = |cell: &&CellReport| {
        let row = cell.row(E2E)?;
        let live = base.observed.iter().zip(&row.observed).map(|(b, o)| b / o).collect();
        let ratio = |value: fn(&Simulated) -> Option<f64>| {
            value(&base.predicted).zip(value(&row.predicted)).map(|(b, o)| b / o)
        };
        let simulated = Simulated {
            recorded: ratio(|s| s.recorded),
            modelled: ratio(|s| s.modelled),
            learned: ratio(|s| s.learned),
            ..Simulated::default()
        };
        Some(PolicyValue { policy: cell.policy.clone(), rate: simulated.row("speedup", Unit::Plain, live) })
    };
    cells.iter().filter_map(speedup).collect()
}

/// The service rate of a policy, live and simulated, over its pieces: the requests per second that a closed loop of
/// `clients` clients sustains. `None` if the live runs are too short to measure it.
pub fn service(policy: &str, pieces: &[PieceRuns], clients: u32) -> Option<PolicyValue> {
    let pooled = |runs: &mut dyn Iterator<Item = &Records>| service_rate(runs.map(|r| &r.requests), clients);
    let repeats = pieces.iter().map(|p| p.live.len()).max()?;
    let live = |n: usize| pooled(&mut pieces.iter().filter_map(|p| p.live.get(n)));
    let live = (0..repeats).map(live).collect::<Option<Vec<f64>>>()?;
    let simulated = Simulated {
        recorded: pooled(&mut pieces.iter().map(|p| &p.recorded)),
        modelled: pooled(&mut pieces.iter().map(|p| &p.modelled)),
        learned: pooled(&mut pieces.iter().filter_map(|p| p.learned.as_ref())),
        ..Simulated::default()
    };
    Some(PolicyValue { policy: policy.to_owned(), rate: simulated.row("service rate", Unit::Plain, live) })
}

/// Ranks the policies by service rate, and by speedup within each group of `speedups`. A group has the runs with one
/// seed and one combination of values of the experiment's swept settings. Its text names the seed and the values; it is
/// empty if there is only one group. A ranking of fewer than two policies is left out.
pub fn rankings(service: &[PolicyValue], speedups: &[(String, Vec<PolicyValue>)]) -> Vec<Ranked> {
    let ranked = |by: &str, values: &[PolicyValue]| if values.len() > 1 { rank(by, values) } else { None };
    let by_speedup = speedups.iter().filter_map(|(group, values)| {
        let comma = if group.is_empty() { "" } else { ", " };
        ranked(&format!("speedup at the common load{comma}{group}"), values)
    });
    ranked("service rate", service).into_iter().chain(by_speedup).collect()
}
