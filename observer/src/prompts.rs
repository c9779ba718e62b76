//! Makes the prompt of each request, as token ids or as text of the length that the workload gives. Requests that share
//! prefix blocks have prompts with the same beginning.

use foretoken_sim::{Luck, Stream, Workload};
use foretoken_spec::observe::{ObserveSpec, Send};
use foretoken_spec::problem::{Problem, Result};
use foretoken_spec::prompts::Prompts;
use foretoken_traces::text::{Family, prompt_of_len};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The prompt of a request, in the form in which it is sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Prompt {
    /// The prompt is sent as token ids.
    Ids(Vec<u32>),
    /// The prompt is sent as text.
    Text(String),
}

/// The prompt of each request of the workload. If the prompts come from a file with fewer prompts than requests, they
/// are repeated. If the file's prompts are token ids, their lengths replace the prompt lengths in `workload`.
pub fn prompts(of: &ObserveSpec, workload: &mut Workload, seed: u64) -> Result<Vec<Prompt>> {
    match &of.prompts {
        Prompts::Families => (0..workload.len()).map(|i| as_sent(of, families(workload, seed, i))).collect(),
        Prompts::Random => Ok((0..workload.len()).map(|i| Prompt::Ids(random(workload, seed, i, of.vocab))).collect()),
        Prompts::Jsonl { path } => {
            let lines = read_jsonl(path, of.send)?;
            let repeated: Vec<Prompt> = lines.iter().cycle().take(workload.len()).cloned().collect();
            for (len, prompt) in workload.prompt_len.iter_mut().zip(&repeated) {
                if let Prompt::Ids(ids) = prompt {
                    *len = ids.len() as u32;
                }
            }
            Ok(repeated)
        }
    }
}

/// Turns bytes into a prompt of the form that `observe.send` names: token ids or text. Token ids need a vocabulary of
/// 256 tokens, one per byte.
fn as_sent(of: &ObserveSpec, bytes: Vec<u8>) -> Result<Prompt> {
    match of.send {
        Send::Text => Ok(Prompt::Text(String::from_utf8_lossy(&bytes).into_owned())),
        Send::TokenIds if of.vocab == BYTES => Ok(Prompt::Ids(bytes.into_iter().map(u32::from).collect())),
        Send::TokenIds => {
            let message =
                format!("observe: text is sent as one token id per byte, and observe.vocab is {}, not 256", of.vocab);
            Err(Problem::bad_input(message).help(
                "send = \"text\", or prompts = \"random\", or { jsonl = { path = \"...\" } } with prompt_token_ids",
            ))
        }
    }
}

/// Size of a vocabulary in which each token is one byte of text.
const BYTES: u32 = 256;

/// The text of the prompt of request `i`: generated text for its shared prefix blocks, then text that no other request
/// has.
fn families(workload: &Workload, seed: u64, i: usize) -> Vec<u8> {
    let family = Family::ALL[usize::from(workload.category[i]) % Family::ALL.len()];
    let len = workload.prompt_len[i] as usize;
    let mut text: Vec<u8> = Vec::with_capacity(len);
    for &block in workload.prefix(i as u32) {
        text.extend(prompt_of_len(family, seed, u64::MAX - block, workload.prefix_block as usize));
    }
    text.truncate(len);
    let own = len - text.len();
    text.extend(prompt_of_len(family, seed, i as u64, own));
    text
}

fn random(workload: &Workload, seed: u64, i: usize, vocab: u32) -> Vec<u32> {
    let len = workload.prompt_len[i] as usize;
    let ids = |luck: Luck, n: usize| (0..n as u64).map(move |p| (luck.bits(p) % u64::from(vocab)) as u32);
    let blocks = workload.prefix(i as u32).iter();
    let shared = blocks.flat_map(|&b| ids(Luck::new(seed, Stream::PromptBlock, b), workload.prefix_block as usize));
    let mut all: Vec<u32> = shared.take(len).collect();
    let own = len - all.len();
    all.extend(ids(Luck::new(seed, Stream::Prompt, i as u64), own));
    all
}

/// A line of the user's file of prompts. Unknown fields are ignored.
#[derive(Deserialize)]
struct Line {
    prompt: Option<String>,
    prompt_token_ids: Option<Vec<u32>>,
}

fn read_jsonl(path: &Path, send: Send) -> Result<Vec<Prompt>> {
    let text = foretoken_spec::text::read(path).map_err(|e| {
        Problem::bad_input(format!("observe.prompts.jsonl.path: {e}"))
            .help("expected a file with one JSON object a line")
    })?;
    parse_jsonl(path, &text, send)
}

