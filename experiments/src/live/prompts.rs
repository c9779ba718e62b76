//! What the requests of a live run ask, as token ids.

use super::spec::Prompts;
use crate::problem::{Problem, Result};
use foretoken_sim::{Luck, Stream, Workload};
use foretoken_traces::text::{Family, prompt_of_len};
use serde::Deserialize;
use std::path::Path;

/// Turns a text into token ids.
pub type Tokenize<'a> = &'a dyn Fn(&str) -> Result<Vec<u32>>;

/// The prompt of each request. Prompts that bring their own length change the workload's.
pub fn prompts(
    of: &Prompts,
    workload: &mut Workload,
    seed: u64,
    vocab: u32,
    tokenize: Tokenize,
) -> Result<Vec<Vec<u32>>> {
    let lens = || workload.prompt_len.iter().zip(0u64..);
    Ok(match of {
        Prompts::Families => {
            let bytes = |family: u16, i: u64, len: u32| {
                let text = prompt_of_len(Family::ALL[usize::from(family) % Family::ALL.len()], seed, i, len as usize);
                text.into_iter().map(u32::from).collect()
            };
            lens().zip(&workload.category).map(|((&len, i), &family)| bytes(family, i, len)).collect()
        }
        Prompts::Random => {
            let ids = |luck: Luck, len: u32| (0..u64::from(len)).map(|p| (luck.bits(p) % u64::from(vocab)) as u32).collect();
            lens().map(|(&len, i)| ids(Luck::new(seed, Stream::Prompt, i), len)).collect()
        }
        Prompts::Jsonl { path } => {
            let texts = read_jsonl(path)?;
            let tokens = texts.iter().map(|text| tokenize(text)).collect::<Result<Vec<_>>>()?;
            let all: Vec<Vec<u32>> = tokens.iter().cycle().take(workload.len()).cloned().collect();
            workload.prompt_len = all.iter().map(|p| p.len() as u32).collect();
            all
        }
    })
}

/// Gives each request the family that its prompt will be of, so that acceptance can differ by family in the simulator too.
pub fn assign_families(workload: &mut Workload) {
    let n = Family::ALL.len();
    workload.categories = Family::ALL.iter().map(ToString::to_string).collect();
    workload.category = (0..workload.len()).map(|i| (i % n) as u16).collect();
}

/// A line of the file; other fields are the user's.
#[derive(Deserialize)]
struct Line {
    prompt: String,
}

fn read_jsonl(path: &Path) -> Result<Vec<String>> {
    let text = fs_err::read_to_string(path).map_err(|e| {
        Problem::bad_input(format!("live.prompts.jsonl.path: {e}")).help("expected a file with one JSON object a line")
    })?;
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
    use foretoken_sim::{Request, Time};

    fn workload() -> Workload {
        (0..8).map(|i| Request::new(Time(i), 5 + i as u32 * 9, 4)).collect()
    }

    fn by_byte(text: &str) -> Result<Vec<u32>> {
        Ok(text.bytes().map(u32::from).collect())
    }

    #[test]
    fn prompts_have_the_workloads_lengths_and_the_same_seed_gives_the_same() {
        for of in [Prompts::Families, Prompts::Random] {
            let mut w = workload();
            assign_families(&mut w);
            let first = prompts(&of, &mut w, 1, 256, &by_byte).unwrap();
            assert!(first.iter().zip(&w.prompt_len).all(|(p, &len)| p.len() == len as usize));
            assert!(first.iter().flatten().all(|&t| t < 256));
            assert_eq!(first, prompts(&of, &mut w, 1, 256, &by_byte).unwrap());
            assert_ne!(first, prompts(&of, &mut w, 2, 256, &by_byte).unwrap());
        }
    }

    #[test]
    fn texts_bring_their_own_length_and_bad_lines_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.jsonl");
        std::fs::write(&path, "{\"prompt\": \"abc\"}\n\n{\"prompt\": \"de\", \"id\": 3}\n").unwrap();
        let mut w = workload();
        let of = Prompts::Jsonl { path: path.clone() };
        let all = prompts(&of, &mut w, 1, 256, &by_byte).unwrap();
        assert_eq!((all.len(), &all[0], &all[1], &all[2]), (8, &vec![97, 98, 99], &vec![100, 101], &all[0]));
        assert_eq!(w.prompt_len[..3], [3, 2, 3]);
        for (text, said) in [
            ("{\"prompt\": \"a\"}\n{\"text\": \"b\"}\n", "line 2: missing field `prompt`"),
            ("{\"prompt\": \"\"}\n", "line 1: the prompt is empty"),
            ("\n", "holds no prompt"),
        ] {
            std::fs::write(&path, text).unwrap();
            let problem = prompts(&of, &mut workload(), 1, 256, &by_byte).unwrap_err();
            assert!(problem.message().contains(said), "{}", problem.message());
        }
    }
}
