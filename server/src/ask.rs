//! Reads the body of a client's request. The body says what the engine must compute, and in which form the answer is
//! sent.

use crate::prompt::{Prompt, Reading};
use crate::refusal::Refusal;
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::Value;

/// The parts of a client's request that the engine needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Number of the request's prompt tokens.
    pub prompt_len: u32,
    /// Ids of the full KV blocks of the request's prompt, in order, for the prefix cache.
    pub prefix: Vec<u64>,
    /// The most output tokens that the client allows (`max_tokens`).
    pub max_tokens: u32,
    /// The fewest output tokens that the client asks for (`min_tokens`).
    pub min_tokens: u32,
    /// True if the answer has exactly `max_tokens` tokens, because the client wants no earlier end.
    pub ignore_eos: bool,
}

/// Which of the two HTTP interfaces of OpenAI a request uses: completions or chat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The request came to `/v1/completions`.
    Completion,
    /// The request came to `/v1/chat/completions`.
    Chat,
}

/// The form in which the answer to a request is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sending {
    /// The interface that the request used.
    pub form: Form,
    /// True if the answer is streamed: each step's tokens are sent when the step has ended.
    pub stream: bool,
    /// True if the stream ends with an event that has the usage (numbers of prompt and output tokens).
    pub include_usage: bool,
    /// True if each chunk of the stream has the usage so far (numbers of prompt and output tokens).
    pub continuous_usage: bool,
    /// True if each chunk of the answer has the ids of its tokens.
    pub token_ids: bool,
    /// True if each chunk of the answer has the time at which its tokens were due, in seconds since 1970. Tokens are
    /// due at the end of their step.
    pub due: bool,
    /// The request's stop strings. The answer ends before the first stop string that its text contains.
    pub stops: Vec<String>,
    /// Number of the request's prompt tokens, for the usage in the answer.
    pub prompt_len: u32,
}

/// What a server offers: the name of its model, its limit on tokens, and how it counts the tokens of prompts.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The name of the model that requests must ask for.
    pub model: String,
    /// Most tokens of a request's prompt and output together.
    pub max_model_len: u32,
    /// How prompts are split into tokens and KV blocks.
    pub reading: Reading,
}

#[derive(Debug, Deserialize)]
struct Body {
    model: Option<String>,
    prompt: Option<Prompt>,
    messages: Option<Vec<Message>>,
    max_tokens: Option<i64>,
    max_completion_tokens: Option<i64>,
    min_tokens: Option<u32>,
    #[serde(default)]
    ignore_eos: bool,
    #[serde(default)]
    stream: bool,
    stream_options: Option<StreamOptions>,
    stop: Option<Stop>,
    #[serde(default)]
    return_token_ids: bool,
    #[serde(default)]
    return_due: bool,
    n: Option<u32>,
    best_of: Option<u32>,
    #[serde(default)]
    echo: bool,
    logprobs: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct Message {
    #[serde(default)]
    role: String,
    content: Option<Content>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Debug, Deserialize)]
