//! `hf-dynamic`: assisted generation in Hugging Face transformers. Each request has its own draft length and its own
//! confidence threshold. It drafts up to that length, or until the confidence of a token falls below the threshold. The
//! length may follow a heuristic, and the threshold tunes itself.
//!
//! Source: huggingface/transformers `generation/candidate_generator.py` @00a11b6a and the defaults of its generation
//! configuration (docs/model.md 5.1). transformers serves one request at a time; here every request of a batch has its
//! own draft length and threshold. The token whose confidence is below the threshold is verified too. `hf-heuristic`
//! has the defaults of older releases: 5 tokens, "heuristic", no threshold.

use crate::confidence::roc::Samples;
use crate::definition::{About, BadParameter, Beliefs, Check, Definition, PolicyContext};
use crate::shared::slots::Slots;
use foretoken_sim::{
    BatchView, Continue, DraftLimits, DraftPlan, Drafts, RequestId, SpecPolicy, Speculation, StepOutcome, Wants,
};
use serde::{Deserialize, Serialize};

/// How a request's draft length changes from step to step (`num_assistant_tokens_schedule`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Schedule {
    /// The draft length does not change.
    Constant,
    /// The draft length grows by two after a step in which all draft tokens of the request were accepted. After any
    /// other step with draft tokens it falls by one, to at least 1. A new request starts from the draft length of the
    /// request whose outcome was observed last.
    Heuristic,
    /// The draft length changes as with `heuristic`, but every request starts from `num_assistant_tokens`.
    HeuristicTransient,
}

/// Settings of the policy `hf-dynamic`, which follows assisted generation of Hugging Face transformers. The defaults
/// are the defaults of transformers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HfDynamic {
    /// Draft length with which requests start at the beginning of a run, 1 to 32.
    pub num_assistant_tokens: u32,
    /// How the draft length of a request changes from step to step.
    pub num_assistant_tokens_schedule: Schedule,
    /// Confidence threshold at the start, [0, 1]. Drafting stops after a token of lower confidence. 0: no threshold and
    /// no tuning.
    pub assistant_confidence_threshold: f64,
    /// True adapts a request's confidence threshold to the outcomes of its earlier draft tokens.
    pub tuning: bool,
}

impl Default for HfDynamic {
    fn default() -> Self {
        HfDynamic {
            num_assistant_tokens: 20,
            num_assistant_tokens_schedule: Schedule::Constant,
            assistant_confidence_threshold: 0.4,
            tuning: true,
        }
    }
}

impl HfDynamic {
    /// The defaults of older releases of transformers: 5 tokens, the schedule "heuristic", no threshold.
    pub fn heuristic() -> HfDynamic {
        HfDynamic {
            num_assistant_tokens: 5,
            num_assistant_tokens_schedule: Schedule::Heuristic,
            assistant_confidence_threshold: 0.0,
            tuning: true,
        }
    }

    fn has_threshold(&self) -> bool {
        self.assistant_confidence_threshold > 0.0
    }
}

impl Definition for HfDynamic {
    fn about(&self) -> About {
        About {
            summary: match self.has_threshold() {
                true => {
                    "drafts until a request's confidence falls below its threshold, which tunes itself by an ROC curve"
                }
                false => "drafts two tokens more after a full match and one less otherwise, for each request",
            },
            source: "huggingface/transformers generation/candidate_generator.py",
            sees: "the confidence of each drafted token; accepted counts of past steps, each request's own",
            differences: "transformers runs one request at a time: here each request of the batch keeps its own \
                          length, threshold and samples. A new request goes on from the threshold tuned last and, \
                          with \"heuristic\", from the length of the request observed last: both persist over calls \
                          by its documentation. The tuned threshold holds from the request's next round on; in the \
                          revision read, the draft loop has its own copy of it until the call ends. A round without \
                          drafts changes nothing",
        }
    }

    fn beliefs(&self) -> Beliefs {
        Beliefs { confidence: self.has_threshold(), ..Beliefs::default() }
    }

    fn check(&self) -> Result<(), BadParameter> {
        let check = Check("hf-dynamic");
        check.length("num_assistant_tokens", self.num_assistant_tokens)?;
        check.share("assistant_confidence_threshold", self.assistant_confidence_threshold)
    }

    fn build(&self, context: &PolicyContext) -> Speculation {
        Speculation::Policy(Box::new(Assistants::new(*self, context)))
    }
}

/// The state by which one request drafts: its draft length, its confidence threshold, and its samples (the confidences
/// of draft tokens that the target judged).
#[derive(Clone, Debug, Default)]
struct Generator {
    len: u32,
    threshold: f64,
    samples: Samples,
}

