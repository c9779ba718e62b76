//! Reads results of SGLang's `bench_serving --output-file`. A file has one JSON object per line, one for each run.
//!
//! The format is that of SGLang 0.5.23, `sglang/benchmark/serving.py`. Times are in milliseconds. `accept_length` is
//! the mean number of tokens that a request gets in a step, with the target's own token. This mean is over the time
//! since the server's start, not only over the run. The number of failed requests is known only with
//! `--output-details`.

use super::acceptance;
use super::run::Run;
use super::totals::{Place, Totals, run};
use crate::recordings::foreign::json;
use crate::recordings::unread::Unread;
use std::path::Path;

const HINT: &str = "give what SGLang's bench_serving wrote to its --output-file (tested with SGLang 0.5.23)";

pub(super) fn parse(path: &Path, bytes: &[u8]) -> Result<Vec<Run>, Unread> {
    let all = json::values::<Totals>(path, bytes, HINT)?;
    let one = |(at, (line, totals)): (usize, (usize, Totals))| {
        let place = Place { path, line: Some(line), number: at + 1 };
        let failed = (totals.errors.len() as u64).saturating_sub(totals.completed);
        let mut run = run(&place, &totals, failed, HINT)?;
        run.accepted = totals.accept_length.filter(|t| t.0 > 0.0).map(|tokens| acceptance::of_length(tokens.0));
        Ok(run)
    };
    all.into_iter().enumerate().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::super::run::{Acceptance, Load};
    use super::super::testing::{only, parsed, why};

    /// Two runs of SGLang's bench_serving 0.5.23 (backend `vllm`) against `foretoken serve` with draft length 3, by 1
    /// client and by 4 clients. Only SGLang's own server states `accept_length`, so it is null here.
    const RECORDED: &str = include_str!("../../../../fixtures/results/sglang-0.5.23-k3.jsonl");
    /// A made-up results file in the format of SGLang 0.5.23 (`benchmark/serving.py`). It has `accept_length`, which
    /// only a benchmark of an SGLang server gives.
    const MADE: &str = r#"{"backend": "sglang", "dataset_name": "random", "request_rate": Infinity,
        "max_concurrency": 8, "duration": 4.0, "completed": 3, "total_input_tokens": 60, "total_output_tokens": 30,
        "total_output_tokens_retokenized": 30, "output_throughput": 7.5, "mean_ttft_ms": 125.0, "mean_tpot_ms": 93.75,
        "accept_length": 2.5, "errors": ["", "", "", "timed out"]}"#;

    #[test]
    fn fields_are_converted() {
        let run = only(MADE);
        assert_eq!((run.load, run.completed, run.failed), (Load::Clients(8), 3, 1));
        assert_eq!((run.input, run.output, run.tok_s), (20.0, 10.0, 7.5));
        assert_eq!((run.ttft_s, run.tpot_s), (Some(0.125), Some(0.09375)));
        assert_eq!(run.accepted, Some(Acceptance::Mean(1.5)));
        assert!(
            why(&MADE.replace("Infinity", "\"trace\"")).contains("run 1 sent its requests at the times of a trace")
        );
    }

    #[test]
    fn recorded_runs_are_read() {
        let runs = parsed(RECORDED).unwrap();
        let loads: Vec<Load> = runs.iter().map(|run| run.load).collect();
        assert_eq!(loads, [Load::Clients(1), Load::Clients(4)]);
        for run in &runs {
            assert_eq!((run.completed, run.output, &run.accepted), (24, 48.0, &None));
            assert!(run.ttft_s.unwrap() > run.tpot_s.unwrap() && run.tpot_s.unwrap() < 0.05, "{run:?}");
        }
    }
}
