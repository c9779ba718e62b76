//! The numbers in which runs are compared, such as mean TPOT. The same code computes them from observed and from
//! simulated runs. Several runs can be pooled: means and quantiles are then over the requests and steps of all runs.

use crate::compare::latencies::Latencies;
use crate::compare::service_rate::CountedOver;
use foretoken_profiler::median;
use foretoken_sim::metrics::{Quantiles, Slo};
use foretoken_sim::{RequestRecords, StepRecord};
use serde::{Deserialize, Serialize};

/// The latencies, rates and counts of one run, or of several pooled runs. A number is `None` if the runs do not show
/// it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Numbers {
    /// Number of requests that emitted their whole output in the run.
    pub finished: u64,
    /// Output tokens of finished requests per second, from the first arrival to the last finish.
    pub throughput_tok_s: Option<f64>,
    /// Time to first token, seconds: mean and quantiles over finished requests.
    pub ttft: Option<Quantiles>,
    /// Time per output token after the first, seconds: mean and quantiles over finished requests.
    pub tpot: Option<Quantiles>,
    /// End-to-end latency, seconds: mean and quantiles over finished requests.
    pub e2e: Option<Quantiles>,
    /// Mean time of an engine step, seconds.
    pub step_s: Option<f64>,
    /// Finished requests per second, from the first arrival to the last finish.
    pub completed_req_s: Option<f64>,
    /// Share of finished and rejected requests that met every latency bound (SLO); `None` without a bound.
    pub slo_attainment: Option<f64>,
    /// Mean number of decode requests in a step, weighted by the step's time.
    pub batch_size: Option<f64>,
    /// Mean number of draft tokens of a decode request in a step.
    pub draft_len: Option<f64>,
    pub accepted_of_verified: Option<f64>,
}

/// The records of requests and steps of a run from which its numbers are computed.
#[derive(Clone, Copy)]
pub struct RunRecords<'a> {
    pub requests: &'a RequestRecords,
    /// One record per step of the run; empty if the steps are not known.
    pub steps: &'a [StepRecord],
    /// The latency bounds (SLO) that all requests of the run have.
    pub slo: Slo,
    /// `own_tpot_s[i]` is the TPOT bound of request i alone, seconds; infinity if it has none. Empty if no request
    /// has a bound of its own.
    pub own_tpot_s: &'a [f64],
}

impl<'a> RunRecords<'a> {
    /// The records of a run whose steps are not known and whose requests have no latency bounds (SLO).
    pub fn requests_only(requests: &'a RequestRecords) -> RunRecords<'a> {
        RunRecords { requests, steps: &[], slo: Slo::default(), own_tpot_s: &[] }
    }
}

impl Numbers {
    /// The numbers of several runs, pooled: means and quantiles are over the requests and steps of all runs.
    pub fn of(runs: &[RunRecords]) -> Numbers {
        let latencies = Latencies::of(runs.iter().map(|r| r.requests));
        let quantiles = |x: &[f64]| Quantiles::of(&mut x.to_vec());
        let steps = || runs.iter().flat_map(|r| r.steps);
        let n = steps().count() as f64;
        let busy: f64 = steps().map(span_s).sum();
        let sum = |f: &dyn Fn(&StepRecord) -> u64| steps().map(f).sum::<u64>() as f64;
        let request_steps = sum(&|s| s.batch_size.into());
        let verified = sum(&|s| s.verified.into());
        let over = |a: f64, b: f64| (b > 0.0).then(|| a / b);
        Numbers {
            finished: latencies.e2e.len() as u64,
            throughput_tok_s: rate(runs, |r, i| f64::from(r.emitted[i])),
            ttft: quantiles(&latencies.ttft),
            tpot: quantiles(&latencies.tpot),
            e2e: quantiles(&latencies.e2e),
            step_s: over(busy, n),
            completed_req_s: rate(runs, |_, _| 1.0),
            slo_attainment: attainment(runs),
            batch_size: over(steps().map(|s| f64::from(s.batch_size) * span_s(s)).sum(), busy),
            draft_len: over(sum(&|s| s.drafted.into()), request_steps),
            accepted_of_verified: over(sum(&|s| s.accepted.into()), verified),
        }
    }

