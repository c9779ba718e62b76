//! The facts on an experiment's fleet that reports show: its router, and the pool to which each replica belongs.

use crate::plan::Variant;
use foretoken_fleet::Role;
use foretoken_report::FleetEntry;

/// The router and the pool (`prefill`, `decode` or `replica`) of each replica of an experiment's fleet, for reports.
/// `None` without a fleet of several replicas.
pub fn fleet_entry(variant: &Variant) -> Option<FleetEntry> {
    let spec = variant.experiment.fleet.as_ref().filter(|_| variant.is_fleet())?;
    let pool = |role: Role| match role {
        Role::Both => "replica",
        Role::Prefill => "prefill",
        Role::Decode => "decode",
    };
    let kinds = spec.replicas.kinds();
    let pools = kinds.iter().flat_map(|kind| std::iter::repeat_n(pool(kind.role), kind.count as usize)).collect();
    Some(FleetEntry { router: spec.router.name().to_owned(), pools })
}
