use super::*;
use crate::testing::{BELIEF, Batch, CONTEXT, Run, any_batch};
use proptest::prelude::*;

fn lengths(rule: Gated, belief: Belief, rows: &[Vec<f64>]) -> (Vec<u32>, Vec<u32>) {
    let limit: Vec<u32> = rows.iter().map(|row| row.len() as u32).collect();
    let context = PolicyContext { belief, profile: &BELIEF, ..CONTEXT };
    let mut run = Run::of(&rule, &context);
    let step = run.step(&Batch::new(&vec![100; rows.len()], &limit), |i, j| rows[i][j], &vec![0; rows.len()]);
    (step.draft_len, step.verify_len)
}

/// The belief (cost estimate) of the tests: a verify pass takes 10 ms and 1 ms per token, a draft pass 1.1 ms. Contexts
/// cost nothing.
fn belief(drafting: Drafting) -> Belief {
    let mut belief = Belief { drafting, ..BELIEF };
    (belief.target.alpha_s, belief.target.gamma_s, belief.target.delta_s) = (0.0, 1e-3, 10e-3);
    (belief.draft.alpha_s, belief.draft.gamma_s, belief.draft.delta_s) = (0.0, 0.0, 1.1e-3);
    belief
}

/// One request with confidence 0.5. A step without draft tokens takes 11 ms. With the first draft token, whose pass has
/// run already, a step makes 1.5 tokens in 12 ms. With a second one, a step would make 1.75 tokens in 14.1 ms, which is
/// a lower rate.
#[test]
fn drafting_ends_where_one_more_token_as_sure_does_not_pay() {
    let (drafted, verified) = lengths(Gated::default(), belief(Drafting::Autoregressive), &[vec![0.5; 8]]);
    assert_eq!((drafted, verified), (vec![1], vec![1]));
    // With confidence 0.9, a step with five draft tokens makes 4.69 tokens in 16 ms. With a sixth one it would make
    // 5.22 tokens in 18.1 ms, which is a lower rate.
    assert_eq!(lengths(Gated::default(), belief(Drafting::Autoregressive), &[vec![0.9; 8]]), (vec![5], vec![5]));
    // The first draft token is always drafted, because no confidence is known before. It is not verified if it is
    // almost surely wrong.
    assert_eq!(lengths(Gated::default(), belief(Drafting::Autoregressive), &[vec![0.01; 8]]), (vec![1], vec![0]));
}

#[test]
fn the_aggregate_has_one_length_and_the_budget_several() {
    let rows = [vec![0.95; 8], vec![0.3; 8], vec![0.95; 8]];
    let (drafted, _) = lengths(Gated::default(), belief(Drafting::Autoregressive), &rows);
    assert!(drafted.iter().all(|&len| len == drafted[0]), "{drafted:?}");
    let (drafted, verified) = lengths(Gated::budget(), belief(Drafting::Autoregressive), &rows);
    assert!(drafted[1] < drafted[0] && drafted[0] == drafted[2], "{drafted:?}");
    assert!(verified[1] <= drafted[1]);
}

#[test]
fn a_block_is_drafted_whole_and_verified_ragged() {
    let rows = [vec![0.95; 8], vec![0.2; 8]];
    let (drafted, verified) = lengths(Gated::budget(), belief(Drafting::Parallel), &rows);
    assert_eq!(drafted, [8, 8]);
    assert!(verified[0] > verified[1] && verified[1] <= 1, "{verified:?}");
}

#[test]
fn bad_settings_are_named() {
    assert_eq!(Gated { gamma: 0, ..Gated::default() }.check().map_err(|e| e.key), Err("gamma"));
}

proptest! {
    /// No choice of a prefix of each request's draft tokens has more goodput (expected tokens per second) than the
    /// prefixes that the budget gate verifies, if draft time does not count.
    #[test]
    fn the_verified_prefixes_have_the_most_goodput(
        batch in any_batch(3, 3),
        confidences in prop::collection::vec(0.01f64..=0.99, 9),
    ) {
        let look = |i: usize, j: usize| confidences[3 * i + j];
        let own = belief(Drafting::Autoregressive);
        let mut run = Run::of(&Gated::budget(), &PolicyContext { belief: own, profile: &BELIEF, ..CONTEXT });
        let step = run.step(&batch, look, &vec![0; batch.limit.len()]);
        let n = batch.limit.len() as f64;
        let goodput = |lens: &[u32]| {
            let survival = |i: usize, k: u32| (0..k as usize).map(|j| look(i, j)).product::<f64>();
            let one = |(i, &len): (usize, &u32)| (1..=len).map(|k| survival(i, k)).sum::<f64>();
            let tokens = n + f64::from(lens.iter().sum::<u32>());
            (n + lens.iter().enumerate().map(one).sum::<f64>()) / (10e-3 + 1e-3 * tokens)
        };
        let mut lens = vec![0; batch.limit.len()];
        while let Some(i) = (0..lens.len()).find(|&i| lens[i] < step.draft_len[i]) {
            lens[i] += 1;
            lens[..i].fill(0);
            prop_assert!(goodput(&lens) <= goodput(&step.verify_len) * (1.0 + 1e-9), "{lens:?} {:?}", step.verify_len);
        }
    }
}
