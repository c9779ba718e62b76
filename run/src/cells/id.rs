//! Names the cells of a plan. A cell is one run: one policy with one seed and one combination of swept values.

use crate::plan::Plan;
use crate::spec::document::Choice;
use crate::spec::words::{self, Words};
use foretoken_report::{Key, Swept};

/// Names a cell by its indices into a plan's variants, seeds and policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellId {
    pub variant: usize,
    pub seed: usize,
    pub policy: usize,
}

/// All cells (runs) of a plan, in order: swept values vary slowest, then seeds, then policies.
pub fn ids(plan: &Plan) -> impl Iterator<Item = CellId> + '_ {
    let (seeds, policies) = (plan.seeds.len(), plan.policies.len());
    (0..plan.cells()).map(move |i| CellId {
        variant: i / (seeds * policies),
        seed: i / policies % seeds,
        policy: i % policies,
    })
}

/// The key by which result tables name a cell: label of the policy, swept values and seed.
pub fn key(plan: &Plan, id: CellId) -> Key {
    let (policy, seed) = (plan.policies[id.policy].spec.label(), plan.seeds[id.seed]);
    Key { policy, sweep: swept(plan, id.variant), seed }
}

/// The swept settings, each with its value in variant number `variant` of the plan.
pub fn swept(plan: &Plan, variant: usize) -> Vec<Swept> {
    plan.variants[variant].choices.iter().map(in_words).collect()
}

/// A swept value, with a name for its setting that tables and figures show: the label that the sweep gives, else the
/// program's words for the setting, else the setting's path.
pub fn in_words(choice: &Choice) -> Swept {
    let swept = Swept::new(&choice.path, choice.value.clone(), choice.number.filter(|n| n.is_finite()));
    match (&choice.label, words::of(&choice.path)) {
        (Some(label), _) => Swept { name: label.clone(), ..swept },
        (None, Some(Words { name, unit })) => Swept { name, unit, ..swept },
        (None, None) => swept,
    }
}
