//! Reads SGLang's forward-pass metrics: how many requests and tokens each step of a scheduler ran, and the GPU time of
//! the step. `--enable-forward-pass-metrics` makes SGLang send the metrics over ZMQ PUB; SGLang does not store them.
//! The file holds what a subscriber stored: either the msgpack payloads, one directly after the other, or JSON objects
//! with the same fields, one per line.
//!
//! SGLang was not run to make this reader: the format is from the released source of 0.5.23,
//! `observability/forward_pass_metrics.py` (schema version 1) and `managers/scheduler_components/metrics_reporter.py`
//! (what is counted). SGLang's comments say that the msgpack has no field names, but its encoder writes maps with field
//! names. This reader accepts both forms.
//!
//! The payload is the third frame of each ZMQ message. The topic and the sequence number before the payload must not be
//! in the file.

use super::json;
use super::number::Amount;
use crate::recordings::unread::Unread;
use rmp_serde::decode::Error;
use serde::Deserialize;
use std::io::{Cursor, ErrorKind};
use std::path::Path;

const HINT: &str = "give the payloads of SGLang's forward-pass metrics (schema 1, SGLang 0.5.23), one behind the other";

/// The schema version of the messages that this reader knows.
const SCHEMA: u32 = 1;

/// Deepest nesting of unknown fields in a message that is read. Known fields have two levels. Damaged bytes can claim
/// any depth.
const DEPTH: usize = 32;

/// A step of an SGLang scheduler: its GPU time, and the requests that ran in it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ForwardStep {
    /// Seconds on the GPU from the start of the step's first forward pass to the end of its last forward pass, gaps
    /// included. With speculation, the step's passes are passes of the draft model and verify passes of the target.
    pub wall_s: f64,
    /// Number of prompts, or chunks of prompts, that the step ran.
    pub prefill_requests: u32,
    /// Number of prompt tokens that the step computed.
    pub prefill_tokens: u64,
    /// Number of tokens of the step's prompts that were in the KV cache before the step.
    pub prefill_kv_tokens: u64,
    /// Number of requests in the step that are past their prompt. The format does not say how many tokens were drafted
    /// for each of them.
    pub decode_requests: u32,
    /// Tokens in the KV cache of the step's decoding requests, summed.
    pub decode_kv_tokens: u64,
}

impl ForwardStep {
    /// True if the message is a heartbeat of an idle scheduler and not a step.
    pub fn is_heartbeat(&self) -> bool {
        self.wall_s == 0.0 && self.prefill_requests == 0 && self.decode_requests == 0
    }
}

/// A forward-pass message as serde reads it. The fields have the schema's order, because messages without field names
/// are read by position.
#[derive(Deserialize)]
#[expect(dead_code, reason = "a message without field names is read by position")]
struct Raw {
    version: u32,
    worker_id: String,
    dp_rank: u32,
    counter_id: u64,
    wall_time: Amount,
    scheduled_requests: RawScheduled,
    queued_requests: RawQueued,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "a message without field names is read by position")]
struct RawScheduled {
    num_prefill_requests: u32,
    sum_prefill_tokens: u64,
    var_prefill_length: Amount,
    sum_prefill_kv_tokens: u64,
    num_decode_requests: u32,
    sum_decode_kv_tokens: u64,
    var_decode_kv_tokens: Amount,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "a message without field names is read by position")]
struct RawQueued {
    num_prefill_requests: u32,
    sum_prefill_tokens: u64,
    var_prefill_length: Amount,
    num_decode_requests: u32,
    sum_decode_kv_tokens: u64,
    var_decode_kv_tokens: Amount,
}

/// Reads the steps from a file of SGLang's forward-pass metrics with the content `bytes`, in the file's order. `path`
/// is the file's name in errors.
pub fn parse(path: &Path, bytes: &[u8]) -> Result<Vec<ForwardStep>, Unread> {
    match bytes.first() {
        Some(&first) if is_message(first) => messages(path, bytes).collect(),
        _ => {
            let lines: Vec<(usize, Raw)> = json::values(path, bytes, HINT)?;
            let step = |(line, raw)| step(raw).map_err(|what| Unread::line(path, line, what, HINT));
            lines.into_iter().map(step).collect()
        }
    }
}

