//! Tests of the policy `adaspec`: the drafting loop and the choice of verified tokens against direct implementations of
//! AdaSpec's Alg. 1 and 2, and the rules for the SLO.

use super::*;
use crate::testing::{Batch, CONTEXT, Run, any_batch, any_belief, close};
use foretoken_sim::ContextReads;
use proptest::prelude::*;

fn adaspec(drafter: Drafter, verifier: bool, slo: SloMode) -> Adaspec {
    Adaspec { drafter, verifier, slo, ..Adaspec::default() }
}

/// The estimated throughput of a step (docs/model.md 12), implemented directly, in tokens per second; −1 if the SLO is
/// missed.
fn plain_estimate(
    belief: &Belief,
    batch: &Batch,
    drafted: &[u32],
    verified: &[u32],
    confidence: &dyn Fn(usize, usize) -> f64,
    slo: SloMode,
) -> f64 {
    let view = batch.view();
    let expected: Vec<f64> = verified
        .iter()
        .enumerate()
        .map(|(i, &v)| 1.0 + (1..=v as usize).map(|n| (0..n).map(|j| confidence(i, j)).product::<f64>()).sum::<f64>())
        .collect();
    let time = belief.step_s(&view, drafted, verified);
    let missed = |i: usize| match slo {
        SloMode::Off => false,
        SloMode::Step => time > view.slo_tpot_s[i],
        SloMode::Expected => time > view.slo_tpot_s[i] * expected[i],
    };
    if drafted.iter().any(|&d| d > 0) && (0..view.len()).any(missed) {
        return -1.0;
    }
    expected.iter().sum::<f64>() / time
}

/// AdaSpec's drafting loop (Alg. 1), implemented directly. `expected` is the confidence expected of a draft token.
/// Returns the number of draft passes.
fn plain_drafter(
    belief: &Belief,
    batch: &Batch,
    confidence: &dyn Fn(usize, usize) -> f64,
    slo: SloMode,
    expected: f64,
) -> u32 {
    let lens = |k: u32| batch.limit.iter().map(|&l| l.min(k)).collect::<Vec<u32>>();
    let (mut best, mut k) = (-1.0, 0);
    while k < 8 && lens(k + 1) != lens(k) {
        let guess = |i: usize, j: usize| if j == k as usize { expected } else { confidence(i, j) };
        if plain_estimate(belief, batch, &lens(k + 1), &lens(k + 1), &guess, slo) <= best {
            break;
        }
        k += 1;
        best = plain_estimate(belief, batch, &lens(k), &lens(k), confidence, slo);
    }
    k
}

/// AdaSpec's choice of the draft tokens to verify (Alg. 2), implemented directly. Returns the number of draft tokens to
/// verify of each request.
fn plain_verifier(
    belief: &Belief,
    batch: &Batch,
    drafted: &[u32],
    confidence: &dyn Fn(usize, usize) -> f64,
    slo: SloMode,
) -> Vec<u32> {
    let mut kept = drafted.to_vec();
    let mut best = plain_estimate(belief, batch, drafted, &kept, confidence, slo);
    loop {
        let tails = (0..kept.len()).filter(|&i| kept[i] > 0).map(|i| {
            let cumulative: f64 = (0..kept[i] as usize).map(|j| confidence(i, j)).product();
            (cumulative, std::cmp::Reverse(kept[i]), std::cmp::Reverse(i))
        });
        let Some((_, _, i)) = tails.min_by(|a, b| a.partial_cmp(b).expect("no NaN")) else { return kept };
        kept[i.0] -= 1;
        let shorter = plain_estimate(belief, batch, drafted, &kept, confidence, slo);
        // The policy sums in another order, so a difference of throughputs within rounding does not count as an
        // improvement.
        if shorter <= best || close(shorter, best) {
            kept[i.0] += 1;
            return kept;
        }
        best = shorter;
    }
}

fn any_slo() -> impl Strategy<Value = SloMode> {
    prop_oneof![Just(SloMode::Off), Just(SloMode::Step), Just(SloMode::Expected)]
}

