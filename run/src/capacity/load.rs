//! The requests of an experiment (at one combination of swept values, with one seed), scaled to any request rate. The
//! requests and their random draws stay the same; only the gaps between arrivals are multiplied by a factor.

use crate::cells::play;
use crate::plan::{Plan, Variant};
use crate::setting::Setting;
use crate::spec::capacity::CapacitySpec;
use crate::spec::document::Path;
use crate::spec::problem::{Problem, Result};
use crate::workload::first;
use foretoken_sim::metrics::Slo;
use foretoken_sim::{Arrivals, RequestId, Time, arrival_rate};
use foretoken_traces::ArrivalSpec;
use serde::Serialize;
use std::ops::Range;
use std::sync::atomic::AtomicBool;

/// The requests of a capacity search, whose arrivals can be scaled to any rate.
#[derive(Clone, Debug)]
pub struct Load {
    /// The experiment's arrival times, shifted so that the first one is at 0.
    base: Vec<Time>,
    /// The mean rate of the arrivals `base`, requests per second. If the experiment has a time window of requests that
    /// count, the mean rate in this window.
    rate: f64,
    /// Ids of the requests whose SLO bounds count when it is decided whether a rate is carried. The requests before
    /// them fill the server, and the requests after them keep it full.
    pub counted: Range<RequestId>,
    /// Mean number of output tokens of a counted request.
    pub output_tokens: f64,
    /// The number of counted requests that may miss their SLO bounds at a rate that the server carries. A whole number.
    pub may_miss: f64,
    /// How evenly the requests' arrivals are spread over time.
    pub spread: Spread,
    /// Which requests of a log are run; `None` for generated arrivals.
    pub log: Option<Log>,
}

/// Which requests of a log a capacity search runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Log {
    /// Number of requests in the log, after the experiment's transforms of the arrivals.
    pub requests: u32,
    /// Seconds from the first request of the log to its last.
    pub span_s: f64,
    /// Number of requests of the log that are run before the requests whose SLO bounds count, to fill the server.
    pub before: u32,
    /// Number of requests of the log whose SLO bounds count when it is decided whether a rate is carried.
    pub counted: u32,
    /// Number of requests of the log that are run after the requests whose SLO bounds count, to keep the server full.
    pub behind: u32,
    /// The request rate, per second, of the part of the log that is run. If the experiment has a time window of
    /// requests that count, the rate in this window.
    pub rate: f64,
}

impl Load {
    /// Makes the load for a capacity search from the workload of `variant`. If the arrivals come from a log (a trace)
    /// and there is no time window, cuts the workload of `setting` to the log's first requests, as many as a probe
    /// needs.
    pub fn of(setting: &mut Setting, variant: &Variant, spec: &CapacitySpec) -> Result<Load> {
        if setting.arrivals() != Arrivals::Open {
            return Err(closed_loop());
        }
        let is_log = matches!(variant.experiment.workload.arrivals, ArrivalSpec::Trace(_));
        let arrival = &setting.workload.arrival;
        let (requests, span) = (arrival.len() as u32, arrival[arrival.len() - 1].saturating_sub(arrival[0]).as_s());
        let counted = match spec.window_s {
            Some(window) => in_window(arrival, window, variant)?,
            None => {
                if requests < spec.probe_requests() {
                    return Err(too_short(variant, spec, is_log, requests, span));
                }
                if is_log {
                    let few = first(&setting.workload, spec.probe_requests() as usize);
                    setting.set_workload(few);
                }
                spec.warm_up_requests..spec.warm_up_requests + spec.requests
            }
        };
        Load::of_counted(setting, spec, counted, is_log, (requests, span))
    }

