//! Reads `sglang-request-metrics-<hour>.log`: an SGLang server's metrics of each request that ended, one JSON object
//! per line. The server needs `--export-metrics-to-file --export-metrics-to-file-dir DIR`, and `--enable-metrics` for
//! most times.
//!
//! SGLang was not run to make this reader: the format is from the released source of 0.5.23,
//! `observability/request_metrics_exporter.py` (the line), `managers/tokenizer_manager.py` (`meta_info` and
//! `_calculate_spec_decoding_metrics`), `observability/req_time_stats.py` (times) and
//! `managers/scheduler_components/batch_result_processor.py` (the counts).

use super::number::Amount;
use super::{file, json};
use crate::recordings::unread::Unread;
use serde::Deserialize;
use std::path::Path;

const HINT: &str =
    "give a sglang-request-metrics-*.log of --export-metrics-to-file (SGLang 0.5.23); remove a line that was cut off";

/// A request that ended, with the metrics that the SGLang server logged about it.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestRecord {
    /// The line of the log on which the request stands, from 1.
    pub line: usize,
    /// The request's id on the server.
    pub id: String,
    /// Why the request ended: `stop`, `length` or `abort`.
    pub finish_reason: String,
    /// Number of prompt tokens. `None` if the request was aborted while it waited.
    pub prompt_tokens: Option<u32>,
    /// Number of the request's output tokens.
    pub completion_tokens: u32,
    /// Number of the request's prompt tokens that were found in the prefix cache.
    pub cached_tokens: Option<u32>,
    /// How often the request was preempted and computed again (SGLang's word: retracted).
    pub num_retractions: Option<u32>,
    /// The data-parallel rank that served the request.
    pub dp_rank: Option<u32>,
    /// Seconds from the request's arrival to its end.
    pub e2e_latency_s: f64,
    /// Seconds from the request's arrival to its first token. Without `--enable-metrics`, this time and the times in
    /// the following fields are `None`.
    pub first_token_latency_s: Option<f64>,
    /// Seconds that the request waited to be scheduled.
    pub queue_s: Option<f64>,
    /// Time of the request's arrival, seconds since 1970.
    pub received_s: Option<f64>,
    /// Time of the request's end, seconds since 1970.
    pub finished_s: Option<f64>,
    /// Output tokens of the request per second after the first token.
    pub decode_throughput: Option<f64>,
    /// Counts of the request's draft tokens; `None` if the request had none.
    pub speculation: Option<RequestSpeculation>,
}

/// Counts of a request's draft tokens, proposed and accepted.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestSpeculation {
    /// Number of verify steps of the request (`spec_verify_ct`).
    pub verify_steps: u64,
    /// Number of the request's accepted draft tokens, without the token that the target adds in each step
    /// (`spec_num_correct_drafts`).
    pub correct_drafts: u64,
    /// `[j]`: number of the request's verify steps in which j draft tokens were accepted. The sum over all j is
    /// `verify_steps`.
    pub correct_drafts_histogram: Vec<u64>,
    /// Number of draft tokens proposed for the request (`spec_num_proposed_drafts`). SGLang computes it as verify steps
    /// × *configured* draft length, which is wrong if the draft length adapts. `None` if the configured draft length is
    /// 0.
    pub proposed_drafts: Option<u64>,
    /// With SGLang's scheduler DSpark: mean over the request's steps of the verify length in tokens
    /// (`spec_cap_length`). The verify length includes the token before the draft tokens.
    pub cap_length: Option<f64>,
    /// With SGLang's scheduler DSpark: `[v]` is the number of the request's steps in which v tokens were verified
    /// (`spec_cap_lens_histogram`). Empty without DSpark.
    pub cap_lens_histogram: Vec<u64>,
    /// With SGLang's scheduler DSpark: mean tokens that the request would have gained per step if DSpark had cut off
    /// none of its draft tokens (`spec_block_accept_length`).
    pub block_accept_length: Option<f64>,
}

#[derive(Deserialize)]
struct Raw {
    id: String,
    finish_reason: RawReason,
    prompt_tokens: Option<u32>,
    completion_tokens: u32,
    cached_tokens: Option<u32>,
    num_retractions: Option<u32>,
    dp_rank: Option<u32>,
    e2e_latency: Amount,
    first_token_latency: Option<Amount>,
    queue_time: Option<Amount>,
    request_received_ts: Option<Amount>,
    request_finished_ts: Option<Amount>,
    decode_throughput: Option<Amount>,
    spec_verify_ct: Option<u64>,
    spec_num_correct_drafts: Option<u64>,
    spec_num_proposed_drafts: Option<u64>,
    spec_correct_drafts_histogram: Option<Vec<u64>>,
    spec_cap_length: Option<Amount>,
    spec_cap_lens_histogram: Option<Vec<u64>>,
    spec_block_accept_length: Option<Amount>,
}

#[derive(Deserialize)]
struct RawReason {
    #[serde(rename = "type")]
    kind: String,
}

