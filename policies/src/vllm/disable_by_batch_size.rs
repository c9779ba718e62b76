//! `disable-by-batch-size`: a fixed draft length, but no draft tokens while many requests run.
//!
//! Source: vllm-project/vllm PR #4592, `speculative_disable_by_batch_size` of the v0 engine (it is in 0.6.3), restated
//! in docs/model.md 4.6 (a). V1 does not have it, 0.33.0 included.

use crate::definition::{About, BadParameter, Check, Definition, PolicyContext};
use crate::shared::by_batch_size::{ByBatchSize, Counted};
use foretoken_sim::Speculation;
use serde::{Deserialize, Serialize};

/// Settings of the policy `disable-by-batch-size`, which drafts a fixed length but nothing while many requests run. In
/// vLLM the threshold is unset by default, and the engine then drafts as `fixed` does. The default here is an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DisableByBatchSize {
    /// Draft tokens per request and step while speculation is on, 1 to 32.
    pub k: u32,
    /// From this number of running requests on, prefilling ones included, no request drafts; at least 2.
    pub disable_by_batch_size: u32,
}

impl Default for DisableByBatchSize {
    fn default() -> Self {
        DisableByBatchSize { k: 3, disable_by_batch_size: 32 }
    }
}

impl Definition for DisableByBatchSize {
    fn about(&self) -> About {
        About {
            summary: "drafts k tokens for every request, and none while the running list is long",
            source: "vLLM PR #4592, speculative_disable_by_batch_size of the v0 engine (0.6.3); in no release of V1 \
                     (absent from 0.33.0)",
            sees: "length of the running list",
            differences: "vLLM has no default threshold. v0 never drafts again for a request that it once left out, \
                          since the draft's KV has a hole: set engine.draft_gap = \"permanent\" for that. The token \
                          budget is charged as in the last step, so drafting resumes one step after the list got \
                          shorter",
        }
    }

    fn asks_for(&self) -> Option<(&'static str, u32)> {
        Some(("k", self.k))
    }

    fn check(&self) -> Result<(), BadParameter> {
        let check = Check("disable-by-batch-size");
        check.length("k", self.k)?;
        let on = self.disable_by_batch_size >= 2;
        check.that("disable_by_batch_size", on, || "must be at least 2 (vLLM: 1 would never draft)".into())
    }

    fn build(&self, context: &PolicyContext) -> Speculation {
        let ranges = vec![(1, self.k), (self.disable_by_batch_size, 0)];
        ByBatchSize::build(Counted::Running, ranges, context.max_draft_len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::by_batch_size::tests::lengths;

    #[test]
    fn the_threshold_itself_disables() {
        let policy = DisableByBatchSize { k: 4, disable_by_batch_size: 6 };
        assert_eq!(lengths(&policy, &[(1, 0), (5, 0), (6, 0), (4, 2), (4, 1), (40, 0)]), [4, 4, 0, 0, 4, 0]);
    }

    #[test]
    fn bad_settings_are_named() {
        let default = DisableByBatchSize::default();
        assert_eq!(DisableByBatchSize { k: 0, ..default }.check().map_err(|e| e.key), Err("k"));
        let never = DisableByBatchSize { disable_by_batch_size: 1, ..default };
        assert_eq!(never.check().map_err(|e| e.key), Err("disable_by_batch_size"));
    }
}
