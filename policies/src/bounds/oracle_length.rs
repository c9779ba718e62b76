//! `oracle-length`: drafts exactly the tokens that will be accepted. It ignores cost, so under load a policy that
//! drafts less can beat it. Hence it is no bound. It shows what perfect knowledge of acceptance alone is worth.
//!
//! Source: docs/model.md 7.12 (named `oracle-k` in that section), 12.

use crate::definition::{About, BadParameter, Definition, PolicyContext};
use foretoken_sim::{BatchView, DraftPlan, OraclePolicy, Speculation, Truth};
use serde::{Deserialize, Serialize};

/// `oracle-length` has no parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OracleLength {}

impl Definition for OracleLength {
    fn about(&self) -> About {
        About {
            summary: "drafts exactly the tokens that will be accepted, whatever they cost; no bound",
            source: "hindsight on acceptance; not a policy a server can run",
            sees: "the hidden truth: how many drafts will be accepted",
            differences: "none",
        }
    }

    fn sees_hidden_truth(&self) -> bool {
        true
    }

    fn check(&self) -> Result<(), BadParameter> {
        Ok(())
    }

    fn build(&self, context: &PolicyContext) -> Speculation {
        Speculation::Oracle(Box::new(Running { longest: context.max_draft_len }))
    }
}

/// The policy `oracle-length` while the engine runs; it keeps no state.
struct Running {
    longest: u32,
}

impl OraclePolicy for Running {
    fn limit(&self) -> u32 {
        self.longest
    }

    fn propose(&mut self, _: &BatchView, truth: &Truth, plan: &mut DraftPlan) {
        for (len, &run) in plan.draft_len.iter_mut().zip(truth.run) {
            *len = run.min(self.longest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Batch, CONTEXT, Run};

    #[test]
    fn it_drafts_the_accepted_run() {
        let mut run = Run::of(&OracleLength {}, &CONTEXT);
        let step = run.step(&Batch::new(&[10, 20, 30], &[8, 8, 0]), |_, _| 0.5, &[3, 0, 0]);
        assert_eq!((step.draft_len, step.verify_len), (vec![3, 0, 0], vec![3, 0, 0]));
    }
}
