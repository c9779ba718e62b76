//! Tests of the policy `turbospec-v1`: the published table of best draft lengths, which steps decide, and the search
//! against a second implementation.

use super::*;
use crate::shared::acceptance::expected_tokens;
use crate::testing::{Batch, CONTEXT, Run, any_batch, any_belief, close, outcome};
use itertools::Itertools;
use proptest::prelude::*;

const PUBLISHED: Turbospec = Turbospec {
    coefficients: Coefficients::H100Llama8b,
    proposer: Proposer::Model,
    ngram_share: 0.04,
    overhead_share: 0.05,
    double_count: false,
    period: 200,
    window: 100,
    initial_acceptance: 0.7,
    rate: Rate::Attempts,
    k_start: 0,
};

fn decided(params: Turbospec, longest: u32, batch: &Batch) -> Running {
    let mut p = Running::new(params, &PolicyContext { max_draft_len: longest, ..CONTEXT });
    let proposed = batch.limit.iter().map(|&l| l.min(longest)).max().unwrap_or(0);
    p.decide(&batch.view(), proposed);
    p
}

/// The best draft lengths of docs/model.md 10, at most 10: context 512, EAGLE draft model, overhead 5 %, tokens counted
/// once. Each row of the table has a batch size, and the lengths for the acceptance rates .5 to .9.
#[test]
fn turbospec_best_lengths() {
    for (requests, lengths) in [
        (1, [3, 4, 5, 7, 10]),
        (8, [3, 3, 5, 6, 10]),
        (32, [2, 3, 3, 5, 8]),
        (64, [1, 2, 3, 4, 6]),
        (128, [0, 0, 2, 3, 5]),
        (256, [0, 0, 0, 0, 0]),
    ] {
        // 511 tokens in KV are a context of 512 tokens: the newest token's KV is not yet written.
        let batch = Batch::new(&vec![511; requests], &vec![10; requests]);
        for (initial_acceptance, best) in [0.5, 0.6, 0.7, 0.8, 0.9].into_iter().zip_eq(lengths) {
            let p = decided(Turbospec { initial_acceptance, ..PUBLISHED }, 10, &batch);
            assert_eq!(p.length, best, "batch {requests}, {initial_acceptance}");
        }
    }
}

/// docs/model.md 3.4: if each request's newest token counts twice, the published coefficients no longer turn
/// speculation off at 256 requests.
#[test]
fn double_counting_hides_that_speculation_does_not_pay() {
    let batch = Batch::new(&[511; 256], &[10; 256]);
    let at = |double_count, initial_acceptance| {
        decided(Turbospec { double_count, initial_acceptance, ..PUBLISHED }, 10, &batch).length
    };
    assert_eq!((at(false, 0.9), at(true, 0.9)), (0, 4));
}

/// The published formula of goodput at one point, by hand: 3 decode requests, 2 of them with an n-gram match, and a
/// prompt chunk of 100 tokens after 50 computed ones.
#[test]
fn the_literal_formula() {
    let mut batch = Batch::new(&[99, 199, 299], &[5, 0, 5]);
    batch.prefill.add(50, 100);
    let params = Turbospec { double_count: true, ..PUBLISHED };
    let p = Running::new(params, &CONTEXT);
    let load = Load::of(&batch.view());
    assert_eq!((load.requests, load.drafting, load.kv, load.scheduled), (4.0, 2.0, 750.0, 103.0));
    // The formula counts m(k + 1) + (B − m) + scheduled tokens, with B = 4 requests, m = 2 of them with a match, and k
    // = 2: 6 + 2 + 103.
    let target = 4.85907942e-5 * 750.0 + 1.84383603e-2 * 111.0 - 4.33144783e-2 * 4.0 + 6.938699571857084;
    let draft =
        2.89700974e-6 * 750.0 + 4.3869407e-5 * 103.0 + 0.45217587 * 2.0 + 5.52805909e-3 * 4.0 + 0.4471109584339972;
    let expected = (2.0 * 2.19 + 2.0) / (1.05 * target + draft) * 1e3;
    assert!(close(p.goodput(&load, 2, expected_tokens(0.7, 2)), expected));
    // With n-gram proposals, drafting takes 4 % of the target's time.
    let ngram = Running::new(Turbospec { proposer: Proposer::Ngram, ..params }, &CONTEXT);
    let expected = (2.0 * 2.19 + 2.0) / (1.09 * target) * 1e3;
    assert!(close(ngram.goodput(&load, 2, expected_tokens(0.7, 2)), expected));
}