    /// Makes the load for the search of a smallest fleet from the whole workload of `variant`. With a time window, only
    /// requests that arrive in it count. Without a window, all requests count except a warm-up of `warm_up_requests`
    /// requests at each end, but at most a tenth of all requests at each end. The answer says how many counted.
    pub fn whole(setting: &mut Setting, variant: &Variant, spec: &CapacitySpec) -> Result<Load> {
        if setting.arrivals() != Arrivals::Open {
            return Err(closed_loop());
        }
        let is_log = matches!(variant.experiment.workload.arrivals, ArrivalSpec::Trace(_));
        let arrival = &setting.workload.arrival;
        let (requests, span) = (arrival.len() as u32, arrival[arrival.len() - 1].saturating_sub(arrival[0]).as_s());
        let counted = match spec.window_s {
            Some(window) => in_window(arrival, window, variant)?,
            None => {
                let edge = spec.warm_up_requests.min(requests / 10);
                edge..requests - edge
            }
        };
        if spec.share < 1.0 && (1.0 - spec.share) * counted.len() as f64 + 1e-9 < 1.0 {
            let message = format!("{} counted requests are too few for a share of {}", counted.len(), spec.share);
            let problem = variant.document().problem_at(&Path::of("workload"), message);
            let least = (1.0 / (1.0 - spec.share)).ceil();
            return Err(problem.help(format!("at least {least} must count; or ask for less: --set capacity.share=0.9")));
        }
        Load::of_counted(setting, spec, counted, is_log, (requests, span))
    }

    fn of_counted(
        setting: &Setting,
        spec: &CapacitySpec,
        counted: Range<RequestId>,
        is_log: bool,
        (requests, span): (u32, f64),
    ) -> Result<Load> {
        let w = &setting.workload;
        let first = w.arrival[0];
        let base: Vec<Time> = w.arrival.iter().map(|&t| t.saturating_sub(first)).collect();
        let end = base[base.len() - 1].as_s();
        if end <= 0.0 {
            return Err(Problem::bad_input("all requests come at once: there is no rate to change"));
        }
        let output = |i: RequestId| f64::from(w.output_len[i as usize]);
        let output_tokens = counted.clone().map(output).sum::<f64>() / counted.len() as f64;
        let rate = match spec.window_s {
            Some([from, to]) => counted.len() as f64 / (to - from),
            None => arrival_rate(base.len(), end).unwrap_or_default(),
        };
        let log = is_log.then(|| Log {
            requests,
            span_s: span,
            before: counted.start,
            counted: counted.len() as u32,
            behind: base.len() as u32 - counted.end,
            rate,
        });
        // The number of requests that may miss their bounds is rounded down, so that at least the wanted share keeps
        // its bounds. With 150 requests and a share of 0.99, one request may miss its bounds.
        let may_miss = ((1.0 - spec.share) * counted.len() as f64 + 1e-9).floor();
        Ok(Load { rate, spread: Spread::of(&base), base, counted, output_tokens, may_miss, log })
    }

    /// Scales the experiment's arrivals to `rate` requests per second, and returns the arrival times. `rate` is the
    /// mean rate or, if the experiment has a time window, the rate in this window. All times are multiplied by one
    /// factor, as the transform `rate-scale` does.
    pub fn at(&self, rate: f64) -> Vec<Time> {
        let stretch = self.rate / rate;
        self.base.iter().map(|t| Time::from_s(t.as_s() * stretch)).collect()
    }

    /// The lowest request rate that a capacity search tries, per second. At this rate the last request arrives after
    /// 10⁷ s (a third of a year), which the simulated clock can still count.
    pub fn floor(&self) -> f64 {
        const LONGEST_S: f64 = 1e7;
        self.rate * self.base[self.base.len() - 1].as_s() / LONGEST_S
    }

    /// The request rate of the experiment's arrivals before scaling, per second. It is the mean rate or, if the
    /// experiment has a time window, the rate in this window.
    pub fn own_rate(&self) -> f64 {
        self.rate
    }
}

fn closed_loop() -> Box<Problem> {
    Problem::bad_input("a closed loop has no rate of its own: its clients wait, and so do the users of sessions")
        .help("give requests that come by themselves: workload.arrivals = { poisson = { rate = 5.0 } }")
}

