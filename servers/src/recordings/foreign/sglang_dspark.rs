//! Reads the step records of DSpark, the scheduler of SGLang that chooses how many draft tokens to verify. They have
//! the times of each verify step's parts and, for each request, how many tokens were verified and accepted. A server
//! with `SGLANG_DSPARK_DEBUG_DUMP=all` keeps the records and returns them from `GET /server_info`. The file is the
//! answer to this request.
//!
//! SGLang was not run to make this reader: the format is from the released source of 0.5.23,
//! `speculative/dspark_components/dspark_observability.py` (the records),
//! `managers/scheduler_components/internal_state.py` and `entrypoints/http_server.py` (their place in the answer). The
//! server keeps at most the last 200,000 steps.

use super::json;
use super::number::Amount;
use crate::recordings::unread::Unread;
use serde::Deserialize;
use std::path::Path;

const HINT: &str = "save the /server_info of the server that decodes (SGLang 0.5.23), for example with curl";

/// The records of verify steps that SGLang's scheduler DSpark made on one data-parallel rank of a server.
#[derive(Clone, Debug, PartialEq)]
pub struct DsparkRecords {
    /// Number of tokens that DSpark drafts for a request in each step.
    pub gamma: u32,
    /// If not `None`, the server simulated acceptance with this number of tokens per step, and the records say nothing
    /// about real acceptance.
    pub simulated_accept_length: Option<f64>,
    /// The recorded verify steps of the data-parallel rank, oldest first.
    pub steps: Vec<DsparkStep>,
}

/// A verify step of one rank, as DSpark recorded it. Parts that the server did not keep are `None`.
#[derive(Clone, Debug, PartialEq)]
pub struct DsparkStep {
    /// Number of requests in the verify step.
    pub batch_size: Option<u32>,
    /// Number of tokens in the verify pass, including the padding of its CUDA graph.
    pub verify_tokens: Option<u32>,
    pub draft_gpu_s: Option<f64>,
    pub verify_gpu_s: Option<f64>,
    /// The step's requests; `None` if they were not recorded.
    pub requests: Option<Vec<DsparkRequest>>,
}

/// What a step did for one of its requests.
#[derive(Clone, Debug, PartialEq)]
pub struct DsparkRequest {
    /// The request's tokens in the KV cache before the step.
    pub prefix_len: u32,
    /// Number of the request's tokens that the step verified: the token before the draft tokens, and `verify_len` - 1
    /// draft tokens.
    pub verify_len: u32,
    /// Number of the request's draft tokens that the target accepted in the step.
    pub correct_drafts: u32,
}

#[derive(Deserialize)]
struct RawInfo {
    internal_states: Vec<RawState>,
    speculative_num_steps: Option<u32>,
}

#[derive(Deserialize)]
struct RawState {
    dspark_info_record: Option<RawRecord>,
    /// Mean tokens of a round since the server started, with the target's own.
    avg_spec_accept_length: Option<Amount>,
}

#[derive(Deserialize)]
struct RawRecord {
    gamma: u32,
    simulate_acc_len: Option<Amount>,
    records: Vec<RawStep>,
}

/// A step as SGLang writes it. SGLang omits fields that have their default value. An unknown value, whose default is
/// -1, is therefore absent.
#[derive(Deserialize)]
struct RawStep {
    bs: Option<u32>,
    num_verify_tokens: Option<u32>,
    draft_gpu_ms: Option<Amount>,
    target_verify_gpu_ms: Option<Amount>,
    reqs: Option<Vec<RawRequest>>,
}

#[derive(Deserialize)]
struct RawRequest {
    prefix_len: u32,
    verify_len: u32,
    acc_len: u32,
    correct_drafts: u32,
}

/// Reads the records of SGLang's scheduler DSpark from `bytes`, the content of a file. Returns one entry for each
/// data-parallel rank that has records. `path` is the file's name in errors.
pub fn parse(path: &Path, bytes: &[u8]) -> Result<Vec<DsparkRecords>, Unread> {
    let info: RawInfo = json::value(path, bytes, HINT)?;
    let mean = info.internal_states.iter().find_map(|state| state.avg_spec_accept_length.map(|x| x.0));
    let ranks = info.internal_states.into_iter().enumerate();
    let records: Vec<DsparkRecords> = ranks
        .filter_map(|(rank, state)| Some(read_record(rank, state.dspark_info_record?)))
        .collect::<Result<_, _>>()
        .map_err(|what| Unread::file(path, what, "the file is damaged, or of another version of SGLang"))?;
    if records.is_empty() {
        if let Some(mean) = mean {
            let k = info.speculative_num_steps.map_or("K".to_owned(), |k| k.to_string());
            let what = format!("has no steps, but a mean length: avg_spec_accept_length {mean:.2}");
            let hint = format!(
                "say it by its name: ask --accept mean-length={mean:.2}@{k}, or in an experiment acceptance.source = \
                 {{ mean-length = {{ lengths = [[{k}, {mean:.2}]] }} }}"
            );
            return Err(Unread::file(path, what, hint));
        }
        let hint =
            "start the server with DSpark and SGLANG_DSPARK_DEBUG_DUMP=all, and save /server_info after the load";
        return Err(Unread::file(path, "has no dspark_info_record in internal_states", hint));
    }
    Ok(records)
}

