//! The prompts of a live run's requests, as token ids.

use super::machine::Models;
use crate::tokens::Tokens;
use foretoken_run::spec::problem::{Problem, Result};
use foretoken_run::spec::prompts::Prompts;
use foretoken_sim::{Luck, Stream, Workload};
use foretoken_traces::text::{Family, prompt_of_len};
use serde::Deserialize;
use std::path::Path;

/// Makes the prompt of each request, as tokens of the target. If the prompts come from a file, the requests take the
/// texts of the file in order, and begin again with the first text after the last. The lengths of these texts then
/// replace the prompt lengths of `workload`.
pub fn prompts(of: &Prompts, workload: &mut Workload, seed: u64, models: &Models) -> Result<Vec<Vec<u32>>> {
    let (target, vocab) = (&models.target.name, models.target.shape.vocab);
    match of {
        Prompts::Families if vocab != BYTES => {
            let message = format!("live.prompts = \"families\" is text of bytes, and {target} has {vocab} tokens");
            Err(Problem::bad_input(message)
                .help("take prompts = \"random\", or { jsonl = { path = \"...\" } } with a checkpoint's tokenizer"))
        }
        Prompts::Families => Ok(families(workload, seed)),
        Prompts::Random => Ok(random(workload, seed, vocab)),
        Prompts::Jsonl { path } => {
            let tokens = tokens(models)?;
            let encode = |text: &String| tokens.encode(text).map_err(|why| no_tokens(path, &why));
            let each = read_jsonl(path)?.iter().map(encode).collect::<Result<Vec<_>>>()?;
            if let Some(token) = each.iter().flatten().find(|&&t| t >= vocab) {
                return Err(no_tokens(path, &format!("token {token} lies outside of the vocabulary of {vocab}"))
                    .help("is the tokenizer.json that of this model?"));
            }
            Ok(in_turn(each, workload))
        }
    }
}

/// Size of a vocabulary in which each token is a byte.
const BYTES: u32 = 256;

/// Returns the target's tokenizer. It is an error if the target has no tokenizer and its tokens are not bytes. It is
/// also an error if the target and the draft have tokenizers with different vocabularies.
fn tokens(models: &Models) -> Result<Tokens> {
    let (target, draft) = (&models.target, &models.draft);
    let (tokens, drafts) = (Tokens::of("live.target", target)?, Tokens::of("live.draft", draft)?);
    match (&tokens, target.shape.vocab) {
        (Tokens::Bytes, n) if n != BYTES => {
            Err(Problem::bad_input(format!("live.prompts: {} has {n} tokens and no tokenizer.json", target.name))
                .help("give the folder of a checkpoint that has one, or take prompts = \"random\""))
        }
        (Tokens::Tokenizer(_), _) if matches!(drafts, Tokens::Tokenizer(_)) && !tokens.same_vocabulary(&drafts) => {
            let message = format!("the tokenizers of {} and {} differ", target.name, draft.name);
            Err(Problem::bad_input(message)
                .help("take a draft that was made for this target: both must read the same tokens"))
        }
        _ => Ok(tokens),
    }
}

fn no_tokens(path: &Path, why: &str) -> Box<Problem> {
    Problem::bad_input(format!("{}: cannot be turned into tokens: {why}", path.display()))
}

fn families(workload: &Workload, seed: u64) -> Vec<Vec<u32>> {
    let one = |((&len, i), &family): ((&u32, u64), &u16)| {
        let family = Family::ALL[usize::from(family) % Family::ALL.len()];
        prompt_of_len(family, seed, i, len as usize).into_iter().map(u32::from).collect()
    };
    workload.prompt_len.iter().zip(0u64..).zip(&workload.category).map(one).collect()
}

fn random(workload: &Workload, seed: u64, vocab: u32) -> Vec<Vec<u32>> {
    let ids = |luck: Luck, len: u32| (0..u64::from(len)).map(|p| (luck.bits(p) % u64::from(vocab)) as u32).collect();
    workload.prompt_len.iter().zip(0u64..).map(|(&len, i)| ids(Luck::new(seed, Stream::Prompt, i), len)).collect()
}