#[test]
fn full_length_is_proposed_every_200th_step_and_cut_to_the_winner() {
    let mut run = Run::of(&Turbospec::default(), &CONTEXT);
    let mut batch = Batch::new(&[100, 100], &[8, 8]);
    let mut made = Vec::new();
    for step in 1..=401 {
        batch.step = step;
        // In this step no draft token of the two requests is accepted.
        let drafts = run.step(&batch, |_, _| 1.0, &[0, 0]);
        made.push((drafts.draft_len[0], drafts.verify_len[0]));
    }
    // Before the first decision, the longest draft length is proposed and verified. Then the acceptance rate is 0, and
    // length 1 is chosen because it is the least.
    assert!(made[..199].iter().all(|&m| m == (8, 8)));
    assert_eq!((made[199], made[200], made[398], made[399], made[400]), ((8, 1), (1, 1), (1, 1), (8, 1), (1, 1)));
    // If draft length 0 is allowed (`k_start` is 0), nothing is proposed between decisions.
    let mut run = Run::of(&Turbospec { k_start: 0, ..Turbospec::default() }, &CONTEXT);
    let made = [1, 200, 201, 400].map(|step| {
        batch.step = step;
        let drafts = run.step(&batch, |_, _| 1.0, &[0, 0]);
        (drafts.draft_len[0], drafts.verify_len[0])
    });
    assert_eq!(made, [(8, 8), (8, 0), (0, 0), (8, 0)]);
}

#[test]
fn the_window_is_over_steps_with_drafts() {
    let mut p = Running::new(Turbospec { window: 2, ..Turbospec::default() }, &CONTEXT);
    let drafts = Drafts::default();
    assert_eq!(p.acceptance.value(), 0.7);
    for (verified, accepted) in [([4, 4], [0, 0]), ([0, 0], [0, 0]), ([4, 4], [4, 4]), ([2, 4], [1, 4])] {
        p.observe(&outcome(&drafts, &verified, &accepted));
    }
    assert!(close(p.acceptance.value(), (1.0 + 5.0 / 6.0) / 2.0));
}

#[test]
fn bad_settings_are_named() {
    let good = Turbospec::default();
    for (params, key) in [
        (Turbospec { coefficients: Coefficients::H100Llama70b, ..good }, "proposer"),
        (Turbospec { ngram_share: -0.1, ..good }, "ngram_share"),
        (Turbospec { overhead_share: f64::NAN, ..good }, "overhead_share"),
        (Turbospec { period: 0, ..good }, "period"),
        (Turbospec { window: 0, ..good }, "window"),
        (Turbospec { initial_acceptance: 7.0, ..good }, "initial_acceptance"),
        (Turbospec { k_start: 1000, ..good }, "k_start"),
    ] {
        assert_eq!(params.check().map_err(|e| e.key), Err(key));
    }
    let ngram = Turbospec { coefficients: Coefficients::H100Llama70b, proposer: Proposer::Ngram, ..good };
    assert_eq!(ngram.check(), Ok(()));
    assert_eq!((Turbospec { k_start: 2, ..good }.asks_for(), good.asks_for()), (Some(("k_start", 2)), None));
}

proptest! {
    /// With a belief (a policy's linear cost estimate), the search equals a second implementation of the formula. The
    /// target's time is computed as in docs/model.md 12 (context read once), with each request's newest token counted
    /// twice. All requests have the same limit, so that all lengths are equal.
    #[test]
    fn equals_the_formula_written_again(
        batch in any_batch(10, 1),
        belief in any_belief(),
        acceptance in 0.0f64..=1.0,
        k_start in 0u32..3,
        double_count in any::<bool>(),
    ) {
        let mut batch = batch;
        batch.limit.iter_mut().for_each(|l| *l *= 8);
        let params = Turbospec { initial_acceptance: acceptance, k_start, double_count, ..Turbospec::default() };
        let mut p = Running::new(params, &PolicyContext { belief, ..CONTEXT });
        let view = batch.view();
        let m = view.limit.iter().filter(|&&l| l > 0).count();
        prop_assume!(m > 0);
        let others = (view.len() - m) as f64 + f64::from(view.prefill.chunks);
        let decodes = (view.len() as u64 + view.prefill.tokens) as f64;
        let requests = m as f64 + others;
        let goodput = |k: u32| {
            let lens: Vec<u32> = view.limit.iter().map(|&l| l.min(k)).collect();
            let verify = foretoken_sim::shape::verify_pass(&view, &lens, belief.context_reads);
            let draft = belief.step_s(&view, &lens, &lens)
                - belief.target.pass_s(verify.context as f64, verify.batched as f64);
            let kv = view.context_sum as f64 + view.prefill.context as f64 + decodes;
            let once = m as f64 * f64::from(k) + decodes;
            let target = belief.target.pass_s(kv, if double_count { once + requests } else { once });
            let time = if k == 0 { target } else { 1.05 * target + draft };
            (m as f64 * expected_tokens(acceptance, k) + others) / time
        };
        p.decide(&view, 8);
        let mut best = k_start;
        for k in k_start + 1..=8 {
            let (now, before) = (goodput(k), goodput(best));
            prop_assume!((now - before).abs() > before * 1e-9);
            if now < before {
                break;
            }
            best = k;
        }
        prop_assert_eq!(p.length, best);
        prop_assert!((p.explain().estimate.expect("it decided") / goodput(best) - 1.0).abs() < 1e-9);
    }
}
