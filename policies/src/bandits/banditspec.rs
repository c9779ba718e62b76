//! `banditspec` and `banditspec-literal`: draft lengths as the arms of an upper-confidence-bound bandit whose reward is
//! the throughput of the step.
//!
//! Source: BanditSpec (arXiv 2505.15141), section 6.2, and sail-sg/BanditSpec, `ucb_length_spec_generate` in
//! `generate_utils.py`; restated in docs/model.md 7.3. The shipped bonus √(6 ln t / pulls) divides by the pulls of
//! *all* arms, so it is the same for each arm. After the first steps the arm with the best mean therefore always wins,
//! and an arm whose mean is too low by accident is not tried again. `banditspec-literal` has this bonus. `banditspec`
//! divides by the arm's own pulls, as UCB does.

use crate::bandits::bandit::{Mean, check_arms, cut, has_room, played, tokens_per_s};
use crate::definition::{About, BadParameter, Check, Definition, PolicyContext};
use foretoken_sim::{BatchView, Candidate, DraftLimits, DraftPlan, Explanation, SpecPolicy, Speculation, StepOutcome};
use serde::{Deserialize, Serialize};

/// The bonus for rarely tried arms (draft lengths), which is added to an arm's mean reward (tokens per second).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Bonus {
    /// √(exploration · ln t / pulls of all arms), where t counts the steps, as in the published code. The bonus is then
    /// equal for all arms (draft lengths). Rewards (a step's tokens per second) are not normalised.
    AllPulls,
    /// √(exploration · ln t / pulls of the arm), where t counts the steps. Rewards (a step's tokens per second) are
    /// divided by the greatest reward so far.
    OwnPulls,
    /// The paper's confidence radius (eq. 6): ½ √((1 + n)/n² · (1 + 2 ln(K t² √(1 + n) / δ))) for K arms (draft
    /// lengths), n pulls of the arm and t earlier steps. δ is the setting `delta`. Rewards (a step's tokens per second)
    /// are divided by the greatest reward so far.
    Ucbspec,
}

/// Settings of the policy `banditspec`, which chooses the draft length with an upper-confidence-bound bandit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Banditspec {
    /// Draft lengths to choose from (the arms of the bandit).
    pub arms: Vec<u32>,
    /// The formula of the bonus that is added to the mean reward of an arm (a draft length), so that rarely tried arms
    /// are tried again.
    pub bonus: Bonus,
    /// The factor in the bonus √(`exploration` · ln t / pulls), ≥ 0, which is added to the mean reward of a draft
    /// length. A larger factor tries rarely used lengths more.
    pub exploration: f64,
    /// At the start the arms (draft lengths) take turns, so that each runs in about this number of steps; at least 1.
    /// Only steps count in which at least one request may draft.
    pub turns: u32,
    /// δ of the bonus `ucbspec`, in (0, 1]: the probability with which the mean reward of a draft length may lie
    /// outside its confidence bound. The paper's proof uses 1/2.
    pub delta: f64,
}

impl Default for Banditspec {
    fn default() -> Self {
        Banditspec { arms: vec![1, 2, 3, 4], bonus: Bonus::OwnPulls, exploration: 6.0, turns: 2, delta: 0.5 }
    }
}

impl Banditspec {
    /// The settings of `banditspec-literal`: the defaults, but with the bonus of the published code.
    pub fn literal() -> Banditspec {
        Banditspec { bonus: Bonus::AllPulls, ..Banditspec::default() }
    }
}

impl Definition for Banditspec {
    fn about(&self) -> About {
        About {
            summary: match self.bonus {
                Bonus::AllPulls => {
                    "a UCB bandit over lengths whose bonus is the same for every arm: greedy after the first rounds"
                }
                _ => "a UCB bandit over lengths, rewarded with tokens per second",
            },
            source: "BanditSpec (arXiv 2505.15141) 6.2 and Alg. 4, sail-sg/BanditSpec generate_utils.py",
            sees: "drafted and accepted counts and the times of past steps",
            differences: match self.bonus {
                Bonus::AllPulls => {
                    "the artefact learns anew for each generated batch, here one bandit serves the run; step times \
                     include prompts that ride along"
                }
                _ => {
                    "the shipped bonus divides by all arms' pulls: corrected. Rewards are scaled by the greatest one \
                     so far, since the bonus is made for rewards up to 1. The artefact learns anew for each generated \
                     batch, here one bandit serves the run"
                }
            },
        }
    }

    fn asks_for(&self) -> Option<(&'static str, u32)> {
        self.arms.iter().copied().max().map(|longest| ("arms", longest))
    }

    fn check(&self) -> Result<(), BadParameter> {
        let check = Check("banditspec");
        check_arms(&check, &self.arms)?;
        check.that("exploration", self.exploration.is_finite() && self.exploration >= 0.0, || {
            format!("{} is not a number from 0", self.exploration)
        })?;
        check.that("turns", self.turns > 0, || "must be at least 1".into())?;
        check.that("delta", self.delta > 0.0 && self.delta <= 1.0, || {
            format!("{} is not a probability above 0", self.delta)
        })
    }

