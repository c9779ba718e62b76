//! Made-up runs for tests. Their numbers come from a keyed hash; nothing is simulated.

use crate::{Cell, Dash, Entry, Key, Look, Marker, Report, Role, Source, Swept};
use foretoken_sim::metrics::{CalibrationBin, Series, Slo, Totals};
use foretoken_sim::{Outcome, RequestRecords, StepRecord, Summary, Time};

/// A made-up policy: label, speedup, draft length, colour.
type Made = (&'static str, f64, u32, (u8, u8, u8));
const POLICIES: [Made; 13] = [
    ("autoregressive", 1.0, 0, (0x44, 0x44, 0x44)),
    ("fixed-1", 1.18, 1, (0x34, 0x96, 0xcd)),
    ("fixed-3", 1.35, 3, (0x00, 0x72, 0xb2)),
    ("fixed-5", 0.91, 5, (0x33, 0x22, 0x88)),
    ("ema-tier", 1.29, 2, (0x00, 0x9e, 0x73)),
    ("smartspec", 1.38, 3, (0xc4, 0x85, 0x00)),
    ("adaspec", 1.46, 4, (0xd5, 0x5e, 0x00)),
    ("adaspec-", 1.40, 4, (0xc4, 0x71, 0x9f)),
    ("threshold-hf", 1.22, 4, (0x88, 0x22, 0x55)),
    ("threshold-eagle", 1.25, 5, (0xaa, 0x44, 0x99)),
    ("oracle-goodput", 1.61, 4, (0x11, 0x77, 0x33)),
    ("oracle-length", 1.52, 4, (0x99, 0x99, 0x33)),
    ("random", 1.02, 2, (0x88, 0x88, 0x88)),
];
const DASHES: [Dash; 4] = [Dash::Solid, Dash::Dashed, Dash::Dotted, Dash::LongDash];
const MARKERS: [Marker; 8] = [
    Marker::Circle,
    Marker::Square,
    Marker::Triangle,
    Marker::Diamond,
    Marker::Cross,
    Marker::TriangleDown,
    Marker::Plus,
    Marker::Ring,
];

/// A number in [0, 1) that depends only on the arguments (SplitMix64's finaliser).
fn unit(seed: u64, stream: u64, index: u64) -> f64 {
    let mut z = seed ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ index.wrapping_mul(0xd1b5_4a32_d192_ed03);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}

/// Made-up records of `n` requests that arrive at `rate` requests per second. Waiting time and time per output token
/// grow with `rate`; the time per output token is divided by `fast`. The last request is rejected.
pub fn records(n: usize, fast: f64, rate: f64, seed: u64) -> RequestRecords {
    let mut r = RequestRecords::new(n);
    let mut now = 0.0;
    for i in 0..n {
        let draw = |stream| unit(seed, stream, i as u64);
        now += -(1.0 - draw(1)).ln() / rate;
        let queue = 0.02 * rate * draw(2);
        let tokens = 2 + (300.0 * draw(3).powi(2)) as u32;
        r.arrival[i] = Time::from_s(now);
        r.finish[i] = r.arrival[i];
        if i + 1 == n {
            r.outcome[i] = Outcome::Rejected;
            break;
        }
        r.first_scheduled[i] = Time::from_s(now + queue);
        r.first_token[i] = Time::from_s(now + queue + 0.05 + 0.1 * draw(4));
        let tpot = 0.02 * (1.0 + 0.2 * rate) * (0.6 + draw(5)) / fast;
        r.finish[i] = r.first_token[i] + Time::from_s(f64::from(tokens - 1) * tpot);
        r.emitted[i] = tokens;
        r.outcome[i] = Outcome::Finished;
    }
    r
}

/// Made-up steps for `seconds` seconds: one step of 0.45 s starts every 0.5 s. The batch size rises and falls over
/// time.
fn steps(seconds: f64, fast: f64, draft: u32, rate: f64, seed: u64) -> Vec<StepRecord> {
    let step = |i: u64| {
        let start = i as f64 * 0.5;
        let swell = 1.0 + 0.8 * (start / 40.0).sin() + 0.6 * unit(seed, 7, i / 4);
        let batch_size = (6.0 * rate * swell / fast) as u32;
        let drafted = (f64::from(batch_size * draft) * (0.6 + 0.4 * unit(seed, 8, i))) as u32;
        StepRecord {
            step: i,
            start: Time::from_s(start),
            end: Time::from_s(start + 0.45),
            batch_size,
            drafted,
            accepted: drafted / 2,
            emitted: batch_size + drafted / 2,
            ..StepRecord::default()
        }
    };
    (0..(seconds * 2.0) as u64).map(step).collect()
}

fn cell(policy: usize, rate: Option<f64>, scheduler: Option<&str>, seed: u64, requests: usize) -> Cell {
    let (label, fast, draft, colour) = POLICIES[policy];
    let load = rate.unwrap_or(1.0);
    let fast = 1.0 + (fast - 1.0) * (1.6 - 0.5 * load) + 0.04 * (unit(seed, 9, policy as u64) - 0.5);
    let records = records(requests, fast, load, seed);
    let mut totals = Totals::default();
    let mut series = Series::default();
    let steps = steps(requests as f64 / load, fast, draft, load, seed);
    steps.iter().for_each(|s| (totals.step(s), series.step(s)).1);
    (1..=draft as usize).for_each(|v| totals.verified_accepted[v][v / 2] = 100);
    let slo = Slo { tpot_s: Some(0.028), ..Slo::default() };
    let swept = Swept::new;
    let sweep = rate
        .map(|r| swept("workload.rate-scale", r.to_string(), Some(r)))
        .into_iter()
        .chain(scheduler.map(|s| swept("engine.scheduler", s.to_owned(), None)));
    let entry = Entry {
        key: Key { policy: label.to_owned(), sweep: sweep.collect(), seed },
        look: Look { colour, dash: DASHES[policy % 4], marker: MARKERS[policy % 8] },
        role: match label {
            "autoregressive" => Role::Baseline,
            "oracle-goodput" => Role::Bound,
            "oracle-length" => Role::Oracle,
            _ => Role::Contender,
        },
        fixed: match label {
            "autoregressive" => Some(0),
            _ => label.strip_prefix("fixed-").and_then(|k| k.parse().ok()),
        },
        blind: label == "autoregressive" || label == "random" || label.starts_with("fixed"),
        trees: false,
        stops_for_slo: label.starts_with("adaspec"),
        batch: false,
        gpus: Some(1),
        implied: false,
        bound: None,
        fleet: None,
    };
    let cell = Cell::new(entry, Summary::new(&records, &totals, slo, &[], 1000, 16)).with_latencies(&records);
    let speedup = Some(if policy == 0 { 1.0 } else { fast });
    Cell { speedup, series, lengths: totals.lengths.rows(), calibration: calibration(policy, seed), ..cell }
}

/// Made-up numbers of draft tokens in 20 bins of confidence, for the policies with index 6 to 9 in [`POLICIES`]; empty
/// for other policies. Fewer draft tokens are right than the confidences say.
fn calibration(policy: usize, seed: u64) -> Vec<CalibrationBin> {
    let bin = |i: u64| {
        let (drafts, confidence) = (40 + 30 * i, (i as f64 + 0.5) / 20.0);
        let right = (drafts as f64 * confidence.powf(1.2) * (0.95 + 0.1 * unit(seed, 11, i))) as u64;
        CalibrationBin { drafts, right, confidence: confidence * drafts as f64 }
    };
    if (6..10).contains(&policy) { (0..20).map(bin).collect() } else { Vec::new() }
}

/// A made-up report of the first `policies` of [`POLICIES`], with the seeds 1 to `seeds` and `requests` requests per
/// run. It sweeps the request rate over `rates` and the scheduler over `schedulers`, unless the list is empty.
pub fn report(policies: usize, rates: &[f64], schedulers: &[&str], seeds: u64, requests: usize) -> Report {
    let optional = |n: usize| if n == 0 { vec![None] } else { (0..n).map(Some).collect() };
    let mut cells = Vec::new();
    for scheduler in optional(schedulers.len()).into_iter().map(|i| i.map(|i| schedulers[i])) {
        for rate in optional(rates.len()).into_iter().map(|i| i.map(|i| rates[i])) {
            let each = (0..policies).flat_map(|p| (1..=seeds).map(move |s| (p, s)));
            cells.extend(each.map(|(p, seed)| cell(p, rate, scheduler, seed, requests)));
        }
    }
    Report { name: "fixture".to_owned(), source: Source::Simulated, cells }
}
