//! Reads the step records of DSpark, the scheduler of SGLang that chooses how many draft tokens to verify. They have
//! the times of each verify step's parts and, for each request, the draft tokens, their confidences and how many were
//! accepted. A server with `SGLANG_DSPARK_DEBUG_DUMP=all` keeps the records and returns them from `GET /server_info`.
//! The file is the answer to this request.
//!
//! SGLang was not run to make this reader: the format is from the released source of 0.5.23,
//! `speculative/dspark_components/dspark_observability.py` (the records),
//! `managers/scheduler_components/internal_state.py` and `entrypoints/http_server.py` (their place in the answer). The
//! server keeps at most the last 200,000 steps.

use super::number::{Amount, Probability, probabilities};
use super::{file, json};
use crate::recordings::unread::Unread;
use serde::Deserialize;
use std::path::Path;

const HINT: &str = "save the /server_info of the server that decodes (SGLang 0.5.23), for example with curl";

/// The records of verify steps that SGLang's scheduler DSpark made on one data-parallel rank of a server.
#[derive(Clone, Debug, PartialEq)]
pub struct DsparkRecords {
    /// The data-parallel rank: the index of the rank's entry in the list `internal_states` of the file.
    pub rank: usize,
    /// How the verify lengths that DSpark's planner chooses are used: `static`, `cap-accept` or `compact`.
    pub mode: String,
    /// Number of tokens that DSpark drafts for a request in each step.
    pub gamma: u32,
    /// Tokens that are verified for a request in a step if DSpark cuts off none of its draft tokens: all draft tokens
    /// and the token before them.
    pub verify_num_draft_tokens: u32,
    /// If not `None`, the server simulated acceptance with this number of tokens per step, and the records say nothing
    /// about real acceptance.
    pub simulated_accept_length: Option<f64>,
    /// Names of the parts of a step's record that the server kept (SGLang's `components`, such as `core` and `reqs`).
    /// Fields of other parts are `None` in every step.
    pub components: Vec<String>,
    /// The recorded verify steps of the data-parallel rank, oldest first.
    pub steps: Vec<DsparkStep>,
}

/// A verify step of one rank, as DSpark recorded it.
#[derive(Clone, Debug, PartialEq)]
pub struct DsparkStep {
    /// The number that the server gave the step's forward pass.
    pub forward_ct: u64,
    /// Number of requests in the verify step.
    pub batch_size: Option<u32>,
    /// Number of draft tokens that DSpark's planner allowed for the whole batch; `None` if the planner did not plan.
    pub budget: Option<u32>,
    /// How many steps old the confidences were that DSpark's planner used.
    pub lag_steps: Option<u32>,
    /// Number of tokens in the verify pass, including the padding of its CUDA graph.
    pub verify_tokens: Option<u32>,
    /// Seconds that DSpark's planner predicted for the step.
    pub predicted_s: Option<f64>,
    /// Seconds since the previous step by the host's clock. `None` after a prefill, and if more than one second passed.
    pub cpu_s: Option<f64>,
    /// Seconds that the whole verify step took on the GPU.
    pub gpu_s: Option<f64>,
    /// Seconds that drafting took on the GPU in the step; part of `gpu_s`.
    pub draft_gpu_s: Option<f64>,
    /// Seconds that the target's verify pass took on the GPU; part of `gpu_s`.
    pub verify_gpu_s: Option<f64>,
    /// The step's requests; `None` if they were not recorded.
    pub requests: Option<Vec<DsparkRequest>>,
}

/// What a step did for one of its requests.
#[derive(Clone, Debug, PartialEq)]
pub struct DsparkRequest {
    /// The request's id on the server; `None` if it was not recorded.
    pub id: Option<String>,
    /// The request's tokens in the KV cache before the step.
    pub prefix_len: u32,
    /// Number of the request's tokens that the step verified: the token before the draft tokens, and `verify_len` - 1
    /// draft tokens.
    pub verify_len: u32,
    /// Number of tokens that the request gained in the step: `correct_drafts` plus one token of the target.
    pub accept_len: u32,
    /// Number of the request's draft tokens that the target accepted in the step.
    pub correct_drafts: u32,
    /// Number of correct draft tokens that mode `cap-accept` cut off, because they lie beyond the verify length. The
    /// mode `cap-accept` verifies all draft tokens and cuts afterwards.
    pub cap_trim: u32,
    /// Token ids of the request's draft tokens.
    pub draft_tokens: Vec<u32>,
    /// The drafter's probability that each draft token of the request is right if all draft tokens before it are right.
    /// `None` without a confidence head.
    pub confidence: Option<Vec<f64>>,
    /// The drafter's probability that each draft token of the request and all draft tokens before it are right: the
    /// running product of `confidence`.
    pub survival: Option<Vec<f64>>,
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
    mode: String,
    gamma: u32,
    verify_num_draft_tokens: u32,
    simulate_acc_len: Option<Amount>,
    components: Vec<String>,
    records: Vec<RawStep>,
}

