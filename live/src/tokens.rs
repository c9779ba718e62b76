//! Converts text to tokens with the tokenizer of a checkpoint. If the checkpoint has none, each byte is a token.

use crate::models::{AnyWeights, Model};
use foretoken_run::spec::problem::{Problem, Result};
use serde_json::Value;
use std::path::Path;
use tokenizers::Tokenizer;

/// The tokenizer with which a model reads text.
pub enum Tokens {
    /// Each byte is a token whose id is the byte's value, as in the shipped target and draft.
    Bytes,
    /// The tokenizer that `tokenizer.json` defines.
    Tokenizer(Box<Tokenizer>),
}

impl Tokens {
    /// Finds the tokenizer of `model`. The result is [`Tokens::Bytes`] if the model has no `tokenizer.json`, or if its
    /// `tokenizer.json` maps each byte to a token with the byte's value. `key` is the setting that names the model, for
    /// error messages.
    pub fn of(key: &str, model: &Model) -> Result<Tokens> {
        let file = Path::new(&model.name).join("tokenizer.json");
        if !has_folder(model) || !file.exists() {
            return Ok(Tokens::Bytes);
        }
        let tokenizer = Tokenizer::from_file(&file)
            .map_err(|e| Problem::bad_input(format!("{key}: {}: no tokenizer: {e}", file.display())))?;
        Ok(if is_bytes(&tokenizer) { Tokens::Bytes } else { Tokens::Tokenizer(Box::new(tokenizer)) })
    }

    /// Returns the tokens of `text`, including the special tokens that the tokenizer adds (such as a start token).
    pub fn encode(&self, text: &str) -> std::result::Result<Vec<u32>, String> {
        match self {
            Tokens::Bytes => Ok(text.bytes().map(u32::from).collect()),
            Tokens::Tokenizer(t) => t.encode(text, true).map(|e| e.get_ids().to_vec()).map_err(|e| e.to_string()),
        }
    }

    /// True if `self` and `other` have equal vocabularies. A draft with one of them can then draft for a target with
    /// the other.
    pub fn same_vocabulary(&self, other: &Tokens) -> bool {
        match (self, other) {
            (Tokens::Bytes, Tokens::Bytes) => true,
            (Tokens::Tokenizer(a), Tokens::Tokenizer(b)) => a.get_vocab(true) == b.get_vocab(true),
            _ => false,
        }
    }
}

/// True if the tokenizer works like [`Tokens::Bytes`]: it has 256 tokens, and it encodes two test texts as their UTF-8
/// bytes. One of the texts has all characters below U+0800.
fn is_bytes(tokenizer: &Tokenizer) -> bool {
    let bytes = |text: &str| text.bytes().map(u32::from).collect::<Vec<_>>();
    let every: String = (0..0x80u8).map(char::from).chain('\u{80}'..'\u{800}').collect();
    let same = |text: &str| tokenizer.encode(text, true).is_ok_and(|e| e.get_ids() == bytes(text));
    tokenizer.get_vocab_size(true) == 256 && same(&every) && same("<s> \u{1F600} </s>")
}

fn has_folder(model: &Model) -> bool {
    matches!(model.weights, AnyWeights::Checkpoint(_)) && Path::new(&model.name).is_dir()
}

/// The tokens that end a text: `eos_token_id` in the model's `generation_config.json`, else in its `config.json`. Empty
/// if neither file has this key, if the model is a preset, or if its weights are random.
pub fn end_of_text(key: &str, model: &Model) -> Result<Vec<u32>> {
    for name in ["generation_config.json", "config.json"] {
        let file = Path::new(&model.name).join(name);
        if !has_folder(model) || !file.exists() {
            continue;
        }
        let bad = |why: String| Problem::bad_input(format!("{key}: {}: {why}", file.display()));
        let text = fs_err::read(&file).map_err(|e| bad(e.to_string()))?;
        let json: Value = serde_json::from_slice(&text).map_err(|e| bad(e.to_string()))?;
        let ids = match json.get("eos_token_id") {
            None | Some(Value::Null) => continue,
            Some(Value::Array(ids)) => ids.clone(),
            Some(id) => vec![id.clone()],
        };
        let id = |v: &Value| v.as_u64().and_then(|id| u32::try_from(id).ok());
        return ids.iter().map(|v| id(v).ok_or_else(|| bad(format!("`eos_token_id`: {v} is no token")))).collect();
    }
    Ok(Vec::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_tokenizers_are_bytes() {
        for name in ["target", "draft"] {
            let file =
                Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../kernels/pair")).join(name).join("tokenizer.json");
            assert!(is_bytes(&Tokenizer::from_file(&file).unwrap()), "{}", file.display());
        }
    }
}
