//! Makes the prompt of each request, as token ids or as text of the length that the workload gives. Requests that share
//! prefix blocks have prompts with the same beginning.

use foretoken_run::spec::observe::{ObserveSpec, Send};
use foretoken_run::spec::problem::{Problem, Result};
use foretoken_run::spec::prompts::Prompts;
use foretoken_sim::{Luck, Stream, Workload};
use foretoken_traces::text::{Family, prompt_of_len};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The prompt of a request, in the form in which it is sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Prompt {
    Ids(Vec<u32>),
    Text(String),
}

/// Prompts of one cell. A server may keep the KV of earlier prompts, so no cell sends what another cell or a warm-up
/// has sent.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    pub seed: u64,
    /// Index of the cell's combination of swept values.
    pub variant: usize,
    pub before: usize,
}

impl Cell {
    /// The seed of the prompts' text: another one for each cell, and for the warm-up of each cell. The first cell's is
    /// the seed itself.
    fn key(self, warm_up: bool) -> u64 {
        let number = 2 * self.variant as u64 + u64::from(warm_up);
        self.seed.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }
}

/// The prompt of each request of the workload. Prompts of a file are taken in order over all cells; if they are too
/// few, they are repeated. If the file's prompts are token ids, their lengths replace the prompt lengths in `workload`.
pub fn prompts(of: &ObserveSpec, workload: &mut Workload, cell: Cell) -> Result<Vec<Prompt>> {
    let Prompts::Jsonl { path } = &of.prompts else { return generated(of, workload, cell.key(false), workload.len()) };
    let lines = read_jsonl(path, of.send)?;
    let first = cell.before * workload.len() % lines.len();
    let repeated: Vec<Prompt> = lines.iter().cycle().skip(first).take(workload.len()).cloned().collect();
    for (len, prompt) in workload.prompt_len.iter_mut().zip(&repeated) {
        if let Prompt::Ids(ids) = prompt {
            *len = ids.len() as u32;
        }
    }
    Ok(repeated)
}

/// Prompts for the warm-up of a cell, as long as the cell's first ones. `asked` are the cell's own prompts.
pub fn warm_up(of: &ObserveSpec, workload: &Workload, asked: &[Prompt], cell: Cell) -> Result<Vec<Prompt>> {
    let requests = workload.len().min(of.warm_up_requests as usize);
    if !matches!(of.prompts, Prompts::Jsonl { .. }) {
        return generated(of, workload, cell.key(true), requests);
    }
    // A file of prompts has no more prompts than it has: the warm-up sends text, or ids that the file has too.
    let id = |prompt: &Prompt| if let Prompt::Ids(ids) = prompt { ids.iter().copied().max() } else { None };
    let vocab = asked.iter().filter_map(id).max().map_or(of.vocab, |most| most.saturating_add(1));
    let prompts = if of.send == Send::TokenIds { Prompts::Random } else { Prompts::Families };
    generated(&ObserveSpec { prompts, vocab, ..of.clone() }, workload, cell.key(true), requests)
}

