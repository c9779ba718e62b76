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
