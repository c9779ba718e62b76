//! `exp3spec`: draws the draft length with exponential weights (EXP3), which assume nothing about the rewards.
//!
//! Source: EXP3Spec, Alg. 5 and 9 of BanditSpec (arXiv 2505.15141); no code is published. Arm i is drawn with a
//! probability proportional to exp(−ηₜ Σ Ẑᵢ), where the sum is over all steps so far. The learning rate of step t with
//! K arms is ηₜ = `rate` · √(ln K / (t K)). For the drawn arm, Ẑ is its loss divided by the probability with which it
//! was drawn; for all other arms Ẑ is 0. The loss is 1 − reward / greatest reward so far.

use crate::bandits::bandit::{check_arms, cut, has_room, tokens_per_s};
use crate::definition::{About, BadParameter, Check, Definition, PolicyContext};
use foretoken_sim::{
    BatchView, Candidate, DraftLimits, DraftPlan, Explanation, Luck, SpecPolicy, Speculation, StepOutcome, Stream,
};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Settings of the policy `exp3spec`, which draws the draft length with the weights of the bandit EXP3.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Exp3spec {
    /// Draft lengths to choose from (the arms of the bandit).
    pub arms: Vec<u32>,
    /// Factor, > 0, on the learning rate η of EXP3. A larger factor moves the draws faster to draft lengths with low
    /// losses.
    pub rate: f64,
}

impl Default for Exp3spec {
    fn default() -> Self {
        Exp3spec { arms: vec![1, 2, 3, 4], rate: 1.0 }
    }
}

impl Definition for Exp3spec {
    fn about(&self) -> About {
        About {
            summary: "draws lengths with exponential weights (EXP3), rewarded with tokens per second",
            source: "BanditSpec (arXiv 2505.15141) Alg. 5 and 9, EXP3Spec",
            sees: "accepted counts and the times of past steps",
            differences: "the paper's loss counts accepted tokens, (L + 1 - y) / L, and its arms are draft models; \
                          for lengths it takes the throughput as reward (6.2), so the loss here is 1 - tokens per \
                          second over the greatest so far. One bandit serves the run, not one a request",
        }
    }

    fn asks_for(&self) -> Option<(&'static str, u32)> {
        self.arms.iter().copied().max().map(|longest| ("arms", longest))
    }

    fn check(&self) -> Result<(), BadParameter> {
        let check = Check("exp3spec");
        check_arms(&check, &self.arms)?;
        check
            .that("rate", self.rate.is_finite() && self.rate > 0.0, || format!("{} is not a number above 0", self.rate))
    }

    fn build(&self, context: &PolicyContext) -> Speculation {
        Speculation::Policy(Box::new(Running::new(self, context)))
    }
}

/// Index of the drawn arm (draft length), and the probability with which it was drawn.
type Drawn = (usize, f64);

/// The policy `exp3spec` while the engine runs: its settings, and what it keeps from step to step.
struct Running {
    rate: f64,
    arms: Vec<u32>,
    luck: Luck,
    /// For each arm (draft length): the sum of its estimated losses Ẑ. In a step in which the arm was drawn, Ẑ is the
    /// step's loss (1 − its tokens per second / the most so far) divided by the probability of the draw.
    losses: Vec<f64>,
    /// For each arm (draft length): the probability with which the last draw could choose it.
    chances: Vec<f64>,
    round: u64,
    /// The most tokens per second of a step so far. A step's loss is 1 − its tokens per second / this maximum.
    greatest: f64,
    /// For each step whose outcome has not arrived, oldest first: the drawn arm (draft length) and its probability;
    /// `None` if no request could draft. Outcomes arrive in the order of the steps. The probability is stored because
    /// the arm's loss is divided by it.
    awaited: VecDeque<Option<Drawn>>,
}

impl Running {
    fn new(params: &Exp3spec, context: &PolicyContext) -> Running {
        let arms = cut(&params.arms, context.max_draft_len);
        Running {
            rate: params.rate,
            losses: vec![0.0; arms.len()],
            chances: vec![0.0; arms.len()],
            arms,
            luck: Luck::new(context.seed, Stream::Policy, 0),
            round: 0,
            greatest: 0.0,
            awaited: VecDeque::new(),
        }
    }

