//! Tests that P(right | confidence) of a draft token is the curve of the settings, for all acceptance sources without
//! lookups. Also tests that confidences never change which draft tokens are right (docs/model.md 13), and tests misfits
//! (errors of the confidences that policies see), tokens off the target's path, and extreme settings.

use foretoken_sim::acceptance::{AcceptanceSpec, Beta, Confidence, Curve, Misfit, Mixture, Rates};
use foretoken_sim::{AcceptanceSource, Recording, Request, RequestTruth, Time, TruthRow, Workload};

const SEED: u64 = 3;
const REQUESTS: u32 = 250;
const OUTPUT_LEN: u32 = 1000;
const MAX_DRAFT_LEN: u32 = 4;

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// A workload with recordings like those from a drafter with a fixed draft length of 3. If all 3 draft tokens of a step
/// are accepted, it is unknown whether a draft token at the next position would be right.
fn workload() -> Workload {
    let truth = AcceptanceSpec { source: Rates::Mixture(Mixture::default()), ..AcceptanceSpec::default() }
        .build(99, &Workload::default())
        .unwrap();
    let mut row = TruthRow::default();
    let mut workload: Workload =
        (0..REQUESTS).map(|i| Request { recording: Some(i), ..Request::new(Time::ZERO, 1, OUTPUT_LEN) }).collect();
    for id in 0..REQUESTS {
        truth.start(
            RequestTruth { id, prompt_len: 0, output_len: OUTPUT_LEN, category: 0, recording: None },
            8,
            &mut row,
        );
        let (mut bits, mut accepted_before, mut n) = (Vec::new(), Vec::new(), 0);
        while bits.len() < OUTPUT_LEN as usize {
            let run = row.run(n, 3);
            bits.extend((0..run).map(|_| Some(true)));
            // After three accepted draft tokens nothing was drafted at the next position.
            bits.push(if run == 3 { None } else { Some(false) });
            accepted_before.resize(bits.len() - 1, 0);
            accepted_before.push(if run == 3 { 3 } else { 0 });
            n += run + 1;
        }
        workload.recordings.push(Recording { bits, accepted_before, ..Recording::default() });
    }
    workload
}

/// One entry for each tenth of [0, 1]. A draft token belongs to the tenth of its P(right | confidence) by the curve of
/// the settings. An entry has the number of draft tokens, the sum of these probabilities, and the number of right draft
/// tokens.
type Bins = [(f64, f64, f64); 10];

/// Sorts draft tokens into bins by the P(right | confidence) that `curve` gives. If `on_path_only` is false, a draft
/// round begins at every position and only its first draft token is taken. If true, rounds follow one another, and of
/// each round all draft tokens up to the first wrong one are taken.
fn reliability(source: &dyn AcceptanceSource, curve: &Curve, on_path_only: bool) -> Bins {
    let mut bins = Bins::default();
    let mut row = TruthRow::default();
    for id in 0..REQUESTS {
        let request = RequestTruth { id, prompt_len: 0, output_len: OUTPUT_LEN, category: 0, recording: Some(id) };
        source.start(request, MAX_DRAFT_LEN, &mut row);
        let mut round_start = 1;
        while round_start < OUTPUT_LEN {
            let run = row.run(round_start, MAX_DRAFT_LEN);
            let looked_at = if on_path_only { (run + 1).min(MAX_DRAFT_LEN) } else { 1 };
            for depth in 0..looked_at {
                let right = row.right(round_start + depth, depth);
                let c = f64::from(source.confidence(request, round_start, depth, Some(right), 0));
                let intercept = curve.intercepts[(depth as usize).min(curve.intercepts.len() - 1)];
                let declared = sigmoid(curve.slope * (c / (1.0 - c)).ln() + intercept);
                let bin = &mut bins[((declared * 10.0) as usize).min(9)];
                *bin = (bin.0 + 1.0, bin.1 + declared, bin.2 + f64::from(u8::from(right)));
            }
            round_start += if on_path_only { run + 1 } else { 1 };
        }
    }
    bins
}

/// The largest difference between the mean probability by the curve and the share of right draft tokens, over the bins
/// with at least 5,000 draft tokens.
fn largest_gap(bins: &Bins) -> f64 {
    let enough = bins.iter().filter(|b| b.0 >= 5000.0);
    enough.map(|&(n, declared, right)| ((declared - right) / n).abs()).fold(0.0, f64::max)
}

