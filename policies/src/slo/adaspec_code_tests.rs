//! Tests of the policy `adaspec-code`: the drafting loop and the elimination of draft tokens against a direct
//! implementation, and the mistakes of AdaSpec's published code on examples computed by hand.

use super::*;
use crate::testing::{Batch, CONTEXT, Run, any_batch, any_belief, close};
use itertools::Itertools;
use proptest::prelude::*;

/// Reference pairs of docs/model.md 10: the number of scored tokens (rows of a verify pass), and the number of tokens
/// to drop to reach the next lower CUDA-graph size.
#[test]
fn bucket_vectors() {
    for (rows, delta) in [(40, 8), (24, 8), (32, 16), (64, 32), (66, 2), (33, 1), (2, 1), (3, 1), (1, 0)] {
        assert_eq!(bucket_delta(rows), delta, "{rows} rows");
    }
    for requests in 1..50u32 {
        for k in 1..9 {
            assert!(bucket_delta(requests * (k + 1)) <= requests * k, "never more than there are drafts");
        }
    }
}

/// One step of AdaSpec's published code, implemented directly: lengths drafted and verified, and the final goodput.
struct Plain<'a> {
    costs: CodeCosts,
    batch: &'a Batch,
    confidence: &'a dyn Fn(usize, usize) -> f64,
}

impl Plain<'_> {
    /// Expected tokens of a batch whose requests have the draft lengths `lens`. Draft tokens from position `unknown` on
    /// have the confidence `expected`.
    fn tokens(&self, lens: &[u32], unknown: usize, expected: f64) -> f64 {
        let cumulative = |i: usize, n: u32| -> f64 {
            (0..n as usize).map(|j| if j >= unknown { expected } else { (self.confidence)(i, j) }).product()
        };
        let one = |(i, &k): (usize, &u32)| 1.0 + (1..=k).map(|n| cumulative(i, n)).sum::<f64>();
        lens.iter().enumerate().map(one).sum()
    }

    fn draft_s(&self, k: u32) -> f64 {
        let may: Vec<(u32, u32)> =
            self.batch.limit.iter().copied().zip_eq(self.batch.context.iter().copied()).collect();
        let drafting = may.iter().filter(|(limit, _)| *limit > 0 && k > 0);
        let context = drafting.clone().map(|(limit, c)| u64::from(c + k.min(*limit))).sum();
        self.costs.draft_s(k, drafting.count() as u32, context)
    }

    fn verify_s(&self, lens: &[u32]) -> f64 {
        let rows = lens.iter().sum::<u32>() + lens.len() as u32;
        // A verify pass has one row per scored token, which attends to the text before the token.
        let context_of = |(&k, &c): (&u32, &u32)| (0..=k).map(|j| u64::from(c + j)).sum::<u64>();
        self.costs.verify_s(rows, lens.iter().zip_eq(&self.batch.context).map(context_of).sum())
    }

    fn step(&self, mut sum: f64, mut count: f64, start: f64, cap: u32) -> (Vec<u32>, Vec<u32>, f64, f64, f64) {
        let lens = |k: u32| self.batch.limit.iter().map(|&limit| limit.min(k)).collect::<Vec<u32>>();
        let expected = |sum: f64, count: f64| if count > 0.0 { sum / count } else { start };
        let goodput = |k: u32, known: u32, expected: f64| {
            self.tokens(&lens(k), known as usize, expected) / (self.draft_s(k) + self.verify_s(&lens(k)))
        };
        let mut current = goodput(0, 0, 0.0);
        let mut draft_s;
        let mut k = 0;
        if cap == 0 || lens(1) == lens(0) || goodput(1, 0, expected(sum, count)) <= current {
            return (lens(0), lens(0), current, sum, count);
        }
        loop {
            k += 1;
            draft_s = self.draft_s(k);
            let actual = goodput(k, k, 0.0);
            let worse = actual < current;
            current = actual;
            if worse {
                break;
            }
            for i in (0..lens(k).len()).filter(|&i| lens(k)[i] == k) {
                sum += (self.confidence)(i, k as usize - 1);
                count += 1.0;
            }
            if k == cap || lens(k + 1) == lens(k) {
                break;
            }
            draft_s = self.draft_s(k + 1);
            if goodput(k + 1, k, expected(sum, count)) < current {
                break;
            }
        }
        let drafted = lens(k);
        let mut kept = drafted.clone();
        let last = |i: usize| (0..drafted[i] as usize).map(|j| (self.confidence)(i, j)).product::<f64>();
        for _ in 0..bucket_delta(drafted.iter().sum::<u32>() + drafted.len() as u32) {
            let least = (0..kept.len()).filter(|&i| kept[i] > 0).min_by(|&a, &b| last(a).total_cmp(&last(b)));
            let Some(i) = least else { break };
            kept[i] -= 1;
        }
        let ragged = self.tokens(&kept, 99, 0.0) / (draft_s + self.verify_s(&kept));
        if ragged >= current {
            return (drafted, kept, ragged, sum, count);
        }
        (drafted.clone(), drafted, current, sum, count)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// In three steps in a row the policy decides as the direct implementation does. Both learn the expected confidence
    /// from the steps before.
    #[test]
    fn equals_the_plain_reading(
        batch in any_batch(12, 8),
        belief in any_belief(),
        confidences in prop::collection::vec(0.05f64..=1.0, 3 * 96),
    ) {
        let context = PolicyContext { belief, profile: &belief, ..CONTEXT };
        let mut run = Run::of(&AdaspecCode::default(), &context);
        let (mut sum, mut count) = (0.0, 0.0);
        for step in 0..3 {
            let look = |i: usize, j: usize| confidences[96 * step + 8 * i + j];
            let exact = |i: usize, j: usize| look(i, j);
            let plain = Plain { costs: CodeCosts::measure(&belief), batch: &batch, confidence: &exact };
            let made = run.step(&batch, look, &[0; 12]);
            if step == 0 {
                let (_, mut policy) = decide(&context, AdaspecCode::default(), &batch, &look);
                let (.., goodput, _, _) = plain.step(0.0, 0.0, 0.6, 8);
                prop_assert!(close(policy.explain().estimate.expect("it has one"), goodput));
            }
            let (drafted, kept, goodput, s, c) = plain.step(sum, count, 0.6, 8);
            (sum, count) = (s, c);
            let ours = (&made.draft_len, &made.verify_len);
            prop_assert!(ours == (&drafted, &kept), "step {step}: {ours:?} for {:?}, goodput {goodput}", (&drafted, &kept));
        }
    }
}