/// The policy `hf-dynamic` while the engine runs: its settings, and what it keeps from step to step.
struct Assistants {
    params: HfDynamic,
    longest: u32,
    slots: Slots,
    /// The draft length, threshold and samples of each request. The index is the request's slot, which it keeps until
    /// it ends.
    generators: Vec<Generator>,
    /// Draft length and confidence threshold with which the next new request starts.
    first_len: u32,
    first_threshold: f64,
    /// For each request of the batch in progress: its slot, the index of its state in `generators`.
    batch: Vec<usize>,
}

impl Assistants {
    fn new(params: HfDynamic, context: &PolicyContext) -> Assistants {
        Assistants {
            longest: context.max_draft_len,
            slots: Slots::default(),
            generators: Vec::new(),
            first_len: params.num_assistant_tokens,
            first_threshold: params.assistant_confidence_threshold,
            batch: Vec::new(),
            params,
        }
    }
}

impl SpecPolicy for Assistants {
    fn limits(&self) -> DraftLimits<'_> {
        DraftLimits::chain(match self.params.num_assistant_tokens_schedule {
            Schedule::Constant => self.params.num_assistant_tokens.min(self.longest),
            Schedule::Heuristic | Schedule::HeuristicTransient => self.longest,
        })
    }

    fn wants(&self) -> Wants {
        Wants { confidence: self.params.has_threshold(), ..Wants::default() }
    }

    fn propose(&mut self, batch: &BatchView, plan: &mut DraftPlan) {
        self.batch.clear();
        for (&id, len) in batch.ids.iter().zip(&mut plan.draft_len) {
            let (place, new) = self.slots.take(id);
            if self.generators.len() <= place {
                self.generators.resize_with(place + 1, Generator::default);
            }
            let generator = &mut self.generators[place];
            if new {
                generator.len = self.first_len;
                generator.threshold = self.first_threshold;
                generator.samples.clear();
            }
            *len = generator.len.min(self.longest);
            self.batch.push(place);
        }
    }

    fn keep_drafting(&mut self, _: &BatchView, drafts: &mut Drafts) -> Continue {
        if self.params.has_threshold() {
            for (i, &place) in self.batch.iter().enumerate() {
                let in_pass = drafts.draft_len[i] == drafts.passes;
                let confidence = |drafts: &Drafts| drafts.confidence(i, drafts.passes as usize - 1);
                if in_pass && confidence(drafts) < self.generators[place].threshold {
                    drafts.stop(i);
                }
            }
        }
        Continue::Yes
    }

    fn observe(&mut self, outcome: &StepOutcome) {
        for (i, &id) in outcome.ids.iter().enumerate() {
            let (drafted, accepted) = (outcome.drafted[i], outcome.accepted[i]);
            let Some(place) = self.slots.get(id).filter(|_| drafted > 0) else { continue };
            let generator = &mut self.generators[place];
            if self.params.num_assistant_tokens_schedule != Schedule::Constant {
                let len = generator.len;
                generator.len = if accepted == drafted { len.saturating_add(2) } else { (len - 1).max(1) };
            }
            if self.params.num_assistant_tokens_schedule == Schedule::Heuristic {
                self.first_len = generator.len;
            }
            if self.params.has_threshold() && self.params.tuning {
                // The target does not judge the draft tokens after the first rejected one, so they give no samples for
                // tuning the threshold.
                for j in 0..drafted.min(accepted + 1) {
                    generator.samples.add(outcome.drafts.confidence(i, j as usize), j < accepted);
                }
                if let Some(tuned) = generator.samples.best_threshold() {
                    generator.threshold = tuned;
                    self.first_threshold = tuned;
                }
            }
        }
    }

    fn request_finished(&mut self, id: RequestId) {
        self.slots.free(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Batch, CONTEXT, Run, outcome};

    #[test]
    fn defaults_are_those_of_transformers() {
        let now = HfDynamic::default();
        assert_eq!((now.num_assistant_tokens, now.assistant_confidence_threshold, now.tuning), (20, 0.4, true));
        assert_eq!(now.num_assistant_tokens_schedule, Schedule::Constant);
        let older = HfDynamic::heuristic();
        assert_eq!((older.num_assistant_tokens, older.assistant_confidence_threshold), (5, 0.0));
        assert_eq!(older.num_assistant_tokens_schedule, Schedule::Heuristic);
    }

    #[test]
    fn each_request_stops_by_itself_and_keeps_the_token_that_fell_short() {
        let confidence = [[0.9f64, 0.39, 0.9, 0.9], [0.4, 0.8, 0.5, 0.1], [0.9; 4]];
        let batch = Batch::new(&[9; 3], &[4, 4, 3]);
        let step = Run::of(&HfDynamic::default(), &CONTEXT).step(&batch, |i, j| confidence[i][j], &[0; 3]);
        assert_eq!((step.draft_len, step.verify_len), (vec![2, 4, 3], vec![2, 4, 3]));
    }

    #[test]
    fn the_heuristic_adds_two_or_takes_one() {
        let mut run = Run::of(&HfDynamic::heuristic(), &CONTEXT);
        let mut batch = Batch::new(&[9; 2], &[8; 2]);
        let mut lens = |batch: &Batch, accepted: &[u32]| run.step(batch, |_, _| 0.01, accepted).draft_len;
        assert_eq!(lens(&batch, &[5, 4]), [5, 5]);
        assert_eq!(lens(&batch, &[7, 0]), [7, 4]);
        // The draft length of request 0 is 9, but its limit cuts it to 8. All 8 draft tokens match, so the length grows
        // further.
        assert_eq!(lens(&batch, &[8, 0]), [8, 3]);
        for expected in [2, 1, 1] {
            assert_eq!(lens(&batch, &[0, 0])[1], expected);
        }
        // The length of request 0 fell by one in each of three steps: 11 − 3 = 8. A new request starts from the length
        // of the request that was observed last.
        batch.ids = vec![0, 7];
        assert_eq!(lens(&batch, &[0, 0]), [8, 1]);
        let transient =
            HfDynamic { num_assistant_tokens_schedule: Schedule::HeuristicTransient, ..HfDynamic::heuristic() };
        let mut run = Run::of(&transient, &CONTEXT);
        run.step(&Batch::new(&[9], &[8]), |_, _| 0.01, &[0]);
        assert_eq!(run.step(&batch, |_, _| 0.01, &[0, 0]).draft_len, [4, 5]);
    }

    #[test]
    fn thresholds_tune_themselves_request_by_request() {
        let mut run = Run::of(&HfDynamic::default(), &CONTEXT);
        let batch = Batch::new(&[9; 2], &[8; 2]);
        // In request 0, draft tokens of confidence 0.9 match the target's tokens and draft tokens of confidence 0.6 do
        // not. In request 1 all draft tokens match.
        let confidence = |i: usize, j: usize| if i == 0 && j % 2 == 1 { 0.6 } else { 0.9 };
        for _ in 0..3 {
            assert_eq!(run.step(&batch, confidence, &[1, 8]).draft_len, [8, 8]);
        }
        // There are three draft tokens of each confidence as samples: the threshold 0.9 separates the matches of
        // request 0 from its mismatches.
        let step = run.step(&batch, confidence, &[1, 8]);
        assert_eq!((step.draft_len, step.verify_len), (vec![2, 8], vec![2, 8]));
        // A new request starts with the tuned threshold of the request before it, request 0. It collects its own
        // samples (confidences of draft tokens that the target judged).
        let mut run = Run::of(&HfDynamic::default(), &CONTEXT);
        let mut one = Batch::new(&[9], &[8]);
        (0..4).for_each(|_| drop(run.step(&one, confidence, &[1])));
        one.ids = vec![5];
        assert_eq!(run.step(&one, confidence, &[1]).draft_len, [2]);
        let fixed = HfDynamic { tuning: false, ..HfDynamic::default() };
        let mut run = Run::of(&fixed, &CONTEXT);
        for _ in 0..6 {
            assert_eq!(run.step(&batch, confidence, &[1, 8]).draft_len, [8, 8]);
        }
    }

    /// The state of an ended request is reused for a new one: 60,000 requests of 20 steps each, two at a time.
    #[test]
    fn memory_does_not_grow_with_the_trace() {
        let mut policy = Assistants::new(HfDynamic::default(), &PolicyContext { max_num_seqs: 2, ..CONTEXT });
        let mut drafts = Drafts::default();
        drafts.reset(2, 8);
        for j in 0..8 {
            (0..2).for_each(|i| drafts.set_confidence(i, j, 0.5 + 0.05 * j as f64));
        }
        let mut batch = Batch::new(&[9; 2], &[8; 2]);
        for step in 0..600_000u64 {
            let first = step / 20 * 2;
            batch.ids = vec![first as RequestId, first as RequestId + 1];
            let mut plan = DraftPlan { draft_len: vec![0; 2], ..DraftPlan::default() };
            policy.propose(&batch.view(), &mut plan);
            let accepted = [(step % 7) as u32, 8];
            policy.observe(&StepOutcome { ids: &batch.ids, ..outcome(&drafts, &[8, 8], &accepted) });
            if step % 20 == 19 {
                batch.ids.iter().for_each(|&id| policy.request_finished(id));
            }
        }
        assert_eq!(policy.generators.len(), 2);
    }

    #[test]
    fn bad_settings_are_named() {
        let default = HfDynamic::default();
        for (params, key) in [
            (HfDynamic { num_assistant_tokens: 0, ..default }, "num_assistant_tokens"),
            (HfDynamic { assistant_confidence_threshold: f64::NAN, ..default }, "assistant_confidence_threshold"),
        ] {
            assert_eq!(params.check().map_err(|e| e.key), Err(key));
        }
    }
}
