//! Requests in bursts of small batches, as in the trace of the Azure 2023 code service.
//!
//! Silent periods alternate with active periods. The length of a silent period is log-normal, but at least a minimum.
//! The length of an active period has a Weibull distribution. In an active period batches arrive as a Poisson process.
//! The rate of this process is drawn once for each period, and varies around the drawn value by a random factor, the
//! flicker. A batch has a geometric number of requests, a few milliseconds apart.

use super::log_ou::{CELLS, LogOu};
use super::{Effort, Stalled, exponential, log_normal};
use crate::checks::{not_negative, positive, span, variation, within};
use crate::error::TraceError;
use foretoken_sim::Draws;
use foretoken_sim::Time;
use rand_distr::Distribution;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Active and silent periods in turn; in active periods small batches of requests arrive. The defaults were fitted to
/// the Azure 2023 code hour: the data have 2.57 requests a second and a coefficient of variation of the gaps of 13.2,
/// the model 2.59 and 14.2.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AzureCode {
    /// Shape of the Weibull distribution of an active period's length, > 0.
    pub on_shape: f64,
    /// Scale of the Weibull distribution of an active period's length, seconds, > 0.
    pub on_scale_s: f64,
    /// Mean of the natural logarithm of a silent period's length in seconds. In it no batch of requests starts.
    pub off_mu: f64,
    /// Standard deviation of the natural logarithm of a silent period's length, 0 to 10.
    pub off_sigma: f64,
    /// Shortest silent period (in which no batch of requests starts), seconds, ≥ 0. Shorter draws get this length.
    pub off_min_s: f64,
    /// Mean of the natural logarithm of an active period's rate in requests a second.
    pub rate_mu: f64,
    /// Standard deviation of the natural logarithm of an active period's rate, 0 to 10.
    pub rate_sigma: f64,
    /// Coefficient of variation of the flicker, a random factor on the rate within an active period, ≥ 0.
    pub flicker_cv: f64,
    /// Correlation time of the flicker (the random factor on the rate within an active period), seconds, > 0.
    pub flicker_tau_s: f64,
    /// Mean number of requests in a batch (requests that arrive milliseconds apart), 1 to 100000. The number is
    /// geometric.
    pub batch_mean: f64,
    /// Mean of the natural logarithm of the gaps, in seconds, between the requests of a batch.
    pub gap_mu: f64,
    /// Standard deviation of the natural logarithm of the gaps between the requests of a batch, 0 to 10.
    pub gap_sigma: f64,
    /// Probability that the workload starts with a silent period (in which no batch of requests starts), [0, 1].
    pub start_off: f64,
}

impl Default for AzureCode {
    fn default() -> Self {
        AzureCode {
            on_shape: 1.19,
            on_scale_s: 13.65,
            off_mu: 2.880,
            off_sigma: 1.192,
            off_min_s: 3.0,
            rate_mu: 2.228,
            rate_sigma: 0.30,
            flicker_cv: 0.6,
            flicker_tau_s: 1.5,
            batch_mean: 1.7,
            gap_mu: -6.6,
            gap_sigma: 1.6,
            start_off: 0.73,
        }
    }
}

impl AzureCode {
    pub(crate) fn check(&self, key: &str) -> Result<(), TraceError> {
        let path = |name: &str| format!("{key}.{name}");
        positive(&path("on_shape"), self.on_shape)?;
        positive(&path("on_scale_s"), self.on_scale_s)?;
        not_negative(&path("off_min_s"), self.off_min_s)?;
        span(&path("flicker_tau_s"), self.flicker_tau_s)?;
        variation(&path("flicker_cv"), self.flicker_cv)?;
        // Limits the standard deviations of logarithms: a normal draw exceeds 5 once in millions of draws, so with a
        // standard deviation above 10 it would give factors above e^50.
        for (name, sigma) in
            [("off_sigma", self.off_sigma), ("rate_sigma", self.rate_sigma), ("gap_sigma", self.gap_sigma)]
        {
            within(&path(name), sigma, 0.0, 10.0, "the scale of a logarithm, from 0 to 10")?;
        }
        // Limits the means of logarithms to 20: e^20 is 485 million. With larger means all arrivals are simultaneous,
        // or no request ever arrives.
        let logarithms = [("off_mu", self.off_mu), ("rate_mu", self.rate_mu), ("gap_mu", self.gap_mu)];
        if let Some((name, value)) = logarithms.iter().find(|(_, v)| !(-20.0..=20.0).contains(v)) {
            let hint = "it is the natural logarithm of seconds or of requests/s";
            return Err(TraceError::spec(format!("{key}.{name}"), format!("{value:?} is not within ±20"), hint));
        }
        if self.batch_mean < 1.0 {
            let what = format!("{:?} is below 1: a batch has a request", self.batch_mean);
            return Err(TraceError::spec(path("batch_mean"), what, "expected a mean number of requests, at least 1"));
        }
        within(&path("batch_mean"), self.batch_mean, 1.0, 1e5, "a mean number of requests from 1 to 100000")?;
        if !(0.0..=1.0).contains(&self.start_off) {
            let what = format!("{:?} is not a probability", self.start_off);
            return Err(TraceError::spec(format!("{key}.start_off"), what, ""));
        }
        Ok(())
    }
}

