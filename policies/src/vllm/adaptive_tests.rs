//! Tests of the policy `vllm-adaptive`: number and choice of the verified draft tokens against enumeration, the age of
//! the confidences, and the warm-up.

use super::*;
use crate::definition::Told;
use crate::testing::{Batch, CONTEXT, Run, any_batch, any_belief, close};
use proptest::prelude::*;

/// The values that the command `foretoken decide` gives to a policy. With them the draft model's confidences count as
/// acceptance probabilities, and the cost tables are timed over the batch itself.
fn told(batch: &Batch) -> Option<Told<'_>> {
    Some(Told { acceptance_rate: 0.7, prev_confidence: 0.6, contexts: &batch.context })
}

/// Expected tokens per second if `lens[i]` draft tokens of request i are verified, computed directly from the cost
/// tables.
fn plain_rate(tables: &CostTables, batch: &Batch, lens: &[u32], confidence: &dyn Fn(usize, usize) -> f64) -> f64 {
    let view = batch.view();
    let survive = |i: usize, n: u32| (0..n as usize).map(|j| confidence(i, j)).product::<f64>();
    let expected: f64 = lens.iter().enumerate().map(|(i, &n)| (1..=n).map(|m| survive(i, m)).sum::<f64>()).sum();
    let tokens = view.len() + view.prefill.tokens as usize + lens.iter().sum::<u32>() as usize;
    let requests = view.len() + view.prefill.chunks as usize;
    (view.len() as f64 + expected) / (tables.draft.s(requests) + tables.verify.s(tokens))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// The policy chooses how many draft tokens of each request are verified. No other choice gives more expected
    /// tokens per second. Every choice with fewer verified tokens in total gives fewer expected tokens per second.
    #[test]
    fn nothing_beats_the_choice(
        batch in any_batch(4, 4),
        belief in any_belief(),
        confidences in prop::collection::vec(0.01f64..=1.0, 16),
        linear in any::<bool>(),
    ) {
        let look = |i: usize, j: usize| confidences[4 * i + j];
        let exact = |i: usize, j: usize| look(i, j);
        let cost_lookup = if linear { CostLookup::Linear } else { CostLookup::Staircase };
        let params = VllmAdaptive { cost_lookup, ..VllmAdaptive::default() };
        let context = PolicyContext { belief, profile: &belief, max_draft_len: 4, told: told(&batch), ..CONTEXT };
        let step = Run::of(&params, &context).step(&batch, look, &[0; 4]);
        prop_assert_eq!(&step.draft_len, &batch.limit);
        let tables = CostTables::measure(&context, 4, 8192, cost_lookup);
        let ours = plain_rate(&tables, &batch, &step.verify_len, &exact);
        let mut lens = vec![0; batch.limit.len()];
        loop {
            let theirs = plain_rate(&tables, &batch, &lens, &exact);
            prop_assert!(theirs <= ours * (1.0 + 1e-12), "{lens:?} beats {:?}", step.verify_len);
            // Among choices with the same expected tokens per second, the policy takes one with the fewest verified
            // draft tokens, so choices with fewer must give less.
            let fewer = lens.iter().sum::<u32>() < step.verify_len.iter().sum();
            prop_assert!(!fewer || theirs < ours * (1.0 + 1e-12));
            let Some(i) = (0..lens.len()).find(|&i| lens[i] < batch.limit[i]) else { break };
            lens[i] += 1;
            lens[..i].fill(0);
        }
    }
}

/// A machine on which a verified token costs so much that it pays only if it is almost certain to be accepted.
fn dear() -> PolicyContext<'static> {
    let mut context = PolicyContext { max_draft_len: 3, ..CONTEXT };
    context.belief.target.gamma_s = 2e-3;
    static PROFILE: crate::Belief = {
        let mut belief = crate::testing::BELIEF;
        belief.target.gamma_s = 2e-3;
        belief
    };
    context.profile = &PROFILE;
    context
}

#[test]
fn own_estimate_and_candidates_are_those_of_the_choice() {
    let batch = Batch::new(&[100, 200], &[3, 3]);
    let confidence = [[0.9, 0.8, 0.5], [0.6, 0.5, 0.4]];
    let context = PolicyContext { told: told(&batch), ..dear() };
    let mut policy = Adaptive::new(VllmAdaptive::default(), &context);
    policy.explain();
    let mut drafts = Drafts::default();
    drafts.reset(2, 3);
    (0..6).for_each(|n| drafts.set_confidence(n / 3, n % 3, confidence[n / 3][n % 3]));
    drafts.draft_len = vec![3, 3];
    drafts.verify_len = vec![3, 3];
    policy.select(&batch.view(), &mut drafts);
    let exact = |i: usize, j: usize| confidence[i][j];
    let rate = plain_rate(&policy.tables, &batch, &drafts.verify_len, &exact);
    assert!(close(policy.explain().estimate.expect("it has one"), rate));
    let weighed = policy.explain().candidates;
    assert_eq!(weighed.len(), 7);
    let best = weighed.iter().map(|c| c.estimate).fold(0.0, f64::max);
    assert!(close(best, rate) && weighed[drafts.verify_len.iter().sum::<u32>() as usize].estimate == best);
}

