//! Tests of the policies `banditspec` and `banditspec-literal`: which draft lengths the bandit chooses, its scores
//! computed by hand, and a comparison with a second implementation.

use super::*;
use crate::testing::{Batch, outcome};
use foretoken_sim::{Drafts, Time};
use proptest::prelude::*;

/// Runs `rounds` steps with a batch of one request. `reward(length, round)` is the tokens per second of step number
/// `round` with this draft length. Returns the chosen lengths.
fn play(policy: &mut Running, rounds: u32, reward: impl Fn(u32, u32) -> f64) -> Vec<u32> {
    let batch = Batch::new(&[100], &[8]);
    let drafts = Drafts::default();
    (1..=rounds)
        .map(|round| {
            let mut plan = DraftPlan { draft_len: vec![0], ..DraftPlan::default() };
            policy.propose(&batch.view(), &mut plan);
            let k = plan.draft_len[0];
            let verify_time = Time::from_s(1.0 / reward(k, round));
            policy.observe(&StepOutcome { verify_time, ..outcome(&drafts, &[k], &[0]) });
            k
        })
        .collect()
}

/// In steps 1 to 7 the arms (draft lengths) take turns. From then on the bonus of the published code, which is equal
/// for all arms, keeps the arm with the best mean, even if its mean was best by accident.
#[test]
fn the_literal_bandit_is_greedy() {
    let mut p = Running::new(&Banditspec::literal(), 8);
    // Length 1 has the best reward (tokens per second) in the first seven steps. Later it has the worst.
    let reward = |k: u32, round: u32| match (round < 8, k) {
        (true, _) => [900.0, 440.0, 400.0, 300.0][k as usize - 1],
        (false, 1) => 450.0,
        (false, _) => 800.0,
    };
    let lens = play(&mut p, 200, reward);
    assert_eq!(lens[..7], [1, 2, 3, 4, 1, 2, 3]);
    // The mean reward (tokens per second) of length 1 falls towards 450 but stays above it. The means of the other
    // lengths are lower, so no other length is tried again.
    assert!(lens[7..].iter().all(|&k| k == 1));
    assert_eq!(p.rewards.iter().map(|r| r.count).collect::<Vec<u64>>(), [195, 2, 2, 1]);
}

#[test]
fn own_pulls_and_the_papers_radius_find_the_best_arm() {
    for (bonus, rounds, most) in [(Bonus::OwnPulls, 4000, 0.5), (Bonus::Ucbspec, 4000, 0.5)] {
        let mut p = Running::new(&Banditspec { bonus, ..Banditspec::default() }, 8);
        // Length 3 has the worst reward (tokens per second) in the first steps and by far the best later.
        let reward = |k: u32, round: u32| if k == 3 { if round < 8 { 100.0 } else { 1000.0 } } else { 300.0 };
        let lens = play(&mut p, rounds, reward);
        let share = lens.iter().filter(|&&k| k == 3).count() as f64 / f64::from(rounds);
        assert!(share > most, "{bonus:?}: {share}");
        assert!([1, 2, 4].iter().all(|k| lens[2000..].contains(k)), "{bonus:?} goes on exploring");
    }
}

