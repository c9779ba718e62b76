//! Tests of the policy `smartspec-dsd`: each rule of the authors' vLLM branch against results computed by hand, and the
//! search for the best draft length against a direct implementation.

use super::*;
use crate::shared::acceptance::expected_tokens;
use crate::testing::{BELIEF, Batch, CONTEXT, Run, any_batch, any_belief, close, outcome};
use foretoken_sim::{Coefficients, Drafting};
use proptest::prelude::*;

fn decided(params: SmartspecDsd, belief: Belief, batch: &Batch) -> (u32, Option<f64>) {
    let mut p = Running::new(params, &PolicyContext { belief, ..CONTEXT });
    p.decide_draft(&batch.view());
    (p.length, p.goodput)
}

#[test]
fn a_decision_holds_for_20_steps() {
    let mut p = Running::new(SmartspecDsd::default(), &CONTEXT);
    let batch = Batch::new(&[100, 100], &[8, 8]);
    let mut plan = DraftPlan { draft_len: vec![0; 2], ..DraftPlan::default() };
    let drafts = Drafts::default();
    let mut lengths = Vec::new();
    for step in 0..41 {
        plan.fill(0);
        p.propose(&batch.view(), &mut plan);
        assert_eq!(p.explain().estimate.is_some(), step % 20 == 0);
        lengths.push(plan.draft_len[0]);
        p.observe(&outcome(&drafts, &[8, 8], &[0, 0]));
    }
    assert!(lengths[0] > 0 && lengths[..20].iter().all(|&k| k == lengths[0]), "{lengths:?}");
    // After 20 steps without an accepted draft token, the acceptance rate is .7 · .85^20 = .027, and nothing is
    // drafted.
    assert!(lengths[20..].iter().all(|&k| k == 0), "{lengths:?}");
    assert!(close(p.acceptance, 0.7 * 0.85f64.powi(41)));
}

#[test]
fn speculation_has_to_be_a_tenth_better() {
    let free = Coefficients { alpha_s: 0.0, gamma_s: 0.0, delta_s: 0.0 };
    let target = Coefficients { alpha_s: 0.0, gamma_s: 1e-3, delta_s: 9e-3 };
    let belief = Belief { draft: free, target, ..BELIEF };
    let batch = Batch::new(&[100], &[1]);
    // Length 0 makes 1 token in 10 ms, and length 1 makes 1 + α in 11 ms. From the acceptance rate α = .21 on, length 1
    // has more than 1.1 times the goodput (tokens per second) of length 0.
    let at =
        |initial_acceptance| decided(SmartspecDsd { initial_acceptance, ..SmartspecDsd::default() }, belief, &batch);
    assert_eq!((at(0.20).0, at(0.22).0), (0, 1));
    assert!(close(at(0.20).1.expect("feasible"), 110.0) && close(at(0.22).1.expect("feasible"), 1.22 / 11e-3));
    let fair = SmartspecDsd { initial_acceptance: 0.12, zero_handicap: 1.0, ..SmartspecDsd::default() };
    assert_eq!(decided(fair, belief, &batch).0, 1);
}

/// The goodput (tokens per second) at draft length 2 is above 1.1 · goodput(0), but at length 1 it is not. The search
/// stops at length 1 and does not reach length 2.
#[test]
fn the_search_stops_at_the_first_length_that_is_no_better() {
    let belief = Belief {
        draft: Coefficients { alpha_s: 0.0, gamma_s: 0.0, delta_s: 2e-3 },
        drafting: Drafting::Parallel,
        target: Coefficients { alpha_s: 0.0, gamma_s: 0.0, delta_s: 3e-3 },
        ..BELIEF
    };
    // Drafting takes 2 ms at any length. Goodputs in tokens per ms are 1.1/3 at length 0 (with the factor 1.1), only
    // 1.8/5 at length 1, but 2.44/5 at length 2.
    let params = SmartspecDsd { initial_acceptance: 0.8, ..SmartspecDsd::default() };
    let batch = Batch::new(&[100], &[8]);
    assert_eq!(decided(params, belief, &batch).0, 0);
    assert_eq!(decided(SmartspecDsd { zero_handicap: 1.0, ..params }, belief, &batch).0, 8);
}

#[test]
fn lengths_near_the_end_of_the_pool_are_infeasible() {
    let free = Coefficients { alpha_s: 0.0, gamma_s: 0.0, delta_s: 1e-6 };
    let belief = Belief { draft: free, target: Coefficients { delta_s: 8e-3, ..free }, ..BELIEF };
    let batch = Batch::new(&[90, 111], &[8, 8]);
    // Lengths k are feasible while 2 · (100 + k + 1) · 1.1 is at most `kv_tokens`, for two requests with 100 tokens
    // each on average. With 230 tokens this holds up to k = 3 (228.8); k = 4 gives 231.
    let at = |kv_tokens| decided(SmartspecDsd { kv_tokens, ..SmartspecDsd::default() }, belief, &batch);
    assert_eq!((at(0).0, at(1000).0, at(230).0), (8, 8, 3));
    assert_eq!(at(200), (0, None));
}

