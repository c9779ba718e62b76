//! Compares how often draft tokens are right in a simulation with theory, through the public interface (docs/model.md
//! 13). Tests of single acceptance sources are in the sources' own files.

use foretoken_sim::acceptance::{AcceptanceSpec, Beta, Mixture, Rates};
use foretoken_sim::{AcceptanceSource, Recording, Request, RequestTruth, Time, TruthRow, Workload};

const SEED: u64 = 11;

fn request(id: u32, output_len: u32) -> RequestTruth {
    RequestTruth { id, prompt_len: 0, output_len, category: 0, recording: None }
}

fn source(source: Rates) -> Box<dyn AcceptanceSource> {
    AcceptanceSpec { source, ..AcceptanceSpec::default() }.build(SEED, &Workload::default()).unwrap()
}

/// For each of the first `output_len` output positions of a request: whether the draft token at this position is right,
/// if it is drafted at depth `depth` (after `depth` other draft tokens of the same step).
fn bits(source: &dyn AcceptanceSource, request: RequestTruth, depth: u32) -> Vec<bool> {
    let mut row = TruthRow::default();
    source.start(request, 0, &mut row);
    (0..request.output_len).map(|n| row.right(n, depth)).collect()
}

fn share(bits: &[bool]) -> f64 {
    bits.iter().filter(|&&b| b).count() as f64 / bits.len() as f64
}

/// Four standard errors of a proportion `p` over `n` independent draws.
fn four_errors(p: f64, n: usize) -> f64 {
    4.0 * (p * (1.0 - p) / n as f64).sqrt() + 1e-12
}

#[test]
fn truth_ends_where_the_drafts_can_no_longer_reach() {
    let mut row = TruthRow::default();
    source(Rates::Constant { rate: 1.0 }).start(request(0, 61), 8, &mut row);
    assert_eq!((0..200).filter(|&n| row.right(n, 0)).count(), 69);
    // The buffer `row` still holds the bits of a longer request. When it is filled for a shorter request, none of these
    // bits may stay.
    source(Rates::Constant { rate: 1.0 }).start(request(1, 5), 2, &mut row);
    assert_eq!((0..200).filter(|&n| row.right(n, 0)).count(), 7);
}

/// With acceptance rate a and k draft tokens in a step, the expected number of accepted draft tokens is a + a² + … +
/// a^k (Leviathan et al. 2023, Eq. 1 without the bonus token).
#[test]
fn rounds_accept_what_the_geometric_series_says() {
    for (rate, k) in [(0.6, 3u32), (0.8, 4), (0.9, 8)] {
        let mut row = TruthRow::default();
        source(Rates::Constant { rate }).start(request(2, 900_000), k, &mut row);
        let (mut n, mut runs) = (0, Vec::new());
        while n < 900_000 {
            let run = row.run(n, k);
            runs.push(f64::from(run));
            n += run + 1;
        }
        let count = runs.len() as f64;
        let mean = runs.iter().sum::<f64>() / count;
        let variance = runs.iter().map(|r| (r - mean).powi(2)).sum::<f64>() / (count - 1.0);
        let expected: f64 = (1..=k as i32).map(|j| rate.powi(j)).sum();
        assert!((mean - expected).abs() < 4.0 * (variance / count).sqrt(), "a {rate}, k {k}: {mean} vs {expected}");
    }
}

#[test]
fn requests_differ_as_their_beta_law_says() {
    let (a, b, n) = (8.0, 5.7, 4000);
    let law = Mixture { all: Beta { a, b }, categories: Default::default(), autocorrelation: 0.0 };
    let mixture = source(Rates::Mixture(law));
    let shares: Vec<f64> = (0..n).map(|id| share(&bits(&*mixture, request(id, 2000), 0))).collect();
    let mean = shares.iter().sum::<f64>() / f64::from(n);
    let variance = shares.iter().map(|s| (s - mean).powi(2)).sum::<f64>() / f64::from(n - 1);
    let expected = a / (a + b);
    // The variance over requests of the share of right draft tokens is Var(rate) + E[rate (1 - rate)] / positions.
    // `rate` is a request's own acceptance rate, and 2000 positions are drawn for each request.
    let rate_variance = a * b / ((a + b) * (a + b) * (a + b + 1.0));
    let expected_variance = rate_variance + (expected * (1.0 - expected) - rate_variance) / 2000.0;
    assert!((mean - expected).abs() < 4.0 * (variance / f64::from(n)).sqrt(), "{mean} against {expected}");
    // The relative standard error of the variance over n requests is about sqrt(2/n), because the shares are nearly
    // normally distributed.
    assert!((variance / expected_variance - 1.0).abs() < 4.0 * (2.0 / f64::from(n)).sqrt(), "{variance}");
}

#[test]
fn categories_have_laws_of_their_own() {
    let workload =
        Workload { categories: vec!["qa".into(), "translation".into(), "other".into()], ..Default::default() };
    let built = AcceptanceSpec::default().build(SEED, &workload).unwrap();
    let mean = |category| {
        let all = (0..3000).flat_map(|id| bits(&*built, RequestTruth { category, ..request(id, 64) }, 0));
        share(&all.collect::<Vec<_>>())
    };
    for (category, a, b) in [(0, 12.1, 9.4), (1, 16.1, 29.8), (2, 8.0, 5.7)] {
        assert!((mean(category) - a / (a + b)).abs() < 0.015, "category {category}: {}", mean(category));
    }
}

