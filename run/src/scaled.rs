//! What a fleet that grows and shrinks costs.

use crate::compare::Comparison;
use crate::plan::Plan;
use foretoken_report::Cell;
use foretoken_sim::metrics::{Interval, ReplicaHours, Scaled};
use serde::Serialize;

/// The costs of a policy on a fleet that a rule scales, each as mean over seeds and 95 % interval.
#[derive(Clone, Debug, Serialize)]
pub struct ScaledResult {
    /// GPU-hours of all replicas, from their order to their end.
    pub gpu_hours: Option<Interval>,
    /// GPU-hours of replicas that booted.
    pub booting_gpu_hours: Option<Interval>,
    /// GPU-hours of replicas that served.
    pub serving_gpu_hours: Option<Interval>,
    /// GPU-hours of replicas that drained.
    pub draining_gpu_hours: Option<Interval>,
    /// The most replicas that existed at a time, booting and draining ones included.
    pub most_replicas: Option<Interval>,
    /// Number of decisions that changed the number of replicas.
    pub decisions: Option<Interval>,
    /// Number of requests that did not meet every bound of `[slo]`; absent without bounds.
    pub slo_misses: Option<Interval>,
}

impl Comparison {
    /// Adds what scaling costs. `cells` and `scaled` are in the order of the plan.
    pub(crate) fn add_scaling(&mut self, plan: &Plan, cells: &[Cell], scaled: &[Option<Scaled>]) {
        let n = plan.policies.len();
        let size = plan.seeds.len() * n;
        let of_variants = cells.chunks(size).zip(scaled.chunks(size));
        for ((variant, result), (cells, scaled)) in plan.variants.iter().zip(&mut self.variants).zip(of_variants) {
            for (at, policy) in result.policies.iter_mut().enumerate() {
                let own = cells.iter().zip(scaled).skip(at).step_by(n);
                let own: Option<Vec<(&Cell, &Scaled)>> = own.map(|(c, s)| Some((c, s.as_ref()?))).collect();
                policy.scaled = own.map(|own| ScaledResult::of(&own, variant.gpus_of_one()));
            }
        }
    }
}

impl ScaledResult {
    fn of(cells: &[(&Cell, &Scaled)], gpus: u32) -> ScaledResult {
        let mean = |of: &dyn Fn(&Cell, &Scaled) -> Option<f64>| {
            let values: Option<Vec<f64>> = cells.iter().map(|(cell, scaled)| of(cell, scaled)).collect();
            values.and_then(|values| Interval::of(&values))
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