/// A step as SGLang writes it. SGLang omits fields that have their default value. An unknown value, whose default is
/// -1, is therefore absent.
#[derive(Deserialize)]
struct RawStep {
    forward_ct: u64,
    bs: Option<u32>,
    budget: Option<u32>,
    lag_steps: Option<u32>,
    num_verify_tokens: Option<u32>,
    predicted_step_ms: Option<Amount>,
    step_cpu_ms: Option<Amount>,
    step_gpu_ms: Option<Amount>,
    draft_gpu_ms: Option<Amount>,
    target_verify_gpu_ms: Option<Amount>,
    reqs: Option<Vec<RawRequest>>,
}

#[derive(Deserialize)]
struct RawRequest {
    rid: Option<String>,
    prefix_len: u32,
    verify_len: u32,
    acc_len: u32,
    correct_drafts: u32,
    cap_trim: u32,
    draft_tokens: Vec<u32>,
    confidence: Option<Vec<Probability>>,
    survival: Option<Vec<Probability>>,
}

/// Reads from a file the records of SGLang's scheduler DSpark. Returns one entry for each data-parallel rank that has
/// records.
pub fn read(path: &Path) -> Result<Vec<DsparkRecords>, Unread> {
    parse(path, &file::bytes(path)?)
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
        steps.push(read_step(step, raw.gamma, real).map_err(bad)?);
    }
    Ok(DsparkRecords {
        rank,
        mode: raw.mode,
        gamma: raw.gamma,
        verify_num_draft_tokens: raw.verify_num_draft_tokens,
        simulated_accept_length: raw.simulate_acc_len.map(|x| x.0),
        components: raw.components,
        steps,
    })
}

fn read_step(raw: RawStep, gamma: u32, real: bool) -> Result<DsparkStep, String> {
    if let (Some(bs), Some(reqs)) = (raw.bs, &raw.reqs)
        && bs as usize != reqs.len()
    {
        return Err(format!("bs is {bs}, but reqs has {}", reqs.len()));
    }
    let seconds = |ms: Option<Amount>| ms.map(|ms| ms.0 / 1e3);
    let request = |(i, r)| read_request(r, gamma, real).map_err(|what| format!("reqs[{i}]: {what}"));
    Ok(DsparkStep {
        forward_ct: raw.forward_ct,
        batch_size: raw.bs,
        budget: raw.budget,
        lag_steps: raw.lag_steps,
        verify_tokens: raw.num_verify_tokens,
        predicted_s: seconds(raw.predicted_step_ms),
        cpu_s: seconds(raw.step_cpu_ms),
        gpu_s: seconds(raw.step_gpu_ms),
        draft_gpu_s: seconds(raw.draft_gpu_ms),
        verify_gpu_s: seconds(raw.target_verify_gpu_ms),
        requests: raw.reqs.map(|list| list.into_iter().enumerate().map(request).collect()).transpose()?,
    })
}

