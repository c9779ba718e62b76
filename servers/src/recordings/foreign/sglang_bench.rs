//! Reads results of `python -m sglang.benchmark.serving` (bench_serving): latencies of requests, measured by the
//! benchmark's client. A file has one run per line.
//!
//! SGLang was not run to make this reader: the format is from the released source of 0.5.23,
//! `sglang/benchmark/serving.py` (`benchmark`). The file has no start times, so its latencies can be compared but the
//! run cannot be replayed.

use super::file::same_length;
use super::number::{Amount, amounts};
use super::rate::Rate;
use super::{file, json};
use crate::recordings::unread::Unread;
use serde::Deserialize;
use std::path::Path;

const HINT: &str = "give what sglang.benchmark.serving wrote to its --output-file (SGLang 0.5.23)";

/// A run of SGLang's `bench_serving`.
#[derive(Clone, Debug, PartialEq)]
pub struct BenchRun {
    /// The line of the file on which the run begins, from 1.
    pub line: usize,
    /// The kind of server that the requests were sent to: `sglang`, `sglang-oai`, `vllm` and others.
    pub backend: String,
    /// The request rate that the user asked the benchmark for.
    pub rate: Rate,
    /// The benchmark client's limit on requests in flight; `None`: no limit.
    pub max_concurrency: Option<u32>,
    /// Seconds from the start of the run's first request to the end of its last request.
    pub duration_s: f64,
    /// Number of requests of the run that succeeded.
    pub completed: usize,
    /// Number of prompt tokens of the requests that succeeded.
    pub total_input_tokens: u64,
    /// Number of output tokens of the requests that succeeded.
    pub total_output_tokens: u64,
    /// Mean tokens that a request gets in a verify step, with the target's own token. The mean is over the time since
    /// the server's start, so it describes this run only if the server was started for it. `None` without
    /// speculation.
    pub accept_length: Option<f64>,
    /// Statistics of the time to the first token, over the requests that succeeded.
    pub ttft: Summary,
    /// Statistics of the time per token after the first, over the requests that succeeded.
    pub tpot: Summary,
    /// Statistics of the time between two pieces of output (chunks of a stream) that the client received, over the
    /// requests that succeeded.
    pub itl: Summary,
    /// Statistics of the time from sending a request to its end, over the requests that succeeded.
    pub e2e_latency: Summary,
    /// Every request of the run; `None` without `--output-details`.
    pub requests: Option<Vec<UntimedRequest>>,
}

/// Statistics of one latency over the requests of a run that succeeded, in seconds (the file has milliseconds).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Mean of the latency over the requests, seconds.
    pub mean_s: f64,
    /// Median of the latency over the requests, seconds.
    pub median_s: f64,
    /// 99th percentile of the latency over the requests, seconds.
    pub p99_s: f64,
}

/// A request of SGLang's `bench_serving` as the client saw it. The format has no start times. Requests are in the order
/// in which they were created; turns of one conversation follow each other.
#[derive(Clone, Debug, PartialEq)]
pub struct UntimedRequest {
    /// Number of the request's prompt tokens.
    pub input_len: u32,
    /// Number of the request's output tokens; 0 if the request failed.
    pub output_len: u32,
    /// Seconds from sending the request to its first token; 0 if no token came.
    pub ttft_s: f64,
    /// Seconds between each two pieces of output (chunks of the stream) that follow each other. With speculation, a
    /// piece may hold several tokens.
    pub itl_s: Vec<f64>,
    /// The text of the request's error; `None` if the request succeeded. If a failed request has no text, its
    /// `output_len` is 0.
    pub error: Option<String>,
}

#[derive(Deserialize)]
struct Raw {
    backend: String,
    request_rate: Rate,
    max_concurrency: Option<u32>,
    duration: Amount,
    completed: usize,
    total_input_tokens: u64,
    total_output_tokens: u64,
    accept_length: Option<Amount>,
    mean_ttft_ms: Amount,
    median_ttft_ms: Amount,
    p99_ttft_ms: Amount,
    mean_tpot_ms: Amount,
    median_tpot_ms: Amount,
    p99_tpot_ms: Amount,
    mean_itl_ms: Amount,
    median_itl_ms: Amount,
    p99_itl_ms: Amount,
    mean_e2e_latency_ms: Amount,
    median_e2e_latency_ms: Amount,
    p99_e2e_latency_ms: Amount,
    input_lens: Option<Vec<u32>>,
    output_lens: Option<Vec<u32>>,
    ttfts: Option<Vec<Amount>>,
    itls: Option<Vec<Vec<Amount>>>,
    errors: Option<Vec<String>>,
}

/// Reads the runs from a file of SGLang's `bench_serving`.
pub fn read(path: &Path) -> Result<Vec<BenchRun>, Unread> {
    parse(path, &file::bytes(path)?)
}

/// Reads the runs from a file of SGLang's `bench_serving` with the content `bytes`. `path` is the file's name in
/// errors.
pub fn parse(path: &Path, bytes: &[u8]) -> Result<Vec<BenchRun>, Unread> {
    json::values(path, bytes, HINT)?.into_iter().map(|(line, raw)| read_run(path, line, raw)).collect()
}

