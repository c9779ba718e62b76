//! `threshold`: drafts until the draft model's confidence falls below a threshold, for each request by itself or for
//! the batch on average.
//!
//! Sources, one per preset of default settings (docs/model.md 5.1, 5.2): Hugging Face transformers
//! `generation/candidate_generator.py` (`assistant_confidence_threshold` 0.4, per request, at most
//! `num_assistant_tokens` 20), and the "dynamic speculation" baseline in the AdaSpec repository (0.6 on the batch mean,
//! at most 8). Both keep the token below the threshold. The self-tuning of the threshold in transformers is not part of
//! this policy.

use crate::definition::{About, BadParameter, Beliefs, Check, Definition, PolicyContext};
use foretoken_sim::{
    BatchView, Continue, DraftLimits, DraftPlan, Drafts, MAX_SPEC_LEN, SpecPolicy, Speculation, Wants,
};
use serde::{Deserialize, Serialize};

/// Whether a request's own confidence or the batch's mean confidence is compared with the threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// Each request's own confidence is compared. Each request stops drafting by itself.
    PerRequest,
    /// The mean confidence over the requests of the draft pass is compared. All requests stop drafting together.
    BatchMean,
}

/// The work that is saved once a confidence below the threshold has ended a request's draft: drafting and verification
/// of later tokens, or their verification alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Cost {
    /// The threshold ends drafting, so it saves the later draft passes and the verification of their tokens.
    StopsDrafting,
    /// The threshold saves verification only: every draft pass runs, as in vLLM PR #35301.
    RunsAll,
}

/// Settings of the policy `threshold`, which drafts until the draft model's confidence falls below a threshold.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Threshold {
    /// Confidence, [0, 1], of a draft token below which drafting stops.
    pub tau: f64,
    /// Whether a request's own confidence or the batch's mean confidence is compared with the threshold.
    pub scope: Scope,
    /// Whether the token whose confidence is below the threshold is still verified.
    pub keep_last: bool,
    /// Most draft tokens of a request in a step, 1 to 32.
    pub cap: u32,
    /// The work that is saved once a confidence below the threshold has ended a request's draft: drafting and
    /// verification of later tokens, or their verification alone.
    pub cost: Cost,
}

impl Default for Threshold {
    fn default() -> Self {
        Threshold { tau: 0.4, scope: Scope::PerRequest, keep_last: true, cap: MAX_SPEC_LEN, cost: Cost::StopsDrafting }
    }
}

impl Threshold {
    /// The settings of Hugging Face transformers: drafting stops below a confidence of 0.4, for each request by itself,
    /// or at 20 tokens.
    pub fn hf() -> Threshold {
        Threshold { cap: 20, ..Threshold::default() }
    }

    /// The settings of the baseline in the AdaSpec repository: drafting stops below a mean confidence of 0.6 over the
    /// batch, or at 8 tokens.
    pub fn adaspec_repo() -> Threshold {
        Threshold { tau: 0.6, scope: Scope::BatchMean, cap: 8, ..Threshold::default() }
    }
}

impl Definition for Threshold {
    fn about(&self) -> About {
        About {
            summary: match (self.scope, self.cap) {
                (Scope::PerRequest, MAX_SPEC_LEN..) => {
                    "drafts until a request's own confidence falls below a threshold"
                }
                (Scope::PerRequest, _) => {
                    "drafts until a request's own confidence falls below a threshold, up to a cap (transformers: 20)"
                }
                (Scope::BatchMean, _) => {
                    "drafts until the batch's mean confidence falls below a threshold, up to a cap"
                }
            },
            source: match self.scope {
                Scope::PerRequest => "transformers generation/candidate_generator.py, assistant_confidence_threshold",
                Scope::BatchMean => "the dynamic speculation baseline in the AdaSpec repository",
            },
            sees: "the confidence of each drafted token",
            differences: "the threshold stays as it is; hf-dynamic has the schedules and the self-tuning of \
                          transformers",
        }
    }

    fn beliefs(&self) -> Beliefs {
        Beliefs { confidence: true, ..Beliefs::default() }
    }

    fn check(&self) -> Result<(), BadParameter> {
        let check = Check("threshold");
        check.share("tau", self.tau)?;
        check.length("cap", self.cap)
    }

    fn build(&self, context: &PolicyContext) -> Speculation {
        let rule = Threshold { cap: self.cap.min(context.max_draft_len), ..*self };
        Speculation::Policy(Box::new(Running { rule, passes: 0, verify_len: Vec::new(), ended: Vec::new() }))
    }
}

/// The policy `threshold` while the engine runs. The fields after `rule` belong to the step in progress.
struct Running {
    rule: Threshold,
    /// Number of draft passes of this step whose confidences the policy has read.
    passes: u32,
    /// For each request: number of its draft tokens to verify, counted over the draft passes that the policy has read
    /// so far.
    verify_len: Vec<u32>,
    /// For each request: true once the confidence (its own, or the batch's mean) fell below the threshold.
    ended: Vec<bool>,
}

