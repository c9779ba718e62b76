//! Sends one request to the observed server and reads its answer chunk by chunk as it comes.

use crate::observe::bounded::{self, beginning, chain, too_long};
use crate::observe::whole_lines::whole_lines;
use crate::recordings::llama_cpp::{Reported, Totals};
use crate::recordings::recording::{Ended, Failure, Tokens};
use eventsource_stream::{EventStreamError, Eventsource};
use foretoken_run::spec::shown::clip;
use futures_util::{Stream, StreamExt};
use reqwest::{RequestBuilder, Response};
use serde::Deserialize;
use serde_json::{Value, json};

/// Why reading the bytes of an answer stopped before the answer's end.
#[derive(Debug)]
enum Broken {
    /// The connection failed, with the error in words.
    Transport(String),
    TooLong,
}

/// Sends a completion request for `tokens` output tokens, reads its answer, and returns how the answer ended. Calls
/// `chunk` with the tokens of each event of the stream as the event comes.
pub async fn ask(request: RequestBuilder, tokens: u32, chunk: impl FnMut(Tokens)) -> Ended {
    let response = match request.send().await {
        Ok(response) => response,
        Err(e) => return failed(if e.is_connect() { Failure::Connect } else { Failure::Cut }, chain(&e)),
    };
    if !response.status().is_success() {
        return refused(response).await;
    }
    let kind = response.headers().get("content-type").and_then(|v| v.to_str().ok()).unwrap_or("").to_owned();
    if !kind.starts_with("text/event-stream") {
        return failed(Failure::Garbled, format!("the answer is no stream of events but `{}`", short(&kind)));
    }
    read_stream(response.bytes_stream().map(|piece| piece.map_err(|e| chain(&e))), tokens, chunk).await
}

/// Reads the stream of events that answers a request for `tokens` output tokens, and returns how the answer ended. A
/// stream that is much longer than `tokens` tokens need counts as failed. `pieces` are the bytes of the stream as they
/// come; an item is an error if the connection failed. `chunk` is called with the tokens of each event.
pub async fn read_stream<B: AsRef<[u8]>>(
    pieces: impl Stream<Item = Result<B, String>> + Unpin,
    tokens: u32,
    mut chunk: impl FnMut(Tokens),
) -> Ended {
    let most = bounded::ANSWER + tokens as usize * bounded::ANSWER_TOKEN;
    let mut room = most;
    let limited = pieces.map(move |piece| {
        let piece = piece.map_err(Broken::Transport)?;
        room = room.checked_sub(piece.as_ref().len()).ok_or(Broken::TooLong)?;
        Ok(piece)
    });
    let mut events = whole_lines(limited).eventsource();
    let mut answer = Answer::default();
    while let Some(event) = events.next().await {
        match event {
            Ok(event) if event.data == "[DONE]" => return answer.ended(),
            Ok(event) => match answer.read(&event.data) {
                Ok(Some(tokens)) => chunk(tokens),
                Ok(None) => {}
                Err(ended) => return ended,
            },
            Err(EventStreamError::Transport(Broken::Transport(e))) => return failed(Failure::Cut, e),
            Err(EventStreamError::Transport(Broken::TooLong)) => {
                return failed(Failure::Garbled, format!("{} for {tokens} tokens", too_long(most)));
            }
            Err(EventStreamError::Utf8(e)) => return failed(Failure::Garbled, e.to_string()),
            Err(EventStreamError::Parser(e)) => return failed(Failure::Garbled, e.to_string()),
        }
    }
    match answer.reason.is_some() {
        true => answer.ended(),
        false => failed(Failure::Cut, "the answer broke off before its end".into()),
    }
}

/// Returns the [`Ended`] of an answer that failed for the reason `why`. `said` is the error message. It may quote a
/// long text of the server, so its middle is left out if it has more than 1000 characters.
fn failed(why: Failure, said: String) -> Ended {
    const MOST: usize = 1000;
    Ended::Failed { why, said: clip(&said, MOST).into_owned() }
}

async fn refused(response: Response) -> Ended {
    let status = response.status().as_u16();
    let after = response.headers().get("retry-after").and_then(|v| v.to_str().ok()?.trim().parse::<f64>().ok());
    let text = String::from_utf8_lossy(&beginning(response, bounded::PAGE).await).into_owned();
    let said = serde_json::from_str::<Said>(&text).ok().and_then(Said::message).unwrap_or(text);
    Ended::Refused { status, said: short(&said), retry_after_s: after.filter(|s| s.is_finite() && *s >= 0.0) }
}

