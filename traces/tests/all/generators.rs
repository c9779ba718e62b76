//! Tests the generators against the statistics to which they are calibrated, and against theory.
//!
//! A statistic is averaged over independent seeds. It must lie within five standard errors (estimated from these seeds)
//! of its theoretical value, or of a published value. For a published value the tolerance is larger by half its last
//! digit and by the error of the sample from which it comes.

use foretoken_sim::Workload;
use foretoken_traces::{ArrivalStats, Gives, TraceStats, WorkloadSpec, build};
use itertools::Itertools;

const BOTH: Gives = Gives { arrivals: true, lengths: true };

fn workload(text: &str, seed: u64) -> Workload {
    let spec: WorkloadSpec = toml::from_str(text).unwrap_or_else(|e| panic!("{e}"));
    build(&spec, seed, None).unwrap_or_else(|e| panic!("{e}")).workload
}

fn arrivals(generator: &str, duration_s: f64, seed: u64) -> ArrivalStats {
    let text = format!(
        "arrivals = {generator}\nduration_s = {duration_s:?}\nlengths = {{ fixed = {{ prompt = 1, output = 1 }} }}"
    );
    TraceStats::of(&workload(&text, seed), BOTH, Some((0.0, duration_s))).arrivals.expect("arrivals")
}

/// The mean of `statistic` over the first `seeds` seeds, and its standard error.
fn averaged(seeds: u64, statistic: impl Fn(u64) -> f64) -> (f64, f64) {
    let values: Vec<f64> = (0..seeds).map(statistic).collect();
    let mean = values.iter().sum::<f64>() / seeds as f64;
    let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (seeds - 1) as f64;
    (mean, (variance / seeds as f64).sqrt())
}

/// Asserts that `mean` is within five standard errors (`error`), plus `uncertain`, of `expected`. `uncertain` is the
/// uncertainty of the expected value itself.
#[track_caller]
fn agrees(what: &str, (mean, error): (f64, f64), expected: f64, uncertain: f64) {
    eprintln!("{what}: {mean:.4} ± {error:.4}, expected {expected:.4}");
    assert!((mean - expected).abs() <= 5.0 * error + uncertain, "{what}: {mean} ± {error}, expected {expected}");
}

fn rate(a: &ArrivalStats) -> f64 {
    a.mean_rate.expect("a duration")
}

fn cv(a: &ArrivalStats) -> f64 {
    a.iat_cv.expect("gaps")
}

fn dispersion(a: &ArrivalStats, width: usize) -> f64 {
    a.bins[width].dispersion.expect("bins")
}

#[test]
fn renewal_processes_have_their_rate_and_cv() {
    for (generator, mean, gap_cv) in [
        ("{ poisson = { rate = 4.0 } }", 4.0, 1.0),
        ("{ mooncake-poisson = {} }", 3.907, 1.0),
        ("{ t3 = {} }", 4.5, 1.0),
        ("{ gamma = { rate = 5.0, cv = 2.0 } }", 5.0, 2.0),
        ("{ gamma = { rate = 5.0, cv = 0.5 } }", 5.0, 0.5),
    ] {
        // The mean number of requests of a process that starts with a gap is rate × duration + (cv² − 1)/2. The
        // coefficient of variation (CV) of a sample is biased by O(1/n).
        let start = (gap_cv * gap_cv - 1.0) / 2.0 / 3600.0;
        agrees(generator, averaged(30, |s| rate(&arrivals(generator, 3600.0, s))), mean + start, 0.0);
        agrees("CV", averaged(30, |s| cv(&arrivals(generator, 3600.0, s))), gap_cv, gap_cv * 0.002);
    }
    for (width, w) in [(0, 1.0), (1, 5.0), (2, 60.0)] {
        let idc = averaged(60, |s| dispersion(&arrivals("{ poisson = { rate = 4.0 } }", 3600.0, s), width));
        agrees("Poisson IDC", idc, 1.0 - w / 3600.0, 0.0);
    }
}

