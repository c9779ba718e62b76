//! Converts text to tokens: with a checkpoint's tokenizer, or to one token per byte if the checkpoint has none.

use crate::models::{AnyWeights, Model};
use foretoken_spec::problem::{Problem, Result};
use serde_json::Value;
use std::path::Path;
use tokenizers::Tokenizer;

/// The tokenizer with which a model reads text.
pub enum Tokens {
    /// Each byte is a token whose id is the byte's value, as in the shipped pair.
    Bytes,
    /// The tokenizer that `tokenizer.json` defines.
    Tokenizer(Box<Tokenizer>),
}

impl Tokens {
    /// Finds the model's tokenizer; [`Tokens::Bytes`] if it has no `tokenizer.json`, or one that maps bytes to
    /// themselves. `key` is the setting that names the model, for errors.
    ///
    /// # Errors
    /// The model's `tokenizer.json` cannot be read.
    pub fn of(key: &str, model: &Model) -> Result<Tokens> {
        let file = Path::new(&model.name).join("tokenizer.json");
        if !has_folder(model) || !file.exists() {
            return Ok(Tokens::Bytes);
        }
        let tokenizer = Tokenizer::from_file(&file)
            .map_err(|e| Problem::bad_input(format!("{key}: {}: no tokenizer: {e}", file.display())))?;
        Ok(if is_bytes(&tokenizer) { Tokens::Bytes } else { Tokens::Tokenizer(Box::new(tokenizer)) })
    }

    /// Returns the tokens of a text, with the special tokens that the tokenizer adds (such as a start token).
    ///
    /// # Errors
    /// The tokenizer's error as text.
    pub fn encode(&self, text: &str) -> std::result::Result<Vec<u32>, String> {
        match self {
            Tokens::Bytes => Ok(text.bytes().map(u32::from).collect()),
            Tokens::Tokenizer(t) => t.encode(text, true).map(|e| e.get_ids().to_vec()).map_err(|e| e.to_string()),
        }
    }

    /// True if both have equal vocabularies, so that a draft with one can draft for a target with the other.
    pub fn same_vocabulary(&self, other: &Tokens) -> bool {
        match (self, other) {
            (Tokens::Bytes, Tokens::Bytes) => true,
            (Tokens::Tokenizer(a), Tokens::Tokenizer(b)) => a.get_vocab(true) == b.get_vocab(true),
            _ => false,
        }
    }
}

/// True if the tokenizer has 256 tokens and encodes two test texts, one with all characters below U+0800, as their
/// UTF-8 bytes, as [`Tokens::Bytes`] does.
fn is_bytes(tokenizer: &Tokenizer) -> bool {
    let bytes = |text: &str| text.bytes().map(u32::from).collect::<Vec<_>>();
    let every: String = (0..0x80u8).map(char::from).chain('\u{80}'..'\u{800}').collect();
    let same = |text: &str| tokenizer.encode(text, true).is_ok_and(|e| e.get_ids() == bytes(text));
    tokenizer.get_vocab_size(true) == 256 && same(&every) && same("<s> \u{1F600} </s>")
}

fn has_folder(model: &Model) -> bool {
    matches!(model.weights, AnyWeights::Checkpoint(_)) && Path::new(&model.name).is_dir()
}

/// The tokens that end a text: `eos_token_id` of the model's `generation_config.json`, or of its `config.json`. Empty
/// if neither file has the key, if the model is a preset, or if its weights are random.
///
/// # Errors
/// The model's configuration is damaged.
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
