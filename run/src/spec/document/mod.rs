//! An experiment file as a tree that remembers where each value came from.
//!
//! Overrides and sweeps change this tree before it is turned into typed values. The Rust types of settings therefore
//! need no second form for a swept value, and every error can point at its text: the file, or a `--set` argument.
//! This module does not know what the settings of an experiment mean.

mod leaves;
mod overrides;
mod path;
mod sweep;

pub use path::{Path, Step};
pub use sweep::{Choice, Picked};

use crate::spec::problem::{Problem, Result, nearest};
use overrides::SET;
use serde::de::{DeserializeOwned, IntoDeserializer};
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A value of an experiment file with its place: its range of bytes in the sources, which are the file and the `--set`
/// arguments.
pub type Node = Spanned<DeValue<'static>>;

/// An experiment file as a tree of values, with the `--set` overrides applied.
#[derive(Clone, Debug)]
pub struct Document {
    sources: Vec<Source>,
    root: Node,
}

/// A text from which values were read: the experiment file, or a `--set` argument. A span is a range of bytes, counted
/// as if the texts of all sources stood one after another.
#[derive(Clone, Debug)]
struct Source {
    name: String,
    text: &'static str,
    base: usize,
}

impl Document {
    /// Parses the TOML text `text`. `name` is the text's name in error messages, such as its path.
    pub fn parse(name: &str, text: &str) -> Result<Document> {
        let text = leak(text);
        let table = DeTable::parse(text).map_err(|e| {
            let problem = Problem::bad_input(format!("{name} is not valid TOML: {}", e.message()));
            match e.span() {
                Some(span) => problem.at(name, text, span),
                None => problem,
            }
        })?;
        let root = Spanned::new(table.span(), DeValue::Table(table.into_inner()));
        Ok(Document { sources: vec![Source { name: name.to_owned(), text, base: 0 }], root })
    }

    /// Appends a text to the sources (the texts from which values were read). Returns the text's offset: a span of a
    /// value of this text is counted from this number of bytes on.
    fn add_source(&mut self, name: &str, text: &'static str) -> usize {
        let base = self.sources.last().map_or(0, |s| s.base + s.text.len() + 1);
        self.sources.push(Source { name: name.to_owned(), text, base });
        base
    }

    /// Turns the document's tree of values into a value of the type `T`.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T> {
        self.read_knowing(|_| Vec::new())
    }

    /// Turns the document's tree of values into a value of the type `T`, with hints for the user. `settings_of(name)`
    /// lists the keys of the table called `name`. If another kind of value stands where this table should be, the error
    /// lists these keys.
    pub fn read_knowing<T: DeserializeOwned>(&self, settings_of: impl Fn(&str) -> Vec<String>) -> Result<T> {
        T::deserialize(self.root.clone().into_deserializer()).map_err(|e| {
            let (what, help) =
                self.not_a_table(e.message(), e.span(), settings_of).unwrap_or_else(|| explain(e.message()));
            let problem = self.point(Problem::bad_input(what), e.span());
            match help {
                Some(help) => problem.help(help),
                None => problem,
            }
        })
    }

    /// The (message, help text) of an error in which a number, a text or a list stands where a table of settings
    /// should be. serde reads a list as the table's values in order, so serde's own message would be about the list's
    /// first item. `None` if the error is of another kind.
    fn not_a_table(
        &self,
        message: &str,
        span: Option<Range<usize>>,
        settings_of: impl Fn(&str) -> Vec<String>,
    ) -> Option<(String, Option<String>)> {
        let at = path_of(&self.root, &Path::default(), &span?)?;
        let wanted = message.rsplit_once("expected ")?.1;
        let table = match at.0.last()? {
            Step::Index(_) => Path(at.0[..at.0.len() - 1].to_vec()),
            Step::Key(_) if wanted.starts_with("struct ") => at,
            Step::Key(_) => return None,
        };
        let keys = settings_of(table.last_key());
        let (key, given) = (keys.first()?, self.value_at(&table)?);
        let what = format!("`{}` is a table of settings, and {given} stands in its place", table.last_key());
        let help = match keys.len() {
            1 => format!("write {} = {{ {key} = {given} }}", table.last_key()),
            _ => format!("write {} = {{ key = value, ... }} with the keys {}", table.last_key(), keys.join(", ")),
        };
        Some((what, Some(help)))
    }

    /// The value at a path; `None` if the document has no value there.
    pub fn get(&self, path: &Path) -> Option<&Node> {
        path.0.iter().try_fold(&self.root, |node, step| match (step, node.get_ref()) {
            (Step::Key(k), DeValue::Table(t)) => t.get(k.as_str()),
            (Step::Index(i), DeValue::Array(a)) => a.get(*i),
            _ => None,
        })
    }

    /// True if the value at a path was given on the command line (`--set`).
    pub fn is_overridden(&self, path: &Path) -> bool {
        let Some(span) = self.get(path).map(Spanned::span) else { return false };
        let source = self.sources.iter().rev().find(|s| s.base <= span.start);
        source.is_some_and(|s| s.name.starts_with(SET))
    }

    /// The value at a path as plain TOML. `None` if the document has no value there, or if the value cannot be read.
    pub fn value_at(&self, path: &Path) -> Option<toml::Value> {
        Document { sources: Vec::new(), root: self.get(path)?.clone() }.read().ok()
    }

    /// The string at a path. `None` if the document has no value there, or if the value is not a string.
    pub fn text_at(&self, path: &Path) -> Option<String> {
        match self.get(path)?.get_ref() {
            DeValue::String(text) => Some(text.to_string()),
            _ => None,
        }
    }

    /// A problem that points at the value at `path`. If the document has no value there, it points at the nearest
    /// enclosing value.
    pub fn problem_at(&self, path: &Path, message: impl Into<String>) -> Box<Problem> {
        let span = path.ancestors().find_map(|p| self.get(&p)).map(Spanned::span);
        self.point(Problem::bad_input(message), span)
    }

    /// Adds the place of the bytes `span` to a problem. If `span` is `None` or covers the whole file, the place names
    /// only the file. If the document has no sources, no place is added.
    pub fn point(&self, problem: Box<Problem>, span: Option<Range<usize>>) -> Box<Problem> {
        let span = span.filter(|s| *s != self.root.span()).unwrap_or(0..0);
        // A value that was taken out of its document has no source (the text from which it was read), so the problem
        // gets no place.
        let Some(at) = self.sources.iter().rev().find(|s| s.base <= span.start) else { return problem };
        problem.at(&at.name, at.text, span.start - at.base..span.end - at.base)
    }

    /// The range of bytes of a string value that equals `text`; `None` if the document has no such value.
    pub fn span_of_string(&self, text: &str) -> Option<Range<usize>> {
        find_string(&self.root, text)
    }
}