fn sources() -> Vec<(&'static str, Rates)> {
    let mixture = |autocorrelation| {
        Rates::Mixture(Mixture { all: Beta { a: 8.0, b: 5.7 }, categories: Default::default(), autocorrelation })
    };
    vec![
        ("constant 0.2", Rates::Constant { rate: 0.2 }),
        ("constant 0.5", Rates::Constant { rate: 0.5 }),
        ("constant 0.8", Rates::Constant { rate: 0.8 }),
        ("constant 0.95", Rates::Constant { rate: 0.95 }),
        ("constant 0.999", Rates::Constant { rate: 0.999 }),
        ("by-context", Rates::ByContext { points: vec![(0, 0.9), (60, 0.3), (200, 0.6)] }),
        ("by-position", Rates::ByPosition { rates: vec![0.9, 0.3, 0.6], span: 100 }),
        ("by-depth", Rates::ByDepth { rates: vec![0.8, 0.7, 0.6, 0.4] }),
        ("mixture, independent", mixture(0.0)),
        ("mixture, measured", mixture(0.078)),
        ("recorded", serde_json::from_str(r#"{"recorded": {}}"#).unwrap()),
    ]
}

#[test]
fn drafts_are_right_as_often_as_the_curve_declares() {
    let workload = workload();
    let steep = Curve { slope: 0.83, intercepts: vec![-0.2, -0.5, -0.9] };
    for curve in [Curve::default(), steep] {
        for (name, source) in sources() {
            let confidence = Confidence { curve: curve.clone(), ..Confidence::default() };
            let built =
                AcceptanceSpec { source, confidence, ..AcceptanceSpec::default() }.build(SEED, &workload).unwrap();
            // The check runs once with a draft token at every position, and once with only the draft tokens that a
            // policy would make.
            for on_path in [false, true] {
                let gap = largest_gap(&reliability(&*built, &curve, on_path));
                assert!(gap < 0.02, "{name}, on path only {on_path}, slope {}: {gap}", curve.slope);
            }
        }
    }
}

#[test]
fn bits_never_depend_on_confidences() {
    let workload = workload();
    let other = Confidence {
        curve: Curve { slope: 0.44, intercepts: vec![-0.9, 0.3] },
        prior_sd: 1.0,
        misfit: Misfit { scale: 2.0, shift: -1.0 },
        ..Confidence::default()
    };
    for (name, source) in sources() {
        let with = |confidence| {
            AcceptanceSpec { source: source.clone(), confidence, ..AcceptanceSpec::default() }
                .build(SEED, &workload)
                .unwrap()
        };
        let (one, two) = (with(Confidence::default()), with(other.clone()));
        let (mut first, mut second) = (TruthRow::default(), TruthRow::default());
        for id in 0..20 {
            let request = RequestTruth { id, prompt_len: 0, output_len: OUTPUT_LEN, category: 0, recording: Some(id) };
            one.start(request, MAX_DRAFT_LEN, &mut first);
            two.start(request, MAX_DRAFT_LEN, &mut second);
            let same = |n| (0..4).all(|depth| first.right(n, depth) == second.right(n, depth));
            assert!((0..OUTPUT_LEN).all(same), "{name}");
        }
    }
}

#[test]
fn misfit_moves_what_is_seen_by_exactly_its_logit() {
    let seen = |misfit| {
        let confidence = Confidence { misfit, ..Confidence::default() };
        let source = Rates::Constant { rate: 0.6 };
        AcceptanceSpec { source, confidence, ..AcceptanceSpec::default() }.build(SEED, &Workload::default()).unwrap()
    };
    let (honest, bold) = (seen(Misfit::default()), seen(Misfit { scale: 1.5, shift: 0.25 }));
    let request = RequestTruth { id: 7, prompt_len: 0, output_len: OUTPUT_LEN, category: 0, recording: None };
    let logit = |c: f32| (f64::from(c) / (1.0 - f64::from(c))).ln();
    for n in 0..200 {
        let seen_logit = |source: &dyn AcceptanceSource| logit(source.confidence(request, n, 0, Some(n % 2 == 0), 0));
        // Logits beyond ±4 are not compared: an f32 close to 1 has too few digits there.
        if seen_logit(&*honest).abs() < 4.0 {
            assert!((seen_logit(&*bold) - (1.5 * seen_logit(&*honest) + 0.25)).abs() < 2e-3, "{n}");
        }
    }
}

/// Off the target's path (after a wrong draft token) no draft token is right. So the mean confidence there equals the
/// mean confidence of wrong draft tokens of the same request, and is below the mean confidence of right ones.
#[test]
fn off_path_looks_like_wrong() {
    let spec = AcceptanceSpec { source: Rates::Constant { rate: 0.7 }, ..AcceptanceSpec::default() };
    let source = spec.build(SEED, &Workload::default()).unwrap();
    let request = RequestTruth { id: 1, prompt_len: 0, output_len: 30_000, category: 0, recording: None };
    let mean =
        |right| (0..30_000).map(|n| f64::from(source.confidence(request, n, 2, right, 0))).sum::<f64>() / 30_000.0;
    let (right, wrong, off) = (mean(Some(true)), mean(Some(false)), mean(None));
    // The tolerance is four standard errors. The standard deviation of a confidence is at most one half.
    assert!((off - wrong).abs() < 4.0 * 0.5 * (2.0f64 / 30_000.0).sqrt(), "{off} against {wrong}");
    assert!(right > wrong + 0.1, "{right} against {wrong}");
}

#[test]
fn confidences_are_pure_and_stay_in_their_range() {
    let extreme = Confidence {
        curve: Curve { slope: 0.05, intercepts: vec![40.0, -40.0] },
        prior_sd: 20.0,
        misfit: Misfit { scale: 5.0, shift: 0.0 },
        ..Confidence::default()
    };
    for confidence in [Confidence::default(), extreme] {
        for rate in [0.0, 1e-9, 0.5, 1.0] {
            let source = Rates::Constant { rate };
            let source = AcceptanceSpec { source, confidence: confidence.clone(), ..AcceptanceSpec::default() };
            let source = source.build(SEED, &Workload::default()).unwrap();
            let request = RequestTruth { id: 2, prompt_len: 0, output_len: 100, category: 0, recording: None };
            for (n, right) in (0..300).map(|n| (n, [None, Some(false), Some(true)][n as usize % 3])) {
                let c = source.confidence(request, n, n % 5, right, 0);
                assert!(c > 0.0 && c <= 1.0, "rate {rate}: {c}");
                assert_eq!(c, source.confidence(request, n, n % 5, right, 0));
            }
        }
    }
}
