//! Compares the acceptance sources with theory: rates, correlation, hazards, and the probabilities that policies see.
//! Also tests that equal arguments give equal draws, and that bad settings are refused. Calibration and recordings are
//! tested in `tests/truth`.

use super::*;
use crate::drafts::Shown;
use crate::time::Time;
use crate::workload::{Request, Workload};
use std::collections::BTreeMap;

const POSITIONS: u32 = 300;

fn source(rates: Rates) -> Box<dyn AcceptanceSource> {
    build(AcceptanceSpec { source: rates, ..AcceptanceSpec::default() })
}

fn build(spec: AcceptanceSpec) -> Box<dyn AcceptanceSource> {
    spec.build(5, &Workload::default()).unwrap()
}

fn request(id: u32) -> RequestTruth {
    RequestTruth { id, prompt_len: 0, output_len: POSITIONS - 8, category: 0, recording: None }
}

/// For each of `n` requests: which draft tokens are right as the first draft token of a round, by output position.
fn bits(source: &dyn AcceptanceSource, n: u32) -> Vec<Vec<bool>> {
    let mut row = TruthRow::default();
    let bits_of = |id| {
        source.start(request(id), 8, &mut row);
        (0..POSITIONS).map(|p| row.right(p, 0)).collect()
    };
    (0..n).map(bits_of).collect()
}

fn share(bits: impl Iterator<Item = bool> + Clone) -> f64 {
    bits.clone().filter(|&b| b).count() as f64 / bits.count() as f64
}

fn one_law(a: f64, b: f64, autocorrelation: f64) -> Rates {
    Rates::Mixture(Mixture { all: Beta { a, b }, categories: BTreeMap::new(), autocorrelation })
}

/// Policies may see probabilities in place of confidences ([`Shown`]). The test compares, in each tenth of [0, 1] with
/// over 1000 tokens, the mean probability that a policy sees with the share of right tokens. It does so for the first
/// and for later draft tokens of a round, and for confidences that are true, over-confident or without information.
#[test]
fn chances_are_the_shares_of_right_tokens() {
    for misfit in [Misfit::default(), Misfit { scale: 2.0, shift: 1.0 }, Misfit { scale: 0.0, shift: 0.3 }] {
        for shown in [Shown::Calibrated, Shown::OwnRate] {
            // If neighbouring draft tokens are correlated, only `Shown::OwnRate` is calibrated. So only this case has a
            // correlation.
            let autocorrelation = if shown == Shown::OwnRate { 0.4 } else { 0.0 };
            let confidence = Confidence { misfit, ..Confidence::default() };
            let source =
                build(AcceptanceSpec { source: one_law(8.0, 5.7, autocorrelation), confidence, ..Default::default() });
            let law = source.law().unwrap();
            // Sums in 2 · 10 groups. The first index is 0 for the first draft token of a round and 1 for all later
            // ones, the second index is the tenth of [0, 1] of the shown probability. Each entry has the number of
            // tokens, the sum of the shown probabilities, and the number of right tokens.
            let mut tenths = [[(0u32, 0.0, 0u32); 10]; 2];
            let mut row = TruthRow::default();
            for id in 0..2000 {
                source.start(request(id), 8, &mut row);
                for start in (1..POSITIONS - 8).step_by(9) {
                    for depth in 0..4 {
                        let right = row.right(start + depth, depth);
                        let c = source.confidence(request(id), start, depth, Some(right), 0);
                        let chance = law.chance(request(id), start + depth, depth, c.into(), shown);
                        let tenth = &mut tenths[usize::from(depth > 0)][((chance * 10.0) as usize).min(9)];
                        *tenth = (tenth.0 + 1, tenth.1 + chance, tenth.2 + u32::from(right));
                        if !right {
                            break;
                        }
                    }
                }
            }
            for (n, sum, right) in tenths.into_iter().flatten().filter(|tenth| tenth.0 > 1000) {
                let (chance, share) = (sum / f64::from(n), f64::from(right) / f64::from(n));
                assert!((chance - share).abs() < 0.02, "{misfit:?} {shown:?}: {share} for {chance}, {n} tokens");
            }
        }
    }
}

#[test]
fn bits_have_the_rates_of_the_settings() {
    for rate in [0.0, 0.1, 0.7, 1.0] {
        let x = bits(&*source(Rates::Constant { rate }), 1000);
        let got = share(x.iter().flatten().copied());
        assert!((got - rate).abs() <= 4.0 * (rate * (1.0 - rate) / 3e5).sqrt(), "{got} for {rate}");
    }
    let x = bits(&*source(Rates::ByPosition { rates: vec![0.9, 0.2], span: 10 }), 4000);
    let at = |p: usize| share(x.iter().map(|r| r[p]));
    for (p, rate) in [(0, 0.9), (9, 0.9), (10, 0.2), (250, 0.2)] {
        assert!((at(p) - rate).abs() < 0.03, "position {p}: {}", at(p));
    }
}

