//! The `[arena]` table of an experiment file: the experiment is a scenario of the arena, in which all policies are
//! compared.
//!
//! Policies are tuned on some scenarios and judged on others. So the table says which of the two the scenario is for,
//! or that it judged an earlier version of a policy. If the experiment does not list `policies`, every policy that can
//! run in it takes part.

use serde::{Deserialize, Serialize};

/// The `[arena]` table of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Arena {
    /// May policies be tuned on the scenario, or is it held out to judge them?
    pub set: ArenaSet,
    /// What sets the scenario apart, in one sentence.
    pub about: String,
    /// Does the scenario run with `foretoken run FOLDER --quick`, too?
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub quick: bool,
}

/// What a scenario may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ArenaSet {
    /// Policies may be tuned on the scenario.
    Tuning,
    /// The scenario judged an earlier version of a policy. Its results are known since then, so that it cannot judge a
    /// later version.
    Seen,
    /// The scenario judges policies. Their constants do not change after the scenario was run.
    HeldOut,
}

impl ArenaSet {
    /// All sets, in the order of tables.
    pub const ALL: [ArenaSet; 3] = [ArenaSet::Tuning, ArenaSet::Seen, ArenaSet::HeldOut];

    /// The set's name in files and tables.
    pub fn name(self) -> &'static str {
        match self {
            ArenaSet::Tuning => "tuning",
            ArenaSet::Seen => "seen",
            ArenaSet::HeldOut => "held-out",
        }
    }
}
