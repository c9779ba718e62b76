//! The ranks of the draft model's second and later guesses: which guess is right if the first guess is wrong, and the
//! probabilities that the draft model gives to these guesses. Draft trees need ranks (docs/model.md 5.3, 13).

use serde::{Deserialize, Serialize};

/// Number of ranks, from rank 2 on, that have a probability of their own. The rank of a token is its place among the
/// draft model's guesses.
const RANKS: usize = 64;

/// The law of the ranks of the target's token among the draft model's guesses, as a list of probabilities for r = 2, 3,
/// … Each is the probability, [0, 1], that the target's token is the draft model's r-th guess if it is none of the
/// better guesses. The last value holds for all further guesses.
///
/// The draft model's own probabilities follow the same law, so the draft model is calibrated on average: the
/// probability that the first guess leaves is shared among the further guesses by this law. The default values are
/// assumed. With them, after a wrong first guess about half of the right tokens are among the next four guesses, the
/// order of magnitude of SpecInfer's Table 1. In SpecForge's published results the accepted lengths of Qwen3-Next's
/// trees are 7 % longer than the accepted lengths of chains of the same depth and budget. With the default values they
/// are 4 % longer; values fitted to these results (all default values times 1.1 to 1.3) are hardly better. Trees of
/// other models are 12 % shorter than their chains, which no law explains (`policies/tests/all/specforge.rs`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(try_from = "Vec<f64>", into = "Vec<f64>")]
pub struct RankLaw {
    hazards: Vec<f64>,
    /// `share[r − 2]` is the probability that the target's token has rank r, if the draft model's first guess is wrong.
    /// The rank of a token is its place among the draft model's guesses, best first.
    share: Vec<f64>,
    /// Entropy, in nats, of the distribution of ranks in `share`.
    entropy: f64,
}

impl Default for RankLaw {
    fn default() -> Self {
        RankLaw::new(vec![0.28, 0.17, 0.13, 0.08, 0.05]).expect("probabilities")
    }
}

impl RankLaw {
    /// Makes the law of ranks from `hazards`: for r = 2, 3, …, the probability that the target's token is the draft
    /// model's r-th guess if it is none of the better guesses.
    ///
    /// # Errors
    /// `hazards` is empty, or a value is not in [0, 1]. The error's text says which value is wrong.
    pub fn new(hazards: Vec<f64>) -> Result<RankLaw, String> {
        if hazards.is_empty() {
            return Err("needs at least one probability".into());
        }
        if let Some(h) = hazards.iter().find(|h| !(0.0..=1.0).contains(*h)) {
            return Err(format!("{h} is not a probability in [0, 1]"));
        }
        let mut left = 1.0;
        let share: Vec<f64> = (0..RANKS)
            .map(|r| {
                let mass = left * hazards[r.min(hazards.len() - 1)];
                left -= mass;
                mass
            })
            .collect();
        // For the entropy, all ranks beyond the last tabulated rank count as one token.
        let all = share.iter().copied().chain([left]);
        let entropy = all.filter(|&p| p > 0.0).map(|p| -p * p.ln()).sum();
        Ok(RankLaw { hazards, share, entropy })
    }

    /// The rank (from 2) of the target's token for a uniform draw `u`. If the token is none of the draft model's
    /// guesses, the returned rank is higher than any rank that can be drafted.
    pub fn at(&self, u: f64) -> u32 {
        let mut below = 0.0;
        for (r, share) in self.share.iter().enumerate() {
            below += share;
            if u < below {
                return r as u32 + 2;
            }
        }
        RANKS as u32 + 2
    }

    /// The draft model's probability of its `rank`-th guess when its first guess has probability `first`. Never above
    /// `first`; 0 for ranks above 65.
    pub fn guess(&self, first: f64, rank: u32) -> f64 {
        match rank {
            1 => first,
            r => first.min((1.0 - first) * self.share.get(r as usize - 2).copied().unwrap_or(0.0)),
        }
    }

    /// Entropy, in nats, of the draft model's distribution over tokens when its first guess has probability `first`.
    pub fn entropy(&self, first: f64) -> f64 {
        let term = |p: f64| if p > 0.0 { -p * p.ln() } else { 0.0 };
        term(first) + term(1.0 - first) + (1.0 - first) * self.entropy
    }

    /// KL(target ‖ draft), in nats, at a position where a greedy target (all its mass on one token) picks the draft
    /// model's `rank`-th guess. This is −ln p, where p is the draft model's probability of this guess, but at least
    /// 1e-6.
    pub fn divergence(&self, first: f64, rank: u32) -> f64 {
        -self.guess(first, rank).max(1e-6).ln()
    }
}

impl TryFrom<Vec<f64>> for RankLaw {
    type Error = String;

    fn try_from(hazards: Vec<f64>) -> Result<RankLaw, String> {
        RankLaw::new(hazards)
    }
}

impl From<RankLaw> for Vec<f64> {
    fn from(law: RankLaw) -> Vec<f64> {
        law.hazards
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_follow_their_conditional_probabilities() {
        let law = RankLaw::new(vec![0.5, 0.2]).unwrap();
        let n = 100_000;
        let count =
            |r: u32| (0..n).filter(|&i| law.at((f64::from(i) + 0.5) / f64::from(n)) == r).count() as f64 / f64::from(n);
        for (r, p) in [(2, 0.5), (3, 0.5 * 0.2), (4, 0.5 * 0.8 * 0.2)] {
            assert!((count(r) - p).abs() < 1e-4, "rank {r}");
        }
        assert_eq!(RankLaw::new(vec![0.0]).unwrap().at(0.5), RANKS as u32 + 2);
    }

    /// Checks the draft model's probabilities of its guesses, if the first guess has the highest one. They sum to about
    /// one, and `entropy` is close to the entropy computed from them. No guess has a higher probability than the first
    /// guess.
    #[test]
    fn guesses_are_a_distribution() {
        let law = RankLaw::default();
        for first in [0.4, 0.7, 0.999] {
            let p: Vec<f64> = (1..=RANKS as u32 + 1).map(|r| law.guess(first, r)).collect();
            assert!((p.iter().sum::<f64>() - 1.0).abs() < 0.03, "{first}");
            let entropy: f64 = p.iter().filter(|&&p| p > 0.0).map(|p| -p * p.ln()).sum();
            assert!((entropy - law.entropy(first)).abs() < 0.12, "{first}: {entropy}");
        }
        assert_eq!(law.guess(0.05, 2), 0.05);
        assert!((law.divergence(0.5, 1) - 2f64.ln()).abs() < 1e-6);
    }

    #[test]
    fn bad_laws_are_refused() {
        assert!(RankLaw::new(vec![]).is_err() && RankLaw::new(vec![0.3, 1.2]).is_err());
    }
}