/// True if a file whose first byte is `first` holds msgpack. In msgpack, bytes from 0x80 to 0x9f start a small map or
/// array. No UTF-8 text starts with one of these bytes.
pub(super) fn is_message(first: u8) -> bool {
    (0x80..=0x9f).contains(&first)
}

/// The steps of the forward-pass messages in `bytes`. If a message cannot be read, its error is the last item.
pub(super) fn messages<'a>(path: &'a Path, bytes: &'a [u8]) -> impl Iterator<Item = Result<ForwardStep, Unread>> + 'a {
    let (mut at, mut index) = (0, 0);
    std::iter::from_fn(move || {
        let rest = bytes.get(at..).filter(|rest| !rest.is_empty())?;
        let found = message(rest);
        let found = match found {
            Ok((step, length)) => {
                at += length;
                Ok(step)
            }
            Err(what) => {
                let what = format!("message {index} (byte {at}): {what}");
                // After a message that cannot be read, the start of the next message is unknown, so reading ends.
                at = bytes.len();
                Err(Unread::file(path, what, HINT))
            }
        };
        index += 1;
        Some(found)
    })
}

/// The first forward-pass message in `bytes`, and its length in bytes.
fn message(bytes: &[u8]) -> Result<(ForwardStep, usize), String> {
    let mut reader = rmp_serde::Deserializer::new(Cursor::new(bytes));
    reader.set_max_depth(DEPTH);
    let raw: Raw = serde_path_to_error::deserialize(&mut reader).map_err(|e| {
        let (field, why) = (e.path().to_string(), reason(e.inner()));
        if field == "." { why } else { format!("{field}: {why}") }
    })?;
    // The reader's position cannot be beyond the end of `bytes`.
    let length = usize::try_from(reader.position()).unwrap_or(bytes.len());
    Ok((step(raw)?, length))
}

fn reason(error: &Error) -> String {
    match error {
        Error::InvalidMarkerRead(io) | Error::InvalidDataRead(io) if io.kind() == ErrorKind::UnexpectedEof => {
            "is cut off".to_owned()
        }
        other => other.to_string(),
    }
}

