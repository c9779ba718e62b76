//! Which cell.

use crate::plan::Plan;
use foretoken_report::{Key, Swept};
use foretoken_spec::document::Choice;

/// Which cell: indices into a plan's variants, seeds and policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellId {
    /// Combination of swept values.
    pub variant: usize,
    /// Seed.
    pub seed: usize,
    /// Policy.
    pub policy: usize,
}

/// All cells: swept values slowest, then seeds, then policies.
pub fn ids(plan: &Plan) -> impl Iterator<Item = CellId> + '_ {
    let (seeds, policies) = (plan.seeds.len(), plan.policies.len());
    (0..plan.cells()).map(move |i| CellId {
        variant: i / (seeds * policies),
        seed: i / policies % seeds,
        policy: i % policies,
    })
}

/// What tells a cell from the others.
pub fn key(plan: &Plan, id: CellId) -> Key {
    let (policy, seed) = (plan.policies[id.policy].spec.label(), plan.seeds[id.seed]);
    Key { policy, sweep: swept(plan, id.variant), seed }
}

/// What was swept to in a variant.
pub fn swept(plan: &Plan, variant: usize) -> Vec<Swept> {
    let one =
        |c: &Choice| Swept { path: c.path.clone(), value: c.value.clone(), number: c.number.filter(|n| n.is_finite()) };
    plan.variants[variant].choices.iter().map(one).collect()
}
