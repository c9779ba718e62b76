//! The numbers that are compared, computed in the same way from live and simulated runs. Runs of several pieces are
//! pooled: means and quantiles are over all of their requests and steps.

use super::maths::{cdf_distance, curve_error, relative};
use crate::serve::tape::Told;
use foretoken_sim::metrics::{Quantiles, Slo};
use foretoken_sim::{RequestRecords, StepRecord, Time};
use serde::{Deserialize, Serialize};

/// Number of bins of the curves over time.
const BINS: usize = 40;

/// The numbers of one run, or of several runs pooled.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Numbers {
    /// Number of requests that emitted their whole output.
    pub finished: u64,
    /// Time to first token, in seconds.
    pub ttft: Option<Quantiles>,
    /// Time per output token after the first, in seconds.
    pub tpot: Option<Quantiles>,
    /// End-to-end latency, in seconds.
    pub e2e: Option<Quantiles>,
    /// Mean time of a step, in seconds.
    pub step_s: Option<f64>,
    /// Finished requests per second, from the first arrival to the last finish.
    pub completed_req_s: Option<f64>,
    /// Share of finished and rejected requests that met every SLO bound; `None` without a bound.
    pub slo_attainment: Option<f64>,
    /// Mean decode batch size, weighted by time in steps.
    pub batch_size: Option<f64>,
    /// Mean draft tokens per request and step.
    pub draft_len: Option<f64>,
    /// Accepted draft tokens over verified ones.
    pub accepted_of_verified: Option<f64>,
}

/// A run from which numbers are computed.
#[derive(Clone, Copy)]
pub struct Part<'a> {
    /// The records of the run.
    pub told: &'a Told,
    /// The SLO bounds of the requests.
    pub slo: Slo,
    /// TPOT limits of single requests, in seconds; empty if they have none.
    pub own_tpot_s: &'a [f64],
}

impl Numbers {
    /// The numbers of several runs, pooled.
    pub fn of(parts: &[Part]) -> Numbers {
        let samples = Samples::of(parts.iter().map(|p| &p.told.records));
        let quantiles = |x: &[f64]| Quantiles::of(&mut x.to_vec());
        let steps = || parts.iter().flat_map(|p| &p.told.steps);
        let n = steps().count() as f64;
        let busy: f64 = steps().map(span_s).sum();
        let sum = |f: &dyn Fn(&StepRecord) -> u64| steps().map(f).sum::<u64>() as f64;
        let request_steps = sum(&|s| s.batch_size.into());
        let verified = sum(&|s| s.verified.into());
        let over = |a: f64, b: f64| (b > 0.0).then(|| a / b);
        Numbers {
            finished: samples.e2e.len() as u64,
            ttft: quantiles(&samples.ttft),
            tpot: quantiles(&samples.tpot),
            e2e: quantiles(&samples.e2e),
            step_s: over(busy, n),
            completed_req_s: completed(parts),
            slo_attainment: attainment(parts),
            batch_size: over(steps().map(|s| f64::from(s.batch_size) * span_s(s)).sum(), busy),
            draft_len: over(sum(&|s| s.drafted.into()), request_steps),
            accepted_of_verified: over(sum(&|s| s.accepted.into()), verified),
        }
    }
}

fn span_s(step: &StepRecord) -> f64 {
    (step.end - step.start).as_s()
}

/// Latencies of the finished requests, in the order of arrival. Outputs of one token have no TPOT.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Samples {
    /// Times to first token, in seconds.
    pub ttft: Vec<f64>,
    /// Times per output token after the first, in seconds.
    pub tpot: Vec<f64>,
    /// End-to-end latencies, in seconds.
    pub e2e: Vec<f64>,
}

