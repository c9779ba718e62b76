//! Tests of `posterior.rs`, which predicts the survival of draft tokens (the probability that a token and all before it
//! are accepted). The prediction is calibrated for every acceptance source with a law (known probabilities of
//! acceptance). After three steps of a request, the prediction equals a sum over all cases of right and wrong draft
//! tokens.

use super::*;
use crate::testing::outcome;
use foretoken_sim::acceptance::{
    AcceptanceSpec, Beta, Confidence, Curve, Misfit, Mixture, PromptLookup, Rates, TruthRow, Truths,
};
use foretoken_sim::{AcceptanceSource, Drafts, Workload};

const OUTPUT: u32 = 400;
const LONGEST: u32 = 6;

fn request(id: RequestId) -> RequestTruth {
    RequestTruth { id, prompt_len: 300, output_len: OUTPUT, category: 0, recording: None }
}

fn source(rates: Rates, confidence: Confidence) -> Box<dyn AcceptanceSource> {
    let spec = AcceptanceSpec { source: rates, confidence, ..AcceptanceSpec::default() };
    spec.build(7, &Workload::default()).expect("a source without recordings")
}

/// Simulates `requests` requests with varying numbers of drafted and verified tokens. Returns (predicted survival,
/// whether the token survives) for `LONGEST` draft tokens of every step in which a request can draft. A token survives
/// if it and all before it are accepted.
fn predictions(source: &dyn AcceptanceSource, requests: u32, confidences: bool) -> Vec<(f64, bool)> {
    let law = source.law().expect("it has a law");
    let mut truths = Truths::new(source, LONGEST, requests as usize);
    let mut posteriors = Posteriors::default();
    let mut all = Vec::new();
    for id in 0..requests {
        truths.start(request(id));
        let mut row = TruthRow::default();
        source.start(request(id), LONGEST, &mut row);
        let hidden = Hidden::new(source, &truths);
        let (mut start, mut round) = (1, 0);
        while start + LONGEST < OUTPUT {
            // Draft lengths differ from step to step, so that all numbers of accepted and rejected draft tokens occur.
            // Some draft tokens are not verified.
            let drafted = if row.matched(start) { round % (LONGEST + 1) } else { 0 };
            let verified = drafted.min(4);
            round += 1;
            let mut survival = [0.0; LONGEST as usize];
            posteriors.survival(hidden, law, id, start, confidences, &mut survival);
            let run = row.run(start, LONGEST);
            let tokens = if row.matched(start) { LONGEST as usize } else { 0 };
            all.extend(survival[..tokens].iter().enumerate().map(|(depth, &s)| (s, run > depth as u32)));
            posteriors.propose(id, start, drafted);
            let accepted = run.min(verified);
            let (drafts, verified, accepted) = (Drafts::default(), [verified], [accepted]);
            posteriors.observe(&StepOutcome {
                ids: &[id],
                drafted: &[drafted],
                ..outcome(&drafts, &verified, &accepted)
            });
            start += accepted[0] + 1;
        }
        posteriors.end(id);
    }
    all
}

/// Asserts for each of ten bins of predicted survival (the probability that a draft token and all before it are
/// accepted) that as many tokens survive as predicted, within five standard errors.
fn assert_calibrated(name: &str, predictions: &[(f64, bool)]) {
    for bin in 0..10 {
        let of_bin = |p: f64| (p * 10.0) as usize == bin || bin == 9 && p >= 1.0;
        let (mut n, mut expected, mut variance, mut survived) = (0.0, 0.0, 0.0, 0.0);
        for &(p, right) in predictions.iter().filter(|(p, _)| of_bin(*p)) {
            n += 1.0;
            expected += p;
            variance += p * (1.0 - p);
            survived += f64::from(u8::from(right));
        }
        // Draft tokens of one step depend on each other. The variance of their sum is at most LONGEST times the sum of
        // their variances. The distributions of confidences come from tables, whose probabilities may be wrong by
        // 0.003.
        let tolerance = 5.0 * (variance * f64::from(LONGEST)).sqrt() + 0.003 * n;
        assert!((survived - expected).abs() <= tolerance, "{name}, bin {bin}: {survived} of {n}, {expected} expected");
    }
}

fn laws() -> Vec<(&'static str, Rates)> {
    let beta = |a, b| Mixture { all: Beta { a, b }, categories: Default::default(), autocorrelation: 0.3 };
    vec![
        ("constant", Rates::Constant { rate: 0.7 }),
        ("by-depth", Rates::ByDepth { rates: vec![0.8, 0.7, 0.6] }),
        ("by-position", Rates::ByPosition { rates: vec![0.9, 0.4, 0.6], span: 50 }),
        ("by-context", Rates::ByContext { points: vec![(0, 0.9), (600, 0.5)] }),
        ("mixture", Rates::Mixture(Mixture::default())),
        ("wide mixture", Rates::Mixture(beta(1.2, 0.8))),
        ("narrow mixture", Rates::Mixture(beta(60.0, 40.0))),
        ("prompt-lookup", Rates::PromptLookup(PromptLookup::default())),
    ]
}

