//! Tests of the policy `smartspec`: draft lengths computed by hand, the example values of docs/model.md 10, and brute
//! force over all draft lengths.

use super::*;
use crate::shared::acceptance::expected_tokens;
use crate::testing::{BELIEF, Batch, CONTEXT, Run, any_batch, any_belief, close, outcome};
use foretoken_sim::{Coefficients, ContextReads, Drafting, Drafts};
use itertools::Itertools;
use proptest::prelude::*;

fn policy(belief: Belief, acceptance: f64, longest: u32) -> BestLength {
    let params = Smartspec { initial_acceptance: acceptance, ..Smartspec::default() };
    BestLength::new(params, &PolicyContext { belief, max_draft_len: longest, ..CONTEXT })
}

/// Costs of drafting: `once_s` seconds in a step that drafts, `pass_s` for each pass over the requests, and `alpha_s`
/// per context token. The cost model of docs/model.md 12 has no cost per drafting step. So the batch gets as many
/// skipped context tokens as it has context tokens, and processing all of them takes `once_s`.
fn draft_with_one_off(alpha_s: f64, once_s: f64, pass_s: f64, batch: &mut Batch) -> Coefficients {
    batch.gap = batch.context.clone();
    let gamma_s = once_s / batch.gap.iter().map(|&g| f64::from(g)).sum::<f64>();
    Coefficients { alpha_s, gamma_s, delta_s: pass_s - gamma_s * batch.context.len() as f64 }
}

/// docs/model.md 10: if a pass reads the context once, longer contexts mean longer draft lengths. If the pass reads the
/// context once for each verified position, longer contexts mean shorter draft lengths.
#[test]
fn context_sign() {
    for (reads, best) in [(ContextReads::Once, [5, 5, 5, 5, 6]), (ContextReads::PerPosition, [5, 4, 3, 1, 0])] {
        for (context, best) in [128, 512, 2048, 8192, 32768].into_iter().zip_eq(best) {
            let mut batch = Batch::new(&[context; 16], &[10; 16]);
            let draft = draft_with_one_off(2.9e-9, 0.447e-3, 0.452e-3, &mut batch);
            let target = Coefficients { alpha_s: 4.86e-8, gamma_s: 0.01844e-3, delta_s: 6.94e-3 };
            let mut policy = policy(Belief { draft, target, context_reads: reads, ..BELIEF }, 0.75, 10);
            assert_eq!(policy.best_length(&batch.view()), best, "{reads:?} {context}");
        }
    }
}

/// The best draft lengths of docs/model.md 10: with TurboSpec's published coefficients for Llama-3.1-8B on an H100, in
/// ms (its `config.py`), and 5 % overhead on steps that draft.
#[test]
fn turbospec_best_lengths() {
    let table: [(usize, [u32; 5]); 6] = [
        (1, [3, 4, 5, 7, 10]),
        (8, [3, 3, 5, 6, 10]),
        (32, [2, 3, 3, 5, 8]),
        (64, [1, 2, 3, 4, 6]),
        (128, [0, 0, 2, 3, 5]),
        (256, [0, 0, 0, 0, 0]),
    ];
    for (requests, lengths) in table {
        let b = requests as f64;
        let context = 512.0 * b;
        let plain = 4.85907942e-5 * context + (1.84383603e-2 - 4.33144783e-2) * b + 6.9386996;
        // One-off cost of a step that drafts, in ms: the overhead on the target's time, and the draft model's terms for
        // context, batch size and a constant.
        let once = 0.05 * (plain) + 2.89700974e-6 * context + 4.3869407e-5 * b + 5.52805909e-3 * b + 0.44711096;
        let each_pass = 0.45217587 + 4.3869407e-5 * b;
        let mut batch = Batch::new(&vec![512; requests], &vec![10; requests]);
        let draft = draft_with_one_off(0.0, once * 1e-3, each_pass * 1e-3, &mut batch);
        let gamma_s = 1.05 * 1.84383603e-5;
        let target = Coefficients { alpha_s: 0.0, gamma_s, delta_s: plain * 1e-3 - gamma_s * b };
        for (alpha, best) in [0.5, 0.6, 0.7, 0.8, 0.9].into_iter().zip_eq(lengths) {
            let belief = Belief { draft, target, context_reads: ContextReads::Once, ..BELIEF };
            assert_eq!(policy(belief, alpha, 10).best_length(&batch.view()), best, "batch {requests}, {alpha}");
        }
    }
}