/// Random confidences of the draft tokens of 12 requests at 8 depths.
fn any_confidences() -> impl Strategy<Value = Vec<f64>> {
    prop::collection::vec(0.01f64..=1.0, 96)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// Runs of 10 steps: the expected confidence is the mean of all confidences so far, and every decision equals the
    /// direct implementations.
    #[test]
    fn histories_equal_the_plain_readings(
        steps in prop::collection::vec((any_batch(6, 8), any_confidences()), 10),
        belief in any_belief(),
        slo_s in prop_oneof![Just(f64::INFINITY), 0.001f64..0.1],
    ) {
        let params = adaspec(Drafter::Paper, true, SloMode::Step);
        let mut run = Run::of(&params, &PolicyContext { belief, ..CONTEXT });
        let (mut expected, mut sum, mut count) = (0.6, 0.0, 0.0);
        for (batch, confidences) in steps {
            let mut batch = batch;
            batch.slo_tpot_s = vec![slo_s; batch.ids.len()];
            let exact = |i: usize, j: usize| confidences[8 * i + j];
            let step = run.step(&batch, exact, &[8; 12]);
            let passes = plain_drafter(&belief, &batch, &exact, SloMode::Step, expected);
            let drafted: Vec<u32> = batch.limit.iter().map(|&l| l.min(passes)).collect();
            prop_assert_eq!(&step.draft_len, &drafted);
            let kept = plain_verifier(&belief, &batch, &drafted, &exact, SloMode::Step);
            let ours = plain_estimate(&belief, &batch, &drafted, &step.verify_len, &exact, SloMode::Step);
            let theirs = plain_estimate(&belief, &batch, &drafted, &kept, &exact, SloMode::Step);
            prop_assert!(step.verify_len == kept || close(ours, theirs), "{:?} for {kept:?}", step.verify_len);
            for (i, &drafted) in drafted.iter().enumerate() {
                sum += (0..drafted as usize).map(|j| exact(i, j)).sum::<f64>();
                count += f64::from(drafted);
            }
            expected = if count > 0.0 { sum / count } else { 0.6 };
        }
    }

    /// The policy extends its estimates by one draft pass at a time. It drafts and verifies what the direct
    /// implementations of AdaSpec's Alg. 1 and 2 do.
    #[test]
    fn equals_the_plain_readings(
        batch in any_batch(12, 8),
        belief in any_belief(),
        confidences in any_confidences(),
        slo in any_slo(),
        limits in prop::collection::vec(prop_oneof![Just(f64::INFINITY), 0.001f64..0.1], 12),
    ) {
        let mut batch = batch;
        batch.slo_tpot_s = limits[..batch.context.len()].to_vec();
        let look = |i: usize, j: usize| confidences[8 * i + j];
        let exact = |i: usize, j: usize| look(i, j);
        let params = adaspec(Drafter::Paper, true, slo);
        let context = PolicyContext { belief, ..CONTEXT };
        let step = Run::of(&params, &context).step(&batch, look, &[8; 12]);
        let passes = plain_drafter(&belief, &batch, &exact, slo, 0.6);
        let drafted: Vec<u32> = batch.limit.iter().map(|&l| l.min(passes)).collect();
        prop_assert_eq!(&step.draft_len, &drafted);
        let kept = plain_verifier(&belief, &batch, &drafted, &exact, slo);
        let ours = plain_estimate(&belief, &batch, &drafted, &step.verify_len, &exact, slo);
        let theirs = plain_estimate(&belief, &batch, &drafted, &kept, &exact, slo);
        prop_assert!(step.verify_len == kept || close(ours, theirs), "{:?} for {kept:?}", step.verify_len);
    }

    /// If a verify pass reads each request's context only once, every token costs the same, and dropping the least
    /// confident draft tokens one by one finds the best of all subsets.
    #[test]
    fn greedy_elimination_is_exhaustive_when_context_is_read_once(
        batch in any_batch(4, 3),
        belief in any_belief(),
        confidences in any_confidences(),
    ) {
        let belief = Belief { context_reads: ContextReads::Once, ..belief };
        let look = |i: usize, j: usize| confidences[8 * i + j];
        let exact = |i: usize, j: usize| look(i, j);
        let params = adaspec(Drafter::Off, true, SloMode::Off);
        let step = Run::of(&params, &PolicyContext { belief, ..CONTEXT }).step(&batch, look, &[8; 4]);
        let rate = |kept: &[u32]| plain_estimate(&belief, &batch, &step.draft_len, kept, &exact, SloMode::Off);
        let ours = rate(&step.verify_len);
        let mut kept = vec![0; batch.limit.len()];
        // Tries all choices of how many draft tokens of each request are verified.
        while let Some(i) = (0..kept.len()).find(|&i| kept[i] < step.draft_len[i]) {
            kept[i] += 1;
            kept[..i].fill(0);
            prop_assert!(rate(&kept) <= ours * (1.0 + 1e-9), "{kept:?} beats {:?}", step.verify_len);
        }
        prop_assert!(rate(&vec![0; kept.len()]) <= ours * (1.0 + 1e-9));
    }
}