/// Prompts of the first `requests` requests that are made from `key`.
fn generated(of: &ObserveSpec, workload: &Workload, key: u64, requests: usize) -> Result<Vec<Prompt>> {
    let requests = 0..requests;
    match of.prompts {
        Prompts::Random => Ok(requests.map(|i| Prompt::Ids(random(workload, key, i, of.vocab))).collect()),
        Prompts::Families | Prompts::Jsonl { .. } => {
            requests.map(|i| as_sent(of, families(workload, key, i))).collect()
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
    let text = foretoken_run::spec::text::read(path).map_err(|e| {
        Problem::bad_input(format!("observe.prompts.jsonl.path: {e}"))
            .help("expected a file with one JSON object a line")
    })?;
    parse_jsonl(path, &text, send)
}

/// Reads the prompts of a text with one JSON object per line. `send` says whether the prompts are sent as text or as
/// token ids. `path` is the text's file name in errors.
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

    const FIRST: Cell = Cell { seed: 3, variant: 0, before: 0 };

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
            let cell = |seed, variant| Cell { seed, variant, before: 0 };
            let all = prompts(&spec, &mut w, cell(3, 0)).unwrap();
            let ids = |i: usize| match &all[i] {
                Prompt::Ids(ids) => ids.clone(),
                Prompt::Text(text) => panic!("{text}"),
            };
            (0..4).for_each(|i| assert_eq!(ids(i).len(), 40 + i));
            assert_eq!(ids(0)[..16], ids(2)[..16]);
            assert_ne!(ids(0)[16..40], ids(2)[16..40]);
            assert_ne!(ids(1)[..16], ids(3)[..16]);
            assert_eq!(all, prompts(&spec, &mut w, cell(3, 0)).unwrap());
            // No prompt of another cell or of a warm-up begins like one of this cell.
            let starts = |all: &[Prompt]| -> Vec<Vec<u32>> {
                let start = |prompt: &Prompt| match prompt {
                    Prompt::Ids(ids) => ids[..16].to_vec(),
                    Prompt::Text(text) => text.bytes().take(16).map(u32::from).collect(),
                };
                all.iter().map(start).collect()
            };
            let mut others =
                vec![prompts(&spec, &mut w, cell(4, 0)).unwrap(), prompts(&spec, &mut w, cell(3, 1)).unwrap()];
            for variant in 0..2 {
                others.push(warm_up(&spec, &w, &all, cell(3, variant)).unwrap());
            }
            others.push(all);
            let mut seen: Vec<Vec<u32>> = others.iter().flat_map(|all| starts(all)).collect();
            seen.sort_unstable();
            seen.dedup();
            // Of the four prompts of each, two share their first block.
            assert_eq!(seen.len(), 3 * others.len());
        }
    }

    #[test]
    fn prompts_that_cannot_be_sent_are_refused() {
        let error_of = |prompts_of, send, vocab| {
            let spec = ObserveSpec { prompts: prompts_of, send, vocab, ..ObserveSpec::default() };
            prompts(&spec, &mut workload(), FIRST).map_err(|p| p.message().to_owned())
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
        assert_eq!(prompts(&spec, &mut w, FIRST).unwrap()[3], Prompt::Ids(vec![1, 2, 3]));
        assert_eq!(w.prompt_len, [3; 4]);
    }

    /// Cells take the prompts of a file one after the other, and the warm-up sends none of them.
    #[test]
    fn prompts_of_a_file_are_sent_once_if_they_are_enough() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.jsonl");
        let lines: String = (0..9).map(|i| format!("{{\"prompt_token_ids\": [{i}, 77, {i}]}}\n")).collect();
        std::fs::write(&path, lines).unwrap();
        let spec = ObserveSpec { prompts: Prompts::Jsonl { path }, ..ObserveSpec::default() };
        let first_ids = |before| -> Vec<u32> {
            let all = prompts(&spec, &mut workload(), Cell { before, ..FIRST }).unwrap();
            let id = |prompt: &Prompt| if let Prompt::Ids(ids) = prompt { ids[0] } else { panic!("{prompt:?}") };
            all.iter().map(id).collect()
        };
        assert_eq!([first_ids(0), first_ids(1), first_ids(2)], [[0, 1, 2, 3], [4, 5, 6, 7], [8, 0, 1, 2]]);
        let mut w = workload();
        let asked = prompts(&spec, &mut w, FIRST).unwrap();
        let warm = warm_up(&spec, &w, &asked, FIRST).unwrap();
        for (prompt, len) in warm.iter().zip(&w.prompt_len) {
            let Prompt::Ids(ids) = prompt else { panic!("{prompt:?}") };
            assert!(ids.len() == *len as usize && ids.iter().all(|&id| id <= 77) && !asked.contains(prompt), "{ids:?}");
        }
    }
}