/// With `by-context`, the acceptance rate depends on the number of tokens before the draft token, prompt and output
/// together. Between two points of the setting the rate is interpolated linearly.
#[test]
fn a_rate_by_context_follows_prompt_and_output() {
    let points = vec![(1000, 0.9), (2000, 0.5), (4000, 0.5)];
    let source = source(Rates::ByContext { points });
    let mut row = TruthRow::default();
    let share_at = |prompt_len: u32, position: u32, row: &mut TruthRow| {
        let right = (0..4000).filter(|&id| {
            source.start(RequestTruth { prompt_len, ..request(id) }, 1, row);
            row.run(position, 1) == 1
        });
        right.count() as f64 / 4000.0
    };
    // The rate is computed only at multiples of 64 output tokens, so position 200 has the rate of position 192.
    for (prompt, position, rate) in
        [(10, 0, 0.9), (1000, 0, 0.9), (1500, 0, 0.7), (1308, 200, 0.7), (2000, 63, 0.5), (90_000, 0, 0.5)]
    {
        let got = share_at(prompt, position, &mut row);
        assert!((got - rate).abs() < 0.03, "{prompt} + {position}: {got}, not {rate}");
    }
}

/// All depths share one uniform draw. So if the rates fall with the depth, a draft token that is right at a depth is
/// right at all smaller depths. The expected number of right draft tokens in a row is Σ Π a(depth).
#[test]
fn depths_share_their_draws() {
    let source = source(Rates::ByDepth { rates: vec![0.9, 0.6, 0.3] });
    let mut row = TruthRow::default();
    let (mut runs, mut n) = (0, 0);
    for id in 0..2000 {
        source.start(request(id), 8, &mut row);
        for p in 0..POSITIONS - 8 {
            assert!(!row.right(p, 2) || row.right(p, 1));
            assert!(!row.right(p, 1) || row.right(p, 0));
            assert_eq!(row.right(p, 5), row.right(p, 2));
            runs += row.run(p, 3);
            n += 1;
        }
    }
    let (mean, theory) = (f64::from(runs) / f64::from(n), 0.9 + 0.9 * 0.6 + 0.9 * 0.6 * 0.3);
    assert!((mean - theory).abs() < 0.01, "{mean} against {theory}");
}

/// Within a request, two draft tokens k positions apart are right or wrong with the correlation `autocorrelation` to
/// the power of k. The rate of right tokens does not change.
#[test]
fn autocorrelation_decays_geometrically() {
    // A Beta law of the requests' acceptance rates (mean 0.6) with nearly no spread, so that all requests have one
    // rate.
    let x = bits(&*source(one_law(6e5, 4e5, 0.3)), 2000);
    let rate = share(x.iter().flatten().copied());
    assert!((rate - 0.6).abs() < 0.005, "{rate}");
    for lag in 1..4usize {
        let pairs = || x.iter().flat_map(|r| r.iter().zip(&r[lag..]));
        let n = pairs().count() as f64;
        let centred = |b: bool| f64::from(u8::from(b)) - rate;
        let covariance = pairs().map(|(&a, &b)| centred(a) * centred(b)).sum::<f64>() / n;
        let correlation = covariance / (rate * (1.0 - rate));
        assert!((correlation - 0.3f64.powi(lag as i32)).abs() < 0.01, "lag {lag}: {correlation}");
    }
}

/// If requests have different rates, the conditional rate over all requests rises with depth although each request's
/// rate is constant. For Beta(a, b) the conditional rate at draft token i is (a + i − 1) / (a + b + i − 1).
#[test]
fn hazards_rise_with_depth() {
    let (a, b) = (8.0, 5.7);
    let source = source(one_law(a, b, 0.0));
    let mut row = TruthRow::default();
    let mut reached = [0u32; 9];
    for id in 0..20_000 {
        source.start(request(id), 8, &mut row);
        for p in (0..280).step_by(40) {
            let run = row.run(p, 8);
            (0..=run as usize).for_each(|d| reached[d] += 1);
        }
    }
    for i in 1..=8usize {
        let hazard = f64::from(reached[i]) / f64::from(reached[i - 1]);
        let theory = (a + i as f64 - 1.0) / (a + b + i as f64 - 1.0);
        assert!((hazard - theory).abs() < 0.02, "h{i}: {hazard} against {theory}");
    }
}