/// The ids of the requests that arrive in the time window (from, to), seconds of the workload. It is an error if there
/// is no such request, or if the window ends long after the last request.
fn in_window(arrival: &[Time], [from, to]: [f64; 2], variant: &Variant) -> Result<Range<RequestId>> {
    let first_id_from = |s: f64| arrival.partition_point(|&t| t < Time::from_s(s)) as RequestId;
    let counted = first_id_from(from)..first_id_from(to);
    let last = arrival[arrival.len() - 1].as_s();
    let wrong = |message: String| {
        let problem = variant.document().problem_at(&Path::of("capacity.window_s"), message);
        problem.help(format!("the {} requests come from {:.1} to {last:.1} s", arrival.len(), arrival[0].as_s()))
    };
    if counted.is_empty() {
        return Err(wrong(format!("no request comes from {from} to {to} s")));
    }
    // A time window that ends long after the last request would give a request rate that is too low.
    if to - last > PAST_THE_END * (to - from) {
        return Err(wrong(format!("the window ends at {to} s, and the last request comes at {last:.1} s")));
    }
    Ok(counted)
}

/// A time window may end after the last request by at most this share of the window's length. The share is not 0,
/// because the arrivals end with a gap after the last request.
const PAST_THE_END: f64 = 0.01;

/// The error for a workload with fewer requests than one run of a capacity search needs. The error points at
/// `capacity.requests`.
fn too_short(variant: &Variant, spec: &CapacitySpec, is_log: bool, requests: u32, span_s: f64) -> Box<Problem> {
    let CapacitySpec { requests: counted, warm_up_requests: warm_up, share, .. } = spec;
    let what = if is_log { "the log" } else { "the workload" };
    let message = format!(
        "{what} has {requests} requests in {span_s:.1} s, and a probe takes {}: {warm_up} that fill the server, {counted} that \
         count, and {warm_up} that keep it full",
        spec.probe_requests()
    );
    let warm_up = (*warm_up).min(requests / 10);
    let fewer = requests.saturating_sub(2 * warm_up);
    let least = if *share < 1.0 { (1.0 / (1.0 - share) - 1e-9).ceil() } else { 1.0 };
    let mut help =
        format!("ask about fewer: --set capacity.requests={fewer} --set capacity.warm_up_requests={warm_up}");
    if f64::from(fewer) < least {
        help = match fewer {
            0 | 1 => "ask about a longer log".to_owned(),
            // With the share that the hint advises, at least one request may miss its bounds: for example 0.9 of 10
            // requests must keep them.
            _ => format!("{help} --set capacity.share={:?}", (1.0 - 1.0 / f64::from(fewer)).min(0.9)),
        };
    }
    let problem = variant.document().problem_at(&Path::of("capacity.requests"), message);
    problem.help(help)
}

/// How evenly the arrivals of requests are spread over time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The request rate in the busiest twentieth of the time / the mean rate.
    pub peak: f64,
    /// Does the load change in time? True if `peak` is higher than independent arrivals would show by chance.
    pub changes: bool,
}

/// Number of equal parts into which the time of the arrivals is divided to find the busiest part.
const PARTS: usize = 20;
/// A load counts as changing in time only if the rate in its busiest part is above this multiple of the mean rate.
const VARIES: f64 = 1.6;
/// A load counts as changing in time only if independent arrivals would reach the rate of its busiest part with a
/// probability below this.
const CHANCE: f64 = 1e-3;

impl Spread {
    fn of(base: &[Time]) -> Spread {
        let end = base[base.len() - 1].as_s();
        let mut counts = [0usize; PARTS];
        base.iter().for_each(|t| counts[((t.as_s() / end * PARTS as f64) as usize).min(PARTS - 1)] += 1);
        let most = counts.iter().copied().max().unwrap_or(0);
        let peak = (most * PARTS) as f64 / base.len() as f64;
        Spread { peak, changes: peak > VARIES && by_chance(base.len(), most) < CHANCE }
    }
}

