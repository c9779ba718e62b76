//! `fleet.parquet`: the fleets that a search for the fewest replicas tried, one row per number of replicas.

use super::column::{Column, column};
use super::writer::Table;
use crate::{Key, ReportError};
use std::path::Path;

/// The results of one tried number of replicas, for one policy with one seed.
#[derive(Clone, Debug)]
pub struct FleetProbeRow {
    /// Policy, swept values and seed of the search for the fewest replicas.
    pub key: Key,
    /// Name of the router.
    pub router: String,
    /// Number of replicas that was tried.
    pub replicas: u32,
    /// Number of GPUs of the fleet.
    pub gpus: u32,
    /// Price of the fleet for an hour, in the currency of `fleet.price_gpu_hour`.
    pub cost_hour: f64,
    /// Did enough requests keep their SLO bounds, and did the fleet keep up with the arrivals?
    pub carried: bool,
    /// Number of counted requests, number that had kept their SLO bounds when the run ended, and number that had missed
    /// a bound. The first requests of a run fill the fleet, and the last requests keep it full, so they are not
    /// counted.
    pub counted: [u32; 3],
    /// Did the fleet keep up with the arrivals? `None` if the run was stopped early.
    pub steady: Option<bool>,
    /// P99 of TTFT, TPOT and E2E, seconds; `None` if the run was stopped early.
    pub p99_s: [Option<f64>; 3],
}

/// Writes `fleet.parquet`.
///
/// Columns after the key columns (policy, swept settings, seed): `router`, `replicas`, `gpus`, `cost_hour`, `carried`,
/// `counted`, `kept`, `missed` (requests), `steady`, `ttft_p99_s`, `tpot_p99_s`, `e2e_p99_s` (null where the run was
/// stopped early).
///
/// # Errors
/// When the file cannot be written, or the rows do not all sweep the same settings.
pub fn write_fleet_probes(path: &Path, rows: &[FleetProbeRow]) -> Result<(), ReportError> {
    let keys: Vec<&Key> = rows.iter().map(|row| &row.key).collect();
    let mut table = Table::create(path, keys.iter().copied(), columns(&[]))?;
    table.write(&keys, columns(rows))?;
    table.finish()
}

fn columns(rows: &[FleetProbeRow]) -> Vec<Column> {
    let requests = |name, which: usize| column(name, rows.iter().map(|r| r.counted[which]).collect::<Vec<_>>());
    let p99 = |name, which: usize| column(name, rows.iter().map(|r| r.p99_s[which]).collect::<Vec<_>>());
    vec![
        column("router", rows.iter().map(|r| r.router.as_str())),
        column("replicas", rows.iter().map(|r| r.replicas)),
        column("gpus", rows.iter().map(|r| r.gpus)),
        column("cost_hour", rows.iter().map(|r| r.cost_hour)),
        column("carried", rows.iter().map(|r| r.carried)),
        requests("counted", 0),
        requests("kept", 1),
        requests("missed", 2),
        column("steady", rows.iter().map(|r| r.steady)),
        p99("ttft_p99_s", 0),
        p99("tpot_p99_s", 1),
        p99("e2e_p99_s", 2),
    ]
}
