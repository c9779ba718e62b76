//! The tokens of a client's prompt: their number, and the ids of the KV blocks that a later prompt can share.

use crate::serve::refusal::Refusal;
use axum::http::StatusCode;
use serde::Deserialize;
use std::sync::Arc;
use tokenizers::Tokenizer;

/// The prompt of a completion request: text or token ids.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum Prompt {
    Text(String),
    Ids(Vec<u32>),
    Texts(Vec<String>),
    Lists(Vec<Vec<u32>>),
}

/// The rule by which the prompts of clients are split into tokens and KV blocks.
#[derive(Clone, Debug)]
pub struct Reading {
    /// The tokenizer of the model; `None` if text is counted by its bytes.
    pub tokenizer: Option<Arc<Tokenizer>>,
    /// Number of bytes of text that count as one token without a tokenizer.
    pub bytes_per_token: usize,
    /// Number of tokens in a KV block of the prefix cache; `None` without prefix caching.
    pub block: Option<usize>,
}

impl Prompt {
    /// Returns (number of the prompt's tokens, an id for each full block of `by.block` tokens). There are no ids
    /// without prefix caching. Prompts that begin with the same blocks have the same ids for these blocks.
    pub fn read(self, by: &Reading) -> Result<(u32, Vec<u64>), Refusal> {
        let several =
            || Refusal::bad("prompt", "one prompt a request is served: send the others in requests of their own");
        match self {
            Prompt::Text(text) => by.text(&text, true),
            Prompt::Ids(ids) => by.ids(&ids),
            Prompt::Texts(texts) => match texts.as_slice() {
                [text] => by.text(text, true),
                _ => Err(several()),
            },
            Prompt::Lists(lists) => match lists.as_slice() {
                [ids] => by.ids(ids),
                _ => Err(several()),
            },
        }
    }
}

impl Reading {
    /// Does the work of [`Prompt::read`] for a prompt that is text. `special`: the tokenizer adds its special tokens,
    /// such as a start token.
    pub fn text(&self, text: &str, special: bool) -> Result<(u32, Vec<u64>), Refusal> {
        if self.tokenizer.is_some() {
            return self.ids(&self.encode(text, special)?);
        }
        self.tokens(text.as_bytes(), text.len().div_ceil(self.bytes_per_token), self.bytes_per_token)
    }

    pub fn encode(&self, text: &str, special: bool) -> Result<Vec<u32>, Refusal> {
        let encoded = self.known()?.encode(text, special);
        encoded.map(|e| e.get_ids().to_vec()).map_err(|e| Refusal::bad("prompt", format!("no tokens: {e}")))
    }

    /// The text of tokens.
    pub fn decode(&self, ids: &[u32]) -> Result<String, Refusal> {
        self.known()?.decode(ids, false).map_err(|e| Refusal::bad("tokens", format!("no text: {e}")))
    }

    fn known(&self) -> Result<&Tokenizer, Refusal> {
        let missing = "this server has no tokenizer: start it with --tokenizer tokenizer.json";
        self.tokenizer.as_deref().ok_or_else(|| Refusal::of(StatusCode::NOT_IMPLEMENTED, "model", missing))
    }

    fn ids(&self, ids: &[u32]) -> Result<(u32, Vec<u64>), Refusal> {
        let bytes: Vec<u8> = match self.block {
            Some(_) => ids.iter().flat_map(|id| id.to_le_bytes()).collect(),
            None => Vec::new(),
        };
        self.tokens(&bytes, ids.len(), size_of::<u32>())
    }

    /// Returns (`tokens`, the number of the prompt's tokens; an id for each full block), as [`Prompt::read`] does. With
    /// prefix caching, `bytes` has the prompt's bytes, `width` bytes for each token; the last token may have fewer.
    /// Without prefix caching `bytes` is not read.
    fn tokens(&self, bytes: &[u8], tokens: usize, width: usize) -> Result<(u32, Vec<u64>), Refusal> {
        if tokens == 0 {
            return Err(Refusal::bad("prompt", "the prompt is empty"));
        }
        let tokens =
            u32::try_from(tokens).map_err(|_| Refusal::bad("prompt", "the prompt is longer than 2^32 tokens"))?;
        let mut prefix = Vec::new();
        if let Some(block) = self.block {
            // The id of a KV block comes from a hash of the block's tokens and of the hash of the block before it, as
            // in vLLM.
            let mut before = blake3::Hash::from_bytes([0; 32]);
            for block in bytes.chunks_exact(block * width) {
                before = blake3::Hasher::new().update(before.as_bytes()).update(block).finalize();
                let (first, _) = before.as_bytes().split_first_chunk().expect("a hash has 32 bytes");
                prefix.push(u64::from_le_bytes(*first));
            }
        }
        Ok((tokens, prefix))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BY: Reading = Reading { tokenizer: None, bytes_per_token: 4, block: Some(2) };

    fn read(json: &str) -> Result<(u32, Vec<u64>), Refusal> {
        serde_json::from_str::<Prompt>(json).unwrap().read(&BY)
    }

    /// A tokenizer counts text as the ids that it makes of it, and blocks of text equal blocks of these ids.
    #[test]
    fn a_tokenizer_counts_text_as_its_ids() {
        let words = r#"{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
            "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null,
            "model": {"type": "WordLevel", "vocab": {"a": 7, "long": 8, "word": 9, "?": 0}, "unk_token": "?"}}"#;
        let tokenizer = Some(Arc::new(words.parse().unwrap()));
        let by = Reading { tokenizer, ..BY };
        let read = |json: &str| serde_json::from_str::<Prompt>(json).unwrap().read(&by);
        let (tokens, prefix) = read(r#""a long word unheard""#).unwrap();
        assert_eq!((tokens, prefix.len()), (4, 2));
        assert_eq!(read("[7, 8, 9, 0]").unwrap(), (tokens, prefix));
        assert_eq!(by.encode("word a", true).unwrap(), [9, 7]);
        assert_eq!(by.decode(&[9, 7]).unwrap(), "word a");
        assert!(read(r#""""#).unwrap_err().message.contains("is empty"));
        assert_eq!(BY.encode("word", true).unwrap_err().status, StatusCode::NOT_IMPLEMENTED);
    }

    #[test]
    fn texts_and_ids_have_tokens_and_shared_beginnings() {
        let (tokens, prefix) = read(r#""0123456789abcdefXYZ""#).unwrap();
        assert_eq!((tokens, prefix.len()), (5, 2));
        let (other, same) = read(r#"["01234567........"]"#).unwrap();
        assert_eq!((other, same[0] == prefix[0], same[1] == prefix[1]), (4, true, false));
        let (ids, blocks) = read("[1, 2, 3]").unwrap();
        assert_eq!((ids, blocks.len()), (3, 1));
        assert_eq!(read("[[1, 2]]").unwrap().1, blocks);
        // If the first block differs, a second block with the same tokens gets another id.
        assert_ne!(read("[5, 6, 1, 2]").unwrap().1[1], blocks[0]);
    }

    #[test]
    fn empty_and_several_prompts_are_refused() {
        for (json, said) in
            [("\"\"", "is empty"), ("[]", "is empty"), ("[\"a\", \"b\"]", "one prompt"), ("[[1], [2]]", "one prompt")]
        {
            assert!(read(json).unwrap_err().message.contains(said), "{json}");
        }
    }
}
