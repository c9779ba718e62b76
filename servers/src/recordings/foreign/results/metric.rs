//! The metrics of NVIDIA's tools GenAI-Perf and AIPerf. The two tools give equal names to their metrics, and each
//! metric states its unit.

use super::run::{Load, Run};
use super::totals::{Place, completed};
use crate::recordings::foreign::number::Amount;
use crate::recordings::unread::Unread;
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
    request_latency: Option<Metric>,
}

/// The units in which numbers of tokens are read.
const TOKENS: [(&str, f64); 2] = [("tokens", 1.0), ("token", 1.0)];
/// The units in which throughputs are read, with their sizes in tokens per second.
const TOKENS_A_SECOND: [(&str, f64); 6] = [
    ("tokens/sec", 1.0),
    ("tokens/s", 1.0),
    ("tokens/second", 1.0),
    ("tokens/min", 1.0 / 60.0),
    ("tokens/minute", 1.0 / 60.0),
    ("tokens/ms", 1000.0),
];

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
        // The mean of a metric, in the first of the units that `units` names with their sizes.
        let mean = |name: &str, metric: &Option<Metric>, units: &[(&str, f64)]| {
            let Some(Metric { unit, avg: Some(avg) }) = metric else {
                return Err(place.error(format!("has no {name}.avg"), hint));
            };
            match units.iter().find(|(known, _)| known == unit) {
                Some((_, one)) => Ok(avg.0 * one),
                None => {
                    let known: Vec<&str> = units.iter().map(|(known, _)| *known).collect();
                    let what = format!("{name}.unit is {unit}, and it is read in {}", known.join(", "));
                    Err(place.error(what, hint))
                }
            }
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
            input: mean("input_sequence_length", &self.input_sequence_length, &TOKENS)?,
            output: mean("output_sequence_length", &self.output_sequence_length, &TOKENS)?,
            tok_s: mean("output_token_throughput", &self.output_token_throughput, &TOKENS_A_SECOND)?,
            ttft_s: seconds("time_to_first_token", &self.time_to_first_token)?,
            tpot_s: seconds("inter_token_latency", &self.inter_token_latency)?,
            e2e_s: seconds("request_latency", &self.request_latency)?,
            accepted: None,
            drafted: None,
            notes: vec![],
        })
    }
}
