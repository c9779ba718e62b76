//! Reads the output of `vllm bench forward --output-json`, the GPU times of given batches.
//!
//! The format is that of vLLM 0.33.0: `vllm/benchmarks/forward/main.py` (the list of cases), `capture.py` and
//! `pipeline.py` (a rank's `latency_us`), `shapes.py` (requests). The benchmark was not
//! run to make this reader. The benchmark replays one CUDA graph per case, without sampling or host time. Unless
//! `--kv-len-jitter 0` is given, the benchmark draws lengths around the requested lengths. The results have the
//! lengths that were run.

use super::json;
use super::number::Amount;
use crate::recordings::unread::Unread;
use serde::Deserialize;
use std::path::Path;

const HINT: &str = "give what `vllm bench forward --output-json` wrote (vLLM 0.33)";

/// One or more equal requests of a batch that `vllm bench forward` times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct ForwardRequest {
    /// Tokens of each of these requests in the pass: the tokens of a prompt's chunk, or one token plus the draft
    /// tokens.
    pub query_len: u32,
    /// Tokens of each of these requests in the KV cache after the pass, `query_len` included.
    pub kv_len: u32,
    /// Draft tokens that the pass verifies for each of these requests: 0, or `query_len` − 1.
    #[serde(default)]
    pub num_draft_tokens: u32,
    /// True if the tokens before the request's query are earlier chunks of its prompt. If false, the tokens before a
    /// prompt's query are a prefix-cache hit.
    #[serde(default)]
    pub chunked: bool,
    /// Number of equal requests. Results list each request separately, with a count of 1.
    #[serde(default = "one")]
    pub count: u32,
}

fn one() -> u32 {
    1
}

impl ForwardRequest {
    /// Checks these requests against the rules of vLLM's `BenchRequest`. Returns the broken rule as text.
    fn check(&self) -> Result<(), &'static str> {
        let prefix = self.kv_len.saturating_sub(self.query_len);
        let decode = prefix > 0 && self.num_draft_tokens.checked_add(1) == Some(self.query_len);
        match self {
            r if r.query_len == 0 => Err("query_len is 0"),
            r if r.count == 0 => Err("count is 0"),
            r if r.kv_len < r.query_len => Err("kv_len is less than query_len, which it includes"),
            r if r.num_draft_tokens > 0 && !decode => Err("drafts need query_len = 1 + num_draft_tokens and a prefix"),
            r if r.chunked && (decode || prefix == 0) => Err("a chunk needs a prompt with a prefix"),
            _ => Ok(()),
        }
    }
}

/// A batch that `vllm bench forward` timed, with its time.
#[derive(Clone, Debug, PartialEq)]
pub struct ForwardCase {
    /// The batch's requests, at least one entry, with the lengths that vLLM ran. An entry may stand for several equal
    /// requests.
    pub requests: Vec<ForwardRequest>,
    /// Median seconds of a pass over the batch. If several ranks (GPUs) run the pass, this is the median of the
    /// slowest rank's time.
    pub median_s: f64,
    /// True if the measured time includes the time in which the drafter proposes draft tokens. `None` if the file's
    /// version does not say.
    pub drafter: Option<bool>,
}

#[derive(Deserialize)]
struct RawCase {
    case: String,
    requests: Vec<ForwardRequest>,
    median_us: Amount,
    ranks: Vec<RawRank>,
}

#[derive(Deserialize)]
struct RawRank {
    timing_scope: Option<String>,
    latency_us: RawLatency,
}

#[derive(Deserialize)]
struct RawLatency {
    median: Amount,
}

/// Reads the results of `vllm bench forward` from `bytes`, the content of a file. `path` is the file's name in
/// errors.
pub fn parse(path: &Path, bytes: &[u8]) -> Result<Vec<ForwardCase>, Unread> {
    let raw: Vec<RawCase> = json::value(path, bytes, HINT)?;
    if raw.is_empty() {
        return Err(Unread::file(path, "has no cases", "did vllm bench forward end well?"));
    }
    raw.into_iter().enumerate().map(|(i, case)| read_case(path, i, case)).collect()
}