#[test]
fn the_average_learns_and_steps_without_drafts_leave_it() {
    let mut p = policy(CONTEXT.belief, 0.7, 8);
    let drafts = Drafts::default();
    p.observe(&outcome(&drafts, &[4, 3], &[2, 3]));
    let expected = 0.85 * 0.7 + 0.15 * (5.0 / 6.0);
    assert!((p.acceptance - expected).abs() < 1e-15);
    p.observe(&outcome(&drafts, &[0, 0], &[0, 0]));
    p.observe(&outcome(&drafts, &[], &[]));
    assert!((p.acceptance - expected).abs() < 1e-15);
}

#[test]
fn a_long_run_of_length_zero_warns() {
    let mut p = policy(CONTEXT.belief, 0.0, 8);
    let (can, cannot) = (Batch::new(&[100, 100], &[8, 8]), Batch::new(&[100, 100], &[0, 0]));
    let mut plan = DraftPlan { draft_len: vec![0, 0], ..DraftPlan::default() };
    (0..5000).for_each(|_| p.propose(&cannot.view(), &mut plan));
    (0..999).for_each(|_| p.propose(&can.view(), &mut plan));
    assert_eq!(p.warnings(), Vec::<String>::new());
    p.propose(&can.view(), &mut plan);
    assert!(p.warnings()[0].contains("1000 steps in a row"));
}

proptest! {
    /// The chosen draft length equals brute force over a direct implementation of docs/model.md 12, with limits on
    /// draft tokens, prompt chunks and context tokens that the draft model skipped.
    #[test]
    fn argmax_equals_brute_force(batch in any_batch(12, 8), belief in any_belief(), acceptance in 0.0f64..=1.0) {
        let view = batch.view();
        let goodput = |k: u32| {
            let lens: Vec<u32> = view.limit.iter().map(|&l| l.min(k)).collect();
            let tokens: f64 = lens.iter().map(|&d| expected_tokens(acceptance, d)).sum();
            tokens / belief.step_s(&view, &lens, &lens)
        };
        let chosen = policy(belief, acceptance, 8).best_length(&view);
        let best = (0..=8).map(goodput).fold(0.0, f64::max);
        prop_assert!(goodput(chosen) >= best * (1.0 - 1e-12));
        // Each shorter draft length has less goodput (expected tokens per second) than the chosen length, up to
        // rounding.
        prop_assert!((0..chosen).all(|k| goodput(k) < goodput(chosen) * (1.0 + 1e-12)));
    }
}

/// docs/model.md 3.1 and 3.6: of 4 requests 2 have an n-gram match. Only these 2 count E(a, k) tokens, get draft
/// tokens, and verify more than their newest token. All draft tokens are made in one pass.
#[test]
fn prompt_lookup_counts_the_matched_requests_only() {
    let belief = Belief { drafting: Drafting::Parallel, ..BELIEF };
    let batch = Batch::new(&[100, 200, 300, 400], &[8, 0, 8, 0]);
    let mut p = policy(belief, 0.6, 8);
    p.explain();
    let k = p.best_length(&batch.view());
    let goodput = |k: u32| {
        let tokens = 2.0 * expected_tokens(0.6, k) + 2.0;
        let draft = if k == 0 { 0.0 } else { 1e-9 * 400.0 + 2e-6 * 2.0 * f64::from(k) + 0.5e-3 };
        tokens / (draft + 1e-7 * 1000.0 + 40e-6 * (4.0 + 2.0 * f64::from(k)) + 8e-3)
    };
    for (k, seen) in (0..=8).zip_eq(p.explain().candidates) {
        assert_eq!(seen.what, format!("k = {k}"));
        assert!(close(seen.estimate, goodput(k)), "{k}");
    }
    let best = (0..=8).max_by(|&a, &b| goodput(a).total_cmp(&goodput(b))).expect("nine lengths");
    assert_eq!(k, best);
    assert!((1..8).contains(&k) && close(p.explain().estimate.expect("it has one"), goodput(best)));
    let made = Run::of(&Smartspec::default(), &PolicyContext { belief, ..CONTEXT }).step(&batch, |_, _| 1.0, &[8; 4]);
    assert_eq!((made.draft_len[1], made.draft_len[3], made.draft_len[0]), (0, 0, made.draft_len[2]));
}

/// `smartspec-joint` leaves out the last request of the batch if its context is so long that it takes more time than
/// its tokens are worth.
#[test]
fn the_joint_choice_leaves_a_dear_tail_out() {
    let mut p = BestLength::new(Smartspec::joint(), &CONTEXT);
    let near = Batch::new(&[500; 4], &[8; 4]);
    assert_eq!(p.max_batch(&near.view()), Some(4));
    let far = Batch::new(&[500, 500, 500, 200_000], &[8; 4]);
    assert_eq!(p.max_batch(&far.view()), Some(3));
    // A request with 200,000 tokens of context at the head of the batch cannot be left out, because only prefixes of
    // the batch are tried.
    let head = Batch::new(&[200_000, 500, 500, 500], &[8; 4]);
    assert_eq!(p.max_batch(&head.view()), Some(4));
    let mut run = Run::of(&Smartspec::joint(), &CONTEXT);
    assert_eq!(run.step(&far, |_, _| 1.0, &[0; 4]).draft_len.len(), 3);
}

