//! Computes the heights of a ladder's rungs from finished runs. A ladder splits a policy's loss against the best oracle
//! into rungs, one for each piece of knowledge that the policy lacks.

use super::plan::{LadderRuns, PolicyRuns};
use crate::plan::Plan;
use crate::spec::document::Choice;
use foretoken_report::Cell;
use foretoken_sim::metrics::Interval;
use serde::Serialize;

/// The ladders of an experiment. For each policy, a ladder shows the loss that comes from each missing piece of
/// knowledge.
#[derive(Clone, Debug, Serialize)]
pub struct Ladders {
    /// The name of the experiment whose policies' losses the ladders split.
    pub name: String,
    /// For which models, hardware, load and bounds the ladders hold, in one line.
    #[serde(skip)]
    pub scope: String,
    /// Number of seeds with which each policy ran.
    pub seeds: usize,
    /// One ladder for each combination of swept values and policy.
    pub ladders: Vec<Ladder>,
}

/// A policy's ladder: its loss, split into rungs, one for each piece of knowledge that the policy lacks. A loss is
/// ln(E2E / E2E of the best oracle), paired by seed.
#[derive(Clone, Debug, Serialize)]
pub struct Ladder {
    /// The label of the policy whose loss is split.
    pub policy: String,
    /// Does the policy draft trees? The other policies of the ladder, which know more than a server can, draft chains.
    pub trees: bool,
    pub sweep: Vec<Choice>,
    /// The loss ln(E2E / E2E of the best oracle) of the policy as the experiment gives it, without added knowledge.
    pub as_is: Interval,
    /// The parts of the policy's loss in the order of [`RUNGS`], one for each piece of knowledge that the policy lacks.
    pub rungs: Vec<Rung>,
}

/// One rung of a ladder: one more piece of knowledge that the policy gets, and the part of the policy's loss that this
/// knowledge removes.
#[derive(Clone, Debug, Serialize)]
pub struct Rung {
    /// The name in [`RUNGS`] of the rung's piece of knowledge, such as `cost` for knowledge of the true cost.
    pub name: &'static str,
    /// Label of the policy in the run that has the true values of this rung (such as costs) and of all earlier ones.
    /// Absent if the policy has no belief that the rung could replace by the truth.
    pub run: Option<String>,
    /// The part of the policy's loss that the rung's knowledge removes: mean over seeds and 95 % interval. Absent if
    /// the policy has no belief that the rung could replace.
    pub height: Option<Interval>,
}

impl Ladders {
    /// Computes every ladder of an experiment. `cells` are the finished runs, in the order of `plan`, which lists them;
    /// `runs` says which policies are on which rung. `None` if no request finished in some run.
    pub fn of(plan: &Plan, runs: &LadderRuns, cells: &[Cell]) -> Option<Ladders> {
        let size = plan.seeds.len() * plan.policies.len();
        let mut ladders = Vec::new();
        for (variant, cells) in plan.variants.iter().zip(cells.chunks(size)) {
            let finished = VariantRuns { plan, cells };
            for policy in &runs.policies {
                ladders.push(finished.climb(policy, runs, &variant.choices)?);
            }
        }
        Some(Ladders { name: plan.name.clone(), scope: crate::scope::of(plan), seeds: plan.seeds.len(), ladders })
    }
}

/// The run of a policy with the knowledge of one rung of a ladder: the policy's label, and ln(mean E2E) for each seed.
/// `None` if the rung does not apply.
type Top = Option<(String, Vec<f64>)>;

/// The finished runs of all policies under one combination of swept values.
struct VariantRuns<'a> {
    plan: &'a Plan,
    cells: &'a [Cell],
}

impl VariantRuns<'_> {
    /// ln(mean E2E) of the runs of the policy `label`, one number per seed. `None` if no request finished in some run.
    fn logs(&self, label: &str) -> Option<Vec<f64>> {
        let n = self.plan.policies.len();
        let at = self.plan.policies.iter().position(|p| p.spec.label() == label)?;
        self.cells.iter().skip(at).step_by(n).map(|c| Some(c.summary.e2e?.mean.ln())).collect()
    }

    /// The policy among `labels` with the least mean E2E, and ln of its mean E2E for each seed.
    fn best<'l>(&self, labels: &'l [String]) -> Option<(&'l str, Vec<f64>)> {
        let mean = |logs: &[f64]| logs.iter().map(|x| x.exp()).sum::<f64>();
        let candidates = labels.iter().filter_map(|label| Some((label.as_str(), self.logs(label)?)));
        candidates.min_by(|a, b| mean(&a.1).total_cmp(&mean(&b.1)))
    }

    fn climb(&self, policy: &PolicyRuns, runs: &LadderRuns, sweep: &[Choice]) -> Option<Ladder> {
        let (oracle, least) = self.best(&runs.oracles)?;
        let as_is = self.logs(&policy.label)?;
        let mut tops: Vec<Top> = Vec::new();
        for label in &policy.wrapped {
            tops.push(match label {
                Some(label) => Some((label.clone(), self.logs(label)?)),
                None => None,
            });
        }
        for forms in &runs.bounds {
            tops.push(self.best(forms).map(|(label, logs)| (label.to_owned(), logs)));
        }
        tops.push(Some((oracle.to_owned(), least.clone())));
        Some(Ladder {
            policy: policy.label.clone(),
            trees: policy.trees,
            sweep: sweep.to_vec(),
            as_is: loss(&as_is, &least)?,
            rungs: heights(as_is, tops),
        })
    }
}

/// `a` − `b`, paired by seed: mean over seeds and 95 % interval. `a` and `b` are ln(mean E2E) for each seed.
fn loss(a: &[f64], b: &[f64]) -> Option<Interval> {
    Interval::of(&a.iter().zip(b).map(|(a, b)| a - b).collect::<Vec<f64>>())
}

/// The rungs of a policy's ladder with their heights: the losses that the knowledge of each rung removes. `as_is` is
/// ln(mean E2E) for each seed of the policy without added knowledge. `tops` are the runs with the knowledge of each
/// rung, in order.
fn heights(as_is: Vec<f64>, tops: Vec<Top>) -> Vec<Rung> {
    let mut below = as_is;
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

/// The number of the first rung that is knowledge which no server has when it drafts.
pub const HIDDEN: usize = 4;

/// The rungs of a ladder in order: (name, the knowledge that the policy gets on this rung).
pub const RUNGS: [(&str, &str); 7] = [
    ("cost", "the true cost of passes instead of its belief"),
    ("calibration", "the true calibration of the draft's confidences"),
    ("rates", "the true acceptance of each request"),
    ("rule", "the best choice for all that was observed, instead of its own rule (knows-rates)"),
    ("confidences", "every confidence of the round before it drafts (knows-confidences)"),
    ("lengths", "the tokens that each request has still to make (knows-lengths)"),
    ("hindsight", "which drafts are right (the best oracle)"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// A ladder splits a policy's loss into rungs, one for each piece of missing knowledge. For any runs, the
        /// heights of the rungs sum to the loss. A rung that does not apply counts as 0.
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
