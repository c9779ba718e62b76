//! The share of draft tokens that must be accepted so that a draft length is as fast as plain decoding: the point where
//! two engine runs tie. Both runs are closed loops on the experiment's own engine, the one of plain decoding without a
//! drafter. So the share counts all that the engine counts: host time, and what asynchronous scheduling hides of it,
//! prompts, and the passes that the drafter makes.

use super::closed::one_setting;
use super::loops::Loops;
use super::table::{Table, always, of_length};
use crate::plan::Plan;
use crate::spec::problem::Result;
use foretoken_sim::acceptance::Rates;
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// The tie of a draft length with plain decoding, at a number of clients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tie {
    /// Number of clients of the closed loop.
    pub clients: u32,
    /// Share of drafted tokens that must be accepted for the tie. Below 0, drafting is faster even if no draft token is
    /// accepted. Above 1, it is slower even if all are; infinite if no number of accepted tokens would be enough.
    pub needs: f64,
}

/// Two loops whose rates of draft tokens are this near to each other, relative to the tokens of a round, do not show
/// how the time of a token depends on the rate.
const NEAR: f64 = 0.02;

impl Table {
    /// For each row of the table that was measured: the share of draft tokens of length `k` that must be accepted for a
    /// tie with plain decoding, with the first seed. The loop of length `k` runs once more, near the tie, where every
    /// draft token is right with the same probability. `plan` is the table's plan.
    pub fn ties(&self, plan: Plan, file: &Path, k: u32, interrupt: &AtomicBool) -> Result<Vec<Tie>> {
        let seeds = [plan.seeds[0]];
        let (mut loops, sample) = Loops::new(one_setting(plan, file)?, &seeds, interrupt)?;
        let policy = [always(k, sample.engine(true).max_num_seqs)];
        let mut ties = Vec::new();
        for row in &self.rows {
            let Some(measured) = row.measured.as_ref().filter(|m| m.alone.iter().any(|(length, _)| *length == k))
            else {
                continue;
            };
            let (own, plain_s) = (of_length(&measured.alone, k), 1.0 / measured.plain.tok_s[0]);
            let seen = At::of(own.tok_s[0], own.accepted[0], k);
            loops.variant.experiment.acceptance.source = Rates::Constant { rate: rate(seen.tie_alone(plain_s, k), k) };
            let near = loops.measure(row.clients, &policy)?.swap_remove(0);
            let near = At::of(near.tok_s[0], near.accepted[0], k);
            ties.push(Tie { clients: row.clients, needs: share(tie(seen, near, plain_s), k) });
        }
        Ok(ties)
    }
}

/// A measured loop: rounds for each output token, and seconds for each output token. Seconds are linear in rounds, as
/// far as rounds take the same time whatever is accepted: what is not a round (such as prompts) does not change.
#[derive(Clone, Copy, Debug)]
struct At {
    rounds: f64,
    seconds: f64,
}

impl At {
    fn of(tok_s: f64, accepted: f64, k: u32) -> At {
        At { rounds: 1.0 / (1.0 + f64::from(k) * accepted), seconds: 1.0 / tok_s }
    }

    /// The accepted share of the tie with `plain_s` seconds for each token, if rounds took the whole time.
    fn tie_alone(self, plain_s: f64, k: u32) -> f64 {
        share(self.rounds * plain_s / self.seconds, k)
    }
}

/// Rounds for each token at which the line through two loops has `plain_s` seconds for each token. `near` is the loop
/// that is nearer to the tie.
fn tie(seen: At, near: At, plain_s: f64) -> f64 {
    let slope = (seen.seconds - near.seconds) / (seen.rounds - near.rounds);
    match (seen.rounds / near.rounds - 1.0).abs() > NEAR && slope > 0.0 {
        true => near.rounds + (plain_s - near.seconds) / slope,
        false => near.rounds * plain_s / near.seconds,
    }
}

/// The accepted share of draft tokens of length `k` with `rounds` rounds for each token.
fn share(rounds: f64, k: u32) -> f64 {
    if rounds > 0.0 { (1.0 / rounds - 1.0) / f64::from(k) } else { f64::INFINITY }
}

/// The probability that a draft token is right, with which the share `accepted` of the draft tokens of length `k` is
/// accepted. A share outside of [0, 1] counts as 0 or 1.
pub(super) fn rate(accepted: f64, k: u32) -> f64 {
    let of = |rate: f64| (1..=k).rev().fold(0.0, |sum, _| rate * (1.0 + sum)) / f64::from(k);
    let (mut low, mut high) = (0.0, 1.0);
    if accepted <= 0.0 || accepted >= 1.0 {
        return accepted.clamp(low, high);
    }
    for _ in 0..50 {
        let middle = (low + high) / 2.0;
        if of(middle) < accepted { low = middle } else { high = middle }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probability_gives_the_share_that_is_accepted() {
        // 0.5 + 0.25 + 0.125 of three draft tokens.
        assert!((rate(0.875 / 3.0, 3) - 0.5).abs() < 1e-9);
        assert_eq!((rate(-0.2, 3), rate(1.4, 3), rate(f64::INFINITY, 2)), (0.0, 1.0, 1.0));
    }

    /// 1 ms of each token's time is not a round's. A round takes 12 ms and makes 1 + 3a tokens, a plain token takes
    /// 10 + 1 ms: the tie is at 1 + 3a = 1.2.
    #[test]
    fn the_tie_lies_on_the_line_through_two_loops() {
        let at = |accepted: f64| At::of(1.0 / (1e-3 + 12e-3 / (1.0 + 3.0 * accepted)), accepted, 3);
        let (seen, plain_s) = (at(0.6), 11e-3);
        let near = at(seen.tie_alone(plain_s, 3));
        assert!((share(tie(seen, near, plain_s), 3) - 0.2 / 3.0).abs() < 1e-9);
        // Two loops at the same share show no line.
        assert!((share(tie(near, near, plain_s), 3) - 0.2 / 3.0).abs() < 5e-3);
        assert_eq!(share(tie(seen, near, 0.9e-3), 3), f64::INFINITY, "what is no round takes longer already");
    }
}