fn read_request(raw: RawRequest, gamma: u32, real: bool) -> Result<DsparkRequest, String> {
    let lengths = [
        ("draft_tokens", Some(raw.draft_tokens.len())),
        ("confidence", raw.confidence.as_ref().map(Vec::len)),
        ("survival", raw.survival.as_ref().map(Vec::len)),
    ];
    for (name, length) in lengths {
        if length.is_some_and(|length| length != gamma as usize) {
            return Err(format!("{name} has {} values, but gamma is {gamma}", length.unwrap_or_default()));
        }
    }
    if raw.correct_drafts.checked_add(1) != Some(raw.acc_len) {
        return Err(format!("acc_len is {}, not one more than correct_drafts {}", raw.acc_len, raw.correct_drafts));
    }
    // If the server simulated acceptance, the accept length may exceed the verified length.
    if real && raw.acc_len > raw.verify_len {
        return Err(format!("acc_len is {}, but only {} tokens were verified", raw.acc_len, raw.verify_len));
    }
    Ok(DsparkRequest {
        id: raw.rid,
        prefix_len: raw.prefix_len,
        verify_len: raw.verify_len,
        accept_len: raw.acc_len,
        correct_drafts: raw.correct_drafts,
        cap_trim: raw.cap_trim,
        draft_tokens: raw.draft_tokens,
        confidence: raw.confidence.map(probabilities),
        survival: raw.survival.map(probabilities),
    })
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
        let records = of(GOOD.as_bytes(), read).unwrap();
        let first = DsparkRequest {
            id: Some("a".to_owned()),
            prefix_len: 100,
            verify_len: 4,
            accept_len: 4,
            correct_drafts: 3,
            cap_trim: 0,
            draft_tokens: vec![5, 6, 7],
            confidence: Some(vec![0.9, 0.8, 0.5]),
            survival: Some(vec![0.9, 0.72, 0.36]),
        };
        let second = DsparkRequest {
            id: Some("b".to_owned()),
            prefix_len: 57,
            verify_len: 2,
            accept_len: 2,
            correct_drafts: 1,
            cap_trim: 1,
            draft_tokens: vec![1, 2, 3],
            confidence: Some(vec![0.6, 0.5, 0.0]),
            survival: Some(vec![0.6, 0.3, 0.0]),
        };
        let bare = DsparkStep {
            forward_ct: 42,
            batch_size: None,
            budget: None,
            lag_steps: None,
            verify_tokens: None,
            predicted_s: None,
            cpu_s: None,
            gpu_s: None,
            draft_gpu_s: None,
            verify_gpu_s: None,
            requests: None,
        };
        let full = DsparkStep {
            forward_ct: 41,
            batch_size: Some(2),
            budget: Some(6),
            lag_steps: Some(1),
            verify_tokens: Some(8),
            predicted_s: Some(0.0095),
            cpu_s: Some(0.01025),
            gpu_s: Some(0.00975),
            draft_gpu_s: Some(0.0015),
            verify_gpu_s: Some(0.008),
            requests: Some(vec![first, second]),
        };
        let wanted = DsparkRecords {
            rank: 1,
            mode: "cap-accept".to_owned(),
            gamma: 3,
            verify_num_draft_tokens: 4,
            simulated_accept_length: None,
            components: vec!["core".to_owned(), "reqs".to_owned()],
            steps: vec![full, bare],
        };
        assert_eq!(records, [wanted]);
    }

    #[test]
    fn simulated_acceptance_shows_and_may_exceed_what_was_verified() {
        let simulated = GOOD.replace("\"simulate_acc_len\": null", "\"simulate_acc_len\": 3.0");
        let longer = with(&simulated, "\"verify_len\": 4", "\"verify_len\": 1");
        let records = of(&longer, read).unwrap();
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
        damage(GOOD.as_bytes(), &[], read);
        for (from, to, error) in [
            ("\"dspark_info_record\"", "\"x\"", "f: has no steps, but a mean length: avg_spec_accept_length 3.00"),
            ("\"internal_states\"", "\"x\"", "f, line 1: missing field `internal_states`"),
            ("\"bs\": 2", "\"bs\": 3", "[1].dspark_info_record.records[0]: bs is 3, but reqs has 2"),
            ("\"bs\": 2", "\"bs\": -2", "[1].dspark_info_record.records[0].bs: invalid value: integer `-2`"),
            ("[5, 6, 7]", "[5, 6]", "records[0]: reqs[0]: draft_tokens has 2 values, but gamma is 3"),
            ("[0.9, 0.8, 0.5]", "[0.9, 0.8]", "confidence has 2 values, but gamma is 3"),
            ("[0.9, 0.8, 0.5]", "[0.9, 0.8, null]", "confidence[2]: invalid type: null"),
            ("[0.9, 0.8, 0.5]", "[0.9, 0.8, 1.5]", "reqs[0].confidence[2]: is not between 0 and 1"),
            ("\"acc_len\": 2", "\"acc_len\": 3", "reqs[1]: acc_len is 3, not one more than correct_drafts 1"),
            ("\"correct_drafts\": 1", "\"correct_drafts\": 4294967295", "acc_len is 2, not one more than"),
            ("\"verify_len\": 4", "\"verify_len\": 3", "reqs[0]: acc_len is 4, but only 3 tokens were verified"),
            ("\"draft_gpu_ms\": 1.5", "\"draft_gpu_ms\": NaN", "draft_gpu_ms: invalid type: string \"NaN\""),
        ] {
            let found = of(&with(GOOD, from, to), read).unwrap_err();
            assert!(found.contains(error), "{found}");
        }
    }
}
