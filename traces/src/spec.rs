//! The description of a workload in an experiment's TOML.
//!
//! These types hold plain data with checks. [`crate::build`] makes a workload from them. Enums are externally tagged
//! and unknown keys are errors, so that an error message can name the place of every mistake in the file.

use crate::checks::{positive, rate};
use crate::error::TraceError;
use crate::generate::categories;
use crate::generate::{
    AdaSpecBins, AzureCode, BurstGptArrivals, Categories, FixedLengths, Gamma, LogNormalLengths, LogOuPoisson, Poisson,
    ServeGenDay, Sessions, SpecBenchLengths, TableName, Ticks, TwoRate,
};
use crate::trace_spec::TraceSpec;
use crate::transform::Transform;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The requests of a run: when they arrive, and how long their prompts and outputs are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkloadSpec {
    /// When requests arrive: times from a trace, from a generator, from the clients of a closed loop, or all at 0.
    pub arrivals: ArrivalSpec,
    /// Prompt and output lengths. May be left out if the arrivals are a trace that also has lengths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lengths: Option<LengthSpec>,
    /// Changes to the arrivals, applied in the order of this list. They come before `lengths` replaces the lengths of a
    /// trace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub transform: Vec<Transform>,
    /// Time at which generated arrivals stop, seconds. Default for `t1`, `t2` and `t3`: 600, if `requests` is left out,
    /// too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_s: Option<f64>,
    /// Number of requests after which generated arrivals stop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<u32>,
    /// Makes each arrival the first turn of a session (a chat of several requests). Default: each arrival is a single
    /// request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sessions: Option<Sessions>,
    /// Seed for drawing arrivals and lengths. If it is set, all seeds of the run have the same workload. Default: the
    /// seed of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// The priority of each category's requests, for `engine.scheduling_policy = "priority"`. The lowest number is
    /// served first; categories that are not named have priority 0.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub priorities: BTreeMap<String, i32>,
}

/// Where the arrival times of the requests come from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum ArrivalSpec {
    /// The requests arrive at the times of a trace file.
    Trace(Box<TraceSpec>),
    /// A closed loop: this number of clients, each of which sends its next request when its last one ends.
    ClosedLoop(u32),
    /// An offline batch: all requests arrive at time 0. The setting `requests` says how many. The summary of the
    /// results gives the total time of the run as `duration_s`.
    Batch(Batch),
    /// A Poisson process: the gaps between arrivals are independent and exponential.
    Poisson(Poisson),
    /// Independent gamma gaps between arrivals, burstier or more even than Poisson.
    Gamma(Gamma),
    /// The arrivals follow a model of the Azure 2023 conversation trace: a Poisson process with a slowly varying rate.
    AzureConv(LogOuPoisson),
    /// A model of the Azure 2023 code trace: active and silent periods; active ones have small batches of requests.
    AzureCode(AzureCode),
    /// A model of the Mooncake conversation trace: a batch of requests arrives every 3 seconds.
    MooncakeTicks(Ticks),
    /// A model of the Mooncake synthetic trace: a Poisson process with the trace's rate.
    MooncakePoisson(MooncakePoisson),
    /// A model of AdaSpec's Mooncake trace: requests are evenly spaced inside bins of 3 seconds.
    AdaspecMooncake(AdaSpecBins),
    /// The generator of the BurstGPT project: gamma gaps whose shape is redrawn every minute.
    Burstgpt(BurstGptArrivals),
    /// A model of a day of ServeGen: a Poisson process whose rate follows the time of day, with slow fluctuation.
    ServegenDay(ServeGenDay),
    /// T1, AdaSpec's first shape of load: arrivals are frequent before the time `switch_s` and rarer after it.
    T1(TwoRate),
    /// T2, AdaSpec's second shape of load: batches of requests at fixed intervals.
    T2(Ticks),
    /// T3, AdaSpec's third shape of load: fluctuation from second to second around a constant rate.
    T3(T3),
}

/// An offline batch. It has no settings; `requests` says how many requests it has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Batch {}

/// A model of the arrivals of Mooncake's synthetic trace: a Poisson process, by default with the trace's rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MooncakePoisson {
    /// Mean requests a second. The default 3.907 was fitted to the Mooncake FAST'25 synthetic trace (Kolmogorov-Smirnov
    /// distance of the gaps 0.012).
    pub rate: f64,
}

