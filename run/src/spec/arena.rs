//! The `[arena]` table of an experiment file. It makes the experiment a scenario of the arena, a comparison of all
//! policies over many experiments.
//!
//! Policies are tuned on some scenarios and judged on others. The table says for which of the two the scenario may be
//! used, or that it judged an earlier version of a policy. If the experiment does not list `policies`, every policy
//! that can run in it takes part.

use serde::{Deserialize, Serialize};

/// The `[arena]` table. It makes the experiment a scenario of the arena, a comparison of all policies over many
/// experiments.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Arena {
    /// Whether policies may be tuned on the scenario (`tuning`), or whether it judges them (`held-out`, `seen`).
    pub set: ArenaSet,
    /// How this scenario differs from the other scenarios (experiments over which all policies are compared), in one
    /// sentence.
    pub about: String,
    /// Whether the scenario also runs with `foretoken run FOLDER --quick`, which runs only some scenarios and few
    /// seeds. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub quick: bool,
}

/// What a scenario (an experiment of the arena, in which all policies are compared) may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ArenaSet {
    /// Policies may be tuned on this scenario (an experiment over which all policies are compared).
    Tuning,
    /// The scenario judged an earlier version of a policy. Its results are known since then, so that it cannot judge a
    /// later version.
    Seen,
    /// The scenario (an experiment over which all policies are compared) judges policies. The constants of policies do
    /// not change after the scenario was run.
    HeldOut,
}

impl ArenaSet {
    /// All sets of scenarios, in the order in which tables list them.
    pub const ALL: [ArenaSet; 3] = [ArenaSet::Tuning, ArenaSet::Seen, ArenaSet::HeldOut];

    /// The name of the set of scenarios in files and tables.
    pub fn name(self) -> &'static str {
        match self {
            ArenaSet::Tuning => "tuning",
            ArenaSet::Seen => "seen",
            ArenaSet::HeldOut => "held-out",
        }
    }
}
