//! Reads results of GuideLLM (`benchmarks.json`). A file is one JSON object with a list of benchmarks, one benchmark
//! for each load.
//!
//! The format is that of GuideLLM 0.8.1, `guidellm/benchmark/schemas`. Times are in milliseconds, and their names end
//! in `_ms`; only the request latency is in seconds. `inter_token_latency_ms` is TPOT: the time
//! after the first token, divided by the number of tokens after the first. GuideLLM's `time_per_output_token_ms` also
//! has the time of the first token and is not read. Means are over the requests that succeeded. The throughput counts
//! the tokens of all requests, because requests that were cut off at the end of the benchmark have used the server
//! too.

use super::mean::Measured;
use super::run::{Load, Run};
use super::totals::{Place, completed};
use crate::recordings::foreign::json;
use crate::recordings::foreign::number::Amount;
use crate::recordings::unread::Unread;
use serde::Deserialize;
use std::path::Path;

const HINT: &str = "give the benchmarks.json that GuideLLM wrote (tested with GuideLLM 0.8.1)";

#[derive(Deserialize)]
struct Report {
    benchmarks: Vec<Benchmark>,
}

#[derive(Deserialize)]
struct Benchmark {
    config: Config,
    metrics: Metrics,
}

#[derive(Deserialize)]
struct Config {
    strategy: Strategy,
}

#[derive(Deserialize)]
struct Strategy {
    type_: String,
    streams: Option<u32>,
    rate: Option<Amount>,
    max_concurrency: Option<u32>,
}

#[derive(Deserialize)]
struct Metrics {
    request_totals: Counts,
    prompt_token_count: Means,
    output_token_count: Means,
    output_tokens_per_second: Means,
    time_to_first_token_ms: Means,
    inter_token_latency_ms: Means,
    request_latency: Option<Means>,
}

#[derive(Deserialize)]
struct Counts {
    successful: u64,
    errored: u64,
}

#[derive(Deserialize)]
struct Means {
    successful: Option<Mean>,
    total: Option<Mean>,
}

#[derive(Deserialize)]
struct Mean {
    mean: Measured,
}

impl Means {
    fn get(&self) -> Option<f64> {
        self.successful.as_ref()?.mean.get()
    }

    fn of_all(&self) -> Option<f64> {
        self.total.as_ref()?.mean.get()
    }
}

pub(super) fn parse(path: &Path, bytes: &[u8]) -> Result<Vec<Run>, Unread> {
    let report: Report = json::value(path, bytes, HINT)?;
    if report.benchmarks.is_empty() {
        return Err(Unread::file(path, "has no benchmark", "see that the server answers, and run GuideLLM again"));
    }
    report.benchmarks.iter().enumerate().map(|(at, benchmark)| one(path, at + 1, benchmark)).collect()
}

fn one(path: &Path, number: usize, benchmark: &Benchmark) -> Result<Run, Unread> {
    let place = Place { path, line: None, number };
    let metrics = &benchmark.metrics;
    let completed = completed(&place, metrics.request_totals.successful, metrics.request_totals.errored)?;
    let needed = |name: &str, mean: Option<f64>| {
        mean.ok_or_else(|| place.error(format!("run {number} has no metrics.{name}.mean"), HINT))
    };
    let load = load(&place, &benchmark.config.strategy)?;
    let mut notes = vec![];
    if benchmark.config.strategy.type_ == "constant" {
        notes.push("its requests came at equal distances, and Poisson arrivals are simulated".to_owned());
    }
    Ok(Run {
        number,
        load,
        completed,
        failed: metrics.request_totals.errored,
        input: needed("prompt_token_count.successful", metrics.prompt_token_count.get())?,
        output: needed("output_token_count.successful", metrics.output_token_count.get())?,
        tok_s: needed("output_tokens_per_second.total", metrics.output_tokens_per_second.of_all())?,
        ttft_s: metrics.time_to_first_token_ms.get().map(|ms| 1e-3 * ms),
        tpot_s: metrics.inter_token_latency_ms.get().map(|ms| 1e-3 * ms),
        e2e_s: metrics.request_latency.as_ref().and_then(Means::get),
        accepted: None,
        drafted: None,
        notes,
    })
}

