//! Reads results of `vllm bench serve --save-result --save-detailed`: the requests that its client sent, and the
//! counts of the server's rounds.
//!
//! The format is that of vLLM 0.33.0, `vllm/benchmarks/serve.py` (`benchmark`, `main_async`) and
//! `lib/endpoint_request_func.py`. vLLM 0.32 writes the format without the server's own times. A file holds one run
//! or, with `--append-result`, one run per line.

use super::file::same_length;
use super::json;
use super::number::{Amount, amounts};
use crate::recordings::unread::Unread;
use serde::Deserialize;
use std::path::Path;

const HINT: &str = "give what `vllm bench serve --save-result --save-detailed` wrote (vLLM 0.32 or 0.33)";

#[derive(Clone, Debug, PartialEq)]
pub struct BenchRun {
    /// The growth of the server's speculation counters during the run; `None` if the server did not speculate.
    pub speculation: Option<SpeculationTotals>,
    /// Every request of the run, in the order in which the requests were created.
    pub requests: Vec<BenchRequest>,
}

/// How much the server's counters of speculative decoding grew during a run of `vllm bench serve`.
#[derive(Clone, Debug, PartialEq)]
pub struct SpeculationTotals {
    /// Number of rounds during the run. A round is a request's draft tokens of one step.
    pub num_drafts: u64,
    pub draft_tokens: u64,
    /// `[i]`: share of all rounds in which the draft token at position i was accepted. Rounds without a draft token at
    /// position i count as not accepted.
    pub per_position: Vec<f64>,
}

/// A request of `vllm bench serve` as the client saw it.
#[derive(Clone, Debug, PartialEq)]
pub struct BenchRequest {
    /// When the client sent the request, in seconds. The zero of these times is an arbitrary instant, equal for all
    /// requests of the run.
    pub start_s: f64,
    /// Number of the request's prompt tokens.
    pub input_len: u32,
    /// Number of the request's output tokens; 0 if the request failed.
    pub output_len: u32,
    /// The text of the request's error; `None` if the request succeeded. If a failed request has no text, its
    /// `output_len` is 0.
    pub error: Option<String>,
}

#[derive(Deserialize)]
struct Raw {
    completed: usize,
    failed: Option<usize>,
    /// A field that only runs of pooling models have. Files with it are refused.
    total_input_sequences: Option<u64>,
    input_lens: Option<Vec<u32>>,
    output_lens: Option<Vec<u32>>,
    start_times: Option<Vec<Amount>>,
    errors: Option<Vec<String>>,
    spec_decode_num_drafts: Option<u64>,
    spec_decode_draft_tokens: Option<u64>,
    spec_decode_per_position_acceptance_rates: Option<Vec<Amount>>,
}

/// Reads the runs from a file of `vllm bench serve` with the content `bytes`. `path` is the file's name in errors.
pub fn parse(path: &Path, bytes: &[u8]) -> Result<Vec<BenchRun>, Unread> {
    json::values(path, bytes, HINT)?.into_iter().map(|(line, raw)| read_run(path, line, raw)).collect()
}

fn read_run(path: &Path, line: usize, mut raw: Raw) -> Result<BenchRun, Unread> {
    let bad = |what: String, hint: &str| Unread::line(path, line, what, hint);
    if raw.total_input_sequences.is_some() {
        return Err(bad(
            "is a run of a pooling model, which has no output".to_owned(),
            "give a run that generates text",
        ));
    }
    let requests = read_requests(path, line, &mut raw)?;
    let failed = raw.failed.unwrap_or_else(|| requests.len().saturating_sub(raw.completed));
    if raw.completed.checked_add(failed) != Some(requests.len()) {
        let what = format!("completed {} and failed {failed} are not its {} requests", raw.completed, requests.len());
        return Err(bad(what, "the file is damaged"));
    }
    let with_error = requests.iter().filter(|r| r.error.is_some()).count();
    if with_error > failed {
        return Err(bad(format!("errors has {with_error} texts, but failed is {failed}"), "the file is damaged"));
    }
    Ok(BenchRun { speculation: read_speculation(path, line, &mut raw)?, requests })
}