fn read_record(rank: usize, raw: RawRecord) -> Result<DsparkRecords, String> {
    let real = raw.simulate_acc_len.is_none();
    let mut steps = Vec::with_capacity(raw.records.len());
    for (i, step) in raw.records.into_iter().enumerate() {
        let bad = |what| format!("internal_states[{rank}].dspark_info_record.records[{i}]: {what}");
        steps.push(read_step(step, real).map_err(bad)?);
    }
    Ok(DsparkRecords { gamma: raw.gamma, simulated_accept_length: raw.simulate_acc_len.map(|x| x.0), steps })
}

fn read_step(raw: RawStep, real: bool) -> Result<DsparkStep, String> {
    if let (Some(bs), Some(reqs)) = (raw.bs, &raw.reqs)
        && bs as usize != reqs.len()
    {
        return Err(format!("bs is {bs}, but reqs has {}", reqs.len()));
    }
    let seconds = |ms: Option<Amount>| ms.map(|ms| ms.0 / 1e3);
    let request = |(i, r)| read_request(r, real).map_err(|what| format!("reqs[{i}]: {what}"));
    Ok(DsparkStep {
        batch_size: raw.bs,
        verify_tokens: raw.num_verify_tokens,
        draft_gpu_s: seconds(raw.draft_gpu_ms),
        verify_gpu_s: seconds(raw.target_verify_gpu_ms),
        requests: raw.reqs.map(|list| list.into_iter().enumerate().map(request).collect()).transpose()?,
    })
}

fn read_request(raw: RawRequest, real: bool) -> Result<DsparkRequest, String> {
    if raw.correct_drafts.checked_add(1) != Some(raw.acc_len) {
        return Err(format!("acc_len is {}, not one more than correct_drafts {}", raw.acc_len, raw.correct_drafts));
    }
    // If the server simulated acceptance, the accept length may exceed the verified length.
    if real && raw.acc_len > raw.verify_len {
        return Err(format!("acc_len is {}, but only {} tokens were verified", raw.acc_len, raw.verify_len));
    }
    Ok(DsparkRequest { prefix_len: raw.prefix_len, verify_len: raw.verify_len, correct_drafts: raw.correct_drafts })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::recordings::foreign::testing::{damage, of, with};

    /// A file for the tests. SGLang 0.5.23's own `DecodeStepRecord` and `ReqDetail` wrote the records through msgspec
    /// 0.22.0 from made-up values. All other parts of the file are made up in the form of `DsparkInfoDumper.dump` and
    /// `/server_info`.
    pub(in crate::recordings::foreign) const GOOD: &str = include_str!("../../../fixtures/sglang-0.5.23-dspark.json");

    #[test]
    fn records_are_read() {
        let records = of(GOOD.as_bytes(), parse).unwrap();
        let request = |prefix_len, verify_len, correct_drafts| DsparkRequest { prefix_len, verify_len, correct_drafts };
        let full = DsparkStep {
            batch_size: Some(2),
            verify_tokens: Some(8),
            draft_gpu_s: Some(0.0015),
            verify_gpu_s: Some(0.008),
            requests: Some(vec![request(100, 4, 3), request(57, 2, 1)]),
        };
        let bare =
            DsparkStep { batch_size: None, verify_tokens: None, draft_gpu_s: None, verify_gpu_s: None, requests: None };
        let wanted = DsparkRecords { gamma: 3, simulated_accept_length: None, steps: vec![full, bare] };
        assert_eq!(records, [wanted]);
    }

    #[test]
    fn simulated_acceptance_shows_and_may_exceed_what_was_verified() {
        let simulated = GOOD.replace("\"simulate_acc_len\": null", "\"simulate_acc_len\": 3.0");
        let longer = with(&simulated, "\"verify_len\": 4", "\"verify_len\": 1");
        let records = of(&longer, parse).unwrap();
        assert_eq!(records[0].simulated_accept_length, Some(3.0));
    }

    #[test]
    fn a_mean_length_without_steps_is_named() {
        let info = r#"{"speculative_num_steps": 3, "internal_states": [{"avg_spec_accept_length": 2.5}]}"#;
        let error = parse(Path::new("f"), info.as_bytes()).unwrap_err();
        assert!(error.to_string().contains("a mean length: avg_spec_accept_length 2.50"), "{error}");
        assert!(error.hint.contains("--accept mean-length=2.50@3"), "{}", error.hint);
    }

    #[test]
    fn damaged_files_are_refused() {
        damage(GOOD.as_bytes(), &[], parse);
        for (from, to, error) in [
            ("\"dspark_info_record\"", "\"x\"", "f: has no steps, but a mean length: avg_spec_accept_length 3.00"),
            ("\"internal_states\"", "\"x\"", "f, line 1: missing field `internal_states`"),
            ("\"bs\": 2", "\"bs\": 3", "[1].dspark_info_record.records[0]: bs is 3, but reqs has 2"),
            ("\"bs\": 2", "\"bs\": -2", "[1].dspark_info_record.records[0].bs: invalid value: integer `-2`"),
            ("\"acc_len\": 2", "\"acc_len\": 3", "reqs[1]: acc_len is 3, not one more than correct_drafts 1"),
            ("\"correct_drafts\": 1", "\"correct_drafts\": 4294967295", "acc_len is 2, not one more than"),
            ("\"verify_len\": 4", "\"verify_len\": 3", "reqs[0]: acc_len is 4, but only 3 tokens were verified"),
            ("\"draft_gpu_ms\": 1.5", "\"draft_gpu_ms\": NaN", "draft_gpu_ms: invalid type: string \"NaN\""),
        ] {
            let found = of(&with(GOOD, from, to), parse).unwrap_err();
            assert!(found.contains(error), "{found}");
        }
    }
}
