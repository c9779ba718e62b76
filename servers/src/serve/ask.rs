//! Reads the body of a client's request. The body says what the engine must compute, and in which form the answer is
//! sent.

use crate::serve::prompt::{Prompt, Reading};
use crate::serve::refusal::Refusal;
use crate::serve::stops::Stops;
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
    /// What ends the answer before its length.
    pub stops: Stops,
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

impl Limits {
    /// An error if a client asks for another model than the server's.
    pub fn offers(&self, model: Option<&str>) -> Result<(), Refusal> {
        match model.filter(|model| *model != self.model) {
            None => Ok(()),
            Some(other) => {
                let message = format!("The model `{other}` does not exist. This server has `{}`.", self.model);
                Err(Refusal::of(StatusCode::NOT_FOUND, "model", message))
            }
        }
    }
}

#[derive(Debug, Deserialize)]
struct Body {
    model: Option<String>,
    prompt: Option<Prompt>,
    messages: Option<Vec<Message>>,
    max_tokens: Option<i64>,
    max_completion_tokens: Option<i64>,
    min_tokens: Option<u32>,
    ignore_eos: Option<bool>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    stop: Option<Stop>,
    stop_token_ids: Option<Vec<u32>>,
    return_token_ids: Option<bool>,
    return_due: Option<bool>,
    // What would change the answer and is not simulated.
    n: Option<u32>,
    best_of: Option<u32>,
    echo: Option<bool>,
    logprobs: Option<Value>,
    prompt_logprobs: Option<Value>,
    suffix: Option<String>,
    use_beam_search: Option<bool>,
    include_stop_str_in_output: Option<bool>,
    truncate_prompt_tokens: Option<i64>,
    priority: Option<i64>,
    tool_choice: Option<Value>,
    response_format: Option<Value>,
    structured_outputs: Option<Value>,
    guided_json: Option<Value>,
    guided_regex: Option<Value>,
    guided_choice: Option<Value>,
    guided_grammar: Option<Value>,
}

impl Body {
    /// The name of a field that asks for something that would change the answer and is not simulated.
    fn not_simulated(&self) -> Option<&'static str> {
        let asks = |value: &Option<Value>| !matches!(value, None | Some(Value::Null | Value::Bool(false)));
        let text = Value::from("text");
        let is_text = |format: &Value| format.get("type").is_some_and(|kind| *kind == text);
        let chooses = |choice: &Value| !["none", "auto"].iter().any(|usual| choice == usual) && !choice.is_null();
        let fields = [
            ("n", self.n.is_some_and(|n| n != 1)),
            ("best_of", self.best_of.is_some_and(|n| n != 1)),
            ("echo", self.echo == Some(true)),
            ("logprobs", asks(&self.logprobs)),
            ("prompt_logprobs", asks(&self.prompt_logprobs)),
            ("suffix", self.suffix.as_ref().is_some_and(|suffix| !suffix.is_empty())),
            ("use_beam_search", self.use_beam_search == Some(true)),
            ("include_stop_str_in_output", self.include_stop_str_in_output == Some(true)),
            ("truncate_prompt_tokens", self.truncate_prompt_tokens.is_some()),
            ("priority", self.priority.is_some_and(|priority| priority != 0)),
            ("tool_choice", self.tool_choice.as_ref().is_some_and(chooses)),
            ("response_format", asks(&self.response_format) && !self.response_format.as_ref().is_some_and(is_text)),
            ("structured_outputs", asks(&self.structured_outputs)),
            ("guided_json", asks(&self.guided_json)),
            ("guided_regex", asks(&self.guided_regex)),
            ("guided_choice", asks(&self.guided_choice)),
            ("guided_grammar", asks(&self.guided_grammar)),
        ];
        fields.into_iter().find(|(_, asked)| *asked).map(|(field, _)| field)
    }
}

/// The refusal of a body that is no JSON for this interface. It names the first field whose value cannot be read.
fn malformed(body: &[u8], error: &serde_json::Error) -> Refusal {
    let fields: serde_json::Map<String, Value> = serde_json::from_slice(body).unwrap_or_default();
    let alone = |(name, value): (String, Value)| {
        let one = serde_json::Map::from_iter([(name.clone(), value)]);
        serde_json::from_value::<Body>(one.into()).err().map(|e| (name, e))
    };
    match fields.into_iter().find_map(alone) {
        Some((name, e)) => Refusal::bad("body", format!("{name}: {e}")),
        None => Refusal::bad("body", error.to_string()),
    }
}

