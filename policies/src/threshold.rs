//! `threshold`: drafts until the draft model's confidence falls below a threshold, for each request by itself or for the
//! batch on average.
//!
//! Sources, one a preset (policies.md 5.1, 5.2): Hugging Face transformers `generation/candidate_generator.py`
//! (`assistant_confidence_threshold` 0.4, per request, at most `num_assistant_tokens` 20), and the "dynamic speculation"
//! baseline in the AdaSpec repository (0.6 on the batch mean, at most 8). Both keep the token that fell short. The
//! threshold's self-tuning in transformers is not part of it.

use crate::look::{Dash, Look, Marker, PURPLE};
use crate::registry::{BadParameter, Check, Definition, PolicyContext, label};
use foretoken_sim::{BatchView, Continue, DraftPlan, Drafts, SpecPolicy, Speculation};
use serde::{Deserialize, Serialize};

/// Whose constants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Preset {
    /// Hugging Face transformers: 0.4, per request, at most 20.
    #[default]
    Hf,
    /// The AdaSpec repository's baseline: 0.6, batch mean, at most 8.
    AdaspecRepo,
}

/// Whose confidence is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// Each request's own: it leaves the draft batch alone.
    PerRequest,
    /// The mean over the requests of the pass: all stop together.
    BatchMean,
}

/// What a stop saves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cost {
    /// The draft passes that are not run.
    StopsDrafting,
    /// Verification only: every pass runs (vLLM PR #35301).
    RunsAll,
}

/// Parameters: a preset, and what differs from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Threshold {
    /// The source of all constants that are not given.
    pub preset: Preset,
    /// Confidence below which drafting stops.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threshold: Option<f64>,
    /// Whose confidence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<Scope>,
    /// Is the token that fell short verified?
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_last: Option<bool>,
    /// Longest draft.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cap: Option<u32>,
    /// What a stop saves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
}

/// The rule with every constant in place.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Rule {
    threshold: f64,
    scope: Scope,
    keep_last: bool,
    cap: u32,
    cost: Cost,
}

impl Threshold {
    fn rule(&self) -> Rule {
        let (threshold, scope, cap) = match self.preset {
            Preset::Hf => (0.4, Scope::PerRequest, 20),
            Preset::AdaspecRepo => (0.6, Scope::BatchMean, 8),
        };
        Rule {
            threshold: self.threshold.unwrap_or(threshold),
            scope: self.scope.unwrap_or(scope),
            keep_last: self.keep_last.unwrap_or(true),
            cap: self.cap.unwrap_or(cap),
            cost: self.cost.unwrap_or(Cost::StopsDrafting),
        }
    }
}

impl Definition for Threshold {
    fn label(&self) -> String {
        let stem = match self.preset {
            Preset::Hf => "threshold-hf",
            Preset::AdaspecRepo => "threshold-adaspec-repo",
        };
        label(stem, self, &Threshold { preset: self.preset, ..Threshold::default() })
    }

    fn summary(&self) -> &'static str {
        "drafts until the confidence falls below a threshold, per request or on the batch's mean"
    }

    fn source(&self) -> &'static str {
        "hf: transformers candidate_generator.py; adaspec-repo: its dynamic speculation baseline"
    }

    fn look(&self) -> Look {
        match self.preset {
            Preset::Hf => Look::new(PURPLE, Dash::Solid, Marker::TriangleDown),
            Preset::AdaspecRepo => Look::new(PURPLE, Dash::Dashed, Marker::Plus),
        }
    }

    fn check(&self) -> Result<(), BadParameter> {
        let check = Check("threshold");
        check.share("threshold", self.rule().threshold)?;
        check.length("cap", self.rule().cap)
    }

    fn build(&self, context: &PolicyContext) -> Speculation {
        let mut rule = self.rule();
        rule.cap = rule.cap.min(context.max_draft_len);
        Speculation::Policy(Box::new(Running { rule, passes: 0, verify_len: Vec::new(), ended: Vec::new() }))
    }
}

