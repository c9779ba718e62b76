//! Reads results of NVIDIA's AIPerf (`profile_export_aiperf.json`). A file is one JSON object with one run at one load.
//!
//! The format is that of AIPerf 0.13.0, `aiperf/common/models/export_models.py` (schema 1.4). Each metric states its
//! unit; times are in milliseconds. `inter_token_latency` is TPOT: the time after the first token, divided by the
//! number of tokens after the first. The list `input_config.phases` has the phases of the benchmark; the run's load is
//! that of the phase whose `kind` is `profiling`. The releases of 2025 (0.2.0,
//! `aiperf/common/config/loadgen_config.py`) have `input_config.loadgen` instead, and do not state their version. If
//! the server reports acceptance with its answers, the file has a histogram of rounds by accepted draft tokens.

use super::acceptance;
use super::metric::Metrics;
use super::run::{Load, Run};
use super::totals::Place;
use crate::recordings::foreign::json;
use crate::recordings::foreign::number::Amount;
use crate::recordings::unread::Unread;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

const HINT: &str = "give the profile_export_aiperf.json that AIPerf wrote (tested with AIPerf 0.2 and 0.13)";

#[derive(Deserialize)]
struct Raw {
    input_config: Input,
    #[serde(default)]
    pooled_spec_decode_acceptance_histogram: Option<BTreeMap<u32, u64>>,
}

#[derive(Deserialize)]
struct Input {
    #[serde(default)]
    phases: Vec<Phase>,
    /// The load of the releases of 2025.
    loadgen: Option<Loadgen>,
}

#[derive(Deserialize)]
struct Loadgen {
    concurrency: Option<u32>,
    request_rate: Option<Amount>,
    request_rate_mode: Option<String>,
}

impl Loadgen {
    /// The load as a newer release writes it.
    fn phase(self) -> Phase {
        let type_ = match (self.request_rate, self.request_rate_mode) {
            (None, _) => "concurrency".to_owned(),
            (Some(_), mode) => mode.unwrap_or_else(|| "poisson".to_owned()),
        };
        Phase { kind: PROFILING.to_owned(), type_, concurrency: self.concurrency, rate: self.request_rate }
    }
}

/// The phase that is measured.
const PROFILING: &str = "profiling";

#[derive(Deserialize)]
struct Phase {
    kind: String,
    #[serde(rename = "type")]
    type_: String,
    concurrency: Option<u32>,
    rate: Option<Amount>,
}

pub(super) fn parse(path: &Path, bytes: &[u8]) -> Result<Vec<Run>, Unread> {
    let metrics: Metrics = json::value(path, bytes, HINT)?;
    let mut raw: Raw = json::value(path, bytes, HINT)?;
    raw.input_config.phases.extend(raw.input_config.loadgen.take().map(Loadgen::phase));
    let place = Place { path, line: None, number: 1 };
    let profiling = raw.input_config.phases.iter().find(|phase| phase.kind == PROFILING);
    let mut run = metrics.run(&place, |place| load(place, profiling), HINT)?;
    if let Some(counts) = raw.pooled_spec_decode_acceptance_histogram {
        // A request has at most a few dozen draft tokens in a step. So only keys of the histogram up to 1024 are
        // read; a larger key cannot be a number of accepted draft tokens.
        let most = counts.keys().next_back().copied().unwrap_or(0).min(1024);
        let rounds: Vec<u64> = (0..=most).map(|n| counts.get(&n).copied().unwrap_or(0)).collect();
        run.accepted = acceptance::of_counts(&rounds);
    }
    if let Some(phase) = profiling.filter(|phase| matches!(phase.type_.as_str(), "constant" | "gamma")) {
        run.notes.push(format!("its arrivals are of type {}, and Poisson arrivals are simulated", phase.type_));
    }
    Ok(vec![run])
}

fn load(place: &Place, phase: Option<&Phase>) -> Result<Load, Unread> {
    let neither = |what: String| place.error(what, "run AIPerf with --concurrency, or with --request-rate");
    let Some(phase) = phase else {
        return Err(neither("has no profiling phase: it says neither clients nor a rate".into()));
    };
    match (phase.type_.as_str(), phase.rate, phase.concurrency) {
        ("concurrency", _, Some(n)) if n > 0 => Ok(Load::Clients(n)),
        ("poisson" | "constant" | "gamma", Some(rate), None) if rate.0 > 0.0 => Ok(Load::Rate(rate.0)),
        ("poisson" | "constant" | "gamma", Some(_), Some(_)) => {
            Err(neither("has both a rate and a limit concurrency: the load is one of them".into()))
        }
        (other, ..) => Err(neither(format!("has a phase of type {other}, which says neither clients nor a rate"))),
    }
}

#[cfg(test)]
mod tests {
    use super::super::run::Acceptance;
    use super::super::testing::{only, why};
    use super::*;

