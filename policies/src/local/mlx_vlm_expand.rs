//! `mlx-vlm-expand`: a request has two draft lengths. After its first 8 steps, it drafts the longer length while at
//! least 65 % (`least_share`) of its last 32 steps were successful. A step is successful if at least as many tokens
//! were accepted as the shorter length has.
//!
//! Source: mlx-vlm's `_effective_mtp_block_size`, which lablup/mlxcel keeps beside its own rule (PR #1295, 2026-08-22).
//! The rule uses no times. mlxcel's issue #1207 reports a load where the share is 58.5 %. This is below 65 %, so
//! requests keep the shorter length and lose 5 %.

use crate::definition::{About, BadParameter, Check, Definition, PolicyContext};
use crate::local::per_request::PerRequest;
use foretoken_sim::{BatchView, DraftLimits, DraftPlan, MAX_SPEC_LEN, RequestId, SpecPolicy, Speculation, StepOutcome};
use serde::{Deserialize, Serialize};

/// Number of steps of a request that are remembered: one bit of a 32-bit word for each.
const WINDOW: u32 = u32::BITS;

/// Settings of the policy `mlx-vlm-expand`, in which a request changes from a shorter to a longer draft length if its
/// draft tokens are accepted. The user sets the two lengths; the defaults of the other settings are mlx-vlm's values.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MlxVlmExpand {
    /// Draft tokens of a request per step at the start, 1 to 32.
    pub configured: u32,
    /// Draft tokens of a request per step after it has changed to the longer draft length, from `configured` + 1 to 32.
    pub requested: u32,
    /// Number of steps of a request before it may change to the longer draft length, 1 to 32.
    pub warmup_rounds: u32,
    /// A request takes the longer draft length if at least this share, [0, 1], of its last 32 steps accepted at least
    /// `configured` tokens.
    pub least_share: f64,
}

impl Default for MlxVlmExpand {
    fn default() -> Self {
        MlxVlmExpand { configured: 2, requested: 4, warmup_rounds: 8, least_share: 0.65 }
    }
}

impl Definition for MlxVlmExpand {
    fn about(&self) -> About {
        About {
            summary: "each request drafts the longer of two lengths while most of its rounds accepted the whole \
                      shorter one",
            source: "mlx-vlm _effective_mtp_block_size, as kept in lablup/mlxcel PR #1295",
            sees: "accepted counts of a request's past steps",
            differences: "the two lengths are the user's: 2 and 4 are an example. mlx-vlm serves one request at a \
                          time; here each has its own rounds. A round that had no room for the shorter length is \
                          left out",
        }
    }

    fn asks_for(&self) -> Option<(&'static str, u32)> {
        Some(("requested", self.requested))
    }

    fn check(&self) -> Result<(), BadParameter> {
        let check = Check("mlx-vlm-expand");
        check.length("configured", self.configured)?;
        check.that("requested", (self.configured + 1..=MAX_SPEC_LEN).contains(&self.requested), || {
            format!("{} is not a draft length above `configured`, up to {MAX_SPEC_LEN}", self.requested)
        })?;
        check.that("warmup_rounds", (1..=WINDOW).contains(&self.warmup_rounds), || {
            format!("{} is not a number of rounds from 1 to {WINDOW}", self.warmup_rounds)
        })?;
        check.share("least_share", self.least_share)
    }

    fn build(&self, context: &PolicyContext) -> Speculation {
        let longest = context.max_draft_len;
        Speculation::Policy(Box::new(Running { params: *self, longest, requests: PerRequest::default() }))
    }
}

/// In which of a request's last steps at least as many tokens were accepted as the shorter draft length has.
#[derive(Clone, Copy, Default)]
struct Rounds {
    /// One bit per step of the request, the newest in the lowest bit: 1 if at least as many tokens were accepted as the
    /// shorter draft length has.
    whole: u32,
    /// Number of the request's steps that are remembered, at most [`WINDOW`]. Only steps count that verified at least
    /// as many tokens as the shorter draft length has.
    seen: u32,
}

