//! Reads results of `vllm bench serve --save-result`. A file is one JSON object with one run, or has one such object
//! per line with `--append-result`.
//!
//! The format is that of vLLM 0.33.0, `vllm/benchmarks/serve.py`. Times are in milliseconds. `mean_tpot_ms` is the
//! time after the first token, divided by the number of tokens after the first.

use super::acceptance;
use super::run::{Acceptance, Load, Run};
use super::totals::{Place, Totals, run};
use crate::recordings::foreign::json;
use crate::recordings::foreign::number::amounts;
use crate::recordings::unread::Unread;
use std::path::Path;

const HINT: &str = "give what `vllm bench serve --save-result` wrote (tested with vLLM 0.33)";

pub(super) fn parse(path: &Path, bytes: &[u8]) -> Result<Vec<Run>, Unread> {
    let all = json::values::<Totals>(path, bytes, HINT)?;
    let one = |(at, (line, totals)): (usize, (usize, Totals))| {
        let place = Place { path, line: Some(line), number: at + 1 };
        let sent = totals.num_prompts.unwrap_or(totals.completed);
        let failed = totals.failed.unwrap_or_else(|| sent.saturating_sub(totals.completed));
        let mut run = run(&place, &totals, failed, HINT)?;
        if let Some(drafts) = totals.spec_decode_num_drafts.filter(|&n| n > 0) {
            run.drafted = totals.spec_decode_draft_tokens.map(|tokens| tokens as f64 / drafts as f64);
            let shares = amounts(totals.spec_decode_per_position_acceptance_rates);
            run.accepted = match shares.is_empty() {
                false => Some(Acceptance::ByPosition(shares)),
                true => totals.spec_decode_acceptance_length.map(|tokens| acceptance::of_length(tokens.0)),
            };
        }
        if let Some(b) = totals.burstiness.filter(|b| b.0 != 1.0 && matches!(run.load, Load::Rate(_))) {
            run.notes.push(format!("its arrivals have burstiness {}, and Poisson arrivals are simulated", b.0));
        }
        Ok(run)
    };
    all.into_iter().enumerate().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{only, parsed, why};
    use super::*;

    /// Two runs of `vllm bench serve` 0.33.0 against `foretoken serve` with draft length 3, by 1 client and by 4
    /// clients. The latencies of single requests were removed from the file.
    const DRAFTS: &str = include_str!("../../../../fixtures/results/vllm-0.33-k3.jsonl");
    /// A file that `vllm bench serve` 0.33.0 wrote for a run against a port at which nothing listened.
    const FAILED: &str = include_str!("../../../../fixtures/results/vllm-0.33-failed.jsonl");
    const MADE: &str = r#"{"tokenizer_id": "m", "num_prompts": 12, "request_rate": 2.5, "burstiness": 1.0,
        "max_concurrency": null, "completed": 10, "failed": 2, "total_input_tokens": 1000, "total_output_tokens": 500,
        "output_throughput": 120.0, "mean_ttft_ms": 80.0, "mean_tpot_ms": 12.5, "spec_decode_num_drafts": 100,
        "spec_decode_draft_tokens": 300, "spec_decode_acceptance_length": 2.25,
        "spec_decode_per_position_acceptance_rates": [0.7, 0.4, 0.15]}"#;

    #[test]
    fn fields_are_converted() {
        let run = only(MADE);
        assert_eq!((run.load, run.completed, run.failed), (Load::Rate(2.5), 10, 2));
        assert_eq!((run.input, run.output, run.tok_s), (100.0, 50.0, 120.0));
        assert_eq!((run.ttft_s, run.tpot_s), (Some(0.08), Some(0.0125)));
        assert_eq!(run.accepted, Some(Acceptance::ByPosition(vec![0.7, 0.4, 0.15])));
        assert_eq!(run.drafted, Some(3.0));
        let older = MADE.replace("spec_decode_per_position_acceptance_rates", "x");
        assert_eq!(only(&older).accepted, Some(Acceptance::Mean(1.25)));
        let bursts = only(&MADE.replace("\"burstiness\": 1.0", "\"burstiness\": 0.5"));
        assert_eq!(bursts.notes, ["its arrivals have burstiness 0.5, and Poisson arrivals are simulated"]);
    }

    #[test]
    fn recorded_runs_are_read() {
        let runs = parsed(DRAFTS).unwrap();
        let loads: Vec<Load> = runs.iter().map(|run| run.load).collect();
        assert_eq!(loads, [Load::Clients(1), Load::Clients(4)]);
        for run in &runs {
            assert_eq!((run.completed, run.failed, run.output, run.drafted), (24, 0, 48.0, Some(3.0)));
            let Some(Acceptance::ByPosition(shares)) = &run.accepted else { panic!("{run:?}") };
            // In the recorded runs, the server accepts a draft token with probability 0.7 if all draft tokens before
            // it are accepted.
            assert!(shares.len() == 3 && (shares[0] - 0.7).abs() < 0.1 && shares[2] < shares[1], "{shares:?}");
            let clients = if run.number == 1 { 1.0 } else { 4.0 };
            let busy = run.tok_s * run.tpot_s.unwrap() / clients;
            assert!((0.6..1.1).contains(&busy), "tok/s times TPOT is the number of clients, without prompts: {busy}");
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        assert_eq!(why(FAILED), "f, line 1: run 1 has no request that succeeded; 24 failed");
        for (from, to, error) in [
            ("\"output_throughput\"", "\"x\"", "f, line 1: has no output_throughput"),
            ("\"mean_tpot_ms\"", "\"x\"", "f, line 1: has no mean_tpot_ms"),
            ("\"total_output_tokens\"", "\"x\"", "f, line 1: has no total_output_tokens"),
            ("\"total_input_tokens\"", "\"x\"", "missing field `total_input_tokens`"),
            ("\"request_rate\": 2.5", "\"request_rate\": \"inf\"", "run 1 says neither clients (max_concurrency) nor"),
            ("\"max_concurrency\": null", "\"max_concurrency\": 4", "run 1 has both request_rate and max_concurrency"),
            ("\"mean_ttft_ms\": 80.0", "\"mean_ttft_ms\": -1", "mean_ttft_ms: is no number that is not negative"),
        ] {
            let found = why(&MADE.replace(from, to));
            assert!(found.contains(error), "{found}");
        }
    }
}
