//! The line that starts a server: its words, each with its place, from a shell line, a `docker run`, or a YAML file.

mod given;
mod start;
mod words;
mod yaml;

pub use given::{Line, Word};
pub use start::{Program, program};
pub use words::shell;

use foretoken_run::spec::problem::{Problem, Result};
use foretoken_run::spec::text;
use std::path::Path;

/// Reads the line that the user gave: a shell line, or a file with a shell line or YAML in it.
pub fn read(given: &str) -> Result<Line> {
    let path = Path::new(given);
    let (name, text) = match !given.contains(char::is_whitespace) && path.is_file() {
        true => {
            let text = text::read(path).map_err(|e| Problem::bad_input(format!("cannot read the line: {e}")))?;
            (given.to_owned(), text)
        }
        false => ("the line".to_owned(), given.to_owned()),
    };
    let is_yaml = |text: &str| {
        let first = text.lines().map(str::trim).find(|l| !l.is_empty() && !l.starts_with('#') && *l != "---");
        let key = first
            .and_then(|line| line.strip_prefix("- ").unwrap_or(line).split_once(':'))
            .map(|(key, rest)| !key.contains(char::is_whitespace) && (rest.is_empty() || rest.starts_with(' ')));
        key.unwrap_or(false)
    };
    match name.ends_with(".yaml") || name.ends_with(".yml") || is_yaml(&text) {
        true => yaml::read(&name, &text),
        false => words::shell(&name, &text),
    }
}

/// The words of the server's flags, with the flags of the file that `--config` names. These stand behind the model's
/// name and before the other flags, as the engines put them: the line's own flags go before them. All words of the file
/// have the place of its name.
pub fn with_config(line: &mut Line, mut words: Vec<Word>) -> Result<Vec<Word>> {
    let Some(at) = words.iter().position(|w| w.text == "--config" || w.text.starts_with("--config=")) else {
        return Ok(words);
    };
    let flag = words.remove(at);
    let file = match flag.text.split_once('=') {
        Some((_, file)) => Word { text: file.to_owned(), span: flag.span.clone() },
        None if at < words.len() => words.remove(at),
        None => return Err(line.wrong(&flag.span, "--config lacks its value")),
    };
    let help = "it holds flags of the server, which decide the answer: give a path that is read here, or write its flags \
                into the line";
    let text = text::read(Path::new(&file.text))
        .map_err(|e| line.wrong(&file.span, format!("cannot read the file of --config: {e}")).help(help))?;
    let inner = yaml::flags(&file.text, &text, &file.span)?;
    // What changes in the file is said, and not pasted into the line.
    line.only_changes |= inner.iter().any(|w| w.text.starts_with("--spec") || w.text.starts_with("--num-spec"));
    line.config = Some((file.span, file.text));
    let first = words.iter().position(|w| w.text.starts_with('-')).unwrap_or(words.len());
    words.splice(first..first, inner);
    Ok(words)
}
