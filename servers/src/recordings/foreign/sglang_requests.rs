//! Reads `sglang-request-metrics-<hour>.log`: an SGLang server's metrics of each request that ended, one JSON object
//! per line. The server needs `--export-metrics-to-file --export-metrics-to-file-dir DIR`, and `--enable-metrics` for
//! most times.
//!
//! SGLang was not run to make this reader: the format is from the released source of 0.5.23,
//! `observability/request_metrics_exporter.py` (the line), `managers/tokenizer_manager.py` (`meta_info` and
//! `_calculate_spec_decoding_metrics`), `observability/req_time_stats.py` (times) and
//! `managers/scheduler_components/batch_result_processor.py` (the counts).

use super::json;
use super::number::Amount;
use crate::recordings::unread::Unread;
use serde::Deserialize;
use std::path::Path;

const HINT: &str =
    "give a sglang-request-metrics-*.log of --export-metrics-to-file (SGLang 0.5.23); remove a line that was cut off";

/// A request that ended, with the metrics that the SGLang server logged about it.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestRecord {
    /// Number of prompt tokens. `None` if the request was aborted while it waited.
    pub prompt_tokens: Option<u32>,
    pub completion_tokens: u32,
    /// Time of the request's arrival, seconds since 1970. `None` without `--enable-metrics`.
    pub received_s: Option<f64>,
    /// Counts of the request's draft tokens; `None` if the request had none.
    pub speculation: Option<RequestSpeculation>,
}

/// Counts of a request's draft tokens, proposed and accepted.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestSpeculation {
    /// Number of verify steps of the request (`spec_verify_ct`).
    pub verify_steps: u64,
    /// `[j]`: number of the request's verify steps in which j draft tokens were accepted. The sum over all j is
    /// `verify_steps`.
    pub correct_drafts_histogram: Vec<u64>,
    /// Number of draft tokens proposed for the request (`spec_num_proposed_drafts`). SGLang computes it as verify steps
    /// × *configured* draft length, which is wrong if the draft length adapts. `None` if the configured draft length is
    /// 0.
    pub proposed_drafts: Option<u64>,
}

#[derive(Deserialize)]
struct Raw {
    finish_reason: RawReason,
    prompt_tokens: Option<u32>,
    completion_tokens: u32,
    request_received_ts: Option<Amount>,
    spec_verify_ct: Option<u64>,
    spec_num_correct_drafts: Option<u64>,
    spec_num_proposed_drafts: Option<u64>,
    spec_correct_drafts_histogram: Option<Vec<u64>>,
}

#[derive(Deserialize)]
struct RawReason {
    #[serde(rename = "type")]
    kind: String,
}

/// Reads the requests from an SGLang server's log of request metrics with the content `bytes`, in the order in which
/// the requests ended. `path` is the file's name in errors.
pub fn parse(path: &Path, bytes: &[u8]) -> Result<Vec<RequestRecord>, Unread> {
    json::values(path, bytes, HINT)?.into_iter().map(|(line, raw)| read_record(path, line, raw)).collect()
}

fn read_record(path: &Path, line: usize, mut raw: Raw) -> Result<RequestRecord, Unread> {
    if raw.prompt_tokens.is_none() && raw.finish_reason.kind != "abort" {
        return Err(Unread::line(path, line, "has no prompt_tokens, but it was not aborted", HINT));
    }
    Ok(RequestRecord {
        speculation: read_speculation(&mut raw).map_err(|what| Unread::line(path, line, what, HINT))?,
        prompt_tokens: raw.prompt_tokens,
        completion_tokens: raw.completion_tokens,
        received_s: raw.request_received_ts.map(|x| x.0),
    })
}

/// Reads the counts of a request's draft tokens. It is an error if the counts contradict each other. Returns `None` if
/// the histogram and the step count are missing: SGLang omits both if no step verified a draft token, because it
/// updates the step count, the number of accepted draft tokens and the histogram together.
fn read_speculation(raw: &mut Raw) -> Result<Option<RequestSpeculation>, String> {
    let Some(histogram) = raw.spec_correct_drafts_histogram.take() else {
        return match raw.spec_verify_ct {
            None => Ok(None),
            Some(_) => Err("has spec_verify_ct but no spec_correct_drafts_histogram".to_owned()),
        };
    };
    let steps = sum(histogram.iter().copied());
    let correct = sum((0..).zip(&histogram).map(|(j, &n)| n.saturating_mul(j)));
    for (name, counted, given) in [
        ("spec_verify_ct", steps, raw.spec_verify_ct),
        ("spec_num_correct_drafts", correct, raw.spec_num_correct_drafts),
    ] {
        if given.is_some_and(|given| given != counted) {
            let given = given.unwrap_or_default();
            return Err(format!("spec_correct_drafts_histogram makes {name} {counted}, but it is {given}"));
        }
    }
    Ok(Some(RequestSpeculation {
        verify_steps: steps,
        correct_drafts_histogram: histogram,
        proposed_drafts: raw.spec_num_proposed_drafts,
    }))
}

