//! Ranks policies by their score: the mean over scenarios of the loss ln(E2E / E2E of the scenario's best oracle). A
//! loss above [`CAP`] counts as [`CAP`]. Each rank has a bootstrap interval. For it, scenarios are drawn with
//! replacement, and then seeds within each drawn scenario. All policies get the same drawn seeds, because runs are
//! paired by seed. The interval holds the middle 95 % of the drawn ranks.

use foretoken_sim::luck::mix;
use serde::Serialize;

/// The cap: a loss in one scenario, ln(E2E / E2E of the scenario's best oracle), counts in a policy's score as at most
/// this number. Without a cap, one overloaded scenario would decide the mean over all scenarios.
pub const CAP: f64 = 0.3;
/// Number of bootstrap draws from which the 95 % interval of each policy's rank is computed.
pub(super) const DRAWS: u64 = 1000;

/// A policy's rank in the arena (1 is the best), with the ends of its 95 % bootstrap interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Rank {
    /// The rank: 1 for the policy with the least score (the mean capped loss); policies with equal scores have the same
    /// rank.
    pub rank: usize,
    /// The best rank in the bootstrap's 95 % interval of this policy's rank; at most `rank`.
    pub low: usize,
    /// The worst rank in the bootstrap's 95 % interval of this policy's rank; at least `rank`.
    pub high: usize,
}

/// The rank of each policy. `losses[policy][scenario][seed]` is the loss of one run against the scenario's best oracle.
/// All policies must have the same scenarios and seeds.
pub(super) fn ranks(losses: &[Vec<&[f64]>]) -> Vec<Rank> {
    let scenarios = losses.first().map_or(0, Vec::len);
    let score = |policy: &Vec<&[f64]>| policy.iter().map(|seeds| mean(seeds).min(CAP)).sum::<f64>() / scenarios as f64;
    let own = places(&losses.iter().map(score).collect::<Vec<f64>>());
    let mut drawn: Vec<Vec<usize>> = vec![Vec::new(); losses.len()];
    for draw in 0..DRAWS {
        let pick = |slot: u64, of: usize| (mix(draw << 32 | slot) % of as u64) as usize;
        let chosen: Vec<(usize, Vec<usize>)> = (0..scenarios)
            .map(|slot| {
                let scenario = pick(slot as u64, scenarios);
                let seeds = losses[0][scenario].len();
                (scenario, (0..seeds).map(|i| pick((slot as u64 + 1) << 16 | i as u64, seeds)).collect())
            })
            .collect();
        let drawn_score = |policy: &Vec<&[f64]>| {
            let capped_mean = |(scenario, seeds): &(usize, Vec<usize>)| {
                (seeds.iter().map(|&s| policy[*scenario][s]).sum::<f64>() / seeds.len() as f64).min(CAP)
            };
            chosen.iter().map(capped_mean).sum::<f64>()
        };
        let scores: Vec<f64> = losses.iter().map(drawn_score).collect();
        for (ranks, rank) in drawn.iter_mut().zip(places(&scores)) {
            ranks.push(rank);
        }
    }
    own.into_iter()
        .zip(drawn)
        .map(|(rank, mut ranks)| {
            ranks.sort_unstable();
            let quantile = |share: f64| ranks[((ranks.len() - 1) as f64 * share).round() as usize];
            Rank { rank, low: quantile(0.025).min(rank), high: quantile(0.975).max(rank) }
        })
        .collect()
}

/// The rank of each score, from 1 for the lowest score; equal scores have the same rank.
fn places(scores: &[f64]) -> Vec<usize> {
    let mut sorted = scores.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    scores.iter().map(|score| 1 + sorted.partition_point(|other| other < score)).collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_that_always_leads_has_rank_1_for_certain_and_equals_share_a_rank() {
        let (first, second) = ([0.01, 0.02], [0.05, 0.06]);
        let all = [vec![&second[..]; 4], vec![&first[..]; 4], vec![&second[..]; 4]];
        let found = ranks(&all);
        assert_eq!(found[1], Rank { rank: 1, low: 1, high: 1 });
        assert_eq!((found[0], found[2]), (found[2], Rank { rank: 2, low: 2, high: 2 }));
    }

    #[test]
    fn a_lead_in_one_scenario_of_four_is_not_certain() {
        let (zero, little, much) = ([0.0, 0.0], [0.01, 0.01], [0.2, 0.2]);
        // The first policy has a loss of 0.01 in three of four scenarios and 0 in one. The second policy has 0 in three
        // scenarios and 0.2 in one, so a bootstrap draw without this one scenario ranks the second policy first.
        let found = ranks(&[vec![&little[..], &little, &little, &zero], vec![&zero[..], &zero, &zero, &much]]);
        assert_eq!(found[0], Rank { rank: 1, low: 1, high: 2 });
        assert_eq!(found[1], Rank { rank: 2, low: 1, high: 2 });
    }

    #[test]
    fn one_overload_does_not_drown_the_rest() {
        let (zero, much, some) = ([0.0], [5.0], [0.2]);
        let found = ranks(&[vec![&much[..], &zero, &zero], vec![&some[..], &some, &some]]);
        assert_eq!((found[0].rank, found[1].rank), (1, 2), "min(5, 0.3) / 3 is less than 0.2");
    }
}
