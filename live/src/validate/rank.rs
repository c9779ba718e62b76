//! Compares policies with each other: their service rates, and their speedups over the baseline.

use super::beside::Beside;
use super::compare::{self, CellReport};
use super::numbers::{Unit, service_rate};
use super::runs::{Load, RunEntry};
use super::verdict::{self, Ranked, Service};
use crate::serve::tape::Told;
use foretoken_spec::validate::ValidateSpec;

/// A cell with at least one piece that counts.
pub struct Found {
    /// The cell's entry in the list of runs.
    pub entry: RunEntry,
    /// The cell's comparison.
    pub cell: CellReport,
    /// The service rate, for a closed loop.
    pub rate: Option<Service>,
}

/// Speedup of each policy at the common load: mean E2E of the baseline over the policy's mean E2E.
pub fn speedups(found: &[&Found], spec: &ValidateSpec) -> Vec<Service> {
    let at_common = |f: &&&Found| match f.entry.load {
        Load::Common(_) | Load::AsRun => true,
        Load::Own(share) => f.entry.policy == 0 && share == spec.common_load,
        Load::Closed(_) => false,
    };
    let common: Vec<&&Found> = found.iter().filter(at_common).collect();
    let Some(base) = common.iter().find(|f| f.entry.policy == 0).and_then(|f| f.cell.row(E2E)) else {
        return Vec::new();
    };
    let over = |f: &&&Found| {
        let own = f.cell.row(E2E)?;
        let live = base.live.iter().zip(&own.live).map(|(b, o)| b / o).collect();
        let simulated = |b: Option<f64>, o: Option<f64>| b.zip(o).map(|(b, o)| b / o);
        let all = [
            simulated(base.recorded, own.recorded),
            simulated(base.modelled, own.modelled),
            simulated(base.learned, own.learned),
        ];
        let rate = compare::row("speedup", Unit::Plain, live, all);
        Some(Service { policy: f.cell.policy.clone(), rate })
    };
    common.iter().filter_map(over).collect()
}

const E2E: &str = "E2E, mean";

/// The service rate of a closed loop's pieces, live and simulated.
pub fn service(policy: &str, pieces: &[Beside], clients: u32) -> Option<Service> {
    let pooled = |of: &mut dyn Iterator<Item = &Told>| service_rate(of.map(|t| &t.records), clients);
    let parts = pieces.iter().map(|p| p.live.len()).max()?;
    let live = |part: usize| pooled(&mut pieces.iter().filter_map(|p| p.live.get(part)));
    let live = (0..parts).map(live).collect::<Option<Vec<f64>>>()?;
    let recorded = pooled(&mut pieces.iter().map(|p| &p.recorded));
    let modelled = pooled(&mut pieces.iter().map(|p| &p.modelled));
    let learned = pooled(&mut pieces.iter().filter_map(|p| p.learned.as_ref()));
    let rate = compare::row("service rate", Unit::Plain, live, [recorded, modelled, learned]);
    Some(Service { policy: policy.to_owned(), rate })
}

/// Ranks the policies by service rate and by speedup.
pub fn rankings(service: &[Service], speedups: &[(String, Vec<Service>)]) -> Vec<Ranked> {
    let of = |by: &str, all: &[Service]| if all.len() > 1 { verdict::rank(by, all) } else { None };
    let by_speedup = speedups.iter().filter_map(|(group, of_group)| {
        let comma = if group.is_empty() { "" } else { ", " };
        of(&format!("speedup at the common load{comma}{group}"), of_group)
    });
    of("service rate", service).into_iter().chain(by_speedup).collect()
}