impl Running {
    /// Reads the confidences of the draft passes that ran since the last call, and updates `verify_len` and `ended`.
    fn take_in(&mut self, drafts: &Drafts) {
        while self.passes < drafts.passes {
            let depth = self.passes as usize;
            self.passes += 1;
            let in_pass = |i: usize| drafts.draft_len[i] >= self.passes;
            let all = 0..self.verify_len.len();
            let short_on_mean = self.rule.scope == Scope::BatchMean && {
                let n = all.clone().filter(|&i| in_pass(i)).count();
                let sum: f64 = all.clone().filter(|&i| in_pass(i)).map(|i| drafts.confidence(i, depth)).sum();
                sum < self.rule.tau * n as f64
            };
            for i in all.filter(|&i| in_pass(i)) {
                if self.ended[i] {
                    continue;
                }
                let short = match self.rule.scope {
                    Scope::BatchMean => short_on_mean,
                    Scope::PerRequest => drafts.confidence(i, depth) < self.rule.tau,
                };
                self.verify_len[i] += u32::from(!short || self.rule.keep_last);
                self.ended[i] = short;
            }
        }
    }
}

impl SpecPolicy for Running {
    fn limits(&self) -> DraftLimits<'_> {
        DraftLimits::chain(self.rule.cap)
    }

    fn wants(&self) -> Wants {
        Wants::CONFIDENCE
    }

    fn propose(&mut self, batch: &BatchView, plan: &mut DraftPlan) {
        plan.fill(self.rule.cap);
        self.passes = 0;
        self.verify_len.clear();
        self.verify_len.resize(batch.len(), 0);
        self.ended.clear();
        self.ended.resize(batch.len(), false);
    }

    fn keep_drafting(&mut self, _: &BatchView, drafts: &mut Drafts) -> Continue {
        self.take_in(drafts);
        if self.rule.cost == Cost::RunsAll {
            drafts.nothing_to_decide();
            return Continue::Yes;
        }
        let ended = (0..self.ended.len()).filter(|&i| self.ended[i]);
        ended.for_each(|i| drafts.stop(i));
        if self.ended.iter().all(|&e| e) { Continue::Stop } else { Continue::Yes }
    }

    fn select(&mut self, _: &BatchView, drafts: &mut Drafts) {
        self.take_in(drafts);
        drafts.verify_len.copy_from_slice(&self.verify_len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Batch, CONTEXT, Run};

    /// Confidences of three requests, by request and depth. The third request may not draft.
    const CONFIDENCE: [[f64; 4]; 3] = [[0.9, 0.5, 0.31, 0.9], [0.8, 0.9, 0.9, 0.2], [0.0; 4]];

    fn decide(params: Threshold) -> (Vec<u32>, Vec<u32>) {
        let mut run = Run::of(&params, &CONTEXT);
        let batch = Batch::new(&[50, 60, 70], &[4, 4, 0]);
        let step = run.step(&batch, |i, j| CONFIDENCE[i][j], &[4, 4, 0]);
        (step.draft_len, step.verify_len)
    }

    #[test]
    fn both_presets() {
        let hf = Threshold::hf();
        assert_eq!((hf.tau, hf.scope, hf.keep_last, hf.cap), (0.4, Scope::PerRequest, true, 20));
        assert_eq!(decide(hf), (vec![3, 4, 0], vec![3, 4, 0]));
        // The mean confidences over the two drafting requests, by depth, are 0.85, 0.7, 0.605 and 0.55.
        let repo = Threshold::adaspec_repo();
        assert_eq!((repo.tau, repo.scope, repo.cap), (0.6, Scope::BatchMean, 8));
        assert_eq!(decide(repo), (vec![4, 4, 0], vec![4, 4, 0]));
        let stricter = Threshold { tau: 0.65, ..repo };
        assert_eq!(decide(stricter), (vec![3, 3, 0], vec![3, 3, 0]));
    }

    #[test]
    fn a_token_that_fell_short_may_be_dropped_and_the_passes_may_run_on() {
        let hf = Threshold::default();
        assert_eq!(decide(Threshold { keep_last: false, ..hf }), (vec![3, 4, 0], vec![2, 3, 0]));
        let all = Threshold { cost: Cost::RunsAll, ..hf };
        assert_eq!(decide(all), (vec![4, 4, 0], vec![3, 4, 0]));
        let mean = Threshold { tau: 0.75, cost: Cost::RunsAll, ..Threshold::adaspec_repo() };
        assert_eq!(decide(mean), (vec![4, 4, 0], vec![2, 2, 0]));
    }

    #[test]
    fn bad_settings_are_named() {
        for (params, key) in [
            (Threshold { tau: f64::NAN, ..Threshold::default() }, "tau"),
            (Threshold { tau: 1.5, ..Threshold::default() }, "tau"),
            (Threshold { cap: 0, ..Threshold::default() }, "cap"),
        ] {
            assert_eq!(params.check().map_err(|e| e.key), Err(key));
        }
    }
}
