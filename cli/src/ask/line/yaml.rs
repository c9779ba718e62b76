//! The words of a container's `command` and `args` in YAML (Kubernetes, Compose), or of a file for `--config`.

use super::given::{Line, Word};
use super::words;
use foretoken_run::spec::problem::{Problem, Result};
use saphyr_parser::{Event, Parser};
use serde_json::Value;
use std::ops::Range;

/// A value of YAML with its place. Anchors and tags do not matter here.
enum Node {
    Scalar(Word),
    List(Vec<Node>),
    Map(Vec<(String, Node)>),
}

/// The deepest nesting that is read.
const DEEPEST: usize = 64;

/// The line that a YAML file starts.
pub fn read(name: &str, text: &str) -> Result<Line> {
    let documents = documents(name, text)?;
    let line = |words: Vec<Word>| Line {
        name: name.to_owned(),
        text: text.to_owned(),
        words,
        only_changes: true,
        config: None,
    };
    for document in &documents {
        if let Some(found) = container(document) {
            return match found {
                Found::Words(words) => Ok(line(words)),
                Found::Shell(script) => words::shell(&format!("{name}, the script in it"), &script),
            };
        }
    }
    let keys = documents.first().and_then(|document| if let Node::Map(keys) = document { Some(keys) } else { None });
    let of = |names: &[&str]| keys.filter(|keys| keys.iter().any(|(key, _)| names.contains(&key.as_str())));
    let program = |program: &str, keys: &[(String, Node)]| {
        let start = [program, "serve"].map(|text| Word { text: text.to_owned(), span: 0..0 });
        line(start.into_iter().chain(config(keys)).collect())
    };
    match (of(&["model"]), of(&["model-path", "model_path"])) {
        (Some(keys), _) => Ok(program("vllm", keys)),
        (None, Some(keys)) => Ok(program("sglang", keys)),
        (None, None) => Err(Problem::bad_input(format!("{name}: no container here starts vLLM or SGLang"))
            .help("it needs `args` or `command` with the server's flags, or be a file for --config with a model")),
    }
}

/// The flags in a file for `--config`. All words have the place `at`, where the line names the file.
pub fn flags(name: &str, text: &str, at: &Range<usize>) -> Result<Vec<Word>> {
    match documents(name, text)?.first() {
        Some(Node::Map(keys)) => {
            Ok(config(keys).into_iter().map(|word| Word { text: word.text, span: at.clone() }).collect())
        }
        _ => Err(Problem::bad_input(format!("{name} has no flags: keys with values are wanted"))),
    }
}

fn documents(name: &str, text: &str) -> Result<Vec<Node>> {
    // The parser counts characters, a place counts bytes.
    let bytes: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
    let byte = |at: usize| bytes[at.min(bytes.len() - 1)];
    let mut events = Vec::new();
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|e| {
            let at = byte(e.marker().index());
            Problem::bad_input(format!("this is no YAML: {}", e.info())).at(name, text, at..at)
        })?;
        events.push((event, byte(span.start.index())..byte(span.end.index())));
    }
    let mut events = events.into_iter();
    let mut documents = Vec::new();
    while let Some((event, span)) = events.next() {
        if !matches!(event, Event::StreamStart | Event::StreamEnd | Event::DocumentStart(_) | Event::DocumentEnd) {
            documents.push(node(event, span, &mut events, DEEPEST).ok_or_else(|| {
                Problem::bad_input(format!("{name} is nested too deep")).help("give the line itself")
            })?);
        }
    }
    Ok(documents)
}