fn step(raw: Raw) -> Result<ForwardStep, String> {
    if raw.version != SCHEMA {
        return Err(format!("version: the schema is {}, only {SCHEMA} is known", raw.version));
    }
    let scheduled = raw.scheduled_requests;
    Ok(ForwardStep {
        wall_s: raw.wall_time.0,
        prefill_requests: scheduled.num_prefill_requests,
        prefill_tokens: scheduled.sum_prefill_tokens,
        prefill_kv_tokens: scheduled.sum_prefill_kv_tokens,
        decode_requests: scheduled.num_decode_requests,
        decode_kv_tokens: scheduled.sum_decode_kv_tokens,
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::recordings::foreign::testing::{damage, of, with};

    /// `STEP` and `HEARTBEAT` are two hex-encoded messages of made-up values: a step and a heartbeat. SGLang 0.5.23's
    /// own `encode` (msgspec 0.22.0) wrote them.
    const STEP: &str = include_str!("../../../fixtures/sglang-0.5.23-forward-step.hex");
    const HEARTBEAT: &str = include_str!("../../../fixtures/sglang-0.5.23-forward-heartbeat.hex");

    /// The step of the message [`STEP`], written by msgspec's JSON encoder.
    pub(in crate::recordings::foreign) const JSON: &str = include_str!("../../../fixtures/sglang-0.5.23-forward.json");

    /// The content of a file with two messages: [`STEP`], then [`HEARTBEAT`], both decoded from hex.
    pub(in crate::recordings::foreign) fn two_messages() -> Vec<u8> {
        let hex = format!("{STEP}{HEARTBEAT}");
        (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect()
    }

    const FIRST: ForwardStep = ForwardStep {
        wall_s: 0.0125,
        prefill_requests: 1,
        prefill_tokens: 512,
        prefill_kv_tokens: 64,
        decode_requests: 3,
        decode_kv_tokens: 70_000,
    };

    #[test]
    fn messages_are_read() {
        let steps = of(&two_messages(), parse).unwrap();
        assert_eq!(steps[0], FIRST);
        assert_eq!((steps.len(), steps[0].is_heartbeat(), steps[1].is_heartbeat()), (2, false, true));
    }

    #[test]
    fn json_lines_are_read() {
        let steps = of(format!("{JSON}\n{JSON}\n").as_bytes(), parse).unwrap();
        assert_eq!(steps, [FIRST, FIRST]);
    }

    /// The step of the test file's first message, as a message without field names. SGLang's comments describe messages
    /// in this form, although its encoder writes field names.
    fn positional(version: u32, wall_s: f64) -> Vec<u8> {
        let scheduled = (1, 512, 0.0, 64, 3, 70_000, 2.5);
        let queued = (2, 900, 0.25, 0, 0, 0.0);
        rmp_serde::to_vec(&(version, "w0", 1, 7, wall_s, scheduled, queued)).unwrap()
    }

    #[test]
    fn positional_messages_are_read() {
        assert_eq!(of(&positional(1, 0.0125), parse).unwrap(), [FIRST]);
    }

    #[test]
    fn damaged_messages_are_refused() {
        damage(&two_messages(), &[STEP.len() / 2], parse);
        damage(&positional(1, 0.0125), &[], parse);
        let cut = &two_messages()[..STEP.len() / 2 + 20];
        assert_eq!(of(cut, parse).unwrap_err(), "f: message 1 (byte 417): worker_id: is cut off");
        // If the message has no field names, the error names a field by its index.
        for (bytes, error) in [
            (positional(2, 0.5), "message 0 (byte 0): version: the schema is 2, only 1 is known"),
            (positional(1, f64::NAN), "message 0 (byte 0): [4]: is not a finite number"),
            (positional(1, -1.0), "[4]: is negative"),
            (rmp_serde::to_vec(&(1, "w0", -1)).unwrap(), "[2]: invalid value: integer `-1`"),
            (rmp_serde::to_vec(&(1, "w0", 1)).unwrap(), "invalid length 3"),
            (rmp_serde::to_vec(&[0u8; 15]).unwrap(), "[1]: invalid type: integer `0`"),
            (vec![0x80], "missing field `version`"),
            // The message has a text that claims to be 4 GiB long.
            (vec![0x92, 0x01, 0xdb, 0xff, 0xff, 0xff, 0xff, b'w'], "[1]: is cut off"),
        ] {
            let found = of(&bytes, parse).unwrap_err();
            assert!(found.contains(error), "{found}");
        }
        // The message is nested deeper than a stack allows.
        assert!(of(&vec![0x91; 1_000_000], parse).is_err());
        let mut deep = vec![0x81, 0xa1, b'x'];
        deep.extend(vec![0x91; 1_000_000]);
        assert!(of(&deep, parse).is_err());
    }

    #[test]
    fn damaged_json_is_refused() {
        damage(JSON.as_bytes(), &[], parse);
        for (from, to, error) in [
            ("\"version\":1", "\"version\":2", "f, line 1: version: the schema is 2"),
            ("\"wall_time\":0.0125", "\"wall_time\":NaN", "wall_time: invalid type: string \"NaN\""),
            (":64", ":-64", "scheduled_requests.sum_prefill_kv_tokens: invalid value: integer `-64`"),
            ("\"sum_prefill_tokens\":900,", "", "queued_requests: missing field `sum_prefill_tokens`"),
        ] {
            let found = of(&with(JSON, from, to), parse).unwrap_err();
            assert!(found.contains(error), "{found}");
        }
    }
}
