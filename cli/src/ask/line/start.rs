//! Finds the server in the words of a line: behind variables, `docker run` and its options, `python -m` and the like.

use super::given::{Line, Word};
use foretoken_run::spec::problem::Result;

/// A serving engine whose flags are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// vLLM's `vllm serve`.
    Vllm,
    /// SGLang's `sglang.launch_server`.
    Sglang,
}

/// Options of `docker run` without a value. All others take one, as `--gpus all` and `-v a:b`.
const DOCKER_SWITCHES: [&str; 12] =
    ["--rm", "-d", "--detach", "-i", "-t", "-it", "-ti", "-dit", "-itd", "--privileged", "--init", "--interactive"];

/// Words at which the command ends and another one begins.
const ENDS: [&str; 11] = ["&&", "||", ";", "|", "&", ">", ">>", "2>&1", "<", "2>", "&>"];

/// The engine that the line starts, and the words of its flags.
pub fn program(line: &Line) -> Result<(Program, Vec<Word>)> {
    let end = line.words.iter().position(|w| ENDS.contains(&w.text.as_str()));
    let mut words = &line.words[..end.unwrap_or(line.words.len())];
    // What stands before `&&` or `;` may only prepare: then the server stands in what follows.
    if let Some(end) = end.filter(|_| of(words).is_none()) {
        let rest = Line { words: line.words[end + 1..].to_vec(), ..line.clone() };
        return program(&rest);
    }
    match of(words) {
        Some((program, at)) => {
            words = &words[at..];
            Ok((program, words.to_vec()))
        }
        None => {
            let span = line.words.first().map_or(0..line.text.len(), |w| w.span.clone());
            let help = "write it as you start the server: vllm serve MODEL …, python -m sglang.launch_server …, docker \
                        run … vllm/vllm-openai --model …, or a file with such a line or a container's args";
            Err(line.wrong(&span, "this line starts neither vLLM nor SGLang").help(help))
        }
    }
}

/// The engine, and the index of the first word behind its name.
fn of(words: &[Word]) -> Option<(Program, usize)> {
    let text = |at: usize| words.get(at).map_or("", |w| w.text.as_str());
    let base = |at: usize| text(at).rsplit('/').next().unwrap_or("");
    let named = (0..words.len()).find_map(|at| match (base(at), text(at + 1)) {
        ("vllm", "serve") => Some((Program::Vllm, at + 2)),
        ("sglang", "serve") => Some((Program::Sglang, at + 2)),
        _ if text(at).starts_with("vllm.entrypoints.") => Some((Program::Vllm, at + 1)),
        _ if base(at) == "api_server.py" => Some((Program::Vllm, at + 1)),
        ("sglang.launch_server" | "launch_server.py", _) => Some((Program::Sglang, at + 1)),
        _ => None,
    });
    named.or_else(|| image(words))
}

/// The engine of an image whose entry point is the server, and the index of the first word behind the image.
fn image(words: &[Word]) -> Option<(Program, usize)> {
    let run = words.iter().position(|w| w.text == "run")?;
    let docker = words[..run].iter().any(|w| ["docker", "podman", "nerdctl"].iter().any(|d| w.text.ends_with(d)));
    let mut at = run + 1;
    while at < words.len() && words[at].text.starts_with('-') {
        let option = words[at].text.as_str();
        at += if option.contains('=') || DOCKER_SWITCHES.contains(&option) { 1 } else { 2 };
    }
    let image = words.get(at).filter(|_| docker)?.text.as_str();
    match image {
        image if image.contains("vllm") => Some((Program::Vllm, at + 1)),
        image if image.contains("sglang") => Some((Program::Sglang, at + 1)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::words;
    use super::*;

    fn found(line: &str) -> (Program, String) {
        let (program, words) = program(&words::shell("the line", line).unwrap()).unwrap();
        (program, words.first().map_or(String::new(), |w| w.text.clone()))
    }

    #[test]
    fn the_server_is_found_behind_what_starts_it() {
        for (line, program) in [
            ("vllm serve a --x", Program::Vllm),
            ("CUDA_VISIBLE_DEVICES=0 /opt/bin/vllm serve a", Program::Vllm),
            ("uv run python3 -m vllm.entrypoints.openai.api_server a", Program::Vllm),
            (
                "docker run --gpus all -v ~/vllm:/root -p 8000:8000 --ipc=host -it vllm/vllm-openai:v0.33 a",
                Program::Vllm,
            ),
            (
                "sudo docker run --rm --shm-size 32g lmsysorg/sglang:latest python3 -m sglang.launch_server a",
                Program::Sglang,
            ),
            ("pip install vllm && vllm serve a > log 2>&1 &", Program::Vllm),
        ] {
            assert_eq!(found(line), (program, "a".to_owned()), "{line}");
        }
        let refused = program(&words::shell("the line", "llama-server -m x.gguf").unwrap()).unwrap_err();
        assert_eq!(refused.pointed_at(), Some("llama-server"));
    }
}