#[derive(Debug, Deserialize)]
pub struct Message {
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
    include_usage: Option<bool>,
    continuous_usage_stats: Option<bool>,
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
pub fn read(form: Form, body: &[u8], limits: &Limits) -> Result<(Ask, Sending), Refusal> {
    let body: Body = serde_json::from_slice(body).map_err(|e| malformed(body, &e))?;
    limits.offers(body.model.as_deref())?;
    if let Some(param) = body.not_simulated() {
        return Err(Refusal::bad(param, format!("{param} is not simulated: leave it out")));
    }
    let (prompt_len, prefix) = match (form, body.prompt, body.messages) {
        (Form::Completion, Some(prompt), _) => prompt.read(&limits.reading)?,
        (Form::Completion, None, _) => return Err(Refusal::bad("prompt", "prompt is missing")),
        (Form::Chat, _, Some(messages)) => limits.reading.text(&chat(&messages), false)?,
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
    let ask = Ask { prompt_len, prefix, max_tokens, min_tokens, ignore_eos: body.ignore_eos == Some(true) };
    let include_usage = options.include_usage == Some(true);
    let sending = Sending {
        form,
        stream: body.stream == Some(true),
        include_usage,
        continuous_usage: include_usage && options.continuous_usage_stats == Some(true),
        token_ids: body.return_token_ids == Some(true),
        due: body.return_due == Some(true),
        stops: Stops { texts: stops, ids: body.stop_token_ids.unwrap_or_default(), min_tokens },
        prompt_len,
    };
    Ok((ask, sending))
}

/// Returns the messages of a chat as the text of one prompt: for each message the role and then its texts, with nothing
/// between them. Parts of a message that are not text are left out.
pub fn chat(messages: &[Message]) -> String {
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
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(form: Form, body: &str) -> Result<(Ask, Sending), Refusal> {
        let reading = Reading { tokenizer: None, bytes_per_token: 1, block: None };
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
        assert_eq!((sending.stops.texts, sending.due), (vec!["x".to_owned()], false));
        assert_eq!(of(Form::Completion, r#"{"prompt": [1, 2]}"#).unwrap().0.max_tokens, 16);
        let chat = r#"{"messages": [{"role": "user", "content": [{"type": "text", "text": "hello"}]}]}"#;
        let (ask, _) = of(Form::Chat, chat).unwrap();
        assert_eq!((ask.prompt_len, ask.max_tokens, ask.ignore_eos), (9, 91, false));
    }

    /// A field that is null is as good as absent, as for vLLM.
    #[test]
    fn null_is_absent() {
        let plain = of(Form::Completion, r#"{"prompt": "abcd"}"#).unwrap();
        let fields = [
            "model", "max_tokens", "min_tokens", "ignore_eos", "stream", "stream_options", "stop", "stop_token_ids",
            "return_token_ids", "n", "best_of", "echo", "logprobs", "suffix", "use_beam_search", "tool_choice",
            "response_format", "priority", "include_stop_str_in_output", "truncate_prompt_tokens",
            "structured_outputs",
        ];
        for field in fields {
            let body = format!("{{\"prompt\": \"abcd\", \"{field}\": null}}");
            assert_eq!(of(Form::Completion, &body).unwrap_or_else(|e| panic!("{field}: {e:?}")), plain);
        }
        let body = r#"{"prompt": "abcd", "stream_options": {"include_usage": null}, "tool_choice": "auto",
            "response_format": {"type": "text"}, "priority": 0, "echo": false}"#;
        assert_eq!(of(Form::Completion, body).unwrap(), plain);
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
            (Form::Completion, r#"{"prompt": "a", "echo": true}"#, 400, "echo is not simulated"),
            (Form::Completion, r#"{"prompt": "a", "tool_choice": "required"}"#, 400, "tool_choice is not simulated"),
            (
                Form::Completion,
                r#"{"prompt": "a", "response_format": {"type": "json_object"}}"#,
                400,
                "response_format is not simulated",
            ),
            (Form::Completion, r#"{"prompt": "a", "guided_regex": "a*"}"#, 400, "guided_regex is not simulated"),
            (Form::Completion, r#"{"prompt": "a", "priority": 2}"#, 400, "priority is not simulated"),
            (Form::Completion, r#"{"prompt": "a", "stream": "yes"}"#, 400, "stream: invalid type"),
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
