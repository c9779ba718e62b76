//! `aimd`: each request's draft length goes up by one after a step in which all its draft tokens were accepted, and
//! down by one otherwise. A request whose draft tokens do not pay stops drafting.
//!
//! Source: kekzl/imp PR #1801 (2026-08-27), on by default there.

use crate::definition::{About, BadParameter, Check, Definition, PolicyContext};
use crate::local::per_request::PerRequest;
use foretoken_sim::{BatchView, DraftLimits, DraftPlan, RequestId, SpecPolicy, Speculation, StepOutcome};
use serde::{Deserialize, Serialize};

/// Settings of the policy `aimd`, in which a request's draft length rises by one after full acceptance and falls by one
/// otherwise. The guard ends the drafting of a request whose draft tokens do not pay; its defaults are imp's. imp's
/// longest draft length and its first draft length could not be found, so the values here are our own.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Aimd {
    /// Most draft tokens of a request in a step, 1 to 32. A request starts with one token.
    pub cap: u32,
    /// Number of steps with verified draft tokens that a request must have had before it may stop drafting because its
    /// draft tokens do not pay.
    pub guard_verifies: u32,
    /// Cost of a draft token as a share of the cost of a token without draft tokens, ≥ 0. A request stops drafting when
    /// it emits fewer tokens per verification than 1 + this share times its mean draft length. imp measured break-even
    /// acceptances of 39.0, 37.5 and 47.7 % at 1 to 3 tokens.
    pub guard_cost: f64,
}

impl Default for Aimd {
    fn default() -> Self {
        Aimd { cap: 8, guard_verifies: 8, guard_cost: 0.40 }
    }
}

impl Definition for Aimd {
    fn about(&self) -> About {
        About {
            summary: "each request's length up by one after a draft accepted in full, else down by one; off where \
                      drafts do not pay",
            source: "kekzl/imp PR #1801 (2026-08-27)",
            sees: "accepted counts of a request's past steps",
            differences: "imp's cap and the length it starts from were not found: 8, and 1. A draft cut short by the \
                          engine counts by what was verified of it; a request that stopped never drafts again",
        }
    }

    fn asks_for(&self) -> Option<(&'static str, u32)> {
        Some(("cap", self.cap))
    }

    fn check(&self) -> Result<(), BadParameter> {
        let check = Check("aimd");
        check.length("cap", self.cap)?;
        check.that("guard_cost", self.guard_cost >= 0.0 && self.guard_cost.is_finite(), || {
            format!("{} is not a share of 0 or more", self.guard_cost)
        })
    }

    fn build(&self, context: &PolicyContext) -> Speculation {
        let cap = self.cap.min(context.max_draft_len);
        Speculation::Policy(Box::new(Running { params: *self, cap, requests: PerRequest::default() }))
    }
}

/// The state of a request: its draft length, its counts of verifications and draft tokens, and whether it has stopped
/// drafting.
#[derive(Clone, Copy, Default)]
struct Request {
    /// The request's draft length, stored as the length minus one.
    above_one: u32,
    verifies: u32,
    drafted: u64,
    accepted: u64,
    stopped: bool,
}

/// The policy `aimd` while the engine runs: its settings, and what it keeps from step to step.
struct Running {
    params: Aimd,
    cap: u32,
    requests: PerRequest<Request>,
}

