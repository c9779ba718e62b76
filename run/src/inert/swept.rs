//! Finds swept keys and seeds that change no number, by comparing the finished runs. Repeats no run.

use crate::cells::Numbers;
use crate::plan::Plan;

/// The swept keys for which all values give the same results, at every combination of the other swept values.
pub fn keys(plan: &Plan, numbers: &[Numbers]) -> Vec<String> {
    let keys = plan.variants[0].choices.iter().map(|c| c.path.clone()).enumerate();
    keys.filter(|(at, _)| changes_nothing(plan, numbers, *at)).map(|(_, path)| path).collect()
}

/// Does the plan have several seeds, and do the runs with all seeds give the same numbers?
pub fn seeds_agree(plan: &Plan, numbers: &[Numbers]) -> bool {
    let policies = plan.policies.len();
    let digests = |row: &[Numbers]| row.iter().map(|n| n.digest).collect::<Vec<_>>();
    let mut variants = numbers.chunks(policies * plan.seeds.len());
    plan.seeds.len() > 1
        && variants.all(|seeds| seeds.chunks(policies).all(|row| digests(row) == digests(&seeds[..policies])))
}

fn changes_nothing(plan: &Plan, numbers: &[Numbers], at: usize) -> bool {
    let cells = plan.seeds.len() * plan.policies.len();
    let other_values = |v: usize| {
        let choices = plan.variants[v].choices.iter().enumerate();
        choices.filter(|(i, _)| *i != at).map(|(_, choice)| choice.value.as_str()).collect::<Vec<_>>()
    };
    let digests = |v: usize| numbers[v * cells..][..cells].iter().map(|n| n.digest).collect::<Vec<_>>();
    let pairs = (1..plan.variants.len()).map(|v| {
        let like = (0..v).find(|&other| other_values(other) == other_values(v));
        like.map(|other| digests(other) == digests(v))
    });
    let compared: Vec<bool> = pairs.flatten().collect();
    !compared.is_empty() && compared.into_iter().all(|same| same)
}
