//! `tapout-like`: a bandit over stopping rules. A stopping rule decides when a request stops drafting. The bandit
//! learns which of three rules, which need no tuning, brings the greatest reward.
//!
//! Source: the abstract of TapOut (arXiv 2511.02017) and a summary of it, which were all that could be read: UCB1 over
//! stopping rules, one choice for each step with draft tokens, with a reward that blends the accepted length and the
//! acceptance rate. The three rules here are the policies `threshold-hf`, `svip` and `adaedl` with their default
//! settings.

use crate::bandits::bandit::Mean;
use crate::confidence::adaedl::Adaedl;
use crate::confidence::svip::Svip;
use crate::confidence::threshold::Threshold;
use crate::definition::{About, BadParameter, Beliefs, Check, Definition, PolicyContext};
use foretoken_sim::{
    BatchView, Candidate, Continue, DraftLimits, DraftPlan, Drafts, Explanation, RequestId, SpecPolicy, Speculation,
    StepOutcome, Wants,
};
use serde::{Deserialize, Serialize};

/// Settings of the policy `tapout-like`, which chooses with a bandit among rules that stop drafting.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TapoutLike {
    /// Weight of the accepted length in the reward, [0, 1]. The acceptance rate has the weight 1 − `blend`.
    pub blend: f64,
    /// Factor, ≥ 0, under the root of UCB1's bonus √(exploration · ln t / pulls), which is added to the mean reward of
    /// a stopping rule. A larger factor tries rarely used rules more.
    pub exploration: f64,
    /// Number of steps for which a chosen stopping rule runs, more than 3. Outcomes may come late, so the first ones
    /// after a change do not count for the new rule.
    pub hold: u32,
}

impl Default for TapoutLike {
    fn default() -> Self {
        TapoutLike { blend: 0.5, exploration: 2.0, hold: 8 }
    }
}

/// Outcomes usually come at most this number of steps late. So after a change of rules, this number of outcomes may
/// belong to the rule before; they do not count for the new rule.
const LATE: u32 = 3;

impl Definition for TapoutLike {
    fn about(&self) -> About {
        About {
            summary: "a UCB bandit over stopping rules: a confidence threshold, SVIP, AdaEDL",
            source: "TapOut (arXiv 2511.02017), the abstract and a summary",
            sees: "the confidence and the entropy of each drafted token; accepted counts",
            differences: "only the abstract and a summary were read. All requests of a batch follow one rule, which \
                          is kept for some steps; two of the paper's rules need logits that the simulator does not \
                          have",
        }
    }

    fn beliefs(&self) -> Beliefs {
        Beliefs { confidence: true, ..Beliefs::default() }
    }

    fn check(&self) -> Result<(), BadParameter> {
        let check = Check("tapout-like");
        check.share("blend", self.blend)?;
        check.that("exploration", self.exploration.is_finite() && self.exploration >= 0.0, || {
            format!("{} is not a number from 0", self.exploration)
        })?;
        check.that("hold", self.hold > LATE, || format!("{} steps are not more than {LATE}", self.hold))
    }

    fn build(&self, context: &PolicyContext) -> Speculation {
        let rules: [(&'static str, Speculation); 3] = [
            ("threshold-hf", Threshold::hf().build(context)),
            ("svip", Svip::default().build(context)),
            ("adaedl", Adaedl::default().build(context)),
        ];
        let arms = rules.into_iter().filter_map(|(name, speculation)| match speculation {
            Speculation::Policy(policy) => Some(Arm { name, policy, reward: Mean::default() }),
            _ => None,
        });
        let running = Running {
            params: *self,
            arms: arms.collect(),
            chosen: 0,
            held: 0,
            seen: 0,
            longest: context.max_draft_len,
        };
        Speculation::Policy(Box::new(running))
    }
}

/// A rule that stops drafting, which is an arm of the bandit, with the mean of its rewards so far.
struct Arm {
    name: &'static str,
    policy: Box<dyn SpecPolicy>,
    reward: Mean,
}

/// The policy `tapout-like` while the engine runs: its settings, and what it keeps from step to step.
struct Running {
    params: TapoutLike,
    arms: Vec<Arm>,
    chosen: usize,
    /// Number of steps that the chosen stopping rule has decided since it was chosen.
    held: u32,
    /// Number of outcomes of steps with draft tokens that arrived since the present stopping rule was chosen.
    seen: u32,
    longest: u32,
}

impl Running {
    fn score(&self, arm: &Arm) -> f64 {
        let pulls: u64 = self.arms.iter().map(|arm| arm.reward.count).sum();
        match arm.reward.count {
            0 => f64::INFINITY,
            n => arm.reward.value + (self.params.exploration * (pulls as f64).ln() / n as f64).sqrt(),
        }
    }

    /// Chooses the stopping rule with the best score (mean reward plus bonus), the first of them on a tie. Sets `held`
    /// and `seen` to 0.
    fn choose(&mut self) {
        let mut best = (0, f64::NEG_INFINITY);
        for (i, arm) in self.arms.iter().enumerate() {
            let score = self.score(arm);
            if score > best.1 {
                best = (i, score);
            }
        }
        (self.chosen, self.held, self.seen) = (best.0, 0, 0);
    }
}

impl SpecPolicy for Running {
    fn limits(&self) -> DraftLimits<'_> {
        let depth = self.arms.iter().map(|arm| arm.policy.limits().depth).max().unwrap_or(0);
        DraftLimits::chain(depth.min(self.longest))
    }

    fn wants(&self) -> Wants {
        Wants { confidence: true, entropy: true, ..Wants::default() }
    }

