//! Reads results of `python -m sglang.benchmark.serving` (bench_serving): the requests of its client. Each line of a
//! file is a run.
//!
//! SGLang was not run to make this reader: the format is from the released source of 0.5.23,
//! `sglang/benchmark/serving.py` (`benchmark`). The file has no start times, so the run cannot be replayed.

use super::file::same_length;
use super::json;
use super::number::Amount;
use crate::recordings::unread::Unread;
use serde::Deserialize;
use std::path::Path;

const HINT: &str = "give what sglang.benchmark.serving wrote to its --output-file (SGLang 0.5.23)";

#[derive(Clone, Debug, PartialEq)]
pub struct BenchRun {
    /// Mean tokens that a request gets in a verify step, with the target's own token. The mean is over the time since
    /// the server's start, so it describes this run only if the server was started for it. `None` without
    /// speculation.
    pub accept_length: Option<f64>,
    /// Every request of the run; `None` without `--output-details`.
    pub requests: Option<Vec<UntimedRequest>>,
}

/// A request of SGLang's `bench_serving` as the client saw it. The format has no start times. Requests are in the order
/// in which they were created; turns of one conversation follow each other.
#[derive(Clone, Debug, PartialEq)]
pub struct UntimedRequest {
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
    accept_length: Option<Amount>,
    input_lens: Option<Vec<u32>>,
    output_lens: Option<Vec<u32>>,
    errors: Option<Vec<String>>,
}

/// Reads the runs from a file of SGLang's `bench_serving` with the content `bytes`. `path` is the file's name in
/// errors.
pub fn parse(path: &Path, bytes: &[u8]) -> Result<Vec<BenchRun>, Unread> {
    json::values(path, bytes, HINT)?.into_iter().map(|(line, raw)| read_run(path, line, raw)).collect()
}

fn read_run(path: &Path, line: usize, mut raw: Raw) -> Result<BenchRun, Unread> {
    Ok(BenchRun { requests: read_requests(path, line, &mut raw)?, accept_length: raw.accept_length.map(|x| x.0) })
}

fn read_requests(path: &Path, line: usize, raw: &mut Raw) -> Result<Option<Vec<UntimedRequest>>, Unread> {
    let Some(input_lens) = raw.input_lens.take() else {
        return Ok(None);
    };
    let missing = |name: &str| Unread::line(path, line, format!("has input_lens but no {name}"), HINT);
    let output_lens = raw.output_lens.take().ok_or_else(|| missing("output_lens"))?;
    let mut errors = raw.errors.take().ok_or_else(|| missing("errors"))?;
    let n = same_length(
        path,
        line,
        &[
            ("input_lens", Some(input_lens.len())),
            ("output_lens", Some(output_lens.len())),
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
        let runs = of(GOOD.as_bytes(), parse).unwrap();
        let wanted = BenchRun {
            accept_length: Some(2.5),
            requests: Some(vec![
                UntimedRequest { input_len: 20, output_len: 5, error: None },
                UntimedRequest { input_len: 7, output_len: 0, error: Some("timed out".to_owned()) },
            ]),
        };
        assert_eq!(runs, [wanted]);
    }

    #[test]
    fn runs_without_details_are_read() {
        let totals = format!("{}}}", &GOOD[..GOOD.find(", \"input_lens\"").unwrap()])
            .replace("\"accept_length\": 2.5", "\"accept_length\": null");
        let runs = of(format!("{GOOD}\n{totals}\n").as_bytes(), parse).unwrap();
        assert_eq!((&runs[1].requests, runs[1].accept_length), (&None, None));
    }

    #[test]
    fn damaged_files_are_refused() {
        damage(GOOD.as_bytes(), &[], parse);
        for (from, to, error) in [
            ("[20, 7]", "[20]", "output_lens has 2 values, but input_lens has 1"),
            ("[20, 7]", "[20, -7]", "input_lens[1]: invalid value: integer `-7`"),
            ("\"accept_length\": 2.5", "\"accept_length\": NaN", "accept_length: invalid type: string \"NaN\""),
            ("\"accept_length\": 2.5", "\"accept_length\": -2.5", "accept_length: is negative"),
            ("\"errors\"", "\"error\"", "has input_lens but no errors"),
            ("\"completed\": 1", "\"completed\": 2", "completed is 2, but 1 of 2 requests have an error"),
            ("\"completed\": 1, ", "", "missing field `completed`"),
        ] {
            let found = of(&with(GOOD, from, to), parse).unwrap_err();
            assert!(found.contains(error), "{found}");
        }
    }
}
