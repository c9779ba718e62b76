//! Identifies the cells of a plan.

use crate::plan::Plan;
use foretoken_report::{Key, Swept};
use foretoken_spec::document::Choice;

/// Names a cell by its indices into a plan's variants, seeds and policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellId {
    /// Index into the plan's variants (combinations of swept values).
    pub variant: usize,
    /// Index into the plan's seeds.
    pub seed: usize,
    /// Index into the plan's policies.
    pub policy: usize,
}

/// All cells in the order of the plan: swept values vary slowest, then seeds, then policies.
pub fn ids(plan: &Plan) -> impl Iterator<Item = CellId> + '_ {
    let (seeds, policies) = (plan.seeds.len(), plan.policies.len());
    (0..plan.cells()).map(move |i| CellId {
        variant: i / (seeds * policies),
        seed: i / policies % seeds,
        policy: i % policies,
    })
}

/// The key by which tables name a cell: label of the policy, swept values and seed.
pub fn key(plan: &Plan, id: CellId) -> Key {
    let (policy, seed) = (plan.policies[id.policy].spec.label(), plan.seeds[id.seed]);
    Key { policy, sweep: swept(plan, id.variant), seed }
}

/// The swept values of variant number `variant` of the plan.
pub fn swept(plan: &Plan, variant: usize) -> Vec<Swept> {
    let one =
        |c: &Choice| Swept { path: c.path.clone(), value: c.value.clone(), number: c.number.filter(|n| n.is_finite()) };
    plan.variants[variant].choices.iter().map(one).collect()
}