/// A workload with one request for each recording.
fn recorded(recordings: Vec<Recording>) -> Workload {
    let mut workload: Workload = (0..recordings.len() as u32)
        .map(|i| Request { recording: Some(i), ..Request::new(Time::ZERO, 1, 8) })
        .collect();
    workload.recordings = recordings;
    workload
}

const RECORDED: fn() -> Rates = || serde_json::from_str(r#"{"recorded": {}}"#).unwrap();

#[test]
fn recordings_are_replayed_and_end_wrong() {
    let known = [true, false, true, true, false].map(Some).to_vec();
    let workload = recorded(vec![Recording { accepted_before: vec![0; 5], bits: known, ..Recording::default() }]);
    let spec = AcceptanceSpec { source: RECORDED(), ..AcceptanceSpec::default() };
    let built = spec.build(SEED, &workload).unwrap();
    let got = bits(&*built, RequestTruth { recording: Some(0), ..request(0, 8) }, 0);
    assert_eq!(got, [true, false, true, true, false, false, false, false]);
}

/// A recording of five positions, with a rank and a confidence at each position. The draft tokens at positions 0 and 2
/// are right.
fn with_ranks() -> Recording {
    let ranks = vec![1, 4, 1, 255, 2];
    Recording {
        bits: ranks.iter().map(|&r| Some(r == 1)).collect(),
        accepted_before: vec![0; 5],
        confidences: vec![0.9, 0.25, 0.75, 0.125, 0.5],
        ranks,
        ..Recording::default()
    }
}

#[test]
fn recorded_ranks_and_confidences_come_out_where_they_were_put_in() {
    let workload = recorded(vec![with_ranks()]);
    let spec = AcceptanceSpec { source: RECORDED(), ..AcceptanceSpec::default() };
    let built = spec.build(SEED, &workload).unwrap();
    let r = RequestTruth { recording: Some(0), ..request(0, 5) };
    // The recorded confidence of a position does not depend on `start`, the position of the round's first draft token,
    // nor on whether the draft token is right.
    for (n, confidence) in (0..).zip([0.9, 0.25, 0.75, 0.125, 0.5]) {
        for start in 0..=n {
            for right in [true, false] {
                assert_eq!(built.confidence(r, start, n - start, Some(right), 0), confidence, "position {n}");
            }
        }
    }
    assert_eq!([1, 3, 4].map(|n| built.rank_if_wrong(r, n)), [4, 255, 2]);
    // Nothing was recorded off the target's path (after a wrong draft token) or beyond the recording's end. For such
    // draft tokens the confidence model gives the value.
    let plain = recorded(vec![Recording { ranks: vec![], confidences: vec![], ..with_ranks() }]);
    let modelled = spec.build(SEED, &plain).unwrap();
    for (depth, right, path) in [(0, None, 7), (2, None, 0), (5, Some(false), 0)] {
        let confidence = |source: &dyn AcceptanceSource| source.confidence(r, 0, depth, right, path);
        assert_eq!(confidence(&*built), confidence(&*modelled));
    }
    assert_eq!(built.rank_if_wrong(r, 5), modelled.rank_if_wrong(r, 5));
}

#[test]
fn a_table_that_wraps_begins_again_at_output_position_1() {
    let workload = recorded(vec![with_ranks()]);
    let build = |beyond: &str| {
        let source = format!(r#"{{"table": {{"path": "t", "beyond": "{beyond}"}}}}"#);
        let spec = AcceptanceSpec { source: serde_json::from_str(&source).unwrap(), ..AcceptanceSpec::default() };
        spec.build(SEED, &workload).unwrap()
    };
    let r = RequestTruth { recording: Some(0), ..request(0, 10) };
    let (wrapped, ended) = (build("wrap"), build("refuse"));
    let f = false;
    assert_eq!(bits(&*wrapped, r, 0), [true, f, true, f, f, f, true, f, f, f]);
    assert_eq!(bits(&*ended, r, 0), [true, f, true, f, f, f, f, f, f, f]);
    assert_eq!(wrapped.confidence(r, 3, 3, Some(true), 0), 0.75, "position 6 is position 2 again");
    assert_eq!(wrapped.rank_if_wrong(r, 9), 4);
}

#[test]
fn unknown_bits_are_drawn_once_with_the_hazard_of_what_was_accepted_before() {
    let pooled = [0.572, 0.641, 0.705, 0.753, 0.802, 0.833, 0.851, 0.878];
    let n = 40_000;
    // The eighth and last hazard (probability that the next draft token is right) holds after 7 accepted draft tokens
    // of a step and after any larger number, here 12.
    for accepted in [0u8, 3, 7, 12] {
        let unknown = Recording { bits: vec![None; n], accepted_before: vec![accepted; n], ..Recording::default() };
        let workload = recorded(vec![unknown.clone(), unknown]);
        let spec = AcceptanceSpec { source: RECORDED(), ..AcceptanceSpec::default() };
        let built = spec.build(SEED, &workload).unwrap();
        let recorded_request = |id| RequestTruth { recording: Some(id), ..request(id, n as u32) };
        let (first, second) = (bits(&*built, recorded_request(0), 0), bits(&*built, recorded_request(1), 0));
        let expected = pooled[usize::from(accepted).min(7)];
        assert!((share(&first) - expected).abs() < four_errors(expected, n), "{accepted}: {}", share(&first));
        assert_eq!(first, bits(&*built, recorded_request(0), 0), "drawn once");
        assert_ne!(first, second, "every request has draws of its own");
    }
}