/// Draws the arrival times of [`AzureCode`]. Each is drawn only when it is needed, because an active period may be as
/// long as the clock can count.
pub(crate) struct OnOffArrivals {
    p: AzureCode,
    draws: Draws,
    /// Arrival times that are drawn and not yet returned, earliest first. The requests of a batch may come after the
    /// start of later batches.
    ready: BinaryHeap<Reverse<Time>>,
    /// All batches of requests that start before this time, seconds, have been drawn.
    drawn_s: f64,
    active: Option<Active>,
    end_s: f64,
    effort: Effort,
}

/// An active period of the arrival process, in which batches of requests arrive. It contains the time `drawn_s`.
struct Active {
    end_s: f64,
    /// Mean number of batches a second in this active period, before it is multiplied by the flicker (a random factor
    /// that varies within the period).
    batches_s: f64,
    flicker: LogOu,
    /// Number of batches a second from `drawn_s` to `stop_s`, multiplied by the flicker, a random factor that is
    /// constant within a cell of time. At `stop_s` the cell or the active period ends.
    rate: f64,
    stop_s: f64,
    /// What is left of an exponential draw with mean 1. The next batch of requests starts when the integral of `rate`
    /// (batches a second) from `drawn_s` on reaches this value.
    need: f64,
}

impl OnOffArrivals {
    /// Prepares to draw the arrival times of the process with the settings `p`. The search for arrivals stops at
    /// `end_s`, seconds, so that it ends even if arrivals are very rare. The last arrival may lie beyond `end_s`; the
    /// caller removes it.
    pub(crate) fn new(p: &AzureCode, mut draws: Draws, end_s: f64) -> OnOffArrivals {
        let silent_first = draws.unit() < p.start_off;
        let ready = BinaryHeap::new();
        let effort = Effort::default();
        let mut arrivals = OnOffArrivals { p: p.clone(), draws, ready, drawn_s: 0.0, active: None, end_s, effort };
        if silent_first {
            arrivals.silence();
        }
        arrivals.begin();
        arrivals
    }

    fn silence(&mut self) {
        self.drawn_s += log_normal(&mut self.draws, self.p.off_mu, self.p.off_sigma).max(self.p.off_min_s);
    }

    /// Begins an active period at the time `drawn_s`: draws its length and the rate at which batches of requests arrive
    /// in it.
    fn begin(&mut self) {
        let p = &self.p;
        let length = rand_distr::Weibull::new(p.on_scale_s, p.on_shape).expect("scale and shape are checked");
        let end_s = self.drawn_s + length.sample(&mut self.draws);
        let batches_s = log_normal(&mut self.draws, p.rate_mu, p.rate_sigma) / p.batch_mean;
        let flicker = LogOu::new(p.flicker_cv, p.flicker_tau_s, p.flicker_tau_s / CELLS, &mut self.draws);
        let need = exponential(&mut self.draws);
        self.active = Some(Active { end_s, batches_s, flicker, rate: 0.0, stop_s: self.drawn_s, need });
        self.next_cell();
    }

    /// Begins the next cell of time, in which the flicker (the random factor on the rate of batches) is constant. Ends
    /// the active period if `drawn_s` has reached its end.
    fn next_cell(&mut self) {
        let Some(active) = self.active.as_mut().filter(|active| self.drawn_s < active.end_s) else {
            self.active = None;
            return;
        };
        active.rate = active.batches_s * active.flicker.factor();
        active.stop_s = (self.drawn_s + self.p.flicker_tau_s / CELLS).min(active.end_s);
    }

    /// Does one step of the search for arrivals: draws the next batch of requests, or moves on to the next cell of time
    /// or the next period.
    fn advance(&mut self) {
        let Some(active) = &mut self.active else {
            self.silence();
            return self.begin();
        };
        let room = active.rate * (active.stop_s - self.drawn_s);
        if active.need <= room && active.rate > 0.0 {
            self.drawn_s += active.need / active.rate;
            self.batch(self.drawn_s);
            let need = exponential(&mut self.draws);
            self.active.iter_mut().for_each(|active| active.need = need);
        } else {
            active.need -= room;
            self.drawn_s = active.stop_s;
            active.flicker.step(&mut self.draws);
            self.next_cell();
        }
    }

    /// Draws the requests of one batch that starts at `at` seconds, a few milliseconds apart.
    fn batch(&mut self, mut at: f64) {
        loop {
            self.ready.push(Reverse(Time::from_s(at)));
            if self.draws.unit() < 1.0 / self.p.batch_mean {
                return;
            }
            at += log_normal(&mut self.draws, self.p.gap_mu, self.p.gap_sigma);
        }
    }
}

impl Iterator for OnOffArrivals {
    type Item = Result<Time, Stalled>;
    fn next(&mut self) -> Option<Result<Time, Stalled>> {
        while self.ready.peek().is_none_or(|t| t.0 > Time::from_s(self.drawn_s)) && self.drawn_s < self.end_s {
            if let Err(stalled) = self.effort.step() {
                return Some(Err(stalled));
            }
            self.advance();
        }
        self.ready.pop().map(|t| Ok(self.effort.found(t.0)))
    }
}
