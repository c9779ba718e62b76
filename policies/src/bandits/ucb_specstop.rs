//! `ucb-specstop-like`: a bandit over draft lengths. It learns the mean tokens and the mean time of a step separately.
//! It takes the length with the greatest upper confidence bound of the ratio of mean tokens to mean time.
//!
//! Source: the abstract of "UCB-SpecStop" (arXiv 2606.20591), which was all that could be read. It says that throughput
//! is a ratio of means, so the mean of each step's ratio is the wrong reward, and that the policy takes an upper
//! confidence bound of the ratio. The bonus here is UCB1's, on the mean of tokens and on the mean of times.

use crate::bandits::bandit::{Mean, check_arms, cut, has_room, played};
use crate::definition::{About, BadParameter, Check, Definition, PolicyContext};
use foretoken_sim::{BatchView, Candidate, DraftLimits, DraftPlan, Explanation, SpecPolicy, Speculation, StepOutcome};
use serde::{Deserialize, Serialize};

/// Settings of the policy `ucb-specstop-like`, which chooses the draft length with a bandit over tokens and times of
/// steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct UcbSpecstopLike {
    /// Draft lengths to choose from (the arms of the bandit).
    pub arms: Vec<u32>,
    /// Factor, ≥ 0, under the root of UCB1's bonus √(exploration · ln t / pulls of the arm). An arm is a draft length.
    /// A larger factor tries rarely used lengths more.
    pub exploration: f64,
}

impl Default for UcbSpecstopLike {
    fn default() -> Self {
        UcbSpecstopLike { arms: vec![0, 1, 2, 3, 4, 5, 6], exploration: 0.05 }
    }
}

impl Definition for UcbSpecstopLike {
    fn about(&self) -> About {
        About {
            summary: "a bandit over lengths with an upper confidence bound of the ratio of mean tokens to mean time",
            source: "UCB-SpecStop (arXiv 2606.20591), the abstract",
            sees: "drafted and accepted counts and the times of past steps",
            differences: "only the abstract was read: the bonus is UCB1's on the mean number of tokens and on the \
                          mean time, and its factor is assumed. One bandit serves the run",
        }
    }

    fn asks_for(&self) -> Option<(&'static str, u32)> {
        self.arms.iter().copied().max().map(|longest| ("arms", longest))
    }

    fn check(&self) -> Result<(), BadParameter> {
        let check = Check("ucb-specstop-like");
        check_arms(&check, &self.arms)?;
        check.that("exploration", self.exploration.is_finite() && self.exploration >= 0.0, || {
            format!("{} is not a number from 0", self.exploration)
        })
    }

    fn build(&self, context: &PolicyContext) -> Speculation {
        let arms: Vec<Arm> = cut(&self.arms, context.max_draft_len)
            .into_iter()
            .map(|len| Arm { len, tokens: Mean::default(), seconds: Mean::default() })
            .collect();
        Speculation::Policy(Box::new(Running { exploration: self.exploration, arms, chosen: 0 }))
    }
}

/// An arm of the bandit: a draft length with the mean tokens and the mean time of its steps.
struct Arm {
    len: u32,
    /// Mean number of tokens of a request in a step with this draft length, the bonus token included.
    tokens: Mean,
    /// Mean seconds of the steps that ran this draft length.
    seconds: Mean,
}

/// The policy `ucb-specstop-like` while the engine runs: its settings, and what it keeps from step to step.
struct Running {
    exploration: f64,
    arms: Vec<Arm>,
    chosen: usize,
}

impl Running {
    /// The score of an arm (a draft length): the upper bound of its mean tokens divided by the lower bound of its mean
    /// time; infinite before a step has run the length.
    fn index(&self, arm: &Arm, pulls: u64) -> f64 {
        if arm.tokens.count == 0 {
            return f64::INFINITY;
        }
        let radius = (self.exploration * (pulls as f64).ln() / arm.tokens.count as f64).sqrt();
        // A step gives a request at most 1 + len tokens, so the upper bound on the mean tokens is at most 1 + len. The
        // lower bound on the mean time is at least half of the mean time, so that the ratio stays finite.
        let tokens = (arm.tokens.value + f64::from(arm.len) * radius).min(f64::from(arm.len) + 1.0);
        tokens / (arm.seconds.value * (1.0 - radius.min(0.5)))
    }
}

