//! The JSON of an answer to a client in vLLM's form: chunks of a stream, or a whole answer.

use crate::serve::ask::{Form, Sending};
use crate::serve::calls::{End, Tokens};
use crate::serve::stops::{Stop, Text, token_id};
use serde::Serialize;
use serde_json::{Value, json};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// An answer to a client's request. The tokens of each step are added to it.
pub struct Answer {
    model: String,
    id: String,
    created: u64,
    sending: Sending,
    text: Text,
    tokens: usize,
    /// The text of the answer so far, if the answer is not streamed; else empty.
    whole: String,
    rounds: Rounds,
    /// True until the first chunk of the streamed answer is sent.
    first: bool,
    reason: Option<&'static str>,
    stop: Option<Stop>,
    end: Option<End>,
}

/// The speculative steps of one request: for each step that verified draft tokens of the request, the number of
/// verified draft tokens and the number of accepted draft tokens.
#[derive(Default)]
struct Rounds {
    drafted: Vec<u32>,
    accepted: Vec<u32>,
}

#[derive(Serialize)]
struct Chunk<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
    choices: [Choice<'a>; 1],
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Usage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    due_unix_s: Option<f64>,
}

#[derive(Serialize)]
struct Choice<'a> {
    index: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delta: Option<Delta<'a>>,
    logprobs: Option<()>,
    finish_reason: Option<&'static str>,
    stop_reason: Option<&'a Stop>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_ids: Option<Vec<u32>>,
}

#[derive(Serialize)]
struct Delta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    content: &'a str,
}

#[derive(Clone, Copy, Serialize)]
struct Usage {
    prompt_tokens: u32,
    total_tokens: u32,
    completion_tokens: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_tokens_details: Option<Details>,
}

#[derive(Clone, Copy, Serialize)]
struct Details {
    cached_tokens: u32,
}

impl Answer {
    /// Makes an answer to a request, without tokens yet. `number` becomes part of the answer's id.
    pub fn new(model: &str, number: u64, sending: Sending) -> Answer {
        let kind = if sending.form == Form::Chat { "chatcmpl" } else { "cmpl" };
        Answer {
            model: model.to_owned(),
            id: format!("{kind}-{number:016x}"),
            created: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
            text: Text::new(sending.stops.clone()),
            sending,
            tokens: 0,
            whole: String::new(),
            rounds: Rounds::default(),
            first: true,
            reason: None,
            stop: None,
            end: None,
        }
    }

    /// True if the answer has ended: the request has all its tokens, or a stop string ended the answer.
    pub fn ended(&self) -> bool {
        self.reason.is_some()
    }

    /// Adds the tokens of a step to the answer. Returns the number of output tokens that the answer had before this
    /// step.
    fn add(&mut self, tokens: &Tokens) -> usize {
        let had = self.tokens;
        if tokens.round.0 > 0 {
            self.rounds.drafted.push(tokens.round.0);
            self.rounds.accepted.push(tokens.round.1);
        }
        let (count, stop) = self.text.add(tokens.count as usize);
        self.tokens += count;
        self.stop = stop;
        self.end = tokens.end;
        self.reason = match (&self.stop, tokens.end) {
            (Some(_), _) => Some("stop"),
            (None, Some(end)) => Some(if end.full { "length" } else { "stop" }),
            (None, None) => None,
        };
        had
    }