    fn propose(&mut self, batch: &BatchView, plan: &mut DraftPlan) {
        // A stopping rule stays chosen for at least `hold` steps, and until more than `LATE` outcomes of steps with
        // draft tokens have arrived.
        if self.held >= self.params.hold && self.seen > LATE {
            self.choose();
        }
        self.held += 1;
        self.arms[self.chosen].policy.propose(batch, plan);
    }

    fn keep_drafting(&mut self, batch: &BatchView, drafts: &mut Drafts) -> Continue {
        self.arms[self.chosen].policy.keep_drafting(batch, drafts)
    }

    fn select(&mut self, batch: &BatchView, drafts: &mut Drafts) {
        self.arms[self.chosen].policy.select(batch, drafts);
    }

    fn observe(&mut self, outcome: &StepOutcome) {
        self.arms.iter_mut().for_each(|arm| arm.policy.observe(outcome));
        let sum = |column: &[u32]| column.iter().map(|&x| f64::from(x)).sum::<f64>();
        let (drafted, accepted) = (sum(outcome.drafted), sum(outcome.accepted));
        if drafted == 0.0 {
            return;
        }
        self.seen += 1;
        if self.seen > LATE {
            let length = accepted / (outcome.accepted.len() as f64 * f64::from(self.longest.max(1)));
            let blend = self.params.blend;
            self.arms[self.chosen].reward.add(blend * length + (1.0 - blend) * accepted / drafted);
        }
    }

    fn request_finished(&mut self, id: RequestId) {
        self.arms.iter_mut().for_each(|arm| arm.policy.request_finished(id));
    }

    fn explain(&mut self) -> Explanation {
        let candidate = |arm: &Arm| Candidate { what: arm.name.to_owned(), estimate: self.score(arm) };
        let candidates: Vec<Candidate> = self.arms.iter().map(candidate).collect();
        let estimate = candidates.get(self.chosen).map(|c| c.estimate).filter(|e| e.is_finite());
        Explanation { estimate, candidates }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Batch, CONTEXT, Run};
    use foretoken_sim::Time;

    /// Runs `steps` steps, each with 8 draft tokens. If stopping rule `r` decides a step, `accepted[r]` of its draft
    /// tokens are accepted. Returns how often each rule decided.
    fn served(params: TapoutLike, accepted: [u32; 3], steps: u32) -> [u32; 3] {
        let Speculation::Policy(mut policy) = params.build(&CONTEXT) else { unreachable!("a policy") };
        let batch = Batch::new(&[100], &[8]);
        let mut times = [0; 3];
        for _ in 0..steps {
            let mut plan = DraftPlan { draft_len: vec![0], ..DraftPlan::default() };
            policy.propose(&batch.view(), &mut plan);
            let explained = policy.explain();
            let chosen = (0..3).find(|&i| Some(explained.candidates[i].estimate) == explained.estimate);
            let Some(chosen) = chosen.or_else(|| explained.candidates.iter().position(|c| c.estimate.is_infinite()))
            else {
                continue;
            };
            times[chosen] += 1;
            let drafts = Drafts::default();
            policy.observe(&StepOutcome {
                ids: &[0],
                drafted: &[8],
                verified: &[8],
                accepted: &[accepted[chosen]],
                drafts: &drafts,
                draft_time: Time::ZERO,
                verify_time: Time(1),
            });
        }
        times
    }

    #[test]
    fn the_rule_with_the_best_reward_decides_most_and_all_are_tried() {
        let times = served(TapoutLike { exploration: 0.1, ..TapoutLike::default() }, [1, 6, 2], 1200);
        assert!(times.iter().all(|&n| n >= 8), "{times:?}");
        assert!(times[1] > 900, "{times:?}");
    }

    /// Outcomes may come late. So the first `LATE` outcomes after a choice are no reward of the chosen rule.
    #[test]
    fn the_first_outcomes_after_a_choice_do_not_count() {
        let Speculation::Policy(mut policy) = TapoutLike::default().build(&CONTEXT) else { unreachable!("a policy") };
        let batch = Batch::new(&[100], &[8]);
        for step in 1..=LATE + 1 {
            policy.propose(&batch.view(), &mut DraftPlan { draft_len: vec![0], ..DraftPlan::default() });
            let drafts = Drafts::default();
            let (ids, drafted, accepted) = (&[0], &[8], &[4]);
            let (draft_time, verify_time) = (Time::ZERO, Time(1));
            policy.observe(&StepOutcome {
                ids,
                drafted,
                verified: drafted,
                accepted,
                drafts: &drafts,
                draft_time,
                verify_time,
            });
            let rewarded = policy.explain().candidates.iter().filter(|c| c.estimate.is_finite()).count();
            assert_eq!(rewarded, usize::from(step > LATE), "step {step}");
        }
    }

    #[test]
    fn it_drafts_as_its_rule_does() {
        let batch = Batch::new(&[9, 9], &[8, 8]);
        let confidence = |i: usize, j: usize| if i == 0 && j == 1 { 0.2 } else { 0.9 };
        let ours = Run::of(&TapoutLike::default(), &CONTEXT).step(&batch, confidence, &[0, 0]);
        let first = Run::of(&Threshold::hf(), &CONTEXT).step(&batch, confidence, &[0, 0]);
        assert_eq!((ours.draft_len, ours.verify_len), (first.draft_len, first.verify_len));
    }

    #[test]
    fn bad_settings_are_named() {
        let usual = TapoutLike::default();
        for (params, key) in [
            (TapoutLike { blend: 1.5, ..usual }, "blend"),
            (TapoutLike { exploration: f64::NAN, ..usual }, "exploration"),
            (TapoutLike { hold: 3, ..usual }, "hold"),
        ] {
            assert_eq!(params.check().map_err(|e| e.key), Err(key));
        }
    }
}