/// Nine rows of a request with 452 tokens attend to 452, 453, … 460 tokens, 4,104 in all. The CUDA graph has 16 rows,
/// so the average is 256.5 tokens, just above a sequence bucket's 256.
#[test]
fn each_row_attends_to_the_drafts_before_it() {
    let mut policy = Running::new(AdaspecCode::default(), &CONTEXT);
    policy.lens = vec![8];
    let costs = &policy.costs;
    let (whole, less) = (costs.verify_s(9, 4_104), costs.verify_s(9, 4_095));
    assert!(whole > less, "another bucket");
    assert_eq!(policy.ragged_goodput(&Batch::new(&[452], &[8]).view(), 3.0), 3.0 / whole);
}

fn decide(
    context: &PolicyContext,
    params: AdaspecCode,
    batch: &Batch,
    confidence: &dyn Fn(usize, usize) -> f64,
) -> (Drafts, Running) {
    let mut policy = Running::new(params, context);
    policy.explain();
    let mut drafts = Drafts::default();
    drafts.reset(batch.ids.len(), 8);
    let mut plan = DraftPlan { draft_len: vec![0; batch.ids.len()], ..DraftPlan::default() };
    policy.propose(&batch.view(), &mut plan);
    for k in 1..=plan.draft_len[0].min(*batch.limit.iter().max().expect("a request")) {
        for i in (0..batch.ids.len()).filter(|&i| batch.limit[i] >= k) {
            drafts.set_confidence(i, k as usize - 1, confidence(i, k as usize - 1));
            drafts.draft_len[i] = k;
        }
        drafts.passes = k;
        if policy.keep_drafting(&batch.view(), &mut drafts) == Continue::Stop {
            break;
        }
    }
    drafts.verify_len = drafts.draft_len.clone();
    if drafts.passes > 0 {
        policy.select(&batch.view(), &mut drafts);
    }
    (drafts, policy)
}

#[test]
fn drafting_is_compared_with_a_step_without_drafts() {
    // The policy `adaspec`, which follows the paper, would draft one token in this step; the published code drafts
    // none.
    let mut belief = crate::testing::BELIEF;
    belief.draft.delta_s = 1.0;
    let context = PolicyContext { belief, profile: &belief, ..CONTEXT };
    let batch = Batch::new(&[100; 3], &[8; 3]);
    let (drafts, mut policy) = decide(&context, AdaspecCode::default(), &batch, &|_, _| 0.9);
    assert_eq!((drafts.passes, policy.explain().candidates.len()), (0, 2));
    let plain = 3.0 / policy.costs.verify_s(3, 300);
    assert!(close(policy.explain().estimate.expect("it has one"), plain));
}