/// The scores of the four arms (draft lengths) in step 8, by hand. Their mean rewards are 1, 0.75, 0.5 and 0.25 of the
/// greatest reward, and they ran in 2, 2, 2 and 1 steps so far.
#[test]
fn scores_by_hand() {
    let reward = |k: u32, _: u32| [400.0, 300.0, 200.0, 100.0][k as usize - 1];
    let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} for {b}");
    for bonus in [Bonus::AllPulls, Bonus::OwnPulls, Bonus::Ucbspec] {
        let mut p = Running::new(&Banditspec { bonus, ..Banditspec::default() }, 8);
        play(&mut p, 7, reward);
        assert_eq!((p.explain().estimate, p.explain().candidates), (None, vec![]));
        let arm = p.choose();
        p.chosen = arm;
        let radius =
            |n: f64| 0.5 * ((1.0 + n) / (n * n) * (1.0 + 2.0 * (4.0 * 49.0 * (1.0 + n).sqrt() / 0.5).ln())).sqrt();
        let (first, last) = match bonus {
            Bonus::AllPulls => (400.0 + (6.0 * 8f64.ln() / 7.0).sqrt(), 100.0 + (6.0 * 8f64.ln() / 7.0).sqrt()),
            Bonus::OwnPulls => (1.0 + (6.0 * 8f64.ln() / 2.0).sqrt(), 0.25 + (6.0 * 8f64.ln()).sqrt()),
            Bonus::Ucbspec => (1.0 + radius(2.0), 0.25 + radius(1.0)),
        };
        close(p.scores[0], first);
        close(p.scores[3], last);
        assert_eq!(arm, if bonus == Bonus::AllPulls { 0 } else { 3 }, "{bonus:?}");
        close(p.explain().estimate.expect("scored"), p.scores[arm]);
        assert_eq!(p.explain().candidates[3].what, "k = 4");
    }
}

#[test]
fn limits_and_steps_without_room_teach_nothing_false() {
    let mut p = Running::new(&Banditspec::default(), 3);
    assert_eq!((p.arms.as_slice(), p.limits().depth), ([1, 2, 3].as_slice(), 3));
    let cannot = Batch::new(&[100, 100], &[0, 0]);
    let mut plan = DraftPlan { draft_len: vec![0, 0], ..DraftPlan::default() };
    p.propose(&cannot.view(), &mut plan);
    assert_eq!((plan.draft_len.as_slice(), p.round), ([0, 0].as_slice(), 0));
    let drafts = Drafts::default();
    let seen = |drafted: &[u32], p: &mut Running| {
        p.observe(&StepOutcome { verify_time: Time::from_s(0.01), ..outcome(&drafts, drafted, &[0, 0]) });
    };
    seen(&[0, 0], &mut p);
    seen(&[2, 1], &mut p);
    assert_eq!(p.rewards.iter().map(|r| r.count).collect::<Vec<u64>>(), [0, 1, 0]);
    assert_eq!(p.greatest, 200.0);
}

#[test]
fn bad_settings_are_named() {
    let key = |p: Banditspec| p.check().expect_err("refused").key;
    assert_eq!(key(Banditspec { arms: vec![2], ..Banditspec::default() }), "arms");
    assert_eq!(key(Banditspec { exploration: f64::NAN, ..Banditspec::default() }), "exploration");
    assert_eq!(key(Banditspec { turns: 0, ..Banditspec::default() }), "turns");
    assert_eq!(key(Banditspec { delta: 0.0, ..Banditspec::default() }), "delta");
}

proptest! {
    /// The policy chooses the same lengths as a second implementation of BanditSpec's published loop. The second
    /// implementation has sums of rewards in place of running means.
    #[test]
    fn the_literal_bandit_equals_a_second_reading(
        rewards in prop::collection::vec(prop::collection::vec(1.0f64..1000.0, 4), 40),
    ) {
        let mut p = Running::new(&Banditspec::literal(), 8);
        let lens = play(&mut p, 40, |k, round| rewards[round as usize - 1][k as usize - 1]);
        let (mut sums, mut calls) = ([0.0; 4], [0u32; 4]);
        for round in 1..=40usize {
            let k = if round < 8 {
                (round - 1) % 4
            } else {
                let mean = |k: usize| sums[k] / f64::from(calls[k]);
                (0..4).fold(0, |best, k| if mean(k) > mean(best) + 1e-9 { k } else { best })
            };
            prop_assert_eq!(lens[round - 1], k as u32 + 1, "round {}", round);
            sums[k] += rewards[round - 1][k];
            calls[k] += 1;
        }
    }
}