/// The sum of `counts`. If the sum would overflow, the result is the largest `u64`, because damaged counts may be
/// very large.
fn sum(counts: impl Iterator<Item = u64>) -> u64 {
    counts.fold(0, u64::saturating_add)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::recordings::foreign::testing::{damage, of, with};

    /// A file for the tests. SGLang 0.5.23's own `FileRequestMetricsExporter` wrote it from made-up values. SGLang's
    /// `_calculate_spec_decoding_metrics` made the fields that begin with `spec_`, for steps that verify 5 tokens (4
    /// draft tokens and the bonus token). The second line has the fields that DSpark's mode `cap-accept` writes.
    pub(in crate::recordings::foreign) const GOOD: &str =
        include_str!("../../../fixtures/sglang-0.5.23-requests.jsonl");

    #[test]
    fn records_are_read() {
        let records = of(GOOD.as_bytes(), parse).unwrap();
        let first = RequestRecord {
            prompt_tokens: Some(40),
            completion_tokens: 16,
            received_s: None,
            speculation: Some(RequestSpeculation {
                verify_steps: 6,
                correct_drafts_histogram: vec![2, 1, 0, 3],
                proposed_drafts: Some(24),
            }),
        };
        let second = RequestRecord { received_s: Some(1_700_000_000.25), ..first.clone() };
        assert_eq!(records, [first, second]);
    }

    /// The test reads a line with the fields that SGLang's `tokenizer_manager.py::_handle_abort_req` writes for an
    /// aborted request.
    #[test]
    fn aborted_and_plain_requests_are_read() {
        let abort = r#"{"request_parameters": "{}", "id": "a", "finish_reason": {"type": "abort", "message": "m"}, "weight_version": "default", "e2e_latency": 1.5, "completion_tokens": 0}"#;
        let record = of(abort.as_bytes(), parse).unwrap().remove(0);
        assert_eq!((record.prompt_tokens, record.completion_tokens, record.speculation), (None, 0, None));
        let found = of(&with(abort, "abort", "stop"), parse).unwrap_err();
        assert_eq!(found, "f, line 1: has no prompt_tokens, but it was not aborted");
    }

    #[test]
    fn damaged_files_are_refused() {
        let first = GOOD.find('\n').unwrap();
        // A file that is cut at the end of a line looks like a shorter log, so these cuts need not be errors.
        damage(GOOD.as_bytes(), &[first, first + 1, GOOD.len() - 1], parse);
        for (from, to, error) in [
            (
                "[2, 1, 0, 3]",
                "[2, 1, 0, 4]",
                "line 1: spec_correct_drafts_histogram makes spec_verify_ct 7, but it is 6",
            ),
            ("[2, 1, 0, 3]", "[2, 1, 3]", "makes spec_num_correct_drafts 7, but it is 10"),
            ("[2, 1, 0, 3]", "[2, 1, 0, -3]", "spec_correct_drafts_histogram[3]: invalid value: integer `-3`"),
            (
                "[2, 1, 0, 3]", "[18446744073709551615, 18446744073709551615]",
                "makes spec_verify_ct 18446744073709551615",
            ),
            ("\"spec_correct_drafts_histogram\"", "\"x\"", "has spec_verify_ct but no spec_correct_drafts_histogram"),
            ("\"prompt_tokens\": 40", "\"prompt_tokens\": 4e1", "prompt_tokens: invalid type: floating point `40.0`"),
            ("1700000000.25", "NaN", "line 2: request_received_ts: invalid type: string \"NaN\""),
            ("1700000000.25", "-1", "line 2: request_received_ts: is negative"),
            ("{\"type\": \"length\", \"length\": 16}", "null", "finish_reason: invalid type: null"),
        ] {
            let found = of(&with(GOOD, from, to), parse).unwrap_err();
            assert!(found.contains(error), "{found}");
        }
    }
}
