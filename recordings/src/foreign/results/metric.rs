//! The metrics of NVIDIA's tools GenAI-Perf and AIPerf. The two tools give equal names to their metrics, and each
//! metric states its unit.

use super::run::{Load, Run};
use super::totals::{Place, completed};
use crate::foreign::number::Amount;
use crate::unread::Unread;
use serde::Deserialize;

/// A metric of GenAI-Perf or AIPerf with its unit and its mean.
#[derive(Deserialize)]
struct Metric {
    unit: String,
    avg: Option<Amount>,
}

/// The metrics of GenAI-Perf or AIPerf that are read. A metric that was not measured is missing.
#[derive(Deserialize)]
pub(super) struct Metrics {
    request_count: Option<Metric>,
    error_request_count: Option<Metric>,
    input_sequence_length: Option<Metric>,
    output_sequence_length: Option<Metric>,
    output_token_throughput: Option<Metric>,
    time_to_first_token: Option<Metric>,
    inter_token_latency: Option<Metric>,
}

impl Metrics {
    /// Makes the results of a load generator's run from these metrics. Calls `load` to read the run's load (clients or
    /// rate) after it is known that some requests succeeded.
    pub(super) fn run(
        &self,
        place: &Place,
        load: impl Fn(&Place) -> Result<Load, Unread>,
        hint: &str,
    ) -> Result<Run, Unread> {
        let count = |metric: &Option<Metric>| metric.as_ref().and_then(|m| m.avg).map_or(0, |avg| avg.0 as u64);
        let failed = count(&self.error_request_count);
        let completed = completed(place, count(&self.request_count), failed)?;
        let mean = |name: &str, metric: &Option<Metric>| match metric.as_ref().and_then(|m| m.avg) {
            Some(avg) => Ok(avg.0),
            None => Err(place.error(format!("has no {name}.avg"), hint)),
        };
        let seconds = |name: &str, metric: &Option<Metric>| {
            let Some(Metric { unit, avg: Some(avg) }) = metric else { return Ok(None) };
            let one = match unit.as_str() {
                "s" | "sec" => 1.0,
                "ms" => 1e-3,
                "us" => 1e-6,
                "ns" => 1e-9,
                other => return Err(place.error(format!("{name}.unit is {other}, which is no unit of time"), hint)),
            };
            Ok(Some(avg.0 * one).filter(|s| *s > 0.0))
        };
        Ok(Run {
            number: place.number,
            load: load(place)?,
            completed,
            failed,
            input: mean("input_sequence_length", &self.input_sequence_length)?,
            output: mean("output_sequence_length", &self.output_sequence_length)?,
            tok_s: mean("output_token_throughput", &self.output_token_throughput)?,
            ttft_s: seconds("time_to_first_token", &self.time_to_first_token)?,
            tpot_s: seconds("inter_token_latency", &self.inter_token_latency)?,
            accepted: None,
            drafted: None,
            notes: vec![],
        })
    }
}
