//! An executor that runs no model: its confidences and its acceptance are written by hand. With it a policy decides on
//! a batch that was written by hand, in the same draft loop as in the engine.

use crate::acceptance::RankLaw;
use crate::drafts::Drafts;
use crate::engine::{ByPolicy, SpecDecode, TablesOf, draft_at_start};
use crate::executor::{DraftPass, Executor, Moment, RequestTruth, StepPlan};
use crate::latency::PassShape;
use crate::metrics::Spent;
use crate::policy::{BatchView, DraftLimits, DraftPlan, SpecPolicy};
use crate::time::Time;
use crate::workload::RequestId;
use std::convert::Infallible;

/// The confidences and the acceptance of one step, written by hand.
#[derive(Clone, Debug, Default)]
pub struct Scripted {
    /// `[i][j]` is the draft model's confidence in the (j+1)-th draft token of request i. Draft tokens deeper than the
    /// list have the last confidence of the list. In a tree, `[i][j]` is the confidence of the first guess below every
    /// node of depth j, where the root has depth 0.
    pub confidence: Vec<Vec<f64>>,
    /// For each request: how many draft tokens in a row would be accepted. In a tree the accepted nodes are all first
    /// guesses.
    pub run: Vec<u32>,
    /// The probabilities of the ranks of the draft model's second and later guesses.
    pub ranks: RankLaw,
    /// Out: how many decisions the policy made after draft passes and before verification. Each costs a host a wait for
    /// the device.
    pub decisions: u32,
}

impl Scripted {
    fn confidence_at(&self, i: usize, depth: u32) -> f64 {
        let row = &self.confidence[i];
        row[(depth as usize).min(row.len() - 1)]
    }

    /// Lets `policy` decide on one step of `batch`: the policy proposes draft lengths, draft passes run, the policy
    /// selects, and the draft tokens are verified. `max_draft_len` is the most draft tokens of a request in a step.
    /// Returns the draft tokens, and writes the number of accepted draft tokens of each request to `accepted`.
    pub fn decide(
        &mut self,
        policy: &mut Box<dyn SpecPolicy>,
        batch: &BatchView,
        max_draft_len: u32,
        accepted: &mut Vec<u32>,
    ) -> Drafts {
        self.decisions = 0;
        let mut spec = SpecDecode::default();
        let step = StepPlan {
            batch: *batch,
            padded: false,
            one_length: false,
            chunks: &[],
            block_tables: TablesOf::default(),
        };
        let mut drafter = ByPolicy(std::mem::replace(policy, Box::new(Placeholder)));
        let Ok(()) = draft_at_start(&mut drafter, self, (&step, &step.batch), max_draft_len, false, &mut spec);
        *policy = drafter.0;
        accepted.clear();
        accepted.resize(batch.len(), 0);
        let Ok(()) = self.verify(&step, &mut spec.drafts, accepted);
        spec.drafts
    }
}

/// Stands in for the policy while the policy is moved into a drafter.
struct Placeholder;

impl SpecPolicy for Placeholder {
    fn limits(&self) -> DraftLimits<'_> {
        DraftLimits::chain(0)
    }

    fn propose(&mut self, _: &BatchView, _: &mut DraftPlan) {}
}

impl Executor for Scripted {
    type Error = Infallible;
    const SKIPS: bool = false;

    fn now(&self) -> Time {
        Time::ZERO
    }

    fn queued_until(&self) -> Time {
        Time::ZERO
    }

    fn begin_iteration(&mut self) {}

    fn wait_until(&mut self, _: Time) {}

    fn start(&mut self, _: RequestTruth) {}

    fn preempted(&mut self, _: RequestId) {}

    fn end(&mut self, _: RequestId) {}

    fn cap_draft_limits(&mut self, _: &[RequestId], _: &[u32], _: &mut [u32]) {}

    fn drafts_in_parallel(&self) -> bool {
        false
    }

    fn charge_decision(&mut self, moment: Moment) {
        self.decisions += u32::from(matches!(moment, Moment::KeepDrafting | Moment::Select));
    }

    fn spent(&mut self, _: Time) -> Option<Spent> {
        None
    }

    fn plain_step(&mut self, _: PassShape) {
        unreachable!("a script has no steps to skip")
    }

    fn draft(&mut self, step: &StepPlan, pass: &DraftPass, out: &mut Drafts) -> Result<(), Infallible> {
        if pass.pass == 0 {
            return Ok(());
        }
        let depth = pass.pass - 1;
        for i in (0..step.batch.len()).filter(|&i| pass.draft_len[i] >= pass.pass) {
            let first = self.confidence_at(i, depth);
            if let Some(growth) = pass.growth {
                out.trees[i].grow(growth, |_, rank| (self.ranks.guess(first, rank), 0));
                continue;
            }
            // Only values that the policy wants are set, as on hardware. If a policy reads a confidence that it does
            // not want, it gets NaN, which exposes the mistake.
            let look = out.wants.confidence || out.wants.divergence;
            out.set_confidence(i, depth as usize, if look { first } else { f64::NAN });
            if out.wants.entropy {
                out.set_entropy(i, depth as usize, self.ranks.entropy(first));
            }
        }
        Ok(())
    }

    fn verify(&mut self, step: &StepPlan, drafts: &mut Drafts, accepted: &mut [u32]) -> Result<(), Infallible> {
        for (i, a) in accepted.iter_mut().enumerate().take(step.batch.len()) {
            let run = self.run.get(i).copied().unwrap_or(0);
            if drafts.in_trees() {
                *a = drafts.trees[i].accepted(|depth| if depth <= run { 1 } else { u32::MAX });
                continue;
            }
            *a = run.min(drafts.verify_len[i]);
            if drafts.wants.divergence {
                for j in 0..drafts.verify_len[i].min(*a + 1) {
                    let rank = if j < run { 1 } else { 2 };
                    drafts.set_divergence(i, j as usize, self.ranks.divergence(self.confidence_at(i, j), rank));
                }
            }
        }
        Ok(())
    }
}
