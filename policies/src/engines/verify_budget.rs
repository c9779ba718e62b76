//! `verify-budget`: every request drafts N tokens. The target verifies round(B·M) tokens of a batch of B requests; N
//! and M are settings. The draft tokens to verify are those that are most likely to be accepted together with all
//! tokens before them. sfllm calls the pair of settings "dNtM".
//!
//! Source: wejoncy/sfllm PR #53 (2026-09-18). The verified tokens include each request's newest token, which needs no
//! draft token. Tokens are selected as in TETRIS, but here the number of verified tokens is a setting.

use crate::definition::{About, BadParameter, Beliefs, Check, Definition, PolicyContext};
use crate::shared::survival::{RankedTokens, survivals};
use foretoken_sim::{BatchView, DraftLimits, DraftPlan, Drafts, MAX_SPEC_LEN, SpecPolicy, Speculation, Wants};
use serde::{Deserialize, Serialize};

/// Settings of the policy `verify-budget`, which verifies a set number of the batch's likeliest draft tokens. The user
/// sets the draft length and the number of verified tokens; the defaults, 4 and 3, are an example.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct VerifyBudget {
    /// N: draft tokens that each request drafts in a step, 1 to 32.
    pub draft_len: u32,
    /// M: mean number of tokens that a request verifies, its newest token included, from 1 to N + 1.
    pub verify_tokens: f64,
}

impl Default for VerifyBudget {
    fn default() -> Self {
        VerifyBudget { draft_len: 4, verify_tokens: 3.0 }
    }
}

impl Definition for VerifyBudget {
    fn about(&self) -> About {
        About {
            summary: "drafts N tokens a request and verifies M a request on average, the newest one included, the \
                      best prefixes first",
            source: "wejoncy/sfllm PR #53, verify budget dNtM",
            sees: "batch size; the confidence of each drafted token",
            differences: "N and M are the user's: d4t3 is an example. A half is rounded to the even number, as in \
                          Python. Ties go to the smaller position and then the smaller request. A request that may \
                          not draft so far takes part with what it has, so that less than the budget may be there",
        }
    }

    fn asks_for(&self) -> Option<(&'static str, u32)> {
        Some(("draft_len", self.draft_len))
    }

    fn beliefs(&self) -> Beliefs {
        Beliefs { confidence: true, ..Beliefs::default() }
    }

    fn check(&self) -> Result<(), BadParameter> {
        let check = Check("verify-budget");
        check.length("draft_len", self.draft_len)?;
        check.that("verify_tokens", (1.0..=f64::from(MAX_SPEC_LEN + 1)).contains(&self.verify_tokens), || {
            format!("{} is not a number of tokens from 1 to {}", self.verify_tokens, MAX_SPEC_LEN + 1)
        })?;
        check.that("verify_tokens", self.verify_tokens <= f64::from(self.draft_len + 1), || {
            format!("{} is more than the {} that draft_len makes", self.verify_tokens, self.draft_len + 1)
        })
    }

    fn build(&self, context: &PolicyContext) -> Speculation {
        let draft_len = self.draft_len.min(context.max_draft_len);
        let running = Running { draft_len, verify_tokens: self.verify_tokens, ranked: RankedTokens::default() };
        Speculation::Policy(Box::new(running))
    }
}

/// The policy `verify-budget` while the engine runs: its settings, and what it keeps from step to step.
struct Running {
    draft_len: u32,
    verify_tokens: f64,
    ranked: RankedTokens,
}

impl SpecPolicy for Running {
    fn limits(&self) -> DraftLimits<'_> {
        DraftLimits::chain(self.draft_len)
    }

    fn wants(&self) -> Wants {
        Wants::CONFIDENCE
    }

    fn propose(&mut self, _: &BatchView, plan: &mut DraftPlan) {
        plan.fill(self.draft_len);
    }

    fn select(&mut self, batch: &BatchView, drafts: &mut Drafts) {
        self.ranked.clear();
        for (i, &len) in drafts.draft_len.iter().enumerate() {
            self.ranked.push_draft(i, survivals((0..len as usize).map(|j| drafts.confidence(i, j))), 0.0);
        }
        let tokens = (batch.len() as f64 * self.verify_tokens).round_ties_even() as usize;
        self.ranked.allocate(tokens - batch.len(), &mut drafts.verify_len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Batch, CONTEXT, Run};

    fn verified(params: VerifyBudget, confidence: &[[f64; 4]], limit: u32) -> Vec<u32> {
        let n = confidence.len();
        let batch = Batch::new(&vec![9; n], &vec![limit; n]);
        Run::of(&params, &CONTEXT)
            .step(&batch, |i, j| confidence[i].get(j).copied().unwrap_or(0.5), &vec![0; n])
            .verify_len
    }

    #[test]
    fn the_best_prefixes_get_the_budget() {
        // Survival is the probability that a draft token and all before it are accepted. For the three requests' draft
        // tokens it is .9 .72 .36 .18, .6 .3 .12 .06 and .8 .56 .28 .2. Of the 9 tokens to verify, 3 are the requests'
        // newest tokens; the 6 draft tokens are those with .9 .8 .72 .6 .56 .36.
        let confidence = [[0.9, 0.8, 0.5, 0.5], [0.6, 0.5, 0.4, 0.5], [0.8, 0.7, 0.5, 0.7]];
        assert_eq!(verified(VerifyBudget::default(), &confidence, 8), [3, 1, 2]);
    }

    #[test]
    fn halves_go_to_the_even_number() {
        let with = |verify_tokens, n| {
            let params = VerifyBudget { verify_tokens, ..VerifyBudget::default() };
            verified(params, &vec![[0.9, 0.8, 0.5, 0.5]; n], 8).iter().sum::<u32>()
        };
        // B·M, the tokens to verify in a batch of B requests, rounds from 2.5 to 2 tokens, from 7.5 to 8 and from 3.75
        // to 4, the requests' newest tokens included. M = 1 verifies no draft tokens.
        assert_eq!([with(2.5, 1), with(2.5, 3), with(1.25, 3), with(1.0, 3)], [1, 5, 1, 0]);
        assert_eq!(with(5.0, 3), 12, "all of it");
    }

    #[test]
    fn short_drafts_leave_part_of_the_budget_unused() {
        assert_eq!(verified(VerifyBudget::default(), &[[0.9; 4]; 2], 1), [1, 1]);
    }

    #[test]
    fn bad_settings_are_named() {
        let usual = VerifyBudget::default();
        for (params, key) in [
            (VerifyBudget { draft_len: 0, ..usual }, "draft_len"),
            (VerifyBudget { verify_tokens: 0.9, ..usual }, "verify_tokens"),
            (VerifyBudget { verify_tokens: f64::NAN, ..usual }, "verify_tokens"),
            (VerifyBudget { verify_tokens: 5.5, ..usual }, "verify_tokens"),
        ] {
            assert_eq!(params.check().map_err(|e| e.key), Err(key));
        }
    }
}