#[test]
fn a_pass_that_lowers_the_goodput_is_kept_and_ends_drafting() {
    let batch = Batch::new(&[100; 4], &[8; 4]);
    // The confidences of each request's draft tokens are high, then low, then high. The code stops at the second token
    // and keeps it.
    let confidence = |_: usize, j: usize| if j == 1 { 0.01 } else { 0.95 };
    let params = AdaspecCode { eliminate: Eliminate::Off, ..AdaspecCode::default() };
    let (drafts, policy) = decide(&CONTEXT, params, &batch, &confidence);
    assert_eq!(drafts.verify_len, [2; 4]);
    // The mean confidence has only the first token: the code does not learn from a draft pass that lowered the goodput.
    assert!((policy.expected.value - 0.95f64).abs() < 1e-12);
}

#[test]
fn the_least_promising_request_is_drained_first() {
    let batch = Batch::new(&[100; 8], &[8; 8]);
    // The last draft token of request 5 has the lowest cumulative confidence (product of a request's confidences) of
    // all last draft tokens, although the request's first two draft tokens have the highest confidences.
    let confidence = |i: usize, j: usize| {
        if i != 5 {
            0.9
        } else if j < 2 {
            1.0
        } else {
            0.7
        }
    };
    let off = AdaspecCode { eliminate: Eliminate::Off, cap: 4, ..AdaspecCode::default() };
    let (mut drafts, mut policy) = decide(&CONTEXT, off, &batch, &confidence);
    assert_eq!(drafts.draft_len, [4; 8]);
    let promising = policy.goodput;
    // A verify pass of 40 rows: eight tokens must be dropped to reach the graph of 32 rows. The goodput before dropping
    // is set to 0, so that any result is better.
    policy.goodput = 0.0;
    policy.eliminate(&batch.view(), &mut drafts);
    // Request 5 loses all its draft tokens. The other seven requests are equal, so request 0, the first of them, loses
    // its tokens next.
    assert_eq!(drafts.verify_len, [0, 4, 4, 4, 4, 0, 4, 4]);
    let kept = 8.0 + 6.0 * (1..=4).map(|n| 0.9f64.powi(n)).sum::<f64>();
    let context = 6 * (5 * 100 + 10) + 2 * 100;
    assert!(close(policy.goodput, kept / (policy.costs.draft_s(4, 8, 8 * 104) + policy.costs.verify_s(32, context))));
    // The goodput before dropping is now set to the predicted goodput. Dropping eight tokens would give less goodput,
    // so no token is dropped.
    policy.goodput = promising;
    drafts.verify_len = vec![4; 8];
    policy.eliminate(&batch.view(), &mut drafts);
    assert_eq!((policy.goodput, drafts.verify_len), (promising, vec![4; 8]));
}

#[test]
fn after_a_predicted_stop_elimination_is_judged_by_one_pass_too_many() {
    let batch = Batch::new(&[100; 16], &[8; 16]);
    let params = AdaspecCode { eliminate: Eliminate::Off, ..AdaspecCode::default() };
    let (drafts, policy) = decide(&CONTEXT, params, &batch, &|_, j| if j < 2 { 0.9 } else { 0.3 });
    let context = |k: u64| 16 * (100 + k);
    let k = drafts.passes;
    assert!(k < 8 && close(policy.draft_s, policy.costs.draft_s(k + 1, 16, context(u64::from(k) + 1))));
}

#[test]
fn a_given_confidence_is_not_learned() {
    let told = crate::Told { acceptance_rate: 0.5, prev_confidence: 0.8, contexts: &[100; 4] };
    let context = PolicyContext { told: Some(told), ..CONTEXT };
    let (_, policy) = decide(&context, AdaspecCode::default(), &Batch::new(&[100; 4], &[8; 4]), &|_, _| 0.95);
    assert_eq!(policy.expected.value, 0.8);
}

#[test]
fn bad_settings_are_named() {
    for (params, key) in [
        (AdaspecCode { prev_confidence: 1.5, ..AdaspecCode::default() }, "prev_confidence"),
        (AdaspecCode { cap: 0, ..AdaspecCode::default() }, "cap"),
    ] {
        assert_eq!(params.check().map_err(|e| e.key), Err(key));
    }
}
