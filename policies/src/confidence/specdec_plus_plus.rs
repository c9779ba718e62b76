//! `specdec-plus-plus`: drafts until it is likely that some draft token will be rejected.
//!
//! Source: SpecDec++ (arXiv 2405.19715): in a Markov decision process with constant costs the best rule stops when the
//! probability of a rejection exceeds a threshold. The code is Kaffaljidhmah2/SpecDec_pp `hf_generation.py`. It
//! multiplies the acceptance probabilities of the tokens before the newest one, because its acceptance head sees a
//! token one pass after the token was drafted. The code also keeps the draft length within bounds. The repository's
//! command has threshold 0.3 and bounds 2 and 20.

use crate::definition::{About, BadParameter, Beliefs, Check, Definition, PolicyContext};
use foretoken_sim::{
    BatchView, Continue, DraftLimits, DraftPlan, Drafts, MAX_SPEC_LEN, SpecPolicy, Speculation, Wants,
};
use serde::{Deserialize, Serialize};

/// Settings of the policy `specdec-plus-plus`, which drafts until some draft token will probably be rejected. The
/// defaults are from the published repository.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SpecdecPlusPlus {
    /// Drafting stops when the predicted probability of a rejection is above this threshold, [0, 1] (`stop_threshold`).
    pub threshold: f64,
    /// Fewest draft tokens of a request in a step, from 1 to `longest` (first value of `bound`).
    pub shortest: u32,
    /// Most draft tokens of a request in a step, 1 to 32 (second value of `bound`). A value above the engine's
    /// `max_draft_len` is cut to it.
    pub longest: u32,
}

impl Default for SpecdecPlusPlus {
    fn default() -> Self {
        SpecdecPlusPlus { threshold: 0.3, shortest: 2, longest: 20 }
    }
}

impl Definition for SpecdecPlusPlus {
    fn about(&self) -> About {
        About {
            summary: "drafts until the probability that some draft token is rejected exceeds a threshold, per request",
            source: "SpecDec++ (arXiv 2405.19715), Kaffaljidhmah2/SpecDec_pp specdec_pp/hf_generation.py",
            sees: "the confidence of each drafted token",
            differences: "the source trains a head for the acceptance probability, here the draft's confidence \
                          stands for it. The source decodes one request; here each request of a batch leaves the \
                          draft by itself",
        }
    }

    fn beliefs(&self) -> Beliefs {
        Beliefs { confidence: true, ..Beliefs::default() }
    }

    fn check(&self) -> Result<(), BadParameter> {
        let check = Check("specdec-plus-plus");
        check.share("threshold", self.threshold)?;
        check.length("longest", self.longest)?;
        check.that("shortest", (1..=self.longest).contains(&self.shortest), || {
            format!("{} is not a length from 1 to longest = {}", self.shortest, self.longest)
        })
    }

    fn build(&self, context: &PolicyContext) -> Speculation {
        let rule = SpecdecPlusPlus { longest: self.longest.min(context.max_draft_len.min(MAX_SPEC_LEN)), ..*self };
        Speculation::Policy(Box::new(Running { rule, passes: 0, rows: Vec::new() }))
    }
}

/// The policy `specdec-plus-plus` while the engine runs. The fields after `rule` belong to the step in progress.
struct Running {
    rule: SpecdecPlusPlus,
    /// Number of draft passes of this step whose confidences the policy has read.
    passes: u32,
    rows: Vec<Row>,
}

/// What the policy tracks of one request during a step: the probability that its draft tokens are accepted, their
/// number, and whether the rule has ended its drafting.
#[derive(Clone, Copy)]
struct Row {
    /// Probability that all of the request's draft tokens before the newest one are accepted.
    survival: f64,
    /// Number of the request's draft tokens in this step, up to the one at which the stopping rule ends its drafting.
    len: u32,
    ended: bool,
}