#[test]
fn azure_conv_disperses_as_a_log_ou_rate_does() {
    let (m, cv2, tau, total) = (5.53, 0.228f64.powi(2), 185.0, 3600.0);
    let idc = |w: f64| 1.0 + m * cv2 * 2.0 * tau * (1.0 - tau / w * (1.0 - (-w / tau).exp()));
    let of_seed = |s| arrivals("{ azure-conv = {} }", total, s);
    agrees("rate", averaged(200, |s| rate(&of_seed(s))), m, 0.0);
    for (width, w) in [(0, 1.0), (1, 5.0), (2, 60.0)] {
        let n = total / w;
        // The variance of the counts is taken around the mean of the same hour, so it lacks the variance of the hourly
        // mean. The autocovariance of a log-normal rate falls a little faster than e^(-t/τ), and the process keeps the
        // rate constant for a twentieth of τ at a time. Together these change the excess of the index of dispersion
        // over 1 by less than 2 %.
        let expected = idc(w) - idc(total) / n;
        agrees("IDC", averaged(200, |s| dispersion(&of_seed(s), width)), expected, 0.02 * (expected - 1.0) + 0.001);
    }
    // The published model of the Azure conversation trace has a coefficient of variation (CV) of the gaps between
    // arrivals of 1.05 (the data have 1.09).
    agrees("CV", averaged(200, |s| cv(&of_seed(s))), 1.05, 0.005);
}

#[test]
fn azure_code_is_as_bursty_as_calibrated() {
    let of_seed = |s| arrivals("{ azure-code = {} }", 3600.0, s);
    let (mean, error) = averaged(300, |s| rate(&of_seed(s)));
    // Published for the Azure code trace, from 60 runs of the model: mean rate 2.59 requests/s, 90 % of the hours
    // between 1.8 and 3.3, and coefficient of variation of the gaps between arrivals 14.2.
    agrees("rate", (mean, error), 2.59, 0.005 + 5.0 * error * (300f64 / 60.0).sqrt());
    let mut rates: Vec<f64> = (0..300).map(|s| rate(&of_seed(s))).collect();
    rates.sort_by(f64::total_cmp);
    eprintln!("5 % {:.2}, 95 % {:.2}", rates[15], rates[284]);
    let (mean, error) = averaged(300, |s| cv(&of_seed(s)));
    agrees("CV", (mean, error), 14.2, 0.05 + 5.0 * error * (300f64 / 60.0).sqrt());
}

#[test]
fn mooncake_ticks_have_their_counts() {
    let of_seed = |s| arrivals("{ mooncake-ticks = {} }", 3600.0, s);
    agrees("rate", averaged(100, |s| rate(&of_seed(s))), 10.2 / 3.0, 0.0);
    agrees("CV", averaged(100, |s| cv(&of_seed(s))), 3.03, 0.005);
    // The variance of the number of requests in a tick (a time at which a batch arrives) is mean + (cv·mean)² = 11.24;
    // the published variance is 11.2.
    let variance = averaged(100, |s| {
        let text =
            "arrivals = { mooncake-ticks = {} }\nduration_s = 3600\nlengths = { fixed = { prompt = 1, output = 1 } }";
        let counts = workload(text, s).arrival.iter().fold(vec![0.0; 1200], |mut counts, t| {
            assert_eq!(t.0 % 3_000_000_000_000, 0, "on a tick");
            counts[(t.0 / 3_000_000_000_000) as usize] += 1.0;
            counts
        });
        let mean = counts.iter().sum::<f64>() / 1200.0;
        counts.iter().map(|c: &f64| (c - mean).powi(2)).sum::<f64>() / 1199.0
    });
    agrees("count variance", variance, 11.24, 0.04);
    // With the trend, the mean number of requests in a tick (a time at which a batch arrives) is 8.84 at the start of
    // the hour, and 11.6 at its end.
    let with_trend = |s| arrivals("{ mooncake-ticks = { trend_per_h = 0.27 } }", 3600.0, s);
    agrees("rate with a trend", averaged(100, |s| rate(&with_trend(s))), 10.2 / 3.0, 0.0);
    let early = |s| rate(&arrivals("{ mooncake-ticks = { trend_per_h = 0.27 } }", 30.0, s)) * 3.0;
    agrees("first ticks", averaged(2000, early), 8.84, 0.03);
}

#[test]
fn adaspec_bins_are_underdispersed() {
    let of_seed = |s| arrivals("{ adaspec-mooncake = {} }", 3600.0, s);
    // 1.795 requests/s is the published rate, from 1077 requests in 600 s. 5.38 requests in a bin of 3 s are 1.7933/s.
    agrees("rate", averaged(100, |s| rate(&of_seed(s))), 5.38 / 3.0, 0.0);
    let sixty = averaged(100, |s| dispersion(&of_seed(s), 2));
    // A minute is 20 independent bins of 3 s, so its index of dispersion is the variance / mean of a bin's number of
    // requests, times 59/60 because the variance is taken around the mean of the same hour. The random rounding of the
    // binomial's n adds p²·0.22 = 0.03 to the variance of 3.36.
    agrees("IDC(60 s)", sixty, (3.36 + 0.03) / 5.38 * 59.0 / 60.0, 0.001);
}