fn in_turn(each: Vec<Vec<u32>>, workload: &mut Workload) -> Vec<Vec<u32>> {
    let all: Vec<Vec<u32>> = each.iter().cycle().take(workload.len()).cloned().collect();
    workload.prompt_len = all.iter().map(|p| p.len() as u32).collect();
    all
}

/// A line of the prompt file: a JSON object with this field. Other fields are ignored.
#[derive(Deserialize)]
struct Line {
    prompt: String,
}

fn read_jsonl(path: &Path) -> Result<Vec<String>> {
    let text = foretoken_run::spec::text::read(path).map_err(|e| {
        Problem::bad_input(format!("live.prompts.jsonl.path: {e}")).help("expected a file with one JSON object a line")
    })?;
    parse_jsonl(path, &text)
}

/// Returns the prompts of a JSON-lines text. Error messages name the file `path`.
pub fn parse_jsonl(path: &Path, text: &str) -> Result<Vec<String>> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let texts = lines.map(|(n, line)| {
        let line: Line = serde_json::from_str(line).map_err(|e| {
            Problem::bad_input(format!("{}, line {}: {e}", path.display(), n + 1))
                .help("expected an object with a text: {\"prompt\": \"...\"}")
        })?;
        match line.prompt.is_empty() {
            true => Err(Problem::bad_input(format!("{}, line {}: the prompt is empty", path.display(), n + 1))),
            false => Ok(line.prompt),
        }
    });
    let texts = texts.collect::<Result<Vec<_>>>()?;
    match texts.is_empty() {
        true => Err(Problem::bad_input(format!("{} holds no prompt", path.display()))),
        false => Ok(texts),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foretoken_run::workload::assign_families;
    use foretoken_sim::{Request, Time};
    use itertools::Itertools;

    fn workload() -> Workload {
        (0..8).map(|i| Request::new(Time(i), 5 + i as u32 * 9, 4)).collect()
    }

    /// Returns the target `tiny-target` and the draft `tiny-draft`, whose weights are in the repository.
    fn pair() -> Models {
        let model = |name| crate::models::Model::find("live", name, None).unwrap();
        Models { target: model("tiny-target"), draft: model("tiny-draft") }
    }

    #[test]
    fn prompts_have_the_workloads_lengths_and_the_same_seed_gives_the_same() {
        let pair = pair();
        for of in [Prompts::Families, Prompts::Random] {
            let mut w = workload();
            assign_families(&mut w);
            let first = prompts(&of, &mut w, 1, &pair).unwrap();
            assert!(first.iter().zip_eq(&w.prompt_len).all(|(p, &len)| p.len() == len as usize));
            assert!(first.iter().flatten().all(|&t| t < 256));
            assert_eq!(first, prompts(&of, &mut w, 1, &pair).unwrap());
            assert_ne!(first, prompts(&of, &mut w, 2, &pair).unwrap());
        }
    }

    #[test]
    fn texts_bring_their_own_length_and_bad_lines_are_named() {
        let pair = pair();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.jsonl");
        std::fs::write(&path, "{\"prompt\": \"abc\"}\n\n{\"prompt\": \"de\", \"id\": 3}\n").unwrap();
        let mut w = workload();
        let of = Prompts::Jsonl { path: path.clone() };
        let all = prompts(&of, &mut w, 1, &pair).unwrap();
        assert_eq!((all.len(), &all[0], &all[1], &all[2]), (8, &vec![97, 98, 99], &vec![100, 101], &all[0]));
        assert_eq!(w.prompt_len[..3], [3, 2, 3]);
        for (text, said) in [
            ("{\"prompt\": \"a\"}\n{\"text\": \"b\"}\n", "line 2: missing field `prompt`"),
            ("{\"prompt\": \"\"}\n", "line 1: the prompt is empty"),
            ("\n", "holds no prompt"),
        ] {
            std::fs::write(&path, text).unwrap();
            let problem = prompts(&of, &mut workload(), 1, &pair).unwrap_err();
            assert!(problem.message().contains(said), "{}", problem.message());
        }
    }
}