impl SpecPolicy for Running {
    fn limits(&self) -> DraftLimits<'_> {
        DraftLimits::chain(self.cap)
    }

    fn propose(&mut self, batch: &BatchView, plan: &mut DraftPlan) {
        for (len, &id) in plan.draft_len.iter_mut().zip(batch.ids) {
            let request = self.requests.get(id);
            *len = if request.stopped { 0 } else { (1 + request.above_one).min(self.cap) };
        }
    }

    fn observe(&mut self, outcome: &StepOutcome) {
        for ((&id, &verified), &accepted) in outcome.ids.iter().zip(outcome.verified).zip(outcome.accepted) {
            if verified == 0 {
                continue;
            }
            let request = self.requests.entry(id);
            request.above_one = match accepted == verified {
                true => (request.above_one + 1).min(self.cap.saturating_sub(1)),
                false => request.above_one.saturating_sub(1),
            };
            request.verifies += 1;
            request.drafted += u64::from(verified);
            request.accepted += u64::from(accepted);
            // Draft tokens pay if 1 + accepted / verifies ≥ 1 + guard_cost · drafted / verifies. Here both sides are
            // reduced by 1 and multiplied by `verifies`.
            let pays = request.accepted as f64 >= self.params.guard_cost * request.drafted as f64;
            request.stopped |= request.verifies >= self.params.guard_verifies && !pays;
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

    /// The draft lengths of one request, step by step; at most `accepted[i]` draft tokens are accepted in step i.
    fn lengths(params: Aimd, accepted: &[u32]) -> Vec<u32> {
        let mut run = Run::of(&params, &CONTEXT);
        accepted.iter().map(|&a| run.step(&Batch::new(&[9], &[8]), |_, _| 0.5, &[a]).draft_len[0]).collect()
    }

    #[test]
    fn up_when_all_is_accepted_and_down_when_not() {
        let free = Aimd { guard_cost: 0.0, cap: 4, ..Aimd::default() };
        assert_eq!(lengths(free, &[9, 9, 9, 9, 9, 3, 9, 0, 0, 0, 0, 0]), [1, 2, 3, 4, 4, 4, 3, 4, 3, 2, 1, 1]);
    }

    #[test]
    fn a_request_stops_when_its_drafts_do_not_pay() {
        // The guard, which ends drafting that does not pay, waits for eight verifications. Then 0 accepted draft tokens
        // are fewer than 0.4 · 8 drafted ones.
        assert_eq!(lengths(Aimd::default(), &[0; 10]), [1, 1, 1, 1, 1, 1, 1, 1, 0, 0]);
        // Draft lengths 1 2 1 2 … with 1 0 1 0 … accepted tokens: after eight steps 4 of 12 draft tokens are accepted,
        // fewer than 0.4 · 12 = 4.8.
        assert_eq!(lengths(Aimd::default(), &[1, 0, 1, 0, 1, 0, 1, 0, 9]), [1, 2, 1, 2, 1, 2, 1, 2, 0]);
        // With one draft token accepted in each step, 8 of 12 after eight steps are enough for drafting to go on, and
        // so are 9 of 13.
        assert_eq!(lengths(Aimd::default(), &[1, 1, 1, 1, 1, 1, 1, 1, 1, 1]), [1, 2, 1, 2, 1, 2, 1, 2, 1, 2]);
        // A request whose acceptance is exactly at the threshold drafts on: after four verifications 2 of 5 draft
        // tokens are accepted, and 0.4 · 5 = 2.
        let params = Aimd { guard_verifies: 4, ..Aimd::default() };
        assert_eq!(lengths(params, &[1, 1, 0, 0, 0]), [1, 2, 1, 1, 1]);
    }

    #[test]
    fn each_request_has_its_own_length_and_steps_without_drafts_change_none() {
        let mut run = Run::of(&Aimd::default(), &CONTEXT);
        for expected in [[1, 1, 0], [2, 1, 0], [3, 1, 0]] {
            let made = run.step(&Batch::new(&[9; 3], &[8, 8, 0]), |_, _| 0.5, &[8, 0, 0]);
            assert_eq!(made.draft_len, expected);
        }
        let made = run.step(&Batch::new(&[9; 3], &[8, 8, 8]), |_, _| 0.5, &[0; 3]);
        assert_eq!(made.draft_len, [4, 1, 1]);
    }

    #[test]
    fn bad_settings_are_named() {
        assert_eq!(Aimd { cap: 0, ..Aimd::default() }.check().map_err(|e| e.key), Err("cap"));
        assert_eq!(Aimd { guard_cost: f64::NAN, ..Aimd::default() }.check().map_err(|e| e.key), Err("guard_cost"));
    }
}