fn read_case(path: &Path, index: usize, raw: RawCase) -> Result<ForwardCase, Unread> {
    let bad = |what: &str| Unread::file(path, format!("case {index} ({}): {what}", raw.case), HINT);
    if raw.requests.is_empty() {
        return Err(bad("has no requests"));
    }
    for (i, request) in raw.requests.iter().enumerate() {
        request.check().map_err(|what| bad(&format!("requests[{i}]: {what}")))?;
    }
    let first = raw.ranks.first().ok_or_else(|| bad("has no ranks"))?;
    if raw.median_us.0 == 0.0 {
        return Err(bad("median_us is 0"));
    }
    // vLLM writes the first rank's median time into the case's `median_us` too. If the two values differ, the file is
    // damaged.
    if first.latency_us.median != raw.median_us {
        return Err(bad("median_us is not that of the first rank"));
    }
    let drafter = match first.timing_scope.as_deref() {
        None => None,
        Some("target_and_drafter") => Some(true),
        Some("target_only") => Some(false),
        Some(other) => return Err(bad(&format!("ranks[0].timing_scope: \"{other}\" is not known"))),
    };
    Ok(ForwardCase { median_s: raw.median_us.0 / 1e6, drafter, requests: raw.requests })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::recordings::foreign::testing::{damage, of, with};

    /// A made-up file in the form that vLLM 0.33.0 writes. Its `requests` have the values that vLLM's
    /// `parse_case("verify=2*4@100:3")` and `parse_case("chunk=8@20c")` return, written by `asdict`. The keys of a
    /// rank are the keys of `main.py::run_case` and `capture.py`.
    pub(in crate::recordings::foreign) const GOOD: &str = r#"[
  {"case": "verify",
   "requests": [{"query_len": 4, "kv_len": 100, "num_draft_tokens": 3, "chunked": false},
                {"query_len": 4, "kv_len": 100, "num_draft_tokens": 3, "chunked": false}],
   "median_us": 1250.5,
   "ranks": [{"num_tokens": 8, "kv_blocks": 15, "routing": "real", "num_local_tokens": 8,
              "timing_scope": "target_and_drafter", "graph_deterministic": true, "finite": true,
              "latency_us": {"timer": "graph_events_rank_max", "median": 1250.5, "sample_spread_pct": 0.25,
                             "mean": 1251.0, "std": NaN, "count": 100, "samples_us": [1250.5]}},
             {"num_tokens": 8, "kv_blocks": 15, "routing": "real",
              "timing_scope": "target_and_drafter",
              "latency_us": {"median": 1250.5, "sample_spread_pct": 0.5}}]},
  {"case": "chunk",
   "requests": [{"query_len": 8, "kv_len": 20, "num_draft_tokens": 0, "chunked": true}],
   "median_us": 300,
   "ranks": [{"num_tokens": 8, "latency_us": {"median": 300.0, "sample_spread_pct": 0}}]}
]"#;

    #[test]
    fn cases_are_read() {
        let cases = of(GOOD.as_bytes(), parse).unwrap();
        let verify = ForwardRequest { query_len: 4, kv_len: 100, num_draft_tokens: 3, chunked: false, count: 1 };
        let chunk = ForwardRequest { query_len: 8, kv_len: 20, num_draft_tokens: 0, chunked: true, count: 1 };
        let wanted = [
            ForwardCase { requests: vec![verify, verify], median_s: 0.001_250_5, drafter: Some(true) },
            ForwardCase { requests: vec![chunk], median_s: 0.0003, drafter: None },
        ];
        assert_eq!(cases, wanted);
    }

    #[test]
    fn damaged_files_are_refused() {
        damage(GOOD.as_bytes(), &[], parse);
        for (from, to, error) in [
            ("\"kv_len\": 100", "\"kv_len\": -1", "line 3: [0].requests[0].kv_len: invalid value: integer `-1`"),
            ("\"kv_len\": 100", "\"kv_len\": 3", "case 0 (verify): requests[0]: kv_len is less than query_len"),
            ("\"kv_len\": 100, ", "", "line 3: [0].requests[0]: missing field `kv_len`"),
            ("\"query_len\": 4", "\"query_len\": 0", "case 0 (verify): requests[0]: query_len is 0"),
            ("\"query_len\": 4", "\"query_len\": 5", "requests[0]: drafts need query_len"),
            ("\"query_len\": 4", "\"query_len\": 4.5", "query_len: invalid type: floating point `4.5`"),
            ("\"kv_len\": 20", "\"kv_len\": 8", "case 1 (chunk): requests[0]: a chunk needs"),
            ("\"kv_len\": 20", "\"kv_len\": 20, \"count\": 0", "case 1 (chunk): requests[0]: count is 0"),
            ("\"median_us\": 300", "\"median_us\": 301", "case 1 (chunk): median_us is not that of the first rank"),
            ("\"median_us\": 300", "\"median_us\": NaN", "[1].median_us: invalid type: string \"NaN\""),
            ("\"median_us\": 300", "\"median_us\": 1e999", "[1].median_us: number out of range"),
            ("\"median_us\": 1250.5", "\"median_us\": 0", "case 0 (verify): median_us is 0"),
            ("_and_drafter", "_and_more", "ranks[0].timing_scope: \"target_and_more\" is not known"),
            ("\"median\": 1250.5", "\"median\": -1", "[0].ranks[0].latency_us.median: is negative"),
        ] {
            let found = of(&with(GOOD, from, to), parse).unwrap_err();
            assert!(found.contains(error), "{found}");
        }
        assert_eq!(of(b"[]", parse).unwrap_err(), "f: has no cases");
        let none = br#"[{"case": "a", "requests": [], "median_us": 1, "ranks": []}]"#;
        assert_eq!(of(none, parse).unwrap_err(), "f: case 0 (a): has no requests");
    }
}
