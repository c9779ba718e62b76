//! Identifies the cells of a plan.

use crate::plan::Plan;
use foretoken_report::{Key, Swept};
use foretoken_spec::document::Choice;
use foretoken_spec::words::{self, Words};

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
    plan.variants[variant].choices.iter().map(in_words).collect()
}

/// A swept value with its setting's name: the sweep's label, or the program's words for the setting.
pub fn in_words(choice: &Choice) -> Swept {
    let swept = Swept::new(&choice.path, choice.value.clone(), choice.number.filter(|n| n.is_finite()));
    match (&choice.label, words::of(&choice.path)) {
        (Some(label), _) => Swept { name: label.clone(), ..swept },
        (None, Some(Words { name, unit })) => Swept { name, unit, ..swept },
        (None, None) => swept,
    }
}