impl Samples {
    /// The latencies of several runs, pooled.
    pub fn of<'a>(runs: impl IntoIterator<Item = &'a RequestRecords>) -> Samples {
        let mut all = Samples::default();
        for r in runs {
            let done = || (0..r.len()).filter(|&i| r.finished(i));
            all.ttft.extend(done().map(|i| r.ttft_s(i)));
            all.tpot.extend(done().filter_map(|i| r.tpot_s(i)));
            all.e2e.extend(done().map(|i| r.e2e_s(i)));
        }
        all
    }

    /// Returns the latencies in the order TTFT, TPOT, E2E.
    pub fn into_latencies(self) -> [Vec<f64>; 3] {
        [self.ttft, self.tpot, self.e2e]
    }

    /// The largest distance between the distributions of two runs, for TTFT, TPOT and E2E.
    pub fn distances(&self, other: &Samples) -> [Option<f64>; 3] {
        let of = |a: &[f64], b: &[f64]| cdf_distance(&mut a.to_vec(), &mut b.to_vec());
        [of(&self.ttft, &other.ttft), of(&self.tpot, &other.tpot), of(&self.e2e, &other.e2e)]
    }
}

fn completed(parts: &[Part]) -> Option<f64> {
    let of = |r: &RequestRecords| {
        let done = || (0..r.len()).filter(|&i| r.finished(i));
        let last = done().map(|i| r.finish[i]).max()?;
        Some((done().count() as f64, (last - r.arrival.iter().min().copied()?).as_s()))
    };
    ratio(parts.iter().filter_map(|p| of(&p.told.records)))
}

/// The sum of the counts over the sum of the times in which they were counted.
fn ratio(of: impl Iterator<Item = (f64, f64)>) -> Option<f64> {
    let (count, span) = of.fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    (span > 0.0).then(|| count / span)
}

fn attainment(parts: &[Part]) -> Option<f64> {
    use foretoken_sim::Outcome::{Finished, Rejected};
    let (mut met, mut ended) = (0, 0);
    for Part { told, slo, own_tpot_s: own } in parts {
        let r = &told.records;
        if *slo == Slo::default() && !own.iter().take(r.len()).any(|s| s.is_finite()) {
            continue;
        }
        let meets = |i: &usize| slo.met_by(r, *i, own.get(*i).copied());
        ended += r.outcome.iter().filter(|o| matches!(o, Finished | Rejected)).count();
        met += (0..r.len()).filter(|&i| r.finished(i)).filter(meets).count();
    }
    (ended > 0).then(|| met as f64 / ended as f64)
}

/// Requests per second that closed loops of `clients` clients sustain. In each loop it counts from the finish by which
/// every client has had one answer to the finish at which the first client has nothing left to send. `None` if no loop
/// is long enough for such a middle part.
pub fn service_rate<'a>(runs: impl IntoIterator<Item = &'a RequestRecords>, clients: u32) -> Option<f64> {
    let clients = clients as usize;
    let middle = |r: &RequestRecords| {
        let mut finish: Vec<Time> = (0..r.len()).filter(|&i| r.finished(i)).map(|i| r.finish[i]).collect();
        finish.sort_unstable();
        let (first, last) = (clients.checked_sub(1)?, finish.len().checked_sub(clients)?);
        let span = finish.get(last)?.saturating_sub(*finish.get(first)?).as_s();
        (last > first).then(|| ((last - first) as f64, span))
    };
    ratio(runs.into_iter().filter_map(middle))
}

/// Decode batch size and draft length over time, as curves with a fixed number of bins up to `end`.
#[derive(Clone, Debug, PartialEq)]
pub struct Curves {
    /// Mean decode batch size of each bin; idle time counts as 0.
    pub batch_size: Vec<f64>,
    /// Mean draft tokens per request and step, of each bin.
    pub draft_len: Vec<f64>,
}

impl Curves {
    /// The mean of several runs' curves, up to `end`.
    pub fn of(runs: &[&[StepRecord]], end: Time) -> Curves {
        let width = (end.0 / BINS as u64).max(1);
        let mut bins = vec![(0.0, 0.0, 0.0); BINS];
        for s in runs.iter().copied().flatten() {
            let bin = &mut bins[((s.end.0 / width) as usize).min(BINS - 1)];
            bin.0 += f64::from(s.batch_size) * span_s(s) / Time(width).as_s();
            bin.1 += f64::from(s.drafted);
            bin.2 += f64::from(s.batch_size);
        }
        let n = runs.len().max(1) as f64;
        Curves {
            batch_size: bins.iter().map(|b| b.0 / n).collect(),
            draft_len: bins.iter().map(|b| if b.2 > 0.0 { b.1 / b.2 } else { 0.0 }).collect(),
        }
    }

