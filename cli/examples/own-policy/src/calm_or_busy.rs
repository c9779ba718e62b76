//! The policy `calm-or-busy`: it drafts one length while no request waits, and another length while requests wait.

use foretoken_policies::{About, BadParameter, Check, Definition, PolicyContext};
use foretoken_sim::{BatchView, DraftLimits, DraftPlan, MAX_SPEC_LEN, SpecPolicy, Speculation};
use serde::{Deserialize, Serialize};

/// The policy's parameters. An experiment writes them as `{ calm-or-busy = { … } }`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CalmOrBusy {
    /// Number of draft tokens of each request in a step, while no request waits.
    pub calm: u32,
    /// Number of draft tokens of each request in a step, while requests wait.
    pub busy: u32,
}

impl Default for CalmOrBusy {
    fn default() -> Self {
        CalmOrBusy { calm: 4, busy: 1 }
    }
}

impl Definition for CalmOrBusy {
    fn about(&self) -> About {
        About {
            summary: "drafts one length while no request waits and another once requests do",
            source: "an example",
            sees: "whether requests wait",
            differences: "none",
        }
    }

    fn asks_for(&self) -> Option<(&'static str, u32)> {
        Some(("calm", self.calm.max(self.busy)))
    }

    fn check(&self) -> Result<(), BadParameter> {
        let check = Check("calm-or-busy");
        check.length("calm", self.calm)?;
        check.that("busy", self.busy <= MAX_SPEC_LEN, || {
            format!("{} is more than {MAX_SPEC_LEN} draft tokens", self.busy)
        })
    }

    fn build(&self, context: &PolicyContext) -> Speculation {
        let [calm, busy] = [self.calm, self.busy].map(|k| k.min(context.max_draft_len));
        Speculation::Policy(Box::new(Running { calm, busy }))
    }
}

/// The policy during a run. It keeps no state between steps.
struct Running {
    calm: u32,
    busy: u32,
}

impl SpecPolicy for Running {
    fn limits(&self) -> DraftLimits<'_> {
        DraftLimits::chain(self.calm.max(self.busy))
    }

    fn propose(&mut self, batch: &BatchView, plan: &mut DraftPlan) {
        plan.fill(if batch.num_waiting > 0 { self.busy } else { self.calm });
    }
}