fn read_run(path: &Path, line: usize, mut raw: Raw) -> Result<BenchRun, Unread> {
    Ok(BenchRun {
        line,
        requests: read_requests(path, line, &mut raw)?,
        backend: raw.backend,
        rate: raw.request_rate,
        max_concurrency: raw.max_concurrency,
        duration_s: raw.duration.0,
        completed: raw.completed,
        total_input_tokens: raw.total_input_tokens,
        total_output_tokens: raw.total_output_tokens,
        accept_length: raw.accept_length.map(|x| x.0),
        ttft: summary(raw.mean_ttft_ms, raw.median_ttft_ms, raw.p99_ttft_ms),
        tpot: summary(raw.mean_tpot_ms, raw.median_tpot_ms, raw.p99_tpot_ms),
        itl: summary(raw.mean_itl_ms, raw.median_itl_ms, raw.p99_itl_ms),
        e2e_latency: summary(raw.mean_e2e_latency_ms, raw.median_e2e_latency_ms, raw.p99_e2e_latency_ms),
    })
}

fn summary(mean_ms: Amount, median_ms: Amount, p99_ms: Amount) -> Summary {
    Summary { mean_s: mean_ms.0 / 1e3, median_s: median_ms.0 / 1e3, p99_s: p99_ms.0 / 1e3 }
}

fn read_requests(path: &Path, line: usize, raw: &mut Raw) -> Result<Option<Vec<UntimedRequest>>, Unread> {
    let Some(input_lens) = raw.input_lens.take() else {
        return Ok(None);
    };
    let missing = |name: &str| Unread::line(path, line, format!("has input_lens but no {name}"), HINT);
    let output_lens = raw.output_lens.take().ok_or_else(|| missing("output_lens"))?;
    let ttfts = raw.ttfts.take().ok_or_else(|| missing("ttfts"))?;
    let mut itls = raw.itls.take().ok_or_else(|| missing("itls"))?;
    let mut errors = raw.errors.take().ok_or_else(|| missing("errors"))?;
    let n = same_length(
        path,
        line,
        &[
            ("input_lens", Some(input_lens.len())),
            ("output_lens", Some(output_lens.len())),
            ("ttfts", Some(ttfts.len())),
            ("itls", Some(itls.len())),
            ("errors", Some(errors.len())),
        ],
    )?;
    let with_error = errors.iter().filter(|text| !text.is_empty()).count();
    if raw.completed > n - with_error {
        let what = format!("completed is {}, but {with_error} of {n} requests have an error", raw.completed);
        return Err(Unread::line(path, line, what, "the file is damaged"));
    }
    let request = |i: usize| UntimedRequest {
        input_len: input_lens[i],
        output_len: output_lens[i],
        ttft_s: ttfts[i].0,
        itl_s: amounts(std::mem::take(&mut itls[i])),
        error: Some(std::mem::take(&mut errors[i])).filter(|text| !text.is_empty()),
    };
    Ok(Some((0..n).map(request).collect()))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::recordings::foreign::testing::{damage, of, with};

    /// A made-up file in the form that SGLang 0.5.23 writes (`benchmark/serving.py`: `result | result_details` as
    /// `json.dumps` writes it). The request rate is SGLang's default, `Infinity`.
    pub(in crate::recordings::foreign) const GOOD: &str = include_str!("../../../fixtures/sglang-0.5.23-bench.jsonl");

    #[test]
    fn runs_are_read() {
        let runs = of(GOOD.as_bytes(), read).unwrap();
        let constant = |s| Summary { mean_s: s, median_s: s, p99_s: s };
        let wanted = BenchRun {
            line: 1,
            backend: "sglang".to_owned(),
            rate: Rate::AtOnce,
            max_concurrency: None,
            duration_s: 4.0,
            completed: 1,
            total_input_tokens: 20,
            total_output_tokens: 5,
            accept_length: Some(2.5),
            ttft: constant(0.125),
            tpot: constant(0.09375),
            itl: Summary { p99_s: 0.25, ..constant(0.1875) },
            e2e_latency: constant(0.5),
            requests: Some(vec![
                UntimedRequest { input_len: 20, output_len: 5, ttft_s: 0.125, itl_s: vec![0.25, 0.125], error: None },
                UntimedRequest {
                    input_len: 7,
                    output_len: 0,
                    ttft_s: 0.0,
                    itl_s: vec![],
                    error: Some("timed out".to_owned()),
                },
            ]),
        };
        assert_eq!(runs, [wanted]);
    }

    #[test]
    fn runs_without_details_are_read() {
        let totals = format!("{}}}", &GOOD[..GOOD.find(", \"input_lens\"").unwrap()])
            .replace("Infinity", "\"trace\"")
            .replace("\"accept_length\": 2.5", "\"accept_length\": null");
        let runs = of(format!("{GOOD}\n{totals}\n").as_bytes(), read).unwrap();
        assert_eq!((runs[1].line, runs[1].rate), (2, Rate::Trace));
        assert_eq!((&runs[1].requests, runs[1].accept_length), (&None, None));
    }

    #[test]
    fn damaged_files_are_refused() {
        damage(GOOD.as_bytes(), &[], read);
        for (from, to, error) in [
            ("[20, 7]", "[20]", "output_lens has 2 values, but input_lens has 1"),
            ("[20, 7]", "[20, -7]", "input_lens[1]: invalid value: integer `-7`"),
            ("[0.125, 0.0]", "[0.125, NaN]", "ttfts[1]: invalid type: string \"NaN\""),
            ("[[0.25, 0.125], []]", "[[0.25, -0.125], []]", "itls[0][1]: is negative"),
            ("\"errors\"", "\"error\"", "has input_lens but no errors"),
            ("\"completed\": 1", "\"completed\": 2", "completed is 2, but 1 of 2 requests have an error"),
            ("\"p99_itl_ms\": 250.0, ", "", "missing field `p99_itl_ms`"),
            ("\"duration\": 4.0", "\"duration\": \"4\"", "duration: invalid type: string"),
        ] {
            let found = of(&with(GOOD, from, to), read).unwrap_err();
            assert!(found.contains(error), "{found}");
        }
    }
}
