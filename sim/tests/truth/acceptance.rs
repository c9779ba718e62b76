//! The truth of a request against theory, from outside: what a run of drafts meets (policies.md 13). Each source on its own
//! is tested beside its code.

use foretoken_sim::acceptance::{AcceptanceSpec, Beta, Mixture, Rates};
use foretoken_sim::{AcceptanceSource, Recording, Request, RequestTruth, Time, TruthRow, Workload};

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
fn requests_differ_as_their_beta_law_says() {
    let (a, b, n) = (8.0, 5.7, 4000);
    let law = Mixture { all: Beta { a, b }, categories: Default::default(), autocorrelation: 0.0 };
    let mixture = source(Rates::Mixture(law));
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