struct Part {
    text: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: bool,
    #[serde(default)]
    continuous_usage_stats: bool,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Stop {
    One(String),
    Some(Vec<String>),
}

/// Number of output tokens of a completion if the client sets no `max_tokens`. The number is smaller if the context
/// length leaves less room. 16 is the default of OpenAI and vLLM.
const COMPLETION_TOKENS: i64 = 16;

/// Reads the JSON body of a client's request to the interface `form`.
///
/// # Errors
/// The body is not valid JSON for this interface, it names another model than the server's, it asks for something that
/// is not simulated (such as several answers), or prompt and output are longer than the model's context length.
pub fn read(form: Form, body: &[u8], limits: &Limits) -> Result<(Ask, Sending), Refusal> {
    let body: Body = serde_json::from_slice(body).map_err(|e| Refusal::bad("body", e.to_string()))?;
    if let Some(model) = body.model.as_ref().filter(|model| **model != limits.model) {
        let message = format!("The model `{model}` does not exist. This server has `{}`.", limits.model);
        return Err(Refusal::of(StatusCode::NOT_FOUND, "model", message));
    }
    let wants_logprobs = !matches!(body.logprobs, None | Some(Value::Null | Value::Bool(false)));
    for (param, asked) in [
        ("n", body.n.is_some_and(|n| n != 1)),
        ("best_of", body.best_of.is_some_and(|n| n != 1)),
        ("echo", body.echo),
        ("logprobs", wants_logprobs),
    ] {
        if asked {
            return Err(Refusal::bad(param, format!("{param} is not simulated: leave it out")));
        }
    }
    let (prompt_len, prefix) = match (form, body.prompt, body.messages) {
        (Form::Completion, Some(prompt), _) => prompt.read(limits.reading)?,
        (Form::Completion, None, _) => return Err(Refusal::bad("prompt", "prompt is missing")),
        (Form::Chat, _, Some(messages)) => limits.reading.text(&chat(&messages))?,
        (Form::Chat, _, None) => return Err(Refusal::bad("messages", "messages are missing")),
    };
    let most = i64::from(limits.max_model_len) - i64::from(prompt_len);
    if most < 1 {
        let longest = limits.max_model_len;
        let message =
            format!("This model's maximum context length is {longest} tokens, and the prompt has {prompt_len}.");
        return Err(Refusal::bad("prompt", message));
    }
    let max_tokens = match (form, body.max_completion_tokens.or(body.max_tokens)) {
        (_, Some(n)) if n < 1 => {
            return Err(Refusal::bad("max_tokens", format!("max_tokens is {n}, and at least 1 is wanted")));
        }
        (_, Some(n)) if n > most => {
            let longest = limits.max_model_len;
            let message = format!(
                "max_tokens is {n}: with the {prompt_len} tokens of the prompt it is more than this model's maximum \
                 context length of {longest} tokens"
            );
            return Err(Refusal::bad("max_tokens", message));
        }
        (_, Some(n)) => n,
        (Form::Completion, None) => COMPLETION_TOKENS.min(most),
        (Form::Chat, None) => most,
    };
    let stops = match body.stop {
        None => Vec::new(),
        Some(Stop::One(text)) => vec![text],
        Some(Stop::Some(texts)) => texts,
    };
    if stops.iter().any(String::is_empty) {
        return Err(Refusal::bad("stop", "stop has an empty text"));
    }
    let options = body.stream_options.unwrap_or_default();
    let max_tokens = u32::try_from(max_tokens).expect("it is at most max_model_len");
    let min_tokens = body.min_tokens.unwrap_or(0);
    if min_tokens > max_tokens {
        return Err(Refusal::bad("min_tokens", format!("min_tokens is {min_tokens}, and max_tokens {max_tokens}")));
    }
    let ask = Ask { prompt_len, prefix, max_tokens, min_tokens, ignore_eos: body.ignore_eos };
    let sending = Sending {
        form,
        stream: body.stream,
        include_usage: options.include_usage,
        continuous_usage: options.include_usage && options.continuous_usage_stats,
        token_ids: body.return_token_ids,
        due: body.return_due,
        stops,
        prompt_len,
    };
    Ok((ask, sending))
}

/// Returns the messages of a chat as the text of one prompt: for each message the role and then its texts, with nothing
/// between them. Parts of a message that are not text are left out.
fn chat(messages: &[Message]) -> Vec<u8> {
    let mut text = String::new();
    for message in messages {
        text += &message.role;
        match &message.content {
            Some(Content::Text(part)) => text += part,
            Some(Content::Parts(parts)) => {
                parts.iter().filter_map(|part| part.text.as_deref()).for_each(|part| text += part)
            }
            None => {}
        }
    }
    text.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(form: Form, body: &str) -> Result<(Ask, Sending), Refusal> {
        let reading = Reading { bytes_per_token: 1, block: None };
        read(form, body.as_bytes(), &Limits { model: "m".into(), max_model_len: 100, reading })
    }

    #[test]
    fn a_completion_and_a_chat_are_read() {
        let (ask, sending) = of(
            Form::Completion,
            r#"{"model": "m", "prompt": "abcd", "max_tokens": 7, "ignore_eos": true, "stream": true, "stop": ["x"],
                "stream_options": {"include_usage": true, "continuous_usage_stats": true}, "return_token_ids": true}"#,
        )
        .unwrap();
        assert_eq!((ask.prompt_len, ask.max_tokens, ask.ignore_eos), (4, 7, true));
        assert!(sending.stream && sending.include_usage && sending.continuous_usage && sending.token_ids);
        assert_eq!((sending.stops, sending.due), (vec!["x".to_owned()], false));
        assert_eq!(of(Form::Completion, r#"{"prompt": [1, 2]}"#).unwrap().0.max_tokens, 16);
        let chat = r#"{"messages": [{"role": "user", "content": [{"type": "text", "text": "hello"}]}]}"#;
        let (ask, _) = of(Form::Chat, chat).unwrap();
        assert_eq!((ask.prompt_len, ask.max_tokens, ask.ignore_eos), (9, 91, false));
    }

    #[test]
    fn what_cannot_be_served_is_refused() {
        for (form, body, status, said) in [
            (Form::Completion, "{", 400, "EOF"),
            (Form::Completion, "{}", 400, "prompt is missing"),
            (Form::Chat, "{\"prompt\": \"a\"}", 400, "messages are missing"),
            (Form::Completion, r#"{"model": "x", "prompt": "a"}"#, 404, "The model `x` does not exist"),
            (Form::Completion, r#"{"prompt": "a", "max_tokens": 0}"#, 400, "at least 1"),
            (Form::Completion, r#"{"prompt": "a", "max_tokens": 100}"#, 400, "maximum context length of 100"),
            (Form::Completion, r#"{"prompt": "a", "n": 2}"#, 400, "n is not simulated"),
            (Form::Completion, r#"{"prompt": "a", "logprobs": 3}"#, 400, "logprobs is not simulated"),
            (Form::Completion, r#"{"prompt": "a", "stop": ""}"#, 400, "empty text"),
            (Form::Completion, r#"{"prompt": "a", "min_tokens": 20}"#, 400, "min_tokens is 20, and max_tokens 16"),
        ] {
            let refusal = of(form, body).unwrap_err();
            assert!(refusal.status.as_u16() == status && refusal.message.contains(said), "{body}: {refusal:?}");
        }
        let long = format!("{{\"prompt\": \"{}\"}}", "a".repeat(100));
        assert!(of(Form::Completion, &long).unwrap_err().message.contains("and the prompt has 100"));
        let model = format!("{{\"model\": \"{0}\", \"{0}\": 1, \"prompt\": \"a\"}}", "x".repeat(1 << 20));
        assert!(of(Form::Completion, &model).unwrap_err().message.len() < 3000, "an answer does not send it back");
    }
}