impl Running {
    /// Reads the confidences of the draft passes that ran since the last call. Marks a request as ended at the pass
    /// after which the rule stops its drafting.
    fn take_in(&mut self, drafts: &Drafts) {
        while self.passes < drafts.passes {
            self.passes += 1;
            let newest = self.passes;
            for (i, row) in self.rows.iter_mut().enumerate() {
                if row.ended || drafts.draft_len[i] < newest {
                    continue;
                }
                if newest > 1 {
                    row.survival *= drafts.confidence(i, newest as usize - 2);
                }
                row.len = newest;
                row.ended = newest >= self.rule.shortest && 1.0 - row.survival > self.rule.threshold;
            }
        }
    }
}

impl SpecPolicy for Running {
    fn limits(&self) -> DraftLimits<'_> {
        DraftLimits::chain(self.rule.longest)
    }

    fn wants(&self) -> Wants {
        Wants::CONFIDENCE
    }

    fn propose(&mut self, batch: &BatchView, plan: &mut DraftPlan) {
        plan.fill(self.rule.longest);
        self.passes = 0;
        self.rows.clear();
        self.rows.resize(batch.len(), Row { survival: 1.0, len: 0, ended: false });
    }

    fn keep_drafting(&mut self, _: &BatchView, drafts: &mut Drafts) -> Continue {
        self.take_in(drafts);
        let ended = self.rows.iter().enumerate().filter(|(_, row)| row.ended);
        ended.for_each(|(i, _)| drafts.stop(i));
        if self.rows.iter().all(|row| row.ended) { Continue::Stop } else { Continue::Yes }
    }

    /// Verifies only the tokens up to the one at which the stopping rule ends drafting. This matters for a drafter that
    /// makes all tokens in one pass and so cannot stop early.
    fn select(&mut self, _: &BatchView, drafts: &mut Drafts) {
        self.take_in(drafts);
        for (verify, row) in drafts.verify_len.iter_mut().zip(&self.rows) {
            *verify = row.len.min(*verify);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Batch, CONTEXT, Run};

    fn drafted(rule: SpecdecPlusPlus, confidence: &[f64]) -> (u32, u32) {
        let most = confidence.len() as u32;
        let mut run = Run::of(&rule, &CONTEXT);
        let step = run.step(&Batch::new(&[50], &[most]), |_, j| confidence[j], &[most]);
        (step.draft_len[0], step.verify_len[0])
    }

    /// The rejection probability covers the tokens before the newest one: 1 − 0.9 · 0.8 = 0.28 after three tokens, and
    /// 1 − 0.72 · 0.9 = 0.352 after four.
    #[test]
    fn the_newest_token_is_not_counted_yet() {
        assert_eq!(drafted(SpecdecPlusPlus::default(), &[0.9, 0.8, 0.9, 0.9, 0.9, 0.9]), (4, 4));
        assert_eq!(drafted(SpecdecPlusPlus::default(), &[0.9, 0.7, 0.9, 0.9]), (3, 3));
    }

    #[test]
    fn the_bounds_hold() {
        assert_eq!(drafted(SpecdecPlusPlus::default(), &[0.1, 0.1, 0.1, 0.1]), (2, 2), "at least two");
        assert_eq!(drafted(SpecdecPlusPlus { shortest: 1, ..SpecdecPlusPlus::default() }, &[0.1, 0.1, 0.1]), (2, 2));
        assert_eq!(drafted(SpecdecPlusPlus::default(), &[1.0; 8]), (8, 8), "the engine's longest");
        assert_eq!(drafted(SpecdecPlusPlus { longest: 3, ..SpecdecPlusPlus::default() }, &[1.0; 8]), (3, 3));
        assert_eq!(drafted(SpecdecPlusPlus { threshold: 1.0, ..SpecdecPlusPlus::default() }, &[0.01; 8]), (8, 8));
    }

    #[test]
    fn bad_settings_are_named() {
        let usual = SpecdecPlusPlus::default();
        for (rule, key) in [
            (SpecdecPlusPlus { threshold: f64::NAN, ..usual }, "threshold"),
            (SpecdecPlusPlus { longest: 0, ..usual }, "longest"),
            (SpecdecPlusPlus { shortest: 0, ..usual }, "shortest"),
            (SpecdecPlusPlus { shortest: 21, ..usual }, "shortest"),
        ] {
            assert_eq!(rule.check().map_err(|e| e.key), Err(key));
        }
    }
}
