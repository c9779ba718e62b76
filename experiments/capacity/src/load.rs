//! The requests of a setting at any rate: the same requests and the same luck, with the gaps between them stretched.

use foretoken_run::setting::Setting;
use foretoken_sim::{Arrivals, RequestId, Time};
use foretoken_spec::capacity::CapacitySpec;
use foretoken_spec::problem::{Problem, Result};
use std::ops::Range;

/// Requests at a rate that can be chosen.
#[derive(Clone, Debug)]
pub struct Load {
    /// Arrivals as the experiment has them.
    base: Vec<Time>,
    /// Their rate, requests a second: on average, or in the window that is asked about.
    rate: f64,
    /// The requests that count.
    pub counted: Range<RequestId>,
    /// Output tokens of a request that counts, on average.
    pub output_tokens: f64,
    /// The rate in the busiest twentieth of the time, over the mean rate.
    pub peak: f64,
}

/// Stretches of time that are compared.
const STRETCHES: usize = 20;

impl Load {
    /// Of a setting's workload.
    ///
    /// # Errors
    /// A closed loop has no rate; too few requests, or all at once.
    pub fn of(setting: &Setting, spec: &CapacitySpec) -> Result<Load> {
        let w = &setting.workload;
        if setting.arrivals() != Arrivals::Open {
            return Err(Problem::bad_input("a closed loop has no rate of its own: its clients wait")
                .help("give requests that come by themselves: workload.arrivals = { poisson = { rate = 5.0 } }"));
        }
        let counted = match spec.window_s {
            Some([from, to]) => {
                let at = |s: f64| w.arrival.partition_point(|&t| t < Time::from_s(s)) as RequestId;
                at(from)..at(to)
            }
            None => spec.warm_up_requests..spec.warm_up_requests + spec.requests,
        };
        let n = w.len() as RequestId;
        if counted.is_empty() || counted.end > n {
            let message =
                format!("the workload has {n} requests, of which {} to {} are to count", counted.start, counted.end);
            return Err(Problem::bad_input(message)
                .help("lower capacity.requests and capacity.warm_up_requests, or move capacity.window_s"));
        }
        let (first, last) = (w.arrival[0], w.arrival[w.len() - 1]);
        let span = last.saturating_sub(first).as_s();
        if span <= 0.0 {
            return Err(Problem::bad_input("all requests come at once: there is no rate to change"));
        }
        let of = |i: RequestId| f64::from(w.output_len[i as usize]);
        let output_tokens = counted.clone().map(of).sum::<f64>() / counted.len() as f64;
        let base: Vec<Time> = w.arrival.iter().map(|&t| t.saturating_sub(first)).collect();
        let rate = match spec.window_s {
            Some([from, to]) => counted.len() as f64 / (to - from),
            None => f64::from(n - 1) / span,
        };
        Ok(Load { rate, peak: peak(&base), base, counted, output_tokens })
    }

    /// The arrivals at a rate, requests a second: on average, or in the window.
    pub fn at(&self, rate: f64) -> Vec<Time> {
        let stretch = self.rate / rate;
        self.base.iter().map(|t| Time::from_s(t.as_s() * stretch)).collect()
    }

    /// The lowest rate that is asked about: all requests in a third of a year, which the clock still holds.
    pub fn floor(&self) -> f64 {
        const LONGEST_S: f64 = 1e7;
        self.rate * self.base[self.base.len() - 1].as_s() / LONGEST_S
    }

    /// The rate that the experiment itself has.
    pub fn own_rate(&self) -> f64 {
        self.rate
    }
}

fn peak(base: &[Time]) -> f64 {
    let end = base[base.len() - 1].as_s();
    let mut counts = [0usize; STRETCHES];
    base.iter().for_each(|t| counts[((t.as_s() / end * STRETCHES as f64) as usize).min(STRETCHES - 1)] += 1);
    let most = counts.iter().copied().max().unwrap_or(0);
    (most * STRETCHES) as f64 / base.len() as f64
}
