//! The truth of a request against theory: rates, correlations, recordings and purity (policies.md 13).

use foretoken_sim::acceptance::{AcceptanceSpec, Beta, Mixture, Rates};
use foretoken_sim::luck::{Luck, threshold};
use foretoken_sim::{AcceptanceSource, Recording, Request, RequestTruth, Stream, Time, TruthRow, Workload};

const SEED: u64 = 11;

fn request(id: u32, output_len: u32) -> RequestTruth {
    RequestTruth { id, output_len, category: 0, recording: None }
}

fn source(source: Rates) -> Box<dyn AcceptanceSource> {
    AcceptanceSpec { source, ..AcceptanceSpec::default() }.build(SEED, &Workload::default()).unwrap()
}

/// The first `output_len` bits of a request at `depth`.
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

/// Autocorrelation at `lag` of bits whose mean is known.
fn autocorrelation(bits: &[bool], mean: f64, lag: usize) -> f64 {
    let x: Vec<f64> = bits.iter().map(|&b| f64::from(u8::from(b)) - mean).collect();
    let products: f64 = x.iter().zip(&x[lag..]).map(|(a, b)| a * b).sum();
    products / (x.len() - lag) as f64 / (mean * (1.0 - mean))
}

#[test]
fn constant_bits_are_the_keyed_uniforms_below_the_rate() {
    for rate in [0.0, 0.3, 0.8, 1.0] {
        let got = bits(&*source(Rates::Constant { rate }), request(5, 100_003), 0);
        let luck = Luck::new(SEED, Stream::Right, 5);
        assert!(got.iter().enumerate().all(|(n, &b)| b == (u64::from(luck.half(n as u64)) < threshold(rate))));
        assert!((share(&got) - rate).abs() <= four_errors(rate, got.len()), "{rate}: {}", share(&got));
    }
}

#[test]
fn truth_ends_where_the_drafts_can_no_longer_reach() {
    let mut row = TruthRow::default();
    source(Rates::Constant { rate: 1.0 }).start(request(0, 61), 8, &mut row);
    assert_eq!((0..200).filter(|&n| row.right(n, 0)).count(), 69);
    // A buffer that held a longer truth must not leak it into a shorter one.
    source(Rates::Constant { rate: 1.0 }).start(request(1, 5), 2, &mut row);
    assert_eq!((0..200).filter(|&n| row.right(n, 0)).count(), 7);
}

/// E[accepted] at k drafts a round = a + a² + … + a^k (Leviathan et al. 2023, Eq. 1 without the bonus token).
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
fn rates_by_position_hold_for_their_stretch_and_the_last_one_to_the_end() {
    let by_position = source(Rates::ByPosition { rates: vec![0.9, 0.2, 0.6], span: 10_000 });
    let got = bits(&*by_position, request(3, 60_000), 0);
    for (stretch, rate) in [(0..10_000, 0.9), (10_000..20_000, 0.2), (20_000..60_000, 0.6)] {
        let share = share(&got[stretch.clone()]);
        assert!((share - rate).abs() < four_errors(rate, stretch.len()), "{stretch:?}: {share}");
    }
}

#[test]
fn depths_share_one_uniform_a_position() {
    let rates = vec![0.8, 0.6, 0.7, 0.3];
    let heads = source(Rates::ByDepth { rates: rates.clone() });
    let rows: Vec<Vec<bool>> = (0..6).map(|depth| bits(&*heads, request(4, 50_000), depth)).collect();
    for (depth, row) in rows.iter().enumerate() {
        let rate = rates[depth.min(3)];
        assert!((share(row) - rate).abs() < four_errors(rate, row.len()), "depth {depth}: {}", share(row));
    }
    assert_eq!(rows[4], rows[3], "the last rate repeats");
    // Right at a lower rate implies right at a higher one: it is the same uniform.
    assert!(rows[3].iter().zip(&rows[1]).all(|(&low, &high)| !low || high));
    assert!(rows[1].iter().zip(&rows[2]).all(|(&low, &high)| !low || high));
    // A constant source with one of the rates is the same luck.
    assert_eq!(rows[1], bits(&*source(Rates::Constant { rate: 0.6 }), request(4, 50_000), 0));
}

fn mixture(a: f64, b: f64, autocorrelation: f64) -> Rates {
    Rates::Mixture(Mixture { all: Beta { a, b }, categories: Default::default(), autocorrelation })
}

#[test]
fn copying_keeps_the_rate_and_correlates_neighbours() {
    // A narrow law: every request has the rate 0.6, so that correlation within a request is all there is.
    let rho = 0.3;
    let got = bits(&*source(mixture(6e8, 4e8, rho)), request(6, 1_000_000), 0);
    // Correlation inflates the variance of a mean by (1 + rho) / (1 - rho).
    let inflation = ((1.0 + rho) / (1.0 - rho)).sqrt();
    assert!((share(&got) - 0.6).abs() < inflation * four_errors(0.6, got.len()), "{}", share(&got));
    for lag in 1..=4 {
        let expected = rho.powi(lag as i32);
        let measured = autocorrelation(&got, 0.6, lag);
        assert!((measured - expected).abs() < 0.006, "lag {lag}: {measured} against {expected}");
    }
}