    /// A file that AIPerf 0.13.0 wrote for a run against `foretoken serve` with draft length 3, by 4 clients. Other
    /// metrics were removed from the file.
    const RECORDED: &str = include_str!("../../../../fixtures/results/aiperf-0.13.0-k3.json");
    /// A made-up results file in the format of the load generator AIPerf 0.13.0.
    const MADE: &str = r#"{"aiperf_version": "0.13.0", "request_count": {"unit": "requests", "avg": 20.0},
        "error_request_count": {"unit": "requests", "avg": 3.0}, "input_sequence_length": {"unit": "tokens", "avg": 64.0},
        "output_sequence_length": {"unit": "tokens", "avg": 32.0},
        "output_token_throughput": {"unit": "tokens/sec", "avg": 250.0},
        "time_to_first_token": {"unit": "ms", "avg": 60.0}, "inter_token_latency": {"unit": "ms", "avg": 12.5},
        "input_config": {"phases": [{"kind": "warmup", "type": "concurrency", "concurrency": 2},
        {"kind": "profiling", "type": "poisson", "rate": 3.5}]},
        "pooled_spec_decode_acceptance_histogram": {"0": 4, "1": 2, "3": 4}}"#;

    #[test]
    fn fields_are_converted() {
        let run = only(MADE);
        assert_eq!((run.load, run.completed, run.failed), (Load::Rate(3.5), 20, 3));
        assert_eq!((run.input, run.output, run.tok_s), (64.0, 32.0, 250.0));
        assert_eq!((run.ttft_s, run.tpot_s), (Some(0.06), Some(0.0125)));
        assert_eq!(run.accepted, Some(Acceptance::ByPosition(vec![0.6, 0.4, 0.4])));
        assert_eq!(only(&MADE.replace("\"ms\", \"avg\": 12.5", "\"sec\", \"avg\": 0.0125")).tpot_s, Some(0.0125));
        assert_eq!(only(&MADE.replace("\"tokens/sec\", \"avg\": 250", "\"tokens/min\", \"avg\": 15000")).tok_s, 250.0);
    }

    /// The releases of 2025 have the keys of GenAI-Perf's files, no version, and their load in `loadgen`.
    #[test]
    fn the_releases_of_2025_are_read() {
        let of = |loadgen: &str| {
            let (begin, _) = MADE.split_once("\"input_config\"").unwrap();
            let begin = begin.replace(
                "\"aiperf_version\": \"0.13.0\",",
                "\"request_throughput\": {\"unit\": \"requests/sec\"}, \"request_latency\": {\"unit\": \"ms\"},",
            );
            format!("{begin} \"input_config\": {{\"endpoint\": {{}}, \"loadgen\": {loadgen}}}}}")
        };
        let clients = only(&of("{\"concurrency\": 1, \"request_count\": 80, \"warmup_request_count\": 0}"));
        assert_eq!((clients.load, clients.completed, clients.tpot_s), (Load::Clients(1), 20, Some(0.0125)));
        let rate = only(&of("{\"request_rate\": 2.5, \"request_rate_mode\": \"constant\"}"));
        assert!(rate.load == Load::Rate(2.5) && rate.notes[0].contains("of type constant"), "{:?}", rate.notes);
        assert!(only(&of("{\"request_rate\": 2.5}")).notes.is_empty());
        let neither = why(&of("{\"request_count\": 80}"));
        assert!(neither.contains("says neither clients nor a rate"), "{neither}");
        let both = why(&of("{\"request_rate\": 2.5, \"concurrency\": 4}"));
        assert!(both.contains("both a rate and a limit concurrency"), "{both}");
    }

    #[test]
    fn a_recorded_run_is_read() {
        let run = only(RECORDED);
        assert_eq!((run.load, run.completed, run.failed, run.accepted), (Load::Clients(4), 16, 0, None));
        assert!(run.ttft_s.unwrap() > run.tpot_s.unwrap() && run.tpot_s.unwrap() < 0.05);
    }

    #[test]
    fn what_is_missing_is_named() {
        for (from, to, error) in [
            (
                "\"requests\", \"avg\": 20.0", "\"requests\", \"avg\": 0",
                "f: run 1 has no request that succeeded; 3 failed",
            ),
            ("\"output_token_throughput\"", "\"x\"", "f: has no output_token_throughput.avg"),
            ("\"ms\", \"avg\": 12.5", "\"fortnights\", \"avg\": 12.5", "inter_token_latency.unit is fortnights"),
            ("\"tokens/sec\"", "\"MB/s\"", "output_token_throughput.unit is MB/s, and it is read in tokens/sec"),
            ("\"tokens\", \"avg\": 64", "\"words\", \"avg\": 64", "input_sequence_length.unit is words"),
            ("\"poisson\"", "\"fixed_schedule\"", "f: has a phase of type fixed_schedule, which says neither clients"),
            ("\"kind\": \"profiling\"", "\"kind\": \"x\"", "f: has no profiling phase"),
        ] {
            let found = why(&MADE.replace(from, to));
            assert!(found.contains(error), "{found}");
        }
    }
}