    /// Counts the step and stores the probability of each arm (draft length) in `chances`. Returns the arm that `u`, a
    /// uniform number in [0, 1), draws, with its probability.
    fn draw(&mut self, u: f64) -> Drawn {
        self.round += 1;
        let k = self.arms.len() as f64;
        let eta = self.rate * (k.ln() / (self.round as f64 * k)).sqrt();
        // The least of the draft lengths' losses is subtracted from all of them. This does not change the probabilities
        // and keeps one weight at 1, so the sum of the weights cannot underflow to 0.
        let least = self.losses.iter().copied().fold(f64::INFINITY, f64::min);
        let mut total = 0.0;
        for (chance, loss) in self.chances.iter_mut().zip(&self.losses) {
            *chance = (-eta * (loss - least)).exp();
            total += *chance;
        }
        let mut below = 0.0;
        let mut drawn = None;
        for (arm, chance) in self.chances.iter_mut().enumerate() {
            *chance /= total;
            below += *chance;
            if drawn.is_none() && u < below {
                drawn = Some(arm);
            }
        }
        let arm = drawn.unwrap_or(self.arms.len() - 1);
        (arm, self.chances[arm])
    }

    fn learn(&mut self, (arm, chance): Drawn, reward: f64) {
        self.greatest = self.greatest.max(reward);
        self.losses[arm] += (1.0 - reward / self.greatest) / chance;
    }
}

impl SpecPolicy for Running {
    fn limits(&self) -> DraftLimits<'_> {
        DraftLimits::chain(self.arms.last().copied().unwrap_or(0))
    }

    fn propose(&mut self, batch: &BatchView, plan: &mut DraftPlan) {
        let drawn = has_room(batch).then(|| self.draw(self.luck.unit(batch.step)));
        if let Some((arm, _)) = drawn {
            plan.fill(self.arms[arm]);
        }
        self.awaited.push_back(drawn);
    }

    fn observe(&mut self, outcome: &StepOutcome) {
        // `awaited` has an entry for each call of `propose`. A step without decode requests had no such call.
        if outcome.accepted.is_empty() {
            return;
        }
        if let Some(Some(drawn)) = self.awaited.pop_front()
            && let Some(reward) = tokens_per_s(outcome)
        {
            self.learn(drawn, reward);
        }
    }

    fn explain(&mut self) -> Explanation {
        let chances = self.arms.iter().zip(&self.chances);
        Explanation {
            estimate: None,
            candidates: chances
                .map(|(k, &estimate)| Candidate { what: format!("k = {k}, its chance"), estimate })
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::CONTEXT;

    fn running() -> Running {
        Running::new(&Exp3spec::default(), &CONTEXT)
    }

    /// Three steps by hand: the arms (draft lengths) start with equal weights, then each draw adds the drawn arm's loss
    /// divided by the probability of the draw.
    #[test]
    fn weights_by_hand() {
        let mut p = running();
        let drawn = p.draw(0.6);
        assert_eq!(drawn, (2, 0.25));
        p.learn(drawn, 100.0);
        assert_eq!(p.losses, [0.0; 4], "the first reward is the greatest");
        let drawn = p.draw(0.0);
        assert_eq!(drawn, (0, 0.25));
        p.learn(drawn, 25.0);
        assert_eq!(p.losses, [3.0, 0.0, 0.0, 0.0]);
        let eta = (4f64.ln() / (3.0 * 4.0)).sqrt();
        let weight = (-eta * 3.0).exp();
        let chance = weight / (weight + 3.0);
        assert_eq!(p.draw(chance * 0.999).0, 0);
        assert!((p.chances[0] - chance).abs() < 1e-15 && (p.chances.iter().sum::<f64>() - 1.0).abs() < 1e-15);
    }

    /// The rewards (tokens per second) of the four draft lengths are 0.5, 1, 0.9 and 0.2 of the best. More than half of
    /// the draws go to the best length, few to the two worst.
    #[test]
    fn it_finds_the_best_arm() {
        let mut p = running();
        let luck = Luck::new(9, Stream::Policy, 1);
        let mut counts = [0u32; 4];
        for round in 0..20_000 {
            let drawn = p.draw(luck.unit(round));
            counts[drawn.0] += 1;
            p.learn(drawn, [0.5, 1.0, 0.9, 0.2][drawn.0] * 1000.0);
        }
        assert!(counts[1] > 10_000 && counts[0] < 1000 && counts[3] < 1000, "{counts:?}");
        assert!(p.chances[1] > 0.9, "{:?}", p.chances);
        // If the losses of the draft lengths differ by 1e9, the probabilities are still finite: the length with the
        // least loss is drawn.
        p.losses = vec![0.0, 1e9, 1e9, 1e9];
        assert_eq!(p.draw(0.999).0, 0);
    }

    #[test]
    fn bad_settings_are_named() {
        let key = |p: Exp3spec| p.check().expect_err("refused").key;
        assert_eq!(key(Exp3spec { arms: vec![3, 3], ..Exp3spec::default() }), "arms");
        assert_eq!(key(Exp3spec { arms: vec![1, 99], ..Exp3spec::default() }), "arms");
        assert_eq!(key(Exp3spec { rate: 0.0, ..Exp3spec::default() }), "rate");
    }
}
