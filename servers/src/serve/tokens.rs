//! vLLM's `/tokenize` and `/detokenize`: load generators count with them.

use crate::serve::ask::{Limits, Message, chat};
use crate::serve::refusal::Refusal;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// The body of a request to `/tokenize`: a text, or the messages of a chat.
#[derive(Deserialize)]
struct Text {
    model: Option<String>,
    prompt: Option<String>,
    messages: Option<Vec<Message>>,
    /// The tokenizer adds its special tokens. vLLM's default: for a text yes, for a chat no.
    add_special_tokens: Option<bool>,
}

/// The body of a request to `/detokenize`.
#[derive(Deserialize)]
struct Ids {
    model: Option<String>,
    tokens: Vec<u32>,
}

/// Answers `/tokenize`: the ids of a text's tokens and their number.
pub fn tokenized(body: &[u8], limits: &Limits) -> Result<Value, Refusal> {
    let asked: Text = read(body)?;
    limits.offers(asked.model.as_deref())?;
    let (text, special) = match (asked.prompt, asked.messages) {
        (Some(prompt), None) => (prompt, true),
        (None, Some(messages)) => (chat(&messages), false),
        _ => return Err(Refusal::bad("prompt", "either `prompt` or `messages` is needed")),
    };
    let tokens = limits.reading.encode(&text, asked.add_special_tokens.unwrap_or(special))?;
    Ok(json!({
        "count": tokens.len(), "max_model_len": limits.max_model_len, "tokens": tokens, "token_strs": null,
    }))
}

/// Answers `/detokenize`: the text of tokens.
pub fn detokenized(body: &[u8], limits: &Limits) -> Result<Value, Refusal> {
    let asked: Ids = read(body)?;
    limits.offers(asked.model.as_deref())?;
    Ok(json!({ "prompt": limits.reading.decode(&asked.tokens)? }))
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    serde_json::from_slice(body).map_err(|e| Refusal::bad("body", e.to_string()))
}