/// Alg. 1 line 4 of SmartSpec as printed multiplies by n, the number of requests, twice. If only the draft length k is
/// chosen, this changes nothing. If a prefix of the batch is chosen too, it favours large prefixes.
#[test]
fn the_printed_erratum_would_change_the_joint_choice() {
    let far = Batch::new(&[500, 500, 500, 60_000], &[8; 4]);
    let goodput = |n: usize, power: i32| {
        let mut batch = far.clone();
        batch.truncate(n);
        let at_length = |k: u32| {
            let lens = vec![k; n];
            (n as f64).powi(power) * expected_tokens(0.7, k) / BELIEF.step_s(&batch.view(), &lens, &lens)
        };
        (0..=8).map(at_length).fold(0.0, f64::max)
    };
    let best = |power: i32| (1..=4).max_by(|&a, &b| goodput(a, power).total_cmp(&goodput(b, power)));
    assert_eq!((best(1), best(2)), (Some(3), Some(4)));
}

proptest! {
    /// The chosen prefix of the batch and the chosen draft length equal brute force over all pairs of a prefix and a
    /// length.
    #[test]
    fn the_joint_choice_equals_brute_force(batch in any_batch(9, 6), belief in any_belief(), acceptance in 0.0f64..=1.0) {
        let params = Smartspec { initial_acceptance: acceptance, ..Smartspec::joint() };
        let mut p = BestLength::new(params, &PolicyContext { belief, max_draft_len: 6, ..CONTEXT });
        let goodput = |n: usize, k: u32| {
            let mut batch = batch.clone();
            batch.truncate(n);
            let view = batch.view();
            let lens: Vec<u32> = view.limit.iter().map(|&l| l.min(k)).collect();
            lens.iter().map(|&d| expected_tokens(acceptance, d)).sum::<f64>() / belief.step_s(&view, &lens, &lens)
        };
        let n = p.max_batch(&batch.view()).expect("it is joint");
        let mut kept = batch.clone();
        kept.truncate(n);
        let k = p.best_length(&kept.view());
        let best_at = |n: usize| (0..=6).map(|k| goodput(n, k)).fold(0.0, f64::max);
        let best = (1..=batch.ids.len()).map(best_at).fold(0.0, f64::max);
        prop_assert!(goodput(n, k) >= best * (1.0 - 1e-12));
        prop_assert!(close(p.explain().estimate.expect("it has one"), goodput(n, k)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Histories of 20 steps: every decision equals a second implementation, which averages the acceptance rate itself
    /// and tries every draft length with [`Belief::step_s`]. Lengths whose goodputs differ by rounding alone count as
    /// equal.
    #[test]
    fn histories_equal_a_second_implementation(
        steps in prop::collection::vec((any_batch(8, 8), prop::collection::vec(0u32..=8, 8)), 20),
        belief in any_belief(),
    ) {
        let mut run = Run::of(&Smartspec::default(), &PolicyContext { belief, ..CONTEXT });
        let mut acceptance = 0.7;
        for (batch, right) in &steps {
            let lens = |k: u32| -> Vec<u32> { batch.limit.iter().map(|&limit| limit.min(k)).collect() };
            let goodputs: Vec<f64> = (0..=8)
                .map(|k| {
                    let tokens: f64 = lens(k).iter().map(|&d| expected_tokens(acceptance, d)).sum();
                    tokens / belief.step_s(&batch.view(), &lens(k), &lens(k))
                })
                .collect();
            let best = goodputs.iter().copied().fold(0.0, f64::max);
            let mut equal = (0..=8).filter(|&k| goodputs[k as usize] >= best * (1.0 - 1e-12));
            let made = run.step(batch, |_, _| 1.0, &right[..batch.ids.len()]);
            prop_assert!(equal.any(|k| lens(k) == made.draft_len), "{:?}: {goodputs:?}", made.draft_len);
            let (mut accepted, mut tries) = (0, 0);
            for (&drafted, &right) in made.draft_len.iter().zip(right) {
                accepted += drafted.min(right);
                tries += drafted.min(right + 1);
            }
            if tries > 0 {
                acceptance = 0.85 * acceptance + 0.15 * f64::from(accepted) / f64::from(tries);
            }
        }
    }
}