#[test]
fn requests_differ_as_their_beta_law_says() {
    let (a, b, n) = (8.0, 5.7, 4000);
    let mixture = source(mixture(a, b, 0.0));
    let shares: Vec<f64> = (0..n).map(|id| share(&bits(&*mixture, request(id, 2000), 0))).collect();
    let mean = shares.iter().sum::<f64>() / f64::from(n);
    let variance = shares.iter().map(|s| (s - mean).powi(2)).sum::<f64>() / f64::from(n - 1);
    let expected = a / (a + b);
    // Var(share) = Var(rate) + E[rate (1 - rate)] / positions.
    let of_rates = a * b / ((a + b) * (a + b) * (a + b + 1.0));
    let expected_variance = of_rates + (expected * (1.0 - expected) - of_rates) / 2000.0;
    assert!((mean - expected).abs() < 4.0 * (variance / f64::from(n)).sqrt(), "{mean} against {expected}");
    // The relative error of a variance is about sqrt(2/n); the law is nearly normal.
    assert!((variance / expected_variance - 1.0).abs() < 4.0 * (2.0 / f64::from(n)).sqrt(), "{variance}");
}

/// P(right | i − 1 right before) of a Beta mixture is (a + i − 1) / (a + b + i − 1): it rises with depth although no request's
/// own rate does.
#[test]
fn hazards_of_a_mixture_rise_with_depth() {
    let (a, b) = (8.0, 5.7);
    let mixture = source(mixture(a, b, 0.0));
    let (mut tried, mut right) = ([0.0f64; 8], [0.0f64; 8]);
    for id in 0..4000 {
        let bits = bits(&*mixture, request(id, 512), 0);
        // Disjoint windows of eight: every request weighs the same at every depth.
        for window in bits.chunks_exact(8) {
            for (i, &bit) in window.iter().enumerate() {
                tried[i] += 1.0;
                right[i] += f64::from(u8::from(bit));
                if !bit {
                    break;
                }
            }
        }
    }
    for i in 0..8 {
        let expected = (a + i as f64) / (a + b + i as f64);
        let hazard = right[i] / tried[i];
        assert!((hazard - expected).abs() < 0.012, "h{}: {hazard} against {expected}", i + 1);
    }
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

/// One request for each recording.
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
    let workload = recorded(vec![Recording { accepted_before: vec![0; 5], bits: known }]);
    let spec = AcceptanceSpec { source: RECORDED(), ..AcceptanceSpec::default() };
    let built = spec.build(SEED, &workload).unwrap();
    let got = bits(&*built, RequestTruth { recording: Some(0), ..request(0, 8) }, 0);
    assert_eq!(got, [true, false, true, true, false, false, false, false]);
}

#[test]
fn unknown_bits_are_drawn_once_with_the_hazard_of_what_was_accepted_before() {
    let pooled = [0.572, 0.641, 0.705, 0.753, 0.802, 0.833, 0.851, 0.878];
    let n = 40_000;
    // Twelve accepted before: the last hazard repeats.
    for accepted in [0u8, 3, 7, 12] {
        let unknown = Recording { bits: vec![None; n], accepted_before: vec![accepted; n] };
        let workload = recorded(vec![unknown.clone(), unknown]);
        let spec = AcceptanceSpec { source: RECORDED(), ..AcceptanceSpec::default() };
        let built = spec.build(SEED, &workload).unwrap();
        let of = |id| RequestTruth { recording: Some(id), ..request(id, n as u32) };
        let (first, second) = (bits(&*built, of(0), 0), bits(&*built, of(1), 0));
        let expected = pooled[usize::from(accepted).min(7)];
        assert!((share(&first) - expected).abs() < four_errors(expected, n), "{accepted}: {}", share(&first));
        assert_eq!(first, bits(&*built, of(0), 0), "drawn once");
        assert_ne!(first, second, "every request has draws of its own");
    }
}

#[test]
fn a_request_without_recording_is_refused_by_name() {
    let workload: Workload = [Request::new(Time::ZERO, 1, 8)].into_iter().collect();
    let spec = AcceptanceSpec { source: RECORDED(), ..AcceptanceSpec::default() };
    let fault = spec.build(SEED, &workload).err().unwrap().to_string();
    assert!(fault.contains("request 0") && fault.starts_with("acceptance.source.recorded"), "{fault}");
}

#[test]
fn bad_rates_name_their_key() {
    let fault = |source| AcceptanceSpec { source, ..AcceptanceSpec::default() }.check().unwrap_err().to_string();
    assert!(fault(Rates::Constant { rate: 1.5 }).starts_with("acceptance.source.constant.rate"));
    assert!(fault(Rates::Constant { rate: f64::NAN }).starts_with("acceptance.source.constant.rate"));
    assert!(fault(Rates::ByDepth { rates: vec![] }).starts_with("acceptance.source.by-depth.rates"));
    assert!(fault(Rates::ByPosition { rates: vec![0.5], span: 0 }).starts_with("acceptance.source.by-position.span"));
    assert!(fault(mixture(0.0, 1.0, 0.1)).starts_with("acceptance.source.mixture.all"));
    assert!(fault(mixture(1.0, 1.0, 1.0)).starts_with("acceptance.source.mixture.autocorrelation"));
}