    /// Adds the tokens of a step to a streamed answer, and appends the server-sent event with these tokens to `into`.
    /// At the end of the answer it also appends an event with the usage and the metrics, if the client asked for the
    /// usage, and then `[DONE]`.
    pub fn stream(&mut self, tokens: &Tokens, into: &mut Vec<u8>) {
        let had = self.add(tokens);
        let usage = self.sending.continuous_usage.then(|| self.usage());
        let due_unix_s = self.sending.due.then(|| unix_s(tokens.due));
        let chat = self.sending.form == Form::Chat;
        let token_ids = self.sending.token_ids.then(|| (had..self.tokens).map(token_id).collect());
        let ended = self.reason.is_some();
        let text = self.text.take(ended);
        let role = std::mem::take(&mut self.first).then_some("assistant");
        let chunk = Chunk {
            id: &self.id,
            object: if chat { "chat.completion.chunk" } else { "text_completion" },
            created: self.created,
            model: &self.model,
            choices: [Choice {
                index: 0,
                text: (!chat).then_some(text),
                delta: chat.then_some(Delta { role, content: text }),
                logprobs: None,
                finish_reason: self.reason,
                stop_reason: self.stop.as_ref(),
                token_ids,
            }],
            usage,
            due_unix_s,
        };
        event(&chunk, into);
        if !ended {
            return;
        }
        if self.sending.include_usage {
            let object = if chat { "chat.completion.chunk" } else { "text_completion" };
            let mut last = json!({
                "id": self.id, "object": object, "created": self.created, "model": self.model, "choices": [],
                "usage": self.usage(),
            });
            if let Some(metrics) = self.metrics() {
                last["metrics"] = metrics;
            }
            event(&last, into);
        }
        into.extend_from_slice(b"data: [DONE]\n\n");
    }

    /// Adds the tokens of a step to an answer that is not streamed.
    pub fn collect(&mut self, tokens: &Tokens) {
        self.add(tokens);
        let ended = self.reason.is_some();
        self.whole += self.text.take(ended);
    }

    /// Returns the JSON of a finished answer that is not streamed.
    pub fn whole(&self) -> String {
        let chat = self.sending.form == Form::Chat;
        let mut choice = json!({
            "index": 0, "logprobs": null, "finish_reason": self.reason, "stop_reason": self.stop,
        });
        match chat {
            true => choice["message"] = json!({ "role": "assistant", "content": self.whole }),
            false => choice["text"] = json!(self.whole),
        }
        if self.sending.token_ids {
            choice["token_ids"] = json!((0..self.tokens).map(token_id).collect::<Vec<_>>());
        }
        let object = if chat { "chat.completion" } else { "text_completion" };
        let mut answer = json!({
            "id": self.id, "object": object, "created": self.created, "model": self.model, "choices": [choice],
            "usage": self.usage(),
        });
        if let Some(metrics) = self.metrics() {
            answer["metrics"] = metrics;
        }
        answer.to_string()
    }

    fn usage(&self) -> Usage {
        let (prompt_tokens, completion_tokens) = (self.sending.prompt_len, self.tokens as u32);
        let cached = self.end.map(|end| Details { cached_tokens: end.cached_tokens });
        Usage {
            prompt_tokens,
            total_tokens: prompt_tokens + completion_tokens,
            completion_tokens,
            prompt_tokens_details: cached.filter(|details| details.cached_tokens > 0),
        }
    }

    /// Returns the metrics that vLLM gives for an answered request (`--enable-per-request-metrics`,
    /// `--per-request-spec-decode-metrics detailed`). `None` if a stop string or token ended the answer before the
    /// engine ended the request.
    fn metrics(&self) -> Option<Value> {
        let end = self.end?;
        let gaps = self.tokens.saturating_sub(1);
        let mut metrics = json!({
            "time_to_first_token_ms": 1e3 * end.ttft_s,
            "generation_time_ms": 1e3 * end.generation_s,
            "queue_time_ms": 1e3 * end.queue_s,
            "mean_itl_ms": (gaps > 0).then(|| 1e3 * end.generation_s / gaps as f64),
        });
        let Rounds { drafted, accepted } = &self.rounds;
        if !drafted.is_empty() {
            metrics["speculative_decoding"] = json!({
                "num_spec_steps": drafted.len(),
                "num_draft_tokens": drafted.iter().sum::<u32>(),
                "num_accepted_draft_tokens": accepted.iter().sum::<u32>(),
                "per_step_accepted": accepted,
                "per_step_drafted": drafted,
            });
        }
        Some(metrics)
    }
}

/// Appends `data` as JSON to `into`, in the form of one server-sent event.
fn event(data: &impl Serialize, into: &mut Vec<u8>) {
    into.extend_from_slice(b"data: ");
    serde_json::to_writer(&mut *into, data).expect("memory can be written");
    into.extend_from_slice(b"\n\n");
}

/// Converts `instant` to seconds since 1970.
fn unix_s(instant: Instant) -> f64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_secs_f64() - Instant::now().saturating_duration_since(instant).as_secs_f64()
}