/// Reads the prompts of a text with one JSON object per line. `send` says whether the prompts are sent as text or as
/// token ids. `path` is the text's file name in errors.
///
/// # Errors
/// A line is not a JSON object, a line has no prompt in the form that `send` names, or the text has no line.
pub fn parse_jsonl(path: &Path, text: &str, send: Send) -> Result<Vec<Prompt>> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let read = |(n, line): (usize, &str)| {
        let bad = |what: String| Problem::bad_input(format!("{}, line {}: {what}", path.display(), n + 1));
        let line: Line = serde_json::from_str(line).map_err(|e| bad(e.to_string()))?;
        match (send, line) {
            (Send::Text, Line { prompt: Some(text), .. }) if !text.is_empty() => Ok(Prompt::Text(text)),
            (Send::TokenIds, Line { prompt_token_ids: Some(ids), .. }) if !ids.is_empty() => Ok(Prompt::Ids(ids)),
            (Send::Text, _) => Err(bad("no text".into()).help("expected {\"prompt\": \"...\"}")),
            (Send::TokenIds, _) => Err(bad("no token ids".into())
                .help("expected {\"prompt_token_ids\": [1, 2]}; observe.send = \"text\" sends texts")),
        }
    };
    let all = lines.map(read).collect::<Result<Vec<_>>>()?;
    if all.is_empty() {
        return Err(Problem::bad_input(format!("{} holds no prompt", path.display())));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use foretoken_sim::{Request, Time};

    fn workload() -> Workload {
        let mut w: Workload = (0..4)
            .map(|i| {
                let mut request = Request::new(Time(i), 40 + i as u32, 4);
                request.prefix = vec![7; usize::from(i % 2 == 0)];
                request
            })
            .collect();
        w.prefix_block = 16;
        w
    }

    #[test]
    fn prompts_have_their_lengths_and_share_what_the_workload_shares() {
        for prompts_of in [Prompts::Families, Prompts::Random] {
            let spec = ObserveSpec { prompts: prompts_of, ..ObserveSpec::default() };
            let mut w = workload();
            let all = prompts(&spec, &mut w, 3).unwrap();
            let ids = |i: usize| match &all[i] {
                Prompt::Ids(ids) => ids.clone(),
                Prompt::Text(text) => panic!("{text}"),
            };
            (0..4).for_each(|i| assert_eq!(ids(i).len(), 40 + i));
            assert_eq!(ids(0)[..16], ids(2)[..16]);
            assert_ne!(ids(0)[16..40], ids(2)[16..40]);
            assert_ne!(ids(1)[..16], ids(3)[..16]);
            assert_eq!(all, prompts(&spec, &mut w, 3).unwrap());
            assert_ne!(all, prompts(&spec, &mut w, 4).unwrap());
        }
    }

    #[test]
    fn prompts_that_cannot_be_sent_are_refused() {
        let error_of = |prompts_of, send, vocab| {
            let spec = ObserveSpec { prompts: prompts_of, send, vocab, ..ObserveSpec::default() };
            prompts(&spec, &mut workload(), 3).map_err(|p| p.message().to_owned())
        };
        let said = error_of(Prompts::Families, Send::TokenIds, 32_000).unwrap_err();
        assert!(said.contains("one token id per byte, and observe.vocab is 32000, not 256"), "{said}");
        assert!(
            matches!(&error_of(Prompts::Families, Send::Text, 32_000).unwrap()[0], Prompt::Text(t) if t.len() == 40)
        );
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.jsonl");
        for (text, send, said) in [
            ("{\"prompt\": \"a\"}\n", Send::TokenIds, "line 1: no token ids"),
            ("{\"prompt\": \"a\"}\n{\"prompt_token_ids\": [1]}\n", Send::Text, "line 2: no text"),
            ("[]\n", Send::Text, "line 1: "),
            ("\n", Send::Text, "holds no prompt"),
        ] {
            std::fs::write(&path, text).unwrap();
            let message = error_of(Prompts::Jsonl { path: path.clone() }, send, 256).unwrap_err();
            assert!(message.contains(said), "{message}");
        }
        std::fs::write(&path, "{\"prompt_token_ids\": [1, 2, 3]}\n").unwrap();
        let mut w = workload();
        let spec = ObserveSpec { prompts: Prompts::Jsonl { path }, ..ObserveSpec::default() };
        assert_eq!(prompts(&spec, &mut w, 1).unwrap()[3], Prompt::Ids(vec![1, 2, 3]));
        assert_eq!(w.prompt_len, [3; 4]);
    }
}