#[test]
fn t1_is_busy_and_then_quiet() {
    let halves = |s: u64| {
        let w = workload("arrivals = { t1 = {} }\nlengths = { fixed = { prompt = 1, output = 1 } }", s);
        let busy = w.arrival.partition_point(|t| t.as_s() < 300.0);
        (busy as f64 / 300.0, (w.len() - busy) as f64 / 300.0)
    };
    agrees("busy", averaged(300, |s| halves(s).0), 6.5, 0.0);
    agrees("quiet", averaged(300, |s| halves(s).1), 2.75, 0.0);
}

#[test]
fn burstgpt_has_its_rate_and_cv() {
    // The runs last 2.3 days, because the coefficient of variation (CV) of the gaps settles slowly. If every gap drew
    // its own gamma shape k, uniform in [a, b], the gaps (mean 1) would have variance ln(b/a)/(b − a), a CV of 1.665.
    // But a shape lasts a minute, so the test requires only that the CV lies between 1/√b and 1/√a.
    let of_seed = |s| arrivals("{ burstgpt = {} }", 200_000.0, s);
    agrees("rate", averaged(30, |s| rate(&of_seed(s))), 0.27, 0.0);
    let (cv, _) = averaged(30, |s| cv(&of_seed(s)));
    assert!((1.0 / 0.5f64.sqrt()..1.0 / 0.25f64.sqrt()).contains(&cv), "{cv}");
}

/// Published quantiles that the test checks, as (percent, prompt tokens, output tokens).
type Knots = &'static [(f64, f64, f64)];

#[test]
fn length_tables_have_their_quantiles() {
    let tables: [(&str, Knots, f64); 6] = [
        (
            "azure-conv",
            &[(10.0, 207.0, 54.0), (50.0, 1020.0, 129.0), (90.0, 2734.0, 424.0), (99.0, 4142.0, 601.0)],
            0.0,
        ),
        ("azure-code", &[(10.0, 147.0, 7.0), (50.0, 1469.0, 13.0), (90.0, 5188.0, 55.0), (99.0, 7436.0, 251.0)], 0.0),
        ("mooncake-conv", &[(10.0, 964.0, 24.0), (50.0, 6909.0, 350.0), (90.0, 27367.0, 597.0)], 0.0),
        ("mooncake-synth", &[(10.0, 30.0, 4.0), (50.0, 11587.0, 69.0), (90.0, 38611.0, 389.0)], -0.52),
        ("sharegpt", &[(10.0, 74.0, 84.0), (50.0, 1730.0, 415.0), (90.0, 5696.0, 834.0)], 0.0),
        ("burstgpt", &[(50.0, 74.0, 14.0), (90.0, 1291.0, 401.0), (95.0, 1697.0, 510.0), (99.0, 3023.0, 757.0)], 0.0),
    ];
    let n = 100_000;
    for (name, knots, spearman) in tables {
        let text = format!("arrivals = {{ closed-loop = 1 }}\nrequests = {n}\nlengths = {{ table = \"{name}\" }}");
        let w = workload(&text, 11);
        for &(percent, prompt, output) in knots {
            // The share of lengths at or below a quantile is binomial. Lengths are whole numbers, so the lengths equal
            // to the quantile may count on either side.
            for (column, knot) in [(&w.prompt_len, prompt), (&w.output_len, output)] {
                let share = |below: f64| column.iter().filter(|&&x| f64::from(x) <= below).count() as f64 / n as f64;
                let p: f64 = percent / 100.0;
                let error = 5.0 * (p * (1.0 - p) / n as f64).sqrt();
                assert!(share(knot - 1.0) <= p + error && share(knot + 1.0) >= p - error, "{name} {percent} % {knot}");
            }
        }
        let r = rank_correlation(&w.prompt_len, &w.output_len);
        assert!((r - spearman).abs() < 5.0 / (n as f64).sqrt() + 0.003, "{name}: {r}");
    }
    let w = workload("arrivals = { closed-loop = 1 }\nrequests = 100000\nlengths = { table = \"burstgpt\" }", 12);
    let stats = TraceStats::of(&w, BOTH, None);
    // The standard deviations of the prompt and output lengths are 640 and 205 tokens, so the standard errors of their
    // means over 100,000 requests are 640/316 and 205/316.
    assert!((stats.prompt.expect("lengths").mean - 374.0).abs() < 5.0 * 640.0 / 316.0);
    assert!((stats.output.expect("lengths").mean - 122.0).abs() < 5.0 * 205.0 / 316.0);
}