    /// For each number, such as mean TPOT: its mean over several runs. `finished` is the sum over the runs. A number is
    /// `None` if any run lacks it.
    pub fn mean(runs: &[Numbers]) -> Numbers {
        Numbers::number_by_number(runs, |values| values.iter().sum::<f64>() / values.len() as f64)
    }

    /// For each number, such as mean TPOT: its median over several runs. `finished` is the sum over the runs. A number
    /// is `None` if any run lacks it.
    pub fn median(runs: &[Numbers]) -> Numbers {
        Numbers::number_by_number(runs, median)
    }

    fn number_by_number(runs: &[Numbers], middle: fn(Vec<f64>) -> f64) -> Numbers {
        let number = |f: &dyn Fn(&Numbers) -> Option<f64>| {
            runs.iter().map(f).collect::<Option<Vec<f64>>>().filter(|values| !values.is_empty()).map(middle)
        };
        let quantiles = |latency: fn(&Numbers) -> Option<Quantiles>| {
            Some(Quantiles {
                mean: number(&|x| latency(x).map(|q| q.mean))?,
                p50: number(&|x| latency(x).map(|q| q.p50))?,
                p90: number(&|x| latency(x).map(|q| q.p90))?,
                p99: number(&|x| latency(x).map(|q| q.p99))?,
            })
        };
        Numbers {
            finished: runs.iter().map(|x| x.finished).sum(),
            throughput_tok_s: number(&|x| x.throughput_tok_s),
            ttft: quantiles(|x| x.ttft),
            tpot: quantiles(|x| x.tpot),
            e2e: quantiles(|x| x.e2e),
            step_s: number(&|x| x.step_s),
            completed_req_s: number(&|x| x.completed_req_s),
            slo_attainment: number(&|x| x.slo_attainment),
            batch_size: number(&|x| x.batch_size),
            draft_len: number(&|x| x.draft_len),
            accepted_of_verified: number(&|x| x.accepted_of_verified),
        }
    }
}

fn span_s(step: &StepRecord) -> f64 {
    (step.end - step.start).as_s()
}

/// The sum of `amount` over finished requests, divided by the summed time of the runs in seconds. The time of a run
/// goes from its first arrival to its last finish. `amount` gets the records of a run and a request's index. `None` if
/// the time is 0.
fn rate(runs: &[RunRecords], amount: impl Fn(&RequestRecords, usize) -> f64) -> Option<f64> {
    let counted = |r: &RequestRecords| {
        let done = || (0..r.len()).filter(|&i| r.finished(i));
        let last = done().map(|i| r.finish[i]).max()?;
        let seconds = (last - r.arrival.iter().min().copied()?).as_s();
        Some(CountedOver { count: done().map(|i| amount(r, i)).sum(), seconds })
    };
    CountedOver::rate(runs.iter().filter_map(|run| counted(run.requests)))
}

fn attainment(runs: &[RunRecords]) -> Option<f64> {
    use foretoken_sim::Outcome::{Finished, Rejected};
    let (mut met, mut ended) = (0, 0);
    for RunRecords { requests: r, slo, own_tpot_s: own, .. } in runs {
        if *slo == Slo::default() && !own.iter().take(r.len()).any(|s| s.is_finite()) {
            continue;
        }
        let meets = |i: &usize| slo.met_by(r, *i, own.get(*i).copied());
        ended += r.outcome.iter().filter(|o| matches!(o, Finished | Rejected)).count();
        met += (0..r.len()).filter(|&i| r.finished(i)).filter(meets).count();
    }
    (ended > 0).then(|| met as f64 / ended as f64)
}

/// A kind of number that is compared, such as mean TPOT.
pub struct Quantity {
    /// The name of the compared number, such as mean TPOT, in tables and in `validation.json`.
    pub name: &'static str,
    /// The unit of the compared number (such as mean TPOT), which decides how its error is computed.
    pub unit: Unit,
    /// A function that reads the compared number (such as mean TPOT) from all numbers of a run.
    pub read: fn(&Numbers) -> Option<f64>,
}

/// The unit of a compared number, which decides how its error is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// The compared number (such as mean TPOT) is in seconds. Its error is relative.
    Seconds,
    /// The compared number is a rate or a mean count, such as requests per second. Its error is relative.
    Plain,
    /// The compared number is a share in [0, 1]. Its error is the difference of the shares.
    Share,
}