    fn build(&self, context: &PolicyContext) -> Speculation {
        Speculation::Policy(Box::new(Running::new(self, context.max_draft_len)))
    }
}

/// The policy `banditspec` or `banditspec-literal` while the engine runs: its settings, and what it keeps from step to
/// step.
struct Running {
    params: Banditspec,
    arms: Vec<u32>,
    /// For each arm (draft length): the mean of its rewards, in tokens per second.
    rewards: Vec<Mean>,
    /// Number of rounds so far, this one included. A round is a step in which at least one request could draft.
    round: u64,
    /// The most tokens per second of a step so far. Except with `AllPulls`, rewards are divided by it.
    greatest: f64,
    /// For each arm (draft length): its score, that is, its mean reward plus its bonus, at the last decision. Empty
    /// while the arms take turns.
    scores: Vec<f64>,
    chosen: usize,
}

impl Running {
    fn new(params: &Banditspec, max_draft_len: u32) -> Running {
        let arms = cut(&params.arms, max_draft_len);
        Running {
            rewards: vec![Mean::default(); arms.len()],
            scores: Vec::with_capacity(arms.len()),
            params: params.clone(),
            arms,
            round: 0,
            greatest: 0.0,
            chosen: 0,
        }
    }

    /// The score of an arm (a draft length): the mean of its rewards (tokens per second) plus its bonus. Except with
    /// `AllPulls` the mean is divided by the greatest reward so far. Returns infinity as long as the arm was never
    /// pulled; with `AllPulls`, as long as no arm was ever pulled.
    fn score(&self, arm: usize, all_pulls: u64) -> f64 {
        let p = &self.params;
        let (k, t) = (self.arms.len() as f64, self.round as f64);
        let reward = self.rewards[arm];
        let n = match p.bonus {
            Bonus::AllPulls => all_pulls as f64,
            _ => reward.count as f64,
        };
        if n == 0.0 {
            return f64::INFINITY;
        }
        match p.bonus {
            Bonus::AllPulls => reward.value + (p.exploration * t.ln() / n).sqrt(),
            Bonus::OwnPulls => reward.value / self.greatest + (p.exploration * t.ln() / n).sqrt(),
            Bonus::Ucbspec => {
                // The paper's t is the number of earlier steps with a decision; the variable `t` counts this step too.
                let before = t - 1.0;
                let spread = 1.0 + 2.0 * (k * before * before * (1.0 + n).sqrt() / p.delta).ln();
                reward.value / self.greatest + 0.5 * ((1.0 + n) / (n * n) * spread).sqrt()
            }
        }
    }

    /// Counts the step, and returns the index of the arm (draft length) to run. At first the arms take turns. Later the
    /// arm with the best score is taken, the shorter length on a tie, and the scores of all arms are stored in
    /// `scores`.
    fn choose(&mut self) -> usize {
        self.round += 1;
        self.scores.clear();
        let arms = self.arms.len() as u64;
        if self.round < u64::from(self.params.turns) * arms {
            return ((self.round - 1) % arms) as usize;
        }
        let all_pulls = self.rewards.iter().map(|r| r.count).sum();
        let mut best = 0;
        for arm in 0..self.arms.len() {
            let score = self.score(arm, all_pulls);
            self.scores.push(score);
            if score > self.scores[best] {
                best = arm;
            }
        }
        best
    }
}

impl SpecPolicy for Running {
    fn limits(&self) -> DraftLimits<'_> {
        DraftLimits::chain(self.arms.last().copied().unwrap_or(0))
    }

    fn propose(&mut self, batch: &BatchView, plan: &mut DraftPlan) {
        if has_room(batch) {
            self.chosen = self.choose();
            plan.fill(self.arms[self.chosen]);
        }
    }

    /// Adds the step's reward (its tokens per second) to the arm with the draft length that the step ran. A limit may
    /// have cut this length to a value that is not an arm; then the reward is ignored.
    fn observe(&mut self, outcome: &StepOutcome) {
        let ran = played(outcome);
        if let Some(reward) = tokens_per_s(outcome)
            && let Some(arm) = self.arms.iter().position(|&a| a == ran)
        {
            self.greatest = self.greatest.max(reward);
            self.rewards[arm].add(reward);
        }
    }

    fn explain(&mut self) -> Explanation {
        let scored = self.arms.iter().zip(&self.scores);
        Explanation {
            estimate: self.scores.get(self.chosen).copied().filter(|s| s.is_finite()),
            candidates: scored.map(|(k, &estimate)| Candidate { what: format!("k = {k}"), estimate }).collect(),
        }
    }
}

#[cfg(test)]
#[path = "banditspec_tests.rs"]
mod tests;