/// An upper bound on the probability that one of the [`PARTS`] equal parts of the time has `most` or more of `n`
/// requests, if requests arrive independently at a constant rate. The bound is Chernoff's bound for one part, exp(−n ·
/// KL(most / n ‖ 1 / 20)), times the number of parts.
fn by_chance(n: usize, most: usize) -> f64 {
    let (a, p) = (most as f64 / n as f64, 1.0 / PARTS as f64);
    let part = |a: f64, p: f64| if a > 0.0 { a * (a / p).ln() } else { 0.0 };
    let divergence = part(a, p) + part(1.0 - a, 1.0 - p);
    PARTS as f64 * (-(n as f64) * divergence).exp()
}

/// The SLO bounds of `setting` (requests and server at one combination of swept values with one seed). If the
/// experiment gives the TPOT bound as a multiple, the bound is this multiple of the P90 TPOT of autoregressive
/// decoding with one request at a time. It is an error if there is no bound at all.
pub(crate) fn slo(setting: &mut Setting, plan: &Plan, flag: &AtomicBool) -> Result<Slo> {
    let plain = &plan.policies[plan.baseline].spec;
    let scaled = plan.variants[0].experiment.slo.adaspec_scale.is_some();
    let mut slo = setting.slo(None);
    if scaled {
        let arrivals = setting.arrivals();
        setting.set_arrivals(Arrivals::Closed { clients: 1 });
        let played = play(setting, plain, Some(Slo::default()), flag);
        setting.set_arrivals(arrivals);
        slo = setting.slo(played?.stored.summary.tpot.map(|q| q.p90));
    }
    if slo == Slo::default() && setting.workload.slo_tpot_s.is_empty() {
        return Err(Problem::bad_input("the experiment has no SLO, so every load would be carried")
            .help("give it bounds: --set slo.ttft_s=0.5 --set slo.tpot_s=0.05"));
    }
    Ok(slo)
}

#[cfg(test)]
mod tests {
    use super::*;
    use foretoken_sim::{Draws, Luck, Stream};

    /// The arrival times of a Poisson process with `n` requests at a constant rate; the first arrives at 0.
    fn poisson(n: usize, seed: u64) -> Vec<Time> {
        let mut draws = Draws::new(seed, Stream::Arrivals, 0);
        let mut at = 0.0;
        let gaps = (0..n).map(|_| -(1.0 - draws.unit()).ln());
        let times: Vec<f64> = gaps
            .map(|gap| {
                at += gap;
                at
            })
            .collect();
        times.iter().map(|&t| Time::from_s(t - times[0])).collect()
    }

    /// Of a thousand Poisson loads with each number of requests, at most three may be reported as changing in time.
    #[test]
    fn poisson_arrivals_do_not_count_as_changing_in_time() {
        for n in [30, 100, 240, 600, 2400] {
            let reported = (0..1000).filter(|&seed| Spread::of(&poisson(n, seed)).changes).count();
            assert!(reported <= 3, "{reported} of 1000 Poisson loads of {n} requests");
        }
    }

    #[test]
    fn the_bound_on_the_probability_is_above_the_simulated_share() {
        let (n, most) = (240, 22);
        let busy = (0..4000).filter(|&seed| {
            let mut counts = [0; PARTS];
            let luck = Luck::new(seed, Stream::Arrivals, 0);
            (0..n as u64).for_each(|i| counts[(luck.unit(i) * PARTS as f64) as usize] += 1);
            counts.iter().any(|&c| c >= most)
        });
        let found = busy.count() as f64 / 4000.0;
        assert!(found > 0.01 && by_chance(n, most) > found, "{found}: bounded by {}", by_chance(n, most));
    }

    #[test]
    fn a_load_with_a_busy_tenth_changes_in_time() {
        let mut at = poisson(240, 1);
        let end = at[239];
        (0..60).for_each(|i| at[i * 4] = Time::from_s(end.as_s() * (0.5 + i as f64 / 600.0)));
        at.sort_unstable();
        let spread = Spread::of(&at);
        assert!(spread.changes && spread.peak > 2.0, "{spread:?}");
    }
}
