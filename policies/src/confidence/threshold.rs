//! `threshold`: drafts until the draft model's confidence falls below a threshold, for each request by itself or for
//! the batch on average.
//!
//! Sources, one per preset (docs/model.md 5.1, 5.2): Hugging Face transformers `generation/candidate_generator.py`
//! (`assistant_confidence_threshold` 0.4, per request, at most `num_assistant_tokens` 20), and the "dynamic
//! speculation" baseline in the AdaSpec repository (0.6 on the batch mean, at most 8). Both keep the token below the
//! threshold. The self-tuning of the threshold in transformers is not part of this policy.

use crate::definition::{BadParameter, Beliefs, Check, Definition, PolicyContext};
use foretoken_sim::{
    BatchView, Continue, DraftLimits, DraftPlan, Drafts, MAX_SPEC_LEN, SpecPolicy, Speculation, Wants,
};
use serde::{Deserialize, Serialize};

/// Whose confidence is compared with the threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// Each request's own confidence. Each request stops by itself.
    PerRequest,
    /// The mean confidence over the requests of the pass. All requests stop together.
    BatchMean,
}

/// The work that a stop saves: drafting and verification, or verification alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Cost {
    /// A stop saves the draft passes after it, and their verification.
    StopsDrafting,
    /// A stop saves verification only: every draft pass runs (vLLM PR #35301).
    RunsAll,
}

/// Parameters of `threshold`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Threshold {
    /// Confidence below which drafting stops, [0, 1].
    pub tau: f64,
    /// Whose confidence is compared with the threshold.
    pub scope: Scope,
    /// Whether the token whose confidence is below the threshold is still verified.
    pub keep_last: bool,
    /// Longest draft, in tokens, 1 to 32.
    pub cap: u32,
    /// The work that a stop saves: drafting and verification, or verification alone.
    pub cost: Cost,
}

impl Default for Threshold {
    fn default() -> Self {
        Threshold { tau: 0.4, scope: Scope::PerRequest, keep_last: true, cap: MAX_SPEC_LEN, cost: Cost::StopsDrafting }
    }
}

impl Threshold {
    /// The values of Hugging Face transformers: 0.4, per request, at most 20.
    pub fn hf() -> Threshold {
        Threshold { cap: 20, ..Threshold::default() }
    }

    /// The baseline of the AdaSpec repository: 0.6, batch mean, at most 8.
    pub fn adaspec_repo() -> Threshold {
        Threshold { tau: 0.6, scope: Scope::BatchMean, cap: 8, ..Threshold::default() }
    }
}

impl Definition for Threshold {
    fn summary(&self) -> &'static str {
        match (self.scope, self.cap) {
            (Scope::PerRequest, MAX_SPEC_LEN..) => "drafts until a request's own confidence falls below a threshold",
            (Scope::PerRequest, _) => {
                "drafts until a request's own confidence falls below a threshold, up to a cap (transformers: 20)"
            }
            (Scope::BatchMean, _) => "drafts until the batch's mean confidence falls below a threshold, up to a cap",
        }
    }

    fn source(&self) -> &'static str {
        match self.scope {
            Scope::PerRequest => "transformers generation/candidate_generator.py, assistant_confidence_threshold",
            Scope::BatchMean => "the dynamic speculation baseline in the AdaSpec repository",
        }
    }

    fn sees(&self) -> &'static str {
        "the confidence of each drafted token"
    }

    fn differences(&self) -> &'static str {
        "the threshold stays as it is; hf-dynamic has the schedules and the self-tuning of transformers"
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

/// The running policy. The fields after `rule` belong to the step in progress.
struct Running {
    rule: Threshold,
    /// Number of draft passes of this step whose confidences were read.
    passes: u32,
    /// By request: number of draft tokens to verify, as far as the draft passes were read.
    verify_len: Vec<u32>,
    /// By request: true once the confidence (its own, or the batch's mean) fell below the threshold.
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

    /// Confidences of three requests by depth. The third may not draft.
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
        // The batch's mean confidences by depth are 0.85, 0.7, 0.605, 0.55.
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