    /// Errors of the curves against `other`, relative to its mean: batch size, then draft length.
    pub fn error(&self, other: &Curves) -> [Option<f64>; 2] {
        [curve_error(&self.batch_size, &other.batch_size), curve_error(&self.draft_len, &other.draft_len)]
    }
}

/// A number that is compared: its name, its unit, and the function that reads it.
pub type Quantity = (&'static str, Unit, fn(&Numbers) -> Option<f64>);

/// A number's unit, which decides how its error is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Seconds; the error is relative.
    Seconds,
    /// A rate or a mean count; the error is relative.
    Plain,
    /// A share in [0, 1]; the error is a difference.
    Share,
}

impl Unit {
    /// The error of `value` against `reference`.
    pub fn error(self, value: f64, reference: f64) -> Option<f64> {
        match self {
            Unit::Share => Some(value - reference),
            Unit::Seconds | Unit::Plain => relative(value, reference),
        }
    }
}

/// All numbers that are compared run by run.
pub const QUANTITIES: [Quantity; 18] = [
    ("step time, mean", Unit::Seconds, |n| n.step_s),
    ("TTFT, mean", Unit::Seconds, |n| n.ttft.map(|q| q.mean)),
    ("TTFT, P50", Unit::Seconds, |n| n.ttft.map(|q| q.p50)),
    ("TTFT, P90", Unit::Seconds, |n| n.ttft.map(|q| q.p90)),
    ("TTFT, P99", Unit::Seconds, |n| n.ttft.map(|q| q.p99)),
    ("TPOT, mean", Unit::Seconds, |n| n.tpot.map(|q| q.mean)),
    ("TPOT, P50", Unit::Seconds, |n| n.tpot.map(|q| q.p50)),
    ("TPOT, P90", Unit::Seconds, |n| n.tpot.map(|q| q.p90)),
    ("TPOT, P99", Unit::Seconds, |n| n.tpot.map(|q| q.p99)),
    ("E2E, mean", Unit::Seconds, |n| n.e2e.map(|q| q.mean)),
    ("E2E, P50", Unit::Seconds, |n| n.e2e.map(|q| q.p50)),
    ("E2E, P90", Unit::Seconds, |n| n.e2e.map(|q| q.p90)),
    ("E2E, P99", Unit::Seconds, |n| n.e2e.map(|q| q.p99)),
    ("completed requests/s", Unit::Plain, |n| n.completed_req_s),
    ("SLO attainment", Unit::Share, |n| n.slo_attainment),
    ("batch size", Unit::Plain, |n| n.batch_size),
    ("draft length", Unit::Plain, |n| n.draft_len),
    ("accepted / verified", Unit::Share, |n| n.accepted_of_verified),
];

#[cfg(test)]
mod tests {
    use super::*;
    use foretoken_sim::Outcome;

    fn s(x: f64) -> Time {
        Time::from_s(x)
    }

    fn told() -> Told {
        let mut r = RequestRecords::new(3);
        r.arrival = vec![s(0.0), s(1.0), s(2.0)];
        r.first_token = vec![s(0.5), s(1.2), Time::MAX];
        r.finish = vec![s(1.5), s(5.2), s(2.0)];
        r.emitted = vec![11, 11, 0];
        r.outcome = vec![Outcome::Finished, Outcome::Finished, Outcome::Rejected];
        let step = |start: f64, end: f64, batch_size| StepRecord {
            start: s(start),
            end: s(end),
            batch_size,
            drafted: 3 * batch_size,
            verified: 2 * batch_size,
            accepted: batch_size,
            ..StepRecord::default()
        };
        Told { records: r, steps: vec![step(0.0, 1.0, 2), step(1.0, 4.0, 4)] }
    }