/// The running policy; the fields after `rule` are the step in progress.
struct Running {
    rule: Rule,
    /// Draft passes taken in.
    passes: u32,
    /// Tokens of each request to verify.
    verify_len: Vec<u32>,
    /// Fell short already.
    ended: Vec<bool>,
}

impl Running {
    /// Takes in the passes that ran since the last look.
    fn take_in(&mut self, drafts: &Drafts) {
        while self.passes < drafts.passes {
            let depth = self.passes as usize;
            self.passes += 1;
            let in_pass = |i: usize| drafts.draft_len[i] >= self.passes;
            let all = 0..self.verify_len.len();
            let short_on_mean = self.rule.scope == Scope::BatchMean && {
                let n = all.clone().filter(|&i| in_pass(i)).count();
                let sum: f64 =
                    all.clone().filter(|&i| in_pass(i)).map(|i| f64::from(drafts.confidence(i, depth))).sum();
                sum < self.rule.threshold * n as f64
            };
            for i in all.filter(|&i| in_pass(i)) {
                if self.ended[i] {
                    continue;
                }
                let short = match self.rule.scope {
                    Scope::BatchMean => short_on_mean,
                    Scope::PerRequest => f64::from(drafts.confidence(i, depth)) < self.rule.threshold,
                };
                self.verify_len[i] += u32::from(!short || self.rule.keep_last);
                self.ended[i] = short;
            }
        }
    }
}

impl SpecPolicy for Running {
    fn limit(&self) -> u32 {
        self.rule.cap
    }

    fn wants_confidence(&self) -> bool {
        true
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

    /// Confidences of three requests by depth; the third may not draft.
    const CONFIDENCE: [[f32; 4]; 3] = [[0.9, 0.5, 0.31, 0.9], [0.8, 0.9, 0.9, 0.2], [0.0; 4]];

    fn decide(params: Threshold) -> (Vec<u32>, Vec<u32>) {
        let mut run = Run::of(&params, &CONTEXT);
        let batch = Batch::new(&[50, 60, 70], &[4, 4, 0]);
        let step = run.step(&batch, |i, j| CONFIDENCE[i][j], &[4, 4, 0]);
        (step.draft_len, step.verify_len)
    }

    #[test]
    fn both_presets() {
        let hf = Threshold::default();
        assert_eq!(
            hf.rule(),
            Rule { threshold: 0.4, scope: Scope::PerRequest, keep_last: true, cap: 20, cost: Cost::StopsDrafting }
        );
        assert_eq!(decide(hf), (vec![3, 4, 0], vec![3, 4, 0]));
        // Means 0.85, 0.7, 0.605, 0.55.
        let repo = Threshold { preset: Preset::AdaspecRepo, ..hf };
        assert_eq!((repo.rule().threshold, repo.rule().cap), (0.6, 8));
        assert_eq!(decide(repo), (vec![4, 4, 0], vec![4, 4, 0]));
        let stricter = Threshold { threshold: Some(0.65), ..repo };
        assert_eq!(decide(stricter), (vec![3, 3, 0], vec![3, 3, 0]));
    }

    #[test]
    fn a_token_that_fell_short_may_be_dropped_and_the_passes_may_run_on() {
        let hf = Threshold::default();
        assert_eq!(decide(Threshold { keep_last: Some(false), ..hf }), (vec![3, 4, 0], vec![2, 3, 0]));
        let all = Threshold { cost: Some(Cost::RunsAll), ..hf };
        assert_eq!(decide(all), (vec![4, 4, 0], vec![3, 4, 0]));
        let mean = Threshold { preset: Preset::AdaspecRepo, threshold: Some(0.75), ..all };
        assert_eq!(decide(mean), (vec![4, 4, 0], vec![2, 2, 0]));
    }

    #[test]
    fn bad_settings_are_named() {
        for (params, key) in [
            (Threshold { threshold: Some(f64::NAN), ..Threshold::default() }, "threshold"),
            (Threshold { threshold: Some(1.5), ..Threshold::default() }, "threshold"),
            (Threshold { cap: Some(0), ..Threshold::default() }, "cap"),
        ] {
            assert_eq!(params.check().map_err(|e| e.key), Err(key));
        }
    }
}