fn read_requests(path: &Path, line: usize, raw: &mut Raw) -> Result<Vec<BenchRequest>, Unread> {
    let missing = |name: &str| {
        let hint = "run vllm bench serve again with --save-result --save-detailed";
        Unread::line(path, line, format!("has no {name}: it was saved without --save-detailed"), hint)
    };
    let input_lens = raw.input_lens.take().ok_or_else(|| missing("input_lens"))?;
    let output_lens = raw.output_lens.take().ok_or_else(|| missing("output_lens"))?;
    let starts = raw.start_times.take().ok_or_else(|| missing("start_times"))?;
    let mut errors = raw.errors.take().ok_or_else(|| missing("errors"))?;
    let n = same_length(
        path,
        line,
        &[
            ("input_lens", Some(input_lens.len())),
            ("output_lens", Some(output_lens.len())),
            ("start_times", Some(starts.len())),
            ("errors", Some(errors.len())),
        ],
    )?;
    let request = |i: usize| BenchRequest {
        start_s: starts[i].0,
        input_len: input_lens[i],
        output_len: output_lens[i],
        error: Some(std::mem::take(&mut errors[i])).filter(|text| !text.is_empty()),
    };
    Ok((0..n).map(request).collect())
}

/// Reads a run's counts of speculative decoding. vLLM writes all fields whose names begin with `spec_decode_`, or
/// none of them.
fn read_speculation(path: &Path, line: usize, raw: &mut Raw) -> Result<Option<SpeculationTotals>, Unread> {
    let Some(num_drafts) = raw.spec_decode_num_drafts else {
        return Ok(None);
    };
    let missing = |name: &str| Unread::line(path, line, format!("has no spec_decode_{name}"), HINT);
    Ok(Some(SpeculationTotals {
        num_drafts,
        draft_tokens: raw.spec_decode_draft_tokens.ok_or_else(|| missing("draft_tokens"))?,
        per_position: raw
            .spec_decode_per_position_acceptance_rates
            .take()
            .map(amounts)
            .ok_or_else(|| missing("per_position_acceptance_rates"))?,
    }))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::recordings::foreign::testing::{damage, of, with};

    /// One made-up line in the form that vLLM 0.33.0 writes (`benchmarks/serve.py`, through `json.dump`).
    pub(in crate::recordings::foreign) const GOOD: &str = include_str!("../../../fixtures/vllm-0.33-bench.jsonl");

    #[test]
    fn requests_are_read() {
        let runs = of(GOOD.as_bytes(), parse).unwrap();
        let wanted = BenchRun {
            speculation: Some(SpeculationTotals { num_drafts: 3, draft_tokens: 6, per_position: vec![0.75, 0.25] }),
            requests: vec![
                BenchRequest { start_s: 5000.5, input_len: 30, output_len: 6, error: None },
                BenchRequest { start_s: 5000.75, input_len: 12, output_len: 0, error: Some("Bad Gateway".to_owned()) },
            ],
        };
        assert_eq!(runs, [wanted]);
    }

    #[test]
    fn appended_runs_and_older_ones_are_read() {
        let older = GOOD
            .replace("\"server_queue_times\": [0.001, null], \"server_ttfts\": [0.12, null], ", "")
            .replace("spec_decode", "diffusion");
        let runs = of(format!("{GOOD}\n{older}").as_bytes(), parse).unwrap();
        assert_eq!((&runs[1].speculation, &runs[1].requests), (&None, &runs[0].requests));
    }

    #[test]
    fn a_run_without_details_is_refused() {
        let from = GOOD.find("\"input_lens\"").unwrap();
        let to = GOOD.find("\"spec_decode_acceptance_rate\"").unwrap();
        let totals = format!("{}{}", &GOOD[..from], &GOOD[to..]);
        let error = of(totals.as_bytes(), parse).unwrap_err();
        assert_eq!(error, "f, line 1: has no input_lens: it was saved without --save-detailed");
    }

    #[test]
    fn damaged_files_are_refused() {
        damage(GOOD.as_bytes(), &[], parse);
        for (from, to, error) in [
            ("[30, 12]", "[30]", "output_lens has 2 values, but input_lens has 1"),
            ("[30, 12]", "[30, -12]", "input_lens[1]: invalid value: integer `-12`"),
            ("5000.75", "NaN", "start_times[1]: invalid type: string \"NaN\""),
            ("5000.75", "-5000.75", "start_times[1]: is negative"),
            ("5000.75", "1e999", "start_times[1]: number out of range"),
            (", 5000.75", "", "start_times has 1 values, but input_lens has 2"),
            ("\"start_times\"", "\"starts\"", "has no start_times"),
            ("\"completed\": 1", "\"completed\": 2", "completed 2 and failed 1 are not its 2 requests"),
            ("\"completed\": 1", "\"completed\": 18446744073709551615", "failed 1 are not its 2 requests"),
            ("[\"\", \"Bad", "[\"x\", \"Bad", "errors has 2 texts, but failed is 1"),
            ("spec_decode_draft_tokens", "x", "has no spec_decode_draft_tokens"),
            ("\"label\"", "\"total_input_sequences\": 2, \"label\"", "is a run of a pooling model"),
        ] {
            let found = of(&with(GOOD, from, to), parse).unwrap_err();
            assert!(found.contains(error), "{found}");
        }
    }
}