#[test]
fn whole_drafts_are_verified_while_an_earlier_revision_warms_up() {
    let params = VllmAdaptive { refit_interval: 2, warmup_refits: 3, ..VllmAdaptive::default() };
    let mut run = Run::of(&params, &dear());
    let batch = Batch::new(&[100; 8], &[3; 8]);
    for step in 0..10 {
        let made = run.step(&batch, |i, _| 0.1 + 0.05 * i as f64, &[0; 8]);
        assert_eq!(made.verify_len == [3; 8], step < 6, "step {step}");
    }
}

#[test]
fn the_budget_is_a_round_old_and_the_allocation_is_not() {
    let params = VllmAdaptive { refit_interval: 1000, ..VllmAdaptive::default() };
    let mut policy = Adaptive::new(params, &dear());
    let batch = Batch::new(&[100; 4], &[3; 4]);
    let round = |policy: &mut Adaptive, slope: f32, q: [f64; 4]| {
        policy.estimator = AcceptanceEstimator::new(3, 1000);
        policy.estimator.set(slope, 0.0);
        let mut drafts = Drafts::default();
        drafts.reset(4, 3);
        (0..12).for_each(|n| drafts.set_confidence(n / 3, n % 3, q[n / 3]));
        drafts.draft_len = vec![3; 4];
        drafts.verify_len = vec![3; 4];
        policy.select(&batch.view(), &mut drafts);
        drafts.verify_len
    };
    // In the first step the host has no confidences yet, so every token counts as accepted with probability 1.
    let first = round(&mut policy, 1.0, [0.1; 4]);
    let sure: u32 = first.iter().sum();
    // The confidences of the step before were low, so no draft token is verified now, although the present confidences
    // are high.
    assert_eq!(round(&mut policy, 1.0, [0.99; 4]), [0; 4]);
    // The confidences of the step before were high, so draft tokens are verified now. They belong to the requests whose
    // present confidences are high.
    let third = round(&mut policy, 1.0, [0.2, 0.99, 0.3, 0.97]);
    assert!(sure == 12 && third[1] == 3 && third[3] == 3, "{first:?} {third:?}");
}

#[test]
fn trimming_starts_at_once() {
    let mut run = Run::of(&VllmAdaptive::default(), &dear());
    let batch = Batch::new(&[100; 8], &[3; 8]);
    // In the first step the host has no confidences yet, so all draft tokens are verified. Then the acceptance
    // probability is σ(0.5 · logit(0.1) − 0.2) = 0.21 for every token, which does not pay.
    assert_eq!(run.step(&batch, |_, _| 0.1, &[0; 8]).verify_len, [3; 8]);
    assert_eq!(run.step(&batch, |_, _| 0.1, &[0; 8]).verify_len, [0; 8]);
}

#[test]
fn logits_to_verify_fit_one_chunk() {
    // A chunk of vLLM's rejection sampler holds 2²⁸ logits of 4 bytes: 16 rows of a vocabulary of 2²⁴. Each request
    // needs a row even without draft tokens.
    let params = VllmAdaptive { vocab_size: 1 << 24, ..VllmAdaptive::default() };
    for (requests, drafts) in [(4, 12), (5, 11), (16, 0), (20, 0)] {
        let mut run = Run::of(&params, &PolicyContext { max_draft_len: 3, ..CONTEXT });
        let made = run.step(&Batch::new(&vec![100; requests], &vec![3; requests]), |_, _| 0.9, &vec![3; requests]);
        assert_eq!(made.verify_len.iter().sum::<u32>(), drafts, "{requests} requests");
    }
}

#[test]
fn bad_settings_are_named() {
    let bad = |params: VllmAdaptive| params.check().map_err(|e| e.key);
    assert_eq!(bad(VllmAdaptive { k: Some(0), ..VllmAdaptive::default() }), Err("k"));
    assert_eq!(bad(VllmAdaptive { k: Some(33), ..VllmAdaptive::default() }), Err("k"));
    assert_eq!(bad(VllmAdaptive { refit_interval: 0, ..VllmAdaptive::default() }), Err("refit_interval"));
    assert_eq!(bad(VllmAdaptive { vocab_size: 0, ..VllmAdaptive::default() }), Err("vocab_size"));
    assert_eq!(VllmAdaptive { k: Some(9), ..VllmAdaptive::default() }.asks_for(), Some(("k", 9)));
}