fn node(
    event: Event,
    span: Range<usize>,
    rest: &mut dyn Iterator<Item = (Event<'_>, Range<usize>)>,
    depth: usize,
) -> Option<Node> {
    let depth = depth.checked_sub(1)?;
    match event {
        Event::Scalar(text, ..) => Some(Node::Scalar(Word { text: text.into_owned(), span })),
        Event::SequenceStart(..) => {
            let mut items = Vec::new();
            while let Some((event, span)) = rest.next().filter(|(e, _)| !matches!(e, Event::SequenceEnd)) {
                items.push(node(event, span, rest, depth)?);
            }
            Some(Node::List(items))
        }
        Event::MappingStart(..) => {
            let mut keys = Vec::new();
            while let Some((event, span)) = rest.next().filter(|(e, _)| !matches!(e, Event::MappingEnd)) {
                let key = node(event, span, rest, depth)?;
                let (event, span) = rest.next()?;
                let value = node(event, span, rest, depth)?;
                if let Node::Scalar(key) = key {
                    keys.push((key.text, value));
                }
            }
            Some(Node::Map(keys))
        }
        _ => Some(Node::List(Vec::new())),
    }
}

enum Found {
    Words(Vec<Word>),
    /// A script that a shell of the container runs.
    Shell(String),
}

/// The words of the first container that starts a server.
fn container(node: &Node) -> Option<Found> {
    match node {
        Node::Scalar(..) => None,
        Node::List(items) => items.iter().find_map(container),
        Node::Map(keys) => {
            let of = |name: &str| keys.iter().find(|(key, _)| key == name).map(|(_, value)| value);
            let mut words = Vec::new();
            for value in ["image", "command", "args"].map(of).into_iter().flatten() {
                flat(value, &mut words);
            }
            let has = |name: &str| words.iter().any(|w: &Word| w.text.contains(name));
            let starts = of("args").or(of("command")).is_some() && (has("vllm") || has("sglang"));
            if !starts {
                return keys.iter().find_map(|(_, value)| container(value));
            }
            if let Some(script) = words.iter().find(|w| w.text.contains(char::is_whitespace) && !is_json(&w.text)) {
                // Compose's `command: --model …` has the flags alone, for the image's own server.
                let alone = script.text.trim_start().starts_with("--");
                let server = if has("sglang") { "sglang serve " } else { "vllm serve " };
                return Some(Found::Shell(format!("{}{}", if alone { server } else { "" }, script.text)));
            }
            // An image's own entry point is its server, and `image()` in start.rs wants `docker run` before it.
            if of("image").is_some() {
                let before = |text: &str| Word { text: text.to_owned(), span: words[0].span.clone() };
                let entry = [before("docker"), before("run")];
                words.splice(0..0, entry);
            }
            Some(Found::Words(words))
        }
    }
}

fn is_json(text: &str) -> bool {
    text.trim_start().starts_with(['{', '['])
}

fn flat(node: &Node, words: &mut Vec<Word>) {
    match node {
        Node::Scalar(word) => words.push(word.clone()),
        Node::List(items) => items.iter().for_each(|item| flat(item, words)),
        Node::Map(_) => {}
    }
}

/// The words of a file for `--config`: keys are flags without dashes, lists are several values, and maps are JSON.
fn config(keys: &[(String, Node)]) -> Vec<Word> {
    let mut words = Vec::new();
    for (key, value) in keys {
        let Some(span) = span(value) else { continue };
        let name = key.replace('_', "-");
        let flag = |text: String| Word { text, span: span.clone() };
        match value {
            Node::Scalar(value) => match value.text.as_str() {
                "true" => words.push(flag(format!("--{name}"))),
                "false" => words.push(flag(format!("--no-{name}"))),
                "null" | "~" | "" => {}
                _ => words.extend([flag(format!("--{name}")), value.clone()]),
            },
            Node::List(_) => {
                words.push(flag(format!("--{name}")));
                flat(value, &mut words);
            }
            Node::Map(_) => words.extend([flag(format!("--{name}")), flag(json(value).to_string())]),
        }
    }
    words
}

/// The place of a value; `None` for an empty list or map.
fn span(value: &Node) -> Option<Range<usize>> {
    match value {
        Node::Scalar(word) => Some(word.span.clone()),
        Node::List(items) => Some(span(items.first()?)?.start..span(items.last()?)?.end),
        Node::Map(keys) => Some(span(&keys.first()?.1)?.start..span(&keys.last()?.1)?.end),
    }
}

/// A value as JSON. Texts that are JSON, such as numbers and `true`, are read.
fn json(value: &Node) -> Value {
    match value {
        Node::Scalar(word) => match serde_json::from_str(&word.text) {
            Ok(value @ (Value::Null | Value::Bool(_) | Value::Number(_))) => value,
            _ => Value::String(word.text.clone()),
        },
        Node::List(items) => items.iter().map(json).collect(),
        Node::Map(keys) => Value::Object(keys.iter().map(|(key, value)| (key.clone(), json(value))).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::program;
    use super::*;

    fn words(text: &str) -> Vec<String> {
        let line = read("k.yaml", text).unwrap();
        program(&line).unwrap().1.into_iter().map(|w| w.text).collect()
    }

    #[test]
    fn a_containers_args_are_words() {
        let list = "spec:\n  containers:\n  - name: side\n    image: nginx\n    args: [x]\n  - image: vllm/vllm-openai:v0.33\n    args:\n    - --model\n    - a/b\n    - --speculative-config\n    - '{\"num_speculative_tokens\": 3}'\n";
        assert_eq!(words(list), ["--model", "a/b", "--speculative-config", "{\"num_speculative_tokens\": 3}"]);
        let script = "containers:\n- image: x/y\n  command: [\"/bin/sh\", \"-c\"]\n  args:\n  - |\n    vllm serve a/b \\\n      --max-num-seqs 8\n";
        assert_eq!(words(script), ["a/b", "--max-num-seqs", "8"]);
        let compose = "services:\n  v:\n    image: vllm/vllm-openai\n    command: --model a/b --max-num-seqs 8\n";
        assert_eq!(words(compose), ["--model", "a/b", "--max-num-seqs", "8"]);
        assert_eq!(
            words("model: a/b\nmax-num-seqs: 8\nenforce-eager: true\n"),
            ["--model", "a/b", "--max-num-seqs", "8", "--enforce-eager"]
        );
        assert_eq!(words("model-path: a/b\ntp-size: 2\n"), ["--model-path", "a/b", "--tp-size", "2"]);
        assert_eq!(
            words(
                "model: a\nspeculative_config:\n  method: mtp\n  num_speculative_tokens: 2\nnames: [x, y]\nseed: null\n"
            ),
            [
                "--model", "a", "--speculative-config", r#"{"method":"mtp","num_speculative_tokens":2}"#, "--names",
                "x", "y"
            ]
        );
    }

    #[test]
    fn a_place_in_yaml_counts_bytes() {
        let text = "# ä\nmodel: a/b\n";
        let line = read("k.yaml", text).unwrap();
        assert_eq!(&text[line.words.last().unwrap().span.clone()], "a/b");
        assert_eq!(read("k.yaml", "a: [").unwrap_err().place().map(|p| p.starts_with("k.yaml:")), Some(true));
        assert!(read("k.yaml", "a: 1").is_err());
    }
}