/// Reads the requests from an SGLang server's log of request metrics, in the order in which the requests ended.
pub fn read(path: &Path) -> Result<Vec<RequestRecord>, Unread> {
    parse(path, &file::bytes(path)?)
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
        line,
        speculation: read_speculation(&mut raw).map_err(|what| Unread::line(path, line, what, HINT))?,
        id: raw.id,
        finish_reason: raw.finish_reason.kind,
        prompt_tokens: raw.prompt_tokens,
        completion_tokens: raw.completion_tokens,
        cached_tokens: raw.cached_tokens,
        num_retractions: raw.num_retractions,
        dp_rank: raw.dp_rank,
        e2e_latency_s: raw.e2e_latency.0,
        first_token_latency_s: raw.first_token_latency.map(|x| x.0),
        queue_s: raw.queue_time.map(|x| x.0),
        received_s: raw.request_received_ts.map(|x| x.0),
        finished_s: raw.request_finished_ts.map(|x| x.0),
        decode_throughput: raw.decode_throughput.map(|x| x.0),
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
        correct_drafts: correct,
        correct_drafts_histogram: histogram,
        proposed_drafts: raw.spec_num_proposed_drafts,
        cap_length: raw.spec_cap_length.map(|x| x.0),
        cap_lens_histogram: raw.spec_cap_lens_histogram.take().unwrap_or_default(),
        block_accept_length: raw.spec_block_accept_length.map(|x| x.0),
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
        let records = of(GOOD.as_bytes(), read).unwrap();
        let first = RequestRecord {
            line: 1,
            id: "r-0".to_owned(),
            finish_reason: "length".to_owned(),
            prompt_tokens: Some(40),
            completion_tokens: 16,
            cached_tokens: Some(8),
            num_retractions: Some(0),
            dp_rank: Some(0),
            e2e_latency_s: 0.375,
            first_token_latency_s: None,
            queue_s: Some(0.002),
            received_s: None,
            finished_s: None,
            decode_throughput: None,
            speculation: Some(RequestSpeculation {
                verify_steps: 6,
                correct_drafts: 10,
                correct_drafts_histogram: vec![2, 1, 0, 3],
                proposed_drafts: Some(24),
                cap_length: None,
                cap_lens_histogram: vec![],
                block_accept_length: None,
            }),
        };
        let second = RequestRecord {
            line: 2,
            id: "r-1".to_owned(),
            first_token_latency_s: Some(0.05),
            received_s: Some(1_700_000_000.25),
            finished_s: Some(1_700_000_000.625),
            decode_throughput: Some(46.15),
            speculation: first.speculation.clone().map(|s| RequestSpeculation {
                cap_length: Some(4.0),
                cap_lens_histogram: vec![0, 0, 0, 1, 4, 1],
                block_accept_length: Some(19.0 / 6.0),
                ..s
            }),
            ..first.clone()
        };
        assert_eq!(records, [first, second]);
    }

    /// The test reads a line with the fields that SGLang's `tokenizer_manager.py::_handle_abort_req` writes for an
    /// aborted request.
    #[test]
    fn aborted_and_plain_requests_are_read() {
        let abort = r#"{"request_parameters": "{}", "id": "a", "finish_reason": {"type": "abort", "message": "m"}, "weight_version": "default", "e2e_latency": 1.5, "completion_tokens": 0}"#;
        let record = of(abort.as_bytes(), read).unwrap().remove(0);
        assert_eq!((record.prompt_tokens, record.completion_tokens, record.speculation), (None, 0, None));
        let found = of(&with(abort, "abort", "stop"), read).unwrap_err();
        assert_eq!(found, "f, line 1: has no prompt_tokens, but it was not aborted");
    }

    #[test]
    fn damaged_files_are_refused() {
        let first = GOOD.find('\n').unwrap();
        // A file that is cut at the end of a line looks like a shorter log, so these cuts need not be errors.
        damage(GOOD.as_bytes(), &[first, first + 1, GOOD.len() - 1], read);
        for (from, to, error) in [
            (
                "[2, 1, 0, 3]",
                "[2, 1, 0, 4]",
                "line 1: spec_correct_drafts_histogram makes spec_verify_ct 7, but it is 6",
            ),
            ("[2, 1, 0, 3]", "[2, 1, 3]", "makes spec_num_correct_drafts 7, but it is 10"),
            ("[2, 1, 0, 3]", "[2, 1, 0, -3]", "spec_correct_drafts_histogram[3]: invalid value: integer `-3`"),
            (
                "[2, 1, 0, 3]",
                "[18446744073709551615, 18446744073709551615]",
                "makes spec_verify_ct 18446744073709551615",
            ),
            ("\"spec_correct_drafts_histogram\"", "\"x\"", "has spec_verify_ct but no spec_correct_drafts_histogram"),
            ("\"prompt_tokens\": 40", "\"prompt_tokens\": 4e1", "prompt_tokens: invalid type: floating point `40.0`"),
            ("\"e2e_latency\": 0.375", "\"e2e_latency\": NaN", "e2e_latency: invalid type: string \"NaN\""),
            ("\"e2e_latency\": 0.375", "\"e2e_latency\": -1", "e2e_latency: is negative"),
            ("{\"type\": \"length\", \"length\": 16}", "null", "finish_reason: invalid type: null"),
            ("\"id\": \"r-0\", ", "", "line 1: missing field `id`"),
        ] {
            let found = of(&with(GOOD, from, to), read).unwrap_err();
            assert!(found.contains(error), "{found}");
        }
    }
}