impl Default for MooncakePoisson {
    fn default() -> Self {
        MooncakePoisson { rate: 3.907 }
    }
}

/// AdaSpec's third shape of load, T3: a Poisson process, by default with the middle of AdaSpec's range of 4.2 to 4.8
/// requests a second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct T3 {
    /// Mean requests a second.
    pub rate: f64,
}

impl Default for T3 {
    fn default() -> Self {
        T3 { rate: 4.5 }
    }
}

/// The source of prompt and output lengths, and, if it has them, of categories, recordings (which draft tokens were
/// right), prefixes and SLOs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum LengthSpec {
    /// All requests have the same prompt length and the same output length.
    Fixed(FixedLengths),
    /// The lengths are drawn from log-normal distributions, prompt and output independently.
    LogNormal(LogNormalLengths),
    /// The lengths are drawn from a table of quantiles that was made from a public trace.
    Table(TableName),
    /// The lengths are drawn by category (such as chat, code, documents). Each category has a share of the requests and
    /// its own lengths.
    Categories(Categories),
    /// The lengths are drawn from a model of Spec-Bench, which has a distribution for each of its categories.
    SpecBench(SpecBenchLengths),
    /// The lengths are taken from the rows of a trace file. Everything else in a row is taken too, except its arrival
    /// time.
    Trace(Box<TraceSpec>),
}

impl WorkloadSpec {
    /// Checks the settings that serde cannot check. Does not read files.
    ///
    /// # Errors
    /// A value is out of range, a fixed length is 0, lengths are missing, the arrivals have no end and no number of
    /// requests, or a setting is given that these arrivals do not have. The error names the setting.
    pub fn check(&self) -> Result<(), TraceError> {
        self.arrivals.check()?;
        match &self.lengths {
            Some(LengthSpec::Fixed(f)) => f.check("lengths.fixed")?,
            Some(LengthSpec::Categories(of)) => categories::check(of, "lengths.categories")?,
            Some(LengthSpec::SpecBench(s)) => s.check("lengths.spec-bench")?,
            Some(LengthSpec::LogNormal(l)) => l.check("lengths.log-normal")?,
            _ => {}
        }
        for (i, transform) in self.transform.iter().enumerate() {
            transform.check(&format!("transform[{i}]"))?;
        }
        if let Some(sessions) = &self.sessions {
            sessions.check()?;
            if matches!(self.arrivals, ArrivalSpec::ClosedLoop(_)) {
                let hint = "take arrivals with times, for example { poisson = { rate = 0.5 } }";
                return Err(TraceError::spec("sessions", "a closed loop does not begin sessions", hint));
            }
            if self.trace_sessions().is_some() {
                let what = "the trace has sessions of its own";
                let hint = "remove sessions, or the columns session and delay of the trace";
                return Err(TraceError::spec("sessions", what, hint));
            }
            if self.lengths.is_none() {
                let what = "the trace's own prompts have their sessions' earlier turns already";
                let hint = "add lengths, of a turn's new text and its answer, or remove sessions";
                return Err(TraceError::spec("sessions", what, hint));
            }
        }
        self.check_extent()
    }