#[test]
fn spec_bench_lengths_follow_their_categories() {
    // For each Spec-Bench category: (median prompt tokens, quartiles of output tokens, Spearman correlation of prompt
    // and output, published mean of output tokens).
    let published = [
        (4.577f64, [110.0, 246.0, 359.0], -0.32, 276.6),
        (4.388, [19.0, 26.0, 38.0], 0.96, 29.6),
        (6.675, [138.0, 159.0, 202.0], 0.53, 177.8),
        (3.942, [59.0, 89.0, 161.0], -0.12, 142.3),
        (4.620, [92.0, 143.0, 221.0], 0.22, 168.6),
        (6.734, [24.0, 50.0, 114.0], -0.17, 89.9),
    ];
    let open = "{ min_len = 0, max_prompt = 1000000, max_output = 1000000, max_total = 2000000 }";
    let text = format!("arrivals = {{ closed-loop = 1 }}\nrequests = 240000\nlengths = {{ spec-bench = {open} }}");
    let w = workload(&text, 13);
    assert_eq!(w.categories, ["mt_bench", "translation", "summarization", "qa", "math_reasoning", "rag"]);
    for (category, (mu, quartiles, spearman, mean)) in published.into_iter().enumerate() {
        let of_category = |column: &[u32]| -> Vec<u32> {
            (0..w.len()).filter(|&i| w.category[i] as usize == category).map(|i| column[i]).collect()
        };
        let (prompt, output) = (of_category(&w.prompt_len), of_category(&w.output_len));
        let n = prompt.len() as f64;
        assert!((n - 40_000.0).abs() < 5.0 * (240_000.0f64 * 5.0 / 36.0).sqrt(), "equally likely: {n}");
        let near = |column: &[u32], knot: f64, p: f64| {
            let share = |below: f64| column.iter().filter(|&&x| f64::from(x) <= below).count() as f64 / n;
            let error = 5.0 * (p * (1.0 - p) / n).sqrt();
            assert!(share(knot - 1.0) <= p + error && share(knot + 1.0) >= p - error, "{category} {p}: {knot}");
        };
        near(&prompt, mu.exp(), 0.5);
        [0.25, 0.5, 0.75].into_iter().zip_eq(quartiles).for_each(|(p, knot)| near(&output, knot, p));
        // Lengths are whole tokens, so some are equal. The prompt lengths of the category `qa` have a standard
        // deviation of only two tokens and many equal lengths, so their rank correlation with outputs is a little
        // lower.
        let r = rank_correlation(&prompt, &output);
        assert!((r - spearman).abs() < 5.0 / n.sqrt() + 0.02, "{category}: {r}");
        let got = output.iter().map(|&x| f64::from(x)).sum::<f64>() / n;
        eprintln!("category {category}: output mean {got:.1}, published {mean}");
        assert!((got / mean - 1.0).abs() < 0.05, "category {category}: output mean {got}, published {mean}");
    }
    let w = workload("arrivals = { closed-loop = 1 }\nrequests = 50000\nlengths = { spec-bench = {} }", 13);
    assert!(
        (0..w.len()).all(|i| w.prompt_len[i].min(w.output_len[i]) >= 4 && w.prompt_len[i].max(w.output_len[i]) <= 1024)
    );
}

/// Spearman's rank correlation. Equal values get their mean rank.
fn rank_correlation(a: &[u32], b: &[u32]) -> f64 {
    let (ra, rb) = (ranks(a), ranks(b));
    let mean = (a.len() + 1) as f64 / 2.0;
    let sum = |x: &[f64], y: &[f64]| x.iter().zip_eq(y).map(|(x, y)| (x - mean) * (y - mean)).sum::<f64>();
    sum(&ra, &rb) / (sum(&ra, &ra) * sum(&rb, &rb)).sqrt()
}

fn ranks(values: &[u32]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by_key(|&i| values[i]);
    let mut ranks = vec![0.0; values.len()];
    let mut start = 0;
    for group in order.chunk_by(|&i, &j| values[i] == values[j]) {
        let rank = start as f64 + (group.len() + 1) as f64 / 2.0;
        group.iter().for_each(|&i| ranks[i] = rank);
        start += group.len();
    }
    ranks
}