#[test]
fn bits_do_not_depend_on_confidences_and_confidences_are_pure() {
    let rates = one_law(8.0, 5.7, 0.078);
    let plain =
        build(AcceptanceSpec { source: rates.clone(), confidence: Confidence::default(), ..AcceptanceSpec::default() });
    let other = build(AcceptanceSpec {
        source: rates,
        confidence: Confidence {
            curve: Curve { slope: 2.0, intercepts: vec![1.0] },
            prior_sd: 1.0,
            misfit: Misfit { scale: 3.0, shift: 1.0 },
            ..Confidence::default()
        },
        ..AcceptanceSpec::default()
    });
    assert_eq!(bits(&*plain, 50), bits(&*other, 50));
    for (depth, right) in [(0, Some(true)), (3, Some(false)), (5, None)] {
        let c = plain.confidence(request(7), 20, depth, right, 0);
        assert_eq!(c, plain.confidence(request(7), 20, depth, right, 0));
        assert_ne!(c, other.confidence(request(7), 20, depth, right, 0));
    }
    // A confidence on the target's path depends on the token's position. A confidence after a wrong draft token (off
    // the path) depends on the round's start and the token's depth.
    let on = |start, depth| plain.confidence(request(7), start, depth, Some(true), 0);
    assert_eq!(on(20, 3), on(22, 1));
    let off = |start, depth| plain.confidence(request(7), start, depth, None, 0);
    assert_ne!(off(20, 3), off(22, 1));
}

/// `start` stores values in a request's `TruthRow`, from which a confidence can be drawn faster. The confidence is the
/// same, bit for bit, without these values. One `TruthRow` is filled by different sources in turn, as an engine reuses
/// rows.
#[test]
fn stored_rates_change_no_confidence() {
    let laws = [
        one_law(8.0, 5.7, 0.078),
        Rates::ByDepth { rates: vec![0.9, 0.6, 0.3] },
        one_law(0.5, 0.5, 0.0),
        Rates::Constant { rate: 0.7 },
    ];
    let sources = laws.map(source);
    let mut row = TruthRow::default();
    for id in 0..60 {
        for source in &sources {
            source.start(request(id), 8, &mut row);
            for (start, depth, right, path) in
                [(1, 0, Some(true), 0), (9, 3, Some(false), 0), (9, 4, None, 0), (9, 2, None, 7)]
            {
                let plain = source.confidence(request(id), start, depth, right, path);
                let stored = source.confidence_with(request(id), &row, start, depth, right, path);
                assert_eq!(plain.to_bits(), stored.to_bits());
            }
        }
    }
}

#[test]
fn bad_settings_name_their_key() {
    let fault = |source| AcceptanceSpec { source, ..AcceptanceSpec::default() }.check().unwrap_err().to_string();
    assert!(fault(Rates::Constant { rate: 1.2 }).starts_with("acceptance.source.constant.rate: 1.2"));
    assert!(fault(Rates::Constant { rate: f64::NAN }).contains("NaN"));
    assert!(fault(Rates::ByDepth { rates: vec![] }).contains("at least one"));
    assert!(fault(Rates::ByPosition { rates: vec![0.5], span: 0 }).contains("span"));
    let by_context = |points| fault(Rates::ByContext { points });
    assert!(by_context(vec![]).contains("at least one"));
    assert!(by_context(vec![(5, 0.5), (5, 0.4)]).contains("tokens must rise"));
    assert!(by_context(vec![(5, 1.5)]).starts_with("acceptance.source.by-context.points: 1.5"));
    assert!(fault(one_law(-1.0, 1.0, 0.0)).contains("mixture.all"));
    assert!(fault(one_law(1.0, 1.0, 1.0)).contains("autocorrelation"));
    let recorded = AcceptanceSpec { source: Rates::Recorded { hazards: vec![0.5] }, ..AcceptanceSpec::default() };
    let missing = recorded.build(3, &[Request::new(Time(0), 1, 1)].into_iter().collect());
    assert!(missing.err().unwrap().to_string().contains("request 0 has no recorded acceptance"));
    let mut spec = AcceptanceSpec::default();
    spec.confidence.prior_sd = 0.0;
    assert!(spec.check().unwrap_err().to_string().contains("prior_sd"));
}

/// For every Beta law of acceptance rates that passes the check of the settings, confidences can be drawn, and this is
/// quick.
#[test]
fn extreme_laws_of_rates_are_drawn_from_or_refused() {
    let extremes = [1e-320, 1e-30, 1e-3, 0.5, 1.0, 1e6, 1e30, 1e308, 0.0, -1.0, f64::NAN, f64::INFINITY];
    let mut drawn = 0;
    for (a, b) in extremes.iter().flat_map(|&a| extremes.iter().map(move |&b| (a, b))) {
        let spec = AcceptanceSpec { source: one_law(a, b, 0.1), ..AcceptanceSpec::default() };
        let Ok(source) = spec.build(1, &Workload::default()) else { continue };
        for id in 0..100 {
            let request = RequestTruth { id, prompt_len: 0, output_len: 64, category: 0, recording: None };
            let mut row = TruthRow::default();
            source.start(request, 4, &mut row);
            let confidence = source.confidence(request, 1, 0, Some(true), 0);
            assert!(confidence > 0.0 && confidence <= 1.0, "{a} {b}: {confidence}");
        }
        drawn += 1;
    }
    assert_eq!(drawn, 16, "of shapes from 0.001 to 1000000");
}