#[test]
fn ngrams_are_proposed_in_full_and_cut_before_verification() {
    let belief = Belief { drafting: Drafting::Parallel, ..BELIEF };
    let params = SmartspecDsd { proposer: Proposer::Ngram, initial_acceptance: 0.99, ..SmartspecDsd::default() };
    let context = PolicyContext { belief, max_draft_len: 12, ..CONTEXT };
    let mut run = Run::of(&params, &context);
    // The second request has no n-gram match; the match of the third request ends after two tokens.
    let step = run.step(&Batch::new(&[100; 3], &[12, 0, 2]), |_, _| 1.0, &[12; 3]);
    assert_eq!((step.draft_len, step.verify_len), (vec![8, 0, 2], vec![7, 0, 2]));
    // With more than 32 requests in the batch, no n-gram match is proposed.
    let step = run.step(&Batch::new(&[100; 33], &[12; 33]), |_, _| 1.0, &[0; 33]);
    assert_eq!(step.draft_len, vec![0; 33]);
    // If few draft tokens are accepted and a verified token costs much time, no draft token is verified, although 8 are
    // proposed.
    let dear = Belief { target: Coefficients { gamma_s: 10e-3, ..BELIEF.target }, ..belief };
    let mut run =
        Run::of(&SmartspecDsd { initial_acceptance: 0.2, ..params }, &PolicyContext { belief: dear, ..context });
    let step = run.step(&Batch::new(&[100; 3], &[12, 0, 12]), |_, _| 1.0, &[0; 3]);
    assert_eq!((step.draft_len, step.verify_len), (vec![8, 0, 8], vec![0, 0, 0]));
}

#[test]
fn bad_settings_are_named() {
    let good = SmartspecDsd::default();
    for (params, key) in [
        (SmartspecDsd { initial_acceptance: -1.0, ..good }, "initial_acceptance"),
        (SmartspecDsd { ema_keep: 1.5, ..good }, "ema_keep"),
        (SmartspecDsd { update_interval: 0, ..good }, "update_interval"),
        (SmartspecDsd { zero_handicap: 0.0, ..good }, "zero_handicap"),
        (SmartspecDsd { kv_margin: f64::INFINITY, ..good }, "kv_margin"),
        (SmartspecDsd { ngram_propose: 0, ..good }, "ngram_propose"),
        (SmartspecDsd { ngram_verify: 0, ..good }, "ngram_verify"),
        (SmartspecDsd { ngram_max_batch: 0, ..good }, "ngram_max_batch"),
        (SmartspecDsd { absorbing_steps: 0, ..good }, "absorbing_steps"),
    ] {
        assert_eq!(params.check().map_err(|e| e.key), Err(key));
    }
}

/// The draft length at which a search from 0 up ends: the last one before the goodput (tokens per second) falls. `None`
/// if two goodputs tie within rounding.
fn climb(goodput: impl Fn(u32) -> f64, longest: u32) -> Option<u32> {
    let mut best = 0;
    for k in 1..=longest {
        let (now, before) = (goodput(k), goodput(best));
        if (now - before).abs() < before * 1e-12 {
            return None;
        }
        if now < before {
            break;
        }
        best = k;
    }
    Some(best)
}

proptest! {
    #[test]
    fn equals_the_rule_read_plainly(batch in any_batch(10, 8), belief in any_belief(), acceptance in 0.0f64..=1.0) {
        let view = batch.view();
        let longest = view.limit.iter().copied().max().unwrap_or(0);
        let params = SmartspecDsd { initial_acceptance: acceptance, ..SmartspecDsd::default() };
        let lens = |k: u32| view.limit.iter().map(|&l| l.min(k)).collect::<Vec<u32>>();
        let tokens = |k: u32| lens(k).iter().map(|&d| expected_tokens(acceptance, d)).sum::<f64>();
        let goodput = |k: u32| {
            tokens(k) / belief.step_s(&view, &lens(k), &lens(k)) * if k == 0 { 1.1 } else { 1.0 }
        };
        let (k, own) = decided(params, belief, &batch);
        if let Some(expected) = climb(goodput, longest) {
            prop_assert_eq!(k, expected);
            prop_assert!(close(own.expect("feasible"), goodput(k)));
        }

        let mut p = Running::new(SmartspecDsd { proposer: Proposer::Ngram, ..params }, &PolicyContext { belief, ..CONTEXT });
        p.decide_verify(&view);
        let goodput = |v: u32| tokens(v) / belief.step_s(&view, &lens(8), &lens(v));
        if let Some(expected) = climb(goodput, longest.min(7)) {
            prop_assert_eq!(p.length, expected);
            prop_assert!((p.goodput.expect("always feasible") / goodput(p.length) - 1.0).abs() < 1e-9);
        }
    }
}