    /// The setting that makes sessions (conversations) of the requests, in which a request waits for an earlier answer.
    /// `None` if each request is sent by itself.
    pub fn sessions_key(&self) -> Option<&'static str> {
        self.sessions.as_ref().map(|_| "sessions").or(self.trace_sessions())
    }

    /// The setting that names the sessions of a trace; `None` if it has none.
    fn trace_sessions(&self) -> Option<&'static str> {
        let ArrivalSpec::Trace(trace) = &self.arrivals else { return None };
        trace.columns.as_ref()?.delay.as_ref().map(|_| "arrivals.trace.columns.delay")
    }

    /// The paths of the files that this workload reads, so that callers can resolve them before the workload is built.
    pub fn paths_mut(&mut self) -> Vec<&mut PathBuf> {
        let arrivals = if let ArrivalSpec::Trace(t) = &mut self.arrivals { Some(t) } else { None };
        let lengths = if let Some(LengthSpec::Trace(t)) = &mut self.lengths { Some(t) } else { None };
        arrivals.into_iter().chain(lengths).flat_map(|t| std::iter::once(&mut t.path).chain(&mut t.accept)).collect()
    }

    /// Checks that `duration_s` and `requests` fit the kind of arrivals, and that lengths are given if they are needed.
    fn check_extent(&self) -> Result<(), TraceError> {
        if let Some(d) = self.duration_s {
            positive("duration_s", d)?;
        }
        if self.requests == Some(0) {
            return Err(TraceError::spec("requests", "0 is not a number of requests", "give at least 1"));
        }
        match &self.arrivals {
            ArrivalSpec::Trace(t) => {
                if t.sample.is_some() {
                    let hint = "sample belongs to lengths = { trace = ... }";
                    return Err(TraceError::spec("arrivals.trace.sample", "arrivals keep the file's order", hint));
                }
                let given = [("duration_s", self.duration_s.is_some()), ("requests", self.requests.is_some())];
                if let Some((key, _)) = given.iter().find(|g| g.1) {
                    let hint = "cut a trace with transform = [{ window = ... }] or [{ max-requests = ... }]";
                    return Err(TraceError::spec(*key, "is for generated arrivals", hint));
                }
            }
            _ if self.lengths.is_none() => {
                let hint = "add lengths = { fixed = { prompt = 512, output = 256 } } or { spec-bench = {} }";
                return Err(TraceError::spec("lengths", "generated arrivals have no lengths of their own", hint));
            }
            ArrivalSpec::ClosedLoop(_) => self.check_counted("a closed loop")?,
            ArrivalSpec::Batch(_) => self.check_counted("a batch")?,
            ArrivalSpec::T1(_) | ArrivalSpec::T2(_) | ArrivalSpec::T3(_) => {}
            _ if self.duration_s.is_none() && self.requests.is_none() => {
                let what = "generated arrivals need an end";
                return Err(TraceError::spec("duration_s", what, "add duration_s = 600.0 or requests = 1000"));
            }
            _ => {}
        }
        Ok(())
    }

    /// Checks the settings of arrivals without times of their own (closed loop, batch): a number of requests must be
    /// set, and no transformation may change their times. `name` is the arrivals' name in messages.
    fn check_counted(&self, name: &str) -> Result<(), TraceError> {
        if self.duration_s.is_some() {
            return Err(TraceError::spec("duration_s", format!("{name} ends by count"), "give requests = N"));
        }
        if self.requests.is_none() && !matches!(self.lengths, Some(LengthSpec::Trace(_))) {
            return Err(TraceError::spec("requests", format!("{name} needs a number"), "add requests = 1000"));
        }
        if let Some(i) = self.transform.iter().position(Transform::needs_times) {
            let what = format!("{name} has no arrival times to change");
            return Err(TraceError::spec(format!("transform[{i}]"), what, "remove it"));
        }
        Ok(())
    }
}

impl ArrivalSpec {
    fn check(&self) -> Result<(), TraceError> {
        match self {
            ArrivalSpec::Trace(_) | ArrivalSpec::Batch(_) => Ok(()),
            ArrivalSpec::ClosedLoop(0) => {
                Err(TraceError::spec("arrivals.closed-loop", "0 is not a number of clients", ""))
            }
            ArrivalSpec::ClosedLoop(_) => Ok(()),
            ArrivalSpec::Poisson(p) => p.check("arrivals.poisson"),
            ArrivalSpec::Gamma(p) => p.check("arrivals.gamma"),
            ArrivalSpec::AzureConv(p) => p.check("arrivals.azure-conv"),
            ArrivalSpec::AzureCode(p) => p.check("arrivals.azure-code"),
            ArrivalSpec::MooncakeTicks(p) => p.check("arrivals.mooncake-ticks"),
            ArrivalSpec::MooncakePoisson(p) => rate("arrivals.mooncake-poisson.rate", p.rate),
            ArrivalSpec::AdaspecMooncake(p) => p.check("arrivals.adaspec-mooncake"),
            ArrivalSpec::Burstgpt(p) => p.check("arrivals.burstgpt"),
            ArrivalSpec::ServegenDay(p) => p.check("arrivals.servegen-day"),
            ArrivalSpec::T1(p) => p.check("arrivals.t1"),
            ArrivalSpec::T2(p) => p.check("arrivals.t2"),
            ArrivalSpec::T3(p) => rate("arrivals.t3.rate", p.rate),
        }
    }
}