/// The first 300 characters of a server's message, in one line, for an error message.
fn short(text: &str) -> String {
    const MOST: usize = 300;
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// What the server's stream has reported about an answer so far, apart from the tokens: the reason of its end, its
/// usage (numbers of tokens), its metrics, and llama.cpp's timings.
#[derive(Default)]
struct Answer {
    reason: Option<String>,
    usage: Option<Usage>,
    metrics: Option<String>,
    llama_cpp: Reported,
}

impl Answer {
    /// Reads one event of the server's stream and returns its tokens, if it has any. Returns how the answer failed as
    /// `Err` if the event cannot be read or is an error of the server.
    fn read(&mut self, data: &str) -> Result<Option<Tokens>, Ended> {
        let event: Event =
            serde_json::from_str(data).map_err(|e| failed(Failure::Garbled, format!("{e} in `{}`", short(data))))?;
        if let Some(message) = event.error.and_then(|e| (Said { error: Some(e), ..Said::default() }).message()) {
            return Err(failed(Failure::Cut, message));
        }
        self.metrics = event.metrics.map(|m| m.to_string()).or(self.metrics.take());
        let totals = event.timings.and_then(|timings| self.timed(timings));
        let so_far = event.usage.as_ref().and_then(|u| u.completion_tokens).or(totals.map(|t| t.predicted_n));
        self.usage = event.usage.or(self.usage.take());
        let Some(choice) = event.choices.into_iter().next() else { return Ok(None) };
        self.reason = choice.finish_reason.or(self.reason.take());
        Ok(match (choice.token_ids, so_far) {
            (Some(ids), _) => Some(Tokens::Ids(ids)),
            (None, Some(n)) => Some(Tokens::SoFar(n)),
            (None, None) => choice.text.filter(|text| !text.is_empty()).map(|_| Tokens::Unknown),
        })
    }

    /// Takes llama.cpp's timings of a part of the answer, and returns their totals.
    fn timed(&mut self, timings: Value) -> Option<Totals> {
        let totals = Totals::deserialize(&timings).ok()?;
        self.llama_cpp.timings = timings;
        let rounds = &mut self.llama_cpp.rounds;
        if totals.draft_n > rounds.last().map_or(0, |before| before.draft_n) {
            rounds.push(totals);
        }
        Some(totals)
    }

    fn ended(self) -> Ended {
        let usage = self.usage.unwrap_or_default();
        let llama_cpp = (!self.llama_cpp.timings.is_null()).then(|| json!({ "llama_cpp": self.llama_cpp }).to_string());
        Ended::Finished {
            reason: self.reason.unwrap_or_else(|| "unknown".into()),
            prompt_tokens: usage.prompt_tokens,
            completion_tokens: usage.completion_tokens,
            cached_tokens: usage.prompt_tokens_details.and_then(|d| d.cached_tokens),
            metrics: self.metrics.or(llama_cpp),
        }
    }
}

#[derive(Deserialize)]
struct Event {
    #[serde(default)]
    choices: Vec<Choice>,
    usage: Option<Usage>,
    metrics: Option<Value>,
    timings: Option<Value>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Choice {
    text: Option<String>,
    token_ids: Option<Vec<u32>>,
    finish_reason: Option<String>,
}

#[derive(Default, Deserialize)]
struct Usage {
    prompt_tokens: Option<u32>,
    completion_tokens: Option<u32>,
    prompt_tokens_details: Option<Details>,
}

#[derive(Deserialize)]
struct Details {
    cached_tokens: Option<u32>,
}

/// The JSON bodies with which servers report errors: `{"error": {"message"}}`, `{"message"}` or `{"detail"}`.
#[derive(Default, Deserialize)]
struct Said {
    error: Option<Value>,
    message: Option<String>,
    detail: Option<Value>,
}

impl Said {
    fn message(self) -> Option<String> {
        let text_of = |value: Value| match value.get("message").unwrap_or(&value) {
            Value::Null => None,
            Value::String(text) => Some(text.clone()),
            other => Some(other.to_string()),
        };
        self.error.and_then(text_of).or(self.message).or_else(|| self.detail.and_then(text_of))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answer was recorded from vLLM 0.32.0 with three draft tokens per request and step. It has 12 tokens, up to
    /// four per chunk.
    #[test]
    fn a_streamed_answer_of_vllm_is_read() {
        let stream = include_str!("../../fixtures/vllm-0.32-completion.sse");
        let mut answer = Answer::default();
        let events: Vec<&str> = stream.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
        let (end, events) = events.split_last().unwrap();
        assert_eq!(*end, "[DONE]");
        let chunks: Vec<Tokens> = events.iter().filter_map(|data| answer.read(data).unwrap()).collect();
        let expected = [vec![10], vec![87, 104, 111, 32], vec![119, 97, 115, 32], vec![76, 97], vec![117]];
        assert_eq!(chunks, expected.map(Tokens::Ids));
        let Ended::Finished { reason, prompt_tokens, completion_tokens, metrics, .. } = answer.ended() else {
            panic!("it finished")
        };
        assert_eq!((reason.as_str(), prompt_tokens, completion_tokens), ("length", Some(65), Some(12)));
        let metrics: Value = serde_json::from_str(&metrics.unwrap()).unwrap();
        assert_eq!(metrics["speculative_decoding"]["per_step_accepted"], serde_json::json!([3, 3, 1, 0]));
        assert!(metrics["queue_time_ms"].is_f64());
    }

    /// The answer was recorded from llama.cpp b11434 with three draft tokens per request and step. It has 24 tokens,
    /// each in a chunk.
    #[test]
    fn a_streamed_answer_of_llama_cpp_is_read() {
        let stream = include_str!("../../fixtures/llama-cpp-b11434-completion.sse");
        let mut answer = Answer::default();
        let events: Vec<&str> = stream.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
        let (end, events) = events.split_last().unwrap();
        assert_eq!(*end, "[DONE]");
        let chunks: Vec<Tokens> = events.iter().filter_map(|data| answer.read(data).unwrap()).collect();
        let expected: Vec<Tokens> = (1..=24).chain([24]).map(Tokens::SoFar).collect();
        assert_eq!(chunks, expected);
        let Ended::Finished { reason, prompt_tokens, completion_tokens, metrics, .. } = answer.ended() else {
            panic!("it finished")
        };
        assert_eq!((reason.as_str(), prompt_tokens, completion_tokens), ("length", Some(15), Some(24)));
        let metrics: Value = serde_json::from_str(&metrics.unwrap()).unwrap();
        let rounds: Vec<Totals> = serde_json::from_value(metrics["llama_cpp"]["rounds"].clone()).unwrap();
        let of = |t: &Totals| (t.predicted_n, t.draft_n, t.draft_n_accepted);
        let expected = [(2, 3, 3), (6, 6, 6), (10, 9, 9), (14, 12, 12), (18, 15, 15), (22, 17, 15), (23, 18, 16)];
        assert_eq!(rounds.iter().map(of).collect::<Vec<_>>(), expected);
        assert_eq!(metrics["llama_cpp"]["timings"]["predicted_n"], 24);
    }

    #[test]
    fn an_error_does_not_quote_all_that_a_server_sent() {
        let stream = format!("data: {{\"choices\": \"{}\"}}\n\n", "x".repeat(1 << 19));
        let pieces = futures_util::stream::iter(stream.as_bytes().chunks(1000).map(Ok::<_, String>));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let Ended::Failed { why, said } = runtime.block_on(read_stream(pieces, 4, |_| {})) else { panic!("garbled") };
        assert!(why == Failure::Garbled && said.len() < 1200 && said.starts_with("invalid type: string"), "{said}");
    }

    /// The server's stream has a long event that comes byte by byte. A parser that, at each further byte, scans the
    /// unfinished line again from its beginning would need more than a minute for this event.
    #[test]
    fn a_long_event_may_come_byte_by_byte() {
        let event = format!("data: {{\"choices\": [{{\"text\": \"{}\"}}]}}\n\ndata: [DONE]\n\n", "x".repeat(1 << 20));
        let pieces = futures_util::stream::iter(event.as_bytes().chunks(1).map(Ok::<_, String>));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut chunks = 0;
        let ended = runtime.block_on(read_stream(pieces, 1000, |_| chunks += 1));
        assert!(matches!(ended, Ended::Finished { .. }) && chunks == 1);
    }

    /// Without token ids, the number of tokens of a chunk comes from the running usage. If the server does not report
    /// usage either, the number is unknown.
    #[test]
    fn tokens_of_a_chunk_come_from_ids_or_running_usage_or_are_unknown() {
        let tokens_of = |data: &str| Answer::default().read(data).unwrap();
        let ids = r#"{"choices":[{"text":"ab","token_ids":[97,98]}],"usage":{"completion_tokens":5}}"#;
        assert_eq!(tokens_of(ids), Some(Tokens::Ids(vec![97, 98])));
        let usage = r#"{"choices":[{"text":"ab"}],"usage":{"completion_tokens":5}}"#;
        assert_eq!(tokens_of(usage), Some(Tokens::SoFar(5)));
        assert_eq!(tokens_of(r#"{"choices":[{"text":"ab"}]}"#), Some(Tokens::Unknown));
        assert_eq!(tokens_of(r#"{"choices":[{"text":""}]}"#), None);
    }

    /// The error messages in this test have the words of vLLM 0.32.0, FastAPI and SGLang.
    #[test]
    fn messages_of_refusals_are_found() {
        let said = |text: &str| serde_json::from_str::<Said>(text).ok().and_then(Said::message);
        let vllm = r#"{"error":{"message":"The model `nope` does not exist.","type":"NotFoundError","param":"model","code":404}}"#;
        assert_eq!(said(vllm).as_deref(), Some("The model `nope` does not exist."));
        assert_eq!(said(r#"{"detail":"Not Found"}"#).as_deref(), Some("Not Found"));
        assert_eq!(said(r#"{"object":"error","message":"too long"}"#).as_deref(), Some("too long"));
        let midway = Answer::default().read(r#"{"error":{"message":"the engine died"}}"#).unwrap_err();
        assert_eq!(midway, failed(Failure::Cut, "the engine died".into()));
        assert!(matches!(Answer::default().read("<html>"), Err(Ended::Failed { why: Failure::Garbled, .. })));
    }
}
