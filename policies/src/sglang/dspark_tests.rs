//! Tests of the policy `dspark`: the verified draft tokens against enumeration of all choices, the lag of the
//! confidences, the padding to graph sizes, and the refusal of a flat table.

use super::*;
use crate::definition::Told;
use crate::testing::{Batch, CONTEXT, Run, any_batch, any_belief};
use proptest::prelude::*;

/// The values that the command `foretoken decide` gives to a policy. With them the number of draft tokens to verify is
/// computed from the present confidences, and the cost table is timed over the batch itself.
fn told(batch: &Batch) -> Option<Told<'_>> {
    Some(Told { acceptance_rate: 0.7, prev_confidence: 0.6, contexts: &batch.context })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// No other choice of the number of verified draft tokens of each request has a higher θ (expected tokens per
    /// second).
    #[test]
    fn nothing_beats_the_choice(
        batch in any_batch(4, 4),
        belief in any_belief(),
        confidences in prop::collection::vec(0.01f64..=1.0, 16),
    ) {
        let look = |i: usize, j: usize| confidences[4 * i + j];
        let context = PolicyContext { belief, profile: &belief, max_draft_len: 4, told: told(&batch), ..CONTEXT };
        let step = Run::of(&Dspark::default(), &context).step(&batch, look, &[0; 4]);
        prop_assert_eq!(&step.draft_len, &batch.limit);
        let table = CostTable::build(SpsTable::Profiled, &context, 4, 2048);
        let survive = |i: usize, n: u32| (0..n as usize).map(|j| look(i, j)).product::<f64>();
        let theta = |lens: &[u32]| {
            let expected: f64 = lens.iter().enumerate().map(|(i, &n)| (1..=n).map(|m| survive(i, m)).sum::<f64>()).sum();
            let tokens = lens.len() + batch.prefill.tokens as usize + lens.iter().sum::<u32>() as usize;
            table.rate(lens.len() as f64 + expected, lens.len(), tokens)
        };
        let ours = theta(&step.verify_len);
        let mut lens = vec![0; batch.limit.len()];
        loop {
            prop_assert!(theta(&lens) <= ours * (1.0 + 1e-12), "{lens:?} beats {:?}", step.verify_len);
            let Some(i) = (0..lens.len()).find(|&i| lens[i] < batch.limit[i]) else { break };
            lens[i] += 1;
            lens[..i].fill(0);
        }
    }

    /// If every step takes the same time, all draft tokens are verified, whatever their confidences.
    #[test]
    fn a_flat_table_verifies_all(batch in any_batch(8, 6), confidence in 0.2f64..=1.0) {
        let params = Dspark { table: SpsTable::Flat, allow_degenerate: true, ..Dspark::default() };
        let mut run = Run::of(&params, &PolicyContext { max_draft_len: 6, ..CONTEXT });
        for _ in 0..4 {
            let step = run.step(&batch, |_, _| confidence, &[0; 8]);
            prop_assert_eq!(step.verify_len, step.draft_len);
        }
    }
}

#[test]
fn a_flat_table_is_refused_with_the_reason() {
    let flat = Dspark { table: SpsTable::Flat, ..Dspark::default() };
    let error = flat.check().expect_err("degenerate");
    assert_eq!(error.key, "table");
    assert!(error.why.contains("fixed length") && error.why.contains("allow_degenerate"));
    assert_eq!(Dspark { allow_degenerate: true, ..flat }.check(), Ok(()));
    assert_eq!(Dspark { lag_steps: 0, ..Dspark::default() }.check().map_err(|e| e.key), Err("lag_steps"));
    assert_eq!(Dspark { gamma: Some(0), ..Dspark::default() }.check().map_err(|e| e.key), Err("gamma"));
}

/// A policy for which a step is cheap up to 5 tokens, that is, two requests and three draft tokens to verify, and
/// expensive beyond.
fn steep(align: bool) -> Scheduler {
    let params = Dspark { align_to_graph: align, ..Dspark::default() };
    let mut policy = Scheduler::new(params, &PolicyContext { max_draft_len: 3, ..CONTEXT });
    policy.table = CostTable::Steps { tokens: vec![1, 6], steps_per_s: vec![100.0, 20.0] };
    policy
}

fn round(policy: &mut Scheduler, q: [f64; 2]) -> Vec<u32> {
    round_of(policy, &Batch::new(&[100; 2], &[3; 2]), q)
}

fn round_of(policy: &mut Scheduler, batch: &Batch, q: [f64; 2]) -> Vec<u32> {
    let mut drafts = Drafts::default();
    drafts.reset(2, 3);
    (0..6).for_each(|n| drafts.set_confidence(n / 3, n % 3, q[n / 3]));
    drafts.draft_len = vec![3; 2];
    drafts.verify_len = vec![3; 2];
    policy.propose(&batch.view(), &mut DraftPlan { draft_len: vec![0; 2], ..DraftPlan::default() });
    policy.select(&batch.view(), &mut drafts);
    drafts.verify_len
}

#[test]
fn the_budget_is_two_rounds_old_and_the_allocation_is_not() {
    let mut policy = steep(false);
    // The host gets confidences two steps late. So in the first two steps nothing limits verification, and all draft
    // tokens are verified.
    for _ in 0..2 {
        assert_eq!(round(&mut policy, [1e-7, 1e-7]), [3, 3]);
        assert_eq!(policy.explain().estimate, None);
    }
    // The survivals (probabilities that a token and all before it are accepted) of the first and second step are below
    // `SURVIVAL_EPS`, so no draft token is verified.
    assert_eq!(round(&mut policy, [0.9, 0.8]), [0, 0]);
    assert_eq!(policy.explain().estimate, Some(2.0 * 100.0));
    assert_eq!(round(&mut policy, [0.9, 0.9]), [0, 0]);
    // The survivals (probabilities that a token and all before it are accepted) of the third step are high: three draft
    // tokens are verified. All three belong to the second request, whose present confidences are higher.
    assert_eq!(round(&mut policy, [0.5, 0.99]), [0, 3]);
}

#[test]
fn a_newcomer_counts_as_certain() {
    let mut policy = steep(false);
    (0..2).for_each(|_| drop(round(&mut policy, [1e-7, 1e-7])));
    // The confidences of new requests count as 1. By the cost table, a step is cheap up to 5 tokens: two requests and
    // three draft tokens. So three draft tokens are verified, and the present confidences decide which.
    let mut batch = Batch::new(&[100; 2], &[3; 2]);
    batch.ids = vec![7, 8];
    assert_eq!(round_of(&mut policy, &batch, [0.9, 0.8]), [2, 1]);
    assert_eq!(policy.explain().estimate, Some(5.0 * 100.0));
}

#[test]
fn alignment_fills_the_captured_size() {
    let mut policy = steep(true);
    round(&mut policy, [0.9, 0.9]);
    round(&mut policy, [0.9, 0.9]);
    // With alignment to graph sizes, a pass of 2 + 3 tokens is padded to 8 tokens, so all six draft tokens fit at no
    // cost.
    assert_eq!(round(&mut policy, [0.5, 0.99]), [3, 3]);
}