#[test]
fn survival_is_calibrated_for_every_law() {
    let wrong = Confidence {
        curve: Curve { slope: 0.8, intercepts: vec![-0.3, -0.6] },
        misfit: Misfit { scale: 0.7, shift: 0.9 },
        ..Confidence::default()
    };
    for (name, rates) in laws() {
        for (confidences, confidence) in
            [(false, Confidence::default()), (true, Confidence::default()), (true, wrong.clone())]
        {
            let source = source(rates.clone(), confidence);
            let predictions = predictions(&*source, 150, confidences);
            assert!(predictions.len() > 10_000, "{name}: {} tokens", predictions.len());
            assert_calibrated(name, &predictions);
        }
    }
}

/// A policy that knows more predicts the survival of draft tokens better (the probability that a token and all before
/// it are accepted): the mean squared error falls from `knows-rates` to `knows-confidences`.
#[test]
fn more_knowledge_predicts_better() {
    let error = |all: &[(f64, bool)]| {
        all.iter().map(|&(p, right)| (p - f64::from(u8::from(right))).powi(2)).sum::<f64>() / all.len() as f64
    };
    let source = source(Rates::Mixture(Mixture::default()), Confidence::default());
    let (rates, confidences) = (predictions(&*source, 100, false), predictions(&*source, 100, true));
    assert_eq!(rates.len(), confidences.len());
    assert!(error(&confidences) < 0.8 * error(&rates), "{} against {}", error(&confidences), error(&rates));
}

/// After three steps of a request with a hidden acceptance rate, the survival of the next two draft tokens (the
/// probability that a token and all before it are accepted) equals a second computation. The second computation is a
/// sum over all rates, and over both cases, right and wrong, at each output position where it is unknown whether a
/// draft token is right.
#[test]
fn the_filter_equals_a_sum_over_all_bits() {
    let mixture = Mixture { all: Beta { a: 2.0, b: 3.0 }, categories: Default::default(), autocorrelation: 0.4 };
    // Confidences carry no information here, so that only accepted and rejected draft tokens count.
    let blank = Confidence { misfit: Misfit { scale: 0.0, shift: 0.0 }, ..Confidence::default() };
    let source = source(Rates::Mixture(mixture), blank);
    let law = source.law().expect("a mixture has a law");
    let mut truths = Truths::new(&*source, LONGEST, 1);
    truths.start(request(0));
    let hidden = Hidden::new(&*source, &truths);
    let mut posteriors = Posteriors::default();
    // Position 1: one draft token, rejected. Positions 2 and 3: two draft tokens, both accepted; position 4 is the
    // target's own. Position 5: none drafted. The draft tokens of the next step start at position 6.
    let rounds: [(u32, u32, u32); 3] = [(1, 1, 0), (2, 2, 2), (5, 0, 0)];
    let mut survival = [0.0; 2];
    for (start, drafted, accepted) in rounds {
        posteriors.survival(hidden, law, 0, start, false, &mut survival);
        posteriors.propose(0, start, drafted);
        let (drafts, drafted, accepted) = (Drafts::default(), [drafted], [accepted]);
        posteriors.observe(&StepOutcome { ids: &[0], ..outcome(&drafts, &drafted, &accepted) });
    }
    posteriors.survival(hidden, law, 0, 6, true, &mut survival);
    let mut weights = Vec::new();
    law.prior(request(0), &mut weights);
    let known = [None, Some(false), Some(true), Some(true), None, None];
    let (mut all, mut first, mut both) = (0.0, 0.0, 0.0);
    for (h, weight) in weights.iter().enumerate() {
        for bits in 0u32..256 {
            let bit = |n: usize| bits >> n & 1 == 1;
            if known.iter().enumerate().any(|(n, known)| known.is_some_and(|k| k != bit(n))) {
                continue;
            }
            let rate = law.confidence_rate(request(0), h, 0, 0);
            let mut probability = weight * if bit(0) { rate } else { 1.0 - rate };
            for n in 1..8 {
                let right = 0.4 * f64::from(u8::from(bit(n - 1))) + 0.6 * rate;
                probability *= if bit(n) { right } else { 1.0 - right };
            }
            all += probability;
            first += if bit(6) { probability } else { 0.0 };
            both += if bit(6) && bit(7) { probability } else { 0.0 };
        }
    }
    assert!((survival[0] - first / all).abs() < 1e-9, "{} and {}", survival[0], first / all);
    assert!((survival[1] - both / all).abs() < 1e-9, "{} and {}", survival[1], both / all);
}

#[test]
fn recordings_have_no_law() {
    let workload = Workload::default();
    let spec = AcceptanceSpec { source: Rates::Recorded { hazards: vec![0.5] }, ..AcceptanceSpec::default() };
    assert!(spec.build(1, &workload).expect("no request lacks a recording").law().is_none());
}
