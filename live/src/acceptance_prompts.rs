//! The prompts of `foretoken profile-acceptance`: generated texts of each family (kind of text) that Foretoken has a
//! generator for, or the lines of a file.

use crate::tokens::Tokens;
use foretoken_run::spec::problem::{Problem, Result};
use foretoken_traces::text::{Family, document, prompt_of_len};
use serde::Deserialize;
use std::path::Path;

/// Default number of prompts for each family (kind of text).
const EACH: u64 = 32;

/// The user's choice of the prompts that the target continues.
#[derive(Clone, Copy, Debug)]
pub struct PromptsRequest<'a> {
    /// A file with one JSON object per line. `None`: texts are generated, for each family (kind of text) that Foretoken
    /// has a generator for.
    pub file: Option<&'a Path>,
    /// With generated texts: number of prompts per family (`None`: 32). With a file: number of prompts to read (`None`:
    /// all).
    pub n: Option<u64>,
    /// Bytes of a generated prompt. `None`: each prompt has the length that its generator gives it. It must be `None`
    /// with a file.
    pub prompt_len: Option<u32>,
    pub seed: u64,
    /// Most output tokens after each prompt.
    pub output_len: u32,
}

/// The prompts with which a truth table is recorded. The target continues each prompt.
pub(crate) struct Prompts {
    /// Names of the families (kinds of text) of the prompts. `all` refers to them by index.
    pub(crate) families: Vec<String>,
    /// The prompts, each as (index of its family in `families`, its tokens).
    pub(crate) all: Vec<(u16, Vec<u32>)>,
    /// A text that says where the prompts come from. It goes into the header of the truth table, the file that records
    /// which draft tokens are right.
    pub(crate) source: String,
}

impl Prompts {
    /// Reads or generates the prompts that `asked` describes. It is an error if a token is not below `vocab`, or if a
    /// prompt and its output together exceed `positions` tokens.
    pub(crate) fn of(asked: &PromptsRequest, tokens: &Tokens, vocab: u32, positions: u32) -> Result<Prompts> {
        let prompts = match asked.file {
            None => families(asked, tokens)?,
            Some(file) => lines(asked, file, tokens)?,
        };
        let room = positions.saturating_sub(asked.output_len);
        for (i, (_, prompt)) in prompts.all.iter().enumerate() {
            let (n, name) = (prompt.len(), prompts.name(i));
            if n as u64 > u64::from(room) {
                let message = format!(
                    "{name} is too long: its {n} tokens and {} of output need more than the {positions} positions of the pair",
                    asked.output_len
                );
                return Err(Problem::bad_input(message).help("shorten it, or lower --output-len"));
            }
            if let Some(token) = prompt.iter().find(|&&token| token >= vocab) {
                let message = format!("{name}: token {token} lies outside of the vocabulary of {vocab}");
                let help = match tokens {
                    Tokens::Bytes => "without a tokenizer.json a byte is a token, which takes a byte-level model",
                    Tokens::Tokenizer(_) => "is the tokenizer.json that of this model?",
                };
                return Err(Problem::bad_input(message).help(help));
            }
        }
        Ok(prompts)
    }

    /// The name of prompt `i` in error messages.
    fn name(&self, i: usize) -> String {
        format!("prompt {} ({}, {})", i + 1, self.families[usize::from(self.all[i].0)], self.source)
    }
}

/// Generates the requested number of prompts of each family (kind of text), by default 32. The families alternate, so
/// that the first n prompts have about the same number from each family.
fn families(asked: &PromptsRequest, tokens: &Tokens) -> Result<Prompts> {
    let (n, seed) = (asked.n.unwrap_or(EACH), asked.seed);
    let mut all = Vec::new();
    for index in 0..n {
        for family in Family::ALL {
            let text = match asked.prompt_len {
                None => document(family, seed, index).prompt,
                Some(len) => String::from_utf8(prompt_of_len(family, seed, index, len as usize)).expect("plain ASCII"),
            };
            all.push((family as u16, encode(tokens, &text, &format!("family {family}, prompt {index}"))?));
        }
    }
    let length = asked.prompt_len.map_or(String::new(), |len| format!(", {len} bytes each"));
    let source = format!("{n} prompts of each family, seed {seed}{length}");
    Ok(Prompts { families: Family::ALL.map(|f| f.name().to_owned()).to_vec(), all, source })
}

/// A line of the prompt file: a JSON object with these fields. Other fields are ignored.
#[derive(Deserialize)]
struct Line {
    prompt: String,
    family: Option<String>,
}

fn lines(asked: &PromptsRequest, path: &Path, tokens: &Tokens) -> Result<Prompts> {
    if let Some(len) = asked.prompt_len {
        let message =
            format!("--prompt-len {len} belongs to the generated families, and {} has its own prompts", path.display());
        return Err(Problem::bad_input(message).help("leave it out, or give --prompts families"));
    }
    let text = foretoken_run::spec::text::read(path).map_err(|e| {
        Problem::bad_input(format!("--prompts: {e}"))
            .help("give `families`, or a file with one JSON object a line: {\"prompt\": \"...\", \"family\": \"...\"}")
    })?;
    let mut families: Vec<String> = Vec::new();
    let mut all = Vec::new();
    let most = asked.n.unwrap_or(u64::MAX);
    for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()) {
        if all.len() as u64 >= most {
            break;
        }
        let at = format!("{}, line {number}", path.display());
        let line: Line = serde_json::from_str(line).map_err(|e| {
            Problem::bad_input(format!("{at}: {e}")).help("expected an object with a text: {\"prompt\": \"...\"}")
        })?;
        let prompt = encode(tokens, &line.prompt, &at)?;
        if prompt.is_empty() {
            return Err(Problem::bad_input(format!("{at}: the prompt is empty")));
        }
        let name = line.family.unwrap_or_else(|| "prompts".to_owned());
        let family = families.iter().position(|f| *f == name).unwrap_or_else(|| {
            families.push(name);
            families.len() - 1
        });
        let family =
            u16::try_from(family).map_err(|_| Problem::bad_input(format!("{at}: more than 65,536 families")))?;
        all.push((family, prompt));
    }
    if all.is_empty() {
        return Err(Problem::bad_input(format!("{} holds no prompt", path.display())));
    }
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    Ok(Prompts { source: format!("{} prompts of {name}", all.len()), families, all })
}

fn encode(tokens: &Tokens, text: &str, at: &str) -> Result<Vec<u32>> {
    tokens.encode(text).map_err(|e| Problem::bad_input(format!("{at}: cannot be turned into tokens: {e}")))
}

/// Blake3 digest of the lengths and tokens of all prompts. It identifies the prompts.
pub(crate) fn digest(prompts: &Prompts) -> String {
    let mut hasher = blake3::Hasher::new();
    for (_, prompt) in &prompts.all {
        hasher.update(&(prompt.len() as u64).to_le_bytes());
        prompt.iter().for_each(|token| {
            hasher.update(&token.to_le_bytes());
        });
    }
    hasher.finalize().to_hex().to_string()
}
