//! The costs, such as GPU-hours, of a fleet whose number of replicas a scaling rule changes during the run.

use crate::plan::Plan;
use foretoken_report::Cell;
use foretoken_sim::metrics::{Interval, Range, ReplicaHours, Scaled};
use serde::{Deserialize, Serialize};

/// The costs of one policy's fleet, whose number of replicas a scaling rule changes; each number as mean over seeds and
/// 95 % interval.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ScaledResult {
    /// GPU-hours of all replicas. A replica counts from the time at which the scaling rule ordered it until its end.
    pub gpu_hours: Option<Interval>,
    /// GPU-hours that replicas spent booting, before they could serve.
    pub booting_gpu_hours: Option<Interval>,
    /// GPU-hours that replicas spent serving requests or ready to serve them.
    pub serving_gpu_hours: Option<Interval>,
    /// GPU-hours that replicas spent draining: they finish their requests and take no new ones.
    pub draining_gpu_hours: Option<Interval>,
    /// The most replicas that existed at a time, booting and draining ones included.
    pub most_replicas: Option<Interval>,
    /// Number of decisions of the scaling rule that changed the number of replicas.
    pub decisions: Option<Interval>,
    /// Number of requests that did not meet every latency bound of the experiment's `[slo]` table; absent without
    /// bounds.
    pub slo_misses: Option<Interval>,
}

/// The costs of fleets whose number of replicas a scaling rule changes: one entry for each variant and each policy, in
/// the order of `plan`. `cells` (finished runs) and `scaled` have one entry per run, in the order in which `plan` lists
/// the runs.
pub(crate) fn costs(plan: &Plan, cells: &[Cell], scaled: &[Option<Scaled>]) -> Vec<Option<ScaledResult>> {
    let n = plan.policies.len();
    let size = plan.seeds.len() * n;
    let of_variants = cells.chunks(size).zip(scaled.chunks(size));
    let mut costs = Vec::with_capacity(plan.variants.len() * n);
    for (variant, (cells, scaled)) in plan.variants.iter().zip(of_variants) {
        for at in 0..n {
            let own = cells.iter().zip(scaled).skip(at).step_by(n);
            let own: Option<Vec<(&Cell, &Scaled)>> = own.map(|(c, s)| Some((c, s.as_ref()?))).collect();
            costs.push(own.map(|own| ScaledResult::of(&own, variant.gpus_of_one())));
        }
    }
    costs
}

impl ScaledResult {
    fn of(cells: &[(&Cell, &Scaled)], gpus: u32) -> ScaledResult {
        let mean = |of: &dyn Fn(&Cell, &Scaled) -> Option<f64>| {
            let values: Option<Vec<f64>> = cells.iter().map(|(cell, scaled)| of(cell, scaled)).collect();
            values.and_then(|values| Interval::within(Range::FromZero, &values))
        };
        let hours = |of: fn(&ReplicaHours) -> f64| mean(&|_, scaled| Some(of(&scaled.hours()) * f64::from(gpus)));
        let most = |scaled: &Scaled| scaled.over_time().iter().map(|row| row.1.iter().sum::<u32>()).max();
        ScaledResult {
            gpu_hours: hours(ReplicaHours::total),
            booting_gpu_hours: hours(|hours| hours.booting),
            serving_gpu_hours: hours(|hours| hours.serving),
            draining_gpu_hours: hours(|hours| hours.draining),
            most_replicas: mean(&|_, scaled| most(scaled).map(f64::from)),
            decisions: mean(&|_, scaled| Some(scaled.decisions.len() as f64)),
            slo_misses: mean(&|cell, _| {
                let ended = (cell.summary.finished + cell.summary.rejected) as f64;
                cell.summary.slo_attainment.map(|met| ((1.0 - met) * ended).round())
            }),
        }
    }
}
