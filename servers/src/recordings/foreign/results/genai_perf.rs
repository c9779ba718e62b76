//! Reads results of NVIDIA's GenAI-Perf (`profile_export_genai_perf.json`). A file is one JSON object with one run at
//! one load.
//!
//! The format is that of GenAI-Perf 0.0.16, `genai_perf/export_data/json_exporter.py`. Each metric states its unit;
//! times are in milliseconds. `inter_token_latency` is TPOT: the time after the first token, divided by the number of
//! tokens after the first. The file does not count failed requests.

use super::metric::Metrics;
use super::run::Run;
use super::totals::{Place, load};
use crate::recordings::foreign::json;
use crate::recordings::foreign::rate::Rate;
use crate::recordings::unread::Unread;
use serde::Deserialize;
use std::path::Path;

const HINT: &str = "give the profile_export_genai_perf.json that GenAI-Perf wrote (tested with GenAI-Perf 0.0.16)";

#[derive(Deserialize)]
struct Raw {
    input_config: Input,
}

#[derive(Deserialize)]
struct Input {
    perf_analyzer: PerfAnalyzer,
}

#[derive(Deserialize)]
struct PerfAnalyzer {
    stimulus: Stimulus,
}

#[derive(Deserialize)]
struct Stimulus {
    concurrency: Option<u32>,
    request_rate: Option<Rate>,
}

pub(super) fn parse(path: &Path, bytes: &[u8]) -> Result<Vec<Run>, Unread> {
    let metrics: Metrics = json::value(path, bytes, HINT)?;
    let raw: Raw = json::value(path, bytes, HINT)?;
    let stimulus = raw.input_config.perf_analyzer.stimulus;
    let rate = ("stimulus.request_rate", stimulus.request_rate);
    let clients = ("stimulus.concurrency", stimulus.concurrency);
    let place = Place { path, line: None, number: 1 };
    Ok(vec![metrics.run(&place, |place| load(place, rate, clients), HINT)?])
}

#[cfg(test)]
mod tests {
    use super::super::run::Load;
    use super::super::testing::{only, why};

    /// A file that the exporter of GenAI-Perf 0.0.16 wrote from four made-up requests. The tool itself was not run:
    /// its load generator, perf_analyzer, is not in its package. A part of `input_config` was removed from the file.
    const MADE: &str = include_str!("../../../../fixtures/results/genai-perf-0.0.16.json");

    #[test]
    fn fields_are_converted() {
        let run = only(MADE);
        assert_eq!((run.load, run.completed, run.failed), (Load::Clients(2), 4, 0));
        assert_eq!((run.input, run.output, run.tok_s), (65.0, 21.0, 84.0));
        assert_eq!((run.ttft_s, run.tpot_s, run.accepted), (Some(0.1), Some(0.02), None));
        let open = MADE.replace("\"concurrency\": 2", "\"request_rate\": 1.5");
        assert_eq!(only(&open).load, Load::Rate(1.5));
        let neither = why(&MADE.replace("\"concurrency\": 2", "\"x\": 2"));
        assert!(neither.contains("says neither clients (stimulus.concurrency) nor a rate"), "{neither}");
    }
}