impl Unit {
    /// The error of the predicted `value` against the observed `reference`. A relative error is `None` if the reference
    /// is not above 0, or if the value is not finite.
    pub fn error(self, value: f64, reference: f64) -> Option<f64> {
        match self {
            Unit::Share => Some(value - reference),
            Unit::Seconds | Unit::Plain => (reference > 0.0 && value.is_finite()).then(|| value / reference - 1.0),
        }
    }
}

pub const TPOT: &str = "TPOT, mean";
pub const TTFT: &str = "TTFT, mean";
/// The name of the quantity mean end-to-end latency.
pub const E2E: &str = "E2E, mean";
/// The name of the quantity finished requests per second.
pub const COMPLETED: &str = "completed requests/s";
/// The name of the quantity output tokens of finished requests per second.
pub const THROUGHPUT: &str = "throughput";

const fn seconds(name: &'static str, read: fn(&Numbers) -> Option<f64>) -> Quantity {
    Quantity { name, unit: Unit::Seconds, read }
}

const fn plain(name: &'static str, read: fn(&Numbers) -> Option<f64>) -> Quantity {
    Quantity { name, unit: Unit::Plain, read }
}

const fn share(name: &'static str, read: fn(&Numbers) -> Option<f64>) -> Quantity {
    Quantity { name, unit: Unit::Share, read }
}

/// All numbers of runs that are compared, in the order of the tables. A comparison leaves out numbers that its runs do
/// not show.
pub const QUANTITIES: [Quantity; 19] = [
    seconds("step time, mean", |n| n.step_s),
    seconds(TTFT, |n| n.ttft.map(|q| q.mean)),
    seconds("TTFT, P50", |n| n.ttft.map(|q| q.p50)),
    seconds("TTFT, P90", |n| n.ttft.map(|q| q.p90)),
    seconds("TTFT, P99", |n| n.ttft.map(|q| q.p99)),
    seconds(TPOT, |n| n.tpot.map(|q| q.mean)),
    seconds("TPOT, P50", |n| n.tpot.map(|q| q.p50)),
    seconds("TPOT, P90", |n| n.tpot.map(|q| q.p90)),
    seconds("TPOT, P99", |n| n.tpot.map(|q| q.p99)),
    seconds(E2E, |n| n.e2e.map(|q| q.mean)),
    seconds("E2E, P50", |n| n.e2e.map(|q| q.p50)),
    seconds("E2E, P90", |n| n.e2e.map(|q| q.p90)),
    seconds("E2E, P99", |n| n.e2e.map(|q| q.p99)),
    plain(COMPLETED, |n| n.completed_req_s),
    plain(THROUGHPUT, |n| n.throughput_tok_s),
    share("SLO attainment", |n| n.slo_attainment),
    plain("batch size", |n| n.batch_size),
    plain("draft length", |n| n.draft_len),
    share("accepted / verified", |n| n.accepted_of_verified),
];

#[cfg(test)]
mod tests {
    use super::*;
    use foretoken_sim::{Outcome, Time};

    struct Records {
        requests: RequestRecords,
        steps: Vec<StepRecord>,
    }

    fn s(x: f64) -> Time {
        Time::from_s(x)
    }

