//! The heights of the rungs, from finished cells.

use super::plan::{Way, Ways};
use super::rungs::RUNGS;
use crate::plan::Plan;
use foretoken_report::Cell;
use foretoken_sim::metrics::Interval;
use foretoken_spec::document::Choice;
use serde::Serialize;

/// The ladders of an experiment.
#[derive(Clone, Debug, Serialize)]
pub struct Ladders {
    /// The name of the experiment.
    pub name: String,
    /// Number of seeds.
    pub seeds: usize,
    /// One ladder for each policy and combination of swept values.
    pub ladders: Vec<Ladder>,
}

/// A policy's ladder. Losses are 100 ln(E2E / E2E of the best oracle), paired by seed.
#[derive(Clone, Debug, Serialize)]
pub struct Ladder {
    /// The policy's label.
    pub policy: String,
    /// Does it draft trees? The bounds and oracles draft chains.
    pub trees: bool,
    /// The combination of swept values.
    pub sweep: Vec<Choice>,
    /// The policy's loss as it is.
    pub as_is: Interval,
    /// The rungs, in their order.
    pub rungs: Vec<Rung>,
}

/// One rung.
#[derive(Clone, Debug, Serialize)]
pub struct Rung {
    /// Its name.
    pub name: &'static str,
    /// The run at its top; absent if the rung does not apply.
    pub run: Option<String>,
    /// The loss that goes away on it; absent if the rung does not apply.
    pub height: Option<Interval>,
}

impl Ladders {
    /// Climbs every ladder of a plan. `cells` are its finished cells, in its order. `None` if a run finished no
    /// request.
    pub fn of(plan: &Plan, ways: &Ways, cells: &[Cell]) -> Option<Ladders> {
        let size = plan.seeds.len() * plan.policies.len();
        let mut ladders = Vec::new();
        for (variant, cells) in plan.variants.iter().zip(cells.chunks(size)) {
            let all = Runs { plan, cells };
            for way in &ways.ways {
                ladders.push(all.climb(way, ways, &variant.choices)?);
            }
        }
        Some(Ladders { name: plan.name.clone(), seeds: plan.seeds.len(), ladders })
    }
}

/// The run at the top of a rung: its label and ln(E2E) by seed; `None` if the rung does not apply.
type Top = Option<(String, Vec<f64>)>;

/// The runs under one combination of swept values.
struct Runs<'a> {
    plan: &'a Plan,
    cells: &'a [Cell],
}

impl Runs<'_> {
    /// ln(mean E2E) of a policy's runs, by seed.
    fn logs(&self, label: &str) -> Option<Vec<f64>> {
        let n = self.plan.policies.len();
        let at = self.plan.policies.iter().position(|p| p.spec.label() == label)?;
        self.cells.iter().skip(at).step_by(n).map(|c| Some(c.summary.e2e?.mean.ln())).collect()
    }

    /// The form with the least mean E2E, and its logarithms.
    fn best<'l>(&self, labels: &'l [String]) -> Option<(&'l str, Vec<f64>)> {
        let mean = |logs: &[f64]| logs.iter().map(|x| x.exp()).sum::<f64>();
        let all = labels.iter().filter_map(|label| Some((label.as_str(), self.logs(label)?)));
        all.min_by(|a, b| mean(&a.1).total_cmp(&mean(&b.1)))
    }

    fn climb(&self, way: &Way, ways: &Ways, sweep: &[Choice]) -> Option<Ladder> {
        let (oracle, bottom) = self.best(&ways.oracles)?;
        let own = self.logs(&way.policy)?;
        let mut tops: Vec<Top> = Vec::new();
        for label in &way.wrapped {
            tops.push(match label {
                Some(label) => Some((label.clone(), self.logs(label)?)),
                None => None,
            });
        }
        for forms in &ways.bounds {
            tops.push(self.best(forms).map(|(label, logs)| (label.to_owned(), logs)));
        }
        tops.push(Some((oracle.to_owned(), bottom.clone())));
        Some(Ladder {
            policy: way.policy.clone(),
            trees: way.trees,
            sweep: sweep.to_vec(),
            as_is: loss(&own, &bottom)?,
            rungs: heights(own, tops),
        })
    }
}

/// The mean over seeds of a − b, paired.
fn loss(a: &[f64], b: &[f64]) -> Option<Interval> {
    Interval::of(&a.iter().zip(b).map(|(a, b)| a - b).collect::<Vec<f64>>())
}

/// The rungs from ln(E2E) of a policy as it is, by seed, over the runs at their tops.
fn heights(own: Vec<f64>, tops: Vec<Top>) -> Vec<Rung> {
    let mut below = own;
    let mut rungs = Vec::new();
    for ((name, _), top) in RUNGS.into_iter().zip(tops) {
        let Some((label, logs)) = top else {
            rungs.push(Rung { name, run: None, height: None });
            continue;
        };
        let height = loss(&below, &logs);
        below = logs;
        rungs.push(Rung { name, run: Some(label), height });
    }
    rungs
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever the runs are and whichever rungs do not apply, the heights sum to the loss, dashes being 0.
        #[test]
        fn the_rungs_sum_to_the_loss(
            own in prop::collection::vec(-3.0f64..3.0, 3),
            tops in prop::collection::vec(prop::option::of(prop::collection::vec(-3.0f64..3.0, 3)), 6),
            bottom in prop::collection::vec(-3.0f64..3.0, 3),
        ) {
            let mut named: Vec<_> = tops.into_iter().map(|top| top.map(|logs| ("run".to_owned(), logs))).collect();
            named.push(Some(("oracle".to_owned(), bottom.clone())));
            let dashes: Vec<bool> = named.iter().map(Option::is_none).collect();
            let rungs = heights(own.clone(), named);
            prop_assert_eq!(rungs.len(), RUNGS.len());
            let sum: f64 = rungs.iter().filter_map(|rung| rung.height).map(|h| h.mean).sum();
            prop_assert!((sum - loss(&own, &bottom).unwrap().mean).abs() < 1e-12);
            for (rung, dash) in rungs.iter().zip(dashes) {
                prop_assert_eq!(rung.height.is_none(), dash);
            }
        }
    }
}