/// The path of the node whose range of bytes is `span`, searched in `node` and below it. `at` is the path of `node`.
/// `None` if no node has this range.
fn path_of(node: &Node, at: &Path, span: &Range<usize>) -> Option<Path> {
    if node.span() == *span {
        return Some(at.clone());
    }
    match node.get_ref() {
        DeValue::Array(items) => {
            items.iter().enumerate().find_map(|(i, inner)| path_of(inner, &at.then(Step::Index(i)), span))
        }
        DeValue::Table(table) => table.iter().find_map(|(key, inner)| path_of(inner, &at.key(key.get_ref()), span)),
        _ => None,
    }
}

fn find_string(node: &Node, text: &str) -> Option<Range<usize>> {
    match node.get_ref() {
        DeValue::String(s) if s == text => Some(node.span()),
        DeValue::Array(items) => items.iter().find_map(|item| find_string(item, text)),
        DeValue::Table(table) => table.values().find_map(|value| find_string(value, text)),
        _ => None,
    }
}

/// Leaks a text, so that the tree's values can borrow from it for the life of the program. Little memory is lost: a
/// program reads one experiment and a few overrides.
fn leak(text: &str) -> &'static str {
    text.to_owned().leak()
}

/// Rewords an error message of serde for a user. Returns the message and, if there is one, a help text. For an unknown
/// key or name the help text has the nearest valid name, if one is near, and all valid names.
fn explain(message: &str) -> (String, Option<String>) {
    // The names of Rust types mean nothing to a user, so ` as i128` and ` as u128` are removed from the message.
    let message = &message.replace(" as i128", "").replace(" as u128", "");
    let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    let (given, known) = match quoted.split_first() {
        Some((given, known)) => (*given, known),
        None => ("", [].as_slice()),
    };
    let kind = match message {
        m if m.starts_with("unknown field") => "key",
        m if m.starts_with("unknown variant") => "name",
        m if m.contains("wanted exactly 1 element") => {
            return ("exactly one choice is allowed here".into(), Some(ONE_CHOICE.into()));
        }
        m if m.contains("unit variant, expected") => {
            return (message.to_owned(), Some("write `{ name = {} }`: it has settings, all with defaults".into()));
        }
        m if m.contains("integer ") && expected(m).is_some() => {
            // The message is cut before "expected", because the help text states what is expected.
            let given = m.split(", expected ").next().unwrap_or(m);
            return (given.to_owned(), expected(m));
        }
        m if m.starts_with("missing field") => {
            let help = format!("add {given}; `foretoken settings` says of every key what may stand there");
            return (m.to_owned(), Some(help));
        }
        m => return (m.to_owned(), expected(m)),
    };
    if let Some((_, now)) = REPLACED.iter().find(|(key, _)| kind == "key" && *key == given) {
        return (format!("`{given}` is a key of earlier versions"), Some((*now).into()));
    }
    let help = match (nearest(given, known.iter().copied()), known) {
        (_, []) => None,
        (Some(near), _) => Some(format!("did you mean `{near}`? Valid here: {}", known.join(", "))),
        (None, _) => Some(format!("valid here: {}", known.join(", "))),
    };
    (format!("unknown {kind} `{given}`"), help)
}