fn load(place: &Place, strategy: &Strategy) -> Result<Load, Unread> {
    match (strategy.type_.as_str(), strategy.streams, strategy.rate) {
        ("synchronous", ..) => Ok(Load::Clients(1)),
        ("concurrent", Some(n), _) if n > 0 => Ok(Load::Clients(n)),
        ("throughput", ..) if strategy.max_concurrency.is_some_and(|n| n > 0) => {
            Ok(Load::Clients(strategy.max_concurrency.unwrap_or(1)))
        }
        ("constant" | "poisson", _, Some(rate)) if rate.0 > 0.0 => match strategy.max_concurrency {
            None => Ok(Load::Rate(rate.0)),
            Some(_) => Err(place.error(
                format!("run {} has both a rate and max_concurrency: the load is one of them", place.number),
                "run GuideLLM with the profile concurrent, or with poisson and no limit",
            )),
        },
        (other, ..) => Err(place.error(
            format!("run {} has the strategy {other}, which says neither clients nor a rate", place.number),
            "run GuideLLM with the profile synchronous, concurrent or poisson",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{only, parsed, why};
    use super::*;

    /// A file that GuideLLM 0.8.1 wrote for two benchmarks against `foretoken serve` with draft length 3: by 1 client
    /// and by 4 clients. Percentiles, single requests and other metrics were removed from the file.
    const RECORDED: &str = include_str!("../../../../fixtures/results/guidellm-0.8.1-k3.json");
    /// A made-up results file in the format of the load generator GuideLLM 0.8.1.
    const MADE: &str = r#"{"metadata": {}, "benchmarks": [{"config": {"strategy": {"type_": "concurrent", "streams": 8,
        "max_concurrency": 8}}, "metrics": {"request_totals": {"successful": 30, "errored": 2, "incomplete": 8},
        "prompt_token_count": {"successful": {"mean": 128.0}}, "output_token_count": {"successful": {"mean": 64.0}},
        "output_tokens_per_second": {"successful": {"mean": 200.0}, "total": {"mean": 240.0}},
        "time_to_first_token_ms": {"successful": {"mean": 50.0}},
        "inter_token_latency_ms": {"successful": {"mean": 25.0}}}}]}"#;

    #[test]
    fn fields_are_converted() {
        let run = only(MADE);
        assert_eq!((run.load, run.completed, run.failed), (Load::Clients(8), 30, 2));
        assert_eq!((run.input, run.output, run.tok_s), (128.0, 64.0, 240.0));
        assert_eq!((run.ttft_s, run.tpot_s, run.accepted), (Some(0.05), Some(0.025), None));
        let strategy = |to: &str| MADE.replace("\"concurrent\", \"streams\": 8,\n        \"max_concurrency\": 8", to);
        let poisson = only(&strategy("\"poisson\", \"rate\": 1.5, \"max_concurrency\": null"));
        assert_eq!((poisson.load, poisson.notes.len()), (Load::Rate(1.5), 0));
        assert_eq!(only(&strategy("\"constant\", \"rate\": 1.5")).notes.len(), 1);
        assert_eq!(only(&strategy("\"synchronous\", \"max_concurrency\": 1")).load, Load::Clients(1));
        let trace = why(&strategy("\"trace\""));
        assert_eq!(trace, "f: run 1 has the strategy trace, which says neither clients nor a rate");
    }

    #[test]
    fn recorded_benchmarks_are_read() {
        let runs = parsed(RECORDED).unwrap();
        let loads: Vec<Load> = runs.iter().map(|run| run.load).collect();
        assert_eq!(loads, [Load::Clients(1), Load::Clients(4)]);
        assert_eq!(runs.iter().map(|run| run.completed).collect::<Vec<_>>(), [16, 15]);
        for run in &runs {
            assert_eq!(run.output, 32.0);
            assert!(run.ttft_s.unwrap() > run.tpot_s.unwrap() && run.tpot_s.unwrap() < 0.05, "{run:?}");
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        let none = why(&MADE.replace("\"successful\": 30", "\"successful\": 0"));
        assert_eq!(none, "f: run 1 has no request that succeeded; 2 failed");
        let prompts = why(&MADE.replace("{\"successful\": {\"mean\": 128.0}}", "{\"successful\": null}"));
        assert_eq!(prompts, "f: run 1 has no metrics.prompt_token_count.successful.mean");
        let gone = why(&MADE.replace("output_tokens_per_second", "x"));
        assert!(gone.contains("benchmarks[0].metrics: missing field `output_tokens_per_second`"), "{gone}");
        assert_eq!(why("{\"metadata\": {}, \"benchmarks\": []}"), "f: has no benchmark");
    }
}