/// Lets `policy` draft one step and choose the draft tokens to verify, without an engine. `confidence(i, j)` is the
/// confidence of draft token j (from 0) of request i.
fn by_hand(policy: &mut Running, batch: &Batch, confidence: impl Fn(usize, usize) -> f64) -> Drafts {
    let n = batch.ids.len();
    let mut plan = DraftPlan { draft_len: vec![0; n], ..DraftPlan::default() };
    policy.propose(&batch.view(), &mut plan);
    let mut drafts = Drafts::default();
    drafts.reset(n, 8);
    for k in 1..=plan.draft_len.iter().copied().max().unwrap_or(0) {
        for i in (0..n).filter(|&i| batch.limit[i] >= k) {
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
    drafts
}

#[test]
fn its_own_estimate_is_that_of_what_it_decided() {
    let confidence = |i: usize, j: usize| 0.95 - 0.2 * i as f64 - 0.03 * j as f64;
    let exact = |i: usize, j: usize| confidence(i, j);
    let mut context = CONTEXT;
    context.belief.target.gamma_s = 1e-3;
    let mut batch = Batch::new(&[100, 300, 50], &[8, 3, 8]);
    for (verifier, slo_s) in [(true, f64::INFINITY), (false, f64::INFINITY), (true, 1e-3), (false, 0.016)] {
        batch.slo_tpot_s = vec![slo_s; 3];
        let mut policy = Running::new(adaspec(Drafter::Paper, verifier, SloMode::Step), &context);
        policy.explain();
        let made = by_hand(&mut policy, &batch, confidence);
        let plain = plain_estimate(&context.belief, &batch, &made.draft_len, &made.verify_len, &exact, SloMode::Step);
        assert!(close(policy.explain().estimate.expect("it has one"), plain), "{plain}");
        // `explain` returns the throughputs that the policy compared: for each draft pass, the throughput predicted
        // before it and the throughput estimated after it; then, for each draft token that the verifier tried to drop,
        // the throughput without it.
        let weighed = policy.explain().candidates;
        assert_eq!(weighed[0].what, "1 tokens a request, predicted");
        assert_eq!(weighed.iter().any(|c| c.what.starts_with("without")), verifier && made.passes > 0);
        assert_eq!(slo_s == 1e-3, made.passes == 0);
    }
    // With `Drafter::Off` the policy drafts although the step exceeds the TPOT limit. Without a verifier it reads no
    // confidences and has no estimated throughput. With a verifier this estimate is −1.
    batch.slo_tpot_s = vec![1e-3; 3];
    let mut policy = Running::new(adaspec(Drafter::Off, false, SloMode::Step), &context);
    by_hand(&mut policy, &batch, confidence);
    assert_eq!(policy.explain().estimate, None, "nothing is looked at");
    let mut policy = Running::new(adaspec(Drafter::Off, true, SloMode::Step), &context);
    by_hand(&mut policy, &batch, confidence);
    assert_eq!(policy.explain().estimate, Some(-1.0));
}

fn even(confidence: f64) -> impl Fn(usize, usize) -> f64 {
    move |_, _| confidence
}

#[test]
fn without_an_slo_one_token_is_always_drafted() {
    // Confidences are low and the draft model is expensive. Alg. 1 of AdaSpec starts from the throughput −1 and never
    // compares with not drafting, so it drafts one token.
    let mut context = CONTEXT;
    context.belief.draft.delta_s = 1.0;
    let batch = Batch::new(&[100; 3], &[8; 3]);
    let minus = adaspec(Drafter::Paper, false, SloMode::Step);
    assert_eq!(Run::of(&minus, &context).step(&batch, even(0.01), &[0; 3]).draft_len, [1; 3]);
}

#[test]
fn the_slo_switches_speculation_off_and_is_not_asked_of_plain_steps() {
    let params = adaspec(Drafter::Paper, true, SloMode::Step);
    let mut batch = Batch::new(&[100; 4], &[8; 4]);
    let drafted = |batch: &Batch| Run::of(&params, &CONTEXT).step(batch, even(0.9), &[8; 4]).draft_len[0];
    let free = drafted(&batch);
    assert!(free > 2);
    // The TPOT limit of one request is the time of a step with two draft passes.
    let view = batch.view();
    let two = CONTEXT.belief.step_s(&view, &[2; 4], &[2; 4]);
    batch.slo_tpot_s[2] = two * (1.0 + 1e-12);
    assert_eq!(drafted(&batch), 2);
    // If one request has a TPOT limit of 1 ms, not even a step without draft tokens is within the limit. Nothing is
    // drafted, but the step runs.
    batch.slo_tpot_s[2] = 1e-3;
    assert_eq!(drafted(&batch), 0);
}

#[test]
fn expected_mode_lets_a_longer_step_pass_when_it_brings_more() {
    let mut batch = Batch::new(&[100; 4], &[8; 4]);
    let plain = CONTEXT.belief.step_s(&batch.view(), &[0; 4], &[0; 4]);
    batch.slo_tpot_s = vec![plain; 4];
    let drafted = |slo| {
        let params = adaspec(Drafter::Paper, false, slo);
        Run::of(&params, &CONTEXT).step(&batch, even(0.95), &[8; 4]).draft_len[0]
    };
    assert_eq!(drafted(SloMode::Step), 0);
    assert!(drafted(SloMode::Expected) > 0);
}

#[test]
fn the_expected_confidence_is_the_mean_of_all_drafted_so_far() {
    let batch = Batch::new(&[100; 2], &[8; 2]);
    let mut running = Running::new(Adaspec::default(), &CONTEXT);
    let mut drafts = Drafts::default();
    drafts.reset(2, 8);
    running.begin(&batch.view());
    for (i, j, c) in [(0, 0, 0.9), (1, 0, 0.5), (0, 1, 0.8), (1, 1, 0.4)] {
        drafts.set_confidence(i, j, c);
    }
    drafts.draft_len = vec![2, 2];
    drafts.verify_len = vec![2, 2];
    drafts.passes = 2;
    running.take_in(&batch.view(), &drafts);
    assert_eq!(running.expected.value(), 0.6, "constant during the step");
    // Draft tokens that `select` drops before verification still enter the mean confidence `expected`, because they
    // were drafted.
    running.select(&batch.view(), &mut drafts);
    let seen = |drafts, drafted| StepOutcome { drafted, ..crate::testing::outcome(drafts, &[1, 1], &[1, 0]) };
    running.observe(&seen(&drafts, &[2, 2]));
    assert!((running.expected.value() - 2.6 / 4.0).abs() < 1e-7, "{}", running.expected.value());
    running.observe(&seen(&drafts, &[0, 0]));
    assert!((running.expected.value() - 2.6 / 4.0).abs() < 1e-7, "nothing new was seen");
}

#[test]
fn bad_settings_are_named() {
    for (params, key) in [
        (Adaspec { prev_confidence: -0.1, ..Adaspec::default() }, "prev_confidence"),
        (Adaspec { prev_confidence: f64::NAN, ..Adaspec::default() }, "prev_confidence"),
        (Adaspec { window: Some(0), ..Adaspec::default() }, "window"),
        (Adaspec { cap: 33, ..Adaspec::default() }, "cap"),
    ] {
        assert_eq!(params.check().map_err(|e| e.key), Err(key));
    }
}