/// For each key that only earlier versions of experiment files had: (the key, a text that says what to write instead).
const REPLACED: [(&str, &str); 2] = [
    (
        "scheduler",
        "write `version = \"vllm-v0\"` with a `max_model_len` for \"v0-prefill-first\", and nothing for \"v1\"",
    ),
    (
        "reserve_full_sequence",
        "write `scheduler_reserve_full_isl`, vLLM's name; without it, the engine does what its release does",
    ),
];

/// The help text for a message of serde that states what was expected, such as "expected u32", in words for a user.
/// `None` if the message does not contain "expected".
fn expected(message: &str) -> Option<String> {
    let (_, wanted) = message.rsplit_once("expected ")?;
    if message.contains("integer ") {
        let most = match wanted {
            "u8" => u64::from(u8::MAX),
            "u16" => u64::from(u16::MAX),
            "u32" => u64::from(u32::MAX),
            // The largest number in the help text is the largest `i64`, because TOML's integers are signed.
            "u64" | "usize" => i64::MAX as u64,
            _ => return Some(format!("expected {}", in_words(wanted))),
        };
        return Some(format!("expected a whole number from 0 to {most}"));
    }
    Some(format!("expected {}", in_words(wanted)))
}

fn in_words(wanted: &str) -> &str {
    match wanted {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number, 0 or more, without quotes",
        "f32" | "f64" => "a number without quotes",
        "a boolean" => "true or false, without quotes",
        "a string" => "text in quotes",
        "a sequence" => "a list: [a, b]",
        other => other,
    }
}

const ONE_CHOICE: &str =
    "to replace a choice with --set, set the whole of it: --set 'acceptance.source={ constant = { rate = 0.8 } }'";

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Engine {
        #[allow(dead_code)]
        block_size: u32,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Top {
        #[allow(dead_code)]
        engine: Engine,
    }

    fn fail(text: &str) -> Box<Problem> {
        Document::parse("x.toml", text).and_then(|d| d.read::<Top>()).unwrap_err()
    }

    #[test]
    fn an_unknown_key_is_pointed_at_with_the_nearest_valid_one() {
        let p = fail("[engine]\nblock_sise = 16\n");
        assert_eq!(p.message(), "unknown key `block_sise`");
        assert_eq!(p.pointed_at(), Some("block_sise"));
        assert!(p.help_text().contains("did you mean `block_size`?"), "{}", p.help_text());
    }

    #[test]
    fn a_wrong_type_and_broken_toml_are_pointed_at() {
        assert_eq!(fail("[engine]\nblock_size = \"16\"\n").pointed_at(), Some("\"16\""));
        assert_eq!(fail("[engine]\nblock_size = -1\n").pointed_at(), Some("-1"));
        assert!(fail("[engine\n").message().contains("not valid TOML"));
    }

    #[test]
    fn a_whole_number_that_is_too_large_is_told_the_largest() {
        for number in ["1000000000000", "-1", "99999999999999999999999999"] {
            let p = fail(&format!("[engine]\nblock_size = {number}\n"));
            assert!(!p.message().contains("i128"), "{}", p.message());
            assert!(p.help_text().contains("a whole number from 0 to 4294967295"), "{}", p.help_text());
        }
    }

    #[test]
    fn a_value_of_its_own_that_cannot_be_read_is_none() {
        let doc = Document::parse("x.toml", "a = 1\nb = 99999999999999999999999999999999999999999999\n").unwrap();
        assert_eq!(doc.value_at(&Path::of("a")), Some(toml::Value::Integer(1)));
        assert_eq!(doc.value_at(&Path::of("b")), None);
    }

    #[test]
    fn a_missing_table_names_the_file() {
        let p = fail("");
        assert!(p.message().contains("missing field `engine`"), "{}", p.message());
    }
}
