//! `draft-len-schedule`: TensorRT-LLM's table from upper bounds of the batch size to draft lengths.
//!
//! Source: NVIDIA/TensorRT-LLM PR #10860, `draft_len_schedule`, `_torch/speculative/utils.py`
//! (`get_draft_len_for_batch_size`); restated in docs/model.md 4.6 (i). The first version of the PR read the keys as
//! lower bounds.

use crate::definition::{About, BadParameter, Check, Definition, PolicyContext};
use crate::shared::by_batch_size::{ByBatchSize, Counted};
use foretoken_sim::{MAX_SPEC_LEN, Speculation};
use serde::{Deserialize, Serialize};

/// Settings of the policy `draft-len-schedule`, which looks up the draft length by batch size. The default is the
/// example in TensorRT-LLM's code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DraftLenSchedule {
    /// `[largest batch size, draft length]` of each range of batch sizes, ascending. Batches above the last size draft
    /// nothing.
    pub draft_len_schedule: Vec<(u32, u32)>,
    /// Smallest draft length at any batch size, 0 to 32. The released TensorRT-LLM has 0. The open TensorRT-LLM
    /// PR #16888 has 1, which keeps the drafter's state up to date.
    #[serde(skip_serializing_if = "is_zero")]
    pub floor: u32,
}

fn is_zero(n: &u32) -> bool {
    *n == 0
}

impl Default for DraftLenSchedule {
    fn default() -> Self {
        DraftLenSchedule { draft_len_schedule: vec![(4, 4), (8, 2), (32, 1)], floor: 0 }
    }
}

impl DraftLenSchedule {
    fn longest(&self) -> u32 {
        self.draft_len_schedule.iter().map(|s| s.1).max().unwrap_or(0).max(self.floor)
    }
}

/// Checks a schedule of draft lengths by batch size: it is not empty, batch sizes ascend from 1 or more, no length is
/// above `MAX_SPEC_LEN`, and at least one length is above 0.
pub(crate) fn check_schedule(check: &Check, schedule: &[(u32, u32)]) -> Result<(), BadParameter> {
    const KEY: &str = "draft_len_schedule";
    check.that(KEY, !schedule.is_empty(), || "is empty; give [largest batch size, draft length] pairs".into())?;
    let mut below = 0;
    for &(upto, k) in schedule {
        check.that(KEY, upto > below, || format!("batch size {upto} does not come after {below}; sort the pairs"))?;
        check.that(KEY, k <= MAX_SPEC_LEN, || format!("{k} is more than {MAX_SPEC_LEN} draft tokens"))?;
        below = upto;
    }
    let drafts = schedule.iter().any(|&(_, k)| k > 0);
    check.that(KEY, drafts, || "drafts nothing at any batch size; use autoregressive".into())
}

/// Returns (first batch size, draft length) of each range of batch sizes in a checked schedule. The last range holds
/// all batch sizes above the schedule's last bound, and its draft length is 0. Lengths below `floor` are raised to
/// `floor`.
pub(crate) fn ranges(schedule: &[(u32, u32)], floor: u32) -> Vec<(u32, u32)> {
    let starts = [1].into_iter().chain(schedule.iter().map(|s| s.0.saturating_add(1)));
    let lengths = schedule.iter().map(|s| s.1).chain([0]);
    starts.zip(lengths.map(|k| k.max(floor))).collect()
}

impl Definition for DraftLenSchedule {
    fn about(&self) -> About {
        About {
            summary: "one length a step, from a table of largest batch sizes; beyond it nothing",
            source: "TensorRT-LLM draft_len_schedule (PR #10860)",
            sees: "length of the running list",
            differences: "the token budget is charged with the last batch's length, so a longer one comes a step \
                          after the batch shrank",
        }
    }

    fn asks_for(&self) -> Option<(&'static str, u32)> {
        Some(("draft_len_schedule", self.longest()))
    }

    fn check(&self) -> Result<(), BadParameter> {
        let check = Check("draft-len-schedule");
        check_schedule(&check, &self.draft_len_schedule)?;
        let why = || format!("{} is more than {MAX_SPEC_LEN} draft tokens", self.floor);
        check.that("floor", self.floor <= MAX_SPEC_LEN, why)
    }

    fn build(&self, context: &PolicyContext) -> Speculation {
        let ranges = ranges(&self.draft_len_schedule, self.floor);
        ByBatchSize::build(Counted::Running, ranges, context.max_draft_len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::by_batch_size::tests::lengths;

    /// The table has upper bounds of the batch size. A batch gets the draft length of the first bound that is not below
    /// its size. A batch above the last bound gets length 0.
    #[test]
    fn bounds_are_upper_bounds() {
        let policy = DraftLenSchedule::default();
        let batches: Vec<(usize, u32)> = (1..=40).map(|n| (n, 0)).collect();
        let first_bound = |n: usize| policy.draft_len_schedule.iter().find(|s| s.0 as usize >= n).map_or(0, |s| s.1);
        let expected: Vec<u32> = (1..=40).map(first_bound).collect();
        assert_eq!(lengths(&policy, &batches), expected);
        assert_eq!([expected[3], expected[4], expected[7], expected[31], expected[32]], [4, 2, 2, 1, 0]);
        assert_eq!(lengths(&policy, &[(4, 1), (30, 3)]), [2, 0]);
    }

    #[test]
    fn a_floor_keeps_the_drafter_alive() {
        let policy = DraftLenSchedule { draft_len_schedule: vec![(2, 4), (4, 0), (6, 3)], floor: 1 };
        let batches: Vec<(usize, u32)> = (1..=8).map(|n| (n, 0)).collect();
        assert_eq!(lengths(&policy, &batches), [4, 4, 1, 1, 3, 3, 1, 1]);
        assert_eq!(DraftLenSchedule { floor: 5, ..policy.clone() }.asks_for(), Some(("draft_len_schedule", 5)));
        assert_eq!(DraftLenSchedule { floor: 33, ..policy }.check().map_err(|e| e.key), Err("floor"));
    }

    #[test]
    fn bad_schedules_say_what_would_be_right() {
        for (schedule, why) in [
            (&[][..], "is empty"),
            (&[(0, 3)], "does not come after 0"),
            (&[(8, 3), (4, 2)], "sort the pairs"),
            (&[(8, 40)], "40 is more than 32"),
            (&[(8, 0)], "use autoregressive"),
        ] {
            let policy = DraftLenSchedule { draft_len_schedule: schedule.to_vec(), floor: 0 };
            let error = policy.check().expect_err("refused");
            assert!(error.key == "draft_len_schedule" && error.why.contains(why), "{error}");
        }
    }
}