    fn part(told: &Told, tpot_s: Option<f64>) -> Part<'_> {
        Part { told, slo: Slo { tpot_s, ..Slo::default() }, own_tpot_s: &[] }
    }

    #[test]
    fn numbers_are_those_worked_out_by_hand() {
        let n = Numbers::of(&[part(&told(), Some(0.2))]);
        assert_eq!((n.finished, n.step_s), (2, Some(2.0)));
        assert!((n.tpot.unwrap().mean - 0.25).abs() < 1e-12);
        assert_eq!(n.completed_req_s, Some(2.0 / 5.2));
        assert_eq!(n.slo_attainment, Some(1.0 / 3.0));
        assert_eq!(n.batch_size, Some((2.0 + 12.0) / 4.0));
        assert_eq!((n.draft_len, n.accepted_of_verified), (Some(3.0), Some(0.5)));
        assert_eq!(Numbers::of(&[part(&told(), None)]).slo_attainment, None);
    }

    /// Pooling a run with itself changes no mean, rate or median. Another run has the weight of its requests, steps and
    /// time.
    #[test]
    fn pooled_numbers_are_over_all_requests_and_steps() {
        let (one, mut other) = (told(), told());
        let (once, twice) =
            (Numbers::of(&[part(&one, Some(0.2))]), Numbers::of(&[part(&one, Some(0.2)), part(&one, Some(0.2))]));
        assert_eq!(twice.finished, 4);
        let means = |n: &Numbers| {
            let of = [n.ttft, n.tpot, n.e2e].map(|q| q.unwrap().mean);
            (of, n.step_s, n.completed_req_s, n.slo_attainment, n.batch_size, n.draft_len, n.accepted_of_verified)
        };
        assert_eq!(means(&once), means(&twice));
        other.steps.truncate(1);
        other.records.outcome[1] = Outcome::Rejected;
        let both = Numbers::of(&[part(&one, Some(0.2)), part(&other, None)]);
        assert_eq!((both.finished, both.step_s), (3, Some(5.0 / 3.0)));
        assert!((both.e2e.unwrap().mean - (1.5 + 4.2 + 1.5) / 3.0).abs() < 1e-12);
        assert_eq!(both.completed_req_s, Some(3.0 / (5.2 + 1.5)));
        assert_eq!(both.slo_attainment, once.slo_attainment, "only the first has bounds");
        assert_eq!(both.batch_size, Some((2.0 + 12.0 + 2.0) / 5.0));
        assert_eq!(Numbers::of(&[]), Numbers::default());
        let end = s(8.0);
        let (curve, laid) = (Curves::of(&[&one.steps], end), Curves::of(&[&one.steps, &one.steps], end));
        assert_eq!(curve, laid);
    }

    #[test]
    fn a_closed_loop_is_measured_in_its_middle() {
        let mut r = RequestRecords::new(8);
        r.outcome = vec![Outcome::Finished; 8];
        // Two clients and one answer per second, except for the slow start and the drained end.
        r.finish = [3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 20.0].map(s).to_vec();
        assert_eq!(service_rate([&r], 2), Some(1.0));
        assert_eq!(service_rate([&r], 8), None);
        assert_eq!(service_rate([&RequestRecords::new(0)], 2), None);
        // Five answers in five seconds, and five in ten; a run without a middle part does not count.
        let mut slow = r.clone();
        slow.finish.iter_mut().for_each(|at| *at = Time(2 * at.0));
        assert_eq!(service_rate([&r, &slow, &RequestRecords::new(3)], 2), Some(10.0 / 15.0));
        assert_eq!(service_rate([], 2), None);
    }

    #[test]
    fn idle_time_counts_in_the_batch_curve() {
        let curves = Curves::of(&[&told().steps], s(8.0));
        assert!((curves.batch_size.iter().sum::<f64>() / BINS as f64 - 14.0 / 8.0).abs() < 1e-9);
        assert_eq!(curves.error(&curves), [Some(0.0), Some(0.0)]);
    }
}