    fn records() -> Records {
        let mut requests = RequestRecords::new(3);
        requests.arrival = vec![s(0.0), s(1.0), s(2.0)];
        requests.first_token = vec![s(0.5), s(1.2), Time::MAX];
        requests.finish = vec![s(1.5), s(5.2), s(2.0)];
        requests.emitted = vec![11, 11, 0];
        requests.outcome = vec![Outcome::Finished, Outcome::Finished, Outcome::Rejected];
        let step = |start: f64, end: f64, batch_size| StepRecord {
            start: s(start),
            end: s(end),
            batch_size,
            drafted: 3 * batch_size,
            verified: 2 * batch_size,
            accepted: batch_size,
            ..StepRecord::default()
        };
        Records { requests, steps: vec![step(0.0, 1.0, 2), step(1.0, 4.0, 4)] }
    }

    fn run(records: &Records, tpot_s: Option<f64>) -> RunRecords<'_> {
        let slo = Slo { tpot_s, ..Slo::default() };
        RunRecords { requests: &records.requests, steps: &records.steps, slo, own_tpot_s: &[] }
    }

    #[test]
    fn numbers_are_those_worked_out_by_hand() {
        let n = Numbers::of(&[run(&records(), Some(0.2))]);
        assert_eq!((n.finished, n.step_s), (2, Some(2.0)));
        assert!((n.tpot.unwrap().mean - 0.25).abs() < 1e-12);
        assert_eq!((n.completed_req_s, n.throughput_tok_s), (Some(2.0 / 5.2), Some(22.0 / 5.2)));
        assert_eq!(n.slo_attainment, Some(1.0 / 3.0));
        assert_eq!(n.batch_size, Some((2.0 + 12.0) / 4.0));
        assert_eq!((n.draft_len, n.accepted_of_verified), (Some(3.0), Some(0.5)));
    }

    #[test]
    fn without_a_bound_there_is_no_attainment() {
        assert_eq!(Numbers::of(&[run(&records(), None)]).slo_attainment, None);
        assert_eq!(Numbers::of(&[]), Numbers::default());
    }

    #[test]
    fn pooling_a_run_with_itself_changes_no_mean_and_no_rate() {
        let one = records();
        let once = Numbers::of(&[run(&one, Some(0.2))]);
        let twice = Numbers::of(&[run(&one, Some(0.2)), run(&one, Some(0.2))]);
        assert_eq!(twice.finished, 4);
        let means = |n: &Numbers| {
            let latencies = [n.ttft, n.tpot, n.e2e].map(|q| q.unwrap().mean);
            (latencies, n.step_s, n.completed_req_s, n.slo_attainment, n.batch_size, n.draft_len)
        };
        assert_eq!(means(&once), means(&twice));
    }

    #[test]
    fn a_pooled_run_has_the_weight_of_its_requests_steps_and_time() {
        let (one, mut other) = (records(), records());
        other.steps.truncate(1);
        other.requests.outcome[1] = Outcome::Rejected;
        let both = Numbers::of(&[run(&one, Some(0.2)), run(&other, None)]);
        assert_eq!((both.finished, both.step_s), (3, Some(5.0 / 3.0)));
        assert!((both.e2e.unwrap().mean - (1.5 + 4.2 + 1.5) / 3.0).abs() < 1e-12);
        assert_eq!(both.completed_req_s, Some(3.0 / (5.2 + 1.5)));
        assert_eq!(both.slo_attainment, Some(1.0 / 3.0), "only the first has bounds");
        assert_eq!(both.batch_size, Some((2.0 + 12.0 + 2.0) / 5.0));
    }

    #[test]
    fn a_number_that_one_run_lacks_has_no_median() {
        let whole = Numbers::of(&[run(&records(), None)]);
        let without_steps = Numbers { step_s: None, ..whole };
        let median = Numbers::median(&[whole, without_steps]);
        assert_eq!((median.step_s, median.completed_req_s), (None, whole.completed_req_s));
        assert_eq!(Numbers::median(&[]), Numbers::default());
    }

    #[test]
    fn errors_of_shares_are_differences() {
        assert_eq!(Unit::Share.error(0.25, 0.5), Some(-0.25));
        assert_eq!(Unit::Seconds.error(1.0, 0.5), Some(1.0));
        assert_eq!(Unit::Seconds.error(1.0, 0.0), None);
    }
}