/// The policy `mlx-vlm-expand` while the engine runs: its settings, and what it keeps from step to step.
struct Running {
    params: MlxVlmExpand,
    longest: u32,
    requests: PerRequest<Rounds>,
}

impl SpecPolicy for Running {
    fn limits(&self) -> DraftLimits<'_> {
        DraftLimits::chain(self.params.requested.min(self.longest))
    }

    fn propose(&mut self, batch: &BatchView, plan: &mut DraftPlan) {
        let MlxVlmExpand { configured, requested, warmup_rounds, least_share } = self.params;
        for (len, &id) in plan.draft_len.iter_mut().zip(batch.ids) {
            let Rounds { whole, seen } = self.requests.get(id);
            let expand = seen >= warmup_rounds && f64::from(whole.count_ones()) / f64::from(seen) >= least_share;
            *len = if expand { requested } else { configured }.min(self.longest);
        }
    }

    fn observe(&mut self, outcome: &StepOutcome) {
        let configured = self.params.configured.min(self.longest);
        for ((&id, &verified), &accepted) in outcome.ids.iter().zip(outcome.verified).zip(outcome.accepted) {
            if verified >= configured {
                let rounds = self.requests.entry(id);
                rounds.whole = rounds.whole << 1 | u32::from(accepted >= configured);
                rounds.seen = (rounds.seen + 1).min(WINDOW);
            }
        }
    }

    fn request_finished(&mut self, id: RequestId) {
        self.requests.forget(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Batch, CONTEXT, Run};

    /// The draft lengths of one request, step by step; `accepted` has the number of draft tokens accepted in each step.
    fn lengths(accepted: impl IntoIterator<Item = u32>, limit: u32) -> Vec<u32> {
        let mut run = Run::of(&MlxVlmExpand::default(), &CONTEXT);
        let mut step = |a| run.step(&Batch::new(&[9], &[limit]), |_, _| 0.5, &[a]).draft_len[0];
        accepted.into_iter().map(&mut step).collect()
    }

    #[test]
    fn eight_rounds_and_a_share_of_the_last_thirty_two() {
        // The request changes to the longer length once 8 of 8 steps accepted the whole shorter length.
        assert_eq!(lengths([2; 10], 8), [2, 2, 2, 2, 2, 2, 2, 2, 4, 4]);
        // If 5 of 8 steps accept at least the shorter length, 0.625, they are too few; 6 of 9, 0.667, are enough. A
        // step that accepts 3 draft tokens counts like a step that accepts the shorter length of 2. A step that accepts
        // 1 or none counts as a failure.
        assert_eq!(lengths([2, 0, 3, 1, 2, 1, 2, 2, 2, 2], 8)[7..], [2, 2, 4]);
        // The share of successful steps must be at least 0.65: 21 of 32 is 0.656, 20 of 32 is 0.625. After 32 steps
        // that accepted the whole shorter length, the request keeps the longer length up to the eleventh failure, but
        // not after the twelfth.
        let mut rounds = vec![2; 32];
        rounds.extend([1; 13]);
        assert_eq!(lengths(rounds, 8)[40..], [4, 4, 4, 4, 2]);
    }

    #[test]
    fn rounds_without_room_are_left_out() {
        assert_eq!(lengths([2; 12], 1), [1; 12]);
        let mut run = Run::of(&MlxVlmExpand::default(), &CONTEXT);
        for _ in 0..20 {
            run.step(&Batch::new(&[9], &[1]), |_, _| 0.5, &[1]);
        }
        assert_eq!(run.step(&Batch::new(&[9], &[8]), |_, _| 0.5, &[2]).draft_len, [2]);
    }

    #[test]
    fn bad_settings_are_named() {
        let usual = MlxVlmExpand::default();
        for (params, key) in [
            (MlxVlmExpand { configured: 0, ..usual }, "configured"),
            (MlxVlmExpand { requested: 2, ..usual }, "requested"),
            (MlxVlmExpand { warmup_rounds: 33, ..usual }, "warmup_rounds"),
            (MlxVlmExpand { least_share: -0.1, ..usual }, "least_share"),
        ] {
            assert_eq!(params.check().map_err(|e| e.key), Err(key));
        }
    }
}
