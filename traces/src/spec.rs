//! The description of a workload in an experiment's TOML.
//!
//! Plain data with checks; [`crate::build`] makes a workload of it. Enums are externally tagged and unknown keys are
//! errors, so that every mistake has a place in the file.

use crate::checks::{positive, rate};
use crate::error::TraceError;
use crate::generate::categories;
use crate::generate::{
    AdaSpecBins, AzureCode, BurstGptArrivals, Categories, FixedLengths, Gamma, LogNormalLengths, LogOuPoisson, Poisson,
    Sessions, SpecBenchLengths, TableName, Ticks, TwoRate,
};
use crate::trace_spec::TraceSpec;
use crate::transform::Transform;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A workload: arrivals, lengths of requests, and transformations in order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkloadSpec {
    /// When requests arrive.
    pub arrivals: ArrivalSpec,
    /// Prompt and output lengths. May be absent if the arrivals are a trace with lengths of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lengths: Option<LengthSpec>,
    /// Transformations of arrivals (and of a trace's own lengths), applied in this order before `lengths` replaces the
    /// lengths.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub transform: Vec<Transform>,
    /// Generators stop at this time, seconds. T1, T2 and T3 default to 600 if `requests` is absent too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_s: Option<f64>,
    /// Generators stop after this many requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<u32>,
    /// Arrivals begin sessions of several turns; without it, each arrival is a single request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sessions: Option<Sessions>,
    /// Fixes the seed of the workload's own draws for every seed of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// The priority of each category's requests, for `engine.scheduling_policy = "priority"`. The lowest number is
    /// served first; categories that are not named have 0.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub priorities: BTreeMap<String, i32>,
}

/// The source of arrival times.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum ArrivalSpec {
    /// A trace file.
    Trace(Box<TraceSpec>),
    /// This many clients, each of which sends its next request when its last one ends.
    ClosedLoop(u32),
    /// An offline batch: all requests arrive at time 0. Its makespan is the summary's `duration_s`.
    Batch(Batch),
    /// Independent exponential gaps.
    Poisson(Poisson),
    /// Independent gamma gaps.
    Gamma(Gamma),
    /// Azure 2023 conversation: a Poisson process with a slowly varying rate.
    AzureConv(LogOuPoisson),
    /// Azure 2023 code: ON/OFF bursts of micro-batches.
    AzureCode(AzureCode),
    /// Mooncake conversation: batches on 3-second ticks.
    MooncakeTicks(Ticks),
    /// Mooncake synthetic: Poisson at the rate of this trace.
    MooncakePoisson(MooncakePoisson),
    /// AdaSpec's Mooncake trace: even spacing inside 3-second bins.
    AdaspecMooncake(AdaSpecBins),
    /// BurstGPT's own generator: gamma gaps whose shape is redrawn every minute.
    Burstgpt(BurstGptArrivals),
    /// AdaSpec's first shape: a busy half, then a quiet half.
    T1(TwoRate),
    /// AdaSpec's second shape: periodic batches.
    T2(Ticks),
    /// AdaSpec's third shape: second-level fluctuation around a level.
    T3(T3),
}

/// An offline batch. It has no settings of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Batch {}

/// [`Poisson`] with the rate of the Mooncake synthetic trace as default.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MooncakePoisson {
    /// Requests a second (Mooncake FAST'25 synthetic: 3.907, KS of the gaps 0.012).
    pub rate: f64,
}

impl Default for MooncakePoisson {
    fn default() -> Self {
        MooncakePoisson { rate: 3.907 }
    }
}

/// [`Poisson`] with the middle of T3's range (4.2 to 4.8/s) as default.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct T3 {
    /// Requests a second.
    pub rate: f64,
}

impl Default for T3 {
    fn default() -> Self {
        T3 { rate: 4.5 }
    }
}

/// The source of lengths (and categories, recordings, prefixes, SLOs).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum LengthSpec {
    /// The same lengths for all requests.
    Fixed(FixedLengths),
    /// Drawn from log-normal laws, prompt and output independently.
    LogNormal(LogNormalLengths),
    /// Drawn from a calibrated quantile table.
    Table(TableName),
    /// Drawn by category (chat, code, documents): each has its share of the requests, and its lengths.
    Categories(Categories),
    /// Drawn like Spec-Bench requests, by category.
    SpecBench(SpecBenchLengths),
    /// Taken from the rows of a trace, with everything but the arrival times.
    Trace(Box<TraceSpec>),
}

impl WorkloadSpec {
    /// Checks the settings that serde cannot check. Does not read files.
    ///
    /// # Errors
    /// A value is out of range, a fixed length is 0, the arrivals lack lengths, an end or a number of requests, or a
    /// setting is given that these arrivals do not have. The error names the setting.
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
            if self.lengths.is_none() {
                let what = "the trace's own prompts have their sessions' earlier turns already";
                let hint = "add lengths, of a turn's new text and its answer, or remove sessions";
                return Err(TraceError::spec("sessions", what, hint));
            }
        }
        self.check_extent()
    }

    /// The paths of the files that this workload reads, for callers that resolve paths before building.
    pub fn paths_mut(&mut self) -> Vec<&mut PathBuf> {
        let arrivals = if let ArrivalSpec::Trace(t) = &mut self.arrivals { Some(t) } else { None };
        let lengths = if let Some(LengthSpec::Trace(t)) = &mut self.lengths { Some(t) } else { None };
        arrivals.into_iter().chain(lengths).flat_map(|t| std::iter::once(&mut t.path).chain(&mut t.accept)).collect()
    }

    /// Checks that `duration_s` and `requests` fit the kind of arrivals, and that lengths are given where they are
    /// needed.
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

    /// Checks arrivals without times of their own: they end by count, and no transformation changes their times.
    /// `name` is the arrivals' name in messages.
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
            ArrivalSpec::T1(p) => p.check("arrivals.t1"),
            ArrivalSpec::T2(p) => p.check("arrivals.t2"),
            ArrivalSpec::T3(p) => rate("arrivals.t3.rate", p.rate),
        }
    }
}
