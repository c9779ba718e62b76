//! `downshift`: a request drafts three tokens. It drafts two if fewer than 60 % of its draft tokens so far were
//! accepted, and one if fewer than 50 % were.
//!
//! Source: osaurus/vmlx PR #2624 (2026).

use crate::definition::{About, BadParameter, Check, Definition, PolicyContext};
use crate::local::per_request::PerRequest;
use foretoken_sim::{BatchView, DraftLimits, DraftPlan, MAX_SPEC_LEN, RequestId, SpecPolicy, Speculation, StepOutcome};
use serde::{Deserialize, Serialize};

/// Settings of the policy `downshift`, in which a request drafts fewer tokens if few of its draft tokens were accepted.
/// The defaults are vmlx's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Downshift {
    /// Draft tokens per step of a request most of whose draft tokens are accepted, 3 to 32.
    pub k: u32,
    /// A request whose share of accepted draft tokens is below this threshold, [0, 1], drafts one token less.
    pub below_one_less: f64,
    /// A request whose share of accepted draft tokens is below this threshold drafts two tokens less; at most
    /// `below_one_less`.
    pub below_two_less: f64,
}

impl Default for Downshift {
    fn default() -> Self {
        Downshift { k: 3, below_one_less: 0.60, below_two_less: 0.50 }
    }
}

impl Definition for Downshift {
    fn about(&self) -> About {
        About {
            summary: "each request's length one or two tokens lower where the share of its drafts that are accepted \
                      is low",
            source: "osaurus/vmlx PR #2624",
            sees: "accepted and drafted counts of a request's past steps",
            differences: "the pull request gives depths and shares, not what a share is over: here over all that was \
                          verified of the request's drafts so far, without a warm-up, so that a length comes back as \
                          the share recovers",
        }
    }

    fn asks_for(&self) -> Option<(&'static str, u32)> {
        Some(("k", self.k))
    }

    fn check(&self) -> Result<(), BadParameter> {
        let check = Check("downshift");
        check.that("k", (3..=MAX_SPEC_LEN).contains(&self.k), || {
            format!("{} is not a draft length from 3 to {MAX_SPEC_LEN}, of which two can be taken", self.k)
        })?;
        check.share("below_one_less", self.below_one_less)?;
        check.share("below_two_less", self.below_two_less)?;
        check.that("below_two_less", self.below_two_less <= self.below_one_less, || {
            format!("{} is more than below_one_less", self.below_two_less)
        })
    }

    fn build(&self, context: &PolicyContext) -> Speculation {
        let longest = context.max_draft_len;
        Speculation::Policy(Box::new(Running { params: *self, longest, requests: PerRequest::default() }))
    }
}

/// Counts of a request's draft tokens so far: (accepted, verified).
type Counts = (u64, u64);

/// The policy `downshift` while the engine runs: its settings, and what it keeps from step to step.
struct Running {
    params: Downshift,
    longest: u32,
    requests: PerRequest<Counts>,
}

impl Running {
    fn length(&self, (accepted, verified): Counts) -> u32 {
        let below = |share: f64| verified > 0 && (accepted as f64) < share * verified as f64;
        let less = u32::from(below(self.params.below_one_less)) + u32::from(below(self.params.below_two_less));
        (self.params.k - less).min(self.longest)
    }
}

impl SpecPolicy for Running {
    fn limits(&self) -> DraftLimits<'_> {
        DraftLimits::chain(self.params.k.min(self.longest))
    }

    fn propose(&mut self, batch: &BatchView, plan: &mut DraftPlan) {
        for (len, &id) in plan.draft_len.iter_mut().zip(batch.ids) {
            *len = self.length(self.requests.get(id));
        }
    }

    fn observe(&mut self, outcome: &StepOutcome) {
        for ((&id, &verified), &accepted) in outcome.ids.iter().zip(outcome.verified).zip(outcome.accepted) {
            let counts = self.requests.entry(id);
            *counts = (counts.0 + u64::from(accepted), counts.1 + u64::from(verified));
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

    #[test]
    fn lengths_go_by_the_share_of_the_request() {
        let mut run = Run::of(&Downshift::default(), &CONTEXT);
        // Accepted/verified draft tokens of request 0 so far: 3/3, 4/6, then 4/9, which gives length 1; 5/10 gives 2
        // (half is not below half); 7/12, then 9/14, which gives 3.
        let accepted = [(3, 0), (1, 0), (0, 1), (1, 1), (2, 1), (2, 1), (0, 1)];
        // Accepted/verified draft tokens of request 1 so far: 0/3, which gives length 1; 0/4, 1/5, 2/6, 3/7, then 4/8,
        // which gives 2.
        let expected = [[3, 3], [3, 1], [3, 1], [1, 1], [2, 1], [2, 1], [3, 2]];
        for ((a, b), lengths) in accepted.into_iter().zip(expected) {
            assert_eq!(run.step(&Batch::new(&[9; 2], &[8; 2]), |_, _| 0.5, &[a, b]).draft_len, lengths);
        }
    }

    #[test]
    fn bad_settings_are_named() {
        let usual = Downshift::default();
        for (params, key) in [
            (Downshift { k: 2, ..usual }, "k"),
            (Downshift { below_one_less: 1.5, ..usual }, "below_one_less"),
            (Downshift { below_two_less: f64::NAN, ..usual }, "below_two_less"),
            (Downshift { below_two_less: 0.7, ..usual }, "below_two_less"),
        ] {
            assert_eq!(params.check().map_err(|e| e.key), Err(key));
        }
    }
}