impl SpecPolicy for Running {
    fn limits(&self) -> DraftLimits<'_> {
        DraftLimits::chain(self.arms.last().map_or(0, |arm| arm.len))
    }

    fn propose(&mut self, batch: &BatchView, plan: &mut DraftPlan) {
        if !has_room(batch) {
            return;
        }
        let pulls = self.arms.iter().map(|arm| arm.tokens.count).sum::<u64>().max(1);
        // If two arms (draft lengths) have the same score, the shorter length wins.
        let mut best = (0, f64::NEG_INFINITY);
        for (i, arm) in self.arms.iter().enumerate() {
            let index = self.index(arm, pulls);
            if index > best.1 {
                best = (i, index);
            }
        }
        self.chosen = best.0;
        plan.fill(self.arms[self.chosen].len);
    }

    /// Adds the step's tokens and time to the arm with the draft length that the step ran. A limit may have cut the
    /// length to a value that is not an arm; then the step is ignored.
    fn observe(&mut self, outcome: &StepOutcome) {
        let (requests, ran) = (outcome.accepted.len(), played(outcome));
        let seconds = (outcome.draft_time + outcome.verify_time).as_s();
        if requests == 0 || seconds <= 0.0 {
            return;
        }
        if let Some(arm) = self.arms.iter_mut().find(|arm| arm.len == ran) {
            let tokens: u64 = outcome.accepted.iter().map(|&a| u64::from(a) + 1).sum();
            arm.tokens.add(tokens as f64 / requests as f64);
            arm.seconds.add(seconds);
        }
    }

    fn explain(&mut self) -> Explanation {
        let pulls = self.arms.iter().map(|arm| arm.tokens.count).sum::<u64>().max(1);
        let candidate = |arm: &Arm| Candidate { what: format!("k = {}", arm.len), estimate: self.index(arm, pulls) };
        let candidates: Vec<Candidate> = self.arms.iter().map(candidate).collect();
        let estimate = candidates.get(self.chosen).map(|c| c.estimate).filter(|e| e.is_finite());
        Explanation { estimate, candidates }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Batch, CONTEXT, Run};
    use foretoken_sim::{Drafts, Time};

    /// Runs `steps` steps with one request. `law(length, step)` gives the step's accepted tokens and seconds. Returns
    /// the chosen lengths.
    fn served(params: &UcbSpecstopLike, steps: usize, law: impl Fn(u32, usize) -> (u32, f64)) -> Vec<u32> {
        let Speculation::Policy(mut policy) = params.build(&CONTEXT) else { unreachable!("a policy") };
        let batch = Batch::new(&[100], &[8]);
        let one = |t: usize| {
            let mut plan = DraftPlan { draft_len: vec![0], ..DraftPlan::default() };
            policy.propose(&batch.view(), &mut plan);
            let len = plan.draft_len[0];
            let (accepted, seconds) = law(len, t);
            let drafts = Drafts::default();
            let drafted = [len];
            policy.observe(&StepOutcome {
                ids: &[0],
                drafted: &drafted,
                verified: &drafted,
                accepted: &[accepted],
                drafts: &drafts,
                draft_time: Time::ZERO,
                verify_time: Time::from_s(seconds),
            });
            len
        };
        (0..steps).map(one).collect()
    }

    /// Steps of length 2 alternately give two tokens in 1 s and one token in 0.1 s. The mean of these ratios is 6
    /// tokens a second, the ratio of the means is 2.7. Length 1 always gives 4 tokens a second.
    #[test]
    fn the_ratio_of_means_counts_not_the_mean_of_ratios() {
        let law = |len: u32, t: usize| match (len, t % 2) {
            (1, _) => (1, 0.5),
            (_, 0) => (1, 1.0),
            _ => (0, 0.1),
        };
        let params = UcbSpecstopLike { arms: vec![1, 2], exploration: 0.0 };
        let lens = served(&params, 40, law);
        assert!(lens[10..].iter().all(|&len| len == 1), "{lens:?}");
    }

    #[test]
    fn the_best_length_is_found_and_the_others_are_tried() {
        // A step has 1 + min(len, 3) tokens and takes 1 + 0.2 len seconds: 4 tokens in 1.6 s at length 3 is best.
        let law = |len: u32, _| (len.min(3), 1.0 + 0.2 * f64::from(len));
        let lens = served(&UcbSpecstopLike::default(), 400, law);
        assert!((0..=6).all(|len| lens.contains(&len)));
        let best = lens[200..].iter().filter(|&&len| len == 3).count();
        assert!(best > 100, "{best} of the last 200");
    }

    #[test]
    fn a_request_without_room_learns_nothing() {
        let mut run = Run::of(&UcbSpecstopLike::default(), &CONTEXT);
        assert_eq!(run.step(&Batch::new(&[9], &[0]), |_, _| 0.5, &[0]).draft_len, [0]);
    }

    #[test]
    fn bad_settings_are_named() {
        let refused = |arms: Vec<u32>, exploration| UcbSpecstopLike { arms, exploration }.check().map_err(|e| e.key);
        assert_eq!((refused(vec![2, 2], 1.0), refused(vec![1, 2], -1.0)), (Err("arms"), Err("exploration")));
    }
}
